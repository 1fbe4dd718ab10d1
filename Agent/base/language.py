"""Say it in the user's language: English as it is in the source, or Chinese, where `chinese.toml` has it.

>>> choose("zh")
>>> say("added {}", "茶"), count_of(2, "keyword")
('已添加 茶', '2 个关键词')
>>> choose("en")
>>> say("added {}", "茶"), count_of(2, "keyword")
('added 茶', '2 keywords')

The language is chosen once for a run, before the command is known, and a run is a process: it is kept in this module.
Errors of the library are English in every language, and so are keys and codes of JSON.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "zh")
LANGUAGE_VARIABLE = "KEYWORD_TREE_LANG"

_LOCALES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
"""As gettext asks them."""

_PLACE = re.compile(r"\{(\d*)\}")

_chosen = "en"
_translations: Mapping[str, str] = {}


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language that an environment asks for: its own variable first, then the locale, else English."""
    for name in (LANGUAGE_VARIABLE, *_LOCALES):
        wanted = environment.get(name, "")
        if wanted:
            return "zh" if wanted.lower().startswith("zh") else "en"
    return "en"


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Return the Chinese: `texts` by the English, and the help of `commands` by their words.

    Cost: the first call reads a file, some 15 ms; English never does.
    """
    import tomllib  # which most who speak English never need

    return tomllib.loads(Path(__file__).with_name("chinese.toml").read_text(encoding="utf-8"))


def choose(language: str) -> None:
    """Speak this language from now on."""
    global _chosen, _translations
    _chosen = language
    _translations = catalogue()["texts"] if language == "zh" else {}


def choose_from_environment() -> None:
    """Choose the language of the environment."""
    choose(language_of(os.environ))


def is_chinese() -> bool:
    """Tell whether Chinese was chosen."""
    return _chosen == "zh"


def say(text: str, *values: object) -> str:
    """Return a text of the source in the chosen language, with the values put in as `str.format` does."""
    template = _translations.get(text, text)
    return template.format(*values) if values else template


def say_in_environment(text: str, *values: object) -> str:
    """Return a text in the language that the environment asks for: for a library, which chooses none."""
    return say_in(language_of(os.environ), text, *values)


def say_in(language: str, text: str, *values: object) -> str:
    """Return a text in a language, whatever the chosen one: for a server, which speaks several."""
    template = catalogue()["texts"].get(text, text) if language == "zh" else text
    return template.format(*values) if values else template


def parts(text: str, *values: str) -> list[str | tuple[str, str]]:
    """Return the same in pieces, of which the values are bold."""
    pieces: list[str | tuple[str, str]] = []
    place = 0
    for number, found in enumerate(_PLACE.finditer(template := say(text))):
        pieces += [template[place : found.start()], (values[int(found[1] or number)], "bold")]
        place = found.end()
    return [*pieces, template[place:]]


def count_of(count: int, noun: str) -> str:
    """Return a number and what is counted.

    >>> count_of(1, "info"), count_of(43_118, "keyword"), count_of(2, "memory")
    ('1 info', '43,118 keywords', '2 memories')
    """
    if _chosen == "zh":
        return f"{count:,} {say(f'# {noun}')}"
    if count != 1:
        noun = f"{noun.removesuffix('y')}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun}"
