"""`.ctx/journal.db`: write-ahead log of the files, last state of each node, and outbox, in one sqlite3 file.

    commits    one row for each: sequence, id, name, state, boot id, who, when, the write plans
    changes    its steps in order, a row for each node: its files before and after, deflated, and where it has moved
    unsynced   what was said in a new archive, until its file lasts: then that has it, and the change its digest
    nodes      each node as it was last written: sequence, version, digest of its files ("" is a tombstone)
    outbox     where the index has to look
    counters   the last sequence, which is never given twice

A commit is `logged` once its row is synced: from here on it has happened. `applied`: its files are written, not synced.
`synced`: a sync of the file system came after. What a crash left `logged` is done again from the images here (see
`redo`); so is what was `applied` before a start of the machine, or a failed sync: it is `logged` again.

A transaction is synced itself (FULL), or by the next one that is (NORMAL). Automatic checkpoints are off; ours run
under the store's lock, since SQLite before 3.51.3 can corrupt a WAL when two race. No connection crosses a fork.
"""

import contextlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from ...base.forks import watch_forks
from ...base.text import file_digest, to_json
from ..core.config import FILES, MESSAGES, META
from ..core.errors import StoreCorruptError, StoreError
from ..core.objects import OutboxEvent

_SETTINGS = (
    "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;"
    " PRAGMA secure_delete = ON"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commits(
    sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, state TEXT NOT NULL, boot TEXT NOT NULL,
    author TEXT NOT NULL, at REAL NOT NULL, plans TEXT NOT NULL, bytes INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS commits_open ON commits(state) WHERE state <> 'synced';
CREATE TABLE IF NOT EXISTS changes(
    number INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, uri TEXT NOT NULL, moved_to TEXT, images BLOB);
CREATE INDEX IF NOT EXISTS changes_of ON changes(sequence);
CREATE INDEX IF NOT EXISTS changes_at ON changes(uri, sequence);
CREATE INDEX IF NOT EXISTS changes_moves ON changes(sequence) WHERE moved_to IS NOT NULL;
CREATE TABLE IF NOT EXISTS unsynced(sequence INTEGER NOT NULL, uri TEXT NOT NULL, image BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS nodes(
    uri TEXT PRIMARY KEY, sequence INTEGER NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox(
    number INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, event_type TEXT NOT NULL, uri TEXT NOT NULL,
    payload TEXT NOT NULL, status TEXT NOT NULL, retry_count INTEGER NOT NULL DEFAULT 0, created_at REAL NOT NULL,
    sequence INTEGER NOT NULL, due_at REAL NOT NULL, worker_id TEXT NOT NULL DEFAULT '', lease_until REAL,
    error TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS outbox_open ON outbox(status, due_at) WHERE status <> 'done';
CREATE TABLE IF NOT EXISTS reports(at REAL NOT NULL, uri TEXT NOT NULL, text TEXT NOT NULL);
"""

_DOUBT = "UPDATE commits SET state = 'logged' WHERE state = 'applied'"
_DAMAGED = "the journal is damaged, `repair` sets it aside"

Files: TypeAlias = Mapping[str, bytes | None]
"""Some files of a node; None is no file."""


class Change(NamedTuple):
    """What a commit changes of one node: its files, before and after, and its new place where it has moved."""

    uri: str
    before: Files
    after: Files
    """Without those that the journal has given up: then the file alone has it."""
    moved_to: str = ""
    digests: Mapping[str, str] = MappingProxyType({})
    """Of files that the journal gives up once they are synced."""

    def has_made(self, file: str, present: bytes | None) -> bool:
        """Whether the content of a file is the result of this change."""
        if file in self.digests and present is not None:
            return file_digest(present) == self.digests[file]
        return present == self.after.get(file)


_SCAFFOLD = (
    b'[["messages.jsonl", null, ""], [".abstract.md", null, ], [".overview.md", null, ], ["content.md", null, ],'
    b' [".relations.json", null, 3], [".meta.json", null, ]]\n'
    b'[]\n{\n "format": 1,\n "uri": "ctx:///users//memories/sessions/preferences/entities/",\n'
    b' "version": 1,\n "sequence": ,\n "type": "memory",\n "category": "session",\n'
    b' "owner_space": "user:",\n "title": "",\n "aliases": [],\n "confirmed": [],\n'
    b' "created_at": "2026-01-01T00:00:00Z",\n "updated_at": "2026-01-01T00:00:00Z",\n "source_refs": [\n'
    b'  {\n   "archive": "ctx://",\n   "message": "m1"\n  }\n ],\n "digests": {\n  ".abstract.md": "",\n'
    b'  ".overview.md": "",\n  "content.md": "",\n  ".relations.json": "a01c73f4dc4ccec5ce8a5ee9babeaae6",\n'
    b'  "messages.jsonl": ""\n },\n "metadata": {\n  "stats": {\n  }\n }\n}\n'
)
"""The preset dictionary of deflate; it can never change."""


def _pack(before: Files, after: Mapping[str, bytes | str | None]) -> bytes:
    """Return the files of a node as they are kept: their names and lengths, or a digest, then their bytes."""
    head: list[list[str | int | None]] = []
    images: list[bytes] = []
    for file, was in before.items():
        head.append([file])
        for image in (was, after[file]):
            head[-1].append(len(image) if isinstance(image, bytes) else image)
            images += [image] if isinstance(image, bytes) else []
    made = zlib.compressobj(zdict=_SCAFFOLD)
    return made.compress(b"".join([to_json(head).encode(), b"\n", *images])) + made.flush()


def _unpack(uri: str, packed: bytes) -> Change:
    """Return the change that `_pack` packed; damaged bytes are a `StoreCorruptError`: SQLite does not check blobs."""
    with _readable(uri):
        head, _, data = zlib.decompressobj(zdict=_SCAFFOLD).decompress(packed).partition(b"\n")
        found: tuple[dict[str, bytes | None], dict[str, bytes | None]] = {}, {}
        digests: dict[str, str] = {}
        place = 0
        for file, *kept in json.loads(head):
            for images, length in zip(found, kept, strict=True):
                if isinstance(length, str):
                    digests[file] = length
                else:
                    images[file] = None if length is None else data[place : place + length]
                    place += length or 0
        return Change(uri, *found, digests=digests)


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except (zlib.error, ValueError, TypeError) as error:
        raise StoreCorruptError(f"{_DAMAGED}: what changed {what} cannot be read: {error}") from error


class NodeRow(NamedTuple):
    """A node as it was last written."""

    uri: str
    sequence: int
    version: int
    state: str
    """A digest of its files; "" where it was deleted."""


@dataclass
class Commit:
    """One commit, as the journal holds it."""

    sequence: int
    id: str
    name: str
    author: str
    at: float
    plans: list[dict[str, Any]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    """As they will be."""
    events: list[tuple[OutboxEvent, float]] = field(default_factory=list)
    """Events for the index, with their due times; held until the files are written."""
    ends: Sequence[str] = ()
    """Events that it is the end of."""


class Journal:
    """The journal of one store in a file; any number of threads may use it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._abandoned: list[sqlite3.Connection | None] = []  # never closed: that would unlock the parent's
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with a lock of its own; the connection stays the parent's."""
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._abandoned.append(self._connection)
        self._connection = None

    # -- the connection --

    def _connect(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        fresh = not os.path.exists(self.path)
        made = sqlite3.connect(self.path, timeout=60.0, isolation_level=None, check_same_thread=False)
        try:
            if fresh:
                os.chmod(self.path, 0o600)
            made.executescript(_SETTINGS)
            made.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT")
            self._inode = os.stat(self.path).st_ino
        except sqlite3.Error:
            made.close()
            raise
        self._connection = made
        return made

    @contextlib.contextmanager
    def writing(self, synchronous: str = "NORMAL") -> Iterator[sqlite3.Connection]:
        """Run one transaction, whole or not at all; a `StoreError` says that nothing was written."""
        with self._lock, _translated(self.path):
            connection = self._connect()
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a question."""
        with self._lock, _translated(self.path):
            return self._connect().execute(sql, values).fetchall()

    def open(self) -> None:
        """Open the file, and look whether it is one of ours, and whole (`sqlite3.DatabaseError`)."""
        with self._lock:
            connection = self._connect()
            connection.execute("SELECT count(*) FROM counters").fetchall()
            connection.execute("SELECT sequence FROM commits ORDER BY sequence DESC LIMIT 1").fetchall()

    def follow(self) -> None:
        """Open the file again where another process has set the one that is open aside."""
        with self._lock, contextlib.suppress(FileNotFoundError):
            if self._connection is not None and os.stat(self.path).st_ino != self._inode:
                self.close()
                self.open()

    def check(self) -> None:
        """Read the whole file, and raise `sqlite3.DatabaseError` or `StoreCorruptError` where it is damaged."""
        with self._lock:
            connection = self._connect()
            rows = connection.execute("PRAGMA quick_check(1)").fetchall()
            if rows != [("ok",)]:
                raise sqlite3.DatabaseError(str(rows))
            for uri, images in connection.execute("SELECT uri, images FROM changes WHERE images IS NOT NULL"):
                _unpack(uri, images)
            for (id,) in connection.execute("SELECT id FROM commits WHERE NOT json_valid(plans) LIMIT 1"):
                raise sqlite3.DatabaseError(f"the plans of commit {id} cannot be read")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    # -- commits --

    def last_sequence(self) -> int:
        """Return the last sequence that was given."""
        rows = self.query("SELECT value FROM counters WHERE name = 'sequence' AND typeof(value) = 'integer'")
        return int(rows[0][0]) if rows else 0

    def log(self, commit: Commit) -> None:
        """Write a commit and sync it: from here on it has happened."""
        sequence = commit.sequence
        with self.writing("FULL") as connection:
            _set_sequence(connection, sequence)
            # Of the start of the machine and the bytes an earlier version kept count here.
            values = sequence, commit.id, commit.name, "logged", "", commit.author, commit.at, to_json(commit.plans), 0
            connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            for change in commit.changes:
                _put_change(connection, sequence, change)
            connection.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)", commit.nodes)
            for event, due_at in commit.events:
                put_event(connection, event, due_at, "held")
            ends = [(id,) for id in commit.ends]
            connection.executemany("UPDATE outbox SET status = 'done' WHERE event_id = ?", ends)

    def mark_applied(self, sequences: Sequence[int]) -> None:
        """Say that commits are in the files, and let their events go."""
        with self.writing() as connection:
            for sequence in sequences:
                connection.execute("UPDATE commits SET state = 'applied' WHERE sequence = ?", (sequence,))
                sql = "UPDATE outbox SET status = 'pending' WHERE sequence = ? AND status = 'held'"
                connection.execute(sql, (sequence,))

    def unfinished(self) -> list[int]:
        """Return the commits that are logged, and not in the files."""
        return [sequence for (sequence,) in self.query("SELECT sequence FROM commits WHERE state = 'logged'")]

    def changes(self, sequence: int) -> list[Change]:
        """Return the changes of a commit."""
        return self._changes("sequence = ?", sequence)

    def _changes(self, where: str, value: object) -> list[Change]:
        sql = f"SELECT sequence, uri, moved_to, images FROM changes WHERE {where} ORDER BY sequence, number"
        found: list[Change] = []
        for sequence, uri, moved_to, images in self.query(sql, (value,)):
            if images is None:  # a folder that an earlier version moved as a whole
                found.append(Change(uri, {}, {}, moved_to))
                continue
            change = _unpack(uri, images)._replace(moved_to=moved_to or "")
            sql = "SELECT image FROM unsynced WHERE sequence = ? AND uri = ?"
            for (image,) in self.query(sql, (sequence, uri)) if change.digests else ():
                with _readable(uri):
                    change = change._replace(after={**change.after, MESSAGES: zlib.decompress(image)})
            found.append(change)
        return found

    def add_change(self, sequence: int, change: Change) -> None:
        """Add a change to a commit: an edit that was merged while its file was written."""
        with self.writing() as connection:
            _put_change(connection, sequence, change)

    def find_commit(self, commit_id: str) -> Commit | None:
        """Return a commit with its changes, None where none has the id."""
        rows = self.query("SELECT sequence, id, name, author, at, plans FROM commits WHERE id = ?", (commit_id,))
        if not rows:
            return None
        sequence, id, name, author, at, plans = rows[0]
        with _readable(commit_id):
            return Commit(sequence, id, name, author, at, json.loads(plans), self.changes(sequence))

    def images_of(self, uri: str, file: str) -> set[bytes]:
        """Return every image of a file that the journal holds."""
        changes = self._changes("uri = ?", uri)
        return {image for each in changes for files in (each.before, each.after) if (image := files.get(file))}

    def last_images(self, uri: str) -> dict[str, bytes | None]:
        """Return the last written image of each of a node's files, None where the journal has none."""
        found: dict[str, bytes | None] = dict.fromkeys(FILES)
        for change in self._changes("uri = ?", uri):
            found |= change.after
        return {file: image for file, image in found.items() if file != META or image is not None}

    def last_files(self, uri: str) -> dict[str, bytes]:
        """Return each of a node's files as it was last, before it was deleted."""
        found: dict[str, bytes] = {}
        for change in self._changes("uri = ?", uri):
            found |= {file: image for file, was in change.before.items() if (image := was or change.after.get(file))}
        return found

    def mark_synced(self) -> None:
        """Mark all applied commits as synced, and drop done events, since the index is synced, too."""
        with self.writing("FULL") as connection:
            connection.execute("UPDATE commits SET state = 'synced' WHERE state = 'applied'")
            connection.execute(
                "DELETE FROM unsynced WHERE sequence IN (SELECT sequence FROM commits WHERE state = 'synced')"
            )
            connection.execute("DELETE FROM outbox WHERE status = 'done'")

    def waiting(self) -> int:
        """Return how many commits wait for a sync."""
        return int(self.query("SELECT count(*) FROM commits WHERE state <> 'synced'")[0][0])

    def mark_failed(self) -> None:
        """Let the next opening write all again that is not synced: the disk has failed to."""
        with self.writing("FULL") as connection:
            connection.execute(_DOUBT)

    def begin_start(self, boot: str) -> None:
        """Note a start of the machine: what was not synced may be lost in the files, and events in the index."""
        with self.writing() as connection:
            connection.execute(_DOUBT)
            sql = "UPDATE outbox SET status = 'pending', lease_until = NULL WHERE status IN ('done', 'leased')"
            connection.execute(sql)
            connection.execute("DELETE FROM counters WHERE name LIKE 'boot %'")
            connection.execute("INSERT INTO counters VALUES (?, 1)", (f"boot {boot}",))

    def knows_start(self, boot: str) -> bool:
        """Whether a start of the machine was noted; where it does not tell them, each opening may be the first one."""
        return bool(boot and self.query("SELECT 1 FROM counters WHERE name = ?", (f"boot {boot}",)))

    def wal_size(self) -> int:
        """Return how many bytes the WAL has; a file system that can have none has 0."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(f"{self.path}-wal").st_size
        return 0

    def truncate(self) -> None:
        """Copy the WAL into the file and empty it; others that read keep it as it is, and are not waited for."""
        with self._lock, _translated(self.path):
            with contextlib.suppress(sqlite3.OperationalError):  # a worker writes, or the disk is full: another time
                # `execute` would free one page.
                self._connect().executescript("PRAGMA busy_timeout = 100; PRAGMA incremental_vacuum")
            self._empty_wal(100)

    def rewrite(self) -> bool:
        """Rewrite the file, so that no page holds deleted bytes; False where a reader keeps the WAL.

        `secure_delete` overwrites a row where it is, and a page that was split keeps copies of the rows that moved: of
        600 rows in random order two have one, on average, that a delete does not reach. Where a reader keeps the
        WAL, the next checkpoint empties it. Cost: that of the file; a reader is waited for two seconds.
        """
        with self._lock, _translated(self.path):
            self._connect().execute("VACUUM")
            return self._empty_wal(2_000)

    def _empty_wal(self, patience_ms: int) -> bool:
        """Copy the WAL into the file; whether no reader keeps it."""
        connection = self._connect()
        connection.execute(f"PRAGMA busy_timeout = {patience_ms}")
        rows = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("PRAGMA busy_timeout = 60000")
        return not rows[0][0]

    # -- nodes --

    def node(self, uri: str) -> NodeRow | None:
        """Return a node as it was last written."""
        rows = self.query("SELECT uri, sequence, version, state FROM nodes WHERE uri = ?", (uri,))
        return NodeRow(*rows[0]) if rows else None

    def nodes_beneath(self, uri: str) -> list[NodeRow]:
        """Return a node and all under it, as they were last written; tombstones are left out."""
        rows = self.query(
            "SELECT uri, sequence, version, state FROM nodes WHERE (uri = ? OR (uri >= ? AND uri < ?)) AND state <> ''"
            " ORDER BY uri",
            (uri, f"{uri}/", f"{uri}0"),
        )
        return [NodeRow(*row) for row in rows]

    def take_in(self, rows: Sequence[NodeRow], events: Sequence[OutboxEvent], last: int) -> None:
        """Begin with nodes as they are, the events that look at them, and the last sequence that they name."""
        with self.writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)", rows)
            for event in events:
                put_event(connection, event, event.created_at, "pending")
            _set_sequence(connection, last)

    # -- reports --

    def report(self, at: float, uri: str, text: str) -> None:
        """Keep a sentence that `status` reports."""
        with self.writing() as connection:
            connection.execute("INSERT INTO reports VALUES (?, ?, ?)", (at, uri, text))

    def reports(self) -> list[tuple[float, str, str]]:
        """Return all reports, oldest first."""
        return [(row[0], row[1], row[2]) for row in self.query("SELECT at, uri, text FROM reports ORDER BY at")]


def _put_change(connection: sqlite3.Connection, sequence: int, change: Change) -> None:
    after: dict[str, bytes | str | None] = {**change.after}
    image = change.after.get(MESSAGES)
    if image is not None and change.before.get(MESSAGES) is None:  # large, and never changed: kept until it is synced
        connection.execute("INSERT INTO unsynced VALUES (?, ?, ?)", (sequence, change.uri, zlib.compress(image, 1)))
        after[MESSAGES] = file_digest(image)
    sql = "INSERT INTO changes(sequence, uri, moved_to, images) VALUES (?, ?, ?, ?)"
    connection.execute(sql, (sequence, change.uri, change.moved_to or None, _pack(change.before, after)))


def put_event(connection: sqlite3.Connection, event: OutboxEvent, due_at: float, status: str) -> None:
    """Add an event to the outbox."""
    row = (event.event_id, event.event_type, event.uri, to_json(event.payload), status, event.retry_count)
    connection.execute(
        "INSERT INTO outbox(event_id, event_type, uri, payload, status, retry_count, created_at, sequence, due_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, event.created_at, event.sequence, due_at),
    )


def _set_sequence(connection: sqlite3.Connection, least: int) -> None:
    connection.execute(
        "INSERT INTO counters VALUES ('sequence', ?)"
        " ON CONFLICT(name) DO UPDATE SET value = max(value, excluded.value)",
        (least,),
    )


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn sqlite3's errors into the engine's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if (isinstance(error, sqlite3.OperationalError) and not is_damage(error)) or "full" in text:
            raise StoreError(f"the journal cannot be written or read: {text}") from error
        if isinstance(error, sqlite3.ProgrammingError):
            raise StoreError("the store was closed") from error
        raise StoreCorruptError(f"{_DAMAGED}: {text}") from error


def is_damage(error: BaseException) -> bool:
    """Whether sqlite3 says that a file is damaged, or none of its own; a full disk, say, damages nothing."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    # `quick_check` gives sentences and no code.
    return (getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) or 0) & 0xFF in codes
