"""The commands that carry a memory in and out, and those to begin with."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ..base.language import count_of, parts, say
from ..formats import FORMATS, READ_FORMATS, export_file, format_of, import_file
from ..keyword_tree import InvalidInputError
from .program import command, program
from .screen import line, show_progress, spell_row
from .session import BAD_USE, FOUND, KEYWORD, ROOT_ID, Session, user_files

__all__: list[str] = []

KEEP_LOOSE = ("json", "html")
"""Formats that hold infos without a keyword, too."""


@command("import", "Write")
@click.argument("path", type=click.Path(exists=True))
@click.option("--format", "format_name", type=click.Choice(READ_FORMATS), help="Without it, the file's suffix decides.")
@click.option(
    "--parent", type=KEYWORD, default="/", help="The keyword that everything goes under.  [default: the root]"
)
@click.option("--key", help="Names the source, so that it is known again where its file has moved.")
@click.option("--encoding", default="utf-8-sig", show_default=True, help="Of the file.")
@click.option("--update", is_flag=True, help="Change what is there already and differs in the file.")
def import_(
    session: Session, path: str, format_name: str | None, parent: str, key: str | None, encoding: str, update: bool
) -> None:
    """Take in a file or a folder of notes.

    What is there already is skipped; where the file says something else of it, --update takes that over.  It is
    written a thousand records at a time: an import that is stopped keeps the whole thousands, and the same command
    goes on from there.  One `undo` undoes all of it.
    """
    with session.open(makes=True) as tree:
        parent_id = session.find(tree, parent).id
        started = time.monotonic()
        with show_progress(say("importing {}", Path(path).name), session.messages) as progress, user_files():
            report = import_file(
                tree,
                path,
                format_name,
                parent_id=parent_id,
                key=key,
                encoding=encoding,
                progress=progress,
                update=update,
            )
        if not any(vars(report).values()):
            raise InvalidInputError(say("there is nothing to import in {}", path))
        keywords, infos, links = (count_of(getattr(report, f"{noun}s"), noun) for noun in ("keyword", "info", "link"))
        skipped = say("; {} already there", count_of(report.skipped, "record")) if report.skipped else ""
        if report.changed:
            said = "; updated: {}" if update else "; not changed though the file differs: {} (--update takes it over)"
            skipped += say(said, count_of(report.changed, "record"))
        took = f"  {time.monotonic() - started:.1f} s"
        last = report.operation_ids[-1:]
        number = next((change.seq for change in tree.History(limit=20) if change.operation_id in last), None)
        back = f"  (undo {number})" if number else ""
        session.answer(
            {**spell_row(report), "seq": number},
            line(say("new: {}, {}, {}", keywords, infos, links) + skipped, (took + back, "dim")),
        )


@command("export", "Look")
@click.argument("path", type=click.Path(allow_dash=True))
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="Without it, the file's suffix decides.")
@click.option("--from", "start", type=KEYWORD, default="/", help="Where to begin.  [default: the root]")
@click.option("--no-history", is_flag=True, help="Leave out of a page (html) what was changed and replaced.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export(session: Session, path: str, format_name: str | None, start: str, no_history: bool, force: bool) -> None:
    r"""Write the whole tree, or the part under a keyword, to a file.

    The suffix of PATH decides the format; a PATH without one becomes a folder of notes, - is standard output.

    \b
    keyword-tree export memory.json        # everything, to be imported again
    keyword-tree export memory.html        # a page to look at, with a search box
    keyword-tree export - --format csv --from tea
    """
    if path == "-" and (format_name is None or format_name == "notes" or session.as_json):
        raise click.UsageError(
            say("standard output needs --format, cannot be a folder of notes, and has no room for --json")
        )
    if path != "-" and Path(path).is_file() and not force:
        raise InvalidInputError(say("{!r} is there already: --force replaces it", path))
    with session.open() as tree, tempfile.TemporaryDirectory() as aside:
        root_id = session.find(tree, start).id
        target = Path(aside, "export") if path == "-" else Path(path)
        with show_progress(say("exporting to {}", path), session.messages, unit="keywords") as progress, user_files():
            count = export_file(
                tree,
                target,
                format_name,
                root_id=root_id,
                with_history=not no_history,
                language=session.given.get("lang", ""),
                progress=progress,
            )
        if path == "-":
            with target.open("rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            return
        format_name = format_name or format_of(target)
        loose = tree.TreeMetrics()["unlinked_infos"] if root_id == ROOT_ID and format_name not in KEEP_LOOSE else 0
        note = [line((say("infos on no keyword are not in it: {:,}; json has them", loose), "yellow"))] if loose else []
        value = {"path": path, "format": format_name, "keywords": count, "infos_left_out": loose}
        session.answer(
            value, line(*parts("{} written to {} as {}", count_of(count, "keyword"), path, format_name)), *note
        )


@command("completion", "Begin")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> int:
    r"""Teach a SHELL to complete commands and keywords.

    Prints a script:

    \b
    eval "$(keyword-tree completion bash)"          # in ~/.bashrc, or zsh in ~/.zshrc
    keyword-tree completion fish > ~/.config/fish/completions/keyword-tree.fish
    """
    known = get_completion_class(shell)
    if known is None:
        return BAD_USE
    source = known(program, {}, "keyword-tree", "_KEYWORD_TREE_COMPLETE").source()
    if session.as_json:
        session.answer({"shell": shell, "source": source})
    else:
        sys.stdout.write(source)  # as it is: on a terminal, too, nothing may be cut or wrapped
    return FOUND
