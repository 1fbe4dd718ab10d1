"""How each category is written. A merge adds and supersedes; it never drops, and never rewrites.

profile                          one node; of two values of one key the one said later is current
preferences, entities, patterns  a node for each topic; contradictions stay side by side, dated
events, cases                    a node for each, never changed
skills, tools                    a node for each name; what was learned, and how often it was used
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...base.text import CountTokens, cut_tokens, date_of, digest_of, fold, mapping_of, merge_unique, moment_of
from ..core.config import APPEND, CREATE, LEVEL_TOKENS, MERGE, SKIP
from ..core.entries import Entry, candidate_id, current_entries, entry_id, parse_entries, render_entries, safe_text
from ..core.errors import ContextEngineError, InvalidInputError
from ..core.objects import CandidateMemory, ContextNode, MergePolicy, RequestContext, WritePlan
from ..fs.context_fs import ContextFS
from ..fs.uri import category_uri, make_slug, memory_uri, parse_uri
from ..providers import WordIndex, phrases_of

_KEPT_REFS = 200
DANGER = "danger"
"""The key of a danger to the user, such as an allergy; also the mark of its node."""


class AggregateTopicPolicy:
    """Preferences, entities and patterns: a list of entries for each topic; contradictions stay side by side, dated."""

    categories: tuple[str, ...] = ("preferences", "entities", "patterns")
    has_keys = False

    def __init__(self, tokens: CountTokens) -> None:
        self._count = tokens

    def plan(self, candidate: CandidateMemory, existing_node: ContextNode | None, ctx: RequestContext) -> WritePlan:
        """Return a plan with a new or superseding entry; `skip` where there is none."""
        uri = existing_node.uri if existing_node else uri_of(candidate, ctx)
        slug = parse_uri(uri).name
        before = parse_entries(existing_node.content if existing_node else "", candidate.category, slug)
        after, reason = self._merge(before, _entry_of(candidate, slug)) if candidate.content else (before, "")
        metadata = self._metadata(candidate, mapping_of(existing_node.metadata["metadata"]) if existing_node else {})
        if existing_node is not None and after == before and metadata is None:
            return _plan(SKIP, uri, candidate, existing_node, {}, reason or "it is there already")
        kept, older = _fit(after, self._count)
        title = str(existing_node.metadata["title"]) if existing_node else candidate.routing_key
        patch: dict[str, Any] = {
            "title": title,
            "category": candidate.category,
            "content": render_entries(kept if existing_node else [*_heading(title), *kept]),
            "abstract": _join(title, kept, LEVEL_TOKENS["L0"], "; ", self._count),
            "overview": _join(title, kept, LEVEL_TOKENS["L1"], "\n- ", self._count),
            "source_refs": _refs(candidate, existing_node),
        }
        if older:
            patch["older"] = render_entries(older)
        if metadata is not None:
            patch["metadata"] = metadata
        action = MERGE if existing_node else CREATE
        return _plan(action, uri, candidate, existing_node, patch, reason or "first of its topic")

    def _metadata(self, candidate: CandidateMemory, held: dict[str, Any]) -> dict[str, Any] | None:
        """Return new metadata of the node; None leaves it unchanged."""
        return {**held, DANGER: True} if candidate.key == DANGER and held.get(DANGER) is not True else None

    def _merge(self, entries: list[Entry], new: Entry) -> tuple[list[Entry], str]:
        for place, entry in enumerate(entries):
            if entry.is_entry and not entry.is_struck and _says_same(entry, new):
                return _cite(entries, place, new), "said again"
        for place, entry in enumerate(entries):
            if entry.is_struck and _says_same(entry, new) and _is_before(new, entry):
                return _cite(entries, place, new), "said before it was superseded"
        rivals = [entry for entry in current_entries(entries) if self.has_keys and new.key and entry.key == new.key]
        superseded = [entry for entry in rivals if new.at >= entry.at]  # of two of one moment, the one that comes later
        later = [entry for entry in rivals if entry.at > new.at]
        if later:
            new = new.supersede(later[0])
        struck = [entry.supersede(new) if entry in superseded else entry for entry in entries]
        return _insert(struck, new), "supersedes what was said before" if superseded else "new"


class ProfilePolicy(AggregateTopicPolicy):
    """One node; a key has one value, the latest."""

    categories = ("profile",)
    has_keys = True


class SkillToolPolicy(AggregateTopicPolicy):
    """Skills and tools: entries, and how often they were used, each archive once."""

    categories = ("skills", "tools")

    def _metadata(self, candidate: CandidateMemory, held: dict[str, Any]) -> dict[str, Any] | None:
        archives, stats, figures = list(held.get("archives") or ()), mapping_of(held.get("stats")), {}
        sources = [_label(ref, with_message=False) for ref in candidate.source_refs]
        with contextlib.suppress(ValueError):
            figures = mapping_of(json.loads(candidate.overview or "{}"))
        if not figures or any(source in archives for source in sources):
            return None
        for name in ("calls", "successes", "failures", "seconds"):
            stats[name] = round(_number(stats.get(name)) + _number(figures.get(name)), 3)
        stats["last_use"] = max(str(stats.get("last_use") or ""), date_of(candidate.at))
        return {**held, "stats": stats, "archives": [*archives, *filter(None, sources)][-_KEPT_REFS:]}


class AppendOnlyPolicy:
    """Events and cases: a node for each, which is never changed."""

    categories: tuple[str, ...] = ("events", "cases")

    def __init__(self, tokens: CountTokens) -> None:
        self._count = tokens

    def plan(self, candidate: CandidateMemory, existing_node: ContextNode | None, ctx: RequestContext) -> WritePlan:
        """Return a plan for a node of its own; `skip` where it exists."""
        uri = existing_node.uri if existing_node else uri_of(candidate, ctx)
        if existing_node is not None:
            return _plan(SKIP, uri, candidate, existing_node, {}, "it is there already")
        entry = _entry_of(candidate, parse_uri(uri).name)
        patch = {
            "title": candidate.routing_key,
            "category": candidate.category,
            "content": render_entries([*_heading(candidate.routing_key), entry]),
            "abstract": candidate.abstract
            or cut_tokens(f"{entry.at[:10]} {entry.text}".strip(), LEVEL_TOKENS["L0"], self._count),
            "overview": candidate.overview or cut_tokens(entry.text, LEVEL_TOKENS["L1"], self._count),
            "source_refs": _refs(candidate, None),
        }
        return _plan(APPEND, uri, candidate, None, patch, "new")


def uri_of(candidate: CandidateMemory, ctx: RequestContext) -> str:
    """Return where a candidate goes, if no node is its topic yet; an event by what it says, and its sources."""
    if candidate.category not in AppendOnlyPolicy.categories:
        return memory_uri(ctx, candidate.category, candidate.routing_key)
    owner = ctx.user_id if candidate.owner_scope == "user" else ctx.agent_id
    sources = json.dumps(candidate.source_refs, sort_keys=True, ensure_ascii=False)
    digest = digest_of(owner, candidate.category, sources, fold(candidate.content), size=6)
    name = make_slug(candidate.routing_key, 100)
    return memory_uri(ctx, candidate.category, f"{date_of(candidate.at)}-{name}-{digest}")


def _plan(
    action: str, uri: str, candidate: CandidateMemory, existing: ContextNode | None, patch: dict[str, Any], reason: str
) -> WritePlan:
    version = int(existing.metadata["version"]) if existing else 0
    return WritePlan(action, uri, patch, [], [], reason, version, candidate_id(candidate))


def _label(ref: dict[str, str], with_message: bool = True) -> str:
    """Return a source as an entry has it: `0002-1f3a9c04#m7`."""
    archive = ref.get("archive", "").rpartition("/")[2]
    message = ref.get("message", "")
    return f"{archive}#{message}" if archive and message and with_message else archive


def _entry_of(candidate: CandidateMemory, slug: str) -> Entry:
    text = safe_text(candidate.content)
    sources = tuple(filter(None, map(_label, candidate.source_refs)))
    id = entry_id(candidate.category, slug, text)
    return Entry(text, id, moment_of(candidate.at) if candidate.at else "", sources)


def _is_before(new: Entry, struck: Entry) -> bool:
    """Whether a statement is older than the one that took its place: stated again, it does not come back."""
    return new.at < struck.until or (bool(new.sources) and set(new.sources) <= set(struck.sources))


def _says_same(one: Entry, other: Entry) -> bool:
    return one.id == other.id or fold(one.text) == fold(other.text)


def _cite(entries: list[Entry], place: int, new: Entry) -> list[Entry]:
    """Return the list with the sources of a new entry at the one that says the same."""
    return [*entries[:place], entries[place].with_sources(new.sources), *entries[place + 1 :]]


def _insert(entries: list[Entry], new: Entry) -> list[Entry]:
    """Return the list with an entry at the place of its date, newest first, below lines above all entries."""
    places = [place for place, entry in enumerate(entries) if entry.is_entry]
    last = places[-1] + 1 if places else len(entries)
    place = next((place for place in places if entries[place].at <= new.at), last)
    return [*entries[:place], new, *entries[place:]]


def _heading(title: str) -> list[Entry]:
    return [Entry("", is_entry=False, line=f"# {safe_text(title)}"), Entry("", is_entry=False, line="")]


def _fit(entries: list[Entry], count: CountTokens) -> tuple[list[Entry], list[Entry]]:
    """Return the entries that fit into a node, and older ones to move; superseded ones are dropped first (history)."""
    limit = LEVEL_TOKENS["L2"] - 100
    sizes = {id(entry): count(entry.render()) + 1 for entry in entries}
    sizes = {key: size for key, size in sizes.items() if size < limit}  # a longer one was edited, and stays
    total = sum(sizes.values())
    oldest_first, dropped = entries[::-1], set[int]()
    for entry in sorted(oldest_first, key=lambda entry: not entry.is_struck):
        if total > limit and entry.is_entry and id(entry) in sizes:
            dropped.add(id(entry))
            total -= sizes[id(entry)]
    older = [entry for entry in entries if id(entry) in dropped and not entry.is_struck]
    return [entry for entry in entries if id(entry) not in dropped], older


def _join(title: str, entries: Sequence[Entry], limit: int, glue: str, count: CountTokens) -> str:
    """Return the entries that fit, newest first, behind the title."""
    text, current = title, current_entries(entries)
    for entry in current:
        longer = f"{text}{': ' if text == title and glue == '; ' else glue}{entry.text}"
        if count(longer) > limit:
            break
        text = longer
    return cut_tokens(f"{title}: {current[0].text}" if text == title and current else text, limit, count)


def _refs(candidate: CandidateMemory, existing: ContextNode | None) -> list[dict[str, str]]:
    held = existing.metadata.get("source_refs", []) if existing else []
    return merge_unique(held, candidate.source_refs)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


MENTIONS = "mentions"
"""The relation of a memory to an entity that its text names."""


Ask: TypeAlias = Callable[[str, Callable[[WordIndex], list[str]]], list[str]]
"""Asks the index of a URI's space; one that was damaged is made again, and asked again."""


