"""Opening a file of sqlite3 without writing a byte, and what its errors mean."""

import contextlib
import os
import sqlite3

__all__ = ["is_damage", "open_readonly"]


def open_readonly(path: str) -> sqlite3.Connection | None:
    """Return a connection that only reads; None where the file is not there, or is none of sqlite3's.

    A file without a WAL is opened as one that nobody changes, which makes no file beside it, on any file system.
    """
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    wal = f"{path}-wal"
    has_wal = os.path.exists(wal) and os.path.getsize(wal) > 0
    for mode in ("mode=ro", "immutable=1") if has_wal else ("immutable=1",):
        with contextlib.suppress(sqlite3.Error):
            made = sqlite3.connect(f"file:{quoted}?{mode}", uri=True, check_same_thread=False)
            try:
                made.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                return made
            except sqlite3.Error:
                made.close()
                raise
    return None


def is_damage(error: BaseException) -> bool:
    """Whether sqlite3 says that a file is damaged, or none of its own; a full disk, say, damages nothing."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    # `quick_check` gives sentences and no code.
    return (getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) or 0) & 0xFF in codes
