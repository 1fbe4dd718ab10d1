"""`ArchiveBuilder`: the messages of a session as a node, unchanged in `messages.jsonl`; its abstract and overview."""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...base.text import (
    CountTokens,
    count_tokens,
    cut_tokens,
    date_of,
    digest_of,
    one_line,
    split_sentences,
    strings_of,
)
from ...finding.texts import is_unspaced
from ...memory.keywords import ChineseKeywordExtractor
from ..core.config import (
    ABSTRACT,
    ARCHIVE_BYTES,
    ARCHIVE_MESSAGES,
    CONTENT,
    LEVEL_TOKENS,
    MESSAGES,
    OF_A_PERSON,
    OF_A_PREFERENCE,
    OVERVIEW,
    SEE_MESSAGES,
)
from ..core.errors import StoreError, check_list
from ..core.messages import decode_messages, encode_message, encode_messages, read_messages, said_digest
from ..core.objects import Message, RequestContext, SessionArchive
from ..extraction import describe_tool
from ..fs.context_fs import ContextFS
from ..fs.uri import Uri, check_access, parse_uri, session_uri

_SPEAKERS = 6
_KNOWN_ARCHIVES = 10_000
_SHORT = 100  # tokens that an overview may always have; of a long session it has an eighth


class ArchiveBuilder:
    """Builds archives; writes nothing."""

    def __init__(self, fs: ContextFS) -> None:
        self._fs = fs
        self._ids: dict[str, dict[str, str]] = {}  # of an archive's messages, by its URI

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
        numbered = sorted([(number_of(name), name) for name in found])
        return [name for number, name in numbered if number]

    def known_ids(self, ctx: RequestContext, names: Sequence[str]) -> dict[str, str]:
        """Return the ids of all messages that some archives of a session hold, each with a digest of its text.

        Cost: reads the messages of those that this process has not seen yet: which messages an archive has never
        changes, and its name has a digest of them.
        """
        found: dict[str, str] = {}
        above = session_uri(ctx) if names else ""
        for name in names:
            uri = f"{above}/{name}"
            ids = self._ids.get(uri)
            if ids is None:
                with contextlib.suppress(StoreError):  # what cannot be read is not known: rather twice than never
                    ids = self._read_ids(parse_uri(uri))
            if ids:
                if len(self._ids) >= _KNOWN_ARCHIVES:
                    self._ids.clear()
                self._ids[uri] = ids
                found |= ids
        return found

    def _read_ids(self, uri: Uri) -> dict[str, str]:
        data = self._fs.folders.read(uri.folders, (MESSAGES,)).get(MESSAGES, b"")
        said = decode_messages(data, uri.text, damage=[])
        return {  # a damaged line has an id that no message has, and no digest
            each.id or f"{uri.text}#{place}": each.text if each.forgotten else said_digest(each)
            for place, each in enumerate(said)
        }

    def read(self, ctx: RequestContext, uri: str) -> SessionArchive:
        """Return an archive that is in the store; `StoreCorruptError` says that its messages cannot be read."""
        node = self._fs.read_node(ctx, uri, include_content=False)
        said = decode_messages(self._fs.read_file(ctx, uri, MESSAGES), uri, node.metadata["created_at"])
        stats = node.metadata["metadata"].get("stats")
        session = parse_uri(node.uri).segments[-2]
        return SessionArchive(session, node.uri, node.abstract, said, dict(stats) if isinstance(stats, dict) else {})


def next_number(names: Sequence[str]) -> int:
    """Return the number after the last one of a session's archives, whose names are in order."""
    return number_of(names[-1]) + 1 if names else 1


def number_of(name: str) -> int:
    """Return the number in an archive's name; 0 for a folder that is none."""
    head = name.partition("-")[0]
    return int(head) if head.isascii() and head.isdecimal() and len(head) < 10 else 0


def split_messages(messages: Sequence[Message]) -> list[tuple[list[Message], bytes]]:
    """Return messages in parts that are small enough for one archive each, each with its file."""
    parts: list[tuple[list[Message], list[bytes]]] = []
    size, before = 0, None
    for message in messages:
        line = encode_message(message, before)  # with its images: a file of them must stay readable
        if not parts or len(parts[-1][0]) >= ARCHIVE_MESSAGES or size + len(line) > ARCHIVE_BYTES:
            parts.append(([], []))
            size, line = 0, encode_message(message) if before is not None else line
        parts[-1][0].append(message)
        parts[-1][1].append(line)
        size += len(line)
        before = message.at
    return [(part, b"".join(lines)) for part, lines in parts]


def _speakers(messages: Sequence[Message]) -> list[str]:
    return list(dict.fromkeys([message.name or message.role for message in messages]))[:_SPEAKERS]


def describe_archive(messages: Sequence[Message], count: CountTokens = count_tokens) -> str:
    """Return an archive's abstract: day, speakers, and the most telling words or clauses, each whole."""
    kept = [message for message in messages if not message.forgotten]
    if not kept:
        return "(forgotten)"
    days = sorted({date_of(message.at) for message in kept} - {""})
    when = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    speakers = _speakers(kept)
    words = telling_words([message.text for message in kept if message.role != "tool"])
    while True:
        mark = ", " if " ".join(words).isascii() else "，"
        text = " · ".join(filter(None, [when, ", ".join(speakers), mark.join(words)]))
        if not words or count(text) <= LEVEL_TOKENS["L0"]:
            return cut_tokens(text, LEVEL_TOKENS["L0"], count)
        words.pop()


