"""What the tests of this package share: a server that really runs, on a free port of this machine."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from Agent.knowhub.application import Application, create_app
from Agent.knowhub.gate import Settings
from Agent.knowhub.hub import KnowHub
from Agent.knowhub.records import RIGHTS, KnowHubError
from Agent.knowhub.serving import Connection

__all__ = ["Served", "done", "refused", "running", "serve"]

RATE = 1e6  # requests a second: tests are many


class Served:
    """A running server, and clients of it."""

    def __init__(self, hub: KnowHub, app: Application, port: int) -> None:
        self.hub = hub
        self.app = app
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._clients: list[httpx.Client] = []

    def token(self, principal: str = "ada", rights: Any = RIGHTS, scopes: Any = ("*",)) -> str:
        """Return the text of a new token."""
        return self.hub.tokens.make(principal, rights, scopes)[0]

    def client(self, principal: str = "ada", rights: Any = RIGHTS, scopes: Any = ("*",)) -> httpx.Client:
        """Return a client with a token of its own."""
        return self.anonymous({"Authorization": f"Bearer {self.token(principal, rights, scopes)}"})

    def anonymous(self, headers: dict[str, str] | None = None) -> httpx.Client:
        """Return a client that says no more than its headers."""
        # As a browser's forms have it.
        made = httpx.Client(
            base_url=self.url, headers={"Origin": self.url, **(headers or {})}, timeout=30.0, trust_env=False
        )
        self._clients.append(made)
        return made

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients:
            client.close()


def refused(code: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> KnowHubError:
    """Return the refusal of a call, which has this code."""
    with pytest.raises(KnowHubError) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code, caught.value.detail
    return caught.value


def done(answer: httpx.Response) -> Any:
    """Return what a call that succeeded answered."""
    assert answer.is_success, (answer.status_code, answer.text)
    return answer.json()


@contextlib.contextmanager
def serve(hub: KnowHub, prepare: Any = None, **settings: Any) -> Iterator[Served]:
    """Run a hub's server in a thread while the block runs.

    Args:
        hub: What is served; it stays open.
        prepare: Called with the application before it starts: adds pages, say.
        settings: See `Settings`.
    """
    app = create_app(hub, Settings(**{"requests_per_second": RATE, "attempts_per_second": RATE, **settings}))
    if prepare is not None:
        prepare(app)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", ws="none", timeout_graceful_shutdown=5, http=Connection
    )
    with running(config) as port:
        served = Served(hub, app, port)
        try:
            yield served
        finally:
            served.close()


@contextlib.contextmanager
def running(config: uvicorn.Config) -> Iterator[int]:
    """Run a server in a thread while the block runs; gives its port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        end = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive(), "the server ended"
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.01)
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
