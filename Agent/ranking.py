"""Ranks keywords by words and character n-grams: the package's ranker, see `Ranker` in the core.

It reads the rows of the tree's state as they are, by private names of the core: to rank 45,000 keywords in milliseconds
it holds no text of its own.  A ranker of one's own goes by `TreeView` alone.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import math
import operator
import os
import re
import threading
import unicodedata
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from .keyword_tree import (
    _EXCERPT_LIMIT,
    _PAGE,
    _PIECE,
    _ROOT_ID,
    _UNSPACED,
    Evidence,
    Fits,
    KeywordNode,
    KeywordTree,
    StoreError,
    TreeView,
    _CollectorOff,
    _DecodeJson,
    _DecodeRow,
    _DiskError,
    _EncodeText,
    _Extent,
    _Files,
    _InfoIdOf,
    _IsUnspaced,
    _ReadFile,
    _ReplaceFile,
    _See,
    _State,
)

_HEARD = 400  # characters of an info by which its keyword is found, and of any text by which it is judged


class Texts(NamedTuple):
    """By what a node is found."""

    names: Sequence[str]  # its name and aliases
    others: Sequence[str]  # its description and confirmed queries
    infos: Sequence[str] = ()  # what is known about it: the beginnings of its infos


_Gains: TypeAlias = dict[str, dict[str, float]]  # id -> term -> what a node gains, where it gains anything


class Ranking(NamedTuple):
    """How well nodes fit a query by their own texts.

    A term may be a word, or a name for anything else that counts, like one for how near a model finds two texts.
    """

    best: list[tuple[float, str]]  # score and id of at most 200 nodes, best first, ties by id
    weights: Mapping[str, float]  # term of the query -> the most that it can gain
    Gains: Callable[[Collection[str], bool], _Gains]  # (ids, by names alone?) -> id -> term -> gain, no zeros; some
    # of the ids may never have been added, like the root's
    Nearness: Callable[[Sequence[str]], Sequence[float]] | None = None  # ids -> 0 … 1 of each: a confidence by what
    # is no word; the greater counts
    Nearest: Callable[[str], str] | None = None  # id -> the info that gives it this confidence, "" where none does


class Recall(Protocol):
    """A ranking of nodes by a text: the port behind which other rankings can stand."""

    def Add(self, id: str, texts: Texts) -> None:
        """Take in a node that is not there."""

    def Remove(self, id: str, texts: Texts) -> None:
        """Forget a node; `texts` are those that it came with."""

    def Rank(self, query: str, description: str = "") -> Ranking:
        """Compare a query, or a new keyword's name and description, with all nodes."""


# Texts become *terms*: words, their character trigrams (typos, inflections), and, in scripts that do not separate
# words, characters and pairs of them.  Only a node's own texts are indexed; what is above it counts when a query comes.
#   gain(t, node)  = weight of t · 20 / (20 + words before it) · idf · tf / (tf + 1.2)
#   idf            = ln(1 + (N − df + ½) / (df + ½))          BM25F: Robertson & Zaragoza 2009
#   tf             = 1½ · norm(shortest name with t) + ¾ · norm(shortest other text with t)
#   norm(text)     = geometric mean of such texts' lengths here / length, to the power of ¾ where it is no name
#   heard(t, node) = max(gain(t, node), 0.8 · heard(t, parent))
#   search   Σ heard(t) · (1 − 0.28 · share of the query's words not in the own texts) for what has children,
#            unless something is told of it, and nothing beneath says more of the query
#            the first 20 by that · (said · (0.1 + held)³)^⅕, where said is the share of its best text that the query
#            says, and held the share of the query's words in its names, path, other texts and best sentence of an info
#   confidence   said^0.4 · min(1, Σ heard(t) / what the query's words could gain)^0.6; see `_Descent._Judge`
#   placing  2 · Σ heard(t) by names alone + Σ ½ᵏ · score of the k-th best child
#            + ½ · the best score, where the new name ends in the node's: oat milk is a milk


