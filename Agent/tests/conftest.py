"""Fixtures that several folders share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.keyword_tree import KeywordTree
from Agent.tests.support import inside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the place of a store that is not made yet."""
    return tmp_path / "store"


@pytest.fixture
def tree(folder: Path) -> Iterator[KeywordTree]:
    """Give an empty tree."""
    with KeywordTree(str(folder)) as tree:
        yield tree


@pytest.fixture
def own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let texts be found by their own words alone: a test of something else says tea, and means no coffee."""
    inside.without_thesaurus(monkeypatch)


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let syncs do nothing: what they are good for is shown in `store`, elsewhere they would only take time."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Let threads change places as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
