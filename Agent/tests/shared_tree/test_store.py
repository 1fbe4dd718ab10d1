"""The store's decisions, one by one, over tables in memory that lose, refuse and delay what a test asks for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from Agent.keyword_tree import KeywordTree, NotFoundError, StoreCorruptError, StoreError
from Agent.shared_tree import reading, store
from Agent.shared_tree.rows import Batch, NotSentError, ReadOnlyError, UnansweredError
from Agent.tests.shared.memory_log import MemoryLog, MemoryRows
from Agent.tests.support.looking import names_under as names
from Agent.tests.support.threads import in_threads

Append = Callable[[], bool]
Fault = Callable[[Append], bool]


class FaultyRows(MemoryRows):
    """Does with each append what `faults` say, the first first."""

    def __init__(self, patience: float = 2.0) -> None:
        super().__init__(patience)
        self.faults: list[Fault] = []
        self.held_back: list[Append] = []
        self.settled = self.queued = self.looked = 0
        self.asked: list[int] = []  # from where on what is read in a turn
        self.is_away = False

    def append(self, tree_id: str, behind: tuple[int, bytes], batch: Batch, yields: bool = False) -> bool:
        return self._let(lambda: super(FaultyRows, self).append(tree_id, behind, batch, yields))

    def replace(self, tree_id: str, behind: tuple[int, bytes], batches: Sequence[Batch]) -> bool:
        return self._let(lambda: super(FaultyRows, self).replace(tree_id, behind, batches))

    def _let(self, append: Append) -> bool:
        return self.faults.pop(0)(append) if self.faults else append()

    def read(self, tree_id: str, after: int, known: int, limit: int, until: float | None = None) -> list[Batch]:
        self.looked += 1
        if self.is_away:
            raise NotSentError("no connection")
        return super().read(tree_id, after, known, limit, until)

    def settle(self, tree_id: str) -> None:
        self.settled += 1

    @contextlib.contextmanager
    def queue(self, tree_id: str, known: Callable[[], int], *more: Any) -> Iterator[list[Batch] | None]:
        self.queued += 1
        with super().queue(tree_id, known, *more) as first:
            self.asked.append(known())
            yield first

    # What may happen to an append:

    def lose_answer(self, append: Append) -> bool:
        append()
        raise UnansweredError("lost")

    def lose_request(self, append: Append) -> bool:
        raise UnansweredError("lost")

    def hold_back(self, append: Append) -> bool:
        self.held_back.append(append)
        raise UnansweredError("late")

    def not_send(self, append: Append) -> bool:
        raise NotSentError("no connection")

    def refuse(self, append: Append) -> bool:
        raise StoreError("the disk is full")


@pytest.fixture
def rows() -> FaultyRows:
    return FaultyRows()


@pytest.fixture
def log(rows: FaultyRows) -> MemoryLog:
    return MemoryLog(rows)


def opened(log: MemoryLog) -> KeywordTree:
    return KeywordTree("unused", store=log.tree("u42"))


def behind(act: Callable[[], object]) -> Callable[[Append], bool]:
    """Return what lets another process act just before rows are appended."""

    def act_and_append(append: Append) -> bool:
        act()
        return append()

    return act_and_append


def make_tea(tree: KeywordTree) -> None:
    tree.BatchCreateKeywords([{"id": "tea", "name": "tea", "parent_id": "root"}])


class TestLostAnswers:
    @pytest.mark.parametrize("is_lost_on_its_way", [False, True])
    def test_are_acknowledged_and_settled_or_their_write_is_done_once(
        self, rows: FaultyRows, log: MemoryLog, is_lost_on_its_way: bool
    ) -> None:
        tree = opened(log)
        rows.faults = [rows.lose_request] * 2 if is_lost_on_its_way else [rows.lose_answer]

        tree.CreateKeyword("tea", "root")

        assert names(tree) == names(opened(log)) == ["tea"]
        assert rows.settled == int(not is_lost_on_its_way)
        assert is_lost_on_its_way or log.counts == {"unanswered": 1, "resolved": 1}

    def test_a_first_try_that_comes_in_late_changes_nothing(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)
        rows.faults = [rows.hold_back]
        tree.CreateKeyword("tea", "root")
        tree.CreateKeyword("coffee", "root")

        assert not any(late() for late in rows.held_back)
        assert names(opened(log)) == ["tea", "coffee"]

    def test_a_first_try_that_comes_in_before_the_second_is_found(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)

        def come_in(append: Append) -> bool:
            assert rows.held_back[0]()
            return append()

        rows.faults = [rows.hold_back, come_in]

        tree.CreateKeyword("tea", "root")

        assert names(opened(log)) == ["tea"]
        assert log.counts["resolved"] == 1

    def test_where_another_was_quicker_it_is_planned_again(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree, other = opened(log), opened(log)

        def be_quicker(append: Append) -> bool:
            rows.held_back.append(append)
            other.CreateKeyword("theirs", "root")
            raise UnansweredError("late")

        rows.faults = [be_quicker]

        tree.CreateKeyword("mine", "root")

        assert not any(late() for late in rows.held_back)
        assert names(tree) == names(opened(log)) == ["theirs", "mine"]

    def test_past_patience_the_outcome_is_unknown_and_memory_has_not_moved(
        self, rows: FaultyRows, log: MemoryLog
    ) -> None:
        tree = opened(log)
        rows.patience = 0.1
        rows.faults = [rows.hold_back] * 50

        with pytest.raises(StoreError) as caught:
            tree.CreateKeyword("tea", "root")

        assert caught.value.outcome_unknown
        assert names(tree) == []
        rows.faults = []
        assert rows.held_back[0]()  # it comes in after all
        assert not rows.held_back[1]()
        assert tree.CreateKeyword("coffee", "root").ordinal == 2
        assert names(tree) == names(opened(log)) == ["tea", "coffee"]
        assert tree.Verify() == []

    @pytest.mark.parametrize("is_refused_then", [False, True])  # which settles nothing
    def test_the_error_names_the_operation_that_may_come_in(
        self, rows: FaultyRows, log: MemoryLog, is_refused_then: bool
    ) -> None:
        tree = opened(log)
        rows.patience = 0.1
        rows.faults = [rows.lose_answer, *[rows.refuse if is_refused_then else rows.lose_answer] * 50]
        with pytest.raises(StoreError) as caught:
            tree.CreateKeyword("tea", "root")
        rows.faults = []

        assert caught.value.outcome_unknown
        tree.Refresh()
        assert tree.History(limit=1)[0].operation_id == caught.value.operation_id

    def test_that_a_compaction_has_overtaken_are_unknown(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree, other = opened(log), opened(log)

        def lose_and_compact(append: Append) -> bool:
            append()
            other.CompactStorage(keep_history=False)
            raise UnansweredError("lost")

        rows.faults = [lose_and_compact]

        with pytest.raises(StoreError) as caught:
            tree.CreateKeyword("tea", "root")

        assert caught.value.outcome_unknown
        tree.Refresh()
        assert names(tree) == ["tea"]

    def test_of_the_first_line_still_give_one_log(self, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
        create, calls = MemoryRows.create, list[str]()

        def lose_first(self: MemoryRows, tree_id: str, log_id: str, batches: Any) -> bool:
            calls.append(log_id)
            made = create(self, tree_id, log_id, batches)
            if len(calls) == 1:
                raise UnansweredError("lost")
            return made

        monkeypatch.setattr(MemoryRows, "create", lose_first)

        assert opened(log).Verify() == []
        assert calls == [calls[0]] * 2


class TestRefusals:
    @pytest.mark.parametrize("is_refused", [True, False])
    def test_what_was_not_written_has_changed_nothing_and_the_next_one_works(
        self, rows: FaultyRows, log: MemoryLog, is_refused: bool
    ) -> None:
        tree = opened(log)
        rows.patience = 0.2
        # A trigger takes away what is written.
        rows.faults = [rows.refuse] if is_refused else [lambda append: False] * 1000
        with pytest.raises(StoreError, match="the disk is full" if is_refused else "is there a trigger") as caught:
            tree.CreateKeyword("tea", "root")

        assert not caught.value.outcome_unknown
        rows.faults = []
        assert names(tree) == []
        tree.CreateKeyword("tea", "root")
        assert names(opened(log)) == ["tea"]

    def test_what_never_went_out_is_no_unknown_outcome_and_waited_for(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)
        rows.faults = [rows.not_send] * 3
        tree.CreateKeyword("tea", "root")
        assert names(tree) == ["tea"]

        rows.patience, rows.faults = 0.1, [rows.not_send] * 50
        with pytest.raises(StoreError, match="nothing was changed") as caught:
            tree.CreateKeyword("coffee", "root")
        assert not caught.value.outcome_unknown

    def test_a_standby_opens_for_reading_and_refuses_at_once(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened(log).CreateKeyword("tea", "root")
        monkeypatch.setattr(rows, "is_readonly", lambda: True)

        def only_read(append: Append) -> bool:
            raise ReadOnlyError("a standby")

        tree = opened(log)
        rows.patience, rows.faults = 1000.0, [only_read] * 2

        assert names(tree) == ["tea"]
        with pytest.raises(StoreError, match="a standby"):
            tree.CreateKeyword("green", "root")
        with pytest.raises(StoreError, match="only reads"):
            KeywordTree("unused", store=log.tree("another"))


class TestConflicts:
    def test_are_planned_again_and_the_next_writes_queue_up(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "_HELD_S", 0.0)
        tree, other = opened(log), opened(log)
        tree.CreateKeyword("first", "root")
        other.CreateKeyword("second", "root")
        tree.CreateKeyword("third", "root")  # guessed wrong, and takes turns from now on

        def be_quicker(append: Append) -> bool:
            other.CreateKeyword("theirs", "root")
            return append()

        rows.faults = [be_quicker]
        tree.CreateKeyword("mine", "root")

        assert names(tree) == ["first", "second", "third", "theirs", "mine"]
        assert log.counts["conflicts"] == 1
        rows.queued = 0
        for number in range(30):
            tree.CreateKeyword(f"{number}", "root")
        assert rows.queued == 20

    def test_end_in_turns_that_who_writes_in_a_loop_keeps_for_a_while(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "_HELD_S", 0.9)  # long for twenty writes, and less than a turn is waited for
        monkeypatch.setattr(store, "_ROUND_S", 1.8)
        tree, other = opened(log), opened(log)
        other.CreateKeyword("theirs", "root")
        tree.CreateKeyword("0", "root")  # reads what is new in its turn
        started, ended = time.monotonic(), list[float]()

        def write() -> None:
            other.CreateKeyword("waits", "root")
            ended.append(time.monotonic())

        tree.CreateKeyword("1", "root")  # comes at once: this turn is kept
        rows.queued = 0
        thread = threading.Thread(target=write)
        thread.start()
        for number in range(2, 20):
            tree.CreateKeyword(f"{number}", "root")
        thread.join()

        assert rows.queued == 1  # the other one
        assert ended[0] - started > 0.5
        assert names(other) == ["theirs", *map(str, range(20)), "waits"]

    @pytest.mark.parametrize("paused_s", [0.0, 1.0])
    def test_are_read_before_its_turn_by_who_paused(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, paused_s: float
    ) -> None:
        monkeypatch.setattr(store, "_IDLE_S", 0.5 - paused_s)
        monkeypatch.setattr(store, "_HELD_S", 0.0)
        tree, other = opened(log), opened(log)
        tree.CreateKeyword("first", "root")
        other.CreateKeyword("theirs", "root")
        tree.CreateKeyword("second", "root")
        known = tree._engine.store.seq
        for number in range(20):
            other.CreateKeyword(f"{number}", "root")
        rows.asked.clear()
        tree.CreateKeyword("third", "root")

        assert rows.asked == [known - 1 + 20 * bool(paused_s)]
        other.Refresh()
        assert names(other)[-1] == "third"

    def test_are_read_by_who_waits_for_a_turn(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree, other = opened(log), opened(log)
        other.CreateKeyword("first", "root")
        is_taken, is_read, read = threading.Event(), threading.Event(), rows.read

        def hold() -> None:
            with rows.queue("u42", lambda: 0, 1, lambda: None):
                other.CreateKeyword("theirs", "root")
                is_taken.set()
                is_read.wait(10)

        def note(*asked: Any) -> list[Batch]:
            if is_taken.is_set():
                is_read.set()
            return read(*asked)

        monkeypatch.setattr(rows, "read", note)
        other._engine.store._turn_ends = float("inf")  # type: ignore[attr-defined]  # it is the one that has the turn
        thread = threading.Thread(target=hold)
        thread.start()
        is_taken.wait(5)
        tree.CreateKeyword("mine", "root")
        thread.join()

        assert rows.asked[-1] == other._engine.store._at.after  # type: ignore[attr-defined]
        assert names(tree) == ["first", "theirs", "mine"]

    def test_that_come_faster_than_they_are_read_end_past_patience(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading, "PAGE", 2)
        tree, other = opened(log), opened(log)
        other.CreateKeyword("theirs", "root")
        rows.patience, read, writing = 0.4, rows.read, list[bool]()

        def write_and_read(*asked: Any) -> list[Batch]:
            if not writing:
                writing.append(True)
                other.CreateKeyword(f"{time.monotonic()}", "root")
                other.CreateKeyword(f"{time.monotonic()}", "root")
                writing.clear()
            return read(*asked)

        with monkeypatch.context() as patched:
            patched.setattr(rows, "read", write_and_read)
            began = time.monotonic()
            with pytest.raises(StoreError, match="nothing was changed: others write faster"):
                tree.CreateKeyword("mine", "root")
            assert time.monotonic() - began < 5
        tree.CreateKeyword("mine", "root")

        assert names(tree)[-1] == "mine"

    def test_leave_no_turn_with_who_pauses(
        self, rows: FaultyRows, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree, other = opened(log), opened(log)
        other.CreateKeyword("theirs", "root")
        tree.CreateKeyword("0", "root")
        time.sleep(3 * store._HELD_S)
        kept: list[float] = []
        monkeypatch.setattr(rows, "hold", lambda tree_id, seconds: kept.append(seconds))

        for number in range(3):
            tree.CreateKeyword(f"{number} later", "root")
            time.sleep(2 * store._HELD_S)

        assert kept == []

    @pytest.mark.parametrize(
        "work",
        [lambda tree: tree.CreateKeyword("mine", "root"), lambda tree: tree.CompactStorage(keep_history=False)],
        ids=["a write", "a compaction"],
    )
    def test_with_quicker_ones_end_when_patience_does(
        self, rows: FaultyRows, log: MemoryLog, work: Callable[[KeywordTree], object]
    ) -> None:
        tree, other, tries = opened(log), opened(log), list[Append]()
        rows.patience = 0.2

        def be_quicker(append: Append) -> bool:
            tries.append(append)
            time.sleep(0.01)
            other.CreateKeyword("theirs", "root")
            rows.faults = [be_quicker] * (len(tries) < 1000)
            return append()

        rows.faults = [be_quicker]
        with pytest.raises(StoreError, match="nothing was changed: other writers were quicker") as caught:
            work(tree)

        assert not caught.value.outcome_unknown
        rows.faults = []
        work(tree)
        tree.CreateKeyword("mine", "root")
        assert names(tree)[-1] == "mine"
        assert names(opened(log)) == names(tree)

    def test_a_plan_that_no_longer_fits_is_refused_and_a_batch_as_a_whole(
        self, rows: FaultyRows, log: MemoryLog
    ) -> None:
        writes: tuple[Callable[[KeywordTree, str], object], ...] = (
            lambda tree, tea: tree.CreateKeyword("green", tea),
            lambda tree, tea: tree.BatchCreateKeywords([{"name": "a"}, {"name": "b", "parent_id": tea}]),
        )
        for write in writes:
            tree = opened(log)
            tea = tree.CreateKeyword("tea", "root").id
            rows.faults = [behind(partial(opened(log).DeleteKeyword, tea))]

            with pytest.raises(NotFoundError):
                write(tree, tea)
            assert names(tree) == names(opened(log)) == []

    def test_a_write_behind_a_log_that_was_written_again_is_planned_again(
        self, rows: FaultyRows, log: MemoryLog
    ) -> None:
        tree, other = opened(log), opened(log)

        def go_on_and_compact() -> None:
            other.CreateKeyword("theirs", "root")
            other.CompactStorage(keep_history=False)

        rows.faults = [behind(go_on_and_compact)]
        tree.CreateKeyword("mine", "root")

        assert names(tree) == names(opened(log)) == ["theirs", "mine"]


class TestGuesses:
    """Where this tree has just written, and no other lately, a commit does not read first."""

    @pytest.fixture
    def tree(self, log: MemoryLog) -> KeywordTree:
        tree = opened(log)
        tree.CreateKeyword("first", "root")
        return tree

    @pytest.mark.parametrize("guess_s", [1.0, 0.0])
    def test_a_lone_writer_reads_nothing_where_it_has_just_written(
        self, rows: FaultyRows, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch, guess_s: float
    ) -> None:
        monkeypatch.setattr(store, "_GUESS_S", guess_s)
        rows.looked = 0
        tree.CreateKeyword("later", "root")
        assert rows.looked == (guess_s == 0)

    def test_one_that_is_wrong_is_planned_again_and_the_next_ones_read_first(
        self, rows: FaultyRows, log: MemoryLog, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "_HELD_S", 0.0)
        opened(log).CreateKeyword("theirs", "root")
        rows.looked = 0

        for number in range(30):
            tree.CreateKeyword(f"{number}", "root")
        looked = rows.looked

        assert names(tree) == names(opened(log)) == ["first", "theirs", *map(str, range(30))]
        assert (log.counts["guesses"], log.counts["conflicts"]) == (1, 0)
        assert 20 <= looked <= 22

    def test_one_gives_way_to_who_has_the_turn(
        self, rows: FaultyRows, log: MemoryLog, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store, "LOOK_S", 0.0)
        other, waited = opened(log), list[float]()
        is_taken = threading.Event()

        def hold() -> None:
            with rows.queue("u42", lambda: 0, 1, lambda: None):
                is_taken.set()
                time.sleep(0.3)
                waited.append(time.monotonic())

        thread = threading.Thread(target=hold)
        thread.start()
        is_taken.wait(5)
        tree.CreateKeyword("mine", "root")
        ended = time.monotonic()
        thread.join()

        assert ended >= waited[0]
        other.Refresh()
        assert names(other) == ["first", "mine"]

    def test_what_has_nothing_to_do_has_looked_at_what_all_have_written(self, log: MemoryLog) -> None:
        tree, other = opened(log), opened(log)
        tea, fact = tree.CreateKeyword("tea", "root"), tree.CreateInfo("a drink")
        tree.LinkInfo(fact.id, tea.id)
        other.UnlinkInfo(fact.id, tea.id)

        tree.LinkInfo(fact.id, tea.id)  # as it is, for all that it has read

        assert opened(log).GetLinks(fact.id) == tree.GetLinks(fact.id) != []

    def test_where_no_one_answers_a_refusal_is_no_answer(self, rows: FaultyRows, tree: KeywordTree) -> None:
        rows.is_away = True

        with pytest.raises(StoreError, match="no connection") as caught:
            tree.CreateKeyword("green", "tea")
        assert not caught.value.outcome_unknown

        rows.is_away = False
        with pytest.raises(NotFoundError):
            tree.CreateKeyword("green", "tea")

    def test_one_who_asks_for_all_gets_it(self, log: MemoryLog, tree: KeywordTree) -> None:
        other = opened(log)
        other.CreateKeyword("theirs", "root")

        stamp = tree.Snapshot()

        other.CreateKeyword("later", "root")
        other.Restore(stamp)
        assert names(other) == ["first", "theirs"]


class TestGroups:
    def test_threads_that_write_in_turns_are_committed_together(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree, commits = opened(log), list[Append]()

        def count(append: Append) -> bool:
            commits.append(append)
            time.sleep(0.01)
            return append()

        rows.faults = [count] * 200

        def write(worker: int) -> None:
            for number in range(20):
                tree.CreateKeyword(f"{worker} {number}", "root")

        in_threads(write, range(8))

        assert len(names(tree)) == 160
        assert len(commits) <= 30  # 20 where none is missed; 39 where two groups wait for each other

    def commit_together(
        self, rows: FaultyRows, tree: KeywordTree, faults: list[Fault], *writes: Callable[[], object]
    ) -> list[object]:
        """Let threads write in one group; return what each got, results and errors."""
        reported: list[object] = [None] * len(writes)
        is_under_way, are_waiting = threading.Event(), threading.Event()

        def wait(append: Append) -> bool:
            is_under_way.set()
            are_waiting.wait(10)
            return append()

        def write(number: int) -> None:
            try:
                reported[number] = writes[number]()
            except (StoreError, NotFoundError) as error:
                reported[number] = error

        rows.faults = [wait, *faults]
        first = threading.Thread(target=tree.CreateKeyword, args=("first", "root"))
        first.start()
        is_under_way.wait(10)
        threads = [threading.Thread(target=write, args=(number,)) for number in range(len(writes))]
        for count, thread in enumerate(threads, 1):
            thread.start()
            while len(tree._engine._committer._forming[0]) < count:
                time.sleep(0.005)
        are_waiting.set()
        for thread in [first, *threads]:
            thread.join()
        rows.faults = []
        return reported

    @pytest.mark.parametrize(
        ("writes", "there"),
        [
            ([("green", "tea"), ("second", "root")], ["first", "tea", "second"]),  # without tea, green was refused
            ([("one", "root"), ("two", "root")], ["first", "one", "tea", "two"]),
        ],
    )
    def test_that_a_conflict_overtook_are_planned_again_as_a_whole_and_one_by_one_not_twice(
        self, rows: FaultyRows, log: MemoryLog, writes: list[tuple[str, str]], there: list[str]
    ) -> None:
        tree, other = opened(log), opened(log)
        # The group, and then each of its operations alone.
        earlier = [rows.refuse, lambda append: append()] if "one" in there else []

        made = (partial(tree.CreateKeyword, *write) for write in writes)
        reported = self.commit_together(rows, tree, [*earlier, behind(lambda: make_tea(other))], *made)

        assert [getattr(each, "name", each) for each in reported] == [name for name, _ in writes]
        assert names(opened(log)) == there

    def test_that_a_conflict_overtook_are_not_tried_one_by_one_first(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree, other = opened(log), opened(log)
        tries: list[str] = []

        def be_quicker(append: Append) -> bool:
            other.CreateKeyword("of another", "root")
            rows.faults = [try_again] * 3
            return append()

        def try_again(append: Append) -> bool:
            tries.append("again")
            return append()

        one, two = (partial(tree.CreateKeyword, name, "root") for name in ("one", "two"))
        self.commit_together(rows, tree, [be_quicker], one, two)

        assert tries == ["again"]
        assert names(opened(log)) == ["first", "of another", "one", "two"]

    def test_tell_no_one_that_it_is_done_what_the_second_run_could_not_write(
        self, rows: FaultyRows, log: MemoryLog
    ) -> None:
        tree, other = opened(log), opened(log)

        def be_quicker(append: Append) -> bool:
            make_tea(other)
            rows.patience, rows.faults = 0.1, [rows.lose_request] * 50
            return append()

        green, second = (partial(tree.CreateKeyword, *write) for write in (("green", "tea"), ("second", "root")))
        reported = self.commit_together(rows, tree, [be_quicker], green, second)

        assert all(isinstance(each, StoreError) and each.outcome_unknown for each in reported), reported
        assert names(opened(log)) == ["first", "tea"]


class TestLostLogs:
    def lose(self, rows: FaultyRows, keys: slice) -> None:
        held = rows.held["u42"].batches
        for key in sorted(held)[keys]:
            del held[key]

    def furnish(self, log: MemoryLog) -> KeywordTree:
        tree = opened(log)
        for name in "abc":
            tree.CreateKeyword(name, "root")
        return tree

    @pytest.mark.parametrize("keys", [slice(-1, None), slice(2, None), slice(None)])
    def test_a_cut_log_is_refused_by_those_who_have_read_it(
        self, rows: FaultyRows, log: MemoryLog, keys: slice
    ) -> None:
        tree = self.furnish(log)
        self.lose(rows, keys)

        with pytest.raises(StoreCorruptError):
            tree.Refresh()
        with pytest.raises(StoreCorruptError):
            tree.CreateKeyword("d", "root")
        assert len(rows.held["u42"].batches) == len(range(4)) - len(range(4)[keys])

    def test_another_history_in_its_place_is_refused(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = self.furnish(log)
        self.lose(rows, slice(-1, None))
        opened(log).CreateKeyword("of another history", "root")

        with pytest.raises(StoreCorruptError):
            tree.CreateKeyword("d", "root")
        assert names(opened(log)) == ["a", "b", "of another history"]

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            (slice(1, 2), "is there|follow"),
            (slice(0, 1), "lacks what comes before"),
            (slice(None), "the log is gone"),  # it is not begun again
        ],
    )
    def test_a_gap_is_refused_at_opening(self, rows: FaultyRows, log: MemoryLog, keys: slice, said: str) -> None:
        self.furnish(log)
        self.lose(rows, keys)

        with pytest.raises(StoreCorruptError, match=said):
            opened(log)
        assert len(rows.held["u42"].batches) == len(range(4)) - len(range(4)[keys])

    def test_another_tree_under_the_name_is_refused(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = self.furnish(log)
        rows.remove("u42")
        other = self.furnish(log)
        for number in range(5):
            other.CreateKeyword(f"{number}", "root")
        other.CompactStorage(keep_history=False)  # which looks like a compaction of the first one's

        with pytest.raises(StoreCorruptError, match="another log has this name now"):
            tree.CreateKeyword("d", "root")
        assert "d" not in names(opened(log))

    def test_a_damaged_line_is_refused(self, rows: FaultyRows, log: MemoryLog) -> None:
        self.furnish(log)
        held = rows.held["u42"].batches
        key = sorted(held)[2]
        held[key] = held[key]._replace(lines=held[key].lines.replace(b'"name":"b"', b'"name":"x"'))

        with pytest.raises(StoreCorruptError, match="line 3"):
            opened(log)


class TestStates:
    def test_a_damaged_state_is_reported_and_the_log_read_instead(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)
        tree.CreateKeyword("tea", "root")
        tree.CompactStorage(keep_history=True)
        part = next(iter(rows.held["u42"].states.values()))[0]
        part.rows[-1] = part.rows[-1].replace(b"tea", b"pea")

        again = opened(log)

        assert names(again) == ["tea"]
        assert "is damaged" in again.recovery[0]
        assert "is damaged" in again.Verify()[0]
        again.CompactStorage(keep_history=True)  # writes it again
        assert opened(log).recovery == ()

    def test_of_another_history_is_not_used(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)
        tree.CreateKeyword("tea", "root")
        tree.CompactStorage(keep_history=True)
        TestLostLogs().lose(rows, slice(-1, None))
        opened(log)

        assert names(opened(log)) == []

    def test_holds_no_long_contents_but_where_they_are(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)
        fact = tree.CreateInfo("x" * 100_000)
        tree.CompactStorage(keep_history=True)

        assert next(iter(rows.held["u42"].marks.values())).size < 1000
        assert opened(log).GetInfo(fact.id) == fact

    def test_are_pruned_but_for_those_of_snapshots(self, rows: FaultyRows, log: MemoryLog) -> None:
        tree = opened(log)
        tree.CreateInfo("x" * 100_000)
        tree.Snapshot(copy=True)
        for number in range(4):
            tree.CreateKeyword(f"{number}", "root")
            tree.CompactStorage(keep_history=True)

        assert [mark.is_full for mark in rows.marks("u42")] == [False, False, True]
