"""From a question to blocks of text, in four steps.

QueryPlanner          the question as queries; cues raise categories a little, only the caller's arguments exclude any
L0Retriever           names and confirmed queries, then words and vectors of the abstracts
HierarchicalSearcher  overviews, passages and messages: all levels are searched, since reading costs more than ranking,
                      and a message is found although nothing above it has its words
RetrievalAssembler    blocks within a budget, each with the reason of its match

`MemoryReadService` reads one level of a node whole.
"""

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from ...base.checks import shorten
from ...base.language import say
from ...base.text import clean, date_of
from ...memory.keywords import ONE_AT_A_TIME, OTHER, SPEAKER, asked_relations, relation_of, subjects_of, words_of
from ..core.config import (
    BUDGET_TOKENS,
    CONTENT,
    MESSAGES,
    OVERVIEW,
    OWNER_OF,
    PLACES,
    RELATIONS,
    SESSIONS,
    context_type_of,
)
from ..core.errors import ContextEngineError, InvalidInputError, NodeNotFoundError, check_count, check_time
from ..core.messages import lines_of
from ..core.objects import (
    ContextNode,
    NodeHit,
    RelationEdge,
    RequestContext,
    RetrievedBlock,
    SeedHit,
    SessionArchive,
    TypedQuery,
)
from ..fs.context_fs import ContextFS, RelationStore, node_of
from ..fs.meta import file_of, read_edges
from ..fs.uri import check_access, is_visible, parse_uri, space_uris
from ..providers import Filters, Place, WordHit, WordIndex, passage_of_archive, passages_of, projected_digest, terms_of

NAMED = 1.0
"""The score of a node that the query names exactly."""


def spaces_of(typed_query: TypedQuery, ctx: RequestContext) -> list[str]:
    """Return the spaces that a query looks into."""
    return [parse_uri(typed_query.target_uri).space] if typed_query.target_uri else list(space_uris(ctx))


class L0Retriever:
    """Searches level 0 only, by words and meaning; `on_stale` gets the URI of a hit that the store no longer has."""

    def __init__(self, fs: ContextFS, words: Callable[[str], WordIndex], on_stale: Callable[[str], None]) -> None:
        self._fs, self._words, self._on_stale = fs, words, on_stale

    def search(self, typed_query: TypedQuery, ctx: RequestContext) -> list[SeedHit]:
        """Return the nodes whose name or abstract fits, best first, without those that no longer exist.

        Cost: some milliseconds.
        """
        scores: dict[str, float] = {}
        raised, filters = typed_query.hints.get("raised", {}), filters_of(typed_query)
        for space in spaces_of(typed_query, ctx):
            words = self._words(space)
            for hit in words.rank(typed_query.text, 3 * typed_query.top_k, (0,), filters):
                scores[hit.uri] = min(hit.score * raised.get(hit.category, 1.0), 0.999)
            scores |= dict.fromkeys(words.uris_by_name(typed_query.text, filters), NAMED)
        best = sorted(scores, key=lambda uri: (-scores[uri], uri))
        seeds = (self._seed(ctx, uri, scores[uri]) for uri in best[: typed_query.top_k])
        return [seed for seed in seeds if seed is not None]

    def _seed(self, ctx: RequestContext, uri: str, score: float) -> SeedHit | None:
        try:
            node = self._fs.read_node(ctx, uri, include_content=False)
        except ContextEngineError as error:
            if isinstance(error, NodeNotFoundError):
                self._on_stale(uri)
            return None
        has = node.metadata.get("digests", {})
        return SeedHit(
            node.uri, score, node.category, node.owner_space, node.abstract, OVERVIEW in has and bool(node.overview),
            CONTENT in has,
        )  # fmt: skip


def filters_of(query: TypedQuery) -> Filters:
    """Return the filters of a query."""
    since, until = query.filters.get("since"), query.filters.get("until")
    return Filters(query.target_uri, tuple(query.categories), query.context_type, since, until)


_SHOWN_TERMS = 6
_NOW = frozenset(terms_of("now currently today still 现在 目前 如今"))  # ask for the newest, whatever says them


