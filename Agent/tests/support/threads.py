"""Threads that meet: writers that are committed together, and waiting without sleeping longer than need be."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from Agent.keyword_tree import KeywordTree
from Agent.tests.support import inside

_Argument = TypeVar("_Argument")

PATIENCE_S = 30.0
"""What takes longer hangs."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "what was waited for never happened"
        time.sleep(0.0002)


def in_threads(work: Callable[[_Argument], object], arguments: Iterable[_Argument]) -> None:
    """Call something with each of some arguments, each in its thread, begun at once; what one raises is raised."""
    given = list(arguments)
    barrier = threading.Barrier(len(given))

    def begin(argument: _Argument) -> None:
        barrier.wait(PATIENCE_S)
        work(argument)

    with ThreadPoolExecutor(len(given)) as pool:
        list(pool.map(begin, given))


class Together:
    """A keyword "first" whose commit waits in its sync, and others who queue up behind it, to be committed together."""

    def __init__(self, tree: KeywordTree, patch: pytest.MonkeyPatch) -> None:
        self.tree = tree
        self.raised: list[BaseException] = []
        self._may_go_on = threading.Event()
        is_syncing = threading.Event()
        real = inside.Files.Sync

        def sync(files: inside.Files, fd: int) -> None:
            if threading.current_thread() is first:
                is_syncing.set()
                assert self._may_go_on.wait(PATIENCE_S)
            real(files, fd)

        patch.setattr(inside.Files, "Sync", sync)
        first = threading.Thread(target=tree.CreateKeyword, args=("first", "root"))
        self._threads = [first]
        first.start()
        assert is_syncing.wait(PATIENCE_S)

    def queue_up(self, write: Callable[[], object]) -> None:
        """Let another thread write, and wait until it waits to be committed."""

        def run() -> None:
            try:
                write()
            except Exception as error:
                self.raised.append(error)

        waiting = inside.waiting_writers(self.tree)
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        wait_until(lambda: inside.waiting_writers(self.tree) > waiting)

    def go_on(self) -> None:
        """Let the first commit be done, and wait for all."""
        self._may_go_on.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a writer waits for ever"


def in_a_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked child, as multiprocessing does, within ten seconds; return how that ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
