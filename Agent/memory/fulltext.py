"""Find memories by what they say: a full-text index in memory, for Chinese and English alike.

>>> index = FullTextIndex()
>>> index.add("1", "Caroline: I adopted a puppy in May.", group="chat")
>>> index.add("2", "Melanie: Congratulations! What is it called?", group="chat")
>>> index.add("3", "Caroline: Oliver!", group="chat")
>>> index.add("4", "龙井是杭州的绿茶。")
>>> [hit.id for hit in index.rank("What is Caroline's puppy called?")]
['1', '3', '2']
>>> [hit.id for hit in index.rank("杭州产什么茶")]
['4']

The ranking is BM25 (Robertson & Zaragoza 2009) over stemmed words without stop words, in scripts without spaces over
characters and pairs of them, plus four terms. Each was kept because it finds more evidence on a set of questions in
English or in Chinese without losing on the other one; `benchmarks/bench_memory.py` measures them one by one.

- *Before*: where a question stands just before in the same group, its words count 0.5, but for those that the memory
  has itself. An answer seldom repeats the question.
- *Group*: BM25 over all that belongs together (a conversation, a document) counts 0.5.
- *Question*: in a query of several sentences, those that ask nothing count 0.3; the last one counts fully.
- *Cover*: of what is ranked, each word that one memory has said counts 0.85 for those behind it. So a question with two
  halves finds both, and ten memories that say the same do not fill the view.
"""

import heapq
import math
import re
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from ..keyword_tree import _Compose, _IsUnspaced
from .keywords import STOP_WORDS, find_words

__all__ = ["FullTextIndex", "Hit", "Passages", "RankingWeights", "idf_of", "norm_of", "score_passages"]
__all__ += ["split_passages", "terms_of", "worth_of"]

PASSAGE_LIMIT = 800
"""Characters of a passage; a longer text is cut where a paragraph or a sentence ends."""

POSTINGS_LIMIT = 15_000
"""So many postings are read for a query, the rarest terms first and of each the newest; bounds its time at any size."""

CANDIDATES = 200
"""So many passages are looked at closely, those with the best BM25."""

LOOKED_THROUGH = 5_000
"""Where so few memories are asked for at most, all of them are looked at, and no postings are read."""

_Numbers: TypeAlias = "array[int]"

_K1, _B = 1.5, 0.75
_LENGTHS, _LENGTH_STEP = 32, 1.35  # lengths are kept to a sixth: 32 steps reach 11,000 terms
_TF_LIMIT = 7


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
    for unspaced, spaced in find_words(_Compose(text)):
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


# What makes a question of a text, or could stand in any: it says nothing of what the question is about.
_drop_asking = re.compile(
    "什么时候|什么样|什么|为什么|怎么样|怎么|怎样|哪里|哪儿|哪些|哪|多少|多久|多大|几|谁|是不是|有没有|请问|告诉|知道|"
    "这个|那个|一个|现在|需要|应该|可以|[我你您他她它们的了是在吗呢吧啊呀]|"
    r"\b(?:much|many|tell|know|(?:get|go|goe|need|want|use)s?|now|still)\b",
    re.IGNORECASE,
).sub


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

    @property
    def is_bm25(self) -> bool:
        """Whether the order is that of BM25 alone, so that none but the best need a closer look."""
        return (self.before, self.group, self.cover) == (0.0, 0.0, 1.0)


class Hit(NamedTuple):
    """One memory that was found."""

    score: float
    """From 0 to 1: the share of what the query asks for that it says and those before it do not."""
    id: str
    """As it was added."""
    passage: int
    """Which of its passages fits best, from 0."""


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


