"""The port to the store, and the KeywordTree behind it: every write is one operation, named for who did it.

>>> import tempfile
>>> fields = {"of": "knowledge-20260305-a1b2", "helpful": True, "scopes": ["public"], "owner": "user:ada"}
>>> with tempfile.TemporaryDirectory() as folder, TreeLedger(folder) as ledger:
...     with ledger.operation("feedback", "ada") as operation:
...         made = ledger.create([Record("feedback-20260305-c3d4", "It worked.", "", fields, "ada")])
...     ledger.read(made[0].id).fields["helpful"]
True

A record is an info of the tree: `content`, `source` and `created_by` are its own, all else is `metadata["knowhub"]`.
What a record names (its types, its tags, its folder) are keywords besides, under ids made from the names, so that two
processes cannot make two of one. They serve people who look into the tree; no right depends on a link.
"""

import contextlib
import errno
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, NotRequired, TypeAlias, TypeVar

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from ..keyword_tree import (
    ConflictError,
    DuplicateIdError,
    Info,
    InvalidInputError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    VersionConflictError,
)
from ..store.addresses import open_tree
from ..store.log_follower import all_infos
from .records import KnowHubError, Record, kind_of, not_found

OWN = "knowhub"
"""The key of an info's metadata that all of ours stands under."""

_KEPT = ("scopes", "owner", "of")  # of a deleted record


_OWN = {"scopes": list[str], "owner": str}
_KNOWLEDGE = {"task": str, "types": list[str], "tags": dict, "resource_ids": list[str], "message_id": str}
_WORTH = {"source": dict, "score": int, "confidence": float, "judged": NotRequired[dict[str, Any]]}
_FORMS: Mapping[str, Mapping[str, Any]] = {
    "knowledge": _KNOWLEDGE | _WORTH,
    "feedback": {"of": str, "helpful": bool},
    "proposal": {"of": str, "version": int, "feedback": str, "why": str, "state": str},
    "resource": {"content_type": str, "metadata": dict},
    "trace": {"goals": list},
    "access": {"of": str, "outcome": str},
    "call": {},
    "gone": {},  # of what was deleted
}
"""Fields of each kind of record, besides `_OWN`: kind → name and type of a field."""

_strict: Any = with_config(ConfigDict(strict=True))
_is_ours = {
    kind: TypeAdapter(_strict(TypedDict(kind, {**_OWN, **form}))).validator.isinstance_python  # type: ignore[operator]
    for kind, form in _FORMS.items()
}


def record_of(info: Info) -> Record | None:
    """Return the record that an info holds; None for another program's info, whatever its id is: the tree is open."""
    own = info.metadata.get(OWN)
    if not isinstance(own, dict):
        return None
    is_gone = own.get("gone") is True
    is_ours = _is_ours.get("gone" if is_gone else kind_of(info.id))
    if is_ours is None or not is_ours(own):
        return None
    stamps = info.version, info.created_at, info.updated_at, info.deleted or is_gone
    return Record(info.id, info.content, info.source, own, info.created_by, *stamps)


_T = TypeVar("_T")


def attempt(work: Callable[..., _T], *given: Any) -> _T | Exception:
    """Return what a function returns, or its error."""
    try:
        return work(*given)
    except Exception as error:
        return error


