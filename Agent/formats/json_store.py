"""The whole store as one JSON document that comes back as it was.

    {"format": "keyword-tree", "version": 1,
     "keywords": [{"id", "parent_id", "name", "aliases", "description", "metadata", "created_by", …}, …],
     "infos": [{"id", "content", "source", "metadata", "created_by", …, "links": [[keyword id, relation], …]}, …],
     "links": [[info id, keyword id, relation], …]}

One record a line; a reader needs no line ends, and holds one record at a time. `links` at the end are those that
cannot be told with their info, because infos and keywords stand in a certain order on both sides.

What comes back: ids, names, aliases, descriptions, metadata and creators of keywords; ids, contents, sources, metadata
and creators of infos; links with their relation; the order of children, of a keyword's infos and of an info's keywords.
`version`, `created_at` and `updated_at` are what the tree itself gives a record, so they come back in its metadata, as
`"imported": {"version": …, "created_at": …, "updated_at": …}`; the next export puts them in their place again, so that
a document stays the same however often it is imported and exported. The root's description and metadata come back
where nothing is said of it yet. What does not: who made a link and when, the log's history, infos without a keyword.

>>> import io, tempfile
>>> from Agent.keyword_tree import KeywordTree
>>> from Agent.formats.records import View
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     food = tree.CreateKeyword("食物", "root", ["food"])
...     out = io.StringIO()
...     write(View(tree), out)
>>> import json
>>> [keyword["name"] for keyword in json.loads(out.getvalue())["keywords"]]
['root', '食物']
"""

import json
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, TextIO, TypeAlias, TypeGuard

from Agent.formats.records import ROOT_ID, Fact, Keyword, Link, Outline, Record, Source, View, refuse
from Agent.keyword_tree import Info, KeywordNode, RelationType

_TIMES = ("version", "created_at", "updated_at")
_IMPORTED = "imported"
_CHUNK = 1 << 16  # characters

_Row: TypeAlias = dict[str, Any]


# -- writing ------------------------------------------------------------------


def write(view: View, out: TextIO) -> None:
    """Write everything from the view's keyword down.

    Cost: holds the ids of all infos, and one record.
    """
    out.write('{"format": "keyword-tree", "version": 1,\n"keywords": [')
    infos_of: dict[str, list[str]] = {}
    separator = "\n"
    for node in view.by_creation():
        infos_of[node.id] = [info.id for info in view.infos(node.id)]
        out.write(separator + _line(_keyword_row(node)))
        separator = ",\n"
    keywords_of = {
        id: [link for link in view.keywords_of(id) if link[0] in infos_of]
        for id in dict.fromkeys(id for ids in infos_of.values() for id in ids)
    }
    info_ids, links = _in_order(infos_of, keywords_of)
    out.write('\n],\n"infos": [')
    separator = "\n"
    for id in info_ids:
        if (info := view.info(id)) is not None:
            out.write(separator + _line(_info_row(info) | {"links": [] if links else keywords_of[id]}))
            separator = ",\n"
    out.write('\n],\n"links": [')
    out.write(",".join(f"\n{_line([info_id, *link])}" for info_id, link in links))
    out.write("\n]}\n")


def _in_order(
    infos_of: dict[str, list[str]], keywords_of: dict[str, list[tuple[str, RelationType]]]
) -> tuple[list[str], list[tuple[str, tuple[str, RelationType]]]]:
    """Return the infos in an order that, each linked when it is made, gives every keyword its order of infos.

    There is none where two keywords disagree (an info was linked again later). Then all links follow the infos, one by
    one: in which order they were made, the two sides tell together.
    """
    order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(keywords_of, ()))
    for ids in infos_of.values():
        for before, after in pairwise(ids):
            order.add(after, before)
    try:
        return list(order.static_order()), []
    except CycleError:
        pass
    relations = {(id, link[0]): link for id, links in keywords_of.items() for link in links}
    by_link: TopologicalSorter[tuple[str, str]] = TopologicalSorter(dict.fromkeys(relations, ()))
    by_keyword = [[(id, keyword_id) for id in ids] for keyword_id, ids in infos_of.items()]
    by_info = [[(id, keyword_id) for keyword_id, _ in links] for id, links in keywords_of.items()]
    for pairs in by_keyword + by_info:
        for pair, next_pair in pairwise(pairs):
            by_link.add(next_pair, pair)
    return list(keywords_of), [(pair[0], relations[pair]) for pair in by_link.static_order() if pair in relations]


def _keyword_row(node: KeywordNode) -> _Row:
    return _times(node) | {
        "id": node.id,
        "parent_id": node.parent_id,
        "name": node.name,
        "aliases": node.aliases,
        "description": node.description,
        "created_by": node.created_by,
    }


def _info_row(info: Info) -> _Row:
    return _times(info) | {"id": info.id, "content": info.content, "source": info.source, "created_by": info.created_by}


