"""Look at a memory, correct it and carry it away: the console command `keyword-tree`.

    $ keyword-tree add 编程 --parent / --alias programming
    added 编程  (undo 2)
    $ keyword-tree add Python --parent 编程
    added 编程 / Python  (undo 4)
    $ keyword-tree search programming/python
    编程 / Python  (exact path)
    $ keyword-tree show /
    /
    └── 编程  = programming
        └── Python

Every command takes `--data`, `--json` and `--lang`, and ends with one of these codes: 0, 1 for not found, 2 for bad
use, 3 for a store problem. `context`, `hub`, `shared` and `mcp` are groups of it, whose `--data` is a folder of their
own; `knowhub` and `keyword-tree-mcp` are `hub` and `mcp` as programs of their own. They need the extra `[cli]`;
without it, they say what to install and end with 2.
"""

import os
import sys
from collections.abc import Sequence

__all__ = ["hub", "main", "mcp"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: without the program's name; None takes the command line's.

    Returns:
        The exit code, see `keyword_tree.cli.session`; 2 where the extra `[cli]` is missing.
    """
    return _run("program", "program", "keyword-tree", arguments)


def hub(arguments: Sequence[str] | None = None) -> int:
    """Run `knowhub`: the commands of `keyword-tree hub`."""
    return _run("groups", "hub", "knowhub", arguments)


def mcp(arguments: Sequence[str] | None = None) -> int:
    """Run `keyword-tree-mcp`: `keyword-tree mcp`."""
    return _run("groups", "mcp", "keyword-tree-mcp", arguments)


def _run(module: str, part: str, name: str, arguments: Sequence[str] | None) -> int:
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed by who started us: what is said must still go somewhere
            setattr(sys, stream, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  it is open to the end
    try:
        from importlib import import_module

        command = getattr(import_module(f".{module}", __package__), part)
        from .program import run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("click", "rich"):
            raise
        from ..base.language import choose_from_environment, say

        choose_from_environment()
        extra = {"hub": "knowhub", "mcp": "mcp"}.get(part, "cli")
        print(say("{} needs click and rich: pip install '.[{}]' in its repository", name, extra), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return run(command, sys.argv[1:] if arguments is None else list(arguments), name)


if __name__ == "__main__":
    raise SystemExit(main())
