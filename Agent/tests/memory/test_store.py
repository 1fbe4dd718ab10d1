"""Tests of `store`: each door of `MemoryStore`, one operation each, and namespaces that do not leak."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.finding.embedder import HashingEmbedder
from Agent.keyword_tree import (
    ClosedError,
    Info,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    RelationType,
    StubLLMClient,
)
from Agent.memory.eviction import DAY_S, Capacity, HybridEviction, NoEviction, RecallBased, RecallLog, Ttl
from Agent.memory.retriever import RetrievalStrategy, RetrieverConfig
from Agent.memory.schemas import EpisodeTrace, ProceduralSkill, SemanticPattern
from Agent.memory.scoring import Hybrid
from Agent.memory.store import MemoryStore, Record, namespace_folder, record_of
from Agent.tests.support.clocks import Clock
from Agent.tests.support.threads import in_threads


def without_graph(info: Info) -> dict[str, object]:
    """Return what a memory keeps of its own, but for what was read of it for the graph."""
    return {name: value for name, value in info.metadata["memory"].items() if name != "graph"}


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
        store.remember("Ada 喜欢碧螺春。", ["ADA", "饮食 / 茶"])
        store.remember("plain")
        assert len(operations(store)) == 3
        info = store.tree.GetInfo(id)
        assert info is not None
        assert (info.content, info.source, info.created_by) == ("Ada 喜欢龙井。", "chat", "ada")
        assert info.metadata.keys() == {"mood", "memory"}
        assert info.metadata["mood"] == "good"
        assert info.metadata["memory"] == {"kind": "fact"}
        assert [node.name for node, _ in store.tree.GetKeywordsOfInfo(id)] == ["Ada", "茶"]  # at the end of a path

    def test_makes_a_keyword_again_that_went_meanwhile(
        self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tea = store.tree.CreateKeyword("tea")
        find_by_name = KeywordTree.FindByName

        def find_and_delete(self: KeywordTree, name: str, page: int, size: int) -> list[KeywordNode]:
            found = find_by_name(self, name, page, size)
            monkeypatch.undo()
            self.DeleteKeyword(tea.id)
            return found

        monkeypatch.setattr(KeywordTree, "FindByName", find_and_delete)
        id = store.remember("hot", ["tea"])

        assert [node.name for node, _ in store.tree.GetKeywordsOfInfo(id)] == ["tea"]

    def test_uses_the_keywords_that_are_there(self, store: MemoryStore) -> None:
        tea = store.tree.CreateKeyword("茶", store.tree.CreateKeyword("饮食").id, ["tea"])
        for name in ("TEA", "饮食/茶", tea.id):
            id = store.remember("hot", [name])
            assert [node.id for node, _ in store.tree.GetKeywordsOfInfo(id)] == [tea.id]

    @pytest.mark.parametrize(
        ("there", "name"),
        [pair.split(",") for pair in ("C#,C", "C,C#", "C++,C", ".NET,Net", "茶!,茶", "绿 茶,绿茶", "x,root", "x,Root")],
    )
    def test_is_linked_to_the_keyword_that_was_named(self, store: MemoryStore, there: str, name: str) -> None:
        store.remember("one", [there])
        for _ in range(2):
            id = store.remember("two", [name])
            assert [(node.name, node.parent_id) for node, _ in store.tree.GetKeywordsOfInfo(id)] == [(name, "root")]
        assert store.tree.Verify() == []

    def test_asks_no_model_what_a_name_means(self, tmp_path: Path) -> None:
        client = StubLLMClient([])
        with MemoryStore(tmp_path, llm_client=client, extract=None) as asked:
            asked.remember("hot", ["tea"])
            asked.remember("hotter", ["coffee"])
        assert client.calls == []

    def test_a_path_leads_down_by_names_and_aliases(self, store: MemoryStore) -> None:
        green = store.tree.Ensure("drinks/tea/green")
        store.tree.Ensure("paints/green")
        store.tree.AddAlias(store.tree.Ensure("drinks/tea").id, "茶")
        for path in ("tea/green", "drinks / 茶 / GREEN"):
            id = store.remember("fresh", [path])
            assert [node.id for node, _ in store.tree.GetKeywordsOfInfo(id)] == [green.id]
        id = store.remember("a band", ["AC/DC"])  # leads nowhere: it is made as `Ensure` makes it
        assert [node.id for node, _ in store.tree.GetKeywordsOfInfo(id)] == [store.tree.Ensure("AC/DC").id]

    @pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
    def test_keeps_a_record_whole(self, store: MemoryStore, record: Record) -> None:
        assert store.remember(record) == record.id

        found = store.recall("kettle")[0]
        assert record_of(found.info) == record

    @pytest.mark.usefixtures("own_words")
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
        for keywords in ("keyword", None, 5, [5], [["a"]], [""], ["\ud800"]):
            with pytest.raises(InvalidInputError):
                store.remember("fact", keywords)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="without the key 'memory'"):
            store.remember("fact", metadata={"memory": 1})
        with pytest.raises(InvalidInputError, match="as ProceduralSkill is, not 5"):
            store.remember(5)  # type: ignore[arg-type]
        assert operations(store) == []

    def test_takes_back_new_keywords_where_the_fact_cannot_be_kept(self, store: MemoryStore) -> None:
        with pytest.raises(InvalidInputError):
            store.remember("fact", ["new keyword"], metadata={"not": float("nan")})

        assert store.tree.FindByName("new keyword") == []

    def test_again_keeps_the_pin_and_what_it_is_linked_to(self, store: MemoryStore, clock: Clock) -> None:
        store.remember(RECORDS[2], ["茶"], pinned=True)
        kettle = store.tree.CreateKeyword("kettle")
        store.tree.LinkInfo(RECORDS[2].id, kettle.id, RelationType.EXAMPLE)
        store.remember(RECORDS[2], ["kettle"])
        clock.now += DAY_S

        assert store.plan_forgetting(Ttl(1.0)).evictions == []
        relations = [relation for _, relation in store.tree.GetKeywordsOfInfo(RECORDS[2].id)]
        assert relations == [RelationType.PRIMARY, RelationType.EXAMPLE]

    def test_refuses_an_id_of_another_kind(self, store: MemoryStore) -> None:
        fact = store.remember("Ada lives in Paris.")
        other = store.tree.CreateInfo("not ours").id
        for id in (fact, other):
            with pytest.raises(InvalidInputError, match="which is no skill"):
                store.remember(ProceduralSkill(id, "n", "d", steps=["s"]))

        assert recalled(store, "Ada") == ["Ada lives in Paris."]

    @pytest.mark.parametrize("keywords", [[], ["茶"]])
    def test_by_two_stores_at_once_is_one_memory(self, tmp_path: Path, keywords: list[str]) -> None:
        with MemoryStore(tmp_path) as one, MemoryStore(tmp_path) as other:
            one.remember(RECORDS[2])
            other.remember(ProceduralSkill.create("泡茶 brewing", "With the samovar", ["light it"]), keywords)

            assert len(recalled(one, "samovar")) == 1
            assert len(one.retriever.known()) == 1

    def test_by_many_threads_is_one_memory(self, store: MemoryStore) -> None:
        in_threads(lambda _: store.remember(RECORDS[2], ["茶"]), range(8))

        assert list(store.retriever.known()) == [RECORDS[2].id]

    def test_takes_a_time_without_a_zone_for_utc(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        episode = EpisodeTrace.create("t", "a", "boil the kettle")
        episode.timestamp = datetime(2026, 1, 1)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", "UTC-8")
            time.tzset()
            store.remember(episode)

            assert store.retriever.known()[episode.id].time == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
            assert len(store.recall("kettle", since="2026-01-01", until=datetime(2026, 1, 1, 4))) == 1
            assert store.recall("kettle", until=datetime(2026, 1, 1)) == []
        time.tzset()


class TestRecall:
    def test_refuses_an_unknown_kind_and_lists_the_known_ones(self, store: MemoryStore) -> None:
        store.tree.CreateInfo("tea", "chat", metadata={"memory": {"kind": "dream"}})

        with pytest.raises(InvalidInputError, match=r"'blah'; known: dream, episode, fact, pattern, skill"):
            store.recall("tea", kinds=["fact", "blah"])
        assert [memory.info.content for memory in store.recall("tea", kinds=["dream"])] == ["tea"]

    def test_a_file_given_as_folder_is_called_one(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("tea", encoding="utf-8")

        for folder in (tmp_path / "notes.txt", tmp_path / "notes.txt" / "deeper"):
            with pytest.raises(InvalidInputError, match=r"this is a file, not a folder: '.*notes\.txt'"):
                MemoryStore(folder)

    def test_the_folder_of_a_tree_is_one_memory(self, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            tree.CreateInfo("Ada drinks tea.")

        with MemoryStore(tmp_path) as store:
            assert recalled(store, "tea") == ["Ada drinks tea."]
        with pytest.raises(InvalidInputError, match="one memory is in this folder, without names"):
            MemoryStore(tmp_path, user="ada")

    def test_a_forgotten_user_is_asked_for(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        for user in ("ada", None, None, "bob"):
            MemoryStore(tmp_path, user=user).close()

        assert [record.args for record in caplog.records] == [("ada",)]

    def test_writes_nothing_to_the_log(self, store: MemoryStore) -> None:
        store.remember("tea")
        before = operations(store)
        for _ in range(3):
            store.recall("tea")

        assert operations(store) == before

    def test_shows_an_operation_when_it_has_ended(self, store: MemoryStore) -> None:
        with store.tree.Operation("learn"):
            store.remember("tea")
            assert recalled(store, "tea") == []
        assert recalled(store, "tea") == ["tea"]

    @pytest.mark.parametrize("query", ["茶" * 20_000, "tea " * 10_000 + "tea?", "\0", "\ud800", "🐍" * 9_000])
    def test_takes_any_query(self, store: MemoryStore, query: str) -> None:
        store.remember("tea 茶 🐍", ["tea"])

        assert len(store.recall(query)) == (0 if query in ("\0", "\ud800") else 1)

    def test_takes_a_very_long_memory(self, store: MemoryStore) -> None:
        store.remember("word " * 20_000 + "needle")

        found = store.recall("needle")[0]
        assert found.passage.endswith("needle")
        assert len(found.passage) <= 800

    def test_leaves_out_patterns_that_another_took_the_place_of(self, store: MemoryStore) -> None:
        old = SemanticPattern.create("kettles want water", "kitchen")
        new = SemanticPattern.create("kettles want fresh water", "kitchen")
        new.add_link(old.id, "supersedes")
        for record in (old, new):
            store.remember(record, ["kettle"])

        for strategy in RetrievalStrategy:
            found = store.recall("kettle water", config=RetrieverConfig(strategy))
            assert [memory.info.id for memory in found] == [new.id]
        assert [version.id for version in store.history(old.id)] == [new.id, old.id]
        assert [version.superseded_by for version in store.history(new.id)] == [None, new.id]
        store.forget(old.id)
        assert store.retriever.known() == {}
        assert store.tree.TreeMetrics()["infos"] == 0

    def test_is_counted_in_the_record(self, store: MemoryStore, clock: Clock) -> None:
        store.remember(RECORDS[1])
        store.recall("kettles water")
        clock.now += DAY_S
        store.recall("kettles water")
        record = store.record(RECORDS[1].id)

        assert record is not None
        assert record.access_count == 2
        assert record.last_accessed == datetime.fromtimestamp(clock.now, UTC)
        assert record_of(store.recall("kettles")[0].info) == RECORDS[1]
        assert store.record(store.remember("a plain fact")) is None
        with pytest.raises(NotFoundError):
            store.record("missing")


class TestCorrect:
    def test_keeps_how_it_hung_on_a_keyword(self, store: MemoryStore) -> None:
        first = store.remember("Paris", ["Ada"])
        tea, kettle = store.tree.CreateKeyword("tea").id, store.tree.CreateKeyword("kettle").id
        store.tree.LinkInfo(first, tea, RelationType.EXAMPLE)
        second = store.correct(first, "Rome", keywords=["kettle", "tea"])

        relations = {node.name: relation for node, relation in store.tree.GetKeywordsOfInfo(second)}
        assert relations == {"Ada": RelationType.PRIMARY, "tea": RelationType.EXAMPLE, "kettle": RelationType.PRIMARY}
        assert store.tree.GetKeywordsOfInfo(first) == []
        assert store.tree.MergeKeywords(tea, kettle).id == kettle
        assert [info.content for info in store.tree.GetInfosOfKeyword(kettle)] == ["Rome"]

    @pytest.mark.parametrize(
        ("act", "kept"),
        [
            (lambda store, id: store.correct(id, "place 2"), ["place 2", "place 1", "place 0"]),
            (lambda store, id: store.pin(id), ["place 1", "place 0"]),
        ],
        ids=["correction", "pin"],
    )
    def test_that_another_store_was_quicker_with_stays_before_what_comes_late(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        act: Callable[[MemoryStore, str], object],
        kept: list[str],
    ) -> None:
        with MemoryStore(tmp_path) as one, MemoryStore(tmp_path) as other:
            first = one.remember("place 0", ["place"])
            other.tree.Refresh()
            newest = other._newest

            def be_late(id: str) -> Info:
                info = newest(id)
                monkeypatch.undo()
                one.correct(first, "place 1")
                return info

            monkeypatch.setattr(other, "_newest", be_late)
            act(other, first)

            for store in (one, other):
                assert recalled(store, "place") == kept[:1]
                assert [version.content for version in store.history(first)] == kept
            assert one.tree.Verify() == []

    def test_leaves_the_old_one_out_of_a_recall_that_is_under_way(self, tmp_path: Path) -> None:
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")

        class Correcting(HashingEmbedder):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                while ids and "Paris" in texts:
                    opened.correct(ids.pop(), "Rome")
                return super().embed(texts)

        ids = list[str]()

        with MemoryStore(tmp_path, meaning=Correcting()) as opened:
            ids.append(opened.remember("Paris"))

            assert recalled(opened, "Paris") == []
            assert recalled(opened, "Rome") == ["Rome"]

    def test_a_question_for_what_may_be_corrected_is_embedded_once(self, tmp_path: Path) -> None:
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")

        class Noting(HashingEmbedder):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                asked.extend(texts)
                return super().embed(texts)

        asked, said = list[str](), ["I live in Paris.", "I moved to Rome."]
        with MemoryStore(tmp_path, meaning=Noting()) as opened:
            _ = [opened.remember(text) for text in said]

            assert recalled(opened, "Where do I live?") == ["I moved to Rome.", "I live in Paris."]
        assert [text for text in asked if "live" in text and text not in said] == ["Where do I live?"]

    def test_of_a_forgotten_one_is_refused(self, store: MemoryStore) -> None:
        first = store.remember("Paris", ["Ada"])
        second = store.correct(first, "Rome")
        operation = store.forget(second)
        for id in (first, second):
            with pytest.raises(NotFoundError):
                store.correct(id, "Lhasa")
        store.tree.Undo(operation)

        store.correct(first, "Lhasa")
        assert recalled(store, "Paris Rome Lhasa") == ["Lhasa"]

    def test_hides_the_old_one_wherever_it_is_hung_again(self, store: MemoryStore) -> None:
        first = store.remember("Ada lives in Paris", ["Ada"])
        store.correct(first, "Ada lives in Rome")
        store.tree.LinkInfo(first, store.tree.FindByName("Ada")[0].id)

        for strategy in RetrievalStrategy:
            for memory in store.recall("Ada Paris", config=RetrieverConfig(strategy)):
                assert "Paris" not in repr(memory)

    def test_does_not_mind_a_clock_put_back(self, store: MemoryStore, clock: Clock) -> None:
        first = store.remember("Paris")
        clock.now -= 100 * DAY_S
        second = store.correct(first, "Rome")
        clock.now -= 100 * DAY_S
        store.correct(second, "Lhasa")

        assert recalled(store, "Paris Rome Lhasa") == ["Lhasa"]
        assert store.recall("Lhasa", config=RetrieverConfig(scoring=Hybrid()))[0].breakdown.temporal_score == 1.0

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
        assert info.metadata["mine"] == 1
        assert without_graph(info) == {"kind": "fact", "pinned": True, "supersedes": second}
        assert [(version.content, version.source) for version in store.history(first)] == [
            ("Ada 住在杭州。", "letter"),
            ("Ada lives in Rome.", ""),  # the chat did not say it
            ("Ada lives in Paris.", "chat"),
        ]
        assert store.history(first) == store.history(second) == store.history(third)

    def test_from_many_threads_leaves_one(self, store: MemoryStore) -> None:
        first = store.remember("place 0", ["place"])
        in_threads(lambda number: store.correct(first, f"place {number}"), range(1, 9))

        assert len(recalled(store, "place")) == 1
        assert len(store.history(first)) == 9

    def test_refuses_what_it_cannot_correct(self, store: MemoryStore) -> None:
        store.remember(RECORDS[2])
        with pytest.raises(NotFoundError):
            store.correct("missing", "x")
        with pytest.raises(NotFoundError):
            store.history("missing")
        with pytest.raises(InvalidInputError, match="no plain fact"):
            store.correct(RECORDS[2].id, "x")
        with pytest.raises(InvalidInputError, match="must not be blank"):
            store.correct(RECORDS[2].id, " ")
        assert len(operations(store)) == 1


class TestForget:
    def test_remembers_recalls_over_an_opening(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as store:
            ids = [store.remember(f"tea cup{number}") for number in range(2)]
            store.recall("cup1", 1)
        with MemoryStore(tmp_path) as store:
            assert [eviction.id for eviction in store.plan_forgetting(RecallBased(1)).evictions] == [ids[0]]

    def test_lets_the_pinned_stay(self, store: MemoryStore, clock: Clock) -> None:
        ids = [store.remember("Paris", pinned=True), store.remember("Rome"), store.remember("Lhasa")]
        clock.now += 10 * DAY_S
        plan = store.plan_forgetting(Ttl(DAY_S))
        assert [eviction.id for eviction in plan.evictions] == ids[1:]
        store.pin(ids[1])
        store.forget(plan)

        assert recalled(store, "Paris Rome Lhasa") == ["Rome", "Paris"]  # of equals the newest
        store.pin(ids[0], False)
        store.forget(store.plan_forgetting(Ttl(DAY_S)))
        assert recalled(store, "Paris Rome Lhasa") == ["Rome"]

    def test_passes_over_what_has_changed_since(self, store: MemoryStore) -> None:
        corrected, again, left = store.remember("Paris"), store.remember(RECORDS[2]), store.remember("tea")
        gone = store.remember("coffee")
        plan = store.plan_forgetting(Capacity(0))
        store.correct(corrected, "Rome")
        store.remember(ProceduralSkill.create("泡茶 brewing", "With the samovar", ["light it"]))
        store.forget(gone)
        store.forget(plan)

        assert recalled(store, "Paris Rome samovar tea") == ["Rome", "泡茶 brewing\nWith the samovar\nlight it"]
        assert (store.tree.GetInfo(left), again) == (None, RECORDS[2].id)
        with pytest.raises(NotFoundError):
            store.forget(gone)

    def test_values_a_corrected_fact_by_the_recalls_of_what_it_was(self, store: MemoryStore) -> None:
        often, seldom = store.remember("Paris cup"), store.remember("Rome bowl")
        for _ in range(5):
            store.recall("Paris", 1)
        store.recall("Rome", 1)
        corrected = store.correct(often, "Lhasa cup")
        plan = store.plan_forgetting(RecallBased(1))

        assert [eviction.id for eviction in plan.evictions] == [seldom]
        assert corrected in store.retriever.known()

    def test_of_nothing_leads_nowhere(self, store: MemoryStore) -> None:
        operation = store.forget(store.plan_forgetting(NoEviction()))

        assert operations(store) == []
        with pytest.raises(NotFoundError):
            store.tree.Undo(operation)

    @pytest.mark.parametrize("wrong", [None, 5, ["id"]])
    def test_refuses_what_is_neither_id_nor_plan(self, store: MemoryStore, wrong: str) -> None:
        with pytest.raises(InvalidInputError, match="an id or a plan"):
            store.forget(wrong)
        with pytest.raises(InvalidInputError, match="EvictionPolicy"):
            store.plan_forgetting(wrong)  # type: ignore[arg-type]

    def test_leaves_no_byte_where_history_is_dropped(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as store:
            store.remember(ProceduralSkill.create("hide the sesame", "a secret", ["say sesame"]), ["tea"])
            store.remember("tea")
            store.recall("sesame tea")
        with MemoryStore(tmp_path) as store:
            store.forget("skill-hide-the-sesame")
            store.tree.CompactStorage(keep_history=False)
        held = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())

        assert b"sesam" not in held
        assert b"tea" in held


class TestNamespaces:
    def test_do_not_leak(self, tmp_path: Path) -> None:
        names = [
            {}, {"user": "a"}, {"user": "A"}, {"user": "a", "agent": "b"}, {"agent": "a"}, {"user": "a", "session": "b"}
        ]
        for number, name in enumerate(names):
            with MemoryStore(tmp_path, **name) as store:  # type: ignore[arg-type]
                store.remember(f"tea {number}")
        for number, name in enumerate(names):
            with MemoryStore(tmp_path, **name) as store:  # type: ignore[arg-type]
                assert recalled(store, "tea") == [f"tea {number}"]
                assert store.tree.Verify() == []

    def test_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path / "new", user="ada", session="1") as store:
            store.remember("tea")
            recalled(store, "tea")

        for place in (tmp_path / "new").rglob("*"):
            assert place.stat().st_mode & 0o077 == 0, place
        assert (tmp_path / "new").stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("name", ["../x", "/etc", "..", ".", "a/b", "C:\\x", "~", "user=x"])
    def test_do_not_leave_the_folder(self, tmp_path: Path, name: str) -> None:
        with MemoryStore(tmp_path / "data", user=name) as store:
            store.remember("tea")

        assert [place.name for place in tmp_path.iterdir()] == ["data"]
        assert len(list((tmp_path / "data").iterdir())) == 1

    @given(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        st.text(st.characters(codec="utf-8"), max_size=20),
    )
    def test_have_a_folder_each_under_their_own(self, one: str, other: str) -> None:
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


class TestClose:
    def test_twice_is_no_error(self, tmp_path: Path) -> None:
        store = MemoryStore(tmp_path)
        store.remember("tea")
        store.recall("tea")
        store.close()
        store.close()

        for use in (store.recall, store.remember):
            with pytest.raises(ClosedError):
                use("tea")

    def test_forgets_the_recalls_of_what_is_gone(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as store:
            ids = [store.remember("tea one"), store.remember("tea two")]
            store.recall("tea")
            store.forget(ids[0])

        assert list(RecallLog(tmp_path / "memory" / "indexes" / "recall_stats.json").stats()) == [ids[1]]


class TestWhatStays:
    def test_an_important_episode_stays_before_a_newer_one_that_is_not(self, tmp_path: Path) -> None:
        now = datetime(2026, 11, 20, tzinfo=UTC)
        with MemoryStore(tmp_path, clock=now.timestamp) as store:
            old = EpisodeTrace.create("t", "a", "the fire", now=now - timedelta(60))
            new = EpisodeTrace.create("t", "a", "small talk", now=now - timedelta(1))
            old.importance, new.importance = 1.0, 0.0
            for record in (old, new):
                store.remember(record)

            for policy in (RecallBased(max_items=1), Capacity(max_items=1), HybridEviction(max_items=1)):
                assert [each.id for each in store.plan_forgetting(policy).evictions] == [new.id]
