"""What all tests share: Ctrl-C works, and sessions in documents run in an empty folder of their own."""

import signal
from pathlib import Path

import pytest

# A shell that starts a run in the background lets it ignore Ctrl-C, and so would each process that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _sessions_write_elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = tmp_path_factory.mktemp("session")
        monkeypatch.chdir(folder)
