"""Find memories for a question: by what they say and by their keywords, scored, filtered, with the reasons.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     tea = tree.CreateKeyword("茶 tea")
...     _ = tree.CreateInfo("龙井用八十度的水泡三分钟。", "notes", [tea.id])
...     _ = tree.CreateInfo("Black tea wants boiling water.", "notes", [tea.id])
...     found = MemoryRetriever(tree).retrieve("龙井怎么泡?")
>>> [(memory.info.content, memory.path) for memory in found]
[('龙井用八十度的水泡三分钟。', ['茶 tea'])]
>>> print(found[0].explain())
0.98 = 1 × 0.98 text overlap

Two channels look side by side: the content channel asks a full-text index over the tree's infos, which follows
`Changes()`; the graph channel asks the graph for entities that have the question's keywords, walks from them, and takes
the infos of the keywords that it comes to. What both found is scored by a `ScoringStrategy`, cut below `min_score`, and
the first are returned.

The text overlap is the full-text index's own score, not a Dice coefficient over the whole text:
that one shrinks with the length of the body and cannot tell a rare word from a common one (putting the first 50 in its
order lost a third of LoCoMo's evidence). The infos of a keyword that the question names are found by that name as well:
the words that the name says and the text does not count twice.
"""

import inspect
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from ..base.checks import check_count, check_string, shorten
from ..base.text import fold
from ..finding import texts
from ..finding.embedder import Embedder, Meaning
from ..keyword_tree import Info, InvalidInputError, KeywordNode, KeywordTree
from .graph import ENTITY_TYPES, InMemoryGraph, KnowledgeGraph, RelationDirection, Step
from .keywords import ChineseKeywordExtractor, KeywordExtractor
from .knowledge import KnowledgePage, KnowledgeStore, TreeKnowledge
from .memories import Choice, Filters, Found, InfoFacts, Memories
from .memory_fields import Memory, memory_fields
from .relation_words import SPEAKER, asked_relations, asked_subjects, says_change, subjects_of, words_of
from .scoring import (
    HALF_LIFE_S,
    DiceOverlap,
    GraphDistance,
    ScoreBreakdown,
    ScoringStrategy,
    TextOverlap,
    reference_count,
    temporal_decay,
    text_overlap,
)
from .tree_graph import TreeGraph

_Scored: TypeAlias = tuple[float, str, ScoreBreakdown]

__all__ = ["MemoryRetriever", "RetrievalStrategy", "Retrieved", "RetrieverConfig"]


class RetrievalStrategy(str, Enum):  # noqa: UP042  as the enumerations of the library
    """Where to look."""

    HYBRID = "hybrid"
    """In both channels (the default)."""
    KNOWLEDGE_ONLY = "knowledge_only"
    """In what the infos say."""
    GRAPH_ONLY = "graph_only"
    """By the relations of the keywords."""


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
    """In seconds: after that a memory counts half as new."""

    def __post_init__(self) -> None:
        # "graph_only" is as good as GRAPH_ONLY
        if not isinstance(self.strategy, str) or self.strategy not in list(RetrievalStrategy):
            raise InvalidInputError(f"strategy must be a RetrievalStrategy, not {shorten(self.strategy)}")
        object.__setattr__(self, "strategy", RetrievalStrategy(self.strategy))
        check_count("depth", self.depth, 0)
        if not isinstance(self.min_score, (int, float)) or math.isnan(self.min_score):
            raise InvalidInputError(f"min_score must be a number, not {shorten(self.min_score)}")
        if not isinstance(self.half_life_s, (int, float)) or not self.half_life_s > 0:
            raise InvalidInputError(f"half_life_s must be above 0, not {shorten(self.half_life_s)}")


