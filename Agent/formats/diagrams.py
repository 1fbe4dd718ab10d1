r"""The keywords as a picture: Mermaid for documents that render it, DOT for Graphviz.

Names are in quotes, and what could end the quotes or mean something in them is written as a code, so that no name
becomes syntax or HTML. Only keywords are drawn; Mermaid's renderers refuse texts above some 50,000 characters or 500
lines between nodes by default, so draw a part of a large tree (`root_id`).

>>> mermaid_text('end"] --> <b>C#</b>')
'end#34;#93; --#gt; #lt;b#gt;C#35;#lt;/b#gt;'
>>> print(dot_text('a"\\n'))
a\"\\n
"""

import re
from collections.abc import Iterator
from typing import TextIO

from .text import printable
from .view import View

_CODES = {"&": "#amp;", "<": "#lt;", ">": "#gt;"}


def mermaid_text(text: str) -> str:
    """Return the text as it is written between quotes in Mermaid."""
    plain = re.sub(r"\s", " ", printable(text))
    # Besides quotes and brackets all that Mermaid reads as Markdown, as a directive (%%{) or as an icon (fa:).
    return re.sub(r"[\"#&<>`*_~\[\](){}|\\;:%$]", lambda match: _CODES.get(match[0], f"#{ord(match[0])};"), plain)


def dot_text(text: str) -> str:
    r"""Return the text as it is written between quotes in DOT: `\N` is no escape there, nor `&amp;` an entity."""
    plain = printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return re.sub(r"\r\n|[\r\n]", r"\\n", plain)


def write_mermaid(view: View, out: TextIO) -> None:
    """Write a flow chart from left to right.

    Cost: holds the ids on one path.
    """
    out.write("flowchart LR\n")
    for number, parent, name in _numbered(view):
        arrow = "" if parent is None else f"n{parent} --> "
        out.write(f'  {arrow}n{number}["{mermaid_text(name)}"]\n')


def write_dot(view: View, out: TextIO) -> None:
    """Write a directed graph from left to right.

    Cost: holds the ids on one path.
    """
    out.write("digraph keywords {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n")
    for number, parent, name in _numbered(view):
        out.write(f'  n{number} [label="{dot_text(name)}"];\n')
        if parent is not None:
            out.write(f"  n{parent} -> n{number};\n")
    out.write("}\n")


def _numbered(view: View) -> Iterator[tuple[int, int | None, str]]:
    """Yield each keyword's number, its parent's, and its name."""
    path: list[int] = []
    top = None
    for number, (depth, node) in enumerate(view.walk()):
        top = depth if top is None else top
        del path[depth - top :]
        yield number, path[-1] if path else None, node.name
        path.append(number)
