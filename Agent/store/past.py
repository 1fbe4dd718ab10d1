"""The tree as it was at an earlier operation or time: the store that `KeywordTree.At` opens.

The log has every operation, so its lines up to a moment are the tree of that moment. They are held in memory and read
as any other log is; nothing can be added to them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NoReturn, cast

from ..keyword_tree import FIRST_CRC, STATE, InvalidInputError, LogLine, NotFoundError, ReadAfter, ReadLine, StoreError

__all__ = ["PastStore", "lines_until", "past_store"]

_find_time = re.compile(rb'"timestamp": ([^",]+), ').search  # of a line; within a string every quote is escaped


def past_store(
    at: int | float, newest: int, lines: Iterable[tuple[LogLine, bytes]], data_dir: str
) -> Callable[[], PastStore]:
    """Return what makes the store of a tree as it was.

    Args:
        at: number of an operation (an int), or seconds since the epoch, UTC (a float).
        newest: number of the log's last operation.
        lines: the operations of the log and of `history/`, newest first.
        data_dir: the tree's folder, for messages.

    Raises:
        InvalidInputError: `at` is neither, lies after the log's end, or before what the log still has.
    """
    is_seq = isinstance(at, int) and not isinstance(at, bool)
    if not is_seq and not (isinstance(at, float) and math.isfinite(at)):
        raise InvalidInputError(f"at must be the number of an operation, or a time in seconds as a float: {at!r:.60}")
    if is_seq and at > newest:
        raise InvalidInputError(f"at must be an operation of the log, whose newest is {newest:,}: {at!r:.60}")
    found = lines_until(lines, at)
    if not found:
        raise InvalidInputError(f"the log does not reach back to: {at!r:.60}")
    return partial(PastStore, found, f"{data_dir!r} as it was")


def lines_until(lines: Iterable[tuple[LogLine, bytes]], at: int | float) -> list[bytes]:
    """Return the lines that make the tree as it was, oldest first; none where the log begins later than `at`.

    A log that was compacted begins with the whole state, whose lines belong together: where the first of them is old
    enough, all are taken, and no older log is read.
    """
    found: list[bytes] = []
    is_reached = False
    for line, raw in lines:
        is_reached = is_reached or (line.seq if isinstance(at, int) else _read_time(raw)) <= at
        if is_reached or line.op == STATE:
            found.append(raw)
        if line.prev == FIRST_CRC:  # a log begins here
            if is_reached:
                return found[::-1]
            found.clear()
    return []


def _read_time(raw: bytes) -> float:
    return float(cast("re.Match[bytes]", _find_time(raw))[1])


class PastStore:
    """A log as it was, in memory, as a store that can only be read; see `Store` in `shared_tree/port.py`."""

    is_readonly = True
    is_lost = is_guess = False
    least = position = ""
    next_ordinal = 0

    def __init__(self, lines: list[bytes], name: str) -> None:
        self.recovery: list[str] = []
        self.seq = cast("LogLine", ReadLine(lines[-1])).seq
        self._lines = lines
        self._name = name

    def Open(self, first: object, state: Any) -> None:
        """Give all rows to `state`."""
        for raw in self._lines:
            state.Apply(ReadAfter(raw))

    def _do_nothing(self, *_: object) -> None:
        """No other process writes here, and nothing is locked."""

    Begin = Confirm = End = Release = _do_nothing

    def _refuse(self, *_: object) -> NoReturn:
        raise StoreError(f"{self._name} can only be read")

    Append = Snapshot = Compact = _refuse

    def Close(self, apply: object) -> bool:
        """Leave everything as it is."""
        return False

    def ReadRow(self, held: bytes) -> bytes:
        """Return a row, which is held as it is."""
        return held

    def ReadBack(self, with_history: bool, id: str = "") -> Iterator[tuple[LogLine | None, bytes]]:
        """Yield the lines, newest first."""
        yield from ((ReadLine(raw), raw) for raw in reversed(self._lines))

    def SnapshotNames(self) -> list[str]:
        """Return none: snapshots are the tree's own."""
        return []

    def OpenSnapshot(self, name: str) -> NoReturn:
        """Refuse: there are none."""
        raise NotFoundError("snapshot", name)

    def Sizes(self) -> dict[str, int]:
        """Return none: nothing is on the disk."""
        return {}

    def FindProblems(self, fresh: Any) -> Iterator[str]:
        """Read everything again into `fresh`."""
        self.Open(None, fresh)
        return iter(())
