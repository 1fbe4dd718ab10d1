"""Vectors in the tables: each text of a tree is embedded once for all machines."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Callable, Sequence

from ..finding.embedder import Embedder
from ..keyword_tree import StoreError
from .tables import PostgresRows

__all__ = ["SharedEmbedder"]


class SharedEmbedder:
    """An embedder that looks into a table first: for a text that any machine has embedded it returns that vector.

    Questions are not kept. Where the table cannot be read, the model is asked.

    Args:
        embedder: The model.
        rows: Where the table is.
        tree_id: Whose texts; what they are removed with.

    Cost: one round trip for the texts of a call, and another one where some are new.
    """

    def __init__(self, embedder: Embedder, rows: PostgresRows, tree_id: str) -> None:
        self.name = embedder.name
        self.embed_queries = getattr(embedder, "embed_queries", embedder.embed)
        self.reads: Callable[[str], bool] = getattr(embedder, "reads", lambda _: True)
        self.load: Callable[[], None] = getattr(embedder, "load", lambda: None)
        self._embedder, self._rows, self._tree_id = embedder, rows, tree_id
        self._has_failed = False  # then the table does not answer for the model: it is asked whether it is there

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return the vectors of texts; raises what the model raises."""
        digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        known: dict[int, bytes] = {}
        if not self._has_failed:
            with contextlib.suppress(StoreError):
                known = self._rows.vectors(self._tree_id, self.name, digests)
        vectors: dict[int, Sequence[float]] = {
            place: struct.unpack(f"<{len(packed) // 4}f", packed) for place, packed in known.items()
        }
        if left := [place for place in range(len(texts)) if place not in known]:
            self._has_failed = True
            new = dict(zip(left, self._embedder.embed([texts[place] for place in left]), strict=True))
            self._has_failed = False
            with contextlib.suppress(StoreError, struct.error, OverflowError):  # then each machine asks the model
                packed = {digests[place]: struct.pack(f"<{len(new[place])}f", *new[place]) for place in left}
                self._rows.add_vectors(self._tree_id, self.name, packed)
            vectors |= new
        return [vectors[place] for place in range(len(texts))]
