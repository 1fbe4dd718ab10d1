"""Write memories: remember, relate, correct, pin, forget, undo; each is one operation of the tree."""

import contextlib
import threading
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from ..base.checks import check_string, check_strings, is_uuid, shorten
from ..keyword_tree import (
    ConflictError,
    DuplicateIdError,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    RelationType,
    VersionConflictError,
)
from .eviction import ForgettingPlan
from .graph import GraphRelation
from .memory_fields import MEMORY_KEY, RECORD_TYPES, Record, describe, memory_fields, sources_of, superseded_ids
from .memory_rows import time_of, without_stop
from .reading import EXTRACTION, MemoryReader, named_in
from .retriever import MemoryRetriever
from .tree_graph import TreeGraph

_SUCCESSORS = uuid.UUID("6f0ce1f2-7d5b-4f0e-9c55-3d0a5f5e8b11")  # any: the namespace of a corrected fact's id
_ATTEMPTS = 9  # at a write that others disturb
_SAME_NAMES = 1_000  # keywords of one name that a path may lead through


class Remembered(str):
    """The id of a written memory, a string; `undo` takes it, too.

    Attributes:
        operation: The operation that wrote it; "" where nothing had to be written.
        note: "known already…" where the same fact was there; else "".
    """

    __slots__ = ("note", "operation")

    operation: str
    note: str

    def __new__(cls, id: str, operation: str | None = None, note: str = "") -> Self:
        """Return an id with its operation and note."""
        made = super().__new__(cls, id)
        made.operation, made.note = operation or "", note
        return made


class _Versions:
    """The versions of a tree's memories."""

    tree: KeywordTree
    retriever: MemoryRetriever

    def _get(self, id: str) -> Info:
        info = self.tree.GetInfo(id)
        if info is None:
            raise NotFoundError("info", id)
        return info

    def _newest(self, id: str) -> Info:
        info = self._get(id)
        seen = {info.id}
        while (next_id := self._successor(info)) is not None and next_id not in seen:
            following = self.tree.GetInfo(next_id)
            if following is None:
                break
            seen.add(next_id)
            info = following
        return info

    def _successor(self, info: Info) -> str | None:
        named = memory_fields(info).get("superseded_by")
        if isinstance(named, str):
            return named
        if memory_fields(info).get("kind") == "pattern":  # only its successors' own links name them
            self.retriever.index.catch_up()
        successors = self.retriever.index.successors(info.id)
        return successors[0] if successors else None

    def _chain(self, id: str) -> list[Info]:
        """Return a memory's present version, and all that this one supersedes, at however many removes."""
        chain = {(info := self._newest(id)).id: info}
        stack = [info]
        while stack:
            for old_id in superseded_ids(stack.pop()):
                old = None if old_id in chain else self.tree.GetInfo(old_id)
                if old is not None and self._successor(old) is not None:  # in a circle nothing is superseded
                    chain[old.id] = old
                    stack.append(old)
        return [*chain.values()]

    def _is_at(self, id: str, version: int) -> bool:
        info = self.tree.GetInfo(id)
        return info is not None and info.version == version and self._successor(info) is None


