"""The forms of answers, as the document of the API describes them."""

from typing import NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from .records import Json


class Judged(TypedDict):
    """How an entry is judged."""

    score: int
    helpful: int
    harmful: int
    confidence: float


class JudgedCases(Judged):
    """The same, with the newest 20 cases of each kind."""

    helpful_history: list[Json]
    harmful_history: list[Json]


class EntryFields(TypedDict):
    """The fields of every form of an entry."""

    id: str
    task: str
    content: str
    types: list[str]
    tags: dict[str, str]
    scopes: list[str]
    owner: str
    resource_ids: list[str]
    created_by: str


class EntryOut(EntryFields):
    """An entry, whole."""

    message_id: str
    source: Json
    eval: JudgedCases
    created_at: str
    updated_at: str
    version: int
    merged_into: str


class ResultOut(EntryFields):
    """The hits of a search."""

    eval: Judged
    quality_score: float


class SearchOut(TypedDict):
    """The hits of a search, and how they were found."""

    results: list[ResultOut]
    count: int
    routing: str
    reason: str
    eligible: int
    shown: int
    hidden: int
    """How many entries of its organisation's hub the token may not see, whatever they say, where nothing was found."""
    took_ms: float
    usage: Json | None


class ChangedOut(TypedDict):
    """An entry as it became."""

    entry: EntryOut
    operation_id: str


class UpdatedOut(ChangedOut):
    """The changed entry, and the outcome of a rewriting."""

    note: str
    """Why a vote does not count; "" where it does."""

    evolution: NotRequired[Json]
    """`state` (applied, proposed or queued), `reason`, `operation_id`, `proposal_id`, `usage` of the model."""


class SavedOut(ChangedOut):
    """A new entry, and which it resembles."""

    similar: list[Json]
    note: str
    """A note where no other principal sees it."""


class ListOut(TypedDict):
    """A page of entries."""

    results: list[EntryOut]
    count: int
    next_cursor: str | None


class PageOut(TypedDict):
    """A page of anything."""

    id: NotRequired[str]
    """Of a history: the record."""
    results: list[Json]
    count: int
    next_cursor: NotRequired[str | None]


class DoneOut(TypedDict):
    """The changed records, and the operation that `undo` takes."""

    id: NotRequired[str]
    undone: NotRequired[str]
    operation_id: NotRequired[str]


class ResourceOut(TypedDict):
    """A resource, without its secret."""

    id: str
    title: str
    body: str
    content_type: str
    metadata: Json
    scopes: list[str]
    owner: str
    expires_at: str | None
    secret: str
    version: int
    created_by: str
    created_at: str
    updated_at: str


class KeptOut(TypedDict):
    """A resource as it became."""

    resource: ResourceOut
    operation_id: str


class SecretOut(TypedDict):
    """A secret."""

    id: str
    secure_body: str


class TokenOut(TypedDict):
    """A token; its text is shown when it is made, and never again."""

    id: str
    principal: str
    rights: list[str]
    scopes: list[str]
    created_at: str
    expires_at: str | None
    token: NotRequired[str]


class ProblemOut(TypedDict):
    """A problem, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, str]]


for _answer in [each for each in globals().values() if getattr(each, "__module__", "") == __name__]:
    with_config(ConfigDict(extra="forbid"))(_answer)  # what it does not name is not returned
