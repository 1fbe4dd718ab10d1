"""Tests of going back in time under kill -9: snapshot, restore, undo, compaction, each killed before, in and after.

A child tells each step through a pipe before and after it. What it leaves must be exactly the state before the step in
flight, or the one behind it; a plain model works both out. A kill between `Restore` and `Undo` leaves the restored
state, as it should: the rows that are missing then come back by `Undo`, and that is tested too.

The short form is seeded and takes a few seconds. `KEYWORD_TREE_STORM=1` goes on for `KEYWORD_TREE_STORM_S` seconds (60
by default) in each storm, and kills at each call to the disk; `KEYWORD_TREE_SEED=7` takes another seed.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import KeywordTree, NotFoundError
from Agent.tests.store.test_processes import (
    SEED,
    STORM,
    Process,
    Start,
    Tell,
    be_mortal,
    check_files,
    give_say,  # noqa: F401  a fixture: say
    give_start,  # noqa: F401  a fixture: start
)
from Agent.tests.support import inside
from Agent.tests.support.oracle import look

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="these processes are made by fork")

BUDGET_S = float(os.environ.get("KEYWORD_TREE_STORM_S", "60"))
STORES = 2  # of the short form
KILLS = 12  # of each store; it grows, and each snapshot costs the check time

Holding = frozenset[tuple[str, str]]
"""All keywords, as (id, id of the parent), and all infos, as (id, content)."""

Step = dict[str, Any]


# == The model ============================================================================================


def content_of(id: str, count: int) -> str:
    return f"{id} " * count


class Model:
    """What a tree must hold, worked out from the steps alone."""

    def __init__(self) -> None:
        self.now: Holding = frozenset()
        self.number = 0  # the first that names nothing yet
        self.snapshots: dict[str, Holding] = {}
        self.restore_id = ""  # of the last Restore, as long as Undo must be able to take it back
        self.gone: Holding = frozenset()  # by that Restore
        self.back: Holding = frozenset()

    def after(self, step: Step) -> Holding:
        """Return what the tree holds when a step is done."""
        what, ids = step["what"], [f"k{step.get('number', 0) + n}" for n in range(step.get("count", 0))]
        if what == "create":
            return self.now | {(id, "root" if id == ids[0] else ids[0]) for id in ids}
        if what == "info":
            id = f"i{step['number']}"
            return self.now | {(id, content_of(id, step["length"]))}
        if what == "delete":
            return self.now - {(id, parent_id) for id, parent_id in self.now if id == step["id"]}
        if what == "restore":
            return self.snapshots[step["name"]]
        if what == "undo":
            return (self.now - self.back) | self.gone
        return self.now

    def take(self, step: Step, result: str) -> None:
        """Note that a step is done, and what it returned."""
        what, then = step["what"], self.after(step)
        if what == "snapshot":
            self.snapshots[result] = then
        elif what == "restore":
            self.restore_id, self.gone, self.back = result, self.now - then, then - self.now
        elif what in ("undo", "delete", "forget"):  # what was deleted since may be in the way of Undo
            self.restore_id = ""
        self.number = max(self.number, step.get("number", 0) + step.get("count", 1))
        self.now = then


def plan(draw: random.Random, model: Model) -> Iterator[Step]:
    """Yield steps for ever; the model is to take each before the next is asked for."""
    if draw.random() < 0.5:  # often the one before was killed between Restore and Undo
        yield from concrete(draw, model, "undo")
    while True:
        middle = draw.choices(["create", "info", "delete", "snapshot"], [5, 2, 2, 1], k=draw.randint(1, 4))
        between = draw.choices(["", "compact", "reopen", "snapshot", "create"], [5, 2, 1, 1, 1])
        end = draw.choices(["", "compact", "forget", "reopen"], [4, 1, 1, 1])
        for what in ("create", "snapshot", "create", *middle, "restore", *between, "undo", *end):
            yield from concrete(draw, model, what)


def concrete(draw: random.Random, model: Model, what: str) -> Iterator[Step]:
    """Yield the step of a kind, or none where it cannot be made."""
    number = {"number": model.number}
    if what == "create":
        yield {"what": what, **number, "count": draw.choice([1, 1, 3, 12])}
    elif what == "info":
        yield {"what": what, **number, "length": draw.choice([1, 2000])}  # the longer ones stay on the disk
    elif what == "delete":
        leaves = sorted(id for id, parent_id in model.now if id.startswith("k") and parent_id != "root")
        if leaves:
            yield {"what": what, "id": draw.choice(leaves)}
    elif what == "snapshot":
        yield {"what": what, "copy": draw.random() < 0.4}
    elif what == "restore":
        names = sorted(model.snapshots)
        yield {"what": what, "name": names[-1] if draw.random() < 0.6 else draw.choice(names)}
    elif what == "undo":
        if model.restore_id:
            yield {"what": what, "id": model.restore_id, "may be nothing": model.gone == model.back}
    elif what:
        yield {"what": what}


# == The work =============================================================================================


def make(tree: KeywordTree, step: Step) -> str:
    """Make a step, and return what it returned, if that is needed."""
    what, number = step["what"], step.get("number", 0)
    if what == "create":
        ids = [f"k{number + n}" for n in range(step["count"])]
        tree.BatchCreateKeywords(
            [{"name": id, "id": id, "parent_id": "root" if id == ids[0] else ids[0]} for id in ids]
        )
    elif what == "info":
        content = content_of(f"i{number}", step["length"])
        tree.BatchCreateInfos([{"content": content, "id": f"i{number}", "keyword_ids": ["root"]}])
    elif what == "delete":
        tree.DeleteKeyword(step["id"])
    elif what == "snapshot":
        return tree.Snapshot(step["copy"])
    elif what == "restore":
        return tree.Restore(step["name"])
    elif what == "undo":
        try:
            tree.Undo(step["id"])
        except NotFoundError:  # the Restore had nothing to change, and wrote nothing
            assert step["may be nothing"], step
    elif what == "reopen":
        tree.Close()
    else:
        tree.CompactStorage(keep_history=what == "compact")
    return ""


def live(folder: Path, model: Model, draw: random.Random, tell: Tell, steps: Iterator[Step] | None = None) -> None:
    """Make steps and tell each before and after; somebody will end it."""
    if draw.random() < 0.5:
        inside.set_limits(checkpoint_operations=3)
    tree = KeywordTree(str(folder))
    tell("open")
    for step in plan(draw, model) if steps is None else steps:
        tell(f"begin {json.dumps(step)}")
        result = make(tree, step)
        if step["what"] == "reopen":
            tree = KeywordTree(str(folder))
        model.take(step, result)
        tell(f"done {result}")
    tree.Close()


def holding_of(tree: KeywordTree) -> Holding:
    held = look(tree)
    nodes = {(id, node[1]) for id, node in held.nodes.items() if id != "root"}
    assert all(node[0] == id for id, node in held.nodes.items())
    assert all(links == [("root", "PRIMARY")] for *_, links in held.infos.values())
    return frozenset(nodes | {(id, info[0]) for id, info in held.infos.items()})


class Check:
    """Follows what a child told, and holds what it left behind against the model."""

    def __init__(self) -> None:
        self.model = Model()
        self.counts = Counter[str]()
        self.in_flight = Counter[str]()
        self.losses: list[str] = []

    def follow(self, lines: list[str]) -> Step | None:
        """Take all that was told; return the step in flight, if there is one."""
        step: Step | None = None
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "begin":
                step = json.loads(rest)
            elif step is not None:
                self.model.take(step, rest)
                self.counts["steps"] += 1
                step = None
        return step

    def look(self, folder: Path, flying: Step | None, draw: random.Random, undo_chance: float = 0.5) -> None:
        """Open what is left, compare, and write on."""
        model, before = self.model, self.model.now
        if flying is not None:
            self.in_flight[flying["what"]] += 1
        tree = KeywordTree(str(folder))
        for sentence in tree.recovery:  # a kill leaves an unfinished line, or projections put in place by a compaction
            assert re.search("no later line vouches|was repaired from it|the log does not have", sentence), sentence
        self.compare(tree, flying, [before] if flying is None else [before, model.after(flying)])
        self.losses += tree.Verify()
        if flying is not None and not self.losses:
            self.settle(tree, folder, flying, before)
        if model.restore_id and draw.random() < undo_chance:
            gone = len(model.gone)
            for step in concrete(draw, model, "undo"):
                model.take(step, make(tree, step))
                self.compare(tree, step, [model.now])
                self.counts["Undo by the next process"] += 1
                self.counts["rows away until then"] += gone
        for step in concrete(draw, model, "create"):
            model.take(step, make(tree, step))
            self.compare(tree, step, [model.now])
        if draw.random() < 0.7:
            tree.Close()
            check_files(folder)
            with KeywordTree(str(folder)) as again:
                self.compare(again, None, [model.now])
                self.losses += again.Verify()
        else:
            inside.release(tree)  # as the end of the process would, without a checkpoint

    def settle(self, tree: KeywordTree, folder: Path, flying: Step, before: Holding) -> None:
        """Take the step in flight into the model if it was done, though it could not be told."""
        model, found = self.model, holding_of(tree)
        model.number = max(model.number, flying.get("number", 0) + flying.get("count", 1))
        if flying["what"] == "snapshot":
            finished = {path.parent.name for path in folder.glob("snapshots/*/snapshot.json")}
            model.snapshots |= dict.fromkeys(finished - model.snapshots.keys(), found)
        elif flying["what"] == "restore" and found != before:
            newest = tree.History(limit=1)[0]
            assert newest.op == "restore"
            model.take(flying, newest.operation_id)
        elif found != before:
            model.take(flying, "")
        elif flying["what"] in ("undo", "delete", "forget", "restore"):  # whether it was done cannot be seen
            model.restore_id = ""

    def compare(self, tree: KeywordTree, step: Step | None, allowed: list[Holding]) -> None:
        found = holding_of(tree)
        if found not in allowed:
            lacks, has = sorted(allowed[-1] - found)[:5], sorted(found - allowed[-1])[:5]
            self.losses.append(f"at {step}: {len(found)} instead of {[*map(len, allowed)]}; lacks {lacks}, has {has}")


def stores(folder: Path, count: int) -> Iterator[Path]:
    """Yield new places for stores: so many, or in the long form as long as there is time."""
    end = time.monotonic() + BUDGET_S
    for number in itertools.count():
        if time.monotonic() > end if STORM else number >= count:
            return
        place = folder / f"tree {number}"
        yield place
        shutil.rmtree(place)


Say = Callable[[str], None]


# == Kills ================================================================================================


class TestKilledAtRandom:
    def test_while_going_back_leaves_the_state_before_or_after_the_step(
        self, tmp_path: Path, start: Start, say: Say
    ) -> None:
        counts, in_flight, kills = Counter[str](), Counter[str](), 0
        for place in stores(tmp_path, STORES):
            check = Check()
            for _ in range(KILLS):
                draw = random.Random(f"{SEED} going back {kills}")
                model = copy.deepcopy(check.model)
                process = start(partial(live, place, model, random.Random(f"{SEED} life {kills}")))
                read_until_begun(process, draw)
                time.sleep(draw.choice([0, 0.001, 0.004]) * draw.random())
                process.kill()
                kills += 1
                check.look(place, check.follow(process.lines), draw)
                assert check.losses == [], f"kill {kills}, {place}"
            counts += check.counts
            in_flight += check.in_flight
        say(f"kill while going back: {kills} kills, {dict(counts)}, in flight {dict(in_flight)}, 0 losses ")

        assert counts["steps"] > kills
        assert not STORM or counts["Undo by the next process"] > 0

    def test_beside_a_writer_takes_nothing_that_undo_does_not_bring_back(
        self, tmp_path: Path, start: Start, say: Say
    ) -> None:
        counts, kills = Counter[str](), 0
        for place in stores(tmp_path, 1):
            acknowledged = 0
            for turn in range(6):
                draw = random.Random(f"{SEED} beside {kills}")
                writer = start(partial(write_on, place, acknowledged))
                stops = turn == 0  # there it is sure to be killed between Restore and Undo
                traveller = start(partial(go_back_and_forth, place, random.Random(f"{SEED} travels {kills}"), stops))
                if stops:
                    traveller.await_line("restored")
                    traveller.await_stop()
                else:
                    traveller.read_until(draw.randint(1, 12))
                    time.sleep(draw.uniform(0, 0.004))
                victims = [traveller, writer]
                draw.shuffle(victims)
                for victim in victims:
                    victim.kill()
                kills += 2
                reported = max([acknowledged, *(int(line) + 1 for line in writer.lines)])
                with KeywordTree(str(place)) as tree:
                    names = {name for name, _ in holding_of(tree)}
                    newest = next(change for change in tree.History(limit=10**6) if change.op in ("restore", "undo"))
                    lacking = {f"k{n}" for n in range(reported)} - names
                    if newest.op == "restore":
                        assert lacking <= {record.id for record in newest.before if isinstance(record, kt.KeywordNode)}
                        tree.Undo(newest.operation_id)
                        counts["killed between Restore and Undo"] += 1
                        counts["rows away until Undo"] += len(lacking)
                    else:
                        assert lacking == set()
                    names = {name for name, _ in holding_of(tree)}
                    assert names in ({f"k{n}" for n in range(reported)}, {f"k{n}" for n in range(reported + 1)})
                    assert tree.Verify() == []
                acknowledged = len(names)
            counts["acknowledged"] += acknowledged
        say(f"kill going back beside a writer: {kills} kills, {dict(counts)}, 0 losses ")

        assert counts["rows away until Undo"] > 0


def read_until_begun(process: Process, draw: random.Random) -> None:
    """Wait until a step of some kind has begun, or many others have."""
    what = draw.choice(["create", "delete", "snapshot", "restore", "restore", "undo", "undo", "compact", "forget"])
    first, last = draw.randint(0, 20), draw.randint(30, 60)
    while len(process.lines) < last and process.read():
        if any(line.startswith(f'begin {{"what": "{what}"') for line in process.lines[first:]):
            break


def write_on(folder: Path, first: int, tell: Tell) -> None:
    tree = KeywordTree(str(folder))
    for n in itertools.count(first):
        tree.BatchCreateKeywords([{"name": f"k{n}", "id": f"k{n}", "parent_id": "root"}])
        tell(f"{n}")


def go_back_and_forth(folder: Path, draw: random.Random, stops: bool, tell: Tell) -> None:
    tree = KeywordTree(str(folder))
    while True:
        snapshot, count = tree.Snapshot(draw.random() < 0.5), len(tree.GetChildren("root"))
        time.sleep(draw.uniform(0, 0.01))
        while stops and len(tree.GetChildren("root")) == count:
            tree.Refresh()  # until the other has written
        restore_id = tree.Restore(snapshot)
        tell("restored")
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            tree.Undo(restore_id)
        except NotFoundError:  # nobody had written meanwhile
            tell("nothing to undo")
        tell("undone")
        if draw.random() < 0.2:
            tree.CompactStorage()


class TestKilledAtEachCall:
    """The same, at each call to the operating system in turn: no moment is left to chance."""

    STEPS: tuple[Step, ...] = (
        {"what": "create", "number": 0, "count": 4},
        {"what": "info", "number": 4, "length": 2000},
        {"what": "snapshot", "copy": False},
        {"what": "create", "number": 5, "count": 3},
        {"what": "delete", "id": "k2"},
        {"what": "restore"},
        {"what": "compact"},
        {"what": "undo"},
        {"what": "snapshot", "copy": True},
        {"what": "forget"},
        {"what": "restore"},
        {"what": "undo"},
    )

    @pytest.mark.parametrize("when", ["before", "after", "halfway"])
    def test_while_going_back_leaves_the_state_before_or_after_the_step(
        self, tmp_path: Path, start: Start, say: Say, when: str
    ) -> None:
        width = 1 if STORM else 23  # in the short form, some of the calls
        counts, in_flight = Counter[str](), Counter[str]()
        for at in itertools.count(1 + SEED % width, width):
            check, place = Check(), tmp_path / f"tree {at}"
            process = start(partial(die_at, place, at, when, self.STEPS))
            code = process.end()
            assert code in (0, -signal.SIGKILL)
            check.look(place, check.follow(process.lines), random.Random(f"{SEED} {when} {at}"), 1.0)
            assert check.losses == [], f"call {at}"
            shutil.rmtree(place)
            counts += check.counts
            in_flight += check.in_flight
            if code == 0:
                break
        say(f"kill {when} each call while going back: {at} calls, {dict(counts)}, in flight {dict(in_flight)} ")

        assert at > 50
        assert counts["Undo by the next process"] > 0


def die_at(folder: Path, at: int, when: str, steps: tuple[Step, ...], tell: Tell) -> None:
    """Make the steps; die at the n-th call to the operating system."""
    be_mortal(at, when)
    model = Model()

    def complete() -> Iterator[Step]:
        for step in steps:
            if step["what"] == "restore":
                yield {**step, "name": max(model.snapshots)}
            elif step["what"] == "undo":
                yield {**step, "id": model.restore_id, "may be nothing": model.gone == model.back}
            else:
                yield step

    live(folder, model, random.Random(at), tell, complete())
