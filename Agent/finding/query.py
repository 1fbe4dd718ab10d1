"""A question: its terms and near words, and their postings in an index, summed up; see `score`."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from heapq import nlargest
from itertools import pairwise
from typing import TypeAlias

from . import texts
from .codes import NAME_BITS, decode
from .packing import Postings, count_of
from .rows import Rows
from .thesaurus import Thesaurus, cut

__all__ = ["MISSPELLED", "Query", "words_of"]

K1, B = 1.2, 0.75  # BM25F's own (Robertson & Zaragoza 2009)
NAME = 2.0  # the weight of a name beside a text of usual length
CHARACTER = 0.2  # of one beside a pair that texts have, see `_share`, and of a stop word; at 0.4 Chinese facts lose 1.4
FEW = 30  # texts that do not yet show which words are rare: fewer count as so many, and the bar is not measured

READ = 10_000  # postings that are read for a question, the rarest terms first; the first term is always read
DROPPED = 5_000  # postings: of fewer, to sum up all takes less than to find out what cannot be one of the best
TERMS = 64  # terms that are read at most
MISSPELLED = 0.9  # the weight of a word that an unknown one misspells
NEAR_READ = 3_000  # postings of near words that are read, the nearest first; 1,000 and 10,000 find 0.2 and 0.1 less
CALLED = 0.8  # the share of a name for what it is the name of
INTRODUCED, _BEGINNING = 12, 300  # texts at most in which a name is looked for; characters of each
_ABOVE = 1 + 1e-9  # beyond what sums are rounded by


_Saturated: TypeAlias = Callable[[int], float]
"""Returns what a code is of the most that a term can bring: tf / (K1 + tf)."""


def _add(
    gains: dict[int, float], postings: Postings, weight: float, saturated: _Saturated, are_known: bool = False
) -> None:
    """Add the gains of a term to those of the documents so far; `are_known`: of no others."""
    is_first = not gains
    for code, documents in postings.items():
        gain = weight * saturated(code)
        if is_first:
            gains.update(dict.fromkeys(documents, gain))
        else:
            for document in filter(gains.__contains__, documents) if are_known else documents:
                gains[document] = gains.get(document, 0.0) + gain


class Query:
    """A question's terms with their postings in the index."""

    def __init__(
        self,
        index: Rows,
        asked: Mapping[str, float],
        name_weight: float = NAME,
        query: str = "",
        thesaurus: Thesaurus | None = None,
    ) -> None:
        self.index = index
        self.thesaurus = thesaurus or index.thesaurus
        self._name_weight = name_weight
        self.counts = counts = index.counts()
        self.total = max(FEW, counts.get("units", 0) + counts.get("passages", 0))
        self._means = [
            max(1.0, counts.get(f"{what} terms", 0) / max(1, counts.get(f"{what}s", 0)))
            for what in ("name", "text", "passage")
        ]
        self.frequencies = index.frequencies(asked)
        self.asks_time = "#time" in asked
        said = {term for term, count in asked.items() if count > texts.ASIDE} - texts.KINDS
        self.telling = said - texts.STOP_WORDS
        self.is_empty = not self.telling
        """Whether the question has but stop words, so that nothing can answer it."""
        self.telling = self.telling or said or {*asked}
        pairs = [term for term in asked if len(term) == 2 and texts.is_unspaced(term)]
        self._in_pairs = {*"".join(pairs)}
        self._in_known_pairs = {*"".join(self.frequencies.keys() & {*pairs})}
        unknown = [term for term in asked if term not in self.frequencies and term in self.telling]
        grams = dict.fromkeys(texts.trigrams(unknown))
        self.frequencies |= index.frequencies(grams) if grams else {}
        self.said = texts.fold(query)
        self.words = self._find_words(query)
        """The words that are asked for, each with its terms."""
        self.weights = {term: weight * self.idf(term) * self._share(term) for term, weight in asked.items()}
        self.postings = index.postings([*self._choose(self.weights)])
        unread = self.frequencies.keys() - self.postings.keys()
        self.weights = {term: weight for term, weight in self.weights.items() if term not in unread}
        self.mass = self.weigh(self.weights) or 1.0
        self.lent: dict[str, dict[int, tuple[int, float]]] = {}
        """Term → document → the code of the nearest word that it has in place of the term, and its share."""
        self.near: dict[str, dict[str, float]] = self._find_near(self.thesaurus)
        """Term → near words that the index has, each with its share."""
        if any(self.near.values()):
            self._read_near()
        self._saturated = self._saturate(K1)
        self._codes: dict[int, dict[str, tuple[int, float]]] = {}
        """Document → the terms that it has, each with its code and its share."""
        self.covered: dict[int, float] = {}
        """Document → the weight of its terms that tell something, of those that were looked at."""
        self._grams = list(grams)

    def idf(self, term: str) -> float:
        """Return the inverse document frequency of a term."""
        frequency = min(self.total, self.frequencies.get(term, 0))
        if self._is_minor(term):  # common in the language, also where few texts have it
            frequency = max(frequency, self.total // 2)
        return math.log(1 + (self.total - frequency + 0.5) / (frequency + 0.5))

    def _is_minor(self, term: str) -> bool:
        """Return whether a term is a stop word beside others."""
        return not self.is_empty and term in texts.STOP_WORDS

    def _share(self, term: str) -> float:
        """Return the weight of a term: a character that stands alone in the question is a word.

        Where texts have none of the pairs that it makes, it counts for these, the more the rarer it is (back-off).
        """
        if self._is_minor(term) or term in self._in_known_pairs or term in self._across:
            return CHARACTER
        return self.idf(term) / self.idf("") if term in self._in_pairs else 1.0

    def _find_words(self, query: str) -> list[tuple[str, list[str]]]:
        """Return the words that are asked for; see `words_of`."""
        asking = texts.cut_question(query)[0] if query else ()
        found = [each for part in asking for each in words_of(texts.drop_units(part), self.thesaurus)]
        unspaced = [word if texts.is_unspaced(word) else "" for word, _ in found]
        self._across = {a[-1] + b[0] for a, b in pairwise(unspaced) if a and b and len(a + b) > 2}
        return found[: 4 * TERMS]

    def _find_near(self, thesaurus: Thesaurus | None) -> dict[str, dict[str, float]]:
        """Return term → near word → share, of words that the index has; a pair of characters is near by its word."""
        asked = self.telling & self.weights.keys()
        words = {term: [term] for term in asked if not texts.is_unspaced(term)}
        for word, parts in self.words:
            for part in parts if texts.is_unspaced(word) else ():
                if part in asked:
                    words.setdefault(part, []).append(word)
        found = self._find_called(thesaurus) if thesaurus else {}
        for term, said in [*words.items()][:TERMS]:
            is_word = term in self.frequencies or (thesaurus is not None and thesaurus.near(term) is not None)
            near = dict.fromkeys(() if is_word else self.index.frequencies(texts.corrections(term)), MISSPELLED)
            for word in () if texts.has_digit(term) else said:
                known = (thesaurus.near(word) or ()) if thesaurus else ()
                others = {other: share for other, share in known if share}
                for other in [term, *(others.keys() & texts.STOP_WORDS)]:
                    others.pop(other, None)
                near = others | {other: max(share, others.get(other, 0.0)) for other, share in near.items()}
            found[term] = near | found.get(term, {})
        return found

    def _find_called(self, thesaurus: Thesaurus) -> dict[str, dict[str, float]]:
        """Return term → names that the index's texts give what it says: our dog Biscuit, 女儿豆豆."""
        found = dict[str, dict[str, float]]()
        for word, parts in self.words:
            key = word if texts.is_unspaced(word) else "".join(parts)
            if not self.telling & self.postings.keys() >= {*parts} or not thesaurus.near(key) or texts.kinds(word):
                continue
            if min(map(self.frequencies.__getitem__, parts)) <= INTRODUCED:
                documents = set.intersection(*[set[int]().union(*self.postings[part].values()) for part in parts])
                said = [text[:_BEGINNING] for _, text in self.index.read(documents).values()]
                names = dict.fromkeys(called(said, key, thesaurus), CALLED)
                found |= {part: {**names, **found.get(part, {})} for part in parts}
        return found

    def _read_near(self) -> None:
        """Add the postings of near words, the nearest first, as far as they may be read."""
        others = {other for near in self.near.values() for other in near}
        parts = {other: _pairs(other) for other in others if len(other) > 2 and texts.is_unspaced(other)}
        known = self.index.frequencies((others - parts.keys()).union(*parts.values()))
        held = {other: n for other, n in known.items() if other in others}
        held |= {other: min(map(known.__getitem__, each)) for other, each in parts.items() if known.keys() >= {*each}}
        chosen, left = list[tuple[float, str, str]](), NEAR_READ
        wanted = [
            (-share, held[other], term, other)
            for term, near in self.near.items()
            for other, share in near.items()
            if other in held
        ]
        for share, _, term, other in sorted(wanted):
            left -= held[other]
            if left < 0:
                break
            chosen.append((-share, term, other))
        read = self.index.postings({part for _, _, other in chosen for part in parts.get(other, [other])})
        self.near = {}
        for share, term, other in chosen:
            self.near.setdefault(term, {})[other] = share
        for share, term, other in reversed(chosen):  # the nearest comes last, and stands
            lent = self.lent.setdefault(term, {})
            first, *rest = (read[part] for part in sorted(parts.get(other, [other]), key=known.__getitem__))
            shared = [set[int]().union(*part.values()) for part in rest]
            for code, documents in first.items():
                there = {*documents}.intersection(*shared) if shared else documents
                lent.update(dict.fromkeys(there, (code, share)))
        for term, lent in self.lent.items():
            for documents in self.postings.setdefault(term, {}).values():
                for document in lent.keys() & documents:
                    del lent[document]

    def shares_of(self, documents: Iterable[int]) -> dict[str, float]:
        """Return term → the greatest share of it that some documents have."""
        found = dict[str, float]()
        for document in documents:
            for term, (_, share) in self._codes_of(document).items():
                found[term] = max(found.get(term, 0.0), share)
        return found

    def quoted(self) -> dict[str, float]:
        """Return term → weight of the words that stand in texts for those of the question."""
        near = {other: share * self.weights[term] for term, each in self.near.items() for other, share in each.items()}
        return {**near, **{term: weight for term, weight in self.weights.items() if term in self.telling}}

    def _choose(self, terms: Collection[str]) -> Iterator[str]:
        """Yield the rarest terms as far as they may be read, stop words last."""
        left = READ
        known = [term for term in terms if term in self.frequencies]
        known.sort(key=lambda term: (term in texts.STOP_WORDS, self.frequencies[term], term))
        for number, term in enumerate(known[:TERMS]):
            left -= self.frequencies[term]
            if left < 0 and number:
                return
            yield term

    def _saturate(self, k1: float) -> _Saturated:
        return cache(lambda code: (tf := self._tf(code)) / (k1 + tf))

    def _tf(self, code: int) -> float:
        """Return how often a document has a term, by the lengths of its fields."""
        length, count, text_length, is_passage = decode(code)
        mean_name, mean_text, mean_passage = self._means
        found = self._name_weight / (1 - B + B * length / mean_name) if length else 0.0
        mean = mean_passage if is_passage else mean_text
        return found + (count / (1 - B + B * text_length / mean) if count else 0.0)

    def gains(self, count: int = 0) -> tuple[dict[int, float], dict[int, float]]:
        """Return document → score of its own terms: of units, and of passages; of so many best ones, 0: of all.

        What has none of the terms that count most is left out where all that is left could not make it one of the best
        (MaxScore).
        """
        saturated, has_passages = self._saturated, bool(self.counts.get("passages"))
        most = {term: self.weights[term] for term in self.postings}
        size = sum(map(count_of, self.postings.values())) + sum(map(len, self.lent.values()))
        if may_drop := bool(count) and size > DROPPED:
            for term, postings in self.postings.items():
                codes = postings.keys() | {code for code, _ in self.lent.get(term, {}).values()}
                most[term] *= max(map(saturated, codes), default=0.0)
        found, left = dict[int, float](), math.fsum(most.values())
        bar, are_known = left / 6, False
        for term in sorted(most, key=lambda term: (-most[term], term)):
            if may_drop and left < bar:
                bar = left / 4
                if best_ones := _drop_lesser(found, 1 + has_passages, count, left):
                    found, are_known = best_ones, True
            weight, lent = self.weights[term], self.lent.get(term, {})
            _add(found, self.postings[term], weight, saturated, are_known)
            for document in found.keys() & lent.keys() if are_known else lent:
                code, share = lent[document]
                found[document] = found.get(document, 0.0) + weight * saturated(code) * share
            left -= most[term]
        if not has_passages:
            return found, {}
        passages = {document: gain for document, gain in found.items() if document & 1}
        return {document: gain for document, gain in found.items() if not document & 1}, passages

    def look_at(self, documents: Iterable[int]) -> None:
        """Find out which terms some documents have: of many at once, in a fraction of the time."""
        codes, covered = self._codes, self.covered
        new = set(documents) - codes.keys()
        codes.update((document, {}) for document in new)
        covered |= dict.fromkeys(new, 0.0)
        for term, postings in self.postings.items():
            weight, lent = self.weights[term] if term in self.telling else 0.0, self.lent.get(term, {})
            for code, documents in postings.items():
                for document in new.intersection(documents):
                    codes[document][term] = code, 1.0
                    covered[document] += weight
            for document in new & lent.keys():
                codes[document][term] = lent[document]
                covered[document] += weight * lent[document][1]

    def _codes_of(self, document: int) -> dict[str, tuple[int, float]]:
        if document not in self._codes:
            self.look_at([document])
        return self._codes[document]

    def gains_of(self, document: int, names_only: bool = False) -> dict[str, float]:
        """Return term → gain of one document, or of its names alone."""
        bits, found = NAME_BITS if names_only else ~0, dict[str, float]()
        for term, (code, share) in self._codes_of(document).items():
            if gain := self._saturated(code & bits):
                found[term] = gain * self.weights[term] * share
        return found

    def weigh(self, terms: Iterable[str]) -> float:
        """Return the weight of those of some terms that tell something."""
        return math.fsum(self.weights[term] for term in terms if term in self.telling)

    def similar_names(self) -> dict[int, float]:
        """Return document → 0 … 1: the share of the question's trigrams that its names have, by their weight."""
        found: dict[int, float] = {}
        if not self._grams:
            return found
        mass = math.fsum(map(self.idf, self._grams))
        saturated = self._saturate(K1 * self._name_weight)
        for gram, postings in self.index.postings([*self._choose(self._grams)]).items():
            _add(found, postings, self.idf(gram) / mass, saturated)
        return found


def _drop_lesser(scores: dict[int, float], kinds: int, count: int, left: float) -> dict[int, float]:
    """Return the documents that can still be among the best of their kind; none where others can, too.

    Args:
        scores: Document → what it has so far.
        kinds: 1: of units alone; 2: of passages, too.
        count: So many are the best.
        left: What a document may still get.
    """
    kept = dict[int, float]()
    for kind in range(kinds):
        part = scores if kinds == 1 else {at: one for at, one in scores.items() if at & 1 == kind}
        least = nlargest(count, part.values())[-1] / _ABOVE if len(part) > count else 0.0
        if least <= left:
            return {}
        kept.update((at, one) for at, one in part.items() if one + left >= least)
    return kept


def words_of(sentence: str, thesaurus: Thesaurus | None) -> list[tuple[str, list[str]]]:
    """Return the words of a sentence but those that ask, each with its terms: of scripts without blanks its pairs."""
    found = list[tuple[str, list[str]]]()
    for run, parts in texts.asked_words(sentence):
        if not texts.is_unspaced(run):
            found.append((run, parts))
            continue
        words = cut(run, thesaurus) if thesaurus else [run]
        found += [(word, _pairs(word) or [word]) for word in words]
    return found


def _pairs(word: str) -> list[str]:
    """Return the terms of the index that a word of a script without blanks is made of."""
    return [word[at : at + 2] for at in range(len(word) - 1)]


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

    >>> from .thesaurus import WordsNear
    >>> called(["Our dog Biscuit ate a candle."], "dog", WordsNear()), called(["家里的猫叫煤球。"], "猫", WordsNear())
    (['biscuit'], ['煤球'])
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
