"""See the keywords of a tree as a graph: entities with relations and tags, durable and undoable as the tree is.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     graph = TreeGraph(tree)
...     tea, city = tree.CreateKeyword("龙井"), tree.CreateKeyword("杭州")
...     graph.add_relation(GraphRelation(tea.id, city.id, "comes_from"))
...     [found.entity.name for found in graph.get_related(tea.id)]
['杭州']
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from typing_extensions import override

from ..keyword_tree import DuplicateIdError, KeywordNode, KeywordTree, NotFoundError, VersionConflictError
from .graph import (
    GraphEntity,
    GraphRelation,
    KnowledgeGraph,
    RelationDirection,
    ScoredEntity,
    TagConstraints,
    check_entity,
    check_relation,
    normalize_tags,
)
from .in_memory_graph import InMemoryGraph
from .log_follower import LogChanges, LogFollower, outside_operations

__all__ = ["TreeGraph"]


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
        self._follower = LogFollower(tree)
        self._found = InMemoryGraph(constraints)
        self._is_begun = False
        self._forget()

    # -- writing --

    @override
    def add_entity(self, entity: GraphEntity) -> None:
        check_entity(entity)
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
        check_relation(relation)
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
        changes = self._follower.begin(self._read_tree, lambda changes: bool(changes.nodes))
        self._take(changes)
        lost = [target for target in self._sources if target and self._found.get_entity(target) is None]
        if outside_operations(lambda: [id for id in lost if self._tree.GetKeyword(id) is not None]):
            # What was merged leads on, and only the log tells over what.
            self._follower = LogFollower(self._tree)
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
        self._take(LogChanges(nodes=nodes))

    def _take(self, changes: LogChanges) -> None:
        if changes.from_nothing:
            self._forget()
        nodes = {node.id: node for node in changes.nodes if node.id != "root" and node.id.strip()}
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
