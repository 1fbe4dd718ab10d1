"""Tests of ranking items by words and similarity."""

from collections.abc import Sequence

import pytest

from Agent.adapters.item_ranking import ItemRanking


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
