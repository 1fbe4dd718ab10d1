"""Vectors of texts: in memory to be compared, on disk to be there again.

>>> from keyword_tree.embeddings.embedder import HashingEmbedder
>>> vectors = Vectors(HashingEmbedder(synonyms=[("car", "automobile")]))
>>> for text in ("red car", "blue sky"):
...     vectors.add(text)
>>> vectors.catch_up(["red automobile"])  # a question is asked for with what waits
>>> [(round(similarity, 2), text) for similarity, text in vectors.nearest("red automobile", 1)]
[(1.0, 'red car')]

A vector belongs to a text, not to who says it: what is renamed and renamed back, moved, undone or said twice costs
nothing more, and nothing on disk can be out of date. The file is one header and records of one length:

    {"format": 1, "model": "…", "dimension": 384}                a line of JSON, filled with blanks to 512 bytes
    digest (16 bytes) · vector (2 bytes a number) · crc32 (4)    for each text, in the order of embedding

A record whose checksum is wrong, or that holds what is no number, is as good as not there; a torn one at the end is cut
off before the next is written. Each model has a file of its own name. Several processes may write: each looks at the
header under a lock (flock) and appends where it fits. Where it does not, since the model has another dimension now, the
file begins again; but if it is another process that has begun it so, its vectors stay, and one's own are not kept. The
file is never the truth: it may be deleted at any time, and what it would have said is asked for again.

Up to `EXACT_LIMIT` texts every vector is compared, by numpy; above, too, until `catch_up()` is called without a limit:
where voyager is installed it then builds an index that looks up what is nearest (HNSW).
"""

import contextlib
import fcntl
import json
import logging
import os
import reprlib
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from heapq import nsmallest
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..keyword_tree import HideKeys
from .embedder import Embedder, check_embedder, renew_after_fork
from .scripts import everyday_words

try:
    import numpy as np
except ImportError as missing:
    raise ImportError("embeddings need numpy: pip install '.[embeddings]' in its repository") from missing

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

COMMON = 0.6
"""How much of what a text shares with everyday words of the question's scripts is no similarity to the question, where
these words are all alike to the model; less where it distinguishes them: then it has no need of it."""

_HEADER, _DIGEST = 512, 16
_QUERIES = 256  # questions whose vectors are kept
_LINKS = 48  # of a vector in the index; with the usual 12 a sixth of 300 texts in groups of alike ones is never reached
_LOOKED_UP = 50  # that the index is asked for at least: asked for one or two it misses every twentieth
_PLAIN = "water"  # a text that every model takes that is there
_log = logging.getLogger(__name__)


def path_for(folder: str | os.PathLike[str], purpose: str, model: str) -> Path:
    """Return where the vectors of a model stand in a store's folder."""
    return Path(folder) / "indexes" / f"{purpose}-{_digest(model)[:6].hex()}.vectors"


class IncomparableError(ValueError):
    """A model gives questions another dimension than texts."""


