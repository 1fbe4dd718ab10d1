"""The index of each owner space, opened when it is needed: isolation hangs on no filter."""

import threading
from pathlib import Path

from ..core.forks import watch_forks
from ..fs.uri import parse_uri
from ..providers.word_index import WordIndex

__all__ = ["IndexSpaces"]


class IndexSpaces:
    """A folder for each space, `{account}/{space}/`.

    Args:
        folder: `.ctx/index`; None keeps all in memory.
        readonly: Whether nothing may be written.
    """

    def __init__(self, folder: Path | None, readonly: bool = False) -> None:
        self.folder, self._readonly = folder, readonly
        self._lock = threading.Lock()
        self._open: dict[str, WordIndex] = {}
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with a lock of its own."""
        self._lock = threading.Lock()

    def folder_of(self, space: str) -> Path | None:
        """Return where a space's index lies."""
        uri = parse_uri(space)
        return None if self.folder is None else self.folder / uri.folders[0] / f"{uri.segments[1]}={uri.folders[2]}"

    def words(self, uri: str) -> WordIndex:
        """Return the words of the space that a URI lies in. Cost: a millisecond, the first time."""
        space = parse_uri(uri).space
        with self._lock:
            made = self._open.get(space)
            if made is None:
                folder = self.folder_of(space)
                made = self._open[space] = WordIndex(folder / "index.db" if folder else None, self._readonly)
            return made

    def checkpoint(self) -> None:
        """Empty the WALs of what is open; the caller holds the store's lock, so that no two do it at once."""
        with self._lock:
            for index in self._open.values():
                index.checkpoint()

    def close(self) -> None:
        """Close all that is open."""
        with self._lock:
            for index in self._open.values():
                index.close()
            self._open = {}
