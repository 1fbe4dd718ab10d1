"""The words and sentences that tell most of a text, without a model."""

import functools
from collections import Counter
from collections.abc import Sequence

from ...memory.keywords import ChineseKeywordExtractor
from ..core.text import CountTokens, count_tokens, one_line, split_sentences

__all__ = ["telling_sentences", "telling_words"]

_extract = ChineseKeywordExtractor().extract
_WORDS = 40  # that sentences are chosen by
_TEXTS = 100  # of more texts so many, evenly spread, tell what all of them are about
_SAID_ALWAYS = """
hey hello thanks thank yes yeah good great really like just know think get got one also much make made going want user
assistant tool image 你好 谢谢 好的 觉得 感觉 知道 喜欢 真的 今天 一下
"""
_SMALL_TALK = frozenset(_SAID_ALWAYS.split())


def telling_words(texts: Sequence[str], count: int = 12) -> list[str]:
    """Return the words that most of some texts turn on: said in several of them, and long enough to mean something.

    >>> telling_words(["I adopted a puppy!", "Is the puppy called Oliver?", "Oliver it is."], 2)
    ['oliver', 'puppy']
    """
    return list(_rank_words(tuple(_some(texts)))[:count])


def _some(texts: Sequence[str]) -> Sequence[str]:
    return texts[:: 1 + len(texts) // _TEXTS]


@functools.lru_cache(maxsize=4)  # an archive's abstract and its overview ask for the same
def _rank_words(texts: tuple[str, ...]) -> tuple[str, ...]:
    said: Counter[str] = Counter()
    for text in texts:
        words = (word for word in _extract(text[:4000]) if word not in _SMALL_TALK and not word.isdecimal())
        said.update(list(dict.fromkeys(words)))  # each once, and equals in the order of saying in every run
    best = sorted(said, key=lambda word: -said[word] * min(6, 2 * len(word) if not word.isascii() else len(word)))
    return tuple(best[:_WORDS])


def telling_sentences(texts: Sequence[str], limit: int, count: CountTokens = count_tokens) -> list[str]:
    """Return sentences that say most of the telling words, in their order, within `limit` tokens."""
    words = telling_words(texts, _WORDS)
    scored: list[tuple[float, int, int, str]] = []
    for place, text in enumerate(_some(texts)):
        for sentence in split_sentences(text[:4000]):
            sentence = one_line(sentence)
            folded = sentence.casefold()
            hits = sum(map(folded.__contains__, words))
            if hits and len(sentence) <= 400:
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
