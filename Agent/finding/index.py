"""An inverted index: units with names, a text and infos are put and removed, and found by words, and by meaning.

>>> index = Index()  # in memory; Index("folder/indexes/words.db") keeps it
>>> index.put([Unit("anna", ["Anna"], infos=["Anna is allergic to peanuts."]), Unit("tea", ["龙井茶"])])
>>> [(hit.id, hit.excerpt) for hit in index.search("Who is allergic to peanuts?")]
[('anna', 'Anna is allergic to peanuts.')]
>>> [hit.id for hit in index.search("龙井")], index.search("Who is Anna's boss?")[0].score < 0.3
(['tea'], True)

Contents and units: `rows`. Meaning needs a model (`embedder`), by itself that of the extra `[local]`
where it is installed, and compares the vectors of the units' texts (`vectors`).
"""

import contextlib
import sqlite3
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from . import calibration, evidence, score, texts
from .embedder import Embedder, Meaning, meaning_of
from .index_file import LostIndexError
from .rows import MovedError
from .thesaurus import Thesaurus, default
from .writing import Unit, WritableRows

if TYPE_CHECKING:
    from .vectors import Compared, Vectors

__all__ = ["Hit", "Index", "LostIndexError", "MovedError", "Ranking", "Unit"]

_NEAREST = 200  # units that meaning brings: as many as the words do
_WHOLE = 50  # candidates where no text is in pieces: the first ten of 1,498 questions in 1,500 are those of 100
_FAR = 0.25  # of the best score: texts below say little of a question, and have a confidence of some 0.02
_LEAST = 0.02  # above the score of a text with nothing that is asked for, see `calibration`
_BESIDE = 0.8  # the share of its context's nearness that a unit inherits; as with words, see `score.DECAY`


class Hit(NamedTuple):
    """A unit that fits a question."""

    id: str
    score: float
    """From 0 to 1; from `ANSWER_BAR` on it is an answer."""
    excerpt: str
    """The sentence of its text or infos that says so, at most 160 characters; "" where only its names do."""


class Ranking(NamedTuple):
    """The units that fit a question, best first."""

    asked: score.Query
    found: list[score.Found]
    scores: dict[str, float]
    """id → confidence, in order."""
    nearest: dict[str, int]
    """id → the nearest document of each, where meaning was compared."""