class HierarchicalSearcher:
    """Looks at levels 1 and 2, by the words and the meaning of a space."""

    def __init__(self, words: Callable[[str], WordIndex]) -> None:
        self._words = words

    def expand(self, typed_query: TypedQuery, seeds: Sequence[SeedHit], ctx: RequestContext) -> list[NodeHit]:
        """Return seeds, overviews, passages and messages that fit, best first.

        Archives are returned message by message: their abstracts are for a first look, and make no hit of their own.

        Cost: some milliseconds a space.
        """
        hits = [
            NodeHit(seed.uri, seed.score, 0, 0, say("named so") if seed.score >= NAMED else say("its abstract fits"))
            for seed in seeds
            if seed.category != SESSIONS
        ]
        for space in spaces_of(typed_query, ctx):
            hits += self._look(self._words(space), typed_query.target_uri, typed_query)
        return sorted(hits, key=lambda hit: (-hit.score, hit.uri, hit.level, hit.part))

    def score_children(self, parent_uri: str, typed_query: TypedQuery, ctx: RequestContext) -> list[NodeHit]:
        """Return hits under a node, best first."""
        parent = check_access(ctx, parent_uri)
        hits = self._look(self._words(parent.space), parent.text, typed_query)
        return sorted((hit for hit in hits if hit.uri != parent.text and hit.score > 0.0), key=lambda hit: -hit.score)

    def _look(self, words: WordIndex, target: str, query: TypedQuery) -> list[NodeHit]:
        filters = filters_of(query)._replace(target=target)
        count, raised = 3 * query.top_k, query.hints.get("raised", {})
        # "I moved to Rome" says where a person lives, and has no word of "Where do I live?": what such words alone find
        # has no score, and is shown only before an older message that says the same (see `RetrievalAssembler`).
        asked = sorted(asked_relations(query.text) & ONE_AT_A_TIME)
        wider = f"{query.text} {words_of(asked)}"
        with words.reading():
            found = {_place(hit): hit for level in (2, 1) for hit in words.rank(query.text, count, (level,), filters)}
            others = {_place(hit): hit for hit in words.rank(wider, count, (2,), filters)} if asked else {}
            held = others | found
            passages = [hit for hit in held.values() if hit.level == 2]
            sources = dict(zip(map(_place, passages), words.texts_of(passages), strict=True)) if asked else {}
        weight, written = query.hints.get("weight", 1.0), _written_terms(query.text)
        made = []
        for place, hit in held.items():
            score = min(1.0, hit.score * raised.get(hit.category, 1.0)) if place in found else 0.0
            source = _source_of(hit, asked, sources.get(place, "")) if hit.level == 2 else ()
            made.append(NodeHit(hit.uri, weight * score, hit.level, hit.part, _reason(hit, written), *source))
        return made


def _source_of(hit: WordHit, asked: Sequence[str], text: str) -> tuple[Any, ...]:
    """Return the last fields of a passage's hit: when it was said, what of the query, by whom, and of whom."""
    says = frozenset([relation_of(term, asked) for term in hit.terms]) - _NOW
    text = text.removeprefix(f"{hit.speaker.partition(' ')[2]}: ")
    stated = {relation: subjects for relation in asked if (subjects := subjects_of(text, relation))}
    return hit.at, says.union(stated), hit.speaker, frozenset().union(*stated.values()), hit.sequence


def _place(hit: WordHit) -> Place:
    return hit.uri, hit.level, hit.part


def _reason(hit: WordHit, written: Sequence[tuple[str, str]]) -> str:
    """Return why a hit fits, in the language that a program has chosen for its screen."""
    answer = say("; after a question") if hit.is_answer else ""
    # As the query writes them; a character that a pair holds is not listed twice.
    words = dict.fromkeys(word for word, term in written if term in hit.terms)
    shown = [word for word in words if not any(word != other and word in other for other in words)]
    said = say(", ").join(shown[:_SHOWN_TERMS])
    says = say("fits {}", said) if said else say("follows what fits") if hit.is_answer else say("near in meaning")
    where = say(", ").join(filter(None, [hit.said, date_of(hit.at) if hit.level == 2 and hit.at else ""]))
    return says + (say(" ({})", where) if where else "") + answer


def _written_terms(query: str) -> list[tuple[str, str]]:
    """Return how a query writes its terms, and these."""
    words = re.findall(r"[\w+#'’-]+", query)
    return [(word.casefold() if word.isascii() else term, term) for word in words for term in terms_of(word)]


RAISED = 1.1

