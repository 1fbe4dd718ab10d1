"""The commands that look after a memory: what was done, taking it back, snapshots, order, the store itself."""

import importlib.metadata
import json
import os
import platform
import re
import sqlite3
import sys
import time
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from ..base.language import count_of, parts, say
from ..formats.loading import import_id
from ..keyword_tree import (
    Change,
    ConflictError,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    KeywordTreeError,
    NotFoundError,
)
from ..store.backup import backup
from .program import DISTRIBUTION, command, version
from .screen import line, shorten, spell_row, table
from .session import (
    FOUND,
    KEYWORD,
    MODEL_VARIABLE,
    SAVE,
    STORE_PROBLEM,
    BlockedUndoError,
    NoStoreError,
    NothingLeftError,
    Session,
    may_be_id,
    path_of,
    user_files,
)
from .undoing import Step, blocker, last_taken_back, named, steps

__all__: list[str] = []


# Taking back


@command("history", "Undo")
@click.argument("keyword", type=KEYWORD, required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Operations shown.")
def history(session: Session, keyword: str | None, limit: int) -> None:
    """List what was done, newest first: everything, or to one keyword or info.

    The number in the first column is what `undo` takes.
    """
    with session.open() as tree:
        id = None
        if keyword is not None:  # an id counts even where it is gone: what was deleted has a history
            is_info = session.find_info(tree, keyword) is not None
            is_gone = not is_info and may_be_id(keyword) and not tree.GetKeyword(keyword) and tree.History(keyword, 1)
            id = keyword if is_info or is_gone else session.find(tree, keyword).id
        changes = tree.History(id, limit)
        rows = [
            (str(change.seq), local_time(change.timestamp), say_op(op_of(change)), describe(change))
            for change in changes
        ]
        value = [
            {**spell_row(change), "before": spell_records(change.before), "after": spell_records(change.after)}
            for change in changes
        ]
        session.answer(value, table(rows, ("undo", say("when"), say("what"), say("of")), numbers=(0,)))


def local_time(timestamp: float) -> str:
    """Return a time as people here write it, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


def describe(change: Change, shows_gone: bool = True) -> str:
    """Return what an operation touched: the first names, how many more, and whether it left them deleted.

    What it deleted or brought back comes before what was changed along with that: the children that moved up, say.
    """
    old = {record.id: record for record in change.before if not isinstance(record, InfoKeywordLink)}
    records = [record for record in change.after if not isinstance(record, InfoKeywordLink)]
    if not records:
        return count_of(len(change.after), "link")
    turned = [record for record in records if record.id in old and record.deleted != old[record.id].deleted]
    shown = sorted(turned, key=lambda record: getattr(record, "level", sys.maxsize)) or records
    names = [shorten(record.name if isinstance(record, KeywordNode) else record.content, 40) for record in shown[:3]]
    said = say(", ").join(names) + (say(" and {:,} more", len(shown) - 3) if len(shown) > 3 else "")
    first = shown[0]
    if change.op == "merge_keywords":
        others = [record.name for record in records if record.id == getattr(first, "merged_into", None)]
        return say("{} into {}", said, *others) if others else said
    if change.op in ("add_alias", "remove_alias") and isinstance(first, KeywordNode):
        return f"{said}  = {say(', ').join(set(first.aliases).symmetric_difference(old[first.id].aliases))}"
    if change.op == "delete_keyword" and len(shown) < len(records):
        said += say(" ({:,} under it moved up)", len(records) - len(shown))
    return said + (say(" (gone)") if shows_gone and all(record.deleted for record in shown) else "")


def spell_records(records: list[Any]) -> list[dict[str, Any]]:
    """Return records as JSON has them, each with its kind."""
    kinds = {KeywordNode: "keyword", Info: "info", InfoKeywordLink: "link"}
    return [{"kind": kinds[type(record)], "deleted": record.deleted, **spell_row(record)} for record in records]


@command("undo", "Undo")
@click.argument("operation", required=False)
def undo(session: Session, operation: str | None) -> None:
    """Undo an OPERATION, named by its number or its id.

    Without one, the newest; again, the one before, and so on. `redo` goes the other way.
    """
    with session.open() as tree:
        if operation is None:
            step = next((step for step in steps(tree) if step.taken_back_by is None), None)
            if step is None:
                raise NothingLeftError
        else:
            step, is_undo = find_step(tree, operation)
            if is_undo:
                bring_back(session, tree, step)
                return
        take_back(session, tree, step)


@command("redo", "Undo")
@click.argument("operation", required=False)
def redo(session: Session, operation: str | None) -> None:
    """Redo an OPERATION that was undone; without one, the last.

    Once something else was written, the operation must be named.
    """
    with session.open() as tree:
        step = last_taken_back(tree) if operation is None else find_step(tree, operation)[0]
        if step is None:
            raise InvalidInputError(say("nothing was undone since the last change: name the operation to redo"))
        bring_back(session, tree, step)


def find_step(tree: KeywordTree, name: str) -> tuple[Step, bool]:
    """Return the operation with this number or id, and whether it was named by what took it back."""
    found = named(tree, name)
    if found is None:
        raise NotFoundError("operation", name)
    return found


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
        raise BlockedUndoError(error, step.number, first.number) from error
    session.report(tree, operation.id, spell_step("undone", step), "undone: {} {}, {}", *name_step(step))


def bring_back(session: Session, tree: KeywordTree, step: Step) -> None:
    """Redo a step, by undoing what took it back."""
    if step.taken_back_by is None:
        raise InvalidInputError(say("{} is not undone: nothing to redo", step.number))
    with tree.Operation(f"redo {step.number}") as operation:
        tree.Undo(step.taken_back_by.operation_id)
    session.report(tree, operation.id, spell_step("redone", step), "redone: {} {}, {}", *name_step(step))


def spell_step(done: str, step: Step) -> dict[str, Any]:
    """Return a step as JSON has it, under what was done to it."""
    return {done: {"seq": step.number, "operation_id": step.parts[0].operation_id, "parts": len(step.parts)}}


def name_step(step: Step) -> tuple[str, str, str]:
    """Return an operation's number, what it is called and what it touched."""
    newest = step.parts[0]
    more = say(" and {:,} more parts", len(step.parts) - 1) if len(step.parts) > 1 else ""
    return str(step.number), say_op(op_of(newest)), describe(newest, shows_gone=False) + more


def op_of(change: Change) -> str:
    """Return what an operation is called, without the id of the import that it is a part of."""
    return "import" if import_id(change) else change.op


def say_op(op: str) -> str:
    """Return what an operation is called, in the chosen language: `undo 12` keeps its number."""
    verb, space, number = op.partition(" ")
    return f"{say(verb)}{space}{number}" if number.isdecimal() or not space else op


@command("snapshot", "Undo")
@click.option("--copy", is_flag=True, help="Make a backup of its own, that shares no bytes with the memory.")
@click.option("--list", "is_list", is_flag=True, help="List the snapshots there are instead.")
def snapshot(session: Session, copy: bool, is_list: bool) -> None:
    """Save the present state; its name is the time."""
    if is_list:
        with session.open():
            names = session.snapshots()
        session.answer({"snapshots": names}, *(line(name) for name in names or [say("there are none")]))
        return
    with session.open() as tree:
        name = tree.Snapshot(copy)
        session.answer({"snapshot": name}, line(*parts("kept as {}", name)))


@command("backup", "Undo")
@click.argument("folder", type=click.Path())
def backup_into(session: Session, folder: str) -> None:
    """Copy the memory into a new FOLDER, whole, while others write."""
    with session.open() as tree:
        count = backup(tree, folder)
        session.answer({"folder": folder, "keywords": count}, line(*parts("copied into {}", folder)))


@command("restore", "Undo")
@click.argument("name")
def restore(session: Session, name: str) -> None:
    """Go back to a snapshot, named by its NAME."""
    with session.open() as tree:
        known = session.snapshots()
        if name not in known:
            raise NotFoundError("snapshot", name, f"no snapshot has the name {name!r}: see snapshot --list")
        session.report(tree, tree.Restore(name), {"snapshot": name}, "restored {}", name)


# Caring


@command("verify", "Maintenance")
def verify(session: Session) -> int:
    """Compare every byte on disk with what it should be.

    Exit code 3 where something is wrong, or where opening the memory had to cut or repair something.
    """
    with session.open(reports=False) as tree:
        with session.waiting(say("verifying …")):
            problems = tree.Verify()
        metrics = tree.TreeMetrics()
        counts = (count_of(metrics[f"{noun}s"], noun) for noun in ("keyword", "info", "link"))
        recovery = list(tree.recovery)
        said = [line((say("recovered: "), "yellow"), sentence, keep_lines=True) for sentence in recovery]
        said += [line(problem, keep_lines=True) for problem in problems]
        if problems:
            said.append(line(say(SAVE), session.next_step(), keep_lines=True))
        if not problems:
            well = say("the rest is well") if recovery else say("all is well")
            said.append(line(well + say(": ") + say(", ").join(counts)))
        session.answer({"problems": problems, "recovery": recovery}, *said)
    return STORE_PROBLEM if problems or recovery else FOUND


@command("compact", "Maintenance")
@click.option(
    "--forget-history", is_flag=True, help="Remove every byte of what was deleted or replaced; this cannot be undone."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def compact(session: Session, forget_history: bool, yes: bool) -> None:
    """Compact the log to the present state."""
    with session.open() as tree:
        if forget_history and not yes:
            if session.as_json:
                raise click.UsageError(say("--json cannot ask for confirmation: add --yes"))
            session.confirm(say("History and everything that was deleted will be gone for ever. Go on?"))
        with session.waiting(say("compacting …")):
            said = tree.CompactStorage(keep_history=not forget_history)
        kept = said["snapshots"]
        note = (
            [line((say("these snapshots may hold what was deleted: ") + say(", ").join(kept), "yellow"))]
            if kept
            else []
        )
        session.answer(said, line(say("{:,} bytes became {:,}", said["bytes_before"], said["bytes_after"])), *note)


@command("repair", "Maintenance")
@click.argument("new", metavar="NEW_FOLDER", type=click.Path())
def repair(session: Session, new: str) -> int:
    """Save what a damaged memory holds into a NEW_FOLDER.

    The damaged one, named by --data, is not changed.  Exit code 3 where data could not be saved; 0 where it is only
    history that is missing.
    """
    from ..store.repair import repair as repair_store

    if session.is_shared:
        raise InvalidInputError(say("repair works on folders: copy the shared tree into one first"))
    session.refuse_nothing()
    with session.waiting(say("repairing …")), user_files():
        report = repair_store(session.data, new)
    value = {
        **{key: part for key, part in vars(report).items() if isinstance(part, str | int)},
        "losses": [vars(loss) for loss in report.losses],
    }
    session.answer(value, line(str(report), keep_lines=True))
    return FOUND if report.has_all_data else STORE_PROBLEM


DEVELOPERS = ("test", "check", "peers", "benchmarks")
"""Extras for those who change the project."""


def missing_of_extras() -> dict[str, list[str]]:
    """Return extra → the distributions that it needs and that are not installed; nothing for a copy of the source."""
    missing: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return missing
    for requirement in requirements:
        found = re.fullmatch(r"([\w.-]+)(?:\[.+?\])?[^;]*;.*extra == .([\w-]+).", requirement)
        if found is None or found[1] == DISTRIBUTION or found[2] in DEVELOPERS:
            continue
        absent = missing.setdefault(found[2], [])
        try:
            importlib.metadata.version(found[1])
        except importlib.metadata.PackageNotFoundError:
            absent.append(found[1])
    return missing


@command("doctor", "Maintenance", asks=True)
def doctor(session: Session) -> None:
    """Show what is installed, and which memory and model are used."""
    missing = missing_of_extras()
    has_memory, problems = True, list[str]()
    try:
        with session.open(reports=False) as tree:
            problems += tree.recovery
    except NoStoreError:
        has_memory = False
    except KeywordTreeError as error:
        problems.append(str(error))
    state = say("; ").join([say("there is one") if has_memory else say("none yet"), *problems])
    try:
        client = type(session.client()).__name__
    except (InvalidInputError, ImportError) as error:
        client = str(error)
    named = os.environ.get(MODEL_VARIABLE)
    if session.is_lexical and named and not session.model:
        client += say("  ({})", say("{} is set to {!r}, but no service is", MODEL_VARIABLE, named))
    value = {
        "version": version(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "data": session.shown,
        "has_memory": has_memory,
        "problems": problems,
        "model": client,
        "missing": {name: needs for name, needs in missing.items() if needs},
    }
    rows = [
        ("keyword-tree", version()),
        ("Python", platform.python_version()),
        ("SQLite", sqlite3.sqlite_version),
        (say("memory"), session.shown + say("  ({})", state)),
        (say("model"), client),
    ]
    for name, needs in missing.items():
        rows.append((f"[{name}]", say("missing: {}", say(", ").join(needs)) if needs else say("installed")))
    session.answer(value, table(rows))


@command("metrics", "Look")
def metrics(session: Session) -> None:
    """Show the size of the memory, in counts and bytes."""
    with session.open() as tree:
        said = tree.TreeMetrics()
        fullest = path_of(tree, said["fan_out_id"])
    notes = {
        "fan_out": say("children of {}", fullest),
        "depth": say("levels below the root"),
        "same_names": say("names that several keywords have"),
        "unlinked_infos": say("on no keyword: show --unlinked") if said["unlinked_infos"] else "",
    }
    rows = [
        (say(name.replace("_", " ")), f"{value:,}", line((notes.get(name, ""), "dim")))
        for name, value in said.items()
        if isinstance(value, int) and name not in ("descents", "model_calls", "names_shown")
    ]
    files = sorted(said["bytes_on_disk"].items(), key=lambda item: -item[1])
    rows += [(say("bytes of {}", name), f"{size:,}", Text()) for name, size in files if size]
    session.answer(said, table(rows, numbers=(1,)))


@command("reorganize", "Correct", asks=True)
@click.argument("keyword", type=KEYWORD, required=False)
@click.option("--apply", is_flag=True, help="Carry the plan out, as one operation.")
@click.option(
    "--plan",
    type=click.File(encoding="utf-8"),
    help="A plan of an earlier --json, perhaps cut down; - is standard input.",
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Steps shown.")
def reorganize(session: Session, keyword: str | None, apply: bool, plan: Any, limit: int) -> None:
    r"""Plan a better order under a keyword.

    The plan is shown, and with --apply carried out.

    \b
    keyword-tree reorganize --json > plan.json      # look at it, take steps out
    keyword-tree reorganize --plan plan.json --apply
    """
    with session.open(client=session.client()) as tree:
        if plan is None:
            with session.waiting(say("looking …")):
                steps = tree.Reorganize(None if keyword is None else session.find(tree, keyword).id)
        elif keyword is not None:
            raise click.UsageError(say("a plan has its own scope: name no keyword"))
        else:
            try:
                steps = json.load(plan)
            except ValueError as error:
                raise InvalidInputError(say("{} holds no JSON: {}", plan.name, error)) from error
        known = steps.get("steps") if isinstance(steps, dict) else None
        if not isinstance(known, list) or not all(isinstance(step, dict) for step in known):
            raise InvalidInputError(say("that is no plan: it has no steps"))
        drawn: list[RenderableType] = [table([describe_step(tree, step) for step in known[:limit]])]
        if not known:
            drawn = [line(say("nothing is out of order"))]
        if len(known) > limit:
            drawn.append(line((say("… {:,} more", len(known) - limit), "dim")))
        if not apply:
            session.answer(steps, *drawn)
            return
        operation_id = tree.ApplyReorganizePlan(steps) if known else None
        written = tree.History(limit=20) if known else []
        number = next((change.seq for change in written if change.operation_id == operation_id), None)
        applied = [line(say("steps applied: {:,}", len(known)), (f"  (undo {number})", "dim"))] if known else []
        session.answer({"operation_id": operation_id, "seq": number, "steps": known}, *drawn, *applied)


def describe_step(tree: KeywordTree, step: dict[str, Any]) -> tuple[str, str, Text]:
    """Return a step's action, what it does, and why."""

    def name(key: str) -> str:
        id = step.get(key)
        return path_of(tree, id) if isinstance(id, str) and tree.GetKeyword(id) else str(id)

    action = str(step.get("action"))
    said = {
        "merge": lambda: say("{} into {}", name("src_id"), name("dst_id")),
        "move": lambda: say("{} to {}", name("id"), name("new_parent_id")),
        "link": lambda: say("info {} to {}", step.get("info_id"), name("keyword_id")),
        "group": lambda: say(
            "{:,} keywords under {} as {}", len(step.get("ids", ())), name("parent_id"), step.get("name")
        ),
    }.get(action, lambda: "?")()
    return say(action), said, line((str(step.get("why", "")), "dim"))
