"""The example of two machines runs as it stands, and loses nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from Agent.tests.examples.running import ROOT, try_to_run
from Agent.tests.shared import own_server

pytest.importorskip("langgraph.graph")

EXAMPLE = ROOT / "examples" / "two_machines.py"


@pytest.mark.skipif(own_server.find_programs() is None, reason="PostgreSQL is not installed (no initdb)")
def test_runs_as_it_stands(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "4"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 doubled; Verify finds nothing wrong" in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_server, "find_programs", lambda: None)
    done = try_to_run("two_machines.py")

    assert done.returncode == 1
    assert done.stderr.strip() == "PostgreSQL is not installed (no initdb): apt-get install postgresql, or the like"
