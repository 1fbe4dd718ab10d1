"""Tests of the model clients, against a local HTTP server that speaks both wire forms and misbehaves."""

import contextlib
import importlib
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.models.model_clients import (
    REPAIR_LIMIT,
    AnthropicChatClient,
    BudgetError,
    ModelClientError,
    OpenAIChatClient,
    Prices,
    ReplyError,
    ServiceError,
    Usage,
    client_from_environment,
    read_reply,
    within,
)
from Agent.tests.examples.running import run

KEY = "sk-Secret0123456789abcdef"
ROOT = Path(__file__).resolve().parents[3]
MATCH = {"action": "match", "node_id": 0}
SCHEMA = {
    "type": "object",
    "properties": {
        "action": {"enum": ["match", "missing"]},
        "node_id": {"type": ["integer", "null"]},
        "node_ids": {"type": "array", "items": {"type": "integer"}, "maxItems": 5},
        "reason": {"type": "string", "maxLength": 100},
    },
    "required": ["action", "node_id", "node_ids", "reason"],
}
MESSAGES = [{"role": "system", "content": "Choose. 选择。"}, {"role": "user", "content": '{"query":"茶"}'}]

Client = OpenAIChatClient | AnthropicChatClient


# The two wire forms


class OpenAIWire:
    """How OpenAI's interface writes what a model said."""

    name, path = "openai", "/v1/chat/completions"
    address = "/v1"  # what follows the host in a base address
    client_class = OpenAIChatClient
    modes = 4  # forms of a request

    def completion(self, message: dict[str, Any], ended: str) -> dict[str, Any]:
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": ended}
        return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}

    def text(self, text: object, ended: str = "") -> dict[str, Any]:
        return self.completion({"content": text, "refusal": None}, ended or "stop")

    def refusal(self) -> dict[str, Any]:
        return self.completion({"content": None, "refusal": "I cannot help with that."}, "stop")

    def error(self, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "param": None, "code": None}}

    def form(self, request: dict[str, Any]) -> Any:
        return request["response_format"]

    def has_schema(self, request: dict[str, Any]) -> bool:
        return bool(request.get("response_format", {}).get("type") == "json_schema")

    def messages(self, request: dict[str, Any]) -> list[dict[str, str]]:
        return list(request["messages"])


class AnthropicWire:
    """How Anthropic's interface writes it."""

    name, path, address = "anthropic", "/v1/messages", ""
    client_class = AnthropicChatClient
    modes = 2

    def message(self, content: object, ended: str) -> dict[str, Any]:
        read = {"input_tokens": 30, "cache_creation_input_tokens": 6, "cache_read_input_tokens": 64}
        usage = {**read, "output_tokens": 7}
        return {"id": "msg_1", "type": "message", "content": content, "stop_reason": ended, "usage": usage}

    def text(self, text: object, ended: str = "") -> dict[str, Any]:
        ended = {"length": "max_tokens"}.get(ended, ended) or "end_turn"
        return self.message([{"type": "text", "text": text}] if text is not None else [], ended)

    def refusal(self) -> dict[str, Any]:
        return {**self.message([], "refusal"), "stop_details": {"explanation": "I cannot help with that."}}

    def error(self, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "some_error", "message": message}}

    def form(self, request: dict[str, Any]) -> Any:
        return request["output_config"]["format"]

    def has_schema(self, request: dict[str, Any]) -> bool:
        return "format" in request.get("output_config", {})

    def messages(self, request: dict[str, Any]) -> list[dict[str, str]]:
        return [{"role": "system", "content": request["system"]}, *request["messages"]]


Wire = OpenAIWire | AnthropicWire
WIRES: tuple[Wire, ...] = (OpenAIWire(), AnthropicWire())


