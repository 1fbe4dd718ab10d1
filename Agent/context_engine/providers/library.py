"""What the engine takes from the rest of the library: folder names and slugs, extraction, relations, secrets, words."""

import functools
from collections import Counter
from collections.abc import Sequence

from ...keyword_tree import InvalidInputError
from ...memory.extraction import SCHEMA, Fact, Shown, check_fact, make_question, within
from ...memory.keywords import ChineseKeywordExtractor
from ...memory.names import encode_name, slug_of
from ...memory.relation_words import ONE_AT_A_TIME, asked_relations, relation_of, subjects_of, words_of
from ...secrets_in_text import find_cookies, find_credentials
from ...secrets_in_text import mask as _mask_shapes
from ..core.text import CountTokens, count_tokens, digest_of, one_line, split_sentences

__all__ = [
    "ONE_AT_A_TIME",
    "SCHEMA",
    "Fact",
    "Shown",
    "asked_relations",
    "check_fact",
    "encode_folder",
    "make_question",
    "make_slug",
    "mask",
    "relation_of",
    "subjects_of",
    "telling_sentences",
    "telling_words",
    "within",
    "words_of",
]


def encode_folder(segment: str) -> str:
    """Return what a segment's folder is called: no two segments share one, on any file system.

    >>> encode_folder("Ada"), encode_folder("content.md"), encode_folder("龙井")
    ('%41da', 'content%2Emd', '龙井')

    Raises:
        ValueError: It would be longer than 200 bytes.
    """
    try:
        return encode_name("segment", segment)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


def make_slug(name: str, limit: int = 160) -> str:
    """Return a name as a segment, in its own script; a URI has no `#`, so that C# is written c♯.

    >>> make_slug("喝 龙井!"), make_slug("C++"), make_slug("C#"), make_slug("../x")
    ('喝-龙井', 'c++', 'c♯', 'x')
    >>> len(encode_folder(make_slug("茶" * 500)).encode()) <= 160
    True

    Args:
        name: Any text.
        limit: Bytes of the folder's name; a longer slug ends in a digest.
    """
    slug = slug_of(name).replace("#", "♯")
    if _folder_bytes(slug) <= limit:
        return slug
    digest = digest_of(slug, size=6)
    while slug and _folder_bytes(slug) > limit - len(digest) - 1:
        slug = slug[:-1]
    return f"{slug.rstrip('-')}-{digest}"


def _folder_bytes(slug: str) -> int:
    return sum(1 if char in _PLAIN else 3 * len(char.encode()) for char in slug)  # what is coded takes three each


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


def mask(text: str) -> str:
    """Return a text without what looks like a secret.

    >>> mask('{"password": "4f9a8b7c6d5e4f3a"}')
    '{"password": "[secret]"}'
    """
    text = _mask_shapes(text)
    for value in sorted({*find_credentials(text), *find_cookies(text)}, key=len, reverse=True):
        if value not in "[secret]":  # it is masked already
            text = text.replace(value, "[secret]")
    return text


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
