"""`MemoryReadService`: one node's level, when it is wanted."""

from collections.abc import Sequence
from dataclasses import replace

from ..core.checks import check_count
from ..core.errors import ContextEngineError, InvalidInputError
from ..core.objects import RelationEdge, RequestContext, RetrievedBlock
from ..fs.context_fs import ContextFS
from ..fs.meta import file_of
from ..fs.relation_store import RelationStore

__all__ = ["MemoryReadService"]


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
        """Return a node's level, and what is above it.

        Args:
            uri: The node, or what it was before it moved.
            level: `"L0"`, `"L1"` or `"L2"`.
            expand_relations: Whether its edges are wanted; one without a reason has its target's abstract.
            max_relations: At most so many; 0 is all.
            ctx: The caller; needed.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidInputError: There is no such level, or `ctx` is missing.
        """
        if ctx is None:
            raise InvalidInputError("reading needs the request's ctx")
        file_of(level)  # refuses what is none
        check_count("max_relations", max_relations, least=0)
        node = self._fs.read_node(ctx, uri, include_content=level == "L2")
        edges = self._relations.get_edges(ctx, node.uri) if expand_relations else []
        edges = [self._tell(ctx, edge) for edge in (edges[:max_relations] if max_relations else edges)]
        return RetrievedBlock(
            uri=node.uri,
            level_hit=level,
            abstract=node.abstract,
            overview=node.overview if level != "L0" else "",
            content_excerpt=node.content if level == "L2" else "",
            relations=edges,
            score=1.0,
            match_reason="read by its URI",
        )

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
        """Return the same for several nodes, in their order.

        Raises:
            NodeNotFoundError: One of them is not there.
        """
        return [self.read(uri, level, ctx=ctx) for uri in uris]
