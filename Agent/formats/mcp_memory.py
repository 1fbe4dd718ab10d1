"""The JSON lines of the MCP memory server: a graph of entities, their observations, and relations between them.

    {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["plays chess"]}
    {"type": "relation", "from": "Ada", "to": "Bern", "relationType": "lives in"}

Such a file may be called memory.json, and the one object that `read_graph` returns, saved to a file, is read as well.

An entity is a keyword under a keyword for its type, an observation is an info of it, a relation is an info
("Ada lives in Bern") that belongs to the first entity and is RELATED to the second one. What has no place in a keyword
goes into its metadata under `"mcp"`, by which `adapters.mcp` serves the same graph again. A relation keeps the names of
its ends, for one that leads nowhere.
"""

import contextlib
import json
from collections.abc import Container, Iterator
from typing import Any

from ..base.text import mapping_of
from ..keyword_tree import Info, KeywordNode, RelationType
from .records import Fact, Keyword, Outline, Record, Source, is_blank, refuse

KEYWORD = "keyword"
_MCP = "mcp"


# -- how a graph is stored in a tree: here, and in `adapters.mcp` -----------------


def said_of(record: KeywordNode | Info) -> dict[str, Any]:
    """Return a record's properties in a graph: any program may write metadata, and another form counts as absent."""
    return mapping_of(record.metadata.get(_MCP))


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


# -- reading ------------------------------------------------------------------


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of a graph.

    A relation of which only one end is there belongs to that one, one without any has no keyword; an entity without a
    name is passed over.

    Raises:
        InvalidInputError: a line is not as the server writes it, and the source collects no problems.

    Cost: holds the file.
    """
    rows = [*_rows(source)]
    names = {row["name"] for row in rows if row["type"] == "entity" and not is_blank(row["name"])}
    made: set[str] = set()
    for row in rows:
        if row["type"] == "relation":
            ends = (row["from"], row["to"])
            linked = [entity_id(outline, name) for name in dict.fromkeys(ends) if name in names]
            ids = (entity_id(outline, ends[0]), entity_id(outline, ends[1]))
            yield relation_fact(outline, ends, ids, row["relationType"], linked)
        elif row["name"] in names:
            id, kind, parent_id = entity_id(outline, row["name"]), row["entityType"], outline.parent_id
            if id not in made:
                if kind != KEYWORD and not is_blank(kind):
                    head = type_keyword(outline, kind)
                    parent_id = head.id
                    if parent_id not in made:
                        yield head
                yield entity_keyword(outline, row["name"], kind, parent_id)
                made |= {id, parent_id}
            for observation in row["observations"]:
                yield outline.fact(id, observation)


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
    errors = "strict" if source.problems is None else "surrogateescape"
    text = source.path.read_bytes().decode(source.encoding_of(source.path), errors)
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
