"""Hold a graph: entities, the relations between them, and the tags they are found by.

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

A `KnowledgeGraph` is the port; each implementation passes the same suite of tests. Rules of each:

- Results are the caller's own: changing one changes nothing in the graph.
- An id that names no entity is refused (`NotFoundError`), but by `get_entity`, which says None.
- A tag is in lower case, without outer blanks; an entity has each once, the most relevant first, at most 8.
- Two entities have at most one relation of a type in a direction. Circles are welcome.

Walking is written out here: it is ten lines, and a graph library would ask for a copy of the graph in its own form.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field, replace
from enum import Enum

from typing_extensions import override

from ..base.checks import check_count, check_string, check_strings, shorten
from ..base.text import fold_case as fold
from ..finding.texts import terms
from ..keyword_tree import InvalidInputError, NotFoundError
from .scoring import graph_distance

__all__ = ["ENTITY_TYPES", "GraphEntity", "GraphRelation", "InMemoryGraph", "KnowledgeGraph", "RelationDirection"]
__all__ += ["Saying", "ScoredEntity", "TagConstraints", "normalize_tag", "normalize_tags"]
__all__ += ["index_terms", "rank_entities", "units_of", "whole"]


ENTITY_TYPES = (
    "person", "place", "organisation", "project", "product", "work", "event", "language", "animal", "concept",
)  # fmt: skip
"""The types of entities; `"concept"` is any other."""


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
    aliases: list[str] = field(default_factory=list)
    """Other names that it is found by; of a tree's keyword, its aliases."""


