"""A property test that is cheaper or dearer than most asks for a share of the examples of the profile in use."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def share(of: float, **options: Any) -> settings:
    """Return the settings of the profile with `of` times as many examples, at least one."""
    return settings(max_examples=max(1, round(settings().max_examples * of)), **options)
