"""Tests of `recall`: meaning finds what words cannot, spoils nothing, and nothing waits or fails for it."""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from Agent.embeddings.embedder import HashingEmbedder
from Agent.embeddings.recall import EmbeddingTree
from Agent.embeddings.scripts import PROBES
from Agent.embeddings.vectors import _digest
from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import ClosedError, InvalidInputError, KeywordTree, LLMClient, SearchStatus
from Agent.models.lexical_client import LexicalLLMClient
from Agent.tests.support.examples import share

pytestmark = pytest.mark.usefixtures("own_words")

SYNONYMS = [("dog", "canine"), ("car", "automobile"), ("quick", "rapid"), ("tea", "绿茶")]
patient_tree = partial(EmbeddingTree, patience_s=240.0)  # on a busy machine, too, all is embedded that waits
ENGLISH, CHINESE = (list(zip(words[::2], words[1::2], strict=True)) for words in (PROBES["LATIN"], PROBES["CJK"]))


class English(HashingEmbedder):
    """Knows English, as far as it was given, and no other script; keeps what it was asked, and can be down."""

    def __init__(self, pairs: Sequence[Sequence[str]] = ENGLISH) -> None:
        super().__init__([*SYNONYMS, *pairs])
        self.asked: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        self.meanwhile()
        return super().embed(texts)


class Given:
    """A model whose similarities are given: of each text to any question, 0.8 where nothing is said."""

    name = "given"

    def __init__(self, **similarities: float) -> None:
        self.similarities = {name.replace("_", " "): similarity for name, similarity in similarities.items()}

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        reported = [self.similarities.get(text, 0.8) for text in texts]
        return [[similarity, math.sqrt(1.0 - similarity * similarity), 0.0] for similarity in reported]

    def embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
        words = {word for words in PROBES.values() for word in words}
        return [[0.8, 0.6, 0.0] if text in words else [1.0, 0.0, 0.0] for text in texts]


class Chooses(LLMClient):
    """Matches the candidate of this name where it is shown."""

    def __init__(self, name: str) -> None:
        self.name = name

    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        candidates = json.loads(messages[-1]["content"])["candidates"]
        shown = [candidate["idx"] for candidate in candidates if candidate["name"] == self.name]
        return {"action": "match", "node_ids": shown} if shown else {"action": "missing"}


def fail() -> None:
    raise ConnectionError("no network")


@pytest.fixture
def embedder() -> English:
    return English()


@pytest.fixture
def tree(embedder: English, tmp_path: Path) -> Iterator[EmbeddingTree]:
    with patient_tree(tmp_path, embedder) as tree:
        yield tree


def names(tree: KeywordTree, query: str, limit: int = 3) -> list[str]:
    return [node.name for node, _ in tree.RankCandidates(query, limit)]


