"""Tests of `fulltext`: terms and passages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from Agent.memory.fulltext import split_passages, terms_of


class TestTermsOf:
    def test_takes_words_that_differ_in_their_endings_for_one(self) -> None:
        for words in (("paint", "paints", "painted", "painting"), ("city", "cities"), ("plan", "planned", "planning")):
            assert len({tuple(terms_of(word)) for word in words}) == 1

    def test_leaves_short_words_and_others_scripts_whole(self) -> None:
        assert terms_of("gas ring Straße naïve 2023s") == ["gas", "ring", "strass", "naiv", "2023s"]

    def test_takes_compounds_whole_and_in_parts(self) -> None:
        assert terms_of("getUserName") == ["getusernam", "get", "user", "nam"]

    def test_takes_characters_and_pairs_of_chinese(self) -> None:
        assert terms_of("绿茶,茶") == ["绿", "茶", "绿茶", "茶"]

    def test_keeps_symbols_that_make_a_name(self) -> None:
        assert terms_of("C, C++ & C#") == ["c", "c++", "c#"]

    def test_minds_neither_case_nor_width(self) -> None:
        assert terms_of("ＴＥＡ") == terms_of("tea")

    def test_minds_no_accents_where_people_type_without(self) -> None:
        for accented, plain in (("Tomás", "tomas"), ("Crème brûlée", "creme brulee"), ("Zu\u0308rich", "Zurich")):
            assert terms_of(accented) == terms_of(plain)
        assert terms_of("Αθήνα") == terms_of("αθηνα")

    def test_keeps_the_marks_that_make_another_word(self) -> None:
        for one, other in (("が", "か"), ("パン", "ハン"), ("हिंदी", "हद")):
            assert set(terms_of(one)) != set(terms_of(other))

    def test_reads_a_run_without_a_blank_once(self) -> None:
        assert terms_of("a1" * 500_000) == ["a1" * 500_000]  # minutes, if each letter began another look


class TestSplitPassages:
    @settings(deadline=None)
    @given(st.text(st.sampled_from("ab。. \n茶"), max_size=120), st.integers(3, 30))
    def test_loses_nothing_but_blanks(self, text: str, limit: int) -> None:
        passages = split_passages(text, limit)

        assert "".join("".join(passages).split()) == "".join(text.split())
        assert all(len(passage) <= limit for passage in passages)

    def test_gives_one_for_nothing(self) -> None:
        assert split_passages("") == [""]

    def test_prefers_paragraphs_then_sentences_then_words(self) -> None:
        assert split_passages("茶很好。真的。\n\n明天见", 10) == ["茶很好。真的。", "明天见"]
        assert split_passages("one two. three four", 12) == ["one two.", "three four"]
        assert split_passages("abcdefgh ijklmn", 10) == ["abcdefgh", "ijklmn"]
        assert split_passages("abcdefghijklmn", 10) == ["abcdefghij", "klmn"]
