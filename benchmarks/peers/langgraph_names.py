"""What LangGraph's own tests of its stores import, with a tree behind it; copied beside them."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self

from Agent.adapters.langgraph import KeywordTreeStore
from Agent.keyword_tree import KeywordTree


class InMemoryStore(KeywordTreeStore):
    """One that goes with the process."""

    def __init__(self, *, index: Any = None) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        super().__init__(KeywordTree(self._folder.name), index=index)


class SqliteStore(KeywordTreeStore):
    """One that is opened by a path, or goes with the block."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, path: str, *, index: Any = None, ttl: Any = None) -> Iterator[Self]:
        """Open the folder beside the file that they name."""
        with _folder(path) as folder, KeywordTree(folder) as tree:
            store = cls(tree, index=index, ttl=_as_sqlite(ttl))
            yield store
            store.stop_ttl_sweeper()


class AsyncSqliteStore(KeywordTreeStore):
    """The same, of which all is awaited."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, path: str, *, index: Any = None, ttl: Any = None) -> AsyncIterator[Self]:
        """Open the folder beside the file that they name."""
        with _folder(path) as folder, KeywordTree(folder) as tree:
            store = cls(tree, index=index, ttl=_as_sqlite(ttl))
            yield store
            KeywordTreeStore.stop_ttl_sweeper(store)

    async def setup(self) -> None:  # type: ignore[override]
        """Do nothing."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        """Do as the synchronous one."""
        return super().sweep_ttl()

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Any:  # type: ignore[override]
        """Do as the synchronous one."""
        return super().start_ttl_sweeper(sweep_interval_minutes)

    async def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:  # type: ignore[override]
        """Do as the synchronous one."""
        return bool(super().stop_ttl_sweeper(timeout))


def _as_sqlite(ttl: Any) -> Any:
    """Return the configuration with SqliteStore's default: reading refreshes only where that is said."""
    return None if ttl is None else {"refresh_on_read": False, **ttl}


@contextmanager
def _folder(path: str) -> Iterator[str]:
    if path == ":memory:":
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    else:
        yield str(Path(f"{path}.tree"))
