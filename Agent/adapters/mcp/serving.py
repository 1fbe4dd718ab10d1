"""Serve a memory, or a session of a context engine, until the host ends it."""

import os
import sys
from pathlib import Path

from ...base.language import say
from ...context_engine import ContextEngineService
from ...store.addresses import is_address, open_tree
from . import sdk
from .graph import MemoryGraph
from .server import build_server
from .sessions import build_session_server, read_session

__all__ = ["serve"]


def serve(place: str, port: int | None = None, session: str | None = None) -> None:
    """Serve on stdin and stdout, or over HTTP.

    A file of the reference memory server, named by the environment variable MEMORY_FILE_PATH, is taken in once.

    Args:
        place: Where the memory is: a folder, which is made, or the address of a tree on a server.
        port: Of 127.0.0.1; None is stdin and stdout.
        session: ACCOUNT/USER/AGENT/SESSION of a context engine in the folder; None serves the tree.

    Raises:
        KeywordTreeError: the memory cannot be opened, or the session is named wrongly.
    """
    is_there = is_address(place) or (os.path.isdir(place) and os.listdir(place))
    # A folder that was mistyped in a host's settings would be an empty memory, and nothing would say so.
    warning = "" if is_there else say("there was no memory in {}: a new one was created", place) + "\n"
    if session is not None:
        ctx = read_session(session)
        with ContextEngineService(place) as engine:
            sys.stderr.write(warning)
            sdk.run(build_session_server(engine, ctx), port)
        return
    with open_tree(place) as tree:
        sys.stderr.write(warning)
        file = os.environ.get("MEMORY_FILE_PATH")
        if file and Path(file).is_file():
            MemoryGraph(tree).import_once(Path(file))
        sdk.run(build_server(tree), port)
