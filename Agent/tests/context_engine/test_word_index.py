"""Tests of the words of one space: what is found, by which filters, and a file that several processes open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from Agent.context_engine.core.config import PLACES
from Agent.context_engine.core.objects import IndexRecord
from Agent.context_engine.index.index_worker import record_id
from Agent.context_engine.providers import Filters, WordIndex

SPACE = "ctx://acme/users/ada"


def record(uri: str, text: str, level: int = 2, part: int = 0, at: float = 0.0) -> IndexRecord:
    """Return one row of a node."""
    category = uri.removeprefix(f"{SPACE}/").removeprefix("memories/").partition("/")[0]
    return IndexRecord(record_id(uri, level, part), uri, SPACE, "memory", category, level, text, {}, {"at": at}, part)


def fill(index: WordIndex, *texts: str) -> None:
    """Give an index a node for each text, with one passage, said at its number."""
    for number, text in enumerate(texts):
        uri = f"{SPACE}/memories/entities/n{number}"
        index.replace(text, [record(uri, text, at=number)], [])


def found(index: WordIndex, query: str, limit: int = 10, **filters: object) -> list[str]:
    """Return the names of what is found."""
    return [hit.uri.rpartition("/")[2] for hit in index.rank(query, limit, filters=Filters(**filters))]  # type: ignore[arg-type]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[WordIndex]:
    made = WordIndex(tmp_path / "index.db")
    yield made
    made.close()


class TestRanking:
    def test_finds_an_answer_by_the_question_before_it_even_in_another_archive(self, index: WordIndex) -> None:
        session = f"{SPACE}/sessions/s1"
        for number, text in enumerate(("What is the name of your walrus?", "Oliver, of course.", "I see.")):
            uri = f"{session}/000{number}-x"
            index.replace(text, [record(uri, text)], [], session)

        assert found(index, "walrus") == ["0000-x", "0001-x"]
        assert [hit.is_answer for hit in index.rank("walrus", 2)] == [False, True]
        assert [hit.terms for hit in index.rank("walrus", 2)] == [("walrus",), ()]

    def test_goes_by_levels_and_filters(self, index: WordIndex) -> None:
        fill(index, "walrus", "walrus", "walrus")
        uri = f"{SPACE}/memories/events/e"
        index.replace("x", [record(uri, "walrus", level) for level in range(3)], [])

        assert set(found(index, "walrus")) == {"n0", "n1", "n2", "e"}
        assert [hit.level for hit in index.rank("walrus", 9, (0, 1))] == [0, 1]
        assert found(index, "walrus", categories=["events"]) == ["e"]
        assert found(index, "walrus", target=f"{SPACE}/memories/events") == ["e"]
        assert set(found(index, "walrus", since=1.0)) == {"n1", "n2"}
        assert set(found(index, "walrus", until=1.0)) == {"n0", "e"}

    def test_shows_a_message_of_several_passages_once(self, index: WordIndex) -> None:
        uri = f"{SPACE}/sessions/s1/0001-x"
        rows = [record(uri, "walrus", part=part) for part in (0, PLACES, 1)]
        index.replace("x", rows, [], f"{SPACE}/sessions/s1")

        assert sorted(hit.said for hit in index.rank("walrus", 9)) == ["m1", "m2"]


class TestOneFileOfSeveralProcesses:
    def test_is_seen_empty_once_another_has_discarded_it(self, index: WordIndex) -> None:
        fill(index, "walrus")
        index.mark_whole()
        other = WordIndex(index._path)
        other.discard()

        assert index.is_new
        assert index.rank("walrus", 1) == []
        fill(other, "boat")
        assert found(index, "boat") == ["n0"]
        other.close()
