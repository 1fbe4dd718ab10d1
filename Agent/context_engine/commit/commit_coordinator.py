"""`CommitCoordinator`: a session's way into the store, in two transactions.

    1  what is new becomes archives, each with an event EXTRACT_ARCHIVE: from here nothing said can be lost
    2  candidates are extracted and planned, with no lock held; then all plans, the archive's ledger (what was applied,
       what failed, what waits) and the end of its event are committed together

After a crash in between a worker takes the event up. A ledger knows which candidates were applied: none is twice.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ..core.config import EXTRACT_ARCHIVE, LEASE_S, MODEL_CANDIDATES, MODEL_SECONDS, SESSIONS, SKIP
from ..core.entries import candidate_id
from ..core.errors import ContextEngineError, InvalidInputError, ProviderDownError, StoreError, VersionConflictError
from ..core.messages import read_messages, said_digest
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
from ..core.text import mapping_of, shorten, strings_of
from ..extraction.reading import Allowance, ModelReader
from ..fs.context_fs import ContextFS
from ..fs.meta import read_meta
from ..fs.transaction import Staged, Transaction
from ..fs.uri import check_context, parse_uri, session_uri
from .advisor import MergeAdvisor
from .archive_builder import (
    ArchiveBuilder,
    archive_metadata,
    archive_title,
    render_archive,
    split_messages,
)
from .candidate_pipeline import CandidatePipeline
from .context_writer import ContextWriter
from .policy_router import PolicyRouter
from .relation_writer import RelationWriter

__all__ = ["CommitCoordinator"]

_TRIES, _FAILURES = 3, 20
_LEDGER = ("state", "extractors", "applied", "failures")  # every ledger has these
_OPTIONS = frozenset(("background", "extract"))


class CommitCoordinator:
    """Commits sessions; any number of threads and processes may, the same session too.

    Args:
        fs: The main store.
        builder: What makes archives.
        pipeline: What extracts.
        router: What plans.
        writer: What writes plans.
        relations: What writes edges.
        reader: The model of the extractors, where there is one.
        advisor: The model of the policies, where there is one.
    """

    def __init__(
        self,
        fs: ContextFS,
        builder: ArchiveBuilder,
        pipeline: CandidatePipeline,
        router: PolicyRouter,
        writer: ContextWriter,
        relations: RelationWriter,
        reader: ModelReader | None = None,
        advisor: MergeAdvisor | None = None,
    ) -> None:
        self._fs, self.builder, self._pipeline, self._router = fs, builder, pipeline, router
        self._writer, self._relations, self._reader, self._advisor = writer, relations, reader, advisor

    @property
    def _versions(self) -> dict[str, int]:
        """What extracts, and which version of it: what an older one did can be done again."""
        return {"model" if self._reader is not None else "rules": 1}

    def commit(
        self,
        ctx: RequestContext,
        messages: Sequence[Any],
        used_contexts: Sequence[str] | None = None,
        used_tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CommitResult:
        """Archive what is new of a session, and write what is worth keeping; see `ContextEngineService`."""
        check_context(ctx)
        session_uri(ctx)
        chosen = _check_options(options)
        said = read_messages(messages, self._fs.clock())
        archives, events, commit_id = self._archive(
            ctx, said, used_contexts, used_tools, bool(chosen.get("background"))
        )
        stats: dict[str, Any] = {"messages": len(said), "new": sum(len(each.recent_messages) for each in archives)}
        stats["archives"] = [archive.archive_uri for archive in archives]
        if not archives:
            return CommitResult(None, [], [], {**stats, "why": "the session's archives hold all of it"}, "unchanged")
        if chosen.get("background"):
            stats["why"] = "a worker extracts it"
            return CommitResult(archives[-1], [], events, stats, "archived", commit_id)
        results: list[WriteResult] = []
        failures: list[dict[str, str]] = []
        waits: list[str] = []
        candidates = 0
        allowance = Allowance()
        for archive in archives:
            event = next(
                each for each in events if each.uri == archive.archive_uri and each.event_type == EXTRACT_ARCHIVE
            )
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
            waits += [archive.archive_uri] if done.stats.get("waiting") else []
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
    ) -> tuple[list[SessionArchive], list[OutboxEvent], str]:
        """Write what is new as archives; none where nothing is."""
        while True:
            names = self.builder.names(ctx)
            known = self.builder.known_ids(ctx)
            new = [each for each in (_new(message, known) for message in said) if each is not None]
            if not new:
                return [], [], ""
            try:
                with self._fs.transaction(ctx, "archive session") as tx:
                    tx.add_check(lambda seen=names: self._refuse_others(ctx, seen))  # type: ignore[misc]
                    archives = self._stage(ctx, tx, new, used_contexts, used_tools, is_background)
            except VersionConflictError:  # another one committed the same session: now less is new
                continue
            return archives, list(tx.events), tx.commit_id

    def _refuse_others(self, ctx: RequestContext, seen: list[str]) -> None:
        present = self.builder.names(ctx)
        if present != seen:
            raise VersionConflictError(session_uri(ctx), len(seen), len(present))

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
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            archive = self.builder.build_archive(
                ctx, part, used_contexts if is_last else None, used_tools if is_last else None
            )
            uri = parse_uri(archive.archive_uri)
            if place:  # names are given in a row
                head, _, digest = uri.name.partition("-")
                uri = parse_uri(f"{uri.parent}/{int(head) + place:04d}-{digest}")
                archive.archive_uri = uri.text
            meta = read_meta(uri, {})
            ledger: dict[str, Any] = {"state": "waiting", "extractors": {}, "applied": [], "failures": []}
            meta |= {"type": "session", "category": SESSIONS, "title": archive_title(archive)}
            meta["metadata"] = {**archive_metadata(archive, ledger), "agent": ctx.agent_id}
            tx.put(uri, Staged(render_archive(part, self._fs.count_tokens), meta))
            # Its own process has a start before a worker takes it for dead, longer than it may ask a model.
            tx.add_event(EXTRACT_ARCHIVE, uri.text, _request(ctx), 0.0 if is_background else LEASE_S + MODEL_SECONDS)
            archives.append(archive)
        return archives

    # -- the second transaction --

    def extract(
        self,
        ctx: RequestContext,
        archive_uri: str,
        ends: Sequence[str] = (),
        must: bool = False,
        allowance: Allowance | None = None,
    ) -> CommitResult:
        """Extract what an archive holds, and write what was not applied yet.

        Args:
            ctx: Whose it is.
            archive_uri: The archive.
            ends: The events that this is the end of. Where some of the archive waits, another one takes their place if
                this got further, and else they stay.
            must: Ask again where something failed.
            allowance: What may be asked of a model; None is as much as a commit may.

        Returns:
            `stats["waiting"]` tells what was not asked about, `stats["is_further"]` whether anything was.

        Raises:
            NodeNotFoundError: There is no such archive.
            ProviderDownError: No chunk could be asked about; nothing was written.
        """
        archive = self.builder.read(ctx, archive_uri)
        ledger = self._ledger(ctx, archive_uri)
        candidates = self._candidates(ctx, archive, ledger, must, allowance)
        asked = archive.stats
        del asked["allowance"]
        failures = _summed(asked["failures"])
        is_further = bool(candidates) or len(asked["done"]) > len(_ranges(ledger.get("done")))
        if self._reader is not None and asked["waiting"] and not is_further and ends and _is_down(failures):
            raise ProviderDownError(failures[-1]["error"])
        if self._advisor is not None:
            self._advisor.begin()
        for attempt in range(_TRIES):
            try:
                with self._fs.transaction(ctx, "extract session") as tx:
                    done = self._write(ctx, tx, archive, candidates, failures)
                    if not done.waits:
                        tx.ends += ends
                    elif is_further and ends:
                        tx.ends += ends
                        tx.add_event(EXTRACT_ARCHIVE, parse_uri(archive.archive_uri).text, _request(ctx))
                break
            except VersionConflictError:
                if attempt == _TRIES - 1:
                    raise
        stats = {"candidates": len(candidates), "failures": [*failures, *done.refused], "waiting": done.waits}
        status = "partial" if stats["failures"] or done.waits else "committed"
        stats["is_further"] = is_further
        return CommitResult(archive, done.results, list(tx.events), stats, status, tx.commit_id if tx.sequence else "")

    def _candidates(
        self,
        ctx: RequestContext,
        archive: SessionArchive,
        ledger: Mapping[str, Any],
        must: bool,
        allowance: Allowance | None,
    ) -> list[CandidateMemory]:
        """Return what is to be written of an archive; what became of asking a model is in its stats."""
        is_newer = ledger.get("extractors") != self._versions
        done = [] if is_newer else _ranges(ledger.get("done"))
        left = [] if is_newer else [made for made in map(_candidate_of, ledger.get("left") or ()) if made is not None]
        if must:
            done = [each for each in done if each not in _ranges(ledger.get("dropped"))]
        dropped = [] if is_newer or must else _ranges(ledger.get("dropped"))
        archive.stats |= {"done": done, "dropped": dropped, "waiting": [], "failures": [], "allowance": allowance}
        if left:  # which a commit before found, and had no room for
            archive.stats["waiting"] = list(ledger.get("waiting") or ())
            return self._pipeline.normalize_candidates(ctx, left)
        if ledger.get("state") == "done" and not is_newer:
            return []
        if self._reader is not None:
            self._reader.forget(archive.archive_uri)
        found = self._pipeline.extract_candidates(ctx, archive, archive.recent_messages)
        return self._pipeline.normalize_candidates(ctx, found)

    def _write(
        self,
        ctx: RequestContext,
        tx: Transaction,
        archive: SessionArchive,
        candidates: Sequence[CandidateMemory],
        failures: Sequence[dict[str, str]],
    ) -> "_Done":
        """Stage what was not applied yet, and the ledger; another process may have written there meanwhile."""
        ledger = self._ledger(ctx, archive.archive_uri)
        is_newer = ledger.get("extractors") != self._versions
        known = set(strings_of(ledger.get("applied")))
        new = [candidate for candidate in candidates if candidate_id(candidate) not in known]
        limit = MODEL_CANDIDATES if self._reader is not None else len(new)
        results, applied, refused = self._apply(ctx, new[:limit])
        asked = archive.stats
        done = sorted({*asked["done"], *(() if is_newer else _ranges(ledger.get("done")))})
        # What was refused is asked about again, when somebody wants that: so is what a check has dropped.
        dropped = done if refused else [each for each in asked["dropped"] if each in done]
        left = [asdict(candidate) for candidate in new[limit:]]
        waits = [*asked["waiting"], *(["candidates"] if left else [])]
        state = "waiting" if waits else "partial" if failures or refused or dropped else "done"
        made = {
            "state": state,
            "extractors": self._versions,
            "applied": [*strings_of(ledger.get("applied")), *applied],
            "failures": [*failures, *_summed(refused)],
            "done": done,
            "dropped": dropped,
            "waiting": asked["waiting"],
            "left": left,
        }
        self._write_ledger(tx, archive, {name: value for name, value in made.items() if value or name in _LEDGER})
        return _Done(results, _summed(refused), waits)

    def _ledger(self, ctx: RequestContext, uri: str) -> dict[str, Any]:
        return mapping_of(self._fs.read_metadata(ctx, uri)["metadata"].get("ledger"))

    def _apply(
        self, ctx: RequestContext, candidates: Sequence[CandidateMemory]
    ) -> tuple[list[WriteResult], list[str], list[dict[str, str]]]:
        """Plan and stage candidates one by one: each plan is made from what those before it wrote."""
        results: list[WriteResult] = []
        applied: list[str] = []
        refused: list[dict[str, str]] = []
        for candidate in candidates:
            try:
                result = self.apply_plan(ctx, self._router.build_plan(candidate, ctx))
            except VersionConflictError:
                raise
            except ContextEngineError as error:
                refused.append({"extractor": candidate.category, "error": f"{type(error).__name__}: {error}"[:300]})
                continue
            results.append(result)
            applied.append(candidate_id(candidate))
        return results, list(dict.fromkeys(applied)), refused

    def apply_plan(self, ctx: RequestContext, plan: WritePlan) -> WriteResult:
        """Write a plan with its edges."""
        result = self._writer.apply_plan(ctx, plan)
        if plan.relation_ops:
            self._relations.apply_edges(ctx, plan.target_uri, plan.relation_ops)
        return result

    def _write_ledger(self, tx: Transaction, archive: SessionArchive, ledger: Mapping[str, Any]) -> None:
        uri = parse_uri(archive.archive_uri)
        staged = tx.look(uri)
        meta = dict(staged.meta or {})
        meta["metadata"] = {**mapping_of(meta.get("metadata")), "ledger": dict(ledger)}
        tx.put(uri, Staged(staged.files, meta))

    def remember(self, ctx: RequestContext, candidate: CandidateMemory) -> tuple[WriteResult, str, list[OutboxEvent]]:
        """Write the caller's own candidate, through the same policies.

        Raises:
            InvalidInputError: It cannot be written: no such category, no text, or too long.
        """
        made = self._pipeline.normalize_candidates(ctx, [candidate])
        if not made:
            self._router.select_policy(candidate, ctx)
            raise InvalidInputError(f"this cannot be remembered: {shorten(candidate.content)}")
        if self._advisor is not None:
            self._advisor.begin()
        for attempt in range(_TRIES):
            with contextlib.suppress(*([VersionConflictError] if attempt < _TRIES - 1 else [])):
                with self._fs.transaction(ctx, "remember") as tx:
                    result = self.apply_plan(ctx, self._router.build_plan(made[0], ctx))
                return result, tx.commit_id if tx.sequence else "", list(tx.events)
        raise AssertionError("unreachable")


class _Done(NamedTuple):
    """What one transaction wrote of an archive's candidates."""

    results: list[WriteResult]
    refused: list[dict[str, str]]
    waits: list[Any]
    """The first message of each chunk that waits, and `"candidates"` where some of them do."""


