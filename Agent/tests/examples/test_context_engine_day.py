"""The example runs as it stands."""

from Agent.tests.examples.running import run


def test_runs_as_a_program() -> None:
    done = run("context_engine_day.py")

    assert "monday: archived" in done.stdout
    assert "    我喜欢龙井,不加糖。" in done.stdout
    assert "    Oliver. He sleeps on the blue sofa." in done.stdout
    assert "    lives in: Rome" in done.stdout
    assert "- ~~lives_in: Paris~~" in done.stdout
    assert "edited by hand, and found: plays the cello" in done.stdout
    assert "monday, committed again: unchanged" in done.stdout
    assert ", 0 after" in done.stdout
    assert "all agrees: True" in done.stdout
