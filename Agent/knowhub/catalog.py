"""What is asked of all records: who sees what, counters, the order of time, the operations, full text.

Counters are not stored in the ledger: they count the living feedback, so no one can overwrite another's, and undoing
one takes it back. Of each principal the last feedback counts, and none of the entry's own. Feedback of an entry that
was merged into another counts for that.
"""

import contextlib
import itertools
import json
import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from ..base.text import clean
from ..finding import texts
from ..finding.embedder import Embedder, Meaning
from ..keyword_tree import Info, KeywordTreeError
from ..memory.memories import Memories
from .following import COLUMNS, Entry, Following, family_of, get, lead_of, read_record, record_of_row, shared_by
from .ledger import TreeLedger
from .records import OWNER_SCOPE, Json, Record, kind_of
from .tokens import Token, sees

_LEAST_FIT = 0.02  # above the score of a text with nothing that is asked for, see `finding.calibration`
_ELIGIBLE_KEPT = 4  # sets of what a search may find: each of some 1 MB, among 30,000
_COUNTED, _COMPARED = 2_000, 100  # entries with a term that are counted, and that are compared with a new one
_PAGE = 50  # rows that are read at once: an export without a reader holds them
_LATEST = (1e300, "")
_STALE = ["journal.sqlite", "journal.sqlite-journal", "knowhub.known"]
_STALE += ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"]


