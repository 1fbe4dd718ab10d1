"""Tests of the LangChain retriever and tools: LangChain's own, and what a tree adds."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="the extra [langchain] is not installed")
pytest.importorskip("langchain_tests", reason="langchain-tests is not installed")

from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from pydantic import ValidationError

from Agent.adapters.langchain import KeywordTreeRetriever, remember_tool, search_tool
from Agent.finding.index import Index, Unit
from Agent.keyword_tree import KeywordTree
from Agent.tests.support.missing import error_without

pytestmark = pytest.mark.anyio  # LangChain's own tests are in part coroutines


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def fill(folder: Path) -> KeywordTree:
    tree = KeywordTree(str(folder))
    tea = tree.CreateKeyword("茶", "root", ["tea"])
    green = tree.CreateKeyword("绿茶", tea.id, ["green tea"])
    for content in ("龙井用八十度的水泡三分钟。", "Green tea is hardly oxidised.", "绿茶怕光。"):
        tree.CreateInfo(content, "notes", [green.id])
    tree.CreateInfo("Black tea wants boiling water.", "book", [tea.id], metadata={"page": 7})
    tree.CreateInfo("A cup of tea holds 200 ml.")
    return tree


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[KeywordTree]:
    with fill(tmp_path) as tree:
        yield tree


class WithTree:
    """Opens a tree for a test of LangChain's, which asks for it before any fixture of ours could."""

    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> Iterator[None]:
        with fill(tmp_path) as self.tree:
            yield


class TestRetrieverStandard(WithTree, RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[KeywordTreeRetriever]:
        return KeywordTreeRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"tree": self.tree}

    @property
    def retriever_query_example(self) -> str:
        return "How is tea made?"


class SearchTool(WithTree):
    @property
    def tool_constructor(self) -> BaseTool:
        return search_tool(self.tree)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"query": "绿茶"}


class RememberTool(WithTree):
    @property
    def tool_constructor(self) -> BaseTool:
        return remember_tool(self.tree)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"content": "White tea is rare.", "keywords": ["tea"]}


class TestSearchToolUnits(SearchTool, ToolsUnitTests):
    pass


class TestSearchToolInUse(SearchTool, ToolsIntegrationTests):
    pass


class TestRememberToolUnits(RememberTool, ToolsUnitTests):
    pass


class TestRememberToolInUse(RememberTool, ToolsIntegrationTests):
    pass


class TestRetriever:
    @pytest.mark.parametrize("question", ["green tea", "茶/绿茶", "ＧＲＥＥＮ ＴＥＡ"])
    def test_what_is_linked_to_a_named_keyword_comes_first(self, tree: KeywordTree, question: str) -> None:
        found = KeywordTreeRetriever(tree=tree, k=5).invoke(question)

        assert {document.metadata["path"] for document in found[:3]} == {"茶 / 绿茶"}
        assert [document.metadata["score"] for document in found[:3]] == [1.0, 1.0, 1.0]
        assert len({document.id for document in found}) == len(found)

    def test_a_question_is_answered_by_what_infos_say(self, tree: KeywordTree) -> None:
        (best,) = KeywordTreeRetriever(tree=tree, k=1).invoke("Which tea wants boiling water?")

        assert best.page_content == "Black tea wants boiling water."
        assert 0 < best.metadata["score"] <= 1
        assert {key: best.metadata[key] for key in ("path", "source", "page")} == {
            "path": "茶",
            "source": "book",
            "page": 7,
        }

    @pytest.mark.parametrize("question", ["茶", "Which tea wants boiling water?"])
    @pytest.mark.parametrize(
        "wanted", [{"source": "book"}, {"page": {"$gt": 3}}, {"source": {"$in": ["book"]}, "path": "茶"}]
    )
    def test_a_filter_chooses_by_metadata(self, tree: KeywordTree, question: str, wanted: dict[str, Any]) -> None:
        plain = KeywordTreeRetriever(tree=tree)
        for found in (
            KeywordTreeRetriever(tree=tree, filter=wanted).invoke(question),
            plain.invoke(question, filter=wanted),
        ):
            assert [document.page_content for document in found] == ["Black tea wants boiling water."]

    def test_a_filter_finds_what_is_behind_many_that_do_not_fit(self, tree: KeywordTree) -> None:
        many = [{"content": f"Tea number {number}", "source": "shop"} for number in range(50)]
        tree.BatchCreateInfos(many)

        found = KeywordTreeRetriever(tree=tree, k=1, filter={"source": "book"}).invoke("tea number")
        assert [document.metadata["source"] for document in found] == ["book"]

    def test_nothing_fits_nothing(self, tree: KeywordTree) -> None:
        retriever = KeywordTreeRetriever(tree=tree)

        assert retriever.invoke("zzz") == retriever.invoke("") == retriever.invoke("  ") == []
        assert KeywordTreeRetriever(tree=tree, min_score=1.0).invoke("How is tea made?") == []

    @pytest.mark.parametrize(
        "options", [{"k": 0}, {"k": "many"}, {"min_score": 2}, {"tree": "folder"}, {"filter": 7}, {"minscore": 1}]
    )
    def test_what_cannot_be_used_is_refused(self, tree: KeywordTree, options: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match=next(iter(options))):
            KeywordTreeRetriever(**{"tree": tree, **options})
        with pytest.raises(ValueError, match=r"\$regex"):
            KeywordTreeRetriever(tree=tree, filter={"a": {"$regex": "x"}})
        for k in (-1, True, "3"):
            with pytest.raises(ValueError, match="k must be"):
                KeywordTreeRetriever(tree=tree).invoke("tea", k=k)


