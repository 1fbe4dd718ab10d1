"""Safeguards that others stand behind: each where it is the only one, so that it is missed when it is taken away.

What the projections hold proves most of what a log has lost; here they hold nothing, as after a power cut that came
before they were ever synced.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError

LOG = "change_log.jsonl"


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
    def test_a_compacted_log_without_its_checkpoint_is_refused(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.CreateInfo("i", keyword_ids=[tree.CreateKeyword("k", "root").id])
            tree.CompactStorage()
        (folder / LOG).write_bytes(b"".join(_lines(folder)[:1]))
        _empty_projections(folder)

        with pytest.raises(StoreCorruptError, match="before its checkpoint"):
            KeywordTree(str(folder))

    def test_an_older_log_does_not_take_the_place_of_what_was_read(self, folder: Path) -> None:
        _fill(folder)
        with KeywordTree(str(folder)) as tree:
            (folder / "older").write_bytes(b"".join(_lines(folder)[:3]))
            os.replace(folder / "older", folder / LOG)
            _empty_projections(folder)

            with pytest.raises(StoreCorruptError, match="was read"):
                tree.Refresh()

    def test_one_that_was_replaced_is_noticed_again_where_opening_it_failed(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> int:
            raise OSError(errno.EMFILE, "too many files")

        with KeywordTree(str(folder)) as tree, KeywordTree(str(folder)) as other:
            tree.CreateKeyword("before", "root")
            other.CompactStorage()
            time.sleep(0.15)  # now the folder's time proves that no name in it has changed
            with monkeypatch.context() as patch:
                patch.setattr(os, "open", fail)
                with pytest.raises(StoreError, match="too many files"):
                    tree.Refresh()
            tree.CreateKeyword("behind", "root")
            other.Refresh()

            assert [node.name for node in other] == ["before", "behind"]


class TestSnapshots:
    def test_what_tells_of_one_is_checked(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            name = tree.Snapshot()
            path = folder / "snapshots" / name / "snapshot.json"
            path.write_bytes(path.read_bytes().replace(b'"seq":1', b'"seq":9').replace(b'"seq": 1', b'"seq": 9'))

            with pytest.raises(StoreCorruptError, match="has changed"):
                tree.Restore(name)


class TestVerify:
    def test_names_rows_that_were_set_aside(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            (folder / "cut_tail-nodes-2-00000000.bin").write_bytes(b"rows")

            assert [problem for problem in tree.Verify() if "cut_tail-nodes-2-00000000.bin" in str(problem)]


class TestLocks:
    @pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EROFS])
    def test_that_no_file_system_knows_leave_a_tree_to_read(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, error: int
    ) -> None:
        _fill(folder)
        _refuse_locks(monkeypatch, error)

        with KeywordTree(str(folder)) as tree:
            assert len(tree) == 5
            with pytest.raises(StoreError, match="only be read"):
                tree.CreateKeyword("more", "root")

    @pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])  # the second in a folder that can be written
    def test_that_fail_otherwise_are_told(self, folder: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
        _fill(folder)
        _refuse_locks(monkeypatch, error)

        with pytest.raises(StoreError):
            KeywordTree(str(folder))


def _refuse_locks(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def refuse(_fd: int, _how: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
