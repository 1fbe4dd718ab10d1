"""The bodies and queries of the hub, and their limits.

>>> KnowledgeIn(task="boil an egg", content="Seven minutes.", types=["usecase"]).scopes
['user:owner']
>>> KnowledgeIn(task="boil an egg", content="Seven minutes.", types=["recipe"])  # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
pydantic_core._pydantic_core.ValidationError: ...

A body is one of the models here, and unknown fields are refused. No error repeats what was said: it may be a secret.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from ..base.checks import depth_of
from ..base.text import read_time
from .records import LAST_S, OWNER_SCOPE, Json, KnowHubError, invalid

Type = Literal["user_profile", "strategy", "tool", "usecase", "definition", "plan"]
TYPES: tuple[str, ...] = get_args(Type)
"""The types of knowledge; an entry may have several."""

ContentType = Literal["text", "code", "credential", "cookie"]
CONTENT_TYPES: tuple[str, ...] = get_args(ContentType)
"""The types of a resource."""

Right = Literal["read", "write", "curate", "secrets", "admin"]

REQUEST_LIMIT = 1024 * 1024
"""Bytes of a request's body."""
TASK_LIMIT = 2_000
"""Characters of a task, and of a query."""
CONTENT_LIMIT = 65_536
"""Characters of a content, and of a secret."""
BODY_LIMIT = 262_144
"""Characters of a resource's public body."""
RESOURCE_ID_LIMIT = 200
"""Characters of a resource's id."""
_SHORT = 200


# Bodies


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half of a character (a lone surrogate)") from None
    return text


_Json = TypeVar("_Json")
_HIDDEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def is_plain(text: str) -> bool:
    r"""Return whether nothing of a name is hidden or in a form that only looks like another: names give rights.

    >>> is_plain("ada@example.com"), is_plain("王芳"), is_plain("ada\u200b"), is_plain("ａda")
    (True, True, False, False)
    """
    return text.isprintable() and _HIDDEN.search(text) is None and unicodedata.normalize("NFKC", text) == text


