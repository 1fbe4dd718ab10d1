"""The records that a reader yields, with ids that the same source gives again.

Here is also how they are written into a tree, in batches, and taken back; the file that they come from, and its texts.

>>> import tempfile
>>> from keyword_tree import KeywordTree
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     outline = Outline("my list", "root")
...     food = outline.keyword("root", "食物 food")
...     records = [food, outline.fact(food.id, "Bread needs an hour.", "grandmother")]
...     load(tree, records), load(tree, records)
(ImportReport(keywords=1, infos=1, links=1, skipped=0), ImportReport(keywords=0, infos=0, links=0, skipped=2))
"""

import codecs
import io
import itertools
import json
import re
import sys
import unicodedata
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from ..keyword_tree import Change, Info, InvalidInputError, KeywordNode, KeywordTree, RelationType

ROOT_ID = "root"

DEFAULT_ENCODING = "utf-8-sig"

_GB_MARK = "\ufeff".encode("gb18030")

NAME_LIMIT = 512  # characters, the tree's own limit

_NAMESPACE = uuid.UUID("5a4f9a52-7d0e-5a3b-9f0e-6b6579776f72")  # ours alone; another value would double every import


@dataclass
class Keyword:
    """A keyword to be made, under one that exists or came earlier."""

    id: str
    parent_id: str
    name: str
    aliases: list[str] = field(default_factory=list)
    description: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    created_by: str = "user"
    confirmed: list[str] = field(default_factory=list)
    """Queries that were confirmed to mean it, oldest first."""


@dataclass
class Fact:
    """An info to be stored, linked to keywords that exist or came earlier."""

    id: str
    content: str
    source: str = ""
    links: Sequence[tuple[str, RelationType] | tuple[str, RelationType, str]] = ()
    """Keyword ids, how the info belongs to them, and who says so: by default who made the info."""
    metadata: dict[str, Any] = field(default_factory=dict)
    created_by: str = "user"


@dataclass
class Link:
    """A link to be made after the infos and links that came earlier."""

    info_id: str
    keyword_id: str
    relation: RelationType
    created_by: str = "user"


Record: TypeAlias = Keyword | Fact | Link


