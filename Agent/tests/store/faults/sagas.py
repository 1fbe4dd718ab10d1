"""Worlds in which all methods are used: operations of many calls, undo, snapshots, compaction.

What these give follows from the states before them: an undo leads to the one before its operation, a restore to the one
at its snapshot, a compaction and a snapshot change nothing.
"""

from __future__ import annotations

import copy
import errno
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from Agent.keyword_tree import KeywordTree, RelationType
from Agent.tests.store.faults.worlds import LONG, Judge, Step, World, state_of
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, FaultyDisk
from Agent.tests.support.oracle import Held

SECRET = "hidden, and never seen again"


def calls(actor: str, *made: tuple[Any, ...]) -> Step:
    """Return a step of one call, or of an operation of many: the method's name, then its arguments."""
    return Step(actor, "calls", tuple({"method": method, "arguments": arguments} for method, *arguments in made))


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

    def info_ids(self) -> list[str]:  # noqa: D102  as those of a world, and what follows
        return ["i1", "i2", "i3", "i4"]

    def foresee(self, step: Step) -> None:  # noqa: D102
        self.states.append(self.calm[len(self.states)])

    def do(self, step: Step) -> None:  # noqa: D102
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

    def write(self, tree: KeywordTree, step: Step) -> None:  # noqa: D102
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


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a file system without hard links."""

    def refuse(self: Any, path: str, new_path: str) -> None:
        raise inside.refusal(errno.EPERM)

    monkeypatch.setattr(inside.Files, "Link", refuse)
