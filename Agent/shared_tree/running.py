"""How statements are run: once, or again while patience lasts, as a stream, or on a thread's own connection."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from ..keyword_tree import StoreError
from .connections import Connection, Pool
from .rows import NotSentError, UnansweredError
from .statements import FORMAT, READ_FORMAT

__all__ = ["Runner", "refuse_warned", "run", "run_together"]

T = TypeVar("T")


class Runner:
    """Runs statements over a pool of connections; see `Rows` for the errors."""

    def __init__(self, pool: Pool) -> None:
        self.patience = pool.patience
        self._pool = pool
        self._is_known = False  # whether the tables' format was looked at
        self._own = threading.local()  # `connection`, while this thread reads in peace, or has its turn

    def once(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        """Use a connection for something that may not be tried twice: that of this thread's turn, or any."""
        if not self._is_known:
            self.check_format()
        return self._on_any(work, is_long)

    def _on_any(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        own = self.own_connection()
        return self._pool.run(work, is_long) if own is None else self._pool.use(own, work, is_long)

    def own_connection(self) -> Connection | None:
        """Return the connection that this thread holds."""
        own: Connection | None = getattr(self._own, "connection", None)
        if own is not None and own.closed:  # lost: others may have its place, this thread among them
            self._own.connection = None
            self._pool.give_back(own)
            own = None
        return own

    def ask(self, work: Callable[[Connection], T], until: float | None = None, is_long: bool = False) -> T:
        """Use a connection for something that may be tried again, as long as patience lasts."""
        end = time.monotonic() + self.patience if until is None else until
        pause = 0.01
        while True:
            try:
                return self.once(work, is_long)
            except (UnansweredError, NotSentError) as error:
                problem: StoreError = error
            if time.monotonic() + pause > end:
                raise problem
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def fetch(
        self, statement: str, values: Sequence[Any], until: float | None = None, is_long: bool = False
    ) -> list[tuple[Any, ...]]:
        """Return all rows that a statement finds; it may be tried again.  Cost: one round trip."""
        return self.ask(lambda connection: run(connection, statement, values).fetchall(), until, is_long)

    def stream(self, statement: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield rows as they arrive; one try."""
        own = self.own_connection()
        connection = own or self._pool.take()
        rows = connection.cursor(binary=True).stream(statement.encode(), values, binary=True)
        try:
            while (row := self._pool.use(connection, lambda _: next(rows, None))) is not None:
                yield row
        finally:
            if connection.info.transaction_status == TransactionStatus.ACTIVE:  # the rest is not wanted
                connection.close()
            if own is None:
                self._pool.give_back(connection)

    def check_format(self) -> None:
        """Raise StoreError where the tables have another format than this version's.  Cost: one round trip."""
        row = self._on_any(lambda connection: run(connection, READ_FORMAT, ()).fetchone())
        found = 0 if row is None else row[0]
        if found != FORMAT:
            hint = "use a newer version of the library" if found > FORMAT else "run setup"
            raise StoreError(f"the tables have format {found}, this version reads and writes {FORMAT}: {hint}")
        self._is_known = True

    @contextlib.contextmanager
    def owning(self, begin: Callable[[Connection], T]) -> Iterator[T | None]:
        """Let this thread have a connection of its own, on which `begin` opens a transaction; undone at the end.

        Gives what `begin` returned. Where none is to be had, or it is lost, the block goes on with any, and is given
        None.
        """
        if getattr(self._own, "connection", None) is not None:
            yield None
            return
        connection = begun = None
        with contextlib.suppress(UnansweredError, NotSentError):  # each statement will see for itself
            if not self._is_known:
                self.check_format()
            connection = self._pool.take()
        self._own.connection = connection
        try:
            if connection is not None:
                with contextlib.suppress(UnansweredError, NotSentError):
                    begun = self._pool.use(connection, begin)
            yield begun
        finally:
            if connection is not None and self._own.connection is connection:
                self._own.connection = None
                with contextlib.suppress(psycopg.Error):
                    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                        connection.execute("ROLLBACK")
                self._pool.give_back(connection)


def run(connection: Connection, statement: str, values: Sequence[Any]) -> psycopg.Cursor[Any]:
    """Run one statement, prepared unless a pooler stands between.  Cost: one round trip."""
    prepare = None if connection.prepare_threshold is None else True
    return connection.execute(statement.encode(), values, binary=True, prepare=prepare)


def run_together(connection: Connection, *statements: tuple[str, Sequence[Any]]) -> list[tuple[int, list[Any]]]:
    """Run statements in one round trip; return for each how many rows it touched, and those that it found.

    They go out as one message: a process that is stopped in the middle cannot leave the server waiting for the rest,
    with locks that no idle limit ends.
    """
    cursor = psycopg.ClientCursor(connection)
    cursor.execute("; ".join(cursor.mogrify(statement.encode(), values) for statement, values in statements).encode())
    found = []
    while True:
        found.append((cursor.rowcount, cursor.fetchall() if cursor.description else []))
        if not cursor.nextset():
            return found


def refuse_warned(connection: Connection) -> None:
    """Raise UnansweredError where the server has warned.

    An operator who cancels a commit that waits for its standby leaves it committed here alone, with a warning.
    """
    if connection.is_warned:
        raise UnansweredError("the server warned: what was committed may not be on a standby")
