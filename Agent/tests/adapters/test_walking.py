"""Tests of the tools' work: what a model that walks the tree sees."""

import json
from typing import Any

import pytest

from Agent.adapters import operations
from Agent.adapters.walking import TreeWalk
from Agent.keyword_tree import ConflictError, InvalidInputError, KeywordTree, NotFoundError, StubLLMClient
from Agent.memory import MemoryStore


@pytest.fixture
def walk(tree: KeywordTree) -> TreeWalk:
    return TreeWalk(tree)


class TestSearch:
    def test_a_match_comes_with_path_and_facts(self, walk: TreeWalk) -> None:
        tea = walk.tree.CreateKeyword("茶", "root")
        green = walk.tree.CreateKeyword("绿茶", tea.id, ["green tea"])
        walk.tree.CreateInfo("龙井来自杭州", "notes", [green.id])

        found = walk.search("茶/green tea")
        assert found["status"] == "matched"
        assert found["match"]["path"] == ["茶", "绿茶"]
        assert [fact["content"] for fact in found["match"]["facts"]] == ["龙井来自杭州"]

    def test_of_several_what_fits_the_context_comes_first(self, walk: TreeWalk) -> None:
        for place in ("fruit", "company", "record label"):
            walk.tree.CreateKeyword("Apple", walk.tree.CreateKeyword(place, "root").id)

        found = walk.search("apple", "a company that makes phones")
        assert found["status"] == "ambiguous"
        assert found["candidates"][0]["path"] == ["company", "Apple"]
        assert len(found["candidates"]) == 3

    def test_without_a_name_candidates_are_reported(self, walk: TreeWalk) -> None:
        walk.tree.CreateKeyword("green tea", "root")

        found = walk.search("which tea is green?")
        assert (found["status"], found["match"]) == ("candidates", None)
        assert found["candidates"][0]["name"] == "green tea"
        assert walk.search("zzz")["status"] == walk.search("")["status"] == "not_found"


class TestLookBeneath:
    @pytest.mark.parametrize("count", [1, 50, 51, 501])
    def test_every_child_is_reached(self, walk: TreeWalk, count: int) -> None:
        names = {f"k{number}" for number in range(count)}
        walk.tree.BatchCreateKeywords([{"name": name, "parent_id": "root"} for name in names])
        seen: list[str] = []
        waiting = ["root"]
        calls = 0
        while waiting:
            reported = walk.look_beneath(waiting.pop())
            calls += 1
            assert len(reported["children"]) + len(reported["groups"]) <= 50
            seen += [child["name"] for child in reported["children"]]
            waiting += [group["id"] for group in reported["groups"]]

        assert sorted(seen) == sorted(names)
        assert calls <= 1 + count / 25

    @pytest.mark.parametrize("id", ["", "missing", "root@", "root@1-x", "@1-2", "missing@0-50"])
    def test_what_is_not_there_is_said(self, walk: TreeWalk, id: str) -> None:
        with pytest.raises((NotFoundError, InvalidInputError)):
            walk.look_beneath(id)


class TestPlace:
    def test_asks_first_where_similar_ones_are(self, walk: TreeWalk) -> None:
        tea = walk.tree.CreateKeyword("tea", "root")
        walk.tree.CreateKeyword("green tea", tea.id)
        walk.tree.CreateKeyword("black tea", tea.id)
        before = len(walk.tree.History())
        reported = walk.place("white tea")

        assert not reported.result["made"]
        assert reported.result["candidates"][0]["name"] == "tea"
        assert reported.result["candidates"][-1]["id"] == "root"
        assert (len(walk.tree.History()), reported.operation_id) == (before, "")
        assert walk.place("Green Tea").result["called_so"][0]["path"] == ["tea", "green tea"]

    def test_makes_it_under_the_chosen_one(self, walk: TreeWalk) -> None:
        tea = walk.place("tea", parent_id="root").result
        done = walk.place("white tea", "hardly oxidised", tea["id"])
        assert done.result["path"] == ["tea", "white tea"]
        walk.tree.Undo(done.operation_id)
        assert walk.search("white tea")["match"] is None
        with pytest.raises(NotFoundError):
            walk.place("x", parent_id="missing")


