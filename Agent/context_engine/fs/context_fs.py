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

Writes are staged in a transaction, and read back there. `MainStore` has the lock and the journal, `History` the past
and manual edits.
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...base.checks import shorten
from ...base.text import clean, merge_unique, to_json
from ..core.config import (
    ABSTRACT,
    CONTENT,
    LEVEL_TOKENS,
    LEVELS,
    MESSAGES,
    META,
    MOVE_CONTEXT,
    OVERVIEW,
    RELATIONS,
    SEE_MESSAGES,
    SESSIONS,
    UPSERT_CONTEXT,
    URI_SEGMENTS,
    context_type_of,
)
from ..core.errors import ConflictError, InvalidInputError, NodeNotFoundError, StoreError, check_count
from ..core.messages import decode_messages, render_messages
from ..core.objects import ContextNode, HistoryEntry, NodeStat, NodeSummary, OutboxEvent, RelationEdge, RequestContext
from .folders import Image
from .journal import Change, Commit, put_event
from .main_store import MainStore, Transaction
from .meta import (
    Staged,
    check_meta,
    check_version,
    decode,
    digests_of,
    encode,
    file_of,
    read_edges,
    read_meta,
    staged_of,
    state_of,
    write_edges,
)
from .redo import copies_of
from .uri import Uri, check_access, is_visible, parse_uri, space_uris

_log = logging.getLogger(__name__)

_PLACES = (
    "places(uri, until) AS ({} UNION SELECT c.uri, c.sequence FROM changes c JOIN places p"
    " ON c.moved_to = p.uri AND c.sequence < p.until)"
)
"""Some URIs, and where their nodes were before they moved, each with the sequence of the move."""


