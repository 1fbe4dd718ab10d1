"""How well is a keyword found by what is known about it, and what does it cost that infos are heard?

What: on sets whose questions are answered by infos (`info_sets.py`), the share of questions whose keyword stands first
and among five: with names and descriptions alone, with infos, and by sqlite3's FTS5 and bm25s over the same texts, each
at its best of documents with and without the names above. Then `LexicalLLMClient` end to end: right, wrong, refused.
Then the costs for a tree of 43,118 keywords with 100,000 infos: index, view, first question after opening. Last what a
write pays for the index: the same writes in three trees of 2,000 keywords, in turns of a drawn order, nothing synced.

Repeat: ``KEYWORD_TREE_DOCUMENTS=… python -m benchmarks.bench_infos`` (``python -m benchmarks.info_sets FOLDER`` fetches
the documents). Parts for ``--only``: quality, client, costs, writes.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree, LLMClient
from Agent.lexical_client import LexicalLLMClient
from benchmarks import bench_finding, common, trees
from benchmarks.finding_sets import Case, share
from benchmarks.info_sets import InfoSet, sets


@contextmanager
def opened(which: InfoSet, infos_heard: int = 50, client: LLMClient | None = None) -> Iterator[KeywordTree]:
    """Build the tree of a set in memory, where the system offers it."""
    shared = Path("/dev/shm")
    temporary = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
    with temporary as folder, KeywordTree(folder, client, infos_heard=infos_heard) as tree:
        tree.BatchCreateKeywords(which.specs)
        tree.BatchCreateInfos([{"content": content, "keyword_ids": [id]} for id, content in which.infos])
        yield tree


def _count(cases: list[Case], rank: Callable[[str], list[str]]) -> tuple[int, int]:
    first = five = 0
    for case in cases:
        found = rank(case.query)[:5]
        first += found[:1] != [] and found[0] in case.gold
        five += not case.gold.isdisjoint(found)
    return first, five


def _ask_tree(which: InfoSet, cases: list[Case], infos_heard: int) -> tuple[int, int]:
    with opened(which, infos_heard) as tree:
        return _count(cases, lambda query: [node.id for node, _ in tree.RankCandidates(query, 5)])


def _ask_peer(
    which: InfoSet, cases: list[Case], make: Callable[[list[str], list[list[str]]], bench_finding.Peer]
) -> tuple[int, int]:
    texts: dict[str, list[str]] = defaultdict(list)
    for id, content in which.infos:
        texts[id].append(content)
    told = [{**spec, "description": " ".join([spec["description"], *texts[spec["id"]]])} for spec in which.specs]
    found = []
    for with_path in (False, True):
        documents = _documents(told, with_path)
        peer = make([spec["id"] for spec in told], documents)
        found.append(_count(cases, lambda query, peer=peer: [id for id, _ in peer(query)]))  # type: ignore[misc]
    return max(found)


def _documents(specs: list[dict[str, object]], with_path: bool) -> list[list[str]]:
    above: dict[object, list[str]] = {"root": []}
    documents = []
    for spec in specs:
        own = bench_finding._tokens(" ".join([str(spec["name"]), *spec["aliases"]]))  # type: ignore[misc]
        path = above[spec["parent_id"]] if with_path else []
        documents.append(own + bench_finding._tokens(str(spec["description"])) + path)
        above[spec["id"]] = above[spec["parent_id"]] + own
    return documents


def _quality(report: common.Report, which: InfoSet, cases: list[Case]) -> list[str]:
    count = len(cases)
    row = [f"{which.name}: {count}"]
    answers = [_ask_tree(which, cases, 0), _ask_tree(which, cases, 50)]
    for make in (bench_finding._bm25s, bench_finding._fts5):
        try:
            answers.append(_ask_peer(which, cases, make))
        except common.Skip as reason:
            report.skipped(which.name, reason)
            answers.append((0, 0))
    return row + [f"{share(first, count)}; {100 * five / count:.0f}" for first, five in answers]


def _ask_client(which: InfoSet, cases: list[Case]) -> list[str]:
    right = wrong = 0
    with opened(which, client=LexicalLLMClient()) as tree:
        ranked = sum(
            bool(found) and found[0][0].id in case.gold
            for case in cases
            if (found := tree.RankCandidates(case.query, 1)) is not None
        )
        for case in cases:
            result = tree.Search(case.query)
            named = {node.id for node in (result.candidates if result.node is None else [result.node])}
            right += bool(named) and named <= case.gold  # who asks which of two that say the same is right
            wrong += not named <= case.gold
    count = len(cases)
    return [
        f"{which.name}: {count}",
        share(ranked, count),
        share(right, count),
        share(wrong, count),
        share(count - right - wrong, count),
    ]


def _costs(report: common.Report, options: Namespace) -> None:
    specs = list(trees.tree_named("1000" if options.quick else "admin_cn4"))
    said = "the keeper of this place wrote that it is open on Mondays 周一开门 值班人员 电话 地址 and closed in winter"
    words = said.split()
    infos = [
        {"content": f"{spec['name']} {' '.join(words[number % 7 :])} {number}", "keyword_ids": [spec["id"]]}
        for number in range(1_000 if options.quick else 100_000)
        for spec in [specs[number % len(specs)]]
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        with KeywordTree(folder) as tree:
            tree.BatchCreateKeywords(specs)
            for start in range(0, len(infos), 10_000):
                tree.BatchCreateInfos(infos[start : start + 10_000])
            held, began = common.rss_mb(), time.process_time()
            tree.RankCandidates("周一 值班", 1)
            rows.append(["index from nothing, s", f"{time.process_time() - began:.1f}"])
            rows.append(["index, growth of the process, MiB", f"{common.rss_mb() - held:.0f}"])
            times = []
            for spec in specs[:: max(1, len(specs) // 300)]:
                began = time.process_time()
                tree.RankCandidates(f"when is {spec['name']} open", 50)
                times.append(1e3 * (time.process_time() - began))
            rows.append(
                [
                    "ranking with evidence for 50, p50 / p95, ms",
                    " / ".join(f"{common.percentile(times, part):.1f}" for part in (0.5, 0.95)),
                ]
            )
        with KeywordTree(folder) as tree:
            began = time.process_time()
            tree.RankCandidates("周一 值班", 1)
            rows.append(["first question after opening, index kept, s", f"{time.process_time() - began:.2f}"])
    report.table(f"Costs of {len(specs):,} keywords with {len(infos):,} infos", ["", "processor's time"], rows)


def _writes(report: common.Report, options: Namespace) -> None:
    ways = {"infos heard": (50, True), "infos off": (0, True), "no index made": (50, False)}
    draw, count = random.Random(7), 300 if options.quick else 3000
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(mock.patch.multiple("os", fsync=lambda _fd: None, fdatasync=lambda _fd: None))
        opened = {way: KeywordTree(f"{folder}/{way}", infos_heard=heard) for way, (heard, _) in ways.items()}
        for way, tree in opened.items():
            stack.enter_context(tree)
            tree.BatchCreateKeywords([{"id": f"k{n}", "name": f"name {n}", "parent_id": "root"} for n in range(2000)])
            tree.BatchCreateInfos([{"id": f"i{n}", "content": "x", "keyword_ids": ["k1"]} for n in range(40)])
            if ways[way][1]:
                tree.RankCandidates("name")
        writes: dict[str, Callable[[KeywordTree, int], object]] = {
            "CreateInfo": lambda tree, n: tree.CreateInfo(f"the vet is on Mill Road {n}", "", [f"k{n % 2000}"]),
            "UpdateInfo": lambda tree, n: tree.UpdateInfo(f"i{n % 40}", {"content": f"the vet is on Mill Road {n}"}),
            "CreateKeyword": lambda tree, n: tree.CreateKeyword(f"new {n}", "root"),
        }
        rows = []
        for name, write in writes.items():
            times: dict[str, list[float]] = defaultdict(list)
            for number in range(count):
                for way in draw.sample(list(ways), len(ways)):
                    began = time.process_time_ns()
                    write(opened[way], number)
                    times[way].append((time.process_time_ns() - began) / 1e3)
                    if number % 100 == 99 and ways[way][1]:
                        opened[way].RankCandidates("name", 1)  # takes in what was noted
            medians = [statistics.median(times[way]) for way in ways]
            rows.append([name, *(f"{median:.1f}" for median in medians), f"{medians[0] - medians[-1]:.1f}"])
    report.table("A write, median (microseconds of the processor)", ["", *ways, "the index's share"], rows)


def run(options: Namespace) -> None:
    """Measure all parts that were asked for."""
    report = common.Report("Infos", options, Path(tempfile.gettempdir()))
    quality, client = [], []
    for read in sets() if common.wanted(options, "quality") or common.wanted(options, "client") else ():
        try:
            which = read()
        except common.Skip as reason:
            report.skipped("a set", reason)
            continue
        cases = which.cases[: options.limit or (40 if options.quick else 400)]
        if common.wanted(options, "quality"):
            quality.append(_quality(report, which, cases))
        if common.wanted(options, "client"):
            client.append(_ask_client(which, cases))
    if quality:
        columns = ["set: questions", "names alone", "with infos", "bm25s", "FTS5"]
        report.table("Right first with its interval; right among five (percent)", columns, quality)
    if client:
        report.table(
            "LexicalLLMClient (percent)", ["set: questions", "ranked first", "right", "wrong", "refused"], client
        )
    if common.wanted(options, "costs"):
        _costs(report, options)
    if common.wanted(options, "writes"):
        _writes(report, options)


def main() -> None:
    """Run as a program."""
    parser = common.parser(__doc__)
    parser.add_argument("--limit", type=int, default=0, help="questions of a set at most (default: 400)")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
