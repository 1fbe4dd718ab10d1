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
which are not shown, and knows how rare each word is in all of it. Ranking anew by names and paths was measured:
what brings 0.3 points on one tree costs 1 to 6 on others. So the first in the order is taken, and only that is decided
here which the order does not tell:

1. Which of the first candidates are merely recent: a view begins with a few most recently used ones, fit or not.
2. What stands above everything shown: it fits every query a little, and tells nothing.
3. Which parent a new name itself names: an apple pie is a pie.
4. Whether anything fits at all: where names and paths share next to nothing with the query, the answer is `missing`.

It never jumps: the first view already has what ranks best in all of the tree.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from typing_extensions import override

# The recall's own way of cutting a text into terms: a candidate must be read by the words by which it was ranked.
from .keyword_tree import LLMClient, _TermsOf

__all__ = ["LexicalLLMClient"]

RECENT_PLACES = 5
"""So many places at the beginning of a view may be there for being used recently: a tenth of the usual 50."""

RANKED_PLACES = 20
"""As many are ranked in a view of 50; those behind stand in the order of the tree."""

HEAD_PLACES = 10
"""Among so many a parent is looked for that the new name ends with."""

DESCRIPTION = 0.5
"""What a word of a new keyword's description counts, beside one of its name: a description has many and vague ones."""

LINKS_AT_MOST = 3
"""How many keywords an info is linked to: what is about everything is found under nothing."""

_Terms = Mapping[str, float]


class _Limits(NamedTuple):
    """What is measured where an order says less than it seems."""

    least_fit: float
    """How well the best of the first candidates must fit, from 0 to 1."""
    looked_at: int
    """So many of the first are asked whether anything fits: the first alone may be there for a description."""
    recent: float
    """A recent one is passed over if it fits less than this share of what the best does. Not nearer to 1, since what
    looks recent may be the first ranked itself, which a description brought there that is not shown."""


SEARCH = _Limits(least_fit=0.1, looked_at=5, recent=0.65)
"""On clinc150 this refuses 30 of 100 questions that have no answer and loses 0.8 of 100 right answers; a least fit of
0.08 refuses 15 for 0.4, 0.13 refuses 50 for 1.8, 0.2 refuses 71 for 4.6."""

PLACING = _Limits(least_fit=0.07, looked_at=RANKED_PLACES, recent=0.35)
"""Of keywords foreign to a tree 12 to 55 of 100 stay at its root, to be placed by somebody who knows, and at most 0.7
of 100 right places are lost. The right parent often shares no word with a new keyword, while others beside it do."""


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
    candidates: Sequence[_Candidate]
    """Without groups, which hold only what shares no term with the text."""


# Reading the question and writing the reply


