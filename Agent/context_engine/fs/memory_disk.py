"""`MemoryDisk`: a disk that is gone with its process, for stores that nobody keeps."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Sequence
from typing import TypeAlias

from .disk import Disk, FolderEntry

__all__ = ["MemoryDisk"]

Folder: TypeAlias = "dict[str, Held]"
Held: TypeAlias = "bytearray | Folder"
"""A file, or a folder."""


class _Entry:
    """What a folder holds by one name."""

    def __init__(self, name: str, held: Held) -> None:
        self.name, self._is_folder = name, isinstance(held, dict)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return self._is_folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a file."""
        return not self._is_folder


class MemoryDisk(Disk):
    """Files and folders in memory; there are no links, and nothing has to be synced."""

    def __init__(self) -> None:
        self._root: Folder = {}
        self._opened: dict[int, Held] = {}
        self._numbers = itertools.count(1 << 20)

    def _open(self, held: Held) -> int:
        number = next(self._numbers)
        self._opened[number] = held
        return number

    def _folder(self, fd: int) -> Folder:
        held = self._opened[fd]
        assert isinstance(held, dict)
        return held

    def _find(self, name: str, parent: int) -> Held:
        try:
            return self._folder(parent)[name]
        except KeyError:
            raise FileNotFoundError(f"no such file or folder: {name!r}") from None

    def open_root(self, path: str) -> int:
        """Open the outermost folder."""
        return self._open(self._root)

    def open_folder(self, name: str, parent: int) -> int:
        """Open a folder in another one."""
        held = self._find(name, parent)
        if not isinstance(held, dict):
            raise NotADirectoryError(f"a file, where a folder belongs: {name!r}")
        return self._open(held)

    def make_folder(self, name: str, parent: int) -> None:
        """Make a folder; one that is there is no error."""
        self._folder(parent).setdefault(name, {})

    def list_folder(self, fd: int) -> Sequence[FolderEntry]:
        """Return what a folder holds."""
        return [_Entry(name, held) for name, held in list(self._folder(fd).items())]

    def open_file(self, name: str, parent: int) -> int:
        """Open a file for reading."""
        return self._open(self._find(name, parent))

    def read(self, fd: int, limit: int) -> bytes:
        """Return a file's bytes, at most `limit` and one more."""
        held = self._opened[fd]
        assert isinstance(held, bytearray)
        return bytes(held[: limit + 1])

    def look_up(self, name: str, parent: int) -> os.stat_result:
        """Return what is known of a name."""
        return _stat_of(self._find(name, parent))

    def look_at(self, fd: int) -> os.stat_result:
        """Return what is known of an open file."""
        return _stat_of(self._opened[fd])

    def create_file(self, name: str, parent: int) -> int:
        """Open an empty file for writing."""
        made = self._folder(parent)[name] = bytearray()
        return self._open(made)

    def write(self, fd: int, data: bytes) -> int:
        """Write some bytes."""
        held = self._opened[fd]
        assert isinstance(held, bytearray)
        held += data
        return len(data)

    def rename(self, old: str, old_parent: int, new: str, new_parent: int) -> None:
        """Give a file or folder another name, in the place of what has it."""
        held = self._find(old, old_parent)
        self._folder(new_parent)[new] = held
        if (old, old_parent) != (new, new_parent):
            del self._folder(old_parent)[old]

    def remove_file(self, name: str, parent: int) -> None:
        """Remove a file; one that is not there is no error."""
        self._folder(parent).pop(name, None)

    def remove_folder(self, name: str, parent: int) -> None:
        """Remove an empty folder; one that is not there, or not empty, stays as it is."""
        folder = self._folder(parent)
        if folder.get(name) == {}:
            del folder[name]

    def close(self, fd: int) -> None:
        """Close a file or a folder."""
        del self._opened[fd]

    def may_write(self, fd: int) -> bool:
        """Whether files may be made in a folder."""
        return True

    def open_lock(self, path: str, create: bool) -> int:
        """Open what is locked: there is nobody but this process's threads, who have a lock of their own."""
        return self._open(bytearray())

    def lock(self, fd: int) -> None:
        """Nobody else writes."""

    def unlock(self, fd: int) -> None:
        """Nobody else waits."""

    def sync_all(self, fd: int) -> None:
        """Nothing outlasts the process."""


def _stat_of(held: Held) -> os.stat_result:
    is_folder = isinstance(held, dict)
    mode, size = (stat.S_IFDIR | 0o700, 0) if is_folder else (stat.S_IFREG | 0o600, len(held))
    return os.stat_result((mode, 0, 0, 1, 0, 0, size, 0, 0, 0))
