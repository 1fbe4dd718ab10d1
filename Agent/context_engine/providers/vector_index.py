"""Vectors of one space, by text: what moves embeds nothing, and what is said twice is embedded once.

`SpaceVectors` is what the engine uses by itself, over `keyword_tree.embeddings.Vectors` (the extra `[embeddings]`).
"""

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.objects import EmbeddingVector
from ..core.ports import Embedder
from .word_index import WordHit, WordIndex

__all__ = ["EmbedderAdapter", "SpaceVectors", "forget_vectors"]


class EmbedderAdapter:
    """One of `keyword_tree.embeddings`' embedders as the engine's port, and the other way round.

    Args:
        embedder: With `embed_texts` (the port), or with `embed` and a `name`.
    """

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self.name = str(getattr(embedder, "name", "") or type(embedder).__name__)

    def embed_texts(self, texts: Sequence[str], model: str | None = None) -> list[EmbeddingVector]:
        """Return a vector for each text."""
        if hasattr(self._embedder, "embed_texts"):
            found: list[EmbeddingVector] = self._embedder.embed_texts(texts, model)
            return found
        return [EmbeddingVector(list(vector), None, self.name) for vector in self._embedder.embed(texts)]

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        """Return bare vectors."""
        return [vector.dense_vector for vector in self.embed_texts(texts)]


class SpaceVectors:
    """The vectors of one space.

    Args:
        embedder: The model, as the port or as one of `keyword_tree.embeddings`.
        path: The file; None keeps all in memory.

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

    def catch_up(self, limit: int | None = None) -> int:
        """Embed what waits, and return how many texts still do; a model that fails is left alone for a while."""
        self._vectors.catch_up(limit=limit)
        return self._vectors.waiting

    def forget(self) -> None:
        """Remove the vectors of texts that no node has."""
        self._vectors.forget()

    @property
    def failure(self) -> str:
        """What the model last failed with."""
        return self._vectors.failure

    def nearest(
        self,
        query: str,
        count: int,
        levels: Collection[int],
        words: WordIndex,
        target: str = "",
        categories: Collection[str] = (),
        since: float | None = None,
        until: float | None = None,
    ) -> list[WordHit]:
        """Return the rows of some levels that are nearest to a question; none where the model does not answer."""
        self.take(words)
        self._vectors.catch_up([query], limit=128)
        hits = [
            row._replace(score=round(similarity, 4))
            for similarity, text in self._vectors.nearest(query, 4 * count)
            for row in self._rows.get(text, ())
            if row.level in levels
            and (not target or row.uri == target or row.uri.startswith(f"{target}/"))
            and (not categories or row.category in categories)
            and (since is None or row.at >= since)
            and (until is None or row.at < until)
        ]
        return hits[:count]


class _AbsentEmbedder:
    """A model that is known by its name alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def embed_texts(self, texts: Sequence[str], model: str | None = None) -> list[EmbeddingVector]:
        """Answer nothing."""
        raise ConnectionError(f"the model {self.name!r} is not here")


def forget_vectors(path: Path, words: WordIndex) -> None:
    """Let a file of vectors hold none but those of some words' texts, whatever model made it; else it is deleted."""
    try:
        with path.open("rb") as file:
            model = json.loads(file.readline(1_000))["model"]
        vectors = SpaceVectors(_AbsentEmbedder(str(model)), path)
        vectors.take(words)
        vectors.forget()
    except (ImportError, ValueError, KeyError, TypeError, OSError):
        path.unlink(missing_ok=True)