class History(MainStore):
    """The past of a store's nodes, as its journal has it."""

    # -- looking back --

    def history(self, ctx: RequestContext, uri: str, limit: int = 50) -> list[HistoryEntry]:
        """Return the commits of a node, newest first, also those at its former places."""
        rows = self.journal.query(
            f"WITH RECURSIVE {_PLACES.format('VALUES (?, 1 << 62)')}"
            " SELECT c.id, c.sequence, c.name, c.at, c.author, h.uri, max(coalesce(h.moved_to, ''))"
            " FROM places p JOIN changes h ON h.uri = p.uri AND h.sequence <= p.until JOIN commits c USING (sequence)"
            " GROUP BY c.sequence ORDER BY c.sequence DESC LIMIT ?",
            (check_access(ctx, uri).text, check_count("limit", limit)),
        )
        return [self._entry(ctx, row) for row in rows]

    def past_uris(self, uri: str) -> list[str]:
        """Return the URIs at and under one that the journal names, and where these nodes were before they moved."""
        under = "SELECT DISTINCT uri, 1 << 62 FROM changes WHERE uri = ? OR (uri >= ? AND uri < ?)"
        sql = f"WITH RECURSIVE {_PLACES.format(under)} SELECT DISTINCT uri FROM places"
        return [each for (each,) in self.journal.query(sql, (uri, f"{uri}/", f"{uri}0"))]

    def present_uri(self, uri: Uri) -> Uri:
        """Return where a node that has moved is now; else its URI."""
        sql = "SELECT moved_to FROM changes WHERE uri = ? ORDER BY number DESC LIMIT 1"
        while not self.folders.has_node(uri.folders) and (to := self.journal.query(sql, (uri.text,))) and to[0][0]:
            uri = parse_uri(to[0][0])
        return uri

    def _entry(self, ctx: RequestContext, row: Sequence[Any]) -> HistoryEntry:
        """Return a commit's part in a node."""
        id, sequence, name, at, author, uri, to = row
        if to:
            places = {"uri": uri}, {"uri": to}
            return HistoryEntry(id, sequence, name, at, _author(ctx, author), "moved", *places)
        before, after = dict[str, bytes | None](), dict[str, bytes | None]()
        for change in self.journal.changes(sequence):
            if change.uri == uri:
                before.update(change.before)
                after.update(change.after)
        what = "created" if before.pop(META, None) is None else "deleted" if after.get(META) is None else "changed"
        texts = (
            {file: data.decode("utf-8", "replace") for file, data in files.items() if file != META and data is not None}
            for files in (before, after)
        )
        return HistoryEntry(id, sequence, name, at, _author(ctx, author), what, *texts)

    def log(self, ctx: RequestContext, limit: int = 20) -> list[dict[str, Any]]:
        """Return the last commits that changed something of the request's, newest first."""
        limit = check_count("limit", limit)
        spaces = space_uris(ctx)
        rows = self.journal.query(
            "SELECT c.id, c.sequence, c.name, c.at, c.author, c.state, json_group_array(DISTINCT h.uri) FROM commits c"
            " JOIN changes h USING (sequence) WHERE "
            + " OR ".join("(h.uri >= ? AND h.uri < ?)" for _ in spaces)
            + " GROUP BY c.sequence ORDER BY c.sequence DESC LIMIT ?",
            (*(bound for space in spaces for bound in (f"{space}/", f"{space}0")), limit),
        )
        names = ("id", "sequence", "name", "at", "author", "state", "uris")
        found = [{**dict(zip(names, row, strict=True)), "author": _author(ctx, row[4])} for row in rows]
        for each in found:
            each["uris"] = [uri for uri in sorted(json.loads(each["uris"])) if is_visible(ctx, uri)]
        return found

    # -- taking back --

    def undo(self, ctx: RequestContext, commit_id: str) -> str:
        """Take a commit back, as a new one, which can be undone, too, and return that one's id.

        Raises:
            InvalidInputError: No commit has the id.
            ConflictError: Later commits or manual edits changed the same nodes; it names them. Or a part was forgotten.
        """
        commit = self.journal.find_commit(clean(commit_id)) if isinstance(commit_id, str) else None
        if commit is None:
            raise InvalidInputError(f"no commit has the id {shorten(commit_id)}")
        uris = {change.uri: check_access(ctx, change.uri) for change in commit.changes}
        if not commit.changes or any(plan.get("forgotten") for plan in commit.plans):
            raise ConflictError(f"what commit {commit.id} changed was forgotten")
        if any(change.moved_to and not change.before for change in commit.changes):
            raise ConflictError(f"commit {commit.id} is a move by an earlier version: move it back")
        self._refuse_later(commit, uris)

        def take_back(tx: Transaction) -> str:
            for text, uri in uris.items():
                self._stage_before(tx, uri, [change for change in commit.changes if change.uri == text])
            return tx.commit_id

        return self.run(ctx, f"undo {commit.name}", take_back)

    def _stage_before(self, tx: Transaction, uri: Uri, changes: Sequence[Change]) -> None:
        """Stage a node as it was before some changes."""
        present = self.read_image(uri)
        was: dict[str, bytes | None] = {}
        for change in changes:
            if not all(change.has_made(file, present.get(file)) for file in change.before):
                raise ConflictError(f"{uri.text!r} was edited since", uris=[uri.text])
            was |= change.before
        # Of an adopted edit the journal may not know what was there before: then that stays.
        is_adopted = was.get(META) is not None
        known = {file: image for file, image in was.items() if image is not None or not is_adopted}
        before = {name: data for name, data in {**present, **known}.items() if data is not None}
        tx.put(uri, staged_of(uri, before) if META in before else None)

    def _refuse_later(self, commit: Commit, uris: Iterable[str]) -> None:
        rows = self.journal.query(
            "SELECT c.id, h.uri FROM changes h JOIN commits c USING (sequence) WHERE h.sequence > ?"
            " AND h.uri IN (SELECT value FROM json_each(?)) ORDER BY h.sequence",
            (commit.sequence, to_json(list(uris))),
        )
        if rows:
            ids = list(dict.fromkeys(id for id, _ in rows))
            text = f"later commits changed the same nodes: {', '.join(ids)}"
            raise ConflictError(text, sorted({uri for _, uri in rows}), ids)

    # -- leaving behind --

    def prune(self, before: float) -> int:
        """Drop the history of commits older than a time; see `ContextEngineService.prune`."""
        self.checkpoint()
        with self.locked(), self.journal.writing() as connection:
            old = "SELECT sequence FROM commits WHERE state = 'synced' AND at < ?"
            connection.execute(f"DELETE FROM changes WHERE sequence IN ({old})", (before,))
            count = connection.execute("DELETE FROM commits WHERE state = 'synced' AND at < ?", (before,)).rowcount
            connection.execute("DELETE FROM nodes WHERE state = '' AND uri NOT IN (SELECT uri FROM changes)")
        self.journal.rewrite()
        return count

    def erase(self, gone: Sequence[str], kept: Sequence[str] = ()) -> bool:
        """Drop every image of some nodes, so that no file of the journal holds a byte of them.

        False where another program reads the journal, whose WAL holds it until that ends.

        Of those that are `gone` all that names them goes, too; those that are `kept` stay as they are now, without a
        past. Cost: a sync, and the journal is written again.
        """
        self.checkpoint()  # the images are what a power cut would need
        with self.locked():
            with self.journal.writing("FULL") as connection:
                for uri, is_gone in [*((each, True) for each in gone), *((each, False) for each in kept)]:
                    connection.execute(
                        "UPDATE commits SET plans = '[{\"forgotten\": true}]' WHERE sequence IN"
                        " (SELECT sequence FROM changes WHERE uri = ?)",
                        (uri,),
                    )
                    for table in ("changes", "unsynced", "reports", *(("nodes", "outbox") if is_gone else ())):
                        connection.execute(f"DELETE FROM {table} WHERE uri = ?", (uri,))
            for place in copies_of(self.aside, [*gone, *kept]):
                shutil.rmtree(place)
            return self.journal.rewrite()

    # -- manual edits --

    def is_edited(self, uri: Uri) -> bool:
        """Whether a node differs from its last commit. Cost: reads the node."""
        image = self.folders.read(uri.folders)
        row = self.journal.node(uri.text)
        return bool(image) and (row is None or row.state != state_of(image))

    def adopt(self, ctx: RequestContext, uri: str) -> bool:
        """Make a version of manual edits of a node, or of a new node; False where nothing is new."""
        found = check_access(ctx, uri)
        with self.locked():
            image = self.folders.read(found.folders)
            if not image:
                row = self.journal.node(found.text)
                if row is None or not row.state:
                    raise NodeNotFoundError(found.text)
                return self._adopt_absence(found)
            if not self.is_edited(found):
                return False
            for name, data in image.items():
                decode(found, name, data)

            self.run(ctx, "adopt", lambda tx: tx.put(found, tx.look(found), must=True))
        return True

    def _adopt_absence(self, uri: Uri) -> bool:
        """Note that a node was removed manually."""
        with self.journal.writing() as connection:
            connection.execute("UPDATE nodes SET state = '' WHERE uri = ?", (uri.text,))
            event = OutboxEvent(self.new_id(), UPSERT_CONTEXT, uri.text, {}, "pending", 0, self.clock(), 0)
            put_event(connection, event, self.clock(), "pending")
        self._committed.append(event)
        return True

    def find_edits(self, space: str) -> list[str]:
        """Return the nodes of a space that were edited, created or removed manually. Cost: reads all of its nodes."""
        root = parse_uri(space)
        known = {row.uri for row in self.journal.nodes_beneath(root.text)}
        found = []
        for uri, entry in self.entries(root):
            with contextlib.suppress(StoreError):  # what cannot be looked at is reported by `verify`
                if entry.image is not None:  # a node may be created with a content alone
                    known.discard(uri.text)
                    found += [uri.text] if self.is_edited(uri) else []
        for gone in sorted(known):
            with contextlib.suppress(StoreError):
                found += [gone] if not self.folders.has_node(parse_uri(gone).folders) else []
        return found