class Vectors:
    """The vectors of some texts; any number of threads may use them. Only `catch_up` asks the model, or the disk.

    Args:
        embedder: The model.
        path: The file; None keeps all in memory.
        clock: Seconds, for `RETRY_S`.

    Raises:
        InvalidInputError: `embedder` is none.
    """

    # A row of the matrix belongs to a text for as long as a keyword has it, and a while longer: a renamed keyword lets
    # go of all its texts and takes most of them again. `_held` counts the holders of a row; a row with none is no
    # answer, and when there are more of these than of the others, they go.

    def __init__(
        self, embedder: Embedder, path: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        check_embedder(embedder)
        self.model = embedder.name
        """The model's name."""
        self.failure = ""
        """What the model last failed with; empty when it worked since."""
        self._embedder, self._path, self._clock = embedder, path, clock
        self._embed_queries: Callable[[Sequence[str]], Iterable[Sequence[float]]] | None
        self._embed_queries = getattr(embedder, "embed_queries", None)
        self._rest_until = -float("inf")
        self._waiting: dict[str, int] = {}  # text -> how many hold it, without a vector as yet
        self._refused: dict[str, int] = {}  # text -> how many hold it, of those that the model does not take
        self._doubted: set[str] = set()  # waiting texts that have failed alone, once
        self._queries: OrderedDict[str, Numbers] = OrderedDict()
        self._is_sure = False  # the model has answered, and not failed since: the file's dimension is its own
        self._batch = BATCH  # less where texts fail: until the one stands alone that the model refuses
        self._generation = 0  # of rows
        self._stored, dimension, self._records = _read(path, embedder.name)
        self._dimension_on_disk = dimension  # as it was last seen there
        self._begin(dimension)
        self._renew_locks()
        renew_after_fork(self)

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()  # guards what is in memory; held for no model and no disk
        self._writing, self._growing = threading.Lock(), threading.Lock()
        self._asked: set[str] = set()  # texts that a thread of this process has sent to the model

    def _begin(self, dimension: int) -> None:
        self._dimension = dimension
        self._generation += 1
        self._row_of: dict[str, int] = {}
        self._texts: list[str] = []  # by row
        self._matrix: Numbers = np.zeros((0, dimension), np.float32)
        self._held: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._sum = np.zeros(dimension)  # of what is held; in double precision, so that the order hardly matters
        self._live = 0
        self._changes = 0  # of which texts are held
        self._graph: Any = None  # voyager's index, above EXACT_LIMIT
        self._aimed: tuple[object, Numbers, float] = None, np.zeros(0, np.float32), 0.0  # the last question, see `_aim`
        self._compared: tuple[object, Numbers] = None, np.zeros(0, np.float32)  # the same, with all rows

    def __len__(self) -> int:
        return self._live

    @property
    def waiting(self) -> int:
        """How many texts have no vector yet, but for those that are refused."""
        return len(self._waiting)

    @property
    def refused(self) -> int:
        """How many texts get no vector: the model fails at each of them alone, and answers otherwise.

        They are not asked for again before they change, or `Vectors` are made again.
        """
        with self._lock:
            return sum(map(bool, self._refused.values()))

    @property
    def is_behind(self) -> bool:
        """Whether texts wait that no thread is embedding."""
        with self._lock:
            return any(text not in self._asked for text in self._waiting)

    @property
    def is_resting(self) -> bool:
        """Whether the model is left alone, since it has just failed."""
        return self._clock() < self._rest_until

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
            elif text in self._refused:
                self._refused[text] += 1
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
            elif text in self._refused:
                self._refused[text] -= 1  # at 0, too, it stays: a renamed keyword takes most of its texts again

    def _hold(self, row: int, change: int) -> None:
        was_held = bool(self._held[row])
        self._held[row] += change
        if was_held != bool(self._held[row]):
            sign = -1 if was_held else 1
            self._live += sign
            self._changes += 1
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

    def catch_up(self, questions: Iterable[str] = (), limit: int | None = None, at_once: bool = False) -> None:
        """Embed questions, so that `nearest` can answer them, and texts that wait; never raises for a model.

        Where the model fails, also at a plain word, `failure` says how, and it is left alone for `RETRY_S`. Where it
        fails otherwise, it may refuse a text: questions are tried alone, and of the texts that wait a quarter next
        time, and so on; one at which it fails alone, twice, is refused: the first one is logged, `refused`
        counts them. Where its vectors have another dimension than those on disk, these are of no use: a log line says
        so, and all texts wait again.

        Args:
            questions: Texts to be compared with those that are held.
            limit: At most so many that wait, up to `BATCH` in one call; None is all.
            at_once: Ask even a model that has just failed; and where nothing waits, ask it for one text that is held,
                if it has not answered since this was opened or since it failed: is it there, with the same dimension?

        Cost: a call of the model for each `BATCH`, the questions in the first one; none where all is known, but for
        `at_once`. After one that failed, another for a plain word, and if that is answered, a third for the questions.
        """
        left = self.waiting if limit is None else limit if limit > BATCH else min(limit, self._batch)
        asked = _sound(questions)
        sample = self._begin_at_once() if at_once else []
        was_other, failed = False, list[tuple[list[str], Exception]]()
        while not self.is_resting:
            new, more = self._choose(asked, 0 if sample or failed else left)
            texts = [*new, *sample, *more]
            if not texts:
                break
            try:
                vectors = self._embed([*sample, *more], new)
                is_other = self._dimension not in (0, vectors.shape[1])
                if is_other and was_other:
                    self.fail(ValueError(f"{self.model!r} gave vectors of now one dimension, now another"))
                    break
                self._take(texts, new, vectors)
            except IncomparableError as error:
                self.fail(error)
            except Exception as error:  # the model's port: whatever happens there, the words still rank
                if not failed and not self._is_there():
                    self.fail(error)
                elif more:
                    failed.append((more, error))
                else:  # it refuses what was asked, and nothing else: the words rank alone for that
                    self.fail(error, rest_s=0.0)
                    asked, sample, failed, left = [], [], [], left if limit is None else 0
            else:
                was_other, sample = was_other or is_other, []
                if not is_other:
                    asked, left = [] if new else asked, left - len(more)
                    self._batch = min(BATCH, 2 * self._batch) if more else self._batch
                elif limit is None:
                    left = self.waiting
            finally:
                with self._lock:
                    self._asked.difference_update(more)
            if failed and not (new and more):  # else it may be the questions that it refuses: they are tried alone
                self._doubt(*failed.pop())
                left = left if limit is None else 0  # the caller has waited enough
        self._tidy(limit is None)

    def unknown(self, questions: Iterable[str]) -> list[str]:
        """Return the questions that the model has still to be asked for; the others are kept a while longer."""
        asked = _sound(questions)
        with self._lock:
            for text in set(asked) & self._queries.keys():
                self._queries.move_to_end(text)
            texts = {} if self._embed_queries else self._row_of
            return [text for text in asked if text not in self._queries and text not in texts]

    def _choose(self, asked: Sequence[str], left: int) -> tuple[list[str], list[str]]:
        """Return the questions that are not known, and at most so many texts that wait."""
        with self._lock:
            new = self.unknown(asked)
            idle = (text for text in self._waiting if text not in self._asked and text not in new)
            more = list(islice(idle, min(left, max(1, self._batch - len(new)))))
            self._asked.update(more)
        return new, more

    def _begin_at_once(self) -> list[str]:
        """Let the model be asked now, and return what to ask it for if nothing waits."""
        with self._lock:
            self._rest_until = -float("inf")
            if self._is_sure or self._waiting:
                return []
            return list(islice((text for text, row in self._row_of.items() if self._held[row]), 1))

    def _embed(self, texts: Sequence[str], questions: Sequence[str] = ()) -> "Numbers":
        """Return vectors of length 1, as they would come back from the disk, of questions and then of texts."""
        if self._embed_queries is None:
            given, texts = self._embedder.embed([*questions, *texts]), [*questions, *texts]
        else:
            asked = list(self._embed_queries(questions)) if questions else []
            stored = list(self._embedder.embed(texts)) if texts else []
            self._check_dimensions(asked, stored)
            given, texts = [*asked, *stored], [*questions, *texts]
        vectors = np.asarray(list(given), np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise ValueError(f"{self.model!r} gave {vectors.shape} numbers for {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise ValueError(f"{self.model!r} gave numbers that are none")
        peaks = np.abs(vectors).max(axis=1, keepdims=True)
        vectors /= np.where(peaks, peaks, 1.0)  # else the squares of huge and of tiny numbers are none
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths, lengths, 1.0)).astype(np.float16).astype(np.float32)

    def _check_dimensions(self, asked: Sequence[Sequence[float]], stored: Sequence[Sequence[float]]) -> None:
        """Refuse a model whose questions cannot be compared with its texts; nothing else shows it."""
        if not asked or not (stored or self._dimension not in (0, len(asked[0]))):
            return
        stored = stored or list(self._embedder.embed([_PLAIN]))
        if len(stored[0]) != len(asked[0]):
            numbers = f"{len(asked[0])} numbers for a question, {len(stored[0])} for a text"
            raise IncomparableError(f"{self.model!r} gave {numbers}")

    def _is_there(self) -> bool:
        """Return whether the model answers at all."""
        try:
            self._embed([_PLAIN])
        except Exception:  # the model's interface; what it failed with before is reported
            return False
        with self._lock:
            self.failure = ""
        return True

    @property
    def note(self) -> str:
        """Why words rank alone, or ""."""
        return f"words ranked alone: {self.failure}" if self.failure else ""

    def fail(self, error: Exception, rest_s: float = RETRY_S) -> None:
        """Take down that the model failed, tell the log if it did not before, and leave it alone for a while."""
        said = _say(error)
        if not self.failure:
            _log.warning("embedding with %s failed, words rank alone: %s", self.model, said)
        with self._lock:
            self.failure, self._is_sure = said, False
            self._rest_until = self._clock() + rest_s

    def _doubt(self, texts: Sequence[str], error: Exception) -> None:
        """Find out which of some texts the model refuses; it has failed at them, and answers otherwise."""
        text, is_first = texts[0], False
        with self._lock:
            if len(texts) > 1:
                self._batch = max(1, len(texts) // 4)
            elif text in self._doubted and text in self._waiting:
                is_first = not self._refused
                self._refused[text] = self._waiting.pop(text)
                self._doubted.remove(text)
            elif text in self._waiting:  # once is no proof: services are busy now and then
                self._doubted.add(text)
                self._waiting[text] = self._waiting.pop(text)  # others come first
        if is_first:
            message = "%s refuses %s, which ranks by its words alone (`refused` counts such texts): %s"
            _log.warning(message, self.model, reprlib.repr(text), _say(error))

    def _take(self, texts: Sequence[str], questions: Sequence[str], vectors: "Numbers") -> None:
        with self._lock:
            kept = self._dimension if self._live else vectors.shape[1]
            self._is_sure = True
            if not self.is_resting:  # else it is an answer that came too late
                self.failure = ""
            if vectors.shape[1] != self._dimension:  # the first ones, or the model is another one under the same name
                for text, row in self._row_of.items():
                    if self._held[row]:
                        self._waiting[text] = int(self._held[row])
                self._waiting |= {text: held for text, held in self._refused.items() if held}
                self._refused, self._doubted, self._stored = {}, set(), {}
                self._queries.clear()
                self._begin(vectors.shape[1])
            new = []
            for text, vector in zip(texts, vectors, strict=True):
                if text in questions:
                    self._queries[text] = vector
                    if self._embed_queries:
                        continue  # a text that is held has a vector of another kind
                held = self._waiting.pop(text, 0)
                self._doubted.discard(text)
                if held and text not in self._row_of:
                    self._put(text, vector, held)
                    new.append((text, vector))
            while len(self._queries) > _QUERIES:
                self._queries.popitem(last=False)
        if kept != vectors.shape[1]:
            message = "%s gives vectors of %d numbers, those kept have %d: all texts are embedded again"
            _log.warning(message, self.model, vectors.shape[1], kept)
        self._write(new)

    def close(self) -> None:
        """Ask the model no more, and write no more: what a call brings that is under way is not kept on disk."""
        self._rest_until = float("inf")
        with self._writing:
            self._path = None

    # -- comparing ------------------------------------------------------------

    def vector_of(self, text: str) -> "Numbers | None":
        """Return a text's vector, None where it was not asked for."""
        text = text[:TEXT_LIMIT]
        with self._lock:
            row = self._row_of.get(text)
            asked = self._queries.get(text)
            return asked if row is None or (self._embed_queries and asked is not None) else self._matrix[row]

    def nearest(self, question: str, count: int) -> list[tuple[float, str]]:
        """Return (similarity, text) of what is held, nearest first; nothing where the question was not asked for.

        Similarity is the cosine, less what a text has in common with any question: a share of how much nearer than
        others it is to `everyday_words` of the question's scripts, as far as these were asked for.

        Cost: 13 ms among 43,000 vectors of 384 numbers, 14 ms looked up among 120,000 (two busy cores).
        """
        with self._lock:
            if self.vector_of(question) is None or not self._live:
                return []
            found = self._look_up(question, count)
            rows = np.arange(len(self._texts)) if found is None else found
            similarities = self._compare(question, rows)
            similarities[self._held[rows] == 0] = -2.0
            least = -np.partition(-similarities, count - 1)[count - 1] if 0 < count < len(rows) else -1.5
            best = np.flatnonzero(
                similarities >= max(least, -1.5)
            )  # all that are as near as the last: their texts decide
            near = zip(similarities[best].tolist(), (self._texts[row] for row in rows[best]), strict=True)
            return nsmallest(count, near, key=lambda each: (-each[0], each[1]))

    def _aim(self, question: str) -> tuple[object, "Numbers", float]:
        """Return what is compared for a question, under a key: its vector, and what is added to each product.

        Some texts are near to whatever is asked, be it for their length or their language. What everyday words say of
        a text is taken off; added is what that is on average, so that the average is still that of the cosines.
        """
        weights = everyday_words(question)
        words = [(vector, weights[word]) for word in weights if (vector := self.vector_of(word)) is not None]
        key = question, self._generation, self._changes, len(words)
        if self._aimed[0] != key:
            vector = self.vector_of(question)
            assert vector is not None, "the caller has checked that it is known"
            mean = sum((weight * word for word, weight in words), np.zeros_like(vector))
            shared = COMMON * float(mean @ mean) * mean
            self._aimed = key, vector - shared, round(float(self._sum @ shared) / max(1, self._live), 6)
        return self._aimed

    def _compare(self, question: str, rows: "npt.NDArray[np.int64]") -> "Numbers":
        """Return how near some rows are to a question.

        A ranking asks several times, and most rows: they are compared at once and kept, unless they are too many.
        """
        key, vector, more = self._aim(question)
        if self._graph is not None:
            return _compare(self._matrix[rows], vector, more)
        if self._compared[0] != key:
            self._compared = key, _compare(self._matrix[: len(self._texts)], vector, more)
        return self._compared[1][rows]

    def _look_up(self, question: str, count: int) -> "npt.NDArray[np.int64] | None":
        """Return the rows that the index finds, None where all are to be compared."""
        if self._graph is None:
            return None
        try:
            wanted = min(max(_LOOKED_UP, 2 * count), len(self._graph))
            rows, _ = self._graph.query(self._aim(question)[1], k=wanted, query_ef=2 * wanted)
        except import_module("voyager").RecallError:  # its graph leads to too few
            return None
        return np.asarray(rows, np.int64)

    def similarities(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return how near each of some texts is to a question, -1 where one of the two has no vector."""
        with self._lock:
            if self.vector_of(question) is None or not self._texts:
                return [-1.0] * len(texts)
            rows = np.array([self._row_of.get(text[:TEXT_LIMIT], -1) for text in texts], np.int64)
            found: list[float] = np.where(rows >= 0, self._compare(question, rows), np.float32(-1.0)).tolist()
            return found

    def average(self, question: str) -> float:
        """Return how near the texts that are held are to a question on average."""
        with self._lock:
            vector = self.vector_of(question)
            return 0.0 if vector is None or not self._live else round(float(self._sum @ vector) / self._live, 4)

    # -- keeping up -----------------------------------------------------------

    def _tidy(self, may_build: bool) -> None:
        """Bring the index up to date, and leave out of the file what no keyword has any more."""
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
            self._write_anew(must=False)

    def _grow(self) -> None:
        with self._lock:
            graph, generation, matrix, count = self._graph, self._generation, self._matrix, len(self._texts)
        if graph is None:  # being built; a question meanwhile is answered exactly
            with contextlib.suppress(ImportError):
                voyager = import_module("voyager")
                kinds = voyager.Space.InnerProduct, voyager.StorageDataType.Float8
                graph = voyager.Index(kinds[0], self._dimension, M=_LINKS, storage_data_type=kinds[1])
                graph.add_items(matrix[:count], range(count))
        with self._lock:
            if graph is not None and generation == self._generation:
                rows = np.arange(len(graph), len(self._texts))
                if len(rows):
                    graph.add_items(self._matrix[rows], rows.tolist())
                self._graph = graph

    def _open(self, flags: int) -> AbstractContextManager[IO[bytes]]:
        if self._path is None:
            raise FileNotFoundError("closed meanwhile")
        return _locked(self._path, flags)

    def _write(self, new: Sequence[tuple[str, "Numbers"]]) -> None:
        """Append records. A disk that refuses costs only time: they will be asked for again."""
        if self._path is None or not new:
            return
        dimension, header = len(new[0][1]), _header(self.model, len(new[0][1]))
        with self._writing, _warned():
            with self._lock:
                new = [each for each in new if each[0] in self._row_of]  # the others were forgotten meanwhile
            records = b"".join(_record(text, vector) for text, vector in new)
            with self._open(os.O_RDWR | os.O_CREAT) as file:
                there = _dimension_in(file.read(_HEADER), self.model)
                if there not in (0, dimension, self._dimension_on_disk) or not header:
                    return
                if there == dimension:
                    torn = (file.seek(0, os.SEEK_END) - _HEADER) % _record_size(dimension)
                    file.truncate(file.seek(-torn, os.SEEK_END))
                    file.write(records)
                else:
                    _replace(file, header + records)
                    self._records = 0
            self._records += len(new)
            self._dimension_on_disk = dimension

    def forget(self) -> None:
        """Keep no vector of a text that no keyword has, in memory and on disk; files of other models go as well."""
        with self._lock:
            self._drop_unheld()
            self._queries.clear()
            self._refused = {text: held for text, held in self._refused.items() if held}
        if self._path is not None:
            self._write_anew(must=True)
            with contextlib.suppress(OSError):
                purpose = self._path.name.partition("-")[0]
                for other in set(self._path.parent.glob(f"{purpose}-*")) - {self._path}:
                    other.unlink(missing_ok=True)

    def _write_anew(self, must: bool) -> None:
        """Let the file hold what is held, and of what others wrote no more than is wanted here.

        Args:
            must: Else it is left as it is where others have written to it: they may want what is not held here.
        """
        if self._path is None:
            return
        flags = os.O_RDWR | (os.O_CREAT if must and self._live else 0)
        with self._writing, contextlib.suppress(OSError), self._open(flags) as file:
            content = file.read() if must else file.read(_HEADER)
            there = _dimension_in(content[:_HEADER], self.model)
            with self._lock:
                live = [(text, self._matrix[row]) for text, row in self._row_of.items() if self._held[row]]
                dimension, wanted = self._dimension or there, set(map(_digest, self._waiting))
                self._stored = {}
            size = _record_size(there)
            is_own = file.seek(0, os.SEEK_END) == _HEADER + self._records * size and there == dimension
            if not must and not is_own:
                return
            records = [_record(text, vector) for text, vector in live]
            if there == dimension:
                slots = (content[start : start + size] for start in range(_HEADER, len(content) - size + 1, size))
                records += [slot for slot in slots if slot[:_DIGEST] in wanted]
            _replace(file, _header(self.model, dimension) + b"".join(records))
            self._records, self._dimension_on_disk = len(records), dimension


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """Report a disk that refuses in one log line, and go on."""
    try:
        yield
    except OSError as error:
        _log.warning("vectors cannot be written, and will be asked for again: %s", error)


@contextlib.contextmanager
def _locked(path: Path, flags: int) -> Iterator[IO[bytes]]:
    """Open a file, for its owner alone if it is new, under a lock: shared where it is only read."""
    if flags & os.O_CREAT:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(os.open(path, flags, 0o600), "rb" if flags == os.O_RDONLY else "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_SH if flags == os.O_RDONLY else fcntl.LOCK_EX)
        try:
            yield file
        finally:
            file.flush()
            fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a child that is forked now has the file, too


def _replace(file: IO[bytes], content: bytes) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)


def _header(model: str, dimension: int) -> bytes:
    """Return the header; nothing for a name of hundreds of characters: then nothing is kept."""
    said = {"format": 1, "model": model, "dimension": dimension}
    header = json.dumps(said, ensure_ascii=False).encode().ljust(_HEADER - 1) + b"\n"
    return header if len(header) == _HEADER else b""


def _dimension_in(header: bytes, model: str) -> int:
    """Return the dimension of a file's vectors; 0 where it is no such file, or of another model."""
    try:
        said = json.loads(header)
        dimension = said["dimension"]
        fits = said["format"] == 1 and said["model"] == model and type(dimension) is int and 0 < dimension < 65_536
    except (ValueError, TypeError, KeyError):
        return 0
    return dimension if fits else 0


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def _record(text: str, vector: "Numbers") -> bytes:
    body = _digest(text) + vector.astype("<f2").tobytes()
    return body + zlib.crc32(body).to_bytes(4, "little")


def _record_size(dimension: int) -> int:
    return _DIGEST + 2 * dimension + 4


def _sound(questions: Iterable[str]) -> list[str]:
    """Return what of some questions can be asked for, each once."""
    return sorted({text[:TEXT_LIMIT] for text in questions if text.strip() and _is_sound(text)})


def _compare(matrix: "Numbers", vector: "Numbers", more: float) -> "Numbers":
    """Return how near each row is, in four digits; without a BLAS, whose threads wait for each other on busy cores."""
    similarities: Numbers = np.round(np.einsum("ij,j->i", matrix, vector) + np.float32(more), 4)
    return similarities


def _is_sound(text: str) -> bool:
    """Return whether UTF-8 can hold a text: no service takes another."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _say(error: Exception) -> str:
    return HideKeys(f"{type(error).__name__}: {error}")[:500]


def _read(path: Path | None, model: str) -> tuple[dict[bytes, "Numbers"], int, int]:
    """Return digest → vector, the dimension, and the number of records; nothing of a file that is of another model."""
    content = b""
    if path is not None:
        with contextlib.suppress(OSError), _locked(path, os.O_RDONLY) as file:
            content = file.read()
    dimension = _dimension_in(content[:_HEADER], model)
    if not dimension:
        return {}, 0, 0
    size = _record_size(dimension)
    kind = np.dtype([("digest", "V", _DIGEST), ("vector", "<f2", (dimension,)), ("crc", "<u4")])
    count = (len(content) - _HEADER) // size
    vectors = np.frombuffer(content, kind, count, _HEADER)["vector"].astype(np.float32)
    are_numbers = np.isfinite(np.abs(vectors).max(axis=1))
    stored: dict[bytes, Numbers] = {}
    for start, vector, is_number in zip(range(_HEADER, len(content), size), vectors, are_numbers, strict=False):
        body, crc = content[start : start + size - 4], content[start + size - 4 : start + size]
        if is_number and zlib.crc32(body).to_bytes(4, "little") == crc:
            stored[body[:_DIGEST]] = vector
    return stored, dimension, count
