"""Tokens, each a file named by the SHA-256 of what its holder keeps.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     tokens = Tokens(folder)
...     text, made = tokens.make("ada", ["read"], ["org:cybertogether"])
...     found = tokens.find(text)
...     found.principal, found.may("write"), tokens.revoke(made.digest), tokens.find(text)
('ada', False, True, None)

Who reads the folder cannot log in by it: 32 random bytes need no slow hash. Renaming or unlinking a file revokes its
token. A browser's session is a token of its own, which ends with the one that logged it in.
"""

import contextlib
import getpass
import hashlib
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from .files import Files, FolderFiles, config_folder, write_new
from .records import OWNER_SCOPE, RIGHTS, KnowHubError, Record, invalid
from .schemas import is_plain

AGENTS = "agents-of-"
"""How the principal of a person's agents begins."""

_T = TypeVar("_T")

SESSION_S = 12 * 3600
"""Seconds that a browser stays logged in."""

LOGIN_S = 600
"""Seconds that a link for logging in is good for, once."""


@dataclass(frozen=True)
class Token:
    """A caller, and what they may."""

    principal: str
    """Whose entries it writes."""
    rights: frozenset[str] = frozenset()
    """Of `RIGHTS`."""
    scopes: frozenset[str] = frozenset()
    """Its scopes, besides its principal's own entries; `*` is all. `user:owner` is no scope of a token."""
    expires_at: float | None = None
    """Seconds since the epoch, UTC."""
    digest: str = ""
    """The SHA-256 of its text; "" is the process itself."""
    parent: str = ""
    """Of a session: the token that logged it in."""
    kind: str = "token"
    """`"token"`, `"session"`, or `"login"`."""
    created_at: float = 0.0
    """Seconds since the epoch, UTC."""
    mark: str = ""
    """The digests of the Idempotency-Key and the request that made it."""

    def __post_init__(self) -> None:
        # In an entry it means "its principal alone": a token that had it as a scope would share it with everybody.
        object.__setattr__(self, "scopes", self.scopes - {OWNER_SCOPE})

    @property
    def asker(self) -> str:
        """Whose share of requests and models it draws on: of a browser, its token's."""
        return self.parent or self.digest or self.principal

    def may(self, right: str) -> bool:
        """Return whether it has a right."""
        return right in self.rights

    def may_say(self, owner: str) -> bool:
        """Return whether it may call an entry of its own another owner's: an agent's, where it is a person's agents."""
        return self.may("admin") or (self.principal.startswith(AGENTS) and owner.startswith("agent:"))

    def sees_all(self) -> bool:
        """Return whether nothing is hidden from it."""
        return "*" in self.scopes

    def owns_scope(self, scope: str) -> bool:
        """Return whether it may write into a scope."""
        return scope == OWNER_SCOPE or scope in self.scopes or self.sees_all()

    def owned(self, scopes: Iterable[str]) -> list[str]:
        """Return those of an entry's scopes that it may write into: what it says of the entry is for these."""
        return [scope for scope in scopes if self.owns_scope(scope)]


LOCAL = Token("local", frozenset(RIGHTS), frozenset("*"))
"""The owner of the process: a hub in process needs no file."""


def need(token: Token, right: str) -> None:
    """Refuse a token that does not have a right.

    Raises:
        KnowHubError: `forbidden`.
    """
    if not token.may(right):
        raise KnowHubError("forbidden", f"the token does not have the right `{right}`")


def check_plain(names: Iterable[str]) -> None:
    """Refuse names of principals and scopes that could be taken for another one's.

    Raises:
        KnowHubError: `forbidden`: characters that cannot be seen, or another form than NFKC.
    """
    if not all(map(is_plain, names)):
        raise KnowHubError("forbidden", "a name has characters that cannot be seen, or in another form than NFKC")


def is_visible(token: Token, scopes: Collection[str], principal: str) -> bool:
    """Return whether a token sees what has these scopes and this principal.

    >>> bob = Token("bob", scopes=frozenset({"team:a"}))
    >>> [is_visible(bob, scopes, "ada") for scopes in (["team:a"], ["user:owner"], ["team:b"])]
    [True, False, False]
    """
    if token.sees_all() or not token.scopes.isdisjoint(scopes):
        return True
    return OWNER_SCOPE in scopes and token.principal == principal


def sees(token: Token, record: Record) -> bool:
    """Return whether a token sees a record, as it stood in the version given."""
    return is_visible(token, record.fields.get("scopes", ()), record.created_by)


def sees_said(token: Token, record: Record) -> bool:
    """Return whether a token sees a statement about an entry: as that was visible then."""
    return is_visible(token, record.fields.get("scopes", ()), str(record.fields.get("owner")))


