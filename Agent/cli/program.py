"""The program itself: its sections, the options that every command takes, and what happens to errors."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from typing_extensions import override

from Agent.cli.session import BAD_USE, DATA_VARIABLE, DEFAULT_DATA, MODEL_VARIABLE, UNREAD, Session
from Agent.keyword_tree import KeywordTreeError

__all__ = ["SECTIONS", "command", "pass_session", "program"]

SECTIONS = {
    "Write": ("add", "info", "link", "import"),
    "Look": ("search", "show", "metrics", "export"),
    "Correct": ("rename", "alias", "move", "merge", "delete", "reorganize"),
    "Take back": ("history", "undo", "snapshot", "restore"),
    "Care for the store": ("verify", "compact", "repair"),
    "Begin": ("demo", "completion"),
}
"""What people want to do, and the commands for it."""

_Command = TypeVar("_Command", bound=click.Command)

pass_session = click.make_pass_decorator(Session, ensure=True)


def _set_data(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        session = context.ensure_object(Session)
        session.data, session.is_data_named = value, True


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    session = context.ensure_object(Session)
    session.as_json = session.as_json or value


def _set_model(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Session).model = value


# Callbacks set them, before the command and behind it alike; the environment is asked once, by Session.
_SHARED: Sequence[Callable[[_Command], _Command]] = (
    click.option(
        "--data",
        metavar="FOLDER",
        expose_value=False,
        callback=_set_data,
        type=click.Path(file_okay=False),
        help=f"The folder of the memory.  [env: {DATA_VARIABLE}; default: {DEFAULT_DATA}]",
    ),
    click.option("--json", is_flag=True, expose_value=False, callback=_set_json, help="Answer in JSON, for programs."),
    click.option(
        "--model",
        metavar="NAME",
        expose_value=False,
        callback=_set_model,
        help="The language model to ask; `lexical` goes by words alone.  "
        f"[env: {MODEL_VARIABLE} with OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY; default: lexical]",
    ),
)


class _Program(click.Group):
    """Lists its commands by what they are for, and turns every error into a sentence and an exit code."""

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(80)) for name in names])

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and end with its exit code."""
        session = ctx.ensure_object(Session)
        try:
            value = super().invoke(ctx)
            sys.stdout.flush()  # now, while a reader who went away can still be told from an error
        except click.Abort:
            ctx.exit(BAD_USE)  # somebody was asked, and said no
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeywordTreeError, OSError, ImportError, KeyboardInterrupt) as error:
            code = session.explain(error)
            if code == UNREAD:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit must find a place
            ctx.exit(code)
        ctx.exit(value if isinstance(value, int) else 0)


def _share(command: _Command) -> _Command:
    for option in _SHARED:
        command = option(command)
    return command


@_share
@click.group(cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="keyword-tree")
def program() -> None:
    """Keep knowledge on a tree of keywords, look at it, correct it, carry it away.

    A KEYWORD is named by its id, its exact name, or a path such as 编程/Python; / is the root.
    Whatever a command changes, `undo` takes back.
    """


def command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function, with the options that every command has."""

    def make(function: Callable[..., Any]) -> click.Command:
        return _share(program.command(name)(pass_session(function)))

    return make
