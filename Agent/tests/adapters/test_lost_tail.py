"""A log that lost its last writes, as after an asynchronous failover: adapters open it again by themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.adapters import langgraph, mem0, operations
from Agent.keyword_tree import KeywordTree, StoreCorruptError
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
