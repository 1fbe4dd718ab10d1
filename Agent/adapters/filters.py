"""Filters over JSON objects, as LangGraph, LangChain and mem0 write them, and the values that they compare.

A filter is compiled once and asked for every item. Values are compared as JSON has them: True is not 1.

>>> fits = read_filter({"likes.tea": "green", "cups": {"$gte": 2}})
>>> fits({"likes": {"tea": "green"}, "cups": 3}), fits({"likes": {"tea": "green"}, "cups": True})
(True, False)
"""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from ..keyword_tree import InvalidInputError

__all__ = ["OPERATORS", "Filter", "Test", "all_of", "leaves", "look_up", "read_filter"]

Test: TypeAlias = Callable[[Any], bool]
"""Whether a field fits."""

Filter: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Whether an object fits."""


def read_filter(wanted: object) -> Filter | None:
    """Return the test of a filter with `$` operators; None where everything passes.

    Args:
        wanted: Fields, dotted paths too, with a value, a nested filter, or `$eq $ne $gt $gte $lt $lte $in $nin`.

    Raises:
        InvalidInputError: it is no filter, whether an item is there to be compared or not.
    """
    if not wanted and (wanted is None or isinstance(wanted, Mapping)):
        return None
    if not isinstance(wanted, Mapping):
        raise InvalidInputError(f"a filter must be an object, not {wanted!r}")
    return all_of([_test_of(key, _read_condition(condition)) for key, condition in wanted.items()])


def all_of(tests: list[Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """Return one test that requires all; most filters have one."""
    return tests[0] if len(tests) == 1 else lambda value: all(test(value) for test in tests)


def _test_of(key: str, test: Test) -> Filter:
    if "." in key:
        return lambda value: test(look_up(value, key))
    return lambda value: test(value.get(key))


def look_up(value: Mapping[str, Any], key: str) -> Any:
    """Return the field of that name, or else the one that a dotted path leads to; None where there is none."""
    if key in value:
        return value[key]
    found: Any = value
    for step in key.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _read_condition(condition: object) -> Test:
    if not isinstance(condition, Mapping):
        return OPERATORS["eq"](condition)
    if not any(str(name).startswith("$") for name in condition):
        fits = read_filter(condition)
        return lambda found: isinstance(found, dict) and (fits is None or fits(found))
    unknown = [name for name in condition if name not in _WITH_DOLLAR]
    if unknown:
        raise InvalidInputError(f"Unsupported operator: {unknown[0]}; known: {', '.join(_WITH_DOLLAR)}")
    return all_of([_WITH_DOLLAR[name](value) for name, value in condition.items()])


def _compare(operation: Callable[[Any, Any], bool], wanted: object) -> Test:
    """Return the test of a comparison: numbers compare with numbers, strings with strings."""
    kinds: tuple[type, ...] = (str,) if isinstance(wanted, str) else (int, float)
    can_be = type(wanted) in kinds  # nothing is above a list, or above True
    return lambda found: can_be and type(found) in kinds and operation(found, wanted)


def _is_in(is_wanted: bool, wanted: object) -> Test:
    values = wanted if isinstance(wanted, (list, tuple)) else None
    return lambda found: values is not None and any(equals(found, each) for each in values) is is_wanted


OPERATORS: dict[str, Callable[[Any], Test]] = {
    "eq": lambda wanted: lambda found: equals(found, wanted),
    "ne": lambda wanted: lambda found: not equals(found, wanted),
    "gt": partial(_compare, operator.gt),
    "gte": partial(_compare, operator.ge),
    "lt": partial(_compare, operator.lt),
    "lte": partial(_compare, operator.le),
    "in": partial(_is_in, True),
    "nin": partial(_is_in, False),
}
"""What a wanted value becomes a test by."""

_WITH_DOLLAR = {f"${name}": test for name, test in OPERATORS.items()}


# Values as JSON has them


def equals(found: Any, wanted: Any) -> bool:
    """Tell whether two values are the same in JSON, where True is not 1 and NaN equals nothing."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(wanted, (list, tuple)):
        is_list = isinstance(found, (list, tuple)) and len(found) == len(wanted)
        return is_list and all(map(equals, found, wanted))
    if isinstance(wanted, Mapping):
        is_dict = isinstance(found, Mapping) and found.keys() == wanted.keys()
        return is_dict and all(equals(found[key], value) for key, value in wanted.items())
    return bool(found == wanted)


def leaves(value: object) -> list[str]:
    """Return all that a value says, without the names of its fields."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in leaves(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in leaves(inner)]
    return [] if value is None or isinstance(value, bool) else [str(value)]
