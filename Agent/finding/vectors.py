"""Vectors of an index's texts: made in the background, kept as rows of the index, compared all at once.

>>> from keyword_tree.finding.embedder import HashingEmbedder
>>> from keyword_tree.finding.writing import Unit, WritableRows
>>> index = WritableRows()
>>> index.put([Unit("a", text="red car"), Unit("b", text="blue sky")])
>>> vectors = Vectors(index, Meaning(HashingEmbedder(synonyms=[("car", "automobile")])))
>>> vectors.ask("red automobile")  # why less than usual is compared, or ""
''
>>> [(at, round(near, 2)) for at, near in vectors.compare("red automobile").best(1)]  # the text of the first unit
[(2, 1.0)]

    asker                                      a daemon thread: there while there is something to do
    ask: leaves a question; waits for its   →  all questions in one call
         vector, and while texts have none, →  texts that have none, the newest first, in calls of about `CALL_S`
         `patience_s` at most

A late answer is kept all the same. A model that fails is left alone for `RETRY_S`, a late one until it answers:
words rank alone, and `note` says why. A text that fails alone, where others do not, gets no vector before it changes.

A document has a vector of each of its names, of its name with its context's before it, and of its text; a passage has
one, of its unit's name and itself: a question is seldom a whole path, and a passage seldom names its subject.
Where the model has another name than the one that the rows are of, or its vectors another length, all are made again.

Memory holds all vectors, unless the embedder searches in as many (`SharedEmbedder`): then it names the nearest texts,
and the vectors of those documents that are asked for are read.
"""

import logging
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..base.checks import shorten
from ..base.forks import watch_forks
from ..base.keys import hide_keys
from ..keyword_tree import StoreError
from .embedder import Meaning, digest_of
from .packing import decoder
from .rows import BYTES, NUMBERS, Rows

try:
    import numpy as np
except ImportError as missing:
    raise ImportError("embeddings need numpy: pip install '.[embeddings]' in its repository") from missing

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float32]

__all__ = ["CALL_S", "RETRY_S", "Compared", "Vectors"]

TEXT_LIMIT = 2_000
"""Characters of a text that are embedded; models read little more."""

BATCH = 64
"""Documents that go to the model at a time, at most."""

CALL_S = 0.25
"""A call for texts should take no longer: a question may have to wait for it."""

RETRY_S = 30.0
"""So long a model that failed is left alone."""

_QUERIES = 256  # questions whose vectors are kept
_NEAREST, _SAMPLE = 400, 5_000  # texts that a server names, and vectors that show what is usual then
_PLAIN = "water"  # a text that every model takes that is there
_USUAL = [_PLAIN, "a house in the city", "yesterday evening", "How much is it?"]
_USUAL += ["水", "城里的房子", "昨天晚上", "多少钱？"]
_log = logging.getLogger(__name__)


class Compared:
    """How near the documents of an index are to a question: the cosine of the nearest of their vectors.

    Args:
        documents: In ascending order.
        similarities: Of each.
        usual: How near texts are to the question on average; everyday words count along, for an index of a few.
        read: Returns how near other documents are, where these are but the nearest; to be called within `reading`.
    """

    def __init__(
        self,
        documents: "npt.NDArray[np.int64]",
        similarities: "Numbers",
        usual: float,
        read: Callable[[Collection[int]], Mapping[int, float]] | None = None,
    ) -> None:
        self._documents, self._similarities, self.usual, self._read = documents, similarities, usual, read

    def best(self, count: int) -> list[tuple[int, float]]:
        """Return the nearest documents and their similarity, nearest first, ties by document."""
        similarities = self._similarities
        if 0 < count < len(similarities):  # all that are as near as the last
            chosen = np.flatnonzero(similarities >= -np.partition(-similarities, count - 1)[count - 1])
        else:
            chosen = np.arange(len(similarities))
        ordered = chosen[np.argsort(-similarities[chosen], kind="stable")][:count]
        return [(int(self._documents[at]), float(similarities[at])) for at in ordered]

    def similarities(self, documents: Sequence[int]) -> list[float]:
        """Return how near each of some documents is; -1 where it has no vector."""
        if self._read is not None:
            near = self._read(documents)
            return [near.get(at, -1.0) for at in documents]
        at = np.minimum(np.searchsorted(self._documents, documents), len(self._documents) - 1)
        there = self._documents[at] == np.array(documents, np.int64)
        found: list[float] = np.where(there, self._similarities[at], -1.0).tolist()
        return found


