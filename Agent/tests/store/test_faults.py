"""Faults of the disk: whatever it does, no acknowledged fact is lost and none is made up.

The trees here work on `support.faulty_files.FaultyDisk`; an oracle of plain dicts says what they must hold.

    TestTraps, TestTakingTurns   one trap at a time, without chance
    TestCorruption               every bit, line, block and file is spoilt while nobody looks
    TestPowerCuts                after every call of a workload the power goes, and anything may be left of what was
                                 not synced; also while recovering from that
    TestErrors                   every call fails, once or for good, with every error that disks know

By itself pytest tries a seeded choice of all that. KEYWORD_TREE_STORM=1 tries everything, in an order by chance for a
minute or KEYWORD_TREE_STORM_S seconds in each of the long tests, and prints how many states there were;
KEYWORD_TREE_SEED=n begins with another seed.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import errno
import json
import math
import os
import random
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import KeywordTree, RelationType, StoreCorruptError, StoreError
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, Fault, FaultyDisk, Killed, Mode, Moment
from Agent.tests.support.log_format import reframed, rows_of, whole_lines
from Agent.tests.support.oracle import Held, Oracle, look
from Agent.tests.support.threads import wait_until

STORM = os.environ.get("KEYWORD_TREE_STORM", "") not in ("", "0")
SEED = int(os.environ.get("KEYWORD_TREE_SEED", "0"))
BUDGET_S = float(os.environ.get("KEYWORD_TREE_STORM_S", "60"))
FOLDER = "/disk/memory/tree"  # two folders that the store has to make
LOG = "memory/tree/change_log.jsonl"
PROJECTIONS = {kind: f"memory/tree/{kind}.jsonl" for kind in ("nodes", "infos", "links")}
LONG = "too long for memory " * 250
Case = TypeVar("Case")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    # Small, so that a short workload crosses every border that a long one would.
    inside.set_limits(
        monkeypatch,
        checkpoint_operations=6,
        checkpoint_bytes=20_000,
        chunk_bytes=1500,
        padding=inside.padding(2048),
    )
    return Door(monkeypatch)


def storm(quick: int, exhaustive: int) -> range:
    return range(SEED, SEED + (exhaustive if STORM else quick))


def within_budget(cases: Sequence[Case], rng: random.Random) -> Iterator[Case]:
    """Yield all; in a storm in an order by chance, until the time is up."""
    until = time.monotonic() + BUDGET_S
    for case in rng.sample(cases, len(cases)) if STORM else cases:
        if STORM and time.monotonic() > until:
            return
        yield case


@pytest.fixture
def tally() -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    yield counts
    if STORM:
        print("\n" + "\n".join(f"{count:>12,} {what}" for what, count in sorted(counts.items())))


# == The oracle ===========================================================================================


class Step(NamedTuple):
    """What one actor (a tree of its own) does."""

    actor: str
    kind: str
    specs: tuple[dict[str, Any], ...] = ()


def apply(oracle: Oracle, step: Step) -> None:
    """Let the oracle do what a step does."""
    for spec in copy.deepcopy(step.specs):
        if step.kind.startswith("keyword"):
            oracle.create(**spec)
        elif step.kind.startswith("info"):
            oracle.create_info(**spec)
        else:
            oracle.link(spec["info_id"], spec["keyword_id"], RelationType(spec["relation"]))


def state_of(tree: KeywordTree, info_ids: Sequence[str] = ()) -> Held:
    """Return all that a tree holds; the counts that it reports of itself show that there is nothing else."""
    held = look(tree, info_ids)
    reported = [int(count.replace(",", "")) for count in re.findall(r" ([\d,]+) (?:keyword|info)s?\b", repr(tree))]
    assert reported == [len(held.nodes) - 1, len(held.infos)], f"{tree!r} holds what nobody gave it"
    return held


WRITES = frozenset(("keyword", "info", "link", "keywords", "infos", "calls", "undo", "restore"))


# == Workloads ============================================================================================


def workload(seed: int, length: int) -> list[Step]:
    """Return steps of one to three actors; the first to act on a store opens it."""
    rng = random.Random(f"workload {seed}")
    actors = ["a", "b", "c"][: rng.choice((1, 1, 2, 2, 3))]
    names = new_names(rng)
    nodes, infos, links = ["root"], ["i0"], {("i0", "root"): "PRIMARY"}
    steps = [
        Step(actors[0], "open"),
        Step(actors[0], "info", ({"id": "i0", "content": next(names), "keyword_ids": ["root"]},)),
    ]
    opened = {actors[0]}

    def node_spec() -> dict[str, Any]:
        spec: dict[str, Any] = {"id": f"k{len(nodes)}", "name": next(names), "parent_id": rng.choice(nodes[-6:])}
        if rng.random() < 0.3:
            spec |= {"aliases": [next(names), next(names)], "description": next(names) * rng.choice((1, 30))}
        if rng.random() < 0.2:
            spec |= {"metadata": {"x": [1, 2.5, None, next(names)]}, "created_by": "someone"}
        nodes.append(spec["id"])
        return spec

    def info_spec() -> dict[str, Any]:
        length = rng.choice((1, 1, 1, 40, 500, 900))  # of 10 bytes or so: some are too long for memory
        spec: dict[str, Any] = {"id": f"i{len(infos)}", "content": " ".join(next(names) for _ in range(length))}
        spec["keyword_ids"] = rng.sample(nodes, min(len(nodes), rng.choice((0, 1, 1, 3))))
        for keyword_id in spec["keyword_ids"]:
            links[spec["id"], keyword_id] = "PRIMARY"
        infos.append(spec["id"])
        return spec

    while len(steps) < length:
        actor = rng.choice(actors)
        kinds = ["keyword"] * 5 + ["info"] * 4 + ["link"] * 3 + ["keywords", "infos", "group", "refresh", "read"]
        kind = rng.choice(kinds + ["close"] * 2) if actor in opened else "open"
        if kind in ("keyword", "info"):
            steps.append(Step(actor, kind, (node_spec() if kind == "keyword" else info_spec(),)))
        elif kind == "link":
            info, keyword = rng.choice(infos), rng.choice(nodes)
            left = [each.value for each in RelationType if each.value != links.get((info, keyword))]
            links[info, keyword] = rng.choice(left)
            spec = {"info_id": info, "keyword_id": keyword, "relation": links[info, keyword]}
            steps.append(Step(actor, kind, (spec,)))
        elif kind == "group":  # written by threads, all in one commit
            specs = [{"id": f"k{len(nodes) + n}", "name": next(names), "parent_id": "root"} for n in range(3)]
            nodes += [spec["id"] for spec in specs]
            steps.append(Step(actor, kind, tuple(specs)))
        elif kind in ("keywords", "infos"):
            count = rng.choice((2, 3, 12))
            specs = [node_spec() if kind == "keywords" else info_spec() for _ in range(count)]
            steps.append(Step(actor, kind, tuple(specs)))
        elif kind == "read":
            steps.append(Step(actor, kind, ({"id": rng.choice(infos)},)))
        else:
            steps.append(Step(actor, kind))
            (opened.add if kind == "open" else opened.discard)(actor)
            if kind == "refresh":
                opened.add(actor)
    return steps


def new_names(rng: random.Random) -> Iterator[str]:
    """Yield texts that never repeat, in several scripts, some with what could break a line."""
    pieces = ("Python", "编程", "naïve", "🐍", 'quo"te', "back\\slash", "two\nlines", "nul\0", '{"crc": "', "\u2028")
    for number in range(10**9):
        yield f"{rng.choice(pieces)} {number}"


class World:
    """Trees over one disk, and what they must hold after each operation."""

    def __init__(self, door: Door, disk: FaultyDisk | None = None) -> None:
        self.door = door
        self.disk = disk or FaultyDisk()
        self.trees: dict[str, KeywordTree] = {}
        self.oracle = Oracle()
        self.states = [self.oracle.held()]
        self.spans: list[tuple[int, float]] = []
        """For each operation: how many moments there were when it was asked for, and when it returned."""
        self._ids: dict[int, list[str]] = {}
        self._operations = 0

    def new_id(self) -> str:
        wanted = self._ids.get(threading.get_ident())
        if wanted:
            return wanted.pop()
        self._operations += 1
        return f"{self._operations:08x}-0000-4000-8000-000000000000"

    def tree(self, folder: str = FOLDER) -> KeywordTree:
        self.door.disk = self.disk
        return KeywordTree(folder, new_id=self.new_id, clock=lambda: 1_700_000_000.25)

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.do(step)

    def do(self, step: Step) -> None:
        """Take a step; what it raises comes out, and then the oracle has not changed."""
        self.door.disk = self.disk
        self.disk.owner = step.actor
        if step.kind == "open":
            self.trees[step.actor] = self.tree()
        elif step.kind == "close":
            self.trees.pop(step.actor).Close()
        elif step.kind == "refresh":
            self.trees[step.actor].Refresh()
        elif step.kind == "read":
            self.trees[step.actor].GetInfo(step.specs[0]["id"])
        elif step.kind == "group":
            self.write_together(step)
        else:
            self.spans.append((self._moment_count(), math.inf))
            try:
                self.write(self.trees[step.actor], step)
            except BaseException:
                self.spans.pop()
                raise
            self._acknowledge(step, len(self.spans) - 1)

    def foresee(self, step: Step) -> None:
        """Note what the tree will hold if a step was done of which nobody knows whether it was."""
        apply(self.oracle, step)
        self.states.append(self.oracle.held())

    def info_ids(self) -> list[str]:
        """Return the ids of all infos that there can be."""
        return self.oracle.of("info")

    def _moment_count(self) -> int:
        return len(self.disk.moments or ())

    def _acknowledge(self, step: Step, index: int) -> None:
        self.spans[index] = (self.spans[index][0], self._moment_count())
        apply(self.oracle, step)
        self.states.append(self.oracle.held())

    def write(self, tree: KeywordTree, step: Step) -> None:
        specs = [copy.deepcopy(spec) for spec in step.specs]
        if step.kind == "link":
            for spec in specs:
                tree.LinkInfo(spec["info_id"], spec["keyword_id"], RelationType(spec["relation"]))
        elif step.kind in ("keyword", "info"):
            self._ids[threading.get_ident()] = [specs[0].pop("id")]
            if step.kind == "keyword":
                tree.CreateKeyword(**specs[0])
            else:
                tree.CreateInfo(**specs[0])
        elif step.kind == "keywords":
            tree.BatchCreateKeywords(specs)
        else:
            tree.BatchCreateInfos(specs)

    def write_together(self, step: Step) -> dict[int, BaseException]:
        """Let threads write a keyword each, all but the first in one group; return what was raised, by position.

        The first commits alone; while it waits for its sync the others queue up, in their order.
        """
        tree = self.trees[step.actor]
        single = [Step(step.actor, "keywords", (spec,)) for spec in step.specs]
        first = len(self.spans)
        self.spans += [(self._moment_count(), math.inf)] * len(single)
        raised: dict[int, BaseException] = {}

        def write(index: int) -> None:
            try:
                self.write(tree, single[index])
            except BaseException as error:
                raised[index] = error
            else:
                self.spans[first + index] = (self.spans[first + index][0], self._moment_count())

        threads = [threading.Thread(target=write, args=(index,), daemon=True) for index in range(len(single))]

        def queue_up(call: str) -> None:
            if call == "fdatasync change_log.jsonl":
                self.disk.listeners.remove(queue_up)
                for count, thread in enumerate(threads[1:], 1):
                    thread.start()
                    wait_until(lambda count=count: inside.waiting_writers(tree) == count)  # type: ignore[misc]

        self.disk.listeners.append(queue_up)
        threads[0].start()
        for thread in threads:
            if thread.ident is None:  # the first failed before its sync
                thread.start()
            thread.join(20)
            assert not thread.is_alive(), "a writer waits for ever"
            if queue_up in self.disk.listeners:
                self.disk.listeners.remove(queue_up)
        for index in sorted(raised, reverse=True):
            del self.spans[first + index]
        for index, one in enumerate(single):
            if index not in raised:
                apply(self.oracle, one)
                self.states.append(self.oracle.held())
        return raised


# == What must hold after a restart =======================================================================


def rows_in(lines: Sequence[bytes]) -> dict[str, list[Any]]:
    """Return the rows that the projections must hold, in their order."""
    rows: dict[str, list[Any]] = {kind: [] for kind in PROJECTIONS}
    for raw in lines:
        for kind, brought in rows_of(json.loads(raw)).items():
            rows[kind] += brought
    return rows


def torn_tail(files: dict[str, bytes]) -> bytes:
    """Return what stands behind the last whole line of a log, b"" if that is nothing but blanks and zeros."""
    log = files.get(LOG, b"")
    rest = log[sum(len(line) + 1 for line in whole_lines(log)) :]
    return rest if rest.strip(b" \n\0") else b""


class Judge:
    """Opens what crashes left and says whether it is a state that was asked for."""

    def __init__(self, world: World, rng: random.Random, depth: int, thoroughness: float) -> None:
        self.world = world
        self.info_ids: Sequence[str] = ()
        """The infos that may be there; by themselves, those of the oracle."""
        self.rng = rng
        self.depth = depth  # how many crashes during recovery follow one another
        self.thoroughness = thoroughness  # the share of states after which the tree is also written to
        self.may_mend = False  # a projection's sync failed: its bytes can be gone although the next sync succeeded
        self.counts: Counter[str] = Counter()
        self.losses: list[str] = []
        self.index: float = math.inf
        """How many changes had been made when the power went."""
        self._known: dict[frozenset[tuple[str, bytes]], list[int]] = {}

    def try_all(self, moments: Sequence[Moment], rarity: float, torn: int, share: float = 1) -> None:
        """Cut the power after each change of a recorded run."""
        for index, moment in within_budget(list(enumerate(moments)), self.rng):
            if self.rng.random() >= share:
                continue
            least = sum(done <= index + 1 for _, done in self.world.spans)
            most = sum(asked <= index for asked, _ in self.world.spans)
            self.index = index + 1
            for mode in modes_of(moment, self.rng, rarity, torn):
                self.try_one(moment, mode, least, most, f"call {index} ({moment.call}), {mode}")

    def try_one(self, moment: Moment, mode: Mode, least: int, most: int, where: str) -> None:
        self.counts["states"] += 1
        try:
            self.judge(moment.cut_power(mode), least, most, self.depth, is_known=mode.name != "killed")
        except Exception as error:
            self.losses.append(f"{where}: {type(error).__name__}: {str(error)[:600]}")

    def judge(self, disk: FaultyDisk, least: int, most: int, depth: int, *, is_known: bool = True) -> None:
        """Fail if what is on the disk is not the state after one of the operations from `least` to `most`."""
        files = disk.read_all()
        key = frozenset(files.items())
        if not (is_known and key in self._known):  # two disks with the same files can differ in what is pending
            self.counts["different disks"] += 1
            self._known[key] = self._recover(disk, files, least, most, depth)
        matching = self._known[key]
        assert any(least <= index <= most for index in matching), (
            f"the tree holds the state after operation {matching}, acknowledged were {least}, asked for {most}"
        )

    def _open(self, disk: FaultyDisk) -> tuple[KeywordTree, Held]:
        self.world.disk = self.world.door.disk = disk
        disk.owner = "after the crash"
        tree = self.world.tree()
        with disk.quiet():
            return tree, state_of(tree, self.info_ids or self.world.info_ids())

    def _recover(self, disk: FaultyDisk, files: dict[str, bytes], least: int, most: int, depth: int) -> list[int]:
        tail = torn_tail(files)
        moments = disk.record()
        tree, found = self._open(disk)
        disk.moments = None
        matching = [index for index, state in enumerate(self.world.states) if state == found]
        assert matching, f"the tree holds a state that never was: {difference(found, self.world.states[most])}"
        after = disk.read_all()
        self._check_files(after)
        is_ahead = any("which the log does not have" in sentence for sentence in tree.recovery)
        assert self.may_mend or not is_ahead, "a projection was ahead of the log"
        if tail:
            assert tail in [content for name, content in after.items() if "cut_tail" in name], "a tail was not kept"
            assert tree.recovery, "a tail was cut in silence"
        # What was shown once is there for good, and recovering again changes nothing.
        _, again = self._open(disk.now().cut_power(Mode("none")))
        assert again == found, "what a reader saw is gone after the next power cut"
        resumed = disk.now().resume()
        second, again = self._open(resumed)
        assert again == found
        assert resumed.read_all() == after, "recovering twice gives other bytes"
        assert self.may_mend or second.recovery == (), f"there was something left to recover: {second.recovery}"
        self._check_more(resumed, second)
        if self.rng.random() < self.thoroughness:
            self._go_on(resumed, second, found)
        if depth > 0 and self.rng.random() < self.thoroughness:
            for index, moment in enumerate(moments):
                for mode in modes_of(moment, self.rng, 0.2, 1):
                    self.counts["crashes during recovery"] += 1
                    try:
                        crashed = moment.cut_power(mode)
                        self.judge(crashed, least, most, depth - 1, is_known=mode.name != "killed")
                        if tail:
                            kept = [content for content in crashed.read_all().values() if tail in content]
                            assert kept, "a crash during recovery lost the tail that was cut"
                    except Exception as error:
                        where = f"during recovery, call {index} ({moment.call}), {mode}"
                        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
        return matching

    def _check_more(self, disk: FaultyDisk, tree: KeywordTree) -> None:
        """Check what only some worlds have."""

    def _check_files(self, files: dict[str, bytes]) -> None:
        lines = whole_lines(files[LOG])
        for kind, rows in rows_in(lines).items():
            held = [json.loads(row) for row in files[PROJECTIONS[kind]].split(b"\n")[:-1]]
            assert held == rows, f"{kind}.jsonl does not hold what the log says"
        assert not torn_tail(files), "something stands behind the last line"

    def _go_on(self, disk: FaultyDisk, tree: KeywordTree, found: Held) -> None:
        """Write, close, and open once more."""
        self.counts["states written to"] += 1
        tree.BatchCreateKeywords([{"id": "later", "name": "later", "parent_id": "root"}])
        tree.BatchCreateInfos([{"id": "long", "content": "long " * 1500, "keyword_ids": ["later"]}])
        with disk.quiet():
            wanted = state_of(tree, self.info_ids or self.world.info_ids())
        assert wanted.nodes.keys() - found.nodes.keys() == {"later"}, "a write after recovery is not there"
        assert wanted.infos.keys() - found.infos.keys() == {"long"}, "a write after recovery is not there"
        tree.Close()
        again, state = self._open(disk.now().cut_power(Mode("none")))
        assert state == wanted, f"what was written after recovery is lost: {difference(state, wanted)}"
        assert self.may_mend or again.recovery == (), f"there was something to recover after Close: {again.recovery}"
        self._check_files(disk.read_all())


def difference(found: Held, wanted: Held) -> str:
    """Return where two states differ, shortened."""
    parts = []
    for here, there in zip(found, wanted, strict=True):
        for id in {**here, **there}:
            if here.get(id) != there.get(id):
                parts.append(f"{id}: {str(here.get(id))[:80]} instead of {str(there.get(id))[:80]}")
    return "; ".join(parts)[:400]


def modes_of(moment: Moment, rng: random.Random, rarity: float, torn: int) -> Iterator[Mode]:
    """Yield ways in which the power can go: the plain ones, and of the many others a share."""
    yield Mode("all")
    if rng.random() < max(rarity, 0.3):
        yield Mode("killed")
    count = moment.pending_count
    if count == 0:
        return
    yield Mode("none")
    for index in range(count):
        for name in ("without", "only"):
            if rng.random() < rarity:
                yield Mode(name, index)
    for name in ("torn", "garbage", "reordered"):
        for _ in range(torn):
            yield Mode(name, rng.randrange(10**9))
    if moment.call.startswith("pwrite"):
        for _ in range(torn):
            yield Mode("cut", int(2 ** rng.uniform(0, 13)))


# == The disk and the door ================================================================================


class TestFaultyDisk:
    """The double itself: what it promises, and that a real folder gives the same answers."""

    def test_answers_as_a_real_folder_does(self, tmp_path: Path) -> None:
        def work(system: Any, folder: str) -> list[Any]:
            reported: list[Any] = []

            def tell(call: Callable[..., Any], *arguments: Any) -> Any:
                try:
                    result = call(*arguments)
                except OSError as error:
                    reported.append((call.__name__, error.errno))
                    return None
                reported.append((call.__name__, result if call.__name__ not in ("open", "stat", "fstat") else None))
                return result

            one, two = f"{folder}/one", f"{folder}/two"
            tell(system.open, one, os.O_RDWR)
            fd = tell(system.open, one, os.O_RDWR | os.O_CREAT, 0o600)
            tell(system.pwrite, fd, b"hello", 3)
            tell(system.pread, fd, 100, 0)
            tell(system.pread, fd, 2, 4)
            tell(system.pread, fd, 2, 400)
            tell(system.ftruncate, fd, 5)
            tell(system.lseek, fd, 0, os.SEEK_END)
            tell(system.ftruncate, fd, 7)
            tell(system.pread, fd, 100, 0)
            tell(system.open, one, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            reported.append((system.fstat(fd).st_size, system.stat(one).st_ino == system.fstat(fd).st_ino))
            other = tell(system.open, two, os.O_RDWR | os.O_CREAT, 0o600)
            tell(system.replace, one, two)
            reported.append((system.stat(two).st_ino == system.fstat(fd).st_ino, system.fstat(other).st_size))
            tell(system.stat, one)
            tell(system.mkdir, f"{folder}/sub")
            tell(system.mkdir, f"{folder}/sub")
            tell(system.mkdir, f"{folder}/missing/sub")
            reported.append(sorted(system.listdir(folder)))
            tell(system.open, f"{folder}/sub", os.O_RDWR)
            tell(system.remove, two)
            tell(system.remove, two)
            tell(system.pread, fd, 100, 0)
            tell(system.open, f"{two}/below", os.O_RDWR | os.O_CREAT)
            for opened in (fd, other, fd):
                tell(system.close, opened)
            return reported

        assert work(FaultyDisk(), "/disk") == work(os, str(tmp_path))

    def test_forgets_what_was_not_synced(self) -> None:
        disk = FaultyDisk()
        fd = disk.open("/disk/file", os.O_RDWR | os.O_CREAT)
        folder = disk.open("/disk", os.O_RDONLY)
        disk.fsync(folder)
        disk.pwrite(fd, b"a" * 2000, 0)
        moment = disk.now()

        assert moment.cut_power(Mode("none")).read_all() == {"file": b""}
        assert moment.cut_power(Mode("all")).read_all() == {"file": b"a" * 2000}
        assert moment.cut_power(Mode("cut", 700)).read_all() == {"file": b"a" * 700}
        torn = {moment.cut_power(Mode("torn", seed)).read_all()["file"] for seed in range(200)}
        assert {content[start : start + 512] for content in torn for start in (0, 512, 1024)} <= {
            *(b"a" * 512, b"\0" * 512, b"")
        }
        assert {len(content) for content in torn} == {0, 512, 1024, 1536, 2000}
        disk.fdatasync(fd)
        assert disk.now().cut_power(Mode("none")).read_all() == {"file": b"a" * 2000}

    @pytest.mark.parametrize(
        ("sync", "seen", "lasting"),
        [("keeps", b"ab", b"ab"), ("forgets", b"ab", b"a"), ("reverts", b"a", b"a"), ("tears", b"ab", b"a")],
    )
    def test_fails_a_sync_in_every_way(self, sync: str, seen: bytes, lasting: bytes) -> None:
        disk = FaultyDisk()
        disk.put({"file": b"a"})
        fd = disk.open("/disk/file", os.O_RDWR)
        disk.pwrite(fd, b"b", 1)
        disk.fault = Fault(disk.call_count, sync=sync)
        with pytest.raises(OSError, match="Input/output"):
            disk.fdatasync(fd)
        disk.fdatasync(fd)

        assert disk.read_all() == {"file": seen}
        left = disk.now().cut_power(Mode("none")).read_all()["file"]
        assert left == lasting or sync == "tears"


class TestDoor:
    def test_is_the_only_way_to_the_disk(self) -> None:
        tree = ast.parse(Path(str(kt.__file__)).read_text("utf-8"))
        door = inside.Files.__name__
        within = {id(node) for room in tree.body if getattr(room, "name", "") == door for node in ast.walk(room)}
        outside = {
            ast.unparse(node)
            for node in ast.walk(tree)
            if id(node) not in within
            and isinstance(node, ast.Attribute)
            and isinstance(node.value, (ast.Name, ast.Attribute))
            and ast.unparse(node).split(".")[0] in ("os", "io", "fcntl", "shutil", "pathlib", "tempfile", "mmap")
        }
        harmless = {"os.path", "os.path.join", "os.path.abspath", "os.path.basename", "os.path.dirname", "os.PathLike"}
        harmless |= {"os.fspath", "os.fsdecode", "os.name", "os.urandom", "os.getpid", "os.register_at_fork"}

        assert outside <= harmless
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in within]
        assert "open" not in [ast.unparse(function) for function in calls]

    def test_is_passed_by_one_write_and_one_sync_of_the_log_for_each_operation(self, door: Door) -> None:
        world = World(door)
        world.run([Step("a", "open"), Step("a", "info", ({"id": "i", "content": "x"},))])
        for kind, spec in (
            ("keyword", {"id": "k", "name": "k", "parent_id": "root"}),
            ("info", {"id": "j", "content": LONG, "keyword_ids": ["root"]}),
            ("link", {"info_id": "i", "keyword_id": "root", "relation": "PRIMARY"}),
        ):
            before = len(world.disk.calls)
            world.do(Step("a", kind, (spec,)))
            calls = world.disk.calls[before:]

            assert calls.count("pwrite change_log.jsonl") == 1
            assert [call for call in calls if "sync" in call] == ["fdatasync change_log.jsonl"]


# == One trap at a time ===================================================================================
#
# What the sweeps have found, or would find only now and then, by itself and
# without chance.


def step(actor: str, id: str, **more: Any) -> Step:
    return Step(actor, "keyword", ({"id": id, "name": f"the name of {id}", "parent_id": "root"} | more,))


class Traps:
    """A world, and the question of what is there after the power went."""

    def __init__(self, door: Door) -> None:
        self.world = World(door)
        self.disk = self.world.disk

    @contextlib.contextmanager
    def at(self, call: str, count: int, act: Callable[[], None]) -> Iterator[None]:
        """Do something before a call is made for the `count`-th time within the block."""
        met = 0

        def listen(made: str) -> None:
            nonlocal met
            met += made == call
            if made == call and met == count:
                act()

        self.disk.listeners.append(listen)
        try:
            yield
        finally:
            self.disk.listeners.remove(listen)
            self.disk.heal()

    def fault(self, error: int, lasts: float, *calls: str, short: int | None = None, sync: str = "forgets") -> None:
        """Let calls fail from now on."""
        self.disk.failed_calls.clear()
        self.disk.fault = Fault(self.disk.call_count, error, lasts, frozenset(calls), short, sync)

    def dies(self, what: Step, call: str) -> None:
        """Let the actor die in a step, instead of making a call."""
        with self.at(call, 1, lambda: self.disk.kill(what.actor)), pytest.raises(Killed):
            self.world.do(what)

    def fails(self, what: Step) -> StoreError:
        """Take a step that fails; from then on the disk works again."""
        with pytest.raises(StoreError) as caught:
            self.world.do(what)
        self.disk.heal()
        return caught.value

    def names_after(self, mode: Mode, moment: Moment | None = None) -> set[str]:
        """Return the ids of the top level after a crash."""
        self.world.door.disk = (moment or self.disk.now()).cut_power(mode)
        found = {node.id for node in KeywordTree(FOLDER).GetChildren("root")}
        self.world.door.disk = self.disk
        return found


@contextlib.contextmanager
def failing_once(disk: FaultyDisk, call: str, skipped: int) -> Iterator[None]:
    """Let a call of a kind fail once, after some that do not."""
    left = skipped

    def listen(made: str) -> None:
        nonlocal left
        if made.startswith(call):
            if left == 0:
                disk.fault = Fault(disk.call_count, only=frozenset((call,)), sync="forgets")
            left -= 1

    disk.failed_calls.clear()
    disk.listeners.append(listen)
    try:
        yield
    finally:
        disk.listeners.remove(listen)
        disk.heal()
        disk.failed_calls.clear()


@pytest.fixture
def traps(door: Door) -> Traps:
    traps = Traps(door)
    traps.world.run([Step("a", "open"), step("a", "first")])
    return traps


WRITE, SYNC = "pwrite change_log.jsonl", "fdatasync change_log.jsonl"


class TestTraps:
    def test_a_line_of_a_dead_process_is_not_called_durable_before_it_is(self, traps: Traps) -> None:
        traps.world.do(Step("b", "open"))
        traps.dies(step("b", "unacknowledged", description="y" * 900), SYNC)
        moments = traps.disk.record()
        traps.world.do(step("a", "next"))
        for moment in moments:
            for mode in [Mode(name, index) for index in range(9) for name in ("without", "only", "torn")]:
                assert traps.names_after(mode, moment) >= {"first"}
        assert traps.names_after(Mode("none")) == {"first", "unacknowledged", "next"}

    def test_what_refresh_showed_is_durable(self, traps: Traps) -> None:
        traps.world.do(Step("b", "open"))
        traps.dies(step("b", "shown"), SYNC)
        traps.world.do(Step("a", "refresh"))

        assert traps.names_after(Mode("none")) == {"first", "shown"}

    def test_a_sync_that_fails_while_opening_is_not_trusted_the_second_time(self, traps: Traps) -> None:
        traps.dies(step("a", "unacknowledged"), SYNC)
        traps.fault(errno.EIO, 1, "fdatasync")
        traps.fails(Step("b", "open"))
        traps.world.run([Step("b", "open"), step("b", "acknowledged")])

        assert traps.names_after(Mode("none")) == {"first", "unacknowledged", "acknowledged"}

    def test_a_group_goes_no_further_than_a_failed_sync(self, traps: Traps) -> None:
        specs = tuple({"id": f"g{number}", "name": "g", "parent_id": "root"} for number in range(4))
        # The second write is that of the group; when it failed, each goes alone, and the third is the first of these.
        with (
            traps.at(WRITE, 2, lambda: traps.fault(errno.ENOSPC, 1, "pwrite")),
            traps.at(WRITE, 3, lambda: traps.fault(errno.EIO, 1, "fdatasync")),
        ):
            raised = traps.world.write_together(Step("a", "group", specs))

        assert [getattr(raised.get(index), "outcome_unknown", None) for index in range(4)] == [None, True, False, False]
        assert traps.names_after(Mode("none")) >= {"first", "g0"}
        assert traps.names_after(Mode("killed")) <= {"first", "g0", "g1"}

    def test_a_group_is_committed_once(self, traps: Traps) -> None:
        specs = tuple({"id": f"g{number}", "name": "g", "parent_id": "root"} for number in range(4))

        assert traps.world.write_together(Step("a", "group", specs)) == {}
        assert traps.names_after(Mode("none")) == {"first", "g0", "g1", "g2", "g3"}

    def test_a_group_whose_sync_fails_has_an_unknown_outcome_for_each_of_its_writers(self, traps: Traps) -> None:
        specs = tuple({"id": f"g{number}", "name": "g", "parent_id": "root"} for number in range(4))
        with traps.at(SYNC, 2, lambda: traps.fault(errno.EIO, 1, "fdatasync")):
            raised = traps.world.write_together(Step("a", "group", specs))

        assert [getattr(raised.get(index), "outcome_unknown", None) for index in range(4)] == [None, True, True, True]
        assert traps.names_after(Mode("killed")) == {"first", "g0", "g1", "g2", "g3"}

    def test_a_sync_that_failed_is_known_though_the_disk_refused_the_mark(self, traps: Traps) -> None:
        with traps.at(SYNC, 1, lambda: traps.fault(errno.EIO, math.inf, "fdatasync", "ftruncate")):
            assert traps.fails(step("a", "doubtful")).outcome_unknown
        assert traps.disk.failed_calls == [SYNC, "ftruncate lock"]

        assert not traps.fails(step("a", "too early")).outcome_unknown

    def test_a_disk_that_takes_no_more_bytes_and_tells_no_error_fails_the_operation_alone(
        self, traps: Traps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries = 0

        def refuse(fd: int, data: object, offset: int) -> int:
            nonlocal tries
            tries += 1
            assert tries < 10, "it is tried for ever"
            return 0

        with monkeypatch.context() as patch:
            patch.setattr(traps.disk, "pwrite", refuse)
            error = traps.fails(step("a", "refused"))
        traps.world.do(step("a", "next"))

        assert not error.outcome_unknown
        assert traps.names_after(Mode("none")) == {"first", "next"}

    def test_what_would_be_refused_for_one_before_it_that_then_fails_is_not_refused(self, traps: Traps) -> None:
        specs = tuple(
            {"id": id, "name": name, "parent_id": "root"} for id, name in [("g", "1"), ("h", "2"), ("h", "3")]
        )
        with traps.at(WRITE, 2, lambda: traps.fault(errno.ENOSPC, 2, "pwrite")):
            raised = traps.world.write_together(Step("a", "group", specs))

        assert list(raised) == [1]
        assert [node.name for node in traps.world.trees["a"].FindByName("3")] == ["3"]

    def test_a_store_that_a_dead_process_began_is_durable_once_something_is_in_it(self, door: Door) -> None:
        for call in range(40):
            world = World(door)
            world.disk.kill_at("dead", call)
            with contextlib.suppress(Killed):
                world.do(Step("dead", "open"))
            world.run([Step("a", "open"), step("a", "acknowledged")])
            left = world.disk.now().cut_power(Mode("none"))
            assert b"acknowledged" in left.read_all().get(LOG, b""), f"all is lost after a death at call {call}"

    def test_a_store_that_a_dead_process_began_is_durable_though_no_projection_can_be_made(self, door: Door) -> None:
        for call in range(40):
            traps = Traps(door)
            traps.disk.kill_at("dead", call)
            with contextlib.suppress(Killed):
                traps.world.do(Step("dead", "open"))
            with traps.at("open nodes.jsonl", 1, lambda traps=traps: traps.fault(errno.EMFILE, math.inf, "open")):  # type: ignore[misc]
                traps.world.do(Step("a", "open"))
            traps.world.do(step("a", "acknowledged"))
            assert traps.names_after(Mode("none")) == {"acknowledged"}, f"all is lost after a death at call {call}"

    @pytest.mark.parametrize("short", [1, 100, 2500])
    def test_a_write_that_failed_is_not_there_after_a_power_cut(self, traps: Traps, short: int) -> None:
        self.fill(traps)
        traps.fault(errno.ENOSPC, 2, "pwrite", short=short)
        error = traps.fails(step("a", "refused"))
        now = traps.disk.now()

        assert not error.outcome_unknown
        for mode in [Mode("none"), Mode("all"), *(Mode("without", index) for index in range(now.pending_count))]:
            assert "refused" not in traps.names_after(mode, now)
        traps.world.do(step("a", "next"))
        assert "next" in traps.names_after(Mode("none"))

    def fill(self, traps: Traps) -> None:
        """Write until the next line does not fit into the padding."""
        for number in range(100):
            log = traps.disk.read_all()[LOG]
            if len(log) - len(log.rstrip(b" \n")) < 450:
                return
            traps.world.do(step("a", f"filler-{number}", description="x" * (number % 7 * 40)))
        raise AssertionError("the padding has no end")

    def test_a_write_that_could_not_be_taken_back_has_an_unknown_outcome(self, traps: Traps) -> None:
        self.fill(traps)
        traps.fault(errno.ENOSPC, math.inf, "pwrite", "ftruncate", short=2500)
        error = traps.fails(step("a", "doubtful"))

        assert error.outcome_unknown
        assert "doubtful" in traps.names_after(Mode("killed"))
        traps.fails(step("a", "too early"))

    def test_a_long_content_that_has_changed_on_the_disk_is_found_when_it_is_read(self, traps: Traps) -> None:
        traps.world.do(Step("a", "info", ({"id": "i", "content": LONG},)))
        for name in (LOG, PROJECTIONS["infos"]):
            traps.disk.spoil(name, traps.disk.read_all()[name].replace(b"memory", b"Memory", 1))
        with pytest.raises(StoreCorruptError):
            traps.world.trees["a"].GetInfo("i")

    def test_a_first_line_of_many_sectors_may_be_torn(self, door: Door) -> None:
        def tree() -> KeywordTree:
            return KeywordTree(FOLDER, normalizer=lambda text: [text * length for length in (1, 90, 200)])

        moments = door.disk.record()
        tree()
        moment = next(moment for moment in moments if moment.call.startswith("pwrite change_log"))
        for seed in range(40):
            for mode in (Mode("torn", seed), Mode("garbage", seed), Mode("cut", 50 * seed)):
                door.disk = moment.cut_power(mode)
                assert tree().GetChildren("root") == []

    def test_a_file_that_grew_without_its_bytes_is_cut_without_a_word(self, traps: Traps) -> None:
        log = traps.disk.read_all()[LOG].rstrip(b" \n") + b"\n"
        for tail in (b"\0" * 700, b"  \n" + b"\0" * 700 + b" \n"):
            traps.world.disk = FaultyDisk()
            traps.world.disk.put({LOG: log + tail})
            traps.world.run([Step("b", "open"), step("b", "next")])
            held = traps.world.disk.read_all()

            assert b"\0" not in held[LOG]
            assert [name for name in held if "cut" in name] == []
            assert traps.world.trees["b"].recovery == ()
            assert len(whole_lines(held[LOG])) == 3

    @pytest.mark.parametrize("now", [Decimal("1700000000.5"), Fraction(1, 3), True, "12.5", 7])
    def test_a_clock_need_not_tell_floats(self, door: Door, now: Any) -> None:
        tree = KeywordTree(FOLDER, clock=lambda: now)
        tree.CreateKeyword("acknowledged", "root")
        tree.Snapshot()
        tree.CompactStorage()
        tree.Close()
        again = KeywordTree(FOLDER)

        assert [node.name for node in again.GetChildren("root")] == ["acknowledged"]
        assert again.Verify() == []

    @pytest.mark.parametrize("now", [10**400, None, math.nan, math.inf, "soon"])
    def test_a_clock_that_tells_no_time_is_refused(self, traps: Traps, now: Any) -> None:
        traps.world.door.disk = traps.disk
        tree = KeywordTree(FOLDER, clock=lambda: now)
        before = traps.disk.read_all()
        for write in (lambda: tree.CreateKeyword("refused", "root"), tree.Snapshot):
            with pytest.raises(kt.InvalidInputError, match="the clock must return seconds"):
                write()
        assert traps.disk.read_all() == before

    @pytest.mark.parametrize("now", [1e18, 1e308, -1e13, -30_641_760_000.0, 253_402_300_800.0, 1_700_000_000_000])
    def test_a_clock_that_no_snapshot_can_be_named_by_makes_none(self, traps: Traps, now: float) -> None:
        traps.world.door.disk = traps.disk
        tree = KeywordTree(FOLDER, clock=lambda: now)
        assert tree.CreateKeyword("at a strange time", "root").created_at == now
        for is_copy in (False, True):
            with pytest.raises(kt.InvalidInputError, match="before the year 10000"):
                tree.Snapshot(is_copy)

        assert not [name for name in traps.disk.read_all() if "snapshots" in name]
        assert tree.Verify() == []

    def test_a_torn_tail_that_finds_no_room_aside_is_left_where_it_is(self, traps: Traps) -> None:
        traps.dies(step("a", "torn", description="x" * 900), SYNC)
        log = traps.disk.read_all()[LOG]
        torn = log.rstrip(b" \n")[:-100]
        traps.disk.spoil(LOG, torn)
        traps.fault(errno.ENOSPC, math.inf, "pwrite")
        traps.world.do(Step("b", "open"))
        refused = traps.fails(step("b", "refused"))

        assert not refused.outcome_unknown
        assert "cannot be kept aside" in str(refused)
        assert traps.world.trees["b"].recovery[-1] == str(refused)
        assert [node.id for node in traps.world.trees["b"].GetChildren("root")] == ["first"]
        assert traps.disk.read_all()[LOG] == torn
        traps.world.run([Step("c", "open"), step("c", "next")])
        assert torn_tail({LOG: torn}) in traps.disk.read_all().values()
        assert traps.names_after(Mode("none")) == {"first", "next"}

    def test_a_torn_tail_that_finds_no_room_aside_is_kept_though_a_sync_had_failed(self, traps: Traps) -> None:
        log = traps.disk.read_all()[LOG].rstrip(b" \n")
        torn = b'{"crc": "0a1b2c3d", "seq": 3, "prev"'
        traps.disk.kill("a")
        traps.disk.put({LOG: log + b"\n" + torn, "memory/tree/lock": b"\0"})
        traps.fault(errno.EIO, 1, "pwrite")
        traps.world.do(Step("b", "open"))
        traps.disk.heal()
        traps.fails(step("b", "refused"))

        assert torn in traps.disk.read_all()[LOG]
        traps.world.run([Step("c", "open"), step("c", "next")])
        assert torn in traps.disk.read_all().values()
        assert traps.names_after(Mode("none")) == {"first", "next"}

    def test_a_mark_of_a_failed_sync_needs_no_space(self, traps: Traps) -> None:
        traps.world.do(Step("b", "open"))
        with traps.at(SYNC, 1, lambda: traps.fault(errno.ENOSPC, math.inf, "fdatasync", "pwrite")):
            error = traps.fails(step("a", "doubtful"))

        assert error.outcome_unknown
        traps.fails(step("b", "too early"))

    @pytest.mark.parametrize("sync", ["forgets", "reverts"])
    def test_what_is_written_into_the_copy_after_a_failed_sync_is_durable(self, traps: Traps, sync: str) -> None:
        traps.disk.fault = Fault(0, only=frozenset(("fdatasync",)), sync=sync)
        traps.fails(step("a", "doubtful"))
        # The projections, which come last, cannot be opened: what is synced for their sake must not be needed.
        with traps.at("open nodes.jsonl", 2, lambda: traps.fault(errno.EMFILE, math.inf, "open")):
            traps.world.do(Step("b", "open"))
        traps.world.do(step("b", "acknowledged"))
        names = traps.names_after(Mode("none"))

        assert names >= {"first", "acknowledged"}
        assert ("doubtful" in names) == (sync == "forgets")

    @pytest.mark.parametrize("call", ["pread", "pwrite", "fdatasync", "replace", "fsync", "ftruncate", "open", "stat"])
    def test_a_failing_copy_after_a_failed_sync_leaves_no_descriptor_open(self, traps: Traps, call: str) -> None:
        traps.fault(errno.EIO, 1, "fdatasync")
        traps.fails(step("a", "doubtful"))
        before = traps.disk.now()
        for count in range(12):
            traps.world.disk = disk = before.resume()
            with failing_once(disk, call, count):
                try:
                    traps.world.do(Step("b", "open"))
                except StoreError:
                    assert disk.open_count("b") == 0, f"{call} {count}"
            traps.world.do(Step("c", "open"))
            assert "first" in {node.id for node in traps.world.trees["c"].GetChildren("root")}

    @pytest.mark.parametrize("name", ["stat change_log.jsonl", "stat nodes.jsonl", "stat tree"])
    def test_a_disk_that_cannot_say_whether_a_file_is_there_is_not_corrupt(self, traps: Traps, name: str) -> None:
        for count in range(1, 4):
            with traps.at(name, count, lambda: traps.fault(errno.EIO, 1, "stat")):
                try:
                    traps.world.do(Step("b", "open"))
                except StoreError as error:
                    assert not isinstance(error, StoreCorruptError)

    @pytest.mark.parametrize("call", ["pread", "stat", "open", "flock", "fdatasync"])
    def test_a_replaced_log_is_noticed_again_when_reopening_failed(self, traps: Traps, call: str) -> None:
        for count in range(16):
            world = traps.world
            world.do(Step("b", "open"))
            world.trees["b"].CompactStorage()
            with failing_once(world.disk, call, count), contextlib.suppress(StoreError):
                world.do(step("a", f"during-{call}-{count}"))
            for tree in ("a", "b"):
                try:
                    world.do(step(tree, f"behind-{call}-{count}-{tree}"))
                except StoreError:  # a failed sync: it asks for being opened again
                    world.do(Step(tree, "open"))
                else:
                    assert f"behind-{call}-{count}-{tree}" in traps.names_after(Mode("none")), f"{count}. {call}"


class TestFolders:
    """What a folder of the system, a mount or another process may do while the store is at work."""

    def test_a_mount_that_syncs_no_folders_is_tolerated(self, traps: Traps) -> None:
        traps.fault(errno.EINVAL, math.inf, "fsync")
        traps.world.run([Step("b", "open"), step("b", "second")])
        traps.world.trees["b"].CompactStorage()
        traps.world.do(step("b", "third"))

        assert traps.names_after(Mode("killed")) == {"first", "second", "third"}

    def test_a_folder_whose_sync_fails_is_not_served(self, traps: Traps) -> None:
        traps.fault(errno.EIO, 1, "fsync")
        traps.fails(Step("b", "open"))

        assert traps.disk.failed_calls == ["fsync memory"]

    def test_a_folder_above_that_may_not_be_read_is_tolerated(self, traps: Traps) -> None:
        with traps.at("open memory", 1, lambda: traps.fault(errno.EACCES, 1, "open")):
            traps.world.do(Step("b", "open"))

        assert traps.disk.failed_calls == ["open memory"]

    @pytest.mark.parametrize("name", ["memory", "tree"])
    def test_a_folder_that_another_process_has_just_made_is_tolerated(self, door: Door, name: str) -> None:
        traps = Traps(door)
        path = {"memory": "/disk/memory", "tree": FOLDER}[name]
        with traps.at(f"mkdir {name}", 1, lambda: traps.disk.mkdir(path)):
            traps.world.run([Step("a", "open"), step("a", "first")])

        assert traps.names_after(Mode("none")) == {"first"}

    def test_a_second_tail_does_not_replace_the_first(self, traps: Traps) -> None:
        tails = [b'{"crc": "00000000", "one', b'{"crc": "00000000", "two']
        traps.disk.kill("a")
        for number, tail in enumerate(tails):
            traps.disk.spoil(LOG, traps.disk.read_all()[LOG].rstrip(b" \n") + b"\n" + tail)
            traps.world.do(Step(f"b{number}", "open"))
            traps.disk.kill(f"b{number}")

        assert [tail for tail in tails if tail not in traps.disk.read_all().values()] == []

    def test_a_log_that_was_cut_while_it_was_open_is_refused(self, traps: Traps) -> None:
        traps.world.do(step("a", "second"))
        log = traps.disk.read_all()[LOG]
        traps.disk.spoil(LOG, log[: log.index(b'"second"')])
        with pytest.raises(StoreCorruptError):
            traps.world.trees["a"].Refresh()


def write_in_an_operation(tree: KeywordTree) -> None:
    with tree.Operation("within"):
        tree.CreateKeyword("within", "root")


class TestWithin:
    """A signal handler, a clock, a normalizer or a ranking may call the tree whose commit it stands in."""

    def in_a_commit(self, traps: Traps, call: str, act: Callable[[KeywordTree], None]) -> None:
        """Let the tree be called in the middle of a commit, before a call to the disk."""
        with traps.at(call, 1, lambda: act(traps.world.trees["a"])):
            traps.world.do(step("a", "second"))
        assert traps.names_after(Mode("none")) == {"first", "second"}

    @pytest.mark.parametrize("call", [WRITE, SYNC, "pwrite nodes.jsonl"])
    @pytest.mark.parametrize(
        "use",
        [
            KeywordTree.Refresh,
            KeywordTree.Verify,
            KeywordTree.Snapshot,
            KeywordTree.CompactStorage,
            lambda tree: tree.CreateKeyword("within", "root"),
            write_in_an_operation,
        ],
        ids=["refresh", "verify", "snapshot", "compact", "write", "operation"],
    )
    def test_what_needs_the_lock_is_refused_and_the_lock_stays(
        self, traps: Traps, use: Callable[[KeywordTree], object], call: str
    ) -> None:
        def act(tree: KeywordTree) -> None:
            with pytest.raises(StoreError, match="while its own thread does"):
                use(tree)
            lock = traps.disk.open(f"{FOLDER}/lock", os.O_RDWR)
            with pytest.raises(BlockingIOError):
                traps.disk.flock(lock, 2 | 4)
            traps.disk.close(lock)

        self.in_a_commit(traps, call, act)

    def test_what_is_known_can_be_read(self, traps: Traps) -> None:
        reported: list[str] = []

        def act(tree: KeywordTree) -> None:
            reported.extend(node.id for node in tree.GetChildren("root"))
            reported.extend(change.op for change in tree.History())

        self.in_a_commit(traps, SYNC, act)
        assert reported == ["first", "create_keyword", "create_store"]


class TestFalseAlarms:
    """No fact depends on these; but no damage and no failure is reported where there is none."""

    def recovery_after(self, traps: Traps, mode: Mode) -> tuple[str, ...]:
        traps.world.door.disk = traps.disk.now().cut_power(mode)
        return KeywordTree(FOLDER).recovery

    @pytest.mark.parametrize("mode", [Mode("none"), *(Mode("without", index) for index in range(4))])
    def test_a_store_that_was_opened_once_and_closed_is_whole_after_a_power_cut(self, door: Door, mode: Mode) -> None:
        traps = Traps(door)
        info = Step("a", "info", ({"id": "i", "content": LONG, "keyword_ids": ["first"]},))
        traps.world.run([Step("a", "open"), step("a", "first"), info, Step("a", "close")])

        assert self.recovery_after(traps, mode) == ()

    def test_a_projection_that_had_no_room_is_made_good_by_the_next_checkpoint(self, traps: Traps) -> None:
        with traps.at("pwrite nodes.jsonl", 1, lambda: traps.fault(errno.ENOSPC, 1, "pwrite")):
            traps.world.do(step("a", "second"))
        assert traps.disk.failed_calls == ["pwrite nodes.jsonl"]
        traps.world.run([step("a", "third"), Step("a", "close")])

        assert self.recovery_after(traps, Mode("none")) == ()

    @pytest.mark.parametrize("sync", ["forgets", "reverts", "tears"])
    def test_a_projection_whose_sync_failed_is_made_good_by_the_next_checkpoint(self, traps: Traps, sync: str) -> None:
        tree = traps.world.trees["a"]
        with traps.at("fdatasync nodes.jsonl", 1, lambda: traps.fault(errno.EIO, 1, "fdatasync", sync=sync)):
            for number in range(6):
                traps.world.do(step("a", f"k{number}"))
        assert traps.disk.failed_calls == ["fdatasync nodes.jsonl"]
        tree.Close()

        reported = self.recovery_after(
            traps, Mode("none")
        )  # a page that the failed sync tore is reported when it is fixed
        assert reported == () or (
            sync == "tears" and reported == ("nodes.jsonl did not fit the log and was repaired from it",)
        )
        assert KeywordTree(FOLDER).recovery == ()

    def test_a_failed_sync_is_reported_once(self, traps: Traps) -> None:
        traps.fault(errno.EIO, 1, "fdatasync")
        traps.fails(step("a", "doubtful"))
        traps.world.do(Step("b", "open"))

        assert "a sync had failed" in traps.world.trees["b"].recovery[0]
        assert self.recovery_after(traps, Mode("none")) == ()

    def test_a_log_that_was_copied_after_a_failed_sync_is_not_read_again(self, traps: Traps) -> None:
        traps.fault(errno.EIO, 1, "fdatasync")
        traps.fails(step("a", "doubtful"))
        traps.world.do(Step("b", "open"))
        before = len(traps.disk.calls)
        traps.world.do(step("b", "next"))

        assert "open change_log.jsonl" not in traps.disk.calls[before:]

    @pytest.mark.parametrize("keep_history", [True, False])
    def test_a_compaction_keeps_no_file_open_that_has_no_name(self, traps: Traps, keep_history: bool) -> None:
        traps.world.trees["a"].CompactStorage(keep_history)

        assert traps.disk.nameless_count() == 0


# == Taking turns =========================================================================================


class TestTakingTurns:
    """While one tree is in the middle of a commit, whatever another does waits for it."""

    ACTIONS: ClassVar[dict[str, list[Step]]] = {
        "write": [step("b", "of b")],
        "refresh": [Step("b", "refresh")],
        "close": [Step("b", "close")],
        "open": [Step("c", "open")],
    }

    @pytest.mark.parametrize("action", ACTIONS)
    @pytest.mark.parametrize("short", [None, 200])
    @pytest.mark.parametrize("at", [WRITE, SYNC, "pwrite nodes.jsonl"])
    def test_leaves_both_operations_whole(self, traps: Traps, action: str, short: int | None, at: str) -> None:
        world, disk = traps.world, traps.disk
        world.run([Step("b", "open"), step("b", "earlier"), Step("a", "refresh")])
        errors: list[BaseException] = []
        tree = world.trees["b"]

        def other() -> None:
            try:
                for one in self.ACTIONS[action]:
                    if one.kind == "open":
                        world.trees["c"] = world.tree()
                    elif one.kind == "close":
                        tree.Close()
                    elif one.kind == "refresh":
                        tree.Refresh()
                    else:
                        world.write(tree, one)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=other, daemon=True)

        def step_in() -> None:
            thread.start()
            deadline = time.monotonic() + 0.3
            while thread.is_alive() and not disk.waiting_count and time.monotonic() < deadline:
                time.sleep(0.001)

        disk.owner = "a"
        if short:
            traps.fault(errno.EIO, 1, "pwrite", short=short)
        with traps.at(at, 2 if short and at == WRITE else 1, step_in):
            world.write(world.trees["a"], step("a", "of a", description="x" * 900))
        thread.join(20)

        assert not thread.is_alive()
        assert errors == []
        wanted = {"first", "earlier", "of a"} | ({"of b"} if action == "write" else set())
        assert traps.names_after(Mode("none")) == wanted
        assert {node.id for node in world.trees["a"].GetChildren("root")} >= wanted - {"of b"}
        world.do(step("a", "the last"))
        assert traps.names_after(Mode("none")) == wanted | {"the last"}


# == Corruption ===========================================================================================


class Store(NamedTuple):
    """The files of a small store, and what it must hold."""

    files: dict[str, bytes]
    states: list[Held]
    """After each line of the log; a checkpoint changes nothing."""
    info_ids: list[str]
    older: list[dict[str, bytes]]
    """The files as they were after each operation."""

    @property
    def state(self) -> Held:
        return self.states[-1]

    def open(self, door: Door, changed: Mapping[str, bytes | None]) -> tuple[FaultyDisk, KeywordTree]:
        """Open the store with some files changed or, where None, removed."""
        files = {**self.files, **changed}
        door.disk = FaultyDisk()
        door.disk.put({name: content for name, content in files.items() if content is not None})
        return door.disk, KeywordTree(FOLDER)


def small_store(door: Door, monkeypatch: pytest.MonkeyPatch, *, closed: bool) -> Store:
    # Short contents are read from disk, as long ones are.
    inside.set_limits(monkeypatch, resident_bytes=200, chunk_bytes=1024 * 1024, padding=inside.padding(401))
    world = World(door)
    steps = [
        Step("a", "open"),
        Step("a", "keyword", ({"id": "k1", "name": "Python", "parent_id": "root", "aliases": ["蛇"]},)),
        Step("a", "info", ({"id": "i1", "content": "PEP 703 makes the GIL optional", "keyword_ids": ["k1"]},)),
        Step("a", "keywords", tuple({"id": f"b{n}", "name": f"b{n}", "parent_id": "k1"} for n in range(2))),
        Step("a", "info", ({"id": "i2", "content": "unlinked"},)),
        Step("a", "link", ({"info_id": "i2", "keyword_id": "b0", "relation": "SOURCE"},)),
        Step(
            "a", "link", ({"info_id": "i2", "keyword_id": "b0", "relation": "EXAMPLE"},)
        ),  # a checkpoint comes behind it
        Step("a", "keyword", ({"id": "k2", "name": "C#", "parent_id": "b1"},)),
        Step("a", "group", tuple({"id": f"g{n}", "name": f"g{n}", "parent_id": "root"} for n in range(3))),
    ]
    older: list[dict[str, bytes]] = []
    for step in steps:
        world.do(step)
        older.append(world.disk.read_all())
    if closed:
        world.do(Step("a", "close"))
    files = world.disk.read_all()
    states = [world.states[0]]
    waiting = world.states[1:]
    for line in whole_lines(files[LOG])[1:]:
        states.append(states[-1] if b'"op": "checkpoint"' in line else waiting.pop(0))
    assert not waiting
    return Store(files, states, world.info_ids(), older)


class Examiner:
    """Opens spoilt stores, says what became of each, and collects what may not be."""

    def __init__(self, door: Door, store: Store) -> None:
        self.door = door
        self.store = store
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def outcome(self, changed: Mapping[str, bytes | None], hole: int | None = None) -> str:
        """Return what became of a spoilt store.

        `found`: refused, nothing changed. `rebuilt`: reported, and all is there. `harmless`: all is there. `the hole`:
        the operations from line `hole` on are cut, kept and reported. `kept`: the log has lost its end, but what the
        projections still had of it is kept aside and reported. Anything else begins with `LOST`.
        """
        files = {**self.store.files, **changed}
        try:
            disk, tree = self.store.open(self.door, changed)
        except StoreError:
            after = self.door.disk.read_all()
            after.setdefault("memory/tree/lock", b"")
            before = {"memory/tree/lock": b""} | {name: held for name, held in files.items() if held is not None}
            return "found" if after == before else f"LOST: refused, but changed {after.keys() ^ before.keys()}"
        try:
            state = state_of(tree, self.store.info_ids)
        except StoreCorruptError:
            return "found when read"
        if state == self.store.state:
            self._check_kept(files, disk)
            return "rebuilt" if tree.recovery else "harmless"
        if hole is not None and state == self.store.states[hole - 2]:
            self._check_kept(files, disk)
            return "the hole" if tree.recovery else "LOST in silence"
        if state in self.store.states and tree.recovery and self._holds_lost_rows(disk.read_all()):
            return "kept"
        return f"LOST {difference(state, self.store.state)}, reported: {tree.recovery}"

    def _holds_lost_rows(self, after: dict[str, bytes]) -> bool:
        kept = [content for name, content in after.items() if "cut_tail" in name]
        for name in PROJECTIONS.values():
            lost = self.store.files[name].removeprefix(after[name])
            if lost and not any(lost in content for content in kept):
                return False
        return True

    def _check_kept(self, files: dict[str, bytes | None], disk: FaultyDisk) -> None:
        after = disk.read_all()
        tail = torn_tail({name: held for name, held in files.items() if held is not None})
        assert not tail or tail in [held for name, held in after.items() if "cut_tail" in name]
        for kind, rows in rows_in(whole_lines(after[LOG])).items():
            assert [json.loads(row) for row in after[PROJECTIONS[kind]].split(b"\n")[:-1]] == rows

    def examine(
        self, what: str, changed: Mapping[str, bytes | None], allowed: tuple[str, ...], hole: int | None = None
    ) -> None:
        became = self.outcome(changed, hole)
        self.counts[f"{what.split(',')[0]}: {became.split(' ')[0] if became[:4] == 'LOST' else became}"] += 1
        if became not in allowed:
            self.wrong.append(f"{what}: {became}")

    def finish(self, tally: Counter[str]) -> None:
        tally.update({f"corruption, {what}": count for what, count in self.counts.items()})
        assert self.wrong == []


def some(positions: Sequence[Any], count: int, seed: object) -> Sequence[Any]:
    """Return all of them in a storm, `count` of them otherwise."""
    return positions if STORM or len(positions) <= count else random.Random(f"{SEED} {seed}").sample(positions, count)


def bits_of_newlines(log: bytes) -> list[int]:
    return [8 * match.start() + bit for match in re.finditer(b"\n", log.rstrip(b" \n")) for bit in range(8)]


class TestCorruption:
    @pytest.fixture
    def closed(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> Store:
        return small_store(door, monkeypatch, closed=True)

    @pytest.fixture
    def unclosed(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> Store:
        return small_store(door, monkeypatch, closed=False)

    def test_of_any_bit_of_a_closed_log_is_found(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        log = closed.files[LOG]
        last = log.rstrip(b"\n").rfind(b"\n") + 1  # the checkpoint that Close left: no fact is in it
        for bit in {*some(range(8 * len(log)), 300, "log"), *bits_of_newlines(log)}:
            at = bit // 8
            spoilt = log[:at] + bytes([log[at] ^ 1 << bit % 8]) + log[at + 1 :]
            allowed = ("found",) if at < last - 1 else ("found", "rebuilt")
            examiner.examine(f"bit of a closed log, {bit}", {LOG: spoilt}, allowed)
        examiner.finish(tally)

    def test_of_any_bit_of_a_projection_is_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        for name in PROJECTIONS.values():
            held = closed.files[name]
            for bit in some(range(8 * len(held)), 80, name):
                spoilt = held[: bit // 8] + bytes([held[bit // 8] ^ 1 << bit % 8]) + held[bit // 8 + 1 :]
                examiner.examine(f"bit of a projection, {name} {bit}", {name: spoilt}, ("rebuilt",))
        examiner.finish(tally)

    def test_of_a_log_that_was_not_closed_has_one_hole_and_no_other(
        self, door: Door, tally: Counter[str], unclosed: Store
    ) -> None:
        examiner = Examiner(door, unclosed)
        log = unclosed.files[LOG]
        lines = whole_lines(log)
        vouched = max(json.loads(line)["durable"] for line in lines)
        assert vouched == len(lines) - 2, "the last two were one group"
        for bit in {*some(range(8 * len(log)), 400, "unclosed"), *bits_of_newlines(log)}:
            at = bit // 8
            spoilt = log[:at] + bytes([log[at] ^ 1 << bit % 8]) + log[at + 1 :]
            line = log[:at].count(b"\n") + 1
            if line > len(lines):  # in the padding stands nothing
                allowed: tuple[str, ...] = ("rebuilt", "harmless")
            else:
                allowed = ("found", "the hole") if line > vouched else ("found",)
            examiner.examine(f"bit of an unclosed log, {bit} in line {line}", {LOG: spoilt}, allowed, line)
        examiner.finish(tally)

    def test_of_any_length_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        log = closed.files[LOG]
        last = log.rstrip(b"\n").rfind(b"\n") + 1
        borders = [match.end() + step for match in re.finditer(b"\n", log) for step in (-1, 0, 1)]
        for length in {*some(range(len(log)), 100, "length"), *borders} - {len(log), len(log) + 1}:
            allowed = ("found", "kept") if length < last else ("found", "rebuilt", "harmless")
            examiner.examine(f"log cut, to {length} bytes", {LOG: log[:length]}, allowed)
        for name in PROJECTIONS.values():
            for length in some(range(len(closed.files[name])), 30, name):
                examiner.examine(f"projection cut, {name} {length}", {name: closed.files[name][:length]}, ("rebuilt",))
        examiner.finish(tally)

    def test_of_whole_lines_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        for name in (LOG, *PROJECTIONS.values()):
            lines = closed.files[name].split(b"\n")[:-1]
            for index in range(len(lines)):
                for what, changed in (
                    ("deleted", lines[:index] + lines[index + 1 :]),
                    ("doubled", [*lines[: index + 1], *lines[index:]]),
                    ("blank", [*lines[:index], b" " * len(lines[index]), *lines[index + 1 :]]),
                    ("zeroed", [*lines[:index], b"\0" * len(lines[index]), *lines[index + 1 :]]),
                    ("emptied", [*lines[:index], b"", *lines[index + 1 :]]),
                ):
                    allowed: tuple[str, ...] = ("found",) if name == LOG else ("rebuilt",)
                    if name == LOG and index == len(lines) - 1:  # the checkpoint, in which no fact is
                        allowed = ("found", "rebuilt", "harmless")
                    elif name == LOG and index == len(lines) - 2 and what == "doubled":
                        allowed = ("found", "rebuilt")
                    examiner.examine(f"line {what}, {name} {index + 1}", {name: b"\n".join([*changed, b""])}, allowed)
                for other in range(index + 1, len(lines)):
                    swapped = lines.copy()
                    swapped[index], swapped[other] = swapped[other], swapped[index]
                    allowed = ("found",) if name == LOG else ("rebuilt",)
                    where = f"lines swapped, {name} {index + 1} {other + 1}"
                    examiner.examine(where, {name: b"\n".join([*swapped, b""])}, allowed)
        examiner.finish(tally)

    @pytest.mark.parametrize(
        ("pattern", "spoilt"),
        [
            (rb'"seq": 8', b'"seq": 9'),
            (rb'"seq": 8', b'"seq": 7'),
            (rb'"after": {"id"', b'"after": {"Id"'),
            (rb'"format": 1, ', b""),
        ],
    )
    def test_under_right_checksums_is_found(self, door: Door, closed: Store, pattern: bytes, spoilt: bytes) -> None:
        lines = closed.files[LOG].split(b"\n")[:-1]
        changed = [re.sub(pattern, spoilt, line, count=1) for line in lines]
        assert reframed(lines) == closed.files[LOG]
        assert changed != lines

        assert Examiner(door, closed).outcome({LOG: reframed(changed)}) == "found"

    @pytest.mark.parametrize(
        ("pattern", "spoilt"),
        [
            (rb'"nodes": ?{"length": ?\d', b'"nodes":{"length":7'),
            (rb'("links": ?{"length": ?\d+, ?"rows": ?)\d', rb"\g<1>7"),
            (rb'("infos": ?{"length": ?\d+, ?"rows": ?\d+, ?"crc": ?")[0-9a-f]{8}', rb"\g<1>01234567"),
            (rb'"log": ?{"length": ?\d', b'"log":{"length":7'),
            (rb'("log": ?{"length": ?\d+, ?"rows": ?\d+, ?"crc": ?")[0-9a-f]{8}', rb"\g<1>01234567"),
        ],
    )
    def test_of_a_checkpoint_under_a_right_checksum_costs_no_fact(
        self, tmp_path: Path, pattern: bytes, spoilt: bytes
    ) -> None:
        store = tmp_path / "store"
        for name in ("before", "behind"):
            with KeywordTree(str(store)) as tree:
                tree.CreateInfo(name, keyword_ids=[tree.CreateKeyword(name, "root").id])
        log = store / Path(LOG).name
        lines = log.read_bytes().split(b"\n")[:-1]
        changed = [re.sub(pattern, spoilt, line) for line in lines]
        assert sum(map(bytes.__ne__, lines, changed)) == 2
        log.write_bytes(reframed(changed))

        for _ in range(2):
            with KeywordTree(str(store)) as tree:
                assert [node.name for node in tree.GetChildren("root")][:2] == ["before", "behind"]
                tree.CreateKeyword("more", "root")
                assert tree.Verify() == []

    def test_of_blocks_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        for name in (LOG, *PROJECTIONS.values()):
            held = closed.files[name]
            last = held.rstrip(b"\n").rfind(b"\n")
            for size in (16, 64, 512, 4096):
                for start in some(range(0, len(held), size), 12, (name, size)):
                    for what, fill in (("zeros", b"\0"), ("ones", b"\xff"), ("blanks", b" "), ("newlines", b"\n")):
                        spoilt = held[:start] + (fill * size)[: len(held) - start] + held[start + size :]
                        if spoilt == held:
                            continue
                        in_log: tuple[str, ...] = ("found",) if start < last else ("found", "rebuilt", "harmless")
                        if start <= last < start + size - 1:  # the checkpoint that vouches is gone with the operation
                            in_log = ("found", "kept", "rebuilt") if start == last else ("found", "kept")
                        allowed = in_log if name == LOG else ("rebuilt",)
                        examiner.examine(f"block of {what}, {name} {start} {size}", {name: spoilt}, allowed)
        examiner.finish(tally)

    def test_of_a_file_that_is_an_older_copy_is_found_or_repaired(
        self, door: Door, tally: Counter[str], closed: Store
    ) -> None:
        examiner = Examiner(door, closed)
        for number, older in enumerate(closed.older):
            trimmed = {name: held.rstrip(b" \n") + b"\n" for name, held in older.items() if held.strip()}
            for name in (LOG, *PROJECTIONS.values()):
                for held in {older.get(name, b""), trimmed.get(name, b"")} - {closed.files[name]}:
                    allowed: tuple[str, ...] = ("found", "kept") if name == LOG else ("rebuilt",)
                    if name == LOG and len(whole_lines(held)) == len(closed.states) - 1:
                        allowed = ("found", "rebuilt", "harmless")  # all that is missing is the last checkpoint
                    examiner.examine(f"older copy, of {name} {number}", {name: held}, allowed)
            some_older = {name: older[name] for name in PROJECTIONS.values()}
            examiner.examine(f"older copies, of all projections {number}", some_older, ("rebuilt", "harmless"))
        examiner.finish(tally)

    def test_of_missing_files_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        names = (LOG, *PROJECTIONS.values())
        for chosen in range(1, 2 ** len(names)):
            missing = {name: None for bit, name in enumerate(names) if chosen >> bit & 1}
            if len(missing) < len(names):  # all files gone is a new store
                allowed = ("found",) if LOG in missing else ("rebuilt",)
                examiner.examine(f"missing, {list(missing)}", missing, allowed)
        examiner.finish(tally)

    def test_of_the_first_line_is_distinguished_from_a_log_that_is_missing(self, door: Door, closed: Store) -> None:
        for log, said in ((b"X" + closed.files[LOG][1:], "first line is damaged"), (b"", "log is missing or empty")):
            door.disk = FaultyDisk()
            door.disk.put(closed.files | {LOG: log})
            with pytest.raises(StoreCorruptError, match=said) as reported:
                KeywordTree(FOLDER)
            assert reported.value.line == 1

    def test_of_no_line_names_none(self, traps: Traps) -> None:
        tree = traps.world.trees["a"]
        info = tree.CreateInfo(LONG)
        traps.disk.spoil(LOG, traps.disk.read_all()[LOG].replace(b"too long", b"TOO LONG"))
        with pytest.raises(StoreCorruptError, match=r"^change_log\.jsonl: the content at offset") as reported:
            tree.GetInfo(info.id)
        assert reported.value.line == 0

    @pytest.mark.parametrize("blank", [b"\n", b" ", b" \n\n"])
    def test_of_a_log_that_begins_with_a_blank_is_not_an_empty_log(
        self, door: Door, closed: Store, blank: bytes
    ) -> None:
        examiner = Examiner(door, closed)
        without = dict.fromkeys(PROJECTIONS.values())
        assert examiner.outcome({LOG: blank + closed.files[LOG], **without}) in ("found", "rebuilt", "harmless")
        assert examiner.outcome({LOG: blank + closed.files[LOG][len(blank) :], **without}) == "found"


# == Power cuts ===========================================================================================


class TestPowerCuts:
    @pytest.mark.parametrize("seed", storm(1, 60))
    def test_lose_nothing_acknowledged_and_make_nothing_up(self, door: Door, tally: Counter[str], seed: int) -> None:
        world = World(door)
        moments = world.disk.record()
        world.run(workload(seed, 50 if STORM else 25))
        judge = Judge(world, random.Random(seed), 2 if STORM else 1, 0.3 if STORM else 0.02)
        judge.try_all(moments, 0.5 if STORM else 0.03, 6 if STORM else 1, 1 if STORM else 0.7)

        tally.update({f"power cuts, {what}": count for what, count in judge.counts.items()})
        assert judge.losses == []


class TestLargeBatches:
    """The real limits: 1,000 operations or 8 MiB make a checkpoint."""

    def test_that_make_a_checkpoint_lose_nothing(self, monkeypatch: pytest.MonkeyPatch, tally: Counter[str]) -> None:
        door = Door(monkeypatch)
        world = World(door)
        batch = tuple({"id": f"k{n}", "name": f"k{n}", "parent_id": "root"} for n in range(1100 if STORM else 100))
        world.run([Step("a", "open"), Step("a", "keywords", batch)])
        moments = world.disk.record()
        content = "nine MiB of text" * (9 * 65_536)
        world.spans = [(-1, -1)] * len(world.spans)
        world.run([Step("a", "info", ({"id": "i", "content": content, "keyword_ids": ["k7"]},)), step("a", "last")])
        assert any(b'"op": "checkpoint"' in line for line in whole_lines(world.disk.read_all()[LOG]))

        rng = random.Random(SEED)
        judge = Judge(world, rng, 1 if STORM else 0, 0.1 if STORM else 0)
        judge.try_all(moments, 0, 3 if STORM else 0, 1 if STORM else 0.2)
        tally.update({f"large batches, {what}": count for what, count in judge.counts.items()})
        assert judge.losses == []


# == Errors ===============================================================================================

# Not EROFS: a file system that says so once counts as read-only, see `TestReadOnlyFolder`.
ERRORS = (errno.EIO, errno.ENOSPC, errno.ENXIO, errno.EDQUOT, errno.EMFILE, errno.EINTR)
SYNCS = ("keeps", "forgets", "reverts", "tears")


class Survivor:
    """Runs a workload on a disk with a fault and checks after each step what must hold."""

    JUDGE: ClassVar[type[Judge]] = Judge

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self._judge = self.JUDGE(world, rng, 0, 0.02)
        self._again: list[Step] = []  # what failed of a group
        self._doubtful: list[Step] = []

    def run(self, steps: Sequence[Step], fault: Fault) -> None:
        disk = self.world.disk
        disk.fault = fault
        patience = 3
        waiting = list(steps)
        while waiting:
            step = waiting.pop(0)
            while True:
                raised = self._try(step)
                self._check_memory()
                waiting[:0], self._again = self._again, []
                if raised is None:
                    break
                if raised.outcome_unknown:
                    self._after_unknown(step)
                    return
                if self._refused("sync change_log") and self._refused(" lock"):
                    return  # a disk that takes no mark of its failing, either: the next process cannot know
                if step.kind in WRITES:
                    self._check_absent()
                if step.kind != "open" and self._must_reopen():
                    self._reopen_all()
                    continue
                patience -= 1
                assert patience >= 0, f"{step.kind} fails although the disk works again: {raised}"
                if patience == 0:
                    disk.heal()
        disk.heal()
        if not (self._refused("sync change_log") and self._refused(" lock")):
            self._check_end()

    def _try(self, step: Step) -> StoreError | None:
        """Take a step; return what it raised.  Only a StoreError may come out of a failing disk."""
        world = self.world
        try:
            if step.kind == "group":
                return self._try_group(step)
            world.do(step)
        except StoreError as error:
            self.counts[f"refused: {step.kind}"] += 1
            assert not isinstance(error, StoreCorruptError), (
                f"{step.kind}: a disk that fails is called corrupt: {error}"
            )
            assert step.kind != "close", f"Close raised {error!r}"
            if step.kind == "open":
                assert world.disk.open_count(step.actor) == 0, "descriptors are left open"
            return error
        if step.kind == "close":
            assert world.disk.open_count(step.actor) == 0, "descriptors are left open"
        return None

    def _try_group(self, step: Step) -> StoreError | None:
        single = [Step(step.actor, "keywords", (spec,)) for spec in step.specs]
        raised = self.world.write_together(step)
        for error in raised.values():
            assert isinstance(error, StoreError), f"group: {error!r}"
        self.counts["refused: group"] += len(raised)
        unknown = [error for error in raised.values() if isinstance(error, StoreError) and error.outcome_unknown]
        if unknown:
            self._doubtful = [single[index] for index in sorted(raised) if raised[index] in unknown]
            return unknown[0]
        if raised:
            self._check_absent()
        self._again = [single[index] for index in sorted(raised)]
        return None

    def _check_memory(self) -> None:
        for actor, tree in self.world.trees.items():
            with self.world.disk.quiet():
                found = state_of(tree, self.world.info_ids())
            assert found in self.world.states, f"the memory of {actor} holds a state that never was"

    def _refused(self, call: str) -> bool:
        return any(call in failed for failed in self.world.disk.failed_calls)

    def _must_reopen(self) -> bool:
        """Say whether a tree may ask for being opened again: a checkpoint that failed, say, was not reported."""
        return self._refused("sync change_log") or self._refused("ftruncate change_log")

    def _reopen_all(self) -> None:
        """Do what a tree asks for after a failed sync, its own or that of another."""
        self.world.disk.heal()
        self._judge.may_mend |= any(self._refused(f"sync {kind}") for kind in PROJECTIONS)
        self.world.disk.failed_calls.clear()
        for actor in list(self.world.trees):
            self.world.do(Step(actor, "close"))
            self.world.do(Step(actor, "open"))
        self._check_memory()

    def _check_absent(self) -> None:
        """What failed did not happen: not for those who open the folder now, and not after a power cut."""
        self._check_disk(len(self.world.states) - 1, len(self.world.states) - 1, 0.1)

    def _check_disk(self, least: int, most: int, rarity: float) -> None:
        """Let processes die here and the power go: what is opened then is one of the states from `least` to `most`."""
        disk = self.world.disk
        moment = disk.now()
        self._judge.may_mend |= any(self._refused(f"sync {kind}") for kind in PROJECTIONS)
        modes = [Mode("killed"), Mode("none"), *(modes_of(moment, self.rng, rarity, 1) if rarity else ())]
        try:
            for mode in modes:
                self.counts["states"] += 1
                where = f"then {mode}"
                self._judge.try_one(moment, mode, least, most, where)
                assert self._judge.losses == [], self._judge.losses[0]
        finally:
            self.world.disk = self.world.door.disk = disk

    def _after_unknown(self, step: Step) -> None:
        """After a failed sync nobody writes, until the folder is opened again and the log has become a new file."""
        self.counts["outcome unknown"] += 1
        world, disk = self.world, self.world.disk
        disk.heal()
        known = len(world.states) - 1
        doubtful = self._doubtful if step.kind == "group" else [step] if step.kind in WRITES else []
        # Where the disk refused the mark, too, only the tree itself can know.
        is_marked = self._refused("sync change_log") and not self._refused(" lock")
        # A tree that failed while it opened the log again opens it again when it is next read, and copies it then.
        is_marked &= disk.read_all()["memory/tree/lock"] != b""
        for number, (actor, tree) in enumerate(world.trees.items()):
            if not is_marked and (actor != step.actor or not inside.knows_of_a_failed_sync(tree)):
                continue
            try:
                tree.BatchCreateKeywords([{"id": f"refused-{number}", "name": "refused", "parent_id": "root"}])
            except StoreError:
                continue
            raise AssertionError("a tree writes although nobody knows what the disk holds")
        self._check_memory()
        for one in doubtful:
            world.foresee(one)
        if is_marked:
            self._check_disk(known, len(world.states) - 1, 0.1)
        log = f"{FOLDER}/change_log.jsonl"
        before = disk.stat(log).st_ino
        for actor in world.trees:
            disk.kill(actor)
        world.trees.clear()
        disk.owner = "later"
        again = world.tree()
        if is_marked:
            assert disk.stat(log).st_ino != before, "the log was not copied to a new file"
            assert again.recovery != ()
        again.BatchCreateKeywords([{"id": "later", "name": "later", "parent_id": "root"}])
        if is_marked:
            world.door.disk = disk.now().cut_power(Mode("none"))
            found = {node.id for node in KeywordTree(FOLDER).GetChildren("root")}
            world.door.disk = disk
            assert "later" in found, "what was written after a failed sync is lost"

    def _check_end(self) -> None:
        world = self.world
        if self._must_reopen():
            self._reopen_all()
        for number, (actor, tree) in enumerate(world.trees.items()):
            world.disk.owner = actor
            world.do(Step(actor, "keyword", ({"id": f"end-{number}", "name": "end", "parent_id": "root"},)))
            self._check_memory()
            with world.disk.quiet():
                assert state_of(tree, world.info_ids()) == world.states[-1]
        self._check_disk(len(world.states) - 1, len(world.states) - 1, 0)
        for actor in list(world.trees):
            world.do(Step(actor, "close"))
        self._check_disk(len(world.states) - 1, len(world.states) - 1, 0)


def faults_at(call: int, name: str, rng: random.Random) -> Iterator[Fault]:
    """Yield the ways in which one call can fail; without a storm a few of them."""
    errors = ERRORS if STORM else (rng.choice(ERRORS),)
    for error in errors:
        for lasts in (1, 2, math.inf):
            if "sync" in name:
                for sync in SYNCS if STORM else (rng.choice(SYNCS),):
                    yield Fault(call, error, lasts, sync=sync)
                    yield Fault(call, error, lasts, frozenset((name,)), sync=sync)
            else:
                yield Fault(call, error, lasts, sync=rng.choice(SYNCS))
            if name == "pwrite":
                for short in (1, 300, 10**9) if STORM else (rng.choice((1, 300, 2000)),):
                    yield Fault(call, error, lasts, short=short)
                    yield Fault(call, error, lasts, frozenset(("pwrite", "ftruncate")), short=short)


EVERYTHING = (  # once, with two trees, so that one takes in what the other wrote, and checkpoints
    Step("a", "open"),
    Step("a", "keyword", ({"id": "k1", "name": "first", "parent_id": "root", "aliases": ["1st"]},)),
    Step("a", "info", ({"id": "i1", "content": LONG, "keyword_ids": ["k1"]},)),
    Step("b", "open"),
    Step("b", "read", ({"id": "i1"},)),
    Step("b", "info", ({"id": "i2", "content": "short", "keyword_ids": ["k1", "root"]},)),
    Step("a", "refresh"),
    Step("a", "group", tuple({"id": f"g{n}", "name": f"group {n}", "parent_id": "k1"} for n in range(3))),
    Step("b", "link", ({"info_id": "i1", "keyword_id": "g1", "relation": "SOURCE"},)),
    Step("b", "infos", tuple({"id": f"b{n}", "content": f"{n} {LONG}", "keyword_ids": ["g2"]} for n in range(4))),
    Step("b", "close"),
    Step("a", "link", ({"info_id": "i1", "keyword_id": "g1", "relation": "EXAMPLE"},)),
    Step("a", "keywords", tuple({"id": f"k{n}", "name": f"k {n}" * 40, "parent_id": "g0"} for n in range(2, 9))),
    Step("a", "close"),
    Step("a", "open"),
    Step("a", "info", ({"id": "i3", "content": "the last"},)),
)


class TestErrors:
    @pytest.mark.parametrize("seed", storm(1, 20))
    def test_of_any_call_leave_memory_and_disk_as_they_were(self, door: Door, tally: Counter[str], seed: int) -> None:
        rng = random.Random(f"errors {seed}")
        steps = workload(seed, 14) if seed else EVERYTHING
        calm = World(door)
        calm.run(steps)
        failures: list[str] = []
        calls = list(enumerate(calm.disk.calls))
        cases = [(call, name, fault) for call, name in calls for fault in faults_at(call, name.split(" ")[0], rng)]
        for _, name, fault in within_budget(cases, rng):
            if not STORM and rng.random() < 0.975:
                continue
            world = World(door)
            survivor = Survivor(world, rng)
            try:
                survivor.run(steps, fault)
            except Exception as error:
                failures.append(f"seed {seed}, {name}, {fault}: {type(error).__name__}: {str(error)[:500]}")
            tally["errors, runs"] += 1
            tally.update({f"errors, {what}": count for what, count in survivor.counts.items()})

        assert failures == []


# == Change, undo, snapshots, compaction ==================================================================
#
# What these give follows from the states before them: an undo leads to the one
# before its operation, a restore to the one at its snapshot, a compaction and
# a snapshot change nothing.


def calls(actor: str, *made: tuple[Any, ...]) -> Step:
    """Return a step of one call, or of an operation of many: the method's name, then its arguments."""
    return Step(actor, "calls", tuple({"method": method, "arguments": arguments} for method, *arguments in made))


