"""The door: a log of many trees in PostgreSQL."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Self

from ..finding.embedder import Embedder
from ..keyword_tree import InvalidInputError, KeywordTree, NotFoundError, StoreError
from ..store.addresses import refuse_address
from . import port
from .connections import Pool
from .copying import copy_in, copy_out
from .reading import is_due, write_state
from .rows import MissingTablesError
from .store import Known, SharedStore
from .tables import PostgresRows, create_tables
from .vectors import SharedEmbedder, search_vectors

__all__ = ["SharedLog", "SharedTree"]

_ID_LIMIT = 1000  # bytes; an index holds up to 2,700


class SharedLog:
    """The trees of one database; one object for each process is enough, and any thread may use it.

    >>> log = SharedLog("host=db.example dbname=agents")
    >>> log
    <SharedLog 0 of 8 connections>
    >>> log.close()
    """

    def __init__(self, dsn: str = "", *, connections: int = 8, patience: float = 10.0, pooled: bool = False) -> None:
        """Connect to nothing yet.

        Args:
            dsn: as libpq reads it: `postgresql://user@host/db` or `host=… dbname=…`; what it leaves out comes from
                PGHOST and its like, a password from `~/.pgpass`. It stands in no error and no log.
            connections: how many at once, at most, from 2 on; a few serve thousands of trees.
            patience: seconds for which a statement whose answer was lost is tried again, on new connections.
            pooled: whether a pooler of transactions (PgBouncer, say) stands between: then nothing is prepared, and
                the session's isolation is checked, not set.

        Raises:
            InvalidInputError: an argument cannot be used.
        """
        if not isinstance(dsn, str):
            raise InvalidInputError(f"dsn must be a string, not {type(dsn).__name__}")
        if type(connections) is not int or connections < 2:  # writing a state takes one, reading for it another
            raise InvalidInputError(f"connections must be a whole number from 2 on: {connections!r}")
        if not isinstance(patience, (int, float)) or not 0.1 <= patience <= 3600:
            raise InvalidInputError(f"patience must be seconds, from 0.1 to 3600: {patience!r}")
        self._pool = Pool(dsn, connections, float(patience), bool(pooled))
        self._size = connections
        self._rows = PostgresRows(self._pool)
        self.counts: Counter[str] = Counter()
        """Of this object: `conflicts`, and `guesses` that were wrong; answers that did not come (`unanswered`), and how
        many of these writes were `resolved`, or stayed `unknown`."""

    def setup(self) -> None:
        """Make the tables, in the first schema of the search path; where they are, do nothing."""
        create_tables(self._pool)

    def prepare(self) -> None:
        """Make the tables, where they are not there: a role that may not make any needs no right to."""
        try:
            self.trees()
        except MissingTablesError:
            self.setup()

    def tree(self, tree_id: str) -> SharedTree:
        """Return the store of a tree, for `KeywordTree(…, store=…)`; a new one begins empty.

        Args:
            tree_id: 1 to 1,000 bytes of UTF-8, all of them visible.
        """
        opened = partial(SharedStore, self._rows, _check_id(tree_id), Known(), self.counts)
        return SharedTree(opened, partial(SharedEmbedder, self._pool, tree_id))

    def trees(self) -> list[str]:
        """Return the ids of all trees, in order."""
        return self._rows.trees()

    def last_operation(self, tree_id: str) -> int:
        """Return the number of a tree's last operation."""
        self._check_known(tree_id)
        last = self._rows.read_back(tree_id, 1 << 62, 1)
        return last[0].upto if last else 0

    def size_bytes(self, tree_id: str) -> int:
        """Return how many bytes of lines and states lie there for a tree."""
        self._check_known(tree_id)
        return sum(self._rows.sizes(tree_id).values())

    def snapshots(self, tree_id: str) -> list[str]:
        """Return the names of a tree's snapshots, the oldest first."""
        self._check_known(tree_id)
        return sorted(self._rows.snapshots(tree_id))

    def keep(self, tree_id: str, *, always: bool = False, vectors_in_memory: int = 1_000_000) -> bool:
        """Write the state of a tree, from which it opens faster; return whether one was written.

        It is where more was logged since the last one than that holds. Call it now and then, from cron say; anyone may,
        and nothing is lost where it is not called.

        Args:
            tree_id: the tree.
            always: write one wherever there is none at the last operation.
            vectors_in_memory: that each machine holds at most, of an index of the tree; a vector of 512 numbers takes
                2 KiB. Where the tree has more, they are made ready, and pgvector finds the nearest for all machines
                within a minute. Where it is not installed, or cannot be used, the log of warnings says so.

        Raises:
            InvalidInputError: `vectors_in_memory` is no whole number from 0 on.

        Cost: what opening the tree costs, and writing all its rows.
        """
        if type(vectors_in_memory) is not int or vectors_in_memory < 0:
            raise InvalidInputError(f"vectors_in_memory must be a whole number from 0 on: {vectors_in_memory!r}")
        self._check_known(tree_id)
        is_new = (always or is_due(self._rows, tree_id)) and write_state(self._rows, tree_id)
        search_vectors(self._pool, tree_id, vectors_in_memory)
        return is_new

    def follow(self, trees: Iterable[KeywordTree]) -> list[KeywordTree]:
        """Refresh those of these open trees that others have written to; return them.

        Cost: one statement for all, and a refresh of each that has changed.
        """
        stores = [(tree, port.store_of(tree)) for tree in trees]
        ours = [(tree, store) for tree, store in stores if isinstance(store, SharedStore)]
        if len(ours) < len(stores):
            raise InvalidInputError("only trees of a shared log can be followed")
        changed = [ours[index][0] for index in self._rows.find_news([store.known() for _, store in ours])]
        problem = None
        for tree in changed:
            try:
                tree.Refresh()
            except StoreError as error:  # of this one: the others go on
                problem = problem or error
        if problem is not None:
            raise problem
        return changed

    def remove(self, tree_id: str) -> None:
        """Remove a tree for good, with its snapshots; one that has it open gets an error at its next write or refresh.

        Raises:
            NotFoundError: there is none.
        """
        if not self._rows.remove(_check_id(tree_id)):
            raise _no_tree(tree_id)

    def copy_in(self, folder: str | os.PathLike[str], tree_id: str) -> int:
        """Make a tree of a folder's log, byte for byte; return the number of its last operation.

        What the folder has besides, snapshots and logs that a compaction set aside, stays there. A process that goes on
        writing into the folder writes into another tree.

        Raises:
            DuplicateIdError: there is a tree with this id.
            StoreCorruptError: the folder's log is damaged.

        Cost: reads the log, and writes it in one transaction.
        """
        refuse_address(folder, "what is copied")
        return copy_in(self._rows, folder, _check_id(tree_id))

    def copy_out(self, tree_id: str, folder: str | os.PathLike[str]) -> int:
        """Make a folder of a tree's log, byte for byte, which `KeywordTree` opens; return the last operation's number.

        Raises:
            InvalidInputError: the folder is there, and not empty.

        Cost: reads the log, writes it, and opens the folder once.
        """
        refuse_address(folder, "the copy's place")
        self._check_known(tree_id)
        return copy_out(self._rows, tree_id, folder)

    def close(self) -> None:
        """Close all connections; trees that are open can be read on, but for long contents."""
        self._pool.close()

    def _check_known(self, tree_id: str) -> None:
        if self._rows.log_id(_check_id(tree_id)) is None:
            raise _no_tree(tree_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedLog {self._pool.count()} of {self._size} connections>"


@dataclass(frozen=True)
class SharedTree:
    """One tree of a log: called, it makes the store for `KeywordTree(…, store=…)`."""

    opened: Callable[[], SharedStore]
    """Returns a store that has opened nothing yet."""
    embedder: Callable[[Embedder], SharedEmbedder]
    """Returns an embedder whose vectors are kept in the log, so that each text is embedded once for all machines."""

    def __call__(self) -> SharedStore:
        """Return a store that has opened nothing yet."""
        return self.opened()


def _no_tree(tree_id: str) -> NotFoundError:
    return NotFoundError("keyword", tree_id, f"no tree has the id {port.shorten(tree_id)}")


def _check_id(tree_id: str) -> str:
    if not isinstance(tree_id, str) or not 1 <= len(tree_id.encode("utf-8", "replace")) <= _ID_LIMIT:
        raise InvalidInputError(f"tree_id must be a string of 1 to {_ID_LIMIT:,} bytes: {port.shorten(tree_id)}")
    if any(unicodedata.category(char)[0] == "C" for char in tree_id):
        raise InvalidInputError(f"tree_id has characters that cannot be seen: {port.shorten(tree_id)}")
    return tree_id
