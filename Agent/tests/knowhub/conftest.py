"""What the tests of KnowHub share: no key and token of a person, and a hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from Agent.knowhub.hub import KnowHub
    from Agent.tests.knowhub.support import Served


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a person's own token and master key out of it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("KNOWHUB_KEY", "KNOWHUB_KEY_FILE", "KNOWHUB_URL", "KNOWHUB_TOKEN", "KNOWHUB_SCOPES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub(tmp_path: Path) -> "Iterator[KnowHub]":
    """Open a hub of its own for each test."""
    from Agent.knowhub.hub import KnowHub

    with KnowHub(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def served(hub: "KnowHub") -> "Iterator[Served]":
    """Serve it."""
    from Agent.tests.knowhub.support import serve

    with serve(hub) as served:
        yield served
