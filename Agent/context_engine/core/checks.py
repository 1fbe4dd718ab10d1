"""Checks of arguments that more than one package takes."""

import math
import sys
from typing import Any

from .errors import InvalidInputError
from .text import shorten

__all__ = ["check_count", "check_list", "check_time"]

_ALL = 1_000_000_000
"""As good as any larger number, and none that an index cannot count with."""


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return a whole number that is not below `least`.

    Raises:
        InvalidInputError: It is none; the message names the argument.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"{name} must be a whole number from {least}, not {shorten(value)}")
    return min(value, _ALL)


def check_list(name: str, value: object) -> list[Any]:
    """Return the items of a list; None has none.

    Raises:
        InvalidInputError: It is no list and no tuple.
    """
    if value is not None and not isinstance(value, (list, tuple)):
        raise InvalidInputError(f"{name} must be a list, not {shorten(value)}")
    return list(value or ())


def check_time(name: str, value: object) -> float:
    """Return a moment in seconds since the epoch.

    Raises:
        InvalidInputError: It is none.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    if isinstance(value, float) and math.isinf(value):
        return value
    raise InvalidInputError(f"{name} must be seconds since the epoch, not {shorten(value)}")
