"""Tests of the table of safeguards: each is found in the module as it is, and can be taken away alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from Agent import keyword_tree
from benchmarks.mutate_store import TABLE, Safeguard, SafeguardError, read_table, write_table

SOURCE = '''
class Store:
    """Writes."""

    def Write(self, data):
        # first of all
        if len(data) > 长:  # too long
            raise ValueError("# this is no comment")
        self.Sync()

    def Close(self):
        self.Sync()
        self.Sync()  # twice
'''


def meaning(function: str) -> str:
    return ast.dump(ast.parse(f"if True:\n{function}" if function.startswith(" ") else function))


class TestTakingAway:
    @pytest.mark.parametrize(
        ("place", "code", "without", "times"),
        [
            ("Store.Write", "len(data) > 长", "False", 1),
            ("Store.Write", "self.Sync()", "pass", 1),
            ("Store.Close", "self.Sync()\n        self.Sync()", "pass", 1),
            ("Store.Close", "self.Sync()", "pass", 2),
            ("Store", "长", "2", 1),
            ("", '"# this is no comment"', "", 1),
        ],
    )
    def test_changes_one_function_alone(self, place: str, code: str, without: str, times: int) -> None:
        changed = Safeguard("", place, code, without, times).taken_from(SOURCE)

        plain = SOURCE.replace("        # first of all\n", "").replace("  # too long", "").replace("  # twice", "")
        head, middle, tail = plain.partition("    def Close")
        if place == "Store.Close":
            tail = tail.replace(code, without)
        else:
            head = head.replace(code, without)
        assert changed == head + middle + tail
        ast.parse(changed)

    @pytest.mark.parametrize(
        ("place", "code", "reason"),
        [
            ("Store.Read", "self.Sync()", r"there is no Store\.Read"),
            ("Store.Write", "self.Flush()", "is 0 times"),
            ("Store.Close", "self.Sync()", "is 2 times"),
            ("Store.Write", "too long", "is 0 times"),
        ],
    )
    def test_of_what_is_not_there_is_refused(self, place: str, code: str, reason: str) -> None:
        with pytest.raises(SafeguardError, match=reason):
            Safeguard("", place, code, "pass").taken_from(SOURCE)


class TestTable:
    def test_has_each_safeguard_of_the_module_where_it_is(self) -> None:
        module = Path(keyword_tree.__file__).read_text("utf-8")

        for safeguard in read_table():
            _, function, _ = safeguard.parts_of(module)
            without = function.replace(safeguard.code, safeguard.without)
            assert meaning(without) != meaning(function), safeguard.name

    def test_says_of_each_who_notices_or_why_no_one_need(self) -> None:
        assert [each.name for each in read_table() if bool(each.noticed) == bool(each.harmless)] == []

    def test_names_tests_that_are_there(self) -> None:
        home = Path(keyword_tree.__file__).parent
        there = {
            f"{path.stem}: {test}"
            for path in home.rglob("test_*.py")
            for test in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))
        }

        assert {each.noticed for each in read_table() if each.noticed} - there == set()

    def test_is_written_as_it_is_read(self, tmp_path: Path) -> None:
        write_table(read_table(), tmp_path / "table")

        assert (tmp_path / "table").read_text("utf-8") == TABLE.read_text("utf-8")
