"""Which test notices when a safeguard of the store is missing?

What: each entry of `MUTATIONS` takes one safeguard away from a copy of `Agent/keyword_tree.py` (a sync, a test of a
checksum, a lock, …), and the tests of the store run against that copy until the first one fails.

Why: a test that never fails proves nothing. A safeguard that no test misses is either useless or unguarded.

Wanted: every one is noticed, but those that say why they cannot be.

How: the fault tests first, then the store's part of the contract's tests, then those with real processes. A run that
hangs counts as noticed. The exit code tells whether anything was not.

Repeat: ``python -m benchmarks.mutate_store`` (``--only sync`` for those whose name holds a word, ``--jobs 4``).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[1]
STORE_TESTS = "Torn or Damage or Projections or Log or Sync or Files or FailedWrite or FailedSync or Kill or Threads"
STAGES = (
    ("Agent/test_store_faults.py",),
    ("Agent/test_keyword_tree.py", "-k", f"{STORE_TESTS} or Instances or Errors or Close or Links or CustomIds"),
    ("Agent/test_store_processes.py",),
)
LIMIT_S = 600  # for one stage; then it hangs


class Mutation(NamedTuple):
    """A safeguard taken away."""

    name: str
    old: str
    """What stands in the module, once."""
    new: str
    """What stands there instead."""
    harmless: str = ""
    """Why no test can miss it, where none can."""


# == Syncs ====================================================================

SYNCS = [
    Mutation("syncing does nothing", "            os.fdatasync(fd)\n", "            pass\n"),
    Mutation(
        "syncing a folder does nothing",
        "            os.fsync(fd)\n        except OSError as error:",
        "            pass\n        except OSError as error:",
    ),
    Mutation("sync of a commit", "        self._SyncLog()\n        brought", "        brought"),
    Mutation(
        "sync of the log at opening",
        "            self._SyncLog()\n            files.SyncFolder(self.data_dir)\n",
        "            files.SyncFolder(self.data_dir)\n",
    ),
    Mutation(
        "sync of the folder at opening, before the log is read",
        "            files.SyncFolder(self.data_dir)\n            self._Identify()",
        "            self._Identify()",
    ),
    Mutation(
        "sync of the folder behind new projections",
        "            self.files.SyncFolder(self.data_dir)\n        except OSError as error:",
        "        except OSError as error:",
        "a projection whose name is lost is made anew from the log; the sync only saves that work",
    ),
    Mutation(
        "sync of a file that takes a place: a new log, a copy, a compacted log, a snapshot's, a tail kept aside",
        "            self.files.Sync(fd)\n            self.files.Replace",
        "            self.files.Replace",
    ),
    Mutation(
        "sync of the folder in which a file takes a place",
        "            self.files.Close(fd)\n        self.files.SyncFolder(os.path.dirname(path))\n",
        "            self.files.Close(fd)\n",
    ),
    Mutation(
        "sync of a log whose tail was cut",
        "        self._SyncLog()\n        self._size = self._tail\n\n",
        "        self._size = self._tail\n\n",
        "a cut that a power cut undoes is made again, and the next operation's sync covers it, too",
    ),
    Mutation(
        "sync of what another process wrote",
        "                self._SyncLog()  # whoever wrote this may have died before its own\n",
        "                pass\n",
    ),
    Mutation(
        "sync of a failed write that was taken back",
        "            self._SyncLog()\n            self._size = self._tail\n            return",
        "            self._size = self._tail\n            return",
    ),
    Mutation(
        "sync of the mark's end",
        "        self.files.Truncate(self._lock_fd, 0)\n        self.files.Sync(self._lock_fd)\n",
        "        self.files.Truncate(self._lock_fd, 0)\n",
        "a mark that a power cut brings back costs one more copy of the log",
    ),
    Mutation(
        "sync of the mark",
        "  # a length needs no free block\n                self.files.Sync(self._lock_fd)\n",
        "  # a length needs no free block\n",
        "a power cut that loses the mark also empties the page cache that it warns of",
    ),
    Mutation(
        "sync of the projections before a checkpoint",
        "                self.files.Sync(projection.fd)\n",
        "                pass\n",
        "opening compares all four checksums, and reads the log where one is wrong; the sync only saves that work",
    ),
    Mutation(
        "sync of a log that was trimmed",
        "                self.files.Truncate(self._log_fd, self._tail)\n                self._SyncLog()\n",
        "                self.files.Truncate(self._log_fd, self._tail)\n",
        "spaces that come back are padding as before",
    ),
    Mutation("sync of the folder above", "            self.SyncFolder(parent)\n", "            pass\n"),
    Mutation(
        "sync of the folder above one that is there already",
        "        with contextlib.suppress(PermissionError):  # in any case: who made it may have died before this\n"
        "            self.SyncFolder(parent)\n",
        "            self.SyncFolder(parent)\n",
    ),
]

# == Checks ===================================================================

CHECKS = [
    Mutation("checksum of a line", 'if b"%08x" % zlib.crc32(memoryview(raw)[_CRC_END:]) != crc:', "if False:"),
    Mutation("checksum of a line's last byte", "memoryview(raw)[_CRC_END:]", "memoryview(raw)[_CRC_END:-1]"),
    Mutation("chain: the number", "line.seq != self.seq + 1 or line.prev != self._crc", "line.prev != self._crc"),
    Mutation(
        "chain: the checksum before", "line.seq != self.seq + 1 or line.prev != self._crc", "line.seq != self.seq + 1"
    ),
    Mutation("watermark: damage is told from a torn tail", "line.durable >= expected", "False"),
    Mutation("watermark: the very line", "line.durable >= expected", "line.durable > expected"),
    Mutation("watermark: not too low", "_EncodeLine(seq, crc, self.seq, entry", "_EncodeLine(seq, crc, 0, entry"),
    Mutation(
        "watermark: not too high", "_EncodeLine(seq, crc, self.seq, entry", "_EncodeLine(seq, crc, seq - 1, entry"
    ),
    Mutation(
        "lines are found behind a damaged newline",
        r"""rb'\{"crc": "[^\n]*?(?=\{"crc": "|\n|\Z)'""",
        r"""rb'(?m)^\{"crc": "[^\n]*'""",
    ),
    Mutation("a checkpoint's lengths", 'entry["length"] != projection.length or ', ""),
    Mutation("a checkpoint's counts", ' or entry["rows"] != projection.rows', ""),
    Mutation(
        "opening: the checkpoint's checksums of the projections",
        'if self.Checksum(projection.fd, said[projection.kind]["length"]) != int(\n'
        '                    said[projection.kind]["crc"], 16\n'
        "                ):",
        "if False:",
    ),
    Mutation(
        "opening: the checkpoint's checksum of the log",
        'self.Checksum(self._log_fd, start + begin) != int(said["log"]["crc"], 16)',
        "False",
    ),
    Mutation(
        "opening: the checkpoint's place in the log",
        ' or said["log"]["length"] != start + begin',
        "",
        "the log's checksum is wrong, too, where the checkpoint stands elsewhere",
    ),
    Mutation(
        "opening: the rows end where the checkpoint says",
        "self._ReadLines(projection.fd, 0, projection.length)",
        "self._ReadLines(projection.fd, 0, 1 << 62)",
    ),
    Mutation(
        "opening: a projection that cannot be read keeps nobody out",
        "        except OSError:  # only the log can keep a tree from opening\n",
        "        except ZeroDivisionError:\n",
    ),
    Mutation(
        "opening: the log behind the checkpoint is read",
        "        self._tail = start + begin + len(raw) + 1\n",
        "        self._tail = self._size\n",
    ),
    Mutation(
        "checkpoint: the log's running checksum, over what is written",
        "        self._tail_crc = zlib.crc32(data, self._tail_crc)\n",
        "",
    ),
    Mutation(
        "checkpoint: the log's running checksum, over what is read",
        '                self._tail_crc = zlib.crc32(b"\\n", zlib.crc32(raw, self._tail_crc))\n',
        "",
    ),
    Mutation(
        "checkpoint: the log's running checksum, from the checkpoint on",
        '        self._tail_crc = zlib.crc32(raw + b"\\n", int(said["log"]["crc"], 16))\n',
        "        self._tail_crc = 0\n",
    ),
    Mutation(
        "checkpoint: the projections' running checksums",
        "                crc = zlib.crc32(part, crc)\n            crcs.append(crc)",
        "                crc = zlib.crc32(part)\n            crcs.append(crc)",
    ),
    Mutation(
        "comparison of a projection's end", "                if found != expected:\n", "                if not found:\n"
    ),
    Mutation(
        "a projection's end is completed",
        "                    self.files.Write(projection.fd, expected, offset)\n                offset",
        "                offset",
    ),
    Mutation(
        "what a log has lost is kept",
        '                self._KeepAside(name, surplus, "which the log does not have")\n',
        "",
    ),
    Mutation(
        "what a projection has too much is cut",
        "                self.files.Truncate(projection.fd, offset)\n",
        "                pass\n",
    ),
    Mutation("checksum of a long content", "if zlib.crc32(row) != extent.crc:", "if False:"),
    Mutation(
        "a log that is missing is refused",
        "            if not files.Exists(self._log_path):\n                self._RefuseLostLog()\n",
        "            if not files.Exists(self._log_path):\n",
    ),
    Mutation(
        "a log that is empty is refused",
        "            if self.seq == 0:\n                self._RefuseLostLog()\n            self._JudgeTail()",
        "            self._JudgeTail()",
    ),
    Mutation(
        "a foreign file is refused", 'if self.seq == 0 and not b\'{"crc": "\'.startswith(beginning):', "if False:"
    ),
    Mutation("a newer format is refused", "        if told > _FORMAT:", "        if False:"),
    Mutation(
        "a log without a format is refused",
        "        if told is None:\n            raise",
        "        if False:\n            raise",
    ),
    Mutation(
        "a new log is made under another name first",
        "                self._RefuseLostLog()\n                self._Create(first())\n",
        "                self._RefuseLostLog()\n",
    ),
    Mutation(
        "opening: a newer format is refused, though the checkpoint fits",
        "        self._CheckFormat(None if first[6] is None else int(first[6]))\n",
        "",
    ),
    Mutation("what was read is checked before anything is changed", "            check()\n", ""),
    Mutation(
        "only a file that is missing is not there",
        "except FileNotFoundError:  # nothing else means that it is not there",
        "except OSError:",
    ),
]

# == Writing ==================================================================

WRITING = [
    Mutation("short writes are continued", "        while written < len(data):\n", "        while False:\n"),
    Mutation(
        "short writes are continued where they stopped",
        "memoryview(data)[written:], offset + written)",
        "memoryview(data)[written:], offset)",
    ),
    Mutation(
        "a write that makes no headway ends",
        '            if more == 0:\n                raise OSError(errno.EIO, "the disk takes no more bytes")\n',
        "",
        "no system is known that takes no bytes and tells no error; the test only keeps that from hanging",
    ),
    Mutation(
        "a failed write is taken back",
        "        try:\n            self.files.Truncate(self._log_fd, self._tail)\n",
        "        try:\n",
    ),
    Mutation(
        "a failed write that could not be taken back is called unknown",
        'return StoreError(f"{self._failure}; the outcome is unknown: {error}", outcome_unknown=True)',
        'return StoreError(f"{self._failure}; the outcome is unknown: {error}")',
    ),
    Mutation(
        "a failed write that could not be taken back ends all writing",
        '            self._failure = f"{self._log_path} could not be set back after a failed write: {second}"\n',
        "",
    ),
    Mutation(
        "a torn tail is cut",
        "        self.files.Truncate(self._log_fd, self._tail)\n"
        "        self._SyncLog()\n"
        "        self._size = self._tail\n"
        "\n"
        "    def _KeepAside",
        "        self._SyncLog()\n        self._size = self._tail\n\n    def _KeepAside",
    ),
    Mutation(
        "a torn tail is kept", '            self._KeepAside(_LOG_NAME, rest, f"behind', '            len(f"behind'
    ),
    Mutation("a tail of zeros is not reported", "        if beginning:  # zeros", "        if True:  # zeros"),
    Mutation("a tail of zeros is cut", 'if not rest.strip(b" \\n"):', 'if not rest.strip(b" \\n\\0"):'),
    Mutation(
        "an operation is tried again alone when its group failed",
        "            if error.outcome_unknown or len(jobs) == 1:\n",
        "            if True:\n",
    ),
    Mutation(
        "no group goes on behind a failed sync",
        "            if error.outcome_unknown or len(jobs) == 1:\n",
        "            if len(jobs) == 1:\n",
        "each one alone is refused by the store, which knows of the failed sync",
    ),
    Mutation(
        "a group's operations see one another", "            if job is not jobs[-1]:\n", "            if False:\n"
    ),
    Mutation(
        "a projection that cannot be written fails no operation",
        "                with contextlib.suppress(OSError):\n                    self.files.Write(projection.fd, b",
        "                if True:\n                    self.files.Write(projection.fd, b",
    ),
    Mutation(
        "a checkpoint mends the projections first",
        "            self._MendProjections()\n"
        "            for projection in self._projections:\n"
        "                self.files.Sync",
        "            for projection in self._projections:\n                self.files.Sync",
        "opening compares all four checksums, and reads the log where one is wrong; mending first only saves that work",
    ),
    Mutation(
        "a disk too full for projections does not keep a tree from opening",
        '        except OSError as error:\n            self.recovery.append(f"nodes, infos',
        '        except ZeroDivisionError as error:\n            self.recovery.append(f"nodes, infos',
    ),
    Mutation("a checkpoint of operations", "self._operations >= _CHECKPOINT_OPERATIONS or ", ""),
    Mutation("a checkpoint of bytes", " or self._unsynced_bytes >= _CHECKPOINT_BYTES", ""),
    Mutation("Close leaves a checkpoint", "            if self._operations:\n                self._Checkpoint()\n", ""),
    Mutation(
        "Close trims the padding",
        "            if self._size > self._tail:\n                self.files.Truncate(self._log_fd, self._tail)\n",
        "            if self._size > self._tail:\n",
    ),
    Mutation(
        "a failing Close raises nothing",
        "        except OSError:\n            pass  # nothing that was",
        "        except ZeroDivisionError:\n            pass  # nothing that was",
    ),
]

# == Failed syncs =============================================================

FAILED_SYNCS = [
    Mutation(
        "a failed sync has an unknown outcome",
        "            raise StoreError(message, outcome_unknown=True) from error\n",
        "            raise StoreError(message) from error\n",
    ),
    Mutation(
        "a failed sync is remembered",
        '            self._failure = f"a sync of {self._log_path} failed, open the tree again: {error}"\n',
        "",
        "the mark in the lock file says the same; this only holds where the disk refused the mark, too",
    ),
    Mutation(
        "a failed sync leaves a mark",
        "                self.files.Truncate(self._lock_fd, 1)  # a length needs no free block\n",
        "",
    ),
    Mutation(
        "a disk that refuses the mark is borne",
        "            with contextlib.suppress(OSError):  # on such a disk; this tree knows in any case\n",
        "            if True:\n",
    ),
    Mutation(
        "a mark keeps from writing", "            if self.files.Size(self._lock_fd):\n", "            if False:\n"
    ),
    Mutation("a mark makes opening copy the log", "is_suspect = files.Size(self._lock_fd) > 0", "is_suspect = False"),
    Mutation(
        "the whole log is copied",
        "self.Place(self._log_path, self.ReadParts(self._log_fd, self._tail))",
        "self.Place(self._log_path, itertools.islice(self.ReadParts(self._log_fd, self._tail), 1))",
    ),
    Mutation("the mark ends with the copy", "        self.files.Truncate(self._lock_fd, 0)\n", ""),
    Mutation(
        "the new file is known after the copy",
        "        self.files.Close(old)\n        self._Identify()\n",
        "        self.files.Close(old)\n",
        "a tree that does not know its own file opens it once more, and then does",
    ),
    Mutation(
        "a file that took a place is closed",
        '            self.files.Replace(f"{path}.new", path)\n        finally:\n            self.files.Close(fd)\n',
        '            self.files.Replace(f"{path}.new", path)\n        finally:\n            pass\n',
    ),
    Mutation(
        "nothing is appended behind a failure",
        '    def Append(self, entries: list[_Entry], extra: str = "") -> list[_Records]:\n'
        '        """Make entries durable: one write, one sync; the lock is held.  Returns what they brought."""\n'
        "        if self._failure:\n            raise StoreError(self._failure)\n",
        '    def Append(self, entries: list[_Entry], extra: str = "") -> list[_Records]:\n',
    ),
    Mutation(
        "nothing is begun behind a failure",
        "        if self._failure and not self.is_readonly:\n            raise StoreError(self._failure)\n        try:",
        "        try:",
    ),
]

# == Locks and others =========================================================

LOCKS = [
    Mutation("lock of a commit", "            self.files.Lock(self._lock_fd)\n            if", "            if"),
    Mutation(
        "lock of an opening",
        "        files.Lock(self._lock_fd)\n        while not self._HasLock():",
        "        while not self._HasLock():",
    ),
    Mutation(
        "end of a commit's lock",
        "            self.files.Unlock(self._lock_fd)\n            self._is_locked = False",
        "            self._is_locked = False",
    ),
    Mutation("end of an opening's lock", "            files.Unlock(self._lock_fd)\n", "            pass\n"),
    Mutation("the lock excludes", "fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.flock(fd, fcntl.LOCK_SH)"),
    Mutation(
        "a log that was replaced is noticed",
        "            if self.files.Identify(self._log_path)[0] != self._file_id or not (self.is_readonly",
        "            if not (self.is_readonly",
    ),
    Mutation(
        "what others wrote is taken in",
        "            self._TakeTail(take)\n\n    def _TakeTail",
        "            pass\n\n    def _TakeTail",
    ),
    Mutation(
        "a torn tail of another is cut before writing",
        "        try:\n            self._JudgeTail()\n        except StoreCorruptError:",
        "        try:\n            pass\n        except StoreCorruptError:",
    ),
    Mutation(
        "one thread of a tree at a time uses the store",
        "        with self._commit_lock:\n            self._CheckOpen()\n",
        "        if True:\n            self._CheckOpen()\n",
    ),
    Mutation(
        "Close waits for a commit",
        "        with self._commit_lock:\n            try:\n                if not self._must_reopen:",
        "        if True:\n            try:\n                if not self._must_reopen:",
    ),
    Mutation(
        "one group at a time is committed",
        "                    with self._turn:\n",
        "                    if True:\n",
        "each commit waits for the others at the store's lock, too; the turn lets the next group gather meanwhile",
    ),
    Mutation(
        "a group is committed once",
        "                if not group.is_closed:\n                    with",
        "                if True:\n                    with",
    ),
    Mutation(
        "readers see whole operations",
        "        with self._lock:\n            self._change_count += 1\n",
        "        if True:\n            self._change_count += 1\n",
    ),
    Mutation(
        "after damage everything is read anew",
        "                self._must_reopen |= isinstance(error, StoreCorruptError) or",
        "                _ = isinstance(error, StoreCorruptError) or",
    ),
    Mutation(
        "an opening that fails closes its files",
        "            try:  # twice, as in `_Exclusively`\n                store.Release()\n"
        "            finally:\n                store.Release()\n",
        "",
    ),
    Mutation(
        "a child closes what it inherited",
        "        self._store.Release()  # an inherited descriptor would keep the lock of a parent that is killed\n",
        "",
    ),
    Mutation("a child opens its own", "        self._must_reopen = not self._is_closed\n", ""),
    Mutation(
        "a tree that must reopen leaves no checkpoint",
        "            if not self._must_reopen:  # a checkpoint would vouch for what cannot be trusted\n",
        "            if True:\n",
    ),
    Mutation("files for their owner alone", "return os.open(path, flags, 0o600)", "return os.open(path, flags, 0o644)"),
    Mutation("folders for their owner alone", "os.mkdir(path, 0o700)", "os.mkdir(path, 0o755)"),
]

# == Replaced logs, and folders that can only be read =========================

REPLACED = [
    Mutation(
        "replaced: the folder's time is looked at",
        "        if self.files.ChangedAt(self.data_dir) != self._folder_time:\n",
        "        if False:\n",
    ),
    Mutation(
        "replaced: a time that has just passed proves nothing",
        "folder_time if time.time_ns() - folder_time > tick_ns else -1",
        "folder_time",
    ),
    Mutation(
        "replaced: a clock may tick in whole seconds",
        "100_000_000 if folder_time % 1_000_000_000 else 2_100_000_000",
        "100_000_000",
    ),
    Mutation(
        "replaced: a time that was set back is no proof",
        "return max(there.st_mtime_ns, there.st_ctime_ns)",
        "return there.st_mtime_ns",
    ),
    Mutation(
        "replaced: what was found is kept only when the new log was opened",
        "                self._folder_time = -1\n                raise _ReplacedError",
        "                self._Identify()\n                raise _ReplacedError",
    ),
    Mutation(
        "replaced: a lock file that was replaced is noticed",
        " != self._file_id or not (self.is_readonly or self._HasLock()):",
        " != self._file_id:",
    ),
    Mutation(
        "replaced: a lock file that was replaced while an opening waited is noticed",
        "        while not self._HasLock():  # somebody took the file away while this waited\n",
        "        while False:\n",
    ),
    Mutation(
        "replaced: as often as it takes",
        "                while not self._Begin():\n                    continue\n",
        "                if not self._Begin() and not self._Begin():\n"
        "                    raise StoreError('replaced')\n",
    ),
    Mutation(
        "reading only: nothing is checkpointed at the end",
        "        if self.is_readonly:\n            return\n        try:\n            self.Begin(take)",
        "        try:\n            self.Begin(take)",
    ),
    Mutation("reading only: nothing is cut", 'were not read"]\n            return\n', 'were not read"]\n'),
    Mutation(
        "reading only: nothing is synced while catching up",
        "            if not self.is_readonly:\n                self._SyncLog()",
        "            if True:\n                self._SyncLog()",
    ),
    Mutation(
        "reading only: a writer may go on between reading and judging",
        "            if not self.is_readonly or self._tail == tail:\n                raise\n",
        "            raise\n",
    ),
    Mutation("reading only: no snapshot", "        self.RefuseIfFailed()\n        taken", "        taken"),
    Mutation(
        "reading only: no compaction",
        "        self.RefuseIfFailed()\n        lines: list[bytes] = []",
        "        lines: list[bytes] = []",
    ),
    Mutation(
        "reading only: projections are opened for reading",
        "self.files.Open(projection.path, readonly=self.is_readonly)",
        "self.files.Open(projection.path)",
    ),
    Mutation(
        "reading only: no lock file is made where the folder says no",
        "            if files.IsWritable(self.data_dir):\n                raise\n",
        "            raise\n",
    ),
]

# == Snapshots, history, compaction ===========================================

SET_ASIDE = [
    Mutation(
        "snapshot: its checksum is tested",
        "            if copy.Checksum(copy._log_fd, length) != crc:\n",
        "            if False:\n",
    ),
    Mutation("snapshot: no more of the log is read than it had", "        copy._stop = stop\n", ""),
    Mutation(
        "snapshot: sync of the folder behind the link",
        "            self.Place(path, self.ReadParts(self._log_fd, self._tail))\n"
        "        self.files.SyncFolder(os.path.dirname(path))\n",
        "            self.Place(path, self.ReadParts(self._log_fd, self._tail))\n",
    ),
    Mutation(
        "snapshot: what tells that it is finished comes last",
        "            self._SetAside(os.path.join(folder, _LOG_NAME), copy)\n"
        "            # Last: what has no such file is no snapshot.\n"
        '            self.Place(os.path.join(folder, _SNAPSHOT_NAME), (_EncodeText(said).encode() + b"\\n",))\n',
        '            self.Place(os.path.join(folder, _SNAPSHOT_NAME), (_EncodeText(said).encode() + b"\\n",))\n'
        "            self._SetAside(os.path.join(folder, _LOG_NAME), copy)\n",
    ),
    Mutation(
        "snapshot: unfinished ones have no name",
        "return sorted(name for name in names if self.files.Exists(os.path.join(folder, name, _SNAPSHOT_NAME)))",
        "return sorted(names)",
    ),
    Mutation(
        "snapshot: a file system without links",
        "        except OSError:  # a file system without hard links\n            copy = True\n",
        "        except ZeroDivisionError:\n            copy = True\n",
    ),
    Mutation(
        "snapshot: a copy shares nothing",
        "            if not copy:\n                self.files.Link(self._log_path, path)",
        "            if True:\n                self.files.Link(self._log_path, path)",
    ),
    Mutation(
        "compaction: the history is set aside",
        "            if keep_history:\n                self.files.MakeFolder",
        "            if False:\n                self.files.MakeFolder",
    ),
    Mutation(
        "compaction: the projections come before the log",
        "            for projection in self._projections:\n"
        "                self.Place(projection.path, parts[projection.kind])\n"
        "            self.Place(self._log_path, lines)\n",
        "            self.Place(self._log_path, lines)\n"
        "            for projection in self._projections:\n"
        "                self.Place(projection.path, parts[projection.kind])\n",
    ),
    Mutation(
        "compaction: what is forgotten is removed behind the new log",
        "            self.Place(self._log_path, lines)\n"
        "            if not keep_history:\n"
        "                self._Forget()\n",
        "            if not keep_history:\n"
        "                self._Forget()\n"
        "            self.Place(self._log_path, lines)\n",
    ),
    Mutation(
        "compaction: cut tails and unfinished files are forgotten",
        'if folder != self.data_dir or name.startswith("cut_tail-") or name.endswith(".new"):',
        "if folder != self.data_dir:",
    ),
    Mutation(
        "compaction: unfinished snapshots are forgotten",
        "for folder in (self.data_dir, history, *unfinished):",
        "for folder in (self.data_dir, history):",
    ),
    Mutation(
        "compaction: sync of what was forgotten",
        "            if self.files.Exists(folder):\n                self.files.SyncFolder(folder)\n",
        "            pass\n",
    ),
    Mutation(
        "compaction: the tree opens what it made",
        "            self._Reopen()  # readers go on with what they have until it is there\n",
        "            pass\n",
        "the folder's time and the file's number tell it at the next call",
    ),
    Mutation("history: what was told is not told again", "is_begun and (line is None or line.seq < last)", "is_begun"),
    Mutation(
        "history: what lies above a file's number is no history",
        "is_begun |= line is not None and line.seq <= top",
        "is_begun = True",
    ),
    Mutation(
        "history: files that are no history are not read",
        "filter(_IsHistoryName, self._List(folder))",
        "self._List(folder)",
    ),
]

MUTATIONS = SYNCS + CHECKS + WRITING + FAILED_SYNCS + LOCKS + REPLACED + SET_ASIDE


# == Running ==================================================================


def main() -> int:
    """Try the mutations; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.name]
    module = (HOME / "Agent" / "keyword_tree.py").read_text("utf-8")
    stale = [mutation.name for mutation in chosen if module.count(mutation.old) != 1]
    if stale:
        print("These do not fit the module any more:", *stale, sep="\n  ")
        return 2
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        return try_all(chosen, module, Path(name), options.jobs)


