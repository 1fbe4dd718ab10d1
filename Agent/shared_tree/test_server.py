"""Shared trees over a real PostgreSQL on good and bad days; they skip where it is not installed."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, NotFoundError, StoreCorruptError, StoreError
from Agent.shared_tree import OwnServer, SharedLog, statements, store, storm_worker
from Agent.shared_tree.conftest import Opener, port_of, sql
from Agent.shared_tree.faulty_proxy import PASS, Fault, FaultyProxy, delay, late, lose
from Agent.shared_tree.running import Runner

ROOT = Path(__file__).resolve().parents[2]


def names(tree: KeywordTree) -> list[str]:
    return [node.name for node in tree.GetChildren("root")]


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def far(database: str, proxy: FaultyProxy, log: SharedLog) -> Iterator[SharedLog]:
    """Give a log that is reached through a network that may fail."""
    with SharedLog(database.replace(f"port={port_of(database)}", f"port={proxy.port}"), patience=2) as far:
        yield far


def opened(log: SharedLog, tree_id: str = "u42") -> KeywordTree:
    return KeywordTree("unused", store=log.tree(tree_id))


class TestSetup:
    def test_again_and_at_once_changes_nothing(self, database: str) -> None:
        errors: list[BaseException] = []

        def setup() -> None:
            try:
                with SharedLog(database) as log:
                    log.setup()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=setup) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert errors == []
        with SharedLog(database) as log:
            assert log.trees() == []

    def test_without_it_an_error_names_it(self, database: str) -> None:
        with SharedLog(database, patience=1) as log, pytest.raises(StoreError, match="run setup"):
            opened(log)

    @pytest.mark.parametrize(("found", "hint"), [(0, "run setup"), (2, "use a newer version")])
    def test_tables_of_another_format_are_refused(self, log: SharedLog, database: str, found: int, hint: str) -> None:
        sql(database, "UPDATE kt_format SET format = %s", found)

        with SharedLog(database) as other, pytest.raises(StoreError, match=hint):
            opened(other)
        with SharedLog(database) as other, pytest.raises(StoreError, match=f"have format {found}"):
            other.setup()

    def test_tables_that_lack_columns_are_refused(self, database: str) -> None:
        sql(database, "CREATE TABLE kt_batch (tree_id text, after bigint, upto bigint, crc text, lines bytea)")

        with SharedLog(database, patience=1) as log, pytest.raises(StoreError, match="older ones"):
            log.setup()

    def test_a_log_of_a_newer_format_is_refused(self, log: SharedLog, database: str) -> None:
        opened(log).Close()
        changed = "UPDATE kt_batch SET lines = convert_to(replace(convert_from(lines, 'UTF8'), %s, %s), 'UTF8')"
        sql(database, changed, '"format": 1', '"format": 2')
        row = sql(database, "SELECT lines FROM kt_batch")[0][0]
        assert isinstance(row, bytes)
        crc = f"{zlib.crc32(row[20:-1]):08x}"
        sql(database, "UPDATE kt_batch SET crc = %s, lines = overlay(lines placing %s from 10)", crc, crc.encode())

        with pytest.raises(StoreError, match="use a newer version"):
            opened(log)

    def test_a_role_that_may_not_write_is_told(self, log: SharedLog, database: str) -> None:
        opened(log).CreateKeyword("tea", "root")
        sql(database, "DROP ROLE IF EXISTS reader")
        sql(database, "CREATE ROLE reader LOGIN PASSWORD 'x'")
        sql(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        dsn = f"host=127.0.0.1 port={port_of(database)} user=reader password=x {database.split()[-1]}"

        with SharedLog(dsn, patience=1) as poor:
            tree = opened(poor)

            assert names(tree) == ["tea"]
            with pytest.raises(StoreError, match="42501"):
                tree.CreateKeyword("green", "root")
        sql(database, "DROP OWNED BY reader")
        sql(database, "DROP ROLE reader")


class TestSecrets:
    def test_nothing_of_the_connection_string_is_in_an_error_or_a_log(
        self, server: OwnServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        secret = "Geheimnis-42"
        good = f"host=127.0.0.1 port={server.port} user=kt"
        started = time.monotonic()
        said = []
        for dsn in (
            f"{good} password={secret} dbname=postgres",
            f"postgresql://kt:{secret}@127.0.0.1:{server.port}/no-such-db-{secret}",
            f"host=127.0.0.1 port=1 user={secret} password={secret} dbname={secret}",
            f"host={secret}.invalid user=kt password={secret}",
        ):
            log = SharedLog(dsn, patience=0.3)
            said.append(repr(log))
            with pytest.raises(StoreError) as caught:
                log.trees()
            said += traceback.format_exception(caught.value)
            said.append(str(caught.value.__context__))
        for dsn in (f"pasword={secret}", f"host=x {secret}", f"postgresql://{secret}:x@[/"):
            with pytest.raises(InvalidInputError) as refused:
                SharedLog(dsn)
            said += traceback.format_exception(refused.value)

        text = "\n".join([*said, *(record.getMessage() for record in caplog.records)])
        assert "password authentication failed" in text
        text = "\n".join(line for line in text.splitlines() if not line.strip().startswith(("SharedLog(", "log =")))
        assert secret not in text
        assert "127.0.0.1" not in text
        assert time.monotonic() - started < 10

    def test_a_wrong_password_is_told_at_once(self, server: OwnServer) -> None:
        started = time.monotonic()
        with pytest.raises(StoreError, match="password authentication failed"):
            SharedLog(server.dsn.replace("password=", "password=not-")).trees()

        assert time.monotonic() - started < 3

    def test_a_lost_session_is_not_logged_with_its_name(
        self, log: SharedLog, open_tree: Opener, server: OwnServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        one, other = open_tree(), open_tree()
        for number in range(10):
            threads = [threading.Thread(target=tree.CreateKeyword, args=(f"{number}", "root")) for tree in (one, other)]
            for thread in threads:
                thread.start()
            end_sessions(server)
            for thread in threads:
                thread.join()

        assert len(names(open_tree())) == 20
        for record in caplog.records:
            assert server.password not in record.getMessage()
            assert "127.0.0.1" not in record.getMessage()


def end_sessions(server: OwnServer) -> int:
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keyword_tree'"
    return len(sql(server.dsn, ended))


class TestServersThatWouldLose:
    def test_one_without_fsync_is_refused(self, server: OwnServer, log: SharedLog, database: str) -> None:
        sql(server.dsn, "ALTER SYSTEM SET fsync = off")
        sql(server.dsn, "SELECT pg_reload_conf()")
        try:
            wait_for(lambda: sql(server.dsn, "SHOW fsync") == [("off",)])
            with SharedLog(database) as careless, pytest.raises(StoreError, match="fsync=off"):
                careless.trees()
        finally:
            sql(server.dsn, "ALTER SYSTEM RESET fsync")
            sql(server.dsn, "SELECT pg_reload_conf()")
            wait_for(lambda: sql(server.dsn, "SHOW fsync") == [("on",)])

    @pytest.mark.parametrize(("found", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
    def test_commits_wait_for_the_disk_whatever_the_role_says(
        self, log: SharedLog, database: str, found: str, used: str
    ) -> None:
        name = database.split("dbname=")[1]
        sql(database, f"ALTER DATABASE {name} SET synchronous_commit = {found}")
        with SharedLog(database) as other:
            asked = "SELECT current_setting('synchronous_commit')"
            assert other._pool.run(lambda connection: connection.execute(asked).fetchone()) == (used,)

    def test_behind_a_pooler_settings_are_checked_and_nothing_is_prepared(self, log: SharedLog, database: str) -> None:
        with SharedLog(database, pooled=True) as pooled:
            tree = opened(pooled)
            for number in range(12):
                tree.CreateKeyword(f"{number}", "root")
            prepared = "SELECT count(*) FROM pg_prepared_statements"
            assert pooled._pool.run(lambda connection: connection.execute(prepared).fetchone()) == (0,)
        name = database.split("dbname=")[1]
        sql(database, f"ALTER DATABASE {name} SET synchronous_commit = off")
        with SharedLog(database, pooled=True) as pooled, pytest.raises(StoreError, match="synchronous_commit is off"):
            pooled.trees()

    def test_a_pooler_that_was_not_told_of_is_refused(self, pooled_log: SharedLog) -> None:
        with SharedLog(pooled_log._pool._dsn, patience=0.5) as unaware, pytest.raises(StoreError, match="pooled=True"):
            unaware.trees()

    def test_a_commit_whose_wait_for_a_standby_was_cancelled_is_not_acknowledged(
        self, server: OwnServer, far: SharedLog, open_tree: Opener
    ) -> None:
        tree = opened(far)
        outcome: list[object] = []

        def write() -> None:
            try:
                outcome.append(tree.CreateKeyword("tea", "root"))
            except StoreError as error:
                outcome.append(error.outcome_unknown)

        sql(server.dsn, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        sql(server.dsn, "SELECT pg_reload_conf()")
        try:
            wait_for(lambda: sql(server.dsn, "SHOW synchronous_standby_names") == [("nobody",)])
            thread = threading.Thread(target=write)
            thread.start()
            while thread.is_alive():
                sql(server.dsn, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
                time.sleep(0.05)
        finally:
            sql(server.dsn, "ALTER SYSTEM RESET synchronous_standby_names")
            sql(server.dsn, "SELECT pg_reload_conf()")
        thread.join()

        assert outcome == [True]
        tree.Refresh()
        assert names(tree) == ["tea"]


def wait_for(is_so: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


class TestServersThatGo:
    def test_a_restart_between_writes_is_not_noticed(self, server: OwnServer, open_tree: Opener) -> None:
        tree = open_tree()
        tree.CreateKeyword("before", "root")

        server.restart("immediate")

        tree.CreateKeyword("after", "root")
        assert names(tree) == names(open_tree()) == ["before", "after"]

    def test_while_it_is_gone_all_can_be_read_and_nothing_written(self, server: OwnServer, log: SharedLog) -> None:
        with SharedLog(log._pool._dsn, patience=0.3) as hasty:
            tree = opened(hasty)
            tree.CreateKeyword("tea", "root")
            server.stop()
            try:
                assert tree.Search("tea").node is not None
                with pytest.raises(StoreError, match="cannot be reached") as caught:
                    tree.CreateKeyword("coffee", "root")
                assert not caught.value.outcome_unknown
                with pytest.raises(StoreError):
                    opened(hasty)
            finally:
                server.start()

            tree.CreateKeyword("coffee", "root")
            assert names(tree) == ["tea", "coffee"]

    def test_sessions_that_an_operator_ends_are_not_noticed(self, server: OwnServer, open_tree: Opener) -> None:
        tree = open_tree()
        fact = tree.CreateInfo("long " * 5000)
        for number in range(5):
            assert end_sessions(server)
            tree.CreateKeyword(f"{number}", "root")
            assert end_sessions(server)
            assert tree.GetInfo(fact.id) == fact

        assert len(names(open_tree())) == 5

    def test_a_full_disk_refuses_one_write_and_no_more(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        sql(
            database,
            """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
            END $$""",
        )
        sql(database, "CREATE TRIGGER full_disk BEFORE INSERT ON kt_batch FOR EACH ROW EXECUTE FUNCTION full_disk()")
        with pytest.raises(StoreError, match="No space left") as caught:
            tree.CreateKeyword("tea", "root")
        sql(database, "DROP TRIGGER full_disk ON kt_batch")

        assert not caught.value.outcome_unknown
        tree.CreateKeyword("tea", "root")
        assert names(tree) == names(open_tree()) == ["tea"]

    def test_a_database_that_only_reads_opens_and_refuses(
        self, log: SharedLog, open_tree: Opener, database: str
    ) -> None:
        open_tree().CreateKeyword("tea", "root")
        name = database.split("dbname=")[1]
        sql(database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with SharedLog(database) as reading:
            tree = opened(reading)

            assert names(tree) == ["tea"]
            with pytest.raises(StoreError, match="only reads"):
                tree.CreateKeyword("green", "root")
            assert tree.Verify() == []

    def test_a_standby_is_read_and_promoted_takes_writes(
        self, server: OwnServer, open_tree: Opener, log: SharedLog
    ) -> None:
        open_tree().CreateKeyword("tea", "root")
        with contextlib.ExitStack() as stack:
            standby = stack.enter_context(server.standby())
            dsn = log._pool._dsn.replace(f"port={server.port}", f"port={standby.port}")
            tree = opened(stack.enter_context(SharedLog(dsn)))
            assert names(tree) == ["tea"]
            with pytest.raises(StoreError, match="only reads"):
                tree.CreateKeyword("green", "root")
            open_tree().CreateKeyword("later", "root")
            wait_for(lambda: tree.Refresh() or names(tree) == ["tea", "later"])  # type: ignore[func-returns-value]

            standby.promote()

            tree.CreateKeyword("green", "root")
            assert names(tree) == ["tea", "later", "green"]


class TestOperatorsHands:
    def test_a_cut_table_is_refused_by_open_trees(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        for name in "abc":
            tree.CreateKeyword(name, "root")
        sql(database, "DELETE FROM kt_batch WHERE after = (SELECT max(after) FROM kt_batch)")

        for _ in range(2):
            with pytest.raises(StoreCorruptError):
                tree.CreateKeyword("d", "root")
        with pytest.raises(StoreCorruptError):
            tree.Refresh()
        assert names(open_tree()) == ["a", "b"]

    def test_an_old_backup_in_its_place_is_refused(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        tree.CreateKeyword("a", "root")
        sql(database, "CREATE TABLE backup AS SELECT * FROM kt_batch")
        tree.CreateKeyword("b", "root")
        sql(database, "DELETE FROM kt_batch")
        sql(database, "INSERT INTO kt_batch SELECT * FROM backup")
        open_tree().CreateKeyword("another b", "root")

        with pytest.raises(StoreCorruptError):
            tree.CreateKeyword("c", "root")
        assert names(open_tree()) == ["a", "another b"]

    def test_a_changed_line_is_found(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        tree.CreateKeyword("tea", "root")
        sql(database, "UPDATE kt_batch SET lines = overlay(lines placing 'x'::bytea from 300) WHERE after = 1")

        assert tree.Verify() != []
        with pytest.raises(StoreCorruptError, match="line 2"):
            open_tree()

    def test_bytes_behind_the_lines_are_found(self, open_tree: Opener, database: str) -> None:
        open_tree().CreateKeyword("tea", "root")
        sql(database, "UPDATE kt_batch SET lines = lines || 'x'::bytea")

        with pytest.raises(StoreCorruptError, match="more than whole lines"):
            open_tree()

    def test_a_trigger_that_drops_writes_is_told(self, far: SharedLog, database: str) -> None:
        tree = opened(far)
        sql(
            database,
            """CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
            CREATE TRIGGER audit BEFORE INSERT ON kt_batch FOR EACH ROW EXECUTE FUNCTION drop_it()""",
        )

        with pytest.raises(StoreError, match="is there a trigger"):
            tree.CreateKeyword("tea", "root")

        sql(database, "DROP TRIGGER audit ON kt_batch")
        tree.CreateKeyword("tea", "root")
        assert names(tree) == names(opened(far)) == ["tea"]

    def test_a_table_that_somebody_locks_is_a_refusal_and_no_unknown_outcome(
        self, far: SharedLog, database: str
    ) -> None:
        tree = opened(far)
        tree.CreateKeyword("before", "root")
        with psycopg.connect(database) as connection:
            connection.execute("LOCK TABLE kt_batch IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreError, match="nothing was changed") as caught:
                tree.CreateKeyword("tea", "root")
            assert not caught.value.outcome_unknown
            assert names(tree) == ["before"]

        tree.CreateKeyword("after", "root")
        assert names(tree) == names(opened(far)) == ["before", "after"]

    def test_a_changed_long_content_is_refused_when_it_is_read(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        fact = tree.CreateInfo("x" * 10_000)
        sql(database, "UPDATE kt_batch SET lines = overlay(lines placing 'y'::bytea from 5000) WHERE after = 1")

        with pytest.raises(StoreCorruptError, match="has changed"):
            tree.GetInfo(fact.id)

    def test_a_removed_tree_is_told_to_those_who_have_it_open(self, log: SharedLog, open_tree: Opener) -> None:
        tree = open_tree()
        tree.CreateKeyword("tea", "root")
        tree.Snapshot(copy=True)

        log.remove("u42")

        assert log.trees() == []
        with pytest.raises(StoreCorruptError):
            tree.CreateKeyword("green", "root")
        with pytest.raises(NotFoundError):
            log.remove("u42")
        assert names(open_tree()) == []
        with pytest.raises(StoreCorruptError):
            tree.Refresh()

    def test_leaves_no_row_of_a_removed_tree(self, log: SharedLog, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        tree.CreateInfo("x" * 3_000_000)
        tree.Snapshot(copy=True)
        tree.CompactStorage()

        log.remove("u42")

        for table in statements.TABLES:
            assert sql(database, f"SELECT count(*) FROM {table}") == [(0,)], table

    def test_without_history_nothing_of_what_was_deleted_stays(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        for content in ("geheim", "geheim " * 1000, "geheim " * 300_000):
            tree.DeleteInfo(tree.CreateInfo(content).id)
        tree.CompactStorage(keep_history=True)

        tree.CompactStorage(keep_history=False)

        for table, column in (("kt_batch", "lines"), ("kt_piece", "bytes"), ("kt_state", "rows")):
            found = sql(database, f"SELECT count(*) FROM {table} WHERE position('geheim'::bytea IN {column}) > 0")
            assert found == [(0,)], table

    def test_who_holds_the_turn_and_sleeps_delays_and_blocks_nobody(self, open_tree: Opener, database: str) -> None:
        one, other = open_tree(), open_tree()
        store = one._engine.store
        store._turns = 3  # type: ignore[attr-defined]  # as after a conflict
        with psycopg.connect(database) as asleep:
            asleep.execute("SELECT FROM kt_tree WHERE tree_id = 'u42' FOR UPDATE")
            started = time.monotonic()
            one.CreateKeyword("tea", "root")

            assert time.monotonic() - started < 2.5
        other.Refresh()
        assert names(other) == ["tea"]

    def test_a_snapshot_behind_a_conflict_does_not_go_with_the_turn(self, log: SharedLog, open_tree: Opener) -> None:
        tree = open_tree()
        tree._engine.store._turns = 1  # type: ignore[attr-defined]  # as after a conflict

        stamp = tree.Snapshot()

        assert log.snapshots("u42") == [stamp]

    def test_a_row_that_somebody_holds_in_its_place_is_waited_for(self, far: SharedLog, database: str) -> None:
        tree = opened(far)
        taken = """INSERT INTO kt_batch SELECT tree_id, upto, upto + 1, 'x', '', '', 0 FROM kt_batch"""
        with psycopg.connect(database) as asleep:
            asleep.execute(taken)
            with pytest.raises(StoreError) as caught:
                tree.CreateKeyword("tea", "root")
            asleep.rollback()

        assert not caught.value.outcome_unknown  # each of its tries was told that it gave up
        tree.Refresh()
        tree.CreateKeyword("coffee", "root")
        assert names(tree)[-1] == "coffee"
        assert tree.Verify() == []


class TestNetworks:
    @pytest.mark.parametrize("phase", ["connecting", "greeting", "request", "answer"])
    def test_that_hang_delay_and_block_nobody_for_longer_than_patience(
        self, far: SharedLog, proxy: FaultyProxy, phase: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree = opened(far)
        tree.CreateKeyword("before", "root")
        monkeypatch.setattr(store, "_GUESS_S", 0.0)  # as after a second
        hang = delay(10)
        if phase == "connecting":
            proxy.on_connect = lambda _: hang
            proxy.cut()
        elif phase == "greeting":
            proxy.on_answer = lambda _: hang
            proxy.cut()
        elif phase == "request":
            proxy.on_request = lambda _: hang
        else:
            proxy.on_answer = lambda _: hang
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

    @pytest.mark.parametrize("is_in", [False, True])
    def test_that_lose_a_write_or_its_answer_are_found_out(
        self, far: SharedLog, proxy: FaultyProxy, is_in: bool
    ) -> None:
        tree = opened(far)
        lost: list[bytes] = []

        def judge(chunk: bytes) -> Fault:
            if b'"tea"' not in chunk or lost:
                return PASS
            lost.append(chunk)
            if is_in:
                proxy.on_answer = lose_once
                return PASS
            return lose()

        def lose_once(_: bytes) -> Fault:
            proxy.on_answer = lambda _: PASS
            return lose()

        proxy.on_request = judge

        tree.CreateKeyword("tea", "root")

        assert len(lost) == 1
        assert far.counts["unanswered"] == 1
        assert far.counts["resolved"] == is_in
        assert names(opened(far)) == ["tea"]

    @pytest.mark.parametrize("is_mutant", [False, True])
    def test_a_write_that_arrives_after_a_compaction_is_never_acknowledged_and_lost(
        self, far: SharedLog, proxy: FaultyProxy, open_tree: Opener, monkeypatch: pytest.MonkeyPatch, is_mutant: bool
    ) -> None:
        monkeypatch.setattr(statements, "APPEND", statements.APPEND)
        if is_mutant:
            storm_worker.MUTANTS["without predecessor"]()
        tree, other = opened(far), open_tree()
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

        if is_mutant:  # acknowledged, and in nobody's way but the next one's who opens the log
            with pytest.raises(StoreCorruptError):
                open_tree()
        else:
            assert names(open_tree()) == ["theirs", "mine"]

    def test_a_write_that_arrives_when_its_writer_has_given_up_is_read_like_anybodys(
        self, far: SharedLog, proxy: FaultyProxy
    ) -> None:
        tree = opened(far)
        is_late = threading.Event()

        def judge(chunk: bytes) -> Fault:
            if b'"tea"' in chunk and not is_late.is_set():
                is_late.set()
                proxy.on_connect = lambda _: lose()
                return late(4)
            return PASS

        proxy.on_request = judge
        with pytest.raises(StoreError) as caught:
            tree.CreateKeyword("tea", "root")
        assert caught.value.outcome_unknown
        assert names(tree) == []
        proxy.heal()
        wait_for(lambda: tree.Refresh() or names(tree) == ["tea"])  # type: ignore[func-returns-value]

        assert tree.History(limit=1)[0].operation_id == caught.value.operation_id
        assert tree.Verify() == []


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
        assert log._pool.run(lambda connection: connection.execute(asked).fetchone()) == session

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
            threads = [
                threading.Thread(target=lambda tree=tree: [tree.CreateKeyword(f"{n}", "root") for n in range(10)])
                for tree in trees
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

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


class TestKeeping:
    def test_writes_a_state_when_more_was_logged_than_it_would_hold(self, log: SharedLog, open_tree: Opener) -> None:
        tree = open_tree()
        assert not log.keep("u42")
        for number in range(3):
            tree.BatchCreateKeywords([{"name": f"{number}-{n}", "parent_id": "root"} for n in range(500)])

        assert log.keep("u42")
        assert not log.keep("u42")
        tree.CreateKeyword("one more", "root")
        assert not log.keep("u42")
        assert log.keep("u42", always=True)
        assert names(open_tree()) == names(tree)
        assert open_tree().Verify() == []

    def test_two_keepers_at_once_write_one_state(self, log: SharedLog, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        tree.BatchCreateKeywords([{"name": f"{n}", "parent_id": "root"} for n in range(1000)])
        written: list[bool] = []
        threads = [threading.Thread(target=lambda: written.append(log.keep("u42", always=True))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(written) == [False, False, True]
        assert sql(database, "SELECT count(*) FROM kt_mark") == [(1,)]
        assert names(open_tree()) == names(tree)

    def test_an_unknown_tree_is_told(self, log: SharedLog) -> None:
        with pytest.raises(NotFoundError, match="no tree has the id"):
            log.keep("nobody")


class TestFewConnections:
    def test_two_are_enough_for_everything(self, log: SharedLog, database: str) -> None:
        with SharedLog(database, connections=2, patience=2) as single:
            tree, other = opened(single), opened(log)
            fact = tree.CreateInfo("x" * 2_000_000)
            for _ in range(3):
                tree._engine.store._turns = 1  # type: ignore[attr-defined]  # as after a conflict
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
        stream = Runner.stream

        def end_in_the_middle(self: Runner, statement: str, values: object) -> Iterator[object]:
            for row in stream(self, statement, values):  # type: ignore[arg-type]
                yield row
                end_sessions(server)

        monkeypatch.setattr(Runner, "stream", end_in_the_middle)
        with SharedLog(database, connections=2, patience=2) as single:
            tree = opened(single)

            assert len(names(tree)) == 1000
            assert tree.recovery == ()
            tree.CreateKeyword("green", "root")
            assert single._pool._permits.qsize() == 2
