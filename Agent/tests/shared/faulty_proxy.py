"""A network that fails: a proxy before a server, which loses, delays and delivers late what a test asks for.

What a client sends is a request, what comes back an answer; both are judged a chunk at a time:

    pass           hand it on
    lose           close the connection instead: of an answer, what it answers was done
    delay SECONDS  hand it on so much later, after all before it; what follows sets out meanwhile, as in a long line
    late SECONDS   of a request: close the client's side now, hand it on to the server later
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

__all__ = ["PASS", "Fault", "FaultyProxy", "delay", "late", "lose"]


class Fault(NamedTuple):
    """What happens to a chunk."""

    kind: str
    seconds: float = 0.0


PASS = Fault("pass")


def lose() -> Fault:
    """Return the fault that closes the connection."""
    return Fault("lose")


def delay(seconds: float) -> Fault:
    """Return the fault that hands on later."""
    return Fault("delay", seconds)


def late(seconds: float) -> Fault:
    """Return the fault that hands on when the client has gone."""
    return Fault("late", seconds)


Judge = Callable[[bytes], Fault]


def _pass(_: bytes) -> Fault:
    return PASS


class FaultyProxy:
    """Listens on a port of its own as long as the block.

    Attributes:
        port: on 127.0.0.1.
        on_connect: judges a connection, before it is made; gets nothing.
        on_request: judges what clients send.
        on_answer: judges what comes back.
        target: the port that it leads to; may be changed, and holds for connections made from then on.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.on_connect: Judge = _pass
        self.on_request: Judge = _pass
        self.on_answer: Judge = _pass
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faulty proxy", daemon=True)
        self._thread.start()
        self._is_ready.wait(10)

    def heal(self) -> None:
        """Let everything pass."""
        self.on_connect = self.on_request = self.on_answer = _pass

    def cut(self) -> None:
        """Close all connections that are open."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def _abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def close(self) -> None:
        """Stop listening, and close all."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._abort_all()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            fault = self.on_connect(b"")
            await asyncio.sleep(fault.seconds)
            if fault.kind == "lose":
                return
            with contextlib.suppress(OSError, asyncio.CancelledError):
                to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target)
                self._writers.add(to_writer)
                try:
                    there = self._carry(reader, to_writer, writer, True)
                    await asyncio.gather(there, self._carry(to_reader, writer, to_writer, False))
                finally:
                    self._writers.discard(to_writer)
                    to_writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter, is_request: bool
    ) -> None:
        """Carry chunks one way until one side ends; then the other ends, too."""
        underway: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        handing_on = asyncio.ensure_future(self._hand_on(underway, writer))
        try:
            while chunk := await reader.read(1 << 16):
                fault = (self.on_request if is_request else self.on_answer)(chunk)
                if fault.kind in ("pass", "delay"):
                    underway.put_nowait((self._loop.time() + fault.seconds, chunk))
                    continue
                if fault.kind == "late":
                    back.transport.abort()
                await asyncio.sleep(fault.seconds)
                if fault.kind == "late":
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(1)  # the server carries it out, and finds no client to answer
                break
            await underway.join()
        except OSError:
            pass
        finally:
            handing_on.cancel()
            back.transport.abort()
            writer.transport.abort()

    async def _hand_on(self, underway: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, chunk = await underway.get()
            if (left := due - self._loop.time()) > 0:
                await asyncio.sleep(left)
            with contextlib.suppress(OSError):
                if not writer.is_closing():
                    writer.write(chunk)
                    await writer.drain()
            underway.task_done()
