"""Rank a tree's keywords by words and by likeness of meaning: `EmbeddingTree`, the door.

>>> import tempfile
>>> from keyword_tree.embeddings.embedder import HashingEmbedder
>>> embedder = HashingEmbedder([("car", "automobile")])
>>> with tempfile.TemporaryDirectory() as folder, EmbeddingTree(folder, embedder, trust=1.0) as tree:
...     _ = [tree.CreateKeyword(name) for name in ("car", "ship", "train")]
...     [(node.name, confidence > 0.3) for node, confidence in tree.RankCandidates("automobile", 1)]
[('car', True)]

The words rank as they do without a model; likeness adds to what they say, it replaces nothing:

    gain(node)  = WEIGHT · nearness · what the query could gain by words at most
    nearness    = trust · (likeness − average) / (1 − average)      likeness: of the nearest of the node's texts

So where words explain a query, they decide; where they explain little, likeness does. Nearness is 0 for a node like
the average one and 1 for one that says the query itself: a model whose likenesses all lie between 0.7 and 0.9 counts
as one that uses the whole scale, and what is near to nothing gains little. Nor is it likeness that a text is near to
all that is asked, see `Vectors.nearest`. A gain is *heard* as one by a word is: what lies beneath a keyword that is
near has four fifths of it. `trust` is what the model showed to know of the query's scripts, see `scripts`; a log line
tells which one it does not know. Where no word is known here, likeness ranks alone.

A confidence by likeness is nearness to the power of 1½: of questions that nothing answers, the nearest keywords have
0.1 to 0.25, and as many should be refused as by words alone.

A new keyword is compared by its name and description, as one text.

Who asks waits for the model, nobody else does: it is called before the tree's lock is taken, in a thread of its own,
see `worker`. A ranking waits for its query's vector, `patience_s` at most, and an eighth of that for texts that have
none yet; that thread then embeds up to 64 of them, and `EmbeddingTree.catch_up` all. Until then a keyword ranks by its
words. Where the model fails, also at a plain word, or where it is late, the words rank alone, `Vectors.failure` says
why, and a log line says it once. A text that the model refuses ranks by its words; `Vectors.refused` counts it.
"""

import logging
import os
import reprlib
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any

from typing_extensions import override

from ..keyword_tree import InvalidInputError, KeywordTree
from ..ranking import Ranking, Recall, Texts, _LexicalRecall
from .embedder import Embedder, check_embedder, renew_after_fork
from .scripts import LITTLE_TRUST, PROBES, check_trust, everyday_words, probe, scripts_of, trust_in
from .vectors import TEXT_LIMIT, Vectors, path_for
from .worker import PATIENCE_S, Worker, check_patience

__all__ = ["EmbeddingRecall", "EmbeddingTree"]

WEIGHT = 0.8
"""What a keyword gains that says the query itself, beside what the query could gain by words."""

_NEAREST = 200  # texts, and nodes of a ranking: as many as the words bring
_LIKENESS = "≈"  # the term that stands for it
_DOUBT = 1.5  # power: what is halfway to the query itself answers it with a confidence of 0.35
_log = logging.getLogger(__name__)


class Knowing:
    """What a model knows of scripts; each is asked for once. Any number of threads may use it.

    Args:
        vectors: The model's.
        trust: What is not to be asked for, see `EmbeddingTree`.
        enough: A script that gets less is told in the log, once.

    Raises:
        InvalidInputError: `trust` is not what it should be.
    """

    def __init__(
        self, vectors: Vectors, trust: float | Mapping[str, float] | None = None, enough: float = LITTLE_TRUST
    ) -> None:
        check_trust(trust)
        self._vectors, self._enough = vectors, enough
        self._renew_locks()
        renew_after_fork(self)
        self._everywhere = None if trust is None or isinstance(trust, Mapping) else float(trust)
        given = trust if isinstance(trust, Mapping) else {}
        self._known = {script: float(value) for script, value in given.items()}

    def _renew_locks(self) -> None:
        self._lock = threading.Lock()

    @property
    def by_script(self) -> dict[str, float]:
        """Script → trust, of the scripts that came up so far, and of those that were given."""
        return dict(self._known)

    def trust(self, text: str) -> float:
        """Return 0 to 1; a script whose words were not embedded yet counts as not known."""
        scripts = scripts_of(text)
        for script in scripts:
            if script not in self._known:
                self._learn(script)
        return trust_in(scripts, self._known)

    def _learn(self, script: str) -> None:
        trust, why = self._everywhere, ""
        if trust is None:
            found = [self._vectors.vector_of(word) for word in PROBES.get(script, ())]
            vectors = [vector for vector in found if vector is not None]
            if len(vectors) < len(found):
                return
            trust = probe(vectors) if vectors else 0.0
            why = f"{trust:.2f} of 1" if vectors else "no words to try it with"
        with self._lock:
            is_news = script not in self._known
            self._known[script] = trust
        if why and is_news and trust < self._enough:
            told = "%s is not trusted in %s (%s): words rank alone there, unless `trust` says otherwise"
            _log.warning(told, self._vectors.model, script, why)


