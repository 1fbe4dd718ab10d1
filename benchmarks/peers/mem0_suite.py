"""mem0ai: one program on its `Memory` and on ours, call by call; its own tests look into its insides.

It has dependencies of its own, so it is not installed beside ours: `make peers` puts it into `.venv/mem0`, and the
environment variable KEYWORD_TREE_MEM0 names another folder.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .fetching import ROOT, CannotFetchError

SITE = Path(os.environ.get("KEYWORD_TREE_MEM0", ROOT / ".venv" / "mem0"))
SCRIPT = Path(__file__).with_name("mem0_script.py")


def run_script(kind: str, path: Path) -> list[list[Any]]:
    """Return what the program reports of one of the two."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), kind, folder],
            env={**os.environ, "PYTHONPATH": str(path)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise CannotFetchError(f"{kind} cannot run: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> bool:
    """Run both, print what came of it, and tell whether they say the same."""
    if not (SITE / "mem0").is_dir():
        raise CannotFetchError(f"mem0ai is not in {SITE}: `make peers` puts it there")
    theirs, ours = run_script("mem0", SITE), run_script("ours", ROOT)
    same = sum(one == other for one, other in zip(theirs, ours, strict=True))
    print(f"the same program on mem0ai and on ours: {same} of {len(theirs)} calls come to the same")
    for one, other in zip(theirs, ours, strict=True):
        if one != other:
            print(f"  mem0ai: {json.dumps(one, ensure_ascii=False)}\n  ours:   {json.dumps(other, ensure_ascii=False)}")
    return same == len(theirs)
