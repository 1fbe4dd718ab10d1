"""Tests of `LogFollower`: nothing is missed, nothing comes twice."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from Agent import keyword_tree
from Agent.adapters.items import KeptView
from Agent.keyword_tree import Change, KeywordTree
from Agent.store import log_follower
from Agent.store.log_follower import LogChanges, LogFollower, Position, all_infos


class TestCatchUp:
    def test_begins_with_all_there_is(self, tree: KeywordTree) -> None:
        tea = tree.CreateKeyword("tea")
        info = tree.CreateInfo("hot", keyword_ids=[tea.id])

        changes = LogFollower(tree).catch_up()
        assert changes.from_nothing
        assert [node.id for node in changes.nodes] == ["root", tea.id]
        assert [record.id for record in changes.infos] == [info.id]
        assert [(link.info_id, link.keyword_id) for link in changes.links] == [(info.id, tea.id)]

    def test_goes_on_where_it_stopped(self, tree: KeywordTree) -> None:
        follower = LogFollower(tree)
        follower.catch_up()
        info = tree.CreateInfo("one")
        tree.DeleteInfo(info.id)

        changes = follower.catch_up()
        assert not changes.from_nothing
        assert [(record.id, record.deleted) for record in changes.infos] == [(info.id, False), (info.id, True)]
        assert follower.catch_up().infos == []

    def test_reads_the_last_operation_once_where_only_a_checkpoint_stands_after_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            tree.BatchCreateInfos([{"content": "x" * 1000}] * 100)
        with KeywordTree(str(tmp_path)) as tree:
            follower = LogFollower(tree)
            follower.catch_up()
            follower.catch_up()
            pread, read = os.pread, list[bytes]()

            def listen(fd: int, size: int, offset: int) -> bytes:
                read.append(pread(fd, size, offset))
                return read[-1]

            monkeypatch.setattr(os, "pread", listen)

            assert follower.catch_up().infos == []
            assert len(b"".join(read)) < 1_000
            info = tree.CreateInfo("new")
            assert [record.id for record in follower.catch_up().infos] == [info.id]

    def test_sees_what_others_wrote(self, tree: KeywordTree, folder: Path) -> None:
        follower = LogFollower(tree)
        follower.catch_up()
        with KeywordTree(str(folder)) as other:
            other.CreateInfo("theirs")

        assert [record.content for record in follower.catch_up().infos] == ["theirs"]

    @pytest.mark.parametrize("keep_history", [True, False])
    def test_begins_again_after_a_compaction(self, tree: KeywordTree, keep_history: bool) -> None:
        follower = LogFollower(tree)
        gone = tree.CreateInfo("gone")
        follower.catch_up()
        tree.DeleteInfo(gone.id)
        tree.CreateInfo("left")
        tree.CompactStorage(keep_history=keep_history)
        tree.CreateInfo("new")

        changes = follower.catch_up()
        assert changes.from_nothing
        assert [record.content for record in changes.infos if not record.deleted] == ["left", "new"]

    def test_tells_again_what_it_could_not_read_to_the_end(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        follower = LogFollower(tree)
        follower.catch_up()
        for content in ("one", "two"):
            tree.CreateInfo(content)
        changes = KeywordTree.Changes

        def fail_at_the_second(self: KeywordTree, since: int = 0) -> Iterator[Change]:
            yield from islice(changes(self, since), 1)
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(KeywordTree, "Changes", fail_at_the_second)
            with pytest.raises(OSError, match="gone"):
                follower.catch_up()

        assert [record.content for record in follower.catch_up().infos] == ["one", "two"]


class TestResume:
    @pytest.mark.parametrize("is_state", [False, True])
    def test_goes_on_after_an_operation_or_a_state_that_the_log_has(self, tree: KeywordTree, is_state: bool) -> None:
        tree.CreateInfo("one")
        if is_state:
            tree.CompactStorage()
        first, second = LogFollower(tree), LogFollower(tree)
        first.catch_up()
        tree.CreateInfo("two")

        assert second.resume(first.position)
        assert [record.content for record in second.catch_up().infos] == ["two"]

    def test_refuses_what_the_log_has_not(self, tree: KeywordTree) -> None:
        tree.CreateInfo("one")
        follower = LogFollower(tree)
        follower.catch_up()
        position = follower.position
        again = LogFollower(tree)

        for wrong in (Position(), Position(position.seq, "other"), position._replace(seq=99), Position(-5, "x")):
            assert not again.resume(wrong)
        tree.CreateInfo("two")
        tree.CompactStorage()
        assert not again.resume(position)
        assert again.catch_up().from_nothing


class TestBegin:
    def test_tells_what_came_after_the_reading(self, tree: KeywordTree) -> None:
        tree.CreateInfo("one")
        changes = LogFollower(tree).begin(lambda: None, lambda _: False)
        assert (changes.from_nothing, changes.infos) == (False, [])

        def read_and_write() -> None:
            tree.CreateInfo("two")

        changes = LogFollower(tree).begin(read_and_write, lambda _: False)
        assert [record.content for record in changes.infos] == ["two"]

    def test_reads_again_where_it_was_disturbed_and_at_last_the_log(self, tree: KeywordTree) -> None:
        tree.CreateInfo("one")
        read: list[int] = []
        changes = LogFollower(tree).begin(lambda: read.append(1), lambda _: True)

        assert len(read) == 3
        assert changes.from_nothing
        assert [record.content for record in changes.infos] == ["one"]


class Texts(KeptView):
    """The contents of all infos by id, as something derived from them."""

    def __init__(self, tree: KeywordTree) -> None:
        self.failures: list[BaseException] = []
        super().__init__(tree, "texts")

    def follow(self) -> dict[str, str]:
        self.catch_up()
        return self.known

    def clear(self) -> None:
        self.known: dict[str, str] = {}

    def count(self) -> int:
        return len(self.known)

    def to_json(self) -> dict[str, str]:
        return self.known

    def from_json(self, kept: dict[str, str]) -> None:
        self.known = kept

    def read_tree(self) -> None:
        self.take(LogChanges(infos=list(all_infos(self._tree))))

    def take(self, changes: LogChanges) -> None:
        for info in changes.infos:
            self.known.pop(info.id, None) if info.deleted else self.known.update({info.id: info.content})
            if len(self.known) == 3 and self.failures:
                raise self.failures.pop()


class TestInfos:
    def test_are_taken_as_they_become(self, tree: KeywordTree) -> None:
        old, texts = tree.CreateInfo("old"), Texts(tree)
        assert texts.follow() == {old.id: "old"}

        tree.UpdateInfo(old.id, {"content": "changed"})
        new = tree.CreateInfo("new")
        assert texts.follow() == {old.id: "changed", new.id: "new"}

        tree.DeleteInfo(new.id)
        tree.CompactStorage()
        assert texts.follow() == {old.id: "changed"}

    @pytest.mark.parametrize("is_first", [True, False])
    def test_are_all_read_again_after_what_failed_halfway(self, tree: KeywordTree, is_first: bool) -> None:
        texts = Texts(tree)
        if not is_first:
            texts.follow()
        texts.failures.append(KeyboardInterrupt())
        for number in range(4):
            tree.CreateInfo(str(number))
        with pytest.raises(KeyboardInterrupt):
            texts.follow()

        assert sorted(texts.follow().values()) == ["0", "1", "2", "3"]

    def test_are_read_page_by_page_while_they_are_deleted(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_follower, "_PAGE", 3)
        made = {tree.CreateInfo(str(number)).id for number in range(10)}
        seen = set()
        for info in all_infos(tree):
            seen.add(info.id)
            tree.DeleteInfo(info.id)

        assert seen == made
        assert list(all_infos(tree)) == []

    def test_are_read_again_where_the_place_is_gone(self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_follower, "_PAGE", 2)
        made = [tree.CreateInfo(str(number)).id for number in range(6)]
        seen = []
        for info in all_infos(tree):
            seen.append(info.id)
            if len(seen) == 2:  # the last one of its page
                tree.DeleteInfo(info.id)
                assert len(list(all_infos(tree))) == 5

        assert set(seen) == set(made)


def test_goes_on_without_decoding_what_it_has_read(tree: KeywordTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.BatchCreateInfos([{"content": f"fact {number}"} for number in range(100)])  # one operation, as of an import
    first = log_follower.LogFollower(tree)
    first.catch_up()
    decoded: list[bytes] = []
    monkeypatch.setattr(keyword_tree, "_ReadRecord", decoded.append)

    assert log_follower.LogFollower(tree).resume(first.position)
    assert not log_follower.LogFollower(tree).resume(first.position._replace(operation_id="another"))
    assert decoded == []
