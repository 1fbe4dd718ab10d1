"""Tests of mem0's calls on a tree: results and errors as mem0 has them, extraction, undo, and bad input."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from Agent.adapters.mem0 import AsyncMemory, Memory
from Agent.keyword_tree import ConflictError, InvalidInputError, KeywordTree, StubLLMClient

ROOT = Path(__file__).resolve().parents[3]
ADA: dict[str, Any] = {"user_id": "ada"}


@pytest.fixture
def memory(tree: KeywordTree) -> Memory:
    return Memory(tree=tree)


def texts(found: dict[str, Any]) -> list[str]:
    return [row["memory"] for row in found["results"]]


def add(memory: Memory, text: str, **named: Any) -> str:
    return str(memory.add(text, **{"infer": False, **ADA, **named})["results"][0]["id"])


class TestAdd:
    def test_a_text_is_a_memory_of_the_user(self, memory: Memory) -> None:
        result = memory.add("我喜欢龙井茶", user_id=" 张三 ", infer=False)

        (row,) = result["results"]
        del row["id"]
        assert row == {"memory": "我喜欢龙井茶", "event": "ADD", "actor_id": None, "role": "user"}
        assert [info.content for info in memory.tree.Search("users/张三").infos] == ["我喜欢龙井茶"]

    def test_a_conversation_is_one_operation(self, memory: Memory) -> None:
        talk = [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "one", "name": "Ada"},
            {"role": "assistant", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]},
        ]
        before = len(memory.tree.History())
        rows = memory.add(talk, user_id="ada", run_id="r", infer=False)["results"]

        assert [(row["memory"], row["actor_id"], row["role"]) for row in rows] == [
            ("one", "Ada", "user"),
            ("two\nthree", None, "assistant"),
        ]
        assert len(memory.tree.History()) == before + 1
        memory.undo()
        assert memory.get_all(filters=ADA) == {"results": []}

    def test_messages_without_role_or_content_are_left_out_and_reported(
        self, memory: Memory, caplog: pytest.LogCaptureFixture
    ) -> None:
        rows = memory.add([{"role": "user"}, "x", {"role": "user", "content": "kept"}], infer=False, **ADA)["results"]

        assert [row["memory"] for row in rows] == ["kept"]
        assert len([record for record in caplog.records if "without role or content" in record.getMessage()]) == 2

    def test_identity_in_metadata_is_ignored_and_reported(
        self, memory: Memory, caplog: pytest.LogCaptureFixture
    ) -> None:
        id = add(memory, "x", metadata={"user_id": "eve", "topic": "tea"})

        row = memory.get(id)
        assert row is not None
        assert (row["user_id"], row["metadata"]) == ("ada", {"topic": "tea"})
        assert "metadata['user_id']" in caplog.text
        assert memory.get_all(filters={"user_id": "eve"}) == {"results": []}

    @pytest.mark.parametrize(
        ("named", "said"),
        [
            ({"user_id": None}, "At least one of"),
            ({"user_id": " "}, "must not be blank"),
            ({"user_id": "a b"}, "nor hold blanks"),
            ({"memory_type": "procedural_memory"}, "memory_type"),
            ({"timestamp": 1}, "timestamp"),
            ({"expiration_date": "tomorrow"}, "YYYY-MM-DD"),
            ({"expiration_date": 7}, "YYYY-MM-DD"),
            ({"metadata": [1]}, "metadata"),
            ({"metadata": {"n": float("nan")}}, "metadata"),
            ({"messages": 7}, "messages must be"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}, "image_url"),
            ({"messages": [{"role": "user", "content": b"x"}]}, "must be text"),
            ({"messages": [{"role": 7, "content": "x"}]}, "role"),
            ({"messages": [{"role": "user", "content": "x", "name": 7}]}, "name"),
            ({"messages": "\ud800"}, "content"),
        ],
    )
    def test_what_cannot_be_done_is_refused_by_name(self, memory: Memory, named: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            memory.add(**{"messages": "x", "infer": False, **ADA, **named})

        assert memory.tree.TreeMetrics()["infos"] == 0


class TestExtract:
    TALK = "I moved to Bern. My dog is Oliver."

    def extract(self, tree: KeywordTree, *replies: Any) -> tuple[Memory, StubLLMClient]:
        client = StubLLMClient(list(replies))
        return Memory(tree=tree, llm_client=client), client

    def test_facts_of_a_model_are_memories(self, tree: KeywordTree) -> None:
        reply = {"memory": [{"text": "Ada lives in Bern.", "attributed_to": "user"}, {"text": "Oliver is Ada's dog."}]}
        memory, client = self.extract(tree, reply)
        rows = memory.add(self.TALK, prompt="only facts about dogs", **ADA)["results"]

        assert [set(row) for row in rows] == [{"id", "memory", "event"}] * 2
        assert texts({"results": rows}) == ["Ada lives in Bern.", "Oliver is Ada's dog."]
        found = memory.get(rows[0]["id"])
        assert found is not None
        assert found["attributed_to"] == "user"
        (system, asked), schema = client.calls[0]
        question = json.loads(asked["content"])
        assert (question["intent"], question["context"]) == ("extract_facts", "only facts about dogs")
        assert json.loads(system["content"].partition("Reply schema: ")[2]) == schema

    def test_known_memories_are_shown_and_not_stored_again(self, tree: KeywordTree) -> None:
        memory, client = self.extract(tree, {"memory": [{"text": "My dog is Oliver."}, {"text": "new"}]})
        add(memory, "My dog is Oliver.")
        add(memory, "My dog is Max.", user_id="eve")
        rows = memory.add(self.TALK, **ADA)["results"]

        assert texts({"results": rows}) == ["new"]
        asked = json.loads(client.calls[0][0][-1]["content"])
        assert asked["candidates"] == [{"idx": 0, "name": "My dog is Oliver.", "path": ""}]

    def test_nothing_worth_remembering_stores_nothing(self, tree: KeywordTree) -> None:
        memory, _ = self.extract(tree, {"memory": []})

        assert memory.add("Hello!", **ADA) == {"results": []}

    @pytest.mark.parametrize(
        "reply",
        [
            None,
            "facts",
            [],
            {},
            {"memory": "x"},
            {"memory": {"text": "x"}},
            {"memory": ["x"]},
            {"memory": [{"text": 7}]},
            {"memory": [{"text": " "}]},
            {"memory": [{"fact": "x"}]},
            {"memory": [{"text": "x"}, None]},
            {"error": "no credit"},
            RuntimeError("no credit"),
        ],
        ids=repr,
    )
    def test_a_malformed_reply_stores_the_message(
        self, tree: KeywordTree, caplog: pytest.LogCaptureFixture, reply: Any
    ) -> None:
        memory, _ = self.extract(tree, reply, reply)
        with caplog.at_level(logging.WARNING):
            rows = memory.add(self.TALK, **ADA)["results"]
            memory.add("again", **ADA)

        assert texts({"results": rows}) == [self.TALK]
        assert len([record for record in caplog.records if "stored as they are" in record.getMessage()]) == 1

    def test_without_a_model_messages_are_stored_and_that_is_reported_once(
        self, memory: Memory, caplog: pytest.LogCaptureFixture
    ) -> None:
        for text in ("one", "two"):
            assert texts(memory.add(text, **ADA)) == [text]

        assert caplog.text.count("llm_client=") == 1


class TestSearch:
    @pytest.fixture
    def memory(self, tree: KeywordTree) -> Memory:
        memory = Memory(tree=tree)
        add(memory, "龙井是杭州的绿茶", metadata={"topic": "tea", "cups": 3, "tags": ["Green", "hot"]})
        add(memory, "black tea wants boiling water", metadata={"topic": "tea", "cups": 1.5})
        dog = {"topic": "dog", "old": True, "at": {"city": "Bern"}}
        add(memory, "my dog is Oliver", metadata=dog, agent_id="helper")
        add(memory, "green tea for eve", user_id="eve")
        return memory

    def test_finds_in_chinese_and_english_what_is_the_users(self, memory: Memory) -> None:
        assert texts(memory.search("杭州产什么茶?", filters=ADA)) == ["龙井是杭州的绿茶"]
        found = memory.search("which tea wants boiling water?", filters=ADA)["results"]
        assert found[0]["memory"] == "black tea wants boiling water"
        assert 0.1 <= found[0]["score"] <= 1
        assert memory.search("zzz", filters=ADA) == {"results": []}
        assert len(memory.search("zzz", filters=ADA, threshold=0.0)["results"]) == 3
        assert memory.search("tea", filters=ADA, top_k=0) == {"results": []}

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"topic": "tea"}, "gb"),
            ({"topic": {"ne": "tea"}}, "d"),
            ({"topic": {"in": ["dog", "cat"]}}, "d"),
            ({"topic": {"nin": ["dog", "cat"]}}, "gb"),
            ({"cups": {"gt": 1.5}}, "g"),
            ({"cups": {"gte": 1.5, "lt": 3}}, "b"),
            ({"cups": {"lte": "3"}}, ""),
            ({"cups": "*"}, "gbd"),
            ({"cups": {"ne": 3}}, "b"),
            ({"cups": {"nin": [3]}}, "b"),
            ({"cups": [3, 4]}, "g"),
            ({"tags": {"contains": "ree"}}, "g"),
            ({"tags": {"ne": "hot"}}, "g"),
            ({"old": True}, "d"),
            ({"old": 1}, ""),
            ({"topic": {"contains": "o"}}, "d"),
            ({"topic": {"contains": "O"}}, ""),
            ({"topic": {"icontains": "O"}}, "d"),
            ({"tags": "hot"}, "g"),
            ({"tags": {"contains": "Green"}}, "g"),
            ({"tags": {"icontains": "green"}}, "g"),
            ({"agent_id": "helper"}, "d"),
            ({"agent_id": "*"}, "gbd"),
            ({"role": "user"}, "gbd"),
            ({"AND": [{"topic": "tea"}, {"cups": {"gt": 2}}]}, "g"),
            ({"OR": [{"cups": 3}, {"topic": "dog"}]}, "gd"),
            ({"NOT": [{"topic": "tea"}]}, "d"),
            ({"$or": [{"cups": 3}, {"$not": [{"topic": "tea"}]}]}, "gd"),
            ({"NOT": [{"OR": [{"cups": 3}, {"topic": "dog"}]}]}, "b"),
            ({"at.city": "Bern"}, "d"),
            ({"x' OR 1=1": 1}, ""),
        ],
    )
    def test_filters(self, memory: Memory, wanted: dict[str, Any], found: str) -> None:
        names = {"g": "龙井是杭州的绿茶", "b": "black tea wants boiling water", "d": "my dog is Oliver"}

        assert set(texts(memory.get_all(filters={**ADA, **wanted}))) == {names[letter] for letter in found}

    def test_explains_itself(self, memory: Memory) -> None:
        (row,) = memory.search("dog", filters=ADA, explain=True)["results"]

        assert row["score_details"]["overlap_score"] == row["score"]

    def test_expired_ones_are_reported_when_asked_for(self, memory: Memory) -> None:
        yesterday = (datetime.now(UTC) - timedelta(days=2)).date()
        add(memory, "old milk", expiration_date=yesterday)
        add(memory, "fresh milk", expiration_date=datetime.now(UTC) + timedelta(days=2))

        assert texts(memory.search("milk", filters=ADA)) == ["fresh milk"]
        assert set(texts(memory.search("milk", filters=ADA, show_expired=True))) == {"old milk", "fresh milk"}
        assert len(memory.get_all(filters=ADA, show_expired=True)["results"]) == 5
        assert texts(memory.get_all(filters=ADA, top_k=1)) == ["fresh milk"]

    @pytest.mark.parametrize(
        ("query", "named", "said"),
        [
            (" ", {}, "must not be blank"),
            (7, {}, "query must be a string"),
            ("x", {"filters": None}, "at least one of"),
            ("x", {"filters": {"topic": "tea"}}, "at least one of"),
            ("x", {"filters": "user_id"}, "filters must be"),
            ("x", {"user_id": "ada"}, "user_id cannot be taken here: ids go into filters"),
            ("x", {"limit": 3}, "limit cannot be taken here: top_k is"),
            ("x", {"rerank": True}, "rerank"),
            ("x", {"reference_date": "2020-01-01"}, "reference_date"),
            ("x", {"threshold": 2}, "from 0 to 1"),
            ("x", {"threshold": "0.1"}, "from 0 to 1"),
            ("x", {"top_k": -1}, "not below 0"),
            ("x", {"top_k": True}, "whole number"),
            ("x", {"filters": {**ADA, "n": {"$where": "1"}}}, r"operator .*\$where"),
            ("x", {"filters": {**ADA, "OR": []}}, "takes a list of filters"),
            ("x", {"filters": {**ADA, "n": None}}, "compare with None"),
            ("x", {"filters": {**ADA, "n": {}}}, "operator"),
            ("x", {"filters": {**ADA, "n": {"in": "tea"}}}, "in of a filter .* 'tea'"),
            ("x", {"filters": {**ADA, "n": {"eq": ["x"]}}}, "eq of a filter"),
            ("x", {"filters": {**ADA, "n": {"gt": [1]}}}, "gt of a filter"),
            ("x", {"filters": {**ADA, "n": {"contains": 3}}}, "contains of a filter .* 3"),
            ("x", {"filters": {**ADA, "$nor": [{"n": 3}]}}, "in of a filter"),
            ("x", {"filters": {**ADA, "AND": "x"}}, "takes a list of filters"),
            ("x", {"filters": {**ADA, "NOT": ["x"]}}, "takes a list of filters"),
        ],
    )
    def test_what_cannot_be_done_is_refused_by_name(
        self, memory: Memory, query: Any, named: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(ValueError, match=said):
            memory.search(query, **{"filters": ADA, **named})

    def test_an_embedder_finds_what_shares_no_word(self, tree: KeywordTree, memory: Memory) -> None:
        pytest.importorskip("numpy")

        class Model:
            name = "likes animals"

            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return [[1.0, float("dog" in text or "animal" in text), 0.0] for text in texts]

        likes = Memory(tree=tree, embedder=Model())
        assert texts(likes.search("animal", filters=ADA))[0] == "my dog is Oliver"


class TestChange:
    def test_update_keeps_what_is_not_reported(self, memory: Memory) -> None:
        id = add(memory, "one", metadata={"a": 1, "b": 2})
        memory.update(id, text="two")
        memory.update(id, metadata={"b": 3, "user_id": "eve"})
        memory.update(id, expiration_date="2099-01-01")

        row = memory.get(id)
        assert row is not None
        assert (row["memory"], row["metadata"], row["user_id"]) == ("two", {"a": 1, "b": 3}, "ada")
        assert row["expiration_date"] == "2099-01-01"
        assert row["created_at"] < row["updated_at"]
        assert texts(memory.search("two", filters=ADA)) == ["two"]
        assert "one" not in texts(memory.search("one", filters=ADA))

    @pytest.mark.parametrize("id", ["missing", 7, None])
    def test_unknown_ids(self, memory: Memory, id: Any) -> None:
        with pytest.raises(ValueError, match=f"there is no memory {id!r}"):
            memory.update(id, "x")
        with pytest.raises(ValueError, match=f"there is no memory {id!r}"):
            memory.delete(id)

        assert memory.get(id) is None
        with pytest.raises(ValueError, match="one of text, metadata"):
            memory.update(id)

    def test_what_is_no_memory_is_left_alone(self, memory: Memory) -> None:
        other = memory.tree.CreateInfo("not mine", metadata={"mem0": "?"})
        add(memory, "mine")

        assert memory.get(other.id) is None
        with pytest.raises(ValueError, match="there is no memory"):
            memory.delete(other.id)
        memory.reset()
        assert [info.content for info in memory.tree.ListInfos()] == ["not mine"]

    def test_delete_all_and_reset_are_one_operation_each(self, memory: Memory) -> None:
        for number in range(5):
            add(memory, f"m{number}", agent_id="a" if number % 2 else None)
        memory.delete_all(user_id="ada", agent_id="a")
        assert texts(memory.get_all(filters=ADA)) == ["m4", "m2", "m0"]
        memory.delete_all(user_id="missing")
        memory.reset()
        assert memory.get_all(filters=ADA) == {"results": []}
        assert memory.tree.Search("ada").status == "not_found"  # no name of an owner stays
        memory.undo()
        memory.undo()

        assert len(memory.get_all(filters=ADA)["results"]) == 5
        with pytest.raises(ValueError, match="whose memories"):
            memory.delete_all()

    def test_history_tells_every_change_and_undo_takes_its_ids(self, memory: Memory) -> None:
        id = add(memory, "one")
        memory.update(id, "two")
        memory.delete(id)
        rows = memory.history(id)

        assert [(row["event"], row["old_memory"], row["new_memory"], row["is_deleted"]) for row in rows] == [
            ("ADD", None, "one", False),
            ("UPDATE", "one", "two", False),
            ("DELETE", "two", None, True),
        ]
        assert len({row["created_at"] for row in rows}) == 1
        assert {row["role"] for row in rows} == {"user"}
        with pytest.raises(ConflictError):
            memory.undo(rows[0]["id"])
        memory.undo(rows[2]["id"])
        assert texts(memory.get_all(filters=ADA)) == ["two"]
        assert memory.history("missing") == []
        assert {change.author for change in memory.tree.History() if change.op != "create_store"} == {"mem0"}

    def test_undo_without_a_change_says_so(self, memory: Memory) -> None:
        with pytest.raises(ValueError, match="nothing was changed"):
            memory.undo()
        with pytest.raises(NotImplementedError):
            memory.chat("x")


class TestWhoeverChangesTheTree:
    def test_moved_renamed_and_deleted_keywords_keep_the_view(self, memory: Memory) -> None:
        add(memory, "one")
        node = memory.tree.Search("users/ada").node
        assert node is not None
        memory.tree.UpdateKeyword(node.id, {"name": "Ada Lovelace"}, node.version)
        memory.tree.MoveKeyword(node.id, "root")
        add(memory, "two")
        memory.tree.DeleteKeyword(node.id)
        add(memory, "three")

        assert texts(memory.get_all(filters=ADA)) == ["three", "two", "one"]
        assert texts(Memory(tree=memory.tree).get_all(filters=ADA)) == ["three", "two", "one"]


class TestOpening:
    def test_a_folder_is_opened_and_closed(self, tmp_path: Path) -> None:
        with Memory(path=str(tmp_path)) as memory:
            add(memory, "one")
            tree = memory.tree
        assert "closed" in repr(tree)
        with Memory.from_config({"path": str(tmp_path)}) as memory:
            assert texts(memory.get_all(filters=ADA)) == ["one"]

    def test_mem0s_sections_are_named_once(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        config = {"path": str(tmp_path), "vector_store": {"provider": "qdrant"}, "llm": {}, "embedder": {}}
        Memory.from_config(config).close()

        (record,) = caplog.records
        assert "vector_store, llm, embedder" in record.getMessage()

    @pytest.mark.parametrize("config", ["x", [1]])
    def test_what_is_no_configuration_is_refused(self, config: Any) -> None:
        with pytest.raises(InvalidInputError, match="configuration"):
            Memory(config)

    def test_it_needs_no_package(self, tmp_path: Path) -> None:
        code = (
            "import sys\n"
            "for name in ('mem0', 'numpy', 'openai', 'langgraph'): sys.modules[name] = None\n"
            "from Agent.adapters.mem0 import Memory\n"
            f"memory = Memory(path={str(tmp_path)!r})\n"
            "memory.add('green tea', user_id='ada', infer=False)\n"
            "print(memory.search('tea', filters={'user_id': 'ada'})['results'][0]['memory'])"
        )
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

        assert run.stdout.strip() == "green tea", run.stderr


def test_a_configuration_opens_the_awaited_form_too(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncMemory.from_config({"path": str(tmp_path)}) as memory:
            await asyncio.gather(*(memory.add(f"m{number}", infer=False, **ADA) for number in range(10)))
            assert len((await memory.get_all(filters=ADA))["results"]) == 10

    asyncio.run(work())
