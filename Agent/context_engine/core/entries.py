r"""Lists of entries, which people can read and edit: what a profile, an aggregate or a skill says, newest first.

    - lives_in: Rome <!-- e:9f2c41d0ab12 at:2026-11-20T08:00:00Z from:0002-1f3a9c04#m7 -->
    - ~~lives_in: Paris~~ <!-- e:41d09f2cab34 at:2026-03-02 until:2026-11-20T08:00:00Z by:9f2c41d0ab12 -->

A time is a moment in UTC; a day alone is its midnight. A bullet without a comment, as people write it, is an entry,
too. All other lines stay where they are.

>>> entries = parse_entries("# Tea\n- no sugar\n")
>>> entries[1].text, entries[1].at
('no sugar', '')
>>> render_entries(entries)
'# Tea\n- no sugar\n'
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...base.text import digest_of, fold, one_line
from .objects import CandidateMemory

_parse = re.compile(r"[-*+]\s+(?P<text>\S.*|)$").match
_parse_note = re.compile(r"<!--\s*(?P<note>e:[^>]*)-->").fullmatch
_parse_struck = re.compile(r"^~~(.*)~~$").match
_parse_key = re.compile(r"^([a-z_]{2,32}): ").match


@dataclass(frozen=True)
class Entry:
    """One line of a list: an entry, or (`is_entry` false) any other line."""

    text: str
    id: str = ""
    at: str = ""
    """When it was said: a moment or a day, in UTC; "" where that is unknown. Texts of both compare in order."""
    sources: tuple[str, ...] = ()
    """`archive#message` for each."""
    until: str = ""
    by: str = ""
    """The entry that took its place."""
    is_struck: bool = False
    is_entry: bool = True
    line: str = ""
    """As it stands in the file, while it is unchanged."""

    @property
    def key(self) -> str:
        """What can have one value only: `lives_in`; "" for the most."""
        match = _parse_key(self.text)
        return match[1] if match else ""

    def supersede(self, by: "Entry") -> "Entry":
        """Return the entry struck out; nothing of it is lost."""
        return replace(self, is_struck=True, until=by.at, by=by.id, line="")

    def with_sources(self, sources: Sequence[str]) -> "Entry":
        """Return the entry with other sources, too."""
        more = [source for source in dict.fromkeys(sources) if source not in self.sources]
        return replace(self, sources=(*self.sources, *more), line="") if more else self

    def render(self) -> str:
        """Return the line."""
        if self.line or not self.is_entry:
            return self.line
        named = {"e": self.id, "at": self.at, "until": self.until, "by": self.by, "from": ",".join(self.sources)}
        notes = [f"{name}:{value}" for name, value in named.items() if value or name == "e"]
        text = f"~~{self.text}~~" if self.is_struck else self.text
        return f"- {text} <!-- {' '.join(notes)} -->"


def safe_text(text: str) -> str:
    r"""Return a text as an entry can hold it: on one line, and without what would begin or end a note.

    >>> safe_text("tea <!-- e:1 at:2099-01-01 -->\n~~always~~")
    'tea ‹!-- e:1 at:2099-01-01 --› ∼∼always∼∼'
    """
    return one_line(text).replace("<!--", "‹!--").replace("-->", "--›").replace("~~", "∼∼")


def entry_id(category: str, slug: str, text: str) -> str:
    """Return an entry's id: the same thing said again is the same entry."""
    return digest_of(category, slug, fold(text), size=6)


def candidate_id(candidate: CandidateMemory) -> str:
    """Return the key of a candidate in its archive's ledger: the same is not applied twice."""
    return digest_of(candidate.category, fold(candidate.routing_key), fold(candidate.content), size=6)


def parse_entries(content: str, category: str = "", slug: str = "") -> list[Entry]:
    """Return the lines of a content; entries without an id get the one that follows from their text."""
    found = []
    for line in content.splitlines():
        stripped = line.strip()
        match = _parse(stripped)
        if match is None:
            found.append(Entry("", is_entry=False, line=line))
            continue
        end = stripped.rfind("<!--")
        note = _parse_note(stripped[end:]) if end >= 0 else None
        notes = dict(part.partition(":")[::2] for part in note["note"].split()) if note else {}
        text = stripped[match.start("text") : end].rstrip() if note else match["text"]
        struck = _parse_struck(text)
        text = struck[1] if struck else text
        sources = tuple(filter(None, notes.get("from", "").split(",")))
        id = notes.get("e") or entry_id(category, slug, text)
        at, until, by = (notes.get(name, "") for name in ("at", "until", "by"))
        found.append(Entry(text, id, at, sources, until, by, bool(struck), line=line))
    return found


def render_entries(entries: Sequence[Entry]) -> str:
    """Return the content that entries make."""
    return "".join(f"{entry.render()}\n" for entry in entries)


def current_entries(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that hold now."""
    return [entry for entry in entries if entry.is_entry and not entry.is_struck]
