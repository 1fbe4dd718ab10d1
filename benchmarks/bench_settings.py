"""Do the ranking's numbers carry over to trees that they were not chosen on?

What: every number in the room "Ranking" is varied alone on all sets, and held against doing without it. Then all of
them are chosen together on all trees but one, and the figures are those of the tree left out: the honest ones, since
nothing was chosen on it. Beside it the module as it stands, whose numbers were chosen with all these trees in view.

Why: a number that helps on one tree alone was fitted to it, and is dead weight everywhere else.

How: a number is changed in the source of that room, which is then executed beside the module; what does not stand there
exactly once stops the program, so that it cannot measure what is no longer true. What is chosen by is the mean
reciprocal rank of the right answer (of the first 200), less coarse than whether it comes first. The search goes from
number to number, twice, each time to the best of its values, and begins without any of them.

Repeat: ``python -m benchmarks.bench_settings`` (``--quick``: 60 cases of a set; ``--limit``; ``--only alone,chosen``).
"""

from __future__ import annotations
import __future__

import inspect
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent import keyword_tree
from benchmarks import common
from benchmarks.finding_sets import Finder, Task, add_more, interval_of, share, tasks


class Number(NamedTuple):
    """A number of the ranking."""

    what: str
    now: float
    without: float
    """The value with which it is as if it were not there, or the plainest there is."""
    values: tuple[float, ...]
    old: str
    """What it stands in, in the source of the room; or the name that it has there."""
    new: str = ""
    """The same with `{0}` in its place."""
    intent: str = ""
    """The only intent that it concerns; empty: both."""


SEARCH, PLACE = "search", "suggest_parent"
NUMBERS = (
    Number("weight of a stop word", 0.1, 1, (0, 0.1, 0.2, 0.4, 1), "_STOP_WEIGHT"),
    Number("weight of a character", 0.15, 0, (0, 0.15, 0.3, 0.6), "_CHARACTER_WEIGHT"),
    Number("weight of a word's trigrams", 1.2, 0, (0, 0.6, 1.2, 2.4), "_TRIGRAMS_WEIGHT"),
    Number(
        "words until one counts half", 20, 1e9, (5, 10, 20, 40, 1e9), "weight * 20 / (20 +", "weight * {0} / ({0} +"
    ),
    Number("k₁: how slowly tf fills", 1.2, 0.01, (0.01, 0.6, 1.2, 2.5), "_SATURATION"),
    Number("what the length of another text counts", 0.75, 1, (0.5, 0.75, 1), "_OTHER_LENGTH"),
    Number("weight of a name", 1.5, 1, (1, 1.5, 2, 3), "_NAME_TF"),
    Number("weight of another text", 0.75, 1, (0.5, 0.75, 1, 1.5), "_OTHER_TF"),
    Number("share heard from above", 0.8, 0, (0, 0.5, 0.65, 0.8, 0.9), "_FROM_ABOVE"),
    Number("discount of a theme", 0.28, 0, (0, 0.15, 0.28, 0.4, 0.6), "_THEME_DISCOUNT", "", SEARCH),
    Number("themes opened", 8, 0, (0, 4, 8, 16), "_EXPANDED", "", SEARCH),
    Number("nodes scored in full", 200, 50, (50, 100, 200, 400), "_RANKED"),
    Number("a parent's own names", 2, 0, (0, 1, 2, 3), "+= 2 * heard", "+= {0} * heard", PLACE),
    Number("votes: one after another", 2, 1, (1, 1.5, 2, 4), "votes[parent_id] /= 2", "votes[parent_id] /= {0}", PLACE),
    Number("names that it ends in", 0.5, 0, (0, 0.25, 0.5, 1), "0.5 * max(", "{0} * max(", PLACE),
)

Setting = tuple[float, ...]
"""A value for each of `NUMBERS`."""

