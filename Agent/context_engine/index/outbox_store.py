"""`OutboxStore`: where the index has to look, in the journal's own file, for any number of workers.

    held → pending → leased → done | dead

A claim takes the oldest due event of each URI that no live lease holds, and is the end of others that ask for the same
look; a recursive event and those under it exclude each other. A worker that has lost its lease marks nothing.
"""

import json
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ..core.config import UPSERT_CONTEXT
from ..core.objects import OutboxEvent
from ..fs.journal import Journal, put_event

LEASE_S = 60.0
"""So long a claimed event is a worker's own."""

_BACKOFF_S, _BACKOFF_LIMIT_S, _ATTEMPTS = 1.0, 600.0, 8  # of a failed event
_SAME = 10_000  # events that one claim ends, since another one of it looks at their place
_COLUMNS = "event_id, event_type, uri, payload, retry_count, created_at, sequence"


class OutboxStore:
    """The events of one store; `jitter` (0 to 1) is for what failed together not to be tried together."""

    def __init__(
        self, journal: Journal, clock: Callable[[], float], jitter: Callable[[], float] = random.random
    ) -> None:
        self._journal, self._clock, self._jitter = journal, clock, jitter

    # -- registering --

    def append(self, event: OutboxEvent) -> OutboxEvent:
        """Register an event by itself; those of changes are registered by their transaction."""
        return self.append_batch([event])[0]

    def append_batch(self, events: Sequence[OutboxEvent]) -> list[OutboxEvent]:
        """Register some events, all or none, and return them as they are kept."""
        now = self._clock()
        last, made = self._journal.last_sequence(), []
        for event in events:
            id, at = event.event_id or uuid.uuid4().hex, event.created_at or now
            kept = event.event_type, event.uri, dict(event.payload), "pending", 0, at, event.sequence or last
            made.append(OutboxEvent(id, *kept))
        with self._journal.writing() as connection:
            for event in made:
                put_event(connection, event, now, "pending")
        return made

    # -- working --

    def claim_batch(self, worker_id: str, limit: int) -> list[OutboxEvent]:
        """Return events that are this worker's for a minute, oldest first; one transaction."""
        now = self._clock()
        with self._journal.writing() as connection:
            sql = f"SELECT {_COLUMNS} FROM outbox WHERE status = 'leased' AND lease_until > ?"
            busy = list(map(_event, connection.execute(sql, (now,))))
            rows = connection.execute(
                # In the order of their rows, which needs no sorting: a batch does not read all that is due.
                f"SELECT {_COLUMNS} FROM outbox NOT INDEXED WHERE (status = 'pending' AND due_at <= ?)"
                " OR (status = 'leased' AND lease_until <= ?) ORDER BY number",
                (now, now),
            )
            claimed: dict[tuple[str, str, str], OutboxEvent] = {}
            same: list[tuple[str]] = []
            for row in rows:
                if len(claimed) >= limit or len(same) >= _SAME:
                    break
                if row[1] == UPSERT_CONTEXT and row[1:4] in claimed:
                    same.append((row[0],))
                    continue
                event = _event(row)
                if not any(_exclude(event, other) for other in busy):
                    busy.append(event)
                    claimed[row[1:4]] = event
            sql = "UPDATE outbox SET status = 'leased', worker_id = ?, lease_until = ? WHERE event_id = ?"
            connection.executemany(sql, [(worker_id, now + LEASE_S, event.event_id) for event in claimed.values()])
            connection.executemany("UPDATE outbox SET status = 'done' WHERE event_id = ?", same)
        return list(claimed.values())

    def renew(self, event_id: str, worker_id: str) -> bool:
        """Keep an event for another minute; False if it is not this worker's any more."""
        return self._change("lease_until = ?", (self._clock() + LEASE_S,), [event_id], worker_id)

    def mark_done(self, event_id: str | Sequence[str], worker_id: str | None = None) -> None:
        """Say that the index is right at an event's place, or at those of several, in one transaction.

        Nothing happens to an event that is another worker's; None marks those that are unclaimed, too.
        """
        ids = [event_id] if isinstance(event_id, str) else list(event_id)
        self._change("status = 'done', lease_until = NULL, error = ''", (), ids, worker_id)

    def mark_failed(self, event_id: str, error: str, retryable: bool = True, worker_id: str | None = None) -> None:
        """Say that an event failed: it comes again, later each time; after 8 times, or if no retry helps, it is dead.

        `status` shows the error. Nothing happens to an event that is another worker's; None marks any.
        """
        rows = self._journal.query("SELECT retry_count FROM outbox WHERE event_id = ?", (event_id,))
        if not rows:
            return
        count = int(rows[0][0]) + 1
        is_dead = not retryable or count >= _ATTEMPTS
        pause = min(_BACKOFF_LIMIT_S, _BACKOFF_S * 2 ** (count - 1)) * (0.5 + self._jitter() / 2)
        self._change(
            "status = ?, retry_count = ?, due_at = ?, error = ?, lease_until = NULL",
            ("dead" if is_dead else "pending", count, self._clock() + pause, error[:500]),
            [event_id],
            worker_id,
        )

    def postpone(self, event_type: str, error: str, pause_s: float = 30.0) -> None:
        """Let all events of a kind wait, at no cost of attempts: what they need is not there."""
        with self._journal.writing() as connection:
            connection.execute(
                "UPDATE outbox SET status = 'pending', due_at = max(due_at, ?), error = ?, lease_until = NULL"
                " WHERE event_type = ? AND status IN ('pending', 'leased')",
                (self._clock() + pause_s, error[:500], event_type),
            )

    def _change(self, sets: str, values: Sequence[Any], ids: Sequence[str], worker_id: str | None) -> bool:
        """Change events that are still this worker's; whether any of them was."""
        where = " AND status IN ('pending', 'leased')"
        owner: tuple[Any, ...] = ()
        if worker_id is not None:
            where, owner = " AND status = 'leased' AND worker_id = ? AND lease_until > ?", (worker_id, self._clock())
        with self._journal.writing() as connection:
            cursor = connection.executemany(
                f"UPDATE outbox SET {sets} WHERE event_id = ?{where}", [(*values, id, *owner) for id in ids]
            )
            return cursor.rowcount > 0

    def requeue(self, event_id: str | None = None) -> int:
        """Let dead events be tried again, and return how many it are; None is all of them."""
        sql = "UPDATE outbox SET status = 'pending', retry_count = 0, due_at = 0 WHERE status = 'dead'"
        with self._journal.writing() as connection:
            return connection.execute(f"{sql} AND event_id = coalesce(?, event_id)", (event_id,)).rowcount

    # -- looking --

    def counts(self) -> dict[str, int]:
        """Return how many events there are of each status, but for those that are done."""
        rows = self._journal.query("SELECT status, count(*) FROM outbox WHERE status <> 'done' GROUP BY status")
        return {"held": 0, "pending": 0, "leased": 0, "dead": 0, **dict(rows)}

    def open(self, event_type: str) -> list[tuple[str, str]]:
        """Return the URIs of events of a type that are not done, with why not."""
        sql = "SELECT uri, error FROM outbox WHERE event_type = ? AND status <> 'done'"
        return [(uri, error) for uri, error in self._journal.query(sql, (event_type,))]

    def dead(self) -> list[dict[str, Any]]:
        """Return the dead events, with their errors."""
        rows = self._journal.query("SELECT event_id, event_type, uri, error FROM outbox WHERE status = 'dead'")
        return [dict(zip(("event_id", "event_type", "uri", "error"), row, strict=True)) for row in rows]


def _exclude(one: OutboxEvent, other: OutboxEvent) -> bool:
    """Whether two events may not be worked on at the same time."""
    return any(
        here == there
        or (one.payload.get("recursive") and there.startswith(f"{here}/"))
        or (other.payload.get("recursive") and here.startswith(f"{there}/"))
        for here in (one.uri, one.payload.get("to_uri", one.uri))
        for there in (other.uri, other.payload.get("to_uri", other.uri))
    )


def _event(row: Sequence[Any]) -> OutboxEvent:
    event_id, event_type, uri, payload, retry_count, created_at, sequence = row
    return OutboxEvent(event_id, event_type, uri, json.loads(payload), "leased", retry_count, created_at, sequence)
