"""Tests of `MemoryStore` as a newcomer meets it: one fact once, what was said later, trees, lists, async calls."""

import asyncio
import copy
import inspect
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from Agent.adapters.mem0 import AsyncMemory, Memory
from Agent.base.awaiting import Twin
from Agent.context_engine import AsyncContextEngineService, ContextEngineService
from Agent.keyword_tree import ClosedError, InvalidInputError, KeywordTree, NotFoundError, StubLLMClient
from Agent.knowhub.hub import KnowHub
from Agent.memory.eviction import DAY_S
from Agent.memory.keywords import SimpleKeywordExtractor
from Agent.memory.retriever import MemoryRetriever, RetrievalStrategy, RetrieverConfig
from Agent.memory.store import AsyncMemoryStore, MemoryStore
from Agent.models.lexical_client import LexicalLLMClient
from Agent.tests.support.clocks import Clock


class TestOneFactOnce:
    def test_keeps_its_id_and_has_all_sources(self, store: MemoryStore) -> None:
        first = store.remember("Anna is allergic to peanuts.", ["Anna"], "chat 1")
        again = store.remember("Anna is  allergic to peanuts\n", ["food"], "chat 2", pinned=True)
        store.remember("Anna drinks tea.", source="chat 1")

        assert (first.note, again, again.note) == ("", first, "known already, now from this source, too")
        assert len(store) == 2
        memory = store.get(first)
        assert memory is not None
        assert memory.sources == ("chat 1", "chat 2")
        assert {node.name for node, _ in store.tree.GetKeywordsOfInfo(first)} == {"Anna", "food"}
        for source in memory.sources:
            assert first in [hit.id for hit in store.recall("peanuts", sources=[source])]
        store.undo(again)
        assert [each.sources for each in store if each.id == first] == [("chat 1",)]

    @pytest.mark.parametrize(
        ("text", "metadata"), [("Anna is allergic to PEANUTS!", {}), ("Anna is allergic.", {"day": 2})]
    )
    def test_what_differs_or_contradicts_is_another(
        self, store: MemoryStore, text: str, metadata: dict[str, Any]
    ) -> None:
        store.remember("Anna is allergic.", metadata={"day": 1})

        assert store.remember(text, metadata=metadata).note == ""
        assert len(store) == 2

    def test_is_known_after_another_process_wrote_it(self, store: MemoryStore, tmp_path: Path) -> None:
        store.remember("warm up")
        with MemoryStore(tmp_path, user="ada") as other:
            id = other.remember("Anna sings.")

        assert store.remember("Anna sings.") == id
        store.forget(id)
        assert store.remember("Anna sings.") != id

    def test_counts_as_said_now(self, store: MemoryStore, tmp_path: Path) -> None:
        for text in ("I live in Paris.", "I moved to Rome.", "I live in Paris."):
            store.remember(text)
        assert store.recall("Where do I live?", limit=1)[0].text == "I live in Paris."
        store.close()
        for file in (tmp_path / "user=ada" / "memory" / "indexes").glob("memories.db*"):
            file.unlink()  # also of an index that is made again
        with MemoryStore(tmp_path, user="ada") as again:
            assert again.recall("Where do I live?", limit=1)[0].text == "I live in Paris."

    def test_takes_one_place_of_the_limit(self, store: MemoryStore) -> None:
        for number in range(9):  # as two programs write them that do not look
            store.tree.CreateInfo("Anna is ALLERGIC to peanuts." if number % 2 else "Anna is allergic to peanuts.")
        other = store.remember("Anna keeps a pen since she is allergic.")
        found = store.recall("what is Anna allergic to?", limit=2)

        assert len(found) == 2
        assert other in [each.id for each in found]


