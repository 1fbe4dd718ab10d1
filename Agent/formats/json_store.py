"""The whole store as one JSON document that comes back as it was.

    {"format": "keyword-tree", "version": 2,
     "keywords": [{"id", "parent_id", "name", "aliases", "description", "confirmed", "created_by", "metadata",
                   "version", "created_at", "updated_at"}, …],
     "infos": [{"id", "content", "source", "created_by", "metadata", "version", "created_at", "updated_at",
                "links": [[keyword id, relation, created_by, created_at], …], "at_once"}, …],
     "links": [[info id, keyword id], …]}

One record a line. A parent comes before its children,
infos are in the order of their first links, those without a keyword last. A link is made together with its info,
unless `at_once` says how many are: the others follow when all infos are there, in the order of `links`.

What comes back: of keywords ids, places, names, aliases, descriptions, metadata, creators and confirmed questions; of
infos, those without a keyword too, ids, contents, sources, metadata and creators; links with relation and creator; the
order of children, of a keyword's infos and of an info's keywords. So do versions and times: the tree gives a record its
own, therefore what the document says is kept in the record's metadata, under `"imported"`, and the next export puts it
back in its place, with the changes made since on top. What was under that name already is kept inside it. So a
document stays the same however often it is imported and exported.

What does not come back, because a tree takes none of it: the log (`History`, `Undo`, what models were asked: for
these copy the folder, as `Snapshot(copy=True)` does), the old ids of merged keywords, which lead on, and version and
times of the root. Its description and metadata come back where nothing is said of it yet. Of an exported part, links
to keywords outside of it are left out.

Version 1, which knew no creators of links and no confirmed questions, is read as well.

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
import sys
from collections.abc import Iterator
from typing import Any, TextIO, TypeAlias, TypeGuard

from ..keyword_tree import Info, InfoKeywordLink, KeywordNode, RelationType
from .records import ROOT_ID, Fact, Keyword, Link, Outline, Record, Source, refuse
from .view import View

_VERSION = 2
_TIMES = ("version", "created_at", "updated_at")
_IMPORTED = "imported"

_Row: TypeAlias = dict[str, Any]

# What an import leaves in a record's metadata, under `_IMPORTED`:
#
#   version, created_at, updated_at  what the document says
#   own_version                      the record's own when the import was done with it; left out where it is 1
#   links                            {keyword id: [relation, created_by, created_at]}, of links not as old as their info
#   replaced                         what was under this name in the metadata


# -- writing ------------------------------------------------------------------


def write(view: View, out: TextIO) -> None:
    """Write everything from the view's keyword down.

    Cost: holds the ids of all infos and links, and one record.
    """
    out.write(f'{{"format": "keyword-tree", "version": {_VERSION},\n"keywords": [')
    ids: dict[str, str] = {}
    info_ids: dict[str, None] = {}
    separator = "\n"
    for node in view.by_creation():
        ids[node.id] = node.id
        info_ids.update((info.id, None) for info in view.infos(node.id))
        out.write(separator + _line(_keyword_row(node)))
        separator = ",\n"
    order = [(link.ordinal, id, ids.get(link.keyword_id)) for id in info_ids for link in view.links(id)]
    order = sorted(row for row in order if row[2] is not None)
    late = order[_count_made_at_once([info_id for _, info_id, _ in order]) :]
    first_late = late[0][0] if late else sys.maxsize
    unlinked = sorted(info.id for info in view.unlinked() if info.id not in info_ids)
    out.write('\n],\n"infos": [')
    separator = "\n"
    for id in [*dict.fromkeys(id for _, id, _ in order), *unlinked]:
        if (info := view.info(id)) is not None:
            links = [link for link in view.links(id) if link.keyword_id in ids]
            out.write(separator + _line(_info_row(info, links, first_late)))
            separator = ",\n"
    out.write('\n],\n"links": [')
    out.write(",".join(f"\n{_line(row[1:])}" for row in late))
    out.write("\n]}\n")


def _count_made_at_once(info_ids: list[str]) -> int:
    """Return for how many links, in the order of their making, no info comes back after another one.

    So many can be made together with their infos, and keywords and infos have them in the same order as here.
    """
    seen: set[str] = set()
    for count, (id, previous) in enumerate(zip(info_ids, ["", *info_ids], strict=False)):
        if id != previous and id in seen:
            return count
        seen.add(id)
    return len(info_ids)


def _keyword_row(node: KeywordNode) -> _Row:
    return _stamps(node) | {
        "id": node.id,
        "parent_id": node.parent_id,
        "name": node.name,
        "aliases": node.aliases,
        "description": node.description,
        "confirmed": node.confirmed,
        "created_by": node.created_by,
    }


def _info_row(info: Info, links: list[InfoKeywordLink], first_late: int) -> _Row:
    row = _stamps(info) | {
        "id": info.id,
        "content": info.content,
        "source": info.source,
        "created_by": info.created_by,
        "links": [_link_row(link, info) for link in links],
    }
    at_once = sum(link.ordinal < first_late for link in links)
    return row if at_once == len(links) else row | {"at_once": at_once}


def _link_row(link: InfoKeywordLink, info: Info) -> list[Any]:
    row = [link.keyword_id, link.relation.value, link.created_by, link.created_at]
    said = info.metadata.get(_IMPORTED)
    if not _is_imported(said):
        return row
    known = said.get("links", {}).get(link.keyword_id, [])
    if known[:2] == row[1:3]:
        row[3] = known[2]  # the link has not changed since
    elif link.created_at == info.created_at:
        row[3] = said["created_at"]
    return row


def _stamps(record: KeywordNode | Info) -> _Row:
    """Return metadata, version and times; what an import left in the metadata goes on from there."""
    metadata = dict(record.metadata)
    own = {name: getattr(record, name) for name in _TIMES}
    said = metadata.get(_IMPORTED)
    if not _is_imported(said):
        return {"metadata": metadata, **own}
    del metadata[_IMPORTED]
    if "replaced" in said:
        metadata[_IMPORTED] = said["replaced"]
    before = {name: said[name] for name in _TIMES}
    changes = own["version"] - said.get("own_version", 1)
    if changes <= 0:
        return {"metadata": metadata, **before}
    return {"metadata": metadata, **before, "version": before["version"] + changes, "updated_at": own["updated_at"]}


def _is_imported(value: object) -> TypeGuard[_Row]:
    """Tell whether this is what an import leaves in a record's metadata."""
    if not isinstance(value, dict) or not value.keys() <= {*_TIMES, "own_version", "links", "replaced"}:
        return False
    links = value.get("links", {})
    return (
        all(_is_number(value.get(name)) for name in _TIMES)
        and _is_number(value.get("own_version", 1))
        and isinstance(links, dict)
        and all(isinstance(link, list) and len(link) == 3 and _is_number(link[2]) for link in links.values())
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# -- reading ------------------------------------------------------------------


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of such a document; what was under its root goes under the outline's parent.

    Raises:
        InvalidInputError: the file holds something else, or is of a later version.

    Cost: holds the whole document.
    """
    known: set[str] | None = None
    late: dict[tuple[str, str], Link] = {}
    for key, row, is_listed in _members(source):
        try:
            if not is_listed:
                if key == "version" and row not in (1, _VERSION):
                    raise ValueError(f"{row!r} is not known here, only up to {_VERSION}")
            elif key == "keywords":
                known = set() if known is None else known
                yield from _keywords(row, known, outline)
            elif key == "infos":
                fact, later = _fact(row, outline)
                yield fact
                late.update(((link.info_id, link.keyword_id), link) for link in later)
            elif key == "links":
                info_id, keyword_id, *relation = row
                pair = (_id(info_id), _place(keyword_id, outline))
                yield Link(*pair, RelationType(*relation)) if relation else late.pop(pair)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise refuse(source, f"{key!r} is not as it should be: {error!r}") from error
    if known is None:
        raise refuse(source, 'it is no KeywordTree document: it has no "keywords"')
    yield from late.values()  # of a document that does not say their order


def _keywords(row: _Row, known: set[str], outline: Outline) -> Iterator[Keyword]:
    """Yield a row's keyword; of the root only where it meets a root."""
    if row["id"] == ROOT_ID:
        if outline.parent_id == ROOT_ID:
            yield Keyword(ROOT_ID, "", row["name"], [], row.get("description", ""), row.get("metadata", {}))
        return
    # The top of an exported part names a parent that is not in the document.
    parent_id = row.get("parent_id")
    confirmed = list(dict.fromkeys(_texts(row.get("confirmed", []))))
    yield Keyword(
        _id(row["id"]),
        parent_id if parent_id in known else outline.parent_id,
        row["name"],
        row.get("aliases", []),
        row.get("description", ""),
        _metadata(row, {"own_version": 1 + len(confirmed)} if confirmed else {}),
        row.get("created_by", "user"),
        confirmed,
    )
    known.add(row["id"])


def _fact(row: _Row, outline: Outline) -> tuple[Fact, list[Link]]:
    """Return a row's info, and those of its links that are made later."""
    id, created_by = _id(row["id"]), row.get("created_by", "user")
    links: list[Link] = []
    odd: _Row = {}
    at_once = row.get("at_once", len(row.get("links", [])))
    for place, (keyword_id, relation, *said) in enumerate(row.get("links", [])):
        link = Link(id, _place(keyword_id, outline), RelationType(relation), *(said[:1] or [created_by]))
        links.append(link)
        if said and (place >= at_once or said[1] != row["created_at"]):
            odd[link.keyword_id] = [link.relation.value, *said]
    fact = Fact(
        id,
        row["content"],
        row.get("source", ""),
        [(link.keyword_id, link.relation, link.created_by) for link in links[:at_once]],
        _metadata(row, {"links": odd} if odd else {}),
        created_by,
    )
    return fact, links[at_once:]


def _metadata(row: _Row, more: _Row) -> _Row:
    """Return a row's metadata, with what it says that the tree does not take."""
    metadata: _Row = row.get("metadata", {})
    said: _Row = {name: row[name] for name in _TIMES if name in row} | more
    if _IMPORTED in metadata:
        said["replaced"] = metadata[_IMPORTED]
    return metadata | {_IMPORTED: said} if _is_imported(said) else metadata


def _place(id: object, outline: Outline) -> str:
    return outline.parent_id if id == ROOT_ID else _id(id)


def _id(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no id: {value!r}")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError(f"no list of texts: {value!r}")
    return value


def _members(source: Source) -> Iterator[tuple[str, Any, bool]]:
    """Yield (key, value, whether it is an element of a list) for what the object in the file holds."""
    with source.open_text() as file:
        try:
            document = json.load(file)
        except RecursionError as error:
            raise refuse(source, "a value is nested too deeply") from error
        except ValueError as error:
            raise refuse(source, f"this is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise refuse(source, "it is no KeywordTree document: it is no JSON object")
    for key, value in document.items():
        if isinstance(value, list):
            yield from ((key, element, True) for element in value)
        else:
            yield key, value, False
