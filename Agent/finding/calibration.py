"""From a score to one between 0 and 1 that means the same in every index.

What a score is worth depends on what is indexed: long texts have something of every question, short names of few. So
the index is asked questions to which it has no answer: a few words each, drawn from texts that have nothing to do with
each other. From half of what nine in ten of these stay below, something counts as an answer.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import score, texts

if TYPE_CHECKING:
    from .index import Index

__all__ = ["ANSWER_BAR", "calibrate", "certainty_of", "fuse", "scale_of"]

ANSWER_BAR = 0.5
"""The score from which on something is an answer: one in twenty questions of another subject reaches it."""
USUAL_BAR = 0.13
"""What counts as `ANSWER_BAR` where there are too few texts to draw from; of 22 sets the median is 0.11, and few texts
have fewer rivals for the best one."""
SHARE = 0.5
"""The bar beside what shuffled questions reach: of 22 sets 54 % are answered rightly, 5 % of foreign questions; one
bar for all, as strict, answers 46 % rightly."""
_BARS = 0.06, 0.35  # the least, since all of a small index's forty questions can miss; and the greatest
_GROWN = 4  # times as many texts, from which on the bar is measured again
_ASKED, _DRAWN_FROM = 40, 200  # questions, and texts of which they are made


def scale_of(index: "Index") -> Callable[[float], float]:
    """Return what makes scores of an index comparable: 0.5 stands where few questions without an answer come to."""
    bar = index.kept("bar") or USUAL_BAR

    def scale(score: float) -> float:
        odds = (score / bar) ** 2
        return max(round(odds / (1 + odds), 4), 0.0001 * (score > 0))  # what fits is never rounded to nothing

    return scale


def certainty_of(query: score.Query, found: Sequence[score.Found]) -> float:
    """Return how sure words are of the best, from 0 to 1: at most √coverage, since similar letters say nothing."""
    return min(query.certainty or 0.0, math.sqrt(found[0].coverage)) if found else 0.0


def fuse(words: Mapping[str, float], certainty: float, meaning: Mapping[str, float]) -> dict[str, float]:
    """Return the scores by words and by meaning together, each of them id → 0 to 1.

    order = certainty · words / words of the best + √meaning     what words score depends on how long the texts are
    score = order / order of the first · (1 - (1 - certainty · words) · (1 - meaning)) of the first     a noisy-or:
            either one alone can make an answer, two weak signs do not
    """
    weight = certainty / (max(words.values(), default=0.0) or 1.0)
    ranked = {id: weight * words.get(id, 0.0) + math.sqrt(meaning.get(id, 0.0)) for id in (*words, *meaning)}
    best = max(ranked, key=ranked.__getitem__, default="")
    shown = 1.0 - (1.0 - certainty * words.get(best, 0.0)) * (1.0 - meaning.get(best, 0.0))
    return {id: shown * one / (ranked[best] or 1.0) for id, one in ranked.items()}


def calibrate(index: "Index") -> None:
    """Measure an index again where it has become four times as large, or a quarter. Cost: 40 questions; else 20 µs."""
    counts = index.counts()
    size, measured = counts.get("units", 0) + counts.get("passages", 0), index.kept("measured at") or 0
    if size < score.FEW or measured / _GROWN <= size < _GROWN * measured:
        return
    reached = sorted(_reach(index, query) for query in _shuffled(index))
    if reached:
        index.keep("bar", min(_BARS[1], max(_BARS[0], SHARE * reached[len(reached) * 9 // 10])))
    index.keep("measured at", size)


def _reach(index: "Index", query: str) -> float:
    found = score.rank(score.Query(index, texts.question(query)), 1)
    return found[0].score if found else 0.0


def _shuffled(index: "Index") -> list[str]:
    """Return questions, the same ones for the same texts."""
    draw, cut = random.Random(5), list[list[str]]()
    for names, text in index.read(index.sample(_DRAWN_FROM, 1)).values():
        said = draw.choice(texts.sentences(text[:2_000]) or names or [""])
        if found := [word for word in texts.words(said) if word.casefold() not in texts.STOP_WORDS]:
            cut.append(found)
    return [_join(_draw(draw, draw.choice(cut)) for _ in range(3 + at % 4)) for at in range(_ASKED if cut else 0)]


def _join(words: Iterable[str]) -> str:
    """Return a question of words, as it would be written: without blanks between words of scripts that put none."""
    question = ""
    for word in words:
        is_joined = question and texts.is_unspaced(word) and texts.is_unspaced(question[-1])
        question += word if is_joined else f" {word}"
    return question


def _draw(draw: random.Random, words: list[str]) -> str:
    """Return one word, or a pair of characters."""
    word = draw.choice(words)
    if not texts.is_unspaced(word):
        return word
    start = draw.randrange(max(1, len(word) - 1))
    return word[start : start + 2]
