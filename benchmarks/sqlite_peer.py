"""The peer that every claim is held against: the same records in sqlite3, as a good engineer would keep them.

One connection, cached statements, WAL; integer row ids in the order of creation, the id text unique beside
it; the folded name in an indexed column, folded aliases in a table of their own (few keywords have one);
lists and dicts as JSON, where an empty one is recognised without parsing. What is read becomes the library's
own dataclasses.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from Agent.keyword_tree import Info, KeywordNode, SearchResult, SearchStatus

NODE_COLUMNS = (
    "id, name, aliases, normalized, level, parent_id, description, metadata, "
    "version, created_at, updated_at, deleted, created_by, ordinal, name_key"
)
INFO_COLUMNS = "id, content, source, metadata, version, created_at, updated_at, deleted, created_by"

TABLES = """
CREATE TABLE nodes (ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, name_key TEXT
    NOT NULL, aliases TEXT NOT NULL, normalized TEXT NOT NULL, level INTEGER NOT NULL, parent_id TEXT,
    description TEXT NOT NULL, metadata TEXT NOT NULL, version INTEGER NOT NULL, created_at REAL NOT NULL,
    updated_at REAL NOT NULL, deleted INTEGER NOT NULL, created_by TEXT NOT NULL);
CREATE TABLE aliases (key TEXT NOT NULL, ordinal INTEGER NOT NULL, PRIMARY KEY (key, ordinal)) WITHOUT ROWID;
CREATE TABLE infos (ordinal INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL, source TEXT
NOT NULL,
    metadata TEXT NOT NULL, version INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
    deleted INTEGER NOT NULL, created_by TEXT NOT NULL);
CREATE TABLE links (ordinal INTEGER PRIMARY KEY, keyword_id TEXT NOT NULL, info_id TEXT NOT NULL, relation
    TEXT NOT NULL, created_by TEXT NOT NULL, created_at REAL NOT NULL, deleted INTEGER NOT NULL);
CREATE INDEX nodes_by_name ON nodes (name_key);
CREATE INDEX links_by_keyword ON links (keyword_id, ordinal);
"""
CHILDREN_INDEX = "CREATE INDEX nodes_by_parent ON nodes (parent_id, ordinal)"

INSERT_NODE = f"INSERT INTO nodes ({NODE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
INSERT_ALIAS = "INSERT OR IGNORE INTO aliases (key, ordinal) VALUES (?,?)"
INSERT_INFO = f"INSERT INTO infos ({INFO_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?)"
INSERT_LINK = (
    "INSERT INTO links (info_id, keyword_id, relation, created_by, created_at, deleted) VALUES (?,?,?,?,?,?)"
)


def fold(text: str) -> str:
    """Return `text` without differences of case and width."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def connect(
    path: Path, *, create: bool = False, synchronous: str = "FULL", timeout_s: float = 60
) -> sqlite3.Connection:
    """Open a database in WAL mode, in autocommit, shareable between threads.

    Args:
        path: the database file.
        create: make the tables.
        synchronous: "FULL" makes every commit durable.
        timeout_s: how long to wait for another connection's lock.
    """
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=timeout_s
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if create:
        connection.executescript(TABLES)
    return connection


# == Records to rows and back ================================================================

_encode: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def node_row(node: KeywordNode) -> tuple[object, ...]:
    """Return the row of a keyword."""
    return (
        node.id,
        node.name,
        _encode(node.aliases) if node.aliases else "[]",
        _encode(node.normalized),
        node.level,
        node.parent_id,
        node.description,
        _encode(node.metadata) if node.metadata else "{}",
        node.version,
        node.created_at,
        node.updated_at,
        node.deleted,
        node.created_by,
        node.ordinal,
        fold(node.name),
    )


def info_row(info: Info) -> tuple[object, ...]:
    """Return the row of an info."""
    return (
        info.id,
        info.content,
        info.source,
        _encode(info.metadata) if info.metadata else "{}",
        info.version,
        info.created_at,
        info.updated_at,
        info.deleted,
        info.created_by,
    )


def to_node(row: tuple[Any, ...], parse: Callable[[str], Any] = json.loads) -> KeywordNode:
    """Return the keyword of a row; its children are not filled in."""
    return KeywordNode(
        row[0],
        row[1],
        [] if row[2] == "[]" else parse(row[2]),
        parse(row[3]),
        row[4],
        row[5],
        [],
        row[6],
        {} if row[7] == "{}" else parse(row[7]),
        row[8],
        row[9],
        row[10],
        bool(row[11]),
        row[12],
        row[13],
    )


def to_info(row: tuple[Any, ...], parse: Callable[[str], Any] = json.loads) -> Info:
    """Return the info of a row."""
    metadata = {} if row[3] == "{}" else parse(row[3])
    return Info(row[0], row[1], row[2], metadata, row[4], row[5], row[6], bool(row[7]), row[8])


def fill(connection: sqlite3.Connection, nodes: Iterable[KeywordNode]) -> None:
    """Insert keywords, root among them, in one transaction."""
    aliases: list[tuple[str, int]] = []

    def rows() -> Iterable[tuple[object, ...]]:
        for node in nodes:
            aliases.extend((fold(alias), node.ordinal) for alias in node.aliases)
            yield node_row(node)

    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT_NODE, rows())
    connection.executemany(INSERT_ALIAS, aliases)
    connection.execute("COMMIT")


