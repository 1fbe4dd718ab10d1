"""One contract for every backend of the main store: what holds in a folder holds in memory, and will hold elsewhere.

A backend supplies `ContextFS`, `RelationStore` and `OutboxStore` over one transaction. Nothing here knows a path.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine import AccessDeniedError, ContextNode, RequestContext, StoreError, VersionConflictError
from Agent.context_engine.fs.folders import Disk
from Agent.tests.support.clocks import Clock
from Agent.tests.support.plain_reader import open_engine
from Agent.tests.support.threads import in_threads

ADA = RequestContext("acme", "ada", "helper", "s1")
BOB = RequestContext("acme", "bob", "other", "s1")
TEAS = "ctx://acme/users/ada/memories/preferences"
TEA, MATE = f"{TEAS}/tea", f"{TEAS}/mate"


class Failing:
    """A disk of which one call fails, while a test says so."""

    failing = ""

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "failing"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return object.__getattribute__(self, name)


class FailingDisk(Failing, Disk):
    """That of a folder."""


class Backend:
    """A store, and what a test turns in it."""

    def __init__(self, folder: Path | None) -> None:
        self.clock = Clock()
        self.disk = FailingDisk()
        self.engine = open_engine(folder, clock=self.clock, disk=self.disk, index="worker")
        self.fs, self.outbox, self.relations = self.engine.fs, self.engine.outbox, self.engine.relations

    def write(self, uri: str = TEA, text: str = "- no sugar\n", **metadata: Any) -> None:
        """Write a node."""
        self.fs.write_node(ADA, ContextNode(uri, "", "memory", "preferences", "", "tea", "about", text, metadata))

    def texts(self) -> dict[str, str]:
        """Return the content of each node."""
        nodes = self.fs.list_children(ADA, TEAS, recursive=True)
        return {node.uri: self.fs.read_level(ADA, node.uri, "L2") for node in nodes if not node.is_dir}


@pytest.fixture(params=["folder", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Each backend, empty."""
    made = Backend(tmp_path / "store" if request.param == "folder" else None)
    yield made
    made.engine.close()


class TestAtomicity:
    def test_of_a_transaction_that_fails_nothing_is_there(self, backend: Backend) -> None:
        def write_and_fail() -> None:
            with backend.fs.transaction(ADA):
                backend.write()
                backend.write(MATE)
                raise RuntimeError("changed my mind")

        with pytest.raises(RuntimeError):
            write_and_fail()

        assert backend.texts() == {}
        assert backend.outbox.counts()["pending"] == 0

    def test_within_one_its_own_changes_are_seen_and_outside_none(self, backend: Backend) -> None:
        seen: list[bool] = []
        with backend.fs.transaction(ADA):
            backend.write()
            assert backend.fs.exists(ADA, TEA)
            other = threading.Thread(target=lambda: seen.append(backend.fs.exists(ADA, TEA)))
            other.start()
            other.join()

        assert seen == [False]
        assert backend.fs.exists(ADA, TEA)


class TestConflict:
    def test_a_stale_version_is_refused_with_the_present_one(self, backend: Backend) -> None:
        backend.write()
        backend.write(text="- two\n", version=1)
        with pytest.raises(VersionConflictError) as raised:
            backend.write(text="- three\n", version=1)

        assert (raised.value.seen, raised.value.current) == (1, 2)
        with pytest.raises(VersionConflictError):
            backend.write(text="- new\n", version=0)  # which says that nothing is there
        assert backend.texts() == {TEA: "- two\n"}

    def test_what_changed_under_a_transaction_ends_it(self, backend: Backend) -> None:
        backend.write()

        def write_while_another_does() -> None:
            with backend.fs.transaction(ADA):
                backend.fs.write_level(ADA, TEA, "L2", "- mine\n")
                other = threading.Thread(target=backend.write, args=(TEA, "- theirs\n"))
                other.start()
                other.join()

        with pytest.raises(VersionConflictError):
            write_while_another_does()

        assert backend.texts() == {TEA: "- theirs\n"}

    def test_many_writers_count_right(self, backend: Backend) -> None:
        backend.write(text="0")

        def add_one(tx: object) -> None:
            count = int(backend.fs.read_level(ADA, TEA, "L2"))
            backend.fs.write_level(ADA, TEA, "L2", str(count + 1))

        def count(times: int) -> None:
            for _ in range(times):
                backend.fs.run(ADA, "count", add_one)

        in_threads(count, [5] * 4)

        assert backend.texts() == {TEA: "20"}


class TestRedo:
    @pytest.mark.parametrize("call", ["create_file", "write", "place", "make_folder"])
    def test_a_commit_that_happened_follows_when_the_disk_works_again(self, backend: Backend, call: str) -> None:
        backend.write()
        backend.disk.failing = call
        with pytest.raises(StoreError) as raised:
            backend.write(MATE)
        assert raised.value.is_committed
        backend.disk.failing = ""
        backend.fs.write_level(ADA, TEA, "L2", "- later\n")

        assert backend.texts() == {TEA: "- later\n", MATE: "- no sugar\n"}


