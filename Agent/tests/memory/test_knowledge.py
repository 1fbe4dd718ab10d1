"""Tests of `knowledge`: keywords as pages."""

from pathlib import Path

import pytest

from Agent.finding.embedder import HashingEmbedder, Meaning
from Agent.keyword_tree import InvalidInputError, KeywordTree
from Agent.memory.store import MemoryStore
from Agent.memory.tree_graph import KnowledgePage, KnowledgeStore


@pytest.fixture
def store(tree: KeywordTree) -> KnowledgeStore:
    return KnowledgeStore(tree)


def write(tree: KeywordTree, title: str, summary: str, *infos: str) -> str:
    id = tree.CreateKeyword(title, "root", description=summary, llm_auto_place=False).id
    for info in infos:
        tree.CreateInfo(info, keyword_ids=[id])
    return id


class TestKnowledgeStore:
    def test_a_page_is_what_a_keyword_is(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        id = write(tree, "龙井 Longjing", "A green tea.", "It comes from Hangzhou.", "It is hot.")

        page = KnowledgePage(id, "龙井 Longjing", "A green tea.", ("It comes from Hangzhou.", "It is hot."))
        assert store.what_is("龙井 Longjing") == page
        assert store.what_is("root") is None

    def test_shows_the_first_of_many_infos(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        write(tree, "Tea", "", *(f"fact {number}" for number in range(60)))
        page = store.what_is("Tea")

        assert page is not None
        assert (len(page.infos), page.infos[0]) == (50, "fact 0")

    def test_says_what_something_is(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        tree.CreateKeyword("绿茶", aliases=["green tea"], description="A drink.")

        page = store.what_is("Green Tea")
        assert page is not None
        assert (page.title, page.summary) == ("绿茶", "A drink.")
        assert store.what_is("coffee") is None

    @pytest.mark.parametrize("keyword", ["longjing", "龙井", "green", "hangzhou"])
    def test_finds_by_title_summary_and_infos(self, tree: KeywordTree, store: KnowledgeStore, keyword: str) -> None:
        write(tree, "Oolong", "Half oxidised.", "From Fujian.")
        id = write(tree, "龙井 Longjing", "A green tea.", "It comes from Hangzhou and wants 80 °C.")

        assert [page.id for page in store.find_by_keywords([keyword])] == [id]
        assert store.find_by_keywords(["nothing"]) == []

    def test_a_title_comes_before_an_info(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        info = write(tree, "Fujian", "", "Known for oolong.")
        title = write(tree, "Oolong", "", "From Fujian.")

        assert [page.id for page in store.find_by_keywords(["oolong"])] == [title, info]
        assert [page.id for page in store.find_by_keywords(["oolong"], 1)] == [title]

    def test_memories_stand_in_the_pages_of_what_they_name(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path, meaning=Meaning(HashingEmbedder([("ada", "plinkar")]), 60.0)) as memories:
            memories.remember("Ada lives in Rome.", keywords=["Rome"])
            page = memories.knowledge.what_is("Rome")
            assert memories.knowledge.find_by_keywords(["plinkar"]) == [page]  # by meaning

            assert page is not None
            assert page.infos == ("Ada lives in Rome.",)

    def test_refuses_what_cannot_be_looked_for(self, store: KnowledgeStore) -> None:
        for keywords in ("tea", [5], None):
            with pytest.raises(InvalidInputError):
                store.find_by_keywords(keywords)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="limit"):
            store.find_by_keywords(["tea"], 0)
