"""Tests of `LexicalLLMClient`: what it decides from one view, and through a real tree."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.keyword_tree import KeywordTree, SearchStatus
from Agent.models.lexical_client import LexicalLLMClient

FIELDS = {"action", "targets", "reason"}


def ask(question: object) -> dict[str, Any]:
    """Send one question the way a tree does."""
    content = json.dumps(question, ensure_ascii=False)
    return LexicalLLMClient().Chat([{"role": "system", "content": ""}, {"role": "user", "content": content}], {})


def view(
    paths: list[str],
    query: str,
    intent: str = "search",
    path: str = "",
    scores: list[float] | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Return a question whose candidates have these paths, and a score of 0.5 each; a group's name is its path."""
    candidates = [
        {
            "idx": idx,
            "name": text if text.startswith("… ") else text.rpartition(" / ")[2],
            "path": text,
            "score": scores[idx] if scores else 0.5,
        }
        for idx, text in enumerate(paths)
    ]
    steps = path.split(" / ") if path else []
    return {"intent": intent, "query": query, "path": steps, "candidates": candidates, **extra}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path), LexicalLLMClient()) as opened:
        yield opened


class TestSearch:
    @pytest.mark.parametrize(("score", "answer"), [(0.9, "match"), (0.4, "match"), (0.39, "missing")])
    def test_takes_the_first_in_the_order_if_it_has_a_score(self, score: float, answer: str) -> None:
        paths = ["Storage / SQL databases", "Storage / Graph databases", "Storage"]
        reply = ask(view(paths, "which databases speak SQL", scores=[score, 0.05, 0.9]))

        assert (reply["action"], reply["targets"]) == (answer, [0] if answer == "match" else [])

    @pytest.mark.parametrize("recent", [1, 3, 5])
    def test_passes_over_what_is_merely_recent_whatever_it_scores(self, recent: int) -> None:
        paths = [*(f"Music / Jazz {number}" for number in range(recent)), "Food / Rye bread", "Food"]
        reply = ask(view(paths, "how do I bake a bread", recent=recent))

        assert (reply["action"], reply["targets"]) == ("match", [recent])

    @pytest.mark.parametrize(
        ("paths", "query", "intent", "scores"),
        [
            (["Food / Bread", "Music / Jazz"], "what is the weather in Oslo?", "search", [0.1, 0.0]),
            (["Meetings", "Cats"], "Longjing tea", "suggest_parent", [0.1, 0.9]),  # the chosen one itself must fit
        ],
    )
    def test_answers_missing_where_nothing_fits(
        self, paths: list[str], query: str, intent: str, scores: list[float]
    ) -> None:
        reply = ask(view(paths, query, intent, scores=scores))

        assert (reply["action"], reply["targets"]) == ("missing", [])

    def test_is_ambiguous_between_equals_of_one_name(self) -> None:
        paths = ["Rome / Museum", "Oslo / Museum", "Oslo"]
        reply = ask(view(paths, "which museum", scores=[0.5, 0.5, 0.2]))

        assert (reply["action"], reply["targets"]) == ("ambiguous", [0, 1])

    def test_is_not_ambiguous_where_a_score_tells_or_one_lies_under_the_other(self) -> None:
        assert ask(view(["Rome / Museum", "Oslo / Museum"], "museum", scores=[0.5, 0.4]))["targets"] == [0]
        assert ask(view(["Museum", "Museum / Museum"], "museum"))["targets"] == [0]


class TestGroups:
    def test_never_chooses_a_group(self) -> None:
        name = "… 9 more: teapot – wok"

        assert ask(view([name], name))["action"] == "missing"
        assert ask(view([name], name, "suggest_parent"))["action"] == "missing"

    def test_takes_a_keyword_that_bears_the_name_of_a_group_as_a_keyword(self) -> None:
        name = "… 9 more: teapot – wok"

        assert ask(view([name, "Kitchen / Teapot"], name))["targets"] == [0]


