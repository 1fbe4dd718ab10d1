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
LIMIT_S = 900  # for one stage; then it hangs


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
        "            os.fsync(fd)\n        finally:",
        "            pass\n        finally:",
    ),
    Mutation("sync of a commit", "        self._SyncLog()\n        brought", "        brought"),
    Mutation(
        "sync of the log at opening",
        "            self._SyncLog()\n            files.SyncFolder(self.data_dir)\n",
        "            files.SyncFolder(self.data_dir)\n",
    ),
    Mutation(
        "sync of the folder at opening, before the log is read",
        "            files.SyncFolder(self.data_dir)\n            self._file_id",
        "            self._file_id",
    ),
    Mutation(
        "sync of the folder behind new projections",
        "            self._files.SyncFolder(self.data_dir)\n        except StoreCorruptError:",
        "        except StoreCorruptError:",
        "a projection whose name is lost is rebuilt from the log; the sync only saves that work",
    ),
    Mutation(
        "sync of a new log",
        "            self._files.Write(fd, line + _PADDING, 0)\n            self._files.Sync(fd)\n",
        "            self._files.Write(fd, line + _PADDING, 0)\n",
    ),
    Mutation(
        "sync of the folder of a new log",
        "            self._files.Close(fd)\n        self._files.SyncFolder(self.data_dir)\n\n    def _RefuseLostLog",
        "            self._files.Close(fd)\n\n    def _RefuseLostLog",
        "opening syncs the folder before it reads the log",
    ),
    Mutation(
        "sync of a tail that is kept aside", "            self._files.Sync(fd)\n        finally:", "        finally:"
    ),
    Mutation(
        "sync of the folder of a tail that is kept aside",
        '        self._files.SyncFolder(self.data_dir)\n        self.recovery.append(f"{name}:',
        '        self.recovery.append(f"{name}:',
    ),
    Mutation(
        "sync of a log whose tail was cut",
        "        self._SyncLog()\n        self._size = self._tail\n\n",
        "        self._size = self._tail\n\n",
        "a cut that a power cut undoes is made again, and the next operation's sync covers it, too",
    ),
    Mutation(
        "sync of what another process wrote",
        "                self._SyncLog()\n                for records",
        "                for records",
    ),
    Mutation(
        "sync of a failed write that was taken back",
        "            self._SyncLog()\n            self._size = self._tail\n            return",
        "            self._size = self._tail\n            return",
    ),
    Mutation(
        "sync of the copy after a failed sync",
        "                offset += len(chunk)\n            self._files.Sync(fd)\n",
        "                offset += len(chunk)\n",
    ),
    Mutation(
        "sync of the folder of the copy after a failed sync",
        "            self._files.SyncFolder(self.data_dir)\n        except BaseException:",
        "        except BaseException:",
    ),
    Mutation(
        "sync of the mark's end",
        "        self._files.Truncate(self._lock_fd, 0)\n        self._files.Sync(self._lock_fd)\n",
        "        self._files.Truncate(self._lock_fd, 0)\n",
    ),
    Mutation(
        "sync of the mark",
        "  # a length needs no free block\n                self._files.Sync(self._lock_fd)\n",
        "  # a length needs no free block\n",
        "a power cut that loses the mark also empties the page cache that it warns of",
    ),
    Mutation(
        "sync of the projections before a checkpoint",
        "                self._files.Sync(projection.fd)\n",
        "                pass\n",
    ),
    Mutation(
        "sync of a log that was trimmed",
        "                self._files.Truncate(self._log_fd, self._tail)\n                self._SyncLog()\n",
        "                self._files.Truncate(self._log_fd, self._tail)\n",
        "spaces that come back are padding as before",
    ),
    Mutation(
        "sync of the folder above",
        "            self.SyncFolder(parent)\n",
        "            pass\n",
    ),
    Mutation(
        "sync of the folder above one that is there already",
        "        with contextlib.suppress(PermissionError):  # in any case: who made it may have died before this\n"
        "            self.SyncFolder(parent)\n",
        "            self.SyncFolder(parent)\n",
    ),
]

# == Checks ===================================================================