_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0dff"
_LETTER = rf"[^\W_{_UNSPACED}]"
# C++, C# and .NET are names, and other ones than C and net.
_FindRuns = re.compile(
    rf"([{_UNSPACED}]++)|((?:(?<![\w.])\.(?={_LETTER}))?(?:{_LETTER}++|[{_MARKS}]++)++(?:\+\+|#)?)"
).findall
_DropMarks = partial(re.compile("[\u0300-\u036f]+").sub, "")
_IsAccented = re.compile("[\u00c0-\u024f\u0300-\u052f\u1e00-\u1fff]").search
_FindCamel = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+").findall
_STOP_PAIRS = "什么 是什 么是 怎么 怎样 为什 如何 为何 哪里 哪些 哪个 多少 是否 可以 一个 这个 那个 这些 那些 我们 "
_STOP_PAIRS += "有没 没有 的 了 吗 呢 吧 谁 在 说 做"  # and characters
_STOP_WORDS = frozenset(
    "a about an and any are as at be been but by can could did do does for from had has have he her him his how i "  # noqa: SIM905  read as a sentence
    "if in into is it its may me might must my not of on or our s she should so than that the their them there "
    "these they this to us was we were what when where which who why will with would you your".split()
).union(_STOP_PAIRS, _STOP_PAIRS.split())
_STOP_WEIGHT, _CHARACTER_WEIGHT, _TRIGRAMS_WEIGHT = 0.1, 0.15, 1.2  # beside 1 of a word; its trigrams share theirs
_STOPS = "".join(word for word in _STOP_WORDS if len(word) == 1 and _IsUnspaced(word))
# What stands between those that say little, or alone, is asked for as a word is: 猫 in 有没有猫.
_PartLone = partial(re.compile(rf"(?<![^\W{_STOPS}])(?![{_STOPS}])[{_UNSPACED}](?![^\W{_STOPS}])").sub, r" \g<0> ")
_FROM_ABOVE = 0.8  # share of what a keyword gains that its children do
_NAME_TF, _OTHER_TF = 1.5, 0.75  # what a name and another text of usual length count
_OTHER_LENGTH = 0.75  # how much the length of another text counts, beside 1 of a name's
_STEPS = [2 ** (step / 2) for step in range(1, 15)]  # between the lengths of texts that are told apart
_SATURATION = 1.2  # tf that gains half of what a term can
_THEME_DISCOUNT = 0.28  # less than 0.2 for three words of which one is held: a short query names the theme itself
_REORDERED = 20  # keywords in whose order it also counts how much of one of their texts the query holds
_KEPT_FROM = 2000  # keywords from which on the index is kept on disk: fewer are ranked anew in a moment
_BEGINNINGS_HELD = 16_384  # of infos on the disk; a page of them is read again when a keyword has one more
_READ, _READ_SHARE = 15_000, 0.1  # postings read for a query, rarest terms first: so many, or of so many nodes
_RANKED, _EXPANDED = 200, 8  # nodes that are scored in full; inner ones among them whose children are, too


def _Compose(text: str) -> str:
    """Return `text` in NFKC, Latin, Greek and Cyrillic letters without accents, as most people type them."""
    if text.isascii():
        return text
    # In parts, since the time that takes grows with the square of a run of marks.
    normalize = unicodedata.normalize
    parts = (normalize("NFKC", text[start : start + 1024]) for start in range(0, len(text), 1024))
    return "".join(normalize("NFC", _DropMarks(normalize("NFD", run))) if _IsAccented(run) else run for run in parts)


def _TermsOf(text: str) -> dict[str, float]:
    """Return the words of `text` and their parts, with their weights; trigrams begin with `~`."""
    terms = _WordsOf(text)
    for word in list(terms):
        terms.update(_PartsOf(word))
    return terms


def _WordsOf(text: str, told: list[str] | None = None) -> dict[str, float]:
    """Return the words of `text` with their weights; of scripts without spaces pairs, and the last characters.

    `told` gets every word and pair as often as it occurs.
    """
    words: dict[str, float] = {}
    told = [] if told is None else told
    for unspaced, spaced in _FindRuns(_Compose(text)):
        if spaced:
            variants = _VariantsOf(spaced) if len(spaced) < 64 else _VariantsOf.__wrapped__(spaced)
            told += variants
            words |= variants
            continue
        pairs = list(map(operator.add, unspaced, unspaced[1:]))
        told += pairs
        words |= dict.fromkeys(pairs, 1.0)
        words |= dict.fromkeys(_STOP_WORDS.intersection(pairs), _STOP_WEIGHT)
        alone = _STOP_WEIGHT if unspaced in _STOP_WORDS else 1.0
        words |= _WeighCharacters(unspaced[-1]) if pairs else {unspaced: alone}
    return words


@lru_cache(16_384)
def _VariantsOf(text: str) -> dict[str, float]:
    """Return a word and its parts, Tree of KeywordTree and C of C++, without a plural s; nobody is to change it."""
    variants = {part.casefold(): 1.0 if text.isalnum() else _CHARACTER_WEIGHT for part in _FindCamel(text)}
    variants[text.casefold()] = 1.0
    for word in list(variants):
        if word in _STOP_WORDS:
            variants[word] = _STOP_WEIGHT
        elif len(word) > 3 and word[-1] == "s" != word[-2]:
            variants[word[:-1]] = variants.pop(word)
    return variants


def _WeighCharacters(text: str) -> dict[str, float]:
    return {one: _CHARACTER_WEIGHT * (_STOP_WEIGHT if one in _STOP_WORDS else 1.0) for one in text}


def _PartsOf(word: str) -> dict[str, float]:
    """Return by what a word is found that is not quite what was asked: its trigrams, or a pair's first character."""
    if _IsUnspaced(word):
        return _WeighCharacters(word[:-1])
    if len(word) < 3 or word in _STOP_WORDS:
        return {}
    framed, weight = f"^{word}$", _TRIGRAMS_WEIGHT / len(word)
    return {"~" + framed[start : start + 3]: weight for start in range(len(word))}


