"""What was done, by whom, and taking it back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..answers import PageOut, UndoneOut
from ..catalog import Known
from ..following import Entry
from ..schemas import Json, KnowHubError, PageQuery, Record, not_found, parse
from ..tokens import Token, is_visible, need, sees
from ..vault import ORPHAN_S
from .store import ACCESS, CALL, Store, read_cursor, told_operation, write_cursor

__all__ = ["Operations"]

_PURGED_AT_ONCE, _READ_AT_ONCE = 500, 200


class Operations(Store):
    """The log, as far as a token sees what it says."""

    def operations(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> PageOut:  # noqa: B006
        """Return a page of the operations on what this token sees, newest first.

        Of those who see little a page can be short, or empty: it ends where so much of the log was read that others
        must have their turn. `next_cursor` goes on from there.

        Cost: decodes up to 500 operations.
        """
        need(token, "read")
        query = parse(PageQuery, query)
        place = read_cursor(query.cursor)
        before = None if place is None else int(place[0])
        read = self.catalog.operations_before(before, _READ_AT_ONCE)
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
        if entry.op.split(":")[0] != "kh" or entry.verb in (ACCESS, CALL):
            return None
        ids = list(dict.fromkeys(record.id for record in entry.after if self._sees_version(token, record)))
        if not ids:
            return None
        may_undo = token.may("write") and (entry.principal == token.principal or token.may("curate"))
        return {**told_operation(entry), "records": ids, "may_undo": may_undo}

    def _sees_version(self, token: Token, record: Record) -> bool:
        if record.kind in (ACCESS, CALL):
            return False
        if record.kind == "trace":
            return record.created_by == token.principal
        if record.kind in ("feedback", "proposal"):
            entry = self.catalog.lead(str(record.fields.get("of")))
            scopes, owner = record.fields.get("scopes"), str(record.fields.get("owner"))
            is_seen = is_visible(token, scopes if isinstance(scopes, list) else (), owner)
            return is_seen and (entry is None or self.catalog.sees(token, entry))
        return sees(token, record)

    def undo(self, token: Token, operation_id: str, key: str = "") -> UndoneOut:
        """Take back an operation of one's own, or with `curate` another's, if all that it touched is seen.

        A secret that went does not come back: its resource says `destroyed` then.
        """
        need(token, "write")
        mark, earlier = self._repeated(token, key, "undo", operation_id)
        if earlier:
            return {"operation_id": earlier[0].operation_id, "undone": operation_id}
        entry = self.catalog.operation(operation_id) if 0 < len(operation_id) <= 100 else None
        touched = [] if entry is None else [*entry.before, *entry.after]
        if entry is None or not touched or not all(self._sees_version(token, record) for record in touched):
            raise not_found()
        for record in touched:
            now = self.ledger.read(record.id)
            if now is not None and not self._sees_version(token, now):
                raise not_found()
            if now is not None and now.kind in ("knowledge", "resource"):
                self._check_owner(token, now)  # who could curate then may be unable to now
        if entry.principal != token.principal and not token.may("curate"):
            raise KnowHubError("forbidden", "it is another's operation: undoing it needs the right `curate`")

        undone, _ = self._change(token, "undo", lambda: self._put_back(token, entry), mark)
        for record in entry.after:  # a secret that is named no more
            reference = str(record.fields.get("secret_ref") or "")
            now = self.ledger.read(record.id)
            if reference and (now is None or now.fields.get("secret_ref") != reference):
                self.vault.destroy(reference)
        return {"operation_id": undone, "undone": operation_id}

    def _put_back(self, token: Token, entry: Entry) -> list[Record]:
        """Write what an operation changed as it was, where nothing changed it since and the token may write that."""
        before, after = ({record.id: record for record in side} for side in (entry.before, entry.after))
        written = []
        for id in before | after:
            was, became, now = before.get(id), after.get(id), self.ledger.stored(id)
            if became is None or now is None or _state(now) != _state(became):
                raise KnowHubError("conflict", "later changes stand in the way: undo these first")
            if was is None or was.deleted:
                if not now.deleted:
                    written.append(self.ledger.delete(id, now.version))
                continue
            if was.kind in ("knowledge", "resource"):
                self._check_scopes(token, was.fields["scopes"], now)
                self._check_targets(token, now.fields, was.fields.get("metadata") or {})
            written.append(self.ledger.update(replace(was, version=now.version)))
        return written

    def purge(self, token: Token) -> None:
        """Forget for good what was deleted, the cases and proposals of it, what was merged into it, and all history.

        Secrets that expired over an hour ago, and sealed files that no resource names, are destroyed.

        Cost: reads and writes all.
        """
        need(token, "admin")
        while hanging := self._hanging()[:_PURGED_AT_ONCE]:
            ids = [known.id for known in hanging]
            self._write(token, "purge", lambda ids=ids: [self.ledger.drop(id) for id in ids])  # type: ignore[misc]
        self.ledger.forget()
        self.catalog.forget()
        self.catalog.catch_up()
        for known in self.catalog.all("resource"):
            if known.expires_at is not None and known.secret_ref and self.clock() >= known.expires_at + ORPHAN_S:
                self.vault.destroy(known.secret_ref)
        self.vault.sweep(self.catalog.secret_references(), is_purge=True)

    def _hanging(self) -> list[Known]:
        """Return the cases and proposals of what is gone, and what was merged into it."""
        all_of, known = self.catalog.all, self.catalog.get
        said = [each for kind in ("feedback", "proposal") for each in all_of(kind) if known(each.of) is None]
        return said + [each for each in all_of("knowledge") if each.merged_into and not known(each.merged_into)]


def _state(record: Record) -> tuple[str, str, Json, bool]:
    return record.content, record.source, record.fields, record.deleted
