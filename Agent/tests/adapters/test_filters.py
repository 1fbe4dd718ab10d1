"""Tests of values as JSON has them."""

from typing import Any

import pytest

from Agent.adapters.filters import equals
from Agent.base.checks import depth_of


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        ([1, 2], (1, 2), True),
        ([1], [True], False),
        ([1, 2], [1], False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": 1}, [1], False),
        (float("nan"), float("nan"), False),
    ],
)
def test_equals(one: Any, other: Any, same: bool) -> None:
    assert equals(one, other) is equals(other, one) is same


@pytest.mark.parametrize(("value", "depth"), [(7, 0), ({}, 1), ([], 1), ({"a": 1}, 1), ({"a": [{}, 2]}, 3)])
def test_depth(value: Any, depth: int) -> None:
    assert depth_of(value) == depth
