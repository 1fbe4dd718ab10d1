"""Which test notices when a safeguard of the store is missing?

What: each line of `Agent/tests/safeguards.jsonl` names a safeguard (a sync, a comparison of a checksum, a lock, …), the
function it is in, its code, and what stands there without it. One at a time is taken away in a copy of
`Agent/keyword_tree.py`, and the tests of the store run against that copy until the first one fails.

Why: a test that never fails proves nothing. A safeguard that no test misses is either useless or unguarded.

Wanted: every one is noticed, but those that say why they cannot be ("harmless"); and every one is found in the module.

How: everything happens in a copy in the temporary folder. First the test that noticed last time ("noticed"); then the
tests of handlers and faults, the store's part of the contract's tests, those of logs elsewhere, and those with real
processes. What takes several times as long as without the mutation hangs, which counts as noticed. The exit code says
whether anything was not noticed, or was not found.

Repeat: ``python -m benchmarks.mutate_store`` (``--only sync`` for those whose name holds a word, ``--jobs 4``;
``--again`` for the test that noticed last time alone; ``--keep`` writes into the table who noticed).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HOME = Path(__file__).resolve().parents[1]
TABLE = HOME / "Agent" / "tests" / "safeguards.jsonl"
STORE_TESTS = "Torn or Damage or Projections or Log or Sync or Files or FailedWrite or FailedSync or Kill or Threads"
METHOD_TESTS = "History or Changes or Undo or Snapshot or Compact or Surroundings or Verify or Operation"
STAGES = (
    ("Agent/tests/store/test_safeguards_alone.py",),
    ("Agent/tests/store/test_handlers.py",),
    ("Agent/tests/store/faults",),
    ("Agent/test_keyword_tree.py", "-k", f"{STORE_TESTS} or Instances or Errors or Close or Links or CustomIds"),
    ("Agent/tests/methods/test_methods.py", "-k", METHOD_TESTS),
    ("Agent/tests/methods/test_regressions.py",),
    ("Agent/tests/methods/test_at.py",),
    ("Agent/tests/methods/test_overlay.py",),
    ("Agent/tests/shared_tree/test_conformance.py", "-k", "folder or memory"),
    ("Agent/tests/shared_tree/test_store.py",),
    ("Agent/tests/concurrency/test_together.py",),
    ("Agent/tests/store/test_processes.py",),
)
PATIENCE = 4
"""What takes so many times as long as without a mutation, and half a minute more, hangs."""


# == Safeguards ===========================================================================================


class SafeguardError(Exception):
    """A safeguard is not where the table says, or not as often."""


class Safeguard(NamedTuple):
    """A line of the table."""

    name: str
    function: str
    """`Class.Method` or `Function` that holds it; "" for the module."""
    code: str
    """What stands in that function, comments left out; lines after its first keep their indentation."""
    without: str
    """What stands there when the safeguard is taken away."""
    times: int = 1
    """How often the code is there; all are replaced."""
    noticed: str = ""
    """`module: test` that notices when it is missing."""
    harmless: str = ""
    """Why no test can miss it, where none can."""

    def taken_from(self, source: str) -> str:
        """Return a module's text without comments and without the safeguard; SafeguardError where it is not there."""
        before, function, after = self.parts_of(source)
        return "\n".join([*before, function.replace(self.code, self.without), *after])

    def parts_of(self, source: str) -> tuple[list[str], str, list[str]]:
        """Return the lines before the function that holds it, that function's text, and the lines after it."""
        lines, places = _read(source)
        if self.function not in places:
            raise SafeguardError(f"{self.name}: there is no {self.function}")
        start, stop = places[self.function]
        text = "\n".join(lines[start:stop])
        if (count := text.count(self.code)) != self.times:
            raise SafeguardError(f"{self.name}: {self.code!r} is {count} times in {self.function}, not {self.times}")
        return lines[:start], text, lines[stop:]


def read_table(path: Path = TABLE) -> list[Safeguard]:
    """Return the safeguards in the order of the table."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [Safeguard(function=row.pop("in"), **row) for row in rows]


def write_table(safeguards: Sequence[Safeguard], path: Path = TABLE) -> None:
    """Write the table; what has its default value is left out."""
    with path.open("w", encoding="utf-8") as table:
        for each in safeguards:
            row: dict[str, object] = {"name": each.name, "in": each.function, "code": each.code}
            row |= {"times": each.times} if each.times > 1 else {}
            row |= {"without": each.without}
            row |= {name: value for name in ("noticed", "harmless") if (value := getattr(each, name))}
            table.write(json.dumps(row, ensure_ascii=False) + "\n")


@functools.lru_cache(2)  # every safeguard asks for the same text
def _read(source: str) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Return the lines of a module without comments, and which of them each function and class has."""
    lines = source.split("\n")
    bare: dict[int, str] = dict(enumerate(lines))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start[0] - 1, token.start[1]
            bare[row] = lines[row][:column].rstrip()
            if not bare[row]:
                del bare[row]
    kept = list(bare.values())
    places = {"": (0, len(kept))}

    def visit(parent: ast.AST, prefix: str) -> None:
        for node in ast.iter_child_nodes(parent):
            inner = prefix
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert node.end_lineno is not None
                places[prefix + node.name] = (node.lineno - 1, node.end_lineno)
                inner = f"{prefix}{node.name}."
            visit(node, inner)

    visit(ast.parse("\n".join(kept)), "")
    return kept, places


# == Running ==============================================================================================


