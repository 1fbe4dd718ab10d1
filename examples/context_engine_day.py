"""A day of a context engine: three sessions are committed, questions are asked, and the memory is looked at as files.

Runs as it is: `python examples/context_engine_day.py` (`make context`). It needs no model and no key: what was said
is found word for word, each block with its date, of what fits equally the newest first, and the profile is what the
program remembers. Its folder is gone afterwards, unless one is named. Titles are in the language of the locale, English
or Chinese.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from keyword_tree.base.language import language_of
from keyword_tree.base.text import count_tokens
from keyword_tree.context_engine import ContextEngineService, RequestContext

T = TypeVar("T")

SESSIONS: dict[str, list[dict[str, Any]]] = {
    "monday": [
        {"role": "user", "at": "2026-11-16T09:00:00Z", "content": "My name is Ada. I live in Paris, for now."},
        {"role": "assistant", "at": "2026-11-16T09:00:09Z", "content": "Nice to meet you, Ada!"},
        {"role": "user", "at": "2026-11-16T09:01:00Z", "content": "我喜欢龙井，不加糖。"},
        {"role": "assistant", "at": "2026-11-16T09:01:05Z", "content": "记住了：龙井，不加糖。"},
    ],
    "wednesday": [
        {"role": "user", "at": "2026-11-18T08:00:00Z", "content": "Yesterday we adopted a puppy from the shelter!"},
        {"role": "assistant", "at": "2026-11-18T08:00:07Z", "content": "How lovely! What is it called?"},
        {"role": "user", "at": "2026-11-18T08:00:20Z", "content": "Oliver. He sleeps on the blue sofa."},
        {"role": "user", "at": "2026-11-18T08:02:00Z", "content": "Please always answer in short sentences."},
    ],
    "friday": [
        {"role": "user", "at": "2026-11-20T18:00:00Z", "content": "I moved to Rome. 门锁的密码是 zq7-kiwi-42。"},
        {"role": "assistant", "at": "2026-11-20T18:00:06Z", "content": "Welcome to Italy. 我不会说出去。"},
        {"role": "user", "at": "2026-11-20T18:01:00Z", "content": "I am allergic to walnuts."},
    ],
}

CHINESE = {
    "{}: {}, {} memories, {:.0f} ms": "{}：{}，{} 条记忆，{:.0f} 毫秒",
    "? {}  ({:.1f} ms, {} tokens)": "？{}  （{:.1f} 毫秒，{} 个词元）",
    "the memory is a folder:": "记忆是一个文件夹：",
    "edited by hand, and found: {}": "手工改过，也找得到：{}",
    "monday, committed again: {}": "monday 再提交一次：{}",
    "forgot {} messages in {:.0f} ms; files with the secret: {} before, {} after":
        "忘掉 {} 条消息，{:.0f} 毫秒；含有密码的文件：之前 {} 个，之后 {} 个",
    "all agrees: {}": "全部一致：{}",
}  # fmt: skip


def say(text: str, *values: object) -> str:
    """Return a text in the language of the locale, with the values put in."""
    return (CHINESE[text] if language_of(os.environ) == "zh" else text).format(*values)


QUESTIONS = ["龙井要加糖吗？", "What is the puppy called?", "Where do I live now?", "Can she eat walnut cake?"]


def timed(what: Callable[[], T]) -> tuple[T, float]:
    """Return what a call returns, and how many milliseconds it took."""
    start = time.perf_counter()
    made = what()
    return made, (time.perf_counter() - start) * 1_000


def show_tree(folder: Path, indent: str = "  ") -> None:
    """Print the folders of a store, a node on a line."""
    for path in sorted(each for each in folder.iterdir() if each.is_dir() and each.name != ".ctx"):
        abstract = path / ".abstract.md"
        said = abstract.read_text(encoding="utf-8") if abstract.exists() else ""
        print(f"{indent}{path.name}/  {said[:70]}".rstrip())
        show_tree(path, indent + "  ")


def find_bytes(folder: Path, secret: bytes) -> list[str]:
    """Return the files that hold some bytes, as `grep -r` would."""
    files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return [path.name for path in files if secret in path.read_bytes()]


def main(folder: str) -> None:
    """Commit, ask, look, edit, commit again, forget."""
    root = Path(folder)
    with ContextEngineService(root) as engine:
        for name, messages in SESSIONS.items():
            ctx = RequestContext("acme", "ada", "helper", name)
            result, took = timed(lambda ctx=ctx, said=messages: engine.commit_session(ctx, said))  # type: ignore[misc]
            print(say("{}: {}, {} memories, {:.0f} ms", name, result.status, len(result.write_results), took))

        # No model reads the sessions: what is derived is what the caller says. The later value supersedes the other.
        for text, said in (("name: Ada", "16"), ("lives_in: Paris", "16"), ("lives_in: Rome", "20")):
            engine.remember(ctx, text, "profile", at=datetime(2026, 11, int(said), tzinfo=UTC).timestamp())

        for question in QUESTIONS:
            found, took = timed(lambda question=question: engine.search_memory(ctx, question, top_k=3))  # type: ignore[misc]
            tokens = sum(count_tokens(block.content_excerpt or block.abstract) for block in found.blocks)
            print(say("? {}  ({:.1f} ms, {} tokens)", question, took, tokens))
            for block in found.blocks:
                print(f"    {block.content_excerpt}  [{block.match_reason}]")

        print(say("the memory is a folder:"))
        show_tree(root / "acme")
        profile = root / "acme/users/ada/memories/profile/content.md"
        print(f"$ cat {profile.relative_to(root)}\n{profile.read_text(encoding='utf-8').rstrip()}")

        with profile.open("a", encoding="utf-8") as file:
            file.write("- plays the cello\n")
        engine.adopt(ctx, "ctx://acme/users/ada/memories/profile")
        found = engine.search_memory(ctx, "cello", top_k=1)
        print(say("edited by hand, and found: {}", found.blocks[0].content_excerpt))

        again = engine.commit_session(RequestContext("acme", "ada", "helper", "monday"), SESSIONS["monday"])
        print(say("monday, committed again: {}", again.status))

        secret = b"zq7-kiwi-42"
        archive = engine.search_memory(ctx, "门锁的密码", top_k=1).blocks[0].uri
        before = find_bytes(root, secret)
        forgotten, took = timed(lambda: engine.forget(ctx, archive))
        after = find_bytes(root, secret)
        text = "forgot {} messages in {:.0f} ms; files with the secret: {} before, {} after"
        print(say(text, len(forgotten.messages), took, len(before), len(after)))
        print(say("all agrees: {}", engine.verify() == []))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as made:
            main(made)
