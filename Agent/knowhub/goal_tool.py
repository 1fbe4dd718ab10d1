"""The tool `goal`, for an agent's plans; focusing brings in known entries.

with open_trace("trace-1", ServerTraceStore()):
    await goal("add", description="log in to website_a")
    result = await goal("focus", "1")            # result.output holds the goal and its 📚 block

>>> tree = GoalTree()
>>> top = tree.add("cook breakfast")
>>> egg = tree.add("boil an egg", top.id)
>>> egg.status = "done"
>>> print(tree.render())
○ 1 cook breakfast
  ✓ 2 boil an egg
"""

import contextlib
import itertools
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from ..base.language import say_in_environment as _say
from ..base.secrets_in_text import find_cookies, find_credentials
from ..base.text import mapping_of
from ..keyword_tree import LLMClient
from .calling import CallError, holding, request
from .prompts import KNOWLEDGE_EXTRACTION_PROMPT, WORDS, knowledge_block, language_of, tidy
from .tools import Json, ToolResult, _search, tool

__all__ = ["Draft", "Goal", "GoalTree", "ServerTraceStore", "TraceStore", "focus_goal", "goal", "open_trace", "reflect"]

# Goals

STATUSES = {"open": "○", "focused": "●", "done": "✓", "abandoned": "✗"}
"""Status → how it is drawn."""


@dataclass
class Goal:
    """A goal of an agent."""

    id: str
    description: str
    status: str = "open"
    """`"open"`, `"focused"`, `"done"` or `"abandoned"`."""
    parent_id: str = ""
    """"" is the top."""
    knowledge: list[dict[str, Any]] = field(default_factory=list)
    """The knowledge found when it was focused."""


class GoalTree:
    """Goals under goals, in the order of their making; at most one is focused."""

    def __init__(self, goals: list[Goal] | None = None) -> None:
        self.goals = goals or []

    def add(self, description: str, parent_id: str = "", id: str = "") -> Goal:
        """Make a goal under another one.

        Raises:
            LookupError: There is no such parent.
            ValueError: The id is in use.
        """
        if parent_id and self.find(parent_id) is None:
            raise LookupError(f"there is no goal {parent_id!r}")
        if id and self.find(id) is not None:
            raise ValueError(f"there is a goal {id!r} already")
        numbers = map(str, itertools.count(len(self.goals) + 1))
        made = Goal(id or next(each for each in numbers if self.find(each) is None), description, parent_id=parent_id)
        self.goals.append(made)
        return made

    def find(self, id: str) -> Goal | None:
        """Return a goal by its id."""
        return next((goal for goal in self.goals if goal.id == id), None)

    def focus(self, goal: Goal) -> None:
        """Focus one goal; another one that was is open again."""
        for other in self.goals:
            if other.status == "focused":
                other.status = "open"
        goal.status = "focused"

    def render(self) -> str:
        """Return the tree as text, with the knowledge of the focused goal."""
        return "\n".join(self._lines("", "", set()))

    def _lines(self, parent_id: str, indent: str, seen: set[str]) -> list[str]:
        lines = []
        for goal in self.goals:
            if goal.parent_id != parent_id or goal.id in seen:
                continue
            seen.add(goal.id)
            mark = STATUSES.get(goal.status, "?")
            lines.append(f"{indent}{mark} {tidy(goal.id)} {tidy(goal.description)}")
            if goal.status == "focused" and goal.knowledge:
                block = knowledge_block(goal.knowledge, language_of(goal.description))
                lines += [f"{indent}    {line}" for line in block.splitlines()]
            lines += self._lines(goal.id, indent + "  ", seen)
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"goals": [asdict(goal) for goal in self.goals]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GoalTree":
        """Return the tree of JSON data; parts without the form of a goal are left out."""
        goals = []
        for row in _objects_of(data.get("goals")):
            if isinstance(row.get("id"), str) and row["id"]:
                status = row.get("status") if row.get("status") in STATUSES else "open"
                said, parent_id = (str(row.get(name) or "") for name in ("description", "parent_id"))
                goals.append(Goal(row["id"], said, str(status), parent_id, _objects_of(row.get("knowledge"))))
        return cls(goals)


