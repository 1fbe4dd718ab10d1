"""Tests of `scripts`: who does not know a script is not believed there."""

import numpy as np
import pytest

from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.scripts import LEAST_TRUST, PROBES, probe, scripts_of, trust_in


def probed(embedder: HashingEmbedder, script: str) -> float:
    return probe([np.asarray(vector, np.float32) for vector in embedder.embed(PROBES[script])])


class TestScriptsOf:
    @pytest.mark.parametrize(
        ("text", "scripts"),
        [
            ("", {}),
            ("123 + !", {}),
            ("tea", {"LATIN": 1.0}),
            ("龙井", {"CJK": 1.0}),
            ("龙井 tea!", {"CJK": 0.4, "LATIN": 0.6}),
            ("чай", {"CYRILLIC": 1.0}),
            ("お茶", {"HIRAGANA": 0.5, "CJK": 0.5}),
        ],
    )
    def test_counts_letters(self, text: str, scripts: dict[str, float]) -> None:
        assert scripts_of(text) == scripts

    def test_knows_the_script_of_its_own_words(self) -> None:
        for script, words in PROBES.items():
            assert len(words) % 2 == 0
            assert len(set(words)) == len(words)
            if script not in ("HIRAGANA", "KATAKANA"):
                assert scripts_of("".join(words)) == {script: 1.0}
        assert scripts_of("".join(PROBES["HIRAGANA"])).keys() >= {"HIRAGANA", "KATAKANA"}


class TestProbe:
    @pytest.mark.parametrize("script", PROBES)
    def test_believes_who_knows_the_words(self, script: str) -> None:
        pairs = list(zip(PROBES[script][::2], PROBES[script][1::2], strict=True))

        assert probed(HashingEmbedder(pairs), script) == 1.0

    def test_does_not_believe_who_guesses(self) -> None:
        draw = np.random.default_rng(1)
        guesses = [probe(list(draw.standard_normal((16, 64)).astype(np.float32))) for _ in range(50)]

        assert sum(guesses) / 50 < 0.05
        assert probe([np.ones(4, np.float32)] * 16) == 0.0


class TestTrust:
    def test_is_that_of_the_only_script(self) -> None:
        assert trust_in({"LATIN": 1.0}, {"LATIN": 0.9}) == 0.9
        assert trust_in({"CJK": 1.0}, {"CJK": 0.0}) == LEAST_TRUST
        assert trust_in({"TIBETAN": 1.0}, {}) == LEAST_TRUST

    def test_a_script_that_is_half_of_it_counts_fully(self) -> None:
        known = {"LATIN": 1.0, "CJK": 0.0}

        assert trust_in({"LATIN": 0.5, "CJK": 0.5}, known) == LEAST_TRUST
        assert LEAST_TRUST < trust_in({"LATIN": 0.8, "CJK": 0.2}, known) < 0.5

    def test_without_letters_there_is_nothing_to_doubt(self) -> None:
        assert trust_in(scripts_of("3.14"), {}) == 1.0
