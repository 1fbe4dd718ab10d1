"""How well, how quickly and at what price is a keyword found that has no exact name?

What: on real trees, the share of queries whose right answer comes first, among five and among fifty, for searching
and for placing new keywords; walks of choosers that know the answer (perfect, or wrong in 10 and 20 % of their
choices) through the views a model would be shown; the curve of abstaining against answering; what confirmed queries
bring; and the time and memory of index and view. Beside it sqlite3's FTS5 and, where installed, bm25s on the same
documents (own texts and the names above), each with words and pairs of Chinese characters as terms.

Why: a model can only choose what it is shown, and without a model the ranking is all there is.

How: held-out keywords are dropped from the tree before they are placed; trees searched by descriptions are built
without them; of each intent's questions one half is asked and the other confirmed. Intervals are Wilson's, 95 %.

Repeat: ``python -m benchmarks.bench_finding`` (``--quick``: 100 queries of each set; ``--limit``, ``--sizes``).
"""

from __future__ import annotations

import importlib.util
import json
import math
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent import keyword_tree
from Agent.keyword_tree import KeywordTree
from benchmarks import common, trees

SHOWN = 50
ROUNDS = 6
Spec = trees.Spec


class Case(NamedTuple):
    """One question with its right answers."""

    query: str
    description: str
    gold: frozenset[str]


class Task(NamedTuple):
    """A tree and what is asked of it."""

    name: str
    intent: str
    specs: list[Spec]
    cases: list[Case]


# == The one place that knows the module's private names ====================================


class Finder:
    """A tree opened for measuring."""

    def __init__(self, specs: Iterable[Spec]) -> None:
        """Build the tree of `specs` in memory where the system offers it."""
        shared = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
        self.tree = KeywordTree(self._folder.name, max_candidates=SHOWN)
        for batch in trees.in_batches(iter(specs), 50_000):
            self.tree.BatchCreateKeywords(batch)
        self._view: Any = None

    def index(self) -> None:
        """Build the ranking's index."""
        self.tree._EnsureRecall()

    def index_mib(self) -> float:
        """Return what the index holds beside the ids, which the tree has anyway."""
        recall: Any = self.tree._EnsureRecall()
        held = sum(sys.getsizeof(term) + sys.getsizeof(postings) for term, postings in recall._postings.items())
        tables = sum(map(sys.getsizeof, (recall._postings, recall._ids, recall._slot_of, recall._free)))
        return (held + tables) / 2**20

    def rank(self, case: Case, intent: str) -> list[tuple[float, str]]:
        """Return (score, id), best first."""
        return self.tree._RankNodes(_question(case), intent)

    def confidence(self, case: Case) -> float:
        """Return the best candidate's confidence, 0 where there is none."""
        ranked = self.rank(case, "search")
        if not ranked:
            return 0.0
        head = self.tree._committed.Head(ranked[0][1])
        ranking = self.tree._EnsureRecall().Rank(case.query)
        return keyword_tree._ConfidenceOf(ranked[0][0], [head.name, *head.aliases], ranking)

    def begin(self) -> tuple[list[str], list[str]]:
        """Return the targets and the members of the first view."""
        return [], self.tree._ChildrenToShow("root")

    def show(
        self, case: Case, intent: str, targets: list[str], members: list[str], is_first: bool
    ) -> tuple[list[str], int, dict[str, list[str]]]:
        """Return the ids shown, their characters, and group -> what it stands for."""
        self._view = self.tree._BuildView(_question(case), intent, targets, members, is_first=is_first)
        entries = self._view.entries
        size = sum(len(entry["name"]) + len(entry["path"]) for entry in entries)
        return [entry["id"] for entry in entries], size, self._view.groups

    def jump(self, id: str) -> tuple[list[str], list[str]]:
        """Return the targets and members of the next view."""
        targets, members, _ = self.tree._OpenTargets([id], self._view)
        return targets, members

    def path(self, id: str) -> list[str]:
        """Return the ids from the root to `id`."""
        return self.tree._committed.PathOf(id)

    def is_inner(self, id: str) -> bool:
        """Tell whether a keyword has children."""
        return bool(self.tree._committed.children.Get(id))

    def close(self) -> None:
        """Remove the tree."""
        self.tree.Close()
        self._folder.cleanup()


