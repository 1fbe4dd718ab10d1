"""Where a new keyword belongs: under the parents of keywords that are like it, or under one whose name it has.

like(u)    = own evidence of u for the new name and description (`score`), trigrams included
votes(p)   = Σₖ ½ᵏ · like(k-th best child of p)
score(p)   = votes(p) + 2 · inherited evidence of p, by names alone, for a p that is not of the same kind as the name
             + ½ · the best similarity, shared by all that are called as the name ends: oat milk is a milk
"""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ..keyword_tree import Evidence, Fits
from . import calibration, evidence, score, texts

if TYPE_CHECKING:
    from .index import UnitRow

__all__ = ["fit", "kind_in"]

NAME = 1.0  # what a name counts beside a text of usual length
CERTAINTY = 0.85  # what remains of a score: 91 of 200 everyday keywords placed rightly, 8 wrongly (1.0: 92, 12)
_LIKE = 200  # keywords that vote
_END = 64  # characters at the end of a name in which another one is looked for


def kind_in(name: str) -> str:
    """Return the last word of a name of several, the last two characters where words are not spaced, or ""."""
    runs = texts.words(name)
    if runs and texts.is_unspaced(runs[-1]):
        return runs[-1][-2:] if len(runs[-1]) > 2 else ""
    found = texts.terms(runs[-1]) if runs else []
    return found[-1] if len(found) > 1 or len(runs) > 1 else ""


def fit(query: score.Query, name: str, count: int, among: Collection[str]) -> Fits:
    """Return the parents that a new keyword could have, best first; see `Ranker.Fit`."""
    index, mass, query.certainty = query.index, query.mass, CERTAINTY
    like = _likeness(query)
    rows = index.units(like)
    scores, votes = dict.fromkeys(like, 0.0), dict[int, float]()
    for number, one in like.items():
        above = rows[number].above
        if above is not None:
            scores[above] = scores.get(above, 0.0) + one * votes.setdefault(above, 1.0)
            votes[above] /= 2
    rows.update(index.units(scores))
    kind = kind_in(name)
    named = index.read([2 * number for number in scores if not rows[number].is_context]) if kind else {}
    by_names = score.Evidence(query, rows, names_only=True)
    for number in scores:  # a cherry tree is no apple tree, but belongs beside it
        names, _ = named.get(2 * number, ([""], ""))
        if not kind or kind_in(names[0]) != kind:
            scores[number] += 2 * math.fsum(by_names.inherited(number).values()) / mass
    ending = _called_as_it_ends(query, name)
    for number in ending:
        scores[number] = scores.get(number, 0.0) + max(like.values(), default=1.0) / 2 / len(ending)
    rows.update(index.units(ending))
    ranked = sorted(scores, key=lambda number: (-scores[number], number))
    ids = [rows[number].id for number in ranked if rows[number].document is not None]
    return Fits(ids, _judge(query, rows, like, [*ids[:count], *among]), words=evidence.Words(query.weights))


def _likeness(query: score.Query) -> dict[int, float]:
    """Return unit → similarity of the keywords that are most like the new one, the best first."""
    own, passages = query.gains()
    similar = query.similar_names()
    similarity = {document: gain / query.mass for document, gain in (*own.items(), *passages.items())}
    for document, share in similar.items():
        similarity[document] = similarity.get(document, 0.0) + score.TRIGRAMS * share
    best = score.best(similarity, _LIKE)
    owners, found = query.index.owners(best), dict[int, float]()
    for document in best:
        found.setdefault(owners[document], similarity[document])
    return found


def _called_as_it_ends(query: score.Query, name: str) -> list[int]:
    """Return the keywords of which a name is the longest end of the new name."""
    index, cut = query.index, texts.words(name[-_END:])
    ends = [" ".join(cut[at:]) for at in range(1, len(cut))]
    if cut and texts.is_unspaced(cut[-1]):
        ends += [cut[-1][at:] for at in range(1, len(cut[-1]))]
    for end in ends:
        found = texts.terms(end)
        if not found:
            continue
        rarest = min(found, key=lambda term: query.frequencies.get(term, 0))
        holders = [at for at, code in query.postings.get(rarest, {}).items() if code >> 8 and not at & 1]
        bearers = [
            at
            for at, (names, _) in index.read(holders[:_LIKE]).items()
            if any(texts.terms(each) == found for each in names)
        ]
        if bearers:
            owners = index.owners(bearers)
            return [owners[at] for at in bearers]
    return []


def _judge(
    query: score.Query, rows: "Mapping[int, UnitRow]", like: Mapping[int, float], ids: Collection[str]
) -> dict[str, Evidence]:
    """Return how well the new keyword fits under others: as it fits them, or nearly as it fits their children."""
    if not ids:
        return {}
    scale = calibration.scale_of(query.index)
    wanted = dict.fromkeys(ids)
    children = {rows[number].id: rows[number].above for number in list(like)[:50] if number in rows}
    found = {each.id: each for each in score.rank(query, len(wanted) + 50, among={*wanted, *children})}
    above = dict[str, float]()
    for child, number in children.items():
        if number is not None and child in found:
            parent = rows[number].id
            above[parent] = max(above.get(parent, 0.0), score.DECAY * scale(found[child].score))
    excerpts = evidence.quote(query.index, evidence.Words(query.weights), [found[id] for id in wanted if id in found])
    own = {id: scale(each.score) for id, each in found.items()}
    return {id: Evidence(max(above.get(id, 0.0), own.get(id, 0.0)), excerpts.get(id, "")) for id in wanted}