def _author(ctx: RequestContext, author: str) -> str:
    """Return the author of a commit; for another user of the same agent, the agent alone."""
    user, _, agent = author.rpartition("/")
    return author if user == ctx.user_id else agent


class ContextFS(History):
    """The main store in a folder, opened as `MainStore` says; any number of threads and processes may use it."""

    def resolve_path(self, ctx: RequestContext, uri: str) -> str:
        """Return the folder of a URI, whether it is there or not."""
        return str(self.root.joinpath(*check_access(ctx, uri).folders))

    # -- reading --

    def exists(self, ctx: RequestContext, uri: str) -> bool:
        """Whether there is a node."""
        found = check_access(ctx, uri)
        current = self.current()
        if current is not None:
            return current.has(found)
        return self.folders.has_node(found.folders)

    def stat_node(self, ctx: RequestContext, uri: str) -> NodeStat:
        """Return a node's version and size; one that is not there is no error. Cost: reads the node."""
        found = check_access(ctx, uri)
        image = self.read_image(found)
        if META not in image:
            return NodeStat(found.text, False, 0, 0, 0.0)
        meta = read_meta(found, image)
        return NodeStat(found.text, True, meta["version"], sum(map(len, image.values())), meta["updated_at"])

    def read_node(self, ctx: RequestContext, uri: str, include_content: bool = True) -> ContextNode:
        """Return a node; with `include_content` also its L2.

        Raises:
            NodeNotFoundError: There is none.
            StoreCorruptError: A file is no UTF-8, or too large; it is left as it is.
        """
        found, staged = self.look_up(ctx, uri)
        return node_of(found, staged, include_content)

    def look_up(self, ctx: RequestContext, uri: str) -> tuple[Uri, Staged]:
        """Return a node with its files, as they were at one moment."""
        found, current = check_access(ctx, uri), self.current()
        return found, staged_of(found, self.read_image(found)) if current is None else current.look(found)

    def read_file(self, ctx: RequestContext, uri: str, name: str) -> bytes:
        """Return one of a node's files; b"" where it has none of the name."""
        return self.look_up(ctx, uri)[1].files.get(name, b"")

    def read_level(self, ctx: RequestContext, uri: str, level: str) -> str:
        """Return a node's abstract (L0), overview (L1) or content (L2)."""
        name = file_of(level)
        found, staged = self.look_up(ctx, uri)
        return _text_of(found, name, staged)

    def read_metadata(self, ctx: RequestContext, uri: str) -> dict[str, Any]:
        """Return the fields of `.meta.json`, with digests of the present files."""
        node = self.read_node(ctx, uri, include_content=False)
        return {"type": node.context_type, "category": node.category, **node.metadata}

    def list_children(
        self, ctx: RequestContext, uri: str, recursive: bool = False, depth: int = 1
    ) -> list[NodeSummary]:
        """Return the entries under a node, a folder or a space, by name, parents first.

        `depth` is the number of levels, `recursive` means all. Cost: some 30 µs a row.
        """
        root, found = check_access(ctx, uri), []
        for each, entry in self.entries(root, URI_SEGMENTS if recursive else check_count("depth", depth)):
            is_node = bool(entry.image)
            if each is not root and (is_node or entry.has_children):
                meta = read_meta(each, entry.image or {}) if is_node else dict[str, Any]()
                kind, updated_at = meta.get("category", ""), meta.get("updated_at", 0.0)
                found.append(NodeSummary(each.text, each.name, not is_node, entry.has_children, kind, updated_at))
        return found

    # -- writing --

    def write_node(self, ctx: RequestContext, node: ContextNode) -> None:
        """Create or replace a whole node.

        Where its metadata has a `version`, that must be the store's (0 is none); where it has `digests`, too, as a node
        that was read does, the files must be the same.

        Raises:
            VersionConflictError: The store has another version.
            InvalidInputError: A level is too long, or the metadata cannot be stored.
        """
        if not isinstance(node, ContextNode):
            raise InvalidInputError(f"node must be a ContextNode, not {shorten(node)}")
        uri = check_access(ctx, node.uri)
        files = {ABSTRACT: node.abstract, OVERVIEW: node.overview, CONTENT: node.content}
        encoded = {name: encode(uri, name, text) for name, text in files.items()}

        def change(tx: Transaction) -> None:
            present = tx.look(uri) if tx.has(uri) else None
            held, meta = (present.files, present.meta) if present else ({}, read_meta(uri, {}))
            if node.category != SESSIONS:
                self._check_lengths(uri, encoded, held)
            check_version(uri, node.metadata, present)
            meta |= {"type": node.context_type or context_type_of(node.category), "category": node.category}
            fields = check_meta(node.metadata)
            if "source_refs" in fields:  # who read the node was not shown others' sources: they stay
                hidden = [ref for ref in meta["source_refs"] if not is_visible(ctx, ref.get("archive", ""))]
                fields["source_refs"] = merge_unique(fields["source_refs"], hidden)
            files = {**held, **encoded}
            if present and held.get(CONTENT) == SEE_MESSAGES and node.content == _text_of(uri, CONTENT, present):
                files[CONTENT] = SEE_MESSAGES
            tx.put(uri, Staged(files, meta | fields))

        self.run(ctx, "write_node", change)

    def write_level(self, ctx: RequestContext, uri: str, level: str, text: str) -> None:
        """Write one level of a node; `InvalidInputError` says that it is longer than that may be."""
        name = file_of(level)
        found = check_access(ctx, uri)
        data = encode(found, name, text)

        def change(tx: Transaction) -> None:
            staged = tx.look(found)
            if staged.meta["category"] != SESSIONS:
                self._check_lengths(found, {name: data}, staged.files)
            tx.put(found, Staged({**staged.files, name: data}, staged.meta))

        self.run(ctx, "write_level", change)

    def write_metadata(self, ctx: RequestContext, uri: str, metadata: Mapping[str, Any]) -> None:
        """Change a node's metadata: given fields replace present ones.

        They are as `read_metadata` gives them, or a part; `version` is the expected one (`VersionConflictError`).
        """
        found = check_access(ctx, uri)
        fields = check_meta(metadata)

        def change(tx: Transaction) -> None:
            staged = tx.look(found)
            check_version(found, metadata, staged)
            tx.put(found, Staged(staged.files, staged.meta | fields))

        self.run(ctx, "write_metadata", change)

    def move_node(self, ctx: RequestContext, from_uri: str, to_uri: str) -> None:
        """Give a node, with all under it, another place in its space.

        Raises:
            NodeNotFoundError: There is none.
            ConflictError: The target is taken, lies under the node, or in another space; or it is an archive, which
                memories cite.

        Cost: that of writing all of it; one event.
        """
        uri, to = check_access(ctx, from_uri), check_access(ctx, to_uri)
        if uri.space != to.space:
            raise ConflictError(f"{to.text!r} is in another space than {uri.text!r}", uris=[to.text])
        if not (uri.is_node and to.is_node):
            raise ConflictError(f"a space cannot be moved, nor moved to: {uri.text!r}, {to.text!r}")
        if to.is_beneath(uri):
            raise ConflictError(f"{to.text!r} is {uri.text!r} itself, or under it", uris=[to.text])
        if SESSIONS in (uri.category, to.category):
            raise ConflictError(f"an archive stays where it is: {uri.text!r}", uris=[uri.text])

        def change(tx: Transaction) -> None:
            nodes = list(self.walk(uri))
            if not nodes:
                raise NodeNotFoundError(uri.text)
            if any(self.walk(to)):
                raise ConflictError(f"{to.text!r} is taken", uris=[to.text])
            for each in nodes:
                there = parse_uri(to.text + each.text[len(uri.text) :])
                tx.put(there, tx.look(each))
                tx.put(each, None)
                tx.moves[each.text] = there.text
            tx.add_event(MOVE_CONTEXT, uri.text, {"to_uri": to.text, "recursive": True})

        self.run(ctx, "move_node", change)

    def delete_node(self, ctx: RequestContext, uri: str, recursive: bool = False) -> None:
        """Delete a node; `undo` brings it back.

        Raises:
            NodeNotFoundError: There is none.
            ConflictError: It has children, and `recursive` is false.
        """
        found = check_access(ctx, uri)

        def change(tx: Transaction) -> None:
            under = [child for child in self.walk(found) if child.text != found.text]
            if under and not recursive:
                raise ConflictError(f"{found.text!r} has children", uris=[child.text for child in under[:5]])
            if not under and not tx.has(found):
                raise NodeNotFoundError(found.text)
            for each in [found, *under]:
                if tx.has(each):
                    tx.put(each, None)

        self.run(ctx, "delete_node", change)

    def _check_lengths(self, uri: Uri, files: Image, present: Image) -> None:
        """Refuse a level that is too long; one that was edited to be longer may grow by the limit once."""
        for level, name in LEVELS.items():
            tokens, limit = self.count_tokens(files.get(name, b"").decode()), LEVEL_TOKENS[level]
            if tokens > limit:
                held = self.count_tokens(present.get(name, b"").decode("utf-8", "replace"))
                if held <= limit or tokens > held + limit:
                    raise InvalidInputError(f"{level} of {uri.text!r} has {tokens} tokens, more than {limit}")


