"""A memory on one screen: facts, questions in other words, a correction, undo, and a kill in the middle of writing.

`make demo`, or `python examples/demo.py`. With the extra `[local]` a second part asks a tree of this machine's Python
library by words and meaning. No key and no server. Titles are in the language of the locale, English or Chinese.
"""

import argparse
import ast
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from keyword_tree.base.language import language_of
from keyword_tree.finding.embedder import meaning_of
from keyword_tree.memory import MemoryStore

FACTS = (
    ("Anna is allergic to peanuts.", "Anna", "chat, 3 May"),
    ("Our dog Biscuit fears fireworks.", "Biscuit", "chat, 3 May"),
    ("Leo starts school in September.", "Leo", "a letter"),
    ("小雨对花生过敏。", "小雨", "五月三日聊天"),
    ("外婆住在绵阳，爱吃回锅肉。", "外婆", "电话"),
)
QUESTIONS = {
    "en": ("what scares the dog?", "who cannot eat peanuts?", "谁对花生过敏？", "who won the world cup?"),
    "zh": ("外婆住在哪里？", "谁对花生过敏？", "who cannot eat peanuts?", "世界杯冠军是谁？"),
}
CORRECTED = {
    "en": ("Biscuit", "Biscuit fears fireworks no more.", "chat, 9 May"),
    "zh": ("外婆", "外婆搬到成都了。", "五月九日电话"),
}
"""What the first question asks for."""
LIBRARY_QUESTIONS = (
    "copy a whole directory tree to another place",
    "delete a folder and everything in it",
    "turn an object into JSON text",
    "wrap long text into lines of a given width",
    "怎样运行一个命令并取得它的输出",
)
CHINESE = {
    "A memory of five facts": "五件事的记忆",
    "ranked by words and meaning": "按词和意思查找",
    "ranked by words": "按词查找",
    "nothing is known": "不知道",
    "corrected": "更正",
    "the correction is undone": "撤销更正",
    "killed (kill -9) while it wrote: {} writes had returned, {} are there": (
        "写入途中被杀掉（kill -9）：返回了 {} 次写入，现存 {} 条"
    ),
    "Python's library, asked by words and meaning": "按词和意思查询 Python 标准库",
    "reading the source files of the library …": "正在读标准库的源文件 …",
    "a small model reads {:,} texts …": "小模型正在读 {:,} 段文字……",
    "{:,} keywords, read in {:.0f} s": "{:,} 个关键词，读了 {:.0f} 秒",
    "Python's library, searched by meaning: pip install '.[local]'": "再按意思查 Python 标准库：pip install '.[local]'",
}
BAR = 0.3
"""Least score of an answer, as in the README."""
MODULES = ("json", "shutil", "subprocess", "textwrap", "pathlib", "csv", "statistics", "tempfile", "zipfile", "random")

WRITER = """
import sys
from keyword_tree.memory import MemoryStore
store = MemoryStore(sys.argv[1], user="killed")
for number in range(1_000_000):
    store.remember(f"Fact number {number}.")
    print(number + 1, flush=True)
"""


def say(text: str, *values: object) -> str:
    """Return a text in the language of the locale, with the values put in."""
    return (CHINESE[text] if language_of(os.environ) == "zh" else text).format(*values)


