"""Where a tree is: in a folder, or on a server by an address, `postgresql://agents@db.internal/agents#u42`.

>>> is_address("postgresql://db/agents#u42"), is_address("data/u42")
(True, False)
"""

import os
from typing import Any

from .keyword_tree import InvalidInputError, KeywordTree

__all__ = ["is_address", "open_tree", "refuse_address"]

_SCHEMES = ("postgresql:/", "postgres:/")  # a Path of an address has one slash


def is_address(place: str | os.PathLike[str]) -> bool:
    """Tell whether this names a tree on a server, rather than a folder."""
    return isinstance(place, str | os.PathLike) and os.fspath(place).startswith(_SCHEMES)


def refuse_address(place: str | os.PathLike[str], what: str) -> None:
    """Raise InvalidInputError for what is no path, and for an address, which the message does not show."""
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise InvalidInputError(f"{what} must be a path, and not empty: {place!r}")
    if is_address(place):
        raise InvalidInputError(f"{what} must be a folder, and cannot be the address of a server")


def open_tree(place: str | os.PathLike[str], **options: Any) -> KeywordTree:
    """Open the tree in a folder, or at an address, which needs the extra `[postgres]`.

    Args:
        place: The folder or the address.
        options: Those of `KeywordTree`.

    Raises:
        InvalidInputError: the address names no tree, or the extra is missing.
    """
    if not is_address(place):
        return KeywordTree(place, **options)  # type: ignore[arg-type]  # a Path works, and a number is refused there
    try:
        from .shared_tree.address import open_shared
    except ImportError as error:
        raise InvalidInputError(str(error)) from error
    return open_shared(os.fspath(place), **options)
