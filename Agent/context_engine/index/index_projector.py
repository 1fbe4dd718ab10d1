"""`IndexProjector`: what the main store holds, as the index keeps it."""

from collections.abc import Sequence

from ...base.text import digest_of
from ..core.objects import ContextNode, IndexRecord, MoveProjection, RelationEdge, RelationIndexRecord
from ..fs.uri import parse_uri
from .record_builder import build_records

__all__ = ["IndexProjector"]


class IndexProjector:
    """Pure functions; the node of an archive brings its messages in `metadata["messages"]`."""

    def build_context_records(self, node: ContextNode) -> list[IndexRecord]:
        """Return a node's records: L0, L1, and each passage or message of L2."""
        return build_records(node, node.metadata.get("messages") or ())

    def build_relation_records(self, uri: str, edges: Sequence[RelationEdge]) -> list[RelationIndexRecord]:
        """Return a node's edges as records, one for each (from, to, type)."""
        return [
            RelationIndexRecord(
                digest_of(uri, edge.to_uri, edge.relation_type, size=8),
                uri,
                edge.to_uri,
                edge.relation_type,
                {"reason": edge.reason, "weight": edge.weight},
            )
            for edge in edges
        ]

    def build_move_records(self, from_uri: str, to_uri: str) -> MoveProjection:
        """Return what a move changes."""
        return MoveProjection(from_uri, to_uri, parse_uri(from_uri).parent, parse_uri(to_uri).parent)
