"""Look at a whole tree: what is wrong in it (`Verify`), how large it is (`TreeMetrics`), and a drawing (`print`).

`KeywordTree` calls these; nothing here writes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..keyword_tree import (
    _ROOT_ID,
    HISTORY,
    LOG_NAME,
    InfoKeywordLink,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    ReadRecord,
    StoreCorruptError,
    StoreError,
    _FileStore,
    _Shorten,
    _State,
)

__all__ = ["draw", "find_file_problems", "find_problems", "measure"]

_DRAWN = 10  # children of a keyword that a drawing shows


def find_problems(store: _FileStore, state: _State) -> Iterator[str]:
    """Rebuild everything from the log; yield what differs from `state`, and what breaks an invariant, in sentences."""
    fresh = _State(state.normalizer)
    try:
        find_in = find_file_problems if isinstance(store, _FileStore) else type(store).FindProblems
        problems = list(find_in(store, fresh))
    except StoreCorruptError as error:
        yield str(error)
        return
    yield from problems
    yield from _compare(state, fresh, store.ReadRow)
    reached = set(fresh.Under([_ROOT_ID]))
    for id, level in dict(state.levels).items():
        if id not in reached or level != fresh.LevelOf(id):
            yield f"levels: {_Shorten(id)} is not on level {level}"
    for held in (*fresh.nodes.values(), *fresh.infos.values(), *fresh.Links()):
        try:
            record = ReadRecord(store.ReadRow(held))
        except (StoreError, ValueError) as error:
            yield str(error)
            continue
        is_whole = True
        if isinstance(record, KeywordNode):
            is_whole = record.id in reached
        elif isinstance(record, InfoKeywordLink):
            is_whole = record.info_id in fresh.infos and record.keyword_id in fresh.nodes
        if not is_whole:
            yield f"{record!r} refers to what is not there"


def find_file_problems(store: _FileStore, fresh: _State) -> Iterator[str]:
    """Read a folder's log again into `fresh`; yield what is wrong with its files.

    Raises:
        StoreCorruptError: an operation that was read cannot be read any more.
    """
    with store.OpenAgain() as reader:
        for records in reader.Read():
            fresh.Apply(records)
    if reader.seq != store.seq:
        raise StoreCorruptError(LOG_NAME, 0, f"operation {reader.seq + 1} cannot be read")
    fresh.next_ordinal = max(fresh.next_ordinal, reader.next_ordinal)
    if not store.is_readonly:  # beside a writer they may lag its log for a moment
        for name in store.projections.FindUnfit(reader.projected):
            yield f"{name} does not fit the log, or cannot be read; opening corrects it"
    for name in store.files.List(store.data_dir):
        if re.match("cut_tail-(nodes|infos|links)-", name):
            yield f"{name} holds rows that the log does not have; repair looks at it, then take it away"
    for name in store.SnapshotNames():
        try:
            with store.OpenSnapshot(name):
                pass
        except NotFoundError:  # a folder that was renamed
            continue
        except StoreError as error:
            yield str(error)
    with contextlib.closing(store.ReadBack(with_history=True)) as lines:
        for line, raw in lines:
            if line is None:
                yield f"{HISTORY}: a line is missing, or cannot be read: {_Shorten(raw)}"


def _compare(state: _State, fresh: _State, read: Callable[[Any], bytes]) -> Iterator[str]:
    """Yield where the tables in memory differ from those made of the log."""
    if fresh.next_ordinal != state.next_ordinal:
        yield f"the next ordinal is {state.next_ordinal} in memory, {fresh.next_ordinal} on the disk"
    if state.tokens is not None:
        for token in {token for name in fresh.names for token in state.normalizer(name)}:
            if list(fresh.ByTokens([token])) != list(state.ByTokens([token])):
                yield f"tokens: {_Shorten(token)} leads elsewhere in memory than on the disk"
    for name in (*state.MULTIMAPS, *state.DICTS):
        mine, other = getattr(state, name), getattr(fresh, name)
        for key in dict.fromkeys((*mine, *other)):
            try:
                if name in state.MULTIMAPS:
                    is_same = list(mine.Get(key)) == list(other.Get(key))
                elif name == "infos":
                    is_same = key in mine and key in other and read(mine[key]) == read(other[key])
                else:
                    is_same = mine.get(key) == other.get(key)
            except StoreError as error:
                yield str(error)
                continue
            if not is_same:
                yield f"{name}: {_Shorten(key)} is, or leads to, another in memory than on the disk"


def measure(state: _State) -> dict[str, Any]:
    """Return the counts and the shape of a tree; see `KeywordTree.TreeMetrics`."""
    sizes = {id: len(children) for id in state.children if (children := state.children.Get(id))}
    fullest = max(sizes, key=sizes.__getitem__, default=_ROOT_ID)
    depth, level = -1, [_ROOT_ID]
    while level:
        depth += 1
        level = [child for id in level for child in state.children.Get(id)]
    return {
        "keywords": len(state.nodes) - 1,
        "infos": len(state.infos),
        "links": sum(1 for _ in state.Links()),
        "leaves": len(state.nodes) - len(sizes.keys() | {_ROOT_ID}),
        "depth": depth,
        "fan_out": sizes.get(fullest, 0),
        "fan_out_id": fullest,
        "same_names": sum(len(state.names.Get(name)) > 1 for name in state.names),
        "unlinked_infos": sum(not state.by_info.Get(id) for id in state.infos),
    }


def draw(tree: KeywordTree, depth: int = 2) -> str:
    """Return a drawing of the top of a tree: `depth` levels, at most ten names of each keyword."""
    return "\n".join([repr(tree), *_branches(tree, _ROOT_ID, "", depth)])


def _branches(tree: KeywordTree, id: str, indent: str, depth: int) -> Iterator[str]:
    children = tree.GetChildren(id)
    shown = children[:_DRAWN] if depth else []
    for child in shown:
        is_last = child is children[-1]
        yield f"{indent}{'└── ' if is_last else '├── '}{_Shorten(child.name)}"
        yield from _branches(tree, child.id, indent + ("    " if is_last else "│   "), depth - 1)
    if len(children) > len(shown):
        yield f"{indent}└── … {len(children) - len(shown):,} more"
