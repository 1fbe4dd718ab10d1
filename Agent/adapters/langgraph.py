"""A LangGraph store in a tree: `KeywordTreeStore` for `InMemoryStore`, `SqliteStore` or `PostgresStore`.

>>> from tempfile import TemporaryDirectory
>>> folder = TemporaryDirectory()
>>> store = KeywordTreeStore.from_folder(folder.name)
>>> store.put(("users", "张三"), "food", {"likes": "绿茶", "cups": 3})
>>> store.put(("users", "Ada"), "food", {"likes": "coffee", "cups": 1})
>>> store.get(("users", "张三"), "food").value
{'likes': '绿茶', 'cups': 3}
>>> [item.value["likes"] for item in store.search(("users",), filter={"cups": {"$gt": 2}})]
['绿茶']
>>> store.search(("users",), query="谁喝绿茶？", limit=1)[0].key, store.list_namespaces()
('food', [('users', 'Ada'), ('users', '张三')])
>>> undone = store.tree.Undo(store.operation_of(("users", "Ada"), "food"))  # nothing is ever lost
>>> store.list_namespaces()
[('users', '张三')]
>>> store.close(); folder.cleanup()

Stored in the tree: each label of a namespace is a keyword under that of the label before it, and an item is an info of
the last one, whose content is the value as JSON. The ids follow from the namespace and the key by a hash, so
that two processes agree. `metadata["langgraph"]` of the info holds namespace, key and the other arguments of `put`;
that is the truth, wherever a person has moved or renamed the keywords.

Namespaces, keys and up to 64 MiB of values are held in memory, and follow the tree's log: what other processes write,
undo and restore is seen with the next call. Items of an open `Operation` of the caller are seen when it has ended.
Of many items, the list without the values is kept in `indexes/` beside the tree: the next process goes on with it.
"""

import asyncio
import heapq
import itertools
import json
import logging
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self, TypeAlias, cast

from typing_extensions import override

from ..base.checks import depth_of
from ..base.text import mapping_of, plain_of, strings_of
from ..keyword_tree import Info, InvalidInputError, KeywordTree, NotFoundError
from ..store.addresses import open_tree
from .filters import leaves, read_filter
from .item_ranking import ItemRanking, index_path
from .items import ItemAdapter, ItemList
from .operations import InOrder, add_missing, id_of, try_again

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
    )
except ImportError as error:
    raise ImportError("the LangGraph store needs langgraph: pip install '.[langgraph]' in its repository") from error

__all__ = ["KeywordTreeStore"]

AUTHOR = "langgraph"
"""The author of the store's records, and its key in the metadata."""

HELD_LIMIT = 64 * 1024 * 1024
"""Characters of values that stay decoded in memory; others are read from the tree when they are asked for."""

BAR = 0.1
"""The score that an item needs to be found by words, 0 to 1: one that only shares an everyday word has less."""

LABELS = 100
"""Labels of a namespace, at most: each is a level of the tree."""

_DEPTH = 200  # levels of lists and dicts in a value
_REMEMBERED = 10_000  # items whose last operation is remembered
_LATE = 0.1  # of a time to live: so much of it may be gone before a refresh is written to the log
_SWEEP_MINUTES = 5.0

_Path: TypeAlias = tuple[str, ...]
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """The part of an item in memory."""

    id: str
    order: int  # of its put among all
    namespace: _Path
    key: str
    created_at: float
    updated_at: float
    content_hash: int
    ttl: float | None  # minutes
    logged_expiry: float | None  # as it is in the log: `expires_at` may be ahead of it
    expires_at: float | None
    size: int = 0  # of the content, where the value is held
    value: dict[str, Any] | None = None


