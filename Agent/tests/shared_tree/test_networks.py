"""Networks that hang, lose and deliver late; processes that fork and end; connections that are few."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, StoreCorruptError, StoreError
from Agent.shared_tree import SharedLog, store, tables
from Agent.shared_tree.connections import Connection, run_meanwhile
from Agent.shared_tree.rows import NotSentError
from Agent.shared_tree.tables import PostgresRows
from Agent.store.log_follower import all_infos
from Agent.tests.shared.faulty_proxy import PASS, Fault, FaultyProxy, delay
from Agent.tests.shared.own_server import OwnServer
from Agent.tests.shared_tree.conftest import Opener, end_sessions, names, opened, sql, wait_for
from Agent.tests.support.threads import in_threads

ROOT = Path(__file__).resolve().parents[3]


class TestDistance:
    """2 ms there and back: what is fetched one by one takes minutes, and a transaction that waits for it is ended."""

    CONTENTS = 600

    def test_many_long_contents_are_kept_and_compacted(
        self, far: SharedLog, proxy: FaultyProxy, log: SharedLog
    ) -> None:
        tree = opened(log)
        texts = [f"{number} " + "long" * 1_100 for number in range(self.CONTENTS)]
        for start in range(0, self.CONTENTS, 100):  # in batches of 450 KB, the last but one in pieces
            tree.BatchCreateInfos([{"content": text} for text in texts[start : start + 100 + 100 * (start == 400)]])
        tree.Close()
        requests: list[bytes] = []

        def count(chunk: bytes) -> Fault:
            if chunk[:1] in b"PBQ":  # the beginning of a statement: a busy machine sends long ones in more pieces
                requests.append(chunk)
            return delay(0.002)

        with opened(far) as tree:
            proxy.on_request = count
            assert far.keep("u42", always=True)
            name = tree.Snapshot(copy=True)
            tree.CompactStorage()
            tree.CompactStorage(keep_history=False)

        assert len(requests) < self.CONTENTS / 2  # one by one, each of the five would send as many as there are
        with opened(log) as tree:
            found = {info.content for info in all_infos(tree)}
            assert found >= set(texts)
            assert name in log.snapshots("u42")


class TestNetworks:
    @pytest.mark.parametrize(
        ("phase", "is_new"), [("connect", True), ("answer", True), ("request", False), ("answer", False)]
    )
    def test_that_hang_delay_and_block_no_one_for_longer_than_patience(
        self, far: SharedLog, proxy: FaultyProxy, phase: str, is_new: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree = opened(far)
        tree.CreateKeyword("before", "root")
        monkeypatch.setattr(store, "_GUESS_S", 0.0)  # as after a second
        setattr(proxy, f"on_{phase}", lambda _: delay(10))
        if is_new:  # the connection is
            proxy.cut()
        started = time.monotonic()
        with pytest.raises(StoreError) as caught:
            tree.CreateKeyword("tea", "root")
        assert time.monotonic() - started < 8
        assert not caught.value.outcome_unknown  # it got no further than to look what is new
        proxy.heal()
        proxy.cut()
        tree.CreateKeyword("after", "root")
        assert names(tree) == ["before", "after"]

    @pytest.mark.parametrize("phase", ["request", "answer"])
    def test_that_hang_in_a_row_of_writes_leave_one_unknown(
        self, far: SharedLog, proxy: FaultyProxy, phase: str
    ) -> None:
        tree = opened(far)
        tree.CreateKeyword("before", "root")
        setattr(proxy, f"on_{phase}", lambda _: delay(10))
        started = time.monotonic()
        with pytest.raises(StoreError) as caught:
            tree.CreateKeyword("tea", "root")
        assert time.monotonic() - started < 8
        assert caught.value.outcome_unknown
        assert names(tree) == ["before"]
        proxy.heal()
        proxy.cut()
        tree.CreateKeyword("after", "root")
        is_in = any(change.operation_id == caught.value.operation_id for change in tree.History())
        assert names(tree) == (["before", "tea", "after"] if is_in else ["before", "after"])

    def test_a_write_that_arrives_after_a_compaction_is_never_acknowledged_and_lost(
        self, far: SharedLog, proxy: FaultyProxy, open_tree: Opener
    ) -> None:
        tree, other = opened(far), open_tree()
        tree.CreateKeyword("first", "root")  # so the next one is a guess
        is_under_way = threading.Event()

        def judge(chunk: bytes) -> Fault:
            if b'"mine"' not in chunk or is_under_way.is_set():
                return PASS
            is_under_way.set()
            return delay(0.7)

        proxy.on_request = judge
        thread = threading.Thread(target=tree.CreateKeyword, args=("mine", "root"))
        thread.start()
        is_under_way.wait(5)
        other.CreateKeyword("theirs", "root")
        other.CompactStorage(keep_history=False)
        thread.join()

        assert names(open_tree()) == ["first", "theirs", "mine"]

    def test_a_turn_is_waited_for_no_longer_than_an_answer(self, database: str) -> None:
        with contextlib.closing(Connection.connect(database, autocommit=True)) as connection:
            connection.seconds, started = 1.0, time.monotonic()
            with pytest.raises(NotSentError):
                run_meanwhile(connection, lambda: None, ("SELECT pg_sleep(9)", ()))
            assert time.monotonic() - started < 1.6


class TestProcesses:
    def test_a_forked_child_writes_for_itself_and_leaves_the_parents_session_alone(
        self, log: SharedLog, open_tree: Opener
    ) -> None:
        tree = open_tree()
        tree.CreateKeyword("before", "root")
        asked = "SELECT pg_backend_pid()"
        session = log._pool.run(lambda connection: connection.execute(asked).fetchone())

        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            with contextlib.suppress(BaseException):
                tree.CreateKeyword("child", "root")
                tree.Close()
                log.close()
                code = 0
            os._exit(code)

        assert os.waitpid(child, 0)[1] == 0
        tree.CreateKeyword("parent", "root")
        assert names(tree) == ["before", "child", "parent"]
        still = "SELECT pid FROM pg_stat_activity WHERE pid = %s"
        assert log._pool.run(lambda connection: connection.execute(still, session).fetchone()) == session

    def test_sockets_never_take_the_numbers_of_standard_streams(self, log: SharedLog, database: str) -> None:
        program = f"""
            import os
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            from Agent.keyword_tree import KeywordTree
            from Agent.shared_tree import SharedLog
            log = SharedLog({database!r})
            tree = KeywordTree("unused", store=log.tree("u42"))
            tree.CreateKeyword("tea", "root")
            for descriptor in (0, 1, 2):
                try:
                    os.write(descriptor, b"not for the server")
                except OSError:
                    pass
            tree.CreateKeyword("green", "root")
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, check=False)

        assert done.returncode == 0
        assert names(opened(log)) == ["tea", "green"]

    def test_a_process_that_ends_without_closing_leaves_no_session(self, server: OwnServer, log: SharedLog) -> None:
        log.close()
        wait_for(
            lambda: (
                sql(server.dsn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'keyword_tree'")
                == [(0,)]
            )
        )


class TestManyTrees:
    def test_share_a_few_connections_and_one_statement_that_looks_for_news(self, log: SharedLog, database: str) -> None:
        with SharedLog(database, connections=3) as one, SharedLog(database) as other:
            trees = [opened(one, f"t{number:03}") for number in range(40)]
            theirs = [opened(other, f"t{number:03}") for number in (3, 7, 39)]
            assert one.follow(trees) == []
            for tree in theirs:
                tree.CreateKeyword("new", "root")

            changed = one.follow(trees)

            assert changed == [trees[3], trees[7], trees[39]]
            assert all(names(tree) == ["new"] for tree in changed)
            assert one.follow(trees) == []
            assert one.trees() == [f"t{number:03}" for number in range(40)]
            assert one._pool.count() <= 3

    def test_one_that_is_lost_keeps_no_other_from_being_followed(self, log: SharedLog) -> None:
        trees = [opened(log, name) for name in ("a", "b")]
        opened(log, "b").CreateKeyword("new", "root")
        log.remove("a")

        with pytest.raises(StoreCorruptError):
            log.follow(trees)

        assert names(trees[1]) == ["new"]

    def test_a_tree_of_a_folder_cannot_be_followed(self, log: SharedLog, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path / "folder")) as tree, pytest.raises(InvalidInputError, match="shared log"):
            log.follow([tree])

    def test_written_by_more_threads_than_there_are_connections(self, database: str, log: SharedLog) -> None:
        with SharedLog(database, connections=2) as few:
            trees = [opened(few, f"t{number}") for number in range(8)]
            in_threads(lambda tree: [tree.CreateKeyword(f"{n}", "root") for n in range(10)], trees)
            assert [len(names(tree)) for tree in trees] == [10] * 8
            assert few._pool.count() <= 2

    def test_any_name_is_a_tree_of_its_own(self, log: SharedLog) -> None:
        ids = ["u42", "U42", "用户/42", "a'b\"c", "%s", "x" * 1000]
        for tree_id in ids:
            opened(log, tree_id).CreateKeyword(tree_id[:500], "root")

        assert log.trees() == sorted(ids)
        for tree_id in ids:
            assert names(opened(log, tree_id)) == [tree_id[:500]]

    @pytest.mark.parametrize("tree_id", ["", "x" * 1001, "长" * 400, "a\x00b", "a\nb", 7, None, "\ud800"])
    def test_a_name_that_cannot_be_used_is_refused(self, tree_id: object) -> None:
        with pytest.raises(InvalidInputError, match="tree_id"):
            SharedLog().tree(tree_id)  # type: ignore[arg-type]

    @pytest.mark.parametrize("options", [{"connections": 1}, {"patience": 0}, {"patience": "x"}, {"connections": True}])
    def test_options_that_cannot_be_used_are_refused(self, options: dict[str, object]) -> None:
        with pytest.raises(InvalidInputError):
            SharedLog("", **options)  # type: ignore[arg-type]


