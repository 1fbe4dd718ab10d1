"""An inverted index in one SQLite file: units with names, a text and infos are put and removed, and found by words.

>>> index = Index()  # in memory; Index("folder/indexes/words.db") keeps it
>>> index.put([Unit("anna", ["Anna"], infos=["Anna is allergic to peanuts."]), Unit("tea", ["龙井茶"])])
>>> [(hit.id, hit.excerpt) for hit in index.search("Who is allergic to peanuts?")]
[('anna', 'Anna is allergic to peanuts.')]
>>> [hit.id for hit in index.search("龙井")], index.search("Who is Anna's boss?")[0].score < 0.3
(['tea'], True)

A *unit* is what is found. Its names and its text are one document, each piece of its infos is another one; its
*context* is another unit whose words count for it, too: a keyword's parent, the question before an answer. An index is
derived: it can be deleted at any time, and whoever fills it keeps in `position` what it has taken in.

Tables. `posting` has for each term the documents that have it: recent ones as they come (the row with first = 0, which
also counts all of them), older ones sorted, as differences, and deflated. Why not FTS5: before SQLite 3.42 the words of
deleted texts stay in its file until all of it is merged, and it does not return how often a word occurs in a document,
so that every candidate had to be read again (3 times as slow). `document` keeps the texts, deflated: deleting needs
their words, and a hit quotes them.
"""

import bisect
import contextlib
import json
import os
import sqlite3
import struct
import sys
import threading
import weakref
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple
from urllib.parse import quote

from . import calibration, evidence, score, texts

__all__ = ["Hit", "Index", "LostIndexError", "Unit"]

_FORMAT = f"2 {sys.byteorder}"  # another one is made again
_SEALED_FROM = 128  # postings of a term that are kept as they come; from then on sorted and deflated
_BATCH_BYTES = 1 << 23  # postings that are collected before they are written
_WAIT_S = 2.0  # for another process that writes
_PARAMETERS = 500  # of one statement

_SCHEMA = """
create table meta(key text primary key, value) without rowid;
create table unit(num integer primary key, id text unique not null, above integer, grp text not null, document integer);
create table document(num integer primary key, unit integer not null, data blob not null);
create table posting(term text, first integer, n integer, data blob, primary key (term, first)) without rowid;
create index unit_above on unit(above) where above is not null;
create index unit_group on unit(grp, document) where grp <> '';
create index document_unit on document(unit);
"""


_INHERITED: list[object] = []  # connections of a parent process: closing one would release locks that the parent holds
_DAMAGE = (sqlite3.DatabaseError, zlib.error, ValueError, LookupError, TypeError, OverflowError)
# What says nothing of the file: busy, locked, read-only, full, not to be opened; errors of the disk, but for the end
# of a file that came too early.
_UNAVAILABLE, _DISK_ERROR, _SHORT_READ = {5, 6, 8, 13, 14}, 10, 522