def fill_infos(connection: sqlite3.Connection, keyword_id: str, infos: Iterable[Info]) -> None:
    """Insert the infos of one keyword, in their order (inside the caller's transaction)."""
    for info in infos:
        connection.execute(INSERT_INFO, info_row(info))
        connection.execute(INSERT_LINK, (info.id, keyword_id, "PRIMARY", info.created_by, info.created_at, 0))


# == Search ==================================================================================


class SqliteSearch:
    """Builds the `SearchResult` of an exact name from indexed tables."""

    def __init__(self, path: Path, *, path_by: str, with_children: bool = False) -> None:
        """Open the database for reading, wholly mapped into memory.

        Args:
            path: the database file.
            path_by: "loop" reads the ancestors one statement each, "recursion" all in one.
            with_children: fill in the children of the node and of its ancestors as well.
        """
        self.connection = connect(path)
        self.connection.execute("PRAGMA mmap_size = 4000000000")
        self.connection.execute("PRAGMA cache_size = -262144")
        self._path = self._path_by_loop if path_by == "loop" else self._path_by_recursion
        self._with_children = with_children
        up = ", ".join(f"p.{column}" for column in NODE_COLUMNS.split(", "))
        self._recursion = (
            f"WITH RECURSIVE up (depth, {NODE_COLUMNS}) AS "
            f"(SELECT 0, {NODE_COLUMNS} FROM nodes WHERE ordinal = ? "
            f"UNION ALL SELECT depth + 1, {up} FROM up JOIN nodes p ON p.id = up.parent_id) "
            f"SELECT {NODE_COLUMNS} FROM up ORDER BY depth DESC"
        )

    def search(self, query: str) -> SearchResult:
        """Find by exact name or alias, as `KeywordTree.Search` does in its first step."""
        key = fold(query)
        hits = self.connection.execute(
            "SELECT ordinal FROM nodes WHERE name_key = ?1 UNION SELECT ordinal FROM aliases WHERE key = ?1",
            (key,),
        ).fetchall()
        if len(hits) != 1:
            return SearchResult(SearchStatus.NOT_FOUND if not hits else SearchStatus.AMBIGUOUS)
        path = self._path(hits[0][0])
        if self._with_children:
            for node in path:
                found = self.connection.execute(
                    "SELECT id FROM nodes WHERE parent_id = ? ORDER BY ordinal", (node.id,)
                )
                node.children = [id_ for (id_,) in found]
        rows = self.connection.execute(
            f"SELECT {', '.join('i.' + column for column in INFO_COLUMNS.split(', '))} FROM links l "
            "JOIN infos i ON i.id = l.info_id WHERE l.keyword_id = ? AND NOT l.deleted "
            "ORDER BY l.ordinal LIMIT 51",
            (path[-1].id,),
        )
        infos = [to_info(row) for row in rows]
        return SearchResult(
            SearchStatus.MATCHED, path[-1], path, infos[:50], reason="exact", info_count=len(infos)
        )

    def _path_by_loop(self, ordinal: int) -> list[KeywordNode]:
        execute = self.connection.execute
        path = [
            to_node(execute(f"SELECT {NODE_COLUMNS} FROM nodes WHERE ordinal = ?", (ordinal,)).fetchone())
        ]
        while (parent_id := path[-1].parent_id) is not None:
            path.append(
                to_node(execute(f"SELECT {NODE_COLUMNS} FROM nodes WHERE id = ?", (parent_id,)).fetchone())
            )
        path.reverse()
        return path

    def _path_by_recursion(self, ordinal: int) -> list[KeywordNode]:
        return [to_node(row) for row in self.connection.execute(self._recursion, (ordinal,))]


# == Loading everything ======================================================================


def load(path: Path, *, share: bool) -> tuple[dict[str, KeywordNode], dict[str, str | list[str]]]:
    """Read every keyword into a dataclass, with a name index and the children lists.

    Args:
        path: the database file.
        share: keep equal strings once (a child's `parent_id` and its parent's `id`, a name and its folded
            form, `created_by`): less memory for a little time.

    Returns:
        The keywords by id, and the folded names and aliases, each leading to an id or (if several) a list.
    """
    connection = connect(path)
    nodes: dict[str, KeywordNode] = {}
    names: dict[str, str | list[str]] = {}

    def enter(key: str, id_: str) -> None:
        held = names.setdefault(key, id_)
        if isinstance(held, list):
            held.append(id_)
        elif held is not id_ and held != id_:
            names[key] = [held, id_]

    # What `json.loads` calls in the end; without its preparations it takes a third of the time.
    scan = vars(json.JSONDecoder())["scan_once"]

    def parse(text: str) -> Any:
        return scan(text, 0)[0]

    for row in connection.execute(f"SELECT {NODE_COLUMNS} FROM nodes WHERE NOT deleted ORDER BY ordinal"):
        node = to_node(row, parse)
        id_, key = node.id, row[14]
        if share:
            node.created_by = sys.intern(node.created_by)
            key = node.name if key == node.name else key
            if node.normalized == [key]:
                node.normalized = [key]
        nodes[id_] = node
        enter(key, id_)
        for alias in node.aliases:
            enter(fold(alias), id_)
        if node.parent_id is not None:
            parent = nodes[node.parent_id]
            parent.children.append(id_)
            if share:
                node.parent_id = parent.id
    connection.close()
    return nodes, names
