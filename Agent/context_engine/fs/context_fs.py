"""`ContextFS`: nodes by their URIs, each write a transaction.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> fs = ContextFS(folder.name)
>>> ada = RequestContext("acme", "ada", "helper")
>>> node = ContextNode("ctx://acme/users/ada/memories/preferences/tea", "", "memory", "preferences", "user:ada", "tea")
>>> fs.write_node(ada, node)
>>> fs.write_level(ada, node.uri, "L2", "- no sugar")
>>> fs.read_node(ada, node.uri).metadata["version"], fs.read_level(ada, node.uri, "L2")
(2, '- no sugar')
>>> _ = fs.undo(ada, fs.history(ada, node.uri)[0].commit_id)
>>> fs.read_level(ada, node.uri, "L2")
''
>>> fs.close(); folder.cleanup()

Readers take no lock. A node is whole if the digests in its metadata fit its files; else it is read again, at last under
the lock, behind a redo: then what is there is an edit by hand, and that is what is read.
"""

import contextlib
import os
import sqlite3
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from ..core.config import (
    ABSTRACT,
    CHECKPOINT_BYTES,
    CHECKPOINT_COMMITS,
    CONTENT,
    LEVEL_TOKENS,
    LEVELS,
    META,
    OVERVIEW,
    SPACE,
    UPSERT_CONTEXT,
)
from ..core.errors import (
    ConflictError,
    ContextEngineError,
    InvalidInputError,
    NodeNotFoundError,
    StoreCorruptError,
    StoreError,
    VersionConflictError,
)
from ..core.forks import watch_forks
from ..core.objects import ContextNode, HistoryEntry, NodeStat, NodeSummary, OutboxEvent, RequestContext
from ..core.text import CountTokens, count_tokens, mapping_of, merge_unique, shorten, strings_of
from .disk import Disk, boot_id
from .folders import Folders, Image
from .journal import MOVE, Commit, Journal, NodeRow, Step, put_event
from .meta import context_type_of, digests_of, is_whole, leads_on, read_meta, state_of
from .redo import copies_of, redo
from .transaction import Staged, Transaction, apply_steps
from .uri import Uri, check_access, check_context, parse_uri

__all__ = ["ContextFS"]

T = TypeVar("T")

_ATTEMPTS = 50
_KNOWN_EDITS = 1_024