@lru_cache(256)  # the infos of a keyword are read again when one more is told; a long description is not kept
def _MeasureText(text: str) -> tuple[int, dict[str, float], list[str]]:
    """Return the length of a text, its words, and what it tells; nobody is to change them."""
    told: list[str] = []
    words = _WordsOf(text, told)
    return 1 + bisect.bisect(_STEPS, sum(words.values())), words, told


class _Postings(dict[str, "array[int]"]):
    """Word -> a posting for each node that has it, in the order of their slots; made when first asked for."""

    # A posting is one integer: slot << 8 | code.  A code holds two lengths, of the shortest name and of the shortest
    # other text with the word, in steps of √2 and 0 for none: a table of 256 gains serves the whole tree.  A part of a
    # word has no postings but those of the words that it is in: of six postings, five would be trigrams'.

    def __init__(self) -> None:
        self.words_with: defaultdict[str, dict[str, None]] = defaultdict(dict)  # part -> words that have it

    def __missing__(self, word: str) -> array[int]:
        for part in _PartsOf(word):
            self.words_with[part][word] = None
        return self.setdefault(word, array("I"))

    def Drop(self, word: str) -> None:
        for part in _PartsOf(word):
            del self.words_with[part][word]
        del self[word]

    def Of(self, term: str) -> list[array[int]]:
        """Return the postings of a term, and those of the words that it is a part of."""
        held = [self[word] for word in self.words_with.get(term, ())]
        return [*held, self[term]] if term in self else held


class _LexicalRecall:
    """The built-in `Recall`: an inverted index in memory.  Ranks alike however the nodes came to be there."""

    def __init__(self) -> None:
        self._postings = _Postings()
        self._ids: list[str] = []  # by slot
        self._slot_of: dict[str, int] = {}
        self._free: list[int] = []  # slots of removed nodes
        self._lengths = [0] * 16, [0] * 16  # length -> how many names, how many other texts

    def Add(self, id: str, texts: Texts) -> None:
        put: Callable[[array[int], int], None] = bisect.insort if self._free else array.append
        slot = self._slot_of[id] = self._free.pop() if self._free else len(self._ids)
        self._ids[slot : slot + 1] = [id]
        postings, slot = self._postings, slot << 8
        for word, code in self._CountTexts(texts, 1).items():
            put(postings[word], slot | code)

    def Remove(self, id: str, texts: Texts) -> None:
        self.Change(id, texts, Texts([], []))
        self._free.append(self._slot_of.pop(id))

    def Change(self, id: str, old: Texts, new: Texts) -> None:
        """Take in what a node says now; only the words of texts that came or went are looked at."""
        slot, was, now = self._slot_of[id], *(Counter([*texts.others, *texts.infos]) for texts in (old, new))
        words = set[str]().union(*map(_WordsOf, [*(was - now), *(now - was), *old.names, *new.names]))
        before, after = self._CountTexts(old, -1, words).items(), self._CountTexts(new, 1, words).items()
        for word, _ in before - after:
            held = self._postings[word]
            del held[bisect.bisect_left(held, slot << 8)]
            if not held:
                self._postings.Drop(word)
        for word, code in after - before:
            bisect.insort(self._postings[word], slot << 8 | code)

    def _CountTexts(self, texts: Texts, change: int, among: Set[str] | None = None) -> dict[str, int]:
        """Return the code of every word, or of some, and add `change` to the counts of lengths."""
        names = self._Shortest(texts.names, self._lengths[0], change, among)
        others = self._Shortest([*texts.others, *texts.infos], self._lengths[1], change, among)
        codes = {word: length << 4 for word, length in names.items()}
        for word, length in others.items():
            codes[word] = codes.get(word, 0) | length
        return codes

    def _Shortest(self, texts: Sequence[str], counts: list[int], change: int, among: Set[str] | None) -> dict[str, int]:
        """Return word -> length of the shortest text that has it; as if it were shorter where it is told repeatedly."""
        if not texts:
            return {}
        measure = _MeasureText if len(texts) > 4 and len(texts[0]) <= _HEARD else _MeasureText.__wrapped__
        shortest, told = dict[str, int](), list[str]()
        for length, words, tells in sorted(map(measure, texts), key=operator.itemgetter(0), reverse=True):
            counts[length] += change
            shortest.update(dict.fromkeys(words if among is None else words.keys() & among, length))
            told += tells if among is None else filter(among.__contains__, tells)
        if len(told) > len(set(told)):
            for word, times in Counter(told).items():
                shortest[word] = max(1, shortest[word] - round(2 * math.log2(1 + math.log(times))))
        return shortest

    def Dump(self) -> tuple[bytes, bytes]:
        """Return all of it as parts for `Load`: a line of JSON, and the postings of all words in its order."""
        ids = [id if self._slot_of.get(id) == slot else None for slot, id in enumerate(self._ids)]
        counts = {word: len(held) for word, held in self._postings.items()}
        return _EncodeText([ids, *self._lengths, counts]).encode(), b"".join(self._postings.values())

    def Load(self, line: bytes, body: bytes) -> None:
        """Take over what another one has dumped."""
        ids, names, others, counts = json.loads(line)
        self._lengths = names, others
        self._ids = [id or "" for id in ids]
        self._slot_of = {id: slot for slot, id in enumerate(ids) if id is not None}
        self._free = [slot for slot, id in enumerate(ids) if id is None]
        postings, start = array("I", body), 0
        for word, count in counts.items():
            self._postings[word].extend(postings[start : start + count])
            start += count

    def Rank(self, query: str, description: str = "") -> Ranking:
        weights, dfs = self._WeighTerms(query, description)
        most, count, read = max(_READ, _READ_SHARE * len(self._slot_of)), 0, list[str]()
        for df, term in sorted((df, term) for term, df in dfs.items() if df):
            count += df
            if count > most and read:
                break  # a term is read wholly or not at all: the order of the slots must not matter
            read.append(term)
        table, scores = self._MakeTable(_OTHER_TF), dict[int, float]()
        for term in read:
            for slot, gain in self._FindNodes(term, [weights[term] * fit for fit in table]).items():
                scores[slot] = scores.get(slot, 0.0) + gain
        least = sorted(scores.values())[-_RANKED:][:1]  # quicker than to compare pairs with ids
        best = sorted((-score, self._ids[slot]) for slot, score in scores.items() if score >= least[0])
        return Ranking([(-score, id) for score, id in best[:_RANKED]], weights, partial(self._Gains, read, weights))

    def _WeighTerms(self, *texts: str) -> tuple[dict[str, float], dict[str, int]]:
        """Return term -> the most that it can gain, less behind many words; and term -> how many nodes have it."""
        weights: dict[str, float] = {}
        for text in texts:
            for place, runs in enumerate(_FindRuns(_PartLone(_Compose(text)))):
                for term, weight in _TermsOf("".join(runs)).items():
                    weights[term] = max(weights.get(term, 0.0), weight * 20 / (20 + place))
        dfs = {term: sum(map(len, self._postings.Of(term))) for term in weights}  # twice where two words have it
        for term, count in dfs.items():
            df = min(count, len(self._slot_of))
            weights[term] *= math.log(1.0 + (len(self._slot_of) - df + 0.5) / (df + 0.5))
        return weights, dfs

    def _Gains(
        self, read: Sequence[str], weights: Mapping[str, float], wanted: Collection[str], names_only: bool
    ) -> _Gains:
        slots = {self._slot_of[id] for id in wanted if id in self._slot_of}
        table = self._MakeTable(0.0 if names_only else _OTHER_TF)
        gains: _Gains = {}
        for term in read:
            found = self._FindNodes(term, [weights[term] * fit for fit in table])
            for slot in slots & found.keys():
                gains.setdefault(self._ids[slot], {})[term] = found[slot]
        return gains

    def _FindNodes(self, term: str, gains: Sequence[float]) -> dict[int, float]:
        """Return slot -> gain of the nodes that have a term; the best of its words counts."""
        found: dict[int, float] = {}
        for held in self._postings.Of(term):
            for posting in held:
                gain = gains[posting & 255]
                if gain > found.get(posting >> 8, 0.0):
                    found[posting >> 8] = gain
        return found

    def _MakeTable(self, other_tf: float) -> list[float]:
        """Return tf / (tf + 1.2) of every code, for texts as long as this tree's are."""
        norms = []
        for counts, part in zip(self._lengths, (1.0, _OTHER_LENGTH), strict=True):
            mean = sum(length * count for length, count in enumerate(counts)) / (sum(counts) or 1)
            norms.append([0.0, *(2.0 ** (part * (mean - length) / 2) for length in range(1, 16))])
        tfs = [_NAME_TF * name + other_tf * other for name in norms[0] for other in norms[1]]
        return [tf / (tf + _SATURATION) for tf in tfs]