CHECKS = [
    Mutation(
        "checksum of a line",
        'if b"%08x" % zlib.crc32(memoryview(raw)[_CRC_END:]) != crc:',
        "if False:",
    ),
    Mutation("checksum of a line's last byte", "memoryview(raw)[_CRC_END:]", "memoryview(raw)[_CRC_END:-1]"),
    Mutation("chain: the number", "line.seq != self._seq + 1 or line.prev != self._crc", "line.prev != self._crc"),
    Mutation(
        "chain: the checksum before",
        "line.seq != self._seq + 1 or line.prev != self._crc",
        "line.seq != self._seq + 1",
    ),
    Mutation("watermark: damage is told from a torn tail", "line.durable >= expected", "False"),
    Mutation("watermark: the very line", "line.durable >= expected", "line.durable > expected"),
    Mutation("watermark: not too low", "_EncodeLine(seq, crc, self._seq, entry", "_EncodeLine(seq, crc, 0, entry"),
    Mutation(
        "watermark: not too high", "_EncodeLine(seq, crc, self._seq, entry", "_EncodeLine(seq, crc, seq - 1, entry"
    ),
    Mutation(
        "lines are found behind a damaged newline",
        r"""rb'\{"crc": "[^\n]*?(?=\{"crc": "|\n|\Z)'""",
        r"""rb'(?m)^\{"crc": "[^\n]*'""",
    ),
    Mutation("a checkpoint's lengths", 'entry["length"] != projection.length or ', ""),
    Mutation(
        "a checkpoint's counts",
        ' or entry["rows"] != projection.rows',
        "",
    ),
    Mutation(
        "checksum of a projection",
        "if size < start or self._Checksum(projection.fd, start) != projection.synced_crc:",
        "if size < start:",
    ),
    Mutation(
        "length of a projection",
        "if size < start or self._Checksum",
        "if self._Checksum",
        "the checksum of a file that is too short is wrong, too",
    ),
    Mutation("comparison of a projection's end", "        if expected.startswith(found):", "        if True:"),
    Mutation(
        "a projection's end is completed",
        "            self._files.Write(projection.fd, expected[len(found) :], start + len(found))\n",
        "",
    ),
    Mutation(
        "what a log has lost is kept",
        '                self._KeepAside(name, found[len(expected) :], "which the log does not have")\n',
        "                pass\n",
    ),
    Mutation(
        "a spoilt projection is cut before it is mended",
        "            self._files.Truncate(projection.fd, start)\n            self._files.Write",
        "            self._files.Write",
    ),
    Mutation("checksum of a long content", "if zlib.crc32(row) != extent.crc:", "if False:"),
    Mutation(
        "a log that is missing is refused",
        "            if not files.Exists(self._log_path):\n                self._RefuseLostLog()\n",
        "            if not files.Exists(self._log_path):\n",
    ),
    Mutation(
        "a log that is empty is refused",
        "            if self._seq == 0:\n                self._RefuseLostLog()\n",
        "",
    ),
    Mutation(
        "a foreign file is refused",
        'if self._seq == 0 and not b\'{"crc": "\'.startswith(beginning):',
        "if False:",
    ),
    Mutation("a newer format is refused", "if line.format > _FORMAT:", "if False:"),
    Mutation("a log without a format is refused", "if line.format is None:", "if False:"),
    Mutation(
        "a new log is made under another name first",
        "                self._RefuseLostLog()\n                self._Create(first())\n",
        "                self._RefuseLostLog()\n",
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
        "        try:\n            self._files.Truncate(self._log_fd, self._tail)\n",
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
        "        self._files.Truncate(self._log_fd, self._tail)\n        self._SyncLog()\n",
        "        self._SyncLog()\n",
    ),
    Mutation(
        "a torn tail is kept",
        '            self._KeepAside(_LOG_NAME, rest, f"behind',
        '            len(f"behind',
    ),
    Mutation(
        "a tail of zeros is not reported",
        '        if rest.strip(b" \\n\\0"):  # zeros',
        "        if True:  # zeros",
    ),
    Mutation("a tail of zeros is cut", 'if not rest.strip(b" \\n"):', 'if not rest.strip(b" \\n\\0"):'),
    Mutation(
        "an operation is tried again alone when its group failed",
        "            if error.outcome_unknown or len(writers) == 1:\n",
        "            if True:\n",
    ),
    Mutation(
        "no group goes on behind a failed sync",
        "            if error.outcome_unknown or len(writers) == 1:\n",
        "            if len(writers) == 1:\n",
        "each one alone is refused by the store, which knows of the failed sync",
    ),
    Mutation(
        "a group's operations see one another",
        "return self.staged.get(key) or self._group.get(key)",
        "return self.staged.get(key)",
    ),
    Mutation(
        "a projection that could not be written is left alone",
        "            except OSError:\n                projection.lagging = True\n",
        "            except OSError:\n                pass\n",
    ),
    Mutation(
        "a projection that could not be written has no checkpoint",
        "        if any(projection.lagging for projection in self._projections):\n            return\n",
        "",
    ),
    Mutation(
        "a disk too full for projections does not keep a tree from opening",
        "        except OSError as error:  # a full disk, say: all that was acknowledged is in the log\n",
        "        except ZeroDivisionError as error:\n",
    ),
    Mutation(
        "a checkpoint of operations",
        "self._operations >= _CHECKPOINT_OPERATIONS or ",
        "",
    ),
    Mutation(
        "a checkpoint of bytes",
        " or self._unsynced_bytes >= _CHECKPOINT_BYTES",
        "",
    ),
    Mutation(
        "Close leaves a checkpoint",
        "            if self._operations:\n                self._Checkpoint()\n",
        "",
    ),
    Mutation(
        "Close trims the padding",
        "            if self._size > self._tail:\n                self._files.Truncate(self._log_fd, self._tail)\n",
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
        "                self._files.Truncate(self._lock_fd, 1)  # a length needs no free block\n",
        "",
    ),
    Mutation(
        "a disk that refuses the mark is borne",
        "            with contextlib.suppress(OSError):  # on such a disk; this tree knows in any case\n",
        "            if True:\n",
    ),
    Mutation(
        "a mark keeps from writing",
        "            if self._files.Size(self._lock_fd):\n",
        "            if False:\n",
    ),
    Mutation("a mark makes opening copy the log", "is_suspect = files.Size(self._lock_fd) > 0", "is_suspect = False"),
    Mutation(
        "the whole log is copied",
        "                offset += len(chunk)\n            self._files.Sync(fd)",
        "                offset += self._tail\n            self._files.Sync(fd)",
    ),
    Mutation("the mark ends with the copy", "        self._files.Truncate(self._lock_fd, 0)\n", ""),
    Mutation(
        "the new file is known after the copy",
        "        self._file_id, self._size = self._files.Identify(self._log_path)\n        self._files.Truncate",
        "        self._files.Truncate",
    ),
    Mutation(
        "a copy that fails closes its file",
        "        except BaseException:\n            self._files.Close(fd)\n            raise\n",
        "        except BaseException:\n            raise\n",
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
        "            raise StoreError(self._failure)\n        try:\n            self._files.Lock",
        "            pass\n        try:\n            self._files.Lock",
    ),
]

