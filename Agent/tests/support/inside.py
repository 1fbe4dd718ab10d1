"""All that these tests know of the core's inside: a private name that changes there changes here, and only here.

A test asks a tree through its public methods. What no public call can bring about (a border that is near, an end of a
process without a checkpoint, a moment within a commit, a row in memory that is wrong) is a function here, named by
what it brings about. The names that the spec gives (`_Normalize`, `_ExactLookup`, `_AgentDescend`, `_SuggestParent`,
`_CollectCandidates`) are part of the contract, and the tests call them themselves.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.finding import index, packing, score, texts
from Agent.finding import tree as ranking
from Agent.keyword_tree import Fits, KeywordTree

typed = kt._Typed
Files = kt._Files
"""The one door to the disk; a test that patches a method of it stands before every tree."""

OUTCOMES: Mapping[str, tuple[str | None, str]] = kt._OUTCOMES
"""What a reply comes to, and the reason that is reported: the table of the descent."""

system_text = kt._SystemText


# == Borders ==============================================================================================

_LIMITS = {
    "checkpoint_operations": "_CHECKPOINT_OPERATIONS",  # so many operations make a checkpoint due,
    "checkpoint_bytes": "_CHECKPOINT_BYTES",  # or so many bytes of the log
    "chunk_bytes": "CHUNK",  # how much is read at once
    "padding": "_PADDING",  # what a log is made longer by in advance
    "resident_bytes": "RESIDENT_LIMIT",  # a longer row is read from the disk when it is asked for
    "postings_read": "READ",  # how many postings a ranking reads for a question
    "kept_from": "_KEPT_FROM",  # keywords from which on the ranking's index is kept on disk
    "scored_in_full": "CANDIDATES",  # how many candidates a ranking looks at closely
    "opened": "OPENED",  # of how many parents the children are ranked, too
}
_WITH_LIMITS = kt, ranking, score


def limit(name: str) -> Any:
    """Return a border as it is now."""
    return next(getattr(module, _LIMITS[name]) for module in _WITH_LIMITS if hasattr(module, _LIMITS[name]))


def set_limits(patch: pytest.MonkeyPatch | None = None, **limits: Any) -> None:
    """Move borders nearer; without a patch for good, as is right in a process that ends with the test."""
    for name, value in limits.items():
        for module in _WITH_LIMITS:
            if hasattr(module, _LIMITS[name]):
                (patch or pytest.MonkeyPatch()).setattr(module, _LIMITS[name], value)


def padding(size: int) -> bytes:
    """Return what a log is made longer by, shorter than usual."""
    return b" " * (size - 1) + b"\n"


# == The disk =============================================================================================


def replace_files(patch: pytest.MonkeyPatch, files: type[Files]) -> None:
    """Let every tree that is opened from now on go through another door."""
    patch.setattr(kt, "_Files", files)


def refusal(number: int) -> OSError:
    """Return what a method of the door raises where the operating system refuses with this error number."""
    return kt._DiskError(OSError(number, os.strerror(number)))


def replace_clock(patch: pytest.MonkeyPatch, clock: object) -> None:
    """Let the module tell the time by another `time`."""
    patch.setattr(kt, "time", clock)


def lock(fd: int) -> None:
    """Lock a lock file as a tree does."""
    kt._Files().Lock(fd)


def is_locked(path: str) -> bool:
    """Tell whether anybody holds a store's lock, on the disk that the trees are on."""
    files, locks = kt._Files(), vars(kt)["fcntl"]
    fd = files.Open(path)
    try:
        locks.flock(fd, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        files.Close(fd)
    return False


def lock_descriptor(tree: KeywordTree) -> int:
    """Return the descriptor of the lock file that a tree holds."""
    store: Any = tree._engine.store
    descriptor: int = store._lock.fd
    return descriptor


def release(tree: KeywordTree) -> None:
    """Let go of the files and of the lock, as the end of a process does: without a checkpoint."""
    tree._engine.store.Release()


def finalize(tree: KeywordTree) -> None:
    """Do what the garbage collector does with a tree that was not closed."""
    tree._engine._finalizer()


def note_lines_read(patch: pytest.MonkeyPatch, note: Callable[[bytes], object]) -> None:
    """Pass on each line of a log that is read and checked."""
    _note(patch, "ReadLine", note)


# == Commits ==============================================================================================


def waiting_writers(tree: KeywordTree) -> int:
    """Return how many writers wait to be committed together."""
    return len(tree._engine._committer._forming[0])


def make_checkpoint_due(tree: KeywordTree) -> None:
    """Let the next write make a checkpoint, too."""
    store: Any = tree._engine.store
    store._reader.checkpoint = store._reader.seq - kt._CHECKPOINT_OPERATIONS, 0


def blocks_noted(tree: KeywordTree) -> int:
    """Return of how many blocks a tree has a note, open or not."""
    return len(tree._engine._blocks)


def must_reopen(tree: KeywordTree) -> None:
    """Let a tree open its folder again at the next call, as one in a forked child does."""
    tree._engine.health = kt.Health.STALE


def knows_of_a_failed_sync(tree: KeywordTree) -> bool:
    """Tell whether a tree writes no more, since it saw a sync of the log fail."""
    store: Any = tree._engine.store
    return bool(store._failure)


def opens_before_it_writes(tree: KeywordTree) -> bool:
    """Tell whether a tree opens its folder again at the next write, since another log is in place."""
    return tree._engine.health is kt.Health.REPLACED


def renew_as_in_a_child(tree: KeywordTree) -> None:
    """Do to a tree what a fork does to it in the child."""
    tree._engine.RenewAfterFork()


def behind_looking_whether_open(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something in each call of a tree when it has found the tree open, and has taken no lock yet."""
    real = kt._Engine.CheckOpen

    def check(self: Any) -> None:
        real(self)
        act()

    patch.setattr(kt._Engine, "CheckOpen", check)


# == What a tree holds in memory ==========================================================================


def before_taking_in(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something before what an operation brings is taken into memory, on either way."""
    for name in ("Apply", "ApplyNode", "AddNode", "AddInfo"):
        _before(patch, kt._State, name, act)


def _before(patch: pytest.MonkeyPatch, owner: type, name: str, act: Callable[[], object]) -> None:
    """Do something each time that a method is about to be called."""
    real = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        act()
        return real(*arguments)

    patch.setattr(owner, name, call)


def note_updates_planned(patch: pytest.MonkeyPatch, note: Callable[[str], object]) -> None:
    """Pass on the id each time that the plan of an update runs."""
    real = kt._PlanUpdate

    def plan(tx: Any, id: str, version: int, patch: Any) -> Any:
        note(id)
        return real(tx, id, version, patch)

    patch.setattr(kt, "_PlanUpdate", plan)


def note_tokens_made(patch: pytest.MonkeyPatch, note: Callable[[str], object]) -> None:
    """Pass on each name whose token is made."""
    _note(patch, "_TokenOf", note)


def _note(patch: pytest.MonkeyPatch, name: str, note: Callable[[Any], object]) -> None:
    """Pass on the argument of each call of a function of the core, before it runs."""
    real = getattr(kt, name)

    def call(argument: Any) -> Any:
        note(argument)
        return real(argument)

    patch.setattr(kt, name, call)


def in_reading_a_row(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time that a row is about to be read."""
    _before(patch, kt._FileStore, "ReadRow", act)


def in_copying_a_descriptor(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time that a descriptor is about to be copied, while what guards that is held."""
    _before(patch, kt._Files, "Duplicate", act)


def before_reading_a_row(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something each time that it is known where a row is held, and not yet in which store."""
    _before(patch, kt._Engine, "ReadRow", act)


def forge_parent(tree: KeywordTree, id: str, parent_id: str) -> None:
    """Let a child of the root hang under another keyword, in memory alone: as only a forged log can have it."""
    row = tree._engine.state.nodes[id]
    tree._engine.state.nodes[id] = row.replace(b'"parent_id":"root"', b'"parent_id":"%b"' % parent_id.encode())


def plant(tree: KeywordTree, record: kt.KeywordNode | kt.Info | kt.InfoKeywordLink) -> None:
    """Write a record as it is, through all but the checks."""
    tree._engine.Write("planted", lambda tx: tx.Stage(record), "user")


def _spoil(damage: Callable[[Any], object]) -> Callable[[KeywordTree], object]:
    return lambda tree: damage(tree._engine.state)


DAMAGE_IN_MEMORY: dict[str, Callable[[KeywordTree], object]] = {
    "a row": _spoil(lambda i: i.nodes.update(py=i.nodes["rust"])),
    "a keyword is missing": _spoil(lambda i: i.nodes.pop("typ")),
    "a keyword too much": _spoil(lambda i: i.nodes.update(more=i.nodes["typ"])),
    "an info is missing": _spoil(lambda i: i.infos.pop("free")),
    "a child is missing": _spoil(lambda i: i.children.Discard("py", "typ")),
    "a name is missing": _spoil(lambda i: i.names.Discard("python", "py")),
    "a name too much": _spoil(lambda i: i.names.Add("snake", "py")),
    "a query is missing": _spoil(lambda i: i.queries.Discard(next(iter(i.queries)), "py")),
    "a link of the info": _spoil(lambda i: i.by_info.Discard("both", i.by_info.Get("both")[0])),
    "a link of the keyword": _spoil(lambda i: i.by_node.Discard("py", i.by_node.Get("py")[0])),
    "what is gone": _spoil(lambda i: i.gone_nodes.clear()),
}
"""Ways in which what a tree holds can be wrong: of the tree that `methods.test_methods` furnishes."""


# == Ranking ==============================================================================================


def scores(tree: KeywordTree, name: str, description: str = "", *, is_placing: bool = False) -> list[tuple[float, str]]:
    """Return how a tree ranks the keywords for a name, to find it or to place it: score and id, best first."""
    fits = tree._engine.Fit(name, description, is_placing=is_placing, count=1000)
    return [(fits.evidence[id].score, id) for id in fits.ids]


def fit(tree: KeywordTree, query: str, **options: Any) -> Fits:
    """Ask a tree's ranker."""
    return tree._engine.Fit(query, **options)


def ranker_of(tree: KeywordTree) -> Any:
    """Return a tree's ranker."""
    return tree._ranker


def without_thesaurus(patch: pytest.MonkeyPatch) -> None:
    """Let indexes made from now on have no near words."""
    patch.setattr(index, "default", lambda: (None, ""))


def note_keywords_indexed(patch: pytest.MonkeyPatch, note: Callable[[str], object]) -> None:
    """Pass on the id of each keyword that the index of a ranking takes in."""
    real = index.Index._put

    def put(self: Any, db: Any, batch: Any, units: Sequence[index.Unit]) -> None:
        for unit in units:
            note(unit.id)
        real(self, db, batch, units)

    patch.setattr(index.Index, "_put", put)


def rank_again(tree: KeywordTree, ids: list[str]) -> None:
    """Give a tree's ranking an index that has taken in the keywords in this order."""
    ranker = tree._ranker
    position, ranker.index = ranker.index.position, index.Index()
    ranker._take_in(ids)
    ranker.index.position = position


def contents_of(words: index.Index) -> tuple[object, ...]:
    """Return all that an index holds: its postings by the ids of their units, and its counts."""
    with words.reading() as db:
        ids = {num: packing.to_id(key) for num, key in db.execute("select num, id from unit")}
        rows = db.execute("select num, above from unit where grp is not null")
        above = {ids[num]: ids.get(at) for num, at in rows}
        terms = [row[0] for row in db.execute("select term from posting where first = 0")]
        postings = {}
        for term in terms:
            found = packing.by_document(words.postings([term])[term])
            unit_of = words.owners(found)
            postings[term] = sorted((ids[unit_of[at]], at & 1, code) for at, code in found.items())
        frequencies = {term: len(found) for term, found in postings.items()}
        assert words.frequencies(terms) == frequencies
        counts = {name: count for name, count in words.counts().items() if count and name != "bar"}
        return postings, above, counts, words.ids()


def check_ranking(tree: KeywordTree) -> None:
    """Compare a ranking's index with one of the same keywords that is built afresh, posting by posting."""
    fresh = ranking.TreeRanker(tree._ranker._view)
    fresh._path, fresh.index = None, index.Index()
    for each in (tree._ranker, fresh):
        each.Fit("x")
    assert contents_of(tree._ranker.index) == contents_of(fresh.index)


# == Texts ================================================================================================

terms_of: Callable[[str], list[str]] = texts.terms


shorten: Callable[[object], str] = kt._Shorten
"""Return what an error says of a value."""


# == The overlay ==========================================================================================


def check_tables(tree: KeywordTree) -> None:
    """Compare what this thread sees, in an open operation too, with a state that is made of the same rows afresh."""
    with tree._engine.SeeOwn() as seen:
        fresh = kt._State(seen.normalizer)
        rows = kt.NoRows()
        rows.nodes.extend(sorted(seen.nodes.values(), key=kt._OrdinalOf))
        rows.infos.extend(tree._engine.ReadRow(held) for held in seen.infos.values())
        rows.links.extend(sorted(seen.Links(), key=kt._OrdinalOf))
        fresh.Apply(rows)
        assert fresh.nodes.keys() == set(seen.nodes)
        assert len(fresh.nodes) == len(seen.nodes)
        for name in ("children", "names", "queries", "by_info", "by_node"):
            mine, other = getattr(seen, name), getattr(fresh, name)
            for key in {*mine, *other}:
                assert list(mine.Get(key)) == list(other.Get(key)), (name, key)
        assert [seen.LevelOf(id) for id in seen.nodes] == [fresh.LevelOf(id) for id in seen.nodes]
        for fold in list(fresh.names):
            tokens = kt._NormalizeText(fold)
            assert list(seen.ByTokens(tokens)) == list(fresh.ByTokens(tokens)), fold


# == Two ways to commit ===================================================================================


def never_straight(patch: pytest.MonkeyPatch) -> None:
    """Let every write go the general way."""
    patch.setattr(kt._Engine, "WriteAlone", lambda *_: None)


def note_straight_writes(patch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which each record is added that was written the straight way."""
    real = kt._Engine.WriteAlone
    noted: list[Any] = []

    def write(*arguments: Any) -> Any:
        if (record := real(*arguments)) is not None:
            noted.append(record)
        return record

    patch.setattr(kt._Engine, "WriteAlone", write)
    return noted


class _TakenDownError(Exception):
    """Ends a call whose job was taken down."""


def take_down(tree: KeywordTree, writes: Sequence[Callable[[], object]]) -> list[Any]:
    """Return the jobs that some calls hand in, none of which is committed yet."""
    jobs: list[Any] = []

    def run(job: Any) -> None:
        jobs.append(job)
        raise _TakenDownError

    engine: Any = tree._engine
    engine.Run, engine.WriteAlone = run, lambda *_: None
    for write in writes:
        with contextlib.suppress(_TakenDownError, kt.KeywordTreeError):  # an undo that finds nothing hands in no job
            write()
    del engine.Run, engine.WriteAlone
    return jobs


def commit(tree: KeywordTree, jobs: list[Any]) -> None:
    """Commit jobs as one group."""
    engine = tree._engine
    with engine.Enter(), engine.commit_lock:
        engine._WorkUpToDate(engine._CommitJobs, jobs)


def held(tree: KeywordTree) -> dict[str, object]:
    """Return all that a tree holds in memory."""
    state = tree._engine.state
    found: dict[str, object] = {name: dict(getattr(state, name)) for name in state.DICTS}
    for name in state.MULTIMAPS:
        table = getattr(state, name)
        found[name] = {key: list(table.Get(key)) for key in table if table.Get(key)}
    return found | {"next_ordinal": state.next_ordinal}


def interrupt_at(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let Ctrl-C come in the main thread at the n-th entry of what is taken into a table in memory."""
    entries = iter(range(1, sys.maxsize))
    for name in ("Add", "Discard"):
        real = getattr(kt._Multimap, name)

        def change(*arguments: Any, real: Callable[..., None] = real) -> None:
            if threading.current_thread() is threading.main_thread() and next(entries) == number:
                raise KeyboardInterrupt
            real(*arguments)

        patch.setattr(kt._Multimap, name, change)
