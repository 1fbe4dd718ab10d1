"""The passages of a node: what is found, and what is shown of it."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.config import PASSAGE_CHARACTERS, SESSIONS
from ..core.entries import parse_entries
from ..core.objects import ContextNode, Message
from ..core.text import read_time
from .word_index import split_passages

__all__ = ["passages_of", "said_text"]


def said_text(message: Message) -> str:
    """Return a message as it is indexed and shown: with the speaker's name, where it has one."""
    return f"{message.name}: {message.text}" if message.name else message.text


def passages_of(node: ContextNode, messages: Sequence[Message]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the passages of a node's content, each with `said` (its message or entry) and `at`."""
    if node.category == SESSIONS:
        for number, message in enumerate(messages, 1):
            if not message.forgotten and message.text.strip():
                for passage in split_passages(said_text(message), PASSAGE_CHARACTERS):
                    yield passage, {"said": f"m{number}", "at": message.at}
        return
    prose: list[str] = []
    for entry in parse_entries(node.content):
        if not entry.is_entry:
            prose += [] if entry.line.startswith("# ") else [entry.line]  # the title is in the abstract already
        elif not entry.is_struck and entry.text:
            at = read_time(entry.at) or node.metadata.get("updated_at") or 0.0
            text = (
                entry.text.replace("_", " ", entry.key.count("_")) if entry.key else entry.text
            )  # lives_in is two words
            for passage in split_passages(text, PASSAGE_CHARACTERS):
                yield passage, {"said": "", "at": at}
    text = "\n".join(prose).strip()
    if text:
        for passage in split_passages(text, PASSAGE_CHARACTERS):
            yield passage, {"said": "", "at": node.metadata.get("updated_at") or 0.0}
