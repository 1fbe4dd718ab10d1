"""`Forgetter`, which erases memories, and `verify_store`, which compares files, journal, index and outbox.

`forget` removes from every file: the memory with its whole folder, the messages it cites, references to it (edges,
archives that count it as used), their images in the journal, their words and vectors in the index, and copies in
`.ctx/aside/`.

One transaction deletes the memory, empties the messages, and registers what is left to do; a worker finishes it after a
crash. What stays of a message is its id and a digest, so that the session, committed again, does not bring it back.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..base.checks import shorten
from ..base.text import mapping_of, strings_of
from ..finding.index import LostIndexError
from .commit.archive_builder import describe_archive, render_archive
from .commit.commit_coordinator import Ledger
from .core.config import CONTENT, FILES, MESSAGES, META, RELATIONS, SESSIONS
from .core.errors import ContextEngineError, InvalidInputError, NodeNotFoundError, StoreError
from .core.messages import decode_messages, forgotten_digest
from .core.objects import ForgetResult, Message, OutboxEvent, RequestContext, SessionArchive
from .fs.context_fs import ContextFS
from .fs.folders import Image
from .fs.main_store import Transaction
from .fs.meta import Staged, digests_of, leads_on, read_edges, read_meta, write_edges
from .fs.uri import Uri, check_access, parse_uri, space_uris, uri_of
from .index.index_worker import IndexSpaces, IndexWorker, context_of
from .index.outbox_store import OutboxStore
from .providers import projected_digest

FORGET = "FORGET_CONTEXT"


class Forgetter:
    """Forgets; see the top of this file."""

    def __init__(self, fs: ContextFS, worker: IndexWorker, spaces: IndexSpaces, outbox: OutboxStore) -> None:
        self._fs, self._worker, self._spaces, self._outbox = fs, worker, spaces, outbox

    def forget(self, ctx: RequestContext, uri: str, sources: str) -> ForgetResult:
        """Forget a memory; see `ContextEngineService.forget`."""
        if sources not in ("remove", "keep"):
            raise InvalidInputError(f"sources must be 'remove' or 'keep', not {shorten(sources)}")
        found = self._fs.follow(ctx, uri)
        if not found.is_node:
            raise InvalidInputError(f"{uri!r} is no memory, but a whole space")
        result, payload = ForgetResult([], [], []), dict[str, Any]()

        def change(tx: Transaction) -> list[OutboxEvent]:
            payload.update(self._stage(ctx, tx, found, sources == "remove", result))
            # At a memory that is gone, so that the journal drops the event with all else that names it.
            tx.add_event(FORGET, (payload["gone"] or [found.text])[0], dict(payload))
            return tx.events

        events = self._fs.run(ctx, "forget", change)
        result.note = self.finish(payload)
        self._outbox.mark_done([event.event_id for event in events if event.event_type == FORGET])
        if result.note:
            self._outbox.append(OutboxEvent("", FORGET, found.space, payload, "pending", 0, 0.0))
        return result

    def _stage(
        self, ctx: RequestContext, tx: Transaction, found: Uri, with_sources: bool, result: ForgetResult
    ) -> dict[str, list[str]]:
        """Stage deletions, emptied archives and removed references; return the payload of `finish`."""
        nodes, deleted = list(self._fs.walk(found)), self._fs.deleted_uris(found.text)
        if not nodes and not deleted:
            raise NodeNotFoundError(found.text)
        archives = [each.text for each in nodes if each.category == SESSIONS]
        memories = [each for each in nodes if each.category != SESSIONS]
        metas = [read_meta(each, self._fs.read_image(each)) for each in memories]
        metas += [read_meta(parse_uri(each), image) for each, image in deleted.items()]
        cited = self._cited(ctx, metas) if with_sources else {}
        cited |= dict.fromkeys(archives)
        result.messages = [
            {"archive": archive, "message": message}
            for archive, names in cited.items()
            for message in self._empty(ctx, tx, parse_uri(archive), names)
        ]
        former = [parse_uri(each) for memory in nodes for each in self._fs.former_uris(memory.text)]
        rows, stubs = self._look_around(ctx, {found.text, *cited, *(each.text for each in former)}, found)
        former = list(dict.fromkeys([*former, *stubs]))
        for each in [*memories, *(each for each in former if self._fs.folders.exists(each.folders))]:
            tx.put(each, Staged({}, None))
        result.uris = [*(each.text for each in memories), *(each for each in deleted if each not in cited)]
        named = self._unname(tx, rows, {*result.uris, *(each.text for each in former)})
        gone = {(row["archive"], row["message"]) for row in result.messages}
        result.also_cited_by = sorted(
            other.text for other, refs in _citing(rows) if other.text not in result.uris and refs & gone
        )
        kept, past = sorted({*cited, *named}), [each.text for each in former]
        return {"gone": result.uris, "kept": kept, "former": past, "emptied": archives}

    def _cited(self, ctx: RequestContext, metas: Sequence[Mapping[str, Any]]) -> dict[str, set[str] | None]:
        """Return the messages that memories cite, by archive."""
        found: dict[str, set[str] | None] = {}
        for meta in metas:
            for ref in meta["source_refs"]:
                with contextlib.suppress(ContextEngineError):
                    archive = self._fs.follow(ctx, check_access(ctx, ref.get("archive", "")).text).text
                    if self._fs.exists(ctx, archive) and ref.get("message"):
                        found[archive] = {ref["message"], *(found.get(archive) or ())}
        return found

    def _empty(self, ctx: RequestContext, tx: Transaction, uri: Uri, names: set[str] | None) -> list[str]:
        """Stage an archive without the text of some messages, and return which it were; None is all."""
        staged = tx.look(uri)
        data, at = self._fs.read_file(ctx, uri.text, MESSAGES), float((staged.meta or {}).get("created_at") or 0.0)
        messages = decode_messages(data, uri.text, at, [] if names is None else None)
        emptied = []
        for place, message in enumerate(messages):
            name = f"m{place + 1}"
            if not message.forgotten and (names is None or name in names):
                digest = forgotten_digest(message)
                messages[place] = Message(message.id, "unknown", digest, message.at, forgotten=True)
                emptied.append(name)
        held = mapping_of((staged.meta or {}).get("metadata"))
        stats = {**held.get("stats", {}), "used_tools": []} if names is None else held.get("stats", {})
        ledger = Ledger.read(held, SessionArchive("", uri.text, "", messages))
        ledger.failures = []  # no candidate is in it, nor what was wrong with one
        meta = {**(staged.meta or {}), "metadata": {**held, "stats": stats, "ledger": ledger.as_json()}}
        count = self._fs.count_tokens
        rendered = render_archive(messages, describe_archive(messages, count), count=count)
        tx.put(uri, Staged({**rendered, RELATIONS: staged.files.get(RELATIONS, b"[]\n")}, meta))
        return emptied

    def _unname(self, tx: Transaction, rows: "Sequence[_Row]", gone: set[str]) -> list[str]:
        """Stage nodes without their references to erased memories, and return their URIs."""
        changed = []
        for uri, image in rows:
            if uri.text in gone or leads_on(image.get(META, b"")):
                continue
            edges, meta = read_edges(uri.text, image.get(RELATIONS, b"")), read_meta(uri, image)
            left = [edge for edge in edges if edge.to_uri not in gone]
            if left != edges or _without_uses(meta, gone) != meta:
                staged = tx.look(uri)
                files = {**staged.files, RELATIONS: write_edges(left)} if left != edges else staged.files
                tx.put(uri, Staged(files, _without_uses(staged.meta or {}, gone)))
                changed.append(uri.text)
        return changed

    def _look_around(self, ctx: RequestContext, uris: set[str], found: Uri) -> "tuple[list[_Row], list[Uri]]":
        """Return the request's nodes that may name one of some URIs, and the stubs that lead to a node, or under it.

        The files are read, since they may have been edited. Cost: the metadata of each node, and the edges of
        those that have any, once; again for each step of a move that the history has not.
        """
        while True:
            rows = list(self._mentioning(ctx, uris))
            stubs = [uri for uri in _stubs(rows, found.text) if not self._fs.folders.exists(uri.folders, CONTENT)]
            if uris.issuperset(each.text for each in stubs):
                return rows, stubs
            uris = uris.union(each.text for each in stubs)

    def _mentioning(self, ctx: RequestContext, uris: set[str]) -> "Iterator[_Row]":
        needles = [b"\\", *(uri.encode() for uri in uris)]  # JSON: a URI is in it as it is, unless something is escaped
        for space in space_uris(ctx):
            for folders, image, _ in self._fs.folders.walk(parse_uri(space).folders, (META, RELATIONS)):
                data = b"".join(image.values()) if image else b""
                if image and any(map(data.__contains__, needles)) and (uri := uri_of(folders)) is not None:
                    yield uri, image

    def finish(self, payload: Mapping[str, Any]) -> str:
        """Take what is gone out of index and journal; twice is as good as once. Return which file has it still."""
        gone, kept, former, emptied = (list(payload.get(name) or ()) for name in ("gone", "kept", "former", "emptied"))
        for folders in (parse_uri(uri).folders for uri in gone):
            if not self._fs.folders.exists(folders):  # else it was said again, before a worker finished this
                self._fs.folders.empty(folders)
        for uri in emptied:
            self._fs.folders.empty(parse_uri(uri).folders, keep=FILES)
        spaces = sorted({parse_uri(uri).space for uri in [*gone, *kept]})
        late = [f"the index of {space}" for space in spaces if not self._clear(space, gone, kept)]
        if not self._fs.erase([*gone, *(uri for uri in former if uri not in kept)], kept):
            late.append("the journal's WAL")
        return f"another program reads {' and '.join(late)}, which holds it until that ends" if late else ""

    def _clear(self, space: str, gone: Sequence[str], kept: Sequence[str]) -> bool:
        """Take what is gone out of a space's index and vectors; False where its file cannot be written now."""
        try:
            for uri in [*gone, *kept]:
                if parse_uri(uri).space == space:
                    self._worker.reconcile(uri)
                    self._worker.copy_edges(uri)
        except (sqlite3.Error, LostIndexError) as error:
            self._spaces.recover(space, error)
            return False
        words = self._spaces.words(space)
        words.drop_vectors(uri for uri in [*gone, *kept] if parse_uri(uri).space == space)
        for path in self._spaces.folder_of(space).glob("*.vectors"):  # of an earlier version
            path.unlink(missing_ok=True)
        return words.scrub() and not self._spaces.note(space)  # what is in memory alone is not done


