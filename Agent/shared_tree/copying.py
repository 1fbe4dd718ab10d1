"""Copy a log from a folder into the tables and back: the lines are the same, byte for byte."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..keyword_tree import LOG_NAME, DuplicateIdError, InvalidInputError, KeywordTree, StoreError
from ..store.backup import make_file
from . import port
from .reading import Reader
from .rows import Batch, UnansweredError
from .tables import PostgresRows

__all__ = ["copy_in", "copy_out"]

_BATCH = 256 * 1024  # bytes of lines that go into one row


def copy_in(rows: PostgresRows, folder: str | os.PathLike[str], tree_id: str) -> int:
    """Make a tree of a folder's log; see `SharedLog.copy_in`."""
    path = Path(folder) / LOG_NAME
    if not path.is_file():
        raise InvalidInputError(f"there is no {LOG_NAME} in {port.shorten(os.fspath(folder))}")
    with KeywordTree(os.fspath(folder)) as tree:  # which cuts a torn end, or refuses
        newest = max((change.seq for change in tree.History(limit=1)), default=0)
    chain = port.Chain(tree_id)
    with path.open("rb") as file:
        try:
            is_new = rows.create(tree_id, port.new_id(), _batches(file, chain))
        except UnansweredError as error:
            raise StoreError(str(error), outcome_unknown=True) from None
    if not is_new:
        raise DuplicateIdError(tree_id)
    if chain.seq < newest:
        port.raise_corrupt(tree_id, chain.seq, f"the copy ends there, though the folder goes on to operation {newest}")
    return chain.seq


def _batches(file: IO[bytes], chain: port.Chain) -> Iterator[Batch]:
    held, size, after, first = list[bytes](), 0, 0, True
    for line in file:
        if not line.strip() or not line.endswith(b"\n"):
            break  # the space at the end that the next line will take
        seq, crc = chain.seq, chain.crc  # before this line
        chain.take(line, 0, port.no_records())
        if first:
            after, first = chain.seq - 1, False
        elif size + len(line) > _BATCH:
            yield Batch(after, seq, crc, b"".join(held), "", size)
            held, size, after = [], 0, seq
        held.append(line)
        size += len(line)
    if held:
        pieces = port.new_id() if size > 4 * _BATCH else ""
        yield Batch(after, chain.seq, chain.crc, b"".join(held), pieces, size)


def copy_out(rows: PostgresRows, tree_id: str, folder: str | os.PathLike[str]) -> int:
    """Make a folder of a tree's log; see `SharedLog.copy_out`."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInputError(f"{port.shorten(os.fspath(folder))} is there already, and not empty")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = target / f"{LOG_NAME}.new"
    try:
        with Reader(rows, tree_id, from_state=False) as reader:
            with make_file(new) as file:
                for _, all_lines in reader.pages():
                    file.writelines(all_lines)
            seq = reader.seq
        new.rename(target / LOG_NAME)
    finally:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
    with KeywordTree(os.fspath(target)) as tree:  # which makes its names durable, and the other files
        problems = tree.Verify()
    if problems:
        raise StoreError(f"the copy in {port.shorten(os.fspath(folder))} is not sound: {problems[0]}")
    return seq
