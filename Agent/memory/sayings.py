"""How an info keeps what it says of the graph, so that whatever becomes of the info becomes of that, too.

    info.metadata["memory"]["graph"] = {
        "by": "model",
        "entities": {keyword id: {"type": "person", "tags": ["nurse"], "description": "…"}, …},
        "relations": [[source's id, "works_on", target's id, 1.0, start, end], …],
    }

Relations, types and tags are nowhere else: they are read from the infos, as the full-text index is. So correcting or
forgetting a memory removes what it alone said, undoing restores it, and each relation knows who says so. Other
ways were tried on paper and rejected: in the keyword's own metadata, ten thousand memories of one person would each
write a row with all ten thousand relations.

A memory that waits for a model has `{"waits": "model", "tries": 0}` instead. Metadata is anybody's: what has not this
form counts as not written.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from ..keyword_tree import Info
from .memory_fields import memory_fields

__all__ = [
    "NOTHING_SAID",
    "SaidEntity",
    "SaidRelation",
    "Sayings",
    "Waits",
    "pack_sayings",
    "read_sayings",
    "unpack_sayings",
    "waits_for",
]


class SaidEntity(NamedTuple):
    """What a memory says that an entity is."""

    entity_type: str
    tags: tuple[str, ...]
    description: str


class SaidRelation(NamedTuple):
    """What a memory says that one entity has to do with another."""

    source_id: str
    relation_type: str
    target_id: str
    weight: float
    sentence: str


class Sayings(NamedTuple):
    """All that a memory says of the graph."""

    entities: dict[str, SaidEntity]
    relations: tuple[SaidRelation, ...]

    def __bool__(self) -> bool:
        return bool(self.entities or self.relations)


Waits: TypeAlias = tuple[str, int]
"""What a memory waits to be read by, and how often that was tried."""

NOTHING_SAID = Sayings({}, ())


def read_sayings(info: Info) -> Sayings:
    """Return what an info says; nothing where it is deleted, or where another one took its place."""
    own = memory_fields(info)
    graph = own.get("graph")
    if info.deleted or own.get("superseded_by") or not isinstance(graph, Mapping):
        return NOTHING_SAID
    reported = graph.get("entities")
    entities = {str(id): _read_entity(about) for id, about in reported.items()} if isinstance(reported, Mapping) else {}
    rows = graph.get("relations")
    relations = (_read_relation(row, info.content) for row in (rows if isinstance(rows, list) else ()))
    held = tuple(each for each in relations if each is not None)
    return Sayings(entities, held) if entities or held else NOTHING_SAID


def waits_for(info: Info) -> Waits | None:
    """Return what an info waits for, and how often that was tried; None where it does not wait."""
    own = memory_fields(info)
    graph = own.get("graph")
    if info.deleted or own.get("superseded_by") or not isinstance(graph, Mapping):
        return None
    waits, tries = graph.get("waits"), graph.get("tries", 0)
    return (waits, tries) if isinstance(waits, str) and isinstance(tries, int) else None


def _read_entity(about: Any) -> SaidEntity:
    held = about if isinstance(about, Mapping) else {}
    kind, description, tags = held.get("type"), held.get("description"), held.get("tags")
    return SaidEntity(
        kind if isinstance(kind, str) and kind.strip() else "",
        tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        description if isinstance(description, str) else "",
    )


def _read_relation(row: Any, content: str) -> SaidRelation | None:
    if not isinstance(row, list) or len(row) != 6:
        return None
    source, kind, target, weight, start, end = row
    texts = all(isinstance(text, str) and text.strip() for text in (source, kind, target))
    is_weight = isinstance(weight, (int, float)) and not isinstance(weight, bool) and 0.0 <= weight <= 1.0
    if not texts or not is_weight or not isinstance(start, int) or not isinstance(end, int) or source == target:
        return None
    return SaidRelation(source, kind, target, float(weight), content[max(0, start) : max(0, end)].strip())


def pack_sayings(said: Sayings) -> list[Any] | None:
    """Return what a memory says as JSON has it; None where it says nothing."""
    if not said:
        return None
    return [said.entities, said.relations]


def unpack_sayings(packed: Any) -> Sayings:
    """Return what `pack_sayings` packed.

    Raises:
        ValueError, TypeError: It is no such thing.
    """
    if packed is None:
        return NOTHING_SAID
    entities, relations = packed
    held = {id: SaidEntity(kind, tuple(tags), description) for id, (kind, tags, description) in entities.items()}
    return Sayings(held, tuple(SaidRelation(*row) for row in relations))
