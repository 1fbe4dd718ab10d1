"""Checks of arguments that more than one package takes."""

import contextlib
from typing import Any

from ...base.text import shorten
from .errors import InvalidInputError

__all__ = ["check_count", "check_list", "check_time"]

_ALL = 1_000_000_000
"""As good as any larger number, and none that an index cannot count with."""


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return a whole number that is not below `least`; the error names the argument."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(f"{name} must be a whole number from {least}, not {shorten(value)}")
    return min(value, _ALL)


def check_list(name: str, value: object) -> list[Any]:
    """Return the items of a list or tuple; None has none."""
    if value is not None and not isinstance(value, (list, tuple)):
        raise InvalidInputError(f"{name} must be a list, not {shorten(value)}")
    return list(value or ())


def check_time(name: str, value: object) -> float:
    """Return a moment in seconds since the epoch, which may be infinite."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        with contextlib.suppress(OverflowError):
            return float(value)
    raise InvalidInputError(f"{name} must be seconds since the epoch, not {shorten(value)}")
