"""Remember, recall, correct, forget: a memory for an agent behind one small door.

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
>>> _ = store.tree.Undo(operation)
>>> store.recall("Where does Ada live?", limit=1)[0].path
['Ada']
>>> store.close()
>>> MemoryStore(folder.name, user="bob").recall("Where does Ada live?")
[]
>>> folder.cleanup()

A memory is an info of the tree: its text is the content, its keywords are the tree's, and what else is known of it
stands in the info's metadata under `"memory"`: `kind`, `record` (what `to_dict` gives), `time`, `links`, `pinned`,
`supersedes` and `superseded_by`. So whoever opens the folder as a `KeywordTree` reads all of it. Every method that
writes is one operation of the tree, and can be undone.

A fact that was corrected keeps its text and its place in the chain, but no keyword, and is not recalled.
"""

import contextlib
import threading
import time
import unicodedata
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeAlias, cast
from urllib.parse import quote

from Agent.keyword_tree import Info, InvalidInputError, KeywordTree, LLMClient, NotFoundError
from Agent.memory.eviction import Candidate, Doomed, EvictionPolicy, RecallLog, choose_doomed
from Agent.memory.graph import TreeGraph
from Agent.memory.retriever import OWN, Filters, MemoryRetriever, Ranker, Retrieved, RetrieverConfig, own_fields
from Agent.memory.schemas import EpisodeTrace, ProceduralSkill, SemanticPattern

__all__ = ["ForgettingPlan", "MemoryStore", "Record", "Version", "namespace_folder", "record_of"]

Record: TypeAlias = EpisodeTrace | SemanticPattern | ProceduralSkill

_KINDS: Mapping[str, type[Record]] = {"episode": EpisodeTrace, "pattern": SemanticPattern, "skill": ProceduralSkill}
_NAME_LIMIT = 200  # bytes of a folder's name, which file systems cut at 255


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
            path /= f"{kind}={_encode_name(kind, name)}"
    return path / "memory"


