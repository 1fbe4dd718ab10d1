"""Tests of the repair: what is saved, what is listed as lost, and that the damaged folder stays as it is."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent import keyword_tree as kt
from Agent.keyword_tree import ConflictError, InvalidInputError, KeywordTree, RelationType, StoreCorruptError
from Agent.store.repair import RepairReport, repair
from Agent.tests.support.log_format import KINDS, is_whole, operation_line

SEEDS = 2000 if os.environ.get("KEYWORD_TREE_STORM") == "1" else 24
LOG = "change_log.jsonl"
PROJECTIONS = ("nodes.jsonl", "infos.jsonl", "links.jsonl")

Records = dict[str, dict[Any, tuple[object, ...]]]


# == The test's own tools =================================================================================


def fill(folder: Path) -> None:
    """Make a small store whose ids are known: nine operations, then a checkpoint."""
    with KeywordTree(str(folder)) as tree:
        tree.BatchCreateKeywords([{"name": "编程", "id": "code", "parent_id": "root", "aliases": ["programming"]}])
        tree.BatchCreateKeywords(
            [{"name": f"language {n}", "id": f"l{n}", "parent_id": "code", "metadata": {"n": n}} for n in range(3)]
        )
        tree.BatchCreateKeywords([{"name": "library", "id": "lib", "parent_id": "l0"}])
        tree.BatchCreateInfos([{"content": "a fact", "id": "i0", "keyword_ids": ["l0", "l1"]}])
        tree.BatchCreateInfos([{"content": "long " * 2000, "id": "i1", "keyword_ids": ["lib"]}])
        tree.LinkInfo("i0", "lib", RelationType.EXAMPLE)
        tree.BatchCreateKeywords([{"name": "cooking", "id": "cook", "parent_id": "root"}])
        tree.BatchCreateInfos([{"content": "salt", "id": "i2", "keyword_ids": ["cook"]}])
        tree.LinkInfo("i0", "lib", RelationType.SOURCE)


OPERATIONS = 10  # with the one that makes the store; the checkpoint is the eleventh line
BROUGHT: dict[int, set[str]] = {
    2: {"code"}, 3: {"l0", "l1", "l2"}, 4: {"lib"}, 5: {"i0"}, 6: {"i1"}, 8: {"cook"}, 9: {"i2"},
}  # fmt: skip
"""The ids that the operations bring."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tree"
    fill(folder)
    return folder


@pytest.fixture(scope="module")
def wanted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Give all that the store holds."""
    return records(Path(shutil.copytree(model, tmp_path_factory.mktemp("copy") / "tree")))


@pytest.fixture
def damaged(model: Path, tmp_path: Path) -> Path:
    """Give a copy that may be damaged."""
    return Path(shutil.copytree(model, tmp_path / "damaged"))


@pytest.fixture
def alone(damaged: Path) -> Path:
    """Give a copy of the log that may be damaged: nothing else has what it loses."""
    for name in PROJECTIONS:
        (damaged / name).unlink()
    return damaged


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def records(folder: Path) -> Records:
    """Return all that a tree holds, but for what a repair may change: the root's stamps."""
    found: Records = {"nodes": {}, "infos": {}, "links": {}}
    with KeywordTree(str(folder)) as tree:
        assert tree.recovery == ()
        waiting = ["root"]
        while waiting:
            for node in tree.GetChildren(waiting.pop()):
                waiting.append(node.id)
                found["nodes"][node.id] = (
                    node.name, node.parent_id, node.aliases, node.metadata, node.created_at, node.ordinal, node.version,
                )  # fmt: skip
        for id in ["root", *found["nodes"]]:
            for info in tree.GetInfosOfKeyword(id):
                found["infos"][info.id] = (info.content, info.source, info.created_at)
        for id in found["infos"]:
            for node, relation in tree.GetKeywordsOfInfo(id):
                found["links"][id, node.id] = (relation,)
        assert tree.Verify() == []
        tree.CreateKeyword("and it goes on", "root")
    return found


def lines_of(folder: Path, name: str = LOG) -> list[bytes]:
    return [line for line in (folder / name).read_bytes().split(b"\n") if line.strip()]


def write_lines(folder: Path, lines: list[bytes], name: str = LOG) -> None:
    (folder / name).write_bytes(b"".join(line + b"\n" for line in lines))


