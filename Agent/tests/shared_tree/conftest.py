"""A server for the tests of shared trees, where PostgreSQL is installed; without it they skip."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from Agent.keyword_tree import KeywordTree
from Agent.shared_tree.shared_log import SharedLog
from Agent.tests.shared.faulty_proxy import FaultyProxy
from Agent.tests.shared.own_server import OwnServer, choose_owner, find_programs, free_port
from Agent.tests.shared.storm import memory_folder

_NUMBERS = itertools.count(1)

Opener = Callable[[], KeywordTree]


def make_server(settings: dict[str, str] | None = None) -> OwnServer:
    """Start a server, or skip the test."""
    if find_programs() is None:
        pytest.skip("PostgreSQL is not installed (no initdb): apt-get install postgresql")
    return OwnServer(settings, folder=memory_folder())


@pytest.fixture(scope="session")
def server() -> Iterator[OwnServer]:
    """Give the server that most tests share; a test that stops it starts it again."""
    with make_server() as server:
        yield server


@pytest.fixture
def database(server: OwnServer) -> Iterator[str]:
    """Give the DSN of a database of the test's own."""
    name = f"test{next(_NUMBERS)}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield server.dsn.replace("dbname=postgres", f"dbname={name}")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def log(database: str) -> Iterator[SharedLog]:
    """Give a log without trees."""
    with SharedLog(database, patience=3) as log:
        log.setup()
        yield log


@pytest.fixture(scope="session")
def pooler(server: OwnServer) -> Iterator[int]:
    """Give the port of a PgBouncer that hands out a connection for each transaction; skip where there is none."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="kt-pooler-"))
    (folder / "users").write_text(f'"kt" "{server.password}"\n')
    (folder / "settings").write_text(
        f"""[databases]
* = host=127.0.0.1 port={server.port} user=kt password={server.password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 4
"""
    )
    how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:
        how["user"] = choose_owner()
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, how["user"])
    process = subprocess.Popen([program, str(folder / "settings")], **how)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


@pytest.fixture
def pooled_log(pooler: int, database: str) -> Iterator[SharedLog]:
    """Give a log without trees, behind a pooler of transactions."""
    with SharedLog(database.replace(f"port={port_of(database)}", f"port={pooler}"), pooled=True, patience=3) as log:
        log.setup()
        yield log


@pytest.fixture
def open_tree(log: SharedLog, tmp_path: Path) -> Iterator[Opener]:
    """Give a function that opens the tree u42, as another machine would."""
    with contextlib.ExitStack() as stack:

        def open_one() -> KeywordTree:
            return stack.enter_context(KeywordTree(str(tmp_path / "unused"), store=log.tree("u42")))

        yield open_one


def sql(dsn: str, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Run a statement beside the library, as an operator would."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def port_of(dsn: str) -> int:
    """Return the port that a DSN names."""
    return int(dsn.partition("port=")[2].split()[0])


@pytest.fixture
def proxy(server: OwnServer) -> Iterator[FaultyProxy]:
    """Give a network before the server that does what a test asks for."""
    with FaultyProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def far(database: str, proxy: FaultyProxy, log: SharedLog) -> Iterator[SharedLog]:
    """Give a log that is reached through a network that may fail."""
    with SharedLog(database.replace(f"port={port_of(database)}", f"port={proxy.port}"), patience=2) as far:
        yield far


def names(tree: KeywordTree) -> list[str]:
    """Return the names below the root, in order."""
    return [node.name for node in tree.GetChildren("root")]


def opened(log: SharedLog, tree_id: str = "u42") -> KeywordTree:
    """Open a tree, as one more machine would."""
    return KeywordTree("unused", store=log.tree(tree_id))


def end_sessions(server: OwnServer) -> int:
    """End all sessions of shared trees, as an operator may; return how many there were."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keyword_tree'"
    return len(sql(server.dsn, ended))


def wait_for(is_so: Callable[[], bool], seconds: float = 10) -> None:
    """Return when something is so; fail where it never is."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)
