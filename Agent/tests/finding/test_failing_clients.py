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
    failures = [
        ConnectionError("no route"),
        ConnectionError("no route"),
        TimeoutError("slow"),
        ConnectionError("again"),
    ]
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


class TestAKeywordThatFitsNowhere:
    def test_is_reported_with_the_reason(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        with KeywordTree(str(tmp_path), LexicalLLMClient()) as tree:
            tree.CreateKeyword("king lear", "root")
            left = tree.CreateKeyword("Longjing tea")

        assert left.parent_id == "root"
        assert caplog.messages == ["no keyword fits 'Longjing tea', it goes under 'root': agent_missing"]
        assert {record.levelname for record in caplog.records} == {"INFO"}

    def test_is_not_reported_where_it_was_placed_or_no_model_was_asked(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        with KeywordTree(str(tmp_path / "asked"), LexicalLLMClient()) as tree:
            tea = tree.CreateKeyword("tea", "root")
            placed = tree.CreateKeyword("Longjing tea")
        with KeywordTree(str(tmp_path / "unasked")) as tree:
            tree.CreateKeyword("tea")

        assert placed.parent_id == tea.id
        assert caplog.messages == []
