"""Find memories for a question: by what they say and by what they hang on, scored, filtered, with the reasons.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     tea = tree.CreateKeyword("茶 tea")
...     _ = tree.CreateInfo("龙井用八十度的水泡三分钟。", "notes", [tea.id])
...     _ = tree.CreateInfo("Black tea wants boiling water.", "notes", [tea.id])
...     found = MemoryRetriever(tree).retrieve("龙井怎么泡?")
>>> [(memory.info.content, memory.path) for memory in found]
[('龙井用八十度的水泡三分钟。', ['茶 tea'])]
>>> print(found[0].explain())
0.09 = 1 × 0.09 text overlap

Two channels look side by side: the content channel asks a full-text index over the tree's infos, which follows
`Changes()`; the graph channel asks the graph for entities that have the question's keywords, walks from them, and takes
the infos of the keywords that it comes to. What both found is scored by a `ScoringStrategy`, cut below `min_score`, and
the first are returned. The text overlap is the full-text index's own score, not a Dice coefficient over the whole text:
that one shrinks with the length of the body and cannot tell a rare word from a common one. What hangs on a keyword that
the question names is found by that name as well: the words that the name says and the text does not count twice.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from Agent.keyword_tree import Info, InvalidInputError, KeywordTree
from Agent.memory.following import Follower
from Agent.memory.fulltext import FullTextIndex, RankingWeights, split_passages, terms_of
from Agent.memory.graph import KnowledgeGraph, RelationDirection, TreeGraph
from Agent.memory.keywords import ChineseKeywordExtractor, KeywordExtractor
from Agent.memory.scoring import (
    HALF_LIFE_S,
    GraphDistance,
    ScoreBreakdown,
    ScoringStrategy,
    TextOverlap,
    reference_count,
    temporal_decay,
)

__all__ = [
    "ContentIndex",
    "Filters",
    "Known",
    "MemoryRetriever",
    "Ranker",
    "RetrievalStrategy",
    "Retrieved",
    "RetrieverConfig",
]

OWN = "memory"
"""The key of an info's metadata that a memory's own fields stand under; see `store`."""


class RetrievalStrategy(str, Enum):  # noqa: UP042  as the enumerations of the library
    """Where to look."""

    HYBRID = "hybrid"
    """In both channels (the default)."""
    KNOWLEDGE_ONLY = "knowledge_only"
    """In what the infos say."""
    GRAPH_ONLY = "graph_only"
    """In what the keywords hang together with."""


class Ranker(Protocol):
    """Another ranking of infos, as one by embeddings; fused with the full-text one."""

    def Add(self, id: str, texts: Sequence[tuple[str, float]]) -> None:  # noqa: N802  the library's port `Recall`
        """Index an info by its passages, each with its weight; replaces what was there."""

    def Remove(self, id: str) -> None:  # noqa: N802
        """Forget an info; one that is not there is no error."""

    def Rank(self, query: str) -> list[tuple[float, str]]:  # noqa: N802
        """Return (score, id), best first."""


@dataclass(frozen=True)
class Filters:
    """Which memories may be found; what is not given excludes nothing."""

    kinds: Collection[str] | None = None
    """`"fact"`, `"episode"`, `"pattern"`, `"skill"`; an info that `MemoryStore` did not write is a fact."""
    sources: Collection[str] | None = None
    """Where it is from, exactly."""
    since: float | None = None
    """Seconds since the epoch, UTC: not older than this."""
    until: float | None = None
    """Seconds since the epoch, UTC: older than this."""
    metadata: Mapping[str, Any] | None = None
    """Keys that its metadata must have, with these values."""

    def __post_init__(self) -> None:
        for name in ("kinds", "sources"):
            if isinstance(getattr(self, name), str):  # each of its characters would be taken for one
                raise InvalidInputError(f"{name} must be a list of strings, not {getattr(self, name)!r}")

    def accept(self, info: "Known") -> bool:
        """Tell whether an info may be found."""
        return (
            (self.kinds is None or info.kind in self.kinds)
            and (self.sources is None or info.source in self.sources)
            and (self.since is None or info.time >= self.since)
            and (self.until is None or info.time < self.until)
            and all(
                key in info.metadata and info.metadata[key] == value for key, value in (self.metadata or {}).items()
            )
        )


@dataclass(frozen=True)
class RetrieverConfig:
    """How to look, and how to weigh what was found."""

    strategy: RetrievalStrategy = RetrievalStrategy.HYBRID
    """Which channels."""
    scoring: ScoringStrategy | None = None
    """What counts; by itself the text overlap, and with `GRAPH_ONLY` the distance in the graph."""
    min_score: float = 0.0
    """What scores below is not returned; nor is what scores 0."""
    depth: int = 1
    """So many steps are walked in the graph."""
    half_life_s: float = HALF_LIFE_S
    """After so many seconds a memory counts half as new."""
    ranking: RankingWeights = field(default_factory=RankingWeights)
    """What counts in the content channel."""


@dataclass
class Retrieved:
    """A memory that was found, and why."""

    info: Info
    """The info."""
    score: float
    """From 0 to 1, by the strategy."""
    breakdown: ScoreBreakdown
    """The four figures."""
    path: list[str]
    """Names from the top to its keyword, the best fitting one where it has several; empty where it has none."""
    passage: str
    """The part of it that fits best."""
    scoring: ScoringStrategy = field(repr=False)
    """What weighed the figures."""

    def explain(self) -> str:
        """Return the sum as a person would write it down."""
        return self.breakdown.explain(self.scoring)


@dataclass
class Known:
    """What filters and scores need of an info."""

    kind: str
    source: str
    time: float
    metadata: Mapping[str, Any]
    references: tuple[str, ...]
    """The infos that it links to."""


class ContentIndex:
    """A full-text index over a tree's infos, which follows the log: whoever wrote, undid, restored or compacted.

    What was superseded is left out.

    Args:
        tree: Whose infos.
        weights: What counts besides BM25.
        ranker: Another ranking to be kept along.

    Cost: reads the log when it is first asked: some 0.1 ms for a memory.
    """

    def __init__(self, tree: KeywordTree, weights: RankingWeights | None = None, ranker: Ranker | None = None) -> None:
        self._follower = Follower(tree)
        self._weights = weights
        self._ranker = ranker
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        for id in list(getattr(self, "known", ())) if self._ranker else ():
            self._ranker.Remove(id) if self._ranker else None
        self.text = FullTextIndex(self._weights)
        self.known: dict[str, Known] = {}
        self.referred: dict[str, int] = {}

    def catch_up(self) -> None:
        """Take in what is new in the log."""
        with self._lock:
            news = self._follower.catch_up()
            if news.from_nothing:
                self._forget()
            for info in {info.id: info for info in news.infos}.values():
                self._remove(info.id)
                if not info.deleted and not own_fields(info).get("superseded_by"):
                    self._add(info)

    def _add(self, info: Info) -> None:
        own = own_fields(info)
        # Metadata is anybody's: what has not the form that `MemoryStore` writes counts as not written.
        links, time_s = own.get("links"), own.get("time")
        linked = tuple(id for id in links if isinstance(id, str)) if isinstance(links, list) else ()
        time_s = time_s if isinstance(time_s, (int, float)) else info.created_at
        self.known[info.id] = Known(str(own.get("kind", "fact")), info.source, time_s, info.metadata, linked)
        for id in linked:
            self.referred[id] = self.referred.get(id, 0) + 1
        passages = split_passages(info.content)
        self.text.add(info.id, passages, info.source or None)
        if self._ranker:
            self._ranker.Add(info.id, [(passage, 1.0) for passage in passages])

    def _remove(self, id: str) -> None:
        known = self.known.pop(id, None)
        if known is None:
            return
        for linked in known.references:
            self.referred[linked] -= 1
        self.text.remove(id)
        if self._ranker:
            self._ranker.Remove(id)

    def rank(self, query: str, limit: int, accept: Callable[[str], bool] | None) -> dict[str, tuple[float, int]]:
        """Return the infos that say most of what a query asks for: id → (0 to 1, passage)."""
        hits = self.text.rank(query, limit, accept)
        found = {hit.id: (hit.score, hit.passage) for hit in hits}
        if self._ranker is None:
            return found
        ranked = [id for _, id in self._ranker.Rank(query) if id in self.known and (accept is None or accept(id))]
        return _fuse(found, ranked[:limit])


def _fuse(found: dict[str, tuple[float, int]], ranked: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Return two rankings as one, by the sum of 1 / (60 + rank), which needs no common scale (Cormack et al. 2009)."""
    sums: dict[str, float] = {}
    for ranking in (found, ranked):
        for place, id in enumerate(ranking, 1):
            sums[id] = sums.get(id, 0.0) + 1.0 / (60 + place)
    best = 2.0 / 61.0
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return {id: (score / best, found[id][1] if id in found else 0) for id, score in ordered}


