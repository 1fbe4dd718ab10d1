"""`KnowHub`, the door: it checks who asks and what they may, then acts. Every other door asks it.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> hub = KnowHub(folder.name)
>>> made = hub.save(LOCAL, {"task": "Log in with selenium", "content": "Wait at random.", "types": ["tool"]})
>>> found = hub.search(LOCAL, {"q": "selenium login"})
>>> [result["task"] for result in found["results"]], found["routing"], found["reason"]
(['Log in with selenium'], 'recall', 'no_model')
>>> id = found["results"][0]["id"]
>>> judged = hub.update(LOCAL, id, {"add_helpful_case": {"task": "nightly import", "outcome": "worked"}})
>>> hub.get(LOCAL, id)["eval"]["helpful"]
1
>>> _ = hub.undo(LOCAL, judged["operation_id"])
>>> hub.get(LOCAL, id)["eval"]["helpful"]
0
>>> hub.close(); folder.cleanup()

The first argument of every method is the `Token` of who asks; `LOCAL` is the process itself. What a token does not see
is `not-found`, whatever is asked of it. Bodies are dicts or the models of `schemas`; what comes back is plain JSON.
Errors are `KnowHubError`; nothing was written then, but for `outcome-unknown`.
"""

import base64
import contextlib
import hashlib
import heapq
import itertools
import json
import logging
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from ..keyword_tree import DuplicateIdError, LLMClient, VersionConflictError
from ..memory.content import Ranker
from ..memory.fulltext import terms_of
from .catalog import Catalog, Known, text_of
from .evolving import SLIM_SHARE, Cluster, check_merge, check_rewrite, find_clusters, plain_text
from .ledger import ATTEMPTS, Entry, TreeLedger, attempt
from .routing import (
    REWRITE_S,
    ROUTE_S,
    SCHEMAS,
    SHOWN_LIMIT,
    Asked,
    Models,
    Reply,
    build_messages,
    order_by_quality,
    read_chosen,
    shown_text,
)
from .schemas import (
    OWNER_SCOPE,
    RESOURCE_ID_PATTERN,
    AcceptIn,
    BatchIn,
    Case,
    FeedbackIn,
    FeedbackLine,
    GoalIn,
    GoalsIn,
    Json,
    KnowHubError,
    KnowledgeIn,
    KnowledgeLine,
    KnowledgePatch,
    KnowledgeUpdate,
    ListQuery,
    PageQuery,
    ProposalQuery,
    Record,
    ResourceIn,
    ResourceQuery,
    SearchQuery,
    SlimIn,
    Source,
    TokenIn,
    from_iso,
    invalid,
    iso_time,
    kind_of,
    not_found,
)
from .tokens import LOCAL, Token, Tokens, is_visible, sees
from .vault import KeyRing, Vault, secret_shape

__all__ = ["LOCAL", "KnowHub", "problem_of"]

HISTORY_LIMIT = 20
"""So many cases an entry shows; `feedback` pages all."""

SIMILAR_LIMIT = 3
SIMILAR_LEAST = 0.5
"""So many entries that a new one resembles are told: those whose tasks share at least half of their terms."""

_ENTRY_NAMES = ("task", "types", "tags", "scopes", "owner", "resource_ids", "score", "confidence")
_RESOURCE_NAMES = ("content_type", "metadata", "scopes", "owner", "expires_at")
_IMPORTED_AT_ONCE = 200
_ERRORS_TOLD = 100
_VERSIONS = 200
"""So many versions a history goes back."""

_ALIKE = 0.4
"""Share of all terms that two entries must have in common for a model to compare them."""

_RESOURCE_ID = re.compile(RESOURCE_ID_PATTERN).fullmatch

_Body = TypeVar("_Body", bound=BaseModel)
_log = logging.getLogger(__name__)


@dataclass
class Searching:
    """A search between its two halves: what was found without a model, and what a model is to be asked."""

    token: Token
    query: SearchQuery
    began: float
    eligible: int
    candidates: list[str]
    """What a model is shown, in order."""
    recalled: list[str]
    """What stands without a model."""
    asked: Asked | None
    chosen: list[str] | None = None
    """What an earlier answer to the same question chose."""
    reason: str = ""


@dataclass
class Evolving:
    """A rewriting between its two halves."""

    token: Token
    entry: Record
    proposal: Record
    feedback: str
    asked: Asked | None
    reason: str = ""
    answer: Json = field(default_factory=dict)


