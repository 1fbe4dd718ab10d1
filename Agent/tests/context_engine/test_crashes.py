"""Crashes, kills and power cuts: nothing that was acknowledged is lost, and nothing is half there.

A run of operations is deterministic, so that what the store must hold after each of them is known byte by byte.

    crash state   the files as they are before the n-th call (of the disk, or of sqlite3): what a crash there leaves;
                  what is the same before several calls is opened once
    kill          a process is killed there in earnest; or committers and workers of one store are, at any moment
    power cut     of what was not synced whatever chance decides: new, old, missing, empty, zeroed or torn files, a
                  journal whose WAL ends anywhere behind its last sync, an index that has lost its last transactions

What was forgotten is in no file afterwards. `make storm` runs 10,000 of each. A shorter piece of it has
KEYWORD_TREE_STORM_SIZE of them, or as many as KEYWORD_TREE_STORM_SECONDS allow, from KEYWORD_TREE_SEED on: a piece that
begins where the last one ended comes to other calls, until it has been at every one.
"""

import itertools
import os
import random
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine import ContextEngineService, ContextNode, RelationEdge, RequestContext
from Agent.context_engine.fs import main_store
from Agent.context_engine.fs.folders import Disk
from Agent.tests.support.looking import disk
from Agent.tests.support.plain_reader import PlainReader, dump

STORM = bool(os.environ.get("KEYWORD_TREE_STORM"))
SIZE = int(os.environ.get("KEYWORD_TREE_STORM_SIZE") or 10_000)
STATES, CUTS, KILLED_TOGETHER = (SIZE, SIZE, SIZE) if STORM else (40, 6, 4)
KILLS = SIZE // 20 if STORM else 2
SEED = int(os.environ.get("KEYWORD_TREE_SEED") or (0 if STORM else 18))
SECONDS = float(os.environ.get("KEYWORD_TREE_STORM_SECONDS") or "inf")
ROUND = 500

ADA = RequestContext("acme", "ada", "helper", "s1")
MEMORIES = "ctx://acme/users/ada/memories"
SECRET = "zqkiwi"
SPACES = ("ctx://acme/users/ada", "ctx://acme/agents/helper")

Operation = Callable[[ContextEngineService], object]


def say(session: str, *texts: str) -> Operation:
    """Return an operation that commits a session."""
    said = [{"role": "user", "content": text, "at": "2026-11-20T08:00:00Z"} for text in texts]
    ctx = RequestContext("acme", "ada", "helper", session)
    return lambda engine: engine.commit_session(ctx, said, used_tools=["grep"])


def write_three(word: str) -> Operation:
    """Return an operation that writes three nodes at once."""

    def write(engine: ContextEngineService) -> None:
        def change(tx: object) -> None:
            for name in ("a", "b", "c"):
                uri = f"{MEMORIES}/entities/{name}"
                engine.fs.write_node(ADA, ContextNode(uri, "", "memory", "entities", "", word, word, f"- {word}\n"))

        engine.fs.run(ADA, "three", change)

    return write


def undo_last(engine: ContextEngineService) -> None:
    """Take the last commit back."""
    engine.undo(ADA, engine.fs.log(ADA)[0]["id"])


def relate(engine: ContextEngineService) -> None:
    """Draw an edge."""
    uri = f"{MEMORIES}/preferences/jazz"
    engine.relations.upsert_edges(ADA, uri, [RelationEdge(uri, f"{MEMORIES}/preferences/noise", "unlike")])


def edit_by_hand(engine: ContextEngineService) -> None:
    """Change a file as a hand does, and make a version of it; done again, it changes nothing."""
    uri = f"{MEMORIES}/preferences/jazz"
    path = Path(engine.fs.resolve_path(ADA, uri)) / "content.md"
    if "by hand" not in path.read_text(encoding="utf-8"):
        with path.open("a", encoding="utf-8") as file:
            file.write("- by hand\n")
    engine.adopt(ADA, uri)


