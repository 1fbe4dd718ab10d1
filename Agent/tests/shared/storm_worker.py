"""A worker of a storm (see `storm`): a process that writes to all trees, and notes what it gets back.

Each of its threads notes, on disk and before the call, what it is about to write, and behind it what it got back. When
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
from pathlib import Path
from typing import Any

from ...keyword_tree import KeywordTree, KeywordTreeError, StoreCorruptError, StoreError
from ...shared_tree import store
from ...shared_tree.shared_log import SharedLog
from ...shared_tree.store import SharedStore

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
    """Take a place that is taken for another's, without looking whose it is."""
    SharedStore._stands = lambda self, batch: False  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {"without comparison": _without_comparison}


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
    store._TURNS = random.Random(f"{seed} {worker} {life}").choice((1, 2, store._TURNS))
    store._GUESS_S = 60.0  # a process that slept while the log was rewritten goes on with a guess
    with SharedLog(dsn, connections=4, patience=_PATIENCE_S) as log:
        _Worker(Path(folder), log, worker, life, slots, seed).run()


def name_of(slot: int, number: int) -> str:
    """Return what a keyword is called: never twice the same."""
    return f"w{slot}n{number}"


def _tree_of(slot: int) -> str:
    return TREES[slot % THREADS % len(TREES)]


class _Worker:
    """One life of one process."""

    def __init__(self, home: Path, log: SharedLog, worker: int, life: int, slots: int, seed: int) -> None:
        self.home, self.log, self.worker, self.life, self.seed = home, log, worker, life, seed
        self.board = _Board(home / "board", slots)
        self.trees: dict[str, KeywordTree] = {}
        self.lock = threading.Lock()  # held while a tree is opened again
        self.notes = os.open(home / f"notes-{worker}-{life}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def run(self) -> None:
        """Open the trees, write, and say in the end what they hold."""
        for name in TREES:
            self.open(name, None)
        count = THREADS if len(self.trees) == len(TREES) else 0
        threads = [threading.Thread(target=_Thread(self, number).run) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._say("done", {})
        while not (self.home / "rest").exists():
            time.sleep(0.05)
        self._say("rest", {"counts": dict(self.log.counts), "trees": dict(map(self._holding, TREES))})

    def open(self, name: str, lost: KeywordTree | None) -> None:
        """Open a tree, however often it must be tried, unless another thread has; one that is damaged never opens."""
        end = float("inf")
        with self.lock:
            while self.trees.get(name) is lost and time.monotonic() < end:
                if (self.home / "stop").exists():  # all is well again: now it must work
                    end = min(end, time.monotonic() + _OPEN_S)
                try:
                    self.trees[name] = KeywordTree(str(self.home / "unused"), store=self.log.tree(name))
                except StoreError:
                    time.sleep(0.2)

    def _holding(self, name: str) -> tuple[str, list[list[str]]]:
        """Return a tree's name, what it holds when all have stopped, and what is wrong with it."""
        problems = ["it could not be opened"]
        for _ in range(20):
            tree = self.trees.get(name)
            if tree is None:
                break
            try:
                tree.Refresh()
                return name, [sorted(node.name for node in tree.GetChildren("root")), tree.Verify()]
            except StoreCorruptError as error:
                problems = [str(error)]
                self.open(name, tree)
            except StoreError as error:
                problems = [str(error)]
                time.sleep(0.5)
        return name, [[], problems]

    def _say(self, what: str, said: dict[str, Any]) -> None:
        part = self.home / f"{what}-{self.worker}-{self.life}.new"
        part.write_text(json.dumps(said))
        part.rename(self.home / f"{what}-{self.worker}-{self.life}")


class _Thread:
    """Writes to one tree, refreshes it, and compacts it when it is asked to."""

    def __init__(self, worker: _Worker, thread: int) -> None:
        self.worker, self.home = worker, worker.home
        self.tree_name = TREES[thread % len(TREES)]
        self.slot = worker.worker * THREADS + thread
        self.number = (worker.life + 1) * 1_000_000  # no name twice, also where a life before had nothing acknowledged
        self.random = random.Random(f"{worker.seed} {worker.worker} {worker.life} {thread}")

    def note(self, kind: str, *more: Any) -> None:
        """Write down what happened, and when."""
        said = [kind, self.tree_name, self.slot, self.number, time.monotonic(), *more]
        os.write(self.worker.notes, (json.dumps(said) + "\n").encode())

    def run(self) -> None:
        """Go on until a file says stop."""
        while not (self.home / "stop").exists():
            tree = self.worker.trees[self.tree_name]
            try:
                if self.random.random() < 0.05:
                    self._refresh(tree)
                elif self._is_asked_to_compact():
                    self._compact(tree)
                else:
                    self._write(tree)
            except StoreCorruptError:  # it has read what no standby had, and one was promoted: as the error says
                self.note("opened again")
                self.worker.open(self.tree_name, tree)
            except StoreError:
                time.sleep(0.05)

    def _write(self, tree: KeywordTree) -> None:
        self.number += 1
        is_huge = self.random.random() < 0.002
        description = "x" * (5000 if is_huge else self.random.choice((10, 10, 10, 10, 3000)))
        self.note("began")
        try:
            if is_huge:  # a batch in pieces
                tree.CreateInfo("y" * 1_500_000)
            name = name_of(self.slot, self.number)
            tree.CreateKeyword(name, "root", description=description, llm_auto_place=False)
        except KeywordTreeError as error:
            self.note("unknown" if getattr(error, "outcome_unknown", False) else "refused", str(error))
            raise
        self.note("acknowledged")
        self.worker.board.tell(self.slot, self.number)

    def _refresh(self, tree: KeywordTree) -> None:
        before = self.worker.board.read()
        tree.Refresh()
        written = [(slot, number) for slot, number in enumerate(before) if number and _tree_of(slot) == self.tree_name]
        names = [name_of(slot, number) for slot, number in written]
        self.note("refreshed", [name for name in names if not tree.FindByName(name, 0, 1)])

    def _is_asked_to_compact(self) -> bool:
        """Tell whether this thread, and no other one, is to write the log again."""
        try:
            (self.home / f"compact-{self.tree_name}").rename(self.home / f"compacting-{self.tree_name}")
        except FileNotFoundError:
            return False
        return True

    def _compact(self, tree: KeywordTree) -> None:
        try:
            tree.CompactStorage(keep_history=self.random.random() < 0.2)
            self.note("compacted")
        finally:
            (self.home / f"compacting-{self.tree_name}").unlink(missing_ok=True)
