"""Who is who: the names that texts give to somebody or something.

>>> from .thesaurus import WordsNear
>>> called(["Our dog Biscuit ate a candle."], "dog", WordsNear()), called(["家里的猫叫煤球。"], "猫", WordsNear())
(['biscuit'], ['煤球'])
"""

import re
from collections.abc import Iterable

from . import texts
from .thesaurus import Thesaurus

__all__ = ["called"]

_find_named = re.compile(
    r"(?:^|[.!?]\s+|\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir|[Tt]he|[Aa]n?) (?:[a-z-]+ ){0,2}?)([\w-]+)"
    r"(?:,| is| are)?(?: called| named)?((?: [A-Z]\w+\.?){1,3})"
).findall
"""Return the nouns of a text that a name follows, each with it."""
_match_name = re.compile("的?(?:小名|大名|名字?)?(叫做?)?是?([\u4e00-\u9fff]{2,3})").match
"""Return what may be a name after a word without blanks, and whether the word is called so."""


def called(said: Iterable[str], word: str, thesaurus: Thesaurus) -> list[str]:
    """Return the terms of the names that some texts give to a word: a term, of scripts without blanks a word.

    There, what follows a word is a name where none of its pairs is a known word.
    """
    if not texts.is_unspaced(word):
        named = [each for text in said for each in _find_named(text)]
        names = " ".join(name for noun, name in named if word in texts.terms(noun)[:2])
        return [term for term in texts.terms(names) if not texts.kinds(term) and term not in texts.STOP_WORDS]
    text, found = "\n".join(said), list[str]()
    at = text.find(word)
    while at >= 0:  # a pattern of each word takes a millisecond to compile
        if match := _match_name(text, at + len(word)):
            calls, name = match.groups()
            pairs = [name[:2], name[-2:]]
            if calls:
                found += {*pairs}
            elif len(word) > 1 and name[0] not in texts.STOP_WORDS and not any(map(thesaurus.near, pairs)):
                found.append(name[:2])
        at = text.find(word, match.end() if match else at + 1)
    return [name for name in found if name not in texts.STOP_WORDS]
