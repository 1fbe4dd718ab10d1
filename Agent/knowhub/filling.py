"""Secrets for a tool as it acts: filled into a call whose structure names its target, and into nothing else.

    call = HttpCall("https://api.example.com/login", headers={"Authorization": "Bearer {{secret:credentials/a}}"})
    call = await fill_secrets(call, allowed=["credentials/a"])      # send it now; show it to no model

What an agent read, and repeats, may hold a reference that a stranger wrote beside an address of theirs. So no text is
searched for hosts: where the target is not a field of its own, the reference stays, and whoever sends the request
resolves it then.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

from .calling import request

__all__ = ["HttpCall", "ProgramCall", "fill_secrets"]

_REFERENCE = re.compile(r"\{\{secret:([A-Za-z0-9._/-]{1,200})\}\}")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?").fullmatch
_URL = re.compile(r"https://[!-~]+").fullmatch
_ELSEWHERE = frozenset(["host", ":authority", "forwarded", "x-forwarded-host", "proxy-authorization"])
"""Headers by which a server hands a request on, or that are for another server than the URL's."""


@dataclass(frozen=True)
class HttpCall:
    """A request that is about to be sent; do not follow its redirects with what was filled in."""

    url: str
    """With the scheme https, and a host that the resource's `metadata.allowed_hosts` has; references in it stay."""
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class ProgramCall:
    """A program that is about to be started, without a shell."""

    program: str
    """As `metadata.allowed_programs` of the resource names it: `{"gh": ["GH_TOKEN"]}`, its variables."""
    arguments: tuple[str, ...] = ()
    """References in them stay: other users of the machine see them."""
    environment: Mapping[str, str] = field(default_factory=dict)


_Call = TypeVar("_Call", bound=str | HttpCall | ProgramCall)


async def fill_secrets(call: _Call, allowed: Collection[str]) -> _Call:
    """Return a call with the secrets that it refers to, for a tool as it acts, never for a model.

    A reference `{{secret:<id>}}` stays as it is in a text, which names no target; where the call does not name the
    resource as allowed; and where the resource does not list the target. The list is `metadata.allowed_hosts` (a host,
    with a port where it is not 443) or `metadata.allowed_programs`.

    Args:
        call: What the tool is about to do.
        allowed: The resources that this tool may use.

    Raises:
        CallError: A secret that may be filled in is not available; nothing was filled in.
    """
    if isinstance(call, HttpCall):
        host = host_of(call)
        known = await _secrets([*call.headers.values(), call.body], allowed, lambda listed: host in _hosts(listed))
        headers = {name: _filled(text, known) for name, text in call.headers.items()}
        return cast("_Call", replace(call, headers=headers, body=_filled(call.body, known)))
    if isinstance(call, ProgramCall):
        program, environment = call.program, dict(call.environment)
        for name, text in call.environment.items():
            known = await _secrets([text], allowed, functools.partial(_takes, program, name))
            environment[name] = _filled(text, known)
        return cast("_Call", replace(call, environment=environment))
    return call


async def _secrets(
    texts: Iterable[str], allowed: Collection[str], is_meant: Callable[[Mapping[str, Any]], bool]
) -> dict[str, str]:
    """Return the secrets that texts refer to, of those resources whose metadata list the target."""
    known: dict[str, str] = {}
    for id in dict.fromkeys(id for text in texts for id in _REFERENCE.findall(text)):
        path = quote(id, safe="/")
        if id in allowed and is_meant((await request("GET", f"/api/resource/{path}"))["metadata"]):
            known[id] = str((await request("GET", f"/api/secret/{path}"))["secure_body"])
    return known


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: known.get(match[1], match[0]), text)


def host_of(call: HttpCall) -> str:
    """Return the host that a request goes to, with its port where that is not 443; "" where it is not certain.

    >>> host_of(HttpCall("https://API.good.example:443/a?b=@c")), host_of(HttpCall("https://a.example:8443"))
    ('api.good.example', 'a.example:8443')
    >>> [host_of(HttpCall(url)) for url in ("http://a.example", "https://evil.example@a.example", "https://a。example")]
    ['', '', '']
    >>> host_of(HttpCall("https://a.example", headers={"Host": "evil.example"}))
    ''
    """
    try:
        parts, port = urlsplit(call.url), urlsplit(call.url).port
    except ValueError:
        return ""
    host = (parts.hostname or "").lower()
    # Parsers differ in what they make of anything else; this form has one reading.
    is_plain = _URL(call.url) and "\\" not in call.url and parts.netloc.lower() in (host, f"{host}:{port}")
    if not is_plain or not _HOST(host) or not _ELSEWHERE.isdisjoint(name.strip().lower() for name in call.headers):
        return ""
    return host if port in (None, 443) else f"{host}:{port}"


def _hosts(metadata: Mapping[str, Any]) -> list[str]:
    listed = metadata.get("allowed_hosts")
    return [each.lower() for each in listed if isinstance(each, str) and each] if isinstance(listed, list) else []


def _takes(program: str, variable: str, metadata: Mapping[str, Any]) -> bool:
    programs = metadata.get("allowed_programs")
    listed = programs.get(program) if isinstance(programs, dict) else None
    return isinstance(listed, list) and variable in listed