# The server


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Handler(BaseHTTPRequestHandler):
    """Writes what the script of its server says, byte by byte where that is the point."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.path, headers, body))
        script = self.server.script
        answer = script.pop(0) if len(script) > 1 else script[0]
        with contextlib.suppress(ConnectionError):  # the client may have seen enough
            answer(self)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def answer(self, body: bytes, status: int = 200, length: int | None = None, **headers: str) -> None:
        size = len(body) if length is None else length
        lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {size}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.close_connection = size != len(body)


Answer = Callable[[Handler], None]


class Server(ThreadingHTTPServer):
    """A service on this machine.  Its script's last answer is given for ever."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Answer] = []
        self.requests: list[Request] = []
        self.released = threading.Event()
        """Set when the test is over: what hangs may go."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def body(content: object, status: int = 200, **headers: str) -> Answer:
    """Answer with JSON."""
    return lambda handler: handler.answer(json.dumps(content).encode(), status, None, **headers)


def page(status: int = 200) -> Answer:
    """Answer with HTML."""
    html = b"<html><head><title>Sign in</title></head><body>Welcome to our network</body></html>"
    return lambda handler: handler.answer(html, status, content_type="text/html")


def cut(content: object) -> Answer:
    """Answer with half of the bytes, and close."""
    raw = json.dumps(content).encode()
    return lambda handler: handler.answer(raw[: len(raw) // 2], length=len(raw))


def hang(handler: Handler) -> None:
    """Answer nothing for as long as anybody waits."""
    handler.server.released.wait(10)
    handler.close_connection = True


def hang_in_body(handler: Handler) -> None:
    """Answer with the head, and then nothing."""
    handler.answer(b'{"id"', length=1000)
    hang(handler)


def keep_warm(status: int) -> Answer:
    """Answer with empty lines, as DeepSeek does while it is busy; each of them comes in time."""

    def answer(handler: Handler) -> None:
        handler.answer(b"\n", status, length=1_000_000)
        for _ in range(150):
            if not handler.server.released.wait(0.02):
                handler.wfile.write(b"\n")

    return answer


def hang_up(handler: Handler) -> None:
    """Close without a word."""
    handler.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def need(package: str) -> Any:
    return pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    chosen: Wire = request.param
    need(chosen.name)
    need("json_repair")
    return chosen


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "KEYWORD_TREE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages wait half a second before they try again."""
    for package in ("openai", "anthropic"):
        with contextlib.suppress(ImportError):
            monkeypatch.setattr(importlib.import_module(f"{package}._base_client"), "INITIAL_RETRY_DELAY", 0.001)


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every client reads all of them, which takes a third of the time of these tests; nothing here is encrypted.
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)


Connect = Callable[..., Client]


@pytest.fixture
def connect(wire: Wire, server: Server) -> Iterator[Connect]:
    """A function that makes a client of the server."""
    made: list[Client] = []
    server.script = [body(wire.text(json.dumps(MATCH)))]

    def make(**arguments: Any) -> Client:
        given = {"timeout_s": 10.0, "base_url": server.address + wire.address, **arguments}
        made.append(wire.client_class("test-model", KEY, **given))
        return made[-1]

    yield make
    server.released.set()
    for thread in threading.enumerate():
        if thread.name == "KeywordTree model call":  # of a call that was not waited for
            thread.join(5)
    for client in made:
        client.close()


# What a call ends with


DOWN = -1  # requests: one and two retries in the strictest form, one in each weaker form
EACH_FORM = -2  # requests where one form after the other is refused


def said(text: object, ended: str = "") -> Callable[[Wire], list[Answer]]:
    return lambda wire: [body(wire.text(text, ended))]


def always(*answers: Answer) -> Callable[[Wire], list[Answer]]:
    return lambda _: list(answers)


def then_right(*answers: Answer) -> Callable[[Wire], list[Answer]]:
    return lambda wire: [*answers, body(wire.text(json.dumps(MATCH)))]


def refused(status: int, words: str = "not now") -> Callable[[Wire], list[Answer]]:
    return lambda wire: [body(wire.error(words), status)]


def moved(status: int) -> Answer:
    return lambda handler: handler.answer(b"", status, location="http://elsewhere.example/v1")


class Case(NamedTuple):
    """What a service does, and what comes of it: a reply, or an error that says so."""

    name: str
    script: Callable[[Wire], list[Answer]]
    outcome: object
    words: str = ""
    requests: int = 1


CASES = [
    Case("as asked", said(json.dumps(MATCH)), MATCH),
    Case("thinking before", said('<think>{"action": "missing"}</think>{"action": "match", "node_id": 0}'), MATCH),
    Case("whole, though cut behind", said(json.dumps(MATCH) + "\n\n{", "length"), MATCH),
    Case("prose", said("It is the second one."), ReplyError, "no JSON object: 'It is the second one.'"),
    Case("cut in a list", said('{"action": "match", "node_ids": [0, 1', "length"), ReplyError, "is cut: '{\"action", 2),
    Case("empty", said(""), ReplyError, "the reply is empty, it ended with '(stop|end_turn)'"),
    Case("no content", said(None, "length"), ReplyError, "is empty, it ended with '(length|max_tokens)'", 2),
    Case("a refusal", lambda wire: [body(wire.refusal())], ReplyError, "the model refused: I cannot help with that"),
    Case("a list for an answer", always(body([1, 2])), ReplyError, "the reply is empty"),
    Case("429 once", then_right(page(429)), MATCH, requests=2),
    Case("500 twice", then_right(page(500), page(503)), MATCH, requests=3),
    Case("cut once", then_right(cut({"id": "x" * 1000})), MATCH, requests=2),
    Case("hung up once", then_right(hang_up), MATCH, requests=2),
    Case("429 for ever", refused(429), ServiceError, "127.0.0.1: Error code: 429 .*not now", 3),
    Case("500 for ever", refused(500), ServiceError, "127.0.0.1: Error code: 500 .*not now", DOWN),
    Case("500 with HTML", always(page(500)), ServiceError, "127.0.0.1: .*InternalServerError", DOWN),
    Case("308", always(moved(308)), ServiceError, "308.*is base_url http://127.0.0.1:.* right"),
    Case("401", refused(401), ServiceError, "Error code: 401 .*not now"),
    Case("404", refused(404), ServiceError, "Error code: 404 .*not now.*is base_url http:.* right", EACH_FORM),
    Case("words for a terminal", refused(401, "no\x1b[31m\u202e\nkey"), ServiceError, r"no\S* ?\[31m"),
    Case("an empty error", lambda wire: [body({**wire.text(json.dumps(MATCH)), "error": ""})], MATCH),
    Case("an error that says 200", refused(200), ServiceError, "127.0.0.1 answers with an error: .*not now"),
    Case("HTML for ever", always(page()), ServiceError, r"\(JSONDecodeError\); is base_url .* right"),
    Case("cut for ever", always(cut({"id": "x" * 1000})), ServiceError, r"Connection error\. \(RemoteProtocolError", 3),
    Case("hung up for ever", always(hang_up), ServiceError, r"Connection error\. \(RemoteProtocolError", 3),
]


