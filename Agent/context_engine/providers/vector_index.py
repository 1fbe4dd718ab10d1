"""Vectors of one space, by text: what moves embeds nothing, and what is said twice is embedded once.

`SpaceVectors` is what the engine uses by itself, over `finding.vectors` (the extra `[embeddings]`); `IndexedVectors`
are those in a `VectorIndex` of the caller's.
"""

import contextlib
import json
import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ...base.text import digest_of, mapping_of
from ..core.config import SESSIONS
from ..core.objects import Embedder, IndexRecord, VectorIndex
from .word_index import Filters, WordHit, WordIndex

_log = logging.getLogger(__name__)


class EmbedderAdapter:
    """What has `embed_texts` (the port), or `embed` already, as `finding.embedder` takes it."""

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
    """The vectors of one space that its index keeps beside the words: they come and go with the texts."""

    def take(self, words: WordIndex) -> None:
        """Hold the texts that the words hold, and no others."""
        self._words = words

    def catch_up(self) -> None:
        """Embed what waits; a model that fails is left alone for a while."""
        self._words.embed()

    def forget(self) -> None:
        """Do nothing: no node has a vector without its text."""

    def nearest(
        self, query: str, count: int, levels: Collection[int], words: WordIndex, filters: Filters
    ) -> list[WordHit]:
        """Return the rows of some levels that are nearest to a question; none where the model does not answer."""
        return words.nearest(query, count, levels, filters)


class IndexedVectors:
    """The vectors of one space in a `VectorIndex`; what it has of each node is noted in a file beside the words.

    A record's metadata has `vector` and `part`. What fails, the embedder or the index, is tried again at the next call.
    """

    def __init__(self, embedder: Embedder | Any, index: VectorIndex, path: Path | None, space: str) -> None:
        self._embedder, self._index, self.path, self._space = EmbedderAdapter(embedder), index, path, space
        self._rows: dict[str, list[tuple[WordHit, str]]] = {}  # by URI
        self._state: object = None
        self._known: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = mapping_of(json.loads(path.read_text(encoding="utf-8"))) if path is not None else {}

    def take(self, words: WordIndex) -> None:
        """Drop what nodes have no more, or have otherwise; embeds nothing."""
        if (state := (id(words), words.state())) != self._state:
            self._rows, self._state = {}, state
            for row, text in words.rows():
                self._rows.setdefault(row.uri, []).append((row, text))
        for uri in [uri for uri, digest in self._known.items() if digest != self._digest(uri)]:
            with contextlib.suppress(Exception):  # the port: it is tried again
                self._index.delete_by_uri(uri)
                del self._known[uri]

    def _digest(self, uri: str) -> str:
        rows = sorted((row.level, row.part, text) for row, text in self._rows.get(uri, ()))
        return digest_of(self._embedder.name, *(str(part) for row in rows for part in row), size=8) if rows else ""

    def catch_up(self) -> None:
        """Embed what waits, and let the index have it."""
        for uri in self._rows.keys() - self._known.keys():
            try:
                rows = self._rows[uri]
                vectors = self._embedder.embed([text for _, text in rows])
                self._index.upsert([self._record(*row, list(v)) for row, v in zip(rows, vectors, strict=True)])
            except Exception as error:  # the ports: words rank alone meanwhile
                _log.warning("vectors of %s wait: %s", uri, error)
                break
            self._known[uri] = self._digest(uri)
        self.forget()

    def forget(self) -> None:
        """Note what the index has."""
        if self.path is not None:
            self.path.write_text(json.dumps(self._known), encoding="utf-8")

    def _record(self, row: WordHit, text: str, vector: Sequence[float]) -> IndexRecord:
        id = digest_of(row.uri, str(row.level), *([str(row.part)] if row.part else []), size=8)
        metadata = {"vector": vector, "part": row.part, "at": row.at}
        parent, filters = row.uri.rpartition("/")[0], {**self._filters(), "category": row.category}
        kind = "session" if row.category == SESSIONS else "memory"
        made = id, row.uri, parent, kind, row.category, row.level, text, filters, metadata, row.part, row.sequence
        return IndexRecord(*made)

    def _filters(self) -> dict[str, Any]:
        _, _, account, kind, owner = self._space.split("/")
        return {"account": account, "owner_space": f"{kind.removesuffix('s')}:{owner}"}

    def nearest(
        self, query: str, count: int, levels: Collection[int], words: WordIndex, filters: Filters
    ) -> list[WordHit]:
        """Return the rows of some levels that are nearest to a question; none where a port does not answer."""
        self.take(words)
        self.catch_up()
        try:
            (vector,) = self._embedder.embed([query])
            near = [hit for level in levels for hit in self._index.search(vector, self._filters(), 4 * count, level)]
        except Exception as error:
            _log.warning("words rank alone: %s", error)
            return []
        rows = {(row.uri, row.level, row.part): row for held in self._rows.values() for row, _ in held}
        hits = [
            row._replace(score=round(hit.score, 4))
            for hit in sorted(near, key=lambda hit: -hit.score)
            if (row := rows.get((hit.uri, hit.level, int(hit.metadata.get("part") or 0)))) is not None
            and filters.lets(row.uri, row.category, row.at)
        ]
        return hits[:count]


AnyVectors: TypeAlias = SpaceVectors | IndexedVectors
