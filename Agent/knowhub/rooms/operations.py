"""What was done, by whom, and taking it back."""

from collections.abc import Mapping
from typing import Any

from ..catalog import Known
from ..checks import need, parse
from ..ledger import Entry
from ..schemas import (
    Json,
    KnowHubError,
    PageQuery,
    Record,
    not_found,
)
from ..tokens import Token, is_visible, sees
from .shared import Room, read_cursor, told_operation, write_cursor

__all__ = ["Operations"]

_PURGED_AT_ONCE = _READ_AT_ONCE = 500


class Operations(Room):
    """The log, as far as a token sees what it tells of."""

    def operations(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of the operations on what this token sees, newest first.

        Of those who see little a page can be short, or empty: it ends where so much of the log was read that others
        must have their turn. `next_cursor` goes on from there.

        Cost: decodes up to 500 operations.
        """
        need(token, "read")
        query = parse(PageQuery, query)
        place = read_cursor(query.cursor)
        before = None if place is None else int(place[0])
        read = self.ledger.operations_before(before, _READ_AT_ONCE)
        found: list[Json] = []
        last = None
        for last in read:
            shown = self._told_entry(token, last)
            if shown is not None:
                found.append(shown)
                if len(found) == query.limit:
                    break
        has_more = last is not None and (last is not read[-1] or len(read) == _READ_AT_ONCE)
        cursor = write_cursor((float(last.seq), "")) if last is not None and has_more else None
        return {"results": found, "count": len(found), "next_cursor": cursor}

    def _told_entry(self, token: Token, entry: Entry) -> Json | None:
        if entry.op.split(":")[0] != "kh":
            return None
        ids = list(dict.fromkeys(record.id for record in entry.after if self._sees_version(token, record)))
        if not ids:
            return None
        may_undo = token.may("write") and (entry.principal == token.principal or token.may("curate"))
        return {**told_operation(entry), "records": ids, "may_undo": may_undo}

    def _sees_version(self, token: Token, record: Record) -> bool:
        if record.kind == "trace":
            return record.created_by == token.principal
        if record.kind in ("feedback", "proposal"):
            entry = self.catalog.lead(str(record.fields.get("of")))
            scopes, owner = record.fields.get("scopes"), str(record.fields.get("owner"))
            is_seen = is_visible(token, scopes if isinstance(scopes, list) else (), owner)
            return is_seen and (entry is None or self.catalog.sees(token, entry))
        return sees(token, record)

    def undo(self, token: Token, operation_id: str) -> Json:
        """Take back an operation of one's own, or with `curate` another's, if all that it touched is seen.

        A secret that went does not come back: its resource says `destroyed` then.
        """
        need(token, "write")
        entry = self.ledger.find_operation(operation_id) if 0 < len(operation_id) <= 100 else None
        touched = [] if entry is None else [*entry.before, *entry.after]
        if entry is None or not touched or not all(self._sees_version(token, record) for record in touched):
            raise not_found()
        for record in touched:
            now = self.ledger.read(record.id)
            if now is not None and not self._sees_version(token, now):
                raise not_found()
        if entry.principal != token.principal and not token.may("curate"):
            raise KnowHubError("forbidden", "it is another's operation: undoing it needs the right `curate`")

        def plan() -> list[Record]:
            self.ledger.undo(operation_id)
            return []

        undone, _ = self._write(token, "undo", plan)
        self.catalog.catch_up()
        for record in entry.after:  # a secret that is named no more
            reference = str(record.fields.get("secret_ref") or "")
            now = self.ledger.read(record.id)
            if reference and (now is None or now.fields.get("secret_ref") != reference):
                self.vault.destroy(reference)
        return {"operation_id": undone, "undone": operation_id}

    def purge(self, token: Token) -> None:
        """Forget for good what was deleted, the cases and proposals of it, what was merged into it, and all history.

        Cost: reads and writes all.
        """
        need(token, "admin")
        while hanging := self._hanging()[:_PURGED_AT_ONCE]:
            ids = [known.id for known in hanging]
            self._write(token, "purge", lambda ids=ids: [self._drop(id) for id in ids])  # type: ignore[misc]
        self.ledger.forget()
        self.catalog.catch_up()

    def _hanging(self) -> list[Known]:
        known = self.catalog.get
        said = [each for kind in ("feedback", "proposal") for each in self.catalog.all(kind) if known(each.of) is None]
        merged = [each for each in self.catalog.all("knowledge") if each.merged_into and not known(each.merged_into)]
        return [*said, *merged]

    def _drop(self, id: str) -> Record:
        record = self.ledger.read(id)
        if record is None:
            raise not_found()
        return self.ledger.delete(id, record.version)
