"""Embed in a thread of its own, so that no caller waits longer for a model than it wants to.

>>> from keyword_tree.embeddings.embedder import HashingEmbedder
>>> from keyword_tree.embeddings.vectors import Vectors
>>> vectors = Vectors(HashingEmbedder(synonyms=[("car", "automobile")]))
>>> vectors.add("red car")
>>> worker = Worker(vectors)
>>> worker.ask(["red automobile"], patience_s=2.0)
>>> worker.finish()
True
>>> [text for _, text in vectors.nearest("red automobile", 1)]
['red car']

    asker                                     worker, a daemon thread: there while there is something to do
    ask: leaves an order, waits for it  →     all orders' questions in one call
         waits an eighth of that time   →     texts that wait, in calls of about `CALL_S`, so that the next question
         ranks with what is known             need not wait long; so many texts for a question, then the thread ends

A question that is not answered in time is a failure of the model: `Vectors` says so, and leaves it alone for a while.
What comes later is kept all the same. A forked child has no such thread, and starts its own.
"""

import reprlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from ..keyword_tree import InvalidInputError
from .embedder import renew_after_fork
from .vectors import BATCH, Vectors

__all__ = ["CALL_S", "PATIENCE_S", "Worker", "check_patience"]

PATIENCE_S = 2.0
"""So long a question waits for the model."""

CALL_S = 0.25
"""A call for texts that wait should take no longer: a question may have to wait for it."""

_FOR_TEXTS = 1 / 8  # of the time for a question, its asker waits for texts besides: what was written just now is found
_FIRST_SHARE = 4  # texts in the first call, before it is known how long they take


def check_patience(patience_s: float) -> None:
    """Refuse what is no time to wait.

    Raises:
        InvalidInputError: It is no number above 0, or more than a day; the message shows it.
    """
    if isinstance(patience_s, bool) or not isinstance(patience_s, (int, float)) or not 0 < patience_s <= 86_400:
        raise InvalidInputError(f"patience_s must be seconds, above 0 and at most a day: {reprlib.repr(patience_s)}")


class _Order:
    def __init__(self, questions: Sequence[str]) -> None:
        self.questions = questions
        self.is_done = False


class Worker:
    """The thread that lets `Vectors` ask the model; any number of threads may leave it something to do.

    Args:
        vectors: Whose questions and texts.
        texts: At most so many that wait are embedded for a question.
        clock: Seconds, for `CALL_S`.
    """

    def __init__(self, vectors: Vectors, texts: int = 64, clock: Callable[[], float] = time.monotonic) -> None:
        self._vectors, self._texts, self._clock = vectors, texts, clock
        self._share = _FIRST_SHARE
        self._renew_locks()
        renew_after_fork(self)

    def _renew_locks(self) -> None:
        self._changed = threading.Condition()  # guards what follows
        self._orders: list[_Order] = []
        self._texts_left = 0
        self._thread: threading.Thread | None = None

    def ask(self, questions: Iterable[str], patience_s: float) -> None:
        """Have questions embedded, and some of the texts that wait. Cost: no thread where all is known.

        Args:
            questions: As for `Vectors.catch_up`.
            patience_s: Seconds to wait for them, and an eighth of that for texts.
        """
        vectors = self._vectors
        order = _Order(vectors.unknown(questions))
        if vectors.is_resting or not (order.questions or vectors.is_behind):
            return
        late: Exception | None = None
        with self._changed:
            self._orders.append(order)
            try:
                self._begin()
            except RuntimeError as error:  # the system has no thread to give
                late = error
            if late is None and order.questions:
                self._changed.wait_for(lambda: order.is_done or vectors.is_resting, patience_s)
                if not (order.is_done or vectors.is_resting):
                    late = TimeoutError(f"no answer within {patience_s:g} s")
            if late is None:
                self._changed.wait_for(lambda: self._is_idle() or vectors.is_resting, patience_s * _FOR_TEXTS)
        if late is not None:
            vectors.fail(late)
            with self._changed:
                self._changed.notify_all()  # no other thread need wait any longer

    def catch_up(self, limit: int | None = None) -> int:
        """Embed texts that wait, in this thread, and return how many still do; waits as long as the model does.

        Args:
            limit: At most so many; None is all.
        """
        self.finish()
        self._vectors.catch_up(limit=limit, at_once=True)
        self.finish()  # what searches have asked for meanwhile
        return self._vectors.waiting

    def close(self, patience_s: float) -> None:
        """Ask the model no more. Cost: waits so long for a call that is under way; not for one that is late."""
        self.finish(0.0 if self._vectors.is_resting else patience_s)
        self._vectors.close()

    def finish(self, patience_s: float | None = None) -> bool:
        """Begin no more texts, wait for the call that is under way, and return whether it ended.

        Args:
            patience_s: Seconds; None waits as long as the model does.
        """
        with self._changed:
            self._texts_left = 0
            return self._changed.wait_for(self._is_idle, patience_s)

    def _is_idle(self) -> bool:
        return self._thread is None or not self._thread.is_alive()  # Ctrl-C may come before it starts

    def _begin(self) -> None:
        self._texts_left = self._texts
        if self._is_idle():
            self._thread = threading.Thread(target=self._run, name="embedding", daemon=True)
            self._thread.start()

    # -- in the thread --------------------------------------------------------

    def _run(self) -> None:
        try:
            while (orders := self._next()) is not None:
                if orders:
                    self._answer(orders)
                else:
                    self._embed_texts()
        finally:
            with self._changed:
                self._leave()

    def _next(self) -> list[_Order] | None:
        """Return the orders that came meanwhile; an empty list where it is the texts' turn, None where all is done."""
        with self._changed:
            orders, self._orders = self._orders, []
            if not orders and (self._texts_left <= 0 or self._vectors.is_resting or not self._vectors.is_behind):
                self._leave()  # under the lock that looked: a caller that comes now starts another
                return None
            return orders

    def _leave(self) -> None:
        if self._thread is threading.current_thread():
            self._thread = None
            self._changed.notify_all()

    def _answer(self, orders: Sequence[_Order]) -> None:
        try:
            self._vectors.catch_up([question for order in orders for question in order.questions], limit=0)
            if len(orders) > 1:  # else one that the model refuses would keep the others' answers back
                for order in orders:
                    self._vectors.catch_up(order.questions, limit=0)
        except SystemExit as error:  # of the model, since signals reach the main thread alone
            self._vectors.fail(RuntimeError(f"the model ended its thread: {error!r}"))
        finally:
            with self._changed:
                for order in orders:
                    order.is_done = True
                self._changed.notify_all()

    def _embed_texts(self) -> None:
        share = min(self._share, max(1, self._texts_left))
        begun = self._clock()
        self._vectors.catch_up(limit=share)
        is_quick = self._clock() - begun < CALL_S
        self._share = min(self._texts, BATCH, 2 * share) if is_quick else max(1, share // 2)
        with self._changed:
            self._texts_left -= share
