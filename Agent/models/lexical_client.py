"""Answer a tree's questions without a language model: `LexicalLLMClient`.

It reads the same messages that a model would. Of each candidate it asks for the score, the tree's own confidence that
it fits, which knows names, descriptions, confirmed queries and infos, in any script. It understands nothing:
"automobile" and "car" are strangers to it. It is deterministic, needs no key, no download and no second.

>>> from keyword_tree import KeywordTree
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder, LexicalLLMClient()) as tree:
...     anna = tree.CreateKeyword("Anna", "root")
...     _ = tree.CreateInfo("Anna is allergic to peanuts.", keyword_ids=[anna.id])
...     found = tree.Search("who is allergic to peanuts?")
...     nothing = tree.Search("明天会下雨吗")
>>> found.node.name, found.excerpt
('Anna', 'Anna is allergic to peanuts.')
>>> nothing.status.value, nothing.reason
('not_found', 'agent_missing')

How it decides. The order of a view is the best evidence there is: the tree has ranked with all that it knows. So the
first in the order is taken, and only that is decided here which the order does not tell:

1. Merely recent candidates are passed over: the message says how many of the first candidates are.
2. Whether it fits at all: the chosen one itself must have a score, else the answer is `missing`.
3. Which parent a new name itself names: an apple pie is a pie.

It never jumps: the first view already has the best of all of the tree.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from typing_extensions import override

from ..finding import texts  # a name must be read by the terms by which it was ranked
from ..keyword_tree import LLMClient

__all__ = ["LexicalLLMClient"]

LEAST_SCORE = 0.4
"""The score, from 0 to 1, that an answer needs."""

LEAST_OF_A_PARENT = 0.5
"""The score that a parent needs; what none reaches stays at the root: 7 of 200 everyday keywords get a wrong one, with
0.4 11."""

HEAD_PLACES = 10
"""Among at most this many a parent is looked for that the new name ends with."""

LINKS_AT_MOST = 3
"""Keywords that an info is linked to, at most: more would not distinguish it."""


class LexicalLLMClient(LLMClient):
    """Decides by the tree's own scores, without understanding.

    It holds no state: the same messages get the same reply, in any order, from any number of threads.
    """

    candidate_fields = ("score",)
    judges = False

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        """Answer the question in the last message.

        Args:
            messages: As `KeywordTree` builds them; only the last one's content is read.
            json_schema: Not needed.

        Returns:
            A reply with `action`, `targets` and `reason`; `missing` for what is no question of this form. It proposes
            no names. Whatever strangers wrote into names, it does not raise.

        Cost: below a millisecond for a view of 50.
        """
        view = _read_view(messages)
        if view is None or not view.candidates:
            return _reply("missing", reason="the last message is no question that this client knows, or shows nothing")
        if view.intent == "suggest_parent":
            return _choose_parent(view)
        if view.intent == "link_info":
            return _choose_links(view)
        return _choose_answer(view)


class _Candidate(NamedTuple):
    idx: int
    name: str
    path: str
    score: float


class _View(NamedTuple):
    intent: str
    text: str
    """The query, or the content to be linked."""
    candidates: Sequence[_Candidate]
    """In their order, without groups and merely recent candidates."""


# Reading the question and writing the reply


def _read_view(messages: Sequence[Mapping[str, str]]) -> _View | None:
    """Return the question of the last message, or None if it is another one than a tree asks."""
    try:
        question = json.loads(messages[-1]["content"])
        listed = question["candidates"][question.get("recent", 0) :]
        candidates = [_Candidate(each["idx"], each["name"], each["path"], each.get("score", 0.0)) for each in listed]
        view = _View(question["intent"], question.get("content") or question["query"], candidates)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None
    # Groups come last, named such as `… 212 more: 上海 – 重庆`.
    while candidates and (name := candidates[-1].name).startswith("… ") and " more: " in name and " – " in name:
        candidates.pop()
    if context := question.get("context"):  # of several keywords with one name
        ranked = sorted((_with_context(each, context) for each in candidates), key=lambda each: -each.score)
        return view._replace(candidates=ranked)
    return view


def _with_context(candidate: _Candidate, context: str) -> _Candidate:
    """Return a candidate with the score that a context gives it which names a keyword above it."""
    said = set(texts.terms(context))
    above = [words for name in candidate.path.split(" / ")[:-1] if (words := texts.terms(name))]
    share = max((sum(word in said for word in words) / len(words) for words in above), default=0.0)
    return candidate._replace(score=max(candidate.score, 0.8 * share))


def _reply(action: str, targets: Iterable[_Candidate] = (), reason: str = "") -> dict[str, Any]:
    return {"action": action, "targets": [candidate.idx for candidate in targets], "reason": reason}


# Deciding


def _choose_answer(view: _View) -> dict[str, Any]:
    """Search: the first in the order, if it fits."""
    first = view.candidates[0]
    if first.score < LEAST_SCORE:
        return _reply("missing", reason="nothing says enough of the query")
    twins = [each for each in view.candidates if _is_twin(each, first)]
    if len(twins) > 1:
        return _reply("ambiguous", twins, reason="they have one name, and one says no more than another")
    return _reply("match", [first], reason=f"first in the order, with a score of {first.score:.2f}")


def _choose_parent(view: _View) -> dict[str, Any]:
    """Placement: the first in the order that fits, or one that the new name names.

    The order already counts the votes of similar keywords for their parents, with descriptions.
    """
    name, first = view.text.casefold().strip(), view.candidates[0]
    heads = [each for each in view.candidates[:HEAD_PLACES] if _is_head(each.name.casefold(), name)]
    heads = [each for each in heads if not _is_under(first.path, each.path)]
    if heads:
        return _reply("match", [max(heads, key=lambda each: len(each.name))], reason="the new name ends with its name")
    if first.score < LEAST_OF_A_PARENT or first.name.casefold() == name:  # a second Nora is not a kind of Nora
        return _reply("missing", reason="it has too little in common with any")
    return _reply("match", [first], reason=f"first in the order, with a score of {first.score:.2f}")


def _choose_links(view: _View) -> dict[str, Any]:
    """Linking: keywords whose whole name the content says, the longest first, no ancestors of others."""
    said = set(texts.terms(view.text))
    named = []
    for candidate in view.candidates:
        words = set(texts.terms(candidate.name))
        if words and words <= said and _is_meant(candidate.name, words, view.text):
            named.append((len(words - texts.STOP_WORDS), candidate))
    chosen: list[_Candidate] = []
    for _, candidate in sorted(named, key=lambda pair: -pair[0]):
        if len(chosen) < LINKS_AT_MOST and not any(_is_under(other.path, candidate.path) for other in chosen):
            chosen.append(candidate)
    return _reply("match", chosen, reason="the content names them") if chosen else _reply("missing")


def _is_meant(name: str, words: Set[str], text: str) -> bool:
    """Tell whether a text means the name that it says: an everyday word or a letter is one only as it is written."""
    if words <= texts.STOP_WORDS:  # Will and IT, but not where a sentence begins
        return re.search(rf"(?<=\w[ ,;:]){re.escape(name)}(?!\w)", text) is not None
    if len(name) == 1 and name.isascii():  # neither plan c nor C#
        return re.search(rf"(?<!\w){re.escape(name)}(?![\w+#])", text) is not None
    return True


def _is_twin(candidate: _Candidate, chosen: _Candidate) -> bool:
    """Return whether two candidates that are not under one another cannot be distinguished."""
    is_alike = candidate.name.casefold() == chosen.name.casefold() and candidate.score == chosen.score
    return is_alike and not _is_under(candidate.path, chosen.path) and not _is_under(chosen.path, candidate.path)


def _is_under(path: str, above: str) -> bool:
    return path.startswith(above + " / ")


def _is_head(head: str, name: str) -> bool:
    """Tell whether a name ends with another as its last word, or its last characters where words are not spaced."""
    if not head or head == name or not name.endswith(head):
        return False
    before = name[-len(head) - 1]
    return before.isspace() or not (head[0].isascii() or before.isascii())
