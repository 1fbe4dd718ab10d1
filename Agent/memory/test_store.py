"""Tests of `store`: each door of `MemoryStore`, one operation each, and namespaces that do not leak."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.keyword_tree import InvalidInputError, KeywordTree, NotFoundError
from Agent.memory.eviction import DAY_S, Capacity, RecallBased, Ttl
from Agent.memory.graph import GraphRelation
from Agent.memory.schemas import EpisodeTrace, ProceduralSkill, SemanticPattern
from Agent.memory.store import MemoryStore, Record, namespace_folder, record_of


class Clock:
    now = 1000 * DAY_S

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[MemoryStore]:
    with MemoryStore(tmp_path, user="ada", clock=clock) as store:
        yield store


def recalled(store: MemoryStore, query: str) -> list[str]:
    return [memory.info.content for memory in store.recall(query)]


def operations(store: MemoryStore) -> list[str]:
    return [change.op for change in store.tree.Changes()][1:]


RECORDS: list[Record] = [
    EpisodeTrace.create("task-1", "developer", "Fix the login of the kettle"),
    SemanticPattern.create("Kettles want water", "kitchen", ["when boiling"]),
    ProceduralSkill.create("泡茶 brewing", "How to brew with a kettle", ["boil", "pour"]),
]


class TestRemember:
    def test_keeps_a_fact_in_one_operation(self, store: MemoryStore) -> None:
        id = store.remember("Ada 喜欢龙井。", ["Ada", "饮食 / 茶"], "chat", {"mood": "good"}, created_by="ada")

        assert operations(store) == ["remember"]
        info = store.tree.GetInfo(id)
        assert info is not None
        assert (info.content, info.source, info.created_by) == ("Ada 喜欢龙井。", "chat", "ada")
        assert info.metadata == {"mood": "good", "memory": {"kind": "fact"}}
        assert [node.name for node, _ in store.tree.GetKeywordsOfInfo(id)] == ["Ada", "饮食 / 茶"]

    def test_without_keywords_is_one_operation_too(self, store: MemoryStore) -> None:
        store.remember("plain")

        assert len(operations(store)) == 1

    def test_uses_the_keywords_that_are_there(self, store: MemoryStore) -> None:
        tea = store.tree.CreateKeyword("茶", store.tree.CreateKeyword("饮食").id, ["tea"])
        for name in ("TEA", "饮食/茶"):
            id = store.remember("hot", [name])
            assert [node.id for node, _ in store.tree.GetKeywordsOfInfo(id)] == [tea.id]

    @pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
    def test_keeps_a_record_whole(self, store: MemoryStore, record: Record) -> None:
        assert store.remember(record) == record.id

        found = store.recall("kettle")[0]
        assert record_of(found.info) == record

    def test_of_the_same_id_takes_its_place(self, store: MemoryStore) -> None:
        store.remember(RECORDS[2], ["茶"])
        store.remember(ProceduralSkill.create("泡茶 brewing", "With the samovar", ["light it"]), ["Russia"])

        assert (len(recalled(store, "kettle")), len(recalled(store, "samovar"))) == (0, 1)
        assert [node.name for node, _ in store.tree.GetKeywordsOfInfo(RECORDS[2].id)] == ["茶", "Russia"]
        assert len(store.tree.History(RECORDS[2].id)) == 2

    def test_refuses_what_is_not_valid_and_writes_nothing(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidInputError, match=r"EpisodeTrace\.goal is required"):
            store.remember(EpisodeTrace.create("t", "a", ""))
        with pytest.raises(InvalidInputError, match="blank"):
            store.remember("  ", ["keyword"])
        with pytest.raises(InvalidInputError, match="must be a list"):
            store.remember("fact", "keyword")
        with pytest.raises(InvalidInputError, match="without the key 'memory'"):
            store.remember("fact", metadata={"memory": 1})
        with pytest.raises(InvalidInputError, match="one of the schemas"):
            store.remember(5)  # type: ignore[arg-type]
        assert operations(store) == []

    def test_takes_back_new_keywords_where_the_fact_cannot_be_kept(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidInputError):
            store.remember("fact", ["new keyword"], metadata={"not": float("nan")})

        assert store.tree.FindByName("new keyword") == []


class TestRecall:
    def test_filters(self, store: MemoryStore, clock: Clock) -> None:
        clock.now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        store.remember("tea one", source="chat", metadata={"n": 1})
        clock.now = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
        store.remember("tea two", source="book")

        assert [memory.info.content for memory in store.recall("tea", since=datetime(2026, 2, 1, tzinfo=UTC))] == [
            "tea two"
        ]
        assert [memory.info.content for memory in store.recall("tea", sources=["chat"])] == ["tea one"]
        assert [memory.info.content for memory in store.recall("tea", metadata={"n": 1})] == ["tea one"]
        assert store.recall("tea", kinds=["skill"]) == []

    def test_writes_nothing_to_the_log(self, store: MemoryStore) -> None:
        store.remember("tea")
        before = operations(store)
        for _ in range(300):
            store.recall("tea")

        assert operations(store) == before

    def test_shows_an_operation_when_it_has_ended(self, store: MemoryStore) -> None:
        with store.tree.Operation("learn"):
            store.remember("tea")
            assert recalled(store, "tea") == []
        assert recalled(store, "tea") == ["tea"]


class TestCorrect:
    def test_replaces(self, store: MemoryStore) -> None:
        first = store.remember("Ada lives in Paris.", ["Ada"], "chat", {"mine": 1}, pinned=True)
        second = store.correct(first, "Ada lives in Rome.")
        third = store.correct(second, "Ada 住在杭州。", source="letter", keywords=["杭州"])

        assert recalled(store, "Where does Ada live? 住 Paris Rome") == ["Ada 住在杭州。"]
        assert operations(store) == ["remember", "correct", "correct"]
        found = store.tree.Search("Ada")
        assert [info.id for info in found.infos] == [third]
        info = store.tree.GetInfo(third)
        assert info is not None
        assert info.metadata == {"mine": 1, "memory": {"kind": "fact", "pinned": True, "supersedes": second}}
        assert [(version.content, version.source) for version in store.history(first)] == [
            ("Ada 住在杭州。", "letter"),
            ("Ada lives in Rome.", "chat"),
            ("Ada lives in Paris.", "chat"),
        ]
        assert store.history(first) == store.history(second) == store.history(third)

    def test_of_what_was_superseded_corrects_what_superseded_it(self, store: MemoryStore) -> None:
        first = store.remember("Paris")
        store.correct(first, "Rome")
        store.correct(first, "Hangzhou")

        assert [version.content for version in store.history(first)] == ["Hangzhou", "Rome", "Paris"]
        assert recalled(store, "Paris Rome Hangzhou") == ["Hangzhou"]

    def test_from_many_threads_leaves_one(self, store: MemoryStore) -> None:
        first = store.remember("place 0", ["place"])
        threads = [threading.Thread(target=store.correct, args=(first, f"place {n}")) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(recalled(store, "place")) == 1
        assert len(store.history(first)) == 9

    def test_is_undone(self, store: MemoryStore) -> None:
        first = store.remember("Paris", ["Ada"])
        store.correct(first, "Rome")
        store.tree.Undo(store.tree.History(limit=1)[0].operation_id)

        assert recalled(store, "Paris Rome") == ["Paris"]
        assert [info.id for info in store.tree.Search("Ada").infos] == [first]

    def test_survives_opening_and_a_compaction_without_history(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as store:
            id = store.correct(store.remember("Paris"), "Rome")
            store.tree.CompactStorage(keep_history=False)
        with MemoryStore(tmp_path) as store:
            assert recalled(store, "Paris Rome") == ["Rome"]
            assert [version.content for version in store.history(id)] == ["Rome", "Paris"]

    def test_refuses_what_it_cannot_correct(self, store: MemoryStore) -> None:
        store.remember(RECORDS[2])
        with pytest.raises(NotFoundError):
            store.correct("nobody", "x")
        with pytest.raises(NotFoundError):
            store.history("nobody")
        with pytest.raises(InvalidInputError, match="no plain fact"):
            store.correct(RECORDS[2].id, "x")
        with pytest.raises(InvalidInputError, match="must be a fact"):
            store.correct(RECORDS[2].id, " ")
        assert len(operations(store)) == 1


class TestForget:
    def test_one_takes_all_its_versions_and_can_be_undone(self, store: MemoryStore) -> None:
        id = store.correct(store.remember("Paris", ["Ada"]), "Rome")
        operation = store.forget(id)

        assert (recalled(store, "Paris Rome"), store.tree.TreeMetrics()["infos"]) == ([], 0)
        store.tree.Undo(operation)
        assert recalled(store, "Paris Rome") == ["Rome"]
        assert [version.content for version in store.history(id)] == ["Rome", "Paris"]

    def test_a_plan_changes_nothing(self, store: MemoryStore) -> None:
        for number in range(3):
            store.remember(f"tea {number}")
        plan = store.plan_forgetting(Capacity(1))

        assert (len(plan.doomed), plan.kept) == (2, 1)
        assert len(operations(store)) == 3

    def test_a_plan_is_one_operation(self, store: MemoryStore, clock: Clock) -> None:
        for number in range(3):
            clock.now += DAY_S
            store.remember(f"tea {number}")
        operation = store.forget(store.plan_forgetting(Capacity(1)))

        assert recalled(store, "tea") == ["tea 2"]
        assert operations(store)[3:] == ["forget"]
        store.tree.Undo(operation)
        assert len(recalled(store, "tea")) == 3

    def test_keeps_what_is_recalled(self, store: MemoryStore) -> None:
        for number in range(3):
            store.remember(f"tea cup{number}")
        store.recall("cup1", 1)

        store.forget(store.plan_forgetting(RecallBased(1)))
        assert recalled(store, "tea") == ["tea cup1"]

    def test_remembers_recalls_over_an_opening(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as store:
            ids = [store.remember(f"tea cup{number}") for number in range(2)]
            store.recall("cup1", 1)
        with MemoryStore(tmp_path) as store:
            assert [doomed.id for doomed in store.plan_forgetting(RecallBased(1)).doomed] == [ids[0]]

    def test_lets_the_pinned_stay(self, store: MemoryStore, clock: Clock) -> None:
        ids = [store.remember("Paris", pinned=True), store.remember("Rome"), store.remember("Lhasa")]
        clock.now += 10 * DAY_S
        plan = store.plan_forgetting(Ttl(DAY_S))
        assert [doomed.id for doomed in plan.doomed] == ids[1:]
        store.pin(ids[1])
        store.forget(plan)

        assert recalled(store, "Paris Rome Lhasa") == ["Paris", "Rome"]
        store.pin(ids[0], False)
        store.forget(store.plan_forgetting(Ttl(DAY_S)))
        assert recalled(store, "Paris Rome Lhasa") == ["Rome"]

    def test_passes_over_what_is_gone(self, store: MemoryStore) -> None:
        ids = [store.remember("one"), store.remember("two")]
        plan = store.plan_forgetting(Capacity(0))
        store.forget(ids[0])
        store.forget(plan)

        assert store.retriever.known() == {}
        with pytest.raises(NotFoundError):
            store.forget(ids[0])


class TestNamespaces:
    def test_do_not_leak(self, tmp_path: Path) -> None:
        names = [
            {},
            {"user": "a"},
            {"user": "A"},
            {"user": "a", "agent": "b"},
            {"agent": "a"},
            {"user": "a", "session": "b"},
        ]
        for number, name in enumerate(names):
            with MemoryStore(tmp_path, **name) as store:  # type: ignore[arg-type]
                store.remember(f"tea {number}")
        for number, name in enumerate(names):
            with MemoryStore(tmp_path, **name) as store:  # type: ignore[arg-type]
                assert recalled(store, "tea") == [f"tea {number}"]
                assert store.tree.Verify() == []

    @given(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        st.text(st.characters(codec="utf-8"), max_size=20),
    )
    def test_have_a_folder_each_beneath_their_own(self, one: str, other: str) -> None:
        places = []
        for name in (one, other):
            try:
                places.append(namespace_folder("data", user=name))
            except InvalidInputError:
                continue
        for place in places:
            assert len(place.parts) == 3
            assert ".." not in place.parts
        if len(places) == 2:
            assert (str(places[0]).casefold() == str(places[1]).casefold()) == (one == other)

    @pytest.mark.parametrize("name", ["", "  ", "a\nb", "\u200b", "e\u0301", "x" * 201, "茶" * 70, 5])
    def test_refuse_names_that_mislead(self, name: str) -> None:
        with pytest.raises(InvalidInputError, match="user"):
            namespace_folder("data", user=name)

    def test_may_be_called_in_chinese(self, tmp_path: Path) -> None:
        assert namespace_folder(tmp_path, user="小明").parent.name == "user=小明"


class TestReadable:
    def test_as_a_tree_and_as_a_graph(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as store:
            store.remember("tea", ["茶", "杭州"])
            tea, city = (store.tree.FindByName(name)[0].id for name in ("茶", "杭州"))
            store.graph.add_relation(GraphRelation(tea, city, "comes_from"))
        with KeywordTree(str(tmp_path / "memory")) as tree:
            assert [info.content for info in tree.Search("茶").infos] == ["tea"]
            assert tree.Verify() == []
