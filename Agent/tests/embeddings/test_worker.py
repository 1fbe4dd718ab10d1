"""Tests of `worker`: questions first, no caller waits without end, what comes late is kept."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.vectors import RETRY_S, Vectors, path_for
from Agent.embeddings.worker import CALL_S, Worker, _Order, check_patience
from Agent.keyword_tree import InvalidInputError
from Agent.tests.support.clocks import Clock
from Agent.tests.support.threads import in_threads

LONG, SHORT = 240.0, 0.01  # longer than any test needs; too short for a model that waits for the test


class Scripted(HashingEmbedder):
    """Keeps its calls; where `waits_at` says so, it answers only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.begun, self.released = threading.Event(), threading.Event()
        self.waits_at: Callable[[Sequence[str]], bool] = lambda texts: False
        self.meanwhile: Callable[[Sequence[str]], object] = lambda texts: None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls.append(list(texts))
        if self.waits_at(texts):
            self.begun.set()
            self.released.wait(LONG)
        self.meanwhile(texts)
        return super().embed(texts)


@pytest.fixture
def embedder() -> Scripted:
    return Scripted()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def vectors(embedder: Scripted, clock: Clock, tmp_path: Path) -> Vectors:
    return Vectors(embedder, path_for(tmp_path, "keywords", embedder.name), clock)


@pytest.fixture
def worker(vectors: Vectors, clock: Clock) -> Worker:
    return Worker(vectors, clock=clock)


def add(vectors: Vectors, count: int) -> None:
    for number in range(count):
        vectors.add(f"text {number}")


class TestAsk:
    def test_the_question_is_asked_for_first_and_alone(
        self, embedder: Scripted, vectors: Vectors, worker: Worker
    ) -> None:
        add(vectors, 3)
        worker.ask(["question"], LONG)

        assert embedder.calls == [["question"], ["text 0", "text 1", "text 2"]]
        assert vectors.waiting == 0

    def test_brings_so_many_texts_and_no_more(self, embedder: Scripted, vectors: Vectors, worker: Worker) -> None:
        add(vectors, 100)
        worker.ask(["question"], LONG)
        assert [len(texts) for texts in embedder.calls] == [1, 4, 8, 16, 32, 4]
        assert vectors.waiting == 100 - 64

        worker.ask([], LONG)
        assert vectors.waiting == 0

    def test_where_all_is_known_there_is_no_thread(self, embedder: Scripted, vectors: Vectors, worker: Worker) -> None:
        vectors.add("tea")
        worker.ask(["question"], LONG)
        embedder.calls.clear()
        worker.ask(["question", "tea"], LONG)

        assert embedder.calls == []
        assert worker._thread is None

    def test_texts_go_to_a_slow_model_a_few_at_a_time(
        self, embedder: Scripted, vectors: Vectors, worker: Worker, clock: Clock
    ) -> None:
        def take_time(texts: Sequence[str]) -> None:
            clock.now += CALL_S / 3 * len(texts)

        embedder.meanwhile = take_time
        add(vectors, 100)
        worker.ask(["question"], LONG)

        assert [len(texts) for texts in embedder.calls][:7] == [1, 4, 2, 4, 2, 4, 2]

    def test_a_text_that_is_embedded_keeps_no_question_waiting(
        self, embedder: Scripted, vectors: Vectors, worker: Worker
    ) -> None:
        embedder.waits_at = lambda texts: texts[0].startswith("text")
        add(vectors, 10)
        worker.ask(["question"], 4.0)  # waits half a second for texts

        assert vectors.vector_of("question") is not None
        assert (vectors.waiting, vectors.failure, worker.finish(SHORT)) == (10, "", False)
        embedder.released.set()
        assert worker.finish()
        assert vectors.waiting == 6

    def test_a_question_that_the_model_refuses_keeps_no_other_back(
        self, embedder: Scripted, vectors: Vectors, worker: Worker
    ) -> None:
        def refuse(texts: Sequence[str]) -> None:
            if "bad" in texts:
                raise ValueError("no such text")

        embedder.meanwhile = refuse
        orders = [_Order(["good"]), _Order(["bad"]), _Order(["better"])]
        worker._answer(orders)

        assert [vectors.vector_of(text) is not None for text in ("good", "bad", "better")] == [True, False, True]
        assert all(order.is_done for order in orders)

    def test_many_threads_get_their_answers(self, embedder: Scripted, vectors: Vectors, worker: Worker) -> None:
        add(vectors, 40)
        found: list[bool] = []

        def ask(number: int) -> None:
            worker.ask([f"question {number}"], LONG)
            found.append(vectors.vector_of(f"question {number}") is not None)

        in_threads(ask, range(16))

        assert found == [True] * 16
        texts = [text for call in embedder.calls for text in call]
        assert sorted(texts) == sorted(set(texts))

    def test_ctrl_c_ends_the_waiting_and_not_the_thread(
        self, embedder: Scripted, vectors: Vectors, worker: Worker
    ) -> None:
        def interrupt(texts: Sequence[str]) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            embedder.meanwhile = lambda texts: None

        def wait() -> None:
            worker.ask(["question"], LONG)
            worker.finish()  # Ctrl-C may arrive a moment later

        embedder.meanwhile = interrupt
        with pytest.raises(KeyboardInterrupt):
            wait()

        assert worker.finish()
        assert vectors.vector_of("question") is not None
        worker.ask(["another"], LONG)
        assert vectors.vector_of("another") is not None


