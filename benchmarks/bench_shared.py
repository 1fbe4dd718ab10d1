"""Shared trees beside folders: writing, opening, refreshing, many trees; both in the same run, on the same disk.

    python -m benchmarks.bench_shared

Starts a PostgreSQL of its own on loopback, with what it needs to be durable (fsync, synchronous commits). The network
costs nothing here, so the round trips of a real one come on top.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from Agent.shared_tree import SharedLog
from Agent.tests.shared.own_server import OwnServer, find_programs
from Agent.tests.shared.storm import memory_folder
from benchmarks import common

KEYWORDS = 50_000


class Place(NamedTuple):
    """Where trees are kept: a folder, or a server."""

    folder: str
    dsn: str = ""


@contextmanager
def opened(place: Place, name: str) -> Iterator[KeywordTree]:
    """Give one tree of a place, over a log of its own as a process would have."""
    with ExitStack() as stack:
        store = stack.enter_context(SharedLog(place.dsn)).tree(name) if place.dsn else None
        yield stack.enter_context(KeywordTree(f"{place.folder}/{name}", store=store))


# -- writing ---------------------------------------------------------------------


def by_threads(place: Place, name: str, number: int, seconds: float) -> float:
    """Return how many keywords so many threads create in a second, each waiting until its own is durable."""
    with opened(place, name) as tree:
        return _rate(lambda worker, count: tree.CreateKeyword(f"{worker} {count}", "root"), number, seconds)


def _rate(write: Callable[[int, int], object], number: int, seconds: float) -> float:
    counts, begin = [0] * number, threading.Barrier(number + 1)
    ended = threading.Event()

    def work(worker: int) -> None:
        begin.wait()
        while not ended.is_set():
            write(worker, counts[worker])
            counts[worker] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(number)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    time.sleep(seconds)
    ended.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


def by_processes(place: Place, prefix: str, number: int, seconds: float, one_tree: bool) -> float:
    """Return how many keywords so many processes create in a second, in one tree or each in its own."""
    context = multiprocessing.get_context("spawn")
    begin, counts = context.Barrier(number + 1), context.Queue()
    processes = [
        context.Process(
            target=_write_for,
            args=(place, prefix if one_tree else f"{prefix}-{worker}", worker, seconds, begin, counts),
        )
        for worker in range(number)
    ]
    for process in processes:
        process.start()
    begin.wait()
    total = sum(counts.get() for _ in processes)
    for process in processes:
        process.join()
    return float(total / seconds)


def _write_for(place: Place, name: str, worker: int, seconds: float, begin: object, counts: object) -> None:
    with opened(place, name) as tree:
        tree.CreateKeyword(f"{worker} warm", "root")
        begin.wait()  # type: ignore[attr-defined]
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            tree.CreateKeyword(f"{worker} {count}", "root")
            count += 1
        counts.put(count)  # type: ignore[attr-defined]


def bare_inserts(dsn: str, number: int, seconds: float) -> float:
    """Return how many rows of a line's size so many threads insert in a second, each on a connection of its own."""
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(dsn, autocommit=True)) for _ in range(number)]
        connections[0].execute("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, line bytea)")

        def insert(worker: int, count: int) -> object:
            return connections[worker].execute("INSERT INTO bare (line) VALUES (%s)", (b"x" * 500,), prepare=True)

        return _rate(insert, number, seconds)


def writing(report: common.Report, places: dict[str, Place], options: Namespace) -> None:
    """Compare durable writes by threads of one process, and bare statements by as many connections."""
    rounds, seconds = options.rounds or (2 if options.quick else 5), 1.0 if options.quick else 2.0
    numbers, rows = (1, 8, 32), list[list[object]]()
    rates: dict[tuple[str, int], list[float]] = {}
    for number in numbers:
        runs = {
            name: (
                lambda place=place, number=number: by_threads(place, f"threads {number} {time.time()}", number, seconds)
            )
            for name, place in places.items()
        }
        runs["bare INSERTs"] = partial(bare_inserts, places["PostgreSQL"].dsn, number, seconds)
        for name, values in common.interleaved(rounds, runs).items():
            rates[name, number] = values
    for name in runs:
        rows.append([name, *(f"{statistics.median(rates[name, number]):,.0f}" for number in numbers)])
    report.table("Durable writes a second, by threads of one process", ["", *map(str, numbers)], rows)
    ratio = common.median_ratio(rates["PostgreSQL", 1], rates["folder", 1])
    report.target("one writer, times as fast as a folder", ratio, 0.7)
    for peer, least in (("folder", 0.4), ("bare INSERTs", 0.8)):
        ratio = common.median_ratio(rates["PostgreSQL", 8], rates[peer, 8])
        report.target(f"eight threads, times as fast as {peer}", ratio, least)
    growth = common.median_ratio(rates["PostgreSQL", 32], rates["PostgreSQL", 1])
    report.target("32 threads, times as fast as one", growth, 8)


def processes(report: common.Report, places: dict[str, Place], options: Namespace) -> None:
    """Compare durable writes by processes."""
    rounds, seconds = options.rounds or (1 if options.quick else 3), 2.0 if options.quick else 4.0
    rows = list[list[object]]()
    for number, one_tree in ((8, False), (8, True), *(() if options.quick else ((32, False), (32, True)))):
        runs = {
            name: (lambda place=place: by_processes(place, f"p{time.time()}", number, seconds, one_tree))  # noqa: B023
            for name, place in places.items()
        }
        found = common.interleaved(rounds, runs)
        what = "one tree" if one_tree else "own trees"
        rows.append([f"{number} processes, {what}", *(f"{statistics.median(found[name]):,.0f}" for name in places)])
    report.table("Durable writes a second, by processes", ["", *places], rows)


