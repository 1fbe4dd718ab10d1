"""Operations of the adapters: try again where another process has written first, and undo the last one.

>>> import tempfile
>>> from keyword_tree import KeywordTree
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     done = LastOperations(tree)
...     with tree.Operation("add tea") as operation:
...         _ = tree.CreateKeyword("tea", "root")
...     done.note(operation.id)
...     undone, _ = done.undo()
...     undone == operation.id, tree.Search("tea").node
(True, None)
"""

import asyncio
import contextvars
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from ..base.forks import watch_forks
from ..formats.records import fit_name
from ..keyword_tree import DuplicateIdError, InvalidInputError, KeywordTree, NotFoundError, VersionConflictError

__all__ = ["Done", "InOrder", "LastOperations", "add_missing", "id_of", "try_again"]

ATTEMPTS = 20
"""At a change that another process has outrun."""

REMEMBERED = 1_000
"""Operations of which it is known who made them."""

OUTRUN = (DuplicateIdError, VersionConflictError, NotFoundError)
"""The end of a change that was planned on data that another process has changed since."""

_T = TypeVar("_T")


class Done(NamedTuple, Generic[_T]):
    """The result of a change."""

    result: _T
    """The result of the tool."""
    operation_id: str
    """For `Undo`; empty where nothing was written."""


def try_again(work: Callable[[], _T]) -> _T:
    """Return what `work` returns; where another process has written first, do it again, at most 20 times.

    Args:
        work: Reads the data, and changes it in one operation.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return work()
        except OUTRUN:
            continue
    return work()


def add_missing(
    tree: KeywordTree, chain: Sequence[tuple[str, str, dict[str, Any]]], author: str, keywords: dict[str, Any]
) -> str:
    """Return the last keyword of a chain, each under the one before; specs of what is missing join `keywords`.

    Args:
        tree: Where they are.
        chain: The id, name and metadata of each, from the top.
        author: Who makes them.
        keywords: Specs for `BatchCreateKeywords`, by id.
    """
    known = tree.GetKeyword(chain[-1][0])  # one that was merged leads to another
    parent_id = "root"
    for id, name, metadata in chain if known is None else ():
        above = tree.GetKeyword(id)
        if above is None:
            shown = fit_name(name if name.strip() and name.isprintable() else repr(name))
            spec = {"id": id, "name": shown, "parent_id": parent_id, "metadata": metadata, "created_by": author}
            keywords.setdefault(id, spec)
        parent_id = id if above is None else above.id
    return parent_id if known is None else known.id


def id_of(kind: str, value: object) -> str:
    """Return an id that follows from a value of JSON, so that two processes agree; its kind is in front."""
    return f"{kind}:{hashlib.sha256(json.dumps(value).encode()).hexdigest()[:40]}"


class InOrder:
    """Carries out calls in the order in which they were made, asynchronous ones in a thread, those that wait together.

    Args:
        carry_out: Takes the arguments of calls that waited together, in their order; returns a result for each, or the
            exception that it ended with.
    """

    def __init__(self, carry_out: Callable[[list[Any]], Sequence[Any]]) -> None:
        self._carry_out = carry_out
        self.renew_after_fork()
        watch_forks(self)

    def renew_after_fork(self) -> None:
        """Begin with nothing that waits: the thread that would carry it out is the parent's."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[Any, Future[Any]]] = []
        self._worker: int | None = None  # the thread that carries out what waits; 0 is one that is about to

    def call(self, argument: Any) -> Any:
        """Carry out a call, after those that wait."""
        done: Future[Any] = Future()
        with self._lock:
            waits = self._worker not in (None, threading.get_ident())  # not an embedder that uses the store itself
            if waits:
                self._waiting.append((argument, done))
        result = done.result() if waits else self._carry_out([argument])[0]
        if isinstance(result, BaseException):
            raise result
        return result

    async def acall(self, argument: Any) -> Any:
        """Carry out a call, after those that wait, in a thread."""
        done: Future[Any] = Future()
        with self._lock:
            self._waiting.append((argument, done))
            if self._worker is None:
                work = contextvars.copy_context().run
                asyncio.get_running_loop().run_in_executor(None, work, self._work)
                self._worker = 0
        return await asyncio.wrap_future(done)

    def _work(self) -> None:
        while True:
            with self._lock:
                calls, self._waiting = self._waiting, []
                self._worker = threading.get_ident() if calls else None
            if not calls:
                return
            try:
                results: Sequence[Any] = self._carry_out([argument for argument, _ in calls])
            except BaseException as error:  # of the interpreter's end, say: nobody may wait for ever
                results = [error] * len(calls)
            for (_, done), result in zip(calls, results, strict=True):
                if done.set_running_or_notify_cancel():
                    done.set_exception(result) if isinstance(result, BaseException) else done.set_result(result)


class LastOperations:
    """Remembers the newest 1,000 operations of an adapter, so that the last one can be undone without its id.

    Args:
        tree: Where they were made.
        author: Who undoes.

    Any number of threads may use it.
    """

    def __init__(self, tree: KeywordTree, author: str = "user") -> None:
        self._tree, self._author = tree, author
        self._lock = threading.Lock()
        self._owners: dict[str, str | None] = {}  # operation -> whose it is, the newest last

    def note(self, operation_id: str, owner: str | None = "") -> None:
        """Remember an operation as the last one of its owner: of a client, say; an empty id is none."""
        with self._lock:
            self._owners.pop(operation_id, None)
            if operation_id:
                self._owners[operation_id] = owner
            if len(self._owners) > REMEMBERED:
                del self._owners[next(iter(self._owners))]

    def undo(self, operation_id: str = "", owner: str | None = "") -> tuple[str, str]:
        """Undo an operation, or the last one of its owner; return its id and that of the operation which does it.

        Args:
            operation_id: Empty is the last one that was not undone.
            owner: Whose; None where that is not known, so that an id is needed.

        Raises:
            InvalidInputError: there is none, or it is not known whose.
            ConflictError: later changes depend on it.
            NotFoundError: no operation has this id.
        """
        with self._lock:
            if not operation_id and owner is None:
                raise InvalidInputError("without a session it is not known which change was yours: name an operation")
            own = (id for id, whose in reversed(self._owners.items()) if whose == owner)
            wanted = operation_id or next(own, "")
            if not wanted:
                raise InvalidInputError("nothing was changed here that could be undone; name an operation")
            undone_by = self._tree.Undo(wanted, self._author)
            self._owners.pop(wanted, None)
        return wanted, undone_by
