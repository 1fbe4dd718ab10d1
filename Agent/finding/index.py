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

Tables. A unit's own document has twice its number, so that none has to be looked up; a piece of its infos has an odd
number, and a row in `passage`. `posting` has for each term the documents that have it: recent ones as they come (the
row with first = 0, which also counts all of them), older ones in runs of some hundred, deflated. Why not FTS5: before
SQLite 3.42 the words of deleted texts stay in its file until all of it is merged, and it does not return how often a
word occurs in a document, so that every candidate had to be read again (3 times as slow). `said` keeps the texts, since
deleting needs their words and a hit quotes them: some thirty together, in the order of their documents, which deflate
to two thirds of their size, where each alone would keep most of it.
"""

import bisect
import contextlib
import functools
import itertools
import json
import operator
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
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar
from urllib.parse import quote

from . import calibration, evidence, score, texts

__all__ = ["Hit", "Index", "LostIndexError", "Unit", "to_id", "to_key"]

_FORMAT = f"8 {sys.byteorder}"  # another one is made again
_TAIL, _SMALL_TAIL = 160, 16  # postings of a term that are kept as they come, at most: usually, and after `compact`
_RUN = 360  # postings that are deflated together: within a kilobyte, beyond which SQLite takes whole pages
_BATCH_BYTES = 1 << 23  # postings that are collected before they are written
_WAIT_S = 2.0  # for another process that writes
_COUNTED = ("units", "names", "name terms", "texts", "text terms", "passages", "passage terms")
_PARAMETERS = 500  # of one statement
_REMEMBERED = 20_000  # units, and postings, that are kept in memory while nothing changes
_UNITS = 250  # that are looked up together
_BLOCK, _SHRUNK = 1_850, 0.6  # bytes of texts that are deflated together: two such fill a page; what deflating leaves

_SCHEMA = """
create table meta(key text primary key, value) without rowid;
create table unit(num integer primary key, id text unique not null, above integer, grp text);
create table passage(num integer primary key, unit integer not null);
create table said(first integer primary key, data blob not null);
create table posting(term text, first integer, n integer, data blob, primary key (term, first)) without rowid;
create index unit_above on unit(above) where above is not null;
create index unit_group on unit(grp) where grp <> '';
create index passage_unit on passage(unit);
"""  # of a unit that is but the context of others, `grp` is null


def _parts(units: Iterable["Unit"]) -> Iterator[list["Unit"]]:
    """Yield units in parts of which each has no unit twice."""
    part: dict[str, Unit] = {}
    for unit in units:
        if unit.id in part or len(part) == _UNITS:
            yield [*part.values()]
            part = {}
        part[unit.id] = unit
    yield [*part.values()]


_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T", int, tuple[int, int])

_INHERITED: list[object] = []  # connections of a parent process: closing one would release locks that the parent holds
# What says nothing of the file: busy, locked, read-only, full, not to be opened; errors of the disk, but for the end
# of a file that came too early.
_UNAVAILABLE, _DISK_ERROR, _SHORT_READ = {5, 6, 8, 13, 14}, 10, 522


class _DamagedRowError(sqlite3.DatabaseError):
    """A row cannot be what was written, or lacks another one."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.DataError):  # of the caller's statement
        return False
    code = getattr(error, "sqlite_errorcode", 0)
    return code == _SHORT_READ or code & 255 not in _UNAVAILABLE | {_DISK_ERROR}


