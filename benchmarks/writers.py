"""Who writes: the library, the bare file, sqlite3, the first design read literally, and two other systems.

Every writer stores one record durably per call (where it says so), and is used in the same way. The records
are those of `trees`: a keyword beneath a known parent, or an info linked to one keyword.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from Agent.keyword_tree import KeywordNode, KeywordTree
from benchmarks import sqlite_peer, trees
from benchmarks.common import Skip

KINDS = ("keyword", "info")
"""What can be written."""


class Records:
    """An endless row of records, the same for the same seed; safe to share between threads."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._lock = threading.Lock()

    def keyword(self, parent_id: str) -> trees.Spec:
        """Return the next keyword."""
        with self._lock:
            return trees.made_spec(self._draw, parent_id)

    def info(self, keyword_id: str) -> trees.Spec:
        """Return the next info."""
        with self._lock:
            seed = self._draw.getrandbits(32)
        return next(trees.made_infos([keyword_id], 1, seed))


class Writer(ABC):
    """Stores one record per call of `keyword` or `info`, durably when the call returns."""

    @abstractmethod
    def keyword(self, spec: trees.Spec) -> None:
        """Store a keyword."""

    def info(self, spec: trees.Spec) -> None:
        """Store an info and its link."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027  (most have something to close, some have not)
        """Let go of files and processes."""

    def writing(self, kind: str) -> Callable[[trees.Spec], None]:
        """Return the method for `kind`."""
        return self.keyword if kind == "keyword" else self.info


class TreeWriter(Writer):
    """The library."""

    def __init__(self, folder: Path) -> None:
        self.tree = KeywordTree(str(folder))

    def keyword(self, spec: trees.Spec) -> None:
        """Store a keyword."""
        self.tree.CreateKeyword(spec["name"], spec["parent_id"], spec["aliases"], spec["description"])

    def info(self, spec: trees.Spec) -> None:
        """Store an info and its link."""
        self.tree.CreateInfo(spec["content"], spec["source"], spec["keyword_ids"])

    def close(self) -> None:
        """Close the tree."""
        self.tree.Close()


class AppendWriter(Writer):
    """Ready lines (those the library wrote for such records) appended to a held file, `fsync` each time."""

    def __init__(self, path: Path, lines: dict[str, list[bytes]]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines = {kind: _in_circles(of_kind) for kind, of_kind in lines.items()}

    def _write(self, kind: str) -> None:
        os.write(self._file, self._lines[kind]())
        os.fsync(self._file)

    def keyword(self, spec: trees.Spec) -> None:
        """Append the next line of a keyword."""
        self._write("keyword")

    def info(self, spec: trees.Spec) -> None:
        """Append the next line of an info."""
        self._write("info")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class PrefilledWriter(AppendWriter):
    """Lower still: the same lines over spaces that were written and synced before, `fdatasync` each time."""

    def __init__(self, path: Path, lines: dict[str, list[bytes]], size_bytes: int) -> None:
        super().__init__(path, lines)
        os.close(self._file)
        self._file = os.open(path, os.O_WRONLY)
        os.write(self._file, b" " * size_bytes)
        os.fsync(self._file)
        self._end, self._size = 0, size_bytes

    def _write(self, kind: str) -> None:
        line = self._lines[kind]()
        if self._end + len(line) > self._size:
            self._end = 0
        os.pwrite(self._file, line, self._end)
        os.fdatasync(self._file)
        self._end += len(line)


def _in_circles(lines: list[bytes]) -> Callable[[], bytes]:
    position = -1

    def following() -> bytes:
        nonlocal position
        position = (position + 1) % len(lines)
        return lines[position]

    return following


class SqliteWriter(Writer):
    """sqlite3, WAL, synchronous=FULL: the same record and a name index; nothing is checked or returned."""

    def __init__(self, path: Path, *, shared: bool = True, create: bool = True) -> None:
        """Open (and, with `create`, make) the database.

        Args:
            path: the database file.
            shared: one connection with a lock for all threads; otherwise each thread has a connection, and
                sqlite3 its own lock.
            create: make the tables.
        """
        self._path = path
        self._lock = threading.Lock()
        self._main = sqlite_peer.connect(path, create=create)
        self._local = None if shared else threading.local()

    def _run(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        if self._local is None:
            with self._lock:
                self._commit(self._main, statements)
            return
        if not hasattr(self._local, "connection"):
            self._local.connection = sqlite_peer.connect(self._path)
        self._commit(self._local.connection, statements)

    @staticmethod
    def _commit(connection: sqlite3.Connection, statements: tuple[tuple[str, tuple[object, ...]], ...]) -> None:
        if len(statements) == 1:
            connection.execute(*statements[0])
            return
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(*statement)
        connection.execute("COMMIT")

    def keyword(self, spec: trees.Spec) -> None:
        """Insert a keyword, and its alias if it has one."""
        row = keyword_row(spec)
        statements: list[tuple[str, tuple[object, ...]]] = [(sqlite_peer.INSERT_NODE, row)]
        for alias in spec["aliases"]:
            statements.append(("INSERT INTO aliases VALUES (?, last_insert_rowid())", (sqlite_peer.fold(alias),)))
        self._run(*statements)

    def info(self, spec: trees.Spec) -> None:
        """Insert an info and its link."""
        now, id_ = time.time(), str(uuid.uuid4())
        info = (id_, spec["content"], spec["source"], "{}", 1, now, now, 0, "user")
        links = [
            (sqlite_peer.INSERT_LINK, (id_, keyword_id, "PRIMARY", "user", now, 0))
            for keyword_id in spec["keyword_ids"]
        ]
        self._run((sqlite_peer.INSERT_INFO, info), *links)

    def find(self, name: str) -> KeywordNode:
        """Return the first keyword that bears a name."""
        row = self._main.execute(
            f"SELECT {sqlite_peer.NODE_COLUMNS} FROM nodes WHERE NOT deleted AND ordinal IN (SELECT ordinal FROM nodes "
            "WHERE name_key = ?1 UNION ALL SELECT ordinal FROM aliases WHERE key = ?1) ORDER BY ordinal LIMIT 1",
            (sqlite_peer.fold(name),),
        ).fetchone()
        return sqlite_peer.to_node(row)

    def close(self) -> None:
        """Close the connection."""
        self._main.close()


_NOT_IN_TOKEN = re.compile(r"[^\w+#]+")


def keyword_row(spec: trees.Spec) -> tuple[object, ...]:
    """Return the row of a new keyword, as sqlite3 takes it; sqlite3 itself counts the ordinal."""
    now, key = time.time(), sqlite_peer.fold(spec["name"])
    tokens = [_NOT_IN_TOKEN.sub("", text) for text in [key, *map(sqlite_peer.fold, spec["aliases"])]]
    aliases = json.dumps(spec["aliases"], ensure_ascii=False) if spec["aliases"] else "[]"
    return (
        str(uuid.uuid4()),
        spec["name"],
        aliases,
        json.dumps(tokens, ensure_ascii=False),
        1,
        spec["parent_id"],
        spec["description"],
        "{}",
        1,
        now,
        now,
        0,
        "user",
        None,
        key,
    )


class PlainReadingWriter(Writer):
    """The first design read literally: per write two files opened, written, flushed, synced, closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def _append(self, name: str, row: dict[str, object]) -> None:
        with (self._folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _log(self, operation: str, row: dict[str, object]) -> None:
        line = {
            "op": operation,
            "operation_id": str(uuid.uuid4()),
            "timestamp": time.time(),
            "after": row,
            "agent_io": None,
        }
        self._append("change_log.jsonl", line)

    def keyword(self, spec: trees.Spec) -> None:
        """Append a keyword to nodes.jsonl and to the log."""
        columns = sqlite_peer.NODE_COLUMNS.split(", ")
        row = dict(zip(columns, keyword_row(spec), strict=True)) | {
            "aliases": spec["aliases"],
            "metadata": {},
        }
        self._append("nodes.jsonl", row)
        self._log("create_keyword", row)

    def info(self, spec: trees.Spec) -> None:
        """Append an info to infos.jsonl, its link to links.jsonl, and both to the log."""
        now, id_ = time.time(), str(uuid.uuid4())
        row = {
            "id": id_,
            "content": spec["content"],
            "source": spec["source"],
            "metadata": {},
            "version": 1,
            "created_at": now,
            "updated_at": now,
            "deleted": False,
        }
        self._append("infos.jsonl", row)
        for keyword_id in spec["keyword_ids"]:
            link = {
                "info_id": id_,
                "keyword_id": keyword_id,
                "relation": "PRIMARY",
                "created_at": now,
                "deleted": False,
            }
            self._append("links.jsonl", link)
        self._log("create_info", row)


# == Other systems, where they are installed =================================================


class LanggraphWriter(Writer):
    """langgraph's SqliteStore, in a file, as its documentation opens it."""

    def __init__(self, path: Path) -> None:
        try:
            module: Any = importlib.import_module("langgraph.store.sqlite")
        except ImportError as missing:
            raise Skip("langgraph's SqliteStore is not installed: pip install langgraph-checkpoint-sqlite") from missing
        self._opened: Any = module.SqliteStore.from_conn_string(str(path))
        self._store: Any = self._opened.__enter__()
        self._store.setup()

    def keyword(self, spec: trees.Spec) -> None:
        """Put the keyword under its name."""
        self._store.put(("keywords",), spec["name"], spec)

    def find(self, name: str) -> None:
        """Get it by its name."""
        assert self._store.get(("keywords",), name) is not None

    def close(self) -> None:
        """Close the store."""
        self._opened.__exit__(None, None, None)


class McpMemoryWriter(Writer):
    """The MCP memory server, over stdio. It does not sync: a power cut may take what it acknowledged."""

    def __init__(self, path: Path) -> None:
        named = os.environ.get("KEYWORD_TREE_MCP_SERVER") or "mcp-server-memory"
        command = shlex.split(named)
        if shutil.which(command[0]) is None:
            raise Skip(
                "the MCP memory server is not installed: npm install --global "
                "@modelcontextprotocol/server-memory, or name its command in KEYWORD_TREE_MCP_SERVER"
            )
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "MEMORY_FILE_PATH": str(path)},
        )
        self._count = 0
        hello: dict[str, object] = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "1"},
        }
        self._request("initialize", hello)
        self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _tell(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _request(self, method: str, params: dict[str, object]) -> dict[str, Any]:
        self._count += 1
        self._tell({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._count:
                if "error" in answer or answer["result"].get("isError"):
                    raise RuntimeError(f"the MCP memory server answered {line[:200]!r}")
                result: dict[str, Any] = answer["result"]
                return result
        raise RuntimeError("the MCP memory server ended")

    def keyword(self, spec: trees.Spec) -> None:
        """Create the keyword as an entity."""
        entity = {
            "name": spec["name"],
            "entityType": "keyword",
            "observations": [spec["description"], str(spec["parent_id"])],
        }
        self._request("tools/call", {"name": "create_entities", "arguments": {"entities": [entity]}})

    def find(self, name: str) -> None:
        """Open the entity of that name."""
        result = self._request("tools/call", {"name": "open_nodes", "arguments": {"names": [name]}})
        assert json.dumps(name)[1:-1] in json.dumps(result), result

    def close(self) -> None:
        """End the server by closing its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def sample_lines(folder: Path, count: int = 200) -> dict[str, list[bytes]]:
    """Return the log lines that the library writes for `count` records of each kind."""
    writer = TreeWriter(folder)
    records = Records(seed=99)
    writer.tree.BatchCreateKeywords([{"name": "parent", "id": "parent", "llm_auto_place": False}])
    for _ in range(count):
        writer.keyword(records.keyword("parent"))
        writer.info(records.info("parent"))
    writer.close()
    lines: dict[str, list[bytes]] = {kind: [] for kind in KINDS}
    for line in (folder / "change_log.jsonl").read_bytes().split(b"\n"):
        for kind in KINDS:
            if f'"op": "create_{kind}"'.encode() in line[:200]:
                lines[kind].append(line + b"\n")
    assert all(len(of_kind) >= count for of_kind in lines.values())
    return lines
