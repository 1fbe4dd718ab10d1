"""What all services share: the parts of a hub, one way to write, one way to find a record, what is refused."""

import contextlib
import hashlib
import inspect
import secrets
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

from pydantic import BaseModel

from ...base.checks import check_methods, shorten
from ...base.secrets_in_text import secret_shape
from ...finding.embedder import Embedder, Meaning, meaning_of
from ...keyword_tree import ClosedError, DuplicateIdError, InvalidInputError, LLMClient, VersionConflictError
from ..catalog import Catalog, Entry
from ..files import open_files
from ..ledger import TreeLedger, attempt, result_of
from ..records import OWNER_SCOPE, Json, KnowHubError, Record, Shares, invalid, iso_time, kind_of, not_found
from ..routing import Models
from ..schemas import KnowledgeIn, KnowledgeLine, PageQuery, ResourceIn, parse
from ..tokens import Token, Tokens, check_plain, need, sees, sees_said
from ..vault import KeyRing, Vault

TARGETS = ("allowed_hosts", "allowed_programs")
"""Of a resource's metadata: where its secret may go."""

CALL = "call"
"""Kind and verb of what keeps an Idempotency-Key whose call changed nothing."""

ACCESS = "access"
"""Kind and verb of what is kept of a look at a secret."""

ATTEMPTS = 8
"""So often an operation is begun again where another one was quicker."""

KEY_DAYS = 8
"""So many days, today's included, an Idempotency-Key is known by the id that it made, where a purge forgot the call."""


_Scoped = TypeVar("_Scoped", KnowledgeIn, KnowledgeLine, ResourceIn)
_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True)
class Quota:
    """The limits of one principal; 0 is no limit."""

    entries: int = 0
    """Entries and resources."""
    size: int = 0
    """Bytes of all texts: of the cases and wishes that it keeps of others' entries, too."""


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a public method that refuses a closed hub, and arguments of other types than it names."""
    named = [(each.name, each.annotation) for each in inspect.signature(method).parameters.values()]
    kinds = {name: tuple(get_origin(kind) or kind for kind in get_args(said) or [said]) for name, said in named[1:]}

    @wraps(method)
    def call(hub: "Store", *given: Any, **more: Any) -> Any:
        if hub.is_closed:
            raise ClosedError("the hub is closed: open it again")
        for name, value in (*zip(kinds, given, strict=False), *more.items()):
            if not isinstance(value, kinds.get(name, object)):
                wanted = " or ".join(kind.__name__ for kind in kinds[name])
                raise invalid(f"/{name}", f"it must be a {wanted}, not a {type(value).__name__}")
        return method(hub, *given, **more)

    return call


Asked: TypeAlias = tuple[Token, str, list[Record], str]
"""A new record to be written: who writes it, the verb, the record, the mark."""

Call: TypeAlias = Generator[Asked, tuple[str, list[Record]], Any]
"""A call in two parts: it yields what it writes, and is sent the operation's id and the record as it became."""