def _decoder(decode: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function that decodes what a row holds say what is wrong with the row."""

    @functools.wraps(decode)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return decode(*args, **kwargs)
        except (zlib.error, ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
            raise _DamagedRowError(f"{type(error).__name__}: {error}") from error

    return checked


_NUMBERS, _TEXTS, _BYTES = (int,), (str,), (bytes,)
_NONE = type(None)
_MOST = 1 << 32  # documents have 32 bits


def _checked(rows: list[Any], *kinds: tuple[type, ...]) -> list[Any]:
    """Return rows, if each column has what was written there."""
    for column, kind in zip(zip(*rows, strict=True), kinds, strict=bool(rows)):
        numbers = [*filter(None, column)] if int in kind else []
        if not {*map(type, column)} <= {*kind} or (numbers and not 0 < min(numbers) <= max(numbers) < _MOST):
            raise _DamagedRowError(f"a column of {'numbers' if int in kind else 'texts'} has {column!r:.80}")
    return rows


@_decoder  # also of a schema that is no text
def _prepare(db: sqlite3.Connection) -> None:
    # Not WAL: it maps a file into memory, and whoever overwrites that kills the process; removed bytes stay in it.
    for pragma in ("journal_mode = truncate", "synchronous = normal", "secure_delete = on", "cell_size_check = on"):
        db.execute(f"pragma {pragma}")
    db.execute("pragma cache_size = -8000")
    db.execute("pragma temp_store = memory")  # a temporary file could keep texts that are deleted here
    is_made = "select 1 from sqlite_master"
    if not db.execute(is_made).fetchone():
        db.execute("begin immediate")
        if not db.execute(is_made).fetchone():  # another process was not quicker
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("insert into meta values ('format', ?), ('position', ''), ('next', 1)", (_FORMAT,))
        db.execute("commit")
    _check_format(db)


@_decoder
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


def to_key(id: str) -> str | bytes:
    """Return an id as tables keep it: a UUID in 16 bytes, which would take 36."""
    if len(id) == 36:
        with contextlib.suppress(ValueError):
            if to_id(key := bytes.fromhex(id.replace("-", ""))) == id:
                return key
    return id


def to_id(key: str | bytes) -> str:
    """Return the id that a key is of."""
    if isinstance(key, str):
        return key
    digits = key.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class UnitRow(NamedTuple):
    """A unit as it is stored."""

    id: str
    above: int | None
    group: str
    document: int | None
    """Of its names and its text; None where it is but the context of others."""
    is_context: bool
    passages: int
    """How many its infos have."""


# == Codes ===================================================================================
#
# What a posting says of its document, in 13 bits: whether it is a passage, the length of the shortest name that has the
# term (0: none has), how often the text has it, and the text's length; lengths in steps of the square root of 2.

_NAME_STEPS = [2 ** (step / 2) for step in range(1, 15)]
_TEXT_STEPS = [2 ** (step / 2) for step in range(1, 31)]
_ONCE, _OFTEN, _PASSAGE = 1 << 5, 7, 1 << 12


def _encode_name(length: int) -> int:
    return (1 + bisect.bisect(_NAME_STEPS, length)) << 8


def _encode_texts(found: Sequence[str], kind: int = 0) -> dict[str, int]:
    """Return each term of a text with its code."""
    once = kind + _ONCE + 1 + bisect.bisect(_TEXT_STEPS, len(found))
    codes = dict.fromkeys(found, once)
    if len(codes) < len(found):
        codes |= {term: once + (min(n, _OFTEN) - 1) * _ONCE for term, n in Counter(found).items() if n > 1}
    return codes


def decode(code: int) -> tuple[float, int, float, bool]:
    """Return the name's length (0: none has the term), how often the text has it, its length, whether a passage."""
    name_step, length = code >> 8 & 15, 2.0 ** (((code & 31) - 1) / 2)
    return 2.0 ** ((name_step - 1) / 2) if name_step else 0.0, code >> 5 & 7, length, code >= _PASSAGE


class _Tokens(NamedTuple):
    """The terms of a document, each with its code, and what the document adds to the counts."""

    codes: dict[str, int]
    counts: dict[str, int]


def _read_own(names: Sequence[str], text: str) -> _Tokens:
    codes, body, lengths = dict[str, int](), texts.terms(text) + texts.kinds(text), 0
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
    found = texts.terms(text) + texts.kinds(text)
    return _Tokens(_encode_texts(found, _PASSAGE), {"passages": 1, "passage terms": len(found)})


_Said: TypeAlias = str | list[Any]
"""A document as it is kept: a passage, or the names and the text of a unit."""


def _read(said: _Said) -> _Tokens:
    return _read_passage(said) if isinstance(said, str) else _read_own(*said)


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _encode(said: _Said) -> bytes:
    """Return a document as it is kept in a block; of a unit without names its text."""
    return _to_json(said if isinstance(said, str) or said[0] else said[1]).encode("utf-8", "surrogatepass")


@_decoder
def _decode(document: int, kept: bytes) -> _Said:
    said = json.loads(kept.decode("utf-8", "surrogatepass"))
    if isinstance(said, str):
        return said if document & 1 else [[], said]
    names, text = said
    return [["".join(name) for name in names], "".join(text)]


def _pack(block: Mapping[int, bytes]) -> bytes:
    """Return encoded documents as they are kept, each in a line; the first has the steps between their numbers."""
    steps = map(operator.sub, block, (0, *block))
    return zlib.compress(b"\n".join([_to_json([*steps]).encode(), *block.values()]))


def _split(block: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the key of a block and the block as it is kept: in halves where its texts have grown beyond a page."""
    packed = _pack(block)
    if len(packed) <= 2 * _BLOCK or len(block) == 1:
        yield min(block), packed
        return
    middle = len(block) // 2
    for part in ([*block.items()][:middle], [*block.items()][middle:]):
        yield from _split(dict(part))


@_decoder
def _unpack(data: bytes) -> dict[int, bytes]:
    steps, *kept = zlib.decompress(data).split(b"\n")
    return dict(zip(accumulate(json.loads(steps)), kept, strict=True))


_POSTING = struct.Struct("=IH")  # a document and a code, as they come
_read_tail = _decoder(lambda tail: [*_POSTING.iter_unpack(tail)])


def _seal(postings: Iterable[tuple[int, int]]) -> tuple[int, int, bytes]:
    """Return the first document of a run, how many there are, and the run as it is kept.

    That is first all low bytes of the steps between documents, then all next ones, and so on: it deflates by a third
    more than number by number.
    """
    documents, codes = zip(*postings, strict=True)
    steps = array("I", map(operator.sub, documents, (documents[0], *documents))).tobytes()
    halves = array("H", codes).tobytes()
    planes = [*(steps[at::4] for at in range(4)), halves[::2], halves[1::2]]
    return documents[0], len(documents), zlib.compress(b"".join(planes))


@_decoder
def _unseal(first: int, data: bytes) -> Iterable[tuple[int, int]]:
    planes = zlib.decompress(data)
    count, rest = divmod(len(planes), 6)
    if rest:
        raise ValueError("a run has half a posting")
    steps, halves = bytearray(4 * count), bytearray(2 * count)
    for at in range(4):
        steps[at::4] = planes[at * count : (at + 1) * count]
    halves[::2], halves[1::2] = planes[4 * count : 5 * count], planes[5 * count :]
    documents = accumulate(array("I", bytes(steps)), initial=operator.index(first))
    next(documents)  # `initial` comes by itself, too
    return zip(documents, array("H", bytes(halves)), strict=True)


# == The index ===============================================================================


class _Batch:
    """What a transaction collects before it is written."""

    def __init__(self, first_number: int) -> None:
        self.added: defaultdict[str, bytearray] = defaultdict(bytearray)
        self.removed: defaultdict[str, set[int]] = defaultdict(set)
        self.said: dict[int, _Said | None] = {}  # None: it goes
        self.owners: list[tuple[int, int]] = []  # of new passages
        self.counts: Counter[str] = Counter()
        self.size = 0
        self.first = self.next = first_number
        self.ids: set[str] = set()

    def number(self) -> int:
        """Return a number for a unit or a passage, greater than all that there are."""
        self.next += 1
        return self.next - 1

    def add(self, document: int, said: _Said) -> None:
        """Take in a document."""
        self.said[document] = said
        codes, counts = _read(said)
        for name, count in counts.items():
            self.counts[name] += count
        self.size += 6 * len(codes)
        added, last, posting = self.added, -1, b""
        for term, code in codes.items():
            if code != last:
                posting, last = _POSTING.pack(document, code), code
            added[term] += posting

    def remove(self, document: int, said: _Said) -> None:
        """Drop a document."""
        self.said[document] = None
        codes, counts = _read(said)
        self.counts.subtract(counts)
        self.size += 6 * len(codes)
        for term in codes:
            self.removed[term].add(document)


def _take_from(ordered: list[_T], least: _T) -> list[_T]:
    """Take from a list what is not less than something."""
    start = bisect.bisect_left(ordered, least)
    taken = ordered[start:]
    del ordered[start:]
    return taken


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
        self._memory: tuple[object, dict[object, Any]] = None, {}  # what was read, while nothing changes

    # -- the file -------------------------------------------------------------

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
            return self._connect_to(address, _check_format, uri=True)
        if self.path is not None:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):  # an existing one is not opened: closing it would drop its locks
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return self._connect_to(self.path or ":memory:", _prepare)

    def _connect_to(
        self, place: str, check: Callable[[sqlite3.Connection], None], uri: bool = False
    ) -> sqlite3.Connection:
        db = sqlite3.connect(place, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=uri)
        try:
            check(db)
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
    def _using(self, begin: str) -> Iterator[sqlite3.Connection]:
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
                    self._memory = None, {}  # `total_changes` counts what is rolled back, too
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

    def _remembered(self, db: sqlite3.Connection, key: object, read: Callable[[], _R]) -> _R:
        """Return what was read under a key, while nothing changes."""
        state = db.total_changes, db.execute("pragma data_version").fetchone()
        if self._memory[0] != state:
            self._memory = state, {}
        if key not in self._memory[1]:
            self._memory[1][key] = read()
        found: _R = self._memory[1][key]
        return found

    # -- writing --------------------------------------------------------------

    @property
    def position(self) -> str:
        """What has been taken in, in the words of whoever fills the index; "" for an empty one."""
        return str(self.kept("position"))

    @position.setter
    def position(self, position: str) -> None:
        self.keep("position", position)

    def keep(self, key: str, value: object) -> None:
        """Keep a value under a name."""
        with self.transaction() as db:
            db.execute("insert or replace into meta values (?, ?)", (key, value))

    def kept(self, key: str) -> Any:
        """Return what is kept under a name, or None."""
        with self.reading() as db:
            return self._meta(db).get(key)

    def _meta(self, db: sqlite3.Connection) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            found = dict(db.execute("select key, value from meta").fetchall())
            if type(found.get("next")) is not int or type(found.get("position")) is not str:
                raise _DamagedRowError(f"the index does not say how far it is: {found!r:.80}")
            return found

        return self._remembered(db, "meta", read)

    def put(self, units: Iterable[Unit]) -> None:
        """Take in units; one that is there is replaced, and only what is new in it is indexed.

        Cost: about 0.1 ms for a short text, of many 0.05 ms each.
        """
        units = [_check(unit) for unit in units]
        with self.transaction() as db:
            batch = self._begin_batch(db)
            for part in _parts(units):
                if batch.size > _BATCH_BYTES or not batch.ids.isdisjoint(unit.id for unit in part):
                    self._write(db, batch)
                    batch = self._begin_batch(db)
                self._put(db, batch, part)
            self._write(db, batch)
            calibration.calibrate(self)

    def remove(self, ids: Iterable[str]) -> None:
        """Remove units, as far as they are there. After `scrub` no byte of their texts is in the file."""
        keys = [*map(to_key, dict.fromkeys(ids))]
        with self.transaction() as db:
            for start in range(0, len(keys), _UNITS):
                batch = self._begin_batch(db)
                found = "select num, above, grp from unit where id in"
                rows = self._select(found, keys[start : start + _UNITS], _NUMBERS, (int, _NONE), (str, _NONE))
                owned = [2 * num for num, _, group in rows if group is not None]
                owned += chain.from_iterable(self._passages_of([num for num, *_ in rows]).values())
                for document, said in self._texts(db, owned).items():
                    batch.remove(document, said)
                self._write(db, batch)
                db.executemany("update unit set above = null, grp = null where num = ?", [(num,) for num, *_ in rows])
                self._drop_unneeded(db, {number for num, above, _ in rows for number in (num, above) if number})

    def compact(self) -> None:
        """Let the file take less space, after much was put: by a third.

        Cost: a tenth of putting it, and memory for a copy of the file.

        Where the memory is too full for a copy of the file, the disk for a second one, or another process uses it, it
        stays as it is.
        """
        tails = "select term, data from posting where first = 0 and length(data) >= ?"
        self._renew_after_fork()
        with self._lock, contextlib.suppress(sqlite3.Error, MemoryError), self.transaction() as db:
            for term, tail in db.execute(tails, (_SMALL_TAIL * _POSTING.size,)).fetchall():
                self._seal_postings(db, term, tail)
                db.execute("update posting set data = x'' where term = ? and first = 0", (term,))
        self.scrub()

    def scrub(self) -> bool:
        """Write the file again, so that no byte of what was removed is in it; False where that cannot be done now.

        `secure_delete` overwrites a row where it is, and a page that was split keeps copies of the rows that moved.
        Cost: 5 ms a megabyte, and memory for a copy of the file.
        """
        self._renew_after_fork()
        with self._lock, contextlib.suppress(sqlite3.Error, MemoryError):
            self._open().execute("vacuum")
            return True
        return False

    def _begin_batch(self, db: sqlite3.Connection) -> _Batch:
        return _Batch(self._meta(db)["next"])

    def _put(self, db: sqlite3.Connection, batch: _Batch, units: Sequence[Unit]) -> None:
        """Take in units of which none is twice, nor in the batch already."""
        batch.ids.update(unit.id for unit in units)
        ids = dict.fromkeys(id for unit in units for id in (unit.id, unit.context) if id is not None)
        found = "select id, num, grp is null, above from unit where id in"
        rows = self._select(found, map(to_key, ids), (str, bytes), _NUMBERS, _NUMBERS, (int, _NONE))
        numbers: dict[str, int] = {to_id(key): num for key, num, *_ in rows}
        there = {num for _, num, is_context, _ in rows if not is_context}
        passages = self._passages_of(there)
        owned = [2 * numbers[unit.id] for unit in units if numbers.get(unit.id) in there]
        kept = self._texts(db, [*owned, *chain.from_iterable(passages.values())])
        placed = list[tuple[int, str | bytes, int | None, str | None]]()

        def number_of(id: str) -> int:
            if id not in numbers:
                numbers[id] = batch.number()
                placed.append((numbers[id], to_key(id), None, None))
            return numbers[id]

        for unit in units:
            num = number_of(unit.id)
            above = None if unit.context is None else number_of(unit.context)
            placed.append((num, to_key(unit.id), above, unit.group))
            said: _Said = [[*unit.names], unit.text]
            if kept.get(2 * num) != said:
                if 2 * num in kept:
                    batch.remove(2 * num, kept[2 * num])
                batch.add(2 * num, said)
            held = defaultdict[_Said, list[int]](list)
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
        sql = "insert into unit values (?, ?, ?, ?) on conflict(num) do update"
        db.executemany(f"{sql} set above = excluded.above, grp = excluded.grp", placed)
        self._drop_unneeded(db, {above for *_, above in rows if above is not None})

    def _drop_unneeded(self, db: sqlite3.Connection, numbers: set[int]) -> None:
        """Delete units of nothing but an id which are the context of no other."""
        is_alone = "grp is null and not exists (select 1 from unit child where child.above = unit.num)"
        db.executemany(f"delete from unit where num = ? and {is_alone}", [(num,) for num in numbers])

    def _passages_of(self, units: Collection[int]) -> dict[int, list[int]]:
        """Return unit → documents of its infos, where there are any."""
        found = defaultdict[int, list[int]](list)
        for unit, document in self._select("select unit, num from passage where unit in", units, _NUMBERS, _NUMBERS):
            found[unit].append(document)
        return found

    # -- texts ----------------------------------------------------------------

    def _texts(self, db: sqlite3.Connection, documents: Iterable[int]) -> dict[int, _Said]:
        """Return what documents say."""
        block, found = dict[int, bytes](), dict[int, _Said]()
        for document in sorted(documents):
            if document not in block:
                _, block = self._block(db, document)
            if document not in block:
                raise _DamagedRowError(f"document {document} has no text")
            found[document] = _decode(document, block[document])
        return found

    def _block(self, db: sqlite3.Connection, document: int) -> tuple[int, dict[int, bytes]]:
        """Return the block in which a document is or would be, with its key; 0: there is none yet."""
        sql = "select first, data from said where first <= ? order by first desc limit 1"
        row = db.execute(sql, (document,)).fetchone()
        return (row[0], _unpack(row[1])) if row else (0, {})

    def _write_texts(self, db: sqlite3.Connection, batch: _Batch) -> None:
        changed = sorted(batch.said)
        new = changed[bisect.bisect_left(changed, 2 * batch.first) :]
        del changed[len(changed) - len(new) :]
        while changed:  # those of a block together, the last ones first
            first, block = self._block(db, changed[-1])
            for document in _take_from(changed, first):
                block.pop(document, None)
                if (said := batch.said[document]) is not None:
                    block[document] = _encode(said)
            db.execute("delete from said where first = ?", (first,))
            if block:
                db.executemany("insert into said values (?, ?)", _split(dict(sorted(block.items()))))
        rows, held, size, shrunk = list[tuple[int, bytes]](), dict[int, bytes](), 0, _SHRUNK
        last = "select first, data from said order by first desc limit 1"
        for first, data in db.execute(last).fetchall() if new else ():
            if len(data) < _BLOCK:
                db.execute("delete from said where first = ?", (first,))
                held = _unpack(data)
                size = sum(map(len, held.values()))
        for document in new:
            held[document] = _encode(batch.said[document] or "")
            size += len(held[document])
            if size * shrunk >= _BLOCK:
                rows.append((min(held), _pack(held)))
                shrunk, held, size = len(rows[-1][1]) / size, {}, 0
        if held:
            rows.append((min(held), _pack(held)))
        db.executemany("insert into said values (?, ?)", rows)

    # -- postings -------------------------------------------------------------

    def _write(self, db: sqlite3.Connection, batch: _Batch) -> None:
        self._write_texts(db, batch)
        gone = [(document,) for document, said in batch.said.items() if said is None]
        db.executemany("delete from passage where num = ?", gone)
        db.executemany("insert into passage values (?, ?)", batch.owners)
        for term, documents in batch.removed.items():
            self._remove_postings(db, term, documents)
        self._add_postings(db, batch.added)
        counts = "insert into meta values (?, ?) on conflict do update set value = value + excluded.value"
        db.executemany(counts, [*batch.counts.items(), ("next", batch.next - batch.first)])

    def _add_postings(self, db: sqlite3.Connection, added: Mapping[str, bytearray]) -> None:
        held = "select term, n, data from posting where first = 0 and term in"
        tails = {term: (n, tail) for term, n, tail in self._select(held, added, _TEXTS, _NUMBERS, _BYTES)}
        rows = list[tuple[str, int, bytes]]()
        for term in sorted(added):
            n, tail = tails.pop(term, (0, b""))
            n, tail = n + len(added[term]) // _POSTING.size, tail + added[term]
            if len(tail) >= _POSTING.size * _TAIL:
                self._seal_postings(db, term, tail)
                tail = b""
            rows.append((term, n, tail))
        sql = "insert into posting values (?, 0, ?, ?) on conflict do update set n = excluded.n, data = excluded.data"
        db.executemany(sql, rows)

    def _run(self, db: sqlite3.Connection, term: str, document: int) -> tuple[int, dict[int, int]]:
        """Return the run of a term in which a document is or would be, with its key; 0: there is none yet."""
        sql = "select first, data from posting where term = ? and first between 1 and ? order by first desc limit 1"
        row = db.execute(sql, (term, document)).fetchone()
        return (row[0], dict(_unseal(*row))) if row else (0, {})

    def _seal_postings(self, db: sqlite3.Connection, term: str, tail: bytes) -> None:
        left, rows = sorted(_read_tail(tail)), list[tuple[str, int, int, bytes]]()
        while left:  # those of a run together, the last ones first
            first, run = self._run(db, term, left[-1][0])
            postings = _take_from(left, (first, 0))
            if run and (len(run) < _RUN or postings[0] < (max(run), 0)):
                db.execute("delete from posting where term = ? and first = ?", (term, first))
                postings = sorted([*run.items(), *postings])
            rows += ((term, *_seal(postings[at : at + _RUN])) for at in range(0, len(postings), _RUN))
        db.executemany("insert into posting values (?, ?, ?, ?)", rows)

    def _remove_postings(self, db: sqlite3.Connection, term: str, documents: set[int]) -> None:
        held = db.execute("select n, data from posting where term = ? and first = 0", (term,)).fetchall()
        for n, tail in _checked(held, _NUMBERS, _BYTES):
            if n == len(documents):
                db.execute("delete from posting where term = ?", (term,))
                return
            postings = dict(_read_tail(tail))
            left = sorted(document for document in documents if postings.pop(document, None) is None)
            tail = b"".join(itertools.starmap(_POSTING.pack, postings.items()))
            update = "update posting set n = ?, data = ? where term = ? and first = 0"
            db.execute(update, (n - len(documents), tail, term))
            while left:
                first, run = self._run(db, term, left[-1])
                for document in _take_from(left, first):
                    if run.pop(document, None) is None:
                        raise _DamagedRowError(f"document {document} does not have {term!r:.40}")
                db.execute("delete from posting where term = ? and first = ?", (term, first))
                if run:
                    db.execute("insert into posting values (?, ?, ?, ?)", (term, *_seal(run.items())))

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

    def beginning(self, start: str, limit: int = 500) -> list[str]:
        """Return terms that begin so, at most so many."""
        with self.reading() as db:
            sql = "select term from posting where first = 0 and term >= ? and term < ? limit ?"
            rows = db.execute(sql, (start, start + "\U0010ffff", limit)).fetchall()
            return [term for (term,) in _checked(rows, _TEXTS)]

    def postings(self, term: str) -> dict[int, int]:
        """Return document → code of all that have a term; a passage's number is odd. It is not to be changed."""
        with self.reading() as db:
            known = self._remembered(db, "postings", dict[str, dict[int, int]])
            if term not in known:
                found: dict[int, int] = {}
                for first, data in db.execute("select first, data from posting where term = ?", (term,)).fetchall():
                    found.update(_unseal(first, data) if first else _read_tail(data))
                if sum(map(len, known.values())) + len(found) > _REMEMBERED:
                    known.clear()
                known[term] = found
            return known[term]

    def owners(self, documents: Iterable[int]) -> dict[int, int]:
        """Return document → unit."""
        owners = {document: document >> 1 for document in documents}
        passages = [document for document in owners if document & 1]
        rows = self._select("select num, unit from passage where num in", passages, _NUMBERS, _NUMBERS)
        if len(rows) != len(passages):
            raise _DamagedRowError("a passage has no unit")
        return owners | dict(rows)

    def units(self, numbers: Collection[int]) -> dict[int, UnitRow]:
        """Return number → unit, of some and those above them."""
        sql = (
            "select num, id, above, grp, exists (select 1 from unit child where child.above = unit.num),"
            " (select count(*) from passage where passage.unit = unit.num) from unit where num in"
        )
        kinds = _NUMBERS, (str, bytes), (int, _NONE), (str, _NONE), _NUMBERS, _NUMBERS
        found, wanted = dict[int, UnitRow](), set(numbers)
        with self.reading() as db:
            known = self._remembered(db, "units", dict[int, UnitRow])
            if len(known) > _REMEMBERED:
                known.clear()
            while wanted:
                for num, key, above, group, is_context, passages in self._select(sql, wanted - known.keys(), *kinds):
                    document = None if group is None else 2 * num
                    known[num] = UnitRow(to_id(key), above, group or "", document, bool(is_context), passages)
                if not wanted <= known.keys():
                    raise _DamagedRowError("what is indexed has no unit")
                found.update((num, known[num]) for num in wanted)
                wanted = {row.above for num in wanted if (row := known[num]).above} - found.keys()
        return found

    def numbers(self, ids: Iterable[str]) -> dict[str, int]:
        """Return id → number, of the units that are there."""
        sql = "select id, num from unit where grp is not null and id in"
        return {to_id(key): num for key, num in self._select(sql, map(to_key, ids), (str, bytes), _NUMBERS)}

    def documents_of(self, ids: Iterable[str]) -> set[int]:
        """Return all documents of some units, given by their ids."""
        numbers = set(self.numbers(ids).values())
        return {2 * num for num in numbers}.union(*self._passages_of(numbers).values())

    def documents_in(self, groups: Collection[str], limit: int) -> dict[int, str]:
        """Return document → group of what belongs to some groups, but for their infos; at most so many."""
        sql = "select 2 * num from unit where grp = ? and grp <> '' limit ?"
        found = dict[int, str]()
        with self.reading() as db:

            def read(group: str) -> "array[int]":
                rows = db.execute(sql, (group, limit)).fetchall()
                return array("I", chain.from_iterable(_checked(rows, _NUMBERS)))

            for group in sorted(groups):  # a session is asked for by every question to it
                documents = self._remembered(db, (group, limit), functools.partial(read, group))
                found |= dict.fromkeys(documents[: limit - len(found)], group)
        return found

    def ids(self) -> set[str]:
        """Return the ids of all units."""
        with self.reading() as db:
            return {to_id(key) for (key,) in db.execute("select id from unit where grp is not null")}

    def children(self, number: int, limit: int) -> list[int]:
        """Return units that have this one as their context."""
        with self.reading() as db:
            rows = db.execute("select num from unit where above = ? order by num limit ?", (number, limit)).fetchall()
            return [num for (num,) in _checked(rows, _NUMBERS)]

    def read(self, documents: Collection[int]) -> dict[int, tuple[list[str], str]]:
        """Return document → names and text; a passage has no names."""
        with self.reading() as db:
            found = self._texts(db, documents).items()
        return {document: ([], said) if isinstance(said, str) else (said[0], said[1]) for document, said in found}

    def names_of(self, number: int) -> list[str]:
        """Return the names of a unit."""
        return self.read([2 * number])[2 * number][0]

    def sample(self, count: int, start: int) -> list[int]:
        """Return some documents, spread over all, the same ones each time."""
        with self.reading() as db:
            last = db.execute(
                "select max((select ifnull(max(2 * num), 0) from unit where grp is not null),"
                " (select ifnull(max(num), 0) from passage))"
            ).fetchone()[0]
            nearest = (
                "select min(num) from (select min(num) num from passage where num >= ? union all"
                " select min(2 * num) from unit where num >= ? and grp is not null)"
            )
            step = max(1, last // max(1, count))
            rows = [db.execute(nearest, (at, (at + 1) // 2)).fetchone() for at in range(start % step, last + 1, step)]
            return list(dict.fromkeys(num for (num,) in _checked(rows, (int, _NONE)) if num))

    def _select(self, sql: str, values: Iterable[object], *kinds: tuple[type, ...]) -> list[Any]:
        listed, found = list(values), list[Any]()
        with self.reading() as db:
            for start in range(0, len(listed), _PARAMETERS):
                part = listed[start : start + _PARAMETERS]
                found += db.execute(f"{sql} ({','.join('?' * len(part))})", part).fetchall()
        return _checked(found, *kinds)

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
        near: Mapping[str, float] | None = None,
    ) -> list[Hit]:
        """Return what fits a question, best first, ties in the order in which it was put.

        Args:
            query: Any text; of a page of it the last sentence and those that ask count most.
            limit: So many hits at most.
            groups: Only units of these.
            among: Only these: their ids, or, where they are many, what returns which of some ids may be found.
            lent: id → term → share (0 to 1): what a unit counts as saying although none of its texts does.
            quotes: Hits that get an excerpt, the first ones; None: all of them.
            near: What fits by another ranking, too: id → 0 to 1, see `calibration.fuse`.
        """
        with self.reading():
            asked = score.Query(self, texts.question(query))
            found = score.rank(asked, limit, groups=groups, among=among, lent=lent)
            if rest := {*(near or ())} - {each.id for each in found}:
                found += score.rank(asked, len(rest), among=rest, lent=lent)
            scale = calibration.scale_of(self)
            excerpts = evidence.quote(self, evidence.Words(asked.quoted()), found[:quotes])
            scores = {each.id: scale(each.score) for each in found}
            scores = calibration.fuse(scores, calibration.certainty_of(asked, found), near) if near else scores
            hits = [Hit(id, one, excerpts.get(id, "")) for id, one in scores.items()]
            return sorted(hits, key=lambda hit: -hit.score)[:limit]
