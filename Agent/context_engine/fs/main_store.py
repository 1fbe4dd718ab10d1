"""`MainStore`: the store's folder, the lock around writing, transactions, and where a node lies.

A transaction stages changes and commits them together:

    1  take the lock, and redo what a dead process left
    2  compare: a node that is not as it was when this transaction first looked raises `VersionConflictError`
    3  one synced transaction of the journal: images before and after, events held back.  This is the commit.
    4  the files: new name, rename, no sync
    5  one transaction without a sync: applied, events pending; unlock

What was staged is what the same transaction reads. The events follow from the changes: no write misses the index.

Readers take no lock. A node is whole if the digests in its metadata fit its files; else it is read again, at last under
the lock, after a redo: what differs then is a manual edit, and is read.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ...base.forks import watch_forks
from ...base.text import CountTokens, count_tokens, mapping_of
from ...keyword_tree import LOG_NAME
from ...store.addresses import refuse_address
from ..core import config
from ..core.config import CONTENT, FILES, META, RELATIONS, SESSIONS, UPSERT_CONTEXT
from ..core.errors import (
    ContextEngineError,
    InvalidInputError,
    NodeNotFoundError,
    StoreCorruptError,
    StoreError,
    VersionConflictError,
)
from ..core.objects import OutboxEvent, RequestContext, WritePlan
from .folders import Disk, Entry, Folders, Image, boot_id
from .journal import Change, Commit, Journal, NodeRow, is_damage
from .meta import Staged, is_whole, read_meta, staged_of, state_of, write_meta
from .redo import redo, rescue
from .uri import Uri, parse_uri, space_uris, uri_of

_log = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS = 50
_COMMITS, _WAL_BYTES = 500, 4 * 1024 * 1024  # may wait for a sync of the files; the WAL is emptied then


_EMPTY: Image = {config.ABSTRACT: b"", config.OVERVIEW: b"", CONTENT: b"", RELATIONS: b"[]\n"}
"""The files of every node."""


_Event: TypeAlias = tuple[str, str, dict[str, Any], float]
"""Its type, URI and payload, and in how many seconds it is due."""


@dataclass
class Transaction:
    """Changes that are committed together; made by `MainStore.transaction`."""

    fs: "MainStore"
    ctx: RequestContext
    name: str
    commit_id: str
    plans: list[WritePlan] = field(default_factory=list)
    """Kept in the journal with the commit."""
    ends: list[str] = field(default_factory=list)
    """Events that this commit is the end of."""
    events: list[OutboxEvent] = field(default_factory=list)
    """The registered events, after the commit."""
    sequence: int = 0
    """Of the commit; 0 where nothing was to be done."""
    _base: dict[Uri, Image] = field(default_factory=dict)
    _staged: dict[Uri, Staged | None] = field(default_factory=dict)
    moves: dict[str, str] = field(default_factory=dict)
    """Old URI → new one of nodes that have moved; both are staged."""
    _more: list[_Event] = field(default_factory=list)
    _musts: set[str] = field(default_factory=set)

    # -- staging --

    def look(self, uri: Uri) -> Staged:
        """Return a node as this transaction sees it; `NodeNotFoundError` says that there is none."""
        if uri not in self._staged:
            return staged_of(uri, self._look_at_base(uri))
        staged = self._staged[uri]
        if staged is None:
            raise NodeNotFoundError(uri.text)
        return Staged(dict(staged.files), {**staged.meta})

    def _look_at_base(self, uri: Uri) -> Image:
        if uri not in self._base:
            self._base[uri] = self.fs.read_image(uri)
        return self._base[uri]

    def has(self, uri: Uri) -> bool:
        """Whether there is such a node, as this transaction sees it."""
        try:
            self.look(uri)
        except NodeNotFoundError:
            return False
        return True

    def put(self, uri: Uri, staged: Staged | None, must: bool = False) -> None:
        """Stage a node, None deletes it; with `must` it gets a version even where nothing in it differs."""
        if not uri.is_node:
            raise InvalidInputError(f"no node can be at {uri.text!r}: it is a space, or above one")
        self._look_at_base(uri)
        self._staged[uri] = staged
        if must:
            self._musts.add(uri.text)

    def add_event(self, event_type: str, uri: str, payload: dict[str, Any], due_in_s: float = 0.0) -> None:
        """Register an event that follows from no change."""
        self._more.append((event_type, uri, payload, due_in_s))

    # -- committing --

    def commit(self) -> None:
        """Write all that is staged; see the top of this file."""
        if not self._staged and not self._more and not self.ends:
            return
        fs = self.fs
        with fs.locked():
            for each in self._staged:
                self._compare(each)
                fs.folders.check_writable(each.folders)
            commit = Commit(
                sequence=fs.journal.last_sequence() + 1,
                id=self.commit_id,
                name=self.name,
                author=f"{self.ctx.user_id}/{self.ctx.agent_id}",
                at=fs.clock(),
                plans=[_describe(plan) for plan in self.plans],
                ends=self.ends,
            )
            changed = self._file_changes(commit)
            if not commit.changes and not self._more and not self.ends:
                return
            for number, (kind, uri, payload, due_in) in enumerate([*changed, *self._more]):
                event = OutboxEvent(
                    f"{commit.id}-{number}", kind, uri, payload, "pending", 0, commit.at, commit.sequence
                )
                commit.events.append((event, commit.at + due_in))
                self.events.append(event)
            self.sequence = commit.sequence
            fs.log_and_apply(commit)

    def _compare(self, uri: Uri) -> None:
        present, base = self.fs.read_image(uri), self._base[uri]
        if present != base:
            seen, current = (read_meta(uri, image)["version"] if image else 0 for image in (base, present))
            raise VersionConflictError(uri.text, seen, current)

    def _file_changes(self, commit: Commit) -> list[_Event]:
        changed: list[_Event] = []
        for uri, staged in self._staged.items():
            text, base = uri.text, self._base[uri]
            after = self._image_of(uri, staged, base, commit)
            # Of an adopted node the former text is in the journal, and the edited one on disk.
            before = {**base, **self.fs.journal.last_images(text)} if text in self._musts else base
            names = [name for name in FILES if before.get(name) != after.get(name)]
            if not names:
                continue
            was, is_now = ({name: image.get(name) for name in names} for image in (before, after))
            commit.changes.append(Change(text, was, is_now, self.moves.get(text, "")))
            version = staged.meta["version"] if staged else read_meta(uri, base)["version"]
            commit.nodes.append(NodeRow(text, commit.sequence, version, state_of(after)))
            if text in self.moves or text in self.moves.values():
                continue  # the event of the move looks at both places
            changed.append((UPSERT_CONTEXT if after else config.DELETE_CONTEXT, text, {}, 0.0))
            if after and base.get(RELATIONS, _EMPTY[RELATIONS]) != after[RELATIONS]:
                changed.append((config.UPSERT_RELATION, text, {}, 0.0))
        return changed

    def _image_of(self, uri: Uri, staged: Staged | None, base: Image, commit: Commit) -> Image:
        """Return a node's files after the commit, or its files before if nothing that counts has changed."""
        if staged is None:
            return {}
        before = read_meta(uri, base) if META in base else None
        files = {**_EMPTY, **staged.files}
        meta = staged.meta
        if before is not None and uri.text not in self._musts:
            kept = {name: before[name] for name in ("version", "sequence", "created_at", "updated_at")}
            same = write_meta(uri, {**meta, **kept}, files) == base[META]
            if same and {**files, META: base[META]} == base:
                return base
        row = self.fs.journal.node(uri.text)  # an older version may have been restored manually: versions only rise
        meta["version"] = max(before["version"] if before else 0, row.version if row else 0) + 1
        meta["sequence"] = commit.sequence
        meta["created_at"] = meta.get("created_at") or (before["created_at"] if before else 0.0) or commit.at
        meta["updated_at"] = commit.at
        return {**files, META: write_meta(uri, meta, files)}


