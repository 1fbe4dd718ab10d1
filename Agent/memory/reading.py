"""Read memories for the graph: at once, later, or in a thread of its own, while the caller goes on.

What waits is in the log, not here: a process that dies leaves it there, and the next one goes on with it.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from ..base.checks import check_count
from ..keyword_tree import ClosedError, ConflictError, Info, KeywordTree, NotFoundError, VersionConflictError
from .graph_feed import TRIES, Failure, GraphFeed, Placed, Reading, named_in
from .memory_fields import MEMORY_KEY, memory_fields, waits_for
from .tree_graph import TreeGraph

__all__ = ["BackgroundReader", "MemoryReader"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How long the thread pauses when something could not be read; each time twice as long, until something could."""

DOWNS = 3  # in a row, after which the model counts as out of reach

_log = logging.getLogger(__name__)


class BackgroundReader:
    """A thread that reads what waits, when it is notified.

    It goes through all that waits, and again through what waits then. What could not be read costs a pause, and its
    turn comes again: neither a service that is down nor a text that cannot be read keeps it from the others for good.

    Args:
        list_waiting: Returns the ids of the memories that wait.
        read: Reads one; says whether the next one may follow without a pause.
    """

    def __init__(self, list_waiting: Callable[[], Sequence[str]], read: Callable[[str], bool]) -> None:
        self._list_waiting = list_waiting
        self._read = read
        self._pause_s = FIRST_PAUSE_S
        self._lock = threading.Lock()  # `_wake` and `_idle` change together
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="KeywordTree memory reader", daemon=True)
        self._wake.set()  # what an earlier process has left
        self._thread.start()

    def wake(self) -> None:
        """Tell that something waits."""
        with self._lock:
            self._idle.clear()
            self._wake.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has nothing more to do, or after `timeout_s`; says whether it has nothing."""
        return self._idle.wait(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop after the memory that is being read; one that takes longer is left to the next process."""
        self._closed.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                self._read_all()
            except ClosedError:
                _log.debug("the tree was closed: what waits goes on waiting")
            except Exception as error:  # a full disk, say: nothing else would try again
                _log.warning("what waits to be read could not be listed: %s", error)
                self._pause()
                self._wake.set()
            with self._lock:
                if not self._wake.is_set():
                    self._idle.set()

    def _read_all(self) -> None:
        while not self._closed.is_set() and (waiting := self._list_waiting()):
            for id in waiting:
                if self._closed.is_set():
                    return
                if self._read_one(id):
                    self._pause_s = FIRST_PAUSE_S
                else:
                    self._pause()

    def _read_one(self, id: str) -> bool:
        try:
            return self._read(id)
        except ClosedError:
            raise
        except Exception:  # whatever it is, it must not end the thread
            _log.warning("a memory could not be read in the background; it goes on waiting", exc_info=True)
            return False

    def _pause(self) -> None:
        self._closed.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


class _Outcome(Enum):
    """What came of reading a memory that is there already."""

    READ = auto()
    UNUSABLE = auto()
    """What was answered cannot be used."""
    DOWN = auto()
    """The model could not be reached."""
    OVERTAKEN = auto()
    """The memory was changed meanwhile."""


