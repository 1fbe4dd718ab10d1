"""A storm: processes that write to the same trees while everything fails; then it is counted what became of each write.

    $ python -m Agent.tests.shared.storm --seconds 60

Workers write through networks that lose requests and answers, and deliver late; they are killed and stopped; sessions
are ended; the server crashes; logs are compacted without history. Each worker notes, on disk and before the call, what
it is about to write, and behind it what it got back. In the end no acknowledged write may be lost, none be there twice,
none that was refused be there; what began after another was acknowledged must stand behind it; each refresh must have
seen all that was acknowledged before; and all replicas must be equal. No log may lack what was read of it, unless a
standby was promoted: what a crash leaves visible need not be on the standby, and no caller got an answer that says so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psycopg

from ...keyword_tree import KeywordNode, KeywordTree, StoreError
from ...shared_tree.shared_log import SharedLog
from . import faulty_proxy as network
from .own_server import OwnServer
from .storm_worker import MUTANTS, THREADS, TREES, name_of, work

__all__ = ["Report", "memory_folder", "run"]

_DRAIN_S = 4.0  # until what is late has come in


@dataclass
class Report:
    """What a storm came to."""

    acknowledged: int = 0
    unknown: int = 0
    unknown_in: int = 0
    refused: int = 0
    refreshes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    """What must not be: `lost`, `doubled`, `refused but written`, `out of order`, `stale`, `unequal`, `unsound`."""
    examples: list[str] = field(default_factory=list)

    def add(self, problem: str, example: str) -> None:
        """Take note of a problem."""
        self.problems[problem] += 1
        if self.problems[problem] <= 3:
            self.examples.append(f"{problem}: {example}")

    def __str__(self) -> str:
        problems = ", ".join(f"{count:,} {name}" for name, count in sorted(self.problems.items())) or "no problem"
        lines = [
            f"{self.acknowledged:,} acknowledged, {self.refused:,} refused, {self.unknown:,} unknown "
            f"({self.unknown_in:,} of them in), {self.refreshes:,} refreshes: {problems}",
            "faults: " + ", ".join(f"{count:,} {name}" for name, count in sorted(self.faults.items())),
            "stores: " + ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items())),
        ]
        return "\n".join([*lines, *self.examples])


# -- the storm --------------------------------------------------------------------


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


class _Storm:
    def __init__(self, seconds: float, workers: int, seed: int, mutant: str, failover: bool, least: int) -> None:
        self.seconds, self.workers, self.mutant, self.failover, self.least = seconds, workers, mutant, failover, least
        self.seed = seed
        self.random = random.Random(seed)
        self.report = Report()
        self.lives = [0] * workers
        self.context = multiprocessing.get_context("spawn")
        self.running: list[SpawnProcess] = []

    def run(self, home: Path, server: OwnServer, standby: OwnServer | None) -> Report:
        self.standby = standby
        with network.FaultyProxy(server.port) as proxy:
            with SharedLog(server.dsn) as log:
                log.setup()
            self.dsn = server.dsn.replace(f"port={server.port}", f"port={proxy.port}")
            self.home, self.server, self.proxy = home, server, proxy
            self.running = [self._start(worker) for worker in range(self.workers)]
            try:
                with suppress(KeyboardInterrupt):  # enough: what was written is counted
                    self._rage()
                proxy.heal()
                if not server.is_running():
                    server.start()
                for process in self.running:
                    _go_on(process.pid or 0)
                time.sleep(_DRAIN_S)
                (home / "stop").touch()
                self._wait_for_all("done")
                (home / "rest").touch()
                self._wait_for_all("rest")
            finally:
                for process in self.running:
                    if process.is_alive():
                        process.kill()
            with SharedLog(self.server.dsn) as log:
                self._count(log)
        return self.report

    def _wait_for_all(self, what: str) -> None:
        end = time.monotonic() + 180
        paths = [self.home / f"{what}-{worker}-{self.lives[worker]}" for worker in range(self.workers)]
        while time.monotonic() < end and not all(path.exists() for path in paths):
            time.sleep(0.05)

    def _start(self, worker: int) -> SpawnProcess:
        slots = self.workers * THREADS
        arguments = (str(self.home), self.dsn, worker, self.lives[worker], slots, self.seed, self.mutant)
        process = self.context.Process(target=work, args=arguments)
        process.start()
        return process

    def _rage(self) -> None:
        faults = [
            self._kill,
            self._stop,
            self._stop_and_compact,
            self._stop_and_compact,
            self._end_sessions,
            self._cut,
            self._lose,
            self._lose,
            self._heal,
        ]
        end = time.monotonic() + self.seconds
        middle = end - self.seconds / 2
        time.sleep(min(2.0, self.seconds / 4))  # until they write
        while time.monotonic() < end or self._acknowledged() < self.least:
            if self.failover and time.monotonic() > middle:
                self.failover = False
                self._fail_over()
            fault = self.random.choice([*faults, self._crash])
            fault()
            time.sleep(self.random.uniform(0.1, 1.0))

    def _acknowledged(self) -> int:
        if not self.least:
            return 0
        return sum(path.read_bytes().count(b'["acknowledged"') for path in self.home.glob("notes-*"))

    def _kill(self) -> None:
        worker = self.random.randrange(self.workers)
        self.running[worker].kill()
        self.running[worker].join()
        self.lives[worker] += 1
        self.running[worker] = self._start(worker)
        self.report.faults["killed"] += 1

    def _stop(self) -> None:
        pid = self.random.choice(self.running).pid or 0
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(self.random.uniform(0.1, 3.0), _go_on, (pid,)).start()
        self.report.faults["stopped"] += 1

    def _stop_and_compact(self) -> None:
        """Let a worker sleep, perhaps in the middle of a commit, while the log behind what it has read goes."""
        pid, tree_name = self.random.choice(self.running).pid or 0, self.random.choice(TREES)
        os.kill(pid, signal.SIGSTOP)
        asked, done = self.home / f"compact-{tree_name}", self.home / f"compacting-{tree_name}"
        asked.touch()
        end = time.monotonic() + 4
        while time.monotonic() < end and (asked.exists() or done.exists()):
            time.sleep(0.02)
        _go_on(pid)
        self.report.faults["stopped"] += 1

    def _end_sessions(self) -> None:
        try:
            with psycopg.connect(self.server.dsn, autocommit=True) as connection:
                ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keyword_tree'"
                self.report.faults["sessions ended"] += len(connection.execute(ended).fetchall())
        except psycopg.Error:
            pass

    def _cut(self) -> None:
        self.proxy.cut()
        self.report.faults["networks cut"] += 1

    def _heal(self) -> None:
        self.proxy.heal()

    def _lose(self) -> None:
        chance, random_, faults = self.random.choice((0.005, 0.02, 0.1)), self.random, self.report.faults

        def judge_request(_: bytes) -> network.Fault:
            if random_.random() >= chance:
                return network.PASS
            kind = random_.choice(("requests lost", "requests late", "requests delayed"))
            faults[kind] += 1
            seconds = random_.uniform(0, 3)
            if kind == "requests lost":
                return network.lose()
            return network.late(seconds) if kind == "requests late" else network.delay(seconds)

        def judge_answer(_: bytes) -> network.Fault:
            if random_.random() >= chance:
                return network.PASS
            faults["answers lost"] += 1
            return network.lose()

        self.proxy.on_request, self.proxy.on_answer = judge_request, judge_answer

    def _crash(self) -> None:
        self.server.restart("immediate")
        self.report.faults["server crashes"] += 1

    def _fail_over(self) -> None:
        assert self.standby is not None
        self.server.stop("immediate")
        self.standby.promote()
        self.server = self.standby
        self.proxy.target = self.standby.port
        self.proxy.cut()
        self.report.faults["standbys promoted"] += 1

    # -- counting ---------------------------------------------------------------

    def _count(self, log: SharedLog) -> None:
        reported: dict[str, dict[str, list[Any]]] = {name: {} for name in TREES}
        for path in self.home.glob("notes-*"):
            for line in path.read_text().splitlines():
                with suppress(ValueError):  # it was killed in the middle of it
                    self._take_note(json.loads(line), reported)
        for name in TREES:
            self._compare(log, name, reported[name])
        self._compare_replicas()

    def _take_note(self, note: list[Any], reported: dict[str, dict[str, list[Any]]]) -> None:
        kind, tree_name, slot, number, when, *more = note
        if kind == "refreshed":
            self.report.refreshes += 1
            for name in more[0]:
                self.report.add("stale", f"a refresh of {tree_name} did not show {name}")
        elif kind == "opened again":
            if self.report.faults["standbys promoted"]:
                self.report.faults["trees opened again"] += 1
            else:
                self.report.add("unsound", f"{tree_name} did not hold what was read of it")
        elif kind == "compacted":
            self.report.faults["compactions"] += 1
        elif kind == "began":
            reported[tree_name][name_of(slot, number)] = ["unknown", when, float("inf")]
        else:
            entry = reported[tree_name][name_of(slot, number)]
            entry[0], entry[2] = kind, when

    def _compare(self, log: SharedLog, tree_name: str, reported: dict[str, list[Any]]) -> None:
        nodes = list[KeywordNode]()
        try:
            with KeywordTree(str(self.home / "unused"), store=log.tree(tree_name)) as tree:
                nodes = tree.GetChildren("root")
                problems = tree.Verify()
        except StoreError as error:
            problems = [str(error)]
        for problem in problems:
            self.report.add("unsound", problem)
        places: dict[str, list[int]] = {}
        for node in nodes:
            places.setdefault(node.name, []).append(node.ordinal)
        for name, (kind, _, _) in reported.items():
            count = len(places.get(name, ()))
            if kind == "acknowledged":
                self.report.acknowledged += 1
                if not count:
                    self.report.add("lost", f"{name} in {tree_name}")
            elif kind == "refused":
                self.report.refused += 1
                if count:
                    self.report.add("refused but written", f"{name} in {tree_name}")
            else:
                self.report.unknown += 1
                self.report.unknown_in += bool(count)
            if count > 1:
                self.report.add("doubled", f"{name} in {tree_name}: {count} times")
        latest = 0.0  # when the last of those before it began
        for name in sorted(places, key=lambda name: places[name][0]):
            kind, began, ended = reported.get(name, ("strange", 0.0, 0.0))
            if kind == "strange":
                self.report.add("strange", f"{name} in {tree_name} was written by no worker")
            elif ended < latest:
                self.report.add("out of order", f"{name} in {tree_name}")
            latest = max(latest, began)

    def _compare_replicas(self) -> None:
        seen: dict[str, list[str]] = {}
        for worker in range(self.workers):
            path = self.home / f"rest-{worker}-{self.lives[worker]}"
            if not path.exists():
                self.report.add("unequal", f"worker {worker} did not come to rest")
                continue
            said = json.loads(path.read_text())
            self.report.counts.update(said["counts"])
            for name, (names, problems) in said["trees"].items():
                for problem in problems:
                    self.report.add("unsound", f"worker {worker}: {problem}")
                if seen.setdefault(name, names) != names:
                    self.report.add("unequal", f"worker {worker} holds another {name}")


def run(
    seconds: float,
    *,
    workers: int = 6,
    seed: int = 0,
    mutant: str = "",
    failover: bool = False,
    least: int = 0,
    folder: Path | None = None,
) -> Report:
    """Let a storm rage, and return what it came to.

    Args:
        seconds: how long, besides starting and counting.
        workers: processes, each with sixteen threads.
        seed: of what happens when; the rest is up to the machine.
        mutant: one of `MUTANTS`, to see that it is found.
        failover: whether a synchronous standby takes over in the middle.
        least: go on until so many writes are acknowledged.
        folder: where to make the server; in memory it is quick.
    """
    settings = {"max_connections": "100", "shared_buffers": "'128MB'", "max_wal_size": "'256MB'"}
    with ExitStack() as stack:
        server, standby = stack.enter_context(OwnServer(settings, folder=folder)), None
        if failover:
            standby = stack.enter_context(server.standby())
            server.configure({"synchronous_standby_names": "'standby'"})
            server.reload()
        home = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        return _Storm(seconds, workers, seed, mutant, failover, least).run(Path(home), server, standby)


def memory_folder() -> Path | None:
    """Return a folder that lies in memory, where there is one with room."""
    folder = Path("/dev/shm")
    is_there = folder.is_dir() and os.access(folder, os.W_OK)
    return folder if is_there and shutil.disk_usage(folder).free > 4 << 30 else None


def main() -> int:
    """Run a storm from the command line; return 1 where it found a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--least", type=int, default=0, help="go on until so many writes are acknowledged")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--mutant", default="", choices=["", *MUTANTS])
    parser.add_argument("--failover", action="store_true", help="let a synchronous standby take over in the middle")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = run(
        options.seconds,
        workers=options.workers,
        seed=options.seed,
        mutant=options.mutant,
        least=options.least,
        failover=options.failover,
        folder=memory_folder(),
    )
    print(f"seed {options.seed}\n{report}")
    return bool(report.problems)


if __name__ == "__main__":
    sys.exit(main())
