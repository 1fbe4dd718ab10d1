"""Tests of the outbox and its workers: claims, leases, back-off, dead letters, and an index that never goes back."""

from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine import ContextEngineService, ContextNode, RequestContext
from Agent.context_engine.core.config import UPSERT_CONTEXT
from Agent.context_engine.core.errors import ProviderDownError
from Agent.context_engine.core.objects import OutboxEvent, RelationEdge
from Agent.context_engine.fs.context_fs import ContextFS
from Agent.context_engine.index.index_worker import IndexProjector, record_id
from Agent.context_engine.index.outbox_store import OutboxStore
from Agent.tests.support.threads import in_threads

ADA = RequestContext("acme", "ada", "helper", "s1")
SPACE = "ctx://acme/users/ada"
TEA = f"{SPACE}/memories/preferences/tea"


def event(uri: str, recursive: bool = False, kind: str = UPSERT_CONTEXT, **payload: Any) -> OutboxEvent:
    return OutboxEvent("", kind, uri, {"recursive": True, **payload} if recursive else payload, "", 0, 0.0)


@pytest.fixture
def outbox(fs: ContextFS, clock: Any) -> OutboxStore:
    """Return an empty outbox."""
    return OutboxStore(fs.journal, clock, jitter=lambda: 1.0)


class TestClaiming:
    def test_takes_the_oldest_of_each_uri(self, outbox: OutboxStore) -> None:
        made = outbox.append_batch([event(TEA), event(TEA), event(f"{SPACE}/x")])
        claimed = outbox.claim_batch("one", 10)

        assert [each.event_id for each in claimed] == [made[0].event_id, made[2].event_id]
        assert outbox.claim_batch("two", 10) == []
        outbox.mark_done(made[0].event_id, "one")
        assert outbox.counts() == {"held": 0, "pending": 0, "leased": 1, "dead": 0}  # one look has served both

    @pytest.mark.parametrize(
        ("events", "claimed"),
        [
            ([event(SPACE, recursive=True), event(TEA)], 1),  # what is under it waits
            ([event(f"{SPACE}/a", True, "MOVE_CONTEXT", to_uri=f"{SPACE}/b"), event(f"{SPACE}/b/c")], 1),
            ([event(f"{SPACE}/tea", recursive=True), event(f"{SPACE}/teapot")], 2),  # another name
        ],
        ids=["a recursive one", "both ends of a move", "a name that begins with it"],
    )
    def test_keeps_what_one_look_covers_apart(
        self, outbox: OutboxStore, events: list[OutboxEvent], claimed: int
    ) -> None:
        outbox.append_batch(events)

        assert [each.uri for each in outbox.claim_batch("one", 10)] == [each.uri for each in events[:claimed]]
        assert outbox.claim_batch("two", 10) == []

    def test_gives_each_event_to_one_of_many_workers(self, outbox: OutboxStore) -> None:
        outbox.append_batch([event(f"{SPACE}/{number}") for number in range(60)])
        claimed: list[str] = []

        def claim(name: str) -> None:
            while batch := outbox.claim_batch(name, 3):
                claimed.extend(each.event_id for each in batch)

        in_threads(claim, "1234")

        assert len(claimed) == len(set(claimed)) == 60


class TestLeases:
    def test_can_be_renewed(self, outbox: OutboxStore, clock: Any) -> None:
        made = outbox.append(event(TEA))
        outbox.claim_batch("one", 1)
        for _ in range(5):
            clock.now += 20
            assert outbox.renew(made.event_id, "one")
        assert outbox.claim_batch("two", 1) == []


