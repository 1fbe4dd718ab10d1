"""Answer a tree's questions without a language model: `LexicalLLMClient`.

It reads the same messages that a model would, and decides from the words and character n-grams of the names and paths
shown, in any script. It understands nothing: "automobile" and "car" are strangers to it. It is deterministic, needs no
key, no download and no second, and so it is what the demo runs on.

>>> from Agent.keyword_tree import KeywordTree
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, KeywordTree(folder, LexicalLLMClient()) as tree:
...     baking = tree.CreateKeyword("烘焙 baking")
...     bread = tree.CreateKeyword("rye bread", baking.id)
...     found = tree.Search("how long does a bread need in the oven?")
...     nothing = tree.Search("明天会下雨吗")
>>> [node.name for node in found.path], found.reason, found.rounds
(['root', '烘焙 baking', 'rye bread'], 'agent_match', 1)
>>> nothing.status.value, nothing.reason
('not_found', 'agent_missing')

How it decides. The order of a view is the best evidence there is: the tree has ranked with descriptions and aliases,
which are not shown, and knows how rare each word is in all of it. Preferring what names and paths say was measured and
is worse wherever keywords have descriptions. So the first in the order is taken, and only that is decided here which
the order does not tell:

1. Which of the first candidates are merely recent: a view begins with a few most recently used ones, fit or not.
2. Whether something beneath the first one is meant: of two that follow each other closely, the deeper one is.
3. Whether it fits at all: a candidate of whose name and path the query says next to nothing is no answer.
4. Where to look on: beneath a candidate that has more below it, or, where nothing fits, in a group of further names
   whose range holds a word of the query.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

# The recall's own way of cutting a text into terms: a candidate must be read by the words by which it was ranked.
from Agent.keyword_tree import LLMClient, _TermsOf

__all__ = ["LexicalLLMClient"]

FITS = 0.15
"""How much of a candidate's name and path the query must say, from 0 to 1. On clinc150, where some questions have no
answer, this refuses half of those and loses 1 to 3 of 100 right answers. A higher one would lose more of them where
keywords have descriptions, since these are not shown."""

FITS_ALONE = 2 * FITS
"""The same for a name without its path, where parts of words in common by chance weigh more: of a parent to be chosen,
and of what lies beneath a jump's target. Of keywords foreign to a tree 45 to 80 of 100 then stay at its root, to be
placed by somebody who knows, and at most 2 of 100 right places are lost."""

RECENT_PLACES = 5
"""So many places at the beginning of a view may be there for being used recently: a tenth of the usual 50."""

RECENT = 0.4
"""One of these places is passed over if less than this share of what is said of the best candidate is said of it. Not
nearer to 1, since the first of the order may be where it is for a description that is not shown."""

CLOSE = 5
"""What follows within so many places has about the same score. Any value from 3 to 20 gives the same answers."""

HEAD = 0.3
"""What it adds to a parent that the new name ends with its name: an apple pie is a pie, 静态网站 is a 网站. The first
place in the order counts 1, the one at `RANKED` a half; so this passes some eight places."""

RANKED = 20
"""As many are ranked in a view of 50; those behind stand in the order of the tree."""

DESCRIPTION = 0.5
"""What a word of a new keyword's description counts, beside one of its name: a description has many and vague ones."""

LINKS_AT_MOST = 3
"""How many keywords an info is linked to: what is about everything is found under nothing."""

_Terms = Mapping[str, float]


