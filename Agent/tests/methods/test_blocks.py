"""Blocks: what they show beside others, what is taken back, and what one that has ended may still do."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import (
    ConflictError,
    DuplicateIdError,
    InvalidInputError,
    KeywordTree,
    KeywordTreeError,
    NotFoundError,
    RelationType,
)
from Agent.tests.support.inside import blocks_noted, check_tables, note_updates_planned
from Agent.tests.support.threads import in_a_child


def interrupt_next_call() -> None:
    """Raise KeyboardInterrupt where the next function of the core is entered, as a second Ctrl-C may."""

    def profile(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == kt.__file__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(profile)


class TestAnInterruptAtTheEndOfABlock:
    def test_leaves_no_block_that_takes_the_next_write(self, tree: KeywordTree) -> None:
        op = tree.Operation("interrupted")
        with contextlib.suppress(KeyboardInterrupt), op:
            tree.CreateKeyword("within", "root")
            interrupt_next_call()

        after = tree.CreateKeyword("after", "root")
        assert "ended" in repr(op)
        with KeywordTree(tree.data_dir) as other:
            assert [node.name for node in other.Walk()][1:] == ["after"]
            assert other.GetKeyword(after.id) == after
        assert [node.name for node in tree.Walk()][1:] == ["after"]
        tree.Close()

    def test_leaves_nothing_of_many_blocks_in_memory(self, tree: KeywordTree) -> None:
        ended = []
        for _ in range(20):
            with contextlib.suppress(KeyboardInterrupt), tree.Operation() as op:
                tree.CreateInfo("x" * 100_000)
                ended.append(weakref.ref(op))
                interrupt_next_call()
        del op
        gc.collect()
        assert tree.GetKeyword("root")
        assert [block() for block in ended] == [None] * 20
        assert blocks_noted(tree) == 0  # else each look-up asks for the last one

    def test_is_noticed_while_the_error_is_handled(self, tree: KeywordTree) -> None:
        try:
            with tree.Operation():
                tree.CreateKeyword("within", "root")
                interrupt_next_call()
        except KeyboardInterrupt:
            tree.CreateKeyword("handling", "root")

        with KeywordTree(tree.data_dir) as other:
            assert [node.name for node in other.Walk()][1:] == ["handling"]

    def test_of_an_inner_one_that_failed_takes_its_writes_back(self, tree: KeywordTree) -> None:
        with tree.Operation():
            tree.CreateKeyword("outer", "root")
            with contextlib.suppress(KeyboardInterrupt), tree.Operation():
                tree.CreateKeyword("inner", "root")
                interrupt_next_call()
                raise ValueError
            with contextlib.suppress(ValueError), tree.Operation():
                tree.CreateKeyword("of the next one", "root")
                raise ValueError
            tree.CreateKeyword("outer too", "root")
        assert [node.name for node in tree.Walk()][1:] == ["outer", "outer too"]


class TestABlock:
    @pytest.mark.parametrize("fails", [False, True])
    def test_can_be_entered_by_an_exit_stack(self, tree: KeywordTree, fails: bool) -> None:
        with contextlib.suppress(ValueError), contextlib.ExitStack() as stack:
            stack.enter_context(tree.Operation("stacked"))
            tree.CreateKeyword("a", "root")
            tree.CreateKeyword("b", "root")
            if fails:
                raise ValueError

        assert [change.op for change in tree.History(limit=1)] == ["create_store" if fails else "stacked"]


class TestCloseBesideAnOpenBlock:
    def test_is_refused_where_it_holds_writes_and_names_it(self, tree: KeywordTree) -> None:
        with tree.Operation("half done"):
            tree.CreateKeyword("a", "root")
            with pytest.raises(InvalidInputError, match="'half done' open, 1 write"):
                tree.Close()
            tree.CreateKeyword("b", "root")

        assert [node.name for node in tree.Walk()][1:] == ["a", "b"]
        tree.Close()

    def test_is_done_where_it_holds_none(self, tree: KeywordTree) -> None:
        with tree.Operation():
            tree.Close()


class TestTheAuthorOfABlock:
    def test_is_not_that_of_a_part_that_was_taken_back(self, tree: KeywordTree) -> None:
        with tree.Operation():
            with contextlib.suppress(ValueError), tree.Operation():
                tree.CreateKeyword("a", "root", created_by="Ada")
                raise ValueError
            tree.CreateKeyword("b", "root", created_by="Bo")

        assert tree.History(limit=1)[0].author == "Bo"


def test_a_keyword_below_one_that_was_made_and_moved_in_the_block_has_its_level(tree: KeywordTree) -> None:
    deep = tree.CreateKeyword("deep", tree.CreateKeyword("top", "root").id)
    with tree.Operation("made and moved"):
        made = tree.CreateKeyword("made", "root")
        below = tree.CreateKeyword("below", made.id)
        tree.MoveKeyword(made.id, deep.id)
        last = tree.CreateKeyword("last", below.id)

    reread = tree.GetKeyword(last.id)
    assert reread is not None
    assert last.level == reread.level == 5


def test_to_ensure_a_path_looks_at_the_fewer_of_children_and_namesakes(tree: KeywordTree) -> None:
    users = tree.CreateKeyword("users", "root")
    names = [{"id": f"u{number}", "name": f"user {number}", "parent_id": users.id} for number in range(2_000)]
    tree.BatchCreateKeywords(names)
    tree.BatchCreateKeywords([{"name": "preferences", "parent_id": each["id"]} for each in names])
    calls: list[str] = []

    def count(frame: Any, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        tree.Ensure(["users", "user 7", "preferences"])
    finally:
        sys.setprofile(None)
    assert len(calls) < 500


class TestBlocks:
    def test_are_entered_once(self, tree: KeywordTree) -> None:
        block = tree.Operation()
        with contextlib.suppress(ZeroDivisionError), block:
            tree.CreateKeyword("taken back", "root")
            raise ZeroDivisionError
        with pytest.raises(InvalidInputError, match="entered once"), block:
            pass
        with tree.Operation() as other:
            tree.CreateKeyword("kept", "root")
            with pytest.raises(InvalidInputError, match="entered once"), other:
                pass

        assert [node.name for node in tree.Walk()][1:] == ["kept"]

    def test_give_keywords_that_look_their_children_up_when_they_are_read(self, tree: KeywordTree) -> None:
        with tree.Operation():
            parent = tree.CreateKeyword("parent", "root")
            child = tree.CreateKeyword("child", parent.id)

        assert parent.children == [child.id]

    def test_make_a_group_once_though_their_plans_run_again(self, tree: KeywordTree) -> None:
        ids = [tree.CreateKeyword(f"k{number}", "root").id for number in range(3)]
        plan: dict[str, Any] = {
            "steps": [{"action": "group", "parent_id": "root", "name": "group", "ids": ids}],
            "seen": {},
        }
        plan["seen"] = {id: [1, 0, 0] for id in ids} | {"root": [1, 3, 0]}
        with tree.Operation():
            tree.ApplyReorganizePlan(plan)
            inside = tree.CreateKeyword("inside", tree["group"].id)
            thread = threading.Thread(target=lambda: tree.CreateInfo("of another"))
            thread.start()
            thread.join()

        assert [node.name for node in tree.GetPath(inside.id)] == ["root", "group", "inside"]

    def test_that_are_taken_back_leave_no_words_behind(self, tree: KeywordTree) -> None:
        plant = tree.CreateKeyword("plant", "root")
        info = tree.CreateInfo("quiet " * 1000, keyword_ids=[plant.id])
        with contextlib.suppress(RuntimeError), tree.Operation():
            tree.UpdateInfo(info.id, {"content": "zebra " * 1000})
            tree.RankCandidates("zebra")
            raise RuntimeError

        assert tree.RankCandidates("zebra") == []
        assert [node.id for node, _ in tree.RankCandidates("quiet")] == [plant.id]


class TestBlocksAreWhole:
    def test_a_forked_child_that_leaves_its_parents_block_commits_nothing_of_it(self, tree: KeywordTree) -> None:
        block = tree.Operation()
        block.__enter__()
        tree.CreateKeyword("parent's", "root", id="p")
        code = in_a_child(lambda: block.__exit__(None))
        block.__exit__(None)

        assert code == 0
        assert [node.id for node in tree.Walk()][1:] == ["p"]

    def test_a_line_tells_when_its_block_was_committed(self, folder: Path) -> None:
        now = [100.0]
        with KeywordTree(str(folder), clock=lambda: now[0]) as tree, KeywordTree(str(folder)) as other:
            with tree.Operation():
                now[0] = 200.0
                made = tree.CreateKeyword("in the block", "root")
                now[0] = 300.0
                with KeywordTree(str(folder), clock=lambda: 250.0) as quicker:
                    quicker.CreateKeyword("written meanwhile", "root")
            assert made.created_at == 100.0
            assert tree.History(limit=1)[0].timestamp == 300.0
            with other.At(220.0) as then:
                assert len(then) == 0
            with other.At(260.0) as then:
                assert [node.name for node in then.Walk()][1:] == ["written meanwhile"]

    @pytest.mark.parametrize("reads", [False, True])
    def test_inner_ones_that_fail_do_not_run_again_what_came_before(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, reads: bool
    ) -> None:
        run: list[object] = []
        note_updates_planned(monkeypatch, run.append)

        def import_rows(tree: KeywordTree, count: int) -> int:
            run.clear()
            with tree.Operation():
                for n in range(count):
                    node = tree.CreateKeyword(f"k{n}", "root")
                    tree.UpdateKeyword(node.id, {"name": f"n{n}"}, 1)
                    with contextlib.suppress(ZeroDivisionError), tree.Operation():
                        tree.UpdateKeyword(node.id, {"name": "wrong"}, 2)
                        if reads:
                            assert tree.FindByName("wrong")
                        raise ZeroDivisionError
                    if reads:
                        assert not tree.FindByName("wrong")
                    with contextlib.suppress(DuplicateIdError):
                        tree.BatchCreateKeywords([{"name": "refused"}, {"name": "refused", "id": node.id}])
            return len(run)

        with KeywordTree(str(folder)) as tree:
            few, many = import_rows(tree, 10), import_rows(tree, 40)
            names = [node.name for node in tree.Walk()][1:]
            assert tree.Verify() == []

        assert many <= 5 * few
        assert names == [f"n{n}" for n in range(10)] + [f"n{n}" for n in range(40)]


_NAMES = ["a", "A-", "b c", "bc", "x_y", "茶", "茶 ", "q"]


def _elsewhere(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def _write(tree: KeywordTree, chance: random.Random) -> None:
    """Do one of all the kinds of writes; what does not fit is refused."""
    ids = [node.id for node in tree.Walk()]
    one, other = chance.choice(ids), chance.choice(ids)
    info = chance.choice([*(each.id for each in tree.ListInfos(size=500)), "none"])
    name = chance.choice(_NAMES)

    def rename() -> None:
        node = tree.GetKeyword(one)
        assert node is not None
        tree.UpdateKeyword(one, {"name": name}, node.version)

    writes: list[Callable[[], object]] = [
        *[lambda: tree.CreateKeyword(name, one, chance.sample(_NAMES, chance.randrange(3)))] * 4,
        lambda: tree.CreateInfo("i", keyword_ids=[one, other][: chance.randrange(3)]),
        lambda: tree.MoveKeyword(one, other),
        lambda: tree.MergeKeywords(one, other),
        lambda: tree.DeleteKeyword(one, chance.random() < 0.3, chance.choice(["reattach", "detach", "delete"])),
        lambda: tree.LinkInfo(info, one, chance.choice(list(RelationType))),
        lambda: tree.UnlinkInfo(info, one),
        lambda: tree.DeleteInfo(info),
        rename,
        lambda: tree.Confirm(f"{name}?", one),
        lambda: tree.Undo(chance.choice(tree.History(limit=20)).operation_id),
    ]
    with contextlib.suppress(KeywordTreeError):
        chance.choice(writes)()


@contextlib.contextmanager
def _block(tree: KeywordTree, *, fails: bool) -> Iterator[None]:
    """Open an operation, which may be refused at its end, or taken back."""
    with contextlib.suppress(KeywordTreeError, ArithmeticError), tree.Operation():
        yield
        if fails:
            raise ArithmeticError


@pytest.mark.parametrize("seed", range(6))
def test_a_block_shows_the_tree_with_its_writes_whatever_others_commit(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with KeywordTree(str(tmp_path)) as tree, KeywordTree(str(tmp_path)) as neighbour:
        for _ in range(25):
            _write(tree, chance)
        for turn in range(4):
            with _block(tree, fails=turn == 2):
                for _ in range(12):
                    if chance.random() < 0.3:
                        _elsewhere(lambda: _write(chance.choice([tree, neighbour]), chance))
                        _elsewhere(tree.Refresh)
                    _write(tree, chance)
                    check_tables(tree)
            assert tree.Verify() == []
            check_tables(tree)
        check_tables(tree.At(chance.randrange(1, tree.History(limit=1)[0].seq + 1)))


class TestBesideAnother:
    """What a block shows behind a write of another that has to do with its own, before it ends."""

    def test_what_is_under_a_keyword_that_is_gone_is_refused(self, tree: KeywordTree) -> None:
        parent = tree.CreateKeyword("parent", "root")

        def write() -> None:
            with tree.Operation():
                tree.CreateKeyword("child", parent.id)
                _elsewhere(lambda: tree.DeleteKeyword(parent.id))
                with pytest.raises(ConflictError, match="no longer fits what others wrote: no keyword has the id"):
                    tree.FindByName("child")

        with pytest.raises(NotFoundError):
            write()
        assert len(tree) == 0

    def test_what_stands_again_after_a_failing_part_is_compared_with_others(self, tree: KeywordTree) -> None:
        first, second, moved = (tree.CreateKeyword(name, "root") for name in ("first", "second", "moved"))

        def write() -> None:
            with tree.Operation():
                tree.MoveKeyword(moved.id, first.id)
                with contextlib.suppress(ArithmeticError), tree.Operation():
                    tree.MoveKeyword(moved.id, second.id)
                    _elsewhere(lambda: tree.CreateKeyword("of another", "root"))  # now it is looked at what was named
                    raise ArithmeticError
                _elsewhere(lambda: tree.DeleteKeyword(first.id))
                with pytest.raises(ConflictError, match="no longer fits"):
                    tree.GetPath(moved.id)

        with pytest.raises(NotFoundError):
            write()
        assert tree.Verify() == []

    def test_a_read_tells_no_error_of_an_earlier_write(self, tree: KeywordTree) -> None:
        first, second = tree.CreateKeyword("first", "root"), tree.CreateKeyword("second", "root")

        def write() -> None:
            with tree.Operation():
                tree.MoveKeyword(first.id, second.id)
                _elsewhere(lambda: tree.MoveKeyword(second.id, first.id))
                try:
                    tree.GetKeyword("root")
                except KeywordTreeError as error:
                    reported.append(error)

        reported: list[KeywordTreeError] = []
        with pytest.raises(InvalidInputError, match="under itself"):
            write()
        assert [type(error) for error in reported] == [ConflictError]

    def test_a_tree_that_was_opened_again_is_seen(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree, KeywordTree(str(folder)) as other:
            with tree.Operation():
                tree.CreateKeyword("mine", "root")
                other.CreateKeyword("theirs", "root")
                other.CompactStorage()
                _elsewhere(tree.Refresh)
                seen = sorted(node.name for node in tree.GetChildren("root"))

            assert seen == ["mine", "theirs"]
            assert tree.Verify() == []
