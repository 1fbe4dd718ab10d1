"""The example runs as it stands, and prints no secret."""

import pytest

from Agent.tests.examples.running import run


def test_runs_as_it_stands() -> None:
    pytest.importorskip("fastapi")
    done = run("knowhub_agent.py")

    assert "📚 相关知识 (0 条)" in done.stdout
    assert "📚 相关知识 (1 条)" in done.stdout
    assert "undetected_chromedriver" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
    assert "score 4, helpful 0, harmful 0" in done.stdout
