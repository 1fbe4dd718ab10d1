"""Vectors of texts: in memory to be compared, on disk to be there again.

>>> from Agent.embeddings.embedder import HashingEmbedder
>>> vectors = Vectors(HashingEmbedder(synonyms=[("car", "automobile")]))
>>> for text in ("red car", "blue sky"):
...     vectors.add(text)
>>> vectors.catch_up(["red automobile"])  # a question is asked for with what waits
>>> [(round(likeness, 2), text) for likeness, text in vectors.nearest("red automobile", 1)]
[(1.0, 'red car')]

A vector belongs to a text, not to who says it: what is renamed and renamed back, moved, undone or said twice costs
nothing more, and nothing on disk can be out of date. The file is one header and records of one length:

    {"format": 1, "model": "…", "dimension": 384}                a line of JSON, filled with blanks to 512 bytes
    digest (16 bytes) · vector (2 bytes a number) · crc32 (4)    for each text, in the order of embedding

A record whose checksum is wrong is as good as not there, a torn one at the end is cut off before the next is written,
and a file of another model or dimension is put aside for a new one. Each model has a file of its own name. It is never
the truth: it may be deleted at any time, and what it would have said is asked for again.

Up to `EXACT_LIMIT` texts every vector is compared, by numpy; above, too, until `catch_up()` is called without a limit:
where voyager is installed it then builds an index that looks up what is nearest (HNSW). Of the libraries for that it is
the lightest (a wheel of 0.3 MB, no dependency) and well kept (a release in November 2026); items can be added one by
one, and numbers are of one byte, since what it finds is compared exactly again. usearch brings 57 MB along, faiss has a
wheel of 19 MB; hnswlib's last release is of 2023 and has no wheels; annoy cannot add.
"""

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from Agent.embeddings.embedder import Embedder

try:
    import numpy as np
except ImportError as missing:
    raise ImportError("embeddings need numpy: pip install 'keyword-tree[embeddings]'") from missing

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float32]

__all__ = ["EXACT_LIMIT", "Vectors", "path_for"]

EXACT_LIMIT = 100_000
"""So many vectors are all compared; what comes nearest among more is looked up."""

TEXT_LIMIT = 2_000
"""Characters of a text that are embedded; models read little more."""

BATCH = 128
"""So many texts go to the model at a time."""

RETRY_S = 30.0
"""So long a model that failed is left alone."""

_HEADER, _DIGEST = 512, 16
_QUERIES = 256  # questions whose vectors are kept
_log = logging.getLogger(__name__)


def path_for(folder: str | os.PathLike[str], purpose: str, model: str) -> Path:
    """Return where the vectors of a model stand in a store's folder."""
    return Path(folder) / "indexes" / f"{purpose}-{_digest(model)[:6].hex()}.vectors"


