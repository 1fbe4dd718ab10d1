"""Carry a tree in and out: `import_file` and `export_file`, one short module for each format.

>>> import tempfile
>>> from pathlib import Path
>>> from keyword_tree import KeywordTree
>>> folder = Path(tempfile.mkdtemp())
>>> with KeywordTree(str(folder / "a")) as tree, KeywordTree(str(folder / "b")) as copy:
...     programming = tree.CreateKeyword("编程", "root", ["programming"])
...     _ = tree.CreateInfo("PEP 703 makes the GIL optional.", "peps.python.org", [programming.id])
...     export_file(tree, folder / "all.json")
...     import_file(copy, folder / "all.json")
...     import_file(copy, folder / "all.json")
...     copy.Search("programming").infos
1
ImportReport(keywords=1, infos=1, links=1, skipped=0)
ImportReport(keywords=0, infos=0, links=0, skipped=2)
[<Info 'PEP 703 makes the GIL optional.' from 'peps.python.org'>]

| format   | known by        | read | written | kept by an export and an import                                     |
|----------|-----------------|------|---------|---------------------------------------------------------------------|
| json     | .json           | yes  | yes     | everything but the log; versions and times as metadata              |
| csv, tsv | .csv, .tsv      | yes  | yes     | all but metadata, creators, versions, times and confirmed questions |
| opml     | .opml           | yes  | no      |                                                                     |
| mcp      | .jsonl          | yes  | no      |                                                                     |
| notes    | a folder        | yes  | no      |                                                                     |
| html     | .html, .htm     | no   | yes     |                                                                     |

Infos without a keyword are in json and html alone. Each module lists what it keeps. `notes` need the extra
`[formats]`, the others nothing.
"""

import codecs
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ..base.checks import shorten
from ..keyword_tree import InvalidInputError, KeywordTree, NotFoundError
from ..store.addresses import refuse_address
from .records import ROOT_ID, ImportReport, Outline, Source, load, refuse, refuse_encoding, undo_import
from .view import View

__all__ = ["READ_FORMATS", "WRITE_FORMATS", "ImportReport", "export_file", "format_of", "import_file", "undo_import"]


class _Format(NamedTuple):
    module: str
    suffixes: tuple[str, ...]
    options: dict[str, str] = {}  # noqa: RUF012  it is not changed
    encoding: str = "utf-8"
    is_read: bool = True
    is_written: bool = True


_FORMATS = {
    "json": _Format("json_store", (".json",)),
    # With its mark at the beginning a spreadsheet reads the file as UTF-8, and Chinese as Chinese.
    "csv": _Format("csv_table", (".csv",), {"delimiter": ","}, "utf-8-sig"),
    "tsv": _Format("csv_table", (".tsv", ".tab"), {"delimiter": "\t"}, "utf-8-sig"),
    "opml": _Format("opml", (".opml",), is_written=False),
    "notes": _Format("obsidian_notes", (), is_written=False),
    "mcp": _Format("mcp_memory", (".jsonl",), is_written=False),
    "html": _Format("html_page", (".html", ".htm"), is_read=False),
}

READ_FORMATS = tuple(name for name, known in _FORMATS.items() if known.is_read)
"""The names of the formats that `import_file` reads."""

WRITE_FORMATS = tuple(name for name, known in _FORMATS.items() if known.is_written)
"""The names of those that `export_file` writes."""


