"""The names of one space as a `KeywordTree`: for a model's descent, where words find nothing.

A keyword for each folder and node, at its URI's segments: title, aliases, abstract as description, confirmed queries;
no archives. It follows from the index, is opened when a descent is asked for, and made anew when names have changed.

Exact names and confirmed queries do not wait for it: they are in the word index, since a tree costs a sync for each
write, and this one is derived.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...keyword_tree import KeywordTree, LLMClient
from ..core.text import digest_of

__all__ = ["NamedNode", "descend"]


class NamedNode(NamedTuple):
    """What the tree knows of a node."""

    uri: str
    title: str
    aliases: tuple[str, ...]
    abstract: str
    confirmed: tuple[str, ...]


def descend(folder: Path, nodes: Sequence[NamedNode], query: str, client: LLMClient) -> str:
    """Return the URI that a model's walk of the names ends at, "" where it ends at none.

    Args:
        folder: Where the tree lies.
        nodes: All nodes of the space, but for archives.
        query: The question.
        client: The model.

    Cost: a call of the model for each level of the walk; where names have changed, the tree is written anew.
    """
    state = digest_of(*(repr(node) for node in nodes))
    mark = folder / "state"
    if not mark.exists() or mark.read_text(encoding="ascii") != state:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        _plant(folder, nodes)
        mark.write_text(state, encoding="ascii")
    with KeywordTree(str(folder / "keywords"), client) as tree:
        found = tree.Search(query)
        uri = found.node.metadata.get("uri") if found.node is not None else None
        return uri if isinstance(uri, str) else ""


def _plant(folder: Path, nodes: Sequence[NamedNode]) -> None:
    by_uri = {node.uri: node for node in nodes}
    places = sorted({place for node in nodes for place in _above(node.uri)}, key=lambda uri: (uri.count("/"), uri))
    specs = []
    for uri in places:
        node = by_uri.get(uri)
        parent = uri.rpartition("/")[0]
        spec = {"id": digest_of(uri), "name": node.title if node else uri.rpartition("/")[2], "llm_auto_place": False}
        spec |= {"parent_id": digest_of(parent) if parent in places else "root"}
        spec |= {"metadata": {"uri": uri if node else None}}
        if node is not None:
            spec |= {"aliases": [alias for alias in node.aliases if alias.strip()], "description": node.abstract}
        specs.append(spec)
    with KeywordTree(str(folder / "keywords")) as tree:
        if specs:
            tree.BatchCreateKeywords(specs)
        with tree.Operation("confirm"):
            for node in nodes:
                for query in node.confirmed:
                    tree.Confirm(query, digest_of(node.uri))


def _above(uri: str) -> list[str]:
    """Return a URI and those above it, down from its space."""
    parts = uri.split("/")  # of the space there are five: ctx:, nothing, account, users, id
    return ["/".join(parts[:end]) for end in range(6, len(parts) + 1)]
