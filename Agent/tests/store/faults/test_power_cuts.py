"""After every call the power goes, or a process dies; anything may be left of what was not synced."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import ClassVar

import pytest

from Agent.tests.store.faults.sagas import SAGA, Saga, SagaJudge, calls, refuse_links
from Agent.tests.store.faults.worlds import LOG, LONG, SEED, STORM, Judge, Step, World, state_of, step, storm, workload
from Agent.tests.support.faulty_files import Door, Killed, Mode
from Agent.tests.support.log_format import whole_lines
from Agent.tests.support.oracle import Held


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
