"""Text to terms: words with a light stemmer, characters and pairs of scripts without blanks, trigrams; questions.

>>> terms("Deployed KeywordTrees, C++"), terms("杭州茶")
(['deploy', 'keywordtr', 'keyword', 'tre', 'c++'], ['杭', '州', '茶', '杭州', '州茶'])
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, compress
from operator import add, not_
from string import ascii_lowercase

from ..base.text import split_sentences as sentences
from ..keyword_tree import INVISIBLE, POINTS

__all__ = ["KINDS", "STOP_WORDS", "asked_words", "corrections", "cut_question", "drop_asking", "drop_greeting"]
__all__ += ["drop_units", "find_runs", "fold", "has_digit", "is_unspaced", "kinds", "passages", "question", "sentences"]
__all__ += ["terms", "trigrams", "words"]

# Letters of scripts that put no blanks between words.
_UNSPACED = (
    "\u0e01-\u0e4e\u0e50-\u0e59\u0e80-\u0eff\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17d7\u17dc-\u17ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3031-\u303c\u3041-\u30fa\u30fc-\u312f\u31a0-\u9fff가-힣"
    "\uf900-\ufaff\U00020000-\U0003ffff"
    "\u2600-\u27bf\U0001f300-\U0001faff"  # and emoji
)
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0dff"
_LETTER = rf"[^\W_{_UNSPACED}]"
# C++, C# and .NET are names, and other ones than C and net; 3.5 is a number, and another one than 3.
find_runs = re.compile(
    rf"([{_UNSPACED}]++)|(\d++\.\d++|(?:(?<![\w.])\.(?={_LETTER}))?(?:{_LETTER}++|[{_MARKS}]++)++(?:\+\+|#)?)"
).findall
"""Return the runs of letters in a text, each as a pair of which one is empty: of unspaced scripts, of others."""
_find_ascii_words = re.compile(
    r"[0-9]++\.[0-9]++|[0-9A-Za-z]++(?:\+\+|#)?|(?<![\w.])\.[0-9A-Za-z]++(?:\+\+|#)?", re.ASCII
).findall  # the same words of a text in ASCII, in a third of the time
_find_parts = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])|\d+").findall
_drop_separators = re.compile(r",(?<=\d,)(?<!\d{4},)(?=\d{3}(?!\d))").sub  # 3,000 is 3000
_drop_accents = re.compile("[\u0300-\u036f]+").sub
_drop_unseen = re.compile(f"[{INVISIBLE}{POINTS}]").sub
_is_accented = re.compile("[\u00c0-\u024f\u0300-\u052f\u1e00-\u1fff]").search
is_unspaced = re.compile(f"[{_UNSPACED}]").match
has_digit = re.compile(r"\d").search
_has_vowel = re.compile("[aeiouy]").search
_is_short = re.compile("[^aeiou][aeiouy][^aeioswxyz]").fullmatch
_WORD_LIMIT = 64  # characters of a word that are looked at

ASIDE = 0.3
"""The weight of a word of a sentence that asks nothing, beside one that asks; less than any word of the latter."""
PASSAGE_LIMIT = 800
"""Characters of a passage."""


def _stem(word: str) -> str:
    """Return a light form of the first step of Porter's stemmer: without the plural, then without -ed or -ing.

    Of four letters an -e stays, and comes back: cared is care, and no car.
    """
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    for end, new in (("ies", "y"), ("s", "")):
        if word.endswith(end) and not word.endswith(("ss", "us")) and len(word) - len(end) >= 3:
            word = word[: -len(end)] + new
            break
    for end in ("ing", "ed"):  # string and speed have no ending
        if (
            word.endswith(end)
            and not word.endswith("eed")
            and len(word) - len(end) >= 3
            and _has_vowel(word[: -len(end)])
        ):
            word = word[: -len(end)]
            word += "e" if _is_short(word) else ""
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    if word[-1] == "e" and (len(word) > 4 or (len(word) > 3 and word[-2] in "sxz")):  # boxes are more than one box
        word = word[:-1]
    return word[:-1] + "y" if len(word) > 4 and word[-1] == "i" else word


_STOP_WORDS = """
a about an and any are as at be been but by can could did do does for from had has have he her him his how i if in into
is it its me may might must my not of on or our s she should so than that the their them there these they this to us was
we were what when where which who whom whose why will with would you your many much tell know please
什么 是什 么是 怎么 怎样 么样 为什 如何 为何 哪里 哪些 哪个 多少 是否 可以 一个 这个 那个 这些 那些 我们 有没 没有 时候
什 么 的 了 吗 呢 吧 啊 谁 在 是 和 我 你 他 她 它 们 有 这 那 与 及 等
"""
STOP_WORDS = frozenset(map(_stem, _STOP_WORDS.split()))
"""Words, pairs and characters that say little; where a question has others, these only order equally good hits."""


@lru_cache(1 << 15)
def _forms(word: str) -> tuple[str, ...]:
    """Return a word's stem, and those of its parts: KeywordTree, Keyword, Tree."""
    word = word[:_WORD_LIMIT]
    parts = _find_parts(word) if word.isascii() and "." not in word else []
    return tuple(_stem(part.casefold()) for part in dict.fromkeys([word, *parts] if len(parts) > 1 else [word]))


