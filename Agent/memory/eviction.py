"""Policies of forgetting: memories that were never recalled, old ones, those beyond a capacity.

>>> now = 100 * DAY_S
>>> days = {"often": 90, "never": 90, "new": 0}
>>> memories = {id: InfoFacts("fact", "", now - age * DAY_S, {}) for id, age in days.items()}
>>> stats = {"often": RecallStats(20, 16.0, now - DAY_S)}
>>> for eviction in choose_evictions(memories, RecallBased(max_items=2), stats, now):
...     print(eviction.id, eviction.why)
never the least valuable of 3, where 2 may stay: 0.03 = 0.3 × ln(1 + 0) + 0.5 × 0.00 + 0.2 × 0.12
>>> [eviction.id for eviction in choose_evictions(memories, Ttl(30 * DAY_S), stats, now)]
['often', 'never']

Nothing here deletes: `MemoryStore.plan_forgetting` lists memories, `MemoryStore.forget` deletes them as one operation
that can be undone. Pinned memories stay, and do not count.
"""

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ..base.checks import check_count, check_strings, shorten
from ..keyword_tree import InvalidInputError, KeywordTree
from .memories import Memories
from .memory_fields import RECORD_TYPES, record_of, with_recalls
from .memory_rows import InfoFacts
from .scoring import DAY_S, temporal_decay

__all__ = ["DAY_S", "Capacity", "Eviction", "EvictionPolicy", "ForgettingPlan", "HybridEviction"]
__all__ += ["NoEviction", "RecallBased", "RecallLog", "RecallStats", "Ttl", "choose_evictions", "plan_forgetting"]
__all__ += ["value_of"]


# What is known of a memory


@dataclass
class RecallStats:
    """How often and how well a memory was recalled."""

    recall_count: int = 0
    """How often, in all."""
    total_score: float = 0.0
    """The sum of its scores."""
    last_recall_at: float = 0.0
    """Seconds since the epoch, UTC; 0 is never."""

    def __add__(self, other: "RecallStats") -> "RecallStats":
        """Return both together."""
        last = max(self.last_recall_at, other.last_recall_at)  # a clock may be put back
        return RecallStats(self.recall_count + other.recall_count, self.total_score + other.total_score, last)

    @property
    def average_score(self) -> float:
        """From 0 to 1; 0 where it was never recalled."""
        return self.total_score / self.recall_count if self.recall_count else 0.0


@dataclass(frozen=True)
class Eviction:
    """A memory that would go."""

    id: str
    """Its id."""
    value: float
    """By the value formula; the lowest go first."""
    why: str
    """For a reader."""


def value_of(
    stats: RecallStats, age_s: float, recall_weight: float = 0.3, score_weight: float = 0.5, recency_weight: float = 0.2
) -> float:
    """Return the worth of a memory: ln(1 + recall_count) · w_recall + average score · w_score + recency · w_recency.

    Args:
        stats: How it was recalled.
        age_s: Seconds since it was last recalled, or else written.
        recall_weight: Weight of the logarithm of the recalls.
        score_weight: Weight of the average score.
        recency_weight: Weight of the time since the last recall.

    Recency is `temporal_decay`: 1 now, 0.5 after 30 days. The logarithm lets the first recalls count most.
    """
    return (
        math.log1p(stats.recall_count) * recall_weight
        + stats.average_score * score_weight
        + temporal_decay(age_s) * recency_weight
    )


# Policies


class EvictionPolicy:
    """A policy of forgetting."""

    ttl_secs: float | None = None
    """Seconds after which a memory goes; None keeps memories of any age."""
    max_items: int | None = None
    """How many may stay; None is no limit."""
    recall_weight: float = 0.3
    """Weight of the logarithm of the recalls."""
    score_weight: float = 0.5
    """Weight of the average score."""
    recency_weight: float = 0.2
    """Weight of the time since the last recall."""


class NoEviction(EvictionPolicy):
    """Nothing goes."""


@dataclass(frozen=True)
class Ttl(EvictionPolicy):
    """Forgets memories above an age, recalled or not."""

    ttl_secs: float


@dataclass(frozen=True)
class Capacity(EvictionPolicy):
    """The least important go until `max_items` are left; of the same importance the oldest."""

    max_items: int
    recall_weight: float = 0.0
    score_weight: float = 0.0
    recency_weight: float = 1.0