class TestSuggestParent:
    def test_takes_the_longest_parent_that_the_new_name_names(self) -> None:
        paths = ["Food / Fruit", "Food / Pie", "Food / Pie / Fruit pie"]
        assert ask(view(paths, "apple pie", "suggest_parent"))["targets"] == [1]
        assert ask(view(paths, "sweet fruit pie", "suggest_parent"))["targets"] == [2]

    def test_takes_none_above_what_ranks_first(self) -> None:
        paths = ["Manufacturing / Steel", "Manufacturing"]

        assert ask(view(paths, "steel manufacturing", "suggest_parent"))["targets"] == [0]

    def test_a_namesake_is_no_parent(self) -> None:
        assert ask(view(["Nora"], "nora", "suggest_parent", scores=[0.9]))["action"] == "missing"

    @pytest.mark.parametrize(("name", "parent"), [("Beethoven", "Oven"), ("Father", "Mother"), ("Cello", "Cellar")])
    def test_shared_letters_are_no_reason(self, tree: KeywordTree, name: str, parent: str) -> None:
        tree.CreateKeyword(parent, "root")

        assert tree.CreateKeyword(name).parent_id == "root"


class TestLinkInfo:
    def test_links_what_the_content_names(self) -> None:
        paths = ["编程", "编程 / Python", "饮食 / 茶", "编程 / Rust"]
        reply = ask(view(paths, "", "link_info", content="用户用 Python 写脚本，爱喝茶。"))

        assert (reply["action"], sorted(reply["targets"])) == ("match", [1, 2])

    def test_leaves_out_what_stands_above_a_chosen_one(self) -> None:
        paths = ["Python", "Python / Python packaging"]
        reply = ask(view(paths, "", "link_info", content="Python packaging has changed."))

        assert reply["targets"] == [1]

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            ("I will tell it to us when I can.", []),
            ("Will it rain? It may.", []),
            ("I told Will that IT called.", ["IT", "Will"]),
            ("In May we go to the US.", ["May", "US"]),
            ("C# runs on .NET.", [".NET", "C#"]),
            ("Written in C++, not in C.", ["C", "C++"]),
            ("plan c is better", []),
            ("net income rose", []),
        ],
    )
    def test_everyday_words_and_letters_are_names_only_as_they_are_written(
        self, content: str, named: list[str]
    ) -> None:
        paths = ["Will", "IT", "US", "May", "C", "C++", "C#", ".NET"]
        reply = ask(view(paths, "", "link_info", content=content))

        assert sorted(paths[idx] for idx in reply["targets"]) == named

    def test_links_nothing_to_nothing(self) -> None:
        assert ask(view(["饮食 / 茶"], "", "link_info", content="明天下雨"))["action"] == "missing"


class TestHostileInput:
    @pytest.mark.parametrize(
        "question",
        [None, [], "text", 1, {}, {"intent": "search"}, {"intent": 1, "query": 2, "path": 3, "candidates": 4}],
    )
    def test_answers_missing_to_what_is_no_question(self, question: object) -> None:
        assert ask(question)["action"] == "missing"

    @pytest.mark.parametrize("messages", [[], [{}], [{"content": "{"}], [{"content": "[" * 100_000}]])
    def test_answers_missing_to_broken_messages(self, messages: list[dict[str, str]]) -> None:
        assert LexicalLLMClient().Chat(messages, {})["action"] == "missing"

    @pytest.mark.parametrize("odd", [None, 7, "0 tea", {"idx": 1}])
    def test_answers_missing_where_a_candidate_has_another_form(self, odd: object) -> None:
        question = view(["Tea"], "tea")
        question["candidates"].append(odd)

        assert ask(question)["action"] == "missing"

    @given(
        intent=st.sampled_from(["search", "suggest_parent", "link_info", "?"]),
        query=st.text(max_size=60),
        path=st.lists(st.text(max_size=8), max_size=3),
        names=st.lists(st.one_of(st.text(max_size=40), st.sampled_from(["… 3 more: a – z", "… 0 more: ", " / ", ""]))),
        description=st.one_of(st.none(), st.text(max_size=40), st.integers()),
    )
    def test_answers_in_the_form_of_the_schema_whatever_it_is_shown(
        self, intent: str, query: str, path: list[str], names: list[str], description: object
    ) -> None:
        candidates = [{"idx": idx, "name": name, "path": " / ".join([*path, name])} for idx, name in enumerate(names)]
        question = {"intent": intent, "query": query, "path": path, "candidates": candidates}
        reply = ask({**question, "description": description})

        assert reply.keys() == FIELDS
        assert reply["action"] in ("match", "jump", "missing", "ambiguous")
        chosen = set(reply["targets"])
        assert chosen <= set(range(len(names)))
        assert bool(chosen) == (reply["action"] != "missing")


