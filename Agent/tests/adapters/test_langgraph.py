"""Tests of the LangGraph store: what its interface promises, what a tree adds, and bad input."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("langgraph.store.base", reason="the extra [langgraph] is not installed")

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp

from Agent.adapters import langgraph as langgraph_store
from Agent.adapters.langgraph import KeywordTreeStore
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.tests.support.clocks import Clock
from Agent.tests.support.missing import error_without

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = ("users", "张三")


class Kind(Enum):
    TEA = "tea"


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def tree(tmp_path: Path, clock: Clock) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path), clock=clock) as tree:
        yield tree


@pytest.fixture
def store(tree: KeywordTree, clock: Clock) -> KeywordTreeStore:
    return KeywordTreeStore(tree, clock=clock)


def keys(found: Sequence[Any]) -> list[str]:
    return [item.key for item in found]


def last_operation(tree: KeywordTree) -> str:
    return tree.History(limit=1)[0].operation_id


class TestItems:
    def test_come_back_as_json_has_them(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"text": "绿茶", "list": (1, 2.5, None), "in": {"true": True}, 3: "key"})  # type: ignore[dict-item]

        item = store.get(NAMESPACE, "a")
        assert item is not None
        assert item.value == {"text": "绿茶", "list": [1, 2.5, None], "in": {"true": True}, "3": "key"}
        assert (item.namespace, item.key) == (NAMESPACE, "a")

    def test_what_sqlite_store_takes_is_taken(self, store: KeywordTreeStore) -> None:
        @dataclass
        class Cup:
            size: int
            bought: date

        id = UUID(int=7)
        value = {
            "at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
            "id": id,
            "cup": Cup(3, date(2026, 1, 1)),
            "kind": Kind.TEA,
        }
        store.put(NAMESPACE, "a", value)

        item = store.get(NAMESPACE, "a")
        assert item is not None
        assert item.value == {
            "at": "2026-01-02T03:04:00+00:00",
            "id": str(id),
            "cup": {"size": 3, "bought": "2026-01-01"},
            "kind": "tea",
        }

    def test_more_than_16_mib_is_refused_by_its_size(self, store: KeywordTreeStore) -> None:
        with pytest.raises(InvalidInputError, match="at most 16,777,216"):
            store.put(NAMESPACE, "a", {"text": "x" * (16 * 1024 * 1024)})

        assert store.get(NAMESPACE, "a") is None

    def test_are_the_callers_own(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"list": [1]})
        for item in (store.get(NAMESPACE, "a"), store.search(NAMESPACE)[0]):
            assert item is not None
            item.value["list"].append(2)

        item = store.get(NAMESPACE, "a")
        assert item is not None
        assert item.value == {"list": [1]}

    def test_keep_when_they_were_made_and_put(self, store: KeywordTreeStore, clock: Clock) -> None:
        store.put(NAMESPACE, "a", {"n": 1})
        clock.now += 10
        store.put(NAMESPACE, "a", {"n": 2})
        clock.now += 10
        store.put(NAMESPACE, "a", {"n": 2})  # an equal value writes nothing

        item = store.get(NAMESPACE, "a")
        assert item is not None
        assert (item.updated_at - item.created_at).total_seconds() == 10
        assert len([change for change in store.tree.History() if change.op == "update_info"]) == 1

    def test_deleted_are_gone_with_their_namespace(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"n": 1})
        store.delete(NAMESPACE, "a")
        store.delete(NAMESPACE, "missing")

        assert store.get(NAMESPACE, "a") is None
        assert store.list_namespaces() == store.search(()) == []

    @pytest.mark.parametrize("label", [" ", "\u200b", "a\nb", "x" * 2_000, "root", "…"])
    def test_any_label_has_a_keyword(self, store: KeywordTreeStore, label: str) -> None:
        store.put((label, "inner"), "a", {"n": 1})

        assert store.list_namespaces() == [(label, "inner")]
        assert KeywordTreeStore(store.tree).get((label, "inner"), "a") is not None

    def test_stand_in_the_tree_where_a_person_looks_with_their_author(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "food", {"likes": "绿茶"})
        found = store.tree.Search("users/张三")
        store.batch([PutOp(NAMESPACE, "food", None), PutOp(NAMESPACE, "dog", {"name": "Momo"})])
        store.put(NAMESPACE, "dog", {"name": "Max"})
        store.delete(NAMESPACE, "dog")

        assert [info.content for info in found.infos] == ['{"likes": "绿茶"}']
        assert {change.author for change in store.tree.History() if change.op != "create_store"} == {"langgraph"}

    def test_a_given_tree_stays_open(self, store: KeywordTreeStore) -> None:
        with store:
            pass

        assert store.tree.Verify() == []

    def test_it_can_be_closed_after_its_tree(self, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            store = KeywordTreeStore(tree)
            store.put(NAMESPACE, "a", {"text": "tea"})
            assert len(store.search(NAMESPACE, query="tea")) == 1
        store.close()

        with KeywordTreeStore.from_folder(str(tmp_path)) as again:
            assert len(again.search(NAMESPACE, query="tea")) == 1

    def test_a_folder_is_opened_and_closed(self, tmp_path: Path) -> None:
        with KeywordTreeStore.from_folder(str(tmp_path / "x")) as store:
            store.setup()
            store.put(NAMESPACE, "a", {"n": 1})
            tree = store.tree
        assert "closed" in repr(tree)
        with KeywordTreeStore.from_folder(str(tmp_path / "x")) as store:
            assert keys(store.search(())) == ["a"]


class TestBatch:
    def test_reads_see_the_state_before_and_the_last_put_counts(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"n": 1})
        before = len(store.tree.History())
        results = store.batch(
            [
                PutOp(NAMESPACE, "a", {"n": 2}),
                GetOp(NAMESPACE, "a"),
                PutOp(("new",), "b", {"n": 3}),
                SearchOp(("new",)),
                ListNamespacesOp(),
                PutOp(NAMESPACE, "a", {"n": 4}),
            ]
        )

        assert results[1].value == {"n": 1}  # type: ignore[union-attr]
        assert results[3:5] == [[], [NAMESPACE]]
        item = store.get(NAMESPACE, "a")
        assert item is not None
        assert item.value == {"n": 4}
        assert len(store.tree.History()) == before + 2  # the new namespace, the puts

    def test_is_undone_as_one(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"n": 1})
        store.put(NAMESPACE, "gone", {"n": 1})
        store.batch([PutOp(NAMESPACE, "a", {"n": 2}), PutOp(("new",), "b", {"n": 3}), PutOp(NAMESPACE, "gone", None)])
        store.tree.Undo(last_operation(store.tree))

        assert {item.key: item.value for item in store.search(())} == {"a": {"n": 1}, "gone": {"n": 1}}
        assert store.list_namespaces() == [NAMESPACE]

    def test_what_put_an_item_is_remembered_whichever_task_it_was(self, store: KeywordTreeStore) -> None:
        async def put() -> None:
            for key in ("a", "b", "c"):
                await asyncio.create_task(store.aput(NAMESPACE, key, {"text": key}))

        asyncio.run(put())
        operation = store.operation_of(NAMESPACE, "a")  # which made the namespace, too
        assert operation is not None
        store.tree.Undo(operation)

        assert sorted(keys(store.search(NAMESPACE))) == ["b", "c"]
        store.put(NAMESPACE, "b", {"text": "b"})  # which is there already
        assert store.operation_of(NAMESPACE, "b") is None
        assert store.operation_of(NAMESPACE, "never put") is None
        store.delete(NAMESPACE, "c")
        store.tree.Undo(store.operation_of(NAMESPACE, "c") or "")
        assert sorted(keys(store.search(NAMESPACE))) == ["b", "c"]

    def test_of_an_open_operation_of_the_callers_none_is_remembered(self, store: KeywordTreeStore) -> None:
        with store.tree.Operation("mine") as operation:
            store.put(NAMESPACE, "a", {"text": "a"})

        assert store.operation_of(NAMESPACE, "a") is None
        store.tree.Undo(operation.id)
        assert store.get(NAMESPACE, "a") is None

    def test_one_bad_value_leaves_all_unwritten(self, store: KeywordTreeStore) -> None:
        with pytest.raises(ValueError, match="'b'"):
            store.batch([PutOp(NAMESPACE, "a", {"n": 1}), PutOp(NAMESPACE, "b", {"n": float("nan")})])

        assert store.search(()) == []


class TestWhoeverChangesTheTree:
    def test_moved_renamed_and_deleted_keywords_keep_the_view(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"n": 1})
        node = store.tree.Search("users/张三").node
        assert node is not None
        store.tree.UpdateKeyword(node.id, {"name": "Zhang"}, node.version)
        store.tree.MoveKeyword(node.id, store.tree.CreateKeyword("friends", "root").id)
        assert store.list_namespaces() == [NAMESPACE]
        store.put(NAMESPACE, "b", {"n": 2})
        store.tree.DeleteKeyword(node.id)
        store.put(NAMESPACE, "c", {"n": 3})

        assert keys(store.search(NAMESPACE)) == keys(KeywordTreeStore(store.tree).search(NAMESPACE)) == ["c", "b", "a"]

    def test_merged_keywords_take_what_comes(self, store: KeywordTreeStore) -> None:
        store.put(("a",), "x", {"n": 1})
        store.put(("b",), "y", {"n": 2})
        ids = [node.id for name in "ab" for node in store.tree.FindByName(name)]
        store.tree.MergeKeywords(*ids)
        store.put(("a",), "z", {"n": 3})

        assert (keys(store.search(("a",))), keys(store.search(("b",)))) == (["z", "x"], ["y"])

    def test_an_edited_content_is_the_value(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "a", {"n": 1}, ttl=5)
        (info,) = store.tree.ListInfos()
        store.get(NAMESPACE, "a")
        for content, value in (('{"n": 7}', {"n": 7}), ("seven", {"content": "seven"}), ("[7]", {"content": "[7]"})):
            store.tree.UpdateInfo(info.id, {"content": content})
            item = store.get(NAMESPACE, "a")
            assert item is not None
            assert item.value == value

    @pytest.mark.parametrize("own", [None, 1, [], {}, {"key": 1}, {"key": "a"}, {"key": "a", "namespace": [1]}])
    def test_strange_metadata_is_no_item(self, store: KeywordTreeStore, own: Any) -> None:
        store.put(NAMESPACE, "a", {"n": 1})
        store.tree.CreateInfo("x", metadata={"langgraph": own})
        (info,) = [info for info in store.tree.ListInfos() if info.content != "x"]
        store.get(NAMESPACE, "a")
        store.tree.UpdateInfo(info.id, {"metadata": {"langgraph": own}})

        assert store.search(()) == KeywordTreeStore(store.tree).search(()) == []

    def test_says_the_same_as_one_that_reads_it_again(self, store: KeywordTreeStore, clock: Clock) -> None:
        for number in range(30):
            clock.now += 1
            store.put((f"n{number % 3}",), f"k{number % 7}", {"n": number, "text": f"word{number}"})
            if number == 15:
                store.search((), query="word7")
                store.tree.CompactStorage(keep_history=False)
            if number % 5 == 0:
                store.delete(("n0",), f"k{(number + 1) % 7}")
        fresh = KeywordTreeStore(store.tree, clock=clock)

        for query in (None, "word27", "word12 word13"):
            assert store.search((), limit=50, query=query) == fresh.search((), limit=50, query=query)


class TestOrder:
    def test_of_calls_is_kept_whoever_awaits_them(self, store: KeywordTreeStore) -> None:
        async def put_and_get(key: str) -> Any:
            _, _, found, *_ = await asyncio.gather(
                store.aput(NAMESPACE, key, {"n": 1}),
                store.aput(NAMESPACE, key, {"n": 2}),
                store.aget(NAMESPACE, key),
                asyncio.to_thread(store.put, NAMESPACE, f"{key} too", {"n": 3}),
                store.adelete(NAMESPACE, key),
                store.aput(NAMESPACE, key, {"n": 4}),
            )
            return found.value["n"], (await store.aget(NAMESPACE, key)).value["n"]  # type: ignore[union-attr]

        assert [asyncio.run(put_and_get(f"{number}")) for number in range(20)] == [(2, 4)] * 20

    def test_puts_that_wait_together_are_one_operation(self, store: KeywordTreeStore) -> None:
        async def put() -> None:
            await asyncio.gather(*(store.aput(NAMESPACE, f"{number}", {"n": number}) for number in range(100)))

        before = len(store.tree.History(limit=1_000))
        asyncio.run(put())

        assert len(store.search(NAMESPACE, limit=-1)) == len(store.search(NAMESPACE, limit=1_000)) == 100
        assert len(store.tree.History(limit=1_000)) - before < 10

    def test_one_that_is_refused_leaves_the_others(self, store: KeywordTreeStore) -> None:
        async def put() -> list[Any]:
            values: list[Any] = [{"n": 1}, {"n": float("nan")}, {"n": 3}]
            puts = (store.aput(NAMESPACE, f"{number}", value) for number, value in enumerate(values))
            return await asyncio.gather(store.aput(NAMESPACE, "first", {}), *puts, return_exceptions=True)

        assert [type(each) for each in asyncio.run(put())] == [type(None), type(None), InvalidInputError, type(None)]
        assert sorted(keys(store.search(NAMESPACE))) == ["0", "2", "first"]


class TestSearch:
    def test_newest_put_comes_first(self, store: KeywordTreeStore) -> None:
        for key in "abc":
            store.put(("x", key), key, {"n": 1})
        store.put(("x", "a"), "a", {"n": 2})

        assert keys(store.search(("x",))) == ["a", "c", "b"]
        assert keys(store.search(("x",), limit=1, offset=1)) == ["c"]
        assert keys(store.search(("x",), limit=0)) == []

    def test_a_prefix_is_of_whole_labels(self, store: KeywordTreeStore) -> None:
        for namespace in (("foo",), ("foo", "bar"), ("foobar",)):
            store.put(namespace, "/".join(namespace), {"n": 1})

        assert keys(store.search(("foo",))) == ["foo/bar", "foo"]

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"n": 1}, ["int"]),
            ({"n": True}, ["bool"]),
            ({"n": None}, ["null", "none"]),
            ({"n": {"$ne": 1}}, ["bool", "float", "list", "none", "null", "object", "text"]),
            ({"n": {"$gt": 1}}, ["float"]),
            ({"n": {"$gte": 1, "$lt": 1.5}}, ["int"]),
            ({"n": {"$lte": "z"}}, ["text"]),
            ({"n": {"$eq": float("nan")}}, []),
            ({"n": {"$lt": float("inf")}}, ["int", "float"]),
            ({"n": {"$lt": 10**100}}, ["int", "float"]),
            ({"n": [1, 2]}, ["list"]),
            ({"n": {"in": {"$gt": 4}}}, ["object"]),
            ({"n.in": 5}, ["object"]),
            ({"n.in.deeper": 5}, []),
            ({"a.b": "dotted"}, ["none"]),
            ({"n": 1, "x": 2}, []),
            ({"x' OR '1'='1": 2}, []),
        ],
    )
    def test_filters_compare_as_json_does(
        self, store: KeywordTreeStore, wanted: dict[str, Any], found: list[str]
    ) -> None:
        values = {"int": 1, "bool": True, "float": 2.5, "null": None, "text": "m", "list": [1, 2], "object": {"in": 5}}
        for key, value in values.items():
            store.put(NAMESPACE, key, {"n": value})
        store.put(NAMESPACE, "none", {"a.b": "dotted"})

        assert sorted(keys(store.search((), filter=wanted))) == sorted(found)

    @pytest.mark.parametrize("wanted", [{"n": {"$where": "1"}}, "n = 1", [1]])
    def test_what_is_no_filter_is_refused(self, store: KeywordTreeStore, wanted: Any) -> None:
        with pytest.raises(ValueError, match=r"\$where|must be an object"):
            store.search((), filter=wanted)

    def test_words_rank_and_what_has_no_score_is_not_found(self, store: KeywordTreeStore) -> None:
        store.put(NAMESPACE, "tea", {"text": "龙井是杭州的绿茶"})
        store.put(NAMESPACE, "dog", {"text": "The dog is called Oliver."})
        store.put(NAMESPACE, "hidden", {"text": "杭州"}, index=False)
        store.put(NAMESPACE, "title", {"title": "杭州", "text": "dog dog"}, index=["title"])

        found = store.search(NAMESPACE, query="杭州的绿茶叫什么？")
        assert keys(found) == ["tea", "title"]
        assert 0 < (found[1].score or 0) <= (found[0].score or 0) <= 1
        for question in ("zebra", "which film is the best?", "how is it in Rome?"):
            assert store.search(NAMESPACE, query=question) == []
        assert keys(store.search(NAMESPACE, query="dog", limit=1)) == ["dog"]
        assert keys(store.search(NAMESPACE, query="杭州", filter={"title": "杭州"})) == ["title"]
        assert keys(store.search(NAMESPACE, query="", limit=1)) == ["title"]

    def test_large_values_are_read_when_they_are_asked_for(
        self, store: KeywordTreeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(langgraph_store, "HELD_LIMIT", 100)
        for number in range(20):
            store.put(NAMESPACE, str(number), {"n": number, "text": "x" * 50})

        assert store._items.size <= 100
        assert keys(store.search(NAMESPACE, filter={"n": {"$lt": 3}})) == ["2", "1", "0"]
        for number in range(20):
            store.delete(NAMESPACE, str(number))
        assert store.search(()) == []
        assert store._items.size == 0


class TestNamespaces:
    @pytest.mark.parametrize(
        ("arguments", "found"),
        [
            ({}, [("a",), ("a", "b", "c"), ("a", "d"), ("e", "c")]),
            ({"prefix": ("a",)}, [("a",), ("a", "b", "c"), ("a", "d")]),
            ({"suffix": ("c",)}, [("a", "b", "c"), ("e", "c")]),
            ({"prefix": ("*", "b")}, [("a", "b", "c")]),
            ({"prefix": ("a",), "suffix": ("*", "c")}, [("a", "b", "c")]),
            ({"max_depth": 1}, [("a",), ("e",)]),
            ({"limit": 2, "offset": 1}, [("a", "b", "c"), ("a", "d")]),
        ],
    )
    def test_are_listed(self, store: KeywordTreeStore, arguments: Any, found: list[tuple[str, ...]]) -> None:
        for namespace in (("e", "c"), ("a", "d"), ("a",), ("a", "b", "c")):
            store.put(namespace, "k", {"n": 1})

        assert store.list_namespaces(**arguments) == found


class TestTimeToLive:
    def test_an_expired_item_is_never_reported(self, store: KeywordTreeStore, clock: Clock) -> None:
        store.put(NAMESPACE, "a", {"n": 1}, ttl=1)
        clock.now += 61

        assert store.get(NAMESPACE, "a") is None
        assert store.search(()) == store.list_namespaces() == store.search((), query="1") == []

    def test_reading_lets_it_live_on_unless_asked_otherwise(self, store: KeywordTreeStore, clock: Clock) -> None:
        for key in "ab":
            store.put(NAMESPACE, key, {"n": 1}, ttl=1)
        put_at = store.search(())[0].updated_at
        clock.now += 40
        store.get(NAMESPACE, "a")
        store.get(NAMESPACE, "b", refresh_ttl=False)
        clock.now += 40

        assert keys(store.search(())) == ["a"]
        assert store.search(())[0].updated_at == put_at
        assert keys(KeywordTreeStore(store.tree, clock=clock).search(())) == ["a"]  # it stands in the log

    def test_refreshes_are_written_when_a_tenth_has_gone(self, store: KeywordTreeStore, clock: Clock) -> None:
        store.put(NAMESPACE, "a", {"n": 1}, ttl=1)
        before = len(store.tree.History())
        for _ in range(100):
            clock.now += 0.1
            store.get(NAMESPACE, "a")

        assert len(store.tree.History()) - before == 1

    def test_the_configuration_decides_where_the_call_does_not(self, tree: KeywordTree, clock: Clock) -> None:
        store = KeywordTreeStore(tree, ttl={"default_ttl": 1, "refresh_on_read": False}, clock=clock)
        store.put(NAMESPACE, "a", {"n": 1})
        store.put(NAMESPACE, "forever", {"n": 1}, ttl=None)
        clock.now += 40
        store.search(())
        clock.now += 40

        assert keys(store.search(())) == ["forever"]

    def test_sweeping_deletes_the_dead_as_one_operation(self, store: KeywordTreeStore, clock: Clock) -> None:
        for key in "ab":
            store.put(NAMESPACE, key, {"n": 1}, ttl=1)
        store.put(NAMESPACE, "c", {"n": 1})
        clock.now += 60
        assert store.sweep_ttl() == 0  # another process may know better, for a tenth of the time
        clock.now += 7
        before = len(store.tree.History())

        assert store.sweep_ttl() == 2
        assert len(store.tree.History()) == before + 1
        assert store.sweep_ttl() == 0
        assert store.tree.TreeMetrics()["infos"] == 1

    def test_a_sweeper_sweeps_until_it_is_stopped(self, tree: KeywordTree) -> None:
        store = KeywordTreeStore(tree, ttl={"sweep_interval_minutes": 1})
        assert KeywordTreeStore(tree).start_ttl_sweeper().done()
        future = store.start_ttl_sweeper(0.01 / 60)
        store.put(NAMESPACE, "a", {"n": 1}, ttl=-1)
        for _ in range(500):
            if tree.TreeMetrics()["infos"] == 0:
                break
            store._stop_sweeping.wait(0.01)

        assert tree.TreeMetrics()["infos"] == 0
        assert store.stop_ttl_sweeper(10)
        assert future.result(10) is None
        cancelled = store.start_ttl_sweeper(10)
        cancelled.cancel()
        assert store.stop_ttl_sweeper(10)


class TestVectors:
    """What stands for a model knows that tea and 茶 mean the same."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked = [*getattr(self, "asked", []), *texts]
        return [[1.0 + ("tea" in text or "茶" in text), 1.0 + ("dog" in text), 0.1] for text in texts]

    def test_similarity_ranks(self, tree: KeywordTree) -> None:
        pytest.importorskip("numpy")
        store = KeywordTreeStore(tree, index={"dims": 3, "embed": self.embed, "fields": ["text", "notes[*]"]})
        store.put(NAMESPACE, "dog", {"text": "a dog"})
        store.put(NAMESPACE, "tea", {"text": "a cup", "notes": ["x", "tea"]})
        store.put(NAMESPACE, "hidden", {"text": "tea"}, index=False)

        found = store.search(NAMESPACE, query="茶")
        assert keys(found) == ["tea", "dog", "hidden"]
        assert found[0].score == pytest.approx(1.0, abs=0.01)
        assert (found[1].score or 0) < 0.9
        assert found[2].score is None  # not indexed: last, as in the originals
        store.put(NAMESPACE, "tea", {"text": "a dog"})
        assert (store.search(NAMESPACE, query="茶")[0].score or 0) < 0.9

    def test_an_asynchronous_function_is_taken(self, tree: KeywordTree) -> None:
        pytest.importorskip("numpy")

        async def embed(texts: Sequence[str]) -> list[list[float]]:
            return self.embed(texts)

        store = KeywordTreeStore(tree, index={"dims": 3, "embed": embed})

        async def work() -> list[str]:
            await store.aput(NAMESPACE, "dog", {"text": "a dog"})
            await store.aput(NAMESPACE, "tea", {"text": "tea"})
            return keys(await store.asearch(NAMESPACE, query="茶"))

        assert asyncio.run(work()) == ["tea", "dog"]
        assert keys(store.search(NAMESPACE, query="my dog")) == ["dog", "tea"]
        assert keys(store.search(NAMESPACE, query="茶")) == ["tea", "dog"], "no word is shared"
        assert asyncio.run(store.asearch(NAMESPACE, query="茶"))[0].score == pytest.approx(1.0, abs=0.01)

    def test_with_a_name_vectors_are_kept(self, tree: KeywordTree) -> None:
        pytest.importorskip("numpy")
        index = {"dims": 3, "embed": self.embed, "name": "mine"}
        KeywordTreeStore(tree, index=index).put(NAMESPACE, "tea", {"text": "tea"})
        asked = len(self.asked)
        KeywordTreeStore(tree, index=index).search(NAMESPACE, query="茶")

        assert "茶" in self.asked[asked:]
        assert "tea" not in self.asked[asked:]

    def test_an_embedder_that_fails_loses_nothing(self, tree: KeywordTree, caplog: pytest.LogCaptureFixture) -> None:
        pytest.importorskip("numpy")

        def fail(texts: Sequence[str]) -> list[list[float]]:
            raise RuntimeError("no credit left")

        store = KeywordTreeStore(tree, index={"dims": 3, "embed": fail})
        with caplog.at_level(logging.WARNING):
            store.put(NAMESPACE, "dog", {"text": "a dog"})
            store.put(NAMESPACE, "tea", {"text": "green tea"})
            found = store.search(NAMESPACE, query="tea")

        assert keys(found) == ["tea"]
        assert len([record for record in caplog.records if "no credit left" in record.getMessage()]) == 1


