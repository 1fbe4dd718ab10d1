"""The tables of shared trees in PostgreSQL.

    batch      (tree, after)        the log: lines after + 1 … upto, with the checksum of the last
    state      (tree, seq, part)    all rows at one operation, so that opening need not read the whole log
    mark       (tree, seq)          shows that a state is whole
    snapshot   (tree, name)         a name for an operation

The key of a batch is what it follows, so at most one can follow a point. That, and nothing else, is what keeps writers
on many machines apart: see `PostgresRows.append`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..keyword_tree import StoreError
from . import statements as sql
from .connections import FAR_S, Connection, Pool, refuse_warned, run, run_meanwhile, run_together
from .port import Place, StatePart
from .rows import Batch, Mark, UnkeptError
from .vectors import drop_vectors

__all__ = ["LOOK_S", "PIECE", "PostgresRows", "create_tables"]

PIECE = 256 * 1024
"""Bytes of a piece; the same in every version, since a place says in which one it is."""
LOOK_S = 0.01
"""Between guesses of a writer that look whether another waits for its turn: looking takes a lock."""
_PARTS = 4  # of a state, read at once
_NEAR_S = 0.002  # of a round trip: to read in one of its own costs a turn little
_IDLE_S, _LONGEST_IDLE_S = 0.3, 1.0  # without a statement, after which a turn ends: near, and however far away


class PostgresRows:
    """The rows of all trees, over a pool of connections.

    Reading may be tried again, so it is as long as `patience` lasts; then, or where the server cannot be used at all,
    StoreError is raised. What changes the log is tried once: it raises UnansweredError where it may have been carried
    out, NotSentError where it was not, another StoreError where the server refused it.
    """

    def __init__(self, pool: Pool) -> None:
        self.patience = pool.patience
        self._pool = pool

    # -- the log --------------------------------------------------------------

    def log_id(self, tree_id: str) -> str | None:
        """Return what distinguishes this log from another one that had the name before; None where there is none."""
        found = self._pool.fetch("SELECT log_id FROM kt_tree WHERE tree_id = %s", (tree_id,))
        return found[0][0] if found else None

    def is_readonly(self) -> bool:
        """Tell whether the server takes no writes now."""
        asked = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"
        return bool(self._pool.fetch(asked, ())[0][0])

    def create(self, tree_id: str, log_id: str, batches: Iterable[Batch]) -> bool:
        """Begin a log, if there is none; return False where another writer was quicker.

        A second try with the same `log_id` that finds the first one's work returns True.
        """

        def work(connection: Connection) -> bool:
            connection.execute("BEGIN")
            run(connection, sql.DURABLE, ())
            made = "INSERT INTO kt_tree (tree_id, log_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"
            if not run(connection, made, (tree_id, log_id)).rowcount:
                connection.execute("ROLLBACK")
                found = run(connection, "SELECT log_id FROM kt_tree WHERE tree_id = %s", (tree_id,)).fetchone()
                return found is not None and found[0] == log_id
            for batch in batches:
                self._insert_pieces(connection, tree_id, batch)
                run(connection, sql.INSERT, (tree_id, *_columns(batch)))
            connection.execute("COMMIT")
            refuse_warned(connection)
            return True

        self._pool.check_format()
        return self._pool.once(work, is_long=True)

    def read(self, tree_id: str, after: int, known: int, limit: int, until: float | None = None) -> list[Batch]:
        """Return the first batches with `after` or a larger key, in order; without the lines of the one at `known`.

        Args:
            tree_id: the tree.
            after: where to begin.
            known: a key whose lines the caller has; -1 for none.
            limit: how many at most; fewer come only where there are no more, or these have `PAGE_BYTES`.
            until: when to give up, by `time.monotonic()`; None is as long as patience lasts.
        """
        return list(map(_batch, self._pool.fetch(sql.READ, (known, known, tree_id, after, limit), until)))

    def find(self, tree_id: str, keys: Sequence[int]) -> list[Batch]:
        """Return the first batch of all, and those with these keys, without lines."""
        return list(map(_batch, self._pool.fetch(sql.FIND, (tree_id, tree_id, list(keys)))))

    def read_back(self, tree_id: str, below: int, limit: int, holding: bytes = b"") -> list[Batch]:
        """Return the last batches with keys below, newest first: those that may hold these bytes."""
        held = holding or None
        values = (tree_id, below, held, held, limit)
        return list(map(_batch, self._pool.fetch(sql.READ_BACK, values, is_long=bool(held))))

    def read_spans(self, tree_id: str, spans: Sequence[Place]) -> list[bytes | None]:
        """Return some bytes of batches and states, in the order of the spans; None for what is not there any more.

        Cost: a few round trips, however many spans.
        """
        found: list[bytes | None] = [None] * len(spans)
        of_log = [(index, span) for index, span in enumerate(spans) if span.key >= 0]
        of_states = [(index, span) for index, span in enumerate(spans) if span.key < 0]
        if of_log:
            columns = ([span.key for _, span in of_log], *_lengths(of_log), tree_id)
            for number, lines, pieces in self._pool.fetch(sql.LOG_SPANS, columns):
                index, span = of_log[number]
                found[index] = self._read_pieces(tree_id, pieces, span) if pieces else lines
        if of_states:
            keys = [~span.key for _, span in of_states], [span.part for _, span in of_states]
            for number, rows in self._pool.fetch(sql.STATE_SPANS, (*keys, *_lengths(of_states), tree_id)):
                found[of_states[number][0]] = rows
        return found

    def _read_pieces(self, tree_id: str, id: str, span: Place) -> bytes | None:
        first, last = span.start // PIECE, (span.start + span.length - 1) // PIECE
        asked = "SELECT bytes FROM kt_piece WHERE tree_id = %s AND id = %s AND part BETWEEN %s AND %s ORDER BY part"
        parts = self._pool.fetch(asked, (tree_id, id, first, last))
        return b"".join(part for (part,) in parts)[span.start - first * PIECE :][: span.length] if parts else None

    def append(self, tree_id: str, behind: tuple[int, bytes], batch: Batch, yields: bool = False) -> bool:
        """Put a batch behind the one with this key and checksum; return False where that, or the place, is gone.

        One try, all or nothing, durable. A second one with the same batch cannot get in beside the first: it waits
        until that is decided. One that `yields` also returns False while another writer has its turn.
        """
        statement = sql.YIELDING if yields else sql.APPEND
        values = (*_columns(batch), tree_id, behind[0], behind[1].decode())

        def work(connection: Connection) -> bool:
            is_turn = connection is self._pool.own_connection()
            if batch.pieces:
                if not is_turn:
                    run_together(connection, *_beginning_turn(connection))
                self._insert_pieces(connection, tree_id, batch)
                is_in = run(connection, statement, values).rowcount == 1
                connection.execute("COMMIT" if is_in else "ROLLBACK")
            elif is_turn:
                is_in = run_together(connection, (statement, values), ("COMMIT", ()))[0][0] == 1
            else:
                is_in = run(connection, statement, values).rowcount == 1
            refuse_warned(connection)
            return is_in

        return self._pool.once(work)

    def check_format(self) -> None:
        """Raise StoreError where the tables have another format by now: then nothing is written."""
        self._pool.check_format()

    def _insert_pieces(self, connection: Connection, tree_id: str, batch: Batch) -> None:
        for part, start in enumerate(range(0, batch.size if batch.pieces else 0, PIECE)):
            made = "INSERT INTO kt_piece (tree_id, id, part, bytes) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            run(connection, made, (tree_id, batch.pieces, part, batch.lines[start : start + PIECE]))

    def settle(self, tree_id: str) -> None:
        """Return when what is visible now is as durable as what `append` acknowledges: on a synchronous standby, say.

        What a crash interrupted can be visible before. A commit of one's own, even of a lock, waits for all before it.
        """

        def work(connection: Connection) -> None:
            run(connection, sql.TAKE_TURN, (tree_id,))
            refuse_warned(connection)

        self._pool.once(work)

    def replace(self, tree_id: str, behind: tuple[int, bytes], batches: Sequence[Batch]) -> bool:
        """Put batches behind that one, as `append` does, and take all that lies before them away.

        States go with it, but for those that snapshots need.

        Raises:
            UnkeptError: a snapshot has no full state.
        """
        anchor = (tree_id, behind[0], behind[1].decode())

        def work(connection: Connection) -> bool:
            run_together(connection, *_beginning_turn(connection))
            # Those who are about to append behind this one go first, or wait.
            run(connection, "SELECT 1 FROM kt_batch WHERE tree_id = %s AND after = %s AND crc = %s FOR UPDATE", anchor)
            for number, batch in enumerate(batches):
                self._insert_pieces(connection, tree_id, batch)
                if number:
                    run(connection, sql.INSERT, (tree_id, *_columns(batch)))
                elif not run(connection, sql.APPEND, (*_columns(batch), *anchor)).rowcount:
                    connection.execute("ROLLBACK")
                    return False
            self._forget(connection, tree_id, batches)
            connection.execute("COMMIT")
            refuse_warned(connection)
            return True

        return self._pool.once(work, is_long=True)

    def _forget(self, connection: Connection, tree_id: str, batches: Sequence[Batch]) -> None:
        run(connection, "DELETE FROM kt_batch WHERE tree_id = %s AND after < %s", (tree_id, batches[0].after))
        kept = [batch.pieces for batch in batches if batch.pieces]
        run(connection, "DELETE FROM kt_piece WHERE tree_id = %s AND NOT id = ANY(%s::text[])", (tree_id, kept))
        drop_vectors(connection, tree_id)  # those of deleted texts among them
        # Only now: a process that takes a snapshot, or writes a state, holds the batch that it is of.
        unkept = run(connection, sql.UNKEPT, (tree_id,)).fetchone()
        if unkept and unkept[0]:
            raise UnkeptError("a snapshot has no full state")
        needed = "(SELECT seq FROM kt_snapshot n WHERE n.tree_id = %s)"
        for table in ("kt_mark", "kt_state"):
            run(connection, f"DELETE FROM {table} WHERE tree_id = %s AND seq NOT IN {needed}", (tree_id, tree_id))

    # -- a thread's own connection ------------------------------------------------

    def queue(
        self, tree_id: str, known: Callable[[], int], limit: int, catch_up: Callable[[], object]
    ) -> contextlib.AbstractContextManager[list[Batch] | None]:
        """Wait for this writer's turn, and give what `read` does then; what this thread does within happens in one go.

        Turns go by who came first, and make writers fair, not right: where the turn does not come within 2 s, or
        is lost since the writer was stopped for one, the block goes on without, and is given None. It is the lock on
        the tree's row.

        Args:
            tree_id: the tree.
            known: returns the key of the last batch that the caller has.
            limit: as of `read`.
            catch_up: reads what others write while they have their turns, so that little is left to read in one's own;
                tells whether it was much.
        """
        take = (sql.LIMIT_WAIT, ()), (sql.TAKE_TURN, (tree_id,)), (sql.NO_LIMIT, ())

        def read() -> tuple[str, tuple[Any, ...]]:
            return sql.READ, (known(), known(), tree_id, max(known(), 0), limit)

        def begin(connection: Connection) -> list[Batch]:
            begins = _beginning_turn(connection)
            if connection.round_trip_s < _NEAR_S:
                run_meanwhile(connection, lambda: self._pool.has_free() and catch_up(), *begins, *take)
                return list(map(_batch, run(connection, *read())))
            # Guesses that did not look may pass still; from far away to wait for them costs less than a conflict.
            pause_s = max(LOOK_S, connection.round_trip_s / 10)  # more from further away: the server may be busy
            wait = [("SELECT pg_sleep(%s)", (pause_s,))] if connection.round_trip_s > FAR_S else []
            return list(map(_batch, run_together(connection, *begins, *take, *wait, read())[-1][1]))

        return self._pool.owning(begin)

    def hold(self, tree_id: str, seconds: float) -> None:
        """Keep the turn that this thread has for so long, also after its block: the server ends it in time."""
        self._pool.hold(seconds)

    def still(self) -> contextlib.AbstractContextManager[object]:
        """Let this thread read the tables as they are at one moment, where that can be had."""
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        return self._pool.owning(lambda connection: connection.execute(begin))

    # -- states ---------------------------------------------------------------

    def marks(self, tree_id: str) -> list[Mark]:
        """Return the marks, newest first."""
        found = self._pool.fetch(sql.MARKS, (tree_id,))
        return [Mark(seq, after, crc.encode(), *counts) for seq, after, crc, *counts in found]

    def is_whole(self, tree_id: str, seq: int) -> bool:
        """Tell whether a state's parts are all there, and undamaged; the server computes it."""
        found = self._pool.fetch(sql.DIGEST, (tree_id, seq), is_long=True)
        return bool(found and found[0][0])

    def read_parts(self, tree_id: str, seq: int, count: int) -> Iterator[StatePart]:
        """Yield the parts of a state.  Cost: a round trip for each 4 MiB or so."""
        number = 0
        while number < count:
            found = self._pool.fetch(sql.PARTS, (tree_id, seq, number, _PARTS))
            if not found:
                raise StoreError(f"the state at operation {seq} was taken away meanwhile: try again")
            yield from map(_part, found)
            number += len(found)

    def write_state(self, tree_id: str, mark: Mark, parts: Iterable[StatePart]) -> bool:
        """Keep a state, all or nothing; return False where there is one, or the log has no such operation (any more).

        `parts` and `size` of the mark are counted here.
        """
        self._pool.check_format()

        def work(connection: Connection) -> bool:
            connection.execute("BEGIN")
            values = (mark.seq, mark.next_ordinal, mark.is_full, tree_id, mark.after, mark.crc.decode())
            if not run(connection, sql.MARK, values).rowcount:
                connection.execute("ROLLBACK")
                return False
            digest, number, size = hashlib.sha256(), 0, 0
            made = "INSERT INTO kt_state (tree_id, seq, part, kind, rows, places) VALUES (%s, %s, %s, %s, %s, %s)"
            for number, part in enumerate(parts, 1):
                rows, places = b"\n".join(part.rows), json.dumps(part.places)
                run(connection, made, (tree_id, mark.seq, number - 1, part.kind, rows, places))
                digest.update(hashlib.sha256(rows).digest())
                digest.update(hashlib.sha256(f"{part.kind}{places}".encode()).digest())
                size += len(rows)
            run(connection, sql.FINISH_MARK, (number, size, digest.hexdigest(), tree_id, mark.seq))
            connection.execute("COMMIT")
            return True

        return self._pool.once(work, is_long=True)

    def drop_states(self, tree_id: str, seqs: Iterable[int]) -> None:
        """Take the states at these operations away."""
        gone = list(seqs)
        for table in ("kt_mark", "kt_state") if gone else ():  # in this order: a mark without its parts would be damage
            statement = f"DELETE FROM {table} WHERE tree_id = %s AND seq = ANY(%s::bigint[])"
            self._pool.ask(partial(run, statement=statement, values=(tree_id, gone)), is_long=True)

    def bytes_since(self, tree_id: str, after: int) -> int:
        """Return how many bytes of lines lie behind the batch with this key; -1 takes all."""
        asked = "SELECT coalesce(sum(size), 0)::bigint FROM kt_batch WHERE tree_id = %s AND after > %s"
        return int(self._pool.fetch(asked, (tree_id, after))[0][0])

    # -- snapshots, and all trees -----------------------------------------------------

    def add_snapshot(self, tree_id: str, name: str, seq: int, behind: tuple[int, bytes]) -> bool:
        """Keep a name for an operation, with which that batch ends; return False where the name is taken.

        Raises:
            StoreError: the batch is not there any more.
        """
        self._pool.check_format()
        values = (name, seq, tree_id, behind[0], behind[1].decode())
        tries = 0

        def work(connection: Connection) -> int:
            nonlocal tries
            tries += 1
            return run(connection, sql.SNAPSHOT, values).rowcount

        if self._pool.ask(work):
            return True
        taken = self.snapshots(tree_id)
        if name not in taken:
            raise StoreError("the log has changed meanwhile, no snapshot was made: try again")
        return tries > 1 and taken[name] == seq  # of a first try whose answer was lost

    def snapshots(self, tree_id: str) -> dict[str, int]:
        """Return the operation of each snapshot, by name."""
        return dict(self._pool.fetch("SELECT name, seq FROM kt_snapshot WHERE tree_id = %s", (tree_id,)))

    def sizes(self, tree_id: str) -> dict[str, int]:
        """Return how many bytes lie in each table for a tree."""
        asked = """SELECT (SELECT coalesce(sum(size), 0)::bigint FROM kt_batch WHERE tree_id = %s),
            (SELECT coalesce(sum(size), 0)::bigint FROM kt_mark WHERE tree_id = %s)"""
        lines, states = self._pool.fetch(asked, (tree_id, tree_id))[0]
        return {"kt_batch": lines, "kt_state": states}

    def find_news(self, known: Sequence[tuple[str, int, bytes]]) -> list[int]:
        """Return the indexes of the logs (tree, key and checksum of the last batch that is known) that have changed."""
        columns = ([each[0] for each in known], [each[1] for each in known], [each[2].decode() for each in known])
        return [index for (index,) in self._pool.fetch(sql.NEWS, columns)]

    def trees(self) -> list[str]:
        """Return the ids of all trees, in order."""
        return [tree_id for (tree_id,) in self._pool.fetch("SELECT tree_id FROM kt_tree ORDER BY tree_id", ())]

    def remove(self, tree_id: str) -> bool:
        """Take a tree away, and all that belongs to it; return False where there is none."""
        was_there = False

        def work(connection: Connection) -> None:
            nonlocal was_there
            connection.execute("BEGIN")
            was_there |= run(connection, sql.TAKE_TURN, (tree_id,)).rowcount > 0
            for table in sql.TABLES:
                run(connection, f"DELETE FROM {table} WHERE tree_id = %s", (tree_id,))
            drop_vectors(connection, tree_id)
            connection.execute("COMMIT")

        self._pool.ask(work, is_long=True)
        return was_there


