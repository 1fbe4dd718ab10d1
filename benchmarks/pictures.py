"""Make the picture of the README that records the command `keyword-tree`.

Repeat: ``python -m benchmarks.pictures`` (needs the extra `[cli]`). Those of the page are made by its test:
``KEYWORD_TREE_SCREENS=docs/pictures python -m pytest Agent/tests/formats/test_html_page.py -k picture``.

What is recorded is what the program writes: each command is run in a terminal of its own, and its output is drawn with
its colours. The drawing is an SVG without a script; lines appear one after another, and stay.
"""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

FOLDER = common.ROOT / "docs" / "pictures"
COLUMNS = 80
CELL, LINE, EDGE = 8.4, 20, 16
"""Pixels: of a character across, of a line down, around everything."""
TYPED_S, SAID_S, READ_S = 0.035, 0.15, 1.1
"""Seconds: for a typed character, before an answer, to read one."""

SESSIONS = {
    "terminal": (
        "en",
        "keyword-tree add Anna --parent /",
        'keyword-tree info "Anna is allergic to peanuts." --to Anna --source chat',
        "keyword-tree add 小雨 --parent / --alias Xiaoyu",
        'keyword-tree info "小雨对花生过敏，不过敏的是虾。" --to Xiaoyu',
        'keyword-tree ask "who is allergic to peanuts?"',
        'keyword-tree ask "谁对花生过敏？"',
        "keyword-tree undo",
        "keyword-tree show --infos",
    ),
    "terminal.zh-CN": (
        "zh",
        "keyword-tree add 小雨 --parent /",
        'keyword-tree info "小雨对花生过敏。" --to 小雨 --source 聊天',
        "keyword-tree add 豆豆 --parent / --alias 我家的狗",
        'keyword-tree info "豆豆怕打雷，打雷时要抱着它。" --to 豆豆',
        'keyword-tree ask "谁对花生过敏？"',
        'keyword-tree ask "狗怕打雷吗？"',
        "keyword-tree undo",
        "keyword-tree show --infos",
    ),
}

STYLE = """
  .ground { fill: #f7f8fa; stroke: #d5d9e0; }
  text { fill: #24292f; white-space: pre; }
  text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Noto Sans Mono CJK SC', monospace; }
  .prompt { fill: #1a7f37; font-weight: bold; } .bold { font-weight: bold; }
  .dim { fill: #6e7781; } .cyan { fill: #0e7490; }
  .green { fill: #1a7f37; } .red { fill: #cf222e; } .yellow { fill: #9a6700; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #161b22; stroke: #30363d; } text { fill: #e6edf3; } .dim { fill: #8b949e; }
    .prompt, .green { fill: #56d364; } .cyan { fill: #67d3e8; } .red { fill: #ff7b72; } .yellow { fill: #e3b341; }
  }
  @media (prefers-reduced-motion: no-preference) { .line { opacity: 0; animation: appear 0.01s linear forwards; } }
  @keyframes appear { to { opacity: 1; } }
"""


class Drawn(NamedTuple):
    """A line of the recording, and the second it appears at."""

    text: Text
    at: float


# == The recording ===========================================================================


def run_command(command: str, folder: Path, language: str) -> Text:
    """Run a command in a terminal, and return what it wrote there."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(common.ROOT), "KEYWORD_TREE_DATA": str(folder)}
    environment |= {"KEYWORD_TREE_LANG": language, "TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": "40"}
    environment.pop("NO_COLOR", None)
    words = [sys.executable, "-m", "Agent.cli.command_line", *shlex.split(command)[1:]]
    with subprocess.Popen(words, env=environment, stdout=theirs, stderr=subprocess.DEVNULL) as process:  # no spinner
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(ours)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {seen.decode()}")
    return Text.from_ansi(seen.decode().replace("\r\n", "\n").rstrip("\n"))


def record(commands: Sequence[str], language: str) -> list[Drawn]:
    """Run the commands one after another on a new memory."""
    drawn: list[Drawn] = []
    at = 0.3
    with tempfile.TemporaryDirectory(prefix="keyword-tree-pictures-") as folder:
        for command in commands:
            at += TYPED_S * len(command)
            drawn.append(Drawn(Text.assemble(("$ ", "prompt"), command), at))
            at += SAID_S
            drawn += [Drawn(line, at) for line in run_command(command, Path(folder, "memory"), language).split("\n")]
            at += READ_S
    return drawn


def draw(lines: Sequence[Drawn]) -> str:
    """Return the recording as SVG."""
    width, height = round(COLUMNS * CELL + 2 * EDGE), len(lines) * LINE + 2 * EDGE
    body = [
        f'<g class="line" style="animation-delay:{line.at:.2f}s">{"".join(spans(line.text, number))}</g>'
        for number, line in enumerate(lines)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *body,
            "</svg>\n",
        ]
    )


def spans(text: Text, number: int) -> Iterator[str]:
    """Yield the parts of a line, each as wide as a terminal has it, whatever the script."""
    y = EDGE + LINE * (number + 0.75)
    column = 0
    for part in text.divide(sorted({place for span in text.spans for place in (span.start, span.end)})):
        kinds = " ".join(dict.fromkeys(kind for span in part.spans for kind in str(span.style).split()))
        for _, run in groupby(part.plain, cell_len):
            said = "".join(run)
            cells = cell_len(said)
            if said.strip():
                yield (
                    f'<text class="{escape(kinds)}" x="{EDGE + column * CELL:.1f}" y="{y:.0f}" '
                    f'textLength="{cells * CELL:.1f}" xml:space="preserve">{escape(said)}</text>'
                )
            column += cells


def main() -> None:
    """Make all pictures."""
    for name, (language, *commands) in SESSIONS.items():
        (FOLDER / f"{name}.svg").write_text(draw(record(commands, language)), encoding="utf-8")


if __name__ == "__main__":
    main()
