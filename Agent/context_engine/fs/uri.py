"""URIs: parsing, owner spaces, slugs, and names of folders.

>>> parse_uri("ctx://acme/users/Ada/memories/profile").owner_space
'user:Ada'
>>> parse_uri("ctx://acme/users/Ada/memories/profile").folders
('acme', 'users', '%41da', 'memories', 'profile')
>>> parse_uri("ctx://acme/users/../bob")
Traceback (most recent call last):
    ...
Agent.context_engine.core.errors.InvalidUriError: a segment may not be '..': 'ctx://acme/users/../bob'

All of it is decided on the text, before anything looks at the disk. Nothing is decoded: `%2e%2e` is a name of six
characters. A space is `ctx://{account}/users/{id}` or `ctx://{account}/agents/{id}`; nodes lie under one.
"""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from ...base.checks import shorten
from ...base.names import encode_name, slug_of
from ...base.text import digest_of
from ..core.config import OWNER_OF, SESSIONS, URI_SEGMENTS
from ..core.errors import AccessDeniedError, ContextEngineError, InvalidUriError
from ..core.objects import RequestContext

_SCHEME = "ctx://"
_CHARACTERS = 1_024
_find_forbidden = re.compile("[\\\\?#\u2028\u2029]").search
_is_plain = re.compile("[a-z0-9_-]{1,200}").fullmatch  # is its own folder: most are, and the look at each takes long
_OWNERS = {"users": "user", "agents": "agent"}


class Uri(NamedTuple):
    """A URI that has been checked."""

    text: str
    segments: tuple[str, ...]
    folders: tuple[str, ...]
    """Names of its folders, from the store's root on."""

    @property
    def account(self) -> str:
        """The tenant."""
        return self.segments[0]

    @property
    def owner_space(self) -> str:
        """`user:{id}` or `agent:{id}`; "" outside of spaces."""
        if len(self.segments) < 3 or self.segments[1] not in _OWNERS:
            return ""
        return f"{_OWNERS[self.segments[1]]}:{self.segments[2]}"

    @property
    def space(self) -> str:
        """The space's own URI."""
        return _SCHEME + "/".join(self.segments[:3])

    @property
    def is_node(self) -> bool:
        """Whether a node may be there: under a space."""
        return len(self.segments) > 3

    @property
    def parent(self) -> str:
        """The URI above."""
        return self.text.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The last segment."""
        return self.segments[-1]

    @property
    def category(self) -> str:
        """The category of a memory at this place; "" if there is none."""
        rest = self.segments[3:]
        if rest[:1] == ("memories",) and len(rest) > 1:
            return rest[1] if rest[1] in OWNER_OF else ""
        return rest[0] if rest and rest[0] in (SESSIONS, "skills", "tools") else ""

    def is_beneath(self, other: "Uri") -> bool:
        """Whether it is `other`, or lies under it."""
        return self.segments[: len(other.segments)] == other.segments


@lru_cache(maxsize=4096)
def _parse(text: str) -> Uri:
    if not text.startswith(_SCHEME):
        raise InvalidUriError(f"a URI begins with {_SCHEME}: {shorten(text)}")
    if len(text) > _CHARACTERS:
        raise InvalidUriError(f"a URI has at most {_CHARACTERS} characters, not {len(text)}: {shorten(text)}")
    segments = tuple(text[len(_SCHEME) :].split("/"))
    if len(segments) > URI_SEGMENTS:
        raise InvalidUriError(f"a URI has at most {URI_SEGMENTS} segments, not {len(segments)}: {shorten(text)}")
    try:
        return Uri(text, segments, tuple(map(_folder_of, segments)))
    except ValueError as error:
        raise InvalidUriError(f"{error}: {shorten(text)}") from error


def parse_uri(uri: object) -> Uri:
    """Return the parts of a URI, or raise `InvalidUriError` with the reason."""
    if not isinstance(uri, str):
        raise InvalidUriError(f"a URI is a string, not {shorten(uri)}")
    return _parse(str(uri))


def uri_of(folders: tuple[str, ...]) -> Uri | None:
    """Return the URI whose folders these are; None for folders that no URI has."""
    try:
        found = _parse(_SCHEME + unquote("/".join(folders)))
    except InvalidUriError:
        return None
    return found if found.folders == folders else None


@lru_cache(maxsize=4096)  # the same few folders lead to all nodes
def _folder_of(segment: str) -> str:
    """Return a segment's folder, of which no two share one on any file system; a `ValueError` says why it has none."""
    if _is_plain(segment):
        return segment
    if segment in ("", ".", ".."):
        raise ValueError(f"a segment may not be {segment!r}")
    if found := _find_forbidden(segment):
        raise ValueError(f"a segment may not hold {found[0]!r}")
    return encode_name("a segment", segment)


