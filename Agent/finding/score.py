"""How well units fit a question: BM25F with inherited evidence, times coverage.

own(t, u)  = weight(t) · tf / (K1 + tf)         BM25F (Robertson, Zaragoza & Taylor 2004); weight = idf · its count in
             tf = Σ occurrences / length norm   the question; of a unit's fields, its names count NAME times
inherited  = max(own, DECAY · inherited of its context)
passage(t) = own of a passage together with the names and text of its unit
explained  = (Σ max(inherited, best passage) + Σⱼ FURTHERʲ · Σ j-th further passage) / √(Σⱼ FURTHERʲ over all passages)
score(u)   = (explained / Σ weight + TRIGRAMS · share of the trigrams of unknown words) · (0.1 + coverage) · √words
             coverage = the share of the weights that stands in u, its context and its best passage
             words = Σ weight / the weight of an unknown word: two words of four are better evidence than one of two

A word that no text has stands for those that it misspells, else for those that begin like it. All scores of a question
are multiplied by its certainty:

certainty  = (1 - (1 - coverage of the best) · score of the rival / score of the best) · ALONE^n

The rival is the next that says something else: a fact that is said twice is as certain as once. What the best lacks,
the rival may have: where both say as little, neither answers. n is 1 where the best has infos, or is a text without a
name, and says but one word of several, 2 where that has four characters; and 2 more where it lacks a number, since
another one is meant, or has but words that begin like an unknown one. It is 3 for a question of stop words alone.

Stop words, and whether a text has a number or a time where one is asked for, only order what says as much: they are in
`explained`, and neither in weight, in coverage nor in words.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heappush, heappushpop, nlargest
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from . import texts
from .codes import NAME_BITS, decode

if TYPE_CHECKING:
    from .index import Index, UnitRow

__all__ = ["Evidence", "Found", "Query", "best", "rank"]

K1, B = 1.2, 0.75  # BM25F's own (Robertson & Zaragoza 2009)
NAME = 2.0  # what a name counts beside a text of usual length
DECAY = 0.75  # what a unit has of its context's evidence
ANCESTORS = 64  # contexts of contexts that are looked at: what is farther above counts less than 1e-8
ALONE = 0.4  # what a single word counts where nothing else of the question is said
BEGINNING = 0.6  # so much of a word, and of an unknown one, begins alike where the one stands for the other
FURTHER = 0.5  # what each further passage counts beside the one before, and all of a group as one text
TOGETHER = 5_000  # documents of groups that are looked at
TRIGRAMS = 0.3  # what trigrams of names count, at most, of words that no text has
CHARACTER = 0.2  # what a single character counts beside a pair that texts have, see `_share`; a stop word beside others
FEW = 30  # texts that do not yet show which words are rare: fewer count as so many, and the bar is not measured

READ = 10_000  # postings that are read for a question, the rarest terms first; the first term is always read
TERMS = 64  # terms that are read at most
CANDIDATES = 100  # units, and passages, that are scored in full, where no more are wanted
RIVALS, SAME = 5, 0.5  # so many of the best show how certain it is; what has so many of its terms says the same
_COMPARED = 2_000  # characters of each
OPENED, CHILDREN = 8, 50  # of so many of the best that are a context, so many of what they are one of


Among: TypeAlias = Set[str] | Callable[[Collection[str]], Collection[str]]
"""Which units may be found: a set of ids, or what returns which of some ids may; the former where they are few."""


class Found(NamedTuple):
    """A unit that fits."""

    id: str
    number: int
    score: float
    """Not yet between 0 and 1, see `calibration`."""
    coverage: float
    documents: list[int]
    """The documents of which an excerpt is taken: its passages that fit, the best first, else its own text."""


def _most_of(word: str) -> int:
    return math.ceil(BEGINNING * len(word))


class _Table(dict[int, float]):
    """Code → what a function makes of it, once."""

    def __init__(self, compute: Callable[[int], float]) -> None:
        self._compute = compute

    def __missing__(self, code: int) -> float:
        found = self[code] = self._compute(code)
        return found


def _add(gains: dict[int, float], postings: Mapping[int, int], weight: float, saturated: _Table) -> None:
    """Add to what documents have so far what they have of a term."""
    worth = _Table(lambda code: weight * saturated[code])
    more = dict(zip(postings, map(worth.__getitem__, postings.values()), strict=True))
    for document in gains.keys() & more.keys():
        more[document] += gains[document]
    gains.update(more)


class Query:
    """A question's terms with what the index has of them."""

    def __init__(self, index: "Index", asked: Mapping[str, float], name_weight: float = NAME) -> None:
        self.index = index
        self.count = CANDIDATES
        """Units, and passages, that are scored in full."""
        self._name_weight = name_weight
        self.counts = counts = index.counts()
        self.total = max(FEW, counts.get("units", 0) + counts.get("passages", 0))
        self._means = [
            max(1.0, counts.get(f"{what} terms", 0) / max(1, counts.get(f"{what}s", 0)))
            for what in ("name", "text", "passage")
        ]
        self.frequencies = index.frequencies(asked)
        self.telling = asked.keys() - texts.STOP_WORDS - texts.KINDS
        self.is_empty = not self.telling
        """Whether the question has but stop words, so that nothing can answer it."""
        self.telling = self.telling or asked.keys() - texts.KINDS
        pairs = [term for term in asked if len(term) == 2 and texts.is_unspaced(term)]
        self._in_pairs = {*"".join(pairs)}
        self._in_known_pairs = {*"".join(self.frequencies.keys() & {*pairs})}
        unknown = [term for term in asked if term not in self.frequencies and term in self.telling]
        few = unknown[:TERMS]  # of a page, as many as are read
        meant = {term: found for term in few if (found := index.frequencies(texts.corrections(term)))}
        self.alike = {term: found for term in few if term not in meant and (found := self._begin_like(term))}
        self.related = meant | self.alike
        self.frequencies |= {term: sum(found.values()) for term, found in self.related.items()}
        grams = dict.fromkeys(gram for term in unknown for gram in texts.trigrams(term))
        self.frequencies |= index.frequencies(grams)
        self.weights = {term: weight * self.idf(term) * self._share(term) for term, weight in asked.items()}
        self.postings = {term: self._postings(term) for term in self._choose(self.weights)}
        unread = self.frequencies.keys() - self.postings.keys()
        self.weights = {term: weight for term, weight in self.weights.items() if term not in unread}
        self.mass = self.weigh(self.weights) or 1.0
        self.breadth = math.sqrt(self.mass / self.idf(""))
        self.certainty: float | None = None
        """See above; None until something was ranked."""
        self._tf = _Table(self._read_code)
        """Code → how often the document has the term, by the lengths of its fields."""
        self._saturated = _Table(lambda code: self._tf[code] / (K1 + self._tf[code]))
        self._codes: dict[int, dict[str, int]] = {}
        """Document → the terms that it has, with their codes."""
        self.covered: dict[int, float] = {}
        """Document → the weight of its terms that tell something, of those that were looked at."""
        self._grams = list(grams)

    @property
    def factor(self) -> float:
        """What the scores of all units are multiplied by."""
        return self.breadth * (1.0 if self.certainty is None else self.certainty)

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
        """Return what a term counts: a character that stands alone in the question is a word.

        Where texts have none of the pairs that it makes, it counts for these, the more the rarer it is (back-off).
        """
        if self._is_minor(term) or term in self._in_known_pairs:
            return CHARACTER
        return self.idf(term) / self.idf("") if term in self._in_pairs else 1.0

    def _begin_like(self, term: str) -> dict[str, int]:
        """Return the words that share most of their beginning with an unknown one, with their frequencies."""
        least = max(4, _most_of(term))
        start = term[:least]
        if len(term) < least or texts.is_unspaced(term) or texts.has_digit(start):  # a like number is another one
            return {}
        begun = self.index.beginning(start)
        return self.index.frequencies(each for each in begun if each[: _most_of(each)] == term[: _most_of(each)])

    def _postings(self, term: str) -> dict[int, int]:
        if term not in self.related:
            return self.index.postings(term)
        found: dict[int, int] = {}
        for each in self.related[term]:
            found |= self.index.postings(each)
        return found

    def quoted(self) -> dict[str, float]:
        """Return term → weight of all that stands in texts for what was asked."""
        read = self.weights.keys() & self.related.keys()
        others = {each: self.weights[term] for term in read for each in self.related[term]}
        return {**others, **{term: weight for term, weight in self.weights.items() if term in self.telling}}

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

    def _read_code(self, code: int) -> float:
        length, count, text_length, is_passage = decode(code)
        mean_name, mean_text, mean_passage = self._means
        found = self._name_weight / (1 - B + B * length / mean_name) if length else 0.0
        mean = mean_passage if is_passage else mean_text
        return found + (count / (1 - B + B * text_length / mean) if count else 0.0)

    def gains(self, is_best_alone: bool = False) -> tuple[dict[int, float], dict[int, float]]:
        """Return document → score of its own terms: of units, and of passages.

        With `is_best_alone` of the `count` best of each at least (MaxScore; Turtle & Flood 1995).
        """
        found, is_whole = dict[int, float](), True
        bounds = [
            self.weights[term] * max(map(self._saturated.__getitem__, set(postings.values())), default=0.0)
            for term, postings in self.postings.items()
        ]
        left = [*accumulate(reversed(bounds))][::-1]  # what a document can have of a term and all after it
        for (term, postings), most in zip(self.postings.items(), left, strict=True):
            # None has more by now than all terms so far are worth: only then can the rest be worth less than that.
            may_skip = is_best_alone and is_whole and len(postings) > self.count and left[0] > 2 * most
            if may_skip and (bar := self._bar(found)) * (1 - 1e-9) > most:
                found = {document: gain for document, gain in found.items() if gain + most >= bar * (1 - 1e-9)}
                is_whole = False
            if is_whole:
                _add(found, postings, self.weights[term], self._saturated)
                continue
            for document in found.keys() & postings.keys():
                found[document] += self.weights[term] * self._saturated[postings[document]]
        if not self.counts.get("passages"):
            return found, {}
        passages = {document: gain for document, gain in found.items() if document & 1}
        return {document: gain for document, gain in found.items() if not document & 1}, passages

    def _bar(self, gains: Mapping[int, float]) -> float:
        """Return what a document needs to be among the `count` best, of units and of passages; 0: anything."""
        kinds: list[Collection[float]] = [gains.values()]
        if self.counts.get("passages"):
            kinds = [[gain for at, gain in gains.items() if at & 1 == kind] for kind in (0, 1)]
        return min(nlargest(self.count, kind)[-1] if len(kind) >= self.count else 0.0 for kind in kinds)

    def look_at(self, documents: Iterable[int]) -> None:
        """Find out which terms some documents have: of many at once, in a fraction of the time."""
        new = set(documents) - self._codes.keys()
        self._codes.update((document, {}) for document in new)
        self.covered |= dict.fromkeys(new, 0.0)
        for term, postings in self.postings.items():
            weight = self.weights[term] if term in self.telling else 0.0
            for document in new & postings.keys():
                self._codes[document][term] = postings[document]
                self.covered[document] += weight

    def _codes_of(self, document: int) -> dict[str, int]:
        if document not in self._codes:
            self.look_at([document])
        return self._codes[document]

    def gains_of(self, document: int, names_only: bool = False) -> dict[str, float]:
        """Return term → gain of one document, or of its names alone."""
        bits, found = NAME_BITS if names_only else ~0, dict[str, float]()
        for term, code in self._codes_of(document).items():
            if gain := self._saturated[code & bits]:
                found[term] = gain * self.weights[term]
        return found

    def gains_with(self, passage: int, document: int) -> dict[str, float]:
        """Return term → gain of a passage, as if all of its unit's document stood in it, too."""
        found, tf, own = dict[str, float](), self._tf, self._codes_of(document)
        for term, code in self._codes_of(passage).items():
            often = tf[code] + tf[own.get(term, 0)]
            found[term] = self.weights[term] * often / (K1 + often)
        return found

    def weigh(self, terms: Iterable[str]) -> float:
        """Return the weight of those of some terms that tell something."""
        return math.fsum(self.weights[term] for term in terms if term in self.telling)

    def similar_names(self) -> dict[int, float]:
        """Return document → 0 … 1: the share of the question's trigrams that its names have, by their weight."""
        found: dict[int, float] = {}
        mass = math.fsum(map(self.idf, self._grams)) or 1.0
        saturated = _Table(lambda code: self._tf[code] / (K1 * self._name_weight + self._tf[code]))
        for gram in self._choose(self._grams):
            _add(found, self.index.postings(gram), self.idf(gram) / mass, saturated)
        return found


