"""The examples run as they stand, and print no secret."""

import pytest

from Agent.tests.examples.running import run

SAID = {
    "context_engine_day.py": (
        "monday: archived",
        "    我喜欢龙井，不加糖。",
        "    Oliver. He sleeps on the blue sofa.",
        "    lives in: Rome",
        "- ~~lives_in: Paris~~",
        "edited by hand, and found: plays the cello",
        "monday, committed again: unchanged",
        ", 0 after",
        "all agrees: True",
    ),
    "knowhub_agent.py": (
        "📚 相关知识（0 条）", "📚 相关知识（1 条）", "undetected_chromedriver", "score 4, helpful 0, harmful 0"
    ),
    "memory_workflow.py": (
        *(f"{line} is sound" for line in ("EpisodeTrace", "SemanticPattern", "ProceduralSkill")),
        "Comes back from JSON: True",
        "Recalls of the skill: 1",
        "ProceduralSkill at green tea",
        "Now: 茶叶搬到了冷藏间。",
        "Before: 茶叶放在二号柜。",
        "Left: 2 of 4\nUndone: 4 memories\nMei knows: []",
    ),
    "weave_agent.py": (
        "'food/tea': 饮食 / 茶 (path): ['喜欢龙井，不加糖。']",
        "苏州园林 is at 旅行 / 苏州园林",
        "'weather': nothing",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_runs_as_it_stands(name: str) -> None:
    if name.startswith("knowhub"):
        pytest.importorskip("fastapi")
    done = run(name)

    assert [said for said in SAID[name] if said not in done.stdout] == []
    assert "hunter2" not in done.stdout + done.stderr
