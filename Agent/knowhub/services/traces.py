"""Goal trees, each its principal's alone."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from ...keyword_tree import DuplicateIdError, VersionConflictError
from ..answers import DoneOut, GoalsKeptOut, GoalsOut, PageOut
from ..checks import need, parse
from ..ledger import ATTEMPTS
from ..schemas import OWNER_SCOPE, GoalsIn, KnowHubError, PageQuery, Record, not_found
from ..tokens import Token
from .store import Store

__all__ = ["Traces"]


class Traces:
    """Goal trees."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get_goals(self, token: Token, trace_id: str) -> GoalsOut:
        """Return a goal tree of one's own."""
        need(token, "read")
        record = self._store.newest(f"trace/{trace_id}")
        if record is None or record.deleted or record.created_by != token.principal:
            raise not_found()
        return {"trace_id": trace_id, "goals": record.fields["goals"], "version": record.version}

    def put_goals(self, token: Token, trace_id: str, body: GoalsIn | Mapping[str, Any], key: str = "") -> GoalsKeptOut:
        """Keep a goal tree, in the place of the one that is there: it is its principal's alone."""
        need(token, "write")
        goals = parse(GoalsIn, body).model_dump(mode="json")["goals"]
        self._store.check_secrets([trace_id, goals])
        mark, earlier = self._store.repeated(token, key, "goals", trace_id, json.dumps(goals))
        if earlier:
            there = self.get_goals(token, trace_id)
            return {"trace_id": trace_id, "version": there["version"], "operation_id": earlier[0].operation_id}
        for _ in range(ATTEMPTS):
            old = self._store.ledger.stored(f"trace/{trace_id}")
            if old is not None and old.created_by != token.principal:
                raise KnowHubError("conflict", "the id is in use")
            own = {"goals": goals, "scopes": [OWNER_SCOPE], "owner": token.principal}
            record = Record(f"trace/{trace_id}", "", "", own, token.principal)

            def plan(old: Record | None = old, record: Record = record) -> list[Record]:
                return self._store.ledger.put(record, old)

            with contextlib.suppress(VersionConflictError, DuplicateIdError):
                operation_id, [made] = self._store.write(token, "goals", plan, mark)
                return {"trace_id": trace_id, "version": made.version, "operation_id": operation_id}
            self._store.ledger.refresh()
        raise KnowHubError("conflict", "others changed it each time: try again")

    def delete_goals(self, token: Token, trace_id: str, key: str = "") -> DoneOut:
        """Hide a goal tree of one's own, undoably."""
        need(token, "write")
        mark, earlier = self._store.repeated(token, key, "drop goals", trace_id)
        if earlier:
            return {"id": trace_id, "operation_id": earlier[0].operation_id}
        version = self.get_goals(token, trace_id)["version"]
        operation_id, _ = self._store.change(
            token, "drop", lambda: [self._store.ledger.delete(f"trace/{trace_id}", version)], mark
        )
        return {"id": trace_id, "operation_id": operation_id}

    def list_goals(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> PageOut:  # noqa: B006
        """Return a page of one's own goal trees, newest first."""
        need(token, "read")
        records, cursor = self._store.page(
            "trace", lambda known: known.principal == token.principal, parse(PageQuery, query)
        )
        found = [{"trace_id": each.id.removeprefix("trace/"), "goals": each.fields["goals"]} for each in records]
        return {"results": found, "count": len(found), "next_cursor": cursor}
