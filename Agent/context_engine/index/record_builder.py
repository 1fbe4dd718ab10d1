"""A node's levels, passages and messages as records.

Level 0 is the abstract with title and aliases, level 1 the overview; an archive has none. Level 2 is a record for each
entry or passage of the content, and of an archive for each passage of each message, with who said it.
"""

from collections.abc import Sequence
from typing import Any

from ...base.text import digest_of
from ..core.config import SESSIONS
from ..core.objects import ContextNode, IndexRecord, Message
from ..providers.passages import passages_of

__all__ = ["build_records", "record_id"]


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
