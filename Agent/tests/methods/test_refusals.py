"""What is refused, with which error, and what the error says."""

from __future__ import annotations

import errno
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import (
    InvalidInputError,
    KeywordTree,
    KeywordTreeError,
    NotFoundError,
    StoreCorruptError,
    StoreError,
    StubLLMClient,
)
from Agent.tests.support import inside


def test_an_operation_that_another_process_forgets_meanwhile_is_not_found(folder: Path) -> None:
    others: list[KeywordTree] = []

    def new_id() -> str:  # asked for between reading the operation and undoing it
        for other in others:
            other.CompactStorage(keep_history=False)
        return str(uuid.uuid4())

    with KeywordTree(str(folder), new_id=new_id) as tree, KeywordTree(str(folder)) as other:
        tea = tree.CreateKeyword("tea", "root")
        operation_id = tree.last_operation
        tree.DeleteKeyword(tea.id)
        others.append(other)

        with pytest.raises(NotFoundError, match="no operation has the id"):
            tree.Undo(operation_id)


@pytest.mark.parametrize(
    ("path", "message"), [("nope", "no keyword found for 'nope': Ensure makes it"), ("a", "2 keywords found for")]
)
def test_a_name_that_does_not_lead_to_one_keyword_is_not_found(tree: KeywordTree, path: str, message: str) -> None:
    tree.BatchCreateKeywords([{"name": "a", "parent_id": "root"}] * 2)

    with pytest.raises(NotFoundError, match=message) as caught:
        tree[path]
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, KeywordTreeError)


def test_a_spec_may_leave_the_id_to_the_tree_as_the_single_call_does(tree: KeywordTree) -> None:
    [node] = tree.BatchCreateKeywords([{"name": "a", "parent_id": "root", "id": None}])
    [info] = tree.BatchCreateInfos([{"content": "b", "keyword_ids": [node.id], "id": None}])

    assert tree.GetKeyword(node.id) == node
    assert tree.GetInfosOfKeyword(node.id) == [info]


@pytest.mark.parametrize("method", ["List", "Stat"])
@pytest.mark.parametrize("call", [KeywordTree.CompactStorage, KeywordTree.TreeMetrics])
def test_a_disk_that_cannot_be_looked_at_is_named_with_what_was_wanted(
    tree: KeywordTree, monkeypatch: pytest.MonkeyPatch, method: str, call: object
) -> None:
    def refuse(*_: object) -> object:
        raise inside.refusal(errno.EIO)

    monkeypatch.setattr(inside.Files, method, refuse)
    with pytest.raises(StoreError, match=r"^c") as caught:
        call(tree)  # type: ignore[operator]
    monkeypatch.undo()
    assert type(caught.value) is StoreError


@pytest.mark.parametrize("name", ["nodes.jsonl", "infos.jsonl", "links.jsonl", "change_log.jsonl"])
def test_a_pipe_in_the_place_of_a_file_keeps_no_one_waiting(folder: Path, name: str) -> None:
    with KeywordTree(str(folder)) as tree:
        tree.CreateKeyword("a", "root")
    (folder / name).unlink()
    os.mkfifo(folder / name)

    if name == "change_log.jsonl":
        with pytest.raises(StoreError):
            KeywordTree(str(folder))
        return
    with KeywordTree(str(folder)) as again:
        assert [node.name for node in again.Walk()][1:] == ["a"]
        assert again.recovery


def test_an_integer_that_other_processes_could_not_read_is_refused(tree: KeywordTree) -> None:
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        for metadata in ({"n": 10**5000}, {"list": [{"n": -(10**5000)}]}):
            with pytest.raises(InvalidInputError, match="more than 4,000 digits"):
                tree.CreateKeyword("a", "root", metadata=metadata)
    finally:
        sys.set_int_max_str_digits(digits)
    largest = 10**3999
    assert tree.CreateKeyword("b", "root", metadata={"n": largest}).metadata == {"n": largest}


def test_what_a_killed_compaction_left_is_removed(folder: Path) -> None:
    with KeywordTree(str(folder)) as tree:
        tree.CreateKeyword("a", "root")
    for name in ("change_log.jsonl.new", "nodes.jsonl.new", "forget.new"):
        (folder / name).write_bytes(b"half")
    (folder / "notes.new").write_bytes(b"of the user")

    with KeywordTree(str(folder)) as again:
        assert (again.recovery, len(again)) == ((), 1)
    assert sorted(path.name for path in folder.glob("*.new")) == ["notes.new"]


def test_a_client_is_an_object_and_no_class(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"^llm_client must be an object with a method Chat: <class "):
        KeywordTree(tmp_path, StubLLMClient)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_tree_yields_its_keywords_and_is_true_while_it_is_open(tree: KeywordTree) -> None:
    assert bool(tree)
    assert not list(tree)

    tree.Ensure("a/b")
    tree.Ensure("c")
    assert [node.name for node in tree] == ["a", "b", "c"]

    tree.Close()
    assert not tree


