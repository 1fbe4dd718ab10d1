"""The objects that go in and out, field by field as the architecture names them; what we added stands last in each.

Times are seconds since the epoch, UTC. Results are the caller's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class RequestContext:
    """The caller: a request sees the spaces of its user and of its agent, and nothing else."""

    account_id: str
    """The tenant."""
    user_id: str
    agent_id: str
    session_id: str = ""
    """Needed to commit a session."""
    trace_id: str = ""
    """The caller's own; the engine does nothing with it."""


@dataclass(frozen=True)
class Message:
    """One message of a session, whatever shape it came in."""

    id: str
    """The caller's, else a digest of role, text and occurrence."""
    role: str
    """`"user"`, `"assistant"`, `"tool"`, `"system"`, or `"unknown"`."""
    text: str
    """The text, tool calls and their results included; of an image its place."""
    at: float
    """When; the time of the commit where the message does not say."""
    name: str = ""
    """The speaker's name, if the message has one."""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """As it came."""
    forgotten: bool = False
    """Its text was removed on request; the id stays, so that it does not come back."""


@dataclass
class ContextNode:
    """One node of the main store: a folder with its levels."""

    uri: str
    parent_uri: str
    context_type: str
    """`"memory"`, `"skill"`, `"tool"` or `"session"`."""
    category: str
    owner_space: str
    """`user:{id}` or `agent:{id}`."""
    abstract: str = ""
    overview: str = ""
    content: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Further fields of `.meta.json`: `version`, `sequence`, `title`, `aliases`, `confirmed`, `created_at`,
    `updated_at`, `source_refs`, `digests`, and the caller's own object under `metadata`. Writing a node that has a
    `version` fails where the store has another one by now."""


@dataclass(frozen=True)
class RelationEdge:
    """One node's relation to another; one for each (from, to, type)."""

    from_uri: str
    to_uri: str
    relation_type: str
    reason: str = ""
    weight: float = 1.0


@dataclass
class SessionArchive:
    """The messages of a session, archived."""

    session_id: str
    archive_uri: str
    summary: str
    """Its L0."""
    recent_messages: list[Message]
    """All that are in it."""
    stats: dict[str, Any] = field(default_factory=dict)
    """Counts, speakers, `used_tools`, `used_contexts`."""


@dataclass
class CandidateMemory:
    """A candidate for a memory; its policy decides the form of storage."""

    category: str
    owner_scope: str
    """`"user"` or `"agent"`."""
    routing_key: str
    """The topic, entity, skill or event that it belongs to."""
    abstract: str
    overview: str
    content: str
    confidence: float
    source_refs: list[dict[str, str]]
    """`{"archive": uri, "message": id}` for each source."""
    key: str = ""
    """Of a profile: what can have one value only, as `lives_in`."""
    at: float = 0.0
    """When it was said."""


@dataclass
class WritePlan:
    """The changes that a policy plans; they are kept in the journal with the commit."""

    action: str
    target_uri: str
    node_patch: dict[str, Any] = field(default_factory=dict)
    relation_ops: list[dict[str, Any]] = field(default_factory=list)
    outbox_events: list[dict[str, Any]] = field(default_factory=list)
    """Empty: the transaction registers the events that its changes imply."""
    reason: str = ""
    expected_version: int | None = None
    """Of the node that the plan was made from; None is none."""
    candidate_id: str = ""


@dataclass(frozen=True)
class WriteResult:
    """The result of a plan."""

    uri: str
    action: str
    node_version: int
    created: bool
    updated: bool


@dataclass
class CommitResult:
    """The result of a commit."""

    archive: SessionArchive | None
    """The last one that was written; None where nothing was new."""
    write_results: list[WriteResult]
    outbox_events: list["OutboxEvent"]
    stats: dict[str, Any]
    status: str
    """`"committed"`, `"partial"`, `"archived"` or `"unchanged"`."""
    commit_id: str = ""
    """Of the last transaction; `undo` takes it."""

    def __repr__(self) -> str:
        return f"<CommitResult {self.status} {self.commit_id}, {len(self.write_results)} files of memory written>"


