"""Run tests that were written for folders over another log: `pytest -p Agent.tests.shared.over …`.

Each `KeywordTree(folder)` opens the tree that has the folder's path for its name, in a log in memory, or in the
PostgreSQL that KEYWORD_TREE_OVER names. Tests that look at the folder's files fail, of course: they are about these.
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from typing import Any

import pytest

from ... import keyword_tree as core
from ...shared_tree.shared_log import SharedLog
from .memory_log import MemoryLog

_make = core.KeywordTree.__init__
_logs: dict[str, Any] = defaultdict(MemoryLog)


@functools.wraps(_make)
def _open(self: core.KeywordTree, data_dir: Any = "./data/keyword_tree", *arguments: Any, **options: Any) -> None:
    if isinstance(data_dir, (str, os.PathLike)) and os.fspath(data_dir) and "store" not in options:
        options["store"] = _log().tree(os.path.abspath(os.fspath(data_dir))[-200:])
    _make(self, data_dir, *arguments, **options)


def _log() -> Any:
    dsn = os.environ.get("KEYWORD_TREE_OVER", "")
    if dsn and dsn not in _logs:
        _logs[dsn] = SharedLog(dsn)
        _logs[dsn].setup()
    return _logs[dsn]


@pytest.fixture(autouse=True)
def _over_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.KeywordTree, "__init__", _open)
