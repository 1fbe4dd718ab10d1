"""What is out of order in a tree, as a plan that a person can read, and how a plan is carried out.

`KeywordTree.Reorganize` and `ApplyReorganizePlan` call this module, which goes by public calls of the tree alone. What
needs no judgement is proposed by rule: siblings of equal names, and infos without a keyword whose text names exactly
one. All else is proposed only where a model is connected that chooses by meaning. Each step says who chose it.
"""

from __future__ import annotations

import contextlib
import heapq
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from ..keyword_tree import ConflictError, InvalidInputError, KeywordNode, KeywordTree, KeywordTreeError, NotFoundError
from .log_follower import all_infos

__all__ = ["carry_out", "propose"]

_ASKED = 20  # newest keywords, and newest infos without a keyword, that a model is asked about for one plan
_KEYS = {
    "merge": ("src_id", "dst_id"),
    "link": ("info_id", "keyword_id"),
    "move": ("id", "new_parent_id"),
    "group": ("parent_id", "name", "ids"),
}
_Step: TypeAlias = dict[str, Any]


class _TakeBackError(Exception):
    """Ends an operation that was only tried."""


def propose(tree: KeywordTree, scope_id: str) -> dict[str, Any]:
    """Return a plan for what lies below a keyword; see `KeywordTree.Reorganize`.

    By rule: siblings that are called the same (`merge`), and, in the whole tree, infos without a keyword whose text
    names exactly one (`link`). With a model that judges also levels with more children than a view shows (`group`: put
    runs of them under new keywords), chains of only children without infos (`merge`: into the one below), and what the
    model says of the newest 20 keywords, whether one is the same as another (`merge`) and where it belongs (`move`),
    and of the newest 20 infos without a keyword (`link`).
    """
    scope = tree.GetKeyword(scope_id)
    if scope is None:
        raise NotFoundError("keyword", scope_id)
    nodes = list(tree.Walk(scope.id))
    versions = {node.id: node.version for node in nodes}
    children = {node.id: tree.GetChildren(node.id) for node in nodes}
    steps: list[_Step] = []
    for node in reversed(nodes):  # from the bottom: a chain's names go to its end one by one
        merges = list(_find_duplicates(children[node.id]))
        steps += merges
        if tree.can_choose:
            steps += _look_at(tree, node, scope.id, children, {step["src_id"] for step in merges})
    note = ""
    if scope.id == "root":
        steps += _link_unlinked(tree, nodes)
    if tree.can_choose:
        touched = {scope.id, *_ids_in(steps)}
        newest = heapq.nlargest(10 * _ASKED, nodes, key=lambda node: node.ordinal)
        asked = [node for node in newest if node.id not in touched][:_ASKED]
        steps = _keep_possible(tree, steps, [step for node in asked for step in _ask(tree, node)])
    else:
        note = "no model that chooses by meaning is connected: only what needs no judgement is proposed"
    seen = {id: _look(tree, id) for id in _ids_in(steps)}
    # What is gone, or has changed since it was looked at, is left out.
    as_seen = {id for id, (version, *_) in seen.items() if version and version == versions.get(id, version)}
    steps = [step for step in steps if as_seen.issuperset(_ids_in([step]))]
    return {"scope_id": scope.id, "steps": steps, "seen": {id: seen[id] for id in _ids_in(steps)}, "note": note}


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _find_duplicates(children: list[KeywordNode]) -> Iterator[_Step]:
    """Yield a step for each sibling called as an earlier one; C and C# are two, web-apps and Web Apps are one."""
    first_of: dict[str, KeywordNode] = {}
    for child in children:
        keys = sorted({re.sub(r"[\s_-]+", "", _fold(name)) or name for name in (child.name, *child.aliases)})
        double = next((first_of[key] for key in keys if key in first_of), None)
        if double is not None:
            why = f"by rule: {child.name!r} and {double.name!r} are called the same"
            yield {"action": "merge", "src_id": child.id, "dst_id": double.id, "why": why}
        for key in keys:
            first_of.setdefault(key, child)


