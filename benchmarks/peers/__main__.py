"""Run other projects' own tests on the adapters: `make peers`.

    python -m benchmarks.peers        # all
    python -m benchmarks.peers mcp    # one

Their files are fetched at a fixed commit, from GitHub or from the folder of mirrors that KEYWORD_TREE_PEERS names, into
`.peers`. What cannot be fetched is skipped, and said. Ends with 1 where less passes than the documents promise.
"""

import importlib
import sys

from .fetching import CannotFetchError

SUITES = {"mcp": "mcp_suite", "langgraph": "langgraph_suite", "mem0": "mem0_suite"}


def main(names: list[str]) -> int:
    """Run the suites of these names, all by default; return the exit code."""
    code = 0
    for name in names or list(SUITES):
        if name not in SUITES:
            print(f"no peer is called {name!r}; known: {', '.join(SUITES)}", file=sys.stderr)
            return 2
        try:
            suite = importlib.import_module(f".{SUITES[name]}", __package__)
            code |= 0 if suite.main() else 1
        except (CannotFetchError, ImportError) as error:
            print(f"{name}: skipped, {error}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
