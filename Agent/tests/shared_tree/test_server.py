"""Servers that refuse, restart, only read, would lose, are replaced; and what no one may see of their address."""

from __future__ import annotations

import contextlib
import logging
import operator
import threading
import time
import traceback
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, StoreError
from Agent.shared_tree import SharedLog
from Agent.shared_tree.rows import Batch
from Agent.tests.shared.own_server import OwnServer
from Agent.tests.shared_tree.conftest import Opener, end_sessions, make_server, names, opened, port_of, sql, wait_for
from Agent.tests.support.threads import in_threads


class TestSetup:
    @pytest.mark.parametrize("make", [SharedLog.setup, SharedLog.prepare])
    def test_again_and_at_once_changes_nothing(self, database: str, make: Callable[[SharedLog], None]) -> None:
        def run(_: int) -> None:
            with SharedLog(database) as log:
                make(log)

        in_threads(run, range(4))

        with SharedLog(database) as log:
            assert log.trees() == []

    def test_half_of_it_is_seen_by_no_other_process(self, database: str) -> None:
        with psycopg.connect(database) as busy, SharedLog(database) as log, SharedLog(database) as other:
            busy.execute("CREATE TABLE kt_snapshot (tree_id text)")  # what makes the tables waits for this one
            making = threading.Thread(target=log.setup)
            making.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            waiting += " AND datname = current_database()"
            wait_for(lambda: sql(database, waiting)[0][0] == 1)
            preparing = threading.Thread(target=other.prepare)
            preparing.start()
            wait_for(lambda: sql(database, waiting)[0][0] == 2)
            busy.rollback()
            making.join()
            preparing.join()

            assert other.trees() == []

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

        with SharedLog(database, patience=1) as log, pytest.raises(StoreError, match="are older: run setup"):
            log.setup()

    def test_tables_that_a_newer_version_has_changed_are_noticed_at_the_next_write(
        self, log: SharedLog, database: str
    ) -> None:
        tree = opened(log)
        tree.CreateKeyword("before", "root")
        sql(database, "UPDATE kt_format SET format = 2")
        for write in (
            lambda: tree.CreateKeyword("after", "root"),
            lambda: tree.CreateInfo("long" * 500_000),
            lambda: tree.Snapshot(),
            lambda: tree.CompactStorage(keep_history=False),
            lambda: opened(log, "another"),
            lambda: log.keep("u42", always=True),
        ):
            with pytest.raises(StoreError, match="have format 2,"):
                write()

        assert names(tree) == ["before"]
        sql(database, "UPDATE kt_format SET format = 1")
        tree.CreateKeyword("after", "root")
        assert names(tree) == ["before", "after"]

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

    def test_a_role_that_may_not_write_is_reported(self, log: SharedLog, database: str) -> None:
        opened(log).CreateKeyword("tea", "root")
        sql(database, "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'x'")
        sql(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        dsn = f"host=127.0.0.1 port={port_of(database)} user=reader password=x {database.split()[-1]}"

        with SharedLog(dsn, patience=1) as poor:
            tree = opened(poor)

            assert names(tree) == ["tea"]
            with pytest.raises(StoreError, match="42501"):
                tree.CreateKeyword("green", "root")
        sql(database, "DROP OWNED BY reader; DROP ROLE reader")


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

    def test_a_wrong_password_is_reported_at_once(self, server: OwnServer) -> None:
        started = time.monotonic()
        with pytest.raises(StoreError, match="password authentication failed"):
            SharedLog(server.dsn.replace("password=", "password=not-")).trees()

        assert time.monotonic() - started < 8

    def test_a_lost_session_is_not_logged_with_its_name(
        self, log: SharedLog, open_tree: Opener, server: OwnServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        one, other = open_tree(), open_tree()
        for number in range(10):
            making = partial(KeywordTree.CreateKeyword, name=f"{number}", parent_id="root")
            works: list[Callable[[], object]] = [partial(making, one), partial(making, other)]
            works.append(partial(end_sessions, server))
            in_threads(operator.call, works)

        assert len(names(open_tree())) == 20
        for record in caplog.records:
            assert server.password not in record.getMessage()
            assert "127.0.0.1" not in record.getMessage()


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
    @pytest.mark.parametrize("way", ["log", "pooled_log"])
    def test_each_commit_waits_for_the_disk_whatever_the_session_says(
        self, request: pytest.FixtureRequest, database: str, way: str, found: str, used: str
    ) -> None:
        log = request.getfixturevalue(way)
        tree = opened(log)
        note = """CREATE TABLE seen (was text);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$;
            CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON kt_batch DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION note()"""
        sql(database, note)
        sql(database, f"ALTER DATABASE {database.partition('dbname=')[2]} SET synchronous_commit = {found}")
        log._pool.run(lambda connection: connection.execute(f"SET synchronous_commit = {found}"))  # after it was opened
        tree.CreateKeyword("short", "root")
        tree.CreateInfo("long" * 500_000)
        tree.CompactStorage(keep_history=False)
        opened(log, "another").Close()

        assert {was for (was,) in sql(database, "SELECT was FROM seen")} == {used}
        assert len(sql(database, "SELECT was FROM seen")) >= 4

    def test_behind_a_pooler_nothing_is_prepared(self, log: SharedLog, database: str) -> None:
        with SharedLog(database, pooled=True) as pooled:
            tree = opened(pooled)
            for number in range(12):
                tree.CreateKeyword(f"{number}", "root")
            prepared = "SELECT count(*) FROM pg_prepared_statements"
            assert pooled._pool.run(lambda connection: connection.execute(prepared).fetchone()) == (0,)

    def test_a_pooler_that_was_not_announced_is_refused(self, pooled_log: SharedLog) -> None:
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

        sql(server.dsn, "ALTER SYSTEM SET synchronous_standby_names = 'missing'")
        sql(server.dsn, "SELECT pg_reload_conf()")
        try:
            wait_for(lambda: sql(server.dsn, "SHOW synchronous_standby_names") == [("missing",)])
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


class TestPages:
    @pytest.mark.parametrize(("count", "length", "asked"), [(2_000, 1, 1), (9, 1_000_000, 2)])
    def test_hold_thousands_of_writes_or_some_mebibytes(
        self, log: SharedLog, open_tree: Opener, monkeypatch: pytest.MonkeyPatch, count: int, length: int, asked: int
    ) -> None:
        tree, other, read, pages = open_tree(), open_tree(), log._rows.read, list[int]()
        for number in range(count):
            other.CreateInfo(f"{number}{'a' * length}")

        def read_page(*values: Any) -> list[Batch]:
            found = read(*values)
            pages.append(sum(len(batch.lines) for batch in found))
            return found

        monkeypatch.setattr(log._rows, "read", read_page)
        tree.Refresh()

        assert len(tree.ListInfos(0, count + 1)) == count
        assert len(pages) == asked
        assert max(pages) < 6_000_000


class TestTurns:
    def test_that_are_kept_end_by_themselves_whatever_becomes_of_who_kept_them(
        self, log: SharedLog, database: str, open_tree: Opener
    ) -> None:
        open_tree()
        with SharedLog(database) as gone:
            with gone._rows.queue("u42", lambda: 0, 1, lambda: None):
                started = time.monotonic()
                gone._rows.hold("u42", 0.4)
                assert gone.trees() == ["u42"]  # on another connection
            with log._rows.queue("u42", lambda: 0, 1, lambda: None) as batches:
                assert 0.3 < time.monotonic() - started < 20
                assert batches

    def test_that_are_kept_give_their_connection_back(self, database: str, open_tree: Opener) -> None:
        open_tree()
        with SharedLog(database, connections=2) as log:
            for _ in range(5):
                with log._rows.queue("u42", lambda: 0, 1, lambda: None) as batches:
                    log._rows.hold("u42", 0.05)
                    assert batches
                assert log.trees() == ["u42"]
                assert log._pool.count() <= 2


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

    def test_what_a_crash_left_visible_and_no_standby_has_is_reported_after_a_failover(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with make_server() as primary, primary.standby() as standby:
            primary.configure({"synchronous_standby_names": "'standby'"})
            primary.reload()
            ports = f"host=127.0.0.1,127.0.0.1 port={primary.port},{standby.port} target_session_attrs=read-write"
            dsn = primary.dsn.replace(f"host=127.0.0.1 port={primary.port}", ports)
            with SharedLog(dsn, patience=2) as log, SharedLog(dsn) as elsewhere:
                log.setup()
                writer = opened(log)
                writer.CreateKeyword("before", "root")
                standby.stop()
                with pytest.raises(StoreError) as caught:
                    writer.CreateKeyword("tea", "root")  # its commit waits for the standby
                primary.restart("immediate")
                reader = opened(elsewhere)
                seen = names(reader)
                primary.stop("immediate")
                standby.start()
                standby.promote()

                writer.CreateKeyword("after", "root")

                assert caught.value.outcome_unknown
                assert seen == ["before", "tea"]
                reader.CreateKeyword("mine", "root")
                assert "does not hold what was read of it" in caplog.text
                assert names(opened(elsewhere)) == names(reader) == ["before", "after", "mine"]
