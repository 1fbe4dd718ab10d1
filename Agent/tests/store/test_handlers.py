"""What runs between two steps of a thread that uses the store: a signal's handler, or a process that steps in.

The trees work on `support.faulty_files.FaultyDisk`. Each test steps in before a certain call to that disk, or before
each call of a method in turn, or at a lock of a commit: there Python may run a handler, and another process go on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from types import NoneType
from typing import NamedTuple

import pytest

from Agent.keyword_tree import ClosedError, KeywordTree, StoreCorruptError, StoreError
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, FaultyDisk, stepping_in
from Agent.tests.support.looking import names_under

STORM = os.environ.get("KEYWORD_TREE_STORM", "") not in ("", "0")
FOLDER = "/disk/store"
LOCK = f"{FOLDER}/lock"
LOG = "store/change_log.jsonl"
LONG = "too long for memory " * 250


@pytest.fixture
def disk(door: Door) -> FaultyDisk:
    """Give the disk of a store that holds two keywords and a long info, which no process has open."""
    fill(door)
    return door.disk


def fill(door: Door) -> None:
    door.disk = FaultyDisk()
    with KeywordTree(FOLDER) as tree:
        first = tree.CreateKeyword("first", "root")
        tree.CreateKeyword("second", "root")
        tree.CreateInfo(LONG, keyword_ids=[first.id])


class Met(NamedTuple):
    """A call to the disk before which something was done, within a method of a tree."""

    call: str
    tree: KeywordTree
    returned: object
    raised: BaseException | None


def at_each_call(
    door: Door, work: Callable[[KeywordTree], object], act: Callable[[KeywordTree], object], step: int = 1
) -> Iterator[Met]:
    """Let a method run on a fresh disk for each of its calls to that, or each few, and do something before the call."""
    for number in itertools.count(0, step):
        fill(door)
        tree = KeywordTree(FOLDER)
        returned, raised = None, None
        with stepping_in(door.disk, number, partial(act, tree)) as met:
            try:
                returned = work(tree)
            except Exception as error:
                raised = error
        if not met:  # it makes no more calls
            assert number > 0
            return
        yield Met(met[0], tree, returned, raised)


def check_reopened(expected: list[str]) -> None:
    """Open the store again: it holds these keywords, and is sound."""
    with KeywordTree(FOLDER) as again:
        assert (names_under(again), again.recovery, again.Verify()) == (expected, (), [])
        assert [info.content for info in again.ListInfos()] == [LONG]


def write(tree: KeywordTree) -> object:
    return tree.CreateKeyword("made", "root")


def write_many(tree: KeywordTree) -> object:
    with tree.Operation():
        return tree.CreateKeyword("made", "root")


def checkpoint(tree: KeywordTree) -> object:
    inside.make_checkpoint_due(tree)
    return tree.CreateKeyword("made", "root")


class TestClose:
    """In a handler it is refused while its own thread is in a call, which goes on as if nothing had been asked."""

    def close(self, tree: KeywordTree) -> None:
        was_locked = inside.is_locked(LOCK)
        with contextlib.suppress(StoreError):
            tree.Close()
            assert not was_locked, "the lock was given away"
        assert inside.is_locked(LOCK) == was_locked, "the lock was given away"

    @pytest.mark.parametrize("work", [write, write_many, checkpoint])
    def test_is_refused_within_a_write_which_is_done(self, door: Door, work: Callable[[KeywordTree], object]) -> None:
        for met in at_each_call(door, work, self.close):
            assert met.returned is not None, met
            assert names_under(met.tree) == ["first", "second", "made"], met
            assert met.tree.Verify() == [], met
            met.tree.Close()
            assert door.disk.open_count() == 0, met
            check_reopened(["first", "second", "made"])

    @pytest.mark.parametrize(
        ("work", "step"),
        [
            (KeywordTree.CompactStorage, 1 if STORM else 4),
            (lambda tree: tree.CompactStorage(keep_history=False), 1 if STORM else 4),
            (KeywordTree.Refresh, 1),
            (KeywordTree.Verify, 1),
            (KeywordTree.Snapshot, 1),
        ],
        ids=["compact", "forget", "refresh", "verify", "snapshot"],
    )
    def test_is_refused_or_done_wholly_beside_what_needs_the_lock(
        self, door: Door, work: Callable[[KeywordTree], object], step: int
    ) -> None:
        for met in at_each_call(door, work, self.close, step):
            assert isinstance(met.raised, (ClosedError, NoneType)), met
            met.tree.Close()
            with pytest.raises(ClosedError):
                names_under(met.tree)
            assert door.disk.open_count() == 0, met
            check_reopened(["first", "second"])

    def test_lets_a_long_content_be_read_that_it_interrupts(self, disk: FaultyDisk) -> None:
        tree = KeywordTree(FOLDER)
        with stepping_in(disk, "pread change_log.jsonl", tree.Close) as met:
            assert [info.content for info in tree.ListInfos()] == [LONG]

        assert met == ["pread change_log.jsonl"]
        with pytest.raises(ClosedError):
            names_under(tree)
        assert disk.open_count() == 0
        check_reopened(["first", "second"])


def ring(_: object) -> None:
    raise TimeoutError("took too long")  # what the handler of an alarm raises, as a rule; it is an OSError


class TestTimeouts:
    """A handler's TimeoutError is none of the disk's errors."""

    @pytest.mark.parametrize("work", [write, checkpoint, KeywordTree.Refresh])
    def test_are_no_failed_sync(self, door: Door, work: Callable[[KeywordTree], object]) -> None:
        for met in at_each_call(door, work, ring):
            is_taken_back = isinstance(met.raised, StoreError) and "nothing was changed" in str(met.raised)
            assert met.returned or type(met.raised) is TimeoutError or is_taken_back, met
            assert door.disk.read_all()["store/lock"] == b"", met
            with KeywordTree(FOLDER) as other:
                other.CreateKeyword("of another", "root")
            met.tree.CreateKeyword("later", "root")
            made = ["made"] * ("made" in names_under(met.tree))
            assert is_taken_back <= (not made), met
            assert bool(met.returned) <= bool(made), met
            assert names_under(met.tree) == ["first", "second", *made, "of another", "later"], met
            assert met.tree.Verify() == [], met
            met.tree.Close()

    def test_while_the_lock_is_waited_for_come_out_as_themselves(self, door: Door) -> None:
        fill(door)
        tree = KeywordTree(FOLDER)
        with stepping_in(door.disk, "flock lock", partial(ring, None)), pytest.raises(TimeoutError):
            write(tree)

    @pytest.mark.parametrize("call", ["fdatasync change_log.jsonl", "fsync store", "pread change_log.jsonl"])
    def test_in_an_opening_come_out_as_themselves(self, disk: FaultyDisk, call: str) -> None:
        with stepping_in(disk, call, partial(ring, None)) as met, pytest.raises(TimeoutError, match="too long"):
            KeywordTree(FOLDER)

        assert met == [call]
        assert disk.read_all()["store/lock"] == b""
        assert disk.open_count() == 0
        check_reopened(["first", "second"])


def rename_over(disk: FaultyDisk, log: bytes) -> None:
    disk.put({"store/restored": log})
    disk.replace(f"{FOLDER}/restored", f"{FOLDER}/change_log.jsonl")


class TestLogThatLostItsEnd:
    """What an open tree has read, and the log no longer holds, was acknowledged: no process writes over that gap."""

    @pytest.mark.parametrize(
        "lose",
        [
            lambda disk, log, older: disk.spoil(LOG, log.rstrip()[:-40]),
            lambda disk, log, older: disk.spoil(LOG, log[: log.rindex(b'{"crc"')]),
            lambda disk, log, older: disk.spoil(LOG, log[: log.rindex(b'{"crc"')] + b" " * 5000 + b"\n"),
            lambda disk, log, older: disk.spoil(LOG, b""),
            lambda disk, log, older: disk.spoil(LOG, older),
            lambda disk, log, older: disk.spoil(LOG, older.rstrip() + b"\n"),
            lambda disk, log, older: rename_over(disk, older),
            lambda disk, log, older: rename_over(disk, older.rstrip() + b"\n"),
        ],
        ids=["cut", "a line less", "blanked", "emptied", "copied over", "trimmed", "renamed over", "trimmed, renamed"],
    )
    def test_is_refused_and_not_opened_again(
        self, disk: FaultyDisk, lose: Callable[[FaultyDisk, bytes, bytes], None]
    ) -> None:
        tree = KeywordTree(FOLDER)
        tree.CreateKeyword("third", "root")
        older = disk.read_all()[LOG]
        for number in range(3):
            tree.CreateKeyword(f"later {number}", "root")
        lose(disk, disk.read_all()[LOG], older)
        before = disk.read_all()

        for use in (write, write, KeywordTree.Refresh, write):
            with pytest.raises(StoreCorruptError):
                use(tree)
            assert names_under(tree)[-1] == "later 2"  # what memory holds can be read on
        tree.Close()

        assert disk.read_all() == before
        assert disk.open_count() == 0
        if not before[LOG]:
            with pytest.raises(StoreCorruptError, match="damaged or missing"):
                KeywordTree(FOLDER)
            assert disk.read_all() == before
            return
        with KeywordTree(FOLDER) as opened:  # one that has not read it sees what the log says, and what it lacks
            assert any("nodes.jsonl" in said and "does not have" in said for said in opened.recovery)


class TestSnapshotFolder:
    def test_is_no_store(self, disk: FaultyDisk) -> None:
        with KeywordTree(FOLDER) as tree:
            folder = f"{FOLDER}/snapshots/{tree.Snapshot()}"
            before = disk.read_all()
            with pytest.raises(StoreError, match="is a snapshot"):
                KeywordTree(folder)

            assert disk.read_all() == before
        check_reopened(["first", "second"])


class TestStolenLock:
    """The lock file is removed while a compaction or an opening runs; another process opens the folder."""

    def test_that_was_made_again_is_held_while_the_log_is_read(self, disk: FaultyDisk) -> None:
        held: list[bool] = []
        with (
            stepping_in(disk, "flock lock", partial(disk.remove, f"{FOLDER}/lock")) as met,
            stepping_in(disk, "open change_log.jsonl", lambda: held.append(inside.is_locked(LOCK))),
        ):
            KeywordTree(FOLDER).Close()

        assert (met, held) == (["flock lock"], [True])

    @pytest.mark.parametrize("call", ["pwrite infos.jsonl.new", "fdatasync nodes.jsonl.new", "pread change_log.jsonl"])
    @pytest.mark.parametrize("gives_back", [False, True])
    @pytest.mark.parametrize("is_compacted", [False, True])
    def test_lets_no_compaction_replace_what_another_wrote(
        self, disk: FaultyDisk, call: str, gives_back: bool, is_compacted: bool
    ) -> None:
        tree = KeywordTree(FOLDER)

        def step_in() -> None:
            disk.replace(f"{FOLDER}/lock", f"{FOLDER}/lock.away")
            with KeywordTree(FOLDER) as other:
                if is_compacted:
                    other.CompactStorage()
                other.CreateKeyword("of another", "root")
            if gives_back:
                disk.replace(f"{FOLDER}/lock.away", f"{FOLDER}/lock")

        with stepping_in(disk, call, step_in) as met, contextlib.suppress(StoreError):
            tree.CompactStorage()
        assert met == [call]
        tree.CreateKeyword("later", "root")
        tree.Close()

        with KeywordTree(FOLDER) as again:
            assert names_under(again) == ["first", "second", "of another", "later"]
            assert again.Verify() == []


class TestInterruptedCommit:
    """Ctrl-C came when an operation was durable, and before memory had followed."""

    def interrupted(self, disk: FaultyDisk, call: str) -> KeywordTree:
        def interrupt() -> None:
            raise KeyboardInterrupt

        tree = KeywordTree(FOLDER)
        first = tree.GetChildren("root")[0]
        with stepping_in(disk, call, interrupt), pytest.raises(KeyboardInterrupt):
            tree.CreateInfo("durable", keyword_ids=[first.id])
        return tree

    @pytest.mark.parametrize("call", ["pwrite infos.jsonl", "pwrite links.jsonl"])
    def test_leaves_no_checkpoint_when_the_tree_is_closed(self, disk: FaultyDisk, call: str) -> None:
        self.interrupted(disk, call).Close()

        with KeywordTree(FOLDER) as again:
            (keyword, _) = again.GetChildren("root")
            assert [info.content for info in again.GetInfosOfKeyword(keyword.id)] == [LONG, "durable"]
            assert again.Verify() == []
