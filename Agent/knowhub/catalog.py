"""Queries over all records: who sees which, votes, the order of time, the operations, full text.

`Following` keeps the records as they are, the votes and the operations in one SQLite file. All of it is derived, and
shared by the processes of a folder: a missing or damaged file is made again from the log, and where it cannot be
written, all is kept in memory. The log is read when this process has written, at a read where the last look is 50 ms
old, and before an answer says that something is not there. New entries wait for the next of these, since many taken in
together cost half. No thread runs for that. `Catalog` asks it, and ranks by the words of the entries, which it indexes
from the same file.

Counters are not stored in the ledger: they count the living feedback, so no one can overwrite another's, and undoing
one takes it back. Of each principal the last feedback counts, and none of the entry's own. Feedback of an entry that
was merged into another counts for that.
"""

import contextlib
import functools
import itertools
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from ..base.text import clean
from ..finding import texts
from ..finding.embedder import Embedder, Meaning, meaning_of
from ..finding.index import Index, LostIndexError, Unit
from ..keyword_tree import Change, Info, KeywordTreeError, StoreError
from ..store.log_follower import LogFollower, Position
from .ledger import TreeLedger, record_of
from .records import OWNER_SCOPE, Json, Record
from .similar import Tasks
from .tokens import Token, is_visible, sees

FOLLOW_S = 0.05
"""Seconds after which a read looks at the log again."""

