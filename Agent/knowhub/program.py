"""The command `knowhub`: serve REST, web pages and MCP, search, and manage tokens, keys and data.

knowhub serve [--data D --port 8790]  serve REST, web pages and MCP on this machine
knowhub ask "how do I …"              search from the terminal
knowhub token make|list|revoke|login  who may come in
knowhub key rotate|path               master keys of the vault
knowhub import FILE | export [FILE]   JSON lines
knowhub doctor | purge                look, and forget for good
knowhub mcp                           a server for other agents' hosts, on stdin and stdout
"""

import argparse
import sys
from collections.abc import Sequence

from ..base.language import Parser, choose_from_environment, say_error
from ..keyword_tree import KeywordTreeError

__all__ = ["main", "make_parser", "run"]

PORT = 8790


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = Parser(prog="knowhub", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="command")

    def add(name: str, text: str, *, models: bool = False, json: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run="take_in" if name == "import" else name, program="knowhub")
        made.add_argument("--data", help="the data folder; KNOWHUB_DATA, else ~/.local/share/knowhub")
        made.add_argument("--log", help="instead: postgresql://host/database#name, for several machines; KNOWHUB_LOG")
        if json:
            made.add_argument("--json", action="store_true", help="answer in JSON, for programs")
        if models:
            made.add_argument(
                "--models", metavar="NAMES", default=[], type=lambda text: [name for name in text.split(",") if name],
                help="names of models, with commas; the first is the default",
            )  # fmt: skip
        return made

    serve = add("serve", "serve REST, web pages and MCP", models=True)
    serve.add_argument("--host", default="127.0.0.1", help="the address that it listens on")
    serve.add_argument("--port", type=int, default=PORT, help="the port that it listens on")
    serve.add_argument("--workers", type=int, default=1, help="processes; one with threads is the fastest for writes")
    serve.add_argument("--allowed-host", action="append", default=[], help="a name that it may be called by")
    serve.add_argument("--tls-cert", help="a file in PEM: the certificate that it serves TLS with")
    serve.add_argument("--tls-key", help="a file in PEM: the key of that certificate")
    serve.add_argument("--behind-proxy", action="store_true", help="a proxy before it speaks TLS")
    serve.add_argument("--cors", default="", help="the one origin whose scripts may ask it")
    serve.add_argument("--rate", type=float, default=50.0, help="requests a second for one token; 0 is no limit")
    serve.add_argument("--allow-secret-shapes", action="store_true", help="take knowledge that looks like a key")
    ask = add("ask", "search from the terminal", models=True, json=True)
    ask.add_argument("question")
    ask.add_argument("--top-k", type=int, default=3, help="entries shown")
    token = add("token", "make, list or revoke tokens; log a browser in")
    token.add_argument("action", nargs="?", choices=("make", "list", "revoke", "login"), default="make")
    token.add_argument("id", nargs="?", default="", help="for revoke: how its id begins")
    token.add_argument("--principal", default="", help="whose it is; your git e-mail address")
    token.add_argument("--rights", default="read,write", help="read,write,curate,secrets,admin")
    token.add_argument("--scopes", default="", help="what it sees besides its own, with commas; * is all")
    token.add_argument("--days", type=float, default=0.0, help="how long it is good for; 0 is for ever")
    token.add_argument("--port", type=int, default=PORT, help="for login: the port of the server")
    key = add("key", "rotate the vault's master key")
    key.add_argument("action", choices=("rotate", "path"))
    key.add_argument(
        "--drop-old", action="store_true", help="forget the old keys: old backups, and hubs not rotated, open no more"
    )
    take = add("import", "read JSON lines in: those of an export, or any with task, content and types", json=True)
    take.add_argument("file", help="- is stdin")
    give = add("export", "write all as JSON lines, no secrets")
    give.add_argument("file", nargs="?", default="-")
    add("doctor", "look whether all is well")
    purge = add("purge", "forget history and what was deleted, for good")
    purge.add_argument("--yes", action="store_true", help="do not ask")
    add("mcp", "serve MCP on stdin and stdout", models=True)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run a command whose words were read; errors are the caller's."""
    from . import commands  # needs the extra, which `--help` does not

    return int(getattr(commands, options.run)(options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    choose_from_environment()
    options = make_parser().parse_args(arguments)
    try:
        return run(options)
    except (KeywordTreeError, OSError, ImportError) as error:
        print(f"knowhub: {say_error(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