SECRET = "nobody is to find this again"
SAGA = (
    Step("a", "open"),
    calls("a", ("BatchCreateKeywords", [{"id": f"k{n}", "name": f"k{n}", "parent_id": "root"} for n in range(4)])),
    calls("a", ("BatchCreateInfos", [{"id": "i1", "content": LONG, "keyword_ids": ["k1", "k3"]}])),
    Step("b", "open"),
    Step("a", "snapshot"),
    calls(
        "b",
        ("MoveKeyword", "k3", "k2"),
        ("AddAlias", "k2", "two"),
        ("BatchCreateInfos", [{"id": "i2", "content": SECRET, "keyword_ids": ["k3"]}]),
        ("LinkInfo", "i1", "k2", RelationType.EXAMPLE),
        ("MergeKeywords", "k0", "k1"),
        ("UpdateInfo", "i1", {"content": f"changed {LONG}"}),
        ("UnlinkInfo", "i1", "k3"),
    ),
    Step("a", "copy"),
    Step("a", "undo"),
    Step("b", "compact"),
    calls("a", ("DeleteKeyword", "k2", True, "detach")),
    Step("b", "restore"),
    Step("a", "compact"),
    calls("b", ("DeleteInfo", "i2")),
    Step("a", "forget"),
    calls("b", ("AddAlias", "k1", "one")),
    Step("b", "undo"),
    Step("a", "close"),
    Step("a", "open"),
    calls("a", ("Confirm", "the first", "k1")),
    Step("b", "compact"),
    calls("a", ("BatchCreateKeywords", [{"id": "last", "name": "the last", "parent_id": "k1"}])),
)


