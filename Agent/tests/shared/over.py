"""Run tests that were written for folders over another log: `pytest -p Agent.tests.shared.over …`.

Each `KeywordTree(folder)` opens the tree that has the folder's path for its name, in a log in memory, or in the
PostgreSQL that KEYWORD_TREE_OVER names. Tests that look at the folder's files, at the disk or at other processes are
about these, and are deselected: of the others none may fail.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
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


# In a test's own lines, in those of a fixture that it asks for, or of a function of its module that it calls.
_ABOUT_FILES = re.compile(
    r"jsonl|iterdir|glob\(|(read|write)_(bytes|text)|exists\(|unlink|rmtree|copytree|chmod|Popen|subprocess|fork|"
    r"readonly|data_dir|indexes|disk|f(data)?sync\b|/proc/|Child\(|shutil|KeyboardInterrupt|"
    r"\*states"  # a folder's compaction begins the log with lines of state; elsewhere the log stays as it is
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are about files."""
    about_files = [item for item in items if _is_about_files(item)]
    config.hook.pytest_deselected(items=about_files)
    items[:] = [item for item in items if item not in about_files]


def _is_about_files(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    if function is None:  # a session in a docstring
        return True
    named = {*getattr(item, "fixturenames", ()), *function.__code__.co_names} - {"monkeypatch", "request", "tmp_path"}
    helpers = [inspect.unwrap(vars(item.module)[name]) for name in named if name in vars(item.module)]
    own = [each for each in helpers if getattr(each, "__module__", "") == item.module.__name__]
    return any(_ABOUT_FILES.search(inspect.getsource(each)) for each in [function, *own] if inspect.isroutine(each))


@pytest.fixture(autouse=True)
def _over_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.KeywordTree, "__init__", _open)