class TestFewConnections:
    def test_two_are_enough_for_everything(self, log: SharedLog, database: str) -> None:
        with SharedLog(database, connections=2, patience=2) as single:
            tree, other = opened(single), opened(log)
            fact = tree.CreateInfo("x" * 2_000_000)
            for _ in range(3):
                tree._engine.store._turns = 2  # type: ignore[attr-defined]  # as after a conflict
                tree.UpdateInfo(fact.id, {"source": "read in its own turn"})
            stamp = tree.Snapshot(copy=True)
            tree.CompactStorage(keep_history=True)
            tree.CompactStorage(keep_history=False)
            tree.Restore(stamp)
            other.Refresh()

            assert tree.Verify() == other.Verify() == []
            assert single._pool.count() <= 2

    def test_a_session_that_ends_while_a_tree_opens_takes_no_connection_with_it(
        self, server: OwnServer, log: SharedLog, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = [{"name": f"{number}", "parent_id": "root", "description": "x" * 4000} for number in range(1000)]
        opened(log).BatchCreateKeywords(made)  # several parts
        log.keep("u42", always=True)
        read_parts = PostgresRows.read_parts

        def end_in_the_middle(self: PostgresRows, *which: Any) -> Iterator[object]:
            for part in read_parts(self, *which):
                yield part
                end_sessions(server)

        monkeypatch.setattr(tables, "_PARTS", 1)
        monkeypatch.setattr(PostgresRows, "read_parts", end_in_the_middle)
        with SharedLog(database, connections=2, patience=2) as single:
            tree = opened(single)

            assert len(names(tree)) == 1000
            assert tree.recovery == ()
            tree.CreateKeyword("green", "root")
            assert single._pool._permits.qsize() == 2
