"""A node's files as one image, read and written from folder to folder; a symlink on the way is an error.

`Disk` is the one door to the operating system for what changes: a test can stand behind it and let any call fail.

A file is written under another name and exchanged with the present one; nothing is synced here. The former file is
compared after that, so that an edit made in between is not lost. `Image` maps a file's name to its bytes; None stands
for a file to be removed.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..core.config import FILES, META, SPACE, URI_SEGMENTS
from ..core.errors import StoreCorruptError, StoreError

FILE_BYTES = 64 * 1024 * 1024
"""A larger file of a node is not read: it cannot be the engine's."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in its place must not block


class Disk:
    """The store's calls of the operating system that change files, or make them last."""

    def make_folder(self, name: str, parent: int) -> None:
        """Make a folder for its owner alone; one that is there is no error."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)

    def create_file(self, name: str, parent: int) -> int:
        """Open an empty file for writing, for its owner alone."""
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)

    def write(self, fd: int, data: bytes) -> int:
        """Write some bytes, and return how many the disk took."""
        return os.write(fd, data)

    def rename(self, old: str, old_parent: int, new: str, new_parent: int) -> None:
        """Rename a file or folder, replacing a file of that name."""
        os.rename(old, new, src_dir_fd=old_parent, dst_dir_fd=new_parent)

    def place(self, new: str, name: str, parent: int) -> None:
        """Give a file another name, which nothing may have (`FileExistsError`)."""
        if not _rename2(new, name, parent, _NOREPLACE):
            os.link(new, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            os.unlink(new, dir_fd=parent)

    def swap(self, new: str, name: str, parent: int) -> None:
        """Exchange the names of two files of a folder in one step.

        On a file system that cannot (NFS) these are three steps: a file renamed into the place between two is lost.
        """
        if not _rename2(new, name, parent, _EXCHANGE):
            taken = name + OLD
            os.link(name, taken, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.rename(taken, new, src_dir_fd=parent, dst_dir_fd=parent)

    def link_out(self, name: str, parent: int, path: str) -> None:
        """Link a file elsewhere, so that later writes of another program to it are kept."""
        os.link(name, path, src_dir_fd=parent, follow_symlinks=False)

    def remove_file(self, name: str, parent: int) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)

    def remove_folder(self, name: str, parent: int) -> None:
        """Remove an empty folder; one that is not there, or not empty, stays as it is."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=parent)

    def sync_all(self, fd: int) -> None:
        """Let all that was written to the file system of a folder last: one call, however many files (`syncfs`)."""
        if _syncfs is None:
            os.sync()
        elif _syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _entries(fd: int) -> list[os.DirEntry[str]]:
    with os.scandir(fd) as entries:
        return list(entries)


def _is_node(names: Iterable[str]) -> bool:
    return any(name in FILES and name != META for name in names)


