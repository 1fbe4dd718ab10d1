"""Every bit, line, block and file of a store is spoilt while it is closed: found or repaired, never served."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from Agent.keyword_tree import KeywordTree, StoreCorruptError, StoreError
from Agent.tests.store.faults.worlds import (
    FOLDER,
    LOG,
    PROJECTIONS,
    Step,
    World,
    difference,
    flipped,
    rows_in,
    some,
    state_of,
    torn_tail,
)
from Agent.tests.support import inside
from Agent.tests.support.faulty_files import Door, FaultyDisk
from Agent.tests.support.log_format import reframed, whole_lines
from Agent.tests.support.oracle import Held


class Store(NamedTuple):
    """The files of a small store, and what it must hold."""

    files: dict[str, bytes]
    states: list[Held]
    """After each line of the log; a checkpoint changes nothing."""
    info_ids: list[str]
    older: list[dict[str, bytes]]
    """The files as they were after each operation."""

    @property
    def state(self) -> Held:
        return self.states[-1]

    def open(self, door: Door, changed: Mapping[str, bytes | None]) -> tuple[FaultyDisk, KeywordTree]:
        """Open the store with some files changed or, where None, removed."""
        files = {**self.files, **changed}
        door.disk = FaultyDisk()
        door.disk.put({name: content for name, content in files.items() if content is not None})
        return door.disk, KeywordTree(FOLDER)


def small_store(door: Door, monkeypatch: pytest.MonkeyPatch, *, closed: bool) -> Store:
    # Short contents are read from disk, as long ones are.
    inside.set_limits(monkeypatch, resident_bytes=200, chunk_bytes=1024 * 1024, padding=inside.padding(401))
    world = World(door)
    steps = [
        Step("a", "open"),
        Step("a", "keyword", ({"id": "k1", "name": "Python", "parent_id": "root", "aliases": ["蛇"]},)),
        Step("a", "info", ({"id": "i1", "content": "PEP 703 makes the GIL optional", "keyword_ids": ["k1"]},)),
        Step("a", "keywords", tuple({"id": f"b{n}", "name": f"b{n}", "parent_id": "k1"} for n in range(2))),
        Step("a", "info", ({"id": "i2", "content": "unlinked"},)),
        Step("a", "link", ({"info_id": "i2", "keyword_id": "b0", "relation": "SOURCE"},)),
        Step(
            "a", "link", ({"info_id": "i2", "keyword_id": "b0", "relation": "EXAMPLE"},)
        ),  # a checkpoint comes behind it
        Step("a", "keyword", ({"id": "k2", "name": "C#", "parent_id": "b1"},)),
        Step("a", "group", tuple({"id": f"g{n}", "name": f"g{n}", "parent_id": "root"} for n in range(3))),
    ]
    older: list[dict[str, bytes]] = []
    for step in steps:
        world.do(step)
        older.append(world.disk.read_all())
    if closed:
        world.do(Step("a", "close"))
    files = world.disk.read_all()
    states = [world.states[0]]
    waiting = world.states[1:]
    for line in whole_lines(files[LOG])[1:]:
        states.append(states[-1] if b'"op": "checkpoint"' in line else waiting.pop(0))
    assert not waiting
    return Store(files, states, world.info_ids(), older)


class Examiner:
    """Opens spoilt stores, says what became of each, and collects what may not be."""

    def __init__(self, door: Door, store: Store) -> None:
        self.door = door
        self.store = store
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def outcome(self, changed: Mapping[str, bytes | None], hole: int | None = None) -> str:
        """Return what became of a spoilt store.

        `found`: refused, nothing changed. `rebuilt`: reported, and all is there. `harmless`: all is there. `the hole`:
        the operations from line `hole` on are cut, kept and reported. `kept`: the log has lost its end, but what the
        projections still had of it is kept aside and reported. Anything else begins with `LOST`.
        """
        files = {**self.store.files, **changed}
        try:
            disk, tree = self.store.open(self.door, changed)
        except StoreError:
            after = self.door.disk.read_all()
            after.setdefault("memory/tree/lock", b"")
            before = {"memory/tree/lock": b""} | {name: held for name, held in files.items() if held is not None}
            return "found" if after == before else f"LOST: refused, but changed {after.keys() ^ before.keys()}"
        try:
            state = state_of(tree, self.store.info_ids)
        except StoreCorruptError:
            return "found when read"
        if state == self.store.state:
            self._check_kept(files, disk)
            return "rebuilt" if tree.recovery else "harmless"
        if hole is not None and state == self.store.states[hole - 2]:
            self._check_kept(files, disk)
            return "the hole" if tree.recovery else "LOST in silence"
        if state in self.store.states and tree.recovery and self._holds_lost_rows(disk.read_all()):
            return "kept"
        return f"LOST {difference(state, self.store.state)}, reported: {tree.recovery}"

    def _holds_lost_rows(self, after: dict[str, bytes]) -> bool:
        kept = [content for name, content in after.items() if "cut_tail" in name]
        for name in PROJECTIONS.values():
            lost = self.store.files[name].removeprefix(after[name])
            if lost and not any(lost in content for content in kept):
                return False
        return True

    def _check_kept(self, files: dict[str, bytes | None], disk: FaultyDisk) -> None:
        after = disk.read_all()
        tail = torn_tail({name: held for name, held in files.items() if held is not None})
        assert not tail or tail in [held for name, held in after.items() if "cut_tail" in name]
        for kind, rows in rows_in(whole_lines(after[LOG])).items():
            assert [json.loads(row) for row in after[PROJECTIONS[kind]].split(b"\n")[:-1]] == rows

    def examine(
        self, what: str, changed: Mapping[str, bytes | None], allowed: tuple[str, ...], hole: int | None = None
    ) -> None:
        became = self.outcome(changed, hole)
        self.counts[f"{what.split(',')[0]}: {became.split(' ')[0] if became[:4] == 'LOST' else became}"] += 1
        if became not in allowed:
            self.wrong.append(f"{what}: {became}")

    def finish(self, tally: Counter[str]) -> None:
        tally.update({f"corruption, {what}": count for what, count in self.counts.items()})
        assert self.wrong == []


def bits_of_newlines(log: bytes) -> list[int]:
    return [8 * match.start() + bit for match in re.finditer(b"\n", log.rstrip(b" \n")) for bit in range(8)]


class TestCorruption:
    @pytest.fixture
    def closed(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> Store:
        return small_store(door, monkeypatch, closed=True)

    @pytest.fixture
    def unclosed(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> Store:
        return small_store(door, monkeypatch, closed=False)

    def test_of_any_bit_of_a_closed_log_is_found(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        log = closed.files[LOG]
        last = log.rstrip(b"\n").rfind(b"\n") + 1  # the checkpoint that Close left: no fact is in it
        for bit in {*some(range(8 * len(log)), 300, "log"), *bits_of_newlines(log)}:
            allowed = ("found",) if bit // 8 < last - 1 else ("found", "rebuilt")
            examiner.examine(f"bit of a closed log, {bit}", {LOG: flipped(log, bit)}, allowed)
        examiner.finish(tally)

    def test_of_any_bit_of_a_projection_is_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        for name in PROJECTIONS.values():
            held = closed.files[name]
            for bit in some(range(8 * len(held)), 80, name):
                examiner.examine(f"bit of a projection, {name} {bit}", {name: flipped(held, bit)}, ("rebuilt",))
        examiner.finish(tally)

    def test_of_a_log_that_was_not_closed_has_one_hole_and_no_other(
        self, door: Door, tally: Counter[str], unclosed: Store
    ) -> None:
        examiner = Examiner(door, unclosed)
        log = unclosed.files[LOG]
        lines = whole_lines(log)
        vouched = max(json.loads(line)["durable"] for line in lines)
        assert vouched == len(lines) - 2, "the last two were one group"
        for bit in {*some(range(8 * len(log)), 400, "unclosed"), *bits_of_newlines(log)}:
            line = log[: bit // 8].count(b"\n") + 1
            if line > len(lines):  # in the padding stands nothing
                allowed: tuple[str, ...] = ("rebuilt", "harmless")
            else:
                allowed = ("found", "the hole") if line > vouched else ("found",)
            examiner.examine(f"bit of an unclosed log, {bit} in line {line}", {LOG: flipped(log, bit)}, allowed, line)
        examiner.finish(tally)

    def test_of_any_length_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        log = closed.files[LOG]
        last = log.rstrip(b"\n").rfind(b"\n") + 1
        borders = [match.end() + step for match in re.finditer(b"\n", log) for step in (-1, 0, 1)]
        for length in {*some(range(len(log)), 100, "length"), *borders} - {len(log), len(log) + 1}:
            allowed = ("found", "kept") if length < last else ("found", "rebuilt", "harmless")
            examiner.examine(f"log cut, to {length} bytes", {LOG: log[:length]}, allowed)
        for name in PROJECTIONS.values():
            for length in some(range(len(closed.files[name])), 30, name):
                examiner.examine(f"projection cut, {name} {length}", {name: closed.files[name][:length]}, ("rebuilt",))
        examiner.finish(tally)

    def test_of_whole_lines_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        for name in (LOG, *PROJECTIONS.values()):
            lines = closed.files[name].split(b"\n")[:-1]
            for index in range(len(lines)):
                for what, changed in (
                    ("deleted", lines[:index] + lines[index + 1 :]),
                    ("doubled", [*lines[: index + 1], *lines[index:]]),
                    ("blank", [*lines[:index], b" " * len(lines[index]), *lines[index + 1 :]]),
                    ("zeroed", [*lines[:index], b"\0" * len(lines[index]), *lines[index + 1 :]]),
                    ("emptied", [*lines[:index], b"", *lines[index + 1 :]]),
                ):
                    allowed: tuple[str, ...] = ("found",) if name == LOG else ("rebuilt",)
                    if name == LOG and index == len(lines) - 1:  # the checkpoint, in which no fact is
                        allowed = ("found", "rebuilt", "harmless")
                    elif name == LOG and index == len(lines) - 2 and what == "doubled":
                        allowed = ("found", "rebuilt")
                    examiner.examine(f"line {what}, {name} {index + 1}", {name: b"\n".join([*changed, b""])}, allowed)
                for other in range(index + 1, len(lines)):
                    swapped = lines.copy()
                    swapped[index], swapped[other] = swapped[other], swapped[index]
                    allowed = ("found",) if name == LOG else ("rebuilt",)
                    where = f"lines swapped, {name} {index + 1} {other + 1}"
                    examiner.examine(where, {name: b"\n".join([*swapped, b""])}, allowed)
        examiner.finish(tally)

    @pytest.mark.parametrize(
        ("pattern", "spoilt"),
        [
            (rb'"seq": 8', b'"seq": 9'),
            (rb'"seq": 8', b'"seq": 7'),
            (rb'"after": {"id"', b'"after": {"Id"'),
            (rb'"format": 1, ', b""),
        ],
    )
    def test_under_right_checksums_is_found(self, door: Door, closed: Store, pattern: bytes, spoilt: bytes) -> None:
        lines = closed.files[LOG].split(b"\n")[:-1]
        changed = [re.sub(pattern, spoilt, line, count=1) for line in lines]
        assert reframed(lines) == closed.files[LOG]
        assert changed != lines

        assert Examiner(door, closed).outcome({LOG: reframed(changed)}) == "found"

    @pytest.mark.parametrize(
        ("pattern", "spoilt"),
        [
            (rb'"nodes": ?{"length": ?\d', b'"nodes":{"length":7'),
            (rb'("links": ?{"length": ?\d+, ?"rows": ?)\d', rb"\g<1>7"),
            (rb'("infos": ?{"length": ?\d+, ?"rows": ?\d+, ?"crc": ?")[0-9a-f]{8}', rb"\g<1>01234567"),
            (rb'"log": ?{"length": ?\d', b'"log":{"length":7'),
            (rb'("log": ?{"length": ?\d+, ?"rows": ?\d+, ?"crc": ?")[0-9a-f]{8}', rb"\g<1>01234567"),
        ],
    )
    def test_of_a_checkpoint_under_a_right_checksum_costs_no_fact(
        self, tmp_path: Path, pattern: bytes, spoilt: bytes
    ) -> None:
        store = tmp_path / "store"
        for name in ("before", "behind"):
            with KeywordTree(str(store)) as tree:
                tree.CreateInfo(name, keyword_ids=[tree.CreateKeyword(name, "root").id])
        log = store / Path(LOG).name
        lines = log.read_bytes().split(b"\n")[:-1]
        changed = [re.sub(pattern, spoilt, line) for line in lines]
        assert sum(map(bytes.__ne__, lines, changed)) == 2
        log.write_bytes(reframed(changed))

        for _ in range(2):
            with KeywordTree(str(store)) as tree:
                assert [node.name for node in tree.GetChildren("root")][:2] == ["before", "behind"]
                tree.CreateKeyword("more", "root")
                assert tree.Verify() == []

    def test_of_blocks_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        for name in (LOG, *PROJECTIONS.values()):
            held = closed.files[name]
            last = held.rstrip(b"\n").rfind(b"\n")
            for size in (16, 64, 512, 4096):
                for start in some(range(0, len(held), size), 12, (name, size)):
                    for what, fill in (("zeros", b"\0"), ("ones", b"\xff"), ("blanks", b" "), ("newlines", b"\n")):
                        spoilt = held[:start] + (fill * size)[: len(held) - start] + held[start + size :]
                        if spoilt == held:
                            continue
                        in_log: tuple[str, ...] = ("found",) if start < last else ("found", "rebuilt", "harmless")
                        if start <= last < start + size - 1:  # the checkpoint that vouches is gone with the operation
                            in_log = ("found", "kept", "rebuilt") if start == last else ("found", "kept")
                        allowed = in_log if name == LOG else ("rebuilt",)
                        examiner.examine(f"block of {what}, {name} {start} {size}", {name: spoilt}, allowed)
        examiner.finish(tally)

    def test_of_a_file_that_is_an_older_copy_is_found_or_repaired(
        self, door: Door, tally: Counter[str], closed: Store
    ) -> None:
        examiner = Examiner(door, closed)
        for number, older in enumerate(closed.older):
            trimmed = {name: held.rstrip(b" \n") + b"\n" for name, held in older.items() if held.strip()}
            for name in (LOG, *PROJECTIONS.values()):
                for held in {older.get(name, b""), trimmed.get(name, b"")} - {closed.files[name]}:
                    allowed: tuple[str, ...] = ("found", "kept") if name == LOG else ("rebuilt",)
                    if name == LOG and len(whole_lines(held)) == len(closed.states) - 1:
                        allowed = ("found", "rebuilt", "harmless")  # all that is missing is the last checkpoint
                    examiner.examine(f"older copy, of {name} {number}", {name: held}, allowed)
            some_older = {name: older[name] for name in PROJECTIONS.values()}
            examiner.examine(f"older copies, of all projections {number}", some_older, ("rebuilt", "harmless"))
        examiner.finish(tally)

    def test_of_missing_files_is_found_or_repaired(self, door: Door, tally: Counter[str], closed: Store) -> None:
        examiner = Examiner(door, closed)
        names = (LOG, *PROJECTIONS.values())
        for chosen in range(1, 2 ** len(names)):
            missing = {name: None for bit, name in enumerate(names) if chosen >> bit & 1}
            if len(missing) < len(names):  # all files gone is a new store
                allowed = ("found",) if LOG in missing else ("rebuilt",)
                examiner.examine(f"missing, {list(missing)}", missing, allowed)
        examiner.finish(tally)

    @pytest.mark.parametrize("blank", [b"\n", b" ", b" \n\n"])
    def test_of_a_log_that_begins_with_a_blank_is_not_an_empty_log(
        self, door: Door, closed: Store, blank: bytes
    ) -> None:
        examiner = Examiner(door, closed)
        without = dict.fromkeys(PROJECTIONS.values())
        assert examiner.outcome({LOG: blank + closed.files[LOG], **without}) in ("found", "rebuilt", "harmless")
        assert examiner.outcome({LOG: blank + closed.files[LOG][len(blank) :], **without}) == "found"
