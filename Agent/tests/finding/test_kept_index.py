"""The ranking's index is kept on disk, counts where it says what the tree says, and is made anew in any doubt."""

from __future__ import annotations

import json
import os
import re
import zlib
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
def added(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that an index was told of."""
    told: list[str] = []
    inside.note_keywords_told(monkeypatch, told.append)
    return told


def fill(folder: Path) -> Path:
    """Make a tree, rank it and close it; return the file of the index."""
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords([{"id": id, "name": f"{id} 茶", "parent_id": "root"} for id in ("oat", "rye", "tea")])
        tree.CreateInfo("a zebra", keyword_ids=["oat"])
        tree.CreateInfo("an okapi " + "x" * 9000, keyword_ids=["rye"])
        tree.RankCandidates("tea")
    return folder / "indexes" / "keywords.words"


def forge(whole: bytes) -> bytes:
    """Return an index that breaks off while it is read, with the checksum that belongs to it."""
    head, line, body = whole.split(b"\n", 2)
    ids, names, others, counts = json.loads(line)
    line = json.dumps([ids, names, others, {**counts, "wrong": "no number"}]).encode()
    told = {**json.loads(head), "crc": zlib.crc32(body, zlib.crc32(line))}
    return b"\n".join([json.dumps(told, separators=(",", ":")).encode(), line, body])


def first(tree: KeywordTree, query: str) -> str:
    ranked = tree.RankCandidates(query, 1)
    return ranked[0][0].id if ranked else ""


def test_is_read_where_nothing_was_written_since(tmp_path: Path, added: list[str]) -> None:
    path = fill(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    added.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert [first(tree, query) for query in ("zebra", "okapi", "tea")] == ["oat", "rye", "tea"]
        assert added == []
        inside.check_ranking(tree)
        added.clear()
        tree.CreateInfo("a quagga", keyword_ids=["tea"])
        tree.DeleteKeyword("rye")
        assert [first(tree, query) for query in ("quagga", "okapi")] == ["tea", ""]
        assert added == []  # both are changed where they stand
        inside.check_ranking(tree)
    added.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert (first(tree, "quagga"), first(tree, "okapi")) == ("tea", "")
        assert added == []


def test_is_made_anew_where_somebody_wrote_since(tmp_path: Path, added: list[str]) -> None:
    fill(tmp_path)
    with KeywordTree(str(tmp_path)) as tree:
        tree.CreateKeyword("zebra", "root")
    added.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert first(tree, "zebra") != ""
        assert len(added) == 4
        inside.check_ranking(tree)


def test_is_made_anew_where_it_heard_other_infos(tmp_path: Path, added: list[str]) -> None:
    fill(tmp_path)
    added.clear()
    with KeywordTree(str(tmp_path), infos_heard=0) as tree:
        assert first(tree, "zebra") == ""
        assert len(added) == 3


@pytest.mark.parametrize("damage", ["cut", "a bit", "empty", "no JSON", "another format", "forged", "a folder"])
def test_is_made_anew_where_the_file_is_damaged(tmp_path: Path, damage: str, added: list[str]) -> None:
    path = fill(tmp_path)
    whole = path.read_bytes()
    spoilt = {
        "cut": whole[:-5],
        "a bit": whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:],
        "empty": b"",
        "no JSON": b"\xff" + whole,
        "another format": re.sub(rb'"format":\d+', b'"format":5', whole),
        "forged": forge(whole),
    }
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    else:
        path.write_bytes(spoilt[damage])
    added.clear()
    with KeywordTree(str(tmp_path)) as tree:
        assert (first(tree, "zebra"), len(added)) == ("oat", 3)
        assert tree.Verify() == []
        inside.check_ranking(tree)


def test_goes_with_a_compaction_that_forgets(tmp_path: Path) -> None:
    path = fill(tmp_path)
    with KeywordTree(str(tmp_path)) as tree:
        tree.RankCandidates("zebra")
        tree.DeleteKeyword("oat", info_policy="delete")
        tree.CompactStorage(keep_history=False)
        assert not path.exists()

        assert first(tree, "zebra") == ""
    assert b"zebra" not in b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_a_small_tree_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.set_limits(monkeypatch, kept_from=2000)
    fill(tmp_path)

    assert not (tmp_path / "indexes").exists()
