"""The peer that every claim is held against: the same records in sqlite3, as a good engineer would keep them.

One connection, cached statements, WAL; integer row ids in the order of creation, the id unique beside it; the folded
name in an indexed column, folded aliases in a table of their own; lists and dicts as JSON, where an empty one is
recognised without parsing. What is read becomes the library's own dataclasses.
"""

from __future__ import annotations

import json
import sqlite3
import time
import unicodedata
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from Agent.keyword_tree import Info, KeywordNode, KeywordTree, SearchResult, SearchStatus

NODE = (
    "id, name, aliases, normalized, level, parent_id, description, metadata, version, created_at, updated_at, deleted, "
    "created_by, ordinal, name_key"
)
INFO = "id, content, source, metadata, version, created_at, updated_at, deleted, created_by"
TABLES = f"""
CREATE TABLE nodes ({NODE.replace("ordinal", "ordinal INTEGER PRIMARY KEY").replace("id,", "id TEXT UNIQUE,", 1)});
CREATE TABLE aliases (key TEXT, ordinal INTEGER, PRIMARY KEY (key, ordinal)) WITHOUT ROWID;
CREATE TABLE infos ({INFO.replace("id,", "id TEXT UNIQUE,", 1)});
CREATE TABLE links (ordinal INTEGER PRIMARY KEY, keyword_id TEXT, info_id TEXT, relation TEXT);
CREATE INDEX nodes_by_name ON nodes (name_key);
CREATE INDEX nodes_by_parent ON nodes (parent_id, ordinal);
CREATE INDEX links_by_keyword ON links (keyword_id, ordinal);
"""
INSERT_NODE = f"INSERT INTO nodes ({NODE}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
INSERT_INFO = f"INSERT INTO infos ({INFO}) VALUES (?,?,?,?,?,?,?,?,?)"
INSERT_LINK = "INSERT INTO links (info_id, keyword_id, relation) VALUES (?,?,?)"


def fold(text: str) -> str:
    """Return `text` without differences of case and width."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def connect(path: Path, *, create: bool = False, synchronous: str = "FULL") -> sqlite3.Connection:
    """Open a database in WAL mode, in autocommit, shareable between threads."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if create:
        connection.executescript(TABLES)
    return connection


def node_row(node: KeywordNode) -> tuple[object, ...]:
    """Return the row of a keyword."""
    lists = [json.dumps(value, ensure_ascii=False) for value in (node.aliases, node.normalized, node.metadata)]
    said = (node.level, node.parent_id, node.description, lists[2], node.version, node.created_at, node.updated_at)
    return (node.id, node.name, *lists[:2], *said, node.deleted, node.created_by, node.ordinal, fold(node.name))


def info_row(info: Info) -> tuple[object, ...]:
    """Return the row of an info."""
    times = (info.version, info.created_at, info.updated_at, info.deleted, info.created_by)
    return (info.id, info.content, info.source, json.dumps(info.metadata), *times)


def to_node(row: tuple[Any, ...]) -> KeywordNode:
    """Return the keyword of a row; its children are not filled in."""
    aliases, metadata = ([] if row[2] == "[]" else json.loads(row[2])), ({} if row[7] == "{}" else json.loads(row[7]))
    said = (row[0], row[1], aliases, json.loads(row[3]), row[4], row[5], [], row[6], metadata)
    return KeywordNode(*said, row[8], row[9], row[10], bool(row[11]), row[12], row[13])


def to_info(row: tuple[Any, ...]) -> Info:
    """Return the info of a row."""
    metadata = {} if row[3] == "{}" else json.loads(row[3])
    return Info(row[0], row[1], row[2], metadata, row[4], row[5], row[6], bool(row[7]), row[8])


