"""`Rows` in PostgreSQL: the tables, and the statements on them.

Not used, since not all that speaks PostgreSQL has them, or has them as PostgreSQL does: LISTEN and NOTIFY, advisory
locks, sequences, partial indexes, triggers, statements within WITH that change data. `tree_id` is in every key, so a
cluster can be divided by it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from ..keyword_tree import StoreError
from .connections import Connection, Pool
from .port import Place, StatePart
from .rows import Batch, Mark, NotSentError, UnansweredError, UnkeptError

__all__ = ["FORMAT", "PIECE", "PostgresRows", "create_tables"]

T = TypeVar("T")

FORMAT = 1
"""Of the tables; those of a newer one are refused."""
PIECE = 256 * 1024
"""Bytes of a piece; the same in every version, since a place tells in which one it lies."""

# Names in collation C: another collation may change with the operating system, and the order of an index with it.
# kt_batch.lines as bytea: jsonb refuses \u0000 and changes the order, text depends on encodings.
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS kt_format (format int PRIMARY KEY)""",
    """CREATE TABLE IF NOT EXISTS kt_tree (
        tree_id text COLLATE "C" PRIMARY KEY, log_id text NOT NULL, made_at timestamptz NOT NULL DEFAULT now())""",
    """CREATE TABLE IF NOT EXISTS kt_batch (
        tree_id text COLLATE "C", after bigint, upto bigint NOT NULL, crc text NOT NULL, lines bytea NOT NULL,
        pieces text NOT NULL, size bigint NOT NULL, PRIMARY KEY (tree_id, after))""",
    """CREATE TABLE IF NOT EXISTS kt_piece (
        tree_id text COLLATE "C", id text COLLATE "C", part int, bytes bytea NOT NULL,
        PRIMARY KEY (tree_id, id, part))""",
    """CREATE TABLE IF NOT EXISTS kt_mark (
        tree_id text COLLATE "C", seq bigint, after bigint NOT NULL, crc text NOT NULL, next_ordinal bigint NOT NULL,
        parts int NOT NULL, size bigint NOT NULL, is_full boolean NOT NULL, digest text NOT NULL,
        PRIMARY KEY (tree_id, seq))""",
    """CREATE TABLE IF NOT EXISTS kt_state (
        tree_id text COLLATE "C", seq bigint, part int, kind int NOT NULL, rows bytea NOT NULL, places text NOT NULL,
        PRIMARY KEY (tree_id, seq, part))""",
    """CREATE TABLE IF NOT EXISTS kt_snapshot (
        tree_id text COLLATE "C", name text COLLATE "C", seq bigint NOT NULL, PRIMARY KEY (tree_id, name))""",
)
_TABLES = ("kt_batch", "kt_piece", "kt_mark", "kt_state", "kt_snapshot", "kt_tree")
_READ_FORMAT = "SELECT format FROM kt_format ORDER BY format DESC LIMIT 1"

# The whole promise is in this statement: at most one batch can follow a point (the key), it follows what its writer
# has read (the checksum), and that cannot be taken away meanwhile (the lock on its row).
_APPEND = """
    INSERT INTO kt_batch (tree_id, after, upto, crc, lines, pieces, size)
    SELECT tree_id, %s, %s, %s, %s, %s, %s FROM kt_batch WHERE tree_id = %s AND after = %s AND crc = %s FOR KEY SHARE
    ON CONFLICT DO NOTHING"""
