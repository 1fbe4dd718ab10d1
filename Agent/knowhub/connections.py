"""Connections with deadlines: one whose head does not come in time, or that does not read its answer, is closed."""

import asyncio

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install '.[knowhub]' in its repository") from error

__all__ = ["HEAD_S", "WRITE_S", "Connection"]

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
