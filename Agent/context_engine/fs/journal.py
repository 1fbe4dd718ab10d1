"""`.ctx/journal.db`: write-ahead log of the files, last state of each node, and outbox, in one sqlite3 file.

    commits    one row for each: sequence, id, name, state, boot id, who, when, the write plans
    changes    its steps in order, a row for each node: its files before and after, deflated, or a folder's new place
    unsynced   what was said in a new archive, until its file lasts: then that has it, and the change its digest
    nodes      each node as it was last written: sequence, version, digest of its files ("" is a tombstone)
    outbox     where the index has to look
    counters   the last sequence, which is never given twice

A commit is `logged` once its row is synced: from here on it has happened. `applied`: its files are written, not synced.
`synced`: a sync of the file system came after. What a crash left `logged`, or a power cut `applied`, is done again from
the images here (see `redo`).

Two connections: one syncs each transaction (FULL), the other leaves that to the next one that does (NORMAL). Automatic
checkpoints are off; ours run under the store's lock, since SQLite before 3.51.3 can corrupt a WAL when two race. No
connection crosses a fork.
"""

import contextlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import quote

from ...base.forks import watch_forks
from ...base.text import file_digest, to_json
from ..core.config import FILES, MESSAGES, META
from ..core.errors import StoreCorruptError, StoreError
from ..core.objects import OutboxEvent

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

MOVE = ">"
"""The file of a step that moves a folder."""


class Step(NamedTuple):
    """One file of a commit, before and after (None is no file); or a move: `after` is the new URI."""

    uri: str
    file: str
    before: bytes | None
    after: bytes | None
    digest: str = ""
    """That of `after`, where the journal has given it up: then the file alone has it, and `after` is None."""

    def has_made(self, present: bytes | None) -> bool:
        """Whether a content is the result of this step."""
        if self.digest and present is not None:
            return file_digest(present) == self.digest
        return present == self.after


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


def _is_apart(step: Step) -> bool:
    """Whether to keep this image only until it is synced (message files: large and immutable)."""
    return step.file == MESSAGES and step.before is None and step.after is not None


def _pack(steps: Sequence[Step]) -> bytes:
    """Return the files of a node, before and after, as they are kept: their names and lengths, then their bytes."""
    head: list[list[str | int | None]] = []
    images: list[bytes] = []
    for step in steps:
        row: list[str | int | None] = [step.file]
        for image in (step.before, step.digest or step.after):
            if isinstance(image, bytes):
                images.append(image)
            row.append(len(image) if isinstance(image, bytes) else image)
        head.append(row)
    made = zlib.compressobj(zdict=_SCAFFOLD)
    return made.compress(b"".join([to_json(head).encode(), b"\n", *images])) + made.flush()


