"""Rescue the whole lines of a damaged store: `repair(damaged, new)`, or `keyword-tree --data DAMAGED repair NEW`.

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
<RepairReport keywords=2, infos=0, links=0, losses=2>
>>> print(report.losses[1].file, report.losses[1].detail)
nodes.jsonl rows that the log lacks were taken from it: 1
>>> with KeywordTree(str(new)) as tree:
...     [node.name for node in tree]
['tools', 'hammer']
>>> folder.cleanup()

Every line of `change_log.jsonl` whose own checksum is right is copied, also after damage, in the order of its numbers,
as it is (who, when, what was asked of a model), with a new number. Whatever else stands there, and each number that is
missing, is listed as a loss; so is a line whose rows do not have the shape of their kind.

Then one operation `repair_places` makes the whole consistent: a lost keyword that others are under or linked to is
created again under its old id, as "(lost) …" under the root; a keyword under a deleted one, or in a circle, moves to
the root; a link to what is not there is removed. All are listed.

Where the log has lost something, or is gone, the projections, `nodes.jsonl` and the like, give what it lacks: the last
row of a record that is newer than what the log has. These rows have no checksum, so the operation `repair_projections`
brings them, and they are listed. So are files in which opening had kept rows of these that the log lacked
(`cut_tail-nodes-52-1a2b3c4d.bin`).

Where a compaction's own lines are damaged, which hold all that was there, the operations of before it are read from its
log in `history/`, if that is whole. `snapshots/` and `history/` stay in the damaged folder, from where they may be
copied as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import re
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from .. import keyword_tree as kt
from .addresses import refuse_address
from .backup import make_file, new_folder

__all__ = ["Loss", "RepairReport", "repair"]

_ROOT_ID = "root"
_SHOWN = 8  # ids in one line of a printed report
_PROJECTIONS = {"nodes.jsonl": kt.KeywordNode, "infos.jsonl": kt.Info, "links.jsonl": kt.InfoKeywordLink}
_Key: TypeAlias = tuple[str, ...]  # of a row: the id of its record, or both of a link's


# == The report ===============================================================================================


@dataclass(frozen=True)
class Loss:
    """Something that could not be saved, or not wholly."""

    detail: str
    """The record and its fault."""
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
    is_saved: bool = False
    """Whether it is in the new store all the same, though the log does not prove it."""

    def __str__(self) -> str:
        """Return a line for people."""
        numbers = f" (operations {self.first_seq} to {self.last_seq or 'the end'})" if self.first_seq else ""
        if 0 < self.first_seq == self.last_seq:
            numbers = f" (operation {self.first_seq})"
        place = f"{self.file}, line {self.line}, bytes {self.offset:,} to {self.offset + self.length:,}"
        place = place if self.line else self.file
        ids = f"; ids: {_shorten(self.ids)}" if self.ids else ""
        return f"{place}{numbers}: {self.detail}{ids}"


@dataclass(frozen=True, repr=False)
class RepairReport:
    """The saved records of a repair, and its losses; `str()` of it is for people."""

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
    """Losses and records without their place, in the order of the files."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is lost."""
        return not self.losses

    def __repr__(self) -> str:
        """Return one line."""
        counts = f"keywords={self.keywords}, infos={self.infos}, links={self.links}, losses={len(self.losses)}"
        return f"<RepairReport {counts}>"

    def __str__(self) -> str:
        """Return the whole report for people."""
        lines = [
            f"Read {self.damaged_dir}, which keeps its snapshots and older logs, and wrote {self.new_dir}:",
            f"operations: {self.operations:,}, keywords: {self.keywords:,}, "
            f"infos: {self.infos:,}, links: {self.links:,}.",
        ]
        lost = [f"Lost, or saved without proof ({len(self.losses):,}):", *(f"- {loss}" for loss in self.losses)]
        return "\n".join([*lines, "", *(lost if self.losses else ["Nothing is lost."])])


