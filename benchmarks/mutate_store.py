"""Which test notices when a safeguard of the store is missing?

What: each entry of `MUTATIONS` takes one safeguard away from a copy of `Agent/keyword_tree.py` (a sync, a test of a
checksum, a lock, …), and the tests of the store run against that copy until the first one fails.

Why: a test that never fails proves nothing. A safeguard that no test misses is either useless or unguarded.

Wanted: every one is noticed, but those that say why they cannot be; and every one is found in the module, by its mark
there (see `guards`). A mark of the module that no entry is about is told, too.

How: everything happens in a copy in the temporary folder. First the test that noticed last time, as the table in
`docs/mutations.md` tells; then the tests of handlers and faults, the store's part of the contract's tests, those of
logs elsewhere, and those with real processes. What takes several times as long as without the mutation hangs, which
counts as noticed. The exit code tells whether anything was not noticed, or was not found.

Repeat: ``python -m benchmarks.mutate_store`` (``--only sync`` for those whose name holds a word, ``--jobs 4``;
``--again`` for what noticed last time alone).
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
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.guards import Always, GuardError, Instead, Way, marks, take_away

HOME = Path(__file__).resolve().parents[1]
LAST_TABLE = HOME / "docs" / "mutations.md"
STORE_TESTS = "Torn or Damage or Projections or Log or Sync or Files or FailedWrite or FailedSync or Kill or Threads"
METHOD_TESTS = (
    "History or Changes or Undo or Snapshot or Compact or FullDisk or Surroundings or Verify or ReadOnly or Operation"
)
STAGES = (
    ("Agent/tests/store/test_safeguards_alone.py",),
    ("Agent/tests/store/test_handlers.py",),
    ("Agent/tests/store/test_faults.py",),
    ("Agent/test_keyword_tree.py", "-k", f"{STORE_TESTS} or Instances or Errors or Close or Links or CustomIds"),
    ("Agent/tests/methods/test_methods.py", "-k", METHOD_TESTS),
    ("Agent/tests/methods/test_faults_mended.py",),
    ("Agent/tests/methods/test_at.py",),
    ("Agent/tests/methods/test_overlay.py",),
    ("Agent/shared_tree/test_conformance.py", "-k", "folder or memory"),
    ("Agent/shared_tree/test_store.py",),
    ("Agent/tests/concurrency/test_together.py",),
    ("Agent/tests/store/test_processes.py",),
)
PATIENCE = 4
"""What takes so many times as long as without a mutation, and half a minute more, hangs."""


class Mutation(NamedTuple):
    """A safeguard taken away."""

    name: str
    way: Way = None
    """How, where it is not the usual way of what its line holds."""
    mark: str = ""
    """What marks its line, where that is not its name."""
    harmless: str = ""
    """Why no test can miss it, where none can."""

    def of(self, source: str) -> str:
        """Return the module's text without the safeguard."""
        return take_away(source, self.mark or self.name, self.way)


# == The door to the disk =====================================================

DOOR = [
    Mutation("a folder that another process has just made is borne"),
    Mutation("folders for their owner alone", Instead("0o700", "0o755")),
    Mutation(
        "sync of the folder above one that is there already",
        Instead(
            "if not os.path.isdir(path) and parent != path:",
            "if os.path.isdir(path):\n            return\n        if parent != path:",
        ),
        mark="the folder above",
    ),
    Mutation("sync of the folder above"),
    Mutation("a folder above that may not be read is borne", Always(), mark="a folder above"),
    Mutation("sync of the folder above: any other failure is told", mark="a folder above"),
    Mutation("only a file that is missing is not there", Instead("FileNotFoundError", "OSError")),
    Mutation("files for their owner alone", Instead("0o600", "0o644")),
    Mutation(
        "a program that is started inherits no descriptor",
        Instead("os.O_CLOEXEC | ", ""),
        mark="not inherited",
        harmless="Python itself makes no descriptor inheritable (PEP 446)",
    ),
    Mutation("no file of the store has the number of a standard one", Always(), mark="not a standard one"),
    Mutation(
        "a time that was set back is no proof",
        Instead("max(there.st_mtime_ns, there.st_ctime_ns)", "there.st_mtime_ns"),
    ),
    Mutation("short writes are continued"),
    Mutation("short writes are continued where they stopped", Instead("offset + written", "offset")),
    Mutation("a write that makes no headway ends"),
    Mutation("syncing does nothing", mark="sync"),
    Mutation("syncing a folder does nothing", mark="sync of a folder"),
    Mutation("sync of a folder: a mount that knows no such thing is borne", Always(), mark="mounts"),
    Mutation("sync of a folder: any other failure is told", mark="mounts"),
    Mutation("the lock excludes", Instead("LOCK_EX", "LOCK_SH")),
    Mutation("a handler's error is none of the disk's"),
    Mutation("sync of a file that takes a place"),
    Mutation("sync of the folder in which a file takes a place", mark="sync of its folder"),
    Mutation("what finds no room keeps none"),
    Mutation("a file that took a place is closed"),
]

# == Lines ====================================================================

