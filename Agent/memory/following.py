"""Follow a tree's log, so that what is derived from it stays true: whoever wrote, undid, restored or compacted.

>>> import tempfile
>>> from Agent.keyword_tree import KeywordTree
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder) as tree:
...     follower = Follower(tree)
...     _ = follower.catch_up()
...     info = tree.CreateInfo("龙井来自杭州")
...     [record.content for record in follower.catch_up().infos]
['龙井来自杭州']
"""

from dataclasses import dataclass, field

from Agent.keyword_tree import Info, InfoKeywordLink, KeywordNode, KeywordTree

__all__ = ["Follower", "News"]

_STATE = "state"  # what a log that was written anew begins with: all there is


@dataclass
class News:
    """What has changed since the last time; of a record written twice, both versions in their order."""

    from_nothing: bool = False
    """Whether this is all there is: what was derived before is to be dropped first."""
    nodes: list[KeywordNode] = field(default_factory=list)
    """Keywords as they became; `deleted` is true of those that went."""
    infos: list[Info] = field(default_factory=list)
    """Infos, likewise."""
    links: list[InfoKeywordLink] = field(default_factory=list)
    """Links, likewise."""


class Follower:
    """Remembers up to where in a tree's log somebody has read.

    What an open `Operation` has written is not in the log yet, so it is not followed either.
    """

    def __init__(self, tree: KeywordTree) -> None:
        self._tree = tree
        self._seq = 0

    def catch_up(self) -> News:
        """Return what is new.  Cost: some 0.4 ms where nothing is, else a decoded row for each record."""
        news = News(from_nothing=self._seq == 0)
        in_state = False
        for change in self._tree.Changes(self._seq):
            if change.op == _STATE and not in_state:
                news = News(from_nothing=True)
            in_state = change.op == _STATE
            self._seq = change.seq
            for record in change.after:
                if isinstance(record, KeywordNode):
                    news.nodes.append(record)
                elif isinstance(record, Info):
                    news.infos.append(record)
                else:
                    news.links.append(record)
        return news
