"""Measure what derived layers add to the plain way: graph and memories, each on and off, and the brief.

    python -m benchmarks.bench_layers --memdaily data_generation   # of a copy of github.com/nuster1128/MemSim

The set is MemDaily: messages of 50 users in Chinese, and questions of which the messages that answer them are known. A
scripted model reads each message with the annotations that the messages were made from (`graphs.json`): it names every
person, place, organisation, event and thing that the message names, and states what the annotations state of them, with
the message as its quote. So it is a model that misses nothing and invents nothing; what the library's checks refuse of
it is refused here too. The data is not part of this project.

- graph: `MemoryStore.recall` of ten, by the text alone, by the names of keywords too, and by the graph.
- memories: `search_memory` in one store, over the sessions alone, and over memories too, within a budget of tokens.
- brief: the same budget, of which the brief takes its part first.

Evidence of a question found: the share of its messages whose words are in what was returned.
"""

from __future__ import annotations

import json
import statistics
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.context_engine import ContextEngineService, RequestContext
from Agent.context_engine.core.text import count_tokens
from Agent.keyword_tree import LLMClient
from Agent.memory import MemoryStore
from Agent.memory.retriever import RetrievalStrategy, RetrieverConfig
from Agent.memory.scoring import Hybrid, ScoreWeights
from benchmarks import common
from benchmarks.bench_memory import Memory, Question, read_memdaily

TOP, BUDGETS = 10, (200, 600)
BRIEF_SHARE = 0.5
ADA = RequestContext("acme", "ada", "helper", "s1")

Thing = tuple[tuple[str, ...], str, dict[str, str]]
"""The names of somebody or something, its type, and its attributes."""

VERBS = {
    "家乡": ("comes_from", "concept"), "工作地": ("works_at", "place"), "单位名称": ("works_at", "organisation"),
    "职业": ("是", "concept"), "职位": ("是", "concept"), "兴趣爱好": ("likes", "concept"), "地点": ("在", "place"),
    "教育背景": ("学历", "concept"),
}  # fmt: skip
"""By attribute the type of the relation, and of the entity at its other end."""


class AnnotatingModel(LLMClient):
    """Reads messages with the annotations that they were made from."""

    def __init__(self, annotations: dict[str, Any]) -> None:
        people = [*annotations["relation_profiles"], *annotations["colleague_profiles"]]
        self._things: list[Thing] = [((each["姓名"], each["关系"]), "person", each) for each in people]
        events = [*annotations["work_events"], *annotations["rest_events"]]
        self._things += [((each["事件名称"],), "event", each) for each in events]
        self._things += [((each["物品名称"],), "product", {}) for each in annotations["items"]]
        self._things += [((each["地点名称"],), "place", {}) for each in annotations["places"]]
        self.stated = 0

    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        """Return what the annotations say of the messages of a question."""
        question = json.loads(messages[-1]["content"])
        reply: dict[str, list[Any]] = {"entities": [], "relations": [], "facts": []}
        for shown in question["messages"]:
            for name, value in self._read(shown["text"], shown["idx"]):
                if name in question["wanted"]:
                    reply[name].append(value)
                    self.stated += name == "facts"
        return reply

    def _read(self, text: str, idx: int) -> Iterator[tuple[str, dict[str, Any]]]:
        quote = {"quote": text, "message": idx}
        for names, kind, attributes in self._things:
            for name in (each for each in names if each in text):
                yield "entities", {"name": name, "type": kind, "description": "", "tags": [], **quote}
                category = "events" if kind == "event" else "entities"
                yield "facts", {"category": category, "topic": name, "key": "", "text": text, **quote}
                for key, (relation, target_kind) in VERBS.items():
                    target = attributes.get(key, "")
                    if target and target in text:
                        yield "entities", {"name": target, "type": target_kind, "description": "", "tags": [], **quote}
                        ends = {"source": name, "type": relation, "target": target, "weight": 1.0}
                        yield "relations", {**ends, **quote}


def share_of(question: Question, texts: dict[str, str], returned: str) -> float:
    """Return the share of a question's messages whose words are in a text."""
    return statistics.mean(texts[id] in returned for id in question.evidence)


# == Graph ===================================================================================


WAYS = {
    "text alone": RetrieverConfig(RetrievalStrategy.KNOWLEDGE_ONLY),
    "text and the names of keywords": RetrieverConfig(),
    "text 0.8, distance in the graph 0.2": RetrieverConfig(scoring=Hybrid(ScoreWeights(0.8, 0.2, 0.0, 0.0)), depth=2),
}