class TestFinding:
    def test_finds_what_shares_no_word(self, tree: EmbeddingTree) -> None:
        for name in ("the dog", "the ship", "the train"):
            tree.CreateKeyword(name)

        assert names(tree, "my canine", 1) == ["the dog"]
        ((_, confidence),) = tree.RankCandidates("canine", 1)
        assert confidence > 0.3

    def test_words_that_explain_the_query_decide(self, tree: EmbeddingTree) -> None:
        tree.CreateKeyword("dog")
        tree.CreateKeyword("canine teeth")

        assert names(tree, "canine teeth") == ["canine teeth", "dog"]

    def test_finds_by_description_alias_and_confirmed_query(self, tree: EmbeddingTree) -> None:
        for number in range(30):
            tree.CreateKeyword(f"thing {number}")
        tree.CreateKeyword("Rex", "root", ["dog"])
        tree.CreateKeyword("Herbie", "root", [], "car")
        flash = tree.CreateKeyword("Flash")
        tree.Confirm("quick", flash.id)

        assert [names(tree, query, 1) for query in ("canine", "automobile", "rapid")] == [
            ["Rex"],
            ["Herbie"],
            ["Flash"],
        ]

    def test_a_short_query_means_the_theme_and_not_what_lies_under_it(self, tree: EmbeddingTree) -> None:
        dog = tree.CreateKeyword("dog")
        for breed in ("poodle", "beagle", "husky"):
            tree.CreateKeyword(breed, dog.id)

        assert names(tree, "canine", 4)[0] == "dog"
        assert set(names(tree, "canine", 4)) == {"dog", "poodle", "beagle", "husky"}

    def test_what_is_hardly_nearer_than_others_gains_little(self, tmp_path: Path) -> None:
        """The nearest of what is all alike says nothing, however little the words say."""
        with EmbeddingTree(tmp_path, Given(tea_house=0.81), trust=1.0) as tree:
            for name in ("harbour", "tea house", *(f"thing {number}" for number in range(20))):
                tree.CreateKeyword(name, "root")
            tree.catch_up()

            assert names(tree, "when does the early ferry leave this small harbour", 1) == ["harbour"]

    def test_a_narrow_band_of_similarities_is_as_good_as_the_whole_scale(self, tmp_path: Path) -> None:
        with EmbeddingTree(tmp_path, Given(tea_house=0.92), trust=1.0) as tree:
            for name in ("harbour", "tea house", *(f"thing {number}" for number in range(20))):
                tree.CreateKeyword(name, "root")
            tree.catch_up()

            assert names(tree, "where do I get something warm, far from the harbour", 1) == ["tea house"]

    def test_what_is_near_is_not_put_back_since_it_shares_no_word(self, tmp_path: Path) -> None:
        with EmbeddingTree(tmp_path, Given(tea_house=0.857), trust=1.0) as tree:
            tree.CreateKeyword("harbour", "root", description="boats")
            tree.CreateKeyword("tea house", "root", description="kettles")
            for number in range(20):
                tree.CreateKeyword(f"thing {number}", "root", description="stuff")
            tree.catch_up()

            assert names(tree, "something warm, harbour", 2) == ["tea house", "harbour"]

    def test_a_theme_that_is_nearest_comes_first_where_no_word_is_known(self, tmp_path: Path) -> None:
        with EmbeddingTree(tmp_path, Given(drinks=0.9, tea=0.885), trust=1.0) as tree:
            drinks = tree.CreateKeyword("drinks", "root")
            tree.CreateKeyword("tea", drinks.id)
            for number in range(20):
                tree.CreateKeyword(f"thing {number}", "root")
            tree.catch_up()

            assert names(tree, "各种饮料", 2) == ["drinks", "tea"]

    @pytest.mark.parametrize(("similarity", "is_found"), [(0.845, False), (0.9, True)])
    def test_what_nothing_answers_is_refused(self, similarity: float, is_found: bool, tmp_path: Path) -> None:
        with EmbeddingTree(tmp_path, Given(tea=similarity), trust=1.0, llm_client=LexicalLLMClient()) as tree:
            for name in ("tea", *(f"thing {number}" for number in range(20))):
                tree.CreateKeyword(name, "root")
            tree.catch_up()
            found = tree.Search("明天会下雨吗")

            assert (found.node is not None) == is_found
            assert [node.name for node, _ in tree.RankCandidates("明天会下雨吗", 1)] == ["tea"]

    def test_a_new_keyword_is_compared_by_its_description_too(self, embedder: English, tmp_path: Path) -> None:
        with patient_tree(tmp_path, embedder, llm_client=Chooses("dog")) as tree:
            dog = tree.CreateKeyword("dog", "root")
            for number in range(80):
                tree.CreateKeyword(f"theme {number}", "root")
            made = tree.CreateKeyword("Rex", description="canine")

        assert made.parent_id == dog.id
        assert "Rex: canine" in embedder.asked

    def test_a_model_is_shown_what_is_near(self, embedder: English, tmp_path: Path) -> None:
        answers = []
        for folder, down in (("up", lambda: None), ("down", fail)):
            embedder.meanwhile = down
            with patient_tree(tmp_path / folder, embedder, llm_client=Chooses("dog")) as tree:
                group = tree.CreateKeyword("group", "root")
                tree.CreateKeyword("dog", group.id)
                for number in range(80):
                    tree.CreateKeyword(f"theme {number}", "root")
                tree.catch_up()
                answers.append(tree.Search("which canine").status)

        assert answers == [SearchStatus.MATCHED, SearchStatus.NOT_FOUND]

    def test_nothing_is_embedded_where_no_one_asks(self, tree: EmbeddingTree, embedder: English) -> None:
        tree.CreateKeyword("dog", "root")
        tree.CreateKeyword("left to a silent model")
        assert tree.Search("canine", llm_expand_query=False).status is SearchStatus.NOT_FOUND
        assert tree.Search("dog").node is not None

        assert embedder.asked == []

    def test_a_search_without_a_model_tells_what_is_nearest(self, tree: EmbeddingTree) -> None:
        for name in ("dog", "ship", "train"):
            tree.CreateKeyword(name, "root")
        found = tree.Search("canine")

        assert found.status is SearchStatus.NOT_FOUND
        assert [(node.name, confidence > 0.3) for node, confidence in found.nearest[:1]] == [("dog", True)]

    @pytest.mark.parametrize("query", ["🐍", "!?", "—", "_"])
    def test_a_query_without_a_word_is_ranked_by_similarity(self, query: str, tmp_path: Path) -> None:
        embedder = English([*ENGLISH, ("snake", query)])
        with patient_tree(tmp_path, embedder, llm_client=Chooses("snake")) as tree:
            for name in ("snake", "ship", "train"):
                tree.CreateKeyword(name, "root")

            ((node, confidence),) = tree.RankCandidates(query, 1)
            assert (node.name, confidence > 0.8) == ("snake", True)
            found = tree.Search(query).node
            assert found is not None
            assert found.name == "snake"
            assert tree.CreateKeyword(query, "root").name == query

    def test_a_text_that_many_bear_is_found_at_all_of_them(self, tree: EmbeddingTree) -> None:
        ids = {tree.CreateKeyword("dog", "root").id for _ in range(5)}

        assert {node.id for node, _ in tree.RankCandidates("canine", 10)} == ids

    def test_a_client_that_goes_by_scores_sees_similarity(self, embedder: English, tmp_path: Path) -> None:
        with patient_tree(tmp_path, embedder, llm_client=LexicalLLMClient()) as tree:
            tree.CreateKeyword("dog", "root")
            tree.CreateKeyword("ship", "root")

            found = tree.Search("canine")
            assert (found.node and found.node.name, found.confidence > 0.3) == ("dog", True)

    def test_what_is_meant_is_shown_and_stands_first(self, tmp_path: Path) -> None:
        embedder = English([*ENGLISH, ("allergic", "eat"), ("peanuts", "nuts")])
        with patient_tree(tmp_path, embedder, trust=1.0, llm_client=LexicalLLMClient()) as tree:
            anna = tree.CreateKeyword("Anna", "root")
            for text in (
                "Lives in Berlin.",
                "Works at a bank.",
                "Her son sings.",
                "allergic to peanuts",
            ):
                tree.CreateInfo(text, keyword_ids=[anna.id])
            tree.CreateInfo("Sails.", keyword_ids=[tree.CreateKeyword("ship", "root").id])
            tree.catch_up()
            found = tree.Search("eat nuts at home")

            assert found.node is not None
            assert found.node.name == "Anna"
            assert [info.content[:8] for info in found.infos] == ["allergic", "Lives in", "Works at", "Her son "]
            assert found.excerpt == "allergic to peanuts"

    @pytest.mark.parametrize(("query", "info"), [("canine", ""), ("automobile", "It is a car.")])
    def test_an_info_is_meant_where_no_other_text_is_nearer(self, query: str, info: str, tree: EmbeddingTree) -> None:
        dog = tree.CreateKeyword("dog", "root", description="who barks")
        for text in ("It is a car.", "It sails."):
            tree.CreateInfo(text, keyword_ids=[dog.id])
        tree.catch_up()

        assert tree.recall.Fit(query).evidence[dog.id].nearest == info

    def test_what_a_long_info_says_late_is_found(self, tree: EmbeddingTree) -> None:
        ship = tree.CreateKeyword("ship", "root")
        tree.CreateInfo("It sails. " * 39 + "\n\nThe automobile.", keyword_ids=[ship.id])
        tree.CreateKeyword("train", "root")
        tree.catch_up()

        found = tree.recall.Fit("ship: the car").evidence[ship.id]
        assert (found.score > 0.5, found.nearest[:9]) == (True, "It sails.")

    @pytest.mark.parametrize(
        ("limit", "read"),
        [(None, {"Anna: one", "Anna: two", "Anna: three"}), (2, {"Anna: two", "Anna: three"}), (0, set())],
    )
    def test_words_hear_infos_that_the_model_does_not_read(
        self, limit: int | None, read: set[str], embedder: English, tmp_path: Path
    ) -> None:
        with patient_tree(tmp_path, embedder, infos_embedded=limit) as tree:
            anna = tree.CreateKeyword("Anna", "root", description="a friend")
            for text in ("one", "two", "three"):
                tree.CreateInfo(text, keyword_ids=[anna.id])
            tree.catch_up()

            assert set(embedder.asked) - set(PROBES["LATIN"]) - {"water"} == {"Anna", "a friend", *read}
            assert names(tree, "one", 1) == ["Anna"]


