"""Show a memory at work: `python -m keyword_tree.demo [folder]`, or `make demo`.

Asks a memory of five facts, as somebody would have after a day. Then builds one of this machine's Python standard
library (see `demo_outline`), finds in it, asks it questions in plain words that are hard to answer by words alone, lets
it place a new keyword, closes it, opens it again and shows what is on disk. No key, no server, no download: who places
is `LexicalLLMClient`, which is no language model. To each question the first three found are shown with the sentence
that fits; hits and misses are printed as they fall. With `--meaning` a small local model ranks beside the words
(`pip install '.[local]'`; it reads all names and first lines first, which takes minutes). Last, a
conversation is remembered, corrected, recalled and undone.
"""

import argparse
import io
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .addresses import refuse_address
from .demo_outline import Entry, read_outline
from .demo_screen import Screen, display_width, draw_tree, fit, fit_end, wrap_items
from .keyword_tree import KeywordNode, KeywordTree, KeywordTreeError, SearchResult, SearchStatus
from .lexical_client import LexicalLLMClient

__all__ = ["DemoError", "main", "run_demo"]

FACTS = {
    "Anna": "Anna is allergic to peanuts.",
    "Biscuit": "Our dog Biscuit is afraid of fireworks.",
    "Leo": "Leo starts school in September.",
    "小雨": "小雨对花生过敏。",
    "外婆": "外婆住在绵阳，爱吃回锅肉。",
}
"""A small memory: a fact on each of a few keywords."""

ASKED: dict[str, str | None] = {
    "who is allergic to peanuts?": "Anna",
    "what is the dog afraid of?": "Biscuit",
    "when does Leo start school?": "Leo",
    "谁对花生过敏？": "小雨",
    "外婆爱吃什么？": "外婆",
    "what time is it?": None,
}
"""Questions to it, each with the keyword that answers it."""

FINDS = {"by name": "TemporaryDirectory", "by alias": "os.path.join", "ambiguous": "open"}
"""What is looked up without asking anybody."""

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
"""Questions and the one right answer to each, None where the library has none. They were written before the first
answer was seen and stay as they are: a demo whose questions are chosen by their answers shows nothing."""

NEW_NAME = "YAMLDecoder"
NEW_DESCRIPTION = "Simple YAML decoder: turns a YAML document into Python objects."
"""A keyword that the library does not have, to be placed."""

ID_PREFIX = "python:"
"""The demo brings its own ids, `python:json.dumps`: a second run over one folder finds what is there already."""

ROOT = "root"
CREATED_BY = "demo"

BATCH_SIZE = 1_000
"""Records per operation, and so per sync: few operations, and still a progress line that moves."""

TREE_OPENED = ("json", "json.decoder")
"""What the drawing opens, besides the root."""

TREE_SHOWN = 3
"""How many children of an opened node the drawing shows at most."""

CONVERSATION = ("I am allergic to peanuts.", "My dog is called Biscuit.", "我周三晚上去上瑜伽课。")
"""What somebody says."""

RECALLED = ("what is my dog called?", "who is allergic to peanuts?", "周三晚上做什么？")
"""What is asked of it; the first is corrected."""

CORRECTION = "My dog is called Momo."

_Value = TypeVar("_Value")


class DemoError(Exception):
    """The demo cannot run here; the message says why."""


