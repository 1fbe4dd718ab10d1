r"""Messages in every shape of the field, as one, and as `messages.jsonl` keeps them.

>>> read_message({"role": "assistant", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}]}, 0, 0.0).text
'Look:\n[image]'
>>> called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find", "arguments": "{}"}}]}
>>> read_message(called, 0, 0.0).text
'[find {}]'

Taken are OpenAI's shapes (`content` as a text or parts, `tool_calls`, role `tool`), Anthropic's (`tool_use`,
`tool_result` among a user's parts), objects with `model_dump()`, and plain `{"role", "content"}` with `id`, `name`,
`at` (or `timestamp`, `created_at`, `time`, `date`) where there are any. A line of the file is the message as it came,
with an `_at` where it had no time of its own, and that is another one than the line's before, and an `_id` where its id
does not follow from what it says. Where it has such names itself, and in older files, it is wrapped:

    {"_at": "2026-11-22T08:00:00Z", "role": "user", "content": "…"}
    {"id": "…", "at": "…", "message": {…as it came…}}
    {"id": "…", "at": "…", "forgotten": "digest of what it was"}
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...base.text import clean, digest_of, read_time, shorten, time_of, to_json
from .config import MESSAGE_BYTES, RAW_BYTES
from .errors import InvalidInputError, StoreCorruptError
from .objects import Message

_WRAPPED = ({"id", "at", "message"}, {"id", "at", "forgotten"})
_TIMES = ("at", "timestamp", "created_at", "time", "date")
_SHOWN = ("text", "tool_use", "tool_result")
_ROLES = ("user", "assistant", "tool", "system")
_SAME = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool", "developer": "system"}


def read_messages(messages: object, now: float, mask: Callable[[str], str] = str) -> list[Message]:
    """Return messages as they were given, each with an id that it will have again.

    `now` is for those that do not say when; `mask` takes the secrets out of what tools were given, and gave. The error
    says which one is no message.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise InvalidInputError(f"messages must be a list, not {shorten(messages)}")
    found: list[Message] = []
    occurrences: dict[str, int] = {}
    taken: dict[str, Message] = {}
    for place, raw in enumerate(messages):
        message = read_message(raw, place, now, mask)
        if not message.id:
            said = _said(message)
            occurrences[said] = occurrences.get(said, -1) + 1
            message = _with_id(message, _id_of(said, occurrences[said]))
        elif message.id in taken:  # the same id for something else: both were said
            if said_digest(taken[message.id]) == said_digest(message):
                continue
            message = _with_id(message, f"{message.id}~{said_digest(message)}")
        taken[message.id] = message
        found.append(message)
    return found


def tell_repeats(messages: Sequence[Message], known: Sequence[str]) -> list[Message]:
    """Return a batch as it goes on from what a session's archives hold: what is said again there has another id.

    It matters for messages without an id and a time of their own, which are known by how often they were said:

        the batch begins as the session began       it is the whole transcript again: it is counted from there
        it begins with what was said last           that is known, and what follows is said now
        so, after one or two that differ            a summary stands for what was before: it and what follows are new
        neither                                     all of it is said now, even a "yes" that was said before

    System messages, which a program puts before each batch, change nothing about that, and are known once said. `known`
    are the ids of the session's messages, in their order, "" for what a hand has spoilt.
    """
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
    if any(_begins_as(batch, before[skipped:]) for skipped in range(lead + 2)):
        return list(messages)
    repeated = lead + (_window(before, batch) or _overlap(before, batch))
    found = list(messages[:repeated])
    for message in messages[repeated:]:
        name = said.get(message.id)
        if name is not None and _time_in(message.raw) is None and message.role != "system":
            message = _with_id(message, _id_of(name, counts.get(name, 0)))
            counts[name] = counts.get(name, 0) + 1
        found.append(message)
    return found


def _begins_as(batch: Sequence[str], before: Sequence[str]) -> bool:
    """Whether the first two messages are those of the session, or, where the first differs, the next two.

    What a hand has spoilt in the archives ("") may have been anything.
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
    """Return where what was said last ends in a batch that a program has shortened; 0 where it did not.

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
    named = raw.get("id", raw.get("message_id"))
    return str(named) if isinstance(named, (str, int)) and not isinstance(named, bool) else ""