class _Items(ItemList[_Held]):
    """The items by namespace and key, in the order of their puts."""

    moves = True

    @override
    def clear(self) -> None:
        super().clear()
        self.size = 0  # of the values held
        self._orders = itertools.count()

    @override
    def in_order(self, infos: Iterable[Info]) -> list[Info]:
        # Of two with one time, the one that was put again is the later one.
        ours = (info for info in infos if AUTHOR in info.metadata)
        return sorted(ours, key=lambda info: (_put_at(info), info.version))

    @override
    def read(self, info: Info, old: _Held | None) -> _Held | None:
        own = None if info.deleted else _own_fields(info)
        if own is not None:
            content_hash = zlib.crc32(info.content.encode())  # the same in every process
            said = tuple(own["namespace"]), own["key"], info.created_at, _put_at(info), content_hash
            ttl, expires_at = own.get("ttl"), own.get("expires_at")
            if old is not None and said == (old.namespace, old.key, old.created_at, old.updated_at, old.content_hash):
                # Only its time to live has changed.
                old.ttl, old.logged_expiry = ttl, expires_at
                old.expires_at = max(old.expires_at or 0.0, expires_at or 0.0) or None
                return old
        if old is not None:
            self.size -= old.size
        return None if own is None else _Held(info.id, next(self._orders), *said, ttl, expires_at, expires_at)

    @override
    def places(self, id: str, item: _Held) -> list[tuple[_Path, str]]:
        return [(item.namespace, item.key)]

    @override
    def row_of(self, item: _Held) -> list[Any]:
        times = item.created_at, item.updated_at, item.content_hash, item.ttl, item.logged_expiry
        return [item.namespace, item.key, *times]

    @override
    def item_of(self, id: str, row: list[Any]) -> _Held:
        namespace, key, created_at, updated_at, content_hash, ttl, expires_at = row
        said = tuple(namespace), key, created_at, updated_at, content_hash
        return _Held(id, next(self._orders), *said, ttl, expires_at, expires_at)


