"""Values, ids, authors, pages and paths, one promise each, and what is refused of them."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import sys
import threading
import uuid
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from Agent.keyword_tree import (
    DuplicateIdError,
    InvalidInputError,
    KeywordTree,
    KeywordTreeError,
    NotFoundError,
    SearchStatus,
    StoreCorruptError,
    StoreError,
    StubLLMClient,
    VersionConflictError,
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


LONG = "长" * 5000


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


class TestGivenFunctions:
    @pytest.mark.parametrize("made", [7, "", "\ud800", "x" * 600, None])
    def test_an_id_that_is_none_is_refused(self, folder: Path, made: Any) -> None:
        ids: list[Any] = ["the first"]
        with KeywordTree(str(folder), new_id=lambda: ids[0]) as tree:
            ids[0] = made
            with pytest.raises(InvalidInputError, match="new_id"):
                tree.CreateKeyword("k", "root")
            assert len(tree) == 0


class TestWhatStaysOfTheDead:
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


class TestChangesOfAState:
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


class TestDrawing:
    def add(self, tree: KeywordTree, name: str, parent_id: str = "root") -> str:
        return tree.CreateKeyword(name, parent_id).id

    def test_prints_the_top_of_the_tree(self, tree: KeywordTree) -> None:
        coding = self.add(tree, "编程")
        self.add(tree, "asyncio", self.add(tree, "Python\x1b[31m", coding))
        assert str(tree).endswith("'编程'\n    └── 'Python\\x1b[31m'\n        └── 'asyncio'")
        for number in range(31):
            self.add(tree, f"k{number}", coding)
        self.add(tree, "<b>旅行</b>")

        lines = str(tree).splitlines()

        assert lines[0] == repr(tree)
        assert lines[1:5] == ["├── '编程'", "│   ├── 'Python\\x1b[31m'", "│   │   └── … 1 more", "│   ├── 'k0'"]
        assert lines[-2:] == ["│   └── … 22 more", "└── '<b>旅行</b>'"]


def test_a_first_miss_makes_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of names are there when the tree is open, so no search holds its lock for as long as they take."""
    made: list[str] = []
    with KeywordTree(str(tmp_path / "tree")) as tree:
        tree.BatchCreateKeywords([{"name": f"a {number}", "parent_id": "root"} for number in range(100)])
    with KeywordTree(str(tmp_path / "tree")) as tree, monkeypatch.context() as patch:
        inside.note_tokens_made(patch, made.append)
        assert tree.Search("nothing-here", llm_expand_query=False).reason == "exact_miss_llm_disabled"
        assert tree.Search("A99", llm_expand_query=False).reason == "normalized"
    assert len(made) <= 4
