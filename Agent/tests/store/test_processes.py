"""Tests of the store with real processes on a real disk: killed, stopped, interrupted, forked, starved of space.

Each process writes into a pipe what was acknowledged. Whatever becomes of it, the store must open by itself
afterwards, hold every acknowledged operation and none in part, and let the others go on.

The short form is seeded and takes under a minute. `KEYWORD_TREE_STORM=1` runs the long form, with more than a
thousand kills, and prints how many there were and what was lost; `KEYWORD_TREE_SEED=7` takes another seed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import itertools
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import DuplicateIdError, KeywordTree, StoreError
from Agent.tests.support import inside
from Agent.tests.support.log_format import KINDS, LOG, read_log, rows_of
from Agent.tests.support.oracle import Held, look, oracle_of
from Agent.tests.support.threads import in_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="these processes are made by fork")

STORM = os.environ.get("KEYWORD_TREE_STORM") == "1"
SEED = int(os.environ.get("KEYWORD_TREE_SEED", "1"))
PATIENCE_S = 60.0  # what takes longer hangs

Tell = Callable[[str], None]


def times(short: int, long: int) -> int:
    """Return how often something is tried, in the short and in the long form."""
    return long if STORM else short


# == Processes ============================================================================================


class Process:
    """A forked process that works, and writes line by line what was acknowledged."""

    def __init__(self, work: Callable[[Tell], None]) -> None:
        self._reading, writing = os.pipe()
        self._rest = b""
        self.lines: list[str] = []  # what was written and read so far
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._reading)
                os.setpgrp()  # so that its own children can be ended with it
                # One write of a few bytes to a pipe is whole or absent, whenever the process dies.
                work(lambda text: _write_all(writing, f"{text}\n".encode()))
                os._exit(0)
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            finally:
                os._exit(1)
        os.close(writing)

    def read(self, timeout_s: float = PATIENCE_S) -> bool:
        """Wait for more lines; False when the process has closed its end."""
        if not select.select([self._reading], [], [], timeout_s)[0]:
            self.fail_as_hanging("it writes nothing")
        data = os.read(self._reading, 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(data)

    def read_until(self, count: int) -> None:
        """Wait until `count` lines were written in all, or the process has ended."""
        while len(self.lines) < count and self.read():
            pass

    def is_silent(self, for_s: float) -> bool:
        """Tell whether nothing comes for a while."""
        return not select.select([self._reading], [], [], for_s)[0]

    def send(self, signal_number: int) -> None:
        os.kill(self.pid, signal_number)

    def await_stop(self) -> None:
        """Wait until the process has stopped itself."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended with {os.waitstatus_to_exitcode(status)} instead of stopping"

    def kill(self) -> None:
        """Kill it as `kill -9` does, and read what it still wrote."""
        self.send(signal.SIGKILL)
        assert self.end() in (0, -signal.SIGKILL), "it failed before it was killed"

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end and return the exit code; negative is a signal."""
        if self.status is None:
            while self.read(timeout_s):
                pass
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._reading)
        return self.status

    def fail_as_hanging(self, what: str) -> None:
        """Fail, with the stacks of the process on stderr."""
        for kill in (os.killpg, os.kill):  # what hangs in the fork itself has no group of its own yet
            with contextlib.suppress(ProcessLookupError):
                kill(self.pid, signal.SIGCONT)
                kill(self.pid, signal.SIGABRT)  # pytest's fault handler prints all threads
        raise AssertionError(f"process {self.pid} hangs: {what}; it wrote {self.lines[-3:]}")

    def discard(self) -> None:
        if self.status is None:
            for kill in (os.kill, os.killpg):
                with contextlib.suppress(ProcessLookupError):
                    kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            os.close(self._reading)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


Start = Callable[[Callable[[Tell], None]], Process]


@pytest.fixture(name="start")
def give_start() -> Iterator[Start]:
    """Give a function that starts processes; those that are left at the end are killed."""
    processes: list[Process] = []

    def begin(work: Callable[[Tell], None]) -> Process:
        processes.append(Process(work))
        return processes[-1]

    yield begin
    for process in processes:
        process.discard()


@pytest.fixture(autouse=True)
def _nothing_hangs() -> Iterator[None]:
    """A test that waits for ever ends with the stacks of its threads."""
    faulthandler.dump_traceback_later(1800 if STORM else 300, exit=True, file=2)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(name="say")
def give_say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Give a function that prints in the long form."""

    def say(text: str) -> None:
        if STORM:
            with capsys.disabled():
                print(f"\n{text}", end="", flush=True)

    return say


