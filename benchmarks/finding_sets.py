"""What the programs about finding share: real trees and what is asked of them, a tree to ask, intervals, aims.

Held-out keywords are dropped from the tree before they are placed; trees searched by descriptions are built without
them. A figure stands with its 95 % interval: Wilson's for a share, the percentile bootstrap for anything else.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from Agent import keyword_tree
from Agent.keyword_tree import KeywordTree
from benchmarks import common, trees

SHOWN = 50
"""Names in a view."""
ROUNDS = 6
"""Rounds of a descent, at most."""
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

    def __init__(self, specs: Iterable[Spec] = (), folder: str = "") -> None:
        """Open the tree in `folder`, or build one of `specs`, in memory where the system offers it."""
        shared = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
        self.tree = KeywordTree(folder or self._folder.name, max_candidates=SHOWN, descend_max_rounds=ROUNDS)
        for batch in trees.in_batches(iter(specs), 50_000):
            self.tree.BatchCreateKeywords(batch)
        self._view: Any = None

    def index(self) -> None:
        """Build the ranking's index."""
        self._recall()

    def use(self, recall: Any) -> None:
        """Rank with another index from now on."""
        with self.tree._ranker.Asking():
            self.tree._ranker._recall = recall

    def _recall(self) -> Any:
        with self.tree._ranker.Asking() as recall:
            return recall

    def index_mib(self) -> float:
        """Return what the index holds beside the ids, which the tree has anyway."""
        recall = self._recall()
        lists = [*recall._postings.items(), *recall._postings.words_with.items()]
        held = sum(sys.getsizeof(term) + sys.getsizeof(postings) for term, postings in lists)
        own = (recall._postings, recall._postings.words_with, recall._ids, recall._slot_of, recall._free)
        tables = sum(map(sys.getsizeof, own))
        return (held + tables) / 2**20

    def index_time(self, *writes: Callable[[], object]) -> float:
        """Return the seconds that the index takes to follow writes, when it is next asked."""
        for write in writes:
            write()
        began = time.process_time()
        self._recall()
        return time.process_time() - began

    def taking_in_time(self, write: Callable[[], object], has_index: int) -> float:
        """Return the seconds in which a write's rows become visible, where an index has to be told, or none."""
        self.tree._ranker.noted, spent = set() if has_index else None, list[float]()

        engine: Any = self.tree._engine
        apply = engine.state.Apply

        def take_in(*arguments: Any) -> None:
            began = time.process_time()
            apply(*arguments)
            spent.append(time.process_time() - began)

        engine.state.Apply = take_in
        try:
            write()
        finally:
            del engine.state.Apply
        return sum(spent)

    def rank(self, case: Case, intent: str) -> list[tuple[float, str]]:
        """Return (score, id), best first."""
        with self.tree._ranker.Asking() as recall:
            ranking = recall.Rank(case.query, case.description)
            scores = self.tree._descent._Score(ranking, case.query, intent == "suggest_parent")
        if intent == "suggest_parent":
            return sorted(((score, id) for id, score in scores.items()), key=lambda fit: (-fit[0], fit[1]))
        fits = self.tree._descent.Fit(case.query, case.description, is_placing=False, count=0)
        return [(scores[id], id) for id in fits.ids]

    def confidence(self, case: Case) -> float:
        """Return the best candidate's confidence, 0 where there is none."""
        return next((confidence for _, confidence in self.tree.RankCandidates(case.query, 1)), 0.0)

    def begin(self) -> Any:
        """Return the position of the first view."""
        with self.tree._engine.See() as state:
            return keyword_tree._Position("root", [], self.tree._descent._ListChildren(state, "root"))

    def show(
        self, case: Case, intent: str, position: Any, is_first: bool
    ) -> tuple[list[str], int, dict[str, list[str]]]:
        """Return the ids shown, their characters, and group -> what it stands for."""
        ranked = self.tree._descent.Rank(_question(case), intent)
        with self.tree._engine.See() as state:
            self._view = self.tree._descent.BuildView(state, ranked, position, is_first=is_first)
        entries = self._view.entries
        size = sum(len(entry["name"]) + len(entry["path"]) for entry in entries)
        return [entry["id"] for entry in entries], size, self._view.groups

    def jump(self, id: str) -> Any:
        """Return the position of the next view."""
        with self.tree._engine.See() as state:
            return self.tree._descent._Open(state, [id], self._view)

    def path(self, id: str) -> list[str]:
        """Return the ids from the root to `id`."""
        return self.tree._engine.state.PathOf(id)

    def close(self) -> None:
        """Close the tree, and remove it if it was built here."""
        self.tree.Close()
        self._folder.cleanup()


def index_of(specs: Sequence[Spec], examples: dict[str, list[str]]) -> Any:
    """Return a bare index of `specs`, with `examples` as further texts of the nodes."""
    recall = keyword_tree._LexicalRecall()
    for spec in specs:
        others = [spec["description"]] if spec["description"] else []
        names = [spec["name"], *spec["aliases"]]
        recall.Add(spec["id"], keyword_tree.Texts(names, others + examples.get(spec["id"], [])))
    return recall


def _question(case: Case) -> dict[str, str]:
    return {"query": case.query} | ({"description": case.description} if case.description else {})


