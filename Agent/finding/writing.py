"""Writing the rows of an index: what is put and removed is collected in a batch, and written term by term."""

import bisect
import contextlib
import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

from . import codes, packing, texts
from .rows import BYTES, NUMBERS, TEXTS, Rows, checked

__all__ = ["Unit", "WritableRows"]

_ROW = 1_900  # bytes of a term's newest postings; a row of more than a quarter of a page takes whole ones besides
_RUN = 300  # postings of a run, at least; twice as many at most
_TOGETHER = 250  # units that are looked up together
_BATCH_BYTES = 1 << 24  # postings that are collected before they are written


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


def _check(unit: Unit) -> Unit:
    """Return `unit` if it is one: an error within a transaction would pass for damage."""
    for value in (unit.id, unit.text, unit.group, *unit.names, *unit.infos, unit.context or ""):
        if not isinstance(value, str):
            raise TypeError(f"a unit is made of texts, not of {value!r:.60}")
    return unit


class _Batch:
    """The changes that a transaction collects before they are written."""

    def __init__(self, first_number: int) -> None:
        self.added: defaultdict[str, bytearray] = defaultdict(bytearray)  # not lists: the collector goes through these
        self.removed: defaultdict[str, set[int]] = defaultdict(set)
        self.said: dict[int, bytes | None] = {}  # None: it goes; not texts, which the collector goes through, too
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
        self.said[document] = packing.encode_text(said)
        found, counts = codes.read(said)
        for name, more in counts.items():  # `update` takes ten times as long
            self.counts[name] += more
        for code, terms in found.items():
            posting = packing.POSTING.pack(document, code)
            self.size += len(posting) * len(terms)
            for row in map(self.added.__getitem__, terms):
                row += posting

    def remove(self, document: int, said: codes.Said) -> None:
        """Drop a document."""
        self.said[document] = None
        found, counts = codes.read(said)
        self.counts.subtract(counts)
        for term in chain.from_iterable(found.values()):
            self.size += packing.POSTING.size
            self.removed[term].add(document)


# Embedded along with a unit's first name: its passages, and those of which it is the context.
_UNDER_ITS_NAME = """
select num from passage where unit = :num union select 2 * num from unit where above = :num and grp is not null
"""


# Of a JSON object, term → where its postings begin in :data and how many there are. Rows that become too long are left
# to be sealed; what is damaged becomes null.
_POSTINGS = "select key as term, value >> 32 as start, (value & 0xffffffff) * 6 as size from json_each(:places)"
_FULL = f"""
select posting.term, data from ({_POSTINGS}) added cross join posting on posting.term = added.term and first = 0
where length(data) + size >= :row
"""
_ADD = f"""
insert into posting select term, 0, size / 6, iif(size < :row, substr(:data, 1 + start, size), x'') from ({_POSTINGS})
where true on conflict do update set n = iif(typeof(n) = 'integer', n, null) + excluded.n, data = iif(
length(data) + 6 * excluded.n < :row, cast(iif(typeof(data) = 'blob', data, null) || excluded.data as blob), data)
"""


