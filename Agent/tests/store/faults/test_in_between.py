"""What a folder, another process or the store's own callbacks may do in the middle of a commit."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import ClassVar

import pytest

from Agent.keyword_tree import KeywordTree, StoreError
from Agent.tests.store.faults.worlds import FOLDER, LOG, LONG, SYNC, WRITE, Step, Traps, step
from Agent.tests.support.faulty_files import Door, Mode


class TestFolders:
    """What a folder of the system, a mount or another process may do while the store is at work."""

    def test_a_folder_whose_sync_fails_is_not_served(self, traps: Traps) -> None:
        traps.fault(errno.EIO, 1, "fsync")
        traps.fails(Step("b", "open"))

        assert traps.disk.failed_calls == ["fsync memory"]

    def test_a_folder_above_that_may_not_be_read_is_tolerated(self, traps: Traps) -> None:
        with traps.at("open memory", 1, lambda: traps.fault(errno.EACCES, 1, "open")):
            traps.world.do(Step("b", "open"))

        assert traps.disk.failed_calls == ["open memory"]

    @pytest.mark.parametrize("name", ["memory", "tree"])
    def test_a_folder_that_another_process_has_just_made_is_tolerated(self, door: Door, name: str) -> None:
        traps = Traps(door)
        path = {"memory": "/disk/memory", "tree": FOLDER}[name]
        with traps.at(f"mkdir {name}", 1, lambda: traps.disk.mkdir(path)):
            traps.world.run([Step("a", "open"), step("a", "first")])

        assert traps.names_after(Mode("none")) == {"first"}

    def test_a_second_tail_does_not_replace_the_first(self, traps: Traps) -> None:
        tails = [b'{"crc": "00000000", "one', b'{"crc": "00000000", "two']
        traps.disk.kill("a")
        for number, tail in enumerate(tails):
            traps.disk.spoil(LOG, traps.disk.read_all()[LOG].rstrip(b" \n") + b"\n" + tail)
            traps.world.do(Step(f"b{number}", "open"))
            traps.disk.kill(f"b{number}")

        assert [tail for tail in tails if tail not in traps.disk.read_all().values()] == []


def write_in_an_operation(tree: KeywordTree) -> None:
    with tree.Operation("within"):
        tree.CreateKeyword("within", "root")


class TestWithin:
    """A signal handler, a clock, a normalizer or a ranking may call the tree whose commit it stands in."""

    def in_a_commit(self, traps: Traps, call: str, act: Callable[[KeywordTree], None]) -> None:
        """Let the tree be called in the middle of a commit, before a call to the disk."""
        with traps.at(call, 1, lambda: act(traps.world.trees["a"])):
            traps.world.do(step("a", "second"))
        assert traps.names_after(Mode("none")) == {"first", "second"}

    @pytest.mark.parametrize("call", [WRITE, SYNC, "pwrite nodes.jsonl"])
    @pytest.mark.parametrize(
        "use",
        [
            KeywordTree.Refresh,
            KeywordTree.Verify,
            KeywordTree.Snapshot,
            KeywordTree.CompactStorage,
            lambda tree: tree.CreateKeyword("within", "root"),
            write_in_an_operation,
        ],
        ids=["refresh", "verify", "snapshot", "compact", "write", "operation"],
    )
    def test_what_needs_the_lock_is_refused_and_the_lock_stays(
        self, traps: Traps, use: Callable[[KeywordTree], object], call: str
    ) -> None:
        def act(tree: KeywordTree) -> None:
            with pytest.raises(StoreError, match="while its own thread does"):
                use(tree)
            lock = traps.disk.open(f"{FOLDER}/lock", os.O_RDWR)
            with pytest.raises(BlockingIOError):
                traps.disk.flock(lock, 2 | 4)
            traps.disk.close(lock)

        self.in_a_commit(traps, call, act)

    def test_what_is_known_can_be_read(self, traps: Traps) -> None:
        reported: list[str] = []

        def act(tree: KeywordTree) -> None:
            reported.extend(node.id for node in tree.GetChildren("root"))
            reported.extend(change.op for change in tree.History())

        self.in_a_commit(traps, SYNC, act)
        assert reported == ["first", "create_keyword", "create_store"]


class TestFalseAlarms:
    """No fact depends on these; but no damage and no failure is reported where there is none."""

    def recovery_after(self, traps: Traps, mode: Mode) -> tuple[str, ...]:
        traps.world.door.disk = traps.disk.now().cut_power(mode)
        return KeywordTree(FOLDER).recovery

    @pytest.mark.parametrize("mode", [Mode("none"), *(Mode("without", index) for index in range(4))])
    def test_a_store_that_was_opened_once_and_closed_is_whole_after_a_power_cut(self, door: Door, mode: Mode) -> None:
        traps = Traps(door)
        info = Step("a", "info", ({"id": "i", "content": LONG, "keyword_ids": ["first"]},))
        traps.world.run([Step("a", "open"), step("a", "first"), info, Step("a", "close")])

        assert self.recovery_after(traps, mode) == ()

    def test_a_projection_that_had_no_room_is_made_good_by_the_next_checkpoint(self, traps: Traps) -> None:
        with traps.at("pwrite nodes.jsonl", 1, lambda: traps.fault(errno.ENOSPC, 1, "pwrite")):
            traps.world.do(step("a", "second"))
        assert traps.disk.failed_calls == ["pwrite nodes.jsonl"]
        traps.world.run([step("a", "third"), Step("a", "close")])

        assert self.recovery_after(traps, Mode("none")) == ()

    @pytest.mark.parametrize("sync", ["forgets", "reverts", "tears"])
    def test_a_projection_whose_sync_failed_is_made_good_by_the_next_checkpoint(self, traps: Traps, sync: str) -> None:
        tree = traps.world.trees["a"]
        with traps.at("fdatasync nodes.jsonl", 1, lambda: traps.fault(errno.EIO, 1, "fdatasync", sync=sync)):
            for number in range(6):
                traps.world.do(step("a", f"k{number}"))
        assert traps.disk.failed_calls == ["fdatasync nodes.jsonl"]
        tree.Close()

        reported = self.recovery_after(
            traps, Mode("none")
        )  # a page that the failed sync tore is reported when it is fixed
        assert reported == () or (
            sync == "tears" and reported == ("nodes.jsonl did not fit the log and was repaired from it",)
        )
        assert KeywordTree(FOLDER).recovery == ()

    def test_a_failed_sync_is_reported_once(self, traps: Traps) -> None:
        traps.fault(errno.EIO, 1, "fdatasync")
        traps.fails(step("a", "doubtful"))
        traps.world.do(Step("b", "open"))

        assert "a sync had failed" in traps.world.trees["b"].recovery[0]
        assert self.recovery_after(traps, Mode("none")) == ()

    @pytest.mark.parametrize("keep_history", [True, False])
    def test_a_compaction_keeps_no_file_open_that_has_no_name(self, traps: Traps, keep_history: bool) -> None:
        traps.world.trees["a"].CompactStorage(keep_history)

        assert traps.disk.nameless_count() == 0


class TestTakingTurns:
    """While one tree is in the middle of a commit, whatever another does waits for it."""

    ACTIONS: ClassVar[dict[str, list[Step]]] = {
        "write": [step("b", "of b")],
        "refresh": [Step("b", "refresh")],
        "close": [Step("b", "close")],
        "open": [Step("c", "open")],
    }

    @pytest.mark.parametrize("action", ACTIONS)
    @pytest.mark.parametrize("short", [None, 200])
    @pytest.mark.parametrize("at", [WRITE, SYNC, "pwrite nodes.jsonl"])
    def test_leaves_both_operations_whole(self, traps: Traps, action: str, short: int | None, at: str) -> None:
        world = traps.world
        world.run([Step("b", "open"), step("b", "earlier"), Step("a", "refresh")])
        tree = world.trees["b"]

        def other() -> None:
            for one in self.ACTIONS[action]:
                if one.kind == "open":
                    world.trees["c"] = world.tree()
                elif one.kind == "close":
                    tree.Close()
                elif one.kind == "refresh":
                    tree.Refresh()
                else:
                    world.write(tree, one)

        traps.disk.owner = "a"
        if short:
            traps.fault(errno.EIO, 1, "pwrite", short=short)
        with traps.joined_by(other, at, 2 if short and at == WRITE else 1):
            world.write(world.trees["a"], step("a", "of a", description="x" * 900))

        wanted = {"first", "earlier", "of a"} | ({"of b"} if action == "write" else set())
        assert traps.names_after(Mode("none")) == wanted
        assert {node.id for node in world.trees["a"].GetChildren("root")} >= wanted - {"of b"}
        world.do(step("a", "the last"))
        assert traps.names_after(Mode("none")) == wanted | {"the last"}
