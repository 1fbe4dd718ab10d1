"""Save what can be saved of a damaged store: `repair(damaged, new)`, or `keyword-tree --data DAMAGED repair NEW`.

Opening a tree never guesses: a store whose log holds damage that no crash explains is refused, and left as it is. A
repair reads the damaged folder without changing a byte of it, writes a new store beside it, and lists exactly what
could not be saved.

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
<RepairReport 2 keywords, 0 infos, 0 links; 1 line corrected, nothing lost>
>>> with KeywordTree(str(new)) as tree:
...     tree.Search("hammer")
<SearchResult matched 'hammer' by exact>
>>> folder.cleanup()

Where things are saved from, in this order:

1. Every line of `change_log.jsonl` whose own checksum is right, also after damage, in the order of its numbers. Such
   lines are copied as they are (who, when, what was asked of a model), with new numbers.
2. Every damaged line whose checksum is right with one bit flipped. It is again what was written.
3. Where a number is missing all the same: the rows that `nodes.jsonl`, `infos.jsonl` and `links.jsonl` have at that
   place and no line of the log brings. They become one operation `repair_rows`, which names their files and lines. A
   row is *verified* if a checkpoint's checksum says so; of any other it is unknown whether it is unharmed.

Then one operation `repair_places` makes the whole consistent: a lost keyword that others are under or linked to is
created again under its old id, as "(lost) …" under the root; a link to a lost info is removed. Both are listed.

A log that is cut at the end of a line looks whole. Opening then moves the rows of the projections that the log lacks
into files `cut_tail-nodes-52-1a2b3c4d.bin`: rows as JSON, one in a line, of operation 52 and later ones, and the
checksum of the file. They are counted, and `take_cut=True` (`--take-cut`) takes in those that nothing else brings and
whose records were not changed since. A file `cut_tail-change_log-…` holds the end of a log that was never acknowledged,
and is only listed.

`history/` and `snapshots/` are copied, each operation once and each snapshot that is as it was made; what is missing is
listed. Where the oldest log that is left begins with a state, what came before counts as lost if there is a folder
`history/`, or if that state holds deleted records: `CompactStorage(keep_history=False)` leaves neither.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from .. import keyword_tree as kt
from .addresses import is_address

try:  # Windows has no flock; there nothing may write while this reads.
    import fcntl
except ImportError:  # pragma: no cover - this branch cannot be run on the machines we test on
    fcntl = None  # type: ignore[assignment]  # typeshed knows the module on the platform that checks it

__all__ = ["Correction", "CutFile", "Loss", "Move", "RepairError", "RepairReport", "Rescue", "repair"]

_Row: TypeAlias = dict[str, Any]
"""One record as JSON has it.  `Any` stops at this edge."""

_Key: TypeAlias = tuple[str, ...]
"""The id of a keyword or info; of a link that of the info, then that of the keyword."""

_ROOT_ID = "root"

_KINDS = ("nodes", "infos", "links")
_CRC_END = len(b'{"crc": "00000000", ')
_TYPES = {"nodes": kt.KeywordNode, "infos": kt.Info, "links": kt.InfoKeywordLink}
_NO_ROWS: dict[str, list[_Row]] = {kind: [] for kind in _KINDS}
_CUT_LOG = "cut_tail-change_log-"
_MatchCut = re.compile(r"cut_tail-(change_log|nodes|infos|links)-(\d{1,18})-([0-9a-f]{8})\.bin").fullmatch
_TRUST = {True: "verified by a checkpoint", False: "NOT verified"}
_SHOWN = 8  # ids in one line of a printed report
_BATCH = 1000  # rows in one operation `repair_rows`


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
    """Whether records may be lost by it; False where it is proven that history alone is."""

    def __str__(self) -> str:
        """Return a line for people."""
        numbers = f" (operations {self.first_seq} to {self.last_seq or 'the end'})" if self.first_seq else ""
        if 0 < self.first_seq == self.last_seq:
            numbers = f" (operation {self.first_seq})"
        ids = f"; ids: {_shorten(self.ids)}" if self.ids else ""
        return f"{_place_of(self) if self.line else self.file}{numbers}: {self.detail}{ids}"


@dataclass(frozen=True)
class Correction:
    """A damaged line that was corrected, so that its checksum proves that it is what was written."""

    file: str
    """Name of its file."""
    line: int
    """Its line in that file, from 1."""
    offset: int
    """Its first byte in that file, from 0."""
    length: int
    """Its length in bytes there."""
    seq: int
    """Of the operation, its number in the log."""

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{_place_of(self)} (operation {self.seq})"


@dataclass(frozen=True)
class Rescue:
    """A row that no line of the log brings any more, taken from a projection."""

    kind: str
    """`nodes`, `infos` or `links`."""
    id: str
    """Of the keyword or info; of a link both, as `info → keyword`."""
    file: str
    """Name of the file it was found in."""
    line: int
    """Its line in that file, from 1."""
    is_verified: bool
    """Whether a checkpoint's checksum says that it is unharmed."""

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{self.file}, line {self.line}: {self.kind[:-1]} {self.id}, {_TRUST[self.is_verified]}"


@dataclass(frozen=True)
class Move:
    """A record that was given another place, since its own could not be saved."""

    id: str
    """Of the keyword."""
    lost_parent_id: str
    """Its parent before."""
    parent_id: str
    """Its parent now; the same id if that keyword was made again under it."""

    def __str__(self) -> str:
        """Return a line for people."""
        if self.parent_id == self.lost_parent_id:
            return f"keyword {self.id}: still under {self.parent_id}, which is lost and was recreated with the same id"
        return f"keyword {self.id}: from {self.lost_parent_id}, which is gone, to {self.parent_id}"


