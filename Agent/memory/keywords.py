"""The subject of a question: its words, without those that every question has; and the states that it asks for.

>>> SimpleKeywordExtractor().extract("How do I undo the last merge in Git?")
['undo', 'last', 'merge', 'git']
>>> ChineseKeywordExtractor(cut=cut_ngrams).extract("我喜欢喝绿茶和 Kopi Luwak")
['我喜', '喜欢', '欢喝', '喝绿', '绿茶', '茶和', 'kopi', 'luwak']

Chinese does not separate its words. With rjieba (the extra `[chinese]`)
`ChineseKeywordExtractor` cuts where a reader would, and the above reads 喜欢, 喝, 绿茶, kopi, luwak; without it, it
takes every pair of characters, which finds the same things among more noise.

Why rjieba and not jieba: the same dictionary and algorithm in Rust. jieba's last release is of January 2020, has no
wheel, and imports pkg_resources, which setuptools has taken out since; rjieba is released and typed, and needs nothing.

Of some states a person has one at a time: a home, a job. The newest statement of such a state takes the place of older
ones: "I moved to Rome" has no word of "Where do I live?", and answers it. A question in other words, and one in another
language, goes by the text.

>>> sorted(asked_relations("Where does Ada live?")), sorted(asked_relations("小林在哪里工作？"))
(['lives_in'], ['works_at'])
>>> sorted(subjects_of("In June Ada moved to Rome.", "lives_in")), subjects_of("I used to live in Oslo.", "lives_in")
(['ada', 'june'], frozenset())
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeAlias, cast

from typing_extensions import override

from ..base.speech import NOT_OWN, own_words
from ..base.text import fold_case, split_sentences
from ..finding.texts import STOP_WORDS as ASKING_WORDS
from ..finding.texts import drop_asking, find_runs, fold, is_unspaced
from ..finding.texts import terms as terms_of

__all__ = ["CHINESE_STOP_WORDS", "ONE_AT_A_TIME", "OTHER", "SPEAKER", "STOP_WORDS", "ChineseKeywordExtractor"]
__all__ += ["KeywordExtractor", "SimpleKeywordExtractor", "asked_relations", "asked_subjects", "cut_ngrams"]
__all__ += ["cut_words", "may_be_about", "relation_of", "says_change", "states_of", "subjects_of", "words_of"]

Cut: TypeAlias = Callable[[str], Sequence[str]]
"""Cuts a text without spaces into words."""

STOP_WORDS = frozenset(
    """
    a about all also am an and any are aren as at be because been but by can could did didn do does doesn doing don for
    from had has have he her here him his how i if in into is isn it its just let ll may me might more most must my no
    not of on one or our out please re s she should so some such t than that the their them then there these they this
    those to too up us ve very was wasn we were what when where which while who whom whose why will with would you your
    """.split()  # noqa: SIM905  read as a text
)
"""English words that say nothing of what a question is about; `don`, `isn`, `ll`, `s` and their like are what
an apostrophe leaves."""

CHINESE_STOP_WORDS = frozenset(
    """
    一个 一些 一下 一样 一直 不是 不会 不能 不要 为了 为什么 之前 之后 什么 什么样 什么时候 今后 他们 以及 以后 以前
    但是 你们 使用 其中 其他 几个 别人 到底 可以 可能 各种 同时 告诉 咱们 哪个 哪些 哪里 哪儿 因为 因此 多少 大家 她们
    如何 如果 它们 对于 就是 已经 并且 应该 怎么 怎么样 怎样 我们 所以 所有 时候 是否 是不是 有没有 有些 有关 没有
    然后 现在 由于 的话 知道 能否 自己 虽然 请问 谁的 这个 这些 这里 这样 还是 还有 通过 那个 那些 那里 那样 需要 非常
    的 了 是 在 我 你 您 他 她 它 们 和 与 或 及 也 都 就 不 没 有 这 那 哪 谁 吗 呢 吧 啊 呀 嘛 么 之 而 且 但 被 把
    给 让 对 从 到 向 往 于 以 为 因 由 用 很 太 更 最 还 又 再 才 只 要 会 能 可 想 说 做 去 来 上 下 里 中 个 些 每
    各 该 其 此 请 地 得 着 过
    """.split()  # noqa: SIM905  read as a text
)
"""Chinese words and single characters that say nothing of what a question is about."""


class KeywordExtractor(ABC):
    """Extracts the words by which to look for an answer."""

    @abstractmethod
    def extract(self, query: str) -> list[str]:
        """Return the keywords of `query`, in their order, each once, in lower case; none where it has none."""


class SimpleKeywordExtractor(KeywordExtractor):
    """Words between whatever is neither letter nor digit, but for stop words and single characters.

    Args:
        stop_words: What to leave out; the English `STOP_WORDS`.

    Scripts that do not separate words are cut from the others and left whole. Symbols that make a name stay: C++, C#.

    >>> SimpleKeywordExtractor().extract("Is C# or C++ the better C?")
    ['c#', 'c++', 'better']
    """

    def __init__(self, stop_words: Iterable[str] | None = None) -> None:
        self.stop_words = STOP_WORDS if stop_words is None else frozenset(map(fold_case, stop_words))

    @override
    def extract(self, query: str) -> list[str]:
        words: dict[str, None] = {}
        for part in _split_pictograms(fold_case(query)):
            for unspaced, spaced in find_runs(part):
                if unspaced:
                    words.update(dict.fromkeys(self._cut_unspaced(unspaced)))
                elif len(spaced) > 1:
                    words[spaced] = None
        return [word for word in words if word not in self.stop_words]

    def _cut_unspaced(self, run: str) -> Sequence[str]:
        return (run,) if len(run) > 1 or not run.isalpha() else ()


class ChineseKeywordExtractor(SimpleKeywordExtractor):
    """The same for English, and words for Chinese; pairs of characters for other scripts without spaces.

    A single Chinese character can be a word (茶, 猫), and is one unless it is a stop word.

    Args:
        stop_words: What to leave out; `STOP_WORDS` and `CHINESE_STOP_WORDS`.
        cut: Cuts a run of Chinese characters; `cut_words` where rjieba is installed, else `cut_ngrams`.
    """

    def __init__(self, stop_words: Iterable[str] | None = None, cut: Cut | None = None) -> None:
        super().__init__(STOP_WORDS | CHINESE_STOP_WORDS if stop_words is None else stop_words)
        self._cut = cut

    @override
    def _cut_unspaced(self, run: str) -> Sequence[str]:
        if not _is_chinese(run):
            return cut_ngrams(run)
        if self._cut is None:  # not before the first Chinese word: reading the dictionary takes 0.1 s
            self._cut = cut_words if _find_rjieba() else cut_ngrams
        return self._cut(run)


def cut_words(text: str) -> list[str]:
    """Return the words of a Chinese text, and the words in long ones: 北京, 大学 and 北京大学.

    Raises:
        ImportError: rjieba is not installed; the message says how.

    Cost: 1 µs for a few characters; 0.1 s and some 35 MB for the dictionary, once.
    """
    rjieba = _find_rjieba()
    if rjieba is None:
        raise ImportError("rjieba is not installed: pip install '.[chinese]' in its repository")
    return cast("list[str]", rjieba.cut_for_search(text))


def cut_ngrams(text: str) -> list[str]:
    """Return every pair of neighbouring characters, or the one character that there is."""
    return ["".join(pair) for pair in pairwise(text)] or [text]


@cache
def _find_rjieba() -> Any:
    try:
        return import_module("rjieba")
    except ImportError:
        return None


_split_pictograms = re.compile(r"([\u2600-\u27bf\U0001f300-\U0001faff])").split  # each is a word: 🐍

# Han alone: kana between two characters changes where a word ends, and a Chinese dictionary does not know.
_is_chinese = re.compile(r"[\u2e80-\u2fdf\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+").fullmatch


# States of which a person has one at a time

_WORDS = {
    "lives_in": "live lives living lived home reside resides residence address moved relocated settled "
    "住 家在 居住 定居 搬到 现居",
    "works_at": "work works working worked employ employs employer employed company job joined hired "
    "工作 上班 任职 就职 入职 公司 单位 雇主 跳槽",
}
_STATED = {
    "lives_in": re.compile(
        r"\b(?:live[sd]?|living|reside[sd]?|moved|moving|relocated|settled|home is)\b[^.!?;,]{0,30}?"
        r"\b(?:in|at|to|near|with)\b|\bnew (?:home|flat|address)\b"
        r"|(?:住|搬|定居|居住|移居|迁居)[^，。]{0,4}?[在到去至于]|家在|现居|定居",
        re.IGNORECASE,
    ),
    "works_at": re.compile(
        r"\b(?:work(?:s|ed|ing)?|started|employed|hired|job|position)\b[^.!?;,]{0,30}?\b(?:at|for|by|with|in|as)\b"
        r"|\bjoin(?:s|ed)\b|(?:在|到|去|给|为).{1,20}?(?:工作|上班|任职|就职|入职)|(?:入职|加入|跳槽|任职于|就职于|辞职|离职)",
        re.IGNORECASE,
    ),
}
_is_past = re.compile(
    r"\b(?:not|never|no longer|used to|would|wants?|wish(?:es)?|hopes?|plans?|if|might|could|anymore)\b|n['’]t\b"
    r"|不|没|想|曾|以前|从前|如果|要是|打算|希望",
    re.IGNORECASE,
).search
"""Denials, wishes and past states are no states."""
says_change = re.compile(
    r"\b(?:now|no longer|any ?more|instead|moved|changed|switched|stopped|quit|replaced|new|since then|these days)\b"
    r"|现在|如今|不再|改成|改为|改用|改喝|改吃|换(?:成|[^，。]{0,6}了)|戒|搬|新的",
    re.IGNORECASE,
).search
"""Find where a text says that something is otherwise than before."""
_UNSPACED = {kind: [word for word in words.split() if not word.isascii()] for kind, words in _WORDS.items()}
_find_unspaced = {kind: re.compile("|".join(words)).search for kind, words in _UNSPACED.items()}
_STEMS = {kind: frozenset(terms_of(re.sub(r"[^ -~]", "", words))) for kind, words in _WORDS.items()}

_SAID_TOO = {"works_at": "started"}
"""What says a state, and asks for none."""

ONE_AT_A_TIME = frozenset(_WORDS)
"""The states, by the types of their relations."""

SPEAKER = "\0speaker"
"""Stands for who speaks among the subjects of a text."""

OTHER = "\0other"
"""Stands for someone else, who was named before: she, he, they."""

_find_speaker = re.compile(r"\b(?:i|we)\b|[我俺咱](?!们?的|国)", re.IGNORECASE).search
_find_other = re.compile(r"\b(?:s?he|they)\b|[她他它]", re.IGNORECASE).search
# When something is so, and where one comes from.
_drop_circumstances = re.compile(
    r"[上下]个?[月周年]|[去今明前]年|[昨今明前]天|(?<![A-Za-z0-9])\d{1,4}(?![A-Za-z0-9])[年月日号]?"
    r"|[一二三四五六七八九十]+[年月日号]|[现目]前|现在|最近|后来|终于|一直|们"
    r"|(?:(?<=[我俺咱她他它们])|(?<=\w\w))(?:刚刚?|已经?|也|都|还|家)+(?=从|[,，]|$)"  # 李刚 and 孙刚洋 are names
    r"|从[^,，。]{1,12}(?=[,，]|$)|[,，]"
).sub


_SIZES = range(1, 7)  # characters of a name without blanks
_drop_owner = re.compile("^[我俺咱]们?(?:的|家$)?").sub
_split_pair = re.compile("(?<=..)[和跟与](?=..)").split
_find_names = re.compile(r"(?<=\w[^\w.!?])[A-Z][\w'’-]+").findall


def asked_relations(question: str) -> frozenset[str]:
    """Return the states that the words of a question ask for."""
    terms = set(terms_of(question))
    return frozenset([kind for kind in _WORDS if terms & _STEMS[kind] or _find_unspaced[kind](question)])


def words_of(relation_types: Iterable[str]) -> str:
    """Return the words that ask for some states, or say them."""
    return " ".join(f"{_WORDS[kind]} {_SAID_TOO.get(kind, '')}" for kind in sorted(relation_types))


def relation_of(term: str, relation_types: Iterable[str]) -> str:
    """Return which of some states a term is a word of; the term itself where it is none's.

    >>> relation_of("move", ["lives_in"]), relation_of("我住", ["lives_in"]), relation_of("tea", ["lives_in"])
    ('lives_in', 'lives_in', 'tea')
    """
    for kind in relation_types:
        if term in _STEMS[kind] or any(word in term or term in word for word in _UNSPACED[kind]):
            return kind
    return term


def subjects_of(text: str, relation_type: str) -> frozenset[str]:
    """Return the terms of who is in a state by what a text says, `SPEAKER` for who speaks.

    >>> subjects_of("I moved to Rome.", "lives_in") == {SPEAKER} == subjects_of("我上个月搬到罗马了。", "lives_in")
    True
    >>> SPEAKER in subjects_of("我妈妈住在绍兴。", "lives_in"), subjects_of("Does Bob live in Oslo?", "lives_in")
    (False, frozenset())
    """
    return states_of({"": text}, [relation_type])[""][0]


def states_of(said: Mapping[str, str], relation_types: Collection[str]) -> dict[str, list[frozenset[str]]]:
    """Return of each text the subjects of some states; see `subjects_of`."""
    found: dict[str, list[frozenset[str]]] = {key: [frozenset() for _ in relation_types] for key in said}
    for key, text in said.items():
        for sentence in split_sentences(own_words(text).replace(NOT_OWN, "\n")):
            for place, kind in enumerate(relation_types):
                match = _STATED[kind].search(sentence)
                if match is not None and not sentence.endswith(("?", "？")) and not _is_past(sentence):
                    found[key][place] |= _subjects_in(_drop_circumstances(" ", sentence[: match.start()]))
    return found


def asked_subjects(question: str) -> frozenset[str]:
    """Return whom a question may be about: its terms, names without blanks, `SPEAKER` for the caller."""
    subjects = {term for term in terms_of(question) if not is_unspaced(term)} - STOP_WORDS - ASKING_WORDS
    matches = filter(None, (stated.search(question) for stated in _STATED.values()))
    before = "\n".join(question[: match.start()] for match in matches)
    names = [name for run, _ in find_runs(f"{before}\n{drop_asking(before)}") for name in _split_pair(run)]
    # A name ends before the verb: a question about 张明月 is none about 张明.
    names += [_drop_circumstances("", name) for name in names]
    parts = {name[at:] for name in names for at in range(len(name))}
    parts = parts or {run[at : at + n] for run, _ in find_runs(question) for at in range(len(run)) for n in _SIZES}
    return frozenset(subjects | parts | ({SPEAKER} if _find_speaker(question) else set()))


def asked_names(question: str) -> frozenset[str]:
    """Return the terms of the words of a question that are written as names, but for its first word."""
    return frozenset(terms_of(" ".join(_find_names(fold(question)))))


def may_be_about(subjects: Set[str], asked: Set[str], names: Set[str]) -> bool:
    """Tell whether the subject of a statement may be one that a question is about: Maria Lopez is no Maria Garcia.

    >>> garcia, luo = (subjects_of(one, "lives_in") for one in ("Maria Garcia lives in Rome.", "罗娟华住在罗马。"))
    >>> asked = ["Where does Maria Garcia live?", "Where does Maria Lopez live?"]
    >>> [may_be_about(garcia, asked_subjects(one), asked_names(one)) for one in asked]
    [True, False]
    >>> [may_be_about(luo, asked_subjects(one), asked_names(one)) for one in ("罗娟华住在哪里？", "罗军华住在哪里？")]
    [True, False]
    """
    return not asked.isdisjoint(subjects) and (subjects <= asked or names <= subjects)


def _subjects_in(said: str) -> set[str]:
    """Return the subject of a sentence by the words before its verb: none there is its speaker."""
    parts = (part for run, _ in find_runs(said) for part in _split_pair(_drop_owner("", run)))
    runs = {*parts} - CHINESE_STOP_WORDS - {""}
    terms = ({term for term in terms_of(said) if not is_unspaced(term)} | runs) - STOP_WORDS - ASKING_WORDS
    numbered = [term for term in terms if not term.isalpha() and not term.isdecimal()]
    terms -= {term for term in terms for whole in numbered if term != whole and term in whole}  # Person5 is no Person7
    if (speaker := _find_speaker(said)) and (speaker[0].isascii() or not said[speaker.end() :].strip()):
        return {SPEAKER}
    return terms or {OTHER if _find_other(said) else SPEAKER}
