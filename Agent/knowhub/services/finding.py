"""Finding what helps with a task, in two stages: see `routing`."""

import heapq
import time
from collections.abc import Collection, Mapping
from typing import Any

from ..answers import Judged, ResultOut, SearchOut
from ..routing import ROUTE_S, SHOWN_LIMIT, order_by_quality, read_chosen, shown_text
from ..schemas import Json, Record, SearchQuery, parse
from ..tokens import Token, need, sees
from .store import Store, asker_of, entry_fields

__all__ = ["Finding"]


class Finding(Store):
    """The search."""

    def search(self, token: Token, query: SearchQuery | Mapping[str, Any]) -> SearchOut:
        """Find what helps with a task: what fits, and of that the best by score and votes.

        Cost: some milliseconds by words among 30,000; with a model, its time, at most 3 s.
        """
        need(token, "read")
        query = parse(SearchQuery, query)
        began = time.perf_counter()
        eligible = self.catalog.eligible(token, query.types, query.min_score)
        limit = 2 * query.top_k
        reason = "asked" if query.route == "recall" else self.models.available()
        if not reason and query.route == "model":
            self.models.check_share(asker_of(token))
        ids = self.catalog.rank(query.q, limit if reason else SHOWN_LIMIT, eligible) if eligible else []
        chosen, usage, shown = None, None, 0
        if eligible and not reason:
            candidates = self._candidates(eligible, ids)
            chosen, reason, usage = self._choose(token, query.q, candidates, limit)
            ids, shown = (ids[:limit], 0) if chosen is None else (chosen, len(candidates))
        results = self._results(token, ids, query.top_k)
        return {
            "results": results,
            "count": len(results),
            "routing": "recall" if chosen is None else "model",
            "reason": reason,
            "eligible": len(eligible),
            "shown": shown,
            "hidden": 0 if results else self._hidden_from(token),
            "took_ms": round((time.perf_counter() - began) * 1000, 3),
            "usage": usage,
        }

    def _hidden_from(self, token: Token) -> int:
        """Return how many entries of its organisation's hub a token does not see: a number that no query changes."""
        org = self.tokens.org
        if not org or token.sees_all() or not token.owns_scope(org):
            return 0
        return self.catalog.count_hidden(token)

    def _results(self, token: Token, ids: list[str], limit: int) -> list[ResultOut]:
        """Return the best of what was found, by quality."""
        quality, results = self.catalog.qualities(ids), list[ResultOut]()
        for id in order_by_quality([id for id in ids if id in quality], quality, len(ids)):
            record = self.ledger.read(id)
            # A model takes its time: what was hidden meanwhile must not come out.
            if record is not None and sees(token, record) and not record.fields.get("merged_into"):
                results.append(self._result(record, quality[id]))
                if len(results) == limit:
                    break
        return results

    def _candidates(self, eligible: Collection[str], recalled: list[str]) -> list[str]:
        """Return what a model is shown: up to 100 all there is, else what words found, filled up by quality."""
        if len(eligible) <= SHOWN_LIMIT:
            return sorted(eligible, key=self._newest_first)
        left = set(eligible).difference(recalled)
        quality = self.catalog.qualities(left)
        best = heapq.nlargest(SHOWN_LIMIT - len(recalled), quality, key=lambda id: (quality[id], id))
        return recalled + best

    def _newest_first(self, id: str) -> tuple[float, str]:
        known = self.catalog.get(id)
        return (-known.created_at if known else 0.0, id)

    def _choose(
        self, token: Token, query: str, candidates: list[str], limit: int
    ) -> tuple[list[str] | None, str, Json | None]:
        """Return what a model chose, why it chose nothing (None), and what that used."""
        shown, versions = [], []
        for idx, id in enumerate(candidates):
            known = self.catalog.get(id)
            types, task = (list(known.types), shown_text(known.task)) if known else ([], "")
            shown.append({"idx": idx, "types": types, "task": task})
            versions.append((id, known.version if known else 0))
        models, model = self.models, self.models.choose()
        cache_key = model, query, limit, tuple(versions)
        chosen: list[str] | None = models.cached(cache_key)
        if chosen is not None:
            return chosen, "cached", None
        question = {"query": query, "limit": limit, "candidates": shown}

        def read(data: Any) -> list[str] | None:
            picked = read_chosen(data, len(candidates), limit)
            return None if picked is None else [candidates[idx] for idx in picked]

        reply = models.ask("route_knowledge", question, read, asker_of(token), model, ROUTE_S)
        if reply.data is not None:
            models.keep(cache_key, reply.data)
        return reply.data, reply.reason, reply.usage

    def _result(self, record: Record, quality: float) -> ResultOut:
        own = record.fields
        helpful, harmful = self.catalog.votes(record.id)
        judged: Judged = {
            "score": own["score"],
            "helpful": helpful,
            "harmful": harmful,
            "confidence": own["confidence"],
        }
        return {**entry_fields(record), "eval": judged, "quality_score": quality}
