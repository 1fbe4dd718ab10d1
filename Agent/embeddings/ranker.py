"""Find memories by similarity of meaning, behind the port of `keyword_tree.memory.retriever`.

>>> import tempfile
>>> from keyword_tree.embeddings.embedder import HashingEmbedder
>>> from keyword_tree.embeddings.scripts import PROBES
>>> from keyword_tree import KeywordTree
>>> from keyword_tree.memory.retriever import MemoryRetriever
>>> english = zip(PROBES["LATIN"][::2], PROBES["LATIN"][1::2])
>>> ranker = EmbeddingRanker(HashingEmbedder([("car", "automobile"), *english]), patience_s=60.0)
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     _ = [tree.CreateInfo(text) for text in ("a red car", "a green tree")]
...     MemoryRetriever(tree, ranker=ranker).retrieve("automobile", 1)[0].info.content
'a red car'
"""

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from statistics import fmean

from .embedder import Embedder, check_embedder, renew_after_fork
from .recall import Knowing
from .scripts import everyday_words
from .vectors import Vectors, path_for
from .worker import PATIENCE_S, Worker, check_patience

__all__ = ["EmbeddingRanker"]

_NEAREST = 200
_NEXT = 5  # texts after the nearest: where they are as near, as in a long conversation, its nearness says little
_REST = 0.01  # what nearness beyond the average counts: it orders those that lead nothing
_LEAST_TRUST = 0.5  # the nearest gains all that similarity can bring, however far it is: by such a model that is chance


class EmbeddingRanker:
    """Memories by how near the nearest of their passages is to a question; any number of threads may use it.

    Args:
        embedder: Who turns texts into vectors.
        folder: The store's, where they are kept (`indexes/`); "" keeps them in memory.
        trust: As in `EmbeddingTree`; below 0.5 a script is left to the words.
        patience_s: As in `EmbeddingTree`.

    Raises:
        InvalidInputError: `embedder` is none, or `trust` or `patience_s` is not what it should be.
    """

    def __init__(
        self,
        embedder: Embedder,
        folder: str | os.PathLike[str] = "",
        trust: float | Mapping[str, float] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        check_embedder(embedder)
        check_patience(patience_s)
        self.vectors = Vectors(embedder, path_for(folder, "infos", embedder.name) if folder else None)
        self._worker, self._patience_s = Worker(self.vectors, sys.maxsize), patience_s
        self._knowing = Knowing(self.vectors, trust, _LEAST_TRUST)
        self._texts_of: dict[str, list[str]] = {}
        self._ids_of: dict[str, dict[str, None]] = {}
        self._renew_locks()
        renew_after_fork(self)

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()

    @property
    def trust(self) -> dict[str, float]:
        """Script → how far the model is trusted there, 0 to 1, of the scripts that came up so far."""
        return self._knowing.by_script

    @property
    def note(self) -> str:
        """Why words rank alone, or ""."""
        return self.vectors.note

    def Add(self, id: str, texts: Sequence[tuple[str, float]]) -> None:  # noqa: N802  the port's names
        """Index an info by its passages, in the place of what was there; their weights make no difference here."""
        with self._lock:
            self.Remove(id)
            self._texts_of[id] = list(dict.fromkeys(text for text, _ in texts))
            for text in self._texts_of[id]:
                self._ids_of.setdefault(text, {})[id] = None
                self.vectors.add(text)

    def Remove(self, id: str) -> None:  # noqa: N802
        """Forget an info; one that is not there is no error."""
        with self._lock:
            for text in self._texts_of.pop(id, ()):
                self.vectors.remove(text)
                del self._ids_of[text][id]
                if not self._ids_of[text]:
                    del self._ids_of[text]

    def catch_up(self) -> int:
        """Embed all that waits, and return how many passages still do, as `EmbeddingTree.catch_up`."""
        return self._worker.catch_up()

    def close(self) -> None:
        """Ask the model no more, and write no more. Cost: waits for a call that is under way, if it is in time."""
        self._worker.close(self._patience_s)

    def Rank(self, query: str) -> list[tuple[float, str]]:  # noqa: N802
        """Return (nearness, id), best first; nothing where the model fails or does not know the query's script.

        Nearness is 0 for what is as near as the five texts after the nearest are on average, 1 for what says the query
        itself.

        Cost: waits for the query's vector, `patience_s` at most, and an eighth of that for what waits; all of it is
        embedded behind the answer, see `worker`.
        """
        self._worker.ask([query, *everyday_words(query)], self._patience_s)
        if self._knowing.trust(query) < _LEAST_TRUST:
            return []
        with self._lock:
            found: dict[str, float] = {}
            nearest = self.vectors.nearest(query, _NEAREST)
            next_ones = [similarity for similarity, _ in nearest[1 : 1 + _NEXT]]
            usual, average = fmean(next_ones) if next_ones else 0.0, self.vectors.average(query)
            for similarity, text in nearest:
                lead, rest = ((similarity - base) / max(1e-4, 1.0 - base) for base in (usual, average))
                for id in self._ids_of.get(text, ()):
                    found.setdefault(id, max(lead, _REST * rest))
        return [(nearness, id) for id, nearness in found.items()]