class _Lookup(NamedTuple):
    """What a search gave and took."""

    result: SearchResult
    ranked: Sequence[KeywordNode]
    """The first three."""
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo from the command line.

    Args:
        arguments: Without the program's name; None takes the command line's.

    Returns:
        The exit status: 0 if all was shown, 1 if the folder cannot be used or nobody reads the screen any more.
    """
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.demo", description=summary)
    parser.add_argument("folder", nargs="?", type=Path, help="where to keep the memory (default: a temporary folder)")
    parser.add_argument("--meaning", action="store_true", help="rank by meaning, too, with a small local model")
    chosen = parser.parse_args(arguments)
    folder: Path | None = chosen.folder
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show Chinese shows "?" and the demo goes on
    screen = Screen(sys.stdout)
    try:
        if folder is not None:
            refuse_address(folder, "the demo's place")
            run_demo(folder, screen, by_meaning=chosen.meaning)
        else:
            with tempfile.TemporaryDirectory(prefix="keyword-tree-demo-") as temporary:
                run_demo(Path(temporary), screen, by_meaning=chosen.meaning)
            screen.line("  (a temporary folder, gone now; make demo DEMO_FOLDER=library-memory keeps it)", "dim")
    except (DemoError, KeywordTreeError, ImportError) as error:
        screen.progress("")
        print(f"The demo stopped: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Who read the screen has seen enough (`make demo | head`); the flush at exit must find somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def run_demo(folder: Path, screen: Screen, modules: Collection[str] | None = None, by_meaning: bool = False) -> None:
    """Build or reopen the memory in a folder and show it.

    Args:
        folder: Where the memory is or will be.
        screen: Where to draw.
        modules: Top-level modules to take in; None takes the whole standard library.
        by_meaning: Whether a small local model ranks beside the words.

    Raises:
        ImportError: It is not installed; the message says how to.
        DemoError: The folder holds a memory that the demo did not make.
        KeywordTreeError: The store could not be read or written.
    """
    _show_small_memory(screen)
    with _open(folder, by_meaning) as tree:
        ids = _build(tree, screen, modules)
        _show_tree(tree, screen)
        finds = [_look_up(tree, query) for query in FINDS.values()]
        _show_finds(tree, finds, screen)
        if by_meaning:
            _read_all(tree, screen)
        _show_answers([_look_up(tree, question) for question in QUESTIONS], by_meaning, screen)
        _show_placement(tree, screen)
        _, closing = _timed(tree.Close)
    tree, opening = _timed(lambda: KeywordTree(str(folder), LexicalLLMClient()))
    with tree:
        # By name alone: a question's view also shows what was used last, which is not kept on disk.
        queries = tuple(FINDS.values())
        again, searching = _timed(lambda: [_look_up(tree, query) for query in queries])
        pairs = zip(finds, again, strict=True)
        same = sum(_outcome(before.result) == _outcome(after.result) for before, after in pairs)
        ids += [node.id for node in tree.FindByName(NEW_NAME)]
        back = sum(tree.GetKeyword(keyword_id) is not None for keyword_id in ids)
        screen.title("Close, open, ask again", f"closed in {_ms(closing)}, opened in {_ms(opening)}")
        screen.line(
            f"  {back:,} of {len(ids):,} keywords are there; "
            f"{same} of {len(again)} look-ups as before, in {_ms(searching)}"
        )
    _show_files(folder, screen)
    _show_conversation(screen)


def _open(folder: Path, by_meaning: bool) -> KeywordTree:
    if not by_meaning:
        return KeywordTree(str(folder), LexicalLLMClient())
    from .embeddings.embedder import LocalEmbedder  # optional packages, for this option alone
    from .embeddings.recall import EmbeddingTree

    # Names and first lines: a small model reads them in minutes, all docstrings would take it half an hour.
    return EmbeddingTree(folder, LocalEmbedder(), llm_client=LexicalLLMClient(), infos_embedded=0)


def _read_all(tree: Any, screen: Screen) -> None:
    """Let the model read all that waits, a piece at a time, so that a progress line moves."""
    vectors = tree.recall.vectors
    while vectors.waiting and not vectors.failure:
        screen.progress(f"reading names and first lines … {vectors.waiting:,} to go")
        vectors.catch_up(limit=BATCH_SIZE)
    screen.progress("")


def _show_small_memory(screen: Screen) -> None:
    temporary = tempfile.TemporaryDirectory(prefix="keyword-tree-demo-")
    with temporary as folder, KeywordTree(folder, LexicalLLMClient()) as tree:
        for name, fact in FACTS.items():
            tree.CreateInfo(fact, "a day", [tree.CreateKeyword(name, ROOT).id])
        found = {question: tree.Search(question) for question in ASKED}
    right = sum((result.node.name if result.node else None) == ASKED[question] for question, result in found.items())
    screen.title("A memory of five facts", f"{right} of {len(ASKED)} questions answered, without a language model")
    for question, result in found.items():
        answer = "; ".join(info.content for info in result.infos) or "nothing is known about that"
        screen.line(f"  {fit(question, 30)} → {answer}")


def _build(tree: KeywordTree, screen: Screen, modules: Collection[str] | None) -> list[str]:
    """Create what the memory does not have yet, say what it took, and return the ids of all keywords."""
    screen.progress("reading the library's source files …")
    entries, reading = _timed(lambda: list(read_outline(modules)))
    if tree.GetChildren(ROOT, 0, 1) and not any(tree.GetKeyword(_id(entry)) for entry in entries):
        raise DemoError("the folder holds a memory of something else; name an empty one")
    keywords = [_keyword_spec(entry) for entry in entries if tree.GetKeyword(_id(entry)) is None]
    documented = [entry for entry in entries if entry.docstring]
    infos = [_info_spec(entry) for entry in documented if tree.GetInfo(_id(entry)) is None]

    def write() -> None:
        for start in range(0, len(keywords), BATCH_SIZE):
            screen.progress(f"writing keywords … {start:,} of {len(keywords):,}")
            tree.BatchCreateKeywords(keywords[start : start + BATCH_SIZE])
        for start in range(0, len(infos), BATCH_SIZE):
            screen.progress(f"writing docstrings … {start:,} of {len(infos):,}")
            tree.BatchCreateInfos(infos[start : start + BATCH_SIZE])

    _, writing = _timed(write)
    screen.progress("")
    stored = f"stored in {_ms(writing)}" if keywords or infos else "stored before"
    screen.title(
        "A memory of Python's library",
        f"{len(entries):,} keywords, {len(documented):,} docstrings",
    )
    screen.line(f"  read in {_ms(reading)}, {stored}", "dim")
    return [_id(entry) for entry in entries]


def _id(entry: Entry) -> str:
    return ID_PREFIX + entry.dotted


def _keyword_spec(entry: Entry) -> dict[str, object]:
    return {
        "id": _id(entry),
        "name": entry.name,
        "parent_id": ID_PREFIX + entry.parent if entry.parent else ROOT,
        "aliases": list(entry.aliases),
        "description": entry.summary,
        "metadata": {"kind": entry.kind},
        "created_by": CREATED_BY,
    }


def _info_spec(entry: Entry) -> dict[str, object]:
    return {
        "id": _id(entry),
        "content": entry.docstring,
        "source": entry.source,
        "keyword_ids": [_id(entry)],
        "created_by": CREATED_BY,
    }


def _show_tree(tree: KeywordTree, screen: Screen) -> None:
    def children(node_id: str) -> list[str]:
        return [node.id for node in tree.GetChildren(node_id)]

    def label(node_id: str) -> str:
        node = tree.GetKeyword(node_id)
        assert node is not None, "the drawing asks only for what GetChildren returned"
        return f"Python {platform.python_version()}" if node_id == ROOT else f"{node.name}\t{node.description}"

    opened = {ROOT, *(ID_PREFIX + dotted for dotted in TREE_OPENED)}
    for line in draw_tree(ROOT, children, label, opened.__contains__, TREE_SHOWN):
        branch, _, description = line.partition("\t")
        screen.line(f"  {fit(branch, 30)} {screen.style(fit(description, screen.width - 33).rstrip(), 'dim')}")


def _show_finds(tree: KeywordTree, finds: Sequence[_Lookup], screen: Screen) -> None:
    screen.title("Find by name", "nobody is asked")
    width = screen.width - 43
    for (kind, query), (result, _, seconds) in zip(FINDS.items(), finds, strict=True):
        if result.node is None:
            rows = wrap_items([_path(tree.GetPath(node.id)) for node in result.candidates], width, rows=2)
        else:
            summary = result.infos[0].content.strip().partition("\n")[0] if result.infos else "no info"
            rows = [f"{_path(result.path)}: {summary}"]
        screen.line(f"  {fit(kind, 11)}{screen.style(fit(query, 20), 'cyan')} {fit(rows[0], width)} {_ms(seconds):>8}")
        for row in rows[1:]:
            screen.line(f"{' ' * 34}{row}")


def _show_answers(answers: Sequence[_Lookup], by_meaning: bool, screen: Screen) -> None:
    places = []
    for right, lookup in zip(QUESTIONS.values(), answers, strict=True):
        found = [_dotted(node) for node in lookup.ranked]
        places.append(1 + found.index(right) if right in found else 0)
    wanted = sum(right is not None for right in QUESTIONS.values())
    refused = sum(lookup.result.status is SearchStatus.NOT_FOUND for lookup in _unanswerable(answers))
    how = "by words and meaning" if by_meaning else "by words alone"
    screen.title("Ask in plain words", f"of {wanted}: {places.count(1)} first, {sum(map(bool, places))} among three")
    screen.line(f"  {how}; {refused} of {len(QUESTIONS) - wanted} that nothing answers are refused", "dim")
    for (question, right), lookup, place in zip(QUESTIONS.items(), answers, places, strict=True):
        is_refused = lookup.result.status is SearchStatus.NOT_FOUND
        is_hit = place == 1 or (right is None and is_refused)
        mark = screen.style("✓", "green") if is_hit else str(place) if place else screen.style("✗", "red")
        screen.line(f"  {mark} {fit(question, screen.width - 14)} {_ms(lookup.seconds):>8}")
        if right is None and is_refused:
            screen.line("    nothing", "cyan")
            continue
        names = [_dotted(node) for node in lookup.ranked]
        width = (screen.width - 10) // 3
        screen.line(
            "    " + " · ".join(fit_end(name, width) if display_width(name) > width else name for name in names)
        )
        sentence = lookup.result.excerpt or (lookup.ranked[0].description if lookup.ranked else "")
        screen.line(f"    {fit(sentence, screen.width - 4).rstrip()}", "dim")


def _unanswerable(answers: Sequence[_Lookup]) -> list[_Lookup]:
    return [lookup for right, lookup in zip(QUESTIONS.values(), answers, strict=True) if right is None]


def _dotted(node: KeywordNode) -> str:
    """Return a keyword as a question's expected answer is written."""
    return node.id.removeprefix(ID_PREFIX)


