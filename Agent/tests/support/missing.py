"""What is said where a package is not installed, without a process of its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest


@contextmanager
def without(package: str, *modules: str) -> Iterator[None]:
    """Hide a package, and forget modules of ours that have imported it."""
    hidden = {name: None for name in sys.modules if name == package or name.startswith(f"{package}.")}
    with mock.patch.dict(sys.modules, {**hidden, package: None}):
        for module in modules:
            sys.modules.pop(module, None)
        yield


def error_without(package: str, module: str) -> str:
    """Return what importing a module raises where a package is missing."""
    with without(package, module), pytest.raises(ImportError) as raised:
        importlib.import_module(module)
    return str(raised.value)
