"""Say it in the user's language: English as it is in the source, or Chinese, where `chinese.toml` has it.

>>> choose("zh")
>>> say("{} written to {}", count_of(2, "keyword"), "memory.html")
'2 个关键词写入 memory.html'
>>> choose("en")
>>> say("{} written to {}", count_of(2, "keyword"), "memory.html")
'2 keywords written to memory.html'

The language is chosen once for a run, before the command is known, and a run is a process: it is kept in this module.
What JSON has as keys and codes is the same in all languages. What the tree refuses is found by its English template.
"""

import argparse
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

__all__ = [
    "LANGUAGES",
    "LANGUAGE_VARIABLE",
    "Parser",
    "catalogue",
    "chinese_of",
    "choose",
    "choose_from_environment",
    "count_of",
    "is_chinese",
    "language_of",
    "parts",
    "say",
    "say_error",
    "say_help",
    "say_in_environment",
    "say_lines",
    "sentence",
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


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Return what is said in Chinese: `texts` by the English, `errors` by the English template, help of `commands`.

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
    """Speak what the environment asks for."""
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
    if language_of(os.environ) == "zh":
        text = catalogue()["texts"].get(text, text)
    return text.format(*values)


def say_error(message: str) -> str:
    """Return what an error says, in the chosen language.

    >>> choose("zh")
    >>> say_error("no keyword has the id 'tea'"), say_error("name must not be empty or blank: ' '")
    ("没有 id 为 'tea' 的关键词", "名字不能为空：' '")
    >>> choose("en")
    """
    return chinese_of(message) if _chosen == "zh" else message


def say_lines(report: str) -> str:
    """Return a report of which each line is a sentence, in the chosen language."""
    return "\n".join(map(say_error, report.split("\n")))


def chinese_of(message: str) -> str:
    """Return what an error says in Chinese, whatever the chosen language; what no template fits stays in English."""
    texts, errors = catalogue()["texts"], catalogue()["errors"]
    if message in errors or message in texts:
        return errors.get(message) or texts[message]
    for template in _most_literal_first():
        pieces = template.split("{}")
        if all(piece in message for piece in pieces):
            pattern = "(.+?)".join(map(re.escape, pieces))
            if not pieces[0]:  # a value at the beginning ends at a colon: the beginning of any message would fit
                pattern = pattern.replace("(.+?)", "((?:(?!: ).)+?)", 1)
            found = re.fullmatch(pattern, message, re.DOTALL)
            if found:
                return errors[template].format(*map(_Value, found.groups()))
    context, colon, rest = message.partition(": ")
    said = chinese_of(rest) if colon else rest
    return message if said == rest else f"{context}：{said}"


_LIST = re.compile(r"""('[^']*'|"[^"]*"|[^\s,'"]+)(, ('[^']*'|"[^"]*"|[^\s,'"]+))*( or ('[^']*'|"[^"]*"|[^\s,'"]+))?""")
"""Several values; what stands within quotes is one of them."""


class _Value(str):
    """The value at a place of a template; `{0:zh}` puts it into Chinese, and a list has Chinese commas."""

    def __format__(self, spec: str) -> str:
        if spec == "zh" and (said := chinese_of(str(self))) != self:
            return said
        if not _LIST.fullmatch(self):
            return str(self)
        return re.sub(r"""('[^']*'|"[^"]*")|, | or """, lambda found: found[1] or _BETWEEN[found[0]], self)


_BETWEEN = {", ": "、", " or ": " 或 "}


@cache
def _most_literal_first() -> list[str]:
    """Return the templates with places: of two that fit a message, the one that says more of it comes first."""
    return sorted((key for key in catalogue()["errors"] if "{}" in key), key=len, reverse=True)


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


def sentence(text: str) -> str:
    """Return the help of an option as `keyword-tree` shows it.

    >>> sentence("seconds for which it is tried again")
    'Seconds for which it is tried again.'
    """
    text, bracket, extra = text.partition("  [")
    said = text if " " not in text else text[0].upper() + text[1:].rstrip(".") + "."
    return said + bracket + extra


def say_help(text: str) -> str:
    """Return an option's help in the chosen language, with what stands after it in brackets."""
    said = say(text)
    if said == text:
        text, bracket, extra = text.rpartition("  [")
        said = f"{say(text)}{bracket}{extra}" if bracket else said
    for english in ("[default: ", "[env: ", "; default: ", "; x>=", "x>="):
        said = said.replace(english, say(english))
    return said


class Parser(argparse.ArgumentParser):
    """Reads the words of a command that runs without click, too, and shows its help in the chosen language."""

    @override
    def format_help(self) -> str:
        if not is_chinese():
            return super().format_help()
        commands = catalogue()["commands"]
        words = re.sub(r"^python -m [\w.]*\.|^keyword-tree[ -]", "", self.prog)
        words = words.replace("knowhub", "hub").replace("shared_tree", "shared")
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        self.description, self.epilog = commands.get(words, "").replace("\b\n", ""), None
        self._optionals.title, self._positionals.title = say("Options"), say("Arguments")
        for action in self._actions:
            for one in (action, *getattr(action, "_choices_actions", ())):
                one.help = one.help and commands.get(f"{words} {one.dest}", say_help(sentence(one.help)))
        return super().format_help().replace("usage: ", say("Usage: "), 1)

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.format_usage()}{self.prog}: {say_error(message)}\n")
