"""The items of an adapter, in memory: infos with metadata of its own, by id and by group; it follows the tree's log.

>>> import tempfile
>>> class Notes(ItemList[str]):
...     def read(self, info: Info, old: str | None) -> str | None:
...         return None if info.deleted else info.content
...     def places(self, id: str, item: str) -> list[tuple[str, str]]:
...         return [(item[0], id)]
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     notes = Notes(tree, "notes")
...     tea = tree.CreateInfo("tea")
...     notes.catch_up()
...     notes.groups == {"t": {tea.id: "tea"}}
True
"""

import json
import os
import tempfile
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from ..keyword_tree import ClosedError, Info, KeywordTree, StoreError, _CollectorOff
from ..store.log_follower import LogChanges, LogFollower, Position, all_infos
from .item_ranking import ItemRanking, index_path

__all__ = ["KEPT_FROM", "ItemAdapter", "ItemList", "KeptView"]

KEPT_FROM = 2_000
"""Records from which on what is derived of them is kept: fewer are read within a moment."""

_T = TypeVar("_T")


class KeptView(ABC):
    """What is derived of a tree's records and held in memory; it follows the log.

    Of many records it is kept in `indexes/` beside the tree, and the next process goes on with it.

    Args:
        tree: Where they are.
        name: Of the file.

    Cost: at the first question 20 µs for each record, or some 3 where it was kept; then for each that changes.
    """

    def __init__(self, tree: KeywordTree, name: str) -> None:
        self._tree, self._follower = tree, LogFollower(tree)
        self._file = index_path(tree, name).with_suffix(".json")
        self._is_begun: bool | None = None  # whether all is taken in; None: what was kept was not looked for yet
        self._kept, self._kept_count = Position(), 0  # as of when it was kept, and of how many records
        self.clear()

    # -- of each kind

    @abstractmethod
    def clear(self) -> None:
        """Forget all."""

    @abstractmethod
    def read_tree(self) -> None:
        """Take in all there is."""

    @abstractmethod
    def take(self, changes: LogChanges) -> None:
        """Take in changes."""

    @abstractmethod
    def count(self) -> int:
        """Return how many records it is derived of."""

    @abstractmethod
    def to_json(self) -> Any:
        """Return all as JSON."""

    @abstractmethod
    def from_json(self, kept: Any) -> None:
        """Take in what `to_json` returned; after `clear`."""

    def is_disturbed(self, changes: LogChanges) -> bool:
        """Tell whether `read_tree` may have missed something of what was written meanwhile."""
        return False

    # -- following the tree

    def catch_up(self) -> None:
        """Follow the log."""
        self._follow()
        if self.count() >= 2 * max(KEPT_FROM // 2, self._kept_count):
            self.keep()

    def _follow(self) -> None:
        is_begun, self._is_begun = self._is_begun, False  # where something fails halfway, the next call reads all again
        if is_begun is None:
            is_begun = self._resume()
        changes = self._follower.catch_up() if is_begun else self._follower.begin(self._read_again, self.is_disturbed)
        if changes.from_nothing:
            self.clear()
        self.take(changes)
        self._is_begun = True

    def _read_again(self) -> None:
        self.clear()
        self.read_tree()

    # -- keeping

    def _resume(self) -> bool:
        """Begin with what an earlier process kept; tell whether the log still has the place where that was."""
        is_there, harm = False, (OSError, ValueError, LookupError, TypeError, AttributeError)
        with suppress(*harm), _CollectorOff():  # there is none, or it is damaged
            check, _, text = self._file.read_bytes().partition(b" ")
            if int(check) == zlib.crc32(text):
                kept = json.loads(text)
                self.from_json(kept["items"])
                self._kept, self._kept_count = Position(*kept["position"]), self.count()
                is_there = self._follower.resume(self._kept)
        if not is_there:
            self._kept, self._kept_count = Position(), 0
            self.clear()
            with suppress(OSError):  # it may hold what was deleted for good
                self._file.unlink()
        return is_there

    def keep(self) -> None:
        """Keep all for the next process, as far as this one has read the log, where it is of many records."""
        if self.count() < KEPT_FROM:
            return
        self._follow()  # what was deleted since may have been removed from the disk
        if self._follower.position == self._kept:
            return
        self._kept, self._kept_count = self._follower.position, self.count()
        kept = {"position": self._kept, "items": self.to_json()}
        text = json.dumps(kept, ensure_ascii=False).encode()
        with suppress(OSError):  # read-only, or full: the next process reads the tree
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            begun = f"{self._file.name}."
            for left in self._file.parent.glob(f"{begun}*"):  # of a process that was killed, or is outrun now
                left.unlink(missing_ok=True)
            with tempfile.NamedTemporaryFile(prefix=begun, dir=self._file.parent, delete=False) as file:
                file.write(b"%d %b" % (zlib.crc32(text), text))
            os.replace(file.name, self._file)


class ItemList(KeptView, Generic[_T]):
    """The items of a tree, each in some groups, in the order in which they were made.

    Attributes:
        by_id: Each item by the id of its info.
        groups: The same by group and by a key of their own; a group without items is not there.
    """

    moves = False
    """Whether an item that changed comes last; else it keeps its place."""

    # -- of each kind of items

    @abstractmethod
    def read(self, info: Info, old: _T | None) -> _T | None:
        """Return the item that an info is: `old` itself where that has not changed, None for any other info."""

    @abstractmethod
    def places(self, id: str, item: _T) -> Iterable[tuple[Any, str]]:
        """Return the groups of an item, and its key in each."""

    def in_order(self, infos: Iterable[Info]) -> Iterable[Info]:
        """Return all infos of a tree in the order of the items."""
        return infos

    def row_of(self, item: _T) -> Any:
        """Return an item as JSON, to be kept."""
        return item

    def item_of(self, id: str, row: Any) -> _T:
        """Return the item of such a row."""
        return row  # type: ignore[no-any-return]

    # -- as of each view

    def clear(self) -> None:
        """Forget all items."""
        self.by_id: dict[str, _T] = {}
        self.groups: dict[Any, dict[str, _T]] = {}

    def read_tree(self) -> None:
        """Take in all infos."""
        for info in self.in_order(all_infos(self._tree)):
            self._take(info)

    def take(self, changes: LogChanges) -> None:
        """Take in infos that changed."""
        for info in changes.infos:
            self._take(info)

    def count(self) -> int:
        """Return how many items there are."""
        return len(self.by_id)

    def to_json(self) -> list[Any]:
        """Return the id and the row of each item."""
        return [(id, self.row_of(item)) for id, item in self.by_id.items()]

    def from_json(self, kept: Any) -> None:
        """Take in such rows."""
        for id, row in kept:
            item = self.item_of(id, row)
            self._enter(id, item, self.places(id, item))

    # -- entering and leaving

    def _take(self, info: Info) -> None:
        old = self.by_id.get(info.id)
        new = self.read(info, old)
        if new is old:
            return
        places = [] if new is None else list(self.places(info.id, new))
        if old is not None:
            self._leave(info.id, old, () if self.moves else places)
        if new is not None:
            self._enter(info.id, new, places)

    def _enter(self, id: str, item: _T, places: Iterable[tuple[Any, str]]) -> None:
        self.by_id[id] = item
        for group, key in places:
            self.groups.setdefault(group, {})[key] = item

    def _leave(self, id: str, item: _T, stays: Iterable[tuple[Any, str]]) -> None:
        if not stays:
            del self.by_id[id]
        for group, key in self.places(id, item):
            listed = self.groups.get(group, {})
            if (group, key) not in stays and listed.get(key) is item:
                del listed[key]
                if not listed:
                    del self.groups[group]


class ItemAdapter:
    """What keeps items in a tree that was given, or that it opened itself."""

    tree: KeywordTree
    _is_own = False
    """Whether it opened the tree itself: then it closes it."""
    _items: ItemList[Any]
    _ranking: ItemRanking
    _lock: threading.RLock
    """Guards the items; held over no sync and no model."""

    def _catch_up(self) -> None:
        with self._lock:
            self._items.catch_up()

    def _embed(self, questions: Iterable[str] = ()) -> None:
        """Have the model read what is new, and questions."""
        self._catch_up()
        self._ranking.embed(questions)

    def close(self) -> None:
        """Leave the list of items and their index on disk, and close the tree, if it was opened here."""
        self._ranking.close()
        with suppress(StoreError, ClosedError), self._lock:
            self._items.keep()
        if self._is_own:
            self.tree.Close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} in {self.tree!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
