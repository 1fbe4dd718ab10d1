"""Tests of the one splitter of sentences."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.base.text import sentence_spans, split_sentences

SENTENCES = [
    "Her GP is Dr. Anand at Hyde Park Surgery.",
    "The landlord is Mr. Okafor and he is deaf.",
    "Fees are approx. 300 pounds.",
    "She lives in Washington D.C. since May.",
    "Version no. 5 is the stable one.",
    "J. K. Rowling wrote it.",
    "He came at 5 p.m. today.",
    "It costs 3.50 euros, i.e. less than before.",
    "Acme Inc. was founded by Bo Jr. in 1999.",
    "Hr. Müller wohnt in Nr. 5.",
    "The plumber comes on Mon. 4 May.",
    "I said no.",
    "So do I.",
    "他住在杭州。",
    "真的吗？",
    "他说：“我来。”",
    "She said “Go!”",
    "1. Buy milk.",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_is_cut_at_its_end_alone(sentence: str) -> None:
    assert split_sentences(sentence) == [sentence]
    assert split_sentences(f"Hello there! {sentence} Then more.") == ["Hello there!", sentence, "Then more."]


def test_a_line_is_a_sentence_unless_it_goes_on() -> None:
    assert split_sentences("Tea\nCoffee\n\nand rain") == ["Tea", "Coffee\n\nand rain"]


@given(st.text(st.sampled_from("aB1 .!?;。！？…\n\"”'DrNo我"), max_size=60))
def test_nothing_of_a_text_is_lost(text: str) -> None:
    spans = list(sentence_spans(text))

    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
