"""Read memories for the graph: ask an extractor, find or make the keywords, note what each memory says.

    remember   the memory is written first, with a note that it waits. Then it is read, and a second operation makes the
               keywords of new entities under the top, links the memory to all that it names (RELATED), and notes what
               it says (`Sayings`)
    correct    likewise for the new text; what only the old one named is deleted with it
    forget     what only the forgotten memories named is deleted with them
    undo       the tree's: all of it comes back; a keyword that later memories are linked to stays (`MemoryStore.undo`)

Without a model and without an extractor of the caller's nothing is read. What waits is in the log, not here: a process
that dies leaves it there, and the next one goes on with it.

A keyword is deleted only if extraction made it, and nothing refers to it any more: no other info, no child, no alias,
description, relation or tag by hand. Two processes that name the same new thing in the same moment make two keywords
for a moment: the one that commits second sees it, and merges them.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from ..base.checks import check_count, shorten
from ..keyword_tree import (
    ClosedError,
    ConflictError,
    HideKeys,
    Info,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    LLMClient,
    NotFoundError,
    RelationType,
    VersionConflictError,
)
from .graph import ENTITY_TYPES, normalize_tag
from .memory_fields import MEMORY_KEY, memory_fields, waits_for
from .tree_graph import TreeGraph

if TYPE_CHECKING:  # its patterns are compiled only where something reads
    from .extraction import Extraction, Extractor

__all__ = ["EXTRACTION", "TRIES", "MemoryReader", "named_in"]

EXTRACTION = "extraction"
"""Who made the keywords and the links that come from reading a memory."""

TRIES = 3
"""So often a memory is read that a model answers nothing usable about."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How long the thread pauses before it reads again what could not be read; each time twice as long."""

DOWNS = 3  # in a row, after which the model counts as out of reach

_log = logging.getLogger(__name__)


class _Outcome(Enum):
    """What came of reading a memory."""

    READ = auto()
    UNUSABLE = auto()
    """What was answered cannot be used."""
    DOWN = auto()
    """The model could not be reached: that says nothing against the memory."""
    OVERTAKEN = auto()
    """The memory was changed meanwhile."""


