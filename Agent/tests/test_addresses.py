"""Tests that an address is an address everywhere: taken, or refused in one line; none becomes a folder."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from Agent import open_tree
from Agent.adapters.langgraph import KeywordTreeStore
from Agent.adapters.mem0 import AsyncMemory, Memory
from Agent.cli.command_line import main
from Agent.context_engine import ContextEngineService
from Agent.context_engine.fs.context_fs import ContextFS
from Agent.formats import export_file
from Agent.keyword_tree import InvalidInputError, KeywordTree, StoreError
from Agent.knowhub.hub import KnowHub
from Agent.memory.store import MemoryStore
from Agent.store.repair import repair

SECRET = "hunter-two"
ADDRESS = f"postgresql://ada:{SECRET}@127.0.0.1:1/agents?connect_timeout=2"
REFUSING: dict[str, Callable[[Any], object]] = {
    "KeywordTree": KeywordTree,
    "MemoryStore": MemoryStore,
    "ContextEngineService": ContextEngineService,
    "ContextFS": ContextFS,
    "repair, from": lambda place: repair(place, "new"),
    "repair, to": lambda place: repair("damaged", place),
    "export": lambda place: export_file(cast(KeywordTree, None), place),
}


def refuse(call: Callable[[], object]) -> None:
    """Let a call refuse an address in one line, and leave nothing."""
    with pytest.raises(ValueError, match="address") as caught:
        call()

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(Path.cwd().iterdir()) == []


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("place", ["", 5, b"memory"], ids=repr)
@pytest.mark.parametrize("call", [*REFUSING.values(), open_tree, KeywordTreeStore.from_folder, KnowHub])
def test_what_is_no_path_is_refused_by_its_value(call: Callable[[Any], object], place: Any) -> None:
    with pytest.raises(ValueError, match=rf"must be a path, and not empty: {re.escape(repr(place))}$"):
        call(place)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("place", [f"{ADDRESS}#u42", Path(f"{ADDRESS}#u42"), "postgres://db/x#y", "mysql://x", Path("mysql://x")])
@pytest.mark.parametrize("name", REFUSING)
def test_what_needs_a_folder_refuses_an_address_in_one_line(name: str, place: Any) -> None:
    refuse(lambda: REFUSING[name](place))


def test_an_embedding_tree_refuses_it_too() -> None:
    pytest.importorskip("numpy")
    from Agent.finding.embedder import HashingEmbedder
    from Agent.finding.tree import EmbeddingTree

    refuse(lambda: EmbeddingTree(f"{ADDRESS}#u42", HashingEmbedder()))


@pytest.mark.parametrize("copy", ["copy_in", "copy_out"])
def test_a_copy_between_two_servers_is_refused(copy: str) -> None:
    shared_tree = pytest.importorskip("Agent.shared_tree", reason="the extra [postgres] is not installed")
    with shared_tree.SharedLog(ADDRESS) as log:
        places = (f"{ADDRESS}#u42", "u42") if copy == "copy_in" else ("u42", f"{ADDRESS}#u42")
        refuse(lambda: getattr(log, copy)(*places))


@pytest.mark.parametrize("arguments", [["context", "--data", "…", "ls"], ["hub", "token", "--data", "…"]])
def test_a_program_that_needs_a_folder_refuses_it(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYWORD_TREE_LANG", "en")
    code = main([f"{ADDRESS}#u42" if word == "…" else word for word in arguments])
    said = capsys.readouterr()

    assert code not in (0, None)
    assert "folder" in said.err
    assert SECRET not in said.err + said.out
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("open_one", [KeywordTreeStore.from_folder, lambda place: AsyncMemory(path=place)])
def test_an_adapter_takes_one(open_one: Callable[[str], object], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "cache"))
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        open_one(f"{ADDRESS}#u42")

    assert SECRET not in str(caught.value)
    assert {path.name for path in Path.cwd().iterdir()} <= {"cache"}


@pytest.mark.parametrize(
    ("place", "said"), [(ADDRESS, "ends with #"), (f"redis://:{SECRET}@db/0", "'redis'; known: postgresql")]
)
@pytest.mark.parametrize("open_one", [open_tree, lambda place: Memory(path=place), KnowHub])
def test_one_without_a_tree_or_of_another_scheme_is_refused(
    open_one: Callable[[str], object], place: str, said: str
) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidInputError, match=said) as caught:
        open_one(place)

    assert SECRET not in str(caught.value)
    assert list(Path.cwd().iterdir()) == []


def test_a_tree_finds_by_words_where_no_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEYWORD_TREE_MODEL", raising=False)
    with open_tree(tmp_path / "tree", meaning=False) as tree:
        fruit = tree.Ensure("Food/Fruit")
        found, nothing = tree.Search("fresh fruits"), tree.Search("who won the cup?")

    assert (found.node, nothing.node) == (fruit, None)


@pytest.mark.parametrize("words", [["mcp"], ["show"]])
def test_programs_take_an_address_and_name_no_server(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("mcp")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = f"{ADDRESS}#u42"
    code = main(["--data", address, *words])
    said = capsys.readouterr()

    assert code not in (0, 2)
    assert "cannot be reached" in said.err
    assert SECRET not in said.err + said.out
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}