@dataclass
class IndexRecord:
    """One level of a node, or one passage of it, in the index."""

    id: str
    uri: str
    parent_uri: str
    context_type: str
    category: str
    level: int
    text: str
    filters: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    part: int = 0
    """Which passage, or which message, from 0."""
    sequence: int = 0
    """Of the commit that wrote the node: an older record never takes the place of a newer one."""


@dataclass
class IndexBatchResult:
    """The counts of a worker's round."""

    claimed: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0


@dataclass
class OutboxEvent:
    """Where the index has to look; not what it has to write."""

    event_id: str
    event_type: str
    uri: str
    payload: dict[str, Any]
    status: str
    """`"held"`, `"pending"`, `"leased"`, `"done"` or `"dead"`."""
    retry_count: int
    created_at: float
    sequence: int = 0


@dataclass
class TypedQuery:
    """A question as the retrievers take it."""

    text: str
    context_type: str = ""
    """Only categories of this type: `memory`, `session`, `skill` or `tool`; "" is any."""
    categories: list[str] = field(default_factory=list)
    """Only these; empty is any."""
    target_uri: str = ""
    """Only this and what is under it; "" is all that the request sees."""
    top_k: int = 10
    filters: dict[str, Any] = field(default_factory=dict)
    """`since`, `until` (seconds)."""
    hints: dict[str, Any] = field(default_factory=dict)
    """`raised` (category → factor), `budget_tokens`."""


@dataclass(frozen=True)
class SeedHit:
    """A hit of the first round."""

    uri: str
    score: float
    category: str
    owner_space: str
    abstract: str
    has_overview: bool
    has_content: bool


@dataclass(frozen=True)
class NodeHit:
    """A level or a passage of a node that fits."""

    uri: str
    score: float
    level: int
    part: int
    reason: str
    """Why it fits, without its level and score: these are before it in a block's `match_reason`."""
    at: float = 0.0
    """When it was said, in seconds since the epoch; 0.0 where that is unknown."""
    says: frozenset[str] = frozenset()
    """The part of the question that a passage says: its terms, and the relations that it asks for."""
    speaker: str = ""
    """The role, a space and the name of who said it."""
    subjects: frozenset[str] = frozenset()
    """The subjects of the states that it says, where the question asks for some; see `keywords.subjects_of`."""
    sequence: int = 0
    """Of the commit that wrote the node: of what was said in one second, the later one."""


@dataclass
class RetrievedBlock:
    """A block of a node, as a search or a read returns it."""

    uri: str
    level_hit: str
    abstract: str
    overview: str
    content_excerpt: str
    relations: list[RelationEdge]
    score: float
    match_reason: str


@dataclass
class SearchResult:
    """The blocks of a search."""

    query_plan: list[TypedQuery]
    seed_hits: list[SeedHit]
    blocks: list[RetrievedBlock]
    total: int
    """How many blocks there are, those left out included."""
    omitted: int = 0
    """How many did not fit into the budget."""
    note: str = ""
    """Why less was looked at than usual, or in another way."""


@dataclass(slots=True, unsafe_hash=True)  # of a long listing there are many: a frozen one takes three times as long
class NodeSummary:
    """An entry of a listing."""

    uri: str
    name: str
    is_dir: bool
    """Whether it is a folder only, and no node."""
    has_children: bool
    category: str
    updated_at: float


@dataclass(frozen=True)
class NodeStat:
    """The facts about a node, without its text."""

    uri: str
    exists: bool
    version: int
    size: int
    """Bytes of its files."""
    updated_at: float


@dataclass(frozen=True)
class MoveProjection:
    """The changes of an index by a move."""

    old_uri: str
    new_uri: str
    old_parent_uri: str
    new_parent_uri: str


