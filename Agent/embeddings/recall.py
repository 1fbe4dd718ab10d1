"""Rank a tree's keywords by words and by meaning: `EmbeddingTree`, a tree with a `MeaningRanker`.

>>> import tempfile
>>> from keyword_tree.embeddings.embedder import HashingEmbedder
>>> embedder = HashingEmbedder([("car", "automobile")])
>>> with tempfile.TemporaryDirectory() as folder, EmbeddingTree(folder, embedder, trust=1.0) as tree:
...     _ = [tree.CreateKeyword(name) for name in ("car", "ship", "train")]
...     [(node.name, confidence > 0.3) for node, confidence in tree.RankCandidates("automobile", 1)]
[('car', True)]

The words rank as they do without a model, and their best are joined by the keywords whose texts are nearest:

    meaning  = nearness² / (nearness² + USUAL²)                   the scale of the words: 0.5 is an answer
    nearness = trust · (similarity - average) / (1 - average)     similarity: of the nearest of its texts;
               at least DECAY · that of its parent

`finding.calibration.fuse` makes one number of both, order and confidence: meaning decides as far as words are unsure.
Nearness is 0 for a text like the average one and 1 for one that says the query itself, so that a model whose
similarities all lie between 0.7 and 0.9 counts as one that uses the whole scale. `trust` is what the model showed to
know of the query's scripts, see `scripts`.

A query waits for its own vector, `patience_s` at most, and an eighth of that for texts that have none yet; a thread
embeds up to 64 of them for each query, see `worker`, and `EmbeddingTree.catch_up` all. Until then a keyword ranks by
its words. Where the model fails or is late, words rank alone, and `Vectors.failure` says so; `Fits.note` says both.
"""

import logging
import os
import reprlib
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Any

from typing_extensions import override

from ..finding.calibration import fuse
from ..finding.texts import passages
from ..finding.tree import TreeRanker
from ..keyword_tree import Evidence, Fits, InvalidInputError, KeywordTexts, KeywordTree, StoreError, TreeView
from .embedder import Embedder, check_embedder, renew_after_fork
from .scripts import LITTLE_TRUST, PROBES, check_trust, everyday_words, probe, scripts_of, trust_in
from .vectors import TEXT_LIMIT, Vectors, path_for
from .worker import PATIENCE_S, Worker, check_patience

__all__ = ["EmbeddingTree", "MeaningRanker"]

USUAL = 0.4
"""The nearness that is an answer as often as not."""

DECAY = 0.8
"""What a keyword has of its parent's nearness; as with words, see `finding.score`."""

_NEAREST = 200  # texts, and keywords: as many as the words bring
_PASSAGE = 400  # characters of an info that are embedded together; a small model blurs more
_BEGINNING = 80  # characters of an info by which it is known
_PIECE = 1_000  # keywords that are read at a time
_log = logging.getLogger(__name__)