def _is_being_written(fd: int) -> bool:
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
    """Return an id of this start of the machine; "" where it is unknown, which equals no other start."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


Image: TypeAlias = dict[str, bytes]
Change: TypeAlias = Mapping[str, bytes | None]

NEW = ".new"  # what a file is called until it is whole, and then what was there before
OLD = ".old"  # what was there before, within a `swap` of several steps
_WAITS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # for a program that has a file open for writing, seconds
_REFUSED = (errno.EACCES, errno.EPERM)


class Entry(NamedTuple):
    """A folder, as a walk meets it."""

    folders: tuple[str, ...]
    """Its name, and those of the folders that it is in, as they are on disk."""
    image: Image | None
    """The files that were asked for, as far as they can be read; None where it is no node."""
    has_children: bool


Look: TypeAlias = Callable[[str, bytes, bytes | None, Callable[[str], None] | None], bytes | None]
"""Looks at a file that a write has taken from its place: its name, its content, and what has taken the place, where
None is nothing. The last argument gives the file itself another path, where a program still writes to it. Returns a
merged content for the place, or None."""


class Folders:
    """The folders under one root; any number of threads may use them."""

    def __init__(self, root: str, disk: Disk) -> None:
        self.root = root
        self._disk = disk

    def _open(self, names: Sequence[str]) -> tuple[int, int]:
        """Open a folder from its parents on, or the last one that exists, and return it with its depth.

        A `StoreError` says that one on the way is a symlink, or a file.
        """
        try:
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"the store's folder was removed or replaced, open it again: {error}") from error
        for depth, name in enumerate(names):
            try:
                fd, above = os.open(name, _FOLDER, dir_fd=fd), fd
            except FileNotFoundError:
                return fd, depth
            except OSError as error:
                os.close(fd)
                where = "/".join(names[: depth + 1])
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise StoreError(f"{where!r} is a symlink or a file, where a folder belongs") from error
                raise StoreError(f"{where!r} may not be opened: {error}") from error
            os.close(above)
        return fd, len(names)

    @contextlib.contextmanager
    def opened(self, names: Sequence[str], create: bool = False) -> Iterator[int]:
        """Hold a folder open."""
        fd, depth = self._open(names)
        try:
            if depth < len(names) and not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), names[depth])
            for name in names[depth:]:
                self._disk.make_folder(name, fd)
                fd, above = os.open(name, _FOLDER, dir_fd=fd), fd
                os.close(above)
            yield fd
        finally:
            os.close(fd)

    def read(self, names: Sequence[str], files: Sequence[str] = FILES, is_settled: bool = False) -> Image:
        """Return a node's files, those that are there; with `is_settled` each once no program is writing to it."""
        image: Image = {}
        with contextlib.suppress(FileNotFoundError), self.opened(names) as fd:
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    image[name] = self._read_file(name, fd, names, is_settled)[0]
        return image

    def leftovers(self, names: Sequence[str]) -> Image:
        """Return the temporary files that a process left when it died within `write`."""
        return self.read(names, [name + end for name in FILES for end in (NEW, OLD)])

    def drop_leftovers(self, names: Sequence[str]) -> None:
        """Remove them."""
        with contextlib.suppress(FileNotFoundError), self.opened(names) as fd:
            for name in (name + end for name in FILES for end in (NEW, OLD)):
                self._disk.remove_file(name, fd)

    def _read_file(self, name: str, parent: int, names: Sequence[str], is_settled: bool) -> tuple[bytes, bool]:
        """Return a file's bytes, and whether a program may still be writing to it; it is waited for a tenth second."""
        try:
            fd = os.open(name, _FILE, dir_fd=parent)
        except OSError as error:
            where = "/".join((*names, name))
            if error.errno == errno.ELOOP:
                raise StoreError(f"{where!r} is a symlink, where a file belongs") from error
            if error.errno in _REFUSED:
                raise StoreError(f"{where!r} may not be read") from error
            raise
        try:
            is_open = False
            for pause in _WAITS if is_settled else ():
                time.sleep(pause)
                if not (is_open := _is_being_written(fd)):
                    break
            known = os.fstat(fd)
            if not stat.S_ISREG(known.st_mode):
                raise StoreError(f"{'/'.join((*names, name))!r} is no plain file")
            if known.st_size > FILE_BYTES:
                raise StoreCorruptError(f"{'/'.join((*names, name))!r} is larger than {FILE_BYTES} bytes: no memory is")
            data = os.read(fd, known.st_size)
            while len(data) < known.st_size and (more := os.read(fd, known.st_size - len(data))):
                data += more
            return data, is_open
        finally:
            os.close(fd)

    def write(self, names: Sequence[str], change: Change, look: Look) -> None:
        """Write some files of a node and remove others; the metadata is the last to come and the first to go.

        Each file that was there is looked at.
        """
        is_removal = all(data is None for data in change.values())
        gone = contextlib.suppress(FileNotFoundError) if is_removal else contextlib.nullcontext()
        try:
            with gone, self.opened(names, create=not is_removal) as fd:
                for name in reversed(FILES) if is_removal else FILES:
                    if name in change:
                        self._write_file(name, change[name], fd, names, look)
            if is_removal:
                self._remove_folders(names)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"{'/'.join(names)!r} cannot be written: {error}") from error

    def check_writable(self, names: Sequence[str]) -> None:
        """Refuse a folder that cannot be written, before a commit is logged that would block all later writes."""
        fd, depth = self._open(names)
        try:
            where = "/".join(names[:depth])
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd):
                raise StoreError(f"{where!r} may not be written")
            for entry in _entries(fd) if depth == len(names) else ():
                is_ours = entry.name.removesuffix(NEW).removesuffix(OLD) in FILES
                if is_ours and not entry.is_file(follow_symlinks=False):
                    raise StoreError(f"{where}/{entry.name} is no plain file, where one belongs")
        finally:
            os.close(fd)

    def _write_file(self, name: str, data: bytes | None, parent: int, names: Sequence[str], look: Look) -> None:
        """Write a file, or remove it where there is no `data`; an unexpected content is kept."""
        if data is None:
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(name, parent, name + NEW, parent)
                self._look_at_taken(name, parent, names, look, None)
        while data is not None:
            fd = self._disk.create_file(name + NEW, parent)
            try:
                left = data
                while left:
                    left = left[self._disk.write(fd, left) :]
            finally:
                os.close(fd)
            data = self._look_at_taken(name, parent, names, look, data) if self._put(name, parent) else None

    def _put(self, name: str, parent: int) -> bool:
        """Let a new file take its place; return whether something was there, which has the new one's name now."""
        while True:  # an editor may create or remove the file between two steps
            with contextlib.suppress(FileNotFoundError):
                self._disk.swap(name + NEW, name, parent)
                return True
            with contextlib.suppress(FileExistsError):
                self._disk.place(name + NEW, name, parent)
                return False

    def _look_at_taken(
        self, name: str, parent: int, names: Sequence[str], look: Look, data: bytes | None
    ) -> bytes | None:
        """Have a replaced file looked at; then remove it.

        Returns a content to be written in its place; None if there is none.
        """
        try:
            taken, is_open = self._read_file(name + NEW, parent, names, is_settled=True)
        except (StoreError, OSError):  # a symlink, or what may not be read: it is put back as it was
            self._disk.rename(name + NEW, parent, name, parent)
            raise
        link = functools.partial(self._disk.link_out, name + NEW, parent) if is_open else None
        merged = look(name, taken, data, link)  # by now the journal has it, or `aside`
        self._disk.remove_file(name + NEW, parent)
        return merged

    def _remove_folders(self, names: Sequence[str]) -> None:
        """Remove a folder, and those above it, in which nothing is left."""
        self.drop_leftovers(names)
        for depth in range(len(names), 3, -1):  # a space's own folder stays
            with contextlib.suppress(FileNotFoundError), self.opened(names[: depth - 1]) as fd:
                self._disk.remove_folder(names[depth - 1], fd)

    def empty(self, names: Sequence[str], keep: Sequence[str] = ()) -> None:
        """Remove all files of a folder except `keep`, and all in its folders that are no nodes."""
        with contextlib.suppress(FileNotFoundError), self.opened(names) as fd:
            for entry in _entries(fd):
                if not entry.is_dir(follow_symlinks=False):
                    if entry.name not in keep:
                        self._disk.remove_file(entry.name, fd)
                elif not self.has_node((*names, entry.name)):
                    self.empty((*names, entry.name))
        if not keep:
            self._remove_folders(names)

    def has_node(self, names: Sequence[str]) -> bool:
        """Whether a folder holds a node: a file besides the metadata, which an earlier version left after a move."""
        with contextlib.suppress(FileNotFoundError), self.opened(names) as fd:
            return _is_node(os.listdir(fd))
        return False

    def child_names(self, names: Sequence[str]) -> list[str]:
        """Return the names of the folders within a folder, whatever is in them, without opening one."""
        with contextlib.suppress(FileNotFoundError), self.opened(names) as fd:
            folders = [entry.name for entry in _entries(fd) if entry.is_dir(follow_symlinks=False)]
            return sorted(name for name in folders if name != SPACE)
        return []

    def walk(self, names: Sequence[str], files: Sequence[str] = (META,), depth: int = URI_SEGMENTS) -> Iterator[Entry]:
        """Yield a folder and those under it by name, parents first, without symlinks.

        Of the `files` what cannot be read is left out. Cost: some 20 µs a folder.
        """
        with contextlib.suppress(FileNotFoundError), self.opened(names) as top:
            for place, folders, found, fd in os.fwalk(".", dir_fd=top):
                inner = place.split("/")[1:]
                folders[:] = sorted(name for name in folders if name != SPACE)
                image = self._read_some(files, fd) if _is_node(found) else None
                yield Entry((*names, *inner), image, bool(folders))
                if len(inner) == depth:
                    folders.clear()

    def _read_some(self, files: Sequence[str], fd: int) -> Image:
        """Return some files that can be read of an open folder."""
        image: Image = {}
        for name in files:
            with contextlib.suppress(OSError):
                image[name] = self._read_file(name, fd, (), False)[0]
        return image
