"""How well, how quickly and at what price is a keyword found that has no exact name?

What: on real trees, the share of queries whose right answer comes first, among five and among fifty, for searching
and for placing new keywords; walks of choosers that know the answer (`bench_walks.py`); the curve of abstaining
against answering; what confirmed queries bring; and the time and memory of index and view. Beside it sqlite3's FTS5
and, where installed, bm25s on the same documents, each with words and pairs of Chinese characters as terms.

Why: a model can only choose what it is shown, and without a model the ranking is all there is.

How: see `finding_sets.py` for the sets and the intervals. Of each intent's questions one half is asked and the other
confirmed. A peer gets each document with and without the names above it, and two ways to place by what it found; of
these the one that puts most first counts, which favours it. Times are the processor's: what is timed waits for no
disk, and the machine has other work. A view is the quickest of three; the first one after opening, and the index's
memory, are measured in processes of their own.

Repeat: ``python -m benchmarks.bench_finding`` (``--quick``: 100 queries of each set; ``--limit``, ``--sizes``).
Parts for ``--only``: quality, walks, crowded, languages, abstaining, confirmed, costs.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordNode, KeywordTree
from benchmarks import bench_walks, common, trees
from benchmarks.finding_sets import (
    SHOWN,
    Aims,
    Case,
    Finder,
    Spec,
    Task,
    add_more,
    index_of,
    p95,
    read_rows,
    resampled,
    share,
    specs_of,
    tasks,
)

MODULE = "benchmarks.bench_finding"

FIRST = {
    "place awesome_python": (44, 55),
    "place awesome_python_cn": (50, 58),
    "place wordnet_food": (61, 68),
    "search awesome_python": (26, 40),
    "search awesome_python_cn": (15, 25),
    "search wordnet_food, definition_en": (29, 40),
    "search clinc150_dev": (48, 60),
    "search admin_cn4, short_name": (97, 99),
}
"""Right first, in percent: to be reached, hoped for."""

# == Peers ===================================================================================

Peer = Callable[[str], list[tuple[str, float]]]
"""Query -> ids with their scores, best first."""

_RUNS = re.compile(r"([\u3400-\u9fff]+)|([^\W_]+)")


def _tokens(text: str) -> list[str]:
    """Return words, and pairs of Chinese characters, as a careful user of a word index would."""
    found: list[str] = []
    for unspaced, word in _RUNS.findall(text.casefold()):
        found += [unspaced[i : i + 2] for i in range(max(1, len(unspaced) - 1))] if unspaced else [word]
    return found


def _documents(specs: Sequence[Spec], with_path: bool) -> list[list[str]]:
    above: dict[str, list[str]] = {"root": []}
    documents = []
    for spec in specs:
        own = _tokens(" ".join([spec["name"], *spec["aliases"]]))
        documents.append(own + _tokens(spec["description"]) + (above[spec["parent_id"]] if with_path else []))
        above[spec["id"]] = above[spec["parent_id"]] + own
    return documents


def _fts5(ids: list[str], documents: list[list[str]]) -> Peer:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE VIRTUAL TABLE d USING fts5(t)")
    base.executemany("INSERT INTO d(t) VALUES (?)", ((" ".join(document),) for document in documents))
    statement = "SELECT rowid, -bm25(d) FROM d WHERE d MATCH ? ORDER BY bm25(d), rowid LIMIT 200"

    def rank(query: str) -> list[tuple[str, float]]:
        words = " OR ".join(f'"{token}"' for token in dict.fromkeys(_tokens(query)))
        return [(ids[row - 1], score) for row, score in base.execute(statement, (words,))] if words else []

    return rank


def _bm25s(ids: list[str], documents: list[list[str]]) -> Peer:
    if importlib.util.find_spec("bm25s") is None:
        raise common.Skip("bm25s is not installed (pip install bm25s)")
    import bm25s  # type: ignore[import-not-found,import-untyped,unused-ignore]  # optional

    index = bm25s.BM25()
    index.index(documents, show_progress=False)

    def rank(query: str) -> list[tuple[str, float]]:
        found, scores = index.retrieve([_tokens(query)], k=min(200, len(ids)), show_progress=False)
        return [(ids[i], float(score)) for i, score in zip(found[0], scores[0], strict=True) if score > 0]

    return rank


def _next_to(parent_of: dict[str, str], ranked: list[tuple[str, float]]) -> list[str]:
    """Return the parents of what was found, in that order, each followed by what it was found for."""
    return list(dict.fromkeys(id for hit, _ in ranked for id in (parent_of[hit], hit) if id != "root"))


def _voted(parent_of: dict[str, str], ranked: list[tuple[str, float]]) -> list[str]:
    """Let what was found vote for its parent, five for one at most, and with 0.7 for itself."""
    scores: dict[str, float] = defaultdict(float)
    votes: dict[str, int] = defaultdict(int)
    for id, score in ranked:
        scores[id] += 0.7 * score
        votes[parent_of[id]] += 1
        if votes[parent_of[id]] <= 5:
            scores[parent_of[id]] += score
    scores.pop("root", None)
    return sorted(scores, key=lambda id: -scores[id])


def _plainly(ranked: list[tuple[str, float]]) -> list[str]:
    return [id for id, _ in ranked]


def _variants(task: Task, make: Callable[[list[str], list[list[str]]], Peer]) -> Iterator[tuple[str, Any]]:
    """Yield the ways in which a peer may answer a task, each with a name."""
    parent_of = {spec["id"]: spec["parent_id"] for spec in task.specs}
    ways: dict[str, Callable[[list[tuple[str, float]]], list[str]]] = {"": _plainly}
    if task.intent == "suggest_parent":
        ways = {", parents in turn": partial(_next_to, parent_of), ", votes": partial(_voted, parent_of)}
    for documents in ("own texts", "with path"):
        peer = make([spec["id"] for spec in task.specs], _documents(task.specs, documents == "with path"))
        for way, order in ways.items():
            yield documents + way, _asking(peer, order)


def _asking(peer: Peer, order: Callable[[list[tuple[str, float]]], list[str]]) -> Callable[[Case], list[str]]:
    return lambda case: order(peer(f"{case.query} {case.description}"))


# == Quality =================================================================================


def _answer(rank: Callable[[Case], list[str]], cases: Sequence[Case]) -> tuple[list[int], list[float]]:
    """Return how many right answers came first, among five and among fifty, and the seconds of each case."""
    hits, times = [0, 0, 0], []
    for case in cases:
        began = time.process_time()
        found = rank(case)
        times.append(time.process_time() - began)
        for index, depth in enumerate((1, 5, SHOWN)):
            hits[index] += not case.gold.isdisjoint(found[:depth])
    return hits, times


def _quality(report: common.Report, task: Task, finder: Finder, aims: Aims) -> list[str]:
    """Print how a task went, and return how often the right one came first: here, FTS5, bm25s."""
    count = len(task.cases)
    answers = {"KeywordTree": _answer(lambda case: [id for _, id in finder.rank(case, task.intent)], task.cases)}
    if task.name in FIRST:
        aims.add(f"{task.name}, right first, %", share(answers["KeywordTree"][0][0], count), *FIRST[task.name])
    for name, make in {"FTS5": _fts5, "bm25s": _bm25s}.items():
        try:
            tried = {variant: _answer(rank, task.cases) for variant, rank in _variants(task, make)}
        except (common.Skip, sqlite3.OperationalError) as reason:
            report.skipped(f"{task.name}, {name}", reason)
            continue
        best = max(tried, key=lambda variant: tried[variant][0])
        answers[f"{name} ({best})"] = tried[best]
    rows, first = [], {}
    for name, (hits, times) in answers.items():
        cells = [share(hit, count) for hit in hits]
        first[name.partition(" ")[0]] = cells[0]
        rows.append([name, *cells, *(f"{1e3 * common.percentile(times, part):.1f}" for part in (0.5, 0.95))])
    report.table(
        f"{task.name}: {count} cases, {len(task.specs):,} keywords (percent; milliseconds)",
        ["", "first", "among 5", f"among {SHOWN}", "p50", "p95"],
        rows,
    )
    return [f"{task.name}: {count} cases", *(first.get(name, "–") for name in ("KeywordTree", "FTS5", "bm25s"))]


# == Abstaining, confirmed queries ===========================================================


def _abstaining(report: common.Report) -> None:
    rows = read_rows("clinc150_dev/queries.jsonl")
    finder = Finder(specs_of("clinc150_dev"))
    answers = []
    for row in rows:
        case = Case(row["query"], "", frozenset(row["gold_ids"]))
        ranked = finder.rank(case, "search")
        answers.append((finder.confidence(case), bool(case.gold), bool(ranked) and ranked[0][1] in case.gold))
    finder.close()
    known = [answer for answer in answers if answer[1]]
    strange = [answer for answer in answers if not answer[1]]
    above = sum((k[0] > s[0]) + 0.5 * (k[0] == s[0]) for k in known for s in strange)
    table = []
    for least in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
        given = [answer for answer in known if answer[0] >= least]
        refused = sum(answer[0] < least for answer in strange)
        right = share(sum(answer[2] for answer in given), len(given)) if given else "–"
        table.append([f"{least:.1f}", share(len(given), len(known)), right, share(refused, len(strange))])
    report.table(
        f"Abstaining below a confidence, clinc150_dev (percent); AUROC {above / len(known) / len(strange):.3f}",
        ["least confidence", "of what fits: answered", "of these right", "of what fits nothing: refused"],
        table,
    )


def _confirmed(report: common.Report) -> None:
    specs = specs_of("clinc150_dev")
    by_node: dict[str, list[str]] = defaultdict(list)
    for row in read_rows("clinc150_dev/queries.jsonl"):
        if row["gold_ids"]:
            by_node[row["gold_ids"][0]].append(row["query"])
    for queries in by_node.values():
        random.Random(5).shuffle(queries)
    finder = Finder(specs)
    rows = []
    cases = [Case(query, "", frozenset([id])) for id, queries in by_node.items() for query in queries[:10]]
    for count in (0, 1, 3, 10):
        finder.use(index_of(specs, {id: held[10 : 10 + count] for id, held in by_node.items()}))
        hits, _ = _answer(lambda case: [id for _, id in finder.rank(case, "search")], cases)
        rows.append([count, *(share(hit, len(cases)) for hit in hits)])
    finder.close()
    report.table("Confirmed queries, clinc150_dev (percent)", ["for each keyword", "first", "5", "50"], rows)


# == Costs ===================================================================================


def _serve_tree(store: str, size: str) -> Callable[..., dict[str, Any]]:
    began = time.process_time()
    finder = Finder(folder=store)
    opened = time.process_time() - began
    cases = list(_asked_of(size))

    def first() -> dict[str, Any]:
        held, began = common.rss_mb(), time.process_time()
        finder.show(cases[0], "search", finder.begin(), is_first=True)
        spent = time.process_time() - began
        return {"opened": opened, "first": spent, "grown": common.rss_mb() - held, "mib": finder.index_mib()}

    def views() -> dict[str, Any]:
        return {intent: [_view_time(finder, case, intent) for case in cases] for intent in ("search", "suggest_parent")}

    def changes() -> dict[str, Any]:
        return _time_changes(finder, [next(iter(case.gold)) for case in cases])

    answers = {"first": first, "views": views, "changes": changes}
    return lambda task: answers[task]()


def _asked_of(size: str) -> Iterator[Case]:
    """Yield what is asked of a tree for the costs: names, and longer texts, of 200 keywords."""
    specs = list(trees.tree_named(size))
    names = {spec["id"]: spec["name"] for spec in specs}
    for index, spec in enumerate(random.Random(3).sample(specs, min(200, len(specs)))):
        longer = spec["description"] or " ".join([names.get(spec["parent_id"], ""), spec["name"]])
        yield Case(longer if index % 2 else spec["name"], spec["description"], frozenset([spec["id"]]))


def _view_time(finder: Finder, case: Case, intent: str) -> float:
    times = []
    for _ in range(3):
        began = time.process_time()
        finder.show(case, intent, finder.begin(), is_first=True)
        times.append(time.process_time() - began)
    return min(times)


def _time_changes(finder: Finder, ids: list[str]) -> dict[str, list[float]]:
    """Return the seconds of the index's own work when keywords come, are renamed, and move, alone or with a subtree.

    A write only notes what it changed: by that its taking-in is longer than where no index is. The next ranking does
    the rest, for one keyword, caches cold, or for all that changed meanwhile.
    """
    tree, times = finder.tree, defaultdict[str, list[float]](list)
    nodes = [node for node in map(tree.GetKeyword, ids) if node is not None]
    largest = max(tree.GetChildren("root"), key=lambda node: len(node.children))
    home = tree.CreateKeyword("home", "root")
    writes: dict[str, Callable[[KeywordNode, int], object]] = {
        "add": lambda node, number: tree.CreateKeyword(f"{node.name} {number}", "root", node.aliases, node.description),
        "rename": lambda node, number: _rename(tree, node.id, f"{node.name} {number}"),
        "move": lambda node, number: tree.MoveKeyword(node.id, "root" if number % 2 else home.id),
        "move of a subtree": lambda _, number: tree.MoveKeyword(largest.id, "root" if number % 2 else home.id),
    }
    for what, write in writes.items():
        times |= {what: [], f"{what}, each of 50": []}
        for number, node in enumerate(nodes):
            times[what].append(finder.index_time(partial(write, node, number)))
        for begin in range(0, len(nodes), 50):
            some = list(enumerate(nodes[begin : begin + 50], 1 + len(nodes)))
            spent = finder.index_time(*(partial(write, node, number) for number, node in some))
            times[f"{what}, each of 50"].append(spent / len(some))
    for number, node in enumerate(nodes):  # the last: the index is lost behind it
        renames = [partial(writes["rename"], node, 3 * len(nodes) + 2 * number + other) for other in (0, 1)]
        first, second = (finder.taking_in_time(rename, (number + turn) % 2) for turn, rename in enumerate(renames))
        times["the write"].append((second - first) * (-1) ** (number % 2))
    return times


def _rename(tree: KeywordTree, id: str, name: str) -> None:
    node = tree.GetKeyword(id)
    assert node is not None
    tree.UpdateKeyword(id, {"name": name}, node.version)


def _costs(report: common.Report, options: Namespace, aims: Aims) -> None:
    sizes = options.sizes.split(",")
    views, changes = [], []
    for size in sizes:
        with common.working_folder(options) as folder:
            try:
                with KeywordTree(str(folder / "store")) as tree:
                    for batch in trees.in_batches(trees.tree_named(size), 50_000):
                        tree.BatchCreateKeywords(batch)
            except common.Skip as reason:
                report.skipped(size, reason)
                continue
            row, change = _measure_size(folder / "store", size, aims, rounds=options.rounds or 5)
        views.append(row)
        changes.append(change)
    columns = ["keywords", "opening s", "first view s", "index MiB", "process grows MiB"]
    columns += ["search p50", "p95", "place p50", "p95"]
    report.table("First view after opening; later ones (milliseconds)", columns, views)
    changed = ["add", "rename", "move", "move of a subtree"]
    columns = ["keywords", *(column for what in changed for column in (what, f"{what}, each of 50"))]
    report.table(
        "What the index costs for a changed keyword: the next ranking; the write itself (microseconds, median)",
        [*columns, "the write"],
        changes,
    )


def _measure_size(store: Path, size: str, aims: Aims, rounds: int) -> tuple[list[str], list[str]]:
    """Return the two rows of a size: views and changes."""
    firsts = []
    for _ in range(rounds):
        with common.Worker(MODULE, "tree", store=str(store), size=size) as worker:
            firsts.append(worker.ask(task="first"))
    with common.Worker(MODULE, "tree", store=str(store), size=size) as worker:
        worker.ask(task="first")
        times = worker.ask(task="views")
        spent = worker.ask(task="changes")
    count = "43,118 (admin_cn4)" if size == "admin_cn4" else f"{int(size):,}"
    opened, first, grown = (
        resampled([[answer[key] for answer in firsts]], statistics.median, form)
        for key, form in (("opened", ",.2f"), ("first", ",.2f"), ("grown", ",.0f"))
    )
    held = f"{firsts[0]['mib']:,.0f}"
    in_ms = {intent: [[1e3 * time for time in held]] for intent, held in times.items()}
    slow = {intent: resampled(held, p95, ",.1f") for intent, held in in_ms.items()}
    cells = [
        cell for intent, held in in_ms.items() for cell in (resampled(held, statistics.median, ",.1f"), slow[intent])
    ]
    costs = {
        what: resampled([[1e6 * time for time in held]], statistics.median, ",.1f") for what, held in spent.items()
    }
    large = size != "admin_cn4"
    if not large or int(size) >= 600_000:
        slowest = max(slow.values(), key=lambda shown: float(shown.split()[0].replace(",", "")))
        aims.add(f"a view at {count}, p95, ms", slowest, *((50, 20) if large else (15, 5)), at_most=True)
        if large:
            aims.add(f"index at {count}, growth of the process, MiB", grown, 600, 200, at_most=True)
        else:
            aims.add(f"first view after opening {count}, s", first, 1, 0.3, at_most=True)
        for what, shown in costs.items():
            aims.add(f"index, {what} at {count}, µs", shown, 30, 30, at_most=True)
    return [count, opened, first, held, grown, *cells], [count, *costs.values()]


# == Program =================================================================================


def _ask_tasks(report: common.Report, options: Namespace, aims: Aims) -> None:
    walks, firsts = bench_walks.Walks(), []
    for read in tasks(options.limit or (100 if options.quick else 1_000), list(filter(None, options.more.split(",")))):
        try:
            task = read()
        except common.Skip as reason:
            report.skipped("a set", reason)
            continue
        finder = Finder(task.specs)
        finder.index()
        if common.wanted(options, "quality"):
            firsts.append(_quality(report, task, finder, aims))
        if common.wanted(options, "walks"):
            walks.walk(task._replace(cases=task.cases[:400]), finder)
        finder.close()
    if firsts:
        report.table("Right first, in percent", ["", "KeywordTree", "FTS5", "bm25s"], firsts)
    walks.print(report, aims)


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    report, aims = common.Report("Finding", options, Path(tempfile.gettempdir())), Aims()
    if common.wanted(options, "quality") or common.wanted(options, "walks"):
        _ask_tasks(report, options, aims)
    parts: dict[str, Callable[[], None]] = {
        "crowded": partial(bench_walks.crowded, report, aims, 5_000 if options.quick else 45_000),
        "languages": partial(bench_walks.languages, report),
        "abstaining": partial(_abstaining, report),
        "confirmed": partial(_confirmed, report),
        "costs": partial(_costs, report, options, aims),
    }
    for name, part in parts.items():
        if common.wanted(options, name):
            try:
                part()
            except common.Skip as reason:
                report.skipped(name, reason)
    aims.print(report)


def main() -> None:
    """Run as a program, or as one of its own workers."""
    if common.serve({"tree": _serve_tree}):
        return
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=0, help="queries of a set at most (default: 1,000)")
    parser.add_argument("--sizes", default="", help="trees for the costs: numbers, or admin_cn4")
    add_more(parser)
    options = parser.parse_args()
    options.sizes = options.sizes or ("1000,admin_cn4" if options.quick else "1000,admin_cn4,660000")
    run(options)


if __name__ == "__main__":
    main()
