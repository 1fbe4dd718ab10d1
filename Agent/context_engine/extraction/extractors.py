"""The four extractors. A model fills them; without one they find nothing, but for the tools that were used."""

from collections.abc import Sequence
from typing import Any

from ...base.text import cut_tokens, mapping_of, one_line, read_time, to_json
from ..core.config import OWNER_OF
from ..core.objects import CandidateMemory, Message, RequestContext, SessionArchive
from ..providers.library import mask
from .reading import ModelReader

__all__ = [
    "EntityEventExtractor",
    "PreferenceExtractor",
    "ProcedureExtractor",
    "ProfileExtractor",
    "describe_tool",
    "make_extractors",
    "read_tools",
]


def read_tools(archive: SessionArchive) -> list[CandidateMemory]:
    """Return how tools went in a session: one candidate for each, with its figures as JSON in `overview`."""
    used: dict[str, list[dict[str, Any]]] = {}
    for tool in archive.stats.get("used_tools") or ():
        if (call := mapping_of(tool)).get("name"):
            used.setdefault(str(call["name"]), []).append(call)
    found = []
    for name, calls in used.items():
        failures = [call for call in calls if call.get("ok") is False]
        figures = {
            "calls": len(calls),
            "successes": len(calls) - len(failures),
            "failures": len(failures),
            "seconds": round(sum(float(call.get("seconds") or 0.0) for call in calls), 3),
        }
        errors = dict.fromkeys(one_line(str(call["error"])) for call in failures if call.get("error"))
        times = [at for call in calls if (at := read_time(call.get("at"))) is not None]
        content, sources = cut_tokens("; ".join(errors), 300), [{"archive": archive.archive_uri, "message": ""}]
        at = max(times, default=float(archive.stats.get("at") or 0.0))
        made = "tools", OWNER_OF["tools"], name, "", to_json(figures), content, 1.0, sources, "", at
        found.append(CandidateMemory(*made))
    return found


def describe_tool(tool: Any) -> dict[str, Any]:
    """Return a used tool as the archive keeps it: `name`, `ok`, `seconds`, `error`, `at`."""
    made = mapping_of(tool) if not isinstance(tool, str) else {"name": tool}
    name = made.get("name", made.get("tool"))
    status = made.get("ok", made.get("success"))
    if status is None and isinstance(made.get("status"), str):
        status = made["status"].casefold() not in ("error", "failed", "failure")
    seconds = made.get("seconds", made.get("duration_s"))
    milliseconds: object = made.get("duration_ms")
    if seconds is None and isinstance(milliseconds, (int, float)):
        seconds = milliseconds / 1000
    return {
        "name": one_line(str(name or ""))[:100],
        "ok": status is not False and not made.get("error"),
        "seconds": float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else 0.0,
        **({"error": mask(one_line(str(made["error"])))[:300]} if made.get("error") else {}),
        **({"at": made["at"]} if read_time(made.get("at")) is not None else {}),
    }


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
