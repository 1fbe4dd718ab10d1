"""Candidates without a model: what is stated plainly, by the table of cues; and what tools were used.

>>> from ..core.objects import SessionArchive
>>> said = [Message("1", "user", "My name is Ada. 我喜欢龙井,不加糖。", 0.0)]
>>> said.append(Message("2", "assistant", "I live in Rome.", 0.0))
>>> archive = SessionArchive("s1", "ctx://acme/users/ada/sessions/s1/0001-12345678", "", said)
>>> [(each.category, each.content) for each in read_profile(said, archive) + read_preferences(said, archive)]
[('profile', 'name: Ada'), ('preferences', '我喜欢龙井,不加糖。')]
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..core.config import OWNER_OF
from ..core.messages import own_words
from ..core.objects import CandidateMemory, Message, SessionArchive
from ..core.text import cut_tokens, fold, mapping_of, one_line, read_time, split_sentences, to_json
from .cues import FACTS, INSTRUCTIONS, PREFERENCES, is_plain, proper_names

__all__ = ["describe_tool", "read_entities", "read_preferences", "read_profile", "read_tools"]

_SENTENCE = 600  # characters; what is longer states nothing plainly
_TOPIC_WORDS, _TOPIC_CHARACTERS = 4, 12
_INSTRUCTIONS = "instructions"


def read_profile(messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
    """Return who the user says to be: name, home, work, birthday."""
    found = []
    for number, message, sentence in _own_sentences(messages, "fact"):
        matches = [(match, cue.key) for cue in FACTS for match in cue.pattern.finditer(sentence)]
        for match, key in sorted(matches, key=lambda each: each[0].start()):  # what is said last is what holds
            value = one_line(match["value"]).strip(" .'’")
            if value:
                found.append(_candidate("profile", "profile", f"{key}: {value}", archive, number, message, key))
    return found


def read_preferences(messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
    """Return what the user likes, dislikes and asks for, in the user's own words."""
    found = []
    for number, message, sentence in _own_sentences(messages, "likes"):
        topics = [_topic(match["value"]) for cue in PREFERENCES for match in cue.pattern.finditer(sentence)]
        for topic in dict.fromkeys(filter(None, topics)):
            found.append(_candidate("preferences", topic, one_line(sentence), archive, number, message))
    for number, message, sentence in _own_sentences(messages, "instruction"):
        if any(cue.pattern.search(sentence) for cue in INSTRUCTIONS):
            found.append(_candidate("preferences", _INSTRUCTIONS, one_line(sentence), archive, number, message))
    return found


def read_entities(messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
    """Return names that were said twice, each with the sentences that say them."""
    said: dict[str, list[tuple[int, Message, str]]] = {}
    names: dict[str, str] = {}
    for number, message in enumerate(messages, 1):
        if message.forgotten or message.role in ("tool", "system"):
            continue
        for sentence in split_sentences(own_words(message)):
            for name in proper_names(sentence):
                names.setdefault(fold(name), name)
                said.setdefault(fold(name), []).append((number, message, sentence))
    found = []
    for folded, places in said.items():
        if len({number for number, _, _ in places}) < 2:
            continue
        for number, message, sentence in places[:5]:
            text = one_line(f"{message.name}: {sentence}" if message.name else sentence)
            found.append(_candidate("entities", names[folded], text, archive, number, message))
    return found


def read_tools(archive: SessionArchive) -> list[CandidateMemory]:
    """Return how tools went in a session: one candidate for each, with its figures as JSON in `overview`."""
    used: dict[str, list[dict[str, Any]]] = {}
    for tool in archive.stats.get("used_tools") or ():
        made = mapping_of(tool)
        if made.get("name"):
            used.setdefault(str(made["name"]), []).append(made)
    found = []
    for name, calls in used.items():
        failures = [call for call in calls if call.get("ok") is False]
        figures = {
            "calls": len(calls),
            "successes": len(calls) - len(failures),
            "failures": len(failures),
            "seconds": round(sum(float(call.get("seconds") or 0.0) for call in calls), 3),
        }
        errors = dict.fromkeys(one_line(str(call["error"])) for call in failures if call.get("error"))
        times = [at for call in calls if (at := read_time(call.get("at"))) is not None]
        found.append(
            CandidateMemory(
                category="tools",
                owner_scope=OWNER_OF["tools"],
                routing_key=name,
                abstract="",
                overview=to_json(figures),
                content=cut_tokens("; ".join(errors), 300),
                confidence=1.0,
                source_refs=[{"archive": archive.archive_uri, "message": ""}],
                at=max(times, default=float(archive.stats.get("at") or 0.0)),
            )
        )
    return found


def _own_sentences(messages: Sequence[Message], kind: str) -> Iterator[tuple[int, Message, str]]:
    """Yield the plain sentences of the user, by number of message; nobody else says who the user is."""
    speakers = {fold(message.name) for message in messages if message.role == "user" and message.name}
    if len(speakers) > 1:  # two people talk, and nobody knows which of them the user is
        return
    for number, message in enumerate(messages, 1):
        if message.role != "user" or message.forgotten:
            continue
        for sentence in split_sentences(own_words(message)):
            if len(sentence) <= _SENTENCE and is_plain(sentence, kind):
                yield number, message, sentence


def _topic(value: str) -> str:
    """Return the topic that a preference is filed under: of `colour is green` the colour, so that red is, too."""
    value = re.split(r" (?:is|are) |是", one_line(value))[0]
    value = re.sub(r"\s+(?:any ?more|now|these days|too|very much|a lot|so much)$", "", value)
    value = re.sub(
        r"^(?:to|the|a|an|my|some|having|doing|it when|喝|吃|看|听|玩|用|去|做|在)\s*", "", one_line(value).strip()
    )
    words = value.split()
    return " ".join(words[:_TOPIC_WORDS])[:60] if value.isascii() else value[:_TOPIC_CHARACTERS]


def _candidate(
    category: str,
    routing_key: str,
    content: str,
    archive: SessionArchive,
    number: int,
    message: Message,
    key: str = "",
) -> CandidateMemory:
    return CandidateMemory(
        category=category,
        owner_scope=OWNER_OF[category],
        routing_key=routing_key,
        abstract="",
        overview="",
        content=content,
        confidence=0.6,
        source_refs=[{"archive": archive.archive_uri, "message": f"m{number}"}],
        key=key,
        at=message.at,
    )


def describe_tool(tool: Any) -> dict[str, Any]:
    """Return a used tool as the archive keeps it: `name`, `ok`, `seconds`, `error`, `at`."""
    made = mapping_of(tool) if not isinstance(tool, str) else {"name": tool}
    name = made.get("name", made.get("tool"))
    status = made.get("ok", made.get("success"))
    if status is None and isinstance(made.get("status"), str):
        status = made["status"].casefold() not in ("error", "failed", "failure")
    seconds = made.get("seconds", made.get("duration_s"))
    milliseconds: object = made.get("duration_ms")
    if seconds is None and isinstance(milliseconds, (int, float)):
        seconds = milliseconds / 1000
    return {
        "name": one_line(str(name or ""))[:100],
        "ok": status is not False and not made.get("error"),
        "seconds": float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else 0.0,
        **({"error": one_line(str(made["error"]))[:300]} if made.get("error") else {}),
        **({"at": made["at"]} if read_time(made.get("at")) is not None else {}),
    }
