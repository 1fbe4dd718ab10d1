"""A log, a lock or a folder that another process has replaced is noticed, whatever clocks say."""

from __future__ import annotations

import errno
import random
import threading
import time

import pytest

from Agent.keyword_tree import KeywordTree
from Agent.tests.store.faults.worlds import FOLDER, SEED, STORM, WRITE, Step, Traps, step
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, Mode
from Agent.tests.support.threads import wait_until


class Clock:
    """Stands where the module's `time` stood, and stamps the disk's files: one clock that a test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, granularity_ns: int) -> None:
        self.now_ns = 1_700_000_000 * 10**9
        self.granularity_ns = granularity_ns
        for name in ("gmtime", "strftime", "monotonic", "sleep"):
            setattr(self, name, getattr(time, name))
        inside.replace_clock(monkeypatch, self)

    def time(self) -> float:
        return self.now_ns / 1e9

    def time_ns(self) -> int:
        return self.now_ns

    def stamp(self) -> int:
        return self.now_ns // self.granularity_ns * self.granularity_ns


SECOND = 10**9


class TestReplacedLog:
    """One that has a log open which another has replaced must notice it before the next write, whatever clocks say."""

    @pytest.mark.parametrize(
        "granularity_ns",
        [1, 4_000_000, 10_000_000, SECOND, 2 * SECOND],
        ids=["to the nanosecond", "4 ms", "10 ms, exFAT", "1 s, ext3", "2 s, FAT"],
    )
    @pytest.mark.parametrize("method", ["compact", "repaired by a copy"])
    def test_is_noticed_however_coarse_the_stamps_are(
        self, door: Door, monkeypatch: pytest.MonkeyPatch, granularity_ns: int, method: str
    ) -> None:
        steps_ns = (0, 1, granularity_ns // 2, granularity_ns, 90_000_000, 110_000_000, SECOND // 2, 3 * SECOND // 2)
        rng = random.Random(f"{SEED} {granularity_ns}")
        for turn in range(400 if STORM else 6):
            clock = Clock(monkeypatch, granularity_ns)
            clock.now_ns += rng.randrange(SECOND)
            traps = Traps(door)
            traps.disk.clock = clock.stamp
            traps.world.run([Step("a", "open"), step("a", "first"), Step("b", "open")])
            for number in range(3):
                clock.now_ns += rng.choice(steps_ns)
                traps.world.do(Step("a", "refresh"))  # a looks here, and must look again behind the change to come
                clock.now_ns += rng.choice(steps_ns)
                if method == "compact":
                    traps.world.trees["b"].CompactStorage()
                else:
                    traps.fault(errno.EIO, 1, "fdatasync")
                    traps.fails(step("b", f"doubtful {number}"))
                    traps.world.run([Step("b", "open")])
                clock.now_ns += rng.choice(steps_ns)
                traps.world.do(step("a", f"k{number}"))
                assert f"k{number}" in traps.names_after(Mode("none")), f"turn {turn}, {clock.now_ns}"

    def test_is_noticed_when_the_folder_s_time_was_set_back(self, door: Door) -> None:
        """As programs do that copy folders; a folder's time hardly ever changes, so it is the old one to the dot."""
        traps = Traps(door)
        traps.disk.clock = lambda: time.time_ns() - 60 * SECOND  # long settled
        traps.world.run([Step("a", "open"), step("a", "first"), Step("b", "open"), Step("a", "refresh")])
        before = traps.disk.stat(FOLDER).st_mtime_ns
        traps.world.trees["b"].CompactStorage()
        traps.disk.set_folder_time(FOLDER, before)
        traps.world.do(step("a", "next"))

        assert "next" in traps.names_after(Mode("none"))

    def test_is_noticed_when_the_lock_was(self, traps: Traps) -> None:
        """Two locks exclude no one: who holds the old one would write where another is writing."""
        world, disk = traps.world, traps.disk
        disk.remove(f"{FOLDER}/lock")
        world.do(Step("c", "open"))
        with traps.joined_by(lambda: world.write(world.trees["a"], step("a", "of a")), WRITE, wait_s=1):
            world.write(world.trees["c"], step("c", "of c"))

        assert traps.names_after(Mode("none")) == {"first", "of a", "of c"}

    def test_is_noticed_when_the_lock_was_while_an_opening_waited_for_it(self, traps: Traps) -> None:
        world, disk = traps.world, traps.disk
        opened: list[KeywordTree] = []
        thread = threading.Thread(target=lambda: opened.append(world.tree()), daemon=True)

        def step_in() -> None:
            thread.start()
            wait_until(lambda: disk.waiting_count > 0)
            disk.remove(f"{FOLDER}/lock")

        with traps.at(WRITE, 1, step_in):
            world.write(world.trees["a"], step("a", "of a"))
        thread.join(20)

        assert disk.fstat(inside.lock_descriptor(opened[0])).st_ino == disk.stat(f"{FOLDER}/lock").st_ino
        world.write(opened[0], step("b", "of b"))
        world.write(world.trees["a"], step("a", "more of a"))
        assert traps.names_after(Mode("none")) == {"first", "of a", "of b", "more of a"}

    def test_is_noticed_when_the_whole_folder_was_replaced(self, door: Door, traps: Traps) -> None:
        traps.world.do(Step("a", "refresh"))
        disk = traps.disk
        disk.put({name.replace("/tree/", "/other/"): held for name, held in disk.read_all().items()})
        disk.set_folder_time("/disk/memory/other", disk.stat(FOLDER).st_mtime_ns)  # a copy that keeps times
        disk.replace("/disk/memory/tree", "/disk/memory/gone")
        disk.replace("/disk/memory/other", "/disk/memory/tree")
        traps.world.do(step("a", "next"))

        assert traps.names_after(Mode("killed")) == {"first", "next"}
