"""Choosers that know the answer walk through the views that a model would be shown: how far does a view carry?

What: a perfect chooser takes what is right once it is shown, and else jumps to the lowest shown above it, or opens the
group that holds it. A noisy one takes something else in 10 or 20 % of its choices: any other entry of the view, matched
where the perfect chooser would match (a group is opened instead), else opened. Told are rounds, how each walk ended,
and the names and characters shown on the way: what a find costs with a model. Then a level of 45,000 children under
queries that share no word with any, and queries in another language than the tree's.

How: no view is ever repeated or taken back, as in `KeywordTree` itself; after six rounds a walk has found nothing.

Repeat: ``python -m benchmarks.bench_finding --only walks,crowded,languages``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks import common, trees
from benchmarks.finding_sets import ROUNDS, Aims, Case, Finder, Spec, Task, cases_of, p95, resampled, share, specs_of

VIEW = {"place awesome_python": (84, 95), "place awesome_python_cn": (91, 95), "place wordnet_food": (96, 95)}
"""The right parent in the first view, in percent: to be reached, hoped for."""

COLUMNS = ["in first view", "rounds", "p95", "right", "right or clean", "names", "p95", "characters", "p95"]


class Walk(NamedTuple):
    """How a chooser fared."""

    outcome: str
    rounds: int
    names: int
    characters: int
    at_once: bool


def walk(finder: Finder, case: Case, intent: str, wrong: float, draw: random.Random) -> Walk:
    """Let a chooser walk that is wrong in a share of its choices."""
    ways = [finder.path(id) for id in sorted(case.gold)]
    position = finder.begin()
    names = characters = 0
    at_once = False
    for number in range(1, ROUNDS + 1):
        shown, size, groups = finder.show(case, intent, position, number == 1)
        opened = position.targets
        names, characters = names + len(shown), characters + size
        right = [id for id in shown if id in case.gold]
        at_once = at_once or (number == 1 and bool(right))
        above = {id: depth for way in ways for depth, id in enumerate(way) if id in shown and id not in opened}
        covering = [id for id, held in groups.items() if any(step in held for way in ways for step in way)]
        choice = right[0] if right else max(above, key=lambda id: above[id]) if above else next(iter(covering), None)
        others = [id for id in shown if id != choice]
        if others and draw.random() < wrong:
            choice = draw.choice(others)
        if choice is None:
            return Walk("clean", number, names, characters, at_once)
        if right and choice not in groups:
            outcome = "right" if choice in case.gold else "wrong"
            return Walk(outcome, number, names, characters, at_once)
        position = finder.jump(choice)
    return Walk("clean", ROUNDS, names, characters, at_once)


def _row(walks: Sequence[Walk]) -> list[str]:
    """Return the cells of `COLUMNS`."""
    outcomes = [walk.outcome for walk in walks]
    rounds = [walk.rounds for walk in walks]
    cells = [share(sum(walk.at_once for walk in walks), len(walks)), resampled([rounds]), str(p95(rounds))]
    cells += [share(outcomes.count("right"), len(walks)), share(len(walks) - outcomes.count("wrong"), len(walks))]
    for spent in ([walk.names for walk in walks], [walk.characters for walk in walks]):
        cells += [resampled([spent], form=",.0f"), f"{p95(spent):,}"]
    return cells


class Walks:
    """The walks of all sets."""

    def __init__(self) -> None:
        """Begin without any."""
        self._held: dict[tuple[str, float], list[Walk]] = {}

    def walk(self, task: Task, finder: Finder) -> None:
        """Walk to every answer of a task, without mistakes and with."""
        for wrong in (0.0, 0.1, 0.2):
            draw = random.Random(f"{task.name}, {wrong}")  # or every set would meet the same mistakes
            self._held[task.name, wrong] = [walk(finder, case, task.intent, wrong, draw) for case in task.cases]

    def print(self, report: common.Report, aims: Aims) -> None:
        """Print the tables, if there were walks."""
        if not self._held:
            return
        perfect = {name: walks for (name, wrong), walks in self._held.items() if not wrong}
        for name, bounds in VIEW.items():
            walks = perfect.get(name, [])
            if walks:
                shown = share(sum(walk.at_once for walk in walks), len(walks))
                aims.add(f"{name}, right parent in the first view, %", shown, *bounds)
        ours = {"awesome_python", "awesome_python_cn", "wordnet_food", "clinc150_dev"}  # places are found by name
        rounds: dict[bool, list[list[int]]] = {True: [], False: []}
        for name, walks in perfect.items():
            folder = name.partition(" ")[2].partition(",")[0]
            if folder != "admin_cn4":
                rounds[folder in ours].append([walk.rounds for walk in walks])
        for is_ours, held in rounds.items():
            if held:
                what = f"perfect chooser, rounds, mean of {len(held)} {'sets' if is_ours else 'further sets'}"
                aims.add(what, resampled(held), 1.4, 1.15, at_most=True)
        worst = min(perfect.values(), key=lambda walks: sum(walk.outcome == "right" for walk in walks) / len(walks))
        shown = share(sum(walk.outcome == "right" for walk in worst), len(worst))
        aims.add(f"perfect chooser, found within {ROUNDS} rounds, worst set, %", shown, 99.5, 100)
        for wrong in (0.0, 0.1, 0.2):
            who = f"A chooser that is wrong in {wrong:.0%}" if wrong else "A perfect chooser"
            rows = [[name, *_row(walks)] for (name, often), walks in self._held.items() if often == wrong]
            report.table(f"{who}, {ROUNDS} rounds at most (percent; mean and p95)", ["", *COLUMNS], rows)


# == A crowded level =========================================================================


def crowded(report: common.Report, aims: Aims, count: int) -> None:
    """Walk to children of one crowded parent, with names and with texts that share no word with anything."""
    specs = list(_crowded_tree(count))
    finder = Finder(specs)
    chosen = random.Random(9).sample(specs[2:], 400)
    asked = {
        "by their names": [Case(spec["name"], "", frozenset([spec["id"]])) for spec in chosen],
        "by words that nothing has": [Case("ψφχ ωξζ", "", frozenset([spec["id"]])) for spec in chosen],
    }
    rows = []
    for how, cases in asked.items():
        walks = [walk(finder, case, "search", 0.0, random.Random(7)) for case in cases]
        rows.append([how, *_row(walks)])
        shown = share(sum(walk.outcome == "right" for walk in walks), len(walks))
        aims.add(f"found among {count:,} children {how}, %", shown, 99.5, 100)
    finder.close()
    report.table(f"A level of {count:,} children, a perfect chooser (percent; mean and p95)", ["", *COLUMNS], rows)


def _crowded_tree(count: int) -> Iterable[Spec]:
    draw = random.Random(8)
    for name in ("crowd", "quiet"):
        yield {"id": name, "name": name, "parent_id": "root", "aliases": [], "description": ""}
    for number in range(count):
        yield {**trees.made_spec(draw, "crowd"), "id": f"child {number}"}


# == Another language ========================================================================


def languages(report: common.Report) -> None:
    """Ask an English tree in Chinese, and a Chinese one in pinyin, with and without these words as aliases."""
    rows, walked = [], []
    for folder, kind, field in (("wordnet_food", "word_zh", "zh"), ("admin_cn4", "pinyin", "pinyin")):
        cases = cases_of(folder, kind)
        finder = Finder(specs_of(folder, alias_field=field))
        found = [finder.tree.Search(case.query, False) for case in cases]
        one = sum(
            result.node is not None and result.node.id in case.gold for result, case in zip(found, cases, strict=True)
        )
        several = sum(
            not case.gold.isdisjoint(node.id for node in result.candidates)
            for result, case in zip(found, cases, strict=True)
        )
        first = sum(finder.rank(case, "search")[0][1] in case.gold for case in cases)
        finder.close()
        cells = [share(hits, len(cases)) for hits in (one + several, one, several, first)]
        rows.append([f"{folder}, {kind}: {len(cases)} queries", *cells])
        finder = Finder(specs_of(folder))
        walks = [walk(finder, case, "search", 0.0, random.Random(7)) for case in cases[:400]]
        walked.append([f"{folder}, {kind}: {len(walks)} queries", *_row(walks)])
        finder.close()
    report.table(
        "In another language, its words as aliases: found at once, without a model (percent)",
        ["", "found at once", "one hit, right", "several, right among them", "ranked first"],
        rows,
    )
    report.table("The same, these words withheld: a perfect chooser (percent; mean and p95)", ["", *COLUMNS], walked)
