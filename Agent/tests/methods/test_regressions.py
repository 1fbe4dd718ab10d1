"""Regressions: faults that users met, each as the call that showed it."""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from typing_extensions import override

from Agent.finding.tree import TreeRanker
from Agent.keyword_tree import (
    AgentDecision,
    DuplicateIdError,
    Info,
    InvalidInputError,
    KeywordNode,
    KeywordTree,
    RelationType,
    SearchStatus,
    StoreCorruptError,
    StoreError,
    StubLLMClient,
    VersionConflictError,
)
from Agent.tests.support import inside

LONG = "长" * 5000


def _lose_last_operation(folder: Path) -> None:
    """Take the last line away that is no checkpoint, and what is behind it."""
    log = folder / "change_log.jsonl"
    lines = [line for line in log.read_bytes().splitlines(keepends=True) if b'"op": "checkpoint"' not in line]
    log.write_bytes(b"".join(lines[:-1]))


def _check_rows_are_kept(folder: Path) -> None:
    """Open a log that looks like a copy's: what only the projections have is set aside, whole, and reported."""
    kinds = ("nodes", "infos", "links")
    before = {kind: (folder / f"{kind}.jsonl").read_bytes() for kind in kinds}
    with KeywordTree(str(folder)) as tree:
        recovery = tree.recovery
    cut = {kind: before[kind].removeprefix((folder / f"{kind}.jsonl").read_bytes()) for kind in kinds}
    kept = {kind: b"".join(path.read_bytes() for path in folder.glob(f"cut_tail-{kind}-*.bin")) for kind in kinds}
    assert any(cut.values())
    assert kept == cut
    for kind in kinds:
        assert any(kind in said and "does not have" in said for said in recovery) == bool(cut[kind])
    with KeywordTree(str(folder)) as again:
        assert again.recovery == ()


class Topic(str, Enum):  # noqa: UP042  what the fault was about
    TEA = "tea"


class TestValues:
    def test_an_enum_of_strings_is_stored_as_its_string(self, tree: KeywordTree) -> None:
        node = tree.CreateKeyword(Topic.TEA, "root", [Topic.TEA])
        info = tree.CreateInfo(Topic.TEA, Topic.TEA, [node.id])

        assert (node.name, node.aliases, info.content, info.source) == ("tea", ["tea"], "tea", "tea")
        assert {type(value) for value in (node.name, node.aliases[0], info.content)} == {str}
        assert tree.Search("tea").node == node

    @pytest.mark.parametrize(("old", "new"), [({"done": 0}, {"done": False}), ({"n": 1}, {"n": 1.0}), ([0], [False])])
    def test_a_change_of_a_json_type_is_a_change(self, tree: KeywordTree, old: Any, new: Any) -> None:
        node = tree.CreateKeyword("k", "root", metadata={"x": old})
        changed = tree.UpdateKeyword(node.id, {"metadata": {"x": new}}, 1)

        assert changed.version == 2
        assert repr(tree["k"].metadata) == repr({"x": new})

    def test_a_record_is_json_by_its_vars(self, tree: KeywordTree) -> None:
        node = tree.CreateKeyword("k", "root")
        tree.CreateKeyword("under", node.id)
        info = tree.CreateInfo("i", keyword_ids=[node.id])

        for record in (tree["k"], tree.GetInfosOfKeyword(node.id)[0], tree.GetLinks(info.id)[0]):
            assert json.loads(json.dumps(vars(record)))["created_by"] == "user"
        assert len(json.loads(json.dumps(vars(tree["k"])))["children"]) == 1

    def test_a_path_may_be_bytes(self, folder: Path) -> None:
        class BytesPath:
            def __fspath__(self) -> bytes:
                return os.fsencode(folder)

        path: Any = BytesPath()
        with KeywordTree(path) as tree:
            assert tree.data_dir == str(folder)

    @pytest.mark.parametrize("huge", [2**63, 2**70])
    def test_numbers_that_no_list_reaches_are_refused(self, tree: KeywordTree, huge: int) -> None:
        for call in (lambda: tree.History(limit=huge), lambda: tree.ListInfos(page=huge), lambda: tree.Changes(huge)):
            with pytest.raises(InvalidInputError, match="at most"):
                call()

    @pytest.mark.parametrize("name", ["clock", "new_id"])
    def test_what_cannot_be_called_is_refused(self, folder: Path, name: str) -> None:
        wrong: Any = {name: 7}
        with pytest.raises(InvalidInputError, match=name):
            KeywordTree(str(folder), **wrong)