class EmbeddingRecall:
    """The tree's port `Recall`: words and likeness as one ranking. The ranking's lock guards all but `Prepare`.

    Args:
        embedder: The model.
        path: The file of its vectors; None keeps them in memory.
        words: Makes the ranking by words.
        trust: As in `EmbeddingTree`.
        patience_s: As in `EmbeddingTree`.
        infos_embedded: As in `EmbeddingTree`.

    Raises:
        InvalidInputError: `embedder` is none, or `trust`, `patience_s` or `infos_embedded` is not what it should be.
    """

    def __init__(
        self,
        embedder: Embedder,
        path: Path | None = None,
        words: Callable[[], Recall] = _LexicalRecall,
        trust: float | Mapping[str, float] | None = None,
        patience_s: float = PATIENCE_S,
        infos_embedded: int | None = None,
    ) -> None:
        check_patience(patience_s)
        _check_infos_embedded(infos_embedded)
        self.vectors = Vectors(embedder, path)
        self._infos_embedded = sys.maxsize if infos_embedded is None else infos_embedded
        self._worker, self._patience_s = Worker(self.vectors), patience_s
        self._words = words()
        self._knowing = Knowing(self.vectors, trust)
        self._texts_of: dict[str, tuple[str, ...]] = {}
        self._ids_of: dict[str, dict[str, None]] = {}
        self._asked: object = None  # the last text that was compared
        self._nearest_of: dict[str, tuple[float, str]] = {}  # id -> its text that is nearest to that, and how near

    @property
    def trust(self) -> dict[str, float]:
        """Script → how far the model is trusted there, 0 to 1, of the scripts that came up so far."""
        return self._knowing.by_script

    def Add(self, id: str, texts: Texts) -> None:  # noqa: N802  the port's names
        """Take in a node that is not there."""
        self._asked = None
        self._words.Add(id, texts)
        names, others, infos = texts
        newest = infos[max(0, len(infos) - self._infos_embedded) :]
        about = [f"{names[0]}: {info}" for info in newest]  # an info seldom says what it is about
        said = self._texts_of[id] = tuple(dict.fromkeys(text[:TEXT_LIMIT] for text in (*names, *others, *about)))
        for text in said:
            self._ids_of.setdefault(text, {})[id] = None
            self.vectors.add(text)

    def Remove(self, id: str, texts: Texts) -> None:  # noqa: N802
        """Forget a node; `texts` are those that it came with."""
        self._asked = None
        self._words.Remove(id, texts)
        for text in self._texts_of.pop(id):
            self.vectors.remove(text)
            del self._ids_of[text][id]
            if not self._ids_of[text]:
                del self._ids_of[text]

    def Prepare(self, query: str, description: str = "") -> None:  # noqa: N802
        """Embed a query, and some of the texts that wait. The tree calls it before `Rank`, outside of every lock.

        Cost: waits for a call of the model, as long as `patience_s` allows; none where the query is known and no text
        waits.
        """
        text = _as_one(query, description)
        self._worker.ask([text, *everyday_words(text)], self._patience_s)
        self._knowing.trust(text)  # now, since it may have to be told, and no lock is held

    def catch_up(self, limit: int | None = None) -> int:
        """Embed what waits, as `EmbeddingTree.catch_up`."""
        return self._worker.catch_up(limit)

    def close(self) -> None:
        """Ask the model no more. Cost: waits for a call that is under way, `patience_s` at most; not for a late one."""
        self._worker.close(self._patience_s)

    def Rank(self, query: str, description: str = "") -> Ranking:  # noqa: N802
        """Compare a query, or a new keyword's name and description, with all nodes; by words alone if not prepared."""
        ranking = self._words.Rank(query, description)
        text = _as_one(query, description)
        nearest = self.vectors.nearest(text, _NEAREST)
        if not nearest:
            return ranking
        # A query of which no word has any weight is all likeness.
        most = WEIGHT * (sum(ranking.weights.values()) or 1.0)

        def likeness_gains(ids: Sequence[str]) -> dict[str, float]:
            return {id: most * near for id, near in zip(ids, self.nearness(text, ids), strict=True)}

        def gains(wanted: Collection[str], names_only: bool) -> dict[str, dict[str, float]]:
            found = ranking.Gains(wanted, names_only)
            for id, gain in likeness_gains(list(wanted)).items():
                if gain:
                    found.setdefault(id, {})[_LIKENESS] = gain
            return found

        scores = {id: score for score, id in ranking.best}
        bearers = (nsmallest(_NEAREST, self._ids_of.get(said, ())) for _, said in nearest)
        near = islice(dict.fromkeys(id for ids in bearers for id in ids), _NEAREST)
        more = [id for id in near if id not in scores]
        scores |= {id: sum(own.values()) for id, own in ranking.Gains(more, False).items()}
        wanted = list(dict.fromkeys([*scores, *more]))
        best = sorted((-gain - scores.get(id, 0.0), id) for id, gain in likeness_gains(wanted).items())
        # Words that nobody has say nothing of what is meant; nor whether it is a theme or what lies beneath.
        weights = {**(ranking.weights if ranking.best else {}), _LIKENESS: most}
        best_first = [(-score, id) for score, id in best[:_NEAREST]]
        return Ranking(best_first, weights, gains, partial(self.confidence, text), partial(self.nearest_info, text))

    def likenesses(self, text: str, ids: Sequence[str]) -> list[float]:
        """Return how near the nearest text of each node is to one that was prepared, -1 where that is not known."""
        return [likeness for likeness, _ in self._find_nearest(text, ids)]

    def nearest_info(self, query: str, id: str) -> str:
        """Return the info by which a node is nearest, "" where another of its texts is nearer."""
        ((likeness, text),) = self._find_nearest(query, [id])
        about = f"{self._texts_of.get(id, ('',))[0]}: "
        return text.removeprefix(about) if likeness >= 0 and text.startswith(about) else ""

    def _find_nearest(self, text: str, ids: Sequence[str]) -> list[tuple[float, str]]:
        if self._asked != (text, self.vectors.version):
            self._asked, self._nearest_of = (text, self.vectors.version), {}
        new = [id for id in ids if id not in self._nearest_of]  # a ranking asks for most of them several times
        said = [self._texts_of.get(id, ()) for id in new]
        found = self.vectors.likenesses(text, [each for texts in said for each in texts])
        end = 0
        for id, texts in zip(new, said, strict=True):
            begin, end = end, end + len(texts)
            nearest = max(range(begin, end), key=found.__getitem__, default=-1)
            self._nearest_of[id] = (found[nearest], texts[nearest - begin]) if texts else (-1.0, "")
        return [self._nearest_of[id] for id in ids]

    def confidence(self, query: str, ids: Sequence[str]) -> list[float]:
        """Return 0 to 1 for each node: how sure its nearness makes it that it is meant."""
        return [near**_DOUBT for near in self.nearness(query, ids)]

    def nearness(self, query: str, ids: Sequence[str]) -> list[float]:
        """Return 0 to 1 for each node: how far it is from the average node to one that says the query itself."""
        average, trust = self.vectors.average(query), self._knowing.trust(query)
        share = (trust * (near - average) / max(1e-4, 1.0 - average) for near in self.likenesses(query, ids))
        return [min(1.0, max(0.0, each)) for each in share]


