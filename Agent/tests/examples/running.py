"""How an example is run: as `python examples/NAME` would, in this process, which has imported what it needs."""

import contextlib
import io
import os
import runpy
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]


class Done(NamedTuple):
    """What an example wrote, and how it ended."""

    stdout: str
    stderr: str
    returncode: int


def run(name: str, *words: str, check: bool = True, environment: Mapping[str, str] = {}) -> Done:
    """Run an example of `examples/` to its end, with nothing but that in its environment."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    path = str(ROOT / "examples" / name)
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", [path, *words]),
        mock.patch.object(sys, "path", [*sys.path]),
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(action="error"),
    ):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            print(end.code if isinstance(end.code, str) else "", file=errors)
    assert code == 0 or not check, errors.getvalue()
    return Done(out.getvalue(), errors.getvalue(), code)
