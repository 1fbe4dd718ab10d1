"""Every regular expression of the package, against 100,000 characters of its worst kind: none takes 0.1 s.

The texts are built from the pattern itself: each character, class and group of it over and over, alone, in pairs, and
with an end that does not fit, so that whatever can be tried again is tried again. `make storm` takes all modules.
"""

import importlib
import os
import pkgutil
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import Agent

SIZE, SECONDS = 100_000, 0.1
STORM = bool(os.environ.get("KEYWORD_TREE_STORM"))  # else the modules that read what people say to an agent
READERS = (
    *("Agent.base.speech", "Agent.base.text"),
    *("Agent.memory.extraction", "Agent.memory.relation_words", "Agent.memory.keywords"),
    *("Agent.models.lexical_client", "Agent.context_engine.core"),
)
COVERED = {"finding", "memory", "context_engine", "knowhub", "secrets_in_text", "formats", "cli", "lexical_client"}
_SKIPPED = re.compile(r"\.(?:test_keyword_tree|tests|__main__)(?:\.|$)")


def find_patterns() -> dict[str, tuple[re.Pattern[Any], str]]:
    """Return every compiled pattern that a module of the package holds, by where it stands, and how it is used."""
    found: dict[str, tuple[re.Pattern[Any], str]] = {}
    seen: set[tuple[Any, int, str]] = set()
    for module in pkgutil.walk_packages(Agent.__path__, "Agent."):
        if _SKIPPED.search(module.name) or not (STORM or module.name.startswith(READERS)):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a module at its former path
                held = vars(importlib.import_module(module.name))
        except ImportError:  # of an extra that is not installed
            continue
        for name, value in list(held.items()):
            for pattern, use in _patterns_in(value):
                if (pattern.pattern, pattern.flags, use) not in seen:
                    seen.add((pattern.pattern, pattern.flags, use))
                    found[f"{module.name}.{name} {len(found)}"] = pattern, use
    return found


def _patterns_in(value: Any, depth: int = 2) -> Iterator[tuple[re.Pattern[Any], str]]:
    if isinstance(value, re.Pattern):
        yield value, "finditer"
    elif isinstance(getattr(value, "__self__", None), re.Pattern):  # `re.compile(…).search`
        yield value.__self__, value.__name__ if value.__name__ in ("match", "fullmatch", "search") else "finditer"
    elif depth and isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _patterns_in(each, depth - 1)


PATTERNS = find_patterns()


def pieces_of(pattern: str) -> list[str]:
    """Return short texts that a pattern is made of."""
    literal = re.sub(r"\\[bBAZwWsSdD]|\(\?(?:P<\w+>|[a-zA-Z]*:|[=!]|<[=!])|[()|*+?^$]|\{\d*,?\d*\}", "\n", pattern)
    literal = re.sub(r"\\(.)", r"\1", literal)
    words = [word for line in literal.split("\n") for word in re.split(r"[\[\]]", line) if word]
    characters = dict.fromkeys([*"aA0 .\n'我，:<", *(char for word in words for char in word)])
    return [*words[:10], *list(characters)[:20]]


def worst_texts(pattern: str) -> list[tuple[str, str, str]]:
    """Return how to build texts: a beginning, a piece that is repeated, an end."""
    pieces = [piece for piece in pieces_of(pattern) if len(piece) <= 40]
    made = [("", piece, end) for piece in pieces for end in ("", "!")]
    for first, second in zip(pieces, [*pieces[1:], *pieces[:1]], strict=True):
        made += [("", first + second, ""), (first, second, ""), ("", first, second)]
    return made


def build(text: tuple[str, str, str], size: int) -> str:
    beginning, piece, end = text
    return beginning + (piece * (size // len(piece) + 1))[:size] + end


def test_there_are_patterns() -> None:
    assert len(PATTERNS) > 20
    assert not STORM or {name.split(".")[1] for name in PATTERNS} >= COVERED


@pytest.mark.parametrize("name", PATTERNS)
def test_takes_no_time(name: str) -> None:
    pattern, use = PATTERNS[name]
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    texts = worst_texts(source)
    texts.sort(key=lambda text: -_time(pattern, use, build(text, SIZE // 100)))
    for text in texts[:3]:
        assert _time(pattern, use, build(text, SIZE)) < SECONDS, text


def _time(pattern: re.Pattern[Any], use: str, text: str) -> float:
    given: Any = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    start = time.process_time()
    found = getattr(pattern, use)(given)
    if use == "finditer":
        for _ in found:
            pass
    return time.process_time() - start