class TestRemember:
    def test_links_a_fact_on_keywords_by_name_path_or_id(self, walk: TreeWalk) -> None:
        tea = walk.place("tea", parent_id="root").result["id"]
        green = walk.place("green", parent_id=tea).result["id"]
        first = walk.remember("Green tea wants 80 degrees.", ["Tea"])
        done = walk.remember("Green tea wants 80 degrees.", ["Tea", "tea/green", green])
        assert done.result["keywords"] == ["tea", "tea / green"]
        assert done.result["id"] == first.result["id"]  # it is one fact
        assert [info.id for info in walk.tree.ListInfos()] == [first.result["id"]]
        assert walk.tree.GetInfosOfKeyword(green)[0].created_by == "mcp"
        walk.tree.DeleteKeyword(green)
        for remember in (walk.remember, MemoryStore(walk.tree).remember):
            with pytest.raises(NotFoundError, match=green):  # its id is no name of a new one
                remember("Green tea is cheap.", ["tea", green])
        assert (walk.tree.TreeMetrics()["infos"], len(walk.tree.GetChildren("root"))) == (1, 1)

    def test_a_fact_is_corrected_and_forgotten_by_the_id_that_recall_returns(self, walk: TreeWalk) -> None:
        walk.remember("Ada lives in Paris.", ["Ada"], "chat 1")
        for source in ("chat 2", ""):
            walk.correct(walk.recall("Ada")[0]["id"], f"Ada moved to Rome, says {source}.", source)
            assert [(fact["source"], fact["path"]) for fact in walk.recall("Ada Paris")] == [(source, ["Ada"])]
        walk.forget(walk.recall("Ada")[0]["id"])
        assert (walk.recall("Ada"), walk.tree.ListInfos()) == ([], [])
        walk.undo()
        walk.undo()
        assert walk.recall("Ada")[0]["source"] == "chat 2"
        with pytest.raises(NotFoundError):
            walk.forget("missing")

    @pytest.mark.parametrize("content", ["", "   ", "\n", "\u3000"])
    def test_nothing_is_refused(self, walk: TreeWalk, content: str) -> None:
        with pytest.raises(InvalidInputError, match="nothing to remember"):
            walk.remember(content)
        assert walk.tree.TreeMetrics()["infos"] == 0

    def test_missing_keywords_are_made_and_named(self, walk: TreeWalk) -> None:
        walk.place("tea", parent_id="root")
        done = walk.remember("x", ["Tea", "tea/green", "Ada", "Ada"]).result

        assert done["keywords"] == ["tea", "tea / green", "Ada"]
        assert done["made"] == ["tea / green", "Ada"]
        walk.undo()
        assert [node.name for node in walk.tree.GetChildren("root")] == ["tea"]

    def test_a_name_of_several_is_reported_with_their_ids(self, walk: TreeWalk) -> None:
        ids = [walk.place("A", parent_id="root").result["id"] for _ in "12"]
        with pytest.raises(InvalidInputError, match=ids[1]):
            walk.remember("x", ["A"])


