"""Tests of `LexicalLLMClient`: what it decides from one view, and through a real tree."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.keyword_tree import KeywordTree, SearchStatus
from Agent.lexical_client import LexicalLLMClient

FIELDS = {"action", "node_id", "node_ids", "jump_depth", "suggest_name", "candidate_ids", "reason"}


def ask(question: object) -> dict[str, Any]:
    """Send one question the way a tree does."""
    content = json.dumps(question, ensure_ascii=False)
    return LexicalLLMClient().Chat([{"role": "system", "content": ""}, {"role": "user", "content": content}], {})


def view(paths: list[str], query: str, intent: str = "search", path: str = "", **extra: str) -> dict[str, Any]:
    """Return a question whose candidates have these paths; a group's name is its path."""
    candidates = [
        {"idx": idx, "name": text if text.startswith("… ") else text.rpartition(" / ")[2], "path": text}
        for idx, text in enumerate(paths)
    ]
    steps = path.split(" / ") if path else []
    return {"intent": intent, "query": query, "path": steps, "candidates": candidates, **extra}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path), LexicalLLMClient()) as opened:
        yield opened


class TestSearch:
    def test_takes_the_first_in_the_order_if_it_fits(self) -> None:
        reply = ask(view(["Storage / SQL databases", "Storage / Graph databases"], "which databases speak SQL"))

        assert (reply["action"], reply["node_id"]) == ("match", 0)

    def test_finds_by_pairs_of_characters_where_words_are_not_spaced(self) -> None:
        reply = ask(view(["科学 / 数据可视化", "网络 / 爬虫"], "怎么把数据画成图"))

        assert (reply["action"], reply["node_id"]) == ("match", 0)

    @pytest.mark.parametrize(
        ("path", "query"),
        [
            ("еда / хлеб", "какой хлеб купить"),
            ("食べ物 / 抹茶", "抹茶はどこで買える"),
            ("음식 / 김치찌개", "김치찌개 만드는 법"),
            ("อาหาร / ต้มยำกุ้ง", "วิธีทำต้มยำกุ้ง"),
            ("طعام / خبز", "أين أجد خبز"),
        ],
    )
    def test_reads_any_script(self, path: str, query: str) -> None:
        assert ask(view([path], query))["action"] == "match"

    @pytest.mark.parametrize(
        "recent",
        [
            ["Music / Jazz", "Music"],
            ["Music / Jazz / Bebop", "Music / Jazz", "Music", "Art / Prints", "Art"],
            ["Music / Jazz", "Music", "Music / Rock", "Art / Prints / Woodcuts", "Art / Prints"],
            ["Food / Dairy / Cheese", "Food / Dairy", "Food"],
        ],
    )
    def test_passes_over_recent_ones_that_do_not_fit(self, recent: list[str]) -> None:
        paths = [*recent, "Food / Rye bread", *(f"Food / Filling {number}" for number in range(20))]

        assert ask(view(paths, "how is rye bread kept fresh"))["node_id"] == len(recent)

    def test_does_not_take_for_recent_what_comes_without_its_parent(self) -> None:
        paths = ["Food / Filling", "Food / Rye bread", "Music / Jazz", "Music", "Food", "Art"]

        assert ask(view(paths, "how is rye kept fresh"))["node_id"] == 0

    def test_weighs_a_name_of_one_character_as_a_name(self) -> None:
        assert ask(view(["饮食 / 茶", "饮食 / 咖啡"], "用户喜欢喝什么茶"))["node_id"] == 0

    def test_takes_a_recent_one_that_fits_best(self) -> None:
        paths = ["Food / Rye bread", *(f"Food / Filling {number}" for number in range(20))]

        assert ask(view(paths, "how to bake rye bread"))["node_id"] == 0

    def test_leaves_a_later_one_where_it_is_though_it_shares_more_words(self) -> None:
        paths = ["Storage / Databases", "Storage / Speaking of graphs", "Music", "Storage"]

        assert ask(view(paths, "which graph databases speak SQL"))["node_id"] == 0

    def test_takes_a_first_one_that_says_nothing_if_those_beside_it_fit(self) -> None:
        paths = ["Files / rmtree", "Files / delete directory", "Net / delete", "Text", "Text / wrap", "Text / fill"]

        assert ask(view(paths, "delete a directory and everything in it"))["node_id"] == 0

    def test_passes_over_what_stands_above_everything_shown(self) -> None:
        paths = ["Resources", "Resources / Web", "Resources / Web / Scraping", "Resources / Music"]

        assert ask(view(paths, "resources about the web"))["node_id"] == 1

    def test_answers_missing_with_a_name_where_nothing_fits(self) -> None:
        reply = ask(view(["Storage / SQL databases", "Network"], "how do I bake bread?"))

        assert (reply["action"], reply["suggest_name"]) == ("missing", "bake bread")

    def test_is_ambiguous_between_equals_of_one_name(self) -> None:
        paths = ["北京市 / 朝阳区", "长春市 / 朝阳区", "西安市 / 雁塔区"]
        reply = ask(view(paths, "朝阳区在哪里"))

        assert (reply["action"], reply["candidate_ids"]) == ("ambiguous", [0, 1])

    def test_is_not_ambiguous_where_a_path_tells(self) -> None:
        paths = ["长春市 / 朝阳区", "北京市 / 朝阳区"]
        reply = ask(view(paths, "长春朝阳区在哪里"))

        assert (reply["action"], reply["node_id"]) == ("match", 0)


