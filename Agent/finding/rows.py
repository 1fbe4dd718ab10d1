"""The rows of an index: units with names, a text and infos, their terms, and their vectors, in one SQLite file.

A *unit* is a possible hit. Its names and its text are one document, each piece of its infos is another one; its
*context* is another unit whose words count for it, too: a keyword's parent, the question before an answer. An index is
derived: it can be deleted at any time, and its writer keeps in `position` how far it has followed.

`codes` reads the terms of a document and the code of each posting; `packing` turns ids, texts and postings into the
bytes of a row; `IndexFile` keeps the file, and `Rows` its contents.

Tables. A unit's own document has twice its number, so that none has to be looked up; a piece of its infos has an odd
number, and a row in `passage`. `posting` has for each term the documents that have it: the newest in the row with
first = 0, which also counts all of them, older ones in runs of some hundred. Why not FTS5: before SQLite 3.42 the words
of deleted texts stay in its file until all of it is merged, and it does not return how often a word occurs in a
document, so that every candidate had to be read again (3 times as slow). `said` keeps the texts, since deleting needs
their words and a hit quotes them. `vector` has the vectors of a document, each with a stamp that no other one ever had,
and `unread` the documents that have none yet; see `vectors`.
"""

import bisect
import contextlib
import functools
import math
import os
import sqlite3
import sys
import threading
import weakref
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from . import codes, packing, texts
from .thesaurus import Thesaurus

__all__ = ["ANCESTORS", "LostIndexError", "Rows", "Unit", "UnitRow"]

ANCESTORS = 64
"""Levels of contexts that are looked at: a farther one counts less than 1e-8."""

_FORMAT = f"11 {sys.byteorder}"  # another one is made again
_ROW = 1_900  # bytes of a term's newest postings; a row of more than a quarter of a page takes whole ones besides
_RUN = 300  # postings of a run, at least; twice as many at most
_BATCH_BYTES = 1 << 23  # postings that are collected before they are written
_WAIT_S = 2.0  # for another process that writes
_COUNTED = ("units", "names", "name terms", "texts", "text terms", "passages", "passage terms")
_REMEMBERED, _POSTINGS, _BLOCKS = 20_000, 400_000, 50  # units and so on that are in memory while nothing changes
_UNITS = 250  # that are looked up together, each with its context: a statement may have 999 parameters

_SCHEMA = """
create table meta(key text primary key, value) without rowid;
create table unit(num integer primary key, id not null, checksum integer not null, above integer, grp text);
create table passage(num integer primary key, unit integer not null);
create table said(first integer primary key, data blob not null);
create table posting(term text, first integer, n integer, data blob, primary key (term, first)) without rowid;
create index unit_checksum on unit(checksum);
create index unit_above on unit(above) where above is not null;
create index unit_group on unit(grp) where grp <> '';
create index passage_unit on passage(unit);
create table vector(stamp integer primary key autoincrement, document integer not null, data blob not null);
create index vector_document on vector(document);
create table unread(document integer primary key);
"""  # of a unit that is but the context of others, `grp` is null

_R = TypeVar("_R")
_INHERITED: list[object] = []  # connections of a parent process: closing one would release locks that the parent holds
# Errors that tell nothing of it: busy, locked, read-only, full, not to be opened; errors of the disk, but for the end
# of a file that came too early.
_UNAVAILABLE, _DISK_ERROR, _SHORT_READ = {5, 6, 8, 13, 14}, 10, 522


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.DataError):  # of the caller's statement
        return False
    code = getattr(error, "sqlite_errorcode", 0)
    return code == _SHORT_READ or code & 255 not in _UNAVAILABLE | {_DISK_ERROR}


_NUMBERS, _TEXTS, _BYTES, _KEYS, _NONE = (int,), (str,), (bytes,), (str, bytes), type(None)


