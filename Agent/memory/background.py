"""Read memories in a thread of its own, while the caller goes on.

What waits is in the log, not here: a process that dies leaves it there, and the next one goes on with it.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from ..keyword_tree import ClosedError

__all__ = ["BackgroundReader"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""How long the thread pauses when something could not be read; each time twice as long, until something could."""

_log = logging.getLogger(__name__)


class BackgroundReader:
    """A thread that reads what waits, when it is notified.

    It goes through all that waits, and again through what waits then. What could not be read costs a pause, and its
    turn comes again: neither a service that is down nor a text that cannot be read keeps it from the others for good.

    Args:
        list_waiting: Returns the ids of the memories that wait.
        read: Reads one; says whether the next one may follow without a pause.
    """

    def __init__(self, list_waiting: Callable[[], Sequence[str]], read: Callable[[str], bool]) -> None:
        self._list_waiting = list_waiting
        self._read = read
        self._pause_s = FIRST_PAUSE_S
        self._lock = threading.Lock()  # `_wake` and `_idle` change together
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="KeywordTree memory reader", daemon=True)
        self._wake.set()  # what an earlier process has left
        self._thread.start()

    def wake(self) -> None:
        """Tell that something waits."""
        with self._lock:
            self._idle.clear()
            self._wake.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return when the thread has nothing more to do, or after `timeout_s`; says whether it has nothing."""
        return self._idle.wait(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop after the memory that is being read; one that takes longer is left to the next process."""
        self._closed.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                self._read_all()
            except ClosedError:
                _log.debug("the tree was closed: what waits goes on waiting")
            except Exception as error:  # a full disk, say: nothing else would try again
                _log.warning("what waits to be read could not be listed: %s", error)
                self._pause()
                self._wake.set()
            with self._lock:
                if not self._wake.is_set():
                    self._idle.set()

    def _read_all(self) -> None:
        while not self._closed.is_set() and (waiting := self._list_waiting()):
            for id in waiting:
                if self._closed.is_set():
                    return
                if self._read_one(id):
                    self._pause_s = FIRST_PAUSE_S
                else:
                    self._pause()

    def _read_one(self, id: str) -> bool:
        try:
            return self._read(id)
        except ClosedError:
            raise
        except Exception:  # whatever it is, it must not end the thread
            _log.warning("a memory could not be read in the background; it goes on waiting", exc_info=True)
            return False

    def _pause(self) -> None:
        self._closed.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
