"""`CommitCoordinator`: a session's way into the store, in two transactions.

    1  what is new becomes archives, each with an event EXTRACT_ARCHIVE: from here nothing said can be lost
    2  candidates are extracted and planned, with no lock held; then all plans, the archive's ledger (what was applied,
       what failed, what waits) and the end of its event are committed together; where something waits, with another
       event, so that a worker goes on

After a crash in between a worker takes the event up. A ledger, which lies in the archive's metadata:

    state        "waiting" while something waits, "partial" where something failed, else "done"
    extractors   what read it, and which version of that; another one begins again
    waiting      the numbers of the messages that no extractor has read yet, or for whose candidates there was no room
    failed       the numbers of messages whose candidates were not all of use: `extract_again` asks for them, no worker
    applied      the ids of the candidates that were written: none is twice
    failures     what went wrong, each with how often

It is read again in the second transaction: where two extract one archive at once, the candidates of each message are
written by the one that is there first.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...base.checks import shorten
from ...base.text import mapping_of, strings_of
from ..core.config import EXTRACT_ARCHIVE, LEASE_S, MODEL_SECONDS, SESSIONS, SKIP
from ..core.entries import candidate_id
from ..core.errors import ContextEngineError, InvalidInputError, ProviderDownError, StoreError, VersionConflictError
from ..core.messages import forgotten_digest, read_messages, said_digest, tell_repeats
from ..core.objects import (
    CandidateMemory,
    CommitResult,
    Message,
    OutboxEvent,
    RequestContext,
    SessionArchive,
    WritePlan,
    WriteResult,
)
from ..extraction.extractors import Allowance, ModelReader, Reading
from ..fs.context_fs import ContextFS
from ..fs.meta import Staged, read_meta
from ..fs.transaction import Transaction
from ..fs.uri import parse_uri, session_uri
from ..index.outbox_store import OutboxStore
from ..providers.library import mask
from .archive_builder import (
    ArchiveBuilder,
    archive_metadata,
    archive_title,
    render_archive,
    split_messages,
)
from .candidate_pipeline import CandidatePipeline, numbers_of
from .context_writer import ContextWriter, RelationWriter
from .policies import MergeAdvisor
from .policy_router import PolicyRouter

_FAILURES = 20


class CommitCoordinator:
    """Commits sessions; any number of threads and processes may, the same session too."""

    def __init__(
        self,
        fs: ContextFS,
        builder: ArchiveBuilder,
        pipeline: CandidatePipeline,
        router: PolicyRouter,
        writer: ContextWriter,
        relations: RelationWriter,
        outbox: OutboxStore,
        settle: Callable[[Sequence[OutboxEvent]], None],
        reader: ModelReader | None = None,
        advisor: MergeAdvisor | None = None,
    ) -> None:
        self._fs, self.builder, self._pipeline, self._router = fs, builder, pipeline, router
        self._writer, self._relations, self._outbox, self._settle = writer, relations, outbox, settle
        self._reader, self._advisor = reader, advisor

    @property
    def _versions(self) -> dict[str, int]:
        """What extracts, and which version of it: what an older one did can be done again."""
        return {"model" if self._reader is not None else "none": 1}

    def commit(
        self,
        ctx: RequestContext,
        messages: Sequence[Any],
        used_contexts: Sequence[str] | None = None,
        used_tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CommitResult:
        """Archive what is new of a session, and write what is worth keeping; see `ContextEngineService`."""
        session_uri(ctx)  # refuses a request without a session
        is_background, is_delta = _read_options(options)
        said = read_messages(messages, self._fs.clock(), mask)
        archives, events, commit_id = self._archive(ctx, said, used_contexts, used_tools, is_background, is_delta)
        self._settle(events)  # what was said is found while a model reads it, and where that hangs
        stats: dict[str, Any] = {"messages": len(said), "new": sum(len(each.recent_messages) for each in archives)}
        stats["archives"] = [archive.archive_uri for archive in archives]
        if not archives:
            return CommitResult(None, [], [], {**stats, "why": "the session's archives hold all of it"}, "unchanged")
        if is_background:
            stats["why"] = "a worker extracts it"
            return CommitResult(archives[-1], [], events, stats, "archived", commit_id)
        results: list[WriteResult] = []
        failures: list[dict[str, Any]] = []
        waits: list[str] = []
        candidates = 0
        allowance = self._begin()
        for archive in archives:
            place = archive.archive_uri, EXTRACT_ARCHIVE
            event = next((each for each in events if (each.uri, each.event_type) == place), None)
            if event is None:  # nothing of it is to be extracted
                continue
            if self._reader is not None and allowance.is_spent():
                self._leave_to_worker(ctx, event)
                waits.append(archive.archive_uri)
                continue
            try:
                done = self.extract(ctx, archive.archive_uri, [event.event_id], allowance=allowance)
            except ContextEngineError as error:
                if isinstance(error, StoreError) and not error.is_committed:
                    raise
                failures.append({"extractor": "commit", "error": str(error)[:300]})
                continue
            results += done.write_results
            events += done.outbox_events
            failures += done.stats["failures"]
            candidates += done.stats["candidates"]
            waits += [archive.archive_uri] if done.stats["waits"] else []
            commit_id = done.commit_id or commit_id
        stats |= {"candidates": candidates, "failures": failures, "waiting": waits}
        written = [result for result in results if result.action != SKIP]
        if not written:
            stats["why"] = _why(candidates, failures, self._reader is not None)
        status = "partial" if failures or waits else "committed" if written else "archived"
        return CommitResult(archives[-1], results, events, stats, status, commit_id)

    # -- the first transaction --

    def _archive(
        self,
        ctx: RequestContext,
        said: Sequence[Message],
        used_contexts: Sequence[str] | None,
        used_tools: Sequence[Any] | None,
        is_background: bool,
        is_delta: bool,
    ) -> tuple[list[SessionArchive], list[OutboxEvent], str]:
        """Write what is new as archives; none where nothing is. Under the lock: another one may commit the same."""
        with self._fs.locked():
            known = self.builder.known_ids(ctx, self.builder.names(ctx))
            batch = tell_repeats(said, [id if digest else "" for id, digest in known.items()], is_delta)
            new = [each for each in (_new(message, known) for message in batch) if each is not None]
            if not new:
                return [], [], ""
            with self._fs.transaction(ctx, "archive session") as tx:
                archives = self._stage(ctx, tx, new, used_contexts, used_tools, is_background)
            return archives, list(tx.events), tx.commit_id

    def _stage(
        self,
        ctx: RequestContext,
        tx: Transaction,
        new: Sequence[Message],
        used_contexts: Sequence[str] | None,
        used_tools: Sequence[Any] | None,
        is_background: bool,
    ) -> list[SessionArchive]:
        archives = []
        parts = split_messages(new)
        for place, (part, encoded) in enumerate(parts):
            is_last = place == len(parts) - 1
            used = (used_contexts, used_tools) if is_last else (None, None)
            archive = self.builder.build_archive(ctx, part, *used, after=place)
            uri = parse_uri(archive.archive_uri)
            meta = read_meta(uri, {})
            # Without a model only the use of tools is derived; but a worker may have one.
            is_done = self._reader is None and not archive.stats["used_tools"] and not is_background
            ledger = Ledger(self._versions if is_done else {}, set() if is_done else _numbers(archive))
            meta |= {"type": "session", "category": SESSIONS, "title": archive_title(archive)}
            meta["metadata"] = {**archive_metadata(archive, ledger.as_json()), "agent": ctx.agent_id}
            tx.put(uri, Staged(render_archive(part, archive.summary, encoded, self._fs.count_tokens), meta))
            if not is_done:
                # Its own process has a start before a worker takes it for dead, longer than it may ask a model.
                due = 0.0 if is_background else LEASE_S + MODEL_SECONDS
                self._outbox.append_batch([_to_extract(uri.text, _request(ctx))], due_in_s=due)
            archives.append(archive)
        return archives

    # -- the second transaction --

    def _begin(self) -> Allowance:
        """Begin a commit: what it may ask of models is counted again."""
        if self._advisor is not None:
            self._advisor.begin()
        return Allowance()

    def _leave_to_worker(self, ctx: RequestContext, event: OutboxEvent) -> None:
        """Let a worker take an archive at once: this commit may ask no more."""
        with self._fs.transaction(ctx, "leave to a worker") as tx:
            tx.ends.append(event.event_id)
            self._outbox.append_batch([event])

    def extract(
        self,
        ctx: RequestContext,
        archive_uri: str,
        ends: Sequence[str] = (),
        must: bool = False,
        allowance: Allowance | None = None,
    ) -> CommitResult:
        """Extract what waits in an archive, and write what was not applied yet.

        This is the end of the events `ends`; where some of the archive waits (`stats["waits"]`), another one takes
        their place if anything was done (`stats["is_further"]`), and else they stay. With `must` it asks again where
        something failed. A `ProviderDownError` says that nothing could be asked, and nothing was written.
        """
        allowance = allowance or self._begin()
        archive = self.builder.read(ctx, archive_uri)
        ledger = Ledger.read(self._fs.read_metadata(ctx, archive_uri)["metadata"], archive)
        wanted = ledger.wanted(self._versions, archive, must)
        if ends and wanted and self._reader is None and "model" in ledger.extractors:
            raise ProviderDownError("a model has begun to read this archive, and here is none")
        found = self._read(ctx, archive, wanted, allowance)
        if ends and found.unread == wanted and not found.candidates and _is_down(found.failures):
            raise ProviderDownError(found.failures[-1]["error"])
        limit = None if self._reader is None else allowance.candidates

        def write(tx: Transaction) -> tuple[Transaction, _Written]:
            return tx, self._write(ctx, tx, archive, found, wanted, must, ends, limit)

        tx, written = self._fs.run(ctx, "extract session", write)
        self._settle(tx.events)
        allowance.candidates -= len(written.results)
        failures = _summed([*found.failures, *written.failures])
        stats = {"candidates": len(found.candidates), "failures": failures}
        stats |= {"waits": written.waits, "is_further": written.is_further}
        status = "partial" if failures or written.waits else "committed"
        commit_id = tx.commit_id if tx.sequence else ""
        return CommitResult(archive, written.results, list(tx.events), stats, status, commit_id)

    def _read(self, ctx: RequestContext, archive: SessionArchive, wanted: set[int], allowance: Allowance) -> Reading:
        """Return what the wanted messages hold, and how asking went."""
        if not wanted:
            return Reading()
        said = archive.recent_messages
        made = Reading() if self._reader is None else self._reader.read(said, archive, ctx, wanted, allowance)
        archive.stats["reading"] = made
        made.candidates = self._pipeline.normalize_candidates(
            ctx, self._pipeline.extract_candidates(ctx, archive, said)
        )
        del archive.stats["reading"]
        return made

    def _write(
        self, ctx: RequestContext, tx: Transaction, archive: SessionArchive, found: Reading, read: set[int],
        must: bool, ends: Sequence[str], limit: int | None,
    ) -> "_Written":  # fmt: skip
        """Stage what was not applied yet, and the ledger; another process may have written there meanwhile."""
        uri = parse_uri(archive.archive_uri)
        staged = tx.look(uri)
        meta = staged.meta or {}
        ledger = Ledger.read(mapping_of(meta.get("metadata")), archive)
        still = ledger.wanted(self._versions, archive, must)
        mine = [each for each in found.candidates if not (named := numbers_of(each)) or named & still]
        new = [candidate for candidate in mine if candidate_id(candidate) not in ledger.applied]
        results, applied, refused = self._apply(ctx, new[:limit])

        def cited(candidates: Sequence[CandidateMemory]) -> set[int]:
            return set().union(*(numbers_of(each) or _numbers(archive) for each in candidates))

        over = cited(new[limit:]) if limit is not None else set()
        waiting = (still - read) | (still & found.unread) | over
        # What was refused is asked about again, on request: so is what a check has dropped.
        held = ledger.failed - read | (still & found.failed) | cited([candidate for candidate, _ in refused])
        failures = [failure for _, failure in refused]
        is_further = bool(applied) or waiting != still
        made = Ledger(self._versions, waiting, held - waiting, [*ledger.applied, *applied])
        if waiting or made.failed:
            made.failures = _summed([*ledger.failures, *found.failures, *failures])
        own = {**mapping_of(meta.get("metadata")), "ledger": made.as_json()}
        tx.put(uri, Staged(staged.files, {**meta, "metadata": own}))
        if is_further or not waiting:
            tx.ends += ends
        if is_further and waiting:
            self._outbox.append_batch([_to_extract(archive.archive_uri, _request(ctx))])
        return _Written(results, failures, bool(waiting), is_further)

    def _apply(
        self, ctx: RequestContext, candidates: Sequence[CandidateMemory]
    ) -> tuple[list[WriteResult], list[str], list[tuple[CandidateMemory, dict[str, Any]]]]:
        """Plan and stage candidates one by one: each plan is made from what those before it wrote."""
        results: list[WriteResult] = []
        applied: list[str] = []
        refused: list[tuple[CandidateMemory, dict[str, Any]]] = []
        for candidate in sorted(candidates, key=lambda each: each.category != "entities"):  # others may name them
            try:
                result = self.apply_plan(ctx, self._router.build_plan(candidate, ctx))
            except VersionConflictError:
                raise
            except ContextEngineError as error:
                failure = {"extractor": candidate.category, "error": f"{type(error).__name__}: {error}"[:300]}
                refused.append((candidate, failure))
                continue
            results.append(result)
            applied.append(candidate_id(candidate))
        return results, list(dict.fromkeys(applied)), refused

    def apply_plan(self, ctx: RequestContext, plan: WritePlan) -> WriteResult:
        """Write a plan with its edges."""
        result = self._writer.apply_plan(ctx, plan)
        if plan.relation_ops:
            self._relations.apply_edges(ctx, plan.target_uri, plan.relation_ops)
        if plan.outbox_events:
            self._outbox.append_batch([OutboxEvent(**{**_EVENT, **row}) for row in plan.outbox_events])
        return result

    def remember(self, ctx: RequestContext, candidate: CandidateMemory) -> tuple[WriteResult, list[OutboxEvent]]:
        """Write the caller's own candidate, through the same policies; `InvalidInputError` says that none can."""
        made = self._pipeline.normalize_candidates(ctx, [candidate])
        if not made:
            self._router.select_policy(candidate, ctx)
            raise InvalidInputError(f"this cannot be remembered: {shorten(candidate.content)}")
        self._begin()

        def write(tx: Transaction) -> tuple[WriteResult, list[OutboxEvent]]:
            return self.apply_plan(ctx, self._router.build_plan(made[0], ctx)), tx.events

        return self._fs.run(ctx, "remember", write)


