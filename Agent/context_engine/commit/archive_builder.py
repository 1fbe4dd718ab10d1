"""`ArchiveBuilder`: the messages of a session as a node, unchanged in `messages.jsonl`; its abstract and overview."""

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...base.text import (
    CountTokens,
    count_tokens,
    cut_tokens,
    date_of,
    digest_of,
    mapping_of,
    one_line,
    split_sentences,
    strings_of,
)
from ..core.config import ABSTRACT, CONTENT, LEVEL_TOKENS, MESSAGES, OVERVIEW, SEE_MESSAGES
from ..core.errors import ContextEngineError, NodeNotFoundError, check_list
from ..core.messages import decode_messages, encode_message, encode_messages, read_messages, said_digest
from ..core.objects import Message, RequestContext, SessionArchive
from ..extraction import describe_tool
from ..fs.context_fs import ContextFS
from ..fs.uri import check_access, parse_uri, session_uri

ARCHIVE_BYTES, ARCHIVE_MESSAGES = 1024 * 1024, 1_000
"""A longer session goes into several archives, so that reading one message of it stays cheap."""

_SPEAKERS = 6
_KNOWN_ARCHIVES = 10_000
_LINE = 40  # tokens of an abstract that are sentences: it stands before each session's first hit
_SHORT = 100  # tokens that an overview may always have; of a long session it has an eighth
_TEXTS = 100  # messages whose sentences are looked at


class ArchiveBuilder:
    """Builds archives; writes nothing."""

    def __init__(self, fs: ContextFS) -> None:
        self._fs = fs
        self._ids_of = lru_cache(_KNOWN_ARCHIVES)(self._read_ids)

    def build_archive(
        self,
        ctx: RequestContext,
        messages: Sequence[Any],
        used_contexts: Sequence[str] | None = None,
        used_tools: Sequence[Any] | None = None,
        *,
        number: int = 0,
    ) -> SessionArchive:
        """Return the archive that these messages make, of this `number` in its session; 0 is the next one.

        What the arguments are is said at `ContextEngineService.commit_session`.
        """
        is_read = all(isinstance(each, Message) for each in messages)
        said: list[Message] = list(messages) if is_read else read_messages(messages, self._fs.clock())
        number = number or next_number(self.names(ctx))
        spoken = "\0".join([part for message in said for part in (message.id, message.role, message.text)])
        digest = digest_of(spoken, size=4)
        stats: dict[str, Any] = {
            "messages": len(said),
            "speakers": _speakers(said),
            "at": max([message.at for message in said], default=self._fs.clock()),
            "used_contexts": [
                check_access(ctx, uri).text for uri in strings_of(check_list("used_contexts", used_contexts))
            ],
            "used_tools": [
                made for tool in check_list("used_tools", used_tools) if (made := describe_tool(tool))["name"]
            ],
        }
        uri = f"{session_uri(ctx)}/{number:04d}-{digest}"
        return SessionArchive(ctx.session_id, uri, describe_archive(said, self._fs.count_tokens), said, stats)

    def names(self, ctx: RequestContext) -> list[str]:
        """Return the names of a session's archives, in their order, those included that were deleted or have moved."""
        found = self._fs.folders.child_names(parse_uri(session_uri(ctx)).folders)
        return sorted(filter(number_of, found), key=number_of)

    def known_ids(self, ctx: RequestContext, names: Sequence[str]) -> dict[str, str]:
        """Return the ids of all messages that some archives of a session hold, each with a digest of its text.

        Cost: reads the messages of those that this process has not seen yet: which messages an archive has never
        changes, and its name has a digest of them.
        """
        found, above = dict[str, str](), session_uri(ctx)
        for name in names:
            with contextlib.suppress(ContextEngineError):  # what cannot be read is not known: rather twice than never
                found |= self._ids_of(f"{above}/{name}")
        return found

    def _read_ids(self, uri: str) -> dict[str, str]:
        data = self._fs.folders.read(parse_uri(uri).folders, (MESSAGES,)).get(MESSAGES, b"")
        if not data:
            raise NodeNotFoundError(uri)
        return {  # a damaged line has an id that no message has, and no digest
            each.id or f"{uri}#{place}": each.text if each.forgotten else said_digest(each)
            for place, each in enumerate(decode_messages(data, uri, damage=[]))
        }

    def read(self, ctx: RequestContext, uri: str) -> SessionArchive:
        """Return an archive that is in the store; `StoreCorruptError` says that its messages cannot be read."""
        node = self._fs.read_node(ctx, uri, include_content=False)
        said = decode_messages(self._fs.read_file(ctx, uri, MESSAGES), uri, node.metadata["created_at"])
        session, stats = parse_uri(node.uri).segments[-2], mapping_of(node.metadata["metadata"].get("stats"))
        return SessionArchive(session, node.uri, node.abstract, said, stats)


