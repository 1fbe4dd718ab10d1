"""A disk in memory that forgets, tears, fills up and dies: the tests put it behind the store's one door.

`keyword_tree._Files` is the only class there that calls the operating system. `Door` gives it another one: the
functions of `os` and `fcntl` that it uses, over a `FaultyDisk`. So the door's own code (loops over short writes,
syncs of folders) is tested with everything behind it.

What the disk promises is less than any real one does:

    written bytes       are seen by everybody at once, and last from the sync of their file on
    a file's length     the same
    names in a folder   the same, from the sync of the folder on (a synced file without a name is lost)

Until then each change is *pending*. A power cut (`Moment.cut_power`) leaves whatever a `Mode` chooses among the
pending changes: all, none, all but one, any sectors, sectors of garbage, an older write over a newer one. The death
of a process (`FaultyDisk.kill`) closes its descriptors and frees its locks, nothing else.

    >>> disk = FaultyDisk()
    >>> fd = disk.open("/disk/a", os.O_RDWR | os.O_CREAT)
    >>> disk.pwrite(fd, b"hello", 0)
    5
    >>> disk.fdatasync(fd)                                  # the bytes last, the name does not yet
    >>> disk.now().cut_power(Mode("none")).read_all()
    {}
    >>> disk.fsync(disk.open("/disk", os.O_RDONLY))
    >>> disk.pwrite(fd, b"J", 0)
    1
    >>> disk.now().cut_power(Mode("none")).read_all(), disk.read_all()
    ({'a': b'hello'}, {'a': b'Jello'})
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import posixpath
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import pytest

from Agent import keyword_tree as kt
from Agent.tests.support import inside

ROOM = "/disk"
"""The one folder that is there from the beginning; no real folder of the name is ever touched."""

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""

# == Changes ==================================================================
#
# A file's content is bytes, a folder's a dict from name to number.  Both are
# never changed in place, so remembering a moment costs a few references.

Entries: TypeAlias = dict[str, int]


class Write(NamedTuple):
    """Bytes at an offset; zeros fill what lies between the end and them."""

    offset: int
    data: bytes

    def apply(self, content: bytes) -> bytes:
        end = self.offset + len(self.data)
        before = content[: self.offset].ljust(self.offset, b"\0")
        return b"".join([before, self.data, content[end:]])


class Resize(NamedTuple):
    """A length; a file that grows is filled with zeros."""

    size: int

    def apply(self, content: bytes) -> bytes:
        return content[: self.size].ljust(self.size, b"\0")


class Grow(NamedTuple):
    """The length that a write brought, without its bytes."""

    size: int

    def apply(self, content: bytes) -> bytes:
        return content.ljust(self.size, b"\0")


class Link(NamedTuple):
    """A new name."""

    name: str
    number: int

    def apply(self, entries: Entries) -> Entries:
        return {**entries, self.name: self.number}


class Unlink(NamedTuple):
    """A name that is gone."""

    name: str

    def apply(self, entries: Entries) -> Entries:
        return {name: number for name, number in entries.items() if name != self.name}


class Rename(NamedTuple):
    """A name that took the place of another: both changes or none."""

    old: str
    new: str
    number: int

    def apply(self, entries: Entries) -> Entries:
        kept = {name: number for name, number in entries.items() if name != self.old or number != self.number}
        return {**kept, self.new: self.number}


FileChange: TypeAlias = Write | Resize | Grow
FolderChange: TypeAlias = Link | Unlink | Rename


class _File(NamedTuple):
    seen: bytes = b""
    lasting: bytes = b""
    pending: tuple[FileChange, ...] = ()
    changed_at: int = 0  # nanoseconds

    def changed(self, change: FileChange, now: int) -> _File:
        return _File(change.apply(self.seen), self.lasting, (*self.pending, change), now)

    def synced(self) -> _File:
        # Not what is seen: a failed sync may have dropped some of that.
        lasting = self.lasting
        for change in self.pending:
            lasting = change.apply(lasting)
        return self._replace(lasting=lasting, pending=())


class _Folder(NamedTuple):
    seen: Entries
    lasting: Entries
    pending: tuple[FolderChange, ...] = ()
    changed_at: int = 0  # nanoseconds
    set_at: int | None = None  # the time that a caller has set, until the next change

    def changed(self, change: FolderChange, now: int) -> _Folder:
        return _Folder(change.apply(self.seen), self.lasting, (*self.pending, change), now)

    def synced(self) -> _Folder:
        lasting = self.lasting
        for change in self.pending:
            lasting = change.apply(lasting)
        return self._replace(lasting=lasting, pending=())


_Inode: TypeAlias = _File | _Folder
_TOP_NUMBER, _ROOM_NUMBER = 1, 2  # of "/" and of `ROOM`
_new_numbers = itertools.count(10)  # of files; never used twice, so that a late close cannot hit a stranger


# == What a power cut leaves ==================================================


class Mode(NamedTuple):
    """Which of the pending changes a power cut leaves.

    | name | what lasts of the pending changes |
    |---|---|
    | killed | each, and stays pending: the processes died, the power did not go |
    | all | each |
    | none | none |
    | without | each but number `number`, in the order in which files were made |
    | only | number `number` alone |
    | cut | each, of the last write its first `number` bytes |
    | torn | any: writes fall into sectors, lengths and names count for themselves |
    | garbage | as torn, and some of the lost sectors hold noise |
    | reordered | as torn with all sectors kept, in any order: an older write can lie over a newer one |

    `number` is the seed of the last three.
    """

    name: str
    number: int = 0


class Moment(NamedTuple):
    """The disk as it is after one call."""

    inodes: dict[int, _Inode]
    call: str
    """The call that led here, with its file's name."""
    last_changed: int = _ROOM_NUMBER
    """The file or folder that the last change was made to."""

    @property
    def pending_count(self) -> int:
        """How many changes a power cut could lose."""
        return sum(len(inode.pending) for inode in self.inodes.values())

    def resume(self) -> FaultyDisk:
        """Return a disk that goes on from here: what a reboot without a power cut, or another process, finds."""
        return FaultyDisk(self.inodes)

    def cut_power(self, mode: Mode) -> FaultyDisk:
        """Return the disk after a power cut and a restart."""
        if mode.name == "killed":
            return self.resume()
        chooser = _Chooser(mode, self)
        inodes: dict[int, _Inode] = {}
        for number, inode in sorted(self.inodes.items()):
            if isinstance(inode, _Folder):
                entries = inode.lasting
                for folder_change in chooser.of_folder(inode.pending):
                    entries = folder_change.apply(entries)
                inodes[number] = _Folder(entries, entries, (), inode.changed_at)
            else:
                content = inode.lasting
                for change in chooser.of_file(inode.pending):
                    content = change.apply(content)
                inodes[number] = _File(content, content, (), inode.changed_at)
        return FaultyDisk(_reachable(inodes))


