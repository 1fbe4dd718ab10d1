"""Merging entries that say the same: a plan first, guards for every source, at most a fifth at once, one operation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.text import mapping_of, merge_unique
from ...finding.texts import terms as terms_of
from ..catalog import text_of
from ..evolving import SLIM_SHARE, check_merge, find_clusters
from ..records import Json, KnowHubError, Record
from ..schemas import CONTENT_LIMIT, TASK_LIMIT, Cluster, Plan, SlimIn, is_text
from ..tokens import Token, sees
from .store import Store, admit

_ALIKE = 0.4
"""Share of all terms that two entries must have in common for a model to compare them."""


class Slimming(Store):
    """Merging."""

    def slim(self, token: Token, body: SlimIn | Mapping[str, Any] = {}, key: str = "") -> Json:  # noqa: B006
        """Merge entries that say the same; `dry_run` gives the plan, `plan` applies one. One operation, undoable.

        Cost: a ranking for each entry; a call of a model, 20 s at most, for each cluster of similar ones.
        """
        body = admit(token, "curate", SlimIn, body)
        mark, earlier = self._repeated(token, key, "slim", body)
        if earlier:
            merged = sum(bool(each.merged_into) for each in earlier.after)
            id, none = earlier.operation_id, {"clusters": list[Json]()}
            return {"model": "", "merged": merged, "operation_id": id, "skipped": [], "plan": none}
        if not self.slimming.acquire(blocking=False):
            raise KnowHubError("busy", "another slimming is under way", retry_after_s=5.0)
        try:
            clusters, model, skipped = (
                self._plan_slim(token, body.model) if body.plan is None else (self._read_plan(token, body.plan), "", [])
            )
            planned = Plan(clusters=clusters).model_dump()
            shown: Json = {"model": model, "merged": 0, "operation_id": "", "skipped": skipped, "plan": planned}
            if body.dry_run or not clusters:
                return shown

            def plan() -> list[Record]:
                return [record for cluster in clusters for record in self._merge_one(token, cluster)]

            operation_id, _ = self._write(token, "slim", plan, mark)
            return {**shown, "merged": sum(len(each.merge) for each in clusters), "operation_id": operation_id}
        finally:
            self.slimming.release()

    def _plan_slim(self, token: Token, wanted: str) -> tuple[list[Cluster], str, list[Json]]:
        entries = self._visible(token)
        budget = math.ceil(len(entries) * SLIM_SHARE)
        model = "" if self.models.available(wanted) else self.models.choose(wanted)
        families: dict[tuple[frozenset[str], str], list[Record]] = {}
        for known in entries:
            families.setdefault((frozenset(known.fields["scopes"]), known.created_by), []).append(known)
        clusters: list[Cluster] = []
        skipped: list[Json] = []
        for records in (group for family in families.values() for group in self._alike(family, with_model=bool(model))):
            if budget <= 0:
                break
            cluster, why = self._write_cluster(token, records, model)
            if cluster is not None and len(cluster.merge) <= budget:
                budget -= len(cluster.merge)
                clusters.append(cluster)
            else:
                why = why or "more than a fifth would go at once"
                skipped.append({"ids": [each.id for each in records], "reason": why})
        return clusters, model, skipped

    def _visible(self, token: Token) -> list[Record]:
        return [each for each in self.catalog.all("knowledge") if not each.merged_into and sees(token, each)]

    def _alike(self, family: list[Record], *, with_model: bool) -> list[list[Record]]:
        """Return groups of entries that say the same, and, where a model will look at them, of similar ones."""
        equal: dict[tuple[str, str], list[Record]] = {}
        for known in sorted(family, key=lambda known: (-known.quality, known.key)):
            equal.setdefault((known.fields["task"].strip(), known.content.strip()), []).append(known)
        groups = [group for group in equal.values() if len(group) > 1]
        if not with_model:
            return groups
        left = {group[0].id: group[0] for group in equal.values() if len(group) == 1}
        texts = {id: text_of(known.fields, known.content) for id, known in left.items()}
        among, terms = frozenset(left), {id: set(terms_of(text)) for id, text in texts.items()}

        def are_alike(one: str, other: str) -> bool:
            return one != other and len(terms[one] & terms[other]) >= _ALIKE * len(terms[one] | terms[other])

        ranked = {id: self.catalog.rank(texts[id][:1000], 6, among) for id in left}
        alike = {id: [other for other in found if are_alike(id, other)] for id, found in ranked.items()}
        return groups + [[left[id] for id in ids] for ids in find_clusters(left, alike)]

    def _write_cluster(self, token: Token, records: list[Record], model: str) -> tuple[Cluster | None, str]:
        best, versions = records[0], {record.id: record.version for record in records}
        says: Json = {"task": best.fields["task"], "content": best.content, "reason": "equal", "versions": versions}
        made = Cluster.model_construct(keep=best.id, merge=[record.id for record in records[1:]], **says)
        said = {(each.fields["task"].strip(), each.content.strip()) for each in records}
        if len(said) == 1:
            return made, ""
        shown = [
            {"idx": idx, "types": each.fields["types"], "task": each.fields["task"], "content": each.content}
            for idx, each in enumerate(records)
        ]

        def read(data: Any) -> tuple[str, str] | str | None:
            said = mapping_of(data)
            task, content = said.get("task"), said.get("content")
            if said.get("same") is False:
                return "they differ"
            is_good = said.get("same") is True and is_text(task, TASK_LIMIT) and is_text(content, CONTENT_LIMIT)
            return (str(task), str(content)) if is_good else None

        question = {"query": "", "entries": shown}
        reply = self.models.ask("merge_knowledge", question, read, token.asker, model)
        if not isinstance(reply.data, tuple):
            return None, reply.data or reply.reason
        (made.task, made.content), made.reason = reply.data, "model"
        stopped = self._check_cluster(made, records)
        return (None, "; ".join(stopped)) if stopped else (made, "")

    def _check_cluster(self, cluster: Cluster, records: Sequence[Record]) -> list[str]:
        """Return what speaks against merging: the guards of `evolving`, for each of the sources."""
        texts = [f"{each.fields['task']}\n{each.content}" for each in records]
        new = f"{cluster.task}\n{cluster.content}"
        return [] if len({text.strip() for text in [*texts, new]}) == 1 else check_merge(texts, new)

    def _read_plan(self, token: Token, plan: Plan) -> list[Cluster]:
        clusters = plan.clusters
        named = [id for cluster in clusters for id in (cluster.keep, *cluster.merge)]
        if len(set(named)) < len(named):
            raise KnowHubError("conflict", "an entry is in the plan twice")
        if sum(len(cluster.merge) for cluster in clusters) > math.ceil(len(self._visible(token)) * SLIM_SHARE):
            raise KnowHubError("conflict", "more than a fifth of the entries would go at once")
        for place, cluster in enumerate(clusters):
            records = [self._record(token, id, "knowledge") for id in (cluster.keep, *cluster.merge)]
            places = {(frozenset(each.fields["scopes"]), each.created_by) for each in records}
            if len(places) > 1 or {each.id for each in records} != {cluster.keep, *cluster.merge}:
                raise KnowHubError("conflict", "only entries of equal scopes and principal can be merged")
            if any(cluster.versions.get(each.id) != each.version for each in records):
                raise KnowHubError("conflict", "an entry was changed since: it outgrew the plan")
            if stopped := self._check_cluster(cluster, records):
                reasons = [{"pointer": f"/plan/clusters/{place}", "detail": each} for each in stopped[:50]]
                raise KnowHubError("conflict", "a guard stops the merging", reasons)
            self._check_secrets([cluster.task, cluster.content])
        return clusters

    def _merge_one(self, token: Token, cluster: Cluster) -> list[Record]:
        best, *others = (self._record(token, id, "knowledge") for id in (cluster.keep, *cluster.merge))
        own = {**best.fields, "task": cluster.task, "source": {**best.fields["source"]}}
        for name, limit in (("types", 20), ("resource_ids", 50)):
            own[name] = merge_unique(*(each.fields[name] for each in (best, *others)))[:limit]
        own["source"]["urls"] = merge_unique(*(each.fields["source"]["urls"] for each in (best, *others)))[:20]
        for other in others:
            own["tags"] = dict(list(({**other.fields["tags"], **own["tags"]}).items())[-20:])
        merged = [best.changed(cluster.content, **own), *(other.changed(merged_into=best.id) for other in others)]
        return [self.ledger.update(replace(each, version=cluster.versions[each.id])) for each in merged]
