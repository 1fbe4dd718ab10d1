"""A workload on a disk on which calls fail, and what must hold after each step."""

from __future__ import annotations

import errno
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError
from Agent.tests.store.faults.sagas import SagaJudge
from Agent.tests.store.faults.worlds import FOLDER, PROJECTIONS, STORM, WRITES, Judge, Step, World, modes_of, state_of
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Fault, Mode

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
        """Take steps on the faulty disk, again where a step was refused."""
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
        refused: StoreError | None = None
        try:
            if step.kind == "group":
                return self._try_group(step)
            self.world.do(step)
        except StoreError as error:
            refused = error
        if refused is not None:
            self.counts[f"refused: {step.kind}"] += 1
            is_corrupt = isinstance(refused, StoreCorruptError)
            assert not is_corrupt, f"{step.kind}: a disk that fails is called corrupt: {refused}"
            assert step.kind != "close", f"Close raised {refused!r}"
        if step.kind == ("close" if refused is None else "open"):
            assert self.world.disk.open_count(step.actor) == 0, "descriptors are left open"
        return refused

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
        """After a failed sync no tree writes, until the folder is opened again and the log has become a new file."""
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
            if inside.opens_before_it_writes(tree):  # and copies the log then
                continue
            try:
                tree.BatchCreateKeywords([{"id": f"refused-{number}", "name": "refused", "parent_id": "root"}])
            except StoreError:
                continue
            raise AssertionError("a tree writes although it is unknown what the disk holds")
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


class SagaSurvivor(Survivor):
    """The same for a saga."""

    JUDGE = SagaJudge


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