class KnowHub:
    """Knowledge, resources and secrets in one folder; a context manager, safe for many threads and processes.

    Args:
        folder: Holds `tree`, `vault`, `tokens` and `indexes`; made for its owner alone.
        llm_client: The model that routes searches and rewrites; None: by words, and said so.
        models: Several, by name; the first is the default.
        ring: The master keys; None finds them when the first secret comes.
        ranker: Another ranking beside the words, as `EmbeddingRanker`.
        clock: Seconds since the epoch.
        allow_secret_shapes: Take knowledge that looks as if it held a key.

    Cost: opening reads all there is, some 0.1 ms for an entry.
    """

    def __init__(
        self,
        folder: str | Path,
        llm_client: LLMClient | None = None,
        *,
        models: Mapping[str, LLMClient] | None = None,
        ring: KeyRing | None = None,
        ranker: Ranker | None = None,
        clock: Callable[[], float] = time.time,
        allow_secret_shapes: bool = False,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if models is None and llm_client is not None:
            models = {str(getattr(llm_client, "model", "") or type(llm_client).__name__): llm_client}
        self._clock = clock
        self._allow_secret_shapes = allow_secret_shapes
        self.models = Models(models)
        self.tokens = Tokens(self.folder / "tokens", clock)
        self.vault = Vault(self.folder / "vault", ring, clock)
        self.ledger = TreeLedger(self.folder / "tree", clock=clock)
        self.catalog = Catalog(self.ledger, self.folder / "indexes" / "knowhub.index", ranker)
        self._is_closed = False
        self._slimming = threading.Lock()
        try:
            self.catalog.open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the index on disk and close the store.  Closing twice is no error."""
        if not self._is_closed:
            self._is_closed = True
            self.models.close()
            self.catalog.close()
            self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- what all methods share --

    def _write(self, token: Token, verb: str, plan: Callable[[], list[Record]]) -> tuple[str, list[Record]]:
        """Run a plan as one operation of a principal; return its id, and the records as they became."""

        def run() -> tuple[str, list[Record]]:
            with self.ledger.operation(verb, token.principal) as operation:
                records = plan()
            return operation.id, records

        operation_id, records = attempt(run)
        self.catalog.wrote(records)
        return operation_id, records

    def _known(self, token: Token, id: str, kind: str) -> Known:
        """Return what is known of a record that a token sees; of what was merged, what it was merged into."""
        known = self.catalog.lead(id) if kind_of(id) == kind else None
        if known is None and kind_of(id) == kind:
            self.catalog.catch_up()  # another process may have just written it
            known = self.catalog.lead(id)
        if known is None or not self.catalog.sees(token, known):
            raise not_found()
        return known

    def _record(self, token: Token, id: str, kind: str) -> Record:
        """Return a record that a token sees, as it is now."""
        record = self.ledger.read(self._known(token, id, kind).id)
        if record is None or not sees(token, record):
            raise not_found()
        return record

    def _check_secrets(self, *texts: str) -> None:
        if self._allow_secret_shapes:
            return
        for text in texts:
            shape = secret_shape(text)
            if shape:
                detail = f"it holds what looks like {shape}: keep it with resource_save, as secure_body, and name that"
                raise KnowHubError("secret-shape", detail)

    def _check_scopes(self, token: Token, scopes: Iterable[str], old: Record | None = None) -> None:
        """Refuse scopes that are not a token's own; of another's record `user:owner` means that other one."""
        is_anothers = old is not None and old.created_by != token.principal and not token.sees_all()
        for scope in scopes:
            is_foreign = is_anothers and scope == OWNER_SCOPE and old is not None and scope not in old.fields["scopes"]
            if is_foreign or not token.owns_scope(scope):
                raise KnowHubError("forbidden", "nobody writes into a scope that is not their own")

    def _check_owner(self, token: Token, record: Record) -> None:
        """Refuse a change of another's record by one who may not curate."""
        if record.created_by != token.principal and not token.may("curate"):
            raise KnowHubError("forbidden", "it is another's: changing it needs the right `curate`")

    # -- searching --

    def search(self, token: Token, query: SearchQuery | Mapping[str, Any]) -> Json:
        """Find what helps with a task, in two stages, see `routing`.

        Cost: some milliseconds by words among 30,000; with a model, its time, at most 3 s.
        """
        searching = self.begin_search(token, query)
        return self.finish_search(searching, self.models.ask(searching.asked) if searching.asked else None)

    def begin_search(self, token: Token, query: SearchQuery | Mapping[str, Any]) -> Searching:
        """Do the first half of a search: all but waiting for a model."""
        need(token, "read")
        query = parse(SearchQuery, query)
        began = time.perf_counter()
        types = query.types.split(",") if query.types else None
        eligible = self.catalog.eligible(token, types, query.min_score)
        limit = 2 * query.top_k
        why = "asked" if query.route == "recall" else self.models.available()
        if not why and not self.models.may_call(_who(token)):
            if query.route == "model":
                self.models.check_share(_who(token))
            why = "model_limit"
        if not eligible:
            return Searching(token, query, began, 0, [], [], None, reason=why)
        recalled = list(self.catalog.rank(query.q, limit if why else SHOWN_LIMIT, eligible))
        if why:
            return Searching(token, query, began, len(eligible), [], recalled, None, reason=why)
        candidates = self._candidates(eligible, recalled)
        asked, key = self._ask_route(token, query.q, candidates, limit)
        chosen = self.models.cached(key)
        state = Searching(token, query, began, len(eligible), candidates, recalled[:limit], None if chosen else asked)
        state.chosen = chosen
        return state

    def _candidates(self, eligible: Collection[str], recalled: list[str]) -> list[str]:
        """Return what a model is shown: up to 100 all there is, else what words found, filled up by quality."""
        if len(eligible) <= SHOWN_LIMIT:
            return sorted(eligible, key=self._newest_first)
        left = [id for id in eligible if id not in set(recalled)]
        best = heapq.nlargest(SHOWN_LIMIT - len(recalled), left, key=lambda id: (self._quality(id), id))
        return recalled + best

    def _newest_first(self, id: str) -> tuple[float, str]:
        known = self.catalog.get(id)
        return (-known.created_at if known else 0.0, id)

    def _quality(self, id: str) -> float:
        known = self.catalog.get(id)
        return self.catalog.quality(known) if known else -math.inf

    def _ask_route(self, token: Token, query: str, candidates: list[str], limit: int) -> tuple[Asked, Any]:
        shown, versions = [], []
        for idx, id in enumerate(candidates):
            known = self.catalog.get(id)
            types, task = (list(known.types), shown_text(known.task)) if known else ([], "")
            shown.append({"idx": idx, "types": types, "task": task})
            versions.append((id, known.version if known else 0))
        question = {"query": query, "limit": limit, "candidates": shown}
        schema = SCHEMAS["route_knowledge"]
        key = (self.models.choose(), query, limit, tuple(versions))
        messages = build_messages("route_knowledge", question, schema)
        return Asked("route_knowledge", messages, schema, self.models.choose(), _who(token), ROUTE_S, key), key

    def finish_search(self, searching: Searching, reply: Reply | None) -> Json:
        """Do the second half of a search: read what a model said, and order by quality."""
        query, limit, chosen = searching.query, 2 * searching.query.top_k, searching.chosen
        reason, usage, shown = searching.reason, None, len(searching.candidates)
        if chosen is not None:
            reason = "cached"
        elif reply is not None and searching.asked is not None:
            usage, reason = reply.usage, reply.reason
            picked = read_chosen(reply.data, shown, limit) if not reason else None
            if not reason and picked is None:
                reason = "invalid_reply"
            if reason not in ("model_busy", "model_limit", "model_resting", "no_model"):
                self.models.note(searching.asked.model, not reason)
            if picked is not None:
                chosen = [searching.candidates[idx] for idx in picked]
                self.models.keep(searching.asked.cache_key, chosen)
        ids = searching.recalled if chosen is None else chosen
        quality = {id: self._quality(id) for id in ids}
        results: list[Json] = []
        for id in order_by_quality(ids, quality, len(ids)):
            record = self.ledger.read(id)
            # A model takes its time: what was hidden meanwhile must not come out.
            is_seen = record is not None and sees(searching.token, record) and not record.fields.get("merged_into")
            if record is not None and is_seen and len(results) < query.top_k:
                results.append(self._result(record, quality[id]))
        told: Json = {"results": results, "count": len(results)}
        told |= {"routing": "recall" if chosen is None else "model", "reason": reason, "eligible": searching.eligible}
        took_ms = round((time.perf_counter() - searching.began) * 1000, 3)
        return told | {"shown": shown if chosen is not None else 0, "took_ms": took_ms, "usage": usage}

    def _result(self, record: Record, quality: float) -> Json:
        own = record.fields
        helpful, harmful = self.catalog.votes(record.id)
        judged = {"score": own["score"], "helpful": helpful, "harmful": harmful, "confidence": own["confidence"]}
        names = ("types", "tags", "scopes", "owner", "resource_ids")
        told = {"id": record.id, "task": own["task"], "content": record.content}
        return {**told, **{name: own[name] for name in names}, "eval": judged, "quality_score": quality}

    # -- knowledge --

    def save(self, token: Token, body: KnowledgeIn | Mapping[str, Any], key: str = "") -> Json:
        """Keep new knowledge; return `entry`, `operation_id`, and `similar`: up to three that it resembles.

        Args:
            token: Who saves it: the entry's principal.
            body: See `KnowledgeIn`.
            key: Of the caller's choice: the same once more gets the first answer, another body under it is refused.

        Cost: one sync; a ranking of its task.
        """
        need(token, "write")
        body = parse(KnowledgeIn, body)
        self._check_scopes(token, body.scopes)
        self._check_secrets(body.task, body.content, *body.tags.values(), body.message_id)
        request = _digest(body.model_dump_json())
        while True:
            ids = self._new_ids("knowledge", token, key)
            for id in ids if key else ():
                earlier = self.ledger.read(id)
                if earlier is not None:
                    return self._first_answer(token, earlier, request)
            record = Record(ids[0], body.content, body.source.name, self._fields(token, body, request), token.principal)
            similar = self._similar(token, body.task)
            try:
                operation_id, [made] = self._write(token, "save", lambda record=record: self.ledger.create([record]))  # type: ignore[misc]
            except DuplicateIdError:  # two tries of one call met; without a key, two random ids
                self.catalog.catch_up()
                continue
            return {"entry": self._entry(token, made), "operation_id": operation_id, "similar": similar}

    def _fields(self, token: Token, body: KnowledgeIn, request: str) -> Json:
        source = body.source.model_dump(mode="json")
        source["message_id"] = body.message_id or body.source.message_id
        source["timestamp"] = source["timestamp"] or iso_time(self._clock())
        del source["name"]
        return {
            "task": body.task,
            "types": list(dict.fromkeys(body.types)),
            "tags": body.tags,
            "scopes": list(dict.fromkeys(body.scopes)),
            "owner": body.owner or token.principal,
            "resource_ids": body.all_resource_ids(),
            "source": source,
            "message_id": source["message_id"],
            "score": body.score,
            "confidence": body.confidence,
            "request": request,
        }

    def _new_ids(self, kind: str, token: Token, key: str, place: str = "") -> list[str]:
        """Return the id of a new record; with a key, also the one that it would have had yesterday."""
        digest = _digest("\0".join([token.principal, key, place])) if key else secrets.token_hex(16)
        if kind != "knowledge":
            return [f"{kind}-{digest[: 20 if kind == 'feedback' else 12]}"]
        today = datetime.fromtimestamp(self._clock(), UTC)
        days = [today, today - timedelta(days=1)] if key else [today]
        return [f"knowledge-{day:%Y%m%d}-{digest[:12]}" for day in days]

    def _first_answer(self, token: Token, earlier: Record, request: str) -> Json:
        if earlier.fields.get("request") != request:
            raise KnowHubError("key-reused", "the Idempotency-Key was used for another body")
        if not sees(token, earlier):
            raise not_found()
        first = next((entry for entry in reversed(self.ledger.history(earlier.id)) if entry.after), None)
        operation_id = first.operation_id if first is not None else ""
        return {"entry": self._entry(token, earlier), "operation_id": operation_id, "similar": []}

    def _similar(self, token: Token, task: str) -> list[Json]:
        among = self.catalog.visible(token, "knowledge")
        found = self.catalog.rank_by_rarest(task[:200], 2 * SIMILAR_LIMIT, among) if among is None or among else []
        mine, told = set(terms_of(task)), list[Json]()
        for id in found:
            known = self.catalog.get(id)
            if known is None or known.merged_into:
                continue
            theirs = set(terms_of(known.task))
            likeness = len(mine & theirs) / max(1, len(mine | theirs))
            if likeness >= SIMILAR_LEAST:
                told.append({"id": id, "task": known.task, "likeness": round(likeness, 3)})
        return sorted(told, key=lambda each: -each["likeness"])[:SIMILAR_LIMIT]

    def get(self, token: Token, id: str) -> Json:
        """Return an entry whole.  Cost: some 0.1 ms, and 20 µs for each case shown."""
        need(token, "read")
        return self._entry(token, self._record(token, id, "knowledge"))

    def _entry(self, token: Token, record: Record) -> Json:
        own, source = record.fields, record.fields["source"]
        helpful, harmful = self.catalog.votes(record.id)
        shown = self._cases(token, record.id)
        judged = {"score": own["score"], "helpful": helpful, "harmful": harmful, "confidence": own["confidence"]}
        return {
            "id": record.id,
            "message_id": own["message_id"],
            "types": own["types"],
            "task": own["task"],
            "tags": own["tags"],
            "scopes": own["scopes"],
            "owner": own["owner"],
            "content": record.content,
            "resource_ids": own["resource_ids"],
            "source": {"name": record.source, **source},
            "eval": {**judged, "helpful_history": shown[True], "harmful_history": shown[False]},
            "created_at": iso_time(record.created_at),
            "updated_at": iso_time(record.updated_at),
            "created_by": record.created_by,
            "version": record.version,
            "merged_into": own.get("merged_into") or "",
        }

    def _cases(self, token: Token, id: str) -> dict[bool, list[Json]]:
        shown: dict[bool, list[Json]] = {True: [], False: []}
        for known in self.catalog.feedback(id):
            cases = shown[known.is_helpful]
            if len(cases) < HISTORY_LIMIT and is_visible(token, known.scopes, known.owner):
                record = self.ledger.read(known.id)
                if record is not None:
                    cases.append(_case(record))
        return shown

    def list_knowledge(self, token: Token, query: ListQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006  it is only read
        """Return a page of entries, newest first."""
        need(token, "read")
        query = parse(ListQuery, query)
        types, scopes = _split(query.types), _split(query.scopes)
        key, _, value = (query.tag or "").partition(":")

        def wanted(known: Known) -> bool:
            return (
                not known.merged_into
                and self.catalog.sees(token, known)
                and (types is None or not types.isdisjoint(known.types))
                and (scopes is None or not scopes.isdisjoint(known.scopes))
                and (query.owner is None or query.owner == known.owner)
                and (not key or any(key == name and value in ("", said) for name, said in known.tags))
            )

        return self._page("knowledge", wanted, query, lambda record: self._entry(token, record))

    def _page(
        self,
        kind: str,
        wanted: Callable[[Known], bool],
        query: ListQuery | PageQuery,
        show: Callable[[Record], Json],
    ) -> Json:
        found, has_more = self.catalog.page(kind, wanted, query.limit, _read_cursor(query.cursor))
        records = [record for known in found if (record := self.ledger.read(known.id)) is not None]
        cursor = _write_cursor(found[-1].key) if has_more else None
        return {"results": [show(record) for record in records], "count": len(records), "next_cursor": cursor}

    def patch(
        self, token: Token, id: str, body: KnowledgePatch | Mapping[str, Any], version: int | None = None
    ) -> Json:
        """Change what a body names of an entry, if it still has this version; None takes whichever it has."""
        need(token, "write")
        body = parse(KnowledgePatch, body)
        given = body.model_dump(exclude_none=True)
        record = self._record(token, id, "knowledge")
        self._check_owner(token, record)
        self._check_scopes(token, given.get("scopes", ()), record)
        self._check_secrets(*(str(given.get(name, "")) for name in ("task", "content", "tags")))

        def plan() -> list[Record]:
            content = given.get("content", record.content)
            own = {**record.fields, **{name: value for name, value in given.items() if name != "content"}}
            changed = Record(record.id, content, record.source, own, record.created_by)
            return [self.ledger.update(changed, record.version if version is None else version)]

        operation_id, [made] = self._changing(lambda: self._write(token, "change", plan))
        return {"entry": self._entry(token, made), "operation_id": operation_id}

    def _changing(self, write: Callable[[], tuple[str, list[Record]]]) -> tuple[str, list[Record]]:
        try:
            return write()
        except VersionConflictError as error:
            self.catalog.catch_up()
            raise KnowHubError("changed", f"it has version {error.current} by now: read it again") from error

    def delete(self, token: Token, id: str, version: int | None = None) -> Json:
        """Hide an entry, undoably; its bytes stay in the log until `knowhub purge`."""
        need(token, "write")
        record = self._record(token, id, "knowledge")
        self._check_owner(token, record)
        seen = record.version if version is None else version
        operation_id, _ = self._changing(
            lambda: self._write(token, "delete", lambda: [self.ledger.delete(record.id, seen)])
        )
        self.catalog.catch_up()
        return {"id": record.id, "operation_id": operation_id}

    def history(self, token: Token, id: str) -> Json:
        """Return the newest 200 versions of an entry or a resource, newest first: those that this token could see."""
        need(token, "read")
        record = self._record(token, id, kind_of(id) if kind_of(id) in ("knowledge", "resource") else "?")
        versions = []
        for entry in self.ledger.history(record.id, _VERSIONS):
            for after in entry.after:
                if after.id == record.id and sees(token, after):
                    versions.append({**_told_operation(entry), "version": after.version, **_version(after)})
        return {"id": record.id, "results": versions, "count": len(versions)}

    # -- feedback --

    def update(self, token: Token, id: str, body: KnowledgeUpdate | Mapping[str, Any], key: str = "") -> Json:
        """Judge an entry, score it, or let it be rewritten; what is judged is one operation.

        Cost: one sync; with `evolve_feedback` a model's time, at most 20 s, and one sync more.
        """
        answer, evolving = self.begin_update(token, id, body, key)
        if evolving is not None:
            reply = self.models.ask(evolving.asked) if evolving.asked else None
            answer["evolution"] = self.finish_evolving(evolving, reply)
            answer["entry"] = self.get(token, id)
        return answer

    def begin_update(
        self, token: Token, id: str, body: KnowledgeUpdate | Mapping[str, Any], key: str = ""
    ) -> tuple[Json, Evolving | None]:
        """Do all of an update but waiting for a model."""
        need(token, "write")
        body = parse(KnowledgeUpdate, body)
        if not body.model_fields_set - {"model"}:
            raise invalid("", "nothing is to be updated")
        record = self._record(token, id, "knowledge")
        if body.update_score is not None:
            self._check_owner(token, record)
        if body.evolve_feedback is not None and not self.models.available(body.model):
            self.models.check_share(_who(token))
        cases = [(True, body.add_helpful_case), (False, body.add_harmful_case)]
        given = [(is_helpful, case) for is_helpful, case in cases if case is not None]
        self._check_secrets(body.evolve_feedback or "", *(text for _, case in given for text in _texts(case)))
        request = _digest(f"{record.id}\0{body.model_dump_json()}")
        made = [
            self._feedback(token, record, is_helpful, case, key, request, str(is_helpful)) for is_helpful, case in given
        ]
        proposal = None
        if body.evolve_feedback is not None:
            proposal = self._proposal(token, record, body.evolve_feedback, key, request)
            made.append(proposal)
        if key and (earlier := self._earlier(made, request)) is not None:
            return {"entry": self._entry(token, record), **earlier}, None
        operation_id, records = self._judge(token, record, made, body.update_score)
        entry = self._entry(token, self.ledger.read(record.id) or record)
        answer: Json = {"entry": entry, "operation_id": operation_id}
        if proposal is None:
            return answer, None
        stored = next(each for each in records if each.id == proposal.id)
        return answer, self._begin_evolving(token, record.id, stored, body)

    def _judge(self, token: Token, record: Record, made: list[Record], score: int | None) -> tuple[str, list[Record]]:
        for left in reversed(range(ATTEMPTS)):
            now = record if left == ATTEMPTS - 1 else (self.ledger.read(record.id) or record)

            def plan(now: Record = now) -> list[Record]:
                written = self.ledger.create(made) if made else []
                if score is not None:
                    changed = Record(now.id, now.content, now.source, {**now.fields, "score": score}, now.created_by)
                    written.append(self.ledger.update(changed, now.version))
                return written

            try:
                return self._write(token, "feedback", plan)
            except VersionConflictError as error:
                if not left:
                    raise KnowHubError("conflict", "others changed it each time: try again") from error
                self.ledger.refresh()
            except DuplicateIdError as error:  # the same call came twice, and at once
                raise KnowHubError("conflict", "the same request is under way: try again") from error
        raise AssertionError("the last attempt returns or raises")

    def _feedback(
        self, token: Token, record: Record, is_helpful: bool, case: Case, key: str, request: str, place: str
    ) -> Record:
        id = self._new_ids("feedback", token, key, place)[0]
        own = {"of": record.id, "helpful": is_helpful, "scopes": record.fields["scopes"], "owner": record.created_by}
        told = case.to_json()
        told.setdefault("timestamp", iso_time(self._clock()))
        if key:
            own["request"] = request
        return Record(id, json.dumps(told, ensure_ascii=False), "", own, token.principal)

    def _earlier(self, made: Sequence[Record], request: str) -> Json | None:
        """Return the first answer to a call that comes again, or None where it is new."""
        for record in made:
            earlier = self.ledger.read(record.id)
            if earlier is None:
                continue
            if earlier.fields.get("request") != request:
                raise KnowHubError("key-reused", "the Idempotency-Key was used for another body")
            entries = [entry for entry in self.ledger.history(earlier.id) if entry.after]
            answer: Json = {"operation_id": entries[-1].operation_id if entries else ""}
            if earlier.kind == "proposal":
                state = (
                    "applied" if earlier.fields["state"] == "accepted" else "proposed" if earlier.content else "queued"
                )
                why, id = str(earlier.fields.get("why", "")), entries[0].operation_id if entries else ""
                answer["evolution"] = {"state": state, "reason": why, "operation_id": id, "proposal_id": earlier.id}
            return answer
        return None

    def batch_update(self, token: Token, body: BatchIn | Mapping[str, Any], key: str = "") -> Json:
        """Judge several entries: all or none, unless `atomic` is false, when each has a result.

        Cost: one sync.
        """
        need(token, "write")
        body = parse(BatchIn, body)
        request = _digest(body.model_dump_json())
        made: list[Record] = []
        results: list[Json] = []
        problems: list[dict[str, str]] = []
        for place, one in enumerate(body.feedback_list):
            try:
                record = self._record(token, one.knowledge_id, "knowledge")
                self._check_secrets(*_texts(one.case))
            except KnowHubError as error:
                problems.append({"pointer": f"/feedback_list/{place}", "detail": error.detail})
                results.append({"knowledge_id": one.knowledge_id, "ok": False, "detail": error.detail})
                continue
            made.append(self._feedback(token, record, one.is_helpful, one.case, key, request, str(place)))
            results.append({"knowledge_id": one.knowledge_id, "ok": True, "detail": ""})
        if problems and body.atomic:
            raise KnowHubError("invalid", "some of the feedback cannot be taken; none was", problems)
        earlier = self._earlier(made, request) if key else None
        if earlier is not None:
            operation_id = earlier["operation_id"]
        else:
            operation_id = self._write(token, "feedback", lambda: self.ledger.create(made))[0] if made else ""
        return {"updated": len(made), "operation_id": operation_id, "results": results}

    def feedback(self, token: Token, id: str, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of an entry's feedback, newest first."""
        need(token, "read")
        query, known = parse(PageQuery, query), self._known(token, id, "knowledge")
        before = _read_cursor(query.cursor)
        behind = [each for each in self.catalog.feedback(known.id) if before is None or each.key < before]
        seen = [each for each in behind if is_visible(token, each.scopes, each.owner)]
        page = seen[: query.limit]
        results = [
            {"id": each.id, "knowledge_id": each.of, "is_helpful": each.is_helpful, "case": _case(record)}
            | {"created_by": each.principal, "created_at": iso_time(each.created_at)}
            for each in page
            if (record := self.ledger.read(each.id)) is not None
        ]
        cursor = _write_cursor(page[-1].key) if len(seen) > len(page) else None
        return {"results": results, "count": len(results), "next_cursor": cursor}

    # -- evolving --

    def _proposal(self, token: Token, record: Record, feedback: str, key: str, request: str) -> Record:
        own: Json = {"of": record.id, "version": record.version, "feedback": feedback, "why": "", "state": "open"}
        own |= {"scopes": record.fields["scopes"], "owner": record.created_by}
        if key:
            own["request"] = request
        return Record(self._new_ids("proposal", token, key)[0], "", "", own, token.principal)

    def _begin_evolving(self, token: Token, id: str, proposal: Record, body: KnowledgeUpdate) -> Evolving:
        record = self._record(token, id, "knowledge")
        why = self.models.available(body.model)
        evolving = Evolving(token, record, proposal, str(body.evolve_feedback), None, why)
        if not why:
            question = {"query": record.fields["task"], "content": record.content, "feedback": body.evolve_feedback}
            schema, model = SCHEMAS["evolve_knowledge"], self.models.choose(body.model)
            messages = build_messages("evolve_knowledge", question, schema)
            evolving.asked = Asked("evolve_knowledge", messages, schema, model, _who(token), REWRITE_S)
        return evolving

    def finish_evolving(self, evolving: Evolving, reply: Reply | None) -> Json:
        """Take in what a model wrote: apply it, or leave it to a person."""
        token, record = evolving.token, evolving.entry
        reason, text = evolving.reason, ""
        if reply is not None and evolving.asked is not None:
            reason = reply.reason
            data = reply.data.get("content") if isinstance(reply.data, Mapping) else None
            if not reason and (not isinstance(data, str) or not data.strip() or not _is_storable(data)):
                reason = "invalid_reply"
            if reason not in ("model_busy", "model_limit", "model_resting", "no_model"):
                self.models.note(evolving.asked.model, not reason)
            text = data if not reason and isinstance(data, str) else ""
        usage = reply.usage if reply is not None else None
        told: Json = {"state": "queued", "reason": reason, "proposal_id": evolving.proposal.id, "usage": usage}
        if not text:
            return told | {"operation_id": ""}
        stopped = check_rewrite(record.content, text, evolving.feedback)
        if secret_shape(text) and not self._allow_secret_shapes:
            # What looks like a key is not even proposed: a proposal would stand in the log.
            return told | {"reason": "; ".join(stopped) or "it has the shape of a secret", "operation_id": ""}
        if record.created_by != token.principal and not token.may("curate"):
            stopped.append("it is another's entry")
        if not stopped:
            with contextlib.suppress(VersionConflictError):
                operation_id = self._apply(token, evolving.proposal, record, text, record.version)
                return told | {"state": "applied", "operation_id": operation_id}
            stopped.append("the entry was changed meanwhile")
        why = "; ".join(stopped)[:1000]
        own = {**evolving.proposal.fields, "why": why}
        proposed = Record(evolving.proposal.id, text, "", own, evolving.proposal.created_by)
        version = evolving.proposal.version
        operation_id, _ = self._changing(
            lambda: self._write(token, "propose", lambda: [self.ledger.update(proposed, version)])
        )
        return told | {"state": "proposed", "reason": why, "operation_id": operation_id}

    def _apply(self, token: Token, proposal: Record, record: Record, text: str, version: int) -> str:
        """Give an entry a new content, and close the proposal: one operation."""
        own = {**proposal.fields, "state": "accepted"}

        def plan() -> list[Record]:
            changed = Record(record.id, text, record.source, record.fields, record.created_by)
            closed = Record(proposal.id, text, "", own, proposal.created_by)
            return [self.ledger.update(changed, version), self.ledger.update(closed, proposal.version)]

        return self._write(token, "evolve", plan)[0]

    def _sees_proposal(self, token: Token, known: Known) -> bool:
        """Return whether a token sees both the entry as it is, and as it was when the proposal was written."""
        entry = self.catalog.lead(known.of)
        return entry is not None and self.catalog.sees(token, entry) and is_visible(token, known.scopes, known.owner)

    def proposals(self, token: Token, query: ProposalQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of proposals, newest first."""
        need(token, "read")
        query = parse(ProposalQuery, query)
        return self._page(
            "proposal",
            lambda known: known.state == query.state and self._sees_proposal(token, known),
            query,
            self._told_proposal,
        )

    def _told_proposal(self, record: Record) -> Json:
        own = record.fields
        entry = self.ledger.read(own["of"])
        told: Json = {"id": record.id, "knowledge_id": own["of"], "state": own["state"], "feedback": own["feedback"]}
        told |= {"why": own["why"], "content": record.content, "old_content": entry.content if entry else ""}
        return told | {"created_by": record.created_by, "created_at": iso_time(record.created_at)}

    def _open_proposal(self, token: Token, id: str) -> tuple[Record, Record]:
        """Return an open proposal and its entry, for one who may decide on it."""
        need(token, "write")
        known = self.catalog.get(id) if kind_of(id) == "proposal" else None
        if known is None and kind_of(id) == "proposal":
            self.catalog.catch_up()
            known = self.catalog.get(id)
        proposal = self.ledger.read(id) if known is not None and self._sees_proposal(token, known) else None
        if proposal is None:
            raise not_found()
        record = self._record(token, proposal.fields["of"], "knowledge")
        self._check_owner(token, record)
        if proposal.fields["state"] != "open":
            raise KnowHubError("conflict", f"the proposal was {proposal.fields['state']} already")
        return proposal, record

    def accept(self, token: Token, id: str, body: AcceptIn | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Give an entry the text that was proposed, or that a person wrote instead; needs the entry, or `curate`."""
        proposal, record = self._open_proposal(token, id)
        own_words = parse(AcceptIn, body).content
        text = own_words or proposal.content
        if not text:
            raise KnowHubError("conflict", "nobody has written a text yet: give one as `content`")
        self._check_secrets(text)
        try:
            seen = record.version if own_words else proposal.fields["version"]
            operation_id = self._apply(token, proposal, record, text, seen)
        except VersionConflictError as error:
            self.catalog.catch_up()
            raise KnowHubError("conflict", "the entry was changed since: it outgrew the proposal") from error
        return {"entry": self.get(token, record.id), "operation_id": operation_id}

    def reject(self, token: Token, id: str) -> Json:
        """Close a proposal; the entry stays as it is."""
        proposal, _ = self._open_proposal(token, id)
        closed = Record(id, proposal.content, "", {**proposal.fields, "state": "rejected"}, proposal.created_by)
        operation_id, _ = self._changing(
            lambda: self._write(token, "reject", lambda: [self.ledger.update(closed, proposal.version)])
        )
        return {"id": id, "operation_id": operation_id}

    # -- slimming --

    def slim(self, token: Token, body: SlimIn | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Merge entries that say the same; `dry_run` gives the plan, `plan` applies one. One operation, undoable.

        Cost: a ranking for each entry; a call of a model, 20 s at most, for each cluster of similar ones.
        """
        need(token, "curate")
        body = parse(SlimIn, body)
        if not self._slimming.acquire(blocking=False):
            raise KnowHubError("busy", "another slimming is under way", retry_after_s=5.0)
        try:
            clusters, model, skipped = (
                self._plan_slim(token, body.model) if body.plan is None else (self._read_plan(token, body.plan), "", [])
            )
            told: Json = {"model": model, "skipped": skipped, "merged": 0, "operation_id": ""}
            told["plan"] = {"clusters": [cluster.to_json() for cluster in clusters]}
            if body.dry_run or not clusters:
                return told
            operation_id = self._merge(token, clusters)
            return told | {"merged": sum(len(each.others) for each in clusters), "operation_id": operation_id}
        finally:
            self._slimming.release()

    def _plan_slim(self, token: Token, wanted: str) -> tuple[list[Cluster], str, list[Json]]:
        entries = [
            known
            for known in self.catalog.all("knowledge")
            if not known.merged_into and self.catalog.sees(token, known)
        ]
        budget = math.ceil(len(entries) * SLIM_SHARE)
        model = "" if self.models.available(wanted) else self.models.choose(wanted)
        families: dict[tuple[frozenset[str], str], list[Known]] = {}
        for known in entries:
            families.setdefault((known.scopes, known.principal), []).append(known)
        clusters: list[Cluster] = []
        skipped: list[Json] = []
        for family in families.values():
            if len(family) < 2 or budget <= 0:
                continue
            for ids in self._alike(family, with_model=bool(model)):
                records = [record for id in ids if (record := self.ledger.read(id)) is not None]
                cluster, why = self._write_cluster(token, records, model) if len(records) > 1 else (None, "gone")
                if cluster is None:
                    skipped.append({"ids": ids, "reason": why})
                elif len(cluster.others) > budget:
                    skipped.append({"ids": ids, "reason": "more than a fifth would go at once"})
                else:
                    budget -= len(cluster.others)
                    clusters.append(cluster)
        return clusters, model, skipped

    def _alike(self, family: list[Known], *, with_model: bool) -> list[list[str]]:
        """Return groups of entries that say the same, and, where a model will look at them, of similar ones."""
        ordered = sorted(family, key=lambda known: (-self.catalog.quality(known), known.key))
        equal: dict[str, list[str]] = {}
        texts: dict[str, str] = {}
        for known in ordered:
            record = self.ledger.read(known.id)
            if record is not None:
                texts[known.id] = text_of(record.fields, record.content)
                same = f"{plain_text(known.task)}\0{plain_text(record.content)}"
                equal.setdefault(same, []).append(known.id)
        groups = [ids for ids in equal.values() if len(ids) > 1]
        if not with_model:
            return groups
        taken = {id for ids in groups for id in ids}
        left = [id for id in texts if id not in taken]
        among, terms = frozenset(left), {id: set(terms_of(texts[id])) for id in left}
        alike = {
            id: [other for other in self.catalog.rank(texts[id][:1000], 6, among) if _likeness(terms, id, other)]
            for id in left
        }
        return groups + find_clusters(left, alike)

    def _write_cluster(self, token: Token, records: list[Record], model: str) -> tuple[Cluster | None, str]:
        best, versions = records[0], {record.id: record.version for record in records}
        others = [record.id for record in records[1:]]
        made = Cluster(best.id, others, best.fields["task"], best.content, "equal", versions)
        said = {f"{plain_text(each.fields['task'])}\0{plain_text(each.content)}" for each in records}
        if len(said) == 1:
            return made, ""
        shown = [
            {"idx": idx, "types": each.fields["types"], "task": each.fields["task"], "content": each.content}
            for idx, each in enumerate(records)
        ]
        schema = SCHEMAS["merge_knowledge"]
        messages = build_messages("merge_knowledge", {"query": "", "entries": shown}, schema)
        reply = self.models.ask(Asked("merge_knowledge", messages, schema, model, _who(token), REWRITE_S))
        if reply.reason:
            return None, reply.reason
        data = reply.data if isinstance(reply.data, Mapping) else {}
        task, content = data.get("task"), data.get("content")
        if data.get("same") is False:
            return None, "they differ"
        if data.get("same") is not True or not _is_text(task, 2_000) or not _is_text(content, 65_536):
            return None, "invalid_reply"
        made.task, made.content, made.reason = str(task), str(content), "model"
        stopped = self._check_cluster(made, records)
        return (None, "; ".join(stopped)) if stopped else (made, "")

    def _check_cluster(self, cluster: Cluster, records: Sequence[Record]) -> list[str]:
        """Return what speaks against merging: the guards of `evolving`, for each of the sources."""
        texts = [f"{each.fields['task']}\n{each.content}" for each in records]
        new = f"{cluster.task}\n{cluster.content}"
        if len({plain_text(text) for text in [*texts, new]}) == 1:
            return []
        return check_merge(texts, new)

    def _read_plan(self, token: Token, plan: Mapping[str, Any]) -> list[Cluster]:
        told = plan.get("clusters")
        if not isinstance(told, list) or len(told) > 10_000:
            raise invalid("/plan/clusters", "a plan is what a dry run gave")
        try:
            clusters = [Cluster.from_json(each) for each in told]
        except ValueError as error:
            raise invalid("/plan/clusters", str(error)) from error
        named = [id for cluster in clusters for id in (cluster.keep, *cluster.others)]
        if len(set(named)) < len(named):
            raise invalid("/plan/clusters", "an entry stands in it twice")
        count = sum(
            1 for known in self.catalog.all("knowledge") if not known.merged_into and self.catalog.sees(token, known)
        )
        if sum(len(cluster.others) for cluster in clusters) > math.ceil(count * SLIM_SHARE):
            raise KnowHubError("conflict", "more than a fifth of the entries would go at once")
        for cluster in clusters:
            records = [self._record(token, id, "knowledge") for id in (cluster.keep, *cluster.others)]
            places = {(frozenset(each.fields["scopes"]), each.created_by) for each in records}
            if len(places) > 1 or {each.id for each in records} != {cluster.keep, *cluster.others}:
                raise KnowHubError("conflict", "only entries of equal scopes and principal can be merged")
            if any(cluster.versions[each.id] != each.version for each in records):
                raise KnowHubError("conflict", "an entry was changed since: it outgrew the plan")
            stopped = self._check_cluster(cluster, records)
            if stopped:
                raise KnowHubError("conflict", "a guard stops the merging: " + "; ".join(stopped)[:500])
            self._check_secrets(cluster.task, cluster.content)
        return clusters

    def _merge(self, token: Token, clusters: Sequence[Cluster]) -> str:
        def plan() -> list[Record]:
            return [record for cluster in clusters for record in self._merge_one(token, cluster)]

        try:
            return self._write(token, "slim", plan)[0]
        except VersionConflictError as error:
            self.catalog.catch_up()
            raise KnowHubError("conflict", "an entry was changed meanwhile: it outgrew the plan") from error

    def _merge_one(self, token: Token, cluster: Cluster) -> list[Record]:
        best, *others = (self._record(token, id, "knowledge") for id in (cluster.keep, *cluster.others))
        own = {**best.fields, "task": cluster.task, "source": {**best.fields["source"]}}
        for name, limit in (("types", 20), ("resource_ids", 50)):
            joined = itertools.chain(own[name], *(other.fields[name] for other in others))
            own[name] = list(dict.fromkeys(joined))[:limit]
        urls = itertools.chain(own["source"]["urls"], *(other.fields["source"]["urls"] for other in others))
        own["source"]["urls"] = list(dict.fromkeys(urls))[:20]
        for other in others:
            own["tags"] = dict(list(({**other.fields["tags"], **own["tags"]}).items())[-20:])
        kept = Record(best.id, cluster.content, best.source, own, best.created_by)
        written = [self.ledger.update(kept, cluster.versions[best.id])]
        for other in others:
            led = {**other.fields, "merged_into": best.id}
            gone = Record(other.id, other.content, other.source, led, other.created_by)
            written.append(self.ledger.update(gone, cluster.versions[other.id]))
        return written

    # -- resources --

    def put_resource(
        self,
        token: Token,
        id: str,
        body: ResourceIn | Mapping[str, Any],
        version: int | None = None,
        key: str = "",
        *,
        keep_secret: bool = False,
    ) -> Json:
        """Keep a resource, or take the place of one that has this version; `secure_body` goes to the vault alone.

        Args:
            token: Who keeps it.
            id: A path of up to 8 segments.
            body: See `ResourceIn`.
            version: Which one it takes the place of; None makes a new one.
            key: As in `save`.
            keep_secret: Leave the secret that is there, where the body brings none.

        Cost: one sync; with a secret, three.
        """
        need(token, "write")
        body = parse(ResourceIn, body)
        self._check_scopes(token, body.scopes)
        told = json.dumps(body.metadata, ensure_ascii=False)
        self._check_secrets(body.title, body.body, told)
        old = self._resource_there(token, id)
        mark = _digest(f"{token.principal}\0{key}") if key else ""
        request = _digest(f"{id}\0{body.model_dump_json(exclude={'secure_body'})}")
        if old is not None and key and old.fields.get("idempotency") == mark:
            return self._first_resource(token, old, body, request)
        if old is None and version is not None:
            raise KnowHubError("changed", "there is no such version: the resource is not there")
        if old is not None:
            self._check_owner(token, old)
            self._check_scopes(token, body.scopes, old)
            if version is None:
                raise KnowHubError("version-needed", "the resource is there: If-Match must say which version is meant")
        expires_at = body.expires_at.timestamp() if body.expires_at else from_iso(body.metadata.get("expires_at"))
        own: Json = {"content_type": body.content_type, "metadata": body.metadata}
        own |= {"scopes": list(dict.fromkeys(body.scopes)), "owner": body.owner or token.principal}
        own["expires_at"] = iso_time(expires_at) if expires_at is not None else None
        own |= {"request": request, "idempotency": mark}
        before = str(old.fields.get("secret_ref") or "") if old is not None else ""
        secret = body.secret()
        own["secret_ref"] = self.vault.seal(f"resource/{id}", secret) if secret else before if keep_secret else ""
        record = Record(f"resource/{id}", body.body, body.title, own, old.created_by if old else token.principal)

        def plan() -> list[Record]:
            return self.ledger.create([record]) if old is None else [self.ledger.update(record, version or 0)]

        try:
            operation_id, [made] = self._changing(lambda: self._write(token, "keep", plan))
        except (KnowHubError, DuplicateIdError) as error:
            # What was sealed for nothing goes at once; where nobody knows whether it is named, the sweep decides.
            if secret and getattr(error, "code", "") != "outcome-unknown":
                self.vault.destroy(own["secret_ref"])
            if isinstance(error, DuplicateIdError):
                raise KnowHubError("conflict", "the id is in use") from error
            raise
        if before and before != own["secret_ref"]:
            self.vault.destroy(before)
        return {"resource": self._told_resource(made), "operation_id": operation_id}

    def _resource_there(self, token: Token, id: str) -> Record | None:
        """Return the resource of an id; of one that a token does not see it learns only that the id is in use."""
        check_resource_id(id)
        old = self.ledger.read(f"resource/{id}")
        if old is None:
            self.catalog.catch_up()
            old = self.ledger.read(f"resource/{id}")
        if old is not None and not sees(token, old):
            raise KnowHubError("conflict", "the id is in use")
        return old

    def _first_resource(self, token: Token, old: Record, body: ResourceIn, request: str) -> Json:
        reference = str(old.fields.get("secret_ref") or "")
        sealed = self.vault.open(reference, old.id) if reference else ""
        if old.fields.get("request") != request or (sealed is not None and sealed != body.secret()):
            raise KnowHubError("key-reused", "the Idempotency-Key was used for another body")
        entries = self.ledger.history(old.id, 1)
        return {"resource": self._told_resource(old), "operation_id": entries[0].operation_id if entries else ""}

    def _told_resource(self, record: Record) -> Json:
        own = record.fields
        told: Json = {"id": record.id.removeprefix("resource/"), "title": record.source, "body": record.content}
        told |= {name: own.get(name) for name in _RESOURCE_NAMES}
        told |= {"secret": self._secret_state(record), "version": record.version, "created_by": record.created_by}
        return told | {"created_at": iso_time(record.created_at), "updated_at": iso_time(record.updated_at)}

    def _secret_state(self, record: Record) -> str:
        reference = str(record.fields.get("secret_ref") or "")
        if not reference:
            return "none"
        if not self.vault.exists(reference):
            return "destroyed"
        expires_at = from_iso(record.fields.get("expires_at"))
        return "expired" if expires_at is not None and self._clock() >= expires_at else "sealed"

    def get_resource(self, token: Token, id: str) -> Json:
        """Return a resource without its secret; `secret` says `none`, `sealed`, `expired` or `destroyed`."""
        need(token, "read")
        check_resource_id(id)
        return self._told_resource(self._record(token, f"resource/{id}", "resource"))

    def list_resources(self, token: Token, query: ResourceQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of resources, newest first."""
        need(token, "read")
        query = parse(ResourceQuery, query)
        prefix = f"resource/{query.prefix or ''}"
        return self._page(
            "resource",
            lambda known: known.id.startswith(prefix) and self.catalog.sees(token, known),
            query,
            self._told_resource,
        )

    def delete_resource(self, token: Token, id: str, version: int | None = None) -> Json:
        """Hide a resource, undoably, and destroy its secret, for good."""
        need(token, "write")
        check_resource_id(id)
        record = self._record(token, f"resource/{id}", "resource")
        self._check_owner(token, record)
        seen = record.version if version is None else version
        operation_id, _ = self._changing(
            lambda: self._write(token, "drop", lambda: [self.ledger.delete(record.id, seen)])
        )
        self.vault.destroy(str(record.fields.get("secret_ref") or ""))
        self.catalog.catch_up()
        return {"id": id, "operation_id": operation_id}

    def reveal(self, token: Token, id: str) -> Json:
        """Return a secret to one with the right, and log who read it.

        Raises:
            KnowHubError: `forbidden`, `not-found`, `gone` once it has expired or was destroyed, `vault-locked`.
        """
        need(token, "secrets")
        check_resource_id(id)
        record = self._record(token, f"resource/{id}", "resource")
        state = self._secret_state(record)
        if state == "none":
            raise KnowHubError("not-found", "the resource has no secret")
        text = self.vault.open(record.fields["secret_ref"], record.id) if state == "sealed" else None
        if text is None:
            raise KnowHubError("gone", f"the secret is {'expired' if state == 'expired' else 'destroyed'}")
        _log.info("secret read: %s by %s", record.id, token.principal)
        return {"id": id, "secure_body": text}

    def sweep(self) -> None:
        """Destroy secrets that expired over an hour ago or that nobody names, and put expired tokens away."""
        self.catalog.catch_up()
        for known in self.catalog.all("resource"):
            if known.expires_at is not None and known.secret_ref and self._clock() >= known.expires_at + 3600:
                self.vault.destroy(known.secret_ref)
        self.vault.sweep(self.catalog.secret_references())
        self.tokens.sweep()

    # -- operations --

    def operations(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of the newest operations on what this token sees, newest first."""
        need(token, "read")
        query = parse(PageQuery, query)
        before = _read_cursor(query.cursor)
        found: list[Json] = []
        size = 4 * query.limit
        while True:
            entries = self.ledger.history(None, size)
            behind = [entry for entry in entries if before is None or entry.seq < before[0]]
            told = ((entry, self._told_entry(token, entry)) for entry in behind)
            seen = [(entry, shown) for entry, shown in told if shown is not None]
            if len(seen) > query.limit or len(entries) < size:
                break
            size *= 4
        found = [shown for _, shown in seen[: query.limit]]
        last = seen[query.limit - 1][0] if len(seen) > query.limit else None
        cursor = _write_cursor((float(last.seq), "")) if last is not None else None
        return {"results": found, "count": len(found), "next_cursor": cursor}

    def _told_entry(self, token: Token, entry: Entry) -> Json | None:
        if entry.op.split(":")[0] != "kh":
            return None
        ids = list(dict.fromkeys(record.id for record in entry.after if self._sees_version(token, record)))
        if not ids:
            return None
        may_undo = token.may("write") and (entry.principal == token.principal or token.may("curate"))
        return {**_told_operation(entry), "records": ids, "may_undo": may_undo}

    def _sees_version(self, token: Token, record: Record) -> bool:
        if record.kind == "trace":
            return record.created_by == token.principal
        if record.kind in ("feedback", "proposal"):
            entry = self.catalog.lead(str(record.fields.get("of")))
            scopes, owner = record.fields.get("scopes"), str(record.fields.get("owner"))
            is_seen = is_visible(token, scopes if isinstance(scopes, list) else (), owner)
            return is_seen and (entry is None or self.catalog.sees(token, entry))
        return sees(token, record)

    def undo(self, token: Token, operation_id: str) -> Json:
        """Take back an operation of one's own, or with `curate` another's, if all that it touched is seen.

        A secret that went does not come back: its resource says `destroyed` then.
        """
        need(token, "write")
        entry = self.ledger.find_operation(operation_id) if 0 < len(operation_id) <= 100 else None
        touched = [] if entry is None else [*entry.before, *entry.after]
        if entry is None or not touched or not all(self._sees_version(token, record) for record in touched):
            raise not_found()
        for record in touched:
            now = self.ledger.read(record.id)
            if now is not None and not self._sees_version(token, now):
                raise not_found()
        if entry.principal != token.principal and not token.may("curate"):
            raise KnowHubError("forbidden", "it is another's operation: undoing it needs the right `curate`")

        def plan() -> list[Record]:
            self.ledger.undo(operation_id)
            return []

        undone, _ = self._write(token, "undo", plan)
        self.catalog.catch_up()
        for record in entry.after:  # a secret that is named no more
            reference = str(record.fields.get("secret_ref") or "")
            now = self.ledger.read(record.id)
            if reference and (now is None or now.fields.get("secret_ref") != reference):
                self.vault.destroy(reference)
        return {"operation_id": undone, "undone": operation_id}

    # -- goals --

    def get_goals(self, token: Token, trace_id: str) -> Json:
        """Return a goal tree of one's own."""
        need(token, "read")
        record = self.ledger.read(f"trace/{trace_id}")
        if record is None:
            self.catalog.catch_up()
            record = self.ledger.read(f"trace/{trace_id}")
        if record is None or record.created_by != token.principal:
            raise not_found()
        return {"trace_id": trace_id, "goals": record.fields["goals"], "version": record.version}

    def put_goals(self, token: Token, trace_id: str, body: GoalsIn | Mapping[str, Any]) -> Json:
        """Keep a goal tree, in the place of the one that is there: it is its principal's alone."""
        need(token, "write")
        goals = parse(GoalsIn, body).model_dump(mode="json")["goals"]
        self._check_secrets(json.dumps(goals, ensure_ascii=False))
        for _ in range(ATTEMPTS):
            old = self.ledger.read(f"trace/{trace_id}")
            if old is not None and old.created_by != token.principal:
                raise KnowHubError("conflict", "the id is in use")
            own = {"goals": goals, "scopes": [OWNER_SCOPE], "owner": token.principal}
            record = Record(f"trace/{trace_id}", "", "", own, token.principal)

            def plan(old: Record | None = old, record: Record = record) -> list[Record]:
                return self.ledger.create([record]) if old is None else [self.ledger.update(record, old.version)]

            with contextlib.suppress(VersionConflictError, DuplicateIdError):
                operation_id, [made] = self._write(token, "goals", plan)
                return {"trace_id": trace_id, "version": made.version, "operation_id": operation_id}
            self.ledger.refresh()
        raise KnowHubError("conflict", "others changed it each time: try again")

    def list_goals(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of one's own goal trees, newest first."""
        need(token, "read")
        return self._page(
            "trace",
            lambda known: known.principal == token.principal,
            parse(PageQuery, query),
            lambda record: {"trace_id": record.id.removeprefix("trace/"), "goals": record.fields["goals"]},
        )

    # -- tokens --

    def make_token(self, token: Token, body: TokenIn | Mapping[str, Any]) -> Json:
        """Make a token; its text is told this once."""
        need(token, "admin")
        body = parse(TokenIn, body)
        expires_at = body.expires_at.timestamp() if body.expires_at else None
        text, made = self.tokens.make(body.principal, body.rights, body.scopes, expires_at)
        return {"token": text, **told_token(made)}

    def list_tokens(self, token: Token) -> Json:
        """Return all tokens, without their texts."""
        need(token, "admin")
        found = [told_token(each) for each in self.tokens.all()]
        return {"results": found, "count": len(found)}

    def revoke_token(self, token: Token, id: str) -> Json:
        """End a token, and the browsers that it logged in."""
        need(token, "admin")
        if not self.tokens.is_token(id) or not self.tokens.revoke(id):
            raise not_found()
        return {"id": id}

    # -- out and in --

    def export(self, token: Token) -> Iterator[Json]:
        """Yield all that a token sees, one object each, no secrets: what `take_in` reads.

        Cost: a page at a time; memory does not grow with the hub.
        """
        need(token, "read")
        for kind in ("knowledge", "resource", "feedback"):
            for known in self.catalog.all(kind):
                if kind == "feedback":
                    entry = self.catalog.lead(known.of)
                    is_seen = is_visible(token, known.scopes, known.owner)
                    if not is_seen or entry is None or not self.catalog.sees(token, entry):
                        continue
                elif not self.catalog.sees(token, known):
                    continue
                record = self.ledger.read(known.id)
                if record is not None and (kind == "feedback" or sees(token, record)):
                    yield {"kind": kind, **self._exported(record)}

    def _exported(self, record: Record) -> Json:
        own = record.fields
        told: Json = {"id": record.id.removeprefix("resource/")}
        if record.kind == "resource":
            told |= {"title": record.source, "body": record.content}
            return told | {name: own.get(name) for name in _RESOURCE_NAMES}
        if record.kind == "feedback":
            told |= {"knowledge_id": own["of"], "is_helpful": own["helpful"], "case": _case(record)}
            return told | {"created_by": record.created_by}
        told |= {"content": record.content, **{name: own[name] for name in (*_ENTRY_NAMES, "message_id")}}
        told |= {"source": {"name": record.source, **own["source"]}, "merged_into": own.get("merged_into") or ""}
        return told | {"created_at": iso_time(record.created_at), "created_by": record.created_by}

    def take_in(self, token: Token, lines: Iterable[Mapping[str, Any]]) -> Json:
        """Write what an export holds; what is there already is skipped, so a second time changes nothing.

        Who may `admin` keeps whose it was; for others all becomes their own.
        """
        need(token, "write")
        report: Json = {"written": 0, "skipped": 0, "errors": []}
        waiting: list[Record] = []
        kind: Any = ""
        for number, line in enumerate(lines, 1):
            if line.get("kind") != kind:  # feedback is of entries that must be there
                kind = line.get("kind")
                self._flush(token, waiting, report)
            try:
                record = self._take_in(token, line, waiting)
                if isinstance(record, Record):
                    waiting.append(record)
                else:
                    report["written" if record else "skipped"] += 1
            except KnowHubError as error:
                if error.code in ("outcome-unknown", "disk-full", "store-damaged"):
                    raise
                if len(report["errors"]) < _ERRORS_TOLD:
                    report["errors"].append({"line": number, "detail": error.detail})
            if len(waiting) >= _IMPORTED_AT_ONCE:
                self._flush(token, waiting, report)
        self._flush(token, waiting, report)
        return report

    def _flush(self, token: Token, waiting: list[Record], report: Json) -> None:
        """Write what an import has gathered, as one operation; where one of them is there by now, one by one."""
        if not waiting:
            return
        try:
            self._write(token, "import", lambda: self.ledger.create(waiting))
            report["written"] += len(waiting)
        except DuplicateIdError:
            for record in waiting:
                try:
                    self._write(token, "import", lambda record=record: self.ledger.create([record]))  # type: ignore[misc]
                    report["written"] += 1
                except DuplicateIdError:
                    report["skipped"] += 1
        waiting.clear()

    def _take_in(self, token: Token, line: Mapping[str, Any], waiting: list[Record]) -> Record | bool:
        """Return what a line brings; or whether it was written, which what is there already was not."""
        rest = dict(line)
        kind = rest.pop("kind", "knowledge")
        if kind == "resource":
            id = str(rest.pop("id", ""))
            check_resource_id(id)
            if self.ledger.read(f"resource/{id}") is not None:
                return False
            self.put_resource(token, id, parse(ResourceIn, rest))
            return True
        if kind == "feedback":
            return self._take_feedback(token, parse(FeedbackLine, rest), waiting)
        if kind != "knowledge":
            raise invalid("/kind", "a line is knowledge, a resource or feedback")
        body = parse(KnowledgeLine, rest)
        self._check_scopes(token, body.scopes)
        self._check_secrets(body.task, body.content, *body.tags.values())
        if self.ledger.read(body.id) is not None or any(each.id == body.id for each in waiting):
            return False
        whose = self._whose(token, body.created_by)
        own = self._fields(whose, body, "")
        if body.merged_into:
            own["merged_into"] = body.merged_into
        if body.created_at is not None and body.source.timestamp is None:
            own["source"]["timestamp"] = iso_time(body.created_at.timestamp())
        return Record(body.id, body.content, body.source.name, own, whose.principal)

    def _take_feedback(self, token: Token, body: FeedbackLine, waiting: list[Record]) -> Record | bool:
        self._check_secrets(*_texts(body.case))
        if self.ledger.read(body.id) is not None or any(each.id == body.id for each in waiting):
            return False
        record = self.ledger.read(body.knowledge_id)
        if record is None or not sees(token, record):
            raise not_found()
        made = self._feedback(self._whose(token, body.created_by), record, body.is_helpful, body.case, "", "", "")
        made.id = body.id
        return made

    def _whose(self, token: Token, created_by: str) -> Token:
        is_kept = created_by and token.may("admin")
        return Token(created_by, token.rights, token.scopes) if is_kept else token


# What the methods share


def need(token: Token, right: str) -> None:
    """Refuse a token that does not have a right.

    Raises:
        KnowHubError: `forbidden`.
    """
    if not token.may(right):
        raise KnowHubError("forbidden", f"the token does not have the right `{right}`")


def parse(model: type[_Body], value: _Body | Mapping[str, Any]) -> _Body:
    """Return a body as its model has it.

    Raises:
        KnowHubError: `invalid`, with a pointer to each field.
    """
    if isinstance(value, model):
        return value
    try:
        return model.model_validate(value.model_dump() if isinstance(value, BaseModel) else dict(value))
    except ValidationError as error:
        raise problem_of(error.errors(include_input=False, include_url=False)) from None
    except RecursionError:
        raise invalid("", "it is too deep") from None


def problem_of(errors: Sequence[Any], skip: int = 0) -> KnowHubError:
    """Return what is wrong, field by field; nothing that was said is repeated, not even the name of a field.

    Args:
        errors: As pydantic lists them.
        skip: So many steps of each place are not the body's.
    """
    told = []
    for error in errors[:50]:
        place = [str(step) for step in error["loc"][skip:]]
        detail = str(error["msg"])
        if error["type"] == "extra_forbidden":
            place, detail = place[:-1], "it has a field that is not known"
        elif "ctx" in error and error["type"] not in _HARMLESS:
            detail = _DETAILS.get(error["type"], "it is not valid")
        if "[key]" in place:  # the name of a tag, say
            place = place[: max(0, place.index("[key]") - 1)]
        pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in place if _is_ours(step))
        told.append({"pointer": pointer, "detail": detail.removeprefix("Value error, ")})
    first = told[0] if told else {"pointer": "", "detail": "it is not valid"}
    return KnowHubError("invalid", f"{first['pointer'] or 'the request'}: {first['detail']}", told)


_HARMLESS = frozenset(["string_too_long", "string_too_short", "greater_than_equal", "less_than_equal", "too_long"])
_HARMLESS |= {"too_short", "literal_error", "value_error", "string_pattern_mismatch", "int_parsing"}
_DETAILS = {"json_invalid": "it is not JSON", "datetime_from_date_parsing": "it is no time in ISO 8601"}
_MODELS: Sequence[type[BaseModel]] = (
    *(KnowledgeLine, KnowledgePatch, KnowledgeUpdate, BatchIn, SlimIn, ResourceIn, GoalsIn, TokenIn, AcceptIn, Case),
    *(FeedbackIn, FeedbackLine, SearchQuery, ListQuery, ResourceQuery, ProposalQuery, Source, GoalIn),
)
_FIELDS = frozenset(name for model in _MODELS for name in model.model_fields)


def _is_ours(step: str) -> bool:
    """Return whether a step of a place is the name of a field or an index: all else came from outside."""
    return step in _FIELDS or step.isdecimal()


def check_resource_id(id: str) -> None:
    """Refuse what is no id of a resource.

    Raises:
        KnowHubError: `invalid`.
    """
    if not isinstance(id, str) or len(id) > 200 or _RESOURCE_ID(id) is None:
        raise invalid("/id", "1 to 8 segments of letters, digits, `._-`, none of dots alone, 200 characters at most")


def told_token(token: Token) -> Json:
    """Return what is told of a token."""
    told: Json = {"id": token.digest, "principal": token.principal, "rights": sorted(token.rights)}
    told |= {"scopes": sorted(token.scopes), "created_at": iso_time(token.created_at)}
    return told | {"expires_at": iso_time(token.expires_at) if token.expires_at is not None else None}


def _told_operation(entry: Entry) -> Json:
    told = {"operation_id": entry.operation_id, "verb": entry.verb, "principal": entry.principal}
    return told | {"timestamp": iso_time(entry.timestamp)}


def _version(record: Record) -> Json:
    own = record.fields
    told: Json = {"deleted": record.deleted, "content": record.content, "created_by": record.created_by}
    if record.kind == "resource":
        return told | {"title": record.source, "scopes": own["scopes"], "content_type": own["content_type"]}
    return told | {name: own[name] for name in _ENTRY_NAMES} | {"merged_into": own.get("merged_into") or ""}


def _case(record: Record) -> Json:
    try:
        held = json.loads(record.content)
    except ValueError:
        held = {}
    return held if isinstance(held, dict) else {}


def _texts(case: Case) -> tuple[str, str, str]:
    return (case.task, case.outcome, case.reason)


def _split(text: str | None) -> frozenset[str] | None:
    return frozenset(text.split(",")) if text else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _who(token: Token) -> str:
    return token.parent or token.digest or token.principal


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_text(value: object, limit: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= limit and _is_storable(value)


def _likeness(terms: Mapping[str, set[str]], one: str, other: str) -> bool:
    mine, theirs = terms.get(one, set()), terms.get(other, set())
    return one != other and len(mine & theirs) >= _ALIKE * len(mine | theirs)


def _write_cursor(key: tuple[float, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def _read_cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    try:
        at, id = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if isinstance(at, float) and math.isfinite(at) and isinstance(id, str):
            return at, id
    except (ValueError, TypeError, RecursionError):
        pass
    raise invalid("/cursor", "it is none that a list gave")