def _reachable(inodes: dict[int, _Inode]) -> dict[int, _Inode]:
    """Leave out files that have no name."""
    found: dict[int, _Inode] = {}
    waiting = [_TOP_NUMBER]
    while waiting:
        number = waiting.pop()
        found[number] = inode = inodes[number]
        if isinstance(inode, _Folder):
            waiting += inode.seen.values()
    return found


class _Chooser:
    """Applies a mode to the pending changes of one file after another."""

    def __init__(self, mode: Mode, moment: Moment) -> None:
        self._mode = mode
        self._random = random.Random(f"{mode.name} {mode.number}")
        self._index = 0
        last = moment.inodes[moment.last_changed].pending
        self._last_write = last[-1] if last and isinstance(last[-1], Write) else None

    def of_folder(self, changes: tuple[FolderChange, ...]) -> list[FolderChange]:
        if self._mode.name in ("torn", "garbage", "reordered"):
            return [change for change in changes if self._random.random() < 0.5]
        return [change for change in changes if self._lasts()]

    def of_file(self, changes: tuple[FileChange, ...]) -> list[FileChange]:
        name, number = self._mode
        if name == "cut":
            return [
                change._replace(data=change.data[:number])
                if isinstance(change, Write) and change is self._last_write
                else change
                for change in changes
            ]
        if name not in ("torn", "garbage", "reordered"):
            return [change for change in changes if self._lasts()]
        chance = self._random.choice((0.1, 0.5, 0.9))  # halves alone would hardly ever lose just one of many
        chosen: list[FileChange] = []
        for change in changes:
            if not isinstance(change, Write):
                if self._random.random() < 0.5:
                    chosen.append(change)
                continue
            if self._random.random() < 0.5:
                chosen.append(Grow(change.offset + len(change.data)))
            for sector in _sectors(change):
                if self._random.random() < chance or name == "reordered":
                    chosen.append(sector)
                elif name == "garbage" and self._random.random() < 0.5:
                    chosen.append(Write(sector.offset, self._random.randbytes(len(sector.data))))
        if name == "reordered":
            self._random.shuffle(chosen)
        return chosen

    def _lasts(self) -> bool:
        index, self._index = self._index, self._index + 1
        name, number = self._mode
        return {"all": True, "cut": True, "none": False, "without": index != number, "only": index == number}[name]