def _read_view(messages: Sequence[Mapping[str, object]]) -> _View | None:
    """Return what the last message asks, or None if that cannot be told."""
    try:
        question = json.loads(str(messages[-1]["content"]))
        intent, query = question["intent"], question["query"]
        listed = list(question["candidates"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return None
    if not isinstance(intent, str) or not isinstance(query, str):
        return None
    content, description = question.get("content"), question.get("description")
    text = content if isinstance(content, str) and content else query
    terms = dict(_TermsOf(text))
    if isinstance(description, str):
        for term, weight in _TermsOf(description).items():
            terms[term] = max(terms.get(term, 0.0), weight * DESCRIPTION)
    candidates = [candidate for item in listed if (candidate := _read_candidate(item))]
    while candidates and _is_group(candidates[-1].name):  # they stand at the end
        candidates.pop()
    return _View(intent, text, terms, candidates)


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
    """Search: the first in the order, if anything fits."""
    fits = [_fit(candidate, view.terms) for candidate in view.candidates]
    order = _order(view, fits, SEARCH)
    if not _anything_fits(fits, order, SEARCH):
        return _reply("missing", suggest_name=_suggest_name(view.text), reason="the query says too little of any name")
    chosen, twins = view.candidates[order[0]], []
    for index in order[1:]:
        other = view.candidates[index]
        if other.name.casefold() != chosen.name.casefold() or fits[index] != fits[order[0]]:
            break
        if _is_beneath(other.path, chosen.path) or _is_beneath(chosen.path, other.path):
            break
        twins.append(other)
    if twins:
        return _reply("ambiguous", [chosen, *twins], reason="they have one name, and no path says more than another")
    return _reply("match", [chosen], reason=f"first in the order, with a fit of {fits[order[0]]:.2f}")


def _choose_parent(view: _View) -> dict[str, Any]:
    """Placement: the first in the order, or one near it that the new name names.

    The order already counts the votes of similar keywords for their parents, with descriptions.
    """
    own = [_fit(candidate, view.terms) for candidate in view.candidates]
    order = _order(view, _add_children(view, own), PLACING)
    name = view.text.casefold().strip()
    if not _anything_fits(own, order, PLACING):
        return _reply("missing", suggest_name=view.text.strip() or None, reason="it has too little in common with any")
    heads = (index for index in order[:HEAD_PLACES] if _is_head(view.candidates[index].name.casefold(), name))
    chosen = next(heads, order[0])
    reason = "first in the order" if chosen == order[0] else "the new name ends with its name"
    return _reply("match", [view.candidates[chosen]], reason=reason)


def _anything_fits(fits: Sequence[float], order: Sequence[int], limits: _Limits) -> bool:
    return any(fits[index] >= limits.least_fit for index in order[: limits.looked_at])


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


# Measuring


def _fit(candidate: _Candidate, terms: _Terms) -> float:
    """Return √(share of the query that the path says · share of the path that the query says), from 0 to 1."""
    return math.sqrt(_share(terms, _TermsOf(candidate.path)) * _said_on_path(candidate.path, terms))


def _share(terms: _Terms, others: _Terms) -> float:
    """Return which share of the first terms is among the others, from 0 to 1."""
    total = sum(terms.values())
    return sum(weight for term, weight in terms.items() if term in others) / total if total else 0.0


def _said_on_path(path: str, terms: _Terms) -> float:
    """Return how much is said of the names of a path, from 0 to 1.

    A mean of names, so that 茶 counts as much as a name of many words; each counts half of the one beneath it.
    """
    names = path.split(" / ")[::-1]
    weights = [0.5**level for level in range(len(names))]
    shares = (_share(_TermsOf(name), terms) for name in names)
    return sum(weight * share for weight, share in zip(weights, shares, strict=True)) / sum(weights)


def _add_children(view: _View, own: Sequence[float]) -> list[float]:
    """Return how well each candidate fits together with its shown children.

    The second child counts half of the first, the third half of that: many weak likenesses are no strong one.
    """
    fits = list(own)
    by_path = {candidate.path: index for index, candidate in enumerate(view.candidates)}
    votes: Counter[int] = Counter()
    for index in sorted(range(len(own)), key=lambda index: -own[index]):
        parent = by_path.get(view.candidates[index].parent)
        if parent is not None and parent != index:
            fits[parent] += own[index] * 0.5 ** votes[parent]
            votes[parent] += 1
    return fits


def _order(view: _View, fits: Sequence[float], limits: _Limits) -> list[int]:
    """Return the positions of the candidates in their order, without those that are there for another reason.

    Passed over are those that are only recent, what stands above them (it was used with them), and what stands above
    everything shown.
    """
    paths = [candidate.path for candidate in view.candidates]
    count = _count_recent(view.candidates)
    least = limits.recent * max(fits[:RANKED_PLACES], default=0.0)
    passed: list[int] = []
    for index in range(count):
        is_above = any(_is_beneath(paths[other], paths[index]) for other in passed)
        if not is_above and fits[index] >= least:
            break
        passed.append(index)
    order = [index for index in range(len(paths)) if index not in passed]
    telling = [i for i in order if not all(_is_beneath(path, paths[i]) for path in paths if path != paths[i])]
    return telling or order


def _count_recent(candidates: Sequence[_Candidate]) -> int:
    """Return how many of the first candidates look like recently used ones.

    A keyword is used with all that is above it, and these follow it at once, from below, if they did not come before.
    Only what has no more room among the first may be missing.
    """
    first = candidates[:RECENT_PLACES]
    seen: set[str] = set()
    count = 0
    for place, candidate in enumerate(first, start=1):
        seen.add(candidate.path)
        if not candidate.parent or candidate.parent in seen:
            count = place
        elif place == RECENT_PLACES:
            return place
        elif place == len(first) or first[place].path != candidate.parent:
            break
    return count


def _is_beneath(path: str, above: str) -> bool:
    return path.startswith(above + " / ")


def _is_head(head: str, name: str) -> bool:
    """Tell whether a name ends with another as its last word, or its last characters where words are not spaced."""
    if not head or head == name or not name.endswith(head):
        return False
    before = name[-len(head) - 1]
    return before.isspace() or not (head[0].isascii() or before.isascii())


def _is_group(name: str) -> bool:
    """Tell whether a name is one of a group, such as `… 212 more: 上海 – 重庆`."""
    return name.startswith("… ") and " more: " in name and " – " in name


def _whole_words(text: str) -> dict[str, float]:
    """Return the terms that are words or, where words are not spaced, characters and pairs: no parts of words."""
    return {term: weight for term, weight in _TermsOf(text).items() if term.startswith("=")}


def _suggest_name(query: str) -> str | None:
    """Return what a keyword for this query could be called: its words without those that say little."""
    words = [word.strip("?!.,;:？！。，；：\"'()（）") for word in query.split()]
    telling = [word for word in words if any(weight >= 1.0 for weight in _whole_words(word).values())]
    return " ".join(telling)[:64].strip() or None
