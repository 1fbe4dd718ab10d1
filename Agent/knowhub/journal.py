"""An index of the log, so that no call reads the log: operations by id, by record and by idempotency mark.

It is a SQLite file, derived and shared by all processes of a folder; a missing or damaged one is made again from the
log. Of each changed record it holds the state before and after.
"""

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..keyword_tree import Change, Info, KeywordTree
from ..store.log_follower import LogFollower, Position
from .schemas import Record

__all__ = ["Entry", "Journal"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS place (seq INTEGER, id TEXT);
CREATE TABLE IF NOT EXISTS operation (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, op TEXT, at REAL, mark TEXT);
CREATE TABLE IF NOT EXISTS change (record TEXT, seq INTEGER, before TEXT, after TEXT, PRIMARY KEY (seq, record));
CREATE INDEX IF NOT EXISTS change_of ON change (record, seq);
CREATE INDEX IF NOT EXISTS marked ON operation (mark) WHERE mark != '';
"""
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


class Journal:
    """The operations of a tree; safe for many threads and processes.

    Args:
        tree: Whose log.
        path: The file; its folder is made.
        record_of: Returns the record that an info holds, or None.

    Cost: a lookup is some 0.5 ms; the first one after a start indexes what was written since.
    """

    def __init__(self, tree: KeywordTree, path: Path, record_of: Callable[[Info], Record | None]) -> None:
        self._tree, self._path, self._record_of = tree, path, record_of
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._is_known = False
        """Whether the file is of this log."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def forget(self) -> None:
        """Delete the file: what was purged stands in it."""
        with self._lock:
            self.close()
            for path in self._path.parent.glob(self._path.name + "*"):
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Catch up with the log, and give the connection to the block."""
        with self._lock:
            try:
                connection = self._catch_up()
            except sqlite3.DatabaseError:  # derived: made again
                self.forget()
                connection = self._catch_up()
            yield connection

    def catch_up(self) -> None:
        """Index what is new.  Cost: some 0.1 ms for an operation."""
        with self._reading():
            pass

    def _catch_up(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._path.chmod(0o600)
            self._connection.executescript(f"PRAGMA synchronous=OFF; PRAGMA secure_delete=ON; {_SCHEMA}")
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            place = Position(*(connection.execute("SELECT seq, id FROM place").fetchone() or ()))
            if place.seq and not self._is_known and not LogFollower(self._tree).resume(place):
                place = Position()  # another log has come in its place: a backup, say
            if not place.seq:
                connection.execute("DELETE FROM operation")
                connection.execute("DELETE FROM change")
            before = place
            for change in self._tree.Changes(place.seq):
                self._take(connection, change)
                place = Position(change.seq, change.operation_id)
            if place != before:
                connection.execute("DELETE FROM place")
                connection.execute("INSERT INTO place VALUES (?, ?)", place)
            connection.execute("COMMIT")
            self._is_known = True
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return connection

    def _take(self, connection: sqlite3.Connection, change: Change) -> None:
        if change.op == "state":  # the log was compacted: what was before it is gone
            connection.execute("DELETE FROM operation")
            connection.execute("DELETE FROM change")
            return
        before, after = self._records(change.before), self._records(change.after)
        if not after:
            return
        mark = Entry("", change.op, 0.0, 0).mark
        row = (change.seq, change.operation_id, change.op, change.timestamp, mark[:32])
        connection.execute("INSERT OR REPLACE INTO operation VALUES (?, ?, ?, ?, ?)", row)
        rows = [(id, change.seq, before.get(id), record) for id, record in after.items()]
        connection.executemany("INSERT OR REPLACE INTO change VALUES (?, ?, ?, ?)", rows)

    def _records(self, side: object) -> dict[str, str]:
        """Return the records of one side of a change, as they are kept, by id."""
        infos = side if isinstance(side, (list, tuple)) else ()
        found = [self._record_of(info) for info in infos if isinstance(info, Info)]
        return {
            record.id: json.dumps([getattr(record, name) for name in _FIELDS], ensure_ascii=False)
            for record in found
            if record is not None
        }

    # -- asking --

    def find(self, operation_id: str) -> Entry | None:
        """Return an operation by its id, or None."""
        return next(iter(self._find("WHERE id = ?", operation_id)), None)

    def marked(self, mark: str) -> list[Entry]:
        """Return the operations of one Idempotency-Key, oldest first."""
        return self._find("WHERE mark = ? ORDER BY seq", mark)

    def of_record(self, id: str, limit: int) -> list[Entry]:
        """Return the newest operations on a record, newest first."""
        return self._find(
            "WHERE seq IN (SELECT seq FROM change WHERE record = ? ORDER BY seq DESC LIMIT ?) ORDER BY seq DESC",
            id, limit,
        )  # fmt: skip

    def before(self, seq: int | None, limit: int) -> list[Entry]:
        """Return the operations before a number, newest first; None is the end."""
        return self._find("WHERE seq < ? ORDER BY seq DESC LIMIT ?", 2**62 if seq is None else seq, limit)

    def _find(self, where: str, *values: object) -> list[Entry]:
        with self._reading() as connection:
            found = [
                Entry(*row) for row in connection.execute(f"SELECT id, op, at, seq FROM operation {where}", values)
            ]
            for entry in found:
                sides = connection.execute(
                    "SELECT before, after FROM change WHERE seq = ? ORDER BY rowid", (entry.seq,)
                )
                for before, after in sides:
                    entry.before += [_read(before)] if before else []
                    entry.after.append(_read(after))
        return found


def _read(text: str) -> Record:
    return Record(**dict(zip(_FIELDS, json.loads(text), strict=True)))
