"""Tests of the option that shows descriptions with candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.tests.support.models import Model, always, match
from Agent.tests.support.small_tree import INTENTS, last_io, opened

SHOWN = {"Python": {"a language", "a snake"}, "茶": {"乌龙、绿茶和红茶"}}
"""Which descriptions belong to a name."""


class TestShownDescriptions:
    def ask(self, tree: KeywordTree) -> None:
        """Ask each of the five questions once or more."""
        tree.Search("what may I drink?")
        tree.CreateKeyword("龙井", description="绿茶的一种")
        tree.CreateInfo("喜欢喝龙井茶。", auto_link=True)
        tree.Search("Python", context="it bites")
        tree.Reorganize()

    def described(self, folder: Path, **options: Any) -> Model:
        """Return a model that was asked everything about a tree with descriptions."""
        with opened(folder, always({"action": "missing"}), **options) as (tree, model):
            tree.UpdateKeyword("tea", {"description": "乌龙、绿茶和红茶"}, 1)
            self.ask(tree)
        assert {view["intent"] for view in model.views} == set(INTENTS)
        return model

    def test_stand_with_each_candidate_and_where_there_is_none_nothing_is_said(self, folder: Path) -> None:
        model = self.described(folder, show_descriptions=True)

        for view in model.views:
            for candidate in view["candidates"]:
                assert candidate.get("description") in SHOWN.get(candidate["name"], {"绿茶的一种", None})
                assert list(candidate)[:3] == ["idx", "name", "path"]
        search = model.views[0]
        assert {c["description"] for c in search["candidates"] if c["name"] == "Python"} == SHOWN["Python"]

    def test_are_off_by_default_and_leave_all_else_as_it_is(self, tmp_path: Path) -> None:
        without, shown = self.described(tmp_path / "a"), self.described(tmp_path / "b", show_descriptions=True)

        assert [messages[0] for messages in without.sent] == [messages[0] for messages in shown.sent]
        for view, other in zip(without.views, shown.views, strict=True):  # and all the rest of the question
            assert all(candidate.keys() == {"idx", "name", "path"} for candidate in view["candidates"])
            for candidate in other["candidates"]:
                candidate.pop("description", None)
            assert view == other

    @pytest.mark.parametrize(
        ("description", "shown"),
        [
            ("x" * 200, "x" * 200),
            ("x" * 201, "x" * 199 + "…"),
            ("茶" * 65_536, "茶" * 199 + "…"),
            ("", None),
            (" \n\t", None),
        ],
        ids=["as long as may be", "too long", "the longest", "none", "blank"],
    )
    def test_are_cut_at_200_characters(self, description: str, shown: str | None, folder: Path) -> None:
        with opened(folder, always({"action": "missing"}), show_descriptions=True) as (tree, model):
            tree.UpdateKeyword("tea", {"description": description}, 1)
            tree.Search("what may I drink?")

        [tea] = [candidate for candidate in model.views[0]["candidates"] if candidate["name"] == "茶"]
        assert tea.get("description") == shown

    def test_of_groups_are_none(self, folder: Path) -> None:
        with opened(folder, always({"action": "missing"}), show_descriptions=True, max_candidates=7) as (tree, model):
            tree.Search("what may I drink?")

        groups = [candidate for candidate in model.views[0]["candidates"] if " more: " in candidate["name"]]
        assert groups
        assert all(group.keys() == {"idx", "name", "path"} for group in groups)

    @pytest.mark.parametrize("value", [None, 1, "yes", []])
    def test_must_be_switched_by_a_bool(self, value: Any, folder: Path) -> None:
        with pytest.raises(InvalidInputError, match="show_descriptions"):
            KeywordTree(str(folder), show_descriptions=value)

    @pytest.mark.parametrize("is_shown", [False, True])
    def test_are_on_record_and_in_the_seeds_list_of_candidates(self, folder: Path, is_shown: bool) -> None:
        with opened(folder, match("茶"), show_descriptions=is_shown) as (tree, _):
            tree.CreateKeyword("龙井")
            assert last_io(tree).get("candidate_fields", []) == ["description"] * is_shown
            [python] = [c for c in tree._CollectCandidates(["code"]) if c["id"] == "python"]
            assert python.get("description") == ("a language" if is_shown else None)
