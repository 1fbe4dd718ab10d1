"""Threads, tasks and groups that meet at bad moments: each of these has gone wrong once.

The tests drive the library from outside, with real threads, tasks and forks; only the disk is made to fail.
"""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import (
    ConflictError,
    DuplicateIdError,
    KeywordTree,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    VersionConflictError,
)
from Agent.tests.support import inside
from Agent.tests.support.looking import names_under
from Agent.tests.support.threads import Together, wait_until


def test_history_is_read_while_another_thread_compacts(tree: KeywordTree, hasty: None, no_sync: None) -> None:
    tree.CreateKeyword("k", "root")
    is_done, failed = threading.Event(), list[Exception]()

    def read() -> None:
        while not (is_done.is_set() or failed):
            try:
                tree.History(limit=1)
            except Exception as error:  # seen after some 40 compactions where it was not looked for again
                failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(120):
        tree.CompactStorage()
    is_done.set()
    for thread in threads:
        thread.join()

    assert failed == []


class TestBlocksAndTasks:
    def test_a_task_does_not_write_into_anothers_block(self, tree: KeywordTree) -> None:
        async def run() -> None:
            is_in, is_out = asyncio.Event(), asyncio.Event()

            async def first() -> None:
                with tree.Operation("first"):
                    tree.CreateKeyword("taken back", "root")
                    is_in.set()
                    await is_out.wait()
                    raise ZeroDivisionError

            async def second() -> None:
                await is_in.wait()
                tree.CreateKeyword("alone", "root")
                with tree.Operation("second"):
                    tree.CreateKeyword("in a block", "root")
                is_out.set()

            with pytest.raises(ZeroDivisionError):
                await asyncio.gather(first(), second())

        asyncio.run(run())

        assert names_under(tree) == ["alone", "in a block"]

    def test_a_task_that_a_block_starts_writes_for_itself(self, tree: KeywordTree) -> None:
        async def write(name: str) -> None:
            tree.CreateKeyword(name, "root")

        async def run() -> None:
            with tree.Operation():
                tree.CreateKeyword("taken back", "root")
                await asyncio.create_task(write("task"))
                await asyncio.to_thread(tree.CreateKeyword, "thread", "root")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            asyncio.run(run())

        assert names_under(tree) == ["task", "thread"]

    def test_a_task_of_trio_that_a_block_starts_writes_for_itself(self, tree: KeywordTree) -> None:
        pytest.importorskip("trio.testing", reason="trio is not installed")
        import trio

        async def write(name: str) -> None:
            tree.CreateKeyword(name, "root")

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                with tree.Operation():
                    tree.CreateKeyword("taken back", "root")
                    nursery.start_soon(write, "task")
                    await trio.testing.wait_all_tasks_blocked()
                    tree.CreateKeyword("taken back, too", "root")
                    raise ZeroDivisionError

        with pytest.raises(ExceptionGroup):
            trio.run(run)

        assert names_under(tree) == ["task"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_thread_of_a_forked_child_writes_for_itself(tree: KeywordTree) -> None:
    with tree.Operation():
        tree.CreateKeyword("in the parent's block", "root")
        child = os.fork()
        if child == 0:
            thread = threading.Thread(target=tree.CreateKeyword, args=("of the child", "root"))
            thread.start()
            thread.join()
            os._exit(0)
        os.waitpid(child, 0)

    assert sorted(names_under(tree)) == ["in the parent's block", "of the child"]


class TestGroups:
    """Writers that come while another commits are committed together behind it."""

    def test_of_one_info_and_of_different_ones_share_a_sync_and_come_after_one_another(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a, b = tree.CreateInfo("a").id, tree.CreateInfo("b").id
        together = Together(tree, monkeypatch)
        for id, content in ((a, "a1"), (b, "b1"), (a, "a2")):
            together.queue_up(partial(tree.UpdateInfo, id, {"content": content}))
        together.go_on()

        assert together.raised == []
        log = Path(tree.data_dir, "change_log.jsonl").read_bytes()
        durable = [int(number) for number in re.findall(rb'"durable": (\d+), "op": "update_info"', log)]
        assert durable == [durable[0]] * 3
        tree.Close()
        with KeywordTree(tree.data_dir) as again:
            infos = [again.GetInfo(id) for id in (a, b)]
            assert [(info.content, info.version) for info in infos if info] == [("a2", 3), ("b1", 2)]
            assert again.Verify() == []

    def test_do_not_commit_what_was_interrupted_while_it_waited(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt() -> None:
            wait_until(lambda: inside.waiting_writers(tree) == 2)
            time.sleep(0.1)  # it waits for its group's leader by now
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        together = Together(tree, monkeypatch)
        together.queue_up(lambda: tree.CreateKeyword("second", "root"))  # leads the group that forms meanwhile
        time.sleep(0.1)  # it holds its group's lock by now
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            tree.CreateKeyword("interrupted", "root")
        interrupter.join()
        together.go_on()

        assert together.raised == []
        assert names_under(tree) == ["first", "second"]
        assert [change.op for change in tree.History()] == ["create_keyword", "create_keyword", "create_store"]

    def test_have_an_unknown_outcome_where_ctrl_c_met_who_commits_them(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        together = Together(tree, monkeypatch)
        sync = inside.Files.Sync

        def interrupt(files: inside.Files, fd: int) -> None:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            sync(files, fd)

        def follow() -> None:
            wait_until(lambda: inside.waiting_writers(tree) == 1)
            together.queue_up(lambda: tree.CreateKeyword("following", "root"))
            together.go_on()

        monkeypatch.setattr(inside.Files, "Sync", interrupt)
        following = threading.Thread(target=follow)
        following.start()
        with pytest.raises(KeyboardInterrupt):
            tree.CreateKeyword("interrupted", "root")  # it leads the group
        following.join()
        monkeypatch.undo()

        assert [getattr(error, "outcome_unknown", None) for error in together.raised] == [True]
        assert names_under(tree) == ["first", "interrupted", "following"]
        assert tree.Verify() == []


class TestReaders:
    def test_of_a_long_content_report_that_the_tree_was_closed_and_get_no_other_file(
        self, tree: KeywordTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = tree.CreateInfo("a long content " * 1000)
        reading, closed = threading.Event(), threading.Event()
        reported: list[BaseException] = []

        def wait() -> None:
            if threading.current_thread() is reader:
                reading.set()
                closed.wait(30)

        def look() -> None:
            try:
                tree.GetInfo(info.id)
            except kt.KeywordTreeError as error:
                reported.append(error)

        inside.behind_looking_whether_open(monkeypatch, wait)
        reader = threading.Thread(target=look)
        reader.start()
        assert reading.wait(30)
        tree.Close()
        (tmp_path / "other").write_bytes(b"another file " * 10_000)
        taken = [os.open(tmp_path / "other", os.O_RDONLY) for _ in range(5)]  # the numbers that were closed
        closed.set()
        reader.join()
        for fd in taken:
            os.close(fd)

        assert [type(error) for error in reported] == [kt.ClosedError]

    @pytest.mark.parametrize("moment", [inside.in_reading_a_row, inside.before_reading_a_row])
    def test_of_a_long_content_get_it_though_the_log_is_compacted_meanwhile(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch, moment: Callable[..., None]
    ) -> None:
        gone, info = tree.CreateInfo("another long content " * 1000), tree.CreateInfo("a long content " * 1000)
        tree.DeleteInfo(gone.id)
        moment(monkeypatch, self.once_elsewhere(tree.CompactStorage))

        assert tree.GetInfo(info.id) == info

    def test_of_a_long_content_report_that_it_was_changed_and_the_log_compacted_meanwhile(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def work() -> None:
            tree.UpdateInfo(info.id, {"content": "a newer content " * 1000})
            tree.CompactStorage()

        info = tree.CreateInfo("a long content " * 1000)
        inside.in_reading_a_row(monkeypatch, self.once_elsewhere(work))
        with pytest.raises(StoreError, match="ask again"):
            tree.GetInfo(info.id)
        found = tree.GetInfo(info.id)

        assert found is not None
        assert found.content == "a newer content " * 1000

    def once_elsewhere(self, work: Callable[[], object]) -> Callable[[], None]:
        """Return what lets another thread work when it is first called."""
        begun: list[threading.Thread] = []

        def act() -> None:
            if not begun:
                begun.append(threading.Thread(target=work))
                begun[0].start()
                begun[0].join()

        return act


class TestReentry:
    """A commit's own thread comes back: a signal's handler does, a clock or a ranking may."""

    def test_does_not_write_where_a_search_reads(self, tmp_path: Path) -> None:
        is_asked: list[bool] = []

        def normalize(text: str) -> list[str]:
            if is_asked and is_asked.pop():
                for call in (mine.Refresh, mine.Close, lambda: mine.CreateKeyword("within", "root")):
                    with pytest.raises(StoreError, match="while its own thread does"):
                        call()
            return [text.casefold()]

        with KeywordTree(str(tmp_path / "store"), normalizer=normalize) as mine:
            mine.CreateKeyword("k", "root")
            is_asked.append(True)
            mine.Search("something else", False)

            assert is_asked == []
            assert names_under(mine) == ["k"]


class TestLostLogs:
    def test_a_log_that_is_gone_is_not_begun_again(self, tree: KeywordTree, tmp_path: Path) -> None:
        tree.CreateKeyword("mine", "root")
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        inside.must_reopen(tree)
        for _ in range(2):
            with pytest.raises(StoreCorruptError, match="the log is gone, though it was read"):
                tree.CreateKeyword("more", "root")

        assert not (tmp_path / "store" / "change_log.jsonl").exists()
        assert tree.data_dir == str(tmp_path / "store")

    def test_a_circle_of_parents_is_refused_by_a_ranking_too(self, tree: KeywordTree) -> None:
        ids = [tree.CreateKeyword(name, "root").id for name in ("egg", "hen")]
        for id, parent_id in zip(ids, reversed(ids), strict=True):  # as only a forged log can have it
            inside.forge_parent(tree, id, parent_id)

        with pytest.raises(StoreCorruptError, match="do not lead to the root"):
            tree.RankCandidates("egg")


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            DuplicateIdError("x"),
            NotFoundError("keyword", "编程"),
            VersionConflictError("x", 1, 2),
            ConflictError("later", []),
            StoreError("m", outcome_unknown=True),
            StoreCorruptError("f", 3, "d"),
        ],
    )
    def test_go_from_process_to_process(self, error: Exception) -> None:
        again = pickle.loads(pickle.dumps(error))

        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


class TestFolders:
    @pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
    def test_are_named_when_a_tree_cannot_be_copied(
        self, tree: KeywordTree, duplicate: Callable[[object], Any]
    ) -> None:
        with pytest.raises(TypeError, match=re.escape(f"open {inside.shorten(tree.data_dir)} once more")):
            duplicate(tree)