class TestIds:
    def test_of_a_merged_keyword_cannot_be_taken_again(self, tree: KeywordTree) -> None:
        old, new = tree.CreateKeyword("old", "root", id="old"), tree.CreateKeyword("new", "root")
        tree.MergeKeywords(old.id, new.id)
        merge = tree.last_operation
        for make in (
            lambda: tree.CreateKeyword("taken", "root", id="old"),
            lambda: tree.BatchCreateKeywords([{"name": "taken", "id": "old", "parent_id": "root"}]),
        ):
            with pytest.raises(DuplicateIdError):
                make()

        assert tree["new"].id == getattr(tree.GetKeyword("old"), "id", None)
        assert merge is not None
        tree.Undo(merge)
        assert tree["old"].id == "old"


class TestWho:
    def test_is_reported_by_the_history(self, tree: KeywordTree) -> None:
        node = tree.CreateKeyword("k", "root", created_by="ada")
        tree.AddAlias(node.id, "别名", "bo")
        info = tree.CreateInfo("i", created_by="cy")
        tree.UpdateInfo(info.id, {"content": "j"}, changed_by="di")
        with tree.Operation("block") as block:
            tree.LinkInfo(info.id, node.id, created_by="ed")
            tree.DeleteInfo(info.id, "fi")
        tree.Undo(block.id, "gus")

        assert [change.author for change in tree.History()] == ["gus", "ed", "di", "cy", "bo", "ada", "agent"]
        assert tree.History(node.id)[-1].author == "ada"

    def test_last_operation_is_of_the_thread(self, tree: KeywordTree) -> None:
        tree.CreateKeyword("mine", "root")
        mine = tree.last_operation
        other = threading.Thread(target=tree.CreateKeyword, args=("theirs", "root"))
        other.start()
        other.join()

        assert tree.last_operation == mine
        assert mine is not None
        tree.Undo(mine)
        assert [node.name for node in tree.Walk()][1:] == ["theirs"]


