"""Bad input and bad days: what a hand, a model, a disk or another process may do, and what must not come of it."""

import json
import os
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.context_engine import ContextEngineService, ContextNode, InvalidInputError, RequestContext, StoreError
from Agent.context_engine.core.entries import parse_entries
from Agent.tests.support.plain_reader import open_engine

ADA = RequestContext("acme", "ada", "helper", "s1")
BOB = RequestContext("acme", "bob", "other", "s1")
MEMORIES = "ctx://acme/users/ada/memories"
TEA = f"{MEMORIES}/preferences/tea"


def folder_of(engine: ContextEngineService, uri: str) -> Path:
    return Path(engine.fs.resolve_path(ADA, uri))


def test_an_extraction_that_a_disk_refuses_is_tried_again(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_engine(tmp_path, clock=clock) as engine:
        engine.commit_session(ADA, [{"role": "user", "content": "I love jazz."}], options={"background": True})
        with monkeypatch.context() as patch:
            patch.setattr(engine.fs.journal, "log", _Full())
            engine.work()
        assert engine.status()["outbox"]["dead"] == 0
        clock.now += 700
        engine.work()

        assert engine.fs.exists(ADA, f"{MEMORIES}/preferences/jazz")


class TestEditsByHand:
    def test_that_are_very_long_are_merged_into(self, engine: ContextEngineService) -> None:
        engine.remember(ADA, "likes tea", "preferences", "tea")
        with (folder_of(engine, TEA) / "content.md").open("a", encoding="utf-8") as file:
            for number in range(1_200):
                file.write(f"- note number {number} that a person wrote by hand, of some length, with words\n")
        engine.remember(ADA, "likes tea with milk", "preferences", "tea")

        under = [each.uri for each in engine.list_children(ADA, TEA)]
        texts = "".join(engine.get_node(ADA, uri).content for uri in [TEA, *under])
        assert len(under) > 2
        assert all(f"note number {number} that" in texts for number in range(1_200))
        assert "likes tea with milk" in engine.get_node(ADA, TEA).content
        engine.remember(ADA, "likes tea at night", "preferences", "tea")
        assert "likes tea at night" in engine.get_node(ADA, TEA).content

    def test_with_one_endless_line_are_merged_into(self, engine: ContextEngineService) -> None:
        engine.remember(ADA, "likes tea", "preferences", "tea")
        with (folder_of(engine, TEA) / "content.md").open("a", encoding="utf-8") as file:
            file.write(f"- {'word ' * 9_000}\n")
        engine.remember(ADA, "likes tea with milk", "preferences", "tea")

        content = engine.get_node(ADA, TEA).content
        assert "likes tea with milk" in content
        assert "likes tea <!--" in content
        assert "word " * 9_000 in content + " "

    def test_show_no_passage_that_says_something_else(self, tmp_path: Path) -> None:
        with open_engine(tmp_path) as engine:
            for text in ("plays the cello", "hates coriander", "speaks Finnish"):
                engine.remember(ADA, text, "preferences", "me")
            path = folder_of(engine, f"{MEMORIES}/preferences/me") / "content.md"
        head, _, rest = path.read_text(encoding="utf-8").partition("\n\n")
        path.write_text(f"{head}\n\n- has a red bicycle\n{rest}", encoding="utf-8")
        with open_engine(tmp_path) as engine:
            for text in ("plays the cello", "hates coriander", "speaks Finnish"):
                block = engine.search_memory(ADA, text.split()[-1]).blocks[0]
                assert block.content_excerpt == text
                assert text in block.abstract
            assert engine.search_memory(ADA, "bicycle").blocks[0].content_excerpt == "has a red bicycle"

    def test_with_many_blanks_are_read_at_once(self) -> None:
        line = "- a" + " " * 20_000 + "b <!--" + " " * 20_000 + "x"
        start = time.process_time()
        assert parse_entries(line)[0].is_entry
        assert time.process_time() - start < 1.0

    def test_that_delete_the_last_line_are_kept_aside_after_a_power_cut(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = open_engine(tmp_path)
        engine.remember(ADA, "likes tea", "preferences", "tea")
        engine.remember(ADA, "likes tea with milk", "preferences", "tea")
        path = folder_of(engine, TEA) / "content.md"
        kept = "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1])
        path.write_text(kept, encoding="utf-8")
        engine.fs.journal.close()
        monkeypatch.setattr("Agent.context_engine.fs.main_store.boot_id", lambda: "another start")
        with open_engine(tmp_path) as again:
            assert len(again.status()["reports"]) == 1
            assert [each.read_text(encoding="utf-8") for each in tmp_path.glob(".ctx/aside/*/content.md")] == [kept]
        engine.spaces.close()


class TestADiskThatRefuses:
    @pytest.mark.parametrize(
        ("refuse", "said"),
        [
            (lambda folder: (folder / "content.md.new").mkdir(), r"preferences/tea/content\.md\.new"),
            (lambda folder: (folder / "content.md.new").symlink_to("/dev/null"), r"preferences/tea/content\.md\.new"),
            pytest.param(
                lambda folder: folder.chmod(0o500),
                "may not be written",
                marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere"),
            ),
        ],
    )
    def test_one_folder_leaves_all_others_writable(
        self, tmp_path: Path, refuse: Callable[[Path], None], said: str
    ) -> None:
        with open_engine(tmp_path) as engine:
            engine.remember(ADA, "likes tea", "preferences", "tea")
            refuse(folder_of(engine, TEA))
            with pytest.raises(StoreError, match=said):
                engine.remember(ADA, "likes milk", "preferences", "tea")
            engine.remember(BOB, "likes cats", "preferences", "cats")

            assert engine.fs.exists(BOB, "ctx://acme/users/bob/memories/preferences/cats")

    def test_at_opening_leaves_a_healthy_journal_where_it_is(self, tmp_path: Path) -> None:
        with open_engine(tmp_path) as engine:
            engine.remember(ADA, "likes tea", "preferences", "tea")
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            code = 2
            try:
                open_engine(tmp_path)
            except StoreError:
                code = 0
            except sqlite3.Error:
                code = 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not list(tmp_path.glob(".ctx/aside/journal-*"))
        with open_engine(tmp_path) as engine:
            assert len(engine.history(ADA, TEA)) == 1

    def test_a_store_without_a_journal_extracts_what_waited(self, tmp_path: Path) -> None:
        with open_engine(tmp_path) as engine:
            engine.commit_session(ADA, [{"role": "user", "content": "I love jazz."}], options={"background": True})
        for path in (tmp_path / ".ctx").glob("journal.db*"):
            path.unlink()
        with open_engine(tmp_path) as engine:
            engine.work()
            assert engine.fs.exists(ADA, f"{MEMORIES}/preferences/jazz")


class TestStrangeFiles:
    def test_of_an_archive_stop_no_later_commit(self, engine: ContextEngineService) -> None:
        said = [{"role": "user", "content": "我喜欢龙井。"}]
        uri = engine.commit_session(ADA, said).stats["archives"][0]
        (folder_of(engine, uri) / ".overview.md").write_bytes("- 我喜欢龙井".encode("gbk"))

        assert engine.commit_session(ADA, said).status == "unchanged"
        result = engine.commit_session(ADA, [*said, {"role": "user", "content": "I love jazz."}])
        assert (result.status, result.stats["new"]) == ("committed", 1)

    def test_of_another_memory_stop_no_forgetting(self, engine: ContextEngineService) -> None:
        engine.commit_session(ADA, [{"role": "user", "content": "I love jazz. I love tea."}])
        (folder_of(engine, f"{MEMORIES}/preferences/jazz") / "messages.jsonl").symlink_to("/etc/passwd")
        engine.forget(ADA, TEA)

        assert not engine.fs.exists(ADA, TEA)

    def test_forgetting_finds_what_a_hand_has_written_and_nothing_has_adopted(self, tmp_path: Path) -> None:
        with open_engine(tmp_path) as engine:
            for name in ("zebrafish", "tea", "jazz"):
                engine.remember(ADA, f"I love {name}.", "preferences", name)
            gone = f"{MEMORIES}/preferences/zebrafish"
            edges = json.dumps([{"to_uri": gone, "relation_type": "mentions"}])
            (folder_of(engine, TEA) / ".relations.json").write_text(edges, encoding="utf-8")
            engine.forget(ADA, gone)

            assert engine.get_node(ADA, TEA).content
        assert [path for path in tmp_path.rglob("*") if path.is_file() and b"zebrafish" in path.read_bytes()] == []

    def test_that_a_folder_hides_are_a_store_error(
        self, engine: ContextEngineService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.commit_session(ADA, [{"role": "user", "content": "I love jazz. I love tea."}])
        opens = os.open

        def refuse(path: Any, *flags: Any, **named: Any) -> int:
            if path == "jazz":
                raise PermissionError(13, "Permission denied", path)
            return opens(path, *flags, **named)

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(StoreError, match="may not be opened"):
            engine.read_memory(ADA, f"{MEMORIES}/preferences/jazz")
        assert [block.uri for block in engine.search_memory(ADA, "tea", categories=["preferences"]).blocks] == [TEA]
        assert engine.search_memory(ADA, "jazz", categories=["preferences"]).blocks == []
        assert any("jazz" in line for line in engine.verify())

    @pytest.mark.parametrize("field", ["created_at", "version", "sequence"])
    def test_with_numbers_that_nothing_holds_are_opened(self, tmp_path: Path, field: str) -> None:
        with open_engine(tmp_path) as engine:
            engine.remember(ADA, "likes tea", "preferences", "tea")
            path = folder_of(engine, TEA) / ".meta.json"
            lines = path.read_text(encoding="utf-8").splitlines()
            lines = [f' "{field}": 1{"0" * 400},' if f'"{field}"' in line else line for line in lines]
        path.write_text("\n".join(lines), encoding="utf-8")
        for old in (tmp_path / ".ctx").glob("journal.db*"):
            old.unlink()
        with open_engine(tmp_path) as engine:
            engine.remember(ADA, "likes milk", "preferences", "milk")
            assert "likes tea" in engine.get_node(ADA, TEA).content

    @pytest.mark.parametrize("is_moved", [False, True])
    def test_of_what_is_forgotten_leave_no_name_behind(self, tmp_path: Path, is_moved: bool) -> None:
        with open_engine(tmp_path) as engine:
            uri = engine.remember(ADA, "I love zebrafish.", "preferences", "zebrafish")
            for name in ("zebrafish-two", "fish") if is_moved else ():
                engine.move_node(ADA, uri, uri := f"{MEMORIES}/preferences/{name}")
                engine.fs.prune(engine.fs.clock() + 1)
            engine.forget(ADA, uri if is_moved else f"{MEMORIES}/preferences")
        assert [str(path) for path in tmp_path.rglob("*zebra*")] == []
        assert [path for path in tmp_path.rglob("*") if path.is_file() and b"zebrafish" in path.read_bytes()] == []


class TestAnAgentOfSeveralUsers:
    def test_tells_nobody_of_anothers_sessions(self, engine: ContextEngineService) -> None:
        eve = RequestContext("acme", "eve", "helper", "s9")
        said = [{"role": "user", "content": "I love jazz."}]
        engine.commit_session(RequestContext("acme", "ada", "helper", "divorce-lawyer"), said, used_tools=["search"])
        uri = "ctx://acme/agents/helper/tools/search"
        for answer in (engine.get_node(eve, uri), engine.history(eve, uri), engine.fs.log(eve)):
            assert "divorce" not in repr(answer)
            assert "ada/" not in repr(answer)
        assert engine.get_node(ADA, uri).metadata["source_refs"]

        node = engine.get_node(eve, uri)
        node.abstract = "how searching goes"
        engine.write_node(eve, node)
        assert engine.get_node(ADA, uri).metadata["source_refs"]


class _Full:
    def __call__(self, *args: object) -> None:
        raise StoreError("the journal cannot be written or read: database or disk is full")


class TestStrangeArguments:
    @pytest.mark.parametrize(
        "message",
        [
            {"role": "user", "content": "hi", "at": 10**400},
            {"role": "user", "content": [{"type": ["x"], "text": "hi"}]},
            {"role": "user", "content": "hi", "at": float("1e308")},
        ],
        ids=str,
    )
    def test_of_messages_are_taken_or_refused_by_name(self, engine: ContextEngineService, message: Any) -> None:
        engine.commit_session(ADA, [message])
        assert engine.search_memory(ADA, "hi").blocks[0].content_excerpt == "hi"

    @pytest.mark.parametrize(
        "metadata", [{"aliases": 5}, {"confirmed": "text"}, {"source_refs": 5}, {"source_refs": ["x"]}], ids=str
    )
    def test_of_metadata_are_refused_by_name(self, engine: ContextEngineService, metadata: dict[str, Any]) -> None:
        engine.remember(ADA, "likes tea", "preferences", "tea")
        with pytest.raises(InvalidInputError, match=next(iter(metadata))):
            engine.fs.write_metadata(ADA, TEA, metadata)

    def test_of_names_with_commas_are_told_whole(self, engine: ContextEngineService) -> None:
        uri = f"{MEMORIES}/entities/a,b"
        engine.write_node(ADA, ContextNode(uri, "", "memory", "entities", "", "a and b"))
        assert engine.fs.log(ADA)[0]["uris"] == [uri]


class TestManyAtOnce:
    def test_an_index_and_a_forgetting_wait_for_nobody(self, tmp_path: Path) -> None:
        with open_engine(tmp_path) as engine:
            engine.commit_session(ADA, [{"role": "user", "content": "I love jazz. I love tea."}])
            with (folder_of(engine, TEA) / "content.md").open("a", encoding="utf-8") as file:
                file.write("- by hand\n")
            read, is_reading, may_go_on = engine.fs.read_image, threading.Event(), threading.Event()

            def slowly(uri: Any, **more: Any) -> Any:
                if uri.text == TEA and threading.current_thread() is indexing:
                    is_reading.set()
                    may_go_on.wait(30)
                return read(uri, **more)

            indexing = threading.Thread(target=lambda: engine.worker.reconcile(TEA), daemon=True)
            engine.fs.read_image = slowly  # type: ignore[method-assign, assignment]
            indexing.start()
            assert is_reading.wait(30)
            with engine.fs.locked():  # as `forget` has it, when it waits for the index
                may_go_on.set()
                indexing.join(10)
                assert not indexing.is_alive()

    def test_a_commit_reads_no_archive_that_was_read_before(
        self, engine: ContextEngineService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[tuple[str, ...]] = []
        read_folder = engine.fs.folders.read

        def note(names: tuple[str, ...], *files: Any) -> Any:
            read.append(names)
            return read_folder(names, *files)

        monkeypatch.setattr(engine.fs.folders, "read", note)
        counts = []
        for number in range(20):
            read.clear()
            engine.commit_session(ADA, [{"role": "user", "content": f"line {number}"}])
            counts.append(len(read))

        assert len(set(counts[2:])) == 1

    def test_a_hundred_changes_of_one_node_are_one_look(self, tmp_path: Path) -> None:
        with open_engine(tmp_path, index="worker") as engine:
            for number in range(100):
                engine.fs.write_node(ADA, ContextNode(TEA, "", "memory", "preferences", "", f"tea {number}"))
            assert engine.work().claimed < 5
            assert engine.status()["outbox"]["pending"] == 0
            assert engine.search_memory(ADA, "tea").blocks[0].abstract == "tea 99"

    def test_a_look_that_fails_comes_again_for_all_that_it_serves(self, tmp_path: Path) -> None:
        with open_engine(tmp_path, index="worker") as engine:
            for number in range(3):
                engine.fs.write_node(ADA, ContextNode(TEA, "", "memory", "preferences", "", f"tea {number}"))
            claimed = engine.outbox.claim_batch("one", 10)
            engine.outbox.mark_failed(claimed[0].event_id, "no", worker_id="one")

            assert engine.outbox.counts() == {"held": 0, "pending": 1, "leased": 0, "dead": 0}
