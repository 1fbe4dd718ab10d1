"""Rewriting and merging knowledge, and the guards that keep a model from losing or inventing anything.

>>> check_rewrite("Wait 7 s, see https://example.com/a.", "Wait 7 s, see https://example.com/a!", "")
[]
>>> check_rewrite("Wait 7 s before `retry()`.", "Wait a while before `retry()`.", "")
['it loses 7', 'it changes a word (7)']
>>> check_rewrite("Wait 7 s and retry.", "Wait 7 s at http://evil.example", "be clearer")
['it brings in evil.example', 'it brings in http://evil.example', 'it changes a word (retry)']

A *specific* is lost by a paraphrase: a number, an address, code, a quotation, an identifier, a resource id.
Each of the old text must be in the new one, or in the feedback, which speaks of it. Addresses, code and the shape of a
secret must not be in the new text unless one of the two has them. A word that is lost, moved, or in neither text stops
a rewriting, too. A rewriting that a guard stops becomes a proposal for a person.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher

from ..base.secrets_in_text import secret_shape
from .schemas import CONTENT_LIMIT

LENGTHS = (0.5, 2.0)
"""A rewriting is at least half and at most twice as long."""

SLIM_SHARE = 0.2
"""At most this share of the entries goes at once."""

_URL = re.compile(r"https?://[^\s<>\"'`，。；、！？）】」』)\]]+")
_HOST = re.compile(
    r"(?<![\w.-])(?:(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:[a-z]{2,24})(?![\w-])(?!\()|\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))",
    re.IGNORECASE,
)
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_QUOTED = re.compile(r"\"[^\"\n]{2,200}\"|“[^”\n]{2,200}”|「[^」\n]{2,200}」|『[^』\n]{2,200}』")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,:/]\d+)*%?")
_IDENTIFIER = re.compile(
    r"(?<![\w/.-])(?:[A-Za-z][\w]*_[\w]+|[a-z]+(?:[A-Z][a-z0-9]*)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
    r"|--?[A-Za-z][\w-]*|[\w.-]+(?:/[\w.-]+)+|\w+(?:\.\w+)*\(\)|[A-Za-z]+[-.]?\d[\w.-]*)"
)


def specifics_of(text: str) -> list[str]:
    """Return the specifics of a text, which a paraphrase would lose, each once, in order.

    >>> specifics_of('Run `pip install x` twice: "it works", see code/login and set_user_agent.')
    ['`pip install x`', '"it works"', 'code/login', 'set_user_agent']
    """
    found: dict[str, None] = {}
    rest = text
    for pattern in (_URL, _CODE, _QUOTED):
        for match in pattern.findall(rest):
            found[match.rstrip(".,;:!?") if pattern is _URL else match] = None
        rest = pattern.sub(" ", rest)
    for pattern in (_IDENTIFIER, _NUMBER):
        for match in pattern.findall(rest):
            found[match.rstrip(".,:-")] = None
        rest = pattern.sub(" ", rest)
    return [text for text in found if text]


def check_rewrite(old: str, new: str, feedback: str) -> list[str]:
    """Return the objections to a rewriting, in short sentences; none if it may stand."""
    return _check_form([old], new, len(old)) + _check_sense([old], new, feedback) + _check_words(old, new, [feedback])


def check_merge(sources: Sequence[str], new: str) -> list[str]:
    """Return the objections to a text that is to stand for several."""
    moved = [_check_words(source, new, sources) for source in sources]
    said = _check_form(sources, new, sum(map(len, sources))) + _check_sense(sources, new, "")
    return said + min(moved, key=len, default=[])


def _check_form(olds: Sequence[str], new: str, most: int) -> list[str]:
    """Return the objections to a text's length or script, or that it holds a secret."""
    said = []
    if not new.strip() or len(new) > CONTENT_LIMIT:
        said.append("it is blank or too long")
    elif len(new) < max(map(len, olds), default=0) * LENGTHS[0]:
        said.append("it is less than half as long")
    elif len(new) > most * LENGTHS[1]:
        said.append("it is more than twice as long")
    if (shape := secret_shape(new)) and not any(map(secret_shape, olds)):
        said.append(f"it has the shape of a secret ({shape})")
    scripts = set(map(script_of, olds))
    return said + (["it is written in another script"] if len(scripts) == 1 and scripts - {"", script_of(new)} else [])


def _check_sense(olds: Sequence[str], new: str, feedback: str) -> list[str]:
    """Return which specifics a text loses, and which addresses and code it has from nowhere."""
    kept = set(specifics_of(new))
    lost = [each for old in olds for each in specifics_of(old) if each not in kept]
    found = [each for each in _brought_in(new) if not any(each in _brought_in(old) for old in olds)]
    said = dict.fromkeys([f"it loses {_short(each)}" for each in lost if each.strip(_MARKS) not in feedback])
    said |= dict.fromkeys([f"it brings in {_short(each)}" for each in found if each.strip(_MARKS) not in feedback])
    return list(said)


_MARKS = '`"“”「」『』\n '


def _brought_in(text: str) -> list[str]:
    """Return the hosts, addresses and code of a text, which must not come from nowhere."""
    urls = [url.rstrip(".,;:!?") for url in _URL.findall(text)]
    return [*_HOST.findall(text.lower()), *urls, *_CODE.findall(text)]


# Words without advice in them. All others must stay, in their order: no list holds every pair of opposites, and "back
# up, then drop" says something else than "drop, then back up".
_FILLERS = frozenset(
    re.findall(
        r"\S+",
        "a an the this that these those it its is are was were be been and then also so please just very you your we"
        " our they their there here of 的 了 着 地 得 呢 啊 吧 请 就 也 是 一 个",
    )
)
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")


def _check_words(old: str, new: str, others: Sequence[str]) -> list[str]:
    """Return which words a text loses, moves, or has from nowhere; fillers may come and go."""
    before, after = _words_in(old), _words_in(new)
    known = {word for other in others for word in _words_in(other)}
    changed = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            changed += [*before[i1:i2], *(word for word in after[j1:j2] if word not in known)]
    return [f"it changes a word ({_short(changed[0])})"] if changed else []


def _words_in(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _FILLERS]


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def script_of(text: str) -> str:
    """Return the script that most letters of a text are of, outside of code and addresses.

    >>> script_of("杭州的 Python 程序员喝龙井"), script_of("green tea"), script_of("42")
    ('CJK', 'LATIN', '')
    """
    letters = Counter(
        unicodedata.name(char, "").split(" ")[0] for char in _CODE.sub(" ", _URL.sub(" ", text)) if char.isalpha()
    )
    cjk = sum(letters.pop(name, 0) for name in ("CJK", "HIRAGANA", "KATAKANA"))
    if cjk:
        letters["CJK"] = cjk * 3  # one character says about as much as three letters
    return letters.most_common(1)[0][0] if letters else ""


# Slimming


def find_clusters(ids: Iterable[str], alike: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return groups of ids of which each is alike to the first of its group, in the order given.

    >>> find_clusters(["a", "b", "c", "d"], {"a": ["c"], "b": [], "c": ["d"]})
    [['a', 'c']]
    """
    taken: set[str] = set()
    clusters = []
    for id in ids:
        if id in taken:
            continue
        group = [id, *(other for other in dict.fromkeys(alike.get(id, ())) if other != id and other not in taken)]
        if len(group) > 1:
            taken |= set(group)
            clusters.append(group)
    return clusters
