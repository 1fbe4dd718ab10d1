"""Finding what helps with a task, in two stages: see `routing`."""

import itertools
import time
from collections.abc import Collection, Mapping
from typing import Any

from ...models import judge
from ..prompts import tidy
from ..records import Json
from ..routing import ROUTE_S, SHOWN_LIMIT, TASK_SHOWN
from ..schemas import SearchQuery
from ..tokens import Token, sees
from .store import Store, admit, entry_fields, judgement_of


class Finding(Store):
    """The search."""

    def search(self, token: Token, query: SearchQuery | Mapping[str, Any]) -> Json:
        """Find what helps with a task: what fits, and of that the best by score and votes.

        A hub that judges shows its model the texts of the first 8, and returns those that answer.

        Cost: some milliseconds by words among 30,000; with a model, its time: at most 3 s, for a judge 20.
        """
        query = admit(token, "read", SearchQuery, query)
        began = time.perf_counter()
        eligible = self.catalog.eligible(token, query.types, query.min_score)
        limit = 2 * query.top_k
        reason = "asked" if query.route == "recall" else self.models.available()
        if not reason and query.route == "model":
            self.models.check_share(token.asker)
        ids = self.catalog.rank(query.q, limit if reason else SHOWN_LIMIT, eligible) if eligible else []
        chosen, usage, shown = None, None, 0
        if eligible and not reason:
            candidates = self._candidates(eligible, ids)
            chosen, reason, usage = self._choose(token, query.q, candidates, limit)
            ids, shown = (ids[:limit], 0) if chosen is None else (chosen, len(candidates))
        # A model takes its time: what was hidden meanwhile must not come out.
        best = itertools.islice((each for each in self.catalog.best(ids) if sees(token, each)), query.top_k)
        results = [{**entry_fields(one), "eval": judgement_of(one), "quality_score": one.quality} for one in best]
        if self.judges and results and query.route != "recall" and not self.models.available():
            results, usage = self._judged(token, query.q, results, usage)
        return {
            "results": results,
            "count": len(results),
            "routing": "recall" if chosen is None else "model",
            "reason": reason,
            "eligible": len(eligible),
            "shown": shown,
            "hidden": 0 if results or not self._is_insider(token) else self.catalog.count_hidden(token),
            "took_ms": round((time.perf_counter() - began) * 1000, 3),
            "usage": usage,
        }

    def _is_insider(self, token: Token) -> bool:
        """Return whether a token learns how many entries it does not see: in its own organisation's hub."""
        org = self.tokens.org
        return bool(org) and token.owns_scope(org) and not token.sees_all()

    def _judged(
        self, token: Token, query: str, results: list[Json], usage: Json | None
    ) -> tuple[list[Json], Json | None]:
        """Return the results that a model says answer a query, all where it fails, and the tokens of both calls."""
        texts = [(each["id"], f"{each['task']}\n{each['content']}") for each in results]
        question = judge.question_of(query, texts)
        reply = self.models.ask("judge", question, lambda data: judge.read_targets(data, texts), token.asker)
        for name, value in (usage or {}).items():
            if reply.usage is not None and not isinstance(value, str):
                reply.usage[name] = reply.usage.get(name, 0) + value
        kept = [each for each in results if reply.data is None or each["id"] in reply.data]
        return kept, reply.usage or usage

    def _candidates(self, eligible: Collection[str], recalled: list[str]) -> list[str]:
        """Return what a model is shown: up to 100 all there is, else what words found, filled up by quality."""
        if len(eligible) <= SHOWN_LIMIT:
            there = self.catalog.several(eligible).values()
            return [each.id for each in sorted(there, key=lambda each: -each.created_at)]
        left = sorted(set(eligible).difference(recalled), reverse=True)
        return recalled + [each.id for each in self.catalog.best(left, SHOWN_LIMIT - len(recalled))]

    def _choose(
        self, token: Token, query: str, candidates: list[str], limit: int
    ) -> tuple[list[str] | None, str, Json | None]:
        """Return what a model chose, why it chose nothing (None), and what that used."""
        there = self.catalog.several(candidates)
        known = [there[id] for id in candidates if id in there]
        models, model = self.models, self.models.choose()
        cache_key = model, query, limit, *((each.id, each.version) for each in known)
        chosen: list[str] | None = models.cached(cache_key)
        if chosen is not None:
            return chosen, "cached", None
        shown = [
            {"idx": idx, "types": each.fields["types"], "task": tidy(each.fields["task"])[:TASK_SHOWN]}
            for idx, each in enumerate(known)
        ]
        question = {"query": query, "limit": limit, "candidates": shown}

        def read(data: Any) -> list[str] | None:
            picked = judge.read_choice(data, "chosen", len(known))
            return None if picked is None else [known[idx].id for idx in picked[:limit]]

        reply = models.ask("route_knowledge", question, read, token.asker, model, ROUTE_S)
        if reply.data is not None:
            models.keep(cache_key, reply.data)
        return reply.data, reply.reason, reply.usage
