"""Tests of how a text becomes terms, sentences and passages, and what a question asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.finding import texts


class TestTerms:
    @pytest.mark.parametrize(
        "alike",
        [
            ("teaches", "teaching", "teach"),
            ("cities", "city"),
            ("planned", "planning", "plan"),
            ("cares", "caring", "cared", "care"),
            ("boxes", "boxing", "box"),
            ("Café", "cafe", "ＣＡＦＥ"),
            ("Ёлка", "елка"),
        ],
    )
    def test_are_alike_whatever_ending_case_accent_or_width(self, alike: tuple[str, ...]) -> None:
        assert len({tuple(texts.terms(text)) for text in alike}) == 1

    @pytest.mark.parametrize(
        "apart",
        [
            ("C", "C++", "C#"),
            (".NET", "net"),
            ("java", "javascript"),
            ("glass", "gla"),
            ("cared", "cars"),
            ("wine", "winning"),
        ],
    )
    def test_keep_other_names_apart(self, apart: tuple[str, ...]) -> None:
        assert len({tuple(texts.terms(text)) for text in apart}) == len(apart)

    def test_of_a_script_without_blanks_are_each_character_and_each_pair(self) -> None:
        assert texts.terms("龙井茶") == ["龙", "井", "茶", "龙井", "井茶"]

    def test_of_a_joined_name_are_its_parts_too(self) -> None:
        assert {"keyword", "tre"} <= set(texts.terms("KeywordTree"))

    @given(st.text())
    def test_of_any_text_in_ascii_are_those_of_the_same_text_in_another_width(self, text: str) -> None:
        ascii_only = text.encode("ascii", "ignore").decode()

        # With one letter that is none of ASCII the general way is taken.
        assert texts.terms(f"{ascii_only} ж")[:-1] == texts.terms(ascii_only)


class TestMisspellings:
    def test_of_a_number_or_a_character_has_no_trigrams(self) -> None:
        assert texts.trigrams(["tea", "2024", "茶"]) == ["~^te", "~tea", "~ea$"]

    def test_are_corrected_by_one_letter_within(self) -> None:
        assert "peanut" in texts.corrections("penaut")
        assert "anna" not in texts.corrections("hanna")
        assert "maria" not in texts.corrections("marta")
        assert texts.corrections("teas") == texts.corrections("tea1s") == []


class TestQuestion:
    @pytest.mark.parametrize(
        ("query", "kind"),
        [("When is tea?", "#time"), ("How much?", "#number"), ("什么时候开学？", "#time"), ("茶多少钱？", "#number")],
    )
    def test_names_the_kind_of_its_answer(self, query: str, kind: str) -> None:
        assert kind in texts.question(query)
        assert kind in texts.KINDS

    @pytest.mark.parametrize(
        ("text", "kinds"),
        [("10 May", "#number #time"), ("tea", ""), ("周三", "#time"), ("v1998", "#number"), ("1998", "#number #time")],
    )
    def test_a_text_has_the_kinds_that_its_words_say(self, text: str, kinds: str) -> None:
        assert " ".join(texts.kinds(text)) == kinds


class TestPieces:
    def test_a_sentence_does_not_end_after_a_title(self) -> None:
        said = ["Dr. Lee met Mr. Wu, e.g. at noon.", "They left."]
        assert texts.sentences(" ".join(said)) == said
        assert texts.sentences("他来了。她走了！") == ["他来了。", "她走了！"]
        assert texts.sentences("The even\n  numbers.\nIt snows.") == ["The even\n  numbers.", "It snows."]

    @given(st.text(alphabet="ab .。\n", max_size=300), st.integers(5, 50))
    def test_passages_are_the_text_in_pieces(self, text: str, limit: int) -> None:
        pieces = list(texts.passages(text, limit))

        assert all(0 < len(piece) <= limit for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(text.split())

    def test_a_passage_ends_with_a_paragraph_where_one_ends_in_time(self) -> None:
        assert list(texts.passages("One thing is said.\n\nAnother one. It goes on.", 40)) == [
            "One thing is said.\n\n",
            "Another one. It goes on.",
        ]


def test_reads_a_run_of_marks_in_time_that_grows_with_its_length() -> None:
    assert texts.fold("e\u0301" * 50_000) == "e" * 50_000
