"""The steps of a model in a tree: recall, find, look under, place, remember, look back, and undo.

The MCP server and LangChain's tools serve it. The caller is a language model, so it walks the tree itself: it looks
under a keyword, chooses, and looks again, and no other model is called. A level of more than 50 keywords is returned as
at most 50 groups, in the order of their names, each of which is looked under in turn: every keyword is reached in
about log n to the base 50 calls.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     walk = TreeWalk(tree)
...     print(walk.remember("龙井用八十度的水泡三分钟。", ["茶"]).result["made"])
...     [fact["content"] for fact in walk.recall("龙井怎么泡？")]
['茶']
['龙井用八十度的水泡三分钟。']
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from ..formats.records import ROOT_ID, is_blank
from ..keyword_tree import Change, Info, InvalidInputError, KeywordNode, KeywordTree, LLMClient, NotFoundError
from ..memory.store import MemoryStore
from ..memory.writing import ensure_keyword
from .operations import Done, LastOperations

__all__ = ["TreeWalk", "cut"]

_SHOWN = 50  # keywords or groups in one reply
_FACTS = 50  # of a match
_CANDIDATES = 10
_EXCERPTS = 3, 300  # facts of a candidate, and characters of each
_LEAST = 0.03  # of a score: a fact below it shares hardly a character with the question
_OPERATIONS = 20  # of a history
_CONTENT = 20_000  # characters of a fact in a reply

_Row: TypeAlias = dict[str, Any]


class TreeWalk:
    """A tree for a model that looks around in it by itself. Any number of threads may use it.

    Args:
        tree: The tree; others may write to it.
        author: The author of new records.
        judge: A model that tells which of the best facts answer a question; None recalls the best hits.
    """

    def __init__(self, tree: KeywordTree, author: str = "mcp", judge: LLMClient | None = None) -> None:
        self.tree = tree
        self.operations = LastOperations(tree, author)
        self._author, self._memory = author, MemoryStore(tree, judge=judge)

    # -- looking --

    def recall(self, question: str, limit: int = 10) -> list[_Row]:
        """Return the facts that answer a question, the best first, each with its id, source, score and path.

        Args:
            question: In any words; not blank.
            limit: At most this many; with a judge at most the 8 that it is shown.

        Raises:
            InvalidInputError: the question is blank, or `limit` is below 1.

        Cost: some milliseconds, with a judge a call of it; the first question of a tree reads all facts, and keeps
        their index beside it.
        """
        if is_blank(question):
            raise InvalidInputError(f"there is no question in {question[:60]!r}")
        found = self._memory.recall(question, limit, min_score=_LEAST)
        rows = [{**_info_row(each.info), "path": each.path, "score": round(each.score, 2)} for each in found]
        return _fit(rows)

    def search(self, query: str, context: str = "") -> _Row:
        """Return the keyword that a name, alias or path means, with its facts, or else what could be meant, with some.

        Args:
            query: A name or a question.
            context: The subject; of several keywords of the name, the fitting ones come first.

        Cost: an exact hit a few look-ups; else one ranking, some milliseconds.
        """
        self.tree.Refresh()
        result = self.tree.Search(query, llm_expand_query=False)
        if result.node is not None:
            facts = _fit(_info_row(info) for info in result.infos[:_FACTS])
            match = {**self._keyword_row(result.node), "facts": facts, "fact_count": result.info_count}
            return {"status": "matched", "match": match, "candidates": []}
        about = f"{query} {context}".strip()
        if result.candidates:
            ranked = self.tree.RankCandidates(about, 10 * _CANDIDATES) if context.strip() else []
            places = {node.id: place for place, (node, _) in enumerate(ranked)}
            nodes = sorted(result.candidates, key=lambda node: places.get(node.id, len(places)))
            return {"status": "ambiguous", "match": None, "candidates": list(map(self._candidate_row, nodes))}
        ranked = self.tree.RankCandidates(about, _CANDIDATES) if about else []
        candidates = [{**self._candidate_row(node), "confidence": round(confidence, 2)} for node, confidence in ranked]
        return {"status": "candidates" if candidates else "not_found", "match": None, "candidates": candidates}

    def _candidate_row(self, node: KeywordNode) -> _Row:
        count, limit = _EXCERPTS
        infos = self.tree.GetInfosOfKeyword(node.id, size=count)
        return {**self._keyword_row(node), "facts": [_info_row(info, limit) for info in infos]}

    def look_beneath(self, id: str = ROOT_ID) -> _Row:
        """Return the keywords under one, or under a group; of more than 50, groups of them.

        Args:
            id: Of a keyword, or of a group that an earlier call returned; "root" is the top.

        Raises:
            NotFoundError: there is no such keyword.

        Cost: a decoded row for each keyword returned; in a level of more than 50, for each of the level.
        """
        self.tree.Refresh()
        parent, start, stop = self._read_group(id)
        level = parent.children
        reported: _Row = {"id": id, "path": self._path(parent.id), "children": [], "groups": []}
        nodes = self.tree.GetChildren(parent.id)
        if len(level) > _SHOWN:
            nodes = sorted(nodes, key=lambda node: (node.name.casefold(), node.ordinal))[start:stop]
        if len(nodes) <= _SHOWN:
            reported["children"] = [self._keyword_row(node, with_path=False) for node in nodes]
            return reported
        size = _SHOWN
        while -(-len(nodes) // size) > _SHOWN:
            size *= _SHOWN
        for first in range(0, len(nodes), size):
            part = nodes[first : first + size]
            group_id = f"{parent.id}@{start + first}-{start + first + len(part)}"
            reported["groups"].append({"id": group_id, "from": part[0].name, "to": part[-1].name, "count": len(part)})
        return reported

    def _read_group(self, id: str) -> tuple[KeywordNode, int, int | None]:
        """Return the keyword of an id, and which part of its children is meant."""
        keyword = self.tree.GetKeyword(id)
        if keyword is not None:
            return keyword, 0, None
        parent_id, _, numbers = id.rpartition("@")
        start, _, stop = numbers.partition("-")
        parent = self.tree.GetKeyword(parent_id) if start.isdecimal() and stop.isdecimal() and parent_id else None
        if parent is None:
            raise NotFoundError("keyword", id)
        return parent, int(start), int(stop)

    def history(self, id: str = "") -> list[_Row]:
        """Return the newest 20 operations, newest first: all, or those that touched a keyword or a fact.

        Args:
            id: Of a keyword or a fact, or a keyword's name or path; empty for all.

        Cost: reads the log backwards.
        """
        self.tree.Refresh()
        if not id:
            changes = self.tree.History(limit=_OPERATIONS)
        else:
            is_id = self.tree.GetInfo(id) is not None or self.tree.GetKeyword(id) is not None
            wanted = id if is_id else self._id_by_name(id) or id  # a deleted record has a history, too
            changes = self.tree.History(wanted, limit=_OPERATIONS)
            if not changes:
                raise InvalidInputError(f"nothing is called {id[:60]!r}, nor was")
        return [_change_row(change) for change in changes]

    # -- changing --

    def place(self, name: str, description: str = "", parent_id: str = "") -> Done[_Row]:
        """Make a keyword, or without a parent say under which it could be; the second writes nothing.

        Args:
            name: Of the new keyword.
            description: Its meaning.
            parent_id: The keyword under which it is to be; "root" is the top.

        Raises:
            NotFoundError: there is no keyword `parent_id`.
            InvalidInputError: the name is blank or too long.
        """
        self.tree.Refresh()
        if not parent_id:
            same = self.tree.FindByName(name, size=_CANDIDATES) if name.strip() else []
            named = list(map(self._keyword_row, same))
            parents = self.tree.SuggestParents(name, description, _CANDIDATES - 1) if name.strip() else []
            nodes = [*(node for node, _ in parents), self.tree.GetKeyword(ROOT_ID)]
            candidates = [self._keyword_row(node) for node in nodes if node is not None]
            return Done({"made": False, "id": None, "path": [], "called_so": named, "candidates": candidates}, "")
        with self.tree.Operation("place") as operation:
            node = self.tree.CreateKeyword(name, parent_id, description=description, created_by=self._author)
        self.operations.note(operation.id)
        made = {"made": True, "id": node.id, "path": self._path(node.id), "called_so": [], "candidates": []}
        return Done({**made, "operation_id": operation.id}, operation.id)

    def remember(self, content: str, keywords: Iterable[str] = (), source: str = "") -> Done[_Row]:
        """Store a fact, and link it to keywords; those that are missing are made, and named in the result's `made`.

        A fact that is known already keeps its id, and gets keywords and source besides.

        Args:
            content: The fact; not blank.
            keywords: Their ids, names or paths; without any it is found by what it says.
            source: Where it is from.

        Raises:
            InvalidInputError: several are called so, or the content is blank; nothing was written then.
        """
        if is_blank(content):
            raise InvalidInputError(f"there is nothing to remember in {content[:60]!r}")
        self.tree.Refresh()
        named = {keyword: self._keyword_id(keyword) for keyword in keywords}
        with self.tree.Operation("remember") as operation:
            made = [ensure_keyword(self.tree, name, self._author) for name, id in named.items() if id is None]
            ids = [id for id in dict.fromkeys([*named.values(), *made]) if id not in (None, ROOT_ID)]
            info_id = self._memory.remember(content, ids, source, created_by=self._author)
        self.operations.note(operation.id)
        placed = {"keywords": list(map(self._path_text, ids)), "made": list(map(self._path_text, dict.fromkeys(made)))}
        return Done({"id": info_id, **placed, "operation_id": operation.id}, operation.id)

    def correct(self, id: str, content: str, source: str = "") -> Done[_Row]:
        """Put a new fact in the place of an old one; see `MemoryStore.correct`."""
        self.tree.Refresh()
        new = self._memory.correct(id, content, source, self._author)
        self.operations.note(new.operation)
        return Done({"id": new, "operation_id": new.operation}, new.operation)

    def forget(self, id: str) -> Done[_Row]:
        """Delete a fact, with all its former versions."""
        operation = self._memory.forget(id)
        self.operations.note(operation)
        return Done({"operation_id": operation}, operation)

    def _keyword_id(self, keyword: str) -> str | None:
        node = self.tree.GetKeyword(keyword)
        return self._id_by_name(keyword) if node is None else node.id

    def _id_by_name(self, name: str) -> str | None:
        """Return the keyword that a name or path means; None where nothing does."""
        result = self.tree.Search(name, llm_expand_query=False)
        if result.candidates:
            paths = ", ".join(f"{self._path_text(node.id)!r} ({node.id})" for node in result.candidates[:5])
            raise InvalidInputError(f"{name[:60]!r} is {result.candidate_count} keywords; say which by id: {paths}")
        return None if result.node is None else result.node.id

    def undo(self, operation_id: str = "", owner: str | None = "") -> Done[_Row]:
        """Undo an operation, or the last one of its owner; see `LastOperations.undo`."""
        undone, undone_by = self.operations.undo(operation_id, owner)
        return Done({"undone": undone, "operation_id": undone_by}, undone_by)

    # -- rows of a reply --

    def _keyword_row(self, node: KeywordNode, *, with_path: bool = True) -> _Row:
        reported: _Row = {"id": node.id, "name": node.name, "description": node.description[:200]}
        place = {"path": self._path(node.id)} if with_path else {"child_count": len(node.children)}
        return reported | place

    def _path(self, id: str) -> list[str]:
        return [node.name for node in self.tree.GetPath(id)[1:]]

    def _path_text(self, id: str) -> str:
        return " / ".join(self._path(id)) or ROOT_ID


def _fit(facts: Iterable[_Row]) -> list[_Row]:
    """Return as many facts as a model reads at once, at least one."""
    fitting, size = list[_Row](), 0
    for fact in facts:
        size += len(fact["content"])
        if fitting and size > _CONTENT:
            break
        fitting.append(fact)
    return fitting


def _info_row(info: Info, limit: int = _CONTENT) -> _Row:
    return {"id": info.id, "content": cut(info.content, limit), "source": info.source}


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text that is longer than `limit` characters, and how long it is."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _change_row(change: Change) -> _Row:
    what = [repr(record)[1:-1] for record in change.after[:5]]
    more = [f"and {len(change.after) - 5} more"] if len(change.after) > 5 else []
    reported = {"operation_id": change.operation_id, "operation": change.op, "timestamp": change.timestamp}
    return {**reported, "changed": [*what, *more]}
