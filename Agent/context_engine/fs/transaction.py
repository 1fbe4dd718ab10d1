"""A transaction: changes are staged, and committed together, whole or not at all.

    1  take the lock, and redo what a dead process left
    2  compare: a node that is not as it was when this transaction first looked raises `VersionConflictError`
    3  one synced transaction of the journal: images before and after, events held back.  This is the commit.
    4  the files: new name, rename, no sync
    5  one transaction without a sync: applied, events pending; unlock

What was staged is what the same transaction reads. The events follow from the changes: no write misses the index.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from ...base.text import to_json
from ..core.config import (
    ABSTRACT,
    CONTENT,
    DELETE_CONTEXT,
    FILES,
    META,
    MOVE_CONTEXT,
    OVERVIEW,
    RELATIONS,
    UPSERT_CONTEXT,
    UPSERT_RELATION,
)
from ..core.errors import ConflictError, InvalidInputError, NodeNotFoundError, VersionConflictError
from ..core.objects import OutboxEvent, RequestContext, WritePlan
from .folders import Folders, Image
from .journal import MOVE, Commit, Journal, NodeRow, Step
from .meta import Staged, leads_on, read_meta, state_of, write_meta
from .uri import Uri, parse_uri

_EMPTY: Image = {ABSTRACT: b"", OVERVIEW: b"", CONTENT: b"", RELATIONS: b"[]\n"}
"""What every node has, at least."""


_Event: TypeAlias = tuple[str, str, dict[str, Any], float]
"""Its type, URI and payload, and in how many seconds it is due."""


class Store(Protocol):
    """What a transaction asks of the main store, which is `MainStore`."""

    boot: str
    clock: Callable[[], float]
    journal: Journal
    folders: Folders

    def locked(self) -> AbstractContextManager[None]:
        """Hold the store's lock."""

    def log_and_apply(self, commit: Commit) -> None:
        """Write a commit to the journal, then to the files."""

    def read_image(self, uri: Uri) -> Image:
        """Return a node's files as they are, whole."""


