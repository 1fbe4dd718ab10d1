"""What a store does with its folder: logs that lost something, what is to be forgotten, links, descriptors."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import Info, KeywordNode, KeywordTree, RelationType, StoreCorruptError, StoreError
from Agent.tests.support import inside
from Agent.tests.support.threads import in_a_child

LONG = "长" * 5000


def _lose_last_operation(folder: Path) -> None:
    """Take the last line away that is no checkpoint, and what is behind it."""
    log = folder / "change_log.jsonl"
    lines = [line for line in log.read_bytes().splitlines(keepends=True) if b'"op": "checkpoint"' not in line]
    log.write_bytes(b"".join(lines[:-1]))


def _check_rows_are_kept(folder: Path) -> None:
    """Open a log that looks like a copy's: what only the projections have is set aside, whole, and reported."""
    kinds = ("nodes", "infos", "links")
    before = {kind: (folder / f"{kind}.jsonl").read_bytes() for kind in kinds}
    with KeywordTree(str(folder)) as tree:
        recovery, problems = tree.recovery, tree.Verify()
    cut = {kind: before[kind].removeprefix((folder / f"{kind}.jsonl").read_bytes()) for kind in kinds}
    kept = {kind: b"".join(path.read_bytes() for path in folder.glob(f"cut_tail-{kind}-*.bin")) for kind in kinds}
    assert any(cut.values())
    assert kept == cut
    assert {problem.partition(" holds rows that the log does not have")[0] for problem in problems} == {
        path.name for path in folder.glob("cut_tail-*.bin")
    }
    for kind in kinds:
        assert any(kind in said and "does not have" in said for said in recovery) == bool(cut[kind])
    with KeywordTree(str(folder)) as again:
        assert again.recovery == ()
        assert all(info.content in ("new", LONG) for info in again.ListInfos())  # the log's, not what it has lost


