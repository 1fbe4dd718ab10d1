"""Tests of `retriever`: both channels, three strategies, filters, reasons, and that it follows the log."""

import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent.finding.calibration import ANSWER_BAR
from Agent.finding.index import Index
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.memory.graph import GraphEntity, GraphRelation
from Agent.memory.keywords import SimpleKeywordExtractor
from Agent.memory.memory_rows import Filters
from Agent.memory.retriever import MemoryRetriever, RetrievalStrategy, RetrieverConfig
from Agent.memory.scoring import (
    DAY_S,
    DiceOverlap,
    Hybrid,
    ReferenceCount,
    ScoreWeights,
    TemporalWeight,
    TextOverlap,
    text_overlap,
)
from Agent.memory.tree_graph import KnowledgeStore, TreeGraph
from Agent.tests.support.clocks import Clock

HYBRID, KNOWLEDGE_ONLY, GRAPH_ONLY = RetrievalStrategy


@pytest.fixture
def tree(tmp_path: Path, clock: Clock) -> Iterator[KeywordTree]:
    with KeywordTree(str(tmp_path), clock=clock) as tree:
        yield tree


def contents(retriever: MemoryRetriever, query: str, limit: int = 5, filters: Filters | None = None) -> list[str]:
    return [found.info.content for found in retriever.retrieve(query, limit, filters)]