class ContextFS:
    """The main store in a folder; any number of threads and processes may use it.

    Args:
        root: The folder; it is made where it is not there.
        clock: Seconds since the epoch.
        new_id: What makes ids of commits.
        count_tokens: How long a text is for a model.
        disk: The door to the operating system.
        readonly: Whether nothing is written, not even a lock; None looks whether the folder can be written.

    Raises:
        StoreError: The folder cannot be made or read.

    Cost: a millisecond; after a crash what was left undone is done again, and a folder without a journal (a clone) is
    read from end to end.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        count_tokens: CountTokens = count_tokens,
        disk: Disk | None = None,
        readonly: bool | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self.clock, self.new_id, self.count_tokens = clock, new_id, count_tokens
        self.boot = boot_id()
        self._disk = disk or Disk()
        self.readonly = bool(readonly) or (readonly is None and _is_readonly(self.root))
        self.space = self.root / SPACE
        self.folders = Folders(str(self.root), self._disk)
        self.journal = Journal(str(self.space / "journal.db"), self.readonly)
        self._thread_lock = threading.RLock()
        self._local = threading.local()
        self._depth = 0
        self._lock_fd = -1
        self._failure = ""
        self._is_closed = False
        self._since, self._bytes = 0, 0
        self.on_checkpoint: list[Callable[[], object]] = []  # called under the lock, after the sync
        self._edits: OrderedDict[str, str] = OrderedDict()  # uri -> state that was read under the lock
        watch_forks(self)
        self._open()

    def renew_after_fork(self) -> None:
        """Begin with locks of its own."""
        if self._lock_fd >= 0:
            self._disk.close(self._lock_fd)
        self._thread_lock, self._depth, self._lock_fd = threading.RLock(), 0, -1
        self._local = threading.local()

    # -- opening and closing --

    def _open(self) -> None:
        if self.readonly:
            if not self.root.is_dir():
                raise StoreError(f"no store at {str(self.root)!r}, and it may not be made")
            self.journal.open()
            return
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.space.mkdir(mode=0o700, exist_ok=True)
            ignore = self.space / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="ascii")
        except OSError as error:
            raise StoreError(f"no store can be made at {str(self.root)!r}: {error}") from error
        with self.locked(recover=False):
            is_new = not (self.space / "journal.db").exists()
            try:
                self.journal.open()
                if self._has_started_anew():
                    self.journal.check()
                    self._note_boot()
            except (sqlite3.DatabaseError, StoreCorruptError) as error:
                self._set_journal_aside(error)
                is_new = True
            redo(self.journal, self.folders, self.boot, self.space / "aside")
            if is_new or not self.journal.last_sequence():
                self._adopt_folder()

    def _has_started_anew(self) -> bool:
        return not self.journal.query("SELECT 1 FROM counters WHERE name = ?", (f"boot {self.boot}",))

    def _note_boot(self) -> None:
        """Remember which start of the machine this is; what the index did before may be lost."""
        self.journal.revive_events()
        with self.journal.writing() as connection:
            connection.execute("DELETE FROM counters WHERE name LIKE 'boot %'")
            connection.execute("INSERT INTO counters VALUES (?, 1)", (f"boot {self.boot}",))

    def _set_journal_aside(self, error: Exception) -> None:
        """Begin another journal: the files are the store, and the damaged one is kept."""
        self.journal.close()
        place = self.space / "aside" / f"journal-{os.urandom(4).hex()}"
        place.mkdir(mode=0o700, parents=True)
        for path in self.space.glob("journal.db*"):
            path.rename(place / path.name)
        self.journal = Journal(str(self.space / "journal.db"))
        self.journal.open()
        self._note_boot()
        self.journal.report(self.clock(), "", f"the journal was damaged ({error}): it is in {place.name}, undo is gone")

    def _adopt_folder(self) -> None:
        """Take in what is there without a journal: sequences go on above the highest, and all is indexed anew."""
        rows, spaces = [], []
        for space in self._spaces():
            spaces.append(space.text)
            for uri in self.walk(space):
                with contextlib.suppress(ContextEngineError, OSError):
                    image = self.folders.read(uri.folders)
                    meta = read_meta(uri, image)
                    rows.append(NodeRow(uri.text, meta["sequence"], meta["version"], state_of(image)))
        last = max((row.sequence for row in rows), default=0)
        self.journal.put_nodes(rows)
        with self.journal.writing() as connection:
            for text in spaces:
                event = OutboxEvent(
                    self.new_id(), UPSERT_CONTEXT, text, {"recursive": True}, "pending", 0, self.clock(), last
                )
                put_event(connection, event, self.clock(), "pending")
        self.journal.raise_sequence(last)

    def _spaces(self) -> Iterator[Uri]:
        for account in self.folders.children(()):
            for kind in ("users", "agents"):
                for owner in self.folders.children((account.name, kind)):
                    with contextlib.suppress(ContextEngineError):
                        uri = parse_uri(f"ctx://{unquote(account.name)}/{kind}/{unquote(owner.name)}")
                        if uri.folders == (account.name, kind, owner.name):
                            yield uri

    def spaces(self) -> list[str]:
        """Return the URI of every space of the store, whoever's: for workers and `verify`."""
        return [uri.text for uri in self._spaces()]

    def close(self) -> None:
        """Let all that was written last, and close the store.  Closing twice is no error."""
        if self._is_closed:
            return
        try:
            if not self.readonly and not self._failure:
                self.checkpoint()
        finally:
            self._is_closed = True
            self.journal.close()

    # -- the lock, and the five steps --

    @contextlib.contextmanager
    def locked(self, recover: bool = True) -> Iterator[None]:
        """Hold the store's lock, behind a redo of what a dead process left; may be nested."""
        if self.readonly:
            raise StoreError(f"the store at {str(self.root)!r} is read-only")
        with self._thread_lock:
            if self._is_closed:
                raise StoreError("the store was closed")
            if self._failure:
                raise StoreError(f"a sync has failed, open the store again: {self._failure}")
            self._depth += 1
            try:
                if self._depth == 1:
                    self._lock_fd = self._disk.open_lock(str(self.space / "lock"), create=True)
                    self._disk.lock(self._lock_fd)
                    if recover and self.journal.is_behind():
                        self._recover()
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._lock_fd >= 0:
                    fd, self._lock_fd = self._lock_fd, -1
                    self._disk.unlock(fd)  # closing would not do: a forked process may have it, too
                    self._disk.close(fd)

    def _recover(self) -> None:
        try:
            redo(self.journal, self.folders, self.boot, self.space / "aside")
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"what was committed cannot be written to the files yet: {error}") from error

    def log_and_apply(
        self,
        commit: Commit,
        nodes: Sequence[NodeRow],
        events: Sequence[tuple[OutboxEvent, float]],
        ended: Sequence[str],
    ) -> None:
        """Do steps 3 to 5 of a commit; the lock is held."""
        self.journal.log(commit, nodes, events, ended)
        apply_steps(self, commit)
        self.journal.mark_applied([commit.sequence], self.boot)
        self._since += 1
        self._bytes += sum(len(data or b"") for step in commit.steps for data in (step.before, step.after))
        if self._since >= CHECKPOINT_COMMITS or self._bytes >= CHECKPOINT_BYTES:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Let all files last, with one sync of the file system, and empty the journal's WAL.

        Raises:
            StoreError: The sync failed; nothing more is written until the store is opened again.

        Cost: one `syncfs`; tens of milliseconds.
        """
        with self.locked():
            self._since = self._bytes = 0
            if self.journal.waiting()[0]:
                fd = self._disk.open_root(str(self.root))
                try:
                    self._disk.sync_all(fd)
                except OSError as error:
                    self._failure = str(error)
                    with contextlib.suppress(StoreError):
                        self.journal.mark_failed()
                    raise StoreError(f"a sync has failed, open the store again: {error}") from error
                finally:
                    self._disk.close(fd)
            self.journal.mark_synced()
            self.journal.truncate()
            for follow in self.on_checkpoint:
                follow()

    # -- transactions --

    @contextlib.contextmanager
    def transaction(self, ctx: RequestContext, name: str = "write") -> Iterator[Transaction]:
        """Commit all that is written within, together; where something raises, nothing of it.

        Within another one of the same thread it is a part of that.

        Raises:
            VersionConflictError: At the end, where a node has changed since it was looked at.
        """
        check_context(ctx)
        outer = self._current()
        if outer is not None:
            if check_context(outer.ctx) != check_context(ctx):
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

    def _current(self) -> Transaction | None:
        found: Transaction | None = getattr(self._local, "transaction", None)
        return found

    def run(self, ctx: RequestContext, name: str, change: Callable[[Transaction], T]) -> T:
        """Run a change as a transaction, again where somebody else was quicker; within one, as a part of it."""
        outer = self._current()
        if outer is not None:
            return change(outer)
        for attempt in range(_ATTEMPTS):
            made = Transaction(self, ctx, name, self.new_id())
            self._local.transaction = made
            try:
                result = change(made)
            finally:
                self._local.transaction = None
            try:
                made.commit()
            except VersionConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return result
        raise AssertionError("unreachable")

    # -- where things are --

    def resolve_path(self, ctx: RequestContext, uri: str) -> str:
        """Return the folder of a URI, whether it is there or not.

        Raises:
            InvalidUriError, AccessDeniedError: See `check_access`.
        """
        return str(self.root.joinpath(*check_access(ctx, uri).folders))

    def read_image(self, uri: Uri) -> Image:
        """Return a node's files as they are, whole; {} where there are none.

        Cost: one open a file and folder. Of an edit that is new to this process: the lock, once.
        """
        image = self.folders.read(uri.folders)
        for pause in (0.0, 0.001, 0.005):
            if not image or is_whole(image) or leads_on(image.get(META, b"")):
                return image
            if self._edits.get(uri.text) == state_of(image):
                return image
            time.sleep(pause)
            image = self.folders.read(uri.folders)
        if self.readonly:
            return image
        with self.locked():
            image = self.folders.read(uri.folders)
        self._edits[uri.text] = state_of(image)
        if len(self._edits) > _KNOWN_EDITS:
            self._edits.popitem(last=False)
        return image

    def follow(self, ctx: RequestContext, uri: str) -> Uri:
        """Return where a node is now, if it has moved; else the URI itself.

        Raises:
            AccessDeniedError: It is not the request's.
        """
        found = check_access(ctx, uri)
        seen = {found.text}
        while True:
            to = leads_on(self.folders.read(found.folders, (META,)).get(META, b"")) or self._find_above(found)
            if not to or to in seen:
                return found
            try:
                found = check_access(ctx, to)
            except ContextEngineError:  # what leads outside leads nowhere
                return found
            seen.add(to)

    def _find_above(self, uri: Uri) -> str:
        """Return where a node is whose parent has moved, "" where none has."""
        if not uri.is_node or self.folders.is_folder(uri.folders):
            return ""
        for depth in range(len(uri.segments) - 1, 3, -1):
            to = leads_on(self.folders.read(uri.folders[:depth], (META,)).get(META, b""))
            if to:
                return "/".join((to, *uri.segments[depth:]))
        return ""

    def walk(self, uri: Uri) -> Iterator[Uri]:
        """Yield a node and all beneath it, parents first; what has moved away is left out."""
        for folders in self.folders.walk(uri.folders):
            text = "ctx://" + "/".join(map(unquote, folders))
            with contextlib.suppress(ContextEngineError):
                found = parse_uri(text)
                if found.folders == folders and not leads_on(self.folders.read(folders, (META,)).get(META, b"")):
                    yield found

    # -- reading --

    def exists(self, ctx: RequestContext, uri: str) -> bool:
        """Whether there is a node, at this place or where it has moved."""
        found = self.follow(ctx, uri)
        current = self._current()
        if current is not None:
            return current.has(found)
        image = self.folders.read(found.folders, (META,))
        return META in image and not leads_on(image[META])

    def stat_node(self, ctx: RequestContext, uri: str) -> NodeStat:
        """Return what is known of a node without reading its levels; one that is not there is no error."""
        found = self.follow(ctx, uri)
        stats = self.folders.stats(found.folders)
        if META not in stats:
            return NodeStat(found.text, False, 0, 0, 0.0)
        meta = read_meta(found, self.folders.read(found.folders, (META,)))
        size = sum(each.st_size for each in stats.values())
        return NodeStat(found.text, True, meta["version"], size, meta["updated_at"])

    def read_node(self, ctx: RequestContext, uri: str, include_content: bool = True) -> ContextNode:
        """Return a node.

        Args:
            ctx: Who asks.
            uri: The node's, or what it was before it moved.
            include_content: Whether L2 is wanted, too.

        Raises:
            NodeNotFoundError: There is none.
            StoreCorruptError: A file is no UTF-8, or too large; it is left as it is.
        """
        found, staged = self._look_up(ctx, uri)
        return self._node_of(found, staged, include_content)

    def _look_up(self, ctx: RequestContext, uri: str) -> tuple[Uri, Staged]:
        """Return a node, and where it is; only what is not where it was looked for is followed."""
        found = check_access(ctx, uri)
        try:
            return found, self._look(found)
        except NodeNotFoundError:
            led = self.follow(ctx, uri)
            if led == found:
                raise
            return led, self._look(led)

    def _look(self, uri: Uri) -> Staged:
        current = self._current()
        if current is not None:
            return current.look(uri)
        image = self.read_image(uri)
        if not image or leads_on(image.get(META, b"")):
            raise NodeNotFoundError(uri.text)
        return Staged({name: data for name, data in image.items() if name != META}, read_meta(uri, image))

    def _node_of(self, uri: Uri, staged: Staged, include_content: bool = True) -> ContextNode:
        meta = dict(staged.meta or {})
        texts = {
            name: _decode(uri, name, staged.files.get(name, b""))
            for name in ((ABSTRACT, OVERVIEW, CONTENT) if include_content else (ABSTRACT, OVERVIEW))
        }
        return ContextNode(
            uri=uri.text,
            parent_uri=uri.parent,
            context_type=meta.pop("type"),
            category=meta.pop("category"),
            owner_space=uri.owner_space,
            abstract=texts[ABSTRACT],
            overview=texts[OVERVIEW],
            content=texts.get(CONTENT, ""),
            metadata={**meta, "digests": digests_of(staged.files)},
        )

    def read_file(self, ctx: RequestContext, uri: str, name: str) -> bytes:
        """Return one of a node's files; b"" where it has none of the name."""
        return self._look_up(ctx, uri)[1].files.get(name, b"")

    def read_all(self, ctx: RequestContext, uri: str) -> tuple[ContextNode, Image]:
        """Return a node, and its files, as they were at one moment."""
        found, staged = self._look_up(ctx, uri)
        return self._node_of(found, staged), staged.files

    def read_level(self, ctx: RequestContext, uri: str, level: str) -> str:
        """Return a node's abstract (L0), overview (L1) or content (L2).

        Raises:
            InvalidInputError: There is no such level.
            NodeNotFoundError: There is no such node.
        """
        name = _file_of(level)
        found, staged = self._look_up(ctx, uri)
        return _decode(found, name, staged.files.get(name, b""))

    def read_metadata(self, ctx: RequestContext, uri: str) -> dict[str, Any]:
        """Return what `.meta.json` holds, with digests of the files as they are."""
        node = self.read_node(ctx, uri, include_content=False)
        return {"type": node.context_type, "category": node.category, **node.metadata}

    def list_children(
        self, ctx: RequestContext, uri: str, recursive: bool = False, depth: int = 1
    ) -> list[NodeSummary]:
        """Return what lies beneath a node, a folder or a space, by name, parents first.

        Args:
            ctx: Who asks.
            uri: Where to look; nothing there gives an empty list.
            recursive: All the way down.
            depth: So many levels.
        """
        if not isinstance(depth, int) or depth < 1:
            raise InvalidInputError(f"depth must be at least 1, not {shorten(depth)}")
        return list(self._list(self.follow(ctx, uri), 16 if recursive else depth))

    def _list(self, uri: Uri, depth: int) -> Iterator[NodeSummary]:
        for entry in self.folders.children(uri.folders):
            with contextlib.suppress(ContextEngineError):
                child = parse_uri(f"{uri.text}/{unquote(entry.name)}")
                if child.folders[-1] != entry.name:
                    continue
                image = self.folders.read(child.folders, (META,)) if entry.is_node else {}
                if leads_on(image.get(META, b"")):
                    if not self.folders.children(child.folders):
                        continue
                    image = {}
                meta = read_meta(child, image)
                yield NodeSummary(
                    child.text,
                    child.name,
                    not image,
                    bool(self.folders.children(child.folders)),
                    meta["category"] if image else "",
                    meta["updated_at"],
                )
                if depth > 1:
                    yield from self._list(child, depth - 1)

    # -- writing --

    def write_node(self, ctx: RequestContext, node: ContextNode) -> None:
        """Write a whole node: it is made, or takes the place of what is there.

        Args:
            ctx: Who writes.
            node: Where its metadata has a `version`, that must be the store's (0 is none); where it has `digests`, too,
                as a node that was read does, the files must be the same.

        Raises:
            VersionConflictError: The store has another version.
            InvalidInputError: A level is too long, or the metadata cannot be stored.
        """
        uri = self.follow(ctx, node.uri)
        files = {ABSTRACT: node.abstract, OVERVIEW: node.overview, CONTENT: node.content}
        encoded = {name: _encode(uri, name, text) for name, text in files.items()}
        if node.category != "sessions":
            self._check_lengths(uri, node.abstract, node.overview, node.content)

        def change(tx: Transaction) -> None:
            present = tx.look(uri) if tx.has(uri) else None
            _check_version(uri, node.metadata, present)
            meta = (present.meta if present else None) or read_meta(uri, {})
            meta |= {"type": node.context_type or context_type_of(node.category), "category": node.category}
            tx.put(uri, Staged({**(present.files if present else {}), **encoded}, meta | _check_meta(node.metadata)))

        self.run(ctx, "write_node", change)

    def write_files(self, ctx: RequestContext, uri: str, files: Mapping[str, bytes | None]) -> None:
        """Write some of a node's files as bytes; None removes one."""
        found = self.follow(ctx, uri)

        def change(tx: Transaction) -> None:
            staged = tx.look(found)
            for name, data in files.items():
                if data is None:
                    staged.files.pop(name, None)
                else:
                    staged.files[name] = data
            tx.put(found, staged)

        self.run(ctx, "write_files", change)

    def write_level(self, ctx: RequestContext, uri: str, level: str, text: str) -> None:
        """Write one level of a node.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidInputError: The text is longer than its level may be.
        """
        name = _file_of(level)
        found = self.follow(ctx, uri)
        data = _encode(found, name, text)

        def change(tx: Transaction) -> None:
            staged = tx.look(found)
            if (staged.meta or {})["category"] != "sessions":
                self._check_length(found, level, text)
            tx.put(found, Staged({**staged.files, name: data}, staged.meta))

        self.run(ctx, "write_level", change)

    def write_metadata(self, ctx: RequestContext, uri: str, metadata: Mapping[str, Any]) -> None:
        """Change a node's metadata: fields that are given take the place of what is there.

        Args:
            ctx: Who writes.
            uri: The node.
            metadata: As `read_metadata` gives it, or a part; `version` is the expected one.

        Raises:
            NodeNotFoundError: There is no such node.
            VersionConflictError: It has another version.
        """
        found = self.follow(ctx, uri)
        fields = _check_meta(metadata)

        def change(tx: Transaction) -> None:
            staged = tx.look(found)
            _check_version(found, metadata, staged)
            tx.put(found, Staged(staged.files, {**(staged.meta or {}), **fields}))

        self.run(ctx, "write_metadata", change)

    def move_node(self, ctx: RequestContext, from_uri: str, to_uri: str) -> None:
        """Give a node, with all beneath it, another place in its space; the old one leads on.

        Raises:
            NodeNotFoundError: There is none.
            ConflictError: The target is taken, lies beneath the node, or in another space.

        Cost: one rename and one event, whatever the size.
        """
        uri, to = self.follow(ctx, from_uri), check_access(ctx, to_uri)
        if uri.space != to.space:
            raise ConflictError(f"{to.text!r} is in another space than {uri.text!r}", uris=[to.text])
        if not (uri.is_node and to.is_node):
            raise ConflictError(f"a space cannot be moved, nor moved to: {uri.text!r}, {to.text!r}")
        if to.is_beneath(uri):
            raise ConflictError(f"{to.text!r} is {uri.text!r} itself, or beneath it", uris=[to.text])
        self.run(ctx, "move_node", lambda tx: tx.move(uri, to))

    def delete_node(self, ctx: RequestContext, uri: str, recursive: bool = False) -> None:
        """Delete a node; `undo` brings it back.

        Raises:
            NodeNotFoundError: There is none.
            ConflictError: It has children, and `recursive` is false.
        """
        found = self.follow(ctx, uri)

        def change(tx: Transaction) -> None:
            beneath = [child for child in self.walk(found) if child.text != found.text]
            if beneath and not recursive:
                raise ConflictError(f"{found.text!r} has children", uris=[child.text for child in beneath[:5]])
            if not beneath and not tx.has(found):
                raise NodeNotFoundError(found.text)
            for each in [found, *beneath]:
                if tx.has(each):
                    tx.look(each)
                    tx.put(each, Staged({}, None))

        self.run(ctx, "delete_node", change)

    def _check_lengths(self, uri: Uri, *levels: str) -> None:
        for level, text in zip(LEVELS, levels, strict=True):
            self._check_length(uri, level, text)

    def _check_length(self, uri: Uri, level: str, text: str) -> None:
        tokens = self.count_tokens(text)
        if tokens > LEVEL_TOKENS[level]:
            raise InvalidInputError(f"{level} of {uri.text!r} has {tokens} tokens, more than {LEVEL_TOKENS[level]}")

    # -- edits by hand --

    def is_edited(self, uri: Uri) -> bool:
        """Whether a node differs from what the journal last wrote. Cost: reads the node."""
        image = self.folders.read(uri.folders)
        row = self.journal.node(uri.text)
        return bool(image) and not leads_on(image.get(META, b"")) and (row is None or row.state != state_of(image))

    def adopt(self, ctx: RequestContext, uri: str) -> bool:
        """Make a version of what a hand has changed in a node, or made as a new one; False where nothing is new.

        Raises:
            StoreCorruptError: A file is no UTF-8; it is left as it is.
            NodeNotFoundError: Nothing is there.
        """
        found = self.follow(ctx, uri)
        with self.locked():
            image = self.folders.read(found.folders)
            if not image:
                row = self.journal.node(found.text)
                if row is None or not row.state:
                    raise NodeNotFoundError(found.text)
                return self._adopt_absence(ctx, found)
            if not self.is_edited(found):
                return False
            for name, data in image.items():
                _decode(found, name, data)

            self.run(ctx, "adopt", lambda tx: tx.put(found, tx.look(found), must=True))
        return True

    def _adopt_absence(self, ctx: RequestContext, uri: Uri) -> bool:
        """Take note of a node that a hand has removed."""
        with self.journal.writing() as connection:
            connection.execute("UPDATE nodes SET state = '' WHERE uri = ?", (uri.text,))
            event = OutboxEvent(self.new_id(), UPSERT_CONTEXT, uri.text, {}, "pending", 0, self.clock(), 0)
            put_event(connection, event, self.clock(), "pending")
        return True

    def find_edits(self, space: str) -> list[str]:
        """Return the nodes of a space that a hand has changed, made or removed. Cost: reads all of its nodes."""
        root = parse_uri(space)
        known = {row.uri for row in self.journal.nodes_beneath(root.text)}
        found = []
        for uri in self.walk(root):
            known.discard(uri.text)
            with contextlib.suppress(StoreError):
                if self.is_edited(uri):
                    found.append(uri.text)
        found += [uri for uri in known if not self.folders.exists(parse_uri(uri).folders)]
        found += [uri.text for uri in self._bare(root) if uri.text not in found]
        return found

    def _bare(self, uri: Uri) -> Iterator[Uri]:
        """Yield folders that a hand has put a content into, and no metadata."""
        for entry in self.folders.children(uri.folders):
            with contextlib.suppress(ContextEngineError):
                child = parse_uri(f"{uri.text}/{unquote(entry.name)}")
                if child.folders[-1] == entry.name:
                    if not entry.is_node and self.folders.exists(child.folders, CONTENT):
                        yield child
                    yield from self._bare(child)

    # -- what was --

    def history(self, ctx: RequestContext, uri: str, limit: int = 50) -> list[HistoryEntry]:
        """Return what commits made of a node, newest first, its former places included."""
        current, before = self.follow(ctx, uri).text, 1 << 62
        found: list[HistoryEntry] = []
        while len(found) < limit:
            move = self._last_move(current, before)
            since = move[0] if move else 0
            rows = self.journal.query(
                "SELECT c.id, c.sequence, c.name, c.at, c.author FROM commits c WHERE c.sequence IN (SELECT sequence"
                " FROM changes WHERE uri = ? AND sequence < ? AND sequence > ?) ORDER BY c.sequence DESC LIMIT ?",
                (current, before, since, limit - len(found)),
            )
            found += [self._entry(current, row) for row in rows]
            if move is None:
                break
            commit = self.journal.query(
                "SELECT id, sequence, name, at, author FROM commits WHERE sequence = ?", move[:1]
            )
            if commit and len(found) < limit:
                id_, number, name, at, author = commit[0]
                found.append(HistoryEntry(id_, number, name, at, author, "moved", {"uri": move[1]}, {"uri": current}))
            current, before = move[1], since
        return found

    def _last_move(self, uri: str, before: int) -> tuple[int, str] | None:
        """Return the sequence of the move that brought a node here, and where it was."""
        rows = self.journal.query(
            "SELECT sequence, uri, after FROM changes WHERE file = ? AND sequence < ? ORDER BY sequence DESC",
            (MOVE, before),
        )
        for sequence, source, after in rows:
            to = bytes(after).decode()
            if uri == to or uri.startswith(f"{to}/"):
                return sequence, source + uri[len(to) :]
        return None

    def former_uris(self, uri: str) -> list[str]:
        """Return where a node was before it moved, the last place first."""
        found: list[str] = []
        move = self._last_move(uri, 1 << 62)
        while move is not None:
            found.append(move[1])
            move = self._last_move(move[1], move[0])
        return [each for each in dict.fromkeys(found) if each != uri]

    def _entry(self, uri: str, row: Sequence[Any]) -> HistoryEntry:
        steps = [step for step in self.journal.steps(row[1]) if step.uri == uri and step.file != MOVE]
        before = {step.file: step.before.decode("utf-8", "replace") for step in steps if step.before is not None}
        after = {step.file: step.after.decode("utf-8", "replace") for step in steps if step.after is not None}
        change = "created" if META not in before else "deleted" if META not in after else "changed"
        return HistoryEntry(row[0], row[1], row[2], row[3], row[4], change, before, after)

    def undo(self, ctx: RequestContext, commit_id: str) -> str:
        """Take a commit back, as a new one: what it changed is as it was before.

        Returns:
            The id of the new commit, which can be undone, too.

        Raises:
            InvalidInputError: No commit has the id.
            AccessDeniedError: It changed what is not the request's.
            ConflictError: Later commits, or a hand, changed the same nodes; it names them. Or a part was forgotten.
        """
        commit = self.journal.find_commit(commit_id) if isinstance(commit_id, str) else None
        if commit is None:
            raise InvalidInputError(f"no commit has the id {shorten(commit_id)}")
        uris = {step.uri: check_access(ctx, step.uri) for step in commit.steps}
        if not commit.steps or any(plan.get("forgotten") for plan in commit.plans):
            raise ConflictError(f"what commit {commit.id} changed was forgotten")
        moves = [step for step in commit.steps if step.file == MOVE]
        self._refuse_later(commit, [*uris, *((step.after or b"").decode() for step in moves)])
        if moves:
            there, back = parse_uri((moves[0].after or b"").decode()), parse_uri(moves[0].uri)
            return self.run(ctx, f"undo {commit.name}", lambda tx: tx.move(there, back))

        def change(tx: Transaction) -> str:
            for text, uri in uris.items():
                self._stage_before(tx, uri, [step for step in commit.steps if step.uri == text])
            return tx.commit_id

        return self.run(ctx, f"undo {commit.name}", change)

    def _stage_before(self, tx: Transaction, uri: Uri, steps: Sequence[Step]) -> None:
        """Stage a node as it was before some steps."""
        present = self.read_image(uri)
        if any(present.get(step.file) != step.after for step in steps):
            raise ConflictError(f"{uri.text!r} was edited since", uris=[uri.text])
        # Of an adopted edit the journal may not know what was there before: then that stays.
        is_adopted = any(step.file == META and step.before is not None for step in steps)
        known = [step for step in steps if step.before is not None or not is_adopted]
        image = {**present, **{step.file: step.before for step in known}}
        before = {name: data for name, data in image.items() if data is not None}
        if META not in before or leads_on(before[META]):
            tx.put(uri, Staged({}, None))
        else:
            files = {name: data for name, data in before.items() if name != META}
            tx.put(uri, Staged(files, read_meta(uri, before)))

    def _refuse_later(self, commit: Commit, uris: Iterable[str]) -> None:
        later = {
            row[0]: row[1]
            for uri in uris
            for row in self.journal.query(
                "SELECT c.id, h.uri FROM changes h JOIN commits c USING (sequence) WHERE h.sequence > ? AND"
                " (h.uri = ? OR (h.file = ? AND ? > h.uri || '/' AND ? < h.uri || '0'))",
                (commit.sequence, uri, MOVE, uri, uri),
            )
        }
        if later:
            raise ConflictError(
                f"later commits changed the same nodes: {', '.join(later)}", sorted(later.values()), list(later)
            )

    def log(self, ctx: RequestContext, limit: int = 20) -> list[dict[str, Any]]:
        """Return the last commits that changed something of the request's, newest first."""
        spaces = check_context(ctx)
        rows = self.journal.query(
            "SELECT c.id, c.sequence, c.name, c.at, c.author, c.state, group_concat(DISTINCT h.uri) FROM commits c JOIN"
            " changes h USING (sequence) WHERE "
            + " OR ".join("(h.uri >= ? AND h.uri < ?)" for _ in spaces)
            + " GROUP BY c.sequence ORDER BY c.sequence DESC LIMIT ?",
            (*(bound for space in spaces for bound in (f"{space}/", f"{space}0")), limit),
        )
        names = ("id", "sequence", "name", "at", "author", "state")
        return [{**dict(zip(names, row, strict=False)), "uris": sorted(row[6].split(","))} for row in rows]

    def prune(self, before: float) -> int:
        """Drop the history of commits older than a time, in seconds since the epoch; what is now stays.

        Returns:
            How many commits it were; they cannot be undone any more.
        """
        self.checkpoint()
        with self.locked(), self.journal.writing() as connection:
            old = "SELECT sequence FROM commits WHERE state = 'synced' AND at < ?"
            connection.execute(f"DELETE FROM changes WHERE sequence IN ({old})", (before,))
            count = connection.execute("DELETE FROM commits WHERE state = 'synced' AND at < ?", (before,)).rowcount
        self.journal.rewrite()
        return count

    def erase(self, gone: Sequence[str], kept: Sequence[str] = ()) -> None:
        """Drop every image of some nodes, so that no file here holds a byte of what they said.

        Args:
            gone: Nodes that are deleted: all that names them goes, too.
            kept: Nodes that stay as they are now, without a past.

        Cost: a sync, and the journal is written anew.
        """
        self.checkpoint()  # the images are what a power cut would need
        with self.locked():
            with self.journal.writing("FULL") as connection:
                for uri in [*gone, *kept]:
                    beneath = (uri, f"{uri}/", f"{uri}0")
                    where = "(uri = ? OR (uri >= ? AND uri < ?))" if uri in gone else "uri = ?"
                    values = beneath if uri in gone else (uri,)
                    connection.execute(
                        "UPDATE commits SET plans = '[{\"forgotten\": true}]' WHERE sequence IN"
                        f" (SELECT sequence FROM changes WHERE {where})",
                        values,
                    )
                    connection.execute(f"DELETE FROM changes WHERE {where}", values)
                    connection.execute(f"DELETE FROM reports WHERE {where}", values)
                    if uri in gone:
                        connection.execute(f"DELETE FROM nodes WHERE {where}", values)
                        connection.execute(f"DELETE FROM outbox WHERE {where}", values)
                        connection.execute("DELETE FROM changes WHERE file = ? AND after = ?", (MOVE, uri.encode()))
            for place in copies_of(self.space / "aside", [*gone, *kept]):
                for path in place.iterdir():
                    path.unlink()
                place.rmdir()
            self.journal.rewrite()


