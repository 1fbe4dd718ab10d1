"""What an index of words notes of memories: values of each for filters and scores, and which supersedes which.

The values are columns of the row that the index has of each, in the order of saying; the view `memory` reads them.

All functions take a connection within a transaction of the index, which commits them with the words. What is kept here
is derived, and can be thrown away with the index.
"""

import contextlib
import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from ..base.checks import check_strings, shorten
from ..base.text import fold, strings_of
from ..finding.index import Index
from ..finding.packing import checksum, to_id, to_key, to_keys
from ..keyword_tree import Info, InvalidInputError
from . import graph_rows
from .memory_fields import MEMORY_KEY, memory_fields, sources_of, superseded_ids

LAYOUT = "10"
"""Of these tables and those of the graph; another one is filled again."""
COLUMNS = ("kind text", "source text", "time real", "asks integer", "more text", "same integer")
TABLES = """
create view if not exists memory as
    select num, id, checksum, noted as is_hidden, ifnull(kind, 'fact') as kind, source, time, asks, more, same
    from unit where noted is not null;
create index if not exists memory_source on unit(source) where source <> '';
create index if not exists memory_same on unit(same) where noted = 0;
create table if not exists also(num integer, source text, primary key (num, source)) without rowid;
create index if not exists also_source on also(source);
create table if not exists supersedes(new text, old text, primary key (new, old)) without rowid;
create index if not exists supersedes_old on supersedes(old);
create table if not exists refers(source, target, primary key (source, target)) without rowid;
create index if not exists refers_target on refers(target);
"""
_USUAL = "fact"  # the kind that is not kept


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
            is_time = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
            if value is not None and not is_time:
                raise InvalidInputError(f"{name} must be seconds since the epoch or an ISO date, not {shorten(value)}")
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


STOPS = (".", "。")


def without_stop(text: str) -> str:
    """Return a text without blanks around it and its last full stop, with or without which it is the same fact."""
    text = text.strip()
    return text[:-1] if text.endswith(STOPS) else text


def key_of_text(text: str) -> int:
    """Return the key of equal texts, two bytes: texts that differ in case, width and blanks alone have the same."""
    return checksum(fold(text).encode("utf-8", "surrogatepass")) >> 8


