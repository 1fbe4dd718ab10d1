"""The file of an index: SQLite, in which all is kept or nothing, and which is begun again where it is damaged."""

import contextlib
import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from . import packing

__all__ = ["IndexFile", "LostIndexError"]

_FORMAT = f"14 {sys.byteorder}"  # another one is made again
_WAIT_S = 2.0  # for another process that writes
_SCHEMA = """
create table meta(key text primary key, value) without rowid;
create table unit(
    num integer primary key, id not null, checksum integer not null, above integer, grp text, noted integer
);
create table passage(num integer primary key, unit integer not null);
create table said(first integer primary key, data blob not null);
create table posting(term text, first integer, n integer, data blob, primary key (term, first)) without rowid;
create index unit_checksum on unit(checksum);
create index unit_above on unit(above) where above is not null;
create index unit_group on unit(grp) where grp <> '';
create index passage_unit on passage(unit);
create table vector(
    stamp integer primary key autoincrement, document integer not null, text integer not null, data blob not null
);
create index vector_document on vector(document);
create index vector_text on vector(text);
create table unread(document integer primary key);
"""  # `grp` is null of a unit without texts: it is but the context of others, or its owner has `noted` something of it

_INHERITED: list[object] = []  # connections of a parent process: closing one would release locks that the parent holds
# Errors that tell nothing of it: busy, locked, read-only, full, not to be opened; errors of the disk, but for the end
# of a file that came too early.
_UNAVAILABLE, _DISK_ERROR, _SHORT_READ = {5, 6, 8, 13, 14}, 10, 522
_MOVED = 1032  # the file is no longer at its path: another process has deleted it, or begun it again


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.DataError):  # of the caller's statement
        return False
    code = getattr(error, "sqlite_errorcode", 0)
    return code in (_SHORT_READ, _MOVED) or code & 255 not in _UNAVAILABLE | {_DISK_ERROR}


@packing.decoder  # also of a schema that is no text
def _prepare(db: sqlite3.Connection) -> None:
    # Not WAL: it maps a file into memory, and overwriting that kills the process; removed bytes stay in it.
    # Not temporary files: they could keep texts that are deleted here.
    # No spilling, which would keep others from reading as long as one takes in much.
    pragmas = (
        "page_size = 8192; journal_mode = truncate; synchronous = normal; secure_delete = on; cell_size_check = on"
    )
    for pragma in f"{pragmas}; cache_size = -8000; cache_spill = off; temp_store = memory".split(";"):
        db.execute(f"pragma {pragma}")
    is_made = "select 1 from sqlite_master"
    if not db.execute(is_made).fetchone():
        db.execute("begin immediate")
        if not db.execute(is_made).fetchone():  # another process was not quicker
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("insert into meta values ('format', ?), ('position', ''), ('next', 1)", (_FORMAT,))
        db.execute("commit")
    row = db.execute("select value from meta where key = 'format'").fetchone()
    if row is None or row[0] != _FORMAT:
        raise sqlite3.DatabaseError("the index is of another version")


def _close_unless_forked(db: sqlite3.Connection, pid: int) -> None:
    if os.getpid() == pid:
        db.close()


class LostIndexError(Exception):
    """The file was damaged, deleted or of another version, and begun again: its owner compares `position` again."""


class IndexFile:
    """A file of SQLite, or a database in memory, which is begun again where it is damaged.

    Threads may share one, processes a file; a forked child opens its own. The file and its folder are for their owner
    alone. Every method raises `LostIndexError` where the file was damaged, which by then is an empty one, and
    `sqlite3.OperationalError` where the disk is full or another process writes for more than two seconds; nothing is
    changed then.

    Args:
        path: Of the file; None keeps all in memory.
    """

    db: sqlite3.Connection
    """The connection: there within `reading` and `transaction`."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self.openings = 0
        """How often the file was opened: earlier readings belong to another opening."""
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._close: Callable[[], object] = bool  # closes `_db`, also when this is garbage
        self._identity: object = None
        self._pid = os.getpid()
        self._depth = 0
        self._memory: tuple[object, dict[object, Any]] = None, {}  # readings, while nothing changes
        self._held = 0  # postings in it
        self._version: object = None  # of the file, as this transaction sees it

    def close(self) -> None:
        """Close the file; the next call opens it again. What is in memory alone is gone."""
        self._renew_after_fork()
        with self._lock:
            self._close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and (self._depth or self._identify() == self._identity):
            return self._db
        self._close()  # another process began it again, or the file was deleted
        self._db, self._memory = self._connect(), (None, {})  # another connection may have the same id
        self._close = weakref.finalize(self, _close_unless_forked, self._db, self._pid)
        self._identity = self._identify()
        self.openings += 1
        return self._db

    def _renew_after_fork(self) -> None:
        if self._pid != os.getpid():
            _INHERITED.append(self._db)
            self._pid, self._lock, self._db, self._depth = os.getpid(), threading.RLock(), None, 0

    def _identify(self) -> object:
        with contextlib.suppress(OSError):
            status = os.stat(self.path or "")
            return status.st_dev, status.st_ino
        return None

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # an existing one is not opened: closing it would drop its locks
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        place = self.path or ":memory:"
        db = sqlite3.connect(place, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _begin_again(self, error: sqlite3.DatabaseError) -> None:
        """Put an empty file in the place of a damaged one; what another process has put there stays."""
        self._close()
        self._db, self._depth = None, 0
        for ending in ("", "-journal", "-wal", "-shm") if getattr(error, "sqlite_errorcode", 0) != _MOVED else ():
            with contextlib.suppress(FileNotFoundError):
                if self.path is not None:
                    os.remove(self.path + ending)

    @contextlib.contextmanager
    def _using(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Hold a transaction: either all writes in it are kept, or none."""
        self._renew_after_fork()
        with self._lock:
            try:
                db = self._open()
                if self._depth:
                    yield db
                    return
                db.execute(begin)
                self.db, self._depth, self._version = db, 1, None
                try:
                    yield db
                    db.execute("commit")
                except BaseException:
                    self._memory = None, {}  # `total_changes` counts rolled back changes, too
                    with contextlib.suppress(sqlite3.Error):
                        db.execute("rollback")
                    raise
                finally:
                    self._depth = 0
                    self.__dict__.pop("db", None)  # a fork within may have dropped it
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._begin_again(error)
                raise LostIndexError(f"{type(error).__name__}: {error}") from error

    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Hold everything that is put, removed and set within together: all of it is kept, or nothing."""
        return self._using("begin immediate")

    def reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Hold the index as it is while several things are read."""
        return self._using("begin")

    def scrub(self) -> bool:
        """Write the file again, so that no byte of removed texts is in it; False where that cannot be done now.

        `secure_delete` overwrites a row where it is, and a page that was split keeps copies of the rows that moved.
        Cost: 5 ms a megabyte, and memory for a copy of the file.
        """
        self._renew_after_fork()
        with self._lock, contextlib.suppress(sqlite3.Error, MemoryError):
            self._open().execute("vacuum")
            return True
        return False
