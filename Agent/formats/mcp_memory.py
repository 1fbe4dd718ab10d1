"""The JSON lines of the MCP memory server: a graph of entities, their observations, and relations between them.

    {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["plays chess"]}
    {"type": "relation", "from": "Ada", "to": "Bern", "relationType": "lives in"}

Such a file may be called memory.json, and the one object that `read_graph` returns, saved to a file, is read as well.

Read: an entity is a keyword under a keyword for its type, an observation is an info of it, a relation is an info
("Ada lives in Bern") that belongs to the first entity and is RELATED to the second one. What has no place in a keyword
goes into its metadata under `"mcp"`, so an imported graph is exported again as the same entities, observations and
relations, in the order of the tree. A relation keeps the names of its ends, for one that leads nowhere.

Written from any tree: a keyword is an entity of the type "keyword", named by its path where its name alone is taken,
with its infos' contents as observations and a relation "is beneath" to its parent, which puts it there again when it is
read. Aliases, descriptions, sources and what else an entity has no field for are left out.

>>> import io, tempfile
>>> from keyword_tree import KeywordTree
>>> from keyword_tree.formats.view import View
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

import contextlib
import json
from collections.abc import Container, Iterator
from typing import Any, TextIO

from ..keyword_tree import Info, KeywordNode, RelationType
from .records import ROOT_ID, Fact, Keyword, Outline, Record, Source, is_blank, refuse
from .view import View

BENEATH = "is beneath"
KEYWORD = "keyword"
_MCP = "mcp"


# -- how a graph is stored in a tree: here, and in `adapters.mcp` -----------------


def said_of(record: KeywordNode | Info) -> dict[str, Any]:
    """Return a record's properties in a graph: any program may write metadata, and another form counts as absent."""
    said = record.metadata.get(_MCP)
    return said if isinstance(said, dict) else {}


def is_type(said: dict[str, Any]) -> bool:
    """Return whether a keyword is a type of entities, and no entity itself."""
    return said.get("is") == "type"


def kind_of(said: dict[str, Any]) -> str:
    """Return an entity's type: "keyword" where no graph said another one."""
    return str(said.get("type", KEYWORD))