class WritableRows(Rows):
    """The rows of an index; see the head of `rows`, and `IndexFile` for arguments and errors of all methods."""

    def put(self, units: Iterable[Unit]) -> None:
        """Take in units; one that is there is replaced, and only new texts are indexed. Cost: 0.1 ms a text."""
        new = [*{unit.id: unit for unit in map(_check, units)}.values()]
        with self.transaction() as db:
            batch = _Batch(self._meta()["next"])
            for start in range(0, len(new), _TOGETHER):
                self._put(db, batch, new[start : start + _TOGETHER])
                if batch.size > _BATCH_BYTES:
                    self._write(db, batch)
                    batch = _Batch(batch.next)
            self._write(db, batch)

    def number(self, ids: Collection[str], again: Collection[str] = ()) -> dict[str, int]:
        """Return id → number of units that are there, or will be put; those `again` are removed, and come last.

        The caller is to set `noted` in the rows of new ones.
        """
        with self.transaction() as db:
            self.remove(again)
            keys = packing.to_keys(ids)
            found = {keys[key]: num for key, num, *_ in self._rows(keys)}
            numbers = count(self._meta()["next"])
            new = {id: next(numbers) for id in keys.values() if id in again or id not in found}
            for id in new.keys() & found.keys():
                for column in ("num", "above"):
                    db.execute(f"update unit set {column} = ? where {column} = ?", (new[id], found[id]))
            rows = [(new[id], key, packing.checksum(key)) for key, id in keys.items() if id in new and id not in found]
            db.executemany("insert into unit(num, id, checksum) values (?, ?, ?)", rows)
            self.keep("next", next(numbers))
            return found | new

    def remove(self, ids: Iterable[str]) -> None:
        """Remove units, as far as they are there. After `scrub` no byte of their texts is in the file."""
        keys = [*packing.to_keys(ids)]
        with self.transaction() as db:
            for start in range(0, len(keys), _TOGETHER):
                batch = _Batch(self._meta()["next"])
                rows = self._rows({*keys[start : start + _TOGETHER]})
                owned = [2 * num for _, num, _, group in rows if group is not None]
                owned += chain.from_iterable(self.passages_of([num for _, num, *_ in rows]).values())
                for document, said in self._texts(owned).items():
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
        keys = packing.to_keys(id for unit in units for id in (unit.id, unit.context) if id is not None)
        rows = self._rows(keys)
        numbers = {keys[key]: num for key, num, *_ in rows}
        contexts = {num: above for _, num, above, _ in rows}
        there = {num for _, num, _, group in rows if group is not None}
        passages = self.passages_of(there)
        owned = [2 * numbers[unit.id] for unit in units if numbers.get(unit.id) in there]
        kept = self._texts([*owned, *chain.from_iterable(passages.values())])
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
            held = dict[codes.Said, list[int]]()
            for at in passages.get(num, ()):
                held.setdefault(kept[at], []).append(at)
            for passage in chain.from_iterable(map(texts.passages, unit.infos)):
                if held.get(passage):
                    held[passage].pop()
                else:
                    batch.owners.append((at := 2 * batch.number() + 1, num))
                    batch.add(at, passage)
            for gone, documents in held.items():
                for at in documents:
                    batch.remove(at, gone)
        sql = "insert into unit(num, id, checksum, above, grp) values (?, ?, ?, ?, ?) on conflict(num) do update"
        key_of = {id: key for key, id in keys.items()}
        new = [(num, key_of[id], packing.checksum(key_of[id]), *rest) for num, (id, *rest) in placed.items()]
        db.executemany(f"{sql} set above = excluded.above, grp = excluded.grp", new)
        self._drop_unneeded(db, {above for _, _, above, _ in rows if above is not None})

    def _drop_unneeded(self, db: sqlite3.Connection, numbers: set[int]) -> None:
        """Delete units of nothing but an id which are the context of no other, and not noted."""
        is_alone = "grp is null and noted is null"
        is_needed = "exists (select 1 from unit child where child.above = unit.num)"
        sql = f"delete from unit where num = ? and {is_alone} and not {is_needed}"
        db.executemany(sql, [(num,) for num in numbers])

    # -- texts ----------------------------------------------------------------

    def _write_texts(self, db: sqlite3.Connection, batch: _Batch) -> None:
        changed = sorted(batch.said)
        last = db.execute("select max(first) from said").fetchone()[0] or 0
        while changed:  # those of a block together, the last ones first
            first, kept = self._block(changed[-1])
            start = bisect.bisect_left(changed, first)
            documents, changed = changed[start:], changed[:start]
            is_full = packing.SHRUNK * sum(map(len, kept.values())) >= packing.BLOCK
            if first == last and is_full and documents[0] > max(kept):  # all are new
                kept = {}
            else:
                db.execute("delete from said where first = ?", (first,))
            added = {at: said for at in documents if (said := batch.said[at]) is not None}
            block = {at: text for at, text in kept.items() if at not in batch.said} | added
            size = packing.BLOCK if first == last else 2 * packing.BLOCK
            size = packing.LARGE if len(added) > _TOGETHER else size
            db.executemany("insert into said values (?, ?)", packing.blocks(dict(sorted(block.items())), size))

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
        if "model" not in self._meta():  # the first one reads all
            return
        stale = [(at,) for at in {*batch.said, *batch.stale} if at < 2 * batch.first]
        for table in ("vector", "unread"):
            db.executemany(f"delete from {table} where document = ?", stale)
        new = {*batch.stale, *(at for at, said in batch.said.items() if said and said != packing.NO_TEXT)}
        gone = {at for at, said in batch.said.items() if said is None}
        db.executemany("insert or ignore into unread values (?)", [(at,) for at in new - gone])

    def _add_postings(self, db: sqlite3.Connection, added: Mapping[str, bytearray]) -> None:
        """Add postings to the newest ones of their terms; those that become many are sealed.

        In a few statements: each row that Python itself reads or writes hands the interpreter to other threads and
        back, which takes longer than the row.
        """
        places, parts, start = dict[str, int](), list[bytearray](), 0
        for term in sorted(added):
            places[term] = start << 32 | len(added[term]) // packing.POSTING.size
            if len(added[term]) < _ROW:  # else they are sealed at once
                parts.append(added[term])
                start += len(added[term])
        given = {"places": json.dumps(places), "data": b"".join(parts), "row": _ROW}
        full = dict[str, bytes](checked(db.execute(_FULL, given).fetchall(), TEXTS, BYTES))
        db.execute(_ADD, given)
        full |= {term: b"" for term in places if len(added[term]) >= _ROW and term not in full}
        sealed = [(self._seal_postings(db, term, data + added[term]), term) for term, data in full.items()]
        db.executemany("update posting set data = ? where term = ? and first = 0", sealed)

    def _seal_postings(self, db: sqlite3.Connection, term: str, data: bytes) -> bytes:
        """Return the newest postings of a term in less space; those that are many become runs."""
        newest = packing.unseal(0, data)
        count = packing.count_of(newest)
        if count < _RUN:
            return packing.seal(0, newest)
        ordered = sorted(packing.by_document(newest).items())
        size = math.ceil(count / math.ceil(count / (2 * _RUN)))
        for at in range(0, count, size):
            self._add_run(db, term, codes.by_code(ordered[at : at + size]))
        return b""

    def _add_run(self, db: sqlite3.Connection, term: str, postings: Mapping[int, Collection[int]]) -> None:
        first = min(map(min, postings.values()))
        db.execute("insert into posting values (?, ?, null, ?)", (term, first, packing.seal(first, postings)))

    def _remove_postings(self, db: sqlite3.Connection, term: str, documents: set[int]) -> None:
        held = db.execute("select n, data from posting where term = ? and first = 0", (term,)).fetchall()
        for n, data in checked(held, NUMBERS, BYTES):
            if n == len(documents):
                db.execute("delete from posting where term = ?", (term,))
                return
            newest = packing.unseal(0, data)
            update = "update posting set n = ?, data = ? where term = ? and first = 0"
            db.execute(update, (n - len(documents), packing.seal(0, packing.without(newest, documents)), term))
            before = "select first, data from posting where term = ? and first between 1 and ? order by first desc"
            left = documents.difference(*newest.values())
            bound = max(left, default=0)
            while left:  # runs overlap where old texts changed
                row = db.execute(f"{before} limit 1", (term, bound)).fetchone()
                if row is None:
                    raise packing.DamagedRowError(f"document {max(left)} does not have {term!r:.40}")
                run = packing.unseal(*row)
                if gone := left.intersection(chain.from_iterable(run.values())):
                    db.execute("delete from posting where term = ? and first = ?", (term, row[0]))
                    if kept := packing.without(run, gone):
                        self._add_run(db, term, kept)
                    left -= gone
                bound = min(row[0] - 1, max(left, default=0))
