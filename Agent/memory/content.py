"""Find infos by what they say: a full-text index that follows a tree's log, and is kept on disk between two openings.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     index = ContentIndex(tree)
...     info = tree.CreateInfo("龙井来自杭州", "notes")
...     index.catch_up()
...     list(index.rank("杭州有什么茶?", 5)) == [info.id]
True

Three things are derived from infos here, and can be thrown away at any time: the full-text index; what filters and
scores need of each info (`InfoFacts`); and which info supersedes which. What was superseded is in none of the others.

On disk it is one file: a line with the checksum of the rest, a line of JSON with the place in the log that it was made
at, then JSON and flat arrays. What does not fit, by checksum, by form or by the log, counts as not there.
"""

import contextlib
import gc
import json
import math
import os
import sys
import threading
import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from ..keyword_tree import Info, InvalidInputError, KeywordTree
from .fulltext import PASSAGE_LIMIT, FullTextIndex, RankingWeights, split_passages
from .keywords import STOP_WORDS
from .log_follower import LogChanges, LogFollower, Position, all_infos, outside_operations
from .memory_fields import MEMORY_KEY, memory_fields, strings_in, superseded_ids
from .messages import shorten
from .sayings import NOTHING_SAID, Sayings, Waits, pack_sayings, read_sayings, unpack_sayings, waits_for

__all__ = ["ContentIndex", "Filters", "InfoFacts", "Ranker"]

KINDS = ("fact", "episode", "pattern", "skill")
"""What `MemoryStore` keeps; somebody else may have written others."""

LIKENESS = 0.8
"""What an info gains by another ranking that says the question itself, beside 1 for saying all that is asked for. So
the words decide where they explain a question, and likeness where they explain little; `embeddings.recall` mixes so."""

SAVE_AFTER = 2_000
"""Where so many infos had to be taken in at once, the index is written to disk."""

_PAGE = 1_000  # infos read at once
_HEAD_LIMIT = 10_000  # bytes of the first two lines


class Ranker(Protocol):
    """Another ranking of infos, as one by embeddings; mixed into the full-text one, see `LIKENESS`.

    It is told of every info before it is asked, those of earlier openings too: what is costly to compute it keeps
    somewhere itself. Its methods are never called at the same time. What it raises goes to whoever asked; what it has
    not taken in by then it is told again.
    """

    def Add(self, id: str, texts: Sequence[tuple[str, float]]) -> None:  # noqa: N802  as the library's port `Recall`
        """Index an info by its passages of at most 800 characters, each with its weight; replaces what was there."""

    def Remove(self, id: str) -> None:  # noqa: N802
        """Forget an info; one that is not there is no error."""

    def Rank(self, query: str) -> list[tuple[float, str]]:  # noqa: N802
        """Return (nearness, id), best first: some hundreds, since a filter comes afterwards.

        Nearness is 0 for what is as near as the average info, 1 for what says the query itself.
        """


@dataclass(slots=True)
class InfoFacts:
    """What filters and scores need of an info."""

    kind: str
    """`"fact"`, `"episode"`, `"pattern"`, `"skill"`, or what somebody else wrote there."""
    source: str
    """Where it is from."""
    time: float
    """Seconds since the epoch, UTC: when an episode began, else when the info was written."""
    metadata: Mapping[str, Any]
    """The caller's own."""
    references: tuple[str, ...] = ()
    """The infos that it links to."""
    pinned: bool = False
    """Whether it stays when others are forgotten."""
    text_sum: int = 0
    """Changes when the text does."""
    sayings: Sayings = NOTHING_SAID
    """What it says of the graph."""
    waits: Waits | None = None
    """What it waits for to be read by, and how often that was tried."""