class FullTextIndex:
    """An inverted index over passages; any number of threads may use it.

    Args:
        weights: What counts besides BM25.

    Cost: some 1 KB and 60 µs for a memory of 20 words; a query some milliseconds, at most 50 among 100,000.
    """

    # A posting is one integer: slot << 8 | length step << 3 | occurrences; 32 bits hold 16 million slots. A changed
    # memory gets new slots and its old ones die, so nothing is searched for at a removal. `_terms_at` is the same the
    # other way round, slot by slot: what the few candidates are looked at closely by, and what the index is built from
    # when most slots are dead.

    def __init__(self, weights: RankingWeights | None = None) -> None:
        self.weights = weights or RankingWeights()
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._numbers: dict[str, int] = {}  # of terms
        self._postings: list[array[int]] = []  # by term
        self._group_postings: list[array[int]] = []  # by term: a group for each passage that has it
        self._group_counts: dict[int, tuple[int, int]] = {}  # by term: of so many of them, how many groups they name
        self._ids: list[str | None] = []  # by slot
        self._terms_at: list[array[int]] = []  # by slot: term << 3 | occurrences
        self._lengths: array[int] = array("I")  # by slot
        self._group_at: array[int] = array("i")  # by slot; -1 is none
        self._before: array[int] = array("i")  # by slot: the slot before it in its group, or -1
        self._after: array[int] = array("i")
        self._asks = bytearray()  # by slot: whether it asks something
        self._groups: dict[str, int] = {}
        self._last_of: list[int] = []  # by group: its newest slot
        self._group_lengths: list[int] = []
        self._slots_of: dict[str, tuple[int, ...]] = {}
        self._length = 0
        self._live = 0  # slots

    def __len__(self) -> int:
        return len(self._slots_of)

    def add(self, id: str, text: str | Sequence[str], group: str | None = None) -> None:
        """Index a memory, in the place of what was there by this id.

        Args:
            id: What `rank` calls it.
            text: All of it, or its passages; what stands in one passage belongs together.
            group: What it belongs to: a conversation, a document. The order of adding is that of the group; what is
                added again within the same group keeps its place there.
        """
        passages = [
            (Counter(terms_of(passage)), _asks(passage))
            for passage in (split_passages(text) if isinstance(text, str) else text)
        ]
        with self._lock:
            number = -1 if group is None else self._group_number(group)
            behind, ahead = (self._last_of[number] if number >= 0 else -1), -1
            old = self._slots_of.get(id)
            if old and self._group_at[old[0]] == number >= 0:
                behind, ahead = self._before[old[0]], self._after[old[-1]]
            self._drop(id)
            slots = []
            for counts, asks in passages:
                slot = self._add_passage(id, counts, counts.total(), number, asks)
                if number >= 0:
                    self._link(slot, behind, ahead)
                behind = slot
                slots.append(slot)
            self._slots_of[id] = tuple(slots)
            self._tidy()

    def _group_number(self, group: str) -> int:
        number = self._groups.setdefault(group, len(self._groups))
        if number == len(self._last_of):
            self._last_of.append(-1)
            self._group_lengths.append(0)
        return number

    def _add_passage(self, id: str, counts: Mapping[str, int], length: int, group: int, asks: bool) -> int:
        """Add one passage, without a place in its group.  Returns its slot."""
        slot = len(self._ids)
        self._live += 1
        self._ids.append(id)
        self._asks.append(asks)
        self._lengths.append(length)
        self._group_at.append(group)
        self._before.append(-1)
        self._after.append(-1)
        if group >= 0:
            self._group_lengths[group] += length
        self._length += length
        entry = slot << 8 | _length_step(length) << 3
        own = []
        for term, count in counts.items():
            number = self._numbers.setdefault(term, len(self._postings))
            if number == len(self._postings):
                self._postings.append(array("I"))
                self._group_postings.append(array("I"))
            count = min(count, _TF_LIMIT)
            self._postings[number].append(entry | count)
            own.append(number << 3 | count)
            if group >= 0:
                self._group_postings[number].append(group)
        self._terms_at.append(array("I", own))
        return slot

    def _link(self, slot: int, behind: int, ahead: int) -> None:
        """Give a slot its place between two of its group; -1 is none."""
        self._before[slot], self._after[slot] = behind, ahead
        if behind >= 0:
            self._after[behind] = slot
        if ahead >= 0:
            self._before[ahead] = slot
        else:
            self._last_of[self._group_at[slot]] = slot

    def remove(self, id: str) -> None:
        """Forget a memory; one that is not there is no error."""
        with self._lock:
            self._drop(id)
            self._tidy()

    def _drop(self, id: str) -> None:
        slots = self._slots_of.pop(id, ())
        self._live -= len(slots)
        for slot in slots:
            self._ids[slot] = None
            self._join(slot)

    def _join(self, slot: int) -> None:
        """Let the neighbours of a dead slot be neighbours."""
        before, after, group = self._before[slot], self._after[slot], self._group_at[slot]
        if before >= 0:
            self._after[before] = after
        if after >= 0:
            self._before[after] = before
        if group >= 0:
            self._group_lengths[group] -= self._lengths[slot]
            if self._last_of[group] == slot:
                self._last_of[group] = before

    def _tidy(self) -> None:
        """Leave the dead slots out, where most are."""
        if len(self._ids) <= 64 or len(self._ids) <= 2 * self._live:
            return
        kept = FullTextIndex(self.weights)
        terms, groups = list(self._numbers), list(self._groups)
        moved = {-1: -1}
        for slot, id in enumerate(self._ids):
            if id is None:
                continue
            group = self._group_at[slot]
            number = kept._group_number(groups[group]) if group >= 0 else -1
            counts = {terms[entry >> 3]: entry & 7 for entry in self._terms_at[slot]}
            moved[slot] = kept._add_passage(id, counts, self._lengths[slot], number, bool(self._asks[slot]))
            kept._slots_of[id] = (*kept._slots_of.get(id, ()), moved[slot])
        for old, new in moved.items():
            if new >= 0 and self._group_at[old] >= 0:
                kept._link(new, moved[self._before[old]], moved[self._after[old]])
        vars(self).update((name, value) for name, value in vars(kept).items() if name not in ("weights", "_lock"))

    def rank(
        self, query: str, limit: int = 50, among: Collection[str] | None = None, rarest: int | None = None
    ) -> list[Hit]:
        """Return the memories that fit a query, best first, equals in the order of adding.

        Args:
            query: A question, any text.
            limit: At most so many.
            among: Only these; a set, where there are many.
            rarest: Only so many of the query's terms count, the rarest; a few take a tenth of the time. None is all.
        """
        with self._lock:
            return self._rank(query, limit, among, rarest)

    def _rank(self, query: str, limit: int, among: Collection[str] | None, rarest: int | None) -> list[Hit]:
        worth = self._worth(query)
        if rarest is not None:
            worth = dict(heapq.nlargest(rarest, worth.items(), key=itemgetter(1)))
        asked = {number: value for term, value in worth.items() if (number := self._numbers.get(term)) is not None}
        # A look at a memory takes as long as some twenty postings; reading all postings finds the same.
        postings = sum(len(self._postings[number]) for number in asked)
        is_longer = postings > min(POSTINGS_LIMIT // 2, _LOOK * len(among or ()))
        scorer = _Scorer(self, asked, min(CANDIDATES, 3 * limit) if self.weights.is_bm25 else CANDIDATES)
        if among is not None and len(among) <= LOOKED_THROUGH and is_longer:
            found = scorer.look_through(among)
        else:
            found = scorer.scan(among)
        if not found:
            return []
        ids = self._ids
        picked = score_passages(
            scorer, found, asked, self.weights, limit, ids.__getitem__, lambda slot: among is None or ids[slot] in among
        )
        ideal = sum(worth.values())  # what a passage that said nothing but the query, often, would come near
        return [Hit(min(1.0, score / ideal), str(self._ids[slot]), self._place(slot)) for slot, score in picked]

    def shares(self, query: str) -> dict[str, float]:
        """Return what share of a query each of its terms is, by how rare it is; they sum up to 1."""
        with self._lock:
            worth = self._worth(query)
        total = sum(worth.values())
        return {term: value / total for term, value in worth.items()} if total else {}

    def shares_of_topic(self, query: str) -> dict[str, float]:
        """Return what share of what a query is about each of its terms is, by how rare it is; none where it is nothing.

        They sum up to 1, but in scripts without spaces, where every other pair of characters spans two words, to more.
        """
        topic = frozenset(terms_of(_drop_asking(" ", query)))
        with self._lock:
            worth = {term: value for term, value in self._worth(query).items() if term in topic}
        total = sum(value / 2 if len(term) == 2 and _IsUnspaced(term) else value for term, value in worth.items())
        return {term: value / total for term, value in worth.items()} if total else {}

    def coverage(self, id: str, shares: Mapping[str, float], named: Collection[str] = ()) -> float:
        """Return the sum of the shares of what a memory says, itself, by a name or by the question just before it."""
        with self._lock:
            slots = self._slots_of.get(id, ())
            asked = [before for slot in slots if (before := self._before[slot]) >= 0 and self._asks[before]]
            said = {entry >> 3 for slot in (*slots, *asked) for entry in self._terms_at[slot]}
            return sum(share for term, share in shares.items() if term in named or self._numbers.get(term) in said)

    def lacking(self, id: str, terms: Iterable[str]) -> set[str]:
        """Return those of some terms that a memory does not say."""
        with self._lock:
            numbers = {term: self._numbers.get(term, -1) for term in terms}
            slots = self._slots_of.get(id, ()) if numbers else ()
            said = {entry >> 3 for slot in slots for entry in self._terms_at[slot]}
        return {term for term, number in numbers.items() if number not in said}

    def _worth(self, query: str) -> dict[str, float]:
        """Return what a passage could get for each term of the query: its weight · idf · (k1 + 1)."""
        return worth_of(query, self.weights.aside, lambda term: self._idf(self._numbers.get(term)))

    def _idf(self, number: int | None) -> float:
        """Return how rare a term is; None is one that nobody has said."""
        return idf_of(len(self._ids), 0 if number is None else len(self._postings[number]))

    def _place(self, slot: int) -> int:
        return self._slots_of[str(self._ids[slot])].index(slot)

    def _average(self) -> float:
        """Return how many terms a passage has; the dead count until they are left out."""
        return max(1.0, self._length / max(1, len(self._ids)))

    # -- keeping it on disk --

    def to_parts(self) -> tuple[dict[str, Any], list[_Numbers]]:
        """Return all of it as a JSON object and flat arrays, for `from_parts`."""
        with self._lock:
            names = {"terms": list(self._numbers), "groups": list(self._groups), "ids": self._ids.copy()}
            held = (self._postings, self._group_postings, self._terms_at)
            flat = [part for lists in held for part in (array("I", map(len, lists)), _join_arrays(lists))]
            rest = [array("B", self._asks), self._lengths[:], self._group_at[:], self._before[:], self._after[:]]
            of_groups = [array("i", self._last_of), array("Q", self._group_lengths)]
            return {**names, "length": self._length}, [*flat, *rest, *of_groups]

    @classmethod
    def from_parts(
        cls, names: Mapping[str, Any], parts: Sequence[_Numbers], weights: RankingWeights | None = None
    ) -> Self:
        """Return the index that `to_parts` took apart.

        Raises:
            ValueError: The parts do not fit each other.

        Cost: some 3 µs for a memory.
        """
        made = cls(weights)
        made._numbers = {term: number for number, term in enumerate(names["terms"])}
        made._groups = {group: number for number, group in enumerate(names["groups"])}
        made._ids, made._length = list(names["ids"]), int(names["length"])
        lists = [_cut_array(*parts[place : place + 2]) for place in (0, 2, 4)]
        made._postings, made._group_postings, made._terms_at = lists
        asks, made._lengths, made._group_at, made._before, made._after, last_of, group_lengths = parts[6:]
        made._asks, made._last_of, made._group_lengths = bytearray(asks), list(last_of), list(group_lengths)
        by_slot = (made._terms_at, made._lengths, made._group_at, made._before, made._after, made._asks)
        sizes = {len(made._ids)} | {len(held) for held in by_slot}
        by_term = {len(made._numbers), len(made._postings), len(made._group_postings)}
        by_group = {len(made._groups), len(made._last_of), len(made._group_lengths)}
        if max(map(len, (sizes, by_term, by_group))) > 1:
            raise ValueError("the parts of the index do not fit each other")
        slots_of: dict[str, list[int]] = {}
        for slot, id in enumerate(made._ids):
            if id is not None:
                slots_of.setdefault(id, []).append(slot)
        made._live = sum(map(len, slots_of.values()))
        made._slots_of = {id: tuple(slots) for id, slots in slots_of.items()}
        return made


class _Scorer:
    """What `score_passages` reads of an index in memory, for one query.

    Args:
        index: Nobody changes it meanwhile.
        asked: What each term of the query is worth, by its number.
        count: So many of the best are to be found.
    """

    def __init__(self, index: FullTextIndex, asked: Mapping[int, float], count: int) -> None:
        self._index, self._asked, self._count = index, asked, count
        average = index._average()
        norms = [norm_of(_LENGTH_STEP**step / average) for step in range(_LENGTHS)]
        # What each low byte of a posting says, of the worth of its term.
        self._share = [(low & 7) / ((low & 7) + norms[low >> 3]) for low in range(256)]
        self._least_norm = norm_of(0.0)
        self._norm_of_term = norm_of(1.0 / average) - self._least_norm
        # Whatever a passage may have of the query: to look that up for each of its terms would take five times as long.
        self._wanted = frozenset(number << 3 | often for number in asked for often in range(1, _TF_LIMIT + 1))
        self._looks: dict[int, dict[int, float]] = {}

    def look_through(self, ids: Collection[str]) -> list[int]:
        """Return the slots with the best BM25 of a few memories."""
        slots = [slot for id in ids for slot in self._index._slots_of.get(id, ())]
        return self._best({slot: sum(said.values()) for slot in slots if (said := self.look(slot, self._asked))})

    def scan(self, among: Collection[str] | None) -> list[int]:
        """Return the slots with the best BM25.

        The rarest terms are read first. Once what is left to be read cannot bring a new slot among the best (MaxScore,
        Turtle & Flood 1995), those that can still be among them are looked at instead, if they are few.
        """
        index = self._index
        scores: dict[int, float] = {}
        # Of what is asked for only a share is in each posting list, so more are read; at most twice as many.
        share = 1.0 if among is None else max(0.5, len(among) / max(1, len(index._slots_of)))
        budget = int(POSTINGS_LIMIT / share)
        numbers = sorted(self._asked, key=lambda number: (len(index._postings[number]), number))
        unread = sum(len(index._postings[number]) for number in numbers)
        all_there_is = most = math.fsum(self._asked.values()) * _TF_LIMIT / (_TF_LIMIT + self._least_norm)
        for number in numbers:
            # What is still to be had must be less than what anybody can have.
            is_less = 2 * most < all_there_is and len(scores) > self._count
            if is_less and min(unread, budget) > max(_LOOK * self._count, len(scores)):
                least = _least(self._foremost(scores, among).values(), self._count)
                gap = least - most  # who is not among them yet cannot come before those that are
                hopeful = {slot: score for slot, score in scores.items() if score >= gap} if gap > 0 else {}
                if hopeful and len(hopeful) * _LOOK < min(unread, budget):
                    hopeful = self._accepted(hopeful, among)
                    return self._best({slot: sum(self.look(slot, self._asked).values()) for slot in hopeful})
            held = index._postings[number]
            unread -= len(held)
            if len(held) > budget:
                if among is None and len(scores) >= self._count:
                    break  # to read a part would favour whoever is in it
                held = held[-budget:] if budget > 0 else held[:0]
            budget -= len(held)
            weight = self._asked[number]
            most -= weight * _TF_LIMIT / (_TF_LIMIT + self._least_norm)
            gain = [weight * share for share in self._share]
            for posting in held:
                slot = posting >> 8
                scores[slot] = scores.get(slot, 0.0) + gain[posting & 255]
        return self._best(self._foremost(scores, among))

    def _best(self, scores: dict[int, float]) -> list[int]:
        """Return the slots with the best scores, equals in their order."""
        # The first ones have the rarest terms: who is worse than their best, is not among the best of all.
        least = _least(list(islice(scores.values(), 10 * self._count)), self._count)
        best = [(-score, slot) for slot, score in scores.items() if score >= least]
        return [slot for _, slot in sorted(best)[: self._count]]

    def _foremost(self, scores: dict[int, float], among: Collection[str] | None) -> dict[int, float]:
        """Return the scores of those that may be found, maybe without some behind the best."""
        if among is None and len(self._index._ids) == self._index._live:
            return scores
        if len(scores) > 16 * self._count:  # to ask of each whether it may be found takes as long as reading all
            least = _least(scores.values(), 8 * self._count)
            foremost = self._accepted({slot: score for slot, score in scores.items() if score >= least}, among)
            if len(foremost) >= self._count:
                return foremost
        return self._accepted(scores, among)

    def _accepted(self, scores: dict[int, float], among: Collection[str] | None) -> dict[int, float]:
        ids = self._index._ids
        if among is not None:
            return {slot: score for slot, score in scores.items() if ids[slot] in among}
        if len(ids) > self._index._live:
            return {slot: score for slot, score in scores.items() if ids[slot] is not None}
        return scores

    def look(self, slot: int, asked: Mapping[int, float]) -> dict[int, float]:
        """Return what each term of a query counts in a passage."""
        said = self._looks.get(slot)
        if said is None:
            norm = self._least_norm + self._norm_of_term * self._index._lengths[slot]
            said = self._looks[slot] = {
                entry >> 3: asked[entry >> 3] * (entry & 7) / ((entry & 7) + norm)
                for entry in self._wanted.intersection(self._index._terms_at[slot])
            }
        return said

    def answer_to(self, slot: int) -> int:
        """Return what follows a passage that asks something in its group, else -1."""
        return self._index._after[slot] if self._index._asks[slot] else -1

    def group_of(self, slot: int) -> int:
        """Return the group of a passage, or -1."""
        return self._index._group_at[slot]

    def idf(self, number: int, /) -> float:
        """Return how rare a term is."""
        return self._index._idf(number)

    def group_norms(self, groups: Collection[int]) -> tuple[int, dict[int, float]]:
        """Return how many groups there are, and BM25's norm of each of some."""
        lengths = self._index._group_lengths
        average = max(1.0, sum(lengths) / max(1, len(lengths)))
        return len(lengths), {group: norm_of(lengths[group] / average) for group in groups}

    def grouped(self, number: int, /) -> int:
        """Return how many passages of groups say a term."""
        return len(self._index._group_postings[number])

    def count_by_group(self, number: int, groups: Set[int], /) -> tuple[int, Mapping[int, int]]:
        """Return how many groups say a term, and of some of them how many passages do."""
        held = self._index._group_postings[number]
        counted, frequency = self._index._group_counts.get(number, (0, 0))
        if counted != len(held):
            frequency = len(set(held))
            self._index._group_counts[number] = (len(held), frequency)
        return frequency, Counter(filter(groups.__contains__, held))


_LOOK = 20  # postings are read in the time of one look


def _least(scores: Collection[float], count: int) -> float:
    """Return the score that so many reach; 0 where there are not so many.

    A heap of the bare scores takes half the time of one of pairs, and for a few a quarter of the time of sorting.
    """
    return heapq.nlargest(count, scores)[-1] if len(scores) >= count else 0.0


def _join_arrays(lists: Sequence[_Numbers]) -> _Numbers:
    joined = array("I")
    joined.frombytes(b"".join(held.tobytes() for held in lists))
    return joined


def _cut_array(counts: _Numbers, joined: _Numbers) -> list[_Numbers]:
    ends = list(accumulate(counts))
    if (ends[-1] if ends else 0) != len(joined):
        raise ValueError("the parts of the index do not fit each other")
    return [joined[end - count : end] for count, end in zip(counts, ends, strict=True)]


def _asks(text: str) -> bool:
    return "?" in text or "？" in text


def _length_step(length: int) -> int:
    return min(_LENGTHS - 1, round(math.log(max(1, length), _LENGTH_STEP)))
