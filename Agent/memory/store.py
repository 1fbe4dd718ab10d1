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

A memory is an info of the tree: its text is the content, its keywords are the tree's, and its other data are in the
info's metadata under `"memory"`, see `memory_fields`. So a program that opens the folder as a `KeywordTree`
reads all of it. Every method that writes is one operation of the tree, and can be undone.

A fact that is there already is not kept twice: it has both sources, and counts as said now.

A fact that was corrected keeps its text and its place in the chain, but no keyword, and is not recalled; nor is a
pattern that another one, with a link `supersedes`, took the place of.
"""

import builtins
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from ..base.awaiting import Twin
from ..base.checks import check_count, check_methods, shorten
from ..base.names import decode_name, encode_name
from ..finding.embedder import Embedder, Meaning, meaning_of
from ..finding.tree import TreeRanker
from ..keyword_tree import LOG_NAME, InvalidInputError, KeywordTree, KeywordTreeError, LLMClient
from ..models.judge import SHOWN, judge
from ..store.addresses import refuse_address
from .eviction import EvictionPolicy, ForgettingPlan, RecallLog, RecallStats, plan_forgetting
from .memory_fields import Memory, Record, record_of, with_recalls
from .memory_rows import Filters
from .reading import MemoryReader, check_reader
from .retriever import MemoryRetriever, Retrieved, RetrieverConfig
from .schemas import seconds_of
from .tree_graph import KnowledgeStore, TreeGraph
from .writing import MemoryWriter, Remembered

__all__ = ["AsyncMemoryStore", "ForgettingPlan", "MemoryStore", "Record", "Remembered", "Version", "namespace_folder"]
__all__ += ["record_of"]

_log = logging.getLogger(__name__)


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
    """The id of its successor; None is the present one."""
    record: Record | None = field(default=None, repr=False)
    """The record, where it is none of the plain facts."""


# The store


class MemoryStore(MemoryWriter):
    """An agent's memory in a folder, or in a tree; a context manager, and safe to use from many threads.

    Writing is inherited from `MemoryWriter`. The parts that it delegates to are public, and can be used alone.

    Args:
        place: A folder, which holds one directory for each namespace; that of a tree, which is one memory; or an open
            `KeywordTree`, which `close` leaves open.
        user, agent, session: The namespace in a folder; no other namespace sees its memories.
        llm_client: The model, for the tree and for `extract="model"`.
        extract: The reader of entities and relations: `"model"`, the `llm_client`; None, no one: a memory is its text,
            on the keywords that the caller names. See `reading`.
        config: The channels and weights of `recall`.
        meaning: How to compare by meaning: a `Meaning` or an `Embedder`; True is the small model of the extra `[local]`
            where it is installed, False compares words alone.
        judge: A model that is shown the best few memories with each question; only those that answer it are recalled.
            None, the default, asks none.
        clock: Seconds since the epoch.
        log: Keeps the logs in place of the folder, as `SharedLog.tree` does. Takes the namespace's name, and returns a
            store for `KeywordTree(store=…)`; the folder then holds derived indexes only, and recalls are counted on
            each machine alone, so that no policy of forgetting weighs them.

    Attributes:
        tree: All of it as a `KeywordTree`.
        graph: The same as a `TreeGraph`: its entities and relations.
        retriever: The retriever of `recall`.
        knowledge: The same as pages, one for each keyword.
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
        meaning: Meaning | Embedder | bool = True,
        judge: LLMClient | None = None,
        clock: Callable[[], float] = time.time,
        extract: str | None = None,
        log: Callable[[str], Callable[[], Any]] | None = None,
    ) -> None:
        check_methods("judge", judge, "Chat")
        check_methods("log", log, "__call__")
        if not isinstance(config, RetrieverConfig | None):
            raise InvalidInputError(f"config must be a RetrieverConfig, not {shorten(config)}")
        reads = check_reader(extract, llm_client)
        meaning = meaning if isinstance(meaning, bool) else meaning_of(meaning) or False
        self._judge = judge
        self._owns_tree = not isinstance(place, KeywordTree)
        if isinstance(place, KeywordTree):
            if user is not None or agent is not None or session is not None or log is not None:
                raise InvalidInputError("a tree is one memory: user, agent, session and log need a folder")
            tree = place
        else:
            folder = _folder_of(place, user, agent, session)
            store = None if log is None else log(namespace_folder("", user, agent, session).as_posix())
            ranker = partial(TreeRanker, meaning=meaning)
            tree = KeywordTree(str(folder), llm_client, clock=clock, store=store, ranker=ranker)
            for parent in reversed(folder.parents):  # of indexes alone; `mkdir` makes parents for everybody to read
                parent.mkdir(mode=0o700, exist_ok=True)
        self._is_shared = not (Path(tree.data_dir) / LOG_NAME).exists()  # else the folder has the log
        indexes = Path(tree.data_dir).absolute() / "indexes"
        retriever = MemoryRetriever(
            tree, config=config, meaning=meaning, clock=clock, index_path=indexes / "memories.db", speaker=user or ""
        )
        graph, lock = TreeGraph(tree, retriever.index), threading.RLock()
        reader = MemoryReader(tree, graph, lock, reads, self._find_existing)
        super().__init__(tree, graph, retriever, reader, lock, clock)
        self.knowledge = KnowledgeStore(tree, graph, retriever.index)
        self._recalls = RecallLog(indexes / "recall_stats.json", clock=clock)

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
        try:
            for leave in (self.retriever.index.close, lambda: self._recalls.write(lambda id: self.get(id) is not None)):
                with contextlib.suppress(KeywordTreeError):  # closed already; what is derived can be made again
                    leave()
        finally:
            if self._owns_tree:
                self.tree.Close()

    def __repr__(self) -> str:
        """Return one line: the folder, how much it holds, and what ranks."""
        said = repr(self.tree).replace("KeywordTree", "MemoryStore", 1).removesuffix(">")
        return f"{said}, ranked by {self.retriever.index.ranked_by}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- contents --

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
            if info is not None:  # forgotten in between
                yield Memory(info)

    def list(self, limit: int | None = None) -> builtins.list[Memory]:
        """Return the recallable memories, the newest first, at most `limit`; None is all."""
        if limit is not None:
            check_count("limit", limit, 0)
        return [memory for memory, _ in zip(self, range(limit), strict=False)] if limit is not None else [*self]

    def get(self, id: str) -> Memory | None:
        """Return a memory, also one that was corrected; None where there is none."""
        info = self.tree.GetInfo(id)
        return None if info is None else Memory(info)

    # -- reading for the graph --

    def extract(self, id: str) -> bool:
        """Read a memory for the graph, again if it was read before; return whether it could be read.

        It is how memories that were kept without a model come into the graph.

        Raises:
            NotFoundError: There is no such memory.

        Cost: one sync; a call of the model, where there is one.
        """
        return self._reader.read(id)

    def extract_pending(self, limit: int | None = None) -> int:
        """Read waiting memories, the oldest first, at most `limit`, and return how many could be read.

        A memory waits where it could not be read, or where its process died before.
        """
        return self._reader.read_pending(limit)

    @property
    def extraction_failure(self) -> str:
        """Why the last memory could not be read for the graph; "" where it could."""
        return self._reader.failure

    def _find_existing(self, text: str) -> builtins.list[tuple[str, str]]:
        """Return known texts on the subjects of a text."""
        found = self.retriever.retrieve(text, _EXISTING)
        return [(" / ".join(each.path), each.info.content[:500]) for each in found if each.info.content != text]

    # -- recalling --

    def recall(
        self,
        query: str,
        limit: int = 5,
        *,
        min_score: float | None = None,
        kinds: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        since: float | datetime | str | None = None,
        until: float | datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: RetrieverConfig | None = None,
    ) -> builtins.list[Retrieved]:
        """Return the memories that fit a question, best first, and count the recall of each.

        Args:
            query: The question, as it was asked.
            limit: At most this many; with a `judge` at most the 8 that it is shown.
            min_score: The least score, from 0 to 1; None is that of `config`.
            kinds: Only `"fact"`, `"episode"`, `"pattern"`, `"skill"`.
            sources: Only from these.
            since: Not older than this; seconds since the epoch, a datetime or an ISO date, without a time zone in
                UTC.
            until: Older than this, likewise.
            metadata: Only with these keys and values.
            config: Other channels and weights, for this call.

        Raises:
            InvalidInputError: A kind is unknown, and an argument that cannot be used.

        Cost: see `MemoryRetriever`; nothing is written to the log.
        """
        filters = Filters(kinds, sources, _seconds(since), _seconds(until), metadata)
        config = config or self.retriever.config
        config = config if min_score is None else replace(config, min_score=min_score)
        wanted = limit if self._judge is None else max(limit, SHOWN)
        found = self.retriever.retrieve(query, wanted, filters, config)
        if self._judge is not None:
            answering = {*judge(self._judge, query, [(each.id, each.text) for each in found[:SHOWN]])}
            found = [each for each in found if each.id in answering][:limit]
        self._recalls.record({memory.info.id: min(1.0, max(0.0, memory.score)) for memory in found})
        return found

    def record_recall(self, id: str, score: float) -> None:
        """Count one recall of a memory, as `recall` does.

        Args:
            id: The memory.
            score: How well it fitted, from 0 to 1.

        Raises:
            NotFoundError: There is no such memory.
            InvalidInputError: The score is not between 0 and 1.
        """
        self._get(id)
        self._recalls.record({id: score})

    # -- history --

    def history(self, id: str) -> builtins.list[Version]:
        """Return the versions of a memory, the present one first, with the patterns that it replaced.

        Former states of a record that was remembered again are in `tree.History(id)`.

        Args:
            id: Of any of its versions.

        Raises:
            NotFoundError: There is no such memory.
        """
        return [
            Version(info.id, info.content, info.source, info.created_at, self._successor(info), record_of(info))
            for info in self._chain(id)
        ]

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

    def plan_forgetting(self, policy: EvictionPolicy) -> ForgettingPlan:
        """Return the memories that a policy would forget, with reasons; changes nothing.

        A corrected memory has the recalls of its former versions, too.

        Raises:
            InvalidInputError: it is no policy, or weighs recalls, though the log is shared: each machine knows its own.

        Cost: reads every record.
        """
        if not isinstance(policy, EvictionPolicy):
            raise InvalidInputError(f"policy must be an EvictionPolicy, not {shorten(policy)}")
        if self._is_shared and policy.max_items is not None and (policy.recall_weight or policy.score_weight):
            raise InvalidInputError(
                "over a shared log recalls are counted on each machine alone, so no policy can weigh them: use Ttl or "
                "Capacity, or set recall_weight and score_weight to 0"
            )
        self.retriever.index.catch_up()
        stats = {} if self._is_shared else self._recalls.stats()
        return plan_forgetting(self.tree, self.retriever.index, stats, policy, self._clock())


