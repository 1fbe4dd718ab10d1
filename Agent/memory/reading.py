"""Read memories for the graph: ask a model, find or make the keywords, note each memory's statements.

    remember   the memory is written first, with a note that it waits. Then it is read, and a second operation makes the
               keywords of new entities under the top, links the memory to all that it names (RELATED), and notes what
               it says (`read_sayings`)
    correct    likewise for the new text; keywords of the old one alone are deleted with it
    forget     keywords of the forgotten memories alone are deleted with them
    undo       the tree's: all of it comes back; a keyword that later memories are linked to stays (`MemoryStore.undo`)

Without a model nothing is read. What waits is in the log, not here: what a
process leaves that dies, or whose model cannot be reached, another one reads (`read_pending`).

A keyword is deleted only if extraction made it, and nothing refers to it any more: no other info, no child, no alias,
description, relation or tag by hand. Two processes that name the same new thing in the same moment make two keywords
for a moment: the one that commits second sees it, and merges them.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..base.checks import check_count, shorten
from ..base.keys import hide_keys
from ..base.text import mapping_of
from ..keyword_tree import (
    ClosedError,
    ConflictError,
    Info,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    LLMClient,
    NotFoundError,
    RelationType,
    VersionConflictError,
)
from ..store.log_follower import all_infos
from .graph import normalize_tag
from .memory_fields import MEMORY_KEY, is_waiting, memory_fields
from .tree_graph import TreeGraph

if TYPE_CHECKING:  # its patterns are compiled only where something reads
    from .extraction import Extraction

EXTRACTION = "extraction"
"""Who made the keywords and the links that come from reading a memory."""

DOWNS = 3  # in a row, after which the model counts as out of reach

_log = logging.getLogger(__name__)


def check_reader(extract: str | None, client: LLMClient | None) -> LLMClient | None:
    """Return the model that reads memories, None where none does.

    Raises:
        InvalidInputError: There is no such reader, or the client decides by words alone.
    """
    if extract is None:
        return None
    if extract != "model":
        raise InvalidInputError(f'extract must be "model" or None, not {shorten(extract)}')
    if client is None or not getattr(client, "judges", True):
        raise InvalidInputError('extract="model" needs an llm_client that understands texts')
    return client


class MemoryReader:
    """The reader of a tree's memories, for its graph.

    Args:
        tree: Where the memories are.
        graph: The tree as a graph.
        lock: Held while a reading is written, never while a model thinks.
        client: The model, see `check_reader`; None reads nothing.
        find_existing: Returns known texts on the subjects of a text, for the model: name and text of each.

    Attributes:
        client: The model.
        failure: Why the last reading failed; "" where it did not.
    """

    def __init__(
        self,
        tree: KeywordTree,
        graph: TreeGraph,
        lock: threading.RLock,
        client: LLMClient | None,
        find_existing: Callable[[str], Iterable[tuple[str, str]]],
    ) -> None:
        self._tree, self._graph, self._lock, self._find_existing = tree, graph, lock, find_existing
        self.client, self.failure, self._is_down = client, "", False

    # -- when --

    def note(self) -> dict[str, Any]:
        """Return the note of a memory that waits to be read; nothing where nothing reads."""
        return {"graph": {"waits": "model"}} if self.client else {}

    def read(self, id: str) -> bool:
        """Read a memory, whatever was read of it before; says whether that could be done.

        Raises:
            NotFoundError: There is no such memory.
        """
        info = self._tree.GetInfo(id)
        if info is None:
            raise NotFoundError("info", id)
        return self.client is not None and self._read_into(info)

    def read_pending(self, limit: int | None = None) -> int:
        """Read memories that wait, the oldest first, and return how many could be read.

        Those wait that could not be read, and what a process had still to read when it died. Ends early where the model
        cannot be reached for three in a row.

        Args:
            limit: Read at most this many; None reads all.

        Raises:
            InvalidInputError: `limit` is no number.

        Cost: a look at each info, and a call of the model for each that waits.
        """
        if limit is not None:
            check_count("limit", limit, 0)
        count = downs = 0
        for info in filter(is_waiting, all_infos(self._tree)) if self.client else ():
            if count == limit or downs == DOWNS:
                break
            count += self._read_into(info)
            downs = downs + 1 if self._is_down else 0
        return count

    # -- reading --

    def _read_into(self, info: Info) -> bool:
        """Read a stored memory; a change in between has the last word."""
        from .extraction import TEXT_LIMIT, read_graph

        assert self.client is not None  # else nothing is read
        try:
            existing = self._find_existing(info.content[:TEXT_LIMIT])
            found = read_graph(self.client, info.content, self._known_name, self._graph.find_tags, existing)
        except ClosedError:
            raise
        except Exception as error:  # whatever a model's client raises: the memory is kept all the same
            self.failure, self._is_down = hide_keys(error, self.client), _is_down(error)
            _log.warning("a memory was kept without its entities: %s", self.failure)
            return False
        self.failure, self._is_down = "", False
        with contextlib.suppress(VersionConflictError, NotFoundError, ConflictError):
            self._write(info, found)
            return True
        return False

    def _known_name(self, name: str) -> str | None:
        """Return the name of the keyword that has this name or alias."""
        found = self._find(name)
        return None if found is None else found.name

    def _find(self, name: str) -> KeywordNode | None:
        with contextlib.suppress(InvalidInputError):  # no keyword can have such a name
            return next((node for node in self._tree.FindByName(name, 0, 2) if node.parent_id is not None), None)
        return None

    def _write(self, info: Info, found: "Extraction") -> None:
        """Write the results of reading a memory."""
        own = {"kind": "fact", **memory_fields(info)}
        own.pop("graph", None)
        with self._lock, self._tree.Operation("extract"):
            named = [*named_in(info), *self.unlink(info.id)]
            linked = [link.keyword_id for link in self._tree.GetLinks(info.id)]
            ids, made = self._place(found)
            if found.entities:
                own["graph"] = self._describe(found, ids, linked)
            self._tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}}, info.version)
            for keyword_id in dict.fromkeys(ids.values()):
                if keyword_id not in linked:
                    self._tree.LinkInfo(info.id, keyword_id, RelationType.RELATED, EXTRACTION)
            self.clear(id for id in named if id not in ids.values())
        self._merge_doubles(made)

    def _place(self, found: "Extraction") -> tuple[dict[str, str], list[str]]:
        """Return the keyword of each entity, made under the top where there is none, and the names that are new."""
        ids, made = dict[str, str](), list[str]()
        for name in found.entities:
            node = self._find(name)
            if node is None:
                with contextlib.suppress(InvalidInputError):  # no keyword can have such a name
                    spec = {"name": name, "parent_id": "root", "created_by": EXTRACTION}
                    node = self._tree.BatchCreateKeywords([spec])[0]
                    made.append(name)
            if node is not None:
                ids[name] = node.id
        return ids, made

    def _describe(self, found: "Extraction", ids: Mapping[str, str], linked: Iterable[str]) -> dict[str, Any]:
        """Return its form in an info's metadata; see `memory_fields`. Tags go through those that are there already."""
        entities: dict[str, dict[str, Any]] = {id: {} for id in linked}
        for name, about in found.entities.items():
            if name in ids:
                entities[ids[name]] = {**about, **({"tags": self._reuse(about["tags"])} if "tags" in about else {})}
        relations = [
            [source, kind, target, *said]
            for one, kind, other, *said in found.relations
            if (source := ids.get(one)) != (target := ids.get(other)) and source and target
        ]
        return {"by": "model", "entities": entities, "relations": relations}

    def _reuse(self, tags: Iterable[str]) -> list[str]:
        reported = filter(None, map(normalize_tag, tags))
        return self._graph.reuse_tags(reported)[: self._graph.tag_constraints().max_tags_per_entity]

    def _merge_doubles(self, names: Iterable[str]) -> None:
        """Merge two keywords that two processes made of one name in the same moment into the older one."""
        for name in names:
            made = [node for node in self._tree.FindByName(name, 0, 9) if node.created_by == EXTRACTION]
            for double in made[1:]:
                if double.name.casefold() == made[0].name.casefold():
                    with contextlib.suppress(NotFoundError, ConflictError):  # the other one has done it
                        self._tree.MergeKeywords(double.id, made[0].id)

    # -- taking back: within an operation --

    def unlink(self, info_id: str) -> list[str]:
        """Unlink an info from the keywords of its reading, and return them."""
        gone = [link.keyword_id for link in self._tree.GetLinks(info_id) if link.created_by == EXTRACTION]
        for keyword_id in gone:
            self._tree.UnlinkInfo(info_id, keyword_id)
        return gone

    def clear(self, keyword_ids: Iterable[str]) -> None:
        """Delete those of some keywords that extraction made and that nothing refers to any more."""
        for id in dict.fromkeys(keyword_ids):
            node = self._tree.GetKeyword(id)
            if node is not None and self._is_left_over(node):
                self._tree.DeleteKeyword(node.id, info_policy="detach")

    def _is_left_over(self, node: KeywordNode) -> bool:
        if node.created_by != EXTRACTION or node.parent_id != "root":
            return False
        if node.aliases or node.description or node.metadata or node.confirmed:
            return False
        if self._tree.GetChildren(node.id, 0, 1) or self._tree.GetInfosOfKeyword(node.id, page=0):
            return False
        return all(relation.said_by for relation in self._graph.get_relations(node.id))


def named_in(info: Info) -> list[str]:
    """Return the keywords that a memory keeps as named in it."""
    return [str(id) for id in mapping_of(mapping_of(memory_fields(info).get("graph")).get("entities"))]


def _is_down(error: Exception) -> bool:
    """Return whether an error says that the model could not be reached, and nothing of the question."""
    return isinstance(error, OSError) and getattr(error, "status", None) not in (400, 413, 422)