@packing.decoder  # also of a schema that is no text
def _prepare(db: sqlite3.Connection) -> None:
    # Not WAL: it maps a file into memory, and overwriting that kills the process; removed bytes stay in it.
    # Not temporary files: they could keep texts that are deleted here.
    pragmas = (
        "page_size = 8192; journal_mode = truncate; synchronous = normal; secure_delete = on; cell_size_check = on"
    )
    for pragma in f"{pragmas}; cache_size = -8000; temp_store = memory".split(";"):
        db.execute(f"pragma {pragma}")
    is_made = "select 1 from sqlite_master"
    if not db.execute(is_made).fetchone():
        db.execute("begin immediate")
        if not db.execute(is_made).fetchone():  # another process was not quicker
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("insert into meta values ('format', ?), ('position', ''), ('next', 1)", (_FORMAT,))
        db.execute("commit")
    _check_format(db)


@packing.decoder
def _check_format(db: sqlite3.Connection) -> None:
    row = db.execute("select value from meta where key = 'format'").fetchone()
    if row is None or row[0] != _FORMAT:
        raise sqlite3.DatabaseError("the index is of another version")


def _close_unless_forked(db: sqlite3.Connection, pid: int) -> None:
    if os.getpid() == pid:
        db.close()


class LostIndexError(Exception):
    """The file was damaged or of another version, and has been begun again, empty: everything has to be put again."""


class Unit(NamedTuple):
    """One thing to be found, and its texts."""

    id: str
    names: Sequence[str] = ()
    text: str = ""
    infos: Sequence[str] = ()
    context: str | None = None
    """The id of a unit whose words count for this one, a little less; it may be put later."""
    group: str = ""
    """The group that it belongs to: all of a group also counts as one text."""


class UnitRow(NamedTuple):
    """A unit as it is stored."""

    id: str
    above: int | None
    group: str
    document: int | None  # of its names and its text; None where it is but the context of others
    is_context: bool


def _check(unit: Unit) -> Unit:
    """Return `unit` if it is one: an error within a transaction would pass for damage."""
    for value in (unit.id, unit.text, unit.group, *unit.names, *unit.infos, unit.context or ""):
        if not isinstance(value, str):
            raise TypeError(f"a unit is made of texts, not of {value!r:.60}")
    return unit


class _Batch:
    """The changes that a transaction collects before they are written."""

    def __init__(self, first_number: int) -> None:
        self.added: defaultdict[str, list[bytes]] = defaultdict(list)
        self.removed: defaultdict[str, set[int]] = defaultdict(set)
        self.said: dict[int, codes.Said | None] = {}  # None: it goes
        self.owners: list[tuple[int, int]] = []  # of new passages
        self.stale: set[int] = set()  # documents that stand under another name, or elsewhere
        self.counts: Counter[str] = Counter()
        self.size = 0
        self.first = self.next = first_number

    def number(self) -> int:
        """Return a number for a unit or a passage, greater than all that there are."""
        self.next += 1
        return self.next - 1

    def add(self, document: int, said: codes.Said) -> None:
        """Take in a document."""
        self.said[document] = said
        terms, counts = codes.read(said)
        self.counts.update(counts)
        self.size += packing.POSTING.size * len(terms)
        added, last, posting = self.added, -1, b""
        for term, code in terms.items():
            if code != last:
                posting, last = packing.POSTING.pack(document, code), code
            added[term].append(posting)

    def remove(self, document: int, said: codes.Said) -> None:
        """Drop a document."""
        self.said[document] = None
        terms, counts = codes.read(said)
        self.counts.subtract(counts)
        self.size += packing.POSTING.size * len(terms)
        for term in terms:
            self.removed[term].add(document)


# Embedded along with a unit's first name: its passages, and those of which it is the context.
_UNDER_ITS_NAME = """
select num from passage where unit = :num union select 2 * num from unit where above = :num and grp is not null
"""


def _take_from(ordered: list[int], least: int) -> list[int]:
    """Take from a list the values that are not below a bound."""
    start = bisect.bisect_left(ordered, least)
    taken = ordered[start:]
    del ordered[start:]
    return taken


