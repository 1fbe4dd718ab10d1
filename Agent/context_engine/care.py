"""`Forgetter`, which erases memories, and `verify_store`, which compares files, journal, index and outbox.

`forget` removes from every file: the memory with its whole folder, the messages it cites, references to it (edges,
archives that count it as used), their images in the journal, their words and vectors in the index, and copies in
`.ctx/aside/`.

One transaction deletes the memory, empties the messages, and registers what is left to do; a worker finishes it after a
crash. What stays of a message is its id and a digest, so that the session, committed again, does not bring it back.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.text import mapping_of, strings_of
from ..finding.index import LostIndexError
from .commit.archive_builder import describe_archive, render_archive
from .commit.commit_coordinator import Ledger
from .core.config import FILES, MESSAGES, META, RELATIONS, SESSIONS
from .core.errors import ContextEngineError, InvalidInputError, NodeNotFoundError, StoreError
from .core.messages import decode_messages, forgotten_digest
from .core.objects import ForgetResult, Message, OutboxEvent, RequestContext, SessionArchive
from .fs.context_fs import ContextFS
from .fs.folders import Image
from .fs.main_store import Transaction
from .fs.meta import Staged, read_edges, read_meta, write_edges
from .fs.uri import Uri, check_access, parse_uri, space_uris, uri_of
from .index.index_worker import IndexSpaces, IndexWorker, context_of
from .index.outbox_store import OutboxStore
from .providers import projected_digest

_log = logging.getLogger(__name__)

FORGET = "FORGET_CONTEXT"


class Forgetter:
    """Forgets; see the top of this file."""

    def __init__(self, fs: ContextFS, worker: IndexWorker, spaces: IndexSpaces, outbox: OutboxStore) -> None:
        self._fs, self._worker, self._spaces, self._outbox = fs, worker, spaces, outbox

    def forget(self, ctx: RequestContext, uri: str) -> ForgetResult:
        """Forget a memory; see `ContextEngineService.forget`."""
        if not check_access(ctx, uri).is_node:
            raise InvalidInputError(f"{uri!r} is no memory, but a whole space")
        found = self._fs.present_uri(parse_uri(uri))
        result, payload = ForgetResult([], [], []), dict[str, Any]()

        def change(tx: Transaction) -> list[OutboxEvent]:
            payload.update(self._stage(ctx, tx, found, result))
            # At a memory that is gone, so that the journal drops the event with all else that names it.
            tx.add_event(FORGET, (payload["gone"] or [found.text])[0], dict(payload))
            return tx.events

        events = self._fs.run(ctx, "forget", change)
        result.note = self.finish(payload)
        self._outbox.mark_done([event.event_id for event in events if event.event_type == FORGET])
        if result.note:
            self._outbox.append(OutboxEvent("", FORGET, found.space, payload, "pending", 0, 0.0))
        return result

    def _stage(self, ctx: RequestContext, tx: Transaction, found: Uri, result: ForgetResult) -> dict[str, list[str]]:
        """Stage deletions, emptied archives and removed references; return the payload of `finish`."""
        nodes, past = list(self._fs.walk(found)), map(parse_uri, self._fs.past_uris(found.text))
        present = set(nodes)
        elsewhere = [each for each in past if each not in present]
        # What another node has taken since keeps its files, and loses its past.
        reused = [each.text for each in elsewhere if self._fs.folders.has_node(each.folders)]
        deleted = [each for each in elsewhere if each.text not in reused]
        if not nodes and not deleted:
            raise NodeNotFoundError(found.text)
        archives = [each.text for each in nodes if each.category == SESSIONS]
        memories = [each for each in nodes if each.category != SESSIONS]
        metas = [read_meta(each, self._fs.read_image(each)) for each in memories]
        metas += [read_meta(each, self._fs.journal.last_files(each.text)) for each in deleted]
        cited = self._cited(ctx, metas) | dict.fromkeys(archives)
        result.messages = [
            {"archive": archive, "message": message}
            for archive, names in cited.items()
            for message in self._empty(ctx, tx, parse_uri(archive), names)
        ]
        for each in memories:
            tx.put(each, None)
        gone = [*(each.text for each in memories), *(each.text for each in deleted if each.text not in cited)]
        result.uris = [each for each in gone if parse_uri(each).is_beneath(found)]
        named = self._unname(ctx, tx, {found.text, *cited, *gone}, set(gone), result)
        return {"gone": gone, "kept": sorted({*cited, *named, *reused}), "emptied": archives}

    def _cited(self, ctx: RequestContext, metas: Sequence[Mapping[str, Any]]) -> dict[str, set[str] | None]:
        """Return the messages that memories cite, by archive."""
        found: dict[str, set[str] | None] = {}
        for meta in metas:
            for ref in meta["source_refs"]:
                with contextlib.suppress(ContextEngineError):
                    archive = check_access(ctx, ref.get("archive", "")).text
                    if self._fs.exists(ctx, archive) and ref.get("message"):
                        found[archive] = {ref["message"], *(found.get(archive) or ())}
        return found

    def _empty(self, ctx: RequestContext, tx: Transaction, uri: Uri, names: set[str] | None) -> list[str]:
        """Stage an archive without the text of some messages, and return which it were; None is all."""
        staged = tx.look(uri)
        data, held = staged.files.get(MESSAGES, b""), staged.meta["metadata"]
        messages = decode_messages(data, uri.text, staged.meta["created_at"], [] if names is None else None)
        emptied = []
        for place, message in enumerate(messages):
            name = f"m{place + 1}"
            if not message.forgotten and (names is None or name in names):
                digest = forgotten_digest(message)
                messages[place] = Message(message.id, "unknown", digest, message.at, forgotten=True)
                emptied.append(name)
        stats = {**held.get("stats", {}), "used_tools": []} if names is None else held.get("stats", {})
        ledger = Ledger.read(held, SessionArchive("", uri.text, "", messages))
        ledger.failures = []  # no candidate is in it, nor what was wrong with one
        meta = staged.meta | {"metadata": {**held, "stats": stats, "ledger": ledger.as_json()}}
        count = self._fs.count_tokens
        rendered = render_archive(messages, describe_archive(messages, count), count=count)
        tx.put(uri, Staged({**rendered, RELATIONS: staged.files.get(RELATIONS, b"[]\n")}, meta))
        return emptied

    def _unname(
        self, ctx: RequestContext, tx: Transaction, uris: set[str], gone: set[str], result: ForgetResult
    ) -> list[str]:
        """Stage nodes without their references to erased memories, and return their URIs.

        `result` gets the memories that cite a message which is emptied.
        """
        changed = []
        for uri, image in self._mentioning(ctx, uris):
            if uri.text in gone:
                continue
            edges, meta = read_edges(uri.text, image.get(RELATIONS, b"")), read_meta(uri, image)
            if uri.category != SESSIONS and any(ref in result.messages for ref in meta["source_refs"]):
                result.also_cited_by.append(uri.text)
            left = [edge for edge in edges if edge.to_uri not in gone]
            if left != edges or _without_uses(meta, gone) != meta:
                staged = tx.look(uri)
                files = {**staged.files, RELATIONS: write_edges(left)} if left != edges else staged.files
                tx.put(uri, Staged(files, _without_uses(staged.meta, gone)))
                changed.append(uri.text)
        return changed

    def _mentioning(self, ctx: RequestContext, uris: set[str]) -> Iterator[tuple[Uri, Image]]:
        """Yield the request's nodes that may name one of some URIs, with their metadata and edges.

        The files are read, since they may have been edited. Cost: the metadata of each node, and the edges of
        those that have any.
        """
        needles = [b"\\", *(uri.encode() for uri in uris)]  # JSON: a URI is in it as it is, unless something is escaped
        for space in space_uris(ctx):
            for folders, image, _ in self._fs.folders.walk(parse_uri(space).folders, (META, RELATIONS)):
                data = b"".join(image.values()) if image else b""
                if image and any(map(data.__contains__, needles)) and (uri := uri_of(folders)) is not None:
                    yield uri, image

    def finish(self, payload: Mapping[str, Any]) -> str:
        """Take what is gone out of index and journal; twice is as good as once. Return which file has it still."""
        gone, kept, emptied = (list(payload.get(name) or ()) for name in ("gone", "kept", "emptied"))
        for folders in (parse_uri(uri).folders for uri in gone):
            if not self._fs.folders.has_node(folders):  # else it was said again, before a worker finished this
                self._fs.folders.empty(folders)
        for uri in emptied:
            self._fs.folders.empty(parse_uri(uri).folders, keep=FILES)
        spaces = sorted({parse_uri(uri).space for uri in [*gone, *kept]})
        late = [f"the index of {space}" for space in spaces if not self._clear(space, gone, kept)]
        if not self._fs.erase(gone, kept):
            late.append("the journal's WAL")
        return f"another program reads {' and '.join(late)}, which holds it until that ends" if late else ""

    def _clear(self, space: str, gone: Sequence[str], kept: Sequence[str]) -> bool:
        """Take what is gone out of a space's index and vectors; False where its file cannot be written now."""
        uris = [uri for uri in [*gone, *kept] if parse_uri(uri).space == space]
        try:
            for uri in uris:
                self._worker.reconcile(uri)
                self._worker.copy_edges(uri)
            words = self._spaces.words(space)
            words.drop_vectors(uris)
            for path in self._spaces.folder_of(space).glob("*.vectors"):  # of an earlier version
                path.unlink(missing_ok=True)
            return words.scrub()
        except (sqlite3.Error, LostIndexError, OSError) as error:
            _log.warning("the index of %s cannot be used: %s", space, error)
            return False