_Row: TypeAlias = tuple[Uri, Image]
"""A node, and its metadata and edges as files."""


def _stubs(rows: Sequence[_Row], uri: str) -> list[Uri]:
    """Return the folders that lead to a node, or under it, by one step or several; the history may be pruned."""
    leads = [(stub, to) for stub, image in rows if (to := leads_on(image.get(META, b"")))]
    found: list[Uri] = []
    ends = [uri]
    while ends:
        end = ends.pop()
        more = [stub for stub, to in leads if stub not in found and (to == end or to.startswith(f"{end}/"))]
        found += more
        ends += [stub.text for stub in more]
    return found


def _citing(rows: Sequence[_Row]) -> Iterator[tuple[Uri, set[tuple[str, str]]]]:
    """Yield memories with the messages that they cite."""
    for uri, image in rows:
        if uri.category != SESSIONS and not leads_on(image.get(META, b"")):
            refs = read_meta(uri, image)["source_refs"]
            yield uri, {(ref.get("archive", ""), ref.get("message", "")) for ref in refs}


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
        found += _files(fs, space)
        found += _index(fs, spaces, space)
    counts = outbox.counts()
    found += [f"forgotten: what was at {uri} is not out of every file yet: {why}" for uri, why in outbox.open(FORGET)]
    found += [f"outbox: {counts[status]} events are {status}" for status in ("held", "dead") if counts[status]]
    return found