class Named:
    """What `LocalEmbedder` without brackets is: a class that has all that an embedder has."""

    name = "named"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]


class Unnamed(English):
    """Has all that an embedder has but a name."""

    def __init__(self, name: Any) -> None:
        super().__init__()
        self.name = name


NO_EMBEDDER = "embedder must have a name, a string, and a method embed: "
REFUSED: list[tuple[str, list[Any], str]] = [
    ("embedder", [None, "model", HashingEmbedder, Named, object()], NO_EMBEDDER),
    ("embedder", [Unnamed(None), Unnamed(""), Unnamed(7)], "embedder must have a name"),
    ("infos_embedded", [-1, 1.5, "2", True], "infos_embedded must be a number from 0 on, or None: "),
    ("trust", [2.0], "trust must be a number from 0 to 1"),
    ("patience_s", [0, -2.0, "2"], "patience_s must be seconds"),
    ("ranker", [TreeRanker], "ranker cannot be chosen here, .*: "),
    ("data_dir", [None], "data_dir must be a path"),
]


@pytest.mark.parametrize(
    ("name", "values", "message"), REFUSED, ids=[f"{name}-{said[:20]}" for name, _, said in REFUSED]
)
def test_a_wrong_argument_is_refused_by_its_value_before_anything_is_made(
    tmp_path: Path, name: str, values: list[Any], message: str
) -> None:
    for value in values:
        with pytest.raises(InvalidInputError, match=message) as refused:
            EmbeddingTree(**{"data_dir": tmp_path / "m", "embedder": English(), name: value})

        assert repr(value)[:12] in str(refused.value)
        assert not (tmp_path / "m").exists()


