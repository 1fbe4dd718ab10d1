"""Say it in the user's language: English as it stands in the source, or Chinese, where `chinese` has it.

>>> choose("zh")
>>> say("{} written to {}", count_of(2, "keyword"), "memory.html")
'2 个关键词写入 memory.html'
>>> choose("en")
>>> say("{} written to {}", count_of(2, "keyword"), "memory.html")
'2 keywords written to memory.html'

The language is chosen once for a run, before the command is known, and a run is a process: it stands in this module.
What JSON has as keys and codes is the same in all languages. What the tree refuses is told by its English words, which
`chinese.ERRORS` knows by their form.
"""

import os
import re
from collections.abc import Mapping

__all__ = [
    "LANGUAGES",
    "LANGUAGE_VARIABLE",
    "choose",
    "choose_from_environment",
    "count_of",
    "language_of",
    "parts",
    "say",
    "say_error",
]

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


def choose(language: str) -> None:
    """Speak this language from now on."""
    global _chosen, _translations
    _chosen = language
    if language == "zh":
        from .chinese import TEXTS  # most who speak English never need it

        _translations = TEXTS
    else:
        _translations = {}


def choose_from_environment() -> None:
    """Speak what the environment asks for."""
    choose(language_of(os.environ))


def say(text: str, *values: object) -> str:
    """Return a text of the source in the chosen language, with the values put in as `str.format` does."""
    template = _translations.get(text, text)
    return template.format(*values) if values else template


def say_error(message: str) -> str:
    """Return what an error says, in the chosen language.

    >>> choose("zh")
    >>> say_error("no keyword has the id 'tea'"), say_error("name must not be empty or blank: ' '")
    ("没有 id 为 'tea' 的关键词", "名字不能为空：' '")
    >>> choose("en")
    """
    if _chosen != "zh":
        return message
    from .chinese import ERRORS

    for pattern, text in ERRORS:
        if found := re.fullmatch(pattern, message, re.DOTALL):
            said = {name: say_error(value) for name, value in found.groupdict().items()}
            return text.format(*found.groups(), **said)
    return message


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

    >>> count_of(1, "info"), count_of(43_118, "keyword")
    ('1 info', '43,118 keywords')
    """
    if _chosen == "zh":
        return f"{count:,} {say(f'# {noun}')}"
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
