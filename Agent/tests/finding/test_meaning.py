"""Tests of meaning beside words: it finds what words cannot, spoils nothing, and nothing waits or fails for it."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from Agent.finding import embedder
from Agent.finding.embedder import HashingEmbedder, Meaning
from Agent.finding.index import Index, Unit
from Agent.finding.tree import EmbeddingTree
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.memory import MemoryStore
from Agent.memory.retriever import MemoryRetriever
from Agent.models.lexical_client import LexicalLLMClient
from Agent.store.addresses import open_tree
from Agent.tests.support.clocks import Clock
from Agent.tests.support.examples import share
from Agent.tests.support.threads import in_threads

pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")

from Agent.finding.vectors import CALL_S, RETRY_S, Vectors

LONG = 240.0  # seconds: longer than any test needs
patient_tree = partial(EmbeddingTree, patience_s=LONG)  # on a busy machine, too, all is embedded that waits


class Model(HashingEmbedder):
    """Knows some words that no thesaurus has; keeps its calls, and fails or waits on request."""

    def __init__(self, dimension: int = 256) -> None:
        super().__init__([("dog", "qwibble"), ("car", "zorvane"), ("tea", "绿茶饮")], dimension)
        self.name = "model"
        self.calls: list[list[str]] = []
        self.meanwhile: Callable[[Sequence[str]], object] = lambda texts: None
        self.waits_at: Callable[[Sequence[str]], bool] = lambda texts: False
        self.begun, self.released = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls.append([*texts])
        if self.waits_at(texts):
            self.begun.set()
            self.released.wait(LONG)
        self.meanwhile(texts)
        return super().embed(texts)

    @property
    def asked(self) -> list[str]:
        """What it was asked for, but for what it is tried and compared with."""
        return [text for call in self.calls if "water" not in call for text in call]


def fail(texts: Sequence[str]) -> None:
    raise ConnectionError("no network")


def refuse(*refused: str) -> Callable[[Sequence[str]], None]:
    def meanwhile(texts: Sequence[str]) -> None:
        if not {*texts}.isdisjoint(refused):
            raise ValueError("too long")

    return meanwhile


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def tree(model: Model, tmp_path: Path) -> Iterator[EmbeddingTree]:
    with patient_tree(tmp_path, model) as tree:
        yield tree


def filled(model: Model, *texts: str, path: Path | None = None, clock: Clock | None = None) -> tuple[Index, Vectors]:
    index = Index(None if path is None else str(path), meaning=Meaning(model, LONG))
    index.put(Unit(str(number), text=text) for number, text in enumerate(texts))
    vectors = Vectors(index, Meaning(model, LONG), clock) if clock else index.vectors
    assert vectors is not None
    return index, vectors


def names(tree: KeywordTree, query: str, limit: int = 3) -> list[str]:
    return [node.name for node, _ in tree.RankCandidates(query, limit)]


def nearest(index: Index, query: str) -> str:
    index.ask(query)
    assert index.vectors is not None
    compared = index.vectors.compare(query)
    with index.reading():
        return "" if compared is None else index.read([compared.best(1)[0][0]]).popitem()[1][1]


class TestFinding:
    def test_finds_what_shares_no_word(self, tree: EmbeddingTree) -> None:
        for name in ("the dog", "the ship", "the train"):
            tree.CreateKeyword(name)

        assert names(tree, "my qwibble", 1) == ["the dog"]
        ((_, confidence),) = tree.RankCandidates("qwibble", 1)
        assert confidence > 0.3

    def test_words_that_say_all_of_it_decide(self, tree: EmbeddingTree) -> None:
        tree.CreateKeyword("dog")
        tree.CreateKeyword("qwibble teeth")

        assert names(tree, "qwibble teeth", 2) == ["qwibble teeth", "dog"]

    def test_finds_by_description_alias_confirmed_query_and_info(self, tree: EmbeddingTree) -> None:
        for number in range(30):
            tree.CreateKeyword(f"thing {number}")
        tree.CreateKeyword("Rex", "root", ["dog"])
        tree.CreateKeyword("Herbie", "root", [], "car")
        tree.Confirm("ship", tree.CreateKeyword("Flash").id)
        tree.CreateInfo("It is tea.", keyword_ids=[tree.CreateKeyword("Kettle").id])

        found = [names(tree, query, 1) for query in ("qwibble", "zorvane", "ship", "绿茶饮")]
        assert found == [["Rex"], ["Herbie"], ["Flash"], ["Kettle"]]

    def test_a_short_query_means_the_theme_and_not_what_lies_under_it(self, tree: EmbeddingTree) -> None:
        dog = tree.CreateKeyword("dog")
        for breed in ("poodle", "beagle", "husky"):
            tree.CreateKeyword(breed, dog.id)

        assert names(tree, "qwibble", 4)[0] == "dog"
        assert set(names(tree, "qwibble", 4)) == {"dog", "poodle", "beagle", "husky"}

    def test_what_is_meant_is_shown_and_stands_first(self, tmp_path: Path, model: Model) -> None:
        with patient_tree(tmp_path, model, llm_client=LexicalLLMClient()) as tree:
            anna = tree.CreateKeyword("Anna", "root")
            for text in ("Lives in Berlin.", "Works at a bank.", "dog", "Her son sings."):
                tree.CreateInfo(text, keyword_ids=[anna.id])
            tree.CreateInfo("Sails.", keyword_ids=[tree.CreateKeyword("ship", "root").id])
            found = tree.Search("Anna: qwibble")

        assert found.node is not None
        assert found.node.name == "Anna"
        assert found.infos[0].content == "dog"

    @pytest.mark.parametrize(("text", "is_answer"), [("Anna has a dog.", True), ("Anna sings in a choir.", False)])
    def test_a_name_alone_is_an_answer_where_the_text_is_near(self, text: str, is_answer: bool) -> None:
        class Pets(HashingEmbedder):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return [[1.0, 0.0] if "dog" in text or "qwibble" in text else [0.0, 1.0] for text in texts]

        index = Index(meaning=Meaning(Pets(), LONG))
        index.put([Unit("anna", text=text), Unit("other", text="The fridge is empty.")])
        index.ask("Anna's qwibble")

        (hit,) = index.search("Anna's qwibble", 1)
        assert (hit.id, hit.score >= 0.3) == ("anna", is_answer)

    def test_all_that_bear_a_name_are_found(self, tree: EmbeddingTree) -> None:
        ids = {tree.CreateKeyword("dog", "root").id for _ in range(5)}

        assert {node.id for node, _ in tree.RankCandidates("qwibble", 10)} == ids

    def test_memories_are_found_as_keywords_are(self, tmp_path: Path, model: Model) -> None:
        with MemoryStore(tmp_path, meaning=Meaning(model, LONG)) as store:
            store.remember("Her car is blue.", source="chat")
            for number in range(12):
                store.remember(f"Crate {number} stands in hall {number % 3}.")
            assert store.recall("zorvane", 1)[0].info.content == "Her car is blue."
            assert store.recall("zorvane", kinds=["skill"]) == []
            assert repr(store).endswith("ranked by words and model>")
        with MemoryStore(tmp_path, meaning=False) as store:
            assert store.recall("zorvane") == []
            assert repr(store).endswith("ranked by words>")

    def test_only_what_may_be_found_is(self, model: Model) -> None:
        index = Index(meaning=Meaning(model, LONG))
        index.put(Unit(name, text="dog") for name in "abc")
        index.ask("qwibble")

        assert {hit.id for hit in index.search("qwibble")} == {"a", "b", "c"}
        assert {hit.id for hit in index.search("qwibble", among=frozenset("bc"))} == {"b", "c"}
        assert {hit.id for hit in index.search("qwibble", among=lambda ids: {"c"})} == {"c"}

    def test_the_first_is_the_same_for_any_limit(self, model: Model) -> None:
        index = Index(meaning=Meaning(model, LONG))
        index.put(Unit(str(at), text=f"dog {at % 7} car {at % 5} ship") for at in range(60))
        for query in ("qwibble 3", "zorvane 2 ship", "dog 4 qwibble"):
            index.ask(query)
            assert index.search(query, 1) == index.search(query, 10)[:1]

    def test_the_only_text_is_no_answer_to_another_question(self, model: Model) -> None:
        index, _ = filled(model, "Our dog Biscuit is afraid of fireworks.")
        for question, is_answer in (("who won the world cup?", False), ("is the qwibble afraid of fireworks?", True)):
            index.ask(question)
            assert [hit.score >= 0.3 for hit in index.search(question, 1)] == ([True] if is_answer else [False])

    def test_among_many_texts_that_are_as_near_the_words_decide(self, model: Model) -> None:
        others = [f"ship {at} sails" for at in range(60)]
        for dogs, first in ((15, "collar on the porch"), (1, "dog 0 ran")):
            texts = [*others, *(f"dog {at} ran" for at in range(dogs)), "collar on the porch"]
            index, _ = filled(model, *texts)
            index.ask("qwibble collar supper garden")

            assert texts[int(index.search("qwibble collar supper garden")[0].id)] == first

    def test_a_script_that_the_model_does_not_read_is_left_to_words(self, tree: EmbeddingTree, model: Model) -> None:
        model.reads = lambda text: text.isascii()  # type: ignore[attr-defined]  # an optional part of the port
        tree.CreateKeyword("绿茶")
        tree.CreateKeyword("dog")

        assert names(tree, "绿茶", 1) == ["绿茶"]
        assert (tree.catch_up(), model.asked) == (0, ["dog"])
        assert tree.recall.Fit("绿茶").note == ""

    def test_a_question_without_a_word_is_ranked_by_meaning(self, tree: EmbeddingTree, model: Model) -> None:
        model._means = {"🐍": "snake"}
        for name in ("snake", "ship", "train"):
            tree.CreateKeyword(name, "root")

        assert names(tree, "🐍", 1) == ["snake"]


class TestKeepingUp:
    def test_what_a_change_leaves_is_not_read_again(self, tree: EmbeddingTree, model: Model) -> None:
        food = tree.CreateKeyword("food", "root", [], "eaten")
        soup, place = tree.CreateKeyword("soup", food.id), tree.CreateKeyword("home")
        tree.CreateInfo("Warm it.", keyword_ids=[soup.id])
        tree.catch_up()
        model.calls.clear()
        tree.CreateInfo("Salt it.", keyword_ids=[soup.id])
        tree.catch_up()
        assert model.asked == ["soup: Salt it."]
        model.calls.clear()
        tree.MoveKeyword(soup.id, place.id)
        tree.catch_up()
        assert model.asked == ["soup", "home / soup"]
        model.calls.clear()
        tree.UpdateKeyword(place.id, {"name": "house"}, tree.GetKeyword(place.id).version)  # type: ignore[union-attr]
        tree.catch_up()
        assert set(model.asked) == {"house", "soup", "house / soup"}

    def test_opening_again_reads_nothing_again(self, tree: EmbeddingTree, tmp_path: Path) -> None:
        tree.CreateKeyword("dog")
        tree.catch_up()
        tree.Close()
        again = Model()
        with patient_tree(tmp_path, again) as tree:
            assert names(tree, "qwibble", 1) == ["dog"]
        assert again.asked == ["qwibble"]

    def test_what_another_process_wrote_and_read_is_found(self, tree: EmbeddingTree, tmp_path: Path) -> None:
        tree.CreateKeyword("ship")
        names(tree, "qwibble")
        with patient_tree(tmp_path, Model()) as other:
            other.CreateKeyword("dog")
            assert names(other, "qwibble", 1) == ["dog"]
        tree.Refresh()

        assert names(tree, "qwibble", 1) == ["dog"]

    def test_no_byte_of_what_is_forgotten_stays(self, tree: EmbeddingTree, model: Model, tmp_path: Path) -> None:
        gone = tree.CreateKeyword("my secret diagnosis", "root")
        tree.CreateKeyword("dog", "root")
        tree.catch_up()
        secret = tree.recall.vectors._embed(["my secret diagnosis"])[0].astype("<f2").tobytes()
        path = tmp_path / "indexes" / "keywords.db"
        assert secret in path.read_bytes()
        with KeywordTree(str(tmp_path)) as other:
            other.DeleteKeyword(gone.id)
        tree.CompactStorage(keep_history=False)

        assert not path.exists() or secret not in path.read_bytes()
        assert (tree.recall.vectors.catch_up(), names(tree, "qwibble", 1)) == (0, ["dog"])

    def test_the_newest_are_read_first_and_a_note_counts_the_others(self, model: Model) -> None:
        index, vectors = filled(model, *(f"text {number}" for number in range(300)))
        model.waits_at = lambda texts: "text 200" in texts
        impatient = Vectors(index, Meaning(model, 0.2))
        note = impatient.ask("what?")

        assert impatient.failure == ""
        assert note == f"{impatient.left:,} texts have no vector yet: words alone find them"
        assert 100 < impatient.left < 300
        model.released.set()
        assert (vectors.catch_up(), vectors.ask("what?")) == (0, "")
        assert model.asked.index("text 299") < model.asked.index("text 100") < model.asked.index("text 0")

    def test_vectors_of_another_model_are_made_again_where_it_was_given(self, tmp_path: Path) -> None:
        index, vectors = filled(Model(), "dog", path=tmp_path / "index.db")
        vectors.catch_up()
        index.close()
        other = Model()
        other.name = "another"
        found = Index(str(tmp_path / "index.db"), meaning=Meaning(other, LONG))
        unasked = Meaning(other, LONG)
        unasked.is_given = False
        kept = Vectors(found, unasked)
        found.put([Unit("new", text="car")])
        note = "words ranked alone: ValueError: the vectors that are kept are those of 'model, 256 numbers'"
        assert kept.ask("qwibble") == note
        assert nearest(found, "qwibble") == "dog"
        assert {*other.asked[-2:]} == {"car", "dog"}

    def test_another_dimension_under_the_same_name_is_noticed(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        for dimension in (256, 32):
            index, _ = filled(Model(dimension), "dog", "car", path=tmp_path / "index.db")
            index.ask("qwibble")
            assert nearest(index, "qwibble") == "dog"
            index.close()

        message = "all texts are embedded again, by model, 32 numbers: those kept were by model, 256 numbers"
        assert caplog.messages == [message]

    def test_questions_of_another_dimension_than_texts_are_a_failure(self, model: Model) -> None:
        model.embed_queries = Model(32).embed  # type: ignore[attr-defined]  # an optional part of the port
        index, vectors = filled(model, "dog")
        vectors.catch_up()

        note = "words ranked alone: ValueError: 'model' gives questions and texts of different lengths"
        assert index.ask("qwibble") == note
        assert [hit.id for hit in index.search("dog")] == ["0"]

    def test_a_damaged_row_of_vectors_has_all_made_again(self, model: Model, tmp_path: Path) -> None:
        with patient_tree(tmp_path, model) as tree:
            tree.CreateKeyword("dog")
            assert names(tree, "qwibble", 1) == ["dog"]
            with sqlite3.connect(tmp_path / "indexes" / "keywords.db") as db:
                db.execute("insert into vector(document, text, data) values (2, 0, x'00')")
            db.close()
            assert names(tree, "our dog", 1) == ["dog"]
            assert names(tree, "qwibble", 1) == ["dog"]

    def test_a_text_of_2000_characters_and_a_lone_surrogate_are_read(self, model: Model) -> None:
        _, vectors = filled(model, "long " * 1_000, "half \ud800 a pair")
        assert vectors.catch_up() == 0
        assert {len(text) for text in model.asked} == {2_000, len("half ? a pair")}


class TestFailing:
    def test_words_alone_rank_as_they_do_without_a_model_and_a_note_says_so(
        self, tree: EmbeddingTree, model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        model.meanwhile = fail
        with KeywordTree(str(tmp_path / "plain")) as plain:
            for name in ("dog food", "ship", "dog"):
                for each in (tree, plain):
                    each.CreateKeyword(name, "root")
            ours, theirs = ([(n.name, score) for n, score in each.RankCandidates("dog")] for each in (tree, plain))

        assert ours == theirs
        note = "words ranked alone: ConnectionError: no network"
        assert (tree.recall.Fit("dog").note, tree.Search("a dog in the yard").note) == (note, note)
        assert caplog.messages == ["embedding with model failed, words rank alone: ConnectionError: no network"]
        assert tree.catch_up() == 3
        model.meanwhile = lambda texts: None
        assert tree.catch_up() == 0
        assert (tree.recall.Fit("dog").note, tree.Search("a dog in the yard").note) == ("", "")

    def test_the_model_is_left_alone_for_a_while(self, model: Model) -> None:
        clock = Clock()
        _, vectors = filled(model, "dog", clock=clock)
        model.meanwhile = fail
        vectors.ask("one")
        calls = len(model.calls)
        vectors.ask("two")
        assert len(model.calls) == calls
        clock.now += RETRY_S + 1
        model.meanwhile = lambda texts: None
        assert vectors.ask("two") == ""

    def test_a_text_that_is_refused_keeps_neither_others_nor_questions_back(
        self, model: Model, caplog: pytest.LogCaptureFixture
    ) -> None:
        _, vectors = filled(model, *(f"text {number}" for number in range(200)))
        model.meanwhile = refuse("text 3", "text 150")

        assert (vectors.ask("one"), vectors.catch_up(), vectors.refused, vectors.failure) == ("", 0, 2, "")
        assert caplog.messages == ["model refuses 'text 150', which has no vector: ValueError: too long"]
        model.calls.clear()
        vectors.catch_up()
        assert model.calls == []

    def test_a_question_that_is_refused_lets_others_be_answered(self, model: Model) -> None:
        index, vectors = filled(model, "dog")
        model.meanwhile = refuse("bad")

        assert vectors.ask("bad") == "words ranked alone: 'model' does not take the question"
        assert (vectors.ask("qwibble"), nearest(index, "qwibble")) == ("", "dog")

    @pytest.mark.parametrize(
        "answer",
        [[[1.0]], [[1.0, 2.0], [1.0]], [[], []], [[math.nan, 1.0]] * 2, [["one", "two"]] * 2, None, SystemExit(3)],
    )
    def test_an_answer_that_makes_no_sense_is_a_failure(self, answer: Any) -> None:
        class Silly:
            name = "silly"

            def embed(self, texts: Sequence[str]) -> Any:
                if isinstance(answer, BaseException):
                    raise answer
                return answer

        index = Index(meaning=Silly())
        index.put([Unit("a", text="dog"), Unit("b", text="car")])

        assert index.ask("what?").startswith("words ranked alone: ")
        assert [hit.id for hit in index.search("dog")] == ["a"]

    @pytest.mark.parametrize("scale", [1e-200, 1e200])
    def test_huge_and_tiny_numbers_are_as_good_as_others(self, scale: float, model: Model) -> None:
        class Scaled(Model):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                return [[scale * number for number in vector] for vector in super().embed(texts)]

        index, _ = filled(Scaled(), "dog", "car")
        assert nearest(index, "qwibble") == "dog"

    def test_a_wrong_argument_is_refused_and_does_not_reach_the_model(self, tree: EmbeddingTree, model: Model) -> None:
        tree.CreateKeyword("dog", "root")
        for query, limit in (("a lone surrogate \ud800", 10), ("qwibble", -1)):
            with pytest.raises(InvalidInputError):
                tree.RankCandidates(query, limit)
        with pytest.raises(InvalidInputError, match="ranker cannot be chosen here"):
            EmbeddingTree("nowhere", model, ranker=None)

        assert (model.calls, tree.recall.vectors.failure) == ([], "")
        tree.Close()
        with pytest.raises(Exception, match="closed"):
            tree.catch_up()


class TestLate:
    def test_a_question_waits_for_a_model_that_is_loaded_besides_its_patience(self, model: Model) -> None:
        model.load = partial(time.sleep, 0.6)  # type: ignore[attr-defined]  # an optional part of the port
        index = Index(meaning=Meaning(model, patience_s=0.5))
        index.put([Unit("dog", text="dog"), Unit("ship", text="ship")])

        assert index.ask("qwibble") == ""
        assert index.search("qwibble")[0].id == "dog"

    def test_a_model_that_cannot_be_loaded_has_failed(self, model: Model) -> None:
        model.load = lambda: 1 / 0  # type: ignore[attr-defined]  # an optional part of the port
        _, vectors = filled(model, "dog")

        assert vectors.ask("qwibble") == "words ranked alone: ZeroDivisionError: division by zero"

    def test_words_rank_alone_the_log_says_so_once_and_nothing_is_lost(
        self, model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        model.waits_at = lambda texts: True
        with EmbeddingTree(tmp_path, model, patience_s=0.01, llm_client=LexicalLLMClient()) as tree:
            dog = tree.CreateKeyword("dog", "root")
            tree.CreateKeyword("ship", "root")
            for _ in range(2):
                found = tree.Search("our dog").node
                assert found is not None
                assert found.id == dog.id
            assert tree.recall.vectors.failure == "TimeoutError: no answer within 0.01 s"
            reported = "embedding with model failed, words rank alone: TimeoutError: no answer within 0.01 s"
            assert caplog.messages == [reported]

            model.released.set()
            assert (tree.catch_up(), tree.recall.vectors.failure) == (0, "")
        with patient_tree(tmp_path, model) as tree:
            assert names(tree, "qwibble", 1) == ["dog"]

    def test_closing_waits_for_no_late_model_and_writes_nothing_after_it(self, model: Model, tmp_path: Path) -> None:
        model.waits_at = lambda texts: True
        with EmbeddingTree(tmp_path, model, patience_s=0.01) as tree:
            tree.CreateKeyword("dog", "root")
            names(tree, "dog")
            vectors = tree.recall.vectors
        assert not model.released.is_set()
        before = (tmp_path / "indexes" / "keywords.db").read_bytes()
        model.released.set()
        with vectors._changed:
            assert vectors._changed.wait_for(lambda: vectors._thread is None, LONG)

        assert (tmp_path / "indexes" / "keywords.db").read_bytes() == before

    def test_a_late_answer_brings_nothing_back_that_was_forgotten(self, model: Model, tmp_path: Path) -> None:
        model.waits_at = lambda texts: "my secret diagnosis" in texts
        with EmbeddingTree(tmp_path, model, patience_s=0.01) as tree:
            dog, gone = (tree.CreateKeyword(name, "root") for name in ("dog", "my secret diagnosis"))
            names(tree, "dog")
            assert model.begun.wait(LONG)
            tree.UpdateKeyword(dog.id, {"name": "car"}, dog.version)
            tree.DeleteKeyword(gone.id)
            assert names(tree, "car", 1) == ["car"]
            model.released.set()
            tree.catch_up()
            (count,) = tree.recall.index.reading().__enter__().execute("select count(*) from vector").fetchone()

            assert count == 1
            assert names(tree, "zorvane", 1) == ["car"]

    def test_a_model_is_asked_though_its_asker_had_gone_before_its_thread_began(self, model: Model) -> None:
        index, begin = Index(meaning=Meaning(model, patience_s=0.01)), threading.Event()
        index.put([Unit("dog", text="dog")])
        vectors: Any = index.vectors
        run = vectors._run
        vectors._run = lambda: run() if begin.wait(LONG) else None
        assert index.ask("qwibble") == "words ranked alone: TimeoutError: no answer within 0.01 s"
        begin.set()
        with vectors._changed:
            assert vectors._changed.wait_for(lambda: vectors._thread is None, LONG)
        assert (index.search("qwibble")[0].id, vectors.failure) == ("dog", "")

    def test_others_read_and_write_while_the_model_thinks(self, tree: EmbeddingTree, model: Model) -> None:
        tree.CreateKeyword("dog")
        done: list[str] = []

        def write() -> None:
            done.append(tree.CreateKeyword("written meanwhile").name)
            done.append(tree.Search("dog").status.value)

        def run_and_wait(texts: Sequence[str]) -> None:
            model.meanwhile = lambda texts: None
            other = threading.Thread(target=write)
            other.start()
            other.join(30.0)

        model.meanwhile = run_and_wait
        assert names(tree, "qwibble", 1) == ["dog"]
        assert done == ["written meanwhile", "matched"]

    def test_texts_go_to_a_slow_model_a_few_at_a_time(self, model: Model) -> None:
        clock = Clock()
        _, vectors = filled(model, *(f"text {number}" for number in range(100)), clock=clock)

        def take(texts: Sequence[str]) -> None:
            clock.now += CALL_S * len(texts) / 5

        model.meanwhile = take
        vectors.catch_up()
        calls = [len(call) for call in model.calls if "water" not in call]

        assert sum(calls) == 100
        assert max(calls) <= 8

    def test_many_threads_get_their_answers(self, model: Model) -> None:
        index, _ = filled(model, "dog", "car", "tea")
        wanted = {"qwibble": "dog", "zorvane": "car", "绿茶饮": "tea"}
        found = list[tuple[str, str]]()
        in_threads(lambda query: found.append((query, nearest(index, query))), [*wanted] * 4)

        assert sorted(found) == sorted([*wanted.items()] * 4)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
    def test_a_child_that_is_forked_while_it_reads_asks_for_itself(self) -> None:
        program = """