@dataclass(frozen=True)
class VectorHit:
    """A record near a vector."""

    id: str
    uri: str
    score: float
    level: int
    filters: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EmbeddingVector:
    """A text's vector."""

    dense_vector: Sequence[float]
    sparse_vector: Mapping[int, float] | None = None
    model: str = ""


@dataclass(frozen=True)
class RerankScore:
    """A document's place by a reranker."""

    uri: str
    score: float
    reason: str = ""


@dataclass(frozen=True)
class RelationIndexRecord:
    """An edge, for a graph beside the store."""

    id: str
    from_uri: str
    to_uri: str
    relation_type: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HistoryEntry:
    """One commit's part in a node."""

    commit_id: str
    sequence: int
    name: str
    """The name of the commit."""
    at: float
    author: str
    """`user/agent` of the request."""
    change: str
    """`"created"`, `"changed"`, `"deleted"` or `"moved"`."""
    before: dict[str, str]
    """Name of file → text, of those that the commit changed, as far as the journal has it."""
    after: dict[str, str]


@dataclass
class ForgetResult:
    """The removed and the kept nodes of `forget`."""

    uris: list[str]
    """Memories that are gone."""
    messages: list[dict[str, str]]
    """`{"archive": uri, "message": id}` of each message whose text is gone."""
    also_cited_by: list[str]
    """Other memories that cite these messages; they were kept."""
    note: str = ""
    """Which file holds it still, because another program reads that; a worker (`work`) cleans it later."""


@dataclass
class Brief:
    """A beginning for a system prompt: its text, and the nodes that it comes from."""

    text: str
    uris: list[str]
    tokens: int


class LLM(Protocol):
    """A language model that answers in JSON."""

    def complete_json(self, prompt: str, schema: dict[str, Any], ctx: RequestContext | None = None) -> dict[str, Any]:
        """Return an object that fits `schema`. Stored text stands in the prompt as JSON strings: it is data."""


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    def embed_texts(self, texts: Sequence[str], model: str | None = None) -> list[EmbeddingVector]:
        """Return a vector for each text, in their order."""


class VectorIndex(Protocol):
    """Vectors of index records."""

    def upsert(self, records: Sequence[IndexRecord]) -> None:
        """Take records in; one with a lower `sequence` than what is there changes nothing."""

    def delete_by_uri(self, uri: str) -> None:
        """Drop the records of a node, if it has any."""

    def move_uri(self, from_uri: str, to_uri: str) -> None:
        """Move all under one URI to another."""

    def search(
        self, query_vector: Sequence[float], filters: dict[str, Any], top_k: int, level: int = 0
    ) -> list[VectorHit]:
        """Return the nearest records, best first; `filters` must name `account` and `owner_space`."""


class Reranker(Protocol):
    """A model that reads a question and documents together."""

    def rerank(self, query: str, documents: Sequence[dict[str, str]], top_k: int | None = None) -> list[RerankScore]:
        """Return a score for each document, `{"uri": …, "text": …}`."""


class GraphStore(Protocol):
    """A copy of the relations, where they are to be walked."""

    def upsert_edges(self, edges: Sequence[RelationEdge]) -> None:
        """Take edges in, one for each (from, to, type)."""

    def remove_edges(self, from_uri: str) -> None:
        """Drop the edges of a node: it is gone, or all that it has now follow."""

    def neighbors(self, uri: str, relation_types: Sequence[str] | None = None, depth: int = 1) -> list[RelationEdge]:
        """Return the edges within `depth` steps of a node."""


class CandidateExtractor(Protocol):
    """Extracts candidates for memories from messages."""

    categories: tuple[str, ...]

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return candidates, each with its sources."""


class MergePolicy(Protocol):
    """How a category is written."""

    def plan(self, candidate: CandidateMemory, existing_node: ContextNode | None, ctx: RequestContext) -> WritePlan:
        """Return what to write; it adds and supersedes, and never drops."""