def _is_damage(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code == _SHORT_READ or code & 255 not in _UNAVAILABLE | {_DISK_ERROR}


def _prepare(db: sqlite3.Connection) -> None:
    # Not WAL: it maps a file into memory, and whoever overwrites that kills the process; removed bytes stay in it.
    for pragma in ("journal_mode = truncate", "synchronous = normal", "secure_delete = on", "cell_size_check = on"):
        db.execute(f"pragma {pragma}")
    db.execute("pragma cache_size = -8000")
    is_made = "select 1 from sqlite_master"
    if not db.execute(is_made).fetchone():
        db.execute("begin immediate")
        if not db.execute(is_made).fetchone():  # another process was not quicker
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("insert into meta values ('format', ?), ('position', ''), ('next', 1)", (_FORMAT,))
        db.execute("commit")
    row = db.execute("select value from meta where key = 'format'").fetchone()
    if row is None or row[0] != _FORMAT:
        raise sqlite3.DatabaseError("the index is of another version")


def _close_unless_forked(db: sqlite3.Connection, pid: int) -> None:
    if os.getpid() == pid:
        db.close()


class LostIndexError(Exception):
    """The file was damaged or of another version, and has been begun again, empty: everything has to be put again."""


class Unit(NamedTuple):
    """What is found, by what."""

    id: str
    names: Sequence[str] = ()
    text: str = ""
    infos: Sequence[str] = ()
    context: str | None = None
    """The id of a unit whose words count for this one, a little less; it may be put later."""
    group: str = ""
    """To what it belongs: a search can be within some groups."""


class Hit(NamedTuple):
    """A unit that fits a question."""

    id: str
    score: float
    """From 0 to 1; from `ANSWER_BAR` on it is an answer."""
    excerpt: str
    """The sentence of its text or infos that says so, at most 160 characters; "" where only its names do."""


def _check(unit: Unit) -> Unit:
    """Return `unit` if it is one: an error within a transaction would pass for damage."""
    for value in (unit.id, unit.text, unit.group, *unit.names, *unit.infos, unit.context or ""):
        if not isinstance(value, str):
            raise TypeError(f"a unit is made of texts, not of {value!r:.60}")
    return unit


class UnitRow(NamedTuple):
    """A unit as it is stored."""

    id: str
    above: int | None
    group: str
    document: int | None


# == Codes ===================================================================================
#
# What a posting says of its document, in 12 bits: the length of the shortest name that has the term (0: none has),
# how often the text has it, and the text's length; lengths in steps of the square root of 2.

_NAME_STEPS = [2 ** (step / 2) for step in range(1, 15)]
_TEXT_STEPS = [2 ** (step / 2) for step in range(1, 31)]


def _encode_name(length: int) -> int:
    return (1 + bisect.bisect(_NAME_STEPS, length)) << 8


def _encode_texts(found: Sequence[str]) -> dict[str, int]:
    """Return each term of a text with its code."""
    step = 1 + bisect.bisect(_TEXT_STEPS, len(found))
    return {term: min(7, count) << 5 | step for term, count in Counter(found).items()}


def decode(code: int) -> tuple[float, int, float]:
    """Return the length of the name (0: no name has the term), how often the text has it, and the text's length."""
    name_step, text_step = code >> 8, code & 31
    return 2.0 ** ((name_step - 1) / 2) if name_step else 0.0, code >> 5 & 7, 2.0 ** ((text_step - 1) / 2)


class _Tokens(NamedTuple):
    """The terms of a document, each with its code, and what the document adds to the counts."""

    codes: dict[str, int]
    counts: dict[str, int]


def _read_own(names: Sequence[str], text: str) -> _Tokens:
    codes, body, lengths = dict[str, int](), texts.terms(text), 0
    if not names:
        return _Tokens(_encode_texts(body), {"units": 1, "texts": bool(body), "text terms": len(body)})
    for found in sorted(map(texts.terms, names), key=len, reverse=True):  # the shortest name comes last, and counts
        lengths += len(found)
        grams = [gram for term in found for gram in texts.trigrams(term)]
        codes.update(dict.fromkeys((*found, *grams), _encode_name(len(found))))
    for term, code in _encode_texts(body).items():
        codes[term] = codes.get(term, 0) | code
    counts = {"units": 1, "names": len(names), "name terms": lengths, "texts": bool(body), "text terms": len(body)}
    return _Tokens(codes, counts)


def _read_passage(text: str) -> _Tokens:
    found = texts.terms(text)
    return _Tokens(_encode_texts(found), {"passages": 1, "passage terms": len(found)})


def _pack(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return zlib.compress(data) if len(data) > 100 else b"\0" + data


def _unpack(data: bytes) -> str:
    data = data[1:] if data[:1] == b"\0" else zlib.decompress(data)
    return data.decode("utf-8", "surrogatepass")


def _seal(postings: Iterable[tuple[int, int]]) -> bytes:
    """Return postings, sorted by document, as they are kept."""
    documents, codes = zip(*postings, strict=True)
    steps = array("I", (after - before for before, after in zip((0, *documents), documents, strict=False)))
    return zlib.compress(steps.tobytes() + array("H", codes).tobytes())


def _unseal(data: bytes) -> Iterable[tuple[int, int]]:
    raw = zlib.decompress(data)
    end = len(raw) // 6 * 4
    return zip(accumulate(array("I", raw[:end])), array("H", raw[end:]), strict=True)


def _open_tail(data: bytes) -> Iterable[tuple[int, int]]:
    halves = array("H", data)
    return ((low | high << 16, code) for low, high, code in zip(*(halves[at::3] for at in range(3)), strict=True))


def _close_tail(postings: Iterable[tuple[int, int]]) -> bytes:
    return array("H", [part for at, code in postings for part in (at & 0xFFFF, at >> 16, code)]).tobytes()


# == The index ===============================================================================


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_pack_halves = struct.Struct("=HH").pack
_CODES = [code.to_bytes(2, sys.byteorder) for code in range(1 << 12)]


class _Batch:
    """What a transaction collects before it is written."""

    def __init__(self, first_number: int) -> None:
        self.added: defaultdict[str, bytearray] = defaultdict(bytearray)
        self.removed: defaultdict[str, set[int]] = defaultdict(set)
        self.counts: Counter[str] = Counter()
        self.size = 0
        self.next = first_number
        self.ids: set[str] = set()

    def add(self, document: int, tokens: _Tokens) -> None:
        for name, count in tokens.counts.items():
            self.counts[name] += count
        self.size += 6 * len(tokens.codes)
        added, head = self.added, _pack_halves(document & 0xFFFF, document >> 16)
        for term, code in tokens.codes.items():
            added[term] += head + _CODES[code]

    def remove(self, document: int, tokens: _Tokens) -> None:
        self.counts.subtract(tokens.counts)
        self.size += 6 * len(tokens.codes)
        for term in tokens.codes:
            self.removed[term].add(document)


class Index:
    """An inverted index in a file, or in memory; see the head of this module.

    Threads may share one, processes a file; a forked child opens its own. The file and its folder are for their owner
    alone. Every method raises `LostIndexError` where the file was damaged, which by then is an empty one, and
    `sqlite3.OperationalError` where the disk is full or another process writes for more than two seconds; nothing is
    changed then.

    Args:
        path: Of the file; None keeps all in memory.
        is_readonly: Whether no byte may be written, not even where the file is damaged.
    """

    def __init__(self, path: str | None = None, *, is_readonly: bool = False) -> None:
        self.path = path
        self._is_readonly = is_readonly
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._close: Callable[[], object] = bool  # closes `_db`, also when this is garbage
        self._identity: object = None
        self._pid = os.getpid()
        self._depth = 0

    # -- the file -------------------------------------------------------------

    def close(self) -> None:
        """Close the file; the next call opens it again. What is in memory alone is gone."""
        with self._lock:
            self._close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and (self._depth or self._identify() == self._identity):
            return self._db
        self._close()  # another process began it again, or the file was deleted
        self._db = self._connect()
        self._close = weakref.finalize(self, _close_unless_forked, self._db, self._pid)
        self._identity = self._identify()
        return self._db

    def _renew_after_fork(self) -> None:
        if self._pid != os.getpid():
            _INHERITED.append(self._db)
            self._pid, self._lock, self._db, self._depth = os.getpid(), threading.RLock(), None, 0

    def _identify(self) -> object:
        if self.path is None:
            return None
        try:
            status = os.stat(self.path)
        except OSError:
            return 0
        return status.st_dev, status.st_ino

    def _connect(self) -> sqlite3.Connection:
        if self._is_readonly:
            address = f"file:{quote(self.path or '')}?mode=ro"
            return sqlite3.connect(address, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=True)
        if self.path is not None:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # an existing one is not opened: closing it would drop its locks
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = sqlite3.connect(self.path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _begin_again(self) -> None:
        """Put an empty file in the place of a damaged one."""
        self._close()
        self._db, self._depth = None, 0
        for ending in () if self._is_readonly else ("", "-journal", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                if self.path is not None:
                    os.remove(self.path + ending)

    @contextlib.contextmanager
    def _using(self, begin: str, damage: tuple[type[Exception], ...] = _DAMAGE) -> Iterator[sqlite3.Connection]:
        """Hold a transaction: either all of what is done within is kept, or nothing."""
        self._renew_after_fork()
        with self._lock:
            try:
                db = self._open()
                if self._depth:
                    yield db
                    return
                db.execute(begin)
                self._depth = 1
                try:
                    yield db
                    db.execute("commit")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        db.execute("rollback")
                    raise
                finally:
                    self._depth = 0
            except damage as error:
                if not _is_damage(error):
                    raise
                self._begin_again()
                raise LostIndexError(f"{type(error).__name__}: {error}") from error

    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Hold everything that is put, removed and set within together: all of it is kept, or nothing."""
        return self._using("begin immediate", (sqlite3.DatabaseError,))

    def reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Hold the index as it is while several things are read."""
        return self._using("begin")

    # -- writing --------------------------------------------------------------

    @property
    def position(self) -> str:
        """What has been taken in, in the words of whoever fills the index; "" for an empty one."""
        with self.reading() as db:
            return str(db.execute("select value from meta where key = 'position'").fetchone()[0])

    @position.setter
    def position(self, position: str) -> None:
        self.keep("position", position)

    def keep(self, key: str, value: object) -> None:
        """Keep a value under a name."""
        with self._using("begin immediate") as db:
            db.execute("insert or replace into meta values (?, ?)", (key, value))

    def kept(self, key: str) -> Any:
        """Return what is kept under a name, or None."""
        with self.reading() as db:
            row = db.execute("select value from meta where key = ?", (key,)).fetchone()
            return row and row[0]

    def put(self, units: Iterable[Unit]) -> None:
        """Take in units; one that is there is replaced, and only what is new in it is indexed.

        Cost: about 0.1 ms for a short text, of many 0.05 ms each.
        """
        units = [_check(unit) for unit in units]
        with self._using("begin immediate") as db:
            batch = self._begin_batch(db)
            for unit in units:
                if batch.size > _BATCH_BYTES or unit.id in batch.ids:
                    self._write(db, batch)
                    batch = self._begin_batch(db)
                self._put(db, batch, unit)
            self._write(db, batch)
            calibration.calibrate(self)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove units, as far as they are there. No byte of their texts stays in the file."""
        ids = list(ids)
        with self._using("begin immediate") as db:
            batch = self._begin_batch(db)
            for id in ids:
                row = db.execute("select num, document from unit where id = ?", (id,)).fetchone()
                if row is None:
                    continue
                num, own = row
                for document, data in db.execute("select num, data from document where unit = ?", (num,)).fetchall():
                    self._drop(db, batch, document, data, is_own=document == own)
                if db.execute("select 1 from unit where above = ?", (num,)).fetchone():
                    db.execute("update unit set document = null, above = null where num = ?", (num,))
                else:
                    db.execute("delete from unit where num = ?", (num,))
                if batch.size > _BATCH_BYTES:
                    self._write(db, batch)
                    batch = self._begin_batch(db)
            self._write(db, batch)

    def _begin_batch(self, db: sqlite3.Connection) -> _Batch:
        return _Batch(int(db.execute("select value from meta where key = 'next'").fetchone()[0]))

    def _number_of(self, db: sqlite3.Connection, id: str) -> int:
        row = db.execute("select num from unit where id = ?", (id,)).fetchone()
        if row is None:
            return int(db.execute("insert into unit(id, grp) values (?, '')", (id,)).lastrowid or 0)
        return int(row[0])

    def _put(self, db: sqlite3.Connection, batch: _Batch, unit: Unit) -> None:
        batch.ids.add(unit.id)
        row = db.execute("select num, document from unit where id = ?", (unit.id,)).fetchone()
        num, own = row or (self._number_of(db, unit.id), 0)  # no document has the number 0
        above = None if unit.context is None else self._number_of(db, unit.context)
        stored = dict(db.execute("select num, data from document where unit = ?", (num,))) if row else {}
        data = _pack(_to_json([list(unit.names), unit.text]))
        old = stored.pop(own, None)
        if old != data:
            if old is not None:
                self._drop(db, batch, own, old, is_own=True)
            own = self._add(db, batch, num, data, _read_own(unit.names, unit.text), is_own=True)
        db.execute("update unit set above = ?, grp = ?, document = ? where num = ?", (above, unit.group, own, num))
        kept = defaultdict[bytes, list[int]](list)
        for at, said in stored.items():
            kept[said].append(at)
        for info in unit.infos:
            for passage in texts.passages(info):
                said = _pack(passage)
                if kept.get(said):
                    kept[said].pop()
                else:
                    self._add(db, batch, num, said, _read_passage(passage), is_own=False)
        for said, numbers in kept.items():
            for at in numbers:
                self._drop(db, batch, at, said, is_own=False)

    def _add(
        self, db: sqlite3.Connection, batch: _Batch, num: int, data: bytes, tokens: _Tokens, *, is_own: bool
    ) -> int:
        document = 2 * batch.next + (not is_own)  # passages have odd numbers, which tells them without a look
        batch.next += 1
        db.execute("insert into document values (?, ?, ?)", (document, num, data))
        batch.add(document, tokens)
        return document

    def _drop(self, db: sqlite3.Connection, batch: _Batch, document: int, data: bytes, *, is_own: bool) -> None:
        text = _unpack(data)
        batch.remove(document, _read_own(*json.loads(text)) if is_own else _read_passage(text))
        db.execute("delete from document where num = ?", (document,))

    # -- postings -------------------------------------------------------------

    def _write(self, db: sqlite3.Connection, batch: _Batch) -> None:
        for term, documents in batch.removed.items():
            self._remove_postings(db, term, documents)
        append = (
            "insert into posting values (?, 0, ?, ?) on conflict do update"
            " set n = n + excluded.n, data = cast(data || excluded.data as blob) returning length(data)"
        )
        for term in sorted(batch.added):
            data = bytes(batch.added[term])
            ((length,),) = db.execute(append, (term, len(data) // 6, data)).fetchall()
            if length >= 6 * _SEALED_FROM:
                (tail,) = db.execute("select data from posting where term = ? and first = 0", (term,)).fetchone()
                postings = sorted(_open_tail(tail))
                db.execute("insert into posting values (?, ?, 0, ?)", (term, postings[0][0], _seal(postings)))
                db.execute("update posting set data = x'' where term = ? and first = 0", (term,))
        db.execute("update meta set value = ? where key = 'next'", (batch.next,))
        for name, count in batch.counts.items():
            db.execute(
                "insert into meta values (?, ?) on conflict do update set value = value + excluded.value", (name, count)
            )

    def _remove_postings(self, db: sqlite3.Connection, term: str, documents: set[int]) -> None:
        left = set(documents)
        n, tail = db.execute("select n, data from posting where term = ? and first = 0", (term,)).fetchone()
        kept = [posting for posting in _open_tail(tail) if posting[0] not in left]
        found = len(tail) // 6 - len(kept)
        if n == len(documents):
            db.execute("delete from posting where term = ?", (term,))
            return
        db.execute(
            "update posting set n = n - ?, data = ? where term = ? and first = 0",
            (len(documents), _close_tail(kept), term),
        )
        while found < len(documents) and left:
            before = "select first, data from posting where term = ? and first between 1 and ? order by first desc"
            row = db.execute(before, (term, max(left))).fetchone()
            if row is None:
                return  # what is left stood in the tail
            sealed = list(_unseal(row[1]))
            kept = [posting for posting in sealed if posting[0] not in left]
            found += len(sealed) - len(kept)
            if kept:
                db.execute("update posting set data = ? where term = ? and first = ?", (_seal(kept), term, row[0]))
            else:
                db.execute("delete from posting where term = ? and first = ?", (term, row[0]))
            left = {at for at in left if at < row[0]}

    # -- reading, for the score ----------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return how many units, names, texts and passages there are, and the terms in them."""
        with self.reading() as db:
            skipped = "select key, value from meta where key not in ('format', 'position', 'next', 'measured at')"
            return {key: value for key, value in db.execute(skipped) if isinstance(value, int)}

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many documents each term occurs, of those that do."""
        sql = "select term, n from posting where first = 0 and term in"
        return dict(self._select(sql, list(terms)))

    def beginning(self, start: str, limit: int = 500) -> list[str]:
        """Return terms that begin so, at most so many."""
        with self.reading() as db:
            sql = "select term from posting where first = 0 and term >= ? and term < ? limit ?"
            return [row[0] for row in db.execute(sql, (start, start + "\U0010ffff", limit))]

    def postings(self, term: str) -> dict[int, int]:
        """Return document → code of all that have a term; a passage's number is odd."""
        found: dict[int, int] = {}
        with self.reading() as db:
            for first, data in db.execute("select first, data from posting where term = ?", (term,)):
                found.update(_unseal(data) if first else _open_tail(data))
        return found

    def owners(self, documents: Collection[int]) -> dict[int, int]:
        """Return document → unit."""
        return dict(self._select("select num, unit from document where num in", documents))

    def units(self, numbers: Collection[int]) -> dict[int, UnitRow]:
        """Return number → unit, of those that are there and those above them."""
        found, wanted = dict[int, UnitRow](), set(numbers)
        while wanted:
            rows = self._select("select num, id, above, grp, document from unit where num in", wanted)
            found.update((num, UnitRow(*row)) for num, *row in rows)
            wanted = {row.above for num in wanted if (row := found.get(num)) and row.above} - found.keys()
        return found

    def numbers(self, ids: Collection[str]) -> dict[str, int]:
        """Return id → number, of the units that are there."""
        return dict(self._select("select id, num from unit where document is not null and id in", ids))

    def documents_of(self, ids: Collection[str]) -> set[int]:
        """Return all documents of some units, given by their ids."""
        numbers = self.numbers(ids).values()
        return {row[0] for row in self._select("select num from document where unit in", numbers)}

    def documents_in(self, groups: Collection[str], limit: int) -> dict[int, str]:
        """Return document → group of what belongs to some groups, but for their infos; of the smaller groups first."""
        found: dict[int, str] = {}
        with self.reading() as db:
            for group in sorted(groups):
                sql = "select document from unit where grp = ? and grp <> '' and document is not null limit ?"
                rows = db.execute(sql, (group, limit - len(found))).fetchall()
                found |= dict.fromkeys(chain.from_iterable(rows), group)
        return found

    def ids(self) -> set[str]:
        """Return the ids of all units."""
        with self.reading() as db:
            return {row[0] for row in db.execute("select id from unit where document is not null")}

    def parents_among(self, numbers: Collection[int]) -> set[int]:
        """Return which of the units are the context of others."""
        return {row[0] for row in self._select("select distinct above from unit where above in", numbers)}

    def passage_counts(self, numbers: Collection[int]) -> dict[int, int]:
        """Return unit → how many passages its infos have, where there are any."""
        sql = "select unit from document where num & 1 and unit in"
        return dict(Counter(row[0] for row in self._select(sql, numbers)))

    def children(self, number: int, limit: int) -> list[int]:
        """Return units that have this one as their context."""
        with self.reading() as db:
            rows = db.execute("select num from unit where above = ? order by num limit ?", (number, limit))
            return [row[0] for row in rows]

    def read(self, documents: Collection[int]) -> dict[int, tuple[list[str], str]]:
        """Return document → names and text; a passage has no names."""
        found = {}
        for num, data in self._select("select num, data from document where num in", documents):
            text = _unpack(data)
            names, text = ([], text) if num & 1 else json.loads(text)
            found[num] = (names, text)
        return found

    def names_of(self, number: int) -> list[str]:
        """Return the names of a unit."""
        own = [row.document for row in self.units([number]).values() if row.document]
        return self.read(own[:1])[own[0]][0] if own else []

    def sample(self, count: int, seed: int) -> list[int]:
        """Return some documents, spread over all, the same ones each time."""
        with self.reading() as db:
            last = db.execute("select max(num) from document").fetchone()[0] or 0
            step = max(1, last // max(1, count))
            nearest = "select num from document where num >= ? order by num limit 1"
            found = (db.execute(nearest, (at,)).fetchone() for at in range(seed % step, last + 1, step))
            return list(dict.fromkeys(row[0] for row in found if row))

    def _select(self, sql: str, values: Collection[object]) -> Iterator[Any]:
        listed = list(values)
        with self.reading() as db:
            for start in range(0, len(listed), _PARAMETERS):
                part = listed[start : start + _PARAMETERS]
                yield from db.execute(f"{sql} ({','.join('?' * len(part))})", part).fetchall()

    # -- searching ------------------------------------------------------------

    def search(
        self,
        query: str,
        limit: int = 10,
        *,
        groups: Collection[str] | None = None,
        among: score.Among | None = None,
        lent: Mapping[str, Mapping[str, float]] | None = None,
        quotes: int | None = None,
    ) -> list[Hit]:
        """Return what fits a question, best first, ties in the order in which it was put.

        Args:
            query: Any text; of a page of it the last sentence and those that ask count most.
            limit: So many hits at most.
            groups: Only units of these.
            among: Only these: their ids, or, where they are many, what returns which of some ids may be found.
            lent: id → term → share (0 to 1): what a unit counts as saying although none of its texts does.
            quotes: Hits that get an excerpt, the first ones; None: all of them.
        """
        with self.reading():
            asked = score.Query(self, texts.question(query))
            found = score.rank(asked, limit, groups=groups, among=among, lent=lent)
            scale = calibration.scale_of(self)
            return [
                Hit(each.id, scale(each.score), self._quote(asked, each) if quotes is None or at < quotes else "")
                for at, each in enumerate(found)
            ]

    def _quote(self, asked: score.Query, found: score.Found) -> str:
        read = self.read(found.documents[: evidence.QUOTED])
        return evidence.quote([text for _, text in read.values()], asked.quoted())
