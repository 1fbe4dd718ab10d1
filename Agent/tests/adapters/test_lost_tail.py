"""A log that lost its last writes, as after an asynchronous failover: a tree goes on, unless its own are among them."""

import importlib
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.adapters import langchain, langgraph, mem0
from Agent.keyword_tree import KeywordTree, KeywordTreeError
from Agent.knowhub import ledger
from Agent.knowhub.hub import KnowHub
from Agent.memory.store import MemoryStore
from Agent.tests.shared.memory_log import MemoryLog

KINDS = ["tree", "ranked keywords", "langgraph", "langgraph, words", "langchain", "mem0", "memory", "knowhub", "mcp"]


class Door:
    """Puts and lists texts, whichever way leads to the tree."""

    def __init__(self, kind: str, log: MemoryLog, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.put: Callable[[str], Any]
        self.list: Callable[[], list[str]]
        tree = KeywordTree(str(folder / "cache"), store=log.tree("u42"))
        if kind == "tree":
            self.put = tree.CreateInfo
            self.list = lambda: _fresh(tree, lambda: [info.content for info in tree.ListInfos()])
        elif kind == "ranked keywords":
            self.put = lambda text: tree.CreateKeyword(f"word {text}", "root")
            ranked = lambda: [node.name.removeprefix("word ") for node, _ in tree.RankCandidates("word", 10)]  # noqa: E731
            self.list = lambda: _fresh(tree, ranked)
        elif kind.startswith("langgraph"):
            store, query = langgraph.KeywordTreeStore(tree), "word" if "words" in kind else None
            self.put = lambda text: store.put(("a",), text, {"text": f"word {text}"})
            self.list = lambda: [item.key for item in store.search(("a",), query=query)]
        elif kind == "langchain":
            retriever = langchain.KeywordTreeRetriever(tree=tree)
            self.put = lambda text: tree.CreateInfo(f"word {text}")
            self.list = lambda: [each.page_content.removeprefix("word ") for each in retriever.invoke("word")]
        elif kind == "mem0":
            memory = mem0.Memory(tree=tree)
            self.put = lambda text: memory.add(text, user_id="u", infer=False)
            self.list = lambda: [row["memory"] for row in memory.get_all(filters={"user_id": "u"})["results"]]
        elif kind == "memory":
            kept = MemoryStore(tree)
            self.put = lambda text: kept.remember(f"word {text}")
            self.list = lambda: [each.text.removeprefix("word ") for each in kept.recall("word", 10)]
        elif kind == "knowhub":
            patch.setattr(ledger, "open_tree", lambda place, **_: tree)
            hub = KnowHub(folder / f"hub {id(self)}")
            weakref.finalize(self, hub.catalog.close)
            shared = {"types": ["tool"], "scopes": ["team"]}
            _, ada = hub.tokens.make("ada", ["read", "write"], ["team"])
            self.put = lambda text: hub.save(ada, {**shared, "task": f"word {text}", "content": f"do {text}"})

            def listed() -> list[str]:
                hub.catalog.catch_up()
                return [row["task"].removeprefix("word ") for row in hub.list_knowledge(ada)["results"]]

            self.list = listed
        else:
            pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
            build_server = importlib.import_module("Agent.adapters.mcp.server").build_server
            ask, server = importlib.import_module("Agent.tests.adapters.mcp.test_server").ask, build_server(tree)

            def call(name: str, **arguments: Any) -> Any:
                result = ask(server, lambda client: client.call_tool(name, arguments))
                if result.is_error:
                    raise KeywordTreeError(result.content[0].text)
                return result.structured_content

            def entity(text: str) -> dict[str, Any]:
                return {"name": text, "entityType": "word", "observations": []}

            self.put = lambda text: call("create_entities", entities=[entity(text)])
            self.list = lambda: [each["name"] for each in call("read_graph")["entities"]]


def _fresh(tree: KeywordTree, read: Callable[[], list[str]]) -> list[str]:
    tree.Refresh()
    return read()


@pytest.mark.parametrize("kind", KINDS)
class TestLostTail:
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()

    def lose_last(self, log: MemoryLog) -> None:
        batches = log.rows.held["u42"].batches
        del batches[max(batches)]

    def test_of_others_is_passed_over(
        self, log: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        mine = Door(kind, log, tmp_path / "1", monkeypatch)
        mine.put("mine")
        theirs = Door(kind, log, tmp_path / "2", monkeypatch)
        theirs.put("theirs")
        assert sorted(mine.list()) == ["mine", "theirs"]
        self.lose_last(log)

        mine.put("more")

        assert sorted(mine.list()) == sorted(Door(kind, log, tmp_path / "3", monkeypatch).list()) == ["mine", "more"]

    def test_of_its_own_is_said(
        self,
        log: MemoryLog,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        kind: str,
    ) -> None:
        mine = Door(kind, log, tmp_path / "1", monkeypatch)
        mine.put("first")
        mine.put("second")
        self.lose_last(log)

        for _ in range(2):
            with pytest.raises(Exception, match=r".") as raised:
                mine.put("third")
            cause = raised.value.__cause__ if kind == "knowhub" else raised.value
            said = caplog.text if kind == "mcp" else str(cause)
            assert "1 acknowledged operations are not there any more" in said
            assert "open it again" in said
        assert Door(kind, log, tmp_path / "2", monkeypatch).list() == ["first"]


def test_a_compaction_that_went_is_said(tmp_path: Path) -> None:
    log = MemoryLog()
    with KeywordTree(str(tmp_path), store=log.tree("u42")) as tree:
        tree.CreateInfo("to be removed")
        before = dict(log.rows.held["u42"].batches)
        tree.DeleteInfo(tree.ListInfos()[0].id)
        tree.CompactStorage(keep_history=False)
        log.rows.held["u42"].batches = before

        with pytest.raises(KeywordTreeError, match="the compaction"):
            tree.Refresh()