def _as_one(query: str, description: str) -> str:
    """Return the text that is compared."""
    return f"{query[: TEXT_LIMIT // 4]}: {description}"[:TEXT_LIMIT] if description else query[:TEXT_LIMIT]


def _check_infos_embedded(count: int | None) -> None:
    if isinstance(count, bool) or not isinstance(count, (int, type(None))) or (count is not None and count < 0):
        raise InvalidInputError(f"infos_embedded must be a number from 0 on, or None: {reprlib.repr(count)}")


class EmbeddingTree(KeywordTree):
    """A `KeywordTree` that ranks by words and by likeness.

    Args:
        data_dir: As in `KeywordTree`. The vectors are kept in its folder `indexes`, and may be deleted at any time.
        embedder: Who turns texts into vectors.
        trust: How far likeness counts, from 0, hardly (as 0.02), to 1, fully: for texts in every script, or by script
            (`{"CJK": 1.0}`; a script's name is the first word of its letters' names in Unicode, see `scripts.PROBES`).
            The model is tried, with eight pairs of everyday words, for every script that is not told of here; None
            tells of none. A model of English that is told to be trusted in Chinese brings noise there.
        patience_s: Seconds that a search waits for its question's vector. A model that is late has failed: words rank
            alone, a log line says so once, and it is left alone for half a minute.
        infos_embedded: So many infos of a keyword, the newest, are embedded; None is all that `infos_heard` lets words
            find. With 0 the model reads names, aliases, descriptions and confirmed queries alone: a large tree is read
            sooner.
        options: As in `KeywordTree`, but for `recall`.

    Raises:
        InvalidInputError: `embedder` has no name or no method `embed`, `trust`, `patience_s` or `infos_embedded` is not
            what it should be, or `recall` is given; and as in `KeywordTree`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        embedder: Embedder,
        *,
        trust: float | Mapping[str, float] | None = None,
        patience_s: float = PATIENCE_S,
        infos_embedded: int | None = None,
        **options: Any,
    ) -> None:
        check_embedder(embedder)
        check_trust(trust)
        check_patience(patience_s)
        _check_infos_embedded(infos_embedded)
        if "recall" in options:
            told = "recall cannot be chosen here, EmbeddingTree brings its own (KeywordTree takes any)"
            raise InvalidInputError(f"{told}: {reprlib.repr(options['recall'])}")

        self._made: EmbeddingRecall | None = None

        def make_recall() -> EmbeddingRecall:
            self._close_recall()  # the one before may be embedding still, what is to be forgotten now
            path = path_for(self.data_dir, "keywords", embedder.name)
            self._made = EmbeddingRecall(
                embedder, path, trust=trust, patience_s=patience_s, infos_embedded=infos_embedded
            )
            return self._made

        folder = os.fspath(data_dir) if isinstance(data_dir, os.PathLike) else data_dir
        super().__init__(folder, recall=make_recall, **options)

    @property
    def recall(self) -> EmbeddingRecall:
        """The ranking; made from all keywords when it is first asked for."""
        with self._ranker.Asking():
            recall = self._ranker._recall
            assert isinstance(recall, EmbeddingRecall)
            return recall

    def catch_up(self, limit: int | None = None) -> int:
        """Embed all that waits, and return how many texts still do: none, unless there is a limit, or the model fails.

        Args:
            limit: At most so many texts; None is all.

        A text that the model refuses is not counted, but in `recall.vectors.refused`.

        Worth a call after an import; otherwise searches bring it along. It waits as long as the model does, and asks at
        once, also where the model has just failed and searches would leave it alone for half a minute.

        Cost: a call of the model for each 128 texts. Where none waits, one for a single text after opening and after a
        failure: to see whether the model answers, and in the dimension of what is on disk. A text that is refused
        costs about a dozen more.
        """
        self.Refresh()
        return self.recall.catch_up(limit)

    @override
    def Close(self) -> None:
        """Close the tree, as `KeywordTree` does, and wait for a call of the model that is under way, if it is in time.

        What waits has to be embedded when the tree is open again, as has what a late call brings.
        """
        super().Close()
        self._close_recall()

    def _close_recall(self) -> None:
        if self._made is not None:
            self._made.close()

    @override
    def CompactStorage(self, keep_history: bool = True) -> dict[str, Any]:
        """Begin the log anew with what there is; without history the vectors of what was deleted go, too."""
        before = None if keep_history else self.recall.vectors
        report = super().CompactStorage(keep_history)
        if before is not None:  # it may not know what others deleted; the tree was opened anew, and its ranking does
            vectors = self.recall.vectors
            vectors.take_over(before)
            vectors.forget()
        return report
