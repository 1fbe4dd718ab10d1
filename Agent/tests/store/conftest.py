"""What tests of the store share."""

import pytest

from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """Let every tree that is opened work on a disk in memory."""
    inside.set_limits(monkeypatch, padding=inside.padding(2048))
    return Door(monkeypatch)
