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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..base.text import clean
from ..finding import texts
from ..keyword_tree import Change, Info, KeywordTreeError
from ..store.log_follower import LogFollower, Position
from .ledger import TreeLedger, record_of
from .records import OWNER_SCOPE, Json, Record

FOLLOW_S = 0.05
"""Seconds after which a read looks at the log again."""

_CHANGES = 1_000  # operations of one transaction
_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;
CREATE TABLE IF NOT EXISTS place (seq INTEGER, id TEXT);
CREATE TABLE IF NOT EXISTS operation (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, op TEXT, at REAL, mark TEXT);
CREATE TABLE IF NOT EXISTS change (record TEXT, seq INTEGER, before TEXT, after TEXT, PRIMARY KEY (seq, record));
CREATE INDEX IF NOT EXISTS change_of ON change (record, seq);
CREATE INDEX IF NOT EXISTS marked ON operation (mark) WHERE mark != '';
CREATE TABLE IF NOT EXISTS record (
    id TEXT PRIMARY KEY, said TEXT, principal TEXT, version INTEGER, created_at REAL, updated_at REAL, kind TEXT,
    is_gone INTEGER, score INTEGER, merged_into TEXT, entry TEXT, is_helpful INTEGER, early_helpful INTEGER,
    early_harmful INTEGER, size INTEGER, helpful INTEGER DEFAULT 0, harmful INTEGER DEFAULT 0, content TEXT);