def _ranges(held: object) -> list[tuple[int, int]]:
    """Return ranges of messages, from what a ledger holds."""
    rows = held if isinstance(held, list) else []
    return [
        (row[0], row[1])
        for row in rows
        if isinstance(row, (list, tuple)) and len(row) == 2 and all(type(each) is int for each in row)
    ]


def _candidate_of(row: object) -> CandidateMemory | None:
    """Return a candidate that a ledger holds; None for what a hand has spoilt."""
    with contextlib.suppress(TypeError, ValueError):
        made = CandidateMemory(**mapping_of(row))
        made.at, made.source_refs = float(made.at), [mapping_of(ref) for ref in made.source_refs]
        return made
    return None


def _summed(failures: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return failures, equal ones once, and no more of them than a ledger should hold."""
    counts = Counter((failure["extractor"], failure["error"]) for failure in failures)
    rows = [
        {"extractor": extractor, "error": error if count == 1 else f"{error} ({count} times)"}
        for (extractor, error), count in counts.items()
    ]
    more = [{"extractor": "model", "error": f"{len(rows) - _FAILURES} more kinds of failures"}]
    return rows[:_FAILURES] + (more if len(rows) > _FAILURES else [])


def _new(message: Message, known: Mapping[str, str]) -> Message | None:
    """Return a message that no archive holds, None for one that is there."""
    held = known.get(message.id)
    if held is None:
        return message
    digest = said_digest(message)
    again = f"{message.id}~{digest[:8]}"
    if held == digest or again in known:
        return None
    # The same id for something else: both were said.
    return Message(again, message.role, message.text, message.at, message.name, message.raw)


def _check_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not set(options) <= _OPTIONS:
        raise InvalidInputError(f"options may hold {', '.join(sorted(_OPTIONS))}, not {shorten(options)}")
    return dict(options)


def _request(ctx: RequestContext) -> dict[str, Any]:
    """Return what a worker needs to do a request's work."""
    return {"user": ctx.user_id, "agent": ctx.agent_id, "session": ctx.session_id}


def _is_down(failures: Sequence[Mapping[str, str]]) -> bool:
    names = ("ConnectionError", "TimeoutError", "APIConnectionError", "APITimeoutError", "ProviderDownError")
    return bool(failures) and all(failure["error"].startswith(names) for failure in failures)


def _why(candidates: int, failures: Sequence[object], has_model: bool) -> str:
    if failures:
        return "extracting failed; the archive holds all that was said"
    if candidates:
        return "all of it was known"
    found = "the model found nothing" if has_model else "nothing was stated in a way that a rule takes"
    return f"{found}; the archive holds all that was said"
