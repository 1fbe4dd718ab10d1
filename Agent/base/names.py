"""What names become: a folder's name, and a part of an id."""

import hashlib
import unicodedata
from urllib.parse import quote, unquote

from ..keyword_tree import InvalidInputError
from .checks import shorten
from .text import fold_case

_NAME_LIMIT = 200  # bytes of a folder's name, which file systems cut at 255
_SLUG_LIMIT = 80  # characters; a longer name ends in a checksum, so that a paragraph can be a name, too


def encode_name(kind: str, name: str) -> str:
    """Return a name as a folder can be called, whatever script it is in; two names are never one folder.

    >>> encode_name("user", "Ada/..")
    '%41da%2F%2E%2E'

    Capitals are written as codes, as is whatever is neither letter nor digit, since some file systems take `Ada` and
    `ada` for one.

    Raises:
        InvalidInputError: It is blank, longer than 200 bytes as it is written, or has characters unseen; `kind` says
            in the message what it names.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError(f"{kind} must be a name, not {shorten(name)}")
    if name != unicodedata.normalize("NFC", name) or any(unicodedata.category(char)[0] == "C" for char in name):
        raise InvalidInputError(f"{kind} has characters that look like others or cannot be seen: {name!r}")
    encoded = "".join(
        char if char in _PLAIN or (not char.isascii() and char.isalnum() and char == char.casefold()) else _code(char)
        for char in name
    )
    if len(encoded.encode()) > _NAME_LIMIT:
        raise InvalidInputError(f"{kind} is too long for the name of a folder: {name[:60]!r}")
    return encoded


def decode_name(encoded: str) -> str:
    """Return the name that `encode_name` wrote so."""
    return unquote(encoded)


def _code(char: str) -> str:
    quoted = quote(char, safe="")
    return quoted if quoted != char else f"%{ord(char):02X}"


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def slug_of(name: str) -> str:
    """Return `name` as a part of an id: its letters, digits and symbols in any script, joined by hyphens.

    Symbols and `#` stay: C, C++ and C# are three skills.

    >>> slug_of("修复 登录"), slug_of("C++"), slug_of("C#")
    ('修复-登录', 'c++', 'c#')
    """
    folded = fold_case(name)
    kept = "".join(char if unicodedata.category(char)[0] in "LMNS" or char == "#" else " " for char in folded)
    slug = "-".join(kept.split())
    if slug and len(slug) <= _SLUG_LIMIT:
        return slug
    checksum = hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return "-".join(filter(None, [slug[:_SLUG_LIMIT].rstrip("-"), checksum]))
