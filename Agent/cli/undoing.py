"""Which operation `undo` and `redo` mean, decided from the log alone.

Going back is an operation, too, of which the log says what it undoes; going forward undoes that. So what is in force
follows from the log, whatever operations are called. The parts of a large import are one: it has the number of its last
part.

    what was asked      what it means
    undo                the newest operation in force that is no undo itself
    undo 12             that operation, if it is in force
    redo                what was undone last, if nothing else was written since
    redo 12             that operation, if it was undone
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..formats.loading import import_id, undone_by
from ..keyword_tree import Change, ConflictError, KeywordTree

__all__ = ["Step", "blocker", "last_taken_back", "named", "steps"]

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
    taken_back: dict[str, Change] = {}
    waiting: dict[str, Step] = {}
    for change in _changes(tree):
        if undone := undone_by(change):
            if change.operation_id not in taken_back:  # it is in force itself
                taken_back |= {id: change for id in undone if id not in taken_back}
            continue
        if change.op in _BEGINNINGS:
            continue
        key = import_id(change) or change.operation_id
        waiting.setdefault(key, Step([], taken_back.get(change.operation_id))).parts.append(change)
        while waiting and (first := next(iter(waiting))) == waiting[first].parts[-1].operation_id:
            yield waiting.pop(first)
    yield from waiting.values()  # the first part of an import is no longer in the log


def last_taken_back(tree: KeywordTree) -> Step | None:
    """Return what was undone last; None where something else was written since, or nothing was undone."""
    redone: set[str] = set()
    for change in _changes(tree):
        undone = undone_by(change)
        if not undone:
            return None
        if change.operation_id not in redone:
            step, is_undo = _follow(tree, change)
            if is_undo:
                return step
        redone.update(undone)
    return None


def named(tree: KeywordTree, name: str) -> tuple[Step, bool] | None:
    """Return the step with this number or id, and whether it was named by what took it back.

    An undo or redo of a step counts as the step.
    """
    change = next((change for change in _changes(tree) if name in (str(change.seq), change.operation_id)), None)
    if change is None:
        return None
    if change.op in _BEGINNINGS:
        return Step([change], None), False
    step, is_undo = _follow(tree, change)
    return None if step is None else (step, is_undo)


def _follow(tree: KeywordTree, change: Change) -> tuple[Step | None, bool]:
    """Return the step that an operation is, undoes or redoes, and whether it undoes it."""
    is_undo, wanted = False, change
    while undone := undone_by(wanted):
        found = next((each for each in _changes(tree) if each.operation_id in undone), None)
        if found is None:
            return None, False
        is_undo, wanted = not is_undo, found
    return next((step for step in steps(tree) if step.has(wanted.operation_id)), None), is_undo


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
