"""What is kept beside knowledge: goal trees, each its principal's alone, and the tokens."""

import contextlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from ...keyword_tree import DuplicateIdError, VersionConflictError
from ..answers import DoneOut, GoalsKeptOut, GoalsOut, MeOut, PageOut, TokenOut
from ..ledger import ATTEMPTS
from ..schemas import (
    OWNER_SCOPE,
    GoalsIn,
    GroupIn,
    Json,
    KnowHubError,
    PageQuery,
    Record,
    TokenIn,
    iso_time,
    not_found,
    parse,
)
from ..tokens import Token, need
from .store import Store

__all__ = ["Keeping", "told_token"]


class Keeping(Store):
    """Goal trees, and tokens for those who may `admin`."""

    def get_goals(self, token: Token, trace_id: str) -> GoalsOut:
        """Return a goal tree of one's own."""
        need(token, "read")
        record = self._newest(f"trace/{trace_id}")
        if record is None or record.deleted or record.created_by != token.principal:
            raise not_found()
        return {"trace_id": trace_id, "goals": record.fields["goals"], "version": record.version}

    def put_goals(self, token: Token, trace_id: str, body: GoalsIn | Mapping[str, Any], key: str = "") -> GoalsKeptOut:
        """Keep a goal tree, in the place of the one that is there: it is its principal's alone."""
        need(token, "write")
        goals = parse(GoalsIn, body).model_dump(mode="json")["goals"]
        self._check_secrets([trace_id, goals])
        mark, earlier = self._repeated(token, key, "goals", trace_id, json.dumps(goals))
        if earlier:
            there = self.get_goals(token, trace_id)
            return {"trace_id": trace_id, "version": there["version"], "operation_id": earlier[0].operation_id}
        for _ in range(ATTEMPTS):
            old = self.ledger.stored(f"trace/{trace_id}")
            if old is not None and old.created_by != token.principal:
                raise KnowHubError("conflict", "the id is in use")
            own = {"goals": goals, "scopes": [OWNER_SCOPE], "owner": token.principal}
            record = Record(f"trace/{trace_id}", "", "", own, token.principal)

            def plan(old: Record | None = old, record: Record = record) -> list[Record]:
                return self.ledger.put(record, old)

            with contextlib.suppress(VersionConflictError, DuplicateIdError):
                operation_id, [made] = self._write(token, "goals", plan, mark)
                return {"trace_id": trace_id, "version": made.version, "operation_id": operation_id}
            self.ledger.refresh()
        raise KnowHubError("conflict", "others changed it each time: try again")

    def delete_goals(self, token: Token, trace_id: str, key: str = "") -> DoneOut:
        """Hide a goal tree of one's own, undoably."""
        need(token, "write")
        mark, earlier = self._repeated(token, key, "drop goals", trace_id)
        if earlier:
            return {"id": trace_id, "operation_id": earlier[0].operation_id}
        version = self.get_goals(token, trace_id)["version"]
        operation_id, _ = self._change(token, "drop", lambda: [self.ledger.delete(f"trace/{trace_id}", version)], mark)
        return {"id": trace_id, "operation_id": operation_id}

    def list_goals(self, token: Token, query: PageQuery | Mapping[str, Any] = {}) -> PageOut:  # noqa: B006
        """Return a page of one's own goal trees, newest first."""
        need(token, "read")
        records, cursor = self._page("trace", lambda known: known.principal == token.principal, parse(PageQuery, query))
        found = [{"trace_id": each.id.removeprefix("trace/"), "goals": each.fields["goals"]} for each in records]
        return {"results": found, "count": len(found), "next_cursor": cursor}

    # -- tokens --

    def me(self, token: Token) -> MeOut:
        """Return who a token is, and what it shares with whom where it does not say so."""
        return {
            "principal": token.principal,
            "rights": sorted(token.rights),
            "scopes": sorted(token.scopes),
            "organisation": self.tokens.org,
            "default_scopes": self.tokens.default_scopes(token),
        }

    def make_token(self, token: Token, body: TokenIn | Mapping[str, Any], key: str = "") -> TokenOut:
        """Make a token; its text is shown this once."""
        need(token, "admin")
        body = parse(TokenIn, body)
        expires_at = body.expires_at.timestamp() if body.expires_at else None
        mark, _ = self._repeated(token, key, "token", body)
        earlier = next((each for each in self.tokens.all() if mark and each.mark[:32] == mark[:32]), None)
        if earlier is not None and earlier.mark != mark:
            raise KnowHubError("key-reused", "the Idempotency-Key was used for another request")
        if earlier is not None:
            raise KnowHubError("conflict", f"it was made, and its text is shown once: revoke {earlier.digest}")
        scopes = [each for each in [self.tokens.org] if each] if body.scopes is None else body.scopes
        self._check_grant(token, body.principal, scopes, body.rights)
        text, made = self.tokens.make(body.principal, body.rights, scopes, expires_at, mark=mark)
        return {**told_token(made), "token": text}

    def _governs(self, token: Token, other: Token) -> bool:
        """Return whether who may `admin` some scopes may do so with another token: all that it sees is among them."""
        return token.sees_all() or (other.scopes <= token.scopes and other.rights <= token.rights)

    def _check_grant(self, token: Token, principal: str, scopes: Collection[str], rights: Collection[str]) -> None:
        """Refuse to give what one does not have: scopes, rights, or the private entries of another principal."""
        theirs = [each for each in self.tokens.all() if each.principal == principal]
        is_new = not theirs and self.catalog.held_by(principal)[0] == 0
        is_ours = (
            principal == token.principal or is_new or (theirs and all(self._governs(token, one) for one in theirs))
        )
        if not self._grants_own(token, scopes) or not set(rights) <= token.rights or not is_ours:
            raise KnowHubError("forbidden", "`admin` of some scopes gives no more than these, and its own rights")

    def list_groups(self, token: Token) -> PageOut:
        """Return the groups that give no more than this token sees."""
        need(token, "admin")
        groups = self.tokens.groups().items()
        found: list[Json] = [
            {"id": name, **group} for name, group in groups if self._grants_own(token, group["scopes"])
        ]
        return {"results": found, "count": len(found)}

    def put_group(self, token: Token, id: str, body: GroupIn | Mapping[str, Any]) -> DoneOut:
        """Let principals see scopes as members of a group; a group without members goes."""
        need(token, "admin")
        body = parse(GroupIn, body)
        before = self.tokens.groups().get(id, {"members": [], "scopes": []})
        if not self._grants_own(token, [*body.scopes, *before["scopes"]]):
            raise KnowHubError("forbidden", "`admin` of some scopes gives no more than these, and its own rights")
        self.tokens.set_group(id, body.members, body.scopes)
        return {"id": id}

    def _grants_own(self, token: Token, scopes: Collection[str]) -> bool:
        return token.sees_all() or set(scopes) <= token.scopes

    def list_tokens(self, token: Token) -> PageOut:
        """Return all tokens, without their texts."""
        need(token, "admin")
        found: list[Json] = [{**told_token(each)} for each in self.tokens.all() if self._governs(token, each)]
        return {"results": found, "count": len(found)}

    def revoke_token(self, token: Token, id: str) -> DoneOut:
        """End a token, and the browsers that it logged in."""
        need(token, "admin")
        listed = token.sees_all() or any(each.digest == id and self._governs(token, each) for each in self.tokens.all())
        if not listed or not self.tokens.is_token(id) or not self.tokens.revoke(id):
            raise not_found()
        return {"id": id}


def told_token(token: Token) -> TokenOut:
    """Return what is shown of a token."""
    return {
        "id": token.digest,
        "principal": token.principal,
        "rights": sorted(token.rights),
        "scopes": sorted(token.scopes),
        "created_at": iso_time(token.created_at),
        "expires_at": iso_time(token.expires_at) if token.expires_at is not None else None,
    }
