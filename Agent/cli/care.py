"""The commands that take back, care for the store and carry a memory in and out."""

import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class
from rich.console import RenderableType
from rich.text import Text

from Agent.cli.commands import KEYWORD
from Agent.cli.program import command, program
from Agent.cli.screen import line, shorten, show_progress, spell_row, table
from Agent.cli.session import BAD_USE, FOUND, STORE_PROBLEM, Session, path_of
from Agent.formats import FORMATS, export_file, import_file
from Agent.keyword_tree import (
    Change,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    NotFoundError,
    StoreError,
)

__all__: list[str] = []


@contextmanager
def waiting(session: Session, what: str) -> Iterator[None]:
    """Show on a terminal that something is under way whose length nobody knows."""
    if session.messages.is_terminal:
        with session.messages.status(what):
            yield
    else:
        yield


@contextmanager
def user_files() -> Iterator[None]:
    """Turn what a system says of a file that the user named into bad use; only a store's errors are a store problem."""
    try:
        yield
    except (StoreError, BrokenPipeError):
        raise
    except OSError as error:
        raise InvalidInputError(str(error)) from error


# Taking back


@command("history")
@click.argument("keyword", type=KEYWORD, required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Operations shown.")
def history(session: Session, keyword: str | None, limit: int) -> None:
    """Show the newest operations: all, or those that touched a keyword or an info."""
    with session.open() as tree:
        id = None
        if keyword is not None:  # an id counts even where it is gone: what was deleted has a history
            is_id = tree.GetInfo(keyword) is not None or (tree.GetKeyword(keyword) is None and tree.History(keyword, 1))
            id = keyword if is_id else session.find(tree, keyword).id
        changes = tree.History(id, limit)
        rows = [(str(change.seq), local_time(change.timestamp), change.op, describe(change)) for change in changes]
        value = [
            {**spell_row(change), "before": spell_records(change.before), "after": spell_records(change.after)}
            for change in changes
        ]
        session.answer(value, table(rows, ("undo", "when", "what", "of"), numbers=(0,)))


def local_time(timestamp: float) -> str:
    """Return a time as people here write it, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))


def describe(change: Change) -> str:
    """Return what an operation touched: the first names, and how many more."""
    records = [record for record in change.after if not isinstance(record, InfoKeywordLink)]
    names = [shorten(record.name if isinstance(record, KeywordNode) else record.content, 40) for record in records[:3]]
    gone = " (gone)" if records and all(record.deleted for record in records) else ""
    more = f" and {len(records) - 3:,} more" if len(records) > 3 else ""
    links = len(change.after) - len(records)
    return f"{', '.join(names)}{more}{gone}" if records else f"{links:,} link{'' if links == 1 else 's'}"


def spell_records(records: list[Any]) -> list[dict[str, Any]]:
    """Return records as JSON has them, each with its kind."""
    kinds = {KeywordNode: "keyword", Info: "info", InfoKeywordLink: "link"}
    return [{"kind": kinds[type(record)], "deleted": record.deleted, **spell_row(record)} for record in records]


@command("undo")
@click.argument("operation", required=False)
def undo(session: Session, operation: str | None) -> None:
    """Take back an OPERATION, named by its number or its id; without one the newest.

    An undo is an operation, too: the next `undo` takes it back.
    """
    with session.open() as tree:
        change = find_change(tree, operation)
        operation_id = tree.Undo(change.operation_id)
        value = {"operation_id": operation_id, "undone": {"seq": change.seq, "operation_id": change.operation_id}}
        session.answer(value, line(f"undone: {change.seq} {change.op}, ", (describe(change), "bold")))


def find_change(tree: KeywordTree, name: str | None) -> Change:
    """Return the operation with this number or id, the newest where there is no name."""
    newest = tree.History(limit=1)
    if not newest:
        raise NotFoundError("operation", name or "newest")
    if name is None:
        return newest[0]
    by_number = name.isdecimal()
    limit = max(0, newest[0].seq - int(name) + 1) if by_number else sys.maxsize
    for change in tree.History(limit=limit):
        if (str(change.seq) if by_number else change.operation_id) == name:
            return change
    raise NotFoundError("operation", name)


@command("snapshot")
@click.option("--copy", is_flag=True, help="Make a backup of its own, that shares no bytes with the memory.")
@click.option("--list", "is_list", is_flag=True, help="List the snapshots there are instead.")
def snapshot(session: Session, copy: bool, is_list: bool) -> None:
    """Keep the present state under a name."""
    if is_list:
        with session.open():
            names = snapshots(session)
        session.answer({"snapshots": names}, *(line(name) for name in names or ["there are none"]))
        return
    with session.open() as tree:
        name = tree.Snapshot(copy)
        session.answer({"snapshot": name}, line("kept as ", (name, "bold")))


def snapshots(session: Session) -> list[str]:
    """Return the names of all snapshots, the oldest first."""
    return sorted(path.parent.name for path in Path(session.data, "snapshots").glob("*/snapshot.json"))


@command("restore")
@click.argument("name")
def restore(session: Session, name: str) -> None:
    """Make everything what it was when the snapshot NAME was taken."""
    with session.open() as tree:
        operation_id = tree.Restore(name)
        session.answer({"operation_id": operation_id, "snapshot": name}, line("restored ", (name, "bold")))


# Caring


@command("verify")
def verify(session: Session) -> int:
    """Rebuild everything from the bytes on disk, and compare; exit code 3 where something is wrong."""
    with session.open() as tree:
        with waiting(session, "verifying …"):
            problems = tree.Verify()
        metrics = tree.TreeMetrics()
        well = f"all is well: {metrics['keywords']:,} keywords, {metrics['infos']:,} infos, {metrics['links']:,} links"
        session.answer({"problems": problems}, *(line(problem, keep_lines=True) for problem in problems or [well]))
    return STORE_PROBLEM if problems else FOUND


@command("compact")
@click.option("--forget-history", is_flag=True, help="Keep no byte of what was deleted or replaced: cannot be undone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def compact(session: Session, forget_history: bool, yes: bool) -> None:
    """Write the log anew, beginning with the present state."""
    with session.open() as tree:
        if forget_history and not yes:
            click.confirm("History and everything that was deleted will be gone for ever. Go on?", abort=True, err=True)
        with waiting(session, "compacting …"):
            said = tree.CompactStorage(keep_history=not forget_history)
        kept = said["snapshots"]
        note = [line(("these snapshots may hold what was deleted: " + ", ".join(kept), "yellow"))] if kept else []
        session.answer(said, line(f"{said['bytes_before']:,} bytes became {said['bytes_after']:,}"), *note)


@command("repair")
@click.argument("new", metavar="NEW_FOLDER", type=click.Path())
def repair(session: Session, new: str) -> int:
    """Save what can be saved of a damaged memory into a NEW_FOLDER.

    The damaged one, named by --data, is not changed.  Exit code 3 where something is lost.
    """
    from Agent.repair import repair as repair_store

    with waiting(session, "repairing …"), user_files():
        report = repair_store(session.data, new)
    value = {
        **{key: part for key, part in vars(report).items() if isinstance(part, str | int)},
        "losses": [vars(loss) for loss in report.losses],
        **{key: [str(part) for part in getattr(report, key)] for key in ("rescued", "moved", "notes")},
    }
    session.answer(value, line(str(report), keep_lines=True))
    return FOUND if report.is_complete else STORE_PROBLEM


@command("metrics")
def metrics(session: Session) -> None:
    """Count, measure and weigh the memory."""
    with session.open() as tree:
        said = tree.TreeMetrics()
        fullest = path_of(tree, said["fan_out_id"])
    notes = {
        "fan_out": f"children of {fullest}",
        "depth": "levels below the root",
        "same_names": "names that several bear",
    }
    rows = [
        (name.replace("_", " "), f"{value:,}", Text(notes.get(name, ""), "dim"))
        for name, value in said.items()
        if isinstance(value, int) and name not in ("descents", "model_calls", "names_shown")
    ]
    files = said["bytes_on_disk"]
    rows += [(f"bytes of {name}", f"{size:,}", Text()) for name, size in files.items()]
    session.answer(said, table(rows, numbers=(1,)))


@command("reorganize")
@click.argument("keyword", type=KEYWORD, required=False)
@click.option("--apply", is_flag=True, help="Carry the plan out, as one operation.")
@click.option(
    "--plan",
    type=click.File(encoding="utf-8"),
    help="A plan of an earlier --json, perhaps cut down; - is standard input.",
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Steps shown.")
def reorganize(session: Session, keyword: str | None, apply: bool, plan: Any, limit: int) -> None:
    r"""Look for what is out of order beneath a keyword, and show a plan; with --apply, carry it out.

    \b
    keyword-tree reorganize --json > plan.json      # look at it, take steps out
    keyword-tree reorganize --plan plan.json --apply
    """
    with session.open(client=session.client()) as tree:
        if plan is None:
            with waiting(session, "looking …"):
                steps = tree.Reorganize(None if keyword is None else session.find(tree, keyword).id)
        elif keyword is not None:
            raise click.UsageError("a plan has its own scope: name no keyword")
        else:
            try:
                steps = json.load(plan)
            except ValueError as error:
                raise InvalidInputError(f"{plan.name} holds no JSON: {error}") from error
        known = steps.get("steps") if isinstance(steps, dict) else None
        if not isinstance(known, list) or not all(isinstance(step, dict) for step in known):
            raise InvalidInputError("that is no plan: it has no steps")
        drawn: list[RenderableType] = [table([describe_step(tree, step) for step in known[:limit]])]
        if not known:
            drawn = [line("nothing is out of order")]
        if len(known) > limit:
            drawn.append(line((f"… {len(known) - limit:,} more steps", "dim")))
        if not apply:
            session.answer(steps, *drawn)
            return
        operation_id = tree.ApplyReorganizePlan(steps) if known else None
        applied = [line(f"applied {len(known):,} steps", ("  (undo)", "dim"))] if known else []
        session.answer({"operation_id": operation_id, "steps": known}, *drawn, *applied)


def describe_step(tree: KeywordTree, step: dict[str, Any]) -> tuple[str, str, Text]:
    """Return a step's action, what it does, and why."""

    def name(key: str) -> str:
        id = step.get(key)
        return path_of(tree, id) if isinstance(id, str) and tree.GetKeyword(id) else str(id)

    action = str(step.get("action"))
    said = {
        "merge": lambda: f"{name('src_id')} into {name('dst_id')}",
        "move": lambda: f"{name('id')} to {name('new_parent_id')}",
        "link": lambda: f"info {step.get('info_id')} to {name('keyword_id')}",
        "group": lambda: f"{len(step.get('ids', ())):,} keywords beneath {name('parent_id')} as {step.get('name')}",
    }.get(action, lambda: "?")()
    return action, said, line((str(step.get("why", "")), "dim"))


# Carrying


@command("import")
@click.argument("path", type=click.Path(exists=True))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Without it, the file's suffix tells.")
@click.option("--parent", type=KEYWORD, default="/", help="Where everything is hung.  [default: the root]")
@click.option("--key", help="Names the source, so that it is known again where its file has moved.")
@click.option("--encoding", default="utf-8-sig", show_default=True, help="Of the file.")
def import_(session: Session, path: str, format_name: str | None, parent: str, key: str | None, encoding: str) -> None:
    """Take in what a file or a folder of notes holds.  What is there already is skipped: run it again at will."""
    with session.open(makes=True) as tree:
        parent_id = session.find(tree, parent).id
        started = time.monotonic()
        with show_progress(f"importing {Path(path).name}", session.messages) as progress, user_files():
            report = import_file(
                tree, path, format_name, parent_id=parent_id, key=key, encoding=encoding, progress=progress
            )
        said = f"{report.keywords:,} keywords, {report.infos:,} infos and {report.links:,} links are new"
        skipped = f", {report.skipped:,} records were there" if report.skipped else ""
        took = (f"  {time.monotonic() - started:.1f} s", "dim")
        session.answer(spell_row(report), line(said, skipped, took))


@command("export")
@click.argument("path", type=click.Path(allow_dash=True))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Without it, the file's suffix tells.")
@click.option("--from", "start", type=KEYWORD, default="/", help="Where to begin.  [default: the root]")
def export(session: Session, path: str, format_name: str | None, start: str) -> None:
    """Write the memory, or the part beneath a keyword, to a file or a folder of notes; - is standard output."""
    if path == "-" and (format_name is None or format_name == "notes"):
        raise click.UsageError("standard output needs --format, and cannot be a folder of notes")
    with session.open() as tree, tempfile.TemporaryDirectory() as aside:
        root_id = session.find(tree, start).id
        target = Path(aside, "export") if path == "-" else Path(path)
        with show_progress(f"exporting to {path}", session.messages, unit="keywords") as progress, user_files():
            count = export_file(tree, target, format_name, root_id=root_id, progress=progress)
        if path == "-":
            with target.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
        else:
            session.answer({"path": path, "keywords": count}, line(f"{count:,} keywords written to ", (path, "bold")))


# Beginning


@command("demo")
def demo(session: Session) -> int:
    """Show a memory at work: Python's own library, built, searched and opened again.

    In a temporary folder, unless --data names one.
    """
    from Agent import demo as library_demo  # what few commands need is imported there: a prompt waits for all of it
    from Agent.demo_screen import Screen as DemoScreen

    screen = DemoScreen(io.StringIO() if session.as_json else sys.stdout)
    with tempfile.TemporaryDirectory(prefix="keyword-tree-demo-") as temporary:
        folder = Path(session.data if session.is_data_named else temporary)
        try:
            library_demo.run_demo(folder, screen)
        except library_demo.DemoError as error:
            raise InvalidInputError(f"the demo stopped: {error}") from error
        if session.as_json:
            with KeywordTree(str(folder)) as tree:
                session.answer(tree.TreeMetrics())
        elif not session.is_data_named:
            screen.line("  (a temporary folder, gone now; to keep it: keyword-tree demo --data library-memory)", "dim")
    return FOUND


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> int:
    r"""Print what teaches a SHELL to complete commands, options and keywords.

    \b
    eval "$(keyword-tree completion bash)"          # in ~/.bashrc, or zsh in ~/.zshrc
    keyword-tree completion fish > ~/.config/fish/completions/keyword-tree.fish
    """
    known = get_completion_class(shell)
    if known is None:
        return BAD_USE
    source = known(program, {}, "keyword-tree", "_KEYWORD_TREE_COMPLETE").source()
    session.answer({"shell": shell, "source": source}, Text(source))
    return FOUND
