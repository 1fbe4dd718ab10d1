"""Which test notices when a safeguard of the store is missing?

What: each entry of `MUTATIONS` takes one safeguard away from a copy of `Agent/keyword_tree.py` (a sync, a test of a
checksum, a lock, …), and the tests of the store run against that copy until the first one fails.

Why: a test that never fails proves nothing. A safeguard that no test misses is either useless or unguarded.

Wanted: every one is noticed, but those that say why they cannot be; and every one is found in the module. One whose
text is not there, or there twice, is said to be gone: the module was changed, and the entry has to follow it.

How: everything happens in a copy in the temporary folder. First the test that noticed last time, as the table in
`docs/mutations.md` tells; then the tests of handlers and faults, the store's part of the contract's tests, and those
with real processes. What takes several times as long as without the mutation hangs, which counts as noticed. The exit
code tells whether anything was not noticed, or was not found.

Repeat: ``python -m benchmarks.mutate_store`` (``--only sync`` for those whose name holds a word, ``--jobs 4``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[1]
LAST_TABLE = HOME / "docs" / "mutations.md"
STORE_TESTS = "Torn or Damage or Projections or Log or Sync or Files or FailedWrite or FailedSync or Kill or Threads"
METHOD_TESTS = "History or Changes or Undo or Snapshot or Compact or FullDisk or Surroundings or Verify or ReadOnly"
STAGES = (
    ("Agent/tests/store/test_handlers.py",),
    ("Agent/tests/store/test_faults.py",),
    ("Agent/test_keyword_tree.py", "-k", f"{STORE_TESTS} or Instances or Errors or Close or Links or CustomIds"),
    ("Agent/tests/methods/test_methods.py", "-k", METHOD_TESTS),
    ("Agent/tests/concurrency/test_together.py",),
    ("Agent/tests/store/test_processes.py",),
)
PATIENCE = 4
"""What takes so many times as long as without a mutation, and half a minute more, hangs."""


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
    ),
    Mutation(
        "sync of a file that takes a place: a new log, a copy, a compacted log, a snapshot's, a tail kept aside",
        "            self.files.Sync(fd)\n            check()\n",
        "            check()\n",
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
    Mutation(
        "sync of a folder: a mount that knows no such thing is borne",
        "            if error.errno != errno.EINVAL:",
        "            if True:",
    ),
    Mutation(
        "sync of a folder: any other failure is told",
        "            if error.errno != errno.EINVAL:",
        "            if False:",
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
    Mutation(
        "a checkpoint's lengths",
        'if (entry["length"], entry["rows"], int(entry["crc"], 16)) != projection.State():',
        'if (entry["rows"], int(entry["crc"], 16)) != projection.State()[1:]:',
    ),
    Mutation(
        "a checkpoint's counts",
        'if (entry["length"], entry["rows"], int(entry["crc"], 16)) != projection.State():',
        'if (entry["length"], int(entry["crc"], 16)) != projection.State()[::2]:',
    ),
    Mutation(
        "a checkpoint's checksums",
        'if (entry["length"], entry["rows"], int(entry["crc"], 16)) != projection.State():',
        'if (entry["length"], entry["rows"]) != projection.State()[:2]:',
    ),
    Mutation(
        "opening: the checkpoint's checksums of the projections",
        "if self.Checksum(projection.fd, length) != crc:",
        "if False:",
    ),
    Mutation(
        "opening: the checkpoint's checksum of the log",
        "if self.Checksum(self._log_fd, start + begin) != log_crc:",
        "if False:",
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
        "        except OSError as error:  # only the log can keep a tree from opening\n",
        "        except ZeroDivisionError as error:\n",
    ),
    Mutation(
        "opening: the log behind the checkpoint is read",
        "self._last, self._tail = start + begin, start + begin + len(raw) + 1\n",
        "self._last, self._tail = start + begin, self._size\n",
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
        '        self._tail_crc = zlib.crc32(raw + b"\\n", log_crc)\n',
        "        self._tail_crc = 0\n",
    ),
    Mutation(
        "checkpoint: the projections' running checksums",
        "self.rows + len(rows), zlib.crc32(data, self.crc)",
        "self.rows + len(rows), zlib.crc32(data)",
    ),
    Mutation(
        "comparison of a projection's end", "                if found != expected:\n", "                if not found:\n"
    ),
    Mutation(
        "a projection's end is completed",
        "                            self.files.Write(projection.fd, expected, ends[number])\n",
        "",
    ),
    Mutation(
        "what a log has lost is kept",
        '                self._KeepAside(name, surplus, "which the log does not have")\n',
        "",
    ),
    Mutation(
        "what a projection has too much is cut",
        "                self.files.Truncate(projection.fd, ends[number])\n",
        "",
    ),
    Mutation("checksum of a long content", "if zlib.crc32(row) != extent.crc:", "if False:"),
    Mutation(
        "a log that is missing is refused",
        "            if not files.Exists(self._log_path):\n                self._RefuseLostLog()\n",
        "            if not files.Exists(self._log_path):\n",
    ),
    Mutation(
        "a log that is empty is refused",
        "            if self.seq == 0:\n                self._RefuseLostLog()\n            if self.seq <",
        "            if self.seq <",
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
        'though it was read")\n                self._Create(first())\n',
        'though it was read")\n',
    ),
    Mutation(
        "a log that is gone is not begun anew", "                if self.least_seq:\n", "                if False:\n"
    ),
    Mutation("a foreign log stays refused", "        if old.is_lost:\n", "        if False:\n"),
    Mutation(
        "opening: a newer format is refused, though the checkpoint fits",
        "        self._CheckFormat(None if first[6] is None else int(first[6]))\n",
        "",
    ),
    Mutation(
        "what was read is checked before anything is changed",
        "            check()\n            if self.seq == 0:",
        "            if self.seq == 0:",
    ),
    Mutation(
        "only a file that is missing is not there",
        "except FileNotFoundError:  # nothing else means that it is not there",
        "except OSError:",
    ),
    Mutation(
        "a log that was cut while it was open is refused",
        "            if self._size < self._tail:\n                raise StoreCorruptError",
        "            if False:\n                raise StoreCorruptError",
    ),
    Mutation(
        "all that stands behind the last line is judged",
        "        self._size = self.files.Size(self._log_fd)\n        rest =",
        "        rest =",
    ),
    Mutation(
        "damage before a checkpoint is told, also where a projection only lost its end",
        "if ends[number] < projection.vouched_length or not expected.startswith(found):",
        "if not expected.startswith(found):",
    ),
    Mutation(
        "other bytes in a projection are told, also behind the last checkpoint",
        "if ends[number] < projection.vouched_length or not expected.startswith(found):",
        "if ends[number] < projection.vouched_length:",
    ),
    Mutation(
        "opening: the ordinals that a compaction left are known from the log's first line",
        "                    self._TakeBeginning(raw)\n",
        "",
    ),
    Mutation(
        "opening: the ordinals that a compaction left are known, though the checkpoint fits",
        "        self._TakeBeginning(beginning)\n",
        "",
    ),
    Mutation(
        "a projection is not cut for a log that has changed",
        "            if twin.seq != self.seq:  # the log has changed",
        "            if False:  # the log has changed",
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
    ),
    Mutation(
        "a group's operations see one another", "            if job is not jobs[-1]:\n", "            if False:\n"
    ),
    Mutation(
        "a projection that cannot be written fails no operation",
        "                    except OSError as error:\n                        projection.is_behind = True\n",
        "                    except ZeroDivisionError as error:\n                        projection.is_behind = True\n",
    ),
    Mutation(
        "a projection that could not be written is written again",
        "                        projection.is_behind = True\n                        if error.errno is None:",
        "                        if error.errno is None:",
    ),
    Mutation(
        "a projection is written again for what others brought, who may have died before they wrote it",
        "                projection.is_behind |= not write\n",
        "",
    ),
    Mutation(
        "a projection whose sync failed is written again",
        "                projection.is_behind = True  # a sync that fails may have dropped what was written\n",
        "",
    ),
    Mutation(
        "a projection whose sync failed is not compared with what seems to be there",
        'found = b"" if self._is_open else self.files.Read',
        "found = self.files.Read",
    ),
    Mutation(
        "opening: a projection that is not whole is found",
        "                projection.is_behind = not is_whole\n",
        "                projection.is_behind = False\n",
    ),
    Mutation(
        "a checkpoint of another is a mark, too",
        "        if self._is_open:  # another process has made it\n            self._SetMark()\n",
        "",
    ),
    Mutation(
        "a checkpoint mends the projections first",
        "            self._MendProjections()\n"
        "            for projection in self._projections:\n"
        "                projection.is_behind",
        "            for projection in self._projections:\n                projection.is_behind",
    ),
    Mutation(
        "a disk too full for projections does not keep a tree from opening",
        "            self._MendProjections()\n            self.files.SyncFolder(self.data_dir)\n"
        "        except OSError as error:\n",
        "            self._MendProjections()\n            self.files.SyncFolder(self.data_dir)\n"
        "        except ZeroDivisionError as error:\n",
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
    Mutation(
        "padding: space is made in advance",
        "data if end <= self._size else data + _PADDING, self._tail)",
        "data, self._tail)",
    ),
    Mutation(
        "padding: it ends with a newline", '_PADDING = b" " * (16 * 1024 - 1) + b"\\n"', '_PADDING = b" " * 16 * 1024'
    ),
    Mutation("padding: it is blank", '_PADDING = b" " * (16 * 1024 - 1)', '_PADDING = b"\\0" * (16 * 1024 - 1)'),
    Mutation(
        "padding: a new log has some",
        "self.Place(self._log_path, (line + _PADDING,))",
        "self.Place(self._log_path, (line,))",
        "the first operation makes it",
    ),
    Mutation(
        "padding: what a failed write took along is not counted on",
        "            self._SyncLog()\n            self._size = self._tail\n            return",
        "            self._SyncLog()\n            return",
        "a file that is shorter than was thought grows with each write until then, which only takes longer",
    ),
    Mutation(
        "a second tail does not replace the first",
        "f\"cut_tail-{name.partition('.')[0]}-{self.seq + 1}-{zlib.crc32(rest):08x}.bin\"",
        "f\"cut_tail-{name.partition('.')[0]}.bin\"",
    ),
    Mutation(
        "what was refused for one that then failed is tried again",
        "                job.error, job.is_done = error, not writers\n",
        "                job.error, job.is_done = error, True\n",
    ),
    Mutation(
        "what had nothing to do because of one that then failed is tried again",
        "                job.is_done = not writers\n",
        "                job.is_done = True\n",
    ),
    Mutation(
        "who waited for a commit that was interrupted is told",
        "        if job.error is None and not job.is_done:\n            raise StoreError",
        "        if False:\n            raise StoreError",
    ),
    Mutation(
        "who was interrupted while waiting is not written any more",
        "                if group is not None and not group.is_closed and job in group.jobs:\n"
        "                    group.jobs.remove(job)\n",
        "                pass\n",
    ),
    Mutation(
        "a writer sees its own write before the call returns",
        "        for records in brought:\n            self._TakeIn(records)\n",
        "",
    ),
    Mutation(
        "what finds no room keeps none",
        '                self.files.Remove(f"{path}.new")\n            raise\n',
        "                pass\n            raise\n",
    ),
    Mutation(
        "a torn tail that finds no room aside does not keep a tree from being read",
        "            if self._is_open:\n                raise\n            self.is_readonly = True",
        "            if True:\n                raise\n            self.is_readonly = True",
    ),
    Mutation(
        "a clock's numbers are made floats", "_Files(), partial(_ReadClock, self._clock)),", "_Files(), self._clock),"
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
        "self.Place(self._log_path, self._ReadSound())",
        "self.Place(self._log_path, itertools.islice(self._ReadSound(), 1))",
    ),
    Mutation("the mark ends with the copy", "        self.files.Truncate(self._lock_fd, 0)\n", ""),
    Mutation(
        "the new file is known after the copy",
        "        self.files.Close(old)\n        self._Identify()\n",
        "        self.files.Close(old)\n",
    ),
    Mutation(
        "a file that took a place is closed",
        "        finally:\n            self.files.Close(fd)\n        self.files.SyncFolder(os.path.dirname(path))\n",
        "        finally:\n            pass\n        self.files.SyncFolder(os.path.dirname(path))\n",
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
    Mutation(
        "a failed sync ends the operation",
        "            raise StoreError(message, outcome_unknown=True) from error\n",
        "            return\n",
    ),
    Mutation(
        "what can only be read is not copied, whatever the mark says",
        "            if is_suspect and not self.is_readonly:\n",
        "            if is_suspect:\n",
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
        "            with self._commit_lock:\n                self._ReopenIfDue()\n                try:\n",
        "            if True:\n                self._ReopenIfDue()\n                try:\n",
    ),
    Mutation(
        "Close waits for a commit",
        "        with self._commit_lock:\n            try:\n                if not self._must_reopen:",
        "        if True:\n            try:\n                if not self._must_reopen:",
    ),
    Mutation(
        "one group at a time is committed", "                    with self._turn:\n", "                    if True:\n"
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
        "        store.Release()  # an inherited descriptor would keep the lock of a parent that is killed\n",
        "        pass\n",
    ),
    Mutation("a child opens its own", "        self._must_reopen = not self._is_closed\n", ""),
    Mutation(
        "a tree that must reopen leaves no checkpoint",
        "            if not self._must_reopen:  # a checkpoint would vouch for what cannot be trusted\n",
        "            if True:\n",
    ),
    Mutation("files for their owner alone", "os.open(path, flags, 0o600)", "os.open(path, flags, 0o644)"),
    Mutation("folders for their owner alone", "os.mkdir(path, 0o700)", "os.mkdir(path, 0o755)"),
    Mutation(
        "lock of a lock file that was made anew",
        "create=True)\n            files.Lock(self._lock_fd)\n        try:",
        "create=True)\n        try:",
    ),
    Mutation(
        "the lock is let go though Ctrl-C comes then",
        "                    try:  # twice: Ctrl-C at the first one's entry must not leave the lock behind\n"
        "                        self._store.End()\n                    finally:\n"
        "                        self._store.End()\n",
        "                    self._store.End()\n",
    ),
    Mutation(
        "a program that is started inherits no descriptor",
        ' | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)',
        ' | getattr(os, "O_BINARY", 0)',
        "Python itself makes no descriptor inheritable (PEP 446)",
    ),
    Mutation(
        "a folder that another process has just made is no error",
        "            with contextlib.suppress(FileExistsError):  # another process was quicker\n",
        "            if True:\n",
    ),
    Mutation(
        "a folder above that may not be read is no error",
        "        with contextlib.suppress(PermissionError):  # in any case: who made it may have died before this\n",
        "        if True:\n",
    ),
    Mutation("a child is told of the fork", "        _OPEN_TREES.add(self)\n", ""),
    Mutation(
        "a child has a lock of its own for memory",
        "        self._lock = threading.RLock()\n        self._commit_lock = threading.RLock()\n        self._ranker",
        "        self._commit_lock = threading.RLock()\n        self._ranker",
    ),
    Mutation(
        "a child has a lock of its own for the store",
        "        self._commit_lock = threading.RLock()\n        self._ranker",
        "        self._ranker",
    ),
    Mutation(
        "a child has groups of its own",
        "        self._committer = _GroupCommit(self._CommitGroup, self._RefuseReentry)\n"
        "        self._must_reopen = not",
        "        self._must_reopen = not",
    ),
    Mutation(
        "Close closes the files",
        "    self._store.Release()\n                finally:\n                    self._store.Release()\n"
        "        self._fin",
        "    pass\n                finally:\n                    pass\n        self._fin",
    ),
    Mutation(
        "a tree that is opened anew closes what was open",
        "        with self._lock:  # nobody reads a long content from it any more\n            old.Release()\n",
        "",
    ),
    Mutation(
        "a thread that commits does not enter again: to refresh",
        "        self._RefuseReentry()\n        try:\n            with self._commit_lock:",
        "        try:\n            with self._commit_lock:",
    ),
    Mutation("a thread that commits does not enter again: to write", "        self._refuse_reentry()\n", ""),
    Mutation(
        "a thread that opens the folder anew does not enter again",
        "            self._RefuseReentry()\n            with self._commit_lock:\n",
        "            with self._commit_lock:\n",
    ),
    Mutation("no file of the store has the number of a standard one", "        if fd > 2:\n", "        if True:\n"),
    Mutation(
        "Close waits for those who read",
        "                    with self._lock:  # nobody reads a long content\n",
        "                    if True:\n",
    ),
]

# == What runs in between =====================================================

BETWEEN = [
    Mutation(
        "Close in a handler waits for the commit that it interrupts",
        "if _IsOwned(self._commit_lock) or _IsOwned(self._lock):",
        "if _IsOwned(self._lock):",
    ),
    Mutation(
        "Close in a handler waits for the reader that it interrupts",
        "if _IsOwned(self._commit_lock) or _IsOwned(self._lock):",
        "if _IsOwned(self._commit_lock):",
    ),
    Mutation(
        "what Close put off is done behind the commit",
        "            if self._must_close:\n                self.Close()\n",
        "            pass\n",
    ),
    Mutation(
        "what Close put off is done at the next call", "        if self._must_close:\n            self.Close()\n", ""
    ),
    Mutation(
        "a tree that was closed meanwhile is not opened anew",
        'it is this thread\'s turn."""\n        if self._is_closed:\n',
        'it is this thread\'s turn."""\n        if False:\n',
    ),
    Mutation(
        "a handler's write is refused while its own thread leads",
        "        if _IsOwned(self._lock) or _IsOwned(self._turn) or _IsOwned(self._forming.lock):\n",
        "        if _IsOwned(self._lock) or _IsOwned(self._forming.lock):\n",
        "its handler leads a group of its own then; where the commit has begun, the store's own refusal stands",
    ),
    Mutation(
        "a handler's write is refused while its own thread is about to lead",
        "        if _IsOwned(self._lock) or _IsOwned(self._turn) or _IsOwned(self._forming.lock):\n",
        "        if _IsOwned(self._lock) or _IsOwned(self._turn):\n",
    ),
    Mutation(
        "who was interrupted behind joining a group is not written any more",
        "        group: _Group | None = None\n        try:\n            with self._lock:\n"
        "                group = self._forming\n                group.jobs.append(job)\n            with group.lock:\n",
        "        with self._lock:\n            group = self._forming\n            group.jobs.append(job)\n"
        "        try:\n            with group.lock:\n",
    ),
    Mutation(
        "a handler's error is no failed sync",
        "if error.errno is None:  # a signal handler raised it",
        "if False:  # a signal handler raised it",
    ),
    Mutation(
        "a handler's error is no failed write of a projection",
        "                        if error.errno is None:  # see `_SyncLog`\n",
        "                        if False:\n",
    ),
    Mutation(
        "a handler's error is no failed beginning",
        "            if error.errno is None:  # this library's own, or see `_SyncLog`\n",
        "            if isinstance(error, StoreError):\n",
    ),
    Mutation(
        "a handler's error is no failed opening",
        "is_own = isinstance(error, KeywordTreeError) or (isinstance(error, OSError) and error.errno is None)",
        "is_own = isinstance(error, KeywordTreeError)",
    ),
    Mutation(
        "a handler's error is none of the disk's",
        "if isinstance(error, OSError) and error.errno is not None:  # None",
        "if isinstance(error, OSError) and not isinstance(error, StoreError):  # None",
    ),
    Mutation(
        "a handler's error within a checkpoint comes out",
        "            if isinstance(error, OSError) and error.errno is None:  # see `_SyncLog`\n",
        "            if False:\n",
        "the operations are durable by then, and their call returns all the same",
    ),
    Mutation(
        "a log that was opened anew holds what was read",
        "            if self.seq < self.least_seq:\n",
        "            if False:\n",
    ),
    Mutation(
        "the last line is still there",
        "if self.files.Read(self._log_fd, _CRC_END, self._last) !=",
        "if self.files.Read(self._log_fd, _CRC_END, self._last) is None and b'' !=",
    ),
    Mutation(
        "a snapshot's folder is no store",
        "        if files.Exists(os.path.join(self.data_dir, _SNAPSHOT_NAME)):",
        "        if False:",
    ),
    Mutation(
        "compaction: whoever lost the lock replaces no log",
        "            self.Place(self._log_path, lines, self._RefuseIfNotAlone)\n",
        "            self.Place(self._log_path, lines)\n",
    ),
    Mutation(
        "compaction: what another wrote behind the log is looked at",
        "        if is_written or not self._HasLock()",
        "        if not self._HasLock()",
    ),
    Mutation(
        "compaction: the lock file is looked at",
        "        if is_written or not self._HasLock() or",
        "        if is_written or",
    ),
    Mutation(
        "compaction: a log that another replaced meanwhile is looked at",
        "if is_written or not self._HasLock() or self.files.Identify(self._log_path)[0] != self._file_id:",
        "if is_written or not self._HasLock():",
    ),
    Mutation(
        "the lock is the last to be closed",
        'for owner, name in ((self, "_log_fd"), *((each, "fd") for each in self._projections), (self, "_lock_fd")):',
        'for owner, name in ((self, "_lock_fd"), (self, "_log_fd"), *((each, "fd") for each in self._projections)):',
    ),
    Mutation("a child closes what another thread is just opening", "        _STORES.add(store)\n", ""),
    Mutation(
        "a clock out of range is refused",
        "        if math.isfinite(now := float(told)):\n",
        "        if (now := float(told)) or True:\n",
    ),
    Mutation(
        "a clock that tells no number is refused",
        "    with contextlib.suppress(TypeError, ValueError, OverflowError):\n        if math",
        "    if True:\n        if math",
    ),
    Mutation(
        "snapshot: what Restore would not take is no name",
        "        if not _IsSnapshotName(stamp):\n",
        "        if False:\n",
    ),
    Mutation(
        "snapshot: a clock that no calendar holds is refused",
        "        with contextlib.suppress(ValueError, OverflowError, OSError):\n            stamp",
        "        if True:\n            stamp",
    ),
    Mutation(
        "compaction: a finished snapshot is kept, whatever it is called",
        "unfinished = [folder for folder in made if not self.files.Exists(os.path.join(folder, _SNAPSHOT_NAME))]",
        "unfinished = [folder for folder in made if os.path.basename(folder) not in self.SnapshotNames()]",
    ),
    Mutation(
        "Verify names rows that were set aside", "        for name in store.CutNames():\n", "        for name in ():\n"
    ),
    Mutation(
        "Verify: a projection that a writer has yet to bring up to date is no damage to a reader",
        "yield from twin.FindStrayRows(may_grow=store.is_readonly)",
        "yield from twin.FindStrayRows(may_grow=False)",
    ),
    Mutation(
        "reading only: what a writer was about to write is not called torn once it is there",
        "                self.recovery.clear()  # what a writer was about to write is there by now\n",
        "                pass\n",
    ),
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
        "                    while not self._Begin():\n                        continue\n",
        "                    if not self._Begin() and not self._Begin():\n"
        "                        raise StoreError('replaced')\n",
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
        "        self.RefuseIfFailed()\n        new = ",
        "        new = ",
        "the tree refuses it, too, before it gathers the rows",
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
    Mutation(
        "reading only: a log that is replaced while it is opened is opened anew",
        "        while file_id != self._file_id:  # nothing is locked: the log may be replaced between\n",
        "        if True:\n",
    ),
    Mutation(
        "reading only: a projection that is missing keeps nobody out",
        "            with contextlib.suppress(OSError):\n                projection.fd = self.files.Open(",
        "            if True:\n                projection.fd = self.files.Open(",
    ),
]

