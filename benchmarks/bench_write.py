"""What does a durable write cost: alone, by threads, in a batch, in a large tree, from several processes?

What and why, part by part (``--only`` takes their names):

- single: one `CreateKeyword` or `CreateInfo` at a time, beside a held file with append + fsync of the same
  line, the same over prefilled space with fdatasync (the floor), sqlite3 (WAL, synchronous=FULL, the same
  record and a name index), and the first design read literally (two files opened, synced and closed per
  write). Wanted: 1.0 times the appending file (goal 1.2), 1.2 times sqlite3 (goal 1.5), 2.5 times the literal
  reading.
- threads: 1, 8 and 32 threads on one tree; sqlite3 beside, with one locked connection or one per thread.
  Wanted: 1.8 and 2.5 times one thread (goal 2.5 and 5).
- batch: 100,000 keywords in one call, beside sqlite3 with the same rows in one transaction. Wanted: faster.
- size: an operation's cost in trees of 1,000, 100,000 and 1,000,000 keywords. Wanted: flat.
- fan_out: `CreateKeyword` under a parent with 45,000 children and one with 5; `CreateInfo` at such keywords.
  Wanted: equal.
- processes: four processes write 250 acknowledged keywords each; all are counted afterwards. Wanted: 1,000 of
  1,000.
- others: sqlite3, langgraph's SqliteStore and the MCP memory server, one insert and one exact look-up at a time, and
  the latter's losses with two processes.

How: interleaved rounds on a real disk; ratios are taken per round, and their median is given. A sync costs
what the disk makes of it, so times differ from machine to machine; ratios much less.

Repeat: ``python -m benchmarks.bench_write`` (``--quick``: fewer rounds, up to 100,000 keywords).
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from benchmarks import common, sqlite_peer, stores, trees, writers

MODULE = "benchmarks.bench_write"


CHUNK = 25
"""Writes of one contender before the next has its turn: a disk's fast and slow moments then hit all alike."""


class Sample(NamedTuple):
    """What a contender needed for some writes, one after another."""

    times_s: list[float]
    processor_s: float


class Round(NamedTuple):
    """What one contender needed in one round, per write."""

    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    processor_s: float

    @classmethod
    def of(cls, samples: list[Sample]) -> Round:
        """Join the samples of one round."""
        times = [time_s for sample in samples for time_s in sample.times_s]
        return cls(
            statistics.fmean(times),
            statistics.median(times),
            common.percentile(times, 0.99),
            max(times),
            sum(sample.processor_s for sample in samples) / len(times),
        )


def timed(write: Callable[[trees.Spec], None], specs: list[trees.Spec]) -> Sample:
    """Write `specs` one after another and return what it took."""
    times = []
    processor, last = time.process_time(), time.perf_counter()
    for spec in specs:
        write(spec)
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return Sample(times, time.process_time() - processor)


