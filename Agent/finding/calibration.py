"""From scores to confidence, a number between 0 and 1: how often the best one is right.

odds of the best = 2.5 · (1 + explained · √lead)^5 / √texts
                   explained: the score times the weight of the question, in words that no text has
                   lead: 1 - rival / score, the rival being the next text that says something else; where the text says
                   all of it, 0.3 at least, since several may answer
                   texts: of the index, at least 100; among many, more of them have some of any question by chance
odds of another  = odds of the best · (score / score of the best)³, by meaning (order / order of the best)⁴

Where meaning is compared, too, it has its part in the order, and the order in the confidence:

order = 0.7 · explained + read⁴ · tells · nearness / that of the nearest
odds of the best = ½ · (1 + (explained + 3 · nearness) · √lead)^5 / texts^0.4
                   nearness: 0 for a text as near as usual, 1 for the question itself; lead: of the order
                   read: the share of the texts that have a vector; tells: 1 among keywords, among texts 1.4 times
                   the square of how much nearer the nearest is than the tenth after it

A text that lacks a name or a number of the question is no answer, however much else it has, nor is one that says
another thing of its kind (the red bike for the blue one), its opposite (the neighbours upstairs for those downstairs),
another word in its place (my knee operation for that of my hip) or, where it lacks nothing else, another thing of the
same kind (our cat for our parrot), nothing else, or nothing but a time, nor one that lacks the number that is asked for
("once" and "none" are such, too): LACKING at most, whether it is the best or another. The kind of the answer ("which
bone") may lack. One with a single word of several is none alone: UNSURE, or LACKING where it lacks a time ("will it
rain tomorrow?"). From a nearness of MEANT on only names, numbers and kinds count so. The numbers are a logistic
regression on the even cases of the sets of `bench_finding` and of the gate's, rounded; where a Chinese word begins and
ends is said by the thesaurus, so that one bar serves all languages.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from heapq import nlargest
from typing import TypeAlias

from . import score, texts
from .query import words_of

__all__ = ["ANSWER_BAR", "LACKING", "Confidence", "part_of"]

ANSWER_BAR = 0.5
"""The score from which on something is an answer."""
BY_WORDS, BY_MEANING, POWER = (2.5, 0.5), (0.5, 0.4), 5
LEAST_LEAD = 0.3  # without it one of two that answer alike has 0.65 in place of 0.86
SAID, NEAR, NEARNESS = 0.7, 0.15, 3.0
FALL, MEANT_FALL = 3, 4  # the even cases want 4 and 6, but have one answer each: of several, none of the best goes then
CROWD = 100  # texts: fewer do not show which words are common
LACKING, UNSURE = 0.29, 0.45  # most of such texts; by UNSURE 18 of 192 questions without answer reach 0.5, not 26
NAMED = 0.39  # most of a keyword that has the name alone: worth a look, and below the bar of `LexicalLLMClient`
NEARLY = 0.3  # the nearness of a word that is not lacking
BESIDE = 0.15  # least share of the other words, for a text with the name: without, 86 of those 192 reach 0.3, not 60
MEANT = 0.4  # nearness from which on other words may say it; 1: 50 in place of 61 % of the right ones reach 0.5
CLOSE = 11  # the nearest text and ten others: LoCoMo, first / @10, 36.3 / 70.3 → 46.5 / 77.5 (by words 47.1 / 76.8)
TELLS = 1.4  # facts keep their weight; by the square LoCoMo is as good as by words
MOST = 99.0  # odds: of the surest of 250 answers by words, one in twenty is wrong
NOTHING = 0.01  # the confidence without any word that is asked for
RIVALS, SAME, _COMPARED = 5, 0.5, 2_000  # hits compared; common terms of equal statements; characters of each
_SURNAMES = frozenset(
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆"
    "汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
)
_BEFORE_NAMES = _SURNAMES | {*"小老阿大"}
_NO_NAMES = frozenset("会能要去来到上下用做给对从没还不打管")  # after a surname a verb and the like: 周会, 万用表
# Titles without a kind in the thesaurus. With any word after a surname as a name (钱还清), 84 and not 86 of 100 right
# ones in Chinese reach 0.3.
_TITLES = frozenset(("师傅", "师父", "教授", "小姐", "同学", "校长", "局长", "处长", "科长", "院长", "队长", "大爷"))
# A text that says another of a group is about another thing: 楼下 and 楼上. Those of words are in the thesaurus.
_GROUPS = "上中下 左右 前后 里外 早午晚 春夏秋冬 暑寒 东南西北 男女 公母 大小 新旧 冷热"
_OPPOSITES = {one: {*group} - {one} for group in _GROUPS.split() for one in group}


Said: TypeAlias = tuple[str, str, float, float]
"""A word of a question, whether it is a "name", a "time" or neither, its weight, and the share that a text says."""

_IDLE = texts.STOP_WORDS | {""}
_DETERMINERS = frozenset(texts.terms("a an the my our your his her its their"))  # no thing is named before one
_find_sought = re.compile(
    r"(?i)(?:\b(?:which|what) |哪一?[个些种座门家位条本部类样款只张台辆件间层]?|(?<!为)什么)(\w+)"
).findall
_has_numeral = re.compile(r"\d|[二三四五六七八九]").search
_says_one = re.compile(r"(?i)\b(?:one|once|twice|single|no|none|never)\b|一(?![定起样直些点般下旦共边切])|没有").search


class Confidence:
    """The confidence of a question's hits; see the head of this module.

    Args:
        query: The question.
        lent: See `Index.search`.
    """

    def __init__(self, query: "score.Query", lent: Mapping[str, Mapping[str, float]] | None = None) -> None:
        self._query, self._lent = query, lent or {}
        self._sought = _find_sought(query.said)  # words for the kind of the answer: which bone, 哪个城市
        self._known: dict[tuple[str, int], tuple[list[Said], bool]] = {}

    def by_words(self, found: "Sequence[score.Found]") -> dict[str, float]:
        """Return id → confidence by words; `found` is the whole ranking, best first."""
        if not found or found[0].score <= 0:
            return self._limited(0.0, {each.id: 0.0 for each in found}, {})
        first, sure = found[0], NOTHING
        said, _ = self._said(first.id, first.number, first.documents[0])
        if not self._query.is_empty and any(share for *_, share in said):
            rival = _rival(self._query, [(each.documents[0], each.score) for each in found[:RIVALS]])
            lead = max(1.0 - rival, LEAST_LEAD * first.coverage**8)
            sure = self._sure(self._explained(first), lead, BY_WORDS)
        places = {each.id: (0.0, each.number, each.documents[0]) for each in found}
        return self._limited(sure, {each.id: each.score**FALL for each in found}, places)

    def _explained(self, found: "score.Found") -> float:
        return found.score * self._query.mass / self._query.idf("")

    def _sure(self, evidence: float, lead: float, by: tuple[float, float]) -> float:
        even, root = by
        odds: float = even * (1.0 + evidence * math.sqrt(lead)) ** POWER / max(CROWD, self._query.total) ** root
        return 1.0 - 1.0 / (1.0 + min(MOST, odds))

    def by_meaning(
        self, found: "Sequence[score.Found]", near: Mapping[str, tuple[float, int, int]], read: float = 1.0
    ) -> dict[str, float]:
        """Return id → confidence by words and by meaning, best first.

        Args:
            found: The hits by words, best first.
            near: id → nearness, number and nearest document, also of the hits by words; -1 is without a vector.
            read: The share of the texts that have a vector: nearness counts by its fourth power, since the nearest may
                be one of the others.
        """
        query = self._query
        explained = {each.id: self._explained(each) for each in found}
        places = {**near, **{each.id: (near[each.id][0], each.number, each.documents[0]) for each in found}}
        nearest = max([NEAR, *(each[0] for each in near.values())])
        order, tells = dict[str, float](), read**4 * _tells(query, near)
        for id, (nearness, *_) in near.items():  # without a vector, the words stand for the nearness
            said = SAID * explained.get(id, 0.0)
            order[id] = said + tells * (nearness / nearest if nearness >= 0 else min(1.0, said))
        ranked = sorted(order, key=lambda id: -order[id])
        if not ranked or not order[ranked[0]]:
            return {}
        first = ranked[0]
        nearness = near[first][0]
        lead = 1.0 - _rival(query, [(places[id][2], order[id]) for id in ranked[:RIVALS]])
        evidence = explained.get(first, 0.0) + NEARNESS * max(0.0, nearness)
        sure = self._sure(evidence, lead, BY_WORDS if nearness < 0 else BY_MEANING)
        return self._limited(sure, {id: order[id] ** MEANT_FALL for id in ranked}, places)

    def _limited(
        self, sure: float, order: Mapping[str, float], places: Mapping[str, tuple[float, int, int]]
    ) -> dict[str, float]:
        """Return id → confidence, best first, limited for each text by its own lack of the question's words.

        However close it is to the best hit: another's favourite film does not answer "what is Priya's favourite film?".

        Args:
            sure: Of the best.
            order: id → what its odds are in proportion to, best first.
            places: id → nearness, number and best document.

        Cost: 20 µs for each confidence above `LACKING`.
        """
        first, limits = next(iter(order), ""), dict[str, float]()
        parts = {id: one / (order[first] or 1.0) for id, one in order.items()}
        above = [id for id, part in parts.items() if part_of(sure, part) > LACKING]
        for id in above:
            nearness, number, document = places[id]
            limits[id] = _limit(*self._said(id, number, document), nearness >= MEANT)
        sure = min(sure, limits.get(first, 1.0))
        found = {id: min(part_of(sure, part), limits.get(id, 1.0)) for id, part in parts.items()}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    @cached_property
    def _asked(self) -> list[tuple[str, str, float, list[str], set[str], tuple[str, str]]]:
        """The words of the question that tell something: the kind of each, see `Said`, its weight, its terms, the words
        for other things of its kind, and its place: the words before and after it.

        None where it asks for the time, and says nothing else.
        """
        query, names, found = self._query, _names(self._query), []
        keys = ["", *(" ".join(terms) for _, terms in query.words), ""]
        for at, (word, terms) in enumerate(query.words):
            if known := [term for term in terms if term in query.weights and term in query.telling]:
                kind = "name" if at in names else "time" if "#time" in texts.kinds(word) else ""
                others = {other for other, share in self._near(word, terms) if not share}
                after = query.words[at + 1][0][:1] if at + 1 < len(query.words) else ""
                others |= _opposites(word if len(word) > 1 else word + after)
                others -= query.weights.keys()
                has_place = len(word) > 1 and keys[at + 2] not in _DETERMINERS
                place = (keys[at], keys[at + 2]) if has_place else ("", "")
                found.append((word, kind, max(map(query.idf, known)), known, others, place))
        return [] if query.asks_time and all(kind == "time" for _, kind, *_ in found) else found

    def _said(self, id: str, number: int, document: int) -> tuple[list[Said], bool]:
        """Return the words of the question as a unit says them, and whether it is a text rather than a keyword.

        A word is as good as a name where the text says another thing of its kind (the red bike for the blue one), or,
        without any near word, has another one in its place: 小林对 for 小雨对.
        """
        if known := self._known.get((id, document)):
            return known
        index = self._query.index
        shares = score.Evidence(self._query, index.units([number])).shares(number, document, self._lent.get(id))
        read = index.read({2 * number, document})
        text, said, is_text = read[document][1], list[Said](), bool(document & 1) or not read[2 * number][0]
        has, instead = cache(lambda: {*texts.terms(text)}), cache(lambda: self._instead(text[:_COMPARED]))
        parts = [math.fsum(shares.get(term, 0.0) for term in terms) / len(terms) for *_, terms, _, _ in self._asked]
        lacks = sum(part < NEARLY for part in parts)
        for (word, kind, weight, _, others, place), share in zip(self._asked, parts, strict=True):
            if share < NEARLY and not _has_numeral(word) and any(run.startswith(word) for run in self._sought):
                continue
            if is_text and share < (score.MISSPELLED if others else NEARLY):
                unspaced = filter(texts.is_unspaced, others)
                is_other = not others.isdisjoint(has()) or any(map(text.__contains__, unspaced))
                if is_other or (share < NEARLY and not instead().isdisjoint({place, *(others if lacks == 1 else ())})):
                    kind, share = "name", 0.0
            said.append((word, kind, weight, share))
        kinds = texts.KINDS & self._query.weights.keys()
        if is_text and "#number" in kinds and not kinds & shares.keys() and not _says_one(text):
            said.append(("#number", "name", 0.0, 0.0))
        self._known[id, document] = said, is_text
        return said, is_text

    def _instead(self, text: str) -> set[str | tuple[str, str]]:
        """Return the places and the kinds of the words of a text that are not asked for.

        The places are those between two words, but for those of single characters.
        """
        asked = _IDLE | {" ".join(terms) for _, terms in self._query.words}
        said, found = [""], set[str | tuple[str, str]]()
        for sentence in texts.sentences(text):
            words = words_of(sentence, self._query.thesaurus)
            said += [*(" ".join(terms) for word, terms in words if not texts.kinds(word)), ""]
            for word, terms in words:
                near = self._near(word, terms)
                if " ".join(terms) not in asked and not any(each in asked and share >= NEARLY for each, share in near):
                    found |= {each for each, _ in near if each[0] == "#"}
        between = (each for each in zip(said, said[1:], said[2:], strict=False) if not _IDLE.issuperset(each[::2]))
        return found | {(before, after) for before, one, after in between if len(one) > 1 and one not in asked}

    def _near(self, word: str, terms: Sequence[str]) -> Sequence[tuple[str, float]]:
        thesaurus = self._query.thesaurus
        return (thesaurus and terms and thesaurus.near(word if texts.is_unspaced(word) else terms[0])) or ()


def _opposites(run: str) -> set[str]:
    """Return what stands in texts for the opposites of two characters or more."""
    found = {run[:at] + other + run[at + 1 :] for at, one in enumerate(run) for other in _OPPOSITES.get(one, ())}
    return found if len(run) > 1 else set()


def _limit(said: Sequence[Said], is_text: bool, is_near: bool = False) -> float:
    """Return the greatest confidence of a text, by its lack of the question's words.

    LACKING without a name or number of the question (a keyword may lack a name), with nothing but names and times (a
    keyword NAMED), or with a single word of several where one is a time; UNSURE with another single word of several. A
    text that is near by meaning (`is_near`) may have other words, but not other names.
    """
    lacking = [word for word, kind, _, share in said if kind == "name" and share < score.MISSPELLED]
    if not said or any(is_text or texts.has_digit(word) for word in lacking):
        return LACKING
    if is_near:
        return 1.0
    rest = [(weight, share) for _, kind, weight, share in said if not kind]
    asked = math.fsum(weight for weight, _ in rest)
    if len(rest) < len(said) and math.fsum(weight * share for weight, share in rest) < BESIDE * asked:
        return LACKING if is_text else NAMED
    unsaid = [kind for _, kind, _, share in said if share < NEARLY]
    if is_text and unsaid and sum(share >= score.MISSPELLED for *_, share in said) < 2:
        return LACKING if "time" in unsaid else UNSURE
    return 1.0


def _tells(query: "score.Query", near: Mapping[str, tuple[float, int, int]]) -> float:
    """Return how well nearness tells texts apart: by how much the nearest is nearer than the tenth after it.

    Among the messages of a long conversation many are about as near. Keywords are far apart by their names.
    """
    (first, number, _), *rest = nlargest(CLOSE, near.values()) if len(near) >= CLOSE else [(0.0, 0, 0)]
    if first <= 0.0 or query.index.read([2 * number])[2 * number][0]:
        return 1.0
    return TELLS * (1.0 - max(0.0, rest[-1][0]) / first) ** 2


def part_of(sure: float, part: float) -> float:
    """Return the confidence of a hit from that of the best and the ratio of their odds."""
    odds = sure / (1.0 - sure) * part
    return max(round(odds / (1 + odds), 4), 0.0001 * (part > 0))  # a hit is never rounded to 0


def _names(query: "score.Query") -> set[int]:
    """Return which words of a question are names, numbers or codes, by their places."""
    thesaurus, found, words = query.thesaurus, set[int](), query.words
    for at, (word, terms) in enumerate(words):
        near = thesaurus.near(word if texts.is_unspaced(word) else terms[0]) if thesaurus and terms else None
        if texts.is_unspaced(word):
            if (near == () and len(word) > 1) or _has_numeral(word):
                found.add(at)
            elif at and words[at - 1][0] in _BEFORE_NAMES and words[at - 1][0] + word in query.said:
                if (len(word) == 1 and word not in _NO_NAMES) or word in _TITLES or "#person" in dict(near or ()):
                    found |= {at - 1, at}
            elif at - 1 in found and len(word) == 1:
                before = "".join(each for each, _ in words[max(0, at - 2) : at])[-2:]
                if before[0] in _SURNAMES and before[-1] + word in query.frequencies:
                    found.add(at)  # the third character of a name
        elif terms and terms[0] not in texts.STOP_WORDS and (len(word) > 1 or word.isdigit() or word.isupper()):
            is_capital = word[0].isupper() and not (word.isupper() and near is not None)
            if texts.has_digit(word) or (is_capital and (at > 0 or near is None)) or near == ():
                found.add(at)
    return found


def _rival(query: "score.Query", ranked: Sequence[tuple[int, float]]) -> float:
    """Return the score of the first that says something else than the best, beside the best's own."""
    if len(ranked) < 2 or not ranked[0][1]:
        return 0.0
    read = query.index.read([document for document, _ in ranked])

    def terms_of(document: int) -> set[str]:
        called, text = read[document]
        return {*texts.terms(" ".join([*called, text[:_COMPARED]]))}

    said = terms_of(ranked[0][0])
    for document, one in ranked[1:]:
        terms = terms_of(document)
        if len(terms & said) < SAME * len(terms | said):
            return one / ranked[0][1]
    return 0.0
