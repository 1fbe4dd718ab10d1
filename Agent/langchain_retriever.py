"""A LangChain retriever over a tree, `KeywordTreeRetriever`, and two tools: `search_tool`, `remember_tool`.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     tea = tree.CreateKeyword("茶 tea", "root")
...     _ = tree.CreateInfo("龙井用八十度的水泡三分钟。", "notes", [tea.id])
...     for document in KeywordTreeRetriever(tree=tree).invoke("龙井怎么泡？"):
...         print(document.page_content, document.metadata["path"], document.metadata["source"])
龙井用八十度的水泡三分钟。 茶 tea notes

A question that is a keyword's name, alias or path is answered by what hangs on that keyword; what is left of the `k`
documents is found by what the infos say. A document is an info: its content, its id, and as metadata the info's own,
`path` ("编程 / Python"), `source` and `score` from 0 to 1.
"""

from typing import Annotated, Any

from typing_extensions import override

from .keyword_tree import Info, InvalidInputError, KeywordTree, KeywordTreeError
from .mcp_server.walking import TreeWalk
from .memory.retriever import MemoryRetriever

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from pydantic import Field, PrivateAttr
except ImportError as error:
    raise ImportError("the retriever needs langchain: pip install 'keyword-tree-memory[langchain]'") from error

__all__ = ["KeywordTreeRetriever", "remember_tool", "search_tool"]

AUTHOR = "langchain"
"""Who made what `remember_tool` stored."""


class KeywordTreeRetriever(BaseRetriever):
    """Retrieves the infos of a tree. Several threads may use it; who opened the tree closes it.

    Cost: a few look-ups for a name, else some milliseconds; the first question reads all infos.
    """

    tree: KeywordTree
    """Where the infos are."""
    k: int = Field(default=5, ge=1)
    """At most so many documents; `invoke(question, k=…)` says otherwise for once."""
    min_score: float = Field(default=0.0, ge=0.0, le=1.0)
    """What scores less is left out."""

    _retriever: MemoryRetriever = PrivateAttr()

    @override
    def model_post_init(self, context: Any, /) -> None:
        self._retriever = MemoryRetriever(self.tree)

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None, k: int | None = None
    ) -> list[Document]:
        wanted = self.k if k is None else k
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
            raise InvalidInputError(f"k must be a whole number above 0, not {wanted!r}")
        self.tree.Refresh()
        found: dict[str, Document] = {}
        result = self.tree.Search(query, llm_expand_query=False)
        if result.node is not None:
            path = [node.name for node in result.path[1:]]
            found = {info.id: _document(info, path, 1.0) for info in result.infos[:wanted]}
        if len(found) < wanted and query.strip():
            for memory in self._retriever.retrieve(query, wanted + len(found)):
                if memory.score >= self.min_score:
                    found.setdefault(memory.info.id, _document(memory.info, memory.path, memory.score))
        return list(found.values())[:wanted]


def _document(info: Info, path: list[str], score: float) -> Document:
    own = {"path": " / ".join(path), "source": info.source, "score": score}
    return Document(id=info.id, page_content=info.content, metadata={**info.metadata, **own})


def search_tool(tree: KeywordTree, k: int = 5) -> BaseTool:
    """Return a tool by which an agent searches a tree; its artifact is the documents.

    Args:
        tree: Where the infos are.
        k: At most so many of them at a time.
    """
    retriever = KeywordTreeRetriever(tree=tree, k=k)

    def search_memory(
        query: Annotated[str, "A keyword's name, alias or path, or a question"],
    ) -> tuple[str, list[Document]]:
        documents = retriever.invoke(query)
        lines = [_line(document) for document in documents]
        return "\n".join(lines) or "Nothing is known about that.", documents

    return StructuredTool.from_function(
        search_memory,
        description="Search the long-term memory, in any language. Tells what is known, and where it belongs.",
        response_format="content_and_artifact",
    )


def _line(document: Document) -> str:
    path = document.metadata["path"]
    return f"[{path}] {document.page_content}" if path else document.page_content


def remember_tool(tree: KeywordTree) -> BaseTool:
    """Return a tool by which an agent stores a fact on keywords that are there.

    Where there is no such keyword, or several, nothing is stored, and the agent is told which ones are like it.

    Args:
        tree: Where the fact goes; each call is one operation of it.
    """
    walk = TreeWalk(tree, AUTHOR)

    def remember(
        content: Annotated[str, "The fact, in a sentence that can be understood alone"],
        keywords: Annotated[list[str], "Names, paths or ids of the keywords it belongs to; may be empty"] = [],  # noqa: B006
    ) -> str:
        try:
            done = walk.remember(content, keywords)
        except KeywordTreeError as error:
            raise ToolException(str(error)) from error
        places = ", ".join(done.result["keywords"]) or "no keyword"
        return f"Remembered on {places} (operation {done.operation_id})."

    return StructuredTool.from_function(
        remember, description="Store a fact in the long-term memory, for later conversations.", handle_tool_error=True
    )