class TestOutcomes:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_of_a_call(self, case: Case, wire: Wire, server: Server, connect: Connect) -> None:
        client = connect()
        server.script = case.script(wire)
        if isinstance(case.outcome, type) and issubclass(case.outcome, Exception):
            with pytest.raises(case.outcome, match=case.words) as caught:
                client.Chat(MESSAGES, SCHEMA)
            assert caught.type is case.outcome
            assert str(caught.value).isprintable()
        else:
            assert client.Chat(MESSAGES, SCHEMA) == case.outcome
        times = {DOWN: 2 + wire.modes, EACH_FORM: wire.modes}
        assert len(server.requests) == times.get(case.requests, case.requests)

    @pytest.mark.parametrize("answer", [hang, hang_in_body, keep_warm(200), keep_warm(500)])
    def test_of_one_that_is_late(self, answer: Answer, server: Server, connect: Connect) -> None:
        server.script = [answer]
        client = connect(timeout_s=0.2)
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"(did not|no) answer within 0\.2 s") as caught:
            client.Chat(MESSAGES, SCHEMA)

        assert 0.2 <= time.monotonic() - begun < 8
        assert caught.value.__cause__ is None
        assert client.usage.calls == client.last_usage.calls >= 1

    def test_sends_nothing_more_when_its_caller_waits_no_more(
        self, wire: Wire, server: Server, connect: Connect
    ) -> None:
        def fail_late(handler: Handler) -> None:
            time.sleep(0.3)
            body(wire.error("not now"), 500)(handler)

        server.script = [fail_late]
        with pytest.raises(TimeoutError):
            connect(timeout_s=0.2).Chat(MESSAGES, SCHEMA)
        time.sleep(0.5)

        assert len(server.requests) == 1

    def test_an_interrupt_ends_a_call_at_once(self, server: Server, connect: Connect) -> None:
        def interrupt(_: Handler) -> None:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            server.released.wait(10)

        server.script = [interrupt]
        client = connect()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client.Chat(MESSAGES, SCHEMA)

        assert time.monotonic() - begun < 5
        assert client.usage == client.last_usage == Usage(calls=1)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_of_parent_and_child_after_a_fork(self, wire: Wire, server: Server) -> None:
        ports: list[int] = []

        def answer(handler: Handler) -> None:
            ports.append(handler.client_address[1])
            body(wire.text(json.dumps(MATCH)))(handler)

        server.script = [answer]
        address = server.address + wire.address
        code = f"""
            import os, signal
            from Agent.models.model_clients import {wire.client_class.__name__}
            client = {wire.client_class.__name__}("test-model", {KEY!r}, {address!r}, timeout_s=10)
            client.Chat({MESSAGES!r}, {{}})
            client._lock.acquire()  # as another thread may have it at this moment
            child = os.fork()
            if not child:
                signal.alarm(10)
                client.Chat({MESSAGES!r}, {{}})
                assert client.usage.calls == 2
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            client._lock.release()
            client.Chat({MESSAGES!r}, {{}})
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, check=True, timeout=60)

        parents, childs, parents_again = ports
        assert parents_again == parents != childs

    def test_no_one_listens(self, connect: Connect) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            client = connect(base_url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1", retries=1)
            with pytest.raises(ServiceError, match=r"127.0.0.1: Connection error\. \(ConnectError\)"):
                client.Chat(MESSAGES, SCHEMA)

        assert client.usage == Usage(calls=2)

    def test_of_an_answer_of_any_form(self, wire: Wire, server: Server, connect: Connect) -> None:
        leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "text", "{}", "{"])
        names = "choices message content text type usage error stop_reason refusal finish_reason"
        names += " stop_details prompt_tokens prompt_tokens_details input_tokens"
        forms = st.recursive(
            leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(names.split()), inner)
        )
        client = connect()

        @given(forms)
        def is_read_or_refused(form: object) -> None:
            server.script = [body(form)]
            with contextlib.suppress(ModelClientError):
                assert isinstance(client.Chat(MESSAGES, SCHEMA), dict)

        is_read_or_refused()

    @pytest.mark.parametrize("depth", [200, 3000, 50_000])
    def test_of_an_answer_of_any_depth(self, depth: int, wire: Wire, server: Server, connect: Connect) -> None:
        deep = '{"action": "match", "node_id": 0, "more": ' + "[" * depth + "]" * depth + "}"
        client = connect(retries=0)
        for answer in (json.dumps(wire.text(deep)), deep):  # how deep one may be, depends on the Python
            server.script = [lambda handler, answer=answer: handler.answer(answer.encode())]  # type: ignore[misc]
            with contextlib.suppress(ModelClientError):
                assert client.Chat(MESSAGES, SCHEMA)["node_id"] == 0


def test_a_call_has_a_deadline_and_its_count_is_the_callers() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.05 seconds"):
        within(0.05, lambda: time.sleep(1))
    with pytest.raises(ValueError, match="xyz"):
        within(5.0, lambda: int("xyz"))


class TestRequest:
    def test_asks_for_a_reply_of_the_schema(self, wire: Wire, server: Server, connect: Connect) -> None:
        connect().Chat(MESSAGES, SCHEMA)

        request = server.requests[0]
        assert request.path == wire.path
        assert (request.body["model"], request.body["temperature"]) == ("test-model", 0)
        assert 300 < request.body["max_tokens"] < 600  # by the schema's bounds
        assert wire.messages(request.body) == MESSAGES
        wanted: dict[str, Any] = {"type": "json_schema", "schema": SCHEMA}
        if wire.name == "openai":
            wanted = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
        assert wire.form(request.body) == wanted
        headers = request.headers
        assert KEY in (headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key"))

    def test_a_list_and_a_text_without_bounds_get_some(self, wire: Wire, server: Server, connect: Connect) -> None:
        connect().Chat(MESSAGES, {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "string"}}})

        sent = json.dumps(wire.form(server.requests[0].body))
        assert "maxItems" in sent
        assert "maxLength" in sent

    @pytest.mark.parametrize("wrong", [None, {"maxLength": "x"}, {"properties": []}])
    def test_a_schema_that_is_none_is_named(self, wrong: Any, server: Server, connect: Connect) -> None:
        with pytest.raises(InvalidInputError, match=f"no JSON schema: {re.escape(repr(wrong)[:5])}"):
            connect().Chat(MESSAGES, wrong)

        assert server.requests == []

    def test_options_go_before_what_is_sent_by_itself(self, wire: Wire, server: Server, connect: Connect) -> None:
        options: dict[str, Any] = {"max_tokens": 9, "temperature": 0.5}
        if wire.name == "anthropic":
            options["output_config"] = {"effort": "low"}
        connect(options=options).Chat(MESSAGES, SCHEMA)

        request = server.requests[0].body
        assert (request["max_tokens"], request["temperature"]) == (9, 0.5)
        assert wire.has_schema(request)
        assert request.get("output_config", {}).get("effort") == (None if wire.name == "openai" else "low")

    @pytest.mark.parametrize("status", [400, 404, 413, 422, 500, 200])
    def test_a_form_that_is_refused_is_left_and_one_that_fails_rests(
        self, status: int, wire: Wire, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = connect()
        [right], wrong = server.script, body(wire.error("literal_error"), status)
        if status == 200:  # a gateway in between
            wrong = body({"error": {"code": 400, "message": "no endpoint supports this form"}}, 200)
        server.script = [lambda handler: (wrong if wire.has_schema(server.requests[-1].body) else right)(handler)]

        assert [client.Chat(MESSAGES, SCHEMA) for _ in range(3)] == [MATCH] * 3
        asked = [wire.has_schema(request.body) for request in server.requests]
        assert asked == [True] * (3 if status == 500 else 1) + [False] * 3
        if wire.name == "openai":
            weaker = server.requests[asked.index(False)].body["response_format"]
            assert weaker == {"type": "json_object", "schema": SCHEMA}

        server.script, later = [right], time.monotonic() + 601.0
        monkeypatch.setattr(time, "monotonic", lambda: later)  # it was an outage, and is over
        assert [client.Chat(MESSAGES, SCHEMA) for _ in range(2)] == [MATCH] * 2
        assert [wire.has_schema(request.body) for request in server.requests[-2:]] == [status == 500] * 2

    def test_the_last_form_is_a_text(self, wire: Wire, server: Server, connect: Connect) -> None:
        client = connect()
        server.script[:0] = [body(wire.error("unknown field"), 400)] * (wire.modes - 1)
        assert client.Chat(MESSAGES, SCHEMA) == MATCH

        assert server.requests[-1].body.keys().isdisjoint({"response_format", "output_config"})

    def test_a_request_that_is_wrong_in_itself_teaches_nothing(
        self, wire: Wire, server: Server, connect: Connect
    ) -> None:
        client = connect()
        right, server.script = server.script, refused(400)(wire)
        with pytest.raises(ServiceError, match=r"Error code: 400 .*not now"):
            client.Chat(MESSAGES, SCHEMA)
        assert len(server.requests) == wire.modes

        server.script = right
        client.Chat(MESSAGES, SCHEMA)
        assert wire.has_schema(server.requests[-1].body)

    def test_a_model_that_thinks_first_gets_more_room(self, wire: Wire, server: Server, connect: Connect) -> None:
        client = connect()
        server.script[:0] = said("Let me see", "length")(wire)

        assert [client.Chat(MESSAGES, SCHEMA) for _ in range(2)] == [MATCH] * 2
        first, second, third = (request.body["max_tokens"] for request in server.requests)
        assert first + 1000 < second == third

    @pytest.mark.parametrize("name", ["temperature", "maxLength", "maxItems", "max_tokens"])
    def test_what_a_service_refuses_by_its_name_is_left_out(
        self, name: str, wire: Wire, server: Server, connect: Connect
    ) -> None:
        if (name, wire.name) == ("max_tokens", "anthropic"):
            pytest.skip("it is required there")
        client = connect()
        [right], wrong = server.script, body(wire.error(f"Unsupported: '{name}'"), 400)
        server.script = [
            lambda handler: (wrong if f'"{name}"' in json.dumps(server.requests[-1].body) else right)(handler)
        ]

        assert [client.Chat(MESSAGES, SCHEMA) for _ in range(2)] == [MATCH] * 2
        assert len(server.requests) == 3
        assert wire.has_schema(server.requests[-1].body)
        assert ("max_completion_tokens" in server.requests[-1].body) == (name == "max_tokens")


class TestUsage:
    def test_counts_calls_tokens_and_cost_for_a_client_and_a_search(
        self, wire: Wire, server: Server, connect: Connect, tmp_path: Path
    ) -> None:
        client = connect(prices=Prices(3.0, 15.0, 0.3))
        assert client.usage == Usage(cost=0.0)
        jump = json.dumps({"action": "jump", "node_id": 0})
        server.script[:0] = [page(500), body(wire.text(jump))]
        with KeywordTree(str(tmp_path), client) as tree:
            tree.CreateKeyword("茶", "root")
            found = tree.Search("what do I drink?")

        cost = (36 * 3.0 + 64 * 0.3 + 7 * 15.0) / 1e6
        assert [(step.input_tokens, step.output_tokens) for step in found.steps] == [(100, 7)] * 2
        assert found.cost == client.usage.cost == pytest.approx(2 * cost)
        assert client.usage == Usage(3, 200, 14, 128, client.usage.cost)
        assert client.last_usage == Usage(1, 100, 7, 64, client.last_usage.cost)

    @pytest.mark.parametrize(
        "reported",
        [
            *(None, [], "many", {}, {"prompt_tokens": "9", "input_tokens": True}),
            dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), 10**400),
        ],
    )
    def test_what_is_not_reported_counts_nothing(
        self, reported: object, wire: Wire, server: Server, connect: Connect
    ) -> None:
        client = connect(prices=Prices(3.0, 15.0))
        server.script = [body({**wire.text(json.dumps(MATCH)), "usage": reported})]
        client.Chat(MESSAGES, SCHEMA)

        assert client.usage == Usage(calls=1, cost=0.0)

    def test_each_thread_sees_its_own_call_and_who_lets_another_ask_sees_that(self, connect: Connect) -> None:
        client = connect()

        def ask(_: int) -> Usage:
            client.Chat(MESSAGES, SCHEMA)
            return client.last_usage

        with ThreadPoolExecutor(4) as threads:
            seen = list(threads.map(ask, range(20)))
        assert seen == [Usage(1, 100, 7, 64)] * 20
        assert client.usage == Usage(20, 2000, 140, 1280)
        assert client.last_usage == Usage()
        within(10.0, lambda: client.Chat(MESSAGES, SCHEMA))
        assert client.last_usage == Usage(1, 100, 7, 64)


class TestBudget:
    def test_of_calls_is_kept_by_all_threads_together(self, server: Server, connect: Connect) -> None:
        client = connect(budget_calls=10)

        def ask(_: int) -> bool:
            try:
                return client.Chat(MESSAGES, SCHEMA) == MATCH
            except BudgetError:
                return False

        with ThreadPoolExecutor(4) as threads:
            answered = list(threads.map(ask, range(16)))
        assert len(server.requests) == sum(answered) == 10
        with pytest.raises(BudgetError, match="the budget of 10 calls is used up"):
            client.Chat(MESSAGES, SCHEMA)


def everything_told_by(error: BaseException) -> str:
    """Return all that a reporter of errors could write down, the variables of all functions included."""
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in report.stack:
        if frame.filename == __file__ or frame.name == "__init__":  # who gives a key knows it
            frame.locals = {}
    reported, chain = "".join(report.format()), [error]
    while chain:
        one = chain.pop()
        reported += f"{one!r} {one} {vars(one)}"
        chain += [inner for inner in (one.__cause__, one.__context__) if inner is not None]
    return reported


class TestKeys:
    @pytest.mark.parametrize("status", [200, 401, 500])
    def test_are_in_no_error_log_or_repr(
        self,
        status: int,
        wire: Wire,
        server: Server,
        connect: Connect,
        caplog: pytest.LogCaptureFixture,
        tmp_path: Path,
    ) -> None:
        caplog.set_level(logging.DEBUG)
        client = connect()
        server.script = [body(wire.error(f"Incorrect API key provided: {KEY}."), status)]
        with pytest.raises(ServiceError, match=r"Incorrect API key provided: (…|\[key\])\.") as caught:
            client.Chat(MESSAGES, SCHEMA)
        with KeywordTree(str(tmp_path), client, log_messages=True) as tree:
            tree.CreateKeyword("饮食", "root")
            tree.CreateKeyword("茶")
            found = tree.Search("coffee")

        assert KEY not in everything_told_by(caught.value)
        assert KEY not in repr(client) + repr(found.steps)
        assert KEY not in caplog.text
        assert KEY.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("*.jsonl"))

    @pytest.mark.parametrize("key", ["1", "none", "null\n", "match", "EMPTY"])
    def test_that_stand_for_none_spoil_no_reply(self, key: str, wire: Wire, server: Server) -> None:
        reply = {**MATCH, "reason": "none is a match, reply 1 is EMPTY"}
        server.script = said(json.dumps(reply))(wire)
        client = wire.client_class("test-model", key, server.address + wire.address)

        assert client.Chat(MESSAGES, SCHEMA) == reply
        client.close()

    @pytest.mark.parametrize(
        "script",
        [always(hang), always(hang_up), always(cut({"id": KEY})), always(page()), said(KEY), then_right(moved(307))],
        ids=["late", "hung up", "cut", "HTML", "no reply", "moved"],
    )
    def test_are_in_no_traceback_with_its_variables(
        self, script: Callable[[Wire], list[Answer]], wire: Wire, server: Server, connect: Connect
    ) -> None:
        client = connect(timeout_s=0.2, retries=1)
        server.script = script(wire)
        with pytest.raises((ModelClientError, TimeoutError)) as caught:
            client.Chat(MESSAGES, SCHEMA)

        reported = everything_told_by(caught.value)
        assert "json_schema = " in reported  # it does tell variables
        assert KEY not in reported

    @pytest.mark.parametrize("key", ["sk-Secret\nX-Other: 1", "sk-Secret 1", "sk-Секрет"])
    def test_that_are_none_are_refused_and_not_shown(self, key: str, wire: Wire) -> None:
        with pytest.raises(InvalidInputError, match="characters that no key has") as caught:
            wire.client_class("test-model", key)

        assert "Secret" not in everything_told_by(caught.value)

    @pytest.mark.parametrize(
        "address", ["https://user:Secret@models.example/v1", "https://models.example/v1?key=Secret", KEY]
    )
    def test_may_not_stand_in_the_address(self, address: str, wire: Wire) -> None:
        with pytest.raises(InvalidInputError, match=r"base_url must (be|begin)") as caught:
            wire.client_class("test-model", "none", address)

        assert "Secret" not in str(caught.value)


class TestConstructor:
    def test_takes_what_is_not_given_from_the_environment(
        self, wire: Wire, server: Server, connect: Connect, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.script = said(json.dumps(MATCH))(wire)
        monkeypatch.setenv("KEYWORD_TREE_MODEL", "model-of-the-environment")
        monkeypatch.setenv(f"{wire.name.upper()}_API_KEY", KEY)
        monkeypatch.setenv(f"{wire.name.upper()}_BASE_URL", server.address + wire.address)
        for key in ("", "none"):  # which says that none is sent
            client = wire.client_class(api_key=key)
            assert client.Chat(MESSAGES, SCHEMA) == MATCH
            client.close()

        assert server.requests[0].body["model"] == "model-of-the-environment"
        assert repr(client).endswith("'model-of-the-environment' at 127.0.0.1, 1 calls, 107 tokens>")
        assert [KEY in " ".join(request.headers.values()) for request in server.requests] == [True, False]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            *(({"timeout_s": bad}, "timeout_s must be .*") for bad in (0, -1.0, float("nan"), 1e300, "60")),
            ({"retries": -1}, "retries must be a whole number and not below 0, not -1"),
            ({"retries": 1.5}, "retries must be .* not 1.5"),
            ({"budget_calls": "5"}, "budget_calls must be .* not '5'"),
            ({"prices": (1, 2)}, r"prices must be Prices\(…\), not \(1, 2\)"),
            ({"options": "x"}, "options must be a mapping, and is of type str"),
            ({"base_url": "localhost:11434/v1"}, "base_url must begin with http:// or https://: 'localhost:11434/v1'"),
        ],
    )
    def test_names_the_value_that_cannot_be_used(self, arguments: dict[str, Any], words: str, wire: Wire) -> None:
        with pytest.raises(InvalidInputError, match=f"{words}$"):
            wire.client_class("test-model", KEY, **arguments)

    def test_what_it_makes_holds_it_in_no_cycle(self, wire: Wire) -> None:
        for _ in range(2):  # the first imports the package
            client = wire.client_class("test-model", KEY, LOCAL)
            here = weakref.ref(client)
            del client

        assert here() is None  # and its connections are closed

    @pytest.mark.parametrize("missing", ["openai", "json_repair"])
    def test_says_how_to_install_what_is_missing(self, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if missing != "openai":
            need("openai")
        monkeypatch.setitem(sys.modules, missing, None)
        hint = rf"{missing} is not installed: pip install '\.\[openai\]' in its repository"
        with pytest.raises(ImportError, match=hint):
            OpenAIChatClient("test-model", KEY)


MODEL, LOCAL = "KEYWORD_TREE_MODEL", "http://localhost:11434/v1"
BOTH_KEYS = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}


class TestClientFromEnvironment:
    @pytest.mark.parametrize(
        ("names", "arguments", "expected"),
        [
            ({}, {}, None),
            ({"OPENAI_API_KEY": KEY}, {}, None),
            ({MODEL: "m"}, {}, None),
            ({MODEL: "m", "OPENAI_API_KEY": KEY}, {}, OpenAIChatClient),
            ({MODEL: "m", "OPENAI_BASE_URL": LOCAL}, {}, OpenAIChatClient),
            ({MODEL: "m", "ANTHROPIC_API_KEY": KEY}, {}, AnthropicChatClient),
            ({MODEL: "m", **BOTH_KEYS}, {}, OpenAIChatClient),
            ({MODEL: "claude-x", **BOTH_KEYS}, {}, AnthropicChatClient),
            ({}, {"model": "m", "base_url": LOCAL}, OpenAIChatClient),
            ({}, {"model": "claude-x", "api_key": KEY}, AnthropicChatClient),
            ({"ANTHROPIC_API_KEY": KEY}, {"model": "m"}, AnthropicChatClient),
            ({"ANTHROPIC_API_KEY": KEY}, {"model": "m", "base_url": LOCAL}, OpenAIChatClient),
            ({MODEL: "m"}, {"api_key": KEY}, OpenAIChatClient),
            ({MODEL: "m", **BOTH_KEYS}, {"model": "claude-x"}, AnthropicChatClient),
        ],
    )
    def test_chooses_by_its_arguments_first(
        self,
        names: dict[str, str],
        arguments: dict[str, Any],
        expected: type[Client] | None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        if expected is not None:
            need("openai" if expected is OpenAIChatClient else "anthropic")
            need("json_repair")
        client = client_from_environment(**arguments, **({"retries": 1} if names else {}))
        if client is None:
            assert expected is None
            return
        client.close()

        assert type(client) is expected
        assert client.model == arguments.get("model", names.get(MODEL))

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"model": "m"}, "no key for api.openai.com: give `api_key`, or set OPENAI_API_KEY"),
            ({"model": "claude-x"}, "no key for api.anthropic.com: give `api_key`, or set ANTHROPIC_API_KEY"),
            ({"base_url": LOCAL}, "no model is named: give `model`, or set KEYWORD_TREE_MODEL"),
        ],
    )
    def test_says_which_half_is_missing_where_the_other_is_given(self, arguments: dict[str, str], words: str) -> None:
        with pytest.raises(InvalidInputError, match=words):
            client_from_environment(**arguments)


class TestReadReply:
    def test_needs_no_other_package_for_what_is_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "json_repair", None)

        assert read_reply('I say:\n```\n{"action": "match", "node_id": 3}\n```', SCHEMA)["node_id"] == 3

    @pytest.mark.parametrize(
        "text",
        [
            'Well, {it} is 0: {"action": "match", "node_id": 0}. Sure {?',
            '{"intent": "search", "query": "x"}\n{"action": "match", "node_id": 0}',
            json.dumps(SCHEMA) + "\n" + json.dumps(MATCH),
            '```json\n{"action": "match", "node_id": 0,}\n```\nDone.',
            "{'action': 'match', 'node_id': 0}",
            '{action: "match", node_id: 0}',
            '{"action": "match", // the tea\n"node_id": 0}',
            '{"action": "match" "node_id": 0}',
            json.dumps([MATCH]),
            json.dumps({"reply": MATCH}),
            "Let me {see}. " * 1000 + "</think>{'action': 'match', 'node_id': 0}",
        ],
    )
    def test_takes_the_last_of_several_that_fit_whatever_stands_around(self, text: str) -> None:
        need("json_repair")
        assert read_reply(text, SCHEMA) == MATCH

    def test_a_long_one_is_read_too(self) -> None:
        long = {**MATCH, "reason": "x" * 1_000_000 + "</think>"}

        assert read_reply(json.dumps(long), SCHEMA) == long

    def test_takes_no_number_that_may_be_cut(self) -> None:
        need("json_repair")
        whole = {"action": "match", "node_id": 125, "node_ids": [34, 567], "reason": "it has 89 leaves"}
        text = json.dumps(whole)
        read = 0
        for length in range(len(text)):
            with contextlib.suppress(ReplyError):
                reply = read_reply(text[:length], SCHEMA)
                assert reply.get("node_id") in (None, "", 125), text[:length]
                assert set(reply.get("node_ids") or []) <= {34, 567, None, ""}, text[:length]
                read += 1
        assert read > len(text) / 2

    @given(
        st.lists(st.text(max_size=8) | st.sampled_from([*'{}[]",:0\\', '{"action":', "```json", "null"])).map("".join)
    )
    def test_raises_nothing_but_its_own_error(self, text: str) -> None:
        need("json_repair")
        with contextlib.suppress(ReplyError):
            assert isinstance(read_reply(text, SCHEMA), dict)

    @pytest.mark.parametrize("piece", ["{", '{"', '{"a":', '["', '{"a": 1,,', "1", "```json\n{"])
    def test_is_never_slow(self, piece: str) -> None:
        need("json_repair")
        text = "{" + piece * (REPAIR_LIMIT // len(piece) - 1)
        begun = time.process_time()
        with contextlib.suppress(ReplyError):
            read_reply(text, SCHEMA)

        assert time.process_time() - begun < 10  # a second for the worst of them; without a limit, minutes

    def test_repairs_nothing_where_it_was_cut(self) -> None:
        text = '{"action": "match", "node_ids": [34, 567'
        with pytest.raises(ReplyError, match="the reply is cut: "):
            read_reply(text, SCHEMA, is_cut=True)

        need("json_repair")
        assert read_reply(f"{text}, 8", SCHEMA)["node_ids"][:2] == [34, 567]


# With a mind behind the server


def think(wire: Wire) -> Answer:
    """Answer as a model would that knows a few words, from the messages in the request."""
    known = {"园林": "旅行", "龙井": "茶", "什么茶": "茶", "language": "Python"}

    def answer(handler: Handler) -> None:
        question = json.loads(wire.messages(handler.server.requests[-1].body)[-1]["content"])
        asked = " ".join(question.get(name, "") for name in ("query", "content"))
        name = next((name for word, name in known.items() if word in asked), "")
        fitting = [line.split(" ")[0] for line in question["candidates"] if name and name in line.split(" = ")[0]]
        reply = {"action": "match", "targets": fitting[-1:]} if fitting else {"action": "missing", "targets": []}
        body(wire.text(json.dumps(reply)))(handler)

    return answer


class TestExample:
    def test_says_what_to_set(self) -> None:
        done = run("with_a_model.py")

        for name in ("KEYWORD_TREE_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"):
            assert name in done.stdout

    def test_does_not_take_a_failure_for_a_placement(self, server: Server) -> None:
        need("openai")
        need("json_repair")
        server.script = refused(401)(WIRES[0])
        done = run("with_a_model.py", KEYWORD_TREE_MODEL="m", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.address)

        assert "苏州园林 is at 苏州园林 (agent_failure)" in done.stdout
        assert "is linked to [] (agent_failure)" in done.stdout

    def test_runs_with_a_model(self, wire: Wire, server: Server) -> None:
        server.script = [think(wire)]
        service = wire.name.upper()
        names = {f"{service}_API_KEY": KEY, f"{service}_BASE_URL": server.address + wire.address}
        done = run("with_a_model.py", **{"KEYWORD_TREE_MODEL": "test-model", **names})

        assert "苏州园林 is at 旅行 / 苏州园林 (agent_match)" in done.stdout
        assert "'用户喜欢喝什么茶': 饮食 / 茶" in done.stdout
        assert f"{len(server.requests)} calls" in done.stdout
        assert KEY not in done.stdout + done.stderr
