"""Score passages that an index on disk found: BM25 with the question before, the group, asides and cover.

The ranking is BM25 (Robertson & Zaragoza 2009) over stemmed words without stop words, in scripts without spaces over
characters and pairs of them, plus four terms:

- *Before*: where a question stands just before in the same group, its words count 0.5, but for those that the memory
  has itself. An answer seldom repeats the question.
- *Group*: BM25 over all that belongs together (a conversation, a document) counts 0.5.
- *Question*: in a query of several sentences, those that ask nothing count 0.3; the last one counts fully.
- *Cover*: of what is ranked, each word that one memory has said counts 0.85 for those ranked later. So a question with
  two halves finds both, and ten memories that say the same do not fill the view.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol, TypeVar

from ..finding import texts
from .keywords import STOP_WORDS, find_words

__all__ = ["Passages", "RankingWeights", "idf_of", "norm_of", "score_passages", "split_passages"]
__all__ += ["terms_of", "worth_of"]

PASSAGE_LIMIT = 800
"""Characters of a passage; a longer text is cut where a paragraph or a sentence ends."""

POSTINGS_LIMIT = 15_000
"""So many postings are read for a query, the rarest terms first and of each the newest; bounds its time at any size."""

_K1, _B = 1.5, 0.75


# Terms


def terms_of(text: str) -> list[str]:
    """Return the terms of a text, as often as they occur.

    English words without their endings and without `STOP_WORDS`; of a compound (`getUserName`) its parts, too. In
    scripts without spaces every character and every pair of neighbours. Latin, Greek and Cyrillic letters count without
    their accents, as the tree's own ranking takes them.

    >>> terms_of("Painting the sunrises"), terms_of("喝绿茶"), terms_of("C++ and C#")
    (['paint', 'sunris'], ['喝', '绿', '茶', '喝绿', '绿茶'], ['c++', 'c#'])
    """
    terms: list[str] = []
    for unspaced, spaced in find_words(texts.fold(text)):
        if unspaced:
            terms += unspaced
            terms.extend(map("".join, pairwise(unspaced)))
        else:
            terms += _terms_of_word(spaced)
    return terms


@lru_cache(maxsize=1 << 16)  # two thirds of the time of building an index, without it
def _terms_of_word(word: str) -> tuple[str, ...]:
    """Return a word's terms: itself without its ending, and the parts of a compound; a stop word has none."""
    parts = _find_camel(word) if word.isascii() else ()
    folded = (each.casefold() for each in ((word, *parts) if len(parts) > 1 else (word,)))
    return tuple(_stem(each) for each in folded if each not in STOP_WORDS)


_find_camel = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])").findall


def _stem(word: str) -> str:
    """Return an English word without its ending: a light form of Porter's rules, which a reader can follow."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("s", "")):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return f"{word[:-1]}y" if len(word) > 4 and word.endswith("i") else word


def split_passages(text: str, limit: int = PASSAGE_LIMIT) -> list[str]:
    r"""Return a text in passages of at most `limit` characters, cut behind a paragraph, else a sentence, else a blank.

    >>> split_passages("First one. Second one.\n\nThird.", 15)
    ['First one.', 'Second one.', 'Third.']
    """
    passages = []
    text = text.strip()
    start = 0  # of what is left: cutting that off each time would read a long text once for each passage
    while len(text) - start > limit:
        window = text[start : start + limit + 1]
        # A cut in the first third would leave crumbs.
        cuts = (max((m.end() for m in find(window) if m.end() > limit // 3), default=0) for find in _CUTS)
        end = start + next(filter(None, cuts), limit)
        passages.append(text[start:end].strip())
        beyond = _find_text(text, end)
        start = beyond.start() if beyond else len(text)
    rest = text[start:]
    return [*passages, rest] if rest or not passages else passages


_find_text = re.compile(r"\S").search

_CUTS = [re.compile(pattern).finditer for pattern in (r"\n\s*\n", r"\n|[。！？!?](?=.)|\.(?=\s)", r"\s")]


def _weigh_sentences(query: str, aside: float) -> dict[str, float]:
    """Return the query's terms; those of a sentence that neither asks nor comes last weigh `aside`."""
    sentences = [sentence for sentence in _split_sentences(query) if sentence.strip()]
    weights: dict[str, float] = {}
    for number, sentence in enumerate(sentences, 1):
        asks = number == len(sentences) or sentence.rstrip().endswith(("?", "？"))
        for term in terms_of(sentence):
            weights[term] = max(weights.get(term, 0.0), 1.0 if asks else aside)
    return weights


_split_sentences = re.compile(r"(?<=[。！？!?；;])|(?<=\.)\s+").split


# The index


@dataclass(frozen=True)
class RankingWeights:
    """What counts besides BM25; see the top of this file. 0, 0, 1, 1 is BM25 alone."""

    before: float = 0.5
    """The question that stands just before."""
    group: float = 0.5
    """All that belongs together."""
    aside: float = 0.3
    """A sentence that asks nothing."""
    cover: float = 0.85
    """A word that was said already."""


# The scoring: pure functions over a small port, so that an index in memory and one on disk rank alike


Term = TypeVar("Term")
"""What an index calls a term: a number in memory, the term itself on disk."""


