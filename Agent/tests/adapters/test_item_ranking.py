"""Tests of ranking items by words and similarity."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from Agent.adapters import mem0
from Agent.adapters.item_ranking import ItemRanking
from Agent.adapters.mem0 import Memory
from Agent.finding.index import Index
from Agent.keyword_tree import Info, KeywordTree


class OneModel:
    """Knows tea from dogs."""

    name = "one"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + ("tea" in text), 1.0 + ("dog" in text)] for text in texts]


def lines_of(info: Info) -> list[str]:
    """Say what an item's texts are; what has no source is none."""
    return info.content.splitlines() if info.source else []


def test_words_follow_what_is_added_and_removed(tree: KeywordTree) -> None:
    ranking = ItemRanking(tree, None, lines_of)
    green, other = tree.CreateInfo("green tea", "s"), tree.CreateInfo("tea")
    both = [green.id, other.id]
    assert list(ranking.rank_by_words("tea", 5, both)) == [green.id]
    dog = tree.CreateInfo("a dog\ntea", "s")
    tree.DeleteInfo(green.id)

    assert list(ranking.rank_by_words("tea", 5, [*both, dog.id])) == [dog.id]
    assert list(ranking.rank_by_words("tea", 5, both)) == []
    tree.DeleteInfo(dog.id)
    assert list(ranking.rank_by_words("tea", 5, [*both, dog.id])) == []


def test_the_likest_text_of_an_item_counts(tree: KeywordTree) -> None:
    pytest.importorskip("numpy")
    ranking = ItemRanking(tree, None, lines_of, OneModel())
    green, dog, black = (tree.CreateInfo(text, "s").id for text in ("green tea", "a dog\ntea", "black"))
    assert ranking.rank_by_similarity("tea", [green, dog, black]) is None
    ranking.embed(["tea"])

    near = ranking.rank_by_similarity("tea", [green, dog, black])
    assert near is not None
    assert near[green] == near[dog] == pytest.approx(1.0, abs=0.01)
    assert near[black] < 0.99
    tree.DeleteInfo(dog)
    assert ranking.rank_by_similarity("tea", [green, dog, black]).keys() == {green, black}  # type: ignore[union-attr]


class TestFile:
    """The index is kept: the next process reads what is new alone."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Say which items' texts were indexed."""
        read, texts_of = list[str](), mem0._texts_of

        def note(info: Info) -> list[str]:
            read.extend([] if info.deleted else [info.id])
            return texts_of(info)

        monkeypatch.setattr(mem0, "_texts_of", note)
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