class _Written(NamedTuple):
    """What a second transaction did."""

    results: list[WriteResult]
    failures: list[dict[str, Any]]
    waits: bool
    """Whether messages or candidates wait."""
    is_further: bool
    """Whether anything was done."""


@dataclass
class Ledger:
    """What became of an archive's messages, which are numbered from 1; see the top of this file."""

    extractors: dict[str, Any]
    waiting: set[int]
    failed: set[int] = field(default_factory=set)
    applied: list[str] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, metadata: Mapping[str, Any], archive: SessionArchive) -> "Ledger":
        """Return the ledger of an archive, as far as a hand has left it."""
        held = mapping_of(metadata.get("ledger"))

        def numbers(name: str) -> set[int]:
            rows = held.get(name)
            return _numbers(archive).intersection(rows if isinstance(rows, list) else ())

        def rows(name: str) -> list[dict[str, Any]]:
            value = held.get(name)
            return [row for row in map(mapping_of, value) if row] if isinstance(value, list) else []

        left = [ref.get("message", "") for row in rows("left") for ref in map(mapping_of, row.get("source_refs") or ())]
        waiting = numbers("waiting") | {int(name[1:]) for name in left if re.fullmatch(r"m\d{1,6}", str(name))}
        extractors, applied = mapping_of(held.get("extractors")), strings_of(held.get("applied"))
        return cls(extractors, waiting, numbers("failed"), applied, rows("failures"))

    def wanted(self, versions: Mapping[str, int], archive: SessionArchive, must: bool) -> set[int]:
        """Return the numbers of the messages that are to be read: all, where something else than these read it."""
        if self.extractors != versions:
            return _numbers(archive)
        return self.waiting | self.failed if must else self.waiting

    def as_json(self) -> dict[str, Any]:
        """Return it as it is kept."""
        state = "waiting" if self.waiting else "partial" if self.failed else "done"
        waiting, failed = sorted(self.waiting), sorted(self.failed)
        return {**vars(self), "state": state, "waiting": waiting, "failed": failed}