def index_of(specs: Sequence[Spec], examples: dict[str, list[str]]) -> Any:
    """Return a bare index of `specs`, with `examples` as further texts of the nodes."""
    recall = keyword_tree._LexicalRecall()
    for spec in specs:
        others = [spec["description"]] if spec["description"] else []
        recall.Add(spec["id"], ([spec["name"], *spec["aliases"]], others + examples.get(spec["id"], [])))
    return recall


def _question(case: Case) -> dict[str, str]:
    return {"query": case.query} | ({"description": case.description} if case.description else {})


# == Data ====================================================================================


def _read(name: str) -> list[dict[str, Any]]:
    path = common.data_folder() / name
    if not path.is_file():
        raise common.Skip(f"{name} is not there")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _specs(folder: str, *, dropped: Iterable[str] = (), described: bool = True) -> list[Spec]:
    """Return a tree's keywords, parents first; what hangs beneath a dropped one moves up."""
    rows = {row["id"]: row for row in _read(f"{folder}/tree.jsonl")}
    gone = set(dropped)
    made: dict[str, Spec] = {}
    for row in rows.values():
        chain = [row]
        while (parent := rows.get(chain[-1]["parent_id"] or "")) and parent["id"] not in made:
            chain.append(parent)
        for step in reversed(chain):
            above = step["parent_id"]
            while above in gone:
                above = rows[above]["parent_id"]
            if step["id"] not in gone and step["id"] not in made:
                made[step["id"]] = {
                    "id": step["id"],
                    "name": step["name"] or "?",
                    "aliases": [alias for alias in step["aliases"] if alias.strip()],
                    "parent_id": above if above in rows else "root",
                    "description": step["description"] if described else "",
                }
    return list(made.values())


def tasks(limit: int) -> Iterable[Callable[[], Task]]:
    """Yield functions that read a task each, or raise `Skip`."""

    def search(folder: str, kind: str | None, described: bool) -> Task:
        rows = [row for row in _read(f"{folder}/queries.jsonl") if row["gold_ids"]]
        cases = [
            Case(row["query"], "", frozenset(row["gold_ids"])) for row in rows if kind is None or row["kind"] == kind
        ]
        name = f"search {folder}" + (f", {kind}" if kind else "")
        return Task(name, "search", _specs(folder, described=described), _sample(cases, limit))

    def place(folder: str) -> Task:
        rows = _read(f"{folder}/holdout.jsonl")
        cases = [Case(row["name"], row["description"], frozenset(row["gold_parent_ids"])) for row in rows]
        specs = _specs(folder, dropped=[row["id"] for row in rows])
        return Task(f"place {folder}", "suggest_parent", specs, _sample(cases, limit))

    for folder in ("awesome_python", "awesome_python_cn", "wordnet_food"):
        yield lambda folder=folder: place(folder)  # type: ignore[misc]  # the default binds it now
    yield lambda: search("awesome_python", None, False)
    yield lambda: search("awesome_python_cn", None, False)
    yield lambda: search("wordnet_food", "definition_en", False)
    yield lambda: search("clinc150_dev", None, True)
    for kind in ("short_name", "full_path"):
        yield lambda kind=kind: search("admin_cn4", kind, True)  # type: ignore[misc]


def _sample(cases: list[Case], limit: int) -> list[Case]:
    return cases if len(cases) <= limit else random.Random(1).sample(cases, limit)


# == Peers ===================================================================================

_RUNS = re.compile(r"([\u3400-\u9fff]+)|([^\W_]+)")


def _tokens(text: str) -> list[str]:
    """Return words, and pairs of Chinese characters, as a careful user of a word index would."""
    found: list[str] = []
    for unspaced, word in _RUNS.findall(text.casefold()):
        found += [unspaced[i : i + 2] for i in range(max(1, len(unspaced) - 1))] if unspaced else [word]
    return found