class PolicyRouter:
    """Chooses by category; `ask` asks the index of a URI's space."""

    def __init__(self, fs: ContextFS, ask: Ask) -> None:
        self._fs, self._ask = fs, ask
        kinds = (ProfilePolicy, AggregateTopicPolicy, AppendOnlyPolicy, SkillToolPolicy)
        policies = [kind(fs.count_tokens) for kind in kinds]
        self._policies: dict[str, MergePolicy] = {name: policy for policy in policies for name in policy.categories}

    def select_policy(self, candidate: CandidateMemory, ctx: RequestContext) -> MergePolicy:
        """Return the policy of a candidate's category; `InvalidInputError` says that it is none."""
        policy = self._policies.get(candidate.category)
        if policy is None:
            raise InvalidInputError(f"category must be one of {', '.join(self._policies)}, not {candidate.category!r}")
        return policy

    def build_plan(self, candidate: CandidateMemory, ctx: RequestContext) -> WritePlan:
        """Return the plan of a candidate's policy for the present state."""
        plan = self.select_policy(candidate, ctx).plan(candidate, self._find(candidate, ctx), ctx)
        if plan.action != SKIP and candidate.owner_scope == "user":
            plan.relation_ops += [
                {"to_uri": uri, "relation_type": MENTIONS}
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

    def _find(self, candidate: CandidateMemory, ctx: RequestContext) -> ContextNode | None:
        uri = uri_of(candidate, ctx)
        if self._fs.exists(ctx, uri):
            return self._fs.read_node(ctx, uri)
        if candidate.category in ("profile", *AppendOnlyPolicy.categories):
            return None
        return self._find_by_name(candidate, ctx)

    def _find_by_name(self, candidate: CandidateMemory, ctx: RequestContext) -> ContextNode | None:
        """Return the node of the category with this title or alias, read from the main store."""
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
