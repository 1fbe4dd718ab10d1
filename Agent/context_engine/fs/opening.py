"""Opening a store: its folder is made, a journal that is damaged is set aside, and what a crash left is done again.

The files are the store. Without a journal, in a clone or where it was damaged, they are taken in as they are.
"""

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from ..core.config import EXTRACT_ARCHIVE, SESSIONS, SPACE, UPSERT_CONTEXT
from ..core.errors import ContextEngineError, StoreCorruptError, StoreError
from ..core.objects import OutboxEvent
from ..core.text import mapping_of
from ..providers.sqlite_files import is_damage
from .journal import DAMAGED, NodeRow, put_event
from .meta import read_meta, state_of
from .redo import redo
from .transaction import Store
from .uri import parse_uri

__all__ = ["adopt_folder", "open_store", "set_journal_aside"]

_log = logging.getLogger(__name__)


def open_store(store: Store) -> None:
    """Open a store that may be written.

    Raises:
        StoreError: Its folder cannot be made, or what a crash left cannot be written.

    Cost: a millisecond; without a journal all files are read, after a start of the machine all of the journal is.
    """
    _make_folder(store.root)
    with store.locked(recover=False):
        is_new = not os.path.exists(store.journal.path)
        try:
            store.journal.open()
            if _has_started_anew(store) or (store.space / DAMAGED).exists():
                store.journal.check()
                _note_boot(store)
        except (sqlite3.DatabaseError, StoreCorruptError) as error:
            if not (isinstance(error, StoreCorruptError) or is_damage(error)):
                store.journal.close()
                raise StoreError(f"the journal at {store.journal.path!r} cannot be opened: {error}") from error
            set_journal_aside(store, error)
            is_new = True
        redo(store.journal, store.folders, store.boot, store.aside)
        if is_new or not store.journal.last_sequence():
            adopt_folder(store)
    for place in sorted(store.aside.glob("journal-*")):
        _log.warning("a damaged journal of %s is in %s; delete it when nothing of it is wanted", store.root, place)


def _make_folder(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        space = root / SPACE
        space.mkdir(mode=0o700, exist_ok=True)
        if not (space / ".gitignore").exists():
            (space / ".gitignore").write_text("*\n", encoding="ascii")
    except OSError as error:
        raise StoreError(f"no store can be made at {str(root)!r}: {error}") from error


def _has_started_anew(store: Store) -> bool:
    # Where the machine does not tell its starts, each opening may be the first one.
    return not store.boot or not store.journal.query("SELECT 1 FROM counters WHERE name = ?", (f"boot {store.boot}",))


def _note_boot(store: Store) -> None:
    """Remember which start of the machine this is; what the index did before may be lost."""
    store.journal.revive_events()
    with store.journal.writing() as connection:
        connection.execute("DELETE FROM counters WHERE name LIKE 'boot %'")
        connection.execute("INSERT INTO counters VALUES (?, 1)", (f"boot {store.boot}",))


def set_journal_aside(store: Store, error: Exception) -> None:
    """Begin another journal: the files are the store, and the damaged one is kept. The lock is held."""
    store.journal.close()
    path = Path(store.journal.path)
    place = path.parent / "aside" / f"journal-{os.urandom(4).hex()}"
    place.mkdir(mode=0o700, parents=True)
    for each in path.parent.glob(f"{path.name}*"):
        each.rename(place / each.name)
    (path.parent / DAMAGED).unlink(missing_ok=True)
    store.journal.open()
    _note_boot(store)
    store.journal.report(
        store.clock(),
        "",
        f"the journal was damaged ({error}) and set aside in .ctx/aside/{place.name}: what it could undo is gone;"
        " delete that folder when nothing of it is wanted",
    )


def adopt_folder(store: Store) -> None:
    """Take in what is there without a journal: sequences go on above the highest, and all is indexed again."""
    rows, waiting, spaces = [], list[OutboxEvent](), store.spaces()
    for space in spaces:
        for uri in store.walk(parse_uri(space)):
            with contextlib.suppress(ContextEngineError, OSError):
                image = store.folders.read(uri.folders)
                meta = read_meta(uri, image)
                rows.append(NodeRow(uri.text, meta["sequence"], meta["version"], state_of(image)))
                held = meta["metadata"]
                if uri.category == SESSIONS and mapping_of(held.get("ledger")).get("state") == "waiting":
                    request = {"user": uri.segments[2], "agent": str(held.get("agent")), "session": uri.segments[-2]}
                    event = OutboxEvent(store.new_id(), EXTRACT_ARCHIVE, uri.text, request, "pending", 0, store.clock())
                    waiting.append(event)
    last = max((row.sequence for row in rows), default=0)
    store.journal.put_nodes(rows)
    with store.journal.writing() as connection:
        for text in spaces:
            event = OutboxEvent(
                store.new_id(), UPSERT_CONTEXT, text, {"recursive": True}, "pending", 0, store.clock(), last
            )
            put_event(connection, event, store.clock(), "pending")
        for event in waiting:
            put_event(connection, event, store.clock(), "pending")
    store.journal.raise_sequence(last)
