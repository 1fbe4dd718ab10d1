"""Give an agent a long-term memory: `LongTermMemory` holds a `KeywordTree`, and forwards to it.

Run it: `python examples/weave_agent.py` (in the environment that `make demo` or `make test` has made).
"""

import tempfile
from typing import Any, Self

from keyword_tree.keyword_tree import KeywordNode, KeywordTree, RelationType, SearchResult, SearchStatus
from keyword_tree.models.lexical_client import LexicalLLMClient


class LongTermMemory:
    """What an agent sees of its memory: the methods of `KeywordTree`, which documents them, with the same arguments.

    The two that an agent calls most are written out, so that an editor shows their arguments.
    """

    def __init__(self, tree: KeywordTree):
        self._tree = tree

    def Search(self, query: str, llm_expand_query: bool = True, context: str = "") -> SearchResult:
        return self._tree.Search(query, llm_expand_query, context)

    def CreateKeyword(
        self,
        name: str,
        parent_id: str | None = None,
        aliases: list[str] | None = None,
        description: str = "",
        llm_auto_place: bool = True,
    ) -> KeywordNode:
        return self._tree.CreateKeyword(name, parent_id, aliases, description, llm_auto_place)

    def __getattr__(self, name: str) -> Any:
        """Forward the rest."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._tree, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._tree.Close()


def main() -> None:
    """Remember something, in Chinese and in English, and find it again."""
    with tempfile.TemporaryDirectory() as folder, LongTermMemory(KeywordTree(folder, LexicalLLMClient())) as memory:
        memory.BatchCreateKeywords(
            [
                {"id": "coding", "name": "编程", "aliases": ["programming"]},
                {"id": "python", "name": "Python", "parent_id": "coding", "description": "a language 编程语言"},
                {"id": "travel", "name": "旅行", "aliases": ["travel"], "description": "去过和想去的地方"},
                {"id": "food", "name": "饮食", "aliases": ["food"], "description": "口味、餐厅和菜谱"},
                {"id": "tea", "name": "茶", "aliases": ["tea"], "parent_id": "food"},
            ]
        )
        trip = memory.CreateInfo("用户打算十月带父母去苏州看园林。", "chat 2024-05-01", ["travel"])
        memory.CreateInfo("The user prefers pytest to unittest.", "chat 2024-05-02", ["python"])
        memory.CreateInfo("喜欢龙井，不加糖。", "chat 2024-05-03", ["tea"])

        gardens = memory.CreateKeyword("苏州园林", None, ["Suzhou gardens"], "旅行的地方")  # its parent is chosen
        memory.LinkInfo(trip.id, gardens.id, RelationType.RELATED)

        for query in ("PYTHON", "food/tea", "suzhou gardens", "用户喜欢喝什么茶", "weather"):
            show(query, memory.Search(query))
        print("苏州园林 is at", " / ".join(node.name for node in memory.GetPath(gardens.id)[1:]))
        links = [(node.name, relation.value) for node, relation in memory.GetKeywordsOfInfo(trip.id)]
        print("the journey's info is linked to", links)


def show(query: str, result: SearchResult) -> None:
    """Print what a search gave, on one line."""
    if result.status is SearchStatus.MATCHED:
        path = " / ".join(node.name for node in result.path[1:])
        print(f"{query!r}: {path} ({result.reason}): {[info.content for info in result.infos]}")
    elif result.status is SearchStatus.AMBIGUOUS:
        print(f"{query!r}: one of {[node.name for node in result.candidates]}")
    else:
        print(f"{query!r}: nothing ({result.reason})")


if __name__ == "__main__":
    main()
