"""What tests of faults share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door

pytest.register_assert_rewrite(*(f"Agent.tests.store.faults.{name}" for name in ("worlds", "sagas", "survivors")))

from Agent.tests.store.faults.worlds import STORM, Step, Traps, step  # noqa: E402


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """Let every tree work on a disk in memory."""
    # Small, so that a short workload crosses every border that a long one would.
    inside.set_limits(
        monkeypatch, checkpoint_operations=6, checkpoint_bytes=20_000, chunk_bytes=1500, padding=inside.padding(2048)
    )
    return Door(monkeypatch)


@pytest.fixture
def tally() -> Iterator[Counter[str]]:
    """Count what was tried, and print it in a storm."""
    counts: Counter[str] = Counter()
    yield counts
    if STORM:
        print("\n" + "\n".join(f"{count:>12,} {what}" for what, count in sorted(counts.items())))


@pytest.fixture
def traps(door: Door) -> Traps:
    """Give a world in which `a` has the tree open, with one keyword."""
    traps = Traps(door)
    traps.world.run([Step("a", "open"), step("a", "first")])
    return traps