class TestWhatWasSaidLater:
    @pytest.mark.parametrize("reopened", [False, True])
    def test_of_equals_comes_first_whatever_the_limit(
        self, store: MemoryStore, tmp_path: Path, clock: Clock, reopened: bool
    ) -> None:
        names = ["Ada", "Bob", "Eve", "Dan"]
        for name in names:
            store.remember(f"{name} likes tea.")
        assert [hit.text[:3] for hit in store.recall("Who likes tea?", limit=1)] == ["Dan"]
        store.remember("Bob likes tea.")  # again: it counts as said now
        if reopened:
            (Path(store.tree.data_dir) / "indexes" / "memories.db").unlink()
        for limit in (1, 2, 4):
            found = [hit.text[:3] for hit in store.recall("Who likes tea?", limit)]
            assert found == ["Bob", "Dan", "Eve", "Ada"][:limit]

    @pytest.mark.parametrize("gap", [0.0, 0.4, 60.0, 400 * DAY_S, -5 * DAY_S])
    @pytest.mark.parametrize("corrected", [False, True])
    @pytest.mark.parametrize(
        ("question", "before", "after"),
        [
            ("Where do I live?", "I live in Paris.", "I moved to Rome."),
            ("Where does Ada live?", "I live in Paris.", "I moved to Rome."),
            ("Where does Bo live now?", "Bo lives in Paris.", "Bo moved to Rome."),
            ("我住在哪里？", "我住在巴黎。", "我从巴黎搬到罗马了。"),
            ("我在哪里上班？", "我在腾讯上班。", "我从腾讯辞职，加入了阿里。"),
            ("小明住在哪里？", "小明住在巴黎。", "小明搬到罗马了。"),
            ("孙志刚是不是还住在巴黎？", "孙志刚家住在巴黎。", "孙志刚搬到罗马了。"),
            ("Where do I work?", "I work at Siemens.", "I started at Bosch."),
            ("我在哪里工作？", "我在西门子工作。", "我跳槽去了博世。"),
            ("韩磊是做什么工作的？", "韩磊在徐工工作。", "韩磊辞职开咖啡馆了。"),
            ("我的手机号是多少？", "我的手机号是1390000。", "我换手机号了，新号是1361111。"),
            ("What do I drink?", "I drink tea.", "I stopped drinking tea, it is coffee now."),
        ],
    )
    def test_comes_first_and_what_it_replaces_is_marked_or_gone(
        self, store: MemoryStore, clock: Clock, gap: float, corrected: bool, question: str, before: str, after: str
    ) -> None:
        old = store.remember(before)
        clock.now += gap
        new = store.correct(old, after) if corrected else store.remember(after)
        found = store.recall(question)

        assert (found[0].id, found[0].text) == (new, after)
        assert [(each.id, each.later) for each in found[1:]] == ([] if corrected else [(old, new)])

    def test_is_found_by_the_words_of_what_it_replaced(self, store: MemoryStore) -> None:
        car = store.remember("Bo drives a Volvo.")
        bicycle = store.correct(store.correct(car, "It is a Saab."), "A bicycle since May.", source="chat 2")

        (found,) = store.recall("What does Bo drive?")
        assert (found.id, found.passage, found.sources) == (bicycle, "A bicycle since May.", ("chat 2",))
        store.undo(bicycle)
        assert [each.text for each in store.recall("What does Bo drive?")] == ["It is a Saab."]
        store.tree.DeleteInfo(car)
        assert store.recall("Volvo") == []


