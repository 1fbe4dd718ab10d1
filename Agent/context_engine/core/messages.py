r"""Messages in every shape of the field, as one, and as `messages.jsonl` keeps them.

>>> read_message({"role": "assistant", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}]}, 0, 0.0).text
'Look:\n[image]'
>>> called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]}
>>> read_message(called, 0, 0.0).text
'[find {}]'

What was said stands in one of the fields `_SAID`, as a text or as parts, in the message or in what wraps it: so it is
with OpenAI (chat and responses), Anthropic, Gemini, Bedrock, Cohere, the Vercel AI SDK, exports of ChatGPT and Claude,
ShareGPT, LangChain (objects, JSON, dumps), LlamaIndex, and objects with `model_dump()`. Each part is read: as what was
said, as a tool's call or result, as the place of an image, and as JSON where it has another shape; reasoning is no
saying. A message that says nothing (an empty `content`) is left out. One without such a field, or in which something
else stands, is refused by its number.

A line of the file is the message as it came, with an `_at` where it had no time of its own, and that is another one
than the line's before, and an `_id` where its id does not follow from what it says. Where it has such names itself, and
in older files, it is wrapped:

    {"_at": "2026-11-22T08:00:00Z", "role": "user", "content": "…"}
    {"id": "…", "at": "…", "message": {…as it came…}}
    {"id": "…", "at": "…", "forgotten": "digest of what it was"}
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.checks import shorten
from ...base.secrets_in_text import find_cookies, find_credentials
from ...base.secrets_in_text import mask as _mask_shapes
from ...base.text import clean, digest_of, mapping_of, one_line, plain_of, read_time, time_of, to_json
from .errors import InvalidInputError, StoreCorruptError
from .objects import Message

MESSAGE_BYTES, RAW_BYTES = 16 * 1024 * 1024, 48 * 1024 * 1024
"""A message's text, and all of the message as JSON, with its images."""

_WRAPPED = ({"id", "at", "message"}, {"id", "at", "forgotten"})
_TIMES = ("at", "timestamp", "created_at", "time", "date", "create_time", "createdAt", "ts", "sent_at")
_SAID = ("content", "parts", "text", "value", "message", "blocks", "items", "refusal", "audio", "transcript",
         "extracted_content")  # fmt: skip
_WRAPS = ("message", "data", "kwargs")
_CHATS = ("mapping", "chat_messages", "conversations", "messages")  # of ChatGPT, Claude, ShareGPT, others
_ROLES = {"user": "user human", "assistant": "assistant ai model gpt chatbot bot chatgpt claude functioncall toolcall",
          "tool": "tool function observation ipython functioncalloutput functionresponse toolresult",
          "system": "system developer"}  # fmt: skip
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names.split()}
_SPEAKERS = ("name", "speaker", "author", "from", "sender", "source", "user")
_SILENT = ("thinking", "redactedthinking", "reasoning", "reasoningcontent", "thoughts", "reasoningrecap", "stepstart")
_GIVEN, _GAVE = ("arguments", "args", "input", "parameters"), ("content", "output", "outputs", "result", "response")
_PLAIN = frozenset(("role", "content", "id", "name", "speaker", *_TIMES))
_says_nothing = re.compile(
    "(?i)(?:id|type|role|model|status|state|time|kwargs|metadata|usage|index|recipient|channel|children|parent)$"
    "|reason|think|thought"
).search
_SHOWN = 4_000  # characters of a part of an unknown shape
_is_media = re.compile("(?i)image|audio|video|file|document|media|inlinedata|blob|pointer|sourceurl").search