def _shorten(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more


# == Reading the log ==========================================================================================
#
# A line counts if its own checksum is right, whatever is around it.  What is neither such a line nor blank is damage:
# it is listed by its place.


class _Found(NamedTuple):
    """A line whose checksum is right, and its place in the file."""

    line: kt.LogLine
    number: int
    offset: int
    length: int

    def read(self, file: BinaryIO) -> bytes:
        """Return its bytes."""
        file.seek(self.offset)
        return file.read(self.length)


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


def _scan(path: Path) -> tuple[dict[int, _Found], list[Loss]]:
    """Return the lines of a log that are whole, by their numbers, the first of each; and all else that is not blank."""
    found: dict[int, _Found] = {}
    damages: list[Loss] = []
    for number, offset, raw in _read_lines(path):
        starts = {match.start() for match in _FindStarts(raw)}  # several where a newline was damaged
        for start, stop in itertools.pairwise(sorted({0, *starts, len(raw)})):
            rest = raw[start:stop]
            text = rest[: rest.rfind(b"}") + 1]
            line = kt.ReadLine(text)
            if line is not None:
                rest = rest[len(text) :]
                here = _Found(line, number, offset + start, len(text))
                first = found.setdefault(line.seq, here)
                if first.line.crc != line.crc:
                    detail = f"another operation {line.seq} is in line {first.number}; this one was left out"
                    damages.append(Loss(detail, kt.LOG_NAME, *here[1:], line.seq, line.seq, _ids_in(text)))
            rest = rest.lstrip(_BLANK)
            begin, rest = offset + stop - len(rest), rest.rstrip(_BLANK)
            if rest and not (line and len(rest) == 1):  # one byte after a whole line was its newline
                op = _MatchOp(rest)
                detail = f"its checksum is wrong{f', it seems to be {op[1].decode()}' if op else ''}"
                damages.append(Loss(detail, kt.LOG_NAME, number, begin, len(rest), ids=_ids_in(rest)))
    return found, damages


def _ids_in(raw: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1].decode(errors="replace") for match in _FindIds(raw)))


def _number(lines: Iterable[_Found], damages: list[Loss], expected: int) -> Iterator[Loss]:
    """Yield the damage, with the numbers that are missing at its place, and what is missing without a trace.

    Args:
        lines: those that are whole, in the order of their numbers.
        damages: what stands beside them, in the order of their places.
        expected: the number that comes first.
    """
    waiting = deque(damages)
    for found in lines:
        seq, here = found.line.seq, []
        while waiting and waiting[0].offset < found.offset:
            here.append(waiting.popleft())
        for damage in here:
            is_numbered = damage.first_seq or seq <= expected
            yield damage if is_numbered else replace(damage, first_seq=expected, last_seq=seq - 1)
        if seq > expected and not any(not damage.first_seq for damage in here):
            yield Loss("nothing is left of it", first_seq=expected, last_seq=seq - 1)
        expected = seq + 1
    detail = "bytes after the last operation that is whole; perhaps one that was never acknowledged"
    for damage in waiting:
        yield damage if damage.first_seq else replace(damage, detail=detail, first_seq=expected)


# == Writing the new store ====================================================================================


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

    def add(self, op: str, before: kt.Rows, after: kt.Rows, extra: str = "") -> None:
        """Write an operation of the repair's own."""
        said = {"repair": "a place for what had lost its own"}
        operation = kt.LoggedOperation(op, kt._NewId(), time.time(), before, after, agent_io=said)
        line, self._crc = kt.EncodeLine(self._seq + 1, self._crc, self._seq, operation, extra)
        self._seq += 1
        self._file.write(line)


