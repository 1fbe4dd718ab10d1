"""`IndexProjector`: a node's levels, passages and messages, its edges and its moves, as records.

Level 0 is the abstract with title and aliases, level 1 the overview; an archive has none. Level 2 is a record for each
entry or passage of the content, and of an archive for each passage of each message, with who said it.
"""

from collections.abc import Sequence
from typing import Any

from ...base.text import digest_of
from ..core.config import SESSIONS
from ..core.objects import ContextNode, IndexRecord, Message, MoveProjection, RelationEdge, RelationIndexRecord
from ..fs.uri import parse_uri
from ..providers.word_index import passages_of


def record_id(uri: str, level: int, part: int = 0) -> str:
    """Return what identifies a level of a node in every index; from the second passage on, with its number."""
    return digest_of(uri, str(level), *([str(part)] if part else []), size=8)


def build_records(node: ContextNode, messages: Sequence[Message] = ()) -> list[IndexRecord]:
    """Return the records of a node."""
    sequence = int(node.metadata.get("sequence") or 0)
    filters = {"owner_space": node.owner_space, "account": node.uri.split("/")[2], "category": node.category}
    at = node.metadata.get("updated_at") or 0.0

    def record(level: int, part: int, text: str, metadata: dict[str, Any]) -> IndexRecord:
        id, place = record_id(node.uri, level, part), (node.uri, node.parent_uri, node.context_type, node.category)
        return IndexRecord(id, *place, level, text, filters, metadata, part, sequence)

    names = [] if node.category == SESSIONS else [node.metadata.get("title") or "", *node.metadata.get("aliases", ())]
    head = "\n".join(filter(None, [*dict.fromkeys(names), node.abstract]))
    found = [record(0, 0, head, {"at": at})]
    if node.overview.strip() and node.category != SESSIONS:  # an archive is found by its messages
        found.append(record(1, 0, node.overview, {"at": at}))
    for part, text, metadata in passages_of(node, messages):
        found.append(record(2, part, text, metadata))
    return found


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