def _said(message: Message) -> str:
    """Return what a message without an id is known by, besides how often it was said."""
    said_at = str(message.at) if _time_in(message.raw) is not None else ""
    return digest_of(message.role, message.name, message.text, said_at, *_unseen(message))


def _id_of(said: str, occurrence: int) -> str:
    return digest_of(said, str(occurrence), size=8)


def said_digest(message: Message, size: int = 4) -> str:
    """Return a digest of what a message says and carries."""
    return digest_of(message.role, message.text, *_unseen(message), size=size)


def forgotten_digest(message: Message) -> str:
    """Return what stays of a message that is forgotten: by its id and this it is known when it comes again."""
    return said_digest(message, 8)


def _unseen(message: Message) -> list[str]:
    """Return what a message carries that its text does not show: two pictures are two messages."""
    content = message.raw.get("content")
    parts = content if isinstance(content, list) else [content]
    return [
        to_json(part)
        for part in parts
        if isinstance(part, dict) and not isinstance(part.get("text"), str) and part.get("type") not in _SHOWN
    ]


def _with_id(message: Message, id: str) -> Message:
    return Message(id, message.role, message.text, message.at, message.name, message.raw)


def read_message(raw: object, place: int, now: float, mask: Callable[[str], str] = str) -> Message:
    """Return one message of at most 16 MiB of text, and 48 MiB in all; its id is "" where it brings none."""
    if not isinstance(raw, Mapping):
        dump = getattr(raw, "model_dump", None)
        raw = dump() if callable(dump) else {"content": raw} if isinstance(raw, str) else raw
        if not isinstance(raw, Mapping):
            raise InvalidInputError(f"message {place} must be an object, not {shorten(raw)}")
    if {*map(type, raw), *map(type, raw.values())} == {str}:  # as most are
        kept = {clean(name): clean(value) for name, value in raw.items()}
        size = sum(map(len, kept.values()))
    else:
        try:
            written = clean(to_json(dict(raw)))
            kept, size = json.loads(written), len(written)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"message {place} is no JSON: {error}") from error
    if size > RAW_BYTES:
        raise InvalidInputError(f"message {place} is larger than {RAW_BYTES} bytes, with all that it carries")
    return _read_json(_mask_tools(kept, mask), place, now)


def _mask_tools(message: dict[str, Any], mask: Callable[[str], str]) -> dict[str, Any]:
    """Return a message whose tool calls and results hold no secrets."""
    if message.get("role") in ("tool", "function"):
        return {name: _masked(value, mask) if name == "content" else value for name, value in message.items()}
    made = dict(message)
    for name in ("tool_calls", "function_call"):
        if name in made:
            made[name] = _masked(made[name], mask)
    if isinstance(parts := made.get("content"), list):
        made["content"] = [
            _masked(part, mask) if isinstance(part, dict) and str(part.get("type")).startswith("tool_") else part
            for part in parts
        ]
    return made


def _masked(value: Any, mask: Callable[[str], str], name: str = "") -> Any:
    if isinstance(value, str):  # a name often says that its value is one
        head = f"{name}: "
        return mask(value) if not name else mask(head + value).removeprefix(head)
    if isinstance(value, list):
        return [_masked(each, mask, name) for each in value]
    if isinstance(value, dict):
        return {
            key: each if key in ("id", "tool_use_id", "type") else _masked(each, mask, key)
            for key, each in value.items()
        }
    return value


def _read_json(kept: dict[str, Any], place: int, now: float, id: str = "") -> Message:
    """Return the message that an object of JSON is; where nothing names it, its id is ""."""
    text = kept.get("content")
    if not isinstance(text, str) or "tool_calls" in kept:
        text = "\n".join(filter(None, _texts_of(kept, with_tools=True)))
    text = clean(text)
    if len(text) > MESSAGE_BYTES // 4 and len(text.encode()) > MESSAGE_BYTES:
        raise InvalidInputError(f"message {place} is larger than {MESSAGE_BYTES} bytes")
    at = _time_in(kept)
    name = kept.get("name", kept.get("speaker"))
    name = clean(name) if isinstance(name, str) else ""
    return Message(id or clean(_own_id(kept)), _role_of(kept), text, now if at is None else at, name, kept)


