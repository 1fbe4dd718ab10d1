"""The four extractors. A model fills them; without one they find nothing, but for the tools that were used."""

from collections.abc import Sequence

from ..core.objects import CandidateMemory, Message, RequestContext, SessionArchive
from .reading import ModelReader
from .tools import read_tools

__all__ = ["EntityEventExtractor", "PreferenceExtractor", "ProcedureExtractor", "ProfileExtractor", "make_extractors"]


class _Extractor:
    """What all four share: one call of the model for each chunk serves all of them."""

    categories: tuple[str, ...] = ()

    def __init__(self, reader: ModelReader | None = None) -> None:
        self._reader = reader

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return candidates of this extractor's categories, each with its sources; none without a model."""
        found = [] if self._reader is None else self._reader.read(messages, archive, ctx)
        return [candidate for candidate in found if candidate.category in self.categories]


class ProfileExtractor(_Extractor):
    """Who the user is."""

    categories = ("profile",)


class PreferenceExtractor(_Extractor):
    """What the user likes, and how they want to be served."""

    categories = ("preferences",)


class EntityEventExtractor(_Extractor):
    """People, places, projects; and what happened."""

    categories = ("entities", "events")


class ProcedureExtractor(_Extractor):
    """How things are done; how tools went is counted, with a model and without."""

    categories = ("cases", "patterns", "skills")

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return cases, patterns and skills, and the tools that were used."""
        return [*super().extract(messages, archive, ctx), *read_tools(archive)]


def make_extractors(reader: ModelReader | None = None) -> list[_Extractor]:
    """Return the four of them."""
    return [kind(reader) for kind in (ProfileExtractor, PreferenceExtractor, EntityEventExtractor, ProcedureExtractor)]
