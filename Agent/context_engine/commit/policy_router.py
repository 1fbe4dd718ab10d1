"""`PolicyRouter`: which policy writes a candidate, and which node it meets there."""

import contextlib
from collections.abc import Callable, Sequence

from ...base.text import fold
from ..core.config import SKIP
from ..core.errors import ContextEngineError, InvalidInputError
from ..core.objects import CandidateMemory, ContextNode, MergePolicy, RequestContext, WritePlan
from ..fs.context_fs import ContextFS
from ..fs.uri import category_uri, memory_uri
from ..providers.word_index import Filters, WordIndex, phrases_of
from .policies import AggregateTopicPolicy, AppendOnlyPolicy, MergeAdvisor, appended_uri

_SHOWN = 5
MENTIONS = "mentions"
"""The relation of a memory to an entity that its text names."""


class PolicyRouter:
    """Chooses by category; `ask` asks the index of a URI's space, and an advisor chooses where no name fits."""

    def __init__(
        self,
        fs: ContextFS,
        ask: Callable[[str, Callable[[WordIndex], list[str]]], list[str]],
        policies: Sequence[MergePolicy],
        advisor: MergeAdvisor | None = None,
    ) -> None:
        self._fs, self._ask, self._advisor = fs, ask, advisor
        self._policies = {category: policy for policy in policies for category in getattr(policy, "categories", ())}

    def select_policy(self, candidate: CandidateMemory, ctx: RequestContext) -> MergePolicy:
        """Return the policy of a candidate's category; `InvalidInputError` says that it is none."""
        policy = self._policies.get(candidate.category)
        if policy is None:
            raise InvalidInputError(f"category must be one of {', '.join(self._policies)}, not {candidate.category!r}")
        return policy

    def build_plan(self, candidate: CandidateMemory, ctx: RequestContext) -> WritePlan:
        """Return what a candidate's policy wants to write, given what is there now."""
        policy = self.select_policy(candidate, ctx)
        plan = policy.plan(candidate, self._find(candidate, policy, ctx), ctx)
        if plan.action != SKIP and candidate.owner_scope == "user":
            plan.relation_ops += [
                {"op": "append", "to_uri": uri, "relation_type": MENTIONS, "reason": ""}
                for uri in self._mentioned(candidate.content, ctx)
                if uri != plan.target_uri
            ]
        return plan

    def _mentioned(self, text: str, ctx: RequestContext) -> list[str]:
        """Return the entities that a statement names: those of the index, and those that this transaction makes."""
        above = category_uri(ctx, "entities")
        found = self._ask(above, lambda words: words.uris_named_in(text, above))
        staged = self._fs.current()
        named = [plan for plan in (staged.plans if staged else ()) if plan.node_patch.get("category") == "entities"]
        phrases = phrases_of(text)
        found += [plan.target_uri for plan in named if fold(str(plan.node_patch.get("title"))) in phrases]
        return [uri for uri in dict.fromkeys(found) if self._fs.exists(ctx, uri)]

    def _find(self, candidate: CandidateMemory, policy: MergePolicy, ctx: RequestContext) -> ContextNode | None:
        is_appended = isinstance(policy, AppendOnlyPolicy)
        uri = (
            appended_uri(candidate, ctx) if is_appended else memory_uri(ctx, candidate.category, candidate.routing_key)
        )
        if self._fs.exists(ctx, uri):
            return self._fs.read_node(ctx, uri)
        if is_appended or not isinstance(policy, AggregateTopicPolicy) or candidate.category == "profile":
            return None
        return self._find_by_name(candidate, ctx) or self._find_by_model(candidate, ctx)

    def _find_by_name(self, candidate: CandidateMemory, ctx: RequestContext) -> ContextNode | None:
        """Return the node of the category whose title or alias is the topic, as the main store has it."""
        wanted = fold(candidate.routing_key)
        above = category_uri(ctx, candidate.category)
        for uri in self._ask(above, lambda words: words.uris_by_name(candidate.routing_key)):
            with contextlib.suppress(ContextEngineError):
                if uri.startswith(f"{above}/"):
                    node = self._fs.read_node(ctx, uri)
                    names = [node.metadata.get("title") or "", *node.metadata.get("aliases", ())]
                    if wanted in map(fold, names):
                        return node
        return None

    def _find_by_model(self, candidate: CandidateMemory, ctx: RequestContext) -> ContextNode | None:
        if self._advisor is None:
            return None
        above = category_uri(ctx, candidate.category)
        query = f"{candidate.routing_key} {candidate.content}"
        nodes = []
        for uri in self._ask(above, lambda words: [hit.uri for hit in words.rank(query, _SHOWN, (0,), Filters(above))]):
            with contextlib.suppress(ContextEngineError):
                nodes.append(self._fs.read_node(ctx, uri))
        if not nodes:
            return None
        shown = [(str(node.metadata.get("title") or ""), node.abstract) for node in nodes]
        chosen = self._advisor.choose(candidate, shown, ctx)
        return nodes[chosen] if chosen >= 0 else None