# == What a store holds ===================================================================================


def state_in_log(folder: Path) -> Held:
    """Work out from the log alone what the tree must hold (of what was changed, a keyword's description)."""
    return oracle_of(read_log((folder / LOG).read_bytes())).held()


def check_files(folder: Path) -> None:
    """See that the log is whole, and that after an orderly end each projection holds its rows."""
    projected: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for operation in read_log((folder / LOG).read_bytes()):
        for kind, rows in rows_of(operation).items():
            projected[kind] += rows
    for kind, rows in projected.items():
        found = [json.loads(line) for line in (folder / f"{kind}.jsonl").read_bytes().split(b"\n") if line]
        assert found == rows, f"{kind}.jsonl does not hold what the log says"


# == The work =============================================================================================
#
# A writer called "a" makes the operations a.0, a.1, a.2, …; what each brings
# follows from its number, so that afterwards a store can be asked for it.

LONG = "a content that is read from disk, " * 200
BULK = 12


def operate(tree: KeywordTree, writer: str, n: int) -> None:
    """Make one operation: a keyword, many at once, or a keyword with an info that refers to the operation before."""
    key, kind = f"{writer}.{n}", n % 3
    if kind == 0:
        tree.CreateKeyword(key, "root", [f"alias of {key}"])
    elif kind == 1:
        specs = [{"name": key, "id": f"{key}/{i}", "parent_id": f"{key}/0" if i else "root"} for i in range(BULK)]
        tree.BatchCreateKeywords(specs)
    else:
        with tree.Operation("two changes"):
            keyword = tree.CreateKeyword(key, f"{writer}.{n - 1}/0")
            tree.CreateInfo(f"{key} {LONG}", "a source", [keyword.id, f"{writer}.{n - 1}/2"], id=key)


def parts_of(state: Held, names: Counter[str], writer: str, n: int) -> tuple[int, int]:
    """Return how many parts of an operation are there, and how many make it whole."""
    key, kind = f"{writer}.{n}", n % 3
    links = len(state.infos[key][-1]) if key in state.infos else 0
    return names[key] + (key in state.infos) + links, (1, BULK, 4)[kind]


class Progress:
    """How far each writer is known to have come, over all its lives."""

    def __init__(self, writers: Iterable[str]) -> None:
        self.acknowledged = dict.fromkeys(writers, 0)
        self.losses: list[str] = []
        self.checks = 0

    def take(self, writer: str, lines: list[str]) -> None:
        """Note the numbers that a writer wrote as acknowledged."""
        for line in lines:
            if line.isdecimal():
                self.acknowledged[writer] = max(self.acknowledged[writer], int(line) + 1)

    def compare(self, state: Held) -> None:
        """Note what is lost, there in part, or invented; each writer goes on where it really is."""
        self.checks += 1
        names = Counter(str(node[0]) for node in state.nodes.values())
        for writer, acknowledged in self.acknowledged.items():
            done = 0
            while (parts := parts_of(state, names, writer, done))[0] == parts[1]:
                done += 1
            if done < acknowledged:
                self.losses.append(f"{writer}.{done} is not whole: {parts}, {acknowledged} were acknowledged")
            elif done > acknowledged + 1:
                self.losses.append(f"{writer}.{done - 1} is there, but only {acknowledged} were acknowledged")
            for n in range(done, done + 8):
                parts = parts_of(state, names, writer, n)
                if parts[0]:
                    self.losses.append(f"{writer}.{n} is there in part: {parts}")
            self.acknowledged[writer] = max(done, acknowledged)