LINES = [
    Mutation("checksum of a line"),
    Mutation("checksum of a line's last byte", Instead("[_CRC_END:]", "[_CRC_END:-1]"), mark="checksum of a line"),
    Mutation(
        "chain: the number",
        Instead("line.seq != self.seq + 1 or line.prev != self.crc", "line.prev != self.crc"),
        mark="chain",
    ),
    Mutation(
        "chain: the checksum before",
        Instead("line.seq != self.seq + 1 or line.prev != self.crc", "line.seq != self.seq + 1"),
        mark="chain",
    ),
    Mutation("watermark: damage is told from a torn tail", mark="watermark"),
    Mutation(
        "watermark: the very line",
        Instead("line.durable >= expected", "line.durable > expected"),
        mark="watermark",
    ),
    Mutation(
        "watermark: not too low",
        Instead("crc, reader.seq, operation", "crc, 0, operation"),
        mark="what is durable",
    ),
    Mutation(
        "watermark: not too high",
        Instead("crc, reader.seq, operation", "crc, seq - 1, operation"),
        mark="what is durable",
    ),
    Mutation(
        "lines are found behind a damaged newline",
        Instead(r"""rb'\{"crc": "[^\n]*?(?=\{"crc": "|\n|\Z)'""", r"""rb'(?m)^\{"crc": "[^\n]*'"""),
    ),
    Mutation(
        "checkpoint: the log's running checksum",
        Instead("zlib.crc32(line, log.crc)", "zlib.crc32(line)"),
        mark="the log's checksum",
    ),
    Mutation(
        "checkpoint: the log's running checksum, from the checkpoint on",
        Instead("lengths", "[_Length(lengths[0].bytes, lengths[0].lines), *lengths[1:]]"),
        mark="goes on from a checkpoint",
    ),
    Mutation(
        "checkpoint: the projections' running checksums",
        Instead("zlib.crc32(data, length.crc)", "zlib.crc32(data)"),
        mark="a projection's checksum",
    ),
    Mutation(
        "a checkpoint's lengths",
        Instead("told != length", "(told.lines, told.crc) != (length.lines, length.crc)"),
        mark="a checkpoint",
    ),
    Mutation(
        "a checkpoint's counts",
        Instead("told != length", "(told.bytes, told.crc) != (length.bytes, length.crc)"),
        mark="a checkpoint",
    ),
    Mutation(
        "a checkpoint's checksums",
        Instead("told != length", "(told.bytes, told.lines) != (length.bytes, length.lines)"),
        mark="a checkpoint",
    ),
    Mutation(
        "opening: a newer format is refused, though the checkpoint fits",
        Instead(
            "reader.ReadFirst(files.Read(reader.fd, 512, 0))",
            "with contextlib.suppress(StoreError):\n            reader.ReadFirst(files.Read(reader.fd, 512, 0))",
        ),
        mark="first line",
    ),
    Mutation(
        "opening: the ordinals that a compaction left are known, though the checkpoint fits",
        Instead(
            "reader.ReadFirst(files.Read(reader.fd, 512, 0))",
            "reader.ReadFirst(files.Read(reader.fd, 512, 0))\n        reader.next_ordinal = 0",
        ),
        mark="first line",
    ),
    Mutation(
        "opening: the ordinals that a compaction left are known from the log's first line",
        Instead("self.ReadFirst(raw)", "self.ReadFirst(raw)\n                    self.next_ordinal = 0"),
        mark="first line is read",
    ),
    Mutation("a log without a format is refused"),
    Mutation("a newer format is refused"),
    Mutation(
        "padding: it ends with a newline",
        Instead(r'b" " * (16 * 1024 - 1) + b"\n"', 'b" " * 16 * 1024'),
        mark="padding",
    ),
    Mutation("padding: it is blank", Instead('b" " *', r'b"\0" *'), mark="padding"),
]

# == Projections ==============================================================

PROJECTIONS = [
    Mutation("checksum of a long content"),
    Mutation(
        "opening: a projection that is missing keeps nobody out",
        Instead("suppress(_DiskError)", "suppress()"),
        mark="a missing projection is borne",
    ),
    Mutation(
        "opening: a projection that cannot be read keeps nobody out",
        Instead("suppress(_DiskError)", "suppress()"),
        mark="one that cannot be read is borne",
    ),
    Mutation(
        "opening: the checkpoint's checksums of the projections",
        Instead("crc != length.crc or ", ""),
        mark="fits its checksum and length",
    ),
    Mutation(
        "Verify: a projection of another length is told",
        Instead(" or (is_all and size != length.bytes)", ""),
        mark="fits its checksum and length",
    ),
    Mutation("a projection that cannot be written fails no operation", mark="fails no operation"),
    Mutation("a projection that could not be written gets no checkpoint", mark="no checkpoint behind this"),
    Mutation("sync of the projections before a checkpoint", mark="sync before a checkpoint"),
    Mutation("a projection whose sync failed gets no checkpoint", mark="no checkpoint behind a failed sync"),
    Mutation("comparison of a projection's end", Instead("found != data", "not found"), mark="what differs"),
    Mutation("a projection's end is completed", mark="completed"),
    Mutation(
        "damage before a checkpoint is told, also where a projection only lost its end",
        Instead(
            "self._projections.damaged.update(self._projections.FindUnfit(projected, is_all=False))",
            "if any(self._projections.FindUnfit(projected, is_all=False)):\n            return False",
        ),
        mark="damage is told",
    ),
    Mutation("opening: projections that do not fit are not read", mark="not read where damaged"),
    Mutation("other bytes in a projection are told, also behind the last checkpoint", mark="other bytes are told"),
    Mutation("a projection that is shorter, as a crash leaves it, is no damage", Always(), mark="other bytes are told"),
    Mutation("a projection is not cut for a log that has changed", mark="not for a log that has changed"),
    Mutation("what a projection has too much is cut"),
    Mutation(
        "opening: the rows end where the checkpoint says",
        Instead("0, length.bytes", "0, 1 << 62"),
        mark="up to the checkpoint",
    ),
    Mutation("what a log has lost is kept", mark="what the log has lost is kept"),
    Mutation("sync of the folder behind new projections"),
    Mutation("a disk too full for projections does not keep a tree from opening", mark="a full disk is borne"),
    Mutation("projections that could not be mended get no checkpoint", mark="no checkpoint behind these"),
]