def _Hear(parents: Mapping[str, str], ranking: Ranking, names_only: bool) -> tuple[_Gains, dict[str, float]]:
    """Return what each keyword gains by itself, and Σ heard(t) of each; `parents` holds upper ones first."""
    gains = ranking.Gains(parents, names_only)
    heard: _Gains = {"": {}}
    for id, parent_id in parents.items():
        terms = heard[id] = {term: _FROM_ABOVE * gain for term, gain in heard[parent_id].items()}
        for term, gain in gains.get(id, {}).items():
            terms[term] = max(gain, terms.get(term, 0.0))
    return gains, {id: sum(terms.values()) for id, terms in heard.items()}


def _ParentsAbove(ids: Iterable[str], state: _State) -> dict[str, str]:
    """Return keyword -> parent of `ids` and all that is above them, upper ones first."""
    parents: dict[str, str] = {}
    for id in ids:
        unknown = itertools.takewhile(lambda step: step not in parents, state.Upward(id))
        for step in reversed(list(unknown)):
            parents[step] = state.ParentOf(step)
    return parents


def _FitQuery(ranking: Ranking, see: _See) -> dict[str, float]:
    """Return id -> score of what a query could mean: the best by their own texts, and children of such."""
    with see() as state:
        wanted = dict.fromkeys(id for _, id in ranking.best if id in state.nodes)
        for id in list(filter(state.children.Get, wanted))[:_EXPANDED]:
            wanted.update(dict.fromkeys(state.children.Get(id)[:_PAGE]))
        parents = _ParentsAbove(wanted, state)
        themes = set(filter(state.children.Get, wanted))
        told = {id for id in themes if state.by_node.Get(id) or _IsDescribed(state.nodes[id])}
    gains, scores = _Hear(parents, ranking, names_only=False)
    speaking, asked = set[str](), _CountWords(ranking.weights) or 1
    for id in reversed(parents):  # does anything beneath say a word of the query that it does not, or not as well?
        own, above = gains.get(id, {}), gains.get(parents[id], {})
        if id in speaking or _CountWords(term for term, gain in own.items() if gain > above.get(term, 0.0)):
            speaking.add(parents[id])
    for id in themes - (told - speaking):  # the discount of this room's head
        scores[id] *= 1 - _THEME_DISCOUNT * (1 - _CountWords(gains.get(id, ())) / asked)
    return {id: scores[id] for id in wanted}


