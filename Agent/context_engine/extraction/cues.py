"""The table of phrases by which a person states something plainly, in Chinese and English.

A cue fires in one sentence of the user's own words. Sentences that ask, deny, suppose, quote, or tell of the past or of
others fire none (`is_plain`): what is missed is still found in the archive, what is wrongly taken is believed.
"""

import re
from typing import NamedTuple

__all__ = ["FACTS", "INSTRUCTIONS", "PREFERENCES", "Cue", "is_plain", "proper_names"]


class Cue(NamedTuple):
    """A phrase; its group `value` is what is stated."""

    key: str
    pattern: "re.Pattern[str]"


def _cue(key: str, *patterns: str) -> list[Cue]:
    return [Cue(key, re.compile(pattern)) for pattern in patterns]


_NAME = r"(?P<value>[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,3})"
_PLACE = r"(?P<value>[A-Z][\w'’.-]+(?:,? [A-Z][\w'’.-]+){0,3})"
_ZH = r"(?P<value>[^\s,，。.!！?？;；、的了]{1,20})"
_DATE = (
    r"(?P<value>[A-Za-z]+ \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?"
    r"|\d{1,2}(?:st|nd|rd|th)? (?:of )?[A-Za-z]+(?: \d{4})?|\d{4}-\d\d-\d\d)"
)
_THING = r"(?P<value>[^.,;:!?。，；：！？]{2,80}?)(?=[.,;:!?。，；：！？]|$| and I | but | because | when | than )"
_JOB = r"(?P<value>[a-z][a-z -]{2,40}?)(?=[.,;!]|$| at | for | in )"
_NOW = r"\bI(?:'m| am)? (?:now |currently )?"
_OFTEN = r"\bI(?:'ve always| have always| really| also| absolutely| do| just)*"
_MUCH = r"我(?:一直|平时|特别|非常|很|最|也|更|比较|还|都|真的)*"

FACTS = [
    *_cue("name", rf"\b[Mm]y name(?: is|'s|’s) {_NAME}", rf"\b(?:[Pp]lease )?[Cc]all me {_NAME}"),
    *_cue("name", rf"我(?:的名字)?(?:叫|名叫|是叫){_ZH}", rf"我的名字是{_ZH}"),
    *_cue(
        "lives_in", rf"{_NOW}(?:live|living) in {_PLACE}", rf"\bI(?:'ve| have)?(?: just| recently)? moved to {_PLACE}"
    ),
    *_cue("lives_in", rf"我(?:现在|目前)?(?:住在|定居在|住){_ZH}", rf"我(?:已经|刚|最近)?搬(?:到|去)了?{_ZH}"),
    *_cue("works_at", rf"{_NOW}(?:work|working) (?:at|for) {_PLACE}"),
    *_cue("works_at", r"我(?:现在|目前)?在(?P<value>[^\s,，。.!！?？;；、]{2,20}?)(?:工作|上班|任职)"),
    *_cue("works_as", rf"{_NOW}(?:work|working) as an? {_JOB}"),
    *_cue("works_as", rf"我(?:的职业)?是一?(?:名|位){_ZH}", rf"我的职业是{_ZH}"),
    *_cue("birthday", rf"\b[Mm]y birthday(?: is|'s|’s)(?: on)? {_DATE}", rf"\bI was born on {_DATE}"),
    *_cue("birthday", r"我的?生日是(?P<value>[0-9一二三四五六七八九十年月日号.\-/ ]{2,20})"),
]
"""What can have one value only."""

PREFERENCES = [
    *_cue("likes", rf"{_OFTEN} (?:love|like|enjoy|adore|prefer)d? {_THING}"),
    *_cue("likes", rf"\bI(?:'m| am)(?: a)?(?: really| very| big| huge)* (?:fond of|into|fan of) {_THING}"),
    *_cue("likes", r"\b[Mm]y favou?rite (?P<value>[a-z ]{2,30}? (?:is|are) [^.,;:!?]{2,60})"),
    *_cue("likes", r"我最(?:喜欢|喜爱|爱)的(?P<value>[^\s,，。.!！?？;；、的是]{1,10}是[^\s,，。.!！?？;；、]{1,20})"),
    *_cue("likes", rf"{_MUCH}(?:喜欢|喜爱|爱|偏爱|偏好|热爱){_ZH}"),
    *_cue("dislikes", rf"{_OFTEN} (?:hate|dislike|detest|can't stand|cannot stand|don't like|do not like) {_THING}"),
    *_cue("dislikes", rf"\bI(?:'m| am) (?:allergic to|not a fan of|not fond of) {_THING}"),
    *_cue("dislikes", rf"{_MUCH}(?:讨厌|不喜欢|不爱|受不了|不吃|不喝){_ZH}", r"我对(?P<value>[^\s,，。]{1,12}?)过敏"),
]

