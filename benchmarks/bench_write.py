"""What does a durable write cost: alone, by threads, in a batch, from several processes, in a large tree?

Parts (``--only`` takes their names):

- single: one `CreateKeyword` or `CreateInfo` at a time, beside a file held open with json.dumps + append + fsync of the
  same line, and sqlite3 (WAL, synchronous=FULL, the same record, an index of names). Wanted: 1.1 times the file, 1.2
  times sqlite3.
- threads: 1, 8 and 32 threads on one tree. Wanted: 2.5 times one thread.
- batch: 100,000 keywords in one call, beside sqlite3 with the same rows in one transaction. Wanted: faster.
- processes: four processes write 250 acknowledged keywords each; all are counted afterwards. Wanted: 1,000 of 1,000.
- size: an operation's cost in trees of 1,000 and 1,000,000 keywords, and under a parent with 45,000 children. Wanted:
  at most 1.25 times the small one.

Ratios are taken per round; a sync costs what the disk makes of it, so times differ from machine to machine.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from benchmarks import common, sqlite_peer, trees

Write = Callable[[trees.Spec], object]


def _create(tree: KeywordTree, kind: str) -> Write:
    if kind == "info":
        return lambda spec: tree.CreateInfo(spec["content"], spec["source"], spec["keyword_ids"])
    return lambda spec: tree.CreateKeyword(spec["name"], spec["parent_id"], spec["aliases"], spec["description"])


def _specs(draw: random.Random, kind: str, count: int, home: str = "home") -> list[trees.Spec]:
    made = trees.made_keyword if kind == "keyword" else trees.made_info
    return [made(draw, home) for _ in range(count)]


def _open(folder: Path) -> KeywordTree:
    tree = KeywordTree(str(folder))
    tree.BatchCreateKeywords([{"name": "home", "parent_id": "root", "id": "home"}])
    return tree


def _mean(write: Write, kind: str, draw: random.Random, count: int) -> float:
    specs = _specs(draw, kind, count)
    return common.timed(lambda: [write(spec) for spec in specs]) / count


def single(report: common.Report, scratch: Path, options: Namespace) -> None:
    """One durable write at a time."""
    rounds, count = options.rounds or (5 if options.quick else 15), 100 if options.quick else 400
    with ExitStack() as stack:
        tree = stack.enter_context(_open(scratch / "single"))
        peer = sqlite_peer.Writer(scratch / "single.sqlite")
        stack.callback(peer.connection.close)
        file = os.open(scratch / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stack.callback(os.close, file)
        for kind, call in (("keyword", "CreateKeyword"), ("info", "CreateInfo, one link")):
            log = scratch / "single" / "change_log.jsonl"
            _create(tree, kind)(_specs(random.Random(1), kind, 1)[0])
            line = [each for each in log.read_bytes().splitlines() if each.strip()][-1]

            def append(_: trees.Spec, record: Any = json.loads(line)) -> None:  # noqa: B008
                os.write(file, json.dumps(record, ensure_ascii=False).encode() + b"\n")
                os.fsync(file)

            writes = {
                "KeywordTree": _create(tree, kind),
                "a file, append + fsync": append,
                "sqlite3, WAL, FULL": getattr(peer, kind),
            }
            draw = random.Random(5)
            turns = {name: partial(_mean, write, kind, draw, count // 4) for name, write in writes.items()}
            common.interleaved(4, turns)
            taken = common.interleaved(4 * rounds, turns)
            ours = taken["KeywordTree"]
            rows = [
                [
                    name,
                    f"{1 / statistics.median(of):,.0f}",
                    *map(common.microseconds, (statistics.median(of), *(common.percentile(of, p) for p in (0.1, 0.9)))),
                    f"{common.median_ratio(of, ours):.2f}",
                ]
                for name, of in taken.items()
            ]
            columns = ["writer", "writes/s", "µs", "p10", "p90", "KeywordTree is … times as fast"]
            report.table(f"Durable `{call}`, one thread", columns, rows)
            for name, least in (("a file, append + fsync", 1.1), ("sqlite3, WAL, FULL", 1.2)):
                report.target(f"{kind}, speed beside {name}", common.median_ratio(taken[name], ours), least)


def threads(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Many threads, one tree."""
    rounds, count, draw = (
        options.rounds or (3 if options.quick else 9),
        480 if options.quick else 1_600,
        random.Random(6),
    )

    def once(tree: KeywordTree, number: int) -> float:
        specs, write, start = _specs(draw, "keyword", count), _create(tree, "keyword"), threading.Barrier(number + 1)

        def work(share: list[trees.Spec]) -> None:
            start.wait()
            for spec in share:
                write(spec)

        workers = [threading.Thread(target=work, args=(specs[first::number],)) for first in range(number)]
        for worker in workers:
            worker.start()
        start.wait()
        begun = time.perf_counter()
        for worker in workers:
            worker.join()
        return time.perf_counter() - begun

    with _open(scratch / "threads") as tree:
        turns = {number: partial(once, tree, number) for number in (1, 8, 32)}
        common.interleaved(1, turns)
        taken = common.interleaved(rounds, turns)
    rows = [[number, f"{count / statistics.median(of):,.0f}"] for number, of in taken.items()]
    report.table("Durable `CreateKeyword` by threads", ["threads", "writes/s"], rows)
    for number, least in ((8, 2.5), (32, 2.5)):
        report.target(f"{number} threads beside one", common.median_ratio(taken[1], taken[number]), least)


