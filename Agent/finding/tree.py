"""The ranking of a tree's keywords: a `Ranker` over an `Index`, which follows the tree's changes when it is asked.

>>> import tempfile
>>> from keyword_tree.finding.embedder import HashingEmbedder
>>> embedder = HashingEmbedder([("car", "automobile")])
>>> with tempfile.TemporaryDirectory() as folder, EmbeddingTree(folder, embedder) as tree:
...     _ = [tree.CreateKeyword(name) for name in ("car", "ship", "train")]
...     [node.name for node, confidence in tree.RankCandidates("automobile", 1)]
['car']

The index of a large tree is a file in `indexes/` beside the tree's own. That of a small tree, of one without a folder,
and of one as it was (`KeywordTree.At`) is in memory. A write does not call it: the index keeps the position of the log
up to which it follows, and the next question takes in, all or nothing, what the log says has changed since, unless
another process has done so already: while one does, others rank by what was there before. The file is never the truth:
a lost or damaged one is made again, and where it cannot be written (a full disk, a folder that is read-only) the index
is made in memory, and `Fits.note` says so. Where meaning is compared, it is always a file, since vectors cost more than
words.
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

from ..base.checks import shorten
from ..keyword_tree import Evidence, Fits, InvalidInputError, KeywordTexts, KeywordTree, StoreError, TreeView
from . import evidence, placing
from .embedder import Embedder, Meaning, meaning_of
from .index import Index, LostIndexError, MovedError, Unit
from .thesaurus import Thesaurus, default

__all__ = ["EmbeddingTree", "TreeRanker"]

_LOGGER = logging.getLogger(__name__)
_KEPT_FROM = 2_000  # keywords, or infos, from which on the index is a file: fewer are taken in within a moment
_RANKED = 200  # keywords that are ranked for a question, at least
_BEGINNING = 80  # characters of an info by which it is known
_PIECE = 10_000  # keywords, or infos of them, that are taken in at a time
_BUSY, _LOCKED = 5, 6  # of SQLite: another process writes


class TreeRanker:
    """Ranks the keywords of a tree by words, and by meaning; see `Ranker`.

    Threads may share one; a forked child makes one of its own.

    Args:
        view: The tree.
        thesaurus: Of near words, see `Index`; `functools.partial(TreeRanker, thesaurus=None)` makes rankers without.
        meaning: See `Index`.
    """

    def __init__(
        self, view: TreeView, thesaurus: Thesaurus | bool | None = True, meaning: Meaning | Embedder | bool = True
    ) -> None:
        self._view, self._thesaurus = view, thesaurus
        self.meaning = meaning_of(meaning, view)
        has_file = view.data_dir is not None and not view.is_past
        self._path = os.path.join(str(view.data_dir), "indexes", "keywords.db") if has_file else None
        self.index = self._open(self._path if self._path and os.path.isfile(self._path) else None)
        self._lock: Any = threading.RLock()  # Any: typeshed does not know `_is_owned`
        self._follows = False  # False before the first question, and where it is unknown how far it came
        self._position = ""  # of the index, where this ranker has followed
        self._seen = ""  # of the tree, of which the index has everything
        self._note = default()[1] if thesaurus is True else ""  # why the ranking is less than usual

    def Fit(
        self, query: str, more: str = "", *, is_placing: bool = False, count: int = 50, among: Collection[str] = ()
    ) -> Fits:
        """Return the keywords that fit a text, or the parents that a new keyword could have; see `Ranker.Fit`."""
        note = ""
        if self.meaning and not is_placing:
            self.follow()  # the model reads new texts before the ranking, which does not wait for it under the lock
            note = self.index.ask(query)
        with self._alone():
            note = self._follow() or note
            try:
                return self._rank(query, more, is_placing, count, among)._replace(note=note)
            except LostIndexError:  # damaged where nothing was written: once more, after all is taken in again
                self._follows = False
                note = self._follow() or note
                return self._rank(query, more, is_placing, count, among)._replace(note=note)

    @property
    def vectors(self) -> Any:
        """The comparison by meaning, see `vectors.Vectors`; None where words rank alone."""
        return self.index.vectors

    def follow(self) -> None:
        """Take in the changes."""
        with self._alone():
            self._follow()

    def _open(self, path: str | None) -> Index:
        return Index(path, thesaurus=self._thesaurus, meaning=self.meaning or False)

    def Close(self) -> None:
        """Take in the writes since the last question, if one was asked, and close the file.

        The file then holds nothing that another process has removed from the tree in between.
        """
        if self._position and self.index.path is not None and not self._lock._is_owned():
            with contextlib.suppress(Exception), self._alone():  # nothing is lost: the next opening follows
                self._follow()
        self.index.close()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self._lock._is_owned():
            raise StoreError("a signal handler cannot rank while its own thread does")
        with self._lock:
            yield

    # -- ranking --------------------------------------------------------------

    def _rank(self, query: str, more: str, is_placing: bool, count: int, among: Collection[str]) -> Fits:
        with self.index.reading():
            if is_placing:
                return placing.fit(self.index, query, more, count, among)
            ranked = self.index.rank(query, max(_RANKED, count), more=more, besides=among)
            ids = [*ranked.scores]
            wanted = {*ids[:count], *among}
            words = evidence.Words(ranked.asked.quoted())
            excerpts = evidence.quote(self.index, words, [each for each in ranked.found if each.id in wanted])
            unsaid = {at: id for id, at in ranked.nearest.items() if at & 1 and id in wanted and not excerpts.get(id)}
            meant = {unsaid[at]: text[:_BEGINNING] for at, (_, text) in self.index.read(unsaid).items()}
            judgements = {
                id: Evidence(one, excerpts.get(id, ""), meant.get(id, ""))
                for id, one in ranked.scores.items()
                if id in wanted
            }
            return Fits(ids, judgements, words=words)

    # -- following ------------------------------------------------------------

    def _follow(self) -> str:
        """Take in the changes; return why some of them are not ranked, or ""."""
        try:
            try:
                self._take_in_changes()
            except LostIndexError as error:
                _LOGGER.warning("the index of keywords is made again: %s", error)
                self._follows = False
                self._take_in_changes()
        except (sqlite3.OperationalError, OSError) as error:
            self._follows = False
            if isinstance(error, StoreError):  # of the tree
                raise
            code = getattr(error, "sqlite_errorcode", 0) & 255
            if code in (_BUSY, _LOCKED) and self.index.path is not None and self._has_anything():
                return f"the newest changes are not ranked yet: {error}"
            if self.index.path is None:
                raise
            _LOGGER.warning("keywords are ranked in memory, since their index cannot be written: %s", error)
            self._path = None
            self._note = f"ranked in memory, since the index cannot be written: {error}"
            self.index = self._open(None)
            self._take_in_changes()
        except BaseException:  # it is unknown how far it came
            self._follows = False
            raise
        return self._note

    def _has_anything(self) -> bool:
        with contextlib.suppress(sqlite3.Error, OSError, LostIndexError), self.index.reading():
            return bool(self.index.counts())
        return False

    def _take_in_changes(self) -> None:
        is_first, self._follows = not self._follows, True
        if self.index.path != self._path and self._is_large(is_first):
            self.index, is_first = self._open(self._path), True
        position, stored = self._view.Position(), self.index.position
        if not is_first and (stored, position) == (self._position, self._seen):
            return
        if stored == position and (stored or not is_first):
            changed: set[str] | None = set()
        elif not is_first and _number(stored) > _number(position) >= _number(self._seen):
            return  # another process has taken in more than this one has read
        else:
            changed = self._view.ChangedSince(stored) if stored else None
        if changed != set():  # else a file that is read-only serves, too
            try:
                stored = self._take_in_since(stored, changed, position)
            except MovedError:
                self._follows = not is_first
                self._take_in_changes()
                return
        self._position, self._seen = stored, position

    def _take_in_since(self, stored: str, changed: set[str] | None, position: str) -> str:
        """Take in what has changed since the index was stored, None is everything; return the new position."""
        with self.index.step(stored):
            if changed is None:
                everything = self._view.Ids()
                self.index.remove(self.index.ids() - set(everything))
                self._take_in(everything)
            else:
                self._take_in(list(changed))
            if position:
                self.index.position = position
        if changed is None:
            self.index.compact()
        return position or stored

    def _is_large(self, is_first: bool) -> bool:
        """Whether an index in memory has, or will have, more than is taken in within a moment."""
        if self.meaning is not None:
            return True
        if not is_first:
            with self.index.reading():
                counts = self.index.counts()
            return counts.get("units", 0) + counts.get("passages", 0) > 2 * _KEPT_FROM
        ids = self._view.Ids()
        return len(ids) > _KEPT_FROM or sum(len(each.info_ids) for each in self._view.Read(ids)) > _KEPT_FROM

    def _take_in(self, ids: list[str]) -> None:
        ids = [id for id in ids if id != "root"]
        for start in range(0, len(ids), _PIECE):
            piece = ids[start : start + _PIECE]
            found = self._view.Read(piece)
            self.index.remove(set(piece) - {each.id for each in found})
            self.index.put(self._units(found))

    def _units(self, found: Iterable[KeywordTexts]) -> Iterator[Unit]:
        for part in _parts(found):
            contents = dict(self._view.Contents({id: None for each in part for id in each.info_ids}))
            yield from (_unit(each, contents) for each in part)


def _number(position: str) -> int:
    """Return the sequence number in a position of the log."""
    first = position.partition(" ")[0]
    return int(first) if first.isdecimal() else 0


def _parts(found: Iterable[KeywordTexts]) -> Iterator[list[KeywordTexts]]:
    """Yield keywords a few at a time, such that not too many infos are in memory."""
    part, infos = list[KeywordTexts](), 0
    for each in found:
        if part and infos + len(each.info_ids) > _PIECE:
            yield part
            part, infos = [], 0
        part.append(each)
        infos += len(each.info_ids)
    if part:
        yield part


def _unit(keyword: KeywordTexts, contents: dict[str, str]) -> Unit:
    text = "\n".join(filter(None, [keyword.description, *keyword.queries]))
    infos = [contents[id] for id in keyword.info_ids if id in contents]
    context = None if keyword.parent_id in (None, "root") else keyword.parent_id
    return Unit(keyword.id, keyword.names, text, infos, context)


class EmbeddingTree(KeywordTree):
    """A `KeywordTree` that ranks by words, and by the vectors of a given model.

    Args:
        data_dir: As in `KeywordTree`. The vectors are kept in its folder `indexes`, and may be deleted at any time.
        embedder: Turns texts into vectors.
        patience_s: See `Meaning`.
        options: As in `KeywordTree`, but for `ranker`.

    Raises:
        InvalidInputError: As `Meaning` and `KeywordTree` do, and where `ranker` is given.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str], embedder: Embedder, *, patience_s: float = 2.0, **options: Any
    ) -> None:
        if "ranker" in options:
            message = "ranker cannot be chosen here, EmbeddingTree brings its own (KeywordTree takes any)"
            raise InvalidInputError(f"{message}: {shorten(options['ranker'])}")
        make = partial(TreeRanker, meaning=Meaning(embedder, patience_s))
        super().__init__(data_dir, ranker=make, **options)  # type: ignore[arg-type]  # a path is as good

    @property
    def recall(self) -> TreeRanker:
        """The ranking; it reads the keywords when it is first asked."""
        self._engine.CheckOpen()  # after a fork it is made again
        ranker: TreeRanker = self._ranker
        return ranker

    def catch_up(self, limit: int | None = None) -> int:
        """Embed texts without a vector, and return how many are left; waits for the model without limit.

        Args:
            limit: The number of texts, at most; None is all.

        Worth a call after an import; otherwise searches bring it along. A text that the model refuses is not counted,
        but in `recall.vectors.refused`.
        """
        self.Refresh()
        self.recall.follow()
        left: int = self.recall.vectors.catch_up(limit)
        return left
