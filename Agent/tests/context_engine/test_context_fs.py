"""Tests of `ContextFS`: nodes, transactions, moves, edits by hand, history, and what bad days bring."""

import json
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine.core.config import FILES
from Agent.context_engine.core.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    InvalidUriError,
    NodeNotFoundError,
    StoreCorruptError,
    StoreError,
    VersionConflictError,
)
from Agent.context_engine.core.objects import ContextNode, RelationEdge, RequestContext
from Agent.context_engine.fs import main_store
from Agent.context_engine.fs.context_fs import ContextFS, RelationStore
from Agent.context_engine.fs.uri import parse_uri
from Agent.tests.context_engine.test_backends import FailingDisk

ADA = RequestContext("acme", "ada", "helper", "s1")
BOB = RequestContext("acme", "bob", "other", "s1")
TEA = "ctx://acme/users/ada/memories/preferences/tea"
TEAS = "ctx://acme/users/ada/memories/preferences"


def node(uri: str = TEA, abstract: str = "tea", content: str = "- no sugar\n", **metadata: object) -> ContextNode:
    return ContextNode(uri, "", "memory", "preferences", "user:ada", abstract, "about tea", content, dict(metadata))


def place(fs: ContextFS, uri: str = TEA) -> Path:
    return Path(fs.resolve_path(ADA, uri))


def events(fs: ContextFS) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in fs.journal.query("SELECT event_type, uri FROM outbox ORDER BY number")]


