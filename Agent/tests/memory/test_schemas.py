"""Tests of `schemas`: wire forms, times, messages, ids, and how importance changes."""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.memory.schemas import (
    PHASES,
    ActionEntry,
    EpisodeTrace,
    ErrorEntry,
    ErrorFix,
    Link,
    ProceduralSkill,
    SemanticPattern,
    TaskContext,
    _parse_utc_datetime,
    _to_utc_isoformat,
)

Record: TypeAlias = (
    ActionEntry | ErrorEntry | Link | ErrorFix | TaskContext | EpisodeTrace | SemanticPattern | ProceduralSkill
)
Memory: TypeAlias = EpisodeTrace | SemanticPattern | ProceduralSkill

NOON = datetime(2026, 1, 2, 12, 0, 0, 345, UTC)

filled = st.text(min_size=1).filter(str.strip)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: st.integers(0, 2**53),
    float: st.floats(0, 1),
    datetime: st.datetimes(timezones=st.just(UTC)),
}


def any_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return valid records of a kind, by what its fields declare."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{each.name: value_of(hints[each.name], each.metadata) for each in fields(kind)})


def value_of(hint: Any, rules: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if rules.get("one_of"):
        return st.sampled_from([*rules["one_of"], *([] if rules["required"] else [""])])
    if type(None) in get_args(hint):
        return st.none() | value_of(get_args(hint)[0], {})
    if get_origin(hint) is list:
        return st.lists(value_of(get_args(hint)[0], {}), min_size=bool(rules.get("required")), max_size=2)
    if hint in SIMPLE:
        return filled if rules.get("required") else SIMPLE[hint]
    return any_of(hint)


memories = st.one_of(*map(any_of, (EpisodeTrace, SemanticPattern, ProceduralSkill)))
records: st.SearchStrategy[Record] = st.one_of(
    *map(any_of, (ActionEntry, ErrorEntry, Link, ErrorFix, TaskContext)), memories
)


def episode(**changes: Any) -> EpisodeTrace:
    """Return a valid episode, but for `changes`."""
    valid = EpisodeTrace("ep-1", "task-1", NOON, 60, "developer", "ACT", "Fix the login")
    for name, value in changes.items():
        setattr(valid, name, value)
    return valid


class TestRoundTrip:
    @given(records)
    def test_by_wire_names_and_by_field_names_loses_nothing(self, record: Record) -> None:
        by_field = json.loads(json.dumps(asdict(record), default=datetime.isoformat))
        again = type(record).from_dict(json.loads(json.dumps(record.to_dict(), allow_nan=False)))

        assert again == type(record).from_dict(by_field) == record
        assert record.validate() == again.validate() == []

    @given(records)
    def test_shares_nothing_with_the_record(self, record: Record) -> None:
        before = record.to_dict()
        for value in record.to_dict().values():
            if isinstance(value, list):
                value.append("changed")

        assert record.to_dict() == before


class TestWireNames:
    @pytest.mark.parametrize(
        ("record", "wire"),
        [
            (
                ActionEntry("read_file", "auth.py", "120 lines", 5),
                {"t": 5, "action": "read_file", "target": "auth.py", "result": "120 lines"},
            ),
            (
                ErrorEntry("type", "no such property", ""),
                {"type": "type", "message": "no such property", "resolution": ""},
            ),
            (Link("sem-1", "supports"), {"to": "sem-1", "relation": "supports", "strength": 1.0}),
            (
                TaskContext("g", "ACT", ["a"], ["c"]),
                {"goal": "g", "phase": "ACT", "files_involved": ["a"], "constraints": ["c"]},
            ),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_of_a_part(self, record: Record, wire: dict[str, Any]) -> None:
        assert record.to_dict() == wire

    def test_of_an_episode(self) -> None:
        wire = episode(files_read=["a", "b"], files_modified=["c", "b"]).to_dict()

        assert wire["context"] == {"phase": "ACT", "goal": "Fix the login", "files_involved": ["a", "b", "c"]}
        assert set(wire) == {field.name for field in fields(EpisodeTrace)} - {"phase", "goal"} | {"context"}

    @pytest.mark.parametrize("kind", [SemanticPattern, ProceduralSkill, ErrorFix])
    def test_are_those_of_the_fields_elsewhere(self, kind: type[Record]) -> None:
        assert set(kind.from_dict({}).to_dict()) == {field.name for field in fields(kind)}

    def test_go_before_field_names(self) -> None:
        assert ActionEntry.from_dict({"action": "new", "tool": "old"}).tool == "new"


class TestFromDict:
    def test_fills_in_the_defaults(self) -> None:
        read = EpisodeTrace.from_dict({"id": "ep-1"})

        assert (read.outcome, read.importance, read.tokens_used, read.git_commit) == ("success", 0.5, 0, None)
        assert SemanticPattern.from_dict({}).confidence == 0.8
        assert Link.from_dict({}).strength == 1.0

    def test_takes_null_for_nothing(self) -> None:
        nothing = dict.fromkeys((field.name for field in fields(SemanticPattern)), None)

        assert SemanticPattern.from_dict(nothing) == SemanticPattern.from_dict({})

    def test_takes_the_present_for_a_time_that_is_missing(self) -> None:
        before = datetime.now(UTC)

        assert before <= EpisodeTrace.from_dict({}).timestamp <= datetime.now(UTC)

    def test_ignores_what_it_does_not_know(self) -> None:
        assert ErrorFix.from_dict({"error": "e", "fix": "f", "colour": "green"}) == ErrorFix("e", "f")

    def test_reads_phase_and_goal_within_a_context_or_without(self) -> None:
        flat = EpisodeTrace.from_dict({"phase": "VERIFY", "goal": "g"})
        nested = EpisodeTrace.from_dict({"context": {"phase": "VERIFY", "goal": "g"}})
        mixed = EpisodeTrace.from_dict({"context": {"phase": "VERIFY"}, "goal": "g"})

        assert [(read.phase, read.goal) for read in (flat, nested, mixed)] == [("VERIFY", "g")] * 3

    @pytest.mark.parametrize("name", ["files_involved", "files"])
    def test_takes_the_files_of_a_context_where_none_were_read(self, name: str) -> None:
        assert EpisodeTrace.from_dict({"context": {name: ["a"]}}).files_read == ["a"]
        assert EpisodeTrace.from_dict({"context": {name: ["a"]}, "files_read": []}).files_read == []

    def test_keeps_a_wrong_value_for_validate_to_name(self) -> None:
        read = EpisodeTrace.from_dict({**episode().to_dict(), "importance": "high", "outcome": ""})

        assert read.validate() == [
            "EpisodeTrace.outcome must be one of: success, failure, partial",
            "EpisodeTrace.importance must be a number",
        ]

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (["ep-1"], "EpisodeTrace must be an object, not list"),
            ({"files_read": "auth.py"}, "EpisodeTrace.files_read must be a list, not str"),
            ({"action_log": [{}, 5]}, r"EpisodeTrace.action_log\[1\]: ActionEntry must be an object, not int"),
            ({"context": "ACT"}, "EpisodeTrace.context: TaskContext must be an object, not str"),
            ({"timestamp": "yesterday"}, "EpisodeTrace.timestamp: .*'yesterday'"),
            ({"timestamp": 5}, "EpisodeTrace.timestamp: "),
            ({"last_accessed": "0001-01-01T00:00:00+01:00"}, "EpisodeTrace.last_accessed: "),
        ],
    )
    def test_refuses_what_has_no_such_shape(self, data: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            EpisodeTrace.from_dict(data)


class TestTimes:
    @pytest.mark.parametrize(
        "written",
        [
            "2026-01-02T12:00:00.000345Z",
            "2026-01-02T12:00:00.000345+00:00",
            "2026-01-02T20:00:00.000345+08:00",
            "2026-01-02T06:30:00.000345-05:30",
            "2026-01-02T12:00:00.000345",
            "2026-01-02 12:00:00.000345",
        ],
    )
    def test_are_read_in_every_form(self, written: str) -> None:
        read = _parse_utc_datetime(written)

        assert (read, read.tzinfo) == (NOON, UTC)

    @pytest.mark.parametrize(
        "time", [NOON, NOON.replace(tzinfo=None), NOON.astimezone(timezone(timedelta(hours=8)))], ids=str
    )
    def test_are_written_in_one_form(self, time: datetime) -> None:
        assert _to_utc_isoformat(time) == "2026-01-02T12:00:00.000345Z"

    @pytest.mark.skipif(not hasattr(time, "tzset"), reason="needs time.tzset to stand elsewhere")
    def test_without_a_zone_are_utc_wherever_the_machine_stands(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", "UTC-8")
            time.tzset()
            written = _to_utc_isoformat(NOON.replace(tzinfo=None))
            read = _parse_utc_datetime("2026-01-02T12:00:00.000345")
        time.tzset()

        assert (written, read) == ("2026-01-02T12:00:00.000345Z", NOON)

    def test_always_have_six_digits_of_a_second_and_four_of_a_year(self) -> None:
        assert _to_utc_isoformat(datetime(33, 4, 3)) == "0033-04-03T00:00:00.000000Z"


class TestValidate:
    def test_names_what_is_wrong_with_a_pattern(self) -> None:
        wrong = SemanticPattern("", "", "", confidence=-0.1, usage_count=-1, links=[Link("", "supports")])

        assert wrong.validate() == [
            "SemanticPattern.id is required",
            "SemanticPattern.pattern is required",
            "SemanticPattern.category is required",
            "SemanticPattern.confidence must be between 0.0 and 1.0",
            "SemanticPattern.usage_count must be non-negative",
            "links[0]: Link.to_id is required",
        ]

    def test_names_what_is_wrong_with_a_skill(self) -> None:
        assert ProceduralSkill("", "", "", common_errors=[ErrorFix("e", "")]).validate() == [
            "ProceduralSkill.id is required",
            "ProceduralSkill.name is required",
            "ProceduralSkill.description is required",
            "ProceduralSkill.steps is required",
            "common_errors[0]: ErrorFix.fix is required",
        ]

    @given(
        st.dictionaries(
            st.sampled_from([f.name for f in fields(EpisodeTrace)]), st.none() | st.integers() | SIMPLE[str]
        )
    )
    def test_never_raises_and_blames_what_was_changed_alone(self, changes: dict[str, Any]) -> None:
        blamed = [re.match(r"EpisodeTrace\.(\w+) ", message) for message in episode(**changes).validate()]

        assert {match and match[1] for match in blamed} <= set(changes)


class TestCreate:
    @pytest.mark.parametrize(
        ("create", "prefix"),
        [
            (lambda: EpisodeTrace.create("task-1", "developer", "g"), "ep"),
            (lambda: EpisodeTrace.create("task-1", "developer", "g", id_prefix="run"), "run"),
            (lambda: SemanticPattern.create("p", "c"), "sem"),
        ],
    )
    def test_gives_ids_of_prefix_timestamp_and_uuid(self, create: Callable[[], Memory], prefix: str) -> None:
        one, other = create(), create()

        assert re.fullmatch(rf"{prefix}-\d{{8}}T\d{{6}}-[0-9a-f]{{32}}", one.id)
        assert one.id != other.id

    def test_ids_sort_by_their_time(self) -> None:
        later = EpisodeTrace.create("t", "a", "g", now=NOON + timedelta(hours=13)).id

        assert EpisodeTrace.create("t", "a", "g", now=NOON.astimezone(timezone(timedelta(hours=8)))).id < later

    def test_gives_an_episode_that_begins_now(self) -> None:
        begun = EpisodeTrace.create("task-1", "developer", "g", "REASON", now=NOON)

        assert (begun.timestamp, begun.duration_seconds, begun.phase, begun.outcome) == (NOON, 0, "REASON", "success")
        assert EpisodeTrace.create("task-1", "developer", "g").phase == "ACT"
        assert begun.validate() == []

    def test_gives_a_pattern_lists_of_its_own(self) -> None:
        conditions = ["c"]
        created = SemanticPattern.create("p", "c", conditions, "do", "do not")
        conditions.append("changed")

        assert (created.conditions, created.correct_approach, created.incorrect_approach) == (["c"], "do", "do not")

    @pytest.mark.parametrize(
        ("name", "id"),
        [
            ("REST API Implementation", "skill-rest-api-implementation"),
            ("  Fix: the_login!  ", "skill-fix-the-login"),
            ("修复登录错误", "skill-修复登录错误"),
            ("修复 TypeScript 错误", "skill-修复-typescript-错误"),
            ("ＡＢＣ", "skill-abc"),
            ("C++", "skill-c++"),
            ("C#", "skill-c#"),
            ("🐍", "skill-🐍"),
            ("नमस्ते", "skill-नमस्ते"),
        ],
    )
    def test_names_a_skill_by_its_name(self, name: str, id: str) -> None:
        assert ProceduralSkill.create(name, "d", ["s"]).id == id

    def test_names_long_skills_and_those_without_letters_apart(self) -> None:
        names = ["很长" * 200 + "甲", "很长" * 200 + "乙", "!!!", "???"]
        ids = [ProceduralSkill.create(name, "d", ["s"]).id for name in names]

        assert len(set(ids)) == 4
        assert all(re.fullmatch(r"skill-(?:(?:很长){40}-)?[0-9a-f]{12}", id) for id in ids)

    @given(filled)
    def test_gives_a_skill_an_id_without_blanks_or_separators(self, name: str) -> None:
        created = ProceduralSkill.create(name, "d", ["s"])

        assert created.validate() == []
        assert not re.search(r"[\s/\\:\0]", created.id)
        assert created.id == ProceduralSkill.create(name, "other", []).id


class TestChanging:
    def test_counts_a_use(self) -> None:
        pattern = SemanticPattern.create("p", "c")
        pattern.increment_usage(NOON)
        pattern.increment_usage(NOON + timedelta(1))
        assert (pattern.usage_count, pattern.last_used) == (2, NOON + timedelta(1))
        before = datetime.now(UTC)
        pattern.increment_usage()

        assert pattern.last_used is not None
        assert before <= pattern.last_used <= datetime.now(UTC)

    def test_adds_a_link_and_refuses_an_invalid_one_with_every_reason(self) -> None:
        pattern = SemanticPattern.create("p", "c")
        pattern.add_link("sem-1", "related_to", 0.8)
        with pytest.raises(ValueError, match=r"Link.relation must be one of: .*; Link.strength must be"):
            pattern.add_link("sem-1", "invalid-relation", 2.0)

        assert pattern.links == [Link("sem-1", "related_to", 0.8)]

    def test_adds_an_error_and_its_fix(self) -> None:
        skill = ProceduralSkill.create("n", "d", ["s"])
        skill.add_error_fix(error="e", fix="f")

        assert skill.common_errors == [ErrorFix("e", "f")]


class TestCurrentImportance:
    @pytest.mark.parametrize(
        ("importance", "uses", "days", "current"),
        [(0.7, 0, 0, 0.7), (0.8, 0, 30, 0.4), (0.6, 10, 0, 0.8)],
        ids=["new", "halved in thirty days", "half of what is missing made up by ten uses"],
    )
    def test_falls_with_time_and_rises_with_uses(self, importance: float, uses: int, days: int, current: float) -> None:
        used = episode(importance=importance, access_count=uses)

        assert used.current_importance(NOON + timedelta(days)) == pytest.approx(current)

    def test_counts_the_uses_of_a_pattern_too(self) -> None:
        pattern = SemanticPattern("sem-1", "p", "c", importance=0.6, usage_count=4, access_count=6)
        pattern.last_used, pattern.last_accessed = NOON.replace(tzinfo=None), NOON - timedelta(30)

        assert pattern.current_importance(NOON) == pytest.approx(0.8)

    def test_starts_again_with_an_access(self) -> None:
        old = episode()
        worn = old.current_importance(NOON + timedelta(90))
        old.access_count, old.last_accessed = 1, NOON + timedelta(90)

        assert worn == pytest.approx(0.5 / 8)
        assert old.current_importance(NOON + timedelta(90)) > 0.5

    def test_does_not_wear_off_where_no_time_is_known(self) -> None:
        assert ProceduralSkill.create("n", "d", ["s"]).current_importance(NOON) == 0.5

    @given(memories, SIMPLE[datetime])
    def test_is_within_bounds_and_changes_nothing(self, memory: Memory, now: datetime) -> None:
        before = memory.to_dict()

        assert 0.0 <= memory.current_importance(now) <= 1.0
        assert memory.to_dict() == before


WRONG: list[tuple[Any, str]] = [
    (episode(id=None), "EpisodeTrace.id is required"),
    (episode(id=5), "EpisodeTrace.id must be a string"),
    (
        episode(timestamp=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        "EpisodeTrace.timestamp is not within the years 1 to 9999 in UTC",
    ),
    (episode(agent=""), "EpisodeTrace.agent is required"),
    (episode(goal=""), "EpisodeTrace.goal is required"),
    (episode(duration_seconds=-1), "EpisodeTrace.duration_seconds must be non-negative"),
    (episode(tokens_used=-1), "EpisodeTrace.tokens_used must be non-negative"),
    (episode(access_count=-1), "EpisodeTrace.access_count must be non-negative"),
    (episode(importance=True), "EpisodeTrace.importance must be a number"),
    (episode(duration_seconds=1.5), "EpisodeTrace.duration_seconds must be an integer"),
    (episode(timestamp="now"), "EpisodeTrace.timestamp must be a datetime"),
    (episode(git_commit=5), "EpisodeTrace.git_commit must be a string"),
    (episode(files_read="a"), "EpisodeTrace.files_read must be a list"),
    (episode(files_read=["a", 5]), "files_read[1] must be a string"),
    (episode(action_log=[{}]), "action_log[0] must be ActionEntry"),
]
STATED = {
    "EpisodeTrace.id is required": episode(id=""),
    "EpisodeTrace.task_id is required": episode(task_id=""),
    f"EpisodeTrace.phase must be one of: {', '.join(PHASES)}": episode(phase="PLAN"),
    "EpisodeTrace.outcome must be one of: success, failure, partial": episode(outcome="done"),
    "EpisodeTrace.importance must be between 0.0 and 1.0": episode(importance=1.5),
    "action_log[0]: ActionEntry.tool is required": episode(action_log=[ActionEntry("", "", "", 0)]),
    "action_log[0]: ActionEntry.timestamp must be non-negative": episode(action_log=[ActionEntry("t", "", "", -1)]),
    "errors_encountered[0]: ErrorEntry.error_type is required": episode(errors_encountered=[ErrorEntry("", "m", "")]),
    "errors_encountered[1]: ErrorEntry.message is required": episode(
        errors_encountered=[ErrorEntry("a", "b", ""), ErrorEntry("t", "", "")]
    ),
    "Link.to_id is required": Link("", "supports"),
    "Link.relation must be one of: derived_from, related_to, contradicts, elaborates, example_of, supersedes, "
    "superseded_by, supports": Link("x", "likes"),
    "Link.strength must be between 0.0 and 1.0": Link("x", "supports", 1.5),
    "ErrorFix.error is required": ErrorFix("", "f"),
    "ErrorFix.fix is required": ErrorFix("e", ""),
    "TaskContext.goal is required": TaskContext("", ""),
    "TaskContext.phase must be one of: REASON, ACT, REFLECT, VERIFY": TaskContext("g", "PLAN"),
}
"""What the first design states of messages: an interface, word for word."""


class TestStated:
    @pytest.mark.parametrize(("record", "message"), [*WRONG, *((record, said) for said, record in STATED.items())])
    def test_messages_stand_as_they_are_stated(self, record: Any, message: str) -> None:
        assert record.validate() == [message]

    def test_names_constants_and_defaults_stand_as_they_are_stated(self) -> None:
        from Agent.memory import eviction, graph, retriever, scoring, tree_graph

        assert PHASES == ("REASON", "ACT", "REFLECT", "VERIFY")
        assert scoring.ScoreWeights() == scoring.ScoreWeights(overlap=0.5, graph=0.2, temporal=0.1, reference=0.2)
        policy = eviction.RecallBased(max_items=3)
        assert (policy.recall_weight, policy.score_weight, policy.recency_weight) == (0.3, 0.5, 0.2)
        assert eviction.HybridEviction(ttl_secs=5, max_items=3).max_items == 3
        assert (eviction.Ttl(ttl_secs=5).ttl_secs, eviction.Ttl(5).max_items) == (5, None)
        assert graph.TagConstraints().max_tags_per_entity == 8
        assert [each.name for each in graph.RelationDirection] == ["OUTGOING", "INCOMING", "BOTH"]
        assert {each.name for each in retriever.RetrievalStrategy} == {"HYBRID", "KNOWLEDGE_ONLY", "GRAPH_ONLY"}
        assert retriever.RetrieverConfig().strategy is retriever.RetrievalStrategy.HYBRID
        ports = {
            graph.KnowledgeGraph: "add_entity get_entity remove_entity add_relation remove_relation get_related "
            "find_by_keywords find_tags entity_count_by_tag set_entity_tags tag_constraints",
            tree_graph.KnowledgeStore: "find_by_keywords",
        }
        for port, names in ports.items():
            assert all(callable(getattr(port, name)) for name in names.split())