@dataclass(slots=True)
class Touched:
    """Infos and keywords to be looked at, after infos were written."""

    followers: dict[str, None] = field(default_factory=dict)
    """Infos that come next in a source."""
    entities: set[str] = field(default_factory=set)
    """Entities that the infos named or name."""


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables where they are not there."""
    has_columns = any(row[1] == "same" for row in db.execute("pragma table_info(unit)"))
    for statement in () if has_columns else (f"alter table unit add column {column}" for column in COLUMNS):
        db.execute(statement)
    for statement in f"{TABLES}{graph_rows.TABLES}".split(";"):
        db.execute(statement)
    db.execute("delete from supersedes")
    graph_rows.clear_tables(db)


def write_rows(index: Index, infos: Sequence[Info], touched: Touched) -> set[str]:
    """Note values of infos for filters, scores and the graph; return the ids of those that were superseded."""
    ids, rows = [info.id for info in infos], list[tuple[object, ...]]()
    with index.transaction() as db:
        columns = "id, num, time, asks, source, is_hidden"
        there = {id: row for id, *row in select_rows(db, f"select {columns} from memory where true", ids)}
        hidden = {info.id for info in infos if memory_fields(info).get("superseded_by")}
        older = "select distinct value from json_each(?) cross join supersedes on old = value"
        hidden |= {id for (id,) in db.execute(older, (json.dumps(ids),)) if find_newer(db, id)}
        again = set[str]()
        for info in infos:
            if (row := there.get(info.id)) is None:
                continue
            if row[2:] != [_asks(info), info.source, info.id in hidden]:
                for source in (row[3], info.source):
                    touched.followers |= dict.fromkeys(following(db, row[0], source))
            if was_said_again(info) and row[1] != time_of(info):
                again.add(info.id)
            touched.entities |= _forget(db, row[0])
        numbers = index.number(ids, again)
        for info in infos:
            num, own, metadata = numbers[info.id], memory_fields(info), dict(info.metadata)
            is_pinned, kind = own.get("pinned") is True, str(own.get("kind", _USUAL))
            metadata.pop(MEMORY_KEY, None)
            # In ASCII: lone surrogates are none of SQLite's.
            more = json.dumps([metadata, is_pinned], separators=(",", ":")) if metadata or is_pinned else None
            said = (None if kind == _USUAL else kind, info.source, time_of(info), _asks(info), more)
            rows.append((info.id in hidden, *said, key_of_text(info.content), num))
            if own and info.id not in hidden:
                targets = set(strings_of(own.get("links")))
                db.executemany("insert into refers values (?, ?)", [(num, to_key(target)) for target in targets])
                others = [(num, source) for source in dict.fromkeys(sources_of(info)[1:])]
                db.executemany("insert into also values (?, ?)", others)
                touched.entities |= graph_rows.take_sayings(db, num, info)
        columns = "noted = ?, kind = ?, source = ?, time = ?, asks = ?, more = ?, same = ?"
        db.executemany(f"update unit set {columns} where num = ?", rows)
    return hidden


def _asks(info: Info) -> bool:
    return "?" in info.content or "？" in info.content


def _forget(db: sqlite3.Connection, num: int) -> set[str]:
    """Drop what stands beside the row of a memory; return the entities that it named."""
    db.execute("delete from refers where source = ?", (num,))
    db.execute("delete from also where num = ?", (num,))
    return graph_rows.drop_sayings(db, num)


def remove_row(db: sqlite3.Connection, id: str, touched: Touched) -> bool:
    """Drop the notes of an info; return whether there were any."""
    for _, num, source in select_rows(db, "select id, num, source from memory where true", [id]):
        touched.followers |= dict.fromkeys(following(db, num, source))
        touched.entities |= _forget(db, num)
        db.execute("update unit set noted = null, source = null, same = null where num = ?", (num,))
        return True
    return False


def following(db: sqlite3.Connection, num: int, source: str) -> list[str]:
    """Return the info that comes next in a source, if there is one."""
    sql = "select id from memory where source = ? and source <> '' and num > ? and is_hidden = 0 order by num limit 1"
    return [to_id(key) for (key,) in db.execute(sql, (source, num))]


def find_questions_before(db: sqlite3.Connection, ids: Collection[str]) -> dict[str, str]:
    """Return the questions just before infos in their sources: id → id."""
    before = (
        "select iif(b.asks, b.id, null) from memory b where b.source = memory.source and b.source <> ''"
        " and b.num < memory.num and b.is_hidden = 0 order by b.num desc limit 1"
    )
    rows = select_rows(db, f"select id, ({before}) from memory where source <> ''", ids)
    return {id: to_id(key) for id, key in rows if key is not None}


# Superseding


def note_superseded(db: sqlite3.Connection, infos: Sequence[Info]) -> set[str]:
    """Note which infos some supersede, and return the others that this connects with these, before or now.

    They may come or go with these, or have their texts as former ones.
    """
    ids = [info.id for info in infos]
    given, is_linked = json.dumps(ids), "exists (select 1 from supersedes where new = value or old = value)"
    linked = [id for (id,) in db.execute(f"select value from json_each(?) where {is_linked}", (given,))]
    connected = {*_walk(db, linked, "iif(new = id, old, new) from found join supersedes on new = id or old = id")}
    db.execute("delete from supersedes where new in (select value from json_each(?))", (given,))
    noted = [(info.id, old) for info in infos if not info.deleted for old in superseded_ids(info)]
    db.executemany("insert or ignore into supersedes values (?, ?)", noted)
    return connected.union(find_older(db, [id for id, _ in noted])).difference(ids)


def find_older(db: sqlite3.Connection, ids: Iterable[str]) -> list[str]:
    """Return infos and all that they supersede, at however many removes, the nearest first."""
    return _walk(db, ids, "old from found join supersedes on new = id")


def _walk(db: sqlite3.Connection, ids: Iterable[str], step: str) -> list[str]:
    found = f"with recursive found(id) as (select value from json_each(?) union select {step}) select id from found"
    return [id for (id,) in db.execute(found, (json.dumps([*ids]),))]


def find_newer(db: sqlite3.Connection, id: str) -> list[str]:
    """Return the infos that say they supersede an info, in the order of their ids; in a circle none does."""
    found = {row[0] for row in db.execute("select new from supersedes where old = ?", (id,))}
    return sorted(found.difference(find_older(db, [id]))) if found else []


# Reading


def select_rows(
    db: sqlite3.Connection, sql: str, ids: Collection[str] | None, values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that ends in a condition, of some infos; None: of all, in the order of writing.

    The first column is the id.
    """
    if ids is None:
        return [(to_id(key), *row) for key, *row in db.execute(f"{sql} order by num", values)]
    keys = to_keys(ids)
    given = json.dumps([*map(checksum, keys)])
    rows = db.execute(f"{sql} and checksum in (select value from json_each(?))", [*values, given])
    return [(keys[key], *row) for key, *row in rows if key in keys]


def facts_of(db: sqlite3.Connection, ids: Collection[str] | None) -> dict[str, InfoFacts]:
    """Return the values for filters and scores of infos that may be found, by id; None: of all."""
    sql = (
        "select id, kind, source, time, more, num, (select count(*) from refers r join memory m on m.num = r.source"
        " where r.target = memory.id) from memory where is_hidden = 0"
    )
    found = {}
    for id, kind, source, time, more, number, referred in select_rows(db, sql, ids):
        metadata, pinned = json.loads(more) if more else ({}, False)
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
            also = f" or num in (select num from also where source in {listed})" if name == "source" else ""
            where, values = f"{where} and ({name} in {listed}{also})", [*values, said, *([said] if also else [])]
    for comparison, at in (("time >= ?", filters.since), ("time < ?", filters.until)):
        if at is not None:
            where, values = f"{where} and {comparison}", [*values, float(at)]
    return where, values