class TestTrust:
    def test_a_script_that_the_model_does_not_know_is_reported_once(
        self, tree: EmbeddingTree, embedder: English, caplog: pytest.LogCaptureFixture
    ) -> None:
        for name in ("tea", "ship", "car"):
            tree.CreateKeyword(name)
        assert tree.recall.trust == {}
        for query in ("绿茶", "canine", "红茶", "ཇ", "ཇ་"):
            tree.RankCandidates(query)

        assert tree.recall.trust == {"CJK": pytest.approx(0.0, abs=0.1), "LATIN": 1.0, "TIBETAN": 0.0}
        cjk = f"{tree.recall.trust['CJK']:.2f} of 1"
        assert caplog.messages == [
            f"{embedder.name} is not trusted in {script} ({why}): words rank alone there, unless `trust` says otherwise"
            for script, why in (("CJK", cjk), ("TIBETAN", "no words to try it with"))
        ]
        assert {record.levelname for record in caplog.records} == {"WARNING"}

    @pytest.mark.parametrize("trust", [1.0, 1, {"CJK": 1.0}])
    def test_can_be_given(
        self, embedder: English, tmp_path: Path, trust: float | dict[str, float], caplog: pytest.LogCaptureFixture
    ) -> None:
        with patient_tree(tmp_path, embedder, trust=trust) as tree:
            for name in ("tea", "ship", "car"):
                tree.CreateKeyword(name)
            ((node, confidence),) = tree.RankCandidates("绿茶", 1)

            assert (node.name, tree.recall.trust) == ("tea", {"CJK": 1.0})
        assert confidence > 0.8
        assert set(embedder.asked) == {"绿茶", "tea", "ship", "car", *PROBES["CJK"]}
        assert caplog.messages == []

    def test_a_script_that_the_model_does_not_know_is_left_to_the_words(self, tmp_path: Path) -> None:
        confidences = []
        for folder, pairs in (("knows", [*ENGLISH, *CHINESE]), ("does not", ENGLISH)):
            with patient_tree(tmp_path / folder, English(pairs)) as tree:
                for name in ("tea", "ship", "car"):
                    tree.CreateKeyword(name)
                ranked = {node.name: confidence for node, confidence in tree.RankCandidates("绿茶")}
                confidences.append(ranked["tea"])

        assert confidences[0] > 0.8
        assert confidences[1] < 0.1

    def test_chinese_is_found_as_without_the_model(self, tree: EmbeddingTree, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path / "plain")) as plain:
            for name in ("龙井茶", "普洱茶", "绿茶的泡法", "咖啡", "红茶", "茶具", "水温"):
                tree.CreateKeyword(name)
                plain.CreateKeyword(name)

            for query in ("怎么泡绿茶", "龙井", "喝咖啡"):
                assert names(tree, query, 1) == names(plain, query, 1)