def check_store(folder: Path, progress: Progress, *, close: bool = True) -> None:
    """Open what a killed process left behind, compare, and write on."""
    tree = KeywordTree(str(folder))
    for sentence in tree.recovery:  # a kill leaves an unfinished line, or projections that a compaction put in place
        assert re.search("no later line vouches|was repaired from it|the log does not have", sentence), sentence
    progress.compare(look(tree))
    assert tree.Verify() == []
    operate(tree, "z", progress.acknowledged["z"])
    progress.acknowledged["z"] += 1
    if close:
        tree.Close()
        check_files(folder)
    else:
        inside.release(tree)  # as the end of the process would, without a checkpoint


def live(folder: Path, writer: str, first: int, way: str, tell: Tell) -> None:
    """Write for ever, in one of several ways of life; the test kills it."""
    if way == "checkpointing":
        inside.set_limits(checkpoint_operations=2)
    lives = {"closing": 2, "opening": 1, "recovering": 1, "compacting": 6}.get(way, 1 << 40)
    draw = random.Random(f"{SEED} {writer} {first}")
    for n in itertools.count(first, lives):
        tree = KeywordTree(str(folder))
        tell("open")
        for step in range(n, n + lives):
            operate(tree, writer, step)
            tell(f"{step}")
            if way == "refreshing":
                tree.Refresh()
            elif way == "compacting":
                if step % 5 == 0:
                    tree.Snapshot(draw.random() < 0.5)
                tree.CompactStorage(draw.random() < 0.5)
        if way == "closing":
            tree.Close()
            continue
        inside.release(tree)
        if way == "recovering":  # a line that a power cut tore
            with open(folder / "lock", "rb+") as lock, open(folder / LOG, "rb+") as log:
                inside.lock(lock.fileno())
                end = len(log.read().rstrip(b" \n"))
                os.pwrite(log.fileno(), b'\n{"crc": "0a1b2c3d", "seq": %d, "prev"' % n, end)


WAYS = ("writing", "checkpointing", "closing", "opening", "recovering", "refreshing", "compacting")


