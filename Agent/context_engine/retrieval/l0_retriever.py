"""`L0Retriever`: the first round. Names and confirmed queries, then words and vectors of the abstracts."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from ...base.text import shorten
from ..core.config import CONTENT, OVERVIEW, OWNER_OF, SESSIONS
from ..core.errors import ContextEngineError, InvalidInputError, NodeNotFoundError
from ..core.objects import RequestContext, SeedHit, TypedQuery
from ..fs.context_fs import ContextFS
from ..fs.meta import context_type_of
from ..fs.uri import parse_uri, space_uris
from ..providers.vector_index import SpaceVectors
from ..providers.word_index import Filters, WordIndex

__all__ = ["NAMED", "L0Retriever", "filters_of", "spaces_of"]

NAMED = 1.0
"""The score of what the query names exactly."""


def spaces_of(typed_query: TypedQuery, ctx: RequestContext) -> list[str]:
    """Return the spaces that a query looks into."""
    spaces = space_uris(ctx)
    return [parse_uri(typed_query.target_uri).space] if typed_query.target_uri else list(dict.fromkeys(spaces))


class L0Retriever:
    """Looks at level 0 only, in the words and vectors of a space; what the store has not, `on_stale` is called with."""

    def __init__(
        self,
        fs: ContextFS,
        words: Callable[[str], WordIndex],
        vectors: Callable[[str], SpaceVectors] | None,
        on_stale: Callable[[str], None],
    ) -> None:
        self._fs, self._words, self._vectors, self._on_stale = fs, words, vectors, on_stale

    def search(self, typed_query: TypedQuery, ctx: RequestContext) -> list[SeedHit]:
        """Return the nodes whose name or abstract fits, best first; what is gone is left out.

        Cost: some milliseconds; with vectors, one call of the embedder for the question.
        """
        scores: dict[str, float] = {}
        for space in spaces_of(typed_query, ctx):
            words = self._words(space)
            for uri in words.uris_by_name(typed_query.text):
                if words.is_wanted(uri, filters_of(typed_query)):
                    scores[uri] = NAMED
            for uri, score in self._by_content(space, words, typed_query).items():
                scores[uri] = max(scores.get(uri, 0.0), min(score, 0.999))
        best = sorted(scores, key=lambda uri: (-scores[uri], uri))
        seeds = (self._seed(ctx, uri, scores[uri]) for uri in best[: typed_query.top_k])
        return [seed for seed in seeds if seed is not None]

    def _by_content(self, space: str, words: WordIndex, query: TypedQuery) -> dict[str, float]:
        filters = filters_of(query)
        hits = words.rank(query.text, 3 * query.top_k, (0,), filters)
        by_words = {hit.uri: hit.score * query.hints.get("raised", {}).get(hit.category, 1.0) for hit in hits}
        if self._vectors is None:
            return by_words
        near = self._vectors(space).nearest(query.text, 3 * query.top_k, (0,), words, filters)
        return fuse(by_words, {hit.uri: hit.score for hit in near})

    def _seed(self, ctx: RequestContext, uri: str, score: float) -> SeedHit | None:
        try:
            node = self._fs.read_node(ctx, uri, include_content=False)
        except ContextEngineError as error:
            if isinstance(error, NodeNotFoundError):
                self._on_stale(uri)
            return None
        if node.uri != uri:
            self._on_stale(uri)
        has = node.metadata.get("digests", {})
        return SeedHit(
            node.uri, score, node.category, node.owner_space, node.abstract, OVERVIEW in has and bool(node.overview),
            CONTENT in has,
        )  # fmt: skip


def filters_of(query: TypedQuery) -> Filters:
    """Return what a query excludes; there must be such a context type, and one of the categories of it."""
    categories = query.categories
    if query.context_type:
        of_type = [name for name in (*OWNER_OF, SESSIONS) if context_type_of(name) == query.context_type]
        categories = [name for name in of_type if not categories or name in categories]
        if not of_type:
            raise InvalidInputError(
                f"context_type must be memory, session, skill or tool, not {shorten(query.context_type)}"
            )
        if not categories:
            raise InvalidInputError(f"no category of {shorten(query.categories)} is of type {query.context_type!r}")
    return Filters(query.target_uri, tuple(categories), query.filters.get("since"), query.filters.get("until"))


Key = TypeVar("Key")

_K = 60


def fuse(*rankings: Mapping[Key, float]) -> dict[Key, float]:
    """Return what some rankings hold, each scored by the sum of 1 / (60 + rank), from 0 to 1.

    >>> fuse({"a": 0.9, "b": 0.2}, {"b": 0.8, "c": 0.1})
    {'b': 0.9919..., 'a': 0.5, 'c': 0.4919...}
    """
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(sorted(ranking, key=lambda key: -ranking[key]), 1):
            scores[key] = scores.get(key, 0.0) + (_K + 1) / (_K + rank) / len(rankings)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))
