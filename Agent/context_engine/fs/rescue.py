"""What a hand has written while a commit ran is merged with the commit, or kept in `.ctx/aside/` and reported.

A commit compares, syncs its images, and then writes the files. Whatever a program writes in between is found by
`Folders.write`, which looks at each file that it has taken from its place, and hands it to `Rescue`.
"""

import difflib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..core.config import ABSTRACT, CONTENT, OVERVIEW
from .folders import Image
from .journal import Journal, Step

__all__ = ["Rescue", "copies_of", "merge", "put_aside"]


class Rescue:
    """Looks at the files that the writing of one node takes from their places.

    Args:
        journal: Where it reports.
        aside: Where it keeps what cannot be merged.
        uri: The node.
        before: What each file was expected to be, where None is no file; without, nothing is merged.
        is_known: What else it may have been.
        sequence: Of the commit, whose history what is merged goes to.
    """

    def __init__(
        self,
        journal: Journal,
        aside: Path,
        uri: str,
        before: Mapping[str, bytes | None] | None,
        is_known: Callable[[str, bytes], bool] = lambda name, taken: False,
        sequence: int = 0,
    ) -> None:
        self._journal, self._aside, self._uri = journal, aside, uri
        self._before, self._may_merge = dict(before or {}), before is not None
        self._is_known, self._sequence = is_known, sequence
        self.reports: list[str] = []

    def is_known(self, name: str, taken: bytes) -> bool:
        """Whether it is what was expected."""
        return taken == self._before.get(name) or self._is_known(name, taken)

    def rescue(self, name: str, taken: bytes, data: bytes | None, link: Callable[[str], None] | None) -> bytes | None:
        """Merge it, or keep it aside and report."""
        base, self._before[name] = self._before.get(name) or b"", data
        if self._may_merge and data is not None and link is None and name in (ABSTRACT, OVERVIEW, CONTENT):
            merged = merge(base, taken, data)
            if merged is not None:
                # An editor that has read the file in between writes over what is merged: the history has it then.
                self._journal.add_step(self._sequence, Step(self._uri, name, taken, data))
                return merged
        place = put_aside(self._aside, self._uri, {name: taken} if link is None else {})
        if link is not None:
            link(str(place / name.lstrip(".")))
        why = "was changed by hand while a commit wrote it" if link is None else "was open in another program"
        self.reports.append(f"{name} of {self._uri} {why}: it is in {place.name}")
        self._journal.report(time.time(), self._uri, self.reports[-1])
        return None


def merge(base: bytes, hand: bytes, data: bytes) -> bytes | None:
    r"""Return a text with the changes of two, line by line; None where both have changed the same lines.

    What both have added at one place is kept, the hand's after the other's.

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
    """Return lines of which the last one ends, too, so that another can come after it."""
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
    """Return the folders of what was put aside of some URIs, and of every journal: it has images of all."""
    wanted = set(uris)
    found = list(aside.glob("journal-*"))
    for place in sorted(aside.glob("*")) if aside.is_dir() else []:
        try:
            if (place / "uri").read_text(encoding="utf-8") in wanted:
                found.append(place)
        except OSError:
            continue
    return found
