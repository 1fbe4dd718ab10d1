"""What every log promises, wherever it is: in a folder, in this process, in PostgreSQL, also far away."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from Agent.keyword_tree import ConflictError, InvalidInputError, KeywordTree, NotFoundError, VersionConflictError
from Agent.shared_tree import SharedLog
from Agent.tests.shared.memory_log import MemoryLog
from Agent.tests.support.looking import names_under as names
from Agent.tests.support.threads import in_threads

LONG = "长内容 long content " * 2000
HUGE = "大" * 600_000  # more than a batch holds in one piece

Open = Callable[[], KeywordTree]


@pytest.fixture(params=["folder", "memory", "postgres", "pooler"])
def again(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Give a function that opens the same log once more, as another machine or process would."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)
    log: MemoryLog | SharedLog | None = None
    if request.param == "memory":
        log = MemoryLog()
    elif request.param != "folder":
        log = request.getfixturevalue("log" if request.param == "postgres" else "pooled_log")
    with contextlib.ExitStack() as stack:

        def open_one() -> KeywordTree:
            store = None if log is None else log.tree("编程 u42")
            return stack.enter_context(KeywordTree(str(tmp_path / "folder"), store=store))

        yield open_one


class TestWriting:
    def test_is_seen_by_others_at_their_next_refresh(self, again: Open) -> None:
        one, other = again(), again()
        tea = one.CreateKeyword("茶", "root", ["tea"])

        other.Refresh()

        assert other.GetKeyword(tea.id) == tea

    def test_is_decided_on_what_others_have_written(self, again: Open) -> None:
        one, other = again(), again()
        tea = one.CreateKeyword("tea", "root")
        green = other.CreateKeyword("green", tea.id)

        one.DeleteKeyword(tea.id, cascade=True)

        assert names(one) == []
        with pytest.raises(NotFoundError):
            other.CreateKeyword("black", tea.id)
        with pytest.raises(NotFoundError):
            other.MoveKeyword(green.id, "root")

    def test_two_moves_that_would_close_a_circle_do_not(self, again: Open) -> None:
        one, other = again(), again()
        a, b = (one.CreateKeyword(name, "root").id for name in "ab")
        one.MoveKeyword(a, b)

        with pytest.raises(InvalidInputError):
            other.MoveKeyword(b, a)

    def test_a_stale_version_is_reported(self, again: Open) -> None:
        one, other = again(), again()
        tea = one.CreateKeyword("tea", "root")
        other.UpdateKeyword(tea.id, {"name": "Tea"}, tea.version)

        with pytest.raises(VersionConflictError) as caught:
            one.UpdateKeyword(tea.id, {"name": "茶"}, tea.version)

        assert caught.value.current == tea.version + 1

    def test_by_many_threads_of_two_trees_loses_and_doubles_nothing(self, again: Open) -> None:
        trees = again(), again()

        def write(worker: int) -> None:
            for number in range(15):
                trees[worker % 2].CreateKeyword(f"{worker}-{number}", "root")

        in_threads(write, range(6))
        for tree in trees:
            tree.Refresh()

        expected = sorted(f"{worker}-{number}" for worker in range(6) for number in range(15))
        assert sorted(names(trees[0])) == sorted(names(trees[1])) == expected
        assert names(trees[0]) == names(trees[1]) == names(again())
        assert trees[0].Verify() == trees[1].Verify() == []

    def test_an_operation_is_seen_whole_or_not_at_all(self, again: Open) -> None:
        one, other = again(), again()
        with one.Operation("both"):
            tea = one.CreateKeyword("tea", "root")
            between = other.CreateKeyword("between", "root")
            one.CreateKeyword("green", tea.id)
            other.Refresh()
            assert names(other) == ["between"]

        other.Refresh()

        assert sorted(names(other)) == ["between", "tea"]
        assert names(other, tea.id) == ["green"]
        assert [change.op for change in other.History(limit=2)] == ["both", "create_keyword"]
        assert other.GetKeyword(between.id) is not None

    def test_any_text_comes_back_as_it_was(self, again: Open) -> None:
        one, other = again(), again()
        odd = ["\x00 NUL", "line\nbreak\ttab\r", '", "after": {"x', "שלום", "👩‍👩‍👧", "\\u0000", "%s %% {}"]
        infos = [one.CreateInfo(text) for text in [*odd, LONG, HUGE]]

        other.Refresh()

        for tree in (one, other, again()):
            assert [tree.GetInfo(info.id) for info in infos] == infos


class TestLookingBack:
    def test_history_and_undo_reach_what_another_wrote(self, again: Open) -> None:
        one, other = again(), again()
        tea = one.CreateKeyword("tea", "root")
        fact = one.CreateInfo(LONG, keyword_ids=[tea.id])
        one.DeleteInfo(fact.id)

        operation = other.History(fact.id)[0].operation_id
        redo = other.Undo(operation)
        one.Refresh()

        assert one.GetInfo(fact.id) == other.GetInfo(fact.id)
        assert [change.op for change in one.History(fact.id)] == ["undo", "delete_info", "create_info"]
        one.Undo(redo)
        assert one.GetInfo(fact.id) is None

    def test_an_undo_that_another_write_stands_in_the_way_of_is_refused(self, again: Open) -> None:
        one, other = again(), again()
        tea = one.CreateKeyword("tea", "root")
        other.CreateKeyword("green", tea.id)

        with pytest.raises(ConflictError):
            one.Undo(one.History(tea.id)[-1].operation_id)

    def test_changes_go_on_where_they_ended(self, again: Open) -> None:
        one, other = again(), again()
        one.CreateKeyword("a", "root")
        seen = list(other.Changes(0))
        one.CreateKeyword("b", "root")

        assert [change.op for change in seen] == ["create_store", "create_keyword"]
        assert [change.after[0].name for change in other.Changes(seen[-1].seq)] == ["b"]

    def test_a_snapshot_is_restored_by_another(self, again: Open) -> None:
        one, other = again(), again()
        tea = one.CreateKeyword("tea", "root")
        fact = one.CreateInfo(LONG, keyword_ids=[tea.id])
        stamp = one.Snapshot()
        one.DeleteKeyword(tea.id, cascade=True, info_policy="delete")
        later = one.CreateKeyword("later", "root")

        undo = other.Restore(stamp)
        one.Refresh()

        assert names(one) == ["tea"]
        assert one.GetInfo(fact.id) is not None
        one.Undo(undo)
        assert names(one) == ["later"]
        assert one.GetKeyword(later.id) is not None

    def test_an_unknown_snapshot_is_reported(self, again: Open) -> None:
        with pytest.raises(NotFoundError):
            again().Restore("20200101T000000.000000Z")


class TestCompaction:
    @pytest.mark.parametrize("keep_history", [True, False])
    def test_changes_nothing_that_is_seen(self, again: Open, keep_history: bool) -> None:
        one, other = again(), again()
        a, b = (one.CreateKeyword(name, "root").id for name in "ab")
        facts = [one.CreateInfo(text, keyword_ids=[a]) for text in ("短", LONG, HUGE)]
        one.MergeKeywords(b, a)

        one.CompactStorage(keep_history)
        other.Refresh()

        for tree in (one, other, again()):
            assert names(tree) == ["a"]
            assert [tree.GetInfo(fact.id) for fact in facts] == facts
            assert tree.GetKeyword(b) == tree.GetKeyword(a)
            assert tree.Verify() == []

    def test_those_who_were_behind_go_on(self, again: Open) -> None:
        one, other = again(), again()
        for number in range(5):
            one.CreateKeyword(f"n{number}", "root")
        one.CompactStorage(keep_history=False)

        other.CreateKeyword("mine", "root")
        one.Refresh()

        assert names(one) == names(other) == ["n0", "n1", "n2", "n3", "n4", "mine"]

    def test_with_history_all_can_be_undone(self, again: Open) -> None:
        one = again()
        fact = one.CreateInfo(LONG)
        one.DeleteInfo(fact.id)
        operation = one.History(limit=1)[0].operation_id
        one.CompactStorage(keep_history=True)

        again().Undo(operation)
        one.Refresh()

        assert one.GetInfo(fact.id) is not None

    def test_without_history_it_is_gone_but_for_snapshots(self, again: Open) -> None:
        one, other = again(), again()
        fact = one.CreateInfo(LONG)
        stamp = one.Snapshot()
        one.DeleteInfo(fact.id)
        operation = one.History(limit=1)[0].operation_id

        said = one.CompactStorage(keep_history=False)

        assert stamp in said["snapshots"]
        with pytest.raises(NotFoundError):
            other.Undo(operation)
        other.Restore(stamp)
        one.Refresh()
        assert one.GetInfo(fact.id) is not None
        assert one.Verify() == other.Verify() == again().Verify() == []

    def test_tells_those_who_follow_that_all_is_new(self, again: Open) -> None:
        one, other = again(), again()
        one.CreateKeyword("a", "root")
        seen = list(other.Changes(0))[-1].seq
        one.CompactStorage(keep_history=False)
        one.CreateKeyword("b", "root")

        ops = [change.op for change in other.Changes(seen)]

        assert ops[0] == "state"
        assert ops[-1] == "create_keyword"


class TestWhole:
    def test_a_random_life_leaves_all_replicas_equal_and_sound(self, again: Open) -> None:
        life, trees = random.Random(20), [again(), again(), again()]
        for step in range(120):
            tree = life.choice(trees)
            ids = [node.id for node in tree.GetChildren("root")]
            kind = life.choice(("create", "create", "create", "info", "move", "delete", "undo", "merge", "compact"))
            with contextlib.suppress(ConflictError, NotFoundError, InvalidInputError):
                if kind == "create":
                    tree.CreateKeyword(f"k{step}", life.choice([*ids, "root"]))
                elif kind == "info":
                    tree.CreateInfo(life.choice(("short", LONG)), keyword_ids=ids[:1])
                elif kind == "move":
                    tree.MoveKeyword(life.choice(ids or ["root"]), life.choice([*ids, "root"]))
                elif kind == "delete":
                    tree.DeleteKeyword(life.choice(ids or ["root"]), life.random() < 0.5)
                elif kind == "undo":
                    tree.Undo(life.choice(tree.History(limit=5)).operation_id)
                elif kind == "merge":
                    tree.MergeKeywords(life.choice(ids or ["root"]), life.choice(ids or ["root"]))
                elif step % 5 == 0:
                    tree.CompactStorage(life.random() < 0.5)
        for tree in trees:
            tree.Refresh()
        trees.append(again())

        drawn = {str(tree) for tree in trees}
        assert len(drawn) == 1
        for tree in trees:
            assert tree.Verify() == []