# == Snapshots, history, compaction ===========================================

SET_ASIDE = [
    Mutation(
        "snapshot: its checksum is tested",
        "            if copy.Checksum(copy._log_fd, length) != crc:\n",
        "            if False:\n",
    ),
    Mutation(
        "snapshot: no more of the log is read than it had",
        "copy.is_readonly, copy._log_fd, copy._stop = True, log_fd, stop",
        "copy.is_readonly, copy._log_fd = True, log_fd",
    ),
    Mutation(
        "snapshot: sync of the folder behind the link",
        "            self.Place(path, self._ReadSound())\n        self.files.SyncFolder(os.path.dirname(path))\n",
        "            self.Place(path, self._ReadSound())\n",
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
        "            for kind in (1, 0, 2):  # infos first",
        "            twin = _JsonlStore(self.data_dir, self.files, self._clock)\n"
        "            twin.seq = self.seq\n"
        "            for each in (0, 1, 2):\n"
        "                for _ in map(twin._projections[each].Take, _InBulks(rows_of(each))):\n"
        "                    pass\n"
        "            first = f'{_FORMAT_FIELD}\"next_ordinal\": {next_ordinal}, '\n"
        "            self.Place(self._log_path, twin._StateLines(rows_of, first))\n"
        "            for kind in (1, 0, 2):  # infos first",
    ),
    Mutation(
        "compaction: what is forgotten is removed behind the new log",
        "            for kind in (1, 0, 2):  # infos first",
        "            if not keep_history:\n"
        "                self._Forget()\n"
        "            for kind in (1, 0, 2):  # infos first",
    ),
    Mutation(
        "compaction: cut tails are forgotten",
        'if name.startswith("cut_tail-") or name.endswith(".new"):',
        'if name.endswith(".new"):',
    ),
    Mutation(
        "compaction: unfinished files are forgotten",
        'if name.startswith("cut_tail-") or name.endswith(".new"):',
        'if name.startswith("cut_tail-"):',
        "the compaction's own files take the place of each that is unfinished, but a cut tail's, whose name tells it",
    ),
    Mutation(
        "compaction: unfinished snapshots are forgotten",
        "for folder in (history, indexes, *unfinished):",
        "for folder in (history, indexes):",
    ),
    Mutation(
        "compaction: indexes are forgotten",
        "for folder in (history, indexes, *unfinished):",
        "for folder in (history, *unfinished):",
    ),
    Mutation(
        "compaction: an older history is forgotten",
        "for folder in (history, indexes, *unfinished):",
        "for folder in (indexes, *unfinished):",
    ),
    Mutation(
        "compaction: sync of what was forgotten",
        "        if self.files.Exists(folder):\n            self.files.SyncFolder(folder)\n",
        "",
    ),
    Mutation(
        "compaction: sync of the cut tails that were forgotten",
        "        self.files.SyncFolder(self.data_dir)\n        for folder in (history",
        "        for folder in (history",
        "the tree opens what it made, which syncs the folder once more, before the call returns",
    ),
    Mutation(
        "compaction: the tree opens what it made",
        "            self._must_reopen = not self._is_closed  # by a signal handler\n"
        "            if self._must_reopen:\n"
        "                self._Reopen()  # readers go on with what they have until it is there\n",
        "            pass\n",
    ),
    Mutation(
        "history: what was told is not told again",
        "                    if line.seq < last:\n                        last = line.seq\n",
        "                    if True:\n                        last = line.seq\n",
    ),
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
    Mutation("snapshot: each has a name of its own", "            if name not in taken\n", ""),
    Mutation(
        "compaction: a name that a failed one left is no error",
        "        except FileExistsError as error:  # of a compaction",
        "        except ZeroDivisionError as error:  # of a compaction",
        "another name of the log gives way to a copy",
    ),
    Mutation(
        "compaction: a name that another log has is refused",
        "                if there.Checksum(there._log_fd, self._tail) != self._tail_crc:\n",
        "                if False:\n",
    ),
    Mutation(
        "compaction: one that fails makes the tree read all anew",
        "                self._must_reopen = True  # the open descriptors may be those of replaced files\n",
        "                pass\n",
    ),
    Mutation(
        "history: it is read through a descriptor of its own",
        "self._ReadFilesBack(self.files.Duplicate(self._log_fd), self._tail",
        "self._ReadFilesBack(self._log_fd, self._tail",
    ),
    Mutation(
        "history: a file that another's compaction takes away ends it",
        "            except FileNotFoundError:  # another process has compacted without history\n",
        "            except ZeroDivisionError:\n",
    ),
    Mutation(
        "history: a newest operation that is missing is damage",
        "if line is None or number not in (0, line.seq) or crc",
        "if line is None or crc",
    ),
    Mutation("history: any other operation that is missing is damage", ' or crc not in (b"", line.crc):', ":"),
    Mutation(
        "history: a line that is not whole is damage",
        "if line is None or number not in (0, line.seq) or crc",
        "if line is None:\n                        continue\n                    if number not in (0, line.seq) or crc",
    ),
    Mutation(
        "history: what is read while a commit counts its line is no damage",
        'number, crc = 0 if is_begun else top, b""',
        'number, crc = top, b""',
    ),
    Mutation(
        "history: a file without its first line is damage",
        "            if crc != _FIRST_CRC:\n                yield None",
        "            if False:\n                yield None",
    ),
    Mutation(
        "a copy of the log is compared with what was read and written",
        '        if crc != self._tail_crc:\n            raise StoreCorruptError(_LOG_NAME, 0, "the log has changed',
        '        if False:\n            raise StoreCorruptError(_LOG_NAME, 0, "the log has changed',
    ),
]

