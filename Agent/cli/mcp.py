"""`keyword-tree mcp`, and `keyword-tree-mcp`: serve the memory to MCP hosts.

Several servers may serve one folder at the same time. A file of the reference memory server, named by the environment
variable MEMORY_FILE_PATH, is taken in once, as one operation.
"""

import click

from ..base.language import say
from .program import command
from .session import Session

__all__ = ["mcp"]


@command("mcp", "Serve and share", has_json=False)
@click.argument("folder", required=False)
@click.option("--http", metavar="PORT", type=click.IntRange(1, 65_535),
              help="Serve on this port of 127.0.0.1, not on stdin.")  # fmt: skip
@click.option("--session", "served", metavar="ACCOUNT/USER/AGENT/SESSION",
              help="Serve this session of a context engine's folder, and no tree.")  # fmt: skip
def mcp(session: Session, folder: str | None, http: int | None, served: str | None) -> None:
    r"""Serve the memory to MCP hosts, on stdin and stdout or over HTTP.

    FOLDER may be the address of a tree on a server; without it, --data says where the memory is.

    \b
    keyword-tree mcp --data memory
    keyword-tree mcp --data memory --http 8000
    """
    from ..adapters.mcp.serving import serve

    if folder is None and not session.is_data_named:  # a host starts it in any folder
        raise click.UsageError(say("name the FOLDER of the memory"))
    serve(folder or session.data, http, served)
