"""Save what can be saved of a damaged store: `repair(damaged, new)`, or `keyword-tree --data DAMAGED repair NEW`.

Opening a tree never guesses: a store whose log holds damage that no crash explains is refused, and left as it is. A
repair reads the damaged folder without changing a byte of it, writes a new store beside it, and lists what could not be
saved.

>>> import tempfile
>>> from pathlib import Path
>>> from keyword_tree import KeywordTree, StoreCorruptError
>>> folder = tempfile.TemporaryDirectory()
>>> damaged, new = Path(folder.name, "tree"), Path(folder.name, "repaired")
>>> with KeywordTree(str(damaged)) as tree:
...     tools = tree.CreateKeyword("tools", "root")
...     _ = tree.CreateKeyword("hammer", tools.id)
>>> log = damaged / "change_log.jsonl"
>>> _ = log.write_bytes(log.read_bytes().replace(b'"tools"', b'"toolr"', 1))
>>> KeywordTree(str(damaged))
Traceback (most recent call last):
Agent.keyword_tree.StoreCorruptError: change_log.jsonl, line 2: operation 2 is damaged or missing, ...
>>> report = repair(damaged, new)
>>> report
<RepairReport 2 keywords, 0 infos, 0 links; 2 losses>
>>> with KeywordTree(str(new)) as tree:
...     print(tree.Search("hammer").node.name, tree.GetKeyword(tools.id).name == f"(lost) {tools.id}")
hammer True
>>> folder.cleanup()

Every line of `change_log.jsonl` whose own checksum is right is read, also after damage, in the order of its numbers.
Such a line is copied as it is (who, when, what was asked of a model), with a new number. Whatever else stands there,
and each number that is missing, is listed as a loss.

Then one operation `repair_places` makes the whole consistent: a lost keyword that others are under or linked to is
created again under its old id, as "(lost) …" under the root; a keyword under a deleted one moves to the root; a link to
a lost info is removed. All are listed.

Nothing is taken from the projections, `nodes.jsonl` and the like, which hold no checksum of a row. Files in which
opening had kept rows of these that the log lacked (`cut_tail-nodes-52-1a2b3c4d.bin`) are listed.

`history/` and `snapshots/` are copied, each operation once and each snapshot that is as it was made; what is missing is
listed, what `CompactStorage(keep_history=False)` has removed as well where later compactions kept theirs.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import re
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from .. import keyword_tree as kt
from .addresses import is_address

try:  # Windows has no flock; there nothing may write while this reads.
    import fcntl
except ImportError:  # pragma: no cover - this branch cannot be run on the machines we test on
    fcntl = None  # type: ignore[assignment]  # typeshed knows the module on the platform that checks it

__all__ = ["Loss", "Move", "RepairError", "RepairReport", "repair"]

_Row: TypeAlias = dict[str, Any]
"""One record as JSON has it.  `Any` stops at this edge."""

_Key: TypeAlias = tuple[str, ...]
"""The id of a keyword or info; of a link that of the info, then that of the keyword."""

_ROOT_ID = "root"

_KINDS = ("nodes", "infos", "links")
_TYPES = {"nodes": kt.KeywordNode, "infos": kt.Info, "links": kt.InfoKeywordLink}
_NO_ROWS: dict[str, list[_Row]] = {kind: [] for kind in _KINDS}
_SHOWN = 8  # ids in one line of a printed report


class RepairError(kt.KeywordTreeError):
    """Nothing was written: the folder holds nothing to save, or the new one cannot be made."""


# == What is reported =========================================================================================


@dataclass(frozen=True)
class Loss:
    """Something that could not be saved, or not wholly."""

    detail: str
    """What it was and what was wrong with it."""
    file: str = kt.LOG_NAME
    """Name of its file."""
    line: int = 0
    """Its line in that file, from 1; 0 if it is missing altogether."""
    offset: int = 0
    """Its first byte in that file, from 0."""
    length: int = 0
    """Its length in bytes; 0 if it is missing altogether."""
    first_seq: int = 0
    """The first operation concerned, by its number in the log; 0 if that is unknown."""
    last_seq: int = 0
    """The last operation concerned; 0 if it is unknown how many there were."""
    ids: tuple[str, ...] = ()
    """The ids of records and operations that could still be read there."""
    is_data: bool = True
    """Whether records may be lost by it; False where history alone is."""

    def __str__(self) -> str:
        """Return a line for people."""
        numbers = f" (operations {self.first_seq} to {self.last_seq or 'the end'})" if self.first_seq else ""
        if 0 < self.first_seq == self.last_seq:
            numbers = f" (operation {self.first_seq})"
        place = f"{self.file}, line {self.line}, bytes {self.offset:,} to {self.offset + self.length:,}"
        place = place if self.line else self.file
        ids = f"; ids: {_shorten(self.ids)}" if self.ids else ""
        return f"{place}{numbers}: {self.detail}{ids}"


@dataclass(frozen=True)
class Move:
    """A keyword that was given another place, since its own could not be saved."""

    id: str
    """Of the keyword."""
    lost_parent_id: str
    """Its parent before."""
    parent_id: str
    """Its parent now."""

    def __str__(self) -> str:
        """Return a line for people."""
        return f"keyword {self.id}: from {self.lost_parent_id}, which is gone, to {self.parent_id}"


@dataclass(frozen=True, repr=False)
class RepairReport:
    """What a repair saved, and what it could not save; `str()` of it is for people."""

    damaged_dir: str
    """The folder that was read."""
    new_dir: str
    """The folder that was written."""
    operations: int = 0
    """Operations copied from the log."""
    keywords: int = 0
    """Living keywords in the new store, without the root."""
    infos: int = 0
    """Living infos in the new store."""
    links: int = 0
    """Links in the new store."""
    losses: tuple[Loss, ...] = ()
    """What could not be saved, in the order of the files."""
    moved: tuple[Move, ...] = ()
    """What has another place now."""
    notes: tuple[str, ...] = ()
    """What was odd, and lost nothing: lines that were there twice or in another order."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is lost, of data and of history."""
        return not self.losses

    @property
    def has_all_data(self) -> bool:
        """Whether nothing but history is lost."""
        return not any(loss.is_data for loss in self.losses)

    def __repr__(self) -> str:
        """Return one line."""
        data = sum(loss.is_data for loss in self.losses)
        parts = [_count(data, "loss")] if data else []
        parts += [_count(len(self.losses) - data, "loss") + " of history alone"] if data < len(self.losses) else []
        return (
            f"<RepairReport {_count(self.keywords, 'keyword')}, {_count(self.infos, 'info')}, "
            f"{_count(self.links, 'link')}; {', '.join(parts) or 'nothing lost'}>"
        )

    def __str__(self) -> str:
        """Return the whole report for people."""
        lines = [
            f"Read {self.damaged_dir}, which was not changed, and wrote {self.new_dir}:",
            f"operations: {self.operations:,}, keywords: {self.keywords:,}, "
            f"infos: {self.infos:,}, links: {self.links:,}.",
        ]
        for title, entries in (
            ("Data that could not be saved", [loss for loss in self.losses if loss.is_data]),
            ("History that could not be saved", [loss for loss in self.losses if not loss.is_data]),
            ("Has another place now", self.moved),
            ("Odd, but nothing is lost by it", self.notes),
        ):
            if entries:
                lines += ["", f"{title} ({len(entries):,}):", *(f"- {entry}" for entry in entries)]
        if self.has_all_data:
            lines += ["", "Nothing is lost." if self.is_complete else "No data is lost, only history."]
        return "\n".join(lines)