class TestKill:
    """kill -9 at any moment: what was acknowledged is there, nothing is there in part, the store opens by itself."""

    @pytest.mark.parametrize("way", WAYS)
    def test_of_the_only_process_loses_nothing(
        self, tmp_path: Path, start: Start, say: Callable[[str], None], way: str
    ) -> None:
        chooser, kills, acknowledged, losses = random.Random(f"{SEED} one {way}"), times(10, 130), 0, []
        for store in range((kills + 9) // 10):
            progress, folder = Progress("az"), tmp_path / f"{way} {store}"
            for kill in range(10):
                first = progress.acknowledged["a"]
                process = start(partial(live, folder, "a", first, way))
                if chooser.random() < 0.7:
                    process.read_until(chooser.randint(1, 9))
                    time.sleep(chooser.uniform(0, 0.0015))
                else:
                    time.sleep(chooser.uniform(0, 0.012))
                process.kill()
                progress.take("a", process.lines)
                check_store(folder, progress, close=kill % 3 > 0)
            acknowledged += sum(progress.acknowledged.values())
            losses += progress.losses
            shutil.rmtree(folder)
        say(f"kill, one process, {way}: {kills} kills, {acknowledged} acknowledged, {len(losses)} losses ")

        assert losses == []

    @pytest.mark.parametrize("way", [way for way in WAYS if way != "recovering"])
    def test_of_one_of_two_processes_loses_nothing_of_either(
        self, tmp_path: Path, start: Start, say: Callable[[str], None], way: str
    ) -> None:
        chooser, kills, acknowledged, losses = random.Random(f"{SEED} two {way}"), times(8, 130), 0, []
        for store in range((kills + 7) // 8):
            progress, folder = Progress("abz"), tmp_path / f"{way} {store}"
            for _ in range(4):
                firsts = progress.acknowledged
                processes = {
                    writer: start(partial(live, folder, writer, firsts[writer], way))
                    for writer in chooser.sample("ab", 2)
                }
                victim, survivor = processes.values()
                victim.read_until(chooser.randint(0, 9))
                time.sleep(chooser.uniform(0, 0.003))
                victim.kill()
                reported = len(survivor.lines)
                survivor.read_until(reported + 8)  # the lock of the dead one blocks no one
                survivor.kill()
                for writer, process in processes.items():
                    progress.take(writer, process.lines)
                check_store(folder, progress)
            acknowledged += sum(progress.acknowledged.values())
            losses += progress.losses
            shutil.rmtree(folder)
        say(f"kill, two processes, {way}: {kills} kills, {acknowledged} acknowledged, {len(losses)} losses ")

        assert losses == []


# == Stopped processes, locks =============================================================================


def stop_in(call: str, at: int = 1) -> None:
    """Let this process stop itself (SIGSTOP) just before its n-th such call to the operating system."""
    real, left = getattr(inside.Files, call), itertools.count(1)

    def stopping(self: inside.Files, *arguments: Any) -> Any:
        if next(left) == at:
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(self, *arguments)

    setattr(inside.Files, call, stopping)


def write_some(folder: Path, writer: str, count: int, tell: Tell) -> None:
    with KeywordTree(str(folder)) as tree:
        tell("open")
        for n in range(count):
            operate(tree, writer, n)
            tell(f"{n}")


class TestStop:
    """A process that holds the lock is stopped: the others wait for it, and go on when it does or dies."""

    def begin_in_a_commit(self, folder: Path, start: Start) -> Process:
        def work(tell: Tell) -> None:
            with KeywordTree(str(folder)) as tree:
                operate(tree, "a", 0)
                tell("0")
                stop_in("Sync")
                operate(tree, "a", 1)
                tell("1")

        process = start(work)
        process.await_stop()
        return process

    @pytest.mark.parametrize("what", ["go on", "die"])
    def test_in_a_commit_makes_others_wait(self, folder: Path, start: Start, what: str) -> None:
        stopped = self.begin_in_a_commit(folder, start)
        waiting = start(lambda tell: write_some(folder, "b", 3, tell))
        assert waiting.is_silent(0.2)
        if what == "die":
            stopped.kill()
        else:
            stopped.send(signal.SIGCONT)
            assert stopped.end() == 0

        assert waiting.end() == 0
        progress = Progress("abz")
        progress.take("a", stopped.lines)
        progress.take("b", waiting.lines)
        check_store(folder, progress)
        assert progress.losses == []
        assert progress.acknowledged["b"] == 3
        assert progress.acknowledged["a"] == 2 or what == "die"


class TestLock:
    def test_excludes_all_who_come_by_a_link_or_a_relative_path(
        self, folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        KeywordTree(str(folder)).Close()
        link = folder.parent / "link"
        link.symlink_to(folder, target_is_directory=True)
        monkeypatch.chdir(folder.parent)
        paths = {"a": folder, "b": link, "c": Path(folder.name), "d": Path(f"link/../{folder.name}/.")}
        processes = [start(partial(write_some, path, w, 24)) for w, path in paths.items()]
        assert [process.end() for process in processes] == [0] * 4
        progress = Progress("abcdz")
        progress.acknowledged |= dict.fromkeys(paths, 24)
        check_store(folder, progress)

        assert progress.losses == []

    def test_outlives_another_descriptor_of_any_file_being_closed(self, folder: Path, start: Start) -> None:
        def hold(tell: Tell) -> None:
            with KeywordTree(str(folder)) as tree:
                operate(tree, "a", 0)
                stop_in("Sync")
                real = inside.Files.Sync

                def sync(self: inside.Files, fd: int) -> None:
                    for path in sorted(folder.iterdir()):  # what `lockf` would lose its lock by
                        os.close(os.open(path, os.O_RDWR))
                    real(self, fd)

                pytest.MonkeyPatch().setattr(inside.Files, "Sync", sync)
                operate(tree, "a", 1)
                tell("1")

        holder = start(hold)
        holder.await_stop()
        waiting = start(lambda tell: write_some(folder, "b", 3, tell))
        assert waiting.is_silent(0.2)
        holder.send(signal.SIGCONT)

        assert (holder.end(), waiting.end()) == (0, 0)
        progress = Progress("abz")
        progress.acknowledged |= {"a": 2, "b": 3}
        check_store(folder, progress)
        assert progress.losses == []

    def test_of_a_killed_process_is_not_kept_by_its_idle_child(self, folder: Path, start: Start) -> None:
        def work(tell: Tell) -> None:
            tree = KeywordTree(str(folder))
            child = os.fork()
            if child == 0:
                while True:
                    time.sleep(60)  # a worker that has not used the tree yet
            tell(f"{child}")
            stop_in("Sync")
            tree.CreateKeyword("in the middle", "root")

        process = start(work)
        process.await_stop()
        process.read_until(1)
        child = int(process.lines[0])
        try:
            process.send(signal.SIGKILL)
            other = start(lambda tell: write_some(folder, "b", 3, tell))
            other.read_until(4)
            assert other.end() == 0
        finally:
            os.kill(child, signal.SIGKILL)
        assert process.end() == -signal.SIGKILL

    def test_of_a_process_that_is_killed_while_a_thread_opens_is_not_kept_by_its_child(
        self, folder: Path, start: Start
    ) -> None:
        def work(tell: Tell) -> None:
            is_reading = threading.Event()

            def read(*_: object) -> bytes:  # behind the lock
                is_reading.set()
                while True:
                    time.sleep(60)

            pytest.MonkeyPatch().setattr(inside.Files, "Read", read)
            threading.Thread(target=KeywordTree, args=(str(folder),), daemon=True).start()
            is_reading.wait()
            child = os.fork()
            if child == 0:
                tell(f"{os.getpid()}")  # nothing of the parent is left open here
                while True:
                    time.sleep(60)  # a worker that never touches the tree
            while True:
                time.sleep(60)

        KeywordTree(str(folder)).Close()
        process = start(work)
        process.read_until(1)
        child = int(process.lines[0])
        try:
            process.send(signal.SIGKILL)
            os.waitpid(process.pid, 0)
            lock = os.open(folder / "lock", os.O_RDWR)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(lock)
        finally:
            os.kill(child, signal.SIGKILL)


# == Interrupts ===========================================================================================


def _is_in_library(frame: FrameType | None) -> bool:
    """Tell whether the library is at work: a test that was interrupted in its own bookkeeping would test that."""
    while frame is not None and frame.f_code.co_filename != kt.__file__:
        frame = frame.f_back
    return frame is not None


class TestInterrupt:
    """Ctrl-C at any moment: memory is what the log says, nothing hangs, no lock is left behind."""

    @pytest.mark.parametrize(
        "what", ["keyword", "straight keyword", "straight change", "long info", "refresh", "open and close"]
    )
    def test_at_each_moment_leaves_nothing_behind(
        self, folder: Path, start: Start, say: Callable[[str], None], what: str
    ) -> None:
        process = start(partial(interrupt_at_each_moment, folder, what))
        code = process.end()
        say(f"interrupt at each moment of {what}: {process.lines[-1:]} ")

        assert code == 0
        with KeywordTree(str(folder)) as tree:
            assert look(tree) == state_in_log(folder)


class Blow:
    """Raises KeyboardInterrupt at the n-th moment at which the interpreter looks for signals.

    These are, nearly, the moments after each call of something written in C and at the beginning of each function.
    """

    def __init__(self, at: int) -> None:
        self._left = at
        self.has_struck = False

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename.startswith("<frozen"):
            return  # where CPython 3.11 mistakes an exception of a profiler for a result
        if event in ("call", "c_return") and _is_in_library(frame):
            self._left -= 1
            if self._left == 0:
                self.has_struck = True
                raise KeyboardInterrupt

    def __enter__(self) -> Blow:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def interrupt_at_each_moment(folder: Path, what: str, tell: Tell) -> None:
    """Interrupt an operation at its first moment, its second, and so on; look after each what is left behind."""
    gc.set_threshold(0)  # CPython 3.11 can crash behind what a profile function raised: no collection meanwhile
    tree, other = KeywordTree(str(folder)), KeywordTree(str(folder))
    lock = os.open(folder / "lock", os.O_RDWR)
    tree.BatchCreateKeywords([{"name": "home", "id": "home", "parent_id": "root"}])
    works: dict[str, Callable[[], object]] = {
        "keyword": lambda: tree.CreateKeyword("k", "home"),
        "straight keyword": lambda: tree.CreateKeyword("k", "home"),
        "straight change": lambda: tree.UpdateKeyword("home", {"description": f"{moment}"}, version),
        "long info": lambda: tree.CreateInfo(LONG, "", ["home"]),
        "refresh": tree.Refresh,
        "open and close": lambda: KeywordTree(str(folder)).Close(),
    }
    interrupts = 0
    for moment in itertools.count(1):
        if what == "refresh":
            other.CreateKeyword("news", "home")
        elif what.startswith("straight"):
            tree.Refresh()  # else it opens again, which goes the general way
        version = tree["home"].version
        blow = Blow(moment)
        try:
            with contextlib.suppress(KeyboardInterrupt), blow:
                works[what]()
        except TypeError as error:
            # CPython 3.11 itself: where a profile function has raised at the beginning of a function, the next call
            # there can find the traceback, or a dict, in its place.  A real signal comes between, not within, the two.
            if not re.fullmatch(r"'(traceback|dict)' object is not callable", str(error)):
                raise
        interrupts += blow.has_struck
        assert gc.isenabled(), f"the garbage collector was left off by an interrupt at moment {moment}"
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AssertionError(f"the lock was left behind by an interrupt at moment {moment}") from None
        fcntl.flock(lock, fcntl.LOCK_UN)
        if not blow.has_struck:
            break
        if interrupts % 5 == 0:
            if what != "open and close":  # which takes longer with each keyword
                other.CreateKeyword("between", "home")
            tree.Refresh()  # hangs if the lead was left behind
            other.Refresh()
            assert look(tree) == look(other) == state_in_log(folder), f"at moment {moment}"
        tell(f"{interrupts} interrupts, no lock left")
    tree.Close()
    other.Close()
    check_files(folder)


# == Forks ================================================================================================


def write_keywords(tree: KeywordTree, who: str, count: int, tell: Tell) -> None:
    for n in range(count):
        tell(tree.CreateKeyword(f"{who} {n}", "root").id)


def check_told(folder: Path, processes: list[Process]) -> int:
    """See that all ids that were written are there, and nothing else; return their count."""
    reported = [line for process in processes for line in process.lines]
    with KeywordTree(str(folder)) as tree:
        assert tree.recovery == ()
        found = [child.id for child in tree.GetChildren("root")]
        assert Counter(found) == Counter(reported)
        assert look(tree) == state_in_log(folder)
    check_files(folder)
    return len(reported)


class TestFork:
    def test_lets_the_child_close_and_the_parent_go_on(self, folder: Path, start: Start) -> None:
        def work(tell: Tell) -> None:
            write_keywords(tree, "child", 5, tell)
            tree.Close()

        with KeywordTree(str(folder)) as tree:
            reported: list[str] = []
            write_keywords(tree, "before", 5, reported.append)
            unused = start(lambda tell: tree.Close())
            assert unused.end() == 0
            child = start(work)
            assert child.end() == 0
            write_keywords(tree, "after", 5, reported.append)
            child.lines += reported

        assert check_told(folder, [child]) == 15

    @pytest.mark.parametrize("moment", [inside.in_reading_a_row, inside.in_copying_a_descriptor])
    def test_lets_the_child_read_though_a_thread_of_the_parent_was_reading(
        self, folder: Path, start: Start, monkeypatch: pytest.MonkeyPatch, moment: Callable[..., None]
    ) -> None:
        is_reading, may_go_on = threading.Event(), threading.Event()

        def wait() -> None:
            if threading.current_thread() is reader:
                is_reading.set()
                may_go_on.wait()

        with KeywordTree(str(folder)) as tree:
            tree.CreateInfo("an info" * 1000)  # long enough to stay on the disk
            moment(monkeypatch, wait)
            reader = threading.Thread(target=tree.ListInfos)
            reader.start()
            is_reading.wait()
            try:
                child = start(lambda tell: tell(tree.ListInfos()[0].content))
                assert child.end(20) == 0
            finally:
                may_go_on.set()
                reader.join()

            assert child.lines == ["an info" * 1000]

    @pytest.mark.parametrize(
        ("stops_in", "what", "left"),
        [
            ("normalizer", lambda tree: tree.Search("something else", False), []),  # it holds what guards memory
            ("clock", lambda tree: tree.CreateKeyword("parent", "root"), ["parent"]),
        ],
        ids=["searching", "writing"],
    )
    def test_lets_the_child_read_and_write_though_a_thread_of_the_parent_was_at_work(
        self, folder: Path, start: Start, stops_in: str, what: Callable[[KeywordTree], object], left: list[str]
    ) -> None:
        is_held, may_go_on = threading.Event(), threading.Event()

        def called_back(*texts: str) -> object:
            if threading.current_thread() is worker:
                is_held.set()
                may_go_on.wait()
            return [text.casefold() for text in texts] or 1.0

        def work(tell: Tell) -> None:
            tell(tree.GetChildren("root")[0].name)
            tell(tree.CreateKeyword("child", "root").name)

        worker = threading.Thread(target=lambda: what(tree))
        given: dict[str, Any] = {stops_in: called_back}
        with KeywordTree(str(folder), **given) as tree:
            tree.CreateKeyword("before", "root")
            worker.start()
            assert is_held.wait(PATIENCE_S)
            try:
                child = start(work)
            finally:
                may_go_on.set()
                worker.join()
            assert child.end(20) == 0
            assert child.lines == ["before", "child"]
            tree.Refresh()
            assert sorted(node.name for node in tree.GetChildren("root")) == sorted(["before", "child", *left])

    def test_while_other_threads_write_loses_nothing(
        self, folder: Path, start: Start, say: Callable[[str], None]
    ) -> None:
        forks = times(6, 300)

        def work(tell: Tell) -> None:
            tree, done = KeywordTree(str(folder)), threading.Event()
            room = threading.Semaphore(0)  # for a fork's time only: each child reads the whole tree again

            def write(number: int) -> None:
                for n in itertools.count():
                    room.acquire()
                    if done.is_set():
                        return
                    tell(tree.CreateKeyword(f"thread {number} {n}", "root").id)

            threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for number in range(forks):
                room.release(40)
                children = [fork_a_writer(tree, f"{number} {twin}", tell) for twin in range(2)]
                for child in children:
                    assert os.waitpid(child, 0)[1] == 0
            done.set()
            room.release(len(threads))
            for thread in threads:
                thread.join()
            tree.Close()

        process = start(work)
        assert process.end() == 0
        total = check_told(folder, [process])
        say(f"forks while four threads write: {2 * forks} forks, {total} acknowledged, 0 losses ")


def fork_a_writer(tree: KeywordTree, who: str, tell: Tell) -> int:
    child = os.fork()
    if child:
        return child
    try:
        write_keywords(tree, who, 5, tell)
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


# == One does something else while another writes =========================================================


# == Threads ==============================================================================================


@pytest.mark.usefixtures("hasty")
class TestThreads:
    def test_sixteen_write_and_others_read_whole_operations_alone(self, folder: Path) -> None:
        writers, rounds, readers = 16, times(6, 120), 4
        done, left = threading.Event(), itertools.count(1)
        with KeywordTree(str(folder)) as tree:
            tree.BatchCreateKeywords([{"name": f"w{n}", "id": f"w{n}", "parent_id": "root"} for n in range(writers)])

            def write(number: int) -> None:
                for n in range(rounds):
                    key = f"w{number}.{n}"
                    made = tree.BatchCreateKeywords(
                        [{"name": key, "id": f"{key}/{i}", "parent_id": f"w{number}"} for i in range(3)]
                    )
                    assert [tree.GetKeyword(node.id) for node in made] == made, "a writer does not see its own write"
                    info = tree.CreateInfo(f"{key} {LONG if n % 3 else ''}", "", [node.id for node in made])
                    first = tree.LinkInfo(info.id, f"w{number}")
                    assert tree.LinkInfo(info.id, f"w{number}") == first
                if next(left) == writers:
                    done.set()

            def read(number: int) -> None:
                chooser, seen = random.Random(f"{SEED} {number}"), dict.fromkeys(range(writers), 0)
                while not done.is_set():
                    writer = chooser.randrange(writers)
                    children = tree.GetChildren(f"w{writer}")
                    assert len(children) % 3 == 0, "half of a batch was seen"
                    assert len(children) >= seen[writer], "what was there has gone"
                    seen[writer] = len(children)
                    assert [child.id for child in children] == [
                        f"w{writer}.{n}/{i}" for n in range(len(children) // 3) for i in range(3)
                    ]
                    for info in tree.GetInfosOfKeyword(f"w{writer}"):
                        assert len(tree.GetKeywordsOfInfo(info.id)) == 4
                    if children:
                        last = children[-1]
                        assert [node.id for node in tree.GetPath(last.id)] == ["root", f"w{writer}", last.id]
                        assert len(tree.FindByName(last.name)) == 3
                        for info in tree.GetInfosOfKeyword(last.id):
                            assert len(tree.GetKeywordsOfInfo(info.id)) in (3, 4)
                            assert info.content.startswith(f"{last.name} ")

            works = [partial(write, n) for n in range(writers)] + [partial(read, n) for n in range(readers)]
            in_threads(lambda work: work(), works)
            in_memory = look(tree)
            assert len(in_memory.nodes) - 1 == writers + writers * rounds * 3
            assert len(in_memory.infos) == writers * rounds
            assert len(in_memory.links) == writers * rounds * 4
        check_files(folder)
        assert in_memory == state_in_log(folder)
        with KeywordTree(str(folder)) as again:
            assert look(again) == in_memory

    def test_that_close_while_others_write_lose_nothing(self, folder: Path) -> None:
        for turn in range(times(5, 100)):
            tree, made = KeywordTree(str(folder)), list[str]()

            def write(number: int, tree: KeywordTree = tree, made: list[str] = made, turn: int = turn) -> None:
                with contextlib.suppress(kt.ClosedError, StoreError):
                    for n in range(1000):
                        made.append(tree.CreateKeyword(f"{turn} {number} {n}", "root").id)

            def close(tree: KeywordTree = tree) -> None:
                time.sleep(0.02)
                tree.Close()

            works: list[Callable[[], object]] = [close, *(partial(write, n) for n in range(4))]
            in_threads(lambda work: work(), works)
            with KeywordTree(str(folder)) as again:
                assert again.recovery == ()
                assert all(again.GetKeyword(id) is not None for id in made)


@pytest.mark.usefixtures("hasty")
class TestConflicts:
    """Two threads want the same, and stand in one group: the second is checked against the first."""

    def test_between_two_trees_let_exactly_one_win(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as one, KeywordTree(str(folder)) as two:
            for turn in range(times(30, 500)):
                outcomes: list[str] = []

                def make(tree: KeywordTree, outcomes: list[str] = outcomes, turn: int = turn) -> None:
                    try:
                        tree.BatchCreateKeywords([{"name": "x", "id": f"{turn}", "parent_id": "root"}])
                        outcomes.append("made")
                    except DuplicateIdError:
                        outcomes.append("refused")

                in_threads(make, [one, two, one])
                assert sorted(outcomes) == ["made", "refused", "refused"]
        with KeywordTree(str(folder)) as again:
            assert look(again) == state_in_log(folder)
