"""How long does it take to open a large tree, and how much memory does it hold?

What: opening 43,118 real and 1,000,000 made keywords, each time in a fresh process: wall and processor time,
resident memory after opening and its peak; then a first read of every keyword (`GetKeyword`). The store was
built in two ways: by batches (few long log lines) and by single operations (a line per keyword). Beside it
sqlite3 reading the same rows into the same dataclasses and building the same name index (folded names and
aliases) and children lists, once plainly and once keeping equal strings only once; its records are objects
when it is done, so its second figure is zero.

Why: a tree is opened by every command and every agent that starts.

Wanted: not slower than sqlite3 and, at 1,000,000, at most 0.8 of its time and memory (goal 0.5).

How: warm page cache (every file is read once before), collector off in both, rounds interleaved. Time counts
from before the call to after it, imports excluded; memory counts the whole process.

Repeat: ``python -m benchmarks.bench_open`` (``--quick``: 43,118 keywords only).
"""

from __future__ import annotations

import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from benchmarks import common, sqlite_peer, stores

MODULE = "benchmarks.bench_open"


# == In the worker processes =================================================================


class _Meter:
    """Takes wall time, processor time and memory of one step."""

    def __enter__(self) -> _Meter:
        self._wall, self._processor = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.figures = {
            "wall": time.perf_counter() - self._wall,
            "cpu": time.process_time() - self._processor,
            "rss": common.rss_mb(),
            "peak": common.peak_rss_mb(),
        }


def _serve_tree(store: str) -> Callable[..., dict[str, Any]]:
    def answer() -> dict[str, Any]:
        with common.collector_off():
            with _Meter() as opening:
                tree = KeywordTree(store)
            with Path(store).with_suffix(".ids").open(encoding="utf-8") as lines, _Meter() as reading:
                count = sum(tree.GetKeyword(line[:-1]) is not None for line in lines) - 1
        tree.Close()
        return {"count": count, "open": opening.figures, "read": reading.figures}

    return answer


def _serve_sqlite(store: str, share: bool) -> Callable[..., dict[str, Any]]:
    def answer() -> dict[str, Any]:
        with common.collector_off(), _Meter() as opening:
            nodes, names = sqlite_peer.load(Path(store).with_suffix(".sqlite"), share=share)
        assert names
        none = {"wall": 0.0, "cpu": 0.0, "rss": opening.figures["rss"], "peak": opening.figures["peak"]}
        return {"count": len(nodes) - 1, "open": opening.figures, "read": none}

    return answer


# == In the parent ===========================================================================


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("Opening", options, scratch)
        folder = options.stores or scratch
        for tree_name, rounds in [("admin_cn4", 7), *([] if options.quick else [("1000000", 5)])]:
            try:
                built = stores.build(folder, tree_name)
                single = stores.build_by_single_operations(folder, tree_name)
            except common.Skip as reason:
                report.skipped(tree_name, reason)
                continue
            _measure(report, tree_name, built, single, options.rounds or rounds)


def _measure(report: common.Report, tree_name: str, built: Path, single: Path, rounds: int) -> None:
    contenders = {
        "KeywordTree, built by batches": _in_fresh_process("tree", store=str(built)),
        "KeywordTree, by single operations": _in_fresh_process("tree", store=str(single)),
        "sqlite3": _in_fresh_process("sqlite", store=str(built), share=False),
        "sqlite3, equal strings once": _in_fresh_process("sqlite", store=str(built), share=True),
    }
    common.interleaved(1, contenders)
    results = common.interleaved(rounds, contenders)
    assert len({answer["count"] for answers in results.values() for answer in answers}) == 1, "counts differ"

    stores_of_ours = {"KeywordTree, built by batches": built, "KeywordTree, by single operations": single}
    opening = {name: [answer["open"] for answer in answers] for name, answers in results.items()}
    with_read = {
        name: [_sum_of(answer["open"], answer["read"]) for answer in answers] for name, answers in results.items()
    }
    count = next(iter(results.values()))[0]["count"]
    columns = ["s", "processor s", "MiB at the end", "MiB peak", "time", "processor", "peak"]
    for caption, figures in (
        (f"Opening {count:,} keywords", opening),
        (f"Opening {count:,} keywords, and then a first read of every one", with_read),
    ):
        rows = []
        for name, of_name in figures.items():
            path = stores_of_ours.get(name, built.with_suffix(".sqlite"))
            rows.append([name, *_cells(of_name, figures["sqlite3"]), f"{stores.bytes_on_disk(path) / 2**20:,.0f}"])
        report.table(
            f"{caption} ({rounds} rounds; the last ratios are to sqlite3, less is better)",
            ["store", *columns, "MiB on disk"],
            rows,
        )
    limit = 0.8 if tree_name == "1000000" else 1.0
    for name in stores_of_ours:
        for text, figure, figures in (
            ("time to open", "wall", opening),
            ("peak memory of opening", "peak", opening),
            ("time with a first read of every keyword", "wall", with_read),
        ):
            ratio = common.median_ratio(_each(figures[name], figure), _each(figures["sqlite3"], figure))
            report.target(f"{text}, {name}", ratio, limit, at_most=True)


Figures = dict[str, float]


def _sum_of(opening: Figures, reading: Figures) -> Figures:
    """Return the figures of both steps together: times add up, memory is that of the later one."""
    return {
        "wall": opening["wall"] + reading["wall"],
        "cpu": opening["cpu"] + reading["cpu"],
        "rss": reading["rss"],
        "peak": reading["peak"],
    }


def _each(figures: list[Figures], figure: str) -> list[float]:
    return [each[figure] for each in figures]


def _cells(figures: list[Figures], baseline: list[Figures]) -> list[str]:
    times = [f"{statistics.median(_each(figures, figure)):.3f}" for figure in ("wall", "cpu")]
    memory = [f"{statistics.median(_each(figures, figure)):,.0f}" for figure in ("rss", "peak")]
    ratios = [
        f"{common.median_ratio(_each(figures, figure), _each(baseline, figure)):.2f}"
        for figure in ("wall", "cpu", "peak")
    ]
    return [*times, *memory, *ratios]


def _in_fresh_process(role: str, **arguments: object) -> Callable[[], dict[str, Any]]:
    def once() -> dict[str, Any]:
        with common.Worker(MODULE, role, **arguments) as worker:
            return worker.ask()

    return once


def main() -> None:
    """Run as a program, or as one of its own workers."""
    if common.serve({"tree": _serve_tree, "sqlite": _serve_sqlite}):
        return
    run(common.parser(__doc__).parse_args())


if __name__ == "__main__":
    main()