def _objects_of(value: object) -> list[Json]:
    """Return the objects of a list that was not checked."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class TraceStore(Protocol):
    """Where goal trees are kept."""

    async def get_goal_tree(self, trace_id: str) -> GoalTree | None:
        """Return a trace's tree, or None."""

    async def update_goal_tree(self, trace_id: str, goal_tree: GoalTree) -> None:
        """Keep a trace's tree."""


class ServerTraceStore:
    """Goal trees in the hub that `KNOWHUB_URL` names, a folder or a server: their principal's alone."""

    async def get_goal_tree(self, trace_id: str) -> GoalTree | None:
        """Return a trace's tree, or None."""
        try:
            return GoalTree.from_json(await request("GET", f"/api/trace/{trace_id}/goals"))
        except CallError as error:
            if error.code == "not-found":
                return None
            raise

    async def update_goal_tree(self, trace_id: str, goal_tree: GoalTree) -> None:
        """Keep a trace's tree."""
        await request("PUT", f"/api/trace/{trace_id}/goals", body=goal_tree.to_json())


# The tool

TOP_K, MIN_SCORE, SEARCH_S = 3, 3, 5.0
"""The number of entries that focusing asks for, and its wait in seconds."""

CODE_LINES = 10
"""Lines from which on a block of code is a resource of its own."""


@dataclass
class _Trace:
    id: str
    store: TraceStore
    tree: GoalTree | None = None


_TRACE: ContextVar[_Trace | None] = ContextVar("the trace whose goals the tool changes", default=None)


def open_trace(trace_id: str, store: TraceStore) -> contextlib.AbstractContextManager[None]:
    """Say whose goals the tool changes within the block."""
    return holding(_TRACE, _Trace(trace_id, store))


@tool("Plan: `add` a goal (description, parent_id), `focus` one to see what is known, it is `done`, or `abandon` it.")
async def goal(action: str, goal_id: str = "", description: str = "", parent_id: str = "") -> ToolResult:
    if (trace := _TRACE.get()) is None:
        raise ValueError(_say("no trace is open"))
    if trace.tree is None:
        trace.tree = await trace.store.get_goal_tree(trace.id) or GoalTree()
    tree = trace.tree
    if action == "add":
        if not description.strip():
            raise ValueError(_say("a goal needs a description"))
        made = tree.add(description, parent_id, goal_id)
        await trace.store.update_goal_tree(trace.id, tree)
        return ToolResult(_say("✅ Goal {}", made.id), tree.render(), {"items": [], "goal_id": made.id})
    found = tree.find(goal_id)
    if found is None:
        there = ", ".join(each.id for each in tree.goals) or _say("add one")
        raise ValueError(_say("there is no goal {!r}: {}", goal_id[:60], there))
    if action == "focus":
        return await focus_goal(goal_id, tree, trace.store, trace.id)
    action = "abandoned" if action == "abandon" else action  # what is done, or how the goal is called then
    if action not in ("done", "abandoned"):
        raise ValueError(_say("there is no action {!r}: add, focus, done, abandon", action[:60]))
    found.status = action
    await trace.store.update_goal_tree(trace.id, tree)
    return ToolResult(_say("✅ Goal {}: {}", found.id, _say(action)), tree.render(), {"items": [], "goal_id": found.id})


async def focus_goal(goal_id: str, goal_tree: GoalTree, trace_store: TraceStore, trace_id: str) -> ToolResult:
    """Focus a goal: find known entries, keep them with the goal, keep the tree, and show both.

    Without the server the goal is focused all the same, and the output says so.

    Raises:
        LookupError: There is no such goal.
    """
    current = goal_tree.find(goal_id)
    if current is None:
        raise LookupError(f"there is no goal {goal_id!r}")
    goal_tree.focus(current)
    language = language_of(current.description)
    try:
        current.knowledge = (await _search(current.description, TOP_K, MIN_SCORE, None, SEARCH_S)).metadata["items"]
        block = knowledge_block(current.knowledge, language)
    except Exception as error:  # whatever stands in its way
        current.knowledge, block = [], WORDS[language]["block_missing"].format(error)
    await trace_store.update_goal_tree(trace_id, goal_tree)
    output = f"{WORDS[language]['focused'].format(current.description)}\n\n{block}"
    return ToolResult("✅ Goal 已聚焦", output, {"items": current.knowledge, "goal_id": goal_id}, None)


