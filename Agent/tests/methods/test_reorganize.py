"""The one file, copied alone: all that the class promises works."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from Agent import keyword_tree

CODE = """
from keyword_tree import *
tree = KeywordTree("data")
tea = tree.CreateKeyword("tea", "root").id
tree.CreateKeyword("Tea", "root")
tree.CreateInfo("All about tea")
assert len(tree.At(2)) == 1
assert tree.Verify() == []
assert tree.TreeMetrics()["keywords"] == 2
plan = tree.Reorganize()
assert [step["action"] for step in plan["steps"]] == ["merge"], plan
tree.Undo(tree.ApplyReorganizePlan(plan))
assert "'tea'" in str(tree) and [node.name for node in tree] == ["tea", "Tea"]
print(tree.Search("about tea").status.value)
"""


def test_a_copied_file_needs_no_other(tmp_path: Path) -> None:
    shutil.copy(keyword_tree.__file__, tmp_path)
    run = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (run.returncode, run.stdout) == (0, "not_found\n"), run.stderr
