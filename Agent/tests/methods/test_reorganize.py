"""How the tree finds the module; what it proposes is tested in `tests/methods` and `tests/finding`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from Agent import keyword_tree


def test_a_copied_file_says_what_it_needs(tmp_path: Path) -> None:
    shutil.copy(keyword_tree.__file__, tmp_path)
    code = "from keyword_tree import *\ntree = KeywordTree('data')\ntry:\n    tree.Reorganize()\n"
    code += "except KeywordTreeError as error:\n    print(error)\n"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "this needs reorganize.py beside this file, both in one package"
