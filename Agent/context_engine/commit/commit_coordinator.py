"""`CommitCoordinator`: a session's way into the store, in two transactions.

    1  what is new becomes archives, each with an event EXTRACT_ARCHIVE: from here nothing said can be lost
    2  candidates are extracted and planned, with no lock held; then all plans, the archive's ledger (what was applied,
       what failed, what waits) and the end of its event are committed together; where something waits, with another
       event, so that a worker goes on

After a crash in between a worker takes the event up. A ledger, which lies in the archive's metadata:

    state        "waiting" while something waits, "partial" where something failed, else "done"
    extractors   what read it, and which version of that; another one begins again
    waiting      the numbers of the messages that no extractor has read yet, or for whose candidates there was no room
    failed       whether some candidates were of no use: `extract_again` asks for all messages again, no worker does
    applied      the ids of the candidates that were written: none is twice
    failures     what went wrong, the last twenty of it

It is read again in the second transaction: where two extract one archive at once, the candidates of each message are
written by the one that is there first.
"""

from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.checks import shorten
from ...base.keys import hide_keys
from ...base.text import clean, count_tokens, cut_tokens, date_of, fold, mapping_of, merge_unique, one_line, strings_of
from ..core.config import EXTRACT_ARCHIVE, LEVEL_TOKENS, OWNER_OF, SESSIONS, SKIP
from ..core.entries import candidate_id
from ..core.errors import ContextEngineError, InvalidInputError, ProviderDownError, StoreError, VersionConflictError
from ..core.messages import forgotten_digest, read_messages, said_digest, tell_repeats
from ..core.objects import (
    LLM,
    CandidateExtractor,
    CandidateMemory,
    CommitResult,
    Message,
    OutboxEvent,
    RequestContext,
    SessionArchive,
    WritePlan,
    WriteResult,
)
from ..extraction import EXTRACTORS, MODEL_SECONDS, Allowance, ModelReader, Reading
from ..fs.context_fs import ContextFS, RelationStore
from ..fs.main_store import Transaction
from ..fs.meta import Staged, read_meta
from ..fs.uri import memory_uri, parse_uri, session_uri
from ..index.outbox_store import LEASE_S
from .archive_builder import ArchiveBuilder, next_number, render_archive, split_messages
from .context_writer import ContextWriter, RelationWriter
from .policies import Ask, PolicyRouter


class CandidatePipeline:
    """Calls all extractors; one that fails takes nothing from the others. A model is asked once for all of them."""

    def __init__(
        self, extractors: Sequence[CandidateExtractor] = EXTRACTORS, reader: ModelReader | None = None
    ) -> None:
        self.extractors, self._reader = list(extractors), reader

    def extract_candidates(
        self, ctx: RequestContext, archive: SessionArchive, messages: Sequence[Message]
    ) -> list[CandidateMemory]:
        """Return the candidates of all extractors; see `read`."""
        return self.read(ctx, archive, messages).candidates

    def read(
        self,
        ctx: RequestContext,
        archive: SessionArchive,
        messages: Sequence[Message],
        wanted: Container[int] | None = None,
        allowance: Allowance | None = None,
    ) -> Reading:
        """Return what the extractors find, which run in parallel, as far as the model's `concurrency` lets them.

        See `ModelReader.read`.
        """
        made = self._reader.read(messages, archive, ctx, wanted, allowance) if self._reader is not None else Reading()
        shown = replace(archive, stats={**archive.stats, "reading": made})

        def extract(extractor: CandidateExtractor) -> list[CandidateMemory]:
            try:
                return extractor.extract(messages, shown, ctx)
            except Exception as error:  # an extractor may be the caller's own
                text = hide_keys(error, extractor)[:300]
                made.failures.append({"extractor": type(extractor).__name__, "error": text})
                made.is_partial = True
                return []

        count = (self._reader.concurrency if self._reader is not None else None) or len(self.extractors)
        with ThreadPoolExecutor(max(1, count)) as pool:
            made.candidates = [each for found in pool.map(extract, self.extractors) for each in found]
        return made

    def normalize_candidates(self, ctx: RequestContext, candidates: Sequence[CandidateMemory]) -> list[CandidateMemory]:
        """Return candidates that can be written, each once, with the sources of all that say the same.

        What has no category, no text, or no name that can be a URI is left out.
        """
        merged: dict[tuple[str, ...], CandidateMemory] = {}
        for candidate in map(_cleaned, candidates):
            has_figures = candidate.category in ("skills", "tools") and candidate.overview
            if candidate.category not in OWNER_OF or not (candidate.content.strip() or has_figures):
                continue
            try:
                uri = memory_uri(ctx, candidate.category, candidate.routing_key or candidate.content[:60])
            except ContextEngineError:
                continue
            made = replace(
                candidate,
                owner_scope=OWNER_OF[candidate.category],
                routing_key=one_line(candidate.routing_key) or candidate.content[:60],
                abstract=cut_tokens(one_line(candidate.abstract), LEVEL_TOKENS["L0"]),
                overview=cut_tokens(candidate.overview, LEVEL_TOKENS["L1"]),
            )
            if count_tokens(made.content) > LEVEL_TOKENS["L2"]:
                continue
            key = (candidate.category, uri, fold(candidate.content))
            known = merged.pop(key, None)  # what is said again goes behind what was said in between
            refs = merge_unique(known.source_refs if known else [], made.source_refs)
            merged[key] = replace(known or made, source_refs=refs, at=max(known.at if known else 0.0, made.at))
        # What was said later is written later, whatever finds it: of one moment it takes the other's place.
        return sorted(merged.values(), key=lambda made: (made.at, max(numbers_of(made), default=0)))


