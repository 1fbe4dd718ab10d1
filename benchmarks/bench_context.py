"""Measure the context engine: what a commit costs, what it finds, how large it may grow, and what it never loses.

    python -m benchmarks.bench_context --locomo locomo10.json --memdaily messages_and_QAs

Parts (`--only`): commit, again, many, long, edits, forget, real, evidence. Crashes, power cuts and hostile texts are
`make storm`.

- commit: ten nodes in one transaction, beside one bare sqlite3 transaction with synchronous FULL that writes the same
  bytes; in turns.
- again: one session committed 100 times by each of 4 processes; not a byte may change after the first.
- many: a store of many nodes (`--stores` keeps it): making its index, opening it, searches, listing, and a forget.
- long: one session of many messages: committing it, committing it again, finding what was said.
- edits: edits by hand, older states put back, and commits, mixed by chance; none may be lost.
- forget: a memory is forgotten in a store of some size; then every file is searched for its bytes.
- real: LoCoMo's messages in one session, beside FTS5 (`porter unicode61`) in turns; its questions; all files beside
  the text, for one long session and for many small ones.
- evidence: committed sessions without a model, the share of each question's evidence among ten blocks, and the tokens
  that they cost; LoCoMo and MemDaily as in `bench_memory`, skipped where they are not given.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sqlite3
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.base.text import count_tokens
from Agent.context_engine import ContextEngineService, ContextNode, RequestContext
from Agent.tests.support.plain_reader import PlainReader
from benchmarks import common
from benchmarks.bench_memory import Set, read_locomo, read_memdaily

ADA = RequestContext("acme", "ada", "helper", "s1")
MEMORIES = "ctx://acme/users/ada/memories"
WORDS = [f"{head}{tail}" for head in ("ka", "lo", "mi", "su", "te", "ra", "no") for tail in map(str, range(600))]


def make_node(uri: str, chance: random.Random) -> ContextNode:
    """Return a node of some 60 words."""
    words = [WORDS[int(len(WORDS) * chance.random() ** 3)] for _ in range(60)]
    abstract, overview = " ".join(words[:12]), " ".join(words[:30])
    return ContextNode(uri, "", "memory", "entities", "", abstract, overview, f"- {' '.join(words)}\n")


# == Writing ==================================================================================


def measure_commit(rounds: int, folder: Path, report: common.Report) -> None:
    """Time ten nodes in one transaction beside a bare sqlite3 transaction of the same bytes."""
    chance = random.Random(1)
    engine = ContextEngineService(folder / "commit", index="worker")
    peer = sqlite3.connect(folder / "peer.db", isolation_level=None)
    peer.execute("PRAGMA journal_mode = WAL")
    peer.execute("PRAGMA synchronous = FULL")
    peer.execute("CREATE TABLE nodes(uri TEXT PRIMARY KEY, abstract TEXT, overview TEXT, content TEXT)")
    numbers = iter(range(1_000_000))

    def ten() -> list[ContextNode]:
        start = next(numbers) * 10
        return [make_node(f"{MEMORIES}/entities/n{start + place}", chance) for place in range(10)]

    def ours() -> float:
        nodes = ten()
        start = time.perf_counter()
        with engine.fs.transaction(ADA, "ten"):
            for node in nodes:
                engine.fs.write_node(ADA, node)
        return time.perf_counter() - start

    def bare() -> float:
        nodes = ten()
        start = time.perf_counter()
        peer.execute("BEGIN IMMEDIATE")
        rows = [(node.uri, node.abstract, node.overview, node.content) for node in nodes]
        peer.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", rows)
        peer.execute("COMMIT")
        return time.perf_counter() - start

    taken = common.interleaved(rounds, {"ten nodes, one transaction": ours, "bare sqlite3 transaction": bare})
    rows = [(name, f"{statistics.median(each) * 1_000:.1f}", f"{common.percentile(each, 0.95) * 1_000:.1f}")
            for name, each in taken.items()]  # fmt: skip
    report.table(f"Ten nodes, {rounds} rounds", ["", "median ms", "p95 ms"], rows)
    ratio = common.median_ratio(*taken.values())
    report.target("ten nodes beside a bare sqlite3 transaction", ratio, 4.0, at_most=True)
    report.target("syncs of one commit", _syncs_of(engine, ours), 1, at_most=True)
    engine.close()


def _syncs_of(engine: ContextEngineService, commit: Callable[[], object]) -> int:
    """Return how many synced transactions a commit needs; everything else is left to a checkpoint."""
    count = 0
    writing = engine.fs.journal.writing

    def counted(synchronous: str = "NORMAL") -> Any:
        nonlocal count
        count += synchronous == "FULL"
        return writing(synchronous)

    engine.fs.journal.writing = counted  # type: ignore[method-assign]
    commit()
    return count


def _commit_often(folder: Path, said: list[dict[str, Any]], times: int) -> None:
    with ContextEngineService(folder, llm=PlainReader()) as engine:
        for _ in range(times):
            engine.commit_session(ADA, said)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file of the main store."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".ctx" not in path.parts}


def measure_again(times: int, folder: Path, report: common.Report) -> None:
    """Commit one session again and again in four processes."""
    root = folder / "again"
    said = [
        {"role": "user", "content": f"I love band{number}. Please always play song{number}."} for number in range(20)
    ]
    _commit_often(root, said, 1)
    before = snapshot(root)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_commit_often, args=(root, said, times)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    after = snapshot(root)
    changed = sum(before.get(name) != after.get(name) for name in before.keys() | after.keys())
    report.target(f"files changed by {4 * times} commits of a session that is there", changed, 0, at_most=True)


# == Growing ==================================================================================


def measure_many(count: int, folder: Path, report: common.Report) -> None:
    """Make a store of many nodes, open it, search it, and make its index again."""
    root, chance = folder / f"context-many-{count}", random.Random(2)
    engine = ContextEngineService(root, index="worker")
    start = time.process_time()
    for block in range(500 * engine.fs.journal.last_sequence(), count, 500):  # a store that was kept is written on
        with engine.fs.transaction(ADA, "many"):
            for number in range(block, min(count, block + 500)):
                engine.fs.write_node(ADA, make_node(f"{MEMORIES}/entities/{number % 997}-{number}", chance))
    written = time.process_time() - start
    space = "ctx://acme/users/ada"
    start = time.process_time()
    engine.worker.reconcile(space, recursive=True)
    rebuilt = time.process_time() - start
    engine.close()

    opened = []
    for _ in range(5):
        start = time.perf_counter()
        engine = ContextEngineService(root, index="worker")
        opened.append(time.perf_counter() - start)
        engine.close()
    engine = ContextEngineService(root, index="worker")
    taken, used = [], []
    for _ in range(200):
        query = " ".join(WORDS[int(len(WORDS) * chance.random() ** 3)] for _ in range(5))
        start, began = time.perf_counter(), time.process_time()
        engine.search_memory(ADA, query)
        taken.append(time.perf_counter() - start)
        used.append(time.process_time() - began)
    rows = [
        ("writing, processor s", f"{written:.1f}"),
        ("index made again, processor s", f"{rebuilt:.1f}"),
        ("opening, median s", f"{statistics.median(opened):.3f}"),
        ("search, median ms", f"{statistics.median(taken) * 1_000:.1f}"),
        ("search, p95 ms", f"{common.percentile(taken, 0.95) * 1_000:.1f}"),
        ("search, median processor ms", f"{statistics.median(used) * 1_000:.1f}"),
        ("search, p95 processor ms", f"{common.percentile(used, 0.95) * 1_000:.1f}"),
        ("memory, MB", f"{common.rss_mb():.0f}"),
    ]
    report.table(f"A store of {count:,} nodes, {3 * count:,} rows in the index", ["", "measured"], rows)
    report.target("ready, seconds", statistics.median(opened), 0.2, at_most=True)
    report.target("search, p95 in ms", common.percentile(taken, 0.95) * 1_000, 50.0, at_most=True)
    report.target("index made again, processor seconds", rebuilt, 60.0, at_most=True)
    start = time.process_time()
    listed = engine.list_children(ADA, f"{MEMORIES}/entities")
    report.target("listing, processor seconds", time.process_time() - start, 1.0, at_most=True)
    start = time.process_time()
    engine.forget(ADA, listed[0].uri)
    report.target("a forget, processor seconds", time.process_time() - start, 1.0, at_most=True)
    engine.close()


def measure_long(count: int, folder: Path, report: common.Report) -> None:
    """Commit one session of many messages, again, and one message more; then look for some of them."""
    chance = random.Random(5)
    said = [
        {
            "id": f"x{number}",
            "role": ("user", "assistant")[number % 2],
            "content": f"Message {number}: {' '.join(chance.choices(WORDS, k=12))}",
        }
        for number in range(count)
    ]
    with ContextEngineService(folder / "long") as engine:
        taken = []
        for messages in (said, said, [*said, {"role": "user", "content": "I love jazz."}]):
            start = time.process_time()
            result = engine.commit_session(ADA, messages)
            taken.append(time.process_time() - start)
        lost, used = 0, []
        for message in chance.sample(said, 100):
            start = time.process_time()
            blocks = engine.search_memory(ADA, message["content"], top_k=3).blocks
            used.append(time.process_time() - start)
            lost += not any(message["content"] == block.content_excerpt for block in blocks)
    rows = [
        ("commit, processor s", f"{taken[0]:.1f}"),
        ("the same again, processor s", f"{taken[1]:.1f}"),
        ("with one message more, processor s", f"{taken[2]:.1f} ({result.stats['new']} taken)"),
        ("search, median processor ms", f"{statistics.median(used) * 1_000:.1f}"),
        ("memory, MB", f"{common.rss_mb():.0f}"),
    ]
    report.table(f"One session of {count:,} messages", ["", "measured"], rows)
    report.target("of 100 messages asked for, not among three blocks", lost, 0, at_most=True)


def measure_real(path: Path, count: int, rounds: int, folder: Path, report: common.Report) -> None:
    """Commit real messages beside FTS5, ask real questions, and add up the files."""
    parts = read_locomo(path)
    memories = [memory for part, _ in parts for memory in part]
    texts = [memory.text for memory in memories]
    said = [{"id": f"x{number}", "role": "user", "content": texts[number % len(texts)]} for number in range(count)]
    size = sum(len(str(message["content"]).encode()) for message in said)
    numbers = iter(range(rounds))

    def ours() -> float:
        with ContextEngineService(folder / f"real-{next(numbers)}") as engine:
            start = time.process_time()
            engine.commit_session(ADA, said)
            return time.process_time() - start

    def fts5() -> float:
        peer = sqlite3.connect(":memory:")
        start = time.process_time()
        peer.execute("CREATE VIRTUAL TABLE said USING fts5(text, tokenize = 'porter unicode61')")
        with peer:
            peer.executemany("INSERT INTO said VALUES (?)", [(message["content"],) for message in said])
        return time.process_time() - start

    taken = common.interleaved(rounds, {"commit": ours, "FTS5": fts5})
    rows = [(name, f"{statistics.median(each):.2f}") for name, each in taken.items()]
    used = []
    with ContextEngineService(folder / "real-0") as engine:
        questions = [question.text for _, part in parts for question in part]
        for query in random.Random(1).sample(questions, 100):
            start = time.process_time()
            engine.search_memory(ADA, query)
            used.append(time.process_time() - start)
    rows.append(("a search, median, ms", f"{statistics.median(used) * 1_000:.1f}"))
    report.table(f"One session of {count:,} real messages, processor time", ["", "seconds"], rows)
    report.target("commit beside FTS5", common.median_ratio(*taken.values()), 20.0, at_most=True)
    report.target("a search, p95 in ms", common.percentile(used, 0.95) * 1_000, 50.0, at_most=True)
    report.target("all files beside the text", _bytes_under(folder / "real-0") / size, 4.0, at_most=True)
    by_source: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, (part, _) in enumerate(parts):
        for memory in part:
            by_source[f"{number}-{memory.source.replace('/', '-')}"].append({"role": "user", "content": memory.text})
    size = sum(len(message["content"].encode()) for each in by_source.values() for message in each)
    with ContextEngineService(folder / "small") as engine:
        for source, each in by_source.items():
            engine.commit_session(RequestContext("acme", "ada", "helper", source), each)
        grown = _bytes_under(folder / "small") / size
    report.target(f"{len(by_source)} small sessions: all files beside the text, while open", grown, 4.0, at_most=True)


def _bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# == Never losing =============================================================================


def measure_edits(steps: int, folder: Path, report: common.Report) -> None:
    """Mix edits by hand, older states and commits; count edits that are in neither files nor history."""
    root, chance = folder / "edits", random.Random(3)
    made: list[str] = []
    olds: list[Path] = []
    uri = f"{MEMORIES}/preferences/tea"
    with ContextEngineService(root) as engine:
        engine.remember(ADA, "Tea, entry 0.", "preferences", "tea")
        place = Path(engine.fs.resolve_path(ADA, uri))
        for number in range(1, steps + 1):
            kind = chance.choice(("edit", "edit", "commit", "adopt", "save", "put back", "reopen"))
            if kind == "edit":
                with (place / "content.md").open("a", encoding="utf-8") as file:
                    file.write(f"- by hand {number}\n")
                made.append(f"by hand {number}")
            elif kind == "commit":
                engine.remember(ADA, f"Tea, entry {number}.", "preferences", "tea")
            elif kind == "adopt":
                engine.adopt(ADA, uri)
            elif kind == "save":
                olds.append(folder / f"old{number}")
                shutil.copytree(place, olds[-1])
            elif kind == "put back" and olds:  # what `git checkout` does; what stands there now was adopted before
                engine.adopt(ADA, uri)
                shutil.rmtree(place)
                shutil.copytree(chance.choice(olds), place)
        history = engine.history(ADA, uri, limit=100_000)
        texts = [engine.get_node(ADA, uri).content]
        texts += [image.get("content.md", "") for entry in history for image in (entry.before, entry.after)]
        lost = sum(not any(f"- {text}\n" in held for held in texts) for text in made)
    report.target(f"edits lost, of {len(made)} among {steps} steps", lost, 0, at_most=True)


def measure_forget(count: int, folder: Path, report: common.Report) -> None:
    """Forget one memory of a store, and search every file for its bytes."""
    root, secret = folder / "forget", "zq7-kiwi-42"
    with ContextEngineService(root, llm=PlainReader()) as engine:
        for number in range(count):
            text = secret if number == count // 2 else f"band{number}"
            ctx = RequestContext("acme", "ada", "helper", f"s{number}")
            engine.commit_session(ctx, [{"role": "user", "content": f"I love {text}."}])
        start = time.perf_counter()
        engine.forget(ADA, f"{MEMORIES}/preferences/{secret}")
        took = time.perf_counter() - start
        left = [path for path in root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    report.table(f"Forgetting one of {count} sessions", ["", "measured"], [("seconds", f"{took:.2f}")])
    report.target("files that hold a byte of it", len(left), 0, at_most=True)


# == Finding ==================================================================================


def measure_evidence(sets: dict[str, Set], folder: Path, report: common.Report) -> None:
    """Commit sessions, ask, and count what of each question's evidence is among the blocks."""
    rows = []
    for name, parts in sets.items():
        for top, budget in ((10, 10_000), (40, 1_200)):
            shares: list[float] = []
            tokens: list[int] = []
            for number, (memories, questions) in enumerate(parts):
                root = folder / f"{name}-{number}"
                with ContextEngineService(root) as engine:
                    ids = _commit_all(engine, memories)
                    for question in questions:
                        found = engine.search_memory(ADA, question.text, top_k=top, budget_tokens=budget)
                        seen = {id for block in found.blocks for id in ids.get(block.content_excerpt, ())}
                        shares.append(len(seen & question.evidence) / len(question.evidence))
                        tokens.append(
                            sum(count_tokens(block.content_excerpt or block.abstract) for block in found.blocks)
                        )
            rows.append(
                (f"{name}, {top} blocks", f"{100 * statistics.mean(shares):.1f}", f"{statistics.mean(tokens):.0f}")
            )
    report.table("Evidence among the blocks, %", ["", "evidence", "tokens"], rows)


