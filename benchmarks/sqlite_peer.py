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
import time
import unicodedata
import uuid
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
INSERT_LINK = "INSERT INTO links (info_id, keyword_id, relation, created_by, created_at, deleted) VALUES (?,?,?,?,?,?)"


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
            "SELECT ordinal FROM nodes WHERE name_key = ?1 UNION SELECT ordinal FROM aliases WHERE key = ?1", (key,)
        ).fetchall()
        if len(hits) != 1:
            return SearchResult(SearchStatus.NOT_FOUND if not hits else SearchStatus.AMBIGUOUS)
        path = self._path(hits[0][0])
        if self._with_children:
            for node in path:
                found = self.connection.execute("SELECT id FROM nodes WHERE parent_id = ? ORDER BY ordinal", (node.id,))
                node.children = [id_ for (id_,) in found]
        rows = self.connection.execute(
            f"SELECT {', '.join('i.' + column for column in INFO_COLUMNS.split(', '))} FROM links l "
            "JOIN infos i ON i.id = l.info_id WHERE l.keyword_id = ? AND NOT l.deleted "
            "ORDER BY l.ordinal LIMIT 51",
            (path[-1].id,),
        )
        infos = [to_info(row) for row in rows]
        return SearchResult(SearchStatus.MATCHED, path[-1], path, infos[:50], reason="exact", info_count=len(infos))

    def _path_by_loop(self, ordinal: int) -> list[KeywordNode]:
        execute = self.connection.execute
        path = [to_node(execute(f"SELECT {NODE_COLUMNS} FROM nodes WHERE ordinal = ?", (ordinal,)).fetchone())]
        while (parent_id := path[-1].parent_id) is not None:
            path.append(to_node(execute(f"SELECT {NODE_COLUMNS} FROM nodes WHERE id = ?", (parent_id,)).fetchone()))
        path.reverse()
        return path

    def _path_by_recursion(self, ordinal: int) -> list[KeywordNode]:
        return [to_node(row) for row in self.connection.execute(self._recursion, (ordinal,))]


# == Changing many records ===================================================================

LINK_COLUMNS = "ordinal, keyword_id, info_id, relation, created_by, created_at, deleted"
METHOD_TABLES = f"""
CREATE TABLE operations (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, op TEXT NOT NULL, timestamp REAL);
CREATE TABLE old_nodes (operation INTEGER NOT NULL, {NODE_COLUMNS}, PRIMARY KEY (operation, id)) WITHOUT ROWID;
CREATE TABLE old_links (operation INTEGER NOT NULL, {LINK_COLUMNS}, PRIMARY KEY (operation, ordinal))
    WITHOUT ROWID;
CREATE INDEX links_by_info ON links (info_id, keyword_id);
CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent_id, ordinal);
"""