class MemoryReader:
    """What reads the memories of a tree for its graph.

    Args:
        tree: Where the memories are.
        graph: The tree as a graph, which knows what waits.
        lock: Held while a reading is written, never while a model thinks.
        extract: `"model"`; an `Extractor`; None reads nothing.
        client: The model.
        find_existing: What is known of the subjects of a text, for the model: name and text of each.
        in_background: Whether a thread reads what waits.

    Raises:
        InvalidInputError: `extract` is none of these, or `"model"` without a client that understands texts.

    Attributes:
        means: What reads a memory: "model", "custom", or "" where nothing does.
        failure: Why the last reading failed; "" where it did not.
    """

    def __init__(
        self,
        tree: KeywordTree,
        graph: TreeGraph,
        lock: threading.RLock,
        extract: "str | Extractor | None",
        client: LLMClient | None,
        find_existing: Callable[[str], Iterable[tuple[str, str]]],
        in_background: bool,
    ) -> None:
        self._tree, self._graph, self._lock = tree, graph, lock
        self.means, self.failure = "", ""
        self._extractor: Extractor | None = None
        if extract is not None:
            from .extraction import Extractor as Port
            from .extraction import ModelExtractor

            if isinstance(extract, Port):
                self.means, self._extractor = "custom", extract
            elif extract != "model":
                raise InvalidInputError(f'extract must be "model", an Extractor or None, not {shorten(extract)}')
            elif client is None or not client.judges:
                raise InvalidInputError('extract="model" needs an llm_client that understands texts')
            else:
                self.means, self._extractor = "model", ModelExtractor(client, graph.find_tags, find_existing)
        self._wake, self._idle, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._changing = threading.Lock()  # `_wake` and `_idle` change together
        self._thread: threading.Thread | None = None
        if in_background and self.means:
            self._wake.set()  # what an earlier process has left
            self._thread = threading.Thread(target=self._run, name="KeywordTree memory reader", daemon=True)

    # -- when --

    def start(self) -> None:
        """Let the thread begin, where there is one."""
        if self._thread is not None:
            self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop the thread after the memory that is being read; one that takes longer is left to the next process."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def note(self) -> dict[str, Any]:
        """Return the note of a memory that waits to be read; nothing where nothing reads."""
        return {"graph": {"waits": self.means, "tries": 0}} if self.means else {}

    def read_later(self, id: str, own: Mapping[str, Any]) -> None:
        """Have a memory read that is on disk, by the thread or now; no lock is held, since a model may think."""
        if "graph" not in own:
            return
        if self._thread is not None:
            with self._changing:
                self._idle.clear()
                self._wake.set()
        elif (info := self._tree.GetInfo(id)) is not None:
            self._read_into(info)

    def read(self, id: str) -> bool:
        """Read a memory, whatever was read of it before; says whether that could be done.

        Raises:
            NotFoundError: There is no such memory.
        """
        info = self._tree.GetInfo(id)
        if info is None:
            raise NotFoundError("info", id)
        return bool(self.means) and self._read_into(info) is _Outcome.READ

    def read_pending(self, limit: int | None = None, *, again: bool = False) -> int:
        """Read memories that wait, the oldest first, and return how many could be read.

        Memories wait that were remembered with `extract_in_background`, until a thread or this method reads them, and
        those that could not be read: where the model could not be reached, for as long as that takes; where its answer
        could not be used, up to three times. Ends early where the model cannot be reached for three in a row.

        Args:
            limit: Read at most this many; None reads all.
            again: Whether to read those, too, that were given up after three times.

        Raises:
            InvalidInputError: `limit` is no number.
        """
        if limit is not None:
            check_count("limit", limit, 0)
        count = downs = 0
        for info in self._waiting(again):
            if (limit is not None and count >= limit) or downs == DOWNS:
                break
            outcome = self._read_into(info)
            count += outcome is _Outcome.READ
            downs = downs + 1 if outcome is _Outcome.DOWN else 0
        return count

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has nothing more to read, or after `timeout_s`; says whether no memory waits.

        While the model cannot be reached the thread goes on trying, so give a timeout. Without `extract_in_background`
        nothing is waited for. A memory that was given up after three times waits still: see `read_pending`.
        """
        is_idle = self._thread is None or self._idle.wait(timeout_s)
        return is_idle and not self._graph.waiting()

    def _waiting(self, again: bool = False) -> Iterator[Info]:
        """Yield the memories that wait and have a try left, the oldest first."""
        for id, (_, tries) in self._graph.waiting().items() if self.means else ():
            info = self._tree.GetInfo(id) if again or tries < TRIES else None
            if info is not None and waits_for(info) is not None:  # it may have been read meanwhile
                yield info

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                self._read_all()
            except ClosedError:
                _log.debug("the tree was closed: what waits goes on waiting")
                return
            with self._changing:
                if not self._wake.is_set():
                    self._idle.set()

    def _read_all(self) -> None:
        """Go through all that waits, and again through what waits then: what cannot be read stops no other."""
        pause_s, is_left = FIRST_PAUSE_S, True
        while is_left and not self._closed.is_set():
            is_left = False
            for info in self._waiting():
                is_left = True
                try:
                    is_down = self._read_into(info) is _Outcome.DOWN
                except ClosedError:
                    raise
                except Exception:  # a full disk, say: nothing else would try again
                    _log.warning("a memory could not be read in the background; it goes on waiting", exc_info=True)
                    is_down = True
                if is_down and self._closed.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S) if is_down else FIRST_PAUSE_S

    # -- reading --

    def _read_into(self, info: Info) -> _Outcome:
        """Read a memory that is there already; a change meanwhile has the last word."""
        from .extraction import check_extraction

        assert self._extractor is not None  # else `means` is ""
        try:
            found = check_extraction(self._extractor.extract(info.content, self._known_name), info.content)
        except ClosedError:
            raise
        except Exception as error:  # whatever an extractor or a model's client raises: the memory is kept all the same
            self.failure = HideKeys(f"{type(error).__name__}: {error}")
            _log.warning("a memory was kept without its entities: %s", self.failure)
            with contextlib.suppress(VersionConflictError, NotFoundError, ConflictError):
                self._note_failure(info, _is_down(error))
                return _Outcome.DOWN if _is_down(error) else _Outcome.UNUSABLE
            return _Outcome.OVERTAKEN
        self.failure = ""
        with contextlib.suppress(VersionConflictError, NotFoundError, ConflictError):
            self._write(info, found)
            return _Outcome.READ
        return _Outcome.OVERTAKEN

    def _known_name(self, name: str) -> str | None:
        """Return the name of the keyword that has this name or alias."""
        found = self._find(name)
        return None if found is None else found.name

    def _find(self, name: str) -> KeywordNode | None:
        with contextlib.suppress(InvalidInputError):  # no keyword can have such a name
            found = self._tree.FindByName(name, 0, 2)
            return next((node for node in found if node.parent_id is not None), None)
        return None

    def _note_failure(self, info: Info, is_down: bool) -> None:
        """Let a memory wait that could not be read; what was read of it before stays, and is read no more."""
        own, waits = memory_fields(info), waits_for(info)
        if "graph" in own and (waits is None or is_down):
            return
        tries = (0 if waits is None else waits[1]) + (not is_down)
        own = {**own, "graph": {"waits": self.means, "tries": tries}}
        self._tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}}, info.version)

    def _write(self, info: Info, found: "Extraction") -> None:
        """Write what was read of a memory."""
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
            self.clear((id for id in named if id not in ids.values()), [info.id])
        self._merge_doubles(made)

    def _place(self, found: "Extraction") -> tuple[dict[str, str], list[str]]:
        """Return the keyword of each entity, made under the top where there is none, and the names that are new."""
        ids, made = dict[str, str](), list[str]()
        for name in (entity.name for entity in found.entities):
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
        """Return what an info keeps of it; see `memory_fields`. Tags go through those that are there already."""
        entities: dict[str, dict[str, Any]] = {id: {} for id in linked}
        for entity in found.entities:
            if entity.name in ids:
                about: dict[str, Any] = {"type": entity.entity_type, "tags": self._reuse(entity.tags)}
                about["description"] = entity.description
                # A concept is what nothing is known of.
                known = {key: value for key, value in about.items() if value and value != "concept"}
                entities[ids[entity.name]] = known
        relations = [
            [source, each.relation_type, target, each.weight, each.start, each.end]
            for each in found.relations
            if (source := ids.get(each.source)) != (target := ids.get(each.target)) and source and target
        ]
        return {"by": self.means, "entities": entities, "relations": relations}

    def _reuse(self, tags: Iterable[str]) -> list[str]:
        reported = list(filter(None, map(normalize_tag, tags)))
        if all(tag in ENTITY_TYPES for tag in reported):
            return reported
        return self._graph.reuse_tags(reported)[: self._graph.tag_constraints().max_tags_per_entity]

    def _merge_doubles(self, names: Iterable[str]) -> None:
        """Merge what two processes made of one name in the same moment into the older one."""
        for name in names:
            made = [node for node in self._tree.FindByName(name, 0, 9) if node.created_by == EXTRACTION]
            for double in made[1:]:
                if double.name.casefold() == made[0].name.casefold():
                    with contextlib.suppress(NotFoundError, ConflictError):  # the other one has done it
                        self._tree.MergeKeywords(double.id, made[0].id)

    # -- taking back: within an operation --

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

    def clear(self, keyword_ids: Iterable[str], memory_ids: Collection[str]) -> None:
        """Delete those of some keywords that extraction made and that nothing refers to any more.

        Args:
            keyword_ids: The keywords.
            memory_ids: The memories that name them no longer, if only in the operation that is open.
        """
        for id in dict.fromkeys(keyword_ids):
            node = self._tree.GetKeyword(id)
            if node is not None and self._is_left_over(node, memory_ids):
                self._tree.DeleteKeyword(node.id, info_policy="detach")

    def _is_left_over(self, node: KeywordNode, memory_ids: Collection[str]) -> bool:
        if node.created_by != EXTRACTION or node.parent_id != "root":
            return False
        if node.aliases or node.description or node.metadata or node.confirmed:
            return False
        if self._tree.GetChildren(node.id, 0, 1) or self._tree.GetInfosOfKeyword(node.id, page=0):
            return False
        # A memory that names it may have been unlinked by hand.
        if not set(self._graph.memories_of(node.id)) <= set(memory_ids):
            return False
        return all(relation.said_by for relation in self._graph.get_relations(node.id))


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