class TestInATree:
    def test_searches_places_and_abstains(self, tree: KeywordTree) -> None:
        food = tree.CreateKeyword("饮食 food", llm_auto_place=False)
        tree.CreateKeyword("编程 programming", llm_auto_place=False)
        bread = tree.CreateKeyword("rye bread", food.id)
        tree.CreateKeyword("bread", food.id)
        placed = tree.CreateKeyword("wheat bread", description="food made of wheat")

        assert tree["饮食 food/bread"].id == placed.parent_id
        tree.CreateInfo("Rye bread keeps longest, for a week.", keyword_ids=[bread.id])
        tree.CreateInfo("Wheat bread keeps for two days.", keyword_ids=[placed.id])
        assert tree.Search("how long does rye bread keep").node == tree.GetKeyword(bread.id)
        assert tree.RankCandidates("how long does wheat bread keep", 1)[0][0] == tree.GetKeyword(placed.id)
        assert tree.Search("明天会下雨吗").status is SearchStatus.NOT_FOUND

    @pytest.mark.parametrize("is_first", [True, False])
    @pytest.mark.parametrize(
        ("name", "reported", "contexts"),
        [
            (
                "Python",
                ("Python is a language with significant indentation.", "A python is a snake that eats rats."),
                ("python the snake that eats rats", "which animal is a python?", "which snake eats rats"),
            ),
            (
                "蟒蛇",
                ("蟒蛇是一种编程语言，用缩进分块。", "蟒蛇是一种动物，吃老鼠。"),
                ("蟒蛇吃老鼠吗", "哪种动物吃老鼠"),
            ),
        ],
    )
    def test_takes_the_namesake_of_which_the_context_speaks(
        self, tree: KeywordTree, name: str, reported: tuple[str, str], contexts: tuple[str, ...], is_first: bool
    ) -> None:
        themes = ["Programming", "Animals"] if is_first else ["Animals", "Programming"]
        ids = {theme: tree.CreateKeyword(name, tree.CreateKeyword(theme, "root").id).id for theme in themes}
        tree.CreateInfo(reported[0], keyword_ids=[ids["Programming"]])
        tree.CreateInfo(reported[1], keyword_ids=[ids["Animals"]])

        for context in contexts:
            assert [node.name for node in tree.Search(name, context=context).path[1:]] == ["Animals", name]

    def test_asks_back_where_the_context_says_nothing_of_any_namesake(self, tree: KeywordTree) -> None:
        for theme in ("Programming", "Animals"):
            tree.CreateKeyword("Python", tree.CreateKeyword(theme, "root").id)

        assert tree.Search("Python", context="it rains").status is SearchStatus.AMBIGUOUS
        assert tree.Search("Python", context="about python").status is SearchStatus.AMBIGUOUS


@pytest.mark.parametrize(
    ("context", "path"),
    [
        ("Books", ["root", "Books", "Atlas"]),
        ("for my project on maps", ["root", "Projects", "Atlas"]),
        ("weather", []),
        ("项目", ["root", "项目", "Atlas"]),
    ],
)
def test_a_context_that_names_what_is_above_tells_namesakes_apart(
    tmp_path: Path, context: str, path: list[str]
) -> None:
    with KeywordTree(str(tmp_path), LexicalLLMClient()) as tree:
        for above in ("Books", "Projects", "书", "项目"):
            tree.Ensure([above, "Atlas"])
        assert [node.name for node in tree.Search("Atlas", context=context).path] == path
