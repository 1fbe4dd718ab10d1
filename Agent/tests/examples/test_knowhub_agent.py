"""The example runs as it stands, and prints no secret."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_runs_as_it_stands() -> None:
    pytest.importorskip("fastapi")
    command = [sys.executable, str(ROOT / "examples/knowhub_agent.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )

    assert done.returncode == 0, done.stderr
    assert "📚 相关知识 (0 条)" in done.stdout
    assert "📚 相关知识 (1 条)" in done.stdout
    assert "undetected_chromedriver" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert "score 4, helpful 0, harmful 0" in done.stdout