def next_number(names: Sequence[str]) -> int:
    """Return the number after the last one of a session's archives, whose names are in order."""
    return number_of(names[-1]) + 1 if names else 1


def number_of(name: str) -> int:
    """Return the number in an archive's name; 0 for a folder that is none."""
    head = name.partition("-")[0]
    return int(head) if head.isascii() and head.isdecimal() and len(head) < 10 else 0


def split_messages(messages: Sequence[Message]) -> list[tuple[list[Message], bytes]]:
    """Return messages in parts that are small enough for one archive each, each with its file."""
    parts: list[tuple[list[Message], bytearray]] = []
    part, encoded = list[Message](), bytearray()
    for message in messages:
        line = encode_message(message, part[-1].at if part else None)  # with its images: the file must stay readable
        if not part or len(part) >= ARCHIVE_MESSAGES or len(encoded) + len(line) > ARCHIVE_BYTES:
            part, encoded, line = [], bytearray(), encode_message(message)
            parts.append((part, encoded))
        part.append(message)
        encoded += line
    return [(part, bytes(encoded)) for part, encoded in parts]


def _speakers(messages: Sequence[Message]) -> list[str]:
    return list(dict.fromkeys([message.name or message.role for message in messages]))[:_SPEAKERS]


def describe_archive(messages: Sequence[Message], count: CountTokens = count_tokens) -> str:
    """Return an archive's abstract: day, speakers, and the first sentences, each whole."""
    kept = [message for message in messages if not message.forgotten]
    if not kept:
        return "(forgotten)"
    days = sorted({date_of(message.at) for message in kept} - {""})
    when = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    said = " ".join(_sentences(kept, _LINE, count))
    return cut_tokens(" · ".join(filter(None, [when, ", ".join(_speakers(kept)), said])), LEVEL_TOKENS["L0"], count)


def _sentences(messages: Sequence[Message], limit: int, count: CountTokens) -> list[str]:
    """Return sentences of the user, if there is one, in their order, as far as they fit into `limit` tokens."""
    said = [message for message in messages if message.role != "tool" and not message.forgotten]
    said = [message for message in said if message.role == "user"] or said
    sentences = [sentence for message in said[:_TEXTS] for sentence in split_sentences(message.text[:4000])]
    found, used = list[str](), 0
    for sentence in dict.fromkeys(map(one_line, sentences)):
        if used + (size := count(sentence) + 2) <= limit:
            found.append(sentence)
            used += size
    return found


def render_archive(
    messages: Sequence[Message], abstract: str, encoded: bytes = b"", count: CountTokens = count_tokens
) -> dict[str, bytes]:
    """Return an archive's files; `encoded` are its messages as `encode_messages` has them, if that was done before."""
    limit = min(LEVEL_TOKENS["L1"] - 20, max(_SHORT, sum(count(message.text) for message in messages) // 8))
    overview = "\n".join([f"- {sentence}" for sentence in _sentences(messages, limit, count)])
    return {
        ABSTRACT: abstract.encode(),
        OVERVIEW: overview.encode(),
        CONTENT: SEE_MESSAGES,
        MESSAGES: encoded or encode_messages(messages),
    }
