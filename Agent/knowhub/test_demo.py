"""The demo shows what it says: the order changes by feedback, and goes back."""

from pathlib import Path

import pytest

from Agent.knowhub.demo import LESSON, main


def test_shows_a_hub_at_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "hub")]) == 0
    said = capsys.readouterr().out
    leading = [block.split("\n")[1] for block in said.split("\n  search")[1:]]

    assert len(leading) == 3
    assert [str(LESSON["task"])[:10] in line for line in leading] == [False, False, True]
    assert "applied: " in said
    assert "symlinks=True" in said
    assert "helpful 2: " in said
    assert len(said.splitlines()) < 50


def test_leaves_a_folder_alone_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