class _Repair:
    """One repair while it goes on."""

    def __init__(self, damaged: Path) -> None:
        self.damaged = damaged
        self.state = kt._State(kt._NormalizeText)
        self.losses: list[Loss] = []
        self.unlinked: dict[_Key, bytes] = {}  # the last rows of links that were taken away
        self.operations = 0
        self.first_number = 1  # of the log: higher than 1 if it was compacted
        self._logs: list[tuple[Path, list[_Found]]] = []  # those that are read, with the lines that count

    def read(self) -> None:
        """Read the log once, and find which of its lines count."""
        log = self.damaged / kt.LOG_NAME
        found, damages = _scan(log) if log.exists() else ({}, [Loss("it is gone")])
        chosen = [found[seq] for seq in sorted(found)]
        if not found:
            if not any(self._projected()):
                raise kt.InvalidInputError(f"no line of {log} could be read as a keyword tree's, nor of other files")
            self.losses += damages or [Loss("nothing is left of it")]
            return
        if any((each.line.format or 0) > kt.FORMAT for each in chosen):
            message = f"{kt.LOG_NAME} has a newer format than {kt.FORMAT}, up to which this version reads"
            raise kt.InvalidInputError(message)
        rest = self._look_back(chosen) or chosen
        self._logs.append((log, rest))
        first = self._logs[0][1][0].line
        # Of a first line without a format, that of the log is lost: the new root takes its number.
        self.first_number = expected = max(1, first.seq - (first.format is None))
        if rest is not chosen:
            expected, damages = rest[0].line.seq, [each for each in damages if each.offset > rest[0].offset]
        self.losses += _number(rest, damages, expected)

    def _look_back(self, chosen: list[_Found]) -> list[_Found]:
        """Read the log of before a compaction whose own lines are damaged; return the lines after these, or none."""
        rest = list(itertools.dropwhile(lambda found: found.line.op == "state", chosen))
        first, count = chosen[0].line, len(chosen) - len(rest)
        # A compaction ends with a checkpoint: where that is whole, all before it is the compaction's.
        is_known = bool(rest) and rest[0].line.op == kt.CHECKPOINT
        if is_known and (first.format is None or rest[0].line.seq - first.seq > count):
            names = (path for path in (self.damaged / kt.HISTORY).glob("*.jsonl") if path.stem.isdecimal())
            for path in sorted(path for path in names if int(path.stem) < first.seq)[-1:]:
                found, harm = _scan(path)
                numbers = sorted(found)
                if not harm and numbers and numbers == [*range(numbers[0], int(path.stem) + 1)]:
                    self._logs.append((path, [found[number] for number in numbers]))
                    return rest
        return []

    def write(self, log: BinaryIO) -> None:
        """Write the new log."""
        writer, position = _Writer(log, self.first_number), kt.LogPosition()
        if not self._logs or self._logs[0][1][0].line.format is None:  # the first line is lost: a new root
            root = kt.NoRows()
            root.nodes.append(kt._EncodeRecord(_new_keyword(_ROOT_ID, 0, None)))
            self.state.Apply(root)
            writer.add("create_store", kt.NoRows(), root, kt.FORMAT_FIELD)
        for path, chosen in self._logs:
            with open(path, "rb") as file:
                for found in chosen:
                    raw = found.read(file)
                    is_ours = found.line.op != kt.CHECKPOINT  # the new store makes its own
                    if is_ours and self._take(found, raw, position):
                        writer.copy(raw, begins=self.operations == 1)
        for name, length in zip(_PROJECTIONS, position.projected, strict=True):
            path = self.damaged / name
            if not self.losses and path.exists() and len(path.read_bytes().rstrip(_BLANK + b"\n")) >= length.bytes > 0:
                self.losses.append(Loss("it holds more than the log, which has lost its end", path.name))
        for path in sorted(self.damaged.glob("cut_tail-[!c]*.bin")):
            self.losses.append(Loss("rows that opening had cut off, and that the log did not have", path.name))
        for op, find in {"repair_projections": self._find_projected, "repair_places": self._find_places}.items():
            before, after = find()
            if any(after[:3]):
                self.state.Apply(after)
                writer.add(op, before, after)

    def _take(self, found: _Found, raw: bytes, position: kt.LogPosition) -> bool:
        """Take in the records of a line; False, and a loss, where they have not the shape of their kind."""
        try:
            rows = kt.ReadAfter(raw)
            for row in itertools.chain(*rows[:3]):
                _check(kt._ReadRecord(row))
        except (kt.StoreCorruptError, ValueError) as error:
            detail = f"a row of {found.line.op} does not have the shape of its kind: {error}"
            seq = found.line.seq
            self.losses.append(Loss(detail, kt.LOG_NAME, *found[1:], seq, seq, _ids_in(raw)))
            return False
        self.state.Apply(position.Project(rows))
        links = ((kt._ReadRecord(row, kt.InfoKeywordLink), row) for row in rows.links)
        self.unlinked |= {(link.info_id, link.keyword_id): row for link, row in links if link.deleted}
        self.operations += 1
        return True

    def _projected(self) -> Iterator[tuple[int, str, dict[_Key, bytes]]]:
        """Yield number and name of each projection, and of each record the last row that has the shape of its kind."""
        probe = kt._State(kt._NormalizeText)  # refuses a row that begins otherwise than the log's
        for kind, (name, made) in enumerate(_PROJECTIONS.items()):
            path, rows = self.damaged / name, dict[_Key, bytes]()
            for _, _, row in _read_lines(path) if path.exists() else ():
                with contextlib.suppress(kt.StoreCorruptError, ValueError):
                    record = kt._ReadRecord(row, made)
                    _check(record)
                    lone = kt.NoRows()
                    lone[:3][kind].append(row)
                    probe.Apply(lone)
                    rows[(record.info_id, record.keyword_id) if kind == 2 else (record.id,)] = row
            if rows:
                yield kind, name, rows

    def _find_projected(self) -> tuple[kt.Rows, kt.Rows]:
        """Return the rows, before and after, of which the projections have a newer version than a log with losses."""
        before, after = kt.NoRows(), kt.NoRows()
        for kind, name, rows in self._projected() if self.losses else ():
            taken = list[str]()
            for key, row in rows.items():
                record = kt._ReadRecord(row)
                if kind == 2:
                    held, gone = self.state.FindLink((2, record.info_id, record.keyword_id)), self.unlinked.get(key)
                else:
                    held, gone = self.state.Find((kind, record.id, ""))
                there = held or gone
                is_newer = not record.deleted if there is None else _version(kt._ReadRecord(there)) < _version(record)
                if is_newer:
                    taken.append(key[0])
                    after[:3][kind].append(row)
                    before[:3][kind].extend([] if held is None else [held])
            if taken:
                detail = f"rows that the log lacks were taken from it: {len(taken):,}"
                self.losses.append(Loss(detail, name, ids=tuple(taken), is_saved=True))
        return before, after

    def _find_places(self) -> tuple[kt.Rows, kt.Rows]:
        """Return the rows, before and after, that give a place to records whose own is lost."""
        state, before, after = self.state, kt.NoRows(), dict[str, kt.KeywordNode]()
        nodes = {id: kt._ReadRecord(row, kt.KeywordNode) for id, row in state.nodes.items()}
        ordinals = itertools.count(state.next_ordinal)

        def recreate(id: str, of: str) -> None:
            after[id] = nodes[id] = node = _new_keyword(id, next(ordinals), _ROOT_ID)
            detail = f"a keyword is lost, though {of} it are there: recreated as {node.name!r}"
            self.losses.append(Loss(detail, ids=(id,)))

        def move_to_root(id: str) -> None:
            node = nodes[id]
            self.losses.append(Loss(f"moved to the root: {node.parent_id}, its parent, leads there no more", ids=(id,)))
            before.nodes.append(state.nodes[id])
            version = node.version + 1
            after[id] = nodes[id] = replace(node, parent_id=_ROOT_ID, version=version, updated_at=time.time())

        for id, node in list(nodes.items()):
            if node.parent_id is not None and node.parent_id not in nodes:
                if node.parent_id in state.gone_nodes:
                    move_to_root(id)
                else:
                    recreate(node.parent_id, "keywords under")
        for id in list(_circles(nodes)):
            move_to_root(id)
        links = []
        for row in state.Links():
            link = kt._ReadRecord(row, kt.InfoKeywordLink)
            if link.info_id in state.infos and link.keyword_id not in {*nodes, *state.gone_nodes}:
                recreate(link.keyword_id, "infos at")
            if link.info_id not in state.infos or link.keyword_id not in nodes:
                what = "its keyword is deleted" if link.info_id in state.infos else "its info is lost"
                self.losses.append(Loss(f"a link was taken away: {what}", ids=(link.info_id, link.keyword_id)))
                before.links.append(row)
                links.append(kt._EncodeRecord(replace(link, deleted=True)))
        return before, kt.Rows([kt._EncodeRecord(node) for node in after.values()], [], links, {})


