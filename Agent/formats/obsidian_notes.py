"""A folder of Markdown notes, as Obsidian and its like have it.

    Programming/Python.md           ---
                                    aliases: [CPython]
                                    tags: [language/dynamic]
                                    ---
                                    Simpler than [[C++]].

Read: a folder is a keyword, a note is a keyword under it (`Python/Python.md` speaks for the folder `Python`), its
text an info, its path the source. Frontmatter `aliases` and `description` belong to the keyword; each of the `tags`,
and each `#tag` in the text outside of code, is a keyword under the top keyword "tags", to which the text is RELATED;
so it is to the note that a `[[wikilink]]` or a Markdown link (`[text](../Note.md)`) names, by path or by name. A
keyword's own text comes before those of notes that link to it. Hidden folders, files that are not `.md`, and symbolic
links are passed over.

Written: a note for each keyword, in a folder where something lies under it. File names hold what every file system
takes; where that is not the name, the frontmatter has it. Each info is in the note of its first PRIMARY keyword,
under a comment that has its id, source and links, since a note may hold several; `related` in the frontmatter shows the
links to Obsidian's graph. Ids are kept, so an export can be imported again without duplicates.

Kept: ids, names, aliases, descriptions, contents, sources, links and relations. Lost: metadata,
creators, versions, times; an info's keywords and a level's children come in the order of the files.

>>> file_name("C:/Windows/../CON?"), file_name("编程"), file_name(".git"), file_name("con")
('C__Windows_.._CON_', '编程', '_.git', 'con_')
"""

import itertools
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import unquote

try:
    import yaml
except ImportError as error:
    raise ImportError("notes need PyYAML: pip install '.[formats]' in its repository") from error

from ..keyword_tree import Info, RelationType
from .records import (
    ROOT_ID,
    Fact,
    Link,
    Outline,
    Record,
    Source,
    inert_json,
    is_blank,
    refuse,
    refuse_encoding,
    split_front_matter,
)
from .view import View

_Front: TypeAlias = dict[str, Any]

_TAGS = "tags"
_NAME_BYTES = 180  # a file's name has 255 at most; this leaves room for a number and the suffix

# -- writing ------------------------------------------------------------------

_UNSAFE = re.compile(r'[<>:"/\\|?*#^\[\]\x00-\x1f\x7f]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def file_name(name: str) -> str:
    """Return a name that every common file system takes, and that leads nowhere else."""
    text = _UNSAFE.sub("_", name).encode("utf-8")[:_NAME_BYTES].decode("utf-8", "ignore").rstrip(". ").lstrip(" ")
    if not text or text.startswith("."):
        text = f"_{text}"
    return f"{text}_" if _RESERVED.fullmatch(text) or text.lower().endswith(".md") else text


def write(view: View, folder: Path) -> None:
    """Write the notes into an empty folder.

    Raises:
        OSError: the disk refused, or a path grew longer than the system allows.

    Cost: a file for each keyword; holds their paths.
    """
    paths = _lay_out(view)
    for _, node in view.walk():
        linked = ((info, view.keywords_of(info.id)) for info in view.infos(node.id))
        within = [(info, [link for link in links if link[0] in paths]) for info, links in linked]
        blocks = [(info, links) for info, links in within if _home(links) == node.id]
        if node.id == ROOT_ID and not blocks:
            continue
        path = paths[node.id]
        front: _Front = {"keyword_id": node.id}
        if unicodedata.normalize("NFC", path.name) != node.name:
            front["keyword_name"] = node.name
        if node.aliases:
            front["aliases"] = node.aliases
        if node.description:
            front["description"] = node.description
        related = dict.fromkeys(id for _, links in blocks for id, _ in links if id not in (node.id, ROOT_ID))
        if related:
            front["related"] = [f"[[{paths[id]}]]" for id in related]
        text = yaml.dump(front, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=float("inf"))
        file = folder / f"{path}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8", newline="") as out:
            out.write(f"---\n{text}---\n")
            out.writelines(_block(info, links) for info, links in blocks)


def _home(links: list[tuple[str, RelationType]]) -> str:
    """Return the keyword in whose note an info stands: the first that it belongs to as PRIMARY, else the first."""
    return next((id for id, relation in links if relation is RelationType.PRIMARY), links[0][0])


class _Dumper(yaml.SafeDumper):
    """Puts what holds other blanks than spaces in double quotes: in any other style YAML folds some of them."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if re.search(r"[^\S ]", text) else None
    ),
)


def _lay_out(view: View) -> dict[str, PurePosixPath]:
    """Return each keyword's note, without its suffix: no two of them differ by case or composition alone."""
    notes: dict[str, PurePosixPath] = {}
    folders: dict[str, PurePosixPath] = {}
    taken: set[str] = set()
    for depth, node in view.walk():
        folder = folders.get(node.parent_id or "", PurePosixPath())
        plain = name = file_name(node.name)
        number = 1
        while _fold(str(folder / name)) in taken:
            number += 1
            name = f"{plain} {number}"
        taken.add(_fold(str(folder / name)))
        notes[node.id] = folder / name
        if depth and next(view.children(node.id), None) is not None:
            folders[node.id] = folder / name
            notes[node.id] = folder / name / name
            taken.add(_fold(str(notes[node.id])))
    return notes


