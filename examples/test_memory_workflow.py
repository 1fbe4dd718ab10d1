"""The example runs as it stands."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).with_name("memory_workflow.py")


def test_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=EXAMPLE.parent.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=60,
        env={"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error"},
    )

    for line in ("Episode", "Pattern", "Skill"):
        assert f"{line} validated successfully" in done.stdout
    assert "Data ready for storage" in done.stdout
    assert "Recalls of the skill: 1" in done.stdout
    assert "ProceduralSkill at TypeScript" in done.stdout
    assert "Now: 服务器搬到了杭州。" in done.stdout
    assert "Before: 服务器在上海。" in done.stdout
    assert "Left: 3 of 4\nUndone: 4 memories\nBob knows: []" in done.stdout
