"""A tree to be exported, read through its public methods alone."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ..keyword_tree import Info, KeywordNode, KeywordTree, NotFoundError
from ..store.log_follower import all_infos
from .records import ROOT_ID

_PAGE = 500  # records asked of the tree at once

_T = TypeVar("_T")


def pages(ask: Callable[..., Sequence[_T]], id: str) -> Iterator[_T]:
    """Yield what `GetChildren` or `GetInfosOfKeyword` has of a keyword, asked for page by page."""
    page = 0
    while found := ask(id, page=page, size=_PAGE):
        yield from found
        if len(found) < _PAGE:
            return
        page += 1


class View:
    """A tree from one keyword down, as the writers read it.

    Others may write meanwhile: what they do may be in the export or not, record by record.
    """

    def __init__(self, tree: KeywordTree, root_id: str = ROOT_ID, *, language: str = "") -> None:
        root = tree.GetKeyword(root_id)
        if root is None:
            raise NotFoundError("keyword", root_id)
        self.tree = tree
        self.root = root
        self.language = language
        """That of a page's own words; "" is the reader's."""
        self.keyword_count = 0
        """How many the last walk has met."""

    def walk(self) -> Iterator[tuple[int, KeywordNode]]:
        """Yield (depth, keyword), each before what lies under it; the tree's root has depth 0, a top keyword 1."""
        depths = {self.root.id: 0 if self.root.id == ROOT_ID else 1}
        for node in self.tree.Walk(self.root.id):
            if node.id not in depths or node.id == self.root.id:  # else it was moved in between, and comes again
                yield depths.setdefault(node.id, depths.get(node.parent_id or "", 0) + 1), node
        self.keyword_count = len(depths)

    def infos(self, id: str) -> Iterator[Info]:
        """Yield the infos of a keyword."""
        return pages(self.tree.GetInfosOfKeyword, id)

    def unlinked(self) -> Iterator[Info]:
        """Return the infos without a keyword; none where the view begins under the root.

        Cost: a step for each info.
        """
        return all_infos(self.tree, unlinked=True) if self.root.id == ROOT_ID else iter(())
