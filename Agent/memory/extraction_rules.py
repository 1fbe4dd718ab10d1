"""What the rules for English and those for Chinese share: what was found so far, and names as single characters.

A sentence is read twice. First names are looked for, and each is replaced by one character of a private range of
Unicode; then verbs are looked for between these characters, by regular expressions that a reader can follow.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["NAME", "Findings", "FoundEntity", "Mention", "Mentions"]

_FIRST_NAME = 0xE000
_NAME_COUNT = 0x1000

NAME = f"[{chr(_FIRST_NAME)}-{chr(_FIRST_NAME + _NAME_COUNT - 1)}]"
"""Matches one name in a text that `Mentions` has written."""

# What the ends of a relation are where nothing else is known of them; "" is no hint.
_ENDS = {
    "works_on": ("person", ""),
    "works_at": ("person", "organisation"),
    "lives_in": ("person", "place"),
    "born_in": ("person", "place"),
    "studies_at": ("person", "organisation"),
    "teaches_at": ("person", "organisation"),
    "reports_to": ("person", "person"),
    "founded": ("person", "organisation"),
    "likes": ("person", ""),
    "dislikes": ("person", ""),
    "knows": ("person", "person"),
    "friend_of": ("person", "person"),
    "married_to": ("person", "person"),
    "parent_of": ("person", "person"),
    "child_of": ("person", "person"),
    "sibling_of": ("person", "person"),
    "speaks": ("person", "language"),
    "visited": ("person", "place"),
    "located_in": ("", "place"),
    "manages": ("person", ""),
}


@dataclass
class FoundEntity:
    """A name that was found, and what its sentences suggest that it is."""

    start: int
    end: int
    types: Counter[str] = field(default_factory=Counter)
    tags: dict[str, None] = field(default_factory=dict)


class Findings:
    """What was found so far, in the order of finding."""

    def __init__(self) -> None:
        self.entities: dict[str, FoundEntity] = {}
        self.relations: dict[tuple[str, str, str], tuple[int, int]] = {}
        """(source, target, type) → where the sentence begins and ends that says so first."""

    def add_entity(self, name: str, start: int, end: int) -> FoundEntity:
        """Note a name; one that is there already keeps its first place."""
        return self.entities.setdefault(name, FoundEntity(start, end))

    def add_relation(self, source: str, relation_type: str, target: str, span: tuple[int, int]) -> None:
        """Note a relation between two names that were noted, and what kind of thing it makes of them."""
        if source == target or source not in self.entities or target not in self.entities:
            return
        self.relations.setdefault((source, target, relation_type), span)
        for name, kind in zip((source, target), _ENDS.get(relation_type, ("", "")), strict=True):
            if kind:
                self.entities[name].types[kind] += 1


@dataclass(frozen=True)
class Mention:
    """A name where it stands in a sentence."""

    name: str
    start: int
    end: int


class Mentions:
    """The names of a sentence; `text` is the sentence with one character for each.

    Of names that overlap, the one that was given first stays.
    """

    def __init__(self, sentence: str, found: Iterable[Mention]) -> None:
        taken: list[Mention] = []
        for mention in found:
            if all(mention.end <= other.start or mention.start >= other.end for other in taken):
                taken.append(mention)
        self.all = sorted(taken[:_NAME_COUNT], key=lambda mention: mention.start)
        # What a stranger wrote in these characters must not be taken for a name.
        parts, end = [], 0
        for number, mention in enumerate(self.all):
            parts += [_without_private(sentence[end : mention.start]), chr(_FIRST_NAME + number)]
            end = mention.end
        self.text = "".join([*parts, _without_private(sentence[end:])])
        self._sentence = sentence

    def place_of(self, name: str) -> tuple[int, int]:
        """Return where in the sentence a name stands, its beginning where it is written otherwise."""
        start = max(0, self._sentence.find(name))
        return start, min(len(self._sentence), start + len(name))

    def names_in(self, part: str) -> list[str]:
        """Return the names that a part of `text` has."""
        numbers = (ord(char) - _FIRST_NAME for char in part)
        return [self.all[number].name for number in numbers if 0 <= number < len(self.all)]


def _without_private(text: str) -> str:
    return "".join(" " if _FIRST_NAME <= ord(char) < _FIRST_NAME + _NAME_COUNT else char for char in text)