# == What is set aside ========================================================

SET_ASIDE = [
    Mutation(
        "snapshot: unfinished ones have no name",
        Instead(" if self.files.Exists(os.path.join(self._snapshots, name, _SNAPSHOT_NAME))", ""),
        mark="finished ones alone",
    ),
    Mutation("snapshot: each has a name of its own", mark="a name of its own"),
    Mutation(
        "snapshot: what tells that it is finished comes last",
        Instead(
            "self._SetAside(folder, _LOG_NAME, copy)",
            "self.files.MakeFolder(folder)\n"
            '        said_raw = [_EncodeText(said).encode() + b"\\n"]\n'
            "        _ReplaceFile(self.files, os.path.join(folder, _SNAPSHOT_NAME), said_raw)\n"
            "        self._SetAside(folder, _LOG_NAME, copy)",
        ),
        mark="before it is called finished",
    ),
    Mutation(
        "snapshot: a copy shares nothing",
        Instead("not copy", "not (copy := False)"),
        mark="a copy shares nothing",
    ),
    Mutation("snapshot: sync of the folder behind the link", mark="sync behind the link"),
    Mutation("snapshot: a file system without links", Instead("error.errno != errno.EEXIST", "False"), mark="links"),
    Mutation(
        "compaction: a name that a failed one left is taken as it is",
        Instead("error.errno != errno.EEXIST", "True"),
        mark="links",
    ),
    Mutation("compaction: a name that another log has is refused", mark="of another log"),
    Mutation("snapshot: its checksum is tested", mark="a snapshot's checksum"),
    Mutation(
        "snapshot: no more of the log is read than it had",
        Instead("readonly=True), length)", "readonly=True))"),
        mark="no more than it had",
    ),
    Mutation(
        "snapshot: what tells of it has a checksum",
        Instead('told != _ChecksumOf(said) or said.get("name") != name', 'said.get("name") != name'),
        mark="what tells of a snapshot",
    ),
    Mutation(
        "snapshot: what tells of it is not another's",
        Instead(' or said.get("name") != name', ""),
        mark="what tells of a snapshot",
    ),
    Mutation(
        "history: files that are no history are not read",
        Instead("filter(_IsHistoryName, self.files.List(self._history))", "self.files.List(self._history)"),
        mark="history alone",
    ),
    Mutation(
        "forgetting: nothing is forgotten before the new log is in place",
        Always(),
        mark="only behind its new log",
    ),
    Mutation("forgetting: it ends", mark="forgetting ends"),
    Mutation(
        "forgetting: sync of its end",
        mark="sync of the end of forgetting",
        harmless="the mark that a power cut brings back lets the next opening forget once more",
    ),
    Mutation(
        "forgetting: cut tails",
        Instead('name.startswith("cut_tail-") or ', ""),
        mark="cut tails and unfinished files",
    ),
    Mutation(
        "forgetting: unfinished files",
        Instead(' or name.endswith(".jsonl.new")', ""),
        mark="cut tails and unfinished files",
        harmless="the compaction's own files take the place of each that is unfinished, but a cut tail's, whose "
        "name tells it",
    ),
    Mutation(
        "forgetting: a finished snapshot is kept, whatever it is called",
        Instead("in self.SnapshotNames()", "in filter(_IsSnapshotName, self.SnapshotNames())"),
        mark="finished ones are known",
    ),
    Mutation(
        "forgetting: a finished snapshot is kept",
        Instead(" and folder not in finished", ""),
        mark="finished ones are kept",
    ),
    Mutation("forgetting: unfinished snapshots", Instead("self._snapshots, ", ""), mark="folders that are forgotten"),
    Mutation(
        "forgetting: indexes",
        Instead(", os.path.join(self.data_dir, _INDEXES)", ""),
        mark="folders that are forgotten",
    ),
    Mutation("forgetting: an older history", Instead("self._history, ", ""), mark="folders that are forgotten"),
    Mutation(
        "forgetting: where a link leads stays as it is",
        Instead(" and not os.path.islink(path)", ""),
        mark="no link",
    ),
    Mutation("forgetting: sync of what was forgotten", mark="sync of what was forgotten"),
    Mutation("a copy of the log is compared with what was read and written", mark="compared with what was read"),
    Mutation("compaction: the history is set aside", mark="the history is set aside"),
    Mutation("forgetting: a crash does not end it", mark="forgetting is begun"),
    Mutation(
        "forgetting: what is forgotten is removed behind the new log",
        Instead(
            "_ReplaceFile(self.files, self._forget_path",
            "self._Forget()\n                _ReplaceFile(self.files, self._forget_path",
        ),
        mark="forgetting is begun",
    ),
    Mutation(
        "compaction: the projections come before the log",
        Instead(
            "for kind in (1, 0, 2):",
            "first = (line for _, _, line in _EncodeState(rows_of, next_ordinal, self.seq, "
            "self._clock))\n"
            "            _ReplaceFile(self.files, self.log_path, first, self._RefuseIfNotAlone)\n"
            "            self._RefuseIfNotAlone = lambda: None\n"
            "            for kind in (1, 0, 2):",
        ),
        mark="the projections first",
    ),
    Mutation(
        "compaction: whoever lost the lock replaces no log",
        Instead(", self._RefuseIfNotAlone", ""),
        mark="only who holds the lock",
    ),
    Mutation(
        "reading only: no compaction",
        mark="no compaction without writing",
        harmless="the tree refuses it, too, before it gathers the rows",
    ),
    Mutation(
        "compaction: what another wrote behind the log is looked at",
        Instead(r' or self._reader.ReadRest().strip(b" \n")', ""),
        mark="alone",
    ),
    Mutation(
        "compaction: the lock file is looked at",
        Instead("self._IsReplaced()", "not self.files.IsAt(self._reader.fd, self.log_path)"),
        mark="alone",
    ),
    Mutation(
        "compaction: a log that another replaced meanwhile is looked at",
        Instead("self._IsReplaced()", "not self.files.IsAt(self._lock_fd, self._lock_path)"),
        mark="alone",
    ),
    Mutation("snapshot: what Restore would not take is no name", mark="a name that Restore takes"),
    Mutation("snapshot: a clock that no calendar holds is refused", mark="a calendar's borders"),
    Mutation("reading only: no snapshot", mark="no snapshot without writing"),
]

