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
and `unread`, since there is a model, the documents that have none yet; see `vectors`. A unit may have columns of the
index's owner, who keeps its row by `noted`.
"""

import functools
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple

from . import codes, packing
from .index_file import IndexFile
from .packing import BYTES, KEYS, NONE, NUMBERS, TEXTS
from .thesaurus import Thesaurus

__all__ = ["ANCESTORS", "Rows", "UnitRow"]

ANCESTORS = 64
"""Levels of contexts that are looked at: a farther one counts less than 1e-8."""

_COUNTED = ("units", "names", "name terms", "texts", "text terms", "passages", "passage terms")
_REMEMBERED, _POSTINGS, _BLOCKS = 20_000, 400_000, 50  # units and so on that are in memory while nothing changes


class UnitRow(NamedTuple):
    """A unit as it is stored."""

    id: str
    above: int | None
    group: str
    document: int | None  # of its names and its text; None where it is but the context of others
    is_context: bool


class Rows(IndexFile):
    """The rows of an index, to be read; see the head of this module, and `IndexFile` for arguments and errors."""

    thesaurus: Thesaurus | None = None
    """Of near words, for a question."""
    newest_first = False
    """Whether of equals the unit that was put last comes first, else the first."""

    # -- units and postings ---------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return how many units, names, texts and passages there are, and the terms in them."""
        with self.reading() as db:
            kept = self._meta(db)
        return {key: kept[key] for key in _COUNTED if isinstance(kept.get(key), int)}

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many documents each term occurs, of those that do."""
        sql = "select term, n from posting where first = 0 and term in"
        return dict(self._select(sql, terms, TEXTS, NUMBERS))

    def postings(self, terms: Iterable[str]) -> dict[str, packing.Postings]:
        """Return term → the documents that have it; a passage's number is odd. They are not to be changed."""
        sql, numbers = "select term, first, data from posting where term in", (int, NONE)
        with self.reading() as db:
            known = self.remembered(db, "postings", dict[str, packing.Postings])
            found = {term: known.get(term) or packing.Postings(array("I"), array("H")) for term in terms}
            new = {term: postings for term, postings in found.items() if term not in known}
            for term, first, data in self._select(sql, new, TEXTS, numbers, BYTES):
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
        rows = self._select("select num, unit from passage where num in", passages, NUMBERS, NUMBERS)
        if len(rows) != len(passages):
            raise packing.DamagedRowError("a passage has no unit")
        return owners | dict(rows)

    def units(self, numbers: Collection[int]) -> dict[int, UnitRow]:
        """Return number → unit, of some and those above them, as far up as their words count."""
        sql = (
            "select num, id, above, grp, exists (select 1 from unit child where child.above = unit.num)"
            " from unit where num in"
        )
        kinds = NUMBERS, KEYS, (int, NONE), (str, NONE), NUMBERS
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
                return array("I", chain.from_iterable(packing.checked(rows, NUMBERS)))

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
            return [num for (num,) in packing.checked(rows, NUMBERS)]

    def passages_of(self, units: Collection[int]) -> dict[int, list[int]]:
        """Return unit → documents of its infos, where there are any."""
        found = defaultdict[int, list[int]](list)
        for unit, document in self._select("select unit, num from passage where unit in", units, NUMBERS, NUMBERS):
            found[unit].append(document)
        return found

    def _rows(self, keys: Iterable[str | bytes]) -> list[tuple[str | bytes, int, int | None, str | None]]:
        """Return key, number, context and group of units, those that are there."""
        wanted = {*keys}
        found = "select id, num, above, grp from unit where checksum in"
        rows = self._select(found, map(packing.checksum, wanted), KEYS, NUMBERS, (int, NONE), (str, NONE))
        return [row for row in rows if row[0] in wanted]

    # -- texts ----------------------------------------------------------------

    def read(self, documents: Collection[int]) -> dict[int, tuple[list[str], str]]:
        """Return document → names and text; a passage has no names."""
        with self.reading() as db:
            found = self._texts(db, documents).items()
        return {document: ([], said) if isinstance(said, str) else (said[0], said[1]) for document, said in found}

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
        known = self.remembered(db, "blocks", dict[int, dict[int, bytes]])
        for first, block in known.items():
            if document in block:
                return first, block
        sql = "select first, data from said where first <= ? order by first desc limit 1"
        row = db.execute(sql, (document,)).fetchone()
        if row and row[0] not in known:
            block = packing.unpack(row[1])
            if len(known) > _BLOCKS or len(row[1]) > 2 * packing.BLOCK:
                known.clear()
            known[row[0]] = block
        return (row[0], known[row[0]]) if row else (0, {})