def best(scores: Mapping[int, float], count: int) -> list[int]:
    """Return the keys of the greatest values, ties by key."""
    if len(scores) > count:
        least = nlargest(count, scores.values())[-1]
        scores = {key: one for key, one in scores.items() if one >= least}
    return sorted(scores, key=lambda key: (-scores[key], key))[:count]


def rank(
    query: Query,
    limit: int,
    *,
    groups: Collection[str] | None = None,
    among: Among | None = None,
    lent: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Found]:
    """Return what fits a question, best first; see `Index.search`."""
    query.count = max(CANDIDATES, min(limit, query.total))
    own, passages = query.gains(is_best_alone=groups is None and among is None)
    similar = query.similar_names()
    index = query.index
    only = index.documents_of(among) if isinstance(among, Set) else None
    nearest = [*_within(query, own, groups, among, only), *_within(query, similar, groups, among, only)]
    best_passages = _within(query, passages, groups, among, only)
    owners = index.owners([*nearest, *best_passages])
    passages_of: dict[int, list[int]] = {}
    for document in best_passages:
        passages_of.setdefault(owners[document], []).append(document)
    borrowers = index.numbers(lent) if lent else {}
    wanted = dict.fromkeys([*(owners[document] for document in nearest), *passages_of, *borrowers.values()])
    rows = index.units(wanted)
    for number in [number for number in wanted if rows[number].is_context][:OPENED]:
        wanted.update(dict.fromkeys(index.children(number, CHILDREN)))
    rows |= index.units(wanted.keys() - rows.keys())
    there = [(number, row) for number in wanted if (row := rows[number]).document is not None]
    allowed = _allow([row.id for _, row in there], among)
    query.look_at(chain((row.document or 0 for row in rows.values()), best_passages))
    evidence = Evidence(query, rows)
    scored, covered = [], dict[int, Set[str]]()
    latin = query.weigh(term for term in query.weights if not texts.is_unspaced(term)) / query.mass
    whole = _together(query, [row.group for _, row in there])
    count = max(RIVALS, limit)  # the next ones show how certain the first is
    bounds, extra, dampening = list[tuple[float, int]](), dict[int, float](), _Table(_dampen)
    for number, row in there:
        if row.id not in allowed or (groups is not None and row.group not in groups):
            continue
        document, said = 2 * number, passages_of.get(number, ())
        extra[number] = TRIGRAMS * latin * similar.get(document, 0.0) + whole.get(row.group, 0.0)
        if row.above or row.is_context or (lent and row.id in lent):
            bounds.append((math.inf, number))
            continue
        # What its own terms, those of its passages and its group say is all that it has.
        most = own.get(document) or math.fsum(query.gains_of(document).values())
        coverage = query.covered[document]
        if said:  # they come the best first
            by_itself, most = most, 0.0
            for place, passage in enumerate(said):
                most += FURTHER**place * (by_itself + passages[passage])
                coverage += query.covered[passage]
            most /= dampening[max(row.passages, len(said))]
        coverage = min(1.0, coverage / query.mass)
        bounds.append(((most / query.mass + extra[number]) * (0.1 + coverage) * (1 + 1e-9), number))
    best_scores: list[float] = []  # as many as are wanted, the least first
    for bound, number in sorted(bounds, reverse=True):
        if len(best_scores) == count and bound < best_scores[0]:
            break
        said = passages_of.get(number, ())
        shares = lent.get(rows[number].id) if lent else None
        explained, coverage, documents, covered[number] = evidence.of(number, said, shares)
        explained += extra[number]
        if explained > 0 or 2 * number in similar:
            at = documents or [2 * number]
            scored.append(Found(rows[number].id, number, explained * (0.1 + coverage), coverage, at))
            (heappush if len(best_scores) < count else heappushpop)(best_scores, scored[-1].score)
    best_first = nlargest(count, scored, key=lambda found: (found.score, -found.number))
    if query.certainty is None and best_first:
        first = best_first[0]
        says_something = rows[first.number].passages > 0 or not index.names_of(first.number)
        query.certainty = _certainty(query, best_first[:RIVALS], covered[first.number], says_something)
    return [Found(each.id, each.number, query.factor * each.score, *each[3:]) for each in best_first[:limit]]


