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

FILE_BYTES = 64 * 1024 * 1024
"""A larger file of a node is not read: it cannot be the engine's."""

MESSAGE_BYTES, RAW_BYTES = 16 * 1024 * 1024, 48 * 1024 * 1024
"""A message's text, and all of the message as JSON, with its images."""

ARCHIVE_BYTES, ARCHIVE_MESSAGES = 1024 * 1024, 1_000
"""A longer session goes into several archives, so that reading one message of it stays cheap."""

PLACES = 1 << 20
"""A passage of an archive is numbered: its message, plus this for each passage of the message before it."""

SPACE = ".ctx"
"""Holds all that is no memory: the journal, the lock, the index, pieces kept aside."""

URI_SEGMENTS, URI_CHARACTERS = 16, 1_024

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

CHECKPOINT_COMMITS, WAL_BYTES = 500, 4 * 1024 * 1024
"""So many commits may wait for a sync of the files, or so much of the journal's WAL, which is emptied then."""

LEASE_S, BACKOFF_S, BACKOFF_LIMIT_S, ATTEMPTS = 60.0, 1.0, 600.0, 8
"""How long a claimed event is a worker's own, and how often and when a failed one is tried again."""

MODEL_CALLS, MODEL_SECONDS, MODEL_CANDIDATES, CHUNK_TOKENS, MODEL_THREADS = 8, 60.0, 50, 6_000, 4
"""The limits of a commit's questions to a model."""

PASSAGE_CHARACTERS, BUDGET_TOKENS = 800, 1_200
"""Tokens of a block of a search at most, and of all of them together."""

QUERY_CHARACTERS = 2_000
"""Of a longer question its beginning and its end are asked."""
