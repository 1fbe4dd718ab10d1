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
own. It needs the extra `[cli]`; without it, it says what to install and ends with 2.
"""

import os
import sys
from collections.abc import Sequence

__all__ = ["hub", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: without the program's name; None takes the command line's.

    Returns:
        The exit code, see `keyword_tree.cli.session`; 2 where the extra `[cli]` is missing.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started us: what is said must still go somewhere
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  it is open to the end
    try:
        from .program import program
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("click", "rich"):
            raise
        words = sys.argv[1:] if arguments is None else list(arguments)
        if words[:1] == ["context"]:  # its words are read without click, too
            from ..context_engine.service.command_line import main as run_context

            return run_context(words[1:])
        from ..base.language import choose_from_environment, say_error

        choose_from_environment()
        message = "the console command needs click and rich: pip install '.[cli]' in its repository"
        print(say_error(message), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        program.main(None if arguments is None else list(arguments), "keyword-tree")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def hub(arguments: Sequence[str] | None = None) -> int:
    """Run `knowhub`: the commands of `keyword-tree hub`, without the extra `[cli]`.

    Args:
        arguments: without the program's name; None takes the command line's.

    Returns:
        The exit code; 2 where the extra `[knowhub]` is missing.
    """
    from ..knowhub.program import main as run_hub

    return run_hub(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