def _unpack(uri: str, packed: bytes) -> list[Step]:
    """Return the steps that `_pack` packed; damaged bytes raise `DatabaseError`, since SQLite does not check blobs."""
    with _readable(uri):
        head, _, data = zlib.decompressobj(zdict=_SCAFFOLD).decompress(packed).partition(b"\n")
        found: list[Step] = []
        place = 0
        for file, before, after in json.loads(head):
            images: list[bytes | None] = []
            for length in (before, after):
                images.append(data[place : place + length] if isinstance(length, int) else None)
                place += length if isinstance(length, int) else 0
            found.append(Step(uri, file, images[0], images[1], after if isinstance(after, str) else ""))
        return found


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except (zlib.error, ValueError, TypeError) as error:
        raise sqlite3.DatabaseError(f"what changed {what} cannot be read: {error}") from error


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
    state: str = "logged"
    boot: str = ""
    plans: list[dict[str, Any]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    """As they will be."""
    events: list[tuple[OutboxEvent, float]] = field(default_factory=list)
    """Events for the index, with their due times; held until the files are written."""
    ends: Sequence[str] = ()
    """Events that it is the end of."""

    @property
    def size(self) -> int:
        """Bytes of its images."""
        return sum([len(step.before or b"") + len(step.after or b"") for step in self.steps])


class Journal:
    """The journal of one store in a file; any number of threads may use it."""

    def __init__(self, path: str, readonly: bool = False) -> None:
        self.path = path
        self.readonly = readonly
        self._lock = threading.RLock()
        self._connections: dict[str, sqlite3.Connection] = {}
        self._inode = 0
        self._abandoned: list[dict[str, sqlite3.Connection]] = []  # never closed: that would unlock the parent's
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with a lock of its own; the connections stay the parent's."""
        self._lock = threading.RLock()  # another thread of the parent may have held it
        self._abandoned.append(self._connections)
        self._connections = {}

    # -- connections --

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        made = self._connections.get(synchronous)
        if made is None:
            made = self._connections[synchronous] = self._open(synchronous)
        return made

    def _open(self, synchronous: str) -> sqlite3.Connection:
        if self.readonly:
            return self._open_readonly()
        fresh = not os.path.exists(self.path)
        made = sqlite3.connect(self.path, timeout=60.0, isolation_level=None, check_same_thread=False)
        try:
            if fresh:
                os.chmod(self.path, 0o600)
            made.execute("PRAGMA auto_vacuum = INCREMENTAL")
            made.execute("PRAGMA journal_mode = WAL")
            made.execute(f"PRAGMA synchronous = {synchronous}")
            made.execute("PRAGMA wal_autocheckpoint = 0")
            made.execute("PRAGMA secure_delete = ON")
            made.execute("BEGIN IMMEDIATE")
            _prepare(made)
            made.execute("COMMIT")
            self._inode = os.stat(self.path).st_ino
        except sqlite3.Error:
            made.close()
            raise
        return made

    def _open_readonly(self) -> sqlite3.Connection:
        """Open without writing a byte; a journal that is missing or cannot be read is an empty one in memory."""
        wal = f"{self.path}-wal"
        has_wal = os.path.exists(wal) and os.path.getsize(wal) > 0
        for mode in ("mode=ro", "immutable=1") if has_wal else ("immutable=1",):  # which makes no file beside it
            with contextlib.suppress(sqlite3.Error):
                made = sqlite3.connect(f"file:{quote(self.path)}?{mode}", uri=True, check_same_thread=False)
                made.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                return made
        made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _prepare(made)
        if os.path.exists(self.path):
            text = f"the journal at {self.path!r} cannot be read, so there is no history: `repair` sets it aside"
            made.execute("INSERT INTO reports VALUES (0, '', ?)", (text,))
        return made

    @contextlib.contextmanager
    def writing(self, synchronous: str = "NORMAL") -> Iterator[sqlite3.Connection]:
        """Run one transaction, whole or not at all; a `StoreError` says that nothing was written."""
        with self._lock, _translated(self.path):
            connection = self._connect(synchronous)
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
            return self._connect("NORMAL").execute(sql, values).fetchall()

    def open(self) -> None:
        """Open both connections, and look whether the file is one of ours, and whole (`sqlite3.DatabaseError`)."""
        with self._lock:
            connection = self._connect("NORMAL")
            connection.execute("SELECT count(*) FROM counters").fetchall()
            connection.execute("SELECT sequence FROM commits ORDER BY sequence DESC LIMIT 1").fetchall()
            if not self.readonly:
                self._connect("FULL")

    def follow(self) -> None:
        """Open the file again where another process has set the one that is open aside."""
        with self._lock, contextlib.suppress(FileNotFoundError):
            if self._connections and os.stat(self.path).st_ino != self._inode:
                self.close()
                self.open()

    def check(self) -> None:
        """Read the whole file, and raise `sqlite3.DatabaseError` where it is damaged."""
        with self._lock:
            connection = self._connect("NORMAL")
            rows = connection.execute("PRAGMA quick_check(1)").fetchall()
            if rows != [("ok",)]:
                raise sqlite3.DatabaseError(str(rows))
            for uri, images in connection.execute("SELECT uri, images FROM changes WHERE moved_to IS NULL"):
                _unpack(uri, images)
            for (id,) in connection.execute("SELECT id FROM commits WHERE NOT json_valid(plans) LIMIT 1"):
                raise sqlite3.DatabaseError(f"the plans of commit {id} cannot be read")

    def close(self) -> None:
        """Close both connections."""
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections = {}

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
            named = sequence, commit.id, commit.name, "logged", commit.boot, commit.author, commit.at
            values = *named, to_json(commit.plans), commit.size
            connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            _put_steps(connection, sequence, commit.steps)
            for step in commit.steps:
                if step.file == MOVE:
                    _move_nodes(connection, step.uri, (step.after or b"").decode())
            connection.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)", commit.nodes)
            for event, due_at in commit.events:
                put_event(connection, event, due_at, "held")
            ends = [(id,) for id in commit.ends]
            connection.executemany("UPDATE outbox SET status = 'done' WHERE event_id = ?", ends)

    def mark_applied(self, sequences: Sequence[int], boot: str) -> None:
        """Say that commits are in the files, and let their events go."""
        with self.writing() as connection:
            for sequence in sequences:
                connection.execute("UPDATE commits SET state='applied', boot=? WHERE sequence=?", (boot, sequence))
                sql = "UPDATE outbox SET status = 'pending' WHERE sequence = ? AND status = 'held'"
                connection.execute(sql, (sequence,))

    def unfinished(self, boot: str) -> list[Commit]:
        """Return commits to redo: logged ones, and applied ones that a power cut may have taken from the files."""
        rows = self.query(
            "SELECT sequence, id, name, author, at, state, boot FROM commits WHERE state = 'logged'"
            " OR (state = 'applied' AND (boot <> ? OR boot = '')) ORDER BY sequence",
            (boot,),
        )
        return [_commit_of(row, [], self.steps(row[0])) for row in rows]

    def is_behind(self) -> bool:
        """Whether a commit is logged, and not in the files."""
        return bool(self.query("SELECT 1 FROM commits WHERE state = 'logged' LIMIT 1"))

    def steps(self, sequence: int) -> list[Step]:
        """Return the steps of a commit."""
        return self._steps("sequence = ?", sequence)

    def _steps(self, where: str, value: object) -> list[Step]:
        sql = f"SELECT sequence, uri, moved_to, images FROM changes WHERE {where} ORDER BY sequence, number"
        found: list[Step] = []
        for sequence, uri, moved_to, images in self.query(sql, (value,)):
            if moved_to is not None:
                found.append(Step(uri, MOVE, None, moved_to.encode()))
                continue
            with _translated(self.path):
                steps = _unpack(uri, images)
            for step in steps:
                if step.digest:
                    sql = "SELECT image FROM unsynced WHERE sequence = ? AND uri = ?"
                    for (image,) in self.query(sql, (sequence, uri)):
                        with _translated(self.path), _readable(uri):
                            step = step._replace(after=zlib.decompress(image))
                found.append(step)
        return found

    def add_step(self, sequence: int, step: Step) -> None:
        """Add a step to a commit: an edit that was merged while its file was written."""
        with self.writing() as connection:
            _put_steps(connection, sequence, [step])

    def find_commit(self, commit_id: str) -> Commit | None:
        """Return a commit with its steps, None where none has the id."""
        rows = self.query(
            "SELECT sequence, id, name, author, at, state, boot, plans FROM commits WHERE id = ?", (commit_id,)
        )
        if not rows:
            return None
        with _translated(self.path), _readable(commit_id):
            plans = json.loads(rows[0][7])
        return _commit_of(rows[0], plans, self.steps(rows[0][0]))

    def images_of(self, uri: str, file: str) -> set[bytes]:
        """Return every image of a file that the journal holds."""
        steps = self._steps("uri = ?", uri)
        return {image for step in steps if step.file == file for image in (step.before, step.after) if image}

    def last_images(self, uri: str) -> dict[str, bytes | None]:
        """Return the last written image of each of a node's files, None where the journal has none."""
        found: dict[str, bytes | None] = dict.fromkeys(FILES)
        found |= {step.file: step.after for step in self._steps("uri = ?", uri) if step.file != MOVE}
        return {file: image for file, image in found.items() if file != META or image is not None}

    def last_files(self, uri: str) -> dict[str, bytes]:
        """Return each of a node's files as it was last, before it was deleted."""
        images = ((step.file, step.before or step.after) for step in self._steps("uri = ?", uri))
        return {file: image for file, image in images if image is not None and file != MOVE}

    def mark_synced(self) -> None:
        """Mark all applied commits as synced, and drop done events, since the index is synced, too."""
        with self.writing("FULL") as connection:
            connection.execute("UPDATE commits SET state = 'synced' WHERE state = 'applied'")
            connection.execute(
                "DELETE FROM unsynced WHERE sequence IN (SELECT sequence FROM commits WHERE state = 'synced')"
            )
            connection.execute("DELETE FROM outbox WHERE status = 'done'")

    def waiting(self) -> tuple[int, int]:
        """Return how many commits wait for a sync, and how many bytes."""
        rows = self.query("SELECT count(*), coalesce(sum(bytes), 0) FROM commits WHERE state <> 'synced'")
        return int(rows[0][0]), int(rows[0][1])

    def mark_failed(self) -> None:
        """Let the next opening write all again that is not synced: the disk has failed to."""
        with self.writing("FULL") as connection:
            connection.execute("UPDATE commits SET boot = '' WHERE state = 'applied'")

    def revive_events(self) -> None:
        """Revive events done since the last sync: a power cut may have undone them in the index."""
        with self.writing() as connection:
            connection.execute("UPDATE outbox SET status = 'pending' WHERE status = 'done'")
            connection.execute("UPDATE outbox SET status = 'pending', lease_until = NULL WHERE status = 'leased'")

    def sizes(self) -> tuple[int, int]:
        """Return how many bytes the file has, and its WAL."""
        found = []
        for ending in ("", "-wal"):
            try:
                found.append(os.stat(self.path + ending).st_size)
            except FileNotFoundError:
                found.append(0)
        return found[0], found[1]

    def truncate(self) -> None:
        """Copy the WAL into the file and empty it; others that read keep it as it is, and are not waited for."""
        with self._lock, _translated(self.path):
            connection = self._connect("FULL")
            connection.execute("PRAGMA busy_timeout = 100")
            with contextlib.suppress(sqlite3.OperationalError):  # a worker writes, or the disk is full: another time
                connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute("PRAGMA busy_timeout = 60000")

    def rewrite(self) -> bool:
        """Rewrite the file, so that no page holds deleted bytes; False where a reader keeps the WAL.

        `secure_delete` overwrites a row where it is, and a page that was split keeps copies of the rows that moved: of
        600 rows in random order two have one, on average, that a delete does not reach. Where a reader keeps the
        WAL, the next checkpoint empties it. Cost: that of the file; a reader is waited for two seconds.
        """
        with self._lock, _translated(self.path):
            connection = self._connect("FULL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA busy_timeout = 2000")
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