class Source:
    """A file or folder to be read."""

    def __init__(self, path: Path, encoding: str = DEFAULT_ENCODING) -> None:
        self.path = path
        self.encoding = encoding
        self.problems: dict[int, str] | None = None
        """Where lines that cannot be read are to be passed over: what is wrong with each, by its number."""

    def open_text(self) -> TextIO:
        """Open the file for text, without changing its line ends."""
        file = self.path.open("rb")
        head = file.peek(4)
        file.seek(next((len(mark) for mark in (codecs.BOM_UTF8, _GB_MARK) if head.startswith(mark)), 0))
        return io.TextIOWrapper(file, self.encoding_of(self.path), newline="")

    def encoding_of(self, path: Path) -> str:
        """Return the encoding of a file: UTF-16 or UTF-32 by its mark or its zeros, or the one that was named.

        Beside notes in the one that was named a folder may have notes in UTF-8, which few other texts are by chance.
        """
        if self.encoding != DEFAULT_ENCODING:
            is_plain = path != self.path and _reads(path.read_bytes(), "utf-8")
            return DEFAULT_ENCODING if is_plain else self.encoding
        with path.open("rb") as file:
            head = file.read(4096)
        for mark, name in ((_GB_MARK, "gb18030"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
                           (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):  # fmt: skip
            if head.startswith(mark):
                return name
        # Without a mark: text holds no zeros, but for those beside each ASCII character of UTF-16.
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) > len(head) // 16 and min(even, odd) == 0:
            return "utf-16-be" if even else "utf-16-le"
        return self.encoding


class Outline:
    """Gives the keywords and infos of one source ids which that source gives again next time.

    An id is a UUID5 over the source's key and the way from its top: names, and a number where siblings share one. So a
    second import skips what is there, a line added in the middle moves no id, and a renamed line is a new keyword.
    """

    def __init__(self, key: str, parent_id: str, tree: KeywordTree | None = None) -> None:
        self.parent_id = parent_id
        self._tree = tree
        self._key = uuid.uuid5(_NAMESPACE, f"{key}\0{parent_id}")
        self._seen: Counter[str] = Counter()

    def keyword(
        self, parent_id: str, name: str, aliases: Iterable[str] = (), description: str = "", id: str = ""
    ) -> Keyword:
        """Return a keyword; one that comes with an id keeps it.

        A name that is too long is cut, and the whole one becomes the beginning of the description.
        """
        id = id or self.id_for("keyword", parent_id, name)
        short = fit_name(name)
        if short != name:
            description = f"{name}\n\n{description}".rstrip("\n")
        return Keyword(id, parent_id, short, [fit_name(alias) for alias in aliases if not is_blank(alias)], description)

    def child(self, parent_id: str, name: str) -> str:
        """Return the id of the one keyword of the tree that has this name and parent; "" where none or several have."""
        called = [] if self._tree is None else self._tree.FindByName(name, size=sys.maxsize)
        ids = [node.id for node in called if (node.name, node.parent_id) == (name, parent_id)]
        return ids[0] if len(ids) == 1 else ""

    def fact(self, keyword_id: str, content: str, source: str = "", id: str = "") -> Fact:
        """Return an info of a keyword; one that comes with an id keeps it."""
        id = id or self.id_for("info", keyword_id, source, content)
        return Fact(id, content, source, [(keyword_id, RelationType.PRIMARY)])

    def id_of(self, *step: str) -> str:
        """Return the id of the one thing at this step of the path."""
        return str(uuid.uuid5(self._key, "\0".join(f"{len(part)}:{part}" for part in step)))

    def id_for(self, *step: str) -> str:
        """Return the id of the next thing at this step of the path, where several may be."""
        id = self.id_of(*step)
        self._seen[id] += 1
        return id if self._seen[id] == 1 else self.id_of(*step, str(self._seen[id]))


def fit_name(text: str) -> str:
    """Return a name that the tree accepts: at most 512 characters."""
    return text if len(text) <= NAME_LIMIT else f"{text[: NAME_LIMIT - 1]}…"


def refuse(source: Source, reason: str, line: int | None = None) -> InvalidInputError:
    """Return the error for a file that cannot be read as what it is said to be."""
    place = f"{source.path.name}" if line is None else f"{source.path.name}, line {line}"
    return InvalidInputError(f"{place}: {reason}")


def refuse_encoding(source: Source, error: UnicodeDecodeError, note: str = "") -> InvalidInputError:
    """Return the error for a file, or a note of a folder, that is written in another encoding."""
    raw = (source.path / note if note else source.path).read_bytes()
    fitting = [f"--encoding {name}" for name in _ENCODINGS if name != source.encoding and _reads(raw, name)]
    hint = f"it can be read with {' or '.join(fitting)}" if fitting else "name its encoding with --encoding"
    return refuse(source, f"{note or 'it'} is not {source.encoding.removesuffix('-sig')}: {hint} ({error})")


_ENCODINGS = ("utf-8", "gb18030", "big5", "shift_jis", "euc-kr", "cp1251", "cp1252")
"""Those of text that is met most, the strictest first."""


def _reads(raw: bytes, encoding: str) -> bool:
    """Tell whether bytes are text in an encoding: they can be decoded, and to no control characters."""
    try:
        return not _CONTROLS.search(raw.decode(encoding))
    except UnicodeDecodeError:
        return False


# -- writing them into a tree -----------------------------------------------------------

BATCH = 1000
"""Records in a batch: 43,118 keywords then cost 44 syncs, and a bad record undoes at most one batch of good ones."""


@dataclass
class ImportReport:
    """The counts of an import."""

    keywords: int = 0
    """New keywords."""
    infos: int = 0
    """New infos."""
    links: int = 0
    """New links."""
    skipped: int = 0
    """Keywords and infos that were there already, or came twice; `changed` ones are not among them."""
    changed: int = field(default=0, repr=False)
    """Those there of which the source has another name, description, content or source: an import that updates took it
    from there, any other left it as it was.  What the source leaves empty is no other one."""
    problems: list[str] = field(default_factory=list, compare=False, repr=False)
    """Lines that were passed over since they cannot be read, where that was asked for."""
    operation_ids: list[str] = field(default_factory=list, compare=False, repr=False)
    """One for each batch that wrote something, in their order; `undo_import` takes all of them back."""


def load(
    tree: KeywordTree, records: Iterable[Record], report: ImportReport | None = None, *, update: bool = False
) -> ImportReport:
    """Write the records, all or nothing per batch, and skip those whose id is there, or update them.

    Counts are added to `report`, where one is given, after each batch.

    Of an info that is there, links that are missing are added, so that an import which was cut off completes itself.

    Raises:
        KeywordTreeError: what the tree raises; the batches before it stay.

    Cost: one sync a batch.
    """
    report, waiting = report or ImportReport(), iter(records)
    while batch := list(itertools.islice(waiting, BATCH)):
        first = report.operation_ids[:1]
        counts = ImportReport()
        with tree.Operation(f"import, part of {first[0]}" if first else "import") as operation:
            written = [_load_record(tree, record, counts, update) for record in batch]
        for name in ("keywords", "infos", "links", "skipped", "changed"):
            vars(report)[name] += vars(counts)[name]
        if any(written):
            report.operation_ids.append(operation.id)
    return report


def import_id(change: Change) -> str | None:
    """Return the id of the first operation of the import that a change is a part of; None where it is of none."""
    if change.op == "import":
        return change.operation_id
    name, _, first = change.op.partition(", part of ")
    return first if name == "import" and first else None


def undo_import(tree: KeywordTree, report: ImportReport) -> str:
    """Take back all that an import wrote, as one operation, and return the id of that, which `Undo` takes.

    Raises:
        ConflictError: something depends on it; nothing is undone then.

    Cost: reads the log backwards to the import; all that was imported is in memory meanwhile.
    """
    with tree.Operation("undo import") as operation:
        for operation_id in reversed(report.operation_ids):
            tree.Undo(operation_id)
    return operation.id


def _load_record(tree: KeywordTree, record: Record, report: ImportReport, update: bool) -> bool:
    """Write a record, add to the report, and return whether anything was written."""
    if isinstance(record, Link):
        return _link(tree, [record], report)
    if isinstance(record, Keyword):
        if record.id == ROOT_ID:
            return _load_root(tree, record)
        if (keyword := tree.GetKeyword(record.id)) is not None:
            return _compare(tree, keyword, record, report, update)
        spec = dict(vars(record))
        confirmed = spec.pop("confirmed")
        tree.BatchCreateKeywords([spec])
        for query in confirmed:
            tree.Confirm(query, record.id)
        report.keywords += 1
        return True
    links = [Link(record.id, id, relation, *(by or (record.created_by,))) for id, relation, *by in record.links]
    if (info := tree.GetInfo(record.id)) is not None:
        is_changed = _compare(tree, info, record, report, update)
        return _link(tree, links, report) or is_changed
    spec = {name: value for name, value in vars(record).items() if name != "links"}
    if all((link.relation, link.created_by) == (RelationType.PRIMARY, record.created_by) for link in links):
        spec["keyword_ids"], links = list(dict.fromkeys(link.keyword_id for link in links)), []  # as the tree links it
        report.links += len(spec["keyword_ids"])
    tree.BatchCreateInfos([spec])
    _link(tree, links, report)
    report.infos += 1
    return True


def _link(tree: KeywordTree, links: Iterable[Link], report: ImportReport) -> bool:
    """Make links that are not there, add to the report, and return whether there were such."""
    before = report.links
    for link in links:
        keyword = tree.GetKeyword(link.keyword_id)  # one that was merged leads to another id
        # What links an info already stays as the owner has it.
        if keyword is None or all(known.keyword_id != keyword.id for known in tree.GetLinks(link.info_id)):
            tree.LinkInfo(link.info_id, link.keyword_id, link.relation, link.created_by)
            report.links += 1
    return report.links > before


def _compare(
    tree: KeywordTree, there: KeywordNode | Info, said: Keyword | Fact, report: ImportReport, update: bool
) -> bool:
    """Count a record that is there, take over what the source says of it, and return whether that was written."""
    fields = ("name", "description") if isinstance(there, KeywordNode) else ("content", "source")
    patch = {name: text for name in fields if (text := getattr(said, name)) and text != getattr(there, name)}
    if not patch or there.id != said.id:  # one that was merged leads to another keyword
        report.skipped += 1
        return False
    report.changed += 1
    if not update:
        return False
    if isinstance(there, KeywordNode):
        tree.UpdateKeyword(there.id, patch, there.version)
    else:
        tree.UpdateInfo(there.id, patch)
    return True


def _load_root(tree: KeywordTree, said: Keyword) -> bool:
    """Give the root what was said of it, if nothing is said of it yet; return whether that was so."""
    root = tree.GetKeyword(ROOT_ID)
    patch = {"description": said.description, "metadata": said.metadata}
    if root is None or root.description or root.metadata or not any(patch.values()):
        return False
    tree.UpdateKeyword(ROOT_ID, patch, root.version)
    return True


# -- texts within the syntax of a format ------------------------------------------------

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


def is_blank(text: str) -> bool:
    """Tell whether the tree would refuse this as an empty name."""
    return all(unicodedata.category(char) in ("Zs", "Zl", "Zp", "Cc", "Cf") for char in text)


_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.MULTILINE | re.DOTALL)