def batch(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Many keywords in one call."""
    rounds, count = options.rounds or (3 if options.quick else 7), 20_000 if options.quick else 100_000
    specs = list(trees.made_tree(count))
    with _open(scratch / "sample") as tree:
        sample = sqlite_peer.node_row(tree.BatchCreateKeywords(specs[:1])[0])

    def ours(folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.BatchCreateKeywords(specs)

    def theirs(folder: Path) -> None:
        folder.mkdir()
        with closing(sqlite_peer.connect(folder / "db.sqlite", create=True)) as connection:
            rows = (
                (
                    *(spec["id"], spec["name"], *sample[2:5], spec["parent_id"], spec["description"]),
                    *(*sample[7:13], None, sqlite_peer.fold(spec["name"])),
                )
                for spec in specs
            )
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(sqlite_peer.INSERT_NODE, rows)
            connection.execute("COMMIT")

    def fresh(work: Callable[[Path], None]) -> float:
        seconds = common.timed(lambda: work(scratch / "batch"))
        shutil.rmtree(scratch / "batch")
        return seconds

    taken = common.interleaved(rounds, {"KeywordTree": partial(fresh, ours), "sqlite3": partial(fresh, theirs)})
    rows = [
        [name, f"{statistics.median(of):.2f}", f"{count / statistics.median(of):,.0f}"] for name, of in taken.items()
    ]
    report.table(
        f"{count:,} keywords in one durable batch, opening and closing included", ["writer", "s", "keywords/s"], rows
    )
    report.target("batch, speed beside sqlite3", common.median_ratio(taken["sqlite3"], taken["KeywordTree"]), 1.0)


def processes(report: common.Report, scratch: Path, options: Namespace) -> None:
    """Several processes write, and everything acknowledged is counted."""
    kept = []
    for number in range(options.rounds or (2 if options.quick else 7)):
        folder = scratch / f"processes-{number}"
        with ExitStack() as stack:
            workers = [
                stack.enter_context(common.Worker("benchmarks.bench_write", "process", folder=str(folder)))
                for _ in range(4)
            ]
            for index, worker in enumerate(workers):
                worker.send(prefix=f"process {index}", count=250)
            names = [name for worker in workers for name in worker.receive()["names"]]
        with KeywordTree(str(folder)) as tree:
            kept.append(sum(len(tree.FindByName(name)) == 1 for name in names))
    report.target("kept of 1,000 by 4 processes, in the worst run", min(kept), 1_000)


def _serve_process(folder: str) -> Callable[..., dict[str, Any]]:
    tree = KeywordTree(folder)

    def answer(prefix: str, count: int) -> dict[str, Any]:
        return {"names": [tree.CreateKeyword(f"{prefix} {number}", "root").name for number in range(count)]}

    return answer


def size(report: common.Report, scratch: Path, options: Namespace) -> None:
    """The same operations in a small and in a large tree, and at a crowded parent."""
    rounds, count = options.rounds or (5 if options.quick else 11), 100
    sizes = (1_000, 50_000) if options.quick else (1_000, 1_000_000)

    def once(tree: KeywordTree, kind: str, homes: list[str], draw: random.Random) -> float:
        specs = [_specs(draw, kind, 1, draw.choice(homes))[0] for _ in range(count)]
        write, begun = _create(tree, kind), time.process_time()
        for spec in specs:
            write(spec)
        return (time.process_time() - begun) / count

    with ExitStack() as stack:
        turns: dict[tuple[int, str], Callable[[], float]] = {}
        for number in sizes:
            folder = scratch / f"size-{number}"
            shutil.copytree(trees.build(options.stores or scratch, number), folder)
            tree, homes = stack.enter_context(KeywordTree(str(folder))), list(trees.searched_names(number).values())
            turns |= {
                (number, kind): partial(once, tree, kind, homes, random.Random(8)) for kind in ("keyword", "info")
            }
        crowded = stack.enter_context(_open(scratch / "crowded"))
        crowded.BatchCreateKeywords(_specs(random.Random(9), "keyword", 45_000))
        crowded.BatchCreateInfos(_specs(random.Random(9), "info", 45_000))
        turns |= {(0, kind): partial(once, crowded, kind, ["home"], random.Random(8)) for kind in ("keyword", "info")}
        common.interleaved(1, turns)
        taken = common.interleaved(rounds, turns)
    labels = {number: f"a tree of {number:,}" for number in sizes} | {0: "45,000 at the same place"}
    rows = [
        [f"{kind}, {labels[number]}", common.microseconds(statistics.median(of))]
        for (number, kind), of in taken.items()
    ]
    report.table("Processor time of a write", ["write", "µs"], rows)
    for number, kind in taken:
        if number != sizes[0]:
            ratio = common.median_ratio(taken[number, kind], taken[sizes[0], kind])
            report.target(f"{kind}, {labels[number]}, beside {labels[sizes[0]]}", ratio, 1.25, at_most=True)


PARTS = {"single": single, "threads": threads, "batch": batch, "processes": processes, "size": size}


def run(options: Namespace) -> None:
    """Measure and report."""
    common.run_parts("Writing", PARTS, options)


if __name__ == "__main__":
    common.main(__doc__, run, {"process": _serve_process})
