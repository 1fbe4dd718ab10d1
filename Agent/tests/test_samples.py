"""Stores, indexes and hub folders that version 0.2.0 wrote before the house was rebuilt still open."""

import tarfile
from pathlib import Path

import pytest

from Agent.context_engine import ContextEngineService, RequestContext
from Agent.keyword_tree import KeywordTree
from Agent.memory import MemoryStore

SAMPLE = Path(__file__).with_name("samples") / "stores_0_2.tar.gz"


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    with tarfile.open(SAMPLE) as archive:
        # Before 3.11.4 `extractall` takes no filter, and there is none.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(tmp_path)
    return tmp_path


class TestTree:
    def test_opens_with_its_history(self, stores: Path) -> None:
        with KeywordTree(str(stores / "tree")) as tree:
            found = tree.Search("programming/Go")
            names = [change.op for change in tree.History(limit=20)]
            problems = tree.Verify()

        assert found.node is not None
        assert found.node.description == "a language by Google"
        assert [info.content for info in found.infos] == ["Go has goroutines."]
        assert len(names) > 5
        assert not problems

    def test_restores_its_snapshot(self, stores: Path) -> None:
        with KeywordTree(str(stores / "tree")) as tree:
            [name] = [path.name for path in (stores / "tree/snapshots").iterdir()]
            tree.Restore(name)

            assert tree.FindByName("Zig") == []
            assert [node.name for node in tree.FindByName("Python")] == ["Python"]


@pytest.mark.parametrize("user", ["ada", "林悦"])
def test_a_memory_recalls_what_was_corrected(stores: Path, user: str) -> None:
    with MemoryStore(stores / "memories", user=user) as store:
        [home] = [memory for memory in store.recall("Who moved to Rome?") if "Rome" in memory.info.content]
        [work] = store.recall("青石数据", limit=1)
        versions = [version.content for version in store.history(home.info.id)]
        priya = store.tree.FindByName("Priya")[0]
        related = [found.entity.name for found in store.graph.get_related(priya.id)]

    assert work.info.content == "王芳在青石数据工作。"
    assert versions == ["I moved to Rome.", "I live in Paris."]
    assert related == ["Lighthouse"]


def test_an_engine_reads_and_finds_what_was_said(stores: Path) -> None:
    ada = RequestContext("acme", "ada", "helper", "monday")
    with ContextEngineService(stores / "engine") as engine:
        found = [block.content_excerpt for block in engine.search_memory(ada, "龙井要加糖吗?", top_k=3).blocks]
        profile = engine.read_memory(ada, "ctx://acme/users/ada/memories/profile").overview

    assert "My name is Ada. 我喜欢龙井,不加糖。" in found
    assert "name: Ada" in profile


def test_a_hub_keeps_its_entries_votes_and_tokens(stores: Path) -> None:
    pytest.importorskip("fastapi")
    from Agent.knowhub.hub import LOCAL, KnowHub

    with KnowHub(stores / "hub") as hub:
        [found] = hub.search(LOCAL, {"q": "selenium login"})["results"]
        entry = hub.get(LOCAL, found["id"])
        principals = [token["principal"] for token in hub.list_tokens(LOCAL)["results"]]

    assert entry["content"] == "Wait at random."
    assert entry["eval"]["helpful"] == 1
    assert principals == ["bob"]
