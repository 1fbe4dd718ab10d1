"""Trees over one faulty disk, what they must hold, and a judge of what a crash left of them.

The trees work on `support.faulty_files.FaultyDisk`; an oracle of plain dicts says what they must hold.

By itself pytest tries a seeded choice of faults. KEYWORD_TREE_STORM=1 tries all, in an order by chance for a minute or
KEYWORD_TREE_STORM_S seconds in each of the long tests, and prints how many states there were; KEYWORD_TREE_SEED=n
begins with another seed.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest

from Agent.keyword_tree import KeywordTree, RelationType, StoreError
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, Fault, FaultyDisk, Killed, Mode, Moment
from Agent.tests.support.log_format import rows_of, whole_lines
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
WRITE, SYNC = "pwrite change_log.jsonl", "fdatasync change_log.jsonl"
WRITES = frozenset(("keyword", "info", "link", "keywords", "infos", "calls", "undo", "restore"))


def storm(quick: int, exhaustive: int) -> range:
    """Return the numbers of the cases to be tried."""
    return range(SEED, SEED + (exhaustive if STORM else quick))


def within_budget(cases: Sequence[Case], rng: random.Random) -> Iterator[Case]:
    """Yield all; in a storm in an order by chance, until the time is up."""
    until = time.monotonic() + BUDGET_S
    for case in rng.sample(cases, len(cases)) if STORM else cases:
        if STORM and time.monotonic() > until:
            return
        yield case


def some(positions: Sequence[Any], count: int, seed: object) -> Sequence[Any]:
    """Return all of them in a storm, `count` of them otherwise."""
    return positions if STORM or len(positions) <= count else random.Random(f"{SEED} {seed}").sample(positions, count)


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
    assert reported == [len(held.nodes) - 1, len(held.infos)], f"{tree!r} holds what it was not given"
    return held


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
        """Return the id that the calling thread wants next, else that of an operation."""
        wanted = self._ids.get(threading.get_ident())
        if wanted:
            return wanted.pop()
        self._operations += 1
        return f"{self._operations:08x}-0000-4000-8000-000000000000"

    def tree(self, folder: str = FOLDER) -> KeywordTree:
        """Open a tree on this disk."""
        self.door.disk = self.disk
        return KeywordTree(folder, new_id=self.new_id, clock=lambda: 1_700_000_000.25)

    def run(self, steps: Sequence[Step]) -> None:
        """Take steps, one after the other."""
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
        """Note what the tree will hold if a step was done of which it is unknown whether it was."""
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
        """Let a tree write what a step says."""
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


def step(actor: str, id: str, **more: Any) -> Step:
    """Return a step that makes one keyword at the top."""
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

    @contextlib.contextmanager
    def joined_by(self, other: Callable[[], None], call: str, count: int = 1, wait_s: float = 0.3) -> Iterator[None]:
        """Let a thread do something else when a call is made; it must end, and raise nothing."""
        errors: list[BaseException] = []

        def work() -> None:
            try:
                other()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)

        def step_in() -> None:
            thread.start()
            deadline = time.monotonic() + wait_s
            while thread.is_alive() and not self.disk.waiting_count and time.monotonic() < deadline:
                time.sleep(0.001)

        with self.at(call, count, step_in):
            yield
        thread.join(20)
        assert not thread.is_alive()
        assert errors == []

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


def flipped(held: bytes, bit: int) -> bytes:
    """Return some bytes with one bit changed."""
    at = bit // 8
    return held[:at] + bytes([held[at] ^ 1 << bit % 8]) + held[at + 1 :]


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
        """Cut the power in one way and note what was lost."""
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
