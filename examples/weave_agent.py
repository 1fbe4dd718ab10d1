"""Give an agent a long-term memory: `LongTermMemory` forwards to a `KeywordTree`, thinly and positionally.

Run it: `python examples/weave_agent.py` (in the environment that `make demo` or `make test` has made).
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from Agent.keyword_tree import (
    Change,
    Info,
    InfoKeywordLink,
    InfoPatch,
    InfoSpec,
    KeywordNode,
    KeywordPatch,
    KeywordSpec,
    KeywordTree,
    OpenOperation,
    RelationType,
    SearchResult,
    SearchStatus,
)
from Agent.lexical_client import LexicalLLMClient


class LongTermMemory:
    """What an agent sees of its memory: the methods of `KeywordTree`, which documents them, with the same arguments.

    The arguments are passed on by position, so that this class stays right whatever the tree calls them.
    """

    def __init__(self, tree: KeywordTree):
        self._tree = tree

    def Search(self, query: str, llm_expand_query: bool = True, context: str = "") -> SearchResult:
        return self._tree.Search(query, llm_expand_query, context)

    def FindByName(self, name: str, page: int = 0, size: int = 50) -> list[KeywordNode]:
        return self._tree.FindByName(name, page, size)

    def RankCandidates(self, query: str, limit: int = 10) -> list[tuple[KeywordNode, float]]:
        return self._tree.RankCandidates(query, limit)

    def Choose(
        self, query: str, intent: str, among: Sequence[str] | None = None, **about: str
    ) -> tuple[str, str] | None:
        return self._tree.Choose(query, intent, among, **about)

    def GetKeyword(self, id: str) -> KeywordNode | None:
        return self._tree.GetKeyword(id)

    def GetChildren(self, id: str, page: int | None = None, size: int = 50) -> list[KeywordNode]:
        return self._tree.GetChildren(id, page, size)

    def GetPath(self, id: str) -> list[KeywordNode]:
        return self._tree.GetPath(id)

    def Walk(self, id: str = "root", depth: int | None = None) -> Iterator[KeywordNode]:
        return self._tree.Walk(id, depth)

    def GetInfo(self, info_id: str) -> Info | None:
        return self._tree.GetInfo(info_id)

    def GetInfosOfKeyword(
        self, id: str, relation: RelationType | None = None, page: int = 0, size: int = 50
    ) -> list[Info]:
        return self._tree.GetInfosOfKeyword(id, relation, page, size)

    def GetKeywordsOfInfo(
        self, info_id: str, page: int | None = None, size: int = 50
    ) -> list[tuple[KeywordNode, RelationType]]:
        return self._tree.GetKeywordsOfInfo(info_id, page, size)

    def GetLinks(self, info_id: str) -> list[InfoKeywordLink]:
        return self._tree.GetLinks(info_id)

    def ListInfos(self, page: int = 0, size: int = 50, unlinked: bool = False, after: str | None = None) -> list[Info]:
        return self._tree.ListInfos(page, size, unlinked, after)

    def CreateKeyword(
        self,
        name: str,
        parent_id: str | None = None,
        aliases: list[str] | None = None,
        description: str = "",
        llm_auto_place: bool = True,
        metadata: dict[str, Any] | None = None,
        created_by: str = "user",
        id: str | None = None,
    ) -> KeywordNode:
        return self._tree.CreateKeyword(name, parent_id, aliases, description, llm_auto_place, metadata, created_by, id)

    def BatchCreateKeywords(self, specs: Sequence[KeywordSpec | Mapping[str, object]]) -> list[KeywordNode]:
        return self._tree.BatchCreateKeywords(specs)

    def Ensure(self, path: str | Sequence[str], created_by: str = "user") -> KeywordNode:
        return self._tree.Ensure(path, created_by)

    def CreateInfo(
        self,
        content: str,
        source: str = "",
        keyword_ids: list[str] | None = None,
        auto_link: bool = False,
        metadata: dict[str, Any] | None = None,
        created_by: str = "user",
        id: str | None = None,
    ) -> Info:
        return self._tree.CreateInfo(content, source, keyword_ids, auto_link, metadata, created_by, id)

    def BatchCreateInfos(self, specs: Sequence[InfoSpec | Mapping[str, object]]) -> list[Info]:
        return self._tree.BatchCreateInfos(specs)

    def LinkInfo(
        self, info_id: str, keyword_id: str, relation: RelationType = RelationType.PRIMARY, created_by: str = "user"
    ) -> InfoKeywordLink:
        return self._tree.LinkInfo(info_id, keyword_id, relation, created_by)

    def UpdateKeyword(
        self, id: str, patch: KeywordPatch | Mapping[str, object], version: int, changed_by: str = "user"
    ) -> KeywordNode:
        return self._tree.UpdateKeyword(id, patch, version, changed_by)

    def AddAlias(self, id: str, alias: str, changed_by: str = "user") -> KeywordNode:
        return self._tree.AddAlias(id, alias, changed_by)

    def RemoveAlias(self, id: str, alias: str, changed_by: str = "user") -> KeywordNode:
        return self._tree.RemoveAlias(id, alias, changed_by)

    def MoveKeyword(self, id: str, new_parent_id: str, changed_by: str = "user") -> KeywordNode:
        return self._tree.MoveKeyword(id, new_parent_id, changed_by)

    def MergeKeywords(self, src_id: str, dst_id: str, changed_by: str = "user") -> KeywordNode:
        return self._tree.MergeKeywords(src_id, dst_id, changed_by)

    def DeleteKeyword(
        self, id: str, cascade: bool = False, info_policy: str = "reattach", changed_by: str = "user"
    ) -> None:
        self._tree.DeleteKeyword(id, cascade, info_policy, changed_by)

    def Confirm(self, query: str, id: str, changed_by: str = "user") -> KeywordNode:
        return self._tree.Confirm(query, id, changed_by)

    def Unconfirm(self, query: str, id: str, changed_by: str = "user") -> KeywordNode:
        return self._tree.Unconfirm(query, id, changed_by)

    def UpdateInfo(
        self,
        info_id: str,
        patch: InfoPatch | Mapping[str, object],
        version: int | None = None,
        changed_by: str = "user",
    ) -> Info:
        return self._tree.UpdateInfo(info_id, patch, version, changed_by)

    def DeleteInfo(self, info_id: str, changed_by: str = "user") -> None:
        self._tree.DeleteInfo(info_id, changed_by)

    def UnlinkInfo(self, info_id: str, keyword_id: str, changed_by: str = "user") -> bool:
        return self._tree.UnlinkInfo(info_id, keyword_id, changed_by)

    def Operation(self, name: str = "operation", changed_by: str | None = None) -> OpenOperation:
        return self._tree.Operation(name, changed_by)

    def History(self, id: str | None = None, limit: int = 50) -> list[Change]:
        return self._tree.History(id, limit)

    def Changes(self, since: int = 0) -> Iterator[Change]:
        return self._tree.Changes(since)

    def At(self, at: int | float) -> KeywordTree:
        return self._tree.At(at)

    def Undo(self, operation_id: str | None, changed_by: str = "user") -> str:
        return self._tree.Undo(operation_id, changed_by)

    def Snapshot(self, copy: bool = False) -> str:
        return self._tree.Snapshot(copy)

    def Restore(self, snapshot_ts: str, changed_by: str = "user") -> str:
        return self._tree.Restore(snapshot_ts, changed_by)

    def CompactStorage(self, keep_history: bool = True) -> dict[str, Any]:
        return self._tree.CompactStorage(keep_history)

    def Verify(self) -> list[str]:
        return self._tree.Verify()

    def TreeMetrics(self) -> dict[str, Any]:
        return self._tree.TreeMetrics()

    def Reorganize(self, scope_id: str | None = None) -> dict[str, Any]:
        return self._tree.Reorganize(scope_id)

    def ApplyReorganizePlan(self, plan: dict[str, Any], changed_by: str = "user") -> str:
        return self._tree.ApplyReorganizePlan(plan, changed_by)

    def Refresh(self) -> None:
        self._tree.Refresh()

    def Close(self) -> None:
        self._tree.Close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.Close()


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
        print("苏州园林 stands at", " / ".join(node.name for node in memory.GetPath(gardens.id)[1:]))
        links = [(node.name, relation.value) for node, relation in memory.GetKeywordsOfInfo(trip.id)]
        print("the journey's info hangs on", links)


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