class Kept(NamedTuple):
    """A snapshot that was acknowledged."""

    name: str
    state: Held
    moment: int


class Saga(World):
    """A world with all methods; `calm` are the states that it is to go through."""

    def __init__(self, door: Door, disk: FaultyDisk | None = None, calm: Sequence[Held] = ()) -> None:
        super().__init__(door, disk)
        self.calm = calm
        self.kept: list[Kept] = []
        self.last_operation = ""
        self.named: list[str] = []  # snapshots that the last compaction named
        self.forgotten_at: float = math.nan  # which nothing is behind

    def info_ids(self) -> list[str]:
        return ["i1", "i2", "i3", "i4"]

    def foresee(self, step: Step) -> None:
        self.states.append(self.calm[len(self.states)])

    def do(self, step: Step) -> None:
        if step.kind in ("snapshot", "copy"):
            self.disk.owner = step.actor
            name = self.trees[step.actor].Snapshot(step.kind == "copy")
            self.kept.append(Kept(name, self.states[-1], self._moment_count()))
        elif step.kind in ("compact", "forget"):
            self.disk.owner = step.actor
            self.named = self.trees[step.actor].CompactStorage(step.kind == "compact")["snapshots"]
            if step.kind == "forget":
                self.forgotten_at = self._moment_count() if self.disk.moments else 0
        else:
            super().do(step)

    def write(self, tree: KeywordTree, step: Step) -> None:
        if step.kind == "undo":
            tree.Undo(self.last_operation)
        elif step.kind == "restore":
            tree.Restore(self.kept[-1].name)
        elif step.kind != "calls":
            super().write(tree, step)
        elif len(step.specs) == 1:
            self._call(tree, step.specs[0])
        else:
            with tree.Operation("many"):
                for spec in step.specs:
                    self._call(tree, spec)

    def _call(self, tree: KeywordTree, spec: dict[str, Any]) -> None:
        getattr(tree, spec["method"])(*copy.deepcopy(spec["arguments"]))

    def _acknowledge(self, step: Step, index: int) -> None:
        self.spans[index] = (self.spans[index][0], self._moment_count())
        tree = self.trees[step.actor]
        with self.disk.quiet():
            self.states.append(state_of(tree, self.info_ids()))
            if step.kind == "calls":
                self.last_operation = tree.History(limit=1)[0].operation_id
        if len(self.states) <= len(self.calm):
            assert self.states[-1] == self.calm[len(self.states) - 1]


