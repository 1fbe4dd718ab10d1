"""Say how well a memory fits a question, in four figures from 0 to 1 and one that weighs them.

>>> overlap = text_overlap("绿茶怎么泡", "绿茶", "", "绿茶用八十度的水泡三分钟")
>>> score = ScoreBreakdown(overlap, 0.0, temporal_decay(15 * DAY_S), reference_count(5))
>>> print(score.explain(Hybrid()))
0.33 = 0.5 × 0.32 text overlap + 0.2 × 0.00 graph distance + 0.1 × 0.71 temporal decay + 0.2 × 0.50 reference count
>>> print(score.explain(TemporalWeight()))
0.71 = 1 × 0.71 temporal decay

Four functions measure, each for itself: `text_overlap`, `graph_distance`, `temporal_decay`, `reference_count`.
A `ScoringStrategy` weighs them.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Set
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import pairwise

from ..base.text import fold_case
from ..keyword_tree import InvalidInputError

__all__ = ["DAY_S", "DiceOverlap", "GraphDistance", "Hybrid", "ReferenceCount", "ScoreBreakdown", "ScoreWeights"]
__all__ += ["ScoringStrategy", "TemporalWeight", "TextOverlap", "bigrams", "dice", "graph_distance"]
__all__ += ["reference_count", "saturation", "score_all", "temporal_decay", "text_overlap"]

DAY_S = 86_400.0
"""Seconds in a day."""

HALF_LIFE_S = 30 * DAY_S
"""In seconds: after that a memory counts half as new: a month, as long as a piece of work goes on."""

STEP = 0.5
"""The share of a score that one step in the graph leaves."""

HALF_OF_REFERENCES = 5.0
"""The number of references that count half of the most."""

TITLE, SUMMARY, BODY = 0.5, 0.3, 0.2
"""The weights of the three parts of a memory in its text overlap: a named thing counts most."""

_find_words = re.compile(r"[^\W_]+").findall


# Measuring


def bigrams(text: str) -> frozenset[str]:
    """Return the pairs of neighbouring letters or digits in `text`, regardless of case and width.

    A pair does not reach over a space or a mark. A word of one character counts as it is: 茶 must equal 茶.
    """
    pairs: set[str] = set()
    for word in _find_words(fold_case(text)):
        pairs.update(map("".join, pairwise(word)) if len(word) > 1 else (word,))
    return frozenset(pairs)


def dice(some: Set[str], others: Set[str]) -> float:
    """Return the Dice coefficient of two sets, from 0 (nothing in common, or both empty) to 1 (equal).

    2 · |some ∩ others| / (|some| + |others|): Dice 1945; over bigrams of characters: Adamson & Boreham 1974.
    """
    total = len(some) + len(others)
    return 2 * len(some & others) / total if total else 0.0


def text_overlap(query: str, title: str = "", summary: str = "", body: str = "") -> float:
    """Return how much a memory's text overlaps with `query`, from 0 to 1.

    The weighted mean of the Dice coefficients of query and part, over the parts that have a text: the title counts
    0.5, the summary 0.3, the body 0.2. A memory of a body alone is not the worse for it.

    The longer a part is than the query, the lower its coefficient can be: a query of 10 bigrams within a body of 190
    reaches 0.1. Compare what you compare by parts of like length.

    >>> text_overlap("night", "nacht")
    0.25
    """
    wanted = _bigrams_of_query(query)
    parts = [(weight, bigrams(text)) for weight, text in ((TITLE, title), (SUMMARY, summary), (BODY, body))]
    total = sum(weight for weight, found in parts if found)
    return sum(weight * dice(wanted, found) for weight, found in parts) / total if total else 0.0


# One question is compared with hundreds of memories.
_bigrams_of_query = lru_cache(maxsize=64)(bigrams)


def graph_distance(steps: int, weight: float = 1.0) -> float:
    """Return the rest of a score after a walk in the graph, from 0 to 1: weight · 0.5 ^ steps.

    Spreading activation (Collins & Loftus 1975): each step passes on a part of what arrives. A power of the steps, not
    1 / (1 + steps), so that the value of a way is the product of its parts and the best way can be found step by step.

    Args:
        steps: 0 for an entity that the question itself names.
        weight: The product of the relations' weights along the way, each from 0 to 1.
    """
    return float(weight * STEP**steps)


def temporal_decay(age_s: float) -> float:
    """Return how fresh a memory is, from 1 (now, or with a clock that runs ahead) towards 0: 0.5 ^ (age / 30 days).

    The exponential forgetting curve (Ebbinghaus 1885), as in the recency of Generative Agents (Park et al. 2023).

    Args:
        age_s: Seconds since it was written or last used.
    """
    return float(0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


def reference_count(count: int) -> float:
    """Return how much a memory is referred to, from 0 (never) towards 1: count / (count + 5).

    It saturates as a term's frequency does in BM25 (Robertson & Zaragoza 2009): the fifth reference says more than the
    fiftieth, and a hub does not outweigh everything that fits better.
    """
    return saturation(count, HALF_OF_REFERENCES)


def saturation(count: float, half: float) -> float:
    """Return count / (count + half): 0 for none, 0.5 for `half`, towards 1."""
    return 1.0 - half / (half + max(0.0, count))


# The four figures together


@dataclass(frozen=True)
class ScoreBreakdown:
    """Why a memory scored as it did: four figures from 0 to 1."""

    overlap_score: float = 0.0
    """See `text_overlap`."""
    graph_score: float = 0.0
    """See `graph_distance`."""
    temporal_score: float = 0.0
    """See `temporal_decay`."""
    reference_score: float = 0.0
    """See `reference_count`."""

    def explain(self, strategy: "ScoringStrategy | None" = None) -> str:
        """Return the sum as a person would write it down, without the parts that do not count.

        Args:
            strategy: The weights of the figures; the default is `TextOverlap()`.
        """
        strategy = strategy or TextOverlap()
        parts = [
            f"{share:.3g} × {score:.2f} {name}"
            for share, score, name in zip(_shares(strategy.weights), astuple(self), _NAMES, strict=True)
            if share
        ]
        return f"{strategy.total(self):.2f} = {' + '.join(parts)}"


_NAMES = ("text overlap", "graph distance", "temporal decay", "reference count")


# Weighing


@dataclass(frozen=True)
class ScoreWeights:
    """The weights of the four figures. Only their proportions matter: a total stays within 0 and 1."""

    overlap: float = 0.5
    """Text overlap, measured by the question itself."""
    graph: float = 0.2
    """Graph distance."""
    temporal: float = 0.1
    """Temporal decay."""
    reference: float = 0.2
    """Reference count."""

    def __post_init__(self) -> None:
        values = astuple(self)
        if not all(math.isfinite(value) and value >= 0 for value in values) or not math.isfinite(sum(values)):
            raise InvalidInputError(f"weights must be finite and not below 0: {self!r}")
        if not any(values):
            raise InvalidInputError("at least one weight must be above 0")


class ScoringStrategy(ABC):
    """The figures of a score, and their weights. Six forms are below; another one needs only `weights`."""

    @property
    @abstractmethod
    def weights(self) -> ScoreWeights:
        """The weight of each figure."""

    def total(self, breakdown: ScoreBreakdown) -> float:
        """Return the weighted mean of the four figures, from 0 to 1."""
        figures = vars(breakdown).values()
        parts = [share * figure for share, figure in zip(_shares(self.weights), figures, strict=True)]
        # The shares of a sum can exceed 1 by a rounding error, and then a perfect score would.
        return min(1.0, math.fsum(parts))


def score_all(
    strategy: ScoringStrategy, figures: Iterable[tuple[float, float, float, int]]
) -> list[tuple[float, ScoreBreakdown]]:
    """Return the total score of memories with the figures of each.

    Args:
        strategy: The weights.
        figures: Of each memory its text overlap and its score by the graph, both from 0 to 1, its age in seconds, and
            how many refer to it.
    """
    found = [ScoreBreakdown(text, near, temporal_decay(age), reference_count(n)) for text, near, age, n in figures]
    return [(strategy.total(each), each) for each in found]


@lru_cache(maxsize=64)  # a ranking asks for the same ones hundreds of times
def _shares(weights: ScoreWeights) -> tuple[float, ...]:
    # Divided by the greatest first: weights near the smallest number that there is would sum up to their own rounding.
    values = vars(weights).values()
    scaled = [value / max(values) for value in values]
    return tuple(value / sum(scaled) for value in scaled)


@dataclass(frozen=True)
class TextOverlap(ScoringStrategy):
    """The text alone, measured by the question as it was asked (the default)."""

    weights = ScoreWeights(1, 0, 0, 0)


@dataclass(frozen=True)
class DiceOverlap(TextOverlap):
    """The text alone, by `text_overlap`: Dice over pairs of characters, title before summary before body.

    It changes the order of BM25: good for short notes and typing errors, a loss for long texts.
    """


@dataclass(frozen=True)
class GraphDistance(ScoringStrategy):
    """How near it is in the graph, alone."""

    weights = ScoreWeights(0, 1, 0, 0)


@dataclass(frozen=True)
class TemporalWeight(ScoringStrategy):
    """How fresh it is, alone."""

    weights = ScoreWeights(0, 0, 1, 0)


@dataclass(frozen=True)
class ReferenceCount(ScoringStrategy):
    """How much it is referred to, alone."""

    weights = ScoreWeights(0, 0, 0, 1)


@dataclass(frozen=True)
class Hybrid(ScoringStrategy):
    """All four: 0.5 text, 0.2 graph, 0.1 time, 0.2 references, unless set otherwise."""

    weights: ScoreWeights = ScoreWeights()