def _time_in(raw: Mapping[str, Any]) -> float | None:
    for name in _TIMES:
        if name in raw and (at := read_time(raw[name])) is not None:
            return at
    return None


def _role_of(raw: Mapping[str, Any]) -> str:
    role = raw.get("role")
    role = _SAME.get(role, role) if isinstance(role, str) else "unknown"
    parts = raw.get("content")
    if role == "user" and isinstance(parts, list) and parts:
        kinds = {str(part.get("type")) for part in parts if isinstance(part, dict)}
        if kinds == {"tool_result"}:  # a tool speaks, in whose name it is passed on
            return "tool"
    return role if role in _ROLES else "unknown"


def own_words(message: Message) -> str:
    """Return what the speaker said, without what tools were given or gave."""
    return clean("\n".join(filter(None, _texts_of(message.raw, with_tools=False)))) if message.raw else message.text


def _texts_of(raw: Mapping[str, Any], with_tools: bool) -> list[str]:
    content = raw.get("content", raw.get("text"))
    texts = [content] if isinstance(content, str) else _texts_of_parts(content, with_tools)
    if with_tools:
        for call in calls if isinstance(calls := raw.get("tool_calls"), list) else ():
            if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                texts.append(_call_of(function.get("name"), function.get("arguments")))
    return texts


def _texts_of_parts(parts: object, with_tools: bool) -> list[str]:
    texts: list[str] = []
    for part in parts if isinstance(parts, list) else [parts] if isinstance(parts, dict) else ():
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            kind = str(part.get("type") or "text")
            if isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind == "tool_use" and with_tools:
                texts.append(_call_of(part.get("name"), part.get("input")))
            elif kind == "tool_result" and with_tools:
                inner = part.get("content")
                texts += [inner] if isinstance(inner, str) else _texts_of_parts(inner, with_tools)
            elif kind not in ("tool_use", "tool_result", "thinking", "redacted_thinking"):
                texts.append("[image]" if "image" in kind else f"[{kind}]")
    return texts


def _call_of(name: object, given: object) -> str:
    return f"[{name} {given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)}]"


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
    lines that a hand has spoilt, for each of which a forgotten message without an id stands; None raises.
    """
    found: list[Message] = []
    for number, line in enumerate(lines_of(data), 1):
        try:
            found.append(_decode(line, number, where, at))
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


def decode_message(lines: Sequence[bytes], number: int, where: str = "messages.jsonl") -> Message | None:
    """Return one message of a file's lines, counted from 1, with the time of its own line; None if they are fewer."""
    return _decode(lines[number - 1], number, where) if 1 <= number <= len(lines) else None


def lines_of(data: bytes) -> list[bytes]:
    """Return the lines of a file."""
    return [line for line in data.split(b"\n") if line.strip()]


def _decode(line: bytes, number: int, where: str, before: float = 0.0) -> Message:
    try:
        row = json.loads(line)
        if row.keys() not in _WRAPPED:
            if not row:
                raise KeyError("content")
            id, at = row.pop("_id", None), read_time(row.pop("_at", None)) if "_at" in row else None
            message = _read_json(row, number, before if at is None else at, clean(str(id)) if id else "")
            return message if message.id else _with_id(message, _id_of(_said(message), 0))
        id, at = clean(str(row["id"])), read_time(row["at"]) or 0.0
        if "forgotten" in row:
            return Message(id, "unknown", clean(str(row["forgotten"])), at, forgotten=True)
        message = _read_json(dict(row["message"]), number, at)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidInputError) as error:
        raise StoreCorruptError(f"{where}, line {number}, is no message: {error}") from error
    return Message(id, message.role, message.text, at, message.name, message.raw)