def _CountWords(terms: Iterable[str]) -> int:
    return sum(term[0] != "~" and term not in _STOP_WORDS for term in terms)


def _FitParents(ranking: Ranking, see: _See, name: str) -> dict[str, float]:
    """Return id -> score of the parents that a new keyword could have; a leaf is one until it has a child."""
    scores: dict[str, float] = {}
    votes: dict[str, float] = {}
    with see() as state:
        best = [(score, id) for score, id in ranking.best if id in state.nodes]
        scores.update((id, 0.0) for _, id in best)
        for score, id in best:
            parent_id = state.ParentOf(id) or _ROOT_ID
            scores[parent_id] = scores.get(parent_id, 0.0) + score * votes.setdefault(parent_id, 1.0)
            votes[parent_id] /= 2
        parents = _ParentsAbove(scores, state)
        bearers = next(filter(None, (state.ByName(name[start:]) for start in range(len(name)))), ())[:_PAGE]
        kind = _KindIn(name)  # a cherry tree is no apple tree, but belongs beside it
        leaves = [id for id in scores if kind and not state.children.Get(id)]
        siblings = {id for id in leaves if _KindIn(state.Head(id).name) == kind}
    _, heard = _Hear(parents, ranking, names_only=True)
    for id in scores.keys() - siblings:
        scores[id] += 2 * heard[id]
    for id in bearers:
        scores[id] = scores.get(id, 0.0) + 0.5 * max(ranking.best, default=(1.0, id))[0] / len(bearers)
    return scores


def _KindIn(name: str) -> str:
    """Return the last word of a name of several, the last two characters where words are not spaced, or ""."""
    runs = _FindRuns(_Compose(name))
    unspaced, spaced = runs[-1] if runs else ("", "")
    if unspaced:
        return unspaced[-2:] if len(unspaced) > 2 else ""
    parts = _FindCamel(spaced)
    return (parts[-1] if len(parts) > 1 else spaced if len(runs) > 1 else "").casefold()


# Not behind Dr. or e.g., and not where a line goes on with a small letter.
_SplitSentences = re.compile(
    r"(?<=[.!?;])(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?<!\bMrs\.)(?<!\.\w\.)\s+|(?<=[。！？；])|\n(?!\s*[a-z])"
).split
_FindClauses = re.compile(r"(?:[^,;:.!?，；：、。！？]|[,;:.!?](?=\S)){4,}").findall
_FindPart = re.compile(rf"(?![^\w\s\x00-\x7f]).{{1,{_EXCERPT_LIMIT - 2}}}(?![^\w\s\x00-\x7f])").search  # parts no marks
# Not the joiners within Persian words and within emoji: they change nothing else.
_IsHidden = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ue000-\uf8ff\ufeff\ufff0-\ufffb"
    r"\U000e0000-\U000e00ff]"
).sub


