"""`IndexWorker`: takes events from the outbox, and makes the index equal to the main store where they point.

`IndexSpaces` opens the index of each owner space when it is needed: isolation needs no filter.

An event says where to look, not what to write: it may come twice, late, or in any order. The main store is read again
while the index is held for writing, so that of two workers none leaves an older state.
"""

import contextlib
import itertools
import logging
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ...base.forks import watch_forks
from ...finding.embedder import Embedder
from ...finding.index import LostIndexError
from ...keyword_tree import HideKeys
from ..core.config import (
    DELETE_CONTEXT,
    LEASE_S,
    MESSAGES,
    META,
    MOVE_CONTEXT,
    RELATIONS,
    SESSIONS,
    UPSERT_CONTEXT,
    UPSERT_RELATION,
)
from ..core.errors import ContextEngineError, InvalidUriError, ProviderDownError, StoreCorruptError, StoreError
from ..core.messages import decode_messages
from ..core.objects import ContextNode, GraphStore, IndexBatchResult, OutboxEvent, RequestContext
from ..fs.context_fs import ContextFS
from ..fs.meta import leads_on, read_edges
from ..fs.uri import Uri, parse_uri
from ..providers.word_index import IndexedNode, WordIndex, projected_digest
from .outbox_store import OutboxStore
from .record_builder import IndexProjector

_log = logging.getLogger(__name__)


class IndexSpaces:
    """A folder for each space, `{account}/{space}/`."""

    def __init__(self, folder: Path, readonly: bool = False, embedder: Embedder | None = None) -> None:
        self.folder, self._readonly, self._embedder = folder, readonly, embedder
        self._lock = threading.Lock()
        self._open: dict[str, WordIndex] = {}
        self.notes: dict[str, str] = {}  # by space: why its file is not used
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with a lock of its own."""
        self._lock = threading.Lock()

    def folder_of(self, space: str) -> Path:
        """Return where a space's index lies."""
        uri = parse_uri(space)
        return self.folder / uri.folders[0] / f"{uri.segments[1]}={uri.folders[2]}"

    def words(self, uri: str) -> WordIndex:
        """Return the words of the space that a URI lies in. Cost: a millisecond, the first time.

        Where the file cannot be used they are kept in memory, and `notes` says why.
        """
        space = parse_uri(uri).space
        with self._lock:
            made = self._open.get(space)
            if made is None:
                try:
                    path = self.folder_of(space) / "index.db"
                    made = self._open[space] = WordIndex(path, self._readonly, self._embedder)
                except (sqlite3.Error, OSError, LostIndexError) as error:
                    made = self._stand_in(space, error)
            return made

    def _stand_in(self, space: str, error: BaseException) -> WordIndex:
        self.notes[space] = f"the index of {space} cannot be used, its files are looked through: {error}"
        _log.warning("%s", self.notes[space])
        made = self._open[space] = WordIndex(None)
        return made

    def recover(self, uri: str, error: BaseException) -> None:
        """Let a space be found again after its index has failed.

        One that was damaged is empty by now, and is filled again; what is locked, or on a full disk, is done without
        until `retry`.
        """
        space = parse_uri(uri).space
        with self._lock:
            if isinstance(error, LostIndexError) and not self._readonly:
                _log.warning("the index of %s was damaged, and is made again: %s", space, error)
            elif space not in self.notes:
                self._stand_in(space, error)

    def retry(self) -> None:
        """Try the files again of what is kept in memory meanwhile."""
        with self._lock:
            for space in list(self.notes):
                with contextlib.suppress(sqlite3.Error, OSError, LostIndexError):
                    made = WordIndex(self.folder_of(space) / "index.db", self._readonly, self._embedder)
                    with contextlib.nullcontext() if self._readonly else made.writing():
                        pass
                    self._open[space] = made
                    del self.notes[space]

    def note(self, uri: str) -> str:
        """Return why the index of a space is not used, "" where it is."""
        return self.notes.get(parse_uri(uri).space, "")

    def close(self) -> None:
        """Close all that is open."""
        with self._lock:
            for index in self._open.values():
                index.close()
            self._open = {}


_TOGETHER = 200  # nodes that are projected while the index is held: others wait for it two seconds
_ARCHIVE = 25  # what one of 1,000 messages counts among them

Handler = Callable[[OutboxEvent, RequestContext], None]


