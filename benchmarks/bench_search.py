"""How long does an exact `Search` take, and does a larger tree make it slower?

`Search` of a unique exact name that gives the node, its path and five infos, in trees of 1,000, 50,000 and 1,000,000
keywords, beside sqlite3 building the equal `SearchResult` from indexed tables. Every tree and every database has a
process of its own, which is asked for one round of 1,000 searches at a time. Results are compared, field by field,
before anything is timed; children lists are left out, since the library fills them in when they are read.

Wanted: p50 at 1,000,000 at most twice that at 1,000, and faster than sqlite3 everywhere.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree, SearchResult
from benchmarks import common, sqlite_peer, trees

INFOS_EACH = 5


def _plain(result: SearchResult) -> str:
    """Return all that a search found, but for the children lists."""
    records = [sorted(vars(record).items()) for record in (*result.path, *result.infos)]
    fields = [[field for field in record if field[0] != "children"] for record in records]
    return repr([result.status, fields, result.info_count, result.reason])


def _serve(role: str, store: str, count: int) -> Callable[..., dict[str, Any]]:
    names = list(trees.searched_names(count))
    search = KeywordTree(store).Search if role == "tree" else sqlite_peer.Search(Path(store).with_suffix(".sqlite"))

    def answer(seed: int = -1) -> dict[str, Any]:
        if seed < 0:
            found = [search(name) for name in names]
            assert all(len(result.infos) == INFOS_EACH for result in found)
            return {"digest": hashlib.sha256("".join(map(_plain, found)).encode()).hexdigest()}
        times = []
        for name in random.Random(seed).choices(names, k=1_000):
            begun = time.perf_counter()
            search(name)
            times.append(time.perf_counter() - begun)
        return {"p50": statistics.median(times), "p95": common.percentile(times, 0.95)}

    return answer


def run(options: Namespace) -> None:
    """Measure and report."""
    sizes = (1_000, 50_000) if options.quick else (1_000, 50_000, 1_000_000)
    with common.working_folder(options) as scratch, ExitStack() as stack:
        report = common.Report("Search of an exact name", options, scratch)
        workers: dict[tuple[int, str], common.Worker] = {}
        for count in sizes:
            store = str(trees.build(options.stores or scratch, count, INFOS_EACH))
            for role in ("tree", "sqlite"):
                worker = common.Worker("benchmarks.bench_search", role, store=store, count=count)
                workers[count, role] = stack.enter_context(worker)
            assert workers[count, "tree"].ask() == workers[count, "sqlite"].ask(), f"results differ at {count:,}"
        seeds = iter(range(1_000_000))
        turns = {key: lambda worker=worker: worker.ask(seed=next(seeds)) for key, worker in workers.items()}
        taken = common.interleaved(options.rounds or (7 if options.quick else 15), turns)
    p50 = {key: [each["p50"] for each in rounds] for key, rounds in taken.items()}
    speed = {count: common.median_ratio(p50[count, "sqlite"], p50[count, "tree"]) for count in sizes}
    rows = [
        [
            f"{count:,}",
            label,
            *(common.microseconds(statistics.median(e[f] for e in taken[count, role])) for f in ("p50", "p95")),
            of,
        ]
        for count in sizes
        for role, label, of in (("tree", "KeywordTree", f"{speed[count]:.2f}"), ("sqlite", "sqlite3", "1"))
    ]
    columns = ["keywords", "store", "p50", "p95", "speed"]
    report.table("`Search` of an exact name: node, path, five infos (microseconds; sqlite3 = 1)", columns, rows)
    growth = common.median_ratio(p50[sizes[-1], "tree"], p50[sizes[0], "tree"])
    report.target(f"p50 at {sizes[-1]:,} / p50 at {sizes[0]:,}", growth, 2.0, at_most=True)
    for count in sizes:
        report.target(f"speed beside sqlite3 at {count:,}", speed[count], 1.0)


if __name__ == "__main__":
    common.main(__doc__, run, {role: partial(_serve, role) for role in ("tree", "sqlite")})