class TestGroups:
    def test_never_chooses_a_group(self) -> None:
        name = "… 9 more: teapot – wok"

        assert ask(view([name], name))["action"] == "missing"
        assert ask(view([name], name, "suggest_parent"))["action"] == "missing"

    def test_takes_a_keyword_that_bears_the_name_of_a_group_as_a_keyword(self) -> None:
        name = "… 9 more: teapot – wok"

        assert ask(view([name, "Kitchen / Teapot"], name))["node_id"] == 0


class TestSuggestParent:
    def test_takes_the_parent_that_the_new_name_names(self) -> None:
        paths = ["Food / Fruit", "Food / Fruit / apple", "Food / pie"]
        reply = ask(view(paths, "apple pie", "suggest_parent", description="a dish with apple"))

        assert (reply["action"], reply["node_id"]) == ("match", 2)

    def test_takes_a_parent_for_the_children_it_has(self) -> None:
        paths = ["Projects / Web", "Projects / Web / django-rest", "Projects / Audio"]
        reply = ask(view(paths, "django-ninja", "suggest_parent", description="REST with Django"))

        assert (reply["action"], reply["node_id"]) == ("match", 0)

    def test_weighs_the_words_of_the_description(self) -> None:
        paths = ["旅行", "饮食"]
        reply = ask(view(paths, "苏州园林", "suggest_parent", description="旅行的地方"))

        assert (reply["action"], reply["node_id"]) == ("match", 0)

    def test_leaves_a_stranger_at_the_root(self) -> None:
        reply = ask(view(["饮食 / 茶", "饮食"], "asyncio", "suggest_parent", description="event loop"))

        assert (reply["action"], reply["suggest_name"]) == ("missing", "asyncio")


class TestLinkInfo:
    def test_links_what_the_content_names(self) -> None:
        paths = ["编程", "编程 / Python", "饮食 / 茶", "编程 / Rust"]
        reply = ask(view(paths, "", "link_info", content="用户用 Python 写脚本，爱喝茶。"))

        assert (reply["action"], sorted(reply["node_ids"])) == ("match", [1, 2])

    def test_leaves_out_what_stands_above_a_chosen_one(self) -> None:
        paths = ["Python", "Python / Python packaging"]
        reply = ask(view(paths, "", "link_info", content="Python packaging has changed."))

        assert reply["node_ids"] == [1]

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

    def test_skips_candidates_that_are_none(self) -> None:
        question = view(["Tea"], "tea")
        question["candidates"][:0] = [None, 7, {"idx": True, "name": "tea", "path": "tea"}, {"idx": 1}]
        question["candidates"][-1]["idx"] = 4

        assert ask(question)["node_id"] == 4

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
        single = [] if reply["node_id"] is None else [reply["node_id"]]
        chosen = {*reply["node_ids"], *reply["candidate_ids"], *single}
        assert chosen <= set(range(len(names)))
        assert bool(chosen) == (reply["action"] != "missing")

    def test_gives_the_same_reply_to_the_same_question(self) -> None:
        question = view(["Tea", "Tea / Green tea", "Coffee"], "green tea")

        assert ask(question) == ask(question)


class TestInATree:
    def test_searches_places_and_abstains(self, tree: KeywordTree) -> None:
        food = tree.CreateKeyword("饮食 food", llm_auto_place=False)
        tree.CreateKeyword("编程 programming", llm_auto_place=False)
        bread = tree.CreateKeyword("rye bread", food.id)
        placed = tree.CreateKeyword("wheat bread", description="food made of wheat")

        assert placed.parent_id in (food.id, bread.id)
        assert tree.Search("how long does rye bread keep").node == tree.GetKeyword(bread.id)
        assert tree.Search("how long does wheat bread keep").node == tree.GetKeyword(placed.id)
        assert tree.Search("明天会下雨吗").status is SearchStatus.NOT_FOUND

    def test_is_not_misled_by_what_was_found_before(self, tree: KeywordTree) -> None:
        for theme, names in {
            "music": ["jazz trumpet", "church organ", "string quartet"],
            "garden": ["rose pruning", "compost heap", "apple tree"],
            "travel": ["night train", "mountain hut", "ferry ticket"],
        }.items():
            parent = tree.CreateKeyword(theme, llm_auto_place=False)
            tree.BatchCreateKeywords([{"name": name, "parent_id": parent.id} for name in names])
        queries = {
            "how do I prune my roses": "rose pruning",
            "who plays the trumpet in that jazz band": "jazz trumpet",
            "when does the last train at night leave": "night train",
            "what may go on a compost": "compost heap",
            "where is the ticket for the ferry": "ferry ticket",
            "is the church with the organ open": "church organ",
        }

        found = [tree.Search(query).node for query in (*queries, *queries)]

        assert [node and node.name for node in found] == [*queries.values(), *queries.values()]

    def test_links_an_info_to_what_it_names(self, tree: KeywordTree) -> None:
        tree.BatchCreateKeywords([{"name": name, "parent_id": "root"} for name in ("Python", "Rust", "苏州园林")])
        info = tree.CreateInfo("去苏州园林的火车票用 Python 脚本抢。", auto_link=True)

        assert {node.name for node, _ in tree.GetKeywordsOfInfo(info.id)} == {"Python", "苏州园林"}

    def test_finds_a_name_of_which_a_view_shows_only_the_group(self, tree: KeywordTree) -> None:
        names = [f"{first}{second}nimal" for first in "abcdefghijklmnopqrstuvwxyz" for second in "aeiou"]
        tree.BatchCreateKeywords([{"name": name, "parent_id": "root"} for name in names])
        result = tree.Search("tell me about the wonimal please")

        assert result.node is not None
        assert result.node.name == "wonimal"