class SqliteMethods:
    """Moves, merges and undoes, each in one transaction; what an undo needs is kept in tables of its own.

    As in the library, deleted records stay as rows, a keyword's `level` is not rewritten in what lies beneath
    it, and an undo can be undone. Whether a later operation wrote the same records is not looked up.
    """

    def __init__(self, database: Path | sqlite3.Connection) -> None:
        """Open a database that has `METHOD_TABLES`, or use a connection to it."""
        self.connection = database if isinstance(database, sqlite3.Connection) else connect(database)
        self._execute = self.connection.execute

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def move(self, id_: str, to: str) -> None:
        """Hang a keyword beneath another one."""
        self._execute("BEGIN IMMEDIATE")
        self._refuse_cycle(id_, to)
        number, now = self._begin("move")
        self._keep_nodes(number, "id = ?", id_)
        self._execute(
            "UPDATE nodes SET parent_id = ?1, level = 1 + (SELECT level FROM nodes WHERE id = ?1), "
            "version = version + 1, updated_at = ?2 WHERE id = ?3",
            (to, now, id_),
        )
        self._execute("COMMIT")

    def merge(self, src: str, dst: str) -> None:
        """Hang all that a keyword has on another one, which also takes its names."""
        self._execute("BEGIN IMMEDIATE")
        self._refuse_cycle(src, dst)
        number, now = self._begin("merge")
        self._keep_nodes(number, "id IN (?1, ?2) OR parent_id = ?1", src, dst)
        self._execute(
            f"INSERT INTO old_links SELECT ?, {LINK_COLUMNS} FROM links WHERE keyword_id = ? AND NOT deleted",
            (number, src),
        )
        self._execute(
            "UPDATE links SET deleted = 1 WHERE keyword_id = ?1 AND NOT deleted AND EXISTS (SELECT 1 FROM links "
            "other WHERE other.info_id = links.info_id AND other.keyword_id = ?2 AND NOT other.deleted)",
            (src, dst),
        )
        self._execute("UPDATE links SET keyword_id = ? WHERE keyword_id = ? AND NOT deleted", (dst, src))
        self._execute(
            "UPDATE nodes SET parent_id = ?1, level = 1 + (SELECT level FROM nodes WHERE id = ?1), "
            "version = version + 1, updated_at = ?2 WHERE parent_id = ?3",
            (dst, now, src),
        )
        names = []
        for id_ in (dst, src):
            row = self._execute("SELECT name, aliases, normalized FROM nodes WHERE id = ?", (id_,)).fetchone()
            names.append((row[0], json.loads(row[1]), json.loads(row[2])))
        aliases = list(dict.fromkeys([*names[0][1], names[1][0], *names[1][1]]))
        normalized = list(dict.fromkeys(names[0][2] + names[1][2]))
        self._execute(
            "UPDATE nodes SET aliases = ?, normalized = ?, version = version + 1, updated_at = ? WHERE id = ?",
            (_encode(aliases), _encode(normalized), now, dst),
        )
        self._execute("UPDATE nodes SET deleted = 1, version = version + 1, updated_at = ? WHERE id = ?", (now, src))
        self._set_aliases(dst, names[0][1], aliases)
        self._set_aliases(src, names[1][1], [])
        self._execute("COMMIT")

    def undo(self, operation: str) -> None:
        """Put back what an operation changed, as an operation of its own."""
        self._execute("BEGIN IMMEDIATE")
        (undone,) = self._execute("SELECT number FROM operations WHERE id = ?", (operation,)).fetchone()
        number, now = self._begin("undo")
        self._keep_nodes(number, "id IN (SELECT id FROM old_nodes WHERE operation = ?)", undone)
        of_links = ", ".join(f"l.{column}" for column in LINK_COLUMNS.split(", "))
        self._execute(
            f"INSERT INTO old_links SELECT ?, {of_links} FROM old_links o JOIN links l ON l.ordinal = o.ordinal "
            "WHERE o.operation = ?",
            (number, undone),
        )
        self._execute(
            "UPDATE nodes SET name = o.name, aliases = o.aliases, normalized = o.normalized, level = o.level, "
            "parent_id = o.parent_id, description = o.description, metadata = o.metadata, deleted = o.deleted, "
            "name_key = o.name_key, version = nodes.version + 1, updated_at = ? "
            "FROM old_nodes o WHERE o.operation = ? AND o.id = nodes.id",
            (now, undone),
        )
        self._execute(
            "UPDATE links SET keyword_id = o.keyword_id, relation = o.relation, deleted = o.deleted "
            "FROM old_links o WHERE o.operation = ? AND o.ordinal = links.ordinal",
            (undone,),
        )
        changed = self._execute(
            "SELECT n.id, was.aliases, was.deleted, n.aliases, n.deleted FROM old_nodes was JOIN nodes n "
            "ON n.id = was.id WHERE was.operation = ? AND (was.aliases, was.deleted) <> (n.aliases, n.deleted)",
            (number,),
        ).fetchall()
        for id_, old, was_deleted, new, is_deleted in changed:
            held = [] if was_deleted else json.loads(old)
            self._set_aliases(id_, held, [] if is_deleted else json.loads(new))
        self._execute("COMMIT")

    def describe(self, id_: str, text: str) -> None:
        """Give a keyword another description; the caller has a transaction open."""
        number, now = self._begin("describe")
        self._keep_nodes(number, "id = ?", id_)
        self._execute(
            "UPDATE nodes SET description = ?, version = version + 1, updated_at = ? WHERE id = ?", (text, now, id_)
        )

    def newest(self) -> str:
        """Return the newest operation."""
        (operation,) = self._execute("SELECT id FROM operations ORDER BY number DESC LIMIT 1").fetchone()
        assert isinstance(operation, str)
        return operation

    def _begin(self, op: str) -> tuple[int, float]:
        now = time.time()
        row = (str(uuid.uuid4()), op, now)
        cursor = self._execute("INSERT INTO operations (id, op, timestamp) VALUES (?, ?, ?)", row)
        assert cursor.lastrowid is not None
        return cursor.lastrowid, now

    def _keep_nodes(self, number: int, which: str, *values: object) -> None:
        """Keep the rows of keywords as they are; `which` has its own numbered values, or one."""
        which = which.replace("?2", "?3").replace("?1", "?2")
        self._execute(f"INSERT INTO old_nodes SELECT ?1, {NODE_COLUMNS} FROM nodes WHERE {which}", (number, *values))

    def _refuse_cycle(self, id_: str, to: str) -> None:
        found = self._execute(
            "WITH RECURSIVE up (id, parent_id) AS (SELECT id, parent_id FROM nodes WHERE id = ? UNION ALL "
            "SELECT p.id, p.parent_id FROM up JOIN nodes p ON p.id = up.parent_id) SELECT 1 FROM up WHERE id = ?",
            (to, id_),
        ).fetchone()
        if found:
            self._execute("ROLLBACK")
            raise ValueError(f"{to} lies beneath {id_}")

    def _set_aliases(self, id_: str, old: list[str], new: list[str]) -> None:
        (ordinal,) = self._execute("SELECT ordinal FROM nodes WHERE id = ?", (id_,)).fetchone()
        was, becomes = set(map(fold, old)), set(map(fold, new))
        for key in was - becomes:
            self._execute("DELETE FROM aliases WHERE key = ? AND ordinal = ?", (key, ordinal))
        for key in becomes - was:
            self._execute(INSERT_ALIAS, (key, ordinal))

    def children(self, id_: str) -> list[str]:
        """Return the ids of a keyword's children in the order of creation."""
        found = self._execute("SELECT id FROM nodes WHERE parent_id = ? AND NOT deleted ORDER BY ordinal", (id_,))
        return [child for (child,) in found]

    def infos(self, id_: str) -> set[str]:
        """Return the ids of the infos linked to a keyword."""
        found = self._execute("SELECT info_id FROM links WHERE keyword_id = ? AND NOT deleted", (id_,))
        return {info_id for (info_id,) in found}

    def find(self, name: str) -> list[str]:
        """Return the ids of the keywords that bear a name, sorted."""
        found = self._execute(
            "SELECT id FROM nodes WHERE name_key = ?1 AND NOT deleted UNION SELECT n.id FROM aliases a "
            "JOIN nodes n ON n.ordinal = a.ordinal WHERE a.key = ?1 ORDER BY 1",
            (fold(name),),
        )
        return [id_ for (id_,) in found]


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