def _rival(index: "Index", ranked: Sequence[Found]) -> float:
    """Return the score of the first that says something else than the best, beside the best's own."""
    if ranked[0].coverage >= 1.0 or not ranked[0].score:
        return 0.0
    read = index.read([each.documents[0] for each in ranked])

    def terms_of(found: Found) -> set[str]:
        names, text = read[found.documents[0]]
        return {*texts.terms(" ".join([*names, text[:_COMPARED]]))}

    said = terms_of(ranked[0])
    for each in ranked[1:]:  # the second mostly says something else, so the others need not be cut into terms
        terms = terms_of(each)
        if len(terms & said) < SAME * len(terms | said):
            return each.score / ranked[0].score
    return 0.0


def _certainty(query: Query, ranked: Sequence[Found], covered: Set[str], says_something: bool) -> float:
    """Return what remains of all scores, by what the best unit covers, and whether it says more than a name."""
    if query.is_empty:
        return ALONE**3
    covered, lacking = covered & query.telling, query.telling & query.weights.keys() - covered
    is_alone = says_something and bool(lacking) and covered <= _one_word(covered, query.weights)
    is_like = bool(covered) and covered <= query.alike.keys()
    words = min(2.0, max(1.0, query.weigh(covered) / query.idf("")))  # a name of three or four characters is more
    against = 2 * any(map(texts.has_digit, lacking)) + 2 * is_like + is_alone * words
    lack = max(0.0, 1.0 - ranked[0].coverage)
    return math.pow(ALONE, against) * (1.0 - lack * _rival(query.index, ranked))


