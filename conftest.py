"""What every test of this project shares: sessions in documents run in an empty folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _sessions_write_elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = tmp_path_factory.mktemp("session")
        monkeypatch.chdir(folder)
