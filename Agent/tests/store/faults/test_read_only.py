"""A folder that can only be read opens, and nothing is written to it."""

from __future__ import annotations

import errno
from functools import partial
from typing import ClassVar

import pytest

from Agent.keyword_tree import KeywordTree, StoreError
from Agent.tests.store.faults.sagas import SAGA, Saga
from Agent.tests.store.faults.worlds import FOLDER, LOG, PROJECTIONS, Step, Traps, World, state_of, step
from Agent.tests.support.faulty_files import Door, Fault, FaultyDisk, stepping_in


def readonly(disk: FaultyDisk, error: int) -> FaultyDisk:
    disk.readonly_error = error
    return disk


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
class TestReadOnlyFolder:
    """It opens for reading, and no call so much as tries to write: but for the one call that finds it out."""

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
            self.write(world, error, f"m{target}")
            names = [f"n{target}.{number}" for number in range(3)]
            with stepping_in(disk, "pread change_log.jsonl", partial(self.write, world, error, *names), target + 1):
                reader.Refresh()
            reader.Refresh()
            found = {child.id for child in reader.GetChildren("root")}
            self.switch(disk, 0, "a")
            assert found == {child.id for child in world.trees["a"].GetChildren("root")}
            reader.Close()
        assert [call for call in syncs if call.startswith("fdatasync")] == []

    def write(self, world: World, error: int, *ids: str) -> None:
        """Let the writer elsewhere make keywords."""
        self.switch(world.disk, 0, "a")
        for id in ids:
            world.trees["a"].BatchCreateKeywords([{"id": id, "name": "n", "parent_id": "root"}])
        self.switch(world.disk, error, "reader")

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

    @pytest.mark.parametrize("is_open", [True, False])
    def test_follows_a_log_that_is_replaced(self, door: Door, error: int, is_open: bool) -> None:
        traps = Traps(door)
        traps.world.run([Step("a", "open"), step("a", "first")])

        def replace() -> None:
            self.switch(traps.disk, 0, "a")
            traps.world.trees["a"].CompactStorage()
            traps.world.do(step("a", "second"))
            self.switch(traps.disk, error, "reader")

        self.switch(traps.disk, error, "reader")
        if is_open:
            reader = traps.world.tree()
            replace()
        else:
            with traps.at("stat change_log.jsonl", 1, replace):
                reader = traps.world.tree()
        reader.Refresh()

        assert {child.id for child in reader.GetChildren("root")} == {"first", "second"}
        assert reader.Verify() == []

    def test_that_holds_no_store_is_refused(self, door: Door, error: int) -> None:
        door.disk.put({"memory/tree/something": b"else"})
        readonly(door.disk, error)
        with pytest.raises(StoreError):
            KeywordTree(FOLDER)
