"""The reference memory server: its own tests on `keyword-tree-mcp`, and two servers of each on one memory."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client, StdioServerParameters

from Agent.keyword_tree import KeywordTree

from .fetching import ROOT, fetch, run

REPOSITORY = "modelcontextprotocol/servers"
COMMIT = "76d64c822f5125032f89eb71dbdb94e42b434821"
REQUIRED = 34
"""Of 36 tests; two read the reference's own file."""

WRITES = 1_000


def prepare() -> Path:
    """Fetch the reference server, install what it needs, and build it."""
    folder = fetch(REPOSITORY, COMMIT, "src/memory")
    fetch_config = folder.parents[1] / "tsconfig.json"
    if not fetch_config.exists():
        run(["git", "checkout", "--quiet", "FETCH_HEAD", "--", "tsconfig.json"], folder.parents[1])
    if not (folder / "node_modules").is_dir():
        run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    if not (folder / "dist" / "index.js").exists():
        run(["npx", "tsc"], folder)
    return folder


def run_their_tests(folder: Path) -> tuple[int, int, list[str]]:
    """Return how many of the reference's tests pass, of how many, and the names of those that fail."""
    ours = folder / "ours"
    shutil.rmtree(ours, ignore_errors=True)
    (ours / "__tests__").mkdir(parents=True)
    shutil.copy(folder / "__tests__" / "knowledge-graph.test.ts", ours / "__tests__")
    shutil.copy(Path(__file__).with_name("memory_client.ts"), ours / "index.ts")
    environment = {
        **os.environ,
        "KEYWORD_TREE_MCP": json.dumps([sys.executable, "-m", "Agent.cli.command_line", "mcp"]),
        "PYTHONPATH": str(ROOT),
    }
    command = ["npx", "vitest", "run", "ours", "--reporter=json", "--testTimeout=60000", "--hookTimeout=60000"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    results = [test for file in report["testResults"] for test in file["assertionResults"]]
    failed = [test["fullName"] for test in results if test["status"] != "passed"]
    return len(results) - len(failed), len(results), failed


async def _write(server: StdioServerParameters, name: str) -> int:
    """Make 1,000 entities, and return how many of them the server says are made."""
    made = 0
    async with Client(server, mode="legacy") as client:
        for number in range(WRITES):
            entity = {"name": f"{name} {number}", "entityType": "entry", "observations": []}
            made += not (await client.call_tool("create_entities", {"entities": [entity]})).is_error
    return made


def write_from_two(server: StdioServerParameters) -> tuple[int, float]:
    """Let two servers write 1,000 entities each; return how many they say are made, and the seconds."""

    async def both() -> int:
        return sum(await asyncio.gather(_write(server, "a"), _write(server, "b")))

    began = time.perf_counter()
    made = asyncio.run(both())
    return made, time.perf_counter() - began


def compare(folder: Path) -> dict[str, tuple[int, int, float]]:
    """Return how many of 2,000 entities are said to be made, how many are there, and the seconds, for both servers."""
    with tempfile.TemporaryDirectory() as temporary:
        ours = StdioServerParameters(
            command=sys.executable,
            args=["-m", "Agent.cli.command_line", "mcp", f"{temporary}/memory"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        made, seconds = write_from_two(ours)
        with KeywordTree(f"{temporary}/memory") as tree:
            results = {"keyword-tree-mcp": (made, tree.TreeMetrics()["leaves"], seconds)}
        file = Path(temporary, "memory.jsonl")
        theirs = StdioServerParameters(
            command="node", args=[str(folder / "dist/index.js")], env={**os.environ, "MEMORY_FILE_PATH": str(file)}
        )
        made, seconds = write_from_two(theirs)
        rows = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        results["server-memory"] = (made, len({row for row in rows if _is_row(row)}), seconds)
    return results


def _is_row(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def main() -> bool:
    """Run both, print what came of it, and tell whether it is as promised."""
    folder = prepare()
    passed, total, failed = run_their_tests(folder)
    print(f"server-memory's tests on keyword-tree-mcp: {passed} of {total} pass ({REQUIRED} promised)")
    for name in failed:
        print(f"  fails: {name}")
    results = compare(folder)
    for name, (made, left, seconds) in results.items():
        print(f"two of {name}, {WRITES:,} entities each: {made:,} said to be made, {left:,} there, {seconds:.1f} s")
    return passed >= REQUIRED and results["keyword-tree-mcp"][1] == 2 * WRITES
