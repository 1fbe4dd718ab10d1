"""`keyword-tree hub`, and `knowhub`: knowledge that agents share and judge."""

from collections.abc import Callable
from typing import Any

import click

from .program import Command, command, group, kept
from .session import Session

__all__ = ["hub"]

PORT = 8790
FOLDER = "The folder of the hub.  [env: KNOWHUB_DATA; default: ~/.local/share/knowhub]"

hub = group("hub", "Serve and share", "Serve knowledge that agents share and judge.", data=FOLDER)


def _command(
    name: str, *parameters: Callable[..., Any], models: bool = False, has_json: bool = False, does: str = ""
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function that says what it does; what it does is in `knowhub.commands`, under its name."""

    def make(function: Callable[..., None]) -> Command:
        def run(session: Session, /, **named: Any) -> int:
            from ..knowhub import commands  # needs the extra, which the help does not

            given = session.given
            place = commands.place_of(given.get("data"), given.get("log"), may_ask=name == "ask")
            if models:
                named["models"] = [one for one in session.given.get("models", "").split(",") if one]
            if has_json:
                named["as_json"] = session.as_json
            return int(getattr(commands, does or name)(place, **named))

        run.__doc__ = function.__doc__
        of_models = kept("--models", metavar="NAMES", help="Names of models, with commas; the first is the default.")
        shared = "Instead: postgresql://host/database#name, for several machines.  [env: KNOWHUB_LOG]"
        for parameter in reversed(parameters):
            run = parameter(run)
        made = command(name, of=hub, data=FOLDER, has_json=has_json)(run)
        made = of_models(made) if models else made
        return kept("--log", metavar="ADDRESS", help=shared)(made)

    return make


@_command(
    "serve",
    click.option("--host", default="127.0.0.1", show_default=True, help="The address that it listens on."),
    click.option("--port", type=int, default=PORT, show_default=True, help="The port that it listens on."),
    click.option("--workers", type=int, default=1, help="Processes; one with threads is the fastest for writes."),
    click.option("--allowed-host", "allowed_hosts", multiple=True, help="A name that it may be called by."),
    click.option("--tls-cert", help="A file in PEM: the certificate that it serves TLS with."),
    click.option("--tls-key", help="A file in PEM: the key of that certificate."),
    click.option("--behind-proxy", is_flag=True, help="A proxy before it speaks TLS."),
    click.option("--cors", default="", help="The one origin whose scripts may ask it."),
    click.option(
        "--rate", type=float, default=50.0, show_default=True, help="Requests a second for one token; 0 is no limit."
    ),
    click.option("--quota-entries", type=int, default=0, help="Entries and resources of one principal; 0 is no limit."),
    click.option("--quota-bytes", type=int, default=0, help="Bytes of their texts; 0 is no limit."),
    click.option("--quota-calls", type=float, default=0.0, help="Calls of one principal a minute; 0 is no limit."),
    click.option("--org", metavar="NAME", default="", help="Whose knowledge is shared by default; the folder's name."),
    click.option("--allow-secret-shapes", is_flag=True, help="Take knowledge that looks like a key."),
    models=True,
)
def _serve() -> None:
    """Serve REST, web pages and MCP."""


@_command(
    "ask",
    click.argument("question"),
    click.option("--top-k", type=int, default=3, show_default=True, help="Entries shown."),
    models=True,
    has_json=True,
)
def _ask() -> None:
    """Search from the terminal."""


@_command(
    "token",
    click.argument("action", type=click.Choice(("make", "list", "revoke", "login")), default="make"),
    click.argument("id", default=""),
    click.option("--principal", default="", help="Whose it is; your git e-mail address."),
    click.option("--rights", default="read,write", show_default=True, help="read,write,curate,secrets,admin"),
    click.option("--scopes", help="What it sees besides its own, with commas; * is all; the hub's organisation."),
    click.option("--days", type=float, default=0.0, help="How long it is good for; 0 is for ever."),
    click.option("--port", type=int, default=PORT, help="For login: the port of the server."),
)
def _token() -> None:
    """Make, list or revoke tokens; log a browser in."""


@_command(
    "key",
    click.argument("action", type=click.Choice(("rotate", "path"))),
    click.option(
        "--drop-old",
        is_flag=True,
        help="Forget the old keys: old backups, and hubs not rotated, open no more.",
    ),
)
def _key() -> None:
    """Rotate the vault's master key."""


@_command("import", click.argument("file"), has_json=True, does="take_in")
def _import() -> None:
    """Read JSON lines in: those of an export, or any with task, content and types.

    FILE - is the input.
    """


@_command("export", click.argument("file", default="-"))
def _export() -> None:
    """Write all as JSON lines, no secrets."""


@_command("doctor")
def _doctor() -> None:
    """Look whether all is well."""


@_command("backup", click.argument("folder"))
def _backup() -> None:
    """Copy a hub into a new folder, also while it serves."""


@_command("restore", click.argument("folder"))
def _restore() -> None:
    """Make a hub of a copy, where there is none."""


@_command("audit", click.option("--limit", type=click.IntRange(1, 200), default=20, help="Lines shown."), has_json=True)
def _audit() -> None:
    """Say who read which secret, and who was refused."""


@_command("purge", click.option("--yes", is_flag=True, help="Do not ask."))
def _purge() -> None:
    """Forget history and what was deleted, for good."""


@_command("mcp", models=True)
def _mcp() -> None:
    """Serve MCP on stdin and stdout."""