def _one_word(terms: Set[str], weights: Mapping[str, float]) -> Set[str]:
    """Return the term that weighs most, with all that overlaps it: pairs of characters are parts of one word."""
    found = {max(terms, key=lambda term: (weights[term], term), default="")}
    if texts.is_unspaced("".join(found)):
        parts = {term for term in terms if texts.is_unspaced(term)}
        while more := {term for term in parts - found if not {*"".join(found)}.isdisjoint(term)}:
            found |= more
    return found


def _within(
    query: Query,
    scores: Mapping[int, float],
    groups: Collection[str] | None,
    among: Among | None,
    only: Set[int] | None,
) -> list[int]:
    """Return the best documents, of those that are asked for."""
    if only is not None:
        scores = {document: one for document, one in scores.items() if document in only}
    if groups is None and (among is None or only is not None):
        return best(scores, query.count)
    chosen: list[int] = []
    ordered = best(scores, len(scores))
    for start in range(0, len(ordered), 5 * query.count):
        part = ordered[start : start + 5 * query.count]
        owners = query.index.owners(part)
        rows = query.index.units(set(owners.values()))
        allowed = _allow([row.id for row in rows.values()], among)
        for document in part:
            row = rows[owners[document]]
            if row.id in allowed and (groups is None or row.group in groups):
                chosen.append(document)
        if len(chosen) >= query.count:
            break
    return chosen[: query.count]