def _sectors(write: Write) -> list[Write]:
    """Cut a write at the borders of sectors."""
    offset, data = write
    borders = [offset, *range((offset // SECTOR + 1) * SECTOR, offset + len(data), SECTOR), offset + len(data)]
    return [Write(start, data[start - offset : end - offset]) for start, end in itertools.pairwise(borders)]


# == The disk =================================================================


class Killed(BaseException):
    """The process that made a call is dead: nothing that it still does has an effect."""


@dataclass(frozen=True)
class Fault:
    """Calls that fail."""

    at: int
    """The first one that may fail; calls are counted from 0."""
    error: int = errno.EIO
    """What they raise."""
    lasts: float = 1
    """How many fail; `math.inf` until `FaultyDisk.heal`."""
    only: frozenset[str] = frozenset()
    """Names of the calls that can fail; empty: any."""
    short: int | None = None
    """If the first of them is a write of more bytes: so many are written and returned, and nothing is raised."""
    sync: str = "keeps"
    """What a failing sync of a file does: `keeps` leaves the changes pending; the others drop them from what will last,
    so that the next sync succeeds without having done anything: `forgets` goes on showing them, `reverts` does not,
    `tears` lets some sectors of them last."""


@dataclass
class _Descriptor:
    number: int
    name: str
    owner: str
    is_writable: bool
    holds_lock: bool = False


@dataclass(frozen=True)
class _Status:
    st_ino: int
    st_size: int
    st_mode: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_dev: int = 7
    st_nlink: int = 1

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


_CLOCK_STEP = 4_000_000  # nanoseconds: older kernels stamp files by a clock that ticks so coarsely


class FaultyDisk:
    """Files in memory, and the calls to the operating system that work on them."""

    def __init__(self, inodes: dict[int, _Inode] | None = None) -> None:
        top = {posixpath.basename(ROOM): _ROOM_NUMBER}
        self.inodes: dict[int, _Inode] = {_TOP_NUMBER: _Folder(top, top), _ROOM_NUMBER: _Folder({}, {})}
        if inodes is not None:
            self.inodes = dict(inodes)
        self.owner = "a process"
        """Who makes the next calls."""
        self.call_count = 0
        self.calls: list[str] = []
        """Each call made so far, with its file's name."""
        self.moments: list[Moment] | None = None
        """What `record` keeps: the disk after each call that changed something."""
        self.fault: Fault | None = None
        self.failed_calls: list[str] = []
        """Each call that the fault let fail or come back short, with its file's name."""
        self.listeners: list[Callable[[str], None]] = []
        """Each is given every call that comes through a door, with its file's name, before it begins: for a test that
        steps in between."""
        self.waiting_count = 0
        """How many callers wait for a lock."""
        self.clock: Callable[[], int] = _now_ns
        """What files and folders are stamped by, in nanoseconds."""
        self.readonly_error = 0
        """What every call raises that would change something, EROFS or EACCES; 0 lets them change it."""
        self.refused_changes: list[str] = []
        """Each call that was refused for that."""
        self._last_changed = _ROOM_NUMBER
        self._descriptors: dict[int, _Descriptor] = {}
        self._dead: set[str] = set()
        self._asked_for: OSError | None = None  # the error that the fault raised last
        self._death: tuple[str, int, int] | None = None  # owner, call, bytes of a write that get through
        self._is_quiet = False
        self._mutex = threading.RLock()
        self._unlocked = threading.Condition(self._mutex)

    # -- what a test does -----------------------------------------------------

    def record(self) -> list[Moment]:
        """Remember the disk after each change from now on; the list begins with the disk as it is."""
        self.moments = [self.now("the beginning")]
        return self.moments

    def now(self, call: str = "now") -> Moment:
        """Return the disk as it is."""
        return Moment(dict(self.inodes), call, self._last_changed)

    def read_all(self) -> dict[str, bytes]:
        """Return the content of every file, by its path under `ROOM`."""
        found: dict[str, bytes] = {}

        def walk(number: int, path: str) -> None:
            inode = self.inodes[number]
            if isinstance(inode, _File):
                found[path] = inode.seen
                return
            for name, child in sorted(inode.seen.items()):
                walk(child, posixpath.join(path, name))

        walk(_ROOM_NUMBER, "")
        return found

    def put(self, files: dict[str, bytes]) -> None:
        """Write files, by their path under `ROOM`, as if they had been there for ever."""
        for path, content in files.items():
            folder = _ROOM_NUMBER
            *above, name = path.split("/")
            for step in above:
                folder = self._place(folder, step, _Folder({}, {}))
            self._place(folder, name, None)
            self.inodes[self._entries(folder)[name]] = _File(content, content)

    def _place(self, folder: int, name: str, inode: _Inode | None) -> int:
        entries = self._entries(folder)
        if name not in entries:
            number = next(_new_numbers)
            self.inodes[number] = _File() if inode is None else inode
            entries = {**entries, name: number}
            self.inodes[folder] = _Folder(entries, entries)
        return entries[name]

    def spoil(self, path: str, content: bytes) -> None:
        """Change a file, given by its path under `ROOM`, on the disk and for everybody who has it open."""
        self.inodes[self._find(f"{ROOM}/{path}")] = _File(content, content)

    def set_folder_time(self, path: str, time_ns: int) -> None:
        """Do what `os.utime` does to a folder, as programs that copy whole folders do."""
        number = self._find(path)
        folder = self.inodes[number]
        assert isinstance(folder, _Folder)
        self.inodes[number] = folder._replace(set_at=time_ns, changed_at=self.clock())

    def heal(self) -> None:
        """Let every call succeed from now on."""
        self.fault = None

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Count no call, fail none and record none within the block: the test itself looks."""
        before, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = before

    def kill_at(self, owner: str, call: int, part: int = 0) -> None:
        """Let `owner` die instead of making a call (counted from 0); of a write, `part` bytes get through."""
        self._death = (owner, call, part)

    def kill(self, owner: str) -> None:
        """Let a process die: its descriptors close, its locks are free, its calls raise `Killed`."""
        with self._mutex:
            self._dead.add(owner)
            for fd in [fd for fd, descriptor in self._descriptors.items() if descriptor.owner == owner]:
                del self._descriptors[fd]
            self._unlocked.notify_all()

    def open_count(self, owner: str | None = None) -> int:
        """Return how many descriptors a process has open; None counts those of all."""
        return sum(owner in (None, descriptor.owner) for descriptor in self._descriptors.values())

    def has_open(self, fd: int) -> bool:
        """Tell whether the owner of the next calls has opened a descriptor on this disk."""
        return fd in self._descriptors and self._descriptors[fd].owner == self.owner

    def nameless_count(self) -> int:
        """Return how many descriptors lead to a file that has no name any more, whose space is therefore not free."""
        named = _reachable(self.inodes)
        return sum(descriptor.number not in named for descriptor in self._descriptors.values())

    def name_of(self, where: str | int) -> str:
        """Return the last part of a path, or of the path that a descriptor was opened by."""
        if isinstance(where, str):
            return posixpath.basename(where)
        return self._descriptors[where].name if where in self._descriptors else "a closed file"

    # -- counting, failing, dying ---------------------------------------------

    def _enter(self, name: str, where: str, data: bytes = b"") -> int | None:
        """Count a call and let it fail if it is to; return how many bytes a short write may write."""
        if self.owner in self._dead:
            raise Killed
        if self._is_quiet:
            return None
        index, self.call_count = self.call_count, self.call_count + 1
        self.calls.append(f"{name} {where}")
        if self._death is not None and self._death[:2] == (self.owner, index):
            part = self._death[2]
            if part and name == "pwrite":
                return -part
            self.kill(self.owner)
            raise Killed
        fault = self.fault
        if fault is None or index < fault.at or len(self.failed_calls) >= fault.lasts or name == "unlock":
            return None
        if fault.only and name not in fault.only:
            return None
        self.failed_calls.append(self.calls[-1])
        if name == "pwrite" and fault.short is not None and len(self.failed_calls) == 1 and fault.short < len(data):
            return fault.short
        self._asked_for = OSError(fault.error, os.strerror(fault.error))  # Python makes it the class of its number
        raise self._asked_for

    def _enter_changing(self, name: str, where: str) -> None:
        self._enter(name, where)
        if self.readonly_error:
            self.refused_changes.append(f"{name} {where}")
            raise OSError(self.readonly_error, os.strerror(self.readonly_error))

    def _set(self, number: int, inode: _Inode) -> None:
        self.inodes[number] = inode
        self._last_changed = number
        if self.moments is not None and not self._is_quiet:
            self.moments.append(self.now(self.calls[-1]))

    # -- calls on names -------------------------------------------------------

    def _entries(self, number: int) -> Entries:
        folder = self.inodes[number]
        if not isinstance(folder, _Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return folder.seen

    def _find(self, path: str) -> int:
        number = _TOP_NUMBER
        for name in path.split("/"):
            if name:
                entries = self._entries(number)
                if name not in entries:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                number = entries[name]
        return number

    def _change_folder(self, path: str, change: FolderChange) -> None:
        number = self._find(path)
        folder = self.inodes[number]
        assert isinstance(folder, _Folder)
        self._set(number, folder.changed(change, self.clock()))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """`os.open`; a file that it makes is empty, and its name pending."""
        with self._mutex:
            changes = flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            (self._enter_changing if changes else self._enter)("open", posixpath.basename(path))
            parent, name = posixpath.split(path)
            try:
                number = self._find(path)
                if flags & os.O_EXCL and flags & os.O_CREAT:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
                self._find(parent)
                number = next(_new_numbers)
                self.inodes[number] = _File(changed_at=self.clock())
                self._change_folder(parent, Link(name, number))
            inode = self.inodes[number]
            is_writable = bool(flags & (os.O_RDWR | os.O_WRONLY))
            if isinstance(inode, _Folder) and is_writable:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            if flags & os.O_TRUNC and isinstance(inode, _File) and inode.seen:
                self._set(number, inode.changed(Resize(0), self.clock()))
            fd = 2**30 + next(_new_numbers)  # a number that the real system never gives
            self._descriptors[fd] = _Descriptor(number, name, self.owner, is_writable)
            return fd

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        with self._mutex:
            self._enter_changing("mkdir", posixpath.basename(path))
            parent, name = posixpath.split(path)
            if name in self._entries(self._find(parent)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            number = next(_new_numbers)
            self.inodes[number] = _Folder({}, {}, (), self.clock())
            self._change_folder(parent, Link(name, number))

    def replace(self, old: str, new: str) -> None:
        with self._mutex:
            self._enter_changing("replace", posixpath.basename(new))
            (folder, old_name), (new_folder, new_name) = posixpath.split(old), posixpath.split(new)
            assert folder == new_folder, "a rename between folders is not modelled"
            self._change_folder(folder, Rename(old_name, new_name, self._find(old)))

    def link(self, old: str, new: str) -> None:
        """As `os.link`; the new name is pending."""
        with self._mutex:
            self._enter_changing("link", posixpath.basename(new))
            number, (folder, name) = self._find(old), posixpath.split(new)
            if name in self._entries(self._find(folder)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
            self._change_folder(folder, Link(name, number))

    def remove(self, path: str) -> None:
        with self._mutex:
            self._enter_changing("remove", posixpath.basename(path))
            self._find(path)
            self._change_folder(*_unlinked(path))

    def listdir(self, path: str) -> list[str]:
        with self._mutex:
            self._enter("listdir", posixpath.basename(path))
            return sorted(self._entries(self._find(path)))

    def stat(self, path: str) -> _Status:
        with self._mutex:
            self._enter("stat", posixpath.basename(path))
            return self._status(self._find(path))

    def access(self, path: str, mode: int, *, effective_ids: bool = False) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return not (mode & os.W_OK and self.readonly_error)

    # -- calls on descriptors -------------------------------------------------

    def _descriptor(self, fd: int) -> _Descriptor:
        if fd not in self._descriptors:
            if self.owner in self._dead:
                raise Killed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptors[fd]

    def _enter_on(self, name: str, fd: int, data: bytes = b"") -> tuple[int, _Inode, int | None]:
        number = self._descriptor(fd).number
        limit = self._enter(name, self._descriptors[fd].name, data)
        return number, self.inodes[number], limit

    def close(self, fd: int) -> None:
        """`os.close`: the descriptor is gone and its lock is free, even if it fails."""
        with self._mutex:
            if fd in self._descriptors and self._descriptors[fd].owner != self.owner:
                del self._descriptors[fd]  # the garbage collector's close, which comes when it likes, is not counted
                return
            if self.owner in self._dead:
                return
            try:
                self._enter_on("close", fd)
            finally:
                self._descriptors.pop(fd, None)
                self._unlocked.notify_all()

    def dup(self, fd: int) -> int:
        with self._mutex:
            self._enter("dup", self.name_of(fd))
            descriptor = self._descriptor(fd)
            new_fd = 2**30 + next(_new_numbers)
            self._descriptors[new_fd] = descriptor
            return new_fd

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        with self._mutex:
            _, inode, _ = self._enter_on("pread", fd)
            assert isinstance(inode, _File)
            if size < 0:
                raise OSError(errno.EINVAL, "Invalid argument")
            return inode.seen[offset : offset + size]

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        with self._mutex:
            data = bytes(data)
            number, inode, limit = self._enter_on("pwrite", fd, data)
            assert isinstance(inode, _File)
            self._refuse_reader(fd)
            written = data if limit is None else data[: abs(limit)]
            if written:
                self._set(number, inode.changed(Write(offset, written), self.clock()))
            if limit is not None and limit < 0:
                self.kill(self.owner)
                raise Killed
            return len(written)

    def _refuse_reader(self, fd: int) -> None:
        if not self._descriptor(fd).is_writable:
            self.refused_changes.append(self.calls[-1] if self.calls else "")
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def ftruncate(self, fd: int, size: int) -> None:
        with self._mutex:
            number, inode, _ = self._enter_on("ftruncate", fd)
            assert isinstance(inode, _File)
            self._refuse_reader(fd)
            if len(inode.seen) != size:
                self._set(number, inode.changed(Resize(size), self.clock()))

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def _sync(self, name: str, fd: int) -> None:
        with self._mutex:
            try:
                number, inode, _ = self._enter_on(name, fd)
            except OSError as error:
                if error is self._asked_for:
                    assert self.fault is not None
                    self._drop(self._descriptor(fd).number, self.fault.sync)
                raise
            if inode.pending:
                self._set(number, inode.synced())

    def _drop(self, number: int, how: str) -> None:
        """Do what a failing sync does to the pending changes, see `Fault.sync`."""
        inode = self.inodes[number]
        if how == "keeps" or isinstance(inode, _Folder):  # of names, journals keep what they could not write
            return
        lasting = inode.lasting
        if how == "tears":
            torn = Moment({number: inode}, "", number)
            for change in _Chooser(Mode("torn", self.call_count), torn).of_file(inode.pending):
                lasting = change.apply(lasting)
        seen = inode.lasting if how == "reverts" else inode.seen
        self._set(number, _File(seen, lasting, (), inode.changed_at))

    def fstat(self, fd: int) -> _Status:
        with self._mutex:
            number, _, _ = self._enter_on("fstat", fd)
            return self._status(number)

    def _status(self, number: int) -> _Status:
        inode = self.inodes[number]
        kind = stat.S_IFREG | 0o600 if isinstance(inode, _File) else stat.S_IFDIR | 0o700
        size = len(inode.seen) if isinstance(inode, _File) else 4096
        set_at = inode.set_at if isinstance(inode, _Folder) else None
        return _Status(number, size, kind, inode.changed_at if set_at is None else set_at, inode.changed_at)

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        assert (offset, whence) == (0, os.SEEK_END), "only the end is looked for"
        with self._mutex:
            _, inode, _ = self._enter_on("lseek", fd)
            assert isinstance(inode, _File)
            return len(inode.seen)

    def flock(self, fd: int, operation: int) -> None:
        """`fcntl.flock`; waiting for a lock that is never freed fails the test instead of hanging it."""
        with self._mutex:
            descriptor = self._descriptor(fd)
            if operation & _LOCK_UN:
                self._enter_on("unlock", fd)  # no local disk fails to free a lock, and so it never does here
                descriptor.holds_lock = False
                self._unlocked.notify_all()
                return
            self._enter_on("flock", fd)
            deadline = time.monotonic() + 20
            self.waiting_count += 1
            try:
                while self._is_held_by_another(descriptor):
                    if operation & _LOCK_NB:
                        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
                    assert self._unlocked.wait(deadline - time.monotonic()), "the lock is never freed"
            finally:
                self.waiting_count -= 1
            descriptor.holds_lock = True

    def _is_held_by_another(self, descriptor: _Descriptor) -> bool:
        return any(
            other.holds_lock and other.number == descriptor.number
            for other in [*self._descriptors.values()]  # threads open and close meanwhile
            if other is not descriptor
        )


@contextlib.contextmanager
def stepping_in(disk: FaultyDisk, call: int | str, act: Callable[[], object], count: int = 1) -> Iterator[list[str]]:
    """Do something once, before the call with a number (from 0), or the `count`-th so named; give what was met."""
    met: list[str] = []
    number = named = 0

    def listen(made: str) -> None:
        nonlocal number, named
        number += 1
        named += made == call
        if not met and (call == number - 1 or (made == call and named == count)):
            met.append(made)
            with disk.quiet():
                act()

    disk.listeners.append(listen)
    try:
        yield met
    finally:
        disk.listeners.remove(listen)


_LOCK_SH, _LOCK_EX, _LOCK_NB, _LOCK_UN = 1, 2, 4, 8


def _now_ns() -> int:
    return time.time_ns() // _CLOCK_STEP * _CLOCK_STEP


def _unlinked(path: str) -> tuple[str, Unlink]:
    folder, name = posixpath.split(path)
    return folder, Unlink(name)


# == The door =================================================================


class _Paths:
    """`os.path` over the disk behind a door."""

    join = staticmethod(posixpath.join)
    dirname = staticmethod(posixpath.dirname)
    basename = staticmethod(posixpath.basename)
    split = staticmethod(posixpath.split)
    abspath = staticmethod(posixpath.abspath)
    realpath = staticmethod(posixpath.normpath)  # that disk has no symbolic links
    samestat = staticmethod(posixpath.samestat)

    def __init__(self, door: Door) -> None:
        self._door = door

    def _mode(self, path: str) -> int:
        try:
            return self._door.disk.stat(path).st_mode
        except OSError:  # as the real ones do: a failing look counts as "not there"
            return 0

    def isdir(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def isfile(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def islink(self, path: str) -> bool:
        return stat.S_ISLNK(self._mode(path))  # never: this disk has none


class Door:
    """Stands where the module's `os`, `fcntl` and door to the disk stood, and leads to `disk`, which a test may change.

    A call that the disk does not know is an AttributeError: nothing gets past it to the real one.
    """

    _AS_THEY_ARE = (
        *("name", "O_RDONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_CLOEXEC", "O_DIRECTORY", "SEEK_END"),
        *("R_OK", "W_OK", "X_OK", "F_OK", "PathLike", "fspath", "fsdecode", "getpid", "strerror", "urandom"),
        "O_NONBLOCK",
    )
    _OVER_THE_DISK = (
        *("open", "close", "pread", "pwrite", "ftruncate", "fdatasync", "fsync", "fstat", "stat", "lseek"),
        *("replace", "remove", "mkdir", "listdir", "access", "dup", "link"),
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = FaultyDisk()
        system: Any = ModuleType("os")
        locks: Any = ModuleType("fcntl")
        for name in self._AS_THEY_ARE:
            setattr(system, name, getattr(os, name))
        for name in self._OVER_THE_DISK:
            setattr(system, name, self._passing_on(name))
        system.supports_effective_ids = {system.access}
        system.rename, system.unlink, system.path = system.replace, system.remove, _Paths(self)
        locks.flock = self._passing_on("flock")
        locks.F_DUPFD_CLOEXEC, locks.fcntl = 0, lambda fd, _, least: system.dup(fd)  # whose numbers are all higher
        locks.LOCK_SH, locks.LOCK_EX, locks.LOCK_NB, locks.LOCK_UN = _LOCK_SH, _LOCK_EX, _LOCK_NB, _LOCK_UN
        monkeypatch.setattr(kt, "os", system)
        monkeypatch.setattr(kt, "fcntl", locks)
        inside.replace_files(monkeypatch, self._rebound(system))

    def _passing_on(self, name: str) -> Callable[..., Any]:
        def call(where: Any, *arguments: Any, **keywords: Any) -> Any:
            is_collected = name == "close" and not self.disk.has_open(where)  # of a tree that another test left
            for listener in () if is_collected else self.disk.listeners.copy():
                listener(f"{name} {self.disk.name_of(where)}")
            return getattr(self.disk, name)(where, *arguments, **keywords)

        return call

    def _rebound(self, system: Any) -> type[inside.Files]:
        """Return the module's door with the functions of `os` that it holds as attributes exchanged."""
        exchanged: dict[str, Any] = {}
        for name, value in vars(inside.Files).items():
            function = value.__func__ if isinstance(value, staticmethod) else None
            if function is None or getattr(function, "__module__", kt.__name__) == kt.__name__:
                continue
            where = system if hasattr(os, function.__name__) else system.path
            exchanged[name] = staticmethod(inside.typed(getattr(where, function.__name__)))
        return type("FaultyFiles", (inside.Files,), exchanged)