# == Opening ==================================================================

OPENING = [
    Mutation("a snapshot's folder is no store"),
    Mutation("a file where the folder should be is refused"),
    Mutation("a foreign file is refused"),
    Mutation("lock of an opening"),
    Mutation("a lock file that was replaced while an opening waited is noticed", Always()),
    Mutation(
        "reading only: a folder that refuses a lock file is read",
        Instead("error.errno in _READ_ONLY_ERRORS and not self.files.IsWritable(self.data_dir)", "False"),
        mark="read where nothing can be made",
    ),
    Mutation(
        "a lock that is refused in a folder that can be written is told",
        Instead(" and not self.files.IsWritable(self.data_dir)", ""),
        mark="read where nothing can be made",
    ),
    Mutation(
        "reading only: a file system without locks is read",
        Instead(" and error.errno not in _NO_LOCK_ERRORS", ""),
        mark="read where nothing can be locked",
    ),
    Mutation("a lock that fails for any other reason is told", mark="read where nothing can be locked"),
    Mutation("a log that is missing is refused", mark="a missing log is refused"),
    Mutation(
        "a new log is made under another name first",
        Instead(
            "_ReplaceFile(self.files, self.log_path, [line + _PADDING])",
            "self.files.Write(self.files.Open(self.log_path, create=True), line + _PADDING, 0)",
        ),
        mark="a new log",
    ),
    Mutation(
        "padding: a new log has some",
        Instead("[line + _PADDING]", "[line]"),
        mark="a new log",
        harmless="the first operation makes it",
    ),
    Mutation("end of an opening's lock"),
    Mutation(
        "a mark makes opening copy the log",
        Instead("files.Size(self._lock_fd) > 0", "False"),
        mark="a mark of a failed sync",
    ),
    Mutation("sync of the log at opening"),
    Mutation("sync of the folder at opening, before the log is read", mark="sync of the folder at opening"),
    Mutation("forgetting: the next opening finishes it", mark="forgetting is finished"),
    Mutation("a log that is gone is not begun anew"),
    Mutation("what was read is checked before anything is changed", mark="checked first"),
    Mutation(
        "opening: the log behind the checkpoint is read",
        Instead("self._TakeIn(state.Apply)", "if self.seq == 0:\n            self._TakeIn(state.Apply)"),
        mark="what is behind the checkpoint",
    ),
    Mutation(
        "opening: the checkpoint's place in the log",
        Instead("not is_there or ", ""),
        mark="where the checkpoint stands",
        harmless="the log's checksum is wrong, too, where the checkpoint stands elsewhere",
    ),
    Mutation(
        "reading only: projections are opened for reading",
        Instead("readonly=self.is_readonly", "readonly=False"),
        mark="for reading only",
    ),
    Mutation(
        "opening: the checkpoint's checksum of the log",
        Instead(" or _Checksum(files, reader.fd, log.bytes) != log.crc", ""),
        mark="where the checkpoint stands",
    ),
    Mutation("a log that is empty is refused"),
    Mutation("a log that was opened anew holds what was read", mark="holds what was read"),
    Mutation("a log that was opened anew is the one that was read", mark="goes on from what was read"),
    Mutation("a compacted log that was cut is refused"),
    Mutation("a log that lost its end is refused", Instead("self._projections.FindNewer(reader.projected)", "()")),
    Mutation("a lost end: a row that is torn proves nothing", mark="a torn row"),
    Mutation(
        "a lost end: a projection that is damaged proves nothing",
        Instead("newer and name not in self.FindUnfit(lengths, is_all=False)", "newer"),
        mark="one that is damaged proves nothing",
    ),
    Mutation(
        "a lost end: a row that stands there twice proves nothing",
        mark="a row that stands there twice proves nothing",
    ),
    Mutation(
        "all that stands behind the last line is judged",
        Instead("self._reader.ReadRest()", 'b""'),
        mark="all behind the last line",
    ),
    Mutation("a tail of zeros is cut", Instead(r'b" \n"', r'b" \n\0"')),
    Mutation("a tail of zeros is not reported", Always()),
    Mutation("a torn tail is kept"),
    Mutation(
        "a torn tail that finds no room aside does not keep a tree from being read",
        mark="no room aside is borne",
    ),
    Mutation("a torn tail is cut"),
    Mutation(
        "sync of a log whose tail was cut",
        harmless="a cut that a power cut undoes is made again, and the next operation's sync covers it, too",
    ),
    Mutation("a second tail does not replace the first", Instead("-{self.seq + 1}-{zlib.crc32(rest):08x}", "")),
    Mutation(
        "the whole log is copied",
        Instead("self._reader.ReadBytes()", "itertools.islice(self._reader.ReadBytes(), 1)"),
    ),
    Mutation("the new file is known after the copy"),
    Mutation("the mark ends with the copy"),
    Mutation("sync of the mark's end"),
]