# -- opening ----------------------------------------------------------------------


def opening(report: common.Report, places: dict[str, Place], options: Namespace) -> None:
    """Compare opening, from a checkpoint or a state, and from the log alone."""
    rounds, count = options.rounds or (2 if options.quick else 5), 5000 if options.quick else KEYWORDS
    folder, server = places["folder"], places["PostgreSQL"]
    with opened(folder, "large") as tree:
        for start in range(0, count, 10):
            tree.BatchCreateKeywords([{"name": f"keyword {n}", "parent_id": "root"} for n in range(start, start + 10)])
    with SharedLog(server.dsn) as log:
        log.copy_in(f"{folder.folder}/large", "large")
        log.copy_in(f"{folder.folder}/large", "large, log only")
        log.keep("large", always=True)
    bare = Place(f"{folder.folder}/bare")
    Path(bare.folder, "large").mkdir(parents=True)
    shutil.copy(f"{folder.folder}/large/change_log.jsonl", f"{bare.folder}/large/change_log.jsonl")

    def open_bare() -> float:
        for path in Path(bare.folder, "large").glob("*.jsonl"):
            if path.name != "change_log.jsonl":
                path.unlink()
        shutil.copy(f"{folder.folder}/large/change_log.jsonl", f"{bare.folder}/large/change_log.jsonl")
        return _open_s(bare, "large")

    found = common.interleaved(
        rounds,
        {
            "folder, checkpoint": lambda: _open_s(folder, "large"),
            "PostgreSQL, state": lambda: _open_s(server, "large"),
            "folder, log": open_bare,
            "PostgreSQL, log": lambda: _open_s(server, "large, log only"),
        },
    )
    rows = [[name, f"{statistics.median(values):.2f}"] for name, values in found.items()]
    report.table(f"Seconds to open {count:,} keywords", ["", "s"], rows)
    ratio = common.median_ratio(found["PostgreSQL, state"], found["folder, checkpoint"])
    report.target("opening from a state, times a folder's", ratio, 1.2, at_most=True)


def _open_s(place: Place, name: str) -> float:
    started = time.perf_counter()
    with opened(place, name):
        return time.perf_counter() - started


# -- following --------------------------------------------------------------------


def following(report: common.Report, places: dict[str, Place], options: Namespace) -> None:
    """Measure refreshing one tree, and following a thousand."""
    count, server = 100 if options.quick else 1000, places["PostgreSQL"]
    with ExitStack() as stack:
        log, other = (stack.enter_context(SharedLog(server.dsn)) for _ in range(2))
        trees = [stack.enter_context(KeywordTree("unused", store=log.tree(f"f{n}"))) for n in range(count)]
        theirs = stack.enter_context(KeywordTree("unused", store=other.tree("f0")))
        nothing = [_seconds(trees[0].Refresh) for _ in range(200)]
        one_new = []
        for number in range(100):
            theirs.CreateKeyword(f"{number}", "root")
            one_new.append(_seconds(trees[0].Refresh))
        polls = [_seconds(lambda: log.follow(trees)) for _ in range(20)]
        rows = [
            ["refresh, nothing new", f"{1000 * statistics.median(nothing):.2f}"],
            ["refresh, one operation new", f"{1000 * statistics.median(one_new):.2f}"],
            [f"follow {count:,} trees", f"{1000 * statistics.median(polls):.1f}"],
        ]
        report.table("Milliseconds to see what others wrote", ["", "ms"], rows)
        report.target(f"connections for {count:,} trees", log._pool.count(), 8, at_most=True)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def memory(report: common.Report, places: dict[str, Place], options: Namespace) -> None:
    """Measure a commit where syncs are free: the work besides."""
    if memory_folder() is None:
        raise common.Skip("there is no folder in memory")
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder, OwnServer(folder=memory_folder()) as server:
        with SharedLog(server.dsn) as log:
            log.setup()
        rows = []
        for name, place in {"folder": Place(folder), "PostgreSQL": Place(folder, server.dsn)}.items():
            with opened(place, "memory") as tree:
                times = [_seconds(lambda tree=tree, n=n: tree.CreateKeyword(f"{n}", "root")) for n in range(1000)]  # type: ignore[misc]
            rows.append([name, f"{1000 * statistics.median(times):.2f}"])
    report.table("Milliseconds for a commit where syncs are free (data in memory)", ["", "ms"], rows)


PARTS = {"writing": writing, "processes": processes, "opening": opening, "following": following, "memory": memory}


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("Shared trees", options, scratch)
        if find_programs() is None:
            report.skipped("all", "PostgreSQL is not installed (no initdb)")
            return
        with OwnServer(folder=options.dir) as server, SharedLog(server.dsn) as log:
            log.setup()
            version = log._pool.run(lambda connection: connection.info.server_version)
            report.line(
                f"\nPostgreSQL {version // 10000}.{version % 10000}, data on {common.file_system(server.folder)}"
            )
            places = {"folder": Place(str(scratch)), "PostgreSQL": Place(str(scratch / "unused"), server.dsn)}
            for name, part in PARTS.items():
                if common.wanted(options, name):
                    try:
                        part(report, places, options)
                    except common.Skip as reason:
                        report.skipped(name, reason)


if __name__ == "__main__":
    run(common.parser(__doc__).parse_args())
