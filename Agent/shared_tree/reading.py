"""Read a log, from a state or from its beginning, and check that it is one chain; keep states.

A state is all rows at one operation, so that opening need not read a long log. It is a function of the log, so anyone
may write it, and twice does no harm. Nothing is lost with it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, Self, cast

from ..keyword_tree import ClosedError, StoreError
from . import port
from .rows import Batch, Mark
from .statements import PAGE_BYTES
from .tables import PostgresRows

__all__ = ["PAGE", "At", "Reader", "is_due", "write_state"]

PAGE = 4096
"""Batches read at once, where they are not large."""
_BACK, _BACK_LIMIT = 8, 512  # batches looked back at: at first, and at most
_LEAST = 256 * 1024  # bytes of lines that are read so quickly that no state is worth its room
_LOGGER = logging.getLogger(__name__)
_KEPT = 2  # states: one that is new, and one that may just be read


class At(NamedTuple):
    """How far a log was read."""

    after: int = -1
    """Key of the last batch that was read; -1 before the first."""
    seq: int = 0
    """Its last operation."""
    crc: bytes = port.FIRST_CRC
    """The checksum of that operation's line."""


class Reader:
    """Reads one tree's log, as far as a given operation or to its end."""

    def __init__(self, rows: PostgresRows, tree_id: str, stop: int | None = None, *, from_state: bool = True) -> None:
        """Read nothing yet.

        Args:
            rows: where the log lies.
            tree_id: whose log it is.
            stop: the operation behind which not to read; None is none.
            from_state: whether a state may stand for what is before it.
        """
        self.tree_id, self.log_name = tree_id, port.log_name(tree_id)
        self.recovery: list[str] = []
        self.next_ordinal = 0
        self.begins = 0
        """The operation that a log which was read from its beginning follows: 0, but where it was written again."""
        self._rows = rows
        self._stop = stop
        self._from_state = from_state
        self._at = At()
        self._is_closed = False

    @property
    def seq(self) -> int:
        """The last operation that was read."""
        return self._at.seq

    # -- reading on -----------------------------------------------------------

    def load(self) -> Iterator[port.Records]:
        """Yield all rows that the log brings: those of the newest state that fits it, and what came behind."""
        if self._from_state:
            yield from self._load_state()
        yield from self.read_on()

    def _load_state(self) -> Iterator[port.Records]:
        for mark in self._rows.marks(self.tree_id):
            if self._stop is not None and mark.seq > self._stop:
                continue
            there = self._rows.read(self.tree_id, mark.after, mark.after, 1)
            is_of_log = bool(there) and there[0][:3] == (mark.after, mark.seq, mark.crc)
            is_kept = mark.is_full and mark.seq == self._stop and bool(there) and there[0].after > mark.after
            if is_of_log or is_kept:
                if self._rows.is_whole(self.tree_id, mark.seq):
                    yield from self._read_parts(mark)
                    return
                self.recovery.append(f"the state at operation {mark.seq} is damaged; the log was read instead of it")

    def _read_parts(self, mark: Mark) -> Iterator[port.Records]:
        for number, part in enumerate(self._rows.read_parts(self.tree_id, mark.seq, mark.parts)):
            yield port.records_of(part, mark.seq, number)
        self._at, self.next_ordinal = At(mark.after, mark.seq, mark.crc), mark.next_ordinal

    def read_on(self, first: list[Batch] | None = None) -> Iterator[port.Records]:
        """Yield what came behind what was read, many operations at a time; nothing where nothing did.  See `pages`."""
        return (records for records, _ in self.pages(first))

    def pages(self, first: list[Batch] | None = None) -> Iterator[tuple[port.Records, list[bytes]]]:
        """Yield what came behind what was read: its rows, and the lines of each batch.

        Args:
            first: the first page from the last batch that was read on, where the caller has it already.

        Raises:
            ReplacedError: the log was written again since, or does not hold what was read.
            StoreCorruptError: it is damaged.
        """
        while self._stop is None or self._at.seq < self._stop:
            batches = first or self._rows.read(self.tree_id, max(self._at.after, 0), self._at.after, PAGE)
            first, is_last = None, self._is_last(batches)
            if self._at.after >= 0:
                self._check_last(batches)
                batches = batches[1:]
            batches = [batch for batch in batches if self._stop is None or batch.upto <= self._stop]
            if not batches:
                return
            all_lines = [self._lines_of(batch) for batch in batches]  # before anything moves: it may fail
            yield self._take(batches, all_lines), all_lines
            if is_last:
                return

    def _is_last(self, page: list[Batch]) -> bool:
        """Tell whether the log ended with a page when it was read."""
        return len(page) < PAGE and sum(each.size for each in page if each.after != self._at.after) < PAGE_BYTES

    def _check_last(self, batches: list[Batch]) -> None:
        """Compare the first batch with the last one that was read."""
        if batches and batches[0][:3] == self._at:
            return
        if not batches or batches[0].after <= self._at.after or not self._is_beginning(batches[0]):
            _LOGGER.warning("%s does not hold what was read of it", self.log_name)
        raise port.ReplacedError(f"{self.log_name} was written again, or cut")

    def _is_beginning(self, batch: Batch) -> bool:
        """Tell whether a log begins with a batch: where that follows other operations, it was written again."""
        return port.is_beginning(self._lines_of(batch))

    def _take(self, batches: list[Batch], all_lines: list[bytes]) -> port.Records:
        """Check batches that follow, and return what they bring."""
        if not self._at.seq:
            self.begins = batches[0].after
        records = port.no_records()
        chain = port.Chain(self.tree_id, self._at.seq, self._at.crc, self.next_ordinal)
        for batch, lines in zip(batches, all_lines, strict=True):
            if chain.seq and batch.after != chain.seq:
                port.raise_corrupt(self.tree_id, chain.seq + 1, f"missing, though operation {batch.after + 1} is there")
            chain.take(lines, batch.after, records)
            if (chain.seq, chain.crc) != (batch.upto, batch.crc):
                port.raise_corrupt(self.tree_id, batch.upto, f"its row ends with operation {chain.seq}")
        self._at, self.next_ordinal = At(batches[-1].after, chain.seq, chain.crc), chain.next_ordinal
        return records

    def _lines_of(self, batch: Batch) -> bytes:
        """Return a batch's lines, also where they lie in pieces."""
        if not batch.pieces:
            return batch.lines
        parts, start = list[bytes](), 0
        while start < batch.size:
            (part,) = self._rows.read_spans(self.tree_id, [port.Place(batch.after, 0, start, PAGE_BYTES, 0)])
            if not part:
                port.raise_corrupt(self.tree_id, batch.upto, "pieces of it are missing")
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    # -- looking up -----------------------------------------------------------

    def ReadRow(self, held: Any) -> bytes:
        """Return a row; one that is too long for memory is fetched.  Any thread may ask."""
        return held if isinstance(held, bytes) else self.read_rows([held])[0]

    def read_rows(self, helds: Sequence[Any]) -> list[bytes]:
        """Return rows; those that are too long for memory are fetched together.

        Cost: some round trips for each 4 MiB that are fetched.
        """
        if self._is_closed:
            raise ClosedError(f"the tree {port.shorten(self.tree_id)} is closed")
        rows, asked, size = list(helds), dict[int, port.Place](), 0
        for index, held in enumerate(helds):
            if isinstance(held, bytes):
                continue
            place = cast("port.Place", held)
            if size + place.length > PAGE_BYTES:
                self._fetch(asked, rows)
                asked, size = {}, 0
            asked[index] = place
            size += place.length
        self._fetch(asked, rows)
        return rows

    def _fetch(self, asked: dict[int, port.Place], rows: list[Any]) -> None:
        """Put the rows at some spans in the place of where they are."""
        found = self._rows.read_spans(self.tree_id, list(asked.values())) if asked else []
        for (index, place), row in zip(asked.items(), found, strict=True):
            if row is None:
                raise StoreError(
                    f"a content of the tree {port.shorten(self.tree_id)} is not where it was: the log was written "
                    "again, or cut; Refresh() says which"
                )
            if zlib.crc32(row) != place.crc:
                after = max(place.key, ~place.key)
                port.raise_corrupt(self.tree_id, 0, f"a content in what follows operation {after} has changed")
            rows[index] = row

    def read_back(self, at: At) -> Generator[tuple[port.Line | None, bytes], None, None]:
        """Yield the lines from there on, newest first; None for what breaks the chain."""
        below, crc, limit = at.seq, at.crc, _BACK  # most who look back look for the newest
        while below and crc != port.FIRST_CRC:
            batches = self._rows.read_back(self.tree_id, below, limit)
            if not batches:
                yield None, b"a log without its first line"
                return
            for batch in batches:
                if batch.upto != below or batch.crc != crc:
                    self._refuse_if_replaced(below)
                    yield None, b"a row of another log"
                    return
                for line, raw in port.read_lines_back(self._lines_of(batch)):
                    if line is None or (line.seq, line.crc) != (below, crc):
                        yield None, raw
                        return
                    yield line, raw
                    below, crc = below - 1, line.prev
                if crc != port.FIRST_CRC and below != batch.after:
                    yield None, b"a row that does not hold what it says"
                    return
            limit = min(2 * limit, _BACK_LIMIT)

    def _refuse_if_replaced(self, below: int) -> None:
        first = self._rows.read(self.tree_id, 0, -1, 1)
        if first and first[0].after >= below:
            raise StoreError(f"the log of the tree {port.shorten(self.tree_id)} was written again meanwhile: try again")

    # -- what the core calls a past log -------------------------------------------

    def Read(self) -> Iterator[port.Records]:
        """Yield all rows."""
        return self.load()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_closed = True