@dataclass(frozen=True)
class Saying:
    """A memory that says so."""

    memory_id: str
    """The memory's id."""
    sentence: str
    """The sentence, as the memory has it."""


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
    said_by: tuple[Saying, ...] = field(default=(), compare=False)
    """The memories that say so, the oldest first; none where it was added by hand."""


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
    """An entity, how near it is, and the way there."""

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
        """Return an entity's own relations, those that go out first.

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
        """Return the entities within reach of one, the nearest first, equals by id; never the entity itself.

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
        check_count("depth", depth, 0)
        if isinstance(relation_types, str):  # each of its characters would be taken for a type
            raise InvalidInputError(f"relation_types must be a list of strings, not {shorten(relation_types)}")
        direction = check_direction(direction)
        start = self.get_entity(entity_id)
        if start is None:
            raise NotFoundError("keyword", entity_id)
        best = {start.id: 1.0}
        reached = dict(best)
        for _ in range(depth):
            reached = self._step(reached, best, direction, relation_types)
            if not reached:
                break
        found = ((self.get_entity(id), score) for id, score in best.items() if id != start.id)
        # Another process may have removed one in between.
        related = [ScoredEntity(entity, score) for entity, score in found if entity is not None]
        return sorted(related, key=lambda scored: (-scored.score, scored.entity.id))

    def _step(
        self,
        reached: dict[str, float],
        best: dict[str, float],
        direction: RelationDirection,
        relation_types: Collection[str] | None,
    ) -> dict[str, float]:
        """Return the entities that one step reaches by a better way than before, with their scores.

        Only these need going on from: one that was reached as well in fewer steps goes on as well in fewer. That ends
        every circle.
        """
        better: dict[str, float] = {}
        for id, score in reached.items():
            try:
                relations = self.get_relations(id, direction)
            except NotFoundError:  # removed in between
                continue
            for relation in relations:
                if relation_types is None or relation.relation_type in relation_types:
                    other = relation.target_id if relation.source_id == id else relation.source_id
                    there = score * graph_distance(1, relation.weight)
                    if there > best.get(other, -1.0):
                        best[other] = better[other] = there
        return better

    # -- finding --

    @abstractmethod
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        """Return the entities that have at least one of the keywords, the best fitting first.

        Each keyword counts 3 if the name or a tag is equal to it, else 2 if the name has it, or a tag, else 1 if the
        description has it. Words count whole, in whatever order and without their endings ("go" is not in "Django",
        "green teas" is in "Green-Tea"); in scripts without spaces any run of characters counts (绿茶 is in 喝绿茶).

        Args:
            keywords: What to look for.
            limit: At most this many; None returns all. With a limit, a keyword that more than 1,000 entities of a tree
                have finds only those whose whole name or tag it is, or that another keyword finds.
        """

    # -- tags --

    @abstractmethod
    def count_tags(self) -> Counter[str]:
        """Return how many entities have each tag."""

    def find_tags(self, prefix: str) -> list[str]:
        """Return the tags that begin with `prefix`, the most used first, equals in alphabetical order."""
        beginning = fold(check_string("prefix", prefix)).lstrip()
        counted = self.count_tags()
        return sorted((tag for tag in counted if tag.startswith(beginning)), key=lambda tag: (-counted[tag], tag))

    def entity_count_by_tag(self, tag: str) -> int:
        """Return how many entities have a tag."""
        return self.count_tags()[normalize_tag(tag)]

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

        A tag replaces a candidate if they differ in case, width or an English ending at most. A common beginning is
        not enough: java is no javascript.
        """
        return list(dict.fromkeys(self._reuse_tag(tag) for tag in normalize_tags(candidates)))

    def _reuse_tag(self, tag: str) -> str:
        known = [other for other in self.find_tags(tag[:2]) if units_of(other) == units_of(tag)]
        return tag if tag in known or not known else known[0]


# What every implementation needs


def normalize_tag(tag: str) -> str:
    """Return `tag` as it is stored: regardless of case and width, blanks within it single, none around it."""
    return " ".join(fold(check_string("tag", tag)).split())


def normalize_tags(tags: Iterable[str], limit: int | None = None) -> list[str]:
    """Return the tags as they are stored, in their order, each once, without blank ones, at most `limit`."""
    return list(dict.fromkeys(filter(None, map(normalize_tag, check_strings("tags", tags)))))[:limit]


def units_of(text: str) -> frozenset[str]:
    """Return the words of a text without their endings, and characters with their pairs where words are not spaced.

    So a text has a keyword where it has all units of it. Symbols that make a name count: C, C++ and C# are three.
    """
    return frozenset(terms(text))


def _units_in(entity: GraphEntity) -> list[frozenset[str]]:
    """Return the units of the searched texts of an entity: names and tags, at the end the description."""
    return [*map(frozenset, map(terms, [entity.name, *entity.aliases, *entity.tags, entity.description]))]


def _fit(keywords: Set[frozenset[str]], entity: GraphEntity) -> int:
    """Return how well an entity fits some keywords; see `KnowledgeGraph.find_by_keywords`."""
    *names, description = _units_in(entity)
    fit = 0
    for keyword in keywords:
        if keyword in names:
            fit += 3
        elif any(keyword <= name for name in names):
            fit += 2
        elif keyword <= description:
            fit += 1
    return fit


def check_entity(entity: GraphEntity) -> None:
    for name in ("id", "name", "entity_type"):
        _check_text(f"GraphEntity.{name}", getattr(entity, name))
    check_string("GraphEntity.description", entity.description)
    check_strings("GraphEntity.aliases", entity.aliases)


def check_direction(direction: object) -> RelationDirection:
    """Return a direction; "incoming" is as good as INCOMING."""
    if not isinstance(direction, str) or direction not in list(RelationDirection):
        raise InvalidInputError(f"direction must be a RelationDirection, not {shorten(direction)}")
    return RelationDirection(direction)


def check_relation(relation: GraphRelation) -> None:
    _check_text("GraphRelation.relation_type", relation.relation_type)
    weight = relation.weight
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 <= weight <= 1.0:
        raise InvalidInputError(f"GraphRelation.weight must be between 0.0 and 1.0, not {shorten(weight)}")


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{what} is required, and must be a string: {shorten(value)}")


def check_keywords(keywords: Iterable[str], limit: int | None) -> Set[frozenset[str]]:
    """Return the units of the keywords that have any."""
    if limit is not None:
        check_count("limit", limit)
    return {*map(frozenset, map(terms, check_strings("keywords", keywords)))} - {frozenset()}


# The simplest implementation


class InMemoryGraph(KnowledgeGraph):
    """A graph that lives as long as the process; any number of threads may use it.

    Args:
        constraints: How many tags there may be; 8 for an entity.

    Cost: finding by keywords or tags looks at every entity, an entity's relations at every relation.
    """

    def __init__(self, constraints: TagConstraints | None = None) -> None:
        self._constraints = constraints or TagConstraints()
        self._lock = threading.RLock()
        self._entities: dict[str, GraphEntity] = {}
        self._relations: dict[tuple[str, str, str], GraphRelation] = {}  # by source, target and type: each exists once

    @override
    def add_entity(self, entity: GraphEntity) -> None:
        check_entity(entity)
        tags = normalize_tags(entity.tags, self._constraints.max_tags_per_entity)
        with self._lock:
            self._entities[entity.id] = replace(entity, tags=tags, aliases=list(entity.aliases))

    @override
    def get_entity(self, id: str) -> GraphEntity | None:
        check_string("id", id)
        with self._lock:
            entity = self._entities.get(id)
            return entity and _copy(entity)

    @override
    def remove_entity(self, id: str) -> None:
        with self._lock:
            self._find(id)
            del self._entities[id]
            self._relations = {ends: relation for ends, relation in self._relations.items() if id not in ends[:2]}

    @override
    def add_relation(self, relation: GraphRelation) -> None:
        check_relation(relation)
        source, target = relation.source_id, relation.target_id
        with self._lock:
            self._find(source)
            self._find(target)
            self._relations[source, target, relation.relation_type] = relation

    @override
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        with self._lock:
            self._find(source_id)
            self._find(target_id)
            self._relations.pop((source_id, target_id, relation_type), None)

    @override
    def get_relations(
        self, entity_id: str, direction: RelationDirection = RelationDirection.BOTH
    ) -> list[GraphRelation]:
        direction = check_direction(direction)
        with self._lock:
            self._find(entity_id)
            known = self._relations.values()
            outgoing = [each for each in known if each.source_id == entity_id]
            incoming = [each for each in known if each.target_id == entity_id]
        if direction is RelationDirection.BOTH:
            return list(dict.fromkeys([*outgoing, *incoming]))
        return outgoing if direction is RelationDirection.OUTGOING else incoming

    @override
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        wanted = check_keywords(keywords, limit)
        with self._lock:
            return rank_entities(wanted, limit, map(_copy, self._entities.values()))

    @override
    def count_tags(self) -> Counter[str]:
        with self._lock:
            return Counter(tag for entity in self._entities.values() for tag in entity.tags)

    @override
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        kept = normalize_tags(tags, self._constraints.max_tags_per_entity)
        with self._lock:
            self._entities[entity_id] = replace(self._find(entity_id), tags=kept)
        return len(kept)

    @override
    def tag_constraints(self) -> TagConstraints:
        return self._constraints

    def _find(self, id: str) -> GraphEntity:
        check_string("id", id)
        if id not in self._entities:
            raise NotFoundError("keyword", id)
        return self._entities[id]


def index_terms(entity: GraphEntity) -> set[str]:
    """Return the index terms of an entity: its units, and whole names and tags."""
    *names, description = _units_in(entity)
    return {*description}.union(*names, map(whole, filter(None, names)))


def whole(units: frozenset[str]) -> str:
    """Return the index term of a whole name, which no unit is: it has blanks around it."""
    return f" {' '.join(sorted(units))} "


def rank_entities(wanted: Set[frozenset[str]], limit: int | None, entities: Iterable[GraphEntity]) -> list[GraphEntity]:
    """Return those of some entities that have keywords, the best fitting first."""
    ranked = [(-fit, entity.name, entity.id, entity) for entity in entities if (fit := _fit(wanted, entity))]
    return [entity for *_, entity in sorted(ranked, key=lambda each: each[:3])[:limit]]


def _copy(entity: GraphEntity) -> GraphEntity:
    return replace(entity, tags=list(entity.tags), aliases=list(entity.aliases))
