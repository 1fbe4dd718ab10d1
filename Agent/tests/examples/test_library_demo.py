"""The demo runs as it stands, on a few small modules of this machine's library."""

import sys
from pathlib import Path

import pytest
from library_demo import read_library

from Agent.tests.examples import running
from keyword_tree import KeywordTree


def run(*words: str, **environment: str) -> running.Done:
    modules = ("--words", "--modules", "json", "shlex", "textwrap", "posixpath")
    return running.try_to_run("library_demo.py", *words, *modules, COLUMNS="80", **environment)


def test_shows_everything_and_keeps_a_folder_once(tmp_path: Path) -> None:
    first, second = run(str(tmp_path / "kept")), run(str(tmp_path / "kept"))
    lines = first.stdout.splitlines()

    assert (first.returncode, first.stderr) == (0, "")
    assert "6 of 6 questions answered" in first.stdout
    assert "谁对花生过敏？                → 小雨对花生过敏。" in first.stdout
    assert "│   └── dumps  Serialize" in first.stdout
    assert any(line.split()[::2] == ["os.path.join", "ms", "/"] for line in lines)
    asked = lines[next(n for n, line in enumerate(lines) if line.startswith("Ask in plain words")) :]
    assert asked[1].startswith("  1  ")  # what was found stands first
    assert any("split a shell command" in line and line.endswith("shlex.split") for line in asked)
    assert "  → the top: nothing fits well enough" in lines
    assert [line.split()[-1] for line in lines if "what is my dog called?" in line] == ["Biscuit.", "Momo.", "Biscuit."]
    assert "stored before" in second.stdout
    with KeywordTree(str(tmp_path / "kept")) as tree:
        assert len(tree.FindByName("YAMLDecoder")) == len(tree.FindByName("json")) == 1


def test_its_titles_are_in_the_language_of_the_locale() -> None:
    done = run(LANG="zh_CN.UTF-8")
    titles = [line for line in done.stdout.splitlines() if line and line[0] not in " │├└" and line != "Python"]

    assert (done.returncode, done.stderr) == (0, "")
    assert len(titles) == 7
    assert [line for line in titles if line.isascii()] == []


def test_keeps_out_of_a_memory_of_something_else(tmp_path: Path) -> None:
    with KeywordTree(str(tmp_path)) as tree:
        tree.CreateKeyword("茶", "root")
    done = run(str(tmp_path))

    assert done.returncode == 1
    assert done.stderr.endswith("holds a memory of something else: name an empty one.\n")


@pytest.mark.parametrize("module", ["json", "os", "typing", "unittest", "test", "antigravity"])
def test_names_each_thing_once_parents_first_and_imports_nothing(module: str) -> None:
    seen = {""}
    for entry in read_library({module}):
        assert entry.dotted not in seen
        assert entry.dotted.rpartition(".")[0] in seen
        assert not any(part.startswith("_") for part in entry.dotted.split("."))
        seen.add(entry.dotted)
    assert "antigravity" not in sys.modules
