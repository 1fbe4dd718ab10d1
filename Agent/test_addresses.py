"""Tests that an address is an address everywhere: taken, or refused in one line; none becomes a folder."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from Agent.adapters.mem0 import Memory
from Agent.addresses import open_tree
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.knowhub.hub import KnowHub
from Agent.memory.store import MemoryStore

SECRET = "hunter-two"
ADDRESS = f"postgresql://ada:{SECRET}@127.0.0.1:1/agents?connect_timeout=2"
REFUSING: dict[str, Callable[[Any], object]] = {
    "KeywordTree": KeywordTree,
    "MemoryStore": MemoryStore,
}


@pytest.mark.parametrize("place", [f"{ADDRESS}#u42", Path(f"{ADDRESS}#u42"), "postgres://db/x#y"], ids=type)
@pytest.mark.parametrize("name", REFUSING)
def test_what_needs_a_folder_refuses_an_address_in_one_line(
    name: str, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="address") as caught:
        REFUSING[name](place)

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_embedding_tree_refuses_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    from Agent.embeddings.embedder import HashingEmbedder
    from Agent.embeddings.recall import EmbeddingTree

    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="address"):
        EmbeddingTree(f"{ADDRESS}#u42", HashingEmbedder())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("open_one", [open_tree, lambda place: Memory(path=place), KnowHub])
def test_one_without_a_tree_is_refused(open_one: Callable[[str], object], tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(InvalidInputError, match="ends with #") as caught:
        open_one(ADDRESS)

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("module", ["Agent.adapters.mcp", "Agent.command_line"])
def test_programs_take_an_address_and_name_no_server(module: str, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("mcp")
    arguments = [f"{ADDRESS}#u42"] if module.endswith("mcp") else ["--data", f"{ADDRESS}#u42", "show"]
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[1]), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = f"import sys; from {module}{'.__main__' * module.endswith('mcp')} import main; sys.exit(main(sys.argv[1:]))"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env=environment,
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert run.returncode not in (0, 2)
    assert "cannot be reached" in run.stderr
    assert SECRET not in run.stderr + run.stdout
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}