def measure_graph(
    parts: Sequence[tuple[list[Memory], list[Question]]], models: list[AnnotatingModel], folder: Path,
    report: common.Report,
) -> None:  # fmt: skip
    """Print the evidence among the first five and ten, by recalls that do and do not use the graph."""
    shares: dict[tuple[str, int], list[float]] = defaultdict(list)
    sizes = [0, 0]
    for number, ((memories, questions), model) in enumerate(zip(parts, models, strict=True)):
        texts = {memory.id: memory.text for memory in memories}
        with MemoryStore(folder / "graph", user=str(number), llm_client=model, extract="model") as store:
            for memory in memories:
                store.remember(memory.text, source=memory.source)
            sizes[0] += len(store.tree) - 1
            sizes[1] += sum(len(said.relations) for said, _ in store.retriever.index.sayings().values())
            for question in questions:
                for name, config in WAYS.items():
                    found = store.recall(question.text, TOP, config=config)
                    for cut in (5, 10):
                        returned = "\n".join(each.info.content for each in found[:cut])
                        shares[name, cut].append(share_of(question, texts, returned))
    rows = [[name, *(f"{100 * statistics.mean(shares[name, cut]):.1f}" for cut in (5, 10))] for name in WAYS]
    report.line(f"\nThe graph: {sizes[0]:,} keywords, {sizes[1]:,} relations with their quotes.")
    report.table("Graph: evidence among the first 5 and 10 memories, in percent", ["recall by", "@5", "@10"], rows)


# == Memories and brief ======================================================================


def measure_memories(
    parts: Sequence[tuple[list[Memory], list[Question]]], models: list[AnnotatingModel], folder: Path,
    report: common.Report,
) -> None:  # fmt: skip
    """Print the evidence within budgets of tokens, from the sessions alone, with memories, and after the brief."""
    shares: dict[tuple[str, int], list[float]] = defaultdict(list)
    tokens: dict[tuple[str, int], list[int]] = defaultdict(list)
    derived = 0
    for number, ((memories, questions), model) in enumerate(zip(parts, models, strict=True)):
        texts = {memory.id: memory.text for memory in memories}
        with ContextEngineService(folder / f"engine-{number}", llm=model) as engine:
            commit(engine, memories)
            derived += sum(not each.is_dir for each in engine.list_children(ADA, MEMORIES, recursive=True))
            for question in questions:
                for budget in BUDGETS:
                    for name, ask in returned_by(engine, question.text, budget).items():
                        text = ask()
                        shares[name, budget].append(share_of(question, texts, text))
                        tokens[name, budget].append(count_tokens(text))
    names = list(dict.fromkeys(name for name, _ in shares))
    mean = statistics.mean
    cells = {key: f"{100 * mean(found):.1f} ({mean(tokens[key]):.0f})" for key, found in shares.items()}
    rows = [[name, *(cells[name, budget] for budget in BUDGETS)] for name in names]
    report.line(f"\nMemories that the model's facts became: {derived:,}.")
    columns = ["returned from", *(f"{budget} tokens" for budget in BUDGETS)]
    report.table("Memories and brief: evidence in percent (tokens used), by budget", columns, rows)


MEMORIES = "ctx://acme/users/ada/memories"


def commit(engine: ContextEngineService, memories: Sequence[Memory]) -> None:
    """Commit each source as a session, and let the model read all of it."""
    by_source: dict[str, list[Memory]] = defaultdict(list)
    for memory in memories:
        by_source[memory.source].append(memory)
    for source, held in by_source.items():
        said = [
            {"id": each.id, "role": "user", "content": each.text, "at": each.when.isoformat() if each.when else None}
            for each in held
        ]
        engine.commit_session(RequestContext("acme", "ada", "helper", source.replace("/", "-")), said)
    engine.work()


def returned_by(engine: ContextEngineService, query: str, budget: int) -> dict[str, Callable[[], str]]:
    """Return, by name, each way of spending a budget on a question."""

    def search(budget: int, categories: list[str] | None = None) -> str:
        found = engine.search_memory(ADA, query, categories=categories, top_k=40, budget_tokens=budget)
        return "\n".join(block.content_excerpt or block.abstract for block in found.blocks)

    def after_brief() -> str:
        brief = engine.brief(ADA, int(budget * BRIEF_SHARE))
        return f"{brief.text}\n{search(budget - brief.tokens, ['sessions'])}"

    return {
        "sessions": lambda: search(budget, ["sessions"]),
        "sessions and memories": lambda: search(budget),
        "the brief first, then sessions": after_brief,
    }


def run(argv: Sequence[str] | None = None) -> None:
    """Measure the layers that are wanted."""
    options = common.parser(__doc__)
    options.add_argument("--memdaily", type=Path, required=True, help="the folder data_generation of MemSim")
    options.add_argument("--users", type=int, default=0, help="the first so many of the 50 (default: all; quickly 3)")
    chosen: Namespace = options.parse_args(argv)
    count = chosen.users or (3 if chosen.quick else 50)
    annotations = json.loads((chosen.memdaily / "graphs.json").read_text(encoding="utf-8"))[:count]
    parts = read_memdaily(chosen.memdaily / "final_dataset" / "messages_and_QAs")[:count]
    with common.working_folder(chosen) as folder:
        report = common.Report("Derived layers, on and off", chosen, folder)
        sizes = [sum(len(part[place]) for part in parts) for place in (0, 1)]
        report.line(f"\nMemDaily: {len(parts)} users, {sizes[0]:,} messages, {sizes[1]:,} questions")
        for name, measure in (("graph", measure_graph), ("memories", measure_memories)):
            if common.wanted(chosen, name):
                measure(parts, [AnnotatingModel(each) for each in annotations], folder, report)


if __name__ == "__main__":
    run()
