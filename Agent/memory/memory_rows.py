"""Rows beside the index of words: values of each info for filters and scores, and which info supersedes which.

All functions take a connection within a transaction of the index, which commits them with the words. What is kept here
is derived, and can be thrown away with the index.
"""

import contextlib
import json
import math
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from ..base.checks import check_strings, shorten
from ..base.text import fold
from ..finding.packing import to_id, to_key
from ..keyword_tree import Info, InvalidInputError
from . import graph_rows
from .memory_fields import MEMORY_KEY, memory_fields, sources_of, strings_in, superseded_ids

__all__ = ["LAYOUT", "NOTHING_MORE", "Filters", "InfoFacts", "Touched", "conditions", "create_tables"]
__all__ += ["facts_of", "find_newer", "find_older", "find_questions_before", "in_order_of_saying", "key_of_text"]
__all__ += ["linked_ids", "note_superseded", "remove_row", "select_rows", "time_of", "write_rows"]

LAYOUT = "7"
"""Of these tables and those of the graph; another one is filled again."""
TABLES = """
create table if not exists memory(
    id primary key, num integer not null, is_hidden integer not null, kind text not null, source text not null,
    time real not null, asks integer not null, more text, same integer
) without rowid;
create index if not exists memory_source on memory(source, num) where source <> '';
create index if not exists memory_same on memory(same);
create table if not exists also(id, source text, primary key (id, source)) without rowid;
create index if not exists also_source on also(source);
create table if not exists supersedes(new text, old text, primary key (new, old)) without rowid;
create index if not exists supersedes_old on supersedes(old);
create table if not exists refers(source, target, primary key (source, target)) without rowid;
create index if not exists refers_target on refers(target);
"""
_ENDS = ("new", "old")
NOTHING_MORE = "[{},false]"
"""Metadata and pin of most infos."""


@dataclass(frozen=True)
class Filters:
    """Which memories may be found; an absent filter excludes nothing."""

    kinds: Collection[str] | None = None
    """`"fact"`, `"episode"`, `"pattern"`, `"skill"`; an info that `MemoryStore` did not write is a fact."""
    sources: Collection[str] | None = None
    """Where it is from, exactly."""
    since: float | None = None
    """Seconds since the epoch, UTC: not older than this."""
    until: float | None = None
    """Seconds since the epoch, UTC: older than this."""
    metadata: Mapping[str, Any] | None = None
    """Keys that its metadata must have, with these values."""

    def __post_init__(self) -> None:
        for name in ("kinds", "sources"):
            if (value := getattr(self, name)) is not None:  # an iterator would be empty the second time
                object.__setattr__(self, name, tuple(check_strings(name, value)))
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value)
            ):
                raise InvalidInputError(f"{name} must be seconds since the epoch, not {shorten(value)}")
        if self.metadata is not None and not isinstance(self.metadata, Mapping):
            raise InvalidInputError(f"metadata must be an object, not {shorten(self.metadata)}")


@dataclass(slots=True)
class InfoFacts:
    """Values of an info for filters and scores."""

    kind: str
    """`"fact"`, `"episode"`, `"pattern"`, `"skill"`, or a value of another program."""
    source: str
    """Where it is from."""
    time: float
    """Seconds since the epoch, UTC: when an episode began, else when the info was written."""
    metadata: Mapping[str, Any]
    """The caller's own."""
    pinned: bool = False
    """Whether it stays when others are forgotten."""
    referred: int = 0
    """How many infos link to it."""
    number: int = 0
    """Its place in the order of writing, whatever the clocks said."""


