"""Tests of the demo and of its parts, on a few small modules of this machine's library."""

import io
import re
import sys
from pathlib import Path

import pytest

from Agent import demo
from Agent.demo_outline import Entry, read_outline
from Agent.demo_screen import Screen, display_width, draw_tree, fit, fit_end, wrap_items
from Agent.keyword_tree import KeywordTree

MODULES = frozenset({"json", "textwrap", "shlex", "bisect"})


def run(folder: Path) -> str:
    stream = io.StringIO()
    demo.run_demo(folder, Screen(stream), MODULES)
    return stream.getvalue()


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("memory"))


class TestDemo:
    def test_a_small_memory_answers_every_question(self, screen: str) -> None:
        assert f"{len(demo.ASKED)} of {len(demo.ASKED)} questions answered" in screen
        assert "谁对花生过敏？                 → 小雨对花生过敏。" in screen
        assert "what time is it?               → nothing is known about that" in screen

    def test_draws_the_tree(self, screen: str) -> None:
        assert "│  ├─ dumps" in screen
        assert "more\n" in screen

    def test_prints_every_question_with_the_first_three_found(self, screen: str) -> None:
        lines = screen.splitlines()
        for question in demo.QUESTIONS:
            assert any(question in line and line[2] in "✓✗23" for line in lines)
        found = next(number for number, line in enumerate(lines) if "split a shell command line" in line)

        assert lines[found][2] in "✓23"
        assert lines[found + 1].count(" · ") == 2
        assert "shlex.split" in lines[found + 1]
        assert "split" in lines[found + 2]
        assert re.search(r"of 18: \d+ first, \d+ among three", screen)

    def test_shows_a_conversation_corrected_and_undone(self, screen: str) -> None:
        lines = [line.split() for line in screen.splitlines() if line.startswith("  ? what is my dog called?")]

        assert [words[-1] for words in lines] == ["Biscuit.", "Momo.", "Biscuit."]

    def test_says_where_the_new_keyword_went(self, screen: str) -> None:
        assert any(line.startswith("  → ") and demo.NEW_NAME in line for line in screen.splitlines())

    def test_shows_the_files_and_a_line_of_the_log(self, screen: str) -> None:
        assert "change_log.jsonl" in screen
        assert '{"crc": "' in screen

    def test_fits_in_eighty_columns(self, screen: str) -> None:
        assert max(display_width(line) for line in screen.splitlines()) <= 80

    def test_finds_everything_again_after_reopening(self, screen: str) -> None:
        assert f"{len(list(read_outline(MODULES))) + 1} of" in screen

    def test_doubles_nothing_when_run_again(self, tmp_path: Path) -> None:
        run(tmp_path)
        with KeywordTree(str(tmp_path)) as tree:
            before = repr(tree)
        second = run(tmp_path)
        with KeywordTree(str(tmp_path)) as tree:
            assert repr(tree) == before
        assert "stored before" in second
        assert "placed there by an earlier run" in second

    def test_adds_what_is_new_to_an_earlier_memory(self, tmp_path: Path) -> None:
        demo.run_demo(tmp_path, Screen(io.StringIO()), {"json"})
        run(tmp_path)

        with KeywordTree(str(tmp_path)) as tree:
            assert tree.Search("textwrap.wrap").node is not None
            assert len(tree.FindByName("json")) == 1

    def test_keeps_out_of_a_memory_of_something_else(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            tree.CreateKeyword("茶")

        assert demo.main([str(tmp_path)]) == 1
        assert "something else" in capsys.readouterr().err


class TestOutline:
    def test_does_not_import_what_it_reads(self) -> None:
        assert "antigravity" not in sys.modules
        entries = list(read_outline({"antigravity"}))

        assert entries[0].dotted == "antigravity"
        assert "antigravity" not in sys.modules

    def test_names_each_thing_once_and_parents_first(self) -> None:
        seen: set[str] = {""}
        for entry in read_outline({"json", "os", "typing", "collections", "io", "datetime"}):
            assert entry.dotted not in seen
            assert entry.parent in seen
            seen.add(entry.dotted)

    def test_leaves_out_private_names_and_tests(self) -> None:
        for entry in read_outline({"unittest", "ctypes", "sqlite3", "test", "idlelib"}):
            assert not any(part.startswith("_") or part in ("test", "tests") for part in entry.dotted.split("."))

    def test_knows_the_names_that_users_write(self) -> None:
        entries = read_outline({"asyncio", "json", "posixpath", "ntpath"})
        aliases = {alias for entry in entries for alias in entry.aliases}

        assert {"asyncio.gather", "asyncio.tasks.gather", "json.JSONDecoder", "os.path.join"} <= aliases

    def test_lets_a_twin_in_python_speak_for_a_module_in_c(self) -> None:
        dotted = {entry.dotted for entry in read_outline({"io", "datetime", "collections", "pathlib"})}

        assert {"io.open", "datetime.datetime", "collections.abc.Mapping", "pathlib.Path"} <= dotted

    def test_reads_on_past_a_file_that_cannot_be_parsed(self, tmp_path: Path) -> None:
        (tmp_path / "broken.py").write_text("def (:")
        (tmp_path / "whole.py").write_text('"""Fine."""')

        assert list(read_outline({"broken", "whole", "absent"}, tmp_path)) == [
            Entry("whole", "module", "Fine.", (), "whole.py:1")
        ]


class TestScreen:
    def test_counts_columns_as_a_terminal_does(self) -> None:
        assert display_width("知识tree") == 8
        assert display_width("e\u0301\u200b") == 1

    @pytest.mark.parametrize("text", ["知识树的演示", "plain ascii text", "a\tb\n\x1b[2J", "", "é" * 30])
    @pytest.mark.parametrize("width", [1, 2, 7, 8, 40])
    def test_fits_text_exactly(self, text: str, width: int) -> None:
        assert display_width(fit(text, width)) == width
        assert display_width(fit_end(text, width)) == width
        assert not any(ord(character) < 32 for character in fit(text, width) + fit_end(text, width))

    def test_says_how_many_items_did_not_fit(self) -> None:
        rows = wrap_items([f"item {number}" for number in range(20)], width=30, rows=2)

        assert len(rows) == 2
        assert all(display_width(row) <= 30 for row in rows)
        assert rows[-1].endswith("more")

    def test_draws_an_open_child_even_beyond_the_limit(self) -> None:
        children = {"a": ["b", "c", "d", "e"], "e": ["f"]}
        lines = draw_tree("a", lambda name: children.get(name, []), str, {"a", "e"}.__contains__, limit=1)

        assert lines == ["a", "├─ e", "│  └─ f", "└─ … 3 more"]

    def test_writes_colours_only_where_wanted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.delenv("NO_COLOR", raising=False)
        assert "\x1b[" in Screen(Terminal()).style("text", "red")
        monkeypatch.setenv("NO_COLOR", "1")
        assert Screen(Terminal()).style("text", "red") == "text"
        assert Screen(io.StringIO()).style("text", "red") == "text"

    def test_shows_progress_only_on_a_terminal(self) -> None:
        stream = io.StringIO()
        Screen(stream).progress("reading")

        assert stream.getvalue() == ""