def ruin(line: bytes) -> bytes:
    """Write over the time of an operation, which nothing else holds."""
    at = line.index(b'"timestamp": ') + len(b'"timestamp": ')
    return line[:at] + b"888" + line[at + 3 :]


def spoil(folder: Path, seq: int) -> None:
    """Ruin the line of an operation, in what it brings as well."""
    lines = lines_of(folder)
    at = lines[seq - 1].rindex(b'"created_by":"') + len(b'"created_by":"')
    lines[seq - 1] = ruin(lines[seq - 1][:at] + b"X" + lines[seq - 1][at + 1 :])
    write_lines(folder, lines)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return each file's bytes and time of change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def repaired(damaged: Path, new: Path) -> RepairReport:
    """Repair, and see that the damaged folder is as before and what was promised is there."""
    before = contents(damaged)
    report = repair(damaged, new)
    assert contents(damaged) == before
    assert {path.name for path in damaged.parent.iterdir()} <= {"damaged", "new"}
    assert new.stat().st_mode & 0o777 == 0o700
    for path in new.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    assert "\n" not in repr(report)
    for loss in report.losses:
        assert str(loss) in str(report)
        if loss.line:
            data = (damaged / loss.file).read_bytes()
            assert data[: loss.offset].count(b"\n") + 1 == loss.line
            assert loss.offset + loss.length <= len(data)
    return report


def lost_numbers(report: RepairReport) -> set[int]:
    return set(itertools.chain(*(range(loss.first_seq, loss.last_seq + 1) for loss in report.losses))) - {0}


# == Nothing is damaged ===================================================================================


class TestHealthyStore:
    def test_is_copied_without_a_loss(self, damaged: Path, new: Path) -> None:
        report = repaired(damaged, new)

        assert report.is_complete
        assert report.losses == ()
        assert (report.operations, report.keywords, report.infos, report.links) == (OPERATIONS, 6, 3, 5)
        assert repr(report) == "<RepairReport keywords=6, infos=3, links=5, losses=0>"
        assert str(report).endswith("\nNothing is lost.")
        assert records(new) == records(damaged)

    def test_keeps_its_operations_word_for_word(self, damaged: Path, new: Path) -> None:
        repaired(damaged, new)
        before, after = ([json.loads(line) for line in lines_of(folder)] for folder in (damaged, new))
        kept = [operation for operation in after if operation["op"] != "checkpoint"]

        assert [operation["seq"] for operation in after] == list(range(1, len(after) + 1))
        for old, copy in zip(before, kept, strict=False):
            assert {**old, "crc": "", "prev": "", "seq": 0, "durable": 0} == {
                **copy, "crc": "", "prev": "", "seq": 0, "durable": 0,
            }  # fmt: skip
        assert len(kept) == OPERATIONS

    def test_that_was_killed_is_copied_without_a_loss(self, tmp_path: Path, new: Path) -> None:
        folder = tmp_path / "damaged"
        child = os.fork()
        if child == 0:
            tree = KeywordTree(str(folder))
            tree.CreateKeyword("a", "root")
            os._exit(0)
        os.waitpid(child, 0)
        assert lines_of(folder)[-1] != b""
        assert (folder / LOG).read_bytes().endswith(b" \n")
        report = repaired(folder, new)

        assert report.is_complete
        assert [name for name, *_ in records(new)["nodes"].values()] == ["a"]


# == Damaged lines ========================================================================================


