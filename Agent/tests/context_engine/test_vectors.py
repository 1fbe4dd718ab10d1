"""Tests of similarity of meaning beside words, by `Agent.embeddings`."""

import contextlib
import operator
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine import ContextEngineService, InvalidInputError, RequestContext
from Agent.context_engine.core.objects import EmbeddingVector, IndexRecord, VectorHit
from Agent.context_engine.providers import as_embedder
from Agent.finding import embedder as finding
from Agent.finding.embedder import HashingEmbedder, Meaning
from Agent.keyword_tree import InvalidInputError as TreeInputError
from Agent.tests.support.plain_reader import open_engine

ADA = RequestContext("acme", "ada", "helper", "s1")
BOB = RequestContext("acme", "bob", "other", "s1")
MODEL = HashingEmbedder(synonyms=[("car", "automobile")])


def commit(engine: ContextEngineService, *texts: str, ctx: RequestContext = ADA) -> None:
    engine.commit_session(ctx, [{"role": "user", "content": text} for text in texts])


class TestEngine:
    @pytest.mark.usefixtures("own_words")
    @pytest.mark.parametrize("given", [{"embedder": MODEL}, {"meaning": MODEL}])
    def test_finds_what_no_word_says(self, tmp_path: Path, given: dict[str, Any]) -> None:
        with open_engine(tmp_path, **given) as engine:
            commit(engine, "the red car", "a blue sky", "green grass")
            block = engine.search_memory(ADA, "automobile", top_k=1).blocks[0]

            assert block.content_excerpt == "the red car"
            assert "near in meaning" in block.match_reason
            assert engine.search_memory(BOB, "automobile").blocks == []

    @pytest.mark.usefixtures("own_words")
    def test_compares_unasked_by_the_small_model_where_it_is_installed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(finding, "_installed", lambda: Meaning(MODEL))
        for folder, given, found in (("a", {}, ["the red car"]), ("b", {"meaning": False}, [])):
            with open_engine(tmp_path / folder, **given) as engine:
                commit(engine, "the red car", "a blue sky")
                blocks = engine.search_memory(ADA, "automobile", top_k=1).blocks
                assert [block.content_excerpt for block in blocks] == found

    def test_refuses_what_cannot_embed(self, tmp_path: Path) -> None:
        with pytest.raises(TreeInputError, match=r"a model with a name .*'a name'"):
            open_engine(tmp_path, meaning="a name")

    def test_says_that_the_model_fails(self, tmp_path: Path) -> None:
        class Down:
            name = "down"

            def embed(self, texts: Any) -> Any:
                raise ConnectionError("down")

        with open_engine(tmp_path, embedder=Down()) as engine:
            commit(engine, "I love jazz.")
            found = engine.search_memory(ADA, "jazz", top_k=1)
            assert found.blocks[0].content_excerpt == "I love jazz."
            assert found.note == "words ranked alone: ConnectionError: down"

    def test_forgets_vectors_with_their_texts(self, tmp_path: Path) -> None:
        with open_engine(tmp_path, embedder=MODEL) as engine:
            commit(engine, "I love jazz.")
            engine.work()
            path = tmp_path / ".ctx/index/acme/users=ada/index.db"
            (vector,) = MODEL.embed(["jazz\njazz: I love jazz."])
            kept = struct.pack(f"<{len(vector)}e", *vector)
            assert kept in path.read_bytes()
            engine.forget(ADA, "ctx://acme/users/ada/memories/preferences/jazz")

            assert kept not in path.read_bytes()


class TestPort:
    def test_takes_embedders_of_both_kinds(self) -> None:
        class Port:
            def embed_texts(self, texts: Any, model: Any = None) -> list[EmbeddingVector]:
                return [EmbeddingVector([1.0]) for _ in texts]

        assert (as_embedder(Port()).name, as_embedder(Port()).embed(["x"])) == ("Port", [[1.0]])
        assert as_embedder(MODEL) is MODEL


class TestForgettingWithoutTheModel:
    def test_keeps_the_vectors_of_all_else(self, tmp_path: Path) -> None:
        with open_engine(tmp_path, embedder=HashingEmbedder()) as engine:
            for word in ("jazz", "opera", "tea"):
                engine.remember(ADA, f"I love {word}.", "preferences", word)
            engine.work()
        path = tmp_path / ".ctx/index/acme/users=ada/index.db"

        def count() -> int:
            with contextlib.closing(sqlite3.connect(path)) as db:
                return int(db.execute("select count(*) from vector").fetchone()[0])

        before = count()
        with open_engine(tmp_path) as engine:
            engine.forget(ADA, "ctx://acme/users/ada/memories/preferences/tea")

        assert 0 < count() < before


class Rows:
    """A `VectorIndex` in memory, which can be out of reach."""

    def __init__(self) -> None:
        self.records: dict[str, IndexRecord] = {}
        self.is_down = False

    def upsert(self, records: Sequence[IndexRecord]) -> None:
        if self.is_down:
            raise ConnectionError("no vectors")
        self.records.update((record.id, record) for record in records)

    def delete_by_uri(self, uri: str) -> None:
        self.records = {id: record for id, record in self.records.items() if record.uri != uri}

    def move_uri(self, from_uri: str, to_uri: str) -> None:
        raise NotImplementedError

    def search(
        self, query_vector: Sequence[float], filters: dict[str, Any], top_k: int, level: int = 0
    ) -> list[VectorHit]:
        if self.is_down:
            raise ConnectionError("no vectors")
        found = [
            VectorHit(each.id, each.uri, sum(map(operator.mul, query_vector, each.metadata["vector"])), level, {},
                      {"part": each.part})
            for each in self.records.values()
            if each.level == level and all(each.filters[name] == value for name, value in filters.items())
        ]  # fmt: skip
        return sorted(found, key=lambda hit: -hit.score)[:top_k]


class Topics:
    """An embedder that knows two topics."""

    name = "topics"

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed_texts(self, texts: Sequence[str], model: str | None = None) -> list[EmbeddingVector]:
        self.read += texts
        words = ("jazz music trumpet", "tea drink oolong")
        return [EmbeddingVector([float(any(w in text for w in each.split())) for each in words]) for text in texts]


def test_a_vector_index_of_the_callers_keeps_the_vectors(tmp_path: Path) -> None:
    rows = Rows()
    with ContextEngineService(tmp_path, embedder=Topics(), vector_index=rows) as engine:
        engine.commit_session(ADA, [{"role": "user", "content": "I play the trumpet."}, "I love oolong."])
        found = engine.search_memory(ADA, "music").blocks
        assert found[0].content_excerpt == "I play the trumpet."
        kept = len(rows.records)
        rows.is_down = True
        found_by_words = engine.search_memory(ADA, "oolong")
        assert found_by_words.blocks[0].content_excerpt == "I love oolong."
        assert found_by_words.note == "words rank alone: ConnectionError: no vectors"
        rows.is_down = False
    model = Topics()
    with ContextEngineService(tmp_path, embedder=model, vector_index=rows) as engine:
        assert engine.search_memory(ADA, "music", categories=["events"]).blocks == []
        assert len(rows.records) == kept
        assert {*model.read} == {"music"}
        engine.spaces.words("ctx://acme/users/ada").discard()  # which takes the notes of what was embedded along
        engine.forget(ADA, engine.list_children(ADA, "ctx://acme/users/ada/sessions/s1")[0].uri)
        assert not [record for record in rows.records.values() if "trumpet" in record.text]
    with pytest.raises(InvalidInputError, match="embedder"):
        ContextEngineService(None, vector_index=rows)
