"""`ContextEngineService`: the engine behind one door.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> engine = ContextEngineService(folder.name)
>>> ada = RequestContext("acme", "ada", "helper", "s1")
>>> engine.commit_session(ada, [{"role": "user", "content": "我喜欢龙井，不加糖。"}]).status
'archived'
>>> block = engine.search_memory(ada, "龙井要加糖吗？").blocks[0]
>>> block.content_excerpt
'我喜欢龙井，不加糖。'
>>> engine.commit_session(ada, [{"role": "user", "content": "我喜欢龙井，不加糖。"}]).status
'unchanged'
>>> engine.search_memory(RequestContext("acme", "bob", "helper"), "龙井").blocks
[]
>>> engine.close(); folder.cleanup()
"""

import contextlib
import functools
import logging
import math
import operator
import os
import re
import sqlite3
import threading
import time
import unicodedata
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import datetime
from typing import Any, Self, TypeVar

from ..base.awaiting import Twin
from ..base.checks import check_methods, shorten
from ..base.keys import hide_keys
from ..base.text import CountTokens, clean, count_tokens, fold, one_line
from ..finding.embedder import Embedder as FinderEmbedder
from ..finding.embedder import Meaning, meaning_of
from ..finding.index import LostIndexError
from ..keyword_tree import LLMClient
from .care import FORGET, Forgetter, verify_store
from .commit.commit_coordinator import CommitCoordinator
from .commit.policies import DANGER
from .core.config import BUDGET_TOKENS, EXTRACT_ARCHIVE, OWNER_OF
from .core.errors import (
    ContextEngineError,
    InvalidInputError,
    InvalidUriError,
    NodeNotFoundError,
    ProviderDownError,
    check_count,
    check_time,
)
from .core.messages import split_export
from .core.objects import (
    LLM,
    Brief,
    CandidateMemory,
    CommitResult,
    ContextNode,
    Embedder,
    ForgetResult,
    GraphStore,
    HistoryEntry,
    IndexBatchResult,
    NodeHit,
    NodeSummary,
    OutboxEvent,
    RequestContext,
    Reranker,
    RetrievedBlock,
    SearchResult,
    SeedHit,
    SessionArchive,
    TypedQuery,
    VectorIndex,
)
from .fs.context_fs import ContextFS, RelationStore
from .fs.folders import Disk
from .fs.uri import category_uri, check_access, is_visible, parse_uri, space_uris
from .index.index_worker import IndexSpaces, IndexWorker, batches, context_of
from .index.outbox_store import OutboxStore
from .providers import IndexedVectors, WordIndex, as_embedder, as_llm
from .retrieval import HierarchicalSearcher, L0Retriever, MemoryReadService, QueryPlanner, RetrievalAssembler, spaces_of

_log = logging.getLogger(__name__)

T = TypeVar("T")