@dataclass(frozen=True)
class CutFile:
    """A file `cut_…`, in which opening the store had kept what it cut."""

    file: str
    """Its name."""
    lacking: int = 0
    """Whole rows in it (of a log: whole operations) that the damaged store holds nowhere else."""
    taken: int = 0
    """How many of them were taken into the new store."""
    unreadable: int = 0
    """Lines in it that cannot be read."""
    ids: tuple[str, ...] = ()
    """The ids of what lacks and was not taken."""

    def __str__(self) -> str:
        """Return a line for people."""
        noun = "operation" if self.file.startswith(_CUT_LOG) else "row"
        said = f"{self.file}: {_count(self.lacking, f'whole {noun}')} that the new store does not hold"
        if self.taken:
            said = f"{self.file}: {self.taken:,} of {_count(self.lacking, f'whole {noun}')} taken"
            if self.lacking > self.taken:
                said += f", {self.lacking - self.taken:,} not: the record was changed since, or has no place"
        if self.unreadable:
            said += f"; {_count(self.unreadable, 'line')} that cannot be read"
        return f"{said}; ids: {_shorten(self.ids)}" if self.ids else said


@dataclass(frozen=True, repr=False)
class RepairReport:
    """What a repair saved, from where, and what it could not save; `str()` of it is for people."""

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
    rescued: tuple[Rescue, ...] = ()
    """What was taken from projections."""
    moved: tuple[Move, ...] = ()
    """What has another place now."""
    notes: tuple[str, ...] = ()
    """What was odd, and lost nothing: lines that were there twice or in another order."""
    cut_files: tuple[CutFile, ...] = ()
    """What the damaged store had kept aside when it was opened."""
    corrected: tuple[Correction, ...] = ()
    """Lines that were damaged, and are proven to be again what was written."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is lost, of data and of history."""
        return not self.losses and self.has_all_data

    @property
    def has_all_data(self) -> bool:
        """Whether each record is as it last was; history may be lost."""
        return not any(loss.is_data for loss in self.losses) and all(cut.lacking == cut.taken for cut in self.cut_files)

    def __repr__(self) -> str:
        """Return one line."""
        parts = [_count(len(self.corrected), "line") + " corrected"] if self.corrected else []
        parts += [_count(len(self.rescued), "row") + " from projections"] if self.rescued else []
        data = sum(loss.is_data for loss in self.losses)
        parts += [_count(data, "loss")] if data else []
        parts += [_count(len(self.losses) - data, "loss") + " of history alone"] if data < len(self.losses) else []
        lacking = sum(cut.lacking - cut.taken for cut in self.cut_files)
        parts += [f"{lacking:,} left in cut files"] if lacking else []
        parts += ["nothing lost"] if self.is_complete else []
        return (
            f"<RepairReport {_count(self.keywords, 'keyword')}, {_count(self.infos, 'info')}, "
            f"{_count(self.links, 'link')}; {', '.join(parts)}>"
        )

    def __str__(self) -> str:
        """Return the whole report for people."""
        lines = [
            f"Read {self.damaged_dir}, which was not changed, and wrote {self.new_dir}:",
            f"operations: {self.operations:,}, keywords: {self.keywords:,}, "
            f"infos: {self.infos:,}, links: {self.links:,}.",
        ]
        data = [loss for loss in self.losses if loss.is_data]
        history = [loss for loss in self.losses if not loss.is_data]
        for title, count, entries in (
            ("Data that could not be saved, or of which nothing proves that it was", len(data), data),
            ("History that could not be saved, while all data of it is there", len(history), history),
            ("Kept aside when the store was opened", len(self.cut_files), self.cut_files),
            ("Damaged, and corrected: the checksum proves it", len(self.corrected), self.corrected),
            ("Found in the projections alone", len(self.rescued), _group(self.rescued)),
            ("Has another place now", len(self.moved), self.moved),
            ("Odd, but nothing is lost by it", len(self.notes), self.notes),
        ):
            if entries:
                lines += ["", f"{title} ({count:,}):", *(f"- {entry}" for entry in entries)]
        if any(not rescue.is_verified for rescue in self.rescued):
            lines += [
                "",
                "NOT verified: no checkpoint proves that the row is unharmed. Look at it in the new store by "
                "its id, with GetKeyword, GetInfo or `keyword-tree show ID`, or at its line in the file named.",
            ]
        if any(cut.lacking and not cut.taken and not cut.file.startswith(_CUT_LOG) for cut in self.cut_files):
            lines += [
                "",
                "Rows were left in cut files: repair into another new folder with --take-cut (in Python: "
                "take_cut=True) to take them in.",
            ]
        if self.is_complete:
            lines += ["", "Nothing is lost."]
        elif self.has_all_data:
            lines += ["", "No data is lost, only history."]
        return "\n".join(lines)


def _place_of(at: Loss | Correction) -> str:
    return f"{at.file}, line {at.line}, bytes {at.offset:,} to {at.offset + at.length:,}"


def _group(rescued: Sequence[Rescue]) -> list[str]:
    """Return a line for each row, or one for many that differ in their ids alone."""
    groups: dict[tuple[str, str, bool], list[Rescue]] = {}
    for rescue in rescued:
        groups.setdefault((rescue.file, rescue.kind, rescue.is_verified), []).append(rescue)
    lines: list[str] = []
    for (file, kind, is_verified), rows in groups.items():
        if len(rows) <= _SHOWN:
            lines += map(str, rows)
            continue
        first, last = min(row.line for row in rows), max(row.line for row in rows)
        ids = _shorten(tuple(row.id for row in rows))
        lines.append(f"{file}, in lines {first:,} to {last:,}: {len(rows):,} {kind}, {_TRUST[is_verified]}: {ids}")
    return lines


