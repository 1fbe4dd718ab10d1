"""Fixtures that several tests of memories share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.memory.eviction import DAY_S
from Agent.memory.store import MemoryStore
from Agent.tests.support.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    """Give a clock that the test turns."""
    return Clock(1000 * DAY_S)


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[MemoryStore]:
    """Give Ada's memory, empty."""
    with MemoryStore(tmp_path, user="ada", clock=clock) as store:
        yield store
