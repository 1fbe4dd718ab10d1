"""Limits, names and tables of the store, shared by all packages."""

from collections.abc import Mapping
from types import MappingProxyType

ABSTRACT, OVERVIEW, CONTENT = ".abstract.md", ".overview.md", "content.md"
META, RELATIONS, MESSAGES = ".meta.json", ".relations.json", "messages.jsonl"

LEVELS: Mapping[str, str] = MappingProxyType({"L0": ABSTRACT, "L1": OVERVIEW, "L2": CONTENT})
"""The file of each level."""

FILES = (ABSTRACT, OVERVIEW, CONTENT, RELATIONS, MESSAGES, META)
"""A node's files in the order of writing: a reader that sees the metadata sees all that they name."""

SEE_MESSAGES = b"[messages.jsonl](messages.jsonl)\n"
"""The content of an archive, whose L2 is a page of its messages: what was said is in one file, in any language."""

LEVEL_TOKENS: Mapping[str, int] = MappingProxyType({"L0": 100, "L1": 500, "L2": 5_000})
"""The longest text that the engine writes; an edited one may be longer."""

PLACES = 1 << 20
"""A passage of an archive is numbered: its message, plus this for each passage of the message before it."""

SPACE = ".ctx"
"""Holds all that is no memory: the journal, the lock, the index, pieces kept aside."""

URI_SEGMENTS = 16

OWNER_OF: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("profile", "preferences", "entities", "events"), "user")
    | dict.fromkeys(("cases", "patterns", "skills", "tools"), "agent")
)
"""Every category of a memory, and whose space it lies in."""

SESSIONS = "sessions"
"""The category of archives."""


def context_type_of(category: str) -> str:
    """Return the type of a category's nodes."""
    return {SESSIONS: "session", "skills": "skill", "tools": "tool"}.get(category, "memory")


CREATE, MERGE, APPEND, SKIP = "create", "merge", "append", "skip"
"""The actions of a plan."""

UPSERT_CONTEXT, DELETE_CONTEXT, MOVE_CONTEXT = "UPSERT_CONTEXT", "DELETE_CONTEXT", "MOVE_CONTEXT"
UPSERT_RELATION, EXTRACT_ARCHIVE = "UPSERT_RELATION", "EXTRACT_ARCHIVE"

BUDGET_TOKENS = 1_200
"""Tokens of all blocks of a search together, at most."""