class Store:
    """What every part of a hub works on: records, secrets, tokens and models, one way to write, what is refused.

    Arguments and errors: see `hub.KnowHub`.
    """

    is_closed = False

    def __init_subclass__(cls) -> None:
        is_service = cls.__module__.startswith(f"{__package__}.")  # not a program's own class
        for name, method in [*vars(cls).items()] if is_service else ():
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _guarded(method))

    def __init__(
        self,
        place: str | Path,
        llm_client: LLMClient | None = None,
        *,
        models: Mapping[str, LLMClient] | None = None,
        judge: bool = False,
        ring: KeyRing | None = None,
        meaning: Meaning | Embedder | bool = True,
        clock: Callable[[], float] = time.time,
        allow_secret_shapes: bool = False,
        quota: Quota = Quota(),
    ) -> None:
        given: dict[str, tuple[object, Any]] = {
            "models": (models, Mapping), "ring": (ring, KeyRing), "quota": (quota, Quota), "clock": (clock, Callable),
            "judge": (judge, bool), "allow_secret_shapes": (allow_secret_shapes, bool),
        }  # fmt: skip
        for name, (value, kind) in given.items():
            if not isinstance(value, kind) and (value is not None or kind not in (Mapping, KeyRing)):
                raise InvalidInputError(f"{name} must be a {kind.__name__}, not {shorten(value)}")
        if models is None and llm_client is not None:
            models = {str(getattr(llm_client, "model", "") or type(llm_client).__name__): llm_client}
        for client in (models or {}).values():
            check_methods("a model", client, "Chat")
        meaning = meaning if isinstance(meaning, bool) else meaning_of(meaning) or False
        with contextlib.ExitStack() as opened:
            self.files = open_files(place)
            opened.callback(self.files.close)
            self.folder = self.files.folder
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.tokens = Tokens(self.files.tokens, clock)
            self.vault = Vault(self.files.secrets, ring, clock, self.folder)
            self.ledger = TreeLedger(self.files.tree, clock=clock)
            opened.callback(self.ledger.close)
            self.catalog = Catalog(self.ledger, self.folder / "indexes", meaning)
            opened.callback(self.catalog.close)
            self.catalog.open()
            self.models = Models(models)
            opened.callback(self.models.close)
            self._opened = opened.pop_all()
        self.clock, self.allow_secret_shapes, self.quota = clock, allow_secret_shapes, quota
        self.slimming, self.refused, self.judges = threading.Lock(), Shares(clock), judge

    # -- finding and writing records --

    def _repeated(self, token: Token, key: str, *request: str | BaseModel) -> tuple[str, Entry | None]:
        """Return the mark of a call with an Idempotency-Key, and the first operation that it made already, or None.

        Raises:
            KnowHubError: `key-reused`: it was another request.
        """
        if not key:
            return "", None
        mark = digest_of(f"{token.principal}\0{key}")[:32] + digest_of("\0".join(map(_said, request)))[:32]
        earlier = next(iter(self.catalog.marked(mark[:32])), None)
        if earlier is not None and earlier.mark != mark:
            raise KnowHubError("key-reused", "the Idempotency-Key was used for another request")
        if earlier is not None and earlier.verb == CALL:  # it changed nothing
            earlier = replace(earlier, operation_id="", after=[])
        return mark, earlier

    def _as_now(self, earlier: Entry) -> list[Record]:
        """Return what an earlier call of the same request wrote, as it is now.

        Raises:
            KnowHubError: `conflict`: it was deleted since, and is not made again.
        """
        there = [self.catalog.get(record.id) for record in earlier.after]
        if not all(there):
            raise gone_since()
        return [record for record in there if record is not None]

    def _write(
        self, token: Token, verb: str, plan: Callable[[], list[Record]], mark: str = ""
    ) -> tuple[str, list[Record]]:
        """Run a plan as one operation of a principal; return its id, and the records as they became.

        Where others were quicker, what they wrote is read, and the plan runs again: `ATTEMPTS` times in all.
        A call with a mark that changes nothing leaves a record of the mark alone, and has the id "".

        Raises:
            KnowHubError: `changed`, `conflict`: others were quicker each time, with a version that was read, or an id.
        """

        def run() -> tuple[str, list[Record]]:
            with self.ledger.operation(verb, token.principal, mark) as operation:
                records = plan()
                staged = operation.transaction  # None: others write, and the plan runs again
                is_change = bool(records) and (staged is None or bool(staged.steps))
                self._check_quota(records)
            if mark and not is_change and self.ledger.stored(f"{CALL}/{mark[:32]}") is None:
                own: Json = {"scopes": [], "owner": token.principal}
                with self.ledger.operation(CALL, token.principal, mark):
                    self.ledger.create([Record(f"{CALL}/{mark[:32]}", "", "", own, token.principal)])
            return operation.id if is_change else "", records

        for left in reversed(range(ATTEMPTS)):
            try:
                written = run()
                self.catalog.take_own()
                return written
            except (VersionConflictError, DuplicateIdError, KnowHubError) as error:
                if not left or (isinstance(error, KnowHubError) and error.code != "not-found"):
                    if isinstance(error, VersionConflictError):
                        raise outgrown(error.current) from error
                    if isinstance(error, DuplicateIdError):
                        detail = "the id is in use, or the same request was done before a purge: read what is there"
                        raise KnowHubError("conflict", detail) from error
                    raise
                self.catalog.catch_up()  # what processes share may know more than the tree of this one, or less
        raise AssertionError("the last attempt returns or raises")

    def together(self, calls: Sequence[Call]) -> list[Any]:
        """Return what calls return that write one new record each, or their errors; what all write shares one sync."""
        outcomes: dict[Call, Any] = {call: attempt(next, call) for call in calls}
        writing = [call for call in calls if isinstance(outcomes[call], tuple)]
        made = attempt(self._create_all, [outcomes[call] for call in writing])  # what else was done stays as it is
        for call, one in zip(writing, [made] * len(writing) if isinstance(made, Exception) else made, strict=True):
            outcomes[call] = attempt(call.throw if isinstance(one, Exception) else call.send, one)
        return [each.value if isinstance(each, StopIteration) else each for each in outcomes.values()]

    def _create_all(self, asked: Sequence[Asked]) -> list[Any]:
        """Write the new records of each call as one operation; return its id and the records, or the error of each."""
        new, made = [record for _, _, [record], _ in asked], list[Any]([None] * len(asked))
        if new and attempt(self._check_quota, new) is None:
            made = self.ledger.add([(one, verb, token.principal, mark) for token, verb, [one], mark in asked])
            for one, done in zip(new, made, strict=True):
                if one.kind == "knowledge" and isinstance(done, tuple):
                    self.catalog.leave(one)
            if any(one.kind != "knowledge" for one in new):
                self.catalog.take_own()
        # None is more than a line of the log, or than a principal may keep.
        plans = [(token, verb, partial(self.ledger.create, records), mark) for token, verb, records, mark in asked]
        return [attempt(self._write, *plan) if done is None else done for plan, done in zip(plans, made, strict=True)]

    def _create(self, token: Token, verb: str, records: list[Record], mark: str = "") -> tuple[str, list[Record]]:
        """Write new records, as one operation; return its id, and the records as they became."""
        if len(records) == 1:
            made: tuple[str, list[Record]] = result_of(*self._create_all([(token, verb, records, mark)]))
            return made
        return self._write(token, verb, lambda: self.ledger.create(records), mark)

    def _hide(self, token: Token, verb: str, id: str, kind: str, version: int | None, key: str) -> Json:
        """Delete a record, undoably, if it has still the version that was read, and destroy its secret, for good."""
        need(token, "write")
        mark, earlier = self._repeated(token, key, verb, id)
        if earlier:
            return {"id": id, "operation_id": earlier.operation_id}
        prefix = f"{kind}/" if kind == "resource" else ""
        record = self._record_at(token, f"{prefix}{id}", kind, version)
        self._check_owner(token, record)
        operation_id, _ = self._write(token, verb, lambda: [self.ledger.delete(record.id, record.version)], mark)
        self.vault.destroy(record.secret_ref)
        return {"id": record.id.removeprefix(prefix), "operation_id": operation_id}

    def _current(self, read: Callable[[str], Record | None], id: str, version: int | None = None) -> Record | None:
        """Return what is read of an id, in this version or a later one, also where another process just wrote it."""
        record = read(id)
        if record is None or (version is not None and record.version < version):
            self.catalog.catch_up()
            record = read(id)
        return record

    def _record(self, token: Token, id: str, kind: str, version: int | None = None) -> Record:
        """Return a record that a token sees, as it is now; of what was merged, what it was merged into."""
        self.catalog.look()
        record = self._current(self.catalog.lead, id, version) if kind_of(id) == kind else None
        if record is None or not sees(token, record):
            raise not_found()
        return record

    def _record_at(self, token: Token, id: str, kind: str, version: int | None) -> Record:
        """Return a record that a token sees, in the version that it means; None or 0 is the newest.

        Raises:
            KnowHubError: `changed`: it has another one by now.
        """
        record = self._record(token, id, kind, version)
        if version and version != record.version:
            raise outgrown(record.version)
        return record

    def _new_id(self, kind: str, token: Token, key: str, place: str = "") -> str:
        """Return the id of a new record; of two calls with one key, at once or within a week, the same one.

        Raises:
            KnowHubError: `conflict`: what the key made was deleted, and the log that had the call was purged.
        """
        digest = digest_of("\0".join([token.principal, key, place])) if key else secrets.token_hex(16)
        ids = [f"{kind}-{digest[: 20 if kind == 'feedback' else 12]}"]
        if kind == "knowledge":
            days = (self.clock() - 86_400 * back for back in range(KEY_DAYS if key else 1))
            ids = [f"{kind}-{iso_time(day)[:10].replace('-', '')}-{digest[:12]}" for day in days]
        there = next(filter(None, map(self.ledger.stored, ids)), None) if key else None
        if there is not None and there.deleted:
            raise gone_since()
        return ids[0] if there is None else there.id

    def _sees_statement(self, token: Token, said: Record) -> bool:
        """Return whether a token sees both an entry as it is, and as it was when this was said of it."""
        entry = self.catalog.lead(str(said.fields["of"]))
        return entry is not None and sees(token, entry) and sees_said(token, said)

    def _page(
        self, kind: str, wanted: Callable[[Record], bool], query: PageQuery, show: Callable[[Record], Json]
    ) -> Json:
        """Return a page of records of a kind as they are shown, newest first, and where the next one begins."""
        found, has_more = self.catalog.page(kind, wanted, query.limit, read_cursor(query.cursor))
        return page_of([show(each) for each in found], found[-1].key if has_more else None)

    # -- what is refused --

    def _check_secrets(self, body: object) -> None:
        """Refuse what would put a secret into the log, in whichever field, or as the name of one."""
        shape = "" if self.allow_secret_shapes else secret_shape("\n".join(_strings_in(body)))
        if shape:
            instead = "keep it with resource_save, as secure_body, and name that"
            raise KnowHubError("secret-shape", f"it holds what looks like a secret ({shape}): {instead}")

    def _check_scopes(self, token: Token, scopes: Collection[str], old: Record | None = None) -> None:
        """Refuse a result in scopes that are not a token's own; of another's record `user:owner` means that other one.

        Args:
            token: Who writes.
            scopes: Those that the record will have.
            old: The record as it is.
        """
        check_plain(scopes)
        is_own = old is None or old.created_by == token.principal or token.sees_all()
        hides = OWNER_SCOPE in scopes and old is not None and OWNER_SCOPE not in old.fields["scopes"]
        if (hides and not is_own) or not all(map(token.owns_scope, scopes)):
            raise KnowHubError("forbidden", "the token may not write into this scope")

    def _check_quota(self, written: list[Record]) -> None:
        """Refuse what makes a principal's records more than the share of one; what shrinks them is taken."""
        limits = self.quota
        if not limits.entries and not limits.size:
            return
        before = self.catalog.several([record.id for record in written])
        for whose in {record.created_by for record in written}:
            mine = [record for record in written if record.created_by == whose and record.kind != ACCESS]
            entries = sum(record.id not in before and record.kind in ("knowledge", "resource") for record in mine)
            size = sum(each.size - (before[each.id].size if each.id in before else 0) for each in mine)
            held, held_size = self.catalog.held_by(whose)
            if (entries > 0 and 0 < limits.entries < held + entries) or (
                size > 0 and 0 < limits.size < held_size + size
            ):
                limit = f"{limits.entries or 'any number of'} entries and {limits.size or 'any number of'} bytes"
                raise KnowHubError("quota-exceeded", f"one principal keeps at most {limit}; nothing was written")

    def _scoped(self, token: Token, body: _Scoped) -> _Scoped:
        """Return a body with the scopes that are meant where it names none; a secret stays its principal's alone."""
        if "scopes" in body.model_fields_set or (isinstance(body, ResourceIn) and body.secret()):
            return body
        return body.model_copy(update={"scopes": self.tokens.default_scopes(token)})

    def _check_targets(self, token: Token, old: Record, metadata: Mapping[str, Any]) -> bool:
        """Return whether it changes where a secret may go; refuse that to one who may not read the secret."""
        before = old.fields.get("metadata") or {}
        is_other = bool(old.secret_ref) and any(before.get(name) != metadata.get(name) for name in TARGETS)
        if is_other and not token.may("secrets"):
            raise KnowHubError("forbidden", f"it says where the secret may go: changing {TARGETS[0]} needs `secrets`")
        return is_other

    def _check_owner(self, token: Token, record: Record) -> None:
        """Refuse a change of another's record by one who may not curate."""
        if record.created_by != token.principal and not token.may("curate"):
            raise KnowHubError("forbidden", "it is another's: changing it needs the right `curate`")


