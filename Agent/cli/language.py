"""Say it in the user's language: English as it is in the source, or Chinese, where `chinese` has it.

>>> choose("zh")
>>> say("{} written to {}", count_of(2, "keyword"), "memory.html")
'2 个关键词写入 memory.html'
>>> choose("en")
>>> say("{} written to {}", count_of(2, "keyword"), "memory.html")
'2 keywords written to memory.html'

The language is chosen once for a run, before the command is known, and a run is a process: it is kept in this module.
What JSON has as keys and codes is the same in all languages. What the tree refuses is found by its English template.
"""

import os
import re
from collections.abc import Mapping
from functools import cache

__all__ = [
    "LANGUAGES",
    "LANGUAGE_VARIABLE",
    "chinese_of",
    "choose",
    "choose_from_environment",
    "count_of",
    "language_of",
    "parts",
    "say",
    "say_error",
    "say_in_environment",
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


def say_in_environment(text: str, *values: object) -> str:
    """Return a text in the language that the environment asks for: for a library, which chooses none."""
    if language_of(os.environ) == "zh":
        from .chinese import TEXTS

        text = TEXTS.get(text, text)
    return text.format(*values)


def say_error(message: str) -> str:
    """Return what an error says, in the chosen language.

    >>> choose("zh")
    >>> say_error("no keyword has the id 'tea'"), say_error("name must not be empty or blank: ' '")
    ("没有 id 为 'tea' 的关键词", "名字不能为空：' '")
    >>> choose("en")
    """
    return chinese_of(message) if _chosen == "zh" else message


def chinese_of(message: str) -> str:
    """Return what an error says in Chinese, whatever the chosen language; what no template fits stays in English."""
    from .chinese import ERRORS

    if message in ERRORS:
        return ERRORS[message]
    for template, chinese in _most_literal_first():
        pieces = template.split("{}")
        if all(piece in message for piece in pieces):
            found = re.fullmatch("(.+?)".join(map(re.escape, pieces)), message, re.DOTALL)
            if found:
                return chinese.format(*map(_Value, found.groups()))
    context, colon, rest = message.partition(": ")
    said = chinese_of(rest) if colon else rest
    return message if said == rest else f"{context}：{said}"


class _Value(str):
    """The value at a place of a template; `{0:zh}` puts it into Chinese."""

    def __format__(self, spec: str) -> str:
        return chinese_of(str(self)) if spec == "zh" else super().__format__(spec)


@cache
def _most_literal_first() -> list[tuple[str, str]]:
    """Return the templates with places: of two that fit a message, the one that says more of it comes first."""
    from .chinese import ERRORS

    return sorted(((key, ERRORS[key]) for key in ERRORS if "{}" in key), key=lambda pair: -len(pair[0]))


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
