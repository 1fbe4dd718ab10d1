"""Tests of the thesaurus: near words of two languages from a file; without one, words alone, and said."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from Agent.finding import texts, thesaurus
from Agent.finding.index import Index, Unit
from Agent.finding.thesaurus import PATH, WordsNear, cut, default
from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import KeywordTree


def near(term: str, least: float = 0.3) -> list[str]:
    return [word for word, share in WordsNear().near(term) or () if share >= least]


class TestFile:
    @pytest.mark.parametrize(
        ("term", "other"),
        [("doctor", "physician"), ("医生", "医师"), ("went", "go"), ("mice", "mouse"), ("医生", "doctor")],
    )
    def test_knows_near_words_and_forms_of_both_languages(self, term: str, other: str) -> None:
        (stem,), (wanted,) = (texts.terms(word) if word.isascii() else [word] for word in (term, other))
        assert wanted in near(stem)

    def test_the_nearest_come_first_with_shares_and_no_word_is_near_itself_alone(self) -> None:
        shares = [share for _, share in WordsNear().near("doctor") or ()]

        assert shares == sorted(shares, reverse=True)
        assert all(0 <= share <= 1 for share in shares)

    def test_a_name_has_none_and_what_is_no_word_is_unknown(self) -> None:
        assert WordsNear().near("lisbon") == ()
        assert [WordsNear().near(term) for term in ("qxzv", "", "\ud800", "zzzz" * 100)] == [None] * 4

    def test_a_run_is_cut_into_the_words_that_it_knows(self) -> None:
        assert cut("我在医院工作", WordsNear()) == ["我", "在", "医院", "工作"]

    @pytest.mark.parametrize("harm", ["missing", "empty", "cut", "longer", "of another version"])
    def test_one_that_cannot_be_used_is_refused_by_its_name(self, tmp_path: Path, harm: str) -> None:
        path, whole = tmp_path / "words.near", PATH.read_bytes()
        contents = {"empty": b"", "cut": whole[:-1], "longer": whole + b"x", "of another version": b"near9" + whole[5:]}
        if harm in contents:
            path.write_bytes(contents[harm])

        with pytest.raises((OSError, ValueError), match=r"words\.near"):
            WordsNear(path)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(WordsNear.__init__, "__defaults__", (tmp_path / "words.near",))
    default.cache_clear()
    yield
    default.cache_clear()


class TestUse:
    UNITS = (
        Unit("a", text="My physician is out of town."),
        Unit("b", text="我的医师姓王。"),
        Unit("c", text="Tea is green."),
    )

    def test_finds_what_is_said_in_other_words(self) -> None:
        index, plain = Index(), Index(thesaurus=None)
        for each in (index, plain):
            each.put(self.UNITS)

        assert [index.search(query, 1)[0].id for query in ("the doctor", "我的医生")] == ["a", "b"]
        assert plain.search("the doctor") == []
        assert all(hit.score < 0.3 for hit in plain.search("我的医生"))

    @pytest.mark.parametrize(
        ("facts", "question"),
        [
            (["Jasper plays in goal.", "Our son Jasper is ill.", "I play in a band."], "Where does my son play?"),
            (["Biscuit fears rockets.", "I fear ladders.", "The dog is called Biscuit."], "What does the dog fear?"),
            (["豆豆每周六学琵琶。", "女儿豆豆今年七岁，属兔。", "我在学木雕。"], "女儿在学什么？"),
            (["煤球只能吃处方粮。", "我吃面要多放醋。", "家里的猫叫煤球。"], "猫吃什么？"),
        ],
    )
    def test_texts_say_who_is_who(self, facts: list[str], question: str) -> None:
        index = Index(meaning=False)
        index.put([Unit(str(number), text=fact) for number, fact in enumerate(facts)])

        assert index.search(question)[0].id == "0"

    def test_two_characters_of_two_words_are_none(self) -> None:
        index = Index(meaning=False)
        index.put([Unit("headmaster", text="校长在家。"), Unit("school", text="学校在修。")])

        assert [hit.id for hit in index.search("学校长满了草")] == ["school", "headmaster"]

    def test_another_one_can_be_given(self) -> None:
        class Own:
            def near(self, term: str) -> Sequence[tuple[str, float]] | None:
                return [("tea", 0.95)] if term == "qwibbl" else None  # terms, not words

        index = Index(thesaurus=Own())
        index.put(self.UNITS)

        assert index.search("qwibble")[0].id == "c"

    @pytest.mark.usefixtures("broken")
    def test_without_its_file_words_rank_alone_and_say_so(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        index = Index()
        index.put(self.UNITS)
        assert index.search("the doctor") == []
        assert index.search("physician")[0].id == "a"
        with KeywordTree(str(tmp_path / "tree")) as tree:
            tree.CreateKeyword("physician")
            note = tree._ranker.Fit("physician").note
        assert note.startswith("no near words: ")
        assert "words.near" in note
        assert len([message for message in caplog.messages if "by their own words alone" in message]) == 1
        with KeywordTree(str(tmp_path / "tree"), ranker=lambda view: TreeRanker(view, thesaurus=None)) as tree:
            assert tree._ranker.Fit("physician").note == ""

    def test_is_opened_once_for_all_indexes(self) -> None:
        assert Index().thesaurus is Index().thesaurus is thesaurus.default()[0]