class TestKeepingUp:
    def test_follows_every_change(self, tree: EmbeddingTree) -> None:
        node = tree.CreateKeyword("car")
        other = tree.CreateKeyword("ship")
        assert names(tree, "canine", 1) != ["dog"]
        node = tree.UpdateKeyword(node.id, {"name": "dog"}, node.version)
        assert names(tree, "canine", 1) == ["dog"]
        operation = next(iter(tree.History(node.id))).operation_id
        tree.Undo(operation)
        assert names(tree, "automobile", 1) == ["car"]
        tree.DeleteKeyword(node.id)
        assert names(tree, "automobile", 1) in ([], ["ship"])
        tree.DeleteKeyword(other.id)
        assert names(tree, "automobile", 1) == []

    def test_a_changed_keyword_costs_one_text(self, tree: EmbeddingTree, embedder: English) -> None:
        node = tree.CreateKeyword("car", "root", ["auto"], "drives")
        tree.catch_up()
        embedder.asked.clear()
        tree.AddAlias(node.id, "coach")
        tree.MoveKeyword(node.id, tree.CreateKeyword("vehicle").id)
        tree.catch_up()

        assert sorted(embedder.asked) == ["coach", "vehicle"]

    def test_what_another_process_wrote_is_found(self, tree: EmbeddingTree, tmp_path: Path) -> None:
        tree.CreateKeyword("ship")
        names(tree, "canine")
        with KeywordTree(str(tmp_path)) as other:
            other.CreateKeyword("dog")
        tree.catch_up()

        assert names(tree, "canine", 1) == ["dog"]

    def test_opening_again_embeds_one_text_to_see_that_the_model_is_the_same(
        self, embedder: English, tmp_path: Path
    ) -> None:
        with patient_tree(tmp_path, embedder) as tree:
            tree.CreateKeyword("dog")
            tree.CreateKeyword("ship")
            assert tree.catch_up() == 0
        again = English()
        with patient_tree(tmp_path, again) as tree:
            assert [tree.catch_up(), tree.catch_up()] == [0, 0]
            assert len(again.asked) == 1
            assert names(tree, "canine", 1) == ["dog"]

    def test_compacting_forgets_what_another_process_deleted_and_embeds_nothing_again(
        self, tree: EmbeddingTree, embedder: English, tmp_path: Path
    ) -> None:
        gone = tree.CreateKeyword("my secret diagnosis", "root")
        tree.CreateKeyword("dog", "root")
        tree.catch_up()
        (path,) = (tmp_path / "indexes").iterdir()
        assert _digest("my secret diagnosis") in path.read_bytes()
        with KeywordTree(str(tmp_path)) as other:
            other.DeleteKeyword(gone.id)
        embedder.asked.clear()
        tree.CompactStorage(keep_history=False)

        assert _digest("my secret diagnosis") not in path.read_bytes()
        assert _digest("dog") in path.read_bytes()
        assert (tree.recall.vectors.waiting, embedder.asked) == (0, [])