class TestBlocks:
    def test_are_entered_once(self, tree: KeywordTree) -> None:
        block = tree.Operation()
        with contextlib.suppress(ZeroDivisionError), block:
            tree.CreateKeyword("taken back", "root")
            raise ZeroDivisionError
        with pytest.raises(InvalidInputError, match="entered once"), block:
            pass
        with tree.Operation() as other:
            tree.CreateKeyword("kept", "root")
            with pytest.raises(InvalidInputError, match="entered once"), other:
                pass

        assert [node.name for node in tree.Walk()][1:] == ["kept"]

    def test_hold_two_namesakes_among_which_a_model_chooses(self, folder: Path) -> None:
        model = StubLLMClient([{"action": "match", "node_id": 1}])
        with KeywordTree(str(folder), model) as tree, tree.Operation():
            first, second = tree.CreateKeyword("同名", "root"), tree.CreateKeyword("同名", "root")
            found = tree.Search("同名", context="the second")

            assert (found.status, found.node and found.node.id) == (SearchStatus.MATCHED, second.id)
            assert first.id != second.id

    def test_a_client_may_return_a_decision(self, folder: Path) -> None:
        with KeywordTree(str(folder), StubLLMClient([AgentDecision("match", 0)])) as tree:
            tree.CreateKeyword("tea", "root")
            assert tree.Search("what to drink").status is SearchStatus.MATCHED

    def test_give_keywords_that_look_their_children_up_when_they_are_read(self, tree: KeywordTree) -> None:
        with tree.Operation():
            parent = tree.CreateKeyword("parent", "root")
            child = tree.CreateKeyword("child", parent.id)

        assert parent.children == [child.id]

    def test_tell_the_level_under_a_keyword_that_they_moved(self, tree: KeywordTree) -> None:
        top, moved = tree.CreateKeyword("top", "root"), tree.CreateKeyword("moved", "root")
        inner = tree.CreateKeyword("inner", moved.id)
        with tree.Operation():
            tree.MoveKeyword(moved.id, top.id)
            leaf = tree.CreateKeyword("leaf", inner.id)

        assert leaf.level == len(tree.GetPath(leaf.id)) - 1 == 4

    def test_make_a_group_once_though_their_plans_run_again(self, tree: KeywordTree) -> None:
        ids = [tree.CreateKeyword(f"k{number}", "root").id for number in range(3)]
        plan: dict[str, Any] = {
            "steps": [{"action": "group", "parent_id": "root", "name": "group", "ids": ids}],
            "seen": {},
        }
        plan["seen"] = {id: [1, 0, 0] for id in ids} | {"root": [1, 3, 0]}
        with tree.Operation():
            tree.ApplyReorganizePlan(plan)
            inside = tree.CreateKeyword("inside", tree["group"].id)
            thread = threading.Thread(target=lambda: tree.CreateInfo("of another"))
            thread.start()
            thread.join()

        assert [node.name for node in tree.GetPath(inside.id)] == ["root", "group", "inside"]

    def test_that_are_taken_back_leave_no_words_behind(self, tree: KeywordTree) -> None:
        plant = tree.CreateKeyword("plant", "root")
        info = tree.CreateInfo("quiet " * 1000, keyword_ids=[plant.id])
        with contextlib.suppress(RuntimeError), tree.Operation():
            tree.UpdateInfo(info.id, {"content": "zebra " * 1000})
            tree.RankCandidates("zebra")
            raise RuntimeError

        assert tree.RankCandidates("zebra") == []
        assert [node.id for node, _ in tree.RankCandidates("quiet")] == [plant.id]


class _Slow(TreeRanker):
    """A ranker that waits while it is asked, its lock held, until it is let go."""

    asked, go_on = threading.Event(), threading.Event()

    @override
    def _follow(self) -> str:
        self.asked.set()
        self.go_on.wait()
        return super()._follow()


def _in_a_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked child, as multiprocessing does, within ten seconds; return how that ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        code = 1
        with contextlib.suppress(BaseException):
            work()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class TestFork:
    def test_while_another_thread_ranks_leaves_the_child_a_ranking_of_its_own(self, folder: Path) -> None:
        with KeywordTree(str(folder), ranker=_Slow) as tree:
            tree.CreateKeyword("k", "root")
            thread = threading.Thread(target=tree.RankCandidates, args=["q"])
            thread.start()
            _Slow.asked.wait()

            def rank() -> None:
                _Slow.go_on.set()
                tree.RankCandidates("q")

            try:
                assert _in_a_child(rank) == 0
            finally:
                _Slow.go_on.set()
                thread.join()


class TestChoice:
    def test_among_namesakes_is_as_sure_as_the_name(self, folder: Path) -> None:
        model = StubLLMClient([{"action": "match", "node_id": 0}])
        with KeywordTree(str(folder), model) as tree:
            for parent in ("fruit", "firm"):
                tree.CreateKeyword("apple", tree.Ensure(parent).id)

            found = tree.Search("apple", context="a fruit")

        assert found.status is SearchStatus.MATCHED
        assert found.confidence == 1.0


class TestPages:
    def test_after_an_id_make_a_whole_scan(self, tree: KeywordTree) -> None:
        tree.BatchCreateInfos([{"content": str(number), "id": str(number)} for number in range(230)])
        seen: list[str] = []
        after = None
        while page := tree.ListInfos(size=50, after=after):
            seen += [info.id for info in page]
            after = seen[-1]
            tree.UpdateInfo(seen[0], {"source": after})  # what is changed meanwhile is not seen twice, nor left out
            tree.DeleteInfo(after)

        assert sorted(set(seen), key=int) == [str(number) for number in range(230)]