class TestLate:
    @pytest.fixture(autouse=True)
    def _waiting(self, embedder: Scripted) -> None:
        embedder.waits_at = lambda texts: not embedder.released.is_set()

    def test_is_a_failure_that_is_reported_once(
        self,
        embedder: Scripted,
        vectors: Vectors,
        worker: Worker,
        clock: Clock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        worker.ask(["one"], SHORT)
        assert vectors.failure == "TimeoutError: no answer within 0.01 s"
        worker.ask(["two"], SHORT)  # the model is left alone
        clock.now += RETRY_S
        worker.ask(["three"], SHORT)

        assert caplog.messages == [
            f"embedding with {embedder.name} failed, words rank alone: TimeoutError: no answer within 0.01 s"
        ]
        assert embedder.calls == [["one"]]
        embedder.released.set()
        worker.finish()

    def test_what_comes_is_kept_and_the_failure_stands_until_an_answer_is_in_time(
        self, embedder: Scripted, vectors: Vectors, worker: Worker, clock: Clock
    ) -> None:
        worker.ask(["one"], SHORT)
        embedder.released.set()
        worker.finish()
        assert vectors.vector_of("one") is not None
        assert vectors.failure

        clock.now += RETRY_S
        worker.ask(["two"], LONG)
        assert vectors.failure == ""

    def test_no_one_waits_longer_than_the_first(self, embedder: Scripted, vectors: Vectors, worker: Worker) -> None:
        other = threading.Thread(target=worker.ask, args=(["one"], LONG))
        other.start()
        embedder.begun.wait(LONG)
        worker.ask(["two"], SHORT)
        other.join(LONG / 4)

        assert not other.is_alive()
        assert not embedder.released.is_set()
        embedder.released.set()
        worker.finish()

    def test_what_comes_after_closing_is_not_written(
        self, embedder: Scripted, vectors: Vectors, worker: Worker, tmp_path: Path
    ) -> None:
        add(vectors, 1)
        embedder.waits_at = lambda texts: texts == ["text 0"]
        worker.ask(["one"], 1.0)
        embedder.begun.wait(LONG)
        vectors.close()
        embedder.released.set()

        assert worker.finish()
        assert list(tmp_path.iterdir()) == []
        calls = len(embedder.calls)
        worker.ask(["two"], LONG)
        assert len(embedder.calls) == calls

    def test_a_child_that_is_forked_meanwhile_asks_for_itself(self) -> None:
        program = """
import os, signal, threading, warnings
from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.vectors import Vectors
from Agent.embeddings.worker import Worker

warnings.simplefilter("ignore", DeprecationWarning)  # that fork and threads do not go together is what is tested
begun, released = threading.Event(), threading.Event()

class Slow(HashingEmbedder):
    def embed(self, texts):
        if "slow" in texts:
            begun.set()
            released.wait()
        return super().embed(texts)

vectors = Vectors(Slow())
worker = Worker(vectors)
asking = threading.Thread(target=worker.ask, args=(["slow"], 60.0))
asking.start()
begun.wait()
worker._changed.acquire()
child = os.fork()
if child == 0:
    signal.alarm(30)
    worker.ask(["quick"], 20.0)
    os._exit(0 if vectors.vector_of("quick") is not None and worker.finish() else 3)
worker._changed.release()
released.set()
asking.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), vectors.vector_of("slow") is not None)
"""
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

        assert ended.stdout == "0 True\n"


class TestFailing:
    def test_a_system_that_gives_no_thread_is_a_failure(
        self, vectors: Vectors, worker: Worker, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            worker.ask(["question"], LONG)
        assert vectors.failure == "RuntimeError: can't start new thread"
        clock.now += RETRY_S
        worker.ask(["question"], LONG)
        assert vectors.failure == ""

    @pytest.mark.parametrize("patience_s", [0, -1.0, float("nan"), float("inf"), True, "2", None])
    def test_what_is_no_time_to_wait_is_refused(self, patience_s: object) -> None:
        with pytest.raises(InvalidInputError, match="patience_s must be seconds, above 0 and at most a day: "):
            check_patience(patience_s)  # type: ignore[arg-type]  # what is tested
