"""The metadata of infos and keywords. Any program may write metadata: another form counts as absent.

What `MemoryStore` writes of an info:

    info.metadata["memory"] = {
        "kind": "fact", "pinned": true, "sources": ["chat 2"], "time": 1790000000.0, "supersedes": id, …
        "graph": {
            "by": "model",
            "entities": {keyword id: {"type": "person", "tags": ["nurse"], "description": "…"}, …},
            "relations": [[source's id, "works_on", target's id, 1.0, start, end], …],
        },
    }

What a memory says of the graph, its *sayings*, is kept with the memory, so that whatever becomes of it becomes of that,
too: correcting or forgetting a memory removes what it alone said, undoing restores it, and each relation knows who says
so. A memory that waits for a model has `{"waits": "model"}` instead.

What a keyword says of itself as an entity of the graph:

    "entity_type": "person"
    "tag:tea": 0                                            its place among the tags, the most relevant first
    "relation:works_on:<id>": {"weight": 0.8}               to itself: <id> empty
    "relation:works_on:<id>": {"removed": true}             memories say so, which does not count

A colon within a relation's type is written %3A, and % is written %25; an id is written as it is. `"tag:"` alone says
that the tags were chosen by hand: memories add none.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from ..base.text import mapping_of, strings_of
from ..keyword_tree import Info, KeywordNode
from .graph import GraphEntity
from .schemas import EpisodeTrace, ProceduralSkill, SemanticPattern, as_utc, seconds_of

MEMORY_KEY = "memory"
"""The key of an info's metadata that a memory's own fields are under; see `store`."""


def memory_fields(info: Info) -> Mapping[str, Any]:
    """Return what `MemoryStore` wrote of an info; nothing where something else wrote it."""
    own = info.metadata.get(MEMORY_KEY)
    return own if own is not None and isinstance(own, Mapping) else _NOTHING  # most infos have none


def sources_of(info: Info) -> tuple[str, ...]:
    """Return where a memory is from: its source, and those from which it was remembered again."""
    others = strings_of(memory_fields(info).get("sources"))
    return (info.source, *(source for source in dict.fromkeys(others) if source != info.source))


def superseded_ids(info: Info) -> tuple[str, ...]:
    """Return the infos that an info says it supersedes, itself not among them."""
    olds = memory_fields(info).get("supersedes")
    return tuple(id for id in strings_of([olds] if isinstance(olds, str) else olds) if id != info.id) if olds else ()


def are_replaced(infos: Mapping[str, Info]) -> set[str]:
    """Return those of some infos, by their ids, that say that another one took their place."""
    return {id for id, info in infos.items() if memory_fields(info).get("superseded_by")}


_NOTHING: Mapping[str, Any] = {}


@dataclass
class Memory:
    """A memory, as it is now."""

    info: Info
    """The info of the tree."""

    @property
    def id(self) -> str:
        """The info's id."""
        return self.info.id

    @property
    def text(self) -> str:
        """Its text."""
        return self.info.content

    @property
    def sources(self) -> tuple[str, ...]:
        """Where it is from: its source, and those from which it was remembered again."""
        return sources_of(self.info)


# Records

Record: TypeAlias = EpisodeTrace | SemanticPattern | ProceduralSkill

RECORD_TYPES: Mapping[str, type[Record]] = {
    "episode": EpisodeTrace,
    "pattern": SemanticPattern,
    "skill": ProceduralSkill,
}
"""The kinds of memories that are no plain facts."""


def record_of(info: Info) -> Record | None:
    """Return the record that an info holds; None for a plain fact, and for a damaged one."""
    own = memory_fields(info)
    kind, data = RECORD_TYPES.get(str(own.get("kind"))), own.get("record")
    if kind is None or not isinstance(data, Mapping):
        return None
    with contextlib.suppress(ValueError):
        return kind.from_dict(data)
    return None


def describe(record: Record) -> tuple[dict[str, Any], str]:
    """Return a valid record's own fields and its text."""
    kind = next(name for name, known in RECORD_TYPES.items() if isinstance(record, known))
    own: dict[str, Any] = {"kind": kind, "record": record.to_dict()}
    if isinstance(record, EpisodeTrace):
        own["time"] = seconds_of(record.timestamp)
    if isinstance(record, SemanticPattern):
        own |= _describe_links(record)
    return own, _text_of(record)


def _describe_links(pattern: SemanticPattern) -> dict[str, Any]:
    """Return the memories that a pattern links to, and those whose place it takes."""
    links = [*pattern.source_episodes, *(link.to_id for link in pattern.links)]
    found: dict[str, Any] = {"links": list(dict.fromkeys(links))} if links else {}
    olds = [link.to_id for link in pattern.links if link.relation == "supersedes" and link.to_id != pattern.id]
    news = [link.to_id for link in pattern.links if link.relation == "superseded_by" and link.to_id != pattern.id]
    return found | ({"supersedes": olds} if olds else {}) | ({"superseded_by": news[0]} if news else {})