class TestNodes:
    def test_are_folders_of_five_files_for_their_owner_alone(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())

        assert fs.aside is not None
        files = {path.name: path for path in place(fs).iterdir()}
        assert set(files) == {".abstract.md", ".overview.md", "content.md", ".meta.json", ".relations.json"}
        assert files["content.md"].read_text(encoding="utf-8") == "- no sugar\n"
        assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
        assert {stat.S_IMODE(each.stat().st_mode) for each in (place(fs), *place(fs).parents[:5], fs.aside.parent)} == {
            0o700
        }

    def test_come_back_as_they_were_written(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node(title="Tea 茶", aliases=["cha"], metadata={"mine": [1]}))

        read = fs.read_node(ADA, TEA)
        assert (read.abstract, read.overview, read.content) == ("tea", "about tea", "- no sugar\n")
        assert (read.category, read.owner_space, read.parent_uri) == ("preferences", "user:ada", TEAS)
        assert read.metadata["title"] == "Tea 茶"
        assert read.metadata["aliases"] == ["cha"]
        assert read.metadata["metadata"] == {"mine": [1]}
        assert (read.metadata["version"], read.metadata["sequence"]) == (1, 1)
        assert fs.read_node(ADA, TEA, include_content=False).content == ""

    def test_say_in_their_metadata_what_the_contract_lists(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())

        held = json.loads((place(fs) / ".meta.json").read_bytes())
        assert list(held) == [
            "format", "uri", "version", "sequence", "type", "category", "owner_space", "title", "aliases", "confirmed",
            "created_at", "updated_at", "source_refs", "digests", "metadata",
        ]  # fmt: skip
        assert set(held["digests"]) == set(FILES) - {".meta.json", "messages.jsonl"}
        assert all(len(digest) == 32 for digest in held["digests"].values())

    def test_change_nothing_where_nothing_changes(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        before = {path.name: path.stat().st_mtime_ns for path in place(fs).iterdir()}
        fs.write_node(ADA, node())
        fs.write_level(ADA, TEA, "L0", "tea")

        assert {path.name: path.stat().st_mtime_ns for path in place(fs).iterdir()} == before
        assert fs.journal.last_sequence() == 1

    def test_are_told_without_being_read(self, fs: ContextFS) -> None:
        assert not fs.stat_node(ADA, TEA).exists
        fs.write_node(ADA, node())

        found = fs.stat_node(ADA, TEA)
        assert (found.exists, found.version, found.uri) == (True, 1, TEA)
        assert found.size > 50
        assert fs.exists(ADA, TEA)
        assert not fs.exists(ADA, TEAS)

    def test_are_read_and_written_level_by_level(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        for level, text in (("L0", "one"), ("L1", "two"), ("L2", "三")):
            fs.write_level(ADA, TEA, level, text)
            assert fs.read_level(ADA, TEA, level) == text
        with pytest.raises(InvalidInputError, match="'L3'"):
            fs.read_level(ADA, TEA, "L3")

    @pytest.mark.parametrize(("level", "words"), [("L0", 101), ("L1", 501), ("L2", 5_001)])
    def test_refuse_levels_that_are_too_long(self, fs: ContextFS, level: str, words: int) -> None:
        fs.write_node(ADA, node())
        fs.write_level(ADA, TEA, level, "茶" * (words - 1))
        with pytest.raises(InvalidInputError, match="tokens"):
            fs.write_level(ADA, TEA, level, "茶" * words)

    def test_change_metadata_field_by_field(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node(title="Tea"))
        fs.write_metadata(ADA, TEA, {"aliases": ["cha"], "metadata": {"a": 1}})

        held = fs.read_metadata(ADA, TEA)
        assert (held["title"], held["aliases"], held["metadata"], held["version"]) == ("Tea", ["cha"], {"a": 1}, 2)
        wrong: list[dict[str, Any]] = [{"title": ""}, {"aliases": "x"}, {"aliases": [1]}, {"metadata": []}]
        for bad in [*wrong, {"colour": "red"}, {"metadata": {"x": object()}}]:
            with pytest.raises(InvalidInputError):
                fs.write_metadata(ADA, TEA, bad)

    def test_list_their_children(self, fs: ContextFS) -> None:
        for name in ("a", "b", "b/c"):
            fs.write_node(ADA, node(f"{TEAS}/{name}"))

        assert [each.name for each in fs.list_children(ADA, TEAS)] == ["a", "b"]
        assert [each.has_children for each in fs.list_children(ADA, TEAS)] == [False, True]
        space = "ctx://acme/users/ada"
        assert [each.name for each in fs.list_children(ADA, space, recursive=True)] == [
            "memories", "preferences", "a", "b", "c",
        ]  # fmt: skip
        assert [each.is_dir for each in fs.list_children(ADA, space, depth=2)] == [True, True]
        assert fs.list_children(ADA, f"{TEAS}/a") == fs.list_children(ADA, f"{TEAS}/nothing") == []
        with pytest.raises(InvalidInputError):
            fs.list_children(ADA, TEAS, depth=0)


def test_an_edit_by_hand_is_a_version_that_the_writer_has_not_seen(fs: ContextFS) -> None:
    fs.write_node(ADA, node())
    seen = fs.read_node(ADA, TEA)
    (place(fs) / "content.md").write_text("by hand", encoding="utf-8")
    with pytest.raises(VersionConflictError):
        fs.write_node(ADA, seen)

    assert fs.read_level(ADA, TEA, "L2") == "by hand"


class TestTransactions:
    def test_are_one_commit_with_one_sync_however_many_nodes(self, fs: ContextFS) -> None:
        with fs.transaction(ADA, "ten"):
            for number in range(10):
                fs.write_node(ADA, node(f"{TEAS}/{number}"))

        assert fs.journal.query("SELECT name FROM commits") == [("ten",)]
        assert {fs.read_metadata(ADA, f"{TEAS}/{number}")["sequence"] for number in range(10)} == {1}

    def test_register_the_events_that_their_changes_imply(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        fs.write_node(ADA, node(f"{TEAS}/b"))
        RelationStore(fs).upsert_edges(ADA, TEA, [RelationEdge(TEA, f"{TEAS}/b", "near")])
        fs.move_node(ADA, f"{TEAS}/b", f"{TEAS}/c")
        fs.delete_node(ADA, f"{TEAS}/c")

        assert events(fs) == [
            ("UPSERT_CONTEXT", TEA),
            ("UPSERT_CONTEXT", f"{TEAS}/b"),
            ("UPSERT_CONTEXT", TEA),
            ("UPSERT_RELATION", TEA),
            ("MOVE_CONTEXT", f"{TEAS}/b"),
            ("DELETE_CONTEXT", f"{TEAS}/c"),
        ]
        assert fs.journal.query("SELECT DISTINCT status FROM outbox") == [("pending",)]

    def test_join_one_that_is_open(self, fs: ContextFS) -> None:
        with fs.transaction(ADA, "outer") as outer, fs.transaction(ADA, "inner") as inner:
            assert inner is outer
        with pytest.raises(InvalidInputError), fs.transaction(ADA), fs.transaction(BOB):
            pass


class TestMoves:
    def test_are_one_event_and_leave_nothing_at_the_old_place(self, fs: ContextFS) -> None:
        for name in ("tea", "tea/green", "tea/green/longjing"):
            fs.write_node(ADA, node(f"{TEAS}/{name}", abstract=name))
        count = len(events(fs))
        fs.move_node(ADA, TEA, f"{TEAS}/drinks")

        assert events(fs)[count:] == [("MOVE_CONTEXT", TEA)]
        assert fs.read_level(ADA, f"{TEAS}/drinks/green/longjing", "L0") == "tea/green/longjing"
        assert not fs.exists(ADA, TEA)
        assert not place(fs).exists()
        assert [each.change for each in fs.history(ADA, f"{TEAS}/drinks/green")] == ["moved", "created"]
        assert fs.history(ADA, f"{TEAS}/drinks/green")[1].after[".abstract.md"] == "tea/green"
        assert [each.name for each in fs.list_children(ADA, TEAS)] == ["drinks"]

    def test_refuse_what_cannot_be(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        fs.write_node(ADA, node(f"{TEAS}/b"))
        for to in (f"{TEAS}/b", f"{TEA}/under", TEA, "ctx://acme/agents/helper/skills/x", "ctx://acme/users/ada"):
            with pytest.raises(ConflictError):
                fs.move_node(ADA, TEA, to)
        with pytest.raises(AccessDeniedError):
            fs.move_node(ADA, TEA, "ctx://acme/users/bob/memories/x")
        with pytest.raises(NodeNotFoundError):
            fs.move_node(ADA, f"{TEAS}/nothing", f"{TEAS}/x")

    def test_of_an_earlier_version_have_left_no_node(self, fs: ContextFS) -> None:
        place(fs).mkdir(parents=True)
        (place(fs) / ".meta.json").write_text('{"moved_to": "ctx://acme/users/bob/memories/x"}', encoding="utf-8")
        with pytest.raises(NodeNotFoundError):
            fs.read_node(ADA, TEA)
        assert not fs.exists(ADA, TEA)
        assert not fs.stat_node(ADA, TEA).exists
        assert [*fs.find_edits("ctx://acme/users/ada"), *fs.list_children(ADA, TEAS)] == []

    def test_leave_archives_where_they_are(self, fs: ContextFS) -> None:
        sessions = "ctx://acme/users/ada/sessions"
        for uri, to in ((f"{sessions}/s1", f"{sessions}/s2"), (TEA, f"{sessions}/tea")):
            with pytest.raises(ConflictError, match="stays where it is"):
                fs.move_node(ADA, uri, to)


class TestMovesAndCrashes:
    """A folder that moves and comes back, or goes on, before a sync."""

    COFFEE, MATE = f"{TEAS}/coffee", f"{TEAS}/mate"

    def reopened(self, fs: ContextFS, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ContextFS:
        assert fs.root is not None
        shutil.copytree(fs.root, folder)
        with monkeypatch.context() as patched:
            patched.setattr(main_store, "boot_id", lambda: "another start of the machine")
            return ContextFS(folder)

    @pytest.mark.parametrize("there", [TEA, COFFEE, MATE])
    def test_a_power_cut_loses_no_file(
        self, fs: ContextFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
    ) -> None:
        fs.write_node(ADA, node())
        fs.move_node(ADA, TEA, self.COFFEE)
        if there == TEA:
            fs.undo(ADA, fs.log(ADA)[0]["id"])
        if there == self.MATE:
            fs.move_node(ADA, self.COFFEE, self.MATE)
        (place(fs, there) / "content.md").write_bytes(b"- no")
        again = self.reopened(fs, tmp_path / "copy", monkeypatch)

        assert again.read_level(ADA, there, "L2") == "- no sugar\n"
        assert [each.uri for each in again.list_children(ADA, TEAS)] == [there]
        again.close()

    @pytest.mark.parametrize("back", [True, False])
    def test_that_only_the_journal_knows_is_made(
        self, fs: ContextFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
    ) -> None:
        def refuse(*_: object) -> bool:
            raise StoreError("killed here", is_committed=True)

        fs.write_node(ADA, node())
        fs.write_node(ADA, node(f"{TEA}/green"))
        fs.checkpoint()
        fs.move_node(ADA, TEA, self.COFFEE)
        with monkeypatch.context() as patched:
            patched.setattr(fs.folders, "write", refuse)
            with pytest.raises(StoreError):
                fs.move_node(ADA, self.COFFEE, TEA if back else self.MATE)
        again = self.reopened(fs, tmp_path / "copy", monkeypatch)

        there = TEA if back else self.MATE
        assert again.read_level(ADA, there, "L2") == "- no sugar\n"
        assert [each.text for each in again.walk(parse_uri(TEAS))] == [there, f"{there}/green"]
        again.close()


class TestDeleting:
    def test_refuses_a_node_with_children(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        fs.write_node(ADA, node(f"{TEA}/green"))
        with pytest.raises(ConflictError, match="children"):
            fs.delete_node(ADA, TEA)
        fs.delete_node(ADA, TEA, recursive=True)

        assert not place(fs).exists()
        assert fs.list_children(ADA, "ctx://acme/users/ada", recursive=True) == []
        with pytest.raises(NodeNotFoundError):
            fs.delete_node(ADA, TEA)


class TestHistory:
    def test_undo_names_what_came_later(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        first = fs.log(ADA)[0]["id"]
        fs.write_level(ADA, TEA, "L2", "now")
        with pytest.raises(ConflictError) as raised:
            fs.undo(ADA, first)

        assert raised.value.commits == [fs.log(ADA)[0]["id"]]
        assert raised.value.uris == [TEA]
        with pytest.raises(InvalidInputError):
            fs.undo(ADA, "missing")

    def test_is_pruned_by_age(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        assert fs.prune(fs.clock() + 1) == 1

        assert fs.history(ADA, TEA) == []
        assert fs.read_level(ADA, TEA, "L2") == "- no sugar\n"
        fs.write_level(ADA, TEA, "L2", "later")
        assert fs.read_metadata(ADA, TEA)["sequence"] == 2


class TestEditsByHand:
    def test_are_read_and_become_versions_in_the_history(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        (place(fs) / "content.md").write_text("by hand", encoding="utf-8")

        assert fs.read_level(ADA, TEA, "L2") == "by hand"
        assert fs.find_edits("ctx://acme/users/ada") == [TEA]
        assert fs.adopt(ADA, TEA)
        assert not fs.adopt(ADA, TEA)
        assert fs.read_metadata(ADA, TEA)["version"] == 2
        assert fs.find_edits("ctx://acme/users/ada") == []
        (place(fs) / "content.md").write_text("by another hand", encoding="utf-8")
        entry = fs.history(ADA, TEA)[0]
        assert (entry.before["content.md"], entry.after["content.md"]) == ("- no sugar\n", "by hand")
        fs.adopt(ADA, TEA)
        fs.undo(ADA, fs.history(ADA, TEA)[0].commit_id)
        assert fs.read_level(ADA, TEA, "L2") == "by hand"

    def test_are_seen_where_an_older_state_was_put_back(self, fs: ContextFS, tmp_path: Path) -> None:
        fs.write_node(ADA, node())
        shutil.copytree(place(fs), tmp_path / "old")
        fs.write_level(ADA, TEA, "L2", "newer")
        shutil.rmtree(place(fs))
        shutil.copytree(tmp_path / "old", place(fs))  # what `git checkout` does

        assert fs.find_edits("ctx://acme/users/ada") == [TEA]
        assert fs.adopt(ADA, TEA)
        assert fs.read_metadata(ADA, TEA)["version"] == 3
        assert fs.read_level(ADA, TEA, "L2") == "- no sugar\n"

    def test_may_be_new_nodes_and_gone_ones(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        made = place(fs, f"{TEAS}/coffee")
        made.mkdir()
        (made / "content.md").write_text("- black\n", encoding="utf-8")
        shutil.rmtree(place(fs))

        assert sorted(fs.find_edits("ctx://acme/users/ada")) == [f"{TEAS}/coffee", TEA]
        assert fs.adopt(ADA, f"{TEAS}/coffee")
        assert fs.read_node(ADA, f"{TEAS}/coffee").category == "preferences"
        assert fs.adopt(ADA, TEA)
        assert fs.find_edits("ctx://acme/users/ada") == []

    def test_may_be_wrong_in_every_way(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        meta = place(fs) / ".meta.json"
        for text in ("", "{", "[]", '{"version": "x", "aliases": 7, "source_refs": [1, {}], "metadata": []}', "\xff"):
            meta.write_bytes(text.encode("latin-1"))
            assert fs.read_node(ADA, TEA).content == "- no sugar\n"
        (place(fs) / "content.md").write_bytes(b"\xff\xfe")
        with pytest.raises(StoreCorruptError, match="UTF-8"):
            fs.read_level(ADA, TEA, "L2")
        with pytest.raises(StoreCorruptError):
            fs.adopt(ADA, TEA)
        assert (place(fs) / "content.md").read_bytes() == b"\xff\xfe"

    def test_may_be_no_symlinks(self, fs: ContextFS, tmp_path: Path) -> None:
        fs.write_node(ADA, node())
        (tmp_path / "secret").write_text("secret", encoding="utf-8")
        (place(fs) / "content.md").unlink()
        (place(fs) / "content.md").symlink_to(tmp_path / "secret")
        with pytest.raises(StoreError, match="symlink"):
            fs.read_node(ADA, TEA)
        shutil.rmtree(place(fs))
        place(fs).symlink_to(tmp_path)
        with pytest.raises(StoreError, match="symlink"):
            fs.read_node(ADA, TEA)
        with pytest.raises(StoreError, match="symlink"):
            fs.write_node(ADA, node())
        assert list(fs.list_children(ADA, TEAS)) == []

    def test_may_be_no_pipes_and_not_huge(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        path = place(fs) / "content.md"
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(StoreError, match="no plain file"):
            fs.read_node(ADA, TEA)
        path.unlink()
        with path.open("wb") as file:
            file.truncate(65 * 1024 * 1024)
        with pytest.raises(StoreCorruptError, match="larger"):
            fs.read_node(ADA, TEA)


class TestOpening:
    def test_finds_everything_again(self, tmp_path: Path) -> None:
        with_store(tmp_path, lambda fs: fs.write_node(ADA, node()))
        fs = ContextFS(tmp_path)

        assert fs.read_node(ADA, TEA).abstract == "tea"
        assert fs.journal.query("SELECT state FROM commits") == [("synced",)]
        fs.close()
        fs.close()
        with pytest.raises(StoreError, match="closed"):
            fs.write_node(ADA, node())

    def test_takes_a_clone_in_and_goes_on_above_its_sequences(self, tmp_path: Path) -> None:
        def write(fs: ContextFS) -> None:
            for number in range(5):
                fs.write_level(ADA, TEA, "L2", str(number)) if number else fs.write_node(ADA, node())

        with_store(tmp_path / "a", write)
        assert (tmp_path / "a/.ctx/.gitignore").read_text(encoding="utf-8") == "*\n"
        shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns(".ctx"))
        fs = ContextFS(tmp_path / "b")

        assert fs.find_edits("ctx://acme/users/ada") == []
        assert ("UPSERT_CONTEXT", "ctx://acme/users/ada") in events(fs)
        fs.write_level(ADA, TEA, "L2", "new")
        assert fs.read_metadata(ADA, TEA)["sequence"] == 6
        fs.close()

    def test_sets_a_damaged_journal_aside(self, tmp_path: Path) -> None:
        with_store(tmp_path, lambda fs: fs.write_node(ADA, node()))
        (tmp_path / ".ctx/journal.db").write_bytes(b"not a database at all" * 500)
        fs = ContextFS(tmp_path)

        assert fs.read_node(ADA, TEA).abstract == "tea"
        assert "damaged" in fs.journal.reports()[0][2]
        assert list((tmp_path / ".ctx/aside").glob("journal-*/journal.db"))
        fs.write_level(ADA, TEA, "L2", "x")
        assert fs.read_metadata(ADA, TEA)["sequence"] == 2
        fs.close()

    def test_a_folder_that_may_not_be_written_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with_store(tmp_path, lambda fs: fs.write_node(ADA, node()))
        before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may write everywhere
        with pytest.raises(StoreError, match="may not be written"):
            ContextFS(tmp_path)
        assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before

    def test_a_forked_process_writes_beside_its_parent(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                fs.write_node(ADA, node(f"{TEAS}/child"))
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        fs.write_node(ADA, node(f"{TEAS}/parent"))

        assert [each.name for each in fs.list_children(ADA, TEAS)] == ["child", "parent", "tea"]


def with_store(folder: Path, do: Callable[[ContextFS], object]) -> None:
    fs = ContextFS(folder)
    do(fs)
    fs.close()


class TestBadDisks:
    def test_a_full_one_where_the_journal_lies_leaves_all_as_it_was(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        connection = fs.journal._connect()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full") as raised:
            fs.write_level(ADA, TEA, "L2", "".join(random.choices("abcdefgh", k=16_000)))
        assert not raised.value.is_committed
        assert fs.read_level(ADA, TEA, "L2") == "- no sugar\n"
        connection.execute("PRAGMA max_page_count = 1000000")

        fs.write_level(ADA, TEA, "L2", "- sugar\n")
        assert fs.read_metadata(ADA, TEA)["version"] == 2

    def test_a_failed_sync_stops_all_writes_until_it_is_opened_again(self, tmp_path: Path) -> None:
        disk = FailingDisk()
        fs = ContextFS(tmp_path, disk=disk)
        fs.write_node(ADA, node())
        disk.failing = "sync_all"
        with pytest.raises(StoreError, match="sync"):
            fs.checkpoint()
        disk.failing = ""
        with pytest.raises(StoreError, match="open the store again"):
            fs.write_level(ADA, TEA, "L2", "x")
        assert fs.read_level(ADA, TEA, "L2") == "- no sugar\n"
        fs.close()
        (tmp_path / "acme/users/ada/memories/preferences/tea/content.md").write_bytes(b"")  # what the sync lost

        again = ContextFS(tmp_path)
        assert again.read_level(ADA, TEA, "L2") == "- no sugar\n"
        again.close()

    def test_one_without_syncfs_syncs_all(self, fs: ContextFS, monkeypatch: pytest.MonkeyPatch) -> None:
        from Agent.context_engine.fs import folders as disk

        called = []
        monkeypatch.setattr(disk, "_syncfs", None)
        monkeypatch.setattr(os, "sync", lambda: called.append(True))
        fs.write_node(ADA, node())
        fs.checkpoint()

        assert called == [True]


class TestRelations:
    def test_are_one_for_each_target_and_type(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        store = RelationStore(fs)
        other = f"{TEAS}/b"
        store.upsert_edges(ADA, TEA, [RelationEdge(TEA, other, "near", "a"), RelationEdge(TEA, other, "like", "b")])
        store.upsert_edges(ADA, TEA, [RelationEdge(TEA, other, "near", "c", 0.5)])
        store.append_edges(ADA, TEA, [RelationEdge(TEA, other, "near", "d"), RelationEdge(TEA, other, "new")])

        assert [(e.relation_type, e.reason) for e in store.get_edges(ADA, TEA)] == [
            ("near", "c"), ("like", "b"), ("new", ""),
        ]  # fmt: skip
        assert store.remove_edges(ADA, TEA, relation_types=["like"]) == 1
        assert store.remove_edges(ADA, TEA, to_uris=["ctx://acme/users/ada/x"]) == 0
        assert store.remove_edges(ADA, TEA) == 2
        assert store.get_edges(ADA, TEA) == []

    def test_lead_to_nobody_else(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        store = RelationStore(fs)
        with pytest.raises(AccessDeniedError):
            store.upsert_edges(ADA, TEA, [RelationEdge(TEA, "ctx://acme/users/bob/x", "near")])
        with pytest.raises(InvalidInputError):
            store.upsert_edges(ADA, TEA, [RelationEdge(f"{TEAS}/b", TEA, "near")])
        with pytest.raises(InvalidUriError):
            store.append_edges(ADA, TEA, [RelationEdge(TEA, "nowhere", "near")])
        rows = '[{"to_uri": "ctx://acme/users/bob/x", "relation_type": "near"}, 7, {"to_uri": 1}]'
        (place(fs) / ".relations.json").write_text(rows, encoding="utf-8")

        assert store.get_edges(ADA, TEA) == []


class TestJournal:
    def test_keeps_what_stays_the_same_in_a_node_about_once(self, fs: ContextFS) -> None:
        chance = random.Random(1)
        text = "".join(f"- {chance.getrandbits(256):x}\n" for _ in range(60))  # of random digits nothing is saved
        fs.write_node(ADA, node(content=text))
        for number in range(5):
            fs.write_level(ADA, TEA, "L2", f"- {number}\n{text}")
        ((size,),) = fs.journal.query("SELECT sum(length(images)) FROM changes")
        # Six commits: each has the text once, deflated to half, though five of them have it before and after.
        assert size < 6 * 0.7 * len(text)
        past = fs.history(ADA, TEA)
        assert [each.after["content.md"] for each in past] == [f"- {each}\n{text}" for each in range(4, -1, -1)] + [
            text
        ]
        assert [each.before["content.md"] for each in past[:-1]] == [each.after["content.md"] for each in past[1:]]

    def test_need_not_be_there(self, fs: ContextFS) -> None:
        fs.journal.query("PRAGMA journal_mode = DELETE")  # as on a file system without shared memory
        fs.write_node(ADA, node())
        fs.checkpoint()

        assert fs.journal.wal_size() == 0
        assert fs.read_level(ADA, TEA, "L2") == "- no sugar\n"

    def test_is_emptied_later_where_a_worker_writes_to_it(self, fs: ContextFS) -> None:
        fs.write_node(ADA, node())
        worker = sqlite3.connect(fs.journal.path, isolation_level=None)
        worker.execute("BEGIN IMMEDIATE")
        fs.journal.truncate()
        worker.execute("ROLLBACK")
        worker.close()
        fs.journal.truncate()

        assert fs.journal.wal_size() == 0
