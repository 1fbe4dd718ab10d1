"""Vectors in the tables: each text of a tree is embedded once for all machines, and where pgvector is, searched there.

    kt_vector    all vectors, as their model gave them
    kt_near      of a tree and a model with more than memory should hold: the same, as pgvector has them

`search_vectors` fills the second one for a model, with its index, in one commit; who embeds a text afterwards adds its
vector to both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..finding.embedder import Embedder, digest_of
from ..keyword_tree import StoreError
from . import statements as sql
from .connections import Connection, Pool, run, run_together

__all__ = ["SharedEmbedder", "drop_vectors", "search_vectors"]

_BUILD_S = 86_400  # at most, for an index of vectors


class SharedEmbedder:
    """An embedder that looks into a table first: for a text that any machine has embedded it returns that vector.

    Questions are not kept. Where the table cannot be read, the model is asked.

    Args:
        pool: Where the tables are.
        tree_id: Whose texts; what they are removed with.
        in_memory: Vectors that a machine holds in memory; of more the nearest are asked for, where pgvector is.
        embedder: The model.

    Cost: one round trip for the texts of a call, and another one, with pgvector up to three, where some are new.
    """

    def __init__(self, pool: Pool, tree_id: str, in_memory: int, embedder: Embedder) -> None:
        self.name, self.in_memory = embedder.name, in_memory
        self.embed_queries = getattr(embedder, "embed_queries", embedder.embed)
        self.reads: Callable[[str], bool] = getattr(embedder, "reads", lambda _: True)
        self.load: Callable[[], None] = getattr(embedder, "load", lambda: None)
        self._embedder, self._pool, self._key = embedder, pool, (tree_id, embedder.name)
        self._has_failed = False  # then the table does not answer for the model: it is asked whether it is there

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Return the vectors of texts; raises what the model raises."""
        digests = [*map(digest_of, texts)]
        known: dict[int, bytes] = {}
        if not self._has_failed:
            with contextlib.suppress(StoreError):
                known = dict(self._pool.fetch(sql.VECTORS, (digests, *self._key), time.monotonic()))
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

    def _keep(self, packed: dict[bytes, bytes]) -> None:
        values = *self._key, list(packed), list(packed.values())
        self._pool.once(lambda connection: run(connection, sql.ADD_VECTORS, values))
        if self._is_searched():
            self._pool.once(partial(_add_near, key=self._key, packed=packed.items()))

    def _is_searched(self) -> bool:
        return self._pool.fetch(sql.IS_THERE, (_index_of(self._key),), time.monotonic()) == [(True,)]

    def nearest(self, vector: Sequence[float], count: int) -> list[bytes] | None:
        """Return the digests of the tree's texts that are nearest to a vector, nearest first.

        Some may be of texts that are not there any more. None where the server cannot tell: it has no pgvector, or
        `keep` was not called since there are more vectors than memory should hold.

        Raises:
            StoreError: the server does not answer.

        Cost: two round trips, and some milliseconds of the server.
        """
        if not self._is_searched():
            return None
        asked = sql.NEAREST.format(len(vector)), (*self._key, str([*vector]), count)
        widely = f"SET LOCAL hnsw.ef_search = {count}", ()

        def work(connection: Connection) -> list[bytes]:
            found = run_together(connection, ("BEGIN", ()), widely, asked, ("COMMIT", ()))
            return [bytes(digest) for (digest,) in found[2][1]]

        return self._pool.once(work) or None


def search_vectors(pool: Pool, tree_id: str, least: int) -> None:
    """Have the vectors of a tree searched, of models that have read more than `least` of its texts, where pgvector is.

    Cost: at first minutes for a million vectors, in which nothing is added to other trees' vectors that are searched.
    """
    has_near = pool.fetch(sql.IS_THERE, ("kt_near",)) == [(True,)]
    for model, size in pool.fetch(sql.MANY_VECTORS, (tree_id, least)) if has_near else ():
        pool.once(partial(_search, key=(tree_id, model), size=size), is_long=True)


def drop_vectors(connection: Connection, tree_id: str) -> None:
    """Remove the vectors of a tree, within a transaction: a machine that still has its own searches those."""
    if _is_there(connection, "kt_near"):
        models = run(connection, "SELECT DISTINCT model FROM kt_near WHERE tree_id = %s", (tree_id,)).fetchall()
        for (model,) in models:
            connection.execute(sql.DROP_NEAR.format(_index_of((tree_id, model))).encode())
    for table in filter(partial(_is_there, connection), ("kt_vector", "kt_near")):
        run(connection, f"DELETE FROM {table} WHERE tree_id = %s", (tree_id,))


def _is_there(connection: Connection, table: str) -> bool:
    return run(connection, sql.IS_THERE, (table,)).fetchall() == [(True,)]


def _search(connection: Connection, key: tuple[str, str], size: int) -> None:
    connection.seconds, last = _BUILD_S, b""
    limits = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '60s'"
    run_together(connection, ("BEGIN", ()), (limits, ()))
    while packed := run(connection, sql.NOT_NEAR, (*key, last, size)).fetchall():
        _add_near(connection, key, packed)
        last = packed[-1][0]
    run_together(connection, (sql.INDEX_NEAR.format(_index_of(key), size // 4), key), ("COMMIT", ()))


def _index_of(key: tuple[str, str]) -> str:
    return f"kt_near_{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:40]}"


def _add_near(connection: Connection, key: tuple[str, str], packed: Iterable[tuple[bytes, bytes]]) -> None:
    near = [(digest, said) for digest, vector in packed if (said := _near_of(vector))]
    run(connection, sql.ADD_NEAR, (*key, [digest for digest, _ in near], [said for _, said in near]))


def _near_of(packed: bytes) -> str | None:
    """Return a vector as pgvector reads it, of length 1; None where it has no direction."""
    vector = struct.unpack(f"<{len(packed) // 4}f", packed)
    length = math.hypot(*vector)
    return f"[{','.join(f'{each / length:.4g}' for each in vector)}]" if 0 < length < math.inf else None
