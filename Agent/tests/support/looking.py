"""What a tree holds, asked through its public methods, and what its folder holds."""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path

from Agent.keyword_tree import KeywordNode, KeywordTree


def keyword_ids(tree: KeywordTree) -> list[str]:
    """Return the ids of all keywords, the root first and each before its children."""
    ids = ["root"]
    for id in ids:
        ids += [node.id for node in tree.GetChildren(id)]
    return ids


def keywords(tree: KeywordTree) -> dict[str, KeywordNode]:
    """Return all keywords but the root, by id."""
    found: dict[str, KeywordNode] = {}
    level = ["root"]
    while level:
        children = [child for id in level for child in tree.GetChildren(id)]
        found |= {child.id: child for child in children}
        level = [child.id for child in children]
    return found


def names_under(tree: KeywordTree, id: str = "root") -> list[str]:
    """Return the names of a keyword's children, in their order."""
    return [node.name for node in tree.GetChildren(id)]


def disk(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file under a folder, by its path there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def inflated(data: bytes, words: bytes = b"") -> bytes:
    """Return a file with all that any bytes of it inflate to, those of freed places too; `words` were known before."""
    found = [data]
    for place in (place for place in range(len(data)) if data[place] == 0x78):
        with contextlib.suppress(zlib.error):
            inflater = zlib.decompressobj(zdict=words) if words and data[place + 1] == 0xBB else zlib.decompressobj()
            found.append(inflater.decompress(data[place : place + 10_000]))
    return b"\n".join(found)
