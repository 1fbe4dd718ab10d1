"""What the engine's tests share: a store, a clock that the test turns."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.context_engine import ContextEngineService
from Agent.context_engine.fs.context_fs import ContextFS
from Agent.tests.support.clocks import Clock
from Agent.tests.support.plain_reader import open_engine


@pytest.fixture
def clock() -> Clock:
    """A clock that the test turns."""
    return Clock(1_790_000_000.0)


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[ContextFS]:
    """An empty main store."""
    made = ContextFS(tmp_path / "memory")
    yield made
    made.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ContextEngineService]:
    """An empty engine, without a model."""
    made = open_engine(tmp_path / "memory")
    yield made
    made.close()