def result_of(outcome: Any) -> Any:
    """Return what `attempt` returned; raise it where it is an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


Added: TypeAlias = tuple[Record, str, str, str]
"""A new record, and of its operation the verb, the principal and the mark."""


class TreeLedger(contextlib.AbstractContextManager["TreeLedger"]):
    """A ledger in a tree; a context manager, safe for many threads and processes.

    Args:
        place: The tree's folder, or its address.
        options: For `KeywordTree`: a clock, say.

    Cost: opening reads all; a write is one sync, and several at once share one.
    """

    def __init__(self, place: str | Path, **options: Any) -> None:
        with _told():
            self.tree = open_tree(place, **options)

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the tree."""
        self.tree.Close()

    # -- writing --

    @contextlib.contextmanager
    def operation(self, verb: str, principal: str, mark: str = "") -> Iterator[Any]:
        """Put all writes of a block into one line of the log; a mark is for `Journal.marked`."""
        with _told(), self.tree.Operation(_name_of(verb, principal, mark)) as operation:
            yield operation

    def add(self, added: Sequence[Added]) -> list[tuple[str, list[Record]] | Exception | None]:
        """Store new records by one sync, each as an operation of its own; return its id and the record as it became.

        An error stands for what failed alone. None, and nothing done, is for what is more than one new line of the
        log: a keyword is missing, or merged into another, or the id is in use.

        Cost: an eighth of a block's, beside the sync.
        """
        outcomes = list[tuple[str, list[Record]] | Exception | None]()
        with _told():
            made = self.tree.CreateInfosApart([_spec_of(*each) for each in added])
        for (record, *_), outcome in zip(added, made, strict=True):
            if isinstance(outcome, Exception):
                outcomes.append(None if isinstance(outcome, _REFUSED) else attempt(_fail, outcome))
            else:
                operation_id, info = outcome
                record.created_at = record.updated_at = info.created_at
                outcomes.append((operation_id, [record]))
        return outcomes

    def create(self, records: Sequence[Record]) -> list[Record]:
        """Store new records, with their links; within an operation.

        A deleted record keeps its id for its maker, who may fill it again.

        Raises:
            DuplicateIdError: An id is in use, or is that of another principal's deleted record.
        """
        found, specs = dict[str, Record](), list[dict[str, Any]]()
        for record in records:
            there = self.stored(record.id)
            if there is not None and there.deleted and there.created_by == record.created_by:
                found[record.id] = self.update(replace(record, version=there.version))
                continue
            ids = [self._keyword(path, record.created_by) for path in _places(record)]
            spec = {"id": record.id, "content": record.content, "source": record.source, "keyword_ids": ids}
            specs.append({**spec, "metadata": {OWN: record.fields}, "created_by": record.created_by})
        made = self.tree.BatchCreateInfos(specs) if specs else []
        found |= {stored.id: stored for info in made if (stored := record_of(info)) is not None}
        return [found[record.id] for record in records]

    def update(self, record: Record) -> Record:
        """Store a record's new state, if the version that it names is still the newest; within an operation."""
        before = self.stored(record.id)
        patch = {"content": record.content, "source": record.source, "metadata": {OWN: record.fields}}
        info = self.tree.UpdateInfo(record.id, patch, version=record.version)
        if before is not None:
            self._relink(before, record)
        changed = record_of(info)
        assert changed is not None  # another program's info it is not
        return changed

    def put(self, record: Record, old: Record | None) -> list[Record]:
        """Store a new record, or a record's new state in the place of one that was read."""
        return self.create([record]) if old is None else [self.update(replace(record, version=old.version))]

    def delete(self, id: str, version: int) -> Record:
        """Hide a record, undoably: its id, owner and scopes stay, so that no one else takes it."""
        there = self.read(id)
        if there is None:
            raise not_found()
        kept = {name: there.fields[name] for name in _KEPT if name in there.fields}
        return self.update(replace(there, content="", source="", fields={**kept, "gone": True}, version=version))

    def drop(self, id: str) -> Record:
        """Delete what nothing refers to any more, its id included: cases and proposals of what is gone."""
        there = self.stored(id)
        if there is None:
            raise not_found()
        self.tree.DeleteInfo(id)
        there.version, there.deleted = there.version + 1, True
        return there

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

    def forget(self) -> None:
        """Drop keywords of ours without infos or children, and all history.  Cost: reads and writes all."""
        with _told():
            for node in reversed(list(self.tree.Walk())):  # what is below comes before what is above
                is_bare = node.id.startswith(KEYWORDS) and not node.aliases
                if is_bare and not self.tree.GetChildren(node.id) and not self.tree.GetInfosOfKeyword(node.id, size=1):
                    self.tree.DeleteKeyword(node.id)
            self.tree.CompactStorage(keep_history=False)

    # -- reading --

    def read(self, id: str) -> Record | None:
        """Return a record.  Cost: decodes one row; above 4 KiB one read of the disk."""
        found = self.stored(id)
        return None if found is None or found.deleted else found

    def stored(self, id: str) -> Record | None:
        """Return a record, also the rest of a deleted one."""
        info = self.tree.GetInfo(id)
        return None if info is None else record_of(info)

    def odd_ids(self) -> list[str]:
        """Return the ids of infos that are called like records and are none.  Cost: reads all."""
        return [info.id for info in all_infos(self.tree) if kind_of(info.id) and record_of(info) is None]


