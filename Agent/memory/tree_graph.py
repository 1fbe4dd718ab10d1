"""See the keywords of a tree as a graph, entities with relations and tags, and as pages: "what is X".

Both are durable and undoable as the tree is.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     graph = TreeGraph(tree)
...     tea, city = tree.CreateKeyword("龙井"), tree.CreateKeyword("杭州")
...     graph.add_relation(GraphRelation(tea.id, city.id, "comes_from"))
...     [found.entity.name for found in graph.get_related(tea.id)]
['杭州']

>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     tea = tree.CreateKeyword("龙井", "root", description="A green tea.")
...     _ = tree.CreateInfo("It comes from Hangzhou and wants 80 °C.", keyword_ids=[tea.id])
...     store = KnowledgeStore(tree)
...     [page.title for page in store.find_by_keywords(["hangzhou"])], store.what_is("龙井").summary
(['龙井'], 'A green tea.')

A page's title is a keyword's name, its summary the description, its texts the infos. Pages are written as keywords are.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from typing_extensions import override

from ..base.checks import check_count, check_strings
from ..finding.index import Index
from ..keyword_tree import DuplicateIdError, KeywordNode, KeywordTree, NotFoundError, VersionConflictError
from . import graph_rows
from .graph import (
    GraphEntity,
    GraphRelation,
    KnowledgeGraph,
    RelationDirection,
    TagConstraints,
    check_direction,
    check_entity,
    check_keywords,
    check_relation,
    normalize_tags,
    rank_entities,
)
from .memories import Memories
from .memory_fields import CHOSEN, REMOVED, TAG, own_entity, relation_key, split_relation_key

__all__ = ["KnowledgePage", "KnowledgeStore", "TreeGraph"]

_T = TypeVar("_T")
_INFOS = 50  # that a page shows


class TreeGraph(KnowledgeGraph):
    """The keywords of a tree as entities: durable, undoable, and following what merges, moves and deletes the tree.

    Args:
        tree: Its keywords are the entities, but for the root.
        index: That of the tree's memories, where there is one already: it follows the log.

    An entity's name and description are the keyword's. The rest is in its metadata, one key for each thing, since
    a merge joins those; see `memory_fields`.

    Besides, the graph has the statements of memories: relations with their sentences, and types, tags and
    descriptions where the keyword has none of its own. Two memories that say the same make one relation, with the
    greater weight. An entry by hand has the last word: its weight counts, chosen tags count alone, and a relation that
    was removed by hand stays so, whichever memory says it.

    A relation leads to whatever its target was merged into. With a deleted target it is not seen, and is there again
    when the deletion is undone. Inside an open `Operation` what the block has written is checked against, but found
    only when it has ended. Undo is the tree's.

    Cost: a write is one of the tree's, one row as long as the keyword's relations are many; a reading some 0.4 ms for
    looking whether the log has grown, and a look at the index.
    """

    def __init__(self, tree: KeywordTree, index: Memories | None = None) -> None:
        self._tree = tree
        self._index = index or Memories(tree)

    # -- writing --

    @override
    def add_entity(self, entity: GraphEntity) -> None:
        check_entity(entity)
        own = {"entity_type": entity.entity_type, **_tag_keys(entity.tags)}
        if self._tree.GetKeyword(entity.id) is None:
            spec = {"id": entity.id, "name": entity.name, "description": entity.description, "metadata": own}
            with contextlib.suppress(DuplicateIdError):  # another thread or process has made it: it is there now
                self._tree.BatchCreateKeywords([{**spec, "parent_id": "root"}])
                return

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: value for key, value in node.metadata.items() if not key.startswith(TAG)}
            return {"name": entity.name, "description": entity.description, "metadata": {**kept, **own}}

        self._update(entity.id, patch)

    @override
    def get_entity(self, id: str) -> GraphEntity | None:
        node = _keyword(self._tree, id)
        if node is None:
            return None
        found = self._read(lambda index: graph_rows.read_entity(index.db, node.id))
        own = own_entity(node)  # in an operation that is still open
        return found or replace(own, entity_type=own.entity_type or "concept", tags=own.tags[: graph_rows.MAX_TAGS])

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
            except VersionConflictError:  # another process wrote a source in between
                continue
            return

    @override
    def add_relation(self, relation: GraphRelation) -> None:
        check_relation(relation)
        source, target = self._find(relation.source_id), self._find(relation.target_id)
        kind, weight = relation.relation_type, relation.weight

        def patch(node: KeywordNode) -> dict[str, Any]:
            # A relation under the name of a merged target keeps its key, so that there stays one.
            old = [key for key in node.metadata if self._leads_to(key, node.id) == (target.id, kind)]
            key = (*old, relation_key(kind, "" if target.id == node.id else target.id))[0]
            return {"metadata": {**node.metadata, key: {"weight": float(weight)}}}

        self._update(source.id, patch)

    @override
    def remove_relation(self, source_id: str, target_id: str, relation_type: str) -> None:
        source, target = self._find(source_id), self._find(target_id)
        gone = (target.id, relation_type)
        known = self.get_relations(source.id, RelationDirection.OUTGOING)
        is_said = any(each.said_by and (each.target_id, each.relation_type) == gone for each in known)

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: it for key, it in node.metadata.items() if self._leads_to(key, node.id) != gone}
            key = relation_key(relation_type, "" if target.id == node.id else target.id)
            return {"metadata": {**kept, key: REMOVED} if is_said else kept}

        self._update(source.id, patch)

    @override
    def set_entity_tags(self, entity_id: str, tags: Iterable[str]) -> int:
        node, keys = self._find(entity_id), _tag_keys(tags)

        def patch(node: KeywordNode) -> dict[str, Any]:
            kept = {key: value for key, value in node.metadata.items() if not key.startswith(TAG)}
            return {"metadata": {**kept, **keys, TAG: CHOSEN}}

        self._update(node.id, patch)
        return len(keys)

    def _update(self, id: str, patch: Callable[[KeywordNode], dict[str, Any]]) -> None:
        while True:
            node = self._find(id)
            try:
                self._tree.UpdateKeyword(node.id, patch(node), node.version)
            except VersionConflictError:  # another process has written: patch its result
                continue
            return

    def _find(self, id: str) -> KeywordNode:
        node = _keyword(self._tree, id)
        if node is None:
            raise NotFoundError("keyword", id)
        return node

    def _leads_to(self, key: str, source_id: str) -> tuple[str, str]:
        """Return where a key of a keyword's metadata leads, and the relation's type; two empty strings if nowhere.

        What leads from a keyword to itself without having been written so comes from a merge, and leads nowhere.
        """
        kind, written = split_relation_key(key)
        if not kind or not written:
            return (source_id, kind) if kind else ("", "")
        target = self._tree.GetKeyword(written)  # what it was merged into
        return ("", "") if target is None or target.id == source_id else (target.id, kind)

    # -- finding --

    def _read(self, read: Callable[[Index], _T]) -> _T:
        self._index.catch_up()
        return self._index.read(read)

    @override
    def get_relations(
        self, entity_id: str, direction: RelationDirection = RelationDirection.BOTH
    ) -> list[GraphRelation]:
        id, way = self._find(entity_id).id, check_direction(direction)
        return self._read(lambda index: graph_rows.read_relations(index.db, id, way))

    @override
    def find_by_keywords(self, keywords: Iterable[str], limit: int | None = None) -> list[GraphEntity]:
        return self.find_named(keywords, limit)[0]

    def find_named(self, keywords: Iterable[str], limit: int | None) -> tuple[list[GraphEntity], bool]:
        """Return what `find_by_keywords` does, and whether anything is related to anything."""
        wanted = check_keywords(keywords, limit)
        found, is_related = self._read(
            lambda index: (graph_rows.entities_with(index.db, wanted, limit), graph_rows.has_relations(index.db))
        )
        return rank_entities(wanted, limit, found), is_related

    @override
    def count_tags(self) -> Counter[str]:
        counted = "select tag, count(*) from tagged group by tag"
        return Counter(dict(self._read(lambda index: index.db.execute(counted).fetchall())))

    @override
    def tag_constraints(self) -> TagConstraints:
        return TagConstraints(graph_rows.MAX_TAGS)

def _keyword(tree: KeywordTree, id: str) -> KeywordNode | None:
    """Return a keyword other than the root; None where there is none."""
    node = tree.GetKeyword(id) if id else None
    return None if node is None or node.parent_id is None else node


def _tag_keys(tags: Iterable[str]) -> dict[str, int]:
    return {f"{TAG}{tag}": place for place, tag in enumerate(normalize_tags(tags, graph_rows.MAX_TAGS))}


# Pages


@dataclass
class KnowledgePage:
    """The page of one subject."""

    id: str
    """The keyword's."""
    title: str
    """Its name."""
    summary: str = ""
    """Its description."""
    infos: tuple[str, ...] = ()
    """Its infos, the first 50, such as memories that name it."""


