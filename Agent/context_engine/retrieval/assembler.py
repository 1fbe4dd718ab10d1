"""`RetrievalAssembler`: blocks within a budget, each saying why it is there.

A block is one entry of a node, or a message of an archive; the node's abstract stands with the first of them. Texts
are read from the main store now; what is gone is left out, and reported.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from ...base.text import CountTokens
from ...memory.relation_words import ONE_AT_A_TIME, OTHER, SPEAKER
from ..core.config import BUDGET_TOKENS, MESSAGES, PASSAGE_CHARACTERS, PLACES, RELATIONS, SESSIONS
from ..core.errors import ContextEngineError, InvalidInputError, NodeNotFoundError, check_count
from ..core.messages import lines_of
from ..core.objects import ContextNode, NodeHit, RelationEdge, RequestContext, RetrievedBlock, TypedQuery
from ..fs.context_fs import ContextFS, RelationStore
from ..fs.meta import file_of, read_edges
from ..fs.uri import is_visible, parse_uri
from ..providers.word_index import Filters, WordIndex, passage_of_archive, passages_of, projected_digest

_ALMOST = 0.8
"""What scores so much of the best of its kind fits about equally."""


class _Seen(NamedTuple):
    node: ContextNode
    messages: list[bytes]
    """The lines of an archive's file: to split it costs more than to read one of them."""
    passages: dict[int, str]
    edges: list[RelationEdge]
    is_stale: bool
    """Whether the index knows it as it was: then a passage's number says nothing."""

    def passage(self, part: int) -> tuple[str, str, str]:
        """Return a passage, and of an archive its message and that one's role; no other message is read."""
        if self.node.category != SESSIONS:
            return self.passages.get(part, ""), "", ""
        with contextlib.suppress(ContextEngineError):  # a line that a hand has damaged is reported by `verify`
            return passage_of_archive(self.messages, part, self.node.uri)
        return "", "", ""


