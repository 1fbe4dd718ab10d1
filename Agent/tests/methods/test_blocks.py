"""Blocks: what one that has ended, in whatever way, may still do."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import InvalidInputError, KeywordTree


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
            tree.CreateKeyword("outer too", "root")

        assert [node.name for node in tree.Walk()][1:] == ["outer", "outer too"]

    def test_of_an_inner_one_at_the_end_of_the_outer_takes_its_writes_back(self, tree: KeywordTree) -> None:
        with tree.Operation():
            tree.CreateKeyword("outer", "root")
            with contextlib.suppress(KeyboardInterrupt), tree.Operation():
                tree.CreateKeyword("inner", "root")
                interrupt_next_call()

        assert [node.name for node in tree.Walk()][1:] == ["outer"]


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

    def test_can_be_entered_and_left_by_hand(self, tree: KeywordTree) -> None:
        op = tree.Operation("by hand")
        assert hasattr(op, "__exit__")

        op.__enter__()
        tree.CreateKeyword("a", "root")
        op.__exit__(None, None, None)

        assert tree.History(limit=1)[0].op == "by hand"


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