def _allow(ids: Collection[str], among: Among | None) -> Collection[str]:
    if among is None:
        return ids if isinstance(ids, Set) else set(ids)
    return among if isinstance(among, Set) else among(ids)


def _together(query: Query, groups: Iterable[str]) -> dict[str, float]:
    """Return what some groups explain of a question, each as if it were one text; BM25 over groups."""
    documents = query.index.documents_in({group for group in groups if group}, TOGETHER)
    if not documents:
        return {}
    lengths = Counter(documents.values())
    mean = lengths.total() / len(lengths)
    norms = {group: K1 * (1 - B + B * length / mean) for group, length in lengths.items()}
    found = dict.fromkeys(lengths, 0.0)
    for term, postings in query.postings.items():
        often = Counter(documents[document] for document in documents.keys() & postings.keys())
        rarity = math.log(1 + (len(norms) - len(often) + 0.5) / (len(often) + 0.5)) / query.idf(term)
        weight = FURTHER * query.weights[term] * rarity / query.mass
        for group, count in often.items():
            found[group] += weight * count / (count + norms[group])
    return found


def _dampen(passages: int) -> float:
    """Return √(Σⱼ FURTHERʲ over all passages)."""
    return math.sqrt((1 - FURTHER**passages) / (1 - FURTHER))