def calm_saga(door: Door) -> Saga:
    """Return the saga's world after a run without faults, which is compared with what the methods promise."""
    world = Saga(door)
    world.run(SAGA)
    _, _, _, many, undone, deleted, restored, *_ = world.states
    assert undone == world.states[2] != many
    assert restored == world.kept[-1].state == many != deleted
    assert world.states[-3] == world.states[-5] != world.states[-4]  # one more operation undone, behind "forget"
    return world


class SagaJudge(Judge):
    """Looks also at what undo, snapshots and compactions leave."""

    world: Saga

    def _check_more(self, disk: FaultyDisk, tree: KeywordTree) -> None:
        with disk.quiet():
            assert tree.Verify() == []
            reported = tree.History(limit=1000)
        assert [change.seq for change in reported] == sorted({change.seq for change in reported}, reverse=True)
        ids = [change.operation_id for change in reported]
        assert len(ids) == len(set(ids)), "an operation stands twice in the history"
        files = disk.read_all()
        if self.index >= self.world.forgotten_at:
            allowed = {f"memory/tree/snapshots/{name}/change_log.jsonl" for name in self.world.named}
            holding = {name for name, held in files.items() if SECRET.encode() in held}
            assert holding <= allowed, f"forgotten, and yet in {holding - allowed}"
        for kept in self.world.kept:
            if kept.moment <= self.index and self.rng.random() < 0.3:
                self._restore(disk.now().resume(), kept)
        self.world.disk = self.world.door.disk = disk

    def _restore(self, disk: FaultyDisk, kept: Kept) -> None:
        tree, before = self._open(disk)
        with disk.quiet():
            done = tree.Restore(kept.name)
            assert state_of(tree, self.world.info_ids()) == kept.state
            if kept.state != before:
                tree.Undo(done)
            assert state_of(tree, self.world.info_ids()) == before