class KeywordTreeStore(ItemAdapter, BaseStore):
    """A LangGraph store that keeps its items in a tree.

    Any number of threads and processes may use it. `batch` and `abatch` are all that is implemented here; `get`, `put`,
    `search`, `delete`, `list_namespaces` and their asynchronous forms are inherited, and have their arguments.

    Args:
        tree: Where the items are; who opened it closes it.
        index: The comparison of `search(query=…)`. None ranks by words, in Chinese and English alike. `{"embed": …}` is
            LangGraph's: an `Embeddings`, a function or an asynchronous one; with `"fields"`, and with `"name"` the
            model's name, by which its vectors are kept on disk. Where it fails, words rank, and a log line says so.
        ttl: LangGraph's: `default_ttl` in minutes, `refresh_on_read` (True), `sweep_interval_minutes`.
        clock: Seconds since the epoch.

    A batch is one operation of the tree: reads see the state before it, the last put of a key counts, and `Undo` takes
    it back. Calls take effect in the order in which they were made, awaited or not; `aput`s that wait at the same time
    are one batch. A value equal to the one that is there writes nothing.

    Raises:
        InvalidInputError: a value is no JSON object (NaN, a set), or nested deeper than 200 levels; a key is no
            string, or has a lone surrogate.
        InvalidNamespaceError: a label is so, or there are more than 100.
        StoreError: the disk refused. StoreCorruptError where the log lost items that were put here.

    Cost: the first call reads all infos, 20 µs for each, or the kept list, 3 µs; a put is one sync; a get, some
    microseconds.
    """

    supports_ttl = True
    _items: _Items

    def __init__(
        self,
        tree: KeywordTree,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(tree, KeywordTree):
            raise InvalidInputError(f"tree must be a KeywordTree, not {tree!r:.80}: a folder goes to from_folder")
        self.ttl_config = ttl
        self.index_config: dict[str, Any] | None = dict(index) if index else None
        self.embeddings = ensure_embeddings(index.get("embed")) if index else None
        self._fields = _fields_of(self.index_config or {})
        self._clock = clock
        self._calls = InOrder(self._carry_out_calls)
        self._lock = threading.RLock()
        self._sweeper: threading.Thread | None = None
        self._stop_sweeping = threading.Event()
        self._put_by: dict[str, str] = {}  # id of an item -> what last put or deleted it, the newest last
        self.tree = tree
        self._items = _Items(tree, AUTHOR)
        self._ranking = self._make_ranking()

    @classmethod
    def from_folder(
        cls, path: str, *, index: IndexConfig | Mapping[str, Any] | None = None, ttl: TTLConfig | None = None
    ) -> Self:
        """Open the tree in a folder, made if it is not there, or at an address; closing the store closes it."""
        tree = open_tree(path)
        try:
            store = cls(tree, index=index, ttl=ttl)
        except BaseException:
            tree.Close()
            raise
        store._is_own = True
        return store

    def setup(self) -> None:
        """Do nothing: there is nothing to prepare. A program written for `SqliteStore` calls it."""

    def operation_of(self, namespace: Sequence[str], key: str) -> str | None:
        """Return the operation by which this object last put or deleted an item, for `tree.Undo`.

        It does not matter which thread or task put it: a tool of an agent, say. None where this object did not, or the
        value was the one that was there, or 10,000 other items were put since.
        """
        return self._put_by.get(_item_id(_check_namespace(namespace), key))

    def close(self) -> None:
        """Stop the sweeper, keep the list of items; close the tree, if it was opened here."""
        self.stop_ttl_sweeper()
        super().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    # -- the two methods ------------------------------------------------------

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: all reads on the state before, then all puts as one operation of the tree.

        Cost: one sync where something changes, one more where a namespace is new; a call of the embedder where texts
        are new.
        """
        return cast("list[Result]", self._calls.call(list(ops)))

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do as `batch`, in a thread; calls keep the order in which they were made, and puts that wait are one."""
        return cast("list[Result]", await self._calls.acall(list(ops)))

    def _carry_out_calls(self, calls: list[list[Op]]) -> list[list[Result] | Exception]:
        """Return the results of some batches, or their errors: those next to each other that only put are one."""
        results: list[list[Result] | Exception] = []
        for only_puts, group in itertools.groupby(calls, lambda ops: all(isinstance(op, PutOp) for op in ops)):
            batches = list(group)
            if only_puts and len(batches) > 1:
                with suppress(Exception):  # each alone then: one may have what cannot be put
                    self._batch(list(itertools.chain(*batches)))
                    results += [[None] * len(ops) for ops in batches]
                    continue
            for ops in batches:
                try:
                    results.append(self._batch(ops))
                except Exception as error:
                    results.append(error)
        return results

    def _batch(self, ops: list[Op]) -> list[Result]:
        puts: dict[tuple[_Path, str], PutOp] = {}
        for op in ops:
            if isinstance(op, PutOp):
                puts[_check_namespace(op.namespace), _check_key(op.key)] = op
        queries = [op.query for op in ops if isinstance(op, SearchOp) and op.query]
        if queries and self.embeddings is not None:
            self._embed(queries)  # what is there must have its vectors, too
        results: list[Result] = []
        refreshed: dict[str, _Held] = {}
        with self._lock:
            if len(puts) < len(ops):  # who only puts need not know what is there: loading would decode all it wrote
                self._items.catch_up()
            results.extend(self._answer(op, refreshed) for op in ops)
        if puts:
            self._write(puts)
        if refreshed:
            self._write_refreshes([held for held in refreshed.values() if (held.namespace, held.key) not in puts])
        if puts and self.embeddings is not None:
            self._embed()
        return results

    def _answer(self, op: Op, refreshed: dict[str, _Held]) -> Result:
        if isinstance(op, PutOp):
            return None
        if isinstance(op, GetOp):
            held = self._items.groups.get(tuple(op.namespace), {}).get(op.key)
            if held is None or not self._is_alive(held):
                return None
            self._refresh([held], op.refresh_ttl, refreshed)
            return Item(**self._fields_of_item(held))
        if isinstance(op, SearchOp):
            found = self._search(op)
            self._refresh([held for held, _ in found], op.refresh_ttl, refreshed)
            return [SearchItem(**self._fields_of_item(held), score=score) for held, score in found]
        if isinstance(op, ListNamespacesOp):
            return self._list(op)
        raise InvalidInputError(f"no operation of a store: {op!r}")

    def _fields_of_item(self, held: _Held) -> dict[str, Any]:
        return {
            "namespace": held.namespace,
            "key": held.key,
            "value": deepcopy(self._value(held)),
            "created_at": datetime.fromtimestamp(held.created_at, UTC),
            "updated_at": datetime.fromtimestamp(held.updated_at, UTC),
        }

    def _value(self, held: _Held) -> dict[str, Any]:
        """Return an item's value, decoded; not to be given out as it is."""
        if held.value is not None:
            return held.value
        info = self.tree.GetInfo(held.id)
        content = "" if info is None else info.content
        value = _decode(content)
        if self._items.size + len(content) <= HELD_LIMIT:
            held.value, held.size = value, len(content)
            self._items.size += held.size
        return value

    # -- reading --------------------------------------------------------------

    def _is_alive(self, held: _Held) -> bool:
        return held.expires_at is None or held.expires_at > self._clock()

    def _search(self, op: SearchOp) -> list[tuple[_Held, float | None]]:
        """Return the items that fit, best or newest first, with their scores."""
        first = max(0, op.offset)
        stop = first + op.limit if op.limit >= 0 else sys.maxsize  # -1 is all, as in SqliteStore
        prefix = tuple(op.namespace_prefix)
        spaces = [space for namespace, space in self._items.groups.items() if namespace[: len(prefix)] == prefix]
        fits = read_filter(op.filter)
        if fits is None and not op.query:
            return [(held, None) for held in itertools.islice(self._newest(spaces), first, stop)]
        # The hits are sorted afterwards: to bring all into their order first would take longer than to look at all.
        value_of, is_alive = self._value, self._is_alive
        fitting = [
            held
            for space in spaces
            for held in space.values()
            if (held.expires_at is None or is_alive(held)) and (fits is None or fits(held.value or value_of(held)))
        ]
        fitting.sort(key=lambda held: -held.order)
        if not op.query:
            return [(held, None) for held in fitting[first:stop]]
        candidates = {held.id: held for held in fitting}
        near = self._ranking.rank_by_similarity(op.query, candidates.keys())
        if near is None:
            words = self._ranking.rank_by_words(op.query, min(stop, len(candidates)), candidates.keys())
            best = [id for id, score in words.items() if score >= BAR]
            return [(candidates[id], words[id]) for id in best[first:stop]]
        ranked = sorted(near, key=lambda id: -near[id])
        others = [id for id in candidates if id not in near]  # without a vector: last, as in the originals
        return [(candidates[id], near.get(id)) for id in [*ranked, *others][first:stop]]

    def _newest(self, spaces: Sequence[dict[str, _Held]]) -> Iterator[_Held]:
        """Yield the items of some namespaces, the newest put first."""
        newest = [reversed(space.values()) for space in spaces]
        found = heapq.merge(*newest, key=lambda held: -held.order) if len(newest) > 1 else itertools.chain(*newest)
        return filter(self._is_alive, found)

    def _texts_of(self, info: Info) -> list[str]:
        """Return the text of an item for comparison with a query: for a model the JSON of the whole, else its words."""
        own = _own_fields(info)
        if own is None or own.get("index") is False:
            return []
        value, is_words = _decode(info.content), self.embeddings is None
        return [
            text
            for path in (own["index"] if isinstance(own.get("index"), list) else self._fields)
            for text in (leaves(value) if is_words and path == "$" else get_text_at_path(value, path))
        ]

    def _list(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        found = {
            namespace[: op.max_depth] if op.max_depth is not None else namespace
            for namespace, space in self._items.groups.items()
            if all(_namespace_fits(namespace, condition) for condition in op.match_conditions or ())
            and any(map(self._is_alive, space.values()))
        }
        first = max(0, op.offset)
        return sorted(found)[first : first + op.limit if op.limit >= 0 else None]

    # -- writing --------------------------------------------------------------

    def _write(self, puts: Mapping[tuple[_Path, str], PutOp]) -> None:
        """Carry out puts as one operation; where another process has written first, plan again.

        New namespaces are an operation of their own before it, so that the first item of one can be undone when others
        have joined it.
        """
        texts = {place: _encode(op) for place, op in puts.items() if op.value is not None}
        try_again(lambda: self._ensure_namespaces(namespace for namespace, _ in texts))
        self._note(puts, try_again(lambda: self._carry_out(self._plan(puts, texts))))

    def _note(self, puts: Iterable[tuple[_Path, str]], operation_id: str | None) -> None:
        """Remember which operation put or deleted the items, for `operation_of`."""
        with self._lock:
            for id in itertools.starmap(_item_id, puts):
                self._put_by.pop(id, None)
                if operation_id is not None:
                    self._put_by[id] = operation_id
            while len(self._put_by) > _REMEMBERED:
                del self._put_by[next(iter(self._put_by))]

    def _plan(
        self, puts: Mapping[tuple[_Path, str], PutOp], texts: Mapping[tuple[_Path, str], str]
    ) -> list[Callable[[], object]]:
        now = self._clock()
        infos: list[dict[str, Any]] = []
        writes: list[Callable[[], object]] = []
        for (namespace, key), op in puts.items():
            id = _item_id(namespace, key)
            info = self.tree.GetInfo(id)
            if op.value is None:
                writes += [partial(self.tree.DeleteInfo, id, AUTHOR)] if info is not None else []
                continue
            own = _own_metadata(namespace, op, now)
            text = texts[namespace, key]
            if info is None:
                keyword = self.tree.GetKeyword(_namespace_id(namespace))  # one that was merged leads to another
                spec = {"id": id, "content": text, "metadata": {AUTHOR: own}, "created_by": AUTHOR}
                infos.append({**spec, "keyword_ids": [_namespace_id(namespace) if keyword is None else keyword.id]})
            elif info.content != text or info.metadata.get(AUTHOR) != own:
                patch = {"content": text, "metadata": {**info.metadata, AUTHOR: own}}
                writes.append(partial(self.tree.UpdateInfo, id, patch, None, AUTHOR))
        if infos:
            writes.insert(0, partial(self.tree.BatchCreateInfos, infos))
        return writes

    def _ensure_namespaces(self, namespaces: Iterable[_Path]) -> None:
        keywords: dict[str, dict[str, Any]] = {}
        for namespace in dict.fromkeys(namespaces):
            paths = [namespace[: count + 1] for count in range(len(namespace))]
            chain = [(_namespace_id(path), path[-1], {AUTHOR: {"namespace": list(path)}}) for path in paths]
            add_missing(self.tree, chain, AUTHOR, keywords)
        if keywords:
            self.tree.BatchCreateKeywords(list(keywords.values()))

    def _carry_out(self, writes: Sequence[Callable[[], object]]) -> str | None:
        """Make writes one operation; return its id, None where nothing was written (yet)."""
        before = self.tree.last_operation
        if len(writes) == 1:  # in an Operation it would run twice and be copied
            writes[0]()
        elif writes:
            with self.tree.Operation("langgraph batch", AUTHOR):
                for write in writes:
                    write()
        after = self.tree.last_operation
        return None if after == before else after

    # -- time to live ---------------------------------------------------------

    def _refresh(self, found: Iterable[_Held], is_asked: bool, refreshed: dict[str, _Held]) -> None:
        """Let items live on from now: in memory at once, in the log when a tenth of their time has gone."""
        now = self._clock()
        for held in found if is_asked else ():
            if held.ttl is None:
                continue
            held.expires_at = now + held.ttl * 60
            if held.expires_at - (held.logged_expiry or 0.0) > _LATE * held.ttl * 60:
                refreshed[held.id] = held

    def _write_refreshes(self, refreshed: Iterable[_Held]) -> None:
        writes = []
        for held in refreshed:
            info = self.tree.GetInfo(held.id)
            own = None if info is None else _own_fields(info)
            if info is not None and own is not None:
                metadata = {**info.metadata, AUTHOR: {**own, "expires_at": held.expires_at}}
                writes.append(partial(self.tree.UpdateInfo, held.id, {"metadata": metadata}, None, AUTHOR))
        with suppress(NotFoundError):  # one was deleted in between; the others are written with the next read
            self._carry_out(writes)

    def sweep_ttl(self) -> int:
        """Delete the items whose time is over, as one operation; return how many.

        One that another process may have refreshed in its memory alone is left for a tenth of its time.
        """
        with self._lock:
            self._items.catch_up()
            now = self._clock()
            dead = [
                held.id
                for held in self._items.by_id.values()
                if held.expires_at is not None and held.expires_at + _LATE * (held.ttl or 0.0) * 60 <= now
            ]
        dead = [id for id in dead if self.tree.GetInfo(id) is not None]
        with suppress(NotFoundError):
            self._carry_out([partial(self.tree.DeleteInfo, id, AUTHOR) for id in dead])
            return len(dead)
        return 0

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep now and then, in a thread; return a future that ends with it, and ends it where it is cancelled.

        Args:
            sweep_interval_minutes: None takes the configuration's, or 5.
        """
        future: Future[None] = Future()
        if self.ttl_config is None:
            future.set_result(None)
            return future
        self.stop_ttl_sweeper()
        self._stop_sweeping = stop = threading.Event()
        minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or _SWEEP_MINUTES
        future.add_done_callback(lambda done: stop.set() if done.cancelled() else None)

        def sweep() -> None:
            while not stop.wait(minutes * 60):
                try:
                    self.sweep_ttl()
                except Exception:  # a full disk, say: the next round tries again
                    _LOGGER.exception("sweeping expired items failed")
            if not future.cancelled():
                future.set_result(None)

        self._sweeper = threading.Thread(target=sweep, name="KeywordTreeStore sweeper", daemon=True)
        self._sweeper.start()
        return future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper; return whether it has ended, within `timeout` seconds where they are given."""
        self._stop_sweeping.set()
        if self._sweeper is None or self._sweeper is threading.current_thread():
            return True
        self._sweeper.join(timeout)
        return not self._sweeper.is_alive()

    # -- ranking --------------------------------------------------------------

    def _make_ranking(self) -> ItemRanking:
        if self.embeddings is None:
            return ItemRanking(self.tree, index_path(self.tree, AUTHOR), self._texts_of)
        name = (self.index_config or {}).get("name")
        path = index_path(self.tree, f"{AUTHOR}-vectors") if name else None
        return ItemRanking(self.tree, path, self._texts_of, _Embedder(str(name or "the embedder"), self.embeddings))


class _Embedder:
    """LangChain's embeddings as an `Embedder`."""

    def __init__(self, name: str, embeddings: Any) -> None:
        self.name = name
        self._embeddings = embeddings

    def embed(self, texts: Sequence[str]) -> Iterable[Sequence[float]]:
        # LangGraph raises NotImplementedError or ValueError, by version, where only an asynchronous function was given.
        if getattr(self._embeddings, "afunc", None) is None or getattr(self._embeddings, "func", None) is not None:
            with suppress(NotImplementedError):
                return self._embeddings.embed_documents(list(texts))  # type: ignore[no-any-return]
        with ThreadPoolExecutor(1) as thread:  # which no loop runs in
            return thread.submit(asyncio.run, self._embeddings.aembed_documents(list(texts))).result()  # type: ignore[no-any-return]


# How things are stored in the tree


def _check_namespace(namespace: Sequence[str]) -> _Path:
    labels = tuple(namespace)
    if len(labels) > LABELS:
        raise InvalidNamespaceError(f"a namespace has at most {LABELS} labels here, not {len(labels):,}")
    for label in labels:
        if not _can_be_written(label):
            raise InvalidNamespaceError(f"a label of a namespace must be {_TEXT}, not {label!r:.80}")
    return labels


def _check_key(key: str) -> str:
    if not _can_be_written(key):
        raise InvalidInputError(f"a key must be {_TEXT}, not {key!r:.80}")
    return key


_TEXT = "a string without a lone surrogate"


def _can_be_written(text: object) -> bool:
    return isinstance(text, str) and not any("\ud800" <= char <= "\udfff" for char in text)


def _namespace_id(namespace: _Path) -> str:
    return id_of("lgn", list(namespace))


def _item_id(namespace: _Path, key: str) -> str:
    return id_of("lgi", [list(namespace), key])


def _own_metadata(namespace: _Path, op: PutOp, now: float) -> dict[str, Any]:
    own: dict[str, Any] = {"namespace": list(namespace), "key": op.key}
    if op.index is not None:
        own["index"] = op.index if op.index is False else list(op.index)
    if op.ttl is not None:
        # A refresh changes the record as well: when the value was put must be kept apart.
        own |= {"ttl": op.ttl, "expires_at": now + op.ttl * 60, "put_at": now}
    return own


def _own_fields(info: Info) -> dict[str, Any] | None:
    """Return the store's fields of an info; None where it is no item. Any program may write metadata."""
    own = mapping_of(info.metadata.get(AUTHOR))
    namespace = own.get("namespace")
    if not isinstance(own.get("key"), str) or not isinstance(namespace, list) or strings_of(namespace) != namespace:
        return None
    for name in ("ttl", "expires_at", "put_at"):
        if not isinstance(own.get(name), (int, float)):
            own.pop(name, None)
    return own


def _put_at(info: Info) -> float:
    put_at = mapping_of(info.metadata.get(AUTHOR)).get("put_at")
    return float(put_at) if isinstance(put_at, (int, float)) else info.updated_at


def _encode(op: PutOp) -> str:
    if not isinstance(op.value, Mapping):
        raise InvalidInputError(f"the value of {op.key!r:.80} must be an object, not {type(op.value).__name__}")
    try:
        text = json.dumps(dict(op.value), ensure_ascii=False, allow_nan=False, default=plain_of)
        is_deep = text.count("[") + text.count("{") > _DEPTH and depth_of(op.value) > _DEPTH
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"the value of {op.key!r:.80} cannot be written as JSON: {error}") from error
    if is_deep:
        raise InvalidInputError(f"the value of {op.key!r:.80} is nested deeper than {_DEPTH} levels")
    return text


def _decode(content: str) -> dict[str, Any]:
    """Return the value that a content says; a person may have edited it."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"content": content}


def _fields_of(index: Mapping[str, Any]) -> list[str]:
    fields = index.get("fields") or index.get("text_fields")  # the second is what SqliteStore calls them
    return list(fields) if fields else ["$"]


# What a filter and a condition mean


def _namespace_fits(namespace: _Path, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    else:
        raise InvalidInputError(f"a namespace is matched by its prefix or suffix, not by {condition.match_type!r}")
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
