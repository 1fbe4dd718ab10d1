"""What a server runs: the application of a worker with its pages and `/mcp`, and connections with deadlines.

A connection whose head does not come in time, or that does not read its answer, is closed.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import sys

from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .application import Application, create_app
from .gate import Settings
from .hub import KnowHub
from .oidc import Provider
from .pages import add_pages
from .routing import make_models
from .services.store import Quota

SETTINGS = "KNOWHUB_SERVE"
"""The variable that tells the workers of one server how to answer."""


def make_app() -> Application:
    """Return the application of a worker, of the settings in the environment."""
    _log_lines()
    _return_memory()
    stored = json.loads(os.environ[SETTINGS])
    shapes = stored["allow_secret_shapes"]
    quota = Quota(stored["quota_entries"], stored["quota_bytes"])
    models, meaning = make_models(stored["models"]), stored["meaning"]
    judges = stored["judge"]
    hub = KnowHub(stored["data"], models=models, judge=judges, meaning=meaning, allow_secret_shapes=shapes, quota=quota)
    hosts, calls = tuple(stored["hosts"]), stored["quota_calls"]
    issuer, client = stored["openid_issuer"], stored["openid_client"]
    openid = Provider(issuer, client, os.environ.get("KNOWHUB_OPENID_SECRET", "")) if issuer else None
    settings = Settings(hosts, stored["cors"], stored["rate"], stored["is_secure"], calls, openid)
    app = create_app(hub, settings, closes_hub=True)
    add_pages(app)
    with contextlib.suppress(ImportError):  # the extra `[knowhub-mcp]`
        add_mcp(app)
    gc.freeze()  # what a hub holds stays: to look through 30,000 entries for garbage stops everything for 0.2 s
    return app


def _log_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in {"keyword_tree.knowhub", __package__, "uvicorn.error"}:  # the first two are one where it is installed
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING if name == "uvicorn.error" else logging.INFO)
        logger.propagate = False


def _return_memory() -> None:
    """Let glibc give memory back as it is freed: one arena for all threads, which take turns anyway.

    Else each of 40 threads keeps what its largest search took: of 30,000 entries 100 MB more.
    """
    with contextlib.suppress(AttributeError):  # another libc
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 64 * 1024), (_TRIM_THRESHOLD, 128 * 1024)):
            mallopt(name, value)


_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1

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
        self._stalled = self._stalled or self.loop.call_later(WRITE_S, self.transport.abort)

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


def add_mcp(application: Application) -> None:
    """Add `/mcp` to a server: streamable HTTP, without sessions, so that any worker can answer.

    Raises:
        ImportError: The extra `[knowhub-mcp]` is missing.
    """
    from .mcp_server import make_http_app

    app, manager = make_http_app(application)
    application.contexts.append(manager.run)
    application.api.routes.append(Route("/mcp", app))
