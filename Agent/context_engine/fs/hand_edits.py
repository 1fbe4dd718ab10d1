"""`HandEdits`: what people change in the files is found, and made a version."""

import contextlib
from collections.abc import Iterator

from ..core.config import CONTENT, META, UPSERT_CONTEXT
from ..core.errors import NodeNotFoundError, StoreError
from ..core.objects import OutboxEvent, RequestContext
from .checks import decode
from .history import History
from .journal import put_event
from .meta import leads_on, state_of
from .uri import Uri, parse_uri

__all__ = ["HandEdits"]


class HandEdits(History):
    """Where files differ from what the journal last wrote."""

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
                decode(found, name, data)

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
        found += [uri for uri in known if self._is_gone(parse_uri(uri))]
        found += [uri.text for uri in self._bare(root)]
        return found

    def _is_gone(self, uri: Uri) -> bool:
        with contextlib.suppress(StoreError):  # what cannot be looked at is told by `verify`
            return not self.folders.exists(uri.folders)
        return False

    def _bare(self, uri: Uri) -> Iterator[Uri]:
        """Yield folders that a hand has put a content into, and no metadata."""
        for found, entry in self.entries(uri):
            with contextlib.suppress(StoreError):  # as above
                if entry.image is None and self.folders.exists(found.folders, CONTENT):
                    yield found
