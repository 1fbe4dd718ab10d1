"""Rank items by their words, and by similarity where there is an embedder; what the adapters search with.

>>> texts = {"1": ["龙井是杭州的绿茶"], "2": ["The dog is called Oliver."]}
>>> ranking = ItemRanking(texts.__getitem__)
>>> for id in texts:
...     ranking.add(id)
>>> list(ranking.rank_by_words("杭州有什么茶", 5)), ranking.rank_by_similarity("dog", texts)
(['1'], None)
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..finding.index import Index, Unit

if TYPE_CHECKING:
    from ..embeddings.vectors import Vectors

__all__ = ["ItemRanking"]


class ItemRanking:
    """What some items say, indexed. The words are read when they are first asked for.

    Args:
        texts_of: Returns the texts of an item that was added.
        embedder: An `Embedder` of `embeddings`; None ranks by words alone.
        path: Where to keep the vectors; None keeps them in memory.

    Cost: 0.1 ms for an item of 20 words; a query some milliseconds.
    """

    def __init__(self, texts_of: Callable[[str], list[str]], embedder: Any = None, path: Path | None = None) -> None:
        self._texts_of = texts_of
        self._vectors = None if embedder is None else _make_vectors(embedder, path)
        self._embedded: dict[str, list[str]] = {}  # id -> the texts that its vectors belong to
        self._words: Index | None = None
        self._ids: dict[str, None] = {}

    def add(self, id: str) -> None:
        """Index an item that was not there."""
        self._ids[id] = None
        if self._words is not None:
            self._words.put([self._unit(id)])
        if self._vectors is not None:
            self._embedded[id] = self._texts_of(id)
            for text in self._embedded[id]:
                self._vectors.add(text)

    def remove(self, id: str) -> None:
        """Forget an item; one that is not there is no error."""
        self._ids.pop(id, None)
        if self._words is not None:
            self._words.remove([id])
        for text in self._embedded.pop(id, ()):
            if self._vectors is not None:
                self._vectors.remove(text)

    def clear(self) -> None:
        """Forget all items."""
        for id in list(self._embedded):
            self.remove(id)
        self._ids, self._words = {}, None

    def embed(self, questions: Iterable[str] = ()) -> None:
        """Ask the embedder for questions, and for the items that wait; where it fails, a log line says so, once."""
        if self._vectors is not None:
            self._vectors.catch_up(questions)

    def rank_by_words(self, query: str, limit: int, among: Collection[str] | None = None) -> dict[str, float]:
        """Return items and how well they fit, from 0 to 1, best first; those that share no word are not among them."""
        if self._words is None:
            self._words = Index()
            self._words.put(map(self._unit, self._ids))
        if among is not None and len(among) >= len(self._ids) and all(id in among for id in self._ids):
            among = None  # nothing is excluded, and that is faster to rank
        chosen = None if among is None else frozenset(among)
        hits = self._words.search(query, limit, among=chosen, quotes=0)
        return {hit.id: hit.score for hit in hits}

    def _unit(self, id: str) -> Unit:
        return Unit(id, infos=self._texts_of(id))

    def rank_by_similarity(self, query: str, among: Collection[str]) -> Mapping[str, float] | None:
        """Return the cosine of each item's likest text; None where the query has no vector: `embed` it first."""
        if self._vectors is None or self._vectors.vector_of(query) is None:
            return None
        texts = {id: self._embedded[id] for id in among if self._embedded.get(id)}
        flat = list(dict.fromkeys(text for each in texts.values() for text in each))
        near = dict(zip(flat, self._vectors.similarities(query, flat), strict=True))
        return {id: max(near[text] for text in each) for id, each in texts.items()}


def _make_vectors(embedder: Any, path: Path | None) -> "Vectors":
    from ..embeddings.vectors import Vectors  # needs numpy, and nothing else here does

    return Vectors(embedder, path)