class TestDamagedLine:
    @pytest.mark.parametrize("seq", range(2, OPERATIONS + 1))
    def test_is_listed_and_takes_nothing_with_it(self, alone: Path, new: Path, wanted: Records, seq: int) -> None:
        spoil(alone, seq)
        with pytest.raises(StoreCorruptError):
            KeywordTree(str(alone))
        report = repaired(alone, new)
        found, lines = records(new), lines_of(alone)

        loss = next(loss for loss in report.losses if loss.line)
        assert (loss.file, loss.line, loss.first_seq, loss.last_seq) == (LOG, seq, seq, seq)
        assert loss.offset == sum(len(line) + 1 for line in lines[: seq - 1])
        assert loss.length == len(lines[seq - 1])
        assert json.loads(lines[seq - 1])["op"] in loss.detail
        assert {json.loads(lines[seq - 1])["operation_id"], *BROUGHT.get(seq, ())} <= set(loss.ids)
        assert (report.operations, report.is_complete) == (OPERATIONS - 1, False)
        assert lost_numbers(report) == {seq}
        lost = BROUGHT.get(seq, set())
        for kind in ("nodes", "infos"):
            assert {id: found[kind][id] for id in wanted[kind].keys() - lost} == {
                id: row for id, row in wanted[kind].items() if id not in lost
            }

    def test_is_found_after_a_damaged_newline(self, damaged: Path, new: Path) -> None:
        data = (damaged / LOG).read_bytes()
        for at in [index for index, byte in enumerate(data) if byte == 10][1:4]:
            data = data[:at] + b"\x0b" + data[at + 1 :]
        (damaged / LOG).write_bytes(data)
        report = repaired(damaged, new)

        assert report.is_complete
        assert report.operations == OPERATIONS

    def test_that_was_deleted_is_listed(self, damaged: Path, new: Path) -> None:
        lines = lines_of(damaged)
        write_lines(damaged, lines[:3] + lines[5:])
        report = repaired(damaged, new)

        missing = next(loss for loss in report.losses if loss.first_seq == 4)
        assert (missing.line, missing.length, missing.last_seq) == (0, 0, 5)
        assert "operations 4 to 5" in str(missing)

    def test_that_stands_twice_or_elsewhere_loses_nothing(self, damaged: Path, new: Path, wanted: Records) -> None:
        lines = lines_of(damaged)
        write_lines(damaged, [*lines[:3], lines[4], lines[3], lines[2], *lines[5:]])
        report = repaired(damaged, new)

        assert report.is_complete
        assert records(new) == wanted


class TestFirstLine:
    def test_that_is_damaged_makes_a_new_root(self, damaged: Path, new: Path) -> None:
        spoil(damaged, 1)
        report = repaired(damaged, new)

        assert lost_numbers(report) == {1}
        assert records(new)["nodes"].keys() == {"code", "l0", "l1", "l2", "lib", "cook"}


class TestCutLog:
    @pytest.mark.parametrize("seed", range(10))
    def test_at_any_length_keeps_all_lines_before(self, damaged: Path, new: Path, seed: int) -> None:
        data = (damaged / LOG).read_bytes()
        first = data.index(b"\n") + 1
        length = random.Random(seed).randrange(first, len(data))
        (damaged / LOG).write_bytes(data[:length])
        whole = data[:length].count(b"\n")
        report = repaired(damaged, new)

        assert report.operations == min(whole, OPERATIONS)
        torn = [loss for loss in report.losses if "after the last operation" in loss.detail]
        assert len(torn) == (data[length - 1] != 10)
        if torn:
            assert torn[0].offset + torn[0].length == len(data[:length].rstrip())
            assert torn[0].first_seq == whole + 1

    @pytest.mark.parametrize("left", [None, b"", b"\0" * 4096, b" " * 100 + b"\n"])
    def test_to_nothing_is_refused(self, alone: Path, new: Path, left: bytes | None) -> None:
        (alone / LOG).unlink()
        if left is not None:
            (alone / LOG).write_bytes(left)

        with pytest.raises(InvalidInputError, match=r"change_log.jsonl"):
            repair(alone, new)
        assert not new.exists()

    def test_of_which_opening_had_kept_the_end_lists_that(self, damaged: Path, new: Path) -> None:
        write_lines(damaged, lines_of(damaged)[:4])
        with KeywordTree(str(damaged)) as tree:
            assert tree.recovery
        report = repaired(damaged, new)

        assert {loss.file.partition("-5")[0] for loss in report.losses} == {f"cut_tail-{kind}" for kind in KINDS}
        assert not report.is_complete


class TestProjections:
    @pytest.mark.parametrize("seq", [*range(2, OPERATIONS + 1), None])
    def test_give_what_the_log_has_lost(self, damaged: Path, new: Path, wanted: Records, seq: int | None) -> None:
        if seq is None:
            (damaged / LOG).unlink()
        else:
            spoil(damaged, seq)
        report = repaired(damaged, new)

        taken = {id for loss in report.losses if loss.file in PROJECTIONS for id in loss.ids}
        assert taken >= (BROUGHT.get(seq, set()) if seq else {*wanted["nodes"], *wanted["infos"]})
        assert records(new) == wanted

    def test_of_an_older_copy_bring_no_link_back(self, tmp_path: Path, new: Path) -> None:
        folder = tmp_path / "damaged"
        with KeywordTree(str(folder)) as tree:
            ids = [tree.CreateKeyword(name, "root").id for name in "abc"]
            info = tree.CreateInfo("fact", "", ids[:2])
            older = (folder / "links.jsonl").read_bytes()
            tree.UnlinkInfo(info.id, ids[0])
            tree.LinkInfo(info.id, ids[1], RelationType.RELATED)
        (folder / "links.jsonl").write_bytes(older)
        spoil(folder, 4)
        repaired(folder, new)

        with KeywordTree(str(new)) as tree:
            assert tree.GetKeywordsOfInfo(info.id) == [(tree.GetKeyword(ids[1]), RelationType.RELATED)]


