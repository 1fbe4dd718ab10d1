"""Which states a question asks for and a text states, of those that a person has one of at a time: a home, a job.

>>> sorted(asked_relations("Where does Ada live?")), sorted(asked_relations("小林在哪里工作？"))
(['lives_in'], ['works_at'])
>>> sorted(subjects_of("In June Ada moved to Rome.", "lives_in")), subjects_of("I used to live in Oslo.", "lives_in")
(['ada', 'jun'], frozenset())

The newest statement of such a state takes the place of older ones: "I moved to Rome" has no word of "Where do I live?",
and answers it. A question in other words, and one in another language, goes by the text.
"""

import re
from collections.abc import Iterable

from ..base.speech import NOT_OWN, own_words
from ..base.text import sentence_spans
from ..finding.texts import STOP_WORDS as ASKING_WORDS
from ..finding.texts import terms as terms_of
from .keywords import STOP_WORDS

__all__ = ["ONE_AT_A_TIME", "OTHER", "SPEAKER", "asked_relations", "asked_subjects", "relation_of", "says_change"]
__all__ += ["subjects_of", "words_of"]

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
        r"|\bjoin(?:s|ed)\b|(?:在|到|去|给|为).{1,20}?(?:工作|上班|任职|就职|入职)|(?:入职|加入|跳槽到|任职于|就职于)",
        re.IGNORECASE,
    ),
}
_is_past = re.compile(
    r"\b(?:not|never|no longer|used to|would|wants?|wish(?:es)?|hopes?|plans?|if|might|could|anymore)\b|n['’]t\b"
    r"|不|没|想|曾|以前|从前|如果|要是|打算|希望",
    re.IGNORECASE,
).search
"""What is denied, wished or over is no state."""
_says_change = re.compile(
    r"\b(?:now|no longer|any ?more|instead|moved|changed|switched|stopped|quit|replaced|new|since then|these days)\b"
    r"|现在|如今|不再|改成|改为|改用|改喝|改吃|换成|换了|戒|搬|新的",
    re.IGNORECASE,
).search
_UNSPACED = {kind: [word for word in words.split() if not word.isascii()] for kind, words in _WORDS.items()}
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
_drop_times = re.compile(
    r"[上下]个?[月周年]|[去今明前]年|[昨今明前]天|\d{1,4}|[年月日号]|[现目]前|现在|最近|刚刚?|已经?|后来|终于|们|也|都|[,，]"
).sub


def asked_relations(question: str) -> frozenset[str]:
    """Return the states that the words of a question ask for."""
    terms = set(terms_of(question))
    return frozenset(
        kind for kind in _WORDS if terms & _STEMS[kind] or any(word in question for word in _UNSPACED[kind])
    )


def words_of(relation_types: Iterable[str]) -> str:
    """Return the words that ask for some states, or say them."""
    return " ".join(f"{_WORDS[kind]} {_SAID_TOO.get(kind, '')}" for kind in sorted(relation_types))


def relation_of(term: str, relation_types: Iterable[str]) -> str:
    """Return which of some states a term is a word of; the term itself where it is none's.

    >>> relation_of("mov", ["lives_in"]), relation_of("我住", ["lives_in"]), relation_of("tea", ["lives_in"])
    ('lives_in', 'lives_in', 'tea')
    """
    for kind in relation_types:
        if term in _STEMS[kind] or any(word in term or term in word for word in _UNSPACED[kind]):
            return kind
    return term


def says_change(text: str) -> bool:
    """Tell whether a text says that something is otherwise than before."""
    return _says_change(text) is not None


def subjects_of(text: str, relation_type: str) -> frozenset[str]:
    """Return the terms of who is in a state by what a text says, `SPEAKER` for who speaks.

    >>> subjects_of("I moved to Rome.", "lives_in") == {SPEAKER} == subjects_of("我上个月搬到罗马了。", "lives_in")
    True
    >>> SPEAKER in subjects_of("我妈妈住在绍兴。", "lives_in"), subjects_of("Does Bob live in Oslo?", "lives_in")
    (False, frozenset())
    """
    found: set[str] = set()
    own = own_words(text).replace(NOT_OWN, "\n")
    for start, end in sentence_spans(own):
        sentence = own[start:end]
        stated = _STATED[relation_type].search(sentence)
        if stated is None or sentence.endswith(("?", "？")) or _is_past(sentence):
            continue
        found |= _subjects_in(sentence[: stated.start()])
    return frozenset(found)


def asked_subjects(question: str) -> frozenset[str]:
    """Return the terms of whom a question may be about, `SPEAKER` for the caller."""
    subjects = frozenset(terms_of(question)) - STOP_WORDS - ASKING_WORDS  # 我 is also in 我妹妹
    return subjects | ({SPEAKER} if _find_speaker(question) else set())


def _subjects_in(before: str) -> set[str]:
    """Return whom a sentence is about by what stands before its verb: nothing there is its speaker."""
    said = _drop_times(" ", before)
    terms = set(terms_of(said)) - STOP_WORDS - ASKING_WORDS
    speaker = _find_speaker(said)
    if speaker is not None and (speaker[0].isascii() or not said[speaker.end() :].strip()):
        return {SPEAKER}
    return terms or {OTHER if _find_other(said) else SPEAKER}
