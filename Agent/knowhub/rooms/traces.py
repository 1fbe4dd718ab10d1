"""Goal trees, each its principal's alone."""

import contextlib
from collections.abc import Mapping
from typing import Any

from ...keyword_tree import DuplicateIdError, VersionConflictError
from ..checks import need, parse
from ..ledger import ATTEMPTS
from ..schemas import (
    OWNER_SCOPE,
    GoalsIn,
    Json,
    KnowHubError,
    PageQuery,
    Record,
    not_found,
)
from ..tokens import Token
from .shared import Room

__all__ = ["Traces"]


class Traces(Room):
    """Goal trees."""

    def get_goals(self, token: Token, trace_id: str) -> Json:
        """Return a goal tree of one's own."""
        need(token, "read")
        record = self.ledger.read(f"trace/{trace_id}")
        if record is None:
            self.catalog.catch_up()
            record = self.ledger.read(f"trace/{trace_id}")
        if record is None or record.created_by != token.principal:
            raise not_found()
        return {"trace_id": trace_id, "goals": record.fields["goals"], "version": record.version}

    def put_goals(self, token: Token, trace_id: str, body: GoalsIn | Mapping[str, Any]) -> Json:
        """Keep a goal tree, in the place of the one that is there: it is its principal's alone."""
        need(token, "write")
        goals = parse(GoalsIn, body).model_dump(mode="json")["goals"]
        self._check_secrets(goals)
        for _ in range(ATTEMPTS):
            old = self.ledger.read(f"trace/{trace_id}")
            if old is not None and old.created_by != token.principal:
                raise KnowHubError("conflict", "the id is in use")
            own = {"goals": goals, "scopes": [OWNER_SCOPE], "owner": token.principal}
            record = Record(f"trace/{trace_id}", "", "", own, token.principal)

            def plan(old: Record | None = old, record: Record = record) -> list[Record]:
                return self.ledger.create([record]) if old is None else [self.ledger.update(record, old.version)]

            with contextlib.suppress(VersionConflictError, DuplicateIdError):
                operation_id, [made] = self._write(token, "goals", plan)
                return {"trace_id": trace_id, "version": made.version, "operation_id": operation_id}
            self.ledger.refresh()
        raise KnowHubError("conflict", "others changed it each time: try again")

    def list_goals(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of one's own goal trees, newest first."""
        need(token, "read")
        return self._page(
            "trace",
            lambda known: known.principal == token.principal,
            parse(PageQuery, query),
            lambda record: {"trace_id": record.id.removeprefix("trace/"), "goals": record.fields["goals"]},
        )