class Index(WritableRows):
    """An inverted index in a file, or in memory; see the head of this module, and `IndexFile` for its errors.

    Args:
        path: Of the file; None keeps all in memory.
        thesaurus: Of near words; True is that of the package, None has none.
        meaning: How to compare by meaning; True is the model of the extra `[local]` where it is installed, False none.
        newest_first: Whether of equals the unit that was put last comes first, else the first.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        thesaurus: Thesaurus | bool | None = True,
        meaning: Meaning | Embedder | bool = True,
        newest_first: bool = False,
    ) -> None:
        super().__init__(path)
        self.newest_first = newest_first
        self.thesaurus = default()[0] if thesaurus is True else thesaurus or None
        self.meaning = meaning_of(meaning)

    @cached_property
    def vectors(self) -> "Vectors | None":
        """The vectors of its texts; None where words rank alone."""
        if self.meaning is None:
            return None
        from .vectors import Vectors  # only meaning needs numpy

        return Vectors(self, self.meaning)

    def close(self) -> None:
        """Close the file, and ask the model no more; the next call opens it again. An index in memory is lost."""
        if (vectors := self.__dict__.pop("vectors", None)) is not None:
            vectors.close()
        super().close()

    def ask(self, query: str) -> str:
        """Have a question embedded, and the texts without a vector; return why words rank alone, or "".

        To be called before `search` and `rank`, outside `reading`. Cost: see `Vectors.ask`.
        """
        if self.vectors is not None:
            with contextlib.suppress(LostIndexError, sqlite3.Error, OSError):  # the search meets them, too
                return self.vectors.ask(query)
        return ""

    def search(
        self,
        query: str,
        limit: int = 10,
        *,
        among: score.Among | None = None,
        lent: Mapping[str, Mapping[str, float]] | None = None,
        quotes: bool = True,
    ) -> list[Hit]:
        """Return the units that fit a question, best first, ties in the order of putting (`newest_first`).

        Meaning counts where `ask` had the question read.

        Args:
            query: Any text; of a page of it the last sentence and those that ask count most.
            limit: Hits at most.
            among: Only these: their ids, or a function from ids to those that may be found.
            lent: id → term → share (0 to 1): terms that count for a unit although none of its texts has them.
            quotes: Whether hits get excerpts.
        """
        with self.reading():
            asked, found, scores, _ = self.rank(query, limit, among=among, lent=lent)
            said = dict.fromkeys([*scores][:limit], "")
            if quotes:
                quoted = [each for each in found if each.id in said]
                said |= evidence.quote(self, evidence.Words(asked.quoted()), quoted)
            return [Hit(id, scores[id], excerpt) for id, excerpt in said.items()]

    def order(self, query: str, limit: int = 10, *, among: score.Among | None = None) -> list[str]:
        """Return the ids of the units that say something of a question, best first.

        As `search`, but by words alone without the confidence, which reads the texts: a third of the time less.
        """
        with self.reading():
            if self.vectors is not None:
                return [hit.id for hit in self.search(query, limit, among=among, quotes=False) if hit.score >= _LEAST]
            asked = score.Query(self, texts.question(query), query=query)
            candidates = score.CANDIDATES if asked.counts.get("passages") else _WHOLE
            found = [] if asked.is_empty else score.rank(asked, limit, candidates, among=among)
            return [each.id for each in found if each.coverage and each.score >= _FAR * found[0].score]

    def having(self, words: str, limit: int, among: score.Among | None = None) -> list[str]:
        """Return the ids of the units whose texts have some words, those with most of them first; by words alone."""
        with self.reading():
            asked = score.Query(self, texts.question(words))
            own, passages = asked.gains(limit if among is None else 0)
            owners = self.owners(score.within(asked, own | passages, limit, among))
            units = self.units({*owners.values()})
            return list(dict.fromkeys(units[number].id for number in owners.values()))

    def rank(
        self,
        query: str,
        limit: int,
        *,
        more: str = "",
        besides: Collection[str] = (),
        among: score.Among | None = None,
        lent: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Ranking:
        """Return at least `limit` units that fit a question, if there are that many.

        As in `search`; `more` is said along with the question, and units `besides` are wanted, too, if they fit at all.
        To be called within `reading`.
        """
        terms = texts.question(f"{query}\n{more}" if more else query)
        asked = score.Query(self, terms, query=query)
        compared = self.vectors.compare(query) if self.vectors is not None else None
        # Scores depend on the other candidates: as many for a limit of one as for ten.
        least = max(limit, calibration.RIVALS if compared is None else score.CANDIDATES)
        found = score.rank(asked, least, among=among, lent=lent)
        near = {} if compared is None else self._nearest(compared, among)
        if rest := {*besides, *near} - {each.id for each in found}:
            found += score.rank(asked, len(rest), among=rest, lent=lent)
        confidence = calibration.Confidence(asked, lent)
        if compared is None:
            return Ranking(asked, found, confidence.by_words(found), {})
        units = near | self.numbers(besides) | {each.id: each.number for each in found}
        nearness = self._nearness(compared, units)
        scores = confidence.by_meaning(found, nearness, self.vectors.read if self.vectors else 1.0)
        return Ranking(asked, found, scores, {id: document for id, (_, _, document) in nearness.items()})

    def _nearest(self, compared: "Compared", among: score.Among | None) -> dict[str, int]:
        """Return the units of the nearest documents, id → number, of those that are asked for."""
        rows = self.units({*self.owners(document for document, _ in compared.best(_NEAREST)).values()})
        allowed = score.allow([row.id for row in rows.values()], among)
        return {row.id: at for at, row in rows.items() if row.document is not None and row.id in allowed}

    def _nearness(self, compared: "Compared", units: Mapping[str, int]) -> dict[str, tuple[float, int, int]]:
        """Return how near units are to a question, each with its number and its nearest document, by their ids.

        0 is as near as usual, 1 the question itself, -1 a unit without a vector.
        """
        rows = self.units(units.values())
        passages = self.passages_of(rows)
        documents = {number: [2 * number, *passages.get(number, ())] for number in rows}
        flat = [each for part in documents.values() for each in part]
        similar = dict(zip(flat, compared.similarities(flat), strict=True))
        nearest = {number: max(part, key=similar.__getitem__) for number, part in documents.items()}
        usual = compared.usual
        read = {at: similar[document] for at, document in nearest.items() if similar[document] > -1.0}
        own = {at: min(1.0, max(0.0, one - usual) / max(1e-4, 1.0 - usual)) for at, one in read.items()}
        near = {at: max(own[at], _BESIDE * own.get(rows[at].above or 0, 0.0)) if at in own else -1.0 for at in rows}
        return {id: (near[number], number, nearest[number]) for id, number in units.items()}
