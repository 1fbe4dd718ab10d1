"""Remember, recall, correct, forget: a memory for an agent with a small API.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> store = MemoryStore(folder.name, user="ada")
>>> home = store.remember("Ada lives in Paris.", keywords=["Ada"])
>>> _ = store.remember("Ada 喜欢龙井。", keywords=["Ada", "茶"])
>>> moved = store.correct(home, "Ada lives in Rome.")
>>> [memory.text for memory in store.recall("Where does Ada live?", limit=1)]
['Ada lives in Rome.']
>>> store.remember("Ada lives in Rome.", source="chat 2").note, len(store)
('known already, now from this source, too', 2)
>>> [version.content for version in store.history(moved)]
['Ada lives in Rome.', 'Ada lives in Paris.']
>>> operation = store.forget(moved)
>>> [memory.text for memory in store.recall("Where does Ada live?")]
['Ada 喜欢龙井。']
>>> _ = store.undo(operation)
>>> store.recall("Where does Ada live?", limit=1)[0].path
['Ada']
>>> store.close()
>>> MemoryStore(folder.name, user="bob").recall("Where does Ada live?")
[]
>>> folder.cleanup()

A memory is an info of the tree: its text is the content, its keywords are the tree's, and what else is known of it
is in the info's metadata under `"memory"`, see `memory_fields`. So a program that opens the folder as a `KeywordTree`
reads all of it. Every method that writes is one operation of the tree, and can be undone.

A fact that is there already is not kept twice: it has both sources, and counts as said now.

A fact that was corrected keeps its text and its place in the chain, but no keyword, and is not recalled; nor is a
pattern that another one, with a link `supersedes`, took the place of.
"""

import builtins
import contextlib
import threading
import time
import unicodedata
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..base.checks import check_count, check_strings, shorten
from ..base.names import decode_name, encode_name
from ..keyword_tree import (
    ConflictError,
    DuplicateIdError,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    KeywordTreeError,
    LLMClient,
    NotFoundError,
    RelationType,
    VersionConflictError,
)
from ..models.judge import SHOWN, judge
from ..store.addresses import refuse_address
from .eviction import EvictionPolicy, ForgettingPlan, RecallLog, RecallStats, plan_forgetting
from .graph import GraphRelation
from .graph_feed import EXTRACTION, GraphFeed, named_in
from .knowledge import TreeKnowledge
from .memories import Filters, Ranker
from .memory_fields import (
    MEMORY_KEY,
    RECORD_TYPES,
    Memory,
    Record,
    describe,
    memory_fields,
    record_of,
    sources_of,
    superseded_ids,
    with_recalls,
)
from .memory_rows import time_of
from .reading import MemoryReader
from .retriever import MemoryRetriever, Retrieved, RetrieverConfig
from .schemas import as_utc
from .tree_graph import TreeGraph

if TYPE_CHECKING:
    from .extraction import Extractor

__all__ = ["AsyncMemoryStore", "ForgettingPlan", "MemoryStore", "Record", "Remembered", "Version", "namespace_folder"]
__all__ += ["record_of"]

_SUCCESSORS = uuid.UUID("6f0ce1f2-7d5b-4f0e-9c55-3d0a5f5e8b11")  # any: what a corrected fact's id is made in


# Namespaces


def namespace_folder(
    folder: str | Path, user: str | None = None, agent: str | None = None, session: str | None = None
) -> Path:
    """Return the directory of a namespace, which no other namespace shares.

    >>> namespace_folder("data", user="Ada/..", session="1").as_posix()
    'data/user=%41da%2F%2E%2E/session=1/memory'

    Capitals are written as codes, as is whatever is neither letter nor digit, since some file systems take `Ada` and
    `ada` for one.

    Raises:
        InvalidInputError: A name is blank, longer than 200 bytes as it is written, or has characters unseen.
    """
    path = Path(folder)
    for kind, name in (("user", user), ("agent", agent), ("session", session)):
        if name is not None:
            path /= f"{kind}={encode_name(kind, name)}"
    return path / "memory"


# What comes back


class Remembered(str):
    """The id of a memory that was written, which is a string, and what `undo` takes besides.

    Attributes:
        operation: The operation that wrote it; "" where nothing had to be written.
        note: "known already…" where the same fact was there; else "".
    """

    __slots__ = ("note", "operation")

    operation: str
    note: str

    def __new__(cls, id: str, operation: str | None = None, note: str = "") -> Self:
        """Return an id with what its writing was."""
        made = super().__new__(cls, id)
        made.operation, made.note = operation or "", note
        return made


@dataclass(frozen=True)
class Version:
    """A memory as it was at one time."""

    id: str
    """The info's id."""
    content: str
    """What it says."""
    source: str
    """Where it is from."""
    created_at: float
    """Seconds since the epoch, UTC: when it was written."""
    superseded_by: str | None
    """The id of what took its place; None is the present one."""
    record: Record | None = field(default=None, repr=False)
    """The record, where it is none of the plain facts."""


