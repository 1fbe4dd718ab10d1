"""What a ranking reads of an index: the port between the two, so that neither imports the other."""

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from .thesaurus import Thesaurus

__all__ = ["Readable", "UnitRow"]


class UnitRow(NamedTuple):
    """A unit as it is stored."""

    id: str
    above: int | None
    group: str
    document: int | None  # of its names and its text; None where it is but the context of others
    is_context: bool
    passages: int  # of its infos


class Readable(Protocol):
    """The reading side of `index.Index`, which documents each method."""

    @property
    def thesaurus(self) -> Thesaurus | None:
        """The near words that it was made with."""

    def counts(self) -> dict[str, int]:
        """Return how many units, names, texts and passages there are, and the terms in them."""

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return in how many documents each term occurs."""

    def postings(self, term: str) -> dict[int, int]:
        """Return document → code of all that have a term."""

    def owners(self, documents: Iterable[int]) -> dict[int, int]:
        """Return document → unit."""

    def units(self, numbers: Collection[int]) -> dict[int, UnitRow]:
        """Return number → unit, of some and those above them."""

    def numbers(self, ids: Iterable[str]) -> dict[str, int]:
        """Return id → number."""

    def documents_of(self, ids: Iterable[str]) -> set[int]:
        """Return all documents of some units."""

    def documents_in(self, groups: Collection[str], limit: int) -> dict[int, str]:
        """Return document → group of what belongs to some groups."""

    def children(self, number: int, limit: int) -> list[int]:
        """Return units that have this one as their context."""

    def read(self, documents: Collection[int]) -> dict[int, tuple[list[str], str]]:
        """Return document → names and text."""

    def names_of(self, number: int) -> list[str]:
        """Return the names of a unit."""
