"""Tests of `scoring`: each figure by its formula, the weighing, and what is said of it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.keyword_tree import InvalidInputError
from Agent.memory.scoring import (
    DAY_S,
    GraphDistance,
    Hybrid,
    ReferenceCount,
    ScoreBreakdown,
    ScoreWeights,
    ScoringStrategy,
    TemporalWeight,
    TextOverlap,
    bigrams,
    dice,
    graph_distance,
    reference_count,
    temporal_decay,
    text_overlap,
)

shares = st.floats(0, 1)
weights = st.floats(0, allow_infinity=False, allow_nan=False)
breakdowns = st.builds(ScoreBreakdown, shares, shares, shares, shares)


class TestBigrams:
    @pytest.mark.parametrize(
        ("text", "pairs"),
        [("to go!", {"to", "go"}), ("ＡＢc", {"ab", "bc"}), ("喝绿茶", {"喝绿", "绿茶"}), ("茶, x", {"茶", "x"})],
    )
    def test_are_pairs_within_words_or_single_characters(self, text: str, pairs: set[str]) -> None:
        assert bigrams(text) == pairs


class TestDice:
    def test_is_twice_the_common_ones_by_all(self) -> None:
        assert dice({"ab", "bc", "cd"}, {"bc"}) == 2 * 1 / (3 + 1)

    def test_of_nothing_is_nothing(self) -> None:
        assert dice(set(), set()) == 0.0


class TestTextOverlap:
    @pytest.mark.parametrize(
        ("query", "title", "summary", "body", "overlap"),
        [
            ("绿茶", "绿茶", "红酒", "咖啡", 0.5),
            ("绿茶", "红酒", "绿茶", "咖啡", 0.3),
            ("绿茶", "红酒", "咖啡", "绿茶", 0.2),
            ("green tea", "", "", "Green Tea", 1.0),  # a memory that has a body alone is not blamed for it
            ("green tea", "—", "", "green tea", 1.0),  # nor for a part without letters
            ("", "绿茶", "绿茶", "绿茶", 0.0),
        ],
    )
    def test_weighs_title_over_summary_over_body(
        self, query: str, title: str, summary: str, body: str, overlap: float
    ) -> None:
        assert text_overlap(query, title, summary, body) == pytest.approx(overlap)

    @given(st.text(), st.text(), st.text(), st.text())
    def test_is_within_bounds(self, query: str, title: str, summary: str, body: str) -> None:
        assert 0.0 <= text_overlap(query, title, summary, body) <= 1.0

    @given(st.text(alphabet="ab茶c ", min_size=1).filter(str.strip))
    def test_of_a_text_with_itself_is_one(self, text: str) -> None:
        assert text_overlap(text, text, text, text) == pytest.approx(1.0)


class TestGraphDistance:
    def test_halves_with_each_step_and_counts_the_weight_of_the_way(self) -> None:
        assert [graph_distance(steps) for steps in (0, 1, 2, 100_000)] == [1.0, 0.5, 0.25, 0.0]
        assert graph_distance(1, 0.8) == 0.4


class TestTemporalDecay:
    def test_halves_in_thirty_days(self) -> None:
        assert [temporal_decay(days * DAY_S) for days in (-5, 0, 30, 60)] == [1.0, 1.0, 0.5, 0.25]


class TestReferenceCount:
    def test_saturates(self) -> None:
        assert [reference_count(count) for count in (0, 5, 15)] == [0.0, 0.5, 0.75]

    @given(st.integers(0, 10**30))
    def test_is_within_bounds_and_never_falls(self, count: int) -> None:
        assert 0.0 <= reference_count(count) <= reference_count(count + 1) <= 1.0


class TestStrategies:
    SCORES = ScoreBreakdown(0.1, 0.2, 0.3, 0.4)

    @pytest.mark.parametrize(
        ("strategy", "total"),
        [(TextOverlap(), 0.1), (GraphDistance(), 0.2), (TemporalWeight(), 0.3), (ReferenceCount(), 0.4)],
    )
    def test_the_pure_ones_take_one_figure(self, strategy: ScoringStrategy, total: float) -> None:
        assert strategy.total(self.SCORES) == total

    def test_hybrid_weighs_as_the_defaults_say(self) -> None:
        assert Hybrid().total(self.SCORES) == pytest.approx(0.5 * 0.1 + 0.2 * 0.2 + 0.1 * 0.3 + 0.2 * 0.4)

    def test_hybrid_minds_proportions_only(self) -> None:
        assert Hybrid(ScoreWeights(5, 2, 1, 2)).total(self.SCORES) == pytest.approx(Hybrid().total(self.SCORES))

    @given(breakdowns, st.tuples(weights, weights, weights, weights))
    def test_a_total_is_within_bounds_whatever_the_weights(
        self, breakdown: ScoreBreakdown, values: tuple[float, float, float, float]
    ) -> None:
        try:
            total = Hybrid(ScoreWeights(*values)).total(breakdown)
        except InvalidInputError:
            assert not any(values) or math.isinf(sum(values))
        else:
            assert 0.0 <= total <= 1.0

    def test_a_perfect_score_stays_within_bounds(self) -> None:
        assert Hybrid(ScoreWeights(9, 9, 5, 7)).total(ScoreBreakdown(1, 1, 1, 1)) == 1.0

    @pytest.mark.parametrize("wrong", [(-0.1, 1, 1, 1), (math.nan, 1, 1, 1), (math.inf, 1, 1, 1), (0, 0, 0, 0)])
    def test_weights_that_weigh_nothing_are_refused(self, wrong: tuple[float, float, float, float]) -> None:
        with pytest.raises(InvalidInputError):
            ScoreWeights(*wrong)


class TestExplain:
    @pytest.mark.parametrize(
        ("scores", "strategy", "said"),
        [
            (
                (0.8, 0.5, 0.97, 0.25),
                Hybrid(),
                "0.65 = 0.5 × 0.80 text overlap + 0.2 × 0.50 graph distance "
                "+ 0.1 × 0.97 temporal decay + 0.2 × 0.25 reference count",
            ),
            (
                (1.0, 0.0, 0.0, 0.5),
                Hybrid(ScoreWeights(3, 0, 0, 1)),
                "0.88 = 0.75 × 1.00 text overlap + 0.25 × 0.50 reference count",
            ),
        ],
    )
    def test_says_the_sum_of_what_counts(
        self, scores: tuple[float, float, float, float], strategy: ScoringStrategy, said: str
    ) -> None:
        assert ScoreBreakdown(*scores).explain(strategy) == said

    def test_is_of_the_text_unless_given(self) -> None:
        assert ScoreBreakdown(0.8, 0.5, 0.9, 0.2).explain() == "0.80 = 1 × 0.80 text overlap"
