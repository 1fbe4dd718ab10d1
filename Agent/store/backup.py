"""Copy a memory into a new folder, whole and consistent, while this and other processes go on writing.

A snapshot fixes how far the log goes; that many bytes of it are copied, and the logs of `history/`. The copy is opened
and verified before it gets its name, so what is called a backup has been read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..keyword_tree import (
    HISTORY,
    LOG_NAME,
    SNAPSHOT_NAME,
    SNAPSHOTS,
    InvalidInputError,
    KeywordTree,
    StoreCorruptError,
    _Files,
)
from .addresses import refuse_address

__all__ = ["backup"]


def backup(tree: KeywordTree, folder: str | os.PathLike[str]) -> int:
    """Copy a tree's log and history into a new folder; return how many keywords the copy holds.

    Args:
        tree: an open tree that lies in a folder.
        folder: where to; must not be there, or be empty. It is made for its owner alone, and opens as any tree does.

    Raises:
        InvalidInputError: the folder is not empty, or the tree does not lie in a folder.
        StoreCorruptError: the copied bytes are damaged; no folder is made.

    Cost: reads the log and the history twice, the copy's rows once; writers wait for the snapshot alone.
    """
    source = Path(tree.data_dir)
    with new_folder(folder) as unfinished:
        if not (source / LOG_NAME).is_file():
            raise InvalidInputError(f"only what lies in a folder is backed up so: {tree.data_dir!r}")
        kept = source / SNAPSHOTS / tree.Snapshot()
        try:
            (unfinished / HISTORY).mkdir(0o700)
            length = json.loads((kept / SNAPSHOT_NAME).read_bytes())["log"]["length"]
            copy_file(kept / LOG_NAME, unfinished / LOG_NAME, length)
            for path in (source / HISTORY).glob("*"):
                copy_file(path, unfinished / HISTORY / path.name, path.stat().st_size)
        finally:
            shutil.rmtree(kept)
        with KeywordTree(str(unfinished)) as copied:
            if problems := copied.Verify():
                raise StoreCorruptError(f"the copy of {tree.data_dir}", 0, "; ".join(problems))
            return len(copied)


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a folder that gets its name at the end of the block: neither an error nor a kill leaves half of it.

    Raises:
        InvalidInputError: there is something in it already.
    """
    refuse_address(folder, "folder")
    target = Path(folder).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInputError(f"this is no new and no empty folder: {os.fspath(folder)!r}")
    unfinished = Path(f"{target}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(0o700, parents=True)
        unfinished.chmod(0o700)
        yield unfinished
        unfinished.replace(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _Files().SyncFolder(str(target.parent))


def copy_file(source: Path, target: Path, length: int) -> None:
    """Copy the first bytes of a file, durably, for its owner alone."""
    with source.open("rb") as read, make_file(target) as written:
        while length and (chunk := read.read(min(length, 1 << 20))):
            written.write(chunk)
            length -= len(chunk)


@contextlib.contextmanager
def make_file(path: Path) -> Iterator[BinaryIO]:
    """Make a file, for its owner alone, that is on the disk when the block ends."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
