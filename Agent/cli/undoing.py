"""The commands that go back and forward, and the meaning of `undo` and `redo`, decided from the log alone.

Going back is an operation, too, of which the log says what it undoes; going forward undoes that. So what is in force
follows from the log, whatever operations are called. The parts of a large import are one: it has the number of its last
part.

    what was asked      what it means
    undo                the newest operation in force that is no undo itself
    undo 12             that operation, if it is in force; an undo, too
    redo                what was undone last, if nothing else was written since
    redo 12             that operation, if it was undone
"""

import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from ..base.language import count_of, parts, say
from ..formats.records import import_id
from ..keyword_tree import (
    Change,
    ConflictError,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
)
from ..store.backup import backup
from .program import command
from .screen import line, shorten, spell_row, table
from .session import RefusedError, Session, may_be_id

_BEGINNINGS = ("create_store", "state")
"""The operations that begin a log, and cannot be undone."""

_PAGES = (50, 500, 5_000, 50_000, 2**62)
"""Operations read at a time, until the wanted one is among them."""

NAMES_SHOWN = 3
"""Names shown of the records that an operation touched."""


class Step(NamedTuple):
    """An operation that `undo` and `redo` can be asked for."""

    parts: list[Change]
    """Its parts, the newest first."""
    taken_back_by: Change | None
    """None where it is in force."""
    undoes: list[str]
    """The ids of the operations that it undoes itself."""

    @property
    def number(self) -> int:
        """The number that it has for people."""
        return self.parts[0].seq


def steps(tree: KeywordTree) -> Iterator[Step]:
    """Yield the operations that can be undone, newest first.

    Cost: reads the log backwards, as far as it is asked to.
    """
    taken_back: dict[str, Change] = {}
    waiting: dict[str, Step] = {}
    for change in _changes(tree):
        id, undoes = change.operation_id, change.Undoes()
        for undone in undoes if id not in taken_back else ():  # it is in force itself
            taken_back.setdefault(undone, change)
        if change.op in _BEGINNINGS:
            continue
        waiting.setdefault(import_id(change) or id, Step([], taken_back.get(id), undoes)).parts.append(change)
        while waiting and (first := next(iter(waiting))) == waiting[first].parts[-1].operation_id:
            yield waiting.pop(first)
    yield from waiting.values()  # the first part of an import is no longer in the log


def find_step(tree: KeywordTree, name: str) -> Step:
    """Return the operation with this number or id."""
    for step in steps(tree):
        if any(name in (str(part.seq), part.operation_id) for part in step.parts):
            return step
    first = next((change for change in _changes(tree) if name in (str(change.seq), change.operation_id)), None)
    if first is not None:
        raise InvalidInputError(say("{} begins the log, and cannot be undone", first.op))
    raise NotFoundError("operation", name)


def last_taken_back(tree: KeywordTree) -> Step | None:
    """Return the last undone operation; None where something else was written since, or nothing was undone."""
    for step in steps(tree):
        if not step.undoes:
            return None
        if step.taken_back_by is None and _is_undo(tree, step):
            return find_step(tree, step.undoes[0])
    return None


def _is_undo(tree: KeywordTree, step: Step) -> bool:
    """Tell whether an operation undoes one that is no undo itself: what undoes an undo is a redo."""
    return bool(step.undoes) and not _is_undo(tree, find_step(tree, step.undoes[0]))


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
    """Return the newest later operation in force that prevents the undo of a step."""
    touched = Change(0, "", "", 0.0, [], list(error.records)).Ids()
    for later in steps(tree):
        if later.number <= step.number:
            return None
        if not (later.taken_back_by or later.undoes) and any(part.Ids() & touched for part in later.parts):
            return later
    return None


# The commands