class TestPaths:
    def test_may_hold_a_name_twice(self, tree: KeywordTree) -> None:
        assert [node.name for node in tree.GetPath(tree.Ensure("a/b/a").id)] == ["root", "a", "b", "a"]
        assert [node.name for node in tree.GetPath(tree.Ensure(["x", "x"]).id)] == ["root", "x", "x"]
        assert tree.Ensure("a/b/a") == tree.Ensure("a / b / A")

    def test_walk_yields_nothing_twice_though_doubles_are_merged(self, tree: KeywordTree) -> None:
        first, second, _ = (tree.CreateKeyword(name, "root") for name in ("one", "double", "two"))
        seen = []
        for node in tree.Walk():
            seen.append(node.name)
            if node.id == first.id:
                tree.MergeKeywords(second.id, first.id)

        assert seen == ["root", "one", "two"]

    def test_of_an_id_that_was_merged_on_and_on_lead_to_the_end(self, tree: KeywordTree) -> None:
        count = 250
        limit = sys.getrecursionlimit()
        tree.BatchCreateKeywords([{"name": f"k{n}", "id": f"k{n}", "parent_id": "root"} for n in range(count)])
        with tree.Operation():
            for n in range(count - 1):
                tree.MergeKeywords(f"k{n}", f"k{n + 1}")

        sys.setrecursionlimit(len(inspect.stack()) + 200)
        try:
            found = tree.GetKeyword("k0")
        finally:
            sys.setrecursionlimit(limit)
        assert found is not None
        assert found.id == f"k{count - 1}"
        with pytest.raises(DuplicateIdError):
            tree.CreateKeyword("again", "root", id="k0")


class TestChanges:
    @pytest.mark.parametrize("known", range(1, 7))
    def test_after_a_part_of_a_state_begin_with_all_of_it(self, tree: KeywordTree, known: int) -> None:
        node = tree.CreateKeyword("k", "root")
        tree.CreateInfo("i", keyword_ids=[node.id])
        tree.CompactStorage()
        tree.CreateKeyword("later", "root")
        *states, later = [change.seq for change in tree.Changes(0)]

        reported = [change.seq for change in tree.Changes(known)]
        assert len(states) > 2
        assert reported == ([later] if known >= states[-1] else [*states, later])


class TestGivenFunctions:
    @pytest.mark.parametrize("made", [7, "", "\ud800", "x" * 600, None])
    def test_an_id_that_is_none_is_refused(self, folder: Path, made: Any) -> None:
        ids: list[Any] = ["the first"]
        with KeywordTree(str(folder), new_id=lambda: ids[0]) as tree:
            ids[0] = made
            with pytest.raises(InvalidInputError, match="new_id"):
                tree.CreateKeyword("k", "root")
            assert len(tree) == 0


