"""Recovery: commits that a crash or a power cut left incomplete are redone from the images in the journal.

For each file the newest image counts. A file that equals it stays; one that is missing, empty, torn, or an older image
is written. Any other may be a manual edit: it is copied to `.ctx/aside/` first, and reported. So is one that is only
shorter than the image: a power cut may have done that, or an edit that deleted its last lines.

    torn    no longer than the image, and each block of it is the image's or zeros, of which it has some
"""

import difflib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..core.config import ABSTRACT, CONTENT, OVERVIEW
from ..core.errors import StoreCorruptError
from .folders import NEW, OLD, Folders, Image, Look
from .journal import Change, Journal
from .uri import parse_uri


def rescue(
    journal: Journal,
    aside: Path,
    uri: str,
    before: Mapping[str, bytes | None] | None,
    is_known: Callable[[str, bytes], bool] = lambda name, taken: False,
    sequence: int = 0,
) -> Look:
    """Return what looks at the files that the writing of one node takes from their places.

    They were expected to be as `before`, where None is no file, or what `is_known`. What cannot be merged, as without
    a `before`, is kept `aside`; what is merged goes to the history of the commit of this `sequence`.
    """
    expected = dict(before or {})

    def look(name: str, taken: bytes, data: bytes | None, link: Callable[[str], None] | None) -> bytes | None:
        if link is None and (taken in (data, expected.get(name)) or is_known(name, taken)):
            return None
        base, expected[name] = expected.get(name) or b"", data
        if before is not None and data is not None and link is None and name in (ABSTRACT, OVERVIEW, CONTENT):
            merged = merge(base, taken, data)
            if merged is not None:
                # An editor that has read the file in between writes over what is merged: the history has it then.
                journal.add_change(sequence, Change(uri, {name: taken}, {name: data}))
                return merged
        place = put_aside(aside, uri, {name: taken} if link is None else {})
        if link is not None:
            link(str(place / name.lstrip(".")))
        why = "was edited while a commit wrote it" if link is None else "was open in another program"
        journal.report(time.time(), uri, f"{name} of {uri} {why}: it is in {place.name}")
        return None

    return look


def merge(base: bytes, hand: bytes, data: bytes) -> bytes | None:
    r"""Return a text with the changes of two, line by line; None where both have changed the same lines.

    Lines that both added at one place are kept, those of the edit last.

    >>> merge(b"- a\n- b\n", b"- a\n- b\n- mine\n", b"- new\n- a\n- b\n")
    b'- new\n- a\n- b\n- mine\n'
    >>> merge(b"- a\n", b"- mine\n", b"- other\n") is None
    True
    """
    texts = [text.splitlines(keepends=True) for text in (base, hand, data)]
    changes: list[tuple[int, int, int, list[bytes]]] = []
    for whose, lines in ((1, texts[1]), (0, texts[2])):
        matcher = difflib.SequenceMatcher(None, texts[0], lines, autojunk=False)
        changes += [
            (start, end, whose, lines[first:last])
            for kind, start, end, first, last in matcher.get_opcodes()
            if kind != "equal"
        ]
    changes.sort(key=lambda change: change[:3])
    found, place = list[bytes](), 0
    held: tuple[int, int, int, list[bytes]] | None = None
    for change in changes:
        start, end, _, lines = change
        if held is not None and change[:2] == held[:2] and lines == held[3]:
            continue  # both have made it
        if start < place:
            return None
        found += _ended(texts[0][place:start]) + _ended(lines)
        place, held = end, change
    return b"".join([*_ended(found), *texts[0][place:]])


def _ended(lines: list[bytes]) -> list[bytes]:
    """Return lines with a line break after the last one."""
    return [*lines[:-1], lines[-1] + b"\n"] if lines and not lines[-1].endswith(b"\n") else lines


def put_aside(aside: Path, uri: str, files: Image) -> Path:
    """Keep a copy of some files, with the URI that they are of, and return its folder."""
    aside.mkdir(mode=0o700, exist_ok=True)
    place = aside / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(4).hex()}"
    place.mkdir(mode=0o700)
    for name, data in {"uri": uri.encode(), **files}.items():
        path = place / name.lstrip(".")
        path.write_bytes(data)
        path.chmod(0o600)
    return place


def copies_of(aside: Path, uris: Iterable[str]) -> list[Path]:
    """Return the copies in `aside` of some URIs, and of every journal, which has images of all nodes."""
    wanted = {uri.encode() for uri in uris}
    return [*aside.glob("journal-*"), *(note.parent for note in aside.glob("*/uri") if note.read_bytes() in wanted)]


_BLOCK = 512


def redo(journal: Journal, folders: Folders, aside: Path) -> None:
    """Bring the files to the state of the journal. The lock is held; idempotent."""
    if commits := journal.unfinished():
        wanted: dict[str, dict[str, bytes | None]] = {}  # the newest image of each file
        for change in (change for sequence in commits for change in journal.changes(sequence)):
            wanted.setdefault(change.uri, {}).update(change.after)
        for uri, images in wanted.items():
            _write_again(journal, folders, uri, images, aside)
        journal.mark_applied(commits)


def _write_again(journal: Journal, folders: Folders, uri: str, change: dict[str, bytes | None], aside: Path) -> None:
    names = parse_uri(uri).folders
    try:
        present = folders.read(names)
    except StoreCorruptError:
        present = {}

    def is_known(file: str, found: bytes) -> bool:
        image = change.get(file) or b""
        return not found or (b"\0" in found and is_torn(found, image)) or found in journal.images_of(uri, file)

    look = rescue(journal, aside, uri, None, is_known)
    for file, found in folders.leftovers(names).items():
        name = file.removesuffix(NEW).removesuffix(OLD)
        if not (change.get(name) or b"").startswith(found):
            look(name, found, None, None)
    folders.drop_leftovers(names)
    stale = {file: image for file, image in change.items() if present.get(file) != image}
    if stale or not any(image is not None for image in (present | change).values()):  # its folder goes, too
        folders.write(names, stale, look)


def is_torn(present: bytes, image: bytes) -> bool:
    """Whether a file can be an image torn by a power cut.

    >>> is_torn(b"", b"hello"), is_torn(b"he", b"hello"), is_torn(bytes(5), b"hello"), is_torn(b"jello", b"hello")
    (True, True, True, False)
    """
    if len(present) > len(image):
        return False
    for start in range(0, len(present), _BLOCK):
        block = present[start : start + _BLOCK]
        if block != image[start : start + len(block)] and block.strip(b"\0"):
            return False
    return True
