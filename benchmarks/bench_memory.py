"""Measure `Agent.memory`: what it finds, and how fast it writes and recalls.

    python -m benchmarks.bench_memory --locomo locomo10.json --memdaily messages_and_QAs

Parts (`--only`): evidence, remember, recall.

- evidence: the share of each question's evidence among the first 5 and 10 memories, without a model, beside BM25
  (the library bm25s, k1 1.5, b 0.75) over the same memories;
  LoCoMo (github.com/snap-research/LoCoMo, data/locomo10.json): the turns of a conversation, its session is the source;
  questions whose evidence is named, all categories. MemDaily (github.com/nuster1128/MemSim, the folder
  data_generation/final_dataset/messages_and_QAs): the messages of a user, equal ones once, a trajectory is the source.
  Neither is part of this project; where a path is missing the set is skipped. With `--vectors FOLDER` beside it the
  same with `LocalEmbedder` (extra [local]), whose vectors are kept there.
- remember: facts kept by `MemoryStore.remember`, and by `KeywordTree.CreateInfo`, which is as durable, in turns; under
  a keyword, both find it by its name.
- recall: questions to 100,000 memories, with filters, with keywords, with a graph that rules have filled, beside
  sqlite3's FTS5 (bm25) on the same contents; and what the first one takes, with the index on disk and without. Where
  neither set is there, the contents are those of MemoryBank (see `common.data_folder`).
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from Agent.memory.keywords import STOP_WORDS
from Agent.memory.memory_fields import MEMORY_KEY
from Agent.memory.store import MemoryStore
from Agent.tests.support.plain_model import PlainModel
from benchmarks import common
from benchmarks.bench_finding import Remembering, meaning_of


class Memory(NamedTuple):
    """One thing that was said."""

    id: str
    text: str
    source: str
    speaker: str = ""
    when: datetime | None = None


class Question(NamedTuple):
    """A question, and the ids of what answers it."""

    text: str
    evidence: frozenset[str]


Set: TypeAlias = list[tuple[list[Memory], list[Question]]]
"""One (memories, questions) for each conversation or user."""

Ask: TypeAlias = Callable[[str], Sequence[str]]


# == The sets ================================================================================


def read_locomo(path: Path) -> Set:
    """Return the conversations of LoCoMo."""
    made: Set = []
    for sample in json.loads(path.read_text(encoding="utf-8")):
        conversation = sample["conversation"]
        sessions = sorted(
            (key for key in conversation if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:])
        )
        memories = [
            Memory(turn["dia_id"], f"{turn['speaker']}: {turn['text']}", session, turn["speaker"], when)
            for session in sessions
            for when in [datetime.strptime(conversation[f"{session}_date_time"], "%I:%M %p on %d %B, %Y")]
            for turn in conversation[session]
        ]
        ids = {memory.id for memory in memories}
        questions = []
        for asked in sample["qa"]:
            named = re.findall(r"D\d+:\d+", " ".join(asked["evidence"]))
            evidence = frozenset(re.sub(r":0+(?=\d)", ":", id) for id in named) & ids
            if evidence:
                questions.append(Question(asked["question"], evidence))
        made.append((memories, questions))
    return made


def read_memdaily(folder: Path) -> Set:
    """Return the 50 users of MemDaily; each file has the same number of trajectories for each, in their order."""
    made: Set = [([], []) for _ in range(50)]
    seen: list[dict[str, str]] = [{} for _ in made]
    for file in sorted(folder.glob("0*.json")):
        trajectories = json.loads(file.read_text(encoding="utf-8"))
        for number, trajectory in enumerate(trajectories):
            user = number * len(made) // len(trajectories)
            memories, questions = made[user]
            source = f"{file.stem}/{number}"
            id_of: dict[int, str] = {}
            for message in trajectory["message_list"]:
                text, own_id = message["message"], f"{source}/{message['mid']}"
                id_of[message["mid"]] = seen[user].setdefault(text, own_id)
                if seen[user][text] == own_id:
                    day = datetime.strptime(message["time"][:11], "%Y年%m月%d日")
                    memories.append(Memory(own_id, text, source, "", day))
            asked = trajectory["question_list"][0]
            evidence = frozenset(id_of[step] for step in asked["target_step_id"] if step in id_of)
            if evidence and "[ERROR" not in asked["question"] + str(asked["answer"]):
                questions.append(Question(asked["question"], evidence))
    return made


def read_memorybank() -> tuple[list[str], list[str]]:
    """Return what was said in MemoryBank, in both languages, and what is asked: nothing marks what answers it."""
    said: tuple[list[str], list[str]] = ([], [])
    for name in ("memorybank_en", "memorybank_cn"):
        for texts, file, key in zip(said, ("infos", "questions"), ("content", "query"), strict=True):
            lines = (common.data_folder() / name / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
            texts += [row.get(key) or row["question"] for row in map(json.loads, lines)]
    return said


# == Evidence ================================================================================


def bm25(memories: Sequence[Memory]) -> Ask:
    """Return BM25 over words without stop words, Chinese characters and pairs of these: the yardstick."""
    import bm25s  # type: ignore[import-not-found,import-untyped,unused-ignore]

    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index([terms_of(memory.text) for memory in memories], show_progress=False)

    def ask(query: str) -> list[str]:
        found, scores = index.retrieve([terms_of(query)], k=min(10, len(memories)), show_progress=False)
        return [memories[at].id for at, score in zip(found[0], scores[0], strict=True) if score > 0]

    return ask


_runs = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+").findall


def terms_of(text: str) -> list[str]:
    """Return words without English stop words, single Chinese characters, and pairs of these."""
    found = [word for word in _runs(text.lower()) if word not in STOP_WORDS]
    return [*found, *(a + b for a, b in pairwise(found) if len(a) == len(b) == 1 and not (a + b).isascii())]


def share_found(sets: Set, prepare: Callable[[list[Memory]], Ask]) -> tuple[float, float]:
    """Return the mean share of evidence among the first 5 and 10, in percent."""
    sums, count = [0.0, 0.0], 0
    for memories, questions in sets:
        ask = prepare(memories)
        for question in questions:
            found = ask(question.text)
            count += 1
            for place, cut in enumerate((5, 10)):
                sums[place] += len(question.evidence & set(found[:cut])) / len(question.evidence)
    return 100 * sums[0] / count, 100 * sums[1] / count


def fill(store: MemoryStore, memories: Sequence[Memory]) -> None:
    """Keep many memories as `remember` does, in one operation."""
    specs = []
    for memory in memories:
        own: dict[str, object] = {"kind": "fact"}
        if memory.when is not None:
            own["time"] = memory.when.replace(tzinfo=UTC).timestamp()
        metadata = {MEMORY_KEY: own}
        specs.append({"id": memory.id, "content": memory.text, "source": memory.source, "metadata": metadata})
    store.tree.BatchCreateInfos(specs)


def measure_evidence(sets: Mapping[str, Set], vectors: Path | None, report: common.Report) -> None:
    """Print the evidence found by every contender on every set."""
    rows: list[list[str]] = []
    asks: dict[str, Callable[[Set], tuple[float, float]]]
    asks = {"BM25": partial(share_found, prepare=bm25), "`MemoryStore.recall`": share_found_by_store}
    if vectors is not None:
        asks["the same with vectors"] = partial(share_found_by_store, embedder=Remembering(vectors))
    for name, ask in asks.items():
        figures = [ask(chosen) for chosen in sets.values()]
        rows.append([name, *(f"{figure:.1f}" for pair in figures for figure in pair)])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    columns = [f"{name} @{cut}" for name in sets for cut in (5, 10)]
    report.table("Evidence among the first 5 and 10, in percent", ["way", *columns], rows)


def share_found_by_store(sets: Set, embedder: Any = None) -> tuple[float, float]:
    """Return the same for a `MemoryStore`, one namespace for each conversation or user."""
    with tempfile.TemporaryDirectory() as folder:
        stores: list[MemoryStore] = []

        def prepare(memories: list[Memory]) -> Ask:
            newest = max((memory.when for memory in memories if memory.when), default=datetime(2026, 1, 1))
            now = newest.replace(tzinfo=UTC).timestamp()
            store = MemoryStore(folder, user=str(len(stores)), clock=lambda: now, meaning=meaning_of(embedder))
            stores.append(store)
            fill(store, memories)
            store.recall("warm up")  # reads all
            return lambda query: [memory.info.id for memory in store.recall(query, 10)]

        figures = share_found(sets, prepare)
        for store in stores:
            store.close()
    return figures


# == Speed ===================================================================================


def measure_remember(count: int, folder: Path, report: common.Report) -> None:
    """Print the processor time of `remember` as a multiple of the tree's own write, which is given the keyword's id."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as made,
        MemoryStore(made) as store,
        KeywordTree(str(Path(made) / "bare")) as tree,
    ):
        kitchen = tree.CreateKeyword("kitchen").id
        store.remember("the kettle is in the kitchen", ["kitchen"])
        writes: dict[str, Callable[[str], object]] = {
            "`CreateInfo`": lambda text: tree.CreateInfo(text, "notes"),
            "`remember`": lambda text: store.remember(text, source="notes"),
            "`CreateInfo`, a keyword by its id": lambda text: tree.CreateInfo(text, "notes", [kitchen]),
            "`remember`, a keyword by its name": lambda text: store.remember(text, ["kitchen"], "notes"),
        }

        def timed(write: Callable[[str], object]) -> Callable[[], float]:
            def run() -> float:
                begun = time.process_time()
                for number in range(count // 10):
                    write(f"fact {number}: the kettle stands on shelf {number}")
                return (time.process_time() - begun) / (count // 10)

            return run

        took = common.interleaved(10, {name: timed(write) for name, write in writes.items()})
    rows = []
    names = list(writes)
    for bare, name in (names[:2], names[2:]):
        ratio = common.median_ratio(took[name], took[bare])
        rows += [[bare, common.microseconds(sorted(took[bare])[5]), "1"]]
        rows += [[name, common.microseconds(sorted(took[name])[5]), f"{ratio:.2f}"]]
        report.target(f"{name}: multiple of the tree's own write", ratio, 1.5, at_most=True)
    report.table("Durable writes, processor time", ["write", "µs", "multiple of the tree's own"], rows)


def measure_recall(sets: Mapping[str, Set], size: int, folder: Path | None, report: common.Report) -> None:
    """Print how long a recall takes among many memories, beside FTS5."""
    chance = random.Random(1)
    texts = [memory.text for chosen in sets.values() for memories, _ in chosen for memory in memories]
    asked = [question.text for chosen in sets.values() for _, questions in chosen for question in questions]
    if not texts:
        texts, asked = read_memorybank()
    # A word more makes each its own, and 20 of them one conversation.
    memories = [Memory(str(n), f"{chance.choice(texts)} {n}", f"s{n // 20}") for n in range(size)]
    questions = chance.sample(asked, min(400, len(asked)))
    names = chance.sample(sorted({word for text in texts for word in _runs(text.lower()) if len(word) > 3}), 2_000)
    rows: list[list[str]] = []
    begin: list[list[str]] = []
    for name in ("without keywords", "each under one of 2,000 keywords"):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            with MemoryStore(made) as store:
                for start in range(0, size, 500):
                    fill(store, memories[start : start + 500])
                if name != "without keywords":
                    store.tree.BatchCreateKeywords([{"id": word, "name": word} for word in names])
                    for start in range(0, size, 500):
                        with store.tree.Operation("hang"):
                            for number in range(start, min(start + 500, size)):
                                store.tree.LinkInfo(str(number), names[number % len(names)])
                begin.append([name, "", *first_recall(store)])
            with MemoryStore(made) as store:
                begin.append([name, "from the index on disk", *first_recall(store)])
                rows.append([name, *spread(recalling(store), questions)])
                if name == "without keywords":
                    one_in_ten = [f"s{n}" for n in range(0, size // 20, 10)]
                    rows.append(["… of one source in ten", *spread(recalling(store, sources=one_in_ten), questions)])
                    rows.append(["… since a time", *spread(recalling(store, since=1.0), questions)])
    rows.append(["with a graph", *measure_with_graph(memories, questions, folder)])
    rows.append(["sqlite3 FTS5, `bm25`, without keywords", *measure_fts5(memories, questions, folder)])
    columns = ["recall of 10", "p50 ms", "p95 ms", "p50 ms of processor", "p95 ms of processor"]
    report.table(f"Recall among {size:,} memories", columns, rows)
    report.target("p95 in ms of processor, without keywords", float(rows[0][4]), 50.0, at_most=True)
    report.target("p95 in ms by the clock, without keywords", float(rows[0][2]), 50.0, at_most=True)
    report.table("The first recall", ["memories", "", "s", "s of processor", "MB resident before", "after"], begin)


def measure_with_graph(memories: Sequence[Memory], questions: Sequence[str], folder: Path | None) -> list[str]:
    """Return how long questions take where every memory was read for the graph, and named one of 2,000 people."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as made,
        MemoryStore(made, llm_client=PlainModel(), extract="model") as store,
    ):
        for start in range(0, len(memories), 500):
            with store.tree.Operation("fill"):
                for number, memory in enumerate(memories[start : start + 500], start):
                    named = f"Person{number % 2000} lives in City{number % 300}."
                    store.remember(f"{named} {memory.text}", source=memory.source)
        store.recall("warm up", 10)
        asked = [f"Where does Person{number * 7 % 2000} live? {question}" for number, question in enumerate(questions)]
        return spread(recalling(store), asked)


def recalling(store: MemoryStore, **filters: Any) -> Callable[[str], object]:
    """Return what asks a store for ten memories."""
    return lambda query: store.recall(query, 10, **filters)


def first_recall(store: MemoryStore) -> list[str]:
    """Return what the first recall takes: seconds by the clock and of the processor, and memory before and after."""
    before = common.rss_mb()
    begun, used = time.perf_counter(), time.process_time()
    store.recall("warm up", 10)
    took = [f"{time.perf_counter() - begun:.2f}", f"{time.process_time() - used:.2f}"]
    return [*took, f"{before:.0f}", f"{common.rss_mb():.0f}"]


def measure_fts5(memories: Sequence[Memory], questions: Sequence[str], folder: Path | None) -> list[str]:
    """Return how long questions take FTS5 over the same texts."""
    with tempfile.TemporaryDirectory(dir=folder) as made, closing(sqlite3.connect(Path(made) / "fts.db")) as connection:
        try:
            connection.execute("create virtual table memories using fts5(id unindexed, text, tokenize='unicode61')")
        except sqlite3.OperationalError as error:
            raise common.Skip(f"sqlite3 has no FTS5: {error}") from error
        # FTS5 takes a run of Chinese for one word: its characters are given to it apart.
        connection.executemany(
            "insert into memories values (?, ?)",
            ((memory.id, " ".join(_runs(memory.text.lower()))) for memory in memories),
        )
        connection.commit()

        def ask(query: str) -> object:
            match = " OR ".join(f'"{word}"' for word in dict.fromkeys(terms_of(query)))
            return connection.execute(
                "select id, text from memories where memories match ? order by rank limit 10", (match or '"x"',)
            ).fetchall()

        return spread(ask, questions)


def spread(ask: Callable[[str], object], questions: Sequence[str]) -> list[str]:
    """Return how long questions take: by the clock, and of the processor alone, which other work does not lengthen."""
    clocked, computed = [], []
    for question in questions:
        begun, used = time.perf_counter(), time.process_time()
        ask(question)
        clocked.append(1000 * (time.perf_counter() - begun))
        computed.append(1000 * (time.process_time() - used))
    return [f"{common.percentile(took, share):.1f}" for took in (clocked, computed) for share in (0.5, 0.95)]


def run(argv: Sequence[str] | None = None) -> None:
    """Run the parts that are wanted."""
    options = common.parser(__doc__)
    options.add_argument("--locomo", type=Path, default=None, help="locomo10.json")
    options.add_argument("--memdaily", type=Path, default=None, help="the folder messages_and_QAs")
    options.add_argument("--vectors", type=Path, default=None, help="a folder: with embeddings, too, kept there")
    chosen = options.parse_args(argv)
    with common.working_folder(chosen) as folder:
        report = common.Report("Memory", chosen, folder)
        sets: dict[str, Set] = {}
        for name, path, read in (("LoCoMo", chosen.locomo, read_locomo), ("MemDaily", chosen.memdaily, read_memdaily)):
            if path is None or not path.exists():
                report.skipped(name, "its path is not given, or nothing is there (see --help)")
            else:
                sets[name] = read(path)
                counts = [sum(len(part) for part in parts) for parts in zip(*sets[name], strict=True)]
                report.line(f"\n{name}: {len(sets[name])} parts, {counts[0]:,} memories, {counts[1]:,} questions")
        if common.wanted(chosen, "evidence") and sets:
            measure_evidence(sets, chosen.vectors, report)
        if common.wanted(chosen, "remember"):
            measure_remember(500 if chosen.quick else 3_000, folder, report)
        if common.wanted(chosen, "recall"):
            try:
                measure_recall(sets, 10_000 if chosen.quick else 100_000, folder, report)
            except common.Skip as reason:
                report.skipped("recall", reason)


if __name__ == "__main__":
    run()
