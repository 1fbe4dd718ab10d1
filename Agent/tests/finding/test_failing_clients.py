"""A client that fails is logged: one warning for each kind of failure, once a minute at most, without keys."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from Agent.keyword_tree import KeywordTree, StubLLMClient
from Agent.models.lexical_client import LexicalLLMClient
from Agent.tests.support import inside

pytestmark = pytest.mark.usefixtures("no_sync")


def test_each_kind_is_reported_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    inside.replace_clock(monkeypatch, SimpleNamespace(**{**vars(time), "monotonic": lambda: now[0]}))
    no_route = ConnectionError("no route")
    failures = [no_route, no_route, TimeoutError("slow"), ConnectionError("again")]
    with KeywordTree(str(tmp_path), StubLLMClient(failures)) as tree:
        tree.CreateKeyword("tea", "root")
        reasons = [tree.Search(f"what is {number}?").reason for number in range(3)]
        now[0] += 61
        reasons.append(tree.Search("what is it?").reason)

    assert reasons == ["agent_failure", "agent_failure", "agent_timeout", "agent_failure"]
    assert caplog.messages == [
        "the model did not answer (agent_failure): ConnectionError: no route",
        "the model did not answer (agent_timeout): TimeoutError: slow",
        "the model did not answer (agent_failure): ConnectionError: again",
    ]


def test_a_keyword_that_fits_nowhere_is_reported_with_the_reason_where_a_model_was_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with KeywordTree(str(tmp_path / "asked"), LexicalLLMClient()) as tree:
        tea = tree.CreateKeyword("tea", "root")
        assert tree.CreateKeyword("Longjing tea").parent_id == tea.id
        assert tree.CreateKeyword("king lear").parent_id == "root"
    with KeywordTree(str(tmp_path / "unasked")) as tree:
        tree.CreateKeyword("tea")

    assert caplog.messages == ["no keyword fits 'king lear', it goes under 'root': agent_missing"]
    assert {record.levelname for record in caplog.records} == {"INFO"}