def read_messages(messages: object, now: float) -> list[Message]:
    """Return messages as they were given, each with an id that it will have again.

    `now` is for those that do not say when. What tools were given, and gave, is kept without secrets. Those that say
    nothing are left out; the error says which one is no message.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidInputError(f"messages must be a list, not {shorten(messages)}")
    found: list[Message] = []
    occurrences: dict[str, int] = {}
    taken: dict[str, Message] = {}
    for place, raw in enumerate(messages):
        message = read_message(raw, place, now)
        if not message.text.strip():
            continue
        if not message.id:
            said = _said(message)
            occurrences[said] = occurrences.get(said, -1) + 1
            message = replace(message, id=_id_of(said, occurrences[said]))
        elif message.id in taken:  # the same id for something else: both were said
            if said_digest(taken[message.id]) == said_digest(message):
                continue
            message = replace(message, id=f"{message.id}~{said_digest(message)}")
        taken[message.id] = message
        found.append(message)
    return found


def split_export(exported: object) -> list[tuple[str, Any]]:
    """Return the conversations of an export, each with its id; messages are one.

    One without an id is named by its number and its first message, since other files have a first one, too.

    >>> split_export([{"uuid": "c1", "chat_messages": [{"sender": "human", "text": "Hi"}]}])
    [('c1', [{'sender': 'human', 'text': 'Hi'}])]
    >>> [split_export({"conversations": [{"from": "human", "value": each}]})[0][0] for each in ("Hi", "Bye")]
    ['1-6ca4616f50d52f16', '1-06914e273276d8c0']
    >>> split_export([{"role": "user", "content": "Hi"}])
    [('', [{'role': 'user', 'content': 'Hi'}])]
    """
    chats = exported if isinstance(exported, list) else [exported]
    found = []
    for number, chat in enumerate(chats, 1):
        said = next((chat[name] for name in _CHATS if name in chat), None) if isinstance(chat, dict) else None
        if said is None:
            return [("", chats)]
        said = [*said.values()] if isinstance(said, dict) else said
        first = _id_of(str(said[:1]), 0) if isinstance(said, list) else ""
        found.append((_own_id(chat) or f"{number}-{first}", said))
    return found or [("", chats)]


def tell_repeats(messages: Sequence[Message], known: Sequence[str], is_delta: bool = False) -> list[Message]:
    """Return a batch as it goes on from what a session's archives hold: what is said again there has another id.

    It matters for messages without an id and a time of their own, which are known by how often they were said:

        `is_delta`                                  all of it is said now
        the batch begins as the session began       it is the whole transcript again: it is counted from there
        it begins with what was said last           that is known, and what follows is said now
        so, after one or two that differ            a summary stands for what was before: it and what follows are new
        it stands in the session, in this order     it is a part of the transcript again; so where all of it is known
        none of these                               all of it is said now, even a "yes" that was said before; only what
                                                    the session began with, up to what differs, is known

    System messages, which a program puts before each batch, change nothing about that, and are known once said. `known`
    are the ids of the session's messages, in their order, "" for a damaged line.
    """
    if not known:
        return list(messages)
    lead = next((place for place, message in enumerate(messages) if message.role != "system"), len(messages))
    taken = set(known)
    said = {message.id: _said(message) for message in messages if not _own_id(message.raw)}
    counts: dict[str, int] = {}
    names: dict[str, str] = {}  # what was said, by its id in the archives
    for each in set(said.values()):
        while (id := _id_of(each, counts.get(each, 0))) in taken:
            names[id] = each
            counts[each] = counts.get(each, 0) + 1
    before = [names.get(id, id) for id in known]
    batch = [said.get(message.id, message.id) for message in messages[lead:]]
    fresh = (place for place, message in enumerate(messages[lead:]) if message.id not in taken)
    repeated, held = 0, next(fresh, len(batch))
    if not is_delta:
        starts = (place for place, each in enumerate(before) if each == batch[0]) if batch else ()
        is_part = any(before[place : place + len(batch)] == batch for place in starts)
        if is_part or any(_begins_as(batch, before[skipped:]) for skipped in range(lead + 2)):
            return list(messages)
        is_again = held == len(batch) or batch[:1] == before[:1]
        repeated = lead + (_window(before, batch) or _overlap(before, batch) or (held if is_again else 0))
    found = list(messages[:repeated])
    for message in messages[repeated:]:
        name = said.get(message.id)
        if name is not None and _time_in(message.raw) is None and (is_delta or message.role != "system"):
            message = replace(message, id=_id_of(name, counts.get(name, 0)))
            counts[name] = counts.get(name, 0) + 1
        found.append(message)
    return found


def _begins_as(batch: Sequence[str], before: Sequence[str]) -> bool:
    """Whether the first two messages are those of the session, or, where the first differs, the next two.

    A damaged line of the archives ("") may have been any message.
    """
    whole = [place for place in range(min(len(before), 1_000)) if before[place]][:3]
    fits = [place < len(batch) and batch[place] == before[place] for place in whole]
    return bool(fits) and (all(fits[:2]) or (len(fits) > 2 and all(fits[1:])))


def _overlap(before: Sequence[str], batch: Sequence[str]) -> int:
    """Return how many messages of a batch's beginning are the last ones before it."""
    for place in range(max(0, len(before) - len(batch)), len(before)):
        if before[place] == batch[0] and before[place:] == batch[: len(before) - place]:
            return len(before) - place
    return 0


