"""How an agent's tools reach a server: over the wire, in this process, or as the caller connected to an MCP server."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.language import language_of
from ..base.text import typed_names

try:
    import httpx
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's tools need their extra: pip install '.[knowhub-client]' in its repository") from error

TIMEOUT_S = 30.0
DEFAULT_URL = "http://127.0.0.1:8790"
DEFAULT_SCOPE = "org:cybertogether"
ATTEMPTS = 2
"""A call that broke off is sent once more, under the same key: it is done once."""


class CallError(Exception):
    """A refusal of the server, or the reason why it could not be asked.

    Attributes:
        code: As `schemas.PROBLEMS` has it; "" where there was no answer.
    """

    def __init__(self, detail: str, code: str = "") -> None:
        super().__init__(f"{code}: {detail}" if code else detail)
        self.code = code


@dataclass(frozen=True)
class Connection:
    """Where calls go, and as whom."""

    make_transport: Callable[[], httpx.AsyncBaseTransport]
    """The carrier of one call."""
    url: str
    """The server."""
    token: str = ""
    """The caller; "" where the transport itself says it."""
    scopes: tuple[str, ...] = ()
    """Default scopes by kind of record; none leaves them to the hub."""


_connection: ContextVar[Connection | None] = ContextVar("knowhub_connection", default=None)


@contextlib.contextmanager
def holding(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Let a variable hold a value within the block."""
    mark = variable.set(value)
    try:
        yield
    finally:
        variable.reset(mark)


def connected(connection: Connection) -> contextlib.AbstractContextManager[None]:
    """Let the tools of a block ask through a connection, whatever the environment says."""
    return holding(_connection, connection)


async def _connect() -> Connection:
    """Return the connection of the block, else the one that the environment names."""
    given = _connection.get()
    if given is not None:
        return given
    named = os.environ.get("KNOWHUB_SCOPES") or ""
    scopes = tuple(typed_names(named))
    url = os.environ.get("KNOWHUB_URL") or DEFAULT_URL
    if url.startswith("file:"):
        app, token = await asyncio.to_thread(_local, url.removeprefix("file:"))
        return Connection(lambda: httpx.ASGITransport(app), "http://localhost", token, scopes)
    is_sealed = url.startswith("https:")  # reading certificates takes 20 ms
    return Connection(lambda: httpx.AsyncHTTPTransport(verify=is_sealed), url, _own_token(), scopes)


async def default_scopes() -> list[str]:
    """Return default scopes by kind of record: those of KNOWHUB_SCOPES, else the organisation's.

    A hub without one gets that of the tools' document: `org:cybertogether`.
    """
    connection = await _connect()
    if connection.scopes:
        return list(connection.scopes)
    me = await request("GET", "/api/me")
    return list(me["default_scopes"]) if me["organisation"] else [DEFAULT_SCOPE]


_locals: dict[str, tuple[Any, Any, str]] = {}  # folder → (hub, application, token)


def close_local() -> None:
    """Close the hubs that `file:` opened in this process."""
    while _locals:
        _locals.popitem()[1][0].close()


def _local(folder: str) -> tuple[Any, str]:
    """Return the application of a hub in this process, and a token for it."""
    place = str(Path(folder).absolute())
    if place not in _locals:
        from .application import create_app
        from .gate import Settings
        from .hub import KnowHub
        from .tokens import agents_token

        hub = KnowHub(place)
        text = os.environ.get("KNOWHUB_TOKEN") or agents_token(hub.tokens)[0]
        _locals[place] = (hub, create_app(hub, Settings(requests_per_second=1e6)), text)
    return _locals[place][1], _locals[place][2]


def _own_token() -> str:
    if given := os.environ.get("KNOWHUB_TOKEN"):
        return given
    with contextlib.suppress(RuntimeError):  # no home, no file
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "knowhub")
        for name in ("agents-token", "token"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                return (base / name).read_text(encoding="ascii").strip()
    return ""


async def request(
    method: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    body: Any = None,
    if_match: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """Ask the server, and return its JSON; a call that broke off is sent once more under the same key.

    Raises:
        CallError: It refused, or cannot be reached.
    """
    connection = await _connect()
    headers = {"Idempotency-Key": uuid.uuid4().hex, "Accept-Language": language_of(os.environ)}
    if connection.token:
        headers["Authorization"] = f"Bearer {connection.token}"
    if if_match:
        headers["If-Match"] = if_match
    given = {name: value for name, value in (params or {}).items() if value is not None}
    transport, url = connection.make_transport(), connection.url
    async with httpx.AsyncClient(transport=transport, base_url=url, timeout=timeout_s) as client:
        for left in reversed(range(ATTEMPTS)):
            try:
                answer = await client.request(method, path, params=given, json=body, headers=headers)
                break
            except (httpx.HTTPError, OSError) as error:
                if not left or isinstance(error, (httpx.ConnectError, httpx.TimeoutException)):
                    raise CallError(f"KnowHub cannot be asked at {url} ({type(error).__name__})") from error
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.is_success and found is not None:
        return found
    if isinstance(found, dict) and "detail" in found:
        raise CallError(str(found["detail"]), str(found.get("type", "")).removeprefix("/problems/"))
    raise CallError(f"{answer.status_code}: the server gave no answer that can be read")
