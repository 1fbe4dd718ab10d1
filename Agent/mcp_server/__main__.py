# ruff: noqa: N999  the package is named as the folder beside WeaveAgent.py is
"""The former path of `adapters.mcp`, for one release."""

import sys

from ..adapters import warn_moved
from ..adapters.mcp.__main__ import main

warn_moved(__name__, "adapters.mcp")

if __name__ == "__main__":
    sys.exit(main())
