"""Which stores survive a kill and a power cut? Each is put through the same crashes as KeywordTree.

A writer stores records one by one and says "acknowledged" after each; strace records every system call that
changes a file or syncs one. From the record, the folder is built again as it was after each call, five times:

    kill   the process died here: every write that was issued is there
    drop   the power failed here: of each file only what was synced is there
    tear   the power failed here: of what was not synced, each sector of 512 bytes is there or not (three seeds)

Then a fresh process opens the store, as its users would, and reads everything. A state is bad if the store does
not open, if a record that was acknowledged is missing or different, or if one is there that nobody wrote.

Names are taken to be durable at once (creating, renaming and removing files), which favours every store alike; no
write is torn by a kill; files that are mapped into memory for writing (sqlite's `-shm`) are left out, as after a
restart of the machine.

Needs strace (`apt install strace`). Peers that are not installed are left out, and the report says so:
``pip install tinydb diskcache sqlitedict``.

Repeat: ``python -m benchmarks.scoreboard`` (``--quick``: fewer records; ``--only KeywordTree,tinydb``).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import json
import os
import random
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

MODULE = "benchmarks.scoreboard"
SECTOR = 512
TEARS = 3
"""Seeds of the variant "tear"."""
PATIENCE_S = 5.0
"""Opening a store takes milliseconds; what takes longer hangs."""

Records = dict[str, str]
Acknowledge = Callable[[int], None]


def record(n: int) -> tuple[str, str]:
    """Return key and value of the n-th record; every eighth is larger than a page."""
    return f"key {n}", f"value {n} " + chr(97 + n % 26) * (9000 if n % 8 == 7 else 300)


# == The stores =============================================================================
#
# `write` stores records 0 … count - 1, each in the way that the store calls
# durable, and closes; `read` opens what is there and returns all of it.


class Store(NamedTuple):
    """A contender."""

    name: str
    version: Callable[[], str]
    write: Callable[[Path, int, Acknowledge], None]
    read: Callable[[Path], Records]


def _write_tree(folder: Path, count: int, acknowledge: Acknowledge) -> None:
    from Agent.keyword_tree import KeywordTree

    with KeywordTree(str(folder)) as tree:
        for n in range(count):
            key, value = record(n)
            tree.CreateKeyword(key, "root", description=value)
            acknowledge(n)


def _read_tree(folder: Path) -> Records:
    from Agent.keyword_tree import KeywordTree

    with KeywordTree(str(folder)) as tree:
        found = {node.name: node.description for node in tree.GetChildren("root")}
        tree.CreateKeyword("and it goes on", "root")
    return found


def _tree_version() -> str:
    project = tomllib.loads((common.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(project["project"]["version"])


def _connect(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "store.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, value TEXT)")
    return connection


def _write_sqlite(folder: Path, count: int, acknowledge: Acknowledge) -> None:
    with contextlib.closing(_connect(folder)) as connection:
        for n in range(count):
            connection.execute("INSERT INTO records VALUES (?, ?)", record(n))
            acknowledge(n)


def _read_sqlite(folder: Path) -> Records:
    with contextlib.closing(_connect(folder)) as connection:
        found = dict(connection.execute("SELECT key, value FROM records"))
        connection.execute("INSERT INTO records VALUES ('and', 'it goes on')")
    return found


def _write_tinydb(folder: Path, count: int, acknowledge: Acknowledge) -> None:
    with importlib.import_module("tinydb").TinyDB(folder / "store.json") as store:
        for n in range(count):
            key, value = record(n)
            store.insert({"key": key, "value": value})
            acknowledge(n)


def _read_tinydb(folder: Path) -> Records:
    with importlib.import_module("tinydb").TinyDB(folder / "store.json") as store:
        found = {row["key"]: row["value"] for row in store.all()}
        store.insert({"key": "and", "value": "it goes on"})
    return found


def _diskcache(**settings: int) -> tuple[Callable[[Path, int, Acknowledge], None], Callable[[Path], Records]]:
    def write(folder: Path, count: int, acknowledge: Acknowledge) -> None:
        with importlib.import_module("diskcache").Cache(folder, **settings) as store:
            for n in range(count):
                key, value = record(n)
                store[key] = value
                acknowledge(n)

    def read(folder: Path) -> Records:
        with importlib.import_module("diskcache").Cache(folder, **settings) as store:
            found = {key: store[key] for key in store}
            store["and"] = "it goes on"
        return found

    return write, read


def _write_sqlitedict(folder: Path, count: int, acknowledge: Acknowledge) -> None:
    with importlib.import_module("sqlitedict").SqliteDict(str(folder / "store.sqlite")) as store:
        for n in range(count):
            key, value = record(n)
            store[key] = value
            store.commit(blocking=True)
            acknowledge(n)


def _read_sqlitedict(folder: Path) -> Records:
    with importlib.import_module("sqlitedict").SqliteDict(str(folder / "store.sqlite")) as store:
        found = dict(store.items())
        store["and"] = "it goes on"
        store.commit(blocking=True)
    return found


def _installed(package: str) -> Callable[[], str]:
    def version() -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise common.Skip(f"not installed (pip install {package})") from error

    return version


STORES = {
    store.name: store
    for store in (
        Store("KeywordTree", _tree_version, _write_tree, _read_tree),
        Store("sqlite3 WAL FULL", lambda: sqlite3.sqlite_version, _write_sqlite, _read_sqlite),
        Store("tinydb", _installed("tinydb"), _write_tinydb, _read_tinydb),
        Store("diskcache", _installed("diskcache"), *_diskcache()),
        Store("diskcache, sqlite_synchronous=2", _installed("diskcache"), *_diskcache(sqlite_synchronous=2)),
        Store("sqlitedict, commit each", _installed("sqlitedict"), _write_sqlitedict, _read_sqlitedict),
    )
}


# == The record =============================================================================
#
# strace writes one line per call: thread, name, arguments (texts as \xHH, -xx),
# the path behind each descriptor (-y), and the result.  A call that another
# thread interrupts stands on two lines, "<unfinished ...>" and "resumed".

_CHANGING = "write,pwrite64,ftruncate,truncate,rename,renameat,renameat2,unlink,unlinkat,rmdir,fsync,fdatasync"
_FOLLOWED = "open,openat,creat,mkdir,mkdirat,read,lseek,close"
_REFUSED = "writev,pwritev,pwritev2,fallocate,copy_file_range,sendfile,link,linkat,symlink,msync,sync_file_range"
_Call = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|\?)", re.DOTALL)
_Unfinished = re.compile(r"^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$", re.DOTALL)
_Resumed = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
_Descriptor = re.compile(r"^(\d+)<([^>]*)>")
_Text = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Event(NamedTuple):
    """Something that changed a file, synced one, or was acknowledged."""

    kind: str
    path: str = ""
    offset: int = 0
    data: bytes = b""
    target: str = ""


def _bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _path_of(text: str) -> str:
    """Return a path as strace shows it behind a descriptor: escaped, and marked if it has no name any more."""
    return _bytes_of(text).decode() if text.startswith("\\x") else text


class Recorder:
    """Reads strace's lines and yields the events within one folder."""

    def __init__(self, folder: Path) -> None:
        self._root = f"{folder}/"
        self._offsets: dict[str, int] = {}  # of descriptors; positional calls need none
        self._appending: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._waiting: dict[str, str] = {}

    def read(self, lines: Iterator[str]) -> Iterator[Event]:
        """Yield the events of a record.

        Raises:
            ValueError: a call changes a file in a way that is not understood.
        """
        for line in lines:
            line = line.rstrip("\n")
            if unfinished := _Unfinished.match(line):
                self._waiting[unfinished[1]] = f"{unfinished[1]} {unfinished[2]}({unfinished[3]}"
                continue
            if resumed := _Resumed.match(line):
                line = self._waiting.pop(resumed[1], "") + resumed[3]
            call = _Call.match(line)
            if call is not None and call[4] != "?" and int(call[4]) >= 0:
                for event in self._follow(call[2], call[3], int(call[4]), line):
                    self._note(event)
                    yield event

    def _note(self, event: Event) -> None:
        if event.kind == "write":
            self._sizes[event.path] = max(self._sizes.get(event.path, 0), event.offset + len(event.data))
        elif event.kind == "resize":
            self._sizes[event.path] = event.offset
        elif event.kind == "rename":
            self._sizes[event.target] = self._sizes.pop(event.path, 0)

    def _inside(self, path: str) -> str | None:
        return path[len(self._root) :] if path.startswith(self._root) and not path.endswith("-shm") else None

    def _follow(self, name: str, arguments: str, result: int, line: str) -> Iterator[Event]:
        texts = [_bytes_of(text) for text in _Text.findall(arguments)]
        descriptor = _Descriptor.match(arguments)
        number = descriptor[1] if descriptor else ""
        path = self._inside(_path_of(descriptor[2])) if descriptor else None
        if name == "write" and texts and texts[0].startswith(b"acknowledged "):
            yield Event("acknowledged", offset=int(texts[0].split()[1]))
        elif name in ("open", "openat", "creat"):
            yield from self._open(line, texts[0].decode(), name, str(result), arguments)
        elif name in ("mkdir", "mkdirat", "rmdir"):
            inside = self._inside(texts[0].decode())
            if inside is not None:
                yield Event("mkdir" if name != "rmdir" else "rmdir", inside)
        elif name in ("rename", "renameat", "renameat2"):
            inside, target = (self._inside(text.decode()) for text in texts[:2])
            if inside is not None and target is not None:
                yield Event("rename", inside, target=target)
        elif name in ("unlink", "unlinkat"):
            inside = self._inside(texts[0].decode())
            if inside is not None:
                yield Event("unlink", inside)
        elif name == "close":
            self._offsets.pop(number, None)
            self._appending.discard(number)
        elif path is not None:
            yield from self._change(name, path, number, arguments, result, texts)

    def _open(self, line: str, path: str, name: str, number: str, arguments: str) -> Iterator[Event]:
        self._offsets[number] = 0
        self._appending.discard(number)
        inside = self._inside(path)
        if inside is None:
            return
        if "O_APPEND" in arguments:
            self._appending.add(number)
        if "O_CREAT" in arguments or name == "creat":
            yield Event("create", inside)
        if "O_TRUNC" in arguments or name == "creat":
            yield Event("resize", inside, 0)
        if "O_SYNC" in arguments or "O_DSYNC" in arguments:
            raise ValueError(f"a file that syncs itself is not understood: {line[:200]}")

    def _change(
        self, name: str, path: str, number: str, arguments: str, result: int, texts: list[bytes]
    ) -> Iterator[Event]:
        numbers = arguments.rsplit(", ", 2)
        if name == "read":
            self._offsets[number] = self._offsets.get(number, 0) + result
        elif name == "lseek":
            self._offsets[number] = result
        elif name == "write":
            offset = self._sizes.get(path, 0) if number in self._appending else self._offsets.get(number, 0)
            self._offsets[number] = offset + result
            yield Event("write", path, offset, texts[0][:result])
        elif name == "pwrite64":
            yield Event("write", path, int(numbers[-1]), texts[0][:result])
        elif name == "ftruncate":
            yield Event("resize", path, int(numbers[-1]))
        elif name in ("fsync", "fdatasync"):
            yield Event("sync", path)
        else:
            raise ValueError(f"a call that is not understood: {name} of {path}")