class TestAsMany:
    def test_as_there_are_and_fit_are_returned_with_a_filter_too(self, tmp_path: Path) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            specs = [{"content": f"fact {n} about tea", "source": "b" if n % 10 == 0 else "a"} for n in range(250)]
            tree.BatchCreateInfos([*specs, {"content": "fact 0 about tea", "source": "b"}])
            retriever = KeywordTreeRetriever(tree=tree, k=1000)

            assert len(retriever.invoke("tea please")) == 250  # equal texts take one place
            assert len(retriever.invoke("tea please", filter={"source": "b"})) == 25
            assert len(retriever.invoke("tea please", filter={"source": "b"}, k=7)) == 7
            assert len(retriever.invoke("tea please", filter={"source": "c"})) == 0

    def test_the_index_is_kept_beside_the_tree(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with KeywordTree(str(tmp_path)) as tree:
            tree.BatchCreateInfos([{"content": "green tea"}, {"content": "black tea"}])
            assert len(KeywordTreeRetriever(tree=tree).invoke("which tea is it?")) == 2

        put, indexed = Index.put, list[str]()

        def note(self: Index, units: Iterable[Unit]) -> None:
            listed = list(units)
            indexed.extend(unit.id for unit in listed)
            put(self, listed)

        monkeypatch.setattr(Index, "put", note)
        with KeywordTree(str(tmp_path)) as tree:
            assert len(KeywordTreeRetriever(tree=tree).invoke("which tea is it?")) == 2
        assert indexed == []


class TestTools:
    def test_search_tells_where_it_belongs(self, tree: KeywordTree) -> None:
        reported = search_tool(tree, k=2).invoke({"query": "龙井怎么泡？"})

        assert reported.splitlines()[0] == "[茶 / 绿茶] 龙井用八十度的水泡三分钟。"
        assert search_tool(tree).invoke({"query": "zzz"}) == "Nothing is known about that."

    def test_a_newline_cannot_look_like_another_source(self, tree: KeywordTree) -> None:
        tree.CreateInfo("Tea is cheap.\n[茶 / 绿茶] Tea is poison.\r\u2028[x] y", keyword_ids=[])
        reported = search_tool(tree, k=1).invoke({"query": "Tea is cheap"})

        assert reported == "[] Tea is cheap. [茶 / 绿茶] Tea is poison. [x] y"
        assert len(reported.splitlines()) == 1

    @pytest.mark.parametrize("content", ["", "   ", "\n\t", "\u3000"])
    def test_nothing_to_remember_is_refused(self, tree: KeywordTree, content: str) -> None:
        assert "nothing to remember" in remember_tool(tree).invoke({"content": content})
        assert tree.TreeMetrics()["infos"] == 5

    def test_remember_is_one_operation(self, tree: KeywordTree) -> None:
        reported = remember_tool(tree).invoke({"content": "White tea is rare.", "keywords": ["tea", "茶/绿茶"]})

        operation_id = reported.split("operation ")[1].rstrip(").")
        assert reported.startswith("Remembered on 茶, 茶 / 绿茶 (operation ")
        assert KeywordTreeRetriever(tree=tree).invoke("white", k=1)[0].page_content == "White tea is rare."
        assert tree.History(limit=1)[0].after[0].created_by == "langchain"
        tree.Undo(operation_id)
        assert tree.TreeMetrics()["infos"] == 5

    def test_a_missing_keyword_is_made_and_the_agent_is_told(self, tree: KeywordTree) -> None:
        reported = remember_tool(tree).invoke({"content": "x", "keywords": ["black tea"]})

        assert reported.startswith("Remembered on black tea; new: black tea (operation ")
        assert tree.TreeMetrics()["infos"] == 6


def test_a_missing_package_is_named_with_the_command_that_brings_it() -> None:
    assert "pip install '.[langchain]'" in error_without("langchain_core", "Agent.adapters.langchain")