class TestKnowledgeChannel:
    def test_gives_the_passage_that_fits(self, tree: KeywordTree) -> None:
        tree.CreateInfo("\n\n".join([*(f"Chapter {n}: " + "word " * 150 for n in range(5)), "At last: 龙井。"]))

        found = MemoryRetriever(tree).retrieve("龙井")[0]
        assert found.passage == "At last: 龙井。"

    @pytest.mark.parametrize(
        ("name", "alias", "said"),
        [
            ("Tea", "茶", "Ada takes it without sugar."),
            ("茶", "tea", "小明只在早上喝。"),
            ("红酒", "vino tinto", "小明周五才喝。"),
        ],
    )
    def test_finds_by_an_alias_as_by_the_name(self, tree: KeywordTree, name: str, alias: str, said: str) -> None:
        keyword = tree.CreateKeyword(name, aliases=[alias])
        tree.CreateInfo(said, "notes", [keyword.id])
        tree.CreateInfo("The boiler is in the cellar. 锅炉在地下室。", "notes")
        retriever = MemoryRetriever(tree)

        assert contents(retriever, name) == contents(retriever, alias) == [said]

    def test_finds_by_the_name_of_the_keyword_what_the_text_does_not_repeat(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("饮食")
        longjing = tree.CreateKeyword("龙井", tea.id)
        tree.CreateInfo("用八十度的水泡三分钟", keyword_ids=[longjing.id])
        tree.CreateInfo("咖啡怎么泡: 用沸水")

        found = MemoryRetriever(tree).retrieve("龙井怎么泡")
        assert found[0].info.content == "用八十度的水泡三分钟"
        assert found[0].path == ["饮食", "龙井"]

    @pytest.mark.parametrize(
        ("names", "facts", "question"),
        [
            (("王丽", "乐乐", "过敏"), ("王丽对青霉素过敏。", "乐乐不能吃芒果。"), "乐乐对什么过敏？"),
            (
                ("Marta", "Olek", "allergy"),
                ("Marta has an allergy: penicillin.", "Olek eats no nuts."),
                "Olek's allergy?",
            ),
        ],
    )
    def test_a_fact_counts_by_the_names_of_all_keywords_it_is_linked_to(
        self, tree: KeywordTree, names: tuple[str, ...], facts: tuple[str, ...], question: str
    ) -> None:
        one, other, topic = (tree.CreateKeyword(name).id for name in names)
        for person, fact in zip((one, other), facts, strict=True):
            tree.CreateInfo(fact, keyword_ids=[person, topic])

        assert contents(MemoryRetriever(tree), question)[0] == facts[1]

    def test_is_not_drowned_by_a_full_keyword(self, tree: KeywordTree) -> None:
        people = tree.CreateKeyword("where people live")
        for number in range(60):
            tree.CreateInfo(f"Person{number} lives in Rome.", keyword_ids=[people.id])

        assert contents(MemoryRetriever(tree), "Where does Person55 live?", 1) == ["Person55 lives in Rome."]


class TestGraphChannel:
    @pytest.fixture
    def retriever(self, tree: KeywordTree) -> MemoryRetriever:
        tea, city = tree.CreateKeyword("龙井"), tree.CreateKeyword("杭州")
        TreeGraph(tree).add_relation(GraphRelation(tea.id, city.id, "comes_from"))
        tree.CreateInfo("on tea", keyword_ids=[tea.id])
        tree.CreateInfo("on the city", keyword_ids=[city.id])
        tree.CreateInfo("龙井, without keyword")
        return MemoryRetriever(tree)

    def test_alone_finds_what_is_related_the_nearest_first(self, retriever: MemoryRetriever) -> None:
        found = retriever.retrieve("龙井", config=RetrieverConfig(GRAPH_ONLY))

        assert [(memory.info.content, memory.score, memory.path) for memory in found] == [
            ("on tea", 1.0, ["龙井"]),
            ("on the city", 0.5, ["杭州"]),
        ]

    def test_is_left_out_where_knowledge_alone_is_asked(self, retriever: MemoryRetriever) -> None:
        found = retriever.retrieve("龙井", config=RetrieverConfig(KNOWLEDGE_ONLY, Hybrid()))

        assert [memory.info.content for memory in found] == ["龙井, without keyword"]

    def test_joins_the_other_one(self, retriever: MemoryRetriever) -> None:
        found = retriever.retrieve("龙井", config=RetrieverConfig(HYBRID, Hybrid(ScoreWeights(1, 1, 0, 0))))

        assert {memory.info.content for memory in found} == {"on tea", "on the city", "龙井, without keyword"}

    def test_a_keyword_that_is_deleted_in_between_leads_nowhere(
        self, tree: KeywordTree, retriever: MemoryRetriever, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        find = TreeGraph.find_by_keywords

        def delete_then(graph: TreeGraph, *asked: Any) -> list[GraphEntity]:
            found = find(graph, *asked)
            for entity in found:
                tree.DeleteKeyword(entity.id)
            return found

        tree.CreateInfo("The ferry waits.")
        monkeypatch.setattr(TreeGraph, "find_by_keywords", delete_then)
        assert contents(retriever, "龙井: does the ferry wait?")[0] == "The ferry waits."


class TestScoring:
    def test_by_time_puts_the_newest_first(self, tree: KeywordTree, clock: Clock) -> None:
        for day in (0, 60, 30):
            clock.now = (1000 + day) * DAY_S
            tree.CreateInfo(f"tea of day {day}")
        clock.now = 1060 * DAY_S

        found = MemoryRetriever(tree, clock=clock).retrieve("tea", config=RetrieverConfig(scoring=TemporalWeight()))
        assert [(memory.info.content, memory.score) for memory in found] == [
            ("tea of day 60", 1.0),
            ("tea of day 30", 0.5),
            ("tea of day 0", 0.25),
        ]

    @pytest.mark.usefixtures("own_words")
    def test_by_references_counts_what_links_to_it(self, tree: KeywordTree) -> None:
        one = tree.CreateInfo("tea first")
        two = tree.CreateInfo("tea second")
        pattern = tree.CreateInfo("other", metadata={"memory": {"kind": "pattern", "links": [two.id]}})
        retriever = MemoryRetriever(tree)
        config = RetrieverConfig(scoring=ReferenceCount())

        assert [memory.info.id for memory in retriever.retrieve("tea", config=config)] == [two.id]
        tree.DeleteInfo(pattern.id)
        assert retriever.retrieve("tea", config=config) == []
        assert [memory.info.id for memory in retriever.retrieve("first")] == [one.id]

    @pytest.mark.usefixtures("own_words")
    def test_is_about_1_for_what_says_all_that_is_asked(self, tree: KeywordTree) -> None:
        for name in ("green tea", "black coffee", "red wine", "white bread"):
            tree.CreateInfo(f"Ada likes {name}")

        found = MemoryRetriever(tree).retrieve("Ada likes green tea", 2)
        assert found[0].score > 0.75
        assert found[1].score < 0.8  # half of the words: of so few texts none shows that "Ada likes" says little

    def test_tells_apart_what_says_more_than_all(self, tree: KeywordTree) -> None:
        ids = [tree.CreateInfo(text).id for text in ("a cup of tea with milk", "tea", "tea tea tea")]

        found = MemoryRetriever(tree).retrieve("tea")
        assert [memory.info.id for memory in found] == [ids[2], ids[1], ids[0]]
        assert 1.0 > found[0].score > found[1].score > found[2].score > 0.1


class TestFilters:
    @pytest.fixture
    def retriever(self, tree: KeywordTree, clock: Clock) -> MemoryRetriever:
        for day, (kind, source) in enumerate([("fact", "chat"), ("skill", "chat"), ("fact", "book")]):
            clock.now = day * DAY_S
            tree.CreateInfo(f"tea {day}", source, metadata={"day": day, "memory": {"kind": kind}})
        tree.CreateInfo("tea of another user", metadata={"memory": "theirs"})
        return MemoryRetriever(tree)

    @pytest.mark.parametrize(
        ("filters", "found"),
        [
            (Filters(), {"tea 0", "tea 1", "tea 2", "tea of another user"}),
            (Filters(kinds=["skill"]), {"tea 1"}),
            (Filters(kinds=["fact"]), {"tea 0", "tea 2", "tea of another user"}),
            (Filters(sources=["chat"]), {"tea 0", "tea 1"}),
            (Filters(since=DAY_S, until=2 * DAY_S), {"tea 1"}),
            (Filters(metadata={"day": 2}), {"tea 2"}),
            (Filters(metadata={"night": None}), set()),
            (Filters(kinds=[]), set()),
        ],
    )
    def test_leave_what_they_say(self, retriever: MemoryRetriever, filters: Filters, found: set[str]) -> None:
        assert set(contents(retriever, "tea", 10, filters)) == found


class TestRetrieve:
    @pytest.mark.parametrize("limit", [0, -1, True, 1.5])
    def test_refuses_a_limit_that_is_none(self, tree: KeywordTree, limit: int) -> None:
        with pytest.raises(InvalidInputError, match="limit"):
            MemoryRetriever(tree).retrieve("tea", limit)


class TestDoubt:
    """One score says whether a memory answers, and orders."""

    FACTS = (
        "Anna is allergic to peanuts.",
        "Anna plays the cello.",
        "The car is parked on level 3.",
        "My passport number is 4417.",
        "小雨对花生过敏。",
        "小雨住在苏州。",
        "路由器的密码在抽屉里。",
    )

    @pytest.fixture
    def retriever(self, tree: KeywordTree) -> MemoryRetriever:
        for fact in self.FACTS:
            tree.CreateInfo(fact)
        return MemoryRetriever(tree)

    @pytest.mark.parametrize(
        ("question", "answer"),
        [
            ("what is Anna allergic to?", 0),
            ("where is the car parked?", 2),
            ("how much do you know about the cello?", 1),  # what only makes a question is nothing that is asked for
            ("小雨住在哪里？", 5),
            ("路由器的密码在哪儿？", 6),
        ],
    )
    def test_is_none_of_what_says_what_is_asked(self, retriever: MemoryRetriever, question: str, answer: int) -> None:
        found = retriever.retrieve(question, 1)[0]

        assert found.info.content == self.FACTS[answer]
        assert found.score > ANSWER_BAR

    @pytest.mark.parametrize(
        ("question", "shared", "most"),
        [
            ("what is my car insurance policy number?", "number", ANSWER_BAR),
            ("which blood type does Anna have?", "anna", 0.3),
            ("小雨的身份证什么时候到期？", "小雨", 0.3),
        ],
    )
    def test_is_of_what_shares_a_name_or_a_word_alone(
        self, retriever: MemoryRetriever, question: str, shared: str, most: float
    ) -> None:
        found = retriever.retrieve(question, 5)
        assert shared in found[0].info.content.casefold()
        assert found[0].score < most
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert not retriever.retrieve(question, 5, config=RetrieverConfig(min_score=ANSWER_BAR))

    def test_is_none_of_what_a_keyword_names(self, tree: KeywordTree) -> None:
        birch = tree.CreateKeyword("Birch Street")
        named = tree.CreateInfo("Level 3, bay 41.", "notes", [birch.id])
        for number in range(5):
            tree.CreateInfo(f"Nothing is on level {number}.")
        found = MemoryRetriever(tree).retrieve("which bay did we take at Birch Street yesterday?", 1)[0]

        assert found.info.id == named.id
        assert found.score > 0.3

    @pytest.mark.parametrize(
        ("question", "memory", "lacking"),
        [
            ("Where does my boss Anna live?", "Anna plays the cello.", ["boss", "live"]),
            ("Which cellos did Anna play?", "Anna plays the cello.", []),
            ("Is the CAR on a parking level of Main Street?", "The car is parked on level 3.", ["Main", "Street"]),
            ("小雨的老板住在哪里？", "小雨住在苏州。", ["老板住"]),
            ("小雨对什么过敏？", "小雨对花生过敏。", []),
            ("小雨的生日蛋糕呢？", "小雨住在苏州。", ["生日蛋糕"]),
        ],
    )
    def test_names_the_words_that_a_memory_lacks(
        self, retriever: MemoryRetriever, question: str, memory: str, lacking: list[str]
    ) -> None:
        found = next(one for one in retriever.retrieve(question, 7) if one.info.content == memory)

        assert found.lacking() == lacking
        assert found.explain().splitlines()[1:] == ([f"lacking: {', '.join(lacking)}"] if lacking else [])

    def test_what_is_lacking_of_a_page_costs_little(self, tree: KeywordTree) -> None:
        page = "".join(map(chr, range(0x4E00, 0x4E00 + 8_000)))
        tree.CreateInfo(page[:-1])
        found = MemoryRetriever(tree).retrieve(page)[0]
        started = time.process_time()

        assert found.lacking() == [page[-1]]
        assert time.process_time() - started < 1.0  # 7 s where each character looks through all

    def test_lacks_nothing_that_its_keyword_or_the_question_before_says(self, tree: KeywordTree) -> None:
        birch = tree.CreateKeyword("Birch Street", aliases=["白桦街"])
        tree.CreateInfo("Level 3, bay 41.", "notes", [birch.id])
        for line in ("Which instrument does your neighbour play?", "Cello!"):
            tree.CreateInfo(line, "talk")
        retriever = MemoryRetriever(tree)

        assert retriever.retrieve("which bay at Birch Street?", 1)[0].lacking() == []
        assert retriever.retrieve("白桦街 bay?", 1)[0].lacking() == []
        cello = next(one for one in retriever.retrieve("instrument, neighbour?") if one.info.content == "Cello!")
        assert cello.lacking() == []

    def test_finds_what_fits_a_little(self, tree: KeywordTree) -> None:
        for number in range(40):
            tree.CreateInfo(f"The ferry to island {number} has a cabin with a view of lighthouse {number}.")
        only = tree.CreateInfo("A ferry.")
        found = MemoryRetriever(tree).retrieve("Which 3 harbours, quays, piers, docks and jetties has the ferry?", 41)

        assert len(found) == 41
        assert 0 < min(one.score for one in found) < 0.01
        assert only.id in [one.info.id for one in found]


class TestMinScore:
    def test_what_scores_just_that_is_found(self, tree: KeywordTree) -> None:
        tree.CreateInfo("the kettle stands in the kitchen")
        retriever = MemoryRetriever(tree)
        (found,) = retriever.retrieve("kettle")

        assert retriever.retrieve("kettle", config=RetrieverConfig(min_score=found.score))
        above = RetrieverConfig(min_score=math.nextafter(found.score, 2.0))
        assert retriever.retrieve("kettle", config=above) == []

    def test_what_nothing_answers_reads_no_further(self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch) -> None:
        search, read = Index.search, list[int]()
        monkeypatch.setattr(Index, "search", lambda *one, **more: read.__iadd__(one[2:3]) and search(*one, **more))
        for number in range(300):
            tree.CreateInfo(f"Person {number} lives in Rome.")

        assert MemoryRetriever(tree, config=RetrieverConfig(min_score=0.3)).retrieve("Is Eve in Rome?", 3) == []
        assert max(read) <= 12


class TestDiceOverlap:
    def test_puts_a_title_before_a_summary_before_a_body(self, tree: KeywordTree) -> None:
        title = tree.CreateKeyword("kettle").id
        summary = tree.CreateKeyword("pot", description="like a kettle").id
        expected = [
            tree.CreateInfo("it is red", keyword_ids=[title]),
            tree.CreateInfo("it is blue", keyword_ids=[summary]),
            tree.CreateInfo("a kettle among many other things that stand there"),
        ]
        found = MemoryRetriever(tree).retrieve("kettle", config=RetrieverConfig(scoring=DiceOverlap()))

        ids = [memory.info.id for memory in found]
        assert ids[0] == expected[0].id
        assert expected[2].id in ids
        assert found[0].breakdown.overlap_score == text_overlap("kettle", "kettle", "", "it is red")

    def test_is_text_alone(self) -> None:
        assert DiceOverlap().weights == TextOverlap().weights


class TestNames:
    def test_are_those_of_the_document(self, tree: KeywordTree) -> None:
        tree.CreateInfo("the kettle stands in the kitchen")
        retriever = MemoryRetriever(
            knowledge_store=KnowledgeStore(tree),
            knowledge_graph=TreeGraph(tree),
            keyword_extractor=SimpleKeywordExtractor(),
        )

        assert retriever.retrieve("kettle")


class TestWhatWasTakenBack:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Iterator[KeywordTree]:
        times = itertools.count(DAY_S, DAY_S)
        with KeywordTree(str(tmp_path), clock=lambda: next(times)) as opened:
            yield opened

    @pytest.mark.parametrize(
        ("older", "question", "later"),
        [
            *(
                ("I live in Paris.", "Where do I live?", later)
                for later in ("My sister moved to Rome.", "Bob moved to Rome.", "Do I live in Rome?")
            ),
            ("I live in Paris.", "Where do I live?", 'She said "I moved to Rome".'),
            ("My favourite film is Alien.", "What is my favourite film?", "A new bike! Her favourite film was Up."),
            *(("我住在巴黎。", "我住在哪里？", later) for later in ("我妹妹安娜住在罗马。", "你爱人搬到罗马了。")),
            ("罗军华住在巴黎。", "罗军华住在哪里？", "孙刚华住在罗马。"),
            ("Bo lives in Paris.", "Hi Eve, where does Bo live?", "Eve moved to Rome."),
            ("王志强住在巴黎。", "你好，安娜，你知道王志强住在哪里吗？", "王志刚搬到罗马了。"),
            ("欧阳修文在甲公司工作。", "欧阳修文在哪里工作？", "欧阳修加入了乙公司。"),
            ("José Álvarez lives in Paris.", "Where does José Álvarez live?", "José García moved to Rome."),
            ("Maria Lopez lives in Paris.", "Where does Maria Lopez live?", "Maria Garcia moved to Rome."),
        ],
    )
    def test_nothing_else_takes_it_back(self, tree: KeywordTree, older: str, question: str, later: str) -> None:
        old = tree.CreateInfo(older).id
        tree.CreateInfo(later)
        found = [each for each in MemoryRetriever(tree).retrieve(question) if each.info.id == old]

        assert [each.later for each in found] == [""]

    def test_stays_where_a_filter_leaves_the_later_one_out(self, tree: KeywordTree) -> None:
        old = tree.CreateInfo("I live in Paris.", "a").id
        tree.CreateInfo("I moved to Rome.", "b")
        found = MemoryRetriever(tree).retrieve("Where do I live?", filters=Filters(sources=["a"]))

        assert [(each.info.id, each.later) for each in found] == [(old, "")]


def test_hybrid_walks_the_graph_as_far_as_depth_says(tmp_path: Path) -> None:
    from Agent.memory.store import MemoryStore

    with MemoryStore(tmp_path) as store:
        store.remember("Lighthouse is late.", keywords=["Lighthouse"])
        store.remember("Lighthouse, says Priya, is near Lisbon.", keywords=["Lisbon"])
        store.relate("Priya", "works_on", "Lighthouse")
        store.relate("Lighthouse", "located_in", "Lisbon")

        def nearness(depth: int) -> list[float]:
            config = RetrieverConfig(depth=depth)
            found = store.recall("What of Priya and the Lighthouse?", 9, config=config)
            return [each.breakdown.graph_score for each in found if each.info.content.endswith("Lisbon.")]

        assert nearness(0) == [0.0]
        assert nearness(1) == [0.5]


class TestWithoutRelations:
    """Where nothing has relations, the index of memories knows the names of keywords, and no graph is built."""

    def test_reads_each_record_once(self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch) -> None:
        ada = tree.CreateKeyword("Ada")
        for number in range(9):
            tree.CreateInfo(f"Ada likes tea number {number}.", "chat", [ada.id])
        retriever = MemoryRetriever(tree)
        retriever.retrieve("What does Ada like?")
        asked: list[tuple[str, str]] = []
        for name in ("GetInfo", "GetKeyword", "GetLinks", "GetKeywordsOfInfo", "GetInfosOfKeyword", "GetPath"):
            original = getattr(KeywordTree, name)

            def noted(
                self: KeywordTree, id: str, *more: Any, _name: str = name, _of: Any = original, **named: Any
            ) -> Any:
                asked.append((_name, id))
                return _of(self, id, *more, **named)

            monkeypatch.setattr(KeywordTree, name, noted)

        assert len(retriever.retrieve("What does Ada like?")) == 5
        assert len(asked) == len(set(asked)) <= 6
