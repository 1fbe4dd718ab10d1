"""Finding what helps with a task, in two stages around a model that may be slow: see `routing`."""

import heapq
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..answers import Judged, ResultOut, SearchOut
from ..checks import need, parse
from ..routing import ROUTE_S, SHOWN_LIMIT, Asked, Reply, order_by_quality, read_chosen, shown_text
from ..schemas import Record, SearchQuery
from ..tokens import Token, sees
from .store import Store, asker_of, entry_fields

__all__ = ["Finding", "Searching"]


@dataclass
class Searching:
    """A search between its two halves: what was found without a model, and what a model is to be asked."""

    token: Token
    query: SearchQuery
    began: float
    eligible: int
    candidates: list[str]
    """What a model is shown, in order."""
    recalled: list[str]
    """What stands without a model."""
    asked: Asked | None
    chosen: list[str] | None = None
    """What an earlier answer to the same question chose."""
    reason: str = ""


class Finding:
    """The search."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def search(self, token: Token, query: SearchQuery | Mapping[str, Any]) -> SearchOut:
        """Find what helps with a task, in two stages, see `routing`.

        Cost: some milliseconds by words among 30,000; with a model, its time, at most 3 s.
        """
        searching = self.begin_search(token, query)
        return self.finish_search(searching, self._store.models.ask(searching.asked) if searching.asked else None)

    def begin_search(self, token: Token, query: SearchQuery | Mapping[str, Any]) -> Searching:
        """Do the first half of a search: all but waiting for a model."""
        need(token, "read")
        query = parse(SearchQuery, query)
        began = time.perf_counter()
        eligible = self._store.catalog.eligible(token, query.types, query.min_score)
        limit = 2 * query.top_k
        why = "asked" if query.route == "recall" else self._store.models.available()
        if not why and not self._store.models.may_call(asker_of(token)):
            if query.route == "model":
                self._store.models.check_share(asker_of(token))
            why = "model_limit"
        if not eligible:
            return Searching(token, query, began, 0, [], [], None, reason=why)
        recalled = self._store.catalog.rank(query.q, limit if why else SHOWN_LIMIT, eligible)
        if why:
            return Searching(token, query, began, len(eligible), [], recalled, None, reason=why)
        candidates = self._candidates(eligible, recalled)
        asked = self._ask_route(token, query.q, candidates, limit)
        chosen = self._store.models.cached(asked.cache_key)
        needed = asked if chosen is None else None
        return Searching(token, query, began, len(eligible), candidates, recalled[:limit], needed, chosen)

    def _candidates(self, eligible: Collection[str], recalled: list[str]) -> list[str]:
        """Return what a model is shown: up to 100 all there is, else what words found, filled up by quality."""
        if len(eligible) <= SHOWN_LIMIT:
            return sorted(eligible, key=self._newest_first)
        left = set(eligible).difference(recalled)
        best = heapq.nlargest(SHOWN_LIMIT - len(recalled), left, key=lambda id: (self._quality(id), id))
        return recalled + best

    def _newest_first(self, id: str) -> tuple[float, str]:
        known = self._store.catalog.get(id)
        return (-known.created_at if known else 0.0, id)

    def _quality(self, id: str) -> float:
        known = self._store.catalog.get(id)
        return self._store.catalog.quality(known) if known else -math.inf

    def _ask_route(self, token: Token, query: str, candidates: list[str], limit: int) -> Asked:
        shown, versions = [], []
        for idx, id in enumerate(candidates):
            known = self._store.catalog.get(id)
            types, task = (list(known.types), shown_text(known.task)) if known else ([], "")
            shown.append({"idx": idx, "types": types, "task": task})
            versions.append((id, known.version if known else 0))
        question = {"query": query, "limit": limit, "candidates": shown}
        model = self._store.models.choose()
        key = (model, query, limit, tuple(versions))
        return Asked("route_knowledge", question, model, asker_of(token), ROUTE_S, key)

    def finish_search(self, searching: Searching, reply: Reply | None) -> SearchOut:
        """Do the second half of a search: read what a model said, and order by quality."""
        query, limit, chosen = searching.query, 2 * searching.query.top_k, searching.chosen
        reason, usage, shown = searching.reason, None, len(searching.candidates)
        if chosen is not None:
            reason = "cached"
        elif reply is not None and searching.asked is not None:
            usage, reason = reply.usage, reply.reason
            picked = read_chosen(reply.data, shown, limit) if not reason else None
            if not reason and picked is None:
                reason = "invalid_reply"
            if reason not in ("model_busy", "model_limit", "model_resting", "no_model"):
                self._store.models.note(searching.asked.model, not reason)
            if picked is not None:
                chosen = [searching.candidates[idx] for idx in picked]
                self._store.models.keep(searching.asked.cache_key, chosen)
        ids = searching.recalled if chosen is None else chosen
        quality = {id: self._quality(id) for id in ids}
        results: list[ResultOut] = []
        for id in order_by_quality(ids, quality, len(ids)):
            record = self._store.ledger.read(id)
            # A model takes its time: what was hidden meanwhile must not come out.
            if record is not None and sees(searching.token, record) and not record.fields.get("merged_into"):
                results.append(self._result(record, quality[id]))
                if len(results) == query.top_k:
                    break
        return {
            "results": results,
            "count": len(results),
            "routing": "recall" if chosen is None else "model",
            "reason": reason,
            "eligible": searching.eligible,
            "shown": shown if chosen is not None else 0,
            "took_ms": round((time.perf_counter() - searching.began) * 1000, 3),
            "usage": usage,
        }

    def _result(self, record: Record, quality: float) -> ResultOut:
        own = record.fields
        helpful, harmful = self._store.catalog.votes(record.id)
        judged: Judged = {
            "score": own["score"],
            "helpful": helpful,
            "harmful": harmful,
            "confidence": own["confidence"],
        }
        return {**entry_fields(record), "eval": judged, "quality_score": quality}
