"""The sentence that answers: an excerpt of what was found."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..keyword_tree import Info
from . import texts

if TYPE_CHECKING:
    from .index import Index
    from .score import Found

__all__ = ["QUOTED", "Words", "quote"]

QUOTED = 3
"""Passages among which the sentence is looked for, the best ones."""
_LIMIT = 160  # characters
_READ = 4096  # characters of an info that are looked at
_SHOWN = 50  # infos of a result
# Parts a text neither within a word nor before a mark.
_find_part = re.compile(rf"(?![^\w\s\x00-\x7f]).{{1,{_LIMIT - 2}}}(?![^\w\s\x00-\x7f])").search
# Not the joiners within Persian words and within emoji: they change nothing else.
_hidden = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ue000-\uf8ff\ufeff\ufff0-\ufffb"
    r"\U000e0000-\U000e00ff]"
).sub


class Words:
    """The terms of a question, each with its weight; the `QueryWords` of a tree."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._total = math.fsum(weights.values()) or 1.0
        self._unspaced = [term for term in weights if texts.is_unspaced(term)]
        # A stem has but for its last letter what its word has: what lacks these need not be cut into words.
        begun = {re.escape(term[: max(1, len(term) - 1)]) for term in weights.keys() - {*self._unspaced}}
        self._may_have = re.compile("|".join(sorted(begun)) or "(?!)").search

    def Weigh(self, text: str) -> float:
        """Return which share of the question stands in a text, 0 to 1."""
        text = texts.fold(text)
        found = {term for term in self._unspaced if term in text}
        if self._may_have(text.casefold()):
            found |= self._weights.keys() & texts.terms(text)
        return min(1.0, math.fsum(self._weights[term] for term in found) / self._total)

    def Quote(self, contents: Iterable[str], otherwise: str = "") -> str:
        """Return the sentence that has most of the question, at most 160 characters, else `otherwise` as far."""
        best, quoted = 0.0, otherwise
        for content in contents:
            for sentence in texts.sentences(content):
                weight = self.Weigh(sentence)
                if weight > best:
                    best, quoted = weight, sentence
        text = " ".join(_hidden(" ", quoted).split())
        if len(text) <= _LIMIT:
            return text
        found = (_find_part(text, start) for start in range(0, len(text), _LIMIT // 2))
        part = max((match[0] for match in found if match), key=self.Weigh, default=text[: _LIMIT - 2])
        return f"{'' if text.startswith(part) else '…'}{part}{'' if text.endswith(part) else '…'}"

    def Arrange(self, infos: list[Info], newest: list[Info], nearest: str) -> tuple[list[Info], str]:
        """Return infos, those that fit first, and the sentence that fits best; see `QueryWords` of the tree."""
        weighed = []
        for info in infos + newest:
            text = info.content[:_READ]
            weighed.append((bool(nearest) and text.startswith(nearest), self.Weigh(text), info))
        ordered = sorted(weighed, key=lambda each: each[:2], reverse=True)
        fitting = [info for is_meant, weight, info in ordered if is_meant or weight]
        others = [info for is_meant, weight, info in weighed[: len(infos)] if not (is_meant or weight)]
        is_meant = bool(ordered) and ordered[0][0]
        contents = [info.content[:_READ] for info in (fitting[:1] if is_meant else fitting)]
        return [*fitting, *others][:_SHOWN], self.Quote(contents, contents[0] if is_meant else "")


def quote(index: "Index", words: Words, found: Iterable["Found"]) -> dict[str, str]:
    """Return id → the sentence of its texts that fits best, or ""; all texts are read at once."""
    chosen = {each.id: each.documents[:QUOTED] for each in found}
    read = index.read([document for documents in chosen.values() for document in documents])
    return {id: words.Quote(read[document][1] for document in documents) for id, documents in chosen.items()}
