"""Tests of the words of one space: whom a bounded look ranks, and a file that several processes open."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.context_engine.core.objects import IndexRecord
from Agent.context_engine.index.record_builder import record_id
from Agent.context_engine.providers import word_index
from Agent.context_engine.providers.word_index import IndexedNode, WordIndex

SPACE = "ctx://acme/users/ada"


def fill(index: WordIndex, *texts: str) -> None:
    """Give an index a node for each text, with one passage."""
    for number, text in enumerate(texts):
        uri = f"{SPACE}/memories/entities/n{number}"
        record = IndexRecord(record_id(uri, 2), uri, SPACE, "memory", "entities", 2, text)
        index.replace(IndexedNode(uri, number + 1, text, "entities"), [record], [])


@pytest.fixture
def index(tmp_path: Path) -> Iterator[WordIndex]:
    made = WordIndex(tmp_path / "index.db")
    yield made
    made.close()


class TestRanking:
    def test_looks_at_rows_of_the_rarest_terms_and_ranks_them_by_all(
        self, index: WordIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(word_index, "POSTINGS_LIMIT", 10)
        monkeypatch.setattr(word_index, "CANDIDATES", 1)
        common = [f"harbour boat number{each}" for each in range(40)]
        rare = [f"walrus alone number{each}" for each in range(5)]
        fill(index, "walrus harbour boat", *rare, *common)

        found = index.rank("walrus harbour boat", 1)
        assert [hit.text for hit in found] == ["walrus harbour boat"]
        assert {hit.text.split()[0] for hit in index.rank("walrus harbour boat", 50)} == {"walrus"}

    def test_finds_what_a_look_at_all_rows_finds(self, index: WordIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        chance = random.Random(18)
        words = [f"word{number}" for number in range(300)]
        fill(index, *(" ".join(words[int(300 * chance.random() ** 2)] for _ in range(12)) for _ in range(400)))
        queries = [" ".join(words[int(300 * chance.random() ** 2)] for _ in range(5)) for _ in range(40)]

        def firsts(limit: int) -> list[list[str]]:
            monkeypatch.setattr(word_index, "POSTINGS_LIMIT", limit)
            return [[hit.text for hit in index.rank(query, 10)] for query in queries]

        bounded, all_of_it = firsts(60), firsts(10**6)
        shared = sum(len(set(few) & set(many)) for few, many in zip(bounded, all_of_it, strict=True))
        assert shared > 0.9 * sum(map(len, all_of_it))

    def test_counts_a_term_anew_once_rows_have_changed(self, index: WordIndex) -> None:
        fill(index, "walrus", "boat")
        before = index.rank("walrus boat", 2)[0].score
        other = WordIndex(index._path)
        fill(other, *("walrus boat" for _ in range(20)))
        other.close()

        assert index.rank("walrus boat", 2)[0].score != before
        assert index._frequencies("passages") == {"walru": 20, "boat": 20}


class TestOneFileOfSeveralProcesses:
    def test_is_kept_where_somebody_has_just_made_it(self, tmp_path: Path) -> None:
        path = tmp_path / "index.db"
        maker = sqlite3.connect(path)
        maker.execute("PRAGMA journal_mode = WAL")
        before = path.stat().st_ino
        index = WordIndex(path)
        fill(index, "walrus")

        assert path.stat().st_ino == before
        assert maker.execute("SELECT count(*) FROM passages").fetchone() == (1,)
        maker.close()
        index.close()

    def test_is_emptied_in_its_place(self, index: WordIndex) -> None:
        fill(index, "walrus")
        index.mark_whole()
        other = WordIndex(index._path)
        index.discard()

        assert index.is_new
        assert other.rank("walrus", 1) == []
        fill(other, "boat")
        assert [hit.text for hit in index.rank("boat", 1)] == ["boat"]
        other.close()
