"""What a tree holds, asked through its public methods."""

from __future__ import annotations

from Agent.keyword_tree import KeywordTree


def keyword_ids(tree: KeywordTree) -> list[str]:
    """Return the ids of all keywords, the root first and each before its children."""
    ids = ["root"]
    for id in ids:
        ids += [node.id for node in tree.GetChildren(id)]
    return ids
