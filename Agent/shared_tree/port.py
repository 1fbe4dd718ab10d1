"""The one place that knows the core from inside: what a store hands to it, and how it codes the lines of a log.

All else in this package says `port.…`; where the core changes, this module is what follows.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

from .. import keyword_tree as core
from ..keyword_tree import KeywordTree, StoreCorruptError, StoreError

BehindError = core.BehindError
Health = core.Health
ReplacedError = core.ReplacedError
Line: TypeAlias = core.LogLine
Operation: TypeAlias = core.LoggedOperation
Records: TypeAlias = core.Rows
State: TypeAlias = core._State

CHUNK = core.CHUNK
FIRST_CRC = core.FIRST_CRC
PART_ROWS = 4096  # at most, of a part of a state
FORMAT_FIELD = core.FORMAT_FIELD
_STATE, _CHECKPOINT = core.STATE, core.CHECKPOINT

no_records = core.NoRows
new_id = core._NewId
shorten = core._Shorten


class Place(NamedTuple):
    """Where a row too long for memory stands; the tree keeps it instead of the row, and hands it back."""

    key: int
    """Of the batch; ~seq of a state."""
    part: int
    """Of the state; 0 in a batch."""
    start: int
    """Where the row begins in the batch's lines, or in the part's rows."""
    length: int
    """Bytes."""
    crc: int
    """Checksum of the row."""


def locate(key: int, part: int, start: int, row: bytes) -> Place:
    """Return the place of a row."""
    return Place(key, part, start, len(row), zlib.crc32(row))


def log_name(tree_id: str) -> str:
    """Return what an error calls a tree's log."""
    return f"the log of the tree {shorten(tree_id)}"


def raise_corrupt(tree_id: str, seq: int, detail: str) -> NoReturn:
    """Raise the error for a log that cannot be read; `seq` is the operation, 0 where none is meant."""
    raise StoreCorruptError(log_name(tree_id), seq, detail)


# Lines


def encode_lines(operations: Iterable[Operation], seq: int, crc: bytes, extra: str = "") -> tuple[list[bytes], bytes]:
    """Return the lines that follow operation `seq`, whose checksum is `crc`, and the checksum of the last."""
    lines, durable = [], seq
    for operation in operations:
        seq += 1
        line, crc = core.EncodeLine(seq, crc, durable, operation, extra)
        lines.append(line)
    return lines, crc


def places_in(line: bytes, key: int, start: int) -> dict[int, Any]:
    """Return the places of the long rows that a line brings; it begins at `start` of the batch with this key."""
    return core.ReadAfter(line[:-1], lambda begins, row: locate(key, 0, start + begins, row)).places


def is_beginning(lines: bytes) -> bool:
    """Tell whether these lines begin a log: the first follows nothing."""
    line = core.ReadLine(lines.partition(b"\n")[0])
    return line is not None and line.prev == FIRST_CRC


@dataclass
class Chain:
    """How far a log was read: each line must follow the one before, by number and checksum."""

    tree_id: str
    seq: int = 0
    """The last operation's number; 0 before the first."""
    crc: bytes = FIRST_CRC
    """Its checksum."""
    next_ordinal: int = 0
    """At least, as a compaction has left it."""

    def take(self, lines: bytes, key: int, into: Records) -> None:
        """Check the whole lines of the batch with this key, and add what they bring to `into`."""
        start = 0
        *whole, rest = lines.split(b"\n")
        if rest:
            raise_corrupt(self.tree_id, self.seq + 1, "its row holds more than whole lines")
        for raw in whole:
            line = core.ReadLine(raw)
            if line is None:
                raise_corrupt(self.tree_id, self.seq + 1, "the line is damaged")
            if self.seq == 0:
                self._begin(line, raw)
            elif line.seq != self.seq + 1 or line.prev != self.crc:
                raise_corrupt(self.tree_id, self.seq + 1, f"operation {line.seq} stands there, which does not follow")
            if line.op != _CHECKPOINT:
                self._take_rows(raw, line.seq, key, start, into)
            self.seq, self.crc = line.seq, line.crc
            start += len(raw) + 1

    def _take_rows(self, raw: bytes, seq: int, key: int, start: int, into: Records) -> None:
        try:
            core.ReadRowsInto(into, raw, lambda begins, row: locate(key, 0, start + begins, row))
        except StoreCorruptError as error:
            raise_corrupt(self.tree_id, seq, error.detail)

    def _begin(self, line: Line, raw: bytes) -> None:
        if line.prev != FIRST_CRC:
            raise_corrupt(self.tree_id, line.seq, "the log lacks what comes before")
        if line.format is None:
            raise_corrupt(self.tree_id, line.seq, "the first line does not tell the format")
        if line.format > core.FORMAT:
            raise StoreError(
                f"the log of {shorten(self.tree_id)} has format {line.format}, this version reads up to "
                f"{core.FORMAT}: use a newer version"
            )
        self.next_ordinal = core.ReadNextOrdinal(raw)