def _count(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def _shorten(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


# == Reading the log ==========================================================================================
#
# A line counts if its own checksum is right, whatever is around it.  What is neither such a line nor blank is damage:
# it is corrected, or listed byte by byte.


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
    corrected: bytes = b""  # what was written, if it was damaged

    def read(self, file: BinaryIO) -> bytes:
        """Return its bytes."""
        if self.corrected:
            return self.corrected
        file.seek(self.offset)
        return file.read(self.length)


class _Damage(NamedTuple):
    """Bytes of the log that are no line."""

    line: int
    offset: int
    length: int
    raw: bytes


_BLANK = b" \0\r"
_IsCrc = re.compile(rb"[0-9a-f]{8}").fullmatch
_MatchSeq = re.compile(rb'"seq": (\d{1,18}),').search
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


# -- correcting damaged lines -------------------------------------------------
#
# A line is taken as it was written only if its checksum says so, as it is or with one bit flipped. CRC-32 is linear:
# which bits of the checksum a flipped bit changes depends only on how far from the end it is, so one bit is found by
# walking over the line once.
#
# A try lets a wrong line through once in 2^32 times. So there are at most `_TRIES` for a reading of a line, 1 in
# 32,768 that one does; and the result must be an operation of whole rows as well, and fit the lines before and after.

_POLYNOMIAL = 0xEDB88320
_TRIES = 1 << 17
_LINE_SIGNS = (b'"prev": "', b'"operation_id": "')  # every damaged line that can be corrected has one of them


def _prove(found: list[_Found], damages: list[_Damage]) -> tuple[list[_Found], list[_Damage]]:
    """Correct damaged lines, as far as their checksums prove it.

    Args:
        found: the lines that are whole, in the order of the file.
        damages: everything else.

    Returns:
        All lines that are whole now, in the order of the file, and the damage that is left.
    """
    offsets = [line.offset for line in found]
    known: dict[int, list[_Found]] = {}
    for line in found:
        known.setdefault(line.seq, []).append(line)
    proven: list[_Found] = []
    left: list[_Damage] = []
    waiting = damages[::-1]
    while waiting:
        damage = waiting.pop()
        following = bisect.bisect(offsets, damage.offset)
        prev = found[following].prev if following < len(found) else b""
        tries = [damage]
        if waiting and damage.offset + damage.length + 1 == waiting[-1].offset:  # a flipped bit may have made a newline
            both = damage.raw + b"\n" + waiting[-1].raw
            tries.append(damage._replace(length=len(both), raw=both))
        for attempt in tries:
            if whole := _prove_one(attempt, prev, known):
                proven.append(whole)
                known.setdefault(whole.seq, []).append(whole)
                waiting = waiting if attempt is damage else waiting[:-1]
                break
        else:
            left.append(damage)
    return sorted([*found, *proven], key=lambda line: line.offset), left


def _prove_one(damage: _Damage, prev: bytes, known: Mapping[int, list[_Found]]) -> _Found | None:
    """Return the one line that fits in the place of damage, and whose checksum is right; None if there is not just one.

    Args:
        damage: its bytes.
        prev: what the next whole line has as the checksum of the line before it.
        known: number -> lines.
    """
    if not any(sign in damage.raw for sign in _LINE_SIGNS):
        return None
    start = max(damage.raw.find(b'"seq": ', 0, 2 * _CRC_END), 0) or _CRC_END
    lines = {
        _Found(*line, *damage[:3], raw)
        for crc, body in _corrections(damage.raw[start:], damage.raw[start - 11 : start - 3], prev)
        if (line := kt.ReadLine(raw := b'{"crc": "%b", %b' % (crc, body))) and _fits(line, raw, known)
    }
    return lines.pop() if len(lines) == 1 else None


def _corrections(body: bytes, said: bytes, prev: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield checksum and body of a line: as they are, or with one flipped bit in either.

    Args:
        body: what the checksum is of.
        said: the checksum in the line itself, perhaps damaged.
        prev: the checksum in the next line.
    """
    own = zlib.crc32(body)
    wanted = {own ^ int(crc, 16): crc for crc in (said, prev) if _IsCrc(crc)}
    text = b"%08x" % own
    if 0 in wanted or (int.from_bytes(text) ^ int.from_bytes(said)).bit_count() == 1:
        yield text, body
        return
    effect, bits = 1, 8 * len(body)
    for place in range(bits if bits <= _TRIES else 0):  # from the last bit to the first, of each byte the highest first
        effect = effect >> 1 ^ (_POLYNOMIAL if effect & 1 else 0)
        if effect in wanted:
            yield wanted[effect], (int.from_bytes(body) ^ 1 << (place ^ 7)).to_bytes(len(body))


def _fits(line: kt.LogLine, raw: bytes, known: Mapping[int, list[_Found]]) -> bool:
    """Tell whether a line is an operation of whole rows that is missing between its neighbours."""
    before, after = known.get(line.seq - 1), known.get(line.seq + 1)
    if line.seq in known or line.durable >= line.seq:
        return False
    if (before and line.prev not in {other.crc for other in before}) or (
        after and line.crc not in {other.prev for other in after}
    ):
        return False
    try:
        _, operation = kt.ReadOperation(raw)
        for row in itertools.chain(*operation.before[:3], *operation.after[:3]):
            kt.ReadRecord(row)
    except (kt.StoreCorruptError, ValueError):
        return False
    named = operation.op, operation.id, operation.author
    return all(isinstance(text, str) for text in named) and isinstance(operation.timestamp, (int, float))


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
        if chosen and best.offset < chosen[-1].offset:
            notes.append(f"{where} comes before operation {chosen[-1].seq}")
        chosen.append(best)
    return chosen, losses, notes


def _loss_in(line: _Found, detail: str, file: str = kt.LOG_NAME, ids: tuple[str, ...] = ()) -> Loss:
    return Loss(detail, file, line.line, line.offset, line.length, line.seq, line.seq, ids)


def _first_number(chosen: list[_Found], damages: list[_Damage], last_of_history: int) -> int:
    """Return the number that the log began with: higher than 1 if it was compacted."""
    if not chosen or chosen[0].format is not None:
        return chosen[0].seq if chosen else last_of_history + 1
    reported = [(int(seq[1]), damage.raw) for damage in damages if (seq := _MatchSeq(damage.raw))]
    firsts = [seq for seq, raw in reported if b'"format": ' in raw]
    if not firsts and 0 < last_of_history < chosen[0].seq:
        return last_of_history + 1
    firsts = firsts or [seq for seq, raw in reported if b'"op": "state"' in raw]
    if firsts:
        return min(firsts[0], chosen[0].seq)
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


# == Reading the projections ==================================================================================
#
# A projection is the rows of the log, in its order.  So the rows of the lines that are whole are a part of it, and what
# is between them, at a place where a number is missing, are the rows of the missing operations.


class _Sign(NamedTuple):
    """What a row is recognised by, without keeping it."""

    key: _Key
    version: tuple[object, ...]  # no two states of one record share it
    digest: bytes
    ordinal: int | None

    @property
    def state(self) -> tuple[object, ...]:
        """What a damaged copy of a row usually shares with it."""
        return self.key, self.version


def _sign(row: _Row, kind: str) -> _Sign:
    names = ("relation", "deleted", "created_at") if kind == "links" else ("version",)
    digest = hashlib.blake2b(json.dumps(row).encode(), digest_size=16).digest()
    ordinal = row.get("ordinal")
    version = tuple(str(row.get(name)) for name in names)
    return _Sign(_key_of(row, kind), version, digest, ordinal if isinstance(ordinal, int) else None)


class _Line(NamedTuple):
    """A line of a projection."""

    line: int
    offset: int
    length: int
    sign: _Sign | None  # None if it cannot be read


class _Source(NamedTuple):
    """A row that no line of the log brings, and where it is."""

    kind: str
    file: str
    line: _Line
    is_verified: bool
    raw: bytes


class _Brought(NamedTuple):
    """A row of a line of the log."""

    operation: int  # index
    sign: _Sign


class _Projection:
    """One of the three files, or rows that opening had cut from it, as far as they can be read."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.lines: list[_Line] = []
        for number, offset, raw in _read_lines(self.path) if self.path.exists() else ():
            if raw:
                row = _decode(raw, kind)
                self.lines.append(_Line(number, offset, len(raw), _sign(row, kind) if row else None))

    def rows_between(self, log: list[_Brought], gaps: Sequence[int]) -> dict[int, list[_Line]]:
        """Return for each gap the lines that the log does not have.

        Args:
            log: each row of the lines that are whole.
            gaps: the indexes of operations before which others are missing, in order; the last is the count of all
                operations, for what is missing after them.
        """
        places: dict[tuple[object, ...], list[int]] = {}
        for place, line in enumerate(self.lines):
            if line.sign is not None:
                places.setdefault(line.sign.state, []).append(place)
        known = {row.sign.state for row in log}
        between: dict[int, list[_Line]] = {}
        position = operation = 0  # after the last row that was found
        unmatched: list[_Brought] = []  # rows that were not found since

        def gather(until: int, last: int) -> None:
            lines = [line for line in self.lines[position:until] if line.sign is None or line.sign.state not in known]
            here = gaps[bisect.bisect_left(gaps, operation) : bisect.bisect(gaps, last)]
            gap = 0
            for line in lines if here and len(lines) > len(unmatched) else ():
                # One that cannot be read is taken for a damaged copy of the next row that was not found.
                copied = [row for row in unmatched if line.sign is None or line.sign.key == row.sign.key]
                if copied:
                    unmatched.remove(copied[0])
                    gap = min(max(gap, bisect.bisect(here, copied[0].operation)), len(here) - 1)
                else:
                    between.setdefault(here[gap], []).append(line)

        for row in log:
            found = places.get(row.sign.state, [])
            nearest = bisect.bisect_left(found, position)
            if nearest == len(found):  # damaged here, or never written
                unmatched.append(row)
                continue
            gather(found[nearest], row.operation)
            position, operation, unmatched = found[nearest] + 1, row.operation + 1, []
        gather(len(self.lines), gaps[-1])
        return between

    def read(self, lines: Sequence[_Line]) -> Iterator[tuple[_Line, bytes]]:
        """Yield the bytes of lines."""
        if lines:
            with open(self.path, "rb") as file:
                for line in lines:
                    file.seek(line.offset)
                    yield line, file.read(line.length)


def _decode(raw: bytes, kind: str) -> _Row | None:
    """Return a row, or None for what is none of this kind."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and _kind_of(row) == kind else None


def _kind_of(row: _Row) -> str:
    if "info_id" in row:
        return "links"
    if "id" not in row:
        return ""
    return "nodes" if "ordinal" in row else "infos"


# == Building the new state ===================================================================================


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
    takes_cut: bool
    writer: _Writer = field(init=False)
    chosen: list[_Found] = field(default_factory=list)
    projections: dict[str, _Projection] = field(default_factory=dict)
    between: dict[str, dict[int, list[_Line]]] = field(default_factory=dict)
    state: _State = field(default_factory=_State)
    losses: list[Loss] = field(default_factory=list)
    rescued: list[Rescue] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    corrected: list[Correction] = field(default_factory=list)
    cut_files: list[CutFile] = field(default_factory=list)
    operations: int = 0
    first_number: int = 1
    held: set[tuple[str, bytes]] = field(default_factory=set)  # kind and digest of each row
    changed: dict[tuple[str, _Key], int] = field(default_factory=dict)  # record -> its last operation
    verified: dict[str, int] = field(default_factory=dict)  # kind -> index of the last checkpoint that fits its rows
    proof: _Found | None = None  # the last checkpoint that fits all rows
    has_refused: bool = False  # whether a row was not taken as it is

    def read(self) -> None:
        """Read all files once, and find what belongs where."""
        numbers = [int(path.stem) for path in self._history()]
        if (self.damaged / kt.LOG_NAME).exists():
            found, damages = self._scan(kt.LOG_NAME)
            self.chosen, self.losses, self.notes = _choose(found)
            # A number within the log is that of its second name, which a compaction left which failed.
            before = [number for number in numbers if not self.chosen or number < self.chosen[0].seq]
            self.first_number = _first_number(self.chosen, damages, max(before, default=0))
            self.losses += _describe_damages(self.chosen, damages, self.first_number)
        else:
            self.first_number = max(numbers, default=0) + 1
            self.losses.append(Loss("the log is missing", first_seq=self.first_number))
        for line in self.chosen:
            if line.format is not None and line.format > kt.FORMAT:
                raise RepairError(f"{kt.LOG_NAME} has format {line.format}, this version reads up to {kt.FORMAT}")
        self.projections = {kind: _Projection(self.damaged / f"{kind}.jsonl", kind) for kind in _KINDS}
        if not self.chosen and not any(line.sign for each in self.projections.values() for line in each.lines):
            raise RepairError(f"nothing in {self.damaged} could be read as a keyword tree's")
        self._compare()
        if self.losses:  # without a loss nothing needs proof
            self._verify()

    def _scan(self, name: str, *, lists: bool = True) -> tuple[list[_Found], list[_Damage]]:
        """Scan a log, correct what one bit explains, and list that."""
        found, damages = _prove(*_scan(self.damaged / name))
        if lists:
            self._list_corrected(name, found)
        return found, damages

    def _list_corrected(self, name: str, found: list[_Found]) -> None:
        self.corrected += [Correction(name, *line[6:9], line.seq) for line in found if line.corrected]

    def _compare(self) -> None:
        """Find which lines of the projections the log does not have, and where they belong."""
        rows: dict[str, list[_Brought]] = {kind: [] for kind in _KINDS}
        for index, (line, raw) in enumerate(self._read_chosen()):
            for kind, brought in _rows_of(json.loads(raw)).items():
                for row in brought:
                    sign = _sign(row, kind)
                    rows[kind].append(_Brought(index, sign))
                    self.state.own(sign.ordinal, kind, sign.key)
                    self._hold(kind, sign, line.seq)
        gaps = [n for n in range(1, len(self.chosen)) if self.chosen[n].seq != self.chosen[n - 1].seq + 1]
        if self.chosen and self.chosen[0].format is None:
            gaps.insert(0, 0)
        gaps.append(len(self.chosen))  # whether the end is missing, nothing says
        for kind, projection in self.projections.items():
            # One that has the place in the order of another record is a damaged copy of that.
            self.between[kind] = {
                gap: [line for line in lines if line.sign is None or self._is_own(line.sign, kind)]
                for gap, lines in projection.rows_between(rows[kind], gaps).items()
            }
        has_open_loss = any(loss.first_seq and not loss.last_seq for loss in self.losses)
        if not has_open_loss and any(of_kind.get(len(self.chosen)) for of_kind in self.between.values()):
            detail = "the log has lost its end: the projections hold rows that it does not have"
            self.losses.append(Loss(detail, first_seq=self.chosen[-1].seq + 1 if self.chosen else self.first_number))

    def _is_own(self, sign: _Sign, kind: str) -> bool:
        return self.state.owners.get(sign.ordinal, (kind, sign.key)) == (kind, sign.key)

    def _hold(self, kind: str, sign: _Sign, seq: int) -> None:
        self.held.add((kind, sign.digest))
        self.changed[kind, sign.key] = seq

    def _verify(self) -> None:
        """Find the checkpoints that vouch for the rows of the log and those that only projections have, together.

        So a row is verified also where its projection is damaged elsewhere.
        """
        position = kt.LogPosition()
        for index, (line, raw) in enumerate(self._read_chosen()):
            rows = kt.NoRows()
            for source in self._sources_at(index):
                getattr(rows, source.kind).append(source.raw)
            position.Project(rows)
            with contextlib.suppress(kt.StoreCorruptError):
                if line.op == kt.CHECKPOINT:
                    reported = zip(_KINDS, kt.ReadCheckpoint(raw)[1:], position.projected, strict=True)
                    fitting = dict.fromkeys((kind for kind, said, length in reported if said == length), index)
                    self.verified |= fitting
                    if len(fitting) == len(_KINDS):
                        self.proof = line
                position.Project(kt.ReadAfter(raw))

    def _sources_at(self, gap: int) -> list[_Source]:
        """Return the rows that only projections have of the operations missing here."""
        return [
            _Source(kind, projection.path.name, line, gap <= self.verified.get(kind, -1), raw)
            for kind, projection in self.projections.items()
            for line, raw in projection.read(self.between[kind].get(gap, []))
        ]

    def _read_chosen(self) -> Iterator[tuple[_Found, bytes]]:
        if self.chosen:
            with open(self.damaged / kt.LOG_NAME, "rb") as file:
                for line in self.chosen:
                    yield line, line.read(file)

    def write(self, log: BinaryIO) -> None:
        """Write the new log."""
        self.writer = _Writer(log, self.first_number)
        if not self.chosen or self.chosen[0].format is None:
            self._write_beginning()
        for index, (line, raw) in enumerate(self._read_chosen()):
            self._write_rescued(index)
            if line is self.proof and not self.has_refused:
                self._mark_history(line)
            if line.op != kt.CHECKPOINT:  # the new store makes its own
                self._write_operation(line, raw)
        self._write_rescued(len(self.chosen))
        for path in sorted(self.damaged.glob("cut_*"), key=_order_of_cut):
            if path.is_file():
                self._write_cut(path)
        self._write_places()

    def _mark_history(self, checkpoint: _Found) -> None:
        """Note which losses are history alone: all before a checkpoint that vouches for each row, if all were taken."""
        for index, loss in enumerate(self.losses):
            is_before = 0 < loss.last_seq < checkpoint.seq or (not loss.first_seq and loss.offset < checkpoint.offset)
            if loss.file == kt.LOG_NAME and is_before:
                self.losses[index] = replace(loss, is_data=False)

    def _write_beginning(self) -> None:
        """Write a first line with a new root; that of a projection follows where there is one."""
        root = _new_keyword(_ROOT_ID, 0, name=_ROOT_ID, parent_id=None, level=0)
        self.state.take(root, "nodes")
        self.writer.add("create_store", {"nodes": [root]}, {}, extra=kt.FORMAT_FIELD)

    def _write_rescued(self, gap: int) -> None:
        """Write the rows that only projections have of the operations missing here."""
        sources = self._sources_at(gap)
        self._write_sources(sources, "found in the projections alone")
        for source in sources:
            if source.line.sign is not None:
                self._hold(source.kind, source.line.sign, sys.maxsize)

    def _write_cut(self, path: Path) -> None:
        """Count the rows of a cut file that are nowhere else, and write them where that is wanted."""
        match = _MatchCut(path.name)
        if match is None:
            self.notes.append(f"{path.name}: no name that opening gives to what it cuts; it was not read")
            return
        kind, number = match[1], int(match[2])
        if kind == "change_log":
            found, damages = _scan(path)
            whole = {line.crc for line in self.chosen}
            lacking_lines = sum(line.crc not in whole for line in found)
            self.cut_files.append(CutFile(path.name, lacking_lines, unreadable=len(damages)))
            return
        lacking: list[tuple[_Key, _Source]] = []
        lines = _Projection(path, kind)
        for line, raw in lines.read(lines.lines):
            if line.sign is not None and (kind, line.sign.digest) not in self.held:
                self.held.add((kind, line.sign.digest))
                lacking.append((line.sign.key, _Source(kind, path.name, line, False, raw)))
        # A record that was changed after the cut is meant to be as it is now.
        may = [each for key, each in lacking if self.changed.get((kind, key), 0) < number]
        taken = self._write_sources(may, "found in a file of what opening had cut") if self.takes_cut else set()
        if taken:
            detail = "the rows were taken, though not who made them and when, and what was there before"
            self.losses.append(Loss(detail, path.name, is_data=False))
        ids = tuple(dict.fromkeys(" → ".join(key) for key, each in lacking if each.line.line not in taken))
        unreadable = sum(line.sign is None for line in lines.lines)
        self.cut_files.append(CutFile(path.name, len(lacking), len(taken), unreadable, ids))

    def _write_sources(self, found: Sequence[_Source], why: str) -> set[int]:
        """Write rows as operations `repair_rows`; return from which lines they could be taken."""
        rows: dict[tuple[str, _Key], _Row] = {}
        before: dict[tuple[str, _Key], _Row] = {}
        sources: dict[tuple[str, _Key], _Row] = {}
        lines: set[int] = set()
        for kind, name, line, is_verified, raw in found:
            row = _decode(raw, kind)
            key = _key_of(row, kind) if row else ()
            old = self.state.rows[kind].get(key)
            taken, problem = self.state.take(row, kind) if row else (None, "cannot be read")
            if problem == _PLACE_TAKEN and name.startswith("cut_"):  # where the tree went on, it was given away
                self.notes.append(f"{name}, line {line.line}: {' → '.join(key)} {problem}")
            elif problem:
                self.has_refused = True
                detail = f"a row that the log does not have {problem}"
                self.losses.append(Loss(detail, name, line.line, line.offset, line.length, ids=key or _ids_in(raw)))
            if taken is not None:
                if old is not None:
                    before.setdefault((kind, key), json.loads(old))
                rows[kind, key] = taken
                lines.add(line.line)
                self.rescued.append(Rescue(kind, " → ".join(key), name, line.line, is_verified))
                sources[kind, key] = {"file": name, "line": line.line, "verified": is_verified, "ids": key}
        for start in range(0, len(rows), _BATCH):
            batch = list(rows)[start : start + _BATCH]
            self.writer.add(
                "repair_rows",
                {kind: [rows[each] for each in batch if each[0] == kind] for kind in _KINDS},
                {kind: [before[each] for each in batch if each[0] == kind and each in before] for kind in _KINDS},
                agent_io={"repair": why, "rows": [sources[each] for each in batch]},
            )
        return lines

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
                    is_sound, self.has_refused = False, True
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
        expected = written = 0  # the number that comes next, and the last that was written; 0 where nothing says
        for path in self._history():
            # One that a compaction left which failed is a second name of a log: the other name has what follows.
            limit = min(int(path.stem) + 1, self.first_number)
            if limit <= expected:
                continue
            name = f"{kt.HISTORY}/{path.name}"
            found, damages = self._scan(name)
            lines, others, notes = _choose([line for line in found if expected <= line.seq < limit], name)
            start = min((line.offset for line in found if line.seq >= expected), default=0)
            stop = min((line.offset for line in found if line.seq >= limit), default=sys.maxsize)
            damages = [damage for damage in damages if start <= damage.offset < stop or not expected]
            first = expected or _first_number(lines, damages, 0)
            if not expected:
                self._describe_beginning(first, path, lines)
            end = _Found(b"", limit, b"", 0, "", None, 0, stop, 0)  # so that what is missing before it is listed
            missing = _describe_damages([*lines, end], damages, first)
            self.losses += [replace(loss, file=name, is_data=False) for loss in (*others, *missing)]
            self.notes += notes
            expected = limit
            # In a run without a gap, number and place rise together.
            for _, group in itertools.groupby(enumerate(lines), lambda pair: pair[1].seq - pair[0]):
                run = [line for _, line in group]
                target.mkdir(mode=0o700, exist_ok=True)
                if 0 < written < run[0].seq - 1:
                    (target / f"{run[0].seq - 1:018d}.lost").touch(0o600)
                written = run[-1].seq
                with open(path, "rb") as old, _make_file(target / f"{written:018d}.jsonl") as new:
                    writer = _Writer(new, run[0].seq)  # chained again: what was left out must not look like damage
                    for line in run:
                        writer.copy(line.read(old), begins=line is run[0])
        if 0 < written < self.first_number - 1:
            (target / f"{self.first_number - 1:018d}.lost").touch(0o600)
        if not expected:
            self._describe_beginning(self.first_number, self.damaged / kt.LOG_NAME, self.chosen)
        elif expected < self.first_number:
            detail = f"nothing is left of it in {kt.HISTORY}/"
            self.losses.append(Loss(detail, kt.HISTORY, 0, 0, 0, expected, self.first_number - 1, is_data=False))

    def _describe_beginning(self, first: int, path: Path, lines: Sequence[_Found]) -> None:
        """List the numbers before those of the oldest log that is left, where they were kept or may have been."""
        if first == 1:
            return
        was_kept = _holds_deleted(path, lines)
        if was_kept or (self.damaged / kt.HISTORY).exists():
            why = "" if was_kept else ": it is missing, or CompactStorage(keep_history=False) has removed it"
            detail = f"nothing is left of it in {kt.HISTORY}/{why}"
            self.losses.append(Loss(detail, kt.HISTORY, first_seq=1, last_seq=first - 1, is_data=False))

    def copy_snapshots(self, target: Path) -> None:
        """Copy the snapshots that are as they were made, or can be made so again."""
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
                log = self._read_sound(f"{name}/{kt.LOG_NAME}", (said["length"], int(said["crc"], 16)))
            except (OSError, ValueError, KeyError, TypeError):
                log = None
            if log is None:
                detail = "the snapshot is not as it was made; it was left out"
                self.losses.append(Loss(detail, f"{name}/{kt.LOG_NAME}", is_data=False))
                continue
            for each in (target, target / path.name):
                each.mkdir(mode=0o700, exist_ok=True)
            for file, content in ((kt.LOG_NAME, log), (kt.SNAPSHOT_NAME, manifest)):
                with _make_file(target / path.name / file) as new:
                    new.write(content)
            kt._Files().SyncFolder(str(target / path.name))

    def _read_sound(self, name: str, said: tuple[int, int]) -> bytes | None:
        """Return a log of this length and checksum, with lines corrected if need be; None if it cannot be had."""
        with open(self.damaged / name, "rb") as file:
            log = bytearray(file.read(said[0]))
        if (len(log), zlib.crc32(log)) != said:
            found, _ = self._scan(name, lists=False)
            for line in found:
                log[line.offset : line.offset + len(line.corrected)] = line.corrected
            if (len(log), zlib.crc32(log)) != said:
                return None
            self._list_corrected(name, found)
        return bytes(log)

    def _write_places(self) -> None:
        """Give everything a place whose own is lost."""
        nodes = {id: row for (id,), row in self.state.living("nodes").items()}
        infos = self.state.living("infos")
        changed: dict[str, _Row] = {}
        made: set[str] = set()
        links: list[_Row] = []
        before: dict[str, list[_Row]] = {"nodes": [], "links": []}

        def recreate(id: str, of: str) -> None:
            name = f"(lost) {id}"[:512]
            detail = f"a keyword is lost, though {of} it are there: recreated as {name!r}"
            self.losses.append(Loss(detail, "nodes.jsonl", ids=(id,)))
            changed[id] = nodes[id] = _new_keyword(
                id,
                self.state.next_ordinal,
                name=name,
                normalized=kt._NormalizeText(name),
                description="This keyword could not be saved; what belonged to it still does.",
                metadata={"repair": "lost"},
            )
            self.state.next_ordinal += 1
            made.add(id)

        def move(id: str, parent_id: str) -> None:
            row = nodes[id]
            self.moved.append(Move(id, row["parent_id"], parent_id))
            before["nodes"].append(row)
            version = {"version": row["version"] + 1, "updated_at": time.time()}
            changed[id] = nodes[id] = {**row, "parent_id": parent_id, **version}

        for id, row in list(nodes.items()):
            parent_id = row["parent_id"]
            if parent_id is not None and parent_id not in nodes:
                if (parent_id,) in self.state.rows["nodes"]:  # deleted: the nearest that is left
                    move(id, self._living_ancestor(parent_id, nodes))
                    continue
                recreate(parent_id, "keywords under")
            if parent_id in made:
                self.moved.append(Move(id, parent_id, parent_id))
        for id in list(_circles(nodes)):
            move(id, _ROOT_ID)
        for key, row in self.state.living("links").items():
            info_id, keyword_id = key
            if (info_id,) not in infos:
                self.losses.append(Loss("an info is lost, and a link to it was taken away", "infos.jsonl", ids=key))
            elif keyword_id in nodes:
                continue
            elif (keyword_id,) not in self.state.rows["nodes"]:
                recreate(keyword_id, "infos at")
                continue
            else:
                self.notes.append(f"the link {' → '.join(key)} was taken away: its keyword is deleted")
            before["links"].append(row)
            links.append({**row, "deleted": True})
        if changed or links:
            rows = {"nodes": list(changed.values()), "links": links}
            for kind, of_kind in rows.items():
                for row in of_kind:
                    taken, problem = self.state.take(row, kind)
                    assert taken is not None, problem
            self.writer.add("repair_places", rows, before, agent_io={"repair": "a place for what had lost its own"})

    def _living_ancestor(self, id: str, nodes: Mapping[str, _Row]) -> str:
        seen: set[str] = set()
        while id not in nodes:
            row = self.state.rows["nodes"].get((id,))
            seen.add(id)
            id = (json.loads(row)["parent_id"] if row else None) or _ROOT_ID
            if id in seen:
                return _ROOT_ID
        return id


def _order_of_cut(path: Path) -> tuple[int, str]:
    match = _MatchCut(path.name)
    return int(match[2]) if match else 0, path.name


def _new_keyword(id: str, ordinal: int, **fields: Any) -> _Row:
    """Return the row of a keyword that could not be saved."""
    now = time.time()
    row: _Row = {
        "id": id, "ordinal": ordinal, "deleted": False, "parent_id": _ROOT_ID, "name": id, "aliases": [],
        "normalized": [_ROOT_ID], "level": 1, "children": [], "description": "", "metadata": {}, "version": 1,
        "created_at": now, "updated_at": now, "created_by": "repair",
    }  # fmt: skip
    return row | fields


def _holds_deleted(path: Path, lines: Sequence[_Found]) -> bool:
    """Tell whether the state that a log begins with holds what only a compaction that kept the history leaves in it."""
    with open(path, "rb") as file:
        for line in itertools.takewhile(lambda line: line.op == kt.STATE, lines):
            rows = _rows_of(json.loads(line.read(file)))
            if any(row.get("deleted") for row in rows["infos"]):
                return True
            if any(row.get("deleted") and (row.get("name") or row["metadata"].get("digest")) for row in rows["nodes"]):
                return True
    return False


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


def repair(
    damaged_dir: str | os.PathLike[str], new_dir: str | os.PathLike[str], take_cut: bool = False
) -> RepairReport:
    """Read a damaged store, and write a new one with everything that can be saved.

    The damaged folder is not changed, whatever happens. The new one is there only if it is complete: it was opened
    as a tree, and each record that was saved was read from it.

    Args:
        damaged_dir: folder of the store that cannot be opened; a healthy one is copied.
        new_dir: folder to be made; must not exist, while the one it is made in must.
        take_cut: whether to take in what `cut_tail-nodes-…`, `-infos-…` and `-links-…` hold and nothing else does;
            by default these rows are only counted.

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
    if not any((damaged / name).exists() for name in (kt.LOG_NAME, *(f"{kind}.jsonl" for kind in _KINDS))):
        raise RepairError(f"{damaged} holds no keyword tree: none of its files is there")
    if new.exists() or new.is_symlink():
        raise RepairError(f"{new} exists already: name a folder that does not")
    if not new.parent.is_dir():
        raise RepairError(f"there is no folder {new.parent} to make {new.name} in")
    if damaged.resolve() in (new.parent.resolve(), *new.parent.resolve().parents):
        raise RepairError(f"{new} lies within {damaged}, which is to stay as it is")
    unfinished = new.with_name(f"{new.name}.unfinished")
    os.mkdir(unfinished, 0o700)
    try:
        report = _repair_into(damaged, unfinished, new, take_cut)
        os.rename(unfinished, new)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    kt._Files().SyncFolder(str(new.parent))
    return report


def _repair_into(damaged: Path, unfinished: Path, new: Path, take_cut: bool) -> RepairReport:
    with _held(damaged):
        work = _Repair(damaged, take_cut)
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
        tuple(work.rescued),
        tuple(work.moved),
        tuple(work.notes),
        tuple(work.cut_files),
        tuple(work.corrected),
    )


def _order_of(loss: Loss) -> tuple[bool, str, int, int]:
    return loss.file != kt.LOG_NAME, loss.file, loss.first_seq or sys.maxsize, loss.offset