OPERATIONS: list[Operation] = [
    say("s1", "I love jazz.", "I live in Rome."),
    write_three("one"),
    say("s2", "I moved to Paris.", "我喜欢龙井。"),
    write_three("two"),
    lambda engine: engine.move_node(ADA, f"{MEMORIES}/entities", f"{MEMORIES}/entities-old"),
    write_three("three"),
    lambda engine: engine.fs.checkpoint(),
    lambda engine: engine.delete_node(ADA, f"{MEMORIES}/entities/b"),
    undo_last,
    write_three("four"),
    say("s1", "I love jazz.", "I live in Rome.", "I hate noise."),
    relate,
    edit_by_hand,
    lambda engine: engine.confirm(ADA, "What does she listen to?", f"{MEMORIES}/preferences/jazz"),
    lambda engine: engine.move_node(ADA, f"{MEMORIES}/preferences/jazz", f"{MEMORIES}/preferences/music"),
    undo_last,
    say("s3", f"I love {SECRET}.", "I love tea."),
    lambda engine: engine.move_node(ADA, f"{MEMORIES}/preferences/{SECRET}", f"{MEMORIES}/preferences/moved-{SECRET}"),
    lambda engine: engine.forget(ADA, f"{MEMORIES}/preferences/moved-{SECRET}"),
    lambda engine: engine.fs.prune(engine.fs.clock() + 1),
    lambda engine: engine.remember(ADA, "I hate crowds.", "preferences", "crowds"),
]
CUTTABLE_CALLS = 600
"""About so many calls of a run change something."""
FORGOTTEN_AFTER = len(OPERATIONS) - 2
"""So many operations later no file may hold the secret."""


class Counter:
    """Ids and times that are the same in every run."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 1_790_000_000.0

    def new_id(self) -> str:
        """Return the next id."""
        self.count += 1
        return f"{self.count:032x}"

    def clock(self) -> float:
        """Return the time."""
        return self.now


def open_engine(folder: Path, disk: Disk | None = None) -> ContextEngineService:
    """Open an engine whose ids and times are the same in every run."""
    counter = Counter()
    model = PlainReader()
    return ContextEngineService(folder, llm=model, clock=counter.clock, new_id=counter.new_id, disk=disk)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the texts of the main store."""
    derived = (".meta.json", ".new")
    files = disk(folder).items()
    return {name: data for name, data in files if not name.startswith(".ctx/") and not name.endswith(derived)}


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """Return what the store must hold after so many operations."""
    folder = tmp_path_factory.mktemp("reference")
    engine = open_engine(folder)
    found = [contents(folder)]
    for operation in OPERATIONS:
        operation(engine)
        found.append(contents(folder))
    engine.close()
    return found


def differences(held: dict[str, bytes], wanted: list[dict[str, bytes]]) -> list[dict[str, tuple[object, object]]]:
    """Return what differs from each of some states."""
    return [
        {name: (held.get(name), state.get(name)) for name in held.keys() | state.keys()
         if held.get(name) != state.get(name)}
        for state in wanted
    ]  # fmt: skip


