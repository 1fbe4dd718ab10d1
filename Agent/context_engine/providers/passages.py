"""The passages of a node: what is found, and what is shown of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.text import digest_of, read_time
from ..core.config import PLACES, SESSIONS
from ..core.entries import parse_entries
from ..core.messages import decode_message
from ..core.objects import ContextNode, Message
from .word_index import split_passages

__all__ = ["passage_of_archive", "passages_of", "projected_digest", "said_text"]


def said_text(message: Message) -> str:
    """Return a message as it is indexed and shown: with the speaker's name, where it has one."""
    return f"{message.name}: {message.text}" if message.name else message.text


def projected_digest(uri: str, meta: Mapping[str, Any], category: str, digests: Mapping[str, str]) -> str:
    """Return a digest of all of a node that an index holds: of its names, and of its files by their digests."""
    named = [uri, meta["title"], *meta["aliases"], *meta["confirmed"], category]
    return digest_of(json.dumps([named, dict(digests)], sort_keys=True), size=8)


def passage_of_archive(lines: Sequence[bytes], part: int, where: str) -> tuple[str, str, str]:
    """Return one passage of an archive's messages, its message, and that one's role, without reading the others.

    `part` is as `passages_of` counts them; what is not there gives empty texts. An error calls the archive `where`.
    """
    place, of_message = divmod(part, PLACES)
    message = decode_message(lines, of_message + 1, where)
    passages = split_passages(said_text(message)) if message is not None and not message.forgotten else []
    if message is None or place >= len(passages):
        return "", "", ""
    return passages[place], f"m{of_message + 1}", message.role


def passages_of(node: ContextNode, messages: Sequence[Message] = ()) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the passages of a node's content: part, text, and `at` and `speaker` of each."""
    if node.category == SESSIONS:
        yield from _passages_of_messages(messages)
    else:
        for part, (text, at) in enumerate(_passages_of_entries(node)):
            yield part, text, {"at": at, "speaker": "user "}  # a memory is the user's


def _passages_of_messages(messages: Sequence[Message]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for place, message in enumerate(messages):
        if not message.forgotten and message.text.strip():
            for number, passage in enumerate(split_passages(said_text(message))):
                said = {"at": message.at, "speaker": f"{message.role} {message.name}"}
                yield number * PLACES + place, passage, said  # few messages have several: most numbers are small


def _passages_of_entries(node: ContextNode) -> Iterator[tuple[str, float]]:
    prose: list[str] = []
    for entry in parse_entries(node.content):
        if not entry.is_entry:
            prose += [] if entry.line.startswith("# ") else [entry.line]  # the title is in the abstract already
        elif not entry.is_struck and entry.text:
            at = read_time(entry.at) or node.metadata.get("updated_at") or 0.0
            text = entry.text.replace("_", " ", entry.key.count("_"))  # the key lives_in is two words
            for passage in split_passages(text):
                yield passage, at
    for passage in split_passages(text) if (text := "\n".join(prose).strip()) else ():
        yield passage, node.metadata.get("updated_at") or 0.0
