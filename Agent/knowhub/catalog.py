"""What is derived from the ledger and kept in memory: who sees what, counters, the order of time, full text.

A read never waits for the disk. What this process wrote is taken in when it is acknowledged, what others wrote every
50 ms by a thread of its own, and at once before an answer says that something is not there.

Counters are not stored anywhere: they count the living feedback, so no one can overwrite another's, and undoing one
takes it back. Of each principal the last feedback counts, and none of the entry's own. Feedback of an entry that was
merged into another counts for that.
"""

import bisect
import contextlib
import gc
import hashlib
import heapq
import itertools
import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..finding import texts
from ..keyword_tree import ClosedError, Info, KeywordTreeError
from ..memory.memories import Memories, Ranker
from ..store.log_follower import LogChanges, LogFollower, Position
from .files import write_new
from .ledger import TreeLedger, record_of
from .schemas import OWNER_SCOPE, Json, Record, from_iso, kind_of
from .tokens import Token, is_visible

__all__ = ["Catalog", "Known"]

FOLLOW_S = 0.05
"""Seconds between two looks at what others wrote."""

TOGETHER, QUIET = 200, 4
"""So many new entries are indexed at once, or those that there are after so many looks that found nothing.

One takes 0.9 ms among 200, and alone 4.7. A search indexes what is waiting before it ranks.
"""

MANY = 2_000
"""So many entries that are new at once are read from the log by the index itself."""

_LEAST_FIT = 0.01  # a score of at least so much: what shares but stop words, or a number, answers nothing
_ELIGIBLE_KEPT = 4  # sets of what a search may find: each of some 1 MB, among 30,000
_COUNTED, _COMPARED = 20_000, 100  # terms in common that are counted, and entries that are compared with a new one

_log = logging.getLogger(__name__)


class Known(NamedTuple):
    """What listing, filtering and ranking need of a record."""

    id: str
    version: int
    created_at: float
    principal: str
    scopes: frozenset[str]
    owner: str
    types: tuple[str, ...] = ()
    score: int = 0
    task: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    merged_into: str = ""
    state: str = ""
    """Of a proposal."""
    of: str = ""
    """Of feedback and proposals: the entry."""
    is_helpful: bool = False
    secret_ref: str = ""
    expires_at: float | None = None

    @property
    def key(self) -> tuple[float, str]:
        """Its place in the order of time."""
        return (self.created_at, self.id)