def check(folder: Path, done: int, states: list[dict[str, bytes]]) -> None:
    """Open what a crash left: it must hold all that was done, and of what was being done all or nothing."""
    later = Counter()
    later.now += 3_600
    later.count = 1_000_000
    engine = ContextEngineService(folder, llm=PlainReader(), clock=later.clock, new_id=later.new_id)
    try:
        engine.work()
        problems = engine.verify()
        if problems:  # an edit by hand that was not adopted yet
            engine.work(adopt=True)
            problems = engine.verify()
        held = contents(folder)
        assert held in states[done : done + 2], f"after {done}: {differences(held, states[done : done + 2])}"
        assert problems == []
        dumps = [dump(engine, space) for space in SPACES]
        for space in SPACES:
            engine.spaces.words(space).discard()
            engine.worker.reconcile(space, recursive=True)
        assert [dump(engine, space) for space in SPACES] == dumps
    finally:
        engine.close()
    if held in states[FORGOTTEN_AFTER:]:
        holding = [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        assert holding == [], f"after {done}: forgotten, and there"


class CountingDisk(Disk):
    """Counts calls, of the disk and of the journal, and does something before some of them."""

    def __init__(self, before: Callable[[int], object]) -> None:
        self._before = before
        self._calls = 0

    def count(self, *_: object) -> None:
        """Count a call."""
        self._calls += 1
        self._before(self._calls)

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "count":
            self.count()
        return object.__getattribute__(self, name)


def run_all(folder: Path, before: Callable[[int], object], after: Callable[[int], object]) -> None:
    """Run the operations; something is done before each call, and something after each operation."""
    disk = CountingDisk(before)
    engine = open_engine(folder, disk)
    engine.fs.journal._connect().set_trace_callback(disk.count)
    for number, operation in enumerate(OPERATIONS, 1):
        operation(engine)
        after(number)
    engine.close()


def chosen_calls(folder: Path, count: int) -> tuple[list[int], int]:
    """Return the calls of this piece of a storm, and how many there are in all."""
    calls: list[int] = []
    run_all(folder, calls.append, lambda number: None)
    moments = random.Random(18).sample(calls, len(calls))
    return [moments[(SEED + number) % len(moments)] for number in range(min(count, len(moments)))], len(moments)


def test_a_process_may_end_at_any_call(tmp_path: Path, states: list[dict[str, bytes]]) -> None:
    began, count, different = time.monotonic(), 0, 0
    chosen, calls = chosen_calls(tmp_path / "whole", STATES)
    while count < len(chosen) and time.monotonic() < began + SECONDS:
        moments = chosen[count : count + ROUND]
        different += end_at(tmp_path / str(count), set(moments), states)
        count += len(moments)
    if STORM:
        print(f"\n{count} crash states of {calls:,} calls (from {SEED} on; {different} differ): nothing lost or half")


def end_at(folder: Path, moments: set[int], states: list[dict[str, bytes]]) -> int:
    """Run the operations, open what the files are before some calls, and return how many of these differ.

    Most calls read: before and after one the files are the same, byte by byte, and are opened once.
    """
    taken: list[Path] = []
    seen: set[tuple[int, bytes]] = set()
    done = 0

    def take(call: int) -> None:
        if call in moments and (state := (done, digest_of_files(folder / "store"))) not in seen:
            seen.add(state)
            taken.append(folder / str(call))
            shutil.copytree(folder / "store", taken[-1])

    def check_taken(number: int) -> None:
        nonlocal done
        for picture in taken:
            check(picture, done, states)
            shutil.rmtree(picture)
        taken.clear()
        done = number

    (folder / "store").mkdir(parents=True)
    run_all(folder / "store", take, check_taken)
    check_taken(len(OPERATIONS))
    shutil.rmtree(folder)
    return len(seen)


def digest_of_files(folder: Path) -> bytes:
    """Return a digest of all files, but for sqlite3's shared memory, which the next process makes again."""
    made = blake2b(digest_size=16)
    for path, _, names in os.walk(folder):
        for name in sorted(names):
            if not name.endswith("-shm"):
                data = Path(path, name).read_bytes()
                made.update(f"{path}/{name}\0{len(data)}\0".encode())
                made.update(data)
    return made.digest()


def run_in_a_child(folder: Path, at: int) -> int:
    """Run the operations in a process that is killed before a call, and return how many it said were done."""

    def die_before(call: int) -> None:
        if call == at:
            os.kill(os.getpid(), signal.SIGKILL)

    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            run_all(folder, die_before, lambda number: os.write(write, bytes([number])))
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        reported = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"not killed at {at}"
    return reported[-1] if reported else 0


def test_a_process_may_be_killed_at_any_call(tmp_path: Path, states: list[dict[str, bytes]]) -> None:
    chosen, _ = chosen_calls(tmp_path / "whole", KILLS)
    for number, at in enumerate(chosen):
        folder = tmp_path / str(number)
        check(folder, run_in_a_child(folder, at), states)
        shutil.rmtree(folder)
    if STORM:
        print(f"\n{KILLS} kills (from {SEED} on): nothing lost, nothing half")


class CutDisk(Disk):
    """Remembers what each file was since the last sync, and calls a listener before every call."""

    def __init__(self, before: Callable[[], None], after_sync: Callable[[], None]) -> None:
        self._before, self._after_sync = before, after_sync
        self._versions: dict[str, list[bytes | None]] = {}

    @property
    def versions(self) -> dict[str, list[bytes | None]]:
        """What each file was since the last sync, oldest first; None is not there."""
        return self._versions

    def _note(self, name: str, parent: int) -> None:
        path = os.path.join(os.readlink(f"/proc/self/fd/{parent}"), name)
        held = Path(path).read_bytes() if os.path.isfile(path) else None
        self._versions.setdefault(path, []).append(held)

    def rename(self, old: str, old_parent: int, new: str, new_parent: int) -> None:
        """Note what a file was, and rename."""
        self._before()
        target = os.path.join(os.readlink(f"/proc/self/fd/{old_parent}"), old)
        if os.path.isfile(target):
            self._note(new, new_parent)
        else:  # of a folder: what is noted of its files is of the new place from now on
            to = os.path.join(os.readlink(f"/proc/self/fd/{new_parent}"), new)
            for path in list(self._versions):
                if path.startswith(f"{target}/"):
                    self._versions[to + path[len(target) :]] = self._versions.pop(path)
        super().rename(old, old_parent, new, new_parent)

    def swap(self, new: str, name: str, parent: int) -> None:
        """Note what both files were, and let them change names."""
        self._before()
        self._note(name, parent)
        self._note(new, parent)
        super().swap(new, name, parent)

    def place(self, new: str, name: str, parent: int) -> None:
        """Note that no file was there, and give one its name."""
        self._before()
        self._note(name, parent)
        super().place(new, name, parent)

    def remove_file(self, name: str, parent: int) -> None:
        """Note what a file was, and remove it."""
        self._before()
        path = os.path.join(os.readlink(f"/proc/self/fd/{parent}"), name)
        if os.path.isfile(path):
            self._note(name, parent)
        super().remove_file(name, parent)

    def write(self, fd: int, data: bytes) -> int:
        """Write."""
        self._before()
        return super().write(fd, data)

    def sync_all(self, fd: int) -> None:
        """Let all last."""
        super().sync_all(fd)
        self._versions = {}
        self._after_sync()


class Cutter:
    """Runs the operations, and takes pictures of what power cuts would leave."""

    def __init__(self, folder: Path, pictures: Path, chance: random.Random, share: float) -> None:
        self.folder, self.pictures, self.chance, self.share = folder, pictures, chance, share
        self.taken: list[tuple[Path, int]] = []
        self.done = self.durable = 0
        self.disk = CutDisk(self.before, self.note_indexes)
        self.index_durable: dict[str, int] = {}
        self.engine = open_engine(folder, self.disk)
        self._watch_journal()

    def _watch_journal(self) -> None:
        journal = self.engine.fs.journal
        for name in ("log", "mark_synced", "truncate"):
            method = getattr(journal, name)

            def watched(*arguments: Any, _method: Any = method, **more: Any) -> Any:
                self.before()
                result = _method(*arguments, **more)
                self.durable = self._wal_size()
                return result

            setattr(journal, name, watched)
        self.durable = 0

    def _wal_size(self) -> int:
        wal = self.folder / ".ctx/journal.db-wal"
        return wal.stat().st_size if wal.exists() else 0

    def _index_wals(self) -> Iterator[Path]:
        yield from (self.folder / ".ctx").rglob("index.db-wal")

    def note_indexes(self) -> None:
        """Note that a sync has let the indexes last, too."""
        self.index_durable = {str(path): path.stat().st_size for path in self._index_wals()}

    def before(self) -> None:
        """Take a picture before a call, where chance wants one."""
        if self.chance.random() < self.share:
            self.take()

    def take(self) -> None:
        """Take a picture: a copy, with what was not synced as chance decides."""
        picture = self.pictures / str(len(self.taken))
        shutil.copytree(self.folder, picture)
        for path in picture.rglob("*-shm"):
            path.unlink()
        for name, versions in self.disk.versions.items():
            self._spoil(picture / os.path.relpath(name, self.folder), versions)
        self._tear(picture / ".ctx/journal.db-wal", self.durable)
        for wal in picture.rglob("index.db-wal"):
            original = str(self.folder / wal.relative_to(picture))
            self._tear(wal, min(wal.stat().st_size, self.index_durable.get(original, 0)))
        self.taken.append((picture, self.done))

    def _spoil(self, path: Path, versions: list[bytes | None]) -> None:
        present = path.read_bytes() if path.is_file() else None
        size = len(present or b"")
        kinds: list[bytes | None] = [
            present,
            present,
            *versions,
            b"",
            bytes(size),
            (present or b"")[: self.chance.randint(0, size)],
            (present or b"")[: size // 512 * 512] + bytes(size % 512),
        ]
        chosen = self.chance.choice(kinds)
        if chosen is None:
            path.unlink(missing_ok=True)
        elif path.parent.is_dir():
            path.write_bytes(chosen)

    def _tear(self, wal: Path, durable: int) -> None:
        if not wal.exists():
            return
        data = wal.read_bytes()
        end = self.chance.randint(min(durable, len(data)), len(data))
        torn = data[:end]
        if end < len(data) and self.chance.random() < 0.5:
            torn += self.chance.randbytes(min(len(data) - end, self.chance.randint(1, 9_000)))
        wal.write_bytes(torn)


def test_the_power_may_be_cut_at_any_call(
    tmp_path: Path, states: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    began, taken = time.monotonic(), 0
    for number in itertools.count():
        chance = random.Random(f"{SEED} {number}")
        folder, pictures = tmp_path / f"store{number}", tmp_path / f"pictures{number}"
        pictures.mkdir()
        cutter = Cutter(folder, pictures, chance, share=min(50, CUTS) / CUTTABLE_CALLS)
        for operation in OPERATIONS:
            operation(cutter.engine)
            cutter.done += 1
        cutter.engine.close()
        with monkeypatch.context() as patched:
            patched.setattr(main_store, "boot_id", lambda: "another start of the machine")
            for picture, done in cutter.taken:
                check(picture, done, states)
        taken += len(cutter.taken)
        shutil.rmtree(pictures)
        shutil.rmtree(folder)
        if taken >= CUTS or time.monotonic() > began + SECONDS:
            break
    if STORM:
        print(f"\n{taken} power cuts (seed {SEED}): nothing lost, nothing half")


def commit_forever(folder: Path, name: str, pipe: int) -> None:
    """Commit sessions, and tell which are done."""
    with ContextEngineService(folder, llm=PlainReader(), index="worker") as engine:
        for number in range(10_000):
            ctx = RequestContext("acme", "ada", "helper", f"{name}-{number}")
            text = f"I love band{name}x{number}."
            engine.commit_session(ctx, [{"role": "user", "content": text, "at": "2026-11-20T08:00:00Z"}])
            os.write(pipe, f"{name}x{number}\n".encode())


def work_forever(folder: Path) -> None:
    """Work off the outbox."""
    with ContextEngineService(folder, llm=PlainReader(), index="worker") as engine:
        while True:
            engine.work()
            time.sleep(0.01)


def test_committers_and_workers_may_be_killed_together(tmp_path: Path) -> None:
    each, seconds = (4, 0.2) if STORM else (2, 0.6)
    chance = random.Random(SEED)
    began, killed = time.monotonic(), 0
    for number in itertools.count():
        if killed >= KILLED_TOGETHER or time.monotonic() > began + SECONDS:
            break
        rounds = min(25, -(-(KILLED_TOGETHER - killed) // (2 * each)))
        killed += kill_together(tmp_path / str(number), each, rounds, seconds, chance)
        shutil.rmtree(tmp_path / str(number))
    if STORM:
        print(f"\n{killed} committers and workers killed (seed {SEED}): nothing lost, the index equal")


def kill_together(folder: Path, each: int, rounds: int, seconds: float, chance: random.Random) -> int:
    """Kill committers and workers of one store in some rounds, and count; all that they reported must be there."""
    read, write = os.pipe()
    reported: list[str] = []
    killed = 0
    ContextEngineService(folder).close()
    for turn in range(rounds):
        pids = [_start(commit_forever, folder, f"{turn}y{number}", write) for number in range(each)]
        pids += [_start(work_forever, folder) for _ in range(each)]
        assert select.select([read], [], [], 120.0)[0], "no process commits"
        time.sleep(seconds * chance.random())
        chance.shuffle(pids)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            assert os.WIFSIGNALED(status), "it ended by itself"
            killed += 1
        reported += os.read(read, 1 << 20).decode().split()
    os.close(read)
    os.close(write)

    assert reported
    later = Counter()
    later.now = time.time() + 3_600
    with ContextEngineService(folder, llm=PlainReader(), clock=later.clock) as engine:
        engine.work()
        assert engine.verify() == []
        for name in reported:
            blocks = engine.search_memory(ADA, f"band{name}", top_k=2).blocks
            assert f"I love band{name}." in {block.content_excerpt for block in blocks}
            assert engine.fs.exists(ADA, f"{MEMORIES}/preferences/band{name}")
        dumps = [dump(engine, space) for space in SPACES]
        engine.repair()
        assert [dump(engine, space) for space in SPACES] == dumps
    return killed


def _start(run: Callable[..., object], *arguments: object) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run(*arguments)
        finally:
            os._exit(1)
    return pid