def _check(record: kt.KeywordNode | kt.Info | kt.InfoKeywordLink) -> None:
    """Refuse a record that no tree can have, though its fields have the types of its kind."""
    lists = [value for value in vars(record).values() if isinstance(value, list)]
    if not all(isinstance(item, str) for item in itertools.chain(*lists)):
        raise ValueError("a list holds something else than texts")
    if isinstance(record, kt.KeywordNode):
        is_root = record.id == _ROOT_ID
        # Of a keyword that was merged, a compaction may leave nothing but where its id leads to.
        if (is_root and record.deleted) or ((record.parent_id is None) != is_root and record.merged_into is None):
            raise ValueError("it has no place in a tree")


def _version(record: kt.KeywordNode | kt.Info | kt.InfoKeywordLink) -> tuple[float, ...]:
    """Return what tells the newer one of two rows of a record."""
    is_link = isinstance(record, kt.InfoKeywordLink)
    return (record.ordinal, record.created_at, record.deleted) if is_link else (record.version,)


def _new_keyword(id: str, ordinal: int, parent_id: str | None) -> kt.KeywordNode:
    """Return a keyword that could not be saved."""
    now, is_root = time.time(), parent_id is None
    name = id if is_root else f"(lost) {id}"[:512]
    said = "" if is_root else "This keyword could not be saved; what belonged to it still does."
    metadata = {} if is_root else {"repair": "lost"}
    stamps = (metadata, 1, now, now)
    node = kt.KeywordNode(id, name, [], kt._NormalizeText(name), 0 if is_root else 1, parent_id, [], said, *stamps)
    return dataclasses.replace(node, ordinal=ordinal, created_by="repair")


