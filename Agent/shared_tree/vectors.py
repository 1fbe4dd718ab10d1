"""Vectors in the tables: each text of a tree is embedded once for all machines, and where pgvector is, searched there.

    kt_vector    all vectors, as their model gave them
    kt_near      of a tree and a model with more than memory should hold: the same, as pgvector has them

`search_vectors` fills the second one for a model, with its index, in one commit; who embeds a text afterwards adds its
vector to both. With it goes the bound, by which all machines know that the server searches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from ..finding.embedder import Embedder, digest_of
from ..keyword_tree import StoreError
from . import statements as sql
from .connections import Connection, Pool, run, run_together

__all__ = ["SharedEmbedder", "drop_vectors", "search_vectors"]

_BUILD_S = 86_400  # at most, for an index of vectors
_LOOK_S = 60  # between two looks whether the server searches
_LOGGER = logging.getLogger(__name__)


class SharedEmbedder:
    """An embedder that looks into a table first: for a text that any machine has embedded it returns that vector.

    Questions are not kept. Where the table cannot be read, the model is asked.

    Args:
        pool: Where the tables are.
        tree_id: Whose texts; what they are removed with.
        embedder: The model.

    Cost: one round trip for the texts of a call, and another one, with pgvector two, where some are new.
    """

    def __init__(self, pool: Pool, tree_id: str, embedder: Embedder) -> None:
        self.name = embedder.name
        self.embed_queries = getattr(embedder, "embed_queries", embedder.embed)
        self.reads: Callable[[str], bool] = getattr(embedder, "reads", lambda _: True)
        self.load: Callable[[], None] = getattr(embedder, "load", lambda: None)
        self._embedder, self._pool, self._key = embedder, pool, (tree_id, embedder.name)
        self._has_failed = False  # then the table does not answer for the model: it is asked whether it is there
        self._bound, self._looked_at = b"", -math.inf

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return the vectors of texts; raises what the model raises."""
        digests = [*map(digest_of, texts)]
        known = {} if self._has_failed else self._find(digests)
        vectors: dict[int, Sequence[float]] = {
            place: struct.unpack(f"<{len(packed) // 4}f", packed) for place, packed in known.items()
        }
        if left := [place for place in range(len(texts)) if place not in known]:
            self._has_failed = True
            new = dict(zip(left, self._embedder.embed([texts[place] for place in left]), strict=True))
            self._has_failed = False
            with contextlib.suppress(StoreError, struct.error, OverflowError):  # then each machine asks the model
                self._keep({digests[place]: struct.pack(f"<{len(new[place])}f", *new[place]) for place in left})
            vectors |= new
        return [vectors[place] for place in range(len(texts))]

    def _find(self, digests: list[bytes]) -> dict[int, bytes]:
        """Return the vectors that can be read, by their places; takes down the bound."""
        with contextlib.suppress(StoreError):
            known = dict[int, bytes](self._pool.fetch(sql.VECTORS, ([*digests, b""], *self._key), time.monotonic()))
            self._bound = known.pop(len(digests), b"")
            return known
        return {}

    def _keep(self, packed: dict[bytes, bytes]) -> None:
        self._pool.once(partial(run, statement=sql.ADD_VECTORS, values=(*self._key, [*packed], [*packed.values()])))
        if self._bound:
            self._pool.once(lambda connection: _seeing(connection, _adding(self._key, packed.items())))

    def nearest(self, vector: Sequence[float], count: int, held: int) -> list[bytes] | None:
        """Return the digests of the tree's texts that are nearest to a vector, nearest first.

        Some may be of texts that are not there any more. None where the server has no vectors, or memory is to hold
        as many as the index has, `held`: the bound is looked for once in a minute.

        Raises:
            StoreError: the server does not answer.

        Cost: a round trip, and some milliseconds of the server.
        """
        if time.monotonic() > self._looked_at + _LOOK_S:
            self._looked_at = time.monotonic()
            self._find([])
        if held <= int(self._bound or held):
            return None
        asked = sql.NEAREST.format(len(vector)), (*self._key, str([*vector]), count)
        found = self._pool.once(lambda own: _seeing(own, (f"SET LOCAL hnsw.ef_search = {count}", ()), asked))
        return [bytes(digest) for (digest,) in found] or None


def _seeing(connection: Connection, *statements: tuple[str, Sequence[Any]]) -> list[Any]:
    """Run statements in one transaction that finds pgvector in whatever schema; return what the last one finds."""
    return run_together(connection, ("BEGIN", ()), (sql.SEE_PGVECTOR, ()), *statements, ("COMMIT", ()))[-2][1]


def search_vectors(pool: Pool, tree_id: str, least: int) -> None:
    """Have the vectors of a tree searched, of models that have read more than `least` of its texts, where pgvector is.

    Where it cannot be, the log of warnings says why.

    Cost: at first minutes for a million vectors, in which nothing is added to other trees' vectors that are searched.
    """
    pool.once(partial(run, statement=sql.BOUND, values=(str(least), tree_id)))
    for model, size in pool.fetch(sql.MANY_VECTORS, (tree_id, least)):
        try:
            for _ in range(2):  # what was embedded during the first is added by the second
                pool.once(partial(_search, key=(tree_id, model), size=size, least=least), is_long=True)
        except StoreError as problem:
            _LOGGER.warning("pgvector 0.7 does not search all of %s's vectors, over %s: %s", tree_id, least, problem)


def drop_vectors(connection: Connection, tree_id: str) -> None:
    """Remove the vectors of a tree, within a transaction: a machine that still has its own searches those."""
    run(connection, "DELETE FROM kt_vector WHERE tree_id = %s", (tree_id,))
    if run(connection, sql.IS_SEARCHED, ()).fetchall() == [(True,)]:
        for (model,) in run(connection, "SELECT DISTINCT model FROM kt_near WHERE tree_id = %s", (tree_id,)).fetchall():
            connection.execute(sql.DROP_NEAR.format(_index_of((tree_id, model))).encode())
        run(connection, "DELETE FROM kt_near WHERE tree_id = %s", (tree_id,))


def _search(connection: Connection, key: tuple[str, str], size: int, least: int) -> None:
    connection.seconds = _BUILD_S
    run_together(connection, ("BEGIN", ()), (sql.BUILD_ALONE, ()), (sql.SEE_PGVECTOR, ()), (sql.NEAR_SCHEMA, ()))
    left = [digest for (digest,) in run(connection, sql.NOT_NEAR, (*key, size, *key))]
    for start in range(0, len(left), 1000):
        run_together(connection, _adding(key, run(connection, sql.SOME_VECTORS, (*key, left[start : start + 1000]))))
    run(connection, sql.ADD_VECTORS, (*key, [b""], [str(least).encode()]))
    run_together(connection, (sql.INDEX_NEAR.format(_index_of(key), size // 4), key), ("COMMIT", ()))


def _index_of(key: tuple[str, str]) -> str:
    return f"kt_near_{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:40]}"


def _adding(key: tuple[str, str], packed: Iterable[tuple[bytes, bytes]]) -> tuple[str, Sequence[Any]]:
    near = [(digest, said) for digest, vector in packed if (said := _near_of(vector))]
    return sql.ADD_NEAR, (*key, [digest for digest, _ in near], [said for _, said in near])


def _near_of(packed: bytes) -> str | None:
    """Return a vector as pgvector reads it, of length 1; None where it has no direction."""
    vector = struct.unpack(f"<{len(packed) // 4}f", packed)
    length = math.hypot(*vector)
    return f"[{','.join(f'{each / length:.4g}' for each in vector)}]" if 0 < length < math.inf else None