class Screen:
    """Lines with a mark, a text and what belongs to it."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)

    def title(self, text: str, note: str = "") -> None:
        """Begin a section."""
        gap = max(2, self.console.width - cell_len(text) - cell_len(note))
        self.console.print(Text.assemble((text, "bold"), " " * gap, (note, "dim")), overflow="ellipsis")

    def line(self, mark: str, text: str, note: str = "", style: str = "") -> None:
        """Print one line; what is too long is cut."""
        fitted = set_cell_size(text, 24) if note and cell_len(text) < 24 else text
        self.console.print(
            Text.assemble(f"  {mark}  ", (fitted, style), ("  " + note, "dim")), no_wrap=True, overflow="ellipsis"
        )


def show_memory(screen: Screen, folder: Path) -> None:
    """Store five facts, ask in other words, correct one, undo it."""
    with MemoryStore(folder, user="demo") as memory:
        ids = {name: memory.remember(fact, keywords=[name], source=source) for fact, name, source in FACTS}
        ranking = "ranked by words and meaning" if "words and " in repr(memory) else "ranked by words"
        screen.title(say("A memory of five facts"), say(ranking))
        questions = QUESTIONS[language_of(os.environ)]
        for question in questions:
            show_answer(screen, memory, question)
        name, fact, source = CORRECTED[language_of(os.environ)]
        memory.correct(ids[name], fact, source=source)
        screen.line("±", say("corrected"), style="yellow")
        show_answer(screen, memory, questions[0])
        memory.undo(memory.tree.last_operation)
        screen.line("↶", say("the correction is undone"), style="yellow")
        show_answer(screen, memory, questions[0])


def show_answer(screen: Screen, memory: MemoryStore, question: str) -> None:
    """Ask one question, and print the best answer with its source."""
    found = [hit for hit in memory.recall(question, limit=1) if hit.score >= BAR]
    said = f"→ {found[0].info.content}  ({found[0].info.source})" if found else "→ " + say("nothing is known")
    screen.line("?", question, said, "cyan")


def show_kill(screen: Screen, folder: Path) -> None:
    """Kill a process that writes, and count what is there of what it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    words = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()  # it has begun
        time.sleep(0.3)
        writer.send_signal(signal.SIGKILL)
        returned = ([first, *writer.stdout])[-1]
    with MemoryStore(folder, user="killed") as memory:
        there = memory.tree.TreeMetrics()["infos"]
    screen.line("✗", say("killed (kill -9) while it wrote: {} writes had returned, {} are there", int(returned), there))


def show_library(screen: Screen, folder: Path, modules: Collection[str]) -> None:
    """Build a tree of the library's documentation and ask it by words and meaning."""
    from keyword_tree.finding import EmbeddingTree, LocalEmbedder  # optional packages

    begun = time.perf_counter()
    with EmbeddingTree(folder, LocalEmbedder(), patience_s=60.0) as tree:
        with screen.console.status(say("reading the source files of the library …")):
            keywords, infos = read_library(modules)
            tree.BatchCreateKeywords(keywords)
            tree.BatchCreateInfos(infos)
        with screen.console.status(say("a small model reads {:,} texts …", len(keywords) + len(infos))):
            while tree.catch_up(200) and not tree.recall.vectors.failure:
                pass
        note = say("{:,} keywords, read in {:.0f} s", len(tree), time.perf_counter() - begun)
        screen.title(say("Python's library, asked by words and meaning"), note)
        for question in LIBRARY_QUESTIONS:
            found = tree.RankCandidates(question, 1)
            names = " / ".join(node.name for node in tree.GetPath(found[0][0].id)[1:]) if found else ""
            screen.line("?", question, "→ " + (names or say("nothing is known")), "cyan")


def read_library(modules: Collection[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return keywords and infos of the library's modules. Files are parsed and not imported: importing has effects."""
    library = Path(sysconfig.get_path("stdlib"))
    keywords: list[dict[str, Any]] = []
    infos: list[dict[str, Any]] = []
    for module in modules:
        path = library / f"{module}.py" if (library / f"{module}.py").exists() else library / module / "__init__.py"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old escape in a string of the library
            parsed = ast.parse(path.read_bytes())
        keywords.append({"id": module, "name": module, "description": _summary(ast.get_docstring(parsed) or "")})
        for name, docstring in _members(parsed):
            if (id := f"{module}.{name}") not in {each["id"] for each in keywords}:
                keywords.append({"id": id, "name": name, "parent_id": module, "description": _summary(docstring)})
                infos.append({"content": docstring, "source": path.name, "keyword_ids": [id]})
    return keywords, infos


def _summary(docstring: str) -> str:
    return " ".join(docstring.partition("\n\n")[0].split())[:200]


def _members(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield from [(node.name, docstring)] if (docstring := ast.get_docstring(node)) else []


def main(arguments: list[str] | None = None) -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--words", action="store_true", help="leave out the part that asks a model")
    options = parser.parse_args(arguments)
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="keyword-tree-demo-") as folder:
        show_memory(screen, Path(folder, "memories"))
        show_kill(screen, Path(folder, "memories"))
        if options.words:
            return
        if meaning_of(True) is not None:
            show_library(screen, Path(folder, "library"), MODULES)
        else:
            screen.line("·", say("Python's library, searched by meaning: pip install '.[local]'"), style="dim")


if __name__ == "__main__":
    main()