def _encode_name(kind: str, name: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError(f"{kind} must be a name, not {name!r}")
    if name != unicodedata.normalize("NFC", name) or any(unicodedata.category(char)[0] == "C" for char in name):
        raise InvalidInputError(f"{kind} has characters that cannot be told apart by sight: {name!r}")
    encoded = "".join(
        char if char in _PLAIN or (not char.isascii() and char.isalnum() and char == char.casefold()) else _code(char)
        for char in name
    )
    if len(encoded.encode()) > _NAME_LIMIT:
        raise InvalidInputError(f"{kind} is too long for the name of a folder: {name[:60]!r}")
    return encoded


def _code(char: str) -> str:
    quoted = quote(char, safe="")
    return quoted if quoted != char else f"%{ord(char):02X}"


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


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

    doomed: Sequence[Doomed]
    """What would go."""
    kept: int
    """How many would stay, pinned ones included."""


def record_of(info: Info) -> Record | None:
    """Return the record that an info holds; None for a plain fact, and for what is damaged."""
    own = own_fields(info)
    kind, data = _KINDS.get(str(own.get("kind"))), own.get("record")
    if kind is None or not isinstance(data, Mapping):
        return None
    with contextlib.suppress(ValueError):
        return kind.from_dict(data)
    return None


# The store


class MemoryStore:
    """An agent's memory in a folder; a context manager, and safe to use from many threads.

    Args:
        folder: Holds one directory for each namespace.
        user, agent, session: The namespace; what is written in one is never seen in another.
        llm_client: Who chooses keywords where none are given; None leaves such memories without.
        config: How `recall` looks.
        ranker: Another ranking, as one by embeddings, fused with the full-text one.
        clock: Seconds since the epoch.

    Attributes:
        tree: All of it as a `KeywordTree`.
        graph: The same as a `TreeGraph`: what hangs together.
        retriever: What `recall` asks.
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
    ) -> None:
        place = namespace_folder(folder, user, agent, session)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clock = clock
        self._auto_link = llm_client is not None
        self._lock = threading.RLock()  # of two corrections of one fact, the second corrects what the first left
        self.tree = KeywordTree(str(place), llm_client, clock=clock)
        self.graph = TreeGraph(self.tree)
        self.retriever = MemoryRetriever(self.tree, self.graph, config=config, ranker=ranker, clock=clock)
        self._recalls = RecallLog(place / "indexes" / "recall_stats.json", clock=clock)

    def close(self) -> None:
        """Write the recall statistics and close the tree."""
        self._recalls.write()
        self.tree.Close()

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

        A record whose id is there already takes its place: a skill learned again is the same skill.

        Args:
            record: What is to be kept; a string is a plain fact.
            keywords: Names or paths of keywords to hang it on; one that is not there is made, beneath the top.
            source: Where it is from: a conversation, a document. What has the same source belongs together, in the
                order of remembering.
            metadata: A JSON object of the caller's own, to filter by; `"memory"` is taken.
            pinned: Whether it stays when others are forgotten.
            created_by: Who says so.

        Raises:
            InvalidInputError: The record is not valid (its messages), or an argument cannot be stored.

        Cost: one sync.
        """
        own, content, links = self._describe(record)
        if pinned:
            own["pinned"] = True
        if links:
            own["links"] = links
        whole = self._join_metadata(metadata, own)
        id = str(uuid.uuid4()) if isinstance(record, str) else record.id
        names = _check_names(keywords)
        if not names and not self._exists(record):  # nothing to be read before: one write is one operation by itself
            spec = {"id": id, "content": content, "source": source, "metadata": whole, "created_by": created_by}
            return self.tree.BatchCreateInfos([{**spec, "auto_link": self._auto_link}])[0].id
        with self._lock, self.tree.Operation("remember"):
            keyword_ids = [self._keyword_id(name, created_by) for name in names]
            if self._exists(record):
                self.tree.UpdateInfo(id, {"content": content, "source": source, "metadata": whole})
                for keyword_id in keyword_ids:
                    self.tree.LinkInfo(id, keyword_id, created_by=created_by)
            else:
                self._create(id, content, source, keyword_ids, whole, created_by)
        return id

    def _exists(self, record: Record | str) -> bool:
        return not isinstance(record, str) and self.tree.GetInfo(record.id) is not None

    def _describe(self, record: Record | str) -> tuple[dict[str, Any], str, list[str]]:
        """Return a record's own fields, its text, and the memories that it links to."""
        if isinstance(record, str):
            if not record.strip():
                raise InvalidInputError("a fact must not be blank")
            return {"kind": "fact"}, record, []
        kind = next((name for name, known in _KINDS.items() if isinstance(record, known)), None)
        if kind is None:
            raise InvalidInputError(f"record must be a string or one of the schemas, not {type(record).__name__}")
        messages = record.validate()
        if messages:
            raise InvalidInputError("; ".join(messages))
        own: dict[str, Any] = {"kind": kind, "record": record.to_dict()}
        if isinstance(record, EpisodeTrace):
            own["time"] = record.timestamp.timestamp()
        links = record.source_episodes if isinstance(record, SemanticPattern) else []
        links = [*links, *(link.to_id for link in record.links)] if isinstance(record, SemanticPattern) else links
        return own, _text_of(record), list(dict.fromkeys(links))

    def _join_metadata(self, metadata: Mapping[str, Any] | None, own: dict[str, Any]) -> dict[str, Any]:
        if metadata is not None and (not isinstance(metadata, Mapping) or OWN in metadata):
            raise InvalidInputError(f"metadata must be an object without the key {OWN!r}")
        return {**(metadata or {}), OWN: own}

    def _create(
        self, id: str, content: str, source: str, keyword_ids: list[str], metadata: dict[str, Any], created_by: str
    ) -> None:
        spec = {"id": id, "content": content, "source": source, "keyword_ids": keyword_ids, "metadata": metadata}
        self.tree.BatchCreateInfos([{**spec, "created_by": created_by}])

    def _keyword_id(self, name: str, created_by: str) -> str:
        found = self.tree.Search(name, llm_expand_query=False)
        if found.node is not None:
            return found.node.id
        if found.candidates:  # several of this name: the oldest
            return found.candidates[0].id
        return self.tree.CreateKeyword(name, "root", llm_auto_place=False, created_by=created_by).id

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
            limit: At most so many.
            kinds: Only `"fact"`, `"episode"`, `"pattern"`, `"skill"`.
            sources: Only from these.
            since: Not older than this; seconds since the epoch, or a datetime.
            until: Older than this, likewise.
            metadata: Only with these keys and values.
            config: Another way of looking, this once.

        Cost: see `MemoryRetriever`; nothing is written to the log.
        """
        filters = Filters(kinds, sources, _seconds(since), _seconds(until), metadata)
        found = self.retriever.retrieve(query, limit, None if filters == Filters() else filters, config)
        for memory in found:
            self.record_recall(memory.info.id, memory.score)
        return found

    def record_recall(self, id: str, score: float) -> None:
        """Count one recall of a memory; what `recall` does by itself."""
        self._recalls.record(id, score)

    # -- correcting --

    def correct(
        self, id: str, record: str, source: str | None = None, created_by: str = "agent", keywords: Iterable[str] = ()
    ) -> str:
        """Put a new fact in the place of an old one, and return its id.

        The new one hangs on the same keywords, and has a `supersedes` link to the old one, which stays in the history.

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
        new_id = str(uuid.uuid4())
        if not isinstance(record, str) or not record.strip():
            raise InvalidInputError(f"record must be a fact, not {record!r}")
        with self._lock, self.tree.Operation("correct"):
            old = self._newest(id)
            own = own_fields(old)
            if own.get("kind", "fact") != "fact":
                raise InvalidInputError(f"{old.id!r} is no plain fact: remember the record again")
            links = [node.id for node, _ in self.tree.GetKeywordsOfInfo(old.id)]
            links += [self._keyword_id(name, created_by) for name in _check_names(keywords)]
            kept = {name: value for name, value in own.items() if name == "pinned"}
            new_own = {"kind": "fact", **kept, "supersedes": old.id}
            metadata = {**old.metadata, OWN: new_own}
            where = old.source if source is None else source
            self._create(new_id, record, where, list(dict.fromkeys(links)), metadata, created_by)
            self.tree.UpdateInfo(old.id, {"metadata": {**old.metadata, OWN: {**own, "superseded_by": new_id}}})
            for keyword_id in links:
                self.tree.UnlinkInfo(old.id, keyword_id)
        return new_id

    def history(self, id: str) -> list[Version]:
        """Return what a memory said over time, the present one first.

        What a record was before it was remembered again is in `tree.History(id)`.

        Args:
            id: Of any of its versions.

        Raises:
            NotFoundError: There is no such memory.
        """
        return [
            Version(
                info.id,
                info.content,
                info.source,
                info.created_at,
                cast("str | None", own_fields(info).get("superseded_by")),
                record_of(info),
            )
            for info in self._chain(id)
        ]

    def _get(self, id: str) -> Info:
        info = self.tree.GetInfo(id)
        if info is None:
            raise NotFoundError("info", id)
        return info

    def _newest(self, id: str) -> Info:
        return self._follow(self._get(id), "superseded_by")[-1]

    def _chain(self, id: str) -> list[Info]:
        return self._follow(self._newest(id), "supersedes")

    def _follow(self, info: Info, way: str) -> list[Info]:
        chain = [info]
        seen = {info.id}
        while isinstance(next_id := own_fields(chain[-1]).get(way), str) and next_id not in seen:
            following = self.tree.GetInfo(next_id)
            if following is None:
                break
            seen.add(next_id)
            chain.append(following)
        return chain

    # -- forgetting --

    def pin(self, id: str, pinned: bool = True) -> None:
        """Let a memory stay when others are forgotten, or let it go with them."""
        with self.tree.Operation("pin"):
            info = self._newest(id)
            own = {name: value for name, value in own_fields(info).items() if name != "pinned"}
            own = {"kind": "fact", **own, **({"pinned": True} if pinned else {})}
            self.tree.UpdateInfo(info.id, {"metadata": {**info.metadata, OWN: own}})

    def plan_forgetting(self, policy: EvictionPolicy) -> ForgettingPlan:
        """Return what a policy would forget, and why; changes nothing."""
        candidates = list(self._candidates())
        doomed = choose_doomed(candidates, policy, self._recalls.stats(), self._clock())
        return ForgettingPlan(doomed, len(candidates) - len(doomed))

    def _candidates(self) -> Iterator[Candidate]:
        for id, known in self.retriever.known().items():
            own = known.metadata.get(OWN)
            yield Candidate(id, known.time, isinstance(own, Mapping) and own.get("pinned") is True)

    def forget(self, what: str | ForgettingPlan) -> str:
        """Delete one memory, or what a plan says, with all that it superseded, and return the operation's id.

        A memory of a plan that was pinned or deleted since is passed over; one that is named goes, pinned or not.
        Until the log is compacted without its history, `tree.Undo` brings all of it back.

        Raises:
            NotFoundError: There is no memory with this id.

        Cost: one sync.
        """
        with self._lock, self.tree.Operation("forget") as operation:
            if isinstance(what, str):
                chains = [self._chain(what)]
            else:
                chains = [self._chain(doomed.id) for doomed in what.doomed if self.tree.GetInfo(doomed.id) is not None]
                chains = [chain for chain in chains if own_fields(chain[0]).get("pinned") is not True]
            for id in dict.fromkeys(info.id for chain in chains for info in chain):
                self.tree.DeleteInfo(id)
        return operation.id


def _check_names(keywords: Iterable[str]) -> list[str]:
    if isinstance(keywords, str):  # each of its characters would become a keyword
        raise InvalidInputError(f"keywords must be a list of strings, not {keywords!r}")
    return list(dict.fromkeys(keywords))


def _seconds(when: float | datetime | None) -> float | None:
    return when.timestamp() if isinstance(when, datetime) else when


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
