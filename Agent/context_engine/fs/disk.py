"""The one door to the operating system: a call each, so that a test can stand behind it and let any of them fail.

Folders are opened from their parents and never through a symlink; no name here has a slash.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Disk", "boot_id"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in its place must not block


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

    def list_folder(self, fd: int) -> Sequence[os.DirEntry[str]]:
        """Return what a folder holds."""
        with os.scandir(fd) as entries:
            return list(entries)

    def open_file(self, name: str, parent: int) -> int:
        """Open a file for reading."""
        return os.open(name, _FILE, dir_fd=parent)

    def read(self, fd: int, size: int) -> bytes:
        """Return a file's bytes, at most so many."""
        data = os.read(fd, size)
        while len(data) < size and (more := os.read(fd, size - len(data))):
            data += more
        return data

    def read_short(self, name: str, parent: int, size: int) -> bytes:
        """Return what one call gives of a file by its name: of a plain one all, if it is shorter."""
        fd = os.open(name, _FILE, dir_fd=parent)
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)

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

    def place(self, new: str, name: str, parent: int) -> None:
        """Give a file another name, which nothing may have (`FileExistsError`)."""
        if not _rename2(new, name, parent, _NOREPLACE):
            os.link(new, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            os.unlink(new, dir_fd=parent)

    def swap(self, new: str, name: str, parent: int) -> None:
        """Let two files of a folder change names: one step, so that what is taken is what was there.

        On a file system that cannot (NFS), these are three steps: what is renamed into the place between two is lost.
        """
        if not _rename2(new, name, parent, _EXCHANGE):
            taken = f"{name}.old"
            os.link(name, taken, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.rename(taken, new, src_dir_fd=parent, dst_dir_fd=parent)

    def is_being_written(self, fd: int) -> bool:
        """Whether any program has a file open for writing; False where the system does not tell."""
        if not hasattr(fcntl, "F_SETLEASE"):
            return False
        try:  # Linux gives a read lease on a file that no process has open for writing; its signal must not end us
            fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN
        return False

    def link_out(self, name: str, parent: int, path: str) -> None:
        """Give a file a second name elsewhere, so that what is still written to it is kept."""
        os.link(name, path, src_dir_fd=parent, follow_symlinks=False)

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
        """Wait until no other process writes."""
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


def _find(name: str, *arguments: Any) -> Callable[..., int] | None:
    """Return a function of the C library, None where it has none of the name."""
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError):
        return None
    function.argtypes, function.restype = arguments, ctypes.c_int
    found: Callable[..., int] = function
    return found


_syncfs = _find("syncfs", ctypes.c_int)
_renameat2 = _find("renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_NOREPLACE, _EXCHANGE = 1, 2


def _rename2(old: str, new: str, parent: int, flag: int) -> bool:
    """Rename within a folder by a flag of `renameat2`; False where the system or the file system has none."""
    if _renameat2 is None:
        return False
    if _renameat2(parent, os.fsencode(old), parent, os.fsencode(new), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), new)


def boot_id() -> str:
    """Return what changes when the machine starts again; "" where it does not tell, which fits no other start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