def _block(info: Info, links: list[tuple[str, RelationType]]) -> str:
    about = {"id": info.id, "source": info.source, "links": {id: relation.value for id, relation in links}}
    content = re.sub(r"^(?=\\*<!-- info )", r"\\", info.content, flags=re.MULTILINE)
    return f"<!-- info {inert_json(about)} -->\n{content}\n"


# -- reading ------------------------------------------------------------------

_BLOCK = re.compile(r"^<!-- info (.*) -->\n", re.MULTILINE)
# Each character fits one part alone: a note of one endless line must not be read again from each of its characters.
_WIKILINK = re.compile(r"\[\[([^\[\]|#^\n]+)(?:[|#^][^\[\]\n]*)?\]\]")
_MARKDOWN_LINK = re.compile(r"\]\(<?([^()<>#\n]+)\.md(?:#[^()<>\n]*)?>?\)")
_FRONT_LIMIT = 65_536  # characters; the parser of YAML takes seconds for each further megabyte
_TAG_LIMIT = 512  # characters
# A block to its fence or to the end of the note, and code within a line, between as many backticks on both sides.
_CODE = re.compile(
    r"^[ >]*(?P<fence>```++|~~~++)[^\n]*\n(?s:.*?)(?:^[ >]*(?P=fence)|\Z)"
    r"|(?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE,
)
# As Obsidian has them: after a blank or a bracket, of letters with their marks, digits, emoji, _, - and /, and not of
# digits alone; and after Chinese punctuation, which no blank follows.
_INLINE_TAG = re.compile(r"(?:^|(?<=[\s(（【「『《“‘。，、；：！？…—）】」』》”’]))#([^\s#]+)", re.MULTILINE)


def read(source: Source, outline: Outline) -> Iterator[Record]:
    """Yield the records of a folder of notes.

    Frontmatter that is no YAML, or longer than 65,536 characters, stays in the text; a wikilink that names no note
    does, too. A tag of more than 512 characters is passed over.

    Raises:
        InvalidInputError: a note is not UTF-8, or a comment about an info is not as exports write it.

    Cost: reads each note twice, for a link may point at a note that comes later.
    """
    vault = _Vault(source, outline)
    yield from vault.keywords()
    for path in vault.notes:
        yield from vault.facts(path)
    yield from vault.links


