"""`keyword-tree shared`: look after trees on a PostgreSQL server."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..base.language import say
from ..store.addresses import is_address
from .program import Command, command, group, kept
from .screen import line, table
from .session import Session

if TYPE_CHECKING:
    from ..shared_tree import SharedLog

__all__: list[str] = []

VARIABLE = "KEYWORD_TREE_POSTGRES"
ADDRESS = "The address of a tree, instead of --dsn: postgresql://host/database#tree."

shared = group(
    "shared",
    "Serve and share",
    """Look after trees on a PostgreSQL server.

A password belongs into ~/.pgpass: others see the words of a command.""",
    data=ADDRESS,
)


def _with_server(made: Any) -> Any:
    for option in (
        kept("--dsn", help=f"The server, as libpq reads it.  [env: {VARIABLE}]"),
        kept("--patience", type=float, help="Seconds for which it is tried again.  [default: 10]"),
        kept("--pooled", is_flag=True, help="A transaction pooler stands between."),
    ):
        made = option(made)
    return made


_with_server(shared)


@contextmanager
def _opened(session: Session, dsn: str | None = None) -> Iterator["SharedLog"]:
    from ..shared_tree import SharedLog

    given = session.given
    named = str(given.get("data", "")).rpartition("#")[0]
    server = dsn or named or given.get("dsn") or os.environ.get(VARIABLE, "")
    with SharedLog(server, patience=given.get("patience", 10.0), pooled=bool(given.get("pooled"))) as log:
        yield log


def _command(name: str) -> Callable[[Callable[..., Any]], Command]:
    def make(function: Callable[..., Any]) -> Command:
        made: Command = _with_server(command(name, of=shared, data=ADDRESS)(function))
        return made

    return make


@_command("setup")
def _setup(session: Session) -> None:
    """Make the tables."""
    with _opened(session) as log:
        log.setup()
    session.answer({"setup": True}, line(say("the tables are there")))


@_command("list")
def _list(session: Session) -> None:
    """List the trees: name, last operation, bytes."""
    with _opened(session) as log:
        trees = [
            {"tree": name, "last_operation": log.last_operation(name), "size_bytes": log.size_bytes(name)}
            for name in log.trees()
        ]
    rows = [[str(value) for value in tree.values()] for tree in trees]
    session.answer(trees, *[table(rows)] * bool(rows))


@_command("keep")
@click.argument("trees", nargs=-1, metavar="[TREE]...")
def _keep(session: Session, trees: tuple[str, ...]) -> None:
    """Write the states that are due, of all trees where none is named: for cron."""
    with _opened(session) as log:
        kept_states = {name: log.keep(name) for name in trees or log.trees()}
    rows = [(name, say("state written") if is_kept else say("not due")) for name, is_kept in kept_states.items()]
    session.answer(kept_states, *[table(rows)] * bool(rows))


@_command("copy")
@click.option("--out", is_flag=True, help="From a tree into a folder.")
@click.argument("source")
@click.argument("target")
def _copy(session: Session, out: bool, source: str, target: str) -> None:
    """Make a tree of a folder, or with --out a folder of a tree.

    A tree may be a whole address, postgresql://host/database#tree; tables that are not there are made then.
    """
    if not out and is_address(target):
        from ..shared_tree.address import parse_address

        address = parse_address(target)
        with _opened(session, address.dsn) as log:
            log.prepare()
            seq = log.copy_in(source, address.tree_id)
    else:
        with _opened(session) as log:
            seq = (log.copy_out if out else log.copy_in)(source, target)
    session.answer({"seq": seq}, line(say("copied up to operation {}", seq)))


@_command("remove")
@click.argument("tree")
def _remove(session: Session, tree: str) -> None:
    """Take a tree away for good."""
    with _opened(session) as log:
        log.remove(tree)
    session.answer({"removed": tree}, line(say("removed {}", tree)))