@dataclass(frozen=True)
class RecallBased(EvictionPolicy):
    """The least valuable go until `max_items` are left; see `value_of`."""

    max_items: int
    recall_weight: float = 0.3
    score_weight: float = 0.5
    recency_weight: float = 0.2


@dataclass(frozen=True)
class HybridEviction(EvictionPolicy):
    """Forgets memories above an age, then the least valuable until `max_items` are left."""

    ttl_secs: float | None = None
    max_items: int | None = None


def choose_evictions(
    memories: Mapping[str, InfoFacts],
    policy: EvictionPolicy,
    stats: Mapping[str, RecallStats],
    now: float,
    importance: Mapping[str, float] | None = None,
) -> list[Eviction]:
    """Return which of some memories to forget: too old ones first, then the least valuable, equals the oldest first.

    Args:
        memories: Those that there are; pinned ones stay, and do not count.
        policy: What to forget.
        stats: How they were recalled.
        now: Seconds since the epoch.
        importance: 0.0 to 1.0 now (`current_importance`); without one it is 0.5, worn off since it was written or last
            recalled.

    Raises:
        InvalidInputError: A limit or weight of the policy is no number, or below 0.
    """
    _check_policy(policy)
    ttl_secs, max_items = policy.ttl_secs, policy.max_items
    written = {id: facts.time for id, facts in memories.items() if not facts.pinned}
    left = sorted(written, key=lambda id: written[id])
    evictions: list[Eviction] = []

    def value_now(id: str, counted: Mapping[str, RecallStats]) -> tuple[float, str]:
        known, judged = counted.get(id, RecallStats()), (importance or {}).get(id)
        recall, score, recency = policy.recall_weight, policy.score_weight, policy.recency_weight
        age_s = now - max(known.last_recall_at, written[id])
        # With the importance 0.5, that of a memory that was never judged, it is the time alone.
        fresh = temporal_decay(age_s) if judged is None else min(1.0, 2 * judged)
        value = value_of(known, age_s, recall, score, 0.0) + recency * fresh
        return value, (
            f"{value:.2f} = {recall:.3g} × ln(1 + {known.recall_count}) + {score:.3g} × {known.average_score:.2f} "
            f"+ {recency:.3g} × {fresh:.2f}"
        )

    if ttl_secs is not None:
        old = [id for id in left if now - written[id] > ttl_secs]
        left = left[len(old) :]
        for id in old:
            value, _ = value_now(id, stats)
            why = f"{(now - written[id]) / DAY_S:.1f} days old, where {ttl_secs / DAY_S:.1f} are allowed"
            evictions.append(Eviction(id, value, why))
    if max_items is not None and len(left) > max_items:
        count = len(left)
        counted = {} if isinstance(policy, Capacity) else stats  # of which the time of writing alone counts
        worth = [(*value_now(id, counted), id) for id in left]
        worth.sort(key=lambda item: item[0])  # stable: the oldest first
        for value, sum_text, id in worth[: count - max_items]:
            place = "the least important" if isinstance(policy, Capacity) else "the least valuable"
            why = f"{place} of {count}, where {max_items} may stay"
            evictions.append(Eviction(id, value, why if isinstance(policy, Capacity) else f"{why}: {sum_text}"))
    return evictions


def _check_policy(policy: EvictionPolicy) -> None:
    for name in ("recall_weight", "score_weight", "recency_weight", "ttl_secs"):
        value = getattr(policy, name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and 0 <= value < math.inf) and (name, value) != ("ttl_secs", None):
            raise InvalidInputError(f"{name} must be a number and not below 0, not {shorten(value)}")
    if policy.max_items is not None:
        check_count("max_items", policy.max_items, 0)


# Statistics


