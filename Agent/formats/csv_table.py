"""A table, as CSV or TSV, whose column `path` says where each row belongs.

Of a table that a person made only `path` is needed, parted by `/` (a backslash keeps a slash that is part of a name):

    path,info,source
    编程/Python,PEP 703 makes the GIL optional.,peps.python.org

Cells may be parted by `;` or tabs as well, as Excel writes them where the comma stands in numbers. A table with another
column, or with a cell under none, is refused: nothing of it would be imported. Rows with the same
path are about the same keyword; a row whose `info`, `source` or `info_id` is not empty brings an
info, any other one the keyword with its `aliases` (parted by `|`) and `description`. A level of a path that one
keyword of the tree has, letter for letter, is that keyword; where none or several have it, one is made. Exported tables
have the columns `keyword_id`, `info_id` and `relation` too: with them, keywords of one name stay apart, an info on
several keywords stays one, and importing again makes no duplicates.

Kept: ids, names, aliases, descriptions, contents, sources, links with their relation, the order of children
and of a keyword's infos. Lost: metadata, creators, versions, times, and in which order an info's keywords
stand (it is the tree's).

A spreadsheet takes a cell that begins with = + - @ (wide ones too), a tab or a line end for a formula: a leading
apostrophe makes it text, and is taken away again when the table is read.

>>> quote("=1+1"), unquote("'=1+1"), unquote("'tis")
("'=1+1", '=1+1', "'tis")
"""

import csv
import itertools
import re
from collections.abc import Iterator
from typing import TextIO

from ..keyword_tree import RelationType
from .records import Outline, Record, Source, join_names, refuse, split_names
from .view import View

COLUMNS = ("keyword_id", "path", "aliases", "description", "info_id", "relation", "info", "source")

_FORMULA = re.compile(r"'*[=+\-@＝＋－＠\t\r\n]")


def quote(cell: str) -> str:
    """Return the cell as no spreadsheet takes it for a formula."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unquote(cell: str) -> str:
    """Return the cell as it was before `quote`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write(view: View, out: TextIO, delimiter: str = ",") -> None:
    """Write a row for each keyword, and under it one for each of its infos."""
    # All cells in quotes: a spreadsheet that parts cells at another character would else find a formula after it.
    table = csv.writer(out, delimiter=delimiter, lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    table.writerow(COLUMNS)
    table.writerows([quote(row.get(column, "")) for column in COLUMNS] for row in _rows(view))


def _rows(view: View) -> Iterator[dict[str, str]]:
    path: list[str] = []
    for depth, node in view.walk():
        if depth:
            path[depth - 1 :] = [node.name]
        place = {"keyword_id": node.id, "path": join_names(path, "/")}
        if depth:
            yield place | {"aliases": join_names(node.aliases, "|"), "description": node.description}
        for info in view.infos(node.id):
            # A link that was taken away since the info was read has no relation any more, and is left out.
            for link in (link for link in view.tree.GetLinks(info.id) if link.keyword_id == node.id):
                yield place | {
                    "info_id": info.id,
                    "relation": link.relation.value,
                    "info": info.content,
                    "source": info.source,
                }


def read(source: Source, outline: Outline, delimiter: str = ",") -> Iterator[Record]:
    """Yield the records of a table; a row without a path belongs to the outline's parent.

    Raises:
        InvalidInputError: it is no such table.
    """
    # A content has up to 16 MiB, a cell of `csv` no more than 128 KiB unless it is set.
    csv.field_size_limit(max(csv.field_size_limit(), 1 << 26))
    with source.open_text() as file:
        head = file.readline()
        if head.startswith("sep="):  # as Excel says of a table which character parts its cells
            delimiter, head = head[4:5], ""
        else:
            delimiter = next((one for one in (delimiter, ";", "\t", ",") if "path" in _cells(head, one)), delimiter)
        rows = csv.DictReader(itertools.chain([head] * bool(head), file), delimiter=delimiter, restval="", strict=True)
        try:
            columns = rows.fieldnames or []
            if "path" not in columns:
                raise ValueError(f"it has no column 'path', but {', '.join(columns) or 'none at all'}")
            if unknown := [name for name in columns if name not in (*COLUMNS, "")]:
                raise ValueError(f"it has columns that are not known: {unknown}; known: {', '.join(COLUMNS)}")
            if twice := [name for name in COLUMNS if columns.count(name) > 1]:
                raise ValueError(f"it has columns twice: {twice}")
            rows.fieldnames = [name or str(at) for at, name in enumerate(columns)]  # spreadsheets leave some empty
            nameless = [name for name in rows.fieldnames if name not in COLUMNS]
            ids = dict[tuple[str, str], str]()
            for row in rows:
                # A comma that is not in quotes parts a text in two: the part under no column would be lost.
                if any(extra := [*row.pop(None, ()), *map(row.pop, nameless)]):
                    raise ValueError(f"a row has cells under no column: {', '.join(filter(None, extra))!r}")
                yield from _records({name: unquote(cell) for name, cell in row.items()}, outline, ids)
        except csv.Error as error:
            raise refuse(source, f"this is no table: {error}", rows.line_num) from error
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            raise refuse(source, str(error), max(1, rows.line_num)) from error


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _records(row: dict[str, str], outline: Outline, ids: dict[tuple[str, str], str]) -> Iterator[Record]:
    """Yield the records of a row; `ids` has the last child of a parent that has a name."""
    id = outline.parent_id
    path = split_names(row["path"], "/")
    for depth, name in enumerate(path, 1):
        own_id = "" if depth < len(path) else row.get("keyword_id", "")
        known = ids.get((id, name))
        if known is None or (own_id and own_id != known):
            aliases = split_names(row.get("aliases", ""), "|") if depth == len(path) else []
            description = row.get("description", "") if depth == len(path) else ""
            keyword = outline.keyword(id, name, aliases, description, own_id or outline.child(id, name))
            yield keyword
            ids[id, name] = known = keyword.id
        id = known
    if any(row.get(name) for name in ("info", "source", "info_id")):
        relation = RelationType((row.get("relation") or "PRIMARY").strip().upper())
        fact = outline.fact(id, row.get("info", ""), row.get("source", ""), row.get("info_id", ""))
        fact.links = [(id, relation)]
        yield fact