NOW: Setting = tuple(number.now for number in NUMBERS)
PLAIN: Setting = tuple(number.without for number in NUMBERS)


def room_with(setting: Setting) -> dict[str, Any]:
    """Return the names of the room "Ranking" as they are with other numbers.

    Raises:
        LookupError: a number does not stand where it stood.
    """
    source = inspect.getsource(keyword_tree)
    source = source[source.index("\n# == Ranking =") : source.index("\n# == Descent =")]
    names, attributes = dict(vars(keyword_tree)), {}
    for number, value in zip(NUMBERS, setting, strict=True):
        if number.new and source.count(number.old) == 1:
            source = source.replace(number.old, number.new.format(value))
        elif not number.new and number.old in names:
            attributes[number.old] = type(names[number.old])(value)
        else:
            raise LookupError(f"{number.old!r} no longer stands once in the room")
    exec(compile(source, "Ranking", "exec", flags=__future__.annotations.compiler_flag), names)
    names.update(attributes)
    return names


class Sets:
    """All sets, each ranked at most once with a setting."""

    def __init__(self, limit: int, more: Sequence[str]) -> None:
        """Read what is there, at most `limit` cases of each; paths, which any ranking finds, are left out."""
        self.tasks: list[Task] = []
        self._finders: list[Finder] = []
        self._known: dict[tuple[int, Setting], list[float]] = {}
        for read in tasks(limit, more):
            task = read()
            if not task.name.endswith("full_path"):
                self.tasks.append(task)
                self._finders.append(Finder(task.specs))

    def close(self) -> None:
        """Remove the trees."""
        for finder in self._finders:
            finder.close()

    def ranks(self, which: int, setting: Setting) -> list[float]:
        """Return of each case one through the place of its right answer, 0 where it is not among 200."""
        intent = self.tasks[which].intent
        concerned = [not number.intent or number.intent == intent for number in NUMBERS]
        setting = tuple(value if is_it else now for value, now, is_it in zip(setting, NOW, concerned, strict=True))
        if (which, setting) not in self._known:
            self._known[which, setting] = self._rank(which, room_with(setting))
        return self._known[which, setting]

    def _rank(self, which: int, room: Mapping[str, Any]) -> list[float]:
        task, tree = self.tasks[which], self._finders[which].tree
        recall = room["_LexicalRecall"]()
        for id, row in tree._engine.state.nodes.items():
            if id != "root":
                recall.Add(id, keyword_tree._TextsOf(row))
        found = []
        for case in task.cases:
            ranking = recall.Rank(case.query, case.description)
            if task.intent == SEARCH:
                fits = room["_FitQuery"](ranking, tree._engine.See)
            else:
                fits = room["_FitParents"](ranking, tree._engine.See, case.query)
            best = sorted((-score, id) for id, score in fits.items() if id != "root")[:200]
            found.append(next((1 / place for place, (_, id) in enumerate(best, 1) if id in case.gold), 0.0))
        return found

    def tree_of(self, which: int) -> str:
        """Return the name of a task's tree: what is searched in it and placed in it is left out together."""
        return self.tasks[which].name.partition(" ")[2].partition(",")[0]

    def mean(self, setting: Setting, but: str) -> float:
        """Return the mean of the mean reciprocal ranks over all sets that are not of one tree."""
        others = [which for which in range(len(self.tasks)) if self.tree_of(which) != but]
        return fmean(fmean(self.ranks(which, setting)) for which in others)


def _replaced(setting: Setting, index: int, value: float) -> Setting:
    return (*setting[:index], value, *setting[index + 1 :])