# == Writing ==================================================================

WRITING = [
    Mutation("nothing is begun behind a failure"),
    Mutation("lock of a commit"),
    Mutation("a mark keeps from writing"),
    Mutation("what others wrote is taken in"),
    Mutation("reading only: a log that has changed is opened anew", mark="followed without writing"),
    Mutation("end of a commit's lock"),
    Mutation(
        "reading only: a log that was replaced is noticed",
        Instead("not self.files.IsAt(reader.fd, self.log_path) or ", ""),
        mark="followed without writing",
    ),
    Mutation(
        "reading only: a log that has grown is noticed",
        Instead(" or reader.ReadRest() != self._behind", ""),
        mark="followed without writing",
    ),
    Mutation("replaced: the folder's time is looked at", mark="the folder's time"),
    Mutation(
        "replaced: a log that was replaced is noticed",
        Instead("self.files.IsAt(self._reader.fd, self.log_path) and ", ""),
        mark="replaced files",
    ),
    Mutation(
        "replaced: a lock file that was replaced is noticed",
        Instead(" and self.files.IsAt(self._lock_fd, self._lock_path)", ""),
        mark="replaced files",
    ),
    Mutation(
        "replaced: a time that has just passed proves nothing",
        Instead(" if time.time_ns() - told > tick_ns else -1", ""),
        mark="a time well past",
    ),
    Mutation(
        "replaced: a clock may tick in whole seconds",
        Instead(" if told % 1_000_000_000 else 2_100_000_000", ""),
        mark="ticks",
    ),
    Mutation("the last line is still there"),
    Mutation("a foreign log stays refused"),
    Mutation("a log that was cut while it was open is refused"),
    Mutation("sync of what another process wrote"),
    Mutation(
        "a torn tail of another is cut before writing",
        Instead("self._CutTail(self._JudgeTail())", "self._JudgeTail()"),
        mark="what another left is cut",
    ),
    Mutation(
        "damage in what another wrote is told",
        Instead("self._JudgeTail()", "self._reader.ReadRest()"),
        mark="what another left is cut",
    ),
    Mutation("nothing is appended behind a failure"),
    Mutation(
        "a checkpoint of operations",
        Instead("reader.seq - seq >= _CHECKPOINT_OPERATIONS or ", ""),
        mark="checkpoints",
    ),
    Mutation(
        "a checkpoint of bytes",
        Instead(" or reader.log.bytes - size >= _CHECKPOINT_BYTES", ""),
        mark="checkpoints",
    ),
    Mutation("a checkpoint that fails fails no operation"),
    Mutation("padding: space is made in advance", mark="space in advance"),
    Mutation("sync of a commit"),
    Mutation("a handler's error is no failed sync", Instead("_DiskError", "OSError")),
    Mutation("a failed sync is remembered"),
    Mutation("a disk that refuses the mark is borne"),
    Mutation("a failed sync leaves a mark"),
    Mutation(
        "sync of the mark",
        harmless="a power cut that loses the mark also empties the page cache that it warns of",
    ),
    Mutation("a failed sync ends the operation", mark="its outcome is unknown"),
    Mutation(
        "a failed sync has an unknown outcome",
        Instead(", outcome_unknown=True", ""),
        mark="its outcome is unknown",
    ),
    Mutation("a failed write is taken back"),
    Mutation("sync of a failed write that was taken back", mark="sync of what was taken back"),
    Mutation("a failed write that could not be taken back ends all writing", mark="ends all writing"),
    Mutation(
        "a failed write that could not be taken back is called unknown",
        Instead(", outcome_unknown=True", ""),
        mark="called unknown",
    ),
    Mutation(
        "padding: what a failed write took along is not counted on",
        mark="not counted on",
        harmless="a file that is shorter than was thought grows with each write until then, which only takes longer",
    ),
    Mutation(
        "a checkpoint vouches for no projection that is behind",
        Instead("not self._projections.Sync()", "self._projections.Sync() is None"),
        mark="no checkpoint without the projections",
    ),
    Mutation("a clock that tells no time makes no checkpoint", mark="a mad clock is borne"),
    Mutation("reading only: nothing is checkpointed at the end", mark="not without writing"),
    Mutation("Close leaves a checkpoint", mark="a checkpoint at the end"),
    Mutation("Close leaves no second checkpoint", Always(), mark="a checkpoint at the end"),
    Mutation("Close trims the padding"),
    Mutation("sync of a log that was trimmed", harmless="spaces that come back are padding as before"),
    Mutation("a failing Close raises nothing"),
    Mutation(
        "the lock is the last to be closed",
        Instead("for kind, fd in", "self.files.Close(self._lock_fd)\n            for kind, fd in"),
        mark="the lock behind these",
    ),
]

