"""The requirements of a shared tree on the tables of its log; an implementation of them is a `Rows`.

    batch      (tree, after)        the log: lines after + 1 … upto, with the checksum of the last
    state      (tree, seq, part)    all rows at one operation, so that opening need not read the whole log
    mark       (tree, seq)          shows that a state is whole
    snapshot   (tree, name)         a name for an operation

The key of a batch is what it follows, so at most one can follow a point. That, and nothing else, is what keeps writers
on many machines apart: see `Rows.append`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from ..keyword_tree import StoreError
from .port import StatePart


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


class Span(NamedTuple):
    """Some bytes of a batch's lines, or of a state's part."""

    key: int
    """Of the batch; ~seq of a state."""
    part: int
    """Of the state; 0 in a batch."""
    start: int
    """The first byte."""
    length: int
    """How many."""


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


class Rows(Protocol):
    """Tables in which the logs of many trees lie.

    Reading may be tried again, so an implementation does, as long as its patience lasts; then, or where the server
    cannot be used at all, it raises StoreError. What changes the log is tried once: it raises UnansweredError where it
    may have been carried out, NotSentError where it was not, another StoreError where the server refused it.
    """

    patience: float
    """Seconds for which something that can be tried again is."""

    def log_id(self, tree_id: str) -> str | None:
        """Return what distinguishes this log from another one that had the name before; None where there is none."""

    def is_readonly(self) -> bool:
        """Tell whether the server takes no writes now."""

    def create(self, tree_id: str, log_id: str, batches: Iterable[Batch]) -> bool:
        """Begin a log, if there is none; return False where another writer was quicker.

        A second try with the same `log_id` that finds the first one's work returns True.
        """

    def read(self, tree_id: str, after: int, known: int, limit: int, until: float | None = None) -> list[Batch]:
        """Return the first batches with `after` or a larger key, in order; without the lines of the one at `known`.

        Args:
            tree_id: the tree.
            after: where to begin.
            known: a key whose lines the caller has; -1 for none.
            limit: how many at most; fewer come only where there are no more.
            until: when to give up, by `time.monotonic()`; None is as long as patience lasts.
        """

    def read_back(self, tree_id: str, below: int, limit: int, holding: bytes = b"") -> list[Batch]:
        """Return the last batches with keys below, newest first: those that may hold these bytes."""

    def read_spans(self, tree_id: str, spans: Sequence[Span]) -> list[bytes | None]:
        """Return some bytes of batches and states, in the order of the spans; None for what is not there any more.

        Cost: a few round trips, however many spans.
        """

    def append(self, tree_id: str, behind: tuple[int, bytes], batch: Batch, yields: bool = False) -> bool:
        """Put a batch behind the one with this key and checksum; return False where that, or the place, is gone.

        One try, all or nothing, durable. A second one with the same batch cannot get in beside the first: it waits
        until that is decided. One that `yields` also returns False while another
        writer has its turn.
        """

    def settle(self, tree_id: str) -> None:
        """Return when what is visible now is as durable as what `append` acknowledges.  One try."""

    def replace(self, tree_id: str, behind: tuple[int, bytes], batches: Sequence[Batch]) -> bool:
        """Put batches behind that one, as `append` does, and take all that lies before them away.

        States go with it, but for those that snapshots need.

        Raises:
            UnkeptError: a snapshot has no full state.
        """

    def queue(self, tree_id: str, after: int, limit: int) -> AbstractContextManager[list[Batch] | None]:
        """Wait for this writer's turn, and give what `read` does then; what this thread does within happens in one go.

        Turns go by who came first, and make writers fair, not right: where the turn does not come within a second, or
        is lost since the writer was stopped for one, the block goes on without, and is given None.
        """

    def hold(self, tree_id: str, seconds: float) -> None:
        """Keep the turn that this thread has for so long, also after its block; no one else has to end it."""

    def still(self) -> AbstractContextManager[object]:
        """Let this thread read the tables as they are at one moment, where that can be had."""

    def marks(self, tree_id: str) -> list[Mark]:
        """Return the marks, newest first."""

    def is_whole(self, tree_id: str, seq: int) -> bool:
        """Tell whether a state's parts are all there, and undamaged."""

    def read_parts(self, tree_id: str, seq: int, count: int) -> Iterator[StatePart]:
        """Yield the parts of a state, in order."""

    def write_state(self, tree_id: str, mark: Mark, parts: Iterable[StatePart]) -> bool:
        """Keep a state, all or nothing; return False where there is one, or the log has no such operation (any more).

        `parts` and `size` of the mark are counted here.
        """

    def drop_states(self, tree_id: str, seqs: Iterable[int]) -> None:
        """Take the states at these operations away."""

    def bytes_since(self, tree_id: str, after: int) -> int:
        """Return how many bytes of lines lie behind the batch with this key; -1 takes all."""

    def add_snapshot(self, tree_id: str, name: str, seq: int, behind: tuple[int, bytes]) -> bool:
        """Keep a name for an operation, with which that batch ends; return False where the name is taken.

        Raises:
            StoreError: the batch is not there any more.
        """

    def snapshots(self, tree_id: str) -> dict[str, int]:
        """Return the operation of each snapshot, by name."""

    def sizes(self, tree_id: str) -> dict[str, int]:
        """Return how many bytes lie in each table for a tree."""

    def find_news(self, known: Sequence[tuple[str, int, bytes]]) -> list[int]:
        """Return the indexes of the logs (tree, key and checksum of the last batch that is known) that have changed."""

    def trees(self) -> list[str]:
        """Return the ids of all trees, in order."""

    def remove(self, tree_id: str) -> bool:
        """Take a tree away, and all that belongs to it; return False where there is none."""