class MemoryReader:
    """What reads the memories of a tree for its graph; see `GraphFeed`.

    Args:
        tree: Where the memories are.
        graph: The tree as a graph, which knows what waits.
        feed: What reads a text, and writes what it says.
        lock: Held while a reading is written, never while a model thinks.
        in_background: Whether a thread reads what waits.
    """

    def __init__(
        self, tree: KeywordTree, graph: TreeGraph, feed: GraphFeed, lock: threading.RLock, in_background: bool
    ) -> None:
        self.tree, self.graph, self._feed, self._lock = tree, graph, feed, lock
        self._background = BackgroundReader(self._list_waiting, self._read_waiting) if in_background else None

    def close(self) -> None:
        """Stop the thread."""
        if self._background is not None:
            self._background.close()

    def note(self) -> dict[str, Any]:
        """Return the note of a memory that waits to be read; nothing where nothing reads."""
        means = self._feed.means()
        return {"graph": {"waits": means, "tries": 0}} if means else {}

    def read_later(self, id: str, own: Mapping[str, Any]) -> None:
        """Have a memory read that is on disk, by the thread or now; no lock is held, since a model may think."""
        if "graph" not in own:
            return
        if self._background is not None:
            self._background.wake()
        elif (info := self.tree.GetInfo(id)) is not None:
            self.read_into(info)

    def read_pending(self, limit: int | None = None, *, again: bool = False) -> int:
        """Read memories that wait, the oldest first, and return how many could be read.

        Memories wait that were remembered with `extract_in_background`, until a thread or this method reads them, and
        those that could not be read: where the model could not be reached, for as long as that takes; where its answer
        could not be used, up to three times. Ends early where the model cannot be reached for three in a row.

        Args:
            limit: Read at most this many; None reads all.
            again: Whether to read those, too, that were given up after three times.

        Raises:
            InvalidInputError: `limit` is no number.
        """
        if limit is not None:
            check_count("limit", limit, 0)
        count = downs = 0
        for info in self._waiting(again):
            if (limit is not None and count >= limit) or downs == DOWNS:
                break
            outcome = self.read_into(info)
            count += outcome is _Outcome.READ
            downs = downs + 1 if outcome is _Outcome.DOWN else 0
        return count

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has nothing more to read, or after `timeout_s`; says whether no memory waits.

        While the model cannot be reached the thread goes on trying, so give a timeout. Without `extract_in_background`
        nothing is waited for. A memory that was given up after three times waits still: see `read_pending`.
        """
        is_idle = self._background is None or self._background.wait(timeout_s)
        return is_idle and not self.graph.waiting()

    def _waiting(self, again: bool = False) -> Iterator[Info]:
        """Yield the memories that wait and have a try left, the oldest first."""
        for id, (_, tries) in self.graph.waiting().items():
            info = self.tree.GetInfo(id) if again or tries < TRIES else None
            if info is not None and self._feed.means():
                yield info

    def _list_waiting(self) -> list[str]:
        return [info.id for info in self._waiting()]

    def _read_waiting(self, id: str) -> bool:
        """Read a memory for the thread, if it still waits; says whether the next may follow at once."""
        info = self.tree.GetInfo(id)
        return info is None or waits_for(info) is None or self.read_into(info) is not _Outcome.DOWN

    def read_into(self, info: Info) -> _Outcome:
        """Read a memory that is there already; a change meanwhile has the last word."""
        read = self._feed.read(info.content)
        with contextlib.suppress(VersionConflictError, NotFoundError, ConflictError):
            if isinstance(read, Failure):
                self._note_failure(info, read)
                return _Outcome.DOWN if read.is_down else _Outcome.UNUSABLE
            self._write_reading(info, read)
            return _Outcome.READ
        return _Outcome.OVERTAKEN

    def _note_failure(self, info: Info, failure: Failure) -> None:
        """Let a memory wait that could not be read; what was read of it before stays, and is read no more."""
        own = memory_fields(info)
        waits = waits_for(info)
        if "graph" in own and (waits is None or failure.is_down):
            return
        tries = (0 if waits is None else waits[1]) + (not failure.is_down)
        own = {**own, "graph": {"waits": failure.means, "tries": tries}}
        self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}}, info.version)

    def _write_reading(self, info: Info, reading: Reading | None) -> None:
        """Write what was read of a memory; with None it waits no longer, since nothing reads it."""
        own: dict[str, Any] = {"kind": "fact"}
        own |= {name: value for name, value in memory_fields(info).items() if name != "graph"}
        with self._lock, self.tree.Operation("extract") as operation:
            named = list(dict.fromkeys([*named_in(info), *self._feed.unlink(info.id)]))
            linked = [link.keyword_id for link in self.tree.GetLinks(info.id)]
            placed = Placed({}, [])
            if reading is not None and reading.extraction.entities:
                placed = self._feed.place(reading.extraction, {})
                own["graph"] = self._feed.describe(reading.means, reading.extraction, placed, linked)
            self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}}, info.version)
            self._feed.link(info.id, placed, linked)
            gone = self._feed.clear((id for id in named if id not in placed.ids.values()), [info.id])
        self._feed.merge_duplicates(placed.made)
        self.settle_names(operation.id, gone, named, [info.id])

    def settle_names(
        self, operation_id: str, gone: list[str], named: Iterable[str], memory_ids: Collection[str]
    ) -> None:
        """Put right what others did in the moment in which an operation took memories off keywords.

        Whom a memory came to name as he was deleted is named again; whom two forgot at once, each seeing the other's
        memory, is deleted now.
        """
        for id in self._feed.taken_from_others(operation_id, gone, memory_ids) if gone else ():
            with contextlib.suppress(NotFoundError):
                self.read(id)
        with contextlib.suppress(NotFoundError, ConflictError), self._lock, self.tree.Operation("forget"):
            self._feed.clear((id for id in named if id not in gone), memory_ids)

    def read(self, id: str) -> bool:
        """Read a memory, whatever was read of it before; says whether that could be done.

        Raises:
            NotFoundError: There is no such memory.
        """
        info = self.tree.GetInfo(id)
        if info is None:
            raise NotFoundError("info", id)
        return bool(self._feed.means()) and self.read_into(info) is _Outcome.READ
