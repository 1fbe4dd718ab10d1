"""Records, times, and what a hub refuses; no error repeats what was said: it may be a secret."""

import importlib.util
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, TypeAlias
from urllib.parse import quote

from ..base.language import say_in
from ..keyword_tree import KeywordTreeError

_NEEDED = ("cryptography", "fastapi", "jinja2", "markdown_it", "prometheus_client", "pydantic", "uvicorn")
if not all(map(importlib.util.find_spec, _NEEDED)):
    raise ImportError("KnowHub needs its extra: pip install '.[knowhub]' in its repository")

Json: TypeAlias = dict[str, Any]
"""A JSON object, as it goes over the wire."""

OWNER_SCOPE = "user:owner"
"""In an entry's scopes: its principal alone."""

RIGHTS = ("read", "write", "curate", "secrets", "admin")
"""The rights of a token: see, save and judge, change others' entries, read secrets, administrate."""


# Errors: one form for all interfaces


class KnowHubError(KeywordTreeError):
    """A refusal of the hub, in the form of RFC 9457; `code` is one of `PROBLEMS`, and no input is repeated."""

    def __init__(
        self, code: str, detail: str, errors: list[dict[str, str]] | None = None, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = errors or []
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return PROBLEMS[self.code][0]

    def to_json(self, instance: str = "", *, in_chinese: bool = False) -> Json:
        """Return the problem as it is sent, its title and common errors of fields in English or in Chinese."""
        status, title = PROBLEMS[self.code]
        say = partial(say_in, "zh" if in_chinese else "en")
        problem: Json = {"type": f"/problems/{self.code}", "title": say(title), "status": status}
        errors = [{**each, "detail": say(each["detail"])} for each in self.errors]
        return problem | {"detail": self.detail, "instance": quote(instance, safe="/"), "errors": errors}


PROBLEMS: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not have the right"),
    "not-found": (404, "There is no such thing, or it is not for this token"),
    "method-not-allowed": (405, "The path knows other methods"),
    "timeout": (408, "The request took too long to arrive"),
    "conflict": (409, "Something stands in the way"),
    "key-reused": (409, "The Idempotency-Key was used for another request"),
    "gone": (410, "The secret has expired or was destroyed"),
    "changed": (412, "It has another version by now"),
    "too-large": (413, "The request is too large"),
    "wrong-host": (421, "This server does not answer to that name"),
    "invalid": (422, "The request is not valid"),
    "secret-shape": (422, "Knowledge must not hold what looks like a secret"),
    "version-needed": (428, "If-Match must say which version is meant"),
    "too-many-requests": (429, "Too many requests"),
    "headers-too-large": (431, "The request's head is too large"),
    "internal": (500, "The server made a mistake"),
    "outcome-unknown": (500, "Whether it was written is not known"),
    "store-damaged": (500, "The store is damaged"),
    "vault-locked": (503, "The vault cannot be opened"),
    "busy": (503, "The server is busy"),
    "quota-exceeded": (507, "The share of the principal is used up"),
    "disk-full": (507, "The disk refuses to take it"),
}
"""Code → status and title."""


def not_found() -> KnowHubError:
    """Return the one error for missing and for invisible records."""
    return KnowHubError("not-found", "there is no such thing, or it is not for this token")


def invalid(pointer: str, detail: str) -> KnowHubError:
    """Return the refusal of one field."""
    return KnowHubError("invalid", f"{pointer or 'body'}: {detail}", [{"pointer": pointer, "detail": detail}])


class Shares:
    """How often each caller may do something: a number of times at once, and again as time passes.

    Safe for many threads.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by caller: left, when

    def wait_s(self, who: str, rate: float, at_once: float, *, takes: bool = True) -> float:
        """Return the seconds until a caller may go on, 0 where that is now; and count this time where it is now.

        Args:
            who: The caller.
            rate: Times a second.
            at_once: Times at once.
            takes: Whether the caller goes on, where it may.
        """
        now = self._clock()
        with self._lock:
            left, since = self._left.pop(who, (at_once, now))
            left = min(at_once, left + max(0.0, now - since) * rate)
            self._left[who] = (left - 1.0 if takes and left >= 1.0 else left, now)
            if len(self._left) > _SHARES_KEPT:
                self._left.popitem(last=False)
        return max(0.0, (1.0 - left) / rate)


_SHARES_KEPT = 10_000

# Times


@lru_cache(maxsize=4096)  # of an entry that is read again and again it takes a tenth of the time
def iso_time(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC.

    >>> iso_time(0)
    '1970-01-01T00:00:00Z'
    """
    within = min(max(seconds, FIRST_S), LAST_S)  # what a calendar has: no stored number may stop a whole list
    return datetime.fromtimestamp(within, UTC).isoformat(timespec="auto").replace("+00:00", "Z")


FIRST_S, LAST_S = -62_135_596_800, 253_402_300_799  # the years 1 to 9999


# Records


@dataclass(slots=True)
class Record:
    """One record of the ledger."""

    id: str
    """The kind, see `kind_of`."""
    content: str
    """The text."""
    source: str
    """A title, or where it is from."""
    fields: Json
    """All else."""
    created_by: str
    """The principal: taken from the token, never claimed."""
    version: int = 1
    """One more with every write."""
    created_at: float = 0.0
    updated_at: float = 0.0
    """Seconds since the epoch, UTC."""
    deleted: bool = False
    """Whether it went."""
    helpful: int = 0
    harmful: int = 0
    """Of an entry from the catalog: the votes that count."""

    @property
    def kind(self) -> str:
        """`"knowledge"`, `"feedback"`, `"proposal"`, `"resource"`, `"trace"`, or "" for what is not ours."""
        return kind_of(self.id)

    @property
    def key(self) -> tuple[float, str]:
        """Its place in the order of time."""
        return (self.created_at, self.id)

    @property
    def merged_into(self) -> str:
        """The entry that this one was merged into; "" is none."""
        return str(self.fields.get("merged_into") or "")

    @property
    def secret_ref(self) -> str:
        """The name of a resource's sealed file; "" is none."""
        return str(self.fields.get("secret_ref") or "")

    @property
    def size(self) -> int:
        """Bytes of its texts."""
        texts = [self.content, self.source, str(self.fields.get("task", "")), str(self.fields.get("feedback", ""))]
        return len("".join(texts).encode(errors="replace"))

    @property
    def quality(self) -> float:
        """The worth of an entry: `score + helpful − 2·harmful`."""
        return float(self.fields["score"]) + self.helpful - 2.0 * self.harmful

    def changed(self, content: str | None = None, **fields: Any) -> "Record":
        """Return the next version: another content, other fields."""
        return replace(self, content=self.content if content is None else content, fields={**self.fields, **fields})


_KIND = re.compile(r"(knowledge|feedback|proposal)-|(resource|trace|call|access)/")


def kind_of(id: str) -> str:
    """Return the kind of a record, by its id.

    >>> kind_of("knowledge-20260305-a1b2"), kind_of("resource/code/login"), kind_of("a keyword")
    ('knowledge', 'resource', '')
    """
    found = _KIND.match(id)
    return (found[1] or found[2]) if found else ""