class Catalog(Following):
    """All records of a ledger, as far as asking for them needs it; safe for many threads and processes.

    Args:
        ledger: Whose records.
        folder: Where its two files are kept: `records.sqlite`, and the full-text index; None keeps all in memory.
        meaning: See `finding.index.Index`.
    """

    def __init__(
        self, ledger: TreeLedger, folder: Path | None = None, meaning: Meaning | Embedder | bool = True
    ) -> None:
        super().__init__(ledger, None if folder is None else folder / "records.sqlite")
        for stale in _STALE if folder is not None else ():
            with contextlib.suppress(OSError):  # of earlier versions: what was purged since may stand there
                (folder / stale).unlink(missing_ok=True)  # type: ignore[operator]
        # Not joined: entries would count that the caller must not see.
        index_path = None if folder is None else folder / "knowhub.index"
        self._index = Memories(ledger.tree, index_path, meaning, passages_of, is_joined=False)
        self._indexing = threading.Lock()
        self._indexed: object = None  # the state that was indexed
        self._eligible: dict[Any, frozenset[str]] = {}  # what searches may find, until something is taken in
        self._eligible_of: object = None
        self._entries = 0  # how many entries there were then
        self.is_ready = False

    def open(self) -> None:
        """Take in all there is."""
        self.catch_up()
        self.tend()
        self.is_ready = True

    def tend(self) -> None:
        """Index what was written, before a search has to."""
        self.look()
        with self._indexing:
            state = self._do(self.state)
            if state != self._indexed:
                self._index.catch_up()
                self._indexed = state

    def close(self) -> None:
        """Leave the indexes on disk."""
        with contextlib.suppress(KeywordTreeError, OSError):
            self._index.catch_up()
            self._index.close()
        super().close()

    def _all(self, sql: str, *values: object) -> list[Any]:
        return self._do(lambda db: db.execute(sql, values).fetchall())

    # -- records --

    def get(self, id: str) -> Record | None:
        """Return a record as it is now, as far as this process knows."""
        return self._do(lambda db: get(db, id))

    def several(self, ids: Collection[str]) -> dict[str, Record]:
        """Return records by their ids, those that are there."""
        sql = f"SELECT {COLUMNS} FROM record WHERE id IN (SELECT value FROM json_each(?)) AND NOT is_gone"
        return {row[0]: record_of_row(row) for row in self._all(sql, json.dumps(list(ids)))}

    def lead(self, id: str) -> Record | None:
        """Return the entry that an id means: of one that was merged, what it was merged into."""
        return self._do(lambda db: lead_of(db, id))

    def eligible(self, token: Token, types: str | None, min_score: int) -> frozenset[str]:
        """Return the entries that a search may find, of some types, with commas, or of all.

        Cost: some 20 ms among 30,000, once until something is written.
        """
        self.look()
        sql = "SELECT id FROM record WHERE kind = 'knowledge' AND NOT is_gone AND merged_into = '' AND score >= ?"
        sql += " AND score + helpful - 2 * harmful >= 0"
        values: list[Any] = [min_score]
        if types is not None:
            of_types = "SELECT 1 FROM json_each(said, '$[1].types') WHERE value IN (SELECT value FROM json_each(?))"
            sql += f" AND EXISTS ({of_types})"
            values.append(json.dumps(types.split(",")))
        if not token.sees_all():
            sql += " AND id IN (SELECT id FROM scope WHERE scope IN (SELECT value FROM json_each(?)))"
            values.append(json.dumps([*token.scopes, shared_by(OWNER_SCOPE, token.principal)]))
        asked = (token.sees_all(), *map(str, values), token.principal)

        def work(db: sqlite3.Connection) -> frozenset[str]:
            state = self.state(db)
            if state != self._eligible_of or len(self._eligible) >= _ELIGIBLE_KEPT:
                self._eligible.clear()
                self._eligible_of = state
                count = "SELECT count(*) FROM record WHERE kind = 'knowledge' AND NOT is_gone"
                self._entries = db.execute(count).fetchone()[0]
            if asked not in self._eligible:
                self._eligible[asked] = frozenset(row[0] for row in db.execute(sql, values))
            return self._eligible[asked]

        return self._do(work)

    def page(
        self, kind: str, wanted: Callable[[Record], bool], limit: int, before: tuple[float, str] | None
    ) -> tuple[list[Record], bool]:
        """Return the newest records of a kind behind a place in time, and whether there are more."""
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
        scopes = json.dumps([*token.scopes, shared_by(OWNER_SCOPE, token.principal)])
        seen = "SELECT id FROM scope WHERE scope IN (SELECT value FROM json_each(?))"
        sql = "SELECT count(*) FROM record WHERE kind = 'knowledge' AND NOT is_gone AND merged_into = ''"
        return int(self._all(f"{sql} AND id NOT IN ({seen})", scopes)[0][0])

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
        """Return whether a principal's vote on an entry, or on what was merged into it, is there."""

        def work(db: sqlite3.Connection) -> bool:
            sql = "SELECT 1 FROM vote WHERE entry = ? AND principal = ?"
            return any(db.execute(sql, (one, principal)).fetchone() for one in family_of(db, id))

        return self._do(work)

    def qualities(self, ids: Collection[str]) -> dict[str, float]:
        """Return `score + helpful − 2·harmful` of some entries, those that are there."""
        sql = "SELECT id, score + helpful - 2.0 * harmful FROM record WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._all(f"{sql} AND NOT is_gone", json.dumps(list(ids))))

    def feedback(
        self, id: str, limit: int, *, before: tuple[float, str] | None = None, is_helpful: bool | None = None
    ) -> list[Record]:
        """Return an entry's newest feedback, of one kind or of both; of what was merged into it, too.

        Cost: grows with `limit`, not with how much there is.
        """
        kinds = (False, True) if is_helpful is None else (is_helpful,)
        sql = f"SELECT {COLUMNS} FROM record WHERE kind = 'feedback' AND NOT is_gone AND entry = ? AND is_helpful = ?"
        sql += f" AND (created_at, id) < (?, ?) ORDER BY created_at DESC, id DESC LIMIT {limit}"

        def work(db: sqlite3.Connection) -> list[Record]:
            found: list[Record] = []
            for one in family_of(db, id):
                for kind in kinds:
                    found += map(record_of_row, db.execute(sql, (one, kind, *(before or _LATEST))))
            return found

        return sorted(self._do(work), key=lambda known: known.key, reverse=True)[:limit]

    # -- what says what --

    def rank(self, query: str, limit: int, among: frozenset[str]) -> list[str]:
        """Return those of some entries that fit a query, best first."""
        self.tend()
        is_all = len(among) == self._entries  # then the index need not look for each of them
        found = self._index.rank(query, limit, None if is_all else among, quotes=0)
        return [one.id for one in found if one.id in among and one.score >= _LEAST_FIT]

    def resembling(self, token: Token, task: str, least: float, limit: int) -> list[tuple[float, Record]]:
        """Return the entries that a token sees whose tasks are similar to a text, the most similar first.

        Args:
            token: Who may see them.
            task: Any text.
            least: The share of all terms of both that must be in both, greater than 0.
            limit: At most so many.

        Cost: a count for each entry and rarer term that they share, some thousands at most.
        """
        terms = set(texts.terms(task))
        # What shares at least so many of all has one of the `first` rarest, two of one more, and so on.
        first = len(terms) - math.ceil(least * len(terms)) + 1

        def work(db: sqlite3.Connection) -> list[Record]:
            some = f"(SELECT id FROM term WHERE term = ? LIMIT {_COUNTED})"
            sizes = {term: db.execute(f"SELECT count(*) FROM {some}", (term,)).fetchone()[0] for term in terms}
            rarest = sorted(terms, key=sizes.__getitem__)[: first + 2]
            while len(rarest) > 1 and sum(sizes[term] for term in rarest) > 2 * _COUNTED:
                rarest.pop()
            shared = Counter(row[0] for term in rarest for row in db.execute(f"SELECT id FROM {some}", (term,)))
            likely = [id for id, count in shared.most_common() if count > len(rarest) - first]
            found = (get(db, id) for id in likely[: 5 * _COMPARED])
            return [each for each in found if each and not each.merged_into and sees(token, each)][:_COMPARED]

        alike = list[tuple[float, Record]]()
        for known in self._do(work):
            theirs = set(texts.terms(known.fields["task"]))
            alike.append((len(terms & theirs) / len(terms | theirs), known))
        alike.sort(key=lambda pair: -pair[0])
        return [pair for pair in alike if pair[0] >= least][:limit]

    # -- operations --

    def operation(self, operation_id: str) -> Entry | None:
        """Return an operation by its id, or None."""
        return next(iter(self._operations("WHERE id = ?", clean(operation_id))), None)

    def marked(self, mark: str) -> list[Entry]:
        """Return the operations of one Idempotency-Key, oldest first."""
        return self._operations("WHERE mark = ? ORDER BY seq", mark)

    def operations_on(self, id: str, limit: int) -> list[Entry]:
        """Return the newest operations on a record, newest first."""
        newest = "SELECT seq FROM change WHERE record = ? ORDER BY seq DESC LIMIT ?"
        return self._operations(f"WHERE seq IN ({newest}) ORDER BY seq DESC", id, limit)

    def operations_before(self, seq: int | None, limit: int) -> list[Entry]:
        """Return the operations before a number, newest first; None is the end."""
        return self._operations("WHERE seq < ? ORDER BY seq DESC LIMIT ?", 2**62 if seq is None else seq, limit)

    def _operations(self, where: str, *values: object) -> list[Entry]:
        self.catch_up()

        def work(db: sqlite3.Connection) -> list[Entry]:
            found = [Entry(*row) for row in db.execute(f"SELECT id, op, at, seq FROM operation {where}", values)]
            for entry in found:
                sides = db.execute("SELECT before, after FROM change WHERE seq = ? ORDER BY rowid", (entry.seq,))
                for before, after in sides:
                    entry.before += [read_record(before)] if before else []
                    entry.after.append(read_record(after))
            return found

        return self._do(work)


def text_of(fields: Json, content: str) -> str:
    """Return what an entry is found by: its task, the values of its tags, its content."""
    tags = fields.get("tags")
    values = [str(value) for value in tags.values()] if isinstance(tags, dict) else []
    return "\n".join([str(fields.get("task", "")), *values, content])


def passages_of(info: Info) -> list[str]:
    """Return what the full-text index takes of an info: nothing, but for knowledge."""
    own = info.metadata.get("knowhub")
    if kind_of(info.id) != "knowledge" or not isinstance(own, dict):
        return []
    return list(texts.passages(text_of(own, info.content)))
