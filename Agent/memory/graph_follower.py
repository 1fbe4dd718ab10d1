"""Follow a tree's log as a graph: what keywords have of their own, joined with all that memories say.

`TreeGraph` asks it. It writes nothing, and holds in memory what an `InMemoryGraph` would.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..keyword_tree import KeywordNode, KeywordTree
from ..store.log_follower import LogChanges, LogFollower, all_infos, outside_operations
from .graph import GraphRelation, InMemoryGraph, RelationDirection, Saying, TagConstraints
from .keyword_fields import OwnFields, is_relation, read_own, split_relation_key
from .memory_fields import NOTHING_SAID, SaidRelation, Sayings, Waits, read_sayings, superseded_ids, waits_for

if TYPE_CHECKING:
    from .memories import Memories

__all__ = ["GraphFollower"]


class GraphFollower:
    """A graph that is as the log of a tree has it.

    Args:
        tree: Its keywords are the entities, but for the root.
        constraints: How many tags there may be.
        index: Returns the index of the tree's memories, which knows what all of them say; None reads the tree's infos.

    Attributes:
        found: The graph.
        own: What keywords have of their own.
        memories: By entity as written: the memories that name it.
        tags: By entity as written: the tags that memories give it.
        waiting: The memories that wait to be read.
        is_begun: Whether the tree was read.
        lock: Held by whoever reads several of these.
    """

    def __init__(
        self, tree: KeywordTree, constraints: TagConstraints | None, index: Callable[[], "Memories"] | None
    ) -> None:
        self._tree, self._index = tree, index
        self.lock = threading.RLock()
        self._follower = LogFollower(tree)
        self.found = InMemoryGraph(constraints)
        self.is_begun = False
        self._forget()

    def next_number(self) -> int:
        """Return a number for a relation that is to be added."""
        with self.lock:
            self.catch_up()
            self._next_number += 1
            return self._next_number

    def caught_up(self) -> InMemoryGraph:
        """Return the graph as the log has it now."""
        with self.lock:
            self.catch_up()
            return self.found

    def _forget(self) -> None:
        self.found = InMemoryGraph(self.found.tag_constraints())
        self._next_number = 0
        self._numbers: dict[str, dict[tuple[str, str], int]] = {}  # by source, then by target and type
        self._merged: dict[str, str] = {}
        self._merged_from: dict[str, set[str]] = defaultdict(set)
        self.own: dict[str, OwnFields] = {}  # what keywords have of their own
        self._written: dict[str, dict[str, Any]] = {}  # by source: its relations as the metadata has them
        self._sources: dict[str, set[str]] = defaultdict(set)  # by target, as written, in metadata and in memories
        self._sayings: dict[str, Sayings] = {}  # by memory
        self.waiting: dict[str, Waits] = {}  # memories
        self.memories: dict[str, dict[str, None]] = {}  # by entity as written: who names it
        self._types: dict[str, Counter[str]] = defaultdict(Counter)  # by entity as written, likewise
        self.tags: dict[str, Counter[str]] = defaultdict(Counter)
        self._descriptions: dict[str, dict[str, str]] = defaultdict(dict)
        # By source as written, then by type and target as written, then by memory.
        self._said: dict[str, dict[tuple[str, str], dict[str, SaidRelation]]] = defaultdict(dict)

    def catch_up(self) -> None:
        """Take in what is new in the log."""
        if self.is_begun:
            self.is_begun = False  # what fails halfway, Ctrl-C too, leaves it as if it had not begun
            self._take(self._follower.catch_up())
            self.is_begun = True
            return
        changes = self._follower.begin(self._read_tree, _may_have_missed)
        self._take(changes)
        lost = [target for target in self._sources if target and self.found.get_entity(target) is None]
        lost += [source for source in self._said if self.found.get_entity(source) is None]
        lost += [entity for entity in self.memories if self.found.get_entity(entity) is None]
        if outside_operations(lambda: [id for id in lost if self._tree.GetKeyword(id) is not None]):
            # What was merged leads on, and only the log has over what.
            self._follower = LogFollower(self._tree)
            self._forget()
            self._take(self._follower.catch_up())
        self.is_begun = True

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
                self.own.pop(id, None)
                if self.found.get_entity(id) is not None:
                    self.found.remove_entity(id)
            else:
                self.own[id] = read_own(node)
            self._note_written(id, node)
        for id in {self.chain(id)[-1] for id in nodes}:
            self._settle(id)
        # Whose target came, went or was merged leads elsewhere now.
        touched = {id for id in nodes if self.found.get_entity(id)}
        sources = touched.union(*(self._sources.get(id, ()) for id in self._with_merged(nodes)))
        for source_id in {self.chain(id)[-1] for id in sources} if nodes else ():
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

    def written_as(self, id: str) -> list[str]:
        """Return an id and those of what was merged into it, at however many removes."""
        found = [id]
        for each in found:
            found += self._merged_from.get(each, ())
        return found

    def _with_merged(self, ids: Iterable[str]) -> set[str]:
        """Return ids and those of what was merged into them."""
        return {old for id in ids for old in self.written_as(id)}

    def chain(self, id: str) -> list[str]:
        """Return an id and what it was merged into, at however many removes."""
        chain = [id]
        while (id := self._merged.get(id, "")) and id not in chain:
            chain.append(id)
        return chain

    def _settle(self, id: str) -> None:
        """Put an entity as its keyword has it, and as memories say where the keyword says nothing."""
        own = self.own.get(id)
        if own is None:
            return
        entity, written = own.entity, self.written_as(id)
        types = sum((self._types[each] for each in written if each in self._types), Counter[str]())
        if types and not own.has_type:
            entity = replace(entity, entity_type=max(sorted(types), key=types.__getitem__))
        tags = sum((self.tags[each] for each in written if each in self.tags), Counter[str]())
        if tags and not own.has_tags:
            reported = sorted(tags, key=lambda tag: (-tags[tag], tag))
            limit = self.found.tag_constraints().max_tags_per_entity
            entity = replace(entity, tags=list(dict.fromkeys([*entity.tags, *reported]))[:limit])
        if not entity.description:
            descriptions = (text for each in written for text in self._descriptions.get(each, {}).values())
            entity = replace(entity, description=next(descriptions, ""))
        if self.found.get_entity(id) != entity:
            self.found.add_entity(entity)

    # -- what memories say --

    def _take_sayings(self, memory_id: str, now: Sayings, waits: Waits | None) -> None:
        if waits is None:
            self.waiting.pop(memory_id, None)
        else:
            self.waiting[memory_id] = waits
        before = self._sayings.pop(memory_id, NOTHING_SAID)
        if now:
            self._sayings[memory_id] = now
        if before == now:
            return
        for entity_id, reported in before.entities.items():
            self.memories[entity_id].pop(memory_id, None)
            self._types[entity_id] -= Counter([reported.entity_type] if reported.entity_type else [])
            self.tags[entity_id] -= Counter(reported.tags)
            self._descriptions[entity_id].pop(memory_id, None)
        for entity_id, reported in now.entities.items():
            self.memories.setdefault(entity_id, {})[memory_id] = None
            self._types[entity_id] += Counter([reported.entity_type] if reported.entity_type else [])
            self.tags[entity_id] += Counter(reported.tags)
            if reported.description:
                self._descriptions[entity_id][memory_id] = reported.description
        for entity_id in {self.chain(id)[-1] for id in (*before.entities, *now.entities)}:
            self._settle(entity_id)
        for gone in before.relations:
            self._said[gone.source_id].get((gone.relation_type, gone.target_id), {}).pop(memory_id, None)
        for said in now.relations:
            by_memory = self._said[said.source_id].setdefault((said.relation_type, said.target_id), {})
            by_memory[memory_id] = said
            self._sources[said.target_id].add(said.source_id)
        for said in dict.fromkeys((*before.relations, *now.relations)):
            self._relate_one(self.chain(said.source_id)[-1], self.chain(said.target_id)[-1], said.relation_type)

    def sayings_of(self, source_id: str, target_id: str, kind: str) -> Iterable[tuple[str, SaidRelation]]:
        """Yield who says that two entities have a relation, and how."""
        targets = self.written_as(target_id)
        for source in self.written_as(source_id):
            said = self._said.get(source)
            for target in targets if said else ():
                yield from said.get((kind, target), {}).items() if said else ()

    def _relate_one(self, source_id: str, target_id: str, kind: str) -> None:
        """Put one outgoing relation of an entity as its keyword has it, and as memories say."""
        found = self.found
        if found.get_entity(source_id) is None or found.get_entity(target_id) is None or source_id == target_id:
            return
        sayings = list(self.sayings_of(source_id, target_id, kind))
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
            target, kind = self.leads_to(key, source_id)
            if kind and is_relation(value):
                held.setdefault((target, kind), (value["weight"], value["number"]))
        return held

    def _relate(self, source_id: str) -> None:
        """Put an entity's outgoing relations as its keyword has them, and as memories say."""
        if self.found.get_entity(source_id) is None:
            return
        for relation in self.found.get_relations(source_id, RelationDirection.OUTGOING):
            self.found.remove_relation(source_id, relation.target_id, relation.relation_type)
        before = self._numbers.get(source_id, {})
        numbers = self._numbers[source_id] = {}
        for (target, kind), (weight, number) in self._by_hand(source_id).items():
            self._next_number = max(self._next_number, number)
            if self.found.get_entity(target):
                self.found.add_relation(GraphRelation(source_id, target, kind, weight))
                numbers[target, kind] = number
        reported = {
            (kind, target): None for source in self.written_as(source_id) for kind, target in self._said.get(source, ())
        }
        for kind, written in reported:
            target = self.chain(written)[-1]
            if (target, kind) in before:
                numbers.setdefault((target, kind), before[target, kind])
            self._relate_one(source_id, target, kind)

    def number_of(self, relation: GraphRelation) -> int:
        """Return the place of a relation in the order of adding."""
        return self._numbers[relation.source_id][relation.target_id, relation.relation_type]

    def leads_to(self, key: str, source_id: str) -> tuple[str, str]:
        """Return where a key of a keyword's metadata leads, and the relation's type; two empty strings if nowhere.

        What leads from a keyword to itself without having been written so comes from a merge, and leads nowhere.
        """
        kind, written = split_relation_key(key)
        if not kind:
            return "", ""
        if not written:
            return source_id, kind
        target = self.chain(written)[-1]
        return ("", "") if target == source_id else (target, kind)


def _may_have_missed(changes: LogChanges) -> bool:
    """Tell whether reading the tree page by page may have missed something of what was written meanwhile."""
    return bool(changes.nodes) or any(info.deleted for info in changes.infos)


_PAGE = 1_000  # infos read at once
_SAYINGS = 100  # listed of one relation: that more say it adds nothing
