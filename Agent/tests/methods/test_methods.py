"""Tests of what changes a tree, takes it back, sets it aside and looks after it, method by method.

Every refusal is shown to have written nothing (the folder's bytes and the tree's state are as before). Undoing across
closing, crashes, compactions and other trees is the matter of `test_machine`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from Agent.keyword_tree import (
    Change,
    ClosedError,
    ConflictError,
    DuplicateIdError,
    Info,
    InfoKeywordLink,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    KeywordTreeError,
    LLMClient,
    NotFoundError,
    RelationType,
    SearchStatus,
    StoreError,
    VersionConflictError,
)
from Agent.models.lexical_client import LexicalLLMClient
from Agent.tests.support import ROOT, inside
from Agent.tests.support.looking import disk, names_under
from Agent.tests.support.models import Model, always

LOG = "change_log.jsonl"
LONG = "长内容 long content " * 500  # more than what stays in memory
EXAMPLE, PRIMARY, RELATED, SOURCE = (
    RelationType.EXAMPLE,
    RelationType.PRIMARY,
    RelationType.RELATED,
    RelationType.SOURCE,
)


# == The tests' own tools =================================================================================

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.fixture
def tree(folder: Path) -> Iterator[KeywordTree]:
    with opened(folder) as tree:
        furnish(tree)
        yield tree


def opened(folder: Path, client: LLMClient | None = None, **options: Any) -> KeywordTree:
    return KeywordTree(str(folder), client, **options)


FIRST = {"action": "match", "node_id": 0, "reason": "第一个"}


def furnish(tree: KeywordTree) -> None:
    """编程 > (Python > (asyncio, typing), Rust), 工具 > pytest; infos on them, one of them long, one on none."""
    tree.BatchCreateKeywords(
        [
            {"id": "prog", "name": "编程", "parent_id": "root", "aliases": ["programming"], "description": "写代码"},
            {"id": "py", "name": "Python", "parent_id": "prog", "aliases": ["CPython", "蟒蛇"], "metadata": {"n": 1}},
            {"id": "rust", "name": "Rust", "parent_id": "prog", "description": "铁锈", "metadata": {"n": 2, "m": []}},
            {"id": "aio", "name": "asyncio", "parent_id": "py", "aliases": ["异步"]},
            {"id": "typ", "name": "typing", "parent_id": "py"},
            {"id": "tool", "name": "工具", "parent_id": "root"},
            {"id": "test", "name": "pytest", "parent_id": "tool", "created_by": "importer"},
        ]
    )
    tree.BatchCreateInfos(
        [
            {"id": "both", "content": "两者都 both", "source": "book", "keyword_ids": ["py", "rust"]},
            {"id": "only", "content": "只有它 only one", "keyword_ids": ["py"], "metadata": {"k": "v"}},
            {"id": "long", "content": LONG, "keyword_ids": ["py", "prog"]},
            {"id": "deep", "content": "深处", "keyword_ids": ["aio"], "created_by": "importer"},
            {"id": "free", "content": "游离 on no keyword"},
        ]
    )
    tree.LinkInfo("both", "rust", SOURCE)
    tree.LinkInfo("only", "typ", EXAMPLE, created_by="agent")
    tree.Confirm("那条蛇 the snake", "py")


def add(tree: KeywordTree, name: str, parent: str = "root", **fields: Any) -> str:
    return tree.CreateKeyword(name, parent, **fields).id


def last(tree: KeywordTree) -> Change:
    return tree.History(limit=1)[0]


def version(tree: KeywordTree, id: str) -> int:
    return node(tree, id).version


def node(tree: KeywordTree, id: str) -> KeywordNode:
    found = tree.GetKeyword(id)
    assert found is not None
    return found


def info(tree: KeywordTree, id: str) -> Info:
    found = tree.GetInfo(id)
    assert found is not None
    return found


def infos_of(tree: KeywordTree, id: str) -> list[tuple[str, RelationType]]:
    """Return what hangs on a keyword, in its order."""
    found = tree.GetInfosOfKeyword(id, size=1000)
    return [(one.id, {k.id: r for k, r in tree.GetKeywordsOfInfo(one.id)}[id]) for one in found]


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in [folder, *folder.rglob("*")]}


def line_count(folder: Path) -> int:
    return sum(bool(line.strip()) for line in (folder / LOG).read_bytes().split(b"\n"))


def holding(folder: Path, *texts: str) -> list[tuple[str, str]]:
    """Search every byte of the folder; a text is looked for as it is and as JSON may escape it."""
    return [
        (name, text)
        for name, data in disk(folder).items()
        for text in texts
        if text.encode() in data or json.dumps(text)[1:-1].encode() in data or text.encode() in name.encode()
    ]


DROPPED = ("version", "updated_at")


def fields(record: object, *dropped: str) -> dict[str, Any]:
    assert dataclasses.is_dataclass(record)
    assert not isinstance(record, type)
    return {name: value for name, value in dataclasses.asdict(record).items() if name not in (*DROPPED, *dropped)}


def key_of(record: KeywordNode | Info | InfoKeywordLink) -> tuple[str, ...]:
    if isinstance(record, InfoKeywordLink):
        return "link", record.info_id, record.keyword_id
    return type(record).__name__, record.id


def in_log(tree: KeywordTree) -> dict[tuple[str, ...], dict[str, Any]]:
    """Follow `Changes` from the first on: every live record, links with all their fields too."""
    live: dict[tuple[str, ...], dict[str, Any]] = {}
    for change in tree.Changes():
        for record in change.after:
            live.pop(key_of(record), None)
            if not record.deleted:
                live[key_of(record)] = fields(record, "level", "children")
    return live


def holders_of(tree: KeywordTree, id: str) -> list[tuple[str, object]]:
    """Return the keywords of an info with their relations; it is read with their paths, too."""
    held = tree.GetKeywordsOfInfo(id)
    ((found, paths),) = tree.GetInfos([id, "never there"]).values()
    assert (found, paths) == (tree.GetInfo(id), [tree.GetPath(one.id) for one, _ in held])
    return [(one.id, relation) for one, relation in held]


def picture(tree: KeywordTree) -> dict[str, Any]:
    """All there is, but for `version` and `updated_at`: by the public getters, and by the log."""
    records = in_log(tree)
    nodes = {key[1]: node(tree, key[1]) for key in records if key[0] == "KeywordNode"}
    infos = {key[1]: info(tree, key[1]) for key in records if key[0] == "Info"}
    metrics = tree.TreeMetrics()
    names = {name for one in nodes.values() for name in (one.name, *one.aliases)}
    return {
        "log": {str(key): record for key, record in sorted(records.items())},
        "nodes": {id: fields(found) for id, found in sorted(nodes.items())},
        "paths": {id: [step.id for step in tree.GetPath(id)] for id in nodes},
        "children": {id: [child.id for child in tree.GetChildren(id)] for id in nodes},
        "infos": {id: fields(found) for id, found in sorted(infos.items())},
        "linked": {id: infos_of(tree, id) for id in nodes},
        "holders": {id: holders_of(tree, id) for id in infos},
        "named": {name: [found.id for found in tree.FindByName(name)] for name in sorted(names)},
        "snake": (found.id if (found := tree.Search("那条蛇 THE SNAKE", False).node) else None),
        "counts": [metrics["keywords"], metrics["infos"], metrics["links"], metrics["unlinked_infos"]],
    }


@contextlib.contextmanager
def unchanged(tree: KeywordTree, folder: Path) -> Iterator[None]:
    """Show that nothing is written: the folder's bytes and the state are as before."""
    state, files, times = picture(tree), disk(folder), stamps(folder)
    yield
    assert disk(folder) == files
    assert stamps(folder) == times
    assert picture(tree) == state


@contextlib.contextmanager
def taken_back(tree: KeywordTree) -> Iterator[None]:
    """An operation that an exception ends."""
    was_raised = False
    try:
        with tree.Operation("taken back"):
            yield
            raise ZeroDivisionError
    except ZeroDivisionError:
        was_raised = True
    assert was_raised


# == Changing keywords ====================================================================================