class TestFailing:
    def test_comes_again_later_each_time_and_is_dead_at_last(self, outbox: OutboxStore, clock: Any) -> None:
        made = outbox.append(event(TEA))
        pauses = []
        for _ in range(8):
            began = clock.now
            while not outbox.claim_batch("one", 1):
                clock.now += 0.5
            pauses.append(clock.now - began)
            outbox.mark_failed(made.event_id, "no")

        assert pauses == [0, 1, 2, 4, 8, 16, 32, 64]
        assert outbox.counts()["dead"] == 1
        assert outbox.dead()[0]["error"] == "no"
        assert outbox.requeue() == 1
        assert len(outbox.claim_batch("one", 1)) == 1

    def test_at_once_where_no_retry_helps(self, outbox: OutboxStore) -> None:
        made = outbox.append(event(TEA))
        outbox.mark_failed(made.event_id, "never", retryable=False)

        assert outbox.counts()["dead"] == 1
        assert outbox.requeue("missing") == 0
        assert outbox.requeue(made.event_id) == 1

    def test_lets_other_events_of_the_place_go_on(self, outbox: OutboxStore) -> None:
        made = outbox.append_batch([event(TEA), event(TEA)])
        outbox.claim_batch("one", 1)
        outbox.mark_failed(made[0].event_id, "no")

        assert [each.event_id for each in outbox.claim_batch("one", 1)] == [made[1].event_id]


class TestWorker:
    def test_counts_what_it_did_and_lets_one_failure_stop_nothing(self, engine: ContextEngineService) -> None:
        def fail(made: OutboxEvent, ctx: RequestContext) -> None:
            raise {"a": ProviderDownError("down"), "b": ValueError("bad")}[made.uri[-1]]

        engine.worker.handlers["FAIL"] = fail
        engine.worker.handlers["DOWN"] = fail
        events = [event(f"{SPACE}/x/a", kind="DOWN"), event(f"{SPACE}/x/b", kind="FAIL"), event(f"{SPACE}/x/c")]
        engine.outbox.append_batch([*events, event(f"{SPACE}/x/d", kind="UNKNOWN")])
        done = engine.worker.run_once()

        assert (done.claimed, done.succeeded, done.failed, done.retried) == (4, 1, 1, 2)
        assert engine.outbox.counts() == {"held": 0, "pending": 2, "leased": 0, "dead": 1}

    def test_hands_edges_to_the_graph_and_takes_them_away(self, tmp_path: Path) -> None:
        class Graph:
            def __init__(self) -> None:
                self.edges: list[RelationEdge] = []

            def upsert_edges(self, edges: Any) -> None:
                self.edges += edges

            def remove_edges(self, from_uri: str) -> None:
                self.edges = [edge for edge in self.edges if edge.from_uri != from_uri]

            def neighbors(self, uri: str, relation_types: Any = None, depth: int = 1) -> list[RelationEdge]:
                return [edge for edge in self.edges if edge.from_uri == uri]

        graph, edge = Graph(), RelationEdge(TEA, f"{SPACE}/x", "near")
        with ContextEngineService(tmp_path, graph=graph) as engine:
            engine.write_node(ADA, ContextNode(TEA, "", "memory", "preferences", "", "tea"))
            engine.relations.upsert_edges(ADA, TEA, [edge])
            engine.work()
            assert graph.edges == [edge]
            engine.relations.remove_edges(ADA, TEA)
            engine.work()
            assert graph.edges == []
            engine.relations.upsert_edges(ADA, TEA, [edge])
            engine.move_node(ADA, TEA, f"{TEA}-2")
            engine.work()
            assert [each.from_uri for each in graph.edges] == [f"{TEA}-2"]
            engine.delete_node(ADA, f"{TEA}-2")
            engine.work()
            assert graph.edges == []
            engine.write_node(ADA, ContextNode(f"{TEA}-3", "", "memory", "preferences", "", "tea"))
            engine.relations.upsert_edges(ADA, f"{TEA}-3", [RelationEdge(f"{TEA}-3", f"{SPACE}/x", "near")])
            engine.work()
            engine.forget(ADA, f"{TEA}-3")

        assert graph.edges == []


class TestProjector:
    def test_gives_each_level_and_passage_an_id_that_stays(self) -> None:
        node = ContextNode(TEA, f"{SPACE}/memories", "memory", "preferences", "user:ada", "a", "b", "- one\n- two\n",
                           {"title": "Tea", "sequence": 3})  # fmt: skip
        records = IndexProjector().build_context_records(node)

        assert [(each.level, each.part, each.text) for each in records] == [
            (0, 0, "Tea\na"), (1, 0, "b"), (2, 0, "one"), (2, 1, "two"),
        ]  # fmt: skip
        assert [each.id for each in records] == [record_id(TEA, level, part) for level, part in
                                                 ((0, 0), (1, 0), (2, 0), (2, 1))]  # fmt: skip
        assert {each.sequence for each in records} == {3}
