"""Draw what the measuring programs found: ``python -m benchmarks.plots FIGURES.jsonl [FIGURES.jsonl …]``.

FIGURES is what the option ``--json`` of the programs leaves: a table a line, with its caption, columns and rows. Of a
table that was measured several times the last one counts, and what is not there is not drawn. The pictures go to
``docs/pictures`` (``--into FOLDER``), as SVG: small, sharp at any size, and the same bytes for the same figures.
``--png`` adds PNG for looking at them where SVG cannot be shown.

Needs matplotlib: ``pip install 'keyword-tree-memory[plots]'``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import ROOT

try:
    import matplotlib  # type: ignore[import-not-found,unused-ignore]  # optional

    matplotlib.use("Agg")
    from matplotlib import pyplot  # type: ignore[import-not-found,unused-ignore]
    from matplotlib.axes import Axes  # type: ignore[import-not-found,unused-ignore]
    from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]
except ModuleNotFoundError as missing:
    raise ImportError("plots need matplotlib: pip install 'keyword-tree-memory[plots]'") from missing

# Okabe and Ito's colours, which the colour-blind tell apart; on a white card, legible on light and dark pages alike.
OURS, SECOND, THIRD, FOURTH, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "keyword-tree",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}


class Table(NamedTuple):
    """A table of a report."""

    caption: str
    columns: list[str]
    rows: list[list[str]]

    def column(self, name: str, nth: int = 0) -> list[Measured]:
        """Return the figures of the column called `name`, of several of that name the `nth`."""
        index = [place for place, column in enumerate(self.columns) if column == name][nth]
        return [measured(row[index]) for row in self.rows]

    def names(self) -> list[str]:
        """Return the first column."""
        return [row[0] for row in self.rows]


class Measured(NamedTuple):
    """A figure with its interval; without one both ends are the figure."""

    value: float
    low: float
    high: float


def measured(cell: str) -> Measured:
    """Read a cell: "48.1 (40.5–55.8)", "1,234", "72 us".

    Raises:
        ValueError: it does not begin with a number.
    """
    found = re.match(r"([-+]?[\d,]*\.?\d+)\*?(?: \(([-\d.,]+)–([-\d.,]+)\))?", cell.strip("* "))
    if found is None:
        raise ValueError(f"no figure: {cell!r}")
    value, low, high = (float((text or found[1]).replace(",", "")) for text in found.groups())
    return Measured(value, low, high)


def read_tables(paths: Iterable[Path]) -> dict[str, Table]:
    """Return the tables of all files by their captions, of each the last one."""
    tables = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            cells = [[str(cell) for cell in cells] for cells in row["rows"]]
            tables[row["caption"]] = Table(row["caption"], row["columns"], cells)
    return tables


def named(tables: dict[str, Table], beginning: str) -> list[Table]:
    """Return the tables whose captions begin so."""
    return [table for caption, table in tables.items() if caption.startswith(beginning)]


# == Drawing =================================================================================


def _points(axes: Axes, places: Sequence[float], figures: Sequence[Measured], label: str, colour: str) -> None:
    """Draw figures as dots from left to right, one beneath the other, with their intervals."""
    values = [figure.value for figure in figures]
    ends = [[figure.value - figure.low for figure in figures], [figure.high - figure.value for figure in figures]]
    axes.errorbar(values, places, xerr=ends, fmt="o", color=colour, label=label, capsize=2)


def _line(axes: Axes, places: Sequence[float], figures: Sequence[Measured], label: str, colour: str) -> None:
    """Draw figures as a line with a band."""
    axes.plot(places, [figure.value for figure in figures], "o-", color=colour, label=label)
    low, high = [figure.low for figure in figures], [figure.high for figure in figures]
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def _beneath(axes: Axes, names: Sequence[str]) -> None:
    """Write names at the left, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def _short(name: str) -> str:
    """Return a set's name as it stands at an axis."""
    kind, _, rest = name.partition(" ")
    return f"{rest.partition(', ')[0]}: {kind}" + (", " + rest.partition(", ")[2] if ", " in rest else "")


