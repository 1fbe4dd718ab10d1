"""The asynchronous twin of a class: the same methods as coroutines, each in a thread, and `async with`.

>>> class Tea:
...     def brew(self, minutes):
...         return f"brewed for {minutes} minutes"
>>> class AsyncTea(Twin, of=Tea):
...     pass
>>> asyncio.run(AsyncTea(Tea).brew(3))
'brewed for 3 minutes'
>>> [name for name in dir(AsyncTea) if not name.startswith("_")]
['brew', 'close']
"""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self

from ..keyword_tree import ClosedError

_Calls = Callable[..., Coroutine[Any, Any, Any]]


class Twin:
    """Base of a twin: has a coroutine for each public method of the class `of` that it does not define itself.

    Args:
        open_original: Returns the object whose methods are called. The first call opens it, in its thread.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> _Calls:
            raise AttributeError

    def __init__(self, open_original: Callable[[], Any]) -> None:
        self._open_original, self._opening = open_original, threading.Lock()
        self._opened: Any = None
        self._is_closed = False

    def __init_subclass__(cls, of: type) -> None:
        for name in dir(of):
            method = getattr(of, name)
            if callable(method) and not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, _awaited(method, name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {'what its first call opens' if self._opened is None else self._opened}>"

    async def __aenter__(self) -> Self:
        await self._in_thread(self._original)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the object, if it was opened, also by a call that was cancelled; no later call opens it."""
        await self._in_thread(self._close)

    def _close(self) -> None:
        with self._opening:
            self._is_closed = True
            if self._opened is not None:
                self._opened.close()

    def _original(self) -> Any:
        """Return the object whose methods are called; it may have to be opened first."""
        with self._opening:
            if self._opened is None:
                if self._is_closed:
                    raise ClosedError("it was closed before it was opened")
                self._opened = self._open_original()
            return self._opened

    def _in_thread(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.to_thread(call)


def _awaited(method: Callable[..., Any], name: str) -> _Calls:
    @functools.wraps(method)
    async def call(twin: Any, *arguments: Any, **named: Any) -> Any:
        return await twin._in_thread(lambda: getattr(twin._original(), name)(*arguments, **named))

    return call
