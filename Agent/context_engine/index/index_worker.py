"""`IndexWorker`: takes events from the outbox, and makes the index equal to the main store where they point.

`IndexSpaces` opens the index of each owner space when it is needed: isolation needs no filter.

An event says where to look, not what to write: it may come twice, late, or in any order. The main store is read again
while the index is held for writing, so that of two workers none leaves an older state.
"""

import contextlib
import itertools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...base.forks import watch_forks
from ...base.keys import hide_keys
from ...base.text import digest_of
from ...finding.embedder import Meaning
from ..core.config import (
    DELETE_CONTEXT,
    MESSAGES,
    META,
    MOVE_CONTEXT,
    RELATIONS,
    SESSIONS,
    UPSERT_CONTEXT,
    UPSERT_RELATION,
)
from ..core.errors import (
    ContextEngineError,
    InvalidUriError,
    NodeNotFoundError,
    ProviderDownError,
    StoreCorruptError,
    StoreError,
)
from ..core.messages import decode_messages
from ..core.objects import (
    ContextNode,
    GraphStore,
    IndexBatchResult,
    IndexRecord,
    MoveProjection,
    OutboxEvent,
    RelationEdge,
    RelationIndexRecord,
    RequestContext,
)
from ..fs.context_fs import ContextFS, node_of
from ..fs.folders import Image
from ..fs.meta import read_edges, staged_of
from ..fs.uri import Uri, parse_uri
from ..providers import IndexedVectors, WordIndex, passages_of, projected_digest
from .outbox_store import LEASE_S, OutboxStore


def record_id(uri: str, level: int, part: int = 0) -> str:
    """Return the id of a level of a node in every index; from the second passage on, with its number."""
    return digest_of(uri, str(level), *([str(part)] if part else []), size=8)


class IndexProjector:
    """A node's levels, its edges and its moves as records: pure functions.

    Level 0 is the abstract with title and aliases, level 1 the overview; an archive has no level 1. Level 2 is a record
    for each entry or passage of the content, and of an archive for each passage of each message, with who said it; the
    node of an archive brings its messages in `metadata["messages"]`.
    """

    def build_context_records(self, node: ContextNode) -> list[IndexRecord]:
        """Return a node's records: L0, L1, and each passage or message of L2."""
        is_archive, meta = node.category == SESSIONS, node.metadata
        filters = {"owner_space": node.owner_space, "account": node.uri.split("/")[2], "category": node.category}

        def record(level: int, part: int, text: str, metadata: dict[str, Any]) -> IndexRecord:
            place = node.uri, node.parent_uri, node.context_type, node.category
            id, sequence = record_id(node.uri, level, part), int(meta.get("sequence") or 0)
            return IndexRecord(id, *place, level, text, filters, metadata, part, sequence)

        at = {"at": meta.get("updated_at") or 0.0}
        names = [] if is_archive else [meta.get("title") or "", *meta.get("aliases", ())]
        found = [record(0, 0, "\n".join(filter(None, [*dict.fromkeys(names), node.abstract])), at)]
        if node.overview.strip() and not is_archive:  # an archive is found by its messages
            found.append(record(1, 0, node.overview, at))
        passages = passages_of(node, meta.get("messages") or ())
        return [*found, *(record(2, part, text, metadata) for part, text, metadata in passages)]

    def build_relation_records(self, uri: str, edges: Sequence[RelationEdge]) -> list[RelationIndexRecord]:
        """Return a node's edges as records, one for each (from, to, type)."""
        found = []
        for edge in edges:
            key, metadata = (uri, edge.to_uri, edge.relation_type), {"reason": edge.reason, "weight": edge.weight}
            found.append(RelationIndexRecord(digest_of(*key, size=8), *key, metadata))
        return found

    def build_move_records(self, from_uri: str, to_uri: str) -> MoveProjection:
        """Return the changes of a move."""
        return MoveProjection(from_uri, to_uri, parse_uri(from_uri).parent, parse_uri(to_uri).parent)


_log = logging.getLogger(__name__)


