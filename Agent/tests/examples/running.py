"""How an example is run: as a program of its own, from the project's root, with warnings as errors."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(name: str, *words: str, check: bool = True, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run an example of `examples/` to its end."""
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=check,
        timeout=60,
        env={"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error", **environment},
    )
