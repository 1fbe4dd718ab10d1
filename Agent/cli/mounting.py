"""Commands of other parts as groups of this program: each keeps its parser, and is shown and refused as ours are.

A part declares its commands with argparse, since it runs without click, too. Here each of its parsers becomes a click
command of the same words: the help, in the chosen language, `--data`, `--json` and `--lang`, a mistyped name and an
error are then those of every command.
"""

import argparse
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, cast

import click
from click.core import ParameterSource
from typing_extensions import override

from ..base.language import say, sentence
from ..keyword_tree import InvalidInputError
from .program import Asked, Group, program, share, translate
from .session import Session

__all__: list[str] = []

SHARED = ("help", "data", "json")
"""Options that every command has already."""


class Part(NamedTuple):
    """A part of the project that has commands."""

    module: str
    """With `make_parser()`, and `run(options)`, which returns the exit code, or None for 0."""
    help: str
    place: Callable[[Session], dict[str, Any]] = lambda session: {"data": session.data} if session.is_data_named else {}
    """What `--data` says, as the part calls it."""
    data: str = ""
    """The help of `--data`, where it is another folder than that of the tree."""
    is_group: bool = True


PARTS = {
    "context": Part(
        "..context_engine.service.command_line",
        r"""Store an agent's sessions as folders that people can read.

        \b
        keyword-tree context --user ada --session monday commit transcript.json
        keyword-tree context --user ada search "Does the tea want sugar?"
        keyword-tree context search --help
        """,
        data="The folder of the sessions.  [env: CONTEXT_ENGINE_DATA; default: memory]",
    ),
    "hub": Part(
        "..knowhub.program",
        """Serve knowledge that agents share and judge.""",
        data="The folder of the hub.  [env: KNOWHUB_DATA; default: ~/.local/share/knowhub]",
    ),
    "shared": Part(
        "..shared_tree.__main__",
        """Look after trees on a PostgreSQL server.""",
        lambda session: {"dsn": session.data.rpartition("#")[0]} if session.is_data_named else {},
        data="The address of a tree, instead of --dsn: postgresql://host/database#tree.",
    ),
    "mcp": Part(
        "..adapters.mcp.__main__",
        r"""Serve the memory to MCP hosts, on stdin and stdout or over HTTP.

        \b
        keyword-tree mcp --data memory
        keyword-tree mcp --data memory --http 8000
        """,
        lambda session: {"folder": session.data},
        is_group=False,
    ),
}
"""By what they are called."""


class _OfParser(click.types.FuncParamType):  # type: ignore[type-arg]  # generic only in its stubs
    """A type that argparse reads, whose refusal click shows."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx) if isinstance(value, str) else value
        except argparse.ArgumentTypeError as error:
            self.fail(str(error), param, ctx)


def parameters(parser: argparse.ArgumentParser, left_out: Iterable[str] = ()) -> Iterator[click.Parameter]:
    """Yield a parser's arguments and options as click has them, without those that every command has."""
    for action in parser._actions:
        if action.dest in (*SHARED, *left_out) or isinstance(action, argparse._SubParsersAction):
            continue
        kind: Any = action.type
        if action.choices:
            kind = click.Choice(list(action.choices))
        elif callable(kind) and kind not in (int, float):
            kind = _OfParser(kind)
        # For click an explicit None is a value, which a required option then has.
        given = {} if action.default is None else {"default": action.default}
        if action.option_strings:
            is_many, is_flag = isinstance(action, argparse._AppendAction), action.nargs == 0
            yield click.Option(
                [*action.option_strings, action.dest],
                type=None if is_flag else kind,
                is_flag=is_flag,
                multiple=is_many,
                required=action.required,
                help=sentence(action.help or ""),
                metavar=action.metavar if isinstance(action.metavar, str) else None,
                show_default=bool(action.default) and "[" not in (action.help or ""),
                **given,
            )
        else:
            is_optional = action.nargs in ("?", "*")
            count = -1 if action.nargs == "*" else 1
            yield click.Argument([action.dest], type=kind, nargs=count, required=not is_optional, **given)


def has_json(parser: argparse.ArgumentParser) -> bool:
    """Tell whether commands of this parser answer in JSON."""
    return any(action.dest == "json" for action in parser._actions)


def make_command(
    name: str, part: Part, parser: argparse.ArgumentParser, text: str, of_group: argparse.ArgumentParser | None = None
) -> click.Command:
    """Return a command that runs what one of a part's parsers has read."""
    answers_json = has_json(parser) or (of_group is not None and has_json(of_group))

    @click.pass_context
    def run(ctx: click.Context, /, **named: Any) -> int:
        session = ctx.ensure_object(Session)
        if session.as_json and not answers_json:
            raise InvalidInputError(say("{} has no answer in JSON", ctx.command_path))
        above = ctx.parent.params if of_group is not None and ctx.parent is not None else {}
        left = {key for key in named if ctx.get_parameter_source(key) is ParameterSource.DEFAULT}
        values = {**parser._defaults, **named, **{key: value for key, value in above.items() if key in left}}
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        read = argparse.Namespace(command=name, **values)
        read.json = session.as_json
        read.program = ctx.command_path.rpartition(" ")[0]
        for one in (of_group, parser):
            if one is not None and any(action.dest == "data" for action in one._actions):
                read.data = one.get_default("data")
        vars(read).update(part.place(session))
        return int(importlib.import_module(part.module, __package__).run(read) or 0)

    params = [one for each in (parser, of_group) if each is not None for one in parameters(each, part.place(Session()))]
    command = Asked(name, callback=run, params=params, help=text)
    return share(command, asks=False, data=part.data, has_json=answers_json)


class _Mounted(Group):
    """The commands of a part; its module is imported when they are wanted."""

    part: Part

    @cached_property
    def parser(self) -> argparse.ArgumentParser:
        """What the part reads its words with."""
        return make_parser(self.part)

    @cached_property
    def commands_of_part(self) -> Mapping[str, click.Command]:
        """Its commands, by their names."""
        found = next(action for action in self.parser._actions if isinstance(action, argparse._SubParsersAction))
        texts = {action.dest: sentence(action.help or "") for action in found._choices_actions}
        return {
            name: make_command(name, self.part, parser, texts[name], self.parser)
            for name, parser in found.choices.items()
        }

    @override
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own options, and the part's."""
        return [*parameters(self.parser), *super().get_params(ctx)]

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its commands."""
        return list(self.commands_of_part)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one of them."""
        command = self.commands_of_part.get(cmd_name)
        if command is not None:
            translate(command, f"{self.name} {cmd_name}")
        return command


def make_parser(part: Part) -> argparse.ArgumentParser:
    """Return what a part reads its words with."""
    return cast(argparse.ArgumentParser, importlib.import_module(part.module, __package__).make_parser())


for _name, _part in PARTS.items():
    _help = inspect.cleandoc(_part.help).replace(r"\b", "\b")
    if _part.is_group:
        _group = _Mounted(_name, callback=lambda **_: None, help=_help)
        _group.part = _part
        program.add_command(share(_group, asks=False, data=_part.data))
    else:
        program.add_command(make_command(_name, _part, make_parser(_part), _help))
