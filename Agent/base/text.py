"""Small helpers for texts: tokens, digests, JSON, dates."""

import json
import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from datetime import UTC, date, datetime, time
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias
from uuid import UUID

CountTokens: TypeAlias = Callable[[str], int]

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_find_ends = re.compile(
    r"(?<![。！？；])[。！？；]++[”’」』\"')）]*+|(?<![!?])[!?]++[”’\"')]*+(?=\s|$|[^\x00-\x7f])"
    r"|(?<![.;])[.;]++[”’\"')]*+(?=\s|$)|\n(?!\s{0,40}+[a-z])"
).finditer
_find_last_word = re.compile(r"(?<![\w.])[\w.]++$").search
_TITLES = frozenset(
    """
    mr mrs ms mx dr prof st rev hon gov sen rep gen col capt lt sgt mme mlle messrs hr fr sr sra srta dra vs e.g i.e z.b
    d.h
    """.split()  # noqa: SIM905  read as a text
)
"""Abbreviations that no sentence ends with, whatever follows."""
_BEFORE_SMALL = frozenset("al approx ave bzw co corp dept est etc inc jr ltd usw".split())  # noqa: SIM905
"""Abbreviations that no sentence ends with where a small letter follows."""
_BEFORE_NUMBERS = frozenset(
    """
    no nos nr p pp vol fig ch sec art approx ca jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu
    thur thurs fri
    """.split()  # noqa: SIM905
)
"""Abbreviations that no sentence ends with where a number follows."""
_find_runs = re.compile(r"[\w+/=.-]{12,}+", re.ASCII).findall
_has_digit = re.compile("[0-9]").search
_QUARTERS = (
    (0, 1), (0x80, 2), (0x300, 4), (0x370, 2), (0x7C0, 4), (0x900, 2), (0xE80, 6), (0x10A0, 3),
    (0x1100, 12), (0x1200, 6), (0x1E00, 2), (0x1F00, 6), (0x2000, 4), (0x2100, 6), (0x2E80, 4), (0xA000, 8),
    (0xAC00, 4), (0xD7B0, 12), (0xF900, 4), (0xFB00, 8), (0xFF00, 4), (0xFFF0, 8), (0x20000, 12),
)  # fmt: skip
"""Quarters of a token that a character takes, from a code point on, by what o200k_base makes of each script, and rather
more than less: Thai takes 0.46, an emoji 1.7, a combining mark one."""
_STARTS = [start for start, _ in _QUARTERS]


def count_tokens(text: str) -> int:
    """Estimate how many tokens of a language model a text has: four letters of English are one, or a Chinese character.

    >>> count_tokens("我喜欢龙井"), count_tokens("I like green tea")
    (5, 4)
    """
    coded = sum([len(run) for run in _find_runs(text) if _has_digit(run)])  # digests, ids, keys: few are words
    if text.isascii():
        return (len(text) + 2 * coded + 3) // 4
    quarters = 0
    for char, times in Counter(text).items():
        quarters += times * _QUARTERS[bisect(_STARTS, ord(char)) - 1][1]
    return (quarters + 2 * coded + 3) // 4


def cut_tokens(text: str, limit: int, count: CountTokens = count_tokens) -> str:
    """Return the longest beginning of a text within `limit` tokens; what is cut ends in an ellipsis."""
    if count(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle].rstrip() + "…") <= limit else (low, middle - 1)
    return text[:low].rstrip() + "…" if low else ""


def digest_of(*parts: str | bytes, size: int = 16) -> str:
    """Return a digest (blake2b) of some parts, none of which can be taken for a piece of another."""
    made = blake2b(digest_size=size)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "little"))
        made.update(data)
    return made.hexdigest()


def file_digest(data: bytes) -> str:
    """Return the digest of a file (blake2b-128), as `.meta.json` has it."""
    return blake2b(data, digest_size=16).hexdigest()


def fold_case(text: str) -> str:
    """Return a text without the differences of case and width."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def fold(text: str) -> str:
    """Return a text without the differences of case, width and blanks."""
    return " ".join(fold_case(text).split())


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON that people can read; what is no JSON raises `ValueError` or `TypeError`."""
    if indent is None:
        return _encode(value)
    return json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)


