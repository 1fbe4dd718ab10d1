"""What operators do with SQL: cut, restore, change, lock, drop; and what they are offered: states, removal."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from Agent.keyword_tree import NotFoundError, StoreCorruptError, StoreError
from Agent.shared_tree import SharedLog, statements
from Agent.tests.shared_tree.conftest import Opener, names, opened, sql
from Agent.tests.support.threads import in_threads


class TestOperatorsHands:
    def test_a_changed_line_is_found(self, open_tree: Opener, database: str) -> None:
        tree = open_tree()
        tree.CreateKeyword("tea", "root")
        sql(database, "UPDATE kt_batch SET lines = overlay(lines placing 'x'::bytea from 300) WHERE after = 1")

        assert tree.Verify() != []
        with pytest.raises(StoreCorruptError, match="line 2"):
            open_tree()

    def test_bytes_after_the_lines_are_found(self, open_tree: Opener, database: str) -> None:
        open_tree().CreateKeyword("tea", "root")
        sql(database, "UPDATE kt_batch SET lines = lines || 'x'::bytea")

        with pytest.raises(StoreCorruptError, match="more than whole lines"):
            open_tree()

    def test_a_table_that_another_locks_is_a_refusal_and_no_unknown_outcome(
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

    def test_a_removed_tree_is_reported_to_those_who_have_it_open(self, log: SharedLog, open_tree: Opener) -> None:
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

    def test_who_holds_the_turn_and_sleeps_delays_and_blocks_no_one(self, open_tree: Opener, database: str) -> None:
        one, other = open_tree(), open_tree()
        with psycopg.connect(database) as asleep:
            asleep.execute("SELECT FROM kt_tree WHERE tree_id = 'u42' FOR UPDATE")
            started = time.monotonic()
            one.CreateKeyword("tea", "root")

            assert time.monotonic() - started < 6
        other.Refresh()
        assert names(other) == ["tea"]

    def test_a_machine_that_sleeps_in_its_turn_loses_it(self, log: SharedLog, open_tree: Opener) -> None:
        tree, asleep = open_tree(), opened(log)
        has_turn, is_over = threading.Event(), threading.Event()

        def sleep() -> None:
            asleep._engine.store.Begin(lambda _: None, True)
            has_turn.set()
            is_over.wait(10)
            asleep._engine.store.End()

        thread = threading.Thread(target=sleep)
        thread.start()
        has_turn.wait(5)
        started = time.monotonic()
        tree.CreateKeyword("tea", "root")
        waited = time.monotonic() - started
        is_over.set()
        thread.join()

        assert 0.3 < waited < 1.0
        asleep.CreateKeyword("green", "root")
        assert names(asleep) == ["tea", "green"]

    def test_a_snapshot_after_a_conflict_does_not_go_with_the_turn(self, log: SharedLog, open_tree: Opener) -> None:
        tree = open_tree()
        tree._engine.store._turns = 1  # type: ignore[attr-defined]  # as after a conflict

        stamp = tree.Snapshot()

        assert log.snapshots("u42") == [stamp]

    def test_a_row_that_another_holds_in_its_place_is_waited_for(self, far: SharedLog, database: str) -> None:
        tree = opened(far)
        taken = """INSERT INTO kt_batch SELECT tree_id, upto, upto + 1, 'x', '', '', 0 FROM kt_batch"""
        with psycopg.connect(database) as asleep:
            asleep.execute(taken)
            with pytest.raises(StoreError) as caught:
                tree.CreateKeyword("tea", "root")
            asleep.rollback()

        assert not caught.value.outcome_unknown  # each of its tries was answered
        tree.Refresh()
        tree.CreateKeyword("coffee", "root")
        assert names(tree)[-1] == "coffee"
        assert tree.Verify() == []


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
        in_threads(lambda _: written.append(log.keep("u42", always=True)), range(3))

        assert sorted(written) == [False, False, True]
        assert sql(database, "SELECT count(*) FROM kt_mark") == [(1,)]
        assert names(open_tree()) == names(tree)

    def test_an_unknown_tree_is_reported(self, log: SharedLog) -> None:
        with pytest.raises(NotFoundError, match="no tree has the id"):
            log.keep("missing")