def _text_of(uri: Uri, name: str, staged: Staged) -> str:
    """Return a level of a node; the content of an archive is a page of its messages, unless it was edited."""
    data = staged.files.get(name, b"")
    if data == SEE_MESSAGES and name == CONTENT and MESSAGES in staged.files:
        return render_messages(decode_messages(staged.files[MESSAGES], uri.text, staged.meta["created_at"]))
    return decode(uri, name, data)


def node_of(uri: Uri, staged: Staged, include_content: bool = True) -> ContextNode:
    """Return a node as a caller gets it; with `include_content` also its L2."""
    abstract, overview = (_text_of(uri, name, staged) for name in (ABSTRACT, OVERVIEW))
    content = _text_of(uri, CONTENT, staged) if include_content else ""
    meta = {**staged.meta, "digests": digests_of(staged.files)}
    kind, category = meta.pop("type"), meta.pop("category")
    return ContextNode(uri.text, uri.parent, kind, category, uri.owner_space, abstract, overview, content, meta)


class RelationStore:
    """The edges of nodes; each write is a transaction, or a part of the one that is open."""

    def __init__(self, fs: ContextFS) -> None:
        self._fs = fs

    def get_edges(self, ctx: RequestContext, uri: str) -> list[RelationEdge]:
        """Return a node's edges; those that lead outside the request's spaces are left out."""
        edges = read_edges(check_access(ctx, uri).text, self._fs.read_file(ctx, uri, RELATIONS))
        return [edge for edge in edges if is_visible(ctx, edge.to_uri)]

    def upsert_edges(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge]) -> None:
        """Add edges within the request's spaces; one with the same target and type is replaced."""
        self._add(ctx, uri, edges, replace=True)

    def append_edges(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge]) -> None:
        """Add edges; a present one with the same target and type stays."""
        self._add(ctx, uri, edges, replace=False)

    def _add(self, ctx: RequestContext, uri: str, edges: Sequence[RelationEdge], replace: bool) -> None:
        found = check_access(ctx, uri)
        for edge in edges:
            if not isinstance(edge, RelationEdge) or edge.from_uri != found.text:
                raise InvalidInputError(f"an edge of {uri!r} begins there: {shorten(edge)}")
            if not edge.relation_type:
                raise InvalidInputError(f"an edge needs a type: {shorten(edge)}")
            check_access(ctx, edge.to_uri)

        def merge(held: list[RelationEdge]) -> list[RelationEdge]:
            merged = {(edge.to_uri, edge.relation_type): edge for edge in held}
            for edge in edges:
                if replace or (edge.to_uri, edge.relation_type) not in merged:
                    merged[edge.to_uri, edge.relation_type] = edge
            return list(merged.values())

        self._change(ctx, found, merge)

    def _change(self, ctx: RequestContext, uri: Uri, change: Callable[[list[RelationEdge]], list[RelationEdge]]) -> int:
        """Change a node's edges, and return how many fewer they are."""

        def run(tx: Transaction) -> int:
            staged = tx.look(uri)
            held = read_edges(uri.text, staged.files.get(RELATIONS, b""))
            made = change(held)
            if made != held:
                tx.put(uri, Staged({**staged.files, RELATIONS: write_edges(made)}, staged.meta))
            return len(held) - len(made)

        return self._fs.run(ctx, "relations", run)

    def remove_edges(
        self,
        ctx: RequestContext,
        uri: str,
        to_uris: Sequence[str] | None = None,
        relation_types: Sequence[str] | None = None,
    ) -> int:
        """Remove a node's edges to some nodes and of some types, where None is all, and return how many it were."""

        def is_kept(edge: RelationEdge) -> bool:
            is_elsewhere = to_uris is not None and edge.to_uri not in to_uris
            return is_elsewhere or (relation_types is not None and edge.relation_type not in relation_types)

        return self._change(ctx, check_access(ctx, uri), lambda held: list(filter(is_kept, held)))
