"""The contract's numbers and names, and rules that no other file is the place for."""

import errno
import os
import re

import pytest

from Agent.knowhub import records
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.records import Json
from Agent.tests.knowhub.support import refused
from Agent.tests.support.threads import in_threads

ENTRY = {"task": "boil an egg", "content": "Seven minutes.", "types": ["usecase"]}


@pytest.mark.parametrize(
    ("most", "field"),
    [
        (2_000, "task"), (65_536, "content"), (200, "owner"), (20, "tags"), (20, "scopes"), (50, "resource_ids"),
        (20, "urls"), (262_144, "body"), (65_536, "secure_body"), (200, "title"),
    ],
)  # fmt: skip
def test_the_limit_itself_is_taken_and_one_more_is_not(hub: KnowHub, most: int, field: str) -> None:
    def body(size: int) -> Json:
        many = [f"x{number}" for number in range(size)]
        urls = {"urls": [f"https://example.com/{each}" for each in many]}
        values: Json = {"tags": dict.fromkeys(many, "v"), "scopes": many, "resource_ids": many, "source": urls}
        name = "source" if field == "urls" else field
        return {**ENTRY, name: values.get(name, "x" * size)}

    if field in ("body", "secure_body", "title"):
        resource = {"title": "t", field: "é" * most}
        assert hub.put_resource(LOCAL, f"r/{field}", resource)["operation_id"]
        refused("invalid", hub.put_resource, LOCAL, "r/more", {**resource, field: "é" * (most + 1)})
        return
    assert hub.save(LOCAL, body(most))["operation_id"]
    refused("invalid", hub.save, LOCAL, body(most + 1))


def test_ids_of_feedback_and_proposals(hub: KnowHub) -> None:
    id = hub.save(LOCAL, ENTRY)["entry"]["id"]
    hub.update(LOCAL, id, {"add_helpful_case": {}, "evolve_feedback": "say how large"})
    [feedback], [proposal] = hub.feedback(LOCAL, id)["results"], hub.proposals(LOCAL)["results"]

    assert re.fullmatch(r"knowledge-\d{8}-[0-9a-f]{12}", id)
    assert re.fullmatch(r"feedback-[0-9a-f]{20}", feedback["id"])
    assert re.fullmatch(r"proposal-[0-9a-f]{12}", proposal["id"])


def test_answers_have_the_names_of_the_appendix(hub: KnowHub) -> None:
    saved = hub.save(LOCAL, ENTRY)
    id = saved["entry"]["id"]
    found = hub.search(LOCAL, {"q": "egg"})
    kept = hub.put_resource(LOCAL, "a", {"title": "A"})
    judged = hub.batch_update(LOCAL, {"feedback_list": [{"knowledge_id": id, "is_helpful": True}]})
    evolved = hub.update(LOCAL, id, {"evolve_feedback": "shorter"})

    assert set(saved) == {"entry", "operation_id", "similar", "note"}
    names = "id message_id types task tags scopes owner content resource_ids source eval created_at updated_at"
    assert set(saved["entry"]) == {*names.split(), "created_by", "version", "merged_into"}
    judgement = {"score", "helpful", "harmful", "confidence"}
    assert set(saved["entry"]["eval"]) == {*judgement, "helpful_history", "harmful_history"}
    source = {"name", "category", "urls", "agent_id", "submitted_by", "timestamp", "message_id"}
    assert set(saved["entry"]["source"]) == source
    assert set(found) == {"results", "count", "routing", "reason", "eligible", "shown", "hidden", "took_ms", "usage"}
    names = "id task content types tags scopes owner resource_ids created_by eval quality_score"
    assert (set(found["results"][0]), set(found["results"][0]["eval"])) == (set(names.split()), judgement)
    names = "id title body content_type metadata scopes owner expires_at secret version created_by created_at"
    assert set(kept["resource"]) == {*names.split(), "updated_at"}
    assert set(judged) == {"updated", "operation_id", "results"}
    assert set(evolved["evolution"]) == {"state", "reason", "operation_id", "proposal_id", "usage"}
    assert set(hub.slim(LOCAL, {"dry_run": True})) == {"model", "merged", "operation_id", "skipped", "plan"}


def test_scores_of_many_at_once_are_all_made(hub: KnowHub) -> None:
    id = hub.save(LOCAL, ENTRY)["entry"]["id"]
    made: list[Json] = []
    in_threads(lambda number: made.append(hub.update(LOCAL, id, {"update_score": 1 + number % 5})), range(6))

    versions = hub.history(LOCAL, id)["results"]
    assert len(made) == 6  # none met a conflict that it could not settle
    assert [each["version"] for each in versions] == list(range(len(versions), 0, -1))
    assert {each["score"] for each in versions[:-1]} >= {1, 2, 4, 5}


def test_a_sync_that_fails_is_an_outcome_that_nobody_knows(hub: KnowHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    hub.save(LOCAL, ENTRY)
    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, fail)
        refused("outcome-unknown", hub.save, LOCAL, ENTRY)

    assert records.PROBLEMS["outcome-unknown"][0] == 500
    assert hub.list_knowledge(LOCAL)["count"] >= 1
