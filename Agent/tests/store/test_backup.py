"""A backup is whole, whatever goes on meanwhile, and leaves the memory as it was."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, StoreCorruptError
from Agent.store.backup import backup


def test_holds_records_and_history(tree: KeywordTree, tmp_path: Path) -> None:
    tea = tree.CreateKeyword("tea", "root")
    tree.CompactStorage()
    tree.CreateInfo("长" * 5000, keyword_ids=[tea.id])

    count = backup(tree, tmp_path / "copy")

    with KeywordTree(str(tmp_path / "copy")) as copied:
        assert count == len(copied) == 1
        assert [info.content for info in copied.ListInfos()] == ["长" * 5000]
        assert copied.History(tea.id) == tree.History(tea.id)
        assert copied.recovery == ()
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700
    assert list((tmp_path / "store" / "snapshots").iterdir()) == []
    assert not (tmp_path / "copy.unfinished").exists()


def test_is_consistent_while_others_write(tree: KeywordTree, tmp_path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        with KeywordTree(tree.data_dir) as other:
            while not done.is_set():
                with other.Operation():
                    parent = other.CreateKeyword("parent", "root")
                    other.CreateKeyword("child", parent.id)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        counts = [backup(tree, tmp_path / f"copy{n}") for n in range(5)]
    finally:
        done.set()
        writer.join()

    assert counts == sorted(counts)
    for n, count in enumerate(counts):
        with KeywordTree(str(tmp_path / f"copy{n}")) as copied:
            assert len(copied) == count
            assert len(copied.FindByName("parent", size=10_000)) == len(copied.FindByName("child", size=10_000))


def test_goes_into_no_folder_that_holds_anything(tree: KeywordTree, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")

    with pytest.raises(InvalidInputError, match="full"):
        backup(tree, tmp_path / "full")
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"


def test_of_damage_is_no_backup(tree: KeywordTree, tmp_path: Path) -> None:
    tree.CreateKeyword("tea", "root")
    tree.CreateKeyword("coffee", "root")
    log = tmp_path / "store" / "change_log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"tea"', b'"TEA"', 1))

    with pytest.raises(StoreCorruptError):
        backup(tree, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_is_made_where_no_folder_can_be_synced(
    tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def sync_files(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(fd)

    monkeypatch.setattr(os, "fsync", sync_files)

    assert backup(tree, tmp_path / "copy") == 0
