"""Whatever is passed in: a clear error of the library, which names the value, and nothing is written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent.base.checks import shorten
from Agent.keyword_tree import KeywordTreeError, NotFoundError
from Agent.memory.eviction import Capacity, RecallBased
from Agent.memory.graph import GraphEntity, GraphRelation
from Agent.memory.retriever import RetrieverConfig
from Agent.memory.schemas import EpisodeTrace, SemanticPattern
from Agent.memory.store import MemoryStore

DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path) as opened:
        opened.remember("Ada lives in Rome.")
        yield opened


Call = Callable[[MemoryStore, Any], object]

CALLS: dict[str, Call] = {
    "remember": lambda store, value: store.remember(value),
    "keywords": lambda store, value: store.remember("x", keywords=value),
    "metadata": lambda store, value: store.remember("x", metadata={"own": value} if value is DEEP else value),
    "pinned": lambda store, value: store.remember("x", pinned=value),
    "recall": lambda store, value: store.recall(value),
    "kinds": lambda store, value: store.recall("x", kinds=value),
    "sources": lambda store, value: store.recall("x", sources=value),
    "since": lambda store, value: store.recall("x", since=value),
    "filter": lambda store, value: store.recall("x", metadata=value),
    "limit": lambda store, value: store.recall("x", limit=value),
    "strategy": lambda _, value: RetrieverConfig(strategy=value),
    "depth": lambda _, value: RetrieverConfig(depth=value),
    "min_score": lambda _, value: RetrieverConfig(min_score=value),
    "correct": lambda store, value: store.correct(value, "x"),
    "correction": lambda store, value: store.correct(store.recall("Ada")[0].info.id, value),
    "forget": lambda store, value: store.forget(value),
    "pin": lambda store, value: store.pin(value),
    "history": lambda store, value: store.history(value),
    "record": lambda store, value: store.record(value),
    "record_recall": lambda store, value: store.record_recall(value, 0.5),
    "score": lambda store, value: store.record_recall(store.recall("Ada")[0].info.id, value),
    "policy": lambda store, value: store.plan_forgetting(value),
    "max_items": lambda store, value: store.plan_forgetting(RecallBased(value)),
    "capacity": lambda store, value: store.plan_forgetting(Capacity(value)),
    "recall_weight": lambda store, value: store.plan_forgetting(RecallBased(1, recall_weight=value)),
    "recency_weight": lambda store, value: store.plan_forgetting(RecallBased(1, recency_weight=value)),
    "extract": lambda store, value: store.extract(value),
    "extract_pending": lambda store, value: store.extract_pending(value),
    "tree: entity": lambda store, value: store.graph.get_related(value),
    "tree: name": lambda store, value: store.graph.add_entity(GraphEntity("x", value)),
    "tree: tags": lambda store, value: store.graph.add_entity(GraphEntity("x", "y", tags=value)),
    "tree: aliases": lambda store, value: store.graph.add_entity(GraphEntity("x", "y", aliases=value)),
    "tree: ends": lambda store, value: store.graph.add_relation(GraphRelation(value, value, "x")),
    "tree: removal": lambda store, value: store.graph.remove_entity(value),
}
WITH_NONE = [
    *("remember", "keywords", "recall", "policy", "recall_weight", "recency_weight"),
    *("extract", "correct", "forget"),
]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_list_nested_5000_deep_is_refused(store: MemoryStore, call: Call) -> None:
    count = len(store.tree.History())
    with pytest.raises(KeywordTreeError) as caught:
        call(store, DEEP)

    assert len(str(caught.value)) < 300
    assert len(store.tree.History()) == count
    assert store.tree.Verify() == []


@pytest.mark.parametrize("name", WITH_NONE)
def test_none_is_refused_where_something_is_needed(store: MemoryStore, name: str) -> None:
    with pytest.raises(KeywordTreeError, match="None"):
        CALLS[name](store, None)


@pytest.mark.parametrize("record", [EpisodeTrace.create("t", "a", "g"), SemanticPattern.create("p", "c")])
def test_a_record_with_a_list_nested_5000_deep_is_named_and_not_kept(store: MemoryStore, record: Any) -> None:
    for name in ("files_read", "action_log", "outcome", "conditions", "links", "category"):
        if hasattr(record, name):
            setattr(record, name, [DEEP] if isinstance(getattr(record, name), list) else DEEP)
    messages = record.validate()

    assert messages
    with pytest.raises(KeywordTreeError):
        store.remember(record)
    assert type(record).from_dict({**record.to_dict(), "action_log": [], "links": []}).validate()


@pytest.mark.parametrize("bar", [-0.1, 1.5, 80, float("nan"), "0.5"])
def test_a_bar_that_no_score_can_have_is_refused(store: MemoryStore, bar: Any) -> None:
    with pytest.raises(KeywordTreeError, match=f"min_score must be a number from 0 to 1, not {bar!r}"):
        store.recall("Ada", min_score=bar)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("since", "yesterday", "or an ISO date, not 'yesterday'"),
        ("remember", 7, "not 7"),
        ("strategy", "texts", "hybrid or knowledge_only or graph_only, not 'texts'"),
    ],
)
def test_an_error_names_the_value_and_all_that_would_do(store: MemoryStore, name: str, value: Any, said: str) -> None:
    with pytest.raises(KeywordTreeError, match=said):
        CALLS[name](store, value)


def test_counting_a_recall_of_what_is_not_there_is_refused(store: MemoryStore) -> None:
    with pytest.raises(NotFoundError, match="missing"):
        store.record_recall("missing", 0.5)
    id = store.recall("Ada")[0].info.id
    store.record_recall(id, 1.0)

    assert store._recalls.stats()[id].recall_count == 2


def test_a_value_is_named_shortly_however_deep_it_is() -> None:
    assert len(shorten(DEEP)) < 60
    assert len(shorten("x" * 1_000)) < 80
    assert shorten(None) == "None"
