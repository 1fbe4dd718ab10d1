"""Queries over all records: who sees which, counters, the order of time, the operations, full text.

Counters are not stored in the ledger: they count the living feedback, so no one can overwrite another's, and undoing
one takes it back. Of each principal the last feedback counts, and none of the entry's own. Feedback of an entry that
was merged into another counts for that.
"""

import contextlib
import itertools
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..base.text import clean
from ..finding import texts
from ..finding.embedder import Embedder, Meaning
from ..finding.index import Index, LostIndexError, Unit
from ..finding.score import Among
from ..keyword_tree import KeywordTreeError
from .following import (
    COLUMNS,
    FAMILY,
    Entry,
    Following,
    get,
    lead_of,
    read_records,
    record_of_row,
    scope_mark,
    task_marks,
)
from .ledger import TreeLedger
from .records import OWNER_SCOPE, Json, Record
from .tokens import Token

_LEAST_FIT = 0.02  # above the score of a text with nothing that is asked for, see `finding.calibration`
_ELIGIBLE_KEPT = 4  # sets of eligible entries: each of some 1 MB, among 30,000
_LOOKED_AT, _NEWEST, _COMPARED = 1_000, 100, 50  # entries with a term of a new one; those of them that one sees
_PAGE = 50  # rows that are read at once: an export without a reader holds them
_INDEXED_AT_ONCE = 1_000
_FEW = 5_000  # entries: at most so many are asked for by their ids
_LATEST = (1e300, "")
_STALE = ("journal.*", "knowhub.*", "catalog.*", "records.*")
_SEEN = "SELECT id FROM mark WHERE mark IN (SELECT value FROM json_each(?))"
_ENTRIES = "FROM record WHERE kind = 'knowledge' AND NOT is_gone AND merged_into = ''"
_TO_INDEX = """SELECT number, id, NOT is_gone AND merged_into = '', content, said FROM record
    WHERE kind = 'knowledge' AND number > ? ORDER BY number LIMIT ?"""
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Catalog(Following):
    """All records of a ledger, as far as asking for them needs it; safe for many threads and processes.

    Args:
        ledger: Whose records.
        folder: Where its two files are kept: `hub.sqlite`, and the full-text index; None keeps all in memory.
        meaning: See `finding.index.Index`.
    """

    def __init__(
        self, ledger: TreeLedger, folder: Path | None = None, meaning: Meaning | Embedder | bool = True
    ) -> None:
        super().__init__(ledger, None if folder is None else folder / "hub.sqlite")
        for stale in itertools.chain.from_iterable(map(folder.glob, _STALE)) if folder is not None else ():
            with contextlib.suppress(OSError):  # of earlier versions: texts that were purged since may stand there
                stale.unlink()
        self._meaning = meaning
        self._index = Index(None if folder is None else str(folder / "words.index"), meaning=meaning)
        self._indexing = threading.RLock()
        self._indexed: object = None  # the state that was indexed
        self._eligible: dict[Any, frozenset[str]] = {}  # eligible entries, until something is taken in
        self._eligible_of: object = None
        self._entries = 0  # how many entries there were then
        self.is_ready = False

    def open(self) -> None:
        """Take in all there is."""
        self.catch_up()
        self.tend()
        self.is_ready = True

    def tend(self) -> None:
        """Index new records, before a search has to."""
        self.look()
        with self._indexing:
            state = self._do(self.state)
            if state != self._indexed:
                self._with_index(self._index_new)
                self._indexed = state

    def _with_index(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does with the index: with one in memory, where the file cannot be used."""
        try:
            return work()
        except LostIndexError:  # it was damaged, and is empty now
            pass
        except (sqlite3.OperationalError, OSError) as error:
            if self._index.path is None:
                raise
            _log.warning("the words of the hub are indexed in memory: %s", type(error).__name__)
            self._index = Index(None, meaning=self._meaning)
        with self._indexing:
            self._index_new()
        return work()

    def _index_new(self) -> None:
        """Take in the entries that were written since the position of the index: a file of records, and a number."""
        file = self._all("SELECT file FROM place")[0][0]
        known, _, place = self._index.position.partition(" ")
        is_other, number = known != file, int(place or 0) if known == file else 0
        while rows := self._all(_TO_INDEX, number, _INDEXED_AT_ONCE):
            with self._index.transaction():
                self._index.remove(id for _, id, is_there, *_ in rows if not is_there)
                self._index.put(_unit(id, said, content) for _, id, is_there, content, said in rows if is_there)
                number = rows[-1][0]
                self._index.position = f"{file} {number}"
        if is_other and known:  # of another log, or of one that was compacted
            self._index.remove(self._index.ids().difference(row[0] for row in self._all(f"SELECT id {_ENTRIES}")))
            self._index.position = f"{file} {number}"
            self._index.compact()

    def close(self) -> None:
        """Leave the indexes on disk."""
        with contextlib.suppress(KeywordTreeError, OSError, sqlite3.Error, LostIndexError):
            self.tend()
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

    def best(self, ids: Collection[str]) -> Iterator[Record]:
        """Yield entries by their quality, ties as they were given."""
        given = "SELECT key AS place, value AS id FROM json_each(?)"
        sql = f"SELECT {COLUMNS} FROM record JOIN ({given}) USING (id) WHERE NOT is_gone AND merged_into = ''"
        order = "ORDER BY score + helpful - 2.0 * harmful DESC, place"
        yield from map(record_of_row, self._all(f"{sql} {order}", json.dumps(list(ids))))

    def lead(self, id: str) -> Record | None:
        """Return the entry that an id means: of a merged one, its target."""
        return self._do(lambda db: lead_of(db, id))

    def eligible(self, token: Token, types: str | None, min_score: int) -> frozenset[str]:
        """Return the entries that a search may find, of some types, with commas, or of all.

        Cost: some 20 ms among 30,000, once until something is written.
        """
        self.look()
        sql = f"SELECT id {_ENTRIES} AND score >= ? AND score + helpful - 2 * harmful >= 0"
        values: list[Any] = [min_score]
        if types is not None:
            of_types = "SELECT 1 FROM json_each(said, '$[1].types') WHERE value IN (SELECT value FROM json_each(?))"
            sql += f" AND EXISTS ({of_types})"
            values.append(json.dumps(types.split(",")))
        if not token.sees_all():
            sql += f" AND id IN ({_SEEN})"
            values.append(_marks_seen(token))
        asked = (token.sees_all(), *map(str, values), token.principal)

        def work(db: sqlite3.Connection) -> frozenset[str]:
            state = self.state(db)
            if state != self._eligible_of or len(self._eligible) >= _ELIGIBLE_KEPT:
                self._eligible.clear()
                self._eligible_of = state
                self._entries = db.execute(f"SELECT count(*) {_ENTRIES}").fetchone()[0]
            if asked not in self._eligible:
                self._eligible[asked] = frozenset(row[0] for row in db.execute(sql, values))
            return self._eligible[asked]

        return self._do(work)

    def page(
        self, kind: str, wanted: Callable[[Record], bool], limit: int, before: tuple[float, str] | None
    ) -> tuple[list[Record], bool]:
        """Return the newest records of a kind before a point in time, and whether there are more."""
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
        sql = f"SELECT count(*) {_ENTRIES} AND id NOT IN ({_SEEN})"
        return int(self._all(sql, _marks_seen(token))[0][0])

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
        """Return whether a principal has voted on an entry, or on one merged into it."""
        voted = "SELECT 1 FROM vote, family WHERE entry = family.id AND vote.principal = ? LIMIT 1"
        return bool(self._all(FAMILY + voted, id, principal))

    def qualities(self, ids: Collection[str]) -> dict[str, float]:
        """Return `score + helpful − 2·harmful` of some entries, those that are there."""
        sql = "SELECT id, score + helpful - 2.0 * harmful FROM record WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._all(f"{sql} AND NOT is_gone", json.dumps(list(ids))))

    def feedback(self, id: str, limit: int, before: tuple[float, str] | None = None) -> list[Record]:
        """Return an entry's newest feedback, with that of entries merged into it, newest first; a number of each kind.

        Cost: grows with `limit`, not with how much there is.
        """
        sql = f"SELECT {COLUMNS} FROM record WHERE kind = 'feedback' AND NOT is_gone AND entry = ? AND is_helpful = ?"
        sql += f" AND (created_at, id) < (?, ?) ORDER BY created_at DESC, id DESC LIMIT {limit}"

        def work(db: sqlite3.Connection) -> list[Record]:
            family = db.execute(FAMILY + "SELECT id FROM family", (id,)).fetchall()
            sides = ((one, is_helpful, *(before or _LATEST)) for (one,) in family for is_helpful in (0, 1))
            return [record_of_row(row) for side in sides for row in db.execute(sql, side)]

        return sorted(self._do(work), key=lambda known: known.key, reverse=True)

    # -- feedback --

    def rank(self, query: str, limit: int, among: frozenset[str]) -> list[str]:
        """Return those of some entries that fit a query, best first."""
        self.tend()
        # Where nearly all are eligible, the hits are looked at; where all are, none.
        chosen: Among | None = among if len(among) <= _FEW else among.intersection
        some = None if len(among) == self._entries else chosen
        self._index.ask(query)
        found = self._with_index(lambda: self._index.search(query, limit, among=some, quotes=0))
        return [one.id for one in found if one.id in among and one.score >= _LEAST_FIT]

    def resembling(self, token: Token, task: str, least: float, limit: int) -> list[tuple[float, Record]]:
        """Return the entries that a token sees whose tasks are similar to a text, the most similar first.

        Args:
            token: Who may see them.
            task: Any text.
            least: The share of all terms of both that must be in both, at least a half.
            limit: At most this many.

        Cost: a query of the newest 100 entries with each of eight terms; the terms of 50 are compared.
        """
        terms = set(texts.terms(task))
        marks = task_marks(terms)
        if not marks:
            return []
        seen = "?1 IS NULL OR EXISTS (SELECT 1 FROM json_each(?1), mark WHERE mark = value AND mark.id = one.id)"
        newest = f"SELECT id FROM mark WHERE mark = ?{{}} ORDER BY id DESC LIMIT {_LOOKED_AT}"
        with_one = f"SELECT * FROM (SELECT id FROM ({newest}) AS one WHERE {seen} LIMIT {_NEWEST})"
        with_any = " UNION ALL ".join(with_one.format(place + 2) for place in range(len(marks)))
        likely = f"SELECT id FROM ({with_any}) GROUP BY id ORDER BY count(*) DESC LIMIT {_COMPARED}"
        seen_by = None if token.sees_all() else _marks_seen(token)
        alike = list[tuple[float, str]]()
        for id, said in self._all(f"SELECT id, terms FROM record WHERE id IN ({likely})", seen_by, *marks):
            theirs = said.split()
            shared = len(terms.intersection(theirs))
            alike.append((shared / (len(terms) + len(theirs) - shared), id))
        best = [pair for pair in sorted(alike, reverse=True)[:limit] if pair[0] >= least]
        records = self.several([id for _, id in best])
        return [(share, records[id]) for share, id in best if id in records]

    # -- operations --

    def operation(self, operation_id: str) -> Entry | None:
        """Return an operation by its id, or None."""
        return next(iter(self._operations("WHERE id = ?", clean(operation_id))), None)

    def marked(self, mark: str) -> list[Entry]:
        """Return the operations of one Idempotency-Key, oldest first."""
        return self._operations("WHERE mark = ? ORDER BY seq", mark)

    def operations_on(self, id: str, limit: int) -> list[Entry]:
        """Return the newest operations on a record, newest first."""
        newest = "SELECT seq FROM touched WHERE record = ? ORDER BY seq DESC LIMIT ?"
        return self._operations(f"WHERE seq IN ({newest}) ORDER BY seq DESC", id, limit)

    def operations_before(self, seq: int | None, limit: int) -> list[Entry]:
        """Return the operations before a number, newest first; None is the end."""
        return self._operations("WHERE seq < ? ORDER BY seq DESC LIMIT ?", 2**62 if seq is None else seq, limit)

    def _operations(self, where: str, *values: object) -> list[Entry]:
        self.catch_up()
        rows = self._all(f"SELECT id, op, at, seq, before, after FROM operation {where}", *values)
        return [Entry(*row[:4], *map(read_records, row[4:])) for row in rows]


def text_of(fields: Json, content: str) -> str:
    """Return the searched texts of an entry: its task, the values of its tags, its content."""
    tags = fields.get("tags")
    values = [str(value) for value in tags.values()] if isinstance(tags, dict) else []
    return "\n".join([str(fields.get("task", "")), *values, content])


def _unit(id: str, said: str, content: str) -> Unit:
    """Return an entry as the index has it."""
    first, *rest = [*texts.passages(clean(text_of(json.loads(said)[1], content)))] or [""]
    return Unit(id, (), first, rest)


def _marks_seen(token: Token) -> str:
    """Return the marks of one's scopes, for `_SEEN`."""
    return json.dumps([scope_mark(scope, token.principal) for scope in (*token.scopes, OWNER_SCOPE)])
