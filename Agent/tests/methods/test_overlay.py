"""What an open operation shows is the tree with its writes, whatever others commit meanwhile.

The tables of an overlay are compared with those of a state that is made of the same rows afresh, behind each step of
random programs: the block's own writes, those of another thread, and those of another tree on the same folder.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from Agent.keyword_tree import (
    ConflictError,
    InvalidInputError,
    KeywordTree,
    KeywordTreeError,
    NotFoundError,
    RelationType,
)
from Agent.tests.support.inside import check_tables

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
def test_is_the_same_as_a_state_of_the_same_rows(tmp_path: Path, seed: int) -> None:
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

    def test_both_changes_of_a_keyword_are_seen(self, tree: KeywordTree) -> None:
        keyword, other = tree.CreateKeyword("k", "root"), tree.CreateKeyword("other", "root")
        with tree.Operation():
            tree.MoveKeyword(keyword.id, other.id)
            _elsewhere(lambda: tree.UpdateKeyword(keyword.id, {"description": "as another says"}, keyword.version))
            seen = tree.GetKeyword(keyword.id)

        assert seen is not None
        assert (seen.parent_id, seen.description) == (other.id, "as another says")

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

    def test_what_came_under_a_keyword_goes_with_it(self, tree: KeywordTree) -> None:
        parent = tree.CreateKeyword("parent", "root")
        with tree.Operation():
            tree.DeleteKeyword(parent.id, cascade=True)
            _elsewhere(lambda: tree.CreateKeyword("child", parent.id))
            seen = tree.FindByName("child")

        assert seen == []
        assert len(tree) == 0

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
