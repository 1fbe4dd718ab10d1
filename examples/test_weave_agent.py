"""The example runs as it stands, and forwards everything that the tree can do."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import KeywordTree

EXAMPLE = Path(__file__).with_name("weave_agent.py")


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
    assert "苏州园林 stands at 旅行 / 苏州园林" in done.stdout
    assert "'weather': nothing" in done.stdout


def public_methods(owner: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


@pytest.fixture(scope="module")
def memory_class() -> Any:
    return runpy.run_path(str(EXAMPLE))["LongTermMemory"]


def test_forwards_every_public_method(memory_class: Any) -> None:
    assert public_methods(KeywordTree).keys() == public_methods(memory_class).keys()


def test_has_the_same_arguments_and_defaults(memory_class: Any) -> None:
    trees = public_methods(KeywordTree)
    for name, signature in public_methods(memory_class).items():
        ours = [(parameter.name, parameter.default) for parameter in signature.parameters.values()]
        theirs = [(parameter.name, parameter.default) for parameter in trees[name].parameters.values()]
        assert ours == theirs, name
