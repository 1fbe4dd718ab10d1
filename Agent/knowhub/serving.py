"""What a server runs with besides its application: `/mcp`, and connections with deadlines.

A connection whose head does not come in time, or that does not read its answer, is closed.
"""

import asyncio
import contextlib
from importlib.metadata import version
from typing import Any

from .application import Application
from .gate import Receive, Scope, Send

try:
    from starlette.concurrency import run_in_threadpool
    from starlette.routing import Route
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install '.[knowhub]' in its repository") from error

__all__ = ["HEAD_S", "WRITE_S", "Connection", "add_mcp"]

HEAD_S = 20.0
"""Seconds that a request's head may take to arrive, from the connection's beginning or from its first byte."""


WRITE_S = 30.0
"""Seconds that a reader may let its answer wait; all of it that waits is in memory."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, whose only deadline is between two requests, with one for each head and for readers."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Write no more until what waits was read, and wait for that so long."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def data_received(self, data: bytes) -> None:
        """Take bytes; where they begin a head, its time begins."""
        super().data_received(data)
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()

    def on_headers_complete(self) -> None:
        """Go on without a deadline: the body has one of its own."""
        self._stop()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Mcp:
    """`/mcp`: importing the SDK takes as long as all else of a start, so the first call does it."""

    def __init__(self, application: Application) -> None:
        self._application, self._lock = application, asyncio.Lock()
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        async with self._lock:
            if self._app is None:
                self._app, manager = await run_in_threadpool(self._make)
                is_up = asyncio.Event()
                self._application.tasks.append(asyncio.create_task(_hold(manager.run(), is_up)))
                await is_up.wait()
        await self._app(scope, receive, send)

    def _make(self) -> tuple[Any, Any]:
        from .mcp_server import make_http_app

        return make_http_app(self._application)


async def _hold(entered: contextlib.AbstractAsyncContextManager[None], is_up: asyncio.Event) -> None:
    """Keep a context open until the task is cancelled; it must be left by the task that entered it."""
    try:
        async with entered:
            is_up.set()
            await asyncio.Event().wait()
    finally:  # also where it cannot be entered: else the first call would wait for ever
        is_up.set()


def add_mcp(application: Application) -> None:
    """Add `/mcp` to a server: streamable HTTP, without sessions, so that any worker can answer.

    Raises:
        ImportError: The extra `[knowhub-mcp]` is missing.
    """
    if not version("mcp").startswith("2."):
        raise ImportError("KnowHub's MCP server needs its extra: pip install '.[knowhub-mcp]'")
    # The SDK's own middleware identifies the caller; the gate has let in only whom it knows.
    application.api.router.routes.append(Route("/mcp", _Mcp(application), include_in_schema=False))