def admit(token: Token, right: str, model: type[_Body], given: _Body | Mapping[str, Any]) -> _Body:
    """Return a call's body or query as its model has it, of a token that has the right for the call.

    Raises:
        KnowHubError: `forbidden`; `invalid`, with a pointer to each field.
    """
    need(token, right)
    return parse(model, given)


def outgrown(version: int) -> KnowHubError:
    """Return the answer to a call that names a version that is no more the newest."""
    return KnowHubError("changed", f"it has version {version} by now: read it again")


def gone_since() -> KnowHubError:
    """Return the answer to a call that comes again after what it made was deleted."""
    return KnowHubError("conflict", "what this Idempotency-Key made was deleted since: nothing is made again")


# What is returned, and in which form


def told_operation(entry: Entry) -> Json:
    """Return what is shown of an operation, whatever it touched."""
    shown = {"operation_id": entry.operation_id, "verb": entry.verb, "principal": entry.principal}
    return shown | {"timestamp": iso_time(entry.timestamp)}


def entry_fields(record: Record) -> Json:
    """Return what every form of an entry has."""
    shown: Json = {"id": record.id, "content": record.content, "created_by": record.created_by}
    return shown | {name: record.fields[name] for name in _SHOWN}


_SHOWN = ("task", "types", "tags", "scopes", "owner", "resource_ids")


