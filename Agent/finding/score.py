"""How well units fit a question: BM25F with inherited evidence and near words, times coverage.

own(t, u)  = weight(t) · share · tf / (K1 + tf)   BM25F (Robertson, Zaragoza & Taylor 2004); weight = idf · its count in
             tf = Σ occurrences / length norm     the question; of a unit's fields, its names count NAME times
             share = 1 where the term stands there, else that of the nearest word that does, see `near`; of the two
             never the sum
inherited  = max(own, DECAY · inherited of its context)
explained  = Σ max(inherited, own of the best passage) + Σⱼ FURTHERʲ · Σ j-th further passage
score(u)   = (explained / Σ weight + TRIGRAMS · share of the trigrams of unknown words) · (0.5 + coverage)
             coverage = the share of the weights that stands in u, its context and its best passage

Stop words, and whether a text has a number or a time where one is asked for, only order equally good hits: they are in
`explained`, and neither in weight nor in coverage. They, names and numbers have no near words: Porto is not Lisbon.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from heapq import heappush, heappushpop, nlargest
from itertools import chain
from typing import NamedTuple, TypeAlias

from . import texts
from .query import K1, MISSPELLED, B, Query
from .rows import ANCESTORS, UnitRow

__all__ = ["MISSPELLED", "Evidence", "Found", "Query", "allow", "best", "rank", "within"]

DECAY = 0.75  # the share of its context's evidence that a unit inherits: of trees 33.3 at 0.6, 33.6 here, 33.9 at 0.9
FURTHER = 0.4  # the weight of each further passage beside the one before: 0.5 and more lose commands with many examples
WHOLE = 0.5  # of a group as one text: at 1 LoCoMo gains 0.4 and 0.7, and facts with meaning lose 1
TOGETHER = 5_000  # documents of groups that are looked at
TRIGRAMS = 0.3  # the most that trigrams of names weigh, of words that no text has
SURE = 0.5  # of coverage, which brings LoCoMo a point first; at 0.25 and 1 trees and facts are as good to 0.3
CANDIDATES = 100  # units, and passages, that are scored in full, where no more are wanted
FEW = 5_000  # units at most whose documents are looked for; of more the hits are looked at
OPENED, CHILDREN = 8, 50  # of so many of the best that are a context, so many of what they are one of


Among: TypeAlias = Set[str] | Callable[[Collection[str]], Collection[str]]
"""Which units may be found: a set of ids, or a function from ids to the allowed ones."""


class Found(NamedTuple):
    """A unit that fits."""

    id: str
    number: int
    score: float
    """Not yet between 0 and 1, see `calibration`."""
    coverage: float
    documents: list[int]
    """The documents of which an excerpt is taken: its passages that fit, the best first, else its own text."""


def best(scores: Mapping[int, float], count: int, newest_first: bool = False) -> list[int]:
    """Return the keys of the greatest values, ties by key, the least first."""
    sign = -1 if newest_first else 1
    if len(scores) > count:
        few = len(scores) < 20 * count  # then sorting all takes half of the time
        least = sorted(scores.values())[-count] if few else nlargest(count, scores.values())[-1]
        scores = {key: one for key, one in scores.items() if one >= least}
    return sorted(scores, key=lambda key: (-scores[key], sign * key))[:count]


def rank(
    query: Query,
    limit: int,
    candidates: int = CANDIDATES,
    *,
    among: Among | None = None,
    lent: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Found]:
    """Return the hits of a question, best first; see `Index.search`."""
    count = max(candidates, min(limit, query.total))
    own, passages = query.gains(count if among is None else 0)
    similar = query.similar_names()
    index = query.index
    only = index.documents_of(among) if isinstance(among, Set) and len(among) <= FEW else None
    nearest = [*within(query, own, count, among, only), *within(query, similar, count, among, only)]
    best_passages = within(query, passages, count, among, only)
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
    allowed = allow([row.id for _, row in there], among)
    query.look_at([*(row.document or 0 for row in rows.values()), *best_passages])
    evidence = Evidence(query, rows)
    scored = list[Found]()
    latin = query.weigh([term for term in query.weights if not texts.is_unspaced(term)]) / query.mass
    whole = _together(query, [row.group for _, row in there])
    bounds, extra, alone = list[tuple[float, int]](), dict[int, float](), dict[int, tuple[float, float, list[int]]]()
    for number, row in there:
        if row.id not in allowed:
            continue
        document, said = 2 * number, passages_of.get(number, ())
        extra[number] = TRIGRAMS * latin * similar.get(document, 0.0) + whole.get(row.group, 0.0)
        if row.above or row.is_context or (lent and row.id in lent):
            bounds.append((math.inf, number))
            continue
        # It has its own terms, those of its passages and those of its group, and no more.
        most = own.get(document) or math.fsum(query.gains_of(document).values())
        coverage = query.covered[document]
        for place, passage in enumerate(said):  # they come the best first
            most += FURTHER**place * passages[passage]
            coverage += query.covered[passage]
        coverage = min(1.0, coverage / query.mass)
        if not said:
            alone[number] = most / query.mass, coverage, []
        bounds.append(((most / query.mass + extra[number]) * (SURE + coverage) * (1 + 1e-9), number))
    best_scores: list[float] = []  # as many as are wanted, the least first
    for bound, number in sorted(bounds, reverse=True):
        if len(best_scores) == limit and bound < best_scores[0]:
            break
        shares = lent.get(rows[number].id) if lent else None
        explained, coverage, documents = alone.get(number) or evidence.of(number, passages_of.get(number, ()), shares)
        explained += extra[number]
        if explained > 0 or 2 * number in similar:
            at = documents or [2 * number]
            scored.append(Found(rows[number].id, number, explained * (SURE + coverage), coverage, at))
            (heappush if len(best_scores) < limit else heappushpop)(best_scores, scored[-1].score)
    sign = 1 if index.newest_first else -1
    return nlargest(limit, scored, key=lambda found: (found.score, sign * found.number))


def within(
    query: Query, scores: Mapping[int, float], count: int, among: Among | None, only: Set[int] | None = None
) -> list[int]:
    """Return the best documents, of those that are asked for."""
    if only is not None:
        scores = {document: one for document, one in scores.items() if document in only}
    if among is None or only is not None:
        return best(scores, count, query.index.newest_first)
    chosen: list[int] = []
    ordered = best(scores, len(scores), query.index.newest_first)
    for start in range(0, len(ordered), 5 * count):
        part = ordered[start : start + 5 * count]
        owners = query.index.owners(part)
        rows = query.index.units(set(owners.values()))
        allowed = allow([row.id for row in rows.values()], among)
        chosen += [document for document in part if rows[owners[document]].id in allowed]
        if len(chosen) >= count:
            break
    return chosen[:count]


def allow(ids: Collection[str], among: Among | None) -> Collection[str]:
    """Return which of some ids may be found, and perhaps others."""
    if among is None:
        return ids if isinstance(ids, Set) else set(ids)
    return among if isinstance(among, Set) else among(ids)


def _together(query: Query, groups: Iterable[str]) -> dict[str, float]:
    """Return how much of a question some groups explain, each as if it were one text; BM25 over groups."""
    members = query.index.documents_in({group for group in groups if group}, TOGETHER)
    if not members:
        return {}
    group_of = dict[int, str]()
    for group, documents in members.items():
        group_of |= dict.fromkeys(documents, group)
    mean = len(group_of) / len(members)
    norms = {group: K1 * (1 - B + B * len(documents) / mean) for group, documents in members.items()}
    found = dict.fromkeys(members, 0.0)
    for term, postings in query.postings.items():
        having = chain(*postings.values(), query.lent.get(term, ()))
        often = Counter(filter(None, map(group_of.get, having)))
        rarity = math.log(1 + (len(norms) - len(often) + 0.5) / (len(often) + 0.5)) / query.idf(term)
        weight = WHOLE * query.weights[term] * rarity / query.mass
        for group, count in often.items():
            found[group] += weight * count / (count + norms[group])
    return found


class Evidence:
    """The terms of a question that units have, by themselves and by their contexts."""

    def __init__(self, query: Query, rows: Mapping[int, UnitRow], names_only: bool = False) -> None:
        self._query = query
        self._rows = rows
        self._names_only = names_only
        self._inherited: dict[int, dict[str, float]] = {}

    def inherited(self, number: int | None, levels: int = 2 * ANCESTORS) -> dict[str, float]:
        """Return term → gain of a unit by its own names and text, or its context's; a circle ends after the levels."""
        if number is None or number not in self._rows or not levels:
            return {}
        if number in self._inherited:
            return self._inherited[number]
        row = self._rows[number]
        gains = {term: DECAY * gain for term, gain in self.inherited(row.above, levels - 1).items()}
        own = {} if row.document is None else self._query.gains_of(row.document, self._names_only)
        for term, gain in own.items():
            gains[term] = max(gain, gains.get(term, 0.0))
        if levels > ANCESTORS:  # else what is above may be missing in it
            self._inherited[number] = gains
        return gains

    def of(
        self, number: int, passages: Collection[int], lent: Mapping[str, float] | None = None
    ) -> tuple[float, float, list[int]]:
        """Return how much a unit explains, its coverage, both as shares, and its passages, best first."""
        query = self._query
        gains, said = dict(self.inherited(number)), {passage: query.gains_of(passage) for passage in passages}
        adding = {at: math.fsum(one - min(one, gains.get(term, 0.0)) for term, one in said[at].items()) for at in said}
        documents = sorted(said, key=lambda at: -adding[at])  # "She is allergic" before "Anna is 30", of Anna
        ranked = sorted(said.values(), key=lambda one: -math.fsum(one.values()))
        for term, gain in ranked[0].items() if ranked else ():
            gains[term] = max(gain, gains.get(term, 0.0))
        shares = self.shares(number, documents[0] if documents else None, lent)
        for term, share in lent.items() if lent else ():
            if weight := share * query.weights.get(term, 0.0):
                gains[term] = max(gains.get(term, 0.0), weight / (K1 + 1))
        covered = math.fsum(share * query.weights[term] for term, share in shares.items() if term in query.telling)
        explained = math.fsum(gains.values())
        if (
            self._rows[number].is_context and not said
        ):  # what it lacks is rather its children's, but none that says nothing precedes it
            lacking = 1 - covered / query.mass
            explained *= 1 - (1 - DECAY) * lacking
        for place, further in enumerate(ranked[1:], 1):
            explained += FURTHER**place * math.fsum(further.values())
        return explained / query.mass, covered / query.mass, documents

    def shares(self, number: int, document: int | None, lent: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return term → share of it, at most 1, that a unit has by itself, its context, a document or by loan."""
        query = self._query
        found = {term: share for term, share in lent.items() if term in query.weights} if lent else {}
        seen, documents = set[int](), [] if document is None else [document]
        above: int | None = number
        while above is not None and above in self._rows and above not in seen and len(seen) < ANCESTORS:
            seen.add(above)
            documents += [] if (document := self._rows[above].document) is None else [document]
            above = self._rows[above].above
        for term, share in query.shares_of(documents).items():
            found[term] = max(found.get(term, 0.0), share)
        return found
