"""Rows in the files: what a general encoder of JSON would write, in the order of the format."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from Agent import keyword_tree
from Agent.keyword_tree import KeywordTree, RelationType, StoreCorruptError
from Agent.tests.support.log_format import KINDS, LOG, encoded, read_log, reframed, rows_of

STRANGE = 'i"d', "n\\\t\x00\u2028编", "🐍", "é", "a\x7f", "</script>"
TIMES = [0.1, 1e-7, 1.25, 1_700_000_000.123456, 2.0, 3.5, 10.0**10, 4.25, 5.0, 6.0]
FIELDS = {
    "nodes": [
        *("id", "ordinal", "deleted", "parent_id", "name", "aliases", "normalized", "level", "children"),
        *("description", "metadata", "version", "created_at", "updated_at", "created_by"),
    ],
    "infos": [*("id", "deleted", "source", "metadata", "version", "created_at", "updated_at", "created_by", "content")],
    "links": ["info_id", "keyword_id", "ordinal", "deleted", "relation", "created_by", "created_at"],
}


def make(folder: Path) -> dict[str, object]:
    times = iter(TIMES)
    with KeywordTree(str(folder), clock=lambda: next(times, 7.0)) as tree:
        spec = {"name": STRANGE[1], "aliases": list(STRANGE[2:]), "description": "d" * 5000, "created_by": "我"}
        [node] = tree.BatchCreateKeywords([{**spec, "metadata": {"k": [1.5, None, {"": True}]}, "parent_id": "root"}])
        tree.Confirm(STRANGE[0] + "?", node.id)
        info = tree.CreateInfo("c\n" + STRANGE[1], STRANGE[0], [node.id], metadata={"n": 1e22, "m": -0.5})
        tree.LinkInfo(info.id, "root", RelationType.EXAMPLE)
        tree.BatchCreateInfos([{"content": text, "id": text, "keyword_ids": [node.id]} for text in STRANGE[:2]])
        return look(tree, node.id, info.id)


def look(tree: KeywordTree, id: str, info_id: str) -> dict[str, object]:
    return {
        "id": id,
        "info_id": info_id,
        "node": tree.GetKeyword(id),
        "infos": [tree.GetInfo(one) for one in (info_id, *STRANGE[:2])],
        "links": [tree.GetLinks(one) for one in (info_id, *STRANGE[:2])],
    }


def test_are_compact_json_with_their_fields_in_order(tmp_path: Path) -> None:
    make(tmp_path)
    for kind in KINDS:
        rows = (tmp_path / f"{kind}.jsonl").read_text("utf-8").split("\n")[:-1]
        assert rows
        for row in rows:
            assert row == encoded(json.loads(row))
            reported = [field for field in json.loads(row) if field not in ("confirmed", "merged_into")]
            assert reported == FIELDS[kind]


def test_stand_in_the_log_as_in_the_projections(tmp_path: Path) -> None:
    make(tmp_path)
    log = (tmp_path / LOG).read_bytes()
    for kind in KINDS:
        rows = [row for operation in read_log(log) for row in rows_of(operation)[kind]]
        assert (tmp_path / f"{kind}.jsonl").read_text("utf-8") == "".join(f"{encoded(row)}\n" for row in rows)
        assert all(encoded(row).encode() in log for row in rows)


def test_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = make(tmp_path)
    with KeywordTree(str(tmp_path)) as again:
        assert look(again, str(made["id"]), str(made["info_id"])) == made
        assert again.Verify() == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_with_what_json_has_no_word_for_is_refused(tmp_path: Path, number: str) -> None:
    with KeywordTree(str(tmp_path), clock=lambda: 1.0) as tree:
        tea = tree.CreateKeyword("tea", "root")
    first, second, *_ = (tmp_path / LOG).read_bytes().splitlines()
    forged = second.replace(b'"created_at":1.0', b'"created_at":%b' % number.encode())
    (tmp_path / LOG).write_bytes(reframed([first, forged]))
    for kind in KINDS:
        (tmp_path / f"{kind}.jsonl").unlink(missing_ok=True)
    with pytest.raises(StoreCorruptError, match="no JSON"), KeywordTree(str(tmp_path)) as tree:
        print(tree.GetKeyword(tea.id))


ONE_FIELD_MORE = """
import keyword_tree as kt
tree = kt.KeywordTree("data")
tea, other = (tree.CreateKeyword(name, "root").id for name in ("tea", "other"))
tree.Confirm("a hot drink", tea)
tree._engine.Write("pin", lambda tx: tx.Change(tx.ReadNode(tea), pinned=True), "user")
pinning = tree.last_operation
tree.CompactStorage()
tree.DeleteKeyword(tea)
deletion = tree.last_operation
tree.CompactStorage()
tree.Close()
tree = kt.KeywordTree("data")
tree.Undo(deletion)
assert tree.GetKeyword(tea).pinned is True and tree.GetKeyword(other).pinned is False
assert tree.Search("a hot drink", False).node == tree.GetKeyword(tea)
tree.Undo(pinning)
assert tree.GetKeyword(tea).pinned is False and tree.Verify() == []
"""


@pytest.mark.parametrize("place", ["deleted", "created_by", "ordinal", "confirmed", "merged_into"])
def test_a_field_that_is_added_to_keywords_is_kept_wherever_it_is_put(tmp_path: Path, place: str) -> None:
    copied = _with_a_field(tmp_path, place, "pinned: bool = field(default_factory=bool)")
    assert copied.returncode == 0, copied.stderr


def test_a_field_with_a_default_that_would_hide_its_rows_is_named(tmp_path: Path) -> None:
    copied = _with_a_field(tmp_path, "confirmed", "pinned: bool = False")
    assert "pinned needs a default_factory" in copied.stderr


def _with_a_field(folder: Path, place: str, line: str) -> "subprocess.CompletedProcess[str]":
    copied = Path(shutil.copy(keyword_tree.__file__, folder))
    before, mark, after = copied.read_text("utf-8").partition("class KeywordNode(")
    first, _, rest = after.partition(f"\n    {place}: ")
    field, _, others = rest.partition("\n")
    copied.write_text(f"{before}{mark}{first}\n    {place}: {field}\n    {line}\n{others}", "utf-8")
    command = [sys.executable, "-c", ONE_FIELD_MORE]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