class TestBadInput:
    @pytest.mark.parametrize(
        "value",
        [{"n": float("nan")}, {"n": float("inf")}, {"n": {1, 2}}, {"n": b"x"}, [1], "x", 7, {"n": "\ud800"}],
        ids=repr,
    )
    def test_what_is_no_json_object_is_refused(self, store: KeywordTreeStore, value: Any) -> None:
        with pytest.raises(ValueError):  # noqa: PT011  several say it, each in its words
            store.put(NAMESPACE, "a", value)

        assert store.search(()) == []

    def test_a_folder_in_the_place_of_the_tree_is_refused(self) -> None:
        with pytest.raises(ValueError, match="tree must be a KeywordTree, not 'memory': a folder goes to from_folder"):
            KeywordTreeStore("memory")  # type: ignore[arg-type]

    def test_what_is_nested_too_deeply_is_refused(self, store: KeywordTreeStore) -> None:
        for depth in (201, 20_000):
            value: dict[str, Any] = {}
            for _ in range(depth):
                value = {"in": value}
            with pytest.raises(InvalidInputError, match="'deep'"):
                store.put(NAMESPACE, "deep", value)
        store.put(NAMESPACE, "wide", {"n": [{} for _ in range(1_000)]})

        assert keys(store.search(())) == ["wide"]

    def test_ten_thousand_labels_are_refused(self, store: KeywordTreeStore) -> None:
        with pytest.raises(InvalidNamespaceError, match="10,000"):
            store.put(("x",) * 10_000, "a", {"n": 1})

        assert store.get(("x",) * 10_000, "a") is None
        store.put(("x",) * 100, "a", {"n": 1})
        assert store.list_namespaces() == [("x",) * 100]

    @pytest.mark.parametrize("namespace", [(), ("",), ("a.b",), ("a", 1), ("langgraph", "x"), ("\x00",)])
    def test_namespaces_that_no_store_takes(self, store: KeywordTreeStore, namespace: Any) -> None:
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "a", {"n": 1})
        with pytest.raises(ValueError, match="operation of a store"):
            store.batch([("get", "a")])  # type: ignore[list-item]

    def test_half_of_a_character_is_refused_by_what_has_it(self, store: KeywordTreeStore) -> None:
        with pytest.raises(InvalidInputError, match=r"a key .* 'k.ud800'"):
            store.put(NAMESPACE, "k\ud800", {"n": 1})
        with pytest.raises(InvalidNamespaceError, match=r"a label .* 'a.ud800'"):
            store.put(("a\ud800",), "k", {"n": 1})

        assert store.search(()) == []

    def test_a_missing_package_is_named_with_the_command_that_brings_it(self) -> None:
        assert "pip install '.[langgraph]'" in error_without("langgraph", "Agent.adapters.langgraph")


WRITER = """
import sys
from Agent.adapters.langgraph import KeywordTreeStore
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with KeywordTreeStore.from_folder(folder) as store:
    for number in range(count):
        store.put(("shared",), f"{name}{number}", {"n": number})
        store.put(("shared",), "both", {"by": name, "n": number})
"""


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    count = 25
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name, str(count)], cwd=ROOT) for name in "ab"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]

    with KeywordTreeStore.from_folder(str(tmp_path)) as store:
        assert len(store.search(("shared",), limit=10_000)) == 2 * count + 1
        assert store.tree.TreeMetrics()["keywords"] == 1
        assert store.tree.Verify() == []
