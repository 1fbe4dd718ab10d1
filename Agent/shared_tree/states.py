"""Keep states: all rows at one operation, so that opening need not read a long log.

A state is a function of the log, so anyone may write it, and twice does no harm. Nothing is lost with it.
"""

from __future__ import annotations

from ..keyword_tree import StoreError
from . import port
from .reading import Reader
from .rows import Mark, Rows

__all__ = ["is_due", "write_state"]

_LEAST = 256 * 1024  # bytes of lines that are read so quickly that no state is worth its room
_KEPT = 2  # states: one that is new, and one that may just be read


def is_due(rows: Rows, tree_id: str) -> bool:
    """Tell whether more was logged since the last state than it holds."""
    marks = rows.marks(tree_id)
    after, size = (marks[0].after, marks[0].size) if marks else (-1, 0)
    return rows.bytes_since(tree_id, after) > max(size, _LEAST)


def write_state(rows: Rows, tree_id: str, seq: int | None = None, *, is_full: bool = False) -> bool:
    """Write the state at an operation, or at the log's end; return False where there was one.

    Args:
        rows: where the log lies.
        tree_id: whose.
        seq: the operation; None is the last.
        is_full: whether long contents are to be in it, too: for a snapshot, that needs no log then.

    Cost: reads the newest state and the log behind it, and holds all of it in memory, with `is_full` long contents too.
    """
    there = rows.marks(tree_id)
    poor = [mark.seq for mark in there if not rows.is_whole(tree_id, mark.seq)]
    poor += [mark.seq for mark in there if is_full and mark.seq == seq and not mark.is_full]
    if seq is not None and any(mark.seq == seq for mark in there) and seq not in poor:
        return False
    state = port.new_state()
    with Reader(rows, tree_id, seq) as reader:
        with rows.still():
            for records in reader.load():
                state.Apply(records)
        if not reader.seq or (seq is not None and reader.seq != seq):
            raise StoreError(f"the log of the tree {port.shorten(tree_id)} has no operation {seq or 1}")
        at, next_ordinal = reader._at, max(state.next_ordinal, reader.next_ordinal)
        mark = Mark(at.seq, at.after, at.crc, next_ordinal, 0, 0, is_full)
        rows.drop_states(tree_id, poor)
        # All of it before the transaction begins, which must not wait for what is fetched.
        parts = list(port.read_state(state, reader.read_rows, is_full))
        is_new = rows.write_state(tree_id, mark, parts)
    if seq is None:
        rows.drop_states(tree_id, [old.seq for old in rows.marks(tree_id)[_KEPT:] if not old.is_full])
    return is_new