# Reflection


@dataclass
class Draft:
    """Lessons and resources of a transcript; nothing is saved yet."""

    resources: list[Json] = field(default_factory=list)
    """Arguments of `resource_save`."""
    knowledge: list[Json] = field(default_factory=list)
    """Bodies of `POST /api/knowledge`."""


_CODE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def reflect(transcript: str | Sequence[Mapping[str, Any]], goal: str, llm_client: LLMClient | None = None) -> Draft:
    """Draft resources and knowledge from a transcript; saves nothing.

    What looks like a secret is cut out first, so that no model sees it: what is sent and what is drafted holds its
    placeholder. What does not look like one stays, see `secrets_in_text`. Without a model: long code, credentials and
    cookies, and one entry of the goal and the last answer.

    Args:
        transcript: Text, or messages with `role` and `content`.
        goal: The goal of the transcript.
        llm_client: Who drafts the lessons.
    """
    texts = [transcript] if isinstance(transcript, str) else [str(each.get("content") or "") for each in transcript]
    slug = re.sub(r"[^a-z0-9]+", "-", goal.lower()).strip("-")[:40] or "task"
    draft, cut = Draft(), dict[str, str]()
    for kind, find in (("cookie", find_cookies), ("credential", find_credentials)):
        _collect(draft, cut, kind, f"{kind}s/{slug}", [value for text in texts for value in find(text)])
        texts = [_cut(text, cut) for text in texts]
    for number, (language, code) in enumerate(
        (match for text in texts for match in _CODE.findall(text) if match[1].count("\n") >= CODE_LINES), 1
    ):
        title = f"{goal[:150]} ({number})"
        kept = {"resource_id": f"code/{slug}/{number}", "title": title, "body": code[:262_144], "content_type": "code"}
        draft.resources.append({**kept, "metadata": {"language": language} if language else {}})
    clean_goal = _cut(goal, cut)
    ids = [each["resource_id"] for each in draft.resources]
    drafted = _ask(texts, clean_goal, llm_client, ids) if llm_client is not None else None
    draft.knowledge = drafted if drafted else _plain(texts, clean_goal, ids)
    return draft


def _collect(draft: Draft, cut: dict[str, str], kind: str, id: str, found: Sequence[str]) -> None:
    """Draft a resource that seals a found secret, and note its placeholder."""
    values = list(dict.fromkeys(value for value in found if "{{secret:" not in value))
    if values:
        cut |= dict.fromkeys(values, f"{{{{secret:{id}}}}}")
        title = "Cookie" if kind == "cookie" else "Credentials"
        sealed = {"secure_body": "\n".join(values), "content_type": kind}
        draft.resources.append({"resource_id": id, "title": title, **sealed})


def _cut(text: str, cut: Mapping[str, str]) -> str:
    for value in sorted(cut, key=len, reverse=True):
        text = text.replace(value, cut[value])
    return text


def _plain(texts: Sequence[str], goal: str, ids: list[str]) -> list[Json]:
    last = next((text for text in reversed(texts) if text.strip()), "").strip()
    if not goal.strip() or not last:
        return []
    made: Json = {"task": goal[:2000], "content": last[-4000:], "types": ["usecase"], "confidence": 0.3}
    return [{**made, "resource_ids": ids[:50]}]


def _ask(texts: Sequence[str], goal: str, client: LLMClient, ids: list[str]) -> list[Json]:
    from .routing import chat  # pydantic is needed from here on
    from .schemas import KnowledgeIn

    transcript = "\n\n".join(texts)[-60_000:]
    question = {"query": goal, "prompt": KNOWLEDGE_EXTRACTION_PROMPT[language_of(goal)], "transcript": transcript}
    try:
        reply = chat(client, "reflect", {**question, "resources": ids})
    except Exception:  # the model's port: without it, the draft is a plain one
        return []
    made: list[Json] = []
    for row in _objects_of(mapping_of(reply).get("knowledge")):
        body = {name: row.get(name) for name in ("task", "content", "types", "score")}
        named = [id for id in ids if f"{{{{secret:{id}}}}}" in str(row.get("content")) or id.startswith("code/")]
        with contextlib.suppress(ValueError):
            KnowledgeIn.model_validate(body)
            made.append({**body, "resource_ids": named})
    return made