@command("history", "Undo")
@click.argument("keyword", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number shown.")
def history(session: Session, keyword: str | None, limit: int) -> None:
    """List what was done, newest first: everything, or to one keyword or info.

    The number in the first column is what `undo` takes.
    """
    with session.open() as tree:
        # An id counts even after a deletion: a deleted record has a history.
        has_own = keyword is None or (may_be_id(keyword) and bool(tree.History(keyword, 1)))
        changes = tree.History(keyword if keyword is None or has_own else session.find(tree, keyword).id, limit)
        rows = [(str(change.seq), local_time(change.timestamp), say_op(change), describe(change)) for change in changes]
        value = [
            {**spell_row(change), "before": spell_records(change.before), "after": spell_records(change.after)}
            for change in changes
        ]
        session.answer(value, table(rows, ("undo", say("when"), say("what"), say("of")), numbers=(0,)))


def local_time(timestamp: float) -> str:
    """Return a time as people here write it, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


def describe(change: Change) -> str:
    """Return the records that an operation touched: the first names and contents, and how many more.

    Records that it deleted or brought back come before those changed along with them, such as children that moved up.
    """
    old = {record.id: record for record in change.before if not isinstance(record, InfoKeywordLink)}
    records = [record for record in change.after if not isinstance(record, InfoKeywordLink)]
    if not records:
        return count_of(len(change.after), "link")
    turned = [record for record in records if record.id in old and record.deleted != old[record.id].deleted]
    shown = sorted(turned, key=lambda record: getattr(record, "level", sys.maxsize)) or records
    named = shown[:NAMES_SHOWN]
    names = [shorten(record.name if isinstance(record, KeywordNode) else record.content, 40) for record in named]
    return say(", ").join(names) + (say(" and {:,} more", len(shown) - len(named)) if len(shown) > len(named) else "")


def spell_records(records: list[Any]) -> list[dict[str, Any]]:
    """Return records as JSON has them, each with its kind."""
    kinds = {KeywordNode: "keyword", Info: "info", InfoKeywordLink: "link"}
    return [{"kind": kinds[type(record)], "deleted": record.deleted, **spell_row(record)} for record in records]


def say_op(change: Change) -> str:
    """Return the name of an operation in the chosen language: `undo 12` keeps its number."""
    name = "import" if import_id(change) else change.op  # without the id of the import that it is a part of
    verb, space, number = name.partition(" ")
    return f"{say(verb)}{space}{number}" if number.isdecimal() or not space else name


@command("undo", "Undo")
@click.argument("operation", required=False)
def undo(session: Session, operation: str | None) -> None:
    """Undo an OPERATION, named by its number or its id.

    Without one, the newest; again, the one before, and so on. `redo` goes the other way.
    """
    with session.open() as tree:
        in_force = (step for step in steps(tree) if not (step.taken_back_by or step.undoes))
        step = next(in_force, None) if operation is None else find_step(tree, operation)
        if step is None:
            raise NotFoundError("operation", "", say("nothing to undo"))
        take_back(session, tree, step)


@command("redo", "Undo")
@click.argument("operation", required=False)
def redo(session: Session, operation: str | None) -> None:
    """Redo an OPERATION that was undone; without one, the last.

    Once something else was written, the operation must be named.
    """
    with session.open() as tree:
        step = last_taken_back(tree) if operation is None else find_step(tree, operation)
        if step is None:
            raise InvalidInputError(say("nothing was undone since the last change: name the operation to redo"))
        bring_back(session, tree, step)


def take_back(session: Session, tree: KeywordTree, step: Step) -> None:
    """Undo all parts of a step, as one operation."""
    if step.taken_back_by is not None:
        raise InvalidInputError(say("{0} is undone already: keyword-tree redo {0}", step.number))
    try:
        with tree.Operation(f"undo {step.number}") as operation:
            for part in step.parts:
                tree.Undo(part.operation_id)
    except ConflictError as error:
        first = blocker(tree, step, error)
        if first is None:
            raise
        said = say("cannot undo {}: {} depends on it", step.number, first.number)
        raise RefusedError(said, next_step=session.command("undo", str(first.number))) from error
    report_step(session, tree, operation.id, "undone", "undone: {} {}, {}", step)


def bring_back(session: Session, tree: KeywordTree, step: Step) -> None:
    """Redo a step, by undoing its undo."""
    if step.taken_back_by is None:
        raise InvalidInputError(say("{} is not undone: nothing to redo", step.number))
    with tree.Operation(f"redo {step.number}") as operation:
        tree.Undo(step.taken_back_by.operation_id)
    report_step(session, tree, operation.id, "redone", "redone: {} {}, {}", step)


def report_step(session: Session, tree: KeywordTree, operation_id: str, done: str, text: str, step: Step) -> None:
    """Answer with the step, and whether it was undone or redone."""
    newest = step.parts[0]
    value = {done: {"seq": step.number, "operation_id": newest.operation_id, "parts": len(step.parts)}}
    more = say(" and {:,} more parts", len(step.parts) - 1) if len(step.parts) > 1 else ""
    session.report(tree, operation_id, value, text, str(step.number), say_op(newest), describe(newest) + more)


@command("backup", "Undo")
@click.argument("folder", type=click.Path())
def backup_into(session: Session, folder: str) -> None:
    """Copy the memory into a new FOLDER, whole, while others write."""
    with session.open() as tree:
        session.answer({"folder": folder, "keywords": backup(tree, folder)}, line(*parts("copied into {}", folder)))
