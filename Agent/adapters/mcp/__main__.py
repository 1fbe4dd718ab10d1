# ruff: noqa: N999  the package is named as the folder beside WeaveAgent.py is
"""`python -m keyword_tree.adapters.mcp FOLDER`: what `keyword-tree-mcp FOLDER` does, but for its options."""

import sys

from ...keyword_tree import KeywordTreeError

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("one FOLDER, or the address of a tree, is served; keyword-tree-mcp has more options")
    try:
        from .serving import serve

        serve(sys.argv[1])
    except (KeywordTreeError, ImportError) as error:
        sys.exit(str(error))
