"""Hold what hangs together: entities, the relations between them, and the tags they are found by.

>>> graph = InMemoryGraph()
>>> graph.add_entity(GraphEntity("1", "绿茶 green tea", "drink", "Made from leaves that were not oxidised.", ["tea"]))
>>> graph.add_entity(GraphEntity("2", "龙井", "drink", tags=["tea", "hangzhou"]))
>>> graph.add_entity(GraphEntity("3", "杭州", "city"))
>>> graph.add_relation(GraphRelation("2", "1", "is_a"))
>>> graph.add_relation(GraphRelation("2", "3", "comes_from", 0.8))
>>> [(found.entity.name, found.score) for found in graph.get_related("1", 2, RelationDirection.BOTH)]
[('龙井', 0.5), ('杭州', 0.2)]
>>> [entity.name for entity in graph.find_by_keywords(["绿茶", "leaves"])]
['绿茶 green tea']
>>> graph.find_tags("te"), graph.reuse_tags(["Teas", "oolong"])
(['tea'], ['tea', 'oolong'])

A `KnowledgeGraph` is the port; whatever stands behind it passes the same suite of tests. What every one keeps to:

- What comes back is the caller's own: changing it changes nothing in the graph.
- An id that names no entity is refused (`NotFoundError`), but by `get_entity`, which says None.
- A tag is in lower case, without outer blanks; an entity has each once, the most relevant first, at most 8.
- Two entities have at most one relation of a type in a direction. Circles are welcome.

Walking is written out here: it is ten lines, and a graph library would ask for a copy of the graph in its own form.
"""

import contextlib
import threading
import unicodedata
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple

from typing_extensions import override

from Agent.keyword_tree import (
    DuplicateIdError,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    VersionConflictError,
)
from Agent.memory.following import Follower, News, outside
from Agent.memory.keywords import find_runs
from Agent.memory.scoring import graph_distance

__all__ = [
    "GraphEntity",
    "GraphRelation",
    "InMemoryGraph",
    "KnowledgeGraph",
    "RelationDirection",
    "ScoredEntity",
    "TagConstraints",
    "TreeGraph",
    "keyword_fit",
    "normalize_tag",
    "normalize_tags",
]


# What is in a graph


@dataclass
class GraphEntity:
    """A person, a concept, a project: whatever is talked about."""

    id: str
    """Not empty; the caller's choice."""
    name: str
    """Not blank."""
    entity_type: str = "concept"
    """`"person"`, `"concept"`, `"project"` or another word of the caller's choice; not blank."""
    description: str = ""
    """What it is."""
    tags: list[str] = field(default_factory=list)
    """Words to find it by, in lower case, the most relevant first."""


@dataclass(frozen=True)
class GraphRelation:
    """That one entity has to do with another one, and how."""

    source_id: str
    """The entity it goes out from."""
    target_id: str
    """The entity it leads to."""
    relation_type: str
    """`"works_on"`, `"part_of"`, `"related_to"` or another word of the caller's choice; not blank."""
    weight: float = 1.0
    """0.0 to 1.0: how strong it is."""


class RelationDirection(str, Enum):  # noqa: UP042  as the enumerations of the library
    """Which way relations are followed."""

    OUTGOING = "outgoing"
    """From source to target."""
    INCOMING = "incoming"
    """From target to source."""
    BOTH = "both"
    """Either way."""


@dataclass
class ScoredEntity:
    """An entity, and how near it is."""

    entity: GraphEntity
    """The entity."""
    score: float
    """0.0 to 1.0, from the distance in the graph; see `KnowledgeGraph.get_related`."""


@dataclass(frozen=True)
class TagConstraints:
    """How many tags there may be."""

    max_tags_per_entity: int = 8
    """More than these are dropped, the least relevant first."""


# The port


