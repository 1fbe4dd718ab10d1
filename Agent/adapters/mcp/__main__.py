# ruff: noqa: N999  the package is named as the folder beside WeaveAgent.py is
"""`python -m keyword_tree.adapters.mcp` is the command `keyword-tree mcp`, for settings that name the module."""

import sys
from importlib import import_module

if __name__ == "__main__":  # a program of its own, above all floors
    program = import_module(f"{__package__.partition('.')[0]}.cli.command_line")
    raise SystemExit(program.main(["mcp", *sys.argv[1:]]))
