"""Tests of `benchmarks.guards`: a safeguard is found by its mark, and nothing but it is taken away."""

import ast
from pathlib import Path

import pytest

from Agent import keyword_tree
from benchmarks.guards import Always, GuardError, Instead, Way, marks, take_away
from benchmarks.mutate_store import LAST_TABLE, MUTATIONS, read_last_table

SOURCE = '''
def write(store, data, 长, lock):
    """Write."""
    # guard: a text
    # that goes on
    if len(data) > 长:  # too long
        raise ValueError("guard: this is no comment")
    elif not data:  # guard: nothing
        return 0
    with lock, store as held:  # for one at a time; guard: a lock
        try:
            held.write(
                data,  # guard: the bytes
            )
            held.sync()  # guard: a sync; guard: a sync without a name
        except OSError as error:  # guard: an error
            raise RuntimeError from error
    return 长 - len(data)  # guard: a result
'''
OPEN, DONE = "    with lock, store as held:", "            held.sync()"


class TestMarks:
    def test_are_those_of_the_next_line_or_of_their_own(self) -> None:
        lines = SOURCE.split("\n")

        lines_of = marks(SOURCE).items()
        marked = {name: [lines[number - 1].split("#")[0].strip() for number in numbers] for name, numbers in lines_of}

        assert marked == {
            "a text": ["if len(data) > 长:"],
            "nothing": ["elif not data:"],
            "a lock": ["with lock, store as held:"],
            "the bytes": ["data,"],
            "a sync": ["held.sync()"],
            "a sync without a name": ["held.sync()"],
            "an error": ["except OSError as error:"],
            "a result": ["return 长 - len(data)"],
        }


class TestTakingAway:
    @pytest.mark.parametrize(
        ("mark", "way", "old", "new"),
        [
            ("a text", None, "len(data) > 长", "False"),
            ("a text", Always(), "len(data) > 长", "True"),
            ("a text", Instead("> 长", ">= 长"), "> 长", ">= 长"),
            ("nothing", None, "not data", "False"),
            ("a lock", None, "lock, store as held", "__import__('contextlib').nullcontext()"),
            ("a lock", Instead("lock, ", ""), "lock, ", ""),
            ("the bytes", None, "held.write(\n                data,  # guard: the bytes\n            )", "pass"),
            ("the bytes", Instead("data,", "data[1:],"), "data,", "data[1:],"),
            ("a sync", None, "held.sync()", "pass"),
            ("a sync without a name", None, "held.sync()", "pass"),
            ("an error", None, "except OSError", "except ()"),
            ("a result", Instead("长 - len(data)", "0"), "长 - len(data)", "0"),
        ],
    )
    def test_changes_one_place(self, mark: str, way: Way, old: str, new: str) -> None:
        at = marks(SOURCE)[mark][0]
        behind = "\n".join(SOURCE.split("\n")[at - 1 :])
        start = SOURCE.index(behind) + behind.index(old) if old in behind else SOURCE.index(old)

        changed = take_away(SOURCE, mark, way)

        assert changed == SOURCE[:start] + new + SOURCE[start + len(old) :]
        ast.parse(changed)

    @pytest.mark.parametrize(
        ("mark", "way", "told"),
        [
            ("a wish", None, "no line has the mark 'a wish'"),
            ("a result", None, "say how"),
            ("a sync", Always(), "no condition"),
            ("a sync", Instead("held.flush()", "pass"), r"'held.flush\(\)' stands 0 times"),
            ("the bytes", Instead("a", "b"), "stands 3 times"),
        ],
    )
    def test_of_what_is_not_there_is_refused(self, mark: str, way: Way, told: str) -> None:
        with pytest.raises(GuardError, match=told):
            take_away(SOURCE, mark, way)

    def test_of_a_mark_that_stands_twice_changes_both_places(self) -> None:
        twice = SOURCE + SOURCE.replace("def write", "def write_more")

        assert take_away(twice, "a sync").count("pass") == 2


class TestSafeguardsOfTheCore:
    def test_are_all_found_by_their_marks(self) -> None:
        module = Path(keyword_tree.__file__).read_text("utf-8")

        assert marks(module).keys() == {mutation.mark or mutation.name for mutation in MUTATIONS}
        for mutation in MUTATIONS:
            assert mutation.of(module) != module, mutation.name

    def test_are_all_noticed_or_need_not_be(self) -> None:
        noticed = read_last_table(LAST_TABLE)

        assert [each.name for each in MUTATIONS if each.name not in noticed and not each.harmless] == []
