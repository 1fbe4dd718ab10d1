"""`History`: what commits made of a node, taking one back, what hands changed, and what is to be in no history."""

import contextlib
import json
import logging
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

from ...base.checks import shorten
from ...base.text import clean, mapping_of, to_json
from ..core.config import CONTENT, META, UPSERT_CONTEXT
from ..core.errors import ConflictError, InvalidInputError, NodeNotFoundError, StoreError, check_count
from ..core.objects import HistoryEntry, OutboxEvent, RequestContext
from .folders import Image
from .journal import MOVE, Commit, Step, put_event
from .main_store import MainStore
from .meta import Staged, decode, leads_on, read_meta, state_of
from .redo import copies_of
from .transaction import Transaction
from .uri import Uri, check_access, is_visible, parse_uri, space_uris

_log = logging.getLogger(__name__)


class History(MainStore):
    """The past of a store's nodes, as its journal has it."""

    # -- looking back --

    def history(self, ctx: RequestContext, uri: str, limit: int = 50) -> list[HistoryEntry]:
        """Return what commits made of a node, newest first, its former places included."""
        limit = check_count("limit", limit)
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
            found += [self._entry(ctx, current, row) for row in rows]
            if move is None:
                break
            commit = self.journal.query(
                "SELECT id, sequence, name, at, author FROM commits WHERE sequence = ?", move[:1]
            )
            for row in commit if len(found) < limit else ():
                found.append(_entry_of(ctx, row, "moved", {"uri": move[1]}, {"uri": current}))
            current, before = move[1], since
        return found

    def _last_move(self, uri: str, before: int) -> tuple[int, str] | None:
        """Return the sequence of the move that brought a node here, and where it was."""
        rows = self.journal.query(
            "SELECT sequence, uri, moved_to FROM changes WHERE moved_to IS NOT NULL AND sequence < ?"
            " ORDER BY sequence DESC",
            (before,),
        )
        for sequence, source, to in rows:
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

    def deleted_uris(self, uri: str) -> dict[str, Image]:
        """Return the nodes at and under a URI that are no more, but in the journal, with their last files there."""
        rows = self.journal.query(
            "SELECT DISTINCT uri FROM changes WHERE moved_to IS NULL AND (uri = ? OR (uri >= ? AND uri < ?))",
            (uri, f"{uri}/", f"{uri}0"),
        )
        gone = [each for (each,) in rows if not self.folders.exists(parse_uri(each).folders)]
        return {each: self.journal.last_files(each) for each in gone}

    def _entry(self, ctx: RequestContext, uri: str, row: Sequence[Any]) -> HistoryEntry:
        steps = [step for step in self.journal.steps(row[1]) if step.uri == uri and step.file != MOVE]
        before = {step.file: step.before.decode("utf-8", "replace") for step in steps if step.before is not None}
        made = {step.file: self._made(ctx, step) if step.digest else step.after for step in steps}
        after = {file: image.decode("utf-8", "replace") for file, image in made.items() if image is not None}
        change = "created" if META not in before else "deleted" if META not in after else "changed"
        for image in (before, after):
            if META in image:
                image[META] = _visible_meta(ctx, image[META])
        return _entry_of(ctx, row, change, before, after)

    def _made(self, ctx: RequestContext, step: Step) -> bytes | None:
        """Return what a step has made of a file, and the journal has given up; None where it is nowhere any more."""
        files = self.folders.read(self.follow(ctx, step.uri).folders, (step.file,))
        images = [*files.values(), *self.journal.images_of(step.uri, step.file)]
        return next(filter(step.has_made, images), step.after)

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
        names = ("id", "sequence", "name", "at", "author", "state")
        return [
            {
                **dict(zip(names, row, strict=False)),
                "author": _author(ctx, row[4]),
                "uris": sorted(uri for uri in json.loads(row[6]) if is_visible(ctx, uri)),
            }
            for row in rows
        ]

    # -- taking back --

    def undo(self, ctx: RequestContext, commit_id: str) -> str:
        """Take a commit back, as a new one, which can be undone, too, and return that one's id.

        Raises:
            InvalidInputError: No commit has the id.
            ConflictError: Later commits, or a hand, changed the same nodes; it names them. Or a part was forgotten.
        """
        commit = self.journal.find_commit(clean(commit_id)) if isinstance(commit_id, str) else None
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
        if not all(step.has_made(present.get(step.file)) for step in steps):
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
                " (h.uri = ? OR (h.moved_to IS NOT NULL AND ? > h.uri || '/' AND ? < h.uri || '0'))",
                (commit.sequence, uri, uri, uri),
            )
        }
        if later:
            raise ConflictError(
                f"later commits changed the same nodes: {', '.join(later)}", sorted(later.values()), list(later)
            )

    # -- leaving behind --

    def prune(self, before: float) -> int:
        """Drop the history of commits older than a time; see `ContextEngineService.prune`."""
        self.checkpoint()
        with self.locked(), self.journal.writing() as connection:
            old = "SELECT sequence FROM commits WHERE state = 'synced' AND at < ?"
            connection.execute(f"DELETE FROM changes WHERE sequence IN ({old})", (before,))
            count = connection.execute("DELETE FROM commits WHERE state = 'synced' AND at < ?", (before,)).rowcount
        self.journal.rewrite()
        return count

    def erase(self, gone: Sequence[str], kept: Sequence[str] = ()) -> bool:
        """Drop every image of some nodes, so that no file here holds a byte of what they said.

        False where another program reads the journal, whose WAL holds it until that ends.

        Of those that are `gone` all that names them goes, too; those that are `kept` stay as they are now, without a
        past. Cost: a sync, and the journal is written again.
        """
        self.checkpoint()  # the images are what a power cut would need
        with self.locked():
            with self.journal.writing("FULL") as connection:
                for uri in [*gone, *kept]:
                    where = "(uri = ? OR (uri >= ? AND uri < ?))" if uri in gone else "uri = ?"
                    values = (uri, f"{uri}/", f"{uri}0") if uri in gone else (uri,)
                    connection.execute(
                        "UPDATE commits SET plans = '[{\"forgotten\": true}]' WHERE sequence IN"
                        f" (SELECT sequence FROM changes WHERE {where})",
                        values,
                    )
                    for table in ("changes", "unsynced", "reports", *(("nodes", "outbox") if uri in gone else ())):
                        connection.execute(f"DELETE FROM {table} WHERE {where}", values)
                    if uri in gone:
                        connection.execute("DELETE FROM changes WHERE moved_to = ?", (uri,))
            for place in copies_of(self.aside, [*gone, *kept]):
                shutil.rmtree(place)
            return self.journal.rewrite()

    # -- what hands changed --

    def is_edited(self, uri: Uri) -> bool:
        """Whether a node differs from what the journal last wrote. Cost: reads the node."""
        image = self.folders.read(uri.folders)
        row = self.journal.node(uri.text)
        return bool(image) and not leads_on(image.get(META, b"")) and (row is None or row.state != state_of(image))

    def adopt(self, ctx: RequestContext, uri: str) -> bool:
        """Make a version of what a hand has changed in a node, or made as a new one; False where nothing is new."""
        found = self.follow(ctx, uri)
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
        for uri, entry in self.entries(root):
            with contextlib.suppress(StoreError):  # what cannot be looked at is reported by `verify`
                is_bare = entry.image is None  # a hand may have put a content there, and no metadata
                if not is_bare or self.folders.exists(uri.folders, CONTENT):
                    known.discard(uri.text)
                    found += [uri.text] if is_bare or self.is_edited(uri) else []
        for gone in sorted(known):
            with contextlib.suppress(StoreError):
                found += [gone] if not self.folders.exists(parse_uri(gone).folders) else []
        return found


def _entry_of(
    ctx: RequestContext, row: Sequence[Any], change: str, before: dict[str, str], after: dict[str, str]
) -> HistoryEntry:
    return HistoryEntry(row[0], row[1], row[2], row[3], _author(ctx, row[4]), change, before, after)


def _author(ctx: RequestContext, author: str) -> str:
    """Return who made a commit; of another user of the same agent, the agent alone."""
    user, _, agent = author.rpartition("/")
    return author if user == ctx.user_id else agent


def _visible_meta(ctx: RequestContext, text: str) -> str:
    """Return metadata without the sources that are others'; as it stands where it is all the request's."""
    try:
        meta = mapping_of(json.loads(text))
    except (ValueError, RecursionError):
        return text
    if not isinstance(refs := meta.get("source_refs"), list):
        return text
    seen = [ref for ref in refs if is_visible(ctx, str(mapping_of(ref).get("archive")))]
    return text if seen == refs else to_json({**meta, "source_refs": seen}, indent=1)