def read_lines_back(lines: bytes) -> Iterator[tuple[Line | None, bytes]]:
    """Yield the lines of a batch, newest first; None for one that is not whole."""
    for raw in reversed(lines.split(b"\n")[:-1]):
        yield core.ReadLine(raw), raw


def id_in_row(id: str) -> bytes:
    """Return an id as it stands in each row of its record."""
    return core._EncodeText(id).encode()


# A compacted log


encode_state = core.EncodeState
"""Yields a log that begins with the present state: number, checksum, line.

They are those that a folder's compaction writes, the checkpoint at their end included, so that the rows of a compacted
log, joined, are a folder's log as well.
"""


# States: all rows at one operation, beside the log


@dataclass
class StatePart:
    """One part of a state: rows of one kind."""

    kind: int
    rows: list[bytes] = field(default_factory=list)
    """Of a row with a place only the beginning, which says whose it is."""
    places: list[tuple[int, Place]] = field(default_factory=list)
    """Index in `rows` and place in the log, of each row that is too long for memory."""


def new_state() -> State:
    """Return a state to which rows can be given, to know all there is at an operation."""
    return core._State(core._NormalizeText)


def unread(rows_of: Callable[[int], Iterable[bytes]]) -> Callable[[int], Iterable[Any]]:
    """Return the rows that the core compacts, with the places of those that are too long for memory, not fetched."""
    return lambda kind: cast("Any", rows_of)(kind, read=lambda held: held)


def read_state(state: State, read: Callable[[list[Any]], list[bytes]], is_full: bool) -> Iterator[StatePart]:
    """Yield all rows of a state, in parts of about 1 MiB; what they are follows from the log alone.

    Long rows stay in the log, where their places lead, unless all is to be there.
    """
    for kind in range(3):
        part, size = StatePart(kind), 0
        for held, row in read_ahead(state.RowsOf(kind, lambda held: held, True), read):
            if isinstance(held, Place) and not is_full:
                part.places.append((len(part.rows), held))
                match = core.MatchInfo(row)
                row = row if match is None else match[0]
            part.rows.append(row)
            size += len(row)
            if size > CHUNK or len(part.rows) == PART_ROWS:
                yield part
                part, size = StatePart(kind), 0
        if part.rows:
            yield part


def read_ahead(helds: Iterable[Any], read: Callable[[list[Any]], list[bytes]]) -> Iterator[tuple[Any, bytes]]:
    """Yield rows and what is held in their place; long ones are fetched many at a time."""
    rest = iter(helds)
    while some := list(itertools.islice(rest, 256)):
        yield from zip(some, read(some), strict=True)


def records_of(part: StatePart, seq: int, number: int) -> Records:
    """Return a part as what a tree takes in; `seq` and `number` tell where it lies."""
    records = no_records()
    records[:3][part.kind].extend(part.rows)
    if part.kind == 1:
        records.places.update(part.places)
        start = 0
        for index, row in enumerate(part.rows):
            if len(row) > core.RESIDENT_LIMIT:
                records.places[index] = locate(~seq, number, start, row)
            start += len(row) + 1
    return records


def store_of(tree: KeywordTree) -> object:
    """Return the store behind a tree."""
    return tree._engine.store
