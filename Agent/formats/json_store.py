"""The whole store as one JSON document that comes back as it was.

    {"format": "keyword-tree", "version": 2,
     "keywords": [{"id", "parent_id", "name", "aliases", "description", "confirmed", "created_by", "metadata",
                   "version", "created_at", "updated_at"}, …],
     "infos": [{"id", "content", "source", "created_by", "metadata", "version", "created_at", "updated_at",
                "links": [[keyword id, relation, created_by, created_at], …]}, …]}

One record a line. A parent comes before its children, infos are in the order of their first links, those without a
keyword last.

Kept: of keywords ids, places, names, aliases, descriptions, metadata, creators and confirmed questions; of
infos, those without a keyword too, ids, contents, sources, metadata and creators; links with relation and creator; the
order of children and of an info's keywords. A tree gives a record a version and times of its own: those of the document
are kept in the record's metadata, under `"imported"`, once.

Lost, since a tree takes none of it: the log (`History`, `Undo`, what models were asked: for
these copy the folder, as `Snapshot(copy=True)` does), the old ids of merged keywords, which lead on, and version and
times of the root. Its description and metadata come back where nothing is said of it yet. A keyword has its infos in
the order of their first links. Of an exported part, links to keywords outside of it are left out.

>>> import io, tempfile
>>> from keyword_tree import KeywordTree
>>> from keyword_tree.formats.view import View
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     food = tree.CreateKeyword("食物", "root", ["food"])
...     out = io.StringIO()
...     write(View(tree), out)
>>> import json
>>> [keyword["name"] for keyword in json.loads(out.getvalue())["keywords"]]
['root', '食物']
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeAlias

from ..keyword_tree import Info, KeywordNode, RelationType
from .records import ROOT_ID, Fact, Keyword, Outline, Record, Source, refuse
from .view import View

_VERSION = 2
_TIMES = ("version", "created_at", "updated_at")
_IMPORTED = "imported"
"""Under this name in a record's metadata stands what a document said of its version and times."""

_Row: TypeAlias = dict[str, Any]


# -- writing ------------------------------------------------------------------


def write(view: View, out: TextIO) -> None:
    """Write everything from the view's keyword down.

    Cost: holds the ids of all keywords and infos, and the infos of one keyword.
    """
    out.write(f'{{"format": "keyword-tree", "version": {_VERSION},\n"keywords": [')
    ids: set[str] = set()
    first_links: dict[str, int] = {}

    def keywords() -> Iterator[_Row]:
        for _, node in view.walk():
            ids.add(node.id)
            first_links.update((info.id, 0) for info in view.infos(node.id))
            yield _row(node, "id", "parent_id", "name", "aliases", "description", "confirmed")

    def infos() -> Iterator[_Row]:
        for id in first_links:
            ordinals = (link.ordinal for link in view.tree.GetLinks(id) if link.keyword_id in ids)
            first_links[id] = min(ordinals, default=0)
        unlinked = sorted(info.id for info in view.unlinked() if info.id not in first_links)
        for id in [*sorted(first_links, key=lambda id: first_links[id]), *unlinked]:
            if (info := view.tree.GetInfo(id)) is not None:
                links = [
                    [link.keyword_id, link.relation.value, link.created_by, link.created_at]
                    for link in view.tree.GetLinks(id)
                    if link.keyword_id in ids
                ]
                yield _row(info, "id", "content", "source") | {"links": links}

    _write_rows(out, keywords())
    out.write('],\n"infos": [')
    _write_rows(out, infos())
    out.write("]}\n")


def _write_rows(out: TextIO, rows: Iterable[_Row]) -> None:
    separator = "\n"
    for row in rows:
        out.write(separator + json.dumps(row, ensure_ascii=False))
        separator = ",\n"
    out.write("\n")


def _row(record: KeywordNode | Info, *fields: str) -> _Row:
    return {name: getattr(record, name) for name in (*fields, "created_by", "metadata", *_TIMES)}


# -- reading ------------------------------------------------------------------


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of such a document; what was under its root goes under the outline's parent.

    Raises:
        InvalidInputError: the file holds something else, or is of a later version.

    Cost: holds the whole document.
    """
    document = _document(source)
    key = "version"
    try:
        if document.get("version", _VERSION) != _VERSION:
            raise ValueError(f"{document['version']!r} is not known here, only {_VERSION}")
        known: set[str] = set()
        key = "keywords"
        for row in document["keywords"]:
            yield from _keywords(row, known, outline)
        key = "infos"
        for row in document.get("infos", []):  # what earlier documents have under "links" is in these rows, too
            yield _fact(row, outline)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise refuse(source, f"it is no KeywordTree document: {key!r} is not as it should be: {error!r}") from error


def _document(source: Source) -> _Row:
    with source.open_text() as file:
        try:
            document = json.load(file)
        except RecursionError as error:
            raise refuse(source, "a value is nested too deeply") from error
        except ValueError as error:
            raise refuse(source, f"this is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise refuse(source, "it is no KeywordTree document; chats are imported by `context commit`")
    return document


def _keywords(row: _Row, known: set[str], outline: Outline) -> Iterator[Keyword]:
    """Yield a row's keyword; of the root only where it meets a root."""
    if row["id"] == ROOT_ID:
        if outline.parent_id == ROOT_ID:
            yield Keyword(ROOT_ID, "", row["name"], [], row.get("description", ""), row.get("metadata", {}))
        return
    # The top of an exported part names a parent that is not in the document.
    parent_id = row.get("parent_id")
    confirmed = row.get("confirmed", [])
    if not isinstance(confirmed, list) or not all(isinstance(text, str) for text in confirmed):
        raise TypeError(f"no list of texts: {confirmed!r}")
    yield Keyword(
        _id(row["id"]),
        parent_id if parent_id in known else outline.parent_id,
        row["name"],
        row.get("aliases", []),
        row.get("description", ""),
        _metadata(row),
        row.get("created_by", "user"),
        list(dict.fromkeys(confirmed)),
    )
    known.add(row["id"])


def _fact(row: _Row, outline: Outline) -> Fact:
    id, created_by = _id(row["id"]), row.get("created_by", "user")
    links = [
        (outline.parent_id if to == ROOT_ID else _id(to), RelationType(relation), *(said[:1] or [created_by]))
        for to, relation, *said in row.get("links", [])
    ]
    return Fact(id, row["content"], row.get("source", ""), links, _metadata(row), created_by)


def _metadata(row: _Row) -> _Row:
    """Return a row's metadata, with its values that the tree does not take."""
    said = {name: row[name] for name in _TIMES if name in row}
    metadata: _Row = row.get("metadata", {})
    return {_IMPORTED: said} | metadata if said else metadata


def _id(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no id: {value!r}")
    return value
