"""Two hubs on one PostgreSQL, as on two machines: nothing that matters is in a local folder."""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("psycopg", reason="the extra [postgres] is not installed")

from Agent.knowhub.files import open_files
from Agent.knowhub.hub import KnowHub
from Agent.knowhub.records import RIGHTS, KnowHubError
from Agent.knowhub.tokens import Tokens
from Agent.knowhub.vault import Vault
from Agent.tests.shared.own_server import OwnServer, find_programs, free_port

pytestmark = pytest.mark.skipif(find_programs() is None, reason="PostgreSQL is not installed")


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with OwnServer() as server:
        yield server


@pytest.fixture
def address(server: OwnServer) -> str:
    return f"postgresql://kt:{server.password}@127.0.0.1:{server.port}/postgres#hub-{secrets.token_hex(4)}"


class Machine:
    """A hub in a process of its own, with a home of its own."""

    def __init__(self, home: Path, address: str, key: str) -> None:
        home.mkdir()
        self.port = free_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("KNOWHUB", "PG"))}
        environment |= {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        command = [sys.executable, "-m", "Agent.cli.command_line", "hub", "serve"]
        command += ["--log", address, "--port", str(self.port)]
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--rate", "0"], env={**environment, "KNOWHUB_KEY": key}, stdout=log, stderr=log
            )
        self.url, self.log = f"http://127.0.0.1:{self.port}", home / "log"

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            time.sleep(0.2)
        raise AssertionError(self.log.read_text())

    def client(self, token: str) -> httpx.Client:
        """Return a client of this one."""
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)


@contextlib.contextmanager
def machines(tmp_path: Path, address: str, count: int = 2) -> Iterator[list[Machine]]:
    """Run hubs with one master key, whose token store is the database's."""
    key = b64encode(secrets.token_bytes(32)).decode()
    running = [Machine(tmp_path / f"machine{number}", address, key) for number in range(count)]
    try:
        for machine in running:
            machine.wait()
        yield running
    finally:
        for machine in running:
            machine.process.kill()
            machine.process.wait()


@contextlib.contextmanager
def proxy(ports: list[int]) -> Iterator[int]:
    """Run a TCP proxy that gives each connection to the next server that takes it."""
    port, turn, started, loops = free_port(), iter(range(10**9)), threading.Event(), list[asyncio.AbstractEventLoop]()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(turn)
        for place in range(len(ports)):
            with contextlib.suppress(OSError):
                inner, outer = await asyncio.open_connection("127.0.0.1", ports[(first + place) % len(ports)])
                await asyncio.gather(copy(reader, outer), copy(inner, writer))
                return
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            loops.append(asyncio.get_running_loop())
            started.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield port
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)


def token_at(address: str, principal: str = "ada", scopes: tuple[str, ...] = ("team",)) -> str:
    """Return the text of a new token, made as by `knowhub token make --log`."""
    files = open_files(address)
    text = Tokens(files.tokens).make(principal, RIGHTS, scopes)[0]
    files.close()
    return text


def entry(number: int) -> dict[str, Any]:
    return {"task": f"task number {number}", "content": "Do it.", "types": ["tool"], "scopes": ["team"]}


