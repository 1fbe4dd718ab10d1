"""What is durable is not reported as failed, half an operation is never read, stray files are passed over."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from Agent.keyword_tree import ConflictError, KeywordTree, StoreError
from Agent.tests.support import inside
from Agent.tests.support.threads import wait_until


class TestCallbacksThatRaise:
    """A write either raises and is not there, now and after reopening, or returns and is."""

    @pytest.mark.parametrize("error", [RuntimeError, ValueError, TimeoutError])
    def test_a_clock(self, folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
        inside.set_limits(monkeypatch, checkpoint_operations=3)
        calls = itertools.count(1)

        def clock() -> float:
            if next(calls) % 4 == 0:
                raise error("no time")
            return time.time()

        made = []
        with KeywordTree(str(folder), clock=clock) as tree:
            for number in range(40):
                try:
                    made.append(tree.CreateKeyword(f"k{number}", "root").name)
                except error:
                    continue
            assert [node.name for node in tree] == made
        with KeywordTree(str(folder)) as again:
            assert [node.name for node in again] == made
            assert again.Verify() == []

    @pytest.mark.parametrize(
        "write",
        [
            lambda t: t.MoveKeyword("boom", "a"),
            lambda t: t.DeleteKeyword("boom"),
            lambda t: t.AddAlias("boom", "more"),
            lambda t: t.MergeKeywords("boom", "a"),
        ],
    )
    def test_a_normalizer(self, folder: Path, write: Callable[[KeywordTree], object]) -> None:
        broken = [False]

        def normalize(text: str) -> list[str]:
            if broken[0] and text == "boom":
                raise ValueError("normalizer")
            return [text.lower()]

        with KeywordTree(str(folder), normalizer=normalize) as tree:
            tree.BatchCreateKeywords([{"name": name, "id": name, "parent_id": "root"} for name in ("a", "boom")])
            tree.Search("nothing", llm_expand_query=False)  # makes the table of tokens
            count, broken[0] = len(tree.History()), True
            try:
                write(tree)
                done = 1
            except ValueError:
                done = 0
            assert len(tree.History()) == count + done
            broken[0] = False
            assert tree.Verify() == []
            assert tree.Search("A", llm_expand_query=False).node == tree.GetKeyword("a")

    def test_memory_that_runs_out_while_a_write_is_taken_in(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            inside.before_taking_in(patch, fail)
            made = tree.CreateKeyword("there", "root")
        assert tree["there"] == made
        assert tree.Verify() == []


class TestHalfAnOperation:
    @pytest.mark.parametrize("at", [1, 50, 333])
    @pytest.mark.parametrize("kind", ["batch", "cascade", "merge"])
    def test_is_not_read_where_ctrl_c_comes_while_it_is_taken_in(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch, kind: str, at: int
    ) -> None:
        count = 400
        tree.BatchCreateKeywords([{"name": name, "id": name, "parent_id": "root"} for name in ("top", "other")])
        specs = [{"name": f"n{n}", "parent_id": "top", "aliases": [f"a{n}"]} for n in range(count)]
        if kind != "batch":
            tree.BatchCreateKeywords(specs)
        writes: dict[str, Callable[[], object]] = {
            "batch": lambda: tree.BatchCreateKeywords(specs),
            "cascade": lambda: tree.DeleteKeyword("top", cascade=True),
            "merge": lambda: tree.MergeKeywords("top", "other"),
        }
        seen: set[int] = set()
        ended: list[bool] = []

        def look() -> None:
            while not ended:
                seen.update((-len(tree.GetChildren("top")), len(tree)))

        readers = [threading.Thread(target=look) for _ in range(3)]
        for reader in readers:
            reader.start()
        wait_until(lambda: bool(seen))
        with monkeypatch.context() as patch:
            inside.interrupt_at(patch, at)
            try:
                with pytest.raises(KeyboardInterrupt):
                    writes[kind]()
                time.sleep(0.02)
            finally:
                ended.append(True)
                for reader in readers:
                    reader.join()
        wanted = {"batch": {2, count + 2}, "cascade": {count + 2, 1}, "merge": {count + 2, count + 1}}
        assert seen <= {0, -count, *wanted[kind]}
        assert tree.Verify() == []


class TestUndo:
    @pytest.mark.parametrize("kind", ["info", "keyword"])
    def test_of_a_deletion_is_not_barred_by_its_id_that_was_used_again(self, tree: KeywordTree, kind: str) -> None:
        calls: dict[str, tuple[Any, ...]] = {
            "info": (lambda text: tree.CreateInfo(text, id="X"), tree.DeleteInfo, tree.GetInfo),
            "keyword": (lambda text: tree.CreateKeyword(text, "root", id="X"), tree.DeleteKeyword, tree.GetKeyword),
        }
        create, delete, get = calls[kind]
        create("first")
        made = get("X")
        delete("X")
        deletion = tree.last_operation
        for text in ("second", "third"):
            create(text)
            with pytest.raises(ConflictError):
                tree.Undo(deletion)  # the id is in use
            tree.Undo(tree.last_operation)
        tree.CompactStorage()
        tree.Undo(deletion)
        there: Any = get("X")
        assert {**vars(there), "version": 0, "updated_at": 0} == {**vars(made), "version": 0, "updated_at": 0}


STRAYS = (
    ".DS_Store",
    "Thumbs.db",
    "desktop.ini",
    "._change_log.jsonl",
    "change_log.jsonl~",
    ".change_log.jsonl.swp",
    "#a#",
)


class TestStrayFiles:
    @pytest.mark.parametrize("place", ["", "snapshots", "history", "indexes"])
    def test_are_passed_over_by_every_method(self, folder: Path, place: str) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.Ensure("tea")
            tree.CompactStorage()
            snapshot = tree.Snapshot(copy=True)
            (folder / place).mkdir(exist_ok=True)
            for name in STRAYS:
                (folder / place / name).write_bytes(b"\0stray")
            (folder / place / "stray folder").mkdir()
            (folder / place / "20260101T000000.000000Z").write_bytes(b"named like a snapshot")
            assert tree.Verify() == []
            assert tree.TreeMetrics()["keywords"] == 1
            tree.Restore(snapshot)
            for keep_history in (True, False, True):
                tree.CompactStorage(keep_history=keep_history)
            tree.Snapshot()
            assert len(tree.History()) >= 0
            assert tree.Verify() == []
        with KeywordTree(str(folder)) as again:
            assert [node.name for node in again] == ["tea"]
            assert again.recovery == ()
        assert place or (folder / ".DS_Store").read_bytes() == b"\0stray"

    def test_in_place_of_a_folder(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.Ensure("tea")
            for name in ("history", "snapshots"):
                (folder / name).write_bytes(b"a file")
            assert tree.Verify() == []
            assert tree.TreeMetrics()["keywords"] == 1
            tree.CompactStorage(keep_history=False)
            for keep in (tree.Snapshot, tree.CompactStorage):
                with pytest.raises(StoreError):
                    keep()
            assert len(tree) == 1


class TestPoorFileSystems:
    @pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
    def test_that_sync_no_folders(self, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        real = os.fsync

        def sync(fd: int) -> None:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                raise OSError(number, os.strerror(number))
            real(fd)

        monkeypatch.setattr(os, "fsync", sync)
        with KeywordTree(str(folder)) as tree:
            tree.Ensure("x")
            tree.Snapshot()
            tree.CompactStorage()
            assert tree.Verify() == []

    @pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
    def test_that_have_no_locks_are_read_and_say_so(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def lock(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", lock)
            with pytest.raises(StoreError, match=r"there is no tree yet, and .* cannot be locked"):
                KeywordTree(str(folder))
        with KeywordTree(str(folder)) as tree:
            tree.Ensure("x")
        monkeypatch.setattr(fcntl, "flock", lock)
        with KeywordTree(str(folder)) as reader:
            assert len(reader) == 1
            with pytest.raises(StoreError, match=f"cannot be locked.*{os.strerror(number)}"):
                reader.Ensure("y")


@pytest.mark.parametrize("is_own", [True, False])
def test_a_first_search_that_misses_looks_at_no_keyword(folder: Path, is_own: bool) -> None:
    asked: list[str] = []

    def normalize(text: str) -> list[str]:
        asked.append(text)
        return [text.lower().replace("-", "")]

    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords([{"name": f"k-{n}", "id": f"k{n}", "parent_id": "root"} for n in range(1100)])
    with KeywordTree(str(folder), normalizer=normalize if is_own else None) as tree:
        asked.clear()
        assert tree.Search("nothing", llm_expand_query=False).node is None
        assert asked == ["nothing"] * is_own
        assert tree.Search("K7", llm_expand_query=False).node == tree.GetKeyword("k7")
        tree.UpdateKeyword("k7", {"name": "k-seven"}, 1)
        assert tree.Search("K7", llm_expand_query=False).node is None
        assert tree.Search("kseven", llm_expand_query=False).node == tree.GetKeyword("k7")
        assert tree.Verify() == []


def test_the_first_ranking_of_a_deep_tree_grows_with_its_depth(folder: Path) -> None:
    def lines_run(depth: int) -> int:
        """Count the lines that the first ranking runs: on a busy machine a time says less."""
        run = 0

        def count(frame: FrameType, event: str, _: object) -> Any:
            nonlocal run
            run += event == "line"
            return count

        with KeywordTree(str(folder / str(depth))) as tree:
            names = [f"c{level}" for level in range(depth)]
            above = ["root", *names]
            specs = [
                {"id": name, "name": name, "parent_id": parent} for name, parent in zip(names, above, strict=False)
            ]
            tree.BatchCreateKeywords(specs)
            tracer = sys.gettrace()
            sys.settrace(count)
            try:
                assert tree.RankCandidates("c7")[0][0].id == "c7"
            finally:
                sys.settrace(tracer)
            return run

    few, many = lines_run(400), lines_run(1_600)
    assert many < 5 * few
