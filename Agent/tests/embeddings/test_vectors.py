"""Tests of `vectors`: the right vector for each text, on disk and in memory, whatever fails."""

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from Agent.embeddings import vectors as vectors_module
from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.scripts import PROBES
from Agent.embeddings.vectors import RETRY_S, Vectors, _locked, _record, path_for
from Agent.tests.support.clocks import Clock
from Agent.tests.support.threads import in_threads

RECORD_SIZE = 16 + 2 * 256 + 4


class Counting(HashingEmbedder):
    """A `HashingEmbedder` that keeps what it was asked, and can be down."""

    def __init__(self, name: str = "", dimension: int = 256) -> None:
        super().__init__(dimension=dimension)
        self.name = name or self.name
        self.asked: list[str] = []
        self.refused: Callable[[str], bool] = lambda text: False

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if any(map(self.refused, texts)):
            raise ConnectionError("the service is down")
        self.asked += texts
        return super().embed(texts)


class Flat(Counting):
    """Gives texts the vectors that it was given, and others one."""

    def __init__(self, given: dict[str, tuple[float, float]], others: tuple[float, float]) -> None:
        super().__init__("flat")
        self._given, self._others = given, others

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [list(self._given.get(text, self._others)) for text in texts]


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_for(tmp_path, "keywords", "hashing")


def filled(embedder: Counting, path: Path | None, *texts: str) -> Vectors:
    vectors = Vectors(embedder, path)
    for text in texts:
        vectors.add(text)
    return vectors


def texts_near(vectors: Vectors, question: str, count: int) -> list[str]:
    return [text for _, text in vectors.nearest(question, count)]