def _documents(specs: Sequence[Spec]) -> list[list[str]]:
    above: dict[str, list[str]] = {"root": []}
    documents = []
    for spec in specs:
        own = _tokens(" ".join([spec["name"], *spec["aliases"]]))
        documents.append(own + _tokens(spec["description"]) + above[spec["parent_id"]])
        above[spec["id"]] = above[spec["parent_id"]] + own
    return documents


def _fts5(specs: Sequence[Spec]) -> Callable[[str], list[str]]:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE VIRTUAL TABLE d USING fts5(t)")
    rows = ((" ".join(document),) for document in _documents(specs))
    base.executemany("INSERT INTO d(t) VALUES (?)", rows)
    ids = [spec["id"] for spec in specs]

    def rank(query: str) -> list[str]:
        words = " OR ".join(f'"{token}"' for token in dict.fromkeys(_tokens(query)))
        statement = "SELECT rowid FROM d WHERE d MATCH ? ORDER BY bm25(d), rowid LIMIT 200"
        return [ids[row[0] - 1] for row in base.execute(statement, (words,))] if words else []

    return rank


def _bm25s(specs: Sequence[Spec]) -> Callable[[str], list[str]]:
    if importlib.util.find_spec("bm25s") is None:
        raise common.Skip("bm25s is not installed (pip install bm25s)")
    import bm25s  # type: ignore[import-not-found,unused-ignore]  # optional

    index = bm25s.BM25()
    index.index(_documents(specs), show_progress=False)
    ids = [spec["id"] for spec in specs]

    def rank(query: str) -> list[str]:
        count = min(200, len(ids))
        found, scores = index.retrieve([_tokens(query)], k=count, show_progress=False)
        return [ids[i] for i, score in zip(found[0], scores[0], strict=True) if score > 0]

    return rank


def _placed(ranked: list[str], parent_of: dict[str, str]) -> list[str]:
    """Return the parents of what was found, in that order, each followed by what it was found for."""
    return list(dict.fromkeys(id for hit in ranked for id in (parent_of[hit], hit) if id != "root"))


# == Parts ===================================================================================


def _interval(hits: int, count: int) -> str:
    """Return a share in percent with Wilson's interval."""
    share, z = hits / count, 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return f"{100 * share:.1f} ({100 * (middle - half):.0f}–{100 * (middle + half):.0f})"


def _quality(report: common.Report, task: Task, finder: Finder) -> None:
    parent_of = {spec["id"]: spec["parent_id"] for spec in task.specs}
    contenders: dict[str, Callable[[Case], list[str]]] = {
        "KeywordTree": lambda case: [id for _, id in finder.rank(case, task.intent)]
    }
    for name, make in {"FTS5": _fts5, "bm25s": _bm25s}.items():
        try:
            peer = make(task.specs)
        except (common.Skip, sqlite3.OperationalError) as reason:
            report.skipped(f"{task.name}, {name}", reason)
            continue

        def ask(case: Case, peer: Callable[[str], list[str]] = peer) -> list[str]:
            found = peer(f"{case.query} {case.description}")
            return _placed(found, parent_of) if task.intent == "suggest_parent" else found

        contenders[name] = ask
    rows = []
    for name, rank in contenders.items():
        hits, times = [0, 0, 0], []
        for case in task.cases:
            began = time.perf_counter()
            found = rank(case)
            times.append(time.perf_counter() - began)
            for index, depth in enumerate((1, 5, SHOWN)):
                hits[index] += not case.gold.isdisjoint(found[:depth])
        spent = [f"{1e3 * common.percentile(times, share):.1f}" for share in (0.5, 0.95)]
        rows.append([name, *(_interval(hit, len(task.cases)) for hit in hits), *spent])
    report.table(
        f"{task.name}: {len(task.cases)} cases, {len(task.specs):,} keywords (percent; milliseconds)",
        ["", "first", "among 5", f"among {SHOWN}", "p50", "p95"],
        rows,
    )


