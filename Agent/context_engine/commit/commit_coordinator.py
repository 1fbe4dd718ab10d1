"""`CommitCoordinator`: a session's way into the store, in two transactions.

    1  what is new becomes archives, each with an event EXTRACT_ARCHIVE: from here nothing said can be lost
    2  candidates are extracted and planned, with no lock held; then all plans, the archive's ledger (what was applied,
       what failed, what waits) and the end of its event are committed together; where something waits, with another
       event, so that a worker goes on

After a crash in between a worker takes the event up. A ledger, which lies in the archive's metadata:

    state        "waiting" while something waits, "partial" where something failed, else "done"
    extractors   what read it, and which version of that; another one begins again
    waiting      the numbers of the messages that no extractor has read yet
    left         candidates that a commit found, and had no room for
    failed       the numbers of messages whose candidates were not all of use: `extract_again` asks for them, no worker
    applied      the ids of the candidates that were written: none is twice
    failures     what went wrong, each with how often

It is read again in the second transaction: where two extract one archive at once, the candidates of each message are
written by the one that is there first.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ...base.text import mapping_of, shorten, strings_of
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
from ..extraction.extractors import Allowance, ModelReader
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

_TRIES, _FAILURES = 3, 20


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
            ledger = {"state": "waiting", "extractors": {}, "applied": [], "failures": []}
            if is_done:
                ledger |= {"state": "done", "extractors": self._versions, "waiting": [], "left": [], "failed": []}
            meta |= {"type": "session", "category": SESSIONS, "title": archive_title(archive)}
            meta["metadata"] = {**archive_metadata(archive, ledger), "agent": ctx.agent_id}
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
        ledger = mapping_of(self._fs.read_metadata(ctx, archive_uri)["metadata"].get("ledger"))
        wanted = self._wanted(ledger, archive, must)
        if ends and wanted and self._reader is None and "model" in mapping_of(ledger.get("extractors")):
            raise ProviderDownError("a model has begun to read this archive, and here is none")
        found = self._find_candidates(ctx, archive, set() if self._left(ledger) else wanted, allowance)
        if ends and found.unread == wanted and not found.candidates and _is_down(found.failures):
            raise ProviderDownError(found.failures[-1]["error"])
        limit = None if self._reader is None else allowance.candidates
        for attempt in range(_TRIES):
            try:
                with self._fs.transaction(ctx, "extract session") as tx:
                    results, refused, waits, is_further = self._write(ctx, tx, archive, found, must, limit)
                    if is_further or not waits:
                        tx.ends += ends
                    if is_further and waits:
                        self._outbox.append_batch([_to_extract(archive.archive_uri, _request(ctx))])
                break
            except VersionConflictError:
                if attempt == _TRIES - 1:
                    raise
        self._settle(tx.events)
        allowance.candidates -= len(results)
        stats = {"candidates": len(found.candidates), "failures": _summed([*found.failures, *refused])}
        status = "partial" if stats["failures"] or waits else "committed"
        stats |= {"waits": waits, "is_further": is_further}
        return CommitResult(archive, results, list(tx.events), stats, status, tx.commit_id if tx.sequence else "")

    def _is_newer(self, ledger: Mapping[str, Any]) -> bool:
        """Whether an archive was not read yet, or by something else than what reads it here."""
        return mapping_of(ledger.get("extractors")) != self._versions

    def _wanted(self, ledger: Mapping[str, Any], archive: SessionArchive, must: bool) -> set[int]:
        """Return the numbers of the messages that are to be read."""
        if self._is_newer(ledger):
            return _numbers(archive)
        waiting = _numbers_in(ledger.get("waiting"), archive)
        return waiting | _numbers_in(ledger.get("failed"), archive) if must else waiting

    def _left(self, ledger: Mapping[str, Any]) -> list[CandidateMemory]:
        """Return the candidates that a commit before found, and had no room for."""
        rows = [] if self._is_newer(ledger) else _rows_in(ledger.get("left"))
        return [made for made in map(_candidate_of, rows) if made is not None]

    def _find_candidates(
        self, ctx: RequestContext, archive: SessionArchive, wanted: set[int], allowance: Allowance
    ) -> "_Found":
        """Return what the wanted messages hold, and how asking went."""
        if not wanted:
            return _Found([], wanted, wanted, set(), [])
        asked = archive.stats
        asked |= {"waiting": sorted(wanted), "failed": [], "failures": [], "allowance": allowance}
        found = self._pipeline.extract_candidates(ctx, archive, archive.recent_messages)
        unread = set(asked["waiting"]) if self._reader is not None else set()  # what is counted is counted at once
        made = _Found(
            self._pipeline.normalize_candidates(ctx, found), wanted, unread, set(asked["failed"]), asked["failures"]
        )
        for name in ("waiting", "failed", "failures", "allowance", "found"):
            asked.pop(name, None)
        return made

    def _write(
        self, ctx: RequestContext, tx: Transaction, archive: SessionArchive, found: "_Found", must: bool,
        limit: int | None,
    ) -> tuple[list[WriteResult], list[dict[str, Any]], bool, bool]:  # fmt: skip
        """Stage what was not applied yet, and the ledger; another process may have written there meanwhile.

        Returns what was written, what was refused, whether messages or candidates wait, and whether anything was done.
        """
        uri = parse_uri(archive.archive_uri)
        staged = tx.look(uri)
        ledger = mapping_of(mapping_of((staged.meta or {}).get("metadata")).get("ledger"))
        still = self._wanted(ledger, archive, must)
        known, before = set(strings_of(ledger.get("applied"))), self._left(ledger)
        mine = [each for each in found.candidates if not (named := numbers_of(each)) or named & still]
        new = [
            candidate
            for candidate in self._pipeline.normalize_candidates(ctx, [*before, *mine])
            if candidate_id(candidate) not in known
        ]
        results, applied, refused = self._apply(ctx, new[:limit])
        left = [asdict(candidate) for candidate in new[limit:]] if limit is not None else []
        waiting = (still - found.wanted) | (still & found.unread)
        # What was refused is asked about again, on request: so is what a check has dropped.
        again = set().union(*(numbers_of(candidate) or _numbers(archive) for candidate, _ in refused))
        held = _numbers_in(ledger.get("failed"), archive) - found.wanted
        failed = (held | (still & found.failed) | again) - waiting
        reported = [failure for _, failure in refused]
        waits = bool(waiting or left)
        made = {
            "state": "waiting" if waits else "partial" if failed else "done",
            "extractors": self._versions,
            "waiting": sorted(waiting),
            "left": left,
            "failed": sorted(failed),
            "applied": [*strings_of(ledger.get("applied")), *applied],
            "failures": _summed([*_rows_in(ledger.get("failures")), *found.failures, *reported])
            if waits or failed
            else [],
        }
        meta = staged.meta or {}
        tx.put(uri, Staged(staged.files, {**meta, "metadata": {**mapping_of(meta.get("metadata")), "ledger": made}}))
        return results, reported, waits, bool(applied) or waiting != still or len(left) < len(before)

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
        for attempt in range(_TRIES):
            with contextlib.suppress(*([VersionConflictError] if attempt < _TRIES - 1 else [])):
                with self._fs.transaction(ctx, "remember") as tx:
                    result = self.apply_plan(ctx, self._router.build_plan(made[0], ctx))
                return result, list(tx.events)
        raise AssertionError("unreachable")


class _Found(NamedTuple):
    """What extractors found in an archive."""

    candidates: list[CandidateMemory]
    wanted: set[int]
    """The numbers of the messages that were to be read."""
    unread: set[int]
    """Those that could not be."""
    failed: set[int]
    """Those of whose candidates some were dropped."""
    failures: list[dict[str, Any]]


def _numbers(archive: SessionArchive) -> set[int]:
    return set(range(1, len(archive.recent_messages) + 1))


def _numbers_in(value: object, archive: SessionArchive) -> set[int]:
    """Return the numbers of an archive's messages in a list that a hand may have changed."""
    return {each for each in value if isinstance(each, int)} & _numbers(archive) if isinstance(value, list) else set()


def _rows_in(value: object) -> list[dict[str, Any]]:
    return [row for row in map(mapping_of, value) if row] if isinstance(value, list) else []


def _candidate_of(row: object) -> CandidateMemory | None:
    """Return a candidate that a ledger holds; None for what a hand has spoilt."""
    with contextlib.suppress(TypeError, ValueError):
        made = CandidateMemory(**mapping_of(row))
        made.at, made.source_refs = float(made.at), [mapping_of(ref) for ref in made.source_refs]
        return made
    return None


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