def _journal(fs: ContextFS) -> Iterator[str]:
    try:
        fs.journal.check()
        if fs.journal.is_behind():
            yield "journal: a commit is logged and not in the files; the next write brings it there"
    except (sqlite3.DatabaseError, StoreError) as error:
        yield f"journal: {error}"


def _files(fs: ContextFS, space: str) -> Iterator[str]:
    edits = fs.find_edits(space)
    yield from (f"files: {uri} was changed by hand; `adopt` makes a version of it" for uri in edits)
    for each in fs.walk(parse_uri(space)):
        try:
            fs.read_node(context_of(each.text), each.text)
        except ContextEngineError as error:
            yield f"files: {each.text} cannot be read: {error}"


def _index(fs: ContextFS, spaces: IndexSpaces, space: str) -> Iterator[str]:
    if not (spaces.folder_of(space) / "index.db").exists():
        yield f"index: {space} has none; it is made when it is needed"
        return
    words = spaces.words(space)
    try:
        known = words.digests_under(space)
        for each in fs.walk(parse_uri(space)):
            image = fs.folders.read(each.folders)
            meta = read_meta(each, image)
            digest = projected_digest(each.text, meta, meta["category"], digests_of(image))
            if not leads_on(image.get(META, b"")) and known.pop(each.text, None) != digest:
                yield f"index: {each.text} is not up to date"
        yield from (f"index: {uri} is there, and no such node" for uri in known)
    except (sqlite3.DatabaseError, LostIndexError, ContextEngineError) as error:
        yield f"index: {space}: {error}"