@dataclass(frozen=True)
class Filters:
    """Which memories may be found; what is not given excludes nothing."""

    kinds: Collection[str] | None = None
    """`"fact"`, `"episode"`, `"pattern"`, `"skill"`; an info that `MemoryStore` did not write is a fact."""
    sources: Collection[str] | None = None
    """Where it is from, exactly."""
    since: float | None = None
    """Seconds since the epoch, UTC: not older than this."""
    until: float | None = None
    """Seconds since the epoch, UTC: older than this."""
    metadata: Mapping[str, Any] | None = None
    """Keys that its metadata must have, with these values."""

    def __post_init__(self) -> None:
        for name in ("kinds", "sources"):
            value = getattr(self, name)
            # Of a string, each character would be taken for one; an iterator would be empty the second time.
            is_list = isinstance(value, Collection) and not isinstance(value, str)
            if value is not None and not (is_list and all(isinstance(item, str) for item in value)):
                raise InvalidInputError(f"{name} must be a list of strings, not {shorten(value)}")
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value)
            ):
                raise InvalidInputError(f"{name} must be seconds since the epoch, not {shorten(value)}")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise InvalidInputError(f"metadata must be an object, not {shorten(self.metadata)}")


class ContentIndex:
    """Which infos of a tree say what a question asks for, whoever wrote, undid, restored or compacted.

    Args:
        tree: Whose infos.
        weights: What counts besides BM25.
        ranker: Another ranking to be kept along.
        path: Where to keep the index on disk; None keeps it nowhere. Writing it fails in silence.
        passages_of: What an info says, in passages; nothing leaves it out. None is its content. A file on disk fits
            only the one that it was made with.

    Cost: some 0.1 ms for an info when it is first asked, where there is no file; from a file, a hundredth of that.
    """

    def __init__(
        self,
        tree: KeywordTree,
        weights: RankingWeights | None = None,
        ranker: Ranker | None = None,
        path: Path | None = None,
        passages_of: Callable[[Info], Sequence[str]] | None = None,
    ) -> None:
        self._tree = tree
        self._passages_of = passages_of
        self._weights = weights
        self._ranker = ranker
        self._path = path
        self._lock = threading.RLock()
        self._ranker_lock = threading.Lock()
        self._follower = LogFollower(tree)
        self._is_begun = False
        self._unsaved = 0  # infos
        self._unranked: dict[str, None] = {}  # infos that the ranker is to be told of
        self.text = FullTextIndex(weights)
        self.known: dict[str, InfoFacts] = {}
        self.referred: dict[str, int] = {}
        self._by_kind: dict[str, set[str]] = defaultdict(set)
        self._by_source: dict[str, set[str]] = defaultdict(set)
        self._supersedes: dict[str, tuple[str, ...]] = {}
        self._superseding: dict[str, set[str]] = defaultdict(set)

    # -- following --

    def catch_up(self) -> None:
        """Take in what is new in the log."""
        with self._lock:
            unsaved = self._unsaved
            # What fails halfway, Ctrl-C too, leaves it as if it had not begun.
            is_begun, self._is_begun = self._is_begun or self._load(), False
            if is_begun:
                self._take(self._follower.catch_up())
            else:
                with collector_off():
                    self._take(self._follower.begin(self._read_tree))
            self._is_begun = True
            if self._unsaved - unsaved >= SAVE_AFTER:
                self._save()

    def take(self, infos: Sequence[Info]) -> None:
        """Take in infos that were just written, before the log is read again: it may say the same once more."""
        with self._lock:
            if self._is_begun:
                self._take(LogChanges(infos=list(infos)))

    def _read_tree(self) -> None:
        self._forget()
        infos = all_infos(self._tree)
        while page := list(islice(infos, _PAGE)):
            self._take(LogChanges(infos=page))

    def _forget(self) -> None:
        self._unranked |= dict.fromkeys(self.known)
        self.text = FullTextIndex(self._weights)
        self.known, self.referred, self._supersedes = {}, {}, {}
        self._by_kind, self._by_source, self._superseding = defaultdict(set), defaultdict(set), defaultdict(set)

    def _take(self, changes: LogChanges) -> None:
        if changes.from_nothing:
            self._forget()
            self._erase()
        infos = {info.id: info for info in changes.infos}
        self._unsaved += len(infos)
        touched: dict[str, None] = {}
        for id, info in infos.items():
            touched |= dict.fromkeys(self._supersede(id, () if info.deleted else superseded_ids(info)))
        for info in infos.values():
            self._settle(info)
        others = [id for id in touched if id not in infos]
        for other in outside_operations(lambda: [self._tree.GetInfo(id) for id in others]) if others else ():
            if other is not None:
                self._settle(other)

    def _settle(self, info: Info) -> None:
        passages = None if self._passages_of is None else self._passages_of(info)
        if info.deleted or self._is_superseded(info) or passages == []:
            self._remove(info.id)
        else:
            self._put(info, passages)

    def _supersede(self, id: str, olds: tuple[str, ...]) -> Iterable[str]:
        """Note which infos an info supersedes, put those away, and return those that may have come back."""
        before = self._supersedes.pop(id, ())
        if olds:
            self._supersedes[id] = olds
        if before == olds:
            return ()
        for old in before:
            self._superseding[old].discard(id)
        for old in olds:
            self._superseding[old].add(id)
        for old in olds:
            if self._successors(old):
                self._remove(old)
        return self.walk_back([*before, *(olds if id in self.walk_back(olds) else ())])

    def _is_superseded(self, info: Info) -> bool:
        return bool(memory_fields(info).get("superseded_by")) or bool(self._successors(info.id))

    def walk_back(self, ids: Iterable[str]) -> list[str]:
        """Return infos and all that they supersede, at however many removes, as they come."""
        found = dict.fromkeys(ids)
        stack = list(found)
        while stack:
            for old in self._supersedes.get(stack.pop(), ()):
                if old not in found:
                    found[old] = None
                    stack.append(old)
        return list(found)

    def successors(self, id: str) -> list[str]:
        """Return the infos that say they supersede an info, in the order of their ids; in a circle nobody does."""
        with self._lock:
            return self._successors(id)

    def _successors(self, id: str) -> list[str]:
        # Without the lock: while all is read, the thread that asked for it holds it, and another one reads.
        found = self._superseding.get(id)
        return sorted(found.difference(self.walk_back([id]))) if found else []

    def _put(self, info: Info, passages: Sequence[str] | None) -> None:
        known, old = _facts_of(info), self.known.get(info.id)
        if passages is not None:
            known.text_sum = _sum_text("\0".join(passages))
        if old is not None:
            self._unlist(info.id, old)
        self._list(info.id, known)
        if old is None or (old.text_sum, old.source) != (known.text_sum, known.source):
            self.text.add(info.id, passages or split_passages(info.content), info.source or None)
            self._unranked[info.id] = None

    def _remove(self, id: str) -> None:
        known = self.known.pop(id, None)
        if known is not None:
            self._unlist(id, known)
            self.text.remove(id)
            self._unranked[id] = None

    def _list(self, id: str, known: InfoFacts) -> None:
        self.known[id] = known
        self._by_kind[known.kind].add(id)
        self._by_source[known.source].add(id)
        self._refer(known.references, 1)

    def _unlist(self, id: str, known: InfoFacts) -> None:
        self._by_kind[known.kind].discard(id)
        self._by_source[known.source].discard(id)
        self._refer(known.references, -1)

    def _refer(self, ids: Iterable[str], change: int) -> None:
        for id in ids:
            self.referred[id] = self.referred.get(id, 0) + change
            if not self.referred[id]:
                del self.referred[id]

    # -- asking --

    def sayings(self) -> dict[str, tuple[Sayings, Waits | None]]:
        """Return what infos say of the graph and what they wait for, of those that do; in the order of the log."""
        with self._lock:
            self.catch_up()
            told = ((id, facts) for id, facts in self.known.items() if facts.sayings or facts.waits)
            return {id: (facts.sayings, facts.waits) for id, facts in told}

    def choose(self, filters: Filters | None) -> Collection[str] | None:
        """Return the ids of what may be found; None is all.

        Cost: some 10 ms for each time or key among 100,000 infos; kinds and sources cost nothing.
        """
        if filters is None:
            return None
        with self._lock:
            known = self.known
            listed: Set[str] = known.keys()
            if filters.kinds is not None:
                kinds = {*KINDS, *self._by_kind}
                if unknown := [kind for kind in filters.kinds if kind not in kinds]:
                    raise InvalidInputError(f"no kind is called {unknown[0]!r}; known: {', '.join(sorted(kinds))}")
                listed = _join(self._by_kind, filters.kinds)
            if filters.sources is not None:
                listed = listed & _join(self._by_source, filters.sources)  # not in place: it may be the index itself
            ids: Collection[str] = listed
            if len(ids) == len(known) and filters.since is not None:  # to find each by its id takes as long again
                ids = [id for id, info in known.items() if info.time >= filters.since]
            elif filters.since is not None:
                ids = [id for id in ids if known[id].time >= filters.since]
            if filters.until is not None:
                ids = [id for id in ids if known[id].time < filters.until]
            for key, value in (filters.metadata or {}).items():
                ids = [id for id in ids if key in (own := known[id].metadata) and own[key] == value]
            return None if len(ids) == len(known) else frozenset(ids)

    @property
    def has_ranker(self) -> bool:
        """Whether another ranking is mixed in, by which is found what shares no word."""
        return self._ranker is not None

    def rank(self, query: str, limit: int, among: Collection[str] | None = None) -> dict[str, tuple[float, int]]:
        """Return the infos that say most of what a query asks for: id → (0 to 1, passage)."""
        found = {hit.id: (hit.score, hit.passage) for hit in self.text.rank(query, limit, among)}
        if self._ranker is None:
            return found
        with self._ranker_lock:
            self._pass_on(self._ranker)
            ranked = self._ranker.Rank(query)
        near: dict[str, float] = {}
        for nearness, id in ranked:
            near.setdefault(id, min(1.0, max(0.0, nearness)))
        wanted = [id for id in near if id in self.known and (among is None or id in among)]
        # What is near and says none of the words stands behind whatever says some; what says some has its own score.
        rest = frozenset(id for id in wanted if id not in found)
        found |= {hit.id: (hit.score, hit.passage) for hit in self.text.rank(query, len(rest), rest)} if rest else {}
        scores = {id: found[id][0] if id in found else 0.0 for id in (*found, *wanted)}
        mixed = {id: score + LIKENESS * near.get(id, 0.0) for id, score in scores.items()}
        best = sorted(mixed, key=lambda id: -mixed[id])[:limit]
        return {id: (min(1.0, mixed[id]), found[id][1] if id in found else 0) for id in best}

    def _pass_on(self, ranker: Ranker) -> None:
        """Tell the ranker what it has not heard of; what it fails at, it is told again."""
        while self._unranked:
            id = next(iter(self._unranked))
            info = self._tree.GetInfo(id) if id in self.known else None
            if info is None:
                ranker.Remove(id)
            else:
                passages = self._passages_of(info) if self._passages_of else split_passages(info.content)
                ranker.Add(id, [(passage, 1.0) for passage in passages])
            self._unranked.pop(id, None)

    # -- on disk --

    def close(self) -> None:
        """Leave the index on disk, but for one that the log has left behind: that would keep what was deleted."""
        with self._lock:
            position = self._follower.position if self._is_begun else self._read_position()
            if position is not None and not LogFollower(self._tree).resume(position):
                self._erase()
            else:
                self._save()

    def _save(self) -> None:
        """Write the index to disk, where anything has changed."""
        if self._path is None or not self._is_begun or not self._unsaved:
            return
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            beside.unlink(missing_ok=True)
            with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.writelines(self._pack())
            beside.replace(self._path)
            self._unsaved = 0
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)

    def _erase(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _read_position(self) -> Position | None:
        """Return where in a log the file on disk was made; None where there is none."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with self._path.open("rb") as file:
                return Position(*json.loads(file.read(_HEAD_LIMIT).split(b"\n", 2)[1])["position"])
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return Position()

    def _pack(self) -> list[bytes]:
        names, arrays = self.text.to_parts()
        rows = [[id, *_pack_facts(facts)] for id, facts in self.known.items()]
        body = _to_json({**names, "known": rows, "supersedes": self._supersedes})
        head = {"position": self._follower.position, "made_by": _made_by(), "body": len(body)}
        head |= {"arrays": [[held.typecode, len(held)] for held in arrays]}
        parts = [_to_json(head), b"\n", body, *(held.tobytes() for held in arrays)]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        return [b"%08x\n" % checksum, *parts]

    def _load(self) -> bool:
        """Take the index from disk, if it is there, whole, and of this log; says whether it was."""
        if self._path is None:
            return False
        self._forget()
        try:
            data = memoryview(self._path.read_bytes())
            with collector_off():
                position = self._unpack(data)
        except FileNotFoundError:
            return False
        except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError):
            position = None
        if position is None or not self._follower.resume(position):
            self._forget()
            self._erase()
            return False
        self._unsaved = 0
        return True

    def _unpack(self, data: memoryview) -> Position | None:
        if bytes(data[:9]) != b"%08x\n" % zlib.crc32(data[9:]):
            return None
        end = bytes(data[:_HEAD_LIMIT]).index(b"\n", 9) + 1
        head = json.loads(bytes(data[9:end]))
        if head["made_by"] != _made_by():
            return None
        names = json.loads(bytes(data[end : end + head["body"]]))
        end += head["body"]
        arrays = []
        for typecode, count in head["arrays"]:
            held = array(typecode)
            held.frombytes(data[end : end + count * held.itemsize])
            end += count * held.itemsize
            arrays.append(held)
        if end != len(data):
            return None
        self.text = FullTextIndex.from_parts(names, arrays, self._weights)
        for id, *packed in names["known"]:
            self._list(id, _unpack_facts(*packed))
        for id, olds in names["supersedes"].items():
            self._supersedes[id] = tuple(olds)
            for old in olds:
                self._superseding[old].add(id)
        self._unranked = dict.fromkeys(self.known) if self._ranker else {}
        return Position(*head["position"])


def _made_by() -> list[Any]:
    """Return what the index depends on besides the infos: a file made by other rules is not this one's."""
    words = zlib.crc32(" ".join(sorted(STOP_WORDS)).encode())
    return [3, PASSAGE_LIMIT, words, unicodedata.unidata_version, sys.byteorder]


def _to_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Keep the collector off: nothing of what is made here is garbage, and to look for it takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _join(ids_by: Mapping[str, Set[str]], names: Collection[str]) -> Set[str]:
    found = [ids_by[name] for name in dict.fromkeys(names) if name in ids_by]
    return found[0] if len(found) == 1 else frozenset().union(*found)


_NOTHING: Mapping[str, Any] = {}


def _facts_of(info: Info) -> InfoFacts:
    own = memory_fields(info)
    metadata = {key: value for key, value in info.metadata.items() if key != MEMORY_KEY}
    return InfoFacts(
        kind=sys.intern(str(own.get("kind", "fact"))),
        source=sys.intern(info.source),
        time=_number(own.get("time"), info.created_at),
        metadata=metadata or _NOTHING,
        references=strings_in(own.get("links")),
        pinned=own.get("pinned") is True,
        text_sum=_sum_text(info.content),
        sayings=read_sayings(info),
        waits=waits_for(info),
    )


def _pack_facts(facts: InfoFacts) -> list[Any]:
    """Return facts as JSON has them; what most infos do not have is left out at the end."""
    row = [facts.kind, facts.source, facts.time, facts.metadata, facts.references, facts.pinned, facts.text_sum]
    if facts.sayings or facts.waits:
        row += [pack_sayings(facts.sayings), facts.waits]
    return row


def _unpack_facts(
    kind: str,
    source: str,
    time: float,
    metadata: Mapping[str, Any],
    references: Sequence[str],
    pinned: bool,
    text_sum: int,
    said: Any = None,
    waits: Sequence[Any] | None = None,
) -> InfoFacts:
    return InfoFacts(
        sys.intern(kind),
        sys.intern(source),
        time,
        metadata or _NOTHING,
        tuple(references) or (),
        pinned,
        text_sum,
        unpack_sayings(said),
        None if waits is None else (str(waits[0]), int(waits[1])),
    )


def _sum_text(text: str) -> int:
    return zlib.crc32(text.encode()) << 24 | len(text)


def _number(value: object, otherwise: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    return otherwise