INSTRUCTIONS = [
    *_cue("asks", r"(?i)\bplease (?:always|never|don't|do not|make sure|only) (?P<value>.{3,160})"),
    *_cue("asks", r"(?i)^(?:from now on|in the future|always|never),? (?P<value>.{3,160})"),
    *_cue("asks", r"(?:请|麻烦)(?:你|您)?(?:总是|一直|永远|不要|别|务必|以后|今后|只)(?P<value>.{2,80})"),
    *_cue("asks", r"(?:以后|今后|从现在起|从今以后)(?:请|都|要|不要|别|回答|用)(?P<value>.{2,80})"),
]
"""How the user wants to be served."""

_NOT_PLAIN = re.compile(
    r"[?？\"“”「」『』]"
    r"|(?i:\b(?:if|would|could|might|maybe|perhaps|wish|used to|pretend|imagine|suppose|say|says|said|told|tells|asked"
    r"|heard|think|thought|dream(?:ed|t)?|no longer|not sure|role|story|character)\b)"
    r"|如果|要是|假如|假设|假装|想象|可能|也许|曾经|以前|从前|听说|告诉|他说|她说|说过|不再|吗|是不是|扮演|故事|角色|梦"
)
_DENIES = re.compile(r"(?i)\b(?:not|never|no)\b|n't\b|不|没")

# For preferences `never` and 不 are cues of their own, and for instructions nearly everything is.
_NOT_PLAIN_INSTRUCTION = re.compile(
    r"[?？\"“”「」『』]|(?i:\b(?:if i|pretend|imagine|suppose|said|told|story|character)\b)"
    r"|假装|想象|扮演|故事|角色|他说|她说"
)


def is_plain(sentence: str, kind: str) -> bool:
    """Whether a sentence states something of the speaker, now and plainly.

    >>> is_plain("I live in Rome.", "fact"), is_plain("If I live in Rome, fine.", "fact")
    (True, False)
    >>> is_plain("He said I live in Rome.", "fact"), is_plain("我不住在北京。", "fact")
    (False, False)
    >>> is_plain("我不喜欢咖啡。", "likes")
    True
    """
    if kind == "instruction":
        return not _NOT_PLAIN_INSTRUCTION.search(sentence)
    return not _NOT_PLAIN.search(sentence) and (kind != "fact" or not _DENIES.search(sentence))


_find_names = re.compile(r"(?<![\w'’])[A-Z][a-z][\w'’-]*(?: [A-Z][a-z][\w'’-]*)*").finditer
_find_titles = re.compile(r"《([^《》]{1,40})》").findall

_NO_NAMES = frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december the this that these those what when where which who why how yes hey hello thanks
    thank okay sure great good well also and but not you your they their there here then have has had are was were will
    would can could should did does just its it's i'm i've i'll we're let let's my our his her she for from with about
    wow nice congrats congratulations absolutely definitely maybe really sounds that's glad take keep hope love
    """.split()  # noqa: SIM905  read as a text
)


def proper_names(text: str) -> list[str]:
    """Return the names in a text that are surely ones: not the first word of a sentence; titles in 《》.

    >>> proper_names("Yesterday I met Oliver Stone. Anna came. 我读了《三体》。")
    ['Oliver Stone', '三体']
    """
    found = []
    for sentence in re.split(r"(?<=[.!?。！？\n])\s*", text):
        for match in _find_names(sentence):
            words = re.sub(r"['’]s$", "", match[0]).split()
            if not sentence[: match.start()].strip(" -*#>"):
                words = words[1:]  # any word is written so at the beginning
            while words and words[0].casefold() in _NO_NAMES:
                words = words[1:]
            if words:
                found.append(" ".join(words))
        found += _find_titles(sentence)
    return found
