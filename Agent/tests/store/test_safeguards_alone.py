"""Safeguards of a store where no other one helps: an open tree, a reader or an opening meets what is not its own.

Where projections hold nothing, that is as after a power cut that came before they were ever synced.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, Fault, FaultyDisk, Mode, stepping_in
from Agent.tests.support.looking import names_under

LOG = "change_log.jsonl"
STORE = "/disk/store"
LOG_THERE = f"store/{LOG}"  # as the disk in memory calls it


@pytest.fixture
def disk(door: Door) -> FaultyDisk:
    """Give a disk in memory, on which there is no store yet."""
    return door.disk


def _fail(disk: FaultyDisk, call: str) -> None:
    """Let the next such call to the disk fail."""
    disk.failed_calls.clear()
    disk.fault = Fault(disk.call_count, errno.ENOSPC, 1, frozenset([call]))


def _spoil(disk: FaultyDisk, old: bytes, new: bytes) -> None:
    """Change the log under everybody who has it open."""
    log = disk.read_all()[LOG_THERE]
    assert log.count(old) > 0
    disk.spoil(LOG_THERE, log.replace(old, new))


def _fill(folder: Path, count: int = 5) -> None:
    with KeywordTree(str(folder)) as tree:
        for number in range(count):
            tree.CreateKeyword(f"k{number}", "root")


def _empty_projections(folder: Path) -> None:
    for name in ("nodes.jsonl", "infos.jsonl", "links.jsonl"):
        (folder / name).write_bytes(b"")


def _lines(folder: Path) -> list[bytes]:
    """Return the lines of the log that are operations."""
    lines = (folder / LOG).read_bytes().splitlines(keepends=True)
    return [line for line in lines if line.strip() and b'"op": "checkpoint"' not in line]


class TestWatermark:
    @pytest.mark.parametrize("at", [-2, -3])
    @pytest.mark.parametrize(
        "damage",
        [lambda line: line.replace(b'"op"', b'"oq"'), lambda line: line[:-1] + b"x"],
        ids=["a byte", "the end"],
    )
    def test_tells_damage_from_a_torn_tail(self, folder: Path, at: int, damage: Callable[[bytes], bytes]) -> None:
        _fill(folder)
        lines = _lines(folder)
        lines[at] = damage(lines[at])
        (folder / LOG).write_bytes(b"".join(lines))
        _empty_projections(folder)

        with pytest.raises(StoreCorruptError, match="damaged or missing"):
            KeywordTree(str(folder))


class TestLostLogs:
    def test_a_longer_log_of_another_tree_does_not_take_the_place_of_what_was_read(self, tmp_path: Path) -> None:
        mine, foreign = tmp_path / "mine", tmp_path / "foreign"
        _fill(mine, 2)
        _fill(foreign, 5)
        with KeywordTree(str(mine)) as tree:
            tree.CreateKeyword("acknowledged", "root")
            shutil.rmtree(mine)
            shutil.move(foreign, mine)

            with pytest.raises(StoreCorruptError, match="another than was read"):
                tree.Refresh()
            with pytest.raises(StoreCorruptError):
                tree.CreateKeyword("into another's log", "root")

        with KeywordTree(str(mine)) as theirs:
            assert names_under(theirs) == [f"k{number}" for number in range(5)]


class TestOpening:
    def test_a_row_after_the_checkpoint_is_the_logs_to_tell(self, folder: Path) -> None:
        _fill(folder)
        tree = KeywordTree(str(folder))
        tree.CreateKeyword("later", "root", id="later")
        inside.release(tree)
        rows = (folder / "nodes.jsonl").read_bytes()
        assert rows.count(b'"later"') > 1
        (folder / "nodes.jsonl").write_bytes(rows.replace(b'"later"', b'"other"'))

        with KeywordTree(str(folder)) as again:
            assert names_under(again)[5:] == ["later"]
            assert again.GetKeyword("other") is None
            assert again.Verify() == []


class TestReading:
    def test_a_writer_may_go_on_at_any_moment_of_an_opening_that_only_reads(self, door: Door) -> None:
        with KeywordTree(STORE) as tree:
            tree.CreateKeyword("before", "root")
        closed = door.disk.now()
        is_met = True
        for number in itertools.count():
            if not is_met:
                break
            is_met = self.look_beside_a_writer(door, closed.resume(), number)
        assert number > 10

    def look_beside_a_writer(self, door: Door, disk: FaultyDisk, number: int) -> bool:
        """Let a writer step in at a call of an opening; tell whether it made so many."""
        door.disk = disk
        writer = KeywordTree(STORE)

        def write() -> None:
            disk.readonly_error = 0
            for name in ("one", "two", "three"):
                writer.CreateKeyword(name, "root")
            disk.readonly_error = errno.EROFS

        disk.readonly_error = errno.EROFS
        with stepping_in(disk, number, write) as met:
            reader = KeywordTree(STORE)
        reader.Refresh()
        assert names_under(reader) == names_under(writer), met
        assert reader.Verify() == [], met
        return bool(met)

    def test_readers_wait_for_nothing_while_the_log_is_compacted(self, disk: FaultyDisk) -> None:
        waited: list[str] = []
        with KeywordTree(STORE) as tree:
            node = tree.CreateKeyword("k", "root")

            def read(made: str) -> None:
                thread = threading.Thread(target=tree.GetKeyword, args=(node.id,), daemon=True)
                thread.start()
                thread.join(5)
                if thread.is_alive():
                    waited.append(made)
                    disk.listeners.clear()

            disk.listeners.append(read)
            tree.CompactStorage()
            disk.listeners.clear()

            assert waited == []
            assert names_under(tree) == ["k"]


class TestCatchingUp:
    def test_the_torn_end_that_another_left_is_kept_aside(self, disk: FaultyDisk) -> None:
        torn = b'{"crc": "0a1b2c3d", "seq": 2, "prev": "' + b"x" * 3000  # longer than the line that takes its place
        with KeywordTree(STORE) as tree:
            disk.spoil(LOG_THERE, disk.read_all()[LOG_THERE].rstrip(b" \n") + b"\n" + torn)
            tree.CreateKeyword("next", "root")
        files = disk.read_all()

        assert [held for name, held in files.items() if "cut_tail" in name] == [torn]
        assert b"xx" not in files[LOG_THERE]
        with KeywordTree(STORE) as again:
            assert (names_under(again), again.recovery) == (["next"], ())

    def test_damage_in_what_another_wrote_is_reported(self, disk: FaultyDisk) -> None:
        with KeywordTree(STORE) as tree, KeywordTree(STORE) as other:
            other.CreateKeyword("one", "root")
            other.CreateKeyword("two", "root")
            _spoil(disk, b'"one"', b'"One"')
            before = disk.read_all()

            with pytest.raises(StoreCorruptError, match="is damaged or missing"):
                tree.Refresh()
            assert disk.read_all() == before


class TestCheckpoints:
    @pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
    def test_that_fail_fail_no_operation(self, door: Door, call: str) -> None:
        tree = KeywordTree(STORE)
        inside.make_checkpoint_due(tree)
        with stepping_in(door.disk, f"{call} {LOG}", lambda: _fail(door.disk, call), 2):
            made = tree.CreateKeyword("made", "root")

        assert door.disk.failed_calls == [f"{call} {LOG}"]
        assert tree.GetKeyword(made.id) == made
        door.disk = door.disk.now().cut_power(Mode("none"))
        with KeywordTree(STORE) as again:
            assert names_under(again) == ["made"]


class TestLocks:
    @pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])  # the second in a folder that can be written
    def test_that_fail_otherwise_are_reported(self, folder: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
        _fill(folder)
        monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(error, os.strerror(error))))

        with pytest.raises(StoreError):
            KeywordTree(str(folder))
