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
0.23 = 1 × 0.23 text overlap

Two channels look side by side: the content channel asks a full-text index over the tree's infos, which follows
`Changes()`; the graph channel asks the graph for entities that have the question's keywords, walks from them, and takes
the infos of the keywords that it comes to. What both found is scored by a `ScoringStrategy`, cut below `min_score`, and
the first are returned. The text overlap is the full-text index's own score, not a Dice coefficient over the whole text:
that one shrinks with the length of the body and cannot tell a rare word from a common one (putting the first 50 in its
order lost a third of LoCoMo's evidence). What hangs on a keyword that the question names is found by that name as well:
the words that the name says and the text does not count twice.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ..keyword_tree import Info, InvalidInputError, KeywordTree
from .content import ContentIndex, Filters, InfoFacts, Ranker, memory_fields
from .fulltext import RankingWeights, split_passages, terms_of
from .graph import KnowledgeGraph, RelationDirection
from .keywords import ChineseKeywordExtractor, KeywordExtractor
from .scoring import (
    HALF_LIFE_S,
    GraphDistance,
    ScoreBreakdown,
    ScoringStrategy,
    TextOverlap,
    reference_count,
    temporal_decay,
)
from .tree_graph import TreeGraph

__all__ = ["MemoryRetriever", "RetrievalStrategy", "Retrieved", "RetrieverConfig"]


class RetrievalStrategy(str, Enum):  # noqa: UP042  as the enumerations of the library
    """Where to look."""

    HYBRID = "hybrid"
    """In both channels (the default)."""
    KNOWLEDGE_ONLY = "knowledge_only"
    """In what the infos say."""
    GRAPH_ONLY = "graph_only"
    """In what the keywords hang together with."""


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

    def __post_init__(self) -> None:
        try:  # "graph_only" is as good as GRAPH_ONLY
            object.__setattr__(self, "strategy", RetrievalStrategy(self.strategy))
        except ValueError as error:
            raise InvalidInputError(f"strategy must be a RetrievalStrategy, not {self.strategy!r}") from error
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 0:
            raise InvalidInputError(f"depth must be a whole number and not below 0, not {self.depth!r}")
        if not isinstance(self.min_score, (int, float)) or math.isnan(self.min_score):
            raise InvalidInputError(f"min_score must be a number, not {self.min_score!r}")
        if not isinstance(self.half_life_s, (int, float)) or not self.half_life_s > 0:
            raise InvalidInputError(f"half_life_s must be above 0, not {self.half_life_s!r}")


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


class MemoryRetriever:
    """Finds memories for a question.

    Args:
        tree: Where they are.
        graph: What hangs together; the tree's own keywords.
        extractor: What tells the keywords of a question; `ChineseKeywordExtractor`, which knows English, too.
        config: How to look.
        ranker: Another ranking, as one by embeddings, fused with the full-text one.
        clock: Seconds since the epoch.
        index_path: Where to keep the full-text index between two openings; None makes it anew each time.

    Cost: some milliseconds for a question, at most 50 among 100,000 memories; the first one reads all there is.
    """

    def __init__(
        self,
        tree: KeywordTree,
        graph: KnowledgeGraph | None = None,
        extractor: KeywordExtractor | None = None,
        config: RetrieverConfig | None = None,
        ranker: Ranker | None = None,
        clock: Callable[[], float] = time.time,
        index_path: Path | None = None,
    ) -> None:
        self._tree = tree
        self._graph = graph or TreeGraph(tree)
        self._extractor = extractor or ChineseKeywordExtractor()
        self.config = config or RetrieverConfig()
        self.index = ContentIndex(tree, self.config.ranking, ranker, index_path)
        self._clock = clock
        # What says all that is asked for, once, at a common length, has 0.4 of what BM25 could ever give, and counts as
        # 1 here: beside the other three figures, which do reach 1, the text would count for little otherwise.
        self._scale = 2.5 if ranker is None else 1.0

    def retrieve(
        self, query: str, limit: int = 5, filters: Filters | None = None, config: RetrieverConfig | None = None
    ) -> list[Retrieved]:
        """Return the memories that fit a question, best first.

        Args:
            query: The question, as it was asked; of more than 8,000 characters, the last.
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
        query = query[-_QUERY_LIMIT:]
        config = config or self.config
        graph_only = config.strategy is RetrievalStrategy.GRAPH_ONLY
        scoring = config.scoring or (GraphDistance() if graph_only else TextOverlap())
        self.index.catch_up()
        among = self.index.choose(filters)
        near: dict[str, float] = {}
        if config.strategy is not RetrievalStrategy.KNOWLEDGE_ONLY:
            near = self._walk(query, config.depth, graph_only or not _is_text_alone(scoring))
        # Another order may bring forward what the text alone ranks behind.
        reach = limit if _is_text_alone(scoring) and not near else max(100, 4 * limit)
        said = {} if graph_only else self.index.rank(query, reach, among)
        hanging = self._infos_of(near, said, among)
        by_name = self._shares_by_name(query, {id for nearness, id in hanging.values() if nearness == 1.0})
        now = self._clock()
        scored = []
        for id in dict.fromkeys([*said, *hanging]):
            known = self.index.known.get(id)
            if known is None:
                continue
            text, _ = said.get(id, (0.0, 0))
            nearness, keyword_id = hanging.get(id, (0.0, ""))
            shares = by_name.get(keyword_id, {}) if nearness == 1.0 else {}
            named = sum(shares[term] for term in self.index.text.lacking(id, shares))
            said_in_all = text + _NAME * named
            breakdown = ScoreBreakdown(
                overlap_score=min(1.0, self._scale * said_in_all),
                graph_score=nearness,
                temporal_score=temporal_decay(now - known.time, config.half_life_s),
                reference_score=reference_count(self.index.referred.get(id, 0)),
            )
            total = scoring.total(breakdown)
            if total > 0.0 and total >= config.min_score:
                scored.append((total, said_in_all, id, breakdown))
        scored.sort(key=lambda item: (-item[0], -item[1]))  # stable: equals stay in the order of the channels
        results = (
            self._result(id, total, breakdown, said, hanging, scoring) for total, _, id, breakdown in scored[:limit]
        )
        return [result for result in results if result is not None]

    def known(self) -> dict[str, InfoFacts]:
        """Return what may be found, by id: kind, source, time and metadata of each."""
        self.index.catch_up()
        return dict(self.index.known)

    def _walk(self, query: str, depth: int, walk: bool) -> dict[str, float]:
        """Return the keywords that the question names, and with `walk` what these are related to, with the nearness."""
        named = self._graph.find_by_keywords(self._extractor.extract(query), _ENTITIES)
        near = {entity.id: 1.0 for entity in named}
        for entity in named if walk else ():
            for other in self._graph.get_related(entity.id, depth, RelationDirection.BOTH):
                near[other.entity.id] = max(near.get(other.entity.id, 0.0), other.score)
        return dict(sorted(near.items(), key=lambda item: -item[1]))

    def _infos_of(
        self, near: Mapping[str, float], said: Iterable[str], among: Collection[str] | None
    ) -> dict[str, tuple[float, str]]:
        """Return the infos of keywords, the nearest first: id → (nearness, keyword)."""
        found: dict[str, tuple[float, str]] = {}
        for keyword_id, nearness in near.items():
            if len(found) >= _HANGING:
                break
            for id in self._ids_of(keyword_id, among):
                found.setdefault(id, (nearness, keyword_id))
        for id in said if near else ():  # a keyword's first pages do not hold all
            keywords = [(near.get(link.keyword_id, 0.0), link.keyword_id) for link in self._tree.GetLinks(id)]
            best = max(keywords, default=(0.0, ""))
            if best[0] > found.get(id, (0.0, ""))[0]:
                found[id] = best
        return found

    def _ids_of(self, keyword_id: str, among: Collection[str] | None) -> list[str]:
        """Return the first infos of a keyword that may be found."""
        among = self.index.known if among is None else among
        ids: list[str] = []
        for page in range(_PAGES):
            infos = self._tree.GetInfosOfKeyword(keyword_id, page=page)
            ids += [info.id for info in infos if info.id in among]
            if not infos or len(ids) >= _HANGING // 4:
                break
        return ids

    def _shares_by_name(self, query: str, keyword_ids: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return what share of the question the names of keywords say, term by term."""
        shares = self.index.text.shares(query)
        entities = [entity for id in keyword_ids if (entity := self._graph.get_entity(id)) is not None]
        said = {entity.id: set(terms_of(" ".join([entity.name, *entity.tags]))) for entity in entities}
        return {id: {term: shares[term] for term in shares.keys() & terms} for id, terms in said.items()}

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
        if info is None or memory_fields(info).get("superseded_by"):  # meanwhile
            return None
        keywords = [hanging[id][1]] if id in hanging else [link.keyword_id for link in self._tree.GetLinks(id)]
        path = [node.name for node in self._tree.GetPath(keywords[0])[1:]] if keywords else []
        passages = split_passages(info.content)
        number = said[id][1] if id in said else 0
        return Retrieved(info, score, breakdown, path, passages[min(number, len(passages) - 1)], scoring)


_ENTITIES = 20  # of those that a question names
_HANGING = 200  # infos, after which no further keyword's are looked at
_PAGES = 8  # of a keyword's infos, where few of them may be found
_QUERY_LIMIT = 8_000  # characters
_NAME = 1.0  # about twice what a word of the text gets: who names a thing means it


def _is_text_alone(scoring: ScoringStrategy) -> bool:
    weights = scoring.weights
    return weights.graph == weights.temporal == weights.reference == 0.0