# == Reading back =============================================================

READING_BACK = [
    Mutation("reading only: a log that is replaced while it is opened is opened anew", mark="replaced between"),
    Mutation(
        "reading only: a writer may go on between reading and judging",
        Instead("while reader.log.bytes != tail:", "for _ in range(1):"),
        mark="a writer may have gone on",
    ),
    Mutation(
        "history: it is read through a descriptor of its own",
        Instead("self.files.Duplicate(fd)", "fd"),
        mark="a descriptor of its own",
    ),
    Mutation(
        "history: what is read while a commit counts its line is no damage",
        Instead("log = self.log", "self.seq, self.crc = seq, crc\n        log = self.log"),
        mark="the bytes before the number",
    ),
    Mutation(
        "history: what lies above a file's number is no history",
        Instead("line.seq > top", "False"),
        mark="not yet history",
    ),
    Mutation(
        "history: what is torn above a file's number is no damage",
        Instead("is_aside", "False"),
        mark="not yet history",
    ),
    Mutation("history: nothing in the log itself is torn", Instead("is_aside", "True"), mark="not yet history"),
    Mutation(
        "history: a line that is not whole is damage",
        Instead("if line is None or ", "if line is None:\n            continue\n        if "),
        mark="gaps in the history",
    ),
    Mutation(
        "history: a newest operation that is missing is damage",
        Instead("line.seq != top", "False"),
        mark="gaps in the history",
    ),
    Mutation(
        "history: any other operation that is missing is damage",
        Instead("line.crc != crc", "False"),
        mark="gaps in the history",
    ),
    Mutation("history: what was told is not told again", Instead("line.seq < last", "True"), mark="told once"),
    Mutation("history: a file without its first line is damage", mark="its first line"),
    Mutation("history: a file that another's compaction takes away ends it", Always(), mark="taken away by another"),
    Mutation("history: a line that was found and has changed is damage", mark="a line that was found"),
    Mutation("a content is not read through what is closed", mark="a store that is closed"),
    Mutation(
        "a content is read again where the tree was opened anew meanwhile",
        Always(),
        mark="opened anew meanwhile",
    ),
    Mutation("Verify names rows that were set aside", mark="rows that were set aside"),
    Mutation("Verify: a history that has a gap", mark="a gap in the history"),
    Mutation("Verify: a snapshot that has changed", mark="a snapshot that has changed"),
    Mutation("Verify: a log that cannot be read any more", mark="read to its end"),
    Mutation(
        "Verify: a projection that a writer has yet to bring up to date is no damage to a reader",
        Always(),
        mark="beside a writer",
    ),
]

# == Commits ==================================================================

