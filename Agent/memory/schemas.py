"""The records of an agent's memory: episodes, patterns learned from them, and skills.

An `EpisodeTrace` records one task as it went, a `SemanticPattern` what holds beyond it, a `ProceduralSkill` how
something is done. `TaskContext`, `ActionEntry`, `ErrorEntry`, `Link` and `ErrorFix` are their parts.

>>> episode = EpisodeTrace.create("task-7", "developer", "修复登录 fix the login")
>>> episode.action_log.append(ActionEntry("read_file", "auth.py", "120 lines", 5))
>>> episode.validate()
[]
>>> EpisodeTrace.from_dict(episode.to_dict()) == episode
True
>>> ActionEntry("read_file", "auth.py", "120 lines", 5).to_dict()
{'action': 'read_file', 'target': 'auth.py', 'result': '120 lines', 't': 5}
>>> ActionEntry("", "auth.py", "", -1).validate()
['ActionEntry.tool is required', 'ActionEntry.timestamp must be non-negative']

Common to all records, and not repeated in each class below:

- The dataclass is the table. A field's type and its `_rules` are all that `to_dict`, `from_dict` and `validate` know: a
  new field is one line.
- `to_dict` gives JSON's own types, under the wire names. `from_dict` reads wire names and field names, ignores what it
  does not know, and fills in missing and null fields; it refuses only another shape altogether (`ValueError`).
  Whatever else is wrong is kept, for `validate` to name.
- `validate` returns every message, those of a part after its place: `action_log[0]: ActionEntry.tool is required`. A
  whole number must not be negative, a float lies between 0.0 and 1.0.
- A time is UTC, written `YYYY-MM-DDTHH:MM:SS.ffffffZ`. Read are `Z`, `+00:00`, any other offset, and none, which means
  UTC.
- An id is `prefix-timestamp-uuid`, so that ids sort by their time; a skill's comes from its name.
"""

import uuid
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from typing_extensions import override

from ..base.names import slug_of
from .scoring import saturation, temporal_decay

__all__ = ["OUTCOMES", "PHASES", "RELATIONS", "ActionEntry", "EpisodeTrace", "ErrorEntry", "ErrorFix", "Link"]
__all__ += ["ProceduralSkill", "SemanticPattern", "TaskContext", "as_utc", "seconds_of"]

PHASES = ("REASON", "ACT", "REFLECT", "VERIFY")
"""The four phases of a task (RARV)."""

OUTCOMES = ("success", "failure", "partial")
"""How a task can end."""

RELATIONS = (
    "derived_from", "related_to", "contradicts", "elaborates", "example_of", "supersedes", "superseded_by", "supports",
)  # fmt: skip
"""How one memory can belong to another (after the Zettelkasten)."""

HALF_OF_USES = 10.0
"""The uses that halve the distance of an importance from 1."""


# Common to all records


