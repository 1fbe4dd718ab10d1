"""What the server answers, as the document describes it, and the few forms that all answers have."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from .gate import PROBLEM_TYPE, problem_headers
from .schemas import PROBLEMS, Json, KnowHubError, Plan

try:
    from fastapi import Response
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install '.[knowhub]' in its repository") from error

__all__ = ["ImportIn", "answer", "problem", "read_version", "told"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Judged(_Answer):
    """How an entry is judged."""

    score: int
    helpful: int
    harmful: int
    confidence: float


class JudgedCases(Judged):
    """The same, with the newest 20 cases of each kind."""

    helpful_history: list[dict[str, Any]]
    harmful_history: list[dict[str, Any]]


class SourceOut(_Answer):
    """Where an entry comes from."""

    name: str
    category: str
    urls: list[str]
    agent_id: str
    submitted_by: str
    timestamp: str
    message_id: str


class EntryOut(_Answer):
    """An entry, whole."""

    id: str
    message_id: str
    types: list[str]
    task: str
    tags: dict[str, str]
    scopes: list[str]
    owner: str
    content: str
    resource_ids: list[str]
    source: SourceOut
    eval: JudgedCases
    created_at: str
    updated_at: str
    created_by: str
    version: int
    merged_into: str


class ResultOut(_Answer):
    """What a search found."""

    id: str
    task: str
    content: str
    types: list[str]
    tags: dict[str, str]
    scopes: list[str]
    owner: str
    resource_ids: list[str]
    created_by: str
    eval: Judged
    quality_score: float


class SearchOut(_Answer):
    """What a search found, and how."""

    results: list[ResultOut]
    count: int
    routing: str
    reason: str
    eligible: int
    shown: int
    took_ms: float
    usage: dict[str, Any] | None


class EvolutionOut(_Answer):
    """What became of a wish to rewrite."""

    state: str
    reason: str
    operation_id: str
    proposal_id: str
    usage: dict[str, Any] | None = None


class ChangedOut(_Answer):
    """An entry as it became."""

    entry: EntryOut
    operation_id: str


class UpdatedOut(ChangedOut):
    """An entry as it became, and what became of a wish to rewrite it."""

    evolution: EvolutionOut | None = None


class SavedOut(ChangedOut):
    """A new entry, and which it resembles."""

    similar: list[dict[str, Any]]


class ListOut(_Answer):
    """A page of entries."""

    results: list[EntryOut]
    count: int
    next_cursor: str | None


class PageOut(_Answer):
    """A page of anything."""

    results: list[dict[str, Any]]
    count: int
    next_cursor: str | None = None


class HistoryOut(_Answer):
    """The versions of an entry."""

    id: str
    results: list[dict[str, Any]]
    count: int


class DoneOut(_Answer):
    """What was changed, and the operation that `undo` takes."""

    id: str
    operation_id: str = ""


class BatchOut(_Answer):
    """What was judged."""

    updated: int
    operation_id: str
    results: list[dict[str, Any]]


class SlimOut(_Answer):
    """What was merged, or would be."""

    model: str
    merged: int
    operation_id: str
    skipped: list[dict[str, Any]]
    plan: Plan


class ResourceOut(_Answer):
    """A resource, without its secret."""

    id: str
    title: str
    body: str
    content_type: str
    metadata: dict[str, Any]
    scopes: list[str]
    owner: str
    expires_at: str | None
    secret: str
    version: int
    created_by: str
    created_at: str
    updated_at: str


class KeptOut(_Answer):
    """A resource as it became."""

    resource: ResourceOut
    operation_id: str


class SecretOut(_Answer):
    """A secret."""

    id: str
    secure_body: str


class UndoneOut(_Answer):
    """What was undone, and the operation that undoes the undoing."""

    operation_id: str
    undone: str


class GoalsOut(_Answer):
    """A goal tree."""

    trace_id: str
    goals: list[dict[str, Any]]
    version: int


class GoalsKeptOut(_Answer):
    """That a goal tree was kept."""

    trace_id: str
    version: int
    operation_id: str


class TokenOut(_Answer):
    """A token; its text is told when it is made, and never again."""

    id: str
    principal: str
    rights: list[str]
    scopes: list[str]
    created_at: str
    expires_at: str | None
    token: str = ""


class ImportIn(BaseModel):
    """Lines of an export, as objects."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    lines: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]


class ImportOut(_Answer):
    """What an import did."""

    written: int
    skipped: int
    errors: list[dict[str, Any]]


class ProblemOut(BaseModel):
    """A problem, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, str]]


# Forms


def answer(data: Any, status: int = 200, version: int | None = None) -> Response:
    """Return data as JSON, with its version as ETag."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


def problem(error: KnowHubError, instance: str, headers: dict[str, str] | None = None) -> Response:
    """Return a problem."""
    body = json.dumps(error.to_json(instance), ensure_ascii=False).encode()
    return Response(body, error.status, {**problem_headers(error), **(headers or {})}, PROBLEM_TYPE)


def read_version(if_match: str | None, *, needed: bool) -> int | None:
    """Return the version that If-Match names; None is any.

    Raises:
        KnowHubError: `version-needed` where it is missing.
    """
    if if_match is None:
        if needed:
            raise KnowHubError("version-needed", 'If-Match must name the version that was seen: `If-Match: "3"`')
        return None
    return None if if_match.strip() == "*" else int(if_match.strip().strip('"'))


_EVERYWHERE = (400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 429, 431, 500, 503, 507)


def told(model: type[BaseModel], *also: int, status: int = 200, with_version: bool = False) -> dict[int | str, Json]:
    """Return what the document says of an operation's answers."""
    statuses = sorted({*_EVERYWHERE, *also})
    titles = dict(reversed(list(PROBLEMS.values())))
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
    answers: dict[int | str, Json] = {code: {"description": titles[code], "content": content} for code in statuses}
    answers[status] = {"model": model, "description": (model.__doc__ or "").split("\n")[0]}
    if with_version:
        header = {"description": "the version, for If-Match", "schema": {"type": "string"}}
        answers[status]["headers"] = {"ETag": header}
    return answers
