"""The README's comparison: one insert and one look-up by name at a time, and two processes that write at once.

python -m benchmarks.bench_others [--quick] [--rounds N]

KeywordTree beside sqlite3 by hand (WAL, FULL), LangGraph's SqliteStore (of `[peers]`), and MCP's memory server over
stdio (`mcp-server-memory` on the path: npm install @modelcontextprotocol/server-memory).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.keyword_tree import KeywordNode, KeywordTree
from benchmarks import common, sqlite_peer

WRITES = 100  # of each of the two processes


class Store(NamedTuple):
    """What is compared: each takes or finds one name."""

    insert: Callable[[str], object]
    look_up: Callable[[str], object]


@contextmanager
def keyword_tree(folder: Path) -> Iterator[Store]:
    """Keywords under the root."""
    with KeywordTree(str(folder / "tree")) as tree:
        yield Store(lambda name: tree.CreateKeyword(name, "root"), lambda name: tree.FindByName(name)[0])


@contextmanager
def sqlite_by_hand(folder: Path) -> Iterator[Store]:
    """The same rows, one transaction each."""
    connection = sqlite_peer.connect(folder / "hand.db", create=not (folder / "hand.db").exists())

    def add(name: str) -> None:
        node = KeywordNode(str(uuid.uuid4()), name, [], [name], 1, "root", [], "", {}, 1, 0.0, 0.0)
        row = list(sqlite_peer.node_row(node))
        row[sqlite_peer.NODE.split(", ").index("ordinal")] = None  # SQLite counts
        connection.execute(sqlite_peer.INSERT_NODE, row)

    def find(name: str) -> KeywordNode:
        query = f"SELECT {sqlite_peer.NODE} FROM nodes WHERE name_key = ?"
        return sqlite_peer.to_node(connection.execute(query, (sqlite_peer.fold(name),)).fetchone())

    yield Store(add, find)
    connection.close()


@contextmanager
def sqlite_store(folder: Path) -> Iterator[Store]:
    """LangGraph's items of one namespace."""
    try:
        from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found,unused-ignore]  # of `[peers]`
    except ImportError as error:
        raise common.Skip(str(error)) from error
    with SqliteStore.from_conn_string(str(folder / "store.db")) as store:
        store.setup()
        yield Store(lambda name: store.put(("names",), name, {"name": name}), lambda name: store.get(("names",), name))


@contextmanager
def memory_server(folder: Path) -> Iterator[Store]:
    """Entities of MCP's reference server, a process that answers over stdio."""
    command = shutil.which("mcp-server-memory")
    if command is None:
        raise common.Skip("mcp-server-memory is not on the path")
    from anyio.from_thread import start_blocking_portal
    from mcp import Client, StdioServerParameters

    env = {**os.environ, "MEMORY_FILE_PATH": str(folder / "memory.jsonl")}
    server = StdioServerParameters(command=command, args=[], env=env)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server, mode="legacy")) as client:

        def call(tool: str, arguments: dict[str, Any]) -> object:
            result = portal.call(client.call_tool, tool, arguments)
            assert not result.is_error, result
            return result

        def entity(name: str) -> dict[str, Any]:
            return {"name": name, "entityType": "name", "observations": [name]}

        yield Store(
            lambda name: call("create_entities", {"entities": [entity(name)]}),
            lambda name: call("open_nodes", {"names": [name]}),
        )


STORES = {
    "KeywordTree": keyword_tree,
    "sqlite3 by hand": sqlite_by_hand,
    "SqliteStore": sqlite_store,
    "MCP memory server": memory_server,
}


def write_all(name: str, folder: Path, process: int, started: Any) -> None:
    """Write 100 names as one of two processes; a name whose write raised an error is not acknowledged."""
    with STORES[name](folder) as store:
        started.wait(60)
        for number in range(WRITES):
            store.insert(f"{process}-{number}")


def kept(name: str, folder: Path) -> int:
    """Return how many of 200 acknowledged writes of two processes are there afterwards."""
    with STORES[name](folder):
        pass  # the tables are made by one process alone
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Barrier(2)
    processes = [spawn.Process(target=write_all, args=(name, folder, number, started)) for number in range(2)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    if name == "MCP memory server":
        lines = (folder / "memory.jsonl").read_text(encoding="utf-8").splitlines()
        return sum(json.loads(line)["type"] == "entity" for line in lines)
    with STORES[name](folder) as store:
        return sum(found(store, f"{process}-{number}") for process in range(2) for number in range(WRITES))


def found(store: Store, name: str) -> bool:
    """Return whether a name is there."""
    try:
        return store.look_up(name) is not None
    except (IndexError, TypeError):
        return False


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    rounds, count = options.rounds or (3 if options.quick else 9), 200
    with common.working_folder(options) as folder, ExitStack() as stack:
        report = common.Report("Other systems", options, folder)
        stores: dict[str, Store] = {}
        for name, opened in STORES.items():
            try:
                stores[name] = stack.enter_context(opened(folder))
            except common.Skip as reason:
                report.skipped(name, reason)
        times: dict[tuple[str, str], list[float]] = {}
        for number in range(rounds):
            names = [f"name {number * count + n}" for n in range(count)]
            for name in [*stores][number % len(stores) :] + [*stores][: number % len(stores)]:
                for kind in ("insert", "look_up"):
                    call = getattr(stores[name], kind)
                    each = [common.timed(lambda call=call, one=one: call(one)) for one in names]  # type: ignore[misc]
                    times.setdefault((name, kind), []).append(statistics.median(each))
        rows = []
        for name in stores:
            row = [name]
            for kind in ("insert", "look_up"):
                ours, theirs = times["KeywordTree", kind], times[name, kind]
                ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
                row += [f"{statistics.median(theirs) * 1e3:.4f}", f"{ratio:.2f}"]
            (folder / "two" / name).mkdir(parents=True)
            rows.append([*row, str(kept(name, folder / "two" / name))])
        head = ["", "insert ms", "to KeywordTree", "look-up ms", "to KeywordTree", "kept of 200"]
        report.table(f"One call at a time, growing to {rounds * count:,} names", head, rows)


if __name__ == "__main__":
    run(common.parser(__doc__).parse_args())