@dataclass
class Retrieved(Memory):
    """A memory that was found, and why."""

    score: float
    """From 0 to 1, by the strategy; less than its place suggests where it says little of what is asked."""
    breakdown: ScoreBreakdown
    """The four figures."""
    path: list[str]
    """Names from the top to its keyword, the best fitting one where it has several; empty where it has none."""
    passage: str
    """The part of it that fits best."""
    scoring: ScoringStrategy = field(repr=False)
    """What weighed the figures."""
    steps: list[Step] = field(default_factory=list)
    """The walk from what the question names to its keyword, where the graph was walked."""
    later: str = ""
    """The id of a later memory that says otherwise of the same subject: then this one was so, and may be so no more."""
    note: str = ""
    """Why the ranking was less than usual: "words ranked alone: …" where an embedder was late or failed; else ""."""
    query: str = field(default="", repr=False)
    """The question."""
    context: str = field(default="", repr=False)
    """What counts as said besides its text: the names of its keywords, and the question just before it."""

    def lacking(self) -> list[str]:
        """Return the words of the question that it does not have, as they are written there. Cost: reads its text."""
        asked = texts.question(self.query).keys() - texts.KINDS
        asked = asked - texts.STOP_WORDS or asked
        said, found = {*texts.terms(f"{self.info.content}\n{self.context}")}, list[str]()
        both = said & asked
        for word in texts.words(self.query):
            if texts.is_unspaced(word):  # its words are as long as the pairs of characters that are not there
                has = [0 < at < len(word) and word[at - 1 : at + 1] in both for at in range(len(word) + 1)]
                left = (char if char in asked and not any(has[at : at + 2]) else " " for at, char in enumerate(word))
                found += [part for part in "".join(left).split() if not said.issuperset(part)]
            elif said.isdisjoint(terms := texts.terms(word)) and not asked.isdisjoint(terms):
                found.append(word)
        return list(dict.fromkeys(found))

    def explain(self) -> str:
        """Return the sum as a person would write it down, what the memory lacks, and the sentences that led to it."""
        lacking = self.lacking()
        said = [self.breakdown.explain(self.scoring), *([f"lacking: {', '.join(lacking)}"] if lacking else [])]
        return "\n".join([*said, *map(str, self.steps)])


