"""A log that lost its last writes, as after an asynchronous failover: adapters open it again by themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.adapters import langgraph, mem0, operations
from Agent.adapters.langchain import KeywordTreeRetriever
from Agent.keyword_tree import KeywordTree, StoreCorruptError
from Agent.memory.store import MemoryStore
from Agent.tests.shared.memory_log import MemoryLog


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryLog:
    log = MemoryLog()

    def open_tree(place: str) -> KeywordTree:
        return KeywordTree(str(tmp_path / "cache"), store=log.tree("u42"))

    for module in (langgraph, mem0, operations):
        monkeypatch.setattr(module, "open_tree", open_tree)
    return log


class Store:
    """Puts and lists, whichever adapter it is."""

    def __init__(self, kind: str) -> None:
        if kind == "langgraph":
            store = langgraph.KeywordTreeStore.from_folder("here")
            self.put: Callable[[str], Any] = lambda text: store.put(("a",), text, {"text": text})
            self.list: Callable[[], list[str]] = lambda: sorted(item.key for item in store.search(("a",)))
        else:
            memory = mem0.Memory(path="here")
            self.put = lambda text: memory.add(text, user_id="u", infer=False)
            self.list = lambda: sorted(row["memory"] for row in memory.get_all(filters={"user_id": "u"})["results"])


@pytest.mark.parametrize("kind", ["langgraph", "mem0"])
class TestLostTail:
    def test_of_others_is_passed_over(self, log: MemoryLog, kind: str) -> None:
        mine, theirs = Store(kind), Store(kind)
        mine.put("mine")
        theirs.put("theirs")
        assert mine.list() == ["mine", "theirs"]
        batches = log.rows.held["u42"].batches
        del batches[max(batches)]

        assert mine.list() == ["mine", "theirs"]  # what was read can be read on, until something is written
        mine.put("more")
        assert mine.list() == Store(kind).list() == ["mine", "more"]

    def test_of_its_own_is_said(self, log: MemoryLog, kind: str) -> None:
        mine = Store(kind)
        mine.put("first")
        mine.put("second")
        batches = log.rows.held["u42"].batches
        del batches[max(batches)]

        for _ in range(2):
            with pytest.raises(StoreCorruptError, match="1 acknowledged operations are not there any more"):
                mine.put("third")
        assert Store(kind).list() == ["first"]


def test_an_mcp_server_goes_on_too(log: MemoryLog, tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
    from Agent.adapters.mcp.server import build_server
    from Agent.tests.adapters.mcp.test_server import ask

    with KeywordTree(str(tmp_path / "elsewhere"), store=log.tree("u42")) as other:
        server = build_server(KeywordTree(str(tmp_path / "cache"), store=log.tree("u42")), "here")

        def call(name: str, **arguments: Any) -> Any:
            result = ask(server, lambda client: client.call_tool(name, arguments))
            assert not result.is_error, result
            return result.structured_content

        call("remember", content="mine", keywords=["k"])
        other.CreateInfo("theirs")
        call("read_graph")
        batches = log.rows.held["u42"].batches
        del batches[max(batches)]
        call("remember", content="more", keywords=["k"])

        assert [fact["content"] for fact in call("search", query="k")["match"]["facts"]] == ["mine", "more"]


@pytest.mark.parametrize("kind", ["mem0", "langchain"])
def test_who_gave_the_tree_is_told_to_open_it_again(log: MemoryLog, tmp_path: Path, kind: str) -> None:
    with KeywordTree(str(tmp_path / "elsewhere"), store=log.tree("u42")) as tree:
        memory = mem0.Memory(tree=tree)
        memory.add("first", user_id="u", infer=False)
        batches = log.rows.held["u42"].batches
        del batches[max(batches)]

        retriever = KeywordTreeRetriever(tree=tree)
        with pytest.raises(StoreCorruptError, match="open it again"):
            memory.add("second", user_id="u", infer=False) if kind == "mem0" else retriever.invoke("first")


def test_a_store_over_a_log_says_which_and_what_to_do(log: MemoryLog, tmp_path: Path) -> None:
    with MemoryStore(tmp_path, "ada", log=log.tree) as mine, MemoryStore(tmp_path, "ada", log=log.tree) as theirs:
        mine.remember("mine")
        theirs.remember("theirs")
        assert {memory.text for memory in mine.list()} == {"mine", "theirs"}
        batches = log.rows.held["user=ada/memory"].batches
        del batches[max(batches)]

        for _ in range(2):
            with pytest.raises(StoreCorruptError, match=r"^the log of the tree 'user=ada/memory'.*: .*open it again"):
                mine.remember("more")
    with MemoryStore(tmp_path, "ada", log=log.tree) as again:
        again.remember("more")
        assert {memory.text for memory in again.list()} == {"mine", "more"}
