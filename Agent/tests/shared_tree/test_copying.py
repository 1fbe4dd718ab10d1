"""Copies between folders and shared trees, and the command line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from Agent.cli.command_line import main
from Agent.cli.groups import POSTGRES_VARIABLE as VARIABLE
from Agent.keyword_tree import DuplicateIdError, InvalidInputError, KeywordTree, NotFoundError, StoreCorruptError
from Agent.shared_tree import SharedLog
from Agent.store.addresses import open_tree
from Agent.tests.shared.own_server import OwnServer
from Agent.tests.shared_tree.conftest import names

LOG = "change_log.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a tree that has been through something."""
    path = tmp_path / "folder"
    with KeywordTree(str(path)) as tree:
        tea = tree.CreateKeyword("茶", "root", ["tea"])
        for number in range(300):
            tree.CreateKeyword(f"{number}", tea.id, description="x" * 1500)
        tree.CreateInfo("long " * 300_000, keyword_ids=[tea.id])
        tree.DeleteInfo(tree.CreateInfo("gone").id)
    return path


class TestCopying:
    def test_there_and_back_is_the_same_byte_for_byte(self, folder: Path, log: SharedLog, tmp_path: Path) -> None:
        last = log.copy_in(folder, "u42")

        assert log.copy_out("u42", tmp_path / "back") == last == log.last_operation("u42")
        assert (tmp_path / "back" / LOG).read_bytes() == (folder / LOG).read_bytes()

    def test_a_copy_can_be_written_verified_and_undone(self, folder: Path, log: SharedLog) -> None:
        log.copy_in(folder, "u42")

        with KeywordTree("unused", store=log.tree("u42")) as tree:
            assert tree.Verify() == []
            gone = next(change for change in tree.History() if change.op == "delete_info")
            tree.Undo(gone.operation_id)
            assert [info.content for info in tree.ListInfos()][-1] == "gone"
            assert tree.Verify() == []

    @pytest.mark.parametrize("keep_history", [True, False])
    def test_a_compacted_tree_becomes_a_folder_that_opens(
        self, folder: Path, log: SharedLog, tmp_path: Path, keep_history: bool
    ) -> None:
        log.copy_in(folder, "u42")
        with KeywordTree("unused", store=log.tree("u42")) as tree:
            tree.CompactStorage(keep_history)
            tree.CreateKeyword("later", "root")
            drawn = str(tree).partition(" ")[2].partition(" ")[2]

        log.copy_out("u42", tmp_path / "back")

        with KeywordTree(str(tmp_path / "back")) as tree:
            assert tree.Verify() == []
            assert tree.recovery == ()
            assert str(tree).partition(" ")[2].partition(" ")[2] == drawn
            tree.CreateKeyword("and on", "root")

    def test_a_compacted_folder_becomes_a_tree(self, folder: Path, log: SharedLog) -> None:
        with KeywordTree(str(folder)) as tree:
            tree.CompactStorage(keep_history=False)
            tree.CreateKeyword("later", "root")

        log.copy_in(folder, "u42")

        with KeywordTree("unused", store=log.tree("u42")) as tree:
            assert tree.Verify() == []
            assert tree.Search("later").node is not None

    def test_into_a_name_that_is_taken_is_refused(self, folder: Path, log: SharedLog) -> None:
        KeywordTree("unused", store=log.tree("u42")).Close()

        with pytest.raises(DuplicateIdError):
            log.copy_in(folder, "u42")
        assert log.last_operation("u42") == 1

    def test_a_folder_without_a_log_is_refused_and_stays_as_it_is(self, log: SharedLog, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="there is no"):
            log.copy_in(tmp_path, "u42")

        assert list(tmp_path.iterdir()) == []
        assert log.trees() == []

    def test_a_damaged_folder_is_refused(self, folder: Path, log: SharedLog) -> None:
        raw = (folder / LOG).read_bytes()
        (folder / LOG).write_bytes(raw.replace(b'"name":"7"', b'"name":"8"', 1))

        with pytest.raises(StoreCorruptError):
            log.copy_in(folder, "u42")
        assert log.trees() == []

    def test_a_torn_end_is_left_out_as_opening_does(self, folder: Path, log: SharedLog) -> None:
        with (folder / LOG).open("ab") as file:
            file.write(b'{"crc": "12345678", "seq": 9')

        log.copy_in(folder, "u42")

        assert KeywordTree("unused", store=log.tree("u42")).Verify() == []

    def test_into_a_folder_that_is_not_empty_is_refused(self, folder: Path, log: SharedLog) -> None:
        log.copy_in(folder, "u42")
        before = (folder / LOG).read_bytes()

        with pytest.raises(InvalidInputError, match="not empty"):
            log.copy_out("u42", folder)
        assert (folder / LOG).read_bytes() == before

    def test_of_an_unknown_tree_is_refused_and_makes_nothing(self, log: SharedLog, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError):
            log.copy_out("missing", tmp_path / "back")

        assert not (tmp_path / "back").exists()


class TestProgram:
    @pytest.fixture(autouse=True)
    def _server(self, log: SharedLog, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(VARIABLE, database)

    def test_does_all_that_its_help_tells(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        back = str(tmp_path / "back")
        commands = (
            ["setup"],
            ["copy", str(folder), "u42"],
            ["list"],
            ["keep"],
            ["keep", "u42"],
            ["copy", "--out", "u42", back],
            ["remove", "u42"],
            ["list"],
        )

        assert [main(["shared", *command]) for command in commands] == [0] * len(commands)

        said = capsys.readouterr().out.splitlines()
        assert said[0] == "the tables are there"
        assert said[1].startswith("copied up to operation 30")
        assert said[2].split()[0] == "u42"
        assert [line.split("  ") for line in said[3:5]] == [["u42", "state written"], ["u42", "not due"]]
        assert said[5] == said[1]
        assert said[6:] == ["removed u42"]

    def test_asks_on_a_terminal_before_it_removes(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert main(["shared", "copy", str(folder), "u42"]) == 0
        monkeypatch.setattr("sys.stdin", terminal := io.StringIO("n\ny\n"))
        monkeypatch.setattr(terminal, "isatty", lambda: True)

        assert [main(["shared", "remove", "u42"]) for _ in range(2)] == [2, 0]

    def test_ends_with_a_code_and_a_sentence(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert main(["shared", "remove", "missing"]) == 1
        assert main(["shared", "copy", str(tmp_path), "u42"]) == 2
        assert main(["shared", "--dsn", "host=127.0.0.1 port=1 password=Geheimnis", "--patience", "0.2", "list"]) == 3

        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 3
        assert "Geheimnis" not in said.err


def test_one_line_takes_a_folder_to_a_server(
    server: OwnServer, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with KeywordTree(str(tmp_path / "folder")) as tree:
        tree.CreateKeyword("茶", "root")
    host = f"kt:{server.password}@127.0.0.1:{server.port}"
    address = f"postgresql://{host}/{database.partition('dbname=')[2]}#u42"

    assert main(["shared", "copy", str(tmp_path / "folder"), address]) == 0  # the tables are not there
    with open_tree(address) as tree:
        assert names(tree) == ["茶"]
    assert main(["shared", "copy", str(tmp_path / "folder"), address]) == 2
    assert server.password not in capsys.readouterr().err
