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
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from ..keyword_tree import DuplicateIdError, KeywordNode, KeywordTree, NotFoundError, VersionConflictError
from ..store.log_follower import LogChanges, LogFollower, all_infos, outside_operations
from .graph import (
    GraphEntity,
    GraphRelation,
    InMemoryGraph,
    KnowledgeGraph,
    RelationDirection,
    Saying,
    ScoredEntity,
    TagConstraints,
    check_direction,
    check_entity,
    check_relation,
    normalize_tags,
    rank_entities,
)
from .keyword_fields import CHOSEN, RELATION, TAG, OwnFields, is_relation, quote_type, read_own, split_relation_key
from .memory_fields import (
    MEMORY_KEY,
    NOTHING_SAID,
    SaidRelation,
    Sayings,
    Waits,
    memory_fields,
    read_sayings,
    superseded_ids,
    waits_for,
)

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
        self._index = index
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
        with self._lock:
            self._catch_up()
            self._next_number += 1
            number = self._next_number

        def patch(node: KeywordNode) -> dict[str, Any]:
            # What was added under the name of a merged target keeps its key, so that there stays one.
            old = [key for key in node.metadata if self._leads_to(key, node.id) == (target.id, kind)]
            key = (*old, f"{RELATION}{quote_type(kind)}:{'' if target.id == node.id else target.id}")[0]
            number_now = node.metadata[key]["number"] if old and is_relation(node.metadata[key]) else number
            return {"metadata": {**node.metadata, key: {"weight": float(weight), "number": number_now}}}

        self._update(source.id, patch)

    @override
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        source, target = self._find(source_id), self._find(target_id)

        def patch(node: KeywordNode) -> dict[str, Any]:
            gone = (target.id, relation_type)
            kept = {key: value for key, value in node.metadata.items() if self._leads_to(key, node.id) != gone}
            return {"metadata": kept}

        with self._lock:
            self._catch_up()
            sayings = list(self._sayings_of(source.id, target.id, relation_type))
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
            if len(row) != 6 or (self._chain(row[0])[-1], row[1], self._chain(row[2])[-1]) != gone
        ]
        own = {**memory_fields(info), "graph": {**graph, "relations": kept}}
        self._tree.UpdateInfo(memory_id, {"metadata": {**info.metadata, MEMORY_KEY: own}})

    @override
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        keys = self._tag_keys(tags)
        with self._lock:
            self._catch_up()
            is_reported = any(self._tags.get(written) for written in self._written_as(entity_id))
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
        check_direction(direction)
        if self._bare_index() is not None:
            return []
        return self._caught_up().get_related(id, depth, direction, relation_types)

    @override
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        index = self._bare_index()
        if index is None:
            return self._caught_up().find_by_keywords(keywords, limit)
        return rank_entities(keywords, limit, index.named, self._read_bare)

    def _bare_index(self) -> "Memories | None":
        """Return the index where it suffices, since nothing has relations and no graph was built."""
        index = None if self._is_begun or self._index is None else self._index()
        return None if index is None or index.has_relations() else index

    def _read_bare(self, id: str) -> GraphEntity | None:
        node = self._tree.GetKeyword(id)
        return None if node is None or node.id != id else self._own_entity(node)

    def _own_entity(self, node: KeywordNode) -> GraphEntity:
        return read_own(node).entity_within(self.tag_constraints().max_tags_per_entity)

    @override
    def find_tags(self, prefix: str) -> list[str]:
        return self._caught_up().find_tags(prefix)

    @override
    def entity_count_by_tag(self, tag: str) -> int:
        return self._caught_up().entity_count_by_tag(tag)

    @override
    def tag_constraints(self) -> TagConstraints:
        return self._found.tag_constraints()

    # -- who says so --

    def memories_of(self, entity_id: str) -> list[str]:
        """Return the memories that name an entity, in the order of saying; none of an id that nothing has."""
        with self._lock:
            self._catch_up()
            return [memory for written in self._written_as(entity_id) for memory in self._memories.get(written, ())]

    def waiting(self) -> dict[str, Waits]:
        """Return the memories that wait to be read, the oldest first: id → (what they wait for, tries)."""
        with self._lock:
            self._catch_up()
            return dict(self._waiting)

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
        self._merged_from: dict[str, set[str]] = defaultdict(set)
        self._own: dict[str, OwnFields] = {}  # what keywords have of their own
        self._written: dict[str, dict[str, Any]] = {}  # by source: its relations as the metadata has them
        self._sources: dict[str, set[str]] = defaultdict(set)  # by target, as written, in metadata and in memories
        self._sayings: dict[str, Sayings] = {}  # by memory
        self._waiting: dict[str, Waits] = {}  # memories
        self._memories: dict[str, dict[str, None]] = {}  # by entity as written: who names it
        self._types: dict[str, Counter[str]] = defaultdict(Counter)  # by entity as written, likewise
        self._tags: dict[str, Counter[str]] = defaultdict(Counter)
        self._descriptions: dict[str, dict[str, str]] = defaultdict(dict)
        # By source as written, then by type and target as written, then by memory.
        self._said: dict[str, dict[tuple[str, str], dict[str, SaidRelation]]] = defaultdict(dict)

    def _catch_up(self) -> None:
        if self._is_begun:
            self._is_begun = False  # what fails halfway, Ctrl-C too, leaves it as if it had not begun
            self._take(self._follower.catch_up())
            self._is_begun = True
            return
        changes = self._follower.begin(self._read_tree, _may_have_missed)
        self._take(changes)
        lost = [target for target in self._sources if target and self._found.get_entity(target) is None]
        lost += [source for source in self._said if self._found.get_entity(source) is None]
        lost += [entity for entity in self._memories if self._found.get_entity(entity) is None]
        if outside_operations(lambda: [id for id in lost if self._tree.GetKeyword(id) is not None]):
            # What was merged leads on, and only the log has over what.
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
        if self._index is not None:
            for id, (said, waits) in self._index().sayings().items():
                self._take_sayings(id, said, waits)
            return
        infos = all_infos(self._tree)
        while page := list(islice(infos, _PAGE)):
            self._take(LogChanges(infos=page))

    def _take(self, changes: LogChanges) -> None:
        if changes.from_nothing:
            self._forget()
        nodes = {node.id: node for node in changes.nodes if node.id != "root" and node.id.strip()}
        for id, node in nodes.items():
            self._note_merge(id, node.merged_into if node.deleted else None)
            if node.deleted:
                self._own.pop(id, None)
                if self._found.get_entity(id) is not None:
                    self._found.remove_entity(id)
            else:
                self._own[id] = read_own(node)
            self._note_written(id, node)
        for id in {self._chain(id)[-1] for id in nodes}:
            self._settle(id)
        # Whose target came, went or was merged leads elsewhere now.
        touched = {id for id in nodes if self._found.get_entity(id)}
        sources = touched.union(*(self._sources.get(id, ()) for id in self._with_merged(nodes)))
        for source_id in {self._chain(id)[-1] for id in sources} if nodes else ():
            self._relate(source_id)
        for info in {info.id: info for info in changes.infos}.values():
            self._take_sayings(info.id, read_sayings(info), waits_for(info))
            for old_id in () if info.deleted else superseded_ids(info):
                self._take_sayings(old_id, NOTHING_SAID, None)

    def _note_merge(self, id: str, into: str | None) -> None:
        before = self._merged.pop(id, None)
        if before is not None:
            self._merged_from[before].discard(id)
        if into:
            self._merged[id] = into
            self._merged_from[into].add(id)

    def _note_written(self, id: str, node: KeywordNode) -> None:
        gone = self._written.pop(id, ())
        held = {} if node.deleted else node.metadata
        written = {key: value for key, value in held.items() if split_relation_key(key)[0]}
        if written:
            self._written[id] = written
        for key in written:
            self._sources[split_relation_key(key)[1]].add(id)
        targets = {split_relation_key(key)[1] for key in written} | {target for _, target in self._said.get(id, ())}
        for key in gone:
            if split_relation_key(key)[1] not in targets:
                self._sources[split_relation_key(key)[1]].discard(id)

    def _written_as(self, id: str) -> list[str]:
        """Return an id and those of what was merged into it, at however many removes."""
        found = [id]
        for each in found:
            found += self._merged_from.get(each, ())
        return found

    def _with_merged(self, ids: Iterable[str]) -> set[str]:
        """Return ids and those of what was merged into them."""
        return {old for id in ids for old in self._written_as(id)}

    def _chain(self, id: str) -> list[str]:
        chain = [id]
        while (id := self._merged.get(id, "")) and id not in chain:
            chain.append(id)
        return chain

    def _settle(self, id: str) -> None:
        """Put an entity as its keyword has it, and as memories say where the keyword says nothing."""
        own = self._own.get(id)
        if own is None:
            return
        entity, written = own.entity, self._written_as(id)
        types = sum((self._types[each] for each in written if each in self._types), Counter[str]())
        if types and not own.has_type:
            entity = replace(entity, entity_type=max(sorted(types), key=types.__getitem__))
        tags = sum((self._tags[each] for each in written if each in self._tags), Counter[str]())
        if tags and not own.has_tags:
            reported = sorted(tags, key=lambda tag: (-tags[tag], tag))
            limit = self.tag_constraints().max_tags_per_entity
            entity = replace(entity, tags=list(dict.fromkeys([*entity.tags, *reported]))[:limit])
        if not entity.description:
            descriptions = (text for each in written for text in self._descriptions.get(each, {}).values())
            entity = replace(entity, description=next(descriptions, ""))
        if self._found.get_entity(id) != entity:
            self._found.add_entity(entity)

    # -- what memories say --

    def _take_sayings(self, memory_id: str, now: Sayings, waits: Waits | None) -> None:
        if waits is None:
            self._waiting.pop(memory_id, None)
        else:
            self._waiting[memory_id] = waits
        before = self._sayings.pop(memory_id, NOTHING_SAID)
        if now:
            self._sayings[memory_id] = now
        if before == now:
            return
        for entity_id, reported in before.entities.items():
            self._memories[entity_id].pop(memory_id, None)
            self._types[entity_id] -= Counter([reported.entity_type] if reported.entity_type else [])
            self._tags[entity_id] -= Counter(reported.tags)
            self._descriptions[entity_id].pop(memory_id, None)
        for entity_id, reported in now.entities.items():
            self._memories.setdefault(entity_id, {})[memory_id] = None
            self._types[entity_id] += Counter([reported.entity_type] if reported.entity_type else [])
            self._tags[entity_id] += Counter(reported.tags)
            if reported.description:
                self._descriptions[entity_id][memory_id] = reported.description
        for entity_id in {self._chain(id)[-1] for id in (*before.entities, *now.entities)}:
            self._settle(entity_id)
        for gone in before.relations:
            self._said[gone.source_id].get((gone.relation_type, gone.target_id), {}).pop(memory_id, None)
        for said in now.relations:
            by_memory = self._said[said.source_id].setdefault((said.relation_type, said.target_id), {})
            by_memory[memory_id] = said
            self._sources[said.target_id].add(said.source_id)
        for said in dict.fromkeys((*before.relations, *now.relations)):
            self._relate_one(self._chain(said.source_id)[-1], self._chain(said.target_id)[-1], said.relation_type)

    def _sayings_of(self, source_id: str, target_id: str, kind: str) -> Iterable[tuple[str, SaidRelation]]:
        """Yield who says that two entities have a relation, and how."""
        targets = self._written_as(target_id)
        for source in self._written_as(source_id):
            said = self._said.get(source)
            for target in targets if said else ():
                yield from said.get((kind, target), {}).items() if said else ()

    def _relate_one(self, source_id: str, target_id: str, kind: str) -> None:
        """Put one outgoing relation of an entity as its keyword has it, and as memories say."""
        found = self._found
        if found.get_entity(source_id) is None or found.get_entity(target_id) is None or source_id == target_id:
            return
        sayings = list(self._sayings_of(source_id, target_id, kind))
        by_hand = self._by_hand(source_id).get((target_id, kind))
        numbers = self._numbers.setdefault(source_id, {})
        if by_hand is None and not sayings:
            found.remove_relation(source_id, target_id, kind)
            numbers.pop((target_id, kind), None)
            return
        if by_hand is None and (target_id, kind) not in numbers:
            self._next_number += 1
            numbers[target_id, kind] = self._next_number
        weight = by_hand[0] if by_hand is not None else max(said.weight for _, said in sayings)
        said_by = tuple(Saying(memory_id, said.sentence) for memory_id, said in sayings[:_SAYINGS])
        found.add_relation(GraphRelation(source_id, target_id, kind, weight, said_by))

    def _by_hand(self, source_id: str) -> dict[tuple[str, str], tuple[float, int]]:
        """Return what a keyword's own metadata relates it to: (target, type) → (weight, number)."""
        held: dict[tuple[str, str], tuple[float, int]] = {}
        for key, value in self._written.get(source_id, {}).items():
            target, kind = self._leads_to(key, source_id)
            if kind and is_relation(value):
                held.setdefault((target, kind), (value["weight"], value["number"]))
        return held

    def _relate(self, source_id: str) -> None:
        """Put an entity's outgoing relations as its keyword has them, and as memories say."""
        if self._found.get_entity(source_id) is None:
            return
        for relation in self._found.get_relations(source_id, RelationDirection.OUTGOING):
            self._found.remove_relation(source_id, relation.target_id, relation.relation_type)
        before = self._numbers.get(source_id, {})
        numbers = self._numbers[source_id] = {}
        for (target, kind), (weight, number) in self._by_hand(source_id).items():
            self._next_number = max(self._next_number, number)
            if self._found.get_entity(target):
                self._found.add_relation(GraphRelation(source_id, target, kind, weight))
                numbers[target, kind] = number
        reported = {
            (kind, target): None
            for source in self._written_as(source_id)
            for kind, target in self._said.get(source, ())
        }
        for kind, written in reported:
            target = self._chain(written)[-1]
            if (target, kind) in before:
                numbers.setdefault((target, kind), before[target, kind])
            self._relate_one(source_id, target, kind)

    def _number_of(self, relation: GraphRelation) -> int:
        return self._numbers[relation.source_id][relation.target_id, relation.relation_type]

    def _leads_to(self, key: str, source_id: str) -> tuple[str, str]:
        """Return where a key of a keyword's metadata leads, and the relation's type; two empty strings if nowhere.

        What leads from a keyword to itself without having been written so comes from a merge, and leads nowhere.
        """
        kind, written = split_relation_key(key)
        if not kind:
            return "", ""
        if not written:
            return source_id, kind
        target = self._chain(written)[-1]
        return ("", "") if target == source_id else (target, kind)

    def _read(self, node: KeywordNode) -> GraphEntity:
        """Return a keyword as an entity: as it was found, or with its own fields where the log does not have it yet."""
        if self._bare_index() is not None:
            return self._own_entity(node)
        with self._lock:
            self._catch_up()
            if self._own.get(node.id) == read_own(node):
                found = self._found.get_entity(node.id)
                if found is not None:
                    return found
        return self._own_entity(node)


def _may_have_missed(changes: LogChanges) -> bool:
    """Tell whether reading the tree page by page may have missed something of what was written meanwhile."""
    return bool(changes.nodes) or any(info.deleted for info in changes.infos)


_PAGE = 1_000  # infos read at once
_SAYINGS = 100  # listed of one relation: that more say it adds nothing