def _unmarked(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKD", fold(text)) if not unicodedata.combining(char))


_BRIEF = {"preferences": 1_000, "events": 20}  # the newest nodes that are read
_WARNS = """
allerg alerg alerji anaphyla anafila intoleran celiac coeliac celiaq zoliakie epilep diabet cukrzyc asthma astma
medicat medikament medicament medicin emergenc notfall urgence 过敏 不耐受 忌口 癫痫 糖尿病 哮喘 急救 用药
アレルギー 喘息 てんかん 알레르기 당뇨 천식 аллерг алерг эпилеп диабет астм αλλεργ επιλη διαβητ אלרג אפילפסי סוכרת
حساسية صرع سكري एलर्जी मधुमेह แพ้ เบาหวาน
"""
_DANGER = re.compile("|".join([r"\b(?:di ung|hen suyen|asma)", *map(re.escape, _unmarked(_WARNS).split())]))
"""Words of dangers in 20 languages, without accents: for memories that no model has marked."""



class ContextEngineService:
    """A long-term memory in a folder; a context manager, and safe to use from many threads and processes.

    Args:
        folder: Where it lies; made where it is not there. None makes one that goes when the engine is closed: for
            tests, and for what is not to be kept.
        llm: A model that extracts, as `LLM` or as the library's `LLMClient`. Without one sessions are
            archived and searched, and profile, preferences and entities are what `remember` writes.
        meaning: How to compare by meaning, beside words: True is the small model of the extra `[local]` where it is
            installed, False goes by words.
        embedder: Takes its place: an `Embedder` or one of `finding.embedder`.
        reranker: Orders the first blocks again.
        vector_index: Where the embedder's vectors are kept; None keeps them in the index. Each record has its `vector`
            and its `part` in the metadata.
        graph: A copy of the relations.
        index: `"inline"` lets a search find what was just said; `"worker"` leaves that to who calls `work`.
        clock: Seconds since the epoch.
        new_id: Makes ids of commits.
        count_tokens: How long a text is for the model that reads the blocks.

    Attributes:
        fs: The main store: nodes, transactions, history.
        outbox: What the index has still to look at.
        worker: Who looks.

    Raises:
        StoreError: The folder cannot be used.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        llm: LLM | LLMClient | None = None,
        meaning: Meaning | FinderEmbedder | bool = True,
        embedder: Embedder | FinderEmbedder | None = None,
        vector_index: VectorIndex | None = None,
        reranker: Reranker | None = None,
        graph: GraphStore | None = None,
        index: str = "inline",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        count_tokens: CountTokens = count_tokens,
        disk: Disk | None = None,
    ) -> None:
        if index not in ("inline", "worker"):
            raise InvalidInputError(f"index must be 'inline' or 'worker', not {shorten(index)}")
        check_methods("llm", llm, "complete_json", "Chat")
        check_methods("reranker", reranker, "rerank")
        check_methods("vector_index", vector_index, "search")
        check_methods("graph", graph, "upsert_edges")
        if not callable(count_tokens):
            raise InvalidInputError(f"count_tokens must be a function of a text, not {shorten(count_tokens)}")
        if vector_index is not None and embedder is None:
            raise InvalidInputError("vector_index needs an embedder, which makes the vectors")
        own = None if embedder is None else as_embedder(embedder)
        compared, beside = meaning_of(meaning if own is None else own), None
        if own is not None and vector_index is not None:
            beside = functools.partial(IndexedVectors, own, vector_index, lambda uri: self.worker.records_of(uri))
        self._embeds = compared is not None
        self._reranker = reranker
        self.fs = ContextFS(folder, clock=clock, new_id=new_id, count_tokens=count_tokens, disk=disk)
        self.relations = RelationStore(self.fs)
        self.outbox = OutboxStore(self.fs.journal, clock)
        self.spaces = IndexSpaces(self.fs.space / "index", None if beside else compared, beside)
        self.worker: IndexWorker = IndexWorker(self.fs, self.outbox, self.spaces, graph=graph)
        self._lock = threading.RLock()
        self.coordinator = CommitCoordinator(self.fs, self.relations, self._ask, as_llm(llm))
        self.planner = QueryPlanner()
        self.retriever = L0Retriever(self.fs, self.words, self._on_stale)
        self.searcher = HierarchicalSearcher(self.words)
        self.assembler = RetrievalAssembler(self.fs, self.words, self._on_stale)
        self.reader = MemoryReadService(self.fs, self.relations)
        self._forgetter = Forgetter(self.fs, self.worker, self.spaces, self.outbox)
        self.worker.handlers[EXTRACT_ARCHIVE] = self._extract_event
        self.worker.handlers[FORGET] = self._finish_forgetting
        if index == "inline":
            self.fs.on_commit = self._settle
            self._work_off()

    def close(self) -> None:
        """Sync all files, and close the store.  Closing twice is no error."""
        self.fs.close()
        self.spaces.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self.fs.root)!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- the index --

    def words(self, uri: str) -> WordIndex:
        """Return the words of the space that a URI lies in; an index that knows nothing yet is made first."""
        self.fs.require_open()
        found = self.spaces.words(uri)
        if found.is_new:
            with self._lock:
                if found.is_new:
                    self.worker.reconcile(parse_uri(uri).space, recursive=True)
        return found

    def _safely(self, run: Callable[[], T]) -> T:
        """Run a call that uses indexes; a damaged one is empty by now, and is made again by the next attempt."""
        failure: Exception | None = None
        for _ in range(3):  # a question looks into two
            try:
                return run()
            except ContextEngineError:
                raise
            except LostIndexError as error:
                failure = error
                _log.warning("an index was damaged, and is made again: %s", error)
            except (sqlite3.Error, OSError) as error:
                failure = error
                break
        raise ProviderDownError(f"the index cannot be used, the files are whole: {failure}") from failure

    def _ask(self, uri: str, ask: Callable[[WordIndex], T]) -> T:
        return self._safely(lambda: ask(self.words(uri)))

    def _on_stale(self, uri: str) -> None:
        """Index a place again where index and store differ; one that another program reads follows later."""
        with contextlib.suppress(ContextEngineError, sqlite3.Error, OSError):
            self.worker.reconcile(uri, recursive=True)

    def _settle(self, events: Sequence[OutboxEvent]) -> None:
        """Index the nodes of a commit before it returns; failures stay in the outbox for a worker."""
        mine = (each for each in events if each.event_type not in (EXTRACT_ARCHIVE, FORGET))
        for batch in batches(sorted(mine, key=lambda event: parse_uri(event.uri).space)):
            try:
                self._safely(functools.partial(self.worker.handle_together, batch))
                self.outbox.mark_done([event.event_id for event in batch])
            except Exception as error:  # the commit has happened; the index comes after
                _log.warning("the index does not follow %s yet: %s", batch[0].uri, error)

    def _work_off(self) -> IndexBatchResult:
        total = IndexBatchResult()
        while (done := self.worker.run_once()).claimed:
            total = IndexBatchResult(*map(operator.add, astuple(total), astuple(done)))
        return total

    def work(self, adopt: bool = False) -> IndexBatchResult:
        """Process due events of the outbox, and embed waiting texts: the body of a worker's loop.

        Args:
            adopt: Also make versions of files that were edited.

        Cost: that of the events; with `adopt` it reads all of the store.
        """
        total = self._work_off()
        if adopt:
            self.adopt_all()
        for space in self.fs.spaces() if self._embeds else ():
            self.words(space).embed()
        return total

    # -- committing --

    def commit_session(
        self,
        ctx: RequestContext,
        messages: Sequence[Any],
        used_contexts: Sequence[str] | None = None,
        used_tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> CommitResult:
        """Archive the new messages of a session, and extract memories from them.

        Nothing that was said is lost once this returns, whatever a model does. Committing the same again changes no
        file; of a longer transcript only what is new is taken.

        Args:
            ctx: Who; its `session_id` names the session.
            messages: `{"role", "content"}` each, or the shape of any other program (see the documentation), with `id`,
                `name` and a time where there are any. They are the transcript so far, or a part of it; without ids
                and times it is known again by its beginning, its order, or the last messages.
            used_contexts: URIs of memories that helped; they are counted in the archive.
            used_tools: Names, or `{"name", "ok", "seconds", "error"}`; each tool's memory counts them.
            options: `{"delta": True}`: the messages are what was said since the last call, and all of it is new, also
                a "yes" that was said before (but what has an id of its own). `{"background": True}`: return once the
                archive is written, and leave the rest to a worker.

        Returns:
            `status` is `"committed"`, `"partial"` (what failed is in `stats["failures"]`), `"archived"` (no memory
            came of it; `stats["why"]`) or `"unchanged"`.

        Raises:
            InvalidInputError, InvalidUriError: Nothing was written.
            StoreError: The disk refused.

        Cost: two syncs; a model is asked once for each 6,000 tokens, at most 8 times.
        """
        return self.coordinator.commit(ctx, messages, used_contexts, used_tools, options)

    def commit_export(self, ctx: RequestContext, exported: Any) -> list[CommitResult]:
        """Commit the conversations of an export of ChatGPT, Claude or ShareGPT, each as a session.

        What is there already is skipped: a broken import is repeated, and a later export adds the new messages.

        Args:
            ctx: Who. Its `session_id`, if any, names a single conversation; several have their own ids.
            exported: The file as `json.load` reads it, or a list of messages, which is one conversation.

        Raises:
            InvalidInputError: Some of several cannot be read; the others are committed.

        Cost: that of `commit_session`, for each.
        """
        chats = split_export(exported)
        own = ctx.session_id if len(chats) == 1 else ""
        results, refused = list[CommitResult](), list[str]()
        for id, said in chats:
            try:
                results.append(self.commit_session(replace(ctx, session_id=own or id), said))
            except (InvalidInputError, InvalidUriError) as error:
                if len(chats) == 1:
                    raise
                refused.append(f"{shorten(id)}: {error}")
        if refused:
            text = f"{len(results)} of {len(chats)} conversations are committed; refused: {'; '.join(refused)}"
            raise InvalidInputError(text[:2_000])
        return results

    def _extract_event(self, event: OutboxEvent, ctx: RequestContext) -> None:
        """Extract an archive that a commit left to a worker, or did not finish."""
        user, agent, session = (str(event.payload.get(name) or "") for name in ("user", "agent", "session"))
        owner = RequestContext(parse_uri(event.uri).account, user, agent, session)
        with contextlib.suppress(NodeNotFoundError):  # deleted since
            done = self.coordinator.extract(owner, event.uri, [event.event_id])
            if done.stats["waits"] and not done.stats["is_further"]:  # it is tried again later, and not for ever
                raise ContextEngineError(f"the rest of {event.uri} waits: {done.stats['failures']}"[:300])

    def _finish_forgetting(self, event: OutboxEvent, ctx: RequestContext) -> None:
        if late := self._forgetter.finish(event.payload):
            raise ProviderDownError(late)  # it is tried again for as long as that lasts

    def extract_again(self, ctx: RequestContext, archive_uri: str) -> CommitResult:
        """Extract waiting and failed parts, or those of an older extractor; applied facts are not applied twice.

        With a model it asks as much as a commit does; where `stats["waits"]`, `work` goes on with the rest.

        Raises:
            NodeNotFoundError: There is no such archive.
        """
        return self.coordinator.extract(ctx, archive_uri, must=True)

    def remember(
        self, ctx: RequestContext, text: str, category: str = "preferences", routing_key: str = "", at: float = 0.0
    ) -> str:
        """Store a statement of the caller, through the same policies, and return the memory's URI.

        Args:
            ctx: Who.
            text: One statement; of a profile `"lives_in: Rome"` lets a later one take its place.
            category: `profile`, `preferences`, `entities`, `events`, `cases`, `patterns`, `skills` or `tools`.
            routing_key: The topic, entity or skill; "" takes the text's beginning.
            at: When it was said, in seconds since the epoch; 0 is now.

        Raises:
            InvalidInputError: There is no such category, or the text is empty or longer than 5,000 tokens.
            ProviderDownError: The index, which knows the topics, is locked, or the disk is full. Nothing was written.

        Cost: one sync.
        """
        if not isinstance(text, str) or not text.strip():
            raise InvalidInputError(f"text must be a statement, not {shorten(text)}")
        if not isinstance(category, str) or category not in OWNER_OF:
            raise InvalidInputError(f"category must be one of {', '.join(OWNER_OF)}, not {shorten(category)}")
        head, found, _ = text.partition(": ")
        key = head if category == "profile" and found and head.isascii() and head.islower() else ""
        topic = routing_key or ("profile" if category == "profile" else one_line(text)[:60])
        said_at = check_time("at", at) or self.fs.clock()
        candidate = CandidateMemory(category, OWNER_OF[category], topic, "", "", text, 1.0, [], key, said_at)
        return self.coordinator.remember(ctx, candidate).uri

    # -- finding --

    def search_memory(
        self,
        ctx: RequestContext,
        query: str,
        target_uri: str | None = None,
        categories: Sequence[str] | None = None,
        top_k: int = 10,
        session_archive: SessionArchive | None = None,
        *,
        budget_tokens: int = BUDGET_TOKENS,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        context_type: str = "",
    ) -> SearchResult:
        """Return the blocks that fit a question, best first, within a budget of tokens.

        Args:
            ctx: The caller: its user's and its agent's memories are searched, and no others.
            query: The question, as it was asked.
            target_uri: Only this node and what is under it.
            categories: Only these; `"sessions"` are the archives.
            top_k: The largest number of blocks.
            session_archive: The messages just before.
            budget_tokens: Tokens of all blocks together, at most.
            since: Not older, in seconds since the epoch or as a datetime, without a time zone in UTC: of a message when
                it was said, of a memory when it was last written.
            until: Older than this.
            context_type: Only categories of this type: `"memory"`, `"session"`, `"skill"` or `"tool"`; "" is any.

        Raises:
            InvalidInputError, InvalidUriError, AccessDeniedError: An argument cannot be used.
            ProviderDownError: The index is locked, or the disk is full.

        Cost: milliseconds; one call of the embedder, where there is one.
        """
        hints = {
            "target_uri": target_uri,
            "context_type": context_type,
            "categories": categories,
            "top_k": top_k,
            "budget_tokens": budget_tokens,
            "filters": {"since": since, "until": until},
        }
        plans = self.planner.plan(query, session_archive, hints, ctx)
        return self._safely(lambda: self._search(ctx, query, plans))

    def _search(self, ctx: RequestContext, query: str, plans: Sequence[TypedQuery]) -> SearchResult:
        seeds: list[SeedHit] = []
        hits: dict[tuple[str, int, int], NodeHit] = {}
        notes = dict[str, None]()
        for plan in plans:
            notes |= dict.fromkeys(self.words(space).ask(plan.text) for space in spaces_of(plan, ctx))
            found = self.retriever.search(plan, ctx)
            seeds += [seed for seed in found if seed.uri not in {each.uri for each in seeds}]
            for hit in self.searcher.expand(plan, found, ctx):
                known = hits.get((hit.uri, hit.level, hit.part))
                if known is None or known.score < hit.score:
                    hits[hit.uri, hit.level, hit.part] = hit
        ranked = sorted(hits.values(), key=lambda hit: (-hit.score, hit.uri, hit.level, hit.part))
        blocks = self._rerank(query, self.assembler.assemble(plans[0], ranked, ctx))
        total = int(plans[0].hints["total"])
        return SearchResult(list(plans), seeds, blocks, total, total - len(blocks), "; ".join(filter(None, notes)))

    def _rerank(self, query: str, blocks: list[RetrievedBlock]) -> list[RetrievedBlock]:
        """Order blocks by the reranker, where there is one and it answers."""
        if self._reranker is None or len(blocks) < 2:
            return blocks
        documents = [
            {"uri": str(place), "text": block.content_excerpt or block.abstract} for place, block in enumerate(blocks)
        ]
        try:
            scores = {int(score.uri): score.score for score in self._reranker.rerank(query, documents)}
        except Exception as error:  # the reranker's port: without it the order stays
            _log.warning("the reranker failed: %s", hide_keys(error, self._reranker))
            return blocks
        order = sorted(range(len(blocks)), key=lambda place: -scores.get(place, -math.inf))
        return [blocks[place] for place in order]

    def read_memory(
        self, ctx: RequestContext, uri: str, level: str = "L1", expand_relations: bool = False, max_relations: int = 0
    ) -> RetrievedBlock:
        """Return a node's level whole: `"L0"` a line, `"L1"` a page, `"L2"` all."""
        return self.reader.read(uri, level, expand_relations, max_relations, ctx)

    def get_node(self, ctx: RequestContext, uri: str) -> ContextNode:
        """Return a node, without the sources from other users' sessions."""
        node = self.fs.read_node(ctx, uri)
        refs = node.metadata["source_refs"]
        node.metadata["source_refs"] = [ref for ref in refs if is_visible(ctx, ref.get("archive", ""))]
        return node

    def list_children(
        self, ctx: RequestContext, uri: str, recursive: bool = False, depth: int = 1
    ) -> list[NodeSummary]:
        """Return the nodes under a URI."""
        return self.fs.list_children(ctx, uri, recursive, depth)

    def brief(self, ctx: RequestContext, budget_tokens: int = 600) -> Brief:
        """Return a beginning for a system prompt: profile, preferences, newest events.

        What is pinned (`{"pinned": True}` in a node's `metadata`) comes first, then what a model or `{"danger": True}`
        marks as a danger, or what names one, as an allergy does, then the newest. They rank low in searches, since few
        questions name them.

        Cost: reads the abstracts of all preferences and of the newest events.
        """
        check_count("budget_tokens", budget_tokens)
        kept, used = dict[str, str](), 0
        for node in self._brief_nodes(ctx):
            line = f"- {one_line(node.abstract)}"
            size = self.fs.count_tokens(line) + 1
            if node.abstract and used + size <= budget_tokens:
                kept[node.uri] = line
                used += size
        return Brief("\n".join(kept.values()), list(kept), used)

    def _brief_nodes(self, ctx: RequestContext) -> list[ContextNode]:
        found: list[tuple[tuple[int, int, float, str], ContextNode]] = []
        for place, category in enumerate(("profile", "preferences", "events")):
            above = category_uri(ctx, category)
            listed = [each for each in self.fs.list_children(ctx, above) if not each.is_dir]
            listed.sort(key=lambda each: (each.updated_at, each.uri), reverse=True)
            for uri in [above] if category == "profile" else [each.uri for each in listed[: _BRIEF[category]]]:
                with contextlib.suppress(ContextEngineError):
                    node = self.fs.read_node(ctx, uri, include_content=False)
                    text, own = _unmarked(f"{node.abstract} {node.overview}"), node.metadata["metadata"]
                    is_danger = own.get(DANGER) is True or _DANGER.search(text)
                    rank = 0 if own.get("pinned") is True else 1 if is_danger else 2
                    found.append(((rank, place, -float(node.metadata["updated_at"]), uri), node))
        return [node for _, node in sorted(found, key=lambda row: row[0])]

    def confirm(self, ctx: RequestContext, query: str, uri: str) -> None:
        """Note that a question means a node: from now on it is found first. Kept in the node; can be undone."""
        if not isinstance(query, str) or not query.strip():
            raise InvalidInputError(f"query must be a text, not {shorten(query)}")
        found = check_access(ctx, uri)

        def change(tx: Any) -> None:
            confirmed = self.fs.read_metadata(ctx, found.text)["confirmed"]
            self.fs.write_metadata(ctx, found.text, {"confirmed": [*confirmed, one_line(clean(query))]})

        self.fs.run(ctx, "confirm", change)

    # -- correcting --

    def write_node(self, ctx: RequestContext, node: ContextNode) -> None:
        """Write a whole node; see `ContextFS.write_node`."""
        self.fs.write_node(ctx, node)

    def move_node(self, ctx: RequestContext, from_uri: str, to_uri: str) -> None:
        """Move a node, with all under it, to another URI. See `ContextFS.move_node`."""
        self.fs.move_node(ctx, from_uri, to_uri)

    def delete_node(self, ctx: RequestContext, uri: str, recursive: bool = False) -> None:
        """Delete a node; `undo` brings it back, `forget` would not. See `ContextFS.delete_node`."""
        self.fs.delete_node(ctx, uri, recursive)

    def history(self, ctx: RequestContext, uri: str, limit: int = 50) -> list[HistoryEntry]:
        """Return the commits of a node, newest first."""
        return self.fs.history(ctx, uri, limit)

    def undo(self, ctx: RequestContext, commit_id: str) -> str:
        """Take a commit back, as a new one, and return its id; see `ContextFS.undo`."""
        return self.fs.undo(ctx, commit_id)

    def adopt(self, ctx: RequestContext, uri: str) -> bool:
        """Make a version of manual edits of a node; False where there are none."""
        return self.fs.adopt(ctx, uri)

    def adopt_all(self, ctx: RequestContext | None = None) -> list[str]:
        """Make versions of all manual edits in a request's spaces, or in all, and return the URIs.

        What cannot be read is left as it is, and reported by `verify`. Cost: reads every node there.
        """
        adopted = []
        for space in space_uris(ctx) if ctx is not None else self.fs.spaces():
            for uri in self.fs.find_edits(space):
                with contextlib.suppress(ContextEngineError):
                    if self.adopt(context_of(uri), uri):
                        adopted.append(uri)
        return adopted

    def forget(self, ctx: RequestContext, uri: str) -> ForgetResult:
        """Erase a memory, and the messages that it was made from, from every file, for good.

        Args:
            ctx: The caller.
            uri: A memory with all under it, or an archive; also one that was deleted or undone. Of the messages that a
                memory cites its archives keep the ids, so that committing the session again does not bring them back.

        Returns:
            What is gone; which other memories cite the same messages: they are kept, and may say the same; and in
            `note` which file another program keeps from being cleaned.

        Raises:
            NodeNotFoundError: There is no such node.

        Cost: reads the metadata of all nodes of the request, and the edges of those that have any (some 30 µs a
        node); the journal and the space's index are written again, 5 ms a megabyte each.
        """
        return self._forgetter.forget(ctx, uri)

    # -- care --

    def status(self) -> dict[str, Any]:
        """Return the state of the store, for its operator: the outbox, dead events, waiting syncs, reports."""
        return {
            "outbox": self.outbox.counts(),
            "dead": self.outbox.dead(),
            "unsynced": {"commits": self.fs.journal.waiting()},
            "sequence": self.fs.journal.last_sequence(),
            "reports": [{"at": at, "uri": uri, "text": text} for at, uri, text in self.fs.journal.reports()],
        }

    def prune(self, before: float | datetime) -> int:
        """Drop the history of commits older than a time, in seconds since the epoch; the present files stay.

        Returns:
            How many commits it were; they cannot be undone any more.

        Cost: a sync, and the journal is written again.
        """
        return self.fs.prune(check_time("before", before))

    def verify(self) -> list[str]:
        """Return a sentence for everything that does not agree: files, journal, index, outbox; changes nothing."""
        return verify_store(self.fs, self.spaces, self.outbox)

    def repair(self) -> list[str]:
        """Rebuild the index from the files, free dead events, and return the remaining problems, as `verify` does.

        A damaged journal is set aside: the files are the store; what can be undone is gone with it.

        Cost: reads all of the store.
        """
        self.fs.repair_journal()
        self.outbox.requeue()
        with self.fs.locked():
            pass  # which does again what a dead process left
        for space in self.fs.spaces():
            self.spaces.words(space).discard()
            self._safely(functools.partial(self.words, space))
        self._work_off()
        return self.verify()


class AsyncContextEngineService(Twin, of=ContextEngineService):
    """A `ContextEngineService`, made with the same arguments, whose methods are coroutines; the first call opens it.

    A call runs in a thread, and the loop stays free; one that is cancelled goes on: what it writes is written whole.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncContextEngineService(None) as engine:
    ...         ada = RequestContext("acme", "ada", "helper", "s1")
    ...         await engine.commit_session(ada, [{"role": "user", "content": "I love jazz."}])
    ...         return (await engine.search_memory(ada, "jazz")).blocks[0].content_excerpt
    >>> asyncio.run(main())
    'I love jazz.'
    """

    def __init__(self, folder: str | os.PathLike[str] | None, **options: Any) -> None:
        super().__init__(functools.partial(ContextEngineService, folder, **options))
