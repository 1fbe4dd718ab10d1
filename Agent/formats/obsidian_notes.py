"""A folder of Markdown notes, as Obsidian and its like have it.

    Programming/Python.md           ---
                                    aliases: [CPython]
                                    tags: [language/dynamic]
                                    ---
                                    Simpler than [[C++]].

Read: a folder with notes is a keyword, a note is a keyword under it (`Python/Python.md` speaks for the folder
`Python`), its text an info, its path the source. Frontmatter `aliases` and `description` belong to the keyword; each
of the `tags`, and each `#tag` in the text outside of code, is a keyword under the top keyword "tags", to which the
text is RELATED; so it is to the note that a `[[wikilink]]` or a Markdown link (`[text](../Note.md)`) names, by path or
by name. A keyword's own text comes before those of notes that link to it. Hidden folders, folders without notes, files
that are not `.md`, and symbolic links are passed over.

Kept by an import: names, aliases, descriptions, texts, links. A note has an id by its path, so importing again makes no
duplicates.
"""

import itertools
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

from ..keyword_tree import RelationType
from .records import NAME_LIMIT, Fact, Link, Outline, Record, Source, is_blank, refuse_encoding, split_front_matter

_Front: TypeAlias = dict[str, Any]

_TAGS = "tags"
# Each character fits one part alone: a note of one endless line must not be read again from each of its characters.
_WIKILINK = re.compile(r"\[\[([^\[\]|#^\n]+)(?:[|#^][^\[\]\n]*)?\]\]")
_MARKDOWN_LINK = re.compile(r"\]\(<?([^()<>#\n]+)\.md(?:#[^()<>\n]*)?>?\)")
_FRONT_LIMIT = 65_536  # characters; the parser of YAML takes seconds for each further megabyte
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
        InvalidInputError: a note is in another encoding.

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
            folders[:] = sorted(name for name in folders if self._has_notes(Path(folder, name)))
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

    def _has_notes(self, folder: Path) -> bool:
        notes = (note for note in folder.rglob("*.md") if "/." not in f"/{note.relative_to(folder).as_posix()}")
        return self._is_visible(folder) and any(note.is_file() and not note.is_symlink() for note in notes)

    def _keyword(self, here: PurePosixPath, name: str, notes: list[PurePosixPath]) -> Iterator[Record]:
        read = [self._read(note) for note in notes]
        fronts = [front for front, _ in read]
        front = fronts[-1] if fronts else {}
        path = str(here / name)
        parent_id = self._ids.get(str(here), self._outline.parent_id)
        id = self._outline.id_of("note", unicodedata.normalize("NFC", path))
        description = front.get("description")
        yield self._outline.keyword(
            parent_id,
            unicodedata.normalize("NFC", name),
            _names(front.get("aliases", front.get("alias"))),
            description if isinstance(description, str) else "",
            id,
        )
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
        if is_blank(text):
            return
        named = list(self._linked(_CODE.sub("", text), path.parent))
        named += [self._tags.get(_fold(tag)) for tag in _tags_of(front, text)]
        info_id = self._outline.id_of("text", str(path))
        yield Fact(info_id, text, f"{path}.md", [(id, RelationType.PRIMARY)])
        self.links += [
            Link(info_id, other, RelationType.RELATED) for other in dict.fromkeys(named) if other and other != id
        ]

    def _linked(self, text: str, folder: PurePosixPath) -> Iterator[str | None]:
        """Yield the id of each note that a text in this folder links to, None where there is none."""
        for link in _WIKILINK.findall(text):  # in a table, a backslash stands before the |
            yield self._by_name.get(_fold(link.rstrip("\\").strip().removesuffix(".md")))
        for link in map(unquote, _MARKDOWN_LINK.findall(text)):  # from the note's own folder, or from the top
            yield self._by_name.get(_fold(os.path.normpath(folder / link))) or self._by_name.get(_fold(link))

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


def _names(value: object) -> list[str]:
    """Return the names of YAML: a list, or a text of several with commas."""
    if isinstance(value, str):
        value = [text.strip() for text in value.split(",")]
    return [text for text in value if isinstance(text, str) and text] if isinstance(value, list) else []


def _tags_of(front: _Front, text: str) -> list[str]:
    """Return the tags of a note, those of its frontmatter first."""
    inline = _INLINE_TAG.findall(_CODE.sub("", text))
    written = ["".join(itertools.takewhile(_is_of_tag, tag)) for tag in inline]
    found = [*_nested(front.get("tags", front.get("tag"))), *(tag for tag in written if any(map(_is_letter, tag)))]
    tags = [unicodedata.normalize("NFC", str(PurePosixPath(tag.strip().lstrip("#").strip("/")))) for tag in found]
    by_fold = {_fold(tag): tag for tag in reversed(tags)}  # the first spelling counts
    kept = (by_fold[fold] for fold in dict.fromkeys(map(_fold, tags)))
    return [tag for tag in kept if not is_blank(tag) and tag != "." and len(tag) <= NAME_LIMIT]


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