_CHANGES = 1_000  # operations of one transaction
_UNAVAILABLE, _SHORT_READ = {5, 6, 8, 10, 13, 14}, 522  # errors of SQLite: busy, read-only, disk, full; file cut short
_EARLY = 1_000_000  # votes of each kind from before an import
_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_SCHEMA = """
PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON; PRAGMA wal_autocheckpoint=4000;
CREATE TABLE IF NOT EXISTS place (seq INTEGER, id TEXT, file TEXT);
CREATE TABLE IF NOT EXISTS operation (
    seq INTEGER PRIMARY KEY, id TEXT UNIQUE, verb TEXT, principal TEXT, mark TEXT, at REAL, before TEXT, after TEXT);
CREATE TABLE IF NOT EXISTS touched (record TEXT, seq INTEGER, PRIMARY KEY (record, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marked ON operation (substr(mark, 1, 32)) WHERE mark != '';
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
COLUMNS = "id, content, said, principal, version, created_at, updated_at, helpful, harmful"
"""What `record_of_row` reads."""
_MORE = ", kind, is_gone, score, merged_into, entry, is_helpful, size, terms"
_INSERT = f"INSERT OR REPLACE INTO record ({COLUMNS}{_MORE}) VALUES ({', '.join('?' * 17)})"  # with a new number
# What was merged into an entry: never another principal's, whatever an import says. Else anybody could let their own
# entry, and its feedback, count for an entry that they do not even see.
_MERGED = """SELECT record.id FROM record AS target CROSS JOIN record ON record.merged_into = target.id
    WHERE target.id = ? AND record.merged_into != '' AND record.principal = target.principal AND NOT record.is_gone"""
_UNMARK, _MARK = "DELETE FROM mark WHERE mark = ? AND id = ?", "INSERT INTO mark VALUES (?, ?)"
_VOTES = "SELECT created_at, id, principal, is_helpful FROM vote WHERE entry = ?"
_LATER_VOTE = """INSERT INTO vote VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    created_at = excluded.created_at, id = excluded.id, is_helpful = excluded.is_helpful
    WHERE (excluded.created_at, excluded.id) >= (vote.created_at, vote.id)"""
_LAST_VOTE = """INSERT OR IGNORE INTO vote SELECT entry, principal, created_at, id, is_helpful FROM record
    WHERE kind = 'feedback' AND NOT is_gone AND entry = ? AND principal = ? ORDER BY created_at DESC, id DESC LIMIT 1"""
# Whether a new entry has votes already, or others merged into it; and the entry as it was.
_BEFORE = f"""SELECT EXISTS (SELECT 1 FROM vote WHERE entry = asked)
    OR EXISTS (SELECT 1 FROM record WHERE merged_into = asked AND merged_into != ''), {COLUMNS}
    FROM (SELECT ? AS asked) LEFT JOIN record ON id = asked AND NOT is_gone"""
_WITH_HISTORY = ("knowledge", "resource", "proposal")  # kinds whose operations are asked for
_is_ours = re.compile(r"kh:([^:]*):(\S+) ?(.*)", re.DOTALL).fullmatch
"""Tell whether a hub wrote an operation: `kh:<verb>:<principal>`, with a mark where the call had an Idempotency-Key."""
_fields_of = attrgetter(*(each.name for each in fields(Record)[:9]))


@dataclass(slots=True)
class Entry:
    """One operation of the log."""

    operation_id: str
    """What `undo` takes."""
    verb: str
    """The name of the operation."""
    principal: str
    """Who did it; "" where it was not done through a hub."""
    mark: str
    """The digests of an Idempotency-Key and of its request; "" for a call without one."""
    timestamp: float
    """Seconds since the epoch, UTC."""
    seq: int
    """Its number in the log."""
    before: list[Record] = field(default_factory=list)
    """The changed records as they were."""
    after: list[Record] = field(default_factory=list)
    """The changed records as they became."""


class Following:
    """The file, kept up to date with the log; safe for many threads and processes.

    Args:
        ledger: Whose log.
        path: The file; None keeps all in memory.

    Cost: some 0.2 ms for an operation, once; where nothing is new, 0.4 ms, and waiting for writes that are under way.
    """

    def __init__(self, ledger: TreeLedger, path: Path | None) -> None:
        self._tree, self._path = ledger.tree, path
        self._lock, self._catching_up, self._looking = threading.RLock(), threading.Lock(), threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._placed: tuple[sqlite3.Connection | None, Position] = None, Position()  # of which file, in the log
        self._store = self._tree._engine.store
        self._is_remade = False  # just now, after a failure
        self._next_look = 0.0
        self._tickets, self._covered = itertools.count(1), 0  # an own write with a ticket below is taken in
        self._left: list[tuple[Record, frozenset[str]]] = []  # own new entries that wait, with the terms of their tasks
        self._writes = 0  # so often this process took something in

    def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what `work` does with the file: with a new one where it is damaged, with one in memory where it fails.

        What fails is a full disk, say, or one that may not be written.
        """
        with self._lock:
            try:
                return work(self._connect())
            except (sqlite3.DatabaseError, OSError) as error:
                if self._is_remade:
                    raise
                _log.warning("the index of the hub is made again: %s", type(error).__name__)
                code = getattr(error, "sqlite_errorcode", 0)
                cannot_be_used = isinstance(error, OSError) or (code & 255 in _UNAVAILABLE and code != _SHORT_READ)
            self._is_remade = True
            try:
                self.forget(in_memory=cannot_be_used)
                self._follow()
                return work(self._connect())
            finally:
                self._is_remade = False

    def state(self, db: sqlite3.Connection) -> tuple[int, int]:
        """Return how much this process took in, and a value that changes when another one does."""
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
        """Delete the file, since purged texts stand in it, or leave it for memory; the log is read again."""
        with self._lock:
            Following.close(self)  # this file alone: the index of words is no part of it
            if in_memory:
                self._path = None
            elif self._path is not None:
                for path in self._path.parent.glob(self._path.name + "*"):
                    path.unlink(missing_ok=True)

    # -- following --

    def catch_up(self) -> None:
        """Take in all that was written, by others, too."""
        self._refresh()
        with self._catching_up:
            self._follow()

    def leave(self, record: Record) -> None:
        """Leave an own new entry that was just acknowledged to the next read: many taken in together cost half."""
        self._left.append((record, terms_of(record.fields["task"])))

    def take_own(self) -> None:
        """Take in own writes that were just acknowledged; a failure to read them does not make them look unwritten.

        Of several threads that wrote at once the first takes in the writes of all. It waits for no write under way.
        """
        ticket = next(self._tickets)
        with self._catching_up:
            if self._covered < ticket:
                self._try_to_follow()

    def look(self) -> None:
        """Take in what all wrote, where the last look at others is some time ago and no other thread looks just now."""
        if time.monotonic() >= self._next_look and self._looking.acquire(blocking=False):
            try:
                self._refresh()
                self.take_own()
            finally:
                self._looking.release()

    def _refresh(self) -> None:
        with contextlib.suppress(StoreError):  # what is known can be read all the same
            self._tree.Refresh()
        self._next_look = time.monotonic() + FOLLOW_S

    def _try_to_follow(self) -> None:
        try:
            self._follow()
        except KeywordTreeError as error:  # a disk or a database that fails for a while: what is known is answered
            _log.warning("cannot follow the log: %s", type(error).__name__)
            self._left.clear()  # else each read would try it again

    def _follow(self) -> None:
        began, left, in_state = next(self._tickets), len(self._left), False
        db, place = self._placed
        if db is None or db is not self._connection:
            db, place = self._do(self._read_place)
        changes = iter(self._tree.Changes(place.seq, refresh=False))
        store, self._store = self._store, self._tree._engine.store
        if store is not self._store:  # opened again, perhaps since the log lost its tail
            self._placed = None, Position()
            self._follow()
            return
        while some := list(itertools.islice(changes, _CHANGES)):
            take = functools.partial(self._take_changes, changes=some, first=place, in_state=in_state)
            if not self._do(take):
                self._placed = None, Position()
                self._follow()  # another process was quicker
                return
            place, in_state = Position(some[-1].seq, some[-1].operation_id), some[-1].op == "state"
        self._placed, self._covered = (db, place), began
        del self._left[:left]

    def _read_place(self, db: sqlite3.Connection) -> tuple[sqlite3.Connection, Position]:
        place = Position(*db.execute("SELECT seq, id FROM place").fetchone())
        if place.seq and not LogFollower(self._tree).resume(place):
            with db:
                db.execute("BEGIN IMMEDIATE")
                self._clear(db)  # another log has come in its place: a backup, say
            place = Position()
        return db, place

    def _clear(self, db: sqlite3.Connection) -> None:
        for table in _TABLES:
            db.execute(f"DELETE FROM {table}")
        db.execute(_BEGIN)

    def _take_changes(self, db: sqlite3.Connection, changes: Sequence[Change], first: Position, in_state: bool) -> bool:
        last, judged = changes[-1], set[str]()
        with db:
            db.execute("BEGIN IMMEDIATE")
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
                    judged.update(self._take(db, record))
            for lead in {lead.id: lead for each in judged if (lead := lead_of(db, each)) is not None}.values():
                self._weigh(db, lead)
        return True

    def _take_operation(self, db: sqlite3.Connection, change: Change, after: list[Record]) -> None:
        said = _is_ours(change.op)
        row = change.seq, change.operation_id, *(said.groups() if said else (change.op, "", "")), change.timestamp
        sides = _text_of(_records(change.before)), _text_of(after)
        db.execute("INSERT OR REPLACE INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, *sides))
        touched = {(each.id, change.seq) for each in after if each.kind in _WITH_HISTORY}
        db.executemany("INSERT OR IGNORE INTO touched VALUES (?, ?)", touched)

    def _take(self, db: sqlite3.Connection, record: Record) -> Iterator[str]:
        """Take in a record; yield the entries whose votes are to be weighed."""
        self._writes += 1
        own, kind, principal = record.fields, record.kind, clean(record.created_by)
        entry, merged_into = clean(str(own.get("of") or "")), clean(record.merged_into)
        row = [record.id, clean(record.content), _written([record.source, own]), principal, record.version]
        row += [record.created_at, record.updated_at, 0, 0, kind, record.deleted, own.get("score"), merged_into, entry]
        is_judged, *was = db.execute(_BEFORE, (record.id,)).fetchone() if kind == "knowledge" else (False, None)
        old = None if was[0] is None else record_of_row(was)
        terms = terms_of(own["task"]) if kind == "knowledge" and not record.deleted else ()
        db.execute(_INSERT, [*row, own.get("helpful") is True, record.size, " ".join(terms)])
        if kind == "knowledge":
            before, after = marks_of(old), marks_of(None if record.deleted else record)
            for sql, marks in (_UNMARK, before - after), (_MARK, after - before):
                db.executemany(sql, [(mark, record.id) for mark in marks])
            if old is not None or merged_into or own.get("judged") or is_judged:  # a new one has no votes
                yield record.id
            if old is not None and old.merged_into:
                yield old.merged_into
        elif kind == "feedback":
            self._vote(db, record, entry, principal)
            yield entry

    def _vote(self, db: sqlite3.Connection, record: Record, entry: str, principal: str) -> None:
        """Count the last feedback of a principal on an entry, and none where it has none."""
        if record.deleted:
            of = (entry, principal)
            db.execute("DELETE FROM vote WHERE entry = ? AND principal = ? AND id = ?", (*of, record.id))
            db.execute(_LAST_VOTE, of)
        else:
            vote = (entry, principal, record.created_at, record.id, record.fields.get("helpful") is True)
            db.execute(_LATER_VOTE, vote)

    def _weigh(self, db: sqlite3.Connection, lead: Record) -> None:
        """Note the votes of an entry, and of those merged into it."""
        family = family_of(db, lead.id)
        said = sorted(row for one in family for row in db.execute(_VOTES, (one,)))
        votes = {principal: is_helpful for _, _, principal, is_helpful in said}  # the last one of each
        votes.pop(clean(lead.created_by), None)
        helpful = sum(votes.values())
        counts = [helpful, len(votes) - helpful]
        for one in [lead, *filter(None, (get(db, each) for each in family[1:]))]:
            judged = one.fields.get("judged", {})  # before it was imported; any program can write it
            for place, name in enumerate(("helpful", "harmful")):
                early = judged.get(name)
                counts[place] += min(max(early, 0), _EARLY) if isinstance(early, int) else 0
        if counts != [lead.helpful, lead.harmful]:
            db.execute("UPDATE record SET helpful = ?, harmful = ? WHERE id = ?", (*counts, lead.id))


def lead_of(db: sqlite3.Connection, id: str) -> Record | None:
    """Return the entry that an id means: of a merged one, its target."""
    found, seen = get(db, id), set[str]()
    while found is not None and found.merged_into and found.id not in seen:
        seen.add(found.id)
        target = get(db, found.merged_into)
        found = target if target is not None and target.created_by == found.created_by else None
    return found


def family_of(db: sqlite3.Connection, id: str) -> list[str]:
    """Return an entry, and what was merged into it, at however many removes."""
    found = [clean(id)]
    for one in found:
        found += [each for (each,) in db.execute(_MERGED, (one,)) if each not in found]
    return found


def get(db: sqlite3.Connection, id: str) -> Record | None:
    """Return a record as it is now."""
    row = db.execute(f"SELECT {COLUMNS} FROM record WHERE id = ? AND NOT is_gone", (clean(id),)).fetchone()
    return None if row is None else record_of_row(row)


def record_of_row(row: Sequence[Any]) -> Record:
    """Return the record of a row of `COLUMNS`."""
    source, fields = from_json(row[2])
    made = Record(row[0], row[1], source, fields, *row[3:7])
    made.helpful, made.harmful = row[7:9]
    return made


def marks_of(record: Record | None) -> set[str]:
    """Return the marks of those who see an entry."""
    if record is None or record.merged_into:
        return set()
    return {scope_mark(each, record.created_by) for each in record.fields["scopes"]}


@functools.lru_cache(maxsize=256)  # of a save they are needed three times, and by those that come after it
def terms_of(task: str) -> frozenset[str]:
    """Return the terms of a task, each once."""
    return frozenset(texts.terms(clean(task)))


def scope_mark(scope: str, principal: str) -> str:
    """Return the mark of a scope: `user:owner` is another one for each principal."""
    return clean(f"scope {scope} {principal}" if scope == OWNER_SCOPE else f"scope {scope}")


def _records(side: Sequence[object]) -> list[Record]:
    """Return the records of one side of a change."""
    found = (record_of(info) for info in side if isinstance(info, Info))
    return [record for record in found if record is not None]


def _text_of(records: list[Record]) -> str:
    return _written([*map(_fields_of, records)])


def _written(value: object) -> str:
    """Return a value as JSON."""
    try:
        return to_json(value).decode()
    except ValueError:  # half of a surrogate pair, from another program
        return clean(json.dumps(value, ensure_ascii=False))


def read_case(content: str) -> Json:
    """Return the case that the content of a feedback holds; nothing, where it is none of ours."""
    try:
        case = from_json(content)
    except ValueError:
        return {}
    return case if isinstance(case, dict) else {}


# Asking

_ELIGIBLE_KEPT = 4  # sets of eligible entries: each of some 1 MB, among 30,000
_COMPARED = 50  # tasks that are like a new one
_PAGE = 50  # rows that are read at once: an export without a reader holds them
_INDEXED_AT_ONCE, _MANY = 1_000, 500
_LATEST = (1e300, "")
_STALE = ("entries.*", "journal.*", "knowhub.*", "catalog.*", "records.*", "hub.*")
_SEEN = "SELECT mark.id FROM mark WHERE mark IN (SELECT value FROM json_each(?))"
_ENTRIES = "FROM record WHERE kind = 'knowledge' AND NOT is_gone AND merged_into = ''"
_TO_INDEX = """SELECT number, id, NOT is_gone AND merged_into = '', content, said FROM record
    WHERE kind = 'knowledge' AND number > ? ORDER BY number LIMIT ?"""


class Catalog(Following):
    """All records of a ledger, as far as asking for them needs it; safe for many threads and processes.

    Args:
        ledger: Whose records.
        folder: Where its two files are kept: `state.sqlite`, and the full-text index; None keeps all in memory.
        meaning: See `finding.index.Index`.
    """

    def __init__(
        self, ledger: TreeLedger, folder: Path | None = None, meaning: Meaning | Embedder | bool = True
    ) -> None:
        super().__init__(ledger, None if folder is None else folder / "state.sqlite")
        for stale in itertools.chain.from_iterable(map(folder.glob, _STALE)) if folder is not None else ():
            with contextlib.suppress(OSError):  # of earlier versions: texts that were purged since may stand there
                stale.unlink()
        self._meaning = meaning_of(meaning, ledger.tree) or False
        self._index = Index(None if folder is None else str(folder / "words.index"), meaning=self._meaning)
        self._indexing = threading.RLock()
        self._tasks, self._tasks_of = Tasks(), (0.0, 0)  # as they were at a look, after a number of writes
        self._indexed = self._tended = (0, -1)  # the state that was indexed, and that of the last `tend_at_leisure`
        self._eligible: dict[Any, frozenset[str]] = {}  # eligible entries, until something is taken in
        self._eligible_of: object = None
        self._entries = 0  # how many entries there were then

    def open(self) -> None:
        """Take in all there is."""
        self.catch_up()
        self.tend()

    def warm(self) -> None:
        """Load the model that compares by meaning, before a search has to."""
        self._index.ask("water")

    def tend_at_leisure(self) -> None:
        """Index new records where many wait, each of which costs half, or where none came since the last call."""
        self.look()
        before, self._tended = self._tended, self._read(self.state)
        if self._tended == before or self._tended[0] - self._indexed[0] >= _MANY:
            self.tend()

    def tend(self) -> None:
        """Index new records, before a search has to."""
        self.look()
        with self._indexing:
            state = self._read(self.state)
            if state != self._indexed:
                self._with_index(self._index_new)
                self._indexed = state

    def _with_index(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does with the index: with one in memory, where the file cannot be used."""
        try:
            return work()
        except LostIndexError:  # it was damaged, and is empty now
            pass
        except (sqlite3.OperationalError, OSError) as error:
            if self._index.path is None:
                raise
            _log.warning("the words of the hub are indexed in memory: %s", type(error).__name__)
            self._index = Index(None, meaning=self._meaning)
        with self._indexing:
            self._index_new()
        return work()

    def _index_new(self) -> None:
        """Take in the entries that were written since the position of the index: a file of records, and a number."""
        file = self._all("SELECT file FROM place")[0][0]
        known, _, place = self._index.position.partition(" ")
        is_other, number = known != file, int(place or 0) if known == file else 0
        while rows := self._all(_TO_INDEX, number, _INDEXED_AT_ONCE):
            with self._index.transaction():
                self._index.remove(id for _, id, is_there, *_ in rows if not is_there)
                self._index.put(_unit(id, said, content) for _, id, is_there, content, said in rows if is_there)
                number = rows[-1][0]
                self._index.position = f"{file} {number}"
        if is_other and known:  # of another log, or of one that was compacted
            with self._index.transaction():
                self._index.remove(self._index.ids().difference(row[0] for row in self._all(f"SELECT id {_ENTRIES}")))
                self._index.position = f"{file} {number}"
            self._index.compact()

    def close(self) -> None:
        """Leave the indexes on disk."""
        with contextlib.suppress(KeywordTreeError, OSError, sqlite3.Error, LostIndexError):
            self.tend()
        self._index.close()
        super().close()

    def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._left:
            self.take_own()
        return self._do(work)

    def _all(self, sql: str, *values: object) -> list[Any]:
        return self._read(lambda db: db.execute(sql, values).fetchall())

    # -- records --

    def get(self, id: str) -> Record | None:
        """Return a record as it is now, as far as this process knows."""
        return self._read(lambda db: get(db, id))

    def several(self, ids: Collection[str]) -> dict[str, Record]:
        """Return records by their ids, those that are there."""
        sql = f"SELECT {COLUMNS} FROM record WHERE id IN (SELECT value FROM json_each(?)) AND NOT is_gone"
        return {row[0]: record_of_row(row) for row in self._all(sql, json.dumps(list(ids)))}

    def best(self, ids: Collection[str], limit: int = -1) -> Iterator[Record]:
        """Yield entries by their quality, ties as they were given; so many, or all."""
        given = "SELECT key AS place, value AS id FROM json_each(?)"
        sql = f"SELECT {COLUMNS} FROM record JOIN ({given}) USING (id) WHERE NOT is_gone AND merged_into = ''"
        order = "ORDER BY score + helpful - 2.0 * harmful DESC, place"
        yield from map(record_of_row, self._all(f"{sql} {order} LIMIT ?", json.dumps(list(ids)), limit))

    def lead(self, id: str) -> Record | None:
        """Return the entry that an id means: of a merged one, its target."""
        return self._read(lambda db: lead_of(db, id))

    def eligible(self, token: Token, types: str | None, min_score: int) -> frozenset[str]:
        """Return the entries that a search may find, of some types, with commas, or of all.

        Cost: some 20 ms among 30,000, once until something is written.
        """
        self.look()
        sql = f"SELECT id {_ENTRIES} AND score >= ? AND score + helpful - 2 * harmful >= 0"
        values: list[Any] = [min_score]
        if types is not None:
            of_types = "SELECT 1 FROM json_each(said, '$[1].types') WHERE value IN (SELECT value FROM json_each(?))"
            sql += f" AND EXISTS ({of_types})"
            values.append(json.dumps(types.split(",")))
        if not token.sees_all():
            sql += f" AND id IN ({_SEEN})"
            values.append(_marks_seen(token))
        asked = (token.sees_all(), *map(str, values), token.principal)

        def work(db: sqlite3.Connection) -> frozenset[str]:
            state = self.state(db)
            if state != self._eligible_of or len(self._eligible) >= _ELIGIBLE_KEPT:
                self._eligible.clear()
                self._eligible_of = state
                self._entries = db.execute(f"SELECT count(*) {_ENTRIES}").fetchone()[0]
            if asked not in self._eligible:
                self._eligible[asked] = frozenset(row[0] for row in db.execute(sql, values))
            return self._eligible[asked]

        return self._read(work)

    def page(
        self, kind: str, wanted: Callable[[Record], bool], limit: int, before: tuple[float, str] | None
    ) -> tuple[list[Record], bool]:
        """Return the newest records of a kind before a point in time, and whether there are more."""
        self.look()
        found = list(itertools.islice(filter(wanted, self._walk(kind, before or _LATEST, "<", "DESC")), limit + 1))
        return found[:limit], len(found) > limit

    def all(self, kind: str) -> Iterator[Record]:
        """Yield all records of a kind, oldest first; memory does not grow with how many there are."""
        return self._walk(kind, (-1e300, ""), ">", "ASC")

    def _walk(self, kind: str, place: tuple[float, str], side: str, order: str) -> Iterator[Record]:
        sql = f"SELECT {COLUMNS} FROM record WHERE kind = ? AND NOT is_gone AND (created_at, id) {side} (?, ?)"
        while rows := self._all(f"{sql} ORDER BY created_at {order}, id {order} LIMIT {_PAGE}", kind, *place):
            yield from map(record_of_row, rows)
            place = (rows[-1][5], rows[-1][0])

    def count_hidden(self, token: Token) -> int:
        """Return how many entries a token does not see."""
        sql = f"SELECT count(*) {_ENTRIES} AND id NOT IN ({_SEEN})"
        return int(self._all(sql, _marks_seen(token))[0][0])

    def held_by(self, principal: str) -> tuple[int, int]:
        """Return how many entries and resources a principal keeps, and how many bytes of text, cases included."""
        sql = "SELECT coalesce(sum(kind IN ('knowledge', 'resource')), 0), coalesce(sum(size), 0) FROM record"
        found = self._all(f"{sql} WHERE principal = ? AND NOT is_gone", principal)
        return found[0][0], found[0][1]

    def largest_share(self) -> int:
        """Return how many entries and resources the principal keeps that has most."""
        sql = "SELECT count(*) FROM record WHERE NOT is_gone AND kind IN ('knowledge', 'resource') GROUP BY principal"
        return max((row[0] for row in self._all(sql)), default=0)

    def secret_references(self) -> set[str]:
        """Return the references of all secrets that a resource holds."""
        return {str(known.fields.get("secret_ref")) for known in self.all("resource")} - {"", "None"}

    def counts(self) -> dict[str, int]:
        """Return how many records of each kind there are."""
        return dict(self._all("SELECT kind, count(*) FROM record WHERE NOT is_gone GROUP BY kind"))

    # -- votes --

    def has_voted(self, id: str, principal: str) -> bool:
        """Return whether a principal has voted on an entry, or on one merged into it."""
        sql = "SELECT 1 FROM vote WHERE entry = ? AND principal = ?"
        return self._read(lambda db: any(db.execute(sql, (one, principal)).fetchone() for one in family_of(db, id)))

    def feedback(self, id: str, limit: int, before: tuple[float, str] | None = None) -> list[Record]:
        """Return an entry's newest feedback, with that of entries merged into it, newest first; a number of each kind.

        Cost: grows with `limit`, not with how much there is.
        """
        rows = itertools.chain(*self._feedback_rows(COLUMNS, id, limit, before or _LATEST))
        return sorted(map(record_of_row, rows), key=lambda known: known.key, reverse=True)

    def _feedback_rows(self, columns: str, id: str, limit: int, before: tuple[float, str]) -> list[list[Any]]:
        """Return the newest rows first: of feedback that something harmed, and of feedback that it helped."""
        sql = f"SELECT created_at, id, {columns} FROM record WHERE kind = 'feedback' AND NOT is_gone AND entry = ?"
        sql += f" AND is_helpful = ? AND (created_at, id) < (?, ?) ORDER BY created_at DESC, id DESC LIMIT {limit}"

        def work(db: sqlite3.Connection) -> list[list[Any]]:
            family = family_of(db, id)
            sides = [[(one, is_helpful, *before) for one in family] for is_helpful in (0, 1)]
            found = ([row for asked in side for row in db.execute(sql, asked)] for side in sides)
            return [[rest for _, _, *rest in sorted(rows, reverse=True)] for rows in found]

        return self._read(work)

    def cases(self, token: Token, id: str, limit: int) -> list[list[Json]]:
        """Return the newest cases of an entry that a token sees: those in which it harmed, and in which it helped."""

        def is_seen(row: Sequence[Any]) -> bool:
            own = from_json(row[1])[1]
            return is_visible(token, own["scopes"], own["owner"])

        sees_all = token.sees_all()  # else some are hidden, perhaps
        sides = self._feedback_rows("content, said", id, limit if sees_all else 2 * limit, _LATEST)
        seen = sides if sees_all else [filter(is_seen, rows) for rows in sides]
        return [[read_case(row[0]) for row in itertools.islice(rows, limit)] for rows in seen]

    # -- feedback --

    def rank(self, query: str, limit: int, among: frozenset[str]) -> list[str]:
        """Return those of some entries that fit a query, best first."""
        self.tend()
        some = None if len(among) == self._entries else among
        self._index.ask(query)
        return [id for id in self._with_index(lambda: self._index.order(query, limit, among=some)) if id in among]

    def resembling(self, token: Token, task: str, least: float, limit: int) -> list[tuple[float, Record]]:
        """Return the entries that a token sees whose tasks are similar to a text, the most similar first.

        Args:
            token: Who may see them.
            task: Any text.
            least: The share of all terms of both that must be in both, at least a half.
            limit: At most this many.

        Cost: what is looked at of each term are its newest 1,000 entries; the tasks of 50 are compared.
        """
        self.look()
        terms, left = terms_of(task), [*self._left]  # before what is read, lest one just taken in is in neither

        def take_in(db: sqlite3.Connection) -> None:
            looked = self._next_look, self._writes
            self._tasks.take_in(db)
            self._tasks_of = looked

        if self._tasks_of != (self._next_look, self._writes):
            self._do(take_in)
        rows = self._alike(token, likely) if (likely := self._tasks.likely(terms)) else []  # nearly always

        def share(theirs: Collection[str]) -> float:
            both = len(terms.intersection(theirs))
            return both / (len(terms) + len(theirs) - both or 1)

        near = [(like, record_of_row(row)) for said, *row in rows if (like := share(said.split())) >= least]
        near += [(like, one) for one, theirs in left if (like := share(theirs)) >= least]
        alike = {one.id: (like, one) for like, one in near if sees(token, one)}
        return sorted(alike.values(), key=lambda pair: (pair[0], pair[1].id), reverse=True)[:limit]

    def _alike(self, token: Token, likely: list[int]) -> list[Any]:
        """Return terms and `COLUMNS` of those of some records that a token sees."""
        given = "FROM (SELECT key AS place, value AS number FROM json_each(?)) JOIN record USING (number)"
        is_seen = "TRUE" if token.sees_all() else f"EXISTS ({_SEEN} AND mark.id = record.id)"
        sql = f"SELECT terms, {COLUMNS} {given} WHERE {is_seen} AND NOT is_gone AND merged_into = '' ORDER BY place"
        seen = [] if token.sees_all() else [_marks_seen(token)]
        return self._do(lambda db: db.execute(f"{sql} LIMIT {_COMPARED}", (json.dumps(likely), *seen)).fetchall())

    # -- operations --

    def operation(self, operation_id: str) -> Entry | None:
        """Return an operation by its id, or None."""
        return next(iter(self._operations("WHERE id = ?", clean(operation_id))), None)

    def marked(self, mark: str) -> list[Entry]:
        """Return the operations of one Idempotency-Key, oldest first."""
        return self._operations("WHERE substr(mark, 1, 32) = ? AND mark != '' ORDER BY seq", mark)

    def operations_on(self, id: str, limit: int) -> list[Entry]:
        """Return the newest operations on a record, newest first."""
        newest = "SELECT seq FROM touched WHERE record = ? ORDER BY seq DESC LIMIT ?"
        return self._operations(f"WHERE seq IN ({newest}) ORDER BY seq DESC", id, limit)

    def operations_before(self, seq: int | None, limit: int) -> list[Entry]:
        """Return the operations before a number, newest first; None is the end."""
        return self._operations("WHERE seq < ? ORDER BY seq DESC LIMIT ?", 2**62 if seq is None else seq, limit)

    def _operations(self, where: str, *values: object) -> list[Entry]:
        self.catch_up()
        rows = self._all(f"SELECT id, verb, principal, mark, at, seq, before, after FROM operation {where}", *values)
        return [Entry(*row[:6], *([Record(*each) for each in from_json(side)] for side in row[6:])) for row in rows]


def text_of(fields: Json, content: str) -> str:
    """Return the searched texts of an entry: its task, the values of its tags, its content."""
    tags = fields.get("tags")
    values = [str(value) for value in tags.values()] if isinstance(tags, dict) else []
    return "\n".join([str(fields.get("task", "")), *values, content])


def _unit(id: str, said: str, content: str) -> Unit:
    """Return an entry as the index has it."""
    first, *rest = [*texts.passages(clean(text_of(from_json(said)[1], content)))] or [""]
    return Unit(id, (), first, rest)


def _marks_seen(token: Token) -> str:
    """Return the marks of one's scopes, for `_SEEN`."""
    return json.dumps([scope_mark(scope, token.principal) for scope in (*token.scopes, OWNER_SCOPE)])
