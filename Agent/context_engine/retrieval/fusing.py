"""Joining rankings that have no common measure: reciprocal ranks (Cormack, Clarke & Büttcher 2009)."""

from collections.abc import Mapping
from typing import TypeVar

Key = TypeVar("Key")

_K = 60


def fuse(*rankings: Mapping[Key, float]) -> dict[Key, float]:
    """Return what some rankings hold, each scored by the sum of 1 / (60 + rank), from 0 to 1.

    >>> fuse({"a": 0.9, "b": 0.2}, {"b": 0.8, "c": 0.1})
    {'b': 0.9919..., 'a': 0.5, 'c': 0.4919...}
    """
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(sorted(ranking, key=lambda key: -ranking[key]), 1):
            scores[key] = scores.get(key, 0.0) + (_K + 1) / (_K + rank) / len(rankings)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))
