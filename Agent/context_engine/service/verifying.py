"""Whether files, journal, index and outbox agree; changes nothing."""

import sqlite3
from collections.abc import Iterator

from ..core.config import META
from ..core.errors import ContextEngineError, StoreError
from ..fs.context_fs import ContextFS
from ..fs.meta import digests_of, is_whole, leads_on, read_meta
from ..fs.uri import parse_uri
from ..index.index_worker import context_of
from ..index.outbox_store import OutboxStore
from ..index.spaces import IndexSpaces
from ..providers.passages import projected_digest
from ..providers.word_index import LostIndexError

__all__ = ["verify_store"]


def verify_store(fs: ContextFS, spaces: IndexSpaces, outbox: OutboxStore) -> list[str]:
    """Return a sentence for each disagreement. Cost: reads all of the store."""
    found = list(_journal(fs))
    for space in fs.spaces():
        found += _files(fs, space)
        found += _index(fs, spaces, space)
    counts = outbox.counts()
    found += [f"outbox: {counts[status]} events are {status}" for status in ("held", "dead") if counts[status]]
    return found


def _journal(fs: ContextFS) -> Iterator[str]:
    try:
        fs.journal.check()
        if fs.journal.is_behind():
            yield "journal: a commit is logged and not in the files; the next write brings it there"
    except (sqlite3.DatabaseError, StoreError) as error:
        yield f"journal: {error}"


def _files(fs: ContextFS, space: str) -> Iterator[str]:
    edits = fs.find_edits(space)
    yield from (f"files: {uri} was changed by hand; `adopt` makes a version of it" for uri in edits)
    for each in fs.walk(parse_uri(space)):
        try:
            image = fs.folders.read(each.folders)
            fs.read_node(context_of(each.text), each.text)
        except ContextEngineError as error:
            yield f"files: {each.text} cannot be read: {error}"
            continue
        if META in image and not is_whole(image) and each.text not in edits:
            yield f"files: {each.text} is not what its metadata says"


def _index(fs: ContextFS, spaces: IndexSpaces, space: str) -> Iterator[str]:
    if not (spaces.folder_of(space) / "index.db").exists():
        yield f"index: {space} has none; it is made when it is needed"
        return
    words = spaces.words(space)
    try:
        known = {node.uri: node.digest for node in words.nodes_under(space)}
        for each in fs.walk(parse_uri(space)):
            image = fs.folders.read(each.folders)
            meta = read_meta(each, image)
            digest = projected_digest(each.text, meta, meta["category"], digests_of(image))
            if not leads_on(image.get(META, b"")) and known.pop(each.text, None) != digest:
                yield f"index: {each.text} is not up to date"
        yield from (f"index: {uri} is there, and no such node" for uri in known)
    except (sqlite3.DatabaseError, LostIndexError, ContextEngineError) as error:
        yield f"index: {space}: {error}"