class LexicalLLMClient(LLMClient):
    """A decision-maker that compares words and character n-grams instead of understanding them.

    It holds no state: the same messages get the same reply, in any order, from any number of threads.
    """

    @override
    def Chat(self, messages: list[dict[str, str]], json_schema: dict[str, Any]) -> dict[str, Any]:
        """Answer the question in the last message.

        Args:
            messages: As `KeywordTree` builds them; only the last one's content is read.
            json_schema: Not needed: the reply has every field that the schema asks for.

        Returns:
            A reply with all fields of `AgentDecision`; `missing` for what is no question of this form. Whatever
            strangers wrote into names, it does not raise.

        Cost: a few milliseconds for a view of 50.
        """
        view = _read_view(messages)
        if view is None:
            return _reply("missing", reason="the last message is no question that this client knows")
        if view.intent == "suggest_parent":
            return _choose_parent(view)
        if view.intent == "link_info":
            return _choose_links(view)
        return _choose_answer(view)


@dataclass(frozen=True)
class _Candidate:
    idx: int
    name: str
    path: str
    parent: str
    """The path without the own name; empty at the top."""


@dataclass(frozen=True)
class _View:
    intent: str
    text: str
    """What is looked for: the query, or the content to be linked."""
    terms: _Terms
    """The terms of the text, those of a description besides, with their weights."""
    path: str
    candidates: Sequence[_Candidate]
    groups: Sequence[_Candidate]

    @property
    def target(self) -> _Candidate | None:
        """What the round before jumped to: it stays the first candidate."""
        first = self.candidates[0] if self.candidates else None
        return first if first and self.path and first.path == self.path else None


# Reading the question and writing the reply