class RecallLog:
    """Recall statistics in a file of their own, written now and then, so that reading stays reading.

    Args:
        path: The file; it is derived data, and may be deleted at any time.
        write_after: Recalls kept in memory before they are added to the file, which is written whole: at least so many,
            and half as many as it has rows.
        clock: Seconds since the epoch.

    A crash loses the unwritten counts, and of two processes that write in the same moment one may lose its own
    to add. A file that cannot be read counts as none, one that cannot be written is tried again later.
    """

    def __init__(
        self, path: str | os.PathLike[str], write_after: int = 256, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = Path(path)
        self._write_after = write_after
        self._clock = clock
        self._lock = threading.Lock()
        self._new: dict[str, RecallStats] = {}
        self._new_count = self._rows = 0

    def record(self, scores: Mapping[str, float]) -> None:
        """Count one recall of each of some memories: id → score.

        Raises:
            InvalidInputError: A score is not between 0 and 1, or an id no string.
        """
        check_strings("ids", scores)
        for score in scores.values():
            if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0.0 <= score <= 1.0:
                raise InvalidInputError(f"score must be between 0 and 1, not {shorten(score)}")
        now = self._clock()
        with self._lock:
            for id, score in scores.items():
                self._new[id] = self._new.get(id, RecallStats()) + RecallStats(1, score, now)
            self._new_count += len(scores)
            due = self._new_count >= max(self._write_after, self._rows // 2)
        if due:
            self.write()

    def stats(self) -> dict[str, RecallStats]:
        """Return the counts of every memory that was ever recalled."""
        with self._lock:
            return self._sum()

    def write(self, is_kept: Callable[[str], bool] | None = None) -> None:
        """Add the new counts to the file.

        Args:
            is_kept: Of which memories rows are kept; None keeps all.
        """
        with self._lock:
            known = self._sum()
            kept = {id: stats for id, stats in known.items() if is_kept is None or is_kept(id)}
            if not self._new_count and len(kept) == len(known):
                return
            rows = {id: [stats.recall_count, stats.total_score, stats.last_recall_at] for id, stats in kept.items()}
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
                beside.touch(mode=0o600)
                beside.write_text(json.dumps(rows), encoding="utf-8")
                beside.replace(self._path)
                self._new, self._new_count, self._rows = {}, 0, len(rows)
            except OSError as error:
                _LOGGER.warning("recall statistics cannot be written, and stay in memory: %s", error)

    def _sum(self) -> dict[str, RecallStats]:
        known = self._read()
        for id, new in self._new.items():
            known[id] = known.get(id, RecallStats()) + new
        return known

    def _read(self) -> dict[str, RecallStats]:
        try:
            return {id: _check_row(*row) for id, row in json.loads(self._path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}


def _check_row(count: float, total: float, last: float) -> RecallStats:
    is_number = {type(count), type(total), type(last)} <= {int, float}  # a boolean is none
    if not is_number or not 0 <= total <= count <= 2**63 or not 0 <= last <= _LAST_SECOND:
        raise ValueError(f"no such statistics: {shorten([count, total, last])}")
    return RecallStats(int(count), total, last)


_LOGGER = logging.getLogger(__name__)
_LAST_SECOND = 253_402_300_799  # of the year 9999


# What would be forgotten


@dataclass(frozen=True)
class ForgettingPlan:
    """The memories to be forgotten, with reasons; nothing was changed."""

    evictions: Sequence[Eviction]
    """The ids of the memories to forget."""
    kept: int
    """How many would stay, pinned ones included."""
    versions: Mapping[str, int] = field(default_factory=dict, repr=False)
    """The state of these memories in the plan: `forget` leaves one that has changed since."""


def plan_forgetting(
    tree: KeywordTree, index: Memories, stats: Mapping[str, RecallStats], policy: EvictionPolicy, now: float
) -> ForgettingPlan:
    """Return the memories of a tree that a policy would forget, and why; see `MemoryStore.plan_forgetting`."""
    known = index.facts()
    whole = {id: sum((stats[each] for each in index.walk_back([id]) if each in stats), RecallStats()) for id in known}
    importance: dict[str, float] = {}
    for id in (id for id, facts in known.items() if facts.kind in RECORD_TYPES):
        info, recalls = tree.GetInfo(id), whole[id]
        record = None if info is None else with_recalls(record_of(info), recalls.recall_count, recalls.last_recall_at)
        if record is not None:
            importance[id] = record.current_importance(datetime.fromtimestamp(now, UTC))
    evictions = choose_evictions(known, policy, whole, now, importance)
    infos = [info for eviction in evictions if (info := tree.GetInfo(eviction.id)) is not None]
    return ForgettingPlan(evictions, len(known) - len(evictions), {info.id: info.version for info in infos})