def _text_of(record: Record) -> str:
    """Return a record as a person would read it: its name first, a field on a line."""
    if isinstance(record, EpisodeTrace):
        actions = [f"{entry.tool} {entry.input}: {entry.output}" for entry in record.action_log]
        errors = [f"{error.error_type}: {error.message} → {error.resolution}" for error in record.errors_encountered]
        lines = [record.goal, f"{record.outcome}, {record.phase}, {record.agent}, {record.task_id}", *actions, *errors]
        return "\n".join(
            [*lines, *record.artifacts_produced, *dict.fromkeys([*record.files_read, *record.files_modified])]
        )
    if isinstance(record, SemanticPattern):
        lines = [record.pattern, record.category, *record.conditions]
        return "\n".join(filter(None, [*lines, record.correct_approach, record.incorrect_approach]))
    errors = [f"{error.error} → {error.fix}" for error in record.common_errors]
    lines = [record.name, record.description, *record.prerequisites, *record.steps, *errors, *record.exit_criteria]
    return "\n".join(filter(None, [*lines, record.example_usage]))


def with_recalls(record: Record | None, count: int, last: float) -> Record | None:
    """Return a record with its recalls counted in."""
    if record is not None and count:
        recalled = datetime.fromtimestamp(last, UTC)
        record.access_count += count
        record.last_accessed = max(recalled, as_utc(record.last_accessed or recalled))
    return record


# Sayings of a memory about the graph


SaidEntity: TypeAlias = tuple[str, list[str], str]
"""A memory's statement about an entity: type, tags, description."""
SaidRelation: TypeAlias = tuple[str, str, str, float, str]
"""A memory's statement about two entities: the source's id, type, the target's id, weight, sentence."""


def read_sayings(info: Info) -> tuple[dict[str, SaidEntity], list[SaidRelation]]:
    """Return the sayings of an info, entities by id and relations; none where it is deleted or superseded."""
    graph = _graph_of(info)
    entities = {str(id): _read_entity(mapping_of(about)) for id, about in mapping_of(graph.get("entities")).items()}
    rows = graph.get("relations")
    relations = (_read_relation(row, info.content) for row in (rows if isinstance(rows, list) else ()))
    return entities, [each for each in relations if each is not None]


def is_waiting(info: Info) -> bool:
    """Tell whether an info waits to be read for the graph."""
    return isinstance(_graph_of(info).get("waits"), str)


def _graph_of(info: Info) -> Mapping[str, Any]:
    own = memory_fields(info)
    return _NOTHING if info.deleted or own.get("superseded_by") else mapping_of(own.get("graph"))


def _read_entity(about: Mapping[str, Any]) -> SaidEntity:
    kind, description = (said if isinstance(said := about.get(key), str) else "" for key in ("type", "description"))
    return kind.strip() and kind, strings_of(about.get("tags")), description


def _read_relation(row: Any, content: str) -> SaidRelation | None:
    if not isinstance(row, list) or len(row) != 6:
        return None
    source, kind, target, weight, start, end = row
    texts = all(isinstance(text, str) and text.strip() for text in (source, kind, target))
    is_weight = isinstance(weight, (int, float)) and not isinstance(weight, bool) and 0.0 <= weight <= 1.0
    if not texts or not is_weight or not isinstance(start, int) or not isinstance(end, int) or source == target:
        return None
    return source, kind, target, float(weight), content[max(0, start) : max(0, end)].strip()


# Properties of a keyword

TAG, RELATION = "tag:", "relation:"
"""The beginning of keys in the metadata."""
CHOSEN = -1
"""As a place among tags, what no tag has."""
REMOVED = {"removed": True}
"""In place of a relation that memories say, and that was removed by hand."""


def own_entity(node: KeywordNode) -> GraphEntity:
    """Return a keyword's own properties as an entity; an empty type where it has none."""
    tags = [
        (place if isinstance(place, int) else len(node.metadata), key.removeprefix(TAG))
        for key, place in node.metadata.items()
        if key.startswith(TAG) and key != TAG
    ]
    kind = node.metadata.get("entity_type")
    said = kind if isinstance(kind, str) and kind.strip() else ""
    return GraphEntity(node.id, node.name, said, node.description, [tag for _, tag in sorted(tags)], [*node.aliases])


def relation_key(kind: str, written: str) -> str:
    """Return the key of a relation of a type to a target."""
    return f"{RELATION}{kind.replace('%', '%25').replace(':', '%3A')}:{written}"


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
    weight = value.get("weight")
    return isinstance(weight, (int, float)) and 0.0 <= weight <= 1.0