def trace(store: Store, folder: Path, count: int, scratch: Path) -> list[Event]:
    """Let a store write under strace and return what it did to its folder.

    Raises:
        common.Skip: strace is missing, or may not watch a process here.
    """
    if shutil.which("strace") is None:
        raise common.Skip("strace is missing (apt install strace)")
    folder.mkdir()
    output = scratch / "strace"
    watched = f"trace=?{',?'.join(f'{_CHANGING},{_FOLLOWED},{_REFUSED}'.split(','))}"
    command = ["strace", "-f", "-y", "-xx", "-s", "16777216", "-o", str(output), "-e", watched]
    command += [sys.executable, "-m", MODULE, "--write", store.name, str(folder), str(count)]
    done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines()
        raise common.Skip(f"the traced writer failed: {words[-1] if words else done.returncode}")
    with output.open() as lines:
        events = list(Recorder(folder).read(lines))
    if sum(event.kind == "acknowledged" for event in events) != count:
        raise common.Skip("strace did not record the writer's acknowledgements")
    return events


# == The states =============================================================================


class Disk:
    """Files as the processes see them, and as the disk surely has them."""

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}
        self.pending: dict[str, list[Event]] = {}  # since the last sync
        self.folders: list[str] = []

    def apply(self, event: Event) -> None:
        """Take an event in."""
        path = event.path
        if event.kind == "create":
            for files in (self.seen, self.durable):
                files.setdefault(path, b"")
        elif event.kind in ("write", "resize"):
            self.seen[path] = changed(self.seen[path], event)
            self.pending.setdefault(path, []).append(event)
        elif event.kind == "sync" and path in self.seen:
            self.durable[path] = self.seen[path]
            self.pending.pop(path, None)
        elif event.kind == "rename":
            self.pending.pop(event.target, None)
            for files in (self.seen, self.durable):
                files[event.target] = files.pop(path)
            if path in self.pending:
                self.pending[event.target] = self.pending.pop(path)
        elif event.kind == "unlink":
            for mapping in (self.seen, self.durable, self.pending):
                mapping.pop(path, None)
        elif event.kind == "mkdir":
            self.folders.append(path)
        elif event.kind == "rmdir":
            self.folders.remove(path)

    def torn(self, draw: random.Random) -> dict[str, bytes]:
        """Return the files with each sector that was not synced there or not."""
        files = dict(self.durable)
        for path, events in self.pending.items():
            for event in events:
                for part in sectors(event):
                    if draw.random() < 0.5:
                        files[path] = changed(files[path], part)
        return files