def _numbers(archive: SessionArchive) -> set[int]:
    return set(range(1, len(archive.recent_messages) + 1))


def _summed(failures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return failures, equal ones once with how often they were, and no more of them than a ledger should hold."""
    times: Counter[tuple[str, str]] = Counter()
    for failure in failures:
        more = failure.get("times")
        times[str(failure.get("extractor")), str(failure.get("error"))] += more if isinstance(more, int) else 1
    rows: list[dict[str, Any]] = [
        {"extractor": extractor, "error": error, **({"times": count} if count > 1 else {})}
        for (extractor, error), count in times.items()
    ]
    return rows[-_FAILURES:]


def _new(message: Message, known: Mapping[str, str]) -> Message | None:
    """Return a message that no archive holds, None for one that is there."""
    held = known.get(message.id)
    if held is None:
        return message
    digest = said_digest(message)
    again = f"{message.id}~{digest[:8]}"
    if held in (digest, forgotten_digest(message)) or again in known:
        return None
    # The same id for something else: both were said.
    return Message(again, message.role, message.text, message.at, message.name, message.raw)


def _read_options(options: Mapping[str, Any] | None) -> tuple[bool, bool]:
    if options is not None and not (isinstance(options, Mapping) and set(options) <= {"background", "delta"}):
        raise InvalidInputError(f"options may hold background and delta, not {shorten(options)}")
    return bool((options or {}).get("background")), bool((options or {}).get("delta"))


_EVENT = {"event_id": "", "uri": "", "payload": {}, "status": "pending", "retry_count": 0, "created_at": 0.0}


def _to_extract(archive_uri: str, payload: dict[str, Any]) -> OutboxEvent:
    return OutboxEvent("", EXTRACT_ARCHIVE, archive_uri, payload, "pending", 0, 0.0)


def _request(ctx: RequestContext) -> dict[str, Any]:
    """Return what a worker needs to do a request's work."""
    return {"user": ctx.user_id, "agent": ctx.agent_id, "session": ctx.session_id}


def _is_down(failures: Sequence[Mapping[str, Any]]) -> bool:
    names = ("ConnectionError", "TimeoutError", "APIConnectionError", "APITimeoutError", "ProviderDownError")
    return bool(failures) and all(failure["error"].startswith(names) for failure in failures)


def _why(candidates: int, failures: Sequence[object], has_model: bool) -> str:
    if failures:
        return "extracting failed; the archive holds all that was said"
    if candidates:
        return "all of it was known"
    found = "the model found nothing" if has_model else "without a model nothing is derived"
    return f"{found}; the archive holds all that was said"