def _count(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def _shorten(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


# == Reading the log ==========================================================================================
#
# A line counts if its own checksum is right, whatever is around it.  What is neither such a line nor blank is damage:
# it is listed byte by byte.


class _Found(NamedTuple):
    """A line whose checksum is right: what `keyword_tree.LogLine` has, and its place in the file."""

    crc: bytes
    seq: int
    prev: bytes
    durable: int
    op: str
    format: int | None
    line: int
    offset: int
    length: int

    def read(self, file: BinaryIO) -> bytes:
        """Return its bytes."""
        file.seek(self.offset)
        return file.read(self.length)


class _Damage(NamedTuple):
    """Bytes of the log that are no line."""

    line: int
    offset: int
    length: int
    raw: bytes


_BLANK = b" \0\r"
_MatchOp = re.compile(rb'"op": "([a-z_]+)"').search
_FindStarts = re.compile(re.escape(b'{"crc": "')).finditer
_FindIds = re.compile(rb'"(?:id|info_id|keyword_id|operation_id)": ?"([^"\\]*(?:\\.[^"\\]*)*)"').finditer


def _read_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of each line of a file, without its newline."""
    offset = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            yield number, offset, line.removesuffix(b"\n")
            offset += len(line)


def _scan(path: Path) -> tuple[list[_Found], list[_Damage]]:
    """Return the lines of a log that are whole, and all other bytes that are not blank."""
    found: list[_Found] = []
    damages: list[_Damage] = []
    for number, offset, raw in _read_lines(path):
        starts = {match.start() for match in _FindStarts(raw)}  # several where a newline was damaged
        for start, stop in itertools.pairwise(sorted({0, *starts, len(raw)})):
            rest = raw[start:stop]
            text = rest[: rest.rfind(b"}") + 1]
            line = kt.ReadLine(text)
            if line is not None:
                found.append(_Found(*line, number, offset + start, len(text)))
                rest = rest[len(text) :]
            rest = rest.lstrip(_BLANK)
            begin, rest = offset + stop - len(rest), rest.rstrip(_BLANK)
            if rest and not (line and len(rest) == 1):  # one byte after a whole line was its newline
                damages.append(_Damage(number, begin, len(rest), rest))
    return found, damages


# -- which lines count --------------------------------------------------------


def _choose(found: list[_Found], file: str = kt.LOG_NAME) -> tuple[list[_Found], list[Loss], list[str]]:
    """Return one line for each number, in their order; of two that differ the one that fits the chain."""
    by_seq: dict[int, list[_Found]] = {}
    notes: list[str] = []
    for line in found:
        others = by_seq.setdefault(line.seq, [])
        if any(other.crc == line.crc for other in others):
            notes.append(f"{file}, line {line.line}: operation {line.seq} is there a second time")
        else:
            others.append(line)
    chosen: list[_Found] = []
    losses: list[Loss] = []
    for seq in sorted(by_seq):
        before = chosen[-1].crc if chosen and chosen[-1].seq == seq - 1 else None
        linked = {other.prev for other in by_seq.get(seq + 1, [])}
        best = max(by_seq[seq], key=lambda line: (line.prev == before, line.crc in linked))
        detail = f"another operation {seq} is in line {best.line} and fits better; this one was left out"
        losses += [_loss_in(line, detail, file) for line in by_seq[seq] if line is not best]
        where = f"{file}, line {best.line}: operation {seq}"
        if before is not None and best.prev != before:
            notes.append(f"{where} was not written after that operation {seq - 1} which is there")
        chosen.append(best)
    return chosen, losses, notes


def _loss_in(line: _Found, detail: str, file: str = kt.LOG_NAME, ids: tuple[str, ...] = ()) -> Loss:
    return Loss(detail, file, line.line, line.offset, line.length, line.seq, line.seq, ids)


def _first_number(chosen: list[_Found], last_of_history: int) -> int:
    """Return the number that the log began with: higher than 1 if it was compacted."""
    if not chosen or chosen[0].format is not None:
        return chosen[0].seq if chosen else last_of_history + 1
    return chosen[0].seq - 1 if chosen[0].op == kt.STATE else min(last_of_history + 1, chosen[0].seq)


def _describe_damages(chosen: list[_Found], damages: list[_Damage], first_number: int) -> list[Loss]:
    """Describe for each missing number the bytes at its place, and all other damage by where it is."""
    losses: list[Loss] = []
    left = {damage.offset: damage for damage in damages}
    offsets, start, expected = sorted(left), -1, first_number
    for line in chosen:
        if line.seq > expected:
            between = offsets[bisect.bisect(offsets, start) : bisect.bisect_left(offsets, line.offset)]
            here = [left.pop(offset) for offset in between if offset in left]
            is_one_each = len(here) == line.seq - expected
            for seq, damage in enumerate(here, expected):  # a piece each, or all for all
                losses.append(_loss_of(damage, *((seq, seq) if is_one_each else (expected, line.seq - 1))))
            if not here:
                losses.append(Loss("nothing is left of it in the log", first_seq=expected, last_seq=line.seq - 1))
        start, expected = line.offset, line.seq + 1
    last = max((line.offset for line in chosen), default=-1)
    detail = "bytes after the last operation that is whole; perhaps one that was never acknowledged"
    for damage in left.values():
        losses.append(_loss_of(damage, 0, 0) if damage.offset < last else _loss_of(damage, expected, 0, detail))
    return losses


def _loss_of(damage: _Damage, first: int, last: int, detail: str = "") -> Loss:
    op = _MatchOp(damage.raw)
    detail = detail or f"its checksum is wrong{f', it seems to be {op[1].decode()}' if op else ''}"
    return Loss(detail, kt.LOG_NAME, damage.line, damage.offset, damage.length, first, last, _ids_in(damage.raw))


def _ids_in(raw: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1].decode(errors="replace") for match in _FindIds(raw)))


# == Building the new state ===================================================================================


def _kind_of(row: _Row) -> str:
    if "info_id" in row:
        return "links"
    if "id" not in row:
        return ""
    return "nodes" if "ordinal" in row else "infos"


def _rows_of(operation: _Row, part: str = "after") -> dict[str, list[_Row]]:
    """Return the rows of an operation by their kind."""
    rows = operation.get(part)
    if not isinstance(rows, dict):
        return _NO_ROWS
    kind = _kind_of(rows)
    if kind:
        return {**_NO_ROWS, kind: [rows]}
    return {kind: [row for row in rows.get(kind, []) if isinstance(row, dict)] for kind in _KINDS}


def _key_of(row: _Row, kind: str) -> _Key:
    if kind == "links":
        return str(row.get("info_id")), str(row.get("keyword_id"))
    return (str(row.get("id")),)


def _encode_row(row: _Row) -> bytes:
    return kt._EncodeText(row).encode()


def _in_shape(row: _Row, kind: str) -> _Row:
    """Return a row with its fields in the order in which the library writes them.

    Raises:
        StoreCorruptError: a field is missing or unknown, or has a wrong type.
        ValueError: a relation is unknown, or a list holds something else than texts.
    """
    ordered = {name: row[name] for name in kt.ROW_FIELDS[_TYPES[kind]] if name in row} | row
    decoded = kt._DecodeRow(_encode_row(ordered), _TYPES[kind])
    shaped = {name: decoded[name] for name in ordered}
    for name, value in shaped.items():
        if isinstance(value, list) and not all(isinstance(text, str) for text in value):
            raise ValueError(f"{name} holds something else than texts")
    return shaped


_PLACE_TAKEN = "had the place in the order of another record; it was put at the end"


class _State:
    """All records that were saved so far, the deleted ones too, as bytes."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[_Key, bytes]] = {kind: {} for kind in _KINDS}
        self.owners: dict[int | None, tuple[str, _Key]] = {}  # of ordinals; no two records may have the same
        self.renumbered: dict[tuple[str, _Key], int] = {}
        self.next_ordinal = 1

    def own(self, ordinal: int | None, kind: str, key: _Key) -> bool:
        """Note whose an ordinal is; False if it is another's."""
        if ordinal is None:
            return True
        self.next_ordinal = max(self.next_ordinal, ordinal + 1)
        if kind == "links":  # where keywords are merged, a link gives its place to the one that follows it
            return True
        return self.owners.setdefault(ordinal, (kind, key)) == (kind, key)

    def take(self, row: _Row, kind: str) -> tuple[_Row | None, str]:
        """Take a row in.

        Returns:
            The row as it is now, None if it cannot be taken; and what is wrong, "" if nothing is.
        """
        fields, key, problem = kt.ROW_FIELDS[_TYPES[kind]], _key_of(row, kind), ""
        if row.keys() < fields.keys() and isinstance(row.get("version"), int):  # only what changed
            old = self.rows[kind].get(key)
            if old is None:
                return None, "is only a change of a record that could not be saved"
            before = json.loads(old)
            if row["version"] != before["version"] + 1:
                problem = (
                    f"changes version {row['version'] - 1}, which could not be saved; "
                    f"it was laid over version {before['version']}"
                )
            row = {**before, **row}
        try:
            row = _in_shape(row, kind)
        except (kt.StoreCorruptError, ValueError) as error:
            return None, f"does not have the shape of its kind: {error}"
        is_root = kind == "nodes" and row["id"] == _ROOT_ID
        # Of a keyword that was merged, a compaction may leave nothing but where its id leads to.
        has_no_parent = row["parent_id"] is None if kind == "nodes" and "merged_into" not in row else is_root
        if is_root != has_no_parent or (is_root and row["deleted"]):
            return None, "has no place in a tree"
        if not self.own(row.get("ordinal"), kind, key):
            problem = problem or _PLACE_TAKEN
            row["ordinal"] = self.renumbered.setdefault((kind, key), self.next_ordinal)
            self.own(row["ordinal"], kind, key)
        self.rows[kind][key] = _encode_row(row)
        return row, problem

    def living(self, kind: str) -> dict[_Key, _Row]:
        """Return the records that are not deleted."""
        rows = ((key, json.loads(row)) for key, row in self.rows[kind].items())
        return {key: row for key, row in rows if not row["deleted"]}


@contextlib.contextmanager
def _make_file(path: Path) -> Iterator[BinaryIO]:
    """Make a file that is on the disk when the block ends."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


class _Writer:
    """Writes operations to a new log, numbering them again."""

    def __init__(self, file: BinaryIO, number: int) -> None:
        """Begin with this number, so that those of the history stay below it."""
        self._file, self._seq, self._crc = file, number - 1, kt.FIRST_CRC

    def copy(self, raw: bytes, begins: bool = False) -> None:
        """Write a line of the old log; all after its numbers stays as it is, but for the format where a log begins."""
        self._seq += 1
        rest = raw[raw.index(b'"op": ') :]
        if begins and (match := kt.MatchLine(raw)) is not None and match[6] is None:
            rest = b"%b%b%b" % (raw[raw.index(b'"op": ') : match.end()], kt.FORMAT_FIELD.encode(), raw[match.end() :])
        body = b'"seq": %d, "prev": "%b", "durable": %d, %b' % (self._seq, self._crc, self._seq - 1, rest)
        self._crc = b"%08x" % zlib.crc32(body)
        self._file.write(b'{"crc": "%b", %b\n' % (self._crc, body))

    def add(self, op: str, rows: Mapping[str, list[_Row]], before: Mapping[str, list[_Row]], **origin: Any) -> None:
        """Write an operation of the repair's own, or one that lost a row.

        Args:
            op: its name.
            rows: what it brings, by kind.
            before: what was there.
            origin: `operation_id`, `timestamp`, `author` and `agent_io`, where an old operation had them; `extra`
                fields.
        """
        entry = kt.LoggedOperation(
            op,
            origin.get("operation_id") or str(uuid.uuid4()),
            origin.get("timestamp") or time.time(),
            _records_of(before),
            _records_of(rows),
            origin.get("author") or "",
            origin.get("agent_io"),
        )
        line, self._crc = kt.EncodeLine(self._seq + 1, self._crc, self._seq, entry, origin.get("extra", ""))
        self._seq += 1
        self._file.write(line)


def _records_of(rows: Mapping[str, list[_Row]]) -> kt.Rows:
    records = kt.NoRows()
    for kind in _KINDS:
        getattr(records, kind).extend(_encode_row(row) for row in rows.get(kind, []))
    return records


# == The repair ===============================================================================================


@dataclass
class _Repair:
    """One repair while it goes on."""

    damaged: Path
    writer: _Writer = field(init=False)
    chosen: list[_Found] = field(default_factory=list)
    state: _State = field(default_factory=_State)
    losses: list[Loss] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    operations: int = 0
    first_number: int = 1

    def read(self) -> None:
        """Read the log once, and find which of its lines count."""
        numbers = [int(path.stem) for path in self._history()]
        found, damages = _scan(self.damaged / kt.LOG_NAME)
        self.chosen, self.losses, self.notes = _choose(found)
        if not self.chosen:
            raise RepairError(f"no line of {self.damaged / kt.LOG_NAME} could be read as a keyword tree's")
        # A number within the log is that of its second name, which a compaction left which failed.
        before = [number for number in numbers if number < self.chosen[0].seq]
        self.first_number = _first_number(self.chosen, max(before, default=0))
        self.losses += _describe_damages(self.chosen, damages, self.first_number)
        for line in self.chosen:
            if line.format is not None and line.format > kt.FORMAT:
                raise RepairError(f"{kt.LOG_NAME} has format {line.format}, this version reads up to {kt.FORMAT}")

    def write(self, log: BinaryIO) -> None:
        """Write the new log."""
        self.writer = _Writer(log, self.first_number)
        if self.chosen[0].format is None:  # the first line is lost: a new root
            root = _new_keyword(_ROOT_ID, 0, name=_ROOT_ID, parent_id=None, level=0)
            self.state.take(root, "nodes")
            self.writer.add("create_store", {"nodes": [root]}, {}, extra=kt.FORMAT_FIELD)
        position = kt.LogPosition()
        with open(self.damaged / kt.LOG_NAME, "rb") as file:
            for line in self.chosen:
                if line.op != kt.CHECKPOINT:  # the new store makes its own
                    self._write_operation(line, raw := line.read(file))
                    position.Project(kt.ReadAfter(raw))
        for kind, length in zip(_KINDS, position.projected, strict=True):
            path = self.damaged / f"{kind}.jsonl"
            if not self.losses and path.exists() and len(path.read_bytes().rstrip(_BLANK + b"\n")) >= length.bytes > 0:
                self.losses.append(Loss("it holds more than the log, which has lost its end", path.name))
        for path in sorted(self.damaged.glob("cut_tail-*.bin")):
            if "change_log" in path.name:
                self.notes.append(
                    f"{path.name}: the end of a log, of operations that were never acknowledged; not read"
                )
            else:
                self.losses.append(Loss("rows that opening had cut off, and that the log did not have", path.name))
        self._write_places()

    def _write_operation(self, line: _Found, raw: bytes) -> None:
        """Copy an operation; without those of its rows that build on what is lost, if there are any."""
        operation = json.loads(raw)
        kept: dict[str, list[_Row]] = {kind: [] for kind in _KINDS}
        is_sound = True
        for kind, rows in _rows_of(operation).items():
            for row in rows:
                taken, problem = self.state.take(row, kind)
                if taken is not None:
                    kept[kind].append(taken)
                if problem:
                    is_sound = False
                    self.losses.append(_loss_in(line, f"a row of {line.op} {problem}", ids=_key_of(row, kind)))
        self.operations += 1
        if is_sound:
            self.writer.copy(raw)
        elif any(kept.values()):
            origin = {name: operation.get(name) for name in ("operation_id", "timestamp", "author", "agent_io")}
            extra = kt.FORMAT_FIELD if line is self.chosen[0] else ""
            self.writer.add(line.op, kept, _rows_of(operation, "before"), extra=extra, **origin)

    def _history(self) -> list[Path]:
        return sorted(path for path in (self.damaged / kt.HISTORY).glob("*.jsonl") if path.stem.isdecimal())

    def copy_history(self, target: Path) -> None:
        """Copy the lines of the logs that compactions set aside, each number once, as far as they are whole.

        Where some are lost, a file `….lost` lets a tree read on beyond them.
        """
        # The number that comes next, and the last that was written; 0 where nothing says
        expected, written = int((self.damaged / kt.HISTORY).exists()), 0
        if expected:
            target.mkdir(mode=0o700, exist_ok=True)
        for path in self._history():
            # One that a compaction left which failed is a second name of a log: the other name has what follows.
            limit = min(int(path.stem) + 1, self.first_number)
            if limit <= expected:
                continue
            name = f"{kt.HISTORY}/{path.name}"
            found, damages = _scan(path)
            lines, others, notes = _choose([line for line in found if expected <= line.seq < limit], name)
            start = min((line.offset for line in found if line.seq >= expected), default=0)
            stop = min((line.offset for line in found if line.seq >= limit), default=sys.maxsize)
            damages = [damage for damage in damages if start <= damage.offset < stop]
            end = _Found(b"", limit, b"", 0, "", None, 0, stop, 0)  # so that what is missing before it is listed
            missing = _describe_damages([*lines, end], damages, expected)
            self.losses += [replace(loss, file=name, is_data=False) for loss in (*others, *missing)]
            self.notes += notes
            expected = limit
            # In a run without a gap, number and place rise together.
            for _, group in itertools.groupby(enumerate(lines), lambda pair: pair[1].seq - pair[0]):
                run = [line for _, line in group]
                if 0 < written < run[0].seq - 1:
                    (target / f"{run[0].seq - 1:018d}.lost").touch(0o600)
                written = run[-1].seq
                with open(path, "rb") as old, _make_file(target / f"{written:018d}.jsonl") as new:
                    writer = _Writer(new, run[0].seq)  # chained again: what was left out must not look like damage
                    for line in run:
                        writer.copy(line.read(old), begins=line is run[0])
        if 0 < written < self.first_number - 1:
            (target / f"{self.first_number - 1:018d}.lost").touch(0o600)
        if 0 < expected < self.first_number:
            detail = f"nothing is left of it in {kt.HISTORY}/"
            self.losses.append(Loss(detail, kt.HISTORY, 0, 0, 0, expected, self.first_number - 1, is_data=False))

    def copy_snapshots(self, target: Path) -> None:
        """Copy the snapshots that are as they were made."""
        folder = self.damaged / kt.SNAPSHOTS
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = f"{kt.SNAPSHOTS}/{path.name}"
            if not (path / kt.SNAPSHOT_NAME).exists():
                if not path.is_dir() or any(path.iterdir()):  # CompactStorage(keep_history=False) empties it
                    detail = f"has no {kt.SNAPSHOT_NAME}, as one that was never finished; it was left out"
                    self.notes.append(f"{name} {detail}")
                continue
            try:
                manifest = (path / kt.SNAPSHOT_NAME).read_bytes()
                said = json.loads(manifest)["log"]
                log = (path / kt.LOG_NAME).read_bytes()[: said["length"]]
                is_sound = (len(log), zlib.crc32(log)) == (said["length"], int(said["crc"], 16))
            except (OSError, ValueError, KeyError, TypeError):
                is_sound = False
            if not is_sound:
                detail = "the snapshot is not as it was made; it was left out"
                self.losses.append(Loss(detail, f"{name}/{kt.LOG_NAME}", is_data=False))
                continue
            for each in (target, target / path.name):
                each.mkdir(mode=0o700, exist_ok=True)
            for file, content in ((kt.LOG_NAME, log), (kt.SNAPSHOT_NAME, manifest)):
                with _make_file(target / path.name / file) as new:
                    new.write(content)
            kt._Files().SyncFolder(str(target / path.name))

    def _write_places(self) -> None:
        """Give everything a place whose own is lost."""
        nodes = {id: row for (id,), row in self.state.living("nodes").items()}
        infos, deleted = self.state.living("infos"), self.state.rows["nodes"]
        changed: dict[str, _Row] = {}
        before: dict[str, list[_Row]] = {"nodes": [], "links": []}
        links: list[_Row] = []

        def recreate(id: str, of: str) -> None:
            name = f"(lost) {id}"[:512]
            detail = f"a keyword is lost, though {of} it are there: recreated as {name!r}"
            self.losses.append(Loss(detail, ids=(id,)))
            said = "This keyword could not be saved; what belonged to it still does."
            fields = {"name": name, "normalized": kt._NormalizeText(name), "description": said}
            row = _new_keyword(id, self.state.next_ordinal, **fields, metadata={"repair": "lost"})
            changed[id] = nodes[id] = row
            self.state.next_ordinal += 1

        def move_to_root(id: str) -> None:
            row = nodes[id]
            self.moved.append(Move(id, row["parent_id"], _ROOT_ID))
            before["nodes"].append(row)
            version = {"version": row["version"] + 1, "updated_at": time.time()}
            changed[id] = nodes[id] = {**row, "parent_id": _ROOT_ID, **version}

        for id, row in list(nodes.items()):
            parent_id = row["parent_id"]
            if parent_id is None or parent_id in nodes:
                continue
            if (parent_id,) in deleted:
                move_to_root(id)
            else:
                recreate(parent_id, "keywords under")
        for id in list(_circles(nodes)):
            move_to_root(id)
        for key, row in self.state.living("links").items():
            info_id, keyword_id = key
            is_lost = (info_id,) not in infos
            if is_lost:
                self.losses.append(Loss("an info is lost, and a link to it was taken away", ids=key))
            elif keyword_id not in nodes and (keyword_id,) not in deleted:
                recreate(keyword_id, "infos at")
            elif keyword_id not in nodes:
                self.notes.append(f"the link {' → '.join(key)} was taken away: its keyword is deleted")
            if is_lost or keyword_id not in nodes:
                before["links"].append(row)
                links.append({**row, "deleted": True})
        if changed or links:
            rows = {"nodes": list(changed.values()), "links": links}
            for kind, of_kind in rows.items():
                for row in of_kind:
                    taken, problem = self.state.take(row, kind)
                    assert taken is not None, problem
            self.writer.add("repair_places", rows, before, agent_io={"repair": "a place for what had lost its own"})


def _new_keyword(id: str, ordinal: int, **fields: Any) -> _Row:
    """Return the row of a keyword that could not be saved."""
    now = time.time()
    row: _Row = {
        "id": id, "ordinal": ordinal, "deleted": False, "parent_id": _ROOT_ID, "name": id, "aliases": [],
        "normalized": [_ROOT_ID], "level": 1, "children": [], "description": "", "metadata": {}, "version": 1,
        "created_at": now, "updated_at": now, "created_by": "repair",
    }  # fmt: skip
    return row | fields


def _circles(nodes: Mapping[str, _Row]) -> Iterator[str]:
    """Yield of each circle of parents the keyword that was made first."""
    settled = {_ROOT_ID}
    for id in sorted(nodes, key=lambda id: int(nodes[id]["ordinal"])):
        path: list[str] = []
        while id not in settled:
            settled.add(id)
            path.append(id)
            id = nodes[id]["parent_id"] or _ROOT_ID
        if id in path:
            yield min(path[path.index(id) :], key=lambda id: int(nodes[id]["ordinal"]))


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep others from writing meanwhile, without writing anything."""
    with contextlib.ExitStack() as stack:
        lock = folder / "lock"
        if fcntl is not None and lock.exists():
            fcntl.flock(stack.enter_context(open(lock, "rb")), fcntl.LOCK_SH)
        yield


def repair(damaged_dir: str | os.PathLike[str], new_dir: str | os.PathLike[str]) -> RepairReport:
    """Read a damaged store, and write a new one with everything that can be saved.

    The damaged folder is not changed, whatever happens. The new one is there only if it is complete: it was opened
    as a tree, and each record that was saved was read from it.

    Args:
        damaged_dir: folder of the store that cannot be opened; a healthy one is copied.
        new_dir: folder to be made; must not exist, while the one it is made in must.

    Returns:
        What was saved, and what was not.

    Raises:
        RepairError: the damaged folder holds nothing of a keyword tree, or one of a newer format; or the new one
            exists, or lies within the other.
        OSError: a file cannot be read or written.

    Cost: reads each file up to three times; holds all rows in memory; a few syncs.
    """
    if is_address(damaged_dir) or is_address(new_dir):
        raise RepairError("repair needs folders, and cannot use the address of a server: copy the tree out first")
    damaged, new = Path(os.path.abspath(damaged_dir)), Path(os.path.abspath(new_dir))
    if not damaged.is_dir():
        raise RepairError(f"there is no folder {damaged}")
    if not (damaged / kt.LOG_NAME).exists():
        raise RepairError(f"{damaged} holds no keyword tree: there is no {kt.LOG_NAME}")
    if new.exists() or new.is_symlink():
        raise RepairError(f"{new} exists already: name a folder that does not")
    if not new.parent.is_dir():
        raise RepairError(f"there is no folder {new.parent} to make {new.name} in")
    if damaged.resolve() in (new.parent.resolve(), *new.parent.resolve().parents):
        raise RepairError(f"{new} lies within {damaged}, which is to stay as it is")
    unfinished = new.with_name(f"{new.name}.unfinished")
    os.mkdir(unfinished, 0o700)
    try:
        report = _repair_into(damaged, unfinished, new)
        os.rename(unfinished, new)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    kt._Files().SyncFolder(str(new.parent))
    return report


def _repair_into(damaged: Path, unfinished: Path, new: Path) -> RepairReport:
    with _held(damaged):
        work = _Repair(damaged)
        work.read()
        with _make_file(unfinished / kt.LOG_NAME) as log:
            work.write(log)
        work.copy_history(unfinished / kt.HISTORY)
        work.copy_snapshots(unfinished / kt.SNAPSHOTS)
    for folder in (kt.HISTORY, kt.SNAPSHOTS):
        if (unfinished / folder).exists():
            kt._Files().SyncFolder(str(unfinished / folder))
    nodes, infos, links = (work.state.living(kind) for kind in _KINDS)
    with kt.KeywordTree(str(unfinished)) as tree:
        missing = [id for (id,) in nodes if not tree.GetPath(id)]
        missing += [id for (id,) in infos if tree.GetInfo(id) is None]
        linked = sum(len(tree.GetKeywordsOfInfo(id)) for (id,) in infos)
        assert not missing, f"the new store lacks {missing[:3]}"
        assert linked == len(links), f"the new store has {linked} links instead of {len(links)}"
        assert not tree.recovery, tree.recovery
        problems = tree.Verify()
        assert not problems, problems[:3]
    return RepairReport(
        str(damaged),
        str(new),
        work.operations,
        len(nodes) - 1,
        len(infos),
        len(links),
        tuple(sorted(work.losses, key=_order_of)),
        tuple(work.moved),
        tuple(work.notes),
    )


def _order_of(loss: Loss) -> tuple[bool, str, int, int]:
    return loss.file != kt.LOG_NAME, loss.file, loss.first_seq or sys.maxsize, loss.offset


if __name__ == "__main__":
    raise SystemExit("keyword-tree --data DAMAGED repair NEW_FOLDER is the command for it")