class _WordFinder:
    """Finds a query's words, and pairs of characters, in texts; each weighs what it does in the ranking."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        words = sorted((term for term in weights if term[0] != "~"), key=len, reverse=True)
        self._asked = sum(map(weights.__getitem__, words)) or 1.0
        unspaced = set(filter(_IsUnspaced, words))
        self._pairs = {word for word in unspaced if len(word) > 1}
        self._lone = {word for word in unspaced if len(word) == 1}.difference(*self._pairs)
        self.PartLone = partial(re.compile(f"[{''.join(self._lone)}]" if self._lone else "(?!)").sub, r" \g<0> ")
        spaced = "|".join(re.escape(word) for word in words if not _IsUnspaced(word)) or "(?!)"
        self._find = re.compile(rf"(?<!{_LETTER})({spaced})({_LETTER}*)").findall

    def Weigh(self, text: str) -> float:
        """Return which share of the query, by weight, stands in a text."""
        text = _Compose(text).casefold()
        found = dict[str, float]()
        for word, rest in self._find(text):
            if rest in ("", "s", "es"):
                found[word] = self._weights[word]
            elif 2 < len(word) >= len(rest):  # deploy in deployed counts half, and Go in Google not at all
                found.setdefault(word, self._weights[word] / 2)
        pairs: Iterable[str] = filter(text.__contains__, self._pairs)
        if 5 * len(self._pairs) > len(text):  # a page of text as a query has thousands
            pairs = self._pairs.intersection(map(operator.add, text, text[1:]))
        unspaced = map(self._weights.__getitem__, (*pairs, *self._lone.intersection(text)))
        return math.fsum((*found.values(), *unspaced)) / self._asked  # the same in any order

    def Share(self, texts: Iterable[str]) -> float:
        """Return which share of the best text stands in the query."""
        return _ShareSaid(texts, self._weights)

    def Quote(self, contents: Iterable[str], otherwise: str = "") -> str:
        """Return the sentence that fits best, at most 160 characters of it; of another text where none has a word."""
        best, quoted = 0.0, otherwise
        for content in contents:
            if self.Weigh(content) > best:  # no sentence of it has more
                for sentence in _SplitSentences(content):
                    weight = self.Weigh(sentence)
                    if weight > best:
                        best, quoted = weight, sentence
        text = " ".join(_IsHidden(" ", quoted).split())
        if len(text) <= _EXCERPT_LIMIT:
            return text
        found = (_FindPart(text, start) for start in range(0, len(text), _EXCERPT_LIMIT // 2))
        part = max((match[0] for match in found if match), key=self.Weigh, default=text[: _EXCERPT_LIMIT - 2])
        return f"{'' if text.startswith(part) else '…'}{part}{'' if text.endswith(part) else '…'}"


def _CouldScore(weights: Mapping[str, float]) -> float:
    """Return the score that counts as all that a query could have."""
    # Every other pair of characters spans two words, and stands nowhere else.
    return sum(one / 2 if len(term) == 2 and _IsUnspaced(term) else one for term, one in weights.items()) / 1.4 or 1.0


def _ShareSaid(texts: Iterable[str], weights: Mapping[str, float]) -> float:
    """Return which share of the best text stands in the query."""
    every = filter(None, map(_TermsOf, texts))
    shares = (sum(terms[term] for term in terms if term in weights) / sum(terms.values()) for terms in every)
    return max(shares, default=0.0)


def _IsDescribed(row: bytes) -> bool:
    return row.partition(b'"description":"')[2][:1] != b'"'  # behind it metadata may have a key called so


_HeardInfo: TypeAlias = "bytes | str"  # the row of an info, or the beginning of one that stays on the disk


class _Judged(NamedTuple):
    """How well a keyword fits, and why."""

    confidence: float
    excerpt: str
    weight: float  # its score is multiplied by this where what fits is brought into order
    nearest: str  # the info that means what the query does, where that says more than words


class LexicalRanker:
    """Ranks by words, their parts and what stands above a keyword; or by a `Recall` of somebody's own.

    It has a lock of its own, taken before the tree's, which is held for moments, to look rows up: reading and writing
    go on while a ranking is made.

    Args:
        view: The tree.
        recall: Makes a ranking of texts, empty; it is filled from the tree. None is the one of this module.
        infos_heard: How many infos of a keyword, the newest, it is found by.
    """

    def __init__(self, view: TreeView, recall: Callable[[], Recall] | None = None, infos_heard: int = 50) -> None:
        self.view = view
        self.see: _See = view._engine.See
        self._infos_heard = infos_heard
        self._make: Callable[[], Recall] = recall or _LexicalRecall
        self._files = _Files()
        self._path = "" if view.data_dir is None else os.path.join(view.data_dir, "indexes", "keywords.words")
        self._kept = ""  # the position at which the file was written
        # Of an info on the disk, as long as that stands where it does.
        self._ReadBeginning = lru_cache(_BEGINNINGS_HELD)(lambda id, place: self._ReadContent(id)[:_HEARD])
        self._recall: Recall | None = None
        self._rows: dict[str, bytes] = {}  # id -> the row by which the recall knows it
        self._infos: dict[str, tuple[_HeardInfo, ...]] = {}  # id -> the infos by which it does, where it has any
        self._lock: Any = threading.RLock()  # Any: typeshed does not know `_is_owned`
        self._noted: set[str] | None = None  # ids that changed since; None: it must be made anew.  The tree's lock

    def _ReadContent(self, id: str) -> str:
        return next((content for _, content in self.view.Contents([id])), "")

    def Note(self, ids: Collection[str] | None) -> None:
        """Take down the keywords to be read again; see `Ranker`."""
        if ids is None:
            self._noted = None
        elif self._noted is not None:
            self._noted.update(ids)

    @contextlib.contextmanager
    def Asking(self) -> Iterator[None]:
        """Let one thread at a time ask, after all that was written before."""
        self.view._engine.CheckIdle()
        if self._lock._is_owned():
            raise StoreError("a signal handler cannot rank while its own thread does")
        with self._lock:
            self._Follow()
            yield

    def _Follow(self) -> None:
        try:
            with self.see() as state:
                noted, self._noted = self._noted, set()
                if noted is not None and len(noted) > max(1000, len(state.nodes) // 4):
                    noted = None  # it is made anew sooner than it follows
                ids = list(state.nodes if noted is None else noted)
            with _CollectorOff():
                if noted is None:
                    self._rows, self._infos = {}, {}
                    self._ReadBeginning.cache_clear()
                    kept = self._LoadKept()
                    self._recall = kept or self._make()
                    ids = [] if kept else ids
                for start in range(0, len(ids), _PIECE):
                    self._TakeIn(ids[start : start + _PIECE])
        except BaseException:  # the port failed, or Ctrl-C came: nobody knows how far it got
            self._noted = None
            raise

    def Fit(
        self, query: str, more: str = "", *, is_placing: bool = False, count: int = 50, among: Collection[str] = ()
    ) -> Fits:
        """Return what fits a text, with evidence for the first `count`, in a search at least 20, and for `among`."""
        with self.Asking():
            prepare = getattr(self._recall, "Prepare", None)
        if prepare is not None:  # a recall that has a model of its own asks it now, outside of every lock
            prepare(query, more)
        with self.Asking():
            ranking = cast("Recall", self._recall).Rank(query, more)
            scores, asked = self._Score(ranking, query, is_placing), list(among)
            with self.see() as state:
                made = {id: state.OrdinalOf(id) for id in scores if id in state.nodes}
            best = sorted(made, key=lambda id: (-scores[id], made[id]))
            judged: dict[str, _Judged] = {}
            if not is_placing:
                judged = self._Judge(ranking, [*best[: max(count, _REORDERED)], *asked], scores)
                if ranking.Nearness is None:  # else it would count against what is near that it shares no word
                    best[:_REORDERED] = sorted(best[:_REORDERED], key=lambda id: -scores[id] * judged[id].weight)
            elif count:
                judged = self._JudgeParents(ranking, asked or best[:count], count)
            evidence = {id: Evidence(each.confidence, each.excerpt, each.nearest) for id, each in judged.items()}
            return Fits(best, evidence, words=_WordFinder(ranking.weights))

    def _Score(self, ranking: Ranking, query: str, is_placing: bool) -> dict[str, float]:
        scores = _FitParents(ranking, self.see, query) if is_placing else _FitQuery(ranking, self.see)
        scores.pop(_ROOT_ID, None)
        return scores

    def _Judge(self, ranking: Ranking, ids: Sequence[str], scores: Mapping[str, float]) -> dict[str, _Judged]:
        """Return how well keywords fit a query, and the sentences that say so.  The ranking is asked."""
        words, could_score = _WordFinder(ranking.weights), _CouldScore(ranking.weights)
        nearness = [0.0] * len(ids) if ranking.Nearness is None else ranking.Nearness(ids)
        with self.see() as state:
            paths = {id: state.NamesOnPath(id) for id in ids[:_REORDERED] if id in state.nodes}
        found = {}
        for id, near in zip(ids, nearness, strict=True):
            names, others, infos = self.TextsOf(id)
            excerpt = words.Quote(infos)
            texts = [words.PartLone(text[:_HEARD]) for text in (*names, *others, excerpt)]
            said, held = _ShareSaid(texts, ranking.weights), words.Weigh(" | ".join([*texts, *paths.get(id, ())]))
            in_clause = 0.85 * _ShareSaid(_FindClauses(texts[-1]), ranking.weights)  # no text of its own
            confidence = max(said, in_clause) ** 0.4 * min(1.0, scores.get(id, 0.0) / could_score) ** 0.6
            said = max(0.02, said, near) if others or infos else 0.3  # a name alone may say nothing of the query
            nearest = ranking.Nearest(id) if near > confidence and ranking.Nearest is not None else ""
            excerpt = words.Quote([nearest], nearest) or excerpt
            found[id] = _Judged(max(confidence, near), excerpt, (said * (0.1 + max(held, near)) ** 3) ** 0.2, nearest)
        return found

    def _JudgeParents(self, ranking: Ranking, ids: Sequence[str], count: int) -> dict[str, _Judged]:
        """Return how well a new keyword fits beneath others: as it fits them, or nearly as it fits their children."""
        with self.see() as state:
            alike = [id for _, id in ranking.best[:count] if id in state.nodes]
            parents = _ParentsAbove([id for id in (*ids, *alike) if id in state.nodes], state)
        scores = _Hear(parents, ranking, names_only=False)[1]
        judged = self._Judge(ranking, list(dict.fromkeys([*ids, *alike])), scores)
        for child in alike:
            above, confidence = parents[child], 0.8 * judged[child].confidence
            if above in judged and confidence > judged[above].confidence:
                judged[above] = judged[above]._replace(confidence=confidence)
        return judged

    # -- following ------------------------------------------------------------

    def TextsOf(self, id: str) -> Texts:
        """Return what the recall knows a keyword by.  The ranking is asked."""
        row = self._rows.get(id)
        return Texts([], []) if row is None else _TextsOf(row, self._infos.get(id, ()))

    def _TakeIn(self, ids: list[str]) -> None:
        """Tell the recall what the keywords say now."""
        recall = cast("Recall", self._recall)
        with self.see() as state:
            now = [(id, state.nodes.get(id), self._FindInfos(state, id)) for id in ids if id != _ROOT_ID]
        for id, row, found in now:
            old_row, old_infos = self._rows.pop(id, None), self._infos.pop(id, ())
            infos = self._ReadHeard(found)
            old = None if old_row is None else _TextsOf(old_row, old_infos)
            new = None if row is None else _TextsOf(row, infos)
            if row is not None:
                self._rows[id] = row
            if infos:
                self._infos[id] = infos
            if old == new:  # what was moved says what it said
                continue
            if old and new and type(recall) is _LexicalRecall:
                recall.Change(id, old, new)
                continue
            if old:
                recall.Remove(id, old)
            if new:
                recall.Add(id, new)

    def _FindInfos(self, state: _State, id: str) -> list[tuple[str, bytes | _Extent]]:
        """Return the ids of a keyword's newest infos with where they are.  The tree's lock is held."""
        links = state.by_node.Get(id)[-self._infos_heard :] if self._infos_heard else ()
        return [(info_id := _InfoIdOf(link), state.infos[info_id]) for link in links]

    def _ReadHeard(self, found: Iterable[tuple[str, bytes | _Extent]]) -> tuple[_HeardInfo, ...]:
        """Return what is kept of infos: of one that stays on the disk its beginning."""
        return tuple(held if isinstance(held, bytes) else self._ReadBeginning(id, held) for id, held in found)

    # -- keeping it on disk ---------------------------------------------------
    #
    # One file, never the truth: a line of JSON, {"format", "position", "heard", "crc"}, and the two parts that
    # `_LexicalRecall.Dump` returns.  It counts where its first line is what would be written now, else the index is
    # made anew.

    def Close(self) -> None:
        """Write the index to its file, if it is worth it and the file is not the same; the tree is still open.

        What nobody has asked for since is taken in first, if it is little: then what was made can be kept.
        """
        noted = self._noted  # once: another thread may open the tree anew meanwhile
        if self._recall is None or noted is None or len(noted) > _PIECE or self._lock._is_owned():
            return
        with contextlib.suppress(Exception), self.Asking():  # somebody else's ranking may fail; nothing needs this
            self._Keep()

    def _Keep(self) -> None:
        recall = self._recall
        if not self._path or not isinstance(recall, _LexicalRecall) or len(self._rows) < _KEPT_FROM:
            return
        with self.see():
            position = self.view.Position()
            if self._noted is None or self._noted or not position or position == self._kept:
                return
        line, body = recall.Dump()
        with contextlib.suppress(_DiskError):  # it is made anew where it cannot be kept
            self._files.MakeFolder(os.path.dirname(self._path))
            parts = [self._HeadOf(position, line, body), b"\n", line, b"\n", body]
            _ReplaceFile(self._files, self._path, parts)
            self._kept = position

    def _HeadOf(self, position: str, line: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(body, zlib.crc32(line))
        return _EncodeText({"format": 8, "position": position, "heard": self._infos_heard, "crc": crc}).encode()

    def _LoadKept(self) -> _LexicalRecall | None:
        """Return the index of its file, if that says what the tree says now."""
        if self._make is not _LexicalRecall or not self._path or not self._files.IsFile(self._path):
            return None
        recall = _LexicalRecall()
        try:
            head, line, body = _ReadFile(self._files, self._path).split(b"\n", 2)
            position = str(json.loads(head)["position"])
            if head != self._HeadOf(position, line, body) or self.view.ChangedSince(position) != set():
                return None
            with self.see() as state:
                if self._noted:
                    return None
                rows = {id: row for id, row in state.nodes.items() if id != _ROOT_ID}
                found = {id: self._FindInfos(state, id) for id in state.by_node if id in rows}
            recall.Load(line, body)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        self._rows = rows
        self._infos = {id: self._ReadHeard(infos) for id, infos in found.items() if infos}
        self._kept = position
        return recall


# Most rows: no aliases, nothing escaped, no query confirmed.
_MatchPlainTexts = re.compile(
    rb'\{"id":"[^"\\]*+","ordinal":\d++,"deleted":false,"parent_id":"[^"\\]*+","name":"([^"\\]*+)","aliases":\[\],'
    rb'"normalized":\["[^"\\]*+"\],"level":\d++,"children":\[\],"description":"([^"\\]*+)",(?!.*"confirmed":)'
).match


def _TextsOf(row: bytes, infos: Iterable[_HeardInfo] = ()) -> Texts:
    plain = _MatchPlainTexts(row)
    if plain:
        names, others = [str(plain[1], "utf-8")], [str(plain[2], "utf-8")]
    else:
        fields = _DecodeRow(row, KeywordNode)
        names, others = [fields["name"], *fields["aliases"]], [fields["description"], *fields["confirmed"]]
    beginnings = []
    for info in infos:
        content = info if isinstance(info, str) else _DecodeJson(str(info, "utf-8"))[0]["content"]
        beginnings.append(content[:_HEARD])
    return Texts(names, others if others[0] else others[1:], beginnings)


KeywordTree.default_ranker = LexicalRanker
