"""A tree to be exported, read through its public methods alone."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..keyword_tree import Info, InfoKeywordLink, KeywordNode, KeywordTree, NotFoundError, RelationType
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
    """A tree from one keyword down, as the writers read it: page by page, so that no level is held whole.

    Others may write meanwhile: what they do may be in the export or not, record by record.
    """

    def __init__(self, tree: KeywordTree, root_id: str = ROOT_ID, *, language: str = "") -> None:
        root = tree.GetKeyword(root_id)
        if root is None:
            raise NotFoundError("keyword", root_id)
        self.root = root
        self.language = language
        """That of a page's own words; "" is the reader's."""
        self.folder = Path(tree.data_dir).absolute()
        self.keyword_count = 0
        """How many the last walk has met."""
        self._tree = tree

    def walk(self) -> Iterator[tuple[int, KeywordNode]]:
        """Yield (depth, keyword), each before what lies under it; the tree's root has depth 0, a top keyword 1."""
        depth = 0 if self.root.id == ROOT_ID else 1
        self.keyword_count = 0
        levels = [iter([self.root])]
        while levels:
            node = next(levels[-1], None)
            if node is None:
                levels.pop()
                continue
            self.keyword_count += 1
            yield depth + len(levels) - 1, node
            levels.append(self.children(node.id))

    def lead(self, id: str) -> str:
        """Return the id of the keyword that this one was merged into, its own where it was not or is gone."""
        node = self._tree.GetKeyword(id)
        return id if node is None else node.id

    def children(self, id: str) -> Iterator[KeywordNode]:
        """Yield the children of a keyword."""
        return pages(self._tree.GetChildren, id)

    def infos(self, id: str) -> Iterator[Info]:
        """Yield the infos of a keyword."""
        return pages(self._tree.GetInfosOfKeyword, id)

    def info(self, id: str) -> Info | None:
        """Return an info."""
        return self._tree.GetInfo(id)

    def unlinked(self) -> Iterator[Info]:
        """Return the infos without a keyword; none where the view begins under the root.

        Cost: a step for each info.
        """
        return all_infos(self._tree, unlinked=True) if self.root.id == ROOT_ID else iter(())

    def links(self, info_id: str) -> list[InfoKeywordLink]:
        """Return an info's links, to keywords outside of this view too."""
        return self._tree.GetLinks(info_id)

    def keywords_of(self, info_id: str) -> list[tuple[str, RelationType]]:
        """Return the ids of an info's keywords, outside of this view too, and how it belongs to them."""
        return [(node.id, relation) for node, relation in self._tree.GetKeywordsOfInfo(info_id)]