class IndexSpaces:
    """A folder for each space, `{account}/{space}/`."""

    def __init__(
        self,
        folder: Path,
        meaning: Meaning | None = None,
        beside: Callable[[dict[str, str]], IndexedVectors] | None = None,
    ) -> None:
        self.folder, self._meaning, self._beside = folder, meaning, beside
        self._lock = threading.Lock()  # two openings of one file would wait for each other
        self._open: dict[str, WordIndex] = {}
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with a lock of its own."""
        self._lock = threading.Lock()

    def folder_of(self, space: str) -> Path:
        """Return where a space's index lies."""
        uri = parse_uri(space)
        return self.folder / uri.folders[0] / f"{uri.segments[1]}={uri.folders[2]}"

    def words(self, uri: str) -> WordIndex:
        """Return the words of the space that a URI lies in; for its errors see `WordIndex`.

        Cost: a millisecond, the first time.
        """
        parsed = parse_uri(uri)
        with self._lock:
            if parsed.space not in self._open:
                filters = {"account": parsed.account, "owner_space": parsed.owner_space}
                vectors = self._beside(filters) if self._beside is not None else None
                path = self.folder_of(parsed.space) / "index.db"
                self._open[parsed.space] = WordIndex(path, self._meaning, vectors)
            return self._open[parsed.space]

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
        events = self._outbox.claim_batch(self.worker_id, limit)
        result = IndexBatchResult(claimed=len(events))
        with self._renewing([event.event_id for event in events]):
            for batch in batches(events):
                self._work(batch, result)
        return result

    def _work(self, events: Sequence[OutboxEvent], result: IndexBatchResult) -> None:
        """Handle a batch; where it fails, nothing was done, and each of its events is handled alone."""
        try:
            self.handle_together(events)
        except Exception as error:  # whatever it is, the other events go on, and this one is not lost
            if len(events) == 1:
                self._fail(events[0], error, result)
            else:
                for event in events:
                    self._work([event], result)
        else:
            self._outbox.mark_done([event.event_id for event in events], self.worker_id)
            result.succeeded += len(events)

    def _fail(self, event: OutboxEvent, error: Exception, result: IndexBatchResult) -> None:
        said = hide_keys(error)  # of an embedder, say
        _log.warning("event %s at %s failed: %s", event.event_type, event.uri, said)
        is_final = isinstance(error, (StoreCorruptError, InvalidUriError, KeyError))
        if isinstance(error, ProviderDownError):
            self._outbox.postpone(event.event_type, said)
        else:
            self._outbox.mark_failed(event.event_id, said, not is_final, self.worker_id)
        result.failed += is_final
        result.retried += not is_final

    @contextlib.contextmanager
    def _renewing(self, event_ids: Sequence[str]) -> Iterator[None]:
        """Renew the leases of a batch for as long as it takes; most batches are over long before."""
        is_over = threading.Event()

        def renew() -> None:
            while not is_over.wait(LEASE_S / 3):
                for event_id in event_ids:
                    self._outbox.renew(event_id, self.worker_id)

        if event_ids:
            threading.Thread(target=renew, daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    def handle_event(self, event: OutboxEvent, ctx: RequestContext) -> None:
        """Carry out one event; twice is as good as once. A `KeyError` says that nothing handles its type."""
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
            for gone in index.digests_under(parsed.text).keys() - found:
                self._project(index, parse_uri(gone))
        if parsed.text == parsed.space:
            index.mark_whole()

    def _project(self, index: WordIndex, uri: Uri) -> None:
        """Let the index hold one node as it is now."""
        try:
            node, image = self._read(uri)
            digest = projected_digest(node)
            if index.digests([uri.text]).get(uri.text) == digest:
                return
            records = self._records(uri, node, image)
        except ContextEngineError as error:  # it is gone, or left out, and reported; the others are found
            index.remove(uri.text)
            if isinstance(error, StoreError):
                self._report(uri, error)
            return
        index.replace(digest, records, _names_of(uri, node), uri.parent if node.category == SESSIONS else "")

    def _read(self, uri: Uri) -> tuple[ContextNode, Image]:
        """Return a node as it is now, of an archive without its page, and its files."""
        image = self._fs.read_image(uri, may_lock=False) if uri.is_node else {}
        if META not in image:
            raise NodeNotFoundError(uri.text)
        return node_of(uri, staged_of(uri, image), uri.category != SESSIONS), image

    def _records(self, uri: Uri, node: ContextNode, image: Image) -> list[IndexRecord]:
        """Return a node's records; damaged lines of an archive are reported."""
        if node.category == SESSIONS:
            damage: list[StoreCorruptError] = []
            data, at = image.get(MESSAGES, b""), node.metadata["created_at"]
            node.metadata["messages"] = decode_messages(data, uri.text, at, damage)
            for each in damage:
                self._report(uri, each)
        return self._projector.build_context_records(node)

    def records_of(self, uri: str) -> list[IndexRecord]:
        """Return the records of a node as it is now."""
        parsed = parse_uri(uri)
        return self._records(parsed, *self._read(parsed))

    def _report(self, uri: Uri, error: StoreError) -> None:
        """Report once which parts of a node are not indexed."""
        if not any(row[1:] == (uri.text, str(error)) for row in self._fs.journal.reports()):
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
        weight = _TOGETHER if not is_look else _ARCHIVE if f"/{SESSIONS}/" in event.uri else 1
        if batch and (size + weight > _TOGETHER or parse_uri(event.uri).space != parse_uri(batch[0].uri).space):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += weight
    if batch:
        yield batch


def _names_of(uri: Uri, node: ContextNode) -> Sequence[str]:
    if node.category == SESSIONS:
        return ()
    title, aliases = str(node.metadata.get("title") or ""), node.metadata.get("aliases", ())
    path = "/".join(uri.segments[3:])
    return [uri.name, title, *aliases, *node.metadata.get("confirmed", ()), path]