COMMITS = [
    Mutation("a group is committed once"),
    Mutation("one thread of a tree at a time commits", mark="one thread at a time"),
    Mutation("who was interrupted while waiting is not written any more", mark="not written any more"),
    Mutation(
        "who refreshes waits for a commit",
        Instead(", self.commit_lock", ""),
        mark="no refresh beside a write",
    ),
    Mutation(
        "replaced: as often as it takes",
        Instead("while True:", "for _ in range(2):"),
        mark="as often as it takes",
    ),
    Mutation(
        "after damage everything is read anew",
        Instead("(StoreCorruptError, _ReentryError)", "_ReentryError"),
        mark="what memory follows",
    ),
    Mutation("after Ctrl-C everything is read anew", Instead("self.must_reopen, True", "self.must_reopen, False")),
    Mutation(
        "after a call that a handler refused everything is read anew",
        Instead("(StoreCorruptError, _ReentryError)", "StoreCorruptError"),
        mark="what memory follows",
    ),
    Mutation("the lock is let go though Ctrl-C comes then", mark="let go twice"),
    Mutation("a tree that was closed meanwhile is not opened anew", mark="closed meanwhile"),
    Mutation("an opening that fails closes its files", mark="closed when opening fails"),
    Mutation("an opening that fails lets go of the lock", mark="let go of when opening fails"),
    Mutation("a child closes what another thread is just opening", mark="known before it is open"),
    Mutation("a tree that is opened anew closes what was open", mark="closes what was open"),
    Mutation("a child closes what it inherited"),
    Mutation("a child is told of the fork"),
    Mutation(
        "a child has a lock of its own for memory",
        Instead("self._MakeLocks()", "kept = self.lock\n        self._MakeLocks()\n        self.lock = kept"),
        mark="locks of its own",
    ),
    Mutation(
        "a child has a lock of its own for the store",
        Instead(
            "self._MakeLocks()",
            "kept = self.commit_lock\n        self._MakeLocks()\n        self.commit_lock = kept",
        ),
        mark="locks of its own",
    ),
    Mutation(
        "a child has groups of its own",
        Instead(
            "self._MakeLocks()",
            "kept = self._committer\n        self._MakeLocks()\n        self._committer = kept",
        ),
        mark="locks of its own",
    ),
    Mutation("a child opens its own"),
    Mutation("a child writes for itself"),
    Mutation("a child commits nothing of its parent's"),
    Mutation(
        "a line's time is that of its commit",
        Instead("transaction.now if job.block is None else self.Now()", "transaction.now"),
    ),
    Mutation("Close waits for a commit", Instead(", self.commit_lock", "")),
    Mutation(
        "a tree that must reopen leaves no checkpoint",
        Instead("not self.must_reopen and ", ""),
        mark="vouches for nothing",
    ),
    Mutation("Close closes the files"),
    Mutation("a thread that commits does not enter again: to write", mark="no second write within one"),
    Mutation(
        "a thread that reads does not write meanwhile",
        Instead(" or self.lock._is_owned()", ""),
        mark="not within its own call",
    ),
    Mutation(
        "a call in the middle of a thread's own is refused",
        Instead("guard._is_owned() or ", ""),
        mark="not within its own call",
    ),
    Mutation(
        "a thread that commits does not enter again: to refresh",
        Instead("self.Enter(), ", ""),
        mark="no refresh within a write",
    ),
    Mutation(
        "a thread that commits does not enter again: to close",
        Instead("self.Enter()", "self._guards.lock"),
        mark="no closing within a write",
    ),
    Mutation(
        "a thread that opens the folder anew does not enter again",
        Instead("self.Enter(), ", ""),
        mark="no opening within a write",
    ),
    Mutation("a thread that commits does not read half an operation", mark="not half an operation"),
    Mutation("who waited for a commit that was interrupted is told", mark="an interrupted commit is told"),
    Mutation("a log that was replaced is opened anew", mark="opened anew"),
    Mutation("who was not the quickest decides anew", mark="decided anew"),
    Mutation("compaction: one that fails makes the tree read all anew", mark="read anew"),
    Mutation("compaction: the tree opens what it made", mark="opens what it made"),
    Mutation(
        "what was refused, or had nothing to do, because of one that then failed is tried again",
        Instead("not operations", "True"),
        mark="tried again",
    ),
    Mutation("what had nothing to do by a guess is confirmed", mark="a guess is confirmed"),
    Mutation(
        "what was refused by a guess is not told",
        Instead(" and not self.store.is_guess", ""),
        mark="tried again",
    ),
    Mutation("a group's operations see one another", mark="see one another"),
    Mutation(
        "a group's operations see what they ask for",
        Instead(" or not unseen.keys().isdisjoint(job.about)", ""),
        mark="asks for",
    ),
    Mutation("a group's operations have ordinals of their own", mark="ordinals of its own"),
    Mutation("an operation is tried again alone when its group failed", Always(), mark="what is tried alone"),
    Mutation(
        "no group goes on behind a failed sync",
        Instead("error.outcome_unknown or ", ""),
        mark="what is tried alone",
    ),
    Mutation(
        "no group goes on where somebody was quicker",
        Instead("(_BehindError, _ReentryError)", "_ReentryError"),
        mark="what is tried alone",
    ),
    Mutation("what a plan said is forgotten when it runs again", mark="what was said before"),
    Mutation(
        "who was told already is not committed again",
        Instead(" if not job.is_done", ""),
        mark="not those who were told",
    ),
    Mutation("a writer sees its own write before the call returns", mark="seen before the call returns"),
    Mutation("readers see whole operations"),
    Mutation("an open operation takes in what others wrote", mark="taken in by open operations"),
    Mutation(
        "an open operation takes it in before the tree does",
        Instead("for block in", "self.state.Apply(records, heads)\n            for block in"),
        mark="taken in before the state",
    ),
    Mutation(
        "an open operation runs again where others changed what it changed",
        Instead("mine.touched.isdisjoint(touched) and ", ""),
        mark="what others changed",
    ),
    Mutation(
        "an open operation runs again where others changed what it refers to",
        Instead(" and mine.named.isdisjoint(touched)", ""),
        mark="what others changed",
    ),
    Mutation(
        "an open operation runs again where others refer to what it changed",
        Instead(" and mine.touched.isdisjoint(named)", ""),
        mark="what others refer to",
    ),
    Mutation("an open operation runs again on a tree that was opened anew", mark="its plans run again"),
    Mutation("a child has a lock of its own for descriptors"),
    Mutation("undoing: the id of what was made and merged at once leads nowhere", mark="led nowhere"),
    Mutation("what a refused write of an operation has staged goes", mark="staged before it was refused"),
    Mutation(
        "an operation's plans run again at its end",
        Instead(" and self._change_count == state.change_count", ""),
        mark="on the tree as it is",
    ),
    Mutation(
        "an id that leads to what it was merged into is taken",
        Instead('is_there or getattr(gone, "merged_into", None) is not None', "is_there"),
        mark="an id that is taken",
    ),
    Mutation("a tree as it was is not written, kept or compacted", mark="not written"),
    Mutation("a clock's numbers are made floats", Instead("float(told)", "told")),
    Mutation("a clock out of range is refused"),
    Mutation("a clock that tells no number is refused"),
]

