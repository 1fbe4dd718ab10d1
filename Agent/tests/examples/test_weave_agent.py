"""The example forwards everything that the tree can do."""

import inspect
import runpy
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordTree
from Agent.tests.examples.running import ROOT


def test_forwards_every_public_method(tmp_path: Path) -> None:
    memory_class: Any = runpy.run_path(str(ROOT / "examples/weave_agent.py"))["LongTermMemory"]
    with memory_class(KeywordTree(str(tmp_path / "tree"))) as memory:
        for name, method in inspect.getmembers(KeywordTree, inspect.isfunction):
            if not name.startswith("_"):
                ours = list(inspect.signature(getattr(memory, name)).parameters)
                theirs = list(inspect.signature(method).parameters)[1:]
                assert ours == theirs[: len(ours)], name
