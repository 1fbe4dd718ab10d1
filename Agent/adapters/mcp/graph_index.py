"""The entities of a tree, their names, texts and relations, in memory, kept in step with the tree's log.

Every keyword but the root and those that are types is an entity. Of several that have a name, the oldest goes by
it and the others by their paths, so a name leads to one entity. What this file holds is derived from the tree and
follows its log, and of many it is kept on disk; the observations themselves are read from the tree.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...base.text import fold_case
from ...formats.mcp_memory import free_name, is_type, kept_names, kind_of, said_of
from ...formats.records import ROOT_ID
from ...keyword_tree import Info, KeywordNode, KeywordTree
from ...store.log_follower import LogChanges, all_infos
from ..items import KeptView

__all__ = ["Entity", "GraphIndex", "Relation"]

_LONG = 4096  # characters of an observation that is not kept in memory, as the tree does not either


class Entity(NamedTuple):
    """A keyword, without its infos."""

    name: str
    """As the graph said it, else the keyword's own."""
    kind: str
    """Its type; "keyword" where no graph said another one."""
    parent_id: str
    """Of the keyword above it."""
    ordinal: int
    """Its place in the order of creation."""
    is_type: bool
    """Whether it is a type, and no entity."""
    said: str
    """Its name and type, folded."""


class Relation(NamedTuple):
    """A relation of two entities, as an info states it."""

    kind: str
    """The name of the relation."""
    start: str
    """The keyword it comes from, as it was when the relation was made; may be gone."""
    end: str
    """The keyword it leads to; may be gone, or never have been there."""
    names: tuple[str | None, str | None]
    """The names of both at that time."""