def _alone(report: common.Report, sets: Sets) -> None:
    """Print what each number brings on each set, and which value the other sets would have chosen."""
    rows, chosen_rows = [], []
    for index, number in enumerate(NUMBERS):
        cells, helps, hurts = [], 0, 0
        for which, task in enumerate(sets.tasks):
            if number.intent and number.intent != task.intent:
                cells.append("–")
                continue
            without = sets.ranks(which, _replaced(NOW, index, number.without))
            gains = [100 * (now - then) for now, then in zip(sets.ranks(which, NOW), without, strict=True)]
            middle, low, high = interval_of([gains])
            helps, hurts = helps + (low >= 0.05), hurts + (high <= -0.05)  # as far as a tenth shows
            cells.append(f"{middle:+.1f}{'*' if low >= 0.05 or high <= -0.05 else ''}")
        rows.append([f"{number.what}: {number.now:g}, not {number.without:g}", *cells, helps, hurts])
        chosen_rows.append([number.what, f"{number.now:g}", *_chosen_alone(sets, index)])
    names = [task.name for task in sets.tasks]
    report.table(
        "What each number brings, the others as they are: mean reciprocal rank in hundredths; * beyond chance (95 %)",
        ["number, and what it is held against", *names, "helps", "hurts"],
        rows,
    )
    report.table(
        "Each number alone, chosen on all trees but one: its value, and the change on the one left out (hundredths)",
        ["number", "now", *names, "mean"],
        chosen_rows,
    )


def _chosen_alone(sets: Sets, index: int) -> list[str]:
    number, cells, changes = NUMBERS[index], [], []
    for which, task in enumerate(sets.tasks):
        if number.intent and number.intent != task.intent:
            cells.append("–")
            continue
        but = sets.tree_of(which)
        value = max(number.values, key=lambda value: sets.mean(_replaced(NOW, index, value), but))
        changed, now = sets.ranks(which, _replaced(NOW, index, value)), sets.ranks(which, NOW)
        changes.append(100 * (fmean(changed) - fmean(now)))
        cells.append(f"{value:g}: {changes[-1]:+.1f}")
    return [*cells, f"{fmean(changes):+.2f}"]


def choose(sets: Sets, but: str) -> Setting:
    """Return the setting that is best on all trees but one, as far as a walk from number to number finds it."""
    setting = PLAIN
    for _ in range(2):
        for index, number in enumerate(NUMBERS):
            print(f"without {but}: {number.what}", file=sys.stderr, flush=True)  # a sign of life: this takes long
            tried = [_replaced(setting, index, value) for value in (setting[index], *number.values)]
            setting = max(tried, key=lambda each: sets.mean(each, but))
    return setting


def _chosen(report: common.Report, sets: Sets) -> None:
    rows = []
    chosen = {but: choose(sets, but) for but in dict.fromkeys(map(sets.tree_of, range(len(sets.tasks))))}
    for which, task in enumerate(sets.tasks):
        setting = chosen[sets.tree_of(which)]
        cells = []
        for each in (PLAIN, setting, NOW):
            ranks = sets.ranks(which, each)
            cells.append(share(sum(rank == 1 for rank in ranks), len(ranks)))
        rows.append([f"{task.name}: {len(task.cases)} cases", *cells])
    values = [[f"without {but}", *(f"{value:g}" for value in setting)] for but, setting in chosen.items()]
    report.table(
        "All numbers chosen together on the other trees: right first, percent",
        ["on the tree left out", "plain", "chosen on the others", "the module as it stands"],
        rows,
    )
    values.append(["the module as it stands", *(f"{value:g}" for value in NOW)])
    report.table("What was chosen", ["", *(number.what for number in NUMBERS)], values)


def run(options: Namespace) -> None:
    """Measure and report."""
    report = common.Report("Settings of the ranking", options, Path(tempfile.gettempdir()))
    try:
        sets = Sets(options.limit or (60 if options.quick else 300), list(filter(None, options.more.split(","))))
    except common.Skip as reason:
        report.skipped("settings", reason)
        return
    for name, part in {"alone": _alone, "chosen": _chosen}.items():
        if common.wanted(options, name):
            part(report, sets)
    sets.close()


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=0, help="cases of a set at most (default: 300)")
    add_more(parser)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