def _window(before: Sequence[str], batch: Sequence[str]) -> int:
    """Return where the last stored message is in a batch that a program has shortened; 0 where it did not.

    Up to two messages, a summary and its answer, may stand in front of it in the batch, and, from earlier summaries,
    between any two of it in the archives. A loss is worse than a repetition: the window has three messages or more, one
    of which was said only once.
    """
    once = {name for name, times in Counter(before).items() if times == 1}.intersection(batch)
    for last in range(len(batch) - 1, 1, -1) if once else ():
        here, there = last, len(before) - 1
        reach = 1  # the last one of the archives, then, in front of each, up to two others
        while here >= 0 and (at := next((at for at in range(there, max(-1, there - reach), -1)
                                         if before[at] == batch[here]), None)) is not None:  # fmt: skip
            here, there, reach = here - 1, at - 1, 3
        if here < 2 < last - here and once.intersection(batch[here + 1 : last + 1]):
            return last + 1
    return 0


def _own_id(raw: Mapping[str, Any]) -> str:
    """Return the id that a message brought along, "" for none."""
    for name in ("id", "message_id", "uuid"):
        if isinstance(named := raw.get(name), (str, int)) and not isinstance(named, bool):
            return str(named)
    return ""


def _said(message: Message) -> str:
    """Return the key of a message without an id, besides how often it was said."""
    said_at = str(message.at) if _time_in(message.raw) is not None else ""
    return digest_of(message.role, message.name, message.text, said_at, *_unseen(message))


def _id_of(said: str, occurrence: int) -> str:
    return digest_of(said, str(occurrence), size=8)


def said_digest(message: Message, size: int = 4) -> str:
    """Return a digest of a message's text and attachments."""
    return digest_of(message.role, message.text, *_unseen(message), size=size)


def forgotten_digest(message: Message) -> str:
    """Return the rest of a forgotten message: by its id and this it is recognised when it comes again."""
    return said_digest(message, 8)


def _unseen(message: Message) -> list[str]:
    """Return a message's attachments, which its text does not show: two pictures are two messages."""
    content = message.raw.get("content", message.raw.get("parts"))
    parts = content if isinstance(content, list) else [content]
    return [] if isinstance(content, str) else [
        to_json(part)
        for part in parts
        if isinstance(part, dict) and not isinstance(part.get("text"), str) and "tool" not in _squashed(_kind_of(part))
    ]


def read_message(raw: object, place: int, now: float) -> Message:
    """Return one message of at most 16 MiB of text, and 48 MiB in all; its id is "" where it brings none."""
    raw = {"content": raw} if isinstance(raw, str) else raw
    with contextlib.suppress(TypeError):
        raw = raw if isinstance(raw, Mapping) else plain_of(raw)
    if not isinstance(raw, Mapping):
        raise InvalidInputError(f"message {place} must be an object, not {shorten(raw)}")
    try:
        written = clean(json.dumps(dict(raw), ensure_ascii=False, allow_nan=False, default=_written))
        kept = json.loads(written)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"message {place} is no JSON: {error}") from error
    if len(written) > RAW_BYTES:
        raise InvalidInputError(f"message {place} is larger than {RAW_BYTES} bytes, with all that it carries")
    is_plain = isinstance(kept.get("content"), str) and not kept.keys() - _PLAIN and _role_of(kept) != "tool"
    made = _read_json(kept if is_plain else _masked(kept), place, now)
    if not made.text.strip():
        opened = _opened(kept)
        aside = {*_SAID, *_TIMES, *_SPEAKERS}
        left = (name for name in opened.keys() - aside if opened[name] and isinstance(opened[name], (str, list, dict)))
        is_known = any(name in opened for name in _SAID) and all(map(_says_nothing, left))
        if not is_known and _squashed(_kind_of(opened)) not in _SILENT:
            raise InvalidInputError(f"message {place} has no text that can be read: {shorten(kept)}")
    return made


