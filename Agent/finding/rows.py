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

import contextlib
import functools
import json
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from . import codes, packing
from .index_file import IndexFile
from .thesaurus import Thesaurus

__all__ = ["ANCESTORS", "BYTES", "NUMBERS", "TEXTS", "MovedError", "Rows", "UnitRow", "checked"]

NUMBERS, TEXTS, BYTES, KEYS, NONE = (int,), (str,), (bytes,), (str, bytes), type(None)
"""Of columns, for `checked`."""

ANCESTORS = 64
"""Levels of contexts that are looked at: a farther one counts less than 1e-8."""

_COUNTED = ("units", "names", "name terms", "texts", "text terms", "passages", "passage terms")
_REMEMBERED, _POSTINGS, _BLOCKS = 20_000, 400_000, 50  # units and so on that are in memory while nothing changes
_TEXTS = 1_000  # likewise
_R = TypeVar("_R")


class MovedError(Exception):
    """Another process has moved the position of the index, so that the changes since have to be read again."""


class UnitRow(NamedTuple):
    """A unit as it is stored."""

    id: str
    above: int | None
    group: str
    document: int | None  # of its names and its text; None where it is but the context of others
    is_context: bool


class Rows(IndexFile):
    """The rows of an index, to be read; see the head of this module, and `IndexFile` for arguments and errors.

    Whatever reads units, postings or texts is called within `reading` or `transaction`, which a question enters once.
    """

    thesaurus: Thesaurus | None = None
    """Of near words, for a question."""
    newest_first = False
    """Whether of equals the unit that was put last comes first, else the first."""

    # -- what is kept once ----------------------------------------------------

    @contextlib.contextmanager
    def step(self, position: str) -> Iterator[sqlite3.Connection]:
        """Hold a transaction that takes in all changes since a position; raises `MovedError` where that is another one.

        Of two processes that follow, one may have read less than the other: it would put back removed units.
        """
        with self.transaction() as db:
            if self.position != position:
                raise MovedError
            yield db

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
        with self.reading():
            return self._meta().get(key)

    def counts(self) -> dict[str, int]:
        """Return how many units, names, texts and passages there are, and the terms in them."""
        kept = self._meta()
        return {key: kept[key] for key in _COUNTED if isinstance(kept.get(key), int)}

    def _meta(self) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            found = dict(self.db.execute("select key, value from meta").fetchall())
            if type(found.get("next")) is not int or type(found.get("position")) is not str:
                raise packing.DamagedRowError(f"the index does not say how far it is: {found!r:.80}")
            return found

        return self.remembered("meta", read)

    def remembered(self, key: object, read: Callable[[], _R]) -> _R:
        """Return the cached reading of a key, while nothing changes."""
        self._version = self._version or self.db.execute("pragma data_version").fetchone()
        state = self.db.total_changes, self._version
        if self._memory[0] != state:
            self._memory = state, {}
        if key not in self._memory[1]:
            self._memory[1][key] = read()
        found: _R = self._memory[1][key]
        return found

    # -- units and postings ---------------------------------------------------

    def _select(self, sql: str, values: Iterable[Any], *kinds: tuple[type, ...]) -> list[Any]:
        rows = self.db.execute(f"{sql} (select value from json_each(?))", (json.dumps([*values]),))
        return checked(rows.fetchall(), *kinds)

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many documents each term occurs, of those that do."""
        sql, known = "select term, n from posting where first = 0 and term in", self.remembered("n", dict[str, int])
        if len(known) > _REMEMBERED:
            known.clear()
        wanted = [*terms]
        if new := [term for term in wanted if term not in known]:
            known |= dict.fromkeys(new, 0) | dict(self._select(sql, new, TEXTS, NUMBERS))
        return {term: n for term in wanted if (n := known[term])}

    def postings(self, terms: Iterable[str]) -> dict[str, packing.Postings]:
        """Return term → the documents that have it; a passage's number is odd. They are not to be changed."""
        sql = "select term, first, data from posting where term in"
        known = self.remembered("postings", dict[str, packing.Postings])
        found = {term: known.get(term, {}) for term in terms}
        new = {term: postings for term, postings in found.items() if term not in known}
        for term, first, data in self._select(sql, new, TEXTS, (int, NONE), BYTES):
            packing.unseal(first, data, new[term])
        self._held = (self._held if known else 0) + sum(map(packing.count_of, new.values()))
        while known and self._held > _POSTINGS:  # the oldest ones go
            self._held -= packing.count_of(known.pop(next(iter(known))))
        known.update(new)
        return found

    def owners(self, documents: Iterable[int]) -> dict[int, int]:
        """Return document → unit."""
        owners = {document: document >> 1 for document in documents}
        if passages := [document for document in owners if document & 1]:
            rows = self._select("select num, unit from passage where num in", passages, NUMBERS, NUMBERS)
            if len(rows) != len(passages):
                raise packing.DamagedRowError("a passage has no unit")
            owners.update(rows)
        return owners

    def units(self, numbers: Collection[int]) -> dict[int, UnitRow]:
        """Return number → unit, of some and those above them, as far up as their words count."""
        sql = (
            "select num, id, above, grp, exists (select 1 from unit child where child.above = unit.num)"
            " from unit where num in"
        )
        kinds = NUMBERS, KEYS, (int, NONE), (str, NONE), NUMBERS
        found, wanted = dict[int, UnitRow](), set(numbers)
        known = self.remembered("units", dict[int, UnitRow])
        if len(known) > _REMEMBERED:
            known.clear()
        for _ in range(ANCESTORS):
            # Not by `wanted - known.keys()`, which goes through all that is known for each level of a deep tree.
            if unknown := [num for num in wanted if num not in known]:
                for num, key, above, group, is_context in self._select(sql, unknown, *kinds):
                    document = None if group is None else 2 * num
                    known[num] = UnitRow(packing.to_id(key), above, group or "", document, bool(is_context))
            if not known.keys() >= wanted:
                raise packing.DamagedRowError("what is indexed has no unit")
            there = {num: known[num] for num in wanted}
            found |= there
            wanted = {row.above for row in there.values() if row.above and row.above not in found}
            if not wanted:
                break
        return found

    def numbers(self, ids: Iterable[str]) -> dict[str, int]:
        """Return id → number, of the units that are there."""
        keys = packing.to_keys(ids)
        return {keys[key]: num for key, num, _, group in self._rows(keys) if group is not None}

    def documents_of(self, ids: Iterable[str]) -> set[int]:
        """Return all documents of some units, given by their ids."""
        numbers = set(self.numbers(ids).values())
        return {2 * num for num in numbers}.union(*self.passages_of(numbers).values())

    def documents_in(self, groups: Collection[str], limit: int) -> "dict[str, array[int]]":
        """Return group → documents of its members, without their infos; at most `limit` of all."""
        sql = "select 2 * num from unit where grp = ? and grp <> '' limit ?"
        found, left = dict[str, "array[int]"](), limit

        def read(group: str) -> "array[int]":
            rows = self.db.execute(sql, (group, limit)).fetchall()
            return array("I", chain.from_iterable(checked(rows, NUMBERS)))

        for group in sorted(groups):  # a session is asked for by every question to it
            if documents := self.remembered((group, limit), functools.partial(read, group))[:left]:
                found[group], left = documents, left - len(documents)
        return found

    def ids(self) -> set[str]:
        """Return the ids of all units."""
        return {packing.to_id(key) for (key,) in self.db.execute("select id from unit where grp is not null")}

    def children(self, number: int, limit: int) -> list[int]:
        """Return units that have this one as their context."""
        rows = self.db.execute("select num from unit where above = ? order by num limit ?", (number, limit)).fetchall()
        return [num for (num,) in checked(rows, NUMBERS)]

    def passages_of(self, units: Collection[int]) -> dict[int, list[int]]:
        """Return unit → documents of its infos, where there are any."""
        found = defaultdict[int, list[int]](list)
        for unit, document in self._select("select unit, num from passage where unit in", units, NUMBERS, NUMBERS):
            found[unit].append(document)
        return found

    def _rows(self, keys: Collection[str | bytes]) -> list[tuple[str | bytes, int, int | None, str | None]]:
        """Return key, number, context and group of units, those that are there."""
        found = "select id, num, above, grp from unit where checksum in"
        rows = self._select(found, map(packing.checksum, keys), KEYS, NUMBERS, (int, NONE), (str, NONE))
        return [row for row in rows if row[0] in keys]

    # -- texts ----------------------------------------------------------------

    def read(self, documents: Collection[int]) -> dict[int, tuple[list[str], str]]:
        """Return document → names and text; a passage has no names. They are not to be changed."""
        known = self.remembered("texts", dict[int, tuple[list[str], str]])
        if len(known) > _TEXTS:
            known.clear()
        if unknown := [document for document in documents if document not in known]:
            for document, said in self._texts(unknown).items():
                known[document] = ([], said) if isinstance(said, str) else (said[0], said[1])
        return {document: known[document] for document in documents}

    def _texts(self, documents: Iterable[int]) -> dict[int, codes.Said]:
        """Return the texts of documents."""
        block, kept = dict[int, bytes](), dict[int, bytes]()
        for document in sorted(documents):
            if document not in block:
                _, block = self._block(document)
            if document not in block:
                raise packing.DamagedRowError(f"document {document} has no text")
            kept[document] = block[document]
        return packing.decode_texts(kept)

    def _block(self, document: int) -> tuple[int, dict[int, bytes]]:
        """Return the block in which a document is or would be, with its key; 0: there is none yet."""
        known = self.remembered("blocks", dict[int, dict[int, bytes]])
        for first, block in known.items():
            if document in block:
                return first, block
        sql = "select first, data from said where first <= ? order by first desc limit 1"
        row = self.db.execute(sql, (document,)).fetchone()
        if row and row[0] not in known:
            block = packing.unpack(row[1])
            if len(known) > _BLOCKS or len(row[1]) > 2 * packing.BLOCK:
                known.clear()
            known[row[0]] = block
        return (row[0], known[row[0]]) if row else (0, {})


def checked(rows: list[Any], *kinds: tuple[type, ...]) -> list[Any]:
    """Return rows, if each column has its written type."""
    for column, kind in zip(zip(*rows, strict=True), kinds, strict=bool(rows)):
        numbers = [*filter(None, column)] if int in kind else []
        if not {*map(type, column)} <= {*kind} or (numbers and not 0 < min(numbers) <= max(numbers) < packing.MOST):
            raise packing.DamagedRowError(f"a column of {'numbers' if int in kind else 'texts'} has {column!r:.80}")
    return rows
