"""Draw on a terminal: columns that stay aligned whatever the script, colours where wanted, and trees.

>>> display_width("树 tree")
7
>>> fit("关键词知识树", 8) + "|"
'关键词… |'
"""

import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

__all__ = ["Screen", "display_width", "draw_tree", "fit", "fit_end", "wrap_items"]

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "cyan": "36"}
"""The escape sequences used; all of them are in ECMA-48 and readable on dark and on light ground."""


class Screen:
    """Where lines go: a stream, its width, and whether it shows colours.

    >>> import sys
    >>> Screen(sys.stdout, width=40).line("plain", style="bold")
    plain
    """

    def __init__(self, stream: TextIO, width: int = 80, colours: bool | None = None):
        """Prepare a stream for drawing.

        Args:
            stream: Where text is written.
            width: Columns of a line.
            colours: Whether to write colours; None asks the stream (a terminal) and the variable NO_COLOR (unset).
        """
        self._stream = stream
        self.width = width
        self.is_terminal = stream.isatty()
        self._has_lines = False
        self._colours = self.is_terminal and not os.environ.get("NO_COLOR") if colours is None else colours

    def style(self, text: str, style: str) -> str:
        """Return the text in a style of `STYLES`, or as it is where no colours are wanted."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self._colours and style and text else text

    def line(self, text: str = "", style: str = "") -> None:
        """Write one line."""
        self._stream.write(self.style(text.rstrip(), style) + "\n")
        self._stream.flush()
        self._has_lines = True

    def title(self, text: str, note: str = "") -> None:
        """Write a heading, with a note at the right end, and an empty line before it unless it is the first."""
        gap = " " * max(2, self.width - display_width(text) - display_width(note))
        if self._has_lines:
            self.line()
        self.line(self.style(text, "bold") + (gap + self.style(note, "dim") if note else ""))

    def progress(self, text: str) -> None:
        """Show a passing message on a terminal; the next one, or an empty one, takes its place."""
        if self.is_terminal:
            self._stream.write("\r\x1b[2K" + fit(text, self.width - 1).rstrip())
            self._stream.flush()


def display_width(text: str) -> int:
    """Return the columns a terminal gives a text: two for a wide character, none for a mark on the one before."""
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int) -> str:
    r"""Return the text in exactly `width` columns: cut with an ellipsis, or filled with spaces.

    Control characters become spaces: a name is data from strangers, and must not move a terminal's cursor.

    >>> fit("a\x1b[2Jb", 8)
    'a [2Jb  '
    """
    clean = "".join(" " if unicodedata.category(character) == "Cc" else character for character in text)
    if display_width(clean) > width:
        kept, used = "", 0
        for character in clean:
            used += _character_width(character)
            if used > width - 1:
                break
            kept += character
        clean = kept.rstrip() + "…"
    return clean + " " * (width - display_width(clean))


def fit_end(text: str, width: int) -> str:
    """Return the text in exactly `width` columns like `fit`, but cut at its beginning.

    >>> fit_end("xml.etree.ElementTree.parse", 18)
    '…ElementTree.parse'
    """
    if display_width(text) <= width:
        return fit(text, width)
    kept = text
    while display_width(kept) > width - 1:
        kept = kept[1:]
    return fit("…" + kept, width)


def wrap_items(items: Sequence[str], width: int, rows: int, separator: str = " · ") -> list[str]:
    """Lay items out in at most so many rows, whole ones, and say how many did not fit.

    >>> wrap_items(["json / load", "pickle / load", "tomllib / load", "marshal / load"], width=30, rows=2)
    ['json / load · pickle / load', 'tomllib / load · … 1 more']
    """
    lines = [""]
    for index, item in enumerate(items):
        is_last = index == len(items) - 1
        more = "" if is_last else f"{separator}… {len(items) - index - 1} more"
        line = lines[-1] + (separator if lines[-1] else "") + item
        # In the last row an item is only taken if what tells of the rest still fits behind it.
        if not lines[-1] or display_width(line + (more if len(lines) == rows else "")) <= width:
            lines[-1] = line
        elif len(lines) < rows:
            lines.append(item)
        else:
            lines[-1] += f"{separator}… {len(items) - index} more"
            break
    return lines


def draw_tree(
    root: str,
    children: Callable[[str], Iterable[str]],
    label: Callable[[str], str],
    is_open: Callable[[str], bool],
    limit: int,
) -> list[str]:
    r"""Draw a tree with box characters.

    Args:
        root: The id at the top.
        children: Gives a node's children, by id.
        label: Gives a node's text.
        is_open: Tells whether a node's children are drawn.
        limit: How many children of a node are drawn at most; the open ones always are, the rest is counted.

    Returns:
        One text per line.

    >>> below = {"fruit": ["apple", "fig", "pear", "plum"], "pear": ["Conference"]}
    >>> lines = draw_tree("fruit", lambda id: below.get(id, []), str, {"fruit", "pear"}.__contains__, limit=2)
    >>> print("\n".join(lines))
    fruit
    ├─ apple
    ├─ pear
    │  └─ Conference
    └─ … 2 more
    """
    lines = [label(root)]
    _draw_below(root, "", lines, children, label, is_open, limit)
    return lines


def _draw_below(
    node: str,
    indent: str,
    lines: list[str],
    children: Callable[[str], Iterable[str]],
    label: Callable[[str], str],
    is_open: Callable[[str], bool],
    limit: int,
) -> None:
    everything = list(children(node))
    closed_left = limit - sum(map(is_open, everything))
    shown = []
    for child in everything:
        closed_left -= not is_open(child)
        if is_open(child) or closed_left >= 0:
            shown.append(child)
    hidden = len(everything) - len(shown)
    for index, child in enumerate(shown):
        is_last = index == len(shown) - 1 and not hidden
        lines.append(indent + ("└─ " if is_last else "├─ ") + label(child))
        if is_open(child):
            _draw_below(child, indent + ("   " if is_last else "│  "), lines, children, label, is_open, limit)
    if hidden:
        lines.append(indent + f"└─ … {hidden:,} more")
