"""Rows of the graph beside the index of words: properties of keywords by their metadata and by memories.

    entity    a keyword, and what it says of itself
    relation  what a keyword's own metadata relates it to
    about     what a memory says that an entity is
    stated    which relation a memory says, in which sentence
    leads     an id as it was written, and the entity that it leads to now: what it was merged into

`found_by` and `tagged` follow from these: the words and the tags of each entity. All functions take a connection within
a transaction of the index. `TreeGraph` asks.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, replace
from itertools import chain

from ..finding.packing import to_id
from ..keyword_tree import Info, KeywordNode
from .graph import GraphEntity, GraphRelation, RelationDirection, Saying, TagConstraints, index_terms, whole
from .memory_fields import REMOVED, TAG, is_relation, own_entity, read_sayings, split_relation_key

TABLES = """
create table if not exists entity(id text primary key, own text not null, has_tags integer not null) without rowid;
create table if not exists found_by(unit text, entity text, primary key (unit, entity)) without rowid;
create index if not exists found_by_entity on found_by(entity);
create table if not exists tagged(tag text, entity text, primary key (tag, entity)) without rowid;
create index if not exists tagged_entity on tagged(entity);
create table if not exists relation(
    source text, kind text, target text, weight real, primary key (source, kind, target)
) without rowid;
create index if not exists relation_target on relation(target);
create table if not exists about(
    memory integer, entity text, kind text, tags text, description text, primary key (memory, entity)
) without rowid;
create index if not exists about_entity on about(entity);
create table if not exists stated(
    memory integer, place integer, source text, kind text, target text, weight real, sentence text,
    primary key (memory, place)
) without rowid;
create index if not exists stated_source on stated(source);
create index if not exists stated_target on stated(target);
drop table if exists waiting;
create table if not exists leads(written text primary key, id text) without rowid;
create index if not exists leads_id on leads(id);
"""
MAX_TAGS = TagConstraints().max_tags_per_entity
TELLING = 1_000  # entities, where a few are looked for: what more have in common does not distinguish them
_SAYINGS = 100  # listed of one relation: that more say it adds nothing


def clear_tables(db: sqlite3.Connection) -> None:
    """Forget the graph."""
    for table in ("entity", "found_by", "tagged", "relation", "about", "stated", "leads"):
        db.execute(f"delete from {table}")


# -- following ----------------------------------------------------------------


def take_keyword(db: sqlite3.Connection, node: KeywordNode) -> None:
    """Take in a keyword as it has become."""
    db.execute("delete from relation where source = ?", (node.id,))
    db.execute("delete from entity where id = ?", (node.id,))
    if not node.deleted and node.id != "root":
        own = json.dumps(astuple(own_entity(node))[1:])
        db.execute("insert into entity values (?, ?, ?)", (node.id, own, TAG in node.metadata))
        for key, value in node.metadata.items():
            kind, target = split_relation_key(key)
            # A relation from a keyword to itself that was not written so comes from a merge.
            if kind and target != node.id and (value == REMOVED or is_relation(value)):
                row = (node.id, kind, target or node.id, value.get("weight"))
                db.execute("insert or replace into relation(source, kind, target, weight) values (?, ?, ?, ?)", row)
                db.execute("insert or ignore into leads values (?, null)", (target or node.id,))


def drop_sayings(db: sqlite3.Connection, number: int) -> set[str]:
    """Forget the sayings of a memory; return the entities that it named, for `lead`."""
    touched = {row[0] for row in db.execute("select entity from about where memory = ?", (number,))}
    for table in ("about", "stated"):
        db.execute(f"delete from {table} where memory = ?", (number,))
    return touched


def take_sayings(db: sqlite3.Connection, number: int, info: Info) -> set[str]:
    """Take in the sayings of a memory that has none yet; return the entities that it names, for `lead`."""
    entities, relations = read_sayings(info)
    for id, (kind, tags, description) in entities.items():
        db.execute("insert into about values (?, ?, ?, ?, ?)", (number, id, kind, json.dumps(tags), description))
    for place, relation in enumerate(relations):
        db.execute("insert into stated values (?, ?, ?, ?, ?, ?, ?)", (number, place, *relation))
    written = {*entities, *(end for source, _, target, *_ in relations for end in (source, target))}
    db.executemany("insert or ignore into leads values (?, null)", [(id,) for id in written])
    return {*entities}


def lead(
    db: sqlite3.Connection, changed: Collection[str], resolve: Callable[[Collection[str]], Mapping[str, str]]
) -> None:
    """Note where ids lead now that some keywords have changed, and what memories say of these.

    Args:
        db: The connection.
        changed: The keywords.
        resolve: Returns the entity that each id is, or was merged into.
    """
    touched: set[str] = set(changed)
    if changed and db.execute("select 1 from leads limit 1").fetchone():
        for id in changed:
            touched |= {row[0] for row in db.execute("select id from leads where written = ?", (id,))}
            db.execute("update leads set id = null where written = ? or id = ?", (id, id))
    if new := [row[0] for row in db.execute("select written from leads where id is null")]:
        found = resolve(new)
        db.executemany("update leads set id = ? where written = ?", [(found[written], written) for written in new])
        touched |= {*found.values()}
    for id in touched - {None}:
        _settle(db, id)


def _settle(db: sqlite3.Connection, id: str) -> None:
    """Note the search terms of an entity."""
    db.execute("delete from found_by where entity = ?", (id,))
    db.execute("delete from tagged where entity = ?", (id,))
    entity = read_entity(db, id)
    if entity is not None:
        db.executemany("insert into found_by values (?, ?)", [(unit, id) for unit in index_terms(entity)])
        db.executemany("insert into tagged values (?, ?)", [(tag, id) for tag in entity.tags])


# -- asking -------------------------------------------------------------------


def read_entity(db: sqlite3.Connection, id: str) -> GraphEntity | None:
    """Return an entity as its keyword has it, and as memories say where the keyword says nothing."""
    row = db.execute("select own, has_tags from entity where id = ?", (id,)).fetchone()
    if row is None:
        return None
    entity = GraphEntity(id, *json.loads(row[0]))
    about = db.execute(
        "select a.kind, a.tags, a.description from about a join leads l on l.written = a.entity"
        " join memory m on m.num = a.memory where l.id = ? order by m.num",
        (id,),
    ).fetchall()
    types = Counter(kind for kind, _, _ in about if kind)
    kind = entity.entity_type or max(sorted(types), key=types.__getitem__, default="concept")
    counted = Counter(tag for _, tags, _ in about for tag in json.loads(tags)) if not row[1] else Counter[str]()
    tags = dict.fromkeys([*entity.tags, *sorted(counted, key=lambda tag: (-counted[tag], tag))])
    description = entity.description or next((text for _, _, text in about if text), "")
    return replace(entity, entity_type=kind, tags=[*tags][:MAX_TAGS], description=description)


def read_relations(db: sqlite3.Connection, id: str, direction: RelationDirection) -> list[GraphRelation]:
    """Return an entity's relations: those that go out first, those by hand before those that memories say."""
    found = _read_one_way(db, id, True) if direction is not RelationDirection.INCOMING else {}
    if direction is not RelationDirection.OUTGOING:
        found = {**found, **_read_one_way(db, id, False)}
    return [*found.values()]


