"""List the measuring programs, or run them: ``python -m benchmarks [--list] [--full] [NAME …]``.

Each runs in a process of its own, quickly, or with ``--full`` at full size (about an hour, 8 GB of disk); a program's
own options are those of ``python -m benchmarks.NAME --help``. What needs something that is not here says so. Ends with
1 where a program failed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TOOLS = ("peers", "pictures")
"""What is run by its name alone: it measures no speed."""


def programs() -> dict[str, str]:
    """Return each program with the first line of its docstring."""
    files = [*sorted(HERE.glob("bench_*.py")), *(HERE / f"{name}.py" for name in TOOLS)]
    sources = {file.stem: file if file.is_file() else HERE / file.stem / "__main__.py" for file in files}
    texts = {name: ast.get_docstring(ast.parse(source.read_text("utf-8"))) for name, source in sources.items()}
    return {name: (text or "").partition("\n")[0] for name, text in texts.items()}


def main() -> int:
    """Run the program; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: every bench_…")
    parser.add_argument("--list", action="store_true", help="list the programs, and run none")
    parser.add_argument("--full", action="store_true", help="full sizes")
    options = parser.parse_args()
    known = programs()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; --list shows what there is")
    if options.list:
        print("\n".join(f"{name:16} {line}" for name, line in known.items()))
        return 0
    failed = []
    with tempfile.TemporaryDirectory(prefix="keyword-tree-stores-") as stores:
        for name in options.names or [name for name in known if name not in TOOLS]:
            shared = [] if name in TOOLS else ["--stores", stores, *["--quick"] * (not options.full)]
            print(f"\n# {name}: {known[name]}", flush=True)
            if subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}", *shared], cwd=HERE.parent, check=False
            ).returncode:
                failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
