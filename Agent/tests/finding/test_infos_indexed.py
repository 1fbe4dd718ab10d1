"""A keyword is found by what is known about it; a search shows why: infos, excerpts, confidence, what is nearest."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, LLMClient, SearchStatus, StubLLMClient
from Agent.models.lexical_client import LexicalLLMClient
from Agent.tests.support import inside
from Agent.tests.support.models import Model, always

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path / "store"), LexicalLLMClient()) as opened:
        opened.BatchCreateKeywords(
            [{"id": id, "name": id, "parent_id": "root"} for id in ("Anna", "Tom", "Momo", "小雨")]
        )
        yield opened


def first(tree: KeywordTree, query: str) -> str:
    ranked = tree.RankCandidates(query, 1)
    return ranked[0][0].id if ranked else ""


class TestInfos:
    @pytest.mark.parametrize(
        ("id", "content", "query"),
        [
            ("Anna", "Anna is allergic to peanuts.", "who is allergic to peanuts?"),
            ("小雨", "小雨对花生过敏。", "谁对花生过敏？"),
            ("Momo", "A quarter of a pill every morning, hidden in tuna.", "which pills are hidden in tuna?"),
        ],
    )
    def test_a_keyword_is_found_by_what_is_known_about_it(
        self, tree: KeywordTree, id: str, content: str, query: str
    ) -> None:
        assert first(tree, query) != id
        tree.CreateInfo(content, keyword_ids=[id])

        assert first(tree, query) == id
        found = tree.Search(query)
        assert (found.node and found.node.id, found.excerpt) == (id, content)
        assert 0.4 <= found.confidence < 1.0

    @pytest.mark.parametrize(
        ("less", "more", "query"),
        [
            (["A cello, a viola, a harp."], ["A cello, a viola, a harp, a cello, a cello."], "cello"),
            (["红茶、咖啡、可可。"], ["红茶、咖啡、可可、红茶、红茶。"], "红茶"),
            (["learn python", "see sights"], ["learn python", "teach python"], "python"),
            (["学编程", "看风景"], ["学编程", "教编程"], "编程"),
            (["Harp."], ["In the old town hall on Mondays Tom teaches viola, harp, and singing."], "harp viola lesson"),
            (["竖琴。"], ["每逢周一晚上小雨在旧市政厅教竖琴、教中提琴，也教唱歌和看五线谱。"], "竖琴、中提琴课"),
        ],
    )
    def test_who_says_more_of_a_query_or_says_it_oftener_comes_first(
        self, tree: KeywordTree, less: list[str], more: list[str], query: str
    ) -> None:
        for keyword_id, contents in (("Anna", less), ("Tom", more)):
            tree.BatchCreateInfos([{"content": each, "keyword_ids": [keyword_id]} for each in contents])

        assert [node.id for node, _ in tree.RankCandidates(query)] == ["Tom", "Anna"]

    @pytest.mark.parametrize("is_described", [False, True])
    @pytest.mark.parametrize(
        ("content", "query"),
        [
            ("The boiler is serviced in October.", "the boiler makes strange noises, whom do I call?"),
            ("钢琴放在客厅。", "钢琴调音师下个月几号过来"),
        ],
    )
    def test_children_that_say_nothing_of_a_query_do_not_stand_before_it(
        self, tree: KeywordTree, content: str, query: str, is_described: bool
    ) -> None:
        if is_described:
            tree.UpdateKeyword("Anna", {"description": content}, 1)
        else:
            tree.CreateInfo(content, keyword_ids=["Anna"])
        assert first(tree, query) == "Anna"
        tree.BatchCreateKeywords(
            [{"name": f"{name} {n}", "parent_id": "Anna"} for name in ("费用", "Photos") for n in range(5)]
        )
        assert first(tree, query) == "Anna"

        below = tree.CreateKeyword("Papers", "Anna")
        tree.CreateInfo(query, keyword_ids=[below.id])
        assert first(tree, query) == below.id

    @pytest.mark.parametrize(
        ("content", "queries"),
        [
            (
                "She is eighty this year, gets up at six every morning and goes to the park to practise taichi, then "
                "she buys vegetables at the market, takes a nap in the afternoon, and her favourite series is Columbo.",
                ("Columbo", "who practises taichi?", "who buys vegetables?"),
            ),
            (
                "她今年八十岁，每天早上六点起床去公园打太极拳，然后去菜市场买菜，中午做饭给全家人吃，下午睡午觉，"
                "晚上看电视剧，最喜欢的电视剧是红楼梦。",
                ("红楼梦", "谁睡午觉", "谁去菜市场买菜"),
            ),
        ],
    )
    def test_a_clause_of_a_long_sentence_is_answered_from(
        self, tree: KeywordTree, content: str, queries: tuple[str, ...]
    ) -> None:
        tree.CreateInfo(content, keyword_ids=["Anna"])
        tree.BatchCreateInfos(
            [
                {"content": other, "keyword_ids": [id]}
                for id in ("Tom", "Momo", "小雨")
                for other in ("Allergic to peanuts.", "对花生过敏。", f"{id}: school starts in September.")
            ]
        )

        found = {query: tree.Search(query).node for query in queries}
        assert {query: node and node.id for query, node in found.items()} == dict.fromkeys(queries, "Anna")

    @pytest.mark.parametrize(
        ("query", "id"),
        [("서울", "Anna"), ("나비", "Anna"), ("음식", "김치"), ("김치가 뭐야", "김치"), ("오늘 날씨 어때", "")],
    )
    def test_korean_is_found_by_short_nouns_with_or_without_particles(
        self, tree: KeywordTree, query: str, id: str
    ) -> None:
        tree.CreateInfo("나는 서울에 산다. 내 고양이는 나비다.", keyword_ids=["Anna"])
        tree.BatchCreateKeywords([{"id": "김치", "name": "김치", "parent_id": "root"}])
        tree.CreateInfo("김치는 매운 음식이다", keyword_ids=["김치"])

        assert first(tree, query) == id

    @pytest.mark.parametrize(
        ("query", "id", "excerpt"),
        [
            ("茶", "Anna", "我喜欢喝茶。"),
            ("猫", "Tom", "家里有一只猫叫团团。"),
            ("有猫吗", "Tom", "家里有一只猫叫团团。"),
            ("有没有猫", "Tom", "家里有一只猫叫团团。"),
            ("车什么颜色", "Momo", "车是红色的。"),
            ("我的车呢", "Momo", "车是红色的。"),
            ("书在哪里", "", ""),
        ],
    )
    def test_a_thing_of_one_character_is_found(self, tree: KeywordTree, query: str, id: str, excerpt: str) -> None:
        for name, content in (("Anna", "我喜欢喝茶。"), ("Tom", "家里有一只猫叫团团。"), ("Momo", "车是红色的。")):
            tree.CreateInfo(content, keyword_ids=[name])
        fits = inside.fit(tree, query)

        assert (fits.ids[:1], [fits.evidence[each].excerpt for each in fits.ids[:1]]) == (
            [id] * bool(id),
            [excerpt] * bool(id),
        )

    @pytest.mark.parametrize("query", ["《红楼梦》是谁写的？", "「红楼梦」是谁写的。", "【红楼梦】、是谁写的〜"])
    def test_chinese_punctuation_is_no_letter(self, tree: KeywordTree, query: str) -> None:
        tree.BatchCreateKeywords([{"id": id, "name": id, "parent_id": "root"} for id in ("红楼梦", "书")])
        tree.CreateInfo("曹雪芹写的。", keyword_ids=["红楼梦"])
        tree.CreateInfo("《红楼梦》是小说。", keyword_ids=["书"])

        assert first(tree, query) == "红楼梦"
        assert inside.terms_of("喝茶。《、》") == inside.terms_of("喝茶")

    @pytest.mark.parametrize(
        ("query", "id"),
        [
            ("what is C++ used for?", "C++"),
            ("what is C used for?", "C"),
            ("who likes C#?", "C#"),
            ("用C++写什么", "C++"),
            (".NET or not", ".NET"),
            ("is F# fun", "F#"),
            ("Node.js", "Node.js"),
            ("is Zurich large", "Zürich"),
            ("how old is Mueller or Muller", "Müller"),
            ("cafe slavia prices", "café Slávia"),
            ("café de la gare", "cafe"),
            ("где елка", "ёлка"),
            ("Αθηνα или", "Αθήνα"),
            ("がっこう", "がっこう"),
            ("हिंदी भाषा", "हिंदी"),
        ],
    )
    def test_symbols_tell_names_apart_and_accents_need_not_be_written(
        self, tree: KeywordTree, query: str, id: str
    ) -> None:
        names = "C|C#|C++|.NET|F#|F|Node.js|Node|Zürich|Müller|café Slávia|cafe|ёлка|Αθήνα|がっこう|かっこう|हिंदी|हद"
        tree.BatchCreateKeywords([{"id": name, "name": name, "parent_id": "root"} for name in names.split("|")])
        tree.CreateInfo("Used for kernels, and for whatever shall be fast.", keyword_ids=["C"])

        assert first(tree, query) == id
        assert set(inside.terms_of("が हिंदी")).isdisjoint(inside.terms_of("か हद"))

    def test_an_info_on_several_keywords_is_indexed_for_each(self, tree: KeywordTree) -> None:
        tree.CreateInfo("They sing in a choir.", keyword_ids=["Anna", "Tom"])

        assert {node.id for node, _ in tree.RankCandidates("choir")} == {"Anna", "Tom"}

    @pytest.mark.parametrize(
        "change",
        [
            lambda tree, info: tree.UpdateInfo(info, {"content": "It rains."}),
            lambda tree, info: tree.DeleteInfo(info),
            lambda tree, info: tree.UnlinkInfo(info, "Anna"),
            lambda tree, info: tree.DeleteKeyword("Anna"),
        ],
        ids=["update", "delete", "unlink", "delete keyword"],
    )
    def test_what_is_no_longer_known_is_not_found_until_undone(
        self, tree: KeywordTree, change: Callable[[KeywordTree, str], object]
    ) -> None:
        info = tree.CreateInfo("Anna is allergic to peanuts.", keyword_ids=["Anna"])
        assert first(tree, "peanuts") == "Anna"
        change(tree, info.id)
        assert first(tree, "peanuts") == ""
        tree.Undo(tree.History(limit=1)[0].operation_id)

        assert first(tree, "peanuts") == "Anna"

    def test_all_are_indexed_and_all_of_their_text(self, tree: KeywordTree) -> None:
        notes = tree.CreateKeyword("notes", "root").id
        for word in ("zebra", "quagga", "okapi"):
            tree.CreateInfo(f"A {word}. {'x ' * 20_000} giraffe of the {word}", keyword_ids=[notes])
        tree.BatchCreateInfos([{"content": f"note {number}", "keyword_ids": [notes]} for number in range(100)])

        for query in ("zebra", "quagga", "okapi", "giraffe", "note 99"):
            assert first(tree, query) == notes

    def test_long_ones_are_indexed_though_they_stay_on_the_disk(self, tree: KeywordTree) -> None:
        info = tree.CreateInfo("A zebra stands there. " + "word " * 100_000, keyword_ids=["Anna"])
        assert first(tree, "zebra") == "Anna"
        with KeywordTree(tree.data_dir) as again:
            assert first(again, "zebra") == "Anna"
            again.CreateInfo("and an okapi", keyword_ids=["Anna"])
            assert (first(again, "zebra"), first(again, "okapi")) == ("Anna", "Anna")
            again.DeleteInfo(info.id)
            assert (first(again, "zebra"), first(again, "okapi")) == ("", "Anna")

    @pytest.mark.parametrize(
        "content",
        ["word " * 100_000, "🐍" * 100_000, "\x00\x1b[31m zebra \u202e\u200f", "\u0301" * 100_000, "½" * 5_000],
        ids=["one word", "no letters", "control characters", "marks", "symbols"],
    )
    def test_odd_infos_are_tolerated(self, tree: KeywordTree, content: str) -> None:
        tree.CreateInfo(content, keyword_ids=["Anna"])
        for query in ("word", "zebra", "🐍"):
            found = tree.Search(query)
            assert len(found.excerpt) <= 160
            assert found.excerpt.isprintable()

    def test_very_many_on_one_keyword_and_one_on_very_many(self, tree: KeywordTree) -> None:
        tree.BatchCreateInfos([{"content": f"note {number} of Anna", "keyword_ids": ["Anna"]} for number in range(500)])
        tree.BatchCreateKeywords([{"id": f"k{number}", "name": f"keyword {number}"} for number in range(300)])
        tree.CreateInfo("a zebra", keyword_ids=[f"k{number}" for number in range(300)])

        assert first(tree, "note 499") == "Anna"
        assert len(tree.RankCandidates("zebra", 50)) == 50


class TestResults:
    def test_infos_that_fit_come_first_and_then_the_others_in_order(self, tree: KeywordTree) -> None:
        contents = ["She sings.", "She plays chess on Mondays.", "She is allergic to peanuts.", "She likes tea."]
        tree.BatchCreateInfos([{"content": content, "keyword_ids": ["Anna"]} for content in contents])
        found = tree.Search("is she allergic to peanuts?")

        assert [info.content for info in found.infos] == [contents[2], contents[0], contents[1], contents[3]]
        assert [info.content for info in tree.Search("Anna").infos] == contents

    def test_one_that_fits_is_found_after_the_first_page(self, tree: KeywordTree) -> None:
        contents = [f"note {number}" for number in range(70)] + ["She is allergic to peanuts."]
        tree.BatchCreateInfos([{"content": content, "keyword_ids": ["Anna"]} for content in contents])
        found = tree.Search("allergic to peanuts?")

        assert (found.infos[0].content, len(found.infos), found.info_count) == (contents[-1], 50, 71)

    def test_the_excerpt_is_the_sentence_that_fits_cut_to_160_characters(self, tree: KeywordTree) -> None:
        tree.CreateInfo("It rains. 她怕狗。" + "and so on " * 20 + "a zebra", keyword_ids=["Anna"])
        long = tree.Search("what about the zebra and so on").excerpt

        assert len(long) <= 160
        assert "zebra" in long
        assert long.startswith("…")

    @pytest.mark.parametrize(
        ("content", "query", "excerpt"),
        [
            ("His career began in 1990. The car is red.", "Anna car", "The car is red."),
            ("Annabel is his boss. Ann is his wife.", "who is Ann to Anna", "Ann is his wife."),
            ("Room 310 is hers. Room 3 is the kitchen.", "Anna room 3", "Room 3 is the kitchen."),
            ("Google made it. Go has goroutines.", "Anna: does Go have goroutines", "Go has goroutines."),
            ("Call the lawyer because of the bank.", "what is Anna b", ""),
            ("It rained. Two boxes are there.", "Anna box", "Two boxes are there."),
            ("It rained. We deployed it.", "Anna deploy", "We deployed it."),
            ("下雨了。她用Python写脚本。", "Anna python", "她用Python写脚本。"),
            ("It rains.\nShe fears dogs. 她对花生过敏。", "who fears dogs", "She fears dogs."),
            ("It rains.\nShe fears dogs. 她对花生过敏。她怕狗。", "花生过敏", "她对花生过敏。"),
            ("# Anna\nShe sings.\n\n- birthday 4 June", "when is Anna's birthday?", "- birthday 4 June"),
            ("Open: who feeds the dogs? Bob does.", "Anna, who feeds the dogs?", "Open: who feeds the dogs? Bob does."),
        ],
    )
    def test_the_excerpt_goes_by_whole_words(self, tree: KeywordTree, content: str, query: str, excerpt: str) -> None:
        tree.CreateInfo(content, keyword_ids=["Anna"])

        assert tree.Search(query).excerpt == excerpt

    def test_of_equals_the_one_that_was_created_first_comes_first(self, tree: KeywordTree) -> None:
        for id in ("nine", "five", "seven", "one", "six"):
            tree.BatchCreateKeywords([{"id": id, "name": "viola"}])
            tree.CreateInfo("alpha beta", keyword_ids=[id])

        assert [node.id for node, _ in tree.RankCandidates("alpha beta?")] == ["nine", "five", "seven", "one", "six"]

    def test_the_excerpt_holds_nothing_that_is_not_seen_but_what_joins_characters(self, tree: KeywordTree) -> None:
        hidden = "\u00ad\ufff9\U000e0041\U000e0042\u180e\u202e\u200b\ue001"
        tree.CreateInfo(f"alpha {hidden} beta", keyword_ids=["Anna"])
        tree.CreateInfo("gamma می\u200cخواهم 👨\u200d👩\u200d👧", keyword_ids=["Tom"])

        assert tree.Search("alpha beta?").excerpt == "alpha beta"
        assert tree.Search("gamma?").excerpt == "gamma می\u200cخواهم 👨\u200d👩\u200d👧"

    @pytest.mark.parametrize("unit", ["नमस्ते", "e\u0301", "字，", "ก็"])
    def test_the_excerpt_is_not_cut_before_a_mark(self, tree: KeywordTree, unit: str) -> None:
        for offset in range(3):
            tree.CreateInfo("x" * offset + unit * (380 // len(unit)) + f" alpha{offset}", keyword_ids=["Anna"])
            excerpt = tree.Search(f"alpha{offset}?").excerpt

            assert excerpt.startswith("…")
            assert unicodedata.category(excerpt[1])[0] in "LZ"
            assert len(excerpt) <= 160

    def test_a_name_is_certain_and_needs_no_excerpt(self, tree: KeywordTree) -> None:
        tree.CreateInfo("Anna sings.", keyword_ids=["Anna"])
        found = tree.Search("anna")

        assert (found.confidence, found.excerpt, found.nearest) == (1.0, "", [])

    @pytest.mark.parametrize("client", [None, StubLLMClient([{"action": "ambiguous", "candidate_ids": [0, 1]}])])
    def test_what_is_not_matched_tells_the_nearest(self, tmp_path: Path, client: LLMClient | None) -> None:
        with KeywordTree(str(tmp_path), client) as tree:
            tree.BatchCreateKeywords([{"name": f"oat {number}", "parent_id": "root"} for number in range(9)])
            tree.CreateKeyword("oat milk", "root")
            found = tree.Search("what is oat milk?")

            assert found.status is (SearchStatus.AMBIGUOUS if client else SearchStatus.NOT_FOUND)
            assert next(node.name for node, _ in found.nearest) == "oat milk"
            assert found.nearest == tree.RankCandidates("what is oat milk?", 5)
            assert tree.Search("what is oat milk?", llm_expand_query=False).nearest == []

    def test_a_match_far_down_has_its_own_confidence(self, tmp_path: Path) -> None:
        stub = StubLLMClient([{"action": "match", "node_id": "k30"}])
        with KeywordTree(str(tmp_path), stub) as tree:
            tree.BatchCreateKeywords([{"id": f"k{n}", "name": f"oat {n:02}", "parent_id": "root"} for n in range(40)])
            found = tree.Search("some oat")

            assert found.node is not None
            assert found.node.id == "k30"
            assert found.confidence == {node.id: score for node, score in tree.RankCandidates("some oat", 40)}["k30"]


class TestCandidateFields:
    def test_those_that_are_asked_for_are_reported(self, tmp_path: Path) -> None:
        client = Model(always({"action": "missing"}))
        client.candidate_fields = ("excerpt", "score", "description")
        with KeywordTree(str(tmp_path), client) as tree:
            anna = tree.CreateKeyword("Anna", "root")
            tree.CreateKeyword("Tom", "root", description="a cook")
            tree.CreateInfo("She likes tea. She sings in a choir.", keyword_ids=[anna.id])
            tree.Search("who sings in the choir?")
            score = tree.RankCandidates("who sings in the choir?")[0][1]

        reported = {candidate["name"]: candidate for candidate in client.views[0]["candidates"]}
        shown = {"idx": 0, "name": "Anna", "path": "Anna", "excerpt": "She sings in a choir.", "score": round(score, 3)}
        assert reported["Anna"] == shown
        assert reported["Tom"] == {"idx": 1, "name": "Tom", "path": "Tom", "description": "a cook", "score": 0.0}

    @pytest.mark.parametrize("fields", [("id",), "score", 3, ("score", "infos")])
    def test_unknown_ones_are_refused(self, tmp_path: Path, fields: Any) -> None:
        client = Model(always({"action": "missing"}))
        client.candidate_fields = fields

        with pytest.raises(InvalidInputError, match="candidate_fields must be some of"):
            KeywordTree(str(tmp_path), client)


class TestRecent:
    @pytest.mark.parametrize("depth", [1, 3, 12])
    def test_a_cache_full_of_others_changes_no_answer_of_the_lexical_client(self, tmp_path: Path, depth: int) -> None:
        """With deep trees paths are elided, each in its own way."""
        queries = [f"where is thing {number} of the zebra" for number in range(20)]
        answers = []
        for used in (False, True):
            with KeywordTree(str(tmp_path / str(used)), LexicalLLMClient()) as tree:
                parent = "root"
                for level in range(depth):
                    parent = tree.CreateKeyword(f"a very long name of a level {level}", parent).id
                specs = [{"id": f"t{n}", "name": f"thing {n} zebra", "parent_id": parent} for n in range(20)]
                specs += [{"id": f"o{n}", "name": f"other {n} okapi", "parent_id": parent} for n in range(20)]
                tree.BatchCreateKeywords(specs)
                for number in range(20 if used else 0):
                    tree.Search(f"other {number} okapi")
                found = []
                for query in queries:
                    node = tree.Search(query).node
                    found.append(node and node.id)
                    for number in range(6 if used else 0):
                        tree.Search(f"other {number} okapi")
                answers.append(found)

        assert answers[0] == answers[1] == [f"t{number}" for number in range(20)]