def _without_uses(meta: Mapping[str, Any], gone: set[str]) -> dict[str, Any]:
    """Return an archive's metadata without the memories that are gone among those it counts as used."""
    held = mapping_of(meta.get("metadata"))
    stats = mapping_of(held.get("stats"))
    used = strings_of(stats.get("used_contexts"))
    if not gone & set(used):
        return dict(meta)
    left = {**stats, "used_contexts": [uri for uri in used if uri not in gone]}
    return {**meta, "metadata": {**held, "stats": left}}


def verify_store(fs: ContextFS, spaces: IndexSpaces, outbox: OutboxStore) -> list[str]:
    """Return a sentence for each disagreement. Cost: reads all of the store."""
    found = list(_journal(fs))
    for space in fs.spaces():
        found += _nodes(fs, spaces, space)
    counts = outbox.counts()
    found += [f"forgotten: what was at {uri} is not out of every file yet: {why}" for uri, why in outbox.open(FORGET)]
    found += [f"outbox: {counts[status]} events are {status}" for status in ("held", "dead") if counts[status]]
    return found


def _journal(fs: ContextFS) -> Iterator[str]:
    try:
        fs.journal.check()
        if fs.journal.unfinished():
            yield "journal: a commit is logged and not in the files; the next write brings it there"
    except (sqlite3.DatabaseError, StoreError) as error:
        yield f"journal: {error}"


def _nodes(fs: ContextFS, spaces: IndexSpaces, space: str) -> Iterator[str]:
    yield from (f"files: {uri} was changed by hand; `adopt` makes a version of it" for uri in fs.find_edits(space))
    wanted = dict[str, str]()
    for each in fs.walk(parse_uri(space)):
        try:
            wanted[each.text] = projected_digest(fs.read_node(context_of(each.text), each.text))
        except ContextEngineError as error:
            wanted[each.text] = ""  # the index may have the part of it that is whole
            yield f"files: {each.text} cannot be read: {error}"
    if not (spaces.folder_of(space) / "index.db").exists():
        yield f"index: {space} has none; it is made when it is needed"
        return
    try:
        known = spaces.words(space).digests_under(space)
    except (sqlite3.Error, LostIndexError, OSError) as error:
        yield f"index: {space}: {error}"
        return
    stale = [uri for uri, digest in wanted.items() if digest and known.get(uri) != digest]
    yield from (f"index: {uri} is not up to date" for uri in stale)
    yield from (f"index: {uri} is there, and no such node" for uri in known.keys() - wanted.keys())