def copy(tree: KeywordTree, path: Path, searched: Iterable[str] = ()) -> None:
    """Make a database with the keywords of a tree, and with the infos of some of them."""
    connection = connect(path, create=True, synchronous="OFF")
    connection.execute("BEGIN")
    for node in (tree.GetPath("root")[0], *tree):
        connection.execute(INSERT_NODE, node_row(node))
        connection.executemany(
            "INSERT OR IGNORE INTO aliases VALUES (?,?)", [(fold(a), node.ordinal) for a in node.aliases]
        )
    for keyword_id in searched:
        for info in tree.GetInfosOfKeyword(keyword_id):
            connection.execute(INSERT_INFO, info_row(info))
            connection.execute(INSERT_LINK, (info.id, keyword_id, "PRIMARY"))
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class Search:
    """Builds the `SearchResult` of an exact name from indexed tables; the path is read by one recursive query."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path)
        self.connection.execute("PRAGMA mmap_size = 4000000000")
        self.connection.execute("PRAGMA cache_size = -262144")
        up = ", ".join(f"p.{column}" for column in NODE.split(", "))
        self._path = (
            f"WITH RECURSIVE up (depth, {NODE}) AS (SELECT 0, {NODE} FROM nodes WHERE ordinal = ? "
            f"UNION ALL SELECT depth + 1, {up} FROM up JOIN nodes p ON p.id = up.parent_id) "
            f"SELECT {NODE} FROM up ORDER BY depth DESC"
        )
        self._infos = (
            f"SELECT {', '.join('i.' + column for column in INFO.split(', '))} FROM links l "
            "JOIN infos i ON i.id = l.info_id WHERE l.keyword_id = ? ORDER BY l.ordinal LIMIT 51"
        )

    def __call__(self, query: str) -> SearchResult:
        """Find by exact name or alias, as `KeywordTree.Search` does in its first step."""
        execute = self.connection.execute
        names = "SELECT ordinal FROM nodes WHERE name_key = ?1 UNION SELECT ordinal FROM aliases WHERE key = ?1"
        hits = execute(names, (fold(query),)).fetchall()
        if len(hits) != 1:
            return SearchResult(SearchStatus.NOT_FOUND if not hits else SearchStatus.AMBIGUOUS)
        path = [to_node(row) for row in execute(self._path, hits[0])]
        infos = [to_info(row) for row in execute(self._infos, (path[-1].id,))]
        return SearchResult(SearchStatus.MATCHED, path[-1], path, infos[:50], reason="exact", info_count=len(infos))


def load(path: Path) -> tuple[dict[str, KeywordNode], dict[str, list[str]]]:
    """Read every keyword into a dataclass, with the children lists and an index of folded names and aliases."""
    nodes: dict[str, KeywordNode] = {}
    names: dict[str, list[str]] = {}
    connection = connect(path)
    for row in connection.execute(f"SELECT {NODE} FROM nodes ORDER BY ordinal"):
        node = nodes[row[0]] = to_node(row)
        for key in {row[14], *map(fold, node.aliases)}:
            names.setdefault(key, []).append(node.id)
        if node.parent_id is not None:
            nodes[node.parent_id].children.append(node.id)
    connection.close()
    return nodes, names


class Writer:
    """Stores one record durably per call, with one connection."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(path, create=not path.exists())

    def keyword(self, spec: dict[str, Any]) -> None:
        """Store a keyword and its aliases."""
        now, name = time.time(), spec["name"]
        said = [spec.get("id") or str(uuid.uuid4()), name, json.dumps(spec["aliases"], ensure_ascii=False)]
        rest = [json.dumps(fold(name).split(), ensure_ascii=False), 1, spec["parent_id"], spec["description"], "{}"]
        self.connection.execute("BEGIN IMMEDIATE")
        row = [*said, *rest, 1, now, now, False, "user", None, fold(name)]
        ordinal = self.connection.execute(INSERT_NODE, row).lastrowid
        self.connection.executemany(
            "INSERT OR IGNORE INTO aliases VALUES (?,?)", [(fold(a), ordinal) for a in spec["aliases"]]
        )
        self.connection.execute("COMMIT")

    def info(self, spec: dict[str, Any]) -> None:
        """Store an info and its link."""
        now, id_ = time.time(), str(uuid.uuid4())
        self.connection.execute("BEGIN IMMEDIATE")
        row = [id_, spec["content"], spec["source"], "{}", 1, now, now, False, "user"]
        self.connection.execute(INSERT_INFO, row)
        self.connection.execute(INSERT_LINK, (id_, spec["keyword_ids"][0], "PRIMARY"))
        self.connection.execute("COMMIT")