class TestFolder:
    def test_what_another_process_began_to_forget_is_not_taken_from_this_ones_history(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.CreateKeyword("k", "root")
            seq = tree.History(limit=1)[0].seq
            (folder / "forget").write_text(f"{seq}\n")  # and died before its new log was there
            tree.CompactStorage(keep_history=True)

            assert [change.op for change in tree.History()][-1] == "create_store"
        assert not (folder / "forget").exists()

    def test_a_tree_that_was_open_meanwhile_writes_nothing_back_that_is_forgotten(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inside.set_limits(monkeypatch, kept_from=1)
        with KeywordTree(str(folder)) as mine, KeywordTree(str(folder)) as others:
            secret = mine.CreateKeyword("topsecretword", "root")
            mine.CreateKeyword("kept", "root")
            others.Refresh()
            mine.DeleteKeyword(secret.id)
            mine.CompactStorage(keep_history=False)
            others.RankCandidates("kept")
        held = [path for path in folder.rglob("*") if path.is_file() and b"topsecretword" in path.read_bytes()]
        assert held == []

    @pytest.mark.parametrize(
        "last",
        [
            lambda tree, node, info: tree.UpdateKeyword(node.id, {"description": "new"}, node.version),
            lambda tree, node, info: tree.UpdateInfo(info.id, {"content": LONG + "!"}),
            lambda tree, node, info: tree.DeleteKeyword(node.id),
            lambda tree, node, info: tree.CreateInfo("new"),
            lambda tree, node, info: tree.LinkInfo(info.id, node.id, RelationType.SOURCE),
            lambda tree, node, info: tree.UnlinkInfo(info.id, node.id),
            lambda tree, node, info: tree.DeleteInfo(info.id) or tree.CreateInfo("back", id=info.id),
            lambda tree, node, info: tree.DeleteInfo(info.id) or tree.Undo(tree.last_operation),
        ],
        ids=["keyword", "info", "deletion", "creation", "link", "no link", "an id that came back", "undo"],
    )
    def test_a_log_that_lost_its_last_operation_opens_and_keeps_the_rows_whatever_that_was(
        self, folder: Path, last: Callable[[KeywordTree, KeywordNode, Info], object]
    ) -> None:
        with KeywordTree(str(folder)) as tree:
            node = tree.CreateKeyword("k", "root")
            last(tree, node, tree.CreateInfo(LONG, keyword_ids=[node.id]))
        _lose_last_operation(folder)
        _check_rows_are_kept(folder)

    def test_another_snapshots_file_is_not_believed(self, tree: KeywordTree, folder: Path) -> None:
        tree.CreateKeyword("first", "root")
        early = tree.Snapshot(copy=True)
        tree.CreateKeyword("second", "root")
        late = tree.Snapshot(copy=True)
        shutil.copy(folder / "snapshots" / early / "snapshot.json", folder / "snapshots" / late / "snapshot.json")
        with pytest.raises(StoreCorruptError, match="was not written for"):
            tree.Restore(late)

    def test_the_dead_take_no_room_after_a_compaction(self, tree: KeywordTree, folder: Path) -> None:
        for _ in range(3):
            made = tree.BatchCreateInfos([{"content": LONG} for _ in range(100)])
            with tree.Operation():
                for info in made:
                    tree.DeleteInfo(info.id)
        last = tree.History(limit=1)[0].operation_id
        tree.CompactStorage()

        alive = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        assert alive < 200 * 1024  # of 4.5 MB
        tree.Undo(last)  # what undoing needs is in the history
        assert len(tree.ListInfos(size=200)) == 100
        assert tree.Verify() == []

    def test_a_forgetting_that_a_crash_interrupted_is_finished(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.DeleteInfo(tree.CreateInfo("a secret that was stored").id)
            tree.CompactStorage()
            kept = {path.name: path.read_bytes() for path in (folder / "history").iterdir()}
            tree.CompactStorage(keep_history=False)
        first = json.loads((folder / "change_log.jsonl").read_bytes().split(b"\n")[0])
        for name, data in kept.items():
            (folder / "history" / name).write_bytes(data)
        (folder / "forget").write_bytes(b"%d\n" % (first["seq"] - 1))
        KeywordTree(str(folder)).Close()
        assert not any(b"a secret" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert not (folder / "forget").exists()

    def test_forgetting_takes_nothing_that_is_not_the_trees_and_follows_no_link(
        self, tree: KeywordTree, folder: Path, tmp_path: Path
    ) -> None:
        mine = [folder / "history_backup/a", folder / "snapshots_old/b", folder / "notes.new", tmp_path / "mine/a"]
        for path in mine:
            path.parent.mkdir(exist_ok=True)
            path.write_text("mine")
        tree.CreateKeyword("k", "root")
        tree.CompactStorage()
        (folder / "history" / "link").symlink_to(tmp_path / "mine")
        tree.CompactStorage(keep_history=False)
        assert all(path.read_text() == "mine" for path in mine)
        assert not list((folder / "history").iterdir())

    def test_a_file_is_called_one(self, tmp_path: Path) -> None:
        path = tmp_path / "笔记.txt"
        path.write_text("mine")
        with pytest.raises(StoreError, match="is a file, and no folder"):
            KeywordTree(str(path))
        assert path.read_text() == "mine"


class TestMoved:
    @pytest.mark.parametrize("which", ["above", "above/tree"])
    def test_what_takes_its_place_is_written_to_and_nothing_else(self, which: str, tmp_path: Path) -> None:
        there, moved = tmp_path / which, tmp_path / "moved"
        with KeywordTree(str(tmp_path / "above/tree")) as tree:
            time.sleep(0.2)  # what the folder is known by is past a tick of the clock then
            tree.CreateKeyword("a", "root")
            there.rename(moved)
            with pytest.raises(StoreError, match="No such file"):
                tree.CreateKeyword("b", "root")
            assert not there.exists()
            shutil.copytree(moved, there)
            tree.CreateKeyword("c", "root")
        with KeywordTree(str(tmp_path / "above/tree")) as tree:
            assert [node.name for node in tree.GetChildren("root")] == ["a", "c"]


class TestLinksInAFolder:
    def test_a_log_after_a_relative_one_is_kept_in_history_and_snapshots(self, folder: Path, tmp_path: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            node = tree.CreateKeyword("old", "root")
        (tmp_path / "elsewhere").mkdir()
        (folder / "change_log.jsonl").rename(tmp_path / "elsewhere" / "log.jsonl")
        (folder / "change_log.jsonl").symlink_to("../elsewhere/log.jsonl")
        with KeywordTree(str(folder)) as tree:
            snapshot = tree.Snapshot()
            tree.UpdateKeyword(node.id, {"name": "new"}, 1)
            tree.CompactStorage()
            assert [change.op for change in tree.History(node.id)] == ["update_keyword", "create_keyword"]
            tree.Restore(snapshot)
            assert [each.name for each in tree.Walk()][1:] == ["old"]

    def test_forgetting_reaches_a_history_that_lies_elsewhere(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        with KeywordTree(str(folder)) as tree:
            (folder / "history").symlink_to(tmp_path / "elsewhere")
            tree.DeleteKeyword(tree.CreateKeyword("top secret", "root").id)
            tree.CompactStorage()
            assert any(b"top secret" in path.read_bytes() for path in (tmp_path / "elsewhere").iterdir())
            tree.CompactStorage(keep_history=False)
            assert tree.History("top secret") == []
        assert list((tmp_path / "elsewhere").iterdir()) == []


class TestDescriptors:
    def test_are_closed_once_though_ctrl_c_comes_twice_while_a_tree_closes(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree = KeywordTree(str(folder))
        close, struck = os.close, list[int]()

        def interrupted(fd: int) -> None:
            close(fd)
            if len(struck) < 2:
                struck.append(fd)
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "close", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tree.Close()
        others = [os.open(tmp_path / "another file", os.O_CREAT | os.O_RDWR) for _ in range(8)]
        assert set(struck) <= set(others)  # the numbers are used again
        del tree
        gc.collect()

        for fd in others:
            close(fd)  # raises where it was closed


class _Slow(TreeRanker):
    """A ranker that waits while it is asked, its lock held, until it is let go."""

    asked, go_on = threading.Event(), threading.Event()

    @override
    def _follow(self) -> str:
        self.asked.set()
        self.go_on.wait()
        return super()._follow()


class TestFork:
    def test_while_another_thread_ranks_leaves_the_child_a_ranking_of_its_own(self, folder: Path) -> None:
        with KeywordTree(str(folder), ranker=_Slow) as tree:
            tree.CreateKeyword("k", "root")
            thread = threading.Thread(target=tree.RankCandidates, args=["q"])
            thread.start()
            _Slow.asked.wait()

            def rank() -> None:
                _Slow.go_on.set()
                tree.RankCandidates("q")

            try:
                assert in_a_child(rank) == 0
            finally:
                _Slow.go_on.set()
                thread.join()
