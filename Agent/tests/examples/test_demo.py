"""The demo runs as it stands, in both languages."""

import re

import pytest
from demo import read_library

from Agent.tests.examples import running

SCREENS = [
    ("en_US.UTF-8", "A memory of five facts", "→ Biscuit fears fireworks no more.  (chat, 9 May)"),
    ("zh_CN.UTF-8", "五件事的记忆", "→ 外婆搬到成都了。  (五月九日电话)"),
]


@pytest.mark.parametrize(("locale", "title", "corrected"), SCREENS)
def test_answers_corrects_undoes_and_survives_a_kill(locale: str, title: str, corrected: str) -> None:
    done = running.try_to_run("demo.py", "--words", COLUMNS="80", LANG=locale)
    lines = done.stdout.splitlines()
    killed = next(line for line in lines if "kill -9" in line)
    returned, there = map(int, re.findall(r"\d+", killed.partition("kill -9")[2])[-2:])

    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith(title)
    assert any("谁对花生过敏？" in line and "→ 小雨对花生过敏。" in line for line in lines)
    assert sum(line.endswith(corrected) for line in lines) == 1  # with its source: nothing is cut
    assert there in (returned, returned + 1)  # one write was under way


def test_reads_the_library_without_importing_it() -> None:
    keywords, infos = read_library(("json", "shutil"))
    names = {each["id"] for each in keywords}

    assert {"json", "json.dumps", "shutil.copytree"} <= names
    assert all(each["keyword_ids"][0] in names for each in infos)
