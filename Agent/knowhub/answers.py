"""The forms of answers, as the document of the API describes them: the fields of `schemas`, and what a hub adds."""

from pydantic import Field

from .records import Json
from .schemas import Body, EntryFields, Judgement, ResourceFields, Source, TokenIn


class EntryOut(EntryFields):
    """An entry, whole."""

    id: str
    message_id: str
    source: Source
    eval: Judgement
    created_by: str
    created_at: str
    updated_at: str
    version: int
    merged_into: str


class ResultOut(EntryFields):
    """The hits of a search."""

    id: str
    eval: Judgement
    created_by: str
    quality_score: float


class SearchOut(Body):
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


class ChangedOut(Body):
    """An entry as it became."""

    entry: EntryOut
    operation_id: str


class UpdatedOut(ChangedOut):
    """The changed entry, and the outcome of a rewriting."""

    note: str
    """Why a vote does not count; "" where it does."""
    evolution: Json = Field(default_factory=dict)
    """`state` (applied, proposed or queued), `reason`, `operation_id`, `proposal_id`, `usage` of the model."""


class SavedOut(ChangedOut):
    """A new entry, and which it resembles."""

    similar: list[Json]
    note: str
    """A note where no other principal sees it."""


class ListOut(Body):
    """A page of entries."""

    results: list[EntryOut]
    count: int
    next_cursor: str | None


class PageOut(Body):
    """A page of anything."""

    id: str = ""
    """Of a history: the record."""
    results: list[Json]
    count: int
    next_cursor: str | None


class DoneOut(Body):
    """The changed records, and the operation that `undo` takes."""

    id: str = ""
    undone: str = ""
    operation_id: str = ""


class ResourceOut(ResourceFields):
    """A resource, without its secret."""

    id: str
    expires_at: str | None
    secret: str
    version: int
    created_by: str
    created_at: str
    updated_at: str


class KeptOut(Body):
    """A resource as it became."""

    resource: ResourceOut
    operation_id: str


class SecretOut(Body):
    """A secret."""

    id: str
    secure_body: str


class TokenOut(TokenIn):
    """A token; its text is shown when it is made, and never again."""

    id: str
    created_at: str
    token: str = ""


class ProblemOut(Body):
    """A problem, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, str]]
