"""The keeping of a hub: its operations and their undoing, goal trees, tokens and groups."""

import itertools
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ...base.checks import shorten
from ...base.text import read_time
from ..catalog import Entry
from ..records import OWNER_SCOPE, Json, KnowHubError, Record, invalid, iso_time, not_found
from ..schemas import GROUP_PATTERN, GoalsIn, GroupIn, PageQuery, TokenIn
from ..tokens import Token, check_plain, need, sees, sees_said
from ..vault import ORPHAN_S
from .store import ACCESS, CALL, Store, admit, page_of, read_cursor, told_operation

_PURGED_AT_ONCE, _READ_AT_ONCE = 500, 200


class Operations(Store):
    """The log, as far as a token sees what it says."""

    def operations(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of the operations on what this token sees, newest first.

        Of those who see little a page can be short, or empty: it ends where so much of the log was read that others
        must have their turn. `next_cursor` goes on from there.

        Cost: decodes up to 500 operations.
        """
        query = admit(token, "read", PageQuery, query)
        place = read_cursor(query.cursor)
        before = None if place is None else int(place[0])
        read = self.catalog.operations_before(before, _READ_AT_ONCE)
        shown = ((entry, row) for entry in read if (row := self._visible_row(token, entry)) is not None)
        found = list(itertools.islice(shown, query.limit))
        last = found[-1][0] if len(found) == query.limit else next(reversed(read), None)
        has_more = last is not None and (last is not read[-1] or len(read) == _READ_AT_ONCE)
        return page_of([row for _, row in found], (float(last.seq), "") if last is not None and has_more else None)

    def _visible_row(self, token: Token, entry: Entry) -> Json | None:
        if not entry.principal or entry.verb in (ACCESS, CALL):
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
            return sees_said(token, record) and (entry is None or sees(token, entry))
        return sees(token, record)

    def undo(self, token: Token, operation_id: str, key: str = "") -> Json:
        """Take back an operation of one's own, or with `curate` another's, if all that it touched is seen.

        A secret that went does not come back: its resource says `destroyed` then.
        """
        need(token, "write")
        mark, earlier = self._repeated(token, key, "undo", operation_id)
        if earlier:
            return {"operation_id": earlier.operation_id, "undone": operation_id}
        entry = self.catalog.operation(operation_id)
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

        undone, _ = self._write(token, "undo", lambda: self._put_back(token, entry), mark)
        for record in entry.after:  # a secret that is named no more
            now = self.ledger.read(record.id)
            if now is None or now.secret_ref != record.secret_ref:
                self.vault.destroy(record.secret_ref)
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
                self._check_targets(token, now, was.fields.get("metadata") or {})
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
        self.catalog.open()
        for known in self.catalog.all("resource"):
            ends = read_time(known.fields.get("expires_at"))
            if ends is not None and self.clock() >= ends + ORPHAN_S:
                self.vault.destroy(known.secret_ref)
        self.vault.sweep(self.catalog.secret_references(), is_purge=True)

    def _hanging(self) -> list[Record]:
        """Return the cases and proposals of what is gone, and what was merged into it."""
        all_of, known = self.catalog.all, self.catalog.get
        said = [*all_of("feedback"), *all_of("proposal")]
        said = [each for each in said if known(each.fields["of"]) is None]
        return said + [each for each in all_of("knowledge") if each.merged_into and not known(each.merged_into)]


class Keeping(Store):
    """Goal trees, and tokens for those who may `admin`."""

    def get_goals(self, token: Token, trace_id: str) -> Json:
        """Return a goal tree of one's own."""
        need(token, "read")
        record = self._current(self.ledger.stored, f"trace/{trace_id}")
        if record is None or record.deleted or record.created_by != token.principal:
            raise not_found()
        return {"trace_id": trace_id, "goals": record.fields["goals"], "version": record.version}

    def put_goals(self, token: Token, trace_id: str, body: GoalsIn | Mapping[str, Any], key: str = "") -> Json:
        """Keep a goal tree, in the place of the one that is there: it is its principal's alone."""
        goals = admit(token, "write", GoalsIn, body).model_dump(mode="json")["goals"]
        self._check_secrets([trace_id, goals])
        mark, earlier = self._repeated(token, key, "goals", trace_id, json.dumps(goals))
        if earlier:
            there = self.get_goals(token, trace_id)
            return {"trace_id": trace_id, "version": there["version"], "operation_id": earlier.operation_id}
        own = {"goals": goals, "scopes": [OWNER_SCOPE], "owner": token.principal}
        record = Record(f"trace/{trace_id}", "", "", own, token.principal)

        def plan() -> list[Record]:
            old = self.ledger.stored(record.id)
            if old is not None and old.created_by != token.principal:
                raise KnowHubError("conflict", "the id is in use")
            return self.ledger.put(record, old)

        operation_id, [made] = self._write(token, "goals", plan, mark)
        return {"trace_id": trace_id, "version": made.version, "operation_id": operation_id}

    def list_goals(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> Json:  # noqa: B006
        """Return a page of one's own goal trees, newest first."""
        query = admit(token, "read", PageQuery, query)

        def show(record: Record) -> Json:
            return {"trace_id": record.id.removeprefix("trace/"), "goals": record.fields["goals"]}

        return self._page("trace", lambda known: known.created_by == token.principal, query, show)

    # -- tokens --

    def me(self, token: Token) -> Json:
        """Return who a token is, and what it shares with whom where it does not say so."""
        return {
            "principal": token.principal,
            "rights": sorted(token.rights),
            "scopes": sorted(token.scopes),
            "organisation": self.tokens.org,
            "default_scopes": self.tokens.default_scopes(token),
        }

    def make_token(self, token: Token, body: TokenIn | Mapping[str, Any], key: str = "") -> Json:
        """Make a token; its text is shown this once."""
        body = admit(token, "admin", TokenIn, body)
        expires_at = body.expires_at.timestamp() if body.expires_at else None
        mark, _ = self._repeated(token, key, "token", body)
        for earlier in self.tokens.all():
            if mark and earlier.mark[:32] == mark[:32]:
                if earlier.mark != mark:
                    raise KnowHubError("key-reused", "the Idempotency-Key was used for another request")
                raise KnowHubError("conflict", f"it was made, and its text is shown once: revoke {earlier.digest}")
        scopes = [each for each in [self.tokens.org] if each] if body.scopes is None else body.scopes
        self._check_grant(token, body.principal, scopes, body.rights)
        text, made = self.tokens.make(body.principal, body.rights, scopes, expires_at, mark=mark)
        return {**told_token(made), "token": text}

    def _governs(self, token: Token, scopes: Collection[str], rights: Collection[str] = ()) -> bool:
        """Return whether who may `admin` some scopes may do so with these: all are its own, and so the rights."""
        return token.sees_all() or (token.scopes.issuperset(scopes) and token.rights.issuperset(rights))

    def _check_grant(self, token: Token, principal: str, scopes: Collection[str], rights: Collection[str]) -> None:
        """Refuse to give what one does not have: scopes, rights, or the private entries of another principal."""
        check_plain([principal, *scopes])
        theirs = [each for each in self.tokens.all() if each.principal == principal]
        is_ours = principal == token.principal or all(self._governs(token, one.scopes, one.rights) for one in theirs)
        is_strange = not theirs and principal != token.principal and self.catalog.held_by(principal)[0] > 0
        if not self._governs(token, scopes) or not token.rights.issuperset(rights) or is_strange or not is_ours:
            raise KnowHubError("forbidden", "`admin` of some scopes gives no more than these, and its own rights")

    def list_groups(self, token: Token) -> Json:
        """Return the groups that give no more than this token sees."""
        need(token, "admin")
        groups = self.tokens.groups().items()
        return page_of([{"id": name, **group} for name, group in groups if self._governs(token, group["scopes"])])

    def put_group(self, token: Token, id: str, body: GroupIn | Mapping[str, Any]) -> Json:
        """Let principals see scopes as members of a group; a group without members goes."""
        body = admit(token, "admin", GroupIn, body)
        if len(id) > 100 or not re.fullmatch(GROUP_PATTERN, id):
            raise invalid("/id", f"{shorten(id)} names no group: 1 to 100 letters, digits and `._-`, no dot first")
        check_plain([id, *body.members, *body.scopes])
        before = self.tokens.groups().get(id, {"members": [], "scopes": []})
        if not self._governs(token, [*body.scopes, *before["scopes"]]):
            raise KnowHubError("forbidden", "`admin` of some scopes gives no more than these, and its own rights")
        self.tokens.set_group(id, body.members, body.scopes)
        return {"id": id}

    def list_tokens(self, token: Token) -> Json:
        """Return all tokens, without their texts."""
        need(token, "admin")
        governed = (each for each in self.tokens.all() if self._governs(token, each.scopes, each.rights))
        return page_of([*map(told_token, governed)])

    def revoke_token(self, token: Token, id: str) -> Json:
        """End a token, and the browsers that it logged in."""
        need(token, "admin")
        is_listed = token.sees_all() or any(each["id"] == id for each in self.list_tokens(token)["results"])
        if not is_listed or not self.tokens.is_token(id) or not self.tokens.revoke(id):
            raise not_found()
        return {"id": id}


def told_token(token: Token) -> Json:
    """Return what is shown of a token."""
    return {
        "id": token.digest,
        "principal": token.principal,
        "rights": sorted(token.rights),
        "scopes": sorted(token.scopes),
        "created_at": iso_time(token.created_at),
        "expires_at": iso_time(token.expires_at) if token.expires_at is not None else None,
    }


def _state(record: Record) -> tuple[str, str, Json, bool]:
    return record.content, record.source, record.fields, record.deleted
