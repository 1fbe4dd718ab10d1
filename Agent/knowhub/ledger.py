"""The port to the store, and the KeywordTree behind it: every write is one operation, named for who did it.

>>> import tempfile
>>> fields = {"of": "knowledge-20260305-a1b2", "helpful": True, "scopes": ["public"], "owner": "user:ada"}
>>> with tempfile.TemporaryDirectory() as folder, TreeLedger(folder) as ledger:
...     with ledger.operation("feedback", "ada") as operation:
...         made = ledger.create([Record("feedback-20260305-c3d4", "It worked.", "", fields, "ada")])
...     ledger.read(made[0].id).fields["helpful"], [change.op for change in ledger.history(made[0].id)]
(True, ['kh:feedback:ada'])

A record is an info of the tree: `content`, `source` and `created_by` are its own, all else is `metadata["knowhub"]`.
What a record names (its types, its tags, its folder) are keywords besides, under ids made from the names, so that two
processes cannot make two of one. They serve people who look into the tree; no right depends on a link.
"""

import contextlib
import errno
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from ..keyword_tree import (
    Change,
    ConflictError,
    DuplicateIdError,
    Info,
    InvalidInputError,
    KeywordTree,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    VersionConflictError,
)
from .schemas import KnowHubError, Record, kind_of, not_found

__all__ = ["OWN", "Entry", "Ledger", "TreeLedger", "record_of"]

OWN = "knowhub"
"""The key of an info's metadata that all of ours stands under."""

ATTEMPTS = 8
"""So often an operation is begun anew where another one was quicker."""

_PAGE = 1_000  # infos read at once
_T = TypeVar("_T")


@dataclass(slots=True)
class Entry:
    """One operation of the log."""

    operation_id: str
    """What `undo` takes."""
    op: str
    """`kh:<verb>:<principal>`, or what somebody else wrote."""
    timestamp: float
    """Seconds since the epoch, UTC."""
    seq: int
    """Its number in the log."""
    before: list[Record]
    """The changed records as they were."""
    after: list[Record]
    """The changed records as they became."""

    @property
    def verb(self) -> str:
        """What was done."""
        parts = self.op.split(":", 2)
        return parts[1] if len(parts) == 3 and parts[0] == "kh" else self.op

    @property
    def principal(self) -> str:
        """Who did it; "" where it was not done through a hub."""
        parts = self.op.split(":", 2)
        return parts[2] if len(parts) == 3 and parts[0] == "kh" else ""


class Ledger(Protocol):
    """What a hub asks of a store. Errors are `KnowHubError`s; nothing was written then, but for `outcome-unknown`."""

    def create(self, records: Sequence[Record]) -> list[Record]:
        """Store new records, all or none, and return them as they were stored; an id in use is `DuplicateIdError`."""

    def update(self, record: Record, version: int) -> Record:
        """Store a record's content, source and fields, if it still has this version: else `VersionConflictError`."""

    def delete(self, id: str, version: int) -> Record:
        """Hide a record if it still has this version, and return it as it became."""

    def read(self, id: str) -> Record | None:
        """Return a record, or None."""

    def pages(self) -> Iterator[list[Record]]:
        """Yield all records, page by page, in any order."""

    def operation(self, verb: str, principal: str) -> contextlib.AbstractContextManager[Any]:
        """Put all writes of a block into one operation; what the block is given has its `id`."""

    def history(self, id: str | None = None, limit: int = 200) -> list[Entry]:
        """Return the newest operations, of one record or of all."""

    def operations_before(self, seq: int | None, limit: int) -> list[Entry]:
        """Return the operations just before a number, at most so many, newest first; None is the end."""

    def find_operation(self, operation_id: str) -> Entry | None:
        """Return an operation, or None."""

    def undo(self, operation_id: str) -> None:
        """Put back what an operation changed, within the operation that is open."""

    def refresh(self) -> None:
        """Take in what others wrote."""


_SHARED = (("scopes", list), ("owner", str))
_FORMS: Mapping[str, Sequence[tuple[str, type | tuple[type, ...]]]] = {
    "knowledge": (
        *(*_SHARED, ("task", str), ("types", list), ("tags", dict), ("resource_ids", list), ("message_id", str)),
        *(("source", dict), ("score", int), ("confidence", (int, float))),
    ),
    "feedback": (*_SHARED, ("of", str), ("helpful", bool)),
    "proposal": (*_SHARED, ("of", str), ("version", int), ("feedback", str), ("why", str), ("state", str)),
    "resource": (*_SHARED, ("content_type", str), ("metadata", dict)),
    "trace": (*_SHARED, ("goals", list)),
}
"""What a record of each kind has at least: kind → name and type of a field."""