class MemoryRetriever:
    """Finds memories for a question.

    Args:
        knowledge_store: Where they are: a tree, or a `KnowledgeStore`. Of a `TreeKnowledge` the tree is taken; of any
            other, pages are found by the keywords of the question, and by the names of what the graph leads to; their
            text overlap is `text_overlap`.
        knowledge_graph: The relations; the tree's own keywords. Of another one `find_by_keywords`, `get_related` and
            `get_entity` are called, with the original document's arguments.
        keyword_extractor: Finds the keywords of a question; `ChineseKeywordExtractor`, which knows English, too.
        config: How to look.
        meaning: How to compare by meaning, see `finding.index.Index`; False: by words alone.
        clock: Seconds since the epoch.
        index_path: Where to keep the full-text index between two openings; None makes it again each time.
        speaker: The name of who says "I" in the memories, if it is known: a question may call them by it.

    Cost: some milliseconds for a question, at most 50 among 100,000 memories; the first one reads all there is.
    """

    def __init__(
        self,
        knowledge_store: KeywordTree | KnowledgeStore,
        knowledge_graph: KnowledgeGraph | None = None,
        keyword_extractor: KeywordExtractor | None = None,
        config: RetrieverConfig | None = None,
        meaning: Meaning | Embedder | bool = True,
        clock: Callable[[], float] = time.time,
        index_path: Path | None = None,
        speaker: str = "",
    ) -> None:
        tree = knowledge_store.tree if isinstance(knowledge_store, TreeKnowledge) else knowledge_store
        self._pages = tree if isinstance(tree, KnowledgeStore) else None
        if isinstance(tree, KnowledgeStore):
            self._graph = knowledge_graph or InMemoryGraph()
        else:
            self.index = Memories(tree, index_path, meaning)
            self._tree, self._graph = tree, knowledge_graph or TreeGraph(tree, self.index)
        # A graph of one's own may have the original document's signatures alone, which know no limit.
        self._takes_limit = "limit" in inspect.signature(self._graph.find_by_keywords).parameters
        self._extractor = keyword_extractor or ChineseKeywordExtractor()
        self.config = config or RetrieverConfig()
        self._clock, self._speaker = clock, frozenset(texts.terms(speaker))

    def retrieve(
        self, query: str, limit: int = 5, filters: Filters | None = None, config: RetrieverConfig | None = None
    ) -> list[Retrieved]:
        """Return the memories that fit a question, best first.

        Args:
            query: The question, as it was asked; of more than 2,000 characters, the last.
            limit: At most this many.
            filters: Which may be found.
            config: Another way of looking, this once.

        Raises:
            InvalidInputError: `query` is no string, or `limit` no whole number or below 1.
        """
        query = check_string("query", query)[-_QUERY_LIMIT:]
        check_count("limit", limit)
        config = config or self.config
        graph_only = config.strategy is RetrievalStrategy.GRAPH_ONLY
        scoring = config.scoring or (GraphDistance() if graph_only else TextOverlap())
        if self._pages is not None:
            if filters is not None:
                raise InvalidInputError(f"filters need a tree; pages have no {shorten(filters)}")
            return self._retrieve_pages(self._pages, query, limit, config, scoring)
        with self.index.caught_up():
            among, reach = self.index.choose(filters), limit
            while True:
                found, is_all = self._retrieve(query, limit, reach, among, config, scoring)
                if len(found) == limit or is_all:
                    return found
                reach *= 4  # equal texts take one place: further ones are wanted

    def _retrieve(
        self,
        query: str,
        limit: int,
        reach: int,
        among: Choice | None,
        config: RetrieverConfig,
        scoring: ScoringStrategy,
    ) -> tuple[list[Retrieved], bool]:
        """Return the best memories of the first `reach` that fit, and whether these are all that do."""
        graph_only = config.strategy is RetrievalStrategy.GRAPH_ONLY
        tree = _TreeOnce(self._tree)
        near, steps = dict[str, float](), dict[str, list[Step]]()
        if config.strategy is not RetrievalStrategy.KNOWLEDGE_ONLY:
            near, steps = self._walk(query, config.depth)
        attached, hanging = self._infos_of(near, among, tree)
        by_dice = isinstance(scoring, DiceOverlap)
        # Another order may bring forward what the text alone ranks later.
        reach = reach if _is_text_alone(scoring) and not by_dice else max(100, 4 * reach)
        said = dict[str, Found]()
        if not graph_only:
            lent = self._lend_names(query, near, attached, hanging)
            said = {found.id: found for found in self.index.rank(query, reach, among, lent)}
        is_all = len(said) < reach
        if near:  # a keyword's first pages do not hold all
            tree.read([*said])
            for id in said:
                best = max(((near.get(each, 0.0), each) for each in tree.keyword_ids(id)), default=(0.0, ""))
                if best[0] > attached.get(id, (0.0, ""))[0]:
                    attached[id] = best
        known = self.index.facts({*said, *attached})
        now = self._clock()
        ids = [id for id in dict.fromkeys([*said, *attached]) if id in known]
        overlaps = [self._dice(query, id, tree) if by_dice else said[id].score if id in said else 0.0 for id in ids]
        fresh = [temporal_decay(now - known[id].time, config.half_life_s) for id in ids]
        referred = [reference_count(known[id].referred) for id in ids]
        distances = [attached[id][0] if id in attached else 0.0 for id in ids]
        breakdowns = [*map(ScoreBreakdown, overlaps, distances, fresh, referred)]
        totals = [*map(scoring.total, breakdowns)]
        scored = [each for each in zip(totals, ids, breakdowns, strict=True) if each[0] > 0.0]
        scored = [each for each in scored if each[0] >= config.min_score]
        scored.sort(key=lambda item: (-item[0], -known[item[1]].number))  # of equals the newest
        scored, later = self._newest_first(query, scored, limit, among, tree, known) if not graph_only else (scored, {})
        results, taken = list[Retrieved](), set[str]()
        tree.read([id for _, id, _ in scored[:limit]])
        infos = [tree.info(id) for _, id, _ in scored[:limit]]
        same = [*map(fold, [info.content if info is not None else "" for info in infos])]
        for place, (total, id, breakdown) in enumerate(scored):
            info = tree.info(id)
            if len(results) == limit:
                break
            if info is None or memory_fields(info).get("superseded_by"):  # meanwhile
                continue
            text = same[place] if place < limit else fold(info.content)
            if text in taken:  # said already by a newer one
                continue
            taken.add(text)
            walked = steps.get(attached[id][1], []) if id in attached else []
            results.append(
                Retrieved(
                    info, total, breakdown, *self._place(info, attached, tree), scoring, walked, later.get(id, "")
                )
            )
        self._quote(query, results, said, tree)
        return results, is_all

    def _retrieve_pages(
        self, pages: KnowledgeStore, query: str, limit: int, config: RetrieverConfig, scoring: ScoringStrategy
    ) -> list[Retrieved]:
        """Return the pages of a store that fit a question, each as an info of its title, summary and body."""
        found: dict[str, KnowledgePage] = {}
        near: dict[str, float] = {}
        steps: dict[str, list[Step]] = {}
        if config.strategy is not RetrievalStrategy.GRAPH_ONLY:
            keywords = self._extractor.extract(query)
            found = {page.id: page for page in pages.find_by_keywords(keywords, max(100, 4 * limit))}
        knows_graph = config.strategy is not RetrievalStrategy.KNOWLEDGE_ONLY
        walked, walks = self._walk(query, config.depth) if knows_graph else ({}, {})
        for entity_id, proximity in walked.items():
            entity = self._graph.get_entity(entity_id)
            page = pages.what_is(entity.name) if entity is not None else None
            if page is not None:
                found.setdefault(page.id, page)
                near.setdefault(page.id, proximity)
                steps.setdefault(page.id, walks.get(entity_id, []))
        results = []
        for id, page in found.items():
            overlap = text_overlap(query, page.title, page.summary, page.body)
            breakdown = ScoreBreakdown(overlap, near.get(id, 0.0))
            total = scoring.total(breakdown)
            if total > 0.0 and total >= config.min_score:
                text = "\n".join(filter(None, (page.title, page.summary, page.body)))
                info = Info(id, text, "", {}, 1, 0.0, 0.0)
                passage = (page.summary or page.body or page.title)[:_PASSAGE]
                results.append(
                    Retrieved(info, total, breakdown, [page.title], passage, scoring, steps.get(id, []), query=query)
                )
        return sorted(results, key=lambda each: -each.score)[:limit]

    def known(self) -> dict[str, InfoFacts]:
        """Return what may be found, by id: kind, source, time and metadata of each."""
        self.index.catch_up()
        return self.index.facts()

    def _walk(self, query: str, depth: int) -> tuple[dict[str, float], dict[str, list[Step]]]:
        """Return the keywords that the question names, and what these are related to, with the proximity.

        And the steps to those.
        """
        # "Which person": every second entity is one.
        keywords = [keyword for keyword in self._extractor.extract(query) if keyword not in ENTITY_TYPES]
        limit = [_ENTITIES] if self._takes_limit else []
        named = self._graph.find_by_keywords(keywords, *limit)[:_ENTITIES]
        near = {entity.id: 1.0 for entity in named}
        steps: dict[str, list[Step]] = {}
        for entity in named:
            for other in self._graph.get_related(entity.id, depth, RelationDirection.BOTH, None):
                if other.score > near.get(other.entity.id, 0.0):
                    near[other.entity.id], steps[other.entity.id] = other.score, getattr(other, "steps", [])
        return dict(sorted(near.items(), key=lambda item: -item[1])), steps

    def _lend_names(
        self,
        query: str,
        near: Mapping[str, float],
        attached: Mapping[str, tuple[float, str]],
        hanging: Mapping[str, Collection[str]],
    ) -> dict[str, dict[str, float]]:
        """Return which terms of a question memories have by the names of the keywords that they are linked to."""
        asked, names = set(texts.terms(query)), dict[str, set[str]]()
        for keyword_id in (keyword_id for keyword_id, proximity in near.items() if proximity == 1.0):
            entity = self._graph.get_entity(keyword_id)
            if entity is not None:
                tags = (tag for tag in entity.tags if tag not in ENTITY_TYPES)
                names[keyword_id] = asked.intersection(
                    texts.terms(" ".join([entity.name, *getattr(entity, "aliases", ()), *tags]))
                )
        lent = dict[str, dict[str, float]]()
        for id in (id for id, (proximity, _) in attached.items() if proximity == 1.0):
            if shared := set[str]().union(*(names.get(keyword_id, ()) for keyword_id in hanging[id])):
                lent[id] = dict.fromkeys(shared, 1.0)
        return lent

    def _newest_first(
        self,
        query: str,
        scored: list[_Scored],
        limit: int,
        among: Choice | None,
        tree: "_TreeOnce",
        known: Mapping[str, InfoFacts],
    ) -> tuple[list[_Scored], dict[str, str]]:
        """Put what was said later of the same subject before what it replaces, and return which does: older → newer.

        A person lives in one place at a time: "I moved to Rome" has no word of "Where do I live?", and goes before "I
        live in Paris", with its score. Of other subjects a later memory goes before an earlier one where it says that
        something has changed, and says as much of the question.
        """
        kinds, asked = asked_relations(query), asked_subjects(query)
        asked |= {SPEAKER} if self._speaker and self._speaker <= {*texts.terms(query)} else set()
        if not scored:
            return scored, {}
        ranked = {id: (total, id, breakdown) for total, id, breakdown in scored[:limit]}
        wider = [found.id for found in self.index.rank(f"{query} {words_of(kinds)}", _WIDER, among)] if kinds else []
        facts = {**known, **(self.index.facts(wider) if wider else {})}

        def has_subject(id: str) -> bool:
            info = tree.info(id) if id in facts else None
            return info is not None and any(not asked.isdisjoint(subjects_of(info.content, kind)) for kind in kinds)

        group = [id for id in ranked if has_subject(id)]
        if group:
            first = facts[group[0]].number
            group += [id for id in wider if id not in ranked and facts[id].number > first and has_subject(id)]
        else:
            group = self._changed(query, [id for id in ranked if id in facts], facts, tree)
        if not group:
            return scored, {}
        first_scored = next(each for each in scored if each[1] in group)
        group.sort(key=lambda id: -facts[id].number)
        total, placed = first_scored[0], list[_Scored]()
        for id in group:
            total = min(total, ranked[id][0]) if placed and id in ranked else total
            placed.append((total, id, ranked.get(id, first_scored)[2]))
        at = scored.index(first_scored)
        others = [[each for each in part if each[1] not in group] for part in (scored[:at], scored[at:])]
        return [*others[0], *placed, *others[1]], dict.fromkeys(group[1:], group[0])

    def _changed(
        self, query: str, ranked: Sequence[str], facts: Mapping[str, InfoFacts], tree: "_TreeOnce"
    ) -> list[str]:
        """Return the first memory and a later one that says a change of it; nothing where none does."""
        asked = texts.question(query).keys() - texts.STOP_WORDS
        infos = [tree.info(id) for id in ranked]
        terms = map(texts.terms, ["" if info is None else info.content[:_COMPARED] for info in infos])
        said = {id: asked & {*each} for id, each in zip(ranked, [*terms], strict=True)}
        for id in ranked[1:]:
            info, first = tree.info(id), ranked[0]
            is_later = said[first] <= said[id] and bool(said[first]) and facts[id].number > facts[first].number
            if info is not None and is_later and says_change(info.content[:_COMPARED]):
                return [first, id]
        return []

    def _dice(self, query: str, id: str, tree: "_TreeOnce") -> float:
        """Return the overlap with an info, whose keywords are the title, and their descriptions the summary."""
        info, keywords = tree.info(id), tree.keywords(id)
        title, summary = " ".join(node.name for node in keywords), " ".join(node.description for node in keywords)
        return text_overlap(query, title, summary.strip(), "" if info is None else info.content)

    def _infos_of(
        self, near: Mapping[str, float], among: Choice | None, tree: "_TreeOnce"
    ) -> tuple[dict[str, tuple[float, str]], dict[str, Collection[str]]]:
        """Return the infos of keywords, the nearest first: id → (proximity, keyword); id → the keywords it hangs on."""
        found, hanging = dict[str, tuple[float, str]](), dict[str, dict[str, None]]()
        is_cut = False
        for keyword_id, proximity in near.items():
            if len(found) >= _HANGING:
                is_cut = True
                break
            ids = self._ids_of(keyword_id, among, tree)
            is_cut = is_cut or len(ids) >= _HANGING // 4
            for id in ids:
                found.setdefault(id, (proximity, keyword_id))
                hanging.setdefault(id, {})[keyword_id] = None
        return found, {id: tree.keyword_ids(id) for id in found} if is_cut else {**hanging}

    def _ids_of(self, keyword_id: str, among: Choice | None, tree: "_TreeOnce") -> list[str]:
        """Return the first infos of a keyword that may be found."""
        ids: list[str] = []
        for page in range(_PAGES):
            infos = tree.infos_of(keyword_id, page)
            allowed = _allowed(among, [info.id for info in infos])
            ids += [info.id for info in infos if info.id in allowed]
            if not infos or len(ids) >= _HANGING // 4:
                break
        return ids

    def _place(self, info: Info, attached: Mapping[str, tuple[float, str]], tree: "_TreeOnce") -> tuple[list[str], str]:
        """Return the path to the keyword that fits best, and a passage for what has none that does."""
        nodes = {node.id: node for node in tree.keywords(info.id)}
        best = attached[info.id][1] if info.id in attached else next(iter(nodes), "")
        node = nodes.get(best)
        if node is not None and node.parent_id == "root":
            return [node.name], info.content[:_PASSAGE]
        return [each.name for each in self._tree.GetPath(best)[1:]] if best else [], info.content[:_PASSAGE]

    def _quote(self, query: str, results: list[Retrieved], said: Mapping[str, Found], tree: "_TreeOnce") -> None:
        """Give results the passages that fit best, and what else counts as said."""
        before = self.index.questions_before([each.info.id for each in results if each.info.source])
        for result in results:
            id, result.query = result.info.id, query
            found = said.get(id)
            if found is not None:
                result.note = found.note
                # What it took the place of may have been what fits.
                if found.passage and " ".join(found.passage.strip("…").split()) in " ".join(
                    result.info.content.split()
                ):
                    result.passage = found.passage
            names = (text for node in tree.keywords(id) for text in (node.name, *node.aliases))
            result.context = "\n".join([*names, before.get(id, "")])


