"""The example of two machines runs as it stands, and loses nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from Agent.tests.shared.own_server import find_programs

pytest.importorskip("langgraph.graph")

EXAMPLE = Path(__file__).parents[3].joinpath("examples", "two_machines.py")


@pytest.mark.skipif(find_programs() is None, reason="PostgreSQL is not installed (no initdb)")
def test_runs_as_it_stands(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "4"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 doubled; Verify finds nothing wrong" in done.stdout.splitlines()[-1]
    assert done.stderr == ""


def test_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import Agent.tests.shared.own_server as own; own.find_programs = lambda: None\n"
    program += "import runpy; runpy.run_path('examples/two_machines.py', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=EXAMPLE.parents[1], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.strip() == "PostgreSQL is not installed (no initdb): apt-get install postgresql, or the like"