def record_of(info: Info) -> Record | None:
    """Return the record that an info holds; None for what no hub wrote, whatever its id is: the tree is open."""
    own = info.metadata.get(OWN)
    form = _FORMS.get(kind_of(info.id))
    if form is None or not isinstance(own, dict) or not all(isinstance(own.get(name), kind) for name, kind in form):
        return None
    made = Record(info.id, info.content, info.source, own, info.created_by, info.version)
    made.created_at, made.updated_at, made.deleted = info.created_at, info.updated_at, info.deleted
    return made


class TreeLedger:
    """A ledger in a folder; a context manager, safe for many threads and processes.

    Args:
        folder: Holds the tree.
        options: For `KeywordTree`: a clock, say.

    Cost: opening reads all; a write is one sync, and several at once share one.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        with _told():
            self.tree = KeywordTree(str(folder), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the tree."""
        self.tree.Close()

    # -- writing --

    @contextlib.contextmanager
    def operation(self, verb: str, principal: str) -> Iterator[Any]:
        """Put all writes of a block into one line of the log."""
        with _told(), self.tree.Operation(f"kh:{verb}:{principal}") as operation:
            yield operation

    def create(self, records: Sequence[Record]) -> list[Record]:
        """Store new records, with their links; within an operation, see `attempt`."""
        specs = []
        for record in records:
            ids = [self._keyword(path, record.created_by) for path in _places(record)]
            spec = {"id": record.id, "content": record.content, "source": record.source, "keyword_ids": ids}
            specs.append({**spec, "metadata": {OWN: record.fields}, "created_by": record.created_by})
        with _told():
            made = self.tree.BatchCreateInfos(specs)
        return [found for info in made if (found := record_of(info)) is not None]

    def update(self, record: Record, version: int) -> Record:
        """Store a record's new state, if it still has this version."""
        with _told():
            before = self.read(record.id)
            patch = {"content": record.content, "source": record.source, "metadata": {OWN: record.fields}}
            info = self.tree.UpdateInfo(record.id, patch, version=version)
            if before is not None:
                self._relink(before, record)
        found = record_of(info)
        assert found is not None
        return found

    def delete(self, id: str, version: int) -> Record:
        """Hide a record, undoably."""
        with _told():
            info = self.tree.GetInfo(id)
            found = record_of(info) if info is not None else None
            if found is None:
                raise not_found()
            if found.version != version:
                raise VersionConflictError(id, version, found.version)
            # A write that changes nothing would not notice who was quicker: the mark is a change.
            self.tree.UpdateInfo(id, {"metadata": {OWN: {**found.fields, "gone": True}}}, version=version)
            self.tree.DeleteInfo(id)
        found.version, found.deleted = version + 2, True
        return found

    def _relink(self, before: Record, after: Record) -> None:
        old, new = _places(before), _places(after)
        for path in new:
            if path not in old:
                self.tree.LinkInfo(after.id, self._keyword(path, after.created_by), created_by=after.created_by)
        for path in old:
            node = self.tree.GetKeyword(_keyword_id(path)) if path not in new else None
            if node is not None:
                self.tree.UnlinkInfo(after.id, node.id)

    def _keyword(self, path: tuple[str, ...], created_by: str) -> str:
        """Return the id of a keyword, which is made where it is not there, and all above it."""
        id = _keyword_id(path)
        node = self.tree.GetKeyword(id)  # where a person merged it into another, it leads there
        if node is not None:
            return node.id
        parent = self._keyword(path[:-1], created_by) if len(path) > 1 else "root"
        spec = {"id": id, "name": path[-1], "parent_id": parent, "llm_auto_place": False, "created_by": created_by}
        self.tree.BatchCreateKeywords([spec])
        return id

    def undo(self, operation_id: str) -> None:
        """Put back what an operation changed, within the operation that is open."""
        with _told():
            self.tree.Undo(operation_id)

    def forget(self) -> None:
        """Drop keywords of ours on which nothing hangs any more, and all history.  Cost: reads and writes all."""
        with _told():
            for node in reversed(list(self.tree.Walk())):  # what is beneath comes before what is above
                is_bare = node.id.startswith(_KEYWORDS) and not node.aliases
                if is_bare and not self.tree.GetChildren(node.id) and not self.tree.GetInfosOfKeyword(node.id, size=1):
                    self.tree.DeleteKeyword(node.id)
            self.tree.CompactStorage(keep_history=False)

    # -- reading --

    def read(self, id: str) -> Record | None:
        """Return a record.  Cost: decodes one row; above 4 KiB one read of the disk."""
        info = self.tree.GetInfo(id)
        return None if info is None else record_of(info)

    def pages(self) -> Iterator[list[Record]]:
        """Yield all records."""
        page = 0
        while infos := self.tree.ListInfos(page, _PAGE):
            yield [found for info in infos if (found := record_of(info)) is not None]
            page += 1

    def odd_ids(self) -> list[str]:
        """Return the ids of infos that are called like records and are none.  Cost: reads all."""
        page, found = 0, list[str]()
        while infos := self.tree.ListInfos(page, _PAGE):
            found += [info.id for info in infos if kind_of(info.id) and record_of(info) is None]
            page += 1
        return found

    def history(self, id: str | None = None, limit: int = 200) -> list[Entry]:
        """Return the newest operations.  Cost: reads the log backwards."""
        with _told():
            return [_entry(change) for change in self.tree.History(id, limit=limit)]

    def operations_before(self, seq: int | None, limit: int) -> list[Entry]:
        """Return the operations whose numbers come just before one, at most so many, newest first; None is the end.

        Cost: reads the log backwards to the first of them, and decodes only these.
        """
        with _told():
            newest = self.tree.History(limit=1)
            end = newest[0].seq + 1 if newest else 0
            end = end if seq is None else min(seq, end)
            changes = self.tree.Changes(max(0, end - 1 - limit))
            return [_entry(change) for change in itertools.takewhile(lambda change: change.seq < end, changes)][::-1]

    def find_operation(self, operation_id: str) -> Entry | None:
        """Return an operation.  Cost: reads the log backwards to it."""
        limit = 64
        while True:  # the newest ones are asked for, nearly always
            with _told():
                changes = self.tree.History(limit=limit)
            found = next((change for change in changes if change.operation_id == operation_id), None)
            if found is not None or len(changes) < limit:
                return None if found is None else _entry(found)
            limit *= 8

    def refresh(self) -> None:
        """Take in what others wrote."""
        with _told():
            self.tree.Refresh()