class TestUpdateKeyword:
    @pytest.mark.parametrize(
        "patch",
        [
            {"name": "ＰＹＴＨＯＮ 3"},
            {"aliases": ["大蟒", "py3", "大蟒"]},
            {"aliases": None},
            {"description": "一种语言\na language"},
            {"metadata": {"级": [1, {"x": None}]}},
            {"name": "派森", "aliases": [], "description": "", "metadata": None},
        ],
        ids=lambda patch: "+".join(patch),
    )
    def test_changes_what_the_patch_names_and_nothing_else(
        self, tree: KeywordTree, folder: Path, patch: dict[str, Any]
    ) -> None:
        before, lines = node(tree, "py"), line_count(folder)

        made = tree.UpdateKeyword("py", patch, before.version)

        expected = dict(patch)
        if "aliases" in patch:
            expected["aliases"] = list(dict.fromkeys(patch["aliases"] or []))
        if "metadata" in patch:
            expected["metadata"] = patch["metadata"] or {}
        assert fields(made, "normalized") == {**fields(before, "normalized"), **expected}
        assert made == node(tree, "py")
        assert (made.version, made.updated_at >= before.updated_at) == (before.version + 1, True)
        assert line_count(folder) == lines + 1
        assert (last(tree).op, last(tree).Ids()) == ("update_keyword", {"py"})
        assert tree.Verify() == []

    def test_a_stale_version_is_refused_and_tells_the_present_one(self, tree: KeywordTree, folder: Path) -> None:
        seen = version(tree, "py")
        tree.AddAlias("py", "大蟒")

        with unchanged(tree, folder), pytest.raises(VersionConflictError, match="'py'") as refused:
            tree.UpdateKeyword("py", {"name": "x"}, seen)

        assert (refused.value.id, refused.value.current) == ("py", seen + 1)
        assert tree.UpdateKeyword("py", {"name": "x"}, refused.value.current).name == "x"

    def test_root_keeps_its_name_but_takes_a_description(self, tree: KeywordTree, folder: Path) -> None:
        for patch in ({"name": "根"}, {"aliases": ["根"]}, {"aliases": [], "description": "x"}):
            with unchanged(tree, folder), pytest.raises(InvalidInputError, match="root"):
                tree.UpdateKeyword("root", patch, 1)

        made = tree.UpdateKeyword("root", {"description": "所有", "metadata": {"v": 1}}, 1)
        assert (made.name, made.description, made.metadata) == ("root", "所有", {"v": 1})


class TestMoveKeyword:
    def test_a_subtree_moves_as_one_row(self, tree: KeywordTree) -> None:
        moved = tree.MoveKeyword("py", "test")

        assert (moved.parent_id, moved.level) == ("test", 3)
        assert [step.name for step in tree.GetPath("aio")] == ["root", "工具", "pytest", "Python", "asyncio"]
        assert node(tree, "aio").level == 4
        assert names_under(tree, "prog") == ["Rust"]
        assert [key_of(record) for record in last(tree).after] == [("KeywordNode", "py")]
        assert tree.Search("工具 > Python > 异步", False).node == node(tree, "aio")
        assert tree.Verify() == []


class TestMergeKeywords:
    def test_names_children_links_and_queries_join(self, tree: KeywordTree) -> None:
        tree.LinkInfo("deep", "rust", RELATED)
        tree.Confirm("生锈了吗", "rust")

        made = tree.MergeKeywords("py", "rust")

        assert (made.id, made.name, made.aliases) == ("rust", "Rust", ["Python", "CPython", "蟒蛇"])
        assert (made.description, made.metadata) == ("铁锈", {"n": 2, "m": []})
        assert made.confirmed == ["那条蛇 the snake", "生锈了吗"]
        assert [child.id for child in tree.GetChildren("rust")] == ["aio", "typ"]
        assert Counter(infos_of(tree, "rust")) == Counter(
            [("both", SOURCE), ("only", PRIMARY), ("long", PRIMARY), ("deep", RELATED)]
        )
        assert tree.GetKeyword("py") == made
        assert tree.Search("python", False).node == tree.Search("那条蛇 the snake", False).node == made
        assert node(tree, "aio").level == 3
        assert last(tree).op == "merge_keywords"
        assert tree.Verify() == []

    def test_an_id_leads_on_through_many_merges_also_after_reopening(self, tree: KeywordTree, folder: Path) -> None:
        tree.MergeKeywords("aio", "typ")
        tree.MergeKeywords("typ", "rust")
        tree.MergeKeywords("rust", "test")

        assert [node(tree, id).id for id in ("aio", "typ", "rust")] == ["test"] * 3
        tree.Close()
        with opened(folder) as again:
            assert [node(again, id).id for id in ("aio", "typ", "rust")] == ["test"] * 3
            assert again.LinkInfo("free", "aio").keyword_id == "test"
            assert again.UnlinkInfo("free", "typ") is True
            assert again.UpdateKeyword("rust", {"name": "四者"}, version(again, "test")).id == "test"
            with unchanged(again, folder):
                with pytest.raises(InvalidInputError):
                    again.MergeKeywords("rust", "test")
                with pytest.raises(NotFoundError):
                    again.DeleteKeyword("rust")
            assert add(again, "下面", "typ") in node(again, "test").children
            again.DeleteKeyword("test")
            assert again.GetKeyword("aio") is None


class TestMergedQueries:
    def test_that_differ_in_case_and_mark_alone_are_one(self, tree: KeywordTree) -> None:
        one, other = add(tree, "one"), add(tree, "other")
        tree.Confirm("Green stuff", one)
        tree.Confirm("green stuff?", other)

        assert tree.MergeKeywords(one, other).confirmed == ["green stuff?"]


class TestDeleteKeyword:
    def test_without_cascade_the_children_move_up_and_the_infos_to_the_parent(self, tree: KeywordTree) -> None:
        tree.DeleteKeyword("py")

        assert tree.GetKeyword("py") is None
        assert names_under(tree, "prog") == ["Rust", "asyncio", "typing"]
        assert [one for one, _ in infos_of(tree, "prog")] == ["both", "only", "long"]
        assert tree.FindByName("python") == tree.FindByName("蟒蛇") == []
        assert tree.Search("那条蛇 the snake", False).node is None
        assert last(tree).op == "delete_keyword"
        assert tree.Verify() == []

    def test_a_chain_of_four_hundred_is_deleted_whole(self, folder: Path) -> None:
        with opened(folder) as tree:
            specs = [{"id": str(n), "name": f"层{n}", "parent_id": str(n - 1) if n else "root"} for n in range(400)]
            tree.BatchCreateKeywords(specs)
            tree.DeleteKeyword("0", cascade=True)
            assert (names_under(tree, "root"), tree.TreeMetrics()["keywords"]) == ([], 0)
            tree.Undo(last(tree).operation_id)
            assert (node(tree, "399").level, tree.Verify()) == (400, [])


class TestConfirm:
    def test_a_query_is_answered_at_once_from_then_on(self, tree: KeywordTree) -> None:
        tree.Confirm("怎么 写并发?", "aio")

        found = tree.Search("怎么写并发", False)
        assert (found.node, found.reason, found.rounds) == (node(tree, "aio"), "confirmed", 0)
        assert tree.Undo(last(tree).operation_id)
        assert tree.Search("怎么写并发", False).status is SearchStatus.NOT_FOUND

    def test_one_query_for_two_keywords_is_ambiguous(self, tree: KeywordTree) -> None:
        tree.Confirm("the same", "rust")
        tree.Confirm("THE SAME", "py")
        found = tree.Search("the same!", False)
        assert (found.status, [one.id for one in found.candidates]) == (SearchStatus.AMBIGUOUS, ["py", "rust"])

    def test_the_newest_twenty_are_kept(self, tree: KeywordTree) -> None:
        for number in range(25):
            tree.Confirm(f"问题 {number}", "rust")
        assert node(tree, "rust").confirmed == [f"问题 {number}" for number in range(5, 25)]


# == Changing infos =======================================================================================


class TestUpdateInfo:
    @pytest.mark.parametrize(
        "patch",
        [{"content": "新"}, {"content": LONG + "!"}, {"content": ""}, {"source": "书"}, {"metadata": {"a": []}}],
    )
    @pytest.mark.parametrize("id", ["only", "long"])
    def test_changes_what_the_patch_names_and_keeps_the_links(
        self, tree: KeywordTree, id: str, patch: dict[str, Any]
    ) -> None:
        before, links = info(tree, id), tree.GetKeywordsOfInfo(id)

        made = tree.UpdateInfo(id, patch)

        assert fields(made) == {**fields(before), **patch}
        assert (made, made.version, tree.GetKeywordsOfInfo(id)) == (info(tree, id), before.version + 1, links)
        assert (last(tree).op, last(tree).Ids()) == ("update_info", {id})