def plain_of(value: object) -> object:
    """Return the form in JSON of what it lacks: times and ids as texts, an enum's value, an object's fields.

    >>> plain_of(date(2026, 11, 29))
    '2026-11-29'

    Raises:
        TypeError: there is nothing for it.
    """
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    for name in ("model_dump", "to_dict", "dict"):
        if callable(dump := getattr(value, name, None)):
            return dump()
    raise TypeError(f"{type(value).__name__} is no JSON")


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold: half a surrogate pair, which some services send, becomes a mark."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def typed_names(text: str, known: Iterable[str] = ()) -> list[str]:
    r"""Return the names of a list that a person typed, with commas of either language, or blanks, between them.

    >>> typed_names("林悦，maya、 team:x\norg:a、b,", ["org:a、b"])
    ['林悦', 'maya', 'team:x', 'org:a', 'b']
    >>> typed_names("林悦 org:a、b", ["org:a、b"])  # as it was shown
    ['林悦', 'org:a、b']
    """
    parts = ([part] if part in known else re.split("[,，、]", part) for part in text.split())
    return [name for names in parts for name in names if name]


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, with their marks; a line end is an end, unless a small letter follows.

    >>> split_sentences("Dr. Lee likes tea. 我也喜欢!真的?")
    ['Dr. Lee likes tea.', '我也喜欢!', '真的?']
    """
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence of a text begins and ends, without the blanks around it."""
    start = 0
    for match in _find_ends(text):
        if match[0][0] != "." or not _goes_on(text, start, match.start(), match.end()):
            yield from _without_blanks(text, start, match.end())
            start = match.end()
    yield from _without_blanks(text, start, len(text))


def _without_blanks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    said = text[start:end]
    if stripped := said.strip():
        begin = start + len(said) - len(said.lstrip())
        yield begin, begin + len(stripped)


def _goes_on(text: str, start: int, dot: int, end: int) -> bool:
    """Tell whether a sentence goes on after a full stop: it ends an abbreviation, an initial, a list's number, dots."""
    following = text[end : end + 40].lstrip()[:1]
    found = _find_last_word(text[max(start, dot - 20) : dot])
    word = found[0].lstrip(".") if found else ""
    if word.casefold() in _TITLES or (len(word) == 1 and word.isupper() and word != "I"):
        return True
    if following.islower() and (not word or "." in word or word.casefold() in _BEFORE_SMALL):
        return True
    if following.isdigit() and word.casefold() in _BEFORE_NUMBERS:
        return True
    return word.isdecimal() and text[start:dot].strip() == word


def one_line(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def date_of(seconds: float) -> str:
    """Return a day in UTC, as `2026-11-22`; "" for a time that no calendar has."""
    return time_of(seconds)[:10]


def time_of(seconds: float) -> str:
    """Return a moment in UTC, as `2026-11-22T08:00:00Z`; "" for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"
    except (OverflowError, OSError, ValueError):
        return ""


def moment_of(seconds: float) -> str:
    """Return a moment as lists of entries have it: the day alone at midnight, so that texts of both compare in order.

    >>> moment_of(1_795_305_600.0), moment_of(1_795_334_400.0), moment_of(1e30)
    ('2026-11-22', '2026-11-22T08:00:00Z', '')
    """
    return time_of(seconds).removesuffix("T00:00:00Z")


def read_time(value: object) -> float | None:
    """Return a moment in seconds since the epoch from what messages carry; None for what is none, or in no calendar.

    A text is ISO 8601, RFC 2822, or a number; a number counts seconds, or milli-, micro- or nanoseconds by its size.

    >>> read_time("2023-05-08T13:56:00Z"), read_time("1683554160"), read_time("2023-05-08"), read_time("soon")
    (1683554160.0, 1683554160.0, 1683504000.0, None)
    >>> read_time(1683554160000), read_time("Mon, 08 May 2023 13:56:00 GMT"), read_time("2023/05/08 13:56:00 UTC")
    (1683554160.0, 1683554160.0, 1683554160.0)
    """
    if isinstance(value, str):
        return _read_written_time(value.strip()) if len(value) < 100 else None
    seconds = value
    if isinstance(value, datetime):
        with suppress(OverflowError):
            seconds = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 63:
        while abs(value) > 1e11:
            value = value / 1000
        seconds = float(value)
    return seconds if isinstance(seconds, float) and date_of(seconds) else None


_is_number = re.compile(r"-?\d{9,19}(?:\.\d+)?").fullmatch
_ZONE = re.compile(r"\s{0,4}(?:([+-]\d\d:?\d\d)\s{0,4})?(?:UTC|GMT|Z)?$")


@lru_cache(1024)  # what a commit has written has one time
def _read_written_time(value: str) -> float | None:
    if _is_number(value):
        return read_time(float(value))
    iso = _ZONE.sub(lambda zone: zone[1] or ("+00:00" if zone[0] else ""), value.replace("/", "-"), count=1)
    with suppress(ValueError):
        return read_time(datetime.fromisoformat(iso))
    with suppress(ValueError, TypeError, IndexError):
        return read_time(parsedate_to_datetime(value))
    return None


def strings_of(value: object) -> list[str]:
    """Return the strings of a list that was not checked."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


def mapping_of(value: object) -> dict[str, Any]:
    """Return an object that was not checked, {} where it is none."""
    return dict(value) if isinstance(value, Mapping) else {}


def merge_unique(*lists: Iterable[Any]) -> list[Any]:
    """Return what some lists hold, each once, in their order."""
    seen: dict[str, Any] = {}
    for items in lists:
        for item in items:
            seen.setdefault(item if isinstance(item, str) else json.dumps(item, sort_keys=True), item)
    return list(seen.values())
