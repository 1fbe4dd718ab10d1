"""How the tree finds its modules; what `At` opens is tested in `tests/methods/test_at.py`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from Agent import keyword_tree
from Agent.past import lines_until


def test_a_copied_file_says_what_it_needs(tmp_path: Path) -> None:
    shutil.copy(keyword_tree.__file__, tmp_path)
    code = "from keyword_tree import *\ntree = KeywordTree('data')\nprint(str(tree) == repr(tree))\n"
    code += "for call in (lambda: tree.At(1), tree.Verify, tree.TreeMetrics, tree.Reorganize):\n"
    code += "    try:\n        call()\n    except KeywordTreeError as error:\n        print(error)\n"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    modules = ("past", "inspection", "inspection", "reorganize")
    needs = [f"this needs {module}.py beside this file, both in one package" for module in modules]
    assert run.stdout.splitlines() == ["True", *needs]


class TestLinesUntil:
    """Of an old log (1 to 3) and the one after its compaction (4 to 6, of which 4 and 5 are the state)."""

    LINES = tuple(
        (keyword_tree.LogLine(b"%08d" % seq, seq, prev, seq - 1, op, None), b"%d" % seq)
        for seq, prev, op in (
            (6, b"00000005", "create_keyword"),
            (5, b"00000004", "state"),
            (4, b"00000000", "state"),
            (3, b"00000002", "create_keyword"),
            (2, b"00000001", "create_keyword"),
            (1, b"00000000", "create_store"),
        )
    )

    @pytest.mark.parametrize(("at", "wanted"), [(6, b"456"), (5, b"45"), (4, b"45"), (3, b"123"), (1, b"1"), (0, b"")])
    def test_begin_where_a_log_begins(self, at: int, wanted: bytes) -> None:
        assert b"".join(lines_until(self.LINES, at)) == wanted

    def test_are_none_where_the_older_log_is_gone(self) -> None:
        assert lines_until(self.LINES[:3], 3) == []