class Tokens:
    """The tokens of one hub; safe for many threads and processes.

    Args:
        files: Hold one each; or their folder.
        clock: Seconds since the epoch.

    Cost: finding one is a hash and a look at its file.
    """

    def __init__(self, files: Files | str | Path, clock: Callable[[], float] = time.time) -> None:
        self.files = FolderFiles(files) if isinstance(files, (str, Path)) else files
        self._clock = clock
        self._known: dict[str, tuple[object, Any]] = {}  # by name: the file's mark, and what it holds

    def make(
        self,
        principal: str,
        rights: Collection[str] = ("read", "write"),
        scopes: Collection[str] = (),
        expires_at: float | None = None,
        *,
        kind: str = "token",
        parent: str = "",
        text: str = "",
        mark: str = "",
    ) -> tuple[str, Token]:
        """Make a token, and return its text, which is kept nowhere, and what it is; `text` is one made elsewhere."""
        text = text or ("kh_" if kind == "token" else f"kh{kind[0]}_") + secrets.token_urlsafe(32)
        digest = _digest(text)
        if not _is_name(principal):
            raise invalid("/principal", "a principal is 1 to 100 characters that can be seen, without blanks")
        now = self._clock()
        made = Token(principal, frozenset(rights), frozenset(scopes), expires_at, digest, parent, kind, now, mark)
        self._write(digest, _stored.dump_json(made, exclude={"digest"}))
        return text, made

    def make_login(self, parent: Token) -> str:
        """Return the code of a link that logs a browser in, once."""
        until = self._clock() + LOGIN_S
        return self.make(parent.principal, (), (), until, kind="login", parent=parent.digest)[0]

    def log_in(self, text: str) -> tuple[str, Token] | None:
        """Return a session for a token, or for the code of a link, which is used up by that."""
        found = self.find(text, kind="login")
        if found is not None:
            if not self.revoke(found.digest):
                return None  # another process was quicker
            found = self._load(found.parent)
        else:
            found = self.find(text)
        return None if found is None else self._open_session(found)

    def log_in_as(self, principal: str) -> tuple[str, Token] | None:
        """Return a session for the newest token of a principal; None where there is none."""
        mine = [token for token in self.all() if token.principal == principal]
        return self._open_session(mine[-1]) if mine else None

    def _open_session(self, found: Token) -> tuple[str, Token]:
        until = self._clock() + SESSION_S
        if found.expires_at is not None:
            until = min(until, found.expires_at)
        return self.make(found.principal, found.rights, found.scopes, until, kind="session", parent=found.digest)

    def find(self, text: str, kind: str = "token") -> Token | None:
        """Return the token of a text, or None: unknown, revoked, expired, or its file is damaged."""
        if not text.startswith("kh") or len(text) > 100:
            return None
        found = self._load(_digest(text))
        if found is None or found.kind != kind:
            return None
        if kind == "session":
            parent = self._load(found.parent)
            if parent is None:
                return None
            # What a session may is what its token may now.
            found = replace(found, rights=parent.rights, scopes=parent.scopes)
        granted = [set(group["scopes"]) for group in self.groups().values() if found.principal in group["members"]]
        return replace(found, scopes=found.scopes.union(*granted)) if granted else found

    def groups(self) -> dict[str, dict[str, list[str]]]:
        """Return the groups by name: their `members`, principals, and the `scopes` that these see by it."""
        return self._look_up(_GROUPS, lambda name: _stored_groups.validate_json(self.files.read(name) or b"{}")) or {}

    def set_group(self, name: str, members: Collection[str], scopes: Collection[str]) -> None:
        """Make a group, or change it; one without members goes."""
        groups = {**self.groups(), name: {"members": sorted(members), "scopes": sorted(set(scopes) - {OWNER_SCOPE})}}
        if not members:
            del groups[name]
        self._write(_GROUPS, _stored_groups.dump_json(groups))

    def is_good(self, token: Token) -> bool:
        """Return whether a token that was found once is still there: a long answer ends with it."""
        return not token.digest or self._load(token.parent or token.digest) is not None

    def revoke(self, digest: str) -> bool:
        """End a token; says whether it was there."""
        self._known.pop(digest, None)
        found = self._parse(digest)
        if found is None or found.kind != "token":
            return self.files.remove(digest)
        return self.files.rename(digest, digest + _REVOKED)  # else its holder's file would make it anew

    def is_new(self, principal: str, text: str) -> bool:
        """Return whether no token, revoked ones included, was ever made here for a principal, or of this text."""
        names = self.files.names()
        is_known = _digest(text) + _REVOKED in names
        return not is_known and all(each is None or each.principal != principal for each in map(self._parse, names))

    @property
    def org(self) -> str:
        """The scope that is shared by default, `org:<name>`; "" where entries are their principal's alone."""
        return self._look_up(_ORG, lambda name: (self.files.read(name) or b"").decode(errors="replace").strip()) or ""

    @org.setter
    def org(self, scope: str) -> None:
        if scope != self.org:
            self._write(_ORG, scope.encode())

    def default_scopes(self, token: Token) -> list[str]:
        """Return who sees what a token writes where it does not say so: its organisation, else its principal alone."""
        org = self.org
        return [org] if org and token.owns_scope(org) else [OWNER_SCOPE]

    def is_token(self, digest: str) -> bool:
        """Return whether a digest is that of a token, expired ones too; sessions and links are none."""
        found = self._parse(digest) if _is_digest(digest) else None
        return found is not None and found.kind == "token"

    def all(self) -> list[Token]:
        """Return all tokens, oldest first; what has expired is put away."""
        found = [token for token in map(self._load, self._digests()) if token is not None and token.kind == "token"]
        return sorted(found, key=lambda token: token.created_at)

    def damaged(self) -> list[str]:
        """Return the names of files that hold no token."""
        return [digest for digest in self._digests() if self._parse(digest) is None]

    def sweep(self) -> None:
        """Delete browsers' sessions and links that have expired; a token stays, since a clock can be wrong."""
        for token in filter(None, map(self._parse, self._digests())):
            if token.kind != "token" and self._is_over(token):
                self.revoke(token.digest)

    def _digests(self) -> Iterator[str]:
        return filter(_is_digest, self.files.names())

    def _look_up(self, name: str, parse: Callable[[str], _T | None]) -> _T | None:
        """Return what a file holds, parsed again where it has changed; None where there is none, or it is damaged."""
        mark = self.files.mark(name)
        if mark is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] != mark:
            held: _T | None = None
            with contextlib.suppress(OSError, ValueError):
                held = parse(name)
            if held is None:  # it is tried again: for want of a file descriptor it is not damaged
                return None
            known = self._known[name] = mark, held
        found: _T = known[1]
        return found

    def _load(self, digest: str) -> Token | None:
        token = self._look_up(digest, self._parse) if _is_digest(digest) else None
        return None if token is None or self._is_over(token) else token

    def _is_over(self, token: Token) -> bool:
        return token.expires_at is not None and token.expires_at <= self._clock()

    def _parse(self, digest: str) -> Token | None:
        with contextlib.suppress(OSError, ValueError):
            token = _stored.validate_json(self.files.read(digest) or b"")
            return replace(token, digest=digest) if token.rights <= set(RIGHTS) else None
        return None

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.files.write(name, data + b"\n")
        except OSError as error:
            raise KnowHubError("disk-full", "the disk refuses the file; nothing was changed") from error