def _iso(value: object) -> object:
    """Refuse numbers, which pydantic would take for seconds."""
    if isinstance(value, datetime) or (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[Tt ]", value)):
        return value
    raise ValueError("it must be a time in ISO 8601, with its zone")


def _whole(value: object) -> object:
    """Return 5.0 as 5, which JSON does not tell apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("it must be a time of the years 1 to 9999, in UTC, too") from None


def _check_json(value: _Json, limit: int = 20_000) -> _Json:
    """Return a value; refuse one that is no plain JSON, too deep or too long."""
    try:
        text, depth = json.dumps(value, ensure_ascii=False, allow_nan=False), depth_of(value)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("it must be plain JSON, with finite numbers") from None
    _storable(text)
    if len(text) > limit:
        raise ValueError(f"it must not be longer than {limit} characters")
    if depth > 50:
        raise ValueError("it must not be deeper than 50 levels")
    return value


_Storable, _Plain = AfterValidator(_storable), AfterValidator(_check_json)
Time = Annotated[AwareDatetime, BeforeValidator(_iso), AfterValidator(_in_utc)]
# Blanks and control characters. ECMA 262, whose patterns a JSON schema has, and Rust, which checks them here, differ in
# what `\\s` means (U+0085, U+FEFF): both are listed.
_BLANK = r"\s\x00-\x1f\x7f-\x9f\ufeff"
_SAID = r"[^\s\x85\ufeff]"  # something must be said
_NAMED = rf"^[^\x00-\x1f\x7f]*[^{_BLANK}][^\x00-\x1f\x7f]*$"
_SCOPE = rf"[^{_BLANK},*]+"

Task = Annotated[str, StringConstraints(min_length=1, max_length=TASK_LIMIT, pattern=_SAID), _Storable]
Content = Annotated[str, StringConstraints(min_length=1, max_length=CONTENT_LIMIT, pattern=_SAID), _Storable]
Short = Annotated[str, StringConstraints(max_length=_SHORT), _Storable]
Longer = Annotated[str, StringConstraints(max_length=TASK_LIMIT), _Storable]
Name = Annotated[str, StringConstraints(min_length=1, max_length=_SHORT, pattern=_NAMED), _Storable]
# Whether a name is plain no pattern can say: see `tokens.check_plain`.
# Lengths are no part of a pattern: a class of Unicode that is counted to 200 takes megabytes.
Scope = Annotated[str, StringConstraints(max_length=_SHORT, pattern=rf"^{_SCOPE}$"), _Storable]
Principal = Annotated[str, StringConstraints(max_length=100, pattern=rf"^[^{_BLANK}]+$"), _Storable]
TokenScope = Annotated[str, StringConstraints(max_length=_SHORT, pattern=rf"^(\*|{_SCOPE})$"), _Storable]
ScopeList = Annotated[str, StringConstraints(max_length=20 * _SHORT, pattern=rf"^{_SCOPE}(,{_SCOPE})*$"), _Storable]
Url = Annotated[str, StringConstraints(max_length=TASK_LIMIT, pattern=rf'^https?://[^{_BLANK}<>"]+$'), _Storable]
Model = Annotated[str, StringConstraints(max_length=_SHORT), _Storable]
KnowledgeId = Annotated[str, StringConstraints(pattern=r"^knowledge-[0-9A-Za-z-]{1,60}$")]
_SEGMENT = r"(?:\.*[A-Za-z0-9_-][A-Za-z0-9._-]*)"
TRACE_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$"
GROUP_PATTERN = r"^[\w-][\w.-]*$"
RESOURCE_ID_PATTERN = rf"^{_SEGMENT}(?:/{_SEGMENT}){{0,7}}$"
ResourceId = Annotated[str, StringConstraints(max_length=RESOURCE_ID_LIMIT, pattern=RESOURCE_ID_PATTERN)]
Category = Literal["paper", "exp", "skill", "book"]
# The limits come first: after a validator of our own, the schema would not show them.
Score = Annotated[int, Field(ge=1, le=5, strict=True), BeforeValidator(_whole)]
Confidence = Annotated[float, Field(ge=0, le=1, strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
ResourceIds = Annotated[list[ResourceId], Field(max_length=50)]
Types = Annotated[list[Type], Field(min_length=1, max_length=20)]
Scopes = Annotated[list[Scope], Field(min_length=1, max_length=20)]
Tags = Annotated[dict[Name, Name], Field(max_length=20)]


class Body(BaseModel):
    """Base of all bodies and queries: unknown fields are refused, and no error shows the input."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Source(Body):
    """Where knowledge comes from."""

    name: Short = ""
    category: Category = "exp"
    urls: Annotated[list[Url], Field(max_length=20)] = []
    agent_id: Short = ""
    submitted_by: Short = ""
    timestamp: Time | None = None
    message_id: Short = ""


class EntryFields(Body):
    """The fields of every form of an entry."""

    task: Task
    content: Content
    types: Types
    tags: Tags = {}
    scopes: Scopes = [OWNER_SCOPE]
    owner: Short = ""
    resource_ids: ResourceIds = []


class KnowledgeIn(EntryFields):
    """New knowledge."""

    resource_id: ResourceId | None = None
    secure_resource_id: ResourceId | None = None
    source: Annotated[Source, Field(default_factory=Source)]
    score: Score = 3
    confidence: Confidence = 0.5
    message_id: Short = ""

    def all_resource_ids(self) -> list[str]:
        """Return the resources that any of the three fields names, each once."""
        single = [id for id in (self.resource_id, self.secure_resource_id) if id is not None]
        return list(dict.fromkeys([*self.resource_ids, *single]))


class Judgement(Body):
    """How an entry is judged, as its record has it."""

    score: Score = 3
    helpful: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    harmful: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    confidence: Confidence = 0.5
    helpful_history: Annotated[list[dict[str, Any]], Field(max_length=20), _Plain] = []
    harmful_history: Annotated[list[dict[str, Any]], Field(max_length=20), _Plain] = []


class KnowledgeLine(KnowledgeIn):
    """Knowledge as an export, or the whole record, has it; a line without `id` gets one made from what it says."""

    id: KnowledgeId | None = None
    eval: Judgement | None = None
    created_at: Time | None = None
    updated_at: Time | None = None
    created_by: Short = ""
    merged_into: Annotated[str, StringConstraints(pattern=r"^(knowledge-[0-9A-Za-z-]{1,60})?$")] = ""


class KnowledgePatch(Body):
    """The fields of an entry to change; others stay."""

    task: Task | None = None
    content: Content | None = None
    types: Types | None = None
    tags: Tags | None = None
    scopes: Scopes | None = None
    owner: Short | None = None
    resource_ids: ResourceIds | None = None
    score: Score | None = None
    confidence: Confidence | None = None


class Case(Body):
    """How an entry did, once."""

    task: Longer = ""
    outcome: Longer = ""
    reason: Longer = ""
    timestamp: Time | None = None

    def to_json(self) -> Json:
        """Return the given fields."""
        return {name: value for name, value in self.model_dump(mode="json").items() if value not in ("", None)}


class KnowledgeUpdate(Body):
    """Judgements of an entry, and the wish for a rewriting."""

    add_helpful_case: Case | None = None
    add_harmful_case: Case | None = None
    update_score: Score | None = None
    evolve_feedback: Task | None = None
    model: Model = ""


class FeedbackIn(Body):
    """One judgement of many."""

    knowledge_id: KnowledgeId
    is_helpful: Flag
    case: Case = Case()


class FeedbackLine(FeedbackIn):
    """Feedback as an export has it."""

    id: Annotated[str, StringConstraints(pattern=r"^feedback-[0-9A-Za-z-]{1,60}$")]
    created_by: Short = ""


class BatchIn(Body):
    """Judgements of several entries."""

    feedback_list: Annotated[list[FeedbackIn], Field(min_length=1, max_length=200)]
    atomic: Flag = True


class Cluster(Body):
    """Entries that seem to say the same; who may see one may see all."""

    keep: KnowledgeId
    """The best by quality: its id stays."""
    merge: Annotated[list[KnowledgeId], Field(min_length=1, max_length=10_000)]
    """The entries to be merged into it."""
    task: Task
    content: Content
    """The text of the entry that stays."""
    reason: Short = ""
    """`"equal"`, or `"model"`."""
    versions: Annotated[dict[KnowledgeId, int], Field(max_length=10_001)]
    """Of all of them: a plan that they have outgrown is refused."""


class Plan(Body):
    """The plan of a dry run of slimming, and the merges to carry out."""

    clusters: list[Cluster]  # as many as a request holds


class SlimIn(Body):
    """The merges to carry out, and the model to write them."""

    model: Model = ""
    dry_run: Flag = False
    plan: Plan | None = None


class ResourceFields(Body):
    """The public fields of a resource."""

    title: Name
    body: Annotated[str, StringConstraints(max_length=BODY_LIMIT), _Storable] = ""
    content_type: ContentType = "text"
    metadata: Annotated[dict[Name, Any], Field(max_length=50), _Plain] = {}
    scopes: Scopes = [OWNER_SCOPE]
    owner: Short = ""


class ResourceIn(ResourceFields):
    """A resource: its public body, and its sealed one."""

    secure_body: Annotated[SecretStr, Field(max_length=CONTENT_LIMIT)] | None = None
    expires_at: Time | None = None

    @model_validator(mode="after")
    def _is_storable(self) -> "ResourceIn":
        _storable(self.secret())
        ends_at = self.ends_at()
        # A caller who says when a secret ends relies on it.
        if self.metadata.get("expires_at") is not None and (ends_at is None or not 0 <= ends_at <= LAST_S):
            raise ValueError("metadata.expires_at must be a time in ISO 8601, or seconds since the epoch")
        return self

    def secret(self) -> str:
        """Return the text to be sealed; "" is none."""
        return self.secure_body.get_secret_value() if self.secure_body is not None else ""

    def keeps_secret(self) -> bool:
        """Return whether a secret that is there stays: where the body says nothing of one. `null` and `""` end it."""
        return "secure_body" not in self.model_fields_set

    def ends_at(self) -> float | None:
        """Return when the secret ends, in seconds since the epoch: as `expires_at` says, or the metadata's own."""
        if self.expires_at is not None:
            return self.expires_at.timestamp()
        given = self.metadata.get("expires_at")
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return float(given)  # as cookies have it
        return read_time(given)


class ResourceLine(ResourceIn):
    """A resource as an export has it."""

    created_by: Short = ""


_PlainKnowledge = AfterValidator(partial(_check_json, limit=CONTENT_LIMIT))


class GoalIn(Body):
    """One goal of a tree."""

    id: Name
    description: Longer = ""
    status: Literal["open", "focused", "done", "abandoned"] = "open"
    parent_id: Short = ""
    knowledge: Annotated[list[dict[str, Any]], Field(max_length=50), _PlainKnowledge] = []


class GoalsIn(Body):
    """A goal tree."""

    goals: Annotated[list[GoalIn], Field(max_length=500)]


class TokenIn(Body):
    """Whom a token is for."""

    principal: Principal
    rights: Annotated[list[Right], Field(min_length=1, max_length=5)] = ["read", "write"]
    scopes: Annotated[list[TokenScope], Field(max_length=20)] | None = None
    """Its scopes; None is the hub's organisation, where it has one."""
    expires_at: Time | None = None


class GroupIn(Body):
    """The members of a group, and their scopes."""

    members: Annotated[list[Principal], Field(max_length=1000)]
    scopes: Annotated[list[TokenScope], Field(max_length=20)]


class ImportIn(Body):
    """Lines of an export, as objects."""

    lines: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]


