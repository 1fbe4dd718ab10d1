"""Read memories in a thread of its own, while whoever remembers goes on.

What waits is in the log, not here: a process that dies leaves it there, and the next one goes on with it.
"""

import logging
import threading
from collections.abc import Callable

from ..keyword_tree import KeywordTreeError

__all__ = ["BackgroundReader"]

_log = logging.getLogger(__name__)


class BackgroundReader:
    """A thread that reads what waits, when it is told that something does.

    Args:
        read_next: Reads the next memory that waits; says whether there was one.
    """

    def __init__(self, read_next: Callable[[], bool]) -> None:
        self._read_next = read_next
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="KeywordTree memory reader", daemon=True)
        self._wake.set()  # what an earlier process has left
        self._thread.start()

    def wake(self) -> None:
        """Tell that something waits."""
        self._idle.clear()
        self._wake.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when nothing waits any more, or after so many seconds; says whether nothing does."""
        return self._idle.wait(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop behind the memory that is being read; one that takes longer is left to the next process."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            try:
                while not self._is_closed and self._read_next():
                    pass
            except KeywordTreeError as error:  # the tree was closed, or the disk is full: what waits goes on waiting
                _log.warning("reading memories in the background has paused: %s", error)
            if not self._wake.is_set():
                self._idle.set()
