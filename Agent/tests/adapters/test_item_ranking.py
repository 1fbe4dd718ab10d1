"""Tests of ranking items by words and similarity."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from Agent.adapters import item_ranking
from Agent.adapters.item_ranking import ItemRanking
from Agent.adapters.mem0 import Memory
from Agent.finding.index import Index, Unit


class OneModel:
    """Knows tea from dogs."""

    name = "one"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + ("tea" in text), 1.0 + ("dog" in text)] for text in texts]


TEXTS = {"1": ["green tea"], "2": ["a dog", "tea"], "3": ["black"]}


def test_words_follow_what_is_added_and_removed() -> None:
    ranking = ItemRanking(TEXTS.__getitem__)
    ranking.add("1")
    assert list(ranking.rank_by_words("tea", 5)) == ["1"]
    ranking.add("2")
    ranking.remove("1")
    ranking.remove("missing")

    assert list(ranking.rank_by_words("tea", 5)) == ["2"]
    assert list(ranking.rank_by_words("tea", 5, {"3"})) == []
    ranking.clear()
    assert list(ranking.rank_by_words("tea", 5)) == []


def test_the_likest_text_of_an_item_counts() -> None:
    pytest.importorskip("numpy")
    ranking = ItemRanking(TEXTS.__getitem__, OneModel())
    for id in TEXTS:
        ranking.add(id)
    assert ranking.rank_by_similarity("tea", TEXTS) is None
    ranking.embed(["tea"])

    near = ranking.rank_by_similarity("tea", TEXTS)
    assert near is not None
    assert near["1"] == near["2"] == pytest.approx(1.0, abs=0.01)
    assert near["3"] < 0.99
    ranking.remove("2")
    assert ranking.rank_by_similarity("tea", TEXTS).keys() == {"1", "3"}  # type: ignore[union-attr]


class TestFile:
    """The index of many items is kept: the next process reads what is new alone."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Say which items' texts were indexed."""
        read, unit = list[str](), ItemRanking._unit

        def note(self: ItemRanking, id: str) -> Unit:
            read.append(id)
            return unit(self, id)

        monkeypatch.setattr(item_ranking, "KEPT_FROM", 2)
        monkeypatch.setattr(ItemRanking, "_unit", note)
        return read

    def found(self, folder: Path, query: str) -> list[str]:
        with Memory(path=str(folder)) as memory:
            return [row["memory"] for row in memory.search(query, filters={"user_id": "u"})["results"]]

    def test_is_gone_on_with(self, tmp_path: Path, read: list[str]) -> None:
        with Memory(path=str(tmp_path)) as memory:
            ids = [memory.add(f"tea number {n}", user_id="u", infer=False)["results"][0]["id"] for n in range(4)]
        assert len(self.found(tmp_path, "tea")) == 4
        assert sorted(read) == sorted(ids)
        with Memory(path=str(tmp_path)) as memory:
            memory.delete(ids[0])
            new = memory.add("tea and cake", user_id="u", infer=False)["results"][0]["id"]
        read.clear()

        assert self.found(tmp_path, "cake") == ["tea and cake"]
        assert "tea number 0" not in self.found(tmp_path, "tea")
        assert read == [new]

    @pytest.mark.parametrize("harm", ["damage", "another log"])
    def test_that_does_not_fit_is_made_again(self, tmp_path: Path, read: list[str], harm: str) -> None:
        with Memory(path=str(tmp_path)) as memory:
            for n in range(4):
                memory.add(f"tea number {n}", user_id="u", infer=False)
        self.found(tmp_path, "tea")
        file = tmp_path / "indexes" / "mem0.db"
        if harm == "damage":
            file.write_bytes(file.read_bytes()[:5000] + b"\0" * 5000)
        else:
            index = Index(str(file))
            index.position = "2 another operation"
            index.close()
        read.clear()

        assert len(self.found(tmp_path, "tea")) == 4
        assert len(read) == 4
