"""Draw what the measuring programs found: ``python -m benchmarks.plots FIGURES.jsonl [FIGURES.jsonl …]``.

FIGURES is what the option ``--json`` of the programs leaves: a table a line, with its caption, columns and rows. Of a
table that was measured several times the last one counts, and what is not there is not drawn. The pictures go to
``docs/pictures`` (``--into FOLDER``), as SVG: small, sharp at any size, and the same bytes for the same figures.
``--png`` adds PNG for looking at them where SVG cannot be shown.

Needs matplotlib: ``pip install '.[plots]'``.
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
    raise ImportError("plots need matplotlib: pip install '.[plots]' in a copy of the repository") from missing

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


def _beneath(axes: Axes, names: Sequence[str]) -> None:
    """Write names at the left, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


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