def _look_at(
    tree: KeywordTree, node: KeywordNode, scope_id: str, children: dict[str, list[KeywordNode]], merged: set[str]
) -> Iterator[_Step]:
    """Yield steps for what a keyword's children look like: an only child, too many of them."""
    mine, siblings = children[node.id], children.get(node.parent_id or "", [])
    is_link = node.id not in ("root", scope_id) and len(mine) == 1 and len(siblings) == 1
    if is_link and not tree.GetInfosOfKeyword(node.id, size=1):
        why = f"by rule: {node.name!r} only leads from its parent to its only child"
        yield {"action": "merge", "src_id": node.id, "dst_id": mine[0].id, "why": why}
    left = [child for child in mine if child.id not in merged]
    left.sort(key=lambda child: (_fold(child.name), child.id))
    if len(left) <= tree.max_candidates:
        return
    count = -(-len(left) // tree.max_candidates)
    why = f"by rule: {node.name!r} has {len(left):,} children, a view shows {tree.max_candidates}"
    for number in range(count):
        run = left[number * len(left) // count : (number + 1) * len(left) // count]
        name = f"{run[0].name[:200]} – {run[-1].name[:200]}"
        yield {"action": "group", "parent_id": node.id, "name": name, "ids": [child.id for child in run], "why": why}


_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_find_runs = re.compile(rf"([{_UNSPACED}]+)|([^\W_{_UNSPACED}]+)").findall


def _cut(text: str) -> list[str]:
    """Return the words of a text, folded; of scripts without spaces the characters."""
    pieces: list[str] = []
    for unspaced, word in _find_runs(_fold(text)):
        pieces += list(unspaced) or [word]
    return pieces


def _link_unlinked(tree: KeywordTree, nodes: list[KeywordNode]) -> Iterator[_Step]:
    """Yield steps for infos on no keyword: by rule where the text names exactly one, else as the model chooses."""
    if not tree.ListInfos(size=1, unlinked=True):
        return
    named: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    by_id = {node.id: node for node in nodes if node.id != "root"}
    for node in by_id.values():
        for name in (node.name, *node.aliases):
            pieces = tuple(_cut(name))
            if len("".join(pieces)) > 1:  # a single character names nothing for sure
                named[pieces].add(node.id)
    longest = max(map(len, named), default=0)
    asked: list[tuple[str, str]] = []
    for info in all_infos(tree, unlinked=True):
        ids = _find_named(_cut(info.content[:65_536]), named, longest)
        if len(ids) == 1:
            why = f"by rule: its text names {by_id[ids[0]].name!r}, and no other keyword"
            yield {"action": "link", "info_id": info.id, "keyword_id": ids[0], "why": why}
        elif tree.can_choose:
            asked.append((info.id, info.content))
    for info_id, content in asked[-_ASKED:]:
        if chosen := tree.Choose("", "link_info", content=content):
            yield {"action": "link", "info_id": info_id, "keyword_id": chosen[0], "why": _by_model(chosen)}


def _find_named(pieces: list[str], named: dict[tuple[str, ...], set[str]], longest: int) -> list[str]:
    """Return the keywords whose names are in a text; within a longer name a shorter one does not count."""
    found, start = dict[str, None](), 0
    while start < len(pieces):
        for length in range(min(longest, len(pieces) - start), 0, -1):
            if ids := named.get(tuple(pieces[start : start + length])):
                found.update(dict.fromkeys(sorted(ids)))
                start += length - 1
                break
        start += 1
    return list(found)


def _by_model(chosen: tuple[str, str]) -> str:
    return f"the model: {chosen[1]}" if chosen[1] else "the model proposes it"


def _ask(tree: KeywordTree, node: KeywordNode) -> Iterator[_Step]:
    """Let the model look at a keyword: is it the same as one that reads alike, does it belong elsewhere?"""
    alike = [other.id for other, _ in tree.RankCandidates(node.name, 6) if other.id != node.id]
    double = tree.Choose(node.name, "dedup_check", alike, description=node.description) if alike else None
    if double:
        yield {"action": "merge", "src_id": node.id, "dst_id": double[0], "why": _by_model(double)}
        return
    place = tree.Choose(node.name, "suggest_parent", description=node.description)
    path = [above.id for above in tree.GetPath(place[0])] if place else []
    if place and path and node.id not in path and place[0] != node.parent_id:
        yield {"action": "move", "id": node.id, "new_parent_id": place[0], "why": _by_model(place)}


def _keep_possible(tree: KeywordTree, steps: list[_Step], asked: list[_Step]) -> list[_Step]:
    """Return the steps that can be carried out one after another: tries it in an operation, and takes that back."""
    kept, gone = list[_Step](), set[str]()
    with contextlib.suppress(_TakeBackError), tree.Operation("reorganize", "agent"):
        for number, step in enumerate([*steps, *asked]):
            is_merge = step["action"] == "merge"
            if number >= len(steps) and is_merge and not gone.isdisjoint((step["src_id"], step["dst_id"])):
                continue  # an id that was merged leads on, but that is not what a model proposed
            with contextlib.suppress(KeywordTreeError):
                _carry_out_step(tree, step, "agent")
                kept.append(step)
                gone.update([step["src_id"]] if is_merge else [])
        raise _TakeBackError
    return kept


def carry_out(tree: KeywordTree, plan: object, changed_by: str) -> str:
    """Carry out a plan as one operation and return its id; see `KeywordTree.ApplyReorganizePlan`."""
    steps, seen = _check(plan)
    with tree.Operation("reorganize", changed_by) as block:
        changed = [id for id in _ids_in(steps) if _look(tree, id) != seen.get(id)]
        if changed:
            there = [node for node in map(tree.GetKeyword, changed) if node]
            ids = ", ".join(f"{id!r:.60}" for id in changed[:5])
            raise ConflictError(f"the tree has outgrown the plan at {ids}:", there)
        for step in steps:
            _carry_out_step(tree, step, changed_by)
    return block.id


def _carry_out_step(tree: KeywordTree, step: _Step, changed_by: str) -> None:
    if step["action"] == "merge":
        tree.MergeKeywords(step["src_id"], step["dst_id"], changed_by)
    elif step["action"] == "link":
        tree.LinkInfo(step["info_id"], step["keyword_id"], created_by="agent")
    elif step["action"] == "move":
        tree.MoveKeyword(step["id"], step["new_parent_id"], changed_by)
    else:
        group = tree.CreateKeyword(step["name"], step["parent_id"], created_by="agent")
        for id in step["ids"]:
            tree.MoveKeyword(id, group.id, changed_by)


def _check(plan: object) -> tuple[list[_Step], dict[str, Any]]:
    given = plan if isinstance(plan, dict) else {}
    steps, seen = given.get("steps"), given.get("seen")
    if not isinstance(steps, list) or not isinstance(seen, dict):
        raise InvalidInputError(f"plan must be what Reorganize() returned: {plan!r:.60}")
    for step in steps:
        keys = _KEYS.get(str(step.get("action"))) if isinstance(step, dict) else None
        if keys is None or any(step.get(key) is None for key in keys):
            raise InvalidInputError(f"a step must be one of {', '.join(_KEYS)}, with its keys: {step!r:.60}")
        for key in keys:
            value, is_list = step[key], key == "ids"
            if not isinstance(value, list if is_list else str) or not all(isinstance(each, str) for each in value):
                raise InvalidInputError(f"{key} of a step must be {'ids' if is_list else 'text'}: {value!r:.60}")
    return steps, seen


def _look(tree: KeywordTree, id: str) -> list[int]:
    """Return what of a keyword a plan is built on: its version, and how many children and infos it has."""
    node = tree.GetKeyword(id)
    if node is None or node.id != id:
        return [0, 0, 0]
    return [node.version, len(node.children), len(tree.GetInfosOfKeyword(id, size=sys.maxsize))]


def _ids_in(steps: Iterable[_Step]) -> list[str]:
    """Return the keywords that a plan's steps name."""
    ids: dict[str, None] = {}
    for step in steps:
        for key in _KEYS[step["action"]]:
            if key == "ids":
                ids.update(dict.fromkeys(step[key]))
            elif key not in ("info_id", "name"):
                ids[step[key]] = None
    return list(ids)
