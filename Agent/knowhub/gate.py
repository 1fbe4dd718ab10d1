"""The gate before the server, which every request passes first.

In this order: the name that the server is called by (DNS rebinding), the size of the head, the caller, how often, the
body, in time and within its limit. Behind it: headers that every answer has, one log line without query or body, and
figures without ids. What fails inside becomes a problem (RFC 9457) that says nothing of the inside.
"""

import asyncio
import itertools
import json
import logging
import secrets
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client import CollectorRegistry, Histogram
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .oidc import Provider
from .records import Json, KnowHubError, Shares
from .schemas import REQUEST_LIMIT
from .tokens import Token, Tokens

HEAD_LIMIT = 32 * 1024
"""Bytes of a request's head, its path and query included."""

BODY_S = 30.0
"""Seconds that a body may take to arrive."""

STRANGER_LIMIT = 64 * 1024
"""Bytes of a body without a valid token: a form to log in has no more."""

ARRIVING_LIMIT = 8 * 1024 * 1024
"""Bytes of all bodies that are arriving at once."""

BURST = 2.0
"""Seconds' worth of requests that may come at once."""

PROBLEM_TYPE = "application/problem+json"

_log = logging.getLogger("keyword_tree.knowhub.access")
_errors = logging.getLogger("keyword_tree.knowhub.errors")

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SINGLE = {b"authorization": "Authorization", b"idempotency-key": "Idempotency-Key", b"if-match": "If-Match"}
"""Headers that a request has once, by the names that a server gives them."""
_OPEN = ("/healthz", "/readyz", "/openapi.json", "/api", "/login", "/style.css")
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every answer."""


@dataclass(frozen=True)
class Settings:
    """How a server answers."""

    allowed_hosts: tuple[str, ...] = LOOPBACK
    """Names that it may be called by, without a port."""
    cors: str = ""
    """The one origin whose scripts may ask it; "" is none."""
    requests_per_second: float = 50.0
    """For one token; 0 is no limit."""
    is_secure: bool = False
    """Whether browsers come by https."""
    calls_per_minute: float = 0.0
    """For one principal, however many tokens it has; 0 is no limit."""
    openid: Provider | None = None
    """Who says to the pages whose browser it is, besides tokens."""
    attempts_per_second: float = 10.0
    """For one address, without a valid token; no limit where tokens have none."""


def wants_chinese(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the language that a request asks for first is Chinese."""
    wanted = (value.strip().lower() for name, value in headers if name.lower() == b"accept-language")
    return any(value.startswith(b"zh") for value in wanted)


def problem(error: KnowHubError, scope: Scope) -> Response:
    """Return a problem in the language of the request."""
    in_chinese = wants_chinese(scope["headers"])
    headers = {"Content-Type": PROBLEM_TYPE, "Content-Language": "zh" if in_chinese else "en"}
    if error.retry_after_s:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s + 0.5)))
    if error.code == "unauthenticated":
        headers["WWW-Authenticate"] = "Bearer"
    if error.code in ("too-large", "timeout", "headers-too-large", "busy"):
        headers["Connection"] = "close"
    body = error.to_json(str(scope["path"]), in_chinese=in_chinese)
    return Response(json.dumps(body, ensure_ascii=False), error.status, headers)


