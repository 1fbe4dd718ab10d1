"""`RelationStore`: the edges of a node, in its `.relations.json`."""

from collections.abc import Callable, Sequence

from ...base.text import shorten
from ..core.config import RELATIONS
from ..core.errors import InvalidInputError
from ..core.objects import RelationEdge, RequestContext
from .context_fs import ContextFS
from .meta import Staged, read_edges, write_edges
from .transaction import Transaction
from .uri import Uri, check_access, is_visible

__all__ = ["RelationStore"]


class RelationStore:
    """The edges of nodes; each write is a transaction, or a part of the one that is open."""

    def __init__(self, fs: ContextFS) -> None:
        self._fs = fs

    def get_edges(self, ctx: RequestContext, uri: str) -> list[RelationEdge]:
        """Return a node's edges; those that lead outside the request's spaces are left out."""
        found = self._fs.follow(ctx, uri)
        edges = read_edges(found.text, self._fs.read_file(ctx, uri, RELATIONS))
        return [edge for edge in edges if is_visible(ctx, edge.to_uri)]

    def upsert_edges(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge]) -> None:
        """Add edges within the request's spaces; one with the same target and type takes the place of what is there."""
        self._add(ctx, uri, edges, replace=True)

    def append_edges(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge]) -> None:
        """Add edges; what is there with the same target and type stays."""
        self._add(ctx, uri, edges, replace=False)

    def _add(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge], replace: bool) -> None:
        found = self._fs.follow(ctx, uri)
        for edge in edges:
            if not isinstance(edge, RelationEdge) or edge.from_uri not in (uri, found.text):
                raise InvalidInputError(f"an edge of {uri!r} begins there: {shorten(edge)}")
            if not edge.relation_type:
                raise InvalidInputError(f"an edge needs a type: {shorten(edge)}")
            check_access(ctx, edge.to_uri)

        def merge(held: list[RelationEdge]) -> list[RelationEdge]:
            merged = {(edge.to_uri, edge.relation_type): edge for edge in held}
            for edge in edges:
                key = (edge.to_uri, edge.relation_type)
                if replace or key not in merged:
                    merged[key] = edge
            return list(merged.values())

        self._change(ctx, found, merge)

    def _change(self, ctx: RequestContext, uri: Uri, change: Callable[[list[RelationEdge]], list[RelationEdge]]) -> int:
        """Change a node's edges, and return how many fewer they are."""

        def run(tx: Transaction) -> int:
            staged = tx.look(uri)
            held = read_edges(uri.text, staged.files.get(RELATIONS, b""))
            made = change(held)
            if made != held:
                tx.put(uri, Staged({**staged.files, RELATIONS: write_edges(made)}, staged.meta))
            return len(held) - len(made)

        return self._fs.run(ctx, "relations", run)

    def remove_edges(
        self,
        ctx: RequestContext,
        uri: str,
        to_uris: Sequence[str] | None = None,
        relation_types: Sequence[str] | None = None,
    ) -> int:
        """Remove a node's edges to some nodes and of some types, where None is all, and return how many it were."""

        def is_kept(edge: RelationEdge) -> bool:
            is_elsewhere = to_uris is not None and edge.to_uri not in to_uris
            return is_elsewhere or (relation_types is not None and edge.relation_type not in relation_types)

        return self._change(ctx, self._fs.follow(ctx, uri), lambda held: list(filter(is_kept, held)))