class RetrievalAssembler:
    """Makes blocks of hits; `on_stale` is called with a URI that the index does not have as the store has it."""

    def __init__(
        self, fs: ContextFS, words: Callable[[str], WordIndex], tokens: CountTokens, on_stale: Callable[[str], None]
    ) -> None:
        self._fs, self._words, self._count, self._on_stale = fs, words, tokens, on_stale

    def assemble(self, typed_query: TypedQuery, hits: Sequence[NodeHit], ctx: RequestContext) -> list[RetrievedBlock]:
        """Return at most `top_k` blocks within `budget_tokens`, best first; `hints["total"]` counts those left out.

        Cost: reads each node that makes a block.
        """
        left = int(typed_query.hints.get("budget_tokens", BUDGET_TOKENS))
        seen: dict[str, _Seen | None] = {}
        made: dict[tuple[str, str], RetrievedBlock] = {}
        blocks: list[RetrievedBlock] = []
        shown: set[str] = set()
        excerpts: set[str] = set()
        parts = _best_parts(hits)
        for hit in _newest_first(hits):
            if len(made) >= typed_query.top_k:
                break
            if hit.uri not in seen:
                seen[hit.uri] = self._look(ctx, hit.uri)
                if (made_anew := seen[hit.uri]) is not None and made_anew.is_stale:
                    self._find_again(hit.uri, typed_query, parts)
            held = seen[hit.uri]
            if held is None:
                continue
            excerpt, said, role = self._excerpt(hit, held, parts)
            key = (held.node.uri, said or excerpt)
            if not excerpt and any(uri == held.node.uri for uri, _ in made):
                continue
            if key in made or (hit.level == 2 and not excerpt and not self._fs.readonly):
                continue
            block = self._block(hit, held, held.node.uri in shown, excerpt, role)
            if block.content_excerpt and block.content_excerpt in excerpts:  # a memory has said the message already
                continue
            excerpts.add(block.content_excerpt)
            made[key] = block
            fitted = self._fit(block, left)
            if fitted is not None:
                shown.add(block.uri)
                left -= self._count(fitted.abstract) + self._count(fitted.content_excerpt)
                blocks.append(fitted)
        typed_query.hints["total"] = len(made)
        return blocks

    def _look(self, ctx: RequestContext, uri: str) -> _Seen | None:
        try:
            if parse_uri(uri).category == SESSIONS:
                node = self._fs.read_node(ctx, uri, include_content=False)
                # Never changed but to forget: each line stands for itself, and a digest costs more than the reading.
                image = self._fs.folders.read(parse_uri(node.uri).folders, (RELATIONS, MESSAGES))
            else:
                node, image = self._fs.read_all(ctx, uri)
        except NodeNotFoundError:
            self._on_stale(uri)
            return None
        except ContextEngineError:  # damaged by hand: it is reported by `verify`, and does not hide the others
            return None
        passages = {} if node.category == SESSIONS else {part: text for part, text, _ in passages_of(node)}
        edges = [edge for edge in read_edges(node.uri, image.get(RELATIONS, b"")) if is_visible(ctx, edge.to_uri)]
        known = self._words(node.uri).node(node.uri)
        digests = node.metadata["digests"]
        is_stale = node.category != SESSIONS and (
            known is None or known.digest != projected_digest(node.uri, node.metadata, node.category, digests)
        )
        return _Seen(node, lines_of(image.get(MESSAGES, b"")), passages, edges, is_stale)

    def _find_again(self, uri: str, query: TypedQuery, parts: dict[str, int]) -> None:
        """Let the index have a node as it is now, and note the passage that fits best; none where none does."""
        self._on_stale(uri)
        parts.pop(uri, None)
        if not self._fs.readonly:
            found = self._words(uri).rank(query.text, 1, filters=Filters(uri))
            parts.update((hit.uri, hit.part) for hit in found if hit.uri == uri)

    def _excerpt(self, hit: NodeHit, held: _Seen, best_parts: Mapping[str, int]) -> tuple[str, str, str]:
        """Return what a block shows of a node's content, which message it is of, and whose."""
        if hit.level == 2 and not held.is_stale:
            return held.passage(hit.part)
        if held.node.category == SESSIONS:
            return "", "", ""
        if hit.uri in best_parts:
            return held.passage(best_parts[hit.uri])
        # Of a node that was hit by its name, and whose passages say other things by now, the newest.
        return held.passage(0) if held.is_stale and hit.level == 0 and not self._fs.readonly else ("", "", "")

    def _block(self, hit: NodeHit, held: _Seen, is_known: bool, excerpt: str, role: str) -> RetrievedBlock:
        level, score = f"L{hit.level}", round(hit.score, 4)
        abstract = "" if is_known and excerpt else held.node.abstract
        # Who reads the block must not take an answer, or what a tool gave, for the user's own word.
        reason = f"{level} {hit.score:.2f}: {hit.reason}" + (f"; said by {role}" if role not in ("", "user") else "")
        excerpt = excerpt[:PASSAGE_CHARACTERS]
        return RetrievedBlock(held.node.uri, level, abstract, "", excerpt, held.edges, score, reason)

    def _fit(self, block: RetrievedBlock, left: int) -> RetrievedBlock | None:
        """Return a block as far as it fits: whole, then its abstract alone, then nothing."""
        abstract, excerpt = self._count(block.abstract), self._count(block.content_excerpt)
        if abstract + excerpt <= left:
            return block
        if block.abstract and abstract <= left:
            block.content_excerpt = ""
            return block
        return None


def _best_parts(hits: Sequence[NodeHit]) -> dict[str, int]:
    """Return the passage of each node that fits best: it is shown, too, where the node's abstract is what was hit."""
    found: dict[str, int] = {}
    for hit in hits:
        if hit.level == 2:
            found.setdefault(hit.uri, hit.part)
    return found