class TestLists:
    def test_are_the_newest_first(self, store: MemoryStore) -> None:
        ids = [store.remember(f"fact {number}") for number in range(4)]
        store.correct(ids[0], "fact zero")
        store.forget(ids[1])

        assert [each.text for each in store] == ["fact zero", "fact 3", "fact 2"]
        assert [each.text for each in store.list(2)] == ["fact zero", "fact 3"]
        assert (len(store), bool(store), store.list(0)) == (3, True, [])
        assert store.get(ids[0]) is not None
        assert store.get(ids[1]) is None
        with pytest.raises(InvalidInputError, match="limit"):
            store.list(-1)

    def test_hits_have_text_id_and_score(self, store: MemoryStore) -> None:
        id = store.remember("Ada likes tea.")
        (hit,) = store.recall("Who likes tea?", min_score=0.3)

        assert (hit.id, hit.text, hit.score > 0.3) == (id, "Ada likes tea.", True)
        assert repr(hit).startswith("Retrieved(info=<Info 'Ada likes tea.'>, score=0.8")
        assert len(repr(hit)) < 120
        assert store.recall("Who likes tea?", min_score=1.0) == []

    def test_a_limit_returns_as_many_as_fit(self, store: MemoryStore) -> None:
        for number in range(130):
            store.tree.CreateInfo(f"fact {number} about tea", "b" if number % 2 else "a")

        assert [len(store.recall("tea", limit)) for limit in (5, 120, 1000)] == [5, 120, 130]
        assert len(store.recall("tea", 1000, sources=["b"])) == 65

    def test_of_a_folder_stay_there_after_chdir(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with MemoryStore("memories") as store:
            (tmp_path / "else").mkdir()
            monkeypatch.chdir(tmp_path / "else")
            store.remember("I like tea.")
            assert len(store.recall("tea")) == 1

        assert os.listdir(tmp_path / "else") == []


class TestTrees:
    def test_are_taken_and_left_open(self, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            with MemoryStore(tree) as store:
                store.remember("Ada likes tea.", ["Ada"])
                assert [hit.path for hit in store.recall("Who likes tea?")] == [["Ada"]]
            assert tree.FindByName("Ada")
            with pytest.raises(InvalidInputError, match="a tree is one memory"):
                MemoryStore(tree, user="ada")


class TestUndo:
    def test_takes_what_was_returned(self, store: MemoryStore) -> None:
        id = store.remember("Ada lives in Paris.")
        new = store.correct(id, "Ada lives in Rome.")
        operation = store.forget(new)
        store.undo(operation)
        store.undo(new)
        assert [each.text for each in store] == ["Ada lives in Paris."]
        store.undo(id)
        assert len(store) == 0
        with pytest.raises(NotFoundError):
            store.correct(id, "Ada")


class TestJudge:
    def test_what_does_not_answer_is_not_recalled(self, tmp_path: Path) -> None:
        client = StubLLMClient([{"targets": [1]}, {"targets": []}])
        with MemoryStore(tmp_path, judge=client) as store:
            for name in ("Anna", "Ben"):
                store.remember(f"{name} is allergic to nuts.")
            assert len(store.recall("Who is allergic to nuts?", limit=1)) == 1
            assert store.recall("Is Tom allergic to nuts?") == []


def store_in(folder: Path, **arguments: Any) -> MemoryStore:
    return MemoryStore(folder, user="ada", **arguments)


@pytest.mark.parametrize(
    ("open_in", "arguments", "named"),
    [
        (store_in, {"extract": "guess"}, "'guess'"),
        (store_in, {"extract": "model"}, "llm_client"),
        (store_in, {"extract": "model", "llm_client": LexicalLLMClient()}, "understands texts"),
        (store_in, {"meaning": "yes"}, "'yes'"),
        (store_in, {"judge": 5}, "judge .* not 5"),
        (store_in, {"log": 5}, "log .* not 5"),
        (store_in, {"config": "hybrid"}, "config .* 'hybrid'"),
        (store_in, {"llm_client": 5}, "llm_client .* 5"),
        (store_in, {"session": "\n"}, "session"),
        (KnowHub, {"llm_client": 5}, "model .* Chat, not 5"),
        (KnowHub, {"meaning": 5}, "meaning .* 5"),
        (ContextEngineService, {"llm": 5}, "llm .* complete_json or Chat, not 5"),
        (ContextEngineService, {"reranker": 5}, "reranker .* rerank, not 5"),
        (ContextEngineService, {"count_tokens": 5}, "count_tokens .* not 5"),
        (lambda folder, **arguments: Memory(path=str(folder), **arguments), {"llm_client": 5}, "llm_client .* not 5"),
        (lambda folder, **arguments: Memory(path=str(folder), **arguments), {"embedder": 5}, "embedder .* not 5"),
    ],
)
def test_a_refused_argument_leaves_no_folder(
    tmp_path: Path, open_in: Callable[..., object], arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInputError, match=named):
        open_in(tmp_path / "memories", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("form", "of"),
    [(AsyncMemoryStore, MemoryStore), (AsyncMemory, Memory), (AsyncContextEngineService, ContextEngineService)],
)
def test_an_asynchronous_form_shows_its_methods_at_the_prompt(form: type, of: type) -> None:
    methods = {name for name in dir(of) if not name.startswith("_") and callable(getattr(of, name))}
    coroutines = {name for name in methods & {*dir(form)} if inspect.iscoroutinefunction(getattr(form, name))}

    assert methods - coroutines <= {"from_config", "close"}
    for name in coroutines - {"close"}:
        assert inspect.getdoc(getattr(form, name)) == inspect.getdoc(getattr(of, name)), name
        assert inspect.signature(getattr(form, name)) == inspect.signature(getattr(of, name)), name


def test_asynchronous_calls_are_the_same(tmp_path: Path) -> None:
    opened_in = []

    def note_thread(name: str) -> Any:
        opened_in.append(threading.current_thread())

    async def main() -> None:
        for form in (AsyncMemoryStore, AsyncContextEngineService):
            for folder in ("x" * 300, "a\0b"):
                with pytest.raises(OSError, match=r"(cannot open|can be made at) '.*(too long|null)"):
                    await form(folder).__aenter__()
            closed = form(tmp_path / "new")
            await closed.close()
            with pytest.raises(ClosedError):
                await closed.__aenter__()
        unopened = AsyncMemoryStore(tmp_path, "ada", log=note_thread)
        assert ([*tmp_path.iterdir()], opened_in) == ([], [])
        assert repr(unopened) == "<AsyncMemoryStore of what its first call opens>"
        async with unopened as store:
            assert repr(store).startswith("<AsyncMemoryStore of <MemoryStore '")
            assert [thread is threading.current_thread() for thread in opened_in] == [False]
            id = await store.remember("Ada lives in Paris.")
            await store.correct(id, "Ada lives in Rome.")
            hits = await store.recall("Where does Ada live?", limit=1)
            assert [hit.text for hit in hits] == [memory.text async for memory in store] == ["Ada lives in Rome."]
            with pytest.raises(NotFoundError):
                await store.forget("missing")
            for name in ("no_such_call", "retriever", "_newest"):
                with pytest.raises(AttributeError, match=name):
                    getattr(store, name)

    anyio.run(main)


def test_what_a_cancelled_call_opens_is_closed_with_all() -> None:
    begun, may_go, closed = threading.Event(), threading.Event(), threading.Event()

    class Door:
        def __init__(self) -> None:
            begun.set()
            may_go.wait()

        def knock(self) -> None:
            raise AssertionError

        close = closed.set

    class AsyncDoor(Twin, of=Door):
        pass

    async def main() -> None:
        door = AsyncDoor(Door)
        knocking = asyncio.create_task(door.knock())
        await asyncio.to_thread(begun.wait)
        knocking.cancel()
        closing = asyncio.create_task(door.close())
        await asyncio.sleep(0)
        may_go.set()
        await closing

    asyncio.run(main())
    assert closed.is_set()


def test_a_graph_with_the_documents_signatures_is_walked(tmp_path: Path) -> None:
    @dataclass
    class Entity:
        id: str
        name: str
        entity_type: str = "concept"
        description: str = ""
        tags: list[str] = field(default_factory=list)

    @dataclass
    class Scored:
        entity: Entity
        score: float

    class Graph:
        def __init__(self, *entities: Entity) -> None:
            self.entities = {entity.id: entity for entity in entities}

        def get_entity(self, id: str) -> Entity | None:
            return self.entities.get(id)

        def get_related(self, entity_id: str, depth: int, direction: object, relation_types: object) -> list[Scored]:
            return [Scored(each, 0.5) for each in self.entities.values() if each.id != entity_id]

        def find_by_keywords(self, keywords: list[str]) -> list[Entity]:
            return [each for each in self.entities.values() if each.name.lower() in keywords]

    with KeywordTree(str(tmp_path)) as tree:
        ada, rome = tree.Ensure("Ada"), tree.Ensure("Rome")
        tree.CreateInfo("It has seven hills.", "", [rome.id])
        graph: Any = Graph(Entity(ada.id, "Ada"), Entity(rome.id, "Rome"))
        config = RetrieverConfig(strategy=RetrievalStrategy.GRAPH_ONLY)
        found = MemoryRetriever(tree, graph, config=config).retrieve("What about Ada?")

        class Asking(SimpleKeywordExtractor):
            def extract(self, text: str) -> list[str]:
                if threading.current_thread() is threading.main_thread():  # the index is not held meanwhile
                    other = threading.Thread(target=asked.retrieve, args=(text,), daemon=True)
                    other.start()
                    other.join(60)
                    assert not other.is_alive()
                return super().extract(text)

        asked = MemoryRetriever(tree, keyword_extractor=Asking())
        assert [each.text for each in asked.retrieve("What about Rome?")] == ["It has seven hills."]

    assert [(each.text, each.path, each.score) for each in found] == [("It has seven hills.", ["Rome"], 0.5)]


def test_an_id_that_is_copied_or_pickled_is_still_undone(store: MemoryStore) -> None:
    id = store.remember("Ada likes tea.")
    for other in (copy.deepcopy(id), pickle.loads(pickle.dumps(id))):
        assert (other, other.operation, other.note) == (id, id.operation, "")
    store.undo(copy.deepcopy(id))
    assert len(store) == 0


class TestWhoseStateItIs:
    """Where another lives or works is no answer about the speaker, however alike the words are."""

    @pytest.mark.parametrize(
        ("said", "question", "is_answer"),
        [
            ("My mother lives in Shaoxing.", "Where do I live?", False),
            ("My brother works at Siemens.", "Where do I work?", False),
            ("王芳住在杭州。", "我住在哪里？", False),
            ("姐姐在腾讯上班。", "我在哪里上班？", False),
            ("I live in Rome.", "Where do I live?", True),
            ("Ada lives in Rome.", "Where do I live?", True),
            ("The user lives in Rome.", "Where do I live?", True),
            ("My mother lives in Shaoxing.", "Where does my mother live?", True),
            ("用户住在杭州。", "我住在哪里？", True),
            ("我妹妹住在北京。", "我妹妹住在哪里？", True),
        ],
    )
    def test_answers_of_whom_is_asked_alone(
        self, store: MemoryStore, said: str, question: str, is_answer: bool
    ) -> None:
        store.remember(said)

        scores = [hit.score for hit in store.recall(question)]
        assert scores[0] >= 0.5 if is_answer else all(score < 0.3 for score in scores)