class _TreeOnce:
    """What a question needs of the tree, each record read once."""

    def __init__(self, tree: KeywordTree) -> None:
        self._tree = tree
        self._infos = dict[str, Info | None]()
        self._keywords = dict[str, list[KeywordNode]]()

    def read(self, ids: Sequence[str]) -> None:
        """Read infos and their keywords together."""
        self._infos |= {id: self._tree.GetInfo(id) for id in ids if id not in self._infos}
        new = [id for id in ids if id not in self._keywords]
        read = [self._tree.GetKeywordsOfInfo(id) for id in new]
        self._keywords |= {id: [node for node, _ in found] for id, found in zip(new, read, strict=True)}

    def info(self, id: str) -> Info | None:
        """Return an info, None where it is gone."""
        if id not in self._infos:
            self._infos[id] = self._tree.GetInfo(id)
        return self._infos[id]

    def infos_of(self, keyword_id: str, page: int) -> list[Info]:
        """Return a page of a keyword's infos."""
        infos = self._tree.GetInfosOfKeyword(keyword_id, page=page)
        self._infos |= {info.id: info for info in infos}
        return infos

    def keywords(self, id: str) -> list[KeywordNode]:
        """Return the keywords of an info."""
        if id not in self._keywords:
            self.read([id])
        return self._keywords[id]

    def keyword_ids(self, id: str) -> list[str]:
        """Return the ids of an info's keywords."""
        return [node.id for node in self.keywords(id)]


_ENTITIES = 20  # of those that a question names
_HANGING = 200  # infos, after which no further keyword's are looked at
_PAGES = 8  # of a keyword's infos, where few of them may be found
_WIDER = 50  # memories that are looked at for a later statement
_COMPARED = 1_000  # characters of a memory, for what it says of a change
_QUERY_LIMIT = 2_000  # characters
_PASSAGE = 160  # characters


def _allowed(among: Choice | None, ids: Collection[str]) -> Collection[str]:
    return ids if among is None else among if isinstance(among, Set) else among(ids)


def _is_text_alone(scoring: ScoringStrategy) -> bool:
    weights = scoring.weights
    return weights.graph == weights.temporal == weights.reference == 0.0
