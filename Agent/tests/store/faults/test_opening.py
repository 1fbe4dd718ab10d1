"""Opening from a checkpoint: only where log and projections are, to the last bit, what was checkpointed."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter

import pytest

from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError
from Agent.tests.store.faults.sagas import SAGA, Saga
from Agent.tests.store.faults.worlds import FOLDER, LOG, PROJECTIONS, Step, state_of
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, FaultyDisk
from Agent.tests.support.log_format import reframed


class TestOpeningFromACheckpoint:
    """The rows come from the projections: only where all four files are, to the last bit, what was checkpointed."""

    def test_reads_no_line_of_the_log_before_it(self, door: Door) -> None:
        world = Saga(door)
        world.run([*SAGA[:7], Step("a", "close"), Step("b", "close")])
        with pytest.MonkeyPatch.context() as patch:
            read: list[bytes] = []
            inside.note_lines_read(patch, read.append)
            world.do(Step("a", "open"))

        assert {json.loads(raw)["op"] for raw in read} == {"checkpoint"}
        assert len(read) <= 2
        assert state_of(world.trees["a"], world.info_ids()) == world.states[-1]

    @pytest.mark.parametrize("is_compacted", [False, True])
    def test_serves_nothing_that_was_changed(self, door: Door, tally: Counter[str], is_compacted: bool) -> None:
        """Values of rows, in the log and in the projections, alone and in several at once."""
        world = Saga(door)
        world.run(
            [*SAGA[:7], *([Step("a", "compact")] if is_compacted else []), Step("a", "close"), Step("b", "close")]
        )
        files = world.disk.read_all()
        tries = 0
        for old, new in ((b"k3", b"k4"), (b"two", b"TWO"), (b"hidden", b"HIDDEN"), (b"memory", b"Memory"),
                         (b"PRIMARY", b"SOURCE_"), (b"false", b"true ")):  # fmt: skip
            for chosen in range(1, 16):
                changed = dict(files)
                for bit, name in enumerate((LOG, *PROJECTIONS.values())):
                    if chosen >> bit & 1:
                        changed[name] = files[name].replace(old, new)
                if changed == files:
                    continue
                tries += 1
                disk = FaultyDisk()
                disk.put(changed)
                world.disk = disk
                try:
                    tree = world.tree()
                except StoreCorruptError:
                    assert changed[LOG] != files[LOG]
                    assert {**disk.read_all(), "memory/tree/lock": b""} == {**changed, "memory/tree/lock": b""}
                    continue
                assert changed[LOG] == files[LOG]
                assert state_of(tree, world.info_ids()) == world.states[-1]
                assert tree.recovery != ()
        tally["corruption, values changed before a checkpoint"] += tries
        assert tries > 30

    def test_of_a_newer_format_is_refused(self, door: Door) -> None:
        world = Saga(door)
        world.run([*SAGA[:3], Step("a", "close")])
        files = world.disk.read_all()
        for compacted in (False, True):
            if compacted:
                world.run([Step("a", "open"), Step("a", "compact"), Step("a", "close")])
                files = world.disk.read_all()
            lines = files[LOG].split(b"\n")[:-1]
            lines[0] = lines[0].replace(b'"format": 1', b'"format": 2')
            *lines, last = reframed(lines).split(b"\n")[:-1]
            crc = b"%08x" % zlib.crc32(b"\n".join([*lines, b""]))
            last = re.sub(rb'("log": ?{[^}]*"crc": ?")[0-9a-f]{8}', rb"\g<1>" + crc, last)
            door.disk = FaultyDisk()
            door.disk.put({**files, LOG: reframed([*lines, last])})
            with pytest.raises(StoreError, match="newer"):
                KeywordTree(FOLDER)
            for said in (b"null", b"[1]", b'{"log": 7}', b'{"log": {}}'):  # its checkpoints may be other ones
                door.disk = FaultyDisk()
                changed = re.sub(rb'"files": {.*?}}', b'"files": ' + said, last)
                door.disk.put({**files, LOG: reframed([*lines, changed])})
                with pytest.raises(StoreError, match="newer"):
                    KeywordTree(FOLDER)