# States


def is_due(rows: PostgresRows, tree_id: str) -> bool:
    """Tell whether more was logged since the last state than it holds."""
    marks = rows.marks(tree_id)
    after, size = (marks[0].after, marks[0].size) if marks else (-1, 0)
    return rows.bytes_since(tree_id, after) > max(size, _LEAST)


def write_state(rows: PostgresRows, tree_id: str, seq: int | None = None, *, is_full: bool = False) -> bool:
    """Write the state at an operation, or at the log's end; return False where there was one.

    Args:
        rows: where the log lies.
        tree_id: whose.
        seq: the operation; None is the last.
        is_full: whether long contents are to be in it, too: for a snapshot, that needs no log then.

    Cost: reads the newest state and the log behind it, and holds all of it in memory, with `is_full` long contents too.
    """
    there = rows.marks(tree_id)
    poor = [mark.seq for mark in there if not rows.is_whole(tree_id, mark.seq)]
    poor += [mark.seq for mark in there if is_full and mark.seq == seq and not mark.is_full]
    if seq is not None and any(mark.seq == seq for mark in there) and seq not in poor:
        return False
    state = port.new_state()
    with Reader(rows, tree_id, seq) as reader:
        with rows.still():
            for records in reader.load():
                state.Apply(records)
        if not reader.seq or (seq is not None and reader.seq != seq):
            raise StoreError(f"the log of the tree {port.shorten(tree_id)} has no operation {seq or 1}")
        at, next_ordinal = reader._at, max(state.next_ordinal, reader.next_ordinal)
        mark = Mark(at.seq, at.after, at.crc, next_ordinal, 0, 0, is_full)
        rows.drop_states(tree_id, poor)
        # All of it before the transaction begins, which must not wait for what is fetched.
        parts = list(port.read_state(state, reader.read_rows, is_full))
        is_new = rows.write_state(tree_id, mark, parts)
    if seq is None:
        rows.drop_states(tree_id, [old.seq for old in rows.marks(tree_id)[_KEPT:] if not old.is_full])
    return is_new