class AsyncMemoryStore(Twin, of=MemoryStore):
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

    Raises:
        ImportError: anyio is not installed; the message says how.
    """

    def __init__(self, place: "str | Path | KeywordTree | MemoryStore", *names: str | None, **arguments: Any) -> None:
        try:
            from anyio import to_thread
        except ImportError as error:
            raise ImportError("AsyncMemoryStore needs anyio: pip install '.[async]' in its repository") from error
        self._run = to_thread.run_sync
        self._owns_store = not isinstance(place, MemoryStore)
        super().__init__(lambda: place if isinstance(place, MemoryStore) else MemoryStore(place, *names, **arguments))

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return self._run(call)

    async def close(self) -> None:
        """Close the store, unless it was given."""
        if self._owns_store:
            await super().close()

    async def __aiter__(self) -> AsyncIterator[Memory]:
        """Yield the memories that may be recalled, the newest first."""
        for memory in await self.list():
            yield memory


def _folder_of(place: str | Path, user: str | None, agent: str | None, session: str | None) -> Path:
    """Return the directory of a namespace, which the tree makes; the path does not depend on `chdir`."""
    refuse_address(place, "folder")
    folder = namespace_folder(place, user, agent, session).absolute()
    if a_file := next((path for path in (folder, *folder.parents) if os.path.isfile(path)), None):
        raise InvalidInputError(f"this is a file, not a folder: {str(a_file)!r}")
    tree = Path(place).absolute()
    if os.path.exists(tree / LOG_NAME) and not folder.exists():
        if folder.parent != tree:
            raise InvalidInputError(f"one memory is in this folder, without names: {str(place)!r}")
        return tree
    if folder.parent == tree and os.path.isdir(tree) and not folder.exists() and (users := MemoryStore.users(tree)):
        _log.warning("a new memory, of no user, begins beside those of %s: was user= forgotten?", ", ".join(users))
    return folder


_EXISTING = 5  # memories on the same subject that a model is shown


def _seconds(when: Any) -> Any:
    with contextlib.suppress(ValueError):  # `Filters` refuses what is no time, too
        when = datetime.fromisoformat(when) if isinstance(when, str) else when
    return seconds_of(when) if isinstance(when, datetime) else when