class Evidence:
    """What units have of a question, with what their contexts have."""

    def __init__(
        self,
        query: Query,
        rows: "Mapping[int, UnitRow]",
        names_only: bool = False,
    ) -> None:
        self._query = query
        self._rows = rows
        self._names_only = names_only
        self._inherited: dict[int | None, dict[str, float]] = {None: {}}

    def inherited(self, number: int | None) -> dict[str, float]:
        """Return term → gain of a unit by its own names and text, or its context's."""
        ancestors: list[int] = []
        while number is not None and number not in self._inherited and number in self._rows:
            if len(ancestors) == 2 * ANCESTORS:  # also of a circle
                break
            ancestors.append(number)
            number = self._rows[number].above
        found = self._inherited.get(number, {})
        for place, number in enumerate(reversed(ancestors)):
            document = self._rows[number].document
            gains = {term: DECAY * gain for term, gain in found.items()}
            own = {} if document is None else self._query.gains_of(document, self._names_only)
            for term, gain in own.items():
                gains[term] = max(gain, gains.get(term, 0.0))
            found = gains
            if place >= ANCESTORS or len(ancestors) < ANCESTORS:  # else what is above may be missing in it
                self._inherited[number] = gains
        return found

    def of(
        self,
        number: int,
        passages: Collection[int],
        lent: Mapping[str, float] | None = None,
    ) -> tuple[float, float, list[int], Set[str]]:
        """Return what a unit explains, its coverage, both as shares, its passages, best first, and what it covers."""
        query = self._query
        document = self._rows[number].document or 0
        said = [(query.gains_with(passage, document), passage) for passage in passages]
        said.sort(key=lambda pair: -math.fsum(pair[0].values()))
        gains = dict(self.inherited(number))
        for term, gain in said[0][0].items() if said else ():
            gains[term] = max(gain, gains.get(term, 0.0))
        covered = {term: query.weights[term] for term in gains}
        for term, share in lent.items() if lent else ():
            if weight := share * query.weights.get(term, 0.0):
                gains[term] = max(gains.get(term, 0.0), weight / (K1 + 1))
                covered[term] = max(covered.get(term, 0.0), weight)
        coverage = math.fsum(weight for term, weight in covered.items() if term in query.telling) / query.mass
        explained = math.fsum(gains.values())
        if self._rows[number].is_context and not said:
            # What it lacks is rather its children's, but none that says nothing precedes it.
            explained *= 1 - (1 - DECAY) * (1 - coverage)
        for place, (further, _) in enumerate(said[1:], 1):
            explained += FURTHER**place * math.fsum(further.values())
        if said:  # a unit of many passages has something of every question
            explained /= _dampen(max(self._rows[number].passages, len(said)))
        return explained / query.mass, coverage, [at for _, at in said], covered.keys()