class TestStore:
    def test_what_another_process_began_to_forget_is_not_taken_from_this_ones_history(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.CreateKeyword("k", "root")
            seq = tree.History(limit=1)[0].seq
            (folder / "forget").write_text(f"{seq}\n")  # and died before its new log was there
            tree.CompactStorage(keep_history=True)

            assert [change.op for change in tree.History()][-1] == "create_store"
        assert not (folder / "forget").exists()

    def test_a_tree_that_was_open_meanwhile_writes_nothing_back_that_is_forgotten(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inside.set_limits(monkeypatch, kept_from=1)
        with KeywordTree(str(folder)) as mine, KeywordTree(str(folder)) as others:
            secret = mine.CreateKeyword("topsecretword", "root")
            mine.CreateKeyword("kept", "root")
            others.Refresh()
            mine.DeleteKeyword(secret.id)
            mine.CompactStorage(keep_history=False)
            others.RankCandidates("kept")
        held = [path for path in folder.rglob("*") if path.is_file() and b"topsecretword" in path.read_bytes()]
        assert held == []

    def test_a_log_that_lost_its_end_opens_and_keeps_the_rows(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            for number in range(60):
                tree.CreateKeyword(str(number), "root")
        log = folder / "change_log.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[: len(lines) // 2]))
        _check_rows_are_kept(folder)

    @pytest.mark.parametrize(
        "last",
        [
            lambda tree, node, info: tree.UpdateKeyword(node.id, {"description": "new"}, node.version),
            lambda tree, node, info: tree.UpdateInfo(info.id, {"content": LONG + "!"}),
            lambda tree, node, info: tree.DeleteKeyword(node.id),
            lambda tree, node, info: tree.CreateInfo("new"),
            lambda tree, node, info: tree.LinkInfo(info.id, node.id, RelationType.SOURCE),
            lambda tree, node, info: tree.UnlinkInfo(info.id, node.id),
            lambda tree, node, info: tree.DeleteInfo(info.id) or tree.CreateInfo("back", id=info.id),
            lambda tree, node, info: tree.DeleteInfo(info.id) or tree.Undo(tree.last_operation),
        ],
        ids=["keyword", "info", "deletion", "creation", "link", "no link", "an id that came back", "undo"],
    )
    def test_a_log_that_lost_its_last_operation_opens_and_keeps_the_rows_whatever_that_was(
        self, folder: Path, last: Callable[[KeywordTree, KeywordNode, Info], object]
    ) -> None:
        with KeywordTree(str(folder)) as tree:
            node = tree.CreateKeyword("k", "root")
            last(tree, node, tree.CreateInfo(LONG, keyword_ids=[node.id]))
        _lose_last_operation(folder)
        _check_rows_are_kept(folder)

    def test_another_snapshots_file_is_not_believed(self, tree: KeywordTree, folder: Path) -> None:
        tree.CreateKeyword("first", "root")
        early = tree.Snapshot(copy=True)
        tree.CreateKeyword("second", "root")
        late = tree.Snapshot(copy=True)
        shutil.copy(folder / "snapshots" / early / "snapshot.json", folder / "snapshots" / late / "snapshot.json")
        with pytest.raises(StoreCorruptError, match="was not written for"):
            tree.Restore(late)

    def test_the_dead_take_no_room_after_a_compaction(self, tree: KeywordTree, folder: Path) -> None:
        for _ in range(3):
            made = tree.BatchCreateInfos([{"content": LONG} for _ in range(100)])
            with tree.Operation():
                for info in made:
                    tree.DeleteInfo(info.id)
        last = tree.History(limit=1)[0].operation_id
        tree.CompactStorage()

        alive = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        assert alive < 200 * 1024  # of 4.5 MB
        tree.Undo(last)  # what undoing needs is in the history
        assert len(tree.ListInfos(size=200)) == 100
        assert tree.Verify() == []

    def test_a_forgetting_that_a_crash_interrupted_is_finished(self, folder: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.DeleteInfo(tree.CreateInfo("a secret that was stored").id)
            tree.CompactStorage()
            kept = {path.name: path.read_bytes() for path in (folder / "history").iterdir()}
            tree.CompactStorage(keep_history=False)
        first = json.loads((folder / "change_log.jsonl").read_bytes().split(b"\n")[0])
        for name, data in kept.items():
            (folder / "history" / name).write_bytes(data)
        (folder / "forget").write_bytes(b"%d\n" % (first["seq"] - 1))
        with KeywordTree(str(folder)):
            pass

        assert not any(b"a secret" in path.read_bytes() for path in folder.rglob("*") if path.is_file())
        assert not (folder / "forget").exists()

    def test_forgetting_takes_nothing_that_is_not_the_trees(self, tree: KeywordTree, folder: Path) -> None:
        mine = [folder / "history_backup" / "a", folder / "snapshots_old" / "b", folder / "notes.new"]
        for path in mine:
            path.parent.mkdir(exist_ok=True)
            path.write_text("mine")
        tree.CreateKeyword("k", "root")
        tree.CompactStorage()
        tree.CompactStorage(keep_history=False)

        assert all(path.read_text() == "mine" for path in mine)
        assert not list((folder / "history").iterdir())

    def test_forgetting_does_not_follow_links(self, tree: KeywordTree, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "a").write_text("mine")
        tree.CreateKeyword("k", "root")
        tree.CompactStorage()
        (folder / "history" / "link").symlink_to(tmp_path / "mine")
        tree.CompactStorage(keep_history=False)

        assert (tmp_path / "mine" / "a").read_text() == "mine"
        assert not list((folder / "history").iterdir())

    def test_a_file_is_called_one(self, tmp_path: Path) -> None:
        path = tmp_path / "笔记.txt"
        path.write_text("mine")
        with pytest.raises(StoreError, match="is a file, and no folder"):
            KeywordTree(str(path))

        assert path.read_text() == "mine"

    def test_a_foreign_folder_gains_no_lock(self, tmp_path: Path) -> None:
        (tmp_path / "change_log.jsonl").write_text("a log of something else\n")
        with pytest.raises(StoreCorruptError, match="no log of a keyword tree"):
            KeywordTree(str(tmp_path))
        assert os.listdir(tmp_path) == ["change_log.jsonl"]


class TestWhatStaysOfTheDead:
    @pytest.mark.parametrize("normalizer", [None, lambda text: [text.replace(" ", "").casefold()]])
    def test_names_that_no_one_bears_are_forgotten(self, folder: Path, normalizer: Any) -> None:
        with KeywordTree(str(folder), normalizer=normalizer) as tree:
            stays = tree.CreateKeyword("what stays", "root")
            held = inside.tokens_held(tree)
            for number in range(20):
                node = tree.CreateKeyword(f"na me {number}", "root", [f"al-ias {number}"])
                node = tree.AddAlias(node.id, f"NA ME {number}")
                node = tree.UpdateKeyword(node.id, {"name": f"new name {number}"}, node.version)
                tree.DeleteKeyword(node.id)

            assert inside.tokens_held(tree) == held
            assert tree.Search("whatstays").node == stays

    def test_a_token_stays_as_long_as_one_bears_the_name(self, tree: KeywordTree) -> None:
        first, second = tree.CreateKeyword("na me", "root"), tree.CreateKeyword("Na Me", "root")
        assert tree.Search("name").candidate_count == 2
        tree.DeleteKeyword(first.id)

        assert tree.Search("name").node == second

    def test_a_deletion_can_be_undone_though_a_restore_came_and_went(self, tree: KeywordTree) -> None:
        node = tree.CreateKeyword("before", "root")
        snapshot = tree.Snapshot()
        tree.UpdateKeyword(node.id, {"name": "behind"}, node.version)
        tree.DeleteKeyword(node.id)
        deletion = tree.last_operation
        tree.Undo(tree.Restore(snapshot))
        tree.Undo(deletion)

        assert tree["behind"].id == node.id


class TestWhatIsLearned:
    def test_within_an_operation_is_nothing_so_it_takes_no_write_away(self, folder: Path) -> None:
        client = StubLLMClient([{"action": "match", "node_id": 0}])
        with KeywordTree(str(folder), client, learn_matches=True) as tree, KeywordTree(str(folder)) as other:
            tea = tree.CreateKeyword("tea", "root")
            with tree.Operation("mine", "Ada"):
                assert tree.Search("what is it that one brews?").node == tea
                tree.CreateKeyword("coffee", "root")
                other.DeleteKeyword(tea.id)

            assert [node.name for node in tree.Walk()][1:] == ["coffee"]
            assert tree.History(limit=1)[0].author == "Ada"

    def test_of_a_change_is_not_lost_where_ctrl_c_comes_before_the_ranking_takes_it_in(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree.CreateKeyword("tea", "root")
        assert tree.RankCandidates("tea")
        tree.CreateKeyword("zebra quagga", "root")
        with monkeypatch.context() as patch:
            inside.interrupt_the_rankings_next_look(tree, patch)
            with pytest.raises(KeyboardInterrupt):
                tree.RankCandidates("zebra")

        assert [node.name for node, _ in tree.RankCandidates("zebra")] == ["zebra quagga"]


class TestDescriptors:
    def test_are_closed_once_though_ctrl_c_comes_twice_while_a_tree_closes(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tree = KeywordTree(str(folder))
        close, struck = os.close, list[int]()

        def interrupted(fd: int) -> None:
            close(fd)
            if len(struck) < 2:
                struck.append(fd)
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "close", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tree.Close()
        others = [os.open(tmp_path / "another file", os.O_CREAT | os.O_RDWR) for _ in range(8)]
        assert set(struck) <= set(others)  # the numbers are used again
        del tree
        gc.collect()

        for fd in others:
            close(fd)  # raises where it was closed


def _count_reads(work: Callable[[], object]) -> int:
    """Return how often `work` reads from the disk."""
    reads = 0

    def look(frame: object, event: str, argument: Any) -> None:
        nonlocal reads
        reads += event == "c_call" and argument.__name__ == "pread"

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return reads


class TestBlocksAreWhole:
    def test_a_forked_child_writes_for_itself_within_its_parents_block(self, tree: KeywordTree) -> None:
        with tree.Operation():
            tree.CreateKeyword("parent's", "root")
            code = _in_a_child(lambda: tree.CreateKeyword("child's", "root"))

        assert code == 0
        tree.Refresh()
        assert {node.name for node in tree.Walk()} - {"root"} == {"parent's", "child's"}

    def test_a_forked_child_that_leaves_its_parents_block_commits_nothing_of_it(self, tree: KeywordTree) -> None:
        block = tree.Operation()
        block.__enter__()
        tree.CreateKeyword("parent's", "root", id="p")
        code = _in_a_child(lambda: block.__exit__(None))
        block.__exit__(None)

        assert code == 0
        assert [node.id for node in tree.Walk()][1:] == ["p"]

    def test_a_line_tells_when_its_block_was_committed(self, folder: Path) -> None:
        now = [100.0]
        with KeywordTree(str(folder), clock=lambda: now[0]) as tree, KeywordTree(str(folder)) as other:
            with tree.Operation():
                now[0] = 200.0
                made = tree.CreateKeyword("in the block", "root")
                now[0] = 300.0
                with KeywordTree(str(folder), clock=lambda: 250.0) as quicker:
                    quicker.CreateKeyword("written meanwhile", "root")
            assert made.created_at == 100.0
            assert tree.History(limit=1)[0].timestamp == 300.0
            with other.At(220.0) as then:
                assert len(then) == 0
            with other.At(260.0) as then:
                assert [node.name for node in then.Walk()][1:] == ["written meanwhile"]

    @pytest.mark.parametrize("reads", [False, True])
    def test_inner_ones_that_fail_do_not_run_again_what_came_before(self, folder: Path, reads: bool) -> None:
        normalized = 0

        def normalize(text: str) -> list[str]:
            nonlocal normalized
            normalized += 1
            return [text]

        def import_rows(tree: KeywordTree, count: int) -> int:
            before = normalized
            with tree.Operation():
                for n in range(count):
                    node = tree.CreateKeyword(f"k{n}", "root")
                    tree.UpdateKeyword(node.id, {"name": f"n{n}"}, 1)
                    with contextlib.suppress(ZeroDivisionError), tree.Operation():
                        tree.UpdateKeyword(node.id, {"name": "wrong"}, 2)
                        if reads:
                            assert tree.FindByName("wrong")
                        raise ZeroDivisionError
                    if reads:
                        assert not tree.FindByName("wrong")
                    with contextlib.suppress(DuplicateIdError):
                        tree.BatchCreateKeywords([{"name": "refused"}, {"name": "refused", "id": node.id}])
            return normalized - before

        with KeywordTree(str(folder), normalizer=normalize) as tree:
            few, many = import_rows(tree, 10), import_rows(tree, 40)
            names = [node.name for node in tree.Walk()][1:]
            assert tree.Verify() == []

        assert many <= 5 * few
        assert names == [f"n{n}" for n in range(10)] + [f"n{n}" for n in range(40)]


class TestLinksInAFolder:
    def test_a_log_after_a_relative_one_is_kept_in_history_and_snapshots(self, folder: Path, tmp_path: Path) -> None:
        with KeywordTree(str(folder)) as tree:
            node = tree.CreateKeyword("old", "root")
        (tmp_path / "elsewhere").mkdir()
        (folder / "change_log.jsonl").rename(tmp_path / "elsewhere" / "log.jsonl")
        (folder / "change_log.jsonl").symlink_to("../elsewhere/log.jsonl")
        with KeywordTree(str(folder)) as tree:
            snapshot = tree.Snapshot()
            tree.UpdateKeyword(node.id, {"name": "new"}, 1)
            tree.CompactStorage()
            assert [change.op for change in tree.History(node.id)] == ["update_keyword", "create_keyword"]
            tree.Restore(snapshot)
            assert [each.name for each in tree.Walk()][1:] == ["old"]

    def test_forgetting_reaches_a_history_that_lies_elsewhere(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        with KeywordTree(str(folder)) as tree:
            (folder / "history").symlink_to(tmp_path / "elsewhere")
            tree.DeleteKeyword(tree.CreateKeyword("top secret", "root").id)
            tree.CompactStorage()
            assert any(b"top secret" in path.read_bytes() for path in (tmp_path / "elsewhere").iterdir())
            tree.CompactStorage(keep_history=False)
            assert tree.History("top secret") == []
        assert list((tmp_path / "elsewhere").iterdir()) == []


class TestScans:
    @pytest.mark.parametrize("in_a_block", [False, True])
    def test_go_on_after_an_info_that_was_deleted_and_came_back(self, tree: KeywordTree, in_a_block: bool) -> None:
        for n in range(10):
            tree.CreateInfo(f"{n}", id=f"i{n}")
        page = tree.ListInfos(size=3)
        tree.DeleteInfo("i2")
        tree.Undo(tree.last_operation)
        tree.DeleteInfo("i5")
        with tree.Operation() if in_a_block else contextlib.nullcontext():
            rest = tree.ListInfos(after=page[-1].id)

        assert [info.id for info in rest] == ["i3", "i4", "i6", "i7", "i8", "i9"]


class TestReading:
    def test_by_name_reads_no_content(self, tree: KeywordTree) -> None:
        node = tree.CreateKeyword("big", "root")
        tree.BatchCreateInfos([{"content": LONG, "keyword_ids": [node.id]}] * 3)

        assert _count_reads(lambda: tree["big"]) == 0
        assert _count_reads(lambda: "big" in tree) == 0
        assert _count_reads(lambda: tree.Search("big")) >= 3

    def test_a_token_of_one_spelling_does_not_lead_to_another(self, folder: Path) -> None:
        def split(text: str) -> list[str]:
            return [word.lower() for word in re.findall("[A-Z]?[a-z]+", text)] or [text]

        with KeywordTree(str(folder), normalizer=split) as tree:
            camel, plain = tree.CreateKeyword("fooBar", "root"), tree.CreateKeyword("foobar", "root")
            assert tree.Search("bar").node == camel
            assert tree.Search("foobar").candidate_count == 2
            tree.DeleteKeyword(camel.id)
            assert tree.Search("bar").node is None
            assert tree.Search("foobar").node == plain


class TestIdsThatAreUsedAgain:
    def test_go_on_with_the_version_so_that_no_update_is_lost(self, tree: KeywordTree) -> None:
        seen = tree.CreateInfo("one", id="I")
        tree.DeleteInfo("I")
        again = tree.CreateInfo("two", id="I")
        with pytest.raises(VersionConflictError):
            tree.UpdateInfo("I", {"content": "lost"}, seen.version)
        assert tree.UpdateInfo("I", {"content": "three"}, again.version).content == "three"

        node = tree.CreateKeyword("one", "root", id="K")
        with tree.Operation():
            tree.DeleteKeyword("K")
            tree.CreateKeyword("two", "root", id="K")
        with pytest.raises(VersionConflictError):
            tree.UpdateKeyword("K", {"name": "lost"}, node.version)

    def test_a_patch_may_be_any_mapping(self, tree: KeywordTree) -> None:
        node = tree.CreateKeyword("old", "root")
        assert tree.UpdateKeyword(node.id, MappingProxyType({"name": "new"}), 1).name == "new"
