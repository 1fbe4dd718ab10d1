"""What runs between two steps of a thread that uses the store: a signal's handler, or a process that steps in.

The trees work on `support.faulty_files.FaultyDisk`. Each test steps in before a certain call to that disk, or before
each call of a method in turn, or at a lock of a commit: there Python may run a handler, and another process go on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import NoneType
from typing import NamedTuple

import pytest

from Agent.keyword_tree import ClosedError, KeywordTree, KeywordTreeError, StoreCorruptError, StoreError
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, Fault, FaultyDisk, stepping_in
from Agent.tests.support.looking import names_under
from Agent.tests.support.threads import wait_until

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

    def test_of_another_thread_after_a_compaction_leaves_no_descriptor_open(
        self, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree, turns = KeywordTree(FOLDER), iter([None])

        def close() -> None:
            for _ in turns:  # once: what closes works exclusively, too
                closing = threading.Thread(target=tree.Close)
                closing.start()
                closing.join()

        inside.behind_exclusive_work(monkeypatch, close)
        assert tree.CompactStorage()["snapshots"] == []
        monkeypatch.undo()

        assert disk.open_count() == 0

    @pytest.mark.parametrize("end", [KeywordTree.Close, inside.finalize])
    def test_gives_the_lock_away_last(self, disk: FaultyDisk, end: Callable[[KeywordTree], object]) -> None:
        tree = KeywordTree(FOLDER)
        left: list[int] = []
        with stepping_in(disk, "close lock", lambda: left.append(disk.open_count())):
            end(tree)

        assert left == [1]  # a thread that still commits finds the log closed before others may write
        assert disk.open_count() == 0


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

    @pytest.mark.parametrize("call", ["ftruncate change_log.jsonl", "fdatasync change_log.jsonl"])
    def test_while_a_failed_write_is_taken_back_come_out_as_themselves(self, disk: FaultyDisk, call: str) -> None:
        tree = KeywordTree(FOLDER)
        disk.fault = Fault(disk.call_count, errno.ENOSPC, 2, frozenset(["pwrite"]), short=100)
        with stepping_in(disk, call, partial(ring, tree)) as met, pytest.raises(TimeoutError, match="too long"):
            write(tree)
        disk.heal()
        tree.CreateKeyword("later", "root")

        assert met == [call]
        assert names_under(tree) == ["first", "second", "later"]
        assert tree.Verify() == []
        tree.Close()
        check_reopened(["first", "second", "later"])

    @pytest.mark.parametrize("call", ["fdatasync change_log.jsonl", "fsync store", "pread change_log.jsonl"])
    def test_in_an_opening_come_out_as_themselves(self, disk: FaultyDisk, call: str) -> None:
        with stepping_in(disk, call, partial(ring, None)) as met, pytest.raises(TimeoutError, match="too long"):
            KeywordTree(FOLDER)

        assert met == [call]
        assert disk.read_all()["store/lock"] == b""
        assert disk.open_count() == 0
        check_reopened(["first", "second"])


def at_each_lock(door: Door, act: Callable[[KeywordTree], object], *moments: str) -> Iterator[Met]:
    """Let a tree write for each time that it comes to a lock of its commit, in a group and alone; act there."""
    for alone in (False, True):
        tree_count = 0
        for each in _at_each_lock(door, act, moments, alone=alone):
            yield each
            tree_count += 1
        assert tree_count >= (len(moments) if alone else 4)


def _at_each_lock(
    door: Door, act: Callable[[KeywordTree], object], moments: tuple[str, ...], *, alone: bool
) -> Iterator[Met]:
    for number in itertools.count():
        fill(door)
        tree = KeywordTree(FOLDER)
        met: list[str] = []
        wanted = number

        def tell(moment: str, tree: KeywordTree = tree, met: list[str] = met) -> None:
            nonlocal wanted
            if moment.split()[0] in moments:
                wanted -= 1
                if wanted == -1:
                    met.append(moment)
                    act(tree)

        inside.tell_at_locks_of_commits(tree, tell, alone=alone)
        returned, raised = None, None
        try:
            returned = write(tree)
        except (Exception, KeyboardInterrupt) as error:
            raised = error
        if not met:
            return
        wanted = -1
        yield Met(f"{met[0]} ({number})", tree, returned, raised)


class TestGroups:
    """A group commit is interrupted at its locks, where no call to the disk is near."""

    def test_a_write_of_a_handler_is_refused(self, door: Door) -> None:
        reported: list[str] = []

        def write_too(tree: KeywordTree) -> None:
            try:
                tree.CreateKeyword("within", "root")
                reported.append("done")
            except StoreError as error:
                assert "signal handler" in str(error)
                reported.append("refused")

        for met in at_each_lock(door, write_too, "before", "holding", "behind"):
            assert met.raised is None, met
            assert sorted(names_under(met.tree)) == ["first", "made", "second"], met
            assert [change.op for change in met.tree.History()].count("create_keyword") == 3, met
            assert met.tree.Verify() == [], met
            met.tree.Close()
        assert set(reported) == {"refused"}

    def test_a_write_of_a_handler_does_not_wait_for_its_own_thread(self, disk: FaultyDisk) -> None:
        tree = KeywordTree(FOLDER)
        is_committing, may_go_on = threading.Event(), threading.Event()
        reported: list[str] = []

        def listen(made: str) -> None:
            if made == "pwrite change_log.jsonl" and threading.current_thread() is other:
                is_committing.set()
                assert may_go_on.wait(20)

        def tell(moment: str) -> None:
            if moment == "before the turn" and threading.current_thread() is not other:  # it has to wait for that
                with pytest.raises(StoreError, match="signal handler"):
                    tree.CreateKeyword("within", "root")
                reported.append("refused")
                may_go_on.set()

        inside.tell_at_locks_of_commits(tree, tell, alone=False)
        other = threading.Thread(target=tree.CreateKeyword, args=("of another thread", "root"))
        disk.listeners.append(listen)
        other.start()
        assert is_committing.wait(30)
        write(tree)
        other.join()
        disk.listeners.remove(listen)

        assert reported == ["refused"]
        tree.Close()
        check_reopened(["first", "second", "of another thread", "made"])

    def test_a_handler_cannot_close_what_its_thread_writes(self, door: Door) -> None:
        def close(tree: KeywordTree) -> None:
            with pytest.raises(StoreError, match="signal handler"):
                tree.Close()

        for met in at_each_lock(door, close, "before", "holding", "behind"):
            assert met.returned is not None, met
            met.tree.Close()
            assert door.disk.open_count() == 0, met
            check_reopened(["first", "second", "made"])

    def test_ctrl_c_leaves_no_job_behind(self, door: Door) -> None:
        def interrupt(_: object) -> None:
            raise KeyboardInterrupt

        for met in at_each_lock(door, interrupt, "before", "behind"):
            assert isinstance(met.raised, KeyboardInterrupt), met
            met.tree.Refresh()
            before = names_under(met.tree)
            met.tree.CreateKeyword("another", "root")
            assert names_under(met.tree) == [*before, "another"], met
            assert met.tree.Verify() == [], met
            met.tree.Close()


class TestGroupsWithABlock:
    """A block that ends first in a group, with writes of two threads after it: each is an operation, or is refused."""

    def together(self, tree: KeywordTree, spoil: Callable[[], object]) -> dict[str, str]:
        """Commit them as one group, which `spoil` meets before its first look; return what each call returned."""
        reported: dict[str, str] = {}
        is_made, may_end = threading.Event(), threading.Event()

        def block() -> None:
            with tree.Operation("block"):
                tree.CreateKeyword("in the block", "root", id="a")
                is_made.set()
                assert may_end.wait(20)

        def report(name: str, call: Callable[[], object]) -> None:
            try:
                call()
                reported[name] = "done"
            except KeywordTreeError as error:
                reported[name] = type(error).__name__

        calls: dict[str, Callable[[], object]] = {
            "block": block,
            "below": lambda: tree.CreateKeyword("below", "a", id="b"),
            "beside": lambda: tree.Ensure(["beside"]),
        }
        threads = [threading.Thread(target=report, args=call) for call in calls.items()]
        threads[0].start()
        assert is_made.wait(20)
        with inside.commits_of(tree):
            for number, begin in enumerate((may_end.set, threads[1].start, threads[2].start), 1):
                begin()
                wait_until(lambda count=number: inside.waiting_writers(tree) == count)  # type: ignore[misc]
            spoil()
        for thread in threads:
            thread.join()
        return reported

    def test_by_a_clock_that_fails_for_the_block(self, disk: FaultyDisk) -> None:
        moments: list[float] = []
        with KeywordTree(FOLDER, clock=lambda: moments.pop() if moments else 1e9) as tree:
            reported = self.together(tree, lambda: moments.append(math.nan))

        assert reported == {"block": "InvalidInputError", "below": "NotFoundError", "beside": "done"}
        check_reopened(["first", "second", "beside"])

    def test_by_a_disk_that_refuses_the_group_once(self, disk: FaultyDisk) -> None:
        with KeywordTree(FOLDER) as tree:
            full = Fault(disk.call_count, errno.ENOSPC, 1, frozenset(("pwrite",)))
            reported = self.together(tree, lambda: setattr(disk, "fault", full))
            assert tree.Verify() == []
            found = {change.op: sorted(change.Ids()) for change in tree.History(limit=3)}

        assert reported == {"block": "done", "below": "done", "beside": "done"}
        assert (found["block"], found["create_keyword"]) == (["a"], ["b"])
        check_reopened(["first", "second", "in the block", "beside"])


def test_what_is_created_after_its_deletion_in_one_group_has_nothing_before_it(disk: FaultyDisk) -> None:
    with KeywordTree(FOLDER) as tree:
        tree.CreateKeyword("old", "root", id="x", metadata={"a": 1, "deleted": False, "z": 0})  # like a mark of a row
        calls = (lambda: tree.DeleteKeyword("x"), lambda: tree.CreateKeyword("new", "root", id="x"))
        threads = [threading.Thread(target=call) for call in calls]
        with inside.commits_of(tree):
            for number, thread in enumerate(threads, 1):
                thread.start()
                wait_until(lambda count=number: inside.waiting_writers(tree) == count)  # type: ignore[misc]
        for thread in threads:
            thread.join()

        made = tree.History(limit=1)[0]
        assert (made.op, made.before) == ("create_keyword", [])


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
        tree.Close()

        assert disk.read_all() == before
        assert disk.open_count() == 0
        if not before[LOG]:
            with pytest.raises(StoreCorruptError, match="missing or empty"):
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

    def test_lets_no_compaction_lose_a_line_that_came_after_those_it_read(self, door: Door, disk: FaultyDisk) -> None:
        tree = KeywordTree(FOLDER)
        door.disk = disk.now().resume()
        with KeywordTree(FOLDER) as other:
            other.CreateKeyword("of another", "root")
        longer = door.disk.read_all()[LOG]
        door.disk = disk
        with (
            stepping_in(disk, "pwrite change_log.jsonl.new", lambda: disk.spoil(LOG, longer)),
            pytest.raises(StoreError, match="the log stays as it is"),
        ):
            tree.CompactStorage()

        assert disk.read_all()[LOG] == longer

    def test_lets_no_compaction_go_on_though_no_one_has_written_yet(self, disk: FaultyDisk) -> None:
        with KeywordTree(FOLDER) as tree:
            away = partial(disk.remove, f"{FOLDER}/lock")
            log = disk.read_all()[LOG]
            with stepping_in(disk, "pwrite change_log.jsonl.new", away), pytest.raises(StoreError, match="taken away"):
                tree.CompactStorage()

            assert disk.read_all()[LOG] == log
            assert tree.Verify() == []


class TestReplacedLog:
    def test_is_opened_again_as_often_as_it_takes(self, disk: FaultyDisk) -> None:
        tree, other = KeywordTree(FOLDER), KeywordTree(FOLDER)
        compactions = 0

        def listen(made: str) -> None:
            nonlocal compactions
            if made == "flock lock" and compactions < 6:
                disk.listeners.remove(listen)
                if not inside.is_locked(LOCK):
                    compactions += 1
                    other.CompactStorage()
                disk.listeners.append(listen)

        disk.listeners.append(listen)
        tree.CreateKeyword("made", "root")
        disk.listeners.remove(listen)
        other.Close()
        tree.Close()

        assert compactions == 6
        check_reopened(["first", "second", "made"])


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

    @pytest.mark.parametrize("call", ["pwrite nodes.jsonl", "fdatasync change_log.jsonl"])
    def test_by_what_a_handler_was_refused_is_read_again(self, disk: FaultyDisk, call: str) -> None:
        tree = KeywordTree(FOLDER)
        with stepping_in(disk, call, tree.Refresh), pytest.raises(StoreError, match="while its own thread") as caught:
            write(tree)

        assert caught.value.outcome_unknown
        assert names_under(tree) == ["first", "second", "made"]
        assert tree.Verify() == []
        tree.Close()

    @pytest.mark.parametrize("meanwhile", [names_under, KeywordTree.Close], ids=["read", "close"])
    def test_is_neither_opened_twice_nor_closed_while_it_is_opened_again(
        self, disk: FaultyDisk, meanwhile: Callable[[KeywordTree], object]
    ) -> None:
        tree = self.interrupted(disk, "pwrite links.jsonl")
        refused: list[str] = []

        def call() -> None:
            with pytest.raises(StoreError, match="while its own thread"):
                meanwhile(tree)
            refused.append("refused")

        with stepping_in(disk, "pread change_log.jsonl", call):
            assert names_under(tree) == ["first", "second"]

        assert refused == ["refused"]
        assert tree.Verify() == []
        tree.Close()
