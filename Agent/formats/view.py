"""A tree to be exported, read through its public methods alone."""

import sys
from collections.abc import Iterator

from ..keyword_tree import Info, KeywordNode, KeywordTree, NotFoundError
from ..store.log_follower import all_infos
from .records import ROOT_ID


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

    def infos(self, id: str) -> list[Info]:
        """Return the infos of a keyword, as they are at one moment."""
        return self.tree.GetInfosOfKeyword(id, size=sys.maxsize)

    def unlinked(self) -> Iterator[Info]:
        """Return the infos without a keyword; none where the view begins under the root.

        Cost: a step for each info.
        """
        return all_infos(self.tree, unlinked=True) if self.root.id == ROOT_ID else iter(())
