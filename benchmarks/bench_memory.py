"""Measure `Agent.memory`: what it finds, how fast it writes and recalls, and whether a correction replaces.

    python -m benchmarks.bench_memory --locomo locomo10.json --memdaily messages_and_QAs

Parts (`--only`): evidence, remember, recall, correct.

- evidence: the share of each question's evidence among the first 5 and 10 memories, without a model, beside BM25
  (Robertson & Zaragoza 2009, k1 1.5, b 0.75) over the same memories, and each term of the ranking left out in turn.
  LoCoMo (github.com/snap-research/LoCoMo, data/locomo10.json): the turns of a conversation, its session is the source;
  questions whose evidence is named, all categories. MemDaily (github.com/nuster1128/MemSim, the folder
  data_generation/final_dataset/messages_and_QAs): the messages of a user, equal ones once, a trajectory is the source.
  Neither is part of this project; where a path is missing the set is skipped.
- remember: facts kept by `MemoryStore.remember`, and by `KeywordTree.CreateInfo`, which is as durable, in turns.
- recall: questions to 100,000 memories, beside sqlite3's FTS5 (bm25) on the same contents.
- correct: 1,000 facts, each corrected twice; a recall must return the last, the history show three.
"""

from __future__ import annotations

import json
import math
import random
import re
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordTree
from Agent.memory.fulltext import RankingWeights
from Agent.memory.keywords import STOP_WORDS
from Agent.memory.retriever import OWN, RetrieverConfig
from Agent.memory.store import MemoryStore
from benchmarks import common


class Memory(NamedTuple):
    """One thing that was said."""

    id: str
    text: str
    source: str


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
            Memory(turn["dia_id"], f"{turn['speaker']}: {turn['text']}", session)
            for session in sessions
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
                    memories.append(Memory(own_id, text, source))
            asked = trajectory["question_list"][0]
            evidence = frozenset(id_of[step] for step in asked["target_step_id"] if step in id_of)
            if evidence and "[ERROR" not in asked["question"] + str(asked["answer"]):
                questions.append(Question(asked["question"], evidence))
    return made


# == Evidence ================================================================================


class Bm25:
    """BM25 as the books have it, over words without stop words and single Chinese characters: the yardstick."""

    def __init__(self, memories: Iterable[Memory], terms: Callable[[str], list[str]]) -> None:
        self.terms = terms
        self.ids = []
        self.lengths = []
        self.postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, memory in enumerate(memories):
            counts = Counter(terms(memory.text))
            self.ids.append(memory.id)
            self.lengths.append(sum(counts.values()))
            for term, count in counts.items():
                self.postings[term].append((number, count))
        self.average = sum(self.lengths) / max(1, len(self.lengths))

    def ask(self, query: str) -> list[str]:
        """Return the ids of the first ten."""
        scores: dict[int, float] = defaultdict(float)
        for term in self.terms(query):
            held = self.postings.get(term, [])
            idf = math.log(1 + (len(self.ids) - len(held) + 0.5) / (len(held) + 0.5))
            for number, count in held:
                norm = 1.5 * (0.25 + 0.75 * self.lengths[number] / self.average)
                scores[number] += idf * count * 2.5 / (count + norm)
        return [self.ids[number] for number in sorted(scores, key=lambda number: (-scores[number], number))[:10]]


_runs = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+").findall


def words(text: str) -> list[str]:
    """Return words and single Chinese characters, stop words included."""
    return _runs(text.lower())


def words_without_stop_words(text: str) -> list[str]:
    """Return the same without English stop words."""
    return [word for word in words(text) if word not in STOP_WORDS]


def characters_and_pairs(text: str) -> list[str]:
    """Return the same with pairs of Chinese characters besides."""
    found = words_without_stop_words(text)
    return [*found, *(a + b for a, b in pairwise(found) if len(a) == len(b) == 1 and not (a + b).isascii())]


def bm25_over(terms: Callable[[str], list[str]]) -> Callable[[list[Memory]], Ask]:
    """Return what makes a BM25 over those terms ready to be asked."""
    return lambda memories: Bm25(memories, terms).ask


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


