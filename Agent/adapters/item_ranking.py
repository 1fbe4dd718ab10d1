"""Rank items by their words, and by similarity where there is an embedder; what the adapters search with.

>>> texts = {"1": ["龙井是杭州的绿茶"], "2": ["The dog is called Oliver."]}
>>> ranking = ItemRanking(texts.__getitem__)
>>> for id in texts:
...     ranking.add(id)
>>> list(ranking.rank_by_words("杭州有什么茶", 5)), ranking.rank_by_similarity("dog", texts)
(['1'], None)

The index of many items is a file beside the tree, which the next process goes on with. The file is never the truth: it
says up to where in the tree's log it goes, and one that is lost, damaged or cannot be written is made again in memory.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..finding.embedder import Meaning, meaning_of
from ..finding.index import Index, LostIndexError, Unit
from ..keyword_tree import KeywordTree
from ..store.log_follower import InfoFollower, LogFollower, Position

__all__ = ["ItemRanking", "index_path"]

_PATIENCE_S = 60.0  # for an embedder that was given: what is put is to be found
KEPT_FROM = 2_000
"""Items from which on their index is a file: fewer are taken in within a moment."""

_LOGGER = logging.getLogger(__name__)
_UNUSABLE = (sqlite3.Error, OSError, LostIndexError)


def index_path(tree: KeywordTree, name: str) -> Path:
    """Return where an index of a tree is kept: beside its log, or in its cache folder where that is on a server."""
    return Path(tree.data_dir, "indexes", f"{name}.db")


class ItemRanking:
    """The texts of items, indexed. The words are read when they are first asked for.

    Args:
        texts_of: Returns the texts of an item that was added.
        embedder: An `Embedder`, for `rank_by_similarity`; None ranks as an index does by itself.
        tree: Whose infos the items are; None keeps the index in memory.
        follower: By which the caller follows them.
        name: Of the index's file.

    Cost: 0.1 ms for an item of 20 words; a query some milliseconds.
    """

    def __init__(
        self,
        texts_of: Callable[[str], list[str]],
        embedder: Any = None,
        *,
        tree: KeywordTree | None = None,
        follower: InfoFollower | None = None,
        name: str = "",
    ) -> None:
        self._texts_of = texts_of
        self._is_similarity = embedder is not None
        self._meaning = meaning_of(True if embedder is None else Meaning(embedder, _PATIENCE_S))
        self._lock = threading.Lock()
        self._tree, self._follower, self._name = tree, follower, name
        self._words: Index | None = None
        self._ids: dict[str, None] = {}
        self._changed: dict[str, None] = {}  # not in the index as they are by now

    def add(self, id: str) -> None:
        """Index an item that was not there."""
        self._ids[id] = self._changed[id] = None

    def remove(self, id: str) -> None:
        """Forget an item; one that is not there is no error."""
        self._ids.pop(id, None)
        self._changed[id] = None

    def clear(self) -> None:
        """Forget all items."""
        self.close()
        self._ids, self._changed = {}, {}

    def close(self) -> None:
        """Close the index's file; it is opened again when it is asked."""
        if self._words is not None:
            self._words.close()
        self._words = None

    def embed(self, questions: Iterable[str] = ()) -> None:
        """Have the model read the items that are new, and questions; where it fails, a log line says so, once."""
        if self._meaning is None:
            return
        with contextlib.suppress(*_UNUSABLE):
            index = self._up_to_date()
            for question in questions or [""]:
                index.ask(question)

    def rank_by_words(self, query: str, limit: int, among: Collection[str] | None = None) -> dict[str, float]:
        """Return items and how well they fit, from 0 to 1, best first; those that share no word are not among them."""
        if among is not None and len(among) >= len(self._ids) and all(id in among for id in self._ids):
            among = None  # nothing is excluded, and that is faster to rank
        chosen = None if among is None else frozenset(among)
        try:
            hits = self._up_to_date().search(query, limit, among=chosen, quotes=0)
        except _UNUSABLE as error:
            _LOGGER.warning("items are ranked in memory, since their index cannot be used: %s", error)
            self._words, self._changed = Index(meaning=self._meaning or False), dict(self._ids)
            hits = self._up_to_date().search(query, limit, among=chosen, quotes=0)
        return {hit.id: hit.score for hit in hits if hit.id in self._ids}  # others' newest are not known here yet

    def _up_to_date(self) -> Index:
        """Return the index, with what has changed since the last question."""
        with self._lock:
            if self._words is None:
                self._words = self._open()
            if self._changed:
                position = None if self._follower is None else self._follower.position
                self._words.remove([id for id in self._changed if id not in self._ids])
                self._words.put(map(self._unit, [id for id in self._changed if id in self._ids]))
                if position is not None:
                    self._words.position = f"{position.seq} {position.operation_id}"
                self._changed = {}
            return self._words

    def _open(self) -> Index:
        """Return the index as it is kept, and note what has changed since."""
        self._changed = dict(self._ids)
        if self._tree is None or (len(self._ids) < KEPT_FROM and self._meaning is None):
            return Index(meaning=self._meaning or False)
        index = Index(str(index_path(self._tree, self._name)), meaning=self._meaning or False)
        seq, _, operation_id = index.position.partition(" ")
        log = LogFollower(self._tree)
        if seq.isdecimal() and log.resume(Position(int(seq), operation_id)):
            changes = log.catch_up()
            if not changes.from_nothing:
                self._changed = {info.id: None for info in changes.infos}
                return index
        self._changed.update(dict.fromkeys(index.ids()))
        return index

    def _unit(self, id: str) -> Unit:
        return Unit(id, infos=self._texts_of(id))

    def rank_by_similarity(self, query: str, among: Collection[str]) -> Mapping[str, float] | None:
        """Return the cosine of each item's likest text; None where the query has no vector: `embed` it first."""
        index = self._up_to_date()
        compared = index.vectors.compare(query) if index.vectors is not None and self._is_similarity else None
        if compared is None:
            return None
        numbers = index.numbers(among)
        passages = index.passages_of(numbers.values())
        near = {id: max(compared.similarities(passages.get(number, [-1]))) for id, number in numbers.items()}
        return {id: one for id, one in near.items() if one > -1.0}
