"""Vectors of one space, by text: what moves embeds nothing, and what is said twice is embedded once.

`SpaceVectors` is what the engine uses by itself, over `keyword_tree.embeddings.Vectors` (the extra `[embeddings]`).
"""

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..core.objects import Embedder
from .word_index import Filters, WordHit, WordIndex


class EmbedderAdapter:
    """What has `embed_texts` (the port), or `embed` already, as `keyword_tree.embeddings` takes it."""

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self.name = str(getattr(embedder, "name", "") or type(embedder).__name__)

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return a vector for each text."""
        if hasattr(self._embedder, "embed_texts"):
            return [vector.dense_vector for vector in self._embedder.embed_texts(texts)]
        found: Iterable[Sequence[float]] = self._embedder.embed(texts)
        return found


class SpaceVectors:
    """The vectors of one space in a file, None in memory, by a model as `EmbedderAdapter` takes it.

    Raises:
        ImportError: The extra `[embeddings]` is missing; the message says how to install it.
    """

    def __init__(self, embedder: Embedder | Any, path: Path | None) -> None:
        from ...embeddings.vectors import Vectors  # only who embeds needs numpy

        self._vectors = Vectors(EmbedderAdapter(embedder), path)
        self.path = path
        self._rows: dict[str, list[WordHit]] = {}  # by text
        self._state: object = None  # of the words that they are of

    def take(self, words: WordIndex) -> None:
        """Hold the texts that the words hold, and no others; embeds nothing. Cost: reads them, if they have changed."""
        state = id(words), words.state()
        if state == self._state:
            return
        rows: dict[str, list[WordHit]] = {}
        for row, text in words.rows():
            rows.setdefault(text, []).append(row)
        for text in rows.keys() - self._rows.keys():
            self._vectors.add(text)
        for text in self._rows.keys() - rows.keys():
            self._vectors.remove(text)
        self._rows, self._state = rows, state

    def catch_up(self) -> None:
        """Embed what waits; a model that fails is left alone for a while."""
        self._vectors.catch_up()

    def forget(self) -> None:
        """Remove the vectors of texts that no node has."""
        self._vectors.forget()

    def nearest(
        self, query: str, count: int, levels: Collection[int], words: WordIndex, filters: Filters
    ) -> list[WordHit]:
        """Return the rows of some levels that are nearest to a question; none where the model does not answer."""
        self.take(words)
        self._vectors.catch_up([query], limit=128)
        hits = [
            row._replace(score=round(similarity, 4))
            for similarity, text in self._vectors.nearest(query, 4 * count)
            for row in self._rows.get(text, ())
            if row.level in levels and filters.lets(row.uri, row.category, row.at)
        ]
        return hits[:count]


def forget_vectors(path: Path, words: WordIndex) -> None:
    """Let a file of vectors hold none but those of some words' texts, whatever model made it; else it is deleted."""
    try:
        with path.open("rb") as file:
            model = json.loads(file.readline(1_000))["model"]
        vectors = SpaceVectors(SimpleNamespace(name=str(model)), path)  # it embeds nothing here
        vectors.take(words)
        vectors.forget()
    except (ImportError, ValueError, KeyError, TypeError, OSError):
        path.unlink(missing_ok=True)