def _describe(plan: WritePlan) -> dict[str, Any]:
    """Return a plan as the journal keeps it; the texts stand in the images already."""
    kept = {
        name: getattr(plan, name) for name in ("action", "target_uri", "reason", "expected_version", "candidate_id")
    }
    return {**kept, "files": sorted(str(name) for name in plan.node_patch), "relations": len(plan.relation_ops)}


class MainStore:
    """A folder with its journal and its lock; any number of threads and processes may use it.

    Args:
        root: The folder; it is made where it is not there. None makes one that goes when the store is closed.
        clock: Seconds since the epoch.
        new_id: Makes ids of commits.
        count_tokens: How long a text is for a model.
        disk: The door to the operating system.

    Attributes:
        on_commit: Called with the events of what a thread has committed, once it has let go of the lock.

    Raises:
        StoreError: The folder cannot be made or written.

    Cost: a millisecond; after a crash what was left undone is done again, and a folder without a journal (a clone) is
    read from end to end.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        count_tokens: CountTokens = count_tokens,
        disk: Disk | None = None,
    ) -> None:
        if root is not None:
            refuse_address(root, "folder")
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # in memory, where the system has files there
        made = Path(tempfile.mkdtemp(prefix="context-engine-", dir=shared)) if root is None else None
        self.root = made or Path(root or "").absolute()
        self._remove = weakref.finalize(self, _remove_folder, made, os.getpid())
        self.clock, self.new_id, self.count_tokens = clock, new_id, count_tokens
        self.boot = boot_id()
        self._disk = disk or Disk()
        self.space = self.root / config.SPACE
        self.aside = self.space / "aside"  # edits that could not be merged
        self.folders = Folders(str(self.root), self._disk)
        self.journal = Journal(str(self.space / "journal.db"))
        self._thread_lock = threading.RLock()
        self._local = threading.local()
        self._depth = 0
        self._lock_fd = -1
        self._failure = ""
        self._is_closed = False
        self._identity: tuple[int, int] | None = None
        self._commits_since = 0  # the last checkpoint
        self._committed: list[OutboxEvent] = []  # events of this thread's commits, until the lock is free
        self._known_edits: dict[str, str] = {}  # uri -> state that was read under the lock
        self.on_commit: Callable[[Sequence[OutboxEvent]], None] = lambda events: None
        watch_forks(self)
        self._open()
        self._identity = _identity_of(self.root)

    def renew_after_fork(self) -> None:
        """Begin with locks of its own."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._thread_lock, self._depth, self._lock_fd = threading.RLock(), 0, -1
        self._local, self._committed = threading.local(), []

    # -- opening and closing --

    def _open(self) -> None:
        """Make the folder, set a damaged journal aside, and recover after a crash."""
        _prepare(self.root)
        with self.locked(recover=False):
            is_new = not os.path.exists(self.journal.path)
            try:
                self.journal.open()
                if not self.journal.knows_start(self.boot):
                    self.journal.check()
                    self.journal.begin_start(self.boot)
            except (sqlite3.DatabaseError, StoreCorruptError) as error:
                if not (isinstance(error, StoreCorruptError) or is_damage(error)):
                    self.journal.close()
                    raise StoreError(f"the journal at {self.journal.path!r} cannot be opened: {error}") from error
                self._begin_journal(error)
            self._recover()
            if is_new or not self.journal.last_sequence():
                self._take_in()

    def repair_journal(self) -> None:
        """Set the journal aside if it is damaged, and begin another one. Cost: reads all of it, then all files."""
        with self.locked(recover=False):
            try:
                self.journal.check()
            except (sqlite3.DatabaseError, StoreCorruptError) as error:
                self._begin_journal(error)

    def _begin_journal(self, error: Exception) -> None:
        """Begin another journal: the files are the store, and the damaged one is kept. The lock is held."""
        self.journal.close()
        place = self.aside / f"journal-{os.urandom(4).hex()}"
        place.mkdir(mode=0o700, parents=True)
        for each in self.space.glob("journal.db*"):
            each.rename(place / each.name)
        self.journal.open()
        self.journal.begin_start(self.boot)
        text = f"the journal was damaged ({error}) and set aside in .ctx/aside/{place.name}: what it could undo is gone"
        _log.warning("%s: %s", self.root, text)
        self.journal.report(self.clock(), "", f"{text}; delete that folder when nothing of it is wanted")
        self._take_in()

    def _take_in(self) -> None:
        """Adopt all files without a journal: sequences go on above the highest, all is indexed again."""
        rows: list[NodeRow] = []
        events: list[tuple[str, str, dict[str, Any]]] = []
        for space in self.spaces():
            events.append((UPSERT_CONTEXT, space, {"recursive": True}))
            for uri in self.walk(parse_uri(space)):
                with contextlib.suppress(ContextEngineError, OSError):
                    image = self.folders.read(uri.folders)
                    meta = read_meta(uri, image)
                    rows.append(NodeRow(uri.text, meta["sequence"], meta["version"], state_of(image)))
                    held = meta["metadata"]
                    if uri.category == SESSIONS and mapping_of(held.get("ledger")).get("state") == "waiting":
                        who = {"user": uri.segments[2], "agent": str(held.get("agent")), "session": uri.segments[-2]}
                        events.append((config.EXTRACT_ARCHIVE, uri.text, who))
        last, now = max((row.sequence for row in rows), default=0), self.clock()
        made = [OutboxEvent(self.new_id(), *event, "pending", 0, now, last) for event in events]
        self.journal.take_in(rows, made, last)

    def close(self) -> None:
        """Sync all files, and close the store.  Closing twice is no error."""
        if self._is_closed:
            return
        try:
            if not self._failure and _identity_of(self.root) == self._identity:
                self.checkpoint()
        finally:
            self._is_closed = True
            self.journal.close()
            self._remove()

    def require_open(self) -> None:
        """Raise StoreError where the store was closed, or another folder, or none, is in its place."""
        if self._is_closed:
            raise StoreError("the store was closed")
        if self._identity and _identity_of(self.root) != self._identity:
            raise StoreError(f"the store's folder {str(self.root)!r} was removed or replaced: open it again")

    # -- the lock, and the five steps --

    @contextlib.contextmanager
    def locked(self, recover: bool = True) -> Iterator[None]:
        """Hold the store's lock, after recovery from a dead process; may be nested."""
        committed: list[OutboxEvent] = []
        with self._thread_lock:
            self.require_open()
            if self._failure:
                raise StoreError(f"a sync has failed, open the store again: {self._failure}")
            self._depth += 1
            try:
                if self._depth == 1:
                    # It is never deleted, else two could hold it.
                    self._lock_fd = os.open(self.space / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                    fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
                    self.journal.follow()
                    if recover and self.journal.unfinished():
                        self._recover()
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._lock_fd >= 0:
                    fd, self._lock_fd = self._lock_fd, -1
                    fcntl.flock(fd, fcntl.LOCK_UN)  # closing would not do: a forked process may have it, too
                    os.close(fd)
                    committed, self._committed = self._committed, []
        if committed:
            self.on_commit(committed)

    def _recover(self) -> None:
        try:
            redo(self.journal, self.folders, self.aside)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"what was committed cannot be written to the files yet: {error}") from error

    def log_and_apply(self, commit: Commit) -> None:
        """Do steps 3 to 5 of a commit; the lock is held."""
        self.journal.log(commit)
        try:
            for change in commit.changes:
                look = rescue(self.journal, self.aside, change.uri, change.before, sequence=commit.sequence)
                self.folders.write(parse_uri(change.uri).folders, change.after, look)
        except OSError as error:
            text = f"commit {commit.id} is kept in the journal, its files follow with the next write: {error}"
            raise StoreError(text, is_committed=True) from error
        self.journal.mark_applied([commit.sequence])
        self._committed += [event for event, _ in commit.events]
        self._commits_since += 1
        if self._commits_since >= _COMMITS or self.journal.wal_size() >= _WAL_BYTES:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Let all files last, with one sync of the file system, and empty the journal's WAL.

        Where that fails nothing more is written until the store is opened again. Cost: tens of milliseconds.
        """
        with self.locked():
            self._commits_since = 0
            if self.journal.waiting():
                try:
                    with self.folders.opened(()) as fd:
                        self._disk.sync_all(fd)
                except OSError as error:
                    self._failure = str(error)
                    with contextlib.suppress(StoreError):
                        self.journal.mark_failed()
                    raise StoreError(f"a sync has failed, open the store again: {error}") from error
            self.journal.mark_synced()
            self.journal.truncate()

    # -- transactions --

    @contextlib.contextmanager
    def transaction(self, ctx: RequestContext, name: str = "write") -> Iterator[Transaction]:
        """Commit all that is written within, together; where something raises, nothing of it.

        Within another one of the same thread it is a part of that. A `VersionConflictError` comes at the end.
        """
        space_uris(ctx)
        outer = self.current()
        if outer is not None:
            if space_uris(outer.ctx) != space_uris(ctx):
                raise InvalidInputError("a transaction is one request's")
            yield outer
            return
        made = Transaction(self, ctx, name, self.new_id())
        self._local.transaction = made
        try:
            yield made
        finally:
            self._local.transaction = None
        made.commit()

    def current(self) -> Transaction | None:
        """Return the transaction that this thread has open, if any."""
        found: Transaction | None = getattr(self._local, "transaction", None)
        return found

    def run(self, ctx: RequestContext, name: str, change: Callable[[Transaction], T]) -> T:
        """Run a change as a transaction, again where another writer was quicker; within one, as a part of it."""
        is_inner = self.current() is not None
        for attempt in range(_ATTEMPTS):
            is_staged = False
            try:
                with self.transaction(ctx, name) as made:
                    result = change(made)
                    is_staged = True
                return result
            except VersionConflictError:
                if is_inner or not is_staged or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    # -- where things are --

    def read_image(self, uri: Uri, may_lock: bool = True) -> Image:
        """Return a node's files as they are, whole; {} where there are none.

        What is not whole is read again under the lock, for which who holds an index must not wait (`may_lock`), since
        who has it may wait for the index: then it is an edit, or its event is yet to come.

        Cost: one open a file and folder; of an edit the lock, once.
        """
        image = self.folders.read(uri.folders)
        if not image.keys() - {META}:
            return {}
        # An edit that was read under the lock once is read without it: each wait would let another one come between.
        if is_whole(image) or not may_lock or self._known_edits.get(uri.text) == state_of(image):
            return image
        with self.locked():
            image = self.folders.read(uri.folders, is_settled=True)
        self._known_edits[uri.text] = state_of(image)
        return image

    def entries(self, uri: Uri, depth: int = config.URI_SEGMENTS) -> Iterator[tuple[Uri, Entry]]:
        """Yield a folder and those under it, parents first; folders that no URI has are left out."""
        for entry in self.folders.walk(uri.folders, depth=depth):
            found = uri if entry.folders == uri.folders else uri_of(entry.folders)
            if found is not None:
                yield found, entry

    def walk(self, uri: Uri) -> Iterator[Uri]:
        """Yield a node and all under it, parents first; what has no metadata yet is left out."""
        yield from (found for found, entry in self.entries(uri) if entry.image)

    def spaces(self) -> list[str]:
        """Return the URI of every space of the store: for workers and `verify`."""
        folders = (
            (account, kind, owner)
            for account in self.folders.child_names(())
            for kind in ("users", "agents")
            for owner in self.folders.child_names((account, kind))
        )
        return [found.text for found in map(uri_of, folders) if found is not None]


def _prepare(root: Path) -> None:
    space = root / config.SPACE
    if os.path.exists(root / LOG_NAME) and not os.path.exists(space):
        raise StoreError(f"{str(root)!r} holds a keyword tree, and no context engine: open it with KeywordTree")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        space.mkdir(mode=0o700, exist_ok=True)
        if not (space / ".gitignore").exists():
            (space / ".gitignore").write_text("*\n", encoding="ascii")
    except (OSError, ValueError) as error:  # a NUL in the path
        raise StoreError(f"no store can be made at {str(root)!r}: {error}") from error
    if not (os.access(root, os.W_OK) and os.access(space, os.W_OK)):
        raise StoreError(f"the store at {str(root)!r} may not be written: a copy of it can be opened")


def _identity_of(root: Path) -> tuple[int, int] | None:
    try:
        there = root.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _remove_folder(made: Path | None, pid: int) -> None:
    if made is not None and pid == os.getpid():  # a forked process leaves it to its parent
        shutil.rmtree(made, ignore_errors=True)