_INSERT = """
    INSERT INTO kt_batch (tree_id, after, upto, crc, lines, pieces, size) VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_READ = """
    SELECT after, upto, crc, CASE WHEN after = %s THEN ''::bytea ELSE lines END, pieces, size FROM kt_batch
    WHERE tree_id = %s AND after >= %s ORDER BY after LIMIT %s"""
_READ_BACK = """
    SELECT after, upto, crc, lines, pieces, size FROM kt_batch
    WHERE tree_id = %s AND after < %s AND (%s::bytea IS NULL OR pieces <> '' OR position(%s::bytea IN lines) > 0)
    ORDER BY after DESC LIMIT %s"""
_TAKE_TURN = "SELECT 1 FROM kt_tree WHERE tree_id = %s FOR UPDATE"
_PARTS = "SELECT kind, rows, places FROM kt_state WHERE tree_id = %s AND seq = %s ORDER BY part"
_MARK = """
    INSERT INTO kt_mark (tree_id, seq, after, crc, next_ordinal, parts, size, is_full, digest)
    SELECT tree_id, %s, after, crc, %s, -1, 0, %s, '' FROM kt_batch WHERE tree_id = %s AND after = %s AND crc = %s
    FOR KEY SHARE ON CONFLICT DO NOTHING"""
_MARKS = """
    SELECT seq, after, crc, next_ordinal, parts, size, is_full FROM kt_mark WHERE tree_id = %s ORDER BY seq DESC"""
_FINISH_MARK = "UPDATE kt_mark SET parts = %s, size = %s, digest = %s WHERE tree_id = %s AND seq = %s"
_DIGEST = """
    SELECT m.parts = count(s.part) AND m.digest = encode(sha256(coalesce(string_agg(
            sha256(s.rows) || sha256(convert_to(s.kind || s.places, 'UTF8')), ''::bytea ORDER BY s.part
        ), ''::bytea)), 'hex')
    FROM kt_mark m LEFT JOIN kt_state s ON s.tree_id = m.tree_id AND s.seq = m.seq
    WHERE m.tree_id = %s AND m.seq = %s GROUP BY m.parts, m.digest"""
_SNAPSHOT = """
    INSERT INTO kt_snapshot (tree_id, name, seq) SELECT tree_id, %s, %s FROM kt_batch
    WHERE tree_id = %s AND after = %s AND crc = %s FOR KEY SHARE ON CONFLICT DO NOTHING"""
_UNKEPT = """
    SELECT count(*) FROM kt_snapshot n WHERE tree_id = %s AND NOT EXISTS (
        SELECT FROM kt_mark m WHERE m.tree_id = n.tree_id AND m.seq = n.seq AND m.is_full)"""
_NEWS = """
    SELECT k.number - 1
    FROM unnest(%s::text[], %s::bigint[], %s::text[]) WITH ORDINALITY AS k(tree_id, after, crc, number)
    WHERE NOT EXISTS (SELECT FROM kt_batch b WHERE b.tree_id = k.tree_id AND b.after = k.after AND b.crc = k.crc)
        OR EXISTS (SELECT FROM kt_batch b WHERE b.tree_id = k.tree_id AND b.after > k.after)
    ORDER BY 1"""


class PostgresRows:
    """`Rows` over a pool of connections."""

    def __init__(self, pool: Pool) -> None:
        self.patience = pool.patience
        self._pool = pool
        self._is_known = False  # whether the tables' format was looked at
        self._own = threading.local()  # `connection`, while this thread reads in peace, or has its turn

    # -- running statements ---------------------------------------------------

    def _once(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        """Use a connection for something that may not be tried twice: that of this thread's turn, or any."""
        self._check_format()
        return self._on_any(work, is_long)

    def _on_any(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        own = self._own_connection()
        return self._pool.run(work, is_long) if own is None else self._pool.use(own, work, is_long)

    def _own_connection(self) -> Connection | None:
        """Return the connection that this thread holds."""
        own: Connection | None = getattr(self._own, "connection", None)
        if own is not None and own.closed:  # lost: others may have its place, this thread among them
            self._own.connection = None
            self._pool.give_back(own)
            own = None
        return own

    def _ask(self, work: Callable[[Connection], T], until: float | None = None, is_long: bool = False) -> T:
        """Use a connection for something that may be tried again, as long as patience lasts."""
        end = time.monotonic() + self.patience if until is None else until
        pause = 0.01
        while True:
            try:
                return self._once(work, is_long)
            except (UnansweredError, NotSentError) as error:
                problem: StoreError = error
            if time.monotonic() + pause > end:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _fetch(
        self, statement: str, values: Sequence[Any], until: float | None = None, is_long: bool = False
    ) -> list[tuple[Any, ...]]:
        return self._ask(lambda connection: _run(connection, statement, values).fetchall(), until, is_long)

    def _stream(self, statement: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield rows as they arrive; one try."""
        own = self._own_connection()
        connection = own or self._pool.take()
        rows = connection.cursor(binary=True).stream(statement.encode(), values, binary=True)
        try:
            while (row := self._pool.use(connection, lambda _: next(rows, None))) is not None:
                yield row
        finally:
            if connection.info.transaction_status == TransactionStatus.ACTIVE:  # nobody wants the rest
                connection.close()
            if own is None:
                self._pool.give_back(connection)

    def _check_format(self) -> None:
        if self._is_known:
            return
        row = self._on_any(lambda connection: _run(connection, _READ_FORMAT, ()).fetchone())
        found = 0 if row is None else row[0]
        if found != FORMAT:
            hint = "use a newer version of the library" if found > FORMAT else "run setup"
            raise StoreError(f"the tables have format {found}, this version reads and writes {FORMAT}: {hint}")
        self._is_known = True

    # -- the log --------------------------------------------------------------

    def log_id(self, tree_id: str) -> str | None:
        """Return what tells this log from another one that had the name before; None where there is none."""
        found = self._fetch("SELECT log_id FROM kt_tree WHERE tree_id = %s", (tree_id,))
        return found[0][0] if found else None

    def is_readonly(self) -> bool:
        """Tell whether the server takes no writes now."""
        asked = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"
        return bool(self._fetch(asked, ())[0][0])

    def create(self, tree_id: str, log_id: str, batches: Iterable[Batch]) -> bool:
        """Begin a log, if there is none."""

        def work(connection: Connection) -> bool:
            connection.execute("BEGIN")
            made = "INSERT INTO kt_tree (tree_id, log_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
            if not _run(connection, made, (tree_id, log_id)).rowcount:
                connection.execute("ROLLBACK")
                found = _run(connection, "SELECT log_id FROM kt_tree WHERE tree_id = %s", (tree_id,)).fetchone()
                return found is not None and found[0] == log_id
            for batch in batches:
                self._insert_pieces(connection, tree_id, batch)
                _run(connection, _INSERT, (tree_id, *_columns(batch)))
            connection.execute("COMMIT")
            _refuse_warned(connection)
            return True

        return self._once(work, is_long=True)

    def read(self, tree_id: str, after: int, known: int, limit: int, until: float | None = None) -> list[Batch]:
        """Return the first batches with `after` or a larger key, in order."""
        return list(map(_batch, self._fetch(_READ, (known, tree_id, after, limit), until)))

    def read_back(self, tree_id: str, below: int, limit: int, holding: bytes = b"") -> list[Batch]:
        """Return the last batches with keys below, newest first: those that may hold these bytes."""
        held = holding or None
        return list(map(_batch, self._fetch(_READ_BACK, (tree_id, below, held, held, limit), is_long=bool(held))))

    def read_bytes(self, tree_id: str, after: int, start: int, length: int) -> bytes | None:
        """Return some bytes of a batch's lines."""
        asked = "SELECT substring(lines FROM %s FOR %s), pieces FROM kt_batch WHERE tree_id = %s AND after = %s"
        found = self._fetch(asked, (start + 1, length, tree_id, after))
        if not found or not found[0][1]:
            return found[0][0] if found else None
        first, last = start // PIECE, (start + length - 1) // PIECE
        asked = "SELECT bytes FROM kt_piece WHERE tree_id = %s AND id = %s AND part BETWEEN %s AND %s ORDER BY part"
        parts = self._fetch(asked, (tree_id, found[0][1], first, last))
        return b"".join(part for (part,) in parts)[start - first * PIECE :][:length] if parts else None

    def append(self, tree_id: str, behind: tuple[int, bytes], batch: Batch) -> bool:
        """Put a batch behind another one, in one statement."""
        values = (*_columns(batch), tree_id, behind[0], behind[1].decode())

        def work(connection: Connection) -> bool:
            is_turn = connection is getattr(self._own, "connection", None)
            if batch.pieces:
                if not is_turn:
                    connection.execute("BEGIN")
                self._insert_pieces(connection, tree_id, batch)
                is_in = _run(connection, _APPEND, values).rowcount == 1
                connection.execute("COMMIT" if is_in else "ROLLBACK")
            elif is_turn:
                is_in = _run_all(connection, (_APPEND, values), ("COMMIT", ()))[0].rowcount == 1
            else:
                is_in = _run(connection, _APPEND, values).rowcount == 1
            _refuse_warned(connection)
            return is_in

        return self._once(work)

    def _insert_pieces(self, connection: Connection, tree_id: str, batch: Batch) -> None:
        for part, start in enumerate(range(0, batch.size if batch.pieces else 0, PIECE)):
            made = "INSERT INTO kt_piece (tree_id, id, part, bytes) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            _run(connection, made, (tree_id, batch.pieces, part, batch.lines[start : start + PIECE]))

    def settle(self, tree_id: str) -> None:
        """Return when what is visible now is where a commit waits for it to be: on a synchronous standby, say.

        What a crash interrupted can be visible before. A commit of one's own, even of a lock, waits for all before it.
        """

        def work(connection: Connection) -> None:
            _run(connection, _TAKE_TURN, (tree_id,))
            _refuse_warned(connection)

        self._once(work)

    def replace(self, tree_id: str, behind: tuple[int, bytes], batches: Sequence[Batch]) -> bool:
        """Put batches in place of all that was before."""
        anchor = (tree_id, behind[0], behind[1].decode())

        def work(connection: Connection) -> bool:
            connection.execute("BEGIN")
            # Those who are about to append behind this one go first, or wait.
            _run(connection, "SELECT 1 FROM kt_batch WHERE tree_id = %s AND after = %s AND crc = %s FOR UPDATE", anchor)
            for number, batch in enumerate(batches):
                self._insert_pieces(connection, tree_id, batch)
                if number:
                    _run(connection, _INSERT, (tree_id, *_columns(batch)))
                elif not _run(connection, _APPEND, (*_columns(batch), *anchor)).rowcount:
                    connection.execute("ROLLBACK")
                    return False
            self._forget(connection, tree_id, batches)
            connection.execute("COMMIT")
            _refuse_warned(connection)
            return True

        return self._once(work, is_long=True)

    def _forget(self, connection: Connection, tree_id: str, batches: Sequence[Batch]) -> None:
        _run(connection, "DELETE FROM kt_batch WHERE tree_id = %s AND after < %s", (tree_id, batches[0].after))
        kept = [batch.pieces for batch in batches if batch.pieces]
        _run(connection, "DELETE FROM kt_piece WHERE tree_id = %s AND NOT id = ANY(%s::text[])", (tree_id, kept))
        # Only now: whoever takes a snapshot, or writes a state, holds the batch that it is of.
        unkept = _run(connection, _UNKEPT, (tree_id,)).fetchone()
        if unkept and unkept[0]:
            raise UnkeptError("a snapshot has no full state")
        needed = "(SELECT seq FROM kt_snapshot n WHERE n.tree_id = %s)"
        for table in ("kt_mark", "kt_state"):
            _run(connection, f"DELETE FROM {table} WHERE tree_id = %s AND seq NOT IN {needed}", (tree_id, tree_id))

    # -- a thread's own connection ------------------------------------------------

    def queue(self, tree_id: str) -> contextlib.AbstractContextManager[None]:
        """Hold the lock on the tree's row."""

        def begin(connection: Connection) -> None:
            wait = "SET LOCAL lock_timeout = '1s'"
            _run_all(connection, ("BEGIN", ()), (wait, ()), (_TAKE_TURN, (tree_id,)))

        return self._owning(begin)

    def still(self) -> contextlib.AbstractContextManager[None]:
        """Read in one transaction that sees nothing that is committed later."""
        return self._owning(lambda connection: connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))

    @contextlib.contextmanager
    def _owning(self, begin: Callable[[Connection], object]) -> Iterator[None]:
        if getattr(self._own, "connection", None) is not None:
            yield
            return
        connection = None
        with contextlib.suppress(UnansweredError, NotSentError):  # each statement will see for itself
            self._check_format()
            connection = self._pool.take()
        self._own.connection = connection
        try:
            if connection is not None:
                with contextlib.suppress(UnansweredError, NotSentError):
                    self._pool.use(connection, begin)
            yield
        finally:
            if connection is not None and self._own.connection is connection:
                self._own.connection = None
                with contextlib.suppress(psycopg.Error):
                    if not connection.closed:
                        connection.execute("ROLLBACK")
                self._pool.give_back(connection)

    # -- states ---------------------------------------------------------------

    def marks(self, tree_id: str) -> list[Mark]:
        """Return the marks, newest first."""
        found = self._fetch(_MARKS, (tree_id,))
        return [Mark(seq, after, crc.encode(), *counts) for seq, after, crc, *counts in found]

    def is_whole(self, tree_id: str, seq: int) -> bool:
        """Tell whether a state's parts are all there, and undamaged; the server computes it."""
        found = self._fetch(_DIGEST, (tree_id, seq), is_long=True)
        return bool(found and found[0][0])

    def read_parts(self, tree_id: str, seq: int, count: int) -> Iterator[StatePart]:
        """Yield the parts of a state; the server sends the next ones while the caller is busy with one."""
        number = 0
        with contextlib.suppress(UnansweredError, NotSentError):
            for row in self._stream(_PARTS, (tree_id, seq)):
                yield _part(row)
                number += 1
        for missing in range(number, count):  # one by one, each tried again
            found = self._fetch(f"{_PARTS} OFFSET %s LIMIT 1", (tree_id, seq, missing))
            if not found:
                raise StoreError(f"the state at operation {seq} was taken away meanwhile: try again")
            yield _part(found[0])

    def read_part_bytes(self, tree_id: str, seq: int, part: int, start: int, length: int) -> bytes | None:
        """Return some bytes of a part's rows."""
        asked = "SELECT substring(rows FROM %s FOR %s) FROM kt_state WHERE tree_id = %s AND seq = %s AND part = %s"
        found = self._fetch(asked, (start + 1, length, tree_id, seq, part))
        return found[0][0] if found else None

    def write_state(self, tree_id: str, mark: Mark, parts: Iterable[StatePart]) -> bool:
        """Keep a state, in one transaction: a mark first, which holds others off, its parts, and what they come to."""

        def work(connection: Connection) -> bool:
            connection.execute("BEGIN")
            values = (mark.seq, mark.next_ordinal, mark.is_full, tree_id, mark.after, mark.crc.decode())
            if not _run(connection, _MARK, values).rowcount:
                connection.execute("ROLLBACK")
                return False
            digest, number, size = hashlib.sha256(), 0, 0
            made = "INSERT INTO kt_state (tree_id, seq, part, kind, rows, places) VALUES (%s, %s, %s, %s, %s, %s)"
            for number, part in enumerate(parts, 1):
                rows, places = b"\n".join(part.rows), json.dumps(part.places)
                _run(connection, made, (tree_id, mark.seq, number - 1, part.kind, rows, places))
                digest.update(hashlib.sha256(rows).digest())
                digest.update(hashlib.sha256(f"{part.kind}{places}".encode()).digest())
                size += len(rows)
            _run(connection, _FINISH_MARK, (number, size, digest.hexdigest(), tree_id, mark.seq))
            connection.execute("COMMIT")
            return True

        return self._once(work, is_long=True)

    def drop_states(self, tree_id: str, seqs: Iterable[int]) -> None:
        """Take states away."""
        gone = list(seqs)
        for table in ("kt_mark", "kt_state") if gone else ():  # in this order: a mark without its parts would be damage
            statement = f"DELETE FROM {table} WHERE tree_id = %s AND seq = ANY(%s::bigint[])"
            self._ask(partial(_run, statement=statement, values=(tree_id, gone)), is_long=True)

    def bytes_since(self, tree_id: str, after: int) -> int:
        """Return how many bytes of lines lie behind a batch."""
        asked = "SELECT coalesce(sum(size), 0)::bigint FROM kt_batch WHERE tree_id = %s AND after > %s"
        return int(self._fetch(asked, (tree_id, after))[0][0])

    # -- snapshots, and all trees -----------------------------------------------------

    def add_snapshot(self, tree_id: str, name: str, seq: int, behind: tuple[int, bytes]) -> bool:
        """Keep a name for an operation."""
        values = (name, seq, tree_id, behind[0], behind[1].decode())
        if self._ask(lambda connection: _run(connection, _SNAPSHOT, values).rowcount):
            return True
        taken = self.snapshots(tree_id)
        if name not in taken:
            raise StoreError("the log has changed meanwhile, no snapshot was made: try again")
        return taken[name] == seq  # of a first try whose answer was lost; or the same, taken in the same microsecond

    def snapshots(self, tree_id: str) -> dict[str, int]:
        """Return the operation of each snapshot, by name."""
        return dict(self._fetch("SELECT name, seq FROM kt_snapshot WHERE tree_id = %s", (tree_id,)))

    def sizes(self, tree_id: str) -> dict[str, int]:
        """Return how many bytes lie in each table for a tree."""
        asked = """SELECT (SELECT coalesce(sum(size), 0)::bigint FROM kt_batch WHERE tree_id = %s),
            (SELECT coalesce(sum(size), 0)::bigint FROM kt_mark WHERE tree_id = %s)"""
        lines, states = self._fetch(asked, (tree_id, tree_id))[0]
        return {"kt_batch": lines, "kt_state": states}

    def find_news(self, known: Sequence[tuple[str, int, bytes]]) -> list[int]:
        """Return the indexes of the logs that have changed."""
        columns = ([each[0] for each in known], [each[1] for each in known], [each[2].decode() for each in known])
        return [index for (index,) in self._fetch(_NEWS, columns)]

    def trees(self) -> list[str]:
        """Return the ids of all trees, in order."""
        return [tree_id for (tree_id,) in self._fetch("SELECT tree_id FROM kt_tree ORDER BY tree_id", ())]

    def remove(self, tree_id: str) -> bool:
        """Take a tree away, and all that belongs to it."""
        was_there = False

        def work(connection: Connection) -> None:
            nonlocal was_there
            connection.execute("BEGIN")
            was_there |= _run(connection, _TAKE_TURN, (tree_id,)).rowcount > 0
            for table in _TABLES:
                _run(connection, f"DELETE FROM {table} WHERE tree_id = %s", (tree_id,))
            connection.execute("COMMIT")

        self._ask(work, is_long=True)
        return was_there


def create_tables(pool: Pool) -> None:
    """Make the tables that are not there.

    Raises:
        StoreError: they are there in another format, or the role may not make them.
    """

    def work(connection: Connection) -> int:
        for statement in _SCHEMA:
            connection.execute(statement.encode())
        connection.execute("INSERT INTO kt_format SELECT %s WHERE NOT EXISTS (SELECT FROM kt_format)", (FORMAT,))
        row = connection.execute(_READ_FORMAT).fetchone()
        for asked in (_READ, _READ_BACK, _MARKS, _DIGEST, _NEWS, _UNKEPT):
            connection.execute(f"EXPLAIN {asked}".replace("%s", "NULL").encode())
        return 0 if row is None else int(row[0])

    for attempt in range(5):
        try:
            found = pool.run(work)
            break
        except NotSentError:
            raise
        except StoreError as error:  # two who make the same table at once: one of them is told that it is there
            if attempt == 4 or not any(code in str(error) for code in ("23505", "42P07", "42710", "XX000", "40001")):
                raise
            time.sleep(0.05)
    if found != FORMAT:
        raise StoreError(f"the tables have format {found}, this version makes {FORMAT}: use the version that made them")


def _run(connection: Connection, statement: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
    prepare = None if connection.prepare_threshold is None else True
    return connection.execute(statement.encode(), values, binary=True, prepare=prepare)


def _run_all(connection: Connection, *statements: tuple[str, Sequence[Any]]) -> list[psycopg.Cursor[Any]]:
    """Run statements in one round trip."""
    cursors: list[psycopg.Cursor[Any]] = []
    problem = None
    with connection.pipeline():
        try:
            cursors += [_run(connection, statement, values) for statement, values in statements]
        except psycopg.Error as error:
            problem = error  # raised within, psycopg would log it, and name the server
    if problem is not None:
        raise problem
    return cursors


def _refuse_warned(connection: Connection) -> None:
    # An operator who cancels a commit that waits for its standby leaves it committed here alone, with a warning.
    if connection.is_warned:
        raise UnansweredError("the server warned: what was committed may not be on a standby")


def _columns(batch: Batch) -> tuple[int, int, str, bytes, str, int]:
    lines = b"" if batch.pieces else batch.lines
    return batch.after, batch.upto, batch.crc.decode(), lines, batch.pieces, batch.size


def _part(row: tuple[Any, ...]) -> StatePart:
    kind, rows, places = row
    return StatePart(kind, rows.split(b"\n"), [(index, Place(*place)) for index, place in json.loads(places)])


def _batch(row: tuple[Any, ...]) -> Batch:
    after, upto, crc, lines, pieces, size = row
    return Batch(after, upto, crc.encode(), lines, pieces, size)
