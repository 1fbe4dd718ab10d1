"""Make docs/reference.md and docs/zh/reference.md of the docstrings and the commands: `make reference`.

Every command, every public name of the core and the names of its siblings are on the English page, with the first
sentence of their docstrings. The Chinese page has the commands, whose help is in both languages.
"""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from Agent import keyword_tree
from Agent.base import language
from Agent.cli.program import program, say_types, sections
from Agent.knowhub.tools import TOOLS

ROOT = Path(__file__).parents[3]

PAGES = {"en": ROOT / "docs/reference.md", "zh": ROOT / "docs/zh/reference.md"}

PORTS = ("LLMClient", "Ranker")
"""Classes that others implement, or are given: their methods are on the page."""

SIBLINGS = {
    "memory": ("memory.store", "MemoryStore"),
    "memory.retriever": ("memory.retriever", "RetrieverConfig"),
    "finding": ("finding.tree", "EmbeddingTree"),
    "finding.embedder": ("finding.embedder",),
    "model_clients": ("model_clients",),
    "lexical_client": ("lexical_client",),
    "formats": ("formats",),
    "backup": ("backup",),
    "repair": ("repair", "repair"),
    "secrets_in_text": ("secrets_in_text",),
    "shared_tree": ("shared_tree.shared_log", "SharedLog"),
    "adapters.langgraph": ("adapters.langgraph",),
    "adapters.langchain": ("adapters.langchain",),
    "adapters.mem0": ("adapters.mem0",),
    "context_engine": ("context_engine", "ContextEngineService"),
    "knowhub.tools": ("knowhub.tools", *(tool.__name__ for tool in TOOLS), "fill_secrets"),
}
"""Title → the module of the names, and those of which the calls are on the page, too; without them all of `__all__`."""

HEADS = {
    "en": """# Reference

A sentence each, made by `make reference`; `help(KeywordTree.Search)` and `keyword-tree search --help` have the rest.
`created_by` and `changed_by` are left out.
""",
    "zh": """# 命令一览

由命令自带的说明生成（`make reference`），`keyword-tree search --help` 有全部内容。各个类和方法见[方法](methods.md)，
它们的文档字符串是英文的，列在[英文参考](../reference.md)里。
""",
}

WHO = ("created_by", "changed_by")
"""Arguments of nearly every method that writes, which a list of calls can do without."""


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring, as one line."""
    first = " ".join((text or "").replace("\b", "").partition("\n\n")[0].split())
    sentence = re.match(r".+?[.。](?= |$)|.+", first)
    return sentence[0] if sentence else ""


def signature(name: str, of: Any) -> str:
    """Return a call with the names of its arguments and their defaults, without types."""
    given = []
    for argument in inspect.signature(of).parameters.values():
        if argument.name in ("self", "cls", *WHO):
            continue
        star = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(argument.kind.name, "")
        default = argument.default
        shown = repr(default) if default is None or isinstance(default, str | int | float | tuple) else "…"
        if isinstance(default, Enum):
            shown = default.name
        given.append(star + argument.name + ("" if default is inspect.Parameter.empty else f"={shown}"))
    return f"{name}({', '.join(given)})"


def members(of: type) -> Iterator[tuple[str, str]]:
    """Yield what a class offers of its own, or of a base in its package: each call or property, and its summary."""
    package = of.__module__.rpartition(".")[0]
    bases = [base for base in of.__mro__ if base.__module__.rpartition(".")[0] == package]
    for name, value in {name: value for base in bases for name, value in vars(base).items()}.items():
        raw = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and isinstance(value, property):
            yield name, summary(value.__doc__)
        elif not name.startswith("_") and inspect.isfunction(raw) and name not in of.__annotations__:
            yield signature(name, raw), summary(raw.__doc__)


def names() -> Iterator[str]:
    """Yield the lines for every public name of the core."""
    public = {name: getattr(keyword_tree, name) for name in keyword_tree.__all__}
    yield f"\n### KeywordTree\n\n{summary(keyword_tree.KeywordTree.__doc__)}\n"
    yield from (f"- `{call}`: {said}" for call, said in members(keyword_tree.KeywordTree))
    errors = [name for name, of in public.items() if issubclass(of, Exception)]
    others = [name for name in public if name not in errors and name != "KeywordTree"]
    for title, listed in (("Records, results and ports", others), ("Errors", errors)):
        yield f"\n### {title}\n"
        for name in listed:
            of = public[name]
            values = f" {', '.join(of.__members__)}." if issubclass(of, Enum) else ""
            yield f"- `{name}`: {summary(of.__doc__)}{values}"
            if name in PORTS:
                yield from (f"- `{name}.{call}`: {said}" for call, said in members(of))


def siblings() -> Iterator[str]:
    """Yield the lines for the public names of the modules beside the core."""
    for title, (module, *chosen) in SIBLINGS.items():
        yield f"\n### {title}\n"
        found = import_module(f"Agent.{module}")
        for name in chosen or found.__all__:
            of = getattr(found, name)
            if inspect.isfunction(of):
                yield f"- `{signature(name, of)}`: {summary(of.__doc__)}"
            elif inspect.isclass(of):
                yield f"- `{name}`: {summary(of.__doc__)}"
                if chosen and not issubclass(of, tuple):
                    yield from (f"- `.{call}`: {said}" for call, said in members(of))


def commands() -> Iterator[str]:
    """Yield the lines for every command, in the chosen language."""
    context = click.Context(program, info_name="keyword-tree", help_option_names=["-h", "--help"])
    for section, listed in sections(program, context).items():
        yield f"\n### {language.say(section)}\n"
        for name in listed:
            command = program.get_command(context, name)
            assert command is not None
            yield row(command, name, context)
            if isinstance(command, click.Group):
                inner = click.Context(command, parent=context, info_name=name)
                for each in command.list_commands(inner):
                    part = command.get_command(inner, each)
                    assert part is not None
                    yield row(part, f"{name} {each}", inner)


def row(command: click.Command, words: str, above: click.Context) -> str:
    """Return the line of a command: its arguments and options, and what it does."""
    context = click.Context(command, parent=above, info_name=words)
    parameters = command.get_params(context)
    arguments = [say_types(one.make_metavar(context)) for one in parameters if isinstance(one, click.Argument)]
    of_group = [one.opts[-1] for one in above.command.get_params(above)]
    of_all = ("--help", "--data", "--json", "--lang", "--model", "--meaning", *of_group)
    options = [one.opts[-1] for one in parameters if isinstance(one, click.Option) and one.opts[-1] not in of_all]
    usage = " ".join([words, *arguments, *(f"[{one}]" for one in options)])
    return f"- `{usage}`: {summary(command.help)}"


def page(chosen: str) -> str:
    """Return the page in one of the languages."""
    language.choose(chosen)
    try:
        lines = [HEADS[chosen], "## " + {"en": "Commands", "zh": "命令"}[chosen]]
        lines += commands()
        if chosen == "en":
            lines += ["\n## Names of `keyword_tree`", *names(), "\n## Names beside it", *siblings()]
        return "\n".join(lines) + "\n"
    finally:
        language.choose("en")


if __name__ == "__main__":
    for one, path in PAGES.items():
        path.write_text(page(one), encoding="utf-8")
