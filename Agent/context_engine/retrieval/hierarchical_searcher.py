"""`HierarchicalSearcher`: the second round, overviews, passages and messages under what was found and what is meant.

Reading is what costs, not looking: every level of the request's spaces is looked at, and a message is found by what it
says, though nothing above it says so.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ...base.text import date_of
from ..core.config import SESSIONS
from ..core.objects import NodeHit, RequestContext, SeedHit, TypedQuery
from ..fs.uri import check_access
from ..providers.library import ONE_AT_A_TIME, asked_relations, relation_of, subjects_of, words_of
from ..providers.vector_index import SpaceVectors
from ..providers.word_index import WordHit, WordIndex, terms_of
from .l0_retriever import NAMED, filters_of, fuse, spaces_of

__all__ = ["HierarchicalSearcher"]

Place = tuple[str, int, int]
_SHOWN_TERMS = 6
_NOW = frozenset(terms_of("now currently today still 现在 目前 如今"))  # ask for the newest, whatever says them


class HierarchicalSearcher:
    """Looks at levels 1 and 2, in the words and vectors of a space."""

    def __init__(self, words: Callable[[str], WordIndex], vectors: Callable[[str], SpaceVectors] | None = None) -> None:
        self._words, self._vectors = words, vectors

    def expand(self, typed_query: TypedQuery, seeds: Sequence[SeedHit], ctx: RequestContext) -> list[NodeHit]:
        """Return seeds, overviews, passages and messages that fit, best first.

        Archives are returned message by message: their abstracts are for a first look, and make no hit of their own.

        Cost: some milliseconds a space.
        """
        hits = [
            NodeHit(seed.uri, seed.score, 0, 0, "named so" if seed.score >= NAMED else "its abstract fits")
            for seed in seeds
            if seed.category != SESSIONS
        ]
        for space in spaces_of(typed_query, ctx):
            hits += self._look(space, typed_query.target_uri, typed_query)
        return sorted(hits, key=lambda hit: (-hit.score, hit.uri, hit.level, hit.part))

    def score_children(self, parent_uri: str, typed_query: TypedQuery, ctx: RequestContext) -> list[NodeHit]:
        """Return what fits under a node, best first."""
        parent = check_access(ctx, parent_uri)
        hits = self._look(parent.space, parent.text, typed_query)
        return sorted((hit for hit in hits if hit.uri != parent.text and hit.score > 0.0), key=lambda hit: -hit.score)

    def _look(self, space: str, target: str, query: TypedQuery) -> list[NodeHit]:
        words = self._words(space)
        filters = filters_of(query)._replace(target=target)
        count = 3 * query.top_k
        found = [hit for level in (2, 1) for hit in words.rank(query.text, count, (level,), filters)]
        raised = query.hints.get("raised", {})
        scores = {_place(hit): hit.score * raised.get(hit.category, 1.0) for hit in found}
        written = _written_terms(query.text)
        reasons = {_place(hit): _reason(hit, written) for hit in found}
        if self._vectors is not None:
            near = self._vectors(space).nearest(query.text, count, (2,), words, filters)
            for hit in near:
                reasons.setdefault(_place(hit), f"near in meaning ({hit.score:.2f}){_where(hit)}")
            scores = fuse(scores, {_place(hit): hit.score for hit in near})
        weight = query.hints.get("weight", 1.0)
        # "I moved to Rome" says where a person lives, and has no word of "Where do I live?": what such words alone find
        # has no score, and is shown only before an older message that says the same (see `RetrievalAssembler`).
        asked = sorted(asked_relations(query.text) & ONE_AT_A_TIME)
        wider = f"{query.text} {words_of(asked)}"
        others = words.rank(wider, count, (2,), filters) if asked else []
        held = {_place(hit): hit for hit in [*found, *others]}
        reasons = {_place(hit): _reason(hit, _written_terms(wider)) for hit in others} | reasons
        return [
            _with_source(
                NodeHit(place[0], weight * min(1.0, scores.get(place, 0.0)), *place[1:], reason),
                words, held.get(place), asked,
            )
            for place, reason in reasons.items()
        ]  # fmt: skip


def _with_source(made: NodeHit, words: WordIndex, hit: WordHit | None, asked: Sequence[str]) -> NodeHit:
    """Return a hit with when a passage was said, what of the question it says, who said it, and of whom.

    Of what was near in meaning alone nothing is known.
    """
    if hit is None or hit.level < 2:
        return made
    says = frozenset(relation_of(term, asked) for term in hit.terms) - _NOW
    relations = says.intersection(asked)
    text = words.text_of(hit).removeprefix(f"{hit.speaker.partition(' ')[2]}: ") if relations else ""
    subjects = frozenset(subject for relation in relations for subject in subjects_of(text, relation))
    return replace(made, at=hit.at, says=says, speaker=hit.speaker, subjects=subjects)


def _place(hit: WordHit) -> Place:
    return hit.uri, hit.level, hit.part


def _reason(hit: WordHit, written: Mapping[str, str]) -> str:
    answer = "; after a question" if hit.is_answer else ""
    said = _surface(hit.terms, written)
    says = f"says {', '.join(said)}" if said else "follows what fits"
    return f"{says}{_where(hit)}{answer}"


def _where(hit: WordHit) -> str:
    parts = [part for part in (hit.said, date_of(hit.at) if hit.level == 2 and hit.at else "") if part]
    return f" ({', '.join(parts)})" if parts else ""


def _written_terms(query: str) -> dict[str, str]:
    """Return how a query writes each of its terms."""
    written: dict[str, str] = {}
    for word in re.findall(r"[\w+#'’-]+", query):
        for term in terms_of(word):
            written.setdefault(term, word.casefold() if word.isascii() else term)
    return written


def _surface(terms: Iterable[str], written: Mapping[str, str]) -> list[str]:
    """Return terms as the query writes them; a character that a pair holds is not listed twice."""
    said = [written.get(term, term) for term in terms]
    kept = [word for word in dict.fromkeys(said) if not any(word != other and word in other for other in said)]
    return kept[:_SHOWN_TERMS]