class AcceptIn(Body):
    """A text in place of the proposed one; without it the proposal is taken."""

    content: Content | None = None


# Parameters


_TYPE = "|".join(TYPES)
Query = Annotated[str, StringConstraints(min_length=1, max_length=TASK_LIMIT), _Storable]
TypeList = Annotated[str, StringConstraints(pattern=rf"^({_TYPE})(,({_TYPE})){{0,19}}$")]
Cursor = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,15}\.[0-9]{1,9}_[A-Za-z0-9._/-]{0,220}$")]


class SearchQuery(Body):
    """A search."""

    q: Annotated[Query, Field(description="what is to be done", examples=["log in with selenium"])]
    top_k: Annotated[int, Field(ge=1, le=50)] = 5
    min_score: Annotated[int, Field(ge=1, le=5)] = 3
    types: TypeList | None = None
    route: Literal["auto", "model", "recall"] = "auto"


class PageQuery(Body):
    """Which page."""

    limit: Annotated[int, Field(ge=1, le=200)] = 10
    cursor: Cursor | None = None


class ListQuery(PageQuery):
    """Which page of which entries."""

    types: TypeList | None = None
    scopes: ScopeList | None = None
    owner: Short | None = None
    tag: Annotated[str | None, Field(max_length=401, description="a key, or key:value")] = None