def attempt(write: Callable[[], _T]) -> _T:
    """Run a block with an operation in it; where two made the same keyword at once, the later one begins anew."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return write()
        except DuplicateIdError as error:
            if not error.id.startswith(_KEYWORDS) or not left:
                raise
    raise AssertionError("the last attempt returns or raises")


_KEYWORDS = "kh-"


def _keyword_id(path: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join(path).encode()).hexdigest()[:20]
    return f"{_KEYWORDS}{digest}"


def _places(record: Record) -> list[tuple[str, ...]]:
    """Return the keywords that a record hangs on, as paths."""
    if record.kind == "knowledge":
        types = [("types", str(name)) for name in _list(record.fields.get("types"))]
        tags = record.fields.get("tags")
        named = tags.items() if isinstance(tags, Mapping) else ()
        return list(dict.fromkeys([*types, *(("tags", str(key), str(value)) for key, value in named)]))
    if record.kind == "resource":
        return [("resources", *record.id.split("/")[1:-1])]
    return []


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _entry(change: Change) -> Entry:
    sides = [
        [found for record in records if isinstance(record, Info) and (found := record_of(record)) is not None]
        for records in (change.before, change.after)
    ]
    return Entry(change.operation_id, change.op, change.timestamp, change.seq, sides[0], sides[1])


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell the store's errors in the hub's words; conflicts of versions and ids go to whoever can try again."""
    try:
        yield
    except (VersionConflictError, DuplicateIdError):
        raise
    except ConflictError as error:
        raise KnowHubError("conflict", "later changes stand in the way: undo these first") from error
    except NotFoundError as error:
        raise not_found() from error
    except InvalidInputError as error:
        raise KnowHubError("invalid", "the store refuses it: it holds what cannot be stored") from error
    except StoreCorruptError as error:
        raise KnowHubError("store-damaged", "the store is damaged: look with `knowhub doctor`") from error
    except StoreError as error:
        if error.outcome_unknown:
            raise KnowHubError(
                "outcome-unknown", "the disk failed while it was written: look before you retry"
            ) from error
        raise KnowHubError("disk-full", f"the disk refuses the write ({_why(error)}); nothing was changed") from error


def _why(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return errno.errorcode.get(cause.errno, "?")
        cause = cause.__cause__ or cause.__context__
    return "no reason given"
