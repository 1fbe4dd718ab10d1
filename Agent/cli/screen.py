r"""Draw on a terminal what strangers wrote, so that it stays where it was put.

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
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text
from rich.tree import Tree
from typing_extensions import override

from ..base.language import say

__all__ = ["Progress", "Screen", "clean", "draw_tree", "line", "show_progress", "table", "to_json"]

Progress: TypeAlias = Callable[[int, float | None], None]
"""Called with the records done so far, and the share of all: 0 to 1, None where it is unknown."""

PIPED_WIDTH = 10_000
"""Columns of what is no terminal: what goes to a file or another program is not cut."""

FIXED_WIDTH = 40
"""Columns of a table up to this width are never cut: an id has 36 characters."""

GAP = 2
"""Columns between those of a table."""

JOINERS = "\u200c\u200d"
"""Invisible, and yet a part of what is written in Persian, in Indian scripts and in emoji."""


def clean(text: str, keep_lines: bool = False) -> str:
    r"""Return a text with nothing in it that moves a cursor, turns a line around or cannot be seen.

    Blanks of all kinds become spaces, everything else that is not printable a `�`.

    Args:
        text: what a stranger wrote.
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
    """Return JSON for programs that a person may look at: Chinese stays, what a terminal would obey is escaped."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    odd = (char for char in set(text) if not char.isprintable() and char != "\n")
    return text.translate({ord(char): json.dumps(char)[1:-1] for char in odd})


def line(*parts: str | tuple[str, str], keep_lines: bool = False) -> Text:
    r"""Return one line of parts, each a text or a text and its style.

    >>> line("moved to ", ("编程\n", "bold")).plain
    'moved to 编程 '
    """
    text = Text(no_wrap=not keep_lines, overflow="fold" if keep_lines else "ellipsis")
    for part in parts:
        said, style = (part, "") if isinstance(part, str) else part
        text.append(clean(said, keep_lines), style)
    return text


class table:  # noqa: N801  it is called as the functions are that draw the rest
    """Rows whose columns align whatever the script; where a screen is narrow, long columns give way.

    Where it is so narrow that nothing would be left of them, they follow their row.
    """

    def __init__(
        self, rows: Sequence[Sequence[Text | str]], headers: Sequence[str] = (), numbers: Sequence[int] = ()
    ) -> None:
        """Take the rows.

        Args:
            rows: each with a text for each column; the last column always gives way.
            headers: the columns' headings; empty for none.
            numbers: the columns, from 0, that are aligned at their right end.
        """
        self._rows = [[cell if isinstance(cell, Text) else line(cell) for cell in row] for row in rows]
        self._headers = headers
        self._numbers = numbers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw them in what room there is."""
        count = len(self._rows[0]) if self._rows else len(self._headers)
        cells = [[line(header) for header in self._headers], *self._rows] if self._headers else self._rows
        widths = [max((row[column].cell_len for row in cells), default=0) for column in range(count)]
        gives_way = [column == count - 1 or width > FIXED_WIDTH for column, width in enumerate(widths)]
        least = [min(width, FIXED_WIDTH // 4) if may else width for width, may in zip(widths, gives_way, strict=True)]
        if sum(least) + GAP * (count - 1) > options.max_width:
            yield from self._stack(gives_way, options.max_width)
            return
        drawn = Table(
            box=None, show_header=bool(self._headers), header_style="dim", pad_edge=False, padding=(0, GAP, 0, 0)
        )
        for column in range(count):
            drawn.add_column(
                self._headers[column] if self._headers else "",
                justify="right" if column in self._numbers else "left",
                # To rich, only a column that may wrap may shrink; the cells themselves do not wrap, see `line`.
                no_wrap=not gives_way[column],
                overflow="ellipsis",
                min_width=least[column],
            )
        for row in self._rows:
            drawn.add_row(*row)
        yield drawn

    def _stack(self, gives_way: list[bool], width: int) -> Iterator[Text]:
        for row in self._rows:
            first, rest = line(), []
            for cell, may in zip(row, gives_way, strict=True):
                if first.plain and (may or first.cell_len + GAP + cell.cell_len > width):
                    rest.append(line("    ").append_text(cell))
                else:
                    first = first.append(" " * GAP).append_text(cell) if first.plain else cell
            yield from (one for one in (first, *rest) if one.plain.strip())


def draw_tree(rows: Iterable[tuple[int, Text]]) -> Tree:
    """Return a drawing of (depth, label), the root first with depth 0, each keyword before what is under it."""
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
    def print(self, *objects: Any, **options: Any) -> None:
        """Draw; what is no terminal gets no blanks at the ends of its lines."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as drawn:
            super().print(*objects, **options)
        self.file.write("".join(f"{text.rstrip(' ')}\n" for text in drawn.get().split("\n")[:-1]))

    @override
    def on_broken_pipe(self) -> None:
        raise  # it is called while it handles the error, and by itself would end as if nothing was found


@contextmanager
def show_progress(what: str, screen: Screen, *, unit: str = "records") -> Iterator[Progress]:
    """Show on a terminal how far a long work is, at what rate, and how long it will take; elsewhere nothing.

    What is drawn vanishes in the end.
    """
    if not screen.is_terminal:
        yield lambda done, share: None
        return
    # Imported here: it takes as long as all of the above, and few commands need it.
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn(say("left:")),
        TimeRemainingColumn(),
    ]
    started = time.monotonic()
    with Bar(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(clean(what), total=None, rate="")

        def advance(done: int, share: float | None) -> None:
            rate = f"{done:,} {say(unit)}, {done / max(time.monotonic() - started, 1e-3):,.0f}/s"
            bar.update(task, completed=share or 0, total=None if share is None else 1, rate=rate)

        yield advance


def shorten(text: str, limit: int = 120) -> str:
    r"""Return the first line of a text that says something, at most `limit` characters of it.

    >>> shorten("\n  Bread needs an hour.\nAnd flour.")
    'Bread needs an hour. …'
    """
    first, _, rest = text[: 10 * limit].strip().partition("\n")
    first = first.rstrip()
    return first if len(first) <= limit and not rest.strip() else f"{first[: limit - 1].rstrip()} …"


def spell_row(record: Any) -> dict[str, Any]:
    """Return a record as JSON has it, without its children and what only rows on disk have."""
    left_out = ("children", "normalized", "deleted", "merged_into", "_list_children")
    return {name: getattr(value, "value", value) for name, value in vars(record).items() if name not in left_out}
