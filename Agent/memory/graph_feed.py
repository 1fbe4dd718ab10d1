"""Feed the graph from what is remembered: ask an extractor, find or make the keywords, note what the memory says.

    remember   the memory is written first, with a note that it waits. Then it is read, and a second operation makes the
               keywords of new entities under the top, links the memory to all that it names (RELATED), and notes what
               it says (`sayings`)
    correct    likewise for the new text; what only the old one named is deleted with it
    forget     what only the forgotten memories named is deleted with them
    undo       the tree's: all of it comes back; a keyword that later memories are linked to stays (`MemoryStore.undo`)

Without a model and without an extractor of the caller's nothing is read.

A keyword is deleted only if extraction made it, and nothing refers to it any more: no other info, no child, no alias,
description, relation or tag by hand.

Two processes that name the same new thing in the same moment make two keywords for a moment: the one that
commits second sees it, and merges them.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.checks import shorten
from ..keyword_tree import (
    ClosedError,
    ConflictError,
    HideKeys,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    LLMClient,
    NotFoundError,
    RelationType,
)
from .graph import ENTITY_TYPES, normalize_tag
from .memory_fields import memory_fields
from .tree_graph import TreeGraph

if TYPE_CHECKING:  # its patterns are compiled only where something reads
    from .extraction import Extraction, Extractor

__all__ = ["EXTRACTION", "TRIES", "Failure", "GraphFeed", "Placed", "Reading", "named_in"]

EXTRACTION = "extraction"
"""Who made the keywords and the links that come from reading a memory."""

TRIES = 3
"""So often a memory is read that a model answers nothing usable about."""

_log = logging.getLogger(__name__)


class Reading(NamedTuple):
    """What was read of a memory, before it is written."""

    means: str
    """Who has read it: "model" or "custom"."""
    extraction: "Extraction"


class Failure(NamedTuple):
    """Why a memory could not be read."""

    means: str
    """Who was to read it."""
    is_down: bool
    """Whether the model could not be reached: then it says nothing against the memory."""


class Placed(NamedTuple):
    """The keywords of what a memory names."""

    ids: dict[str, str]
    """Name → keyword id."""
    made: list[str]
    """Of these, the names that are new."""


class GraphFeed:
    """What reads memories for a graph.

    Args:
        tree: Where the keywords are.
        graph: The tree as a graph.
        extract: `"model"`; an `Extractor`; None reads nothing.
        client: The model.
        find_existing: What is known of the subjects of a text, for the model: name and text of each.

    Raises:
        InvalidInputError: `extract` is none of these, or `"model"` without a client that understands texts.

    Attributes:
        failure: Why the last reading failed; "" where it did not.
    """

    def __init__(
        self,
        tree: KeywordTree,
        graph: TreeGraph,
        extract: "str | Extractor | None",
        client: LLMClient | None,
        find_existing: Callable[[str], Iterable[tuple[str, str]]] = lambda _: (),
    ) -> None:
        self.failure = ""
        self._tree = tree
        self._graph = graph
        self._means = ""
        self._extractor: Extractor | None = None
        if extract is None:
            return
        from .extraction import Extractor as Port
        from .extraction import ModelExtractor

        if isinstance(extract, Port):
            self._means, self._extractor = "custom", extract
        elif extract != "model":
            raise InvalidInputError(f'extract must be "model", an Extractor or None, not {shorten(extract)}')
        elif client is None or not client.judges:
            raise InvalidInputError('extract="model" needs an llm_client that understands texts')
        else:
            self._means, self._extractor = "model", ModelExtractor(client, graph.find_tags, find_existing)

    # -- reading --

    def means(self) -> str:
        """Return what reads a memory: "model", "custom", or "" where nothing does."""
        return self._means

    def read(self, text: str) -> Reading | Failure | None:
        """Return what was found in a text; where that failed, `failure` says why; None where nothing reads.

        Nothing is written, and no lock is held.
        """
        if self._extractor is None:
            return None
        from .extraction import check_extraction

        try:
            found = self._extractor.extract(text, self.find_known)
            read = Reading(self._means, check_extraction(found, text))
        except ClosedError:
            raise
        except Exception as error:  # whatever an extractor or a model's client raises: the memory is kept all the same
            self.failure = HideKeys(f"{type(error).__name__}: {error}")
            _log.warning("a memory was kept without its entities: %s", self.failure)
            return Failure(self._means, _is_down(error))
        self.failure = ""
        return read

    def find_known(self, name: str) -> str | None:
        """Return the name of the keyword that has this name or alias."""
        found = self._find(name)
        return None if found is None else found.name

    def _find(self, name: str) -> KeywordNode | None:
        with contextlib.suppress(InvalidInputError):  # no keyword can have such a name
            found = self._tree.FindByName(name, 0, 2)
            return next((node for node in found if node.parent_id is not None), None)
        return None

    # -- writing: within an operation --

    def place(self, extraction: "Extraction", named: Mapping[str, str]) -> Placed:
        """Return the keyword of each entity, made under the top where there is none.

        Args:
            extraction: What a memory says.
            named: Keywords that the caller has named: name → id.
        """
        by_fold = {name.casefold(): id for name, id in named.items()}
        placed = Placed({}, [])
        for name in (entity.name for entity in extraction.entities):
            id = by_fold.get(name.casefold())
            if id is None:
                node = self._find(name)
                id = node.id if node is not None else self._make(name, placed.made)
            if id is not None:
                placed.ids[name] = by_fold[name.casefold()] = id
        return placed

    def _make(self, name: str, made: list[str]) -> str | None:
        with contextlib.suppress(InvalidInputError):  # no keyword can have such a name
            id = self._tree.BatchCreateKeywords([{"name": name, "parent_id": "root", "created_by": EXTRACTION}])[0].id
            made.append(name)
            return id
        return None

    def describe(
        self, means: str, extraction: "Extraction", placed: Placed, keyword_ids: Iterable[str]
    ) -> dict[str, Any]:
        """Return what an info keeps of it; see `sayings`. Tags go through those that are there already."""
        entities: dict[str, dict[str, Any]] = {id: {} for id in keyword_ids}
        for entity in extraction.entities:
            if entity.name in placed.ids:
                about: dict[str, Any] = {"type": entity.entity_type, "tags": self._reuse(entity.tags)}
                about["description"] = entity.description
                # A concept is what nothing is known of.
                known = {key: value for key, value in about.items() if value and value != "concept"}
                entities[placed.ids[entity.name]] = known
        relations = [
            [source, each.relation_type, target, each.weight, each.start, each.end]
            for each in extraction.relations
            if (source := placed.ids.get(each.source)) != (target := placed.ids.get(each.target)) and source and target
        ]
        return {"by": means, "entities": entities, "relations": relations}

    def _reuse(self, tags: Iterable[str]) -> list[str]:
        reported = list(filter(None, map(normalize_tag, tags)))
        if all(tag in ENTITY_TYPES for tag in reported):
            return reported
        return self._graph.reuse_tags(reported)[: self._graph.tag_constraints().max_tags_per_entity]

    def link(self, info_id: str, placed: Placed, linked: Iterable[str]) -> None:
        """Link an info to all that it names."""
        held = set(linked)
        for keyword_id in dict.fromkeys(placed.ids.values()):
            if keyword_id not in held:
                self._tree.LinkInfo(info_id, keyword_id, RelationType.RELATED, EXTRACTION)

    def unlink(self, info_id: str, but_for: str = "") -> list[str]:
        """Take an info off what reading had linked it to, but for keywords that a text names; return the others."""
        gone = []
        for link in self._tree.GetLinks(info_id):
            if link.created_by == EXTRACTION and not self.is_named(link.keyword_id, but_for):
                self._tree.UnlinkInfo(info_id, link.keyword_id)
                gone.append(link.keyword_id)
        return gone

    def is_named(self, keyword_id: str, text: str) -> bool:
        """Whether a text has the name of a keyword."""
        node = self._tree.GetKeyword(keyword_id) if text else None
        return node is not None and node.name.casefold() in text.casefold()

    def clear(self, keyword_ids: Iterable[str], memory_ids: Collection[str]) -> list[str]:
        """Delete those of some keywords that extraction made and that nothing refers to any more; return them.

        Args:
            keyword_ids: The keywords.
            memory_ids: The memories that name them no longer, if only in the operation that is open.
        """
        gone: list[str] = []
        for id in dict.fromkeys(keyword_ids):
            node = self._tree.GetKeyword(id)
            if node is not None and node.id not in gone and self._is_left_over(node, memory_ids):
                self._tree.DeleteKeyword(node.id, info_policy="detach")
                gone.append(node.id)
        return gone

    def _is_left_over(self, node: KeywordNode, memory_ids: Collection[str]) -> bool:
        if node.created_by != EXTRACTION or node.parent_id != "root":
            return False
        if node.aliases or node.description or node.metadata or node.confirmed or node.children:
            return False
        if self._tree.GetChildren(node.id, 0, 1) or self._tree.GetInfosOfKeyword(node.id, page=0):
            return False
        # A memory that names it may have been unlinked by hand.
        if not set(self._graph.memories_of(node.id)) <= set(memory_ids):
            return False
        try:
            relations = self._graph.get_relations(node.id)
        except NotFoundError:
            return True
        return all(relation.said_by for relation in relations)

    # -- afterwards --

    def merge_duplicates(self, names: Iterable[str]) -> None:
        """Merge what two processes made of one name in the same moment into the older one."""
        for name in names:
            made = [node for node in self._tree.FindByName(name, 0, 9) if node.created_by == EXTRACTION]
            for double in made[1:]:
                if double.name.casefold() == made[0].name.casefold():
                    with contextlib.suppress(NotFoundError, ConflictError):  # the other one has done it
                        self._tree.MergeKeywords(double.id, made[0].id)

    def taken_from_others(self, operation_id: str, keyword_ids: Iterable[str], own_ids: Iterable[str]) -> list[str]:
        """Return memories of others on keywords that an operation deleted: they were written in that moment."""
        change, gone, own = self._change(operation_id), set(keyword_ids), set(own_ids)
        links = [each for each in (change.before if change else ()) if isinstance(each, InfoKeywordLink)]
        return [link.info_id for link in links if link.keyword_id in gone and link.info_id not in own]

    def _change(self, operation_id: str) -> Any:
        newest = self._tree.History(limit=20)
        return next((change for change in newest if change.operation_id == operation_id), None)


def named_in(info: Info) -> list[str]:
    """Return the keywords that a memory keeps as what it names."""
    graph = memory_fields(info).get("graph")
    entities = graph.get("entities") if isinstance(graph, Mapping) else None
    return [str(id) for id in entities] if isinstance(entities, Mapping) else []


# Packages of model services have bases of their own for what Python calls `ConnectionError`.
_DOWN = frozenset({"APIConnectionError", "BudgetError", "InternalServerError", "RateLimitError", "TransportError"})
_REFUSED = (400, 413, 422)
"""HTTP's words for a question that will be refused again."""


def _is_down(error: Exception) -> bool:
    """Return whether an error says that the model could not be reached, and nothing of the question."""
    if getattr(error, "status", None) in _REFUSED or getattr(error, "status_code", None) in _REFUSED:
        return False
    return isinstance(error, OSError) or any(kind.__name__ in _DOWN for kind in type(error).__mro__)