def _commit_of(row: tuple[Any, ...], plans: list[dict[str, Any]], steps: list[Step]) -> Commit:
    return Commit(row[0], row[1], row[2], row[3], row[4], row[5], row[6], plans, steps)


def _put_steps(connection: sqlite3.Connection, sequence: int, steps: Sequence[Step]) -> None:
    sql = "INSERT INTO changes(sequence, uri, moved_to, images) VALUES (?, ?, ?, ?)"
    for uri, group in groupby(steps, itemgetter(0)):
        files: list[Step] = []
        for step in group:
            if step.file == MOVE:
                connection.execute(sql, (sequence, uri, (step.after or b"").decode(), None))
            elif _is_apart(step):
                image, digest = step.after or b"", file_digest(step.after or b"")
                connection.execute("INSERT INTO unsynced VALUES (?, ?, ?)", (sequence, uri, zlib.compress(image, 1)))
                files.append(step._replace(after=None, digest=digest))
            else:
                files.append(step)
        if files:
            connection.execute(sql, (sequence, uri, None, _pack(files)))


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables that are not there."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)


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


def _move_nodes(connection: sqlite3.Connection, uri: str, to: str) -> None:
    under = (to, len(uri) + 1, uri, f"{uri}/", f"{uri}0")
    connection.execute("DELETE FROM nodes WHERE uri = ? OR (uri >= ? AND uri < ?)", (to, f"{to}/", f"{to}0"))
    connection.execute("UPDATE nodes SET uri = ? || substr(uri, ?) WHERE uri = ? OR (uri >= ? AND uri < ?)", under)


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
        raise StoreCorruptError(f"the journal is damaged, `repair` sets it aside: {text}") from error


def is_damage(error: BaseException) -> bool:
    """Whether sqlite3 says that a file is damaged, or none of its own; a full disk, say, damages nothing."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    # `quick_check` gives sentences and no code.
    return (getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) or 0) & 0xFF in codes
