"""Which operation `undo` and `redo` mean, decided from the log alone.

Going back is an operation, too, and is called `undo 12` in the log; going forward is `redo 12`. The newest of the two
decides whether 12 is in force. The parts of a large import are one: it has the number of its last part.

    what was asked      what it means
    undo                the newest operation in force that is neither of the two
    undo 12             that operation, if it is in force
    redo                what was undone last, if nothing else was written since
    redo 12             that operation, if it was undone
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..formats.records import import_id
from ..keyword_tree import Change, ConflictError, KeywordTree

__all__ = ["Step", "blocker", "last_taken_back", "named", "steps"]

_CALLED = re.compile(r"(undo|redo) ([0-9]+)")

_BEGINNINGS = ("create_store", "state")
"""What begins a log, and cannot be undone."""

_PAGES = (50, 500, 5_000, 50_000, 2**62)
"""Operations read at a time, until what is looked for is among them."""


class Step(NamedTuple):
    """An operation that `undo` and `redo` can be asked for: its parts, the newest first, and what became of it."""

    parts: list[Change]
    taken_back_by: Change | None
    """None where it is in force."""

    @property
    def number(self) -> int:
        """What it is asked for by."""
        return self.parts[0].seq

    def has(self, name: str) -> bool:
        """Tell whether this is the number or the id of it, or of a part of it."""
        return any(name in (str(part.seq), part.operation_id) for part in self.parts)


def steps(tree: KeywordTree) -> Iterator[Step]:
    """Yield what can be undone, newest first.

    Cost: reads the log backwards, as far as it is asked to.
    """
    verdicts: dict[int, Change] = {}
    waiting: dict[str, Step] = {}
    for change in _changes(tree):
        called = _CALLED.fullmatch(change.op)
        if called:
            verdicts.setdefault(int(called[2]), change)
        if called or change.op in _BEGINNINGS:
            continue
        key = import_id(change) or change.operation_id
        if key in waiting:
            waiting[key].parts.append(change)
        else:
            verdict = verdicts.get(change.seq)
            waiting[key] = Step([change], verdict if verdict is not None and verdict.op.startswith("undo") else None)
        while waiting and (first := next(iter(waiting))) == waiting[first].parts[-1].operation_id:
            yield waiting.pop(first)
    yield from waiting.values()  # the first part of an import is no longer in the log


def last_taken_back(tree: KeywordTree) -> Step | None:
    """Return what was undone last; None where something else was written since, or nothing was undone."""
    seen: set[str] = set()
    for change in _changes(tree):
        called = _CALLED.fullmatch(change.op)
        if called is None:
            return None
        if called[2] not in seen and called[1] == "undo":
            return next((step for step in steps(tree) if step.has(called[2])), None)
        seen.add(called[2])
    return None


def named(tree: KeywordTree, name: str) -> tuple[Step, bool] | None:
    """Return the step with this number or id, and whether it was named by what took it back.

    An undo or redo of a step counts as the step.
    """
    for change in _changes(tree):
        if name in (str(change.seq), change.operation_id):
            if change.op in _BEGINNINGS:
                return Step([change], None), False
            called = _CALLED.fullmatch(change.op)
            wanted = called[2] if called else name
            found = next((step for step in steps(tree) if step.has(wanted)), None)
            return None if found is None else (found, called is not None and called[1] == "undo")
    return None


def _changes(tree: KeywordTree) -> Iterator[Change]:
    """Yield all operations, newest first, reading no more of them than are asked for."""
    known = 0
    for limit in _PAGES:
        changes = tree.History(limit=limit)
        yield from changes[known:]
        known = len(changes)
        if known < limit:
            return


def blocker(tree: KeywordTree, step: Step, error: ConflictError) -> Step | None:
    """Return the newest later operation in force that has written what prevents the undo of a step."""
    touched = Change(0, "", "", 0.0, [], list(error.records)).Ids()
    for later in steps(tree):
        if later.number <= step.number:
            return None
        if later.taken_back_by is None and any(part.Ids() & touched for part in later.parts):
            return later
    return None