# The store


class MemoryStore:
    """An agent's memory in a folder, or in a tree; a context manager, and safe to use from many threads.

    It is what a program calls: what it delegates to is public, and each of its parts can be used alone. It is one class
    of many short methods, most of them documentation.

    Args:
        place: A folder, which holds one directory for each namespace; or an open `KeywordTree`, which `close` leaves
            open.
        user, agent, session: The namespace in a folder; what is written in one is never seen in another.
        llm_client: The model, for the tree and for `extract="model"`.
        extract: What finds entities and relations in what is remembered: `"model"`, the `llm_client`; an `Extractor`;
            None, nothing: a memory is its text, on the keywords that the caller names. See `graph_feed`.
        extract_in_background: Whether that is done by a thread, after `remember` has returned. What is still to be
            read is in the log: when the process dies, the next one that opens the store so goes on with it.
        config: How `recall` looks.
        ranker: Another ranking, as one by embeddings, mixed into the full-text one.
        judge: A model that is shown the best few memories with each question; what does not answer it is not recalled.
            None, the default, asks none.
        clock: Seconds since the epoch.
        log: Who keeps the logs, where no folder does: `SharedLog.tree`, say. Takes the namespace's name, and returns
            what `KeywordTree(store=…)` takes; the folder then holds derived indexes only, and recalls are counted on
            each machine alone, so that no policy of forgetting weighs them.

    Attributes:
        tree: All of it as a `KeywordTree`.
        graph: The same as a `TreeGraph`: its entities and relations.
        retriever: What `recall` asks.
        knowledge: The same as pages: what is known of each keyword.
    """

    def __init__(
        self,
        place: str | Path | KeywordTree,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        *,
        llm_client: LLMClient | None = None,
        config: RetrieverConfig | None = None,
        ranker: Ranker | None = None,
        judge: LLMClient | None = None,
        clock: Callable[[], float] = time.time,
        extract: "str | Extractor | None" = None,
        extract_in_background: bool = False,
        log: Callable[[str], Callable[[], Any]] | None = None,
    ) -> None:
        self._clock, self._ranker, self._judge = clock, ranker, judge
        self._lock = threading.RLock()  # of two corrections of one fact, the second corrects what the first left
        self._owns_tree = not isinstance(place, KeywordTree)
        if isinstance(place, KeywordTree):
            if user is not None or agent is not None or session is not None or log is not None:
                raise InvalidInputError("a tree is one memory: user, agent, session and log need a folder")
            self.tree = place
        else:
            folder = _make_folder(place, user, agent, session)
            store = None if log is None else log(namespace_folder("", user, agent, session).as_posix())
            self.tree = KeywordTree(str(folder), llm_client, clock=clock, store=store)
        self._is_shared = log is not None
        indexes = Path(self.tree.data_dir).absolute() / "indexes"
        with contextlib.suppress(OSError):  # of earlier versions: it would keep what is deleted
            (indexes / "memory.index").unlink(missing_ok=True)
        self.retriever = MemoryRetriever(
            self.tree,
            config=config,
            ranker=ranker,
            clock=clock,
            index_path=indexes / "memories.db",
            speaker=user or "",
        )
        self.graph = TreeGraph(self.tree, self.retriever.index)
        self.knowledge = TreeKnowledge(self.tree, self.graph, self.retriever.index)
        self._recalls = RecallLog(indexes / "recall_stats.json", clock=clock)
        try:
            self._feed = GraphFeed(self.tree, self.graph, extract, llm_client, self._find_existing)
        except InvalidInputError:
            if self._owns_tree:
                self.tree.Close()
            raise
        self._reader = MemoryReader(self.tree, self.graph, self._feed, self._lock, extract_in_background)

    @staticmethod
    def users(folder: str | Path) -> list[str]:
        """Return the users that have a memory in a folder, sorted.  Cost: a look at the folder."""
        refuse_address(folder, "folder")
        names = (each.name.removeprefix("user=") for each in Path(folder).glob("user=*") if each.is_dir())
        return sorted(map(decode_name, names))

    def close(self) -> None:
        """Leave the index and the recall statistics on disk, and close the tree that was opened here.

        Closing twice is no error.
        """
        self._reader.close()
        try:
            for leave in (self.retriever.index.close, lambda: self._recalls.write(self._exists)):
                with contextlib.suppress(KeywordTreeError):  # closed already; what is derived can be made again
                    leave()
        finally:
            if self._owns_tree:
                self.tree.Close()

    def __repr__(self) -> str:
        """Return one line: the folder, how much it holds, and what ranks."""
        said = repr(self.tree).replace("KeywordTree", "MemoryStore", 1).removesuffix(">")
        by = (
            "words"
            if self._ranker is None
            else f"words and {getattr(self._ranker, 'name', type(self._ranker).__name__)}"
        )
        return f"{said}, ranked by {by}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- what there is --

    def __len__(self) -> int:
        """Return how many memories may be recalled."""
        self.retriever.index.catch_up()
        return self.retriever.index.count()

    def __bool__(self) -> bool:
        """Be true, also where nothing is remembered yet."""
        return True

    def __iter__(self) -> Iterator[Memory]:
        """Yield the memories that may be recalled, the newest first."""
        for id in reversed(self.retriever.known()):
            info = self.tree.GetInfo(id)
            if info is not None:  # forgotten meanwhile
                yield Memory(info)

    def list(self, limit: int | None = None) -> builtins.list[Memory]:
        """Return the memories that may be recalled, the newest first, at most so many; None: all."""
        if limit is not None:
            check_count("limit", limit, 0)
        return [memory for memory, _ in zip(self, range(limit), strict=False)] if limit is not None else [*self]

    def get(self, id: str) -> Memory | None:
        """Return a memory, also one that was corrected; None where there is none."""
        info = self.tree.GetInfo(id)
        return None if info is None else Memory(info)

    # -- remembering --

    def remember(
        self,
        record: Record | str,
        keywords: Iterable[str] = (),
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        pinned: bool = False,
        created_by: str = "agent",
    ) -> Remembered:
        """Keep a record or a plain fact, and return its id.

        A record whose id is there already takes its place: a skill learned again is the same skill. So does a fact
        whose text is there already, but for blanks: it keeps its id, gets this source and these keywords besides,
        counts as said now, and the result's `note` says that it was known; not where its metadata contradicts. A pin
        stays.

        Args:
            record: What is to be kept; a string is a plain fact.
            keywords: Names or paths (`drinks/tea`) of keywords to link it to, as they are written, but for case and
                width; one that is not there is made as `tree.Ensure` makes it. Two processes that name the same new one
                in the same moment may make two.
            source: Where it is from: a conversation, a document. What has the same source belongs together, in the
                order of remembering.
            metadata: A JSON object of the caller's own, to filter by; `"memory"` is taken.
            pinned: Whether it stays when others are forgotten.
            created_by: Who says so.

        Raises:
            InvalidInputError: The record is not valid (its messages), its id is that of a memory of another kind, or an
                argument cannot be stored.

        Cost: one sync. With a model one call after that, which is waited for at most a minute, and another sync.
        """
        own, content = self._describe(record)
        _check_flag("pinned", pinned)
        if pinned:
            own["pinned"] = True
        metadata = self._join_metadata(metadata, own)
        names = [*dict.fromkeys(check_strings("keywords", keywords))]
        spec = {"content": content, "source": source, "metadata": metadata, "created_by": created_by}
        if not isinstance(record, str):
            old = self.tree.GetInfo(record.id)
            if old is not None and memory_fields(old).get("kind") != own["kind"]:
                raise InvalidInputError(f"{old.id!r} is the id of another memory, which is no {own['kind']}")
        own |= self._reader.note()
        if isinstance(record, str) and isinstance(source, str) and (known := self._remember_known(spec, names)):
            return known
        id = self._remember_record(record, spec, names)
        operation = self.tree.last_operation
        self._reader.read_later(id, own)
        return Remembered(id, operation)

    def relate(
        self, source: str, relation_type: str, target: str, weight: float = 1.0, created_by: str = "agent"
    ) -> None:
        """State what one keyword has to do with another; what is stated so has the last word over what was read.

        Args:
            source: Name or path of a keyword, as in `remember`; one that is not there is made.
            target: Likewise.
            relation_type: `works_on`, `lives_in`, …
            weight: 0.0 to 1.0.
            created_by: Who says so.

        Raises:
            InvalidInputError: An argument cannot be stored.

        Cost: one sync.
        """
        names = [*dict.fromkeys(check_strings("keywords", [source, target]))]
        if len(names) < 2:
            raise InvalidInputError(f"a relation needs two keywords, not {shorten(source)} twice")
        with self._lock, self.tree.Operation("relate"):
            ids = [self._keyword_id(name, created_by) for name in names]
            self.graph.add_relation(GraphRelation(ids[0], ids[1], relation_type, weight))

    def _find_existing(self, text: str) -> builtins.list[tuple[str, str]]:
        """Return what is known of the subjects of a text."""
        found = self.retriever.retrieve(text, _EXISTING)
        return [(" / ".join(each.path), each.info.content[:500]) for each in found if each.info.content != text]

    def _remember_record(self, record: Record | str, spec: dict[str, Any], names: builtins.list[str]) -> str:
        if isinstance(record, str):
            return self._remember_new(spec, names)
        while True:
            old = self.tree.GetInfo(record.id)
            if old is not None:
                return self._remember_again(old, spec, names)
            with contextlib.suppress(DuplicateIdError):  # another process or thread has made it: it is there now
                return self._remember_new({**spec, "id": record.id}, names)

    def _remember_new(self, spec: dict[str, Any], names: builtins.list[str]) -> str:
        found = [id for name in names if (id := self._find_keyword(name)) is not None]
        if len(found) == len(names):  # a single write is an operation by itself, at half the price
            with contextlib.suppress(NotFoundError):  # deleted meanwhile
                return self.tree.CreateInfo(**spec, keyword_ids=[*dict.fromkeys(found)]).id
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(NotFoundError, ConflictError):  # a keyword was deleted meanwhile
                return self._write_new(spec, names)
        return self._write_new(spec, names)

    def _write_new(self, spec: dict[str, Any], names: builtins.list[str]) -> str:
        with self._lock, self.tree.Operation("remember"):
            keyword_ids = [self._keyword_id(name, spec["created_by"]) for name in names]
            return self.tree.BatchCreateInfos([{**spec, "keyword_ids": [*dict.fromkeys(keyword_ids)]}])[0].id

    def _remember_again(self, old: Info, spec: dict[str, Any], names: builtins.list[str]) -> str:
        own, own_before = spec["metadata"][MEMORY_KEY], memory_fields(old)
        if own_before.get("kind") != own["kind"]:
            raise InvalidInputError(f"{old.id!r} is the id of another memory, which is no {own['kind']}")
        if own_before.get("pinned") is True:
            own["pinned"] = True
        with self._lock, self.tree.Operation("remember") as operation:
            kept = spec["content"] if "graph" in own else ""  # what is read at once may name the same again
            unlinked = self._feed.unlink(old.id, kept)
            linked = {link.keyword_id for link in self.tree.GetLinks(old.id)}
            self.tree.UpdateInfo(old.id, {name: spec[name] for name in ("content", "source", "metadata")})
            for keyword_id in dict.fromkeys(self._keyword_id(name, spec["created_by"]) for name in names):
                if keyword_id not in linked:
                    self.tree.LinkInfo(old.id, keyword_id, created_by=spec["created_by"])
            gone = self._feed.clear(unlinked, [old.id])
        self._reader.settle_names(operation.id, gone, unlinked, [old.id])
        return old.id

    def _remember_known(self, spec: Mapping[str, Any], names: Iterable[str]) -> Remembered | None:
        """Note that a fact was said again, if it is there; else return None."""
        for _ in range(_ATTEMPTS):
            info = self._known(spec)
            if info is None:
                return None
            with contextlib.suppress(VersionConflictError, ConflictError, NotFoundError):  # changed meanwhile
                return self._say_again(info, spec, names)
        return None

    def _known(self, spec: Mapping[str, Any]) -> Info | None:
        """Return the fact that says the same, if there is one whose metadata does not contradict."""
        text, metadata = _plain(spec["content"]), spec["metadata"]
        for id in self.retriever.index.same(spec["content"]):
            info = self.tree.GetInfo(id)
            if info is None or _plain(info.content) != text or self._successor(info) is not None:
                continue
            shared = metadata.keys() & info.metadata.keys() - {MEMORY_KEY}
            is_fact = (
                memory_fields(info).get("kind", "fact") == "fact" and info.metadata.get(MEMORY_KEY, {}) is not None
            )
            if is_fact and all(metadata[key] == info.metadata[key] for key in shared):
                return info
        return None

    def _say_again(self, info: Info, spec: Mapping[str, Any], names: Iterable[str]) -> Remembered:
        own = {"kind": "fact", **memory_fields(info)}
        sources = [*dict.fromkeys([*sources_of(info), spec["source"]])]
        own |= {"pinned": True} if spec["metadata"][MEMORY_KEY].get("pinned") else {}
        own |= {"sources": sources} if len(sources) > 1 else {}
        own["time"] = max(self._clock(), time_of(info) + 1e-6)  # later than before, whatever the clock says
        note = "known already" if len(sources) == len(sources_of(info)) else "known already, now from this source, too"
        with self._lock, self.tree.Operation("remember") as operation:
            keyword_ids = dict.fromkeys(self._keyword_id(name, spec["created_by"]) for name in names)
            metadata = {**info.metadata, **spec["metadata"], MEMORY_KEY: own}
            self.tree.UpdateInfo(info.id, {"metadata": metadata}, info.version)
            linked = {link.keyword_id for link in self.tree.GetLinks(info.id)}
            for keyword_id in keyword_ids:
                if keyword_id not in linked:
                    self.tree.LinkInfo(info.id, keyword_id, created_by=spec["created_by"])
        return Remembered(info.id, operation.id, note)

    def _exists(self, id: str) -> bool:
        return self.tree.GetInfo(id) is not None

    def _describe(self, record: Record | str) -> tuple[dict[str, Any], str]:
        """Return a record's own fields and its text."""
        if isinstance(record, str):
            if not record.strip():
                raise InvalidInputError("a fact must not be blank")
            return {"kind": "fact"}, record
        if not isinstance(record, tuple(RECORD_TYPES.values())):
            raise InvalidInputError(f"record must be a string or one of the schemas, not {type(record).__name__}")
        messages = record.validate()
        if messages:
            raise InvalidInputError("; ".join(messages))
        return describe(record)

    def _join_metadata(self, metadata: Mapping[str, Any] | None, own: dict[str, Any]) -> dict[str, Any]:
        if metadata is not None and (not isinstance(metadata, Mapping) or MEMORY_KEY in metadata):
            given = shorten(metadata)
            raise InvalidInputError(f"metadata must be an object without the key {MEMORY_KEY!r}, not {given}")
        return {**(metadata or {}), MEMORY_KEY: own}

    def _find_keyword(self, name: str) -> str | None:
        """Return the keyword with a name or alias, of several the oldest, or at the end of a path of such."""
        if found := self._named(name, 2):
            return found[0].id
        parents: set[str] | None = None
        for part in name.split("/") if "/" in name else ():
            # An empty part has no name: "and/" is no path.
            found = self._named(part, _SAME_NAMES) if part.strip() else []
            found = [node for node in found if parents is None or node.parent_id in parents]
            parents = {node.id for node in found}
        return found[0].id if found else None

    def _named(self, name: str, limit: int) -> builtins.list[KeywordNode]:
        # `Search` would pass over symbols (C and C#), and ask a model. The tree's own top is called "root".
        return [node for node in self.tree.FindByName(name, 0, limit) if node.id != "root"]

    def _keyword_id(self, name: str, created_by: str) -> str:
        if (known := self._find_keyword(name)) is not None:
            return known
        if "/" in name and all(part.strip() for part in name.split("/")):  # a path, as `Ensure` reads it
            return self.tree.Ensure(name, created_by).id
        return self.tree.CreateKeyword(name, "root", llm_auto_place=False, created_by=created_by).id

    # -- reading for the graph --

    def extract(self, id: str) -> bool:
        """Read a memory for the graph, whatever was read of it before; says whether that could be done.

        It is how memories that were kept without a model come into the graph.

        Raises:
            NotFoundError: There is no such memory.

        Cost: one sync; a call of the model, where there is one.
        """
        return self._reader.read(id)

    def extract_pending(self, limit: int | None = None, *, again: bool = False) -> int:
        """Read memories that wait, the oldest first, and return how many could be read; see `MemoryReader`."""
        return self._reader.read_pending(limit, again=again)

    def wait_for_extraction(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has nothing more to read, or after `timeout_s`; says whether no memory waits."""
        return self._reader.wait(timeout_s)

    @property
    def extraction_failure(self) -> str:
        """Why the last memory could not be read for the graph; "" where it could."""
        return self._feed.failure

    # -- recalling --

    def recall(
        self,
        query: str,
        limit: int = 5,
        *,
        min_score: float | None = None,
        kinds: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: RetrieverConfig | None = None,
    ) -> builtins.list[Retrieved]:
        """Return the memories that fit a question, best first, and count the recall of each.

        Args:
            query: The question, as it was asked.
            limit: At most this many; with a `judge` at most the 8 that it is shown.
            min_score: Only what scores as much, from 0 to 1; None: what `config` says.
            kinds: Only `"fact"`, `"episode"`, `"pattern"`, `"skill"`.
            sources: Only from these.
            since: Not older than this; seconds since the epoch, or a datetime, without a time zone in UTC.
            until: Older than this, likewise.
            metadata: Only with these keys and values.
            config: Another way of looking, this once.

        Raises:
            InvalidInputError: A kind is unknown, and an argument that cannot be used.

        Cost: see `MemoryRetriever`; nothing is written to the log.
        """
        filters = Filters(kinds, sources, _seconds(since), _seconds(until), metadata)
        config = config or self.retriever.config
        config = config if min_score is None else replace(config, min_score=min_score)
        wanted = limit if self._judge is None else max(limit, SHOWN)
        found = self.retriever.retrieve(query, wanted, None if filters == Filters() else filters, config)
        if self._judge is not None:
            answering = {*judge(self._judge, query, [(each.id, each.text) for each in found[:SHOWN]])}
            found = [each for each in found if each.id in answering][:limit]
        self._recalls.record({memory.info.id: min(1.0, max(0.0, memory.score)) for memory in found})
        return found

    def record_recall(self, id: str, score: float) -> None:
        """Count one recall of a memory; what `recall` does by itself.

        Args:
            id: The memory.
            score: How well it fitted, from 0 to 1.

        Raises:
            NotFoundError: There is no such memory.
            InvalidInputError: The score is not between 0 and 1.
        """
        self._get(id)
        self._recalls.record({id: score})

    # -- correcting --

    def correct(
        self, id: str, record: str, source: str | None = None, created_by: str = "agent", keywords: Iterable[str] = ()
    ) -> Remembered:
        """Put a new fact in the place of an old one, and return its id, which `undo` takes, too.

        The new one has the same keywords, and a `supersedes` link to the old one, which stays in the history.

        Args:
            id: Of the old one; where that was superseded already, what superseded it is meant.
            record: The new fact.
            source: Where it is from; None is the old one's source.
            created_by: Who says so.
            keywords: Further keywords.

        Raises:
            NotFoundError: There is no such memory.
            InvalidInputError: The old one is a record, which is to be remembered again; or an argument is unfit.

        Cost: one sync.
        """
        if not isinstance(record, str) or not record.strip():
            raise InvalidInputError(f"record must be a fact, not {shorten(record)}")
        names = [*dict.fromkeys(check_strings("keywords", keywords))]
        own = {"kind": "fact", **self._reader.note()}
        new_id = self._correct_at_last(id, record, source, created_by, names, own)
        self._reader.read_later(new_id, own)
        return new_id

    def _correct_at_last(
        self,
        id: str,
        record: str,
        source: str | None,
        created_by: str,
        names: builtins.list[str],
        own: Mapping[str, Any],
    ) -> Remembered:
        for _ in range(_ATTEMPTS):
            self._get(id)  # of what was forgotten meanwhile nothing is left to be corrected
            try:
                return self._correct(id, record, source, created_by, names, own)
            except DuplicateIdError:  # another process has written: now that is corrected
                self.retriever.index.catch_up()
            except (ConflictError, NotFoundError):  # a keyword was deleted meanwhile
                self.tree.Refresh()
        return self._correct(id, record, source, created_by, names, own)

    def _correct(
        self,
        id: str,
        record: str,
        source: str | None,
        created_by: str,
        names: builtins.list[str],
        own_of_new: Mapping[str, Any],
    ) -> Remembered:
        with self._lock, self.tree.Operation("correct") as operation:
            old = self._newest(id)
            own = memory_fields(old)
            if own.get("kind", "fact") != "fact":
                raise InvalidInputError(f"{old.id!r} is no plain fact: remember the record again")
            # Made from the old one's, so that of two processes one finds it taken: two successors would both be true.
            new_id = str(uuid.uuid5(_SUCCESSORS, old.id))
            pin = {"pinned": True} if own.get("pinned") is True else {}
            others = {"sources": [*sources_of(old)]} if source is None and len(sources_of(old)) > 1 else {}
            metadata = {**old.metadata, MEMORY_KEY: {**own_of_new, **pin, **others, "supersedes": old.id}}
            links = self.tree.GetLinks(old.id)
            relations = {link.keyword_id: link.relation for link in links if link.created_by != EXTRACTION}
            for name in names:
                relations.setdefault(self._keyword_id(name, created_by), RelationType.PRIMARY)
            spec = {"id": new_id, "content": record, "metadata": metadata, "created_by": created_by}
            self.tree.BatchCreateInfos([{**spec, "source": old.source if source is None else source}])
            kept = record if "graph" in own_of_new else ""
            for link in links:
                self.tree.UnlinkInfo(old.id, link.keyword_id)
                if link.created_by == EXTRACTION and self._feed.is_named(link.keyword_id, kept):
                    self.tree.LinkInfo(new_id, link.keyword_id, link.relation, EXTRACTION)
            for keyword_id, relation in relations.items():
                self.tree.LinkInfo(new_id, keyword_id, relation, created_by)
            self.tree.UpdateInfo(old.id, {"metadata": {**old.metadata, MEMORY_KEY: {**own, "superseded_by": new_id}}})
            gone = self._feed.clear(named_in(old), [old.id])
        self._reader.settle_names(operation.id, gone, named_in(old), [old.id])
        return Remembered(new_id, operation.id)

    def history(self, id: str) -> builtins.list[Version]:
        """Return what a memory said over time, the present one first, with the patterns that it took the place of.

        What a record was before it was remembered again is in `tree.History(id)`.

        Args:
            id: Of any of its versions.

        Raises:
            NotFoundError: There is no such memory.
        """
        return [
            Version(info.id, info.content, info.source, info.created_at, self._successor(info), record_of(info))
            for info in self._chain(id)
        ]

    def _get(self, id: str) -> Info:
        info = self.tree.GetInfo(id)
        if info is None:
            raise NotFoundError("info", id)
        return info

    def _newest(self, id: str) -> Info:
        info = self._get(id)
        seen = {info.id}
        while (next_id := self._successor(info)) is not None and next_id not in seen:
            following = self.tree.GetInfo(next_id)
            if following is None:
                break
            seen.add(next_id)
            info = following
        return info

    def _successor(self, info: Info) -> str | None:
        named = memory_fields(info).get("superseded_by")
        if isinstance(named, str):
            return named
        if memory_fields(info).get("kind") == "pattern":  # only its successors' own links name them
            self.retriever.index.catch_up()
        successors = self.retriever.index.successors(info.id)
        return successors[0] if successors else None

    def _chain(self, id: str) -> builtins.list[Info]:
        """Return a memory's present version, and all that this one supersedes, at however many removes."""
        chain = {(info := self._newest(id)).id: info}
        stack = [info]
        while stack:
            for old_id in superseded_ids(stack.pop()):
                old = None if old_id in chain else self.tree.GetInfo(old_id)
                if old is not None and self._successor(old) is not None:  # in a circle nothing is superseded
                    chain[old.id] = old
                    stack.append(old)
        return [*chain.values()]

    def record(self, id: str) -> Record | None:
        """Return the record that a memory holds, with its recalls counted: `access_count`, `last_accessed`.

        None for a plain fact.

        Raises:
            NotFoundError: There is no such memory.

        Cost: reads the recall statistics.
        """
        info = self._get(id)
        known = self._recalls.stats().get(id, RecallStats())
        return with_recalls(record_of(info), known.recall_count, known.last_recall_at)

    # -- forgetting --

    def pin(self, id: str, pinned: bool = True) -> None:
        """Let a memory stay when others are forgotten, or let it go with them."""
        _check_flag("pinned", pinned)
        self.tree.Refresh()  # another process may have corrected it
        with self._lock, self.tree.Operation("pin"):
            info = self._newest(id)
            own = {name: value for name, value in memory_fields(info).items() if name != "pinned"}
            own = {"kind": "fact", **own, **({"pinned": True} if pinned else {})}
            self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}})

    def plan_forgetting(self, policy: EvictionPolicy) -> ForgettingPlan:
        """Return what a policy would forget, and why; changes nothing.

        A memory that was corrected has the recalls of what it superseded, too. What a memory that stays refers to
        stays, and is listed in `referred`.

        Raises:
            InvalidInputError: it is no policy, or weighs recalls, though the log is shared: each machine knows its own.

        Cost: reads every record.
        """
        if not isinstance(policy, EvictionPolicy):
            raise InvalidInputError(f"policy must be an EvictionPolicy, not {shorten(policy)}")
        if self._is_shared and policy.limits()[1] is not None and (policy.recall_weight or policy.score_weight):
            raise InvalidInputError(
                "over a shared log recalls are counted on each machine alone, so no policy can weigh them: use Ttl or "
                "Capacity, or set recall_weight and score_weight to 0"
            )
        self.retriever.index.catch_up()
        stats = {} if self._is_shared else self._recalls.stats()
        return plan_forgetting(self.tree, self.retriever.index, stats, policy, self._clock())

    def forget(self, what: str | ForgettingPlan) -> str:
        """Delete one memory, or what a plan says, with all that it superseded, and return the operation's id.

        A memory of a plan that was pinned, changed, corrected or deleted since is passed over; one that is named goes,
        pinned or not. Where nothing is left to be deleted, the id leads nowhere. Until the log is compacted without its
        history, `undo` brings all of it back.

        Raises:
            NotFoundError: There is no memory with this id.

        Cost: one sync.
        """
        if not isinstance(what, (str, ForgettingPlan)):
            raise InvalidInputError(f"what must be an id or a plan, not {shorten(what)}")
        self.tree.Refresh()  # another process may have pinned or corrected one
        with self._lock, self.tree.Operation("forget") as operation:
            if isinstance(what, str):
                chains = [self._chain(what)]
            else:
                chains = [self._chain(id) for id, version in what.versions.items() if self._is_at(id, version)]
            going = {info.id: info for chain in chains for info in chain}
            for id in going:
                self.tree.DeleteInfo(id)
            named = [*dict.fromkeys(id for info in going.values() for id in named_in(info))]
            gone = self._feed.clear(named, going)
        self._reader.settle_names(operation.id, gone, named, going)
        return operation.id

    def undo(self, operation_id: str | None, changed_by: str = "user") -> str:
        """Put back what an operation changed, as a new operation, and return the id of that.

        As `tree.Undo`; but where later memories are linked to a keyword that the operation made, that keyword stays.

        Args:
            operation_id: What `remember`, `correct` or `forget` returned, `store.tree.last_operation` after another
                call, or one of `tree.History()`.
            changed_by: The author.

        Raises:
            ConflictError: A later operation changed what this one wrote; a memory can then be corrected or forgotten.
            NotFoundError: There is no such operation.

        Cost: reads the log backwards to the operation; one sync.
        """
        if isinstance(operation_id, Remembered):
            operation_id = operation_id.operation
        try:
            return self.tree.Undo(operation_id, changed_by)
        except ConflictError as error:
            links = [record for record in error.records if isinstance(record, InfoKeywordLink)]
            if len(links) < len(error.records):
                raise
        # In one operation the links are taken off, and put back on the keyword, made again with its id.
        with self._lock, self.tree.Operation("undo", changed_by) as operation:
            keywords = {link.keyword_id: self.tree.GetKeyword(link.keyword_id) for link in links}
            for link in links:
                self.tree.UnlinkInfo(link.info_id, link.keyword_id)
            self.tree.Undo(operation_id)
            for node in keywords.values():
                if node is not None and self.tree.GetKeyword(node.id) is None:
                    spec = {"id": node.id, "name": node.name, "parent_id": node.parent_id}
                    self.tree.BatchCreateKeywords([{**spec, "created_by": node.created_by}])
            for link in links:
                self.tree.LinkInfo(link.info_id, link.keyword_id, link.relation, link.created_by)
        return operation.id

    def _is_at(self, id: str, version: int) -> bool:
        info = self.tree.GetInfo(id)
        return info is not None and info.version == version and self._successor(info) is None