class KnowledgeGraph(ABC):
    """Entities, relations and tags. Another implementation writes the abstract methods; the rest follows from them."""

    # -- entities and relations --

    @abstractmethod
    def add_entity(self, entity: GraphEntity) -> None:
        """Add an entity, or put it in the place of the one that has its id, whose relations stay.

        Tags above the limit are dropped, as in `set_entity_tags`.

        Raises:
            InvalidInputError: Its id, name or type is blank.
        """

    @abstractmethod
    def get_entity(self, id: str) -> GraphEntity | None:
        """Return the entity with this id, or None."""

    @abstractmethod
    def remove_entity(self, id: str) -> None:
        """Remove an entity, and with it its relations and tags.

        Raises:
            NotFoundError: There is none with this id.
        """

    @abstractmethod
    def add_relation(self, relation: GraphRelation) -> None:
        """Add a relation, or give the one of the same ends and type another weight.

        Raises:
            NotFoundError: One of its ends does not exist.
            InvalidInputError: Its type is blank, or its weight not between 0.0 and 1.0.
        """

    @abstractmethod
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        """Remove a relation; one that is not there is no error.

        Raises:
            NotFoundError: One of its ends does not exist.
        """

    @abstractmethod
    def get_relations(
        self, entity_id: str, direction: RelationDirection = RelationDirection.BOTH
    ) -> list[GraphRelation]:
        """Return an entity's own relations, those that go out first, each kind in the order they were added.

        One that leads from an entity to itself is listed once.

        Raises:
            NotFoundError: There is no such entity.
        """

    def get_related(
        self,
        entity_id: str,
        depth: int = 1,
        direction: RelationDirection = RelationDirection.OUTGOING,
        relation_types: Collection[str] | None = None,
    ) -> list[ScoredEntity]:
        """Return what can be reached from an entity, the nearest first, equals by id; never the entity itself.

        The score of a way is the product of its weights, halved with each step (`scoring.graph_distance`); an entity
        has that of its best way. So a direct neighbour has at most 0.5, where the entity itself would have 1.

        Args:
            entity_id: Where to begin.
            depth: How many steps to go at most; 0 finds nothing.
            direction: Which way.
            relation_types: Follow these alone; None follows all.

        Raises:
            NotFoundError: There is no such entity.
            InvalidInputError: `depth` is no whole number or below 0, or `relation_types` a single string.

        Cost: one reading of the relations of each entity within reach, more only where a longer way is the better one.
        """
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
            raise InvalidInputError(f"depth must be a whole number and not below 0, not {depth!r}")
        if isinstance(relation_types, str):  # each of its characters would be taken for a type
            raise InvalidInputError(f"relation_types must be a list of strings, not {relation_types!r}")
        direction = _check_direction(direction)
        if self.get_entity(entity_id) is None:
            raise NotFoundError("keyword", entity_id)
        best = {entity_id: 1.0}
        reached = {entity_id: 1.0}
        for _ in range(depth):
            reached = self._step(reached, best, direction, relation_types)
            if not reached:
                break
        del best[entity_id]
        found = ((self.get_entity(id), score) for id, score in best.items())
        # Somebody else may have removed one meanwhile.
        related = [ScoredEntity(entity, score) for entity, score in found if entity is not None]
        return sorted(related, key=lambda scored: (-scored.score, scored.entity.id))

    def _step(
        self,
        reached: dict[str, float],
        best: dict[str, float],
        direction: RelationDirection,
        relation_types: Collection[str] | None,
    ) -> dict[str, float]:
        """Return what one step leads to by a better way than before, with the score of that way.

        Only these need going on from: whoever was reached as well in fewer steps goes on as well in fewer. That ends
        every circle.
        """
        better: dict[str, float] = {}
        for id, score in reached.items():
            try:
                relations = self.get_relations(id, direction)
            except NotFoundError:  # removed meanwhile
                continue
            for relation in relations:
                if relation_types is not None and relation.relation_type not in relation_types:
                    continue
                other = relation.target_id if relation.source_id == id else relation.source_id
                onward = score * graph_distance(1, relation.weight)
                if onward > best.get(other, -1.0):
                    best[other] = better[other] = onward
        return better

    # -- finding --

    @abstractmethod
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        """Return the entities that have at least one of the keywords, those with the best `keyword_fit` first.

        Args:
            keywords: What to look for.
            limit: At most so many; None returns all. With a limit, a keyword that more than 1,000 entities have finds
                only those whose whole name or tag it is, or that another keyword finds: it tells the others not apart.
        """

    # -- tags --

    @abstractmethod
    def find_tags(self, prefix: str) -> list[str]:
        """Return the tags that begin with `prefix`, the most used first, equals in alphabetical order."""

    @abstractmethod
    def entity_count_by_tag(self, tag: str) -> int:
        """Return how many entities have a tag."""

    @abstractmethod
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        """Give an entity these tags instead of those it has, and return how many were kept.

        Args:
            entity_id: The entity.
            tags: The most relevant first; what `tag_constraints` does not allow is dropped from the end.

        Raises:
            NotFoundError: There is no such entity.
        """

    @abstractmethod
    def tag_constraints(self) -> TagConstraints:
        """Return how many tags there may be."""

    def reuse_tags(self, candidates: Iterable[str]) -> list[str]:
        """Return the tags to be used for `candidates`: those that exist already, and new ones only where none does.

        A tag stands for a candidate if they differ in case, width or an English plural at most. A common beginning is
        not enough: java is no javascript.
        """
        return list(dict.fromkeys(self._reuse_tag(tag) for tag in normalize_tags(candidates)))

    def _reuse_tag(self, tag: str) -> str:
        stem = _stem(tag)
        known = [other for other in self.find_tags(stem.removesuffix("y")) if _stem(other) == stem]
        return tag if tag in known or not known else known[0]