def fill(store: MemoryStore, memories: Iterable[Memory]) -> None:
    """Keep many memories as `remember` does, in one operation."""
    own = {OWN: {"kind": "fact"}}
    store.tree.BatchCreateInfos(
        [{"id": memory.id, "content": memory.text, "source": memory.source, "metadata": own} for memory in memories]
    )


def measure_evidence(sets: Mapping[str, Set]) -> None:
    """Print the evidence found by every contender on every set."""
    ways: dict[str, RankingWeights] = {
        "MemoryStore.recall": RankingWeights(),
        "- without the question before": RankingWeights(before=0.0),
        "- without the group": RankingWeights(group=0.0),
        "- every sentence of the query alike": RankingWeights(aside=1.0),
        "- what was said counts again": RankingWeights(cover=1.0),
        "- none of the four": RankingWeights(0.0, 0.0, 1.0, 1.0),
    }
    plain = {
        "BM25": words,
        "BM25 without stop words": words_without_stop_words,
        "BM25, pairs of characters too": characters_and_pairs,
    }
    for name, terms in plain.items():
        figures = [share_found(chosen, bm25_over(terms)) for chosen in sets.values()]
        print(name, *(f"{figure:.1f}" for pair in figures for figure in pair), sep=" | ", flush=True)
    for name, weights in ways.items():
        figures = [share_found_by_store(chosen, weights) for chosen in sets.values()]
        print(name, *(f"{figure:.1f}" for pair in figures for figure in pair), sep=" | ", flush=True)


def share_found_by_store(sets: Set, weights: RankingWeights) -> tuple[float, float]:
    """Return the same for a `MemoryStore`, one namespace for each conversation or user."""
    with tempfile.TemporaryDirectory() as folder:
        stores: list[MemoryStore] = []

        def prepare(memories: list[Memory]) -> Ask:
            store = MemoryStore(folder, user=str(len(stores)), config=RetrieverConfig(ranking=weights))
            stores.append(store)
            fill(store, memories)
            return lambda query: [found.info.id for found in store.recall(query, 10)]

        figures = share_found(sets, prepare)
        for store in stores:
            store.close()
    return figures


# == Speed ===================================================================================