_REFUSED = (NotFoundError, DuplicateIdError, InvalidInputError)
"""Errors of what is more than one new line of the log."""


def _spec_of(record: Record, verb: str, principal: str, mark: str) -> dict[str, Any]:
    """Return the arguments of `KeywordTree.CreateInfo` for a new record."""
    said = {"content": record.content, "source": record.source, "metadata": {OWN: record.fields}, "id": record.id}
    said |= {"keyword_ids": [*map(_keyword_id, _places(record))], "created_by": record.created_by}
    return said | {"operation": _name_of(verb, principal, mark)}


def _name_of(verb: str, principal: str, mark: str) -> str:
    return f"kh:{verb}:{principal} {mark}".rstrip()


KEYWORDS = "kh-"
"""How the ids of our keywords begin."""


@functools.lru_cache(1 << 10)  # most entries have one of a few types
def _keyword_id(path: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join(path).encode()).hexdigest()[:20]
    return f"{KEYWORDS}{digest}"


def _places(record: Record) -> list[tuple[str, ...]]:
    """Return the keywords that a record is linked to, as paths."""
    if record.fields.get("gone"):
        return []
    if record.kind == "knowledge":
        types = [("types", name) for name in record.fields["types"]]
        tags = [("tags", key, str(value)) for key, value in record.fields["tags"].items()]
        return list(dict.fromkeys([*types, *tags]))
    if record.kind == "resource":
        return [("resources", *record.id.split("/")[1:-1])]
    return []


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turn the store's errors into the hub's; conflicts of versions and ids go to the caller, who can try again."""
    try:
        yield
    except (VersionConflictError, DuplicateIdError):
        raise
    except ConflictError as error:
        if isinstance(error.__cause__, (VersionConflictError, DuplicateIdError)):  # found as the block was tried again
            raise error.__cause__ from None
        raise KnowHubError("conflict", "later changes stand in the way: undo these first") from error
    except NotFoundError as error:
        raise not_found() from error
    except InvalidInputError as error:
        raise KnowHubError("invalid", "the store refuses it: it holds what cannot be stored") from error
    except StoreCorruptError as error:
        said = "the store is damaged, or has lost what was read of it: look with `knowhub doctor`, and start again"
        raise KnowHubError("store-damaged", said) from error
    except StoreError as error:
        if error.outcome_unknown:
            raise KnowHubError(
                "outcome-unknown", "the disk failed while it was written: look before you retry"
            ) from error
        why = _why(error)
        if not why:  # no disk of this machine: a database
            raise KnowHubError(
                "busy", "the store does not take it now; nothing was changed", retry_after_s=5.0
            ) from error
        raise KnowHubError("disk-full", f"the disk refuses the write ({why}); nothing was changed") from error


@_told()
def _fail(error: BaseException) -> NoReturn:
    raise error


def _why(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return errno.errorcode.get(cause.errno, "?")
        cause = cause.__cause__ or cause.__context__
    return ""