class IndexFile:
    """A file of SQLite, or a database in memory, which is begun again where it is damaged.

    Threads may share one, processes a file; a forked child opens its own. The file and its folder are for their owner
    alone. Every method raises `LostIndexError` where the file was damaged, which by then is an empty one, and
    `sqlite3.OperationalError` where the disk is full or another process writes for more than two seconds; nothing is
    changed then.

    Args:
        path: Of the file; None keeps all in memory.
        is_readonly: Whether no byte may be written, not even where the file is damaged.
    """

    def __init__(self, path: str | None = None, is_readonly: bool = False) -> None:
        self.path = path
        self.is_readonly = is_readonly
        self.openings = 0
        """How often the file was opened: earlier readings belong to another opening."""
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._close: Callable[[], object] = bool  # closes `_db`, also when this is garbage
        self._identity: object = None
        self._pid = os.getpid()
        self._depth = 0
        self._memory: tuple[object, dict[object, Any]] = None, {}  # readings, while nothing changes
        self._held = 0  # postings in it
        self._version: object = None  # of the file, as this transaction sees it

    def close(self) -> None:
        """Close the file; the next call opens it again. What is in memory alone is gone."""
        self._renew_after_fork()
        with self._lock:
            self._close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and (self._depth or self._identify() == self._identity):
            return self._db
        self._close()  # another process began it again, or the file was deleted
        self._db, self._memory = self._connect(), (None, {})  # another connection may have the same id
        self._close = weakref.finalize(self, _close_unless_forked, self._db, self._pid)
        self._identity = self._identify()
        self.openings += 1
        return self._db

    def _renew_after_fork(self) -> None:
        if self._pid != os.getpid():
            _INHERITED.append(self._db)
            self._pid, self._lock, self._db, self._depth = os.getpid(), threading.RLock(), None, 0

    def _identify(self) -> object:
        with contextlib.suppress(OSError):
            status = os.stat(self.path or "")
            return status.st_dev, status.st_ino
        return None

    def _connect(self) -> sqlite3.Connection:
        place = f"file:{quote(self.path or '')}?mode=ro" if self.is_readonly else self.path or ":memory:"
        if self.path is not None and not self.is_readonly:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # an existing one is not opened: closing it would drop its locks
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        db = sqlite3.connect(
            place, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=self.is_readonly
        )
        try:
            (_check_format if self.is_readonly else _prepare)(db)
        except BaseException:
            db.close()
            raise
        return db

    def _begin_again(self) -> None:
        """Put an empty file in the place of a damaged one."""
        self._close()
        self._db, self._depth = None, 0
        for ending in () if self.is_readonly else ("", "-journal", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                if self.path is not None:
                    os.remove(self.path + ending)

    @contextlib.contextmanager
    def _using(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Hold a transaction: either all writes in it are kept, or none."""
        self._renew_after_fork()
        with self._lock:
            try:
                db = self._open()
                if self._depth:
                    yield db
                    return
                db.execute(begin)
                self._depth, self._version = 1, None
                try:
                    yield db
                    db.execute("commit")
                except BaseException:
                    self._memory = None, {}  # `total_changes` counts rolled back changes, too
                    with contextlib.suppress(sqlite3.Error):
                        db.execute("rollback")
                    raise
                finally:
                    self._depth = 0
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._begin_again()
                raise LostIndexError(f"{type(error).__name__}: {error}") from error

    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Hold everything that is put, removed and set within together: all of it is kept, or nothing."""
        return self._using("begin immediate")

    def reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Hold the index as it is while several things are read."""
        return self._using("begin")

    def remembered(self, db: sqlite3.Connection, key: object, read: Callable[[], _R]) -> _R:
        """Return the cached reading of a key, while nothing changes."""
        self._version = self._version or db.execute("pragma data_version").fetchone()
        state = db.total_changes, self._version
        if self._memory[0] != state:
            self._memory = state, {}
        if key not in self._memory[1]:
            self._memory[1][key] = read()
        found: _R = self._memory[1][key]
        return found

    @property
    def position(self) -> str:
        """The position up to which the index is filled, in its owner's form; "" for an empty one."""
        return str(self.kept("position"))

    @position.setter
    def position(self, position: str) -> None:
        self.keep("position", position)

    def keep(self, key: str, value: object) -> None:
        """Keep a value under a name."""
        with self.transaction() as db:
            db.execute("insert or replace into meta values (?, ?)", (key, value))

    def kept(self, key: str) -> Any:
        """Return the value kept under a name, or None."""
        with self.reading() as db:
            return self._meta(db).get(key)

    def _meta(self, db: sqlite3.Connection) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            found = dict(db.execute("select key, value from meta").fetchall())
            if type(found.get("next")) is not int or type(found.get("position")) is not str:
                raise packing.DamagedRowError(f"the index does not say how far it is: {found!r:.80}")
            return found

        return self.remembered(db, "meta", read)

    def scrub(self) -> bool:
        """Write the file again, so that no byte of removed texts is in it; False where that cannot be done now.

        `secure_delete` overwrites a row where it is, and a page that was split keeps copies of the rows that moved.
        Cost: 5 ms a megabyte, and memory for a copy of the file.
        """
        self._renew_after_fork()
        with self._lock, contextlib.suppress(sqlite3.Error, MemoryError):
            self._open().execute("vacuum")
            return True
        return False

    def _select(self, sql: str, values: Iterable[object], *kinds: tuple[type, ...]) -> list[Any]:
        listed, found = list(values), list[Any]()
        with self.reading() as db:
            for start in range(0, len(listed), 2 * _UNITS):
                part = listed[start : start + 2 * _UNITS]
                found += db.execute(f"{sql} ({','.join('?' * len(part))})", part).fetchall()
        return packing.checked(found, *kinds)


class Rows(IndexFile):
    """The rows of an index; see the head of this module, and `IndexFile` for arguments and errors of all methods."""

    thesaurus: Thesaurus | None = None
    """Of near words, for a question."""
    newest_first = False
    """Whether of equals the unit that was put last comes first, else the first."""

    # -- writing --------------------------------------------------------------

    def put(self, units: Iterable[Unit]) -> None:
        """Take in units; one that is there is replaced, and only new texts are indexed. Cost: 0.2 ms a text."""
        new = [*{unit.id: unit for unit in map(_check, units)}.values()]
        with self.transaction() as db:
            batch = _Batch(self._meta(db)["next"])
            for start in range(0, len(new), _UNITS):
                self._put(db, batch, new[start : start + _UNITS])
                if batch.size > _BATCH_BYTES:
                    self._write(db, batch)
                    batch = _Batch(batch.next)
            self._write(db, batch)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove units, as far as they are there. After `scrub` no byte of their texts is in the file."""
        keys = [*map(packing.to_key, dict.fromkeys(ids))]
        with self.transaction() as db:
            for start in range(0, len(keys), _UNITS):
                batch = _Batch(self._meta(db)["next"])
                rows = self._rows(keys[start : start + _UNITS])
                owned = [2 * num for _, num, _, group in rows if group is not None]
                owned += chain.from_iterable(self.passages_of([num for _, num, *_ in rows]).values())
                for document, said in self._texts(db, owned).items():
                    batch.remove(document, said)
                self._write(db, batch)
                emptied = "update unit set above = null, grp = null where num = ?"
                db.executemany(emptied, [(num,) for _, num, *_ in rows])
                self._drop_unneeded(db, {number for _, *both, _ in rows for number in both if number})

    def compact(self) -> None:
        """Let the file take less space, after much was put. Cost: a tenth of putting it, and memory for a copy.

        It stays as it is where memory or disk are too full for a copy, or another process uses it.
        """
        newest = "select term, data from posting where first = 0 and length(data) >= ?"
        self._renew_after_fork()
        with self._lock, contextlib.suppress(sqlite3.Error, MemoryError), self.transaction() as db:
            rows = db.execute(newest, (packing.FEW * packing.POSTING.size,)).fetchall()
            sealed = [(self._seal_postings(db, term, data), term) for term, data in rows]
            db.executemany("update posting set data = ? where term = ? and first = 0", sealed)
        self.scrub()

    def _put(self, db: sqlite3.Connection, batch: _Batch, units: Sequence[Unit]) -> None:
        """Take in units, each once in a batch."""
        keys = {id: packing.to_key(id) for unit in units for id in (unit.id, unit.context) if id is not None}
        rows = self._rows(keys.values())
        numbers: dict[str, int] = {packing.to_id(key): num for key, num, *_ in rows}
        contexts = {num: above for _, num, above, _ in rows}
        there = {num for _, num, _, group in rows if group is not None}
        passages = self.passages_of(there)
        owned = [2 * numbers[unit.id] for unit in units if numbers.get(unit.id) in there]
        kept = self._texts(db, [*owned, *chain.from_iterable(passages.values())])
        placed = dict[int, tuple[str, int | None, str | None]]()

        def number_of(id: str) -> int:
            if id not in numbers:
                numbers[id] = batch.number()
                placed[numbers[id]] = id, None, None
            return numbers[id]

        for unit in units:
            num = number_of(unit.id)
            above = None if unit.context is None else number_of(unit.context)
            placed[num] = unit.id, above, unit.group
            said: codes.Said = [[*unit.names], unit.text]
            if (before := kept.get(2 * num)) != said:
                if before is not None:
                    batch.remove(2 * num, before)
                batch.add(2 * num, said)
            if before is not None and unit.names and contexts[num] != above:
                batch.stale.add(2 * num)
            if before is not None and before[0] != said[0]:
                batch.stale.update(chain.from_iterable(db.execute(_UNDER_ITS_NAME, {"num": num}).fetchall()))
            held = defaultdict[codes.Said, list[int]](list)
            for at in passages.get(num, ()):
                held[kept[at]].append(at)
            for passage in chain.from_iterable(map(texts.passages, unit.infos)):
                if held.get(passage):
                    held[passage].pop()
                else:
                    batch.owners.append((at := 2 * batch.number() + 1, num))
                    batch.add(at, passage)
            for gone, documents in held.items():
                for at in documents:
                    batch.remove(at, gone)
        sql = "insert into unit values (?, ?, ?, ?, ?) on conflict(num) do update"
        new = [(num, keys[id], packing.checksum(keys[id]), *rest) for num, (id, *rest) in placed.items()]
        db.executemany(f"{sql} set above = excluded.above, grp = excluded.grp", new)
        self._drop_unneeded(db, {above for _, _, above, _ in rows if above is not None})

    def _rows(self, keys: Iterable[str | bytes]) -> list[tuple[str | bytes, int, int | None, str | None]]:
        """Return key, number, context and group of units, those that are there."""
        wanted = {*keys}
        found = "select id, num, above, grp from unit where checksum in"
        rows = self._select(found, map(packing.checksum, wanted), _KEYS, _NUMBERS, (int, _NONE), (str, _NONE))
        return [row for row in rows if row[0] in wanted]

    def _drop_unneeded(self, db: sqlite3.Connection, numbers: set[int]) -> None:
        """Delete units of nothing but an id which are the context of no other."""
        is_alone = "grp is null and not exists (select 1 from unit child where child.above = unit.num)"
        db.executemany(f"delete from unit where num = ? and {is_alone}", [(num,) for num in numbers])

    def passages_of(self, units: Collection[int]) -> dict[int, list[int]]:
        """Return unit → documents of its infos, where there are any."""
        found = defaultdict[int, list[int]](list)
        for unit, document in self._select("select unit, num from passage where unit in", units, _NUMBERS, _NUMBERS):
            found[unit].append(document)
        return found

    # -- texts ----------------------------------------------------------------

    def _texts(self, db: sqlite3.Connection, documents: Iterable[int]) -> dict[int, codes.Said]:
        """Return the texts of documents."""
        block, found = dict[int, bytes](), dict[int, codes.Said]()
        for document in sorted(documents):
            if document not in block:
                _, block = self._block(db, document)
            if document not in block:
                raise packing.DamagedRowError(f"document {document} has no text")
            found[document] = packing.decode_text(document, block[document])
        return found

    def _block(self, db: sqlite3.Connection, document: int) -> tuple[int, dict[int, bytes]]:
        """Return the block in which a document is or would be, with its key; 0: there is none yet."""
        sql = "select first, data from said where first <= ? order by first desc limit 1"
        row = db.execute(sql, (document,)).fetchone()
        known = self.remembered(db, "blocks", dict[int, dict[int, bytes]])
        if row and row[0] not in known:
            block = packing.unpack(row[1])
            if len(known) > _BLOCKS or len(row[1]) > 2 * packing.BLOCK:
                known.clear()
            known[row[0]] = block
        return (row[0], known[row[0]]) if row else (0, {})

    def _write_texts(self, db: sqlite3.Connection, batch: _Batch) -> None:
        insert, changed = "insert into said values (?, ?)", sorted(batch.said)
        new = changed[bisect.bisect_left(changed, 2 * batch.first) :]
        del changed[len(changed) - len(new) :]
        while changed:  # those of a block together, the last ones first
            first, kept = self._block(db, changed[-1])
            block = {**kept}
            for document in _take_from(changed, first):
                block.pop(document, None)
                if (said := batch.said[document]) is not None:
                    block[document] = packing.encode_text(said)
            db.execute("delete from said where first = ?", (first,))
            db.executemany(insert, packing.blocks(dict(sorted(block.items())), 2 * packing.BLOCK))
        first, kept = self._block(db, new[0]) if new else (0, {})
        if packing.SHRUNK * sum(map(len, kept.values())) >= packing.BLOCK:
            kept = {}
        elif kept:
            db.execute("delete from said where first = ?", (first,))
        added = {document: packing.encode_text(batch.said[document] or "") for document in new}
        db.executemany(insert, packing.blocks(kept | added, packing.BLOCK))

    # -- postings -------------------------------------------------------------

    def _write(self, db: sqlite3.Connection, batch: _Batch) -> None:
        self._write_texts(db, batch)
        gone = [(document,) for document, said in batch.said.items() if said is None]
        db.executemany("delete from passage where num = ?", gone)
        db.executemany("insert into passage values (?, ?)", batch.owners)
        self._forget_vectors(db, batch)
        for term, documents in batch.removed.items():
            self._remove_postings(db, term, documents)
        self._add_postings(db, batch.added)
        counts = "insert into meta values (?, ?) on conflict do update set value = value + excluded.value"
        db.executemany(counts, [*batch.counts.items(), ("next", batch.next - batch.first)])

    def _forget_vectors(self, db: sqlite3.Connection, batch: _Batch) -> None:
        """Note the documents to be embedded: those with a new text, and those under another name."""
        stale = [(at,) for at in {*batch.said, *batch.stale} if at < 2 * batch.first]
        for table in ("vector", "unread"):
            db.executemany(f"delete from {table} where document = ?", stale)
        new = {*batch.stale, *(at for at, said in batch.said.items() if said and said != [[], ""])}
        gone = {at for at, said in batch.said.items() if said is None}
        db.executemany("insert or ignore into unread values (?)", [(at,) for at in new - gone])

    def _add_postings(self, db: sqlite3.Connection, added: Mapping[str, list[bytes]]) -> None:
        held = "select term, n, data from posting where first = 0 and term in"
        newest = {term: (n, data) for term, n, data in self._select(held, added, _TEXTS, _NUMBERS, _BYTES)}
        rows = list[tuple[str, int, bytes]]()
        for term in sorted(added):
            n, data = newest.get(term, (0, b""))
            n, data = n + len(added[term]), b"".join([data, *added[term]])
            rows.append((term, n, data if len(data) < _ROW else self._seal_postings(db, term, data)))
        sql = "insert into posting values (?, 0, ?, ?) on conflict do update set n = excluded.n, data = excluded.data"
        db.executemany(sql, rows)

    def _run(self, db: sqlite3.Connection, term: str, document: int) -> tuple[int, dict[int, int]]:
        """Return the run of a term in which a document is or would be, with its key; 0: there is none yet."""
        sql = "select first, data from posting where term = ? and first between 1 and ? order by first desc limit 1"
        row = db.execute(sql, (term, document)).fetchone()
        return (row[0], dict(zip(*packing.unseal(*row), strict=True))) if row else (0, {})

    def _seal_postings(self, db: sqlite3.Connection, term: str, data: bytes) -> bytes:
        """Return the newest postings of a term in less space; those that are many become runs."""
        postings = dict(zip(*packing.unseal(0, data), strict=True))
        if len(postings) < _RUN:
            return packing.keep(postings)
        left, rows = sorted(postings), list[tuple[str, int, bytes]]()
        while left:  # those of a run together, the last ones first
            first, run = self._run(db, term, left[-1])
            found = _take_from(left, first)
            if run and (len(found) < _RUN or found[0] < max(run)):
                db.execute("delete from posting where term = ? and first = ?", (term, first))
                postings |= run
                found = sorted([*run, *found])
            size = math.ceil(len(found) / math.ceil(len(found) / (2 * _RUN)))
            parts = (found[at : at + size] for at in range(0, len(found), size))
            rows += ((term, part[0], packing.seal(part[0], part, postings)) for part in parts)
        db.executemany("insert into posting values (?, ?, null, ?)", rows)
        return b""

    def _remove_postings(self, db: sqlite3.Connection, term: str, documents: set[int]) -> None:
        held = db.execute("select n, data from posting where term = ? and first = 0", (term,)).fetchall()
        for n, data in packing.checked(held, _NUMBERS, _BYTES):
            if n == len(documents):
                db.execute("delete from posting where term = ?", (term,))
                return
            postings = dict(zip(*packing.unseal(0, data), strict=True))
            left = sorted(document for document in documents if postings.pop(document, None) is None)
            update = "update posting set n = ?, data = ? where term = ? and first = 0"
            db.execute(update, (n - len(documents), packing.keep(postings), term))
            while left:
                first, run = self._run(db, term, left[-1])
                for document in _take_from(left, first):
                    if run.pop(document, None) is None:
                        raise packing.DamagedRowError(f"document {document} does not have {term!r:.40}")
                db.execute("delete from posting where term = ? and first = ?", (term, first))
                if run:
                    row = term, min(run), packing.seal(min(run), [*run], run)
                    db.execute("insert into posting values (?, ?, null, ?)", row)

    # -- reading, for the score ----------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return how many units, names, texts and passages there are, and the terms in them."""
        with self.reading() as db:
            kept = self._meta(db)
        return {key: kept[key] for key in _COUNTED if isinstance(kept.get(key), int)}

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many documents each term occurs, of those that do."""
        sql = "select term, n from posting where first = 0 and term in"
        return dict(self._select(sql, terms, _TEXTS, _NUMBERS))

    def postings(self, terms: Iterable[str]) -> dict[str, packing.Postings]:
        """Return term → the documents that have it; a passage's number is odd. They are not to be changed."""
        sql, numbers = "select term, first, data from posting where term in", (int, _NONE)
        with self.reading() as db:
            known = self.remembered(db, "postings", dict[str, packing.Postings])
            found = {term: known.get(term) or packing.Postings(array("I"), array("H")) for term in terms}
            new = {term: postings for term, postings in found.items() if term not in known}
            for term, first, data in self._select(sql, new, _TEXTS, numbers, _BYTES):
                packing.unseal(first, data, new[term])
            self._held = (self._held if known else 0) + sum(len(each.codes) for each in new.values())
            while known and self._held > _POSTINGS:  # the oldest ones go
                self._held -= len(known.pop(next(iter(known))).codes)
            known.update(new)
            return found

    def owners(self, documents: Iterable[int]) -> dict[int, int]:
        """Return document → unit."""
        owners = {document: document >> 1 for document in documents}
        passages = [document for document in owners if document & 1]
        rows = self._select("select num, unit from passage where num in", passages, _NUMBERS, _NUMBERS)
        if len(rows) != len(passages):
            raise packing.DamagedRowError("a passage has no unit")
        return owners | dict(rows)

    def units(self, numbers: Collection[int]) -> dict[int, UnitRow]:
        """Return number → unit, of some and those above them, as far up as their words count."""
        sql = (
            "select num, id, above, grp, exists (select 1 from unit child where child.above = unit.num)"
            " from unit where num in"
        )
        kinds = _NUMBERS, _KEYS, (int, _NONE), (str, _NONE), _NUMBERS
        found, wanted = dict[int, UnitRow](), set(numbers)
        with self.reading() as db:
            known = self.remembered(db, "units", dict[int, UnitRow])
            if len(known) > _REMEMBERED:
                known.clear()
            for _ in range(ANCESTORS):
                # Not by `wanted - known.keys()`, which goes through all that is known for each level of a deep tree.
                if unknown := [num for num in wanted if num not in known]:
                    for num, key, above, group, is_context in self._select(sql, unknown, *kinds):
                        document = None if group is None else 2 * num
                        known[num] = UnitRow(packing.to_id(key), above, group or "", document, bool(is_context))
                if not all(num in known for num in wanted):
                    raise packing.DamagedRowError("what is indexed has no unit")
                found.update((num, known[num]) for num in wanted)
                above_them = {known[num].above for num in wanted}
                wanted = {num for num in above_them if num and num not in found}
                if not wanted:
                    break
        return found

    def numbers(self, ids: Iterable[str]) -> dict[str, int]:
        """Return id → number, of the units that are there."""
        rows = self._rows(map(packing.to_key, ids))
        return {packing.to_id(key): num for key, num, _, group in rows if group is not None}

    def documents_of(self, ids: Iterable[str]) -> set[int]:
        """Return all documents of some units, given by their ids."""
        numbers = set(self.numbers(ids).values())
        return {2 * num for num in numbers}.union(*self.passages_of(numbers).values())

    def documents_in(self, groups: Collection[str], limit: int) -> dict[int, str]:
        """Return document → group of the members of some groups, without their infos; at most `limit`."""
        sql = "select 2 * num from unit where grp = ? and grp <> '' limit ?"
        found = dict[int, str]()
        with self.reading() as db:

            def read(group: str) -> "array[int]":
                rows = db.execute(sql, (group, limit)).fetchall()
                return array("I", chain.from_iterable(packing.checked(rows, _NUMBERS)))

            for group in sorted(groups):  # a session is asked for by every question to it
                documents = self.remembered(db, (group, limit), functools.partial(read, group))
                found |= dict.fromkeys(documents[: limit - len(found)], group)
        return found

    def ids(self) -> set[str]:
        """Return the ids of all units."""
        with self.reading() as db:
            return {packing.to_id(key) for (key,) in db.execute("select id from unit where grp is not null")}

    def children(self, number: int, limit: int) -> list[int]:
        """Return units that have this one as their context."""
        with self.reading() as db:
            rows = db.execute("select num from unit where above = ? order by num limit ?", (number, limit)).fetchall()
            return [num for (num,) in packing.checked(rows, _NUMBERS)]

    def read(self, documents: Collection[int]) -> dict[int, tuple[list[str], str]]:
        """Return document → names and text; a passage has no names."""
        with self.reading() as db:
            found = self._texts(db, documents).items()
        return {document: ([], said) if isinstance(said, str) else (said[0], said[1]) for document, said in found}

    def names_of(self, number: int) -> list[str]:
        """Return the names of a unit."""
        return self.read([2 * number])[2 * number][0]