class Knowing:
    """What a model knows of scripts; each is asked for once. Any number of threads may use it.

    Args:
        vectors: The model's.
        trust: What is not to be asked for, see `EmbeddingTree`.
        enough: A script that gets less is logged, once.

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
            message = "%s is not trusted in %s (%s): words rank alone there, unless `trust` says otherwise"
            _log.warning(message, self._vectors.model, script, why)


class MeaningRanker:
    """The tree's interface `Ranker`: words and meaning as one ranking. Any number of threads may use it.

    Args:
        view: The tree.
        embedder: The model. Its vectors are kept in the folder `indexes` of the tree, in memory where it has none.
        trust: As in `EmbeddingTree`.
        patience_s: As in `EmbeddingTree`.
        infos_embedded: As in `EmbeddingTree`.

    Raises:
        InvalidInputError: `embedder` is none, or `trust`, `patience_s` or `infos_embedded` is not what it should be.
    """

    def __init__(
        self,
        view: TreeView,
        embedder: Embedder,
        *,
        trust: float | Mapping[str, float] | None = None,
        patience_s: float = PATIENCE_S,
        infos_embedded: int | None = None,
    ) -> None:
        check_patience(patience_s)
        check_embedder(embedder)
        if infos_embedded is not None and (type(infos_embedded) is not int or infos_embedded < 0):
            raise InvalidInputError(f"infos_embedded must be a number from 0 on, or None: {infos_embedded!r:.60}")
        self._view = view
        self._words = TreeRanker(view)
        self.vectors = Vectors(embedder, path_for(view.data_dir, "keywords", embedder.name) if view.data_dir else None)
        self._infos_embedded = sys.maxsize if infos_embedded is None else infos_embedded
        self._worker, self._patience_s = Worker(self.vectors), patience_s
        self._knowing = Knowing(self.vectors, trust)
        self._lock: Any = threading.RLock()  # guards what follows; Any: typeshed does not know `_is_owned`
        self._position: str | None = None  # of the log, up to which it has followed; None: everything is to be read
        self._texts_of: dict[str, dict[str, str]] = {}  # id -> text -> how the info begins whose passage it is, or ""
        self._ids_of: dict[str, dict[str, None]] = {}
        self._parent_of: dict[str, str] = {}

    @property
    def trust(self) -> dict[str, float]:
        """Script → how far the model is trusted there, 0 to 1, of the scripts that came up so far."""
        return self._knowing.by_script

    def Fit(  # noqa: N802  the interface's names
        self, query: str, more: str = "", *, is_placing: bool = False, count: int = 50, among: Collection[str] = ()
    ) -> Fits:
        """Return the keywords that fit a text, or the parents that a new keyword could have; see `Ranker.Fit`.

        Parents rank by words; what is near follows, without evidence.

        Cost: as by words, and waits for the query's vector, `patience_s` at most; none where the query is known and no
        text waits.
        """
        text = f"{query[: TEXT_LIMIT // 4]}: {more}"[:TEXT_LIMIT] if more else query[:TEXT_LIMIT]
        self.follow()
        self._worker.ask([text, *everyday_words(text)], self._patience_s)
        fits = self._words.Fit(query, more, is_placing=is_placing, count=max(count, _NEAREST), among=among)
        is_alone, waiting = self.vectors.vector_of(text) is None and bool(self.vectors.failure), self.vectors.waiting
        note = f"texts that have no vector yet, and rank by words: {waiting}" if waiting else ""
        note = self.vectors.note if is_alone else note
        fits = fits._replace(note="; ".join(filter(None, (fits.note, note))))
        if is_alone:
            return fits
        near = self._nearest(text)
        if is_placing:  # what is near to a new keyword is as often its sibling as its parent
            return fits._replace(ids=list(dict.fromkeys((*fits.ids, *near))))
        nearest = self._nearness(text, dict.fromkeys((*fits.ids, *near, *among)))
        words = {id: fits.evidence[id].score for id in nearest if id in fits.evidence}
        meaning = {id: nearness**2 / (nearness**2 + USUAL**2) for id, (nearness, _) in nearest.items()}
        evidence = {}
        for id, score in fuse(words, fits.certainty, meaning).items():
            found, beginning = fits.evidence.get(id, Evidence(0.0)), nearest[id][1]
            is_meant = meaning[id] > fits.certainty * found.score
            evidence[id] = Evidence(round(score, 4), found.excerpt, beginning if is_meant else "")
        ranked = [id for id in dict.fromkeys((*fits.ids, *near)) if evidence[id].score]
        return fits._replace(ids=sorted(ranked, key=lambda id: -evidence[id].score), evidence=evidence)

    def Close(self) -> None:  # noqa: N802
        """Ask the model no more. Cost: waits for a call that is under way, `patience_s` at most; not for a late one."""
        self._words.Close()
        self._worker.close(self._patience_s)

    def catch_up(self, limit: int | None = None) -> int:
        """Embed what waits, as `EmbeddingTree.catch_up`."""
        self.follow()
        return self._worker.catch_up(limit)

    def forget(self) -> None:
        """Keep no vector of what is not in the tree."""
        self.follow()
        self.vectors.forget()

    # -- comparing ------------------------------------------------------------

    def _nearest(self, text: str) -> list[str]:
        """Return the keywords of the nearest texts, nearest first."""
        with self._lock:
            nearest = self.vectors.nearest(text, _NEAREST)
            ids = dict.fromkeys(id for _, each in nearest for id in nsmallest(_NEAREST, self._ids_of.get(each, ())))
            return list(islice(ids, _NEAREST))

    def _nearness(self, text: str, ids: Iterable[str]) -> dict[str, tuple[float, str]]:
        """Return id → nearness, 0 to 1, and how the info begins that has the nearest of its texts, or ""."""
        with self._lock:
            parents = {id: self._parent_of.get(id, id) for id in ids}
            held = {id: self._texts_of.get(id, {}) for id in (*parents, *parents.values())}
        average, trust = self._average(text), self._knowing.trust(text)
        found = iter(self.vectors.similarities(text, [each for texts in held.values() for each in texts]))
        own = dict[str, tuple[float, str]]()
        for id, texts in held.items():
            pairs = ((next(found), beginning) for beginning in texts.values())
            similarity, beginning = max(pairs, default=(-1.0, ""), key=lambda pair: pair[0])
            share = trust * (similarity - average) / max(1e-4, 1.0 - average)
            own[id] = min(1.0, max(0.0, share)), beginning
        return {id: max(own[id], (DECAY * own[parent][0], "")) for id, parent in parents.items()}

    def _average(self, text: str) -> float:
        """Return how near the texts are on average; everyday words count as one more, for a tree of one or two."""
        count, asked = len(self.vectors), self.vectors.vector_of(text)
        words = (self.vectors.vector_of(word) for word in everyday_words(text))
        usual = [float(asked @ word) for word in words if asked is not None and word is not None]
        return (self.vectors.average(text) * count + sum(usual) / max(1, len(usual))) / (count + 1)

    # -- following ------------------------------------------------------------

    def follow(self) -> None:
        """Take in what has changed. Cost: decodes the keywords that did, all of them the first time."""
        if self._lock._is_owned():
            raise StoreError("a signal handler cannot rank while its own thread does")
        with self._lock:
            position = self._view.Position()
            if position == self._position:
                return
            changed = self._view.ChangedSince(self._position) if self._position else None
            self._position = None  # until all is taken in: how far it comes is unknown
            everything = (*self._view.Ids(), *self._texts_of) if changed is None else ()
            left = (id for id in changed or dict.fromkeys(everything) if id != "root")
            while piece := list(islice(left, _PIECE)):
                found = {each.id: each for each in self._view.Read(piece)}
                for id in piece:
                    self._hold(id, found.get(id))
            self._position = position

    def _read(self, keyword: KeywordTexts) -> dict[str, str]:
        """Return what of a keyword is embedded, and of each passage how its info begins."""
        texts = dict.fromkeys((*keyword.names, keyword.description, *keyword.queries), "")
        newest = keyword.info_ids[max(0, len(keyword.info_ids) - self._infos_embedded) :]
        for _, content in self._view.Contents(newest):  # an info seldom says what it is about
            for passage in passages(content[:TEXT_LIMIT], _PASSAGE):
                texts[f"{keyword.names[0]}: {passage}"] = content[:_BEGINNING]
        return {text[:TEXT_LIMIT]: beginning for text, beginning in texts.items() if text.strip()}

    def _hold(self, id: str, keyword: KeywordTexts | None) -> None:
        texts, before = self._read(keyword) if keyword else {}, self._texts_of.pop(id, {})
        self._parent_of.pop(id, None)
        if keyword:
            self._texts_of[id] = texts
            if keyword.parent_id not in (None, "root"):
                self._parent_of[id] = keyword.parent_id
        for text in [each for each in texts if each not in before]:  # not a set: they are embedded in this order
            self._ids_of.setdefault(text, {})[id] = None
            self.vectors.add(text)
        for text in before.keys() - texts.keys():
            self.vectors.remove(text)
            del self._ids_of[text][id]
            if not self._ids_of[text]:
                del self._ids_of[text]


class EmbeddingTree(KeywordTree):
    """A `KeywordTree` that ranks by words and by meaning.

    Args:
        data_dir: As in `KeywordTree`. The vectors are kept in its folder `indexes`, and may be deleted at any time.
        embedder: Turns texts into vectors.
        trust: How far meaning counts, from 0, hardly (as 0.02), to 1, fully: for texts in every script, or by script
            (`{"CJK": 1.0}`; a script's name is the first word of its letters' names in Unicode, see `scripts.PROBES`).
            The model is tried, with eight pairs of everyday words, for every other script, and with None for all. A
            model of English that is trusted in Chinese brings noise there.
        patience_s: Seconds that a search waits for its question's vector. A model that is late has failed: words rank
            alone, a log line says so once, and it is left alone for half a minute.
        infos_embedded: So many infos of a keyword, the newest, are embedded, each by its first 2,000 characters; None
            is all. With 0 the model reads names, aliases, descriptions and confirmed queries alone: a large tree is
            read sooner.
        options: As in `KeywordTree`, but for `ranker`.

    Raises:
        InvalidInputError: `embedder` has no name or no method `embed`, `trust`, `patience_s` or `infos_embedded` is not
            what it should be, or `ranker` is given; and as in `KeywordTree`.
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
        if "ranker" in options:
            message = "ranker cannot be chosen here, EmbeddingTree brings its own (KeywordTree takes any)"
            raise InvalidInputError(f"{message}: {reprlib.repr(options['ranker'])}")
        make = partial(
            MeaningRanker, embedder=embedder, trust=trust, patience_s=patience_s, infos_embedded=infos_embedded
        )
        super().__init__(data_dir, ranker=make, **options)  # type: ignore[arg-type]  # a path is as good

    @property
    def recall(self) -> MeaningRanker:
        """The ranking; it reads the keywords when it is first asked."""
        self._engine.CheckOpen()  # after a fork it is made again
        ranker: MeaningRanker = self._ranker
        return ranker

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
    def CompactStorage(self, keep_history: bool = True) -> dict[str, Any]:
        """As in `KeywordTree`; without history the vectors of what was deleted go, too."""
        report = super().CompactStorage(keep_history)
        if not keep_history:
            self.recall.forget()
        return report
