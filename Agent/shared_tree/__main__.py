# ruff: noqa: N999  the package is named as the folder beside WeaveAgent.py is
"""Look after shared trees from the command line.

  setup              make the tables
  list               each tree's name, last operation and bytes
  keep [TREE …]      write the states that are due, of all trees where none is
                     named: for cron
  copy FOLDER TREE   make a tree of a folder; TREE may be a whole address,
                     postgresql://host/database#tree, and tables that are not
                     there are made
  copy --out TREE FOLDER
                     make a folder of a tree
  remove TREE        take a tree away for good

The server is named by --dsn, or KEYWORD_TREE_POSTGRES, or what libpq takes
from PGHOST and its like. A password belongs into ~/.pgpass: others see the
words of a command. Ends with 0; 1 for not found, 2 for bad use, 3 for a problem
of the store.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..base.language import Parser, choose_from_environment, say, say_error
from ..keyword_tree import KeywordTreeError, NotFoundError, StoreError
from .address import is_address, parse_address
from .shared_log import SharedLog

__all__ = ["main", "make_parser", "run"]

VARIABLE = "KEYWORD_TREE_POSTGRES"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    choose_from_environment()
    options = make_parser().parse_args(arguments)
    try:
        run(options)
    except KeywordTreeError as error:
        print(say_error(str(error)), file=sys.stderr)
        return 1 if isinstance(error, NotFoundError) else 3 if isinstance(error, StoreError) else 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def run(options: argparse.Namespace) -> None:
    """Run one command whose words were read; errors are the caller's."""
    with SharedLog(options.dsn, patience=options.patience, pooled=options.pooled) as log:
        value, lines = options.run(log, options)
    for line in [json.dumps(value, ensure_ascii=False)] if options.json else lines:
        print(line)


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command's words."""
    form = argparse.RawDescriptionHelpFormatter
    program = f"python -m {__spec__.parent}" if __spec__ else "shared_tree"
    parser = Parser(program, description=__doc__, formatter_class=form)
    parser.add_argument("--dsn", default=os.environ.get(VARIABLE, ""), help="the server, as libpq reads it")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds for which it is tried again")
    parser.add_argument("--pooled", action="store_true", help="a transaction pooler stands between")
    parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("setup", help="make the tables").set_defaults(run=_setup)
    commands.add_parser("list", help="the trees").set_defaults(run=_list)
    keep = commands.add_parser("keep", help="write states that are due")
    keep.add_argument("trees", nargs="*", metavar="TREE")
    keep.set_defaults(run=_keep)
    copy = commands.add_parser("copy", help="from a folder into a tree, or back")
    copy.add_argument("--out", action="store_true", help="from a tree into a folder")
    copy.add_argument("source")
    copy.add_argument("target")
    copy.set_defaults(run=_copy)
    remove = commands.add_parser("remove", help="take a tree away for good")
    remove.add_argument("tree")
    remove.set_defaults(run=_remove)
    return parser


Answer: TypeAlias = tuple[object, Iterable[str]]
"""For programs, and the lines for people."""


def _setup(log: SharedLog, options: argparse.Namespace) -> Answer:
    log.setup()
    return {"setup": True}, [say("the tables are there")]


def _list(log: SharedLog, options: argparse.Namespace) -> Answer:
    trees = [
        {"tree": tree_id, "last_operation": log.last_operation(tree_id), "size_bytes": log.size_bytes(tree_id)}
        for tree_id in log.trees()
    ]
    return trees, ["\t".join(map(str, tree.values())) for tree in trees]


def _keep(log: SharedLog, options: argparse.Namespace) -> Answer:
    kept = {tree_id: log.keep(tree_id) for tree_id in options.trees or log.trees()}
    return kept, [
        f"{tree_id}\t{say('state written') if is_kept else say('not due')}" for tree_id, is_kept in kept.items()
    ]


def _copy(log: SharedLog, options: argparse.Namespace) -> Answer:
    if not options.out and is_address(options.target):
        address = parse_address(options.target)
        with SharedLog(address.dsn, patience=options.patience, pooled=options.pooled) as named:
            named.prepare()
            seq = named.copy_in(options.source, address.tree_id)
    else:
        seq = (log.copy_out if options.out else log.copy_in)(options.source, options.target)
    return {"seq": seq}, [say("copied up to operation {}", seq)]


def _remove(log: SharedLog, options: argparse.Namespace) -> Answer:
    log.remove(options.tree)
    return {"removed": options.tree}, [say("removed {}", options.tree)]


if __name__ == "__main__":
    raise SystemExit(main())