def fold(text: str) -> str:
    """Return `text` in NFKC, without invisible characters, most accents and points, and separators in numbers."""
    text = _drop_unseen("", text)
    if text.isascii():
        return _drop_separators("", text)
    # In parts, since the time that it takes grows with the square of a run of marks.
    parts = [unicodedata.normalize("NFKC", text[start : start + 1024]) for start in range(0, len(text), 1024)]
    for at, part in enumerate(parts):
        if _is_accented(part):
            parts[at] = unicodedata.normalize("NFC", _drop_accents("", unicodedata.normalize("NFD", part)))
    return _drop_separators("", "".join(parts))


def words(text: str) -> list[str]:
    """Return the runs of letters of a text, in order, as they are written but for accents and width."""
    return [unspaced or word for unspaced, word in find_runs(fold(text))]


def asked_words(sentence: str) -> list[tuple[str, list[str]]]:
    """Return the words of a sentence but those that ask, each with its first term; a run without blanks has none."""
    runs = find_runs(fold(drop_asking(sentence)))
    return [(unspaced or word, [] if unspaced else [*_forms(word)[:1]]) for unspaced, word in runs]


def terms(text: str) -> list[str]:
    """Return the terms of a text; of scripts without blanks every character and every pair."""
    text = fold(text)
    if text.isascii():
        return [*chain.from_iterable(map(_forms, _find_ascii_words(text)))]
    found: list[str] = []
    for unspaced, word in find_runs(text):
        if unspaced:
            found += unspaced
            found += map(add, unspaced, unspaced[1:])
        else:
            found += _forms(word)
    return found


def trigrams(terms: Iterable[str]) -> list[str]:
    """Return the trigrams of the stems of words, which inflections and misspellings share; of numbers none."""
    framed = [f"^{term}$" for term in terms if not is_unspaced(term) and not has_digit(term)]
    return ["~" + each[start : start + 3] for each in framed for start in range(len(each) - 2)]


def corrections(word: str) -> list[str]:
    """Return the words that one of five Latin letters or more may misspell: a letter less, one more, or two turned.

    The first and the last are right, and none is another one: Hanna is not Anna, and Marta is not Maria.
    """
    if len(word) < 5 or not (word.isascii() and word.isalpha()):
        return []
    found = [word[:at] + word[at + 1 :] for at in range(1, len(word) - 1)]
    found += [word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(1, len(word) - 2)]
    return found + [word[:at] + more + word[at:] for at in range(1, len(word)) for more in ascii_lowercase]


