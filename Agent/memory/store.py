"""Remember, recall, correct, forget: a memory for an agent with a small API.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> store = MemoryStore(folder.name, user="ada")
>>> home = store.remember("Ada lives in Paris.", keywords=["Ada"])
>>> _ = store.remember("Ada 喜欢龙井。", keywords=["Ada", "茶"])
>>> moved = store.correct(home, "Ada lives in Rome.")
>>> [memory.info.content for memory in store.recall("Where does Ada live?", limit=1)]
['Ada lives in Rome.']
>>> [version.content for version in store.history(moved)]
['Ada lives in Rome.', 'Ada lives in Paris.']
>>> operation = store.forget(moved)
>>> [memory.info.content for memory in store.recall("Where does Ada live?")]
['Ada 喜欢龙井。']
>>> _ = store.undo(operation)
>>> store.recall("Where does Ada live?", limit=1)[0].path
['Ada']
>>> store.close()
>>> MemoryStore(folder.name, user="bob").recall("Where does Ada live?")
[]
>>> folder.cleanup()

A memory is an info of the tree: its text is the content, its keywords are the tree's, and what else is known of it
is in the info's metadata under `"memory"`: `kind`, `record` (what `to_dict` gives), `time`, `links`, `pinned`,
`supersedes` and `superseded_by`. So a program that opens the folder as a `KeywordTree` reads all of it. Every method
that writes is one operation of the tree, and can be undone.

A fact that was corrected keeps its text and its place in the chain, but no keyword, and is not recalled; nor is a
pattern that another one, with a link `supersedes`, took the place of.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ..base.checks import check_count, check_strings, shorten
from ..base.names import encode_name
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
from ..store.addresses import refuse_address
from .background import BackgroundReader
from .eviction import Candidate, Eviction, EvictionPolicy, RecallLog, RecallStats, choose_evictions
from .graph import GraphRelation
from .graph_feed import EXTRACTION, TRIES, Failure, GraphFeed, Placed, Reading, named_in
from .knowledge import TreeKnowledge
from .memories import Filters, Ranker
from .memory_fields import MEMORY_KEY, memory_fields, strings_in, superseded_ids
from .retriever import MemoryRetriever, Retrieved, RetrieverConfig
from .sayings import waits_for
from .schemas import EpisodeTrace, ProceduralSkill, SemanticPattern, as_utc
from .tree_graph import TreeGraph

if TYPE_CHECKING:
    from .extraction import Extractor

__all__ = ["ForgettingPlan", "MemoryStore", "Record", "Version", "namespace_folder", "record_of"]

Record: TypeAlias = EpisodeTrace | SemanticPattern | ProceduralSkill

_RECORD_TYPES: Mapping[str, type[Record]] = {
    "episode": EpisodeTrace,
    "pattern": SemanticPattern,
    "skill": ProceduralSkill,
}
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


@dataclass(frozen=True)
class ForgettingPlan:
    """What would be forgotten, and why; nothing was changed."""

    evictions: Sequence[Eviction]
    """What would go."""
    kept: int
    """How many would stay, pinned ones included."""
    referred: Mapping[str, str] = field(default_factory=dict)
    """What would go, too, and stays, since what stays refers to it: id → id of what refers to it."""
    versions: Mapping[str, int] = field(default_factory=dict, repr=False)
    """What the memories that would go looked like: of one that has changed since, `forget` keeps its hands off."""


def record_of(info: Info) -> Record | None:
    """Return the record that an info holds; None for a plain fact, and for what is damaged."""
    own = memory_fields(info)
    kind, data = _RECORD_TYPES.get(str(own.get("kind"))), own.get("record")
    if kind is None or not isinstance(data, Mapping):
        return None
    with contextlib.suppress(ValueError):
        return kind.from_dict(data)
    return None


class _Outcome(Enum):
    """What came of reading a memory that is there already."""

    READ = auto()
    UNUSABLE = auto()
    """What was answered cannot be used."""
    DOWN = auto()
    """The model could not be reached."""
    OVERTAKEN = auto()
    """The memory was changed meanwhile."""


# The store


class MemoryStore:
    """An agent's memory in a folder; a context manager, and safe to use from many threads.

    Args:
        folder: Holds one directory for each namespace.
        user, agent, session: The namespace; what is written in one is never seen in another.
        llm_client: The model, for the tree and for `extract="model"`.
        extract: What finds entities and relations in what is remembered: `"model"`, the `llm_client`; an `Extractor`;
            None, nothing: a memory is its text, on the keywords that the caller names. See `graph_feed`.
        extract_in_background: Whether that is done by a thread, after `remember` has returned. What is still to be
            read is in the log: when the process dies, the next one that opens the store so goes on with it.
        config: How `recall` looks.
        ranker: Another ranking, as one by embeddings, mixed into the full-text one.
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
        folder: str | Path,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        *,
        llm_client: LLMClient | None = None,
        config: RetrieverConfig | None = None,
        ranker: Ranker | None = None,
        clock: Callable[[], float] = time.time,
        extract: "str | Extractor | None" = None,
        extract_in_background: bool = False,
        log: Callable[[str], Callable[[], Any]] | None = None,
    ) -> None:
        refuse_address(folder, "folder")
        place = namespace_folder(folder, user, agent, session)
        if a_file := next((path for path in (place, *place.parents) if path.is_file()), None):
            raise InvalidInputError(f"this is a file, not a folder: {str(a_file)!r}")
        for parent in reversed(place.parents):  # `mkdir` makes the parents of a folder for everybody to read
            parent.mkdir(mode=0o700, exist_ok=True)
        self._clock = clock
        self._is_shared = log is not None
        self._lock = threading.RLock()  # of two corrections of one fact, the second corrects what the first left
        store = None if log is None else log(namespace_folder("", user, agent, session).as_posix())
        self.tree = KeywordTree(str(place), llm_client, clock=clock, store=store)
        self.graph = TreeGraph(self.tree, index=lambda: self.retriever.index)
        indexes = place / "indexes"
        with contextlib.suppress(OSError):  # of earlier versions: it would keep what is deleted
            (indexes / "memory.index").unlink(missing_ok=True)
        self.retriever = MemoryRetriever(
            self.tree, self.graph, config=config, ranker=ranker, clock=clock, index_path=indexes / "memories.db"
        )
        self.knowledge = TreeKnowledge(self.tree, self.graph, self.retriever.index)
        self._recalls = RecallLog(indexes / "recall_stats.json", clock=clock)
        try:
            self._feed = GraphFeed(self.tree, self.graph, extract, llm_client, self._find_existing)
        except InvalidInputError:
            self.tree.Close()
            raise
        self._background = BackgroundReader(self._list_waiting, self._read_waiting) if extract_in_background else None

    def close(self) -> None:
        """Leave the index and the recall statistics on disk, and close the tree.  Closing twice is no error."""
        if self._background is not None:
            self._background.close()
        try:
            for leave in (self.retriever.index.close, lambda: self._recalls.write(self._exists)):
                with contextlib.suppress(KeywordTreeError):  # closed already; what is derived can be made again
                    leave()
        finally:
            self.tree.Close()

    def __repr__(self) -> str:
        """Return one line: the folder, and how much it holds."""
        return repr(self.tree).replace("KeywordTree", "MemoryStore", 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- remembering --

    def remember(
        self,
        record: Record | str,
        keywords: Iterable[str] = (),
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        pinned: bool = False,
        created_by: str = "agent",
    ) -> str:
        """Keep a record or a plain fact, and return its id.

        A record whose id is there already takes its place: a skill learned again is the same skill. Its keywords are
        added to, a pin stays.

        Args:
            record: What is to be kept; a string is a plain fact.
            keywords: Names or paths (`drinks/tea`) of keywords to link it to, as they are written, but for case and
                width; one that is not there is made, under the top. Two processes that name the same new one in the
                same moment may make two.
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
        names = list(dict.fromkeys(check_strings("keywords", keywords)))
        spec = {"content": content, "source": source, "metadata": metadata, "created_by": created_by}
        if not isinstance(record, str):
            old = self.tree.GetInfo(record.id)
            if old is not None and memory_fields(old).get("kind") != own["kind"]:
                raise InvalidInputError(f"{old.id!r} is the id of another memory, which is no {own['kind']}")
        own |= self._note()
        id = self._remember_record(record, spec, names)
        self._read_later(id, own)
        return id

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
        names = list(dict.fromkeys(check_strings("keywords", [source, target])))
        if len(names) < 2:
            raise InvalidInputError(f"a relation needs two keywords, not {shorten(source)} twice")
        with self._lock, self.tree.Operation("relate"):
            ids = [self._keyword_id(name, created_by) for name in names]
            self.graph.add_relation(GraphRelation(ids[0], ids[1], relation_type, weight))

    def _note(self) -> dict[str, Any]:
        """Return the note of a memory that waits to be read; nothing where nothing reads."""
        means = self._feed.means()
        return {"graph": {"waits": means, "tries": 0}} if means else {}

    def _read_later(self, id: str, own: Mapping[str, Any]) -> None:
        """Have a memory read that is on disk, by the thread or now; no lock is held, since a model may think."""
        if "graph" not in own:
            return
        if self._background is not None:
            self._background.wake()
        elif (info := self.tree.GetInfo(id)) is not None:
            self._read_into(info)

    def _find_existing(self, text: str) -> list[tuple[str, str]]:
        """Return what is known of the subjects of a text."""
        found = self.retriever.retrieve(text, _EXISTING)
        return [(" / ".join(each.path), each.info.content[:500]) for each in found if each.info.content != text]

    def _remember_record(self, record: Record | str, spec: dict[str, Any], names: list[str]) -> str:
        if isinstance(record, str):
            return self._remember_new(spec, names)
        while True:
            old = self.tree.GetInfo(record.id)
            if old is not None:
                return self._remember_again(old, spec, names)
            with contextlib.suppress(DuplicateIdError):  # another process or thread has made it: it is there now
                return self._remember_new({**spec, "id": record.id}, names)

    def _remember_new(self, spec: dict[str, Any], names: list[str]) -> str:
        found = [id for name in names if (id := self._find_keyword(name)) is not None]
        if len(found) == len(names):  # a single write is an operation by itself, at half the price
            with contextlib.suppress(NotFoundError):  # deleted meanwhile
                return self.tree.CreateInfo(**spec, keyword_ids=list(dict.fromkeys(found))).id
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(NotFoundError, ConflictError):  # a keyword was deleted meanwhile
                return self._write_new(spec, names)
        return self._write_new(spec, names)

    def _write_new(self, spec: dict[str, Any], names: list[str]) -> str:
        with self._lock, self.tree.Operation("remember"):
            keyword_ids = [self._keyword_id(name, spec["created_by"]) for name in names]
            return self.tree.BatchCreateInfos([{**spec, "keyword_ids": list(dict.fromkeys(keyword_ids))}])[0].id

    def _remember_again(self, old: Info, spec: dict[str, Any], names: list[str]) -> str:
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
        self._settle_names(operation.id, gone, unlinked, [old.id])
        return old.id

    def _settle_names(
        self, operation_id: str, gone: list[str], named: Iterable[str], memory_ids: Collection[str]
    ) -> None:
        """Put right what others did in the moment in which an operation took memories off keywords.

        Whom a memory came to name as he was deleted is named again; whom two forgot at once, each seeing the other's
        memory, is deleted now.
        """
        for id in self._feed.taken_from_others(operation_id, gone, memory_ids) if gone else ():
            with contextlib.suppress(NotFoundError):
                self.extract(id)
        with contextlib.suppress(NotFoundError, ConflictError), self._lock, self.tree.Operation("forget"):
            self._feed.clear((id for id in named if id not in gone), memory_ids)

    def _exists(self, id: str) -> bool:
        return self.tree.GetInfo(id) is not None

    def _describe(self, record: Record | str) -> tuple[dict[str, Any], str]:
        """Return a record's own fields and its text."""
        if isinstance(record, str):
            if not record.strip():
                raise InvalidInputError("a fact must not be blank")
            return {"kind": "fact"}, record
        kind = next((name for name, known in _RECORD_TYPES.items() if isinstance(record, known)), None)
        if kind is None:
            raise InvalidInputError(f"record must be a string or one of the schemas, not {type(record).__name__}")
        messages = record.validate()
        if messages:
            raise InvalidInputError("; ".join(messages))
        own: dict[str, Any] = {"kind": kind, "record": record.to_dict()}
        if isinstance(record, EpisodeTrace):
            own["time"] = as_utc(record.timestamp).timestamp()
        if isinstance(record, SemanticPattern):
            own |= _describe_links(record)
        return own, _text_of(record)

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

    def _named(self, name: str, limit: int) -> list[KeywordNode]:
        # `Search` would pass over symbols (C and C#), and ask a model. The tree's own top is called "root".
        return [node for node in self.tree.FindByName(name, 0, limit) if node.id != "root"]

    def _keyword_id(self, name: str, created_by: str) -> str:
        made = self._find_keyword(name)
        return made or self.tree.CreateKeyword(name, "root", llm_auto_place=False, created_by=created_by).id

    # -- reading for the graph --

    def extract(self, id: str) -> bool:
        """Read a memory for the graph, whatever was read of it before; says whether that could be done.

        It is how memories that were kept without a model come into the graph.

        Raises:
            NotFoundError: There is no such memory.

        Cost: one sync; a call of the model, where there is one.
        """
        info = self._get(id)
        return bool(self._feed.means()) and self._read_into(info) is _Outcome.READ

    def extract_pending(self, limit: int | None = None, *, again: bool = False) -> int:
        """Read memories that wait, the oldest first, and return how many could be read.

        Memories wait that were remembered with `extract_in_background`, until a thread or this method reads them, and
        those that could not be read: where the model could not be reached, for as long as that takes; where its answer
        could not be used, up to three times. Ends early where the model cannot be reached for three in a row.

        Args:
            limit: Read at most this many; None reads all.
            again: Whether to read those, too, that were given up after three times.

        Raises:
            InvalidInputError: `limit` is no number.
        """
        if limit is not None:
            check_count("limit", limit, 0)
        count = downs = 0
        for info in self._waiting(again):
            if (limit is not None and count >= limit) or downs == _DOWNS:
                break
            outcome = self._read_into(info)
            count += outcome is _Outcome.READ
            downs = downs + 1 if outcome is _Outcome.DOWN else 0
        return count

    def wait_for_extraction(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has nothing more to read, or after `timeout_s`; says whether no memory waits.

        While the model cannot be reached the thread goes on trying, so give a timeout. Without `extract_in_background`
        nothing is waited for. A memory that was given up after three times waits still: see `extract_pending`.
        """
        is_idle = self._background is None or self._background.wait(timeout_s)
        return is_idle and not self.graph.waiting()

    @property
    def extraction_failure(self) -> str:
        """Why the last memory could not be read for the graph; "" where it could."""
        return self._feed.failure

    def _waiting(self, again: bool = False) -> Iterator[Info]:
        """Yield the memories that wait and have a try left, the oldest first."""
        for id, (_, tries) in self.graph.waiting().items():
            info = self.tree.GetInfo(id) if again or tries < TRIES else None
            if info is not None and self._feed.means():
                yield info

    def _list_waiting(self) -> list[str]:
        return [info.id for info in self._waiting()]

    def _read_waiting(self, id: str) -> bool:
        """Read a memory for the thread, if it still waits; says whether the next may follow at once."""
        info = self.tree.GetInfo(id)
        return info is None or waits_for(info) is None or self._read_into(info) is not _Outcome.DOWN

    def _read_into(self, info: Info) -> _Outcome:
        """Read a memory that is there already; a change meanwhile has the last word."""
        read = self._feed.read(info.content)
        with contextlib.suppress(VersionConflictError, NotFoundError, ConflictError):
            if isinstance(read, Failure):
                self._note_failure(info, read)
                return _Outcome.DOWN if read.is_down else _Outcome.UNUSABLE
            self._write_reading(info, read)
            return _Outcome.READ
        return _Outcome.OVERTAKEN

    def _note_failure(self, info: Info, failure: Failure) -> None:
        """Let a memory wait that could not be read; what was read of it before stays, and is read no more."""
        own = memory_fields(info)
        waits = waits_for(info)
        if "graph" in own and (waits is None or failure.is_down):
            return
        tries = (0 if waits is None else waits[1]) + (not failure.is_down)
        own = {**own, "graph": {"waits": failure.means, "tries": tries}}
        self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}}, info.version)

    def _write_reading(self, info: Info, reading: Reading | None) -> None:
        """Write what was read of a memory; with None it waits no longer, since nothing reads it."""
        own: dict[str, Any] = {"kind": "fact"}
        own |= {name: value for name, value in memory_fields(info).items() if name != "graph"}
        with self._lock, self.tree.Operation("extract") as operation:
            named = list(dict.fromkeys([*named_in(info), *self._feed.unlink(info.id)]))
            linked = [link.keyword_id for link in self.tree.GetLinks(info.id)]
            placed = Placed({}, [])
            if reading is not None and reading.extraction.entities:
                placed = self._feed.place(reading.extraction, {})
                own["graph"] = self._feed.describe(reading.means, reading.extraction, placed, linked)
            self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, MEMORY_KEY: own}}, info.version)
            self._feed.link(info.id, placed, linked)
            gone = self._feed.clear((id for id in named if id not in placed.ids.values()), [info.id])
        self._feed.merge_duplicates(placed.made)
        self._settle_names(operation.id, gone, named, [info.id])

    # -- recalling --

    def recall(
        self,
        query: str,
        limit: int = 5,
        *,
        kinds: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        since: float | datetime | None = None,
        until: float | datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: RetrieverConfig | None = None,
    ) -> list[Retrieved]:
        """Return the memories that fit a question, best first, and count the recall of each.

        Args:
            query: The question, as it was asked.
            limit: At most this many.
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
        found = self.retriever.retrieve(query, limit, None if filters == Filters() else filters, config)
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
    ) -> str:
        """Put a new fact in the place of an old one, and return its id.

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
        names = list(dict.fromkeys(check_strings("keywords", keywords)))
        own = {"kind": "fact", **self._note()}
        new_id = self._correct_at_last(id, record, source, created_by, names, own)
        self._read_later(new_id, own)
        return new_id

    def _correct_at_last(
        self, id: str, record: str, source: str | None, created_by: str, names: list[str], own: Mapping[str, Any]
    ) -> str:
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
        names: list[str],
        own_of_new: Mapping[str, Any],
    ) -> str:
        with self._lock, self.tree.Operation("correct") as operation:
            old = self._newest(id)
            own = memory_fields(old)
            if own.get("kind", "fact") != "fact":
                raise InvalidInputError(f"{old.id!r} is no plain fact: remember the record again")
            # Made from the old one's, so that of two processes one finds it taken: two successors would both be true.
            new_id = str(uuid.uuid5(_SUCCESSORS, old.id))
            pin = {"pinned": True} if own.get("pinned") is True else {}
            metadata = {**old.metadata, MEMORY_KEY: {**own_of_new, **pin, "supersedes": old.id}}
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
        self._settle_names(operation.id, gone, named_in(old), [old.id])
        return new_id

    def history(self, id: str) -> list[Version]:
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

    def _chain(self, id: str) -> list[Info]:
        """Return a memory's present version, and all that this one supersedes, at however many removes."""
        chain = {(info := self._newest(id)).id: info}
        stack = [info]
        while stack:
            for old_id in superseded_ids(stack.pop()):
                old = None if old_id in chain else self.tree.GetInfo(old_id)
                if old is not None and self._successor(old) is not None:  # in a circle nothing is superseded
                    chain[old.id] = old
                    stack.append(old)
        return list(chain.values())

    def record(self, id: str) -> Record | None:
        """Return the record that a memory holds, with its recalls counted: `access_count`, `last_accessed`.

        None for a plain fact.

        Raises:
            NotFoundError: There is no such memory.

        Cost: reads the recall statistics.
        """
        return _with_recalls(record_of(self._get(id)), self._recalls.stats().get(id))

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
        known, now = self.retriever.known(), self._clock()
        stats = {} if self._is_shared else self._recalls.stats()
        whole = {id: _add_up(stats, self.retriever.index.walk_back([id])) for id in known}
        importance: dict[str, float] = {}
        links: dict[str, tuple[str, ...]] = {}
        for id in (id for id, facts in known.items() if facts.kind in _RECORD_TYPES):
            info = self.tree.GetInfo(id)
            record = _with_recalls(record_of(info), whole[id]) if info is not None else None
            if info is not None and record is not None:
                importance[id] = record.current_importance(datetime.fromtimestamp(now, UTC))
                links[id] = strings_in(memory_fields(info).get("links"))
        referred: dict[str, str] = {}
        while True:
            candidates = [
                Candidate(id, facts.time, facts.pinned or id in referred, importance.get(id))
                for id, facts in known.items()
            ]
            evictions = choose_evictions(candidates, policy, whole, now)
            going = {eviction.id for eviction in evictions}
            needed = {target: id for id, targets in links.items() if id not in going for target in targets}
            if not (needed := {target: id for target, id in needed.items() if target in going}):
                break
            referred |= needed
        infos = [info for eviction in evictions if (info := self.tree.GetInfo(eviction.id)) is not None]
        versions = {info.id: info.version for info in infos}
        return ForgettingPlan(evictions, len(candidates) - len(evictions), referred, versions)

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
            named = list(dict.fromkeys(id for info in going.values() for id in named_in(info)))
            gone = self._feed.clear(named, going)
        self._settle_names(operation.id, gone, named, going)
        return operation.id

    def undo(self, operation_id: str | None, changed_by: str = "user") -> str:
        """Put back what an operation changed, as a new operation, and return the id of that.

        As `tree.Undo`; but where later memories are linked to a keyword that the operation made, that keyword stays.

        Args:
            operation_id: `store.tree.last_operation` after a call, what `forget` returned, or one of `tree.History()`.
            changed_by: The author.

        Raises:
            ConflictError: A later operation changed what this one wrote; a memory can then be corrected or forgotten.
            NotFoundError: There is no such operation.

        Cost: reads the log backwards to the operation; one sync.
        """
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


def _with_recalls(record: Record | None, stats: RecallStats | None) -> Record | None:
    if record is not None and stats is not None and stats.recall_count:
        recalled = datetime.fromtimestamp(stats.last_recall_at, UTC)
        record.access_count += stats.recall_count
        record.last_accessed = max(recalled, as_utc(record.last_accessed or recalled))
    return record


def _add_up(stats: Mapping[str, RecallStats], ids: Iterable[str]) -> RecallStats:
    found = [stats[id] for id in ids if id in stats]
    return RecallStats(
        sum(each.recall_count for each in found),
        sum(each.total_score for each in found),
        max((each.last_recall_at for each in found), default=0.0),
    )


_ATTEMPTS = 9  # at a write that others disturb
_SAME_NAMES = 1_000  # keywords of one name that a path may lead through
_EXISTING = 5  # memories on the same subject that a model is shown
_DOWNS = 3  # in a row, after which the model counts as out of reach


def _describe_links(pattern: SemanticPattern) -> dict[str, Any]:
    """Return the memories that a pattern links to, and those whose place it takes."""
    links = [*pattern.source_episodes, *(link.to_id for link in pattern.links)]
    found: dict[str, Any] = {"links": list(dict.fromkeys(links))} if links else {}
    olds = [link.to_id for link in pattern.links if link.relation == "supersedes" and link.to_id != pattern.id]
    news = [link.to_id for link in pattern.links if link.relation == "superseded_by" and link.to_id != pattern.id]
    return found | ({"supersedes": olds} if olds else {}) | ({"superseded_by": news[0]} if news else {})


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):  # "no" would be true
        raise InvalidInputError(f"{name} must be True or False, not {shorten(value)}")


def _seconds(when: float | datetime | None) -> float | None:
    return as_utc(when).timestamp() if isinstance(when, datetime) else when


def _text_of(record: Record) -> str:
    """Return a record as a person would read it: what names it first, a thing on a line."""
    if isinstance(record, EpisodeTrace):
        actions = [f"{entry.tool} {entry.input}: {entry.output}" for entry in record.action_log]
        errors = [f"{error.error_type}: {error.message} → {error.resolution}" for error in record.errors_encountered]
        lines = [record.goal, f"{record.outcome}, {record.phase}, {record.agent}, {record.task_id}", *actions, *errors]
        return "\n".join(
            [*lines, *record.artifacts_produced, *dict.fromkeys([*record.files_read, *record.files_modified])]
        )
    if isinstance(record, SemanticPattern):
        lines = [record.pattern, record.category, *record.conditions]
        return "\n".join(filter(None, [*lines, record.correct_approach, record.incorrect_approach]))
    errors = [f"{error.error} → {error.fix}" for error in record.common_errors]
    lines = [record.name, record.description, *record.prerequisites, *record.steps, *errors, *record.exit_criteria]
    return "\n".join(filter(None, [*lines, record.example_usage]))