class Passages(Protocol[Term]):
    """What the scoring reads of an index. A passage is a number, and so is a group; -1 is none."""

    def look(self, slot: int, asked: Mapping[Term, float]) -> dict[Term, float]:
        """Return what each term of a query counts in a passage."""

    def answer_to(self, slot: int) -> int:
        """Return what follows a passage that asks something in its group, else -1."""

    def group_of(self, slot: int) -> int:
        """Return the group of a passage, or -1."""

    def idf(self, number: Term, /) -> float:
        """Return how rare a term is among passages."""

    def group_norms(self, groups: Collection[int]) -> tuple[int, dict[int, float]]:
        """Return how many groups there are, and BM25's norm of each of some."""

    def grouped(self, number: Term, /) -> int:
        """Return how many passages of groups say a term."""

    def count_by_group(self, number: Term, groups: Set[int], /) -> tuple[int, Mapping[int, int]]:
        """Return how many groups say a term, and of some of them how many passages do."""


def norm_of(relative_length: float) -> float:
    """Return BM25's norm of a text that is so many times as long as the average."""
    return _K1 * (1.0 - _B + _B * relative_length)


def idf_of(count: int, frequency: int) -> float:
    """Return how rare something is that occurs in `frequency` of `count`."""
    return math.log(1.0 + (count - frequency + 0.5) / (frequency + 0.5))


def worth_of(query: str, aside: float, idf: Callable[[str], float]) -> dict[str, float]:
    """Return what a passage could get for each term of the query: its weight · idf · (k1 + 1)."""
    return {term: weight * idf(term) * (_K1 + 1.0) for term, weight in _weigh_sentences(query, aside).items()}


def score_passages(
    index: Passages[Term],
    found: Iterable[int],
    asked: Mapping[Term, float],
    weights: RankingWeights,
    limit: int,
    id_of: Callable[[int], str | None],
    accepts: Callable[[int], bool],
) -> list[tuple[int, float]]:
    """Return passages, one of each memory, best first, with their scores.

    Args:
        index: What is read.
        found: The candidates, those with the best BM25.
        asked: What each term of the query is worth; of those that the index knows.
        weights: What counts besides BM25.
        limit: At most so many.
        id_of: Which memory a passage is of.
        accepts: Whether a passage may be found; asked of what follows a candidate.
    """
    own = {slot: index.look(slot, asked) for slot in found}
    around = _look_around(index, own, asked, weights.before, accepts)
    whole = _weigh_groups(index, {index.group_of(slot) for slot in around} - {-1}, asked, weights.group)
    scores = {slot: context + whole.get(index.group_of(slot), 0.0) for slot, context in around.items()}
    for slot, terms in own.items():
        scores[slot] += sum(terms.values())
    return _cover(scores, own, weights.cover, limit, id_of)


def _look_around(
    index: Passages[Term],
    own: dict[int, dict[Term, float]],
    asked: Mapping[Term, float],
    share: float,
    accepts: Callable[[int], bool],
) -> dict[int, float]:
    """Return the candidates, and what follows a question among them, with what the question counts there."""
    around = dict.fromkeys(own, 0.0)
    for before, said in list(own.items()) if share else ():
        slot = index.answer_to(before)
        if slot < 0 or not accepts(slot):
            continue
        if slot not in own:
            own[slot] = index.look(slot, asked)
        mine = own[slot]
        around[slot] = sum(max(0.0, share * count - mine.get(term, 0.0)) for term, count in said.items())
    return around


def _weigh_groups(
    index: Passages[Term], groups: set[int], asked: Mapping[Term, float], share: float
) -> dict[int, float]:
    """Return the share of the score that groups have: BM25 over each as if it were one text."""
    if not share or not groups:
        return {}
    scores = dict.fromkeys(groups, 0.0)
    count, norms = index.group_norms(groups)
    budget = POSTINGS_LIMIT
    held = {number: index.grouped(number) for number in asked}
    for number in sorted(asked, key=lambda number: (held[number], number)):
        if held[number] > budget:
            break
        budget -= held[number]
        frequency, occurrences = index.count_by_group(number, groups)
        # The idf of passages would count a word that every group has.
        weight = share * asked[number] / index.idf(number) * idf_of(count, frequency)
        for group, often in occurrences.items():
            scores[group] += weight * often / (often + norms[group])
    return scores


def _cover(
    scores: dict[int, float],
    own: dict[int, dict[Term, float]],
    factor: float,
    limit: int,
    id_of: Callable[[int], str | None],
) -> list[tuple[int, float]]:
    """Return slots, one of each memory, best first; a word that was said counts less for those behind."""
    left = dict(sorted(scores.items()))  # what is not picked yet, with what it still counts
    said_by: dict[Term, list[tuple[int, float]]] = {}
    for slot in left:
        for term, count in own[slot].items():
            said_by.setdefault(term, []).append((slot, count))
    worth = dict.fromkeys(said_by, 1.0)
    picked: dict[str | None, tuple[int, float]] = {}
    while left and len(picked) < limit:
        slot = max(left, key=left.__getitem__)
        score, id = left.pop(slot), id_of(slot)
        if id in picked:
            continue
        picked[id] = (slot, score)
        for term in own[slot] if factor < 1.0 else ():
            lost = worth[term] * (1.0 - factor)
            worth[term] -= lost
            for other, count in said_by[term]:
                if other in left:
                    left[other] -= lost * count
    return list(picked.values())