CREATE INDEX IF NOT EXISTS written_by ON record (principal, size) WHERE NOT is_gone;
CREATE INDEX IF NOT EXISTS in_time ON record (kind, created_at, id) WHERE NOT is_gone;
CREATE INDEX IF NOT EXISTS merged ON record (merged_into) WHERE merged_into != '';
CREATE INDEX IF NOT EXISTS said ON record (entry, is_helpful, created_at, id) WHERE kind = 'feedback' AND NOT is_gone;
CREATE INDEX IF NOT EXISTS said_by ON record (entry, principal, created_at, id) WHERE kind = 'feedback' AND NOT is_gone;
CREATE TABLE IF NOT EXISTS vote (
    entry TEXT, principal TEXT, created_at REAL, id TEXT, is_helpful INTEGER, PRIMARY KEY (entry, principal)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scope (scope TEXT, id TEXT, PRIMARY KEY (scope, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS term (term TEXT, id TEXT, PRIMARY KEY (term, id)) WITHOUT ROWID;
"""
_TABLES = ("operation", "change", "record", "vote", "scope", "term", "place")
_FAMILY = """WITH RECURSIVE family (id, principal) AS (
    SELECT id, principal FROM record WHERE id = ? UNION
    SELECT record.id, record.principal FROM record, family
    WHERE record.merged_into = family.id AND record.merged_into != '' AND record.principal = family.principal
    AND NOT record.is_gone) """
"""An entry, and what was merged into it, at however many removes: never another principal's, whatever an import says.

Else anybody could let their own entry, and its feedback, count for an entry that they do not even see.
"""


COLUMNS = "id, content, said, principal, version, created_at, updated_at, helpful, harmful"
"""What `record_of_row` reads."""
_MORE = ", kind, is_gone, score, merged_into, entry, is_helpful, early_helpful, early_harmful, size"
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
        """What was done."""
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
    """The file, and what keeps it true; safe for many threads and processes.

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
        """Return what changes when this process takes something in, or another one does."""
        return self._writes, db.execute("PRAGMA data_version").fetchone()[0]

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._path is not None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place = self._path or ":memory:"
            self._connection = sqlite3.connect(place, timeout=30.0, isolation_level=None, check_same_thread=False)
            if self._path is not None:
                self._path.chmod(0o600)
            self._connection.executescript(_SCHEMA)
        return self._connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def forget(self, *, in_memory: bool = False) -> None:
        """Delete the file, since what was purged stands in it; all is read from the log again."""
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
        """Take in what is new in the log; says whether anything was."""
        with self._catching_up:
            return self._follow()

    def take_own(self) -> None:
        """Take in what was just acknowledged, which no failure to read it may make look as if it were not written."""
        with self._catching_up:
            self._try_to_follow()

    def look(self) -> None:
        """Take in what others wrote, if the last look is some time ago and nobody else looks just now."""
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
        place = Position(*(db.execute("SELECT seq, id FROM place").fetchone() or ()))
        if place.seq and not self._is_known and not LogFollower(self._tree).resume(place):
            with _transaction(db):
                self._clear(db)  # another log has come in its place: a backup, say
            place = Position()
        self._is_known = True
        return place

    def _clear(self, db: sqlite3.Connection) -> None:
        for table in _TABLES:
            db.execute(f"DELETE FROM {table}")

    def _take_changes(self, db: sqlite3.Connection, changes: Sequence[Change], first: Position, in_state: bool) -> bool:
        with _transaction(db):
            if Position(*(db.execute("SELECT seq, id FROM place").fetchone() or ())) != first:
                return False
            for change in changes:
                if change.op == "state" and not in_state:  # the log was compacted: what was before it is gone
                    self._clear(db)
                in_state = change.op == "state"
                after = _records(change.after)
                if after and not in_state:
                    self._take_operation(db, change, {each.id: each for each in _records(change.before)}, after)
                for record in after:
                    self._take(db, record)
            db.execute("DELETE FROM place")
            db.execute("INSERT INTO place VALUES (?, ?)", (changes[-1].seq, changes[-1].operation_id))
        return True

    def _take_operation(
        self, db: sqlite3.Connection, change: Change, before: dict[str, Record], after: list[Record]
    ) -> None:
        mark = Entry("", change.op, 0.0, 0).mark[:32]
        row = (change.seq, change.operation_id, change.op, change.timestamp, mark)
        db.execute("INSERT OR REPLACE INTO operation VALUES (?, ?, ?, ?, ?)", row)
        rows = [(each.id, change.seq, _text_of(before.get(each.id)), _text_of(each)) for each in after]
        db.executemany("INSERT OR REPLACE INTO change VALUES (?, ?, ?, ?)", rows)

    def _take(self, db: sqlite3.Connection, record: Record) -> None:
        old = db.execute("SELECT merged_into FROM record WHERE id = ?", (record.id,)).fetchone()
        self._writes += 1
        own, kind, principal = record.fields, record.kind, clean(record.created_by)
        content = clean(record.content)
        row = [record.id, content, json.dumps([record.source, own]), principal, record.version]
        row += [record.created_at, record.updated_at, 0, 0, kind, record.deleted, own.get("score")]
        entry = clean(str(own.get("of") or ""))
        row += [clean(record.merged_into), entry, own.get("helpful") is True]
        row += [*_early(own), record.size]
        db.execute(f"INSERT OR REPLACE INTO record ({COLUMNS}{_MORE}) VALUES ({', '.join('?' * 18)})", row)
        if kind == "knowledge":
            if old is not None:
                for table in ("scope", "term"):
                    db.execute(f"DELETE FROM {table} WHERE id = ?", (record.id,))
            if not record.deleted:
                scopes = [(clean(shared_by(each, record.created_by)), record.id) for each in own["scopes"]]
                db.executemany("INSERT OR IGNORE INTO scope VALUES (?, ?)", scopes)
                terms = [(term, record.id) for term in set(texts.terms(clean(own["task"])))]
                db.executemany("INSERT OR IGNORE INTO term VALUES (?, ?)", terms)
            self._weigh(db, record.id)
            if old is not None and old[0]:
                self._weigh(db, old[0])
        elif kind == "feedback":
            self._vote(db, entry, principal)

    def _vote(self, db: sqlite3.Connection, entry: str, principal: str) -> None:
        """Count the last feedback of a principal on an entry, and none where it has none."""
        db.execute("DELETE FROM vote WHERE entry = ? AND principal = ?", (entry, principal))
        db.execute(
            "INSERT INTO vote SELECT entry, principal, created_at, id, is_helpful FROM record WHERE kind = 'feedback'"
            " AND NOT is_gone AND entry = ? AND principal = ? ORDER BY created_at DESC, id DESC LIMIT 1",
            (entry, principal),
        )
        self._weigh(db, entry)

    def _weigh(self, db: sqlite3.Connection, id: str) -> None:
        """Note the votes of what an entry became: of each principal the last one, and none of its own."""
        lead = _lead_of(db, id)
        if lead is None:
            return
        id, whose = lead
        last: dict[str, tuple[float, str, int]] = {}
        votes = "SELECT vote.principal, created_at, vote.id, is_helpful FROM vote, family WHERE entry = family.id"
        for principal, *said in db.execute(_FAMILY + votes, (id,)):
            last[principal] = max((said[0], said[1], said[2]), last.get(principal, (-1e300, "", 0)))
        last.pop(whose, None)
        helpful = sum(is_helpful for _, _, is_helpful in last.values())
        before = "SELECT sum(early_helpful), sum(early_harmful) FROM record, family WHERE record.id = family.id"
        early = db.execute(_FAMILY + before, (id,)).fetchone()
        counted = helpful + (early[0] or 0), len(last) - helpful + (early[1] or 0), id
        db.execute("UPDATE record SET helpful = ?, harmful = ? WHERE id = ?", counted)


def lead_of(db: sqlite3.Connection, id: str) -> Record | None:
    """Return the entry that an id means: of one that was merged, what it was merged into."""
    lead = _lead_of(db, clean(id))
    return None if lead is None else get(db, lead[0])


def _lead_of(db: sqlite3.Connection, id: str) -> tuple[str, str] | None:
    """Return the id and the principal of the entry that an id means."""
    sql, seen = "SELECT id, principal, merged_into FROM record WHERE id = ? AND NOT is_gone", set[str]()
    found = db.execute(sql, (id,)).fetchone()
    while found is not None and found[2] and found[0] not in seen:
        seen.add(found[0])
        target = db.execute(sql, (found[2],)).fetchone()
        found = target if target is not None and target[1] == found[1] else None
    return None if found is None else (found[0], found[1])


def family_of(db: sqlite3.Connection, id: str) -> list[str]:
    """Return an entry and what was merged into it."""
    return [row[0] for row in db.execute(_FAMILY + "SELECT id FROM family", (id,))]


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


def shared_by(scope: str, principal: str) -> str:
    """Return a scope as the index has it: `user:owner` is another one for each principal."""
    return f"{OWNER_SCOPE}\0{principal}" if scope == OWNER_SCOPE else scope


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


def _text_of(record: Record | None) -> str | None:
    if record is None:
        return None
    return json.dumps([getattr(record, name) for name in _FIELDS])


def read_record(text: str) -> Record:
    """Return the record that an operation holds."""
    return Record(**dict(zip(_FIELDS, json.loads(text), strict=True)))


def _early(own: Json) -> list[int]:
    """Return the votes that an imported record had before."""
    held = own.get("judged")
    counts = [held.get(name) for name in ("helpful", "harmful")] if isinstance(held, dict) else [0, 0]
    return [count if isinstance(count, int) and 0 <= count <= 1_000_000 else 0 for count in counts]
