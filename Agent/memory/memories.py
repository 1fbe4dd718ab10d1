"""Find infos by their text: an index of words beside the tree, which follows its log.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     memories = Memories(tree)
...     info = tree.CreateInfo("龙井来自杭州", "notes")
...     memories.catch_up()
...     [(found.id == info.id, found.excerpt) for found in memories.search("杭州有什么茶?", 5)]
[(True, '龙井来自杭州')]

Three things are derived from infos here, and can be thrown away at any time: the index of words (`finding.index`); what
filters and scores need of each info (`InfoFacts`), and which info supersedes which (`memory_rows`); and the graph
(`graph_rows`). All of it is in one file, with the place in the log up to which it was taken in; nothing of it is held
in memory. Superseded infos are not found.

The words of the question just before, in the same source, count for an answer, which seldom repeats it. All of a source
counts as one text besides.
"""

import contextlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..finding import texts
from ..finding.embedder import Embedder, Meaning, meaning_of
from ..finding.index import Hit, Index, LostIndexError, MovedError, Unit
from ..finding.packing import to_id
from ..finding.score import Among
from ..keyword_tree import ClosedError, Info, InvalidInputError, KeywordNode, KeywordTree
from ..store.log_follower import LogChanges, LogFollower, Position, all_infos, outside_operations
from . import graph_rows
from .memory_fields import superseded_ids
from .memory_rows import (
    LAYOUT,
    STOPS,
    Filters,
    InfoFacts,
    Touched,
    conditions,
    create_tables,
    facts_of,
    find_newer,
    find_older,
    find_questions_before,
    in_order_of_saying,
    key_of_text,
    note_superseded,
    remove_row,
    select_rows,
    time_of,
    without_stop,
    write_rows,
)

KINDS = ("fact", "episode", "pattern", "skill")
"""What `MemoryStore` keeps; other programs may have written others."""