def _show_placement(tree: KeywordTree, screen: Screen) -> None:
    screen.title("Place a new keyword", "the same client chooses its parent")
    earlier = tree.FindByName(NEW_NAME)  # this folder may hold the one of an earlier run

    def place() -> KeywordNode:
        return tree.CreateKeyword(NEW_NAME, description=NEW_DESCRIPTION, created_by=CREATED_BY)

    node, seconds = _timed(lambda: earlier[0] if earlier else place())
    screen.line(f"  {screen.style(NEW_NAME, 'cyan')}: {NEW_DESCRIPTION}")
    took = "placed there by an earlier run" if earlier else f"chosen and stored in {_ms(seconds)}"
    screen.line(f"  → {fit(_path(tree.GetPath(node.id)), screen.width - 6 - len(took))} {took}")


def _show_files(folder: Path, screen: Screen) -> None:
    purposes = {
        "change_log.jsonl": "the truth: a line per operation",
        "nodes.jsonl": "keywords, made from the log",
        "infos.jsonl": "what is known about them, made from the log",
        "links.jsonl": "which info hangs where, made from the log",
        "lock": "held while somebody writes",
    }
    files = sorted(folder.iterdir(), key=lambda path: (path.name not in purposes, path.name))
    total = sum(path.stat().st_size for path in files)
    screen.title("On disk", f"{total / 1e6:.1f} MB in {folder}")
    for path in files:
        screen.line(f"  {fit(path.name, 16)} {path.stat().st_size:>9,}  {purposes.get(path.name, '')}")
    with (folder / "change_log.jsonl").open(encoding="utf-8") as log:
        placed = next((line for line in log if '"op": "create_keyword"' in line), "")
    screen.line(f"  a line of it: {fit(placed.rstrip(), screen.width - 16)}", "dim")