def import_file(
    tree: KeywordTree,
    path: str | Path,
    format_name: str | None = None,
    *,
    parent_id: str = ROOT_ID,
    key: str | None = None,
    encoding: str = "utf-8-sig",
    update: bool = False,
    skips_bad_lines: bool = False,
) -> ImportReport:
    """Write the records of a file or a folder of notes into a tree; existing ones are skipped, or updated.

    Args:
        tree: to write to.
        path: of the file or folder.
        format_name: one of `READ_FORMATS`; None goes by the path's suffix, and is "notes" for a folder.
        parent_id: the keyword under which everything is put.
        key: names the source, for formats without ids: the same key gives the same ids. None is the path itself, so
            that a file which has moved is another source.
        encoding: of the file, or of the notes that are not UTF-8; by default UTF-8, or UTF-16 where it is that. A mark
            at its beginning is passed over.
        update: whether a keyword or an info whose id is there gets the name, description, content and source that it
            has in the source. False leaves it as it is, and the report says how many differ.
        skips_bad_lines: whether a line of JSON lines (mcp) that cannot be read is passed over, and named in the report.

    Returns:
        The counts of written and skipped records.

    Raises:
        InvalidInputError: the file is not there, is not of this format, or holds records that no tree can hold; the
            message names place and reason. Whole batches before it stay, and an import of the corrected file goes on
            from there.
        NotFoundError: there is no keyword `parent_id`.
        OSError: the file cannot be read, or the disk refused a batch.
        ImportError: the format needs the extra `[formats]`.

    Cost: one sync a batch. Memory as each format says: a batch, and a little for each record, or the whole file.
    """
    if not isinstance(path, str | os.PathLike) or not os.path.exists(path):
        raise InvalidInputError(f"there is no file or folder {shorten(path)} to import")
    path = Path(path)
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise InvalidInputError(f"there is no encoding {encoding!r}") from error
    chosen = _choose(path, format_name, is_read=True)
    if path.is_dir() and chosen.module != "obsidian_notes":
        raise InvalidInputError(f"{str(path)!r} is a folder, and {format_name or path.suffix!r} is read from one file")
    if tree.GetKeyword(parent_id) is None:
        raise NotFoundError("keyword", parent_id)
    source = Source(path, encoding)
    source.problems = {} if skips_bad_lines else None
    if format_name is None and chosen is _FORMATS["json"]:  # the MCP memory server calls its file memory.json
        chosen = _FORMATS["mcp"] if import_module(f"{__name__}.mcp_memory").is_graph(source) else chosen
    read = import_module(f"{__name__}.{chosen.module}").read
    outline = Outline(str(path.resolve()) if key is None else key, parent_id, tree)
    report = ImportReport()
    try:
        load(tree, read(source, outline, **chosen.options), report, update=update)
    except ValueError as error:  # the tree refused it, or a reader failed
        said = str(refuse_encoding(source, error) if isinstance(error, UnicodeDecodeError) else error)
        said = said if said.startswith(source.path.name) else str(refuse(source, said))
        if report.operation_ids:
            counts = f"{report.keywords:,} keywords, {report.infos:,} infos and {report.links:,} links"
            said += f"; before that, {counts} were written: importing again goes on from there, undo takes them back"
        raise InvalidInputError(said) from error
    report.problems = list((source.problems or {}).values())
    return report


def export_file(
    tree: KeywordTree, path: str | Path, format_name: str | None = None, *, root_id: str = ROOT_ID, language: str = ""
) -> int:
    """Write a tree, or the part of it under one keyword, to a file.

    The file appears when it is whole, in the place of one that was there, and for its owner alone to read.

    Args:
        tree: to read from; others may go on writing to it.
        path: of the file.
        format_name: one of `WRITE_FORMATS`; None goes by the path's suffix.
        root_id: the keyword with which to begin.
        language: of a page's own words (html), "en" or "zh"; "" is that of the reader's browser.

    Returns:
        The number of keywords written, without the root.

    Raises:
        InvalidInputError: the format is unknown, the path lies in the tree's own folder or in none that is there, or is
            a folder, a link, a device or a pipe.
        NotFoundError: there is no keyword `root_id`.
        OSError: the file cannot be written.
        ImportError: the format needs the extra `[formats]`.
    """
    refuse_address(path, "path")
    path = Path(path)
    if Path(tree.data_dir).resolve() in (place := path.resolve(), *place.parents):
        raise InvalidInputError(f"an export must not be in the memory's own folder: {str(path)!r}")
    chosen = _choose(path, format_name, is_read=False)
    if not path.absolute().parent.is_dir():
        raise InvalidInputError(f"there is no folder {str(path.parent)!r} to write to")
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        raise InvalidInputError(f"{str(path)!r} is a folder, a link, a device or a pipe, and is not replaced")
    view = View(tree, root_id, language=language)
    write: Callable[..., None] = import_module(f"{__name__}.{chosen.module}").write
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        draft = beside / "draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding=chosen.encoding, newline="") as out:
            write(view, out, **chosen.options)
        draft.replace(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return view.keyword_count - (root_id == ROOT_ID)


def format_of(path: str | Path, *, is_read: bool = False) -> str:
    """Return the format of a path's suffix; of a folder to be read it is "notes".

    Args:
        path: of the file or folder.
        is_read: whether it is to be read, or written; an error names the suffixes for that.

    >>> format_of("memory.JSON")
    'json'

    Raises:
        InvalidInputError: no format has this suffix.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    name = next((name for name, known in _FORMATS.items() if suffix in known.suffixes), None)
    if name is None and is_read and path.is_dir():
        return "notes"
    if name is None:
        usable = [each for each in _FORMATS.values() if (each.is_read if is_read else each.is_written)]
        known = ", ".join(suffix for each in usable for suffix in each.suffixes)
        raise InvalidInputError(f"no format is known by the suffix of {path.name!r}; known: {known}")
    return name


def _choose(path: Path, format_name: str | None, *, is_read: bool) -> _Format:
    name = format_of(path, is_read=is_read) if format_name is None else format_name
    if name not in _FORMATS:
        raise InvalidInputError(f"no format is called {name!r}; known: {', '.join(_FORMATS)}")
    chosen = _FORMATS[name]
    if not (chosen.is_read if is_read else chosen.is_written):
        raise InvalidInputError(f"{name!r} can be {'written, not read' if is_read else 'read, not written'}")
    return chosen
