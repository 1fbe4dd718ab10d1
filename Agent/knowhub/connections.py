"""Connections with a deadline: one that does not send a request's head in time is closed, so that none are used up."""

import asyncio

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install '.[knowhub]' in its repository") from error

__all__ = ["HEAD_S", "Connection"]

HEAD_S = 20.0
"""Seconds that a request's head may take to arrive, from the connection's beginning or from its first byte."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, which has a deadline between two requests only, with one for the head of each."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        super().connection_lost(exc)

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
