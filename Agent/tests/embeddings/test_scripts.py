"""Tests of `scripts`: who does not know a script is not believed there."""

import numpy as np
import pytest

from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.scripts import LEAST_TRUST, PROBES, check_trust, probe, scripts_of, trust_in
from Agent.keyword_tree import InvalidInputError


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
            ("コーヒー", {"KATAKANA": 1.0}),
            ("人々", {"CJK": 1.0}),
            ("ｔｅａ ﾁｬ ﹰ", {"LATIN": 0.6, "KATAKANA": 0.4}),
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

    @pytest.mark.parametrize("trust", [None, 0, 1, 0.5, {}, {"CJK": 1.0, "TIBETAN": 0}])
    def test_can_be_given_for_all_scripts_or_for_some(self, trust: float | dict[str, float] | None) -> None:
        check_trust(trust)

    @pytest.mark.parametrize("trust", [-0.1, 1.1, float("nan"), True, "1", {"CJK": 2}, {"CJK": None}, ["CJK"]])
    def test_that_is_no_number_from_0_to_1_is_refused(self, trust: object) -> None:
        with pytest.raises(InvalidInputError, match="from 0 to 1") as refused:
            check_trust(trust)  # type: ignore[arg-type]  # what is tested

        assert repr(trust) in str(refused.value)

    @pytest.mark.parametrize("script", ["HAN", "cjk", "", 7])
    def test_in_a_script_that_is_none_is_refused(self, script: object) -> None:
        with pytest.raises(InvalidInputError, match=f"unknown script {script!r}; known: LATIN, CJK"):
            check_trust({script: 1.0})  # type: ignore[dict-item]  # what is tested