class Walk(NamedTuple):
    """How a chooser fared."""

    outcome: str
    rounds: int
    names: int
    characters: int
    at_once: bool


def _walk(finder: Finder, case: Case, intent: str, wrong: float, draw: random.Random) -> Walk:
    """Let a chooser walk: it matches what is right once shown, else jumps to the lowest shown above it."""
    ways = [finder.path(id) for id in sorted(case.gold)]
    targets, members = finder.begin()
    names = characters = 0
    at_once = False
    for number in range(1, ROUNDS + 1):
        shown, size, groups = finder.show(case, intent, targets, members, number == 1)
        names, characters = names + len(shown), characters + size
        right = [id for id in shown if id in case.gold]
        at_once = at_once or (number == 1 and bool(right))
        choices = {id: depth for way in ways for depth, id in enumerate(way) if id in shown and id not in targets}
        covering = [id for id, held in groups.items() if any(step in held for way in ways for step in way)]
        choice = max(choices, key=lambda id: choices[id]) if choices else next(iter(covering), None)
        is_match = bool(right)
        if right:
            choice = right[0]
        others = [id for id in shown if id != choice]
        if others and draw.random() < wrong:
            choice = draw.choice(others)
            is_match = choice not in groups and not finder.is_inner(choice)
        if choice is None:
            return Walk("missing", number, names, characters, at_once)
        if is_match:
            outcome = "right" if choice in case.gold else "wrong"
            return Walk(outcome, number, names, characters, at_once)
        targets, members = finder.jump(choice)
    return Walk("missing", ROUNDS, names, characters, at_once)


def _walks(task: Task, finder: Finder) -> list[list[object]]:
    rows: list[list[object]] = []
    for wrong in (0.0, 0.1, 0.2):
        draw = random.Random(7)
        walks = [_walk(finder, case, task.intent, wrong, draw) for case in task.cases]
        count = len(walks)
        outcomes = [sum(walk.outcome == outcome for walk in walks) for outcome in ("right", "missing", "wrong")]
        rounds = [walk.rounds for walk in walks]
        cells = [f"{100 * sum(walk.at_once for walk in walks) / count:.1f}"]
        cells += [f"{statistics.mean(rounds):.2f}", f"{common.percentile(rounds, 0.95)}"]
        cells += [f"{100 * outcome / count:.1f}" for outcome in outcomes]
        for figures in ([walk.names for walk in walks], [walk.characters for walk in walks]):
            cells.append(f"{statistics.mean(figures):,.0f} / {common.percentile(figures, 0.95):,}")
        rows.append([f"{task.name}, wrong {wrong:.0%}", *cells])
    return rows


