"""What may be exchanged. An implementation of one of these may raise any exception: the engine goes on without it."""

from collections.abc import Sequence
from typing import Any, Protocol

from .objects import (
    CandidateMemory,
    ContextNode,
    EmbeddingVector,
    IndexRecord,
    Message,
    RelationEdge,
    RequestContext,
    RerankScore,
    SessionArchive,
    VectorHit,
    WritePlan,
)

__all__ = ["LLM", "CandidateExtractor", "Embedder", "GraphStore", "MergePolicy", "Reranker", "VectorIndex"]


class LLM(Protocol):
    """A language model that answers in JSON."""

    def complete_json(self, prompt: str, schema: dict[str, Any], ctx: RequestContext | None = None) -> dict[str, Any]:
        """Return an object that fits `schema`. Stored text stands in the prompt as JSON strings: it is data."""


class Embedder(Protocol):
    """What turns texts into vectors."""

    def embed_texts(self, texts: Sequence[str], model: str | None = None) -> list[EmbeddingVector]:
        """Return a vector for each text, in their order."""


class VectorIndex(Protocol):
    """Vectors of index records."""

    def upsert(self, records: Sequence[IndexRecord]) -> None:
        """Take records in; one with a lower `sequence` than what is there changes nothing."""

    def delete_by_uri(self, uri: str) -> None:
        """Drop what a node has, if it has any."""

    def move_uri(self, from_uri: str, to_uri: str) -> None:
        """Move all under one URI to another."""

    def search(
        self, query_vector: Sequence[float], filters: dict[str, Any], top_k: int, level: int = 0
    ) -> list[VectorHit]:
        """Return what is nearest, best first; `filters` must name `account` and `owner_space`."""


class Reranker(Protocol):
    """What reads a question and documents together."""

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
    """What finds in messages that which is worth keeping."""

    categories: tuple[str, ...]

    def extract(
        self, messages: Sequence[Message], archive: SessionArchive, ctx: RequestContext
    ) -> list[CandidateMemory]:
        """Return candidates, each with its sources."""


class MergePolicy(Protocol):
    """How a category is written."""

    def plan(self, candidate: CandidateMemory, existing_node: ContextNode | None, ctx: RequestContext) -> WritePlan:
        """Return what to write; it adds and supersedes, and never drops."""
