"""Goals of a task as a tree, and where it is kept.

>>> tree = GoalTree()
>>> top = tree.add("cook breakfast")
>>> egg = tree.add("boil an egg", top.id)
>>> egg.status = "done"
>>> print(tree.render())
○ 1 cook breakfast
  ✓ 2 boil an egg
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from .calling import CallError, request
from .prompts import knowledge_block, language_of, tidy

__all__ = ["Goal", "GoalTree", "ServerTraceStore", "TraceStore"]

STATUSES = {"open": "○", "focused": "●", "done": "✓", "abandoned": "✗"}
"""Status → how it is drawn."""


@dataclass
class Goal:
    """What is to be reached."""

    id: str
    description: str
    status: str = "open"
    """`"open"`, `"focused"`, `"done"` or `"abandoned"`."""
    parent_id: str = ""
    """"" is the top."""
    knowledge: list[dict[str, Any]] = field(default_factory=list)
    """What was found when it was focused."""


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
        taken = {goal.id for goal in self.goals}
        number = len(self.goals) + 1
        while str(number) in taken:
            number += 1
        made = Goal(id or str(number), description, parent_id=parent_id)
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

    def render(self, with_knowledge: bool = True) -> str:
        """Return the tree as text, with the knowledge of the focused goal."""
        return "\n".join(self._lines("", "", with_knowledge, set()))

    def _lines(self, parent_id: str, indent: str, with_knowledge: bool, seen: set[str]) -> list[str]:
        lines = []
        for goal in self.goals:
            if goal.parent_id != parent_id or goal.id in seen:
                continue
            seen.add(goal.id)
            mark = STATUSES.get(goal.status, "?")
            lines.append(f"{indent}{mark} {tidy(goal.id)} {tidy(goal.description)}")
            if with_knowledge and goal.status == "focused" and goal.knowledge:
                block = knowledge_block(goal.knowledge, language_of(goal.description))
                lines += [f"{indent}    {line}" for line in block.splitlines()]
            lines += self._lines(goal.id, indent + "  ", with_knowledge, seen)
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"goals": [asdict(goal) for goal in self.goals]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "GoalTree":
        """Return the tree of JSON data; what has not the form of a goal is left out."""
        goals = []
        rows = data.get("goals")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("id"), str) and row["id"]:
                knowledge = [item for item in row.get("knowledge") or () if isinstance(item, dict)]
                status = row.get("status") if row.get("status") in STATUSES else "open"
                words = (str(row.get(name) or "") for name in ("description", "parent_id"))
                goals.append(Goal(row["id"], next(words), str(status), next(words), knowledge))
        return cls(goals)


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
