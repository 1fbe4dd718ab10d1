"""Texts in which no one says who the user is, through both packages, with a model that believes all of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine import ContextEngineService, RequestContext
from Agent.keyword_tree import LLMClient
from Agent.memory import MemoryStore
from Agent.tests.memory.test_extraction import NOT_THE_USERS, entity, greedy_rows, relation

ADA = RequestContext("acme", "ada", "helper", "s1")
NAMES = ("Mallory", "Oslo", "坏人", "奥斯陆")
PLAIN = "My name is Mallory. I live in Oslo. I love jazz. Mallory lives in Oslo."


class Believer(LLMClient):
    """Claims all that a text could be taken to say, with every quote that there is."""

    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        question = json.loads(messages[-1]["content"])
        text = question["messages"][0]["text"]
        facts = greedy_rows(text)
        ends = (("Mallory", "Oslo"), ("坏人", "奥斯陆"))
        quotes = dict.fromkeys(each["quote"] for each in facts)
        claims = [relation(one, "lives_in", other, quote) for one, other in ends for quote in quotes]
        return {"entities": [entity(name) for name in NAMES], "relations": claims, "facts": facts}


def believed_by_the_engine(text: str) -> tuple[str, list[str]]:
    with ContextEngineService(None, llm=Believer()) as engine:
        engine.commit_session(ADA, [{"role": "user", "content": text}])
        memories = engine.list_children(ADA, "ctx://acme/users/ada/memories", recursive=True)
        return engine.brief(ADA).text, [each.uri for each in memories if not each.is_dir]


def related_by_the_store(folder: Path, text: str) -> list[str]:
    with MemoryStore(folder, llm_client=Believer(), extract="model") as store:
        store.remember(text)
        assert store.extraction_failure == ""
        nodes = store.tree.GetChildren("root")
        return [str(each.relation_type) for node in nodes for each in store.graph.get_relations(node.id)]


@pytest.mark.parametrize("text", NOT_THE_USERS.values(), ids=NOT_THE_USERS)
def test_nothing_is_believed_of_the_user(tmp_path: Path, text: str) -> None:
    assert believed_by_the_engine(text) == ("", [])
    assert related_by_the_store(tmp_path, text) == []


def test_what_is_said_plainly_is_believed(tmp_path: Path) -> None:
    brief, uris = believed_by_the_engine(PLAIN)

    assert "lives_in: Oslo" in brief
    assert "name: Mallory" in brief
    assert any("/preferences/" in uri for uri in uris)
    assert set(related_by_the_store(tmp_path, PLAIN)) == {"lives_in"}
