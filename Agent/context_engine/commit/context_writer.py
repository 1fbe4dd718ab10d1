"""`ContextWriter` and `RelationWriter`: plans, and the edges in them, into the main store."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.text import cut_tokens, merge_unique
from ..core.config import APPEND, CREATE, LEVEL_TOKENS, MERGE, SKIP, context_type_of
from ..core.errors import InvalidInputError, NodeNotFoundError
from ..core.objects import ContextNode, RelationEdge, RequestContext, WritePlan, WriteResult
from ..fs.context_fs import ContextFS, RelationStore
from ..fs.uri import check_access


class ContextWriter:
    """Writes plans; within a transaction they become a part of it."""

    def __init__(self, fs: ContextFS) -> None:
        self._fs = fs

    def apply_plan(self, ctx: RequestContext, plan: WritePlan) -> WriteResult:
        """Apply a plan; `VersionConflictError` means that the node has changed since the plan was made."""
        if plan.action == SKIP:
            return WriteResult(plan.target_uri, SKIP, plan.expected_version or 0, False, False)
        if plan.action not in (CREATE, MERGE, APPEND):
            raise InvalidInputError(f"action must be create, merge, append or skip, not {plan.action!r}")
        with self._fs.transaction(ctx, plan.action) as tx:
            tx.plans.append(plan)
            result = self._write(ctx, plan.target_uri, plan.node_patch, plan.action, plan.expected_version)
            if plan.node_patch.get("older"):
                self._keep_older(ctx, plan.target_uri, plan.node_patch)
        return result

    def merge_node(self, ctx: RequestContext, uri: str, patch: Mapping[str, Any]) -> WriteResult:
        """Change a node: the fields of `patch` replace its own.

        They are `abstract`, `overview`, `content`, `title`, `aliases`, `source_refs` and `metadata`; `version` is the
        expected one.
        """
        if not self._fs.exists(ctx, uri):
            raise NodeNotFoundError(uri)
        return self._write(ctx, uri, patch, MERGE, patch.get("version"))

    def append_node(self, ctx: RequestContext, uri: str, patch: Mapping[str, Any]) -> WriteResult:
        """Make a node; one that is there stays as it is."""
        if self._fs.exists(ctx, uri):
            return WriteResult(uri, SKIP, self._fs.stat_node(ctx, uri).version, False, False)
        return self._write(ctx, uri, patch, APPEND, 0)

    def _write(
        self, ctx: RequestContext, uri: str, patch: Mapping[str, Any], action: str, expected: int | None
    ) -> WriteResult:
        parsed = check_access(ctx, uri)
        held = self._fs.read_node(ctx, uri) if self._fs.exists(ctx, uri) else None
        category = str(patch.get("category") or (held.category if held else parsed.category))
        metadata = {name: patch[name] for name in ("title", "aliases", "source_refs", "metadata") if name in patch}
        if expected is not None:
            metadata["version"] = expected
        uri, kind = (held.uri, held.context_type) if held else (parsed.text, context_type_of(category))
        node = ContextNode(uri, parsed.parent, kind, category, parsed.owner_space, metadata=metadata)
        for level in ("abstract", "overview", "content"):
            setattr(node, level, patch.get(level, getattr(held, level, "")))
        self._fs.write_node(ctx, node)
        version = (int(held.metadata["version"]) if held else 0) + 1
        return WriteResult(node.uri, action, version, held is None, held is not None)

    def _keep_older(self, ctx: RequestContext, uri: str, patch: Mapping[str, Any]) -> None:
        """Move the oldest entries to nodes under: `older-001`, and so on as they fill up."""
        above = check_access(ctx, uri).text
        number = 1
        while self._fs.exists(ctx, f"{above}/older-{number + 1:03d}"):
            number += 1
        child = f"{above}/older-{number:03d}"
        content = self._fs.read_level(ctx, child, "L2") if self._fs.exists(ctx, child) else ""
        size, limit = self._fs.count_tokens(content), LEVEL_TOKENS["L2"]
        for line in reversed(str(patch["older"]).splitlines(keepends=True)):  # the oldest first
            tokens = self._fs.count_tokens(line) + 1
            if content and size + tokens > limit:
                self._write_older(ctx, f"{above}/older-{number:03d}", number, content, patch)
                content, size, number = "", 0, number + 1
            content, size = line + content, size + tokens
        self._write_older(ctx, f"{above}/older-{number:03d}", number, content, patch)

    def _write_older(self, ctx: RequestContext, uri: str, number: int, content: str, patch: Mapping[str, Any]) -> None:
        title = str(patch.get("title") or "")
        made = {
            "title": f"{title} ({number})",
            "category": patch.get("category"),
            "content": content,
            "abstract": cut_tokens(f"{title}: {content}", LEVEL_TOKENS["L0"] - 10, self._fs.count_tokens),
            "source_refs": merge_unique(patch.get("source_refs") or ()),
        }
        self._write(ctx, uri, made, MERGE if self._fs.exists(ctx, uri) else CREATE, None)


class RelationWriter:
    """Applies the relation operations of plans."""

    def __init__(self, store: RelationStore) -> None:
        self._store = store

    def apply_edges(self, ctx: RequestContext, uri: str, relation_ops: Sequence[Mapping[str, str]]) -> None:
        """Add edges to a node, each `{"to_uri", "relation_type"}`; one that is there stays as it is."""
        edges = [RelationEdge(uri, op["to_uri"], op["relation_type"]) for op in relation_ops]
        self._store.append_edges(ctx, uri, edges)