def key_of_text(text: str) -> int:
    """Return the key of equal texts: texts that differ in case, width and blanks alone have the same."""
    return zlib.crc32(fold(text).encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class Touched:
    """Infos and keywords to be looked at, after infos were written."""

    followers: dict[str, None] = field(default_factory=dict)
    """Infos that come next in a source."""
    entities: set[str] = field(default_factory=set)
    """Entities that the infos named or name."""
    said_again: set[str] = field(default_factory=set)
    """Infos that were there, and count as said after all others now."""


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables where they are not there, and those of another layout again."""
    if any(row[1] == "sum" for row in db.execute("pragma table_info(memory)")):
        for table in ("memory", "named", "related"):
            db.execute(f"drop table if exists {table}")
    for statement in f"{TABLES}{graph_rows.TABLES}".split(";"):
        db.execute(statement)
    db.execute("delete from supersedes")
    graph_rows.clear_tables(db)


def write_rows(db: sqlite3.Connection, infos: Sequence[Info], touched: Touched, numbers: Iterator[int]) -> set[str]:
    """Note values of infos for filters, scores and the graph; return the ids of those that were superseded."""
    ids, rows, hidden = [info.id for info in infos], list[tuple[object, ...]](), set[str]()
    columns, linked = "id, num, asks, source, is_hidden, time", linked_ids(db, ids)
    there = {key: row for key, *row in select_rows(db, f"select {columns} from memory where true", ids)}
    for info in infos:
        key, own = to_key(info.id), memory_fields(info)
        row, asks, time = there.get(key), "?" in info.content or "？" in info.content, time_of(info)
        is_hidden = bool(own.get("superseded_by")) or (info.id in linked and bool(find_newer(db, info.id)))
        if row is not None and row[1:4] != [asks, info.source, is_hidden]:
            for source in (row[2], info.source):
                touched.followers |= dict.fromkeys(following(db, row[0], source))
        is_new = row is None or (was_said_again(info) and row[4] != time)
        if is_new and row is not None:
            touched.said_again.add(info.id)
        metadata, is_pinned = dict(info.metadata), own.get("pinned") is True
        metadata.pop(MEMORY_KEY, None)
        more = _to_json([metadata, is_pinned]) if metadata or is_pinned else None
        num = next(numbers) if row is None or is_new else row[0]
        kind, same = str(own.get("kind", "fact")), key_of_text(info.content)
        rows.append((key, num, is_hidden, kind, info.source, time, asks, more, same))
        if row is not None:
            db.execute("delete from refers where source = ?", (key,))
            db.execute("delete from also where id = ?", (key,))
        if is_hidden:
            hidden.add(info.id)
        elif own:
            targets = set(strings_in(own.get("links")))
            db.executemany("insert into refers values (?, ?)", [(key, to_key(target)) for target in targets])
            others = [(key, source) for source in dict.fromkeys(sources_of(info)[1:])]
            db.executemany("insert into also values (?, ?)", others)
        if row is not None or "graph" in own:
            touched.entities |= graph_rows.take_sayings(db, key, None if is_hidden else info)
    db.executemany("insert or replace into memory values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return hidden


def remove_row(db: sqlite3.Connection, id: str, touched: Touched) -> bool:
    """Drop the notes of an info; return whether there were any."""
    key = to_key(id)
    row = db.execute("select num, source from memory where id = ?", (key,)).fetchone()
    if row is None:
        return False
    touched.followers |= dict.fromkeys(following(db, *row))
    touched.entities |= graph_rows.take_sayings(db, key, None)
    for table, column in (("memory", "id"), ("refers", "source"), ("also", "id")):
        db.execute(f"delete from {table} where {column} = ?", (key,))
    return True


def following(db: sqlite3.Connection, num: int, source: str) -> list[str]:
    """Return the info that comes next in a source, if there is one."""
    sql = "select id from memory where source = ? and source <> '' and num > ? and is_hidden = 0 order by num limit 1"
    return [to_id(key) for (key,) in db.execute(sql, (source, num))]


def find_questions_before(db: sqlite3.Connection, ids: Collection[str]) -> dict[str, str]:
    """Return the questions just before infos in their sources: id → id."""
    sql = (
        "select b.id, b.asks from memory m join memory b on b.source = m.source and b.num < m.num"
        " where m.id = ? and b.source <> '' and b.is_hidden = 0 order by b.num desc limit 1"
    )
    rows = [db.execute(sql, (key,)).fetchone() for key in [*map(to_key, ids)]]
    asked = [row[0] if row and row[1] else None for row in rows]
    before = iter([*map(to_id, filter(None, asked))])
    return {id: next(before) for id, key in zip(ids, asked, strict=True) if key}


# Superseding


def note_superseded(db: sqlite3.Connection, info: Info) -> list[str]:
    """Note which infos an info supersedes, and return those that may come or go with it, or say it as a former text."""
    olds = set() if info.deleted else set(superseded_ids(info))
    before = {row[0] for row in db.execute("select old from supersedes where new = ?", (info.id,))}
    newer = walk_on(db, info.id)
    if olds == before:
        return newer
    touched = find_older(db, [info.id, *before])
    db.execute("delete from supersedes where new = ?", (info.id,))
    db.executemany("insert into supersedes values (?, ?)", [(info.id, old) for old in olds])
    touched += [*find_older(db, [info.id]), *newer]
    return [id for id in dict.fromkeys(touched) if id != info.id]


def linked_ids(db: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    """Return which of some infos supersede another one, or are superseded."""
    found = set[str]()
    for start in range(0, len(ids), 400):
        part = ids[start : start + 400]
        sql = " union ".join(
            f"select {end} from supersedes where {end} in ({','.join('?' * len(part))})" for end in _ENDS
        )
        found.update(id for (id,) in db.execute(sql, [*part, *part]))
    return found


def find_older(db: sqlite3.Connection, ids: Iterable[str]) -> list[str]:
    """Return infos and all that they supersede, at however many removes, as they come."""
    return _walk(db, ids, "select old from supersedes where new = ? order by old")


def walk_on(db: sqlite3.Connection, id: str) -> list[str]:
    """Return all infos that supersede an info, at however many removes."""
    return _walk(db, [id], "select new from supersedes where old = ?")[1:]


def _walk(db: sqlite3.Connection, ids: Iterable[str], sql: str) -> list[str]:
    """Return infos and all that a statement leads to from them, at however many removes; a circle ends."""
    found = dict.fromkeys(ids)
    stack = list(found)
    while stack:
        new = [row[0] for row in db.execute(sql, (stack.pop(),)) if row[0] not in found]
        found |= dict.fromkeys(new)
        stack += new
    return list(found)


def find_newer(db: sqlite3.Connection, id: str) -> list[str]:
    """Return the infos that say they supersede an info, in the order of their ids; in a circle none does."""
    found = {row[0] for row in db.execute("select new from supersedes where old = ?", (id,))}
    return sorted(found.difference(find_older(db, [id]))) if found else []


# Reading


def select_rows(
    db: sqlite3.Connection, sql: str, ids: Collection[str] | None, values: Sequence[Any] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a statement that ends in a condition, of some infos; None: of all, in the order of writing."""
    if ids is None:
        yield from db.execute(f"{sql} order by num", values)
        return
    listed = [*map(to_key, ids)]
    for start in range(0, len(listed), 400):
        part = listed[start : start + 400]
        yield from db.execute(f"{sql} and id in ({','.join('?' * len(part))})", [*values, *part])


def facts_of(db: sqlite3.Connection, ids: Collection[str] | None) -> dict[str, InfoFacts]:
    """Return the values for filters and scores of infos that may be found, by id; None: of all."""
    sql = (
        "select id, kind, source, time, more, num, (select count(*) from refers r join memory m on m.id = r.source"
        " where r.target = memory.id) from memory where is_hidden = 0"
    )
    rows, found = list(select_rows(db, sql, ids)), {}
    known = [*map(to_id, [row[0] for row in rows])]
    for id, (_, kind, source, time, more, number, referred) in zip(known, rows, strict=True):
        metadata, pinned = json.loads(more or NOTHING_MORE)
        found[id] = InfoFacts(kind, source, time, metadata, pinned, referred, number)
    return found


def was_said_again(info: Info) -> bool:
    """Tell whether a fact was remembered again: then it counts as said last at its own time."""
    own = memory_fields(info)
    return own.get("kind", "fact") == "fact" and "time" in own


def in_order_of_saying(infos: Iterable[Info]) -> Iterator[Info]:
    """Yield infos that come in the order of writing, those that were said again at the time of that."""
    waiting: list[tuple[float, int, Info]] = []
    for number, info in enumerate(infos):
        while waiting and waiting[0][0] < info.created_at:
            yield heappop(waiting)[2]
        if was_said_again(info):
            heappush(waiting, (time_of(info), number, info))
        else:
            yield info
    yield from (info for _, _, info in sorted(waiting))


def time_of(info: Info) -> float:
    """Return when an info was said, in seconds since the epoch: its own time, else when it was written."""
    time = memory_fields(info).get("time")
    if isinstance(time, (int, float)) and not isinstance(time, bool):
        with contextlib.suppress(OverflowError):
            return float(time)
    return info.created_at


def conditions(filters: Filters) -> tuple[str, list[Any]]:
    """Return the condition of SQL for which infos may be found, but for their metadata, and its values."""
    where, values = "is_hidden = 0", list[Any]()
    for name, wanted in (("kind", filters.kinds), ("source", filters.sources)):
        if wanted is not None:
            listed, said = "(select value from json_each(?))", json.dumps(list(wanted))
            also = f" or id in (select id from also where source in {listed})" if name == "source" else ""
            where, values = f"{where} and ({name} in {listed}{also})", [*values, said, *([said] if also else [])]
    for comparison, at in (("time >= ?", filters.since), ("time < ?", filters.until)):
        if at is not None:
            where, values = f"{where} and {comparison}", [*values, float(at)]
    return where, values


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))  # in ASCII: lone surrogates are none of SQLite's