class AsyncMemoryStore:
    """A `MemoryStore` for `async` programs: the same calls, each in a thread (anyio: asyncio and trio).

    >>> async def main(folder):
    ...     async with AsyncMemoryStore(folder, user="ada") as store:
    ...         await store.remember("Ada lives in Rome.")
    ...         return [memory.text for memory in await store.recall("Where does Ada live?")]
    >>> import asyncio, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(main(folder))
    ['Ada lives in Rome.']

    Args:
        place: A folder or a tree, or a `MemoryStore`, which is left open.
        arguments: Those of `MemoryStore`.

    Attributes:
        store: The `MemoryStore`, from the first call on.

    Raises:
        ImportError: anyio is not installed; the message says how.
    """

    def __init__(self, place: "str | Path | KeywordTree | MemoryStore", *names: str | None, **arguments: Any) -> None:
        try:
            from anyio import to_thread
        except ImportError as error:
            raise ImportError("anyio is not installed: pip install 'keyword-tree-memory[async]'") from error
        self._in_thread = to_thread.run_sync
        self._owns_store = not isinstance(place, MemoryStore)
        self._open = (
            (lambda: place) if isinstance(place, MemoryStore) else lambda: MemoryStore(place, *names, **arguments)
        )
        self._arguments, self._lock = (place, names, arguments), threading.Lock()
        self.store: MemoryStore | None = None

    def _opened(self) -> MemoryStore:
        with self._lock:
            if self.store is None:
                place, names, options = self._arguments
                self.store = place if isinstance(place, MemoryStore) else MemoryStore(place, *names, **options)
            return self.store

    async def __aenter__(self) -> Self:
        await self._in_thread(self._opened)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, unless it was given."""
        if self._owns_store and self.store is not None:
            await self._in_thread(self.store.close)

    async def __aiter__(self) -> AsyncIterator[Memory]:
        """Yield the memories that may be recalled, the newest first."""
        for memory in await self.list():
            yield memory

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("_") or not callable(getattr(MemoryStore, name, None)):
            raise AttributeError(f"AsyncMemoryStore has no {name!r}")

        async def call(*args: Any, **options: Any) -> Any:
            return await self._in_thread(lambda: getattr(self._opened(), name)(*args, **options))

        return call


def _make_folder(place: str | Path, user: str | None, agent: str | None, session: str | None) -> Path:
    """Return the directory of a namespace, made where it is not there; the path does not depend on `chdir`."""
    refuse_address(place, "folder")
    folder = namespace_folder(place, user, agent, session).absolute()
    if a_file := next((path for path in (folder, *folder.parents) if path.is_file()), None):
        raise InvalidInputError(f"this is a file, not a folder: {str(a_file)!r}")
    for parent in reversed(folder.parents):  # `mkdir` makes the parents of a folder for everybody to read
        parent.mkdir(mode=0o700, exist_ok=True)
    return folder


def _plain(text: str) -> str:
    """Return a text by which a fact is the same: its blanks do not count, nor how its letters are composed."""
    return " ".join(unicodedata.normalize("NFC", text).split())


_ATTEMPTS = 9  # at a write that others disturb
_SAME_NAMES = 1_000  # keywords of one name that a path may lead through
_EXISTING = 5  # memories on the same subject that a model is shown


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):  # "no" would be true
        raise InvalidInputError(f"{name} must be True or False, not {shorten(value)}")


def _seconds(when: float | datetime | None) -> float | None:
    return as_utc(when).timestamp() if isinstance(when, datetime) else when
