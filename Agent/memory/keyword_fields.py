"""What a keyword's metadata says of it as an entity of the graph, and what it is found by.

    "entity_type": "person"
    "tag:tea": 0                                            its place among the tags, the most relevant first
    "relation:works_on:<id>": {"weight": 0.8, "number": 12} numbered in the order of adding; to itself: <id> empty

A colon within a relation's type is written %3A, and % is written %25; an id is written as it is. `"tag:"` alone says
that the tags were chosen by hand, although memories say others.
"""

from dataclasses import replace
from typing import NamedTuple

from ..keyword_tree import KeywordNode
from .graph import GraphEntity, entity_text, units_of_entity

__all__ = ["CHOSEN", "RELATION", "TAG", "OwnFields", "has_relations", "is_relation", "quote_type", "read_own"]
__all__ += ["split_relation_key", "units_of_keyword"]

TAG, RELATION = "tag:", "relation:"
"""What keys of the metadata begin with."""
CHOSEN = -1
"""As a place among tags, what no tag has."""


class OwnFields(NamedTuple):
    """What a keyword says of itself as an entity."""

    entity: GraphEntity
    has_type: bool
    has_tags: bool
    """Whether its tags were chosen by hand: then memories add none."""

    def entity_within(self, limit: int) -> GraphEntity:
        """Return the entity with at most this many tags."""
        return replace(self.entity, tags=self.entity.tags[:limit])


def read_own(node: KeywordNode) -> OwnFields:
    """Return what a keyword says of itself as an entity."""
    tags = [
        (place if isinstance(place, int) else len(node.metadata), key.removeprefix(TAG))
        for key, place in node.metadata.items()
        if key.startswith(TAG) and key != TAG
    ]
    kind = node.metadata.get("entity_type")
    has_type = isinstance(kind, str) and bool(kind.strip())
    entity = GraphEntity(
        node.id,
        node.name,
        str(kind) if has_type else "concept",
        node.description,
        [tag for _, tag in sorted(tags)],
        list(node.aliases),
    )
    return OwnFields(entity, has_type, TAG in node.metadata)


def units_of_keyword(node: KeywordNode) -> set[str]:
    """Return what a keyword is found by: the words of its names, tags and description, and its whole names."""
    return units_of_entity(entity_text(read_own(node).entity))


def has_relations(node: KeywordNode) -> bool:
    """Tell whether a keyword's metadata holds relations."""
    return any(split_relation_key(key)[0] for key in node.metadata)


def quote_type(kind: str) -> str:
    """Return a relation's type as a key has it."""
    return kind.replace("%", "%25").replace(":", "%3A")


def split_relation_key(key: str) -> tuple[str, str]:
    """Return a relation's type and the target as it was written; two empty strings for another key."""
    if not key.startswith(RELATION):
        return "", ""
    kind, colon, written = key.removeprefix(RELATION).partition(":")
    return (kind.replace("%3A", ":").replace("%25", "%"), written) if colon else ("", "")


def is_relation(value: object) -> bool:
    """Tell whether a value of the metadata has the form that this class writes: metadata is anybody's."""
    if not isinstance(value, dict):
        return False
    number, weight = value.get("number"), value.get("weight")
    return isinstance(number, int) and isinstance(weight, (int, float)) and 0.0 <= weight <= 1.0