class TestMethodsUnderPowerCuts:
    @pytest.mark.parametrize("has_links", [True, False], ids=["with hard links", "without"])
    def test_lose_nothing_and_leave_no_part(
        self, door: Door, tally: Counter[str], monkeypatch: pytest.MonkeyPatch, has_links: bool
    ) -> None:
        world = Saga(door)
        if not has_links:
            refuse_links(monkeypatch)
        moments = world.disk.record()
        world.run(SAGA)
        judge = SagaJudge(world, random.Random(f"saga {SEED}"), 2 if STORM else 1, 0.2 if STORM else 0.01)
        judge.try_all(moments, 0.5 if STORM else 0.02, 6 if STORM else 1, 1 if STORM else 0.15)

        tally.update({f"power cuts in methods, {what}": count for what, count in judge.counts.items()})
        assert judge.losses == []


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a file system without hard links."""

    def refuse(self: Any, path: str, new_path: str) -> None:
        raise inside.refusal(errno.EPERM)

    monkeypatch.setattr(inside.Files, "Link", refuse)


class TestMethodsOfADyingProcess:
    """One process dies at each call of a method; another has the tree open and lives on."""

    BEFORE = SAGA[:7]
    WORK: ClassVar[dict[str, Step]] = {
        "snapshot": Step("b", "snapshot"),
        "copy": Step("b", "copy"),
        "restore": Step("b", "restore"),
        "undo": Step("b", "undo"),
        "compact": Step("b", "compact"),
        "forget": Step("b", "forget"),
        "calls": calls("b", ("MoveKeyword", "k1", "k3"), ("DeleteKeyword", "k2", False, "reattach")),
        "infos": calls("b", ("BatchCreateInfos", [{"id": id, "content": f"{id} {LONG}"} for id in ("i3", "i4")])),
        "open": Step("c", "open"),
        "close": Step("b", "close"),
    }

    @pytest.mark.parametrize("kind", WORK)
    def test_leave_the_others_and_the_disk_whole(self, door: Door, tally: Counter[str], kind: str) -> None:
        rng = random.Random(f"dying {kind} {SEED}")
        work = self.WORK[kind]
        calm = Saga(door)
        calm.run(self.BEFORE)
        if kind == "restore":
            calm.do(calls("a", ("DeleteInfo", "i1")))
        before = calm.disk.call_count
        calm.do(work)
        wanted = calm.states[-1]
        count = calm.disk.call_count - before
        for call in range(count) if STORM else sorted(rng.sample(range(count), min(count, 9))):
            world = Saga(door)
            world.run(self.BEFORE)
            if kind == "restore":
                world.do(calls("a", ("DeleteInfo", "i1")))
            world.disk.kill_at(work.actor, world.disk.call_count + call, rng.choice((0, 1, 100, 700)))
            with contextlib.suppress(Killed):
                world.do(work)
            tally["deaths in methods"] += 1
            self.go_on(world, wanted, rng, f"death at call {call} of {kind}")

    def go_on(self, world: Saga, wanted: Held, rng: random.Random, where: str) -> None:
        """Let another process read and write, in several ways, then cut the power."""
        states = world.states[-1], wanted
        tree, disk = world.trees["a"], world.disk
        disk.owner = "a"
        info = tree.GetInfo("i1")  # readers go on without the lock
        assert info is None or info.content.endswith(LONG), where
        if rng.random() < 0.5:
            tree.Refresh()
            assert state_of(tree, world.info_ids()) in states, where
        way = rng.choice(("write", "compact", "snapshot"))
        if way == "compact":
            tree.CompactStorage(rng.random() < 0.5)
        name = tree.Snapshot(rng.random() < 0.5) if way == "snapshot" else ""
        tree.BatchCreateKeywords([{"id": "later", "name": "later", "parent_id": "root"}])
        # A compaction that died has put projections in place that this tree does not have open.
        assert [problem for problem in tree.Verify() if not problem.endswith("opening corrects it")] == [], where
        reported = [change.seq for change in tree.History(limit=1000)]
        assert reported == sorted(set(reported), reverse=True), f"{where}, then {way}: the history has {reported}"
        found = state_of(tree, world.info_ids())
        disk.owner = "another"
        moment = disk.now()
        for mode in (Mode("none"), Mode("all"), Mode("torn", rng.randrange(10**9))):
            world.disk = world.door.disk = moment.cut_power(mode)
            other = world.tree()
            assert state_of(other, world.info_ids()) == found, f"{where}, then {way}, then {mode}"
            assert other.Verify() == []
            if name:
                other.Restore(name)
                assert state_of(other, world.info_ids()) in states, f"{where}, then {way}, then {mode}, restored"


class SagaSurvivor(Survivor):
    JUDGE = SagaJudge


class TestMethodsOnAFailingDisk:
    @pytest.mark.parametrize("seed", storm(1, 4))
    def test_leave_memory_and_disk_as_they_were(self, door: Door, tally: Counter[str], seed: int) -> None:
        rng = random.Random(f"failing methods {seed}")
        calm = calm_saga(door)
        failures: list[str] = []
        calls = list(enumerate(calm.disk.calls))
        cases = [(call, name, fault) for call, name in calls for fault in faults_at(call, name.split(" ")[0], rng)]
        for call, name, fault in within_budget(cases, rng):
            if not STORM and rng.random() > 0.004:
                continue
            world = Saga(door, calm=calm.states)
            survivor = SagaSurvivor(world, rng)
            try:
                survivor.run(SAGA, fault)
            except Exception as error:
                failures.append(f"seed {seed}, {call} {name}, {fault}: {type(error).__name__}: {str(error)[:500]}")
            tally["errors in methods, runs"] += 1
            tally.update({f"errors in methods, {what}": count for what, count in survivor.counts.items()})

        assert failures == []


# == Replaced logs and clocks =============================================================================


class Clock:
    """Stands where the module's `time` stood, and stamps the disk's files: one clock that a test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, granularity_ns: int) -> None:
        self.now_ns = 1_700_000_000 * 10**9
        self.granularity_ns = granularity_ns
        for name in ("gmtime", "strftime", "monotonic", "sleep"):
            setattr(self, name, getattr(time, name))
        inside.replace_clock(monkeypatch, self)

    def time(self) -> float:
        return self.now_ns / 1e9

    def time_ns(self) -> int:
        return self.now_ns

    def stamp(self) -> int:
        return self.now_ns // self.granularity_ns * self.granularity_ns