def _newest_first(hits: Sequence[NodeHit]) -> list[NodeHit]:
    """Return hits, of those that fit about equally, have one speaker and are about the same one the newest first.

    Equally fits what says the same of the question, and scores almost the best of these. Of a state that one is in
    only once at a time, as where one lives, neither the score nor other words count: who moved said so in other words.
    What comes before a better fit gets its score, so that scores fall from first to last.
    """
    order = {place: [hit] if hit.score > 0.0 else [] for place, hit in enumerate(hits)}
    for places, is_state in _alike(hits):
        best = hits[places[0]]
        group = [hits[place] for place in places if is_state or hits[place].score >= _ALMOST * best.score]
        newest = [hit for hit in sorted(group, key=_when, reverse=True) if hit.score > 0.0 or _when(hit) > _when(best)]
        if best.score > 0.0:
            if is_state:
                newest[1:] = [replace(hit, reason=f"{hit.reason}; out of date") for hit in newest[1:]]
            order.update({place: [] for place in places if hits[place] in group})
            found = [place for place in places if hits[place] in group and hits[place].score > 0.0]
            first = len(newest) - len(found) + 1
            order[found[0]] = newest[:first]
            order.update((place, [hit]) for place, hit in zip(found[1:], newest[first:], strict=True))
    ordered = [hit for place in sorted(order) for hit in order[place]]
    score = 0.0
    for place in reversed(range(len(ordered))):
        score = max(score, ordered[place].score)
        ordered[place] = replace(ordered[place], score=score)
    return ordered


def _alike(hits: Sequence[NodeHit]) -> Iterator[tuple[list[int], bool]]:
    """Yield the places of hits that say the same by one speaker, and whether it is a state of the same one."""
    alike: dict[tuple[str, frozenset[str]], list[int]] = {}
    states: list[tuple[tuple[str, frozenset[str]], set[str], list[int]]] = []
    for place, hit in enumerate(hits):
        kinds = hit.says & ONE_AT_A_TIME if hit.subjects else frozenset[str]()
        if hit.at and kinds:
            same = (each for each in states if each[0] == (hit.speaker, kinds) and _is_same(each[1], hit.subjects))
            if (group := next(same, None)) is None:
                states.append(((hit.speaker, kinds), set(hit.subjects), [place]))
            else:
                group[1].update(hit.subjects)
                group[2].append(place)
        elif hit.at and hit.says:
            alike.setdefault((hit.speaker, hit.says), []).append(place)
    yield from ((places, True) for _, _, places in states)
    yield from ((places, False) for places in alike.values())


def _is_same(one: Set[str], other: Set[str]) -> bool:
    """Whether two statements may be about the same one: "she" is any other than the speaker."""
    return bool(one & other) or (OTHER in one | other and SPEAKER not in one | other)


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
        """Return a node's level (`"L0"`, `"L1"` or `"L2"`), and what is above it.

        With `expand_relations` it has at most `max_relations` of its edges, where 0 is all; one without a reason gets
        its target's abstract. `ctx` is needed.
        """
        if ctx is None:
            raise InvalidInputError("reading needs the request's ctx")
        file_of(level)  # refuses what is none
        check_count("max_relations", max_relations, least=0)
        node = self._fs.read_node(ctx, uri, include_content=level == "L2")
        edges = self._relations.get_edges(ctx, node.uri) if expand_relations else []
        edges = [self._tell(ctx, edge) for edge in (edges[:max_relations] if max_relations else edges)]
        overview, content = node.overview if level != "L0" else "", node.content if level == "L2" else ""
        return RetrievedBlock(node.uri, level, node.abstract, overview, content, edges, 1.0, "read by its URI")

    def _tell(self, ctx: RequestContext, edge: RelationEdge) -> RelationEdge:
        if edge.reason:
            return edge
        try:
            return replace(edge, reason=self._fs.read_level(ctx, edge.to_uri, "L0"))
        except ContextEngineError:
            return edge

    def read_batch(
        self, uris: Sequence[str], level: str = "L1", ctx: RequestContext | None = None
    ) -> list[RetrievedBlock]:
        """Return the same for several nodes, in their order."""
        return [self.read(uri, level, ctx=ctx) for uri in uris]
