"""Tests of `knowledge`: keywords as pages."""

from pathlib import Path

import pytest

from Agent.keyword_tree import InvalidInputError, KeywordTree, NotFoundError
from Agent.memory.store import MemoryStore
from Agent.memory.tree_graph import KnowledgePage, KnowledgeStore


@pytest.fixture
def store(tree: KeywordTree) -> KnowledgeStore:
    return KnowledgeStore(tree)


TEA = KnowledgePage("", "龙井 Longjing", "A green tea.", "It comes from Hangzhou and wants 80 °C.")


class TestKnowledgeStore:
    def test_keeps_a_page_in_one_operation(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        id = store.add_page(TEA)

        assert store.get_page(id) == KnowledgePage(id, TEA.title, TEA.summary, TEA.body)
        assert tree.History()[0].op == "add_page"
        tree.Undo(tree.History()[0].operation_id)
        assert store.get_page(id) is None

    def test_writes_a_page_again(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        id = store.add_page(KnowledgePage("tea", "Tea", "", "old"))
        tree.CreateInfo("another user's", keyword_ids=[id])
        assert store.add_page(KnowledgePage("tea", "Green tea", "a drink", "new")) == "tea"

        page = store.get_page("tea")
        assert page == KnowledgePage("tea", "Green tea", "a drink", "new", ("another user's",))

    def test_read_and_written_back_stays_as_it_is(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        id = store.add_page(TEA)
        tree.CreateInfo("It is hot.", keyword_ids=[id])
        for _ in range(2):
            page = store.get_page(id)
            assert page is not None
            assert page == KnowledgePage(id, TEA.title, TEA.summary, TEA.body, ("It is hot.",))
            store.add_page(page)
        assert len(tree.ListInfos()) == 2

    def test_is_found_by_the_title_that_it_had(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        store.add_page(KnowledgePage("tea", "Tea", "", "green"))
        for title in ("Green tea", "tea", "Green tea"):
            store.add_page(KnowledgePage("tea", title, "", "green"))

        page = store.what_is("Tea")
        assert page is not None
        assert (page.id, page.title) == ("tea", "Green tea")
        assert store.what_is("green tea") == page
        assert tree.Verify() == []

    def test_knows_its_own_text_among_many(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        tree.CreateKeyword("Tea", id="tea", llm_auto_place=False)
        for number in range(60):
            tree.CreateInfo(f"fact {number}", keyword_ids=["tea"])
        for body in ("old", "new"):
            store.add_page(KnowledgePage("tea", "Tea", "", body))

        page = store.get_page("tea")
        assert page is not None
        assert (page.body, len(page.infos)) == ("new", 50)
        store.add_page(KnowledgePage("tea", "Tea"))  # a body that is emptied goes
        page = store.get_page("tea")
        assert page is not None
        assert page.body == ""
        assert len(tree.ListInfos(size=99)) == 60
        store.add_page(KnowledgePage("tea", "Tea", "", "again"))
        page = store.get_page("tea")
        assert page is not None
        assert page.body == "again"

    def test_keeps_its_text_over_a_merge(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        one = store.add_page(KnowledgePage("", "Tea", "", "green"))
        other = store.add_page(KnowledgePage("", "Thé", "", "vert"))
        tree.MergeKeywords(other, one)

        page = store.get_page(other)
        assert page == KnowledgePage(one, "Tea", "", "green", ("vert",))

    def test_says_what_something_is(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        tree.CreateKeyword("绿茶", aliases=["green tea"], description="A drink.")

        page = store.what_is("Green Tea")
        assert page is not None
        assert (page.title, page.summary) == ("绿茶", "A drink.")
        assert store.what_is("coffee") is None

    @pytest.mark.parametrize("keyword", ["longjing", "龙井", "green", "hangzhou"])
    def test_finds_by_title_summary_and_body(self, store: KnowledgeStore, keyword: str) -> None:
        store.add_page(KnowledgePage("", "Oolong", "Half oxidised.", "From Fujian."))
        id = store.add_page(TEA)

        assert [page.id for page in store.find_by_keywords([keyword])] == [id]
        assert store.find_by_keywords(["nothing"]) == []

    def test_a_title_comes_before_a_body(self, store: KnowledgeStore) -> None:
        body = store.add_page(KnowledgePage("", "Fujian", "", "Known for oolong."))
        title = store.add_page(KnowledgePage("", "Oolong", "", "From Fujian."))

        assert [page.id for page in store.find_by_keywords(["oolong"])] == [title, body]
        assert [page.id for page in store.find_by_keywords(["oolong"], 1)] == [title]

    def test_removes(self, tree: KeywordTree, store: KnowledgeStore) -> None:
        store.remove_page(store.add_page(TEA))

        assert store.what_is(TEA.title) is None
        assert tree.ListInfos() == []
        with pytest.raises(NotFoundError):
            store.remove_page("missing")

    def test_memories_stand_in_the_pages_of_what_they_name(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as memories:
            memories.remember("Ada lives in Rome.", keywords=["Rome"])
            page = memories.knowledge.what_is("Rome")

            assert page is not None
            assert (page.body, page.infos) == ("", ("Ada lives in Rome.",))

    def test_memories_outlive_the_pages_of_what_they_name(self, tmp_path: Path) -> None:
        with MemoryStore(tmp_path) as memories:
            id = memories.knowledge.add_page(TEA)
            ids = [
                memories.remember("Longjing is dear.", keywords=[TEA.title]),
                memories.remember("Longjing is green.", keywords=[TEA.title], pinned=True),
            ]
            memories.knowledge.remove_page(id)
            assert sorted(info.id for info in memories.tree.ListInfos()) == sorted(ids)
            assert [found.info.id for found in memories.recall("green")] == ids[1:]
            memories.tree.Undo(memories.tree.last_operation)
            page = memories.knowledge.get_page(id)
            assert page is not None
            assert (page.body, len(page.infos)) == (TEA.body, 2)

    def test_refuses_what_is_no_page(self, store: KnowledgeStore) -> None:
        for wrong in (KnowledgePage("", " "), KnowledgePage("", 5), KnowledgePage("", "x", body=None)):  # type: ignore[arg-type]
            with pytest.raises(InvalidInputError):
                store.add_page(wrong)
        for keywords in ("tea", [5], None):
            with pytest.raises(InvalidInputError):
                store.find_by_keywords(keywords)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="limit"):
            store.find_by_keywords(["tea"], 0)
        assert store.get_page("root") is None