class Vectors:
    """The vectors of an index; any number of threads may use them.

    Args:
        index: Whose documents.
        meaning: The model.
        clock: Seconds, for `CALL_S` and `RETRY_S`.
    """

    def __init__(self, index: Rows, meaning: Meaning, clock: Callable[[], float] = time.monotonic) -> None:
        self._index, self._embedder, self._patience_s = index, meaning.embedder, meaning.patience_s
        self._is_given, self._clock = meaning.is_given, clock
        self.failure = ""
        """The model's last failure; empty when it worked since."""
        self.refused = 0
        """How many texts the model failed at, each alone, while it answered otherwise."""
        self._rest_until = -float("inf")
        self._share = 4  # documents in a call; more where it is quick
        self._questions: OrderedDict[str, Numbers | None] = OrderedDict()  # None: the model does not take it
        self._usual: Numbers | None = None
        self._named: dict[str, list[bytes] | None] = {}  # the nearest texts of a question, as the server says
        self._opening = -1, 1  # of the file, and the step: of which the rows are
        self.renew_after_fork()
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with locks of its own, and no thread."""
        self._changed = threading.Condition()  # guards what follows; no lock of the index is taken under it
        self._wanted: dict[str, None] = {}
        self.left = 0
        """How many documents have no vector yet, as far as is known."""
        self._thread: threading.Thread | None = None
        self._asking = threading.Lock()  # the model works for one thread at a time

    @property
    def note(self) -> str:
        """Why less than usual is compared, or ""."""
        if self.failure:
            return f"words ranked alone: {self.failure}"
        return f"{self.left:,} texts have no vector yet: words alone find them" if self.left else ""

    @property
    def read(self) -> float:
        """The share of the documents that have a vector, or never will."""
        counts = self._index.counts()
        return max(0.0, 1.0 - self.left / max(1, counts.get("units", 0) + counts.get("passages", 0)))

    @property
    def is_resting(self) -> bool:
        """Whether the model is left alone, since it has just failed."""
        return self._clock() < self._rest_until

    # -- asking the model -----------------------------------------------------

    def ask(self, question: str) -> str:
        """Have a question's vector made, and those of texts that have none; return `note`.

        Cost: waits `patience_s` at most, and while the model is loaded; microseconds where all is there.
        """
        question, embedder = _sound(question), cast("Any", self._embedder)
        note, asked = self._ask(question), self._questions.get(question)
        if asked is None or not hasattr(embedder, "nearest"):
            return note
        try:
            self._named[question] = embedder.nearest(asked.tolist(), _NEAREST, self._count())
        except StoreError as error:
            self._named[question] = []
            return f"words ranked alone: {error}"
        return note

    def _ask(self, question: str) -> str:
        left = self._count_unread()
        with self._changed:
            self.left = left
            known = not self._reads(question) or question in self._questions
            if (known and not left) or self.is_resting:
                return self.note
        self._load_model()
        with self._changed:
            if not known:
                self._wanted[question] = None
            try:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name="embedding", daemon=True)
                    self._thread.start()
            except RuntimeError as error:  # the system has no thread to give
                self.fail(error)
            self._changed.wait_for(lambda: self._thread is None or self.is_resting, self._patience_s)
            if not (known or question in self._questions or self.is_resting or self.failure):
                self.fail(TimeoutError(f"no answer within {self._patience_s:g} s"))
                self._changed.notify_all()  # no other thread need wait any longer
            if self._questions.get(question, 0) is None:
                return f"words ranked alone: {self._embedder.name!r} does not take the question"
            return self.note

    def catch_up(self, limit: int | None = None) -> int:
        """Embed texts in this thread, and return how many still have no vector; waits as long as the model does.

        Args:
            limit: Documents at most, or a few more; None is all.
        """
        self._rest_until, left = -float("inf"), self._count_unread()
        least = 0 if limit is None else left - limit
        while left > max(0, least) and not self.is_resting:
            self._embed_texts()
            left = self._count_unread()
        self.left = left
        return left

    def close(self) -> None:
        """Ask the model no more. Cost: waits for a call that is under way, `patience_s` at most; not for a late one."""
        with self._changed:
            is_late, self._rest_until = self.is_resting, float("inf")
            self._changed.wait_for(lambda: self._thread is None, 0.0 if is_late else self._patience_s)

    def fail(self, error: BaseException) -> None:
        """Take down that the model failed, tell the log if it did not before, and leave it alone for a while."""
        said = hide_keys(error, self._embedder)[:500]
        if not self.failure:
            _log.warning("embedding with %s failed, words rank alone: %s", self._embedder.name, said)
        self.failure, self._rest_until = said, max(self._rest_until, self._clock() + RETRY_S)

    def _load_model(self) -> None:
        """Have a model of this machine in memory: the time of its loading says nothing about its answers."""
        try:
            getattr(self._embedder, "load", lambda: None)()
        except (Exception, SystemExit) as error:
            self.fail(error)

    def _run(self) -> None:
        try:
            while self._go_on():
                pass
        finally:
            with self._changed:
                self._thread = None
                self._changed.notify_all()

    def _go_on(self) -> bool:
        """Answer questions, or embed some texts; return whether there may be more to do."""
        with self._changed:
            questions, self._wanted = [*self._wanted], {}
            # Who asked may have given up before this thread began, or while it read texts: late is not failed.
            if self._rest_until == float("inf") or not (questions or (self.left and not self.is_resting)):
                self._thread = None  # under the lock that looked: who comes now starts another
                return False
        if questions:
            self._answer(questions)
        else:
            self._embed_texts()
        left = self._count_unread()
        with self._changed:
            self.left = left
            self._changed.notify_all()
        return True

    def _answer(self, questions: Sequence[str]) -> None:
        try:
            with self._asking:
                embed = getattr(self._embedder, "embed_queries", self._embedder.embed)
                vectors = self._embed_each(questions, embed)
                self._check_model(vectors)
                if self._usual is None:
                    self._usual = self._embed(_USUAL)
        except (Exception, SystemExit) as error:  # the model's port: whatever happens there, the words still rank
            self.fail(error)
            return
        with self._changed:
            self.failure = ""
            if self._rest_until < float("inf"):  # it was late, as where it had to be loaded: it is there now
                self._rest_until = -float("inf")
            self._questions.update(zip(questions, vectors, strict=True))
            while len(self._questions) > _QUERIES:
                self._named.pop(self._questions.popitem(last=False)[0], None)

    def _embed_texts(self) -> None:
        """Embed some documents, the newest ones."""
        try:
            with self._asking:
                with self._index.reading() as db:
                    sql = "select document from unread order by document desc limit ?"
                    said = self._texts_of([at for (at,) in db.execute(sql, (self._share,))])
                texts, began = [text for each in said.values() for text in each], self._clock()
                vectors = self._embed_each(texts, self._embedder.embed) if texts else []
                self._check_model(vectors)
                self._take(said, vectors)
                is_quick = self._clock() - began < CALL_S
                self._share = min(BATCH, 2 * self._share) if is_quick else max(1, self._share // 2)
                self.failure = ""
        except (Exception, SystemExit) as error:  # of the model, or of a disk: they are asked for again
            self.fail(error)

    def _embed_each(
        self, texts: Sequence[str], embed: Callable[[Sequence[str]], Iterable[Sequence[float]]]
    ) -> "list[Numbers | None]":
        """Return the vectors of texts, None of one that the model does not take, while it answers otherwise."""
        try:
            return [*self._embed(texts, embed)]
        except Exception as error:
            self._embed([_PLAIN])
            if len(texts) > 1:
                half = len(texts) // 2
                return [*self._embed_each(texts[:half], embed), *self._embed_each(texts[half:], embed)]
            self.refused += 1
            if self.refused == 1:
                said = hide_keys(error, self._embedder)[:500]
                _log.warning("%s refuses %s, which has no vector: %s", self._embedder.name, shorten(texts[0]), said)
            return [None]

    def _embed(
        self, texts: Sequence[str], embed: Callable[[Sequence[str]], Iterable[Sequence[float]]] | None = None
    ) -> "Numbers":
        """Return vectors of length 1, as they come back from the file."""
        vectors = np.asarray(list((embed or self._embedder.embed)(texts)), np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
            raise ValueError(f"{self._embedder.name!r} gave {vectors.shape} numbers for {len(texts)} texts")
        if not np.isfinite(vectors).all():
            raise ValueError(f"{self._embedder.name!r} gave numbers that are none")
        peaks = np.abs(vectors).max(axis=1, keepdims=True)
        vectors /= np.where(peaks, peaks, 1.0)  # else the squares of huge and of tiny numbers are none
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths, lengths, 1.0)).astype(np.float16).astype(np.float32)

    # -- the rows -------------------------------------------------------------

    def _count_unread(self) -> int:
        if self._index.kept("model") is None:
            self._want_all()
        with self._index.reading() as db:
            return int(db.execute("select count(*) from unread").fetchone()[0])

    def _want_all(self, model: str = "") -> None:
        """Have all texts embedded by a model; "": by one whose vectors' length is not known yet."""
        with self._index.transaction() as db:
            if not model and self._index.kept("model") is not None:
                return  # another thread, or another process, was first
            db.execute("delete from vector")
            for sql in ("select 2 * num from unit where grp is not null", "select num from passage"):
                db.execute(f"insert or ignore into unread {sql}")
            self._index.keep("model", model)

    def _texts_of(self, documents: Collection[int]) -> dict[int, list[str]]:
        """Return the texts of documents that are embedded."""
        read, owners = self._index.read(documents), self._index.owners(documents)
        rows = self._index.units({*owners.values()})
        above = {number: row.above for number, row in rows.items() if row.above is not None}
        wanted = {2 * at for at in (*owners.values(), *above.values()) if at in rows and rows[at].document is not None}
        names = {document >> 1: names for document, (names, _) in self._index.read(wanted).items()}
        found = dict[int, list[str]]()
        for document, (own, text) in read.items():
            number = owners[document]
            name, over = (next(iter(names.get(at, ())), "") for at in (number, above.get(number, 0)))
            if document & 1:
                said = [f"{name}: {text}" if name else text]
            else:
                said = [*own, f"{over} / {name}" if over and name else "", text]
            found[document] = [each for each in dict.fromkeys(map(_sound, said)) if self._reads(each)]
        return found

    def _reads(self, text: str) -> bool:
        reads = getattr(self._embedder, "reads", None)
        return bool(text.strip()) and (reads is None or bool(reads(text)))

    def _take(self, said: Mapping[int, Sequence[str]], vectors: "Iterable[Numbers | None]") -> None:
        """Keep the vectors of documents, of those that say the same by now."""
        given = iter(vectors)
        made = {document: [next(given) for _ in texts] for document, texts in said.items()}
        if self._rest_until == float("inf"):  # closed in between: nothing is written any more
            return
        with self._index.transaction() as db:
            there = {at for at in said if db.execute("select 1 from unread where document = ?", (at,)).fetchone()}
            for document, texts in self._texts_of(there).items():
                if texts == said[document]:
                    rows = [
                        (document, _key(digest_of(text)), each.astype("<f2").tobytes())
                        for text, each in zip(texts, made[document], strict=True)
                        if each is not None
                    ]
                    db.executemany("insert into vector(document, text, data) values (?, ?, ?)", rows)
                    db.execute("delete from unread where document = ?", (document,))

    def _check_model(self, vectors: "Sequence[Numbers | None]") -> None:
        """Begin again where the rows are of another model; refuse questions of another length than texts."""
        lengths = {len(each) for each in vectors if each is not None and self._rest_until < float("inf")}
        name, kept = self._embedder.name, self._index.kept("model")
        now = f"{name}, {max(lengths, default=0)} numbers"
        if not lengths or kept == now:
            return
        if kept and not self._is_given and not kept.startswith(f"{name}, "):
            raise ValueError(f"the vectors that are kept are those of {kept!r}")
        if len(self._embed([_PLAIN])[0]) not in lengths:
            raise ValueError(f"{name!r} gives questions and texts of different lengths")
        if kept:
            _log.warning("all texts are embedded again, by %s: those kept were by %s", now, kept)
            self._questions.clear()
            self._usual = None
        self._want_all(now)

    # -- comparing ------------------------------------------------------------

    def compare(self, question: str) -> Compared | None:
        """Return how near all documents are to a question; None where it has no vector, or none of them has.

        Cost: reads new rows, then one product: 4 ms among 10,000 vectors of 512 numbers, a second among a million.
        """
        asked, named = self._questions.get(_sound(question)), self._named.get(_sound(question))
        if asked is None or self._usual is None or named == []:
            return None
        with self._index.reading() as db:
            step = 1 if named is None else 1 << (self._count() // _SAMPLE).bit_length()
            matrix, documents, order, starts = self._index.remembered(("vectors", step), lambda: self._load(db, step))
            if not len(documents) or matrix.shape[1] != len(asked):
                return None
            # Without a BLAS, whose threads wait for each other on busy cores; in four digits, so that ties are some.
            similarities = np.round(np.einsum("ij,j->i", matrix, asked), 4)
            everyday = float((self._usual @ asked).sum())
            usual = (float(similarities.sum()) + everyday) / (len(similarities) + len(_USUAL))
            if named is not None:
                sql = "select document from vector where text in"
                read = partial(self._read, asked)
                near = sorted(read({at for (at,) in self._index._select(sql, map(_key, named), NUMBERS)}).items())
                found = np.array([at for at, _ in near], int), np.array([one for _, one in near], np.float32)
                return Compared(*found, usual, read)
        nearest = np.maximum.reduceat(similarities[order], starts)
        return Compared(documents[order][starts], nearest, usual)

    def _count(self) -> int:
        with self._index.reading() as db:
            count = "select count(*) from vector"
            return self._index.remembered("count", lambda: int(db.execute(count).fetchone()[0]))

    @decoder
    def _read(self, asked: "Numbers", documents: Collection[int]) -> dict[int, float]:
        """Return how near documents are, those that have a vector."""
        sql, near = "select document, data from vector where document in", dict[int, float]()
        for document, data in self._index._select(sql, documents, NUMBERS, BYTES):
            similarity = round(float(np.frombuffer(data, "<f2").astype(np.float32) @ asked), 4)
            near[document] = max(similarity, near.get(document, -1.0))
        return near

    @decoder
    def _load(self, db: sqlite3.Connection, step: int) -> "tuple[Numbers, Any, Any, Any]":
        """Bring the rows in memory up to date; return them, their documents, and where each document's begin.

        Args:
            db: The connection.
            step: Of how many rows one is held; above 1 they show what is usual.
        """
        if self._opening != (self._index.openings, step):
            self._opening, self._stamps = (self._index.openings, step), np.zeros(0, int)
            self._matrix: Numbers = np.zeros((0, 0), np.float32)
            self._documents = np.zeros(0, int)
        (count,) = db.execute("select count(*) from vector where stamp % ? = 0", (step,)).fetchone()
        last = int(self._stamps[-1]) if len(self._stamps) else 0
        sql = "select stamp, document, data from vector where stamp > ? and stamp % ? = 0 order by stamp"
        new = db.execute(sql, (last, step)).fetchall()
        if len(self._stamps) + len(new) != count:  # some are gone
            kept = db.execute("select stamp from vector where stamp <= ?", (last,)).fetchall()
            here = np.isin(self._stamps, np.array(kept, int))
            self._matrix, self._stamps = self._matrix[here], self._stamps[here]
            self._documents = self._documents[here]
        if new:
            size = len(new[0][2]) // 2
            rows = np.array([np.frombuffer(data, "<f2", size) for *_, data in new], np.float32)
            self._matrix = np.concatenate([self._matrix.reshape(-1, size), rows])
            self._stamps = np.concatenate([self._stamps, np.array([row[0] for row in new], int)])
            self._documents = np.concatenate([self._documents, np.array([row[1] for row in new], int)])
        order = np.argsort(self._documents, kind="stable")
        _, starts = np.unique(self._documents[order], return_index=True)
        return self._matrix, self._documents, order, starts


def _key(digest: bytes) -> int:
    return int.from_bytes(digest[:8], signed=True)


def _sound(text: str) -> str:
    """Return a text as it can be embedded: no service takes a lone surrogate."""
    return text[:TEXT_LIMIT].encode("utf-8", "replace").decode()
