"""Tests of `fulltext`: terms, passages, and a ranking held against one written out plainly."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from Agent.memory import fulltext
from Agent.memory.fulltext import FullTextIndex, RankingWeights, split_passages, terms_of

ALONE = RankingWeights(before=0.0, group=0.0, aside=1.0, cover=1.0)


def found(index: FullTextIndex, query: str, limit: int = 10) -> list[str]:
    return [hit.id for hit in index.rank(query, limit)]


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


class TestRank:
    def test_finds_english_and_chinese(self) -> None:
        index = FullTextIndex()
        index.add("1", "The kettle boils.")
        index.add("2", "龙井是杭州的绿茶")

        assert found(index, "boiling kettles") == ["1"]
        assert found(index, "绿茶") == ["2"]
        assert found(index, "nothing") == found(index, "") == found(index, "the") == []

    def test_takes_an_apostrophe_s_for_no_word(self) -> None:
        index = FullTextIndex()
        index.add("colour", "Ada's favourite colour is green.")
        index.add("wifi", "The wifi password is tr0ub4dor.")

        assert found(index, "what's the wifi password?") == ["wifi"]

    def test_finds_the_passage_of_a_long_text(self) -> None:
        index = FullTextIndex()
        index.add(
            "long", "\n\n".join(f"Paragraph {number} tells of {'x' * 300}." for number in range(20)) + "\n\nAnd tea."
        )

        hit = index.rank("tea")[0]
        assert hit.id == "long"
        assert hit.passage > 0
        assert len(index.rank("paragraph tells")) == 1

    def test_takes_the_place_of_what_was_there(self) -> None:
        index = FullTextIndex()
        index.add("1", "Paris")
        index.add("1", "Rome")

        assert (found(index, "Paris"), found(index, "Rome"), len(index)) == ([], ["1"], 1)

    def test_forgets(self) -> None:
        index = FullTextIndex()
        index.add("1", "Paris")
        index.remove("1")
        index.remove("1")

        assert (found(index, "Paris"), len(index)) == ([], 0)

    def test_counts_the_question_before(self) -> None:
        index = FullTextIndex()
        index.add("question", "What is your dog called?", "chat")
        index.add("answer", "Oliver!", "chat")
        index.add("elsewhere", "Oliver!", "another chat")

        assert found(index, "the dog's name: how is it called") == ["question", "answer"]

    def test_counts_what_belongs_together(self) -> None:
        index = FullTextIndex(RankingWeights(before=0.0))
        for group, topic in (("a", "cooking"), ("b", "sailing")):
            index.add(f"{group}1", f"We talked of {topic}.", group)
            index.add(f"{group}2", "It was fun at home.", group)

        ranked = found(index, "Was sailing fun?")
        assert ranked.index("b2") < ranked.index("a2")

    def test_lets_the_last_sentence_and_questions_count_most(self) -> None:
        index = FullTextIndex()
        index.add("weather", "The weather is nice.")
        index.add("dog", "The dog is called Oliver.")

        assert found(index, "Nice weather, so nice. What is the dog called?")[0] == "dog"
        assert found(index, "今天 weather 真好。dog called?")[0] == "dog"

    def test_covers_both_halves_of_a_question(self) -> None:
        index = FullTextIndex(RankingWeights(cover=0.5))
        for number in range(5):
            index.add(f"cup{number}", "the blue cup of tea")
        index.add("dog", "a brown dog sits in a very long garden with trees")

        assert "dog" in found(index, "blue cup tea, dog?", 3)

    def test_passes_over_what_is_not_accepted(self) -> None:
        index = FullTextIndex()
        for id in "abc":
            index.add(id, "tea?", "one")

        assert [hit.id for hit in index.rank("tea", among={"b"})] == ["b"]

    @pytest.mark.parametrize("looked_through", [0, 5_000])
    def test_finds_the_same_among_some_however_many_they_are(
        self, looked_through: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fulltext, "LOOKED_THROUGH", looked_through)
        index = FullTextIndex()
        for number in range(40):
            index.add(str(number), f"tea cup{number % 7}", "chat")

        some = {str(number) for number in range(0, 40, 3)}
        assert {hit.id for hit in index.rank("tea cup3", 50, some)} == some
        assert [hit.id for hit in index.rank("tea cup3", 2, some)] == ["3", "24"]
        assert index.rank("tea", 50, set()) == []

    def test_keeps_the_place_of_what_is_added_again(self) -> None:
        index = FullTextIndex()
        for id, text in (("question", "Dog's name?"), ("answer", "Oliver!"), ("end", "Good."), ("other", "Is it?")):
            index.add(id, text, "chat" if id != "other" else "elsewhere")
        index.add("question", "What is your dog called?", "chat")
        assert found(index, "how is the dog called") == ["question", "answer"]

        index.add("answer", ["Oliver!", "A name like any other?"], "chat")
        index.add("question", "What is your dog called?", "elsewhere")
        index.add("answer", "Oliver!", "elsewhere")
        assert found(index, "how is the dog called") == ["question", "answer"]

    def test_scores_from_0_to_1_and_falling(self) -> None:
        index = FullTextIndex()
        for number in range(30):
            index.add(str(number), "tea " * number + f"cup{number}?", "chat")

        scores = [hit.score for hit in index.rank("tea cup7 tea")]
        assert scores == sorted(scores, reverse=True)
        assert 0.0 < scores[-1] <= scores[0] <= 1.0

    def test_is_bm25_without_the_four_terms(self) -> None:
        texts = {str(n): text for n, text in enumerate(["tea", "tea cup", "cup cup kettle", "kettle tea tea dog"])}
        index = FullTextIndex(ALONE)
        for id, text in texts.items():
            index.add(id, text)
        query = "tea kettle"
        average = sum(len(text.split()) for text in texts.values()) / len(texts)
        plain = {}
        for id, text in texts.items():
            counts = Counter(text.split())
            norm = 1.5 * (0.25 + 0.75 * counts.total() / average)
            plain[id] = sum(
                math.log(1 + (len(texts) - df + 0.5) / (df + 0.5)) * counts[term] * 2.5 / (counts[term] + norm)
                for term in query.split()
                for df in [sum(term in other.split() for other in texts.values())]
            )
        hits = index.rank(query)

        assert [hit.id for hit in hits] == sorted((id for id in plain if plain[id]), key=lambda id: -plain[id])
        ratios = [hit.score / plain[hit.id] for hit in hits]
        assert max(ratios) == pytest.approx(min(ratios))

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from("abcdef"), st.sampled_from(["tea", "tea? cup", "茶", ""]), st.booleans()),
            max_size=200,
        )
    )
    def test_is_after_any_history_what_building_anew_gives(self, steps: list[tuple[str, str, bool]]) -> None:
        index = FullTextIndex(ALONE)
        texts: dict[str, str] = {}
        for id, text, removes in steps:
            texts.pop(id, None)
            if removes:
                index.remove(id)
            else:
                index.add(id, text, "g")
                texts[id] = text

        assert len(index) == len(texts)
        for query in ("tea", "cup", "茶"):
            assert sorted(found(index, query)) == sorted(id for id, text in texts.items() if query in text)

    def test_keeps_neighbours_when_dead_places_are_left_out(self) -> None:
        index = FullTextIndex()
        for number in range(200):
            index.add(f"x{number}", "cup", "chat")
            index.remove(f"x{number}")
        index.add("question", "What is your dog called?", "chat")
        for number in range(200):
            index.add(f"y{number}", "cup", "chat")
            index.remove(f"y{number}")
        index.add("answer", "Oliver!", "chat")

        assert found(index, "how is the dog called") == ["question", "answer"]
        assert len(vars(index)["_ids"]) < 200

    def test_reads_a_bounded_part_of_common_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fulltext, "POSTINGS_LIMIT", 10)
        index = FullTextIndex()
        for number in range(100):
            index.add(str(number), "tea rare" if number == 3 else "tea")

        assert found(index, "rare tea", 1) == ["3"]
        assert len(found(index, "tea", 100)) == 10

    def test_finds_what_reading_all_postings_finds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        chance = random.Random(7)
        words = [f"word{number}" for number in range(60)]
        index = FullTextIndex(ALONE)
        for number in range(4_000):  # the first words are common, the last ones rare
            said = " ".join(words[int(60 * chance.random() ** 2)] for _ in range(12))
            index.add(str(number), said, f"g{number // 9}")
        for number in range(0, 4_000, 11):
            index.remove(str(number))
        queries = [" ".join(chance.sample(words[25:], 1) + chance.sample(words, 5)) for _ in range(20)]
        some = {str(number) for number in range(0, 4_000, 2)}

        monkeypatch.setattr(fulltext, "POSTINGS_LIMIT", 10**6)
        looked = [[hit.id for hit in index.rank(query, 20, among)] for query in queries for among in (None, some)]
        monkeypatch.setattr(fulltext, "_LOOK", 10**9)  # so nothing is worth a look, and all is read
        read = [[hit.id for hit in index.rank(query, 20, among)] for query in queries for among in (None, some)]

        assert looked == read

    def test_counts_the_groups_anew_when_some_came(self) -> None:
        index = FullTextIndex(RankingWeights(before=0.0, cover=1.0))
        for number in range(6):
            index.add(str(number), "tea cup" if number == 5 else "cup", f"g{number}")
        before = index.rank("tea cup", 1)[0].score
        for number in range(6, 12):
            index.add(str(number), "tea", f"g{number}")
        built = FullTextIndex(RankingWeights(before=0.0, cover=1.0))
        for number in range(12):
            built.add(str(number), "tea" if number > 5 else "tea cup" if number == 5 else "cup", f"g{number}")

        assert index.rank("tea cup", 1)[0].score == built.rank("tea cup", 1)[0].score != before

    def test_the_rarest_terms_alone_may_count(self) -> None:
        index = FullTextIndex(RankingWeights(0.0, 0.0, 1.0, 1.0))
        for number in range(10):
            index.add(str(number), "tea kettle cup" if number else "tea pot")
        index.add("rare", "samovar")

        found = [hit.id for hit in index.rank("samovar pot tea kettle cup", rarest=2)]
        assert sorted(found) == ["0", "rare"]
        assert index.rank("samovar pot tea", rarest=9) == index.rank("samovar pot tea")


class TestShares:
    def test_sum_up_to_one_and_favour_the_rare(self) -> None:
        index = FullTextIndex()
        for number in range(10):
            index.add(str(number), "tea" if number else "tea cup")
        shares = index.shares("tea cup unknown")

        assert sum(shares.values()) == pytest.approx(1.0)
        assert shares["tea"] < shares["cup"] < shares["unknown"]
        assert index.shares("") == {}


class TestLacking:
    def test_are_the_terms_that_it_does_not_say(self) -> None:
        index = FullTextIndex()
        index.add("1", ["tea cup", "kettle"])
        index.add("2", "dog")

        assert index.lacking("1", ["tea", "kettl", "dog", "unknown", "nowher"]) == {"dog", "unknown", "nowher"}
        assert index.lacking("nobody", ["tea"]) == {"tea"}
        assert index.lacking("1", []) == set()