def _written(value: object) -> object:
    """Return the kept form of what JSON lacks: of bytes their number."""
    return f"{len(value)} bytes" if isinstance(value, (bytes, bytearray)) else plain_of(value)


def _masked(value: Any, is_tool: bool = False, name: str = "") -> Any:
    """Return a message whose tool calls and results, in any shape, hold no secrets."""
    if isinstance(value, str) and is_tool:  # a name often says that its value is one
        head = f"{name}: "
        return mask(value) if not name else mask(head + value).removeprefix(head)
    if isinstance(value, list):
        return [_masked(each, is_tool, name) for each in value]
    if isinstance(value, dict):
        is_tool = is_tool or _is_tool(_kind_of(value)) or _role_of(value) == "tool"
        return {
            key: each
            if key == "type" or key.lower().endswith("id")
            else _masked(each, is_tool or _is_tool(key), "" if key in _SAID else key)
            for key, each in value.items()
        }
    return value


def mask(text: str) -> str:
    """Return a text without apparent secrets.

    >>> mask('{"password": "4f9a8b7c6d5e4f3a"}')
    '{"password": "[secret]"}'
    """
    text = _mask_shapes(text)
    for value in sorted({*find_credentials(text), *find_cookies(text)}, key=len, reverse=True):
        if value not in "[secret]":  # it is masked already
            text = text.replace(value, "[secret]")
    return text


def _read_json(kept: dict[str, Any], place: int, now: float, id: str = "") -> Message:
    """Return the message that an object of JSON is; where nothing names it, its id is ""."""
    opened = _opened(kept) if kept.keys() - _PLAIN else kept
    text = clean("\n".join(filter(None, _texts_of(opened, with_tools=True))))
    if len(text) > MESSAGE_BYTES // 4 and len(text.encode()) > MESSAGE_BYTES:
        raise InvalidInputError(f"message {place} is larger than {MESSAGE_BYTES} bytes")
    at = _time_in(kept)
    named = [_name_in(opened[each], each) for each in _SPEAKERS if opened.get(each)]
    name = next(filter(None, named), "")
    return Message(id or clean(_own_id(opened)), _role_of(opened), text, now if at is None else at, name, kept)


