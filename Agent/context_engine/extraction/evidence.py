"""Whether a model's statement is in its sources: its numbers, its names, and of a profile the words of its value.

Numbers are compared as numbers, in digits, in Chinese and in English words. A name in Latin letters is whole words; a
Chinese one shows by what stands before it (叫, 住在), or by 《》. What a statement says in other words is not looked
at, but in a profile: what the user is has to be said by the user.

>>> is_invented("Oliver is 3.", "My dog Oliver is three."), is_invented("He is called Al.", "I also like tea.")
(False, True)
>>> is_invented("五十岁", "我今年三十岁。"), is_invented("小狗叫旺财", "我的狗叫来福。")
(True, True)
>>> is_said("巴黎", "我住在罗马。"), is_said("paris", "I live in Rome."), is_said("hiking", "I hike a lot.")
(False, False, True)
"""

import re

from ..core.text import fold
from ..providers.word_index import terms_of
from .cues import proper_names

__all__ = ["is_invented", "is_said"]

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_find_words = re.compile(rf"[^\W_{_UNSPACED}]+").findall
_find_characters = re.compile(rf"[{_UNSPACED}]").findall
_find_runs = re.compile(rf"[{_UNSPACED}]+").findall

# -- numbers --

_find_digits = re.compile(r"\d+(?:[.,:]\d+)*").findall
_CHINESE_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1_000, "万": 10_000, "亿": 100_000_000}
_NUMERAL = f"[{''.join(_CHINESE_DIGITS)}{''.join(_CHINESE_UNITS)}]"
# One character alone counts before a measure word only, and 一 never: 一个 is an article, 四川 a place.
_find_numerals = re.compile(
    rf"{_NUMERAL}{{2,}}|(?<!{_NUMERAL})[二两三四五六七八九十](?=[岁年月日号点天周个只条口次元块米人楼层倍斤辆台本张])"
).findall
_NO_NUMERALS = frozenset(("千万", "万一", "一一", "万千", "三三两两"))
_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""".split()  # noqa: SIM905  read as a text
_ENGLISH = {word: value for value, word in enumerate(_SMALL) if value != 1}  # "the one" is none
_ENGLISH |= {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)  # noqa: SIM905
}
_find_english = re.compile(
    rf"\b(?:(?:twen|thir|for|fif|six|seven|eigh|nine)ty[- ](?:{'|'.join(_SMALL[1:10])})|{'|'.join(_ENGLISH)})\b"
).findall


def _numbers_of(text: str) -> set[str]:
    """Return the numbers of a folded text, each as it is written in digits."""
    digits = {re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r",(?=\d{3}\b)", "", number)) for number in _find_digits(text)}
    chinese = {_read_chinese(numeral) for numeral in _find_numerals(text) if numeral not in _NO_NUMERALS}
    english = {
        str(sum(_ENGLISH.get(part, _SMALL.index(part) if part in _SMALL else 0) for part in re.split("[- ]", words)))
        for words in _find_english(text)
    }
    return digits | chinese | english


def _read_chinese(numeral: str) -> str:
    """Return a Chinese numeral in digits: 三十五 is 35, 二〇二六 is 2026."""
    if not any(char in _CHINESE_UNITS for char in numeral):
        return "".join(str(_CHINESE_DIGITS[char]) for char in numeral).lstrip("0") or "0"
    total = section = digit = 0
    for char in numeral:
        unit = _CHINESE_UNITS.get(char, 0)
        if not unit:
            digit = _CHINESE_DIGITS[char]
        elif unit < 10_000:
            section, digit = section + (digit or 1) * unit, 0
        else:
            total, section, digit = (total + section + digit or 1) * unit, 0, 0
    return str(total + section + digit)


# -- names --

_find_named = re.compile(
    rf"(?:名叫|叫做|叫|名字是|住在|搬到|来自|定居在|就职于|任职于)([{_UNSPACED}]{{1,12}}?)(?=[的了]|[^{_UNSPACED}]|$)"
).findall


# Words that a statement begins with, in capitals, and that are no names.
_OPENERS = frozenset(
    """user users likes loves prefers enjoys dislikes hates wants needs asks works lives has owns uses plans speaks
    always never please""".split()  # noqa: SIM905  read as a text
)


def is_invented(text: str, said: str) -> bool:
    """Whether a text has a number or a name that its sources do not have."""
    folded = fold(said)
    if not _numbers_of(fold(text)) <= _numbers_of(folded):
        return True
    words = _OPENERS | set(_find_words(folded))
    for name in map(fold, proper_names(f"x {text}")):  # so that the first word counts, too
        runs = _find_runs(name)
        if not set(_find_words(name)) <= words or not all(run in folded for run in runs):
            return True
    named = map(fold, _find_named(text))  # where it ends nobody knows: 他小王, 杭州和苏州
    return any(2 * sum(char in folded for char in name) < len(name) for name in named)


# -- words --

_FRAME = frozenset(
    "的了是在我你他她它们住叫名字姓工作上班做当一个位只岁年月日号人有也和与用户今现目前已经来自从为居职业"
)
_FRAME_TERMS = frozenset(terms_of("user name called live work job year old age birthday born city person"))


def is_said(value: str, said: str) -> bool:
    """Whether all that a value says is in its sources: its words without their endings, or its characters.

    Numbers are left to `is_invented`.
    """
    terms, folded = set(terms_of(said)), fold(said)
    words = {term for term in terms_of(value) if not _find_characters(term) and not re.search(r"\d", term)}
    numerals = set("".join(_find_numerals(value)))
    characters = set(_find_characters(fold(value))) - _FRAME - numerals
    words -= {part for number in _find_english(fold(value)) for part in terms_of(number)}
    return words <= terms | _FRAME_TERMS and all(char in folded for char in characters)
