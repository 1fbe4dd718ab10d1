"""How the tree finds its modules; what they do is tested in `test_methods`, `test_at` and `tests/finding`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from Agent import keyword_tree


def test_a_copied_file_says_what_it_needs(tmp_path: Path) -> None:
    shutil.copy(keyword_tree.__file__, tmp_path)
    code = "from keyword_tree import *\ntree = KeywordTree('data')\nprint(str(tree) == repr(tree))\n"
    code += "for call in (lambda: tree.At(1), tree.Verify, tree.TreeMetrics, tree.Reorganize):\n"
    code += "    try:\n        call()\n    except KeywordTreeError as error:\n        print(error)\n"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    modules = ("past", "inspection", "inspection", "reorganize")
    needs = [f"this needs store/{module}.py beside this file, both in one package" for module in modules]
    assert run.stdout.splitlines() == ["True", *needs]
