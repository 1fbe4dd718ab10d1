"""A log in this process's memory, with the promises of the one in PostgreSQL: for tests, without a server.

>>> from Agent.keyword_tree import KeywordTree
>>> log = MemoryLog()
>>> one, other = (KeywordTree("unused", store=log.tree("u42")) for _ in range(2))
>>> tea = one.CreateKeyword("tea")
>>> other.CreateKeyword("龙井", tea.id).parent_id == tea.id
True
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ...keyword_tree import StoreError
from ...shared_tree.port import Place, StatePart
from ...shared_tree.rows import Batch, Mark, UnkeptError
from ...shared_tree.store import Known, SharedStore

__all__ = ["MemoryLog", "MemoryRows"]


class _Tree:
    """What lies in the tables for one tree."""

    def __init__(self, log_id: str) -> None:
        self.log_id = log_id
        self.batches: dict[int, Batch] = {}
        self.marks: dict[int, Mark] = {}
        self.states: dict[int, list[StatePart]] = {}
        self.checks: dict[int, int] = {}
        self.snapshots: dict[str, int] = {}
        self.turn = threading.Lock()
        self.held_s = 0.0  # for which the turn is kept after its block

    def read(self, span: Place) -> bytes | None:
        """Return some bytes; None for what is not there."""
        batch, parts = self.batches.get(span.key), self.states.get(~span.key)
        if span.key >= 0:
            lines = None if batch is None else batch.lines
        else:
            lines = None if parts is None else b"\n".join(parts[span.part].rows)
        return None if lines is None else lines[span.start : span.start + span.length]


class MemoryRows:
    """The promises of `PostgresRows` in dicts, behind one lock."""

    def __init__(self, patience: float = 10.0) -> None:
        self.patience = patience
        self.held: dict[str, _Tree] = {}
        self.lock = threading.RLock()

    def log_id(self, tree_id: str) -> str | None:
        """Return what distinguishes this log from another one."""
        with self.lock:
            return self.held[tree_id].log_id if tree_id in self.held else None

    def is_readonly(self) -> bool:
        """Tell whether nothing can be written."""
        return False

    def create(self, tree_id: str, log_id: str, batches: Iterable[Batch]) -> bool:
        """Begin a log."""
        with self.lock:
            if tree_id in self.held:
                return self.held[tree_id].log_id == log_id
            tree = self.held[tree_id] = _Tree(log_id)
            tree.batches = {batch.after: batch for batch in batches}
            return True

    def _sorted(self, tree_id: str) -> list[Batch]:
        with self.lock:
            return sorted(self.held[tree_id].batches.values()) if tree_id in self.held else []

    def read(self, tree_id: str, after: int, known: int, limit: int, until: float | None = None) -> list[Batch]:
        """Return the first batches from a key on."""
        return [batch for batch in self._sorted(tree_id) if batch.after >= after][:limit]

    def find(self, tree_id: str, keys: Sequence[int]) -> list[Batch]:
        """Return the first batch, and those with these keys."""
        return [batch for index, batch in enumerate(self._sorted(tree_id)) if not index or batch.after in keys]

    def read_back(self, tree_id: str, below: int, limit: int, holding: bytes = b"") -> list[Batch]:
        """Return the last batches below a key."""
        found = (batch for batch in reversed(self._sorted(tree_id)) if batch.after < below and holding in batch.lines)
        return list(itertools.islice(found, limit))

    def read_spans(self, tree_id: str, spans: Sequence[Place]) -> list[bytes | None]:
        """Return some bytes of batches and states."""
        with self.lock:
            tree = self.held.get(tree_id)
            return [None if tree is None else tree.read(span) for span in spans]

    def _has(self, tree_id: str, behind: tuple[int, bytes]) -> bool:
        tree = self.held.get(tree_id)
        return tree is not None and behind[0] in tree.batches and tree.batches[behind[0]].crc == behind[1]

    def append(self, tree_id: str, behind: tuple[int, bytes], batch: Batch, yields: bool = False) -> bool:
        """Put a batch behind another one."""
        with self.lock:
            if yields and self.held[tree_id].turn.locked():
                return False
            if not self._has(tree_id, behind) or batch.after in self.held[tree_id].batches:
                return False
            self.held[tree_id].batches[batch.after] = batch
            return True

    def check_format(self) -> None:
        """Do nothing: there are no tables."""

    def settle(self, tree_id: str) -> None:
        """Do nothing: nothing here outlives the process."""

    def replace(self, tree_id: str, behind: tuple[int, bytes], batches: Sequence[Batch]) -> bool:
        """Put batches in place of all that was before."""
        with self.lock:
            if not self._has(tree_id, behind) or batches[0].after in self.held[tree_id].batches:
                return False
            tree = self.held[tree_id]
            needed = set(tree.snapshots.values())
            if not needed <= {seq for seq, mark in tree.marks.items() if mark.is_full}:
                raise UnkeptError("a snapshot has no full state")
            tree.batches = {batch.after: batch for batch in batches}
            for seq in tree.marks.keys() - needed:
                self._drop(tree, seq)
            return True

    @contextlib.contextmanager
    def queue(
        self, tree_id: str, known: Callable[[], int], limit: int, catch_up: Callable[[], object]
    ) -> Iterator[list[Batch] | None]:
        """Hold the tree's turn."""
        with self.lock:
            tree = self.held.get(tree_id)
        end = time.monotonic() + 1
        while tree is not None and not tree.turn.acquire(timeout=0.01):
            catch_up()
            if time.monotonic() > end:
                tree = None
        if tree is None:
            yield None
            return
        try:
            yield self.read(tree_id, max(known(), 0), known(), limit)
        finally:
            held_s, tree.held_s = tree.held_s, 0.0
            if held_s:
                threading.Timer(held_s, tree.turn.release).start()
            else:
                tree.turn.release()

    def hold(self, tree_id: str, seconds: float) -> None:
        """Release the turn so long after its block."""
        self.held[tree_id].held_s = seconds

    def still(self) -> contextlib.AbstractContextManager[object]:
        """Read without a moment of its own."""
        return contextlib.nullcontext()

    def marks(self, tree_id: str) -> list[Mark]:
        """Return the marks, newest first."""
        with self.lock:
            tree = self.held.get(tree_id)
            if tree is None:
                return []
            return [tree.marks[seq] for seq in sorted(tree.marks, reverse=True)]

    def is_whole(self, tree_id: str, seq: int) -> bool:
        """Tell whether a state is undamaged."""
        with self.lock:
            tree = self.held[tree_id]
            return seq in tree.states and _checksum(tree.states[seq]) == tree.checks[seq]

    def read_parts(self, tree_id: str, seq: int, count: int) -> Iterator[StatePart]:
        """Yield the parts of a state."""
        with self.lock:
            parts = self.held[tree_id].states[seq][:count]
        for held in parts:
            yield StatePart(held.kind, list(held.rows), list(held.places))

    def write_state(self, tree_id: str, mark: Mark, parts: Iterable[StatePart]) -> bool:
        """Keep a state."""
        held = list(parts)
        with self.lock:
            if mark.seq in self.held[tree_id].marks or not self._has(tree_id, (mark.after, mark.crc)):
                return False
            tree = self.held[tree_id]
            size = sum(len(row) for part in held for row in part.rows)
            tree.marks[mark.seq] = mark._replace(parts=len(held), size=size)
            tree.states[mark.seq], tree.checks[mark.seq] = held, _checksum(held)
            return True

    def drop_states(self, tree_id: str, seqs: Iterable[int]) -> None:
        """Take states away."""
        with self.lock:
            tree = self.held[tree_id]
            for seq in seqs:
                self._drop(tree, seq)

    def _drop(self, tree: _Tree, seq: int) -> None:
        for table in (tree.marks, tree.states, tree.checks):
            table.pop(seq, None)

    def bytes_since(self, tree_id: str, after: int) -> int:
        """Return how many bytes lie behind a batch."""
        return sum(batch.size for batch in self._sorted(tree_id) if batch.after > after)

    def add_snapshot(self, tree_id: str, name: str, seq: int, behind: tuple[int, bytes]) -> bool:
        """Keep a name."""
        with self.lock:
            if not self._has(tree_id, behind):
                raise StoreError("the log has changed meanwhile: try again")
            names = self.held[tree_id].snapshots
            return name not in names and names.setdefault(name, seq) == seq

    def snapshots(self, tree_id: str) -> dict[str, int]:
        """Return all names."""
        with self.lock:
            return dict(self.held[tree_id].snapshots) if tree_id in self.held else {}

    def sizes(self, tree_id: str) -> dict[str, int]:
        """Return the bytes in each table."""
        with self.lock:
            return {
                "kt_batch": sum(batch.size for batch in self._sorted(tree_id)),
                "kt_state": sum(mark.size for mark in self.held[tree_id].marks.values()),
            }

    def find_news(self, known: Sequence[tuple[str, int, bytes]]) -> list[int]:
        """Return which logs have changed."""
        found = []
        for index, (tree_id, after, crc) in enumerate(known):
            batches = self._sorted(tree_id)
            if not batches or batches[-1][0] != after or batches[-1][2] != crc:
                found.append(index)
        return found

    def trees(self) -> list[str]:
        """Return all ids."""
        with self.lock:
            return sorted(self.held)

    def remove(self, tree_id: str) -> bool:
        """Take a tree away."""
        with self.lock:
            return self.held.pop(tree_id, None) is not None


def _checksum(parts: Iterable[StatePart]) -> int:
    return zlib.crc32(repr([(part.kind, part.rows, part.places) for part in parts]).encode())


class MemoryLog:
    """Holds trees as long as it lives itself."""

    def __init__(self, rows: Any = None) -> None:
        self.rows: Any = MemoryRows() if rows is None else rows
        self.counts: Counter[str] = Counter()

    def tree(self, tree_id: str) -> Callable[[], SharedStore]:
        """Return what `KeywordTree(…, store=…)` takes to open a tree."""
        return partial(SharedStore, self.rows, tree_id, Known(), self.counts)