def until(done: Callable[[], bool], seconds: float = 15) -> bool:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class TestTwoMachines:
    def test_share_entries_votes_secrets_and_tokens(self, tmp_path: Path, address: str) -> None:
        with machines(tmp_path, address) as (one, two):
            ada = token_at(address)
            with one.client(ada) as here, two.client(ada) as there:
                made = here.post("/api/knowledge", json=entry(1))
                assert made.status_code == 201, made.text
                id = made.json()["entry"]["id"]
                assert there.get(f"/api/knowledge/{id}").json()["task"] == "task number 1"
                bob = there.post("/api/token", json={"principal": "bob", "scopes": ["team"]}).json()
                with one.client(bob["token"]) as bobs:
                    judged = bobs.put(f"/api/knowledge/{id}", json={"add_helpful_case": {"task": "x"}})
                    assert judged.json()["entry"]["eval"]["helpful"] == 1
                    assert until(lambda: there.get(f"/api/knowledge/{id}").json()["eval"]["helpful"] == 1)
                    assert there.post(f"/api/operation/{judged.json()['operation_id']}/undo").status_code == 200
                    assert until(lambda: here.get(f"/api/knowledge/{id}").json()["eval"]["helpful"] == 0)
                    assert there.delete(f"/api/token/{bob['id']}").status_code == 200
                    assert until(lambda: bobs.get(f"/api/knowledge/{id}").status_code == 401, 5)
                body = {"title": "An account", "secure_body": "hunter2-of-ada", "scopes": ["team"]}
                assert here.put("/api/resource/credentials/a", json=body).status_code == 201
                assert there.get("/api/secret/credentials/a").json()["secure_body"] == "hunter2-of-ada"
                gone = there.delete("/api/resource/credentials/a", headers={"If-Match": "*"})
                assert gone.status_code == 200
                assert until(lambda: here.get("/api/secret/credentials/a").status_code == 404)
                found = there.get("/api/knowledge/search", params={"q": "task number"}).json()
                assert [row["id"] for row in found["results"]] == [id]
            held = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
            assert b"hunter2-of-ada" not in held
            assert address.encode() not in held  # with the password of the database

    def test_lose_nothing_acknowledged_when_one_is_killed(self, tmp_path: Path, address: str) -> None:
        acknowledged: dict[str, str] = {}
        lock, stop = threading.Lock(), threading.Event()

        def save(worker: int) -> None:
            number = 0
            while not stop.is_set():
                key = f"{worker}-{number}"
                # As the tools do: what broke off is sent again under its key, over a new connection.
                with contextlib.suppress(httpx.HTTPError), httpx.Client(timeout=20, trust_env=False) as client:
                    headers = {"Authorization": f"Bearer {ada}", "Idempotency-Key": key}
                    url = f"http://127.0.0.1:{port}/api/knowledge"
                    answer = client.post(url, json=entry(worker * 10_000 + number), headers=headers)
                    if answer.status_code == 201:
                        with lock:
                            acknowledged[key] = answer.json()["entry"]["id"]
                        number += 1

        with machines(tmp_path, address) as (one, two), proxy([one.port, two.port]) as port:
            ada = token_at(address)
            workers = [threading.Thread(target=save, args=(worker,)) for worker in range(4)]
            for worker in workers:
                worker.start()
            assert until(lambda: len(acknowledged) >= 40, 120)
            one.process.send_signal(signal.SIGKILL)
            killed_at = len(acknowledged)
            assert until(lambda: len(acknowledged) >= killed_at + 40, 120)
            stop.set()
            for worker in workers:
                worker.join()
            ids = list(acknowledged.values())
            assert len(set(ids)) == len(ids)
            with two.client(ada) as there:
                assert {there.get(f"/api/knowledge/{id}").status_code for id in ids} == {200}
                rows = [row for row in there.get("/api/export").text.splitlines() if row]
            assert len(rows) == len(set(rows))
            assert len(rows) - len(ids) <= 4  # one of each worker can be in without its answer

    def test_whose_folders_are_lost_are_as_they_were(
        self, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("KNOWHUB_KEY", b64encode(secrets.token_bytes(32)).decode())
        with KnowHub(address) as hub:
            text, ada = hub.tokens.make("ada", RIGHTS, ["team"])
            made = hub.save(ada, entry(1))
            hub.patch(ada, made["entry"]["id"], {"content": "Do it twice."})
            hub.put_resource(ada, "a", {"title": "t", "secure_body": "hunter2"})
        shutil.rmtree(tmp_path / "cache")
        with KnowHub(address) as hub:
            found = hub.tokens.find(text)
            assert found is not None
            assert found.principal == "ada"
            assert hub.reveal(found, "a")["secure_body"] == "hunter2"
            assert [row["version"] for row in hub.history(found, made["entry"]["id"])["results"]] == [2, 1]
            hub.delete(found, made["entry"]["id"])
            hub.purge(found)
            assert hub.operations(found)["results"] == []

    def test_another_master_key_is_refused_before_anything_is_sealed(
        self, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        for number in range(2):
            monkeypatch.setenv("KNOWHUB_KEY", b64encode(secrets.token_bytes(32)).decode())
            files = open_files(address)
            vault = Vault(files.secrets, folder=files.folder)
            if number == 0:
                vault.seal("a", "hunter2")
            else:
                with pytest.raises(KnowHubError, match="did not seal"):
                    vault.prove()
                with pytest.raises(KnowHubError, match="did not seal"):
                    vault.seal("b", "other")
                assert len(vault.references()) == 1
            files.close()

    def test_a_database_that_does_not_answer_is_said_and_shows_no_password(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dsn = address.replace("@127.0.0.1:", "@127.0.0.1:1")  # no such port
        monkeypatch.setattr("Agent.knowhub.files.PATIENCE_S", 0.2)
        with pytest.raises(KnowHubError, match="does not answer") as raised:
            KnowHub(dsn)
        assert address.split(":")[2].split("@")[0] not in str(raised.value)
