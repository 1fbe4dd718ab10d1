"""Every regular expression of the package, against 100,000 characters of its worst kind: none takes half a second.

What looks 200 characters ahead at each character takes a quarter of that; a quadratic one takes minutes.

The texts are built from the pattern itself: each character, class and group of it over and over, alone, in pairs, and
with an end that does not fit, so that whatever can be tried again is tried again. A pattern is used as its module does.
"""

import importlib
import inspect
import pkgutil
import re
import time
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import Agent

SIZE, SECONDS = 100_000, 0.5
COVERED = {"keyword_tree", "base", "finding", "memory", "context_engine", "knowhub", "models", "formats"}
_SKIPPED = re.compile(r"\.(?:test_keyword_tree|tests|__main__)(?:\.|$)")


def find_patterns() -> dict[str, tuple[re.Pattern[Any], str]]:
    """Return every compiled pattern that a module of the package holds, by where it stands, and how it is used."""
    found: dict[str, tuple[re.Pattern[Any], str]] = {}
    seen: set[tuple[Any, int, str]] = set()
    for module in pkgutil.walk_packages(Agent.__path__, "Agent."):
        if _SKIPPED.search(module.name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                imported = importlib.import_module(module.name)
        except ImportError:  # of an extra that is not installed
            continue
        for name, value in list(vars(imported).items()):
            for pattern, use in _patterns_in(value, _uses_of(name, imported)):
                if (pattern.pattern, pattern.flags, use) not in seen:
                    seen.add((pattern.pattern, pattern.flags, use))
                    found[f"{module.name}.{name} {len(found)}"] = pattern, use
    return found


def _uses_of(name: str, module: ModuleType) -> set[str]:
    """Return the methods that a module calls of a pattern: those that anchor it, and `finditer` for all others."""
    called = set(re.findall(rf"\b{name}\.(\w+)\(", inspect.getsource(module)))
    return {use if use in ("match", "fullmatch", "search") else "finditer" for use in called} or {"finditer"}


def _patterns_in(value: Any, uses: set[str], depth: int = 2) -> Iterator[tuple[re.Pattern[Any], str]]:
    if isinstance(value, re.Pattern):
        yield from ((value, use) for use in sorted(uses))
    elif isinstance(getattr(value, "__self__", None), re.Pattern):  # `re.compile(…).search`
        yield value.__self__, value.__name__ if value.__name__ in ("match", "fullmatch", "search") else "finditer"
    elif depth and isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _patterns_in(each, {"finditer"}, depth - 1)


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
    assert {name.split(".")[1] for name in PATTERNS} >= COVERED


@pytest.mark.parametrize("name", PATTERNS)
def test_takes_no_time(name: str) -> None:
    pattern, use = PATTERNS[name]
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    texts = worst_texts(source)
    texts.sort(key=lambda text: -_time(pattern, use, build(text, SIZE // 100)))
    for text in texts[:3]:
        for size in (SIZE // 10, SIZE):
            assert _time(pattern, use, build(text, size)) < SECONDS, (size, text)


def _time(pattern: re.Pattern[Any], use: str, text: str) -> float:
    given: Any = text.encode("utf-8", "replace") if isinstance(pattern.pattern, bytes) else text
    start = time.process_time()
    found = getattr(pattern, use)(given)
    if use == "finditer":
        for _ in found:
            pass
    return time.process_time() - start
