"""A LangChain retriever over a tree, `KeywordTreeRetriever`, and two tools: `search_tool`, `remember_tool`.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     tea = tree.CreateKeyword("茶 tea", "root")
...     _ = tree.CreateInfo("龙井用八十度的水泡三分钟。", "notes", [tea.id])
...     for document in KeywordTreeRetriever(tree=tree).invoke("龙井怎么泡？"):
...         print(document.page_content, document.metadata["path"], document.metadata["source"])
龙井用八十度的水泡三分钟。 茶 tea notes

A question that is a keyword's name, alias or path is answered by the infos of that keyword; what is left of the `k`
documents is found by what the infos say. A document is an info: its content, its id, and as metadata the info's own,
`path` ("编程 / Python"), `source` and `score` from 0 to 1.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from typing_extensions import override

from ..base.checks import check_count
from ..keyword_tree import Info, KeywordTree, KeywordTreeError
from ..memory.retriever import MemoryRetriever
from .filters import read_filter
from .item_ranking import index_path
from .walking import TreeWalk

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from pydantic import ConfigDict, Field, PrivateAttr
except ImportError as error:
    raise ImportError("the retriever needs langchain: pip install '.[langchain]' in its repository") from error

__all__ = ["KeywordTreeRetriever", "remember_tool", "search_tool"]

AUTHOR = "langchain"
"""Who made what `remember_tool` stored."""


class KeywordTreeRetriever(BaseRetriever):
    """Retrieves the infos of a tree. Several threads may use it; who opened the tree closes it.

    Cost: a few look-ups for a name, else some milliseconds; the first question of a tree reads all infos, and keeps
    their index beside the tree, `indexes/memories.db` of its folder, or of its cache folder where the log is shared.
    """

    model_config = ConfigDict(extra="forbid")
    tree: KeywordTree
    """Where the infos are."""
    k: int = Field(default=5, ge=1)
    """At most this many documents; `invoke(question, k=…)` says otherwise for once."""
    min_score: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least score of a document."""
    filter: dict[str, Any] | None = None
    """Conditions on a document's metadata: `{"source": "notes", "page": {"$gt": 3}}`, with `$eq $ne $gt $gte $lt $lte`,
    `$in $nin`; None fits all. `invoke(question, filter=…)` says otherwise for once."""
    _retriever: MemoryRetriever = PrivateAttr()

    @override
    def model_post_init(self, context: Any, /) -> None:
        self._retriever = MemoryRetriever(self.tree, index_path=index_path(self.tree, "memories"))
        read_filter(self.filter)  # what cannot be used is refused now

    @override
    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun | None = None,
        k: int | None = None,
        filter: dict[str, Any] | None = None,
    ) -> list[Document]:
        wanted, fits = self.k if k is None else k, read_filter(self.filter if filter is None else filter)
        check_count("k", wanted)
        self.tree.Refresh()
        found: dict[str, Document] = {}  # by what they say: equal texts take one place
        for document in self._rank(query, wanted):
            if document.metadata["score"] >= self.min_score and (fits is None or fits(document.metadata)):
                found.setdefault(document.page_content, document)
            if len(found) == wanted:
                break
        return list(found.values())

    def _rank(self, query: str, wanted: int) -> Iterator[Document]:
        """Yield the infos of the named keyword, then those that say it, as long as more are wanted."""
        result = self.tree.Search(query, llm_expand_query=False)
        if result.node is not None:
            path = [node.name for node in result.path[1:]]
            for info in self.tree.GetInfosOfKeyword(result.node.id):
                yield _document(info, path, 1.0)
        limit, seen = 2 * wanted, 0
        while query.strip():
            memories = self._retriever.retrieve(query, limit)
            for memory in memories[seen:]:
                yield _document(memory.info, memory.path, memory.score)
            if len(memories) < limit:
                return
            limit, seen = 4 * limit, limit


def _document(info: Info, path: list[str], score: float) -> Document:
    own = {"path": " / ".join(path), "source": info.source, "score": score}
    return Document(id=info.id, page_content=info.content, metadata={**info.metadata, **own})


def search_tool(tree: KeywordTree, k: int = 5) -> BaseTool:
    """Return a tool by which an agent searches a tree; its artifact is the documents.

    Args:
        tree: Where the infos are.
        k: At most this many of them at a time.
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
        description="Search the long-term memory, in any language. Returns what is known, and where it belongs.",
        response_format="content_and_artifact",
    )


def _line(document: Document) -> str:
    """Return a document as one line: a newline in it cannot look like the beginning of another document."""
    path, text = (" ".join(each.split()) for each in (document.metadata["path"], document.page_content))
    return f"[{path}] {text}"


def remember_tool(tree: KeywordTree) -> BaseTool:
    """Return a tool by which an agent stores a fact on keywords; missing ones are made, and the reply says which.

    Where several are called so, nothing is stored, and the reply names them.

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
        made = f"; new: {', '.join(done.result['made'])}" if done.result["made"] else ""
        return f"Remembered on {places}{made} (operation {done.operation_id})."

    return StructuredTool.from_function(
        remember, description="Store a fact in the long-term memory, for later conversations.", handle_tool_error=True
    )