def _commit_all(engine: ContextEngineService, memories: Sequence[Any]) -> dict[str, set[str]]:
    """Commit memories as sessions, where they are not there; return which ids each shown text has."""
    by_source: dict[str, list[Any]] = defaultdict(list)
    ids: dict[str, set[str]] = defaultdict(set)
    for memory in memories:
        by_source[memory.source].append(memory)
        ids[memory.text[:800].strip()].add(memory.id)
    for source, held in by_source.items():
        said = [
            {
                "id": memory.id,
                "role": "user",
                "content": memory.text.removeprefix(f"{memory.speaker}: "),
                **({"name": memory.speaker} if memory.speaker else {}),
                **({"at": memory.when} if memory.when is None else {"at": memory.when.isoformat()}),
            }
            for memory in held
        ]
        engine.commit_session(RequestContext("acme", "ada", "helper", source.replace("/", "-")), said)
    return ids


def run(argv: Sequence[str] | None = None) -> None:
    """Run the parts that are wanted."""
    options = common.parser(__doc__)
    options.add_argument("--locomo", type=Path, default=None, help="locomo10.json")
    options.add_argument("--memdaily", type=Path, default=None, help="the folder messages_and_QAs")
    options.add_argument("--nodes", type=int, default=0, help="of the part `many` (default: 100,000; quickly 3,000)")
    options.add_argument("--messages", type=int, default=0, help="of the part `long` (default: 100,000; quickly 5,000)")
    chosen = options.parse_args(argv)
    quick = chosen.quick
    with common.working_folder(chosen) as folder:
        report = common.Report("Context engine", chosen, folder)
        parts: dict[str, Callable[[], None]] = {
            "commit": lambda: measure_commit(chosen.rounds or (20 if quick else 100), folder, report),
            "again": lambda: measure_again(10 if quick else 100, folder, report),
            "many": lambda: measure_many(
                chosen.nodes or (3_000 if quick else 100_000), chosen.stores or folder, report
            ),
            "long": lambda: measure_long(chosen.messages or (5_000 if quick else 100_000), folder, report),
            "edits": lambda: measure_edits(200 if quick else 2_000, folder, report),
            "forget": lambda: measure_forget(50 if quick else 500, folder, report),
        }
        for name, measure in parts.items():
            if common.wanted(chosen, name):
                measure()
        if common.wanted(chosen, "real") and chosen.locomo is not None and chosen.locomo.exists():
            measure_real(chosen.locomo, chosen.messages or 10_000, chosen.rounds or 3, folder, report)
        sets: dict[str, Set] = {}
        for name, path, read in (("LoCoMo", chosen.locomo, read_locomo), ("MemDaily", chosen.memdaily, read_memdaily)):
            if path is None or not path.exists():
                report.skipped(name, "its path is not given, or nothing is there (see --help)")
            else:
                sets[name] = read(path)
        if sets and common.wanted(chosen, "evidence"):
            measure_evidence(sets, folder, report)


if __name__ == "__main__":
    run()