def numbers_of(candidate: CandidateMemory) -> set[int]:
    """Return the numbers of a candidate's source messages; none where the source is the whole archive."""
    named = (str(ref.get("message") or "") for ref in candidate.source_refs)
    return {int(name[1:]) for name in named if name[:1] == "m" and name[1:].isascii() and name[1:].isdecimal()}


def _cleaned(candidate: CandidateMemory) -> CandidateMemory:
    """Return a candidate with texts that are valid UTF-8."""
    names = ("routing_key", "abstract", "overview", "content", "key")
    texts: dict[str, Any] = {name: clean(str(getattr(candidate, name))) for name in names}
    return replace(candidate, **texts)


_FAILURES = 20


class CommitCoordinator:
    """Commits sessions; any number of threads and processes may, the same session too."""

    def __init__(self, fs: ContextFS, relations: RelationStore, ask: Ask, llm: LLM | None = None) -> None:
        self._fs = fs
        self._reader = ModelReader(llm, fs.count_tokens) if llm is not None else None
        self.builder = ArchiveBuilder(fs)
        self._pipeline = CandidatePipeline(reader=self._reader)
        self._router = PolicyRouter(fs, ask)
        self._writer, self._relations = ContextWriter(fs), RelationWriter(relations)
        # The extractor and its version; archives of an older one can be extracted again.
        self._versions = {"none" if llm is None else "model": 1}

    def commit(
        self,
        ctx: RequestContext,
        messages: Sequence[Any],
        used_contexts: Sequence[str] | None = None,
        used_tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CommitResult:
        """Archive new messages of a session, and write memories; see `ContextEngineService.commit_session`."""
        session_uri(ctx)  # refuses a request without a session
        is_background, is_delta = _read_options(options)
        said = read_messages(messages, self._fs.clock())
        archives, events, commit_id = self._archive(ctx, said, used_contexts, used_tools, is_background, is_delta)
        stats: dict[str, Any] = {"messages": len(said), "new": sum(len(each.recent_messages) for each in archives)}
        stats["archives"] = [archive.archive_uri for archive in archives]
        if not archives:
            return CommitResult(None, [], [], {**stats, "why": "the session's archives hold all of it"}, "unchanged")
        made = CommitResult(archives[-1], [], events, stats, "archived", commit_id)
        if is_background:
            stats["why"] = "a worker extracts it"
            return made
        allowance = Allowance()
        stats |= {"candidates": 0, "failures": [], "waiting": []}
        for event in [each for each in events if each.event_type == EXTRACT_ARCHIVE]:
            self._extract_now(ctx, event, allowance, made)
        is_written = any(result.action != SKIP for result in made.write_results)
        if not is_written:
            stats["why"] = _why(stats["candidates"], stats["failures"], self._reader is not None)
        if stats["failures"] or stats["waiting"]:
            made.status = "partial"
        elif is_written:
            made.status = "committed"
        return made

    def _extract_now(self, ctx: RequestContext, event: OutboxEvent, allowance: Allowance, made: CommitResult) -> None:
        """Extract an archive of this commit; after a failure a worker goes on, since the archive is written."""
        try:
            done = self.extract(ctx, event.uri, [event.event_id], allowance=allowance)
        except ContextEngineError as error:
            if isinstance(error, StoreError) and not error.is_committed:
                raise
            made.stats["failures"].append({"extractor": "commit", "error": str(error)[:300]})
            return
        made.write_results += done.write_results
        made.outbox_events += done.outbox_events
        made.commit_id = done.commit_id or made.commit_id
        made.stats["candidates"] += done.stats["candidates"]
        made.stats["failures"] += done.stats["failures"]
        made.stats["waiting"] += [event.uri] if done.stats["waits"] else []

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
        """Write new messages as archives. The lock is held: another process may commit the same session."""
        with self._fs.locked():
            names = self.builder.names(ctx)
            known = self.builder.known_ids(ctx, names)
            batch = tell_repeats(said, [id if digest else "" for id, digest in known.items()], is_delta)
            new = [each for each in (_new(message, known) for message in batch) if each is not None]
            if not new:
                return [], [], ""
            archives: list[SessionArchive] = []
            parts = split_messages(new)
            with self._fs.transaction(ctx, "archive session") as tx:
                for number, (part, encoded) in enumerate(parts, next_number(names)):
                    used = (used_contexts, used_tools) if part is parts[-1][0] else (None, None)
                    archives.append(self.builder.build_archive(ctx, part, *used, number=number))
                    self._stage(tx, archives[-1], encoded, is_background)
            return archives, list(tx.events), tx.commit_id

    def _stage(self, tx: Transaction, archive: SessionArchive, encoded: bytes, is_background: bool) -> None:
        """Stage an archive, with an event that asks to extract it where anything is to be extracted."""
        uri = parse_uri(archive.archive_uri)
        # Without a model only the use of tools is derived; but a worker may have one.
        is_done = self._reader is None and not archive.stats["used_tools"] and not is_background
        ledger = Ledger(self._versions if is_done else {}, set() if is_done else _numbers(archive))
        title = one_line(f"{archive.session_id} {date_of(archive.stats['at'])}")
        own = {"session": archive.session_id, "stats": archive.stats, "ledger": ledger.as_json()}
        meta = read_meta(uri, {}) | {"type": "session", "category": SESSIONS, "title": title}
        meta["metadata"] = {**own, "agent": tx.ctx.agent_id}
        files = render_archive(archive.recent_messages, archive.summary, encoded, self._fs.count_tokens)
        tx.put(uri, Staged(files, meta))
        if not is_done:
            # Its own process has a start before a worker takes it for dead, longer than it may ask a model.
            due = 0.0 if is_background else LEASE_S + MODEL_SECONDS
            _ask_to_extract(tx, uri.text, due)

    # -- the second transaction --

    def extract(
        self,
        ctx: RequestContext,
        archive_uri: str,
        ends: Sequence[str] = (),
        must: bool = False,
        allowance: Allowance | None = None,
    ) -> CommitResult:
        """Extract waiting messages of an archive, and write candidates that were not applied yet.

        This is the end of the events `ends`; where some of the archive waits (`stats["waits"]`), another event takes
        their place, for a worker only if anything was done (`stats["is_further"]`): else it would never end. With
        `must` it asks again where something failed. A commit gives the `allowance` that its archives share. A
        `ProviderDownError` says that the model or the index could not be asked, and nothing was written.
        """
        is_commit, allowance = allowance is not None, allowance or Allowance()
        archive = self.builder.read(ctx, archive_uri)
        ledger = Ledger.read(self._fs.read_metadata(ctx, archive_uri)["metadata"], archive)
        wanted = ledger.wanted(self._versions, archive, must)
        if ends and wanted and self._reader is None and "model" in ledger.extractors:
            raise ProviderDownError("a model has begun to read this archive, and here is none")
        found = Reading()
        if wanted:
            found = self._pipeline.read(ctx, archive, archive.recent_messages, wanted, allowance)
            found.candidates = self._pipeline.normalize_candidates(ctx, found.candidates)
        if ends and found.unread == wanted and not found.candidates and _is_down(found.failures):
            raise ProviderDownError(found.failures[-1]["error"])
        limit = None if self._reader is None else allowance.candidates

        def write(tx: Transaction) -> tuple[Transaction, CommitResult]:
            done = self._write(ctx, tx, archive, found, wanted, must, limit)
            if done.stats["is_further"] or is_commit or not done.stats["waits"]:
                tx.ends += ends
                if done.stats["waits"]:
                    _ask_to_extract(tx, archive.archive_uri)
            return tx, done

        tx, done = self._fs.run(ctx, "extract session", write)
        allowance.candidates -= len(done.write_results)
        done.outbox_events, done.commit_id = list(tx.events), tx.commit_id if tx.sequence else ""
        return done

    def _write(
        self,
        ctx: RequestContext,
        tx: Transaction,
        archive: SessionArchive,
        found: Reading,
        read: set[int],
        must: bool,
        limit: int | None,
    ) -> CommitResult:
        """Stage candidates that were not applied yet, and the ledger, as another process may have left it."""
        uri = parse_uri(archive.archive_uri)
        staged = tx.look(uri)
        own = staged.meta["metadata"]
        ledger = Ledger.read(own, archive)
        still = ledger.wanted(self._versions, archive, must)
        mine = [each for each in found.candidates if not (named := numbers_of(each)) or named & still]
        new = [candidate for candidate in mine if candidate_id(candidate) not in ledger.applied]
        results, applied, refused = self._apply(ctx, new[:limit])

        def cited(candidates: Sequence[CandidateMemory]) -> set[int]:
            return set().union(*(numbers_of(each) or _numbers(archive) for each in candidates))

        over = cited(new[limit:]) if limit is not None else set()
        waiting = (still - read) | (still & found.unread) | over
        # What was refused is asked about again, on request: so is what a check has dropped.
        is_failed = found.is_partial or bool(refused) or (ledger.failed and not must)
        failures = merge_unique(found.failures, refused)[-_FAILURES:]
        made = Ledger(self._versions, waiting, is_failed, [*ledger.applied, *applied])
        if waiting or made.failed:
            made.failures = merge_unique(ledger.failures, failures)[-_FAILURES:]
        tx.put(uri, Staged(staged.files, staged.meta | {"metadata": {**own, "ledger": made.as_json()}}))
        stats: dict[str, Any] = {"candidates": len(found.candidates), "failures": failures}
        stats |= {"waits": bool(waiting), "is_further": bool(applied) or waiting != still}
        return CommitResult(archive, results, [], stats, "partial" if failures or waiting else "committed")

    def _apply(
        self, ctx: RequestContext, candidates: Sequence[CandidateMemory]
    ) -> tuple[list[WriteResult], list[str], list[dict[str, Any]]]:
        """Plan and stage candidates one by one: each plan sees the writes of those before it."""
        results: list[WriteResult] = []
        applied: list[str] = []
        refused: list[dict[str, Any]] = []
        for candidate in sorted(candidates, key=lambda each: each.category != "entities"):  # others may name them
            try:
                result = self.apply_plan(ctx, self._router.build_plan(candidate, ctx))
            except (VersionConflictError, ProviderDownError):  # it is tried again
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

    def remember(self, ctx: RequestContext, candidate: CandidateMemory) -> WriteResult:
        """Write the caller's own candidate, through the same policies; `InvalidInputError` says that none can."""
        made = self._pipeline.normalize_candidates(ctx, [candidate])
        if not made:
            self._router.select_policy(candidate, ctx)
            raise InvalidInputError(f"this cannot be remembered: {shorten(candidate.content)}")
        return self._fs.run(ctx, "remember", lambda tx: self.apply_plan(ctx, self._router.build_plan(made[0], ctx)))


@dataclass
class Ledger:
    """The state of an archive's messages, numbered from 1; see the top of this file."""

    extractors: dict[str, Any]
    waiting: set[int]
    failed: bool = False
    applied: list[str] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, metadata: Mapping[str, Any], archive: SessionArchive) -> "Ledger":
        """Return the ledger of an archive; values of a wrong type, after an edit, are left out."""
        held = mapping_of(metadata.get("ledger"))
        waiting, failures = held.get("waiting"), held.get("failures")
        numbers = _numbers(archive).intersection(waiting if isinstance(waiting, list) else ())
        kept = [row for row in map(mapping_of, failures if isinstance(failures, list) else ()) if row]
        extractors, applied = mapping_of(held.get("extractors")), strings_of(held.get("applied"))
        return cls(extractors, numbers, bool(held.get("failed")), applied, kept)

    def wanted(self, versions: Mapping[str, int], archive: SessionArchive, must: bool) -> set[int]:
        """Return the numbers of the messages that are to be read.

        They are all, where something else than these read it, or where some failed and they must be asked about again.
        """
        is_again = self.extractors != versions or (must and self.failed)
        return _numbers(archive) if is_again else self.waiting

    def as_json(self) -> dict[str, Any]:
        """Return it as it is kept."""
        state = "waiting" if self.waiting else "partial" if self.failed else "done"
        return {**vars(self), "state": state, "waiting": sorted(self.waiting)}


def _numbers(archive: SessionArchive) -> set[int]:
    return set(range(1, len(archive.recent_messages) + 1))


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


def _ask_to_extract(tx: Transaction, archive_uri: str, due_in_s: float = 0.0) -> None:
    owner = {"user": tx.ctx.user_id, "agent": tx.ctx.agent_id, "session": tx.ctx.session_id}
    tx.add_event(EXTRACT_ARCHIVE, archive_uri, owner, due_in_s)


def _is_down(failures: Sequence[Mapping[str, Any]]) -> bool:
    names = ("ConnectionError", "TimeoutError", "APIConnectionError", "APITimeoutError", "ProviderDownError")
    return bool(failures) and all(failure["error"].startswith(names) for failure in failures)


def _why(candidates: int, failures: Sequence[object], has_model: bool) -> str:
    if failures:
        return "extracting failed; the archive holds all that was said"
    if candidates:
        return "all of it was known"
    if has_model:
        return "the model found nothing; the archive holds all that was said"
    return "without a model nothing is derived; the archive holds all that was said"
