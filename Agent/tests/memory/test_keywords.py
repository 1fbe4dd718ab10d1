"""Tests of `keywords`: English by the rule, Chinese with a segmenter and without."""

import importlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.memory import keywords
from Agent.memory.keywords import (
    CHINESE_STOP_WORDS,
    STOP_WORDS,
    ChineseKeywordExtractor,
    KeywordExtractor,
    SimpleKeywordExtractor,
    cut_ngrams,
    cut_words,
)

try:
    importlib.import_module("rjieba")
except ImportError:
    has_rjieba = False
else:
    has_rjieba = True

needs_rjieba = pytest.mark.skipif(not has_rjieba, reason="needs rjieba: pip install '.[chinese]'")
SIMPLE = SimpleKeywordExtractor()
NGRAMS = ChineseKeywordExtractor(cut=cut_ngrams)


class TestSimpleKeywordExtractor:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("snake_case, kebab-case/path.name 3rd", ["snake", "case", "kebab", "path", "name", "3rd"]),
            ("What is THE capital of Peru?", ["capital", "peru"]),  # stop words in any case
            ("vitamin C, plan 9, 茶", ["vitamin", "plan"]),  # single characters
            ("C# or C++, C, 用c++写 🐍? Issue #5: a+b", ["c#", "c++", "🐍", "issue"]),  # symbols that make a name
            ("I don't think we'll do it; they've left", ["think", "left"]),  # what an apostrophe leaves
            ("who's Ada's boss? you're right, isn’t it", ["ada", "boss", "right"]),
            ("merge, Merge and undo merge", ["merge", "undo"]),  # each once, in its order
            ("what is it?", []),
            ("", []),
            ("用Python写爬虫", ["python", "写爬虫"]),  # scripts apart
            ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),  # with their marks
        ],
    )
    def test_takes_the_words_that_say_something(self, text: str, found: list[str]) -> None:
        assert SIMPLE.extract(text) == found

    def test_takes_other_stop_words_in_any_case(self) -> None:
        assert SimpleKeywordExtractor(["Merge"]).extract("the MERGE") == ["the"]


class TestChineseKeywordExtractor:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("喝绿茶", ["喝绿", "绿茶"]),
            ("我们什么时候出发?", ["们什", "么时", "候出", "出发"]),  # without pairs that are stop words
            ("茶?", ["茶"]),  # a single character that is a word
            ("的?", []),
        ],
    )
    def test_takes_pairs_of_characters_without_a_segmenter(self, text: str, found: list[str]) -> None:
        assert NGRAMS.extract(text) == found

    def test_reads_english_as_the_simple_one_does(self) -> None:
        text = "How do I undo the last merge in Git?"

        assert NGRAMS.extract(text) == SIMPLE.extract(text)

    def test_gives_chinese_alone_to_the_segmenter(self) -> None:
        seen: list[str] = []

        def cut(text: str) -> list[str]:
            seen.append(text)
            return [text]

        found = ChineseKeywordExtractor(cut=cut).extract("喝绿茶 drink 抹茶はどこ ชาเขียว")

        assert seen == ["喝绿茶"]
        assert found[:3] == ["喝绿茶", "drink", "抹茶"]

    def test_takes_other_stop_words(self) -> None:
        assert ChineseKeywordExtractor(["绿茶"], cut_ngrams).extract("喝绿茶") == ["喝绿"]

    @needs_rjieba
    def test_takes_words_where_a_segmenter_is_there(self) -> None:
        found = ChineseKeywordExtractor().extract("我昨天在北京大学参加了自然语言处理的研讨会")

        assert {"北京大学", "大学", "自然语言", "研讨会"} <= set(found)
        assert not set(found) & CHINESE_STOP_WORDS
        assert "京大" not in found

    def test_does_without_a_segmenter_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hide_rjieba(monkeypatch)

        assert ChineseKeywordExtractor().extract("喝绿茶") == ["喝绿", "绿茶"]


class TestCutWords:
    @needs_rjieba
    def test_gives_words_and_the_words_in_them(self) -> None:
        assert cut_words("北京大学") == ["北京", "大学", "北京大学"]

    def test_tells_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hide_rjieba(monkeypatch)

        with pytest.raises(ImportError, match=r"pip install '\.\[chinese\]'"):
            cut_words("北京大学")


class TestBoth:
    @pytest.mark.parametrize(
        "extractor", [SIMPLE, NGRAMS, ChineseKeywordExtractor()], ids=["simple", "ngrams", "words"]
    )
    @given(text=st.text() | st.text(alphabet="我喜欢喝绿茶的 the Tea_は1"))
    def test_give_folded_parts_of_the_text_each_once(self, extractor: KeywordExtractor, text: str) -> None:
        found = extractor.extract(text)
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

        assert len(found) == len(set(found))
        assert all(word in folded for word in found)
        assert not set(found) & STOP_WORDS


def hide_rjieba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it look as if rjieba were not installed."""

    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(keywords, "import_module", refuse)
    monkeypatch.setattr(keywords, "_find_rjieba", keywords._find_rjieba.__wrapped__)  # without its memory