_PAGE, _PAGE_TEXT = 50_000, 10_000_000  # infos, and characters, at once: each term of them is written once
_FORMER = 5  # texts that an info took the place of, which help to find it
_RETRY_S = 30.0  # after a file could not be used: another process writes, say
_FEW = 5_000  # memories: at most this many are asked for by their ids
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Memories:
    """The infos of a tree that answer a question, whichever process wrote, undid, restored or compacted.

    One class for following and asking, since both share the file, its lock and the place in the log; the rows are those
    of `memory_rows`.

    Args:
        tree: Whose infos.
        path: The file; None keeps all in memory. Where it cannot be written, all is kept in memory, a log line says
            so, and it is tried again from time to time.
        meaning: See `finding.index.Index`; in a file, vectors are shared with other machines.
        passages_of: Returns the passages of an info; none leaves it out. None is its content.
        is_joined: Whether what has the same source counts together, and of equals the newest comes first; else each
            info is by itself, and the first one put comes first.

    Cost: some 0.1 ms for an info, once; a search some milliseconds.
    """

    def __init__(
        self,
        tree: KeywordTree,
        path: Path | None = None,
        meaning: Meaning | Embedder | bool = True,
        passages_of: Callable[[Info], Iterable[str]] | None = None,
        is_joined: bool = True,
    ) -> None:
        self._is_joined = is_joined
        self._tree, self._path = tree, path
        self._passages_of = passages_of or (lambda info: texts.passages(info.content))
        self._meaning = meaning_of(meaning, tree, shares=path is not None) or False
        self._index = self._make_index(None if path is None else str(path))
        self._lock = threading.RLock()
        self._is_read = False  # by the thread that holds the lock
        self._follower = LogFollower(tree)
        self._taken: str | None = None  # the position that this process left the index at
        self._retry_at = float("-inf")  # where the file could not be used
        self._since: LogFollower | None = None  # of what `same` has seen
        self._recent: dict[int, dict[str, None]] = {}  # by the key of a text: infos written since

    def _make_index(self, path: str | None) -> Index:
        return Index(path, meaning=self._meaning, newest_first=self._is_joined)

    # -- following --

    def catch_up(self) -> None:
        """Follow the log; within `read` the index stays as it is."""
        with self._lock:
            if not self._is_read:
                if self._path is not None and self._index.path is None and time.monotonic() > self._retry_at:
                    self._go_back()
                self._do(self._catch_up)

    def _go_back(self) -> None:
        """Use the file again, if it can be used by now."""
        kept, self._index = (self._index, self._taken), self._make_index(str(self._path))
        self._taken = None
        try:
            self._catch_up()
        except (LostIndexError, sqlite3.OperationalError, OSError):
            self._index.close()
            (self._index, self._taken), self._retry_at = kept, time.monotonic() + _RETRY_S
        else:
            kept[0].close()

    def _do(self, work: Callable[[], _T]) -> _T:
        """Return what `work` does with the index: with another one in memory, where the file cannot be used."""
        with self._lock:
            for _ in range(3):
                try:
                    return work()
                except LostIndexError:
                    self._taken = None
                    with contextlib.suppress(LostIndexError, sqlite3.OperationalError, OSError):
                        self._catch_up()
                except (sqlite3.OperationalError, OSError) as error:
                    if self._index.path is None:
                        raise
                    _log.warning("the index %s cannot be used, memories are indexed in memory: %s", self._path, error)
                    self._index, self._taken = self._make_index(None), None
                    self._retry_at = time.monotonic() + _RETRY_S
                    self._catch_up()
            return work()

    def _catch_up(self) -> None:
        while True:
            position = self._index.position
            changes = self._changes_since(position)
            with contextlib.suppress(MovedError):
                if changes is None:
                    outside_operations(partial(self._read_all, position))
                    self._index.compact()
                elif changes.infos or _said(self._follower.position) != position:
                    with self._index.step(position) as db:
                        self._take(db, changes)
                self._taken = _said(self._follower.position)
                return

    def _changes_since(self, position: str) -> LogChanges | None:
        """Return the changes since a position of the index; None where all is to be read."""
        if position and position == self._taken:
            self._follower.position = _position(position)  # changes of a failed step come again
        elif not self._follower.resume(_position(position)):
            return None
        changes = self._follower.catch_up()
        return None if changes.from_nothing else changes

    def _read_all(self, position: str) -> None:
        """Take in all infos of the tree; those in the index are not indexed again."""
        seen: set[str] = set()
        with self._index.step(position) as db:
            create_tables(db)

            def read_tree() -> None:
                seen.clear()
                self._take_keywords(db, self._tree.Walk())
                for page in _pages(in_order_of_saying(all_infos(self._tree))):
                    seen.update(info.id for info in page)
                    self._take_page(db, page)

            # A keyword may have been moved from where it was not read yet to where it was.
            changes = self._follower.begin(read_tree, lambda changes: bool(changes.nodes))
            if changes.from_nothing:
                seen.clear()
            seen |= {info.id for info in changes.infos}
            self._take(db, changes)
            touched = Touched()
            gone = {to_id(key) for (key,) in db.execute("select id from memory")} - seen
            self._index.remove([id for id in gone if remove_row(db, id, touched)])
            self._put(self._infos_of(touched.followers), Touched())
            graph_rows.lead(db, touched.entities, self._resolve)

    def _take(self, db: sqlite3.Connection, changes: LogChanges) -> None:
        infos = dict[str, Info]()
        for info in changes.infos:
            before = infos.get(info.id)
            if before is not None and time_of(before) != time_of(info):
                del infos[info.id]  # said again after others
            infos[info.id] = info
        for page in _pages(infos.values()):
            self._take_page(db, page)
        self._take_keywords(db, {node.id: node for node in changes.nodes}.values())
        self._index.position = _said(self._follower.position)

    def _take_keywords(self, db: sqlite3.Connection, nodes: Iterable[KeywordNode]) -> None:
        changed = set[str]()
        for node in nodes:
            graph_rows.take_keyword(db, node)
            changed.add(node.id)
        graph_rows.lead(db, changed, self._resolve)

    def _resolve(self, ids: Collection[str]) -> dict[str, str]:
        """Return the keyword that each id is, or was merged into; of a deleted one its own."""
        nodes = outside_operations(lambda: {id: self._tree.GetKeyword(id) for id in ids})
        return {id: id if node is None else node.id for id, node in nodes.items()}

    def _take_page(self, db: sqlite3.Connection, infos: Sequence[Info]) -> None:
        touched = Touched()
        put = self._put([*infos, *self._infos_of(note_superseded(db, infos))], touched)
        self._put(self._infos_of(id for id in touched.followers if id not in put), Touched())
        graph_rows.lead(db, touched.entities, self._resolve)

    def _infos_of(self, ids: Iterable[str]) -> list[Info | None]:
        listed = list(ids)
        return outside_operations(lambda: [self._tree.GetInfo(id) for id in listed]) if listed else []

    def _put(self, infos: Iterable[Info | None], touched: Touched) -> set[str]:
        """Note and index infos, those that are there, and return the ids of those that may be found."""
        there = [info for info in infos if info]
        said = {info.id: (*self._passages_of(info),) for info in there}
        kept = [info for info in there if said[info.id] and not info.deleted]
        with self._index.transaction() as db:
            gone = [id for id in said.keys() - {info.id for info in kept} if remove_row(db, id, touched)]
            hidden = write_rows(self._index, kept, touched)
            self._index.remove([*gone, *hidden])
            units = [self._unit(db, info, said[info.id]) for info in kept if info.id not in hidden]
            if self._is_joined:  # by now all of them are noted: one may precede another
                before = find_questions_before(db, [unit.id for unit in units if unit.group])
                units = [unit._replace(context=before[unit.id]) if unit.id in before else unit for unit in units]
            self._index.put(units)
        return {unit.id for unit in units}

    def _unit(self, db: sqlite3.Connection, info: Info, said: Sequence[str]) -> Unit:
        group = info.source if self._is_joined else ""
        return Unit(info.id, (), "".join(said[:1]), (*said[1:], *self._former_texts(db, info)), group=group)

    def _former_texts(self, db: sqlite3.Connection, info: Info) -> list[str]:
        """Return the texts that an info replaced: the words of "I live in Paris" find "I moved to Rome"."""
        if not superseded_ids(info):
            return []
        olds = find_older(db, [info.id])[1 : _FORMER + 1]
        return [old.content[: texts.PASSAGE_LIMIT] for old in self._infos_of(olds) if old is not None]

    # -- superseding --

    def walk_back(self, ids: Iterable[str]) -> list[str]:
        """Return infos and all that they supersede, at however many removes, as they come."""
        given = list(ids)
        return self.read(lambda index: find_older(index.db, given))

    def successors(self, id: str) -> list[str]:
        """Return the infos that say they supersede an info, in the order of their ids; in a circle none does."""
        return self.read(lambda index: find_newer(index.db, id))

    def read(self, read: Callable[[Index], _T]) -> _T:
        """Return what `read` reads in the index and its tables, see `memory_rows` and `graph_rows`: all of one moment.

        It is called again where the index was damaged.
        """
        with self._lock:
            return read(self._index) if self._is_read else self._do(partial(self._look, read))

    def _look(self, read: Callable[[Index], _T]) -> _T:
        if self._taken is None:
            self._catch_up()
        with self._index.reading():
            self._is_read = True
            try:
                return read(self._index)
            finally:
                self._is_read = False

    # -- asking --

    @property
    def ranked_by(self) -> str:
        """By what: "words", or "words and" the name of a model."""
        meaning = self._index.meaning
        return "words" if meaning is None else f"words and {meaning.embedder.name}"

    def facts(self, ids: Collection[str] | None = None) -> dict[str, InfoFacts]:
        """Return the values for filters and scores of infos that may be found, by id; None: of all."""
        return self.read(lambda index: facts_of(index.db, ids))

    def count(self) -> int:
        """Return how many infos may be found."""
        sql = "select count(*) from memory where is_hidden = 0"
        return int(self.read(lambda index: index.db.execute(sql).fetchone()[0]))

    def same(self, text: str) -> list[str]:
        """Return the infos that may be found and may have a text, but for case, width, blanks and its full stop.

        The newest come first.

        Cost: a look at the log and at the index.
        """
        keys = [key_of_text(without_stop(text) + stop) for stop in ("", *STOPS)]
        with self._lock:
            follower = self._since or LogFollower(self._tree)
            if self._since is None:
                self.catch_up()
                follower.position = self._follower.position
            changes = follower.catch_up()
            if changes.from_nothing or self._since is None:
                self.catch_up()
                self._recent.clear()
                self._since = follower
            for info in changes.infos:
                self._recent.setdefault(key_of_text(info.content), {})[info.id] = None
            recent = [id for key in keys for id in reversed(self._recent.get(key, ()))]
        sql = "select id from memory where same in (?, ?, ?) and is_hidden = 0 order by num desc"
        known = self.read(lambda index: index.db.execute(sql, keys).fetchall())
        return list(dict.fromkeys([*recent, *(to_id(id) for (id,) in known)]))

    def choose(self, filters: Filters | None) -> Among | None:
        """Return which infos may be found; None is all.

        Cost: where many may, microseconds, and some ms for a search.
        """
        if filters is None or filters == Filters():
            return None
        if filters.kinds is not None:
            rows = self.read(lambda index: index.db.execute("select distinct kind from memory").fetchall())
            kinds = {*KINDS, *(kind for (kind,) in rows)}
            if unknown := [kind for kind in filters.kinds if kind not in kinds]:
                raise InvalidInputError(f"no kind is called {unknown[0]!r}; known: {', '.join(sorted(kinds))}")
        where, values = conditions(filters)
        sql, metadata = f"select id, more from memory where {where}", filters.metadata or {}

        def is_allowed(more: str | None) -> bool:
            own = json.loads(more)[0] if metadata and more else {}
            return all(key in own and own[key] == value for key, value in metadata.items())

        def choose(ids: Collection[str] | None) -> frozenset[str]:
            rows = self.read(lambda index: select_rows(index.db, sql, ids, values))
            return frozenset(id for id, more in rows if is_allowed(more))

        counted = f"select count(*) from (select 1 from memory where {where} limit {_FEW + 1})"
        is_large = self.read(lambda index: index.db.execute(counted, values).fetchone()[0]) > _FEW
        return choose if is_large else choose(None)

    def search(
        self, query: str, limit: int, among: Among | None = None, lent: Mapping[str, Mapping[str, float]] | None = None
    ) -> list[Hit]:
        """Return the infos that fit a question, best first; see `Index.search`. Meaning counts where `ask` read it."""
        return self.read(lambda index: index.search(query, limit, among=among, lent=lent))

    def ask(self, query: str) -> str:
        """Have a question embedded; return why words rank alone, or "". Not within `read`; see `Index.ask`."""
        return self._index.ask(query)

    def close(self) -> None:
        """Leave the index on disk; one that lags the log first loses texts that were deleted for good."""
        with self._lock:
            if self._path is not None and self._path.exists():
                with contextlib.suppress(LostIndexError, sqlite3.Error, OSError, ClosedError):  # the tree may be closed
                    if not self._follower.resume(_position(self._index.position)):
                        self._catch_up()
            self._index.close()


def _pages(infos: Iterable[Info]) -> Iterator[list[Info]]:
    page, size = list[Info](), 0
    for info in infos:
        page.append(info)
        size += len(info.content)
        if len(page) == _PAGE or size >= _PAGE_TEXT:
            yield page
            page, size = [], 0
    if page:
        yield page


def _position(said: str) -> Position:
    seq, _, rest = said.partition(" ")
    layout, _, operation_id = rest.partition(" ")
    return Position(int(seq) if seq.isdecimal() and layout == LAYOUT else 0, operation_id)


def _said(position: Position) -> str:
    return f"{position.seq} {LAYOUT} {position.operation_id}"