class Vectors:
    """The vectors of some texts; any number of threads may use them. Only `catch_up` asks the model, or the disk.

    Args:
        embedder: The model.
        path: The file; None keeps all in memory.
        clock: Seconds, for `RETRY_S`.
    """

    # A row of the matrix belongs to a text for as long as somebody holds it, and a while longer: a renamed keyword lets
    # go of all its texts and takes most of them again. `_held` counts the holders of a row; a row with none is no
    # answer, and when there are more of these than of the others, they go.

    def __init__(
        self, embedder: Embedder, path: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.failure = ""
        """What the model last failed with; empty when it worked since."""
        self._embedder, self._path, self._clock = embedder, path, clock
        self._lock = threading.RLock()  # guards what is in memory; held for no model and no disk
        self._writing, self._growing = threading.Lock(), threading.Lock()
        self._rest_until = -float("inf")
        self._waiting: dict[str, int] = {}  # text -> how many hold it, without a vector as yet
        self._asked: set[str] = set()  # texts that a model is embedding now
        self._queries: OrderedDict[str, Numbers] = OrderedDict()
        self._batch = BATCH  # less after a failure: one text may be what a service refuses
        self._generation = 0  # of rows
        self._stored, dimension, self._records = _read(path, embedder.name)
        self._begin(dimension)

    def _begin(self, dimension: int) -> None:
        self._dimension = dimension
        self._generation += 1
        self._row_of: dict[str, int] = {}
        self._texts: list[str] = []  # by row
        self._matrix: Numbers = np.zeros((0, dimension), np.float32)
        self._held: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._sum = np.zeros(dimension)  # of what is held; in double precision, so that the order hardly matters
        self._live = 0
        self._graph: Any = None  # voyager's index, above EXACT_LIMIT

    def __len__(self) -> int:
        return self._live

    @property
    def waiting(self) -> int:
        """How many texts have no vector yet."""
        return len(self._waiting)

    def add(self, text: str) -> None:
        """Hold a text; its vector comes from the disk, or with `catch_up`. Cost: microseconds."""
        text = text[:TEXT_LIMIT]
        if not text.strip():
            return
        with self._lock:
            row = self._row_of.get(text)
            if row is not None:
                self._hold(row, 1)
            elif text in self._waiting:
                self._waiting[text] += 1
            elif (vector := self._stored.get(_digest(text)) if self._stored else None) is not None:
                self._put(text, vector, 1)
            else:
                self._waiting[text] = 1

    def remove(self, text: str) -> None:
        """Let go of a text that is held."""
        text = text[:TEXT_LIMIT]
        with self._lock:
            row = self._row_of.get(text)
            if row is not None:
                self._hold(row, -1)
                if len(self._texts) > 1024 and len(self._texts) > 2 * self._live:
                    self._drop_unheld()
            elif text in self._waiting:
                self._waiting[text] -= 1
                if not self._waiting[text]:
                    del self._waiting[text]

    def _hold(self, row: int, change: int) -> None:
        was_held = bool(self._held[row])
        self._held[row] += change
        if was_held != bool(self._held[row]):
            sign = -1 if was_held else 1
            self._live += sign
            self._sum += sign * self._matrix[row].astype(np.float64)

    def _put(self, text: str, vector: "Numbers", held: int) -> None:
        row = self._row_of[text] = len(self._texts)
        self._texts.append(text)
        if row == len(self._matrix):
            room = max(64, row // 2)
            self._matrix = np.concatenate([self._matrix, np.zeros((room, self._dimension), np.float32)])
            self._held = np.concatenate([self._held, np.zeros(room, np.int32)])
        self._matrix[row] = vector
        self._held[row] = 0
        self._hold(row, held)

    def _drop_unheld(self) -> None:
        kept = [
            (text, self._matrix[row], int(self._held[row])) for text, row in self._row_of.items() if self._held[row]
        ]
        self._begin(self._dimension)
        for text, vector, held in kept:
            self._put(text, vector, held)

    # -- asking the model -----------------------------------------------------

    def catch_up(self, questions: Iterable[str] = (), limit: int | None = None) -> None:
        """Embed questions, so that `nearest` can answer them, and texts that wait; never raises for a model.

        Where the model fails, `failure` says how, and it is left alone for `RETRY_S`.

        Args:
            questions: Texts to be compared with those that are held.
            limit: At most so many that wait; None is all.

        Cost: a call of the model for each `BATCH`; none where all is known.
        """
        left = self.waiting if limit is None else limit
        asked = sorted({text[:TEXT_LIMIT] for text in questions if text.strip()})
        while self._clock() >= self._rest_until:
            with self._lock:
                new = [text for text in asked if text not in self._queries and text not in self._row_of]
                for text in set(asked) & self._queries.keys():
                    self._queries.move_to_end(text)
                idle = (text for text in self._waiting if text not in self._asked)
                more = list(islice(idle, min(left, max(0, self._batch - len(new)))))
                self._asked.update(more)
            texts = list(dict.fromkeys([*new, *more]))
            if not texts:
                break
            try:
                self._take(texts, new, self._embed(texts))
            except Exception as error:  # the model's port: whatever happens there, the words still rank
                self._fail(error, more)
            finally:
                with self._lock:
                    self._asked.difference_update(more)
            asked, left = [], left - len(more)
        self._tidy(limit is None)

    def _embed(self, texts: Sequence[str]) -> "Numbers":
        """Return vectors of length 1, as they would come back from the disk."""
        vectors = np.asarray(list(self._embedder.embed(texts)), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise ValueError(f"{self._embedder.name!r} gave {vectors.shape} numbers for {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise ValueError(f"{self._embedder.name!r} gave numbers that are none")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths, lengths, 1.0)).astype(np.float16).astype(np.float32)

    def _fail(self, error: Exception, texts: Sequence[str]) -> None:
        if not self.failure:
            _log.warning("embedding failed, words rank alone: %s", type(error).__name__)
        with self._lock:
            self.failure = f"{type(error).__name__}: {error}"[:500]
            self._rest_until = self._clock() + RETRY_S
            self._batch = max(1, self._batch // 4)
            for text in filter(self._waiting.__contains__, texts):  # next time others come first
                self._waiting[text] = self._waiting.pop(text)

    def _take(self, texts: Sequence[str], questions: Sequence[str], vectors: "Numbers") -> None:
        with self._lock:
            self.failure, self._batch = "", min(BATCH, 2 * self._batch)
            if vectors.shape[1] != self._dimension:  # the first ones, or the model is another one under the same name
                for text, row in self._row_of.items():
                    if self._held[row]:
                        self._waiting[text] = int(self._held[row])
                self._queries.clear()
                self._stored, self._records = {}, 0
                self._begin(vectors.shape[1])
            for text, vector in zip(texts, vectors, strict=True):
                held = self._waiting.pop(text, 0)
                if held and text not in self._row_of:
                    self._put(text, vector, held)
                if text in questions:
                    self._queries[text] = vector
            while len(self._queries) > _QUERIES:
                self._queries.popitem(last=False)
            new = [(text, vector) for text, vector in zip(texts, vectors, strict=True) if text in self._row_of]
        self._write(new)

    # -- comparing ------------------------------------------------------------

    def vector_of(self, text: str) -> "Numbers | None":
        """Return a text's vector, None where it was not asked for."""
        text = text[:TEXT_LIMIT]
        with self._lock:
            row = self._row_of.get(text)
            return self._matrix[row] if row is not None else self._queries.get(text)

    def nearest(self, question: str, count: int) -> list[tuple[float, str]]:
        """Return (likeness, text) of what is held, nearest first; nothing where the question was not asked for.

        Cost: 28 ms among 43,000 vectors of 384 numbers, 14 ms looked up among 120,000 (two busy cores).
        """
        with self._lock:
            vector = self.vector_of(question)
            if vector is None or not self._live:
                return []
            found = self._look_up(vector, count)
            rows = np.arange(len(self._texts)) if found is None else found
            likenesses = (self._matrix[: len(rows)] if found is None else self._matrix[rows]) @ vector
            likenesses[(self._held[: len(rows)] if found is None else self._held[rows]) == 0] = -2.0
            if count < len(rows):
                best = np.argpartition(-likenesses, count)[:count]
                rows, likenesses = rows[best], likenesses[best]
            near = zip(np.round(likenesses, 4).tolist(), (self._texts[row] for row in rows), strict=True)
            return sorted((each for each in near if each[0] > -2.0), key=lambda each: (-each[0], each[1]))[:count]

    def _look_up(self, vector: "Numbers", count: int) -> "npt.NDArray[np.int64] | None":
        """Return the rows that the index finds, None where all are to be compared."""
        if self._graph is None:
            return None
        try:
            rows, _ = self._graph.query(vector, k=min(2 * count, len(self._graph)), query_ef=4 * count)
        except import_module("voyager").RecallError:  # its graph leads to too few
            return None
        return np.asarray(rows, np.int64)

    def likenesses(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return how near each of some texts is to a question, -1 where one of the two has no vector."""
        with self._lock:
            vector = self.vector_of(question)
            rows = [self._row_of.get(text[:TEXT_LIMIT], -1) for text in texts]
            if vector is None or not self._texts:
                return [-1.0] * len(rows)
            found = np.round(self._matrix[rows] @ vector, 4).tolist()
        return [likeness if row >= 0 else -1.0 for likeness, row in zip(found, rows, strict=True)]

    def average(self, question: str) -> float:
        """Return how near the texts that are held are to a question on average."""
        with self._lock:
            vector = self.vector_of(question)
            return 0.0 if vector is None or not self._live else round(float(self._sum @ vector) / self._live, 4)

    # -- keeping up -----------------------------------------------------------

    def _tidy(self, may_build: bool) -> None:
        """Bring the index up to date, and leave out of the file what nobody holds any more."""
        with self._lock:
            is_complete = bool(self._live) and not self._waiting
            if is_complete:
                self._stored = {}  # all that was wanted of the file has its row
            is_overfull = is_complete and self._records > 1024 and self._records > 2 * self._live
            is_large = len(self._texts) > EXACT_LIMIT and (may_build or self._graph is not None)
        if is_large and self._growing.acquire(blocking=False):
            try:
                self._grow()
            finally:
                self._growing.release()
        if is_overfull:
            self._write_anew()

    def _grow(self) -> None:
        with self._lock:
            graph, generation, matrix, count = self._graph, self._generation, self._matrix, len(self._texts)
        if graph is None:  # built beside; whoever asks meanwhile is answered exactly
            with contextlib.suppress(ImportError):
                voyager = import_module("voyager")
                kinds = voyager.Space.InnerProduct, voyager.StorageDataType.Float8
                graph = voyager.Index(kinds[0], num_dimensions=self._dimension, storage_data_type=kinds[1])
                graph.add_items(matrix[:count], range(count))
        with self._lock:
            if graph is not None and generation == self._generation:
                rows = np.arange(len(graph), len(self._texts))
                if len(rows):
                    graph.add_items(self._matrix[rows], rows.tolist())
                self._graph = graph

    def _write(self, new: Sequence[tuple[str, "Numbers"]]) -> None:
        """Append records. A disk that refuses costs only time: they will be asked for again."""
        if self._path is None or not new:
            return
        records = b"".join(_record(text, vector) for text, vector in new)
        with self._writing, contextlib.suppress(OSError):
            if not self._records or not self._path.exists():
                self._replace(records)
                self._records = 0
            else:
                with self._path.open("r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)  # other processes append, too
                    torn = (file.seek(0, os.SEEK_END) - _HEADER) % _record_size(self._dimension)
                    file.truncate(file.seek(-torn, os.SEEK_END))
                    file.write(records)
            self._records += len(new)

    def forget(self) -> None:
        """Keep no vector of a text that nobody holds, in memory and on disk; files of other models go as well."""
        with self._lock:
            self._drop_unheld()
            self._queries.clear()
        if self._path is not None:
            self._write_anew()
            with contextlib.suppress(OSError):
                purpose = self._path.name.partition("-")[0]
                for other in set(self._path.parent.glob(f"{purpose}-*")) - {self._path}:
                    other.unlink()

    def _write_anew(self) -> None:
        """Let the file hold what is held, and nothing else."""
        with self._lock:
            live = [(text, self._matrix[row]) for text, row in self._row_of.items() if self._held[row]]
            self._stored = {}
        records = b"".join(_record(text, vector) for text, vector in live)
        with self._writing, contextlib.suppress(OSError):
            self._replace(records)
            self._records = len(live)

    def _replace(self, records: bytes) -> None:
        path = self._path
        if path is None:
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        said = {"format": 1, "model": self._embedder.name, "dimension": self._dimension}
        header = json.dumps(said, ensure_ascii=False).encode().ljust(_HEADER - 1) + b"\n"
        if len(header) != _HEADER:
            return  # a name of hundreds of characters: nothing is kept
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        beside.touch(mode=0o600)
        beside.write_bytes(header + records)
        beside.replace(path)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def _record(text: str, vector: "Numbers") -> bytes:
    body = _digest(text) + vector.astype("<f2").tobytes()
    return body + zlib.crc32(body).to_bytes(4, "little")


def _record_size(dimension: int) -> int:
    return _DIGEST + 2 * dimension + 4


def _read(path: Path | None, model: str) -> tuple[dict[bytes, "Numbers"], int, int]:
    """Return digest → vector, the dimension, and the number of records; nothing of a file that is of another model."""
    nothing: tuple[dict[bytes, Numbers], int, int] = {}, 0, 0
    try:
        content = b"" if path is None else path.read_bytes()
        said = json.loads(content[:_HEADER])
        dimension = said["dimension"]
        fits = said["format"] == 1 and said["model"] == model and type(dimension) is int and 0 < dimension < 65_536
    except (OSError, ValueError, TypeError, KeyError):
        return nothing
    if not fits:
        return nothing
    size = _record_size(dimension)
    stored: dict[bytes, Numbers] = {}
    starts = range(_HEADER, len(content) - size + 1, size)
    for start in starts:
        body, crc = content[start : start + size - 4], content[start + size - 4 : start + size]
        if zlib.crc32(body).to_bytes(4, "little") == crc:
            stored[body[:_DIGEST]] = np.frombuffer(body, "<f2", offset=_DIGEST).astype(np.float32)
    return stored, dimension, len(starts)
