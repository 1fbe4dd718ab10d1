"""What a dead process or a power cut left undone is done again, from the images in the journal.

For each file the newest image counts. A file that equals it stays; one that is missing, empty, torn, or an older image
is written. Any other may be somebody's work: it is copied to `.ctx/aside/` first, and reported. So is one that is only
shorter than the image: a power cut may have done that, or somebody who has deleted its last lines.

    torn    no longer than the image, and each block of it is the image's or zeros, of which it has some
"""

from collections.abc import Iterable
from pathlib import Path

from ..core.config import META
from ..core.errors import StoreCorruptError
from .folders import NEW, OLD, Folders
from .journal import MOVE, Commit, Journal
from .rescue import Rescue
from .uri import parse_uri

__all__ = ["is_torn", "redo"]

_BLOCK = 512


def redo(journal: Journal, folders: Folders, boot: str, aside: Path) -> list[str]:
    """Bring the files to what the journal says, and return a sentence for each file that was put aside.

    Must run under the store's lock. Running it twice changes nothing more.
    """
    commits = journal.unfinished(boot)
    if not commits:
        return []
    _make_moves(commits, folders)
    wanted = _newest_images(commits)
    reports = [
        report for uri, change in wanted.items() for report in _write_again(journal, folders, uri, change, aside)
    ]
    journal.mark_applied([commit.sequence for commit in commits], boot)
    return reports


def _make_moves(commits: Iterable[Commit], folders: Folders) -> None:
    """Make the moves that were not made yet.

    The last one whose folder is at its new place, and not at its old one, was made, and so were those before: they are
    made in their order. Of a folder that has come back it does not matter whether it was ever away.
    """
    moves = [
        (parse_uri(step.uri).folders, parse_uri((step.after or b"").decode()).folders)
        for commit in commits
        for step in commit.steps
        if step.file == MOVE
    ]
    made = [folders.is_taken(to) and not folders.is_taken(source) for source, to in moves]
    first = len(made) - made[::-1].index(True) if True in made else 0
    for source, to in moves[first:]:
        if folders.is_taken(source) and not folders.is_taken(to):
            folders.write(to, {META: None})  # what led on from there
            folders.move(source, to)


def _newest_images(commits: Iterable[Commit]) -> dict[str, dict[str, bytes | None]]:
    """Return what each file must be, by where its node is now."""
    wanted: dict[str, dict[str, bytes | None]] = {}
    for commit in commits:
        for step in commit.steps:
            if step.digest and step.after is None:  # given up after a sync: the file alone has it
                continue
            if step.file != MOVE:
                wanted.setdefault(step.uri, {})[step.file] = step.after
                continue
            to = (step.after or b"").decode()
            # What was at the new place before is gone: the folder that comes brings all of its own.
            wanted = {uri: change for uri, change in wanted.items() if not _is_beneath(uri, to)}
            wanted = {
                to + uri[len(step.uri) :] if _is_beneath(uri, step.uri) else uri: change
                for uri, change in wanted.items()
            }
    return wanted


def _is_beneath(uri: str, above: str) -> bool:
    return uri == above or uri.startswith(f"{above}/")


def _write_again(
    journal: Journal, folders: Folders, uri: str, change: dict[str, bytes | None], aside: Path
) -> list[str]:
    names = parse_uri(uri).folders
    try:
        present = folders.read(names)
    except StoreCorruptError:
        present = {}

    def is_known(file: str, found: bytes) -> bool:
        image = change.get(file) or b""
        return not found or (b"\0" in found and is_torn(found, image)) or found in journal.images_of(uri, file)

    rescue = Rescue(journal, aside, uri, None, is_known)
    for file, found in folders.leftovers(names).items():
        name = file.removesuffix(NEW).removesuffix(OLD)
        if not is_known(name, found) and not (change.get(name) or b"").startswith(found):
            rescue.rescue(name, found, None, None)
    folders.drop_leftovers(names)
    stale = {file: image for file, image in change.items() if present.get(file) != image}
    if stale or not any(image is not None for image in (present | change).values()):  # its folder goes, too
        folders.write(names, stale, rescue)
    return rescue.reports


def is_torn(present: bytes, image: bytes) -> bool:
    """Whether a file is what a power cut can have left of an image.

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
