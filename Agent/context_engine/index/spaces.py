"""The index of each owner space, opened when it is needed: isolation needs no filter."""

import contextlib
import logging
import sqlite3
import threading
from pathlib import Path

from ...base.forks import watch_forks
from ..fs.uri import parse_uri
from ..providers.word_index import LostIndexError, WordIndex

__all__ = ["IndexSpaces"]

_log = logging.getLogger(__name__)


class IndexSpaces:
    """A folder for each space, `{account}/{space}/`."""

    def __init__(self, folder: Path, readonly: bool = False) -> None:
        self.folder, self._readonly = folder, readonly
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
                    made = self._open[space] = WordIndex(self.folder_of(space) / "index.db", self._readonly)
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
                    made = WordIndex(self.folder_of(space) / "index.db", self._readonly)
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
