"""Tests of `ranker`: memories by similarity, fused with the full text by the retriever."""

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.ranker import EmbeddingRanker
from Agent.embeddings.scripts import PROBES
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.memory.retriever import MemoryRetriever

patient_ranker = partial(EmbeddingRanker, patience_s=240.0)  # on a busy machine, too, all is embedded that waits
ENGLISH = list(zip(PROBES["LATIN"][::2], PROBES["LATIN"][1::2], strict=True))


class Failing(HashingEmbedder):
    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        raise TimeoutError("too slow")


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder([("car", "automobile"), *ENGLISH])


def contents(retriever: MemoryRetriever, question: str, limit: int = 5) -> list[str]:
    return [found.info.content for found in retriever.retrieve(question, limit)]


class TestRank:
    def test_finds_what_shares_no_word(self, tree: KeywordTree, embedder: HashingEmbedder) -> None:
        retriever = MemoryRetriever(tree, ranker=patient_ranker(embedder))
        tree.CreateInfo("a red car")
        tree.CreateInfo("a green tree")

        assert contents(retriever, "automobile", 1) == ["a red car"]

    @pytest.mark.parametrize("others", [[], ["a green tree"], ["a green tree"] * 9])
    def test_few_memories_are_found_as_well(self, others: list[str], embedder: HashingEmbedder) -> None:
        """The average that counts is that of the others."""
        ranker = patient_ranker(embedder)
        for number, text in enumerate(["automobile", *others]):
            ranker.Add(str(number), [(text, 1.0)])

        nearness, id = ranker.Rank("car")[0]
        assert id == "0"
        assert nearness == pytest.approx(1.0, abs=0.02)
        assert all(abs(nearness) < 0.05 for nearness, _ in ranker.Rank("car")[1:])

    def test_one_of_many_that_are_as_near_says_little(self, embedder: HashingEmbedder) -> None:
        ranker = patient_ranker(embedder)
        for number in range(40):
            ranker.Add(str(number), [(f"a car {number}" if number < 12 else f"the ship {number}", 1.0)])

        (first, id), *_ = ranker.Rank("automobile")
        assert int(id) < 12
        assert first < 0.4  # by itself it is much nearer than that to the question

    def test_follows_the_log(self, tree: KeywordTree, embedder: HashingEmbedder, tmp_path: Path) -> None:
        ranker = patient_ranker(embedder, tmp_path)
        retriever = MemoryRetriever(tree, ranker=ranker)
        info = tree.CreateInfo("car")
        tree.CreateInfo("ship")
        assert contents(retriever, "automobile", 1) == ["car"]

        tree.DeleteInfo(info.id)
        assert "car" not in contents(retriever, "automobile")
        assert len(ranker.vectors) == 1
        assert [path.name.partition("-")[0] for path in (tmp_path / "indexes").iterdir()] == ["infos"]

    def test_each_passage_counts_for_the_memory(self, embedder: HashingEmbedder) -> None:
        ranker = patient_ranker(embedder)
        ranker.Add("1", [("ship", 1.0), ("car", 1.0), ("car", 1.0)])
        ranker.Add("2", [("ship", 1.0)])
        assert [id for _, id in ranker.Rank("automobile")] == ["1", "2"]

        ranker.Add("1", [("tree", 1.0)])
        ranker.Remove("2")
        ranker.Remove("unknown")
        assert [id for _, id in ranker.Rank("automobile")] == ["1"]
        assert len(ranker.vectors) == 1

    def test_leaves_a_script_that_the_model_does_not_know_to_the_words(self, embedder: HashingEmbedder) -> None:
        ranker = patient_ranker(embedder)
        ranker.Add("1", [("绿茶", 1.0)])

        assert ranker.Rank("茶") == []
        assert ranker.Rank("tea") != []
        assert ranker.trust == {"CJK": 0.0, "LATIN": 1.0}

    def test_believes_a_model_where_it_is_set_to(self, embedder: HashingEmbedder) -> None:
        ranker = patient_ranker(embedder, trust={"CJK": 0.5})
        ranker.Add("1", [("绿茶", 1.0)])

        assert ranker.Rank("茶") != []

    def test_refuses_what_is_no_embedder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="embedder must have a name"):
            patient_ranker("model", tmp_path)  # type: ignore[arg-type]  # what is tested

    def test_words_answer_where_the_model_is_late_and_nothing_is_lost(
        self, tree: KeywordTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        released = threading.Event()

        class Slow(HashingEmbedder):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                released.wait(240.0)
                return super().embed(texts)

        ranker = EmbeddingRanker(Slow([("car", "automobile"), *ENGLISH]), tmp_path, patience_s=0.01)
        retriever = MemoryRetriever(tree, ranker=ranker)
        tree.CreateInfo("a red car")
        tree.CreateInfo("a green tree")
        for question in ("red", "red car"):
            assert contents(retriever, question)[0] == "a red car"
            (found,) = retriever.retrieve(question, 1)
            assert found.note == "words ranked alone: TimeoutError: no answer within 0.01 s"
        assert [message.rpartition(": ")[2] for message in caplog.messages] == ["no answer within 0.01 s"]

        released.set()
        assert (ranker.catch_up(), ranker.vectors.failure, len(ranker.vectors)) == (0, "", 2)
        ranker.vectors.catch_up(["automobile", *(word for words in ENGLISH for word in words)])
        assert contents(retriever, "automobile", 1) == ["a red car"]

    def test_all_that_waits_is_read_after_the_first_answer_until_it_is_closed(self, embedder: HashingEmbedder) -> None:
        ranker = patient_ranker(embedder)
        for number in range(300):
            ranker.Add(str(number), [(f"memory {number}", 1.0)])
        assert ranker.Rank("memory 7")[0][1] == "7"
        assert (ranker.vectors.waiting, len(ranker.vectors)) == (0, 300)

        ranker.close()
        ranker.Add("new", [("automobile", 1.0)])
        assert ranker.Rank("memory 7")[0][1] == "7"
        assert ranker.vectors.waiting == 1

    def test_words_answer_where_the_model_fails(self, tree: KeywordTree) -> None:
        ranker = patient_ranker(Failing(ENGLISH))
        tree.CreateInfo("a red car")

        assert contents(MemoryRetriever(tree, ranker=ranker), "car") == ["a red car"]
        assert ranker.vectors.failure == "TimeoutError: too slow"

    def test_words_answer_and_say_so_where_the_model_ends_its_thread(self, tree: KeywordTree) -> None:
        class Ending(HashingEmbedder):
            def embed(self, texts: Sequence[str]) -> list[list[float]]:
                raise SystemExit(3)

        ranker = patient_ranker(Ending(ENGLISH))
        tree.CreateInfo("a red car")
        found = MemoryRetriever(tree, ranker=ranker).retrieve("car")

        reason = "RuntimeError: the model ended its thread: SystemExit(3)"
        assert [each.note for each in found] == [f"words ranked alone: {reason}"]