class GraphIndex(KeptView):
    """Follows a tree; `catch_up` comes before anything else is asked. Not to be used within an `Operation`.

    The caller holds the `lock`.

    Args:
        tree: Whose keywords.

    Attributes:
        lock: Of the whole object.
        entities: The keywords by id, types among them.
        names: The name that each entity goes by, in the order of creation.
        ids: The same the other way round.
        relations: By the info that states it.

    Cost: some 20 µs for each keyword and info when it is first asked, 3 where it was kept; then for each that changes.
    """

    def __init__(self, tree: KeywordTree) -> None:
        super().__init__(tree, "mcp")
        self.lock = threading.RLock()

    def clear(self) -> None:
        """Forget all."""
        self.entities: dict[str, Entity] = {}
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.relations: dict[str, Relation] = {}
        self._relations_of: dict[str, dict[str, None]] = defaultdict(dict)  # keyword -> infos
        self._infos_of: dict[str, dict[str, None]] = defaultdict(dict)  # keyword -> infos that are linked to it
        self._texts: dict[str, str | None] = {}  # observation -> its text, folded; None where it is long
        self._must_rename = False  # a keyword was renamed, moved, merged or deleted

    # -- following --

    def is_disturbed(self, changes: LogChanges) -> bool:
        """Tell whether a keyword went meanwhile: what was on it may be on one that had been read by then."""
        return any(node.deleted for node in changes.nodes)

    def count(self) -> int:
        """Return how many keywords and infos there are."""
        return len(self.entities) + len(self._texts) + len(self.relations)

    def to_json(self) -> list[Any]:
        """Return all but what follows from it."""
        return [self.entities, self.relations, {id: [*infos] for id, infos in self._infos_of.items()}, self._texts]

    def from_json(self, kept: Any) -> None:
        """Take in what was kept."""
        entities, relations, infos_of, self._texts = kept
        self.entities = {id: Entity(*row) for id, row in entities.items()}
        self.relations = {id: Relation(*row)._replace(names=tuple(row[-1])) for id, row in relations.items()}
        self._infos_of |= {id: dict.fromkeys(infos) for id, infos in infos_of.items()}
        self._must_rename = True

    def read_tree(self) -> None:
        """Take in all keywords and infos."""
        for node in self._tree.Walk():
            if node.id != ROOT_ID:
                self.entities[node.id] = _entity_of(node)
        self._must_rename = True
        for id in self.entities:
            for info in self._infos(id):
                self._infos_of[id][info.id] = None
                self._take_info(info)
        for info in all_infos(self._tree, unlinked=True):
            self._take_info(info)

    def take(self, changes: LogChanges) -> None:
        """Take in what changed."""
        for node in changes.nodes:
            self._take_node(node)
        for info in changes.infos:
            self._take_info(info)
        for link in changes.links:
            if link.deleted:
                self._infos_of[link.keyword_id].pop(link.info_id, None)
            else:
                self._infos_of[link.keyword_id][link.info_id] = None
        self._tidy()

    def _take_node(self, node: KeywordNode) -> None:
        if node.id == ROOT_ID:
            return
        old, new = self.entities.get(node.id), None if node.deleted else _entity_of(node)
        if old == new:
            return
        if new is None:
            self.entities.pop(node.id, None)
        else:
            self.entities[node.id] = new
        if old is not None or new is None or node.version > 1:
            self._must_rename = True  # an entity that comes back is not the newest, either
        elif not self._must_rename:
            self._give_name(node.id)

    def _take_info(self, info: Info) -> None:
        self._forget_relation(info.id)
        self._texts.pop(info.id, None)
        if not info.deleted and not self._note_relation(info):
            self._texts[info.id] = None if len(info.content) > _LONG else fold_case(info.content)

    def _note_relation(self, info: Info) -> bool:
        said = said_of(info)
        if "relation" not in said:
            return False
        relation = Relation(str(said["relation"]), str(said.get("from")), str(said.get("to")), kept_names(said))
        self.relations[info.id] = relation
        if not self._must_rename:
            self._list_relation(info.id, relation)
        return True

    def _list_relation(self, info_id: str, relation: Relation) -> None:
        for end in (relation.start, relation.end):
            self._relations_of[self._lead(end)][info_id] = None

    def _forget_relation(self, info_id: str) -> None:
        relation = self.relations.pop(info_id, None)
        if relation is not None and not self._must_rename:
            for end in (relation.start, relation.end):
                self._relations_of[self._lead(end)].pop(info_id, None)

    def _lead(self, id: str) -> str:
        """Return the target of a merged keyword, or itself."""
        if id in self.entities:
            return id
        node = self._tree.GetKeyword(id)
        return id if node is None else node.id

    def _tidy(self) -> None:
        """Give everybody a name, and each relation its ends, where that is due."""
        if not self._must_rename:
            return
        self.names, self.ids, self._relations_of = {}, {}, defaultdict(dict)
        for id in sorted(self.entities, key=lambda id: self.entities[id].ordinal):
            self._give_name(id)
        self._must_rename = False
        for info_id, relation in self.relations.items():
            self._list_relation(info_id, relation)

    def _give_name(self, id: str) -> None:
        entity = self.entities[id]
        if entity.is_type:
            return
        path = self._path(id) if entity.name in self.ids else []
        self.names[id] = name = free_name(entity.name, path, self.ids)
        self.ids[name] = id

    def _path(self, id: str) -> list[str]:
        names: list[str] = []
        while id in self.entities:
            names.append(self.entities[id].name)
            id = self.entities[id].parent_id
        return names[::-1]

    # -- asking --

    def touching(self, ids: Iterable[str]) -> list[str]:
        """Return the infos of the relations that begin or end at one of some entities."""
        return list(dict.fromkeys(info_id for id in ids for info_id in self._relations_of.get(id, ())))

    def ends(self, info_id: str) -> tuple[str, str]:
        """Return the names of a relation's two ends, as they are now; of one that is gone, as it was then."""
        ends = zip(self.end_ids(info_id), self.relations[info_id].names, strict=True)
        start, end = (self.names.get(id) or kept or id for id, kept in ends)
        return start, end

    def end_ids(self, info_id: str) -> tuple[str, str]:
        """Return the entities at a relation's two ends; of one that is gone, its id."""
        relation = self.relations[info_id]
        return self._lead(relation.start), self._lead(relation.end)

    def saying(self, id: str, text: str) -> list[str]:
        """Return the observations of an entity that are this text."""
        wanted = fold_case(text)
        alike = [info_id for info_id in self._infos_of.get(id, ()) if self._text_of(info_id) == wanted]
        return [info.id for info in map(self._tree.GetInfo, alike) if info is not None and info.content == text]

    def find(self, text: str) -> list[str]:
        """Return the entities whose name, type or observations contain a text, in the order of creation."""
        wanted = fold_case(text)
        return [id for id in self.names if wanted in self.entities[id].said or self._contains(id, wanted)]

    def _contains(self, id: str, wanted: str) -> bool:
        return any(wanted in self._text_of(info_id) for info_id in self._infos_of.get(id, ()))

    def _text_of(self, info_id: str) -> str:
        """Return an observation's text, folded; a long one is read from the tree."""
        text = self._texts.get(info_id, "")  # a relation says nothing of its own
        info = self._tree.GetInfo(info_id) if text is None else None
        return text or ("" if info is None else fold_case(info.content))

    def observations(self, id: str) -> Iterator[Info]:
        """Yield an entity's observations, in the order of linking.  Cost: a decoded row for each."""
        return (info for info in self._infos(id) if "relation" not in said_of(info))

    def _infos(self, id: str) -> list[Info]:
        return self._tree.GetInfosOfKeyword(id, size=sys.maxsize)


def _entity_of(node: KeywordNode) -> Entity:
    said = said_of(node)
    name = said["name"] if isinstance(said.get("name"), str) else node.name
    kind, parent_id = kind_of(said), node.parent_id or ROOT_ID
    return Entity(name, kind, parent_id, node.ordinal, is_type(said), fold_case(f"{name}\n{kind}"))
