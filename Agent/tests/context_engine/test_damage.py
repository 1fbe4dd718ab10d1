"""Tests of what is lost or damaged in `.ctx`: the index may be, the journal says so, and a way leads out."""

import contextlib
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from Agent.context_engine import ContextEngineService, ProviderDownError, RequestContext
from Agent.context_engine.core.errors import StoreCorruptError
from Agent.context_engine.fs.journal import _SCAFFOLD
from Agent.context_engine.fs.uri import parse_uri
from Agent.tests.support.clocks import Clock
from Agent.tests.support.looking import inflated
from Agent.tests.support.plain_reader import open_engine

ADA = RequestContext("acme", "ada", "helper", "s1")
JAZZ = "ctx://acme/users/ada/memories/preferences/jazz"
SAID = [{"role": "user", "content": "I love jazz, and Miles Davis most."}]


def index_of(folder: Path) -> Path:
    return folder / ".ctx/index/acme/users=ada/index.db"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that every test copies."""
    folder = tmp_path_factory.mktemp("full")
    with ContextEngineService(folder) as engine:
        for number in range(40):
            engine.remember(ADA, f"Likes record {number}.", "preferences", f"record {number}")
        engine.remember(ADA, "Likes jazz.", "preferences", "jazz")
    return folder


@pytest.fixture
def folder(full: Path, tmp_path: Path) -> Path:
    """A store of 41 memories."""
    return Path(shutil.copytree(full, tmp_path / "store"))


def spoil(path: Path, first: int = 0) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    for start in range(first, len(data), 4096):
        data[start : start + 2000] = b"\xa5" * len(data[start : start + 2000])
    path.write_bytes(data)


def use(engine: ContextEngineService) -> None:
    """Remember, commit, search and forget."""
    uri = engine.remember(ADA, "Likes tea.", "preferences", "tea")
    assert engine.commit_session(ADA, SAID).status in ("committed", "archived")
    assert JAZZ in {block.uri for block in engine.search_memory(ADA, "jazz").blocks}
    assert uri in {block.uri for block in engine.search_memory(ADA, "tea").blocks}
    assert engine.forget(ADA, uri).uris == [uri]
    assert uri not in {block.uri for block in engine.search_memory(ADA, "tea").blocks}


class TestAnIndex:
    @pytest.mark.parametrize("first", [0, 4096])
    def test_that_is_damaged_is_made_again(self, folder: Path, first: int) -> None:
        spoil(index_of(folder), first)
        with ContextEngineService(folder) as engine:
            use(engine)
            assert engine.verify() == []

    def test_that_is_damaged_while_it_is_open_is_made_again(self, folder: Path) -> None:
        with ContextEngineService(folder) as engine:
            engine.search_memory(ADA, "jazz")
            index_of(folder).write_bytes(b"\xa5" * index_of(folder).stat().st_size)
            use(engine)
            assert engine.verify() == []

    @pytest.mark.parametrize("is_held", [True, False], ids=["another program holds", "no disk has room for"])
    def test_that_cannot_be_used_says_so_and_follows_later(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, is_held: bool
    ) -> None:
        monkeypatch.setattr("Agent.finding.index_file._WAIT_S", 0.1)
        index = folder / ".ctx/index"
        other = sqlite3.connect(index_of(folder), isolation_level=None)
        if is_held:
            other.execute("BEGIN EXCLUSIVE")
        else:
            shutil.rmtree(index)
            index.write_text("no folder", encoding="ascii")
        with open_engine(folder, clock=clock) as engine:
            done = engine.commit_session(ADA, [{"role": "user", "content": "I love tea."}])
            assert (done.status, done.write_results) == ("partial", [])
            assert "the index cannot be used" in done.stats["failures"][0]["error"]
            jazz = engine.get_node(ADA, JAZZ)
            jazz.abstract = "Likes Miles Davis."
            engine.fs.write_node(ADA, jazz)
            for ask in (engine.search_memory, engine.remember):
                with pytest.raises(ProviderDownError, match="the index cannot be used, the files are whole"):
                    ask(ADA, "Miles Davis")
            assert any(line.startswith("index:") for line in engine.verify())
            other.close()
            if not is_held:
                index.unlink()
            clock.now += 3_600
            engine.work()
            assert JAZZ in {block.uri for block in engine.search_memory(ADA, "Miles Davis").blocks}
            assert engine.fs.exists(ADA, JAZZ.replace("jazz", "tea"))
            assert engine.verify() == []


class TestAJournal:
    @pytest.fixture
    def damaged(self, folder: Path) -> Path:
        """A store whose journal is damaged where opening does not look."""
        path = folder / ".ctx/journal.db"
        with sqlite3.connect(path) as connection:  # a page that is met only where all images are read
            uri = "ctx://acme/users/ada/memories/preferences/large"
            rows = [(1, uri, b"x" * 40_000) for _ in range(9)]
            connection.executemany("INSERT INTO changes(sequence, uri, images) VALUES (?, ?, ?)", rows)
        connection.close()
        data = bytearray(path.read_bytes())
        for start in range(len(data) - 5 * 4096, len(data), 4096):
            data[start : start + 2_000] = b"\xa5" * 2_000
        path.write_bytes(data)
        return folder

    def test_that_is_damaged_is_set_aside_by_repair(self, damaged: Path) -> None:
        with ContextEngineService(damaged) as engine:
            assert engine.repair() == []
            assert engine.search_memory(ADA, "jazz").blocks[0].uri == JAZZ
            assert engine.remember(ADA, "Likes tea.", "preferences", "tea")
        with ContextEngineService(damaged) as engine:
            assert any("set aside" in report["text"] for report in engine.status()["reports"])
        assert list(damaged.glob(".ctx/aside/journal-*/journal.db"))

    def test_of_another_process_is_followed(self, folder: Path) -> None:
        with ContextEngineService(folder) as one, ContextEngineService(folder) as two:
            spoil(folder / ".ctx/journal.db")
            two.fs.repair_journal()
            one.remember(ADA, "Likes tea.", "preferences", "tea")
            assert two.fs.journal.node(JAZZ.replace("jazz", "tea")) is not None


@pytest.mark.parametrize(
    ("path_of", "table", "said"),
    [(lambda folder: folder / ".ctx/journal.db", "changes", "WAL"), (index_of, "unit", "index")],
    ids=["journal", "index"],
)
def test_forgetting_beside_a_reader_does_not_wait_and_says_what_stays(
    folder: Path, path_of: Callable[[Path], Path], table: str, said: str
) -> None:
    with ContextEngineService(folder) as engine:
        uri = engine.remember(ADA, "The secret word is xylographer.", "preferences", "word")
        reader = sqlite3.connect(path_of(folder), isolation_level=None)
        reader.execute("BEGIN")
        reader.execute(f"SELECT count(*) FROM {table}").fetchall()
        began = time.monotonic()
        assert said in engine.forget(ADA, uri).note
        assert time.monotonic() - began < 20
        assert any(line.startswith("forgotten:") for line in engine.verify())
        assert uri not in {block.uri for block in engine.search_memory(ADA, "xylographer").blocks}
        reader.close()
        engine.work()
        assert engine.verify() == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"xylographer" in path.read_bytes()]


def test_no_image_of_what_was_forgotten_stays_deflated(tmp_path: Path) -> None:
    with ContextEngineService(tmp_path) as engine:
        uri = engine.remember(ADA, "The secret word is xylographer. " * 20, "preferences", "word")
        other = engine.remember(ADA, "Likes tea. " * 20, "preferences", "tea")
        assert any(b"xylographer" in image for image in engine.fs.journal.images_of(uri, "content.md"))
        engine.forget(ADA, uri)
        assert engine.fs.journal.images_of(uri, "content.md") == set()
        assert engine.fs.journal.images_of(other, "content.md")
    data = {path.name: inflated(path.read_bytes(), _SCAFFOLD) for path in (tmp_path / ".ctx").rglob("*.db")}
    assert not any(b"xylographer" in each for each in data.values())
    assert all(b"Likes tea." in each for each in data.values())


def test_a_node_whose_deletion_was_cut_off_is_not_listed(tmp_path: Path) -> None:
    """The process ended when the files were gone, and their folder was not."""
    session = "ctx://acme/users/ada/sessions/s1"
    with ContextEngineService(tmp_path) as engine:
        archive = engine.commit_session(ADA, SAID).archive
        assert archive is not None
        engine.commit_session(ADA, [{"role": "user", "content": "And Bill Evans."}])
        engine.delete_node(ADA, archive.archive_uri)
    with contextlib.closing(sqlite3.connect(tmp_path / ".ctx/journal.db")) as journal, journal:
        journal.execute("UPDATE commits SET state = 'logged' WHERE sequence = (SELECT max(sequence) FROM commits)")
    Path(tmp_path, *parse_uri(archive.archive_uri).folders).mkdir()

    with ContextEngineService(tmp_path) as engine:
        assert archive.archive_uri not in [each.uri for each in engine.list_children(ADA, session)]
        assert engine.verify() == []


SPOILT: dict[str, tuple[str, Callable[[ContextEngineService], object]]] = {
    "changes": ("UPDATE changes SET images = x'780102'", lambda engine: engine.history(ADA, JAZZ)),
    "what changes inflate to": (
        f"UPDATE changes SET images = x'{zlib.compress(b'[').hex()}'",
        lambda engine: engine.history(ADA, JAZZ),
    ),
    "old plans": (
        "UPDATE commits SET plans = '[{' WHERE sequence = 3",
        lambda engine: engine.undo(ADA, engine.fs.log(ADA, 2000)[-3]["id"]),
    ),
}


class TestWhatSqliteDoesNotLookInto:
    @pytest.mark.parametrize("where", SPOILT)
    def test_is_reported_with_the_way_out_and_set_aside_by_repair(self, folder: Path, where: str) -> None:
        statement, use_it = SPOILT[where]
        with contextlib.closing(sqlite3.connect(folder / ".ctx/journal.db")) as journal, journal:
            assert journal.execute(statement).rowcount
        with ContextEngineService(folder) as engine:
            with pytest.raises(StoreCorruptError, match="`repair` sets it aside"):
                use_it(engine)
            engine.repair()
            assert any("set aside" in report["text"] for report in engine.status()["reports"])
            use(engine)
            assert engine.verify() == []


class TestAnArchiveThatAHandHasSpoilt:
    def test_is_reported_by_its_name_and_found_where_it_is_whole(self, tmp_path: Path) -> None:
        more = [{"role": "user", "content": text} for text in ("Bill Evans, too.", "And Chet Baker.")]
        with ContextEngineService(tmp_path) as engine:
            archive = engine.commit_session(ADA, [*SAID, more[0]]).archive
            engine.commit_session(ADA, more[1:])
            assert archive is not None
            place = Path(engine.fs.resolve_path(ADA, archive.archive_uri)) / "messages.jsonl"
            place.write_bytes(b"{" + place.read_bytes())
        shutil.rmtree(tmp_path / ".ctx/index")
        with ContextEngineService(tmp_path) as engine:
            for word in ("Evans", "Baker"):
                assert word in engine.search_memory(ADA, word).blocks[0].content_excerpt
            assert any(archive.archive_uri in each["text"] for each in engine.status()["reports"])
            assert any(f"{archive.archive_uri}, line 1" in each for each in engine.verify())
            again = engine.commit_session(ADA, [*SAID, *more])
            assert again.archive is not None  # what cannot be read is said again; what can be is not
            assert [each.text for each in again.archive.recent_messages] == [SAID[0]["content"]]
            assert engine.forget(ADA, archive.archive_uri).messages
            assert engine.verify() == []

    @pytest.mark.parametrize("line", range(3))
    def test_takes_only_the_message_of_a_spoilt_line_again(self, tmp_path: Path, line: int) -> None:
        said = [{"role": "user", "content": f"Likes record {number}."} for number in range(3)]
        with ContextEngineService(tmp_path) as engine:
            archive = engine.commit_session(ADA, said).archive
            assert archive is not None
            place = Path(engine.fs.resolve_path(ADA, archive.archive_uri)) / "messages.jsonl"
            lines = place.read_bytes().splitlines(keepends=True)
            lines[line] = b"{" + lines[line]
            place.write_bytes(b"".join(lines))
        with ContextEngineService(tmp_path) as engine:
            again = engine.commit_session(ADA, said).archive
            assert again is not None
            assert [each.text for each in again.recent_messages] == [said[line]["content"]]

    def test_without_its_first_line_keeps_the_time_of_those_after_it(self, tmp_path: Path) -> None:
        with ContextEngineService(tmp_path, clock=lambda: 1_790_000_000.0) as engine:
            archive = engine.commit_session(ADA, [*SAID, {"role": "user", "content": "Bill Evans, too."}]).archive
            assert archive is not None
            place = Path(engine.fs.resolve_path(ADA, archive.archive_uri)) / "messages.jsonl"
            place.write_bytes(place.read_bytes().partition(b"\n")[2])
            assert engine.adopt(ADA, archive.archive_uri)
            assert "2026-09-21" in engine.fs.read_level(ADA, archive.archive_uri, "L2")
            assert "2026-09-21" in engine.search_memory(ADA, "Evans").blocks[0].match_reason