# == Places ===============================================================================================


class TestPlaces:
    def test_of_a_lost_parent_is_kept_under_its_id(self, alone: Path, new: Path) -> None:
        spoil(alone, 2)
        report = repaired(alone, new)
        found = records(new)

        assert found["nodes"]["code"][:2] == ("(lost) code", "root")
        assert [found["nodes"][f"l{n}"][1] for n in range(3)] == ["code"] * 3
        assert ("code",) in [loss.ids for loss in report.losses]
        with KeywordTree(str(new)) as tree:
            node = tree.GetKeyword("code")
            assert node is not None
            assert "could not be saved" in node.description
            assert node.metadata == {"repair": "lost"}

    def test_of_a_lost_info_are_given_up(self, alone: Path, new: Path) -> None:
        spoil(alone, 5)
        report = repaired(alone, new)
        found = records(new)

        assert "i0" not in found["infos"]
        assert ("i0", "lib") in [loss.ids for loss in report.losses]
        assert found["links"].keys() == {("i1", "lib"), ("i2", "cook")}

    def forge(self, folder: Path, rows: Callable[[], list[dict[str, Any]]]) -> None:
        """Append an operation that the library itself would refuse, with a right checksum."""
        last = json.loads(lines_of(folder)[-1])
        with open(folder / LOG, "ab") as log:
            log.write(operation_line(last, "move_keyword", rows()))

    def row_of(self, folder: Path, of: str, **changes: Any) -> dict[str, Any]:
        rows = [json.loads(line) for line in lines_of(folder, "nodes.jsonl")]
        row = next(row for row in rows if row["id"] == of)
        return {**row, "version": row["version"] + 1, **changes}

    def test_in_a_circle_are_found_again_under_the_root(self, damaged: Path, new: Path) -> None:
        self.forge(damaged, lambda: [self.row_of(damaged, "code", parent_id="lib")])
        report = repaired(damaged, new)
        found = records(new)

        assert [loss.ids for loss in report.losses] == [("code",)]
        assert found["nodes"]["code"][1] == "root"
        assert len(found["nodes"]) == 6

    def test_under_a_deleted_keyword_move_to_the_root(self, damaged: Path, new: Path) -> None:
        leaf = self.row_of(damaged, "lib", id="leaf", parent_id="lib", ordinal=90)
        self.forge(damaged, lambda: [leaf, self.row_of(damaged, "l0", deleted=True)])
        report = repaired(damaged, new)
        found = records(new)

        # What hangs under "lib" has moved with it, and is not listed.
        assert [loss.ids for loss in report.losses] == [("lib",), ("i0", "l0")]
        assert found["nodes"]["lib"][1] == "root"
        assert "l0" not in found["nodes"]
        assert ("i0", "l0") not in found["links"]

    @pytest.mark.parametrize(
        "odd",
        [
            {"id": "odd", "name": 7},
            {"id": "odd", "aliases": [7]},
            {"id": "odd", "parent_id": None},
            {"id": "odd", "unknown": 1},
            {"id": "root", "parent_id": "cook"},
            {"id": "root", "parent_id": None, "deleted": True},
        ],
    )
    def test_of_a_row_without_the_shape_of_its_kind_is_listed(
        self, damaged: Path, new: Path, odd: dict[str, Any]
    ) -> None:
        self.forge(damaged, lambda: [self.row_of(damaged, "cook", **odd)])
        report = repaired(damaged, new)

        assert [loss.ids[-1] for loss in report.losses] == [odd["id"]]
        assert "shape" in report.losses[0].detail
        assert records(new)["nodes"].keys() == {"code", "l0", "l1", "l2", "lib", "cook"}


# == Anything =============================================================================================


