"""Show a hub at work: `python -m keyword_tree.knowhub.demo [folder]`, or `make knowhub`.

Makes knowledge of this machine's Python library (each function with its docstring), then saves, searches, judges, lets
a scripted model rewrite an entry, shows how the order changes, and takes it all back. No key, no server, no network.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ..demo_outline import read_outline
from ..demo_screen import Screen, fit
from ..keyword_tree import StubLLMClient
from .hub import LOCAL, KnowHub
from .schemas import Json

__all__ = ["main", "run_demo"]

MODULES = ("csv", "glob", "json", "pathlib", "shutil", "sqlite3", "statistics", "subprocess", "tempfile", "zipfile")
QUERY = "copy a whole directory tree to another place"
LESSON = {
    "task": "复制整个目录树,并跳过缓存 (copy a directory tree without caches)",
    "content": 'Use shutil.copytree(src, dst, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True).',
    "types": ["tool", "usecase"],
    "tags": {"domain": "files"},
    "score": 3,
}
FEEDBACK = "symlinks=True keeps links as links"
EVOLVED = f"{LESSON['content']} Add symlinks=True to keep links as links."

_T = TypeVar("_T")


def lines() -> Iterator[Json]:
    """Yield the library's functions as an import has them: what one does is the task, how to call it the content."""
    for number, entry in enumerate(read_outline(MODULES)):
        task = entry.docstring.split("\n\n")[0].replace("\n", " ").strip()
        if entry.kind == "function" and len(task) > 20:
            yield {
                "id": f"knowledge-20260101-{number:012x}",
                "task": task[:2000],
                "content": f"{entry.dotted}\n\n{entry.docstring}"[:20_000],
                "types": ["tool"],
                "tags": {"module": entry.dotted.split(".")[0]},
                "source": {"name": "Python's library", "category": "book"},
            }


def run_demo(screen: Screen, folder: str) -> None:
    """Build a hub in a folder and show on one screen what it does, and how long each step takes."""

    def timed(what: str, call: Callable[[], _T]) -> _T:
        began = time.perf_counter()
        result = call()
        screen.line(f"  {what:<58} {(time.perf_counter() - began) * 1000:>9.1f} ms")
        return result

    def show(answer: Json) -> None:
        for result in itertools.islice(answer["results"], 3):
            screen.line(f"    {result['quality_score']:>4.0f}  {fit(result['task'].replace(chr(10), ' '), 80)}", "cyan")

    model = StubLLMClient([{"content": EVOLVED}])
    with KnowHub(folder, models={"scripted": model}) as hub:
        screen.title("A hub of what Python's library can do", "no model, no server, no network")
        report = timed("import what is known", lambda: hub.take_in(LOCAL, lines()))
        screen.line(f"    {report['written']} entries")
        screen.title(f"Search: {QUERY!r}")
        query = {"q": QUERY, "route": "recall", "top_k": 3}
        show(timed("search, by words", lambda: hub.search(LOCAL, query)))
        screen.title("Somebody learns something, and saves it")
        made = timed("save", lambda: hub.save(LOCAL, LESSON))
        id = str(made["entry"]["id"])
        show(timed("search again", lambda: hub.search(LOCAL, query)))
        screen.title("It works, three times")
        case = {"task": "nightly backup", "outcome": "成功"}
        for _ in range(3):
            judged = timed("feedback", lambda: hub.update(LOCAL, id, {"add_helpful_case": case}))
        show(timed("search: what proved useful comes first", lambda: hub.search(LOCAL, query)))
        screen.title(f"A scripted model takes feedback in: {FEEDBACK!r}")
        evolved = timed("evolve", lambda: hub.update(LOCAL, id, {"evolve_feedback": FEEDBACK}))
        screen.line(f"    {evolved['evolution']['state']}: {fit(hub.get(LOCAL, id)['content'], 90)}", "green")
        screen.title("And all of it can be taken back")
        timed("undo the rewriting", lambda: hub.undo(LOCAL, evolved["evolution"]["operation_id"]))
        timed("undo the last feedback", lambda: hub.undo(LOCAL, judged["operation_id"]))
        entry = hub.get(LOCAL, id)
        screen.line(f"    helpful {entry['eval']['helpful']}: {fit(entry['content'], 90)}", "green")
        screen.line()
        screen.line(f"All of it is text in {folder}: tree/change_log.jsonl is the log.", "dim")
    began = time.perf_counter()
    with KnowHub(folder) as hub:
        opening_ms = (time.perf_counter() - began) * 1000
        counts = hub.catalog.counts()
    said = f"{counts['knowledge']} entries, {counts['feedback']} judgements"
    screen.line(f"Closed and opened again in {opening_ms:.0f} ms: {said}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo in a folder, or in one that is removed afterwards."""
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.demo", description=summary)
    parser.add_argument("folder", nargs="?", help="where the hub is built, and stays")
    folder = parser.parse_args(arguments).folder
    screen = Screen(sys.stdout, width=100)
    if folder is not None:
        if os.path.exists(folder) and os.listdir(folder):
            parser.error(f"{folder!r} is not empty")
        run_demo(screen, folder)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        run_demo(screen, temporary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
