"""The words of one owner space on disk: sqlite3's FTS5 finds candidates, `memory.fulltext` scores them.

Two shelves of the same form: `heads` holds levels 0 and 1, one row each, `passages` the passages and messages of level
2. A row's number is `group << 20 | place`, so that who stood just before or after is the next number, and counting a
word by group reads no row. Group 0 belongs to nobody and has the negative numbers; messages are grouped by session.
The last bit of a head's number is its level, so that looking for one level reads no row either.

    rows     number, id, uri, level, part, category, at, said (the message's id), text, terms, length, asks
    fts      FTS5 over `terms` (made by `terms_of`), without a copy of them
    nodes    uri, sequence, digest of what was projected: what equals it need not be read again
    names    folded name → uri: titles, aliases, the last segment, confirmed queries

All of it follows from the main store, and may be deleted at any time.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ...memory.fulltext import RankingWeights, idf_of, norm_of, score_passages, split_passages, terms_of, worth_of
from ..core.forks import watch_forks
from ..core.objects import IndexRecord
from ..core.text import clean, fold
from .sqlite_files import open_readonly

__all__ = ["IndexedNode", "WordHit", "WordIndex", "split_passages", "terms_of"]

POSTINGS_LIMIT, FILTERED_LIMIT, TERMS_LIMIT, CANDIDATES = 5_000, 25_000, 64, 100
_PLACES = 20  # bits
_WAIT_S = 5.0  # for another process that writes
_FORMAT = 4
_TF_LIMIT = 7
_KNOWN_TERMS = 10_000

_SHELF = """
CREATE TABLE IF NOT EXISTS {0}(
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, uri TEXT NOT NULL, level INTEGER NOT NULL, part INTEGER NOT NULL,
    category TEXT NOT NULL, at REAL NOT NULL, said TEXT NOT NULL, text TEXT NOT NULL, terms TEXT NOT NULL,
    length INTEGER NOT NULL, asks INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS {0}_of ON {0}(uri);
CREATE VIRTUAL TABLE IF NOT EXISTS {0}_fts USING fts5(
    terms, content='{0}', content_rowid='number',
    tokenize="unicode61 remove_diacritics 0 categories 'L* N* M* S* P* Co'");
CREATE VIRTUAL TABLE IF NOT EXISTS {0}_terms USING fts5vocab('{0}_fts', 'row');
INSERT OR IGNORE INTO totals VALUES ('{0} rows', 0), ('{0} length', 0);
"""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS totals(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups(
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, next INTEGER NOT NULL, length INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS nodes(
    uri TEXT PRIMARY KEY, sequence INTEGER NOT NULL, digest TEXT NOT NULL, category TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS names(name TEXT NOT NULL, uri TEXT NOT NULL, PRIMARY KEY (name, uri)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS names_of ON names(uri);
"""


class IndexedNode(NamedTuple):
    """What the index knows a node as."""

    uri: str
    sequence: int
    digest: str
    category: str


class WordHit(NamedTuple):
    """A row that fits."""

    uri: str
    score: float
    level: int
    part: int
    category: str
    at: float
    said: str
    text: str
    terms: tuple[str, ...]
    """The query's terms that it says."""
    is_answer: bool
    """Whether what stands just before asks something."""


class _Own:
    """A thread's own connection, closed with the thread; a forked child leaves its parent's alone."""

    def __init__(self, generation: int, connection: sqlite3.Connection) -> None:
        self.generation, self.connection, self._pid = generation, connection, os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            self.connection.close()


class WordIndex:
    """The index of one space; any number of threads and processes may use it.

    Args:
        path: The file; None keeps all in memory.
        readonly: Whether nothing may be written; where no file is, all is kept in memory.
        weights: What counts besides BM25.

    Attributes:
        is_new: Whether it knows nothing yet: all of the space is to be projected.

    Cost: opening 1 ms; a row some 60 µs; a query some milliseconds, among 300,000 passages some tens of them.
    """

    def __init__(self, path: Path | None, readonly: bool = False, weights: RankingWeights | None = None) -> None:
        self._path, self._readonly = path, readonly
        self.weights = weights or RankingWeights()
        self.is_new = False
        self._lock = threading.RLock()
        self._local = threading.local()
        self._memory: sqlite3.Connection | None = None
        self._generation = 0
        self._totals: dict[str, int] = {}  # as the open transaction has changed them
        watch_forks(self)
        self._prepare()

    def renew_after_fork(self) -> None:
        """Begin with a lock and connections of its own."""
        self._lock = threading.RLock()
        self._abandoned = self._local
        self._local = threading.local()

    # -- the file --

    def _prepare(self) -> None:
        if self._path is None or (self._readonly and not self._path.exists()):
            self._make_in_memory()
            return
        if self._readonly:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._make_file()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self.discard()

    def _make_in_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._make(self._memory)
        self.is_new = True

    def _make_file(self) -> None:
        assert self._path is not None
        is_there = self._path.exists()
        connection = self._connection()
        connection.execute("PRAGMA journal_mode = WAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _FORMAT):  # 0: somebody just makes it
            self._clear(connection)  # all of it follows from the files
        if version != _FORMAT:  # who only reads one that is made need not wait for who writes it
            self._make(connection)
        if not is_there:
            self._path.chmod(0o600)
        self.is_new = not connection.execute("SELECT 1 FROM totals WHERE name = 'is whole'").fetchall()

    def _make(self, connection: sqlite3.Connection) -> None:
        shelves = "".join(_SHELF.format(shelf) for shelf in ("heads", "passages"))
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {shelves} PRAGMA user_version = {_FORMAT}; COMMIT;")

    def _clear(self, connection: sqlite3.Connection) -> None:
        """Drop all tables in one transaction: another process may have the file open, so it is not deleted."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            while tables := connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY sql LIKE"
                " 'CREATE VIRTUAL%' DESC, name DESC LIMIT 1"  # those of a virtual table go with it
            ).fetchall():
                connection.execute(f'DROP TABLE "{tables[0][0]}"')
            connection.execute("PRAGMA user_version = 0")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _connection(self) -> sqlite3.Connection:
        if self._memory is not None:
            return self._memory
        own: _Own | None = getattr(self._local, "own", None)
        if own is None or own.generation != self._generation:
            own = self._local.own = _Own(self._generation, self._open())
        return own.connection

    def _open(self) -> sqlite3.Connection:
        assert self._path is not None
        if not self._readonly:
            made = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
            try:
                made.execute("PRAGMA synchronous = NORMAL")
                made.execute("PRAGMA secure_delete = ON")
                made.execute("PRAGMA wal_autocheckpoint = 0")  # as in the journal: checkpoints must not race
            except sqlite3.Error:
                made.close()
                raise
            return made
        found = open_readonly(str(self._path))
        if found is not None:
            return found
        raise sqlite3.OperationalError(f"{self._path} cannot be read")

    def discard(self, is_damaged: bool = False) -> None:
        """Begin again with nothing: the file was damaged, or is not wanted."""
        with self._lock:
            if self._memory is not None:
                self._make_in_memory()
                return
            try:
                if is_damaged:
                    raise sqlite3.DatabaseError("damaged")
                self._clear(self._connection())
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                self._delete()
            self._make_file()

    def _delete(self) -> None:
        """Delete a file that cannot be read."""
        self.close()
        assert self._path is not None
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink(missing_ok=True)

    def try_writing(self) -> None:
        """Write nothing, and raise what sqlite3 says to it."""
        if not self._readonly:
            with self.writing():
                pass

    def checkpoint(self) -> None:
        """Empty the WAL, unless somebody reads it; under the store's lock."""
        if self._memory is None and not self._readonly:
            with contextlib.suppress(sqlite3.Error):
                self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close this thread's connection; those of other threads close with them."""
        self._local.own = None
        if self._memory is not None:
            self._memory.close()
        self._generation += 1

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index for writing: whoever reads the main store within, and writes here, leaves no older state."""
        with self._lock:
            connection = self._connection()
            if connection.in_transaction:
                yield
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?)", self._totals.items())
            except BaseException:
                if connection.in_transaction:  # sqlite3 ends it itself where the disk is full
                    connection.execute("ROLLBACK")
                raise
            finally:
                self._totals = {}
            connection.execute("COMMIT")

    def mark_whole(self) -> None:
        """Note that all of the space has been projected."""
        with self.writing():
            self._connection().execute("INSERT OR IGNORE INTO totals VALUES ('is whole', 1)")
        self.is_new = False

    # -- what is there --

    def node(self, uri: str) -> IndexedNode | None:
        """Return what the index knows of a node."""
        rows = self._connection().execute("SELECT * FROM nodes WHERE uri = ?", (uri,)).fetchall()
        return IndexedNode(*rows[0]) if rows else None

    def nodes_beneath(self, uri: str) -> list[IndexedNode]:
        """Return the nodes at and beneath a URI, by URI."""
        rows = self._connection().execute(
            "SELECT * FROM nodes WHERE uri = ? OR (uri >= ? AND uri < ?) ORDER BY uri", (uri, f"{uri}/", f"{uri}0")
        )
        return [IndexedNode(*row) for row in rows]

    def uris_by_name(self, text: str) -> list[str]:
        """Return the nodes that a text names exactly, but for case and width."""
        rows = self._connection().execute("SELECT uri FROM names WHERE name = ? ORDER BY uri", (fold(clean(text)),))
        return [row[0] for row in rows]

    def is_wanted(
        self,
        uri: str,
        target: str = "",
        categories: Collection[str] = (),
        since: float | None = None,
        until: float | None = None,
    ) -> bool:
        """Whether a node is one of those that some filters let through; they are those of `rank`."""
        where, values = _where(target, categories, since, until)
        sql = f"SELECT 1 FROM heads r WHERE r.uri = ? AND r.level = 0{where and ' AND '}{where}"
        return bool(self._connection().execute(sql, (uri, *values)).fetchall())

    def texts(self) -> list[tuple[str, str]]:
        """Return (uri, text) of every row, for vectors."""
        found = []
        for shelf in ("heads", "passages"):
            found += self._connection().execute(f"SELECT uri, text FROM {shelf} ORDER BY number").fetchall()
        return found

    def rows_of_texts(self, texts: Sequence[str], shelf: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows that have one of some texts, by text."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for text in texts:
            rows = self._connection().execute(
                f"SELECT uri, level, part, category, at, said FROM {shelf} WHERE number IN"
                f" (SELECT rowid FROM {shelf}_fts WHERE {shelf}_fts MATCH ?) AND text = ?",
                (_phrase(terms_of(text)), text),
            ).fetchall() if terms_of(text) else ()  # fmt: skip
            if rows:
                found[text] = list(rows)
        return found

    def dump(self) -> list[tuple[Any, ...]]:
        """Return all that is indexed, in an order that does not depend on the order of writing: for comparing two."""
        connection = self._connection()
        found = connection.execute("SELECT uri, digest, category FROM nodes ORDER BY uri").fetchall()
        found += connection.execute("SELECT name, uri FROM names ORDER BY name, uri").fetchall()
        for shelf in ("heads", "passages"):
            found += connection.execute(
                f"SELECT id, uri, level, part, category, said, text, terms FROM {shelf} ORDER BY uri, level, part, id"
            ).fetchall()
        return found

    # -- writing --

    def replace(self, node: IndexedNode, records: Sequence[IndexRecord], names: Iterable[str], group: str = "") -> None:
        """Let the index hold a node as it is; rows whose text is the same keep their places.

        Args:
            node: What it is known as; one with a lower sequence than what is there is ignored.
            records: Its levels and passages.
            names: What it is called.
            group: What its passages belong to; "" is nothing.
        """
        with self.writing():
            connection = self._connection()
            present = self.node(node.uri)
            if present is not None and present.sequence > node.sequence:
                return
            connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)", node)
            connection.execute("DELETE FROM names WHERE uri = ?", (node.uri,))
            rows = {(name, node.uri) for name in map(fold, names) if name}
            connection.executemany("INSERT INTO names VALUES (?, ?)", sorted(rows))
            for shelf, levels in (("heads", (0, 1)), ("passages", (2,))):
                mine = [record for record in records if record.level in levels]
                self._replace_rows(shelf, node.uri, mine, group if shelf == "passages" else "")

    def _replace_rows(self, shelf: str, uri: str, records: Sequence[IndexRecord], group: str) -> None:
        connection = self._connection()
        held = connection.execute(
            f"SELECT number, id, terms, length, text, category, at, said FROM {shelf} WHERE uri = ?", (uri,)
        ).fetchall()
        by_id = {row[1]: row for row in held}
        wanted = {record.id: record for record in records}
        for row in held:
            if row[1] not in wanted:
                self._drop(shelf, row)
        for record in records:
            row = by_id.get(record.id)
            meta = record.metadata
            values = (record.text, record.category, float(meta.get("at") or 0.0), str(meta.get("said") or ""))
            if row is not None and row[4:] == values:
                continue
            if row is not None:
                self._drop(shelf, row)
            self._add(shelf, record, group, row[0] if row is not None else None)

    def _add(self, shelf: str, record: IndexRecord, group: str, number: int | None) -> None:
        connection = self._connection()
        terms = terms_of(record.text)
        joined, length = " ".join(terms), len(terms)
        if number is None:
            number = (
                self._take_number(group) if shelf == "passages" else 2 * self._bump("heads next", -1) | record.level
            )
        asks = int("?" in record.text or "？" in record.text)
        meta = record.metadata
        connection.execute(
            f"INSERT INTO {shelf} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                record.id,
                record.uri,
                record.level,
                record.part,
                record.category,
                float(meta.get("at") or 0.0),
                str(meta.get("said") or ""),
                record.text,
                joined,
                length,
                asks,
            ),
        )
        connection.execute(f"INSERT INTO {shelf}_fts(rowid, terms) VALUES (?, ?)", (number, joined))
        self._count(shelf, number, 1, length)

    def _drop(self, shelf: str, row: Sequence[Any]) -> None:
        number, terms, length = row[0], row[2], row[3]
        connection = self._connection()
        connection.execute(
            f"INSERT INTO {shelf}_fts({shelf}_fts, rowid, terms) VALUES ('delete', ?, ?)", (number, terms)
        )
        connection.execute(f"DELETE FROM {shelf} WHERE number = ?", (number,))
        self._count(shelf, number, -1, -length)

    def _count(self, shelf: str, number: int, rows: int, length: int) -> None:
        self._bump(f"{shelf} rows", rows)
        self._bump(f"{shelf} length", length)
        if shelf == "passages" and number > 0:
            self._connection().execute(
                "UPDATE groups SET length = length + ? WHERE number = ?", (length, number >> _PLACES)
            )

    def _bump(self, name: str, change: int) -> int:
        """Change a total, which is written once at the end of the transaction, and return what it is now."""
        held = self._totals.get(name)
        if held is None:
            row = self._connection().execute("SELECT value FROM totals WHERE name = ?", (name,)).fetchone()
            held = row[0] if row else 0
        self._totals[name] = held + change
        return held + change

    def _take_number(self, group: str) -> int:
        connection = self._connection()
        if not group:
            # Group 0 may grow beyond its places: nobody is anybody's neighbour there, and the sign keeps it apart.
            return self._bump("passages next", -1)
        rows = connection.execute("SELECT number, next FROM groups WHERE name = ?", (group,)).fetchall()
        if not rows or rows[0][1] >> _PLACES:
            if rows:  # it is full: another one goes on
                return self._take_number(f"{group}\0")
            connection.execute("INSERT INTO groups(name, next, length) VALUES (?, 0, 0)", (group,))
            rows = connection.execute("SELECT number, next FROM groups WHERE name = ?", (group,)).fetchall()
        number, place = rows[0]
        connection.execute("UPDATE groups SET next = next + 1 WHERE number = ?", (number,))
        return int(number) << _PLACES | int(place)

    def remove(self, uri: str) -> None:
        """Drop a node; one that is not there is no error."""
        with self.writing():
            connection = self._connection()
            connection.execute("DELETE FROM nodes WHERE uri = ?", (uri,))
            connection.execute("DELETE FROM names WHERE uri = ?", (uri,))
            for shelf in ("heads", "passages"):
                self._replace_rows(shelf, uri, (), "")

    def move(self, uri: str, to: str, new_id: Any) -> None:
        """Let a node be at another place; `new_id(uri, level, part)` makes its rows' ids."""
        with self.writing():
            connection = self._connection()
            self.remove(to)
            for table in ("nodes", "names"):
                connection.execute(f"UPDATE OR REPLACE {table} SET uri = ? WHERE uri = ?", (to, uri))
            for shelf in ("heads", "passages"):
                rows = connection.execute(f"SELECT number, level, part FROM {shelf} WHERE uri = ?", (uri,)).fetchall()
                for number, level, part in rows:
                    connection.execute(
                        f"UPDATE {shelf} SET uri = ?, id = ? WHERE number = ?", (to, new_id(to, level, part), number)
                    )

    def rewrite(self) -> None:
        """Write the file anew, so that what was removed is in no page of it. Cost: that of all its rows."""
        with self._lock:
            connection = self._connection()
            for shelf in ("heads", "passages"):
                connection.execute(f"INSERT INTO {shelf}_fts({shelf}_fts) VALUES ('rebuild')")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # -- finding --

    def rank(
        self,
        query: str,
        limit: int,
        shelf: str = "passages",
        target: str = "",
        categories: Collection[str] = (),
        since: float | None = None,
        until: float | None = None,
        level: int | None = None,
    ) -> list[WordHit]:
        """Return the rows that fit a query, best first: one of each message, and of each node's head.

        Args:
            query: A question, any text.
            limit: At most so many.
            shelf: `"passages"` or `"heads"`.
            target: Only at and beneath this URI.
            categories: Only of these.
            since: Not older, in seconds since the epoch.
            until: Older than this.
            level: Only this one.
        """
        scorer = _Scorer(self._connection(), shelf, self._frequencies(shelf))
        worth = worth_of(query, self.weights.aside, scorer.idf)
        asked = {term: value for term, value in worth.items() if scorer.grouped(term)}
        where, values = _where(target, categories, since, until)
        found = scorer.candidates(asked, max(CANDIDATES, 3 * limit), where, values, level)
        if not found:
            return []
        picked = score_passages(
            scorer, found, asked, self.weights, limit, scorer.id_of, lambda slot: scorer.accepts(slot, where, values)
        )
        ideal = sum(worth.values())
        return [scorer.hit(slot, min(1.0, score / ideal), asked) for slot, score in picked if score > 0.0]

    def _frequencies(self, shelf: str) -> dict[str, int]:
        """Return how many rows say a term, of terms that were asked for since the last change of the file."""
        connection = self._connection()
        # To count a term's rows is to read all of its postings. The first number tells of others' changes, the second
        # of those of this connection.
        state = (id(connection), *connection.execute("PRAGMA data_version").fetchone(), connection.total_changes)
        held: tuple[Any, dict[str, dict[str, int]]] | None = getattr(self._local, "frequencies", None)
        if held is None or held[0] != state or len(held[1].get(shelf, ())) > _KNOWN_TERMS:
            held = self._local.frequencies = (state, {})
        return held[1].setdefault(shelf, {})


def _where(target: str, categories: Collection[str], since: float | None, until: float | None) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if target:
        parts.append("(r.uri = ? OR (r.uri >= ? AND r.uri < ?))")
        values += [target, f"{target}/", f"{target}0"]
    if categories:
        parts.append(f"r.category IN ({', '.join('?' * len(categories))})")
        values += list(categories)
    for part, value in (("r.at >= ?", since), ("r.at < ?", until)):
        if value is not None:
            parts.append(part)
            values.append(value)
    return " AND ".join(parts), values


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _phrase(terms: Sequence[str]) -> str:
    return " AND ".join(map(_quote, dict.fromkeys(terms[:TERMS_LIMIT])))


def _match(needed: Sequence[str], others: Sequence[str]) -> str:
    """Return a query for rows that say one of the needed terms, which bm25 ranks by all terms.

    It counts a term as often as the query has it, so each stands there twice.
    """
    either, more = " OR ".join(map(_quote, needed)), " OR ".join(map(_quote, others))
    return f"({either}) AND ({either} OR {more} OR {more})" if others else either


class _Scorer:
    """What `score_passages` reads of one shelf, for one query."""

    _COLUMNS = "r.number, r.uri, r.level, r.part, r.category, r.at, r.said, r.text, r.terms, r.length, r.asks"

    def __init__(self, connection: sqlite3.Connection, shelf: str, frequencies: dict[str, int]) -> None:
        self._connection, self._shelf = connection, shelf
        totals = dict(connection.execute("SELECT name, value FROM totals WHERE name LIKE ?", (f"{shelf} %",)))
        self._count = max(1, totals.get(f"{shelf} rows", 0))
        self._average = max(1.0, totals.get(f"{shelf} length", 0) / self._count)
        self._frequencies = frequencies
        self._rows: dict[int, tuple[Any, ...]] = {}
        self._next: dict[int, int] = {}
        self._looks: dict[int, dict[str, float]] = {}

    def grouped(self, number: str, /) -> int:
        """Return how many rows say a term."""
        held = self._frequencies.get(number)
        if held is None:
            row = self._connection.execute(
                f"SELECT doc FROM {self._shelf}_terms WHERE term = ?", (number,)
            ).fetchone()  # fmt: skip
            held = self._frequencies[number] = int(row[0]) if row else 0
        return held

    def idf(self, number: str, /) -> float:
        """Return how rare a term is."""
        return idf_of(self._count, self.grouped(number))

    def candidates(
        self, asked: Mapping[str, float], limit: int, where: str, values: Sequence[Any], level: int | None
    ) -> list[int]:
        """Return the rows with the best BM25 among those that say one of the rarest terms.

        To rank a row takes ten times as long as to find it: so the rows of a bounded number of postings are ranked,
        those of the rarest terms, by all terms. Where a filter leaves some out, of more of them.
        """
        shelf, limits = self._shelf, (FILTERED_LIMIT if where else POSTINGS_LIMIT)
        terms = sorted(asked, key=lambda term: (self.grouped(term), term))[:TERMS_LIMIT]
        if not terms:
            return []
        reach = accumulate(self.grouped(term) for term in terms)
        count = max(1, sum(postings <= limits for postings in reach))
        match = _match(terms[:count], terms[count:])
        is_level = "" if level is None else f" AND f.rowid & 1 = {level}"
        joined = f" JOIN {shelf} r ON r.number = f.rowid" if where else ""
        sql = (
            f"SELECT f.rowid FROM {shelf}_fts f{joined} WHERE {shelf}_fts MATCH ?{is_level}{where and ' AND '}{where}"
            # Not `ORDER BY rank`, which ranks rows before it leaves them out.
            f" ORDER BY bm25({shelf}_fts), f.rowid LIMIT ?"
        )
        found = [row[0] for row in self._connection.execute(sql, (match, *values, limit))]
        self._read(found)
        return [slot for slot in found if slot in self._rows]

    def _read(self, slots: Sequence[int]) -> None:
        marks = ", ".join("?" * len(slots))
        sql = f"SELECT {self._COLUMNS} FROM {self._shelf} r WHERE r.number IN ({marks})"
        for row in self._connection.execute(sql, slots):
            self._rows[row[0]] = row

    def look(self, slot: int, asked: Mapping[str, float]) -> dict[str, float]:
        """Return what each term of a query counts in a row."""
        held = self._looks.get(slot)
        if held is None:
            row = self._rows[slot]
            norm, said = norm_of(row[9] / self._average), row[8].split(" ")
            counts = {term: min(said.count(term), _TF_LIMIT) for term in asked.keys() & set(said)}
            held = self._looks[slot] = {term: asked[term] * count / (count + norm) for term, count in counts.items()}
        return held

    def answer_to(self, slot: int) -> int:
        """Return what follows a row that asks something in its group, else -1."""
        if slot < 0 or not self._rows[slot][10]:
            return -1
        if slot not in self._next:
            end = (slot >> _PLACES) + 1 << _PLACES
            row = self._connection.execute(
                f"SELECT {self._COLUMNS} FROM {self._shelf} r WHERE r.number > ? AND r.number < ?"
                " ORDER BY r.number LIMIT 1",
                (slot, end),
            ).fetchone()
            self._next[slot] = row[0] if row else -1
            if row:
                self._rows[row[0]] = row
        return self._next[slot]

    def accepts(self, slot: int, where: str, values: Sequence[Any]) -> bool:
        """Whether a row is one of those that are asked for."""
        if not where:
            return True
        sql = f"SELECT 1 FROM {self._shelf} r WHERE r.number = ? AND {where}"
        return bool(self._connection.execute(sql, (slot, *values)).fetchall())

    def group_of(self, slot: int) -> int:
        """Return the group of a row, or -1."""
        return slot >> _PLACES if slot > 0 else -1

    def group_norms(self, groups: Collection[int]) -> tuple[int, dict[int, float]]:
        """Return how many groups there are, and BM25's norm of each of some."""
        row = self._connection.execute("SELECT count(*), sum(length) FROM groups WHERE length > 0").fetchone()
        count, total = row[0] or 1, row[1] or 0
        average = max(1.0, total / count)
        marks = ", ".join("?" * len(groups))
        sql = f"SELECT number, length FROM groups WHERE number IN ({marks})"
        lengths = dict(self._connection.execute(sql, list(groups)))
        return count, {group: norm_of(lengths.get(group, 0) / average) for group in groups}

    def count_by_group(self, number: str, groups: Set[int], /) -> tuple[int, Mapping[int, int]]:
        """Return how many groups say a term, and of some of them how many rows do."""
        rows = self._connection.execute(
            f"SELECT rowid >> {_PLACES}, count(*) FROM {self._shelf}_fts WHERE {self._shelf}_fts MATCH ? AND rowid > 0"
            " GROUP BY 1",
            (_quote(number),),
        )
        counts = dict(rows.fetchall())
        return len(counts), {group: counts[group] for group in groups & counts.keys()}

    def id_of(self, slot: int) -> str:
        """Return what a row is a part of: a message, an entry of a memory, or a node's head."""
        row = self._rows[slot]
        return f"{row[1]}#{row[6] or (row[3] if row[2] == 2 else '')}"

    def hit(self, slot: int, score: float, asked: Mapping[str, float]) -> WordHit:
        """Return a row as a hit."""
        row, said = self._rows[slot], self._looks[slot]
        is_answer = slot in self._next.values()
        return WordHit(row[1], score, row[2], row[3], row[4], row[5], row[6], row[7],
                       tuple(term for term in asked if term in said), is_answer)  # fmt: skip