MUTATIONS = DOOR + LINES + PROJECTIONS + SET_ASIDE + OPENING + WRITING + READING_BACK + COMMITS


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
    parser.add_argument(
        "--again", action="store_true", help="run nothing but the test that noticed last time"
    )
    options = parser.parse_args()
    if hasattr(os, "nice"):
        os.nice(10)
    beginning = next((number for number, each in enumerate(MUTATIONS) if each.name == options.begin), 0)
    chosen = [mutation for mutation in MUTATIONS[beginning:] if options.only in mutation.name]
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        return try_all(chosen, Path(name), options.jobs, read_last_table(options.last), () if options.again else STAGES)


def try_all(
    chosen: Sequence[Mutation],
    folder: Path,
    jobs: int,
    noticed_last: Mapping[str, tuple[str, str]],
    stages: Sequence[Sequence[str]],
) -> int:
    """Try mutations, some at once; print the table and return the exit code."""
    for source in needed():  # once, so that nobody changes a test meanwhile
        target = folder / "unchanged" / source.relative_to(HOME)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    module = (folder / "unchanged" / "Agent" / "keyword_tree.py").read_text("utf-8")
    for unknown in marks(module).keys() - {mutation.mark or mutation.name for mutation in MUTATIONS}:
        print(f"The mark {unknown!r} is of no mutation.")
    limits = Limits(folder / "unchanged")

    def try_one(mutation: Mutation) -> Found:
        try:
            changed = mutation.of(module)
        except GuardError as error:
            return Found(f"**not found**: {error}", 0, False)
        place = Path(shutil.copytree(folder / "unchanged", tempfile.mkdtemp(dir=folder), dirs_exist_ok=True))
        (place / "Agent" / "keyword_tree.py").write_text(changed, "utf-8")
        begun = time.monotonic()
        try:
            test = noticed_by(place, noticed_last.get(mutation.name), limits, stages)
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


class Limits:
    """How long each stage may take, found out with the module unchanged when a stage is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: defaultdict[Sequence[str], threading.Lock] = defaultdict(threading.Lock)
        self._limits: dict[Sequence[str], float] = {}

    def of(self, stage: Sequence[str]) -> float:
        """Return how long a stage may take, in seconds."""
        with self._locks[stage]:
            if stage not in self._limits:
                begun = time.monotonic()
                if failed := run_tests(stage, self._folder, 3600):
                    raise SystemExit(f"The unchanged module fails {failed}: mend that first.")
                self._limits[stage] = 30 + PATIENCE * (time.monotonic() - begun)
            return self._limits[stage]


def read_last_table(path: Path) -> dict[str, tuple[str, str]]:
    """Return, by mutation, module and name of the test that noticed it when the table was last made."""
    text = path.read_text("utf-8") if path.exists() else ""
    found = re.findall(r"^\| (.+?) \| `(\w+): (\w+)` \|", text, re.MULTILINE)
    return {name: (file, test) for name, file, test in found}


def noticed_by(
    folder: Path, likely: tuple[str, str] | None, limits: Limits, stages: Sequence[Sequence[str]]
) -> str | None:
    """Run the tests in a folder, the likely one first; return the first one that fails."""
    if likely is not None:
        module, name = likely
        for path in (folder / "Agent").rglob(f"{module}.py"):
            stage = (str(path.relative_to(folder)), "-k", name)
            if test := run_tests(stage, folder, limits.of(stage)):
                return test
    return next((test for stage in stages if (test := run_tests(stage, folder, limits.of(stage)))), None)


def run_tests(stage: Sequence[str], folder: Path, limit_s: float) -> str | None:
    """Run tests in a folder, with the module that is there; return the first one that fails."""
    if not (folder / stage[0]).exists():
        return None
    command = [sys.executable, "-m", "pytest", *stage, "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    own = Path(tempfile.mkdtemp(dir=folder))  # several may run beside one another
    command += ["--basetemp", str(own / "pytest")]
    # Tests start programs of their own: these, too, are to find the module of this folder, not one that is installed.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with (own / "output").open("wb") as output_file:  # a pipe would wait for whoever inherited it and hangs
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
    output = (own / "output").read_text("utf-8", "replace")
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+)\.py::(?:\w+::)*(\w+)", output, re.MULTILINE)
    return f"{failed[1]}: {failed[2]}" if failed else f"{Path(stage[0]).stem}: {output[-300:]!r}"


def needed() -> Iterator[Path]:
    """Yield what the tests need."""
    yield from (HOME / "Agent").glob("*.py")
    yield from (HOME / "Agent" / "tests").rglob("*.py")
    yield from (HOME / "Agent" / "shared_tree").rglob("*.py")  # a log in memory
    yield from (HOME / name for name in ("pyproject.toml", "conftest.py"))


if __name__ == "__main__":
    sys.exit(main())