# == What is refused ======================================================================================

CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE
NO_IDS: list[Any] = [None, 7, b"py", "", ["py"], "\ud800", "x" * 513, True]
NO_NAMES: list[Any] = [None, 7, "", " \u3000\t", "\u200b", "\u3164", "\ufe0f\x07", "x" * 513, "a\ud800", ["a"]]
NO_METADATA: list[Any] = [[], "x", {"a": float("nan")}, {1: 2}, {"a": (1,)}, CIRCLE, {"a": "\ud800"}, {"a": {1}}]
NO_COUNTS: list[Any] = [0, -1, True, "1", 1.0, None]
OF_KEYWORD: dict[str, Callable[[KeywordTree, Any], object]] = {
    "UpdateKeyword": lambda tree, id: tree.UpdateKeyword(id, {"name": "x"}, 1),
    "AddAlias": lambda tree, id: tree.AddAlias(id, "x"),
    "RemoveAlias": lambda tree, id: tree.RemoveAlias(id, "x"),
    "MoveKeyword": lambda tree, id: tree.MoveKeyword(id, "tool"),
    "MoveKeyword to": lambda tree, id: tree.MoveKeyword("py", id),
    "MergeKeywords": lambda tree, id: tree.MergeKeywords(id, "py"),
    "MergeKeywords into": lambda tree, id: tree.MergeKeywords("py", id),
    "DeleteKeyword": lambda tree, id: tree.DeleteKeyword(id),
    "Confirm": lambda tree, id: tree.Confirm("query", id),
    "UnlinkInfo": lambda tree, id: tree.UnlinkInfo("only", id),
    "LinkInfo": lambda tree, id: tree.LinkInfo("only", id),
}
OF_INFO: dict[str, Callable[[KeywordTree, Any], object]] = {
    "UpdateInfo": lambda tree, id: tree.UpdateInfo(id, {"content": "x"}),
    "DeleteInfo": lambda tree, id: tree.DeleteInfo(id),
    "UnlinkInfo": lambda tree, id: tree.UnlinkInfo(id, "py"),
    "LinkInfo": lambda tree, id: tree.LinkInfo(id, "py", RELATED),
}
STEP = {"action": "merge", "src_id": "py", "dst_id": "rust"}
NO_OPERATIONS = [None, 7, "", " ", "x" * 513, "checkpoint", "state", "create_store"]
BAD: dict[str, tuple[Callable[[KeywordTree, Any], object], list[Any]]] = {
    "name": (lambda tree, bad: tree.UpdateKeyword("py", {"name": bad}, version(tree, "py")), NO_NAMES),
    "alias": (lambda tree, bad: tree.UpdateKeyword("py", {"aliases": ["good", bad]}, version(tree, "py")), NO_NAMES),
    "aliases": (
        lambda tree, bad: tree.UpdateKeyword("py", {"aliases": bad}, version(tree, "py")),
        ["abc", 7, {"a": 1}, {"a"}],
    ),
    "description": (
        lambda tree, bad: tree.UpdateKeyword("py", {"description": bad}, version(tree, "py")),
        [None, 7, "x" * 65_537, "\udfff"],
    ),
    "metadata": (lambda tree, bad: tree.UpdateKeyword("py", {"metadata": bad}, version(tree, "py")), NO_METADATA),
    "patch": (
        lambda tree, bad: tree.UpdateKeyword("py", bad, version(tree, "py")),
        [None, [], "name", {"parent_id": "tool"}, {"id": "x"}, {"version": 9}, {"children": []}, {7: 7}, {"名": "x"}],
    ),
    "version": (lambda tree, bad: tree.UpdateKeyword("py", {"name": "x"}, bad), NO_COUNTS),
    "added alias": (lambda tree, bad: tree.AddAlias("py", bad), NO_NAMES),
    "removed alias": (
        lambda tree, bad: tree.RemoveAlias("py", bad),
        [None, 7, "\ud800", "", "cpython", "Python", "没有"],
    ),
    "cascade": (lambda tree, bad: tree.DeleteKeyword("py", bad), [None, 1, "yes"]),
    "info_policy": (lambda tree, bad: tree.DeleteKeyword("py", False, bad), [None, 1, "keep", "DELETE", ["delete"]]),
    "query": (lambda tree, bad: tree.Confirm(bad, "py"), [None, 7, "", " \n", "\ud800", "x" * 2001]),
    "root": (lambda tree, bad: tree.Confirm(bad, "root"), ["query"]),
    "alias of root": (lambda tree, bad: tree.AddAlias("root", bad), ["根"]),
    "circle": (
        lambda tree, bad: tree.MoveKeyword(*bad),
        [("py", "py"), ("py", "aio"), ("prog", "typ"), ("root", "py")],
    ),
    "merge": (lambda tree, bad: tree.MergeKeywords(*bad), [("py", "py"), ("root", "py"), ("py", "root")]),
    "content": (
        lambda tree, bad: tree.UpdateInfo("only", {"content": bad}),
        [None, 7, b"x", "\ud800", "知" * (16 * 1024 * 1024 // 3 + 1)],
    ),
    "source": (lambda tree, bad: tree.UpdateInfo("only", {"source": bad}), [None, 7, "\ud800"]),
    "info metadata": (lambda tree, bad: tree.UpdateInfo("only", {"metadata": bad}), NO_METADATA),
    "info patch": (
        lambda tree, bad: tree.UpdateInfo("only", bad),
        [None, [], {"id": "x"}, {"keyword_ids": []}, {"content": "x", "colour": 1}],
    ),
    "infos": (lambda tree, bad: tree.GetInfos(bad), ["only", 7, {"only": 1}, ["only", 7], [None]]),
    "operation": (lambda tree, bad: tree.Undo(bad), NO_IDS),
    "limit": (lambda tree, bad: tree.History(limit=bad), [-1, True, "1", None, 1.5]),
    "history of": (lambda tree, bad: tree.History(bad), [7, b"py", ""]),
    "since": (lambda tree, bad: list(tree.Changes(bad)), [-1, True, "1", None, 0.5]),
    "refresh": (lambda tree, bad: list(tree.Changes(0, bad)), [None, 1, "no"]),
    "copy": (lambda tree, bad: tree.Snapshot(bad), [None, 1, "yes"]),
    "snapshot": (
        lambda tree, bad: tree.Restore(bad),
        [None, 7, "", ".", "..", "../x", "/etc", "a/b", "20200101T000000.000000Z/../x", "x\0y", "\ud800"],
    ),
    "snapshot that looks like one": (
        lambda tree, bad: tree.Restore(bad),
        ["20200101T000000.000000Z\n", "20200101T000000.000000Z-", "٢٠٢٠٠١٠١T000000.000000Z.new"],
    ),
    "keep_history": (lambda tree, bad: tree.CompactStorage(bad), [None, 1, "no"]),
    "scope": (lambda tree, bad: tree.Reorganize(bad), [7, b"py", ""]),
    "plan": (
        lambda tree, bad: tree.ApplyReorganizePlan(bad),
        [None, [], {}, {"steps": []}, {"steps": 1, "versions": {}}],
    ),
    "step": (
        lambda tree, bad: tree.ApplyReorganizePlan({**tree.Reorganize(), "steps": [bad]}),
        ["merge", {}, {"action": "burn"}, {"action": []}, {"action": "merge", "src_id": "py"}, {**STEP, "dst_id": 7}],
    ),
    "operation's name": (lambda tree, bad: tree.Operation(bad).__enter__(), NO_OPERATIONS),
    "info's operation": (lambda tree, bad: tree.CreateInfo("tea", operation=bad), NO_OPERATIONS),
    "rank": (lambda tree, bad: tree.RankCandidates(bad), [None, 7, "\ud800"]),
    "rank limit": (lambda tree, bad: tree.RankCandidates("x", bad), [-1, True, "1", None]),
}


class TestRefusals:
    """Bad input is refused before anything is written, and the message names it."""

    @pytest.mark.parametrize(
        ("kind", "what"), [*(("keyword", what) for what in OF_KEYWORD), *(("info", what) for what in OF_INFO)]
    )
    def test_no_id(self, tree: KeywordTree, folder: Path, kind: str, what: str) -> None:
        call, of_other, deleted = (
            (OF_KEYWORD[what], "only", "typ") if kind == "keyword" else (OF_INFO[what], "py", "both")
        )
        tree.DeleteKeyword("typ")
        tree.DeleteInfo("both")
        with unchanged(tree, folder):
            for bad in NO_IDS:
                with pytest.raises(InvalidInputError, match=r"id"):
                    call(tree, bad)
            for id in ("nowhere", "没有", of_other, deleted):
                with pytest.raises(NotFoundError, match=id) as refused:
                    call(tree, id)
                assert (refused.value.kind, refused.value.id) == (kind, id)
                assert isinstance(refused.value, LookupError)

    @pytest.mark.parametrize("what", BAD)
    def test_a_bad_value(self, tree: KeywordTree, folder: Path, what: str) -> None:
        call, values = BAD[what]
        with unchanged(tree, folder):
            for bad in values:
                with pytest.raises(InvalidInputError) as refused:
                    call(tree, bad)
                assert isinstance(refused.value, ValueError)
                assert len(str(refused.value)) < 400

    def test_an_unknown_operation_snapshot_or_scope(self, tree: KeywordTree, folder: Path) -> None:
        with unchanged(tree, folder):
            for kind, call, id in (
                ("operation", tree.Undo, "nowhere"),
                ("snapshot", tree.Restore, "20200101T000000.000000Z"),
                ("keyword", tree.Reorganize, "没有"),
            ):
                with pytest.raises(NotFoundError, match=re.escape(id)) as refused:
                    call(id)
                assert (refused.value.kind, refused.value.id) == (kind, id)
            assert tree.History("nowhere") == []

    def test_what_begins_the_log_cannot_be_undone(self, tree: KeywordTree, folder: Path) -> None:
        first = tree.History(limit=1000)[-1]
        assert first.op == "create_store"
        with unchanged(tree, folder), pytest.raises(InvalidInputError):
            tree.Undo(first.operation_id)

    @pytest.mark.parametrize(
        "call",
        [
            *(lambda tree, of=of: of(tree, "py") for of in OF_KEYWORD.values()),
            *(lambda tree, of=of: of(tree, "only") for of in OF_INFO.values()),
            *map(methodcaller, ("Refresh", "Verify", "TreeMetrics", "History", "Changes", "Reorganize", "__enter__")),
            *map(methodcaller, ("Snapshot", "CompactStorage")),
            *(methodcaller(name, "x") for name in ("Search", "FindByName", "RankCandidates", "Undo")),
            *(methodcaller(name, "x") for name in ("CreateKeyword", "CreateInfo")),
            *(methodcaller(name, "root") for name in ("GetKeyword", "GetChildren", "GetPath", "GetInfosOfKeyword")),
            *(methodcaller(name, "only") for name in ("GetInfo", "GetKeywordsOfInfo")),
            methodcaller("GetInfos", ["only"]),
            methodcaller("BatchCreateKeywords", [{"name": "x"}]),
            methodcaller("BatchCreateInfos", [{"content": "x"}]),
            methodcaller("Restore", "20200101T000000.000000Z"),
            methodcaller("ApplyReorganizePlan", {"steps": [], "versions": {}, "seen": {}}),
            lambda tree: tree.Operation().__enter__(),
        ],
    )
    def test_a_closed_tree(self, tree: KeywordTree, folder: Path, call: Callable[[KeywordTree], object]) -> None:
        tree.Close()
        files = disk(folder)
        with pytest.raises(ClosedError):
            call(tree)
        assert disk(folder) == files

    @pytest.mark.parametrize("what", ["Snapshot", "CompactStorage"])
    def test_inside_an_operation(self, tree: KeywordTree, folder: Path, what: str) -> None:
        with unchanged(tree, folder), tree.Operation(), pytest.raises(InvalidInputError, match=what):
            getattr(tree, what)()


def idle_operation(tree: KeywordTree) -> bool:
    with tree.Operation():
        return tree.AddAlias("py", "CPython") == node(tree, "py") and not tree.UnlinkInfo("free", "py")


IDLE: dict[str, Callable[[KeywordTree], bool]] = {
    "no patch": lambda tree: tree.UpdateKeyword("py", {}, version(tree, "py")) == node(tree, "py"),
    "same name": lambda tree: tree.UpdateKeyword("py", {"name": "Python"}, version(tree, "py")) == node(tree, "py"),
    "same fields": lambda tree: (
        tree.UpdateKeyword("py", {"metadata": {"n": 1}, "aliases": ["CPython", "蟒蛇"]}, version(tree, "py"))
        == node(tree, "py")
    ),
    "an alias that is there": lambda tree: tree.AddAlias("py", "蟒蛇") == node(tree, "py"),
    "its own place": lambda tree: tree.MoveKeyword("py", "prog") == node(tree, "py"),
    "its newest query": lambda tree: tree.Confirm("那条蛇 the snake", "py") == node(tree, "py"),
    "same content": lambda tree: tree.UpdateInfo("long", {"content": LONG, "source": ""}) == info(tree, "long"),
    "no link": lambda tree: tree.UnlinkInfo("free", "py") is False,
    "an operation of such": idle_operation,
}


@pytest.mark.parametrize("what", IDLE)
def test_what_changes_nothing_writes_nothing(tree: KeywordTree, folder: Path, what: str) -> None:
    with unchanged(tree, folder):
        assert IDLE[what](tree)


# == Many writes as one ===================================================================================


class TestOperation:
    def test_many_writes_are_one_line_under_its_id(self, tree: KeywordTree, folder: Path) -> None:
        lines = line_count(folder)

        with tree.Operation("导入 import") as op:
            made = add(tree, "Go", "prog", aliases=["golang"])
            one = tree.CreateInfo("并发 goroutines", keyword_ids=[made])
            tree.LinkInfo(one.id, "aio", EXAMPLE)
            tree.MoveKeyword("typ", made)
            tree.UpdateKeyword(made, {"description": "语言"}, 1)
            tree.DeleteKeyword("tool", cascade=True)
            assert line_count(folder) == lines

        assert line_count(folder) == lines + 1
        assert (last(tree).op, last(tree).operation_id) == ("导入 import", op.id)
        assert {made, one.id, "aio", "typ", "tool", "test"} == last(tree).Ids()
        assert [step.name for step in tree.GetPath("typ")] == ["root", "编程", "Go", "typing"]
        assert tree.Verify() == []

    def test_an_exception_takes_all_of_it_back(self, tree: KeywordTree, folder: Path) -> None:
        with unchanged(tree, folder), taken_back(tree):
            made = add(tree, "新")
            tree.DeleteKeyword("py", cascade=True, info_policy="delete")
            tree.MergeKeywords("test", "rust")
            tree.UpdateInfo("long", {"content": "short"})
            tree.Search("新")
        assert tree.GetKeyword(made) is None
        assert tree.Verify() == []

    def test_a_refused_write_leaves_nothing_of_itself(self, tree: KeywordTree) -> None:
        created = last(tree)
        with tree.Operation() as op:
            with pytest.raises(DuplicateIdError):
                tree.BatchCreateKeywords(
                    [{"name": "鬼", "id": "ghost", "parent_id": "root"}, {"name": "x", "id": "py", "parent_id": "root"}]
                )
            with pytest.raises(ConflictError):
                tree.Undo(tree.History(limit=1000)[-2].operation_id)
            kept = add(tree, "留下")
            assert (tree.GetKeyword("ghost"), names_under(tree, "root")) == (None, ["编程", "工具", "留下"])
        assert last(tree).operation_id == op.id != created.operation_id
        assert last(tree).Ids() == {kept}
        assert tree.Verify() == []

    def test_what_was_asked_for_the_part_that_is_taken_back_is_not_kept(self, folder: Path) -> None:
        with opened(folder, Model(always(FIRST))) as tree:
            add(tree, "编程")
            with tree.Operation():
                with taken_back(tree):
                    tree.CreateKeyword("SecretName")
                tree.CreateKeyword("Rust")
            assert holding(folder, "SecretName") == []
            assert "Rust" in json.dumps(last(tree).agent_io)

    def test_a_record_that_changes_back_and_forth_is_one_row(self, tree: KeywordTree) -> None:
        with tree.Operation():
            for number in range(5):
                tree.UpdateInfo("only", {"content": str(number)})
            passing = add(tree, "passing")
            tree.DeleteKeyword(passing)
        rows = [(key_of(record), record.deleted) for record in last(tree).after]
        assert rows == [(("KeywordNode", passing), True), (("Info", "only"), False)]
        assert info(tree, "only").content == "4"

    @pytest.mark.parametrize(
        ("inside", "meanwhile", "error"),
        [
            (lambda t: add(t, "孩子", "typ"), lambda t: t.DeleteKeyword("typ"), NotFoundError),
            (lambda t: t.MoveKeyword("py", "test"), lambda t: t.MoveKeyword("tool", "aio"), InvalidInputError),
            (
                lambda t: t.UpdateKeyword("py", {"name": "x"}, version(t, "py")),
                lambda t: t.AddAlias("py", "y"),
                VersionConflictError,
            ),
            (
                lambda t: t.UpdateInfo("only", {"source": "书"}, 1),
                lambda t: t.UpdateInfo("only", {"source": "报"}),
                VersionConflictError,
            ),
            (lambda t: t.LinkInfo("free", "py"), lambda t: t.DeleteInfo("free"), NotFoundError),
            (lambda t: t.RemoveAlias("py", "蟒蛇"), lambda t: t.RemoveAlias("py", "蟒蛇"), InvalidInputError),
            (
                lambda t: t.BatchCreateKeywords([{"name": "a", "id": "taken", "parent_id": "root"}]),
                lambda t: (
                    t.BatchCreateInfos([{"content": "b", "id": "taken"}])
                    and t.BatchCreateKeywords([{"name": "b", "id": "taken", "parent_id": "root"}])
                ),
                DuplicateIdError,
            ),
        ],
        ids=["parent gone", "cycle", "version", "version of an info", "info gone", "alias gone", "id taken"],
    )
    @pytest.mark.parametrize("who", ["thread", "tree"])
    def test_what_no_longer_fits_raises_at_its_end_and_nothing_of_it_is_there(
        self,
        tree: KeywordTree,
        folder: Path,
        inside: Callable[[KeywordTree], object],
        meanwhile: Callable[[KeywordTree], object],
        error: type[KeywordTreeError],
        who: str,
    ) -> None:
        with opened(folder) as other:
            with pytest.raises(error), tree.Operation():  # noqa: PT012  it is the block's end that raises
                add(tree, "同一个操作")
                inside(tree)
                worker = threading.Thread(target=meanwhile, args=[tree if who == "thread" else other])
                worker.start()
                worker.join()
            tree.Refresh()
            other.Refresh()
            assert tree.FindByName("同一个操作") == []
            assert picture(tree) == picture(other)
            assert tree.Verify() == other.Verify() == []

    def test_undoing_inside_is_a_part_of_it(self, tree: KeywordTree) -> None:
        before = picture(tree)
        tree.DeleteKeyword("py", cascade=True)
        deleted = last(tree).operation_id
        with tree.Operation("mixed") as op:
            assert tree.Undo(deleted) == op.id
            tree.AddAlias("py", "又来")
        assert node(tree, "py").aliases[-1] == "又来"
        tree.RemoveAlias("py", "又来")
        assert picture(tree) == before


# == What happened ========================================================================================


class TestHistory:
    def test_tells_who_changed_what_newest_first(self, tree: KeywordTree) -> None:
        tree.UpdateKeyword("py", {"name": "派森"}, version(tree, "py"))
        newest = last(tree)

        assert (newest.op, newest.agent_io, newest.Ids()) == ("update_keyword", None, {"py"})
        (was,), (became,) = newest.before, newest.after
        assert isinstance(was, KeywordNode)
        assert isinstance(became, KeywordNode)
        assert (was.name, became.name, became.version) == ("Python", "派森", was.version + 1)
        seqs = [change.seq for change in tree.History(limit=1000)]
        assert seqs == sorted(seqs, reverse=True)
        assert [change.op for change in tree.History(limit=1000)][-3:] == [
            *("batch_create_infos", "batch_create_keywords", "create_store")
        ]

    def test_of_one_record_has_what_touched_it_links_too(self, tree: KeywordTree) -> None:
        tree.AddAlias("rust", "锈")
        tree.UnlinkInfo("both", "rust")
        tree.DeleteInfo("deep")

        assert [change.op for change in tree.History("rust")] == [
            *("unlink_info", "add_alias", "link_info", "batch_create_infos", "batch_create_keywords")
        ]
        assert [change.op for change in tree.History("deep")] == ["delete_info", "batch_create_infos"]
        assert [record.deleted for record in tree.History("deep")[0].after] == [True, True]
        assert [change.op for change in tree.History("rust", 2)] == ["unlink_info", "add_alias"]
        assert tree.History("rust", 0) == []

    def test_a_text_that_reads_like_an_id_is_none(self, tree: KeywordTree) -> None:
        tree.AddAlias("rust", "free")
        tree.UpdateInfo("only", {"content": '{"id":"free"}'})
        assert [change.op for change in tree.History("free")] == ["batch_create_infos"]

    def test_lines_longer_than_what_is_read_at_once(self, tree: KeywordTree) -> None:
        for number in range(4):
            tree.UpdateInfo("only", {"content": str(number) * 1_300_000})
        found = tree.History("only", 4)
        assert [record.content[:1] for change in found for record in change.after if isinstance(record, Info)] == [
            *"3210"
        ]


class TestChanges:
    def test_yields_what_came_after_a_number_oldest_first(self, tree: KeywordTree, folder: Path) -> None:
        seq = last(tree).seq
        tree.AddAlias("py", "一")
        with opened(folder) as other:
            other.AddAlias("py", "二")
            id = last(other).operation_id
            assert len(list(tree.Changes(seq, refresh=False))) == 1  # its own
        tree.Undo(id)

        changes = list(tree.Changes(seq))
        assert [change.op for change in changes] == ["add_alias", "add_alias", "undo"]
        assert [change.seq for change in changes] == sorted(change.seq for change in changes)
        assert list(tree.Changes(changes[-1].seq)) == []
        assert [change.op for change in tree.Changes(changes[0].seq)] == ["add_alias", "undo"]

    @pytest.mark.parametrize("keep_history", [True, False])
    def test_after_a_compaction_the_state_is_all_there_is(self, tree: KeywordTree, keep_history: bool) -> None:
        tree.DeleteKeyword("py")
        seq, before = last(tree).seq, picture(tree)
        tree.CompactStorage(keep_history)

        changes = list(tree.Changes(seq))
        assert {change.op for change in changes} == {"state"}
        assert picture(tree) == before
        tree.AddAlias("rust", "锈")
        assert [change.op for change in tree.Changes(changes[-1].seq)] == ["add_alias"]

    def test_an_operation_that_is_open_is_not_among_them(self, tree: KeywordTree) -> None:
        seq = last(tree).seq
        with tree.Operation():
            add(tree, "x")
            assert list(tree.Changes(seq)) == []
        assert len(list(tree.Changes(seq))) == 1


# == Back and forth =======================================================================================


def mixed(tree: KeywordTree) -> None:
    with tree.Operation("mixed"):
        made = add(tree, "Go", "prog")
        tree.MergeKeywords("rust", made)
        tree.MoveKeyword("py", made)
        tree.DeleteInfo("only")
        one = tree.CreateInfo("passing", keyword_ids=["py"])
        tree.DeleteInfo(one.id)
        tree.UpdateInfo("long", {"content": LONG + "2"})
        with taken_back(tree):
            tree.DeleteKeyword("aio")
        tree.DeleteKeyword("tool", True, "delete")


def disordered(tree: KeywordTree) -> None:
    """Plant what `Reorganize` finds; the tree is opened with three candidates a view."""
    for parent, names in (("tool", ["ＰＹＴＥＳＴ", *"甲乙丙丁戊"]), ("typ", ["only child"])):
        for name in names:
            add(tree, name, parent)
    add(tree, "its only child", tree.FindByName("only child")[0].id)
    add(tree, "leaf", tree.FindByName("its only child")[0].id)
    tree.CreateInfo("Rust 很快")


Act = Callable[[KeywordTree], object]


class TestUndo:
    @pytest.mark.parametrize(
        "operate",
        [
            *(
                lambda t, cascade=cascade, policy=policy: t.DeleteKeyword("py", cascade, policy)
                for cascade in (False, True)
                for policy in ("reattach", "detach", "delete")
            ),
            lambda t: t.MergeKeywords("py", "rust"),
            lambda t: t.MergeKeywords("prog", "typ"),  # which is under it
            lambda t: t.LinkInfo("both", "py", EXAMPLE),
            lambda t: t.UpdateInfo("long", {"content": "short"}),
            mixed,
        ],
    )
    def test_is_exact_and_so_is_its_own_undo(self, tree: KeywordTree, folder: Path, operate: Act) -> None:
        before = picture(tree)
        operate(tree)
        after, operation = picture(tree), last(tree).operation_id
        undone = tree.Undo(operation)
        assert picture(tree) == before != after
        with pytest.raises(ConflictError, match="a later operation has changed"):
            tree.Undo(operation)

        with opened(folder) as other:
            other.Undo(undone)
            assert picture(other) == after
            assert other.Verify() == []
            tree.Undo(operation)
            assert picture(tree) == before

    @pytest.mark.parametrize(
        ("operate", "later", "named"),
        [
            (lambda t: t.AddAlias("py", "x"), lambda t: t.AddAlias("py", "y"), {"py"}),
            (lambda t: t.AddAlias("py", "x"), lambda t: t.Undo(last(t).operation_id), {"py"}),
            (lambda t: t.UpdateInfo("only", {"content": "x"}), lambda t: t.DeleteInfo("only"), {"only"}),
            (lambda t: t.LinkInfo("free", "py"), lambda t: t.LinkInfo("free", "py", SOURCE), {"free", "py"}),
            (lambda t: t.UnlinkInfo("both", "py"), lambda t: t.LinkInfo("both", "py"), {"both", "py"}),
            (lambda t: t.DeleteInfo("both"), lambda t: t.DeleteKeyword("rust"), {"both", "rust"}),
            (lambda t: t.DeleteKeyword("typ"), lambda t: t.DeleteKeyword("py", True), {"typ"}),
            (lambda t: t.MoveKeyword("py", "tool"), lambda t: t.MoveKeyword("prog", "py"), {"py"}),
            (lambda t: t.MoveKeyword("py", "tool"), lambda t: t.DeleteKeyword("prog"), {"py"}),
            (lambda t: t.UnlinkInfo("both", "rust"), lambda t: t.DeleteInfo("both"), {"both", "rust"}),
            (
                lambda t: t.BatchCreateKeywords([{"name": "n", "id": "new", "parent_id": "py"}]),
                lambda t: t.BatchCreateKeywords([{"name": "c", "id": "child", "parent_id": "new"}]),
                {"child"},
            ),
            (
                lambda t: t.BatchCreateKeywords([{"name": "n", "id": "new", "parent_id": "py"}]),
                lambda t: t.LinkInfo("free", "new"),
                {"free", "new"},
            ),
            (
                lambda t: t.BatchCreateInfos([{"content": "n", "id": "new"}]),
                lambda t: t.LinkInfo("new", "py"),
                {"new", "py"},
            ),
            (lambda t: t.MergeKeywords("typ", "aio"), lambda t: t.AddAlias("aio", "z"), {"aio"}),
        ],
    )
    def test_is_refused_where_something_later_stands_in_the_way_and_names_it(
        self, tree: KeywordTree, folder: Path, operate: Act, later: Act, named: set[str]
    ) -> None:
        before = picture(tree)
        operate(tree)
        first = last(tree).operation_id
        middle = picture(tree)
        later(tree)
        second = last(tree).operation_id

        with unchanged(tree, folder), pytest.raises(ConflictError) as refused:
            tree.Undo(first)

        ids = {id for record in refused.value.records for id in key_of(record)[1:]}
        assert named & ids
        assert (" on <KeywordNode 'n'" in str(refused.value)) == (named == {"free", "new"})
        assert ids <= {*named, *(id for change in tree.History(limit=2) for id in change.Ids())}
        tree.Undo(second)
        assert picture(tree) == middle
        tree.Undo(first)
        assert picture(tree) == before

    def test_of_a_keyword_that_was_made_and_merged_at_once_leads_nowhere(self, tree: KeywordTree, folder: Path) -> None:
        tree.CreateKeyword("there", "root", id="there")
        with tree.Operation():
            tree.CreateKeyword("new", "root", id="new")
            tree.MergeKeywords("new", "there")
        undone = tree.Undo(tree.last_operation)

        assert tree.GetKeyword("new") is None
        redone = tree.Undo(undone)
        with KeywordTree(str(folder)) as other:
            assert node(other, "new").id == "there"
            other.Undo(redone)
        tree.Refresh()
        assert tree.CreateKeyword("another", "root", id="new").id == "new"
        assert tree.Verify() == []

    def test_a_keyword_and_an_info_of_one_id_are_distinguished(self, tree: KeywordTree) -> None:
        tree.BatchCreateKeywords([{"id": "11", "name": "北京", "parent_id": "root"}])
        tree.BatchCreateInfos([{"id": "11", "content": "首都", "keyword_ids": ["11"]}])
        before = picture(tree)
        with tree.Operation() as op:
            tree.AddAlias("11", "京")
            tree.UpdateInfo("11", {"content": "x"})
        tree.Undo(op.id)
        assert picture(tree) == before


# == Setting aside ========================================================================================


class TestSnapshot:
    @pytest.mark.parametrize("copy", [False, True])
    def test_restores_everything_as_one_operation(self, tree: KeywordTree, folder: Path, copy: bool) -> None:
        before = picture(tree)
        name = tree.Snapshot(copy)
        assert re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z(-\d+)?", name)
        mixed(tree)
        tree.CreateInfo("later 以后", keyword_ids=["py"])
        after, lines = picture(tree), line_count(folder)

        id = tree.Restore(name)

        assert picture(tree) == before
        assert (line_count(folder), last(tree).op, last(tree).operation_id) == (lines + 1, "restore", id)
        tree.Undo(id)
        assert picture(tree) == after
        assert tree.Verify() == []

    def test_shares_the_logs_bytes_and_a_copy_does_not(self, tree: KeywordTree, folder: Path) -> None:
        shared, copied = tree.Snapshot(), tree.Snapshot(copy=True)
        log, one, two = ((folder / place / LOG).stat() for place in ("", f"snapshots/{shared}", f"snapshots/{copied}"))
        assert (one.st_ino, two.st_ino == log.st_ino) == (log.st_ino, False)
        assert {oct(path.stat().st_mode & 0o777) for path in (folder / "snapshots").rglob("*")} == {"0o700", "0o600"}

    def test_two_at_one_moment_have_two_names(self, folder: Path) -> None:
        with KeywordTree(str(folder), clock=lambda: 1_700_000_000.25) as tree:
            names = [tree.Snapshot() for _ in range(3)]
        assert names == ["20231114T221320.250000Z", "20231114T221320.250000Z-2", "20231114T221320.250000Z-3"]

    def test_where_nothing_differs_nothing_is_written(self, tree: KeywordTree, folder: Path) -> None:
        name = tree.Snapshot()
        with unchanged(tree, folder):
            tree.Restore(name)

    @pytest.mark.parametrize(
        "damage", [lambda data: b"", lambda data: b"[]", lambda data: data.replace(b'"length"', b'"size"')]
    )
    def test_one_that_does_not_say_what_it_holds_is_refused(
        self, tree: KeywordTree, folder: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        path = folder / "snapshots" / tree.Snapshot(copy=True) / "snapshot.json"
        path.write_bytes(damage(path.read_bytes()))

        with unchanged(tree, folder), pytest.raises(StoreError, match="was not written for"):
            tree.Restore(path.parent.name)

    def test_no_name_leads_out_of_the_folder(self, tree: KeywordTree, folder: Path) -> None:
        name = tree.Snapshot(copy=True)
        outside = folder.parent / name
        shutil.copytree(folder / "snapshots" / name, outside)
        with unchanged(tree, folder):
            for bad in (f"../../{name}", f"../{name}", str(outside), f"{name}/../{name}", f"{name}/", f"./{name}"):
                with pytest.raises(InvalidInputError, match="snapshot_ts"):
                    tree.Restore(bad)
        assert sorted(path.name for path in folder.parent.iterdir()) == sorted([name, "store"])


class TestSurroundings:
    """What a process brings along must not get into the store."""

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors cannot be listed here")
    def test_a_tree_that_no_one_holds_lets_go_of_its_files(self, folder: Path) -> None:
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        trees = [opened(folder) for _ in range(3)]
        add(trees[0], "kept")
        held = len(os.listdir("/proc/self/fd"))
        trees.clear()
        gc.collect()

        assert held > before
        assert len(os.listdir("/proc/self/fd")) <= before

    @pytest.mark.skipif(os.name == "nt", reason="descriptors are not numbered so there")
    def test_what_a_library_prints_where_there_is_no_output_does_not_get_into_the_log(self, folder: Path) -> None:
        program = (
            "import os, sys; from Agent.keyword_tree import KeywordTree; tree = KeywordTree(sys.argv[1])\n"
            "for number in range(3):\n"
            "    tree.CreateKeyword(f'k{number}', 'root')\n"
            "    for fd in 0, 1, 2:\n"
            "        try: os.write(fd, b'W0000 some library: a warning')\n"
            "        except OSError: pass\n"
            "list(tree.Changes())\n"
            "tree.Close()\n"
        )
        command = ["sh", "-c", 'exec "$0" -c "$1" "$2" <&- >&- 2>&-', sys.executable, program, str(folder)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})

        with opened(folder) as tree:
            assert names_under(tree, "root") == ["k0", "k1", "k2"]
            assert tree.recovery == ()
        assert not [path for path in folder.iterdir() if b"warning" in path.read_bytes()]


class TestMemory:
    """What looks at the whole store holds a small part of it at a time."""

    SIZE = 16  # MiB, in contents of a quarter of one

    def peak_mib(self, work: Callable[[], object]) -> float:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1] / 2**20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("work", ["verify", "compact", "open"])
    def test_long_contents_are_not_held_together(self, tree: KeywordTree, folder: Path, work: str) -> None:
        for number in range(4 * self.SIZE):
            tree.CreateInfo(f"{number} {'长' * (2**18 // 3)}")
        size_mib = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        assert size_mib > 2 * self.SIZE
        if work == "open":
            tree.Close()
            (folder / "infos.jsonl").unlink()
            peak = self.peak_mib(lambda: opened(folder).Close())
            assert (folder / "infos.jsonl").stat().st_size > 2**20 * self.SIZE
        elif work == "verify":
            peak = self.peak_mib(tree.Verify)
        else:
            peak = self.peak_mib(tree.CompactStorage)

        assert peak < self.SIZE / 2

    def test_a_long_content_is_not_kept_after_its_write(self, tree: KeywordTree) -> None:
        tracemalloc.start()
        try:
            tree.CreateInfo("长" * 2**20)
            assert tracemalloc.get_traced_memory()[0] < 2**20
        finally:
            tracemalloc.stop()


class TestCompactStorage:
    SECRETS = (
        *("秘密名字", "SecretAlias", "secret description"),
        *("短的秘密", "SECRET" * 2000, "secret query 问", "旧的值"),
    )

    def keep_secrets(self, folder: Path) -> None:
        """Write and delete what must not stay, by every way there is; leave a cut tail behind."""
        name, alias, description, short, long, query, old = self.SECRETS
        with opened(folder, Model(always(FIRST))) as tree:
            furnish(tree)
            made = tree.CreateKeyword(name, None, [alias], description)  # the model is asked for a place
            assert name in json.dumps(last(tree).agent_io, ensure_ascii=False)
            for content in (short, long):
                tree.DeleteInfo(tree.CreateInfo(content, content[:20], [made.id]).id)
            tree.CreateInfo("kept", auto_link=True)
            tree.Confirm(query, made.id)
            tree.UpdateInfo("only", {"content": old, "metadata": {old: old}})
            tree.UpdateInfo("only", {"content": "新", "metadata": {}})
            tree.UpdateKeyword("rust", {"name": old, "description": old}, version(tree, "rust"))
            tree.UpdateKeyword("rust", {"name": "Rust", "description": ""}, version(tree, "rust"))
            tree.DeleteKeyword(made.id)
            tree.CompactStorage(keep_history=True)  # now the history holds them, too
            tree.CreateInfo(long)
            last_id = last(tree).after[0]
            assert isinstance(last_id, Info)
            tree.DeleteInfo(last_id.id)
        with (folder / LOG).open("ab") as log:
            log.write(b'{"crc": "00000000", "seq": 999, "op": "' + old.encode() + b" torn")
        with opened(folder) as tree:
            assert tree.recovery

    def test_without_history_no_byte_of_what_was_deleted_stays(self, folder: Path) -> None:
        self.keep_secrets(folder)
        unfinished = folder / "snapshots" / "20200101T000000.000000Z.new"
        unfinished.mkdir(parents=True)
        index = folder / "indexes" / "segments"
        index.mkdir(parents=True)
        for place in (unfinished, index):
            shutil.copy(folder / LOG, place / LOG)
        assert {text for _, text in holding(folder, *self.SECRETS)} == set(self.SECRETS)
        with opened(folder) as tree:
            before = picture(tree)

            reported = tree.CompactStorage(keep_history=False)

            assert picture(tree) == before
            assert holding(folder, *self.SECRETS) == []
            assert b'"agent_io": {' not in (folder / LOG).read_bytes()
            assert reported["snapshots"] == []
            assert reported["bytes_after"] == sum(map(len, disk(folder).values())) < reported["bytes_before"]
            assert tree.Verify() == []
            assert tree.History() == []
        assert holding(folder, *self.SECRETS) == []
        with opened(folder) as again:
            assert (picture(again), again.recovery, again.Verify()) == (before, (), [])

    def test_without_history_snapshots_are_named_and_stay(self, folder: Path) -> None:
        self.keep_secrets(folder)
        with opened(folder) as tree:
            name = tree.Snapshot(copy=True)
            assert tree.CompactStorage(keep_history=False)["snapshots"] == [name]
        places = {place for place, _ in holding(folder, *self.SECRETS)}
        assert places
        assert all(place.startswith(f"snapshots/{name}/") for place in places)

    def test_without_history_ids_that_were_merged_lead_on_but_their_names_are_gone(self, folder: Path) -> None:
        with opened(folder) as tree:
            furnish(tree)
            secret = add(tree, "合并掉的名字", "prog", description="its description")
            tree.MergeKeywords(secret, "rust")
            tree.RemoveAlias("rust", "合并掉的名字")
            tree.UpdateKeyword("rust", {"description": ""}, version(tree, "rust"))
            tree.CompactStorage(keep_history=False)
            assert node(tree, secret).id == "rust"
        assert holding(folder, "合并掉的名字", "its description") == []
        with opened(folder) as again:
            assert (node(again, secret).id, again.Verify()) == ("rust", [])

    @pytest.mark.parametrize("reads_checkpoint", [True, False])
    def test_order_goes_on_where_what_was_newest_is_forgotten(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, reads_checkpoint: bool
    ) -> None:
        with opened(folder) as tree:
            newest = node(tree, add(tree, "最新"))
            tree.DeleteKeyword(newest.id)
            tree.CompactStorage(keep_history=False)
        if not reads_checkpoint:
            inside.set_limits(monkeypatch, checkpoint_operations=0)
        with opened(folder) as again:
            assert node(again, add(again, "更新")).ordinal > newest.ordinal


# == Looking after it =====================================================================================


def spoil(name: str, old: str, new: str) -> Callable[[KeywordTree, Path], None]:
    def damage(_tree: KeywordTree, folder: Path) -> None:
        data = (folder / name).read_bytes()
        assert old.encode() in data
        with (folder / name).open("r+b") as file:
            file.seek(data.index(old.encode()))
            file.write(new.encode())

    return damage


def in_memory(what: str) -> Callable[[KeywordTree, Path], object]:
    return lambda tree, _folder: inside.DAMAGE_IN_MEMORY[what](tree)


def in_history(tree: KeywordTree, folder: Path) -> None:
    tree.CompactStorage()
    (path,) = (folder / "history").iterdir()
    path.write_bytes(path.read_bytes().replace("写代码".encode(), "写代妈".encode(), 1))


def in_snapshot(tree: KeywordTree, folder: Path) -> None:
    name = tree.Snapshot(copy=True)
    path = folder / "snapshots" / name / LOG
    path.write_bytes(path.read_bytes().replace("写代码".encode(), "写代妈".encode(), 1))


DAMAGE: dict[str, Callable[[KeywordTree, Path], object]] = {
    "log: a byte": spoil(LOG, "写代码", "写代妈"),
    "log: cut": lambda _tree, folder: os.truncate(folder / LOG, len((folder / LOG).read_bytes().rstrip()) - 9),
    "log: emptied": lambda _tree, folder: os.truncate(folder / LOG, 0),
    "nodes.jsonl: a byte": spoil("nodes.jsonl", "写代码", "写代妈"),
    "nodes.jsonl: emptied": lambda _tree, folder: os.truncate(folder / "nodes.jsonl", 0),
    "nodes.jsonl: too long": lambda _tree, folder: os.truncate(folder / "nodes.jsonl", 100_000),
    "infos.jsonl: gone": lambda _tree, folder: (folder / "infos.jsonl").unlink(),
    "infos.jsonl: a long content": spoil("infos.jsonl", "长内容", "短内容"),
    "links.jsonl: a byte": spoil("links.jsonl", "EXAMPLE", "EXAMPLF"),
    **{f"memory: {what}": in_memory(what) for what in inside.DAMAGE_IN_MEMORY},
    "history: a byte": in_history,
    "snapshot: a byte": in_snapshot,
}


class TestVerify:
    @pytest.mark.parametrize("what", DAMAGE)
    def test_finds_each_kind_of_damage_and_changes_nothing(self, folder: Path, what: str) -> None:
        with opened(folder) as tree:
            furnish(tree)
            tree.DeleteKeyword("test")
        tree = opened(folder)  # its long contents are read from the projection
        assert tree.Verify() == []
        DAMAGE[what](tree, folder)
        files = disk(folder)

        problems = tree.Verify()

        assert problems
        assert all(isinstance(problem, str) and problem for problem in problems)
        assert disk(folder) == files

    def test_finds_what_breaks_an_invariant_though_memory_and_disk_agree(self, tree: KeywordTree, folder: Path) -> None:
        link = InfoKeywordLink("free", "nowhere", PRIMARY, "user", 0.0, ordinal=10_000)
        orphan = dataclasses.replace(node(tree, "typ"), id="orphan", parent_id="nowhere", children=[], ordinal=10_001)
        for record in (link, orphan):
            inside.plant(tree, record)
        problems = tree.Verify()
        assert any("nowhere" in problem for problem in problems)
        assert any("typing" in problem or "orphan" in problem for problem in problems)

    def test_says_nothing_of_other_files_and_of_an_open_operation(self, tree: KeywordTree, folder: Path) -> None:
        (folder / "notes.txt").write_text("我的")
        (folder / "indexes").mkdir()
        with tree.Operation():
            add(tree, "x")
            assert tree.Verify() == []


class TestTreeMetrics:
    def test_counts_shape_and_costs(self, tree: KeywordTree, folder: Path) -> None:
        add(tree, "ＰＹＴＨＯＮ", "tool")
        metrics = tree.TreeMetrics()
        sizes = {name: len(data) for name, data in disk(folder).items()}
        assert metrics["bytes_on_disk"] == sizes
        assert {name: metrics[name] for name in metrics if name != "bytes_on_disk"} == {
            "keywords": 8,
            "infos": 5,
            "links": 7,
            "leaves": 5,
            "depth": 3,
            "fan_out": 2,
            "fan_out_id": metrics["fan_out_id"],
            "same_names": 1,
            "unlinked_infos": 1,
            "descents": 0,
            "model_calls": 0,
            "names_shown": 0,
        }
        assert len(tree.GetChildren(metrics["fan_out_id"])) == 2

    def test_tells_what_searching_cost(self, folder: Path) -> None:
        with opened(folder, Model(always(FIRST))) as tree:
            add(tree, "编程")
            tree.Search("怎么写")
            metrics = tree.TreeMetrics()
            assert [metrics[name] for name in ("descents", "model_calls", "names_shown")] == [1, 1, 1]


class TestRankCandidates:
    def test_best_first_with_a_confidence_in_both_languages(self, tree: KeywordTree) -> None:
        for query, id in (
            ("异步编程的 asyncio", "aio"), ("a Python question", "py"), ("生锈 rust", "rust"), ("工具箱", "tool")
        ):
            ranked = tree.RankCandidates(query)
            assert ranked[0][0] == node(tree, id)
            assert all(0 <= confidence <= 1 for _, confidence in ranked)
        assert len(tree.RankCandidates("python 编程 rust", 2)) == 2
        assert tree.RankCandidates("python", 0) == tree.RankCandidates("") == []


# == Putting it in order ==================================================================================


def tree_with_tools(tree: KeywordTree) -> KeywordTree:
    tree.BatchCreateKeywords(
        [{"id": id, "name": name, "parent_id": "root"} for id, name in (("tool", "工具"), ("typ", "typing"))]
    )
    add(tree, "pytest", "tool")
    add(tree, "Rust", "typ")
    return tree


class TestReorganize:
    def test_a_scope_is_all_that_is_looked_at(self, tree: KeywordTree) -> None:
        add(tree, "RUST", "prog")
        add(tree, "ｐｙｔｅｓｔ", "tool")
        assert [step["why"] for step in tree.Reorganize("tool")["steps"]] == [
            "by rule: 'ｐｙｔｅｓｔ' and 'pytest' are called the same"
        ]
        assert len(tree.Reorganize("prog")["steps"]) == 1
        assert tree.Reorganize("test")["steps"] == []
        assert [step["action"] for step in tree.Reorganize()["steps"]] == ["merge", "merge"]

    def test_what_exact_look_up_tells_apart_is_no_double(self, folder: Path) -> None:
        with opened(folder) as tree:
            for name in ("C", "C#", "C++", ".NET", "net", "TCP/IP", "tcpip", "编程", "程编"):
                add(tree, name)
            assert tree.Reorganize()["steps"] == []

    def test_without_a_model_only_what_needs_no_judgement_is_proposed(self, folder: Path) -> None:
        with KeywordTree(str(folder), max_candidates=3) as tree:
            disordered(tree_with_tools(tree))
            plan = tree.Reorganize()
            lexical = KeywordTree(str(folder), LexicalLLMClient(), max_candidates=3)
            assert lexical.Reorganize() == plan
            lexical.Close()

        assert [(step["action"], step["why"]) for step in plan["steps"]] == [
            ("merge", "by rule: 'ＰＹＴＥＳＴ' and 'pytest' are called the same"),
            ("link", "by rule: its text names 'Rust', and no other keyword"),
        ]
        assert plan["note"].startswith("no model that chooses by meaning is connected")

    @pytest.mark.parametrize(
        ("text", "linked"),
        [
            ("绿茶要泡三分钟。", "绿茶"),
            ("GREEN TEA, steeped", "green tea"),
            ("green teapot", ""),
            ("green tea and 绿茶", ""),
            ("茶几", ""),
            ("Oven", ""),
            ("Beethoven's ninth", ""),
        ],
    )
    def test_an_info_is_linked_by_rule_where_its_text_names_one_keyword(
        self, folder: Path, text: str, linked: str
    ) -> None:
        with opened(folder) as tree:
            for name in ("茶", "绿茶", "tea", "green tea", "Beethoven and oven"):
                add(tree, name)
            tree.CreateInfo(text)
            steps = tree.Reorganize()["steps"]

            assert [tree.GetKeyword(step["keyword_id"]).name for step in steps] == [linked] * bool(linked)  # type: ignore[union-attr]

    def test_same_names_in_other_places_are_no_doubles(self, folder: Path) -> None:
        with opened(folder) as tree:
            for city in ("南京", "上海"):
                id = add(tree, city)
                add(tree, "中山路", id)
                add(tree, city, id)
            assert tree.Reorganize()["steps"] == []

    @pytest.mark.parametrize(
        "grow",
        [
            lambda t, a, b: t.AddAlias(a, "x"),
            lambda t, a, b: t.MoveKeyword(b, "tool"),
            lambda t, a, b: t.DeleteKeyword(b),
            lambda t, a, b: t.MergeKeywords(b, "test"),
            lambda t, a, b: t.CreateKeyword("another child", b),
            lambda t, a, b: t.LinkInfo("free", b),
        ],
        ids=["changed", "moved", "deleted", "merged", "new child", "new info"],
    )
    def test_a_plan_that_the_tree_has_outgrown_is_refused(
        self, tree: KeywordTree, folder: Path, grow: Callable[[KeywordTree, str, str], object]
    ) -> None:
        top = add(tree, "甲", "test")
        middle = add(tree, "乙", top)
        add(tree, "叶", middle)
        with KeywordTree(str(folder), Model(always({"action": "missing"}))) as judged:
            plan = judged.Reorganize()
        plan["steps"] = [step for step in plan["steps"] if step["action"] == "merge"]
        assert middle in [step["src_id"] for step in plan["steps"]]
        with tree.Operation() as op:
            grow(tree, top, middle)
        with unchanged(tree, folder), pytest.raises(ConflictError):
            tree.ApplyReorganizePlan(plan)
        tree.Undo(op.id)
        plan = tree.Reorganize()
        assert tree.ApplyReorganizePlan(plan)
