"""What is said of a document by the terms in it: a code of 13 bits for each.

It has whether the document is a passage, the length of the shortest name that has the term (0: none has), how often the
text has it, and the text's length; lengths in steps of the square root of 2.
"""

import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from . import texts

__all__ = ["Said", "Tokens", "decode", "read"]

Said: TypeAlias = str | list[Any]
"""What a document says: a passage, or the names and the text of a unit."""

_NAME_STEPS = [2 ** (step / 2) for step in range(1, 15)]
_TEXT_STEPS = [2 ** (step / 2) for step in range(1, 31)]
_ONCE, _OFTEN, _PASSAGE = 1 << 5, 7 << 5, 1 << 12


class Tokens(NamedTuple):
    """The terms of a document, each with its code, and what the document adds to the counts."""

    codes: dict[str, int]
    counts: dict[str, int]


def read(said: Said) -> Tokens:
    """Return the terms of a document."""
    return _read_passage(said) if isinstance(said, str) else _read_own(*said)


def decode(code: int) -> tuple[float, int, float, bool]:
    """Return the name's length (0: none has the term), how often the text has it, its length, whether a passage."""
    name_step, length = code >> 8 & 15, 2.0 ** (((code & 31) - 1) / 2)
    return 2.0 ** ((name_step - 1) / 2) if name_step else 0.0, code >> 5 & 7, length, code >= _PASSAGE


def _encode_name(length: int) -> int:
    return (1 + bisect.bisect(_NAME_STEPS, length)) << 8


def _encode_text(found: Sequence[str], kind: int = 0) -> dict[str, int]:
    """Return each term of a text with its code."""
    once = kind + _ONCE + 1 + bisect.bisect(_TEXT_STEPS, len(found))
    codes = dict.fromkeys(found, once)
    if len(codes) < len(found):
        new = {*codes}
        for term in found:
            if term in new:
                new.remove(term)
            elif codes[term] & _OFTEN < _OFTEN:
                codes[term] += _ONCE
    return codes


def _read_own(names: Sequence[str], text: str) -> Tokens:
    codes, body, lengths = dict[str, int](), texts.terms(text) + texts.kinds(text), 0
    if not names:
        return Tokens(_encode_text(body), {"units": 1, "texts": bool(body), "text terms": len(body)})
    for found in sorted(map(texts.terms, names), key=len, reverse=True):  # the shortest name comes last, and counts
        lengths += len(found)
        grams = [gram for term in found for gram in texts.trigrams(term)]
        codes.update(dict.fromkeys((*found, *grams), _encode_name(len(found))))
    for term, code in _encode_text(body).items():
        codes[term] = codes.get(term, 0) | code
    counts = {"units": 1, "names": len(names), "name terms": lengths, "texts": bool(body), "text terms": len(body)}
    return Tokens(codes, counts)


def _read_passage(text: str) -> Tokens:
    found = texts.terms(text) + texts.kinds(text)
    return Tokens(_encode_text(found, _PASSAGE), {"passages": 1, "passage terms": len(found)})