def split_front_matter(text: str) -> tuple[str, str]:
    r"""Return the YAML at the top of a Markdown document, and the rest.

    >>> split_front_matter("---\naliases: [CPython]\n---\ntext")
    ('aliases: [CPython]\n', 'text')
    """
    match = _FRONT_MATTER.match(text)
    return ("", text) if match is None else (match[1], text[match.end() :])


def inert_json(value: object) -> str:
    r"""Return JSON that HTML takes for nothing else: it ends no comment and no script.

    >>> inert_json("</script> -->")
    '"\\u003c/script\\u003e --\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda char: f"\\u{ord(char[0]):04x}", text)


def join_names(names: Iterable[str], separator: str) -> str:
    r"""Return the names in one text; a backslash keeps what would part or trim them.

    >>> join_names(["AC/DC", " live"], "/")
    'AC\\/DC/\\ live'
    """
    return separator.join(_protect(name, separator) for name in names)


def _protect(name: str, separator: str) -> str:
    edges = (0, len(name) - 1)
    return "".join(
        f"\\{char}" if char in ("\\", separator) or (char.isspace() and place in edges) else char
        for place, char in enumerate(name)
    )


def split_names(text: str, separator: str) -> list[str]:
    r"""Return the names that `join_names` joined, or a person wrote: blanks around a separator do not count.

    >>> split_names(r"music / AC\/DC /\ live", "/")
    ['music', 'AC/DC', ' live']
    """
    names = list[str]()
    for is_separator, each in itertools.groupby(_find_characters(text), separator.__eq__):
        kept = [*itertools.dropwhile(str.isspace, () if is_separator else each)]
        while kept and kept[-1].isspace():
            kept.pop()
        names.append("".join(char[1:] or char for char in kept))
    return [name for name in names if not is_blank(name)]


_find_characters = re.compile(r"(?s)\\.?|.").findall
"""Those of a text, each with the backslash before it, if there is one."""
