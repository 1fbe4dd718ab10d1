"""One string that names a tree on a server: `postgresql://agents@db.internal/agents#u42`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..keyword_tree import InvalidInputError, KeywordTree
from ..store.addresses import is_address
from .shared_log import SharedLog

__all__ = ["Address", "cache_folder", "is_address", "is_there", "open_shared", "parse_address"]


class Address(NamedTuple):
    """Where a tree is."""

    dsn: str
    """The server."""
    tree_id: str
    """The tree."""

    def __str__(self) -> str:
        """Return what may be shown: without user, password and server."""
        return f"postgresql://…#{self.tree_id}"


def parse_address(text: str) -> Address:
    """Return the parts of an address.

    >>> parse_address("postgresql://ada:secret@db/agents#u42").tree_id
    'u42'

    Raises:
        InvalidInputError: it names no tree, or is none that libpq reads; what it says of the server is not shown.
    """
    dsn, mark, tree_id = text.partition("#")
    if not is_address(text) or not mark or not tree_id:
        raise InvalidInputError("an address of a shared tree ends with # and its name: postgresql://host/database#u42")
    SharedLog(dsn).tree(tree_id)  # which refuse what cannot be used
    return Address(dsn, tree_id)


def cache_folder(address: Address) -> Path:
    """Return the folder for what is derived of a tree, below XDG_CACHE_HOME or ~/.cache; it may be lost."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "keyword_tree", hashlib.sha256("#".join(address).encode()).hexdigest()[:32])


def open_shared(text: str, **options: Any) -> KeywordTree:
    """Open the tree at an address, over a log of its own, whose connections go with the tree.

    Args:
        text: The address.
        options: Those of `KeywordTree`.
    """
    address = parse_address(text)
    store = SharedLog(address.dsn).tree(address.tree_id)
    return KeywordTree(str(cache_folder(address)), store=store, **options)


def is_there(text: str) -> bool:
    """Tell whether there is a tree at an address."""
    address = parse_address(text)
    with SharedLog(address.dsn) as log:
        return address.tree_id in log.trees()
