"""Measure the graph that memories fill: what rules find in a sentence, and what two hops are worth to a recall.

    python -m benchmarks.bench_graph

Parts (`--only`): rules, hops, quiet, channels.

- rules: entities and relations found by `RuleExtractor` in 200 sentences in each language that were labelled by hand
  before the rules were written (`benchmarks/extraction/`): precision and recall, each sentence by itself, and again
  with all that the sentences before it named as known keywords. The rules were written with these in view; 40 further
  sentences in each language were written when the rules stood, and changed nothing. Others mislead: they deny, doubt,
  postpone or end what they name (`adverse_*`, `adverse_later_*`, and `stranger_*` by another hand).
- hops: 200 questions in each language that need two facts (`benchmarks/two_hops.py`): the share of the two among the
  first five memories, with the text alone and with the graph.
- quiet: where a graph has nothing to add: the questions of MemoryBank, the share of the first five memories that stay
  the same when the graph is there.
- channels: the graph's look-up and the text's ranking one after the other, and side by side in two threads.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.memory.extraction import RuleExtractor
from Agent.memory.keywords import ChineseKeywordExtractor
from Agent.memory.retriever import RetrievalStrategy, RetrieverConfig
from Agent.memory.store import MemoryStore
from benchmarks import common
from benchmarks.two_hops import LANGUAGES, make_world

FOLDER = Path(__file__).with_name("extraction")

SETS = (
    ("English", "sentences_en.txt", False),
    ("English", "sentences_en.txt", True),
    ("English", "unseen_en.txt", False),
    ("English", "adverse_en.txt", False),
    ("English", "adverse_later_en.txt", False),
    ("English", "stranger_en.txt", False),
    ("Chinese", "sentences_zh.txt", False),
    ("Chinese", "sentences_zh.txt", True),
    ("Chinese", "unseen_zh.txt", False),
    ("Chinese", "adverse_zh.txt", False),
    ("Chinese", "adverse_later_zh.txt", False),
    ("Chinese", "stranger_zh.txt", False),
)
"""(language, file, whether the names of the sentences before are known)."""

KINDS = {"unseen": ", unseen", "adverse": ", misleading", "stranger": ", misleading, a stranger's"}
"""What the table says of the sentences, by how their file's name begins."""


class Sentence(NamedTuple):
    """A sentence, and what a reader finds in it."""

    text: str
    entities: frozenset[str]
    relations: frozenset[tuple[str, str, str]]


def read_sentences(path: Path) -> list[Sentence]:
    """Return the labelled sentences of a file."""
    made = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        text, entities, relations = (part.strip() for part in f"{line} ".split("|"))
        triples = (tuple(end.strip() for end in each.split(">")) for each in relations.split(";") if each.strip())
        names = (name.strip() for name in entities.split(";"))
        made.append(Sentence(text, frozenset(filter(None, names)), frozenset((a, b, c) for a, b, c in triples)))
    return made


class Count(NamedTuple):
    """How many were found, how many of these are right, how many there are."""

    found: int
    right: int
    wanted: int

    def precision(self) -> float:
        """Return the share of what was found that is right."""
        return self.right / max(1, self.found)

    def recall(self) -> float:
        """Return the share of what there is that was found."""
        return self.right / max(1, self.wanted)


def count_found(sentences: Sequence[Sentence], is_known: bool, show: bool = False) -> tuple[Count, Count]:
    """Return what rules find of the entities, and of the relations."""
    extractor = RuleExtractor()
    known: dict[str, str] = {}

    def find_known(name: str) -> str | None:
        return known.get(name.casefold()) if is_known else None

    entities, relations = Count(0, 0, 0), Count(0, 0, 0)
    for sentence in sentences:
        found = extractor.extract(sentence.text, find_known)
        names = {entity.name for entity in found.entities}
        triples = {(each.source, each.relation_type, each.target) for each in found.relations}
        entities = _add(entities, names, sentence.entities)
        relations = _add(relations, triples, sentence.relations)
        known |= {name.casefold(): name for name in names}
        if show and (names - sentence.entities or triples != sentence.relations):
            more, missed = sorted(triples - sentence.relations), sorted(sentence.relations - triples)
            print(sentence.text, "| +", sorted(names - sentence.entities), more, "| -", missed, file=sys.stderr)
    return entities, relations


def _add(count: Count, found: Iterable[object], wanted: Iterable[object]) -> Count:
    held, due = set(found), set(wanted)
    return Count(count.found + len(held), count.right + len(held & due), count.wanted + len(due))


def measure_rules(report: common.Report, show: bool) -> None:
    """Print precision and recall of the rules."""
    rows = []
    for language, name, is_known in SETS:
        sentences = read_sentences(FOLDER / name)
        counts = count_found(sentences, is_known, show and not is_known)
        for what, count in zip(("entities", "relations"), counts, strict=True):
            figures = [f"{count.precision():.2f}", f"{count.recall():.2f}", str(count.wanted)]
            how = f"{len(sentences)}, {'those before known' if is_known else 'each by itself'}"
            rows.append([language, how + KINDS.get(name.split("_")[0], ""), what, *figures])
            if name.startswith("sentences") and not is_known:
                report.target(f"{language}, {what}: precision", count.precision(), 0.85)
                report.target(f"{language}, {what}: recall", count.recall(), 0.4)
    report.table("Found by rules", ["language", "sentences", "", "precision", "recall", "of"], rows)


