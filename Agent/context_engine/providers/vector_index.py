"""Vectors of one space, by text: what moves embeds nothing, and what is said twice is embedded once.

`SpaceVectors` is what the engine uses by itself, over `keyword_tree.embeddings.Vectors` (the extra `[embeddings]`).
`LocalVectorIndex` is the same behind the port `VectorIndex`, in memory.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import AccessDeniedError
from ..core.objects import EmbeddingVector, IndexRecord, VectorHit
from ..core.ports import Embedder
from .word_index import WordHit, WordIndex

__all__ = ["EmbedderAdapter", "LocalVectorIndex", "SpaceVectors", "forget_vectors"]


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
        self._held: dict[str, int] = {}

    def take(self, words: WordIndex) -> None:
        """Hold the texts that the words hold, and no others. Cost: reads them; embeds nothing."""
        wanted: dict[str, int] = {}
        for _, text in words.texts():
            wanted[text] = 1
        for text in wanted.keys() - self._held.keys():
            self._vectors.add(text)
        for text in self._held.keys() - wanted.keys():
            self._vectors.remove(text)
        self._held = wanted

    def catch_up(self, limit: int | None = None) -> int:
        """Embed what waits, and return how many texts still do; a model that fails is left alone for a while."""
        self._vectors.catch_up(limit=limit)
        return self._vectors.waiting

    def forget(self) -> None:
        """Keep no vector of a text that nobody holds."""
        self._vectors.forget()

    @property
    def failure(self) -> str:
        """What the model last failed with."""
        return self._vectors.failure

    def nearest(
        self,
        query: str,
        count: int,
        shelf: str,
        words: WordIndex,
        target: str = "",
        categories: Collection[str] = (),
        since: float | None = None,
        until: float | None = None,
    ) -> list[WordHit]:
        """Return the rows of a shelf that are nearest to a question; none where the model does not answer."""
        self.take(words)
        self._vectors.catch_up([query], limit=128)
        near = self._vectors.nearest(query, 4 * count)
        rows = words.rows_of_texts([text for _, text in near], shelf)
        hits = [
            WordHit(uri, round(likeness, 4), level, part, category, at, said, text, (), False)
            for likeness, text in near
            for uri, level, part, category, at, said in rows.get(text, ())
            if (not target or uri == target or uri.startswith(f"{target}/"))
            and (not categories or category in categories)
            and (since is None or at >= since)
            and (until is None or at < until)
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


class LocalVectorIndex:
    """The port `VectorIndex` in memory: exact, for tests and for small stores."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._records: dict[str, tuple[IndexRecord, Sequence[float]]] = {}
        self._gone: dict[str, int] = {}

    def upsert(self, records: Sequence[IndexRecord]) -> None:
        """Take records in; one with a lower `sequence` than what is there, or than its deletion, changes nothing."""
        fresh = [record for record in records if record.sequence >= self._sequence_of(record)]
        vectors = self._embedder.embed_texts([record.text for record in fresh]) if fresh else []
        for record, vector in zip(fresh, vectors, strict=True):
            self._records[record.id] = (record, vector.dense_vector)

    def _sequence_of(self, record: IndexRecord) -> int:
        held = self._records.get(record.id)
        return max(held[0].sequence if held else 0, self._gone.get(record.uri, 0))

    def delete_by_uri(self, uri: str) -> None:
        """Drop what a node has."""
        for id, (record, _) in list(self._records.items()):
            if record.uri == uri:
                self._gone[uri] = max(self._gone.get(uri, 0), record.sequence)
                del self._records[id]

    def move_uri(self, from_uri: str, to_uri: str) -> None:
        """Let all that is beneath one URI be beneath another."""
        for id, (record, vector) in list(self._records.items()):
            if record.uri == from_uri or record.uri.startswith(f"{from_uri}/"):
                uri = to_uri + record.uri[len(from_uri) :]
                moved = IndexRecord(**{**vars(record), "uri": uri, "parent_uri": uri.rpartition("/")[0]})
                self._records[id] = (moved, vector)

    def search(
        self, query_vector: Sequence[float], filters: Mapping[str, Any], top_k: int, level: int = 0
    ) -> list[VectorHit]:
        """Return what is nearest, best first.

        Raises:
            AccessDeniedError: `filters` name no account and owner space: nothing is searched across tenants.
        """
        if not filters.get("account") or not filters.get("owner_space"):
            raise AccessDeniedError(f"a vector search needs account and owner_space, not {dict(filters)!r}")
        hits = [
            VectorHit(
                record.id, record.uri, _cosine(query_vector, vector), record.level, record.filters, record.metadata
            )
            for record, vector in self._records.values()
            if record.level == level and all(record.filters.get(name) == value for name, value in filters.items())
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))[:top_k]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    size = (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
    return dot / size if size else 0.0