class Catalog:
    """All records of a ledger, as far as asking for them needs it; safe for many threads.

    Args:
        ledger: Whose records.
        index_path: Where the full-text index is kept; beside it, as `.known`, what is in memory here.
        ranker: Another ranking, fused with the full-text one.

    Cost: some 2 KB for an entry; opening, 10 µs for one that was kept, 40 µs where all is read from the ledger;
    following, 1 ms where there is something new.
    """

    def __init__(self, ledger: TreeLedger, index_path: Path | None = None, ranker: Ranker | None = None) -> None:
        self._ledger = ledger
        self._lock = threading.RLock()
        self._catching_up = threading.Lock()
        self._indexing = threading.Lock()
        self._unindexed: dict[str, Info] = {}  # what the index is given before the next search, many at a time
        self._follower = LogFollower(ledger.tree)
        self._kept_path = None if index_path is None else index_path.with_suffix(".known")
        self._unkept = 0  # so many records are not in that file
        # Not joined: entries would count that the caller must not see.
        self._index = Memories(ledger.tree, index_path, ranker, passages_of, is_joined=False)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.is_ready = False
        self._forget()

    def _forget(self) -> None:
        self._known: dict[str, Known] = {}
        self._gone: dict[str, tuple[float, int]] = {}  # when it was made, and the version that went
        self._in_time: dict[str, list[tuple[float, str]]] = {}  # by kind, sorted
        self._entries: set[str] = set()  # these five: of knowledge alone
        self._by_scope: dict[str, set[str]] = {}
        self._private: dict[str, set[str]] = {}  # by principal
        self._by_type: dict[str, set[str]] = {}
        self._by_score: dict[int, set[str]] = {}
        self._merged: dict[str, set[str]] = {}  # into → from
        self._hidden: set[str] = set()  # merged into another
        self._negative: set[str] = set()  # quality below 0
        self._votes: dict[str, list[int]] = {}  # harmful, helpful: of each principal the last one
        self._voters: dict[str, dict[str, list[tuple[tuple[float, str], bool]]]] = {}  # by entry and principal, sorted
        self._feedback: dict[str, tuple[list[tuple[float, str]], list[tuple[float, str]]]] = {}  # harmful, helpful
        self._joint_votes: dict[str, tuple[int, int]] = {}  # of what others were merged into, until one changes
        self._by_term: dict[str, list[str]] = {}  # entries, by each term of their tasks
        self._unread: dict[str, None] = {}  # entries of which the terms are not there yet
        self._shared: dict[Any, Any] = {}  # values that many records have, each kept once
        self._eligible: dict[Any, frozenset[str]] = {}  # what searches may find, until an entry changes

    # -- following --

    def open(self) -> None:
        """Read all there is, and begin to follow."""
        with _collector_off():
            is_kept = self._read_kept()
            news = self._follower.catch_up() if is_kept else self._begin()
            if news.from_nothing:
                self._forget()
                self._unkept = len(news.infos)
            if news.from_nothing or not is_kept:
                self._drop_kept()
            self.take([record for info in news.infos if (record := record_of(info)) is not None])
            self._index.catch_up()
        self.is_ready = True
        self._thread = threading.Thread(target=self._follow, name="KnowHub catalog", daemon=True)
        self._thread.start()

    def _begin(self) -> LogChanges:
        def read_all() -> None:
            self._forget()
            self._take_all(self._ledger.records())
            self._unkept = len(self._known)

        return self._follower.begin(read_all, lambda news: any(info.deleted for info in news.infos))

    def _read_kept(self) -> bool:
        """Take in what is kept on disk, if the log still has the operation up to which it goes."""
        try:
            digest, _, text = (self._kept_path.read_bytes() if self._kept_path else b"").partition(b"\n")
            if digest != hashlib.sha256(text).hexdigest().encode():
                return False
            names, place, rows = json.loads(text)
            if names != list(Known._fields) or not self._follower.resume(Position(*place)):
                return False
            share = self._shared.setdefault
            for id, version, at, who, scopes, owner, types, score, task, tags, *rest in rows:
                scopes, types, tags = frozenset(scopes), tuple(types), tuple(map(tuple, tags))
                shared = share(who, who), share(scopes, scopes), share(owner, owner), share(types, types)
                known = self._known[id] = Known(id, version, at, *shared, score, task, share(tags, tags), *rest)
                self._list(known, kind_of(id))
        except (OSError, ValueError, TypeError):  # none yet, or damaged: it is derived
            self._forget()
            return False
        return True

    def _keep(self) -> None:
        """Leave on disk what is known, so that the next opening need not read the ledger.  Cost: 3 µs for a record."""
        if self._kept_path is not None:
            with self._catching_up, self._lock:
                place, rows, self._unkept = self._follower.position, list(self._known.values()), 0
            text = json.dumps([Known._fields, place, rows], default=sorted, separators=(",", ":"))
            data = text.encode("ascii")
            try:
                write_new(self._kept_path, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            except OSError as error:  # it is derived: what was written holds all the same
                _log.warning("cannot keep the catalog: %s", type(error).__name__)
                self._drop_kept()

    def _drop_kept(self) -> None:
        """Remove what was kept: it may hold what was purged since."""
        if self._kept_path is not None:
            with contextlib.suppress(OSError):
                self._kept_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop following, and leave the index on disk."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(KeywordTreeError, OSError):
            self._index.catch_up()
            self._index.close()
            if self.is_ready:
                self.catch_up()
                if self._unkept > len(self._known) // 20:  # fewer are soon read from the log
                    self._keep()

    def _follow(self) -> None:
        failed, quiet = False, 0  # so many looks in a row that found nothing new
        while not self._stop.wait(FOLLOW_S):
            try:
                with self._lock:
                    if self._by_term:  # something was saved; little by little: at once, all others would wait
                        self._read_terms(100)
                quiet = 0 if self.catch_up() else quiet + 1
                if quiet == QUIET or len(self._unindexed) >= TOGETHER:
                    self._give_index()
                if quiet == QUIET:
                    self._ledger.journal.catch_up()
                    if self._unkept > max(MANY, len(self._known) // 10):
                        self._keep()
                failed = False
            except ClosedError:
                return
            except Exception as error:  # the thread must outlive a disk that fails for a while
                if not failed:
                    _log.warning("cannot follow the ledger: %s", type(error).__name__)
                failed, quiet = True, 0

    def catch_up(self) -> bool:
        """Take in what is new in the ledger; says whether anything was.

        Cost: waits for writes that are under way; else some 0.4 ms.
        """
        with self._catching_up:
            news = self._follower.catch_up()
            records = [record for info in news.infos if (record := record_of(info)) is not None]
            with self._lock:  # no reader sees the moment between forgetting and reading again
                if news.from_nothing:  # compacted, say
                    self._forget()
                self._take_all(records)
                self._unkept += len(records)
            if news.from_nothing or len(news.infos) >= MANY:
                self._index.catch_up()
        if news.from_nothing:
            self._keep()  # what was purged stands in the old file
        return bool(news.infos)

    def _give_index(self) -> None:
        with self._indexing:  # one at a time: the newer text comes last
            with self._lock:
                infos = dict(self._unindexed)
            if infos:
                self._index.take(list(infos.values()))
            with self._lock:
                for id, info in infos.items():
                    if self._unindexed.get(id) is info:
                        del self._unindexed[id]

    def take(self, records: Sequence[Record]) -> None:
        """Take in records, in any order; what is older than what is known is passed over."""
        with self._lock:
            self._take_all(records)

    def _take_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        # The writer reports it first, and the log once more. Of one life of a record the higher version is
        # the newer; of two lives, one deleted and one made again, clocks may say anything: the log has the last word.
        old, gone = self._known.get(record.id), self._gone.get(record.id)
        seen = [gone] if gone is not None else []
        if old is not None:
            seen.append((old.created_at, old.version))
        if any(life == record.created_at and version >= record.version for life, version in seen):
            return
        kind = kind_of(record.id)
        if kind == "knowledge" and self.is_ready:  # before, the index reads the log itself
            self._unindexed[record.id] = _info(record)
        if old is not None:
            self._unlist(old)
            del self._known[record.id]
        if record.deleted:
            self._gone[record.id] = (record.created_at, record.version)
        else:
            known = self._known[record.id] = _know(record, kind, self._shared)
            self._list(known, kind)

    def _list(self, known: Known, kind: str) -> None:
        bisect.insort(self._in_time.setdefault(kind, []), known.key)
        if kind == "feedback":
            bisect.insort(self._feedback.setdefault(known.of, ([], []))[known.is_helpful], known.key)
            self._vote(known, is_new=True)
            self._weigh(known.of)
        if kind == "knowledge":
            self._eligible.clear()
            self._entries.add(known.id)
            for scope in known.scopes - {OWNER_SCOPE}:
                self._by_scope.setdefault(scope, set()).add(known.id)
            if OWNER_SCOPE in known.scopes:
                self._private.setdefault(known.principal, set()).add(known.id)
            for name in known.types:
                self._by_type.setdefault(name, set()).add(known.id)
            self._by_score.setdefault(known.score, set()).add(known.id)
            self._unread[known.id] = None
            self._joint_votes.clear()
            if known.merged_into:
                self._merged.setdefault(known.merged_into, set()).add(known.id)
                self._hidden.add(known.id)
            self._weigh(known.id)

    def _unlist(self, known: Known) -> None:
        kind = kind_of(known.id)
        listed = [self._in_time[kind]]
        if kind == "feedback":
            listed.append(self._feedback[known.of][known.is_helpful])
        for keys in listed:
            del keys[bisect.bisect_left(keys, known.key)]
        if kind == "feedback":
            self._vote(known, is_new=False)
            self._weigh(known.of)
            return
        if kind != "knowledge":
            return
        self._eligible.clear()
        self._entries.discard(known.id)
        for scope in known.scopes:
            self._by_scope.get(scope, set()).discard(known.id)
        self._private.get(known.principal, set()).discard(known.id)
        for name in known.types:
            self._by_type.get(name, set()).discard(known.id)
        self._by_score.get(known.score, set()).discard(known.id)
        if known.id not in self._unread:
            for term in set(texts.terms(known.task)):
                self._by_term[term].remove(known.id)
        self._unread.pop(known.id, None)
        self._hidden.discard(known.id)
        self._negative.discard(known.id)
        self._joint_votes.clear()
        if known.merged_into:
            self._merged.get(known.merged_into, set()).discard(known.id)
            self._weigh(known.merged_into)

    def _read_terms(self, count: int) -> None:
        """Note the terms of the newest entries of which they are not there yet."""
        for _ in range(min(count, len(self._unread))):
            known = self._known[self._unread.popitem()[0]]
            for term in set(texts.terms(known.task)):
                self._by_term.setdefault(term, []).append(known.id)

    def _vote(self, known: Known, *, is_new: bool) -> None:
        """Count a feedback, or count it no more: of its principal the last one counts."""
        votes = self._votes.setdefault(known.of, [0, 0])
        said = self._voters.setdefault(known.of, {}).setdefault(known.principal, [])
        if said:
            votes[said[-1][1]] -= 1
        if is_new:
            bisect.insort(said, (known.key, known.is_helpful))
        else:
            said.remove((known.key, known.is_helpful))
        if said:
            votes[said[-1][1]] += 1
        else:
            del self._voters[known.of][known.principal]
        self._joint_votes.clear()

    def _weigh(self, id: str) -> None:
        """Note whether the quality of what an entry became is below 0."""
        known = self._lead(id)
        if known is None:
            return
        helpful, harmful = self._count(known.id)
        is_negative = known.score + helpful - 2 * harmful < 0
        if is_negative != (known.id in self._negative):
            self._negative ^= {known.id}
            self._eligible.clear()

    # -- asking --

    def get(self, id: str) -> Known | None:
        """Return what is known of a record."""
        return self._known.get(id)

    def lead(self, id: str) -> Known | None:
        """Return the entry that an id means: of one that was merged, what it was merged into."""
        with self._lock:
            return self._lead(id)

    def _lead(self, id: str) -> Known | None:
        seen = set()
        known = self._known.get(id)
        while known is not None and known.merged_into and known.id not in seen:
            seen.add(known.id)
            known = self._merged_into(known)
        return known

    def _merged_into(self, known: Known) -> Known | None:
        """Return what an entry was merged into: never another principal's, whatever an import says.

        Else anybody could let their own entry, and its feedback, count for an entry that they do not even see.
        """
        target = self._known.get(known.merged_into)
        return target if target is not None and target.principal == known.principal else None

    def _parts(self, token: Token) -> list[set[str]]:
        """Return the sets, as they are kept, that together are what a token sees."""
        if token.sees_all():
            return [self._entries]
        parts = [self._by_scope.get(scope) for scope in token.scopes]
        return [part for part in (self._private.get(token.principal), *parts) if part]

    def sees(self, token: Token, known: Known) -> bool:
        """Return whether a token sees a record."""
        return is_visible(token, known.scopes, known.principal)

    def eligible(self, token: Token, types: str | None, min_score: int) -> frozenset[str]:
        """Return the entries that a search may find, of some types, with commas, or of all.

        Cost: sets joined in C; some 2 ms among 30,000, once until an entry changes.
        """
        asked = token.principal, token.scopes, types, min_score
        with self._lock:
            found = self._eligible.get(asked)
            if found is None:
                # What is excluded are few, as a rule: a copy without them takes a fifth of gathering all others.
                excluded = [ids for score, ids in self._by_score.items() if score < min_score]
                excluded += [self._negative, self._hidden]
                found = frozenset[str]().union(*(part.difference(*excluded) for part in self._parts(token)))
                if types is not None:
                    found &= set[str]().union(*(self._by_type.get(name, ()) for name in types.split(",")))
                if len(self._eligible) >= _ELIGIBLE_KEPT:
                    self._eligible.clear()
                self._eligible[asked] = found
            return found

    def page(
        self, kind: str, wanted: Callable[[Known], bool], limit: int, before: tuple[float, str] | None
    ) -> tuple[list[Known], bool]:
        """Return the newest records of a kind behind a place in time, and whether there are more."""
        found: list[Known] = []
        with self._lock:
            listed = self._in_time.get(kind, [])
            end = len(listed) if before is None else bisect.bisect_left(listed, before)
            for _, id in reversed(listed[:end] if end < len(listed) else listed):
                known = self._known[id]
                if wanted(known):
                    if len(found) == limit:
                        return found, True
                    found.append(known)
        return found, False

    def all(self, kind: str) -> list[Known]:
        """Return all records of a kind, oldest first."""
        with self._lock:
            return [self._known[id] for _, id in self._in_time.get(kind, [])]

    def _family(self, id: str) -> Iterator[str]:
        """Yield an entry and what was merged into it, at however many removes."""
        stack, seen = [id], {id}
        while stack:
            one = stack.pop()
            yield one
            for other in self._merged.get(one, ()):
                if other not in seen and self._merged_into(self._known[other]) is not None:
                    seen.add(other)
                    stack.append(other)

    def _count(self, id: str) -> tuple[int, int]:
        """Return the helpful and harmful votes of an entry and of what was merged into it."""
        known = self._known.get(id)
        principal = "" if known is None else known.principal
        if not self._merged.get(id):
            harmful, helpful = self._votes.get(id, (0, 0))
            own = self._voters.get(id, {}).get(principal)
            return (helpful, harmful) if not own else (helpful - own[-1][1], harmful - (not own[-1][1]))
        if id not in self._joint_votes:
            last: dict[str, tuple[tuple[float, str], bool]] = {}
            for one in self._family(id):
                for voter, said in self._voters.get(one, {}).items():
                    last[voter] = max(said[-1], last.get(voter, said[-1]))
            last.pop(principal, None)
            helpful = sum(is_helpful for _, is_helpful in last.values())
            self._joint_votes[id] = (helpful, len(last) - helpful)
        return self._joint_votes[id]

    def votes(self, id: str) -> tuple[int, int]:
        """Return how often an entry was helpful and harmful, what was merged into it included."""
        with self._lock:
            return self._count(id)

    def has_voted(self, id: str, principal: str) -> bool:
        """Return whether a principal's vote on an entry is there."""
        with self._lock:
            return any(principal in self._voters.get(one, ()) for one in self._family(id))

    def quality(self, known: Known) -> float:
        """Return `score + helpful − 2·harmful`."""
        helpful, harmful = self.votes(known.id)
        return float(known.score + helpful - 2 * harmful)

    def feedback(
        self, id: str, limit: int, *, before: tuple[float, str] | None = None, is_helpful: bool | None = None
    ) -> list[Known]:
        """Return an entry's newest feedback, of one kind or of both; of what was merged into it, too.

        Cost: grows with `limit`, not with how much there is.
        """
        kinds = (False, True) if is_helpful is None else (is_helpful,)
        found: list[tuple[float, str]] = []
        with self._lock:
            for one in self._family(id):
                for kind in kinds:
                    keys = self._feedback.get(one, ((), ()))[kind]
                    end = len(keys) if before is None else bisect.bisect_left(keys, before)
                    found += keys[max(0, end - limit) : end]
            return [self._known[id] for _, id in sorted(found, reverse=True)[:limit]]

    def rank(self, query: str, limit: int, among: frozenset[str]) -> list[str]:
        """Return those of some entries that fit a query, best first."""
        self._give_index()
        is_all = len(among) == len(self._entries)  # then the index need not look for each of them
        found = self._index.rank(query, limit, None if is_all else among, quotes=0)
        return [one.id for one in found if one.id in among and one.score >= _LEAST_FIT]

    def resembling(self, token: Token, task: str, least: float, limit: int) -> list[tuple[float, Known]]:
        """Return the entries that a token sees whose tasks are similar to a text, the most similar first.

        Args:
            token: Who may see them.
            task: Any text.
            least: The share of all terms of both that must be in both, greater than 0.
            limit: At most so many.

        Cost: a count for each entry and rarer term that they share, 20,000 at most. In the first seconds
        after a start, of many entries those are compared of which the terms were read by then.
        """
        terms = set(texts.terms(task))
        with self._lock:
            self._read_terms(TOGETHER)
            # What shares at least so many of all has one of the `first` rarest, two of one more, and so on.
            first = len(terms) - math.ceil(least * len(terms)) + 1
            rarest = sorted((self._by_term.get(term, ()) for term in terms), key=len)[: first + 2]
            while len(rarest) > 1 and sum(map(len, rarest)) > _COUNTED:
                rarest.pop()
            shared = Counter(itertools.chain.from_iterable(rarest))
            likely = ((count, self._known[id]) for id, count in shared.items() if count > len(rarest) - first)
            seen = (pair for pair in likely if not pair[1].merged_into and self.sees(token, pair[1]))
            compared = heapq.nlargest(_COMPARED, seen, key=lambda pair: pair[0])
        found = []
        for _, known in compared:
            theirs = set(texts.terms(known.task))
            similarity = len(terms & theirs) / len(terms | theirs)
            if similarity >= least:
                found.append((similarity, known))
        return sorted(found, key=lambda pair: -pair[0])[:limit]

    def secret_references(self) -> set[str]:
        """Return the references of all secrets that a resource holds."""
        return {known.secret_ref for known in self.all("resource") if known.secret_ref}

    def counts(self) -> dict[str, int]:
        """Return how many records of each kind there are."""
        with self._lock:
            return {kind: len(listed) for kind, listed in self._in_time.items()}


def text_of(fields: Json, content: str) -> str:
    """Return what an entry is found by: its task, the values of its tags, its content."""
    tags = fields.get("tags")
    values = [str(value) for value in tags.values()] if isinstance(tags, dict) else []
    return "\n".join([str(fields.get("task", "")), *values, content])


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """Keep the collector off: nothing of what is made here is garbage, and to look for it takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def passages_of(info: Info) -> list[str]:
    """Return what the full-text index takes of an info: nothing, but for knowledge."""
    own = info.metadata.get("knowhub")
    if kind_of(info.id) != "knowledge" or not isinstance(own, dict):
        return []
    return list(texts.passages(text_of(own, info.content)))


def _info(record: Record) -> Info:
    metadata: dict[str, Any] = {"knowhub": record.fields}
    made = Info(
        record.id, record.content, record.source, metadata, record.version, record.created_at, record.updated_at
    )
    made.deleted, made.created_by = record.deleted, record.created_by
    return made


def _know(record: Record, kind: str, shared: dict[Any, Any]) -> Known:
    """Return what is kept of a record; what many records have alike is taken from `shared`, and so kept once."""
    own = record.fields
    share = shared.setdefault
    who, owner, scopes = record.created_by, str(own.get("owner", "")), _names(own.get("scopes"))
    base = (record.id, record.version, record.created_at, share(who, who), share(scopes, scopes), share(owner, owner))
    if kind == "knowledge":
        types, tags, score = tuple(map(str, own.get("types") or ())), own.get("tags"), own.get("score")
        return Known(
            *base,
            types=share(types, types),
            score=score if isinstance(score, int) else 0,
            task=str(own.get("task", "")),
            tags=tuple((str(key), str(value)) for key, value in tags.items())
            if tags and isinstance(tags, dict)
            else (),
            merged_into=str(own.get("merged_into") or ""),
        )
    if kind == "resource":
        secret_ref, expires_at = str(own.get("secret_ref") or ""), from_iso(own.get("expires_at"))
        return Known(*base, task=record.source, secret_ref=secret_ref, expires_at=expires_at)
    of, is_helpful, state = str(own.get("of", "")), own.get("helpful") is True, str(own.get("state", ""))
    return Known(*base, of=of, is_helpful=is_helpful, state=state)


def _names(value: object) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
