"""`CandidatePipeline`: all extractors, and their candidates made comparable."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ...base.text import clean, count_tokens, cut_tokens, fold, merge_unique, one_line
from ...keyword_tree import HideKeys
from ..core.config import LEVEL_TOKENS, OWNER_OF
from ..core.errors import ContextEngineError
from ..core.objects import CandidateExtractor, CandidateMemory, Message, RequestContext, SessionArchive
from ..fs.uri import memory_uri


class CandidatePipeline:
    """Calls all extractors; one that fails takes nothing from the others."""

    def __init__(self, extractors: Sequence[CandidateExtractor]) -> None:
        self.extractors = list(extractors)

    def extract_candidates(
        self, ctx: RequestContext, archive: SessionArchive, messages: Sequence[Message]
    ) -> list[CandidateMemory]:
        """Return what all extractors found; they run side by side.

        In `archive.stats["reading"]`, where that is, stands how they failed: one may have missed something in any
        message.
        """
        reading = archive.stats.get("reading")

        def extract(extractor: CandidateExtractor) -> list[CandidateMemory] | Exception:
            try:
                return extractor.extract(messages, archive, ctx)
            except Exception as error:  # an extractor may be the caller's own
                return error

        found: list[CandidateMemory] = []
        with ThreadPoolExecutor(max(1, len(self.extractors))) as pool:
            for extractor, made in zip(self.extractors, pool.map(extract, self.extractors), strict=True):
                if not isinstance(made, Exception):
                    found += made
                elif reading is not None:
                    text = HideKeys(f"{type(made).__name__}: {made}")[:300]
                    reading.failures.append({"extractor": type(extractor).__name__, "error": text})
                    reading.failed.update(range(1, len(messages) + 1))
        return found

    def normalize_candidates(self, ctx: RequestContext, candidates: Sequence[CandidateMemory]) -> list[CandidateMemory]:
        """Return candidates that can be written, each once, with the sources of all that say the same.

        What has no category, no text, or no name that can be a URI is left out.
        """
        merged: dict[tuple[str, ...], CandidateMemory] = {}
        for candidate in map(_cleaned, candidates):
            has_figures = candidate.category in ("skills", "tools") and candidate.overview
            if candidate.category not in OWNER_OF or not (candidate.content.strip() or has_figures):
                continue
            try:
                uri = memory_uri(ctx, candidate.category, candidate.routing_key or candidate.content[:60])
            except ContextEngineError:
                continue
            made = replace(
                candidate,
                owner_scope=OWNER_OF[candidate.category],
                routing_key=one_line(candidate.routing_key) or candidate.content[:60],
                abstract=cut_tokens(one_line(candidate.abstract), LEVEL_TOKENS["L0"]),
                overview=cut_tokens(candidate.overview, LEVEL_TOKENS["L1"]),
            )
            if count_tokens(made.content) > LEVEL_TOKENS["L2"]:
                continue
            key = (candidate.category, uri, fold(candidate.content))
            known = merged.pop(key, None)  # what is said again goes behind what was said in between
            refs = merge_unique(known.source_refs if known else [], made.source_refs)
            merged[key] = replace(known or made, source_refs=refs, at=max(known.at if known else 0.0, made.at))
        # What was said later is written later, whatever finds it: of one moment it takes the other's place.
        return sorted(merged.values(), key=lambda made: (made.at, max(numbers_of(made), default=0)))


def numbers_of(candidate: CandidateMemory) -> set[int]:
    """Return the numbers of the messages that a candidate is from; none where it is from the whole archive."""
    named = (str(ref.get("message") or "") for ref in candidate.source_refs)
    return {int(name[1:]) for name in named if name[:1] == "m" and name[1:].isascii() and name[1:].isdecimal()}


def _cleaned(candidate: CandidateMemory) -> CandidateMemory:
    """Return a candidate whose texts can be written as UTF-8, also where an extractor gave others."""
    names = ("routing_key", "abstract", "overview", "content", "key")
    texts: dict[str, Any] = {name: clean(str(getattr(candidate, name))) for name in names}
    return replace(candidate, **texts)
