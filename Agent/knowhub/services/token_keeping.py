"""Making tokens and ending them."""

from collections.abc import Mapping
from typing import Any

from ..answers import DoneOut, PageOut, TokenOut
from ..checks import need, parse
from ..schemas import Json, KnowHubError, TokenIn, iso_time, not_found
from ..tokens import Token
from .store import Store

__all__ = ["TokenKeeping", "told_token"]


class TokenKeeping:
    """Tokens, for those who may `admin`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make_token(self, token: Token, body: TokenIn | Mapping[str, Any], key: str = "") -> TokenOut:
        """Make a token; its text is shown this once."""
        need(token, "admin")
        body = parse(TokenIn, body)
        expires_at = body.expires_at.timestamp() if body.expires_at else None
        mark, _ = self._store.repeated(token, key, "token", body)
        earlier = next((each for each in self._store.tokens.all() if mark and each.mark[:32] == mark[:32]), None)
        if earlier is not None and earlier.mark != mark:
            raise KnowHubError("key-reused", "the Idempotency-Key was used for another request")
        if earlier is not None:
            raise KnowHubError("conflict", f"it was made, and its text is shown once: revoke {earlier.digest}")
        text, made = self._store.tokens.make(body.principal, body.rights, body.scopes, expires_at, mark=mark)
        return {**told_token(made), "token": text}

    def list_tokens(self, token: Token) -> PageOut:
        """Return all tokens, without their texts."""
        need(token, "admin")
        found: list[Json] = [{**told_token(each)} for each in self._store.tokens.all()]
        return {"results": found, "count": len(found)}

    def revoke_token(self, token: Token, id: str) -> DoneOut:
        """End a token, and the browsers that it logged in."""
        need(token, "admin")
        if not self._store.tokens.is_token(id) or not self._store.tokens.revoke(id):
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