class TestAnyDamage:
    """Whatever happens to the files: a store comes out that opens, and all that is lost is listed."""

    @pytest.mark.parametrize("seed", range(SEEDS))
    def test_leaves_a_store_that_opens(self, damaged: Path, new: Path, wanted: Records, seed: int) -> None:
        draw = random.Random(seed)
        names = [LOG, *draw.sample(PROJECTIONS, draw.randint(0, 3))]
        for name in names:
            data = bytearray((damaged / name).read_bytes())
            way = draw.randrange(6)
            at, length = draw.randrange(len(data)), draw.choice((1, 16, 512, 4096))
            if way == 0:
                data[at] ^= 1 << draw.randrange(8)
            elif way == 1:
                del data[at:]
            elif way == 2:
                del data[at : at + length]
            elif way == 3:
                data[at : at + length] = bytes(min(length, len(data) - at))
            elif way == 4:
                data[at : at + length] = draw.randbytes(min(length, len(data) - at))
            else:
                data[at:at] = data[: draw.randrange(len(data))]
            (damaged / name).write_bytes(data)
        try:
            report = repaired(damaged, new)
        except InvalidInputError:
            assert not new.exists()
            assert not any(map(is_whole, lines_of(damaged)))
            return
        found = records(new)
        for kind in ("nodes", "infos"):
            for id in wanted[kind].keys() - found[kind].keys():
                assert report.losses, f"{id} is gone, and nothing is said to be lost"
        if report.is_complete:
            assert found == wanted
        reported = set(itertools.chain(*(loss.ids for loss in report.losses)))
        for kind in ("nodes", "infos"):
            for id, row in found[kind].items():
                assert id in reported or row == wanted[kind][id], f"{id} is not what it was, and no report says so"

    def test_of_a_large_store_is_listed_in_ranges(self, tmp_path: Path, new: Path) -> None:
        folder = tmp_path / "damaged"
        with KeywordTree(str(folder)) as tree:
            for n in range(300):
                tree.BatchCreateKeywords([{"name": f"k{n}", "id": f"k{n}", "parent_id": "root"}])
        lines = lines_of(folder)
        write_lines(folder, [*lines[:100], b"x" * 5000, *lines[200:]])
        report = repaired(folder, new)

        assert [(loss.line, loss.first_seq, loss.last_seq, loss.length) for loss in report.losses][:1] == [
            (101, 101, 200, 5000)
        ]
        assert set(report.losses[1].ids) == {f"k{n}" for n in range(99, 199)}
        assert len(records(new)["nodes"]) == 300


# == What is refused ======================================================================================


class TestRefused:
    def refuse(self, damaged: Path | str, new: Path | str, words: str) -> None:
        with pytest.raises(InvalidInputError, match=words) as caught:
            repair(damaged, new)
        assert isinstance(caught.value, kt.KeywordTreeError)

    @pytest.mark.parametrize(
        ("damaged_folder", "new_folder", "words"),
        [
            ("damaged", "full", "no empty"),
            ("damaged", "link", "no empty"),
            ("damaged", "damaged/new", "within"),
            ("nothing", "new", "holds no keyword tree"),
            ("full", "new", "holds no keyword tree"),
        ],
    )
    def test_are_folders_that_do_not_fit(
        self, damaged: Path, tmp_path: Path, damaged_folder: str, new_folder: str, words: str
    ) -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("something else")
        (tmp_path / "link").symlink_to(damaged)
        before = contents(tmp_path)
        self.refuse(tmp_path / damaged_folder, tmp_path / new_folder, words)

        assert contents(tmp_path) == before

    @pytest.mark.parametrize(
        "content",
        [b"", b"\n", b'{"level": "info", "message": "started"}\n' * 9, b"\x89PNG\r\n\x1a\n\0\0", b"\xff" * 999],
    )
    def test_is_a_folder_with_foreign_files_of_these_names(self, tmp_path: Path, new: Path, content: bytes) -> None:
        folder = tmp_path / "damaged"
        folder.mkdir()
        for name in (LOG, *PROJECTIONS):
            (folder / name).write_bytes(content)
        before = contents(folder)
        self.refuse(folder, new, "could be read")

        assert contents(folder) == before
        assert not new.exists()
        assert list(tmp_path.iterdir()) == [folder]

    def test_is_a_newer_format(self, damaged: Path, new: Path) -> None:
        first = json.loads(lines_of(damaged)[0])
        line = operation_line(None, "create_store", [first["after"]], '"format": 99, ')
        write_lines(damaged, [line[:-1], *lines_of(damaged)[1:]])
        self.refuse(damaged, new, "newer format")

        assert not new.exists()


