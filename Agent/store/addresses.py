"""Where a tree is: in a folder, or on a server by an address, `postgresql://agents@db.internal/agents#u42`.

>>> is_address("postgresql://db/agents#u42"), is_address("data/u42")
(True, False)
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ..keyword_tree import InvalidInputError, KeywordTree, _FindScheme

__all__ = ["is_address", "open_tree", "refuse_address", "register_scheme"]

_openers: dict[str, Callable[..., KeywordTree]] = {}
"""Scheme of an address → function that opens a tree there."""


def register_scheme(scheme: str, opener: Callable[..., KeywordTree]) -> None:
    """Let `open_tree` take addresses of a scheme.

    Args:
        scheme: The part before the colon, as `postgresql`.
        opener: Called with the address and the options of `KeywordTree`; its ImportError names the extra to install.
    """
    _openers[scheme] = opener


def is_address(place: str | os.PathLike[str]) -> bool:
    """Tell whether this names a tree on a server, rather than a folder; an unknown scheme is refused."""
    return _opener_of(place) is not None


def refuse_address(place: str | os.PathLike[str], what: str) -> None:
    """Raise InvalidInputError for an address, which the message does not show, and for anything but a path."""
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise InvalidInputError(f"{what} must be a path, and not empty: {place!r}")
    if is_address(place):
        raise InvalidInputError(f"{what} must be a folder, and cannot be the address of a server")


def open_tree(place: str | os.PathLike[str], *, meaning: Any = True, **options: Any) -> KeywordTree:
    """Open the tree in a folder, or at an address, which needs the extra `[postgres]`.

    Args:
        place: The folder or the address.
        meaning: How to compare by meaning, for the tree and for what is made of it; False: by words alone.
        options: Those of `KeywordTree`.

    Raises:
        InvalidInputError: the address names no tree, its scheme is not known, or the extra is missing.
    """
    if meaning is not True:
        options["ranker"] = partial(KeywordTree.default_ranker, meaning=meaning)
    opener = _opener_of(place)
    if opener is None:
        return KeywordTree(place, **options)  # type: ignore[arg-type]  # a Path works, and a number is refused there
    try:
        return opener(os.fspath(place), **options)
    except ImportError as error:
        raise InvalidInputError(str(error)) from error


def _opener_of(place: str | os.PathLike[str]) -> Callable[..., KeywordTree] | None:
    if not isinstance(place, str | os.PathLike):
        return None
    scheme = _FindScheme(os.fspath(place))
    if scheme is None:
        return None
    if scheme[1] not in _openers:  # what follows may be a password
        raise InvalidInputError(f"no scheme of an address is called {scheme[1]!r}; known: {', '.join(_openers)}")
    return _openers[scheme[1]]