def kept_names(said: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the names of a relation's two ends, as they were when it was made; None where they are not recorded."""
    names = said.get("names")
    is_pair = isinstance(names, list) and len(names) == 2 and all(isinstance(name, str) for name in names)
    return (names[0], names[1]) if is_pair and names else (None, None)


def free_name(name: str, path: list[str], taken: Container[str]) -> str:
    """Return a name that no entity has: the name, its path, or its path with a number."""
    choice, number = name, 1
    while choice in taken:
        choice = " / ".join(path) + (f" ({number})" if number > 1 else "")
        number += 1
    return choice


def entity_id(outline: Outline, name: str) -> str:
    """Return the id of the keyword that an entity of this name becomes."""
    return outline.id_of("entity", name)


def type_keyword(outline: Outline, kind: str) -> Keyword:
    """Return the keyword of a type, the parent of its entities."""
    keyword = outline.keyword(outline.parent_id, kind, id=outline.id_of("type", kind))
    keyword.metadata = {_MCP: {"is": "type"}}
    return keyword


def entity_keyword(outline: Outline, name: str, kind: str, parent_id: str) -> Keyword:
    """Return the keyword of an entity."""
    keyword = outline.keyword(parent_id, name, id=entity_id(outline, name))
    said = ({} if kind == KEYWORD else {"type": kind}) | ({} if keyword.name == name else {"name": name})
    keyword.metadata = {_MCP: said} if said else {}
    return keyword


def relation_fact(outline: Outline, names: tuple[str, str], ids: tuple[str, str], kind: str, linked: list[str]) -> Fact:
    """Return the info of a relation.

    Args:
        outline: gives the id.
        names: of its two ends.
        ids: of their keywords, whether they are there or not.
        kind: the name of the relation.
        linked: those of the ids that are there, each once.
    """
    start, end = names
    relations = (RelationType.PRIMARY, RelationType.RELATED)
    links = list(zip(linked, relations, strict=False))
    fact = Fact(outline.id_of("relation", start, kind, end), f"{start} {kind} {end}", links=links)
    fact.metadata = {_MCP: {"relation": kind, "from": ids[0], "to": ids[1], "names": list(names)}}
    return fact


# -- writing ------------------------------------------------------------------


def write(view: View, out: TextIO) -> None:
    """Write the entities, then their relations.

    Cost: holds the names and relations.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    relations: dict[str, dict[str, Any]] = {}
    parents: list[tuple[str, str]] = []
    path: list[str] = []
    for depth, node in view.walk():
        path[max(depth - 1, 0) :] = [node.name] if depth else []
        said = said_of(node)
        if not depth or is_type(said):
            continue
        names[node.id] = name = free_name(str(said.get("name", node.name)), path, taken)
        taken.add(name)
        if "type" not in said and node.parent_id in names:
            parents.append((name, names[node.parent_id]))
        infos = list(view.infos(node.id))
        relations |= {info.id: about for info in infos if "relation" in (about := said_of(info))}
        observations = [info.content for info in infos if info.id not in relations]
        _write_line(out, {"type": "entity", "name": name, "entityType": kind_of(said), "observations": observations})
    for start, end in parents:
        _write_line(out, {"type": "relation", "from": start, "to": end, "relationType": BENEATH})
    relations |= {info.id: about for info in view.unlinked() if "relation" in (about := said_of(info))}
    for about in relations.values():
        # Of a part of a tree, a relation that leads out of it is left out; of a whole one, it leads nowhere.
        kept = kept_names(about) if view.root.id == ROOT_ID else (None, None)
        ends = [names.get(str(about.get(end)), name) for end, name in zip(("from", "to"), kept, strict=True)]
        if None not in ends:
            row = {"type": "relation", "from": ends[0], "to": ends[1], "relationType": str(about["relation"])}
            _write_line(out, row)


def _write_line(out: TextIO, row: dict[str, Any]) -> None:
    out.write(f"{json.dumps(row, ensure_ascii=False)}\n")


# -- reading ------------------------------------------------------------------


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of a graph.

    A relation of which only one end is there belongs to that one, one without any has no keyword; an entity without a
    name is passed over.

    Raises:
        InvalidInputError: a line is not as the server writes it, and the source collects no problems.

    Cost: holds the file; reads the file twice, for relations say where entities belong; holds the names.
    """
    graph = _Graph(outline)
    for row in _rows(source):
        graph.note(row)
    for row in _rows(source):
        yield from graph.records(row)


class _Graph:
    """The names of a graph, and the records made of them."""

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
        return entity_id(self._outline, name)

    def _is_placed(self, name: str) -> bool:
        """Tell whether a relation puts this entity under another one."""
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
                head = type_keyword(self._outline, kind)
                parent_id = head.id
                if kind not in self._made_kinds:
                    self._made_kinds.add(kind)
                    yield head
            yield entity_keyword(self._outline, this, kind, parent_id)

    def _relation(self, start: str, end: str, kind: str) -> Iterator[Record]:
        if kind == BENEATH and self._parents[start] == end and start in self._kinds and self._is_placed(start):
            return
        linked = [self._id(name) for name in dict.fromkeys((start, end)) if name in self._kinds]
        yield relation_fact(self._outline, (start, end), (self._id(start), self._id(end)), kind, linked)


def is_graph(source: Source) -> bool:
    """Tell whether a file holds a graph: lines of the server's file, or the one object that `read_graph` returns."""
    text = source.path.read_bytes().decode(source.encoding_of(source.path), "replace")
    if '"keywords"' in text[:4096]:  # a document of our own, which may be large
        return False
    for part in (text.lstrip().partition("\n")[0], text):
        with contextlib.suppress(ValueError, RecursionError, TypeError, LookupError, AttributeError):
            said = json.loads(part)
            return said.get("type") in ("entity", "relation") or bool(_rows_of_answer(said))
    return False


def _rows_of_answer(answer: Any) -> list[dict[str, Any]]:
    """Return the rows of what `read_graph` returns, bare or as the host has it from the protocol."""
    if not isinstance(answer, dict):
        return []
    if "entities" not in answer and "relations" not in answer:
        inner = answer.get("structuredContent") or answer.get("result")
        return _rows_of_answer(inner or json.loads(answer["content"][0]["text"]))
    kinds = (("entity", "entities"), ("relation", "relations"))
    return [{**row, "type": kind} for kind, name in kinds for row in answer.get(name, ())]


def _rows(source: Source) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file; where the source collects problems, a line that is none is named and passed over."""
    with source.open() as file:
        errors = "strict" if source.problems is None else "surrogateescape"
        text = file.read().decode(source.encoding_of(source.path), errors)
    try:
        rows = enumerate(map(json.dumps, _rows_of_answer(json.loads(text))), 1)
    except (ValueError, LookupError, TypeError, RecursionError):
        rows = enumerate(text.split("\n"), 1)
    for number, line in rows:
        if not line or line.isspace():
            continue
        try:
            yield _read_row(line)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = str(error) if isinstance(error, ValueError) else repr(error)
            problem = refuse(source, f"this is no line of the MCP memory server: {why}", number)
            if source.problems is None:
                raise problem from error
            source.problems[number] = str(problem)


def _read_row(line: str) -> dict[str, Any]:
    line.encode("utf-8")  # half a character, as where a write was torn
    row = json.loads(line)
    fields = ("name", "entityType") if row["type"] == "entity" else ("from", "to", "relationType")
    said = row.get("observations", [])
    texts = [row[name] for name in fields] + list(said)
    if row["type"] not in ("entity", "relation") or not isinstance(said, list):
        raise ValueError("neither an entity nor a relation")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a field is no text")
    return {"observations": [], **row}