MUTATIONS = SYNCS + CHECKS + WRITING + FAILED_SYNCS + LOCKS + BETWEEN + REPLACED + SET_ASIDE


# == Running ==================================================================


class Found(NamedTuple):
    """What became of a mutation."""

    text: str
    """Who noticed it, in Markdown."""
    seconds: float
    is_well: bool
    """Whether it was noticed, or need not be."""


def main() -> int:
    """Try the mutations; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--begin", default="", help="with the one of this name, after a break")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument(
        "--last", type=Path, default=LAST_TABLE, help="where the last table stands: who noticed then is asked first"
    )
    options = parser.parse_args()
    if hasattr(os, "nice"):
        os.nice(10)
    beginning = next((number for number, each in enumerate(MUTATIONS) if each.name == options.begin), 0)
    chosen = [mutation for mutation in MUTATIONS[beginning:] if options.only in mutation.name]
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        return try_all(chosen, Path(name), options.jobs, read_last_table(options.last))


def try_all(chosen: Sequence[Mutation], folder: Path, jobs: int, noticed_last: Mapping[str, tuple[str, str]]) -> int:
    """Try mutations, some at once; print the table and return the exit code."""
    for source in needed():  # once, so that nobody changes a test meanwhile
        target = folder / "unchanged" / source.relative_to(HOME)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    module = (folder / "unchanged" / "Agent" / "keyword_tree.py").read_text("utf-8")
    limits: list[float] = []
    for stage in STAGES:
        begun = time.monotonic()
        if failed := run_tests(stage, folder / "unchanged", 3600):
            print(f"The unchanged module fails {failed}: mend that first.")
            return 2
        limits.append(30 + PATIENCE * (time.monotonic() - begun))

    def try_one(mutation: Mutation) -> Found:
        if (count := module.count(mutation.old)) != 1:
            where = "is gone" if count == 0 else f"stands there {count} times"
            return Found(
                f"**its place {where}**: look for what came instead of {mutation.old.strip()[:60]!r}", 0, False
            )
        place = Path(shutil.copytree(folder / "unchanged", tempfile.mkdtemp(dir=folder), dirs_exist_ok=True))
        (place / "Agent" / "keyword_tree.py").write_text(module.replace(mutation.old, mutation.new), "utf-8")
        begun = time.monotonic()
        try:
            test = noticed_by(place, noticed_last.get(mutation.name), limits)
        finally:
            shutil.rmtree(place, ignore_errors=True)  # a process that hung may still write there
        seconds = time.monotonic() - begun
        if test:
            return Found(f"`{test}`", seconds, True)
        if mutation.harmless:
            return Found(f"nothing, and need not be: {mutation.harmless}", seconds, True)
        return Found("**nothing**", seconds, False)

    failures = 0
    print("| without | noticed by | seconds |\n|---|---|---:|")
    with ThreadPoolExecutor(jobs) as pool:
        for mutation, found in zip(chosen, pool.map(try_one, chosen), strict=True):
            failures += not found.is_well
            print(f"| {mutation.name} | {found.text} | {found.seconds:.0f} |", flush=True)
    print(f"\n{len(chosen)} mutations, {failures} of them unnoticed or not found.")
    return 1 if failures else 0


def read_last_table(path: Path) -> dict[str, tuple[str, str]]:
    """Return, by mutation, module and name of the test that noticed it when the table was last made."""
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.findall(r"^\| (.+?) \| `(\w+): (\w+)` \|", text, re.MULTILINE)
    return {name: (file, test) for name, file, test in found}


def noticed_by(folder: Path, likely: tuple[str, str] | None, limits: Sequence[float]) -> str | None:
    """Run the tests in a folder; return the first one that fails."""
    if likely is not None:
        module, name = likely
        for path in (folder / "Agent").rglob(f"{module}.py"):
            if test := run_tests((str(path.relative_to(folder)), "-k", name), folder, min(limits)):
                return test
    return next(
        (test for stage, limit in zip(STAGES, limits, strict=True) if (test := run_tests(stage, folder, limit))), None
    )


def run_tests(stage: Sequence[str], folder: Path, limit_s: float) -> str | None:
    """Run tests in a folder, with the module that is there; return the first one that fails."""
    if not (folder / stage[0]).exists():
        return None
    command = [sys.executable, "-m", "pytest", *stage, "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    command += ["--basetemp", str(folder / "pytest")]
    # Tests start programs of their own: these, too, are to find the module of this folder, not one that is installed.
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with (folder / "output").open("wb") as output_file:  # a pipe would wait for whoever inherited it and hangs
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output_file, stderr=output_file, start_new_session=True
        )
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that the tests end the processes that they have started
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"{Path(stage[0]).stem}: hangs"
    if process.returncode in (0, 5):  # passed, or none was chosen
        return None
    output = (folder / "output").read_text("utf-8", "replace")
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+)\.py::(?:\w+::)*(\w+)", output, re.MULTILINE)
    return f"{failed[1]}: {failed[2]}" if failed else f"{Path(stage[0]).stem}: {output[-300:]!r}"


def needed() -> Iterator[Path]:
    """Yield what the tests need."""
    yield from (HOME / "Agent").glob("*.py")
    yield from (HOME / "Agent" / "tests").rglob("*.py")
    yield from (HOME / name for name in ("pyproject.toml", "conftest.py"))


if __name__ == "__main__":
    sys.exit(main())
