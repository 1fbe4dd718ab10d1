"""Follow the log into one SQLite file: the records as they are, the votes, and the operations.

All of it is derived, and shared by the processes of a folder: a missing or damaged file is made again from the log, and
where it cannot be written, all is kept in memory. The log is read when this process has written, at a read where
the last look is 50 ms old, and before an answer says that something is not there. No thread runs for that.
"""

import contextlib
import functools
import itertools
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..base.text import clean
from ..finding import texts
from ..keyword_tree import Change, Info, KeywordTreeError
from ..store.log_follower import LogFollower, Position
from .ledger import TreeLedger, record_of
from .records import OWNER_SCOPE, Record

FOLLOW_S = 0.05
"""Seconds after which a read looks at the log again."""

_CHANGES = 1_000  # operations of one transaction
_MARKS = 8  # terms of a task by which it is found: of two long ones with half in common 1 in 250 share none of them
_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;
CREATE TABLE IF NOT EXISTS place (seq INTEGER, id TEXT, file TEXT);
CREATE TABLE IF NOT EXISTS operation (
    seq INTEGER PRIMARY KEY, id TEXT UNIQUE, op TEXT, at REAL, mark TEXT, before TEXT, after TEXT);
CREATE TABLE IF NOT EXISTS touched (record TEXT, seq INTEGER, PRIMARY KEY (record, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marked ON operation (mark) WHERE mark != '';
CREATE TABLE IF NOT EXISTS record (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE, said TEXT, principal TEXT, version INTEGER, created_at REAL,
    updated_at REAL, kind TEXT, is_gone INTEGER, score INTEGER, merged_into TEXT, entry TEXT, is_helpful INTEGER,
    size INTEGER, terms TEXT, helpful INTEGER DEFAULT 0, harmful INTEGER DEFAULT 0, content TEXT);
CREATE INDEX IF NOT EXISTS written_by ON record (principal, size) WHERE NOT is_gone;
CREATE INDEX IF NOT EXISTS in_time ON record (kind, created_at, id) WHERE NOT is_gone;
CREATE INDEX IF NOT EXISTS merged ON record (merged_into) WHERE merged_into != '';
CREATE INDEX IF NOT EXISTS said ON record (entry, is_helpful, created_at, id) WHERE kind = 'feedback' AND NOT is_gone;
CREATE TABLE IF NOT EXISTS vote (
    entry TEXT, principal TEXT, created_at REAL, id TEXT, is_helpful INTEGER, PRIMARY KEY (entry, principal)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (mark TEXT, id TEXT, PRIMARY KEY (mark, id)) WITHOUT ROWID;
"""
_BEGIN = "INSERT INTO place SELECT 0, '', hex(randomblob(8)) WHERE NOT EXISTS (SELECT 1 FROM place)"
_TABLES = ("operation", "touched", "record", "vote", "mark", "place")
FAMILY = """WITH RECURSIVE family (id, principal) AS (
    SELECT id, principal FROM record WHERE id = ? UNION
    SELECT record.id, record.principal FROM record, family
    WHERE record.merged_into = family.id AND record.merged_into != '' AND record.principal = family.principal
    AND NOT record.is_gone) """
"""An entry, and what was merged into it, at however many removes: never another principal's, whatever an import says.

Else anybody could let their own entry, and its feedback, count for an entry that they do not even see.
"""


COLUMNS = "id, content, said, principal, version, created_at, updated_at, helpful, harmful"
"""What `record_of_row` reads."""
_MORE = ", kind, is_gone, score, merged_into, entry, is_helpful, size, terms"
_INSERT = f"INSERT OR REPLACE INTO record ({COLUMNS}{_MORE}) VALUES ({', '.join('?' * 17)})"  # with a new number
_EARLY = "max(0, min(1000000, coalesce(cast(json_extract(said, '$[1].judged.{}') AS INTEGER), 0)))"
# The votes of an entry and of those merged into it: of each principal the last one, and none of its own.
_WEIGH = (
    f"UPDATE record SET (helpful, harmful) = ({FAMILY}, last AS (SELECT is_helpful, row_number() OVER"
    " (PARTITION BY vote.principal ORDER BY created_at DESC, vote.id DESC) AS place FROM vote, family"
    " WHERE entry = family.id AND vote.principal != ?), early AS (SELECT sum({}) AS helpful, sum({}) AS harmful"
    " FROM record JOIN family USING (id)) SELECT coalesce(sum(is_helpful), 0) + early.helpful,"
    " coalesce(sum(NOT is_helpful), 0) + early.harmful FROM early LEFT JOIN last ON place = 1) WHERE id = ?"
).format(_EARLY.format("helpful"), _EARLY.format("harmful"))
_LATER_VOTE = """INSERT INTO vote VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    created_at = excluded.created_at, id = excluded.id, is_helpful = excluded.is_helpful
    WHERE (excluded.created_at, excluded.id) >= (vote.created_at, vote.id)"""
_LAST_VOTE = """INSERT OR IGNORE INTO vote SELECT entry, principal, created_at, id, is_helpful FROM record
    WHERE kind = 'feedback' AND NOT is_gone AND entry = ? AND principal = ? ORDER BY created_at DESC, id DESC LIMIT 1"""
_FIELDS = ("id", "content", "source", "fields", "created_by", "version", "created_at", "updated_at", "deleted")


@dataclass(slots=True)
class Entry:
    """One operation of the log."""

    operation_id: str
    """What `undo` takes."""
    op: str
    """`kh:<verb>:<principal>`, with a mark where the call had an Idempotency-Key; or what another program wrote."""
    timestamp: float
    """Seconds since the epoch, UTC."""
    seq: int
    """Its number in the log."""
    before: list[Record] = field(default_factory=list)
    """The changed records as they were."""
    after: list[Record] = field(default_factory=list)
    """The changed records as they became."""

    def _part(self, place: int) -> str:
        parts = self.op.split(" ")[0].split(":", 2)
        return parts[place] if len(parts) == 3 and parts[0] == "kh" else ""

    @property
    def verb(self) -> str:
        """The name of the operation."""
        return self._part(1) or self.op

    @property
    def principal(self) -> str:
        """Who did it; "" where it was not done through a hub."""
        return self._part(2)

    @property
    def mark(self) -> str:
        """The digests of an Idempotency-Key and of its request; "" for a call without one."""
        return self.op.partition(" ")[2] if self._part(2) else ""


class Following:
    """The file, kept up to date with the log; safe for many threads and processes.

    Args:
        ledger: Whose log.
        path: The file; None keeps all in memory.

    Cost: some 0.2 ms for an operation, once; where nothing is new, 0.4 ms, and waiting for writes that are under way.
    """

    def __init__(self, ledger: TreeLedger, path: Path | None) -> None:
        self._tree, self._path = ledger.tree, path
        self._lock, self._catching_up = threading.RLock(), threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_known = False  # whether the file is of this log
        self._is_remade = False  # just now, after a failure
        self._next_look = 0.0
        self._writes = 0  # so often this process took something in

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what `work` does with the file: with a new one where it is damaged, else with one in memory."""
        with self._lock:
            try:
                return work(self._connect())
            except (sqlite3.DatabaseError, OSError) as error:
                if self._is_remade:
                    raise
                _log.warning("the index of the hub is made again: %s", type(error).__name__)
            self._is_remade = True
            try:
                return self._remake(work, in_memory=False)
            except (sqlite3.DatabaseError, OSError):
                return self._remake(work, in_memory=True)
            finally:
                self._is_remade = False

    def _remake(self, work: Callable[[sqlite3.Connection], _T], *, in_memory: bool) -> _T:
        self.forget(in_memory=in_memory)
        self._follow()
        return work(self._connect())

    def state(self, db: sqlite3.Connection) -> object:
        """Return a value that changes when this process or another one takes something in."""
        return self._writes, db.execute("PRAGMA data_version").fetchone()[0]

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._path is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = self._path or ":memory:"
            self._connection = sqlite3.connect(place, timeout=30.0, isolation_level=None, check_same_thread=False)
            if self._path is not None:
                self._path.chmod(0o600)
            self._connection.executescript(_SCHEMA + _BEGIN)
        return self._connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def forget(self, *, in_memory: bool = False) -> None:
        """Delete the file, since purged texts stand in it; all is read from the log again."""
        with self._lock:
            self.close()
            self._is_known = False
            if self._path is not None:
                with contextlib.suppress(OSError):
                    for path in self._path.parent.glob(self._path.name + "*"):
                        path.unlink(missing_ok=True)
            if in_memory:
                self._path = None

    # -- following --

    def catch_up(self) -> bool:
        """Follow the log; return whether there was anything new."""
        with self._catching_up:
            return self._follow()

    def take_own(self) -> None:
        """Take in a write that was just acknowledged; a failure to read it does not make it look unwritten."""
        with self._catching_up:
            self._try_to_follow()

    def look(self) -> None:
        """Take in others' writes, if the last look is some time ago and no other thread looks just now."""
        if not self.is_fresh() and self._catching_up.acquire(blocking=False):
            try:
                self._try_to_follow()
            finally:
                self._catching_up.release()

    def _try_to_follow(self) -> None:
        try:
            self._follow()
        except KeywordTreeError as error:  # a disk or a database that fails for a while: what is known is answered
            _log.warning("cannot follow the log: %s", type(error).__name__)
        finally:
            self._next_look = time.monotonic() + FOLLOW_S

    def is_fresh(self) -> bool:
        """Return whether a read need not look at the log."""
        return time.monotonic() < self._next_look

    def _follow(self) -> bool:
        place, is_new, in_state = self._do(self._place), False, False
        changes = iter(self._tree.Changes(place.seq))
        # Read before the file is held: reading waits for writes that are under way.
        while some := list(itertools.islice(changes, _CHANGES)):
            take = functools.partial(self._take_changes, changes=some, first=place, in_state=in_state)
            if not self._do(take):
                return self._follow()  # another process was quicker
            place, in_state = Position(some[-1].seq, some[-1].operation_id), some[-1].op == "state"
            is_new = True
        self._next_look = time.monotonic() + FOLLOW_S
        return is_new

    def _place(self, db: sqlite3.Connection) -> Position:
        place = Position(*db.execute("SELECT seq, id FROM place").fetchone())
        if place.seq and not self._is_known and not LogFollower(self._tree).resume(place):
            with _transaction(db):
                self._clear(db)  # another log has come in its place: a backup, say
            place = Position()
        self._is_known = True
        return place

    def _clear(self, db: sqlite3.Connection) -> None:
        for table in _TABLES:
            db.execute(f"DELETE FROM {table}")
        db.execute(_BEGIN)

    def _take_changes(self, db: sqlite3.Connection, changes: Sequence[Change], first: Position, in_state: bool) -> bool:
        last = changes[-1]
        with _transaction(db):
            moved = "UPDATE place SET seq = ?, id = ? WHERE seq = ? AND id = ?"
            if not db.execute(moved, (last.seq, last.operation_id, *first)).rowcount:
                return False
            for change in changes:
                if change.op == "state" and not in_state:  # the log was compacted: the part before is gone
                    self._clear(db)
                    db.execute("UPDATE place SET seq = ?, id = ?", (last.seq, last.operation_id))
                in_state = change.op == "state"
                after = _records(change.after)
                if after and not in_state:
                    self._take_operation(db, change, after)
                for record in after:
                    self._take(db, record)
        return True

    def _take_operation(self, db: sqlite3.Connection, change: Change, after: list[Record]) -> None:
        mark = Entry("", change.op, 0.0, 0).mark[:32]
        row = (change.seq, change.operation_id, change.op, change.timestamp, mark)
        sides = _text_of(_records(change.before)), _text_of(after)
        db.execute("INSERT OR REPLACE INTO operation VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, *sides))
        touched = {(each.id, change.seq) for each in after}
        db.executemany("INSERT OR IGNORE INTO touched VALUES (?, ?)", touched)

    def _take(self, db: sqlite3.Connection, record: Record) -> None:
        self._writes += 1
        own, kind, principal = record.fields, record.kind, clean(record.created_by)
        entry, merged_into = clean(str(own.get("of") or "")), clean(record.merged_into)
        row = [record.id, clean(record.content), json.dumps([record.source, own]), principal, record.version]
        row += [record.created_at, record.updated_at, 0, 0, kind, record.deleted, own.get("score"), merged_into, entry]
        old = get(db, record.id) if kind == "knowledge" else None
        terms = set(texts.terms(clean(own["task"]))) if kind == "knowledge" and not record.deleted else set[str]()
        db.execute(_INSERT, [*row, own.get("helpful") is True, record.size, " ".join(terms)])
        if kind == "knowledge":
            before, after = marks_of(old), marks_of(None if record.deleted else record)
            marks = [[(mark, record.id) for mark in each] for each in (before - after, after - before)]
            db.executemany("DELETE FROM mark WHERE mark = ? AND id = ?", marks[0])
            db.executemany("INSERT INTO mark VALUES (?, ?)", marks[1])
            self._weigh(db, record.id)
            if old is not None and old.merged_into:
                self._weigh(db, clean(old.merged_into))
        elif kind == "feedback":
            self._vote(db, record, entry, principal)

    def _vote(self, db: sqlite3.Connection, record: Record, entry: str, principal: str) -> None:
        """Count the last feedback of a principal on an entry, and none where it has none."""
        if record.deleted:
            of = (entry, principal)
            db.execute("DELETE FROM vote WHERE entry = ? AND principal = ? AND id = ?", (*of, record.id))
            db.execute(_LAST_VOTE, of)
        else:
            vote = (entry, principal, record.created_at, record.id, record.fields.get("helpful") is True)
            db.execute(_LATER_VOTE, vote)
        self._weigh(db, entry)

    def _weigh(self, db: sqlite3.Connection, id: str) -> None:
        """Note the votes of an entry's merged target."""
        lead = lead_of(db, id)
        if lead is not None:
            db.execute(_WEIGH, (lead.id, clean(lead.created_by), lead.id))


def lead_of(db: sqlite3.Connection, id: str) -> Record | None:
    """Return the entry that an id means: of a merged one, its target."""
    found, seen = get(db, id), set[str]()
    while found is not None and found.merged_into and found.id not in seen:
        seen.add(found.id)
        target = get(db, found.merged_into)
        found = target if target is not None and target.created_by == found.created_by else None
    return found


def get(db: sqlite3.Connection, id: str) -> Record | None:
    """Return a record as it is now."""
    row = db.execute(f"SELECT {COLUMNS} FROM record WHERE id = ? AND NOT is_gone", (clean(id),)).fetchone()
    return None if row is None else record_of_row(row)


def record_of_row(row: Sequence[Any]) -> Record:
    """Return the record of a row of `COLUMNS`."""
    source, fields = json.loads(row[2])
    made = Record(row[0], row[1], source, fields, *row[3:7])
    made.helpful, made.harmful = row[7:9]
    return made


def marks_of(record: Record | None) -> set[str]:
    """Return the marks of an entry in their table: who sees it, and the rarest terms of its task."""
    if record is None or record.merged_into:
        return set()
    scopes = {scope_mark(each, record.created_by) for each in record.fields["scopes"]}
    return scopes.union(task_marks(texts.terms(clean(record.fields["task"]))))


def scope_mark(scope: str, principal: str) -> str:
    """Return the mark of a scope: `user:owner` is another one for each principal."""
    return clean(f"scope {scope} {principal}" if scope == OWNER_SCOPE else f"scope {scope}")


def task_marks(terms: Iterable[str]) -> list[str]:
    """Return the marks of a task's terms: two tasks that share half of all terms share one of these.

    All take theirs in one order, here the longest first, which are rare, and one more than half of them.
    """
    ordered = sorted(set(terms), key=lambda term: (-len(term), term))
    return [f"term {term}" for term in ordered[: min(len(ordered) // 2 + 1, _MARKS)]]


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _records(side: object) -> list[Record]:
    """Return the records of one side of a change."""
    infos = side if isinstance(side, (list, tuple)) else ()
    found = (record_of(info) for info in infos if isinstance(info, Info))
    return [record for record in found if record is not None]


def _text_of(records: list[Record]) -> str:
    return json.dumps([[getattr(record, name) for name in _FIELDS] for record in records])


def read_records(text: str) -> list[Record]:
    """Return the records that one side of an operation holds."""
    return [Record(**dict(zip(_FIELDS, each, strict=True))) for each in json.loads(text)]
