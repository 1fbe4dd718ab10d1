"""The errors, grouped by a caller's reaction; and the checks that raise them.

    ContextEngineError (KeywordTreeError)
    ├── InvalidUriError       (ValueError)       it is no URI: correct it
    ├── InvalidInputError     (ValueError)       another argument cannot be used: correct it
    ├── AccessDeniedError     (PermissionError)  it is another user's, whether it exists or not
    ├── NodeNotFoundError     (LookupError)      nothing is there
    ├── VersionConflictError  (ValueError)       another writer was quicker: read it again, and decide again
    ├── ConflictError         (ValueError)       what is there, or came later, stands in the way
    ├── ProviderDownError                        a model, or the index, cannot be asked now: try again later
    └── StoreError            (OSError)          the disk failed, or the store was closed
        └── StoreCorruptError                    the files hold what the engine cannot have written

Nothing was written when one of these is raised, but for a `StoreError` whose `is_committed` is true.
"""

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...base.checks import shorten
from ...keyword_tree import InvalidInputError as TreeInputError
from ...keyword_tree import KeywordTreeError
from ...memory.schemas import seconds_of


class ContextEngineError(KeywordTreeError):
    """Base of every error that the engine raises on purpose."""


class InvalidUriError(ContextEngineError, ValueError):
    """A text is no URI of the engine, or an id cannot be a part of one."""


class InvalidInputError(ContextEngineError, TreeInputError):
    """An argument cannot be used; the message names it and its value."""


class AccessDeniedError(ContextEngineError, PermissionError):
    """A URI lies outside the request's own two spaces."""


class NodeNotFoundError(ContextEngineError, LookupError):
    """There is no node, or it is gone."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"no node at {uri!r}")
        self.uri = uri


class VersionConflictError(ContextEngineError, ValueError):
    """A node has another version than the caller has seen, or was edited since."""

    def __init__(self, uri: str, seen: int, current: int) -> None:
        super().__init__(f"{uri!r} has version {current}, not {seen}" if seen != current else f"{uri!r} has changed")
        self.uri = uri
        self.seen = seen
        self.current = current


class ConflictError(ContextEngineError, ValueError):
    """Existing nodes or later commits are in conflict; `uris` and `commits` name them."""

    def __init__(self, message: str, uris: Sequence[str] = (), commits: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.uris = list(uris)
        self.commits = list(commits)


class StoreError(ContextEngineError, OSError):
    """The disk refused a read or a write.

    With `is_committed` true the change is in the journal and will be in the files as soon as the disk takes it: with
    the next write, or when the store is opened again.
    """

    def __init__(self, message: str, *, is_committed: bool = False) -> None:
        super().__init__(message)
        self.is_committed = is_committed


class StoreCorruptError(StoreError):
    """A file holds what the engine cannot have written; nothing was changed."""


class ProviderDownError(ContextEngineError):
    """A model or the index cannot be asked now: what needs it waits, and nothing counts it as a failure."""


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
    """Return a moment, given as a datetime or in seconds since the epoch, in seconds; it may be infinite."""
    if isinstance(value, datetime):
        value = seconds_of(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        with contextlib.suppress(OverflowError):
            return float(value)
    raise InvalidInputError(f"{name} must be seconds since the epoch or a datetime, not {shorten(value)}")