SECOND = 10**9


class TestReplacedLog:
    """One that has a log open which another has replaced must notice it before the next write, whatever clocks say."""

    @pytest.mark.parametrize(
        "granularity_ns",
        [1, 4_000_000, 10_000_000, SECOND, 2 * SECOND],
        ids=["to the nanosecond", "4 ms", "10 ms, exFAT", "1 s, ext3", "2 s, FAT"],
    )
    @pytest.mark.parametrize("method", ["compact", "repaired by a copy"])
    def test_is_noticed_however_coarse_the_stamps_are(
        self, door: Door, monkeypatch: pytest.MonkeyPatch, granularity_ns: int, method: str
    ) -> None:
        steps_ns = (0, 1, granularity_ns // 2, granularity_ns, 90_000_000, 110_000_000, SECOND // 2, 3 * SECOND // 2)
        rng = random.Random(f"{SEED} {granularity_ns}")
        for turn in range(400 if STORM else 6):
            clock = Clock(monkeypatch, granularity_ns)
            clock.now_ns += rng.randrange(SECOND)
            traps = Traps(door)
            traps.disk.clock = clock.stamp
            traps.world.run([Step("a", "open"), step("a", "first"), Step("b", "open")])
            for number in range(3):
                clock.now_ns += rng.choice(steps_ns)
                traps.world.do(Step("a", "refresh"))  # a looks here, and must look again behind the change to come
                clock.now_ns += rng.choice(steps_ns)
                if method == "compact":
                    traps.world.trees["b"].CompactStorage()
                else:
                    traps.fault(errno.EIO, 1, "fdatasync")
                    traps.fails(step("b", f"doubtful {number}"))
                    traps.world.run([Step("b", "open")])
                clock.now_ns += rng.choice(steps_ns)
                traps.world.do(step("a", f"k{number}"))
                assert f"k{number}" in traps.names_after(Mode("none")), f"turn {turn}, {clock.now_ns}"

    def test_is_noticed_when_the_folder_s_time_was_set_back(self, door: Door) -> None:
        """As programs do that copy folders; a folder's time hardly ever changes, so it is the old one to the dot."""
        traps = Traps(door)
        traps.disk.clock = lambda: time.time_ns() - 60 * SECOND  # long settled
        traps.world.run([Step("a", "open"), step("a", "first"), Step("b", "open"), Step("a", "refresh")])
        before = traps.disk.stat(FOLDER).st_mtime_ns
        traps.world.trees["b"].CompactStorage()
        traps.disk.set_folder_time(FOLDER, before)
        traps.world.do(step("a", "next"))

        assert "next" in traps.names_after(Mode("none"))

    def test_is_noticed_when_the_lock_was(self, traps: Traps) -> None:
        """Two locks exclude nobody: who holds the old one would write where another is writing."""
        world, disk = traps.world, traps.disk
        disk.remove(f"{FOLDER}/lock")
        world.do(Step("c", "open"))
        errors: list[BaseException] = []

        def write() -> None:
            try:
                world.write(world.trees["a"], step("a", "of a"))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=write, daemon=True)

        def step_in() -> None:
            thread.start()
            deadline = time.monotonic() + 1
            while thread.is_alive() and not disk.waiting_count and time.monotonic() < deadline:
                time.sleep(0.001)

        with traps.at(WRITE, 1, step_in):
            world.write(world.trees["c"], step("c", "of c"))
        thread.join(20)

        assert errors == []
        assert traps.names_after(Mode("none")) == {"first", "of a", "of c"}

    def test_is_noticed_when_the_lock_was_while_an_opening_waited_for_it(self, traps: Traps) -> None:
        world, disk = traps.world, traps.disk
        opened: list[KeywordTree] = []
        thread = threading.Thread(target=lambda: opened.append(world.tree()), daemon=True)

        def step_in() -> None:
            thread.start()
            wait_until(lambda: disk.waiting_count > 0)
            disk.remove(f"{FOLDER}/lock")

        with traps.at(WRITE, 1, step_in):
            world.write(world.trees["a"], step("a", "of a"))
        thread.join(20)

        assert disk.fstat(inside.lock_descriptor(opened[0])).st_ino == disk.stat(f"{FOLDER}/lock").st_ino
        world.write(opened[0], step("b", "of b"))
        world.write(world.trees["a"], step("a", "more of a"))
        assert traps.names_after(Mode("none")) == {"first", "of a", "of b", "more of a"}

    def test_is_noticed_when_the_whole_folder_was_replaced(self, door: Door, traps: Traps) -> None:
        traps.world.do(Step("a", "refresh"))
        disk = traps.disk
        disk.put({name.replace("/tree/", "/other/"): held for name, held in disk.read_all().items()})
        disk.set_folder_time("/disk/memory/other", disk.stat(FOLDER).st_mtime_ns)  # a copy that keeps times
        disk.replace("/disk/memory/tree", "/disk/memory/gone")
        disk.replace("/disk/memory/other", "/disk/memory/tree")
        traps.world.do(step("a", "next"))

        assert traps.names_after(Mode("killed")) == {"first", "next"}