class ProposalQuery(PageQuery):
    """Which page of which proposals."""

    state: Literal["open", "accepted", "rejected"] = "open"


# What every door passes what it was given through


_RESOURCE_ID = re.compile(RESOURCE_ID_PATTERN).fullmatch

_Body = TypeVar("_Body", bound=BaseModel)


def parse(model: type[_Body], value: _Body | Mapping[str, Any]) -> _Body:
    """Return a body as its model has it.

    Raises:
        KnowHubError: `invalid`, with a pointer to each field.
    """
    if isinstance(value, model):
        return value
    try:
        return model.model_validate(dict(value))
    except ValidationError as error:
        raise _problem_of(error.errors(include_input=False, include_url=False)) from None
    except RecursionError:
        raise invalid("", "it is too deep") from None


def _problem_of(errors: Sequence[Any]) -> KnowHubError:
    """Return what is wrong, field by field; nothing that was said is repeated, not even the name of a field."""
    listed = []
    for error in errors[:50]:
        place, detail = error["loc"], str(error["msg"])
        if error["type"] == "extra_forbidden":
            name, place = str(place[-1]), place[:-1]
            is_name = re.fullmatch(r"[a-z_]{1,30}", name) is not None  # all else may be what was to be kept secret
            detail = f"the field {name} is not known" if is_name else "it has a field that is not known"
        elif error["type"] in _DETAILS:
            detail = _DETAILS[error["type"]]
        elif "ctx" in error and error["type"] not in _HARMLESS:
            detail = "it is not valid"
        # The names of fields and indexes are ours: all else came from outside, the name of a tag, say.
        pointer = "".join(f"/{step}" for step in place if isinstance(step, int) or step in _FIELDS)
        listed.append({"pointer": pointer, "detail": detail.removeprefix("Value error, ")})
    return KnowHubError("invalid", f"{listed[0]['pointer'] or 'the request'}: {listed[0]['detail']}", listed)


_HARMLESS = frozenset(["string_too_long", "greater_than_equal", "less_than_equal", "too_long"])
_HARMLESS |= {"literal_error", "value_error", "int_parsing"}
_DETAILS = {
    "datetime_from_date_parsing": "it is no time in ISO 8601",
    "missing": "it is needed",
    "string_pattern_mismatch": "it is blank, or has characters that may not stand here",
    "string_too_short": "it must not be empty",
    "too_short": "it needs at least one",
}


_models = [each for each in [*globals().values()] if isinstance(each, type) and issubclass(each, Body)]
_FIELDS = frozenset(["If-Match", "Idempotency-Key"]).union(*(model.model_fields for model in _models))


def check_resource_id(id: str) -> None:
    """Refuse an invalid id of a resource.

    Raises:
        KnowHubError: `invalid`.
    """
    if not isinstance(id, str) or len(id) > RESOURCE_ID_LIMIT or _RESOURCE_ID(id) is None:
        raise invalid("/id", "1 to 8 segments of A-Z, a-z, 0-9, `._-`, none of dots alone, 200 characters at most")


def is_text(value: object, limit: float = math.inf) -> bool:
    """Return whether a value is a text that can be stored: not blank, not too long, of whole characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        return False
    return not any("\ud800" <= char <= "\udfff" for char in value)