def create_tables(pool: Pool) -> None:
    """Make the tables that are not there, all or none of them.

    Raises:
        StoreError: they are there in another format, or the role may not make them.
    """

    def work(connection: Connection) -> int:
        with connection.transaction():  # another process sees no tables without their format
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('kt_format'))")  # IF NOT EXISTS alone can fail
            for statement in sql.SCHEMA:
                connection.execute(statement.encode())
            missing = "WHERE NOT EXISTS (SELECT FROM kt_format)"
            connection.execute(f"INSERT INTO kt_format SELECT %s {missing}".encode(), (sql.FORMAT,))
            row = connection.execute(sql.READ_FORMAT).fetchone()
            for asked in sql.ASKED:
                connection.execute(f"EXPLAIN {asked}".replace("%s", "NULL").encode())
        return 0 if row is None else int(row[0])

    found = pool.run(work)
    if found != sql.FORMAT:
        hint = "use the version that made them"
        raise StoreError(f"the tables have format {found}, this version makes {sql.FORMAT}: {hint}")


def _beginning_turn(connection: Connection) -> tuple[tuple[str, tuple[()]], ...]:
    """Return what begins a turn: of a writer that is stopped in it the server ends it, in time for those who wait.

    Between two statements of one that is far away lies a round trip.
    """
    idle_ms = 1000 * min(max(_IDLE_S, 2 * connection.round_trip_s), _LONGEST_IDLE_S)
    return ("BEGIN", ()), (f"SET LOCAL idle_in_transaction_session_timeout = '{idle_ms:.0f}ms'", ())


def _columns(batch: Batch) -> tuple[int, int, str, bytes, str, int]:
    lines = b"" if batch.pieces else batch.lines
    return batch.after, batch.upto, batch.crc.decode(), lines, batch.pieces, batch.size


def _lengths(spans: Sequence[tuple[int, Place]]) -> tuple[list[int], list[int]]:
    return [span.start for _, span in spans], [span.length for _, span in spans]


def _part(row: tuple[Any, ...]) -> StatePart:
    kind, rows, places = row
    return StatePart(kind, rows.split(b"\n"), [(index, Place(*place)) for index, place in json.loads(places)])


def _batch(row: tuple[Any, ...]) -> Batch:
    after, upto, crc, lines, pieces, size = row
    return Batch(after, upto, crc.encode(), lines, pieces, size)