# == Folders that can only be read ========================================================================


def readonly(disk: FaultyDisk, error: int) -> FaultyDisk:
    disk.readonly_error = error
    return disk


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
class TestReadOnlyFolder:
    """It opens for reading, and nobody so much as tries to write: but for the one call that finds it out."""

    FINDS_OUT: ClassVar[list[str]] = ["open lock"]

    def check(self, world: World, disk: FaultyDisk) -> None:
        """Use every method that reads, and some that write, and close."""
        before = disk.read_all()
        world.disk = disk
        disk.owner = "reader"
        tree = world.tree()
        assert state_of(tree, world.info_ids()) == world.states[-1]
        tree.Refresh()
        assert tree.Verify() is not None
        assert tree.TreeMetrics()["keywords"] == len(world.states[-1].nodes) - 1
        assert len(tree.History(limit=3)) <= len(list(tree.Changes())) + 3
        assert tree.Search("first", False) is not None
        for write in (
            lambda: tree.CreateKeyword("refused", "root"),
            lambda: tree.BatchCreateInfos([{"content": "refused"}]),
            tree.Snapshot,
            tree.CompactStorage,
            lambda: tree.CompactStorage(False),
        ):
            with pytest.raises(StoreError):
                write()
        assert state_of(tree, world.info_ids()) == world.states[-1]
        tree.Close()

        assert disk.refused_changes == self.FINDS_OUT
        assert disk.read_all() == before
        assert disk.open_count("reader") == 0

    @pytest.mark.parametrize("count", range(2, len(SAGA) + 1))
    def test_is_read_and_left_as_it_is(self, door: Door, error: int, count: int) -> None:
        world = Saga(door)
        world.run(SAGA[:count])

        self.check(world, readonly(world.disk.now().resume(), error))

    @pytest.mark.parametrize("kind", PROJECTIONS)
    @pytest.mark.parametrize("damage", ["missing", "spoilt", "too long", "unreadable"])
    def test_is_read_without_its_projections(self, door: Door, error: int, kind: str, damage: str) -> None:
        world = Saga(door)
        world.run([*SAGA[:3], Step("a", "close")])
        disk, name = world.disk.now().resume(), PROJECTIONS[kind]
        if damage == "missing":
            disk.remove(f"/disk/{name}")
        elif damage == "unreadable":

            def fail(call: str) -> None:
                if call == f"open {kind}.jsonl":
                    disk.fault, disk.failed_calls = Fault(disk.call_count, errno.EACCES), []

            disk.listeners.append(fail)
        else:
            held = disk.read_all()[name]
            disk.spoil(name, held[:-9] + b"X" * 9 if damage == "spoilt" else held + held)

        self.check(world, readonly(disk, error))

    def test_is_read_with_a_torn_tail(self, door: Door, error: int) -> None:
        world = Saga(door)
        world.run(SAGA[:6])
        disk = world.disk.now().resume()
        log = disk.read_all()[LOG].rstrip(b" \n")
        disk.spoil(LOG, log + b'\n{"crc": "0a1b2c3d", "seq": 99, "prev"')

        self.check(world, readonly(disk, error))

    def test_sees_what_a_writer_elsewhere_adds_at_any_moment(self, door: Door, error: int) -> None:
        """A folder mounted twice, once for reading alone: the reader has no lock."""
        world = Saga(door)
        world.run(SAGA[:3])
        disk = world.disk
        disk.listeners.append(lambda call: syncs.append(call) if disk.owner == "reader" else None)
        syncs: list[str] = []
        for target in range(12):
            self.switch(disk, error, "reader")
            reader = world.tree()
            calls = 0

            def listen(call: str, target: int = target) -> None:
                nonlocal calls
                calls += call == "pread change_log.jsonl"
                if disk.owner == "reader" and calls == target:
                    self.switch(disk, 0, "a")
                    for number in range(3):
                        world.trees["a"].BatchCreateKeywords(
                            [{"id": f"n{target}.{number}", "name": "n", "parent_id": "root"}]
                        )
                    self.switch(disk, error, "reader")

            self.switch(disk, 0, "a")
            world.trees["a"].BatchCreateKeywords([{"id": f"m{target}", "name": "m", "parent_id": "root"}])
            self.switch(disk, error, "reader")
            disk.listeners.append(listen)
            reader.Refresh()
            disk.listeners.remove(listen)
            reader.Refresh()
            found = {child.id for child in reader.GetChildren("root")}
            self.switch(disk, 0, "a")
            assert found == {child.id for child in world.trees["a"].GetChildren("root")}
            reader.Close()
        assert [call for call in syncs if call.startswith("fdatasync")] == []

    def switch(self, disk: FaultyDisk, error: int, owner: str) -> None:
        disk.readonly_error, disk.owner = error, owner

    def test_is_sound_while_a_writer_elsewhere_is_in_the_middle_of_a_write(self, door: Door, error: int) -> None:
        world = Saga(door)
        world.run(SAGA[:3])
        disk = world.disk
        self.switch(disk, error, "reader")
        reader = world.tree()
        problems: list[str] = []
        recovered: list[tuple[str, ...]] = []

        def look(_: str) -> None:
            if disk.owner == "a":
                self.switch(disk, error, "reader")
                with disk.quiet():
                    reader.Refresh()
                    recovered.append(reader.recovery)
                    problems.extend(reader.Verify())
                self.switch(disk, 0, "a")

        self.switch(disk, 0, "a")
        disk.fault = Fault(disk.call_count, errno.EIO, 1, frozenset(["pwrite"]), 30)  # and the rest in a second write
        disk.listeners.append(look)
        world.trees["a"].BatchCreateKeywords([{"id": "half", "name": "half", "parent_id": "root"}])
        disk.listeners.remove(look)
        self.switch(disk, error, "reader")

        assert [reported for reported in recovered if reported] != []
        assert problems == []
        reader.Refresh()
        assert "half" in {child.id for child in reader.GetChildren("root")}
        assert reader.recovery == ()

    def test_reads_the_log_that_took_the_place_of_the_one_it_opened(self, door: Door, error: int) -> None:
        traps = Traps(door)
        traps.world.run([Step("a", "open"), step("a", "first")])
        disk = traps.disk

        def replace() -> None:
            self.switch(disk, 0, "a")
            traps.world.trees["a"].CompactStorage()
            traps.world.do(step("a", "second"))
            self.switch(disk, error, "reader")

        self.switch(disk, error, "reader")
        with traps.at("stat change_log.jsonl", 1, replace):
            reader = traps.world.tree()
        reader.Refresh()

        assert {child.id for child in reader.GetChildren("root")} == {"first", "second"}

    def test_follows_a_log_that_was_replaced_while_it_was_open(self, door: Door, error: int) -> None:
        traps = Traps(door)
        traps.world.run([Step("a", "open"), step("a", "first")])
        self.switch(traps.disk, error, "reader")
        reader = traps.world.tree()
        self.switch(traps.disk, 0, "a")
        traps.world.trees["a"].CompactStorage()
        traps.world.do(step("a", "second"))
        self.switch(traps.disk, error, "reader")
        reader.Refresh()

        assert {child.id for child in reader.GetChildren("root")} == {"first", "second"}
        assert reader.Verify() == []

    def test_that_holds_no_store_is_refused(self, door: Door, error: int) -> None:
        door.disk.put({"memory/tree/something": b"else"})
        readonly(door.disk, error)
        with pytest.raises(StoreError):
            KeywordTree(FOLDER)


# == The fast opening =====================================================================================


