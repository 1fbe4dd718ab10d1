"""The package's ranker stands in for the plain one, behind the same interface.  More on it: `tests/finding`."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

import pytest

from Agent.keyword_tree import Fits, KeywordTree, PlainRanker, TreeView
from Agent.ranking import LexicalRanker


class ByLength:
    """Ranks the longest names first; it is no class of the library's."""

    def __init__(self, view: TreeView) -> None:
        self.view = view
        self.noted: list[Collection[str] | None] = []
        self.is_closed = False

    def Note(self, ids: Collection[str] | None) -> None:  # noqa: N802  the interface's names
        self.noted.append(ids)

    def Fit(self, query: str, more: str = "", **_: object) -> Fits:  # noqa: N802
        texts = [each for each in self.view.Read(self.view.Ids()) if each.parent_id is not None]
        return Fits([each.id for each in sorted(texts, key=lambda each: -len(each.names[0]))], {})

    def Close(self) -> None:  # noqa: N802
        self.is_closed = True


def test_is_what_a_tree_of_the_package_ranks_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with KeywordTree(str(tmp_path)) as tree:
        assert isinstance(tree._ranker, LexicalRanker)
        tree.RankCandidates("tea")
    assert "plainly" not in caplog.text


def test_another_one_is_asked_where_it_is_given(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path), ranker=ByLength) as tree:
        tea, long = tree.CreateKeyword("tea", "root"), tree.CreateKeyword("a longer name", "root")
        info = tree.CreateInfo("hot", keyword_ids=[tea.id])
        tree.UpdateInfo(info.id, {"content": "cold"})

        assert [node.id for node, _ in tree.RankCandidates("x")] == [long.id, tea.id]
        assert tree._ranker.noted == [None, {tea.id}, {long.id}, {tea.id}, {tea.id}]
        ranker = tree._ranker
    assert ranker.is_closed


@pytest.mark.parametrize("ranker", [LexicalRanker, PlainRanker])
def test_both_find_by_names_infos_and_what_is_above(tmp_path: Path, ranker: type[PlainRanker]) -> None:
    with KeywordTree(str(tmp_path), ranker=ranker) as tree:
        tea = tree.Ensure("food/green tea")
        tree.Ensure("编程/绿茶 框架")
        tree.CreateInfo("Steep it for three minutes. It is bitter else.", keyword_ids=[tea.id])
        found = [tree.RankCandidates(query, 1)[0][0].name for query in ("teas", "三种绿茶", "how many minutes")]

        assert found == ["green tea", "绿茶 框架", "green tea"]
        fits = tree._engine.Fit("oolong tea", is_placing=True)
        assert tree.FindByName("food")[0].id in fits.ids
        assert 0 < fits.evidence[tea.id].score <= 1
        assert tree._engine.Fit("minutes").evidence[tea.id].excerpt == "Steep it for three minutes."
