"""What a model says of a few texts, whether they answer a question, is read whatever its form; schemas have bounds."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from Agent.adapters import mem0
from Agent.keyword_tree import _INTENTS, _SchemaOf
from Agent.knowhub import routing
from Agent.memory import extraction
from Agent.models.judge import judge
from Agent.models.model_clients import bounded
from Agent.tests.support.models import Model, always

FACTS = {"Anna": "Anna is allergic to peanuts.", "Tom": "Tom mends bikes.", "Tea": "Green tea from Hangzhou."}


class TestJudge:
    @pytest.mark.parametrize(
        ("reply", "kept"),
        [
            ({"targets": [1]}, ["Tom"]),
            ({"targets": ["2", 0.0, 7]}, ["Anna", "Tea"]),
            ({"targets": []}, []),
            *((reply, [*FACTS]) for reply in ({}, None, {"targets": 3}, {"targets": ["x"]}, OSError("key sk-abcdef1"))),
            *(({"targets": targets}, [*FACTS]) for targets in ("12", [0.7], [True], [99], {"0": 1}, [10**5000])),
        ],
    )
    def test_what_does_not_answer_is_left_out_and_a_failure_leaves_all(
        self, reply: Any, kept: list[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        assert judge(Model(always(reply)), "who?", list(FACTS.items())) == kept
        assert "abcdef" not in caplog.text

    def test_one_that_hangs_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("Agent.models.judge.JUDGE_S", 0.05)
        over = threading.Event()

        assert judge(Model(lambda _: over.wait()), "who?", list(FACTS.items())) == [*FACTS]
        over.set()


@pytest.mark.parametrize(
    "schema",
    [
        *map(_SchemaOf, _INTENTS),
        *routing.SCHEMAS.values(),
        extraction.GRAPH_SCHEMA,
        extraction.FACTS_SCHEMA,
        mem0._SCHEMA,
    ],
)
def test_every_list_and_text_that_a_model_writes_has_a_bound(schema: dict[str, Any]) -> None:
    assert bounded(schema) == schema