class TestOpeningFromACheckpoint:
    """The rows come from the projections: only where all four files are, to the last bit, what was checkpointed."""

    def test_reads_no_line_of_the_log_before_it(self, door: Door) -> None:
        world = Saga(door)
        world.run([*SAGA[:7], Step("a", "close"), Step("b", "close")])
        with pytest.MonkeyPatch.context() as patch:
            read: list[bytes] = []
            inside.note_lines_read(patch, read.append)
            world.do(Step("a", "open"))

        assert {json.loads(raw)["op"] for raw in read} == {"checkpoint"}
        assert len(read) <= 2
        assert state_of(world.trees["a"], world.info_ids()) == world.states[-1]

    @pytest.mark.parametrize("is_compacted", [False, True])
    def test_serves_nothing_that_was_changed(self, door: Door, tally: Counter[str], is_compacted: bool) -> None:
        """Values of rows, in the log and in the projections, alone and in several at once."""
        world = Saga(door)
        world.run(
            [*SAGA[:7], *([Step("a", "compact")] if is_compacted else []), Step("a", "close"), Step("b", "close")]
        )
        files = world.disk.read_all()
        tries = 0
        for old, new in ((b"k3", b"k4"), (b"two", b"TWO"), (b"nobody", b"NOBODY"), (b"memory", b"Memory"),
                         (b"PRIMARY", b"SOURCE_"), (b"false", b"true ")):  # fmt: skip
            for chosen in range(1, 16):
                changed = dict(files)
                for bit, name in enumerate((LOG, *PROJECTIONS.values())):
                    if chosen >> bit & 1:
                        changed[name] = files[name].replace(old, new)
                if changed == files:
                    continue
                tries += 1
                disk = FaultyDisk()
                disk.put(changed)
                world.disk = disk
                try:
                    tree = world.tree()
                except StoreCorruptError:
                    assert changed[LOG] != files[LOG]
                    assert {**disk.read_all(), "memory/tree/lock": b""} == {**changed, "memory/tree/lock": b""}
                    continue
                assert changed[LOG] == files[LOG]
                assert state_of(tree, world.info_ids()) == world.states[-1]
                assert tree.recovery != ()
        tally["corruption, values changed before a checkpoint"] += tries
        assert tries > 30

    def test_of_a_newer_format_is_refused(self, door: Door) -> None:
        world = Saga(door)
        world.run([*SAGA[:3], Step("a", "close")])
        files = world.disk.read_all()
        for compacted in (False, True):
            if compacted:
                world.run([Step("a", "open"), Step("a", "compact"), Step("a", "close")])
                files = world.disk.read_all()
            lines = files[LOG].split(b"\n")[:-1]
            lines[0] = lines[0].replace(b'"format": 1', b'"format": 2')
            *lines, last = reframed(lines).split(b"\n")[:-1]
            crc = b"%08x" % zlib.crc32(b"\n".join([*lines, b""]))
            last = re.sub(rb'("log": ?{[^}]*"crc": ?")[0-9a-f]{8}', rb"\g<1>" + crc, last)
            door.disk = FaultyDisk()
            door.disk.put({**files, LOG: reframed([*lines, last])})
            with pytest.raises(StoreError, match="newer"):
                KeywordTree(FOLDER)
            for said in (b"null", b"[1]", b'{"log": 7}', b'{"log": {}}'):  # its checkpoints may be other ones
                door.disk = FaultyDisk()
                changed = re.sub(rb'"files": {.*?}}', b'"files": ' + said, last)
                door.disk.put({**files, LOG: reframed([*lines, changed])})
                with pytest.raises(StoreError, match="newer"):
                    KeywordTree(FOLDER)


# == Snapshots and history ================================================================================


class TestSharedFiles:
    """A snapshot and the history share the log's bytes with it: what becomes of the one must not spoil the other."""

    def test_a_snapshot_s_every_bit_is_checked(self, door: Door, tally: Counter[str]) -> None:
        world = Saga(door)
        world.run([*SAGA[:3], Step("a", "copy")])
        name = world.kept[0].name
        path = f"memory/tree/snapshots/{name}/change_log.jsonl"
        held = world.disk.read_all()[path]
        for bit in some(range(8 * len(held)), 200, "snapshot"):
            world.disk.spoil(path, held[: bit // 8] + bytes([held[bit // 8] ^ 1 << bit % 8]) + held[bit // 8 + 1 :])
            with pytest.raises(StoreCorruptError):
                world.trees["a"].Restore(name)
            tally["corruption, bit of a snapshot: found"] += 1
        for length in some(range(len(held)), 50, "cut snapshot"):
            world.disk.spoil(path, held[:length])
            with pytest.raises(StoreCorruptError):
                world.trees["a"].Restore(name)
        world.disk.spoil(path, held)
        world.trees["a"].Restore(name)

        assert state_of(world.trees["a"], world.info_ids()) == world.states[-1]

    def test_a_projection_is_not_cut_for_a_log_that_has_changed_under_the_store(self, traps: Traps) -> None:
        traps.world.run([step("a", "second"), step("a", "third")])
        traps.disk.kill("a")
        files = traps.disk.read_all()
        damaged = files[LOG].replace(b"of second", b"Of second")
        nodes = LOG.replace("change_log", "nodes")
        files[nodes] = files[nodes][:-1]
        traps.disk.spoil(nodes, files[nodes])
        # Behind the reading of the log, and before the projections are fixed from it.
        with (
            traps.at("open nodes.jsonl", 1, lambda: traps.disk.spoil(LOG, damaged)),
            pytest.raises(StoreCorruptError, match="cannot be read any more"),
        ):
            traps.world.do(Step("b", "open"))

        assert traps.disk.read_all() == {**files, LOG: damaged}

    def test_a_history_that_is_read_while_a_commit_counts_its_line_is_sound(
        self, traps: Traps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reported: list[list[str]] = []
        tree = traps.world.trees["a"]

        def look() -> None:  # as another thread may, without waiting
            reported.append([change.op for change in tree.History()])

        inside.while_counting_a_line(monkeypatch, look)
        traps.world.do(step("a", "second"))

        without = ["create_keyword", "create_store"]
        assert reported[0] == without
        assert reported[-1] == ["create_keyword", *without]
        assert all(each in (reported[0], reported[-1]) for each in reported)

    @pytest.mark.parametrize("damage", ["a byte", "its end"])
    def test_a_log_that_has_changed_under_the_store_is_not_copied(self, traps: Traps, damage: str) -> None:
        log = traps.disk.read_all()[LOG]
        cut = log[: log.index(b'"first"')]
        traps.disk.spoil(LOG, log.replace(b"first", b"First") if damage == "a byte" else cut)
        with pytest.raises(StoreCorruptError):
            traps.world.trees["a"].Snapshot(copy=True)

        assert not [name for name in traps.disk.read_all() if "snapshot" in name]

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda lines: [*lines[:-1], lines[-1].replace(b"crc", b"Crc")],
            lambda lines: [*lines[:-1], lines[-1][:-9]],
            lambda lines: lines[:-1],
            lambda lines: lines[:-2],
            lambda lines: [*lines[:1], *lines[2:]],
            lambda lines: [*lines[:2], b"no line of a log", *lines[2:]],
            lambda lines: [],
            lambda lines: [lines[0].replace(b"root", b"Root"), *lines[1:]],
            lambda lines: lines[1:],
            lambda lines: [*lines[:2], *lines[1:]],
        ],
        ids=[
            *("newest changed", "newest cut", "newest gone", "two gone", "one within gone", "one too many", "all gone"),
            *("oldest changed", "oldest gone", "one twice"),
        ],
    )
    def test_a_history_that_has_lost_an_operation_is_not_reported(
        self, traps: Traps, spoil: Callable[[list[bytes]], list[bytes]]
    ) -> None:
        tree = traps.world.trees["a"]
        traps.world.run([step("a", "second"), step("a", "third")])
        newest = tree.History(limit=1)[0].operation_id
        tree.CompactStorage()
        assert tree.Verify() == []
        (path,) = (name for name in traps.disk.read_all() if "history/" in name)
        lines = traps.disk.read_all()[path].rstrip(b" \n").split(b"\n")
        traps.disk.spoil(path, b"\n".join([*spoil(lines), b""]))

        with pytest.raises(StoreCorruptError):
            tree.History()
        assert [problem for problem in tree.Verify() if problem.startswith("history")] != []
        if spoil(lines)[-1:] == lines[-1:]:  # what is still whole can be undone
            tree.Undo(newest)

    def test_a_history_of_another_log_is_not_taken_for_its_own(self, traps: Traps) -> None:
        backup = traps.disk.read_all()
        traps.world.run([step("a", "elsewhere")])
        traps.world.trees["a"].CompactStorage()
        traps.disk.kill("a")
        traps.disk.put(backup)
        traps.world.run([Step("b", "open"), step("b", "here")])
        tree = traps.world.trees["b"]
        with pytest.raises(StoreError, match="another log"):
            tree.CompactStorage()
        (other,) = (name for name in traps.disk.read_all() if "history/" in name)
        traps.disk.remove(f"/disk/{other}")
        tree.CompactStorage()

        assert [change.Ids() for change in tree.History()] == [{"here"}, {"first"}, {"root"}]

    def test_what_fails_for_want_of_room_keeps_none(self, traps: Traps) -> None:
        tree = traps.world.trees["a"]
        for work in (tree.CompactStorage, lambda: tree.Snapshot(copy=True)):
            for skipped in range(2):
                with failing_once(traps.disk, "pwrite", skipped), contextlib.suppress(StoreError):
                    work()
                assert not [name for name in traps.disk.read_all() if name.endswith(".new")]

    def test_a_copy_outlives_damage_to_the_log(self, traps: Traps) -> None:
        tree = traps.world.trees["a"]
        name = tree.Snapshot(copy=True)
        traps.disk.spoil(LOG, traps.disk.read_all()[LOG].replace(b"first", b"FIRST"))
        tree.CreateKeyword("more", "root")
        tree.Restore(name)

        assert [node.id for node in tree.GetChildren("root")] == ["first"]

    def test_a_history_is_not_forgotten_by_a_compaction_that_fails(self, traps: Traps) -> None:
        tree = traps.world.trees["a"]
        tree.CompactStorage()
        reported = [change.seq for change in tree.History()]
        assert len(reported) == 2
        # Three projections, two of them empty, then the log.
        for call, count in [("pwrite", 2), ("fdatasync", 4), ("replace", 4)]:
            for skipped in range(count):
                with failing_once(traps.disk, call, skipped), pytest.raises(StoreError):
                    tree.CompactStorage(keep_history=False)
                assert [change.seq for change in tree.History()] == reported, f"{skipped}. {call}"

    def test_a_cut_tail_an_unfinished_file_and_an_index_are_forgotten(self, traps: Traps) -> None:
        traps.disk.kill("a")
        log = traps.disk.read_all()[LOG].rstrip(b" \n")
        traps.disk.spoil(LOG, b'%b\n{"crc": "00000000", "%b"' % (log, SECRET.encode()))
        traps.disk.put({"memory/tree/nodes.jsonl.new": SECRET.encode()})
        traps.disk.put({"memory/tree/indexes/of a sibling/table": SECRET.encode()})
        traps.disk.put({"memory/tree/history/of another log": SECRET.encode()})
        traps.world.do(Step("b", "open"))
        assert sum(SECRET.encode() in held for held in traps.disk.read_all().values()) == 3
        traps.world.trees["b"].CompactStorage(keep_history=False)

        for disk in (traps.disk, traps.disk.now().cut_power(Mode("none"))):
            assert not [name for name, held in disk.read_all().items() if SECRET.encode() in held]

    def test_a_history_that_a_failed_compaction_left_is_reported_once(self, door: Door) -> None:
        traps = Traps(door)
        world = traps.world
        world.run([Step("a", "open"), step("a", "first"), Step("b", "open")])
        for number in range(3):
            traps.fault(errno.ENOSPC, 1, "pwrite")
            with pytest.raises(StoreError):
                world.trees["a"].CompactStorage()
            traps.disk.heal()
            world.do(step("b", f"k{number}"))
        reported = [change.seq for change in world.trees["b"].History(limit=99)]
        assert reported == sorted(set(reported), reverse=True)
        world.trees["a"].CompactStorage()
        for actor in ("a", "b"):
            behind = [change.seq for change in world.trees[actor].History(limit=99)]
            assert behind == reported, actor

    @pytest.mark.parametrize("call", ["fsync", "open", "mkdir", "link", "pwrite"])
    def test_a_history_is_durable_though_a_compaction_before_failed(self, door: Door, call: str) -> None:
        for count in range(12):
            traps = Traps(door)
            world = traps.world
            world.run([Step("a", "open"), step("a", "first")])
            with failing_once(traps.disk, call, count), contextlib.suppress(StoreError):
                world.trees["a"].CompactStorage()
            world.trees["a"].CompactStorage()
            door.disk = traps.disk.now().cut_power(Mode("none"))
            tree = KeywordTree(FOLDER)
            assert [change.op for change in tree.History()] == ["create_keyword", "create_store"], f"{count}. {call}"

    def test_a_history_that_another_forgets_meanwhile_ends_there(self, traps: Traps) -> None:
        tree = traps.world.trees["a"]
        tree.CompactStorage()
        traps.world.run([step("a", "second"), Step("b", "open")])
        (path,) = (name for name in traps.disk.read_all() if "history/" in name)

        def forget() -> None:
            traps.world.trees["b"].CompactStorage(keep_history=False)

        with traps.at(f"open {os.path.basename(path)}", 1, forget):
            reported = [change.Ids() for change in tree.History()]

        assert reported == [{"second"}]

    def test_a_finished_snapshot_is_kept_whatever_it_is_called(self, traps: Traps) -> None:
        tree = traps.world.trees["a"]
        snapshots = f"{FOLDER}/snapshots"
        traps.disk.replace(f"{snapshots}/{tree.Snapshot(copy=True)}", f"{snapshots}/before the migration")
        kept = {name: held for name, held in traps.disk.read_all().items() if "before the migration" in name}
        assert len(kept) == 2
        tree.CompactStorage(keep_history=False)

        assert traps.disk.read_all().items() >= kept.items()

    @pytest.mark.parametrize("has_links", [True, False])
    def test_an_unfinished_snapshot_keeps_nothing_that_was_forgotten(
        self, door: Door, monkeypatch: pytest.MonkeyPatch, has_links: bool
    ) -> None:
        traps = Traps(door)
        if not has_links:
            refuse_links(monkeypatch)
        world = traps.world
        world.run([Step("a", "open"), step("a", "secret", description=SECRET)])
        calls = len(traps.disk.calls)
        world.trees["a"].Snapshot()
        count = len(traps.disk.calls) - calls
        for call in range(count):
            traps = Traps(door)
            world = traps.world
            world.run([Step("a", "open"), step("a", "secret", description=SECRET), Step("b", "open")])
            traps.disk.kill_at("b", traps.disk.call_count + call, 100)
            traps.disk.owner = "b"
            with contextlib.suppress(Killed):
                world.trees["b"].Snapshot()
            traps.disk.owner = "a"
            world.trees["a"].DeleteKeyword("secret")
            named = world.trees["a"].CompactStorage(keep_history=False)["snapshots"]
            holding = {name.split("/")[3] for name, held in traps.disk.read_all().items() if SECRET.encode() in held}
            assert holding == set(named), f"call {call}"

    @pytest.mark.parametrize("call", ["open", "pread", "stat", "fstat", "listdir", "dup"])
    def test_a_snapshot_or_a_history_that_cannot_be_read_is_a_store_error(self, door: Door, call: str) -> None:
        traps = Traps(door)
        world = traps.world
        world.run([Step("a", "open"), step("a", "first")])
        tree = world.trees["a"]
        name = tree.Snapshot()
        tree.CompactStorage()
        world.do(step("a", "second"))
        opened = traps.disk.open_count()
        first = tree.History(limit=99)[-2].operation_id
        for count in range(6):
            for use in (
                lambda: tree.Restore(name),
                lambda: tree.History(limit=99),
                lambda: tree.Undo(first),
                lambda: list(tree.Changes()),
                tree.TreeMetrics,
            ):
                with failing_once(traps.disk, call, count), contextlib.suppress(kt.ConflictError):
                    try:
                        use()
                    except StoreError as error:
                        assert not isinstance(error, StoreCorruptError)
        assert traps.disk.open_count() == opened
        assert tree.Verify() == []