def _rules(*, wire: str = "", required: bool = False, one_of: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a field's metadata: its name outside, whether it may be empty, and the values that it can have."""
    return {"wire": wire, "required": required, "one_of": one_of}


_REQUIRED = _rules(required=True)


class _Column(NamedTuple):
    """The properties of one field."""

    name: str
    kind: type
    """The type of the value, or of the list's elements."""
    many: bool
    nullable: bool
    is_bare: bool
    """Whether it has no default."""
    wire: str
    required: bool = False
    one_of: tuple[str, ...] = ()


class _Record:
    """A dataclass whose fields say how they are written, read and checked."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON has it; it shares nothing with this one."""
        return {column.wire: _encode(getattr(self, column.name)) for column in _columns_of(type(self))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the record that `to_dict` wrote, in this form or an older one.

        Raises:
            ValueError: `data` is no object, a list is none, or a time cannot be read; the message names it.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__} must be an object, not {type(data).__name__}")
        said = {column.name: _read(cls.__name__, column, data) for column in _columns_of(cls)}
        said = {name: value for name, value in said.items() if value is not None}
        return cls(**{column.name: _nothing(column) for column in _columns_of(cls) if column.is_bare} | said)

    def validate(self) -> list[str]:
        """Return a message for everything that is wrong; none if nothing is."""
        return [
            message for column in _columns_of(type(self)) for message in _complain(type(self).__name__, column, self)
        ]


_known: dict[type, tuple[_Column, ...]] = {}


def _columns_of(record: type[_Record]) -> tuple[_Column, ...]:
    if record in _known:
        return _known[record]
    columns, hints = [], get_type_hints(record)
    for declared in fields(record):
        hint, rules = hints[declared.name], dict(declared.metadata)
        nullable = type(None) in get_args(hint)
        hint = get_args(hint)[0] if nullable else hint
        many = get_origin(hint) is list
        rules["wire"] = rules.get("wire") or declared.name
        is_bare = declared.default is MISSING and declared.default_factory is MISSING
        columns.append(_Column(declared.name, get_args(hint)[0] if many else hint, many, nullable, is_bare, **rules))
    _known[record] = tuple(columns)
    return _known[record]


def _encode(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.to_dict()
    if isinstance(value, datetime):
        return _to_utc_isoformat(value)
    if isinstance(value, list):  # one level: lists within lists may be nested deeper than anything can follow
        return [_encode(item) if isinstance(item, (_Record, datetime)) else item for item in value]
    return value


def _read(record: str, column: _Column, data: Mapping[str, Any]) -> Any:
    """Return the value of a field, None where there is none: older writers wrote null for nothing."""
    value = data.get(column.wire)
    value = data.get(column.name) if value is None else value
    what = f"{record}.{column.name}"
    if value is None:
        return None
    if not column.many:
        return _decode(what, column.kind, value)
    if not isinstance(value, (list, tuple)):  # of a string, every character would become an element
        raise ValueError(f"{what} must be a list, not {type(value).__name__}")
    return [_decode(f"{what}[{index}]", column.kind, item) for index, item in enumerate(value)]


def _nothing(column: _Column) -> Any:
    """Return what stands for a missing value: a list or text must come to `validate`; a time is that of reading it."""
    return [] if column.many else _now() if column.kind is datetime else column.kind()


def _decode(what: str, kind: type, value: Any) -> Any:
    try:
        if issubclass(kind, _Record):
            return kind.from_dict(value)
        if kind is datetime:
            return as_utc(value) if isinstance(value, datetime) else _parse_utc_datetime(value)
    except (ValueError, TypeError, OverflowError) as error:  # year 1 may have begun elsewhere only
        raise ValueError(f"{what}: {error}") from error
    return value


_TYPES: Mapping[type, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    datetime: ((datetime,), "a datetime"),
}


def _complain(record: str, column: _Column, owner: _Record) -> list[str]:
    """Return the errors of one field."""
    value = getattr(owner, column.name)
    what = f"{record}.{column.name}"
    if value is None and column.nullable:
        return []
    if column.many:
        return _complain_of_list(what, column, value)
    types, noun = _TYPES[column.kind]
    if value is None and column.required and not column.one_of:
        return [f"{what} is required"]
    fits = isinstance(value, types) and not isinstance(value, bool)
    if not fits:
        return [f"{what} must be {noun}"]
    if isinstance(value, datetime):
        try:
            as_utc(value)
        except OverflowError:  # the first hours of year 1, and the last of 9999, are others elsewhere
            return [f"{what} is not within the years 1 to 9999 in UTC"]
    if column.one_of:
        known = value in column.one_of or not (value or column.required)
        return [] if known else [f"{what} must be one of: {', '.join(column.one_of)}"]
    if column.required and isinstance(value, str) and not value.strip():
        return [f"{what} is required"]
    if column.kind is int and value < 0:
        return [f"{what} must be non-negative"]
    if column.kind is float and not 0.0 <= value <= 1.0:  # so written, it refuses NaN too
        return [f"{what} must be between 0.0 and 1.0"]
    return []


def _complain_of_list(what: str, column: _Column, value: Any) -> list[str]:
    if not isinstance(value, list):
        return [f"{what} must be a list"]
    if column.required and not value:
        return [f"{what} is required"]
    noun = _TYPES[column.kind][1] if column.kind in _TYPES else column.kind.__name__
    messages = []
    for index, item in enumerate(value):
        place = f"{column.name}[{index}]"
        if not isinstance(item, column.kind):
            messages.append(f"{place} must be {noun}")
        elif isinstance(item, _Record):
            messages.extend(f"{place}: {message}" for message in item.validate())
    return messages


# Times and ids


def _to_utc_isoformat(dt: datetime) -> str:
    """Return `dt` as `YYYY-MM-DDTHH:MM:SS.ffffffZ`; without a time zone it is UTC already."""
    return as_utc(dt).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _parse_utc_datetime(s: str) -> datetime:
    """Return the time of an ISO 8601 text, in UTC."""
    return as_utc(datetime.fromisoformat(s))


def as_utc(dt: datetime) -> datetime:
    """Return `dt` in UTC; without a time zone it is UTC already."""
    # `astimezone` would take a time without a zone for local time.
    return dt.replace(tzinfo=UTC) if dt.tzinfo is None else dt.astimezone(UTC)


def seconds_of(dt: datetime) -> float:
    """Return `dt` in seconds since the epoch; without a time zone it is UTC."""
    # Not by `as_utc`, which the first and the last day of the calendar may not have.
    return (dt.replace(tzinfo=UTC) if dt.tzinfo is None else dt).timestamp()


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id(prefix: str, now: datetime) -> str:
    return f"{prefix}-{now:%Y%m%dT%H%M%S}-{uuid.uuid4().hex}"


# The parts


@dataclass
class ActionEntry(_Record):
    """One thing that was done during a task. Wire names: `action`, `target`, `result`, `t`."""

    tool: str = field(metadata=_rules(wire="action", required=True))
    """The tool, or the kind of the action."""
    input: str = field(metadata=_rules(wire="target"))
    """Its input."""
    output: str = field(metadata=_rules(wire="result"))
    """Its result."""
    timestamp: int = field(metadata=_rules(wire="t"))
    """Seconds since the task began."""


@dataclass
class ErrorEntry(_Record):
    """One error met during a task. Wire name of `error_type`: `type`."""

    error_type: str = field(metadata=_rules(wire="type", required=True))
    """The kind of error, as "TypeScript compilation"."""
    message: str = field(metadata=_REQUIRED)
    """Its text."""
    resolution: str
    """How it was solved; empty if it was not."""


@dataclass
class Link(_Record):
    """A reference from one memory to another. Wire name of `to_id`: `to`."""

    to_id: str = field(metadata=_rules(wire="to", required=True))
    """The id of the other memory."""
    relation: str = field(metadata=_rules(required=True, one_of=RELATIONS))
    """One of `RELATIONS`."""
    strength: float = 1.0
    """0.0 to 1.0."""


@dataclass
class ErrorFix(_Record):
    """A common error of a skill, and its remedy."""

    error: str = field(metadata=_REQUIRED)
    """The error."""
    fix: str = field(metadata=_REQUIRED)
    """What to do about it."""


@dataclass
class TaskContext(_Record):
    """The surroundings of a task. Wire name of `files`: `files_involved`."""

    goal: str = field(metadata=_REQUIRED)
    """The goal."""
    phase: str = field(metadata=_rules(one_of=PHASES))
    """One of `PHASES`, or empty."""
    files: list[str] = field(default_factory=list, metadata=_rules(wire="files_involved"))
    """The files that it is about."""
    constraints: list[str] = field(default_factory=list)
    """The constraints."""


# The three kinds of memory


class _Memory(_Record):
    """Common to the three kinds besides: an importance."""

    importance: float
    last_accessed: datetime | None
    access_count: int

    def current_importance(self, now: datetime | None = None) -> float:
        """Return how important the memory is now, from 0 to 1: `importance`, raised by use and worn off by time.

            (importance + (1 - importance) * uses / (uses + 10)) * 0.5 ** (days / 30)

        So ten uses make up half of what is missing to 1, and 30 days without one halve the result. The days count from
        the last use, or else from the memory's beginning; where neither is known, time takes nothing. The first factor
        saturates as in BM25 (Robertson & Zaragoza 2009), the second is the forgetting curve (Ebbinghaus 1885), which
        starts again at each recall (MemoryBank, Zhong et al. 2023).

        Computed when asked for, not written back into `importance` now and then: written back, it would wear off twice.
        """
        uses, last = self._uses()
        raised = self.importance + (1.0 - self.importance) * saturation(uses, HALF_OF_USES)
        age_s = (as_utc(now or _now()) - as_utc(last)).total_seconds() if last else 0.0
        return raised * temporal_decay(age_s)

    def _uses(self) -> tuple[int, datetime | None]:
        """Return how often it was used, and when last."""
        return self.access_count, self.last_accessed


@dataclass
class EpisodeTrace(_Memory):
    """One task as it went (episodic memory).

    On the wire, `phase` and `goal` are in an object `context`, together with `files_involved`: all files read or
    modified, each once. Where an older record has no `files_read`, those are taken.
    """

    id: str = field(metadata=_REQUIRED)
    """As `create` makes it: `ep-timestamp-uuid`."""
    task_id: str = field(metadata=_REQUIRED)
    """The task."""
    timestamp: datetime
    """When it began."""
    duration_seconds: int
    """How long it took."""
    agent: str = field(metadata=_REQUIRED)
    """The kind of agent that did it."""
    phase: str = field(metadata=_rules(required=True, one_of=PHASES))
    """One of `PHASES`."""
    goal: str = field(metadata=_REQUIRED)
    """The goal."""
    action_log: list[ActionEntry] = field(default_factory=list)
    """The actions, in order."""
    outcome: str = field(default="success", metadata=_rules(required=True, one_of=OUTCOMES))
    """One of `OUTCOMES`."""
    errors_encountered: list[ErrorEntry] = field(default_factory=list)
    """The errors, in order."""
    artifacts_produced: list[str] = field(default_factory=list)
    """The results."""
    git_commit: str | None = None
    """The commit that it ended with."""
    tokens_used: int = 0
    """Tokens of the model, read and written."""
    files_read: list[str] = field(default_factory=list)
    """Paths."""
    files_modified: list[str] = field(default_factory=list)
    """Paths."""
    importance: float = 0.5
    """0.0 to 1.0, as it was judged; see `current_importance`."""
    last_accessed: datetime | None = None
    """When it was last recalled."""
    access_count: int = 0
    """How often it was recalled."""

    @classmethod
    def create(
        cls, task_id: str, agent: str, goal: str, phase: str = "ACT", id_prefix: str = "ep", now: datetime | None = None
    ) -> Self:
        """Return a new episode that begins at `now` (the present) and has taken no time yet."""
        begun = as_utc(now or _now())
        return cls(_new_id(id_prefix, begun), task_id, begun, 0, agent, phase, goal)

    @override
    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        files = list(dict.fromkeys(file for file in (*self.files_read, *self.files_modified) if isinstance(file, str)))
        data["context"] = {"phase": data.pop("phase"), "goal": data.pop("goal"), "files_involved": files}
        return data

    @classmethod
    @override
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        if isinstance(data, Mapping) and data.get("context") is not None:
            context = _decode(f"{cls.__name__}.context", TaskContext, data["context"])
            files = context.files if data.get("files_read") is None else data["files_read"]
            data = {**data, "files_read": files}
            data |= {name: value for name in ("phase", "goal") if (value := getattr(context, name))}
        return super().from_dict(data)

    @override
    def _uses(self) -> tuple[int, datetime | None]:
        return self.access_count, self.last_accessed or self.timestamp


@dataclass
class SemanticPattern(_Memory):
    """A lesson that holds beyond one task (semantic memory)."""

    id: str = field(metadata=_REQUIRED)
    """As `create` makes it: `sem-timestamp-uuid`."""
    pattern: str = field(metadata=_REQUIRED)
    """The statement."""
    category: str = field(metadata=_REQUIRED)
    """Its subject."""
    conditions: list[str] = field(default_factory=list)
    """When it holds."""
    correct_approach: str = ""
    """What to do."""
    incorrect_approach: str = ""
    """The approach to avoid."""
    confidence: float = 0.8
    """0.0 to 1.0: how sure it is."""
    source_episodes: list[str] = field(default_factory=list)
    """Ids of the episodes that it was learned from."""
    usage_count: int = 0
    """How often it was applied; see `increment_usage`."""
    last_used: datetime | None = None
    """When it was last applied."""
    links: list[Link] = field(default_factory=list)
    """References to other memories; see `add_link`."""
    importance: float = 0.5
    """0.0 to 1.0, as it was judged; see `current_importance`."""
    last_accessed: datetime | None = None
    """When it was last recalled."""
    access_count: int = 0
    """How often it was recalled."""

    @classmethod
    def create(
        cls,
        pattern: str,
        category: str,
        conditions: list[str] | None = None,
        correct_approach: str = "",
        incorrect_approach: str = "",
        id_prefix: str = "sem",
        now: datetime | None = None,
    ) -> Self:
        """Return a new pattern, with an id of `now` (the present)."""
        return cls(
            _new_id(id_prefix, as_utc(now or _now())),
            pattern,
            category,
            list(conditions or ()),
            correct_approach,
            incorrect_approach,
        )

    def increment_usage(self, now: datetime | None = None) -> None:
        """Count one application, at `now` (the present)."""
        self.usage_count += 1
        self.last_used = now or _now()

    def add_link(self, to_id: str, relation: str, strength: float = 1.0) -> None:
        """Refer to another memory.

        Raises:
            ValueError: The link is not valid; the messages of `Link.validate`, and nothing was added.
        """
        link = Link(to_id, relation, strength)
        messages = link.validate()
        if messages:
            raise ValueError("; ".join(messages))
        self.links.append(link)

    @override
    def _uses(self) -> tuple[int, datetime | None]:
        times = [as_utc(time) for time in (self.last_accessed, self.last_used) if time]
        return self.access_count + self.usage_count, max(times, default=None)


@dataclass
class ProceduralSkill(_Memory):
    """How something is done (procedural memory)."""

    id: str = field(metadata=_REQUIRED)
    """As `create` makes it from the name: `skill-fix-login`, `skill-修复登录`."""
    name: str = field(metadata=_REQUIRED)
    """Its name."""
    description: str = field(metadata=_REQUIRED)
    """Its purpose."""
    prerequisites: list[str] = field(default_factory=list)
    """Its conditions."""
    steps: list[str] = field(default_factory=list, metadata=_REQUIRED)
    """What to do, in order."""
    common_errors: list[ErrorFix] = field(default_factory=list)
    """Errors and their remedies; see `add_error_fix`."""
    exit_criteria: list[str] = field(default_factory=list)
    """When it is done."""
    example_usage: str | None = None
    """An example."""
    importance: float = 0.5
    """0.0 to 1.0, as it was judged; see `current_importance`."""
    last_accessed: datetime | None = None
    """When it was last recalled."""
    access_count: int = 0
    """How often it was recalled."""

    @classmethod
    def create(cls, name: str, description: str, steps: list[str], id_prefix: str = "skill") -> Self:
        """Return a new skill, with an id made from its name.

        The same name gives the same id, so that a skill learned again takes the place of the older one.

        >>> ProceduralSkill.create("Fix Login: C++ & Co.", "…", ["…"]).id
        'skill-fix-login-c++-co'
        >>> ProceduralSkill.create("修复 登录", "…", ["…"]).id
        'skill-修复-登录'
        """
        return cls(f"{id_prefix}-{slug_of(name)}", name, description, steps=list(steps))

    def add_error_fix(self, error: str, fix: str) -> None:
        """Add a common error and its remedy; `validate` reports it if one of them is empty."""
        self.common_errors.append(ErrorFix(error, fix))
