# ruff: noqa: N999  the package is named as the folder beside WeaveAgent.py is
"""Serve a memory to MCP hosts: the console command `keyword-tree-mcp`.

    keyword-tree-mcp FOLDER             # on stdin and stdout, as a host starts it
    keyword-tree-mcp FOLDER --http 8000 # on http://127.0.0.1:8000/mcp, for this machine alone
    keyword-tree-mcp postgresql://host/database#tree
    keyword-tree-mcp FOLDER --session ACCOUNT/USER/AGENT/SESSION   # of a context engine: commit, search, brief

Several servers may serve one folder at the same time. A file of the reference memory server, named by the environment
variable MEMORY_FILE_PATH, is taken in once, as one operation. Ends with 0 where the host ends it, with 1 where the
folder or the file cannot be used, with 2 for bad use.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ...base.language import Parser, choose_from_environment, say, say_error
from ...context_engine import ContextEngineService
from ...keyword_tree import KeywordTreeError
from ...store.addresses import is_address, open_tree

__all__ = ["main", "make_parser", "run"]


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command's words."""
    parser = Parser("keyword-tree-mcp", description="Serve a memory to MCP hosts, on stdin and stdout or over HTTP.")
    parser.add_argument("folder", metavar="FOLDER", help="where the memory is, or the address of one on a server")
    parser.add_argument("--http", metavar="PORT", type=_port, help="serve on this port of 127.0.0.1, not on stdin")
    session = "serve this session of a context engine's folder, and no tree"
    parser.add_argument("--session", metavar="ACCOUNT/USER/AGENT/SESSION", help=session)
    return parser


def run(options: argparse.Namespace) -> None:
    """Serve until the host ends it; errors are the caller's."""
    from .graph import MemoryGraph
    from .sdk import run as run_server
    from .server import build_server
    from .sessions import build_session_server, read_session

    is_there = is_address(options.folder) or (os.path.isdir(options.folder) and os.listdir(options.folder))
    # A folder that was mistyped in a host's settings would be an empty memory, and nothing would say so.
    warning = "" if is_there else say("there was no memory in {}: a new one was created", options.folder) + "\n"
    if options.session is not None:
        ctx = read_session(options.session)
        with ContextEngineService(options.folder) as engine:
            sys.stderr.write(warning)
            run_server(build_session_server(engine, ctx), options.http)
        return
    with open_tree(options.folder) as tree:
        sys.stderr.write(warning)
        file = os.environ.get("MEMORY_FILE_PATH")
        if file and Path(file).is_file():
            MemoryGraph(tree).import_once(Path(file))
        run_server(build_server(tree), options.http)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the host ends it.

    Args:
        arguments: without the program's name; None takes the command line's.

    Returns:
        The exit code.
    """
    choose_from_environment()
    options = make_parser().parse_args(arguments)
    try:
        run(options)
    except ImportError as error:
        if "pip install" not in str(error):
            raise
        print(f"keyword-tree-mcp: {say_error(str(error))}", file=sys.stderr)
        return 2
    except (KeywordTreeError, OSError) as error:
        print(f"keyword-tree-mcp: {say_error(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _port(text: str) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 < number < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return number


if __name__ == "__main__":
    sys.exit(main())
