"""The ranking's index is kept on disk: a file that follows the tree's log, and is made again in any doubt."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from Agent.keyword_tree import KeywordTree
from Agent.tests.support import inside


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)
    inside.set_limits(monkeypatch, kept_from=2)


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that an index has taken in."""
    ids: list[str] = []
    inside.note_keywords_indexed(monkeypatch, ids.append)
    return ids


def fill(folder: Path) -> Path:
    """Make a tree, rank it and close it; return the file of the index."""
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords([{"id": id, "name": f"{id} 茶", "parent_id": "root"} for id in ("oat", "rye", "tea")])
        tree.CreateInfo("a zebra", keyword_ids=["oat"])
        tree.CreateInfo("an okapi " + "x" * 9000, keyword_ids=["rye"])
        tree.RankCandidates("tea")
    return folder / "indexes" / "keywords.db"


def first(tree: KeywordTree, query: str) -> str:
    ranked = tree.RankCandidates(query, 1)
    return ranked[0][0].id if ranked else ""


def held(folder: Path, *words: bytes) -> list[str]:
    """Return the files in a folder that hold one of the words, written anyhow."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(word in path.read_bytes().lower() for word in words)]


def test_follows_what_was_written_since(tmp_path: Path, indexed: list[str]) -> None:
    path = fill(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    indexed.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert [first(tree, query) for query in ("zebra", "okapi", "tea")] == ["oat", "rye", "tea"]
        assert indexed == []
        inside.check_ranking(tree)
        tree.CreateInfo("a quagga", keyword_ids=["tea"])
        tree.DeleteKeyword("rye")
    indexed.clear()
    with KeywordTree(str(tmp_path)) as tree:  # the tree that closed has taken its writes in
        assert (first(tree, "quagga"), first(tree, "okapi"), indexed) == ("tea", "", [])
        zebra = tree.CreateKeyword("the zebra crossing", "root").id
    with KeywordTree(str(tmp_path)) as tree:
        zoo = tree.CreateKeyword("zoo", "root").id  # by a tree that is asked nothing
        tree.CreateInfo("a gnu", keyword_ids=[zoo])
    indexed.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert (first(tree, "crossing"), first(tree, "gnu"), set(indexed)) == (zebra, zoo, {zoo})
        inside.check_ranking(tree)


@pytest.mark.parametrize("damage", ["cut", "a bit", "empty", "no database", "another format", "a lost table"])
def test_is_made_again_where_the_file_is_damaged(tmp_path: Path, damage: str, indexed: list[str]) -> None:
    path = fill(tmp_path)
    whole = path.read_bytes()
    spoilt = {
        "cut": whole[:-10_000],  # more than a page
        "a bit": whole[:110] + bytes([whole[110] ^ 4]) + whole[111:],
        "empty": b"",
        "no database": b"\xff" + whole,
    }
    if damage in spoilt:
        path.write_bytes(spoilt[damage])
    else:
        statements = {
            "another format": "update meta set value = '0 little' where key = 'format'",
            "a lost table": "drop table posting",
        }
        with sqlite3.connect(path) as connection:
            connection.execute(statements[damage])
        connection.close()
    indexed.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert (first(tree, "zebra"), set(indexed)) == ("oat", {"oat", "rye", "tea"})
        assert tree.Verify() == []
        inside.check_ranking(tree)


def test_of_another_log_is_filled_again(tmp_path: Path) -> None:
    path = fill(tmp_path / "one")
    with KeywordTree(str(tmp_path / "two")) as tree:
        tree.BatchCreateKeywords([{"id": id, "name": id, "parent_id": "root"} for id in ("yak", "gnu", "emu")])
    (tmp_path / "two" / "indexes").mkdir()
    (tmp_path / "two" / "indexes" / path.name).write_bytes(path.read_bytes())
    with KeywordTree(str(tmp_path / "two")) as tree:
        assert [first(tree, query) for query in ("zebra", "yak")] == ["", "yak"]
        inside.check_ranking(tree)


def test_that_cannot_be_opened_leaves_the_ranking_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = fill(tmp_path)
    path.unlink()
    path.mkdir()
    with KeywordTree(str(tmp_path)) as tree:
        assert first(tree, "zebra") == "oat"
        assert "ranked in memory" in inside.fit(tree, "zebra").note
    assert "keywords are ranked in memory" in caplog.text


def test_is_in_memory_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    with KeywordTree(str(tmp_path)) as tree:
        assert first(tree, "zebra") == "oat"
        connection = inside.ranker_of(tree).index._db
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")  # SQLITE_FULL from here on
        words = " ".join(f"word{number}" for number in range(2_000))
        tree.CreateInfo(f"{words} giraffe", keyword_ids=["tea"])
        assert first(tree, "giraffe") == "tea"
        assert "ranked in memory" in inside.fit(tree, "zebra").note
    with KeywordTree(str(tmp_path)) as tree:
        assert first(tree, "giraffe") == "tea"


def test_a_read_only_file_is_read_as_it_is_and_left_where_something_is_new(tmp_path: Path) -> None:
    path = fill(tmp_path)
    with KeywordTree(str(tmp_path)) as tree:
        ranker, before = inside.ranker_of(tree), path.read_bytes()
        with ranker.index.reading() as connection:
            connection.execute("pragma query_only = on")  # what the superuser, too, cannot write
        assert first(tree, "zebra") == "oat"
        assert inside.fit(tree, "zebra").note == ""
        tree.CreateInfo("a giraffe", keyword_ids=["tea"])
        assert first(tree, "giraffe") == "tea"
        assert "ranked in memory" in inside.fit(tree, "zebra").note
        assert path.read_bytes() == before


class TestForgetting:
    def test_takes_the_index_along(self, tmp_path: Path) -> None:
        path = fill(tmp_path)
        with KeywordTree(str(tmp_path)) as tree:
            tree.RankCandidates("zebra")
            tree.DeleteKeyword("oat", info_policy="delete")
            tree.CompactStorage(keep_history=False)
            assert not path.exists()

            assert first(tree, "zebra") == ""
            assert first(tree, "okapi") == "rye"
        assert held(tmp_path, b"zebra", b"~zeb") == []

    @pytest.mark.parametrize("asked", ["before", "while it does not know", "afterwards"])
    def test_by_another_process_leaves_no_byte_when_both_are_closed(self, tmp_path: Path, asked: str) -> None:
        fill(tmp_path)
        with KeywordTree(str(tmp_path)) as mine, KeywordTree(str(tmp_path)) as others:
            if asked == "before":
                others.RankCandidates("zebra")
            mine.DeleteKeyword("oat", info_policy="delete")
            mine.CompactStorage(keep_history=False)
            if asked == "while it does not know":
                others.RankCandidates("zebra")
            if asked == "afterwards":
                others.Refresh()
                assert first(others, "zebra") == ""
            assert first(mine, "okapi") == "rye"
        assert held(tmp_path, b"zebra", b"~zeb") == []

    def test_what_a_killed_process_wrote_goes_with_the_next_question(self, tmp_path: Path) -> None:
        fill(tmp_path)
        with KeywordTree(str(tmp_path)) as mine:
            others = KeywordTree(str(tmp_path))
            mine.DeleteKeyword("oat", info_policy="delete")
            mine.CompactStorage(keep_history=False)
            others.RankCandidates("zebra")
            inside.release(others)
            assert first(mine, "okapi") == "rye"
            inside.finalize(others)
            assert held(tmp_path, b"zebra", b"~zeb") == []