@dataclass
class Transaction:
    """Changes that are committed together; made by `MainStore.transaction`."""

    fs: Store
    ctx: RequestContext
    name: str
    commit_id: str
    plans: list[WritePlan] = field(default_factory=list)
    """Kept in the journal with the commit."""
    ends: list[str] = field(default_factory=list)
    """Events that this commit is the end of."""
    events: list[OutboxEvent] = field(default_factory=list)
    """What the commit registered, once it is done."""
    sequence: int = 0
    """Of the commit; 0 where nothing was to be done."""
    _base: dict[str, Image] = field(default_factory=dict)
    _staged: dict[str, Staged] = field(default_factory=dict)
    _move: tuple[Uri, Uri] | None = None
    _more: list[_Event] = field(default_factory=list)
    _musts: set[str] = field(default_factory=set)

    # -- staging --

    def look(self, uri: Uri) -> Staged:
        """Return a node as this transaction sees it; `NodeNotFoundError` says that there is none."""
        staged = self._staged.get(uri.text)
        if staged is None:
            image = self._look_at_base(uri)
            if not image or (META in image and leads_on(image[META])):
                raise NodeNotFoundError(uri.text)
            return Staged({name: data for name, data in image.items() if name != META}, read_meta(uri, image))
        if staged.meta is None:
            raise NodeNotFoundError(uri.text)
        return Staged(dict(staged.files), {**staged.meta})

    def _look_at_base(self, uri: Uri) -> Image:
        if uri.text not in self._base:
            self._base[uri.text] = self.fs.read_image(uri)
        return self._base[uri.text]

    def has(self, uri: Uri) -> bool:
        """Whether there is such a node, as this transaction sees it."""
        try:
            self.look(uri)
        except NodeNotFoundError:
            return False
        return True

    def put(self, uri: Uri, staged: Staged, must: bool = False) -> None:
        """Stage a node; with `must` it gets a version even where nothing in it differs."""
        if self._move is not None:
            raise InvalidInputError("a move is a transaction of its own")
        if not uri.is_node:
            raise InvalidInputError(f"no node can be at {uri.text!r}: it is a space, or above one")
        self._look_at_base(uri)
        self._staged[uri.text] = staged
        if must:
            self._musts.add(uri.text)

    def move(self, uri: Uri, to: Uri) -> str:
        """Stage a move, and return the commit's id; nothing else may be staged."""
        if self._staged or self._move is not None:
            raise InvalidInputError("a move is a transaction of its own")
        self._move = (uri, to)
        return self.commit_id

    def add_event(self, event_type: str, uri: str, payload: dict[str, Any], due_in_s: float = 0.0) -> None:
        """Register an event that follows from no change."""
        self._more.append((event_type, uri, payload, due_in_s))

    # -- committing --

    def commit(self) -> None:
        """Write all that is staged; see the top of this file."""
        if not self._staged and self._move is None and not self._more and not self.ends:
            return
        fs = self.fs
        with fs.locked():
            for uri in self._staged:
                self._compare(uri)
                fs.folders.check_writable(parse_uri(uri).folders)
            commit = Commit(
                sequence=fs.journal.last_sequence() + 1,
                id=self.commit_id,
                name=self.name,
                author=f"{self.ctx.user_id}/{self.ctx.agent_id}",
                at=fs.clock(),
                boot=fs.boot,
                plans=[_describe(plan) for plan in self.plans],
                ends=self.ends,
            )
            changed = self._move_steps(commit) if self._move else self._file_steps(commit)
            if not commit.steps and not self._more and not self.ends:
                return
            for number, (kind, uri, payload, due_in) in enumerate([*changed, *self._more]):
                event = OutboxEvent(
                    f"{commit.id}-{number}", kind, uri, payload, "pending", 0, commit.at, commit.sequence
                )
                commit.events.append((event, commit.at + due_in))
                self.events.append(event)
            self.sequence = commit.sequence
            fs.log_and_apply(commit)

    def _compare(self, text: str) -> None:
        uri = parse_uri(text)
        present, base = self.fs.read_image(uri), self._base[text]
        if present != base:
            seen, current = (read_meta(uri, image)["version"] if image else 0 for image in (base, present))
            raise VersionConflictError(text, seen, current)

    def _file_steps(self, commit: Commit) -> list[_Event]:
        changed: list[_Event] = []
        for text, staged in self._staged.items():
            uri, base = parse_uri(text), self._base[text]
            after = self._image_of(uri, staged, base, commit)
            # Of an edit that is adopted the journal has only what was there before: what the hand wrote is kept, too.
            before = {**base, **self.fs.journal.last_images(text)} if text in self._musts else base
            steps = [
                Step(text, name, before.get(name), after.get(name))
                for name in FILES
                if before.get(name) != after.get(name)
            ]
            if not steps:
                continue
            commit.steps += steps
            version = staged.meta["version"] if staged.meta else read_meta(uri, base)["version"]
            commit.nodes.append(NodeRow(text, commit.sequence, version, state_of(after)))
            changed.append((UPSERT_CONTEXT if after else DELETE_CONTEXT, text, {}, 0.0))
            if after and base.get(RELATIONS, _EMPTY[RELATIONS]) != after[RELATIONS]:
                changed.append((UPSERT_RELATION, text, {}, 0.0))
        return changed

    def _image_of(self, uri: Uri, staged: Staged, base: Image, commit: Commit) -> Image:
        """Return a node's files after the commit, or its files before if nothing that counts has changed."""
        if staged.meta is None:
            return {}
        before = read_meta(uri, base) if META in base and not leads_on(base[META]) else None
        files = {**_EMPTY, **staged.files}
        meta = staged.meta
        if before is not None and uri.text not in self._musts:
            kept = {name: before[name] for name in ("version", "sequence", "created_at", "updated_at")}
            same = _write_meta(uri, {**meta, **kept}, files) == base[META]
            if same and {**files, META: base[META]} == base:
                return base
        row = self.fs.journal.node(uri.text)  # a hand may have put an older version back: versions only rise
        meta["version"] = max(before["version"] if before else 0, row.version if row else 0) + 1
        meta["sequence"] = commit.sequence
        meta["created_at"] = meta.get("created_at") or (before["created_at"] if before else 0.0) or commit.at
        meta["updated_at"] = commit.at
        return {**files, META: _write_meta(uri, meta, files)}

    def _move_steps(self, commit: Commit) -> list[_Event]:
        assert self._move is not None
        uri, to = self._move
        folders = self.fs.folders
        stub = folders.read(to.folders, (META,)).get(META)
        is_stub = stub is not None and leads_on(stub) and not folders.child_names(to.folders)
        if folders.is_folder(to.folders) and not is_stub:
            raise ConflictError(f"{to.text!r} is taken", uris=[to.text])
        if not folders.is_folder(uri.folders):
            raise NodeNotFoundError(uri.text)
        if is_stub:  # it leads to a node that comes back, or to somewhere else; the history has it
            commit.steps.append(Step(to.text, META, stub, None))
        commit.steps.append(Step(uri.text, MOVE, None, to.text.encode()))
        leads = to_json({"moved_to": to.text}).encode("utf-8") + b"\n"
        commit.steps.append(Step(uri.text, META, None, leads))
        return [(MOVE_CONTEXT, uri.text, {"to_uri": to.text, "recursive": True}, 0.0)]


def _write_meta(uri: Uri, meta: dict[str, Any], files: Image) -> bytes:
    try:
        return write_meta(uri, meta, files)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"metadata of {uri.text!r} is no JSON: {error}") from error


def _describe(plan: WritePlan) -> dict[str, Any]:
    """Return a plan as the journal keeps it; the texts stand in the images already."""
    kept = {
        name: getattr(plan, name) for name in ("action", "target_uri", "reason", "expected_version", "candidate_id")
    }
    return {**kept, "files": sorted(str(name) for name in plan.node_patch), "relations": len(plan.relation_ops)}