def _is_readonly(root: Path) -> bool:
    return root.is_dir() and not os.access(root, os.W_OK)


def _file_of(level: str) -> str:
    if level not in LEVELS:
        raise InvalidInputError(f"level must be one of {', '.join(LEVELS)}, not {shorten(level)}")
    return LEVELS[level]


def _encode(uri: Uri, name: str, text: str) -> bytes:
    if not isinstance(text, str):
        raise InvalidInputError(f"{name} of {uri.text!r} must be a string, not {shorten(text)}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name} of {uri.text!r} holds half a character: {error}") from error


def _decode(uri: Uri, name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StoreCorruptError(f"{name} of {uri.text!r} is no UTF-8 (byte {error.start})") from error


def _check_version(uri: Uri, metadata: Mapping[str, Any], present: Staged | None) -> None:
    expected = metadata.get("version")
    if expected is None:
        return
    current = (present.meta or {})["version"] if present else 0
    digests = metadata.get("digests")
    if expected != current or (digests is not None and present and digests != digests_of(present.files)):
        raise VersionConflictError(uri.text, expected, current)


def _check_meta(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a node's metadata that a caller may set."""
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata must be an object, not {shorten(metadata)}")
    fields: dict[str, Any] = {}
    if "title" in metadata:
        if not isinstance(metadata["title"], str) or not metadata["title"].strip():
            raise InvalidInputError(f"title must be a text, not {shorten(metadata['title'])}")
        fields["title"] = metadata["title"]
    for name in ("aliases", "confirmed"):
        if name in metadata:
            if strings_of(metadata[name]) != list(metadata[name] or ()):
                raise InvalidInputError(f"{name} must be a list of strings, not {shorten(metadata[name])}")
            fields[name] = list(dict.fromkeys(metadata[name]))
    if "source_refs" in metadata:
        fields["source_refs"] = merge_unique(mapping_of(ref) for ref in metadata["source_refs"])
    if "metadata" in metadata:
        if not isinstance(metadata["metadata"], Mapping):
            raise InvalidInputError(f"metadata must be an object, not {shorten(metadata['metadata'])}")
        fields["metadata"] = dict(metadata["metadata"])
    for name in ("type", "category"):
        if isinstance(metadata.get(name), str):
            fields[name] = metadata[name]
    if isinstance(metadata.get("created_at"), (int, float)) and metadata["created_at"]:
        fields["created_at"] = float(metadata["created_at"])
    return fields
