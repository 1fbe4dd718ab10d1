"""Tests of `eviction`: what goes, in which order, why; and statistics that survive."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.keyword_tree import InvalidInputError
from Agent.memory.eviction import (
    DAY_S,
    Capacity,
    EvictionPolicy,
    HybridEviction,
    NoEviction,
    RecallBased,
    RecallLog,
    RecallStats,
    Ttl,
    choose_evictions,
    value_of,
)
from Agent.memory.memory_rows import InfoFacts

NOW = 1000 * DAY_S
MEMORIES = {f"{days} days": InfoFacts("fact", "", NOW - days * DAY_S, {}) for days in (1, 10, 100)}


def ids_to_go(policy: EvictionPolicy, memories: dict[str, InfoFacts] = MEMORIES, **stats: RecallStats) -> list[str]:
    known = {name.replace("_", " "): value for name, value in stats.items()}
    return [going.id for going in choose_evictions(memories, policy, known, NOW)]


class TestValueOf:
    def test_is_the_formula(self) -> None:
        stats = RecallStats(4, 2.0, 0.0)

        assert value_of(stats, 30 * DAY_S) == pytest.approx(math.log(5) * 0.3 + 0.5 * 0.5 + 0.5 * 0.2)
        assert value_of(RecallStats(), 0.0) == pytest.approx(0.2)
        assert value_of(stats, 0.0, 0.0, 1.0, 0.0) == 0.5

    @given(st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1e9))
    def test_rises_with_recalls_and_falls_with_age(self, count: int, score: float, age_s: float) -> None:
        stats, more = RecallStats(count, score * count), RecallStats(count + 1, score * (count + 1))

        assert value_of(more, age_s) >= value_of(stats, age_s) >= value_of(stats, age_s + DAY_S)


class TestChooseEvictions:
    def test_dooms_nothing_without_a_policy(self) -> None:
        assert ids_to_go(NoEviction()) == []

    def test_dooms_what_is_too_old_the_oldest_first(self) -> None:
        assert ids_to_go(Ttl(5 * DAY_S)) == ["100 days", "10 days"]
        assert ids_to_go(Ttl(100 * DAY_S)) == []

    def test_dooms_the_oldest_above_a_capacity(self) -> None:
        assert ids_to_go(Capacity(1)) == ["100 days", "10 days"]
        assert ids_to_go(Capacity(1), MEMORIES, **{"100_days": RecallStats(9, 9.0, NOW)}) == ["100 days", "10 days"]
        assert ids_to_go(Capacity(3)) == []

    def test_dooms_the_least_valuable(self) -> None:
        assert ids_to_go(RecallBased(2), MEMORIES, **{"100_days": RecallStats(9, 9.0, NOW)}) == ["10 days"]
        assert len(ids_to_go(RecallBased(0))) == 3

    def test_dooms_by_both(self) -> None:
        assert ids_to_go(HybridEviction(50 * DAY_S, 1)) == ["100 days", "10 days"]
        assert ids_to_go(HybridEviction(None, 2)) == ["100 days"]
        assert ids_to_go(HybridEviction()) == []

    def test_lets_the_pinned_stay_and_not_count(self) -> None:
        pinned = MEMORIES | {"pinned": InfoFacts("fact", "", 0.0, {}, pinned=True)}

        assert "pinned" not in ids_to_go(HybridEviction(DAY_S, 0), pinned)
        assert ids_to_go(Capacity(3), pinned) == []

    def test_says_why(self) -> None:
        old = choose_evictions(MEMORIES, Ttl(99 * DAY_S), {}, NOW)[0]
        least = choose_evictions(MEMORIES, RecallBased(2), {}, NOW)[0]

        assert old.why == "100.0 days old, where 99.0 are allowed"
        assert least.why.startswith("the least valuable of 3, where 2 may stay: 0.02 = 0.3 × ln(1 + 0)")
        assert choose_evictions(MEMORIES, Capacity(2), {}, NOW)[0].why == "the least important of 3, where 2 may stay"

    @pytest.mark.parametrize(
        "policy",
        [
            Ttl(-1.0),
            Ttl(math.nan),
            Ttl("1"),  # type: ignore[arg-type]
            Capacity(-1),
            Capacity(1.5),  # type: ignore[arg-type]
            Capacity(True),
            RecallBased(-1),
            RecallBased(1, recall_weight=math.nan),
            RecallBased(1, score_weight=-1.0),
            RecallBased(1, recency_weight=math.inf),
        ],
    )
    def test_refuses_limits_below_0(self, policy: EvictionPolicy) -> None:
        with pytest.raises(InvalidInputError, match="and not below 0"):
            ids_to_go(policy)


class TestRecallLog:
    def test_counts_and_keeps(self, tmp_path: Path) -> None:
        log = RecallLog(tmp_path / "indexes" / "stats.json", clock=lambda: 7.0)
        log.record({"a": 0.5})
        log.record({"a": 0.25})
        log.write()

        assert RecallLog(tmp_path / "indexes" / "stats.json").stats() == {"a": RecallStats(2, 0.75, 7.0)}
        assert log.stats() == {"a": RecallStats(2, 0.75, 7.0)}
        assert log.stats()["a"].average_score == 0.375

    def test_writes_now_and_then_alone(self, tmp_path: Path) -> None:
        log = RecallLog(tmp_path / "stats.json", write_after=3)
        for number in range(3):
            assert (tmp_path / "stats.json").exists() is False
            log.record({str(number): 1.0})

        assert sorted(RecallLog(tmp_path / "stats.json").stats()) == ["0", "1", "2"]

    def test_adds_to_what_another_wrote(self, tmp_path: Path) -> None:
        one, other = RecallLog(tmp_path / "stats.json"), RecallLog(tmp_path / "stats.json")
        for log in (one, other):
            log.record({"a": 1.0})
            log.write()

        assert one.stats()["a"].recall_count == 2

    @pytest.mark.parametrize(
        "damage",
        [
            "",
            "[]",
            "{",
            '{"a": 1}',
            '{"a": [1, "x", 2]}',
            '{"a": [Infinity, 1, 2]}',
            '{"a": [1, NaN, 2]}',
            '{"a": [1, 1, 1e300]}',
            '{"a": [-1, 0, 0]}',
            '{"a": [1, 2, 0]}',
            '{"a": [true, 0, 0]}',
            "[" * 100_000,
        ],
    )
    def test_takes_a_damaged_file_for_none(self, tmp_path: Path, damage: str) -> None:
        (tmp_path / "stats.json").write_text(damage)
        log = RecallLog(tmp_path / "stats.json")
        log.record({"b": 1.0})
        log.write()

        assert list(RecallLog(tmp_path / "stats.json").stats()) == ["b"]

    def test_goes_on_where_it_cannot_write(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        log = RecallLog(tmp_path / "file" / "stats.json", write_after=1)
        log.record({"a": 1.0})

        assert log.stats()["a"].recall_count == 1

    def test_does_not_go_back_with_the_clock(self, tmp_path: Path) -> None:
        times = iter([9.0, 5.0])
        log = RecallLog(tmp_path / "stats.json", clock=lambda: next(times))
        log.record({"a": 1.0})
        log.record({"a": 1.0})

        assert log.stats()["a"].last_recall_at == 9.0

    @pytest.mark.parametrize("score", [math.nan, -0.1, 1.1, "1", True])
    def test_refuses_a_score_that_is_none(self, tmp_path: Path, score: float) -> None:
        log = RecallLog(tmp_path / "stats.json")

        with pytest.raises(InvalidInputError, match="score"):
            log.record({"a": score})
        with pytest.raises(InvalidInputError, match="id"):
            log.record({5: 1.0})  # type: ignore[dict-item]
        assert log.stats() == {}

    def test_drops_the_rows_of_what_is_gone(self, tmp_path: Path) -> None:
        log = RecallLog(tmp_path / "stats.json")
        for id in "ab":
            log.record({id: 1.0})
        log.write()
        log.write(lambda id: id != "a")

        assert list(RecallLog(tmp_path / "stats.json").stats()) == ["b"]
