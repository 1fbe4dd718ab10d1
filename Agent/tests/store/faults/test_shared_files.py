"""Snapshots and history share the log's bytes: what becomes of the one must not spoil the other."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError
from Agent.tests.store.faults.sagas import SAGA, SECRET, Saga, refuse_links
from Agent.tests.store.faults.worlds import FOLDER, LOG, Step, Traps, failing_once, flipped, some, state_of, step
from Agent.tests.support.faulty_files import Door, Killed, Mode


class TestSharedFiles:
    """A snapshot and the history share the log's bytes with it: what becomes of the one must not spoil the other."""

    def test_a_snapshot_s_every_bit_is_checked(self, door: Door, tally: Counter[str]) -> None:
        world = Saga(door)
        world.run([*SAGA[:3], Step("a", "copy")])
        name = world.kept[0].name
        path = f"memory/tree/snapshots/{name}/change_log.jsonl"
        held = world.disk.read_all()[path]
        for bit in some(range(8 * len(held)), 200, "snapshot"):
            world.disk.spoil(path, flipped(held, bit))
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