class _Vault:
    def __init__(self, source: Source, outline: Outline) -> None:
        self._source = source
        self._outline = outline
        self._ids: dict[str, str] = {}  # of each note and folder, by its path without the suffix
        self._by_name: dict[str, str] = {}  # what a wikilink may say: a path, or the name of the note nearest the top
        self._tags: dict[str, str] = {}  # the id of each tag, by its path without the difference of case
        self.notes: list[PurePosixPath] = []
        self.links: list[Link] = []
        """Links from texts to the notes that they name: made last, after those notes' own texts."""

    def keywords(self) -> Iterator[Record]:
        for folder, folders, files in os.walk(self._source.path):
            here = PurePosixPath(Path(folder).relative_to(self._source.path).as_posix())
            folders[:] = sorted(name for name in folders if self._is_visible(Path(folder, name)))
            notes = {
                name.removesuffix(".md")
                for name in files
                if name.endswith(".md") and self._is_visible(Path(folder, name))
            }
            self.notes += [here / name for name in sorted(notes)]
            speaker = here.name  # the note of the folder itself, read with the folder
            for name in sorted(notes.union(folders) - {speaker}):
                own = [here / name] if name in notes else []
                if name in folders and self._is_visible(inner := Path(folder, name, f"{name}.md")) and inner.is_file():
                    own.append(here / name / name)
                yield from self._keyword(here, name, own)
        names = sorted(self._ids, key=lambda path: (path.count("/"), path))
        self._by_name = {_fold(PurePosixPath(path).name): self._ids[path] for path in reversed(names)}
        self._by_name |= {_fold(path): self._ids[path] for path in names}

    def _is_visible(self, path: Path) -> bool:
        return not path.name.startswith(".") and not path.is_symlink()

    def _keyword(self, here: PurePosixPath, name: str, notes: list[PurePosixPath]) -> Iterator[Record]:
        read = [self._read(note) for note in notes]
        fronts = [front for front, _ in read]
        front = fronts[-1] if fronts else {}
        path = str(here / name)
        parent_id = self._ids.get(str(here), self._outline.parent_id)
        id = _text(front.get("keyword_id")) or self._outline.id_of("note", unicodedata.normalize("NFC", path))
        if id == ROOT_ID:
            id = self._outline.parent_id
        else:
            name = _text(front.get("keyword_name")) or unicodedata.normalize("NFC", name)
            aliases = _texts(front.get("aliases", front.get("alias")), ",")
            yield self._outline.keyword(parent_id, name, aliases, _text(front.get("description")), id)
        self._ids |= {path: id} | {str(note): id for note in notes}
        for tag in (tag for front, text in read for tag in _tags_of(front, text)):
            yield from self._tag(tag)

    def _tag(self, tag: str) -> Iterator[Record]:
        parent_id = self._outline.parent_id
        for path in ("", *(str(step) for step in reversed(PurePosixPath(tag).parents) if str(step) != "."), tag):
            if _fold(path) not in self._tags:
                self._tags[_fold(path)] = id = self._outline.id_of("tag", path)
                yield self._outline.keyword(parent_id, PurePosixPath(path).name or _TAGS, id=id)
            parent_id = self._tags[_fold(path)]

    def facts(self, path: PurePosixPath) -> Iterator[Record]:
        front, text = self._read(path)
        id = self._ids[str(path)]
        start, *blocks = _BLOCK.split(text)
        if not is_blank(start):
            named = list(self._linked(_CODE.sub("", start), path.parent))
            named += [self._tags.get(_fold(tag)) for tag in _tags_of(front, start)]
            info_id = self._outline.id_of("text", str(path))
            yield Fact(info_id, start, f"{path}.md", [(id, RelationType.PRIMARY)])
            self.links += [
                Link(info_id, other, RelationType.RELATED) for other in dict.fromkeys(named) if other and other != id
            ]
        for about, content in zip(blocks[::2], blocks[1::2], strict=True):
            yield self._fact(path, about, content.removesuffix("\n"))

    def _linked(self, text: str, folder: PurePosixPath) -> Iterator[str | None]:
        """Yield the id of each note that a text in this folder links to, None where there is none."""
        for link in _WIKILINK.findall(text):  # in a table, a backslash stands before the |
            yield self._by_name.get(_fold(link.rstrip("\\").strip().removesuffix(".md")))
        for link in map(unquote, _MARKDOWN_LINK.findall(text)):  # from the note's own folder, or from the top
            yield self._by_name.get(_fold(os.path.normpath(folder / link))) or self._by_name.get(_fold(link))

    def _fact(self, path: PurePosixPath, about: str, content: str) -> Fact:
        try:
            row = json.loads(about)
            links = [
                (self._outline.parent_id if id == ROOT_ID else id, RelationType(relation))
                for id, relation in row["links"].items()
            ]
            content = re.sub(r"^\\(?=\\*<!-- info )", "", content, flags=re.MULTILINE)
            return Fact(row["id"], content, row["source"], links)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise refuse(self._source, f"{path}.md: the comment about an info is damaged: {error!r}") from error

    def _read(self, path: PurePosixPath) -> tuple[_Front, str]:
        file = self._source.path / f"{path}.md"
        try:
            with file.open(encoding=self._source.encoding_of(file), newline="") as opened:
                text = opened.read()
        except UnicodeDecodeError as error:
            raise refuse_encoding(self._source, error, f"{path}.md") from error
        head, rest = split_front_matter(text)
        if len(head) > _FRONT_LIMIT:
            return {}, text
        try:
            # Texts stay as they are written: to YAML 1.1, `no` and `2024-01-01` would be something else.
            front = yaml.load(head, yaml.BaseLoader)
        except (yaml.YAMLError, RecursionError):
            return {}, text
        return (front, rest) if isinstance(front, dict) else ({}, text if head else rest)


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object, separators: str) -> list[str]:
    if isinstance(value, str):
        value = [text.strip() for text in re.split(f"[{separators}]", value)]
    texts = value if isinstance(value, list) else []
    return [text for text in texts if isinstance(text, str) and text]


def _tags_of(front: _Front, text: str) -> list[str]:
    """Return the tags of a note, those of its frontmatter first."""
    inline = _INLINE_TAG.findall(_CODE.sub("", _BLOCK.split(text, maxsplit=1)[0]))
    written = ["".join(itertools.takewhile(_is_of_tag, tag)) for tag in inline]
    found = [*_nested(front.get("tags", front.get("tag"))), *(tag for tag in written if any(map(_is_letter, tag)))]
    tags = [unicodedata.normalize("NFC", str(PurePosixPath(tag.strip().lstrip("#").strip("/")))) for tag in found]
    by_fold = {_fold(tag): tag for tag in reversed(tags)}  # the first spelling counts
    kept = (by_fold[fold] for fold in dict.fromkeys(map(_fold, tags)))
    return [tag for tag in kept if not is_blank(tag) and tag != "." and len(tag) <= _TAG_LIMIT]


def _is_letter(char: str) -> bool:
    return char.isalpha() or unicodedata.category(char) == "So"


def _is_of_tag(char: str) -> bool:
    return _is_letter(char) or char.isalnum() or char in "_-/\u200c\u200d" or unicodedata.category(char)[0] == "M"


def _nested(value: object, above: str = "") -> Iterator[str]:
    """Yield tags of YAML: a list or a text of several, or a map, whose values are beneath its keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{above}{key}"
            yield from _nested(inner, f"{path}/") if inner else [path]
    elif isinstance(value, list):
        for each in value:
            yield from _nested(each, above) if isinstance(each, (dict, list)) else [f"{above}{each}"]
    elif isinstance(value, str):
        yield from (above + tag for tag in re.split(r"[,\s]", value) if tag)
