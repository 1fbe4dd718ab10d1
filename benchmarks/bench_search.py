"""How long does an exact `Search` take, and does a larger tree make it slower?

What: `Search` of a unique exact name that gives the node, its path and five infos, in trees of 1,000, 43,118
(real) and 1,000,000 keywords; beside it sqlite3 building the equal `SearchResult` from indexed tables (the
quicker of two ways to read the path). "First" is the first search of each name after opening, "again" every
later one.

Why: an agent looks up names all the time; the answer must not depend on how much it already knows.

Wanted: p50 at 1,000,000 at most twice that at 1,000, and faster than sqlite3 everywhere.

How: every tree and every database has a process of its own; the parent asks them for one round of 1,000
searches at a time, in rotating order, and checks that all results are equal.

Repeat: ``python -m benchmarks.bench_search`` (``--quick``: up to 43,118 keywords).
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import Info, KeywordNode, KeywordTree, SearchResult
from benchmarks import common, sqlite_peer, stores

INFOS_EACH = 5
MODULE = "benchmarks.bench_search"

Search = Callable[[str], SearchResult]


# == In the worker processes =================================================================


def _plain_node(node: KeywordNode) -> list[object]:
    return [
        node.id,
        node.name,
        node.aliases,
        node.normalized,
        node.level,
        node.parent_id,
        node.description,
        node.metadata,
        node.version,
        float(node.created_at),
        float(node.updated_at),
        node.deleted,
        node.created_by,
        node.ordinal,
    ]


def _plain_info(info: Info) -> list[object]:
    return [
        info.id,
        info.content,
        info.source,
        info.metadata,
        info.version,
        float(info.created_at),
        float(info.updated_at),
        info.deleted,
        info.created_by,
    ]


def _plain(result: SearchResult) -> list[object]:
    """Return all that a search found, but for the children lists, as plain values."""
    return [
        result.status.value,
        None if result.node is None else _plain_node(result.node),
        [_plain_node(node) for node in result.path],
        [_plain_info(info) for info in result.infos],
        result.info_count,
        result.reason,
    ]


def _read_children(search: Search) -> Search:
    """Return `search` followed by reading the children of the node and of its ancestors."""

    def search_and_read(name: str) -> SearchResult:
        result = search(name)
        for node in result.path:
            len(node.children)
        return result

    return search_and_read


def _answer_with(searches: dict[str, Search], names: Sequence[str]) -> Callable[..., dict[str, Any]]:
    def answer(task: str, variant: str, count: int = 0, seed: int = 0) -> dict[str, Any]:
        search = searches[variant]
        if task == "check":
            digest = hashlib.sha256()
            for name in sorted(names):
                result = search(name)
                assert len(result.infos) == INFOS_EACH, result
                digest.update(json.dumps(_plain(result), ensure_ascii=False).encode())
            return {"digest": digest.hexdigest(), "levels": len(search(names[0]).path)}
        chosen = list(names) if task == "first" else random.Random(seed).choices(names, k=count)
        times = []
        for name in chosen:
            begun = time.perf_counter()
            search(name)
            times.append(time.perf_counter() - begun)
        return {"p50": statistics.median(times), "p95": common.percentile(times, 0.95), "max": max(times)}

    return answer


def _serve_tree(store: str, tree_name: str) -> Callable[..., dict[str, Any]]:
    tree = KeywordTree(store)
    searches: dict[str, Search] = {"plain": tree.Search, "children": _read_children(tree.Search)}
    return _answer_with(searches, list(stores.searched_names(tree_name)))


def _serve_sqlite(store: str, tree_name: str) -> Callable[..., dict[str, Any]]:
    path = Path(store).with_suffix(".sqlite")
    searches: dict[str, Search] = {
        "plain": sqlite_peer.SqliteSearch(path, path_by="loop").search,
        "recursion": sqlite_peer.SqliteSearch(path, path_by="recursion").search,
        "children": sqlite_peer.SqliteSearch(path, path_by="recursion", with_children=True).search,
    }
    return _answer_with(searches, list(stores.searched_names(tree_name)))


# == In the parent ===========================================================================


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch, ExitStack() as open_workers:
        report = common.Report("Search of an exact name", options, scratch)
        folder = options.stores or scratch
        workers: dict[tuple[str, str], common.Worker] = {}
        for tree_name in ["1000", "admin_cn4", *([] if options.quick else ["1000000"])]:
            try:
                store = stores.build(folder, tree_name, infos_each=INFOS_EACH)
            except common.Skip as reason:
                report.skipped(tree_name, reason)
                continue
            for role in ("tree", "sqlite"):
                worker = common.Worker(MODULE, role, store=str(store), tree_name=tree_name)
                workers[tree_name, role] = open_workers.enter_context(worker)
        _measure(report, workers, rounds=options.rounds or (7 if options.quick else 15))


def _measure(report: common.Report, workers: dict[tuple[str, str], common.Worker], rounds: int) -> None:
    sizes = list(dict.fromkeys(tree_name for tree_name, _ in workers))
    first = {key: worker.ask(task="first", variant="plain") for key, worker in workers.items()}
    levels = {}
    for size in sizes:
        ours = workers[size, "tree"].ask(task="check", variant="plain")
        for variant in ("plain", "recursion"):
            assert workers[size, "sqlite"].ask(task="check", variant=variant) == ours, f"results differ at {size}"
        levels[size] = ours["levels"] - 1

    contenders: dict[str, Callable[[], dict[str, Any]]] = {}
    for (size, role), worker in workers.items():
        for variant in ("plain", "children") if role == "tree" else ("plain", "recursion", "children"):
            contenders[f"{size} {role} {variant}"] = _round_of(worker, variant)
    results = common.interleaved(rounds, contenders)

    def values(size: str, contender: str, figure: str = "p50") -> list[float]:
        return [result[figure] for result in results[f"{size} {contender}"]]

    rows = []
    quickest = {
        size: min(("sqlite plain", "sqlite recursion"), key=lambda peer: statistics.median(values(size, peer)))
        for size in sizes
    }
    for size in sizes:
        shown = {
            "KeywordTree": ("tree plain", "tree"),
            f"sqlite3 ({'loop' if quickest[size].endswith('plain') else 'recursion'})": (
                quickest[size],
                "sqlite",
            ),
        }
        for label, (contender, role) in shown.items():
            again = [statistics.median(values(size, contender, figure)) for figure in ("p50", "p95")]
            begin = [first[size, role][figure] for figure in ("p50", "p95")]
            ratio = common.median_ratio(values(size, quickest[size]), values(size, contender))
            rows.append([_count(size), levels[size], label, *map(common.microseconds, again + begin), f"{ratio:.2f}"])
    report.table(
        "`Search` of an exact name: node, path, five infos (microseconds; speed: sqlite3 = 1)",
        ["keywords", "levels", "store", "p50 again", "p95 again", "p50 first", "p95 first", "speed"],
        rows,
    )
    rows = []
    for size in sizes:
        pair = (values(size, "tree children"), values(size, "sqlite children"))
        cells = [common.microseconds(statistics.median(times)) for times in pair]
        rows.append([_count(size), *cells, f"{common.median_ratio(pair[1], pair[0]):.2f}"])
    report.table(
        "The same, and then reading `children` of the node and of every ancestor (p50, microseconds)",
        ["keywords", "KeywordTree", "sqlite3 (recursion)", "speed"],
        rows,
    )
    largest = sizes[-1]
    growth = common.median_ratio(values(largest, "tree plain"), values(sizes[0], "tree plain"))
    if largest != sizes[0]:
        report.target(f"p50 at {_count(largest)} / p50 at {_count(sizes[0])}", growth, 2.0, at_most=True)
    for size in sizes:
        speed = common.median_ratio(values(size, quickest[size]), values(size, "tree plain"))
        report.target(f"speed beside sqlite3 at {_count(size)}", speed, 1.0)


def _round_of(worker: common.Worker, variant: str) -> Callable[[], dict[str, Any]]:
    seeds = iter(range(1_000_000))
    return lambda: worker.ask(task="round", variant=variant, count=1_000, seed=next(seeds))


def _count(tree_name: str) -> str:
    return "43,118 (admin_cn4)" if tree_name == "admin_cn4" else f"{int(tree_name):,}"


def main() -> None:
    """Run as a program, or as one of its own workers."""
    if common.serve({"tree": _serve_tree, "sqlite": _serve_sqlite}):
        return
    run(common.parser(__doc__).parse_args())


if __name__ == "__main__":
    main()