@pytest.mark.parametrize("content", ["", " \n\t", "\u3000"])
def test_an_info_that_says_nothing_is_refused(tree: KeywordTree, content: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^content must not be empty or blank: {re.escape(repr(content))}$"):
        tree.CreateInfo(content)
    assert not tree.ListInfos()
    assert tree.BatchCreateInfos([{"content": content}])[0].content == content  # what an import brings is kept


@pytest.mark.parametrize("name", ["Tea", "tea", "绿茶"])
def test_a_name_in_the_place_of_an_id_is_answered_with_the_id(tree: KeywordTree, name: str) -> None:
    tea = tree.CreateKeyword("Tea", "root", ["绿茶"])

    for write in (
        lambda: tree.CreateInfo("a", "", [name]),
        lambda: tree.CreateKeyword("b", name),
        lambda: tree.MoveKeyword(tea.id, name),
    ):
        message = f"no keyword has the id '{name}': an id is needed, and the keyword called so has '{tea.id}'"
        with pytest.raises(NotFoundError, match=f"^{message}$") as caught:
            write()
        assert (caught.value.kind, caught.value.id) == ("keyword", name)
    with pytest.raises(NotFoundError, match=r"^no keyword has the id 'coffee', nor this name: Ensure\(name\) makes"):
        tree.CreateInfo("a", "", ["coffee"])
    assert not tree.ListInfos()


@pytest.mark.parametrize("missing", ["newest", "middle"])
def test_what_a_missing_file_of_the_history_held_is_refused(folder: Path, missing: str) -> None:
    with KeywordTree(str(folder)) as tree:
        ids, ends = [], []
        for name in ("a", "b", "c"):
            ids.append(tree.CreateKeyword(name, "root").id)
            ends.append(tree.History(limit=1)[0].seq)
            tree.CompactStorage()
        newest = tree.CreateKeyword("d", "root")
        lost = {"middle": 1, "newest": 2}[missing]
        (folder / "history" / f"{ends[lost]:018d}.jsonl").unlink()

        problems = tree.Verify()
        assert [problem for problem in problems if f"to {ends[lost]}, of history" in problem] == problems
        assert len(problems) == 1
        for ask in (
            lambda: tree.At(ends[lost]),
            lambda: tree.At(ends[0]),
            lambda: tree.History(limit=100),
            lambda: tree.History(ids[0]),
            lambda: tree.Undo(str(newest.id)),
        ):
            with pytest.raises(StoreCorruptError, match="missing"):
                ask()
        assert [change.op for change in tree.History(limit=1)] == ["create_keyword"]
        assert len(tree.At(ends[2] + 1)) == 3


def test_a_history_of_one_record_says_where_a_line_is_damaged(folder: Path) -> None:
    with KeywordTree(str(folder)) as tree:
        tea = tree.CreateKeyword("tea", "root")
        tree.CreateKeyword("coffee", "root")
        log = folder / "change_log.jsonl"
        log.write_bytes(log.read_bytes().replace(tea.id.encode(), b"x" * len(tea.id)))

        for id in (None, tea.id):
            with pytest.raises(StoreCorruptError, match="has changed since it was read"):
                tree.History(id)


def test_a_record_is_accepted_where_its_id_is_wanted(tree: KeywordTree) -> None:
    tea = tree.CreateKeyword("tea", "root")
    green = tree.CreateKeyword("green", tea)  # type: ignore[arg-type]
    info = tree.CreateInfo("Longjing is green.", "", [green])  # type: ignore[list-item]
    calls: Any = tree

    calls.LinkInfo(info, tea)
    assert [keyword.name for keyword, _ in calls.GetKeywordsOfInfo(info)] == ["green", "tea"]
    assert [each.id for each in calls.GetInfosOfKeyword(tea)] == [each.info_id for each in calls.GetLinks(info)][:1]
    assert [node.name for node in calls.GetPath(green)] == ["root", "tea", "green"]
    assert calls.GetChildren(tea) == [calls.GetKeyword(green)] == list(calls.Walk(tea))[1:]
    assert calls.GetInfo(info) == info
    assert [change.op for change in calls.History(green)] == ["create_info", "create_keyword"]
    assert calls.ListInfos(after=info) == []
    assert calls.UnlinkInfo(info, tea)
    calls.MoveKeyword(green, "root")
    calls.UpdateInfo(info, {"content": "It is."})
    calls.BatchCreateKeywords([{"name": "white", "parent_id": tea}])
    calls.BatchCreateInfos([{"content": "Silver needle is white.", "keyword_ids": [tea]}])
    calls.DeleteInfo(info)
    calls.MergeKeywords(green, tea)
    calls.DeleteKeyword(tea, cascade=True)
    assert len(tree) == 0