def changed(content: bytes, event: Event) -> bytes:
    """Return a file's content after a write or a new length; zeros fill what lies between."""
    if event.kind == "resize":
        return content[: event.offset].ljust(event.offset, b"\0")
    end = event.offset + len(event.data)
    return content[: event.offset].ljust(event.offset, b"\0") + event.data + content[end:]


def sectors(event: Event) -> Iterator[Event]:
    """Cut a write where the disk's sectors begin."""
    if event.kind != "write":
        yield event
        return
    begin, end = event.offset, event.offset + len(event.data)
    while begin < end:
        behind = min(end, (begin // SECTOR + 1) * SECTOR)
        yield Event("write", event.path, begin, event.data[begin - event.offset : behind - event.offset])
        begin = behind


def states(events: list[Event], seed: int) -> Iterator[tuple[str, int, dict[str, bytes], list[str]]]:
    """Yield variant, records acknowledged so far, files and folders, after each event."""
    disk, acknowledged = Disk(), 0
    for index, event in enumerate(events):
        disk.apply(event)
        acknowledged += event.kind == "acknowledged"
        yield "kill", acknowledged, disk.seen, disk.folders
        yield "drop", acknowledged, disk.durable, disk.folders
        for tear in range(TEARS):
            yield "tear", acknowledged, disk.torn(random.Random(f"{seed} {index} {tear}")), disk.folders


# == The check ==============================================================================


def judge(store: Store, folder: Path, acknowledged: int, count: int) -> str:
    """Open a store and say what is wrong; "" if nothing is."""
    try:
        found = store.read(folder)
    except BaseException:
        return "does not open"
    expected = dict(record(n) for n in range(count))
    if any(found.get(key) != expected[key] for key in map("key {}".format, range(acknowledged))):
        return "loses acknowledged records"
    if any(expected.get(key) != value for key, value in found.items()):
        return "holds what nobody wrote"
    return ""


def serve_checks(name: str, count: int) -> None:
    """Answer one line for each line that names a folder and a count; each is looked at by a process of its own."""
    store = STORES[name]
    with contextlib.suppress(common.Skip):
        store.version()
    store_module = {"tinydb": "tinydb", "diskcache": "diskcache", "sqlitedict": "sqlitedict"}.get(
        name.partition(",")[0], "Agent.keyword_tree"
    )
    importlib.import_module(store_module)  # once, not in each process
    for line in sys.stdin:
        folder, acknowledged = json.loads(line)
        print(json.dumps(_judge_alone(store, Path(folder), acknowledged, count)), flush=True)


def _judge_alone(store: Store, folder: Path, acknowledged: int, count: int) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a library prints besides

            def tell(thrown: threading.ExceptHookArgs) -> None:
                """Say so when a library's own thread dies: the thread that waits for it would wait for ever."""
                os.write(writing, b"does not open")
                os._exit(0)

            threading.excepthook = tell
            os.write(writing, judge(store, folder, acknowledged, count).encode() or b"ok")
        finally:
            os._exit(0)
    os.close(writing)
    is_done = bool(select.select([reading], [], [], PATIENCE_S)[0])
    if not is_done:
        os.kill(child, signal.SIGKILL)
    answer = os.read(reading, 1000).decode() if is_done else "hangs"
    os.close(reading)
    os.waitpid(child, 0)
    for known in ("does not open", "hangs", "ok"):  # two threads may have told the same
        if answer.startswith(known):
            return "" if known == "ok" else known
    return answer or "kills its process"


class Checker:
    """A process that opens stores; the same state is opened once."""

    def __init__(self, store: Store, count: int) -> None:
        command = [sys.executable, "-m", MODULE, "--check", store.name, str(count)]
        self._process = subprocess.Popen(
            command, cwd=common.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        # What is only read needs no real disk; in memory the syncs of opening cost nothing.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._scratch = Path(tempfile.mkdtemp(prefix="keyword-tree-scoreboard-", dir=memory))
        self._known: dict[bytes, str] = {}

    def check(self, acknowledged: int, files: dict[str, bytes], folders: list[str]) -> str:
        """Lay the files out, have them opened, and return what is wrong."""
        digest = hashlib.blake2b(repr((acknowledged, folders)).encode())
        for path, content in sorted(files.items()):
            digest.update(f"{path!r} {len(content)} ".encode() + content)
        key = digest.digest()
        if key not in self._known:
            place = self._scratch / "state"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for folder in folders:
                (place / folder).mkdir(parents=True, exist_ok=True)
            for path, content in files.items():
                (place / path).write_bytes(content)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps([str(place), acknowledged]) + "\n")
            self._process.stdin.flush()
            self._known[key] = json.loads(self._process.stdout.readline())
        return self._known[key]

    def close(self) -> None:
        """End the process and remove what it opened."""
        self._process.communicate()
        shutil.rmtree(self._scratch, ignore_errors=True)


# == The table ==============================================================================


class Score(NamedTuple):
    """How many states there were of each variant, and how many were bad, in words."""

    states: Counter[str]
    bad: Counter[str]
    reasons: Counter[str]
    syncs: int


def put_through(store: Store, count: int, seed: int, scratch: Path) -> Score:
    """Trace a store, rebuild all its states, and have each opened."""
    folder = Path(os.path.realpath(scratch / "traced"))
    shutil.rmtree(folder, ignore_errors=True)
    events = trace(store, folder, count, scratch)
    score = Score(Counter(), Counter(), Counter(), sum(event.kind == "sync" for event in events))
    checker = Checker(store, count)
    try:
        for variant, acknowledged, files, folders in states(events, seed):
            score.states[variant] += 1
            wrong = checker.check(acknowledged, files, folders)
            if wrong:
                score.bad[variant] += 1
                score.reasons[wrong if acknowledged else f"{wrong} (before the first acknowledgement)"] += 1
    finally:
        checker.close()
    return score


def run(options: Namespace) -> None:
    """Put every store through its crashes and print the table."""
    count = options.records or (12 if options.quick else 40)
    with common.working_folder(options) as scratch:
        report = common.Report("Scoreboard: kills and power cuts", options, scratch)
        rows, losses = [], 0
        for store in STORES.values():
            if not common.wanted(options, store.name.partition(",")[0]):
                continue
            try:
                version, begun = store.version(), time.monotonic()
                score = put_through(store, count, options.seed, scratch)
                print(f"{store.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
            except common.Skip as reason:
                report.skipped(store.name, reason)
                continue
            if store.name == "KeywordTree":
                losses = sum(score.bad.values())
            cells = [f"{score.bad[variant]} / {score.states[variant]}" for variant in ("kill", "drop", "tear")]
            reasons = "; ".join(f"{reason} {times}" for reason, times in score.reasons.most_common()) or "–"
            rows.append([store.name, version, *cells, f"{score.syncs / count:.2f}", reasons])
        caption = f"{count} acknowledged records each, seed {options.seed}: bad states / states"
        report.table(caption, ["store", "version", "kill", "drop", "tear", "syncs per record", "what is wrong"], rows)
        if losses:
            raise SystemExit(f"KeywordTree has {losses} bad states")


def main() -> None:
    """Run as the program, as the writer that is traced, or as the checker."""
    if sys.argv[1:2] == ["--write"]:
        _, _, name, folder, count = sys.argv
        STORES[name].write(Path(folder), int(count), _acknowledge)
        return
    if sys.argv[1:2] == ["--check"]:
        serve_checks(sys.argv[2], int(sys.argv[3]))
        return
    parser = common.parser(__doc__)
    parser.add_argument("--records", type=int, default=0, help="records that each store writes (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the torn sectors")
    run(parser.parse_args())


def _acknowledge(n: int) -> None:
    os.write(1, b"acknowledged %d\n" % n)


if __name__ == "__main__":
    main()
