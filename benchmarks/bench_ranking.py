"""What does the first question by words cost after opening, with and without the index that `Close` keeps?

Each round opens the same store twice: once without its index, which the first ranking then makes of all names, aliases,
descriptions and infos, and once with the index that closing has kept. The peer is sqlite3's FTS5, which takes the same
texts into a table in memory (words as they are, and again as trigrams), and answers the same query.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from benchmarks import common, trees

QUERY = "sparse message broker in Berlin"


def _rank(folder: Path) -> dict[str, float]:
    """Open a tree without the index, ask, close, open it again, ask twice."""
    shutil.rmtree(folder / "indexes", ignore_errors=True)
    tree = KeywordTree(str(folder))
    taken = {"made": common.timed(lambda: tree.RankCandidates(QUERY)), "close": common.timed(tree.Close)}
    with KeywordTree(str(folder)) as again:
        taken["kept"] = common.timed(lambda: again.RankCandidates(QUERY))
        taken["next"] = common.timed(lambda: again.RankCandidates(QUERY))
    return taken


def _search_full_text(texts: list[str]) -> dict[str, float]:
    def index() -> None:
        for tokenizer in ("unicode61", "trigram"):
            with sqlite3.connect(":memory:") as connection:
                connection.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{tokenizer}')")
                connection.executemany("INSERT INTO texts VALUES (?)", ((text,) for text in texts))
                query = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 10"
                connection.execute(query, (" OR ".join(QUERY.split()),)).fetchall()

    return {"made": common.timed(index)}


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("The first ranking after opening", options, scratch)
        rows = []
        for count in (10_000,) if options.quick else (10_000, 100_000):
            store = trees.build(options.stores or scratch, count)
            with KeywordTree(str(store)) as tree:
                texts = ["\n".join([node.name, *node.aliases, node.description]) for node in tree.Walk()][1:]
            turns: dict[str, Callable[[], Any]] = {
                "tree": partial(_rank, store), "fts5": partial(_search_full_text, texts)
            }  # fmt: skip
            taken = common.interleaved(options.rounds or (3 if options.quick else 7), turns)
            middle = {name: statistics.median(each[name] for each in taken["tree"]) for name in taken["tree"][0]}
            made = {name: [each["made"] for each in of] for name, of in taken.items()}
            ratio = common.median_ratio(made["fts5"], made["tree"])
            rows.append(
                [f"{count:,}", *(f"{middle[name]:.3f}" for name in ("made", "close", "kept", "next")), f"{ratio:.2f}"]
            )
        columns = ["keywords", "index made", "closing, which keeps it", "index kept", "the next", "speed, FTS5 = 1"]
        report.table("The first ranking of made keywords, in seconds", columns, rows)
        if not options.quick:
            report.target("first ranking of 100,000, index made, seconds", middle["made"], 1.5, at_most=True)
            report.target("the same, index kept", middle["kept"], 0.3, at_most=True)


if __name__ == "__main__":
    common.main(__doc__, run)
