"""Logging in to the pages by an OpenID provider, where one is named: the authorization code with PKCE, by Authlib.

The provider says whose browser it is, by a verified e-mail address. That is the principal, who may what the newest
token of that name may: an administrator makes one for each person, and none of them needs to know its text.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from .records import KnowHubError

KEPT_S = 600
"""Seconds in which a person must have logged in there."""

_TIMEOUT_S = 10.0
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Of signatures: those of the provider's own key, and never of a secret that it shares."""


@dataclass(frozen=True)
class Provider:
    """The provider whose identities are accepted."""

    issuer: str
    """Its address, as its tokens name it; https, but on this machine."""
    client_id: str
    client_secret: str = ""


class OpenId:
    """The two ends of a log-in.

    Args:
        provider: Whose.

    Raises:
        ImportError: The extra `[knowhub-oidc]` is missing.
        KnowHubError: `invalid`: the provider's address.
    """

    def __init__(self, provider: Provider) -> None:
        try:
            from authlib.integrations.httpx_client import OAuth2Client
        except ImportError as error:
            raise ImportError("logging in by OpenID needs its extra: pip install '.[knowhub-oidc]'") from error
        address = urlsplit(provider.issuer)
        if address.scheme != "https" and address.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise KnowHubError("invalid", "an OpenID provider has an address with https")
        self.provider, self._make_client = provider, OAuth2Client
        self._known: Mapping[str, Any] = {}

    def begin(self, back: str) -> tuple[str, str]:
        """Return where a browser is to go, and what it is to keep in a cookie until it comes to `back`."""
        nonce, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        with self._client(back) as client:
            endpoint = self._described()["authorization_endpoint"]
            url, state = client.create_authorization_url(endpoint, nonce=nonce, code_verifier=verifier)
        return str(url), ".".join((str(state), nonce, verifier))

    def finish(self, back: str, query: Mapping[str, str], kept: str) -> str:
        """Return who came back from the provider: their verified e-mail address.

        Raises:
            KnowHubError: `forbidden`: the provider does not say so, or not to this browser.
        """
        from authlib.common.errors import AuthlibBaseError
        from joserfc.errors import JoseError

        state, _, rest = kept.partition(".")
        nonce, _, verifier = rest.partition(".")
        if not state or not secrets.compare_digest(state.encode(), query.get("state", "").encode()):
            raise KnowHubError("forbidden", "this log-in was not begun in this browser, or too long ago")
        try:
            with self._client(back) as client:
                endpoint = self._described()["token_endpoint"]
                answer = client.fetch_token(endpoint, code=query.get("code", ""), code_verifier=verifier)
            claims = self._claims(str(answer["id_token"]), nonce)
        except (AuthlibBaseError, JoseError, KeyError, ValueError) as error:
            raise KnowHubError("forbidden", f"the provider's answer does not hold ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if claims.get("email_verified") is not True or not isinstance(claims.get("email"), str):
            raise KnowHubError("forbidden", "the provider has verified no e-mail address of this person")
        return str(claims["email"])

    def _claims(self, id_token: str, nonce: str) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.jwk import KeySet

        keys = KeySet.import_key_set(_fetch(self._described()["jwks_uri"]))
        claims: Mapping[str, Any] = jwt.decode(id_token, keys, algorithms=_ALGORITHMS).claims
        wanted = {"iss": self.provider.issuer, "aud": self.provider.client_id, "nonce": nonce}
        needed = {name: {"essential": True, "value": value} for name, value in wanted.items()}
        jwt.JWTClaimsRegistry(leeway=60, exp={"essential": True}, **needed).validate(claims)
        return claims

    def _client(self, back: str) -> Any:
        return self._make_client(
            self.provider.client_id,
            self.provider.client_secret or None,
            redirect_uri=back,
            scope="openid email",
            code_challenge_method="S256",
            timeout=_TIMEOUT_S,
        )

    def _described(self) -> Mapping[str, Any]:
        """Return the provider's description of itself; asked once."""
        if not self._known:
            try:
                found = _fetch(f"{self.provider.issuer.rstrip('/')}/.well-known/openid-configuration")
            except (httpx.HTTPError, ValueError) as error:
                raise _unreachable(error) from error
            if found.get("issuer") != self.provider.issuer:
                raise KnowHubError("forbidden", "the OpenID provider calls itself by another name")
            self._known = found
        return self._known


def _fetch(url: str) -> Any:
    return httpx.get(url, timeout=_TIMEOUT_S).raise_for_status().json()


def _unreachable(error: Exception) -> KnowHubError:
    return KnowHubError("busy", f"the OpenID provider does not answer ({type(error).__name__})", retry_after_s=5.0)
