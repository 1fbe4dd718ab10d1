"""How long does it take to open a large tree, and how much memory does it hold?

Opening 50,000 and 1,000,000 keywords, each time in a fresh process: time, and peak of resident memory; then a first
read of every keyword. Beside it sqlite3 reading the same rows into the same dataclasses and building the same index of
names and children lists; its records are objects when it is done. The page cache is warm, the collector is off in both.

Wanted: at 1,000,000 at most 0.8 of sqlite3's time and memory.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from benchmarks import common, sqlite_peer, trees


def _serve(role: str, store: str) -> Callable[..., dict[str, Any]]:
    def answer() -> dict[str, Any]:
        kept: list[Any] = []  # so that what was opened counts as memory
        with common.collector_off():
            if role == "tree":
                opening = common.timed(lambda: kept.append(KeywordTree(store)))
            else:
                opening = common.timed(lambda: kept.append(sqlite_peer.load(Path(store).with_suffix(".sqlite"))))
            peak = common.peak_rss_mb()
            reading = common.timed(lambda: [node.name for node in kept[0].Walk()]) if role == "tree" else 0.0
        return {"open": opening, "peak": peak, "read": opening + reading}

    return answer


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("Opening", options, scratch)
        for count, rounds in ((50_000, 5),) if options.quick else ((50_000, 7), (1_000_000, 5)):
            store = str(trees.build(options.stores or scratch, count))

            def once(role: str, store: str = store) -> dict[str, Any]:
                with common.Worker("benchmarks.bench_open", role, store=store) as worker:
                    return worker.ask()

            turns = {role: partial(once, role) for role in ("tree", "sqlite")}
            common.interleaved(1, turns)
            taken = common.interleaved(options.rounds or rounds, turns)
            figures = {r: {f: [each[f] for each in taken[r]] for f in ("open", "read", "peak")} for r in turns}
            rows = [
                [label, *(f"{statistics.median(values):,.3f}" for values in figures[role].values())]
                for role, label in (("tree", "KeywordTree"), ("sqlite", "sqlite3"))
            ]
            columns = ["store", "opening, s", "with a first read of each, s", "peak, MiB"]
            report.table(f"Opening {count:,} keywords", columns, rows)
            for figure, values in figures["tree"].items():
                ratio = common.median_ratio(values, figures["sqlite"][figure])
                report.target(
                    f"{columns[1 + list(figures['tree']).index(figure)]}, beside sqlite3", ratio, 0.8, at_most=True
                )


if __name__ == "__main__":
    common.main(__doc__, run, {role: partial(_serve, role) for role in ("tree", "sqlite")})