def make_slug(name: str, limit: int = 160) -> str:
    """Return a name as a segment, in its own script; a URI has no `#`, so that C# is written c♯.

    >>> make_slug("喝 龙井!"), make_slug("C++"), make_slug("C#"), make_slug("../x")
    ('喝-龙井', 'c++', 'c♯', 'x')
    >>> len(_folder_of(make_slug("茶" * 500)).encode()) <= 160
    True

    `limit` is bytes of the folder's name; a longer slug ends in a digest.
    """
    slug = slug_of(name).replace("#", "♯")
    if _folder_bytes(slug) <= limit:
        return slug
    digest = digest_of(slug, size=6)
    while slug and _folder_bytes(slug) > limit - len(digest) - 1:
        slug = slug[:-1]
    return f"{slug.rstrip('-')}-{digest}"


def _folder_bytes(slug: str) -> int:
    return sum(1 if _is_plain(char) else 3 * len(char.encode()) for char in slug)  # what is coded takes three each


def join_uri(*segments: str) -> str:
    """Return the URI of some segments, checked one by one: none of them can hide two."""
    for segment in segments:
        if not isinstance(segment, str) or "/" in segment:
            raise InvalidUriError(f"a segment is a string without a slash, not {shorten(segment)}")
    return parse_uri(_SCHEME + "/".join(segments)).text


def space_uris(ctx: RequestContext) -> tuple[str, str]:
    """Return the URIs of the two spaces that a request sees: its user's first, then its agent's."""
    if not isinstance(ctx, RequestContext):
        raise InvalidUriError(f"ctx must be a RequestContext, not {shorten(ctx)}")
    for name in ("account_id", "user_id", "agent_id"):
        if not isinstance(getattr(ctx, name), str):
            raise InvalidUriError(f"{name} must be a string, not {shorten(getattr(ctx, name))}")
    return _spaces_of(ctx.account_id, ctx.user_id, ctx.agent_id)


@lru_cache(maxsize=1024)
def _spaces_of(account: str, user: str, agent: str) -> tuple[str, str]:
    return join_uri(account, "users", user), join_uri(account, "agents", agent)


def check_access(ctx: RequestContext, uri: object) -> Uri:
    """Return a URI's parts, if it lies in the request's spaces, whether anything is there or not."""
    spaces = space_uris(ctx)
    parsed = parse_uri(uri)
    if parsed.space not in spaces:
        refusal = f"{shorten(parsed.text)} is not of user {ctx.user_id!r}, nor of agent {ctx.agent_id!r}"
        raise AccessDeniedError(refusal)
    return parsed


def is_visible(ctx: RequestContext, uri: str) -> bool:
    """Whether a URI that the store holds is one of the request's own."""
    try:
        check_access(ctx, uri)
    except ContextEngineError:
        return False
    return True


def category_uri(ctx: RequestContext, category: str) -> str:
    """Return the URI that the memories of a category lie under; of a profile its own."""
    user, agent = space_uris(ctx)
    if category == SESSIONS:
        return f"{user}/{SESSIONS}"
    space = user if OWNER_OF[category] == "user" else agent
    return f"{space}/{category}" if category in ("skills", "tools") else f"{space}/memories/{category}"


def memory_uri(ctx: RequestContext, category: str, name: str) -> str:
    """Return the URI of a memory; `name` is made a slug."""
    above = category_uri(ctx, category)
    return parse_uri(above if category == "profile" else f"{above}/{make_slug(name)}").text


def session_uri(ctx: RequestContext) -> str:
    """Return the URI that a session's archives lie under."""
    sessions = category_uri(ctx, SESSIONS)
    if not ctx.session_id:
        hint = "RequestContext(account, user, agent, session), or --session at the prompt"
        raise InvalidUriError(f"a session needs a session_id: {hint}")
    return join_uri(*parse_uri(sessions).segments, ctx.session_id)
