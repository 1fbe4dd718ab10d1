"""`AsyncContextEngineService`: the same door for asyncio; each call runs in a thread, and the loop stays free.

>>> import asyncio, tempfile
>>> from keyword_tree.context_engine import RequestContext
>>> async def main(folder):
...     async with AsyncContextEngineService(folder) as engine:
...         ada = RequestContext("acme", "ada", "helper", "s1")
...         await engine.commit_session(ada, [{"role": "user", "content": "I love jazz."}])
...         return (await engine.search_memory(ada, "jazz")).blocks[0].content_excerpt
>>> with tempfile.TemporaryDirectory() as folder:
...     asyncio.run(main(folder))
'I love jazz.'
"""

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .context_engine_service import ContextEngineService

__all__ = ["AsyncContextEngineService"]

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(
    method: Callable[Concatenate[ContextEngineService, P], T],
) -> Callable[Concatenate["AsyncContextEngineService", P], Coroutine[Any, Any, T]]:
    @functools.wraps(method)
    async def call(self: "AsyncContextEngineService", /, *arguments: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.engine, *arguments, **named)

    return call


class AsyncContextEngineService:
    """A `ContextEngineService`, which is `engine`, made with the same arguments, whose methods are coroutines.

    A call that is cancelled goes on in its thread: what it writes is written whole.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, **options: Any) -> None:
        self.engine = ContextEngineService(folder, **options)

    commit_session = _in_thread(ContextEngineService.commit_session)
    search_memory = _in_thread(ContextEngineService.search_memory)
    read_memory = _in_thread(ContextEngineService.read_memory)
    get_node = _in_thread(ContextEngineService.get_node)
    list_children = _in_thread(ContextEngineService.list_children)
    remember = _in_thread(ContextEngineService.remember)
    extract_again = _in_thread(ContextEngineService.extract_again)
    brief = _in_thread(ContextEngineService.brief)
    confirm = _in_thread(ContextEngineService.confirm)
    write_node = _in_thread(ContextEngineService.write_node)
    move_node = _in_thread(ContextEngineService.move_node)
    delete_node = _in_thread(ContextEngineService.delete_node)
    history = _in_thread(ContextEngineService.history)
    undo = _in_thread(ContextEngineService.undo)
    adopt = _in_thread(ContextEngineService.adopt)
    adopt_all = _in_thread(ContextEngineService.adopt_all)
    forget = _in_thread(ContextEngineService.forget)
    status = _in_thread(ContextEngineService.status)
    verify = _in_thread(ContextEngineService.verify)
    prune = _in_thread(ContextEngineService.prune)
    repair = _in_thread(ContextEngineService.repair)
    work = _in_thread(ContextEngineService.work)
    close = _in_thread(ContextEngineService.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
