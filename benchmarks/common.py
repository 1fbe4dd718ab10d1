"""What the measuring programs share: options, interleaved rounds, worker processes, memory, tables.

Machines are noisy, and disks have fast and slow minutes. So nothing here quotes a time alone: every contender
runs in every round, in an order that rotates; a ratio is taken inside each round; and the median of the
ratios is what counts. A contender that keeps a lot in memory runs in a process of its own and is asked for
one round at a time, so that neither its memory nor its garbage collector touches the others.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import re
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
"""The repository."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Skip(Exception):  # noqa: N818  (nothing went wrong)
    """A part that cannot be measured here; the text says why."""


# == Options and places ======================================================================


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every program here understands.

    Args:
        doc: the program's docstring, shown by ``--help``.
    """
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="small sizes and few rounds: a minute, not ten")
    made.add_argument("--rounds", type=int, default=0, help="rounds of every measurement (default: what fits each)")
    made.add_argument("--dir", type=Path, default=None, help="write in this folder (default: the temporary one)")
    made.add_argument("--stores", type=Path, default=None, help="keep made stores here and use them again")
    made.add_argument("--out", type=Path, default=None, help="also append the report to this file")
    made.add_argument("--json", type=Path, default=None, help="also append every table to this file, a JSON line each")
    made.add_argument("--only", default="", help="comma-separated names of the parts to run")
    return made


def wanted(options: argparse.Namespace, name: str) -> bool:
    """Tell whether the part called `name` is to run."""
    return not options.only or name in options.only.split(",")


def data_folder() -> Path:
    """Return the folder of the real trees: `KEYWORD_TREE_BENCHMARK_DATA`, or `../shared/data` beside the repository.

    Raises:
        Skip: it is not there.
    """
    folder = Path(os.environ.get("KEYWORD_TREE_BENCHMARK_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        raise Skip("the real trees are not here: set KEYWORD_TREE_BENCHMARK_DATA to their folder")
    return folder


@contextlib.contextmanager
def working_folder(options: argparse.Namespace) -> Iterator[Path]:
    """Yield an empty folder on the file system to be measured; it is removed at the end."""
    if options.dir:
        options.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="keyword-tree-bench-", dir=options.dir))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def file_system(path: Path) -> str:
    """Return the type of the file system that holds `path` ("ext4", "tmpfs", …), or "unknown"."""
    best, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            mount = left.split()[4]
            inside = str(path.resolve()).startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, right.split()[0]
    return kind


def main(doc: str | None, run: Callable[[argparse.Namespace], None], roles: Mapping[str, Any] | None = None) -> None:
    """Run a program, or one of its own workers (see `serve`)."""
    if not serve(roles or {}):
        run(parser(doc).parse_args())


def run_parts(
    title: str, parts: Mapping[str, Callable[[Report, Path, argparse.Namespace], None]], options: argparse.Namespace
) -> None:
    """Run the parts of a program that are wanted, each in a folder of its own."""
    with working_folder(options) as scratch:
        report = Report(title, options, scratch)
        for name, part in parts.items():
            if wanted(options, name):
                report.line(f"\n### {name}")
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    try:
                        part(report, Path(folder), options)
                    except Skip as reason:
                        report.skipped(name, reason)


# == Numbers =================================================================================


def timed(work: Callable[[], object]) -> float:
    """Return how long it takes, in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 … 1) of `values` lie, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the ratios taken round by round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def interleaved(rounds: int, contenders: Mapping[K, Callable[[], T]]) -> dict[K, list[T]]:
    """Run every contender once in every round, in an order that moves on by one each time."""
    names = list(contenders)
    results: dict[K, list[T]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            results[name].append(contenders[name]())
    return results


def microseconds(seconds: float) -> str:
    """Return a duration as text in microseconds."""
    value = seconds * 1e6
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


# == Memory of this process ==================================================================


def _status_mb(field: str) -> float | None:
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        if found:
            return int(found[1]) / 1024
    return None


def rss_mb() -> float:
    """Return the resident memory now, in MiB (the peak, where the system does not tell)."""
    return _status_mb("VmRSS") or peak_rss_mb()


def peak_rss_mb() -> float:
    """Return the peak of resident memory in MiB.

    `VmHWM` comes first: `ru_maxrss` of a fresh process starts at what its parent held when it forked.
    """
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return _status_mb("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Switch the garbage collector off for a while, as any loader of many objects should."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# == Worker processes ========================================================================


class Worker:
    """A process of its own that answers questions: one JSON object in, one out, per line."""

    def __init__(self, module: str, role: str, **arguments: object) -> None:
        """Start ``python -m module --worker role`` with `arguments` (which JSON must carry)."""
        command = [sys.executable, "-m", module, "--worker", role, json.dumps(arguments)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, **message: object) -> None:
        """Ask without waiting; `receive` brings the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            RuntimeError: the worker ended instead (its own words are on stderr).
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"worker ended with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **message: object) -> dict[str, Any]:
        """Ask and wait for the answer."""
        self.send(**message)
        return self.receive()

    def close(self) -> None:
        """End the worker by closing its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(roles: Mapping[str, Callable[..., Callable[..., dict[str, Any]]]]) -> bool:
    """Answer as a worker if this process was started as one.

    Args:
        roles: role name → a function that takes the worker's arguments and returns what answers.

    Returns:
        False where this process is no worker; True when a worker's input has ended.
    """
    if sys.argv[1:2] != ["--worker"]:
        return False
    answers, sys.stdout = sys.stdout, sys.stderr
    answer = roles[sys.argv[2]](**json.loads(sys.argv[3]))
    for line in sys.stdin:
        answers.write(json.dumps(answer(**json.loads(line))) + "\n")
        answers.flush()
    return True


# == Report ==================================================================================


class Report:
    """Markdown on stdout, and in a file where asked for."""

    def __init__(self, title: str, options: argparse.Namespace, folder: Path) -> None:
        """Begin with the machine's facts; `folder` is where the data lies."""
        self._out: Path | None = options.out
        self._json: Path | None = options.json
        kind = file_system(folder)
        self.line(f"\n## {title}\n")
        self._facts = (
            f"{time.strftime('%Y-%m-%d', time.gmtime())}, Python {platform.python_version()}, "
            f"sqlite {sqlite3.sqlite_version}, {platform.system()} {platform.release()}, "
            f"{os.cpu_count()} cores, data on {kind}; `{_command()}`"
        )
        self.line(self._facts)
        if kind == "tmpfs":
            self.line("\n**The data lies in memory (tmpfs): nothing here says what a durable write costs.**")

    def line(self, text: str) -> None:
        """Print one line (or several)."""
        print(text, flush=True)
        if self._out:
            with self._out.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

    def table(self, caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a caption and a table; the first column is text, the others numbers."""
        self.line(f"\n**{caption}**\n")
        self.line("| " + " | ".join(columns) + " |")
        self.line("|" + "|".join(["---"] + ["---:"] * (len(columns) - 1)) + "|")
        for row in rows:
            self.line("| " + " | ".join(str(cell) for cell in row) + " |")
        if self._json:
            table = {"facts": self._facts, "caption": caption, "columns": columns, "rows": rows}
            with self._json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(table, ensure_ascii=False, default=str) + "\n")

    def target(self, text: str, value: float, limit: float, *, at_most: bool = False) -> None:
        """Print whether `value` keeps to its `limit`."""
        kept = value <= limit if at_most else value >= limit
        bound = "at most" if at_most else "at least"
        self.line(f"\n- {'kept' if kept else '**MISSED**'}: {text}: {value:.2f} ({bound} {limit:g})")

    def skipped(self, part: str, reason: object) -> None:
        """Print why a part was left out."""
        self.line(f"\n{part}: skipped, {reason}")


_PLACES = ("--dir", "--stores", "--out", "--json")


def _command() -> str:
    """Return how this run was started, without the folders that differ from machine to machine."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if not skip and not word.startswith(_PLACES):
            words.append(word)
        skip = word in _PLACES
    module = Path(sys.argv[0])
    name = "benchmarks" if module.stem == "__main__" else f"benchmarks.{module.stem}"
    return " ".join(["python", "-m", name, *words])
