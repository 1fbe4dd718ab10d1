"""Hold pages: "what is X", beside the graph's "what is X related to".

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     store = KnowledgeStore(tree)
...     _ = store.add_page(KnowledgePage("", "龙井", "A green tea.", "It comes from Hangzhou and wants 80 °C."))
...     [page.title for page in store.find_by_keywords(["hangzhou"])], store.what_is("龙井").summary
(['龙井'], 'A green tea.')

A keyword is a page. Its name is the title, its description the summary, and one info of its own the body. So what is
written as a page is found as a keyword, and the other way round; what else is linked to the keyword, as memories that
name it are, is beside the body and only read here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..base.checks import check_count, check_string, check_strings
from ..keyword_tree import KeywordNode, KeywordTree, NotFoundError
from .graph import KnowledgeGraph
from .memories import Memories
from .tree_graph import TreeGraph

__all__ = ["KnowledgePage", "KnowledgeStore"]

_INFOS = 50  # that a page shows


@dataclass
class KnowledgePage:
    """What is known of one thing."""

    id: str
    """Empty for one that is to be added: then the store chooses it."""
    title: str
    """What it is called; not blank."""
    summary: str = ""
    """What it is, in a sentence."""
    body: str = ""
    """Its text."""
    infos: tuple[str, ...] = ()
    """What else is known of it, the first 50: memories that name it, say. `add_page` leaves them as they are."""


class KnowledgeStore:
    """The keywords of a tree as pages.

    Args:
        tree: Its keywords are the pages, but for the root.
        graph: The same tree as a graph, where there is one already.
        index: A full-text index over its infos, likewise.

    A body is one info of the keyword, whose id is made from the keyword's.

    Cost: a page is read with one look at the disk for each of its infos; writing is one operation.
    """

    def __init__(self, tree: KeywordTree, graph: KnowledgeGraph | None = None, index: Memories | None = None) -> None:
        self.tree = tree
        self._graph = graph or TreeGraph(tree)
        self._index = index or Memories(tree)

    def add_page(self, page: KnowledgePage) -> str:
        """Add a page, and return its id; one whose id is there already gets this title, summary and body.

        It is found by the title that it had before, too.

        Raises:
            InvalidInputError: Its title is blank, or one of its texts no string.
        """
        for name in ("id", "title", "summary", "body"):
            check_string(f"KnowledgePage.{name}", getattr(page, name))
        with self.tree.Operation("add_page"):
            node = self._find(page.id)
            if node is None:
                spec = {"name": page.title, "parent_id": "root", "description": page.summary}
                node = self.tree.BatchCreateKeywords([{**spec, **({"id": page.id} if page.id else {})}])[0]
            else:
                former = node.name
                patch = {"name": page.title, "description": page.summary}
                node = self.tree.UpdateKeyword(node.id, patch, node.version)
                if node.name.casefold() != former.casefold():  # by which memories may call it again
                    self.tree.AddAlias(node.id, former)
            self._write_body(node.id, page.body)
        return node.id

    def get_page(self, id: str) -> KnowledgePage | None:
        """Return the page with this id, or None."""
        node = self._find(id)
        return None if node is None else self._page(node)

    def remove_page(self, id: str) -> None:
        """Remove a page with its body; what else is known of it stays, without this page.

        Raises:
            NotFoundError: There is none with this id.
        """
        node = self._find(id)
        if node is None:
            raise NotFoundError("keyword", id)
        with self.tree.Operation("remove_page"):
            self._write_body(node.id, "")
            self.tree.DeleteKeyword(node.id, info_policy="detach")

    def what_is(self, name: str) -> KnowledgePage | None:
        """Return the page with this title or another name of it; of several the oldest, None where there is none."""
        found = (node for node in self.tree.FindByName(name, 0, 2) if node.parent_id is not None)
        return next(map(self._page, found), None)

    def find_by_keywords(self, keywords: Iterable[str], limit: int = 10) -> list[KnowledgePage]:
        """Return the pages with some of the keywords in title, summary, body or infos, the best fitting first."""
        wanted = check_strings("keywords", keywords)
        check_count("limit", limit)
        found = dict.fromkeys(entity.id for entity in self._graph.find_by_keywords(wanted, limit))
        self._index.catch_up()
        for one in self._index.rank(" ".join(wanted), limit):
            found |= dict.fromkeys(link.keyword_id for link in self.tree.GetLinks(one.id))
        nodes = (self._find(id) for id in found)
        return [self._page(node) for node in nodes if node is not None][:limit]

    def _find(self, id: str) -> KeywordNode | None:
        node = self.tree.GetKeyword(id) if id else None
        return None if node is None or node.parent_id is None else node

    def _write_body(self, keyword_id: str, body: str) -> None:
        own = self.tree.GetInfo(_own_id(keyword_id))
        if own is None:
            if body:
                spec = {"id": _own_id(keyword_id), "content": body, "keyword_ids": [keyword_id]}
                self.tree.BatchCreateInfos([spec])
        elif not body:
            self.tree.DeleteInfo(own.id)
        else:
            if own.content != body:
                self.tree.UpdateInfo(own.id, {"content": body}, own.version)
            self.tree.LinkInfo(own.id, keyword_id)  # another process may have unlinked it

    def _page(self, node: KeywordNode) -> KnowledgePage:
        own = self.tree.GetInfo(_own_id(node.id))
        shown = self.tree.GetInfosOfKeyword(node.id, page=0, size=_INFOS + 1)
        others = tuple(info.content for info in shown if info.id != _own_id(node.id))[:_INFOS]
        return KnowledgePage(node.id, node.name, node.description, "" if own is None else own.content, others)


def _own_id(keyword_id: str) -> str:
    """Return the id of the info that is a page's body: it is found however many infos the keyword has."""
    return f"page:{keyword_id}"
