"""Run every measuring program: ``python -m benchmarks`` quickly, ``python -m benchmarks --full`` wholly.

The made stores are shared between the programs; other options are those of each program (see ``--help``).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import bench_methods, bench_open, bench_search, bench_write, common


def main() -> None:
    """Run all programs one after another."""
    parser = common.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="full sizes: about three quarters of an hour, 8 GB of disk")
    options = parser.parse_args()
    options.quick = not options.full
    with tempfile.TemporaryDirectory(prefix="keyword-tree-stores-", dir=options.dir) as made:
        options.stores = options.stores or Path(made)
        for program in (bench_search, bench_open, bench_write, bench_methods):
            program.run(options)


if __name__ == "__main__":
    main()