def measure_remember(count: int, folder: Path | None) -> float:
    """Print and return how many facts `remember` keeps in the time that the tree keeps as many infos."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as made,
        MemoryStore(made) as store,
        KeywordTree(str(Path(made) / "bare")) as tree,
    ):
        ratios, took = [], []
        for turn in range(10):
            seconds = {}
            for name in ("store", "tree") if turn % 2 else ("tree", "store"):
                begun = time.perf_counter()
                for number in range(count // 10):
                    if name == "store":
                        store.remember(f"fact {turn} {number}: the kettle stands on shelf {number}", source="notes")
                    else:
                        tree.CreateInfo(f"fact {turn} {number}: the kettle stands on shelf {number}", "notes")
                seconds[name] = time.perf_counter() - begun
            ratios.append(seconds["tree"] / seconds["store"])
            took.append(seconds["store"] / (count // 10))
    ratio = sorted(ratios)[len(ratios) // 2]
    print(f"remember: {1e6 * sorted(took)[5]:.0f} µs, {ratio:.2f} x the tree's own durable write (at least 0.8)")
    return ratio


def measure_recall(sets: Mapping[str, Set], size: int, folder: Path | None) -> None:
    """Print how long a recall takes among many memories, beside FTS5."""
    chance = random.Random(1)
    texts = [memory.text for chosen in sets.values() for memories, _ in chosen for memory in memories]
    asked = [question.text for chosen in sets.values() for _, questions in chosen for question in questions]
    if not texts:
        raise common.Skip("recall needs the texts of at least one set")
    # A word more makes each its own, and 20 of them one conversation.
    memories = [Memory(str(n), f"{chance.choice(texts)} {n}", f"s{n // 20}") for n in range(size)]
    questions = chance.sample(asked, min(400, len(asked)))
    with tempfile.TemporaryDirectory(dir=folder) as made, MemoryStore(made) as store:
        for start in range(0, size, 500):
            fill(store, memories[start : start + 500])
        begun = time.perf_counter()
        store.recall("warm up", 10)
        print(f"recall: the first one reads the log of {size:,} memories, in {time.perf_counter() - begun:.1f} s")
        print(f"recall among {size:,}: {spread(lambda query: store.recall(query, 10), questions)} (p95 at most 50 ms)")
    with tempfile.TemporaryDirectory(dir=folder) as made:
        connection = sqlite3.connect(Path(made) / "fts.db")
        try:
            connection.execute("create virtual table memories using fts5(id unindexed, text, tokenize='unicode61')")
        except sqlite3.OperationalError as error:
            raise common.Skip(f"sqlite3 has no FTS5: {error}") from error
        # FTS5 takes a run of Chinese for one word: its characters are given to it apart.
        connection.executemany(
            "insert into memories values (?, ?)", ((memory.id, " ".join(words(memory.text))) for memory in memories)
        )
        connection.commit()

        def ask(query: str) -> object:
            match = " OR ".join(f'"{word}"' for word in dict.fromkeys(words_without_stop_words(query)))
            return connection.execute(
                "select id, text from memories where memories match ? order by rank limit 10", (match or '"x"',)
            ).fetchall()

        print(f"sqlite3 FTS5: {spread(ask, questions)}")
        connection.close()


def spread(ask: Callable[[str], object], questions: Sequence[str]) -> str:
    """Return how long questions take: by the clock, and of the processor alone, which other work does not lengthen."""
    clocked, computed = [], []
    for question in questions:
        begun, used = time.perf_counter(), time.process_time()
        ask(question)
        clocked.append(1000 * (time.perf_counter() - begun))
        computed.append(1000 * (time.process_time() - used))
    figures = []
    for name, took in (("by the clock", sorted(clocked)), ("processor", sorted(computed))):
        figures.append(f"{name} p50 {took[len(took) // 2]:.1f} ms, p95 {took[int(0.95 * len(took))]:.1f} ms")
    return "; ".join(figures)


def measure_correct(count: int) -> None:
    """Print whether a correction replaces."""
    places = ["Paris", "Rome", "杭州"]
    right = shown = 0
    with tempfile.TemporaryDirectory() as made, MemoryStore(made) as store:
        for number in range(count):
            id = store.remember(f"Person{number} lives in {places[0]}.", keywords=["where people live"])
            for place in places[1:]:
                id = store.correct(id, f"Person{number} lives in {place}.")
            history = [version.content for version in store.history(id)]
            shown += history == [f"Person{number} lives in {place}." for place in reversed(places)]
        for number in range(count):
            found = store.recall(f"Where does Person{number} live?", 10)
            mine = [memory.info.content for memory in found if f"Person{number} " in memory.info.content]
            right += mine == [f"Person{number} lives in {places[-1]}."] and found[0].info.content == mine[0]
    print(
        f"correct: {right} of {count} recalls return the last fact first and no older one; {shown} histories show three"
    )


def run(argv: Sequence[str] | None = None) -> None:
    """Run the parts that are wanted."""
    options = common.parser(__doc__)
    options.add_argument("--locomo", type=Path, default=None, help="locomo10.json")
    options.add_argument("--memdaily", type=Path, default=None, help="the folder messages_and_QAs")
    chosen = options.parse_args(argv)
    sets: dict[str, Set] = {}
    for name, path, read in (("LoCoMo", chosen.locomo, read_locomo), ("MemDaily", chosen.memdaily, read_memdaily)):
        if path is None or not path.exists():
            print(f"{name} is skipped: its path is not given, or nothing is there (see --help)")
        else:
            sets[name] = read(path)
            counts = [sum(len(part) for part in parts) for parts in zip(*sets[name], strict=True)]
            print(f"{name}: {len(sets[name])} parts, {counts[0]:,} memories, {counts[1]:,} questions")
    if common.wanted(chosen, "evidence") and sets:
        print("evidence among the first 5 | 10 of", *sets)
        measure_evidence(sets)
    if common.wanted(chosen, "remember"):
        measure_remember(500 if chosen.quick else 3_000, chosen.dir)
    if common.wanted(chosen, "recall"):
        try:
            measure_recall(sets, 10_000 if chosen.quick else 100_000, chosen.dir)
        except common.Skip as reason:
            print(f"skipped: {reason}")
    if common.wanted(chosen, "correct"):
        measure_correct(100 if chosen.quick else 1_000)


if __name__ == "__main__":
    run()
