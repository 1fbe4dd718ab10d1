"""Follow a tree's log, so that derived data stays true, also where another process wrote or undid.

>>> import tempfile
>>> from keyword_tree import KeywordTree
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     follower = LogFollower(tree)
...     _ = follower.catch_up()
...     info = tree.CreateInfo("龙井来自杭州")
...     [record.content for record in follower.catch_up().infos]
['龙井来自杭州']
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ..keyword_tree import Info, InfoKeywordLink, KeywordNode, KeywordTree, NotFoundError, StoreError

__all__ = ["LogChanges", "LogFollower", "Position", "all_infos", "outside_operations"]

_T = TypeVar("_T")

_STATE = "state"  # what a log that was written again begins with: all there is
_ATTEMPTS = 3  # at reading a tree that others write to
_PAGE = 1_000  # infos read at once


class Position(NamedTuple):
    """A place in a log: after one operation, which no other log has."""

    seq: int = 0
    """The operation's number; 0 is the beginning."""
    operation_id: str = ""
    """Its id."""


@dataclass
class LogChanges:
    """The changes since the last time; of a record written twice, both versions in their order."""

    from_nothing: bool = False
    """Whether this is all there is: earlier derived data is to be dropped first."""
    nodes: list[KeywordNode] = field(default_factory=list)
    """Keywords as they became; `deleted` is true of those that went."""
    infos: list[Info] = field(default_factory=list)
    """Infos, likewise."""
    links: list[InfoKeywordLink] = field(default_factory=list)
    """Links, likewise."""


class LogFollower:
    """Remembers up to where a reader has read a tree's log.

    The writes of an open `Operation` are not in the log yet, so they are not followed either.

    Attributes:
        position: After the last read operation.
    """

    def __init__(self, tree: KeywordTree) -> None:
        self._tree = tree
        self.position = Position()
        self._store = tree._engine.store  # another one where the tree was opened again

    def catch_up(self) -> LogChanges:
        """Return the changes.  Cost: some 0.4 ms where nothing is, else a decoded row for each record."""
        read = self._tree.Changes(self.position.seq)
        store, self._store = self._store, self._tree._engine.store
        if store is not self._store and self.position.seq and not self._tree._journal.Has(*self.position):
            self.position = Position()  # the log lost its tail, as after a failover
            read = self._tree.Changes()
        position = self.position
        changes = LogChanges(from_nothing=position.seq == 0)
        in_state = False
        for change in read:
            if change.op == _STATE and not in_state:
                changes = LogChanges(from_nothing=True)
            in_state = change.op == _STATE
            position = Position(change.seq, change.operation_id)
            for record in change.after:
                if isinstance(record, KeywordNode):
                    changes.nodes.append(record)
                elif isinstance(record, Info):
                    changes.infos.append(record)
                else:
                    changes.links.append(record)
        self.position = position  # not before all was read: what fails halfway comes again
        return changes

    def resume(self, position: Position) -> bool:
        """Go on after an operation that a reader noted; says whether the log still has it there.

        Cost: reads the log backwards to it.
        """
        if position.seq < 1:
            return False
        with contextlib.suppress(StoreError):  # after a failed sync, say: what is known can be read all the same
            self._tree.Refresh()
        is_there = self._tree._journal.Has(*position)
        if is_there:
            self.position = position
        return is_there

    def begin(self, read_tree: Callable[[], None], is_disturbed: Callable[[LogChanges], bool]) -> LogChanges:
        """Let all there is be read from the tree, which is faster than from the log, and return what came after.

        Args:
            read_tree: Reads it, from nothing each time that it is called.
            is_disturbed: Whether what was written meanwhile may have made it miss something, as a keyword that
                was moved from where it was not read yet to where it was; nothing can with `all_infos`.

        Returns:
            The changes since; `from_nothing` where all of it had to come from the log after all.
        """
        return outside_operations(lambda: self._begin(read_tree, is_disturbed))

    def _begin(self, read_tree: Callable[[], None], is_disturbed: Callable[[LogChanges], bool]) -> LogChanges:
        for _ in range(_ATTEMPTS):
            newest = self._tree.History(limit=1)
            if not newest:
                break
            self.position = Position(newest[0].seq, newest[0].operation_id)
            read_tree()
            changes = self.catch_up()
            if not is_disturbed(changes):
                return changes
        self.position = Position()
        return self.catch_up()


def all_infos(tree: KeywordTree, *, unlinked: bool = False) -> Iterator[Info]:
    """Yield all infos of a tree, or those on no keyword; others may delete some meanwhile, and one may come twice."""
    last: str | None = None
    while True:
        try:
            infos = tree.ListInfos(0, _PAGE, unlinked, last)
        except NotFoundError:  # the last one was deleted, and another reader has begun to read all since
            last = None
            continue
        if not infos:
            return
        yield from infos
        last = infos[-1].id


_of_thread = threading.local()


def outside_operations(read: Callable[[], _T]) -> _T:
    """Return what `read` returns outside of any `Operation` that is open here: a thread of its own sees none."""
    if getattr(_of_thread, "is_outside", False):
        return read()
    with ThreadPoolExecutor(1, "KeywordTree memory", lambda: setattr(_of_thread, "is_outside", True)) as reader:
        return reader.submit(read).result()