def own_fields(info: Info) -> Mapping[str, Any]:
    """Return what `MemoryStore` wrote of an info; nothing where somebody else wrote it."""
    own = info.metadata.get(OWN)
    return own if isinstance(own, Mapping) else {}


class MemoryRetriever:
    """Finds memories for a question.

    Args:
        tree: Where they are.
        graph: What hangs together; the tree's own keywords.
        extractor: What tells the keywords of a question; `ChineseKeywordExtractor`, which knows English, too.
        config: How to look.
        ranker: Another ranking, as one by embeddings, fused with the full-text one.
        clock: Seconds since the epoch.

    Cost: some milliseconds for a question, at most 50 among 100,000 memories; the first one reads the log.
    """

    def __init__(
        self,
        tree: KeywordTree,
        graph: KnowledgeGraph | None = None,
        extractor: KeywordExtractor | None = None,
        config: RetrieverConfig | None = None,
        ranker: Ranker | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tree = tree
        self._graph = graph or TreeGraph(tree)
        self._extractor = extractor or ChineseKeywordExtractor()
        self.config = config or RetrieverConfig()
        self._index = ContentIndex(tree, self.config.ranking, ranker)
        self._clock = clock

    def retrieve(
        self, query: str, limit: int = 5, filters: Filters | None = None, config: RetrieverConfig | None = None
    ) -> list[Retrieved]:
        """Return the memories that fit a question, best first.

        Args:
            query: The question, as it was asked.
            limit: At most so many.
            filters: Which may be found.
            config: Another way of looking, this once; its `ranking` is that of the beginning.

        Raises:
            InvalidInputError: `query` is no string, or `limit` no whole number or below 1.
        """
        if not isinstance(query, str):
            raise InvalidInputError(f"query must be a string, not {type(query).__name__}")
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidInputError(f"limit must be a whole number above 0, not {limit!r}")
        config = config or self.config
        graph_only = config.strategy is RetrievalStrategy.GRAPH_ONLY
        scoring = config.scoring or (GraphDistance() if graph_only else TextOverlap())
        self._index.catch_up()
        accept = None if filters is None else self._accepting(filters)
        near: dict[str, float] = {}
        if config.strategy is not RetrievalStrategy.KNOWLEDGE_ONLY:
            near = self._walk(query, config.depth, graph_only or not _is_text_alone(scoring))
        # Another order may bring forward what the text alone ranks behind.
        reach = limit if _is_text_alone(scoring) and not near else max(100, 4 * limit)
        said = {} if graph_only else self._index.rank(query, reach, accept)
        hanging = self._infos_of(near, said, accept)
        shares = self._index.text.shares(query) if hanging else {}
        scored = []
        for id in dict.fromkeys([*said, *hanging]):
            known = self._index.known.get(id)
            if known is None:
                continue
            text, _ = said.get(id, (0.0, 0))
            nearness, keyword_id = hanging.get(id, (0.0, ""))
            named = self._share_of_name(id, keyword_id, shares) if nearness == 1.0 else 0.0
            breakdown = ScoreBreakdown(
                overlap_score=min(1.0, text + _NAME * named),
                graph_score=nearness,
                temporal_score=temporal_decay(self._clock() - known.time, config.half_life_s),
                reference_score=reference_count(self._index.referred.get(id, 0)),
            )
            total = scoring.total(breakdown)
            if total > 0.0 and total >= config.min_score:
                scored.append((total, id, breakdown))
        scored.sort(key=lambda item: -item[0])  # stable: equals stay in the order of the channels
        results = (
            self._result(id, total, breakdown, said, hanging, scoring) for total, id, breakdown in scored[:limit]
        )
        return [result for result in results if result is not None]

    def known(self) -> dict[str, Known]:
        """Return what may be found, by id: kind, source, time and metadata of each."""
        self._index.catch_up()
        return dict(self._index.known)

    def _accepting(self, filters: Filters) -> Callable[[str], bool]:
        known = self._index.known
        return lambda id: id in known and filters.accept(known[id])

    def _walk(self, query: str, depth: int, walk: bool) -> dict[str, float]:
        """Return the keywords that the question names, and with `walk` what these are related to, with the nearness."""
        named = self._graph.find_by_keywords(self._extractor.extract(query))[:_ENTITIES]
        near = {entity.id: 1.0 for entity in named}
        for entity in named if walk else ():
            for other in self._graph.get_related(entity.id, depth, RelationDirection.BOTH):
                near[other.entity.id] = max(near.get(other.entity.id, 0.0), other.score)
        return dict(sorted(near.items(), key=lambda item: -item[1]))

    def _infos_of(
        self, near: Mapping[str, float], said: Iterable[str], accept: Callable[[str], bool] | None
    ) -> dict[str, tuple[float, str]]:
        """Return the infos of keywords, the nearest first: id → (nearness, keyword)."""
        found: dict[str, tuple[float, str]] = {}
        for keyword_id, nearness in near.items():
            if len(found) >= _HANGING:
                break
            for info in self._tree.GetInfosOfKeyword(keyword_id):
                if info.id not in found and (accept is None or accept(info.id)):
                    found[info.id] = (nearness, keyword_id)
        for id in said if near else ():  # a keyword's first page does not hold all
            keywords = [(near.get(node.id, 0.0), node.id) for node, _ in self._tree.GetKeywordsOfInfo(id)]
            best = max(keywords, default=(0.0, ""))
            if best[0] > found.get(id, (0.0, ""))[0]:
                found[id] = best
        return found

    def _share_of_name(self, id: str, keyword_id: str, shares: Mapping[str, float]) -> float:
        """Return what share of the question the keyword of an info says, but not the info itself."""
        entity, info = self._graph.get_entity(keyword_id), self._tree.GetInfo(id)
        if entity is None or info is None:
            return 0.0
        by_name = shares.keys() & set(terms_of(" ".join([entity.name, *entity.tags])))
        return sum(shares[term] for term in by_name - set(terms_of(info.content))) if by_name else 0.0

    def _result(
        self,
        id: str,
        score: float,
        breakdown: ScoreBreakdown,
        said: Mapping[str, tuple[float, int]],
        hanging: Mapping[str, tuple[float, str]],
        scoring: ScoringStrategy,
    ) -> Retrieved | None:
        info = self._tree.GetInfo(id)
        if info is None:  # deleted meanwhile
            return None
        keywords = [node.id for node, _ in self._tree.GetKeywordsOfInfo(id, 0, 1)]
        if id in hanging:
            keywords = [hanging[id][1]]
        path = [node.name for node in self._tree.GetPath(keywords[0])[1:]] if keywords else []
        passages = split_passages(info.content)
        number = said[id][1] if id in said else 0
        return Retrieved(info, score, breakdown, path, passages[min(number, len(passages) - 1)], scoring)


_ENTITIES = 20  # of those that a question names
_HANGING = 200  # infos
_NAME = 1.0  # about twice what a word of the text gets: who names a thing means it


def _is_text_alone(scoring: ScoringStrategy) -> bool:
    weights = scoring.weights
    return weights.graph == weights.temporal == weights.reference == 0.0