# What makes a question of a Chinese sentence, or could stand in any: it says nothing of what is asked, and the pairs
# that it makes with its neighbours are no words. Of 60 everyday questions 27 instead of 23 are right first without it.
_drop_asking = re.compile(
    "什么时候|什么样|为什么|叫(?:什么|啥)(?:名字)?|什么名字|什么|怎么样|怎么办|怎么|怎样|哪里|哪儿|哪些|哪个|哪位|哪(?=一)|哪|多少|"
    "多久|多大|几|谁|是不是|有没有|能不能|要不要|会不会|可不可以|请问|告诉|知道|为何|如何|何时|啥|咋|这个|那个|一个|现在|需要|"
    "应该|可以|我|你|您|他|她|它|们|的|了|是|在|吗|呢|吧|啊|呀"  # not a set: for it `re` tries all at each character
).sub

# The units of a time that is asked for: texts with a time may have them, but they say nothing.
_drop_units = re.compile(
    r"(?i)(?<=几)[点号月年]钟?|(?:星期|礼拜|周)(?=几)|\b(?:what|which) (?:time|date|day|year|month|season|weekday)\b"
).sub

# Openings and ends of a message, whichever question it has, and the name that one addresses by them; elsewhere (哈尔滨,
# "Who likes Hello Kitty?") they are part of it.
_GREETING = (
    r"(?:(?:hello|hi|hey|good (?:morning|evening|afternoon)|thanks?(?: you)?(?: (?:so|very) much)?|excuse me)\b"
    r"(?!['’-]\w)(?:,? ((?-i:[A-Z])\w+)(?=[,.!]))?"
    r"|how(?:'s it going|(?: are|'re) you(?: doing)?(?: today)?)(?=[,.?!])"
    "|(?:你好吗?|您好|大家好|早上好|下午好|晚上好|早安|晚安|谢谢你?|多谢|打扰一下|不好意思|[嗨嘿哈](?:喽|(?=\\W)))"
    r"(?:[，,]?([^\W\d_]{2,4})(?=[，,！!。]))?|最近(?:好吗|怎么样)(?=[，,？?！!。]))"
)
_greeting = re.compile(rf"(?i)(?:^|[,，.。!！])(?:\W{{0,3}}{_GREETING})+|最近(?:好吗|怎么样)(?=\W{{0,3}}$)")

_NUMBERS = (
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy eighty ninety"
    " hundred thousand million dozen half"
)
_TIMES = (
    "january february march april may june july august september october november december monday tuesday wednesday"
    " thursday friday saturday sunday yesterday today tonight tomorrow week weekend month year ago o'clock noon"
    " midnight morning evening afternoon night daily weekly monthly yearly spring summer autumn winter"
)


def _any_of(*alternatives: tuple[str, str], before: str = "") -> str:
    """Return a pattern of alternatives, each of a set of first characters and the rest.

    `re` skips what is none of the first characters quickly; a mere alternation takes three times as long.
    """
    firsts = "".join(first for first, _ in alternatives)
    return f"[{firsts}]{before}(?:{'|'.join(f'(?<=[{first}]){rest}' for first, rest in alternatives)})"


def _words_of(words: str, endings: str) -> str:
    begun = {word[0]: "|".join(each[1:] for each in words.split() if each[0] == word[0]) for word in words.split()}
    return _any_of(*((first, rf"(?:{rest}){endings}\b") for first, rest in begun.items()), before=r"(?<!\w.)")


_KINDS = {
    "#number": (
        (
            _any_of((r"\d〇二两三四五六七八九十百千万亿半", "(?<![周期拜].)"), ("一", "[个天年周]")),
            _words_of(_NUMBERS, "(?:s|teen|ty|th)?"),
        ),
        r"\bhow (?:many|much(?! do you know)|long|old|often|tall|far|big|high|large|heavy|fast|warm|hot|cold|deep)\b"
        r"|\b(?:what|which)(?:'s)? (?:[\w'’.-]+ ){0,3}(?:age|number|size|price|percentage|amount)\b"
        r"|几|多少|多[久大长高远重]|号码",
    ),
    "#time": (
        (
            r"\d(?:[:.]\d\d\b|(?<!\w.)(?:(?:(?<=1)9|(?<=2)0)\d\d\b|\d* ?[ap]\.?m\b)|\s*[月号日点年])",
            _any_of(
                ("一二三四五六七八九十", r"\s*[月号日点年]"),
                ("周", "[一二三四五六日末]"),
                ("每", "[周天月年]"),
                ("星", "期"),
                ("礼", "拜"),
                ("今明昨后前", "[天年晚早]"),
                ("上下", "个?[周月]"),
                ("早晚", "上"),
                ("上下中", "午"),
                ("凌", "晨"),
                ("傍", "晚"),
                ("春夏秋冬", "天"),
                ("年月", "[底初]"),
            ),
            _words_of(_TIMES, "s?"),
        ),
        r"\bwhen\b|\bhow (?:long|often|late|early)\b|\b(?:what|which) (?:time|date|day|year|month|season|weekday)\b"
        r"|什么时候|何时|几[点号月]|(?:星期|礼拜|周)几|多久|哪一?[天年月日]|哪个月|日期|时间",
    ),
}
_find_kinds = {
    kind: ([re.compile(each).search for each in has], re.compile(asks, re.I).search)
    for kind, (has, asks) in _KINDS.items()
}
KINDS = frozenset(_KINDS)


