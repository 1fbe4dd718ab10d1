"""Tests of logging in by an OpenID provider, which runs here."""

import asyncio
import base64
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Form, Request
from fastapi.responses import RedirectResponse

from Agent.knowhub.hub import KnowHub
from Agent.knowhub.oidc import OpenId, Provider
from Agent.knowhub.pages import add_pages
from Agent.knowhub.records import KnowHubError
from Agent.tests.knowhub.support import Served, running, serve

pytest.importorskip("authlib", reason="the extra [knowhub-oidc] is not installed")
from joserfc import jwt
from joserfc.jwk import RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
SECRET = "of the client"


class OneProvider:
    """Logs anybody in at once, as the claims say that the test lays down."""

    def __init__(self) -> None:
        self.url = ""
        self.claims: dict[str, Any] = {}
        self.key, self.algorithm = KEY, "RS256"
        self._asked: dict[str, dict[str, str]] = {}  # code → what was asked for
        self.app = FastAPI()
        self.app.get("/.well-known/openid-configuration")(self.describe)
        self.app.get("/authorize")(self.authorize)
        self.app.post("/token")(self.give_token)
        self.app.get("/keys")(lambda: {"keys": [KEY.as_dict(private=False)]})

    def describe(self) -> dict[str, str]:
        paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return {"issuer": self.url, **{name: f"{self.url}/{path}" for name, path in paths.items()}}

    def authorize(self, redirect_uri: str, state: str, nonce: str, code_challenge: str) -> RedirectResponse:
        code = f"code-{len(self._asked)}"
        self._asked[code] = {"nonce": nonce, "challenge": code_challenge}
        return RedirectResponse(f"{redirect_uri}?{urlencode({'code': code, 'state': state})}", 302)

    def give_token(self, code: str = Form(), code_verifier: str = Form()) -> dict[str, Any]:
        asked = self._asked.pop(code)
        digest = hashlib.sha256(code_verifier.encode()).digest()
        assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["challenge"]
        claims = {"iss": self.url, "aud": "hub", "sub": "1", "nonce": asked["nonce"], "iat": int(time.time())}
        claims |= {"exp": int(time.time()) + 60, "email": "ada@example.com", "email_verified": True, **self.claims}
        return {"access_token": "a", "token_type": "Bearer", "id_token": jwt.encode(self._head(), claims, self.key)}

    def _head(self) -> dict[str, Any]:
        return {"alg": self.algorithm, "kid": "one"}


@pytest.fixture
def provider() -> Iterator[OneProvider]:
    made = OneProvider()
    with running(uvicorn.Config(made.app, log_config=None, access_log=False)) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


@pytest.fixture
def served(provider: OneProvider, tmp_path: Path) -> Iterator[Served]:
    with (KnowHub(tmp_path) as hub, serve(hub, add_pages, openid=Provider(provider.url, "hub", SECRET)) as served):
        hub.tokens.make("ada@example.com", ["read", "write"], ["org:x"])
        yield served


def come_back(browser: httpx.Client) -> httpx.Response:
    """Log in as far as the answer to what the provider sends a browser with."""
    left = browser.get("/login/openid")
    assert left.status_code == 303, left.text
    sent = httpx.get(left.headers["location"], trust_env=False).headers["location"]
    return browser.get(sent)


def test_who_has_a_token_is_logged_in(served: Served) -> None:
    browser = served.anonymous()
    assert "/login/openid" in browser.get("/login").text
    assert browser.get("/").status_code == 303
    back = come_back(browser)
    assert (back.status_code, back.headers["refresh"]) == (200, "0; url=/"), back.text
    page = browser.get("/")
    assert (page.status_code, "ada@example.com" in page.text) == (200, True)
    assert browser.get("/tokens").status_code == 403  # what the token may, and no more
    [token] = [each for each in served.hub.tokens.all() if each.principal == "ada@example.com"]
    served.hub.tokens.revoke(token.digest)
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"}, {"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1}, {"nonce": None},
        {"email_verified": False}, {"email_verified": "true"}, {"email": None}, {"email": "eve@example.com"},
    ],
)  # fmt: skip
def test_nobody_else_is(served: Served, provider: OneProvider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    browser = served.anonymous()
    assert come_back(browser).status_code == 403
    assert browser.get("/").status_code == 303


def test_another_signature_is_none(served: Served, provider: OneProvider) -> None:
    provider.key = RSAKey.generate_key(2048, {"kid": "one"}, auto_kid=False)
    assert come_back(served.anonymous()).status_code == 403


@pytest.mark.parametrize("kept", ["", "x", "[]", "{%22_state_knowhub_s%22:1}", "{%22_state_knowhub_s%22:{}}"])
def test_what_no_log_in_of_ours_left_in_a_browser_is_none(served: Served, kept: str) -> None:
    cookie = {"Cookie": f"knowhub_openid={kept}"}
    assert served.anonymous(cookie).get("/login/openid/back?state=s&code=c").status_code == 403


def test_a_log_in_that_another_browser_began_is_none(served: Served) -> None:
    begun = served.anonymous().get("/login/openid").headers["location"]
    sent = httpx.get(begun, trust_env=False).headers["location"]
    assert parse_qs(urlsplit(sent).query)["state"]
    assert served.anonymous().get(sent).status_code == 403
    assert served.anonymous().get("/login/openid/back").status_code == 403


def test_a_provider_that_does_not_answer_or_is_another_is_said(served: Served, provider: OneProvider) -> None:
    for url, code in (("http://127.0.0.1:9", "busy"), (f"{provider.url}/", "forbidden")):
        with pytest.raises(KnowHubError) as caught:
            asyncio.run(OpenId(Provider(url, "hub")).begin(Request({"type": "http"}), "http://localhost/back"))
        assert caught.value.code == code
    with pytest.raises(KnowHubError, match="https"):
        OpenId(Provider("http://login.example", "hub"))
