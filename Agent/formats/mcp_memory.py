"""The JSON lines of the MCP memory server: a graph of entities, their observations, and relations between them.

    {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["plays chess"]}
    {"type": "relation", "from": "Ada", "to": "Bern", "relationType": "lives in"}

Read: an entity is a keyword beneath a keyword for its type, an observation is an info of it, a relation is an info
("Ada lives in Bern") that belongs to the first entity and is RELATED to the second one. What has no place in a keyword
goes into its metadata under `"mcp"`, so an imported graph is exported again as the same entities, observations and
relations, in the order of the tree.

Written from any tree: a keyword is an entity of the type "keyword", named by its path where its name alone is taken,
with its infos' contents as observations and a relation "is beneath" to its parent, which puts it there again when it is
read. Aliases, descriptions, sources and what else an entity has no field for are left out.

>>> import io, tempfile
>>> from Agent.keyword_tree import KeywordTree
>>> from Agent.formats.records import View
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     food = tree.CreateKeyword("食物", "root")
...     _ = tree.CreateKeyword("bread", food.id), tree.CreateInfo("Eat it.", keyword_ids=[food.id])
...     out = io.StringIO()
...     write(View(tree), out)
>>> print(out.getvalue())
{"type": "entity", "name": "食物", "entityType": "keyword", "observations": ["Eat it."]}
{"type": "entity", "name": "bread", "entityType": "keyword", "observations": []}
{"type": "relation", "from": "bread", "to": "食物", "relationType": "is beneath"}
"""

import json
from collections.abc import Iterator
from typing import Any, TextIO

from ..keyword_tree import Info, KeywordNode, RelationType
from .records import Fact, Outline, Record, Source, View, is_blank, refuse

BENEATH = "is beneath"
KEYWORD = "keyword"
_MCP = "mcp"


# -- writing ------------------------------------------------------------------


def write(view: View, out: TextIO) -> None:
    """Write the entities, then their relations.

    Cost: holds the names and relations.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    relations: list[tuple[str, str, str]] = []
    path: list[str] = []
    for depth, node in view.walk():
        path[max(depth - 1, 0) :] = [node.name] if depth else []
        said = _said_of(node)
        if not depth or said.get("is") == "type":
            continue
        names[node.id] = name = _free(str(said.get("name", node.name)), path, taken)
        if "type" not in said and node.parent_id in names:
            relations.append((node.id, node.parent_id, BENEATH))
        observations = []
        for info in view.infos(node.id):
            about = _said_of(info)
            if "relation" not in about:
                observations.append(info.content)
            elif about.get("from") == node.id:
                relations.append((node.id, str(about.get("to")), str(about["relation"])))
        kind = str(said.get("type", KEYWORD))
        _write_line(out, {"type": "entity", "name": name, "entityType": kind, "observations": observations})
    for start, end, kind in relations:
        if end in names:
            _write_line(out, {"type": "relation", "from": names[start], "to": names[end], "relationType": kind})


def _said_of(record: KeywordNode | Info) -> dict[str, Any]:
    said = record.metadata.get(_MCP)
    return said if isinstance(said, dict) else {}


def _free(name: str, path: list[str], taken: set[str]) -> str:
    """Return a name that no entity has: the name, its path, or its path with a number."""
    choice, number = name, 1
    while choice in taken:
        choice = " / ".join(path) + (f" ({number})" if number > 1 else "")
        number += 1
    taken.add(choice)
    return choice


def _write_line(out: TextIO, row: dict[str, Any]) -> None:
    out.write(f"{json.dumps(row, ensure_ascii=False)}\n")


# -- reading ------------------------------------------------------------------


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of a graph.

    A relation of which only one end is there belongs to that one; an entity without a name is passed over.

    Raises:
        InvalidInputError: a line is not as the server writes it.

    Cost: reads the file twice, for relations tell where entities belong; holds the names.
    """
    graph = _Graph(outline)
    for row in _rows(source):
        graph.note(row)
    for row in _rows(source):
        yield from graph.records(row)


class _Graph:
    """The names of a graph, and what was made of them."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._kinds: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        self._made: set[str] = set()
        self._made_kinds: set[str] = set()

    def note(self, row: dict[str, Any]) -> None:
        if row["type"] == "entity":
            if not is_blank(row["name"]):
                self._kinds.setdefault(row["name"], row["entityType"])
        elif row["relationType"] == BENEATH:
            self._parents.setdefault(row["from"], row["to"])

    def records(self, row: dict[str, Any]) -> Iterator[Record]:
        if row["type"] == "relation":
            yield from self._relation(row["from"], row["to"], row["relationType"])
        elif not is_blank(row["name"]):
            yield from self._entity(row["name"])
            for observation in row["observations"]:
                yield self._outline.fact(self._id(row["name"]), observation)

    def _id(self, name: str) -> str:
        return self._outline.id_of("entity", name)

    def _is_placed(self, name: str) -> bool:
        """Tell whether a relation puts this entity beneath another one."""
        return self._kinds[name] == KEYWORD and self._parents.get(name) in self._kinds

    def _entity(self, name: str) -> Iterator[Record]:
        """Yield the keyword of an entity, after those above it that are still to be made."""
        chain: list[str] = []
        while name not in self._made:
            self._made.add(name)  # a circle ends here, and its first one goes to the top
            chain.append(name)
            if not self._is_placed(name):
                break
            name = self._parents[name]
        for place, this in reversed(list(enumerate(chain))):
            kind = self._kinds[this]
            parent_id = self._outline.parent_id
            if self._is_placed(this) and (place + 1 < len(chain) or self._parents[this] not in chain):
                parent_id = self._id(self._parents[this])
            elif kind != KEYWORD and not is_blank(kind):
                parent_id = self._outline.id_of("type", kind)
                if kind not in self._made_kinds:
                    self._made_kinds.add(kind)
                    head = self._outline.keyword(self._outline.parent_id, kind, id=parent_id)
                    head.metadata = {_MCP: {"is": "type"}}
                    yield head
            keyword = self._outline.keyword(parent_id, this, id=self._id(this))
            said = ({} if kind == KEYWORD else {"type": kind}) | ({} if keyword.name == this else {"name": this})
            keyword.metadata = {_MCP: said} if said else {}
            yield keyword

    def _relation(self, start: str, end: str, kind: str) -> Iterator[Record]:
        ends = [self._id(name) for name in dict.fromkeys((start, end)) if name in self._kinds]
        is_place = kind == BENEATH and self._parents[start] == end and start in self._kinds and self._is_placed(start)
        if is_place or not ends:
            return
        relations = (RelationType.PRIMARY, RelationType.RELATED)
        id = self._outline.id_of("relation", start, kind, end)
        fact = Fact(id, f"{start} {kind} {end}", links=list(zip(ends, relations, strict=False)))
        fact.metadata = {_MCP: {"relation": kind, "from": self._id(start), "to": self._id(end)}}
        yield fact


def _rows(source: Source) -> Iterator[dict[str, Any]]:
    with source.open_text() as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line)
                fields = ("name", "entityType") if row["type"] == "entity" else ("from", "to", "relationType")
                told = row.get("observations", [])
                texts = [row[name] for name in fields] + list(told)
                is_known = row["type"] in ("entity", "relation") and isinstance(told, list)
                if not is_known or not all(isinstance(text, str) for text in texts):
                    raise ValueError("neither an entity nor a relation, or a field is no text")
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise refuse(source, f"this is no line of the MCP memory server: {error!r}", number) from error
            yield {"observations": [], **row}
