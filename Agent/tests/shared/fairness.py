"""A storm of fairness: machines near and far write to one tree, and it is measured how long each waits for a write.

    $ python -m Agent.tests.shared.fairness --seconds 10

Each machine is a process of its own behind a network of its own, 0 to 400 ms away; it writes in a loop, or pauses after
each write. In some trials one is stopped and goes on, again and again. None may fail, and no write may wait longer than
20 times the median of the other machines' writes, 1 s, or three round trips and 0.6 s, whichever is most. How busy this
machine is counts apart: a statement is sent to the server all the time, and 20 times what its slowest hundredth takes
is added.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import signal
import statistics
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...keyword_tree import KeywordTree, NotFoundError, StoreError
from ...shared_tree.shared_log import SharedLog
from .faulty_proxy import FaultyProxy, delay
from .own_server import OwnServer
from .storm import memory_folder

__all__ = ["TRIALS", "Machine", "Waits", "run"]

_STOPPED_S = 3.0
_FAR_S = 0.6
"""Beside the round trips of one so far away that these alone take the better part of a second."""


class Machine(NamedTuple):
    """One that writes."""

    away_ms: float = 0.0
    """A round trip to the server."""
    pause_s: float = 0.0
    """Between a write and the next one."""
    threads: int = 1
    is_stopped: bool = False
    """Whether it is stopped for 3 s, again and again."""


TRIALS: dict[str, list[Machine]] = {
    "one alone": [Machine()],
    "a loop, and one 3 ms away": [Machine(), Machine(3)],
    "a loop, and pauses": [Machine(), Machine(3, 0.2), Machine(0, 1.5)],
    "0, 3 and 20 ms away": [Machine(), Machine(3), Machine(20)],
    "two near loops, far pauses": [Machine(), Machine(), Machine(3, 0.2), Machine(20, 1.5)],
    "eight near loops": [Machine()] * 8,
    "four of four threads": [Machine(threads=4)] * 4,
    "eight threads, far pauses": [Machine(threads=8), Machine(3, 0.2), Machine(20, 1.5)],
    "two of four threads, far pauses": [Machine(threads=4), Machine(threads=4), Machine(20, 1.5)],
    "100 ms away": [Machine(), Machine(), Machine(100), Machine(100, 1.5)],
    "400 ms away": [Machine(), Machine(400), Machine(400, 1.5)],
    "one is stopped": [Machine(), Machine(is_stopped=True), Machine(3), Machine(0, 0.2)],
}


@dataclass
class Waits:
    """Of one machine."""

    machine: Machine
    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    limit: float = 0.0
    """What its longest may be."""

    def is_fair(self) -> bool:
        """Tell whether it never waited too long, and nothing failed; one that is stopped itself may wait."""
        return not self.failed and (self.machine.is_stopped or max(self.seconds) <= self.limit)

    def __str__(self) -> str:
        machine, count = self.machine, len(self.seconds)
        what = f"{machine.away_ms:.0f} ms away, " + (f"pauses {machine.pause_s} s" if machine.pause_s else "loop")
        what += f", {machine.threads} threads" * (machine.threads > 1) + ", stopped" * machine.is_stopped
        median, longest = 1000 * statistics.median(self.seconds), 1000 * max(self.seconds)
        problem = "" if self.is_fair() else f" UNFAIR, {len(self.failed)} failed {self.failed[:1]}"
        return f"{what} | {count:,} | {median:.1f} | {longest:,.0f} | {1000 * self.limit:,.0f}{problem}"


def _write(dsn: str, port: int, number: int, machine: Machine, seconds: float, begin: Any, said: Any) -> None:
    waits, failed = list[float](), list[str]()
    with ExitStack() as stack:
        if machine.away_ms:
            proxy = stack.enter_context(FaultyProxy(port))
            proxy.on_request = proxy.on_answer = lambda _: delay(machine.away_ms / 2000)
            dsn = dsn.replace(f"port={port}", f"port={proxy.port}")
        tree = stack.enter_context(KeywordTree("unused", store=stack.enter_context(SharedLog(dsn)).tree("t")))
        begin.wait()
        end = time.monotonic() + seconds

        def work(thread: int) -> None:
            count = 0
            while (started := time.monotonic()) < end:
                try:
                    tree.CreateKeyword(f"{number} {thread} {count}", "root", llm_auto_place=False)
                except StoreError as error:
                    failed.append(str(error))
                waits.append(time.monotonic() - started)
                count += 1
                time.sleep(machine.pause_s)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(machine.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    said.put((number, waits, failed))


def run(machines: list[Machine], seconds: float, server: OwnServer) -> list[Waits]:
    """Let the machines write, and return how long each waited."""
    context = multiprocessing.get_context("spawn")
    begin, said = context.Barrier(len(machines) + 1), context.Queue()
    with SharedLog(server.dsn) as log:
        log.setup()
        with suppress(NotFoundError):
            log.remove("t")
        KeywordTree("unused", store=log.tree("t")).Close()
        processes = [
            context.Process(target=_write, args=(server.dsn, server.port, number, machine, seconds, begin, said))
            for number, machine in enumerate(machines)
        ]
        for process in processes:
            process.start()
        begin.wait()
        stopped = [process.pid or 0 for process, machine in zip(processes, machines, strict=True) if machine.is_stopped]
        started, steps, found = time.monotonic(), [0.0], dict[int, Waits]()
        while len(found) < len(machines):
            began = time.monotonic()
            log.trees()
            steps.append(time.monotonic() - began)
            is_over, passed = began > started + seconds - 1.5 * _STOPPED_S, (began - started) % (_STOPPED_S + 0.5)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT if is_over or passed < 0.5 else signal.SIGSTOP)
            with suppress(queue.Empty):
                number, waited, failed = said.get(timeout=0.01)
                found[number] = Waits(machines[number], waited, failed)
    for process in processes:
        process.join()
    ordered = [found[number] for number in sorted(found)]
    for waits in ordered:
        others = [each for other in ordered if other is not waits for each in other.seconds]
        three_trips = 3 * waits.machine.away_ms / 1000  # a look after a pause, the turn, the write
        waits.limit = max(1.0, 20 * statistics.median(others or [0.0]), three_trips + _FAR_S)
        waits.limit += 20 * statistics.quantiles(steps, n=100)[-1]
    return ordered


def main() -> int:
    """Run all trials; print a table, and return 1 where one was unfair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each trial")
    parser.add_argument("--only", default="", help="a part of the trials' names")
    parser.add_argument("--disk", action="store_true", help="keep the server on the disk, where a sync takes time")
    options = parser.parse_args()
    is_fair = True
    print("| trial | machine | writes | median ms | longest ms | may be ms |\n|---|---|---:|---:|---:|---:|")
    with OwnServer(folder=None if options.disk else memory_folder()) as server:
        for name, machines in TRIALS.items():
            if options.only in name:
                for waits in run(machines, max(options.seconds, 12 * any(m.is_stopped for m in machines)), server):
                    print(f"| {name} | {waits} |", flush=True)
                    is_fair &= waits.is_fair()
    return not is_fair


if __name__ == "__main__":
    sys.exit(main())