# == Locks and others =========================================================

LOCKS = [
    Mutation("lock of a commit", "            self._files.Lock(self._lock_fd)\n            if", "            if"),
    Mutation("lock of an opening", "        files.Lock(self._lock_fd)\n", ""),
    Mutation(
        "end of a commit's lock",
        "            self._files.Unlock(self._lock_fd)\n\n    def Append",
        "            pass\n\n    def Append",
    ),
    Mutation("end of an opening's lock", "            files.Unlock(self._lock_fd)\n", "            pass\n"),
    Mutation("the lock excludes", "fcntl.flock(fd, fcntl.LOCK_EX)", "fcntl.flock(fd, fcntl.LOCK_SH)"),
    Mutation(
        "a log that was replaced is noticed",
        "            if file_id != self._file_id:\n",
        "            if False:\n",
    ),
    Mutation(
        "what others wrote is taken in",
        "                for records in self._ReadNew():\n",
        "                for records in ():\n",
    ),
    Mutation(
        "a torn tail of another is cut before writing",
        "                    apply(records)\n                self._JudgeTail()\n",
        "                    apply(records)\n",
    ),
    Mutation(
        "one thread of a tree at a time uses the store",
        "        with self._commit_lock:\n            self._CheckOpen()\n",
        "        if True:\n            self._CheckOpen()\n",
    ),
    Mutation(
        "Close waits for a commit",
        "        with self._commit_lock:\n            if not self._must_reopen:",
        "        if True:\n            if not self._must_reopen:",
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
        "        with self._lock:\n            old_rows",
        "        if True:\n            old_rows",
    ),
    Mutation(
        "after damage everything is read anew",
        "                self._must_reopen |= isinstance(error, StoreCorruptError) or",
        "                _ = isinstance(error, StoreCorruptError) or",
    ),
    Mutation(
        "an opening that fails closes its files",
        "        except BaseException as error:\n            store.Release()\n",
        "        except BaseException as error:\n",
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

MUTATIONS = SYNCS + CHECKS + WRITING + FAILED_SYNCS + LOCKS


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
