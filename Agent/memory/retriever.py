"""Find memories for a question: by their texts and by their keywords, scored, filtered, with the reasons.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     tea = tree.CreateKeyword("茶 tea")
...     _ = tree.CreateInfo("龙井用八十度的水泡三分钟。", "notes", [tea.id])
...     _ = tree.CreateInfo("Black tea wants boiling water.", "notes", [tea.id])
...     found = MemoryRetriever(tree).retrieve("龙井怎么泡?")
>>> [(memory.info.content, memory.path) for memory in found]
[('龙井用八十度的水泡三分钟。', ['茶 tea'])]
>>> print(found[0].explain())
0.9... = 1 × 0.9... text overlap

Two channels look side by side: the content channel asks a full-text index over the tree's infos, which follows
`Changes()`; the graph channel asks the graph for entities that have the question's keywords, walks from them, and takes
the infos of the keywords that it comes to. The hits of both are scored by a `ScoringStrategy` and cut below
`min_score`; the first are returned.

The text overlap is the full-text index's own score, not a Dice coefficient over the whole text:
that one shrinks with the length of the body and cannot tell a rare word from a common one (putting the first 50 in its
order lost a third of LoCoMo's evidence). The infos of a keyword that the question names are found by that name as well:
the words that the name says and the text does not count twice.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from ..base.checks import check_count, check_string, shorten
from ..base.text import fold
from ..finding import texts
from ..finding.calibration import LACKING
from ..finding.embedder import Embedder, Meaning
from ..finding.index import Hit, Index
from ..finding.score import Among, allow
from ..keyword_tree import Info, InvalidInputError, KeywordNode, KeywordTree, NotFoundError
from .graph import ENTITY_TYPES, GraphEntity, KnowledgeGraph, RelationDirection
from .keywords import (
    OTHER,
    SPEAKER,
    ChineseKeywordExtractor,
    KeywordExtractor,
    asked_names,
    asked_relations,
    asked_subjects,
    may_be_about,
    says_change,
    states_of,
    words_of,
)
from .memories import Memories
from .memory_fields import Memory, are_replaced
from .memory_rows import Filters, InfoFacts, facts_of, find_questions_before
from .scoring import DiceOverlap, GraphDistance, ScoreBreakdown, ScoringStrategy, TextOverlap, score_all, text_overlap
from .tree_graph import KnowledgeStore, TreeGraph

_Scored: TypeAlias = tuple[float, str, ScoreBreakdown]
_Hung: TypeAlias = tuple[Info, list[list[KeywordNode]]]

__all__ = ["MemoryRetriever", "RetrievalStrategy", "Retrieved", "RetrieverConfig"]


class RetrievalStrategy(str, Enum):  # noqa: UP042  as the enumerations of the library
    """Where to look."""

    HYBRID = "hybrid"
    """In both channels (the default)."""
    KNOWLEDGE_ONLY = "knowledge_only"
    """In the infos' texts."""
    GRAPH_ONLY = "graph_only"
    """By the relations of the keywords."""


@dataclass(frozen=True)
class RetrieverConfig:
    """The channels and weights of a recall."""

    strategy: RetrievalStrategy = RetrievalStrategy.HYBRID
    """Which channels."""
    scoring: ScoringStrategy | None = None
    """The weights; by default the text overlap, and with `GRAPH_ONLY` the distance in the graph."""
    min_score: float = 0.0
    """Hits with a lower score, or with 0, are not returned."""
    depth: int = 1
    """Steps that are walked in the graph."""

    def __post_init__(self) -> None:
        # "graph_only" is as good as GRAPH_ONLY
        if not isinstance(self.strategy, str) or self.strategy not in list(RetrievalStrategy):
            raise InvalidInputError(f"strategy must be {' or '.join(RetrievalStrategy)}, not {shorten(self.strategy)}")
        object.__setattr__(self, "strategy", RetrievalStrategy(self.strategy))
        check_count("depth", self.depth, 0)
        if not isinstance(self.min_score, (int, float)) or not 0 <= self.min_score <= 1:
            raise InvalidInputError(f"min_score must be a number from 0 to 1, not {shorten(self.min_score)}")


