"""The four extractors: by a model where there is one, by rules where there is none."""

from collections.abc import Sequence

from ..core.objects import CandidateMemory, Message, RequestContext, SessionArchive
from .reading import ModelReader
from .rules import read_entities, read_preferences, read_profile, read_tools

__all__ = ["EntityEventExtractor", "PreferenceExtractor", "ProcedureExtractor", "ProfileExtractor", "make_extractors"]


class _Extractor:
    """What all four share: the model that one call a chunk serves all of them with."""

    categories: tuple[str, ...] = ()

    def __init__(self, reader: ModelReader | None = None) -> None:
        self._reader = reader

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return candidates of this extractor's categories, each with its sources."""
        if self._reader is None:
            return self.by_rules(messages, archive)
        found = self._reader.read(messages, archive, ctx)
        return [candidate for candidate in found if candidate.category in self.categories]

    def by_rules(self, messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
        """Return what the table of cues finds."""
        raise NotImplementedError


class ProfileExtractor(_Extractor):
    """Who the user is."""

    categories = ("profile",)

    def by_rules(self, messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
        """Return name, home, work and birthday, as the user states them."""
        return read_profile(messages, archive)


class PreferenceExtractor(_Extractor):
    """What the user likes, and how they want to be served."""

    categories = ("preferences",)

    def by_rules(self, messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
        """Return the sentences that say so."""
        return read_preferences(messages, archive)


class EntityEventExtractor(_Extractor):
    """People, places, projects; and what happened."""

    categories = ("entities", "events")

    def by_rules(self, messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
        """Return names that are said twice."""
        return read_entities(messages, archive)


class ProcedureExtractor(_Extractor):
    """How things are done; how tools went is counted, with a model and without."""

    categories = ("cases", "patterns", "skills")

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return cases, patterns and skills, and the tools that were used."""
        return [*super().extract(messages, archive, ctx), *read_tools(archive)]

    def by_rules(self, messages: Sequence[Message], archive: SessionArchive) -> list[CandidateMemory]:
        """Return nothing: no cue tells a procedure from small talk."""
        return []


def make_extractors(reader: ModelReader | None = None) -> list[_Extractor]:
    """Return the four of them."""
    return [
        ProfileExtractor(reader),
        PreferenceExtractor(reader),
        EntityEventExtractor(reader),
        ProcedureExtractor(reader),
    ]