def render_archive(
    messages: Sequence[Message], abstract: str, encoded: bytes = b"", count: CountTokens = count_tokens
) -> dict[str, bytes]:
    """Return an archive's files; `encoded` are its messages as `encode_messages` has them, if that was done before."""
    kept = [message.text for message in messages if not message.forgotten and message.role != "tool"]
    limit = min(LEVEL_TOKENS["L1"] - 20, max(_SHORT, sum(map(count, kept)) // 8))
    overview = "\n".join([f"- {sentence}" for sentence in telling_sentences(kept, limit, count)])
    return {
        ABSTRACT: abstract.encode(),
        OVERVIEW: overview.encode(),
        CONTENT: SEE_MESSAGES,
        MESSAGES: encoded or encode_messages(messages),
    }


_extract = ChineseKeywordExtractor().extract
_WORDS = 40  # that sentences are chosen by
_TEXTS = 100  # texts that are looked at; of more, evenly spread ones
_SAID_ALWAYS = """
hey hello thanks thank yes yeah good great really like just know think get got one also much make made going want user
assistant tool image sure okay noted welcome 你好 谢谢 好的 觉得 感觉 知道 喜欢 真的 今天 一下 记住 记下 收到 明白
没问题 不客气 可以 有什么可以帮
"""
_SMALL_TALK = frozenset(_SAID_ALWAYS.split())
# Taken out before a text is cut into words: without a dictionary 记住了 would be cut into 记住 and 住了.
_find_talk = re.compile("|".join(sorted(filter(is_unspaced, _SMALL_TALK))))
_find_clauses = re.compile("[^\n，。；！？：、,;!?:…]+").findall
_CLAUSE = 30  # characters: a longer clause is no phrase

_states_fact = re.compile(f"{OF_A_PREFERENCE}|{OF_A_PERSON}", re.IGNORECASE).search


def telling_words(texts: Sequence[str], count: int = 12) -> list[str]:
    """Return the words that most of some texts turn on: said in several of them, and long enough to mean something.

    Of a script without blanks it is the clause that a word is first said in: a word alone may be cut wrongly there.

    >>> telling_words(["I adopted a puppy!", "Is the puppy called Oliver?", "Oliver it is."], 2)
    ['oliver', 'puppy']
    >>> telling_words(["我下周三去杭州出差，帮我订一张高铁票。"])
    ['我下周三去杭州出差', '帮我订一张高铁票']
    """
    words = _rank_words(tuple(_some(texts)))
    return list(dict.fromkeys([_clause_of(word, texts) if is_unspaced(word) else word for word in words]))[:count]


def _clause_of(word: str, texts: Sequence[str]) -> str:
    clauses = (clause for text in texts if word in text for clause in _find_clauses(text))
    clause = one_line(next((clause for clause in clauses if word in _find_talk.sub(" ", clause)), word))
    return clause if len(clause) <= _CLAUSE else word


def _some(texts: Sequence[str]) -> Sequence[str]:
    return texts[:: 1 + len(texts) // _TEXTS]


@functools.lru_cache(maxsize=4)  # an archive's abstract and its overview ask for the same
def _rank_words(texts: tuple[str, ...]) -> tuple[str, ...]:
    said: Counter[str] = Counter()
    for text in texts:
        said_now = _extract(_find_talk.sub(" ", text[:4000]))
        words = [word for word in said_now if word not in _SMALL_TALK and not word.isdecimal()]
        said.update(list(dict.fromkeys(words)))  # each once, and equals in the order of saying in every run
    best = sorted(said, key=lambda word: -said[word] * min(6, 2 * len(word) if not word.isascii() else len(word)))
    return tuple(best[:_WORDS])


def telling_sentences(texts: Sequence[str], limit: int, count: CountTokens = count_tokens) -> list[str]:
    """Return sentences that say most of the telling words, in their order, within `limit` tokens.

    A fact about a person, or what they like, counts double; what says thanks or "noted" alone is left out.

    >>> telling_sentences(["我喜欢龙井,不加糖。", "记住了！", "我订一张周五去上海的火车票。"], 12)
    ['我喜欢龙井,不加糖。']
    """
    words = telling_words(texts, _WORDS)
    scored: list[tuple[float, int, int, str]] = []
    for place, text in enumerate(_some(texts)):
        for sentence in split_sentences(text[:4000]):
            sentence = one_line(sentence)
            folded = _find_talk.sub(" ", sentence.casefold())
            said = [word for word in words if word in folded]
            hits = len(said) - len([word for word in said if "\n".join(said).count(word) > 1])  # but parts of others
            if hits and len(sentence) <= 400:
                hits *= 2 if _states_fact(sentence) else 1
                scored.append((-hits / (4 + count(sentence)) ** 0.5, place, len(scored), sentence))
    picked: list[tuple[int, int, str]] = []
    used, seen = 0, set[str]()
    for _, place, number, sentence in sorted(scored):
        size = count(sentence) + 2
        if used + size <= limit and sentence not in seen:
            seen.add(sentence)
            used += size
            picked.append((place, number, sentence))
    return [sentence for _, _, sentence in sorted(picked)]
