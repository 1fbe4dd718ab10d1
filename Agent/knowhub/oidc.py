"""Logging in to the pages by an OpenID provider, where one is named: the authorization code with PKCE, by Authlib.

The provider says whose browser it is, by a verified e-mail address. That is the principal, who may what the newest
token of that name may: an administrator makes one for each person, and none of them needs to know its text.
"""

import json
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from starlette.requests import Request

from .records import Json, KnowHubError

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
            from authlib.integrations.starlette_client import OAuth
        except ImportError as error:
            raise ImportError("OpenID needs its extra: pip install '.[knowhub-oidc]' in its repository") from error
        address = urlsplit(provider.issuer)
        if address.scheme != "https" and address.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise KnowHubError("invalid", "an OpenID provider has an address with https")
        self._provider = provider
        self._client = OAuth().register(
            "knowhub",
            client_id=provider.client_id,
            client_secret=provider.client_secret or None,
            server_metadata_url=f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={"scope": "openid email", "code_challenge_method": "S256", "timeout": _TIMEOUT_S},
        )

    async def begin(self, request: Request, back: str) -> tuple[str, str]:
        """Return where a browser is to go, and what it is to keep in a cookie until it comes to `back`."""
        await self._describe()
        kept: Json = {}
        request.scope["session"] = kept  # state, nonce and verifier, by Authlib
        answer = await self._client.authorize_redirect(request, back)
        return str(answer.headers["location"]), quote(json.dumps(kept))

    async def finish(self, request: Request, kept: str) -> str:
        """Return who came back from the provider: their verified e-mail address.

        Raises:
            KnowHubError: `forbidden`: the provider does not say so, or not to this browser.
        """
        from authlib.common.errors import AuthlibBaseError
        from joserfc.errors import JoseError

        wanted = {"iss": self._provider.issuer, "aud": self._provider.client_id}
        needed = {name: {"essential": True, "value": value} for name, value in wanted.items()}
        await self._describe()
        try:
            request.scope["session"] = dict(json.loads(unquote(kept)))
            answer = await self._client.authorize_access_token(request, claims_options=needed)
            claims = answer["userinfo"]
        except (AuthlibBaseError, JoseError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise KnowHubError("forbidden", f"the provider's answer does not hold ({type(error).__name__})") from error
        except Exception as error:  # of httpx or of httpx2, whichever Authlib uses
            raise _unreachable(error) from error
        if claims.get("email_verified") is not True or not isinstance(claims.get("email"), str):
            raise KnowHubError("forbidden", "the provider has verified no e-mail address of this person")
        return str(claims["email"])

    async def _describe(self) -> None:
        """Have the provider's description of itself; asked once."""
        try:
            found = await self._client.load_server_metadata()
        except Exception as error:  # as above
            raise _unreachable(error) from error
        if found.get("issuer") != self._provider.issuer:
            raise KnowHubError("forbidden", "the OpenID provider calls itself by another name")
        found["id_token_signing_alg_values_supported"] = _ALGORITHMS


def _unreachable(error: Exception) -> KnowHubError:
    return KnowHubError("busy", f"the OpenID provider does not answer ({type(error).__name__})", retry_after_s=5.0)
