"""Measure KnowHub: `python -m benchmarks.bench_knowhub [--quick] [--only servers,recall,memory,processes]`.

servers    its server beside a plain one over FastAPI and sqlite (WAL, synchronous=FULL: each commit syncs its log;
           FTS5; tokens, votes and history as here), each in a process of its own, with the same client and the same
           entries, in turns; what a server has left to do after its calls counts as theirs
recall     among 30,000 entries, for tokens that see more or less of them; opening, also after a kill
memory     the peak of `knowhub serve` with 30,000 entries under unfinished bodies, readers that stop, long searches
processes  whether the feedback of eight processes, and of eight clients of two workers, is all there

Ratios count: the machine's own speed is in both sides.
"""

import argparse
import asyncio
import contextlib
import gc
import hashlib
import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import common

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
    """Return what one would write in a day: the same four calls over sqlite, with the same promises.

    A call is known by its token, kept as a SHA-256; a write is on the disk before its answer; of each principal one
    vote counts; every write leaves who did it, and what.
    """
    from fastapi import FastAPI, HTTPException, Request
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
        "CREATE TABLE IF NOT EXISTS token (digest TEXT PRIMARY KEY, principal TEXT);"
        "CREATE TABLE IF NOT EXISTS entry"
        " (id INTEGER PRIMARY KEY, body TEXT, principal TEXT, helpful INTEGER DEFAULT 0);"
        "CREATE TABLE IF NOT EXISTS feedback (id INTEGER PRIMARY KEY, entry INTEGER, principal TEXT, body TEXT);"
        "CREATE INDEX IF NOT EXISTS of_entry ON feedback (entry, principal);"
        "CREATE TABLE IF NOT EXISTS operation (id TEXT PRIMARY KEY, principal TEXT, at REAL, before TEXT, after TEXT);"
        "CREATE VIRTUAL TABLE IF NOT EXISTS text USING fts5 (task, content)"
    )

    class In(BaseModel):
        task: str
        content: str
        types: list[str]

    class Update(BaseModel):
        add_helpful_case: dict[str, Any]

    def who(request: Request) -> str:
        text = request.headers.get("authorization", "").removeprefix("Bearer ")
        digest = hashlib.sha256(text.encode()).hexdigest()
        row = base().execute("SELECT principal FROM token WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            raise HTTPException(401)
        return str(row[0])

    def note(connection: sqlite3.Connection, principal: str, before: str | None, after: str) -> str:
        operation = (os.urandom(16).hex(), principal, time.time(), before, after)
        connection.execute("INSERT INTO operation VALUES (?, ?, ?, ?, ?)", operation)
        return operation[0]

    app = FastAPI()

    @app.post("/api/knowledge", status_code=201)
    def save(body: In, request: Request) -> JSONResponse:
        principal, said = who(request), body.model_dump_json()
        with base() as connection:
            sql = "INSERT INTO entry (body, principal) VALUES (?, ?)"
            id = connection.execute(sql, (said, principal)).lastrowid
            row = (id, body.task, body.content)
            connection.execute("INSERT INTO text (rowid, task, content) VALUES (?, ?, ?)", row)
            operation_id = note(connection, principal, None, said)
        return JSONResponse({"entry": {"id": str(id), **body.model_dump()}, "operation_id": operation_id}, 201)

    @app.get("/api/knowledge/search")
    def search(q: str, request: Request, top_k: int = 5) -> JSONResponse:
        who(request)
        wanted = " OR ".join(f'"{word}"' for word in q.split())
        rows = base().execute(
            "SELECT entry.id, body, helpful FROM text JOIN entry ON entry.id = text.rowid WHERE text MATCH ? "
            "ORDER BY bm25(text) LIMIT ?",
            (wanted, 2 * top_k),
        )
        found = [{"id": str(id), **json.loads(body), "helpful": helpful} for id, body, helpful in rows]
        return JSONResponse({"results": sorted(found, key=lambda row: -row["helpful"])[:top_k]})

    def read(id: int) -> dict[str, Any]:
        body, helpful = base().execute("SELECT body, helpful FROM entry WHERE id = ?", (id,)).fetchone()
        cases = base().execute("SELECT body FROM feedback WHERE entry = ? ORDER BY id DESC LIMIT 20", (id,)).fetchall()
        return {"id": str(id), **json.loads(body), "helpful": helpful, "cases": [json.loads(case[0]) for case in cases]}

    @app.get("/api/knowledge/{id}")
    def get(id: int, request: Request) -> JSONResponse:
        who(request)
        return JSONResponse(read(id))

    @app.put("/api/knowledge/{id}")
    def update(id: int, body: Update, request: Request) -> JSONResponse:
        principal, case = who(request), json.dumps(body.add_helpful_case)
        with base() as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = (id, principal, case)
            connection.execute("INSERT INTO feedback (entry, principal, body) VALUES (?, ?, ?)", row)
            voters = "SELECT count(DISTINCT principal) FROM feedback WHERE entry = ?"
            connection.execute(f"UPDATE entry SET helpful = ({voters}) WHERE id = ?", (id, id))
            operation_id = note(connection, principal, None, case)
        return JSONResponse({"entry": read(id), "operation_id": operation_id})

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
        gc.collect()  # as `knowhub serve` does it
        gc.freeze()
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
    """Wait until a server listens."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("the server did not start")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_of(process: "subprocess.Popen[bytes]") -> float:
    """Return the seconds of CPU that a process has used; 0 where the system does not tell."""
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def settle(process: "subprocess.Popen[bytes]", most_s: float = 60.0) -> None:
    """Wait until a process has nothing left to do: what it derives after a start or writes is no later call's."""
    until, quiet = time.monotonic() + most_s, 0
    while quiet < 10 and time.monotonic() < until:
        before = cpu_of(process)
        time.sleep(0.5)
        quiet = quiet + 1 if cpu_of(process) - before < 0.05 else 0


def percentile(values: list[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure_servers(folder: str, entries: int, seconds: float) -> None:
    """Print requests per second of both servers, in turns, and their ratio."""
    from Agent.knowhub.hub import LOCAL, KnowHub
    from Agent.knowhub.records import RIGHTS

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
        base.execute("INSERT INTO token VALUES (?, 'bench')", (hashlib.sha256(text.encode()).hexdigest(),))
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
        for kind, (process, port) in servers.items():
            for make in calls(kind).values():
                asyncio.run(hammer(f"http://127.0.0.1:{port}", text, make, 0.1))
            settle(process)
        titles = f"{'':10} {'plain/s':>9} {'hub/s':>9} {'ratio':>7} {'plain p95':>10} {'hub p95':>9} {'ratio':>7}"
        print(f"{titles}   CPU ms a call")
        for name in ("get", "save", "feedback", "recall"):
            took: dict[str, list[float]] = {"plain": [], "hub": []}
            used = {"plain": 0.0, "hub": 0.0}
            for _ in range(3):
                for kind, (process, port) in servers.items():
                    used[kind] -= cpu_of(process)
                    made = asyncio.run(hammer(f"http://127.0.0.1:{port}", text, calls(kind)[name], seconds / 3))
                    took[kind] += made
                    used[kind] += cpu_of(process)
            left = dict.fromkeys(servers, 0.0)
            for kind, (process, _) in servers.items():
                left[kind] -= cpu_of(process)
                settle(process)
                left[kind] += cpu_of(process)
                used[kind] += left[kind]
            rates = {kind: len(times) / (seconds + left[kind]) for kind, times in took.items()}
            p95 = {kind: percentile(times, 0.95) * 1000 for kind, times in took.items()}
            ratio, slower = rates["hub"] / rates["plain"], p95["hub"] / p95["plain"]
            speed = f"{rates['plain']:>9.0f} {rates['hub']:>9.0f} {ratio:>7.2f}"
            cpu = " ".join(f"{kind} {1000 * used[kind] / len(took[kind]):.2f}" for kind in used)
            print(f"{name:10} {speed} {p95['plain']:>7.1f} ms {p95['hub']:>6.1f} ms {slower:>7.2f}   {cpu}", flush=True)
    finally:
        for process, _ in servers.values():
            process.terminate()
        for process, _ in servers.values():
            process.wait(30)


# Recall among many


WRITE = (
    "import os, sys, threading\nfrom Agent.knowhub.hub import LOCAL, KnowHub\nhub = KnowHub(sys.argv[1])\n"
    "def work():\n    while True:\n"
    "        made = hub.save(LOCAL, {'task': 'under load', 'content': 'c' * 200, 'types': ['tool']})\n"
    "        os.write(1, (made['entry']['id'] + '\\n').encode())\n"
    "for _ in range(4):\n    threading.Thread(target=work).start()\n"
)


def measure_kills(folder: str, rounds: int = 3) -> None:
    """Print how soon a large hub is ready after a kill under load, and whether all that it acknowledged is there."""
    from Agent.knowhub.hub import LOCAL, KnowHub

    for _ in range(rounds):
        worker = subprocess.Popen([sys.executable, "-c", WRITE, f"{folder}/large"], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        first = worker.stdout.readline()
        time.sleep(0.5)
        worker.kill()
        lines = [line for line in [first, *worker.stdout.read().splitlines(keepends=True)] if line.endswith(b"\n")]
        worker.wait()
        began, used = time.perf_counter(), time.process_time()
        with KnowHub(f"{folder}/large") as hub:
            took, used = time.perf_counter() - began, time.process_time() - used
            lost = sum(hub.ledger.read(line.decode().strip()) is None for line in lines)
            assert hub.get(LOCAL, lines[0].decode().strip())["task"] == "under load"
        print(
            f"killed under load: ready in {took:.2f} s ({used:.2f} s of CPU), {lost} of {len(lines)} lost", flush=True
        )


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
    began, used = time.perf_counter(), time.process_time()
    with KnowHub(f"{folder}/large") as hub:
        took, used = time.perf_counter() - began, time.process_time() - used
        print(f"opened again, ready in {took:.2f} s ({used:.2f} s of CPU)")
        rights = frozenset({"read"})
        sights = {"all": ["org:all"], "a twentieth": ["team:3"], "a quarter": [f"team:{n}" for n in range(5)]}
        for name, scopes in sights.items():
            token = Token("bench", rights, frozenset(scopes))
            times: list[float] = []
            spent: list[float] = []
            for _ in range(200):
                query = words(chooser, 5)
                began, used = time.perf_counter(), time.thread_time()
                hub.search(token, {"q": query})
                times.append((time.perf_counter() - began) * 1000)
                spent.append((time.thread_time() - used) * 1000)
            wall, cpu = ([statistics.median(each), percentile(each, 0.95)] for each in (times, spent))
            said = f"p50 {wall[0]:5.1f} p95 {wall[1]:5.1f} ms; of CPU p50 {cpu[0]:5.1f} p95 {cpu[1]:5.1f} ms"
            print(f"recall, sees {name:12} {said}", flush=True)


# Memory under attack


def in_mb(process: "subprocess.Popen[bytes]", name: str) -> int:
    """Return a figure of a process, VmRSS or VmHWM, in MB; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(f"{name}:"))
    return 0


def hold_open(port: int, head: str, count: int, body: bytes = b"") -> list[socket.socket]:
    """Send the beginnings of requests, read nothing, and return the connections."""
    held = []
    for _ in range(count):
        held.append(socket.create_connection(("127.0.0.1", port)))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        with contextlib.suppress(OSError):  # it was refused, and closed
            held[-1].sendall(f"{head}\r\nHost: 127.0.0.1\r\n".encode() + body)
    return held


def measure_memory(folder: str, entries: int) -> None:
    """Print what `knowhub serve` holds, and its peak, after each kind of attack."""
    import httpx

    from Agent.knowhub.hub import LOCAL, KnowHub

    lines = [{"task": f"how to do thing {n}", "content": "x" * 600, "types": ["tool"]} for n in range(entries)]
    with KnowHub(f"{folder}/attacked") as hub:
        hub.take_in(LOCAL, ({**line, "scopes": ["org:x"]} for line in lines))
        reader = hub.tokens.make("reader", ["read", "write"], ["org:x"])[0]
    port = free_port()
    command = [sys.executable, "-c", "from Agent.command_line import hub; import sys; sys.exit(hub())", "serve"]
    command += ["--data", f"{folder}/attacked", "--port", str(port), "--rate", "0"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # a line for each request
    wait_until_up(port)
    known, sent = f"Authorization: Bearer {reader}\r\n", b"Content-Length: 1048576\r\n\r\n" + b"a" * 900_000
    url = f"http://127.0.0.1:{port}/api/knowledge/search?q={'how+thing+' * 150}&top_k=50"

    def search() -> None:
        for _ in range(5):
            httpx.get(url, headers={"Authorization": f"Bearer {reader}"}, timeout=300, trust_env=False)

    def search_at_once() -> list[socket.socket]:
        threads = [threading.Thread(target=search) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return []

    def save() -> list[socket.socket]:  # which needs the terms of all tasks
        headers = {"Authorization": f"Bearer {reader}"}
        httpx.post(f"http://127.0.0.1:{port}/api/knowledge", json=lines[0], headers=headers, timeout=300)
        return []

    attacks: dict[str, Callable[[], list[socket.socket]]] = {
        "nothing yet": list,
        "a save": save,
        "400 bodies without a token": lambda: hold_open(port, "POST /login HTTP/1.1", 400, sent),
        "150 bodies with one": lambda: hold_open(port, "PUT /api/resource/a HTTP/1.1", 150, known.encode() + sent),
        "150 exports not read": lambda: hold_open(port, "GET /api/export HTTP/1.1", 150, f"{known}\r\n".encode()),
        "20 long searches at once": search_at_once,
    }
    try:
        for name, attack in attacks.items():
            held = attack()
            time.sleep(3)
            print(f"{name:28} holds {in_mb(server, 'VmRSS'):4} MB, peak {in_mb(server, 'VmHWM'):4} MB", flush=True)
            for each in held:
                each.close()
    finally:
        server.terminate()
        server.wait(60)


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
        count = hub.catalog.counts()["feedback"]
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
        print(f"8 threads:   {hub.catalog.counts()['feedback'] - count} of 2000 judgements, {2000 / took:.0f}/s")


async def judge_over_http(urls: list[str], token: str, id: str, clients: int, each: int) -> None:
    """Let some clients judge one entry so many times, each by its own connection."""
    import httpx

    async def one(number: int) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        transport = httpx.AsyncHTTPTransport(verify=False)
        url = urls[number % len(urls)]
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, transport=transport) as client:
            for place in range(each):
                case = {"add_helpful_case": {"task": f"{number}-{place}"}}
                answer = await client.put(f"/api/knowledge/{id}", json=case)
                assert answer.is_success, answer.text

    await asyncio.gather(*(one(number) for number in range(clients)))


def measure_workers(folder: str) -> None:
    """Print how many of the 2,000 judgements of eight clients of two workers are there."""
    from Agent.knowhub.hub import LOCAL, KnowHub
    from Agent.knowhub.records import RIGHTS

    place = f"{folder}/workers"
    with KnowHub(f"{place}/hub") as hub:
        text, _ = hub.tokens.make("bench", RIGHTS, ["*"])
        id = hub.save(LOCAL, {"task": "t", "content": "c", "types": ["tool"]})["entry"]["id"]
    servers = []
    for _ in range(2):
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.bench_knowhub", "--serve", "hub", place, str(port)]
        servers.append((subprocess.Popen(command), f"http://127.0.0.1:{port}"))
        wait_until_up(port)
    try:
        began = time.perf_counter()
        asyncio.run(judge_over_http([url for _, url in servers], text, id, 8, 250))
        took = time.perf_counter() - began
    finally:
        for process, _ in servers:
            process.terminate()
        for process, _ in servers:
            process.wait(30)
    with KnowHub(f"{place}/hub") as hub:
        count = hub.catalog.counts()["feedback"]
    print(f"8 clients of 2 workers: {count} of 2000 judgements, {2000 / took:.0f}/s", flush=True)


def run(options: argparse.Namespace) -> None:
    """Run all of it, or some."""
    entries, large, seconds = (1_000, 5_000, 1.0) if options.quick else (5_000, 30_000, 6.0)
    with common.working_folder(options) as path:
        folder = str(path)
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/config"
        if common.wanted(options, "servers"):
            measure_servers(folder, entries, seconds)
        if common.wanted(options, "recall"):
            measure_recall(folder, large)
            measure_kills(folder)
        if common.wanted(options, "memory"):
            measure_memory(folder, large)
        if common.wanted(options, "processes"):
            measure_processes(folder)
            measure_workers(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        common.main(__doc__, run)