class TestRecall:
    def test_returns_facts_with_their_places(self, walk: TreeWalk) -> None:
        id = walk.remember("Ada is allergic to peanuts.", ["people/Ada"]).result["id"]
        walk.remember("Bob plays the cello.", ["people/Bob"])
        for number in range(20):
            walk.remember(f"Fact number {number} about thing {number}.")

        (fact,) = walk.recall("What is Ada allergic to?", 1)
        assert (fact["id"], fact["content"], fact["path"]) == (id, "Ada is allergic to peanuts.", ["people", "Ada"])
        assert 0 < fact["score"] <= 1
        assert [each["content"] for each in walk.recall("谁会拉大提琴 cello?")] == ["Bob plays the cello."]
        assert [each["content"] for each in walk.recall("thing 7?")] == ["Fact number 7 about thing 7."]
        assert walk.recall("zebra") == []

    @pytest.mark.parametrize(("reply", "kept"), [({"targets": [0]}, 1), ({"targets": []}, 0), (OSError("down"), 2)])
    def test_a_judge_leaves_out_what_does_not_answer(self, tree: KeywordTree, reply: Any, kept: int) -> None:
        walk = TreeWalk(tree, judge=StubLLMClient([reply]))
        for name in ("Ada", "Bob"):
            walk.remember(f"{name} is allergic to peanuts.", [name])

        assert len(walk.recall("Who is allergic to peanuts?")) == kept

    @pytest.mark.parametrize("question", ["", " \n", "\u200b"])
    def test_a_blank_question_is_refused(self, walk: TreeWalk, question: str) -> None:
        with pytest.raises(InvalidInputError, match="no question"):
            walk.recall(question)

    def test_what_a_search_offers_shows_its_facts(self, walk: TreeWalk) -> None:
        for place in ("people", "pets"):
            walk.remember(f"One of the {place}. " + "x" * 400, [f"{place}/Ada"])

        candidates = walk.search("Ada")["candidates"]
        assert [row["facts"][0]["content"][:18] for row in candidates] == ["One of the people.", "One of the pets. x"]
        assert all(len(row["facts"][0]["content"]) < 350 for row in candidates)


class TestFacts:
    def test_long_facts_are_cut_and_counted(self, walk: TreeWalk) -> None:
        walk.place("tea", parent_id="root")
        for letter in "abc":
            walk.remember(letter * 1_000_000, ["tea"])

        match = walk.search("tea")["match"]
        assert match["fact_count"] == 3
        assert len(json.dumps(match)) < 50_000
        assert match["facts"][0]["content"].endswith("… (1,000,000 characters)")


class TestUndo:
    def test_takes_back_the_last_change_of_its_owner(self, walk: TreeWalk) -> None:
        for owner in ("ada", "eve", None):
            done = walk.place(str(owner), parent_id="root")
            walk.operations.note(done.operation_id, owner)

        walk.undo(owner="ada")
        assert [child["name"] for child in walk.look_beneath()["children"]] == ["eve", "None"]
        for owner, said in (("ada", "nothing was changed"), (None, "name an operation"), ("", "nothing was changed")):
            with pytest.raises(InvalidInputError, match=said):
                walk.undo(owner=owner)

    def test_remembers_no_more_than_so_many(self, walk: TreeWalk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operations, "REMEMBERED", 1)
        walk.place("a", parent_id="root")
        walk.place("b", parent_id="root")
        walk.undo()

        with pytest.raises(InvalidInputError, match="nothing was changed"):
            walk.undo()

    def test_what_later_changes_need_stays(self, walk: TreeWalk) -> None:
        done = walk.place("a", parent_id="root")
        walk.place("b", parent_id=done.result["id"])
        with pytest.raises(ConflictError):
            walk.undo(done.operation_id)
        with pytest.raises(NotFoundError):
            walk.undo("nothing")

        walk.undo()
        walk.undo()  # what was refused is still remembered

    def test_an_undo_can_be_undone_by_its_id(self, walk: TreeWalk) -> None:
        walk.place("a", parent_id="root")
        walk.undo(walk.undo().operation_id)

        assert [child["name"] for child in walk.look_beneath()["children"]] == ["a"]


class TestHistory:
    def test_tells_what_touched_a_keyword(self, walk: TreeWalk) -> None:
        a = walk.place("a", parent_id="root")
        walk.place("b", parent_id="root")

        assert [row["operation_id"] for row in walk.history("a")] == [a.operation_id]
        assert len(walk.history()) >= 2
        walk.undo(a.operation_id)
        assert len(walk.history(a.result["id"])) == 2  # what was deleted has a history, too
        with pytest.raises(InvalidInputError, match="'missing'"):
            walk.history("missing")