_stored = TypeAdapter(Token)
_stored_groups = TypeAdapter(dict[str, dict[str, list[str]]])
_REVOKED, _ORG, _GROUPS = ".revoked", "org", "groups"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 100 and is_plain(text) and not any(map(str.isspace, text))


_is_digest = re.compile("[0-9a-f]{64}").fullmatch


# A person's own tokens


def own_principal() -> str:
    """Return who one is: the e-mail address that git knows, else the name one is logged in by."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["git", "config", "user.email"], capture_output=True, text=True, timeout=5, check=False)
        name = said.stdout.strip()
        if _is_name(name):
            return name
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "owner"


def token_path() -> Path:
    """Return where a person's own token lies."""
    return config_folder() / "token"


def agents_token_path() -> Path:
    """Return where the token of a person's agents lies."""
    return config_folder() / "agents-token"


def own_token(tokens: Tokens) -> tuple[str, Token]:
    """Return a person's own token for a hub; it may do all."""
    return _token_at(tokens, token_path(), own_principal(), RIGHTS)


def agents_token(tokens: Tokens) -> tuple[str, Token]:
    """Return the token of a person's agents for a hub: another principal, so that their votes on one's entries count.

    They see what the person sees, and may do all but make tokens, and export or import all.
    """
    rights = [right for right in RIGHTS if right != "admin"]
    return _token_at(tokens, agents_token_path(), f"{AGENTS}{own_principal()}"[:100], rights)


def _token_at(tokens: Tokens, path: Path, principal: str, rights: Collection[str]) -> tuple[str, Token]:
    """Return the token that a file holds; a hub that never had one takes it, any other that does not know it a new one.

    So one file opens all of a person's hubs, and what was revoked stays so.
    """
    text = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = path.read_text(encoding="ascii").strip()
        found = tokens.find(text)
        if found is not None:
            return text, found
    if not re.fullmatch(r"kh_[A-Za-z0-9_-]{43}", text) or not tokens.is_new(principal, text):
        text = ""
    made = tokens.make(principal, rights, ["*"], text=text)
    if not text:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(path, made[0].encode() + b"\n")
    return made