def _opened(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without what wraps it; what stands around it counts where it says nothing itself."""
    for name in _WRAPS:
        if isinstance(inner := raw.get(name), dict) and not any(raw.get(each) for each in _SAID if each != name):
            return _opened({**{key: each for key, each in raw.items() if key != name}, **inner})
    return raw


def _time_in(raw: Mapping[str, Any]) -> float | None:
    for held in (raw, *((_opened(raw), mapping_of(raw.get("metadata"))) if raw.keys() - _PLAIN else ())):
        for name in _TIMES:
            if name in held and (at := read_time(held[name])) is not None:
                return at
    return None


def _name_in(value: object, field: str) -> str:
    """Return a speaker's name, on one line: with a line break it could begin a message of another one."""
    value = value.get("name") if isinstance(value, dict) else value
    is_name = isinstance(value, str) and (field in ("name", "speaker") or _squashed(value) not in _ROLE_OF)
    return one_line(clean(str(value))) if is_name else ""


def _role_of(raw: Mapping[str, Any]) -> str:
    if isinstance(raw.get("content"), str) and isinstance(role := raw.get("role"), str) and role in _ROLES:
        return role
    id = raw.get("id")  # of LangChain's dumps the path of a class
    named = [raw.get(name) for name in ("role", "type", "author", "from", "sender", "source")]
    for value in [*named, id[-1] if isinstance(id, list) and id else None]:
        value = value.get("role") if isinstance(value, dict) else value
        squashed = _squashed(value).removesuffix("chunk").removesuffix("message") if isinstance(value, str) else ""
        if role := _ROLE_OF.get(squashed):
            parts = raw.get("content", raw.get("parts"))
            is_tool = isinstance(parts, list) and parts and all(isinstance(each, dict) for each in parts)
            # A tool speaks, in whose name it is passed on.
            return "tool" if role == "user" and is_tool and all(map(_is_result, parts or ())) else role
    return "unknown"


def _squashed(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


def _kind_of(part: Mapping[str, Any]) -> str:
    kinds = (part.get(name) for name in ("type", "content_type", "block_type"))
    return next((kind for kind in kinds if isinstance(kind, str)), "")


def _is_tool(name: str) -> bool:
    return "tool" in (squashed := _squashed(name)) or "function" in squashed


def _is_result(part: Mapping[str, Any]) -> bool:
    names = map(_squashed, (_kind_of(part), *part))
    return any(_is_tool(name) and name.endswith(("result", "response", "output")) for name in names)


def own_words(message: Message) -> str:
    """Return the speaker's own text, without tools' arguments and results."""
    if not message.raw:
        return message.text
    return clean("\n".join(filter(None, _texts_of(_opened(message.raw), with_tools=False))))


def _texts_of(raw: Mapping[str, Any], with_tools: bool) -> list[str]:
    """Return what a message says: of the first field that says something, and, with tools, their calls and results."""
    if isinstance(content := raw.get("content"), str) and not raw.keys() - _PLAIN:
        return [content]
    if _is_tool(_kind_of(raw)) and not raw.keys() & {"role", "content"}:
        return _texts_of_tool(raw) if with_tools else []
    texts = next((texts for name in _SAID if (texts := _texts_in(raw.get(name), with_tools))), [])
    for name, value in raw.items() if with_tools else ():
        if _is_tool(name) and isinstance(value, (dict, list)):
            more = (text for each in (value if isinstance(value, list) else [value]) for text in _texts_of_tool(each))
            texts = [*texts, *(text for text in more if text not in texts)]  # some stand among the parts, too
    return [*texts, *_texts_attached(raw, bool(texts))] if with_tools else texts


def _texts_attached(raw: Mapping[str, Any], says_more: bool) -> list[str]:
    """Return the texts pasted as files, as Claude exports them; of a message of files alone, their places."""
    files = [each for name in ("attachments", "files") if isinstance(raw.get(name), list) for each in raw[name]]
    pasted = [each for each in files if isinstance(each, dict) and "extracted_content" in each]
    return _texts_in(pasted if says_more else files, True)


def _texts_in(value: object, with_tools: bool) -> list[str]:
    """Return the texts of a text, a part, or parts; each part gives one, whatever it is."""
    if isinstance(value, list):
        return [text for each in value for text in _texts_in(each, with_tools)]
    if not isinstance(value, dict):
        return [] if value in (None, "") else [_json_of(value)]
    kind = _squashed(_kind_of(value))
    if kind in _SILENT or value.get("thought") is True:
        return []
    if _is_tool(kind) or any(map(_is_tool, value)):
        return _texts_of_tool(value) if with_tools else []
    for name in _SAID:
        if name in value and name != "audio":
            return _texts_in(value[name], with_tools)
    label = next((each for each in (_kind_of(value), *value) if _is_media(each)), "")
    if label:
        return ["[image]" if "image" in label else f"[{label}]"]
    return [f"[{_kind_of(value) or 'part'} {_json_of(value)[:_SHOWN]}]"] if with_tools and value else []


def _texts_of_tool(part: object) -> list[str]:
    """Return a tool's call, as `[name arguments]`, and what it gave."""
    if not isinstance(part, dict):
        return [part if isinstance(part, str) else _json_of(part)] if part else []
    for name, inner in part.items():
        if _is_tool(name) and isinstance(inner, dict):  # {"functionCall": {…}}, {"function": {…}}
            return _texts_of_tool({"type": name, **inner})
    name = next((part[each] for each in ("name", "toolName", "tool_name") if isinstance(part.get(each), str)), "")
    given = next((part[each] for each in _GIVEN if part.get(each) is not None), None)
    gave = next((part[each] for each in _GAVE if part.get(each) is not None), None)
    kind = _kind_of(part).partition("-")[2]  # of the Vercel AI SDK `tool-weather`
    texts = [f"[{name or kind or 'tool'} {_json_of(given)}]"] if given is not None or gave is None else []
    if isinstance(gave, list) or (isinstance(gave, dict) and _kind_of(gave)):
        return texts + _texts_in(gave, True)
    return texts + ([gave if isinstance(gave, str) else _json_of(gave)] if gave else [])


def _json_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def encode_messages(messages: Sequence[Message]) -> bytes:
    """Return the file of some messages, a line each."""
    befores = [None, *(message.at for message in messages)]
    return b"".join(map(encode_message, messages, befores))


def encode_message(message: Message, before: float | None = None) -> bytes:
    """Return the line of one message; `before` is the time of the line in front of it."""
    raw, row = message.raw, dict[str, Any]()
    if message.forgotten or raw.keys() in _WRAPPED or "_id" in raw or "_at" in raw:
        row = {"id": message.id, "at": time_of(message.at)}
        raw = {"forgotten": message.text} if message.forgotten else {"message": raw}
    else:
        if message.id != _own_id(raw) and message.id != _id_of(_said(message), 0):
            row["_id"] = message.id
        if (message.at != before or not (row or raw)) and _time_in(raw) is None:  # `{}` is no message
            row["_at"] = time_of(message.at)
    return clean(to_json({**row, **raw}) + "\n").encode()


def decode_messages(
    data: bytes, where: str = "messages.jsonl", at: float = 0.0, damage: list[StoreCorruptError] | None = None
) -> list[Message]:
    """Return the messages of a file, which an error calls `where`; of a forgotten one the id alone.

    `at` is the time of those whose line has none, where none before them has one. `damage` takes what is wrong with
    damaged lines, each of which becomes a forgotten message without an id; None raises.
    """
    found: list[Message] = []
    for number, line in enumerate(lines_of(data), 1):
        try:
            found.append(decode_line(line, number, where, at))
        except StoreCorruptError as error:
            if damage is None:
                raise
            damage.append(error)
            found.append(Message("", "unknown", "", at, forgotten=True))
        at = found[-1].at
    return found


def render_messages(messages: Iterable[Message]) -> str:
    """Return messages as a page to be read."""
    lines = []
    for number, message in enumerate(messages, 1):
        who = f"{message.role} ({message.name})" if message.name else message.role
        # A line of its own begins with [m…]: what was said over several lines can pretend to be none.
        text = "(forgotten)" if message.forgotten else "\n    ".join(message.text.splitlines())
        lines.append(f"[m{number}] {time_of(message.at)[:16].replace('T', ' ')} {who}: {text}\n")
    return "".join(lines)


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of a file."""
    return [line for line in data.split(b"\n") if line.strip()]


def decode_line(line: bytes, number: int, where: str, before: float = 0.0) -> Message:
    """Return the message of a line of this `number`; `before` is the time of the line in front of it."""
    try:
        row = json.loads(line)
        if row.keys() not in _WRAPPED:
            if not row:
                raise KeyError("content")
            id, at = row.pop("_id", None), read_time(row.pop("_at", None)) if "_at" in row else None
            message = _read_json(row, number, before if at is None else at, clean(str(id)) if id else "")
            return message if message.id else replace(message, id=_id_of(_said(message), 0))
        id, at = clean(str(row["id"])), read_time(row["at"]) or 0.0
        if "forgotten" in row:
            return Message(id, "unknown", clean(str(row["forgotten"])), at, forgotten=True)
        message = _read_json(dict(row["message"]), number, at)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInputError) as error:
        raise StoreCorruptError(f"{where}, line {number}, is no message: {error}") from error
    return Message(id, message.role, message.text, at, message.name, message.raw)
