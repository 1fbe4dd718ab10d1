"""A worker of a storm (see `storm`): a process that writes to all trees, and notes what it is told.

Each of its threads notes, on disk and before the call, what it is about to write, and behind it what it was told. When
all is over each worker says what its replica holds.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..keyword_tree import KeywordTree, KeywordTreeError, StoreError
from . import statements, store
from .shared_log import SharedLog
from .store import SharedStore

__all__ = ["MUTANTS", "THREADS", "TREES", "name_of", "work"]

TREES = ("alpha", "beta")
THREADS = 16
"""Of each worker."""
_PATIENCE_S = 5.0
_OPEN_S = 60.0

# -- the mutants ----------------------------------------------------------------
#
# A harness that finds nothing proves nothing: with one of these it has to find something.


def _without_comparison() -> None:
    """Take a place that is taken for another's, without looking whose it is (section 4 of the contract)."""
    SharedStore._stands = lambda self, batch: False  # type: ignore[method-assign]


def _without_predecessor() -> None:
    """Append wherever nobody else has, whatever is before it."""
    statements.APPEND = """
        INSERT INTO kt_batch (tree_id, after, upto, crc, lines, pieces, size)
        SELECT t, a, u, c, l, p, s FROM (
            SELECT %s::bigint, %s::bigint, %s, %s::bytea, %s, %s::bigint, %s, %s::bigint, %s
        ) AS v (a, u, c, l, p, s, t, x, y) ON CONFLICT DO NOTHING"""


MUTANTS: dict[str, Callable[[], None]] = {
    "without comparison": _without_comparison,
    "without predecessor": _without_predecessor,
}


# -- a worker -------------------------------------------------------------------


class _Board:
    """In memory that all processes share: how far each writing thread's acknowledged writes go."""

    def __init__(self, path: Path, slots: int) -> None:
        self._file = path.open("r+b" if path.exists() else "w+b")
        if path.stat().st_size < 8 * slots:
            self._file.truncate(8 * slots)
        self._memory = mmap.mmap(self._file.fileno(), 8 * slots)
        self.slots = slots

    def tell(self, slot: int, number: int) -> None:
        """Say that all up to this number is acknowledged."""
        struct.pack_into("<q", self._memory, 8 * slot, number)

    def read(self) -> list[int]:
        """Return what all have said."""
        return list(struct.unpack_from(f"<{self.slots}q", self._memory))


def work(folder: str, dsn: str, worker: int, life: int, slots: int, seed: int, mutant: str) -> None:
    """Write until a file says stop; each thread into one tree."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if mutant:
        MUTANTS[mutant]()
    home = Path(folder)
    board = _Board(home / "board", slots)
    store._CAREFUL = random.Random(f"{seed} {worker} {life}").choice((1, 2, store._CAREFUL))
    store._GUESS_S = 60.0  # whoever slept while the log was written anew goes on with a guess
    log = SharedLog(dsn, connections=4, patience=_PATIENCE_S)
    trees = _open(home, log)
    notes = os.open(home / f"notes-{worker}-{life}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    threads = [
        threading.Thread(target=_write, args=(home, trees, board, worker, life, number, notes, seed))
        for number in range(THREADS if len(trees) == len(TREES) else 0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (home / f"done-{worker}-{life}").touch()
    while not (home / "rest").exists():
        time.sleep(0.05)
    _rest(home, log, trees, worker, life)


def _open(home: Path, log: SharedLog) -> dict[str, KeywordTree]:
    """Open all trees, however often it must be tried; one that is damaged never opens."""
    trees: dict[str, KeywordTree] = {}
    end = float("inf")
    while len(trees) < len(TREES) and time.monotonic() < end:
        if (home / "stop").exists():  # all is well again: now it must work
            end = min(end, time.monotonic() + _OPEN_S)
        try:
            for name in TREES[len(trees) :]:
                trees[name] = KeywordTree(str(home / "unused"), store=log.tree(name))
        except StoreError:
            time.sleep(0.2)
    return trees


def _write(
    home: Path, trees: dict[str, KeywordTree], board: _Board, worker: int, life: int, thread: int, notes: int, seed: int
) -> None:
    random_ = random.Random(f"{seed} {worker} {life} {thread}")
    tree_name = TREES[thread % len(TREES)]
    tree, slot = trees[tree_name], worker * THREADS + thread
    number = (life + 1) * 1_000_000  # no name twice, also where a life before this one had nothing acknowledged

    def note(kind: str, *more: Any) -> None:
        os.write(notes, (json.dumps([kind, tree_name, slot, number, time.monotonic(), *more]) + "\n").encode())

    while not (home / "stop").exists():
        if random_.random() < 0.05:
            _refresh(tree, tree_name, board, note)
            continue
        if _is_asked_to_compact(home, tree_name):
            with suppress(StoreError):
                tree.CompactStorage(keep_history=random_.random() < 0.2)
                note("compacted")
            (home / f"compacting-{tree_name}").unlink(missing_ok=True)
            continue
        number += 1
        size = random_.choice((10, 10, 10, 10, 3000)) if random_.random() > 0.002 else 1_500_000
        note("began")
        try:
            if size > 5000:  # a batch in pieces
                tree.CreateInfo("y" * size)
            tree.CreateKeyword(name_of(slot, number), "root", description="x" * min(size, 5000), llm_auto_place=False)
        except KeywordTreeError as error:
            note("unknown" if getattr(error, "outcome_unknown", False) else "refused", str(error))
            time.sleep(0.05)
            continue
        note("acknowledged")
        board.tell(slot, number)


def _tree_of(slot: int) -> str:
    return TREES[slot % THREADS % len(TREES)]


def _is_asked_to_compact(home: Path, tree_name: str) -> bool:
    """Tell whether this thread, and no other one, is to write the log anew."""
    try:
        (home / f"compact-{tree_name}").rename(home / f"compacting-{tree_name}")
    except FileNotFoundError:
        return False
    return True


def name_of(slot: int, number: int) -> str:
    """Return what a keyword is called: never twice the same."""
    return f"w{slot}n{number}"


def _refresh(tree: KeywordTree, tree_name: str, board: _Board, note: Callable[..., None]) -> None:
    before = board.read()
    try:
        tree.Refresh()
    except StoreError:
        return
    written = [(slot, number) for slot, number in enumerate(before) if number and _tree_of(slot) == tree_name]
    names = [name_of(slot, number) for slot, number in written]
    note("refreshed", [name for name in names if not tree.FindByName(name, 0, 1)])


def _rest(home: Path, log: SharedLog, trees: dict[str, KeywordTree], worker: int, life: int) -> None:
    """When all have stopped: say what this replica holds."""
    unopened = [[], ["it could not be opened"]]
    said: dict[str, Any] = {"counts": dict(log.counts), "trees": dict.fromkeys(TREES, unopened)}
    for name, tree in trees.items():
        for _ in range(20):
            try:
                tree.Refresh()
                problems = tree.Verify()
                break
            except StoreError as error:
                problems = [str(error)]
                time.sleep(0.5)
        said["trees"][name] = [sorted(node.name for node in tree.GetChildren("root")), problems]
    part = home / f"rest-{worker}-{life}.new"
    part.write_text(json.dumps(said))
    part.rename(home / f"rest-{worker}-{life}")
