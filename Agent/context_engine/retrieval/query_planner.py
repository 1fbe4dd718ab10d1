"""`QueryPlanner`: what is asked, by rules.

>>> plan = QueryPlanner().plan("谁喜欢龙井?", ctx=RequestContext("acme", "ada", "helper"))[0]
>>> sorted(plan.hints["raised"]), plan.categories
(['entities', 'preferences', 'profile'], [])

A cue raises categories a little; only what the caller says excludes anything.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...base.text import clean, shorten, strings_of
from ..core.checks import check_count, check_time
from ..core.config import BUDGET_TOKENS, OWNER_OF, SESSIONS
from ..core.errors import InvalidInputError
from ..core.objects import RequestContext, SessionArchive, TypedQuery
from ..fs.uri import check_access, space_uris
from ..providers.library import OF_A_PERSON, OF_A_PREFERENCE

__all__ = ["QueryPlanner"]

RAISED = 1.1

_CUES = (
    (r"\b(?:who|whose|whom)\b|谁", ("entities", "profile")),
    (r"\b(?:when|what (?:day|date|time)|how long ago)\b|什么时候|何时|哪天|几号|几点", ("events",)),
    (r"\bhow (?:do|to|can|should|did)\b|怎么|怎样|如何|步骤", ("skills", "cases", "patterns", "tools")),
    (OF_A_PREFERENCE, ("preferences",)),
    (OF_A_PERSON, ("profile",)),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), categories) for pattern, categories in _CUES)
_LAST = 3  # messages of the running session that a second query takes its words from


class QueryPlanner:
    """Turns a question into queries; asks no model."""

    def plan(
        self,
        query: str,
        session_archive: SessionArchive | None = None,
        hints: Mapping[str, Any] | None = None,
        ctx: RequestContext | None = None,
    ) -> list[TypedQuery]:
        """Return the queries of a question, the question itself first.

        Args:
            query: The question, as it was asked.
            session_archive: What was said just before; its last messages make a second query, which counts less.
            hints: `context_type`, `categories`, `target_uri`, `top_k`, `filters`, `budget_tokens`.
            ctx: The caller; needed.
        """
        if ctx is None:
            raise InvalidInputError("a query needs the request's ctx")
        space_uris(ctx)
        if not isinstance(query, str):
            raise InvalidInputError(f"query must be a text, not {shorten(query)}")
        if session_archive is not None and not isinstance(session_archive, SessionArchive):
            raise InvalidInputError(f"session_archive must be a SessionArchive, not {shorten(session_archive)}")
        given = dict(hints or {})
        target = given.get("target_uri")
        planned = TypedQuery(
            text=clean(query),
            context_type=str(given.get("context_type") or ""),
            categories=_check_categories(given.get("categories")),
            target_uri=check_access(ctx, target).text if target not in (None, "") else "",
            top_k=check_count("top_k", given.get("top_k", 10)),
            filters=_check_filters(given.get("filters")),
            hints={
                "raised": _raised(query),
                "budget_tokens": check_count("budget_tokens", given.get("budget_tokens", BUDGET_TOKENS)),
                "weight": 1.0,
            },
        )
        plans = [planned]
        if session_archive is not None and session_archive.recent_messages:
            last = " ".join(each.text[:400] for each in session_archive.recent_messages[-_LAST:])
            plans.append(replace(planned, text=f"{last}\n{planned.text}", hints={**planned.hints, "weight": 0.5}))
        return plans


def _raised(query: str) -> dict[str, float]:
    found = [category for pattern, categories in _COMPILED if pattern.search(query) for category in categories]
    return dict.fromkeys(found, RAISED)


def _check_categories(categories: object) -> list[str]:
    names = strings_of(categories)
    if categories is not None and (not isinstance(categories, (list, tuple)) or len(names) < len(categories)):
        raise InvalidInputError(f"categories must be a list of names, not {shorten(categories)}")
    for name in names:
        if name not in OWNER_OF and name != SESSIONS:
            raise InvalidInputError(f"a category is one of {', '.join([*OWNER_OF, SESSIONS])}, not {shorten(name)}")
    return names


def _check_filters(filters: object) -> dict[str, Any]:
    if filters is None:
        return {}
    if not isinstance(filters, Mapping) or not set(filters) <= {"since", "until"}:
        raise InvalidInputError(f"filters may hold since and until, in seconds, not {shorten(filters)}")
    return {name: None if value is None else check_time(name, value) for name, value in filters.items()}
