r"""Draw strangers' texts on a terminal, so that they stay in their place.

A name is data: it may hold terminal escapes, marks that turn the direction of a line, newlines, `[red]` or `:smile:`.
Whatever is drawn goes through `clean`, and nothing is read as markup.

>>> clean("a\x1b[2Jb\nc\u202etxt.exe")
'a�[2Jb c�txt.exe'
>>> print(to_json({"name": "树\u202e"}))
{
  "name": "树\u202e"
}
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree
from typing_extensions import override

PIPED_WIDTH = 10_000
"""Columns where there is no terminal: output to a file or another program is not cut."""

JOINERS = "\u200c\u200d"
"""Invisible characters that Persian, Indian scripts and emoji need."""


def clean(text: str, keep_lines: bool = False) -> str:
    r"""Return a text with nothing in it that moves a cursor, turns a line around or cannot be seen.

    Blanks of all kinds become spaces, everything else that is not printable a `�`.

    Args:
        text: a stranger's text.
        keep_lines: whether newlines stay, and tabs become up to eight spaces.

    >>> clean("一\r\n二\t三", keep_lines=True)
    '一\n二      三'
    """
    if keep_lines:
        text = text.replace("\r\n", "\n").expandtabs()
    kept = JOINERS + "\n" * keep_lines
    odd = (char for char in set(text) if not char.isprintable() and char not in kept)
    return text.translate({ord(char): " " if char.isspace() else "\ufffd" for char in odd})


def to_json(value: object, *, ascii_only: bool = False) -> str:
    """Return JSON for programs that a person may look at: Chinese stays, control characters are escaped."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    odd = (char for char in set(text) if not char.isprintable() and char != "\n")
    return text.translate({ord(char): json.dumps(char)[1:-1] for char in odd})


def line(*parts: str | tuple[str, str], keep_lines: bool = False) -> Text:
    r"""Return one line of parts, each a text or a text and its style.

    >>> line("moved to ", ("编程\n", "bold")).plain
    'moved to 编程 '
    """
    text = Text()
    for part in parts:
        said, style = (part, "") if isinstance(part, str) else part
        text.append(clean(said, keep_lines), style)
    return text


def table(rows: Sequence[Sequence[Text | str]], headers: Sequence[str] = (), numbers: Sequence[int] = ()) -> Table:
    """Return rows whose columns align whatever the script; where a screen is narrow, long cells are wrapped.

    Args:
        rows: each with a text for each column.
        headers: the columns' headings; empty for none.
        numbers: the columns, from 0, that are aligned at their right end.
    """
    drawn = Table(box=None, show_header=bool(headers), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for place, header in enumerate(headers or [""] * len(rows[0] if rows else ())):
        drawn.add_column(line(header), justify="right" if place in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(cell if isinstance(cell, Text) else line(cell) for cell in row))
    return drawn


def draw_tree(rows: Iterable[tuple[int, Text]]) -> Tree:
    """Return a drawing of (depth, label), the root first with depth 0, each keyword before those under it."""
    rows = iter(rows)
    _, label = next(rows)
    branches = [Tree(label, guide_style="dim")]
    for depth, label in rows:
        del branches[depth:]
        branches.append(branches[-1].add(label))
    return branches[0]


class Screen(Console):
    """A stream, of which it is known whether a person looks at it.  Nothing that is drawn is read as markup."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal that cannot show Chinese shows "?", and the work goes on
            reconfigure(errors="replace")
        super().__init__(
            stderr=stderr, markup=False, highlight=False, emoji=False, width=None if stream.isatty() else PIPED_WIDTH
        )

    def write_json(self, value: object) -> None:
        """Write JSON, whatever encoding the stream has."""
        is_unicode = (getattr(self.file, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")
        self.file.write(to_json(value, ascii_only=not is_unicode) + "\n")

    @override
    def on_broken_pipe(self) -> None:
        raise  # it is called while it handles the error, and by itself would end as if nothing was found


def shorten(text: str, limit: int = 120) -> str:
    r"""Return the first line of a text that says something, at most `limit` characters of it.

    >>> shorten("\n  Bread needs an hour.\nAnd flour.")
    'Bread needs an hour. …'
    """
    first, _, rest = text[: 10 * limit].strip().partition("\n")
    first = first.rstrip()
    return first if len(first) <= limit and not rest.strip() else f"{first[: limit - 1].rstrip()} …"


def spell_row(record: Any) -> dict[str, Any]:
    """Return a record as JSON has it, without its children and the fields of rows on disk alone."""
    left_out = ("children", "normalized", "deleted", "merged_into", "_list_children")
    return {name: getattr(value, "value", value) for name, value in vars(record).items() if name not in left_out}