class KnowledgeStore:
    """The keywords of a tree as pages.

    Args:
        tree: Its keywords are the pages, but for the root.
        graph: The same tree as a graph, where there is one already.
        index: A full-text index over its infos, likewise.

    Cost: a page is read with one look at the disk for each of its infos.
    """

    def __init__(self, tree: KeywordTree, graph: KnowledgeGraph | None = None, index: Memories | None = None) -> None:
        self.tree = tree
        self._graph = graph or TreeGraph(tree)
        self._index = index or Memories(tree)

    def what_is(self, name: str) -> KnowledgePage | None:
        """Return the page with this title or another name of it; of several the oldest, None where there is none."""
        found = (node for node in self.tree.FindByName(name, 0, 2) if node.parent_id is not None)
        return next(map(self._page, found), None)

    def find_by_keywords(self, keywords: Iterable[str], limit: int = 10) -> list[KnowledgePage]:
        """Return the pages with some of the keywords in title, summary or infos, the best fitting first."""
        wanted = check_strings("keywords", keywords)
        check_count("limit", limit)
        query = " ".join(wanted)
        found = dict.fromkeys(entity.id for entity in self._graph.find_by_keywords(wanted, limit))
        self._index.catch_up()
        self._index.ask(query)
        for one in self._index.search(query, limit):
            found |= dict.fromkeys(link.keyword_id for link in self.tree.GetLinks(one.id))
        nodes = (_keyword(self.tree, id) for id in found)
        return [self._page(node) for node in nodes if node is not None][:limit]

    def _page(self, node: KeywordNode) -> KnowledgePage:
        infos = self.tree.GetInfosOfKeyword(node.id, page=0, size=_INFOS)
        return KnowledgePage(node.id, node.name, node.description, tuple(info.content for info in infos))
