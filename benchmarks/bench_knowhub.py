"""Measure KnowHub: `python -m benchmarks.bench_knowhub [--entries 5000] [--seconds 5]`.

Its server beside a plain one over FastAPI and sqlite (WAL, synchronous=FULL, FTS5), each in a process of its own, with
the same client and the same entries, in turns within one run; then its recall among 30,000 entries; then whether the
feedback of eight processes is all there. Ratios count: the machine's own speed is in both sides.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONNECTIONS = 16
COMMON = 8_000
"""So many words there are; each is as frequent as its place in the order says (Zipf), as in real texts."""

WORDS = [
    "".join(random.Random(place).choices("bcdfgklmnprstv", k=2 + place % 5)) + f"{place}a" for place in range(COMMON)
]
WEIGHTS = [1 / (place + 10) for place in range(COMMON)]


def words(chooser: random.Random, count: int) -> str:
    """Return some words."""
    return " ".join(chooser.choices(WORDS, WEIGHTS, k=count))


def entry(number: int, chooser: random.Random) -> dict[str, Any]:
    """Return an entry of some 60 words."""
    return {"task": f"{words(chooser, 8)} {number}", "content": words(chooser, 50), "types": ["tool"]}


# The plain server


def plain_app(path: str) -> Any:
    """Return what one would write in an afternoon: the same four calls over sqlite."""
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel

    local = threading.local()

    def base() -> sqlite3.Connection:
        if not hasattr(local, "base"):
            local.base = sqlite3.connect(path, timeout=30)
            local.base.execute("PRAGMA journal_mode=WAL")
            local.base.execute("PRAGMA synchronous=FULL")
        connection: sqlite3.Connection = local.base
        return connection

    base().executescript(
        "CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, body TEXT, helpful INTEGER DEFAULT 0);"
        "CREATE TABLE IF NOT EXISTS feedback (id INTEGER PRIMARY KEY, entry INTEGER, body TEXT);"
        "CREATE VIRTUAL TABLE IF NOT EXISTS text USING fts5 (task, content)"
    )

    class In(BaseModel):
        task: str
        content: str
        types: list[str]

    class Update(BaseModel):
        add_helpful_case: dict[str, Any]

    app = FastAPI()

    @app.post("/api/knowledge", status_code=201)
    def save(body: In) -> JSONResponse:
        with base() as connection:
            id = connection.execute("INSERT INTO entry (body) VALUES (?)", (body.model_dump_json(),)).lastrowid
            row = (id, body.task, body.content)
            connection.execute("INSERT INTO text (rowid, task, content) VALUES (?, ?, ?)", row)
        return JSONResponse({"entry": {"id": str(id)}}, 201)

    @app.get("/api/knowledge/search")
    def search(q: str, top_k: int = 5) -> JSONResponse:
        wanted = " OR ".join(f'"{word}"' for word in q.split())
        rows = base().execute(
            "SELECT entry.id, body, helpful FROM text JOIN entry ON entry.id = text.rowid WHERE text MATCH ? "
            "ORDER BY bm25(text) LIMIT ?",
            (wanted, 2 * top_k),
        )
        found = [{"id": str(id), **json.loads(body), "helpful": helpful} for id, body, helpful in rows]
        return JSONResponse({"results": sorted(found, key=lambda row: -row["helpful"])[:top_k]})

    @app.get("/api/knowledge/{id}")
    def get(id: int) -> JSONResponse:
        body, helpful = base().execute("SELECT body, helpful FROM entry WHERE id = ?", (id,)).fetchone()
        cases = base().execute("SELECT body FROM feedback WHERE entry = ? ORDER BY id DESC LIMIT 20", (id,)).fetchall()
        return JSONResponse(
            {"id": str(id), **json.loads(body), "helpful": helpful, "cases": [json.loads(c[0]) for c in cases]}
        )

    @app.put("/api/knowledge/{id}")
    def update(id: int, body: Update) -> JSONResponse:
        with base() as connection:
            case = json.dumps(body.add_helpful_case)
            connection.execute("INSERT INTO feedback (entry, body) VALUES (?, ?)", (id, case))
            connection.execute("UPDATE entry SET helpful = helpful + 1 WHERE id = ?", (id,))
        return get(id)

    return app


def serve(kind: str, folder: str, port: int) -> None:
    """Serve one of the two, in this process."""
    import uvicorn

    if kind == "plain":
        app = plain_app(f"{folder}/plain.db")
    else:
        from Agent.knowhub.application import create_app
        from Agent.knowhub.gate import Settings
        from Agent.knowhub.hub import KnowHub

        app = create_app(KnowHub(f"{folder}/hub"), Settings(requests_per_second=1e9), closes_hub=True)
    uvicorn.run(app, port=port, log_level="error", access_log=False)


# The client


async def hammer(
    url: str, token: str, make: Callable[[random.Random], tuple[str, str, Any]], seconds: float
) -> list[float]:
    """Return the time of each request that 16 connections made, in seconds."""
    import httpx

    took: list[float] = []
    until = time.perf_counter() + seconds

    async def one(number: int) -> None:
        chooser = random.Random(number)
        headers = {"Authorization": f"Bearer {token}"}
        transport = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, transport=transport) as client:
            while time.perf_counter() < until:
                method, path, body = make(chooser)
                began = time.perf_counter()
                answer = await client.request(method, path, json=body)
                took.append(time.perf_counter() - began)
                assert answer.is_success, answer.text

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return took


def wait_until_up(port: int) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("the server did not start")


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def percentile(values: list[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure_servers(folder: str, entries: int, seconds: float) -> None:
    """Print requests per second of both servers, in turns, and their ratio."""
    from Agent.knowhub.hub import LOCAL, KnowHub
    from Agent.knowhub.schemas import RIGHTS

    chooser = random.Random(7)
    rows = [entry(number, chooser) for number in range(entries)]
    with KnowHub(f"{folder}/hub") as hub:
        text, _ = hub.tokens.make("bench", RIGHTS, ["*"])
        lines = [{"id": f"knowledge-20260101-{number:012x}", **row} for number, row in enumerate(rows)]
        hub.take_in(LOCAL, lines)
    plain_app(f"{folder}/plain.db")
    base = sqlite3.connect(f"{folder}/plain.db")
    with base:
        base.executemany(
            "INSERT INTO entry (id, body) VALUES (?, ?)", [(n + 1, json.dumps(r)) for n, r in enumerate(rows)]
        )
        texts = [(n + 1, row["task"], row["content"]) for n, row in enumerate(rows)]
        base.executemany("INSERT INTO text (rowid, task, content) VALUES (?, ?, ?)", texts)
    base.close()
    servers = {}
    for kind in ("plain", "hub"):
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.bench_knowhub", "--serve", kind, folder, str(port)]
        servers[kind] = (subprocess.Popen(command), port)
        wait_until_up(port)

    def id_of(kind: str, chooser: random.Random) -> str:
        number = chooser.randrange(entries)
        return str(number + 1) if kind == "plain" else f"knowledge-20260101-{number:012x}"

    def calls(kind: str) -> dict[str, Callable[[random.Random], tuple[str, str, Any]]]:
        case = {"add_helpful_case": {"task": "bench", "outcome": "works"}}
        return {
            "get": lambda chooser: ("GET", f"/api/knowledge/{id_of(kind, chooser)}", None),
            "save": lambda chooser: ("POST", "/api/knowledge", entry(chooser.randrange(10**9), chooser)),
            "feedback": lambda chooser: ("PUT", f"/api/knowledge/{id_of(kind, chooser)}", case),
            "recall": lambda chooser: ("GET", f"/api/knowledge/search?q={words(chooser, 5).replace(' ', '+')}", None),
        }

    try:
        print(f"{'':10} {'plain/s':>9} {'hub/s':>9} {'ratio':>7} {'plain p95':>10} {'hub p95':>9} {'ratio':>7}")
        for name in ("get", "save", "feedback", "recall"):
            took: dict[str, list[float]] = {"plain": [], "hub": []}
            for _ in range(3):
                for kind, (_, port) in servers.items():
                    made = asyncio.run(hammer(f"http://127.0.0.1:{port}", text, calls(kind)[name], seconds / 3))
                    took[kind] += made
            rates = {kind: len(times) / seconds for kind, times in took.items()}
            p95 = {kind: percentile(times, 0.95) * 1000 for kind, times in took.items()}
            ratio, slower = rates["hub"] / rates["plain"], p95["hub"] / p95["plain"]
            told = f"{rates['plain']:>9.0f} {rates['hub']:>9.0f} {ratio:>7.2f}"
            print(f"{name:10} {told} {p95['plain']:>7.1f} ms {p95['hub']:>6.1f} ms {slower:>7.2f}", flush=True)
    finally:
        for process, _ in servers.values():
            process.terminate()
        for process, _ in servers.values():
            process.wait(30)


def measure_recall(folder: str, entries: int) -> None:
    """Print the time of a recall among many entries, for tokens that see more or less of them."""
    from Agent.knowhub.hub import LOCAL, KnowHub
    from Agent.knowhub.tokens import Token

    chooser = random.Random(11)
    began = time.perf_counter()
    with KnowHub(f"{folder}/large") as hub:
        rows = (
            {
                "id": f"knowledge-20260101-{number:012x}",
                **entry(number, chooser),
                "scopes": [f"team:{number % 20}", "org:all"],
            }
            for number in range(entries)
        )
        hub.take_in(LOCAL, rows)
    print(f"import of {entries:,}: {time.perf_counter() - began:.1f} s")
    began = time.perf_counter()
    with KnowHub(f"{folder}/large") as hub:
        print(f"opened again, ready in {time.perf_counter() - began:.2f} s")
        rights = frozenset({"read"})
        sights = {"all": ["org:all"], "a twentieth": ["team:3"], "a quarter": [f"team:{n}" for n in range(5)]}
        for name, scopes in sights.items():
            token = Token("bench", rights, frozenset(scopes))
            took = []
            for _ in range(200):
                query = words(chooser, 5)
                began = time.perf_counter()
                hub.search(token, {"q": query})
                took.append((time.perf_counter() - began) * 1000)
            print(
                f"recall, sees {name:12} p50 {statistics.median(took):6.1f} ms   p95 {percentile(took, 0.95):6.1f} ms"
            )


JUDGE = (
    "import sys\nfrom Agent.knowhub.hub import LOCAL, KnowHub\nwith KnowHub(sys.argv[1]) as hub:\n"
    "    for n in range(250):\n        hub.update(LOCAL, sys.argv[2], {'add_helpful_case': {'task': str(n)}})\n"
)


def measure_processes(folder: str) -> None:
    """Print how many of the 2,000 judgements of eight processes are there, and how many were made a second."""
    from Agent.knowhub.hub import LOCAL, KnowHub

    with KnowHub(f"{folder}/many") as hub:
        id = hub.save(LOCAL, {"task": "t", "content": "c", "types": ["tool"]})["entry"]["id"]
        began = time.perf_counter()
        workers = [subprocess.Popen([sys.executable, "-c", JUDGE, f"{folder}/many", id]) for _ in range(8)]
        for worker in workers:
            assert worker.wait() == 0
        took = time.perf_counter() - began
        hub.catalog.catch_up()
        count = hub.get(LOCAL, id)["eval"]["helpful"]
        print(f"8 processes: {count} of 2000 judgements, {2000 / took:.0f}/s with their start", flush=True)
        id = hub.save(LOCAL, {"task": "t", "content": "d", "types": ["tool"]})["entry"]["id"]

        def judge() -> None:
            for number in range(250):
                hub.update(LOCAL, id, {"add_helpful_case": {"task": str(number)}})

        threads = [threading.Thread(target=judge) for _ in range(8)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        print(f"8 threads:   {hub.get(LOCAL, id)['eval']['helpful']} of 2000 judgements, {2000 / took:.0f}/s")


def main() -> None:
    """Run all of it."""
    if len(sys.argv) > 1 and sys.argv[1] == "--serve":
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--entries", type=int, default=5_000)
    parser.add_argument("--large", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each call and server")
    options = parser.parse_args()
    os.environ.setdefault("XDG_CONFIG_HOME", tempfile.mkdtemp())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        measure_servers(folder, options.entries, options.seconds)
        measure_recall(folder, options.large)
        measure_processes(folder)


if __name__ == "__main__":
    main()