_CUES = (
    (r"(?i)\b(?:who|whose|whom)\b|谁", ("entities", "profile")),
    (r"(?i)\b(?:when|what (?:day|date|time)|how long ago)\b|什么时候|何时|哪天|几号|几点", ("events",)),
    (r"(?i)\bhow (?:do|to|can|should|did)\b|怎么|怎样|如何|步骤", ("skills", "cases", "patterns", "tools")),
    (
        r"(?i)\b(?:like|love|prefer|favou?rite|hate|dislike|allergic|enjoy)\w*\b|喜欢|讨厌|偏好|爱吃|爱喝|过敏|习惯",
        ("preferences",),
    ),
    (r"(?i)\b(?:my name|am i|live|work|birthday|job)\b|我叫|我是谁|住在|工作|生日|职业", ("profile",)),
)
_TYPES = ("", *dict.fromkeys(map(context_type_of, (*OWNER_OF, SESSIONS))))
_HALF = 1_000  # characters: of a longer question its beginning and its end are asked
_LAST = 3  # messages of the running session that a second query takes its words from


class QueryPlanner:
    """Turns a question into queries; asks no model.

    >>> plan = QueryPlanner().plan("谁喜欢龙井?", ctx=RequestContext("acme", "ada", "helper"))[0]
    >>> sorted(plan.hints["raised"]), plan.categories
    (['entities', 'preferences', 'profile'], [])
    """

    def plan(
        self,
        query: str,
        session_archive: SessionArchive | None = None,
        hints: Mapping[str, Any] | None = None,
        ctx: RequestContext | None = None,
    ) -> list[TypedQuery]:
        """Return the queries of a question, the question itself first.

        Args:
            query: The question, as it was asked.
            session_archive: What was said just before; its last messages make a second query, which counts less.
            hints: `context_type`, `categories`, `target_uri`, `top_k`, `filters`, `budget_tokens`.
            ctx: The caller; needed.
        """
        if ctx is None:
            raise InvalidInputError("a query needs the request's ctx")
        space_uris(ctx)
        if not isinstance(query, str):
            raise InvalidInputError(f"query must be a text, not {shorten(query)}")
        if session_archive is not None and not isinstance(session_archive, SessionArchive):
            raise InvalidInputError(f"session_archive must be a SessionArchive, not {shorten(session_archive)}")
        if len(query) > 2 * _HALF:
            query = f"{query[:_HALF]}\n{query[-_HALF:]}"
        given = dict(hints or {})
        target = given.get("target_uri")
        planned = TypedQuery(
            text=clean(query),
            context_type=_check_names("context_type", [given.get("context_type") or ""], _TYPES)[0],
            categories=_check_names("categories", given.get("categories"), (*OWNER_OF, SESSIONS)),
            target_uri=check_access(ctx, target).text if target not in (None, "") else "",
            top_k=check_count("top_k", given.get("top_k", 10)),
            filters=_check_filters(given.get("filters")),
            hints={
                "raised": {category: RAISED for cue, raised in _CUES if re.search(cue, query) for category in raised},
                "budget_tokens": check_count("budget_tokens", given.get("budget_tokens", BUDGET_TOKENS)),
                "weight": 1.0,
            },
        )
        plans = [planned]
        if session_archive is not None and session_archive.recent_messages:
            last = " ".join(each.text[:400] for each in session_archive.recent_messages[-_LAST:])
            plans.append(replace(planned, text=f"{last}\n{planned.text}", hints={**planned.hints, "weight": 0.5}))
        return plans


def _check_names(what: str, names: object, allowed: Sequence[str]) -> list[str]:
    if names is not None and not (isinstance(names, (list, tuple)) and all(name in allowed for name in names)):
        raise InvalidInputError(f"{what} must be of {', '.join(filter(None, allowed))}, not {shorten(names)}")
    return list(names or ())


def _check_filters(filters: object) -> dict[str, Any]:
    if filters is None:
        return {}
    if not isinstance(filters, Mapping) or not set(filters) <= {"since", "until"}:
        raise InvalidInputError(f"filters may hold since and until, in seconds, not {shorten(filters)}")
    return {name: None if value is None else check_time(name, value) for name, value in filters.items()}


_ALMOST = 0.38
"""Share of the best score of its kind from which a hit fits about equally. A correction says more than what it
corrects, so that its words count less: "I stopped drinking tea, it's coffee now" has 0.39 of "I drink tea". LoCoMo's
evidence among ten blocks is 75.3 % (0.5: 75.6, 0.3: 75.0)."""