import os, signal, threading, warnings
from Agent.finding.index import Index, Unit
from Agent.tests.finding.test_meaning import LONG, Meaning, Model, nearest

warnings.simplefilter("ignore", DeprecationWarning)  # that fork and threads do not go together is what is tested
model = Model()
model.waits_at = lambda texts: "dog" in texts
index = Index(meaning=Meaning(model, 0.2))
index.put([Unit("a", text="dog"), Unit("b", text="car")])
index.ask("first")
model.begun.wait(LONG)
child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that hangs is killed
    own = Index(meaning=Meaning(Model(), LONG))
    own.put([Unit("a", text="dog"), Unit("b", text="car")])
    index.vectors._embedder.released.set()
    print(nearest(own, "qwibble"), index.ask("zorvane") is not None, flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

        assert ended.stdout == "dog True\n0\n", ended.stderr

    def test_a_system_that_gives_no_thread_is_a_failure(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        index, _ = filled(model, "dog")

        def refuse_to_start(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
        assert index.ask("qwibble") == "words ranked alone: RuntimeError: can't start new thread"
        assert [hit.id for hit in index.search("dog")] == ["0"]

    def test_ctrl_c_ends_the_waiting(self, model: Model) -> None:
        index, _ = filled(model, "dog")

        def interrupt(texts: Sequence[str]) -> None:
            model.meanwhile = lambda texts: None
            signal.raise_signal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else (
                os.kill(os.getpid(), signal.SIGINT)
            )
            model.released.wait(LONG)

        model.meanwhile = interrupt
        with pytest.raises(KeyboardInterrupt):
            index.ask("qwibble")
        model.released.set()

        assert nearest(index, "qwibble") == "dog"


TEXTS = st.sampled_from(["dog", "qwibble", "a quick car", "绿茶饮", "ship", "rapid rivers"])
STEPS = st.lists(st.tuples(st.sampled_from("12345"), st.none() | st.tuples(TEXTS, st.none() | TEXTS)), max_size=20)


class TestAnyOrder:
    @share(0.5)
    @given(STEPS, TEXTS)
    @example(
        [("1", ("ship", None)), ("2", ("a quick car", "dog")), ("1", ("qwibble", None)), ("1", ("dog", "ship"))], "dog"
    )
    def test_ranks_exactly_as_one_that_is_made_afresh(
        self, steps: list[tuple[str, tuple[str, str | None] | None]], query: str
    ) -> None:
        with TemporaryDirectory() as folder, patient_tree(folder, Model()) as tree:
            made = dict[str, str]()
            for number, said in steps:
                if number in made:
                    tree.DeleteKeyword(made.pop(number))
                if said is not None:
                    made[number] = tree.CreateKeyword(said[0], "root", description=said[1] or "").id
                tree.recall.Fit(query)
            fresh = Index(meaning=Meaning(Model(), LONG))
            fresh.put(
                Unit(id, [node.name], node.description)
                for id in made.values()
                if (node := tree.GetKeyword(id)) is not None
            )
            fresh.ask(query)
            ours = tree.recall.Fit(query)
            with fresh.reading():
                theirs = fresh.rank(query, 200).scores

            assert {id: one.score for id, one in ours.evidence.items()} == pytest.approx(theirs)


def test_the_package_names_its_doors_under_its_former_name_too() -> None:
    import Agent.embeddings as doors  # type: ignore[import-untyped]  # made at run time

    assert doors.EmbeddingTree is EmbeddingTree
    assert all(getattr(doors, name).__name__ == name for name in doors.__all__)
    with pytest.raises(AttributeError, match="'Door'"):
        doors.Door  # noqa: B018  asking is what raises


@pytest.mark.parametrize("is_off", [False, True])
def test_of_a_tree_is_that_of_what_is_made_of_it(is_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "_installed", lambda: Meaning(Model(), LONG))
    with open_tree(tmp_path, meaning=False if is_off else HashingEmbedder([("zorp", "quux")])) as tree:
        node = tree.CreateKeyword("quux", "root", llm_auto_place=False)
        info = tree.CreateInfo("The quux is blue.")
        asked = [each.info.id for each in MemoryRetriever(tree).retrieve("zorp", 1)]
        ranked = [each.id for each, _ in tree.RankCandidates("zorp", 1)]

    assert (ranked, asked) == (([], []) if is_off else ([node.id], [info.id]))
