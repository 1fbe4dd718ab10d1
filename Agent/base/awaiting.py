"""The asynchronous form of a class's methods: each runs in a thread.

>>> class Tea:
...     def brew(self, minutes):
...         return f"brewed for {minutes} minutes"
>>> asyncio.run(awaited("AsyncTea", Tea, "brew", Tea)(3))
'brewed for 3 minutes'
>>> awaited("AsyncTea", Tea, "boil", Tea)
Traceback (most recent call last):
AttributeError: AsyncTea has no 'boil'
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

__all__ = ["awaited"]


def awaited(
    owner: str,
    form: type,
    name: str,
    target: Callable[[], Any],
    run: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine function for a public method of a synchronous class, for `__getattr__` of its twin.

    Args:
        owner: The twin's name, for the error.
        form: The synchronous class.
        name: Of the method.
        target: Returns the object that has it; called in the thread.
        run: Awaits a call in a thread.

    Raises:
        AttributeError: The class has no public method of this name.
    """
    if name.startswith("_") or not callable(method := getattr(form, name, None)):
        raise AttributeError(f"{owner} has no {name!r}")

    @functools.wraps(method)
    async def call(*arguments: Any, **named: Any) -> Any:
        return await run(lambda: getattr(target(), name)(*arguments, **named))

    return call