def judgement_of(record: Record) -> Json:
    """Return how an entry is judged."""
    shown: Json = {name: record.fields[name] for name in ("score", "confidence")}
    return shown | {"helpful": record.helpful, "harmful": record.harmful}


def stamps(record: Record) -> Json:
    """Return when a record was made and changed, and which version it is."""
    made, changed = iso_time(record.created_at), iso_time(record.updated_at)
    return {"created_at": made, "updated_at": changed, "version": record.version}


def page_of(found: list[Json], next_key: tuple[float, str] | None = None) -> Json:
    """Return a page of a list, and where the next one begins."""
    return {"results": found, "count": len(found), "next_cursor": write_cursor(next_key) if next_key else None}


def _said(part: str | BaseModel) -> str:
    return part if isinstance(part, str) else part.model_dump_json(exclude={"secure_body"})


def _strings_in(value: object) -> list[str]:
    """Return all texts in a body; the names of a model's fields are ours, those of a dict are not."""
    found, values = list[str](), [value]
    for each in values:
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict):
            values += [*each, *each.values()]
        elif isinstance(each, list):
            values += each
        elif isinstance(each, BaseModel):
            values += filter(None, vars(each).values())
    return found


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_cursor(key: tuple[float, str]) -> str:
    """Return a place in a list as callers carry it; each text of the form of `schemas.Cursor` is one."""
    return f"{key[0]:.9f}_{key[1]}"


def read_cursor(text: str | None) -> tuple[float, str] | None:
    """Return the place that `write_cursor` wrote; None is the beginning."""
    at, _, id = (text or "").partition("_")
    return (float(at), id) if text else None
