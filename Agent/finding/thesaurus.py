"""Words that mean nearly the same: a read-only file of each word's near words, made by `benchmarks/build_thesaurus.py`.

>>> thesaurus, note = default()
>>> [word for word, share in thesaurus.near("doctor") if share > 0.45], thesaurus.near("lisbon"), thesaurus.near("qxzv")
(['physician', ...], (), None)

The file has 70,000 English and Chinese words, and is shared by all indexes of a process: of its 8 MB but the pages that
are read are in memory. Opening takes 0.4 ms, a word 14 µs the first time.
"""

import bisect
import logging
import mmap
import os
import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Protocol

__all__ = ["FORMAT", "Thesaurus", "WordsNear", "cut", "default"]

FORMAT = b"near2\0\0\0"
PATH = Path(__file__).with_name("words.near")

_LOGGER = logging.getLogger(__name__)
_HEAD = struct.Struct("<8s3I")  # format, terms, near terms, bytes of text
_LONGEST = 6  # characters of a Chinese word
_APART = 64  # terms of the file for each one in memory, where bisecting begins


class Thesaurus(Protocol):
    """A source of near words; another one can be given to an index."""

    def near(self, term: str) -> Sequence[tuple[str, float]] | None:
        """Return the near words of a term with their shares, the nearest first.

        A share of 0 is that of a word for another thing of its kind, brother and sister, and that of the kind: #person.
        Both are terms as `texts.terms` makes them, of Chinese whole words. None: it does not know the term; nothing: it
        is a name, for which no other word stands.
        """


class WordsNear:
    """The near words of a file.

    Layout: the head; then numbers of 4 bytes: where each term begins in the text, where its near terms begin, and these
    as number · 256 + share · 255; then the text of all terms, which are sorted, so that a bisection finds one.

    Args:
        path: Of the file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is of another version, or was cut; the message names it.
    """

    def __init__(self, path: "str | os.PathLike[str]" = PATH) -> None:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < _HEAD.size:
                raise ValueError(f"{os.fspath(path)!r} is no file of near words")
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        kind, self._count, near, size = _HEAD.unpack_from(whole)
        if kind != FORMAT:
            raise ValueError(f"{os.fspath(path)!r} is a file of near words of another version: {kind!r}")
        places = [_HEAD.size]
        for length in (4 * self._count + 4, 4 * self._count + 4, 4 * near, size):
            places.append(places[-1] + length)
        if places[-1] != len(whole):
            raise ValueError(f"{os.fspath(path)!r} has {len(whole):,} bytes instead of {places[-1]:,}")
        parts = [whole[start:end].cast("I") for start, end in pairwise(places[:4])]
        self._offsets, self._starts, self._near = parts
        self._text = whole[places[3] :]
        self._sample = [*map(self._term, range(0, self._count, _APART))]
        self.near = lru_cache(4096)(self._read)

    def _term(self, number: int) -> bytes:
        return self._text[self._offsets[number] : self._offsets[number + 1]].tobytes()

    def _read(self, term: str) -> tuple[tuple[str, float], ...] | None:
        wanted = term.encode("utf-8", "replace")
        end = min(self._count, _APART * bisect.bisect(self._sample, wanted))
        place = bisect.bisect_left(range(end), wanted, max(0, end - _APART), key=self._term)
        if place == self._count or self._term(place) != wanted:
            return None
        row = self._near[self._starts[place] : self._starts[place + 1]]
        return tuple((self._term(each >> 8).decode(), (each & 255) / 255) for each in row)


@cache
def default() -> tuple[Thesaurus | None, str]:
    """Return the package's thesaurus, and why there is none, or ""."""
    try:
        return WordsNear(), ""
    except (OSError, ValueError) as error:
        note = f"no near words: {error}"
        _LOGGER.warning("texts are found by their own words alone: %s", note)
        return None, note


def cut(run: str, thesaurus: Thesaurus) -> list[str]:
    """Return the longest words that are known of a run of characters, from the right; others are single characters.

    From the left 门外语 were 门外 and 语.
    """
    found, end = list[str](), len(run)
    while end:
        starts = range(max(0, end - _LONGEST), end - 1)
        start = next((start for start in starts if thesaurus.near(run[start:end]) is not None), end - 1)
        found.append(run[start:end])
        end = start
    return found[::-1]
