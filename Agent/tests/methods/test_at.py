"""`At`: the tree as it was, of the log alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, StoreError, StubLLMClient
from Agent.tests.shared.memory_log import MemoryLog

_LONG = "长" * 3000  # more than stays in memory


def _told(tree: KeywordTree) -> Any:
    """Return all that a tree returns of its records."""
    nodes = [vars(node) for node in tree.Walk()]
    infos = [(vars(info), tree.GetLinks(info.id)) for info in tree.ListInfos(size=1000)]
    return nodes, sorted(infos, key=lambda reported: str(reported[0]["id"]))


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    seconds = count(100)
    with KeywordTree(str(tmp_path / "tree"), clock=lambda: float(next(seconds))) as opened:
        yield opened


def _live(tree: KeywordTree) -> list[tuple[int, float, Any]]:
    """Let a tree change in each way; return what it returned after each operation, with its number and time."""
    seen: list[tuple[int, float, Any]] = []

    def note() -> None:
        newest = tree.History(limit=1)[0]
        seen.append((newest.seq, newest.timestamp, _told(tree)))

    note()
    tea = tree.CreateKeyword("茶", "root", ["tea"])
    note()
    green = tree.CreateKeyword("绿茶", tea.id)
    note()
    info = tree.CreateInfo(_LONG, keyword_ids=[green.id])
    note()
    tree.UpdateInfo(info.id, {"content": "short"})
    note()
    black = tree.CreateKeyword("红茶", tea.id)
    note()
    tree.MergeKeywords(black.id, green.id)
    note()
    with tree.Operation("many"):
        tree.MoveKeyword(green.id, "root")
        tree.DeleteKeyword(tea.id)
    note()
    assert tree.last_operation is not None
    tree.Undo(tree.last_operation)
    note()
    tree.DeleteInfo(info.id)
    note()
    return seen


class TestAt:
    def test_reaches_after_compactions(self, tree: KeywordTree) -> None:
        seen = _live(tree)
        tree.CompactStorage()
        seen += _live(tree)
        tree.CompactStorage()

        for seq, seconds, reported in seen:
            with tree.At(seq) as past:
                assert _told(past) == reported
                assert past.Verify() == []
            assert _told(tree.At(seconds)) == reported
        assert _told(tree.At(tree.History(limit=1)[0].seq)) == seen[-1][2]

    def test_says_so_where_the_log_was_cut(self, tree: KeywordTree) -> None:
        seen = _live(tree)
        tree.CompactStorage(keep_history=False)

        for at in (seen[3][0], seen[3][1], 0, 99.0):
            with pytest.raises(InvalidInputError, match="reach back"):
                tree.At(at)
        assert _told(tree.At(1e12)) == seen[-1][2]

    def test_answers_as_it_would_have(self, tree: KeywordTree) -> None:
        _live(tree)
        now = tree.History(limit=1)[0].seq
        later = tree.CreateKeyword("乌龙", "root", ["oolong"])

        past = tree.At(now)

        assert past.Search("oolong").node is None
        assert past.Search("tea").node is not None
        assert [node.name for node, _ in past.RankCandidates("绿茶")][:1] == ["绿茶"]
        assert past.History(limit=1)[0].seq == now
        assert [change.seq for change in past.Changes(now - 2)] == [now - 1, now]
        assert tree.GetKeyword(later.id) is not None

    def test_cannot_be_written_to(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("tea", "root")
        newest = tree.History(limit=1)[0]
        past = tree.At(newest.seq)

        for write in (
            lambda: past.CreateKeyword("more", "root"),
            lambda: past.DeleteKeyword(tea.id),
            lambda: past.Undo(newest.operation_id),
            past.Snapshot,
            past.CompactStorage,
        ):
            with pytest.raises(StoreError, match="only be read") as caught:
                write()
            assert not caught.value.outcome_unknown
        assert len(past) == len(tree) == 1
        assert tree.History(limit=1)[0].seq == newest.seq
        assert tree.Verify() == []

    def test_stays_while_the_tree_goes_on(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("tea", "root")
        past = tree.At(tree.History(limit=1)[0].seq)
        tree.DeleteKeyword(tea.id)
        tree.CompactStorage(keep_history=False)
        tree.Close()

        assert [node.name for node in past.Walk()][1:] == ["tea"]
        past.Close()

    def test_asks_the_same_model(self, tmp_path: Path) -> None:
        model = StubLLMClient([{"action": "match", "node_id": 0}] * 2)
        with KeywordTree(str(tmp_path), model) as tree:
            tea = tree.CreateKeyword("tea", "root")
            past = tree.At(tree.History(limit=1)[0].seq)
            tree.DeleteKeyword(tea.id)

            assert past.Search("something to drink").node == past.GetKeyword(tea.id)

    def test_of_a_log_elsewhere(self) -> None:
        with KeywordTree("unused", store=MemoryLog().tree("u42")) as tree:
            seen = _live(tree)

            for seq, _, reported in seen:
                assert _told(tree.At(seq)) == reported

    @pytest.mark.parametrize("at", [True, None, "1", 2**63, -1, 10**6, float("nan"), float("inf"), [1]])
    def test_refuses(self, tree: KeywordTree, at: Any) -> None:
        with pytest.raises(InvalidInputError) as caught:
            tree.At(at)

        assert repr(at)[:20] in str(caught.value)