@dataclass
class Retrieved(Memory):
    """A memory that was found, and why."""

    score: float
    """From 0 to 1, by the strategy."""
    breakdown: ScoreBreakdown = field(repr=False)
    """The four figures."""
    path: list[str]
    """Names from the top to its keyword, the best fitting one where it has several; empty where it has none."""
    passage: str = field(repr=False)
    """The part of it that fits best."""
    scoring: ScoringStrategy = field(repr=False)
    """The weights of the figures."""
    later: str = ""
    """The id of a later memory that says otherwise of the same subject: then this one was so, and may be so no more."""
    note: str = ""
    """Why the ranking was less than usual: "words ranked alone: …" where an embedder was late or failed; else ""."""
    query: str = field(default="", repr=False)
    """The question."""
    context: str = field(default="", repr=False)
    """Texts that count as its own: the names of its keywords, and the question just before it."""

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
        """Return the sum of the score, and the words of the question that the memory lacks."""
        lacking = self.lacking()
        return "\n".join(
            [self.breakdown.explain(self.scoring), *([f"lacking: {', '.join(lacking)}"] if lacking else [])]
        )


class MemoryRetriever:
    """Finds memories for a question.

    Args:
        knowledge_store: Where they are: a tree, or a `KnowledgeStore` of it.
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
        tree = knowledge_store.tree if isinstance(knowledge_store, KnowledgeStore) else knowledge_store
        self.index = Memories(tree, index_path, meaning)
        self._tree, self._graph = tree, knowledge_graph or TreeGraph(tree, self.index)
        self._extractor = keyword_extractor or ChineseKeywordExtractor()
        self.config = config or RetrieverConfig()
        self._clock, self._speaker = clock, frozenset(texts.terms(speaker))
        self._called = asked_subjects(speaker)  # how memories name the speaker

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
        self.index.catch_up()
        among, note = self.index.choose(filters), ""
        if config.strategy is not RetrievalStrategy.GRAPH_ONLY:
            note = self.index.ask(query)
        # Another's extractor or graph may wait for whatever it likes, and the index is held while it is read.
        keywords = [] if config.strategy is RetrievalStrategy.KNOWLEDGE_ONLY else self._extractor.extract(query)
        found = None if isinstance(self._graph, TreeGraph) else self._walk(keywords, config.depth)

        def read(index: Index) -> list[Retrieved]:
            walked = found or self._walk(keywords, config.depth)
            search, reach = _Search(self, index, query, note, among, config, walked), limit
            while True:
                hits, is_all = search.find(limit, reach)
                if len(hits) == limit or is_all:
                    return hits
                reach *= 4  # equal texts take one place: further ones are wanted

        return self.index.read(read)

    def known(self) -> dict[str, InfoFacts]:
        """Return kind, source, time and metadata of each memory, by id."""
        self.index.catch_up()
        return self.index.facts()

    def _walk(self, asked: Iterable[str], depth: int) -> tuple[dict[str, GraphEntity], dict[str, float]]:
        """Return the keywords that the question names, and these with their related ones, the nearest first."""
        # "Which person": every second entity is one.
        keywords = [keyword for keyword in asked if keyword not in ENTITY_TYPES]
        if not keywords:
            return {}, {}
        if isinstance(self._graph, TreeGraph):
            found, is_related = self._graph.find_named(keywords, _ENTITIES)
        else:  # it may have the original document's signatures alone, which know no limit
            found, is_related = self._graph.find_by_keywords(keywords), True
        named = {entity.id: entity for entity in found[:_ENTITIES]}
        near = dict.fromkeys(named, 1.0)
        for id in named if is_related else ():
            with suppress(NotFoundError):  # deleted in between
                for other in self._graph.get_related(id, depth, RelationDirection.BOTH, None):
                    near[other.entity.id] = max(other.score, near.get(other.entity.id, 0.0))
        return named, dict(sorted(near.items(), key=lambda item: -item[1]))


class _Search:
    """One question, within one reading of the index; its records of the tree are read once, all together."""

    def __init__(
        self,
        retriever: MemoryRetriever,
        index: Index,
        query: str,
        note: str,
        among: Among | None,
        config: RetrieverConfig,
        walked: tuple[Mapping[str, GraphEntity], Mapping[str, float]],
    ) -> None:
        self._index, self._tree = index, retriever._tree
        self._query, self._note, self._among, self._config = query, note, among, config
        self._now, (named, self._near) = retriever._clock(), walked
        self._read_infos, self._stated = dict[str, _Hung](), dict[str, list[frozenset[str]]]()
        self._graph_only = config.strategy is RetrievalStrategy.GRAPH_ONLY
        self._scoring = config.scoring or (GraphDistance() if self._graph_only else TextOverlap())
        weights = self._scoring.weights
        self._text_alone = weights.graph == weights.temporal == weights.reference == 0.0
        asked, self._asks_for = texts.drop_greeting(query), asked_relations(query)  # who is greeted is no subject
        self._subjects, self._names = asked_subjects(asked), asked_names(asked)
        self._called, terms = retriever._called | _USER, {*texts.terms(query)}
        if retriever._speaker and retriever._speaker <= terms:
            self._subjects |= {SPEAKER}
        self._hanging, self._lent = list[str](), dict[str, dict[str, float]]()
        if (named and not self._graph_only) or not self._text_alone:
            self._hang(named, terms)

    # -- reading the tree --

    def _hung(self, ids: Iterable[str]) -> dict[str, _Hung]:
        """Return infos with the paths to their keywords, those that are there; all unread ones are read together."""
        wanted = [*ids]
        if new := [id for id in wanted if id not in self._read_infos]:
            self._read_infos |= self._tree.GetInfos(new)
        return {id: self._read_infos[id] for id in wanted if id in self._read_infos}

    def _hang(self, named: Mapping[str, GraphEntity], asked: set[str]) -> None:
        """Look at the infos of keywords, the nearest first; lend those of named ones the words of their names."""
        found, is_cut = dict[str, dict[str, None]](), False
        for keyword_id in self._near:
            ids = self._infos_of(keyword_id) if len(found) < _HANGING else []
            is_cut = is_cut or not ids or len(ids) >= _HANGING // 4
            for id in ids:
                found.setdefault(id, {})[keyword_id] = None
        called = [
            " ".join([each.name, *getattr(each, "aliases", ()), *(tag for tag in each.tags if tag not in ENTITY_TYPES)])
            for each in named.values()
        ]
        names = {id: asked & {*terms} for id, terms in zip(named, map(texts.terms, called), strict=True)}
        if is_cut:
            found |= {id: {path[-1].id: None for path in paths} for id, (_, paths) in self._hung(found).items()}
        for id, on in found.items():
            if shared := set[str]().union(*[names.get(keyword_id, ()) for keyword_id in on]):
                self._lent[id] = dict.fromkeys(shared, 1.0)
        self._hanging = [*found]

    def _infos_of(self, keyword_id: str) -> list[str]:
        """Return the first infos of a keyword that may be found."""
        ids: list[str] = []
        for page in range(_PAGES):
            infos = [info.id for info in self._tree.GetInfosOfKeyword(keyword_id, page=page, size=_HANGING // 4)]
            allowed = allow(infos, self._among)
            ids += [id for id in infos if id in allowed]
            if len(infos) < _HANGING // 4 or len(ids) >= _HANGING // 4:
                break
        return ids

    # -- ranking --

    def find(self, limit: int, reach: int) -> tuple[list[Retrieved], bool]:
        """Return the best memories of the first `reach` that fit, and whether these are all that do."""
        by_dice = isinstance(self._scoring, DiceOverlap)
        # Another order may bring forward a memory that the text alone ranks later.
        reach = reach if self._text_alone and not by_dice else max(100, 4 * reach)
        ranked = [] if self._graph_only else self._index.search(self._query, reach, among=self._among, lent=self._lent)
        said = {found.id: found for found in ranked}
        known = facts_of(self._index.db, [*dict.fromkeys([*said, *([] if self._text_alone else self._hanging)])])
        hung = self._hung(known)
        known = {id: known[id] for id in known if id in hung}  # deleted in between
        overlaps = [self._dice(*hung[id]) if by_dice else said[id].score if id in said else 0.0 for id in known]
        distances = [max([0.0, *(self._near.get(path[-1].id, 0.0) for path in hung[id][1])]) for id in known]
        ages, counts = [self._now - facts.time for facts in known.values()], [each.referred for each in known.values()]
        totals = score_all(self._scoring, zip(overlaps, distances, ages, counts, strict=True))
        scored = [(total, id, breakdown) for id, (total, breakdown) in zip(known, totals, strict=True)]
        if self._asks_for and SPEAKER in self._subjects and not by_dice:
            others = self._of_others([id for total, id, _ in scored if total > LACKING])
            scored = [(LACKING if id in others else total, id, parts) for total, id, parts in scored]
        scored = [each for each in scored if each[0] > 0.0 and each[0] >= self._config.min_score]
        scored.sort(key=lambda item: (-item[0], -known[item[1]].number))  # of equals the newest
        scored, later = (scored, {}) if self._graph_only or not scored else self._newest_first(scored, limit, known)
        hung = self._hung(id for _, id, _ in scored)
        gone = are_replaced({id: info for id, (info, _) in hung.items()})  # meanwhile
        chosen = dict[str, _Scored]()
        for each in scored:
            if each[1] in hung and each[1] not in gone:  # a repetition of a newer one takes no second place
                chosen.setdefault(fold(hung[each[1]][0].content), each)
        # A score below LACKING is limited by nothing, and those of all texts after it are no greater.
        least = min(self._config.min_score, LACKING) if self._text_alone and not by_dice else 0.0
        is_all = len(said) < reach or ranked[-1].score < least
        return self._results([*chosen.values()][:limit], said, later), is_all

    def _results(self, chosen: Sequence[_Scored], said: Mapping[str, Hit], later: Mapping[str, str]) -> list[Retrieved]:
        """Return memories with their paths, the passages that fit best, and the other texts that count."""
        before = find_questions_before(self._index.db, [id for _, id, _ in chosen])
        hung, asked, results = self._hung(id for _, id, _ in chosen), self._hung(before.values()), []
        for total, id, breakdown in chosen:
            (info, paths), found = hung[id], said.get(id)
            passage = info.content[:_PASSAGE]
            # The replaced text may be the one that fits.
            if found is not None and found.excerpt and _words(found.excerpt.strip("…")) in _words(info.content):
                passage = found.excerpt
            names = [text for path in paths for text in (path[-1].name, *path[-1].aliases)]
            question = asked[before[id]][0].content if before.get(id) in asked else ""
            nearest = max(paths, key=lambda path: self._near.get(path[-1].id, 0.0), default=[])
            path, context = [node.name for node in nearest[1:]], "\n".join([*names, question])
            more = {"later": later.get(id, ""), "note": self._note, "context": context}
            results.append(Retrieved(info, total, breakdown, path, passage, self._scoring, query=self._query, **more))
        return results

    def _newest_first(
        self, scored: list[_Scored], limit: int, known: dict[str, InfoFacts]
    ) -> tuple[list[_Scored], dict[str, str]]:
        """Put a later statement on the same subject before the one that it replaces; return the pairs: older → newer.

        A person lives in one place at a time: "I moved to Rome" has no word of "Where do I live?", and goes before "I
        live in Paris", with its score. Of other subjects a later memory goes before an earlier one where it says that
        something has changed, and says as much of the question. The facts of what is found so come to the known ones.
        """
        ranked = {id: (total, id, breakdown) for total, id, breakdown in scored[:limit]}
        if group := self._with_subject(ranked):
            wider = self._index.having(f"{self._query} {words_of(self._asks_for)}", _WIDER, self._among)
            known |= facts_of(self._index.db, [id for id in wider if id not in known])
            first = known[group[0]].number
            newer = [id for id in wider if id in known and id not in ranked and known[id].number > first]
            group += self._with_subject(newer)
        else:
            group = self._changed([*ranked], known)
        if not group:
            return scored, {}
        first_scored = next(each for each in scored if each[1] in group)
        group.sort(key=lambda id: -known[id].number)
        total, placed = first_scored[0], list[_Scored]()
        for id in group:
            total = min(total, ranked[id][0]) if placed and id in ranked else total
            placed.append((total, id, ranked.get(id, first_scored)[2]))
        at = scored.index(first_scored)
        others = [[each for each in part if each[1] not in group] for part in (scored[:at], scored[at:])]
        return [*others[0], *placed, *others[1]], dict.fromkeys(group[1:], group[0])

    def _states(self, ids: Collection[str]) -> dict[str, list[frozenset[str]]]:
        """Return the subjects of each state that the question asks for, as memories say them; read once."""
        if self._asks_for and (new := [id for id in ids if id not in self._stated]):
            said = {id: info.content for id, (info, _) in self._hung(new).items()}
            self._stated |= states_of(said, self._asks_for)
        return {id: self._stated[id] for id in ids if id in self._stated}

    def _with_subject(self, ids: Collection[str]) -> list[str]:
        """Return those of some memories that state where someone lives or works whom the question may be about."""
        stated = self._states(ids)
        return [id for id in stated if any(may_be_about(state, self._subjects, self._names) for state in stated[id])]

    def _of_others(self, ids: Collection[str]) -> set[str]:
        """Return those of some memories that state where another lives or works; the question is about the speaker."""
        stated = {id: frozenset[str]().union(*states) for id, states in self._states(ids).items()}
        called = self._subjects | self._called | {OTHER}
        return {id for id, subjects in stated.items() if subjects and called.isdisjoint(subjects)}

    def _changed(self, ranked: Sequence[str], facts: Mapping[str, InfoFacts]) -> list[str]:
        """Return the first memory and a later one, a sentence of which says a change of it; nothing where none does."""
        contents = {id: info.content[:_COMPARED] for id, (info, _) in self._hung(ranked).items()}
        first = ranked[0]
        later = [id for id in contents if first in contents and facts[id].number > facts[first].number]
        if changes := [id for id in later if says_change(contents[id])]:
            asked = texts.question(self._query).keys() - texts.STOP_WORDS
            said = asked & {*texts.terms(contents[first])}
            for id in changes if said else ():
                sentences = filter(says_change, texts.sentences(contents[id]))
                if any(said <= {*texts.terms(each)} for each in sentences):
                    return [first, id]
        return []

    def _dice(self, info: Info, paths: Sequence[list[KeywordNode]]) -> float:
        """Return the overlap with an info, whose keywords are the title, and their descriptions the summary."""
        title, summary = (" ".join(getattr(path[-1], what) for path in paths) for what in ("name", "description"))
        return text_overlap(self._query, title, summary.strip(), info.content)


_USER = frozenset(texts.terms("user 用户"))
_ENTITIES = 20  # of those that a question names
_HANGING = 200  # infos, after which no further keyword's are looked at
_PAGES = 8  # of a keyword's infos, where few of them may be found
_WIDER = 50  # memories that are looked at for a later statement
_COMPARED = 1_000  # characters of a memory that may announce a change
_QUERY_LIMIT = 2_000  # characters
_PASSAGE = 160  # characters


def _words(text: str) -> str:
    return " ".join(text.split())
