"""One trap of the disk at a time, without chance: what the sweeps have found, or would find only now and then."""

from __future__ import annotations

import contextlib
import errno
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError
from Agent.tests.store.faults.worlds import (
    FOLDER,
    LOG,
    LONG,
    PROJECTIONS,
    SYNC,
    WRITE,
    Step,
    Traps,
    failing_once,
    step,
    torn_tail,
)
from Agent.tests.support.faulty_files import Door, Fault, Killed, Mode


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

    @pytest.mark.parametrize("has_projections", [True, False])
    def test_a_store_that_a_dead_process_began_is_durable_once_something_is_in_it(
        self, door: Door, has_projections: bool
    ) -> None:
        for call in range(40):
            traps = Traps(door)
            traps.disk.kill_at("dead", call)
            with contextlib.suppress(Killed):
                traps.world.do(Step("dead", "open"))
            missed = "no call" if has_projections else "open nodes.jsonl"
            with traps.at(missed, 1, lambda traps=traps: traps.fault(errno.EMFILE, math.inf, "open")):  # type: ignore[misc]
                traps.world.do(Step("a", "open"))
            traps.world.do(step("a", "acknowledged"))
            assert traps.names_after(Mode("none")) == {"acknowledged"}, f"all is lost after a death at call {call}"

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