def _times(record: KeywordNode | Info) -> _Row:
    """Return metadata, version and times; what an import left in the metadata goes on from there."""
    metadata = dict(record.metadata)
    own = {name: getattr(record, name) for name in _TIMES}
    before = metadata.get(_IMPORTED)
    if not _is_times(before):
        return {"metadata": metadata, **own}
    del metadata[_IMPORTED]
    if own["version"] == 1:
        return {"metadata": metadata, **before}
    later = {"version": before["version"] + own["version"] - 1, "updated_at": own["updated_at"]}
    return {"metadata": metadata, **before, **later}


def _is_times(value: object) -> TypeGuard[_Row]:
    return (
        isinstance(value, dict)
        and tuple(value) == _TIMES
        and all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in value.values())
    )


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# -- reading ------------------------------------------------------------------


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of such a document; what hung on its root hangs on the outline's parent.

    Raises:
        InvalidInputError: the file holds something else.
    """

    def place(id: str) -> str:
        return outline.parent_id if id == ROOT_ID else id

    known: set[str] | None = None
    for key, row in _members(source):
        try:
            if key == "keywords":
                known = set() if known is None else known
                if row["id"] != ROOT_ID:
                    # The top of an exported part names a parent that is not in the document.
                    parent_id = row.get("parent_id")
                    yield _keyword(row, parent_id if parent_id in known else outline.parent_id)
                    known.add(row["id"])
                elif outline.parent_id == ROOT_ID:
                    yield Keyword(ROOT_ID, "", row["name"], [], row.get("description", ""), row.get("metadata", {}))
            elif key == "infos":
                yield _fact(row, [(place(id), RelationType(relation)) for id, relation in row.get("links", [])])
            elif key == "links":
                info_id, keyword_id, relation = row
                yield Link(info_id, place(keyword_id), RelationType(relation))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise refuse(source, f"a record of {key!r} is not as it should be: {error!r}") from error
    if known is None:
        raise refuse(source, 'it is no KeywordTree document: it has no "keywords"')


def _keyword(row: _Row, parent_id: str) -> Keyword:
    return Keyword(
        row["id"],
        parent_id,
        row["name"],
        row.get("aliases", []),
        row.get("description", ""),
        _metadata(row),
        row.get("created_by", "user"),
    )


def _fact(row: _Row, links: list[tuple[str, RelationType]]) -> Fact:
    return Fact(row["id"], row["content"], row.get("source", ""), links, _metadata(row), row.get("created_by", "user"))


def _metadata(row: _Row) -> _Row:
    times = {name: row[name] for name in _TIMES if name in row}
    metadata: _Row = row.get("metadata", {})
    return metadata | {_IMPORTED: times} if _is_times(times) else metadata


def _members(source: Source) -> Iterator[tuple[str, Any]]:
    """Yield (key, element) for each element of each list in the object that the file holds, one at a time.

    `json` reads whole documents, so this reads the object and its lists itself, and leaves their elements to `json`.
    """
    with source.open_text() as file:
        text = _Text(file, source)
        text.expect("{")
        if text.peek() == "}":
            return
        while True:
            key = text.value()
            text.expect(":")
            if text.peek() == "[":
                text.expect("[")
                if text.peek() == "]":
                    text.expect("]")
                else:
                    yield key, text.value()
                    while text.expect(",]") == ",":
                        yield key, text.value()
            else:
                text.value()
            if text.expect(",}") == "}":
                return


class _Text:
    """Reads JSON values from a file, with as much of it in memory as the longest value takes."""

    def __init__(self, file: TextIO, source: Source) -> None:
        self._file = file
        self._source = source
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._place = 0

    def peek(self) -> str:
        """Return the next character that is no blank; empty at the end."""
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in " \t\r\n":
                    return self._text[self._place]
                self._place += 1
            if not self._more(_CHUNK):
                return ""

    def expect(self, chars: str) -> str:
        """Take one of these characters."""
        char = self.peek()
        if not char or char not in chars:
            raise refuse(self._source, f"JSON needs one of {chars!r} here, not {char!r}")
        self._place += 1
        return char

    def value(self) -> Any:
        """Take a value."""
        self.peek()
        size = _CHUNK
        while True:
            try:
                value, place = self._decoder.raw_decode(self._text, self._place)
            except RecursionError as error:
                raise refuse(self._source, "a value is nested too deeply") from error
            except ValueError as error:
                # It may merely not be here whole. Twice as much each time, lest a long one be tried too often.
                if not self._more(size):
                    raise refuse(self._source, f"this is no JSON: {error}") from error
                size *= 2
            else:
                # A number at the very end may go on.
                if place == len(self._text) and self._more(size):
                    continue
                self._place = place
                return value

    def _more(self, size: int) -> bool:
        chunk = self._file.read(size)
        self._text = self._text[self._place :] + chunk
        self._place = 0
        return bool(chunk)
