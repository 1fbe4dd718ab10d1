"""The example runs as it stands, and forwards everything that the tree can do."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree

EXAMPLE = Path(__file__).parents[3].joinpath("examples", "weave_agent.py")


def test_runs_as_a_program() -> None:
    # From the root of the project, so that the package is found even where it is not installed.
    done = subprocess.run(
        [sys.executable, "-c", "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", str(EXAMPLE)],
        cwd=EXAMPLE.parent.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=60,
        env={"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "error"},
    )

    assert "'food/tea': 饮食 / 茶 (path): ['喜欢龙井，不加糖。']" in done.stdout
    assert "苏州园林 is at 旅行 / 苏州园林" in done.stdout
    assert "'weather': nothing" in done.stdout


def test_forwards_every_public_method(tmp_path: Path) -> None:
    memory_class: Any = runpy.run_path(str(EXAMPLE))["LongTermMemory"]
    with memory_class(KeywordTree(str(tmp_path / "tree"))) as memory:
        for name, method in inspect.getmembers(KeywordTree, inspect.isfunction):
            if not name.startswith("_"):
                ours = list(inspect.signature(getattr(memory, name)).parameters)
                theirs = list(inspect.signature(method).parameters)[1:]
                assert ours == theirs[: len(ours)], name
