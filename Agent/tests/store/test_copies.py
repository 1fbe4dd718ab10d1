"""Copies of a folder in use: they open, and say what they lack."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from Agent.keyword_tree import KeywordTree


@contextmanager
def writer(folder: Path) -> Iterator[None]:
    """Let another process write as fast as it can."""
    code = (
        "import sys; from Agent.keyword_tree import KeywordTree\n"
        f"tree = KeywordTree({str(folder)!r}); print('ready', flush=True)\n"
        "for n in range(1_000_000):\n"
        "    node = tree.CreateKeyword(f'知识 {n}', 'root'); tree.CreateInfo('x' * (n % 5000), '', [node.id])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class TestACopyOfALivingFolder:
    def test_opens_whenever_it_is_made(self, tmp_path: Path) -> None:
        with writer(tmp_path / "tree"):
            for n in range(6):
                subprocess.run(["cp", "-r", tmp_path / "tree", tmp_path / f"copy{n}"], check=True)

        counts = []
        for n in range(6):
            with KeywordTree(str(tmp_path / f"copy{n}")) as copy:
                counts.append(len(copy))
        assert counts == sorted(counts)


class TestASnapshotThatCopies:
    def test_is_consistent_while_another_process_writes(self, tmp_path: Path) -> None:
        with writer(tmp_path / "tree"), KeywordTree(str(tmp_path / "tree")) as tree:
            names = [tree.Snapshot(copy=True) for _ in range(3)]

        with KeywordTree(str(tmp_path / "tree")) as tree:
            counts = []
            for name in names:
                tree.Restore(name)
                counts.append(len(tree))
            assert counts == sorted(counts)
            assert tree.Verify() == []