class TestComparing:
    def test_a_ranking_looks_at_each_text_once(self, tree: EmbeddingTree, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(40):
            keyword = tree.CreateKeyword(f"theme {number}", "root", [f"alias {number}"])
            tree.CreateInfo(f"what is known of {number}", keyword_ids=[keyword.id])
        vectors, looked_at = tree.recall.vectors, list[str]()
        similarities = vectors.similarities

        def look(question: str, texts: Sequence[str]) -> list[float]:
            looked_at.extend(texts)
            return similarities(question, texts)

        monkeypatch.setattr(vectors, "similarities", look)
        for query in ("canine", "a theme that is known"):
            looked_at.clear()
            assert tree.RankCandidates(query, 40)
            assert sorted(looked_at) == sorted(set(looked_at)) != []

    def test_a_keyword_that_says_something_else_is_compared_again(self, tree: EmbeddingTree) -> None:
        dog, ship = tree.CreateKeyword("dog", "root"), tree.CreateKeyword("ship", "root")
        near = tree.recall.Fit("canine").evidence[dog.id].score
        tree.UpdateKeyword(dog.id, {"name": "ship"}, dog.version)

        scores = {id: found.score for id, found in tree.recall.Fit("canine").evidence.items()}
        assert scores.get(dog.id, 0.0) == scores.get(ship.id, 0.0) < near


class TestFailing:
    def test_a_keyword_is_made_where_the_model_fails(self, embedder: English, tmp_path: Path) -> None:
        embedder.meanwhile = fail
        with patient_tree(tmp_path, embedder, llm_client=Chooses("dog")) as tree:
            dog = tree.CreateKeyword("dog", "root")
            assert tree.CreateKeyword("dog food").parent_id == dog.id

    def test_others_read_and_write_while_the_model_thinks(self, tree: EmbeddingTree, embedder: English) -> None:
        tree.CreateKeyword("dog")
        done: list[str] = []

        def write() -> None:
            done.append(tree.CreateKeyword("written meanwhile").name)
            done.append(str(tree.Search("dog").status.value))

        def run_and_wait() -> None:
            embedder.meanwhile = lambda: None
            other = threading.Thread(target=write)
            other.start()
            other.join(30.0)

        embedder.meanwhile = run_and_wait

        assert names(tree, "canine", 1) == ["dog"]
        assert done == ["written meanwhile", "matched"]

    def test_words_alone_rank_as_they_do_without_a_model_and_a_note_says_so(
        self, tree: EmbeddingTree, embedder: English, tmp_path: Path
    ) -> None:
        embedder.meanwhile = fail
        with KeywordTree(str(tmp_path / "plain")) as plain:
            for name in ("dog food", "ship", "dog"):
                for each in (tree, plain):
                    each.CreateKeyword(name, "root")
            ours, theirs = ([(n.name, score) for n, score in each.RankCandidates("dog")] for each in (tree, plain))

        assert ours == theirs
        assert tree.recall.Fit("dog").note == "words ranked alone: ConnectionError: no network"
        assert tree.Search("a dog in the yard").note == "words ranked alone: ConnectionError: no network"
        assert tree.recall.vectors.failure == "ConnectionError: no network"
        assert tree.catch_up() == 3
        embedder.meanwhile = lambda: None
        assert tree.catch_up() == 0
        assert (tree.recall.Fit("dog").note, tree.Search("a dog in the yard").note) == ("", "")

    def test_a_wrong_argument_is_refused_as_ever(self, tree: EmbeddingTree) -> None:
        with pytest.raises(ValueError, match="query"):
            tree.RankCandidates(7)  # type: ignore[arg-type]  # what is tested
        tree.Close()
        with pytest.raises(Exception, match="closed"):
            tree.RankCandidates("dog")

    def test_what_is_refused_does_not_reach_the_model(self, tree: EmbeddingTree, embedder: English) -> None:
        tree.CreateKeyword("dog", "root")
        for query, limit in (("a lone surrogate \ud800", 10), ("canine", -1)):
            with pytest.raises(InvalidInputError):
                tree.RankCandidates(query, limit)

        assert (embedder.asked, tree.recall.vectors.failure) == ([], "")
        assert names(tree, "canine") == ["dog"]


class Slow(English):
    """Answers only when the test lets it, where `waits_at` says so."""

    def __init__(self, waits_at: Callable[[Sequence[str]], bool] = lambda texts: True) -> None:
        super().__init__()
        self.waits_at, self.begun, self.released = waits_at, threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self.waits_at(texts):
            self.begun.set()
            self.released.wait(240.0)
        return super().embed(texts)


class TestSlow:
    def test_words_rank_alone_the_log_says_so_once_and_nothing_is_lost(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        embedder = Slow()
        with EmbeddingTree(tmp_path, embedder, patience_s=0.01, llm_client=LexicalLLMClient()) as tree:
            dog = tree.CreateKeyword("dog", "root")
            tree.CreateKeyword("ship", "root")
            asked = embedder.asked  # of a model that has not answered yet
            found = tree.Search("our dog").node
            assert found is not None
            assert found.id == dog.id
            assert tree.CreateKeyword("guide dog").parent_id == dog.id
            assert tree.recall.vectors.failure == "TimeoutError: no answer within 0.01 s"
            reported = f"embedding with {embedder.name} failed, words rank alone: TimeoutError: no answer within 0.01 s"
            assert (caplog.messages, asked) == ([reported], [])

            embedder.released.set()
            assert (tree.catch_up(), tree.recall.vectors.failure, len(tree.recall.vectors)) == (0, "", 3)
        with patient_tree(tmp_path, embedder) as tree:
            assert names(tree, "canine", 1) == ["dog"]

    def test_the_result_says_how_many_texts_have_no_vector_yet(self, tmp_path: Path) -> None:
        embedder = Slow(lambda texts: "ship" in texts)
        with EmbeddingTree(tmp_path, embedder, patience_s=8.0) as tree:
            tree.CreateKeyword("dog", "root")
            tree.catch_up()
            tree.CreateKeyword("ship", "root")
            assert tree.Search("my canine").note == "texts that have no vector yet, and rank by words: 1"
            embedder.released.set()
            tree.catch_up()
            assert tree.Search("my canine").note == ""

    def test_closing_waits_for_no_late_model_and_nothing_is_written_after_it(self, tmp_path: Path) -> None:
        embedder = Slow()
        with EmbeddingTree(tmp_path, embedder, patience_s=0.01) as tree:
            tree.CreateKeyword("dog", "root")
            names(tree, "dog")
            recall = tree.recall
        assert not embedder.released.is_set()
        embedder.released.set()

        assert recall._worker.finish()
        assert not (tmp_path / "indexes").exists()
        with pytest.raises(Exception, match="closed"):
            tree.catch_up()

    def test_closing_keeps_what_a_call_in_time_brings(self, tmp_path: Path) -> None:
        embedder = Slow(lambda texts: "dog" in texts)
        with EmbeddingTree(tmp_path, embedder, patience_s=60.0) as tree:
            tree.CreateKeyword("dog", "root")
            recall, finish = tree.recall, tree.recall._worker.finish

            def search() -> None:
                with suppress(ClosedError):
                    recall.Fit("canine")

            searching = threading.Thread(target=search)
            searching.start()
            embedder.begun.wait(240.0)

            def let_go_and_finish(patience_s: float | None) -> bool:
                assert patience_s == 60.0
                embedder.released.set()
                return finish(patience_s)

            recall._worker.finish = let_go_and_finish  # type: ignore[assignment, method-assign]  # when closing waits
        searching.join()

        (path,) = (tmp_path / "indexes").iterdir()
        assert _digest("dog") in path.read_bytes()

    def test_a_late_answer_brings_nothing_back_that_was_forgotten(self, tmp_path: Path) -> None:
        embedder = Slow(lambda texts: "my secret diagnosis" in texts)
        with EmbeddingTree(tmp_path, embedder, patience_s=0.01) as tree:
            tree.CreateKeyword("dog", "root")
            tree.catch_up()
            gone = tree.CreateKeyword("my secret diagnosis", "root")
            names(tree, "dog")
            embedder.begun.wait(240.0)
            before = tree.recall
            tree.DeleteKeyword(gone.id)
            tree.CompactStorage(keep_history=False)
            embedder.released.set()
            assert before._worker.finish()

            (path,) = (tmp_path / "indexes").iterdir()
            assert _digest("my secret diagnosis") not in path.read_bytes()
            assert _digest("dog") in path.read_bytes()

    def test_two_trees_of_one_folder_do_not_wait_for_each_other(self, tmp_path: Path) -> None:
        embedder = Slow(lambda texts: "slow question" in texts)
        with EmbeddingTree(tmp_path, embedder, patience_s=0.01) as one, patient_tree(tmp_path, embedder) as other:
            one.CreateKeyword("dog", "root")
            names(one, "slow question")

            other.Refresh()
            assert names(other, "canine", 1) == ["dog"]
            embedder.released.set()
            assert (one.catch_up(), other.catch_up()) == (0, 0)
            assert (names(one, "canine", 1), one.recall.vectors.failure) == (["dog"], "")


TEXTS = st.sampled_from(["dog", "canine", "a quick car", "绿茶", "ship", "rapid rivers"])
STEPS = st.lists(st.tuples(st.sampled_from("12345"), st.none() | st.tuples(TEXTS, st.none() | TEXTS)), max_size=20)


class TestAnyOrder:
    @share(0.5)
    @given(STEPS, TEXTS)
    @example(
        [("1", ("绿茶", None)), ("2", ("a quick car", "dog")), ("1", ("canine", None)), ("1", ("dog", "绿茶"))], "dog"
    )
    def test_ranks_exactly_as_one_opened_later(
        self, steps: list[tuple[str, tuple[str, str | None] | None]], query: str
    ) -> None:
        with TemporaryDirectory() as folder, patient_tree(folder, English()) as tree:
            made = dict[str, str]()
            for number, said in steps:
                if number in made:
                    tree.DeleteKeyword(made.pop(number))
                if said is not None:
                    made[number] = tree.CreateKeyword(said[0], "root", description=said[1] or "").id
                tree.recall.Fit(query)
            tree.catch_up()
            with patient_tree(folder, English()) as fresh:
                fresh.catch_up()
                ours, theirs = (dict(each.recall.Fit(query).evidence) for each in (tree, fresh))

            assert ours == theirs
            assert tree.recall.vectors.waiting == 0


def test_the_package_names_its_doors() -> None:
    import Agent.embeddings as doors

    assert doors.EmbeddingTree is EmbeddingTree
    assert all(getattr(doors, name).__name__ == name for name in doors.__all__)
    with pytest.raises(AttributeError, match="'Door'"):
        doors.Door  # noqa: B018  asking is what raises
