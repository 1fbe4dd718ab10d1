"""`RelationStore`: the edges of a node, in its `.relations.json`."""

from collections.abc import Sequence

from ..core.config import RELATIONS
from ..core.errors import InvalidInputError
from ..core.objects import RelationEdge, RequestContext
from ..core.text import shorten
from .context_fs import ContextFS
from .meta import Staged, read_edges, write_edges
from .transaction import Transaction
from .uri import check_access, is_visible

__all__ = ["RelationStore"]


class RelationStore:
    """The edges of nodes; each write is a transaction, or a part of the one that is open."""

    def __init__(self, fs: ContextFS) -> None:
        self._fs = fs

    def get_edges(self, ctx: RequestContext, uri: str) -> list[RelationEdge]:
        """Return a node's edges; those that lead outside the request's spaces are left out.

        Raises:
            NodeNotFoundError: There is no such node.
        """
        found = self._fs.follow(ctx, uri)
        edges = read_edges(found.text, self._fs.read_file(ctx, uri, RELATIONS))
        return [edge for edge in edges if is_visible(ctx, edge.to_uri)]

    def upsert_edges(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge]) -> None:
        """Add edges; one with the same target and type takes the place of what is there.

        Raises:
            AccessDeniedError: An edge leads outside.
            InvalidInputError: An edge is of another node, or none.
        """
        self._change(ctx, uri, edges, replace=True)

    def append_edges(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge]) -> None:
        """Add edges; what is there with the same target and type stays."""
        self._change(ctx, uri, edges, replace=False)

    def _change(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge], replace: bool) -> None:
        found = self._fs.follow(ctx, uri)
        for edge in edges:
            if not isinstance(edge, RelationEdge) or edge.from_uri not in (uri, found.text):
                raise InvalidInputError(f"an edge of {uri!r} begins there: {shorten(edge)}")
            if not edge.relation_type:
                raise InvalidInputError(f"an edge needs a type: {shorten(edge)}")
            check_access(ctx, edge.to_uri)

        def change(tx: Transaction) -> None:
            staged = tx.look(found)
            held = read_edges(found.text, staged.files.get(RELATIONS, b""))
            merged = {(edge.to_uri, edge.relation_type): edge for edge in held}
            for edge in edges:
                key = (edge.to_uri, edge.relation_type)
                if replace or key not in merged:
                    merged[key] = edge
            tx.put(found, Staged({**staged.files, RELATIONS: write_edges(list(merged.values()))}, staged.meta))

        self._fs.run(ctx, "relations", change)

    def remove_edges(
        self,
        ctx: RequestContext,
        uri: str,
        to_uris: Sequence[str] | None = None,
        relation_types: Sequence[str] | None = None,
    ) -> int:
        """Remove a node's edges, and return how many it were.

        Args:
            ctx: The caller.
            uri: The node.
            to_uris: Only those that lead to one of these; None is all.
            relation_types: Only those of these types; None is all.
        """
        found = self._fs.follow(ctx, uri)

        def change(tx: Transaction) -> int:
            staged = tx.look(found)
            held = read_edges(found.text, staged.files.get(RELATIONS, b""))
            kept = [
                edge
                for edge in held
                if (to_uris is not None and edge.to_uri not in to_uris)
                or (relation_types is not None and edge.relation_type not in relation_types)
            ]
            if len(kept) < len(held):
                tx.put(found, Staged({**staged.files, RELATIONS: write_edges(kept)}, staged.meta))
            return len(held) - len(kept)

        return self._fs.run(ctx, "relations", change)