def _circles(nodes: dict[str, kt.KeywordNode]) -> Iterator[str]:
    """Yield of each circle of parents the keyword that was made first."""
    settled = {_ROOT_ID}
    for id in sorted(nodes, key=lambda id: nodes[id].ordinal):
        path: list[str] = []
        while id not in settled:
            settled.add(id)
            path.append(id)
            id = nodes[id].parent_id or _ROOT_ID
        if id in path:
            yield min(path[path.index(id) :], key=lambda id: nodes[id].ordinal)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep others from writing in between, without writing anything."""
    with contextlib.ExitStack() as stack:
        lock = folder / "lock"
        if lock.exists():
            fcntl.flock(stack.enter_context(open(lock, "rb")), fcntl.LOCK_SH)
        yield


def repair(damaged_dir: str | os.PathLike[str], new_dir: str | os.PathLike[str]) -> RepairReport:
    """Read a damaged store, and write a new one with everything that can be saved.

    The damaged folder is not changed, whatever happens. The new one is there only if it is complete: it was opened
    as a tree, and each record that was saved was read from it.

    Args:
        damaged_dir: folder of the store that cannot be opened; a healthy one is copied.
        new_dir: folder to be made; must not be there, or be empty.

    Returns:
        The saved records, and the losses.

    Raises:
        InvalidInputError: the damaged folder holds nothing of a keyword tree, or one of a newer format; or the new one
            is not empty, or lies within the other.
        OSError: a file cannot be read or written.

    Cost: reads each file up to three times; holds all rows in memory; a few syncs.
    """
    refuse_address(damaged_dir, "damaged_dir")
    refuse_address(new_dir, "new_dir")
    damaged, new = Path(os.path.abspath(damaged_dir)), Path(os.path.abspath(new_dir))
    if not any((damaged / name).exists() for name in (kt.LOG_NAME, *_PROJECTIONS)):
        raise kt.InvalidInputError(f"{damaged} holds no keyword tree: there is no {kt.LOG_NAME}")
    if damaged.resolve() in (new.parent.resolve(), *new.parent.resolve().parents):
        raise kt.InvalidInputError(f"{new} lies within {damaged}, which is to stay as it is")
    with new_folder(new) as unfinished:
        return _repair_into(damaged, unfinished, new)


def _repair_into(damaged: Path, unfinished: Path, new: Path) -> RepairReport:
    with _held(damaged):
        work = _Repair(damaged)
        work.read()
        with make_file(unfinished / kt.LOG_NAME) as log:
            work.write(log)
    with kt.KeywordTree(str(unfinished)) as tree:
        assert not (found := [*tree.recovery, *tree.Verify()]), found[:3]
        counted = tree.TreeMetrics()
    for folder in {path.parent for path in unfinished.rglob("*")}:
        kt._Files().SyncFolder(str(folder))
    keywords, infos, links = (counted[kind] for kind in ("keywords", "infos", "links"))
    assert (keywords, infos) == (len(work.state.nodes) - 1, len(work.state.infos)), counted
    losses = tuple(sorted(work.losses, key=_order_of))
    return RepairReport(str(damaged), str(new), work.operations, keywords, infos, links, losses)


def _order_of(loss: Loss) -> tuple[bool, str, int, int]:
    return loss.file != kt.LOG_NAME, loss.file, loss.first_seq or 1 << 62, loss.offset


if __name__ == "__main__":
    raise SystemExit("keyword-tree --data DAMAGED repair NEW_FOLDER is the command for it")
