"""Tests of `extraction`: what rules find and leave, and what of a model's reply is believed."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Agent.keyword_tree import InvalidInputError, StubLLMClient
from Agent.memory.extraction import (
    ENTITY_TYPES,
    Extraction,
    ModelExtractor,
    ReplyFormError,
    RuleExtractor,
    check_reply,
    split_sentences,
)


def names(text: str, **known: str) -> list[str]:
    return [entity.name for entity in RuleExtractor().extract(text, find_in(known)).entities]


def relations(text: str, **known: str) -> list[str]:
    return [str(relation) for relation in RuleExtractor().extract(text, find_in(known)).relations]


def find_in(known: dict[str, str]) -> Callable[[str], str | None]:
    return lambda name: known.get(name.casefold())


class TestSentences:
    def test_end_where_a_reader_ends_them(self) -> None:
        text = "Mr. Lee met J. Doe. 他来了。真的？\nYes!  No"

        assert [text[start:end] for start, end in split_sentences(text)] == [
            "Mr. Lee met J. Doe.",
            "他来了。",
            "真的？",
            "Yes!",
            "No",
        ]

    @given(st.text())
    def test_of_any_text_leave_out_nothing_but_blanks(self, text: str) -> None:
        spans = list(split_sentences(text))

        assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
        assert all(one[1] <= other[0] for one, other in pairwise(spans))


class TestEnglish:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("Ada works on Apollo.", ["Ada works_on Apollo"]),
            ("Since 2019 Bo Chen has been working on the Apollo parser.", ["Bo Chen works_on Apollo"]),
            ("Apollo was written by Ada and Bo.", ["Ada created Apollo", "Bo created Apollo"]),
            ("Ada reports to Bo and lives in Rome.", ["Ada reports_to Bo", "Ada lives_in Rome"]),
            ("Bo, who lives in Oslo, knows Ada.", ["Bo lives_in Oslo", "Bo knows Ada"]),
            ("Ada's brother Bo lives in Oslo.", ["Bo sibling_of Ada", "Bo lives_in Oslo"]),
            ("Bo is Ada's brother.", ["Bo sibling_of Ada"]),
            ("Ada and Bo got married.", ["Ada married_to Bo"]),
            ("Bo has lived in Oslo since 2019.", ["Bo lives_in Oslo"]),
            ("Bo was hired by Helios.", ["Bo works_at Helios"]),
            ("Remember that Bo lives in Oslo.", ["Bo lives_in Oslo"]),
            ("Bo met Ada, who lives in Oslo.", ["Bo knows Ada", "Ada lives_in Oslo"]),
            ("Unlike Ada, Bo lives in Oslo.", ["Bo lives_in Oslo"]),
            ("New York is in the USA.", ["New York located_in USA"]),
            ("On Monday Tom met Sue.", ["Tom knows Sue"]),
            ("Ada can't stand Bo.", ["Ada dislikes Bo"]),
            ("Ada, Bo and Tom live in Oslo.", ["Ada lives_in Oslo", "Bo lives_in Oslo", "Tom lives_in Oslo"]),
            ("Ada lives in Graz, Austria.", ["Ada lives_in Graz"]),
            ("Ada leads Apollo, and Bo reports to Ada.", ["Ada manages Apollo", "Bo reports_to Ada"]),
            ("Ada leads Apollo and Bo reports to Ada.", ["Ada manages Apollo"]),
            ("Bo wrote Ada a letter.", []),
            ("The mayor of Rome lives in Paris.", []),
            ("Bo's team at Helios uses Rust.", []),
            ("Ada: I live in Rome.", ["Ada lives_in Rome"]),
            ("Ada likes 龙井.", ["Ada likes 龙井"]),
        ],
    )
    def test_reads_subject_verb_object(self, text: str, expected: list[str]) -> None:
        assert relations(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "Does Ada work on Apollo?",
            "Ada doesn't work on Apollo.",
            "Ada never lived in Rome.",
            "If Ada moves to Rome, Bo leaves.",
            "Bo says Ada lives in Rome.",
            "Ada would like to live in Rome.",
            "Ada might work on Apollo.",
            "According to Bo, Ada lives in Rome.",
            "Ada works on Apollo no longer.",
            "Ada lives in Rome if Bo does.",
            "Ada lives in Rome, or so I heard.",
            "Ada works at Helios, Bo thinks.",
            "It is false that Ada lives in Rome.",
            "Bo pretends Ada lives in Rome.",
            "Neither Ada nor Bo lives in Rome.",
            "Ada used to live in Rome.",
            "Ada lived in Rome until 2019.",
            "Ada was the manager of Bo.",
            "Apollo was led by Ada.",
            "Bo's former boss Ada left.",
            "Ada joins Helios next week.",
            "Ada will have joined Helios.",
            "Ada lives in Rome or Paris.",
            "Suppose Ada lives in Rome.",
            "In his novel Ada marries Bo.",
        ],
    )
    def test_takes_nothing_for_stated_that_is_not(self, text: str) -> None:
        assert relations(text) == []
        assert "Ada" in names(text)

    @pytest.mark.parametrize(
        "text",
        [
            "Please water the plants.",
            "Yesterday it rained all day.",
            "Water boils at 100 degrees.",
            "We meet on Monday in May.",
            "Nobody knows why. OK?",
            "the api gateway depends on the auth service",
            "",
            " \n ",
        ],
    )
    def test_finds_nobody_where_nobody_is_named(self, text: str) -> None:
        assert names(text) == []

    def test_recognises_what_is_known_and_writes_it_the_same_way(self) -> None:
        assert names("we drink green tea with ada", **{"green tea": "green tea", "ada": "Ada"}) == ["green tea"]
        assert names("We drink Green Tea with ADA.", **{"green tea": "green tea", "ada": "Ada"}) == ["green tea", "Ada"]
        assert relations("Ada likes green tea.", **{"green tea": "green tea"}) == ["Ada likes green tea"]

    def test_tells_types_and_tags(self) -> None:
        found = {e.name: e for e in RuleExtractor().extract("Ada is a nurse. Ada lives in Rome. #family").entities}

        assert (found["Ada"].entity_type, found["Rome"].entity_type) == ("person", "place")
        assert "nurse" in found["Ada"].tags
        assert all(tag == tag.lower() and " " not in tag for entity in found.values() for tag in entity.tags)

    def test_names_the_sentence_that_says_so(self) -> None:
        found = RuleExtractor().extract("It rains. Ada lives in Rome. Bo sleeps.")

        assert [found.sentence(relation) for relation in found.relations] == ["Ada lives in Rome."]


class TestChinese:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("林晓住在杭州。", ["林晓 lives_in 杭州"]),
            ("林晓在杭州工作，住在苏州。", ["林晓 works_at 杭州", "林晓 lives_in 苏州"]),
            ("Ada 喜欢龙井。", ["Ada likes 龙井"]),
            ("林晓和王强是朋友。", ["林晓 friend_of 王强"]),
            ("林晓的妻子王芳来自云南。", ["王芳 married_to 林晓", "王芳 comes_from 云南"]),
            ("《长河》是林晓写的。", ["林晓 created 长河"]),
            ("王强：我住在厦门。", ["王强 lives_in 厦门"]),
            ("凤凰项目使用Redis和Kafka。", ["凤凰 uses Redis", "凤凰 uses Kafka"]),
            ("去年林晓搬到苏州。", ["林晓 lives_in 苏州"]),
            ("曾琳住在苏州。", ["曾琳 lives_in 苏州"]),
            ("林晓昨天加入了百度。", ["林晓 works_at 百度"]),
            ("林晓平时住在苏州。", ["林晓 lives_in 苏州"]),
            ("林晓周一加入百度。", []),
            ("百度考虑使用Kafka。", []),
            ("曾琳在青石数据工作。", ["曾琳 works_at 青石数据"]),
            ("李梦在图书中心上班。", ["李梦 works_at 图书中心"]),
            ("和林晓不同，王强住在罗马。", ["王强 lives_in 罗马"]),
        ],
    )
    def test_reads_subject_verb_object(self, text: str, expected: list[str]) -> None:
        assert relations(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "林晓住在杭州吗？",
            "林晓不住在杭州。",
            "如果林晓住在杭州就好了。",
            "听说林晓住在杭州。",
            "林晓想住在杭州。",
            "林晓住在杭州，据说。",
            "林晓住在杭州，如果王强也在的话。",
            "林晓曾住在杭州。",
            "林晓曾经在百度工作。",
            "林晓当时住在杭州。",
            "林晓拒绝加入百度。",
            "林晓即将加入百度。",
            "林晓明年搬到杭州。",
            "林晓小时候住在杭州。",
            "林晓去年住在杭州。",
            "林晓管理过灯塔项目。",
            "没人知道林晓住在杭州。",
            "先放盐，然后用生抽和淀粉调匀。",
            "注意研究作者的语言。",
            "小说里林晓嫁给了王强。",
        ],
    )
    def test_takes_nothing_for_stated_that_is_not(self, text: str) -> None:
        assert relations(text) == []

    @pytest.mark.parametrize("text", ["小林拒绝加入腾讯。", "小林即将加入腾讯。", "小林明年搬到上海。"])
    def test_takes_no_word_for_a_part_of_a_name(self, text: str) -> None:
        assert not {"小林拒绝", "小林即将", "小林明年"} & set(names(text))

    @pytest.mark.parametrize("text", ["今天下午三点开会。", "请把窗户关上。", "水要八十度才好。", "周末去爬山怎么样？"])
    def test_finds_nobody_where_nobody_is_named(self, text: str) -> None:
        assert names(text) == []

    def test_recognises_what_is_known(self) -> None:
        assert names("我们喝绿茶。", 绿茶="绿茶") == ["绿茶"]
        assert names("我们喝茶。", 茶="茶") == []  # a single character is a part of too many words

    def test_finds_what_stands_in_quotation_marks(self) -> None:
        assert names("我读了《活着》和「边城」。") == ["活着", "边城"]


class TestAnyText:
    @settings(max_examples=200, deadline=None)
    @given(st.text(max_size=200))
    def test_finds_only_what_stands_there(self, text: str) -> None:
        check_said(RuleExtractor().extract(text))

    def test_looks_at_the_beginning_of_a_long_one(self) -> None:
        found = RuleExtractor().extract("Ada lives in Rome. " + "x" * 100_000 + " Bo lives in Oslo.")

        assert [str(relation) for relation in found.relations] == ["Ada lives_in Rome"]

    def test_does_not_take_a_strangers_characters_for_names(self) -> None:
        assert relations("\ue000 lives in \ue001. Ada lives in \ue000.") == []

    def test_takes_no_time_for_what_looks_like_a_name_without_end(self) -> None:
        RuleExtractor().extract("A b " * 2_000)
        RuleExtractor().extract("张" * 8_000)

    def test_refuses_what_is_no_text(self) -> None:
        with pytest.raises(InvalidInputError, match="NoneType"):
            RuleExtractor().extract(None)  # type: ignore[arg-type]


def check_said(found: Extraction) -> None:
    """Check that a text says what was found in it."""
    listed = {entity.name for entity in found.entities}
    for entity in found.entities:
        assert entity.name
        assert entity.entity_type in ENTITY_TYPES
        assert found.text[entity.start : entity.end].strip()
    for relation in found.relations:
        assert {relation.source, relation.target} <= listed
        assert relation.source != relation.target
        assert 0.0 <= relation.weight <= 1.0
        assert found.sentence(relation)


TEXT = "Ada works on Apollo. 小林住在杭州。She moved to Rome because Bo lives there."


def entity(name: Any, **changes: Any) -> dict[str, Any]:
    return {"name": name, "type": "person", "description": "", "tags": [], **changes}


def relation(source: Any, kind: Any, target: Any, **changes: Any) -> dict[str, Any]:
    return {"source": source, "type": kind, "target": target, "weight": 1.0, "quote": "", **changes}


ADA, APOLLO = entity("Ada"), entity("Apollo", type="project")
SAYS = relation("Ada", "works_on", "Apollo", quote="Ada works on Apollo.")


class TestReply:
    def test_is_believed_where_the_text_says_so(self) -> None:
        found = check_reply({"entities": [ADA, APOLLO], "relations": [SAYS]}, TEXT)

        assert [(each.name, each.entity_type) for each in found.entities] == [("Ada", "person"), ("Apollo", "project")]
        assert [str(each) for each in found.relations] == ["Ada works_on Apollo"]
        assert found.sentence(found.relations[0]) == "Ada works on Apollo."

    @pytest.mark.parametrize("name", ["ADA", "Ａｄａ", "ada's", " Ada "], ids=["case", "width", "inflection", "blanks"])
    def test_may_write_a_name_otherwise(self, name: str) -> None:
        assert len(check_reply({"entities": [entity(name)]}, TEXT).entities) == 1

    @pytest.mark.parametrize(
        "name", ["Bob", "Ad", "Adas Apollo", "Apollo Ada", "", " ", None, 5, ["Ada"], "x" * 200, "\ud800", "小杭"]
    )
    def test_is_not_believed_where_the_text_does_not_have_the_name(self, name: object) -> None:
        found = check_reply({"entities": [entity(name), ADA], "relations": [relation(name, "knows", "Ada")]}, TEXT)

        assert [each.name for each in found.entities] == ["Ada"]
        assert found.relations == ()

    @pytest.mark.parametrize("kind", ["villain", "", None, 5, ["person"], {}])
    def test_an_unknown_type_becomes_a_concept(self, kind: object) -> None:
        assert check_reply({"entities": [entity("Ada", type=kind)]}, TEXT).entities[0].entity_type == "concept"

    def test_tags_are_words_of_the_text_or_known(self) -> None:
        told = ["Rome", "two words", "millionaire", 5, None, "", "person", "engineer", "#rome"]
        found = check_reply(
            {"entities": [entity("Ada", tags=told)]},
            TEXT,
            find_tags=lambda tag: ["engineer"] if tag == "engineer" else [],
        )

        assert found.entities[0].tags == ("rome", "person", "engineer")
        assert check_reply({"entities": [entity("Ada", tags="rome")]}, TEXT).entities[0].tags == ()

    def test_a_description_is_a_part_of_the_text(self) -> None:
        said, made_up = entity("Ada", description="works on Apollo"), entity("Ada", description="a spy")

        assert check_reply({"entities": [said]}, TEXT).entities[0].description == "works on Apollo"
        assert check_reply({"entities": [made_up]}, TEXT).entities[0].description == ""

    @pytest.mark.parametrize(
        ("weight", "expected"),
        [
            (0.4, [0.4]),
            (7, [1.0]),
            (-1, [0.0]),
            (float("inf"), [1.0]),
            pytest.param(10**400, [1.0], id="beyond floats"),
            ("1", []),
            (float("nan"), []),
            (True, []),
            (None, []),
        ],
    )
    def test_weights_lie_between_0_and_1(self, weight: object, expected: list[float]) -> None:
        found = check_reply({"entities": [ADA, APOLLO], "relations": [{**SAYS, "weight": weight}]}, TEXT)

        assert [each.weight for each in found.relations] == expected

    @pytest.mark.parametrize(
        "said",
        [
            relation("Ada", "knows", "小林", quote="Ada works on Apollo."),  # the quote does not name both
            relation("Ada", "knows", "小林"),  # no sentence does
            relation("Ada", "works_on", "Ada"),
            relation("Ada", "", "Apollo"),
            relation("Ada", "drop table; --", "Apollo"),
            relation("Ada", "x" * 60, "Apollo"),
            relation("Ada", 5, "Apollo"),
            relation("Ada", "works_on", "Zeus"),
            relation(None, "works_on", "Apollo"),
            "Ada works on Apollo",
            None,
        ],
    )
    def test_a_relation_is_left_out_that_the_text_does_not_say(self, said: object) -> None:
        reply = {"entities": [ADA, APOLLO, entity("小林")], "relations": [said]}

        assert check_reply(reply, TEXT).relations == ()

    def test_a_quote_may_reach_over_two_sentences(self) -> None:
        said = relation("小林", "knows", "Bo", quote="小林住在杭州。She moved to Rome because Bo lives there.")
        found = check_reply({"entities": [entity("小林"), entity("Bo")], "relations": [said]}, TEXT)

        assert [str(each) for each in found.relations] == ["小林 related_to Bo"]

    @pytest.mark.parametrize(
        ("text", "kind", "expected"),
        [
            ("Ada works on Apollo.", "works_on", "Ada works_on Apollo"),
            ("Ada works on Apollo.", "works on", "Ada works_on Apollo"),
            ("Apollo is developed by Ada.", "works_on", "Ada works_on Apollo"),
            ("Ada works on Apollo.", "killed", "Ada works_on Apollo"),
            ("Ada sang to Apollo.", "hates", "Ada related_to Apollo"),
            ("Ada is allergic to Apollo.", "allergic_to", "Ada allergic_to Apollo"),
            ("Ada has killed Apollo.", "killed", "Ada killed Apollo"),
            ("Ada参与Apollo项目。", "works_on", "Ada works_on Apollo"),
            ("Ada参与Apollo项目。", "讨厌", "Ada works_on Apollo"),
            ("Ada对Apollo过敏。", "过敏", "Ada 过敏 Apollo"),
            ("Ada对Apollo过敏。", "hates", "Ada related_to Apollo"),
        ],
    )
    def test_a_relation_is_of_the_kind_that_the_text_has_a_word_for(self, text: str, kind: str, expected: str) -> None:
        found = check_reply({"entities": [ADA, APOLLO], "relations": [relation("Ada", kind, "Apollo")]}, text)

        assert [str(each) for each in found.relations] == [expected]

    @pytest.mark.parametrize("text", ["Ada works on Apollo.", "Ada参与Apollo项目。"])
    def test_a_relation_goes_the_way_that_the_text_says(self, text: str) -> None:
        found = check_reply({"entities": [ADA, APOLLO], "relations": [relation("Apollo", "works_on", "Ada")]}, text)

        assert [str(each) for each in found.relations] == ["Ada works_on Apollo"]

    @pytest.mark.parametrize(
        "text",
        [
            "Ada never works on Apollo.",
            "Does Ada work on Apollo?",
            "Ada works on Apollo if she is paid.",
            "Bo says that Ada works on Apollo.",
            "Ada没有参与Apollo项目。",
            "听说Ada参与Apollo项目。",
            "Ada参与Apollo项目吗？",
            "Ada拒绝参与Apollo项目。",
        ],
    )
    def test_a_relation_is_left_out_that_the_text_does_not_state(self, text: str) -> None:
        found = check_reply({"entities": [ADA, APOLLO], "relations": [relation("Ada", "works_on", "Apollo")]}, text)

        assert [each.name for each in found.entities] == ["Ada", "Apollo"]
        assert found.relations == ()

    def test_a_relation_twice_counts_once_with_the_greater_weight(self) -> None:
        reply = {"entities": [ADA, APOLLO], "relations": [{**SAYS, "weight": 0.2}, SAYS, {**SAYS, "weight": 0.4}]}

        assert [each.weight for each in check_reply(reply, TEXT).relations] == [1.0]

    def test_is_cut_where_it_has_no_end(self) -> None:
        found = check_reply({"entities": [ADA, APOLLO] * 5_000, "relations": [SAYS] * 10_000}, TEXT)

        assert (len(found.entities), len(found.relations)) == (2, 1)

    @pytest.mark.parametrize("reply", [None, [], "Ada", 5, {}, {"entities": None}, {"entities": {"name": "Ada"}}])
    def test_of_another_form_is_none(self, reply: object) -> None:
        with pytest.raises(ReplyFormError):
            check_reply(reply, TEXT)

    @settings(max_examples=200, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=9) | st.sampled_from(["Ada", "Apollo", "小林"]),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        ["entities", "relations", "name", "source", "target", "type", "tags", "weight", "quote"]
                    ),
                    inner,
                    max_size=6,
                )
            ),
            max_leaves=25,
        )
    )
    def test_of_any_kind_adds_nothing_that_the_text_does_not_say(self, reply: object) -> None:
        try:
            check_said(check_reply(reply, TEXT))
        except ReplyFormError:
            return


class TestModel:
    def test_is_asked_once_with_the_text_as_data(self) -> None:
        client = StubLLMClient([{"entities": [ADA, APOLLO], "relations": [SAYS]}])
        ModelExtractor(client).extract(TEXT, find_in({"apollo": "Apollo"}))

        ((messages, schema),) = client.calls
        question = json.loads(messages[-1]["content"])
        assert question["text"] == TEXT
        assert question["known"] == ["Apollo"]
        assert question["intent"] == "extract_graph"
        assert TEXT not in messages[0]["content"]
        assert json.dumps(schema, separators=(",", ":")) in messages[0]["content"]

    def test_writes_known_names_as_they_are_known(self) -> None:
        client = StubLLMClient([{"entities": [entity("APOLLO")], "relations": []}])

        assert ModelExtractor(client).extract(TEXT, find_in({"apollo": "Apollo"})).entities[0].name == "Apollo"