def in_rounds(rounds: int, count: int, contenders: dict[str, Callable[[], Sample]]) -> dict[str, list[Round]]:
    """Let the contenders take turns, `CHUNK` writes each, until each has `rounds` rounds of `count` writes.

    Before the first round each has two chunks that do not count.
    """
    common.interleaved(2, contenders)
    results: dict[str, list[Round]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, samples in common.interleaved(count // CHUNK, contenders).items():
            results[name].append(Round.of(samples))
    return results


def _means(rounds: list[Round]) -> list[float]:
    return [each.mean_s for each in rounds]


def _growth(figure: str, of_large: list[Round], of_small: list[Round]) -> float:
    """Return the median ratio of a figure; processor time and p50 do not see the disk's own slow moments."""
    return common.median_ratio(
        [getattr(each, figure) for each in of_large], [getattr(each, figure) for each in of_small]
    )


def _specs(records: writers.Records, kind: str, count: int, parent_id: str = "parent") -> list[trees.Spec]:
    return [records.keyword(parent_id) if kind == "keyword" else records.info(parent_id) for _ in range(count)]


@contextmanager
def _open_tree(folder: Path) -> Iterator[writers.TreeWriter]:
    """Yield a writer to a new tree that has the keyword "parent"."""
    writer = writers.TreeWriter(folder)
    writer.tree.BatchCreateKeywords([{"name": "parent", "parent_id": "root", "id": "parent"}])
    try:
        yield writer
    finally:
        writer.close()


def probe_disk(scratch: Path) -> float:
    """Return the seconds that an append of 500 bytes and its fsync take just now (p50 of 200)."""
    file = os.open(scratch / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    times = []
    for _ in range(200):
        begun = time.perf_counter()
        os.write(file, b"x" * 500)
        os.fsync(file)
        times.append(time.perf_counter() - begun)
    os.close(file)
    return statistics.median(times)


# == single ==================================================================================


def single(report: common.Report, scratch: Path, options: Namespace) -> None:
    """One durable write at a time."""
    rounds, count = options.rounds or (5 if options.quick else 15), 150 if options.quick else 400
    lines = writers.sample_lines(scratch / "sample")
    largest = max(len(line) for of_kind in lines.values() for line in of_kind)
    with ExitStack() as stack:
        tree = stack.enter_context(_open_tree(scratch / "single"))
        contenders: dict[str, writers.Writer] = {
            "KeywordTree": tree,
            "held file, append + fsync": writers.AppendWriter(scratch / "append", lines),
            "held file, prefilled + fdatasync": writers.PrefilledWriter(
                scratch / "prefilled", lines, largest * (rounds + 3) * count * 2
            ),
            "sqlite3 WAL FULL": writers.SqliteWriter(scratch / "single.sqlite"),
            "two files opened, synced, closed": writers.PlainReadingWriter(scratch / "plain"),
        }
        for name, contender in contenders.items():
            if name != "KeywordTree":
                stack.callback(contender.close)
        for kind in writers.KINDS:
            _single_kind(report, contenders, kind, rounds, count)


def _single_kind(
    report: common.Report, contenders: dict[str, writers.Writer], kind: str, rounds: int, count: int
) -> None:
    def chunk_of(writer: writers.Writer) -> Callable[[], Sample]:
        records = writers.Records(seed=5)
        return lambda: timed(writer.writing(kind), _specs(records, kind, CHUNK))

    prepared = {name: chunk_of(writer) for name, writer in contenders.items()}
    in_rounds(1, 2 * count, prepared)  # sqlite3 has to come round to using its write-ahead log again
    results = in_rounds(rounds, count, prepared)
    ours = _means(results["KeywordTree"])
    rows = []
    for name, of_name in results.items():
        rows.append(
            [
                name,
                f"{1 / statistics.median(_means(of_name)):,.0f}",
                *(
                    common.microseconds(statistics.median(getattr(each, figure) for each in of_name))
                    for figure in ("p50_s", "p99_s", "processor_s")
                ),
                f"{common.median_ratio(_means(of_name), ours):.2f}",
            ]
        )
    call = "CreateKeyword" if kind == "keyword" else "CreateInfo, one link"
    report.table(
        f"Durable `{call}`, one thread ({rounds} rounds of {count})",
        ["writer", "writes/s", "p50 us", "p99 us", "processor us", "KeywordTree is … times as fast"],
        rows,
    )
    for name, least in (
        ("held file, append + fsync", 1.0),
        ("sqlite3 WAL FULL", 1.2),
        ("two files opened, synced, closed", 2.5),
    ):
        report.target(f"{kind}, speed beside {name}", common.median_ratio(_means(results[name]), ours), least)


# == threads =================================================================================


def threads(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Many threads, one store."""
    rounds, count = options.rounds or (3 if options.quick else 9), 480 if options.quick else 1_600
    numbers = (1, 8, 32)
    with ExitStack() as stack:
        tree = stack.enter_context(_open_tree(scratch / "threads"))
        contenders: dict[str, writers.Writer] = {
            "KeywordTree": tree,
            "sqlite3, one connection and a lock": stack.enter_context(
                closing(writers.SqliteWriter(scratch / "threads-shared.sqlite"))
            ),
            "sqlite3, a connection per thread": stack.enter_context(
                closing(writers.SqliteWriter(scratch / "threads-own.sqlite", shared=False))
            ),
        }
        records = writers.Records(seed=6)

        def one_round(writer: writers.Writer, number: int) -> Callable[[], float]:
            return lambda: _by_threads(writer, number, _specs(records, "keyword", count))

        prepared = {
            f"{name} {number}": one_round(writer, number) for name, writer in contenders.items() for number in numbers
        }
        common.interleaved(1, prepared)
        results = common.interleaved(rounds, prepared)
    rows = []
    for name in contenders:
        rates = [f"{count / statistics.median(results[f'{name} {number}']):,.0f}" for number in numbers]
        gains = [common.median_ratio(results[f"{name} 1"], results[f"{name} {number}"]) for number in numbers[1:]]
        rows.append([name, *rates, *(f"{gain:.2f}" for gain in gains)])
    report.table(
        f"Durable `CreateKeyword` by threads, writes/s ({rounds} rounds of {count})",
        ["writer", *(f"{number} thread{'s' if number > 1 else ''}" for number in numbers), "8 : 1", "32 : 1"],
        rows,
    )
    for number, least in ((8, 1.8), (32, 2.5)):
        gain = common.median_ratio(results["KeywordTree 1"], results[f"KeywordTree {number}"])
        report.target(f"{number} threads beside one", gain, least)


def _by_threads(writer: writers.Writer, number: int, specs: list[trees.Spec]) -> float:
    """Let `number` threads write their share of `specs` and return the seconds until the last is done."""
    start = threading.Barrier(number + 1)

    def work(share: list[trees.Spec]) -> None:
        start.wait()
        for spec in share:
            writer.keyword(spec)

    workers = [threading.Thread(target=work, args=(specs[first::number],)) for first in range(number)]
    for worker in workers:
        worker.start()
    start.wait()
    begun = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begun


# == batch ===================================================================================


def batch(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Many keywords in one call."""
    rounds, count = options.rounds or (3 if options.quick else 7), 20_000 if options.quick else 100_000
    specs = [{**spec, "parent_id": spec["parent_id"] or "root"} for spec in trees.made_tree(count)]
    own_ids = [{key: value for key, value in spec.items() if key != "id"} | {"parent_id": "root"} for spec in specs]
    rows_ready = [writers.keyword_row(spec) for spec in specs]
    folder = scratch / "batch"

    def fresh(measure: Callable[[], float]) -> Callable[[], float]:
        def once() -> float:
            folder.mkdir()
            gc.collect()
            seconds = measure()
            shutil.rmtree(folder)
            return seconds

        return once

    def ours(which: list[trees.Spec]) -> Callable[[], float]:
        def measure() -> float:
            with KeywordTree(str(folder / "tree")) as tree:
                begun = time.perf_counter()
                made = tree.BatchCreateKeywords(which)
                seconds = time.perf_counter() - begun
                assert len(made) == count
            return seconds

        return measure

    def sqlite(rows: Callable[[], Any]) -> Callable[[], float]:
        def measure() -> float:
            with closing(sqlite_peer.connect(folder / "db.sqlite", create=True)) as connection:
                begun = time.perf_counter()
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(sqlite_peer.INSERT_NODE, rows())
                connection.execute("COMMIT")
                seconds = time.perf_counter() - begun
                assert connection.execute("SELECT count(*) FROM nodes").fetchone() == (count,)
            return seconds

        return measure

    contenders = {
        "KeywordTree, a tree that brings its ids": fresh(ours(specs)),
        "KeywordTree, all beneath root, new ids": fresh(ours(own_ids)),
        "sqlite3, rows made on the way": fresh(sqlite(lambda: map(writers.keyword_row, specs))),
        "sqlite3, rows ready before": fresh(sqlite(lambda: rows_ready)),
    }
    results = common.interleaved(rounds, contenders)
    base = results["KeywordTree, a tree that brings its ids"]
    report.table(
        f"{count:,} keywords in one durable batch ({rounds} rounds)",
        ["writer", "s", "keywords/s", "KeywordTree is … times as fast"],
        [
            [
                name,
                f"{statistics.median(seconds):.3f}",
                f"{count / statistics.median(seconds):,.0f}",
                f"{common.median_ratio(seconds, base):.2f}",
            ]
            for name, seconds in results.items()
        ],
    )
    for name in ("sqlite3, rows made on the way", "sqlite3, rows ready before"):
        report.target(f"batch, speed beside {name}", common.median_ratio(results[name], base), 1.0)


# == size ====================================================================================


def size(report: common.Report, scratch: Path, options: Namespace) -> None:
    """The same operations in small and in large trees."""
    rounds, count = options.rounds or (5 if options.quick else 11), 100 if options.quick else 250
    sizes = ["1000", "100000", *([] if options.quick else ["1000000"])]
    tasks = ("keyword", "info", "link", "read", "sqlite")
    with ExitStack() as stack:
        workers = {}
        for tree_name in sizes:
            built = stores.build(options.stores or scratch, tree_name)
            copy = scratch / f"size-{tree_name}"
            shutil.copytree(built, copy)
            shutil.copy(built.with_suffix(".sqlite"), copy.with_suffix(".sqlite"))
            worker = common.Worker(MODULE, "size", store=str(copy), tree_name=tree_name)
            workers[tree_name] = stack.enter_context(worker)
        first = {tree_name: worker.ask(task="first", count=1) for tree_name, worker in workers.items()}

        def chunk_of(worker: common.Worker, task: str) -> Callable[[], Sample]:
            return lambda: Sample(*worker.ask(task=task, count=CHUNK)["sample"])

        prepared = {
            f"{tree_name} {task}": chunk_of(worker, task) for tree_name, worker in workers.items() for task in tasks
        }
        results = in_rounds(rounds, count, prepared)
    labels = {
        "keyword": "`CreateKeyword`",
        "info": "`CreateInfo`, one link",
        "link": "`LinkInfo`",
        "read": "`GetKeyword`",
        "sqlite": "sqlite3, a keyword",
    }
    rows = []
    for task, label in labels.items():
        for tree_name in sizes:
            of_size = results[f"{tree_name} {task}"]
            cells = [
                common.microseconds(statistics.median(getattr(each, figure) for each in of_size))
                for figure in ("p50_s", "mean_s", "p99_s", "processor_s")
            ]
            slowest = max(each.max_s for each in of_size)
            of_smallest = results[f"{sizes[0]} {task}"]
            ratios = [f"{_growth(figure, of_size, of_smallest):.2f}" for figure in ("p50_s", "processor_s")]
            opened = common.microseconds(first[tree_name][task]) if task in first[tree_name] else "–"
            rows.append([label, f"{int(tree_name):,}", *cells, common.microseconds(slowest), opened, *ratios])
    report.table(
        f"An operation's cost by size, microseconds ({rounds} rounds of {count}; ratios to 1,000)",
        [
            *("operation", "keywords", "p50", "mean", "p99", "processor", "slowest", "first after opening"),
            *("p50 ratio", "processor ratio"),
        ],
        rows,
    )
    for task in ("keyword", "info", "link"):
        pair = results[f"{sizes[-1]} {task}"], results[f"{sizes[0]} {task}"]
        for figure, name in (("p50_s", "p50"), ("processor_s", "processor")):
            text = f"{labels[task]}, {name}, at {int(sizes[-1]):,} / at 1,000"
            report.target(text, _growth(figure, *pair), 1.25, at_most=True)


def _serve_size(store: str, tree_name: str) -> Callable[..., dict[str, Any]]:
    folder = Path(store)
    ids = [spec["id"] for spec in trees.tree_named(tree_name)]
    records = writers.Records(seed=8)
    writer = writers.TreeWriter(folder)
    tree = writer.tree
    peer = writers.SqliteWriter(folder.with_suffix(".sqlite"), create=False)
    peer._run(("DROP INDEX nodes_by_parent", ()))
    infos: list[str] = []
    position = 0

    def link(spec: trees.Spec) -> None:
        tree.LinkInfo(infos[-1], spec["parent_id"])

    def read(spec: trees.Spec) -> None:
        assert tree.GetKeyword(spec["parent_id"]) is not None

    writing: dict[str, Callable[[trees.Spec], None]] = {
        "keyword": writer.keyword,
        "info": writer.info,
        "link": link,
        "read": read,
        "sqlite": peer.keyword,
    }

    def once(task: str, count: int) -> Sample:
        nonlocal position
        specs = []
        for _ in range(count):
            position = (position + 7_919) % len(ids)
            specs += _specs(records, "info" if task == "info" else "keyword", 1, ids[position])
        if task == "link":
            infos.append(tree.CreateInfo("linked to many").id)
            specs = list({spec["parent_id"]: spec for spec in specs}.values())
        return timed(writing[task], specs)

    def answer(task: str, count: int) -> dict[str, Any]:
        if task == "first":
            return {each: once(each, 1).times_s[0] for each in ("read", "keyword", "info")}
        return {"sample": list(once(task, count))}

    return answer


# == fan_out =================================================================================


def fan_out(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Under a parent with many children, and under one with few."""
    rounds, count, many = (
        options.rounds or (5 if options.quick else 15),
        100 if options.quick else 200,
        45_000,
    )
    records = writers.Records(seed=9)
    with _open_tree(scratch / "fan_out") as writer:
        tree = writer.tree
        tree.BatchCreateKeywords(_specs(records, "keyword", many))
        tree.BatchCreateInfos(_specs(records, "info", many))

        def crowded(kind: str) -> Callable[[], Sample]:
            return lambda: timed(writer.writing(kind), _specs(records, kind, CHUNK))

        def lonely(kind: str) -> Callable[[], Sample]:
            def once() -> Sample:
                home = tree.CreateKeyword("few", "root")
                tree.BatchCreateKeywords(_specs(records, "keyword", 5, home.id))
                tree.BatchCreateInfos(_specs(records, "info", 5, home.id))
                return timed(writer.writing(kind), _specs(records, kind, CHUNK, home.id))

            return once

        prepared = {}
        for kind in writers.KINDS:
            prepared[f"{kind} {many}"] = crowded(kind)
            prepared[f"{kind} 5"] = lonely(kind)
        results = in_rounds(rounds, count, prepared)
    rows = []
    for kind, label in (
        ("keyword", "`CreateKeyword`, children of its parent"),
        ("info", "`CreateInfo`, infos there"),
    ):
        for number in (5, many):
            of_number = results[f"{kind} {number}"]
            cells = [
                common.microseconds(statistics.median(getattr(each, figure) for each in of_number))
                for figure in ("p50_s", "mean_s", "processor_s")
            ]
            ratios = [f"{_growth(figure, of_number, results[f'{kind} 5']):.2f}" for figure in ("p50_s", "processor_s")]
            rows.append([label, f"{number:,}", *cells, *ratios])
    report.table(
        f"A crowded place and a quiet one, microseconds ({rounds} rounds of {count}; ratios to 5)",
        ["operation", "before", "p50", "mean", "processor", "p50 ratio", "processor ratio"],
        rows,
    )
    for kind in writers.KINDS:
        pair = results[f"{kind} {many}"], results[f"{kind} 5"]
        for figure, name in (("p50_s", "p50"), ("processor_s", "processor")):
            report.target(f"{kind}, {name}, at {many:,} / at 5", _growth(figure, *pair), 1.15, at_most=True)


# == processes ===============================================================================


def processes(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Several processes write, and everything acknowledged is counted."""
    runs, number, each = options.rounds or (2 if options.quick else 7), 4, 250
    kept: dict[str, list[int]] = {"tree": [], "sqlite": []}
    rates: dict[str, list[float]] = {"tree": [], "sqlite": []}
    for run in range(runs):
        for kind in kept:
            path = scratch / f"processes-{run}.{kind}"
            acknowledged, seconds = _by_processes(kind, path, number, each)
            kept[kind].append(_count_kept(kind, path, acknowledged))
            rates[kind].append(len(acknowledged) / seconds)
    rows = [
        [label, f"{min(kept[kind]):,} of {number * each:,}", f"{statistics.median(rates[kind]):,.0f}"]
        for kind, label in (("tree", "KeywordTree"), ("sqlite", "sqlite3 WAL FULL"))
    ]
    report.table(
        f"{number} processes, {each} acknowledged keywords each ({runs} runs)",
        ["store", "there afterwards, in the worst run", "writes/s together"],
        rows,
    )
    report.target("kept of 1,000 by KeywordTree, in the worst run", min(kept["tree"]), number * each)


def _by_processes(kind: str, path: Path, number: int, each: int) -> tuple[list[str], float]:
    """Let `number` processes write and return the acknowledged names and the seconds it took."""
    with ExitStack() as stack:
        workers = []
        for _ in range(number):
            workers.append(stack.enter_context(common.Worker(MODULE, "process", kind=kind, path=str(path))))
            workers[-1].ask(prefix="", count=0)
        begun = time.perf_counter()
        for index, worker in enumerate(workers):
            worker.send(prefix=f"{kind} {index}", count=each)
        names = [name for worker in workers for name in worker.receive()["names"]]
        return names, time.perf_counter() - begun


def _serve_process(kind: str, path: str) -> Callable[..., dict[str, Any]]:
    made: dict[str, Callable[[], writers.Writer]] = {
        "tree": lambda: writers.TreeWriter(Path(path)),
        "sqlite": lambda: writers.SqliteWriter(Path(path), create=not Path(path).exists()),
        "mcp": lambda: writers.McpMemoryWriter(Path(path)),
    }
    writer = made[kind]()
    records = writers.Records(seed=10)

    def answer(prefix: str, count: int) -> dict[str, Any]:
        names = []
        for index in range(count):
            spec = {**records.keyword("root"), "name": f"{prefix} {index}", "aliases": []}
            writer.keyword(spec)
            names.append(spec["name"])
        return {"names": names}

    return answer


def _count_kept(kind: str, path: Path, names: list[str]) -> int:
    """Open the store anew and return how many of `names` are there, each exactly once."""
    if kind == "tree":
        with KeywordTree(str(path)) as tree:
            assert not tree.recovery, tree.recovery
            return sum(len(tree.FindByName(name)) == 1 for name in names)
    if kind == "sqlite":
        with closing(sqlite_peer.connect(path)) as connection:
            there = {name for (name,) in connection.execute("SELECT name FROM nodes")}
            return len(there & set(names))
    there = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            there.add(json.loads(line)["name"])
        except (ValueError, KeyError):
            continue
    return len(there & set(names))


# == others ==================================================================================


def others(report: common.Report, scratch: Path, options: Namespace) -> None:
    """What the README compares with, in one run: sqlite3, and two other systems where they are installed."""
    rounds, count = options.rounds or (3 if options.quick else 5), 60 if options.quick else 200
    opened: dict[str, tuple[writers.Writer, Callable[[str], object]]] = {}
    with ExitStack() as stack:
        tree = stack.enter_context(_open_tree(scratch / "others"))
        opened["KeywordTree"] = (tree, lambda name: tree.tree.FindByName(name)[0])
        for label, make in (
            ("sqlite3 WAL FULL", lambda: writers.SqliteWriter(scratch / "others.sqlite")),
            ("langgraph SqliteStore", lambda: writers.LanggraphWriter(scratch / "langgraph.sqlite")),
            ("MCP memory server (no sync)", lambda: writers.McpMemoryWriter(scratch / "mcp.jsonl")),
        ):
            try:
                writer: Any = make()
            except common.Skip as reason:
                report.skipped(label, reason)
                continue
            stack.callback(writer.close)
            opened[label] = (writer, writer.find)
        results = common.interleaved(
            rounds,
            {label: _insert_and_find(*pair, count, seed) for seed, (label, pair) in enumerate(opened.items())},
        )
    rows = []
    for label, pairs in results.items():
        for_ours = results["KeywordTree"]
        cells = []
        for step in (0, 1):
            ours = [pair[step].p50_s for pair in for_ours]
            theirs = [pair[step].p50_s for pair in pairs]
            cells += [f"{statistics.median(theirs) * 1e3:.4f}", f"{common.median_ratio(theirs, ours):,.1f}"]
        rows.append([label, *cells])
    report.table(
        f"Other systems: one insert and one exact look-up at a time ({rounds} rounds of {count}, growing to "
        f"{rounds * count:,} items)",
        ["system", "insert p50 ms", "to KeywordTree", "look-up p50 ms", "to KeywordTree"],
        rows,
    )
    if any(label.startswith("MCP") for label in opened):
        _losses_of_two(report, scratch, 2 if options.quick else 3)


def _insert_and_find(
    writer: writers.Writer, find: Callable[[str], object], count: int, seed: int
) -> Callable[[], tuple[Round, Round]]:
    records = writers.Records(seed=100 + seed)
    names: set[str] = set()

    def look_up(spec: trees.Spec) -> None:
        find(spec["name"])

    def once() -> tuple[Round, Round]:
        specs: list[trees.Spec] = []
        while len(specs) < count:
            spec = records.keyword("parent")
            if spec["name"] not in names:
                names.add(spec["name"])
                specs.append(spec)
        inserted = timed(writer.keyword, specs)
        return Round.of([inserted]), Round.of([timed(look_up, specs)])

    return once


def _losses_of_two(report: common.Report, scratch: Path, runs: int) -> None:
    rows = []
    for kind, label in (
        ("tree", "KeywordTree"),
        ("sqlite", "sqlite3 WAL FULL"),
        ("mcp", "MCP memory server"),
    ):
        kept = []
        for run in range(runs):
            path = scratch / f"two-{run}.{kind}"
            acknowledged, _ = _by_processes(kind, path, 2, 100)
            kept.append(_count_kept(kind, path, acknowledged))
        rows.append([label, *kept])
    report.table(
        "2 processes, 100 acknowledged writes each: how many of 200 are there afterwards",
        ["store", *(f"run {run + 1}" for run in range(runs))],
        rows,
    )


# == Program =================================================================================

PARTS: dict[str, Callable[[common.Report, Path, Namespace], None]] = {
    "single": single,
    "threads": threads,
    "batch": batch,
    "size": size,
    "fan_out": fan_out,
    "processes": processes,
    "others": others,
}


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("Writing", options, scratch)
        for name, part in PARTS.items():
            if common.wanted(options, name):
                report.line(f"\n### {name}: append + fsync takes {probe_disk(scratch) * 1e6:,.0f} us just now")
                try:
                    part(report, scratch, options)
                except common.Skip as reason:
                    report.skipped(name, reason)


def main() -> None:
    """Run as a program, or as one of its own workers."""
    if common.serve({"size": _serve_size, "process": _serve_process}):
        return
    run(common.parser(__doc__).parse_args())


if __name__ == "__main__":
    main()
