"""What a reader yields: records, with ids that the same source gives again, and the file that they come from."""

import codecs
import io
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ..keyword_tree import (
    InvalidInputError,
    RelationType,
)
from .text import UNWRITABLE, is_blank

ROOT_ID = "root"

DEFAULT_ENCODING = "utf-8-sig"

_NAME_LIMIT = 512  # characters, the tree's own limit

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
    """A file or folder to be read, which reports how much of it was read."""

    def __init__(self, path: Path, encoding: str = DEFAULT_ENCODING) -> None:
        self.path = path
        self.encoding = encoding
        self.folder_share: float | None = None
        """Set by a reader that reads a folder; otherwise from a file's position."""
        self.problems: dict[int, str] | None = None
        """Where lines that cannot be read are to be passed over: what is wrong with each, by its number."""
        self._raw: io.FileIO | None = None

    def open(self) -> io.BufferedReader:
        """Open the file for bytes; `share` follows it."""
        self._raw = io.FileIO(self.path)
        return io.BufferedReader(self._raw, 1 << 16)

    def open_text(self) -> io.TextIOWrapper:
        """Open the file for text, without changing its line ends."""
        return io.TextIOWrapper(self.open(), encoding=self.encoding_of(self.path), newline="")

    def encoding_of(self, path: Path) -> str:
        """Return the encoding of a file: another one was named, or it is UTF-16 or UTF-32 by its mark or its zeros."""
        if self.encoding != DEFAULT_ENCODING:
            return self.encoding
        with path.open("rb") as file:
            head = file.read(4096)
        for mark, name in ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
                           (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):  # fmt: skip
            if head.startswith(mark):
                return name
        # Without a mark: text holds no zeros, but for those beside each ASCII character of UTF-16.
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) > len(head) // 16 and min(even, odd) == 0:
            return "utf-16-be" if even else "utf-16-le"
        return self.encoding

    @property
    def share(self) -> float | None:
        """How much was read, from 0 to 1."""
        if self._raw is None:
            return self.folder_share
        size = self.path.stat().st_size
        return 1.0 if self._raw.closed or not size else min(1.0, self._raw.tell() / size)


class Outline:
    """Gives the keywords and infos of one source ids which that source gives again next time.

    An id is a UUID5 over the source's key and the way from its top: names, and a number where siblings share one. So a
    second import skips what is there, a line added in the middle moves no id, and a renamed line is a new keyword.
    """

    def __init__(self, key: str, parent_id: str) -> None:
        self.parent_id = parent_id
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
    return text if len(text) <= _NAME_LIMIT else f"{text[: _NAME_LIMIT - 1]}…"


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
        return not UNWRITABLE.search(raw.decode(encoding))
    except UnicodeDecodeError:
        return False