# What every implementation needs


def normalize_tag(tag: str) -> str:
    """Return `tag` as it is stored: regardless of case and width, blanks within it single, none around it."""
    if not isinstance(tag, str):
        raise InvalidInputError(f"a tag must be a string, not {type(tag).__name__}")
    return " ".join(_fold(tag).split())


def normalize_tags(tags: Iterable[str], limit: int | None = None) -> list[str]:
    """Return the tags as they are stored, in their order, each once, without blank ones, at most `limit`."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):  # of a string, each character would become a tag
        raise InvalidInputError(f"tags must be a list of strings, not {tags!r}")
    return list(dict.fromkeys(filter(None, map(normalize_tag, tags))))[:limit]


def keyword_fit(entity: GraphEntity, keywords: Iterable[str]) -> int:
    """Return how well an entity fits some keywords: 0 if it has none of them.

    For each keyword 3 if the name or a tag is equal to it, else 2 if the name has it, or a tag, else 1 if the
    description has it. Words count whole, whatever stands between them ("go" is not in "Django", "green tea" is in
    "Green-Tea"); in scripts without spaces any run of characters counts (绿茶 is in 喝绿茶).
    """
    return _fit({_units(keyword) for keyword in keywords}, _text_of(entity))


class _Text(NamedTuple):
    """What an entity is found by, as `_units` writes it."""

    names: tuple[str, ...]
    """The name and the tags."""
    description: str


def _text_of(entity: GraphEntity) -> _Text:
    return _Text(tuple(_units(text) for text in (entity.name, *entity.tags)), _units(entity.description))


def _fit(keywords: Set[str], text: _Text) -> int:
    return sum(_fit_one(keyword, *text) for keyword in keywords if keyword != _NOTHING)


def _fit_one(keyword: str, names: tuple[str, ...], description: str) -> int:
    if keyword in names:
        return 3
    return 2 if any(keyword in name for name in names) else 1 if keyword in description else 0


def _units(text: str) -> str:
    """Return the words of `text`, the characters where words are not spaced, and runs of symbols, each between blanks.

    So a text has a keyword where the one string has the other. Symbols count, since C, C++ and C# are three things.
    """
    units: list[str] = []
    for symbols, run in groupby(_fold(text), _is_symbol):
        if symbols:
            units.append("".join(run))
        else:
            units.extend(unit for unspaced, spaced in find_runs("".join(run)) for unit in (unspaced or (spaced,)))
    return f" {' '.join(units)} "


_NOTHING = "  "  # what `_units` makes of a text without any


def _is_symbol(char: str) -> bool:
    return char == "#" or (not char.isalnum() and unicodedata.category(char)[0] == "S")


def _stem(tag: str) -> str:
    """Return an English word without its plural: tags, libraries; status, analysis and css have none."""
    if not tag.isascii() or not tag.endswith("s") or tag.endswith(("ss", "us", "is")) or len(tag) < 4:
        return tag
    return f"{tag[:-3]}y" if tag.endswith("ies") and len(tag) > 4 else tag[:-1]


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _check_entity(entity: GraphEntity) -> None:
    for name in ("id", "name", "entity_type"):
        _check_text(f"GraphEntity.{name}", getattr(entity, name))
    if not isinstance(entity.description, str):
        raise InvalidInputError(f"GraphEntity.description must be a string, not {entity.description!r}")


def _check_direction(direction: object) -> RelationDirection:
    try:  # "incoming" is as good as INCOMING
        return RelationDirection(direction)
    except ValueError as error:
        raise InvalidInputError(f"direction must be a RelationDirection, not {direction!r}") from error


def _check_relation(relation: GraphRelation) -> None:
    _check_text("GraphRelation.relation_type", relation.relation_type)
    weight = relation.weight
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 <= weight <= 1.0:
        raise InvalidInputError(f"GraphRelation.weight must be between 0.0 and 1.0, not {weight!r}")


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{what} is required, and must be a string: {value!r}")


# In memory

_TELLING = 1_000  # entities, where a few of them are looked for: what more have in common tells them not apart


class InMemoryGraph(KnowledgeGraph):
    """A graph that lives as long as the process; any number of threads may use it.

    Args:
        constraints: How many tags there may be; 8 for an entity.

    Cost: some 80 µs to add an entity of 30 words, 15 µs for a relation, 3 µs to read an entity; to find by keywords, 10
    µs for each entity that has one, with a limit 20 ms at most.
    """

    def __init__(self, constraints: TagConstraints | None = None) -> None:
        self._constraints = constraints or TagConstraints()
        self._lock = threading.RLock()
        self._entities: dict[str, GraphEntity] = {}
        # By entity, then by the other end and the type: so both ends find a relation, and each one exists once.
        self._outgoing: dict[str, dict[tuple[str, str], GraphRelation]] = {}
        self._incoming: dict[str, dict[tuple[str, str], GraphRelation]] = {}
        self._texts: dict[str, _Text] = {}
        self._ids_by_tag: dict[str, set[str]] = {}
        self._ids_by_unit: dict[str, set[str]] = {}

    @override
    def add_entity(self, entity: GraphEntity) -> None:
        _check_entity(entity)
        tags = normalize_tags(entity.tags, self._constraints.max_tags_per_entity)
        with self._lock:
            self._put(replace(entity, tags=tags))
            self._outgoing.setdefault(entity.id, {})
            self._incoming.setdefault(entity.id, {})

    @override
    def get_entity(self, id: str) -> GraphEntity | None:
        with self._lock:
            entity = self._entities.get(id)
            return entity and replace(entity, tags=list(entity.tags))

    @override
    def remove_entity(self, id: str) -> None:
        with self._lock:
            self._find(id)
            self._take_out(id)
            for other, relation_type in self._outgoing.pop(id):
                self._incoming[other].pop((id, relation_type))
            for other, relation_type in self._incoming.pop(id):
                self._outgoing[other].pop((id, relation_type))

    @override
    def add_relation(self, relation: GraphRelation) -> None:
        _check_relation(relation)
        source, target = relation.source_id, relation.target_id
        with self._lock:
            self._find(source)
            self._find(target)
            self._outgoing[source][target, relation.relation_type] = relation
            self._incoming[target][source, relation.relation_type] = relation

    @override
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        with self._lock:
            self._find(source_id)
            self._find(target_id)
            self._outgoing[source_id].pop((target_id, relation_type), None)
            self._incoming[target_id].pop((source_id, relation_type), None)

    @override
    def get_relations(
        self, entity_id: str, direction: RelationDirection = RelationDirection.BOTH
    ) -> list[GraphRelation]:
        direction = _check_direction(direction)
        with self._lock:
            self._find(entity_id)
            outgoing = () if direction is RelationDirection.INCOMING else self._outgoing[entity_id].values()
            incoming = () if direction is RelationDirection.OUTGOING else self._incoming[entity_id].values()
            return list(dict.fromkeys([*outgoing, *incoming]))

    @override
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        wanted = _check_keywords(keywords)
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise InvalidInputError(f"limit must be a whole number above 0, not {limit!r}")
        with self._lock:
            candidates: set[str] = set()
            for found in sorted(map(self._ids_with, wanted), key=len):
                if limit is None or len(candidates) + len(found) <= _TELLING:
                    candidates |= found
            candidates.update(*(self._ids_by_unit.get(keyword, ()) for keyword in wanted))
            fits = [(-fit, self._entities[id].name, id) for id in candidates if (fit := _fit(wanted, self._texts[id]))]
            entities = [self._entities[id] for *_, id in sorted(fits)[:limit]]
            return [replace(entity, tags=list(entity.tags)) for entity in entities]

    @override
    def find_tags(self, prefix: str) -> list[str]:
        if not isinstance(prefix, str):
            raise InvalidInputError(f"prefix must be a string, not {type(prefix).__name__}")
        beginning = _fold(prefix).lstrip()
        with self._lock:
            used = [(-len(ids), tag) for tag, ids in self._ids_by_tag.items() if tag.startswith(beginning)]
        return [tag for _, tag in sorted(used)]

    @override
    def entity_count_by_tag(self, tag: str) -> int:
        with self._lock:
            return len(self._ids_by_tag.get(normalize_tag(tag), ()))

    @override
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        kept = normalize_tags(tags, self._constraints.max_tags_per_entity)
        with self._lock:
            self._put(replace(self._find(entity_id), tags=kept))
        return len(kept)

    @override
    def tag_constraints(self) -> TagConstraints:
        return self._constraints

    def _find(self, id: str) -> GraphEntity:
        if id not in self._entities:
            raise NotFoundError("keyword", id)
        return self._entities[id]

    def _put(self, entity: GraphEntity) -> None:
        """Hold an entity and index it, in the place of the one that has its id."""
        if entity.id in self._entities:
            self._take_out(entity.id)
        self._entities[entity.id] = entity
        self._texts[entity.id] = _text_of(entity)
        for index, key in self._keys(entity.id):
            index.setdefault(key, set()).add(entity.id)

    def _take_out(self, id: str) -> None:
        for index, key in self._keys(id):
            index[key].discard(id)
            if not index[key]:
                del index[key]
        del self._entities[id], self._texts[id]

    def _keys(self, id: str) -> list[tuple[dict[str, set[str]], str]]:
        """Return the indexes that an entity stands in, with its keys there."""
        names, description = self._texts[id]
        # A whole name stands there, too: the blanks around it tell it from a unit.
        units = {*names, *(unit for text in (*names, description) for unit in text.split())} - {_NOTHING}
        tags = self._entities[id].tags
        return [*((self._ids_by_unit, unit) for unit in units), *((self._ids_by_tag, tag) for tag in tags)]

    def _ids_with(self, keyword: str) -> Set[str]:
        """Return the entities that have every unit of a keyword, in whatever order."""
        sets = sorted((self._ids_by_unit.get(unit, set()) for unit in keyword.split()), key=len)
        return sets[0].intersection(*sets[1:]) if len(sets) > 1 else sets[0] if sets else set()


def _check_keywords(keywords: Iterable[str]) -> Set[str]:
    """Return the keywords as `_units` writes them."""
    if isinstance(keywords, str) or not isinstance(keywords, Iterable):  # of a string, each character would be one
        raise InvalidInputError(f"keywords must be a list of strings, not {keywords!r}")
    wanted = list(keywords)
    for keyword in wanted:
        if not isinstance(keyword, str):
            raise InvalidInputError(f"a keyword must be a string, not {type(keyword).__name__}")
    return {_units(keyword) for keyword in wanted}


# The tree as a graph


class TreeGraph(KnowledgeGraph):
    """The keywords of a tree as entities: durable, undoable, and following what merges, moves and deletes the tree.

    Args:
        tree: Its keywords are the entities, but for the root.
        parent_id: Beneath which keyword `add_entity` puts what is new; the root.
        constraints: How many tags there may be; 8 for an entity.

    An entity's name and description are the keyword's. The rest stands in its metadata, one key for each thing, since
    that is what a merge joins:

        "entity_type": "person"
        "tag:tea": 0                                            its place among the tags, the most relevant first
        "relation:works_on:<id>": {"weight": 0.8, "number": 12} numbered in the order of adding; to itself: <id> empty

    A colon within a relation's type is written %3A, and % is written %25; an id is written as it is.

    A relation leads to whatever its target was merged into. With a deleted target it is not seen, and is there again
    when the deletion is undone. Inside an open `Operation` what the block has written is checked against, but found
    only when it has ended. Undo is the tree's.

    Cost: a write is one of the tree's, one row as long as the keyword's relations are many; a reading some 0.4 ms for
    looking whether the log has grown. In memory it holds what an `InMemoryGraph` would.
    """

    def __init__(self, tree: KeywordTree, parent_id: str = "root", constraints: TagConstraints | None = None) -> None:
        self._tree = tree
        self._parent_id = parent_id
        self._lock = threading.RLock()
        self._follower = Follower(tree)
        self._found = InMemoryGraph(constraints)
        self._is_begun = False
        self._forget()

    # -- writing --

    @override
    def add_entity(self, entity: GraphEntity) -> None:
        _check_entity(entity)
        own = {"entity_type": entity.entity_type, **self._tag_keys(entity.tags)}
        if self._tree.GetKeyword(entity.id) is None:
            spec = {"id": entity.id, "name": entity.name, "description": entity.description, "metadata": own}
            with contextlib.suppress(DuplicateIdError):  # another thread or process was quicker: it is there now
                self._tree.BatchCreateKeywords([{**spec, "parent_id": self._parent_id}])
                return

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: value for key, value in node.metadata.items() if not key.startswith(_TAG)}
            return {"name": entity.name, "description": entity.description, "metadata": {**kept, **own}}

        self._update(entity.id, patch)

    @override
    def get_entity(self, id: str) -> GraphEntity | None:
        node = self._tree.GetKeyword(id) if id else None
        return None if node is None or node.parent_id is None else self._read(node)

    @override
    def remove_entity(self, id: str) -> None:
        id = self._find(id).id
        while True:
            try:
                with self._tree.Operation("remove_entity"):
                    for relation in self.get_relations(id, RelationDirection.INCOMING):
                        if relation.source_id != id:
                            self.remove_relation(relation.source_id, id, relation.relation_type)
                    self._tree.DeleteKeyword(id)
            except VersionConflictError:  # somebody wrote a source meanwhile
                continue
            return

    @override
    def add_relation(self, relation: GraphRelation) -> None:
        _check_relation(relation)
        source, target = self._find(relation.source_id), self._find(relation.target_id)
        kind, weight = relation.relation_type, relation.weight
        with self._lock:
            self._catch_up()
            self._next_number += 1
            number = self._next_number

        def patch(node: KeywordNode) -> dict[str, Any]:
            # What was added under the name of a merged target keeps its key, so that there stays one.
            old = [key for key in node.metadata if self._leads_to(key, node.id) == (target.id, kind)]
            key = (*old, f"{_RELATION}{_quote(kind)}:{'' if target.id == node.id else target.id}")[0]
            number_now = node.metadata[key]["number"] if old and _is_relation(node.metadata[key]) else number
            return {"metadata": {**node.metadata, key: {"weight": float(weight), "number": number_now}}}

        self._update(source.id, patch)

    @override
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        source, target = self._find(source_id), self._find(target_id)

        def patch(node: KeywordNode) -> dict[str, Any]:
            gone = (target.id, relation_type)
            kept = {key: value for key, value in node.metadata.items() if self._leads_to(key, node.id) != gone}
            return {"metadata": kept}

        self._update(source.id, patch)

    @override
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        keys = self._tag_keys(tags)

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: value for key, value in node.metadata.items() if not key.startswith(_TAG)}
            return {"metadata": {**kept, **keys}}

        self._update(self._find(entity_id).id, patch)
        return len(keys)

    def _update(self, id: str, patch: Callable[[KeywordNode], dict[str, Any]]) -> None:
        while True:
            node = self._find(id)
            try:
                self._tree.UpdateKeyword(node.id, patch(node), node.version)
            except VersionConflictError:  # somebody was quicker: patch what they left
                continue
            return

    def _tag_keys(self, tags: Iterable[str]) -> dict[str, int]:
        kept = normalize_tags(tags, self.tag_constraints().max_tags_per_entity)
        return {f"{_TAG}{tag}": place for place, tag in enumerate(kept)}

    def _find(self, id: str) -> KeywordNode:
        node = self._tree.GetKeyword(id) if id else None
        if node is None or node.parent_id is None:
            raise NotFoundError("keyword", id)
        return node

    # -- finding --

    @override
    def get_relations(
        self, entity_id: str, direction: RelationDirection = RelationDirection.BOTH
    ) -> list[GraphRelation]:
        id = self._find(entity_id).id
        with self._lock:
            self._catch_up()
            if self._found.get_entity(id) is None:  # made by an operation that is still open
                return []
            relations = self._found.get_relations(id, direction)
            return sorted(relations, key=lambda relation: (relation.source_id != id, self._number_of(relation)))

    @override
    def get_related(
        self,
        entity_id: str,
        depth: int = 1,
        direction: RelationDirection = RelationDirection.OUTGOING,
        relation_types: Collection[str] | None = None,
    ) -> list[ScoredEntity]:
        id = self._find(entity_id).id
        return self._caught_up().get_related(id, depth, direction, relation_types)

    @override
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        return self._caught_up().find_by_keywords(keywords, limit)

    @override
    def find_tags(self, prefix: str) -> list[str]:
        return self._caught_up().find_tags(prefix)

    @override
    def entity_count_by_tag(self, tag: str) -> int:
        return self._caught_up().entity_count_by_tag(tag)

    @override
    def tag_constraints(self) -> TagConstraints:
        return self._found.tag_constraints()

    # -- following the log --

    def _caught_up(self) -> InMemoryGraph:
        with self._lock:
            self._catch_up()
            return self._found

    def _forget(self) -> None:
        self._found = InMemoryGraph(self._found.tag_constraints())
        self._next_number = 0
        self._numbers: dict[str, dict[tuple[str, str], int]] = {}  # by source, then by target and type
        self._merged: dict[str, str] = {}
        self._written: dict[str, dict[str, Any]] = {}  # by source: its relations as the metadata has them
        self._sources: dict[str, set[str]] = defaultdict(set)  # by target, as written

    def _catch_up(self) -> None:
        if self._is_begun:
            self._is_begun = False  # what fails halfway, Ctrl-C too, leaves it as if it had not begun
            self._take(self._follower.catch_up())
            self._is_begun = True
            return
        news = self._follower.begin(self._read_tree, lambda news: bool(news.nodes))
        self._take(news)
        lost = [target for target in self._sources if target and self._found.get_entity(target) is None]
        if outside(lambda: [id for id in lost if self._tree.GetKeyword(id) is not None]):
            # What was merged leads on, and only the log tells over what.
            self._follower = Follower(self._tree)
            self._forget()
            self._take(self._follower.catch_up())
        self._is_begun = True

    def _read_tree(self) -> None:
        self._forget()
        nodes: list[KeywordNode] = []
        parents = ["root"]
        while parents:
            children = self._tree.GetChildren(parents.pop())
            parents += [child.id for child in children]
            nodes += children
        self._take(News(nodes=nodes))

    def _take(self, news: News) -> None:
        if news.from_nothing:
            self._forget()
        nodes = {node.id: node for node in news.nodes if node.id != "root" and node.id.strip()}
        if not nodes:
            return
        for id, node in nodes.items():
            self._merged.pop(id, None)
            if node.deleted and node.merged_into:
                self._merged[id] = node.merged_into
            if not node.deleted:
                self._found.add_entity(self._read(node))
            elif self._found.get_entity(id) is not None:
                self._found.remove_entity(id)
            self._note_written(id, node)
        # Whose target came, went or was merged leads elsewhere now.
        touched = {id for id in nodes if self._found.get_entity(id)}
        for source_id in touched.union(*(self._sources.get(id, ()) for id in self._with_merged(nodes))):
            self._relate(source_id)

    def _note_written(self, id: str, node: KeywordNode) -> None:
        for key in self._written.pop(id, ()):
            self._sources[_split_key(key)[1]].discard(id)
        written = {} if node.deleted else {key: value for key, value in node.metadata.items() if _split_key(key)[0]}
        if written:
            self._written[id] = written
        for key in written:
            self._sources[_split_key(key)[1]].add(id)

    def _with_merged(self, ids: Iterable[str]) -> set[str]:
        """Return ids and those of what was merged into them."""
        found = set(ids)
        return found | {old for old in self._merged if not found.isdisjoint(self._chain(old))}

    def _chain(self, id: str) -> list[str]:
        chain = [id]
        while (id := self._merged.get(id, "")) and id not in chain:
            chain.append(id)
        return chain

    def _relate(self, source_id: str) -> None:
        """Put an entity's outgoing relations as its keyword has them."""
        if self._found.get_entity(source_id) is None:
            return
        for relation in self._found.get_relations(source_id, RelationDirection.OUTGOING):
            self._found.remove_relation(source_id, relation.target_id, relation.relation_type)
        numbers = self._numbers[source_id] = {}
        for key, value in self._written.get(source_id, {}).items():
            target, kind = self._leads_to(key, source_id)
            if not kind or not _is_relation(value):
                continue
            self._next_number = max(self._next_number, value["number"])
            if self._found.get_entity(target) and (target, kind) not in numbers:
                self._found.add_relation(GraphRelation(source_id, target, kind, value["weight"]))
                numbers[target, kind] = value["number"]

    def _number_of(self, relation: GraphRelation) -> int:
        return self._numbers[relation.source_id][relation.target_id, relation.relation_type]

    def _leads_to(self, key: str, source_id: str) -> tuple[str, str]:
        """Return where a key of a keyword's metadata leads, and the relation's type; two empty strings if nowhere.

        What leads from a keyword to itself without having been written so comes from a merge, and leads nowhere.
        """
        kind, written = _split_key(key)
        if not kind:
            return "", ""
        if not written:
            return source_id, kind
        target = self._chain(written)[-1]
        return ("", "") if target == source_id else (target, kind)

    def _read(self, node: KeywordNode) -> GraphEntity:
        tags = [
            (place if isinstance(place, int) else len(node.metadata), key.removeprefix(_TAG))
            for key, place in node.metadata.items()
            if key.startswith(_TAG)
        ]
        kept = [tag for _, tag in sorted(tags)][: self.tag_constraints().max_tags_per_entity]
        kind = node.metadata.get("entity_type")
        return GraphEntity(
            node.id, node.name, kind if isinstance(kind, str) and kind.strip() else "concept", node.description, kept
        )


_TAG, _RELATION = "tag:", "relation:"


def _quote(kind: str) -> str:
    return kind.replace("%", "%25").replace(":", "%3A")


def _split_key(key: str) -> tuple[str, str]:
    """Return a relation's type and the target as it was written; two empty strings for another key."""
    if not key.startswith(_RELATION):
        return "", ""
    kind, colon, written = key.removeprefix(_RELATION).partition(":")
    return (kind.replace("%3A", ":").replace("%25", "%"), written) if colon else ("", "")


def _is_relation(value: object) -> bool:
    """Tell whether a value of the metadata has the form that this class writes: metadata is anybody's."""
    if not isinstance(value, dict):
        return False
    number, weight = value.get("number"), value.get("weight")
    return isinstance(number, int) and isinstance(weight, (int, float)) and 0.0 <= weight <= 1.0