def _read_view(messages: Sequence[Mapping[str, object]]) -> _View | None:
    """Return what the last message asks, or None if that cannot be told."""
    try:
        question = json.loads(str(messages[-1]["content"]))
        intent, query, path = question["intent"], question["query"], question["path"]
        listed = list(question["candidates"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(intent, str) or not isinstance(query, str) or not isinstance(path, list):
        return None
    content, description = question.get("content"), question.get("description")
    text = content if isinstance(content, str) and content else query
    terms = dict(_TermsOf(text))
    if isinstance(description, str):
        for term, weight in _TermsOf(description).items():
            terms[term] = max(terms.get(term, 0.0), weight * DESCRIPTION)
    walked = " / ".join(map(str, path))
    candidates = [candidate for item in listed if (candidate := _read_candidate(item))]
    groups: list[_Candidate] = []
    # Groups stand at the end, and nobody arrives in one: a keyword that was given such a name is none.
    while candidates and _range_of(candidates[-1].name) and candidates[-1].path != walked:
        groups.append(candidates.pop())
    return _View(intent, text, terms, walked, candidates, groups[::-1])


def _read_candidate(item: object) -> _Candidate | None:
    if not isinstance(item, dict):
        return None
    idx, name, path = item.get("idx"), item.get("name"), item.get("path")
    if isinstance(idx, bool) or not isinstance(idx, int) or not isinstance(name, str) or not isinstance(path, str):
        return None
    # Cut by the name's length, not at the last " / ": a name may hold one.
    return _Candidate(idx, name, path, path.removesuffix(name).removesuffix(" / ") if path.endswith(name) else path)


def _reply(
    action: str, targets: Iterable[_Candidate] = (), suggest_name: str | None = None, reason: str = ""
) -> dict[str, Any]:
    chosen = [candidate.idx for candidate in targets]
    return {
        "action": action,
        "node_id": chosen[0] if len(chosen) == 1 else None,
        "node_ids": chosen if action != "ambiguous" else [],
        "jump_depth": 1,
        "suggest_name": suggest_name,
        "candidate_ids": chosen if action == "ambiguous" else [],
        "reason": reason,
    }


# Deciding


def _choose_answer(view: _View) -> dict[str, Any]:
    """Search: the first in the order, or what is meant beneath it, if it fits."""
    if view.target is not None:
        return _choose_beneath(view)
    fits = [_said_on_path(candidate.path, view.terms) for candidate in view.candidates]
    order = _without_recent(view, fits)
    best = _deeper(view, order[: CLOSE + 1])
    if best is None or fits[best] < FITS:
        return _look_in_group(view) or _reply(
            "missing", suggest_name=_suggest_name(view.text), reason="the query says too little of any candidate"
        )
    chosen = view.candidates[best]
    reason = f"the query says {fits[best]:.0%} of its name and path"
    if chosen.path in _paths_above(view) and not view.path:
        return _reply("jump", [chosen], reason=f"{reason}; more may be beneath")
    following = order[order.index(best) + 1 :]
    alike = [index for index in following if view.candidates[index].name.casefold() == chosen.name.casefold()]
    if alike and alike[0] == following[0] and fits[alike[0]] == fits[best]:
        same = [view.candidates[index] for index in alike if fits[index] == fits[best]]
        return _reply("ambiguous", [chosen, *same], reason="they have one name, and no path says more than another")
    return _reply("match", [chosen], reason=reason)


def _choose_beneath(view: _View) -> dict[str, Any]:
    """Search, after a jump: the first beneath the target whose own name the query says too, else the target."""
    known = _TermsOf(view.path)
    further = {term: weight for term, weight in view.terms.items() if term not in known}
    for candidate in view.candidates[1:]:
        if _said(candidate.name, further) >= FITS_ALONE:
            return _reply("match", [candidate], reason="the first beneath it that the query names, too")
    return _reply("match", view.candidates[:1], reason="the query names nothing beneath it")


def _deeper(view: _View, order: Sequence[int]) -> int | None:
    """Return the first of the order, or the first of those behind it that stands beneath it."""
    first = order[0] if order else None
    for index in order[1:]:
        if first is not None and _is_beneath(view.candidates[index].path, view.candidates[first].path):
            return index
    return first


def _choose_parent(view: _View) -> dict[str, Any]:
    """Placement: the first in the order that fits by its own name or by what hangs beneath it.

    The order already counts the votes of similar keywords for their parents, with descriptions. It is left only for a
    parent that the new name names.
    """
    candidates = view.candidates
    fits = _fits_with_children(view)
    order = _without_recent(view, fits)
    name = view.text.casefold().strip()
    worth = {
        index: RANKED / (RANKED + place) + (HEAD if _is_head(candidates[index].name.casefold(), name) else 0.0)
        for place, index in enumerate(order)
    }
    best = max(order, key=worth.__getitem__, default=None)  # of equals the first
    if best is None or fits[best] < FITS_ALONE:
        return _look_in_group(view) or _reply(
            "missing", suggest_name=view.text.strip() or None, reason="no candidate has enough in common with it"
        )
    return _reply("match", [candidates[best]], reason=f"it or its children fit, with {fits[best]:.2f}")


def _choose_links(view: _View) -> dict[str, Any]:
    """Linking: keywords whose whole name the content says, the longest first, no ancestors of others."""
    named = [
        (sum(terms.values()), candidate)
        for candidate in view.candidates
        if (terms := _whole_words(candidate.name)) and all(term in view.terms for term in terms)
    ]
    chosen: list[_Candidate] = []
    for _, candidate in sorted(named, key=lambda pair: -pair[0]):
        if len(chosen) < LINKS_AT_MOST and not any(_is_beneath(other.path, candidate.path) for other in chosen):
            chosen.append(candidate)
    return _reply("match", chosen, reason="the content names them") if chosen else _reply("missing")


def _look_in_group(view: _View) -> dict[str, Any] | None:
    """Return a jump into the group whose range holds most of the query's words, or None if none does.

    Groups are sorted runs of names, so only there can a name stand that begins with one of these words.
    """
    words = [term[1:] for term, weight in _whole_words(view.text).items() if weight >= 1.0]

    def held(group: _Candidate) -> int:
        first, last = _range_of(group.name) or ("", "")
        # Counted in characters: a longer word is a rarer one (Zipf), and tells more.
        return sum(len(word) for word in words if (first <= word or first.startswith(word)) and word <= last)

    best = max(view.groups, key=held, default=None)
    if best is None or not held(best):
        return None
    return _reply("jump", [best], reason="nothing shown fits; a word of the query lies in this range")


# Measuring


def _said(text: str, terms: _Terms) -> float:
    """Return which share of a text's terms the given terms hold, from 0 to 1.

    Not the other way round: a question has many words that no name has, and says no less clearly what it means.
    """
    own = _TermsOf(text)
    total = sum(own.values())
    return sum(weight for term, weight in own.items() if term in terms) / total if total else 0.0


def _said_on_path(path: str, terms: _Terms) -> float:
    """Return how much is said of the names of a path, from 0 to 1.

    A mean of names, so that 茶 counts as much as a name of many words; each counts half of the one beneath it.
    """
    names = path.split(" / ")[::-1]
    weights = [0.5**level for level in range(len(names))]
    return sum(weight * _said(name, terms) for weight, name in zip(weights, names, strict=True)) / sum(weights)


def _fits_with_children(view: _View) -> list[float]:
    """Return how much is said of each candidate's own name, and of those of its shown children.

    The second child counts half of the first, the third half of that: many weak likenesses are no strong one.
    """
    own = [_said(candidate.name, view.terms) for candidate in view.candidates]
    fits = list(own)
    by_path = {candidate.path: index for index, candidate in enumerate(view.candidates)}
    votes: Counter[int] = Counter()
    for index in sorted(range(len(own)), key=lambda index: -own[index]):
        parent = by_path.get(view.candidates[index].parent)
        if parent is not None and parent != index:
            fits[parent] += own[index] * 0.5 ** votes[parent]
            votes[parent] += 1
    return fits


def _without_recent(view: _View, fits: Sequence[float]) -> list[int]:
    """Return the positions of the candidates in their order, without those that are there for being recent only.

    A keyword used last comes with all that is above it, so what stands above one that was passed over is, too.
    """
    everything = list(range(len(view.candidates)))
    if view.target is not None:  # only a first view begins with recent ones
        return everything
    best = max(fits, default=0.0)
    recent: list[int] = []
    for index in everything[: max(RECENT_PLACES, (len(view.candidates) + len(view.groups)) // 10)]:
        path = view.candidates[index].path
        if fits[index] < RECENT * best or any(_is_beneath(view.candidates[other].path, path) for other in recent):
            recent.append(index)
    return [index for index in everything if index not in recent]


def _paths_above(view: _View) -> set[str]:
    """Return the paths of all that something shown stands beneath."""
    found: set[str] = set()
    for candidate in (*view.candidates, *view.groups):
        path = candidate.parent
        while path and path not in found:
            found.add(path)
            path = path.rpartition(" / ")[0]
    return found


def _is_beneath(path: str, above: str) -> bool:
    return path.startswith(above + " / ")


def _is_head(head: str, name: str) -> bool:
    """Tell whether a name ends with another as its last word, or its last characters where words are not spaced."""
    if not head or head == name or not name.endswith(head):
        return False
    before = name[-len(head) - 1]
    return not before.isalnum() or not (head[0].isascii() or before.isascii())


def _range_of(name: str) -> tuple[str, str] | None:
    """Return the first and the last name of a group such as `… 212 more: 上海 – 重庆`, casefolded; None for others."""
    count, separator, names = name.partition(" more: ")
    if not separator or not count.startswith("… "):
        return None
    first, separator, last = names.casefold().partition(" – ")
    return (first, last) if separator else None


def _whole_words(text: str) -> dict[str, float]:
    """Return the terms that are words or, where words are not spaced, characters and pairs: no parts of words."""
    return {term: weight for term, weight in _TermsOf(text).items() if term.startswith("=")}


def _suggest_name(query: str) -> str | None:
    """Return what a keyword for this query could be called: its words without those that say little."""
    words = [word.strip("?!.,;:？！。，；：\"'()（）") for word in query.split()]
    telling = [word for word in words if any(weight >= 1.0 for weight in _whole_words(word).values())]
    return " ".join(telling)[:64].strip() or None