def try_all(chosen: list[Mutation], module: str, folder: Path, jobs: int) -> int:
    """Try mutations, some at once; print the table and return the exit code."""
    for source in needed():  # once, so that nobody changes a test meanwhile
        target = folder / "unchanged" / source.relative_to(HOME)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    if failed := noticed_by(module, folder / "unchanged"):
        print(f"The unchanged module fails {failed}: mend that first.")
        return 2

    def try_one(mutation: Mutation) -> str | None:
        place = shutil.copytree(folder / "unchanged", Path(tempfile.mkdtemp(dir=folder)), dirs_exist_ok=True)
        try:
            return noticed_by(module.replace(mutation.old, mutation.new), place)
        finally:
            shutil.rmtree(place)

    unnoticed = 0
    print("| without | noticed by |\n|---|---|")
    with ThreadPoolExecutor(jobs) as pool:
        for mutation, test in zip(chosen, pool.map(try_one, chosen), strict=True):
            unnoticed += test is None and not mutation.harmless
            text = (
                f"`{test}`"
                if test
                else f"nothing, and need not be: {mutation.harmless}"
                if mutation.harmless
                else "**nothing**"
            )
            print(f"| {mutation.name} | {text} |", flush=True)
    print(f"\n{len(chosen)} mutations, {unnoticed} of them unnoticed.")
    return 1 if unnoticed else 0


def noticed_by(module: str, folder: Path) -> str | None:
    """Run the tests in a folder against a module; return the first one that fails."""
    (folder / "Agent" / "keyword_tree.py").write_text(module, "utf-8")
    for stage in STAGES:
        if not (folder / stage[0]).exists():
            continue
        command = [
            sys.executable,
            "-m",
            "pytest",
            *stage,
            "-x",
            "-q",
            "--no-header",
            "--tb=line",
            "-p",
            "no:cacheprovider",
        ]
        try:
            run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"{Path(stage[0]).stem} hangs"
        if run.returncode not in (0, 5):
            failed = re.search(r"^FAILED \S*?(\w+)\.py::(?:\w+::)*(\w+)", run.stdout, re.MULTILINE)
            return f"{failed[1]}: {failed[2]}" if failed else f"{Path(stage[0]).stem}: {run.stdout[-300:]!r}"
    return None


def needed() -> Iterator[Path]:
    """Yield what the tests need."""
    yield from (HOME / "Agent").glob("*.py")
    yield from (HOME / name for name in ("pyproject.toml", "conftest.py"))


if __name__ == "__main__":
    sys.exit(main())
