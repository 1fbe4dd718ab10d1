"""Tests of what a model was shown and of what became of it while it thought."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import KeywordTree, SearchStatus
from Agent.tests.support.looking import keywords
from Agent.tests.support.models import Meeting, View, about, always, idx, match
from Agent.tests.support.small_tree import LOSSES, WEB, WEBS, last_io, opened
from Agent.tests.support.threads import PATIENCE_S


class TestParentGone:
    @pytest.mark.parametrize(("lose", "place"), LOSSES.values(), ids=LOSSES)
    def test_two_think_of_the_same_parent_while_a_third_takes_it(
        self, lose: Callable[[KeywordTree], object], place: str, folder: Path
    ) -> None:
        meeting = Meeting(2)

        def say(view: View) -> Any:
            meeting.think()
            return match("茶")(view)

        with opened(folder, say) as (tree, _), ThreadPoolExecutor(2) as threads:
            placing = [threads.submit(tree.CreateKeyword, f"龙井 {n}") for n in range(2)]
            meeting.interrupt(lambda: lose(tree))
            made = [future.result(PATIENCE_S) for future in placing]

            assert [node.parent_id for node in made] == [place] * 2
            kept = [change.agent_io for change in tree.History(limit=2) if change.agent_io]
            assert [(io["outcome"], io["reason"]) for io in kept] == [("missing", "parent_gone")] * 2
            assert tree.Verify() == []
            wanted = keywords(tree)
        with KeywordTree(str(folder)) as again:
            assert keywords(again) == wanted

    @pytest.mark.parametrize(("lose", "place"), LOSSES.values(), ids=LOSSES)
    def test_a_search_ends_as_before_and_suggests_what_is_left(
        self, lose: Callable[[KeywordTree], object], place: str, folder: Path
    ) -> None:
        def say(view: View) -> Any:
            lose(tree)
            return match("茶")(view)

        with opened(folder, say) as (tree, _):
            found = tree.Search("what may I drink?")

        assert (found.status, found.reason, found.node) == (SearchStatus.NOT_FOUND, "stale_view", None)
        assert found.suggested_parent_id == place

    @pytest.mark.parametrize("jumps_later", [False, True])
    def test_where_the_model_stood_or_jumps_to_is_gone(self, folder: Path, jumps_later: bool) -> None:
        def say(view: View) -> Any:
            reply = {"action": "missing"} if view["path"] else {"action": "jump", "node_id": idx(view, "茶")}
            if view["path"] or jumps_later:
                tree.DeleteKeyword("tea")
            return reply

        with opened(folder, say) as (tree, _):
            tree.CreateKeyword("绿茶", "tea")

            assert tree.CreateKeyword("龙井").parent_id == "food"
            assert last_io(tree)["reason"] == ("parent_gone" if jumps_later else "agent_missing")

    def test_nothing_is_proposed_by_it(self, folder: Path) -> None:
        def lose(view: View) -> Any:
            reply = match("Python")(view)
            tree.MergeKeywords("python", "snake")
            return reply

        with opened(folder, about(WEB, "suggest_parent", lose)) as (tree, _):
            assert tree.Reorganize()["steps"] == []

    def test_a_suggested_parent_is_one_that_is_left(self, folder: Path) -> None:
        def say(view: View) -> Any:
            reply = match("茶")(view)
            tree.MergeKeywords("tea", "coffee")
            return reply

        with opened(folder, say) as (tree, _):
            assert tree._SuggestParent("龙井") == "coffee"


class TestWhatTheModelSaw:
    @pytest.mark.parametrize("changes", [True, False])
    def test_is_what_a_plan_is_about_though_another_compacts_meanwhile(self, folder: Path, changes: bool) -> None:
        def interrupt(view: View) -> Any:
            if changes:
                tree.UpdateKeyword("web", {"name": "spiders"}, 1)
            else:
                with KeywordTree(str(folder)) as other:
                    other.CompactStorage()
                tree.Refresh()
            return match(WEBS)(view)

        with opened(folder, about(WEB, "dedup_check", interrupt)) as (tree, _):
            assert any("web" in step.values() for step in tree.Reorganize()["steps"]) != changes

    @pytest.mark.parametrize("action", ["missing", "ambiguous", "match"])
    def test_is_where_it_puts_what_it_could_not_decide(self, folder: Path, action: str) -> None:
        def say(view: View) -> Any:
            places = {candidate["name"]: candidate["idx"] for candidate in view["candidates"]}
            if not view["path"]:
                return {"action": "jump", "node_id": places["饮食"]}
            return {
                "action": action,
                "node_ids": [places["茶"], places["咖啡"]],
                "candidate_ids": [places["茶"], places["咖啡"]],
            }

        with opened(folder, say) as (tree, _):
            tree.CreateKeyword("绿茶", "tea")
            assert tree.CreateKeyword("龙井").parent_id == "food"

    def test_has_those_of_many_same_names_that_the_context_speaks_of(self, folder: Path) -> None:
        seen: list[View] = []

        def say(view: View) -> Any:
            seen.append(view)
            return {"action": "missing"}

        with opened(folder, say) as (tree, _):
            places = [tree.CreateKeyword(f"place {number}", "root").id for number in range(60)]
            places.append(tree.CreateKeyword("reptiles", "root").id)
            for place in places:
                tree.CreateKeyword("Boa", place)
            tree.Search("Boa", context="one of the reptiles, a snake")

        paths = [candidate["path"] for candidate in seen[-1]["candidates"]]
        assert (len(paths), paths[0]) == (50, "reptiles / Boa")

    def test_is_kept_with_the_failure_that_ended_it(self, folder: Path) -> None:
        with opened(folder, always(ConnectionError("quota refused"))) as (tree, _):
            tree.CreateKeyword("龙井")

            assert "quota refused" in last_io(tree)["rounds"][0]["error"]