class _Seen(NamedTuple):
    node: ContextNode
    messages: list[bytes]
    """The lines of an archive's file: to split it costs more than to read one of them."""
    passages: dict[int, str]
    edges: list[RelationEdge]
    only: int | None
    """The passage to show, whatever was hit, where the index knew the node as it was before an edit."""

    def passage(self, part: int | None) -> tuple[str, str, str]:
        """Return a passage, and of an archive its message and that one's role; no other message is read."""
        part = part if self.only is None else self.only
        if part is None:
            return "", "", ""
        if self.node.category != SESSIONS:
            return self.passages.get(part, ""), "", ""
        with contextlib.suppress(ContextEngineError):  # `verify` reports a damaged line
            return passage_of_archive(self.messages, part, self.node.uri)
        return "", "", ""


class RetrievalAssembler:
    """Makes blocks of hits; `on_stale` gets the URI of a node that the index has in another state than the store."""

    def __init__(self, fs: ContextFS, words: Callable[[str], WordIndex], on_stale: Callable[[str], None]) -> None:
        self._fs, self._words, self._count, self._on_stale = fs, words, fs.count_tokens, on_stale

    def assemble(self, typed_query: TypedQuery, hits: Sequence[NodeHit], ctx: RequestContext) -> list[RetrievedBlock]:
        """Return at most `top_k` blocks within `budget_tokens`, best first; `hints["total"]` counts those left out.

        A node that was edited after it was indexed is indexed again by `on_stale`; the best passage of its present text
        is shown, or its newest one if none fits.

        Cost: reads each node that makes a block.
        """
        left = int(typed_query.hints.get("budget_tokens", BUDGET_TOKENS))
        made: set[tuple[str, str]] = set()
        blocks: list[RetrievedBlock] = []
        shown: set[str] = set()
        excerpts: set[str] = set()
        known: dict[str, str] = {}
        for space in spaces_of(typed_query, ctx):
            known |= self._words(space).digests({hit.uri for hit in hits})
        parts = _best_parts(hits)
        look = functools.cache(lambda uri: self._look(ctx, uri, known, typed_query))
        for hit in _newest_first(hits):
            if len(made) >= typed_query.top_k:
                break
            if (held := look(hit.uri)) is None:
                continue
            excerpt, said, role = held.passage(hit.part if hit.level == 2 else parts.get(hit.uri))
            key = (held.node.uri, said or excerpt)
            if not excerpt and any(uri == held.node.uri for uri, _ in made):
                continue
            if key in made or (hit.level == 2 and not excerpt):
                continue
            block = self._block(hit, held, held.node.uri in shown, excerpt, role)
            if block.content_excerpt and block.content_excerpt in excerpts:  # a memory has said the message already
                continue
            excerpts.add(block.content_excerpt)
            made.add(key)
            abstract, size = self._count(block.abstract), self._count(block.content_excerpt)
            if abstract + size > left and block.abstract:  # its abstract alone may fit
                block.content_excerpt, size = "", 0
            if abstract + size <= left:
                shown.add(block.uri)
                left -= abstract + size
                blocks.append(block)
        typed_query.hints["total"] = len(made)
        return blocks

    def _look(self, ctx: RequestContext, uri: str, known: Mapping[str, str], query: TypedQuery) -> _Seen | None:
        try:
            found, staged = self._fs.look_up(ctx, uri)
            node, image = node_of(found, staged, found.category != SESSIONS), staged.files
        except NodeNotFoundError:
            self._on_stale(uri)
            return None
        except ContextEngineError:  # damaged: `verify` reports it, the other hits are shown
            return None
        passages = {} if node.category == SESSIONS else {part: text for part, text, _ in passages_of(node)}
        edges = [edge for edge in read_edges(node.uri, image.get(RELATIONS, b"")) if is_visible(ctx, edge.to_uri)]
        only = None
        if node.category != SESSIONS and known.get(node.uri) != projected_digest(node):
            self._on_stale(node.uri)
            best = self._words(node.uri).rank(query.text, 1, (2,), Filters(node.uri))
            only = best[0].part if best else 0
        return _Seen(node, lines_of(image.get(MESSAGES, b"")), passages, edges, only)

    def _block(self, hit: NodeHit, held: _Seen, is_known: bool, excerpt: str, role: str) -> RetrievedBlock:
        level, score = f"L{hit.level}", round(hit.score, 4)
        abstract = "" if is_known and excerpt else held.node.abstract
        # Who reads the block must not take an answer, or what a tool gave, for the user's own word.
        reason = f"{level} {hit.score:.2f}{say(': ')}{hit.reason}" + (
            say("; said by {}", say(role)) if role not in ("", "user") else ""
        )
        return RetrievedBlock(held.node.uri, level, abstract, "", excerpt, held.edges, score, reason)