WAYS = {
    "the text alone": RetrieverConfig(strategy=RetrievalStrategy.KNOWLEDGE_ONLY),
    "with the graph": RetrieverConfig(),
}


def measure_hops(report: common.Report, count: int) -> None:
    """Print the share of the two facts among the first five memories, and how often both are."""
    rows = []
    for language, words in LANGUAGES.items():
        world = make_world(words, count)
        with tempfile.TemporaryDirectory() as folder, MemoryStore(folder) as store:
            id_of = {fact.id: store.remember(fact.text) for fact in world.facts}
            found: dict[str, float] = {}
            for way, config in WAYS.items():
                share = both = last = 0.0
                for question in world.questions:
                    ids = [memory.info.id for memory in store.recall(question.text, 5, config=config)]
                    here = [id_of[fact] in ids for fact in question.evidence]
                    share += sum(here) / 2
                    both += all(here)
                    last += here[1]
                figures = [100 * figure / len(world.questions) for figure in (share, both, last)]
                found[way] = figures[0]
                rows.append([language, way, *(f"{figure:.1f}" for figure in figures)])
            relations = sum(len(store.graph.get_relations(id)) for id in _entities(store)) // 2
            report.line(f"{language}: {len(world.facts)} memories, {relations} relations")
            gained = found["with the graph"] - found["the text alone"]
            report.target(f"{language}: points gained among the first five", gained, 20.0)
    columns = ["language", "recall", "share of the two facts", "both", "the second"]
    report.table("Questions that need two facts, among the first 5, in percent", columns, rows)


def _entities(store: MemoryStore) -> list[str]:
    return [child.id for child in store.tree.GetChildren("root")]


def measure_quiet(report: common.Report) -> None:
    """Print how much of the first five memories stays where the graph is there."""
    rows = []
    for name in ("memorybank_en", "memorybank_cn"):
        folder = common.data_folder() / name
        infos, questions = (
            [json.loads(line) for line in (folder / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]
            for file in ("infos", "questions")
        )
        with tempfile.TemporaryDirectory() as made, MemoryStore(made) as store:
            for info in infos:
                store.remember(info["content"], source=str(info.get("source", "")))
            same = total = 0
            for question in questions:
                text = question.get("question") or question["query"]
                one, other = (
                    [memory.info.id for memory in store.recall(text, 5, config=config)] for config in WAYS.values()
                )
                same += len(set(one) & set(other))
                total += max(1, len(one))
            rows.append([name, f"{len(infos):,}", str(len(questions)), f"{100 * same / total:.1f}"])
    report.table("The first 5 that stay the same with the graph", ["set", "memories", "questions", "percent"], rows)


def measure_channels(report: common.Report) -> None:
    """Print whether two threads are faster than one channel after the other."""
    world = make_world(LANGUAGES["English"])
    with tempfile.TemporaryDirectory() as folder, MemoryStore(folder) as store, ThreadPoolExecutor(2) as pool:
        for fact in world.facts:
            store.remember(fact.text)
        store.recall("warm up")
        extract, index, graph = ChineseKeywordExtractor().extract, store.retriever.index, store.graph

        def walk(text: str) -> object:
            return [graph.get_related(each.id, 1) for each in graph.find_by_keywords(extract(text), 20)]

        def rank(text: str) -> object:
            return index.rank(text, 40)

        def in_turn() -> float:
            begun = time.perf_counter()
            for question in world.questions:
                walk(question.text)
                rank(question.text)
            return (time.perf_counter() - begun) / len(world.questions)

        def side_by_side() -> float:
            begun = time.perf_counter()
            for question in world.questions:
                for channel in [pool.submit(walk, question.text), pool.submit(rank, question.text)]:
                    channel.result()
            return (time.perf_counter() - begun) / len(world.questions)

        took = common.interleaved(5, {"one after the other": in_turn, "side by side": side_by_side})
    ratio = common.median_ratio(took["one after the other"], took["side by side"])
    rows = [[name, common.microseconds(sorted(times)[2])] for name, times in took.items()]
    report.table(f"Two channels; side by side is {ratio:.2f} times as fast", ["channels", "µs for a question"], rows)


def run(argv: Sequence[str] | None = None) -> None:
    """Run the parts that are wanted."""
    options = common.parser(__doc__)
    options.add_argument("--show", action="store_true", help="print the sentences in which rules and reader differ")
    chosen = options.parse_args(argv)
    with common.working_folder(chosen) as folder:
        report = common.Report("Graph", chosen, folder)
        if common.wanted(chosen, "rules"):
            measure_rules(report, chosen.show)
        if common.wanted(chosen, "hops"):
            measure_hops(report, 40 if chosen.quick else 200)
        if common.wanted(chosen, "channels"):
            measure_channels(report)
        if common.wanted(chosen, "quiet"):
            try:
                measure_quiet(report)
            except common.Skip as reason:
                report.skipped("quiet", reason)


if __name__ == "__main__":
    run()
