"""The example runs as it stands."""

from Agent.tests.examples.running import run


def test_runs_as_a_program() -> None:
    done = run("memory_workflow.py")

    for line in ("EpisodeTrace", "SemanticPattern", "ProceduralSkill"):
        assert f"{line} is sound" in done.stdout
    assert "Comes back from JSON: True" in done.stdout
    assert "Recalls of the skill: 1" in done.stdout
    assert "ProceduralSkill at green tea" in done.stdout
    assert "Now: 茶叶搬到了冷藏间。" in done.stdout
    assert "Before: 茶叶放在二号柜。" in done.stdout
    assert "Left: 2 of 4\nUndone: 4 memories\nMei knows: []" in done.stdout
