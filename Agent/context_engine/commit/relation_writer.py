"""`RelationWriter`: edges into the main store."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidInputError
from ..core.objects import RelationEdge, RequestContext
from ..fs.relation_store import RelationStore

__all__ = ["RelationWriter"]


class RelationWriter:
    """Does what plans say about relations."""

    def __init__(self, store: RelationStore) -> None:
        self._store = store

    def apply_edges(self, ctx: RequestContext, uri: str, relation_ops: Sequence[Mapping[str, Any]]) -> None:
        """Add or remove a node's edges, in order.

        `relation_ops` are `{"op": "upsert" | "append" | "remove", "to_uri", "relation_type", "reason", "weight"}`.
        """
        for op in relation_ops:
            kind, to, relation = op.get("op", "upsert"), str(op.get("to_uri")), str(op.get("relation_type"))
            edge = RelationEdge(uri, to, relation, str(op.get("reason") or ""), float(op.get("weight") or 1.0))
            if kind == "upsert":
                self._store.upsert_edges(ctx, uri, [edge])
            elif kind == "append":
                self._store.append_edges(ctx, uri, [edge])
            elif kind == "remove":
                self._store.remove_edges(ctx, uri, [to], [relation])
            else:
                raise InvalidInputError(f"op must be upsert, append or remove, not {kind!r}")
