"""Texts within the syntax of a format: what it cannot hold, what would end it, several names in one cell."""

import json
import re
import unicodedata
from collections.abc import Iterable

UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


def is_blank(text: str) -> bool:
    """Tell whether the tree would refuse this as an empty name."""
    return all(unicodedata.category(char) in ("Zs", "Zl", "Zp", "Cc", "Cf") for char in text)


def printable(text: str) -> str:
    r"""Return the text with a U+FFFD for each character that XML and Markdown cannot hold.

    >>> printable("bell \a, tab \t")
    'bell �, tab \t'
    """
    return UNWRITABLE.sub("\ufffd", text)


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
    names: list[str] = []
    name: list[str] = []
    kept = 0  # characters of the name that stay, whatever blanks follow
    chars = iter(text)
    for char in chars:
        if char == separator:
            names.append("".join(name[:kept]))
            name, kept = [], 0
            continue
        is_escaped = char == "\\"
        char = next(chars, char) if is_escaped else char
        if name or is_escaped or not char.isspace():
            name.append(char)
            kept = len(name) if is_escaped or not char.isspace() else kept
    names.append("".join(name[:kept]))
    return [name for name in names if not is_blank(name)]