# == Data ====================================================================================


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file in the data folder.

    Raises:
        Skip: it is not there.
    """
    path = common.data_folder() / name
    if not path.is_file():
        raise common.Skip(f"{name} is not there")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def specs_of(folder: str, *, dropped: Iterable[str] = (), described: bool = True, alias_field: str = "") -> list[Spec]:
    """Return a tree's keywords, parents first; what hangs beneath a dropped one moves up.

    Args:
        folder: the set's folder in the data folder.
        dropped: ids to leave out.
        described: keep the descriptions.
        alias_field: a further field of the rows whose text or texts become aliases.
    """
    rows = {row["id"]: row for row in read_rows(f"{folder}/tree.jsonl")}
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
                more = step.get(alias_field) or []
                aliases = [*step["aliases"], *([more] if isinstance(more, str) else more)]
                made[step["id"]] = {
                    "id": step["id"],
                    "name": step["name"] or "?",
                    "aliases": list(dict.fromkeys(alias for alias in aliases if alias.strip())),
                    "parent_id": above if above in rows else "root",
                    "description": step["description"] if described else "",
                }
    return list(made.values())


def cases_of(folder: str, kind: str | None = None) -> list[Case]:
    """Return a set's queries that have an answer, of one kind or of all."""
    rows = [row for row in read_rows(f"{folder}/queries.jsonl") if row["gold_ids"]]
    return [Case(row["query"], "", frozenset(row["gold_ids"])) for row in rows if kind is None or row["kind"] == kind]


def tasks(limit: int, more: Sequence[str] = ()) -> Iterable[Callable[[], Task]]:
    """Yield functions that read a task each, or raise `Skip`.

    Args:
        limit: cases of a task at most.
        more: folders of further sets with `holdout.jsonl` and `queries.jsonl`, searched without descriptions.
    """

    def search(folder: str, kind: str | None, described: bool) -> Task:
        name = f"search {Path(folder).name}" + (f", {kind}" if kind else "")
        return Task(name, "search", specs_of(folder, described=described), sample(cases_of(folder, kind), limit))

    def place(folder: str) -> Task:
        rows = read_rows(f"{folder}/holdout.jsonl")
        cases = [Case(row["name"], row["description"], frozenset(row["gold_parent_ids"])) for row in rows]
        specs = specs_of(folder, dropped=[row["id"] for row in rows])
        return Task(f"place {Path(folder).name}", "suggest_parent", specs, sample(cases, limit))

    for folder in ("awesome_python", "awesome_python_cn", "wordnet_food"):
        yield lambda folder=folder: place(folder)  # type: ignore[misc]  # the default binds it now
    yield lambda: search("awesome_python", None, False)
    yield lambda: search("awesome_python_cn", None, False)
    yield lambda: search("wordnet_food", "definition_en", False)
    yield lambda: search("clinc150_dev", None, True)
    for kind in ("short_name", "full_path"):
        yield lambda kind=kind: search("admin_cn4", kind, True)  # type: ignore[misc]
    for folder in more:
        yield lambda folder=folder: place(folder)  # type: ignore[misc]
        yield lambda folder=folder: search(folder, None, False)  # type: ignore[misc]


def add_more(parser: ArgumentParser) -> None:
    """Add the option that brings further sets, none of which anything here was chosen on."""
    parser.add_argument("--more", default="", help="folders of further sets, comma-separated, in the form of the data")


def sample(cases: list[Case], limit: int) -> list[Case]:
    """Return at most `limit` of the cases, always the same ones."""
    return cases if len(cases) <= limit else random.Random(1).sample(cases, limit)


# == Intervals and aims ======================================================================


def share(hits: int, count: int) -> str:
    """Return a share in percent with Wilson's interval: "48.1 (40.5–55.8)"."""
    part, z = hits / count, 1.96
    middle = (part + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(part * (1 - part) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return f"{100 * part:.1f} ({100 * (middle - half):.1f}–{100 * (middle + half):.1f})"


def interval_of(
    samples: Sequence[Sequence[float]], figure: Callable[[Sequence[float]], float] = statistics.fmean, draws: int = 500
) -> tuple[float, float, float]:
    """Return the mean over `samples` of a figure, and the interval that a bootstrap within each gives it."""
    draw = random.Random(17)
    means = sorted(statistics.fmean(figure(draw.choices(held, k=len(held))) for held in samples) for _ in range(draws))
    return statistics.fmean(map(figure, samples)), means[int(0.025 * draws)], means[int(0.975 * draws)]


def resampled(
    samples: Sequence[Sequence[float]],
    figure: Callable[[Sequence[float]], float] = statistics.fmean,
    form: str = ",.2f",
) -> str:
    """Return what `interval_of` does as text: "1.24 (1.16–1.32)"."""
    middle, low, high = interval_of(samples, figure)
    return f"{middle:{form}} ({low:{form}}–{high:{form}})"


def p95(values: Sequence[float]) -> float:
    """Return the value below which 95 % of `values` lie."""
    return common.percentile(values, 0.95)


class Aims:
    """What was aimed at, beside what came out."""

    def __init__(self) -> None:
        """Begin without any row."""
        self._rows: list[list[str]] = []

    def add(self, what: str, shown: str, least: float, goal: float, *, at_most: bool = False) -> None:
        """Add a row; `shown` begins with the figure.

        Args:
            what: what was measured, with its unit.
            shown: the figure and its interval.
            least: what was to be reached.
            goal: what was hoped for.
            at_most: whether less is better.
        """
        value = float(shown.partition(" ")[0].replace(",", ""))
        reached = [value <= bound if at_most else value >= bound for bound in (least, goal)]
        verdict = "goal reached" if reached[1] else "kept" if reached[0] else "**MISSED**"
        bounds = [f"{'at most' if at_most else 'at least'} {least:g}", f"{goal:g}"]
        self._rows.append([what, shown, *bounds, verdict])

    def print(self, report: common.Report) -> None:
        """Print the table, if there is any row."""
        if self._rows:
            report.table(
                "Measured, beside what was aimed at", ["", "measured", "wanted", "goal", "verdict"], self._rows
            )