def draw_first(tables: dict[str, Table]) -> Figure:
    """Right first, on every set, beside the peers."""
    (table,) = named(tables, "Right first")
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(table.rows) + 1.2), layout="constrained")
    for offset, (name, colour) in enumerate((("KeywordTree", OURS), ("FTS5", SECOND), ("bm25s", THIRD))):
        index = table.columns.index(name)
        found = [(place, measured(row[index])) for place, row in enumerate(table.rows) if row[index] != "–"]
        if found:
            places = [place + 0.22 * (offset - 1) for place, _ in found]
            _points(axes, places, [value for _, value in found], name, colour)
    _beneath(axes, [_short(name.partition(":")[0]) for name in table.names()])
    axes.set_xlim(0, 101)
    axes.set_xlabel("right answer first, % (95 % interval)")
    axes.set_title("The right keyword comes first, without a model", loc="left")
    axes.legend(loc="lower right", bbox_to_anchor=(0.98, 0.62))
    return figure


def draw_confirmed(tables: dict[str, Table]) -> Figure:
    """What confirmed queries bring."""
    (table,) = named(tables, "Confirmed queries")
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    places = [float(name) for name in table.names()]
    for column, colour in (("50", THIRD), ("5", SECOND), ("first", OURS)):
        label = "right one first" if column == "first" else f"among the first {column}"
        _line(axes, places, table.column(column), label, colour)
    axes.set_xticks(places)
    axes.set_ylim(40, 101)
    axes.set_xlabel("confirmed queries for each keyword")
    axes.set_ylabel("% of other questions")
    axes.set_title("What was confirmed helps similar questions (clinc150_dev)", loc="left")
    axes.legend(loc="lower right")
    return figure


def draw_abstaining(tables: dict[str, Table]) -> Figure:
    """Abstaining against answering."""
    (table,) = named(tables, "Abstaining")
    figure, axes = pyplot.subplots(figsize=(6, 4.4), layout="constrained")
    places = [float(name) for name in table.names()]
    lines = (
        ("of these right", "answered ones that are right", OURS),
        ("of what fits: answered", "questions that fit: answered", THIRD),
        ("of what fits nothing: refused", "questions that fit nothing: refused", SECOND),
    )
    for column, label, colour in lines:
        _line(axes, places, table.column(column), label, colour)
    axes.axvline(0.3, color=GREY, linestyle=":", linewidth=1.2)
    axes.annotate("says: nothing fits", (0.295, 3), ha="right", color=GREY)
    axes.set_ylim(0, 101)
    axes.set_xlabel("answered from this confidence on")
    axes.set_ylabel("%")
    axes.set_title("Abstaining against answering (clinc150_dev)", loc="left")
    figure.legend(loc="outside lower center")
    return figure


def draw_walks(tables: dict[str, Table]) -> Figure:
    """Rounds and characters of a find, for a chooser that knows the answer."""
    (table,) = named(tables, "A perfect chooser, ")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 0.34 * len(table.rows) + 1.3), layout="constrained")
    places = list(range(len(table.rows)))
    _points(left, places, table.column("rounds"), "mean", OURS)
    left.plot(
        [figure.value for figure in table.column("p95", 0)], places, "|", color=SECOND, label="p95", markersize=11
    )
    _beneath(left, [_short(name) for name in table.names()])
    left.set_xlim(0.8, 6.2)
    left.set_xlabel("rounds (calls of the model), six at most")
    left.set_title("What a find costs a model that never errs", loc="left")
    _points(right, places, table.column("characters"), "mean", OURS)
    slow = [figure.value for figure in table.column("p95", 2)]
    right.plot(slow, places, "|", color=SECOND, label="p95", markersize=11)
    _beneath(right, [""] * len(places))
    right.set_xlim(0, None)
    right.set_xlabel("characters of names and paths shown")
    right.legend(loc="center right")
    return figure


