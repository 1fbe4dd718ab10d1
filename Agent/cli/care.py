"""The commands that look after a memory, import and export it, and show its state."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from ..base.language import count_of, parts, say
from ..formats import READ_FORMATS, WRITE_FORMATS, export_file, format_of, import_file
from ..formats.records import ROOT_ID
from ..keyword_tree import InvalidInputError
from .program import command
from .screen import line, spell_row
from .session import FOUND, STORE_PROBLEM, Session, number_of, user_files

KEEP_LOOSE = ("json", "html")
"""Formats that hold infos without a keyword, too."""


# In and out


@command("import", "Write")
@click.argument("path", type=click.Path(exists=True))
@click.option("--format", "format_name", type=click.Choice(READ_FORMATS), help="Without it, the file's suffix decides.")
@click.option("--parent", default="/", help="The keyword that everything goes under.  [default: the root]")
@click.option("--key", help="A name of the source, by which a moved file is recognised.")
@click.option("--encoding", default="utf-8-sig", show_default=True, help="Of the file.")
@click.option("--update", is_flag=True, help="Update existing records that differ in the file.")
def import_(
    session: Session, path: str, format_name: str | None, parent: str, key: str | None, encoding: str, update: bool
) -> None:
    """Take in a file or a folder of notes.

    What is there already is skipped; where the file says something else of it, --update takes that over.  It is
    written a thousand records at a time: an import that is stopped keeps the whole thousands, and the same command
    goes on from there.  One `undo` undoes all of it.
    """
    options: dict[str, Any] = {"key": key, "encoding": encoding, "update": update}
    with session.open(makes=True) as tree:
        parent_id = session.find(tree, parent).id
        with session.waiting(say("importing {}", path)), user_files():
            report = import_file(tree, path, format_name, parent_id=parent_id, **options)
        if not any(vars(report).values()):
            raise InvalidInputError(say("there is nothing to import in {}", path))
        keywords, infos, links = (count_of(getattr(report, f"{noun}s"), noun) for noun in ("keyword", "info", "link"))
        said = say("new: {}, {}, {}", keywords, infos, links)
        said += say("; {} already there", count_of(report.skipped, "record")) if report.skipped else ""
        if report.changed:
            differ = "; updated: {}" if update else "; not changed though the file differs: {} (--update takes it over)"
            said += say(differ, count_of(report.changed, "record"))
        number = number_of(tree, report.operation_ids[-1]) if report.operation_ids else None
        back = "  " + say("(undo {})", number) if number else ""
        session.answer({**spell_row(report), "seq": number}, line(said, (back, "dim")))


@command("export", "Look")
@click.argument("path", type=click.Path())
@click.option(
    "--format", "format_name", type=click.Choice(WRITE_FORMATS), help="Without it, the file's suffix decides."
)
@click.option("--from", "start", default="/", help="Where to begin.  [default: the root]")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(session: Session, path: str, format_name: str | None, start: str, force: bool) -> None:
    r"""Write the whole tree, or the part under a keyword, to a file.

    The suffix of PATH decides the format.

    \b
    keyword-tree export memory.json        # everything, to be imported again
    keyword-tree export memory.html        # a page to look at, with a search box
    keyword-tree export tea.csv --from tea
    """
    if Path(path).is_file() and not force:
        raise InvalidInputError(say("{!r} is there already: --force replaces it", path))
    language = session.given.get("lang", "")
    with session.open() as tree:
        root_id = session.find(tree, start).id
        with session.waiting(say("exporting to {}", path)), user_files():
            count = export_file(tree, path, format_name, root_id=root_id, language=language)
        format_name = format_name or format_of(path)
        loose = tree.TreeMetrics()["unlinked_infos"] if root_id == ROOT_ID and format_name not in KEEP_LOOSE else 0
        note = [line((say("infos on no keyword are not in it: {:,}; json has them", loose), "yellow"))] if loose else []
        value = {"path": path, "format": format_name, "keywords": count, "infos_left_out": loose}
        is_bare = not count and root_id == ROOT_ID and not loose  # facts alone
        counted = count_of(tree.TreeMetrics()["infos"], "info") if is_bare else count_of(count, "keyword")
        session.answer(value, line(*parts("{} written to {} as {}", counted, path, format_name)), *note)


# Looking after it


@command("verify", "Maintenance")
def verify(session: Session) -> int:
    """Compare every byte on disk with what it should be.

    Exit code 3 where something is wrong, or where opening the memory had to cut or repair something.
    """
    with session.open(reports=False) as tree:
        with session.waiting(say("verifying …")):
            problems = tree.Verify()
        measured, recovery = tree.TreeMetrics(), list(tree.recovery)
    drawn = [line((say("recovered: "), "yellow"), sentence, keep_lines=True) for sentence in recovery]
    drawn += [line(problem, keep_lines=True) for problem in problems]
    if problems:
        drawn.append(line(say("next: "), session.saving()))
    else:
        counts = (count_of(measured[f"{noun}s"], noun) for noun in ("keyword", "info", "link"))
        well = say("the rest is well") if recovery else say("all is well")
        drawn.append(line(well + say(": ") + say(", ").join(counts)))
    session.answer({"problems": problems, "recovery": recovery}, *drawn)
    return STORE_PROBLEM if problems or recovery else FOUND


@command("compact", "Maintenance")
@click.option("--forget-history", is_flag=True, help="Erase all deleted and replaced data; this cannot be undone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def compact(session: Session, forget_history: bool, yes: bool) -> None:
    """Compact the log to the present state; the former one is kept in history/, for undo."""
    with session.open() as tree:
        if forget_history and not yes:
            if session.as_json:
                raise click.UsageError(say("--json cannot ask for confirmation: add --yes"))
            asked = say("History and everything that was deleted will be gone for ever. Go on?")
            click.confirm(asked, abort=True, err=True)
        with session.waiting(say("compacting …")):
            said = tree.CompactStorage(keep_history=not forget_history)
    drawn = [line(say("{:,} bytes became {:,}", said["bytes_before"], said["bytes_after"]))]
    if kept := said["snapshots"]:
        drawn.append(line((say("these snapshots may hold what was deleted: ") + say(", ").join(kept), "yellow")))
    session.answer(said, *drawn)


@command("repair", "Maintenance")
@click.argument("new", metavar="NEW_FOLDER", type=click.Path())
def repair(session: Session, new: str) -> int:
    """Rescue the whole lines of a damaged memory into a NEW_FOLDER.

    The damaged one, named by --data, is not changed, and keeps its snapshots and the logs of before a compaction.
    Exit code 3 where data could not be saved.
    """
    from ..store.repair import repair as repair_store

    if session.is_shared:
        raise InvalidInputError(say("repair works on folders: copy the shared tree into one first"))
    session.refuse_nothing()
    with session.waiting(say("repairing …")), user_files():
        report = repair_store(session.data, new)
    counts = say(", ").join(count_of(getattr(report, f"{noun}s"), noun) for noun in ("keyword", "info", "link"))
    read = "saved into {}: {}; {} stays as it is, with its snapshots and older logs"
    drawn = [line(*parts(read, report.new_dir, counts, report.damaged_dir))]
    said = {False: "not saved: {}", True: "saved without proof: {}"}
    drawn += [line(*parts(said[loss.is_saved], str(loss)), keep_lines=True) for loss in report.losses]
    session.answer(dataclasses.asdict(report), *drawn, *([] if report.losses else [line(say("nothing is lost"))]))
    return FOUND if report.is_complete else STORE_PROBLEM
