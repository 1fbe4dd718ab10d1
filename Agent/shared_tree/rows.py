"""The rows of the tables as they are handed on, and what may go wrong with them."""

from __future__ import annotations

from typing import NamedTuple

from ..keyword_tree import StoreError


class UnansweredError(StoreError):
    """A statement went out and no answer came back: whether it was carried out is not known."""


class NotSentError(StoreError):
    """The log cannot be reached, or gave up before it did anything: nothing was done."""


class ReadOnlyError(StoreError):
    """The server only reads: it is a standby, or set so."""


class MissingTablesError(StoreError):
    """The tables are not there, or are older ones."""


class UnkeptError(StoreError):
    """A snapshot has no state of its own yet, so what it needs of the log cannot be taken away."""


class Batch(NamedTuple):
    """One commit group as it lies in the log."""

    after: int
    """The operation that it follows: its key."""
    upto: int
    """Its last operation."""
    crc: bytes
    """The checksum of its last line."""
    lines: bytes
    """Its lines; empty where they were not asked for, or lie in pieces."""
    pieces: str = ""
    """The id of the pieces in which a long one lies."""
    size: int = 0
    """Bytes of its lines, wherever they lie."""


class Mark(NamedTuple):
    """What vouches for a state."""

    seq: int
    """The operation at which the state is."""
    after: int
    """The key of the batch that ends with it."""
    crc: bytes
    """The checksum of that operation's line."""
    next_ordinal: int
    """The ordinal that the next record takes."""
    parts: int
    """How many parts the state has."""
    size: int
    """Bytes of its rows."""
    is_full: bool = False
    """Whether long contents are in it, too, so that it needs no log."""
