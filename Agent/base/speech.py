r"""Which words of a message are its speaker's own, in any language: by marks and lines, not by words.

>>> said = 'I live in Rome.\n> I live in Oslo.\nBob wrote: "I hate jazz."'
>>> own = own_words(said)
>>> "Rome" in own, "Oslo" in own, "jazz" in own, len(own) == len(said)
(True, False, False, True)

Nothing here finds anything: it only refuses what a model says a person has said. It refuses too much rather than too
little. What is refused is still in the text, and is found there by its words.
"""

import re
from collections.abc import Iterator

from .text import sentence_spans

NOT_OWN = "\0"
"""Takes the place of a character that is not the speaker's own."""

_is_fence = re.compile(r"\s{0,3}(?:```|~~~)").match
_is_quoted_line = re.compile(r"\s{0,3}[>|]").match
_is_rule = re.compile(r"\s{0,8}[-_=*]{2,40}\s?[^\s\-_=*].{0,60}").match
"""`---- Original message ----`: all that follows is forwarded."""
_is_turn = re.compile(r"\s{0,8}(?:[\[(【]?\d{1,4}[:：/-]\d{1,2}.{0,40}|[^\n:：.!?。！？,，]{1,40})[:：](?![\d/])").match
"""A line with a label: `[10:32] Bob: …`, `From: …`, `Please translate: …`, 小林：… Whose words follow is not known."""
_CLOSING = {"“": "”", "「": "」", "『": "』", "«": "»", "‹": "›", "„": "“", "〝": "〞", "‘": "’ ", "``": "``", "`": "`"}
_find_opening = re.compile("``|[“「『«‹„〝‘`]").search
_NAME_IN_QUOTES = 40  # characters
_find_single_quotes = re.compile(r"(?<![^\W_])'(?=\w)|(?<=[\w.,!?])'(?![^\W_])").finditer
_find_last_comma = re.compile(r"[,，、:：!！]\s{0,8}$").search
_ends_sentence = re.compile(r"[.!?。！？…]\W{0,8}$").search
_LETTER_LINE = 40  # characters of a greeting, a farewell, a signature


def own_words(text: str) -> str:
    """Return a text of the same length in which what is not the speaker's own is `NOT_OWN`.

    Left out are code, quoted lines and speech, lines with a label and the paragraphs that they begin, all that follows
    a rule (`---- forwarded ----`) or a header of two labels, and letters that have a greeting and a signature. A name
    or title in quotation marks stays.

    Cost: some 50 ms for 100,000 characters.
    """
    held = list(text)
    for start, end in _others(text):
        held[start:end] = NOT_OWN * (end - start)
    return "".join(held)


def sentences_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where the sentences begin and end that a passage is in; what is not the speaker's own ends one."""
    spans = [span for span in _own_spans(text) if span[0] < end and span[1] > start]
    return (spans[0][0], spans[-1][1]) if spans else (start, end)


def _own_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in re.finditer(f"[^{NOT_OWN}]+", text):
        for start, end in sentence_spans(match[0]):
            yield match.start() + start, match.start() + end


def is_asked(sentences: str) -> bool:
    """Tell whether one of some sentences asks, in any script."""
    return any(mark in sentences for mark in "?？؟՞፧⁇⁈")


def _others(text: str) -> Iterator[tuple[int, int]]:
    """Yield what is not the speaker's own, from where to where."""
    lines, place = list[tuple[int, str]](), 0
    for line in text.splitlines(keepends=True):
        lines.append((place, line))
        place += len(line)
    if _is_letter([line.strip() for _, line in lines]):
        yield 0, len(text)
    is_code, turns = False, {number for number, (_, line) in enumerate(lines) if _is_turn(line)}
    for number, (start, line) in enumerate(lines):
        if _is_fence(line):
            is_code = not is_code
            yield start, start + len(line)
        elif is_code or _is_quoted_line(line) or line.startswith(("    ", "\t")):
            yield start, start + len(line)
        elif _is_rule(line) or {number, number + 1} <= turns:  # a header, or the turns of a conversation
            yield start, len(text)
            break
        elif number in turns:  # to the end of the paragraph
            following = number + 1
            while following < len(lines) and lines[following][1].strip():
                following += 1
            yield start, lines[following][0] if following < len(lines) else len(text)
    yield from _quotes(text)


def _is_letter(lines: list[str]) -> bool:
    """Tell whether lines begin with a greeting, which ends in a comma, and end with a farewell and a name."""
    said = [line for line in lines if line]
    if len(said) < 4 or len(said[0]) > _LETTER_LINE or not _find_last_comma(said[0]):
        return False
    return all(len(line) <= _LETTER_LINE and not _ends_sentence(line) for line in said[-2:])


def _quotes(text: str) -> Iterator[tuple[int, int]]:
    end = 0
    while (opening := _find_opening(text, end)) is not None:
        closing = _CLOSING[opening[0]]
        place = text.find(closing, opening.end())
        end = len(text) if place < 0 else place + len(closing)
        if not _is_name(text[opening.end() : end - len(closing)]):
            yield opening.start(), end
    marks = [place for place, char in enumerate(text) if char in '"＂']
    singles = [match.start() for match in _find_single_quotes(text)]
    for places, last in ((marks, [len(text)]), (singles, [])):
        for start, end in zip(places[::2], [*places[1::2], *last], strict=False):
            if not _is_name(text[start + 1 : end]):
                yield start, min(end + 1, len(text))


def _is_name(quoted: str) -> bool:
    """Tell whether the text in quotation marks is a name or a title, and no speech."""
    words = quoted.split()
    if not words or len(quoted) > _NAME_IN_QUOTES or _ends_sentence(quoted) or re.search(r"[,，;；]", quoted):
        return False
    # In scripts with capitals each word of a title has one; where there are none, a title is short.
    cased = [word for word in words if word[:1].lower() != word[:1].upper()]
    return all(word[:1].isupper() for word in cased) if cased else len(quoted) <= _NAME_IN_QUOTES // 4