# == Stores that were compacted, merged, kept =============================================================


def live_on(folder: Path, *, keep_history: bool, snapshots: bool = False) -> None:
    """Change a store in every way that leaves something for a repair to mind, and compact it."""
    with KeywordTree(str(folder)) as tree:
        tree.Confirm("how to begin", "l0")
        tree.MergeKeywords("l1", "l0")
        tree.DeleteKeyword("cook")
        if snapshots:
            tree.Snapshot()
            tree.Snapshot(copy=True)
        tree.CompactStorage(keep_history)
        tree.BatchCreateKeywords([{"name": "later", "id": "later", "parent_id": "l2"}])
        tree.UnlinkInfo("i1", "lib")


def reported(folder: Path) -> list[str]:
    """Return the ids of all operations of the history."""
    with KeywordTree(str(folder)) as tree:
        assert tree.Verify() == []
        return [change.operation_id for change in tree.History(limit=1000)]


class TestCompactedStore:
    @pytest.fixture(params=[True, False], ids=["with its history", "without"])
    def compacted(self, request: pytest.FixtureRequest, damaged: Path) -> Path:
        live_on(damaged, keep_history=request.param)
        return damaged

    @pytest.fixture
    def compacted_wanted(self, compacted: Path, tmp_path: Path) -> tuple[Records, list[str]]:
        copy = Path(shutil.copytree(compacted, tmp_path / "new"))
        found = reported(copy), records(copy)
        shutil.rmtree(copy)
        return found[1], found[0]

    def test_is_copied_without_a_loss(
        self, compacted: Path, new: Path, compacted_wanted: tuple[Records, list[str]]
    ) -> None:
        report = repaired(compacted, new)

        assert report.losses == ()
        operations = reported(new)
        assert operations == compacted_wanted[1][: len(operations)]  # older logs stay in the damaged folder
        with KeywordTree(str(new)) as tree:
            merged, answer = tree.GetKeyword("l1"), tree.Search("how to begin", False)
            assert merged is not None
            assert answer.node is not None
            assert (merged.id, answer.node.id, answer.reason) == ("l0", "l0", "confirmed")
        assert records(new) == compacted_wanted[0]

    def test_goes_on_counting(self, compacted: Path, new: Path) -> None:
        before = [json.loads(line)["seq"] for line in lines_of(compacted)]
        repaired(compacted, new)
        after = [json.loads(line)["seq"] for line in lines_of(new)]

        assert before[0] == after[0] > OPERATIONS
        assert after == list(range(after[0], after[0] + len(after)))


class TestHistoryAndSnapshots:
    @pytest.fixture
    def kept(self, damaged: Path) -> Path:
        live_on(damaged, keep_history=True, snapshots=True)
        with KeywordTree(str(damaged)) as tree:
            tree.CompactStorage()
            tree.CreateKeyword("after the second", "root")
        return damaged

    @pytest.mark.parametrize("spoilt", [None, 0, 1, 2])  # of the lines that the compaction wrote
    def test_stay_in_the_damaged_folder_and_may_be_copied_into_the_new_one(
        self, kept: Path, new: Path, tmp_path: Path, spoilt: int | None
    ) -> None:
        copy = Path(shutil.copytree(kept, tmp_path / "new"))
        operations = reported(copy)
        with KeywordTree(str(copy)) as tree:
            states = []
            for snapshot in sorted(path.name for path in (copy / "snapshots").iterdir()):
                tree.Restore(snapshot)
                states.append((snapshot, sorted(child.name for child in tree.GetChildren("root"))))
        shutil.rmtree(copy)
        if spoilt is not None:
            lines = lines_of(kept)
            lines[spoilt] = ruin(lines[spoilt])
            write_lines(kept, lines)
        report = repaired(kept, new)

        assert report.is_complete
        assert not {"history", "snapshots"} & {path.name for path in new.iterdir()}

        for name in ("history", "snapshots"):
            shutil.copytree(kept / name, new / name, dirs_exist_ok=True)
        assert reported(new) == operations
        with KeywordTree(str(new)) as tree:
            for snapshot, names in states:
                tree.Restore(snapshot)
                assert sorted(child.name for child in tree.GetChildren("root")) == names
            with pytest.raises(ConflictError):  # found, in the oldest of the logs
                tree.Undo(operations[-2])