def kinds(text: str) -> list[str]:
    """Return which kinds of answer a text has: a number, a time; each is a term that no word is."""
    text = text.lower()
    return [kind for kind, (has, _) in _find_kinds.items() if any(search(text) for search in has)]


_asks = re.compile(
    r"什么|怎|哪|谁|多[少久大长]|几|吗|何|啥|咋"
    r"|(?i:^\W*(?:who|whose|what|which|where|when|why|how|do|does|did|is|are|can)\b)"
).search


def cut_question(query: str) -> tuple[list[str], list[str]]:
    """Return the sentences of a question that ask, and those beside them.

    A sentence asks where it ends with a question mark, and, where none does, by its words; the last one always does.
    """
    parts = sentences(query) or [query]
    asks = [part.rstrip().endswith(("?", "？")) for part in parts]
    asks = asks if any(asks) else [*map(bool, map(_asks, parts))]
    asks = [True] * len(parts) if not any(asks) else [*asks[:-1], True]
    return [*compress(parts, asks)], [*compress(parts, map(not_, asks))]


def drop_greeting(sentence: str) -> str:
    """Return a sentence without its greetings, and whom they greet."""
    return _greeting.sub(" ", sentence)


def drop_asking(sentence: str) -> str:
    """Return a sentence without its question words and greetings."""
    return _drop_asking(" ", drop_greeting(sentence))


def drop_units(sentence: str) -> str:
    """Return a sentence without the units of the time that it asks for: "what day is it", 几点."""
    return _drop_units(" ", sentence)


def question(query: str) -> dict[str, float]:
    """Return the terms of a question with their weights: how often it has them, or ASIDE.

    What other sentences say beside one that asks orders what says as much, and is not asked for. Among the terms are
    the kinds of answer that are asked for.
    """
    asking, beside = cut_question(query)
    asked = Counter(chain.from_iterable(terms(drop_asking(part)) for part in asking))
    asked = asked or Counter(terms(query))  # of nothing but greetings, or words that ask
    beside = [*map(drop_asking, beside), *(" ".join(names) for part in asking for names in _greeting.findall(part))]
    found = dict.fromkeys(chain.from_iterable(map(terms, beside)), ASIDE)
    kinds = {kind for kind, (_, asks) in _find_kinds.items() for part in asking if asks(part)}
    return found | dict.fromkeys(kinds, 1.0) | {term: float(often) for term, often in asked.items()}


_find_paragraphs = re.compile(r"\n\s*\n").finditer
_find_ends = re.compile(r"\n|[。！？!?；]|[.;]\s").finditer


def passages(text: str, limit: int = PASSAGE_LIMIT) -> Iterator[str]:
    """Yield a text in pieces, each of which ends with a paragraph, else a sentence, where one ends in time."""
    start = 0
    while len(text) - start > limit:
        piece = text[start : start + limit]
        cut = limit
        for find in (_find_paragraphs, _find_ends):
            ends = [match.end() for match in find(piece) if match.end() > limit // 3]
            if ends:
                cut = ends[-1]
                break
        if piece[:cut].strip():
            yield piece[:cut]
        start += cut
    if text[start:].strip():
        yield text[start:]