def draw_write_speed(tables: dict[str, Table]) -> Figure:
    """Durable writes beside peers, and by threads."""
    held = named(tables, "Durable `Create")
    heights = [len(table.rows) + 2 for table in held]
    size = (7, 0.36 * sum(heights) + 0.6)
    figure, every = pyplot.subplots(
        len(held), 1, figsize=size, height_ratios=heights, layout="constrained", squeeze=False
    )
    for axes, table in zip(every[:, 0], held, strict=True):
        columns = [name for name in table.columns if re.fullmatch(r"\d+ threads?|writes/s", name)]
        height = 0.8 / len(columns)
        for offset, column in enumerate(columns):
            places = [place + height * (offset - (len(columns) - 1) / 2) for place in range(len(table.rows))]
            colours = [OURS if name == "KeywordTree" else GREY for name in table.names()]
            values = [figure.value for figure in table.column(column)]
            bars = axes.barh(places, values, height=0.86 * height, color=colours)
            if len(columns) > 1:
                axes.bar_label(bars, labels=[f" {column}"] * len(values), fontsize=8, color="#444444")
        _beneath(axes, table.names())
        axes.margins(x=0.14)
        axes.set_xlabel("writes in a second")
        axes.set_title(table.caption.partition(" (")[0].replace("`", "").removesuffix(", writes/s"), loc="left")
    return figure


def draw_cost_by_size(tables: dict[str, Table]) -> Figure:
    """Costs in small and in large trees."""
    figure, axes = pyplot.subplots(figsize=(7.2, 4), layout="constrained")
    lines: dict[str, list[tuple[float, float]]] = {}
    for table in named(tables, "An operation's cost by size"):
        for row, size, cost in zip(table.rows, table.column("keywords"), table.column("p50"), strict=True):
            lines.setdefault(row[0].replace("`", ""), []).append((size.value, cost.value))
    for table in named(tables, "`Search` of an exact name"):
        for row, size, cost in zip(table.rows, table.column("keywords"), table.column("p50 again"), strict=True):
            what = "Search of an exact name" if row[2] == "KeywordTree" else "sqlite3, an exact name"
            lines.setdefault(what, []).append((size.value, cost.value))
    colours, peers = iter((OURS, SECOND, THIRD, FOURTH, "#56B4E9", "#E69F00")), iter(("s--", "^:", "D-."))
    for what, points in lines.items():
        is_peer = what.startswith("sqlite3")
        sizes, costs = zip(*points, strict=True)
        axes.plot(sizes, costs, next(peers) if is_peer else "o-", color=GREY if is_peer else next(colours), label=what)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter("")
    axes.set_xlabel("keywords in the tree")
    axes.set_ylabel("microseconds (median)")
    axes.set_title("What an operation costs as the tree grows", loc="left")
    figure.legend(loc="outside right upper", fontsize=9)
    return figure


PICTURES: dict[str, tuple[Callable[[dict[str, Table]], Figure], tuple[str, ...]]] = {
    "finding-first": (draw_first, ("Right first",)),
    "finding-confirmed": (draw_confirmed, ("Confirmed queries",)),
    "finding-abstaining": (draw_abstaining, ("Abstaining",)),
    "finding-walks": (draw_walks, ("A perfect chooser, ",)),
    "write-speed": (draw_write_speed, ("Durable `Create",)),
    "cost-by-size": (draw_cost_by_size, ("An operation's cost by size", "`Search` of an exact name")),
}
"""Picture -> who draws it, and the beginnings of the captions of which one at least must be there."""


def draw(tables: dict[str, Table], into: Path, *, png: bool = False) -> list[Path]:
    """Draw every picture whose figures are there.

    Args:
        tables: see `read_tables`.
        into: folder, made if it is not there.
        png: draw each as PNG, too.

    Returns:
        The files written.
    """
    into.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, (draw_one, beginnings) in PICTURES.items():
            if not any(named(tables, beginning) for beginning in beginnings):
                continue
            figure = draw_one(tables)
            for kind in ("svg", "png") if png else ("svg",):
                written.append(into / f"{name}.{kind}")
                figure.savefig(written[-1], metadata={"Date": None} if kind == "svg" else {}, dpi=110)
            pyplot.close(figure)
    return written


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", type=Path, help="files that --json left")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures", help="folder of the pictures")
    parser.add_argument("--png", action="store_true", help="draw each as PNG, too")
    options = parser.parse_args()
    for path in draw(read_tables(options.figures), options.into, png=options.png):
        print(path)


if __name__ == "__main__":
    main()
