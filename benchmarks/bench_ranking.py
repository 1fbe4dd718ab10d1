"""What the first question by words costs after opening, with and without the index that `Close` keeps, beside FTS5.

Each round opens the same store twice: once without its index, which the first ranking then makes of all names,
aliases, descriptions and infos, and once with the index that closing has kept.  The peer is sqlite3's FTS5, which
takes the same texts into a table in memory (words as they are, and again as trigrams), and answers the same query.
Closing after the first, which writes the index, is timed by itself.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
import sys
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from benchmarks import common, stores

QUERY = "distributed message broker in Berlin"
Times = dict[str, float]


def _rank(folder: Path) -> Times:
    """Open a tree without the index, ask, close, open it again, ask."""
    shutil.rmtree(folder / "indexes", ignore_errors=True)
    told: Times = {}
    tree = KeywordTree(str(folder))
    told["anew"] = common.timed(lambda: tree.RankCandidates(QUERY))
    told["close"] = common.timed(tree.Close)
    with KeywordTree(str(folder)) as again:
        told["kept"] = common.timed(lambda: again.RankCandidates(QUERY))
        told["again"] = common.timed(lambda: again.RankCandidates(QUERY))
    return told


def _search_full_text(texts: list[str]) -> Times:
    told: Times = {}
    match = " OR ".join(QUERY.split())
    for name, tokenizer in (("words", "unicode61"), ("trigrams", "trigram")):
        with sqlite3.connect(":memory:") as connection:

            def index(tokenizer: str = tokenizer, connection: sqlite3.Connection = connection) -> None:
                connection.execute(f"CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='{tokenizer}')")
                connection.executemany("INSERT INTO texts VALUES (?)", ((text,) for text in texts))
                query = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 10"
                connection.execute(query, (match,)).fetchall()

            told[name] = common.timed(index)
    return told


def run(options: Namespace) -> None:
    """Measure and report."""
    with common.working_folder(options) as scratch:
        report = common.Report("The first ranking after opening", options, scratch)
        rows = []
        for size in ("10000",) if options.quick else ("10000", "100000"):
            store = stores.build(options.stores or scratch, size)
            with KeywordTree(str(store)) as tree:
                texts = ["\n".join([node.name, *node.aliases, node.description]) for node in tree.Walk()][1:]
            told = common.interleaved(
                options.rounds or 7,
                {"tree": lambda at=store: _rank(at), "fts5": lambda of=texts: _search_full_text(of)},  # type: ignore[misc]
            )
            ours, theirs = told["tree"], told["fts5"]
            peer = [both["words"] + both["trigrams"] for both in theirs]
            middle = {name: statistics.median(each[name] for each in ours) for name in ours[0]}
            ratio = common.median_ratio(peer, [each["anew"] for each in ours])
            cells = [f"{middle[name]:.2f}" for name in ("anew", "close", "kept")]
            rows.append([f"{int(size):,}", *cells, f"{1000 * middle['again']:.1f} ms", f"{ratio:.2f}"])
        report.table(
            "The first ranking of made keywords, in seconds (speed: FTS5 taking in words and trigrams = 1)",
            ["keywords", "index made", "closing, which keeps it", "index kept", "the next ranking", "speed"],
            rows,
        )
        if not options.quick:
            report.target("first ranking of 100,000, index made, seconds", middle["anew"], 1.5, at_most=True)
            report.target("the same, index kept", middle["kept"], 0.3, at_most=True)


def main() -> None:
    """Run as a program."""
    run(common.parser(__doc__).parse_args())


if __name__ == "__main__":
    main()