class Gate:
    """An ASGI application around another one.

    Args:
        app: The guarded application.
        tokens: Who may come in.
        settings: See `Settings`.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, app: ASGIApp, tokens: Tokens, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self._tokens = tokens
        self._settings = settings
        self._shares = Shares(clock)
        self._arriving = 0  # bytes of bodies that are not whole yet
        self.registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self._seconds = Histogram("knowhub_request_seconds", "Time of an answer", labels, registry=self.registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        state: Json = scope.setdefault("state", {})
        request_id = state["request_id"] = f"{_PROCESS}-{next(_NUMBERS):x}"
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *self._headers(scope, message, request_id)]}
            await send(message)

        try:
            replay = await self._admit(scope, receive)
            await self.app(scope, replay, answer)
        except KnowHubError as error:
            if not status:
                await problem(error, scope)(scope, receive, answer)
        except (asyncio.CancelledError, GeneratorExit):
            status = status or 499
            raise
        except Exception as error:
            _log_error(error, request_id)
            if not status:
                hidden = KnowHubError("internal", f"the log says more under {request_id}")
                await problem(hidden, scope)(scope, receive, answer)
        finally:
            self._note(scope, status, time.perf_counter() - began, request_id)

    # -- coming in --

    def answers_to(self, scope: Scope) -> bool:
        """Return whether a request calls the server by one of its names, and by no other besides."""
        hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name.lower() == b"host"]
        return all(_without_port(host).lower() in self._settings.allowed_hosts for host in hosts or [""])

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        names = [name.lower() for name, _ in scope["headers"]]
        for key, name in _SINGLE.items():  # a proxy may have looked at the other one
            if names.count(key) > 1:
                raise KnowHubError("bad-request", f"a request has one {name} header")
        headers = dict(zip(names, (value for _, value in scope["headers"]), strict=True))
        size = sum(map(len, itertools.chain.from_iterable(scope["headers"])))
        if size + len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > HEAD_LIMIT:
            raise KnowHubError("headers-too-large", f"a request's head has at most {HEAD_LIMIT} bytes")
        if not self.answers_to(scope):
            raise KnowHubError("wrong-host", "start it with --allowed-host for each name that it may be called by")
        if self._tokens.files.is_remote:
            token = await run_in_threadpool(self._identify, scope, headers)
        else:  # a thread would take longer than the look at a file
            token = self._identify(scope, headers)
        scope["state"]["token"] = token
        if token is not None:
            self.count(token)
            return await self._read_body(scope, headers, receive, REQUEST_LIMIT)
        if scope["path"].startswith("/login/") or (scope["path"] == "/login" and scope["method"] == "POST"):
            self._count_stranger(scope)
        return await self._read_body(scope, headers, receive, STRANGER_LIMIT)

    def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Token | None:
        """Return the caller: for the API by its header alone, for pages by the cookie."""
        path = str(scope["path"])
        scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        token = self._tokens.find(text.strip()) if scheme.lower() == "bearer" else None
        if token is not None or path in _OPEN:
            return token
        if path.startswith(("/api/", "/mcp", "/metrics")):
            self._count_stranger(scope)
            raise KnowHubError("unauthenticated", "send `Authorization: Bearer kh_…`; `knowhub token` makes one")
        return self._tokens.find(Request(scope).cookies.get(self.cookie_name, ""), kind="session")

    @property
    def cookie_name(self) -> str:
        """The name of the cookie that pages know a browser by."""
        return "__Host-knowhub" if self._settings.is_secure else "knowhub"

    def count(self, token: Token) -> None:
        """Refuse more requests of one token than its share."""
        self._spend(token.asker, self._settings.requests_per_second)
        calls = self._settings.calls_per_minute
        self._spend(f"principal {token.principal}", calls / 60, calls)

    def _count_stranger(self, scope: Scope) -> None:
        """Refuse more attempts without a valid token than the share of an address."""
        if self._settings.requests_per_second > 0:
            self._spend(f"address {(scope.get('client') or ('',))[0]}", self._settings.attempts_per_second)

    def _spend(self, key: str, rate: float, at_once: float = 0.0) -> None:
        if rate <= 0:
            return
        at_once = at_once or rate * BURST
        if wait_s := self._shares.wait_s(key, rate, at_once):
            said = f"{rate:g} requests a second" if at_once != rate * 60 else f"{rate * 60:g} requests a minute"
            raise KnowHubError("too-many-requests", said, retry_after_s=wait_s)

    async def _read_body(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, limit: int) -> Receive:
        """Read the body, within its limit and in time; return what gives it out once more."""
        length = headers.get(b"content-length", b"")
        too_large = KnowHubError("too-large", f"a request has at most {limit} bytes")
        if length.isdigit() and int(length) > limit:
            raise too_large
        # From HTTP/2 on a body needs neither header.
        if length == b"0" or not (length or b"transfer-encoding" in headers or scope.get("http_version", "1") >= "2"):
            return receive
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(BODY_S):
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise KnowHubError("bad-request", "the connection was closed before the body came")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    self._arriving += len(parts[-1])
                    if size > limit:
                        raise too_large
                    if self._arriving > ARRIVING_LIMIT:
                        raise KnowHubError("busy", "too many bodies are arriving at once", retry_after_s=5.0)
                    more = bool(message.get("more_body"))
        except TimeoutError:
            raise KnowHubError("timeout", f"the body did not arrive within {BODY_S:g} s") from None
        finally:
            self._arriving -= size
        body: bytes | None = b"".join(parts)

        async def replay() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            message, body = {"type": "http.request", "body": body, "more_body": False}, None
            return message

        return replay

    # -- going out --

    def _headers(self, scope: Scope, message: Message, request_id: str) -> list[tuple[bytes, bytes]]:
        there = {name.lower() for name, _ in message["headers"]}
        added = [(b"x-request-id", request_id.encode()), *_ALWAYS]
        if scope["path"] != "/style.css":
            added.append((b"cache-control", b"no-store"))
        return [(name, value) for name, value in added if name not in there]

    def _note(self, scope: Scope, status: int, took_s: float, request_id: str) -> None:
        route = str(getattr(scope.get("route"), "path", "")) or "-"
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self._seconds.labels(method, route, str(status)).observe(took_s)
        if not _log.isEnabledFor(logging.INFO):
            return
        token = scope["state"].get("token")
        line = {"time": round(time.time(), 3), "request_id": request_id, "method": method, "route": route}
        line |= {"status": status, "ms": round(took_s * 1000, 2), "principal": token.principal if token else ""}
        _log.info(json.dumps(line, ensure_ascii=False))


_PROCESS, _NUMBERS = secrets.token_hex(4), itertools.count(1)  # no call of the system for each request
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


@lru_cache(maxsize=64)  # nearly all requests have one of a few
def _without_port(host: str) -> str:
    name, bracket, rest = host.partition("]") if host.startswith("[") else ("", "", host)
    before, colon, port = rest.partition(":")
    return f"{name}{bracket}{before}" if not colon or port.isdecimal() else ""


def _log_error(error: BaseException, request_id: str) -> None:
    """Log where something failed, not what was said: a message may hold what a request brought."""
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
    line = {"request_id": request_id, "error": type(error).__name__, "at": places}
    _errors.error(json.dumps(line))
