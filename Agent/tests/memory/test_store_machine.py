"""Two stores on one folder against a plain dict: whatever is remembered, corrected, forgotten, undone, in any order."""

import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from Agent.keyword_tree import NotFoundError
from Agent.memory.eviction import Capacity
from Agent.memory.store import MemoryStore
from Agent.tests.support.examples import share

which = st.integers(0, 1)
any_place = st.integers(0, 10**6)


@dataclass
class Model:
    """What the stores should hold."""

    contents: dict[str, str] = field(default_factory=dict)
    newer: dict[str, str] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)

    def newest(self, id: str) -> str:
        while id in self.newer:
            id = self.newer[id]
        return id

    def current(self) -> set[str]:
        return {text for id, text in self.contents.items() if id not in self.newer}

    def history(self, id: str) -> list[str]:
        found = [self.newest(id)]
        older = {new: old for old, new in self.newer.items()}
        while found[-1] in older:
            found.append(older[found[-1]])
        return [self.contents[one] for one in found]

    def forget(self, id: str) -> None:
        texts = set(self.history(id))
        gone = {one for one, text in self.contents.items() if text in texts}
        self.contents = {one: text for one, text in self.contents.items() if one not in gone}
        self.newer = {old: new for old, new in self.newer.items() if old not in gone}
        self.pinned -= gone


class StoreMachine(RuleBasedStateMachine):
    """Every text is its own, so that a text shows which memory it is."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.stores = [MemoryStore(self.folder), MemoryStore(self.folder)]
        self.model = Model()
        self.before: Model | None = None  # the last operation, which can be undone
        self.count = 0
        self.ids: list[str] = []

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def next_text(self) -> str:
        self.count += 1
        return f"tea number{self.count}"

    def pick(self, place: int) -> str:
        return self.ids[place % len(self.ids)] if self.ids else "missing"

    def write(self, change: Callable[[], None]) -> None:
        before = deepcopy(self.model)
        change()
        self.before = before

    @rule(at=which, keyword=st.sampled_from([[], ["cup"], ["cup", "茶"]]))
    def remember(self, at: int, keyword: list[str]) -> None:
        def change() -> None:
            text = self.next_text()
            id = self.stores[at].remember(text, keyword)
            self.model.contents[id] = text
            self.ids.append(id)

        self.write(change)

    @rule(at=which, place=any_place)
    def correct(self, at: int, place: int) -> None:
        id, text = self.pick(place), self.next_text()
        if id not in self.model.contents:
            with pytest.raises(NotFoundError):
                self.stores[at].correct(id, text)
            return

        def change() -> None:
            newest = self.model.newest(id)
            new_id = self.stores[at].correct(id, text)
            self.model.contents[new_id] = text
            self.model.newer[newest] = new_id
            self.model.pinned |= {new_id} if newest in self.model.pinned else set()
            self.ids.append(new_id)

        self.write(change)

    @rule(at=which, place=any_place)
    def pin(self, at: int, place: int) -> None:
        id = self.pick(place)
        if id in self.model.contents and self.model.newest(id) not in self.model.pinned:

            def change() -> None:
                self.stores[at].pin(id)
                self.model.pinned.add(self.model.newest(id))

            self.write(change)

    @rule(at=which, place=any_place)
    def forget(self, at: int, place: int) -> None:
        id = self.pick(place)
        if id in self.model.contents:

            def change() -> None:
                self.stores[at].forget(id)
                self.model.forget(id)

            self.write(change)

    @precondition(lambda self: bool(self.model.contents))
    @rule(at=which, count=st.integers(0, 3))
    def forget_above(self, at: int, count: int) -> None:
        plan = self.stores[at].plan_forgetting(Capacity(count))
        free = [id for id in self.model.contents if id not in self.model.newer and id not in self.model.pinned]
        assert len(plan.evictions) == max(0, len(free) - count)
        assert {eviction.id for eviction in plan.evictions} <= set(free)
        if plan.evictions:

            def change() -> None:
                self.stores[1 - at].forget(plan)
                for eviction in plan.evictions:
                    self.model.forget(eviction.id)

            self.write(change)

    @precondition(lambda self: self.before is not None)
    @rule(at=which)
    def undo(self, at: int) -> None:
        def change() -> None:
            tree = self.stores[at].tree
            tree.Undo(tree.History(limit=1)[0].operation_id)
            self.model = deepcopy(self.before or Model())

        self.write(change)

    @rule(at=which, keep_history=st.booleans())
    def compact(self, at: int, keep_history: bool) -> None:
        self.stores[at].tree.CompactStorage(keep_history=keep_history)
        self.before = self.before if keep_history else None

    @rule(at=which, cleanly=st.booleans())
    def reopen(self, at: int, cleanly: bool) -> None:
        self.stores[at].close() if cleanly else self.stores[at].tree.Close()
        self.stores[at] = MemoryStore(self.folder)

    @rule(held=st.sampled_from([None, b"", b"junk" * 100]))
    def lose_what_is_derived(self, held: bytes | None) -> None:
        for file in (Path(self.folder) / "memory" / "indexes").glob("*"):
            file.unlink() if held is None else file.write_bytes(held)

    @invariant()
    def recall_what_is_true_now(self) -> None:
        for store in self.stores:
            found = store.recall("tea", 100)
            assert sorted(memory.info.content for memory in found) == sorted(self.model.current())

    @invariant()
    def tell_what_was_before(self) -> None:
        for id in list(self.model.contents)[-3:]:
            for store in self.stores:
                assert [version.content for version in store.history(id)] == self.model.history(id)


TestTwoStores = StoreMachine.TestCase
TestTwoStores.settings = share(0.3, stateful_step_count=12)
