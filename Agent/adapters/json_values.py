"""Values as JSON has them: compared, copied, and read for their words; what the adapters' filters are made of.

>>> equals(1, 1.0), equals(1, True), equals([1, {"a": None}], [1, {"a": None}])
(True, False, True)
>>> compares(1, 2.5), compares("a", "b"), compares(1, "b"), compares(True, 2)
(True, True, False, False)
>>> leaves({"likes": ["绿茶", {"cups": 3}], "dog": None})
['绿茶', '3']
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["compares", "copy_value", "depth_of", "equals", "leaves"]


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


def compares(found: Any, wanted: Any) -> bool:
    """Tell whether one of two values can be the greater: both numbers, or both strings."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return False
    if isinstance(found, str):
        return isinstance(wanted, str)
    return isinstance(found, (int, float)) and isinstance(wanted, (int, float))


def copy_value(value: Any) -> Any:
    """Return a value of which nothing is shared."""
    if isinstance(value, dict):
        return {key: copy_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copy_value(inner) for inner in value]
    return value


def leaves(value: object) -> list[str]:
    """Return all that a value says, without the names of its fields."""
    if isinstance(value, dict):
        return [text for inner in value.values() for text in leaves(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in leaves(inner)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def depth_of(value: object) -> int:
    """Return how many levels of lists and objects a value has; 0 for a number. Any depth is counted."""
    level: list[object] = [value]
    depth = -1
    while level:
        depth += 1
        containers = [each for each in level if isinstance(each, (Mapping, list, tuple))]
        level = [inner for each in containers for inner in (each.values() if isinstance(each, Mapping) else each)] or (
            [None] if containers else []
        )
    return depth