def context_of(uri: str) -> RequestContext:
    """Return a request that sees the space a URI lies in: the worker's own."""
    parsed = parse_uri(uri)
    kind, _, owner = parsed.owner_space.partition(":")
    return RequestContext(parsed.account, owner if kind == "user" else "-", owner if kind == "agent" else "-")


class IndexWorker:
    """One worker; any number of them may run, in any number of processes."""

    def __init__(
        self, fs: ContextFS, outbox: OutboxStore, spaces: IndexSpaces, graph: GraphStore | None = None
    ) -> None:
        self._fs, self._outbox, self._spaces, self._graph = fs, outbox, spaces, graph
        self._projector = IndexProjector()
        self.worker_id = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.handlers: dict[str, Handler] = {
            UPSERT_CONTEXT: lambda event, ctx: self.reconcile(event.uri, bool(event.payload.get("recursive"))),
            DELETE_CONTEXT: self._delete,
            MOVE_CONTEXT: self._move,
            UPSERT_RELATION: lambda event, ctx: self.copy_edges(event.uri),
        }
        """The handler of each type; an engine that extracts adds its own."""

    def run_once(self, limit: int = 100) -> IndexBatchResult:
        """Work off at most `limit` events that are due.

        An event that fails comes again later; after 8 times, or where no retry helps, it is dead. What needs a provider
        that is down waits for it.
        """
        result = IndexBatchResult()
        self._spaces.retry()
        events = self._outbox.claim_batch(self.worker_id, limit)
        left = {event.event_id for event in events}
        with self._renewing(left):
            for batch in batches(events):
                result.claimed += len(batch)
                if len(batch) == 1 or not self._work_together(batch, result):
                    for event in batch:
                        self._work(event, result)
                left.difference_update(event.event_id for event in batch)
        return result

    def _work_together(self, events: Sequence[OutboxEvent], result: IndexBatchResult) -> bool:
        """Handle events in one transaction; where that fails, nothing was done, and each is handled alone."""
        try:
            self.handle_together(events)
        except Exception:
            return False
        if self._spaces.note(events[0].uri):
            return False
        self._outbox.mark_done([event.event_id for event in events], self.worker_id)
        result.succeeded += len(events)
        return True

    def _work(self, event: OutboxEvent, result: IndexBatchResult) -> None:
        try:
            self.handle_event(event, context_of(event.uri))
            if note := self._spaces.note(event.uri):
                raise StoreError(note)  # what is in memory alone is not done
        except ProviderDownError as error:
            self._outbox.postpone(event.event_type, HideKeys(str(error)))
            result.retried += 1
        except Exception as error:  # whatever it is, the other events go on, and this one is not lost
            if isinstance(error, LostIndexError):
                self._spaces.recover(event.uri, error)
            is_final = isinstance(error, (StoreCorruptError, InvalidUriError, KeyError))
            said = HideKeys(f"{type(error).__name__}: {error}")  # of an embedder, say
            _log.warning("event %s at %s failed: %s", event.event_type, event.uri, said)
            self._outbox.mark_failed(event.event_id, said, not is_final, self.worker_id)
            result.failed += is_final
            result.retried += not is_final
        else:
            self._outbox.mark_done([event.event_id], self.worker_id)
            result.succeeded += 1

    @contextlib.contextmanager
    def _renewing(self, event_ids: set[str]) -> Iterator[None]:
        """Renew the leases of what is left of a batch for as long as it takes; most batches are over long before."""
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(LEASE_S / 3):
                for event_id in list(event_ids):
                    self._outbox.renew(event_id, self.worker_id)

        thread = threading.Thread(target=renew, daemon=True)
        if event_ids:
            thread.start()
        try:
            yield
        finally:
            is_over.set()

    def handle_event(self, event: OutboxEvent, ctx: RequestContext) -> None:
        """Do what one event asks for; twice is as good as once. A `KeyError` says that nothing handles its type."""
        self.handlers[event.event_type](event, ctx)

    def handle_together(self, events: Sequence[OutboxEvent]) -> None:
        """Handle a batch of `batches` in one transaction of its index: a term's postings are then written once."""
        words = self._spaces.words(events[0].uri)
        with words.writing() if len(events) > 1 else contextlib.nullcontext():
            for event in events:
                self.handle_event(event, context_of(event.uri))

    # -- looking --

    def reconcile(self, uri: str, recursive: bool = False) -> None:
        """Make the index equal to the main store at a URI, and under it.

        Cost: reads the nodes there; those that the index knows as they are cost no more than that.
        """
        parsed = parse_uri(uri)
        index = self._spaces.words(parsed.text)
        if not recursive:
            with index.writing():
                self._project(index, parsed)
            return
        found: set[str] = set()
        nodes = self._fs.walk(parsed)
        while chunk := list(itertools.islice(nodes, _TOGETHER)):
            found.update(each.text for each in chunk)
            with index.writing():
                for each in chunk:
                    self._project(index, each)
        with index.writing():
            for node in index.nodes_under(parsed.text):
                if node.uri not in found:
                    self._project(index, parse_uri(node.uri))
        if parsed.text == parsed.space:
            index.mark_whole()

    def _project(self, index: WordIndex, uri: Uri) -> None:
        """Let the index hold one node as it is now."""
        try:
            image = self._fs.read_image(uri, may_lock=False) if uri.is_node else {}
            if META not in image or leads_on(image[META]):
                index.remove(uri.text)
                return
            known, node = index.node(uri.text), self._fs.node_of(uri, image, uri.category != SESSIONS)
            digest = projected_digest(uri.text, node.metadata, node.category, node.metadata["digests"])
            if known is not None and known.digest == digest:
                return
            if node.category == SESSIONS:
                damage: list[StoreCorruptError] = []
                data, at = image.get(MESSAGES, b""), node.metadata["created_at"]
                node.metadata["messages"] = decode_messages(data, uri.text, at, damage)
                for each in damage:
                    self._report(uri, each)
        except ContextEngineError as error:  # it is left out, and reported; the others are found
            index.remove(uri.text)
            if isinstance(error, StoreError):
                self._report(uri, error)
            return
        records = self._projector.build_context_records(node)
        sequence = int(node.metadata["sequence"])
        held = known.sequence if known is not None else 0  # a hand may have put an older one back
        named = IndexedNode(uri.text, max(sequence, held), digest, node.category)
        index.replace(named, records, _names_of(uri, node), uri.parent if node.category == SESSIONS else "")

    def _report(self, uri: Uri, error: StoreError) -> None:
        """Report once what of a node is not indexed."""
        if not any(row[1:] == (uri.text, str(error)) for row in self._fs.journal.reports()):
            if not self._fs.readonly:
                self._fs.journal.report(self._fs.clock(), uri.text, str(error))
            _log.warning("%s is not indexed: %s", uri.text, error)

    def _move(self, event: OutboxEvent, ctx: RequestContext) -> None:
        projection = self._projector.build_move_records(event.uri, str(event.payload["to_uri"]))
        self.reconcile(projection.old_uri, recursive=True)
        self.reconcile(projection.new_uri, recursive=True)

        for uri in self._fs.walk(parse_uri(projection.new_uri)) if self._graph is not None else ():
            self.copy_edges(projection.old_uri + uri.text[len(projection.new_uri) :])
            self.copy_edges(uri.text)

    def _delete(self, event: OutboxEvent, ctx: RequestContext) -> None:
        self.reconcile(event.uri, recursive=True)
        self.copy_edges(event.uri)

    def copy_edges(self, uri: str) -> None:
        """Let the graph have the edges that a node has now, where there is a graph; a node that is gone has none."""
        if self._graph is not None:
            image = self._fs.folders.read(parse_uri(uri).folders, (RELATIONS,))
            if hasattr(self._graph, "remove_edges"):  # a later addition to the port
                self._graph.remove_edges(uri)
            if edges := read_edges(uri, image.get(RELATIONS, b"")):
                self._graph.upsert_edges(edges)


def batches(events: Iterable[OutboxEvent]) -> Iterator[list[OutboxEvent]]:
    """Yield events in batches that one transaction can serve: looks at nodes of one space; any other alone."""
    batch: list[OutboxEvent] = []
    size = 0
    for event in events:
        is_look = event.event_type == UPSERT_CONTEXT and not event.payload.get("recursive")
        weight = _ARCHIVE if f"/{SESSIONS}/" in event.uri else 1
        if batch and not (is_look and _space_of(event) == _space_of(batch[0]) and size + weight <= _TOGETHER):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += weight if is_look else _TOGETHER
    if batch:
        yield batch


def _space_of(event: OutboxEvent) -> list[str]:
    return event.uri.split("/")[:5]


def _names_of(uri: Uri, node: ContextNode) -> Sequence[str]:
    if node.category == SESSIONS:
        return ()
    title, aliases = str(node.metadata.get("title") or ""), node.metadata.get("aliases", ())
    path = "/".join(uri.segments[3:])
    return [uri.name, title, *aliases, *node.metadata.get("confirmed", ()), path]