class TestClaims:
    def test_an_event_is_one_workers_until_its_lease_ends(self, backend: Backend) -> None:
        backend.write()
        claimed = backend.outbox.claim_batch("one", 10)
        assert [each.uri for each in claimed] == [TEA]
        assert backend.outbox.claim_batch("two", 10) == []
        backend.clock.now += 61
        assert len(backend.outbox.claim_batch("two", 10)) == 1
        assert not backend.outbox.renew(claimed[0].event_id, "one")
        backend.outbox.mark_done(claimed[0].event_id, "one")  # who has lost it marks nothing

        assert backend.outbox.counts()["leased"] == 1

    def test_come_in_the_order_of_commits_and_not_before(self, backend: Backend) -> None:
        backend.disk.failing = "place"
        with pytest.raises(StoreError):
            backend.write(MATE)
        assert backend.outbox.counts()["held"] > 0
        assert backend.outbox.claim_batch("one", 10) == []
        backend.disk.failing = ""
        backend.write(TEA)
        sequences = [each.sequence for each in backend.outbox.claim_batch("one", 10)]

        assert sequences == sorted(sequences)
        assert len(set(sequences)) == 2


class TestOrder:
    def test_sequences_rise_and_are_never_used_again(self, backend: Backend) -> None:
        seen = []
        for text in ("1", "2", "3"):
            backend.write(text=text)
            seen.append(backend.fs.read_metadata(ADA, TEA)["sequence"])
        backend.fs.delete_node(ADA, TEA)
        backend.write(text="4")
        meta = backend.fs.read_metadata(ADA, TEA)

        assert [*seen, meta["sequence"]] == sorted({*seen, meta["sequence"]})
        assert meta["sequence"] == seen[-1] + 2
        assert meta["version"] == 4  # versions go on, too

    @pytest.mark.usefixtures("own_words")
    def test_a_fence_keeps_an_older_state_from_the_index(self, backend: Backend) -> None:
        backend.write(text="- first\n")
        events = backend.outbox.claim_batch("slow", 10)
        backend.write(text="- second\n")
        backend.engine.work()
        for event in events:  # the slow worker comes last, and looks again
            backend.engine.worker.handle_event(event, ADA)

        assert [block.content_excerpt for block in backend.engine.search_memory(ADA, "second").blocks] == ["second"]
        assert backend.engine.search_memory(ADA, "first").blocks == []


class TestIsolation:
    @pytest.mark.parametrize(
        "ask",
        [
            lambda fs: fs.read_node(BOB, TEA),
            lambda fs: fs.exists(BOB, TEA),
            lambda fs: fs.stat_node(BOB, TEA),
            lambda fs: fs.resolve_path(BOB, TEA),
            lambda fs: fs.read_metadata(BOB, "ctx://acme/users/ada/nothing/there"),
            lambda fs: fs.write_level(BOB, TEA, "L2", "x"),
            lambda fs: fs.list_children(BOB, TEAS),
            lambda fs: fs.history(BOB, TEA),
            lambda fs: fs.delete_node(BOB, TEA),
            lambda fs: fs.move_node(BOB, TEA, "ctx://acme/users/bob/x"),
            lambda fs: fs.undo(BOB, fs.log(ADA)[0]["id"]),
        ],
    )
    def test_nobody_else_reads_or_changes_it(self, backend: Backend, ask: Callable[[Any], object]) -> None:
        backend.write()
        with pytest.raises(AccessDeniedError):
            ask(backend.fs)

        assert backend.fs.log(BOB) == []
        assert backend.texts() == {TEA: "- no sugar\n"}


class TestTakingBack:
    def test_every_change_can_be_undone(self, backend: Backend) -> None:
        backend.write()
        changes: list[Callable[[], object]] = [
            lambda: backend.write(text="- two\n"),
            lambda: backend.write(MATE, version=0),
            lambda: backend.fs.delete_node(ADA, TEA),
            lambda: backend.fs.move_node(ADA, TEA, f"{TEAS}/cola"),
        ]
        for change in changes:
            before = backend.texts()
            change()
            backend.fs.undo(ADA, backend.fs.log(ADA)[0]["id"])
            assert backend.texts() == before


def test_a_store_that_nobody_keeps_goes_with_its_engine() -> None:
    with open_engine(None) as engine:
        engine.commit_session(ADA, [{"role": "user", "content": "I love jazz."}])
        root = engine.fs.root
        assert root.is_dir()
        if (pid := os.fork()) == 0:
            engine.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert root.is_dir()

    assert not root.exists()