def _best_parts(hits: Sequence[NodeHit]) -> dict[str, int]:
    """Return the best passage of each memory: it is also shown where the abstract was hit."""
    return {hit.uri: hit.part for hit in reversed(hits) if hit.level == 2 and parse_uri(hit.uri).category != SESSIONS}


def _newest_first(hits: Sequence[NodeHit]) -> list[NodeHit]:
    """Return hits, of those that fit about equally, have one speaker and are about the same one the newest first.

    Equally fits what says the same of the question, and scores almost the best of these. Of a state that one is in
    only once at a time, as where one lives, neither the score nor other words count: who moved said so in other words.
    What comes before a better fit gets its score, so that scores fall from first to last.
    """
    order = {place: [hit] if hit.score > 0.0 else [] for place, hit in enumerate(hits)}
    for places, is_state in _alike(hits):
        best = hits[places[0]]
        group = [place for place in places if is_state or hits[place].score >= _ALMOST * best.score]
        found = [place for place in group if hits[place].score > 0.0]
        if found:
            newest = [hits[place] for place in group if place in found or _when(hits[place]) > _when(best)]
            newest.sort(key=_when, reverse=True)
            if is_state:
                newest[1:] = [replace(hit, reason=hit.reason + say("; out of date")) for hit in newest[1:]]
            order.update((place, []) for place in group)
            # What only other words find comes along with the first one.
            for place, hit in zip([found[0]] * (len(newest) - len(found)) + found, newest, strict=True):
                order[place].append(hit)
    ordered = [hit for place in sorted(order) for hit in order[place]]
    scores = [*itertools.accumulate([hit.score for hit in reversed(ordered)], max)]
    return [replace(hit, score=score) for hit, score in zip(ordered, reversed(scores), strict=True)]


def _alike(hits: Sequence[NodeHit]) -> Iterator[tuple[list[int], bool]]:
    """Yield the places of hits that say the same by one speaker, and whether it is a state of the same one."""
    groups: list[tuple[tuple[str, frozenset[str]], set[str], list[int]]] = []
    for place, hit in enumerate(hits):
        kinds = hit.says & ONE_AT_A_TIME if hit.subjects else frozenset[str]()
        key, subjects = (hit.speaker, kinds or hit.says), hit.subjects if kinds else frozenset[str]()
        if hit.at and hit.says:
            same = (each for each in groups if each[0] == key and _is_same(each[1], subjects))
            group = next(same, None) or (key, set[str](), list[int]())
            groups += [] if group[2] else [group]
            group[1].update(subjects)
            group[2].append(place)
    yield from ((places, bool(subjects)) for _, subjects, places in groups)


def _is_same(one: Set[str], other: Set[str]) -> bool:
    """Whether two statements may be about the same one, or both about none: "she" is any other than the speaker."""
    return bool(one & other) or not (one or other) or (OTHER in one | other and SPEAKER not in one | other)


def _when(hit: NodeHit) -> tuple[float, int, int]:
    return hit.at, hit.sequence, hit.part % PLACES


class MemoryReadService:
    """Reads levels whole."""

    def __init__(self, fs: ContextFS, relations: RelationStore) -> None:
        self._fs, self._relations = fs, relations

    def read(
        self,
        uri: str,
        level: str = "L1",
        expand_relations: bool = False,
        max_relations: int = 0,
        ctx: RequestContext | None = None,
    ) -> RetrievedBlock:
        """Return a node's level (`"L0"`, `"L1"` or `"L2"`), and the levels above it.

        With `expand_relations` it has at most `max_relations` of its edges, where 0 is all. `ctx` is needed.
        """
        if ctx is None:
            raise InvalidInputError("reading needs the request's ctx")
        file_of(level)  # refuses what is none
        check_count("max_relations", max_relations, least=0)
        node = self._fs.read_node(ctx, uri, include_content=level == "L2")
        edges = self._relations.get_edges(ctx, node.uri) if expand_relations else []
        edges = edges[: max_relations or None]
        overview, content = node.overview if level != "L0" else "", node.content if level == "L2" else ""
        return RetrievedBlock(node.uri, level, node.abstract, overview, content, edges, 1.0, "read by its URI")

    def read_batch(
        self, uris: Sequence[str], level: str = "L1", ctx: RequestContext | None = None
    ) -> list[RetrievedBlock]:
        """Return the same for several nodes, in their order."""
        return [self.read(uri, level, ctx=ctx) for uri in uris]