class TestNearest:
    def test_is_the_text_that_says_the_same(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "green tea", "black coffee", "绿茶")
        vectors.catch_up(["black coffee", "绿茶", "coffee black"])

        assert texts_near(vectors, "coffee black", 2)[0] == "black coffee"
        assert texts_near(vectors, "绿茶", 1) == ["绿茶"]

    def test_knows_nothing_of_a_question_that_was_not_asked_for(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "tea")
        vectors.catch_up()

        assert vectors.nearest("coffee", 5) == []
        assert vectors.similarities("coffee", ["tea"]) == [-1.0]
        assert vectors.average("coffee") == 0.0

    def test_leaves_out_what_no_one_holds(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "tea", "tea", "coffee")
        vectors.catch_up(["tea"])
        vectors.remove("tea")
        assert texts_near(vectors, "tea", 1) == ["tea"]

        vectors.remove("tea")
        assert texts_near(vectors, "tea", 5) == ["coffee"]
        assert len(vectors) == 1

    def test_tells_each_similarity_and_their_mean(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "tea", "coffee", "water")
        vectors.catch_up(["tea"])

        near = vectors.similarities("tea", ["tea", "coffee", "unknown", "water"])
        assert near[0] == pytest.approx(1.0, abs=1e-3)
        assert near[2] == -1.0
        assert vectors.average("tea") == pytest.approx((near[0] + near[1] + near[3]) / 3, abs=2e-4)

    def test_what_is_near_to_everyday_words_too_is_no_similarity_to_the_question(self) -> None:
        chinese = Flat({"问题": (0.8, 0.6), "短文": (0.75, 0.66), "长文": (0.7, 0.0)}, others=(0.0, 1.0))
        vectors = filled(chinese, None, "短文", "长文")
        vectors.catch_up(["问题"])
        plain = vectors.nearest("问题", 2)
        assert [text for _, text in plain] == ["短文", "长文"]

        vectors.catch_up(PROBES["LATIN"])
        assert vectors.nearest("问题", 2) == plain  # words of another script say nothing

        vectors.catch_up(PROBES["CJK"])
        found = vectors.nearest("问题", 2)
        assert [text for _, text in found] == ["长文", "短文"]
        assert vectors.similarities("问题", ["长文", "短文"]) == [similarity for similarity, _ in found]
        for similarities in (plain, found):
            assert sum(similarity for similarity, _ in similarities) / 2 == pytest.approx(
                vectors.average("问题"), abs=1e-3
            )

    def test_does_not_depend_on_the_order_in_which_texts_came(self) -> None:
        class Coarse(Counting):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return [[1.0, 0.0] if text[-1] in "13579" else [0.6, 0.8] for text in texts]

        texts = [f"text {number}" for number in range(200)]
        found = []
        for order in (texts, texts[::-1], [*texts[77:], *texts[:77]]):
            vectors = filled(Coarse(), None, *order)
            vectors.catch_up(["number 1"])
            found.append(vectors.nearest("number 1", 120))

        assert found[0] == found[1] == found[2]
        assert [text for _, text in found[0]] == [*sorted(texts[1::2]), *sorted(texts[::2])[:20]]
        assert vectors.nearest("number 1", 0) == []

    def test_finds_as_much_by_looking_up(self, embedder: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("voyager", reason="the index library of the extra [embeddings] is not installed")
        monkeypatch.setattr(vectors_module, "EXACT_LIMIT", 200)
        texts = [f"{number} is a number {number * 7 % 100}" for number in range(300)]
        vectors = filled(embedder, None, *texts)
        vectors.catch_up(texts, limit=len(texts))
        exact = [vectors.nearest(text, 10) for text in texts[:20]]
        alone = [vectors.nearest(text, 1)[0][0] for text in texts]
        vectors.catch_up()
        assert vectors._graph is not None
        assert sum(vectors.nearest(text, 1)[0][0] < near for text, near in zip(texts, alone, strict=True)) <= 3
        found = [vectors.nearest(text, 10) for text in texts[:20]]
        met = sum(len({*some} & {*others}) for some, others in zip(exact, found, strict=True))

        assert met > 180
        vectors.add("a late one")
        vectors.remove(texts[0])
        vectors.catch_up(["a late one"], limit=1)
        assert texts_near(vectors, "a late one", 1) == ["a late one"]
        assert texts[0] not in texts_near(vectors, texts[0], 10)


class TestAsking:
    def test_asks_for_each_text_once(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "tea", "coffee", "tea")
        vectors.catch_up(["tea"])
        vectors.remove("coffee")
        vectors.add("coffee")
        vectors.catch_up(["coffee", "tea"])

        assert sorted(embedder.asked) == ["coffee", "tea"]

    def test_brings_some_of_what_waits_with_a_question(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, *map(str, range(10)))
        vectors.catch_up(["question"], limit=4)
        assert (len(embedder.asked), vectors.waiting) == (5, 6)

        vectors.catch_up()
        assert (len(embedder.asked), vectors.waiting) == (11, 0)

    def test_ignores_texts_that_say_nothing(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "", " \n")
        vectors.catch_up([" "])

        assert embedder.asked == []

    def test_reads_only_the_beginning_of_a_long_text(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "x" * 5_000)
        vectors.catch_up(["x" * 9_000])

        assert [len(text) for text in embedder.asked] == [2_000]
        vectors.remove("x" * 5_000)
        assert len(vectors) == 0

    def test_a_failure_is_reported_and_the_model_left_alone_for_a_while(self, caplog: pytest.LogCaptureFixture) -> None:
        embedder, clock = Counting(), Clock()
        vectors = Vectors(embedder, clock=clock)
        vectors.add("tea")
        embedder.refused = lambda text: True
        vectors.catch_up(["tea"])
        assert vectors.failure == "ConnectionError: the service is down"
        assert caplog.messages == [
            f"embedding with {embedder.name} failed, words rank alone: ConnectionError: the service is down"
        ]

        embedder.refused = lambda text: False
        vectors.catch_up(["tea"])
        assert embedder.asked == []
        clock.now = RETRY_S
        vectors.catch_up(["tea"])
        assert (embedder.asked, vectors.failure) == (["tea"], "")

    def test_one_who_wants_it_at_once_need_not_wait(self) -> None:
        embedder, clock = Counting(), Clock()
        vectors = Vectors(embedder, clock=clock)
        vectors.add("tea")
        embedder.refused = lambda text: True
        vectors.catch_up()
        embedder.refused = lambda text: False
        vectors.catch_up()
        assert vectors.waiting == 1

        vectors.catch_up(at_once=True)
        assert (vectors.waiting, vectors.failure, embedder.asked) == (0, "", ["tea"])

    def test_at_once_finds_a_model_that_is_back_where_nothing_waits(self, embedder: Counting) -> None:
        vectors = filled(embedder, None, "tea")
        vectors.catch_up()
        embedder.refused = lambda text: True
        vectors.catch_up(["coffee"])
        assert vectors.failure

        vectors.catch_up(at_once=True)
        assert vectors.failure
        embedder.refused = lambda text: False
        vectors.catch_up(at_once=True)
        assert vectors.failure == ""
        vectors.catch_up(at_once=True)
        assert embedder.asked == ["tea", "tea"]

    def test_a_text_that_is_refused_keeps_neither_others_nor_questions_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        embedder, clock = Counting(), Clock()
        vectors = Vectors(embedder, clock=clock)
        for number in range(200):
            vectors.add(f"text {number}")
        embedder.refused = lambda text: text in ("text 3", "text 150")
        answered = 0
        for number in range(20):
            vectors.catch_up([f"question {number}"], limit=64)
            answered += vectors.vector_of(f"question {number}") is not None
        vectors.catch_up()

        assert (answered, vectors.waiting, vectors.refused, len(vectors), vectors.failure) == (20, 0, 2, 198, "")
        assert caplog.messages == [
            f"{embedder.name} refuses 'text 3', which ranks by its words alone (`refused` counts such texts): "
            "ConnectionError: the service is down"
        ]

    def test_a_text_that_is_refused_is_not_asked_for_again(self) -> None:
        tried: list[str] = []
        embedder = Counting()

        def refuse(text: str) -> bool:
            tried.append(text)
            return text == "bad"

        embedder.refused = refuse
        vectors = filled(embedder, None, "bad", "tea", "bad")
        vectors.catch_up()
        assert vectors.refused == 1
        tried.clear()
        vectors.remove("bad")
        vectors.remove("bad")
        assert vectors.refused == 0
        vectors.add("bad")
        vectors.catch_up(at_once=True)
        assert (vectors.refused, vectors.waiting, tried) == (1, 0, [])

        vectors.add("better")
        vectors.catch_up()
        assert tried == ["better"]

    def test_another_model_under_the_same_name_is_asked_for_what_the_first_one_refused(self) -> None:
        embedder = Counting("model", 64)
        embedder.refused = lambda text: text == "bad"
        vectors = filled(embedder, None, "bad", "tea")
        vectors.catch_up()
        assert vectors.refused == 1
        vectors._embedder = Counting("model", 32)
        vectors.catch_up(["question"])
        vectors.catch_up()

        assert (vectors.refused, len(vectors)) == (0, 2)

    def test_a_service_that_fails_once_or_is_down_refuses_nothing(self) -> None:
        embedder, clock = Counting(), Clock()
        vectors = Vectors(embedder, clock=clock)
        vectors.add("tea")
        failures = ["tea"]
        embedder.refused = lambda text: text in failures and failures.pop() == text
        vectors.catch_up()
        assert (len(vectors), vectors.refused) == (1, 0)

        for number in range(10):
            vectors.add(str(number))
        embedder.refused = lambda text: True
        for _ in range(20):
            vectors.catch_up()
            clock.now += RETRY_S
        assert (vectors.waiting, vectors.refused) == (10, 0)

    @pytest.mark.parametrize("question", ["too long", "a lone surrogate \ud800"])
    def test_a_question_that_is_refused_lets_others_be_answered(self, question: str) -> None:
        embedder = Counting()
        embedder.refused = lambda text: text == "too long"
        vectors = filled(embedder, None, "tea", "coffee")
        vectors.catch_up([question], limit=64)
        assert vectors.nearest(question, 1) == []
        vectors.catch_up(["tea"], limit=64)

        assert texts_near(vectors, "tea", 1) == ["tea"]
        assert (vectors.failure, vectors.refused) == ("", 0)

    def test_a_search_asks_three_times_at_most(self) -> None:
        calls: list[int] = []

        class Refusing(Counting):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                calls.append(len(texts))
                return super().embed(texts)

        embedder = Refusing()
        embedder.refused = lambda text: text == "7"
        vectors = filled(embedder, None, *map(str, range(300)))
        for number in range(40):
            calls.clear()
            vectors.catch_up([f"question {number}"], limit=64)
            assert 1 <= len(calls) <= 3

        assert (vectors.waiting, vectors.refused) == (0, 1)

    @pytest.mark.parametrize(
        "answer", [[], [[1.0], [1.0]], [[]], [[float("nan")]], ["text"], [[1.0], 2.0], None, [[[1.0]]]]
    )
    def test_an_answer_that_makes_no_sense_is_a_failure(self, answer: object) -> None:
        class Odd:
            name = "odd"

            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return answer  # type: ignore[return-value]  # what a service may send

        vectors = Vectors(Odd())
        vectors.add("tea")
        vectors.catch_up()

        assert vectors.failure
        assert vectors.waiting == 1

    @pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e25, 1e300])
    def test_huge_and_tiny_numbers_are_as_good_as_others(self, scale: float) -> None:
        class Scaled(Counting):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return [[scale * value for value in vector] for vector in super().embed(texts)]

        vectors = filled(Scaled(), None, "tea", "coffee")
        vectors.catch_up(["tea"])

        ((similarity, text),) = vectors.nearest("tea", 1)
        assert text == "tea"
        assert similarity == pytest.approx(1.0, abs=1e-3)

    def test_at_once_notices_another_dimension_where_nothing_waits(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        texts = [str(number) for number in range(300)]
        filled(Counting("model", 64), path, *texts).catch_up()
        other = Counting("model", 32)
        vectors = filled(other, path, *texts)
        assert vectors.waiting == 0
        vectors.catch_up(at_once=True)

        assert (vectors.waiting, len(vectors), sorted(other.asked)) == (0, 300, sorted(texts))
        assert caplog.messages == [
            "model gives vectors of 32 numbers, those kept have 64: all texts are embedded again"
        ]
        assert filled(Counting("model", 32), path, *texts).waiting == 0

    def test_the_question_that_notices_another_dimension_is_answered(self, path: Path) -> None:
        texts = [str(number) for number in range(100)]
        filled(Counting("model", 64), path, *texts).catch_up()
        vectors = filled(Counting("model", 32), path, *texts)
        vectors.catch_up(["question", "99"], limit=10)

        assert len(vectors.nearest("question", 100)) == 11
        assert texts_near(vectors, "99", 1) == ["99"]

    def test_a_model_of_changing_dimensions_is_a_failure(self) -> None:
        class Changing(Counting):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return [vector[: 3 + len(self.asked) // 128 % 2] for vector in super().embed(texts)]

        vectors = filled(Changing("model"), None, *map(str, range(600)))
        vectors.catch_up()

        assert vectors.failure == "ValueError: 'model' gave vectors of now one dimension, now another"
        assert vectors.waiting > 0

    @pytest.mark.parametrize("at_a_time", [0, 64])  # texts that are embedded with a question
    def test_questions_of_another_dimension_than_texts_are_a_failure(
        self, at_a_time: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Lying(Counting):
            def embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
                return HashingEmbedder(dimension=64).embed(texts)

        embedder, clock = Lying("model"), Clock()
        vectors = Vectors(embedder, clock=clock)
        for number in range(3):
            vectors.add(f"text {number}")
        for turn in range(5):
            vectors.catch_up([f"question {turn}"], limit=at_a_time)
            vectors.catch_up(limit=64)
            clock.now += RETRY_S

        assert vectors.failure == "IncomparableError: 'model' gave 64 numbers for a question, 256 for a text"
        assert caplog.messages == [f"embedding with model failed, words rank alone: {vectors.failure}"]
        assert vectors.nearest("question 4", 3) == []

    def test_a_model_whose_questions_and_texts_have_another_dimension_now_is_embedded_again(self, path: Path) -> None:
        class Twofold(Counting):
            def embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
                return self.embed(texts)

        filled(Twofold("model", 64), path, "tea", "coffee").catch_up()
        vectors = filled(Twofold("model", 32), path, "tea", "coffee")
        vectors.catch_up(["question"], limit=0)
        vectors.catch_up()

        assert (len(vectors), vectors.failure, len(vectors.nearest("question", 5))) == (2, "", 2)

    def test_seeing_whether_the_model_is_there_writes_nothing(self, embedder: Counting, path: Path) -> None:
        filled(embedder, path, "tea").catch_up()
        before = path.read_bytes()
        vectors = filled(embedder, path, "tea")
        vectors.catch_up(at_once=True)

        assert embedder.asked == ["tea", "tea"]
        assert path.read_bytes() == before

    def test_several_threads_get_what_one_would(self, embedder: Counting) -> None:
        texts = [f"text {number}" for number in range(60)]
        vectors = filled(embedder, None, *texts)
        found: dict[str, list[str]] = {}

        def ask(question: str) -> None:
            vectors.catch_up([question], limit=8)
            vectors.catch_up()
            found[question] = texts_near(vectors, question, 1)

        in_threads(ask, texts[:8])

        assert found == {text: [text] for text in texts[:8]}
        vectors.catch_up()
        assert (vectors.waiting, len(vectors)) == (0, 60)


class TestFile:
    @pytest.fixture
    def kept(self, embedder: Counting, path: Path) -> Path:
        vectors = filled(embedder, path, "tea", "coffee", "水")
        vectors.catch_up()
        return path

    def test_brings_the_vectors_back(self, kept: Path) -> None:
        again = Counting()
        vectors = filled(again, kept, "tea", "水", "coffee")

        assert (vectors.waiting, len(vectors), again.asked) == (0, 3, [])
        vectors.catch_up(["tea"])
        assert texts_near(vectors, "tea", 1) == ["tea"]

    def test_is_for_its_owner_alone(self, kept: Path) -> None:
        assert kept.stat().st_mode & 0o777 == 0o600
        assert kept.parent.stat().st_mode & 0o777 == 0o700

    def test_may_be_deleted_at_any_time(self, embedder: Counting, kept: Path) -> None:
        vectors = filled(embedder, kept, "tea")
        kept.unlink()
        vectors.add("new")
        vectors.catch_up()

        assert filled(Counting(), kept, "new").waiting == 0
        assert filled(Counting(), kept, "tea").waiting == 1

    def test_of_another_model_is_not_used(self, kept: Path) -> None:
        assert filled(Counting("another model"), kept, "tea").waiting == 1
        assert path_for(".", "keywords", "one") != path_for(".", "keywords", "another")

    def test_a_flipped_bit_costs_one_vector(self, kept: Path) -> None:
        content = bytearray(kept.read_bytes())
        content[512 + RECORD_SIZE + 40] ^= 4
        kept.write_bytes(content)

        assert filled(Counting(), kept, "tea", "coffee", "水").waiting == 1

    def test_a_torn_end_is_cut_before_more_is_written(self, embedder: Counting, kept: Path) -> None:
        kept.write_bytes(kept.read_bytes()[:-100])
        vectors = filled(embedder, kept, "tea", "coffee", "水", "new")
        assert vectors.waiting == 2
        vectors.catch_up()

        assert filled(Counting(), kept, "tea", "coffee", "水", "new").waiting == 0
        assert kept.stat().st_size == 512 + 4 * RECORD_SIZE

    @pytest.mark.parametrize("content", [b"", b"{}", b"x" * 5_000, b'{"format": 2}'.ljust(600), b"[1]" + b" " * 600])
    def test_what_is_no_such_file_is_replaced(self, path: Path, content: bytes) -> None:
        path.parent.mkdir()
        path.write_bytes(content)
        filled(Counting(), path, "tea").catch_up()

        assert filled(Counting(), path, "tea").waiting == 0

    def test_two_that_begin_the_file_both_keep_what_they_embed(self, embedder: Counting, path: Path) -> None:
        one, other = filled(embedder, path, "one", "two"), filled(embedder, path, "other")
        one.catch_up()
        other.catch_up()
        one.add("three")
        one.catch_up()

        assert filled(Counting(), path, "one", "two", "three", "other").waiting == 0
        assert path.stat().st_size == 512 + 4 * RECORD_SIZE

    def test_two_dimensions_under_one_name_do_not_damage_each_other(self, path: Path) -> None:
        first = filled(Counting("model", 64), path, "tea")
        first.catch_up()
        filled(Counting("model", 32), path, "one", "two").catch_up()
        first.add("coffee")
        first.catch_up()

        assert len(first) == 2
        assert filled(Counting("model", 32), path, "one", "two").waiting == 0
        assert path.stat().st_size == 512 + 2 * (16 + 2 * 32 + 4)

    def test_tidying_leaves_what_others_have_written(self, embedder: Counting, path: Path) -> None:
        filled(embedder, path, *map(str, range(1_200))).catch_up()
        vectors = filled(embedder, path, *map(str, range(100)))
        filled(embedder, path, "new", *map(str, range(700))).catch_up()
        vectors.catch_up()

        assert filled(Counting(), path, "new", "1").waiting == 0

    def test_forgetting_leaves_what_others_embedded_of_texts_that_wait_here(
        self, embedder: Counting, kept: Path
    ) -> None:
        vectors = filled(embedder, kept, "tea", "new")
        filled(embedder, kept, "new", "secret").catch_up()
        vectors.forget()

        assert kept.stat().st_size == 512 + 2 * RECORD_SIZE
        assert filled(Counting(), kept, "tea", "new").waiting == 0

    def test_no_lock_stays_with_a_child_that_is_forked_while_it_is_written(self, kept: Path) -> None:
        with _locked(kept, os.O_RDWR) as file:
            inherited = os.dup(file.fileno())  # what a child has of it
        try:
            with kept.open("rb") as other:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(inherited)

    @pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
    def test_a_record_that_holds_no_number_is_not_there(self, kept: Path, number: float) -> None:
        vector = np.full(256, 0.0625, np.float32)
        vector[7] = number
        with kept.open("ab") as file:
            file.write(_record("tea", vector) + _record("ship", vector))
        vectors = filled(Counting(), kept, "tea", "ship")

        assert vectors.waiting == 1
        vectors.catch_up(["tea"])
        assert np.isfinite(vectors.average("tea"))
        assert texts_near(vectors, "tea", 2) == ["tea", "ship"]

    def test_a_disk_that_refuses_costs_only_time(self, embedder: Counting, tmp_path: Path) -> None:
        (tmp_path / "indexes").write_text("no folder")
        vectors = filled(embedder, path_for(tmp_path, "keywords", "x"), "tea")
        vectors.catch_up(["tea"])

        assert texts_near(vectors, "tea", 1) == ["tea"]

    def test_forgetting_leaves_no_vector_of_what_is_gone(self, embedder: Counting, kept: Path) -> None:
        stale = kept.with_name("keywords-000000000000.vectors")
        stale.write_bytes(b"of another model")
        vectors = filled(embedder, kept, "tea", "coffee")
        vectors.remove("coffee")
        vectors.forget()

        assert kept.stat().st_size == 512 + RECORD_SIZE
        assert not stale.exists()
        assert filled(Counting(), kept, "tea", "coffee").waiting == 1

    def test_is_written_again_when_most_of_it_is_held_no_more(self, embedder: Counting, path: Path) -> None:
        filled(embedder, path, *map(str, range(1_200))).catch_up()
        vectors = filled(embedder, path, *map(str, range(100)))
        vectors.catch_up()

        assert path.stat().st_size == 512 + 100 * RECORD_SIZE


class TestAnyOrder:
    @given(st.lists(st.tuples(st.sampled_from(["add", "remove", "catch up"]), st.sampled_from("abcdef"))))
    def test_ranks_as_if_made_afresh(self, steps: list[tuple[str, str]]) -> None:
        embedder, held = Counting(), dict.fromkeys("abcdef", 0)
        vectors = Vectors(embedder)
        for what, text in steps:
            if what == "add":
                vectors.add(text)
                held[text] += 1
            elif what == "remove" and held[text]:
                vectors.remove(text)
                held[text] -= 1
            elif what == "catch up":
                vectors.catch_up()
        fresh = filled(embedder, None, *(text for text, count in held.items() for _ in range(count)))
        for each in (vectors, fresh):
            each.catch_up(["a b"])

        assert vectors.nearest("a b", 10) == fresh.nearest("a b", 10)
        assert vectors.average("a b") == fresh.average("a b")
        assert len(vectors) == len(fresh) == sum(map(bool, held.values()))

    def test_drops_rows_that_no_one_holds_when_they_are_the_most(self, embedder: Counting) -> None:
        texts = [str(number) for number in range(1_300)]
        vectors = filled(embedder, None, *texts)
        vectors.catch_up(["1299"])
        for text in texts[:1_250]:
            vectors.remove(text)

        assert len(vectors._texts) < 700
        assert texts_near(vectors, "1299", 1) == ["1299"]
        assert np.allclose(
            vectors._sum, sum(vectors._matrix[row] for row in vectors._row_of.values() if vectors._held[row])
        )
