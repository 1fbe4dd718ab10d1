"""Connections to the server: as few as do, each for one statement at a time, and what their errors mean.

Written here rather than taken from psycopg_pool, since that keeps threads, which a fork leaves behind, and closes
politely what it holds: a forked child's goodbye would end its parent's sessions.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from ..base.forks import watch_forks
from ..keyword_tree import InvalidInputError, StoreError
from .rows import MissingTablesError, NotSentError, ReadOnlyError, UnansweredError
from .statements import FORMAT, READ_FORMAT

__all__ = ["FAR_S", "Connection", "Pool", "refuse_warned", "run", "run_meanwhile", "run_together"]

FAR_S = 0.04
"""Of a round trip that takes longer than all that it could save."""

T = TypeVar("T")

_LOST = ("08", "57P")  # the connection, or the server, goes down
_AGAIN = {"40001", "40P01", "40003"}  # undone, or not known; another try may do better
_UNDONE = {"55P03", "57014", "53300"}  # undone: a lock was not to be had in time, or an operator cancelled it
_READ_ONLY = "25006"
_NO_TABLES = {"42P01", "42703", "42P10", "3F000"}
_FINAL = ("authentication failed", "no pg_hba.conf", "does not exist", "no password supplied", "not permitted")
_MEANWHILE_S = 0.03  # between two looks at what others write, while a turn is waited for
_LONG_S = 600  # what a statement may take that goes through a whole log, and what the server gives any of them


class Connection(psycopg.Connection[TupleRow]):
    """One whose server must answer within some seconds, and that notes warnings."""

    seconds = 5.0
    round_trip_s = float("inf")
    """The least yet: a busy machine is not a far one. A turn that was lost since the network became slower ends the
    connection, too."""
    is_held = False
    """Whether the answer to what `begin` sent is still to come."""
    is_warned = False
    """Whether the server has warned: of a commit that may not be on a standby, say."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer; raise an OperationalError where none comes in time."""
        began = time.monotonic()
        answer = super().wait(gen, interval, self.seconds if timeout is None else min(timeout, self.seconds))
        self.round_trip_s = min(self.round_trip_s, time.monotonic() - began)
        return answer

    def is_quiet(self) -> bool:
        """Tell whether the server has said nothing since: a session that it has ended is not used once more."""
        return not self.closed and not self._has_news(0.0)

    def _has_news(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def begin(self, statements: bytes) -> None:
        """Let the server begin with statements that find nothing of interest, and return at once."""
        self.pgconn.send_query(statements)
        self.pgconn.flush()
        self.is_held = True

    def is_free(self, seconds: float = 0.0) -> bool:
        """Tell whether the server has ended what `begin` sent; wait for so long where it has not."""
        with contextlib.suppress(psycopg.Error):  # lost: `is_quiet` will tell
            while self.is_held:
                self.pgconn.consume_input()
                if not self.pgconn.is_busy():
                    self.is_held = self.pgconn.get_result() is not None
                elif not self._has_news(seconds):
                    return False
        return True

    def note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        """Take note of a warning."""
        self.is_warned |= diagnostic.severity_nonlocalized == "WARNING"


class Pool:
    """Connections of one process, at most `size` at once, opened when they are needed; runs statements on them.

    Once, again while patience lasts, or on a thread's own connection. For the errors see `PostgresRows`.
    """

    def __init__(self, dsn: str, size: int, patience: float, pooled: bool) -> None:
        """Open none yet.

        Raises:
            InvalidInputError: the DSN cannot be read; the message does not show it.
        """
        parameters = None
        with contextlib.suppress(psycopg.Error):  # what libpq says of it shows parts
            parameters = conninfo_to_dict(dsn)
        if parameters is None:
            raise InvalidInputError("dsn must be a connection string as libpq reads it, or empty")
        self._parameters = parameters
        self._dsn = dsn
        self._size = size
        self._pooled = pooled
        self.patience = patience
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._is_closed = False
        self._idle: collections.deque[Connection] = collections.deque()
        self._permits = self._make_permits()
        self._is_known = False  # whether the tables' format was looked at
        self._own = threading.local()  # `connection`, while this thread reads in peace, or has its turn
        weakref.finalize(self, _close_all, self._idle)
        watch_forks(self)

    def _make_permits(self) -> queue.SimpleQueue[None]:
        permits: queue.SimpleQueue[None] = queue.SimpleQueue()  # a signal handler may use it in the middle of a use
        for _ in range(self._size):
            permits.put(None)
        return permits

    def count(self) -> int:
        """Return how many connections are open."""
        return sum(not connection.closed for connection in list(self._connections))

    def has_free(self) -> bool:
        """Tell whether a connection is to be had at once."""
        return not self._permits.empty()

    # -- using a connection ---------------------------------------------------

    def run(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        """Let a function use a connection, once; `is_long` gives the server time for what is large.

        Raises:
            UnansweredError, NotSentError, ReadOnlyError, StoreError: see `PostgresRows`.
        """
        connection = self.take()
        try:
            return self.use(connection, work, is_long)
        finally:
            self.give_back(connection)

    def use(self, connection: Connection, work: Callable[[Connection], T], is_long: bool = False) -> T:
        """Let a function use this connection; one that failed is closed."""
        try:
            connection.is_warned = False
            connection.seconds = _LONG_S if is_long else max(self.patience / 2, 0.2)
            return work(connection)
        except psycopg.Error as error:
            problem = self._explain(error, connection)
            connection.close()
        except BaseException:  # Ctrl-C: its state is unknown
            connection.close()
            raise
        if isinstance(problem, (UnansweredError, ReadOnlyError)):
            _close_all(self._idle)  # a server that ended one session has mostly ended all
        raise problem

    def take(self) -> Connection:
        """Return a connection that no other thread uses."""
        if self._is_closed:
            raise StoreError("the log was closed")
        try:
            self._permits.get(timeout=self.patience)
        except queue.Empty:
            raise NotSentError(f"all {self._size} connections are in use") from None
        try:
            while self._idle:
                with contextlib.suppress(IndexError):
                    connection = self._idle.pop()
                    if not connection.is_free() and self.count() < self._size:
                        self._idle.appendleft(connection)
                        break
                    if not connection.is_held and connection.is_quiet():
                        return connection
                    connection.close()
            return self._connect()
        except BaseException:
            self._permits.put(None)
            raise

    def give_back(self, connection: Connection) -> None:
        """Let others use a connection; one in the middle of a transaction is closed."""
        if connection.is_held:
            self._idle.appendleft(connection)  # the others are of use sooner
        elif not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        self._permits.put(None)
        if self._is_closed:
            _close_all(self._idle)

    def close(self) -> None:
        """Close all connections that are not in use, and the others when they are given back."""
        self._is_closed = True
        _close_all(self._idle)

    # -- running statements ---------------------------------------------------

    def once(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        """Use a connection for something that may not be tried twice: that of this thread's turn, or any."""
        if not self._is_known:
            self.check_format()
        return self._on_any(work, is_long)

    def _on_any(self, work: Callable[[Connection], T], is_long: bool = False) -> T:
        own = self.own_connection()
        return self.run(work, is_long) if own is None else self.use(own, work, is_long)

    def own_connection(self) -> Connection | None:
        """Return the connection that this thread holds."""
        own: Connection | None = getattr(self._own, "connection", None)
        if own is not None and own.closed:  # lost: others may have its place, this thread among them
            self._own.connection = None
            self.give_back(own)
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

    def check_format(self) -> None:
        """Raise StoreError where the tables have another format than this version's.  Cost: one round trip."""
        row = self._on_any(lambda connection: run(connection, READ_FORMAT, ()).fetchone())
        found = 0 if row is None else row[0]
        if found != FORMAT:
            hint = "use a newer version of the library" if found > FORMAT else "run setup"
            raise StoreError(f"the tables have format {found}, this version reads and writes {FORMAT}: {hint}")
        self._is_known = True

    def hold(self, seconds: float) -> None:
        """Leave this thread's transaction to the server, which undoes it after so long; the thread goes on with any."""
        connection = self.own_connection()
        if connection is not None:
            with contextlib.suppress(UnansweredError, NotSentError):  # the next statement will see for itself
                self.use(connection, lambda own: own.begin(f"SELECT pg_sleep({seconds}); ROLLBACK".encode()))
            self._own.connection = None
            self.give_back(connection)

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
        try:
            with contextlib.suppress(UnansweredError, NotSentError):  # each statement will see for itself
                if not self._is_known:
                    self.check_format()
                connection = self.take()
                begun = self.use(connection, begin)
        except BaseException:
            if connection is not None:
                self.give_back(connection)
            raise
        self._own.connection = connection
        try:
            yield begun
        finally:
            if connection is not None and self._own.connection is connection:
                self._own.connection = None
                with contextlib.suppress(psycopg.Error):
                    if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                        connection.execute("ROLLBACK")
                self.give_back(connection)

    # -- connecting -----------------------------------------------------------

    def _connect(self) -> Connection:
        try:
            with _no_standard_descriptors():
                connection = Connection.connect(make_conninfo(**self._all_parameters()), autocommit=True)
        except psycopg.Error as error:
            problem = self._explain_refusal(error)
        else:
            self._connections.add(connection)
            connection.prepare_threshold = None
            connection.add_notice_handler(connection.note)
            try:
                return self.use(connection, self._check)
            except BaseException:
                connection.close()
                raise
        raise problem

    def _all_parameters(self) -> dict[str, Any]:
        milliseconds = int(1000 * self.patience)
        parameters = {
            "connect_timeout": max(2, int(self.patience / 2)),
            "application_name": "keyword_tree",
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": milliseconds,
            **self._parameters,
            "client_encoding": "utf8",
        }
        if not self._pooled:  # a transaction pooler refuses them
            settings = {
                "statement_timeout": 1000 * _LONG_S,
                "lock_timeout": max(milliseconds // 5, 100),
                "idle_in_transaction_session_timeout": max(milliseconds // 2, 500),
                "default_transaction_isolation": r"read\ committed",
            }
            options = [str(self._parameters.get("options") or ""), *(f"-c {k}={v}" for k, v in settings.items())]
            parameters["options"] = " ".join(options).strip()
        return parameters

    def _check(self, connection: Connection) -> Connection:
        """Refuse a server that would not keep what it acknowledges."""
        asked = "SELECT current_setting('fsync', true), current_setting('default_transaction_isolation', true)"
        fsync, isolation = connection.execute(asked).fetchone() or ("", "")
        if not self._pooled and connection.round_trip_s < FAR_S:  # to prepare a statement is a round trip of its own
            connection.prepare_threshold = 0
        if fsync == "off":
            raise StoreError("the server runs with fsync=off: what it acknowledges may be lost at a power cut")
        if isolation not in ("read committed", "", None) and self._pooled:
            raise StoreError(f"transactions are {isolation} behind the pooler: they must be read committed")
        return connection

    # -- explaining -----------------------------------------------------------

    def _explain(self, error: psycopg.Error, connection: Connection) -> StoreError:
        state = error.sqlstate or ""
        said = self.hide(error.diag.message_primary or str(error) or type(error).__name__)
        if not state or state.startswith(_LOST) or connection.closed or connection.broken:
            return UnansweredError(f"the connection to the log was lost: {said}")
        if state == _READ_ONLY:
            return ReadOnlyError(f"the server only reads, a standby perhaps: {said}")
        if state in _AGAIN:
            return UnansweredError(f"the server gave up ({state}): {said}")
        if state in _UNDONE:
            return NotSentError(f"the server gave up ({state}): {said}")
        if state in _NO_TABLES:
            return MissingTablesError(f"the tables of shared trees are not there, or are older: run setup ({said})")
        return StoreError(f"the server refused ({state}): {said}")

    def _explain_refusal(self, error: psycopg.Error) -> StoreError:
        said = re.sub(r'connection to server (at|on socket) "[^"]*"( \([^)]*\))?(, port \d+)? failed: ', "", str(error))
        said = " ".join(self.hide(re.sub(r"- host: .*?: ", "", said)).split())
        if "unsupported startup parameter" in said:
            return StoreError(f"a pooler stands before the log: open it with pooled=True ({said})")
        kind = StoreError if any(words in said for words in _FINAL) else NotSentError
        return kind(f"the log cannot be reached: {said}")

    def hide(self, text: str) -> str:
        """Return a text without what the connection string says."""
        held = {self._dsn: "…"} if self._dsn else {}
        for name, value in self._parameters.items():
            if name in ("password", "sslpassword") or (len(str(value)) > 2 and name not in ("port", "sslmode")):
                held[str(value)] = f"<{name}>"
        for value in sorted(held, key=len, reverse=True):
            text = text.replace(value, held[value]) if value else text
        return text

    # -- forking --------------------------------------------------------------

    def renew_after_fork(self) -> None:
        """Forget the parent's connections in a forked child, without a word to the server."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError, psycopg.Error):
                # Under the number of the socket: closing says goodbye to that, and closes that.
                nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                try:
                    os.dup2(nowhere, connection.fileno(), inheritable=False)
                finally:
                    os.close(nowhere)
                connection.close()
        self._idle.clear()
        self._permits = self._make_permits()


def _close_all(idle: collections.deque[Connection]) -> None:
    while idle:
        with contextlib.suppress(IndexError):  # another thread was quicker
            idle.pop().close()


@contextlib.contextmanager
def _no_standard_descriptors() -> Iterator[None]:
    """Keep 0, 1 and 2 taken: where a process has no standard output, what it prints would go to the server."""
    taken = []
    try:
        while (descriptor := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
            taken.append(descriptor)
        taken.append(descriptor)
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


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
    cursor.execute(_join(connection, statements))
    found = []
    while True:
        found.append((cursor.rowcount, cursor.fetchall() if cursor.description else []))
        if not cursor.nextset():
            return found


def run_meanwhile(connection: Connection, work: Callable[[], object], *statements: tuple[str, Sequence[Any]]) -> None:
    """Run statements as `run_together` does, and work again and again until they have ended; less often for nothing.

    Raises:
        NotSentError: they failed, or did not end in time.
    """
    connection.begin(_join(connection, statements))
    end, pause_s = time.monotonic() + connection.seconds, _MEANWHILE_S
    while not connection.is_free(pause_s) and (left := end - time.monotonic()) > 0:
        pause_s = min(_MEANWHILE_S if work() else 2 * pause_s, left)
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise NotSentError("the turn did not come")


def _join(connection: Connection, statements: Iterable[tuple[str, Sequence[Any]]]) -> bytes:
    cursor = psycopg.ClientCursor(connection)
    return "; ".join(cursor.mogrify(statement.encode(), values) for statement, values in statements).encode()


def refuse_warned(connection: Connection) -> None:
    """Raise UnansweredError where the server has warned.

    An operator who cancels a commit that waits for its standby leaves it committed here alone, with a warning.
    """
    if connection.is_warned:
        raise UnansweredError("the server warned: what was committed may not be on a standby")
