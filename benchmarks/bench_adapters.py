"""What the adapters cost, each beside the peer whose place it takes, in one run.

python -m benchmarks.bench_adapters [--quick] [--only store,mcp]

store  `KeywordTreeStore` beside LangGraph's SqliteStore (a file) and InMemoryStore
mcp    `keyword-tree-mcp` beside the reference memory server, both over stdio (needs Node, and `make peers` once)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

BATCH = 1_000


def milliseconds(seconds: Sequence[float]) -> str:
    """Return the median as text in milliseconds."""
    value = statistics.median(seconds) * 1e3
    return f"{value:,.3f}" if value < 1 else f"{value:,.1f}"


# == LangGraph ================================================================================


def measure_stores(options: argparse.Namespace, folder: Path, report: common.Report) -> None:
    """Load, put, get, list and filter, in every store in turn."""
    try:
        from langgraph.store.base import PutOp
        from langgraph.store.memory import InMemoryStore
        from langgraph.store.sqlite import SqliteStore  # type: ignore[import-not-found,unused-ignore]  # of `[peers]`
    except ImportError as error:
        raise common.Skip(str(error)) from error
    from Agent.adapters.langgraph import KeywordTreeStore

    count = 1_000 if options.quick else 10_000
    rounds = options.rounds or (5 if options.quick else 15)
    with ExitStack() as stack:
        stores: dict[str, Any] = {
            "ours": stack.enter_context(KeywordTreeStore.from_folder(str(folder / "tree"))),
            "SqliteStore": stack.enter_context(SqliteStore.from_conn_string(str(folder / "store.db"))),
            "InMemoryStore": InMemoryStore(),
        }
        stores["SqliteStore"].setup()
        load = _loader(PutOp, count)
        loaded = common.interleaved(1, {name: partial(_timed_twice, load, store) for name, store in stores.items()})
        for store in stores.values():
            store.get(("users", "0"), "0")
        results = {
            "loading, items a second": {name: [count / each[0][0]] for name, each in loaded.items()},
            "loading, items a second of CPU": {name: [count / each[0][1]] for name, each in loaded.items()},
        }
        for title, work in _calls(count).items():
            results[title] = common.interleaved(rounds, {name: _bind(work, store) for name, store in stores.items()})
        ours = stores["ours"]
        words = [common.timed(partial(ours.search, ("users", "7"), query=f"word{n}")) for n in range(rounds)]
        everywhere = [common.timed(partial(ours.search, (), query=f"word{n} item")) for n in range(rounds)]
    _tell_stores(report, results, count)
    report.line(
        f"\nBy words, ours alone: {milliseconds(words)} ms in a namespace, {milliseconds(everywhere)} ms in all."
    )


def _timed_twice(work: Callable[[Any], object], store: Any) -> tuple[float, float]:
    """Return how long it takes, and for how long of that this process computes: a busy machine delays the first."""
    began, computed = time.perf_counter(), time.process_time()
    work(store)
    return time.perf_counter() - began, time.process_time() - computed


def _loader(put_op: Any, count: int) -> Callable[[Any], None]:
    def load(store: Any) -> None:
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            store.batch([put_op(("users", str(n % 100)), str(n), _value(n)) for n in numbers])

    return load


def _value(number: int) -> dict[str, Any]:
    return {"text": f"item {number} says word{number % 500}", "n": number, "tags": ["a", "b"], "in": {"k": number % 7}}


def _calls(count: int) -> dict[str, Callable[[Any, int], object]]:
    """Return what is measured: title → a call, by the number of the round."""
    return {
        "put": lambda store, n: store.put(("new", str(n % 5)), f"key{n}", _value(n)),
        "get": lambda store, n: [store.get(("users", str(k % 100)), str(k)) for k in range(n, n + 100)],
        "ten of a namespace": lambda store, n: store.search(("users", str(n % 100)), limit=10),
        "namespaces": lambda store, n: store.list_namespaces(limit=100),
        "a filter over all": lambda store, n: store.search((), filter={"n": {"$gte": count - 5}}, limit=10),
    }


def _bind(work: Callable[[Any, int], object], store: Any) -> Callable[[], float]:
    numbers = iter(range(1_000_000))

    def run() -> float:
        number = next(numbers)
        return common.timed(lambda: work(store, number))

    return run


def _tell_stores(report: common.Report, results: Mapping[str, Mapping[str, Sequence[float]]], count: int) -> None:
    rows = []
    for title, times in results.items():
        is_rate = title.startswith("loading")
        scale = 100 if title == "get" else 1
        cells = [
            f"{statistics.median(each):,.0f}" if is_rate else milliseconds([one / scale for one in each])
            for each in times.values()
        ]
        rows.append([title, *cells, f"{common.median_ratio(times['ours'], times['SqliteStore']):.2f}"])
    report.table(
        f"Stores, {count:,} items in 100 namespaces, ms", ["", "ours", "SqliteStore", "InMemoryStore", "÷ Sqlite"], rows
    )
    for title, limit in (("put", 0.5), ("get", 2.0), ("a filter over all", 2.0)):
        ratio = common.median_ratio(results[title]["ours"], results[title]["SqliteStore"])
        report.target(f"{title}, ours ÷ SqliteStore", ratio, limit, at_most=True)
    report.target("loading, items a second", results["loading, items a second"]["ours"][0], 6_000)


# == MCP ======================================================================================


def measure_servers(options: argparse.Namespace, folder: Path, report: common.Report) -> None:
    """Make entities one by one, then look for them, over stdio."""
    try:
        from mcp import Client, StdioServerParameters

        from benchmarks.peers import fetching, mcp_suite
    except ImportError as error:
        raise common.Skip(str(error)) from error
    try:
        reference = mcp_suite.prepare()
    except fetching.CannotFetchError as error:
        raise common.Skip(str(error)) from error
    count = 200 if options.quick else 2_000
    ours = StdioServerParameters(
        command=sys.executable,
        args=["-m", "Agent.cli.command_line", "mcp", str(folder / "mcp")],
        env={**os.environ, "PYTHONPATH": str(common.ROOT)},
    )
    theirs = StdioServerParameters(
        command="node",
        args=[str(reference / "dist/index.js")],
        env={**os.environ, "MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
    )

    async def call_all(server: StdioServerParameters) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {}
        async with Client(server, mode="legacy") as client:

            async def call(title: str, name: str, **arguments: Any) -> None:
                began = time.perf_counter()
                result = await client.call_tool(name, arguments)
                times.setdefault(title, []).append(time.perf_counter() - began)
                assert not result.is_error, result

            for n in range(count):
                entity = {"name": f"entity {n}", "entityType": f"type {n % 7}", "observations": [f"says word{n}"]}
                title = "create_entities, the last tenth" if n >= count * 9 // 10 else "create_entities, before"
                await call(title, "create_entities", entities=[entity])
            for n in range(50):
                await call("search_nodes", "search_nodes", query=f"word{n * 3}")
                await call("open_nodes", "open_nodes", names=[f"entity {n * 3}"])
            for _ in range(5):
                await call("read_graph", "read_graph")
        return times

    measured = {"ours": asyncio.run(call_all(ours)), "server-memory": asyncio.run(call_all(theirs))}
    rows = []
    for title, times in measured["ours"].items():
        other = measured["server-memory"][title]
        ratio = statistics.median(times) / statistics.median(other)
        rows.append([title, milliseconds(times), milliseconds(other), f"{ratio:.2f}"])
    caption = f"MCP servers over stdio, {count:,} entities, ms a call (ours is on the disk when it answers)"
    report.table(caption, ["", "ours", "server-memory", "ratio"], rows)


PARTS = {"store": measure_stores, "mcp": measure_servers}


def run(options: argparse.Namespace) -> None:
    """Measure what is wanted, and report."""
    with common.working_folder(options) as folder:
        report = common.Report("Adapters", options, folder)
        for name, measure in PARTS.items():
            if common.wanted(options, name):
                try:
                    measure(options, folder, report)
                except common.Skip as reason:
                    report.skipped(name, reason)


if __name__ == "__main__":
    run(common.parser(__doc__).parse_args())