def _abstaining(report: common.Report) -> None:
    rows = _read("clinc150_dev/queries.jsonl")
    finder = Finder(_specs("clinc150_dev"))
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
    for least in (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
        given = [answer for answer in known if answer[0] >= least]
        refused = sum(answer[0] < least for answer in strange)
        right = f"{100 * sum(answer[2] for answer in given) / len(given):.1f}" if given else "–"
        share = f"{100 * len(given) / len(known):.1f}"
        table.append([f"{least:.1f}", share, right, f"{100 * refused / len(strange):.1f}"])
    report.table(
        f"Abstaining below a confidence, clinc150_dev (percent); AUROC {above / len(known) / len(strange):.3f}",
        ["least confidence", "of what fits: answered", "of these right", "of what fits nothing: refused"],
        table,
    )


def _confirmed(report: common.Report) -> None:
    specs = _specs("clinc150_dev")
    by_node: dict[str, list[str]] = defaultdict(list)
    for row in _read("clinc150_dev/queries.jsonl"):
        if row["gold_ids"]:
            by_node[row["gold_ids"][0]].append(row["query"])
    for queries in by_node.values():
        random.Random(5).shuffle(queries)
    finder = Finder(specs)
    rows = []
    for count in (0, 1, 3, 10):
        finder.tree._recall = index_of(specs, {id: held[10 : 10 + count] for id, held in by_node.items()})
        hits = [0, 0, 0]
        for id, queries in by_node.items():
            for query in queries[:10]:
                found = [other for _, other in finder.rank(Case(query, "", frozenset([id])), "search")]
                for index, depth in enumerate((1, 5, SHOWN)):
                    hits[index] += id in found[:depth]
        asked = sum(len(queries[:10]) for queries in by_node.values())
        rows.append([count, *(_interval(hit, asked) for hit in hits)])
    finder.close()
    report.table("Confirmed queries, clinc150_dev (percent)", ["for each keyword", "first", "5", "50"], rows)


def _costs(report: common.Report, sizes: Sequence[str]) -> None:
    rows = []
    for size in sizes:
        try:
            specs = [{**spec, "parent_id": spec["parent_id"] or "root"} for spec in trees.tree_named(size)]
            finder = Finder(specs)
        except common.Skip as reason:
            report.skipped(size, reason)
            continue
        began = time.perf_counter()
        finder.index()
        built, memory = time.perf_counter() - began, finder.index_mib()
        times: dict[str, list[float]] = {"search": [], "suggest_parent": []}
        for spec in random.Random(3).sample(specs, min(200, len(specs))):
            case = Case(spec["name"], spec["description"], frozenset())
            for intent, spent in times.items():
                began = time.perf_counter()
                finder.show(case, intent, *finder.begin(), is_first=True)
                spent.append(time.perf_counter() - began)
        cells = [f"{1e3 * common.percentile(spent, q):.1f}" for spent in times.values() for q in (0.5, 0.95)]
        index, changes = finder.tree._EnsureRecall(), []
        for spec in random.Random(4).sample(specs, min(2_000, len(specs))):
            texts = ([spec["name"], *spec["aliases"]], [spec["description"]] if spec["description"] else [])
            began = time.perf_counter()
            index.Remove(spec["id"], texts)
            index.Add(spec["id"], texts)
            changes.append(time.perf_counter() - began)
        finder.close()
        rows.append([size, f"{built:.2f}", f"{memory:,.1f}", *cells, common.microseconds(statistics.median(changes))])
    columns = ["keywords", "index s", "MiB", "search p50", "p95", "place p50", "p95", "change µs"]
    report.table("First view (milliseconds), index, and a change of a name (out and in again)", columns, rows)


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    limit = options.limit or (100 if options.quick else 1_000)
    report = common.Report("Finding", options, Path(tempfile.gettempdir()))
    walks: list[list[object]] = []
    for read in tasks(limit):
        if not common.wanted(options, "quality") and not common.wanted(options, "walks"):
            break
        try:
            task = read()
        except common.Skip as reason:
            report.skipped("a set", reason)
            continue
        finder = Finder(task.specs)
        finder.index()
        if common.wanted(options, "quality"):
            _quality(report, task, finder)
        if common.wanted(options, "walks"):
            walks += _walks(task._replace(cases=task.cases[:400]), finder)
        finder.close()
    if walks:
        columns = [
            "chooser",
            "in first view",
            "rounds",
            "p95",
            "right",
            "none",
            "wrong",
            "names, p95",
            "characters, p95",
        ]
        report.table(f"Choosers that know the answer, {ROUNDS} rounds at most (percent)", columns, walks)
        perfect = [float(str(row[2])) for row in walks if str(row[0]).endswith(" 0%")]
        report.target("perfect chooser, rounds, mean over the sets", statistics.mean(perfect), 1.4, at_most=True)
    for name, part in {"abstaining": _abstaining, "confirmed": _confirmed}.items():
        if common.wanted(options, name):
            try:
                part(report)
            except common.Skip as reason:
                report.skipped(name, reason)
    if common.wanted(options, "costs"):
        _costs(report, options.sizes.split(","))


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=0, help="queries of a set at most (default: 1,000)")
    parser.add_argument("--sizes", default="1000,admin_cn4", help="trees for the costs: numbers, or admin_cn4")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