def _show_conversation(screen: Screen) -> None:
    """Remember what somebody says, correct it, recall it, and take the correction back."""
    from .memory.store import MemoryStore  # not at the top: only this half of the screen needs it

    screen.title("A conversation", "remembered, corrected, recalled, undone")
    with tempfile.TemporaryDirectory() as folder, MemoryStore(folder, user="demo", extract=None) as memory:

        def ask(question: str) -> None:
            found = memory.recall(question, 1)
            answer = found[0].info.content if found else "nothing"
            screen.line(f"  ? {fit(question, 34)} {screen.style(fit(answer, screen.width - 40).rstrip(), 'cyan')}")

        for said in CONVERSATION:
            memory.remember(said, keywords=["user"])
            screen.line(f"  + {said}")
        for question in RECALLED:
            ask(question)
        old = memory.recall(RECALLED[0], 1)[0].info
        memory.correct(old.id, CORRECTION)
        screen.line(f"  ± {CORRECTION}")
        ask(RECALLED[0])
        memory.tree.Undo(memory.tree.History(limit=1)[0].operation_id)
        screen.line("  ↶ the correction is undone")
        ask(RECALLED[0])


def _look_up(tree: KeywordTree, query: str) -> _Lookup:
    result, seconds = _timed(lambda: tree.Search(query))
    is_named = result.rounds == 0
    return _Lookup(result, [] if is_named else [node for node, _ in tree.RankCandidates(query, 3)], seconds)


def _outcome(result: SearchResult) -> tuple[str | None, list[str]]:
    return result.node.id if result.node else None, [node.id for node in result.candidates]


def _path(nodes: Sequence[KeywordNode]) -> str:
    return " / ".join(node.name for node in nodes if node.id != ROOT)


def _timed(work: Callable[[], _Value]) -> tuple[_Value, float]:
    started = time.perf_counter()
    value = work()
    return value, time.perf_counter() - started


def _ms(seconds: float) -> str:
    """Return a duration in three digits: 0.02 ms, 4.1 ms, 318 ms, 1.7 s."""
    milliseconds = seconds * 1000
    if milliseconds >= 1000:
        return f"{seconds:.1f} s"
    return f"{milliseconds:.{2 if milliseconds < 1 else 1 if milliseconds < 100 else 0}f} ms"


if __name__ == "__main__":
    sys.exit(main())
