"""What `MemoryStore` writes of an info, in its metadata. Metadata is anybody's: another form counts as not written."""

from collections.abc import Mapping
from typing import Any

from ..keyword_tree import Info

__all__ = ["MEMORY_KEY", "memory_fields", "sources_of", "strings_in", "superseded_ids"]

MEMORY_KEY = "memory"
"""The key of an info's metadata that a memory's own fields are under; see `store`."""


def memory_fields(info: Info) -> Mapping[str, Any]:
    """Return what `MemoryStore` wrote of an info; nothing where something else wrote it."""
    own = info.metadata.get(MEMORY_KEY)
    return own if isinstance(own, Mapping) else _NOTHING


def sources_of(info: Info) -> tuple[str, ...]:
    """Return where a memory is from: its source, and those from which it was remembered again."""
    others = strings_in(memory_fields(info).get("sources"))
    return (info.source, *(source for source in dict.fromkeys(others) if source != info.source))


def superseded_ids(info: Info) -> tuple[str, ...]:
    """Return the infos that an info says it supersedes, itself not among them."""
    olds = memory_fields(info).get("supersedes")
    return tuple(id for id in strings_in([olds] if isinstance(olds, str) else olds) if id != info.id)


def strings_in(value: object) -> tuple[str, ...]:
    """Return the strings of a list; none where it is none."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


_NOTHING: Mapping[str, Any] = {}