def _read_one_way(db: sqlite3.Connection, id: str, is_out: bool) -> dict[tuple[str, str, str], GraphRelation]:
    here, there = ("s.id", "t.id") if is_out else ("t.id", "s.id")
    ends = f"join entity e on e.id = {there} where {here} = ?"
    by_hand = db.execute(
        f"select s.id, t.id, r.kind, r.weight from relation r join entity s on s.id = r.source"
        f" join leads t on t.written = r.target {ends} and (s.id <> t.id or r.target = s.id) order by r.kind, t.id",
        (id,),
    )
    found, removed = dict[tuple[str, str, str], GraphRelation](), set[tuple[str, str, str]]()
    for row in by_hand:
        if row[3] is None:
            removed.add(row[:3])
        else:
            found.setdefault(row[:3], GraphRelation(*row))
    hand = {*found}
    said = db.execute(
        "select s.id, t.id, r.kind, r.weight, m.id, r.sentence from stated r join memory m on m.num = r.memory"
        " join leads s on s.written = r.source join leads t on t.written = r.target"
        f" {ends} and s.id <> t.id order by m.num, r.place",
        (id,),
    )
    for *row, memory, sentence in said:
        key = (row[0], row[1], row[2])
        if key in removed - hand:
            continue
        before = found.get(key) or GraphRelation(*row)
        weight = before.weight if key in hand else max(before.weight, row[3])
        said_by = (*before.said_by, Saying(to_id(memory), sentence))[:_SAYINGS]
        found[key] = replace(before, weight=weight, said_by=said_by)
    return found


def entities_with(db: sqlite3.Connection, wanted: Collection[frozenset[str]], limit: int | None) -> list[GraphEntity]:
    """Return the entities that may have keywords, each as its units; see `KnowledgeGraph.find_by_keywords`."""
    having, wholes = defaultdict[str, set[str]](set), [whole(units) for units in wanted]
    units = {*map(_storable, chain(wholes, *wanted))}
    listed = "select unit, entity from found_by where unit in (select value from json_each(?))"
    for unit, entity in db.execute(listed, (json.dumps([*units]),)):
        having[unit].add(entity)

    def ids_with(unit: str) -> set[str]:
        return having[_storable(unit)]

    def ids_of(keyword: frozenset[str]) -> set[str]:
        """Return the entities that have every unit of a keyword."""
        first, *others = sorted(map(ids_with, keyword), key=len)
        return first.intersection(*others)

    candidates: set[str] = set()
    for found in sorted(map(ids_of, wanted), key=len):
        if limit is None or len(candidates) + len(found) <= TELLING:
            candidates |= found
    candidates.update(*map(ids_with, wholes))
    return [entity for id in candidates if (entity := read_entity(db, id)) is not None]


def _storable(text: str) -> str:
    """Return a text that may be asked for: half of a surrogate pair, which nothing has, is none of SQLite's."""
    return text.encode("utf-8", "replace").decode()


def has_relations(db: sqlite3.Connection) -> bool:
    """Tell whether there is any relation."""
    return bool(db.execute("select exists (select 1 from relation) or exists (select 1 from stated)").fetchone()[0])
