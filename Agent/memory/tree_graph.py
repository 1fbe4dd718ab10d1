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
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from ..keyword_tree import DuplicateIdError, KeywordNode, KeywordTree, NotFoundError, VersionConflictError
from .graph import (
    GraphEntity,
    GraphRelation,
    KnowledgeGraph,
    RelationDirection,
    ScoredEntity,
    TagConstraints,
    check_direction,
    check_entity,
    check_relation,
    normalize_tags,
    rank_entities,
)
from .graph_follower import GraphFollower
from .keyword_fields import CHOSEN, RELATION, TAG, is_relation, quote_type, read_own
from .memory_fields import MEMORY_KEY, Waits, memory_fields

if TYPE_CHECKING:
    from .memories import Memories  # it indexes keywords by what they are found by here

__all__ = ["TreeGraph"]


class TreeGraph(KnowledgeGraph):
    """The keywords of a tree as entities: durable, undoable, and following what merges, moves and deletes the tree.

    Args:
        tree: Its keywords are the entities, but for the root.
        parent_id: Under which keyword `add_entity` puts what is new; the root.
        constraints: How many tags there may be; 8 for an entity.
        index: Returns the index of the tree's memories, which knows what all of them say, and the names of keywords: as
            long as nothing has relations, no graph is built. None reads the tree's infos.

    An entity's name and description are the keyword's. The rest is in its metadata, one key for each thing, since
    that is what a merge joins; see `keyword_fields`.

    Besides, the graph has what memories say (`sayings`): relations with the sentences that say so, and types, tags and
    descriptions where the keyword has none of its own. Two memories that say the same make one relation, with the
    greater weight. What was added by hand has the last word: its weight counts, chosen tags count alone.

    A relation leads to whatever its target was merged into. With a deleted target it is not seen, and is there again
    when the deletion is undone. Inside an open `Operation` what the block has written is checked against, but found
    only when it has ended. Undo is the tree's.

    Cost: a write is one of the tree's, one row as long as the keyword's relations are many; a reading some 0.4 ms for
    looking whether the log has grown. In memory it holds what an `InMemoryGraph` would.
    """

    def __init__(
        self,
        tree: KeywordTree,
        parent_id: str = "root",
        constraints: TagConstraints | None = None,
        index: Callable[[], "Memories"] | None = None,
    ) -> None:
        self._index, self._tree, self._parent_id = index, tree, parent_id
        self._graph = GraphFollower(tree, constraints, index)

    # -- writing --

    @override
    def add_entity(self, entity: GraphEntity) -> None:
        check_entity(entity)
        own = {"entity_type": entity.entity_type, **self._tag_keys(entity.tags)}
        if self._tree.GetKeyword(entity.id) is None:
            spec = {"id": entity.id, "name": entity.name, "description": entity.description, "metadata": own}
            with contextlib.suppress(DuplicateIdError):  # another thread or process has made it: it is there now
                self._tree.BatchCreateKeywords([{**spec, "parent_id": self._parent_id}])
                return

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: value for key, value in node.metadata.items() if not key.startswith(TAG)}
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
            except VersionConflictError:  # another process wrote a source meanwhile
                continue
            return

    @override
    def add_relation(self, relation: GraphRelation) -> None:
        check_relation(relation)
        source, target = self._find(relation.source_id), self._find(relation.target_id)
        kind, weight = relation.relation_type, relation.weight
        number = self._graph.next_number()

        def patch(node: KeywordNode) -> dict[str, Any]:
            # What was added under the name of a merged target keeps its key, so that there stays one.
            old = [key for key in node.metadata if self._graph.leads_to(key, node.id) == (target.id, kind)]
            key = (*old, f"{RELATION}{quote_type(kind)}:{'' if target.id == node.id else target.id}")[0]
            number_now = node.metadata[key]["number"] if old and is_relation(node.metadata[key]) else number
            return {"metadata": {**node.metadata, key: {"weight": float(weight), "number": number_now}}}

        self._update(source.id, patch)

    @override
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        source, target = self._find(source_id), self._find(target_id)

        def patch(node: KeywordNode) -> dict[str, Any]:
            gone = (target.id, relation_type)
            kept = {key: value for key, value in node.metadata.items() if self._graph.leads_to(key, node.id) != gone}
            return {"metadata": kept}

        with self._graph.lock:
            self._graph.catch_up()
            sayings = list(self._graph.sayings_of(source.id, target.id, relation_type))
        if not sayings:
            self._update(source.id, patch)
            return
        with self._tree.Operation("remove_relation"):
            self._update(source.id, patch)
            for memory_id, _ in sayings:
                self._unsay(memory_id, source.id, target.id, relation_type)

    def _unsay(self, memory_id: str, source_id: str, target_id: str, relation_type: str) -> None:
        """Let a memory say no more that two entities have a relation; its text stays as it is."""
        info = self._tree.GetInfo(memory_id)
        graph = {} if info is None else memory_fields(info).get("graph", {})
        if info is None or not graph:
            return
        gone = (source_id, relation_type, target_id)
        kept = [
            row
            for row in graph.get("relations", ())
            if len(row) != 6 or (self._graph.chain(row[0])[-1], row[1], self._graph.chain(row[2])[-1]) != gone
        ]
        own = {**memory_fields(info), "graph": {**graph, "relations": kept}}
        self._tree.UpdateInfo(memory_id, {"metadata": {**info.metadata, MEMORY_KEY: own}})

    @override
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        keys = self._tag_keys(tags)
        with self._graph.lock:
            self._graph.catch_up()
            is_reported = any(self._graph.tags.get(written) for written in self._graph.written_as(entity_id))
        chosen = {TAG: CHOSEN} if is_reported else {}

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: value for key, value in node.metadata.items() if not key.startswith(TAG)}
            return {"metadata": {**kept, **keys, **chosen}}

        self._update(self._find(entity_id).id, patch)
        return len(keys)

    def _update(self, id: str, patch: Callable[[KeywordNode], dict[str, Any]]) -> None:
        while True:
            node = self._find(id)
            try:
                self._tree.UpdateKeyword(node.id, patch(node), node.version)
            except VersionConflictError:  # another process has written: patch what it left
                continue
            return

    def _tag_keys(self, tags: Iterable[str]) -> dict[str, int]:
        kept = normalize_tags(tags, self.tag_constraints().max_tags_per_entity)
        return {f"{TAG}{tag}": place for place, tag in enumerate(kept)}

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
        with self._graph.lock:
            self._graph.catch_up()
            if self._graph.found.get_entity(id) is None:  # made by an operation that is still open
                return []
            relations = self._graph.found.get_relations(id, direction)
            return sorted(relations, key=lambda relation: (relation.source_id != id, self._graph.number_of(relation)))

    @override
    def get_related(
        self,
        entity_id: str,
        depth: int = 1,
        direction: RelationDirection = RelationDirection.OUTGOING,
        relation_types: Collection[str] | None = None,
    ) -> list[ScoredEntity]:
        id = self._find(entity_id).id
        check_direction(direction)
        if self._bare_index() is not None:
            return []
        return self._graph.caught_up().get_related(id, depth, direction, relation_types)

    @override
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        index = self._bare_index()
        if index is None:
            return self._graph.caught_up().find_by_keywords(keywords, limit)
        return rank_entities(keywords, limit, index.named, self._read_bare)

    def _bare_index(self) -> "Memories | None":
        """Return the index where it suffices, since nothing has relations and no graph was built."""
        index = None if self._graph.is_begun or self._index is None else self._index()
        return None if index is None or index.has_relations() else index

    def _read_bare(self, id: str) -> GraphEntity | None:
        node = self._tree.GetKeyword(id)
        return None if node is None or node.id != id else self._own_entity(node)

    def _own_entity(self, node: KeywordNode) -> GraphEntity:
        return read_own(node).entity_within(self.tag_constraints().max_tags_per_entity)

    @override
    def find_tags(self, prefix: str) -> list[str]:
        return self._graph.caught_up().find_tags(prefix)

    @override
    def entity_count_by_tag(self, tag: str) -> int:
        return self._graph.caught_up().entity_count_by_tag(tag)

    @override
    def tag_constraints(self) -> TagConstraints:
        return self._graph.found.tag_constraints()

    # -- who says so --

    def memories_of(self, entity_id: str) -> list[str]:
        """Return the memories that name an entity, in the order of saying; none of an id that nothing has."""
        with self._graph.lock:
            self._graph.catch_up()
            named = (self._graph.memories.get(written, ()) for written in self._graph.written_as(entity_id))
            return [memory for memories in named for memory in memories]

    def waiting(self) -> dict[str, Waits]:
        """Return the memories that wait to be read, the oldest first: id → (what they wait for, tries)."""
        with self._graph.lock:
            self._graph.catch_up()
            return dict(self._graph.waiting)

    def _read(self, node: KeywordNode) -> GraphEntity:
        """Return a keyword as an entity: as it was found, or with its own fields where the log does not have it yet."""
        if self._bare_index() is not None:
            return self._own_entity(node)
        with self._graph.lock:
            self._graph.catch_up()
            if self._graph.own.get(node.id) == read_own(node):
                found = self._graph.found.get_entity(node.id)
                if found is not None:
                    return found
        return self._own_entity(node)
