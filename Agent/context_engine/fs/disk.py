"""The one door to the operating system: a call each, so that a test can stand behind it and let any of them fail.

Folders are opened from their parents and never through a symlink; no name here has a slash.
"""

import contextlib
import ctypes
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["Disk", "FolderEntry", "boot_id"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe that somebody put there must not block


class FolderEntry(Protocol):
    """What a folder holds by one name; `os.DirEntry` is one."""

    @property
    def name(self) -> str:
        """The name."""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a plain file."""


class Disk:
    """What the store asks of the operating system."""

    def open_root(self, path: str) -> int:
        """Open the store's folder."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open_folder(self, name: str, parent: int) -> int:
        """Open a folder in another one."""
        return os.open(name, _FOLDER, dir_fd=parent)

    def make_folder(self, name: str, parent: int) -> None:
        """Make a folder for its owner alone; one that is there is no error."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)

    def list_folder(self, fd: int) -> Sequence[FolderEntry]:
        """Return what a folder holds."""
        with os.scandir(fd) as entries:
            return list(entries)

    def open_file(self, name: str, parent: int) -> int:
        """Open a file for reading."""
        return os.open(name, _FILE, dir_fd=parent)

    def read(self, fd: int, limit: int) -> bytes:
        """Return a file's bytes, at most `limit` and one more."""
        # As much memory as the file has, not as much as it may have: a buffer of the limit costs more than the reading.
        left = min(limit + 1, os.fstat(fd).st_size)
        chunks = []
        while left and (chunk := os.read(fd, left)):
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)

    def look_up(self, name: str, parent: int) -> os.stat_result:
        """Return what is known of a name, without following it."""
        return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def look_at(self, fd: int) -> os.stat_result:
        """Return what is known of an open file."""
        return os.fstat(fd)

    def create_file(self, name: str, parent: int) -> int:
        """Open an empty file for writing, for its owner alone."""
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)

    def write(self, fd: int, data: bytes) -> int:
        """Write some bytes, and return how many the disk took."""
        return os.write(fd, data)

    def rename(self, old: str, old_parent: int, new: str, new_parent: int) -> None:
        """Give a file or folder another name, in the place of what has it."""
        os.rename(old, new, src_dir_fd=old_parent, dst_dir_fd=new_parent)

    def remove_file(self, name: str, parent: int) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)

    def remove_folder(self, name: str, parent: int) -> None:
        """Remove an empty folder; one that is not there, or not empty, stays as it is."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent)

    def close(self, fd: int) -> None:
        """Close a file or a folder."""
        os.close(fd)

    def may_write(self, fd: int) -> bool:
        """Whether this process may make files in a folder."""
        return os.access(".", os.W_OK | os.X_OK, dir_fd=fd)

    def open_lock(self, path: str, create: bool) -> int:
        """Open the file that is locked; it is never deleted, else two could hold it."""
        return os.open(path, (os.O_RDWR | os.O_CREAT if create else os.O_RDONLY) | os.O_CLOEXEC, 0o600)

    def lock(self, fd: int) -> None:
        """Wait until nobody else writes."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(self, fd: int) -> None:
        """Let others write."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def sync_all(self, fd: int) -> None:
        """Let all that was written to the file system of a folder last: one call, however many files (`syncfs`)."""
        if _syncfs is None:
            os.sync()
        elif _syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def is_regular(self, fd: int) -> bool:
        """Whether an open file is a plain one."""
        return stat.S_ISREG(self.look_at(fd).st_mode)


def _find_syncfs() -> Callable[[int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
    found: Callable[[int], int] = function
    return found


_syncfs = _find_syncfs()


def boot_id() -> str:
    """Return what changes when the machine starts anew; "" where it does not tell, which fits no other start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