class Found(NamedTuple):
    """What became of a safeguard that was taken away."""

    test: str
    """Which test noticed it, `module: test`; "" for none."""
    text: str
    """The same in Markdown, or why there is none."""
    seconds: float
    is_well: bool
    """Whether it was noticed, or need not be."""


def main() -> int:
    """Take safeguards away; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--again", action="store_true", help="run nothing but the test that noticed last time")
    parser.add_argument("--keep", action="store_true", help="write into the table who noticed")
    options = parser.parse_args()
    if hasattr(os, "nice"):
        os.nice(10)
    table = read_table()
    chosen = [each for each in table if options.only in each.name]
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        found = try_all(chosen, Path(name), options.jobs, () if options.again else STAGES)
    if options.keep:
        noticed = {each.name: result.test for each, result in zip(chosen, found, strict=True) if result.test}
        write_table([each._replace(noticed=noticed.get(each.name, each.noticed)) for each in table])
    failures = sum(not each.is_well for each in found)
    print(f"\n{len(chosen)} safeguards, {failures} of them unnoticed or not found.")
    return 1 if failures else 0


def try_all(chosen: Sequence[Safeguard], folder: Path, jobs: int, stages: Sequence[Sequence[str]]) -> list[Found]:
    """Take safeguards away, some at once, and print what notices."""
    for source in needed():  # once, so that no test changes meanwhile
        target = folder / "unchanged" / source.relative_to(HOME)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    module = (folder / "unchanged" / "Agent" / "keyword_tree.py").read_text("utf-8")
    limits = Limits(folder / "unchanged")

    def try_one(safeguard: Safeguard) -> Found:
        try:
            changed = safeguard.taken_from(module)
        except SafeguardError as error:
            return Found("", f"**not found**: {error}", 0, False)
        place = Path(tempfile.mkdtemp(dir=folder))
        ignored = shutil.ignore_patterns("tmp*")  # of tests that run there meanwhile, unchanged
        shutil.copytree(folder / "unchanged", place, ignore=ignored, dirs_exist_ok=True)
        (place / "Agent" / "keyword_tree.py").write_text(changed, "utf-8")
        begun = time.monotonic()
        try:
            test = noticed_by(place, safeguard.noticed, limits, stages)
        finally:
            shutil.rmtree(place, ignore_errors=True)  # a process that was stuck may still write there
        seconds = time.monotonic() - begun
        if test:
            return Found(test, f"`{test}`", seconds, True)
        if safeguard.harmless:
            return Found("", f"nothing, and need not be: {safeguard.harmless}", seconds, True)
        return Found("", "**nothing**", seconds, False)

    print("| without | noticed by | seconds |\n|---|---|---:|")
    results = []
    with ThreadPoolExecutor(jobs) as pool:
        for safeguard, found in zip(chosen, pool.map(try_one, chosen), strict=True):
            results.append(found)
            print(f"| {safeguard.name} | {found.text} | {found.seconds:.0f} |", flush=True)
    return results


class Limits:
    """How long each stage may take, found out with the module unchanged when a stage is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: defaultdict[Sequence[str], threading.Lock] = defaultdict(threading.Lock)
        self._limits: dict[Sequence[str], float] = {}

    def of(self, stage: Sequence[str]) -> float:
        """Return how long a stage may take, in seconds."""
        with self._locks[stage]:
            if stage not in self._limits:
                begun = time.monotonic()
                if failed := run_tests(stage, self._folder, 3600):
                    raise SystemExit(f"The unchanged module fails {failed}: fix that first.")
                self._limits[stage] = 30 + PATIENCE * (time.monotonic() - begun)
            return self._limits[stage]


def noticed_by(folder: Path, likely: str, limits: Limits, stages: Sequence[Sequence[str]]) -> str | None:
    """Run the tests in a folder, the likely one first; return the first one that fails."""
    if likely:
        module, _, name = likely.partition(": ")
        for path in (folder / "Agent").rglob(f"{module}.py"):
            stage = (str(path.relative_to(folder)), "-k", name)
            if test := run_tests(stage, folder, limits.of(stage)):
                return test
    return next((test for stage in stages if (test := run_tests(stage, folder, limits.of(stage)))), None)


def run_tests(stage: Sequence[str], folder: Path, limit_s: float) -> str | None:
    """Run tests in a folder, with the module that is there; return the first one that fails."""
    if not (folder / stage[0]).exists():
        return None
    command = [sys.executable, "-m", "pytest", *stage, "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    own = Path(tempfile.mkdtemp(dir=folder))  # several may run beside one another
    command += ["--basetemp", str(own / "pytest")]
    # Tests start programs of their own: these, too, are to find the module of this folder, not one that is installed.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with (own / "output").open("wb") as output_file:  # a pipe would wait for a stuck child that inherited it
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output_file, stderr=output_file, start_new_session=True
        )
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that the tests end the processes that they have started
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"{Path(stage[0]).stem}: hangs"
    if process.returncode in (0, 5):  # passed, or none was chosen
        return None
    output = (own / "output").read_text("utf-8", "replace")
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+)\.py::(?:\w+::)*(\w+)", output, re.MULTILINE)
    return f"{failed[1]}: {failed[2]}" if failed else f"{Path(stage[0]).stem}: {output[-300:]!r}"


def needed() -> Iterator[Path]:
    """Yield what the tests need."""
    yield from (HOME / "Agent").rglob("*.py")
    yield from (HOME / name for name in ("pyproject.toml", "conftest.py"))


if __name__ == "__main__":
    sys.exit(main())