class MemoryWriter(_Versions):
    """Writes the memories of a tree; `MemoryStore` also opens, recalls and lists them.

    Args:
        tree: The tree.
        graph: The same as a graph.
        retriever: Finds them.
        reader: Reads them for the graph.
        lock: Of two corrections of one fact, the second corrects the result of the first.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        tree: KeywordTree,
        graph: TreeGraph,
        retriever: MemoryRetriever,
        reader: MemoryReader,
        lock: threading.RLock,
        clock: Callable[[], float],
    ) -> None:
        self.tree, self.graph, self.retriever = tree, graph, retriever
        self._reader, self._lock, self._clock = reader, lock, clock

    # -- remembering --

    def remember(
        self,
        record: Record | str,
        keywords: Iterable[str] = (),
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        pinned: bool = False,
        created_by: str = "agent",
    ) -> Remembered:
        """Store a record or a plain fact, and return its id.

        A record whose id is there already takes its place: a skill learned again is the same skill. So does a fact
        whose text is there already, but for blanks and a full stop: it keeps its id, gets this source and these
        keywords besides, counts as said now, and the result's `note` says that it was known; not where its metadata
        contradicts. A pin stays.

        Args:
            record: The record; a string is a plain fact.
            keywords: Ids, names or paths (`drinks/tea`) of keywords to link it to, as they are written, but for case
                and width; one that is not there is made as `tree.Ensure` makes it. Two processes that name the same new
                one in the same moment may make two.
            source: Where it is from: a conversation, a document. Memories of one source belong together, in the
                order of remembering.
            metadata: A JSON object of the caller's own, to filter by; `"memory"` is taken.
            pinned: Whether it stays when others are forgotten.
            created_by: The author.

        Raises:
            InvalidInputError: The record is not valid (its messages), its id is that of a memory of another kind, or an
                argument cannot be stored.
            NotFoundError: A UUID among the keywords is that of none.

        Cost: one sync. With a model one call after that, which is waited for at most a minute, and another sync.
        """
        own, content = _describe(record)
        _check_flag("pinned", pinned)
        own |= {"pinned": True} if pinned else {}
        own |= self._reader.note()
        if metadata is not None and (not isinstance(metadata, Mapping) or MEMORY_KEY in metadata):
            given = shorten(metadata)
            raise InvalidInputError(f"metadata must be an object without the key {MEMORY_KEY!r}, not {given}")
        names = [*dict.fromkeys(check_strings("keywords", keywords))]
        spec: dict[str, Any] = {"content": content, "source": check_string("source", source), "created_by": created_by}
        spec |= {"metadata": {**(metadata or {}), MEMORY_KEY: own}}
        if isinstance(record, str):
            if known := self._remember_known(spec, names):
                return known
            written = self._remember_new(spec, names)
        else:
            written = self._remember_record({**spec, "id": record.id}, names)
        self._read(written)
        return written

    def _read(self, id: str) -> None:
        """Read a memory for the graph that is on disk; no lock is held, since a model may think."""
        with contextlib.suppress(NotFoundError):  # forgotten in between
            if self._reader.client:
                self._reader.read(id)

    def _remember_new(self, spec: dict[str, Any], names: list[str]) -> Remembered:
        found = [_find_keyword(self.tree, name) for name in names]
        if None not in found:  # a single write is an operation by itself, at half the price
            with contextlib.suppress(NotFoundError):  # deleted in between
                id = self.tree.CreateInfo(**spec, keyword_ids=[*dict.fromkeys(filter(None, found))]).id
                return Remembered(id, self.tree.last_operation)

        def write() -> Remembered:
            with self._lock, self.tree.Operation("remember") as operation:
                keyword_ids = [ensure_keyword(self.tree, name, spec["created_by"]) for name in names]
                id = self.tree.BatchCreateInfos([{**spec, "keyword_ids": [*dict.fromkeys(keyword_ids)]}])[0].id
            return Remembered(id, operation.id)

        for _ in range(_ATTEMPTS):
            with contextlib.suppress(NotFoundError, ConflictError):  # a keyword was deleted in between
                return write()
        return write()

    def _remember_record(self, spec: dict[str, Any], names: list[str]) -> Remembered:
        while True:
            old = self.tree.GetInfo(spec["id"])
            if old is not None:
                return self._remember_again(old, spec, names)
            with contextlib.suppress(DuplicateIdError):  # another process or thread has made it: it is there now
                return self._remember_new(spec, names)

    def _remember_again(self, old: Info, spec: dict[str, Any], names: list[str]) -> Remembered:
        own, own_before = spec["metadata"][MEMORY_KEY], memory_fields(old)
        if own_before.get("kind") != own["kind"]:
            raise InvalidInputError(f"{old.id!r} is the id of another memory, which is no {own['kind']}")
        if own_before.get("pinned") is True:
            own["pinned"] = True
        with self._lock, self.tree.Operation("remember") as operation:
            unlinked = self._reader.unlink(old.id)
            self.tree.UpdateInfo(old.id, {name: spec[name] for name in ("content", "source", "metadata")})
            self._link(old.id, names, spec["created_by"])
            self._reader.clear(unlinked)
        return Remembered(old.id, operation.id)

    def _link(self, info_id: str, names: Iterable[str], created_by: str) -> None:
        linked = {link.keyword_id for link in self.tree.GetLinks(info_id)}
        for keyword_id in dict.fromkeys(ensure_keyword(self.tree, name, created_by) for name in names):
            if keyword_id not in linked:
                self.tree.LinkInfo(info_id, keyword_id, created_by=created_by)

    def _remember_known(self, spec: Mapping[str, Any], names: list[str]) -> Remembered | None:
        """Note that a fact was said again, if it is there; else return None."""
        for _ in range(_ATTEMPTS):
            info = self._known(spec)
            if info is None:
                return None
            with contextlib.suppress(VersionConflictError, ConflictError, NotFoundError):  # changed in between
                return self._say_again(info, spec, names)
        return None

    def _known(self, spec: Mapping[str, Any]) -> Info | None:
        """Return the fact that says the same, if there is one whose metadata does not contradict."""
        text, metadata = _plain(spec["content"]), spec["metadata"]
        for id in self.retriever.index.same(spec["content"]):
            info = self.tree.GetInfo(id)
            if info is None or _plain(info.content) != text or self._successor(info) is not None:
                continue
            shared = metadata.keys() & info.metadata.keys() - {MEMORY_KEY}
            own = info.metadata.get(MEMORY_KEY, {})
            is_fact = own is not None and memory_fields(info).get("kind", "fact") == "fact"
            if is_fact and all(metadata[key] == info.metadata[key] for key in shared):
                return info
        return None

    def _say_again(self, info: Info, spec: Mapping[str, Any], names: list[str]) -> Remembered:
        own = {"kind": "fact", **memory_fields(info)}
        sources = [*dict.fromkeys([*sources_of(info), spec["source"]])]
        own |= {"pinned": True} if spec["metadata"][MEMORY_KEY].get("pinned") else {}
        own |= {"sources": sources} if len(sources) > 1 else {}
        own["time"] = max(self._clock(), time_of(info) + 1e-6)  # later than before, whatever the clock says
        note = "known already" if len(sources) == len(sources_of(info)) else "known already, now from this source, too"
        with self._lock, self.tree.Operation("remember") as operation:
            metadata = {**info.metadata, **spec["metadata"], MEMORY_KEY: own}
            self.tree.UpdateInfo(info.id, {"metadata": metadata}, info.version)
            self._link(info.id, names, spec["created_by"])
        return Remembered(info.id, operation.id, note)

    def relate(
        self, source: str, relation_type: str, target: str, weight: float = 1.0, created_by: str = "agent"
    ) -> None:
        """Relate one keyword to another; this takes precedence over relations from memories.

        Args:
            source: Name or path of a keyword, as in `remember`; one that is not there is made.
            target: Likewise.
            relation_type: `works_on`, `lives_in`, …
            weight: 0.0 to 1.0.
            created_by: The author.

        Raises:
            InvalidInputError: An argument cannot be stored.

        Cost: one sync.
        """
        names = [*dict.fromkeys(check_strings("keywords", [source, target]))]
        if len(names) < 2:
            raise InvalidInputError(f"a relation needs two keywords, not {shorten(source)} twice")
        with self._lock, self.tree.Operation("relate"):
            ids = [ensure_keyword(self.tree, name, created_by) for name in names]
            self.graph.add_relation(GraphRelation(ids[0], ids[1], relation_type, weight))

    # -- correcting --

    def correct(
        self, id: str, record: str, source: str = "", created_by: str = "agent", keywords: Iterable[str] = ()
    ) -> Remembered:
        """Put a new fact in the place of an old one, and return its id, which `undo` takes, too.

        The new one has the same keywords, and a `supersedes` link to the old one, which stays in the history.

        Args:
            id: Of the old one; of one that was superseded already, its successor is corrected.
            record: The new fact.
            source: Where it is from. The old one's source did not say it, and stays with the old one.
            created_by: The author.
            keywords: Further keywords.

        Raises:
            NotFoundError: There is no such memory.
            InvalidInputError: The old one is a record, which is to be remembered again; or an argument is unfit.

        Cost: one sync.
        """
        _describe(check_string("record", record))
        names = [*dict.fromkeys(check_strings("keywords", keywords))]
        own = {"kind": "fact", **self._reader.note()}
        spec = {"content": record, "source": check_string("source", source), "created_by": created_by}
        new_id = self._correct_at_last(id, spec, names, own)
        self._read(new_id)
        return new_id

    def _correct_at_last(self, id: str, spec: dict[str, Any], names: list[str], own: Mapping[str, Any]) -> Remembered:
        for _ in range(_ATTEMPTS):
            self._get(id)  # of what was forgotten meanwhile nothing is left to be corrected
            with contextlib.suppress(DuplicateIdError, ConflictError, NotFoundError):
                return self._correct(id, spec, names, own)
            self.tree.Refresh()  # others have corrected it, or deleted a keyword
            self.retriever.index.catch_up()
        return self._correct(id, spec, names, own)

    def _correct(self, id: str, spec: dict[str, Any], names: list[str], own_of_new: Mapping[str, Any]) -> Remembered:
        with self._lock, self.tree.Operation("correct") as operation:
            old = self._newest(id)
            own = memory_fields(old)
            if own.get("kind", "fact") != "fact":
                raise InvalidInputError(f"{old.id!r} is no plain fact: remember the record again")
            # Made from the old one's, so that of two processes one finds it taken: two successors would both be true.
            new_id = str(uuid.uuid5(_SUCCESSORS, old.id))
            pin = {"pinned": True} if own.get("pinned") is True else {}
            metadata = {**old.metadata, MEMORY_KEY: {**own_of_new, **pin, "supersedes": old.id}}
            links = self.tree.GetLinks(old.id)
            relations = {link.keyword_id: link.relation for link in links if link.created_by != EXTRACTION}
            for name in names:
                relations.setdefault(ensure_keyword(self.tree, name, spec["created_by"]), RelationType.PRIMARY)
            self.tree.BatchCreateInfos([{**spec, "id": new_id, "metadata": metadata}])
            for link in links:
                self.tree.UnlinkInfo(old.id, link.keyword_id)
            for keyword_id, relation in relations.items():
                self.tree.LinkInfo(new_id, keyword_id, relation, spec["created_by"])
            self.tree.UpdateInfo(old.id, {"metadata": {**old.metadata, MEMORY_KEY: {**own, "superseded_by": new_id}}})
            self._reader.clear(named_in(old))
        return Remembered(new_id, operation.id)

    # -- forgetting --

    def pin(self, id: str, pinned: bool = True) -> None:
        """Let a memory stay when others are forgotten, or let it go with them."""
        _check_flag("pinned", pinned)
        self.tree.Refresh()  # another process may have corrected it
        with self._lock, self.tree.Operation("pin"):
            info = self._newest(id)
            own = {name: value for name, value in memory_fields(info).items() if name != "pinned"}
            own = {"kind": "fact", **own, **({"pinned": True} if pinned else {})}
            self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}})

    def forget(self, what: str | ForgettingPlan) -> str:
        """Delete one memory, or those of a plan, with all their former versions, and return the operation's id.

        A memory of a plan that was pinned, changed, corrected or deleted since is passed over; one that is named goes,
        pinned or not. Where nothing is left to be deleted, the id leads nowhere. Until the log is compacted without its
        history, `undo` brings all of it back.

        Raises:
            NotFoundError: There is no memory with this id.

        Cost: one sync.
        """
        if not isinstance(what, (str, ForgettingPlan)):
            raise InvalidInputError(f"what must be an id or a plan, not {shorten(what)}")
        self.tree.Refresh()  # another process may have pinned or corrected one
        with self._lock, self.tree.Operation("forget") as operation:
            if isinstance(what, str):
                chains = [self._chain(what)]
            else:
                chains = [self._chain(id) for id, version in what.versions.items() if self._is_at(id, version)]
            going = {info.id: info for chain in chains for info in chain}
            for id in going:
                self.tree.DeleteInfo(id)
            self._reader.clear(id for info in going.values() for id in named_in(info))
        return operation.id

    def undo(self, operation_id: str | None, changed_by: str = "user") -> str:
        """Undo an operation by a new one, and return the id of that.

        As `tree.Undo`; but where later memories are linked to a keyword that the operation made, that keyword stays.

        Args:
            operation_id: The result of `remember`, `correct` or `forget`, `store.tree.last_operation` after another
                call, or one of `tree.History()`.
            changed_by: The author.

        Raises:
            ConflictError: A later operation changed what this one wrote; a memory can then be corrected or forgotten.
            NotFoundError: There is no such operation.

        Cost: reads the log backwards to the operation; one sync.
        """
        if isinstance(operation_id, Remembered):
            operation_id = operation_id.operation
        try:
            return self.tree.Undo(operation_id, changed_by)
        except ConflictError as error:
            links = [record for record in error.records if isinstance(record, InfoKeywordLink)]
            if len(links) < len(error.records):
                raise
        # In one operation the links are taken off, and put back on the keyword, made again with its id.
        with self._lock, self.tree.Operation("undo", changed_by) as operation:
            keywords = {link.keyword_id: self.tree.GetKeyword(link.keyword_id) for link in links}
            for link in links:
                self.tree.UnlinkInfo(link.info_id, link.keyword_id)
            self.tree.Undo(operation_id)
            for node in keywords.values():
                if node is not None and self.tree.GetKeyword(node.id) is None:
                    spec = {"id": node.id, "name": node.name, "parent_id": node.parent_id}
                    self.tree.BatchCreateKeywords([{**spec, "created_by": node.created_by}])
            for link in links:
                self.tree.LinkInfo(link.info_id, link.keyword_id, link.relation, link.created_by)
        return operation.id


def _find_keyword(tree: KeywordTree, name: str) -> str | None:
    """Return the keyword with an id, a name or alias, of several the oldest, or at the end of a path of such."""
    if name not in ("", "root") and (node := tree.GetKeyword(name)) is not None:
        return node.id
    if found := _named(tree, name, 2):
        return found[0].id
    parents: set[str] | None = None
    for part in name.split("/") if "/" in name else ():
        # An empty part has no name: "and/" is no path.
        found = _named(tree, part, _SAME_NAMES) if part.strip() else []
        found = [node for node in found if parents is None or node.parent_id in parents]
        parents = {node.id for node in found}
    return found[0].id if found else None


def _named(tree: KeywordTree, name: str, limit: int) -> list[KeywordNode]:
    # `Search` would pass over symbols (C and C#), and ask a model. The tree's own top is called "root".
    return [node for node in tree.FindByName(name, 0, limit) if node.id != "root"]


def ensure_keyword(tree: KeywordTree, name: str, created_by: str) -> str:
    """Return the id of the keyword that an id, a name or a path means, of a new one where there is none."""
    if (known := _find_keyword(tree, name)) is not None:
        return known
    if is_uuid(name):  # of a keyword that was deleted, or of another tree
        raise NotFoundError("keyword", name)
    if "/" in name and all(part.strip() for part in name.split("/")):  # a path, as `Ensure` reads it
        return tree.Ensure(name, created_by).id
    return tree.CreateKeyword(name, "root", llm_auto_place=False, created_by=created_by).id


def _describe(record: Record | str) -> tuple[dict[str, Any], str]:
    """Return a record's own fields and its text."""
    if isinstance(record, str):
        if not record.strip():
            raise InvalidInputError("a fact must not be blank")
        return {"kind": "fact"}, record
    if not isinstance(record, tuple(RECORD_TYPES.values())):
        raise InvalidInputError(f"record must be a string, or a record as ProceduralSkill is, not {shorten(record)}")
    messages = record.validate()
    if messages:
        raise InvalidInputError("; ".join(messages))
    return describe(record)


def _plain(text: str) -> str:
    """Return a text by which a fact is the same, whatever its blanks, full stop, and composition of letters."""
    return " ".join(without_stop(unicodedata.normalize("NFC", text)).split())


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):  # "no" would be true
        raise InvalidInputError(f"{name} must be True or False, not {shorten(value)}")
