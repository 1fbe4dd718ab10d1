"""What other programs say, without the keys that they may quote."""

import os
import re
from collections.abc import Iterator

from .checks import is_uuid

__all__ = ["hide_keys"]

_find_attached = re.compile(  # after a colon or such: whatever stands there, but for "Token error: expired"
    r"(?i)((?:bearer|basic|key|token|secret|passw(?:or)?d|passphrase|credential|auth(?:orization)?|cookie|sig(?:nature)?"
    r"|密钥|密码|令牌|口令|凭证)s?(?!\W*(?:error|fail|missing|invalid|expired|错误|失败|无效)\w*\W+[a-z]{1,16}\b)"
    r"(?: \w+|[一-鿿]{1,4})?(?:[\\\"'`”)]{0,3}\s?[:=：]|[\"'],)\s{0,4}[\\\"'`“(\[]{0,3}(?:\w+\(\W?|b['\"])?"
    r"(?:(?:bearer|basic|token) )?|\b(?:bearer|basic) (?=\S*(?-i:[\d=]|[a-z][A-Z]))|\bsk-|://)"
    r"(?:(?<=://)[^\s/@]+(?=@)|(?<!://)(?!\w+[\"']\s?:)[\w!#$%*+./:=?@^~-]{6,})",
)
_find_clauses = re.compile(r"(?:[^.;；。\n]|\.(?=\S))+")
_speaks_of_keys = re.compile(
    r"(?i)(?:key|token(?! (?:limit|count|bu))|secret|passw(?:or)?d|passphrase|bearer)(?![a-z])|密钥|密码|令牌|口令|凭证"
).search
_find_runs = re.compile(r"[A-Za-z0-9_.~+=*-]{6,}")
_is_plain = re.compile(  # words, numbers, times, and what is joined of these, as names of models and files are
    r"(?:(?:[A-Za-z]{1,16}\d{0,2}|\d+(?:[A-Za-z]{1,2}|T\d{2,6}Z?)?)?(?:[_.~+=*-]|$))+"
).fullmatch


def hide_keys(said: str | BaseException, holder: object = None) -> str:
    """Return what another program says, in a text or an error, without the keys it may quote, for a log or a result.

    Whatever a client or an embedder raises goes through here before it is kept. Hidden is, whatever it looks like, a
    value that the environment or the `holder` has under a name such as "api_key"; what is assigned to a word such as
    "key" or "密码"; in a clause with such a word all that is no plain name; and what is long and no plain name.

    Args:
        said: a text, or an exception, of which the type and the first 4,000 characters are said.
        holder: the client or embedder; its attributes count, and those of what they are, three levels deep.

    >>> hide_keys("401 Incorrect API key provided: sk-proj-Zx9Qw8Er7Ty6, see https://ann:pw@proxy.example")
    '401 Incorrect API key provided: …, see https://…@proxy.example'
    >>> hide_keys("a1b2c3d4 is not a valid API key for gpt-4o-mini")
    '… is not a valid API key for gpt-4o-mini'
    """

    def hide_runs(clause: re.Match[str]) -> str:
        is_expected = _speaks_of_keys(clause[0]) is not None
        return _find_runs.sub(lambda run: "…" if _is_key(run[0], is_expected) else run[0], clause[0])

    kind = ""
    if isinstance(said, BaseException):
        kind = f"{type(said).__name__}: "
        try:
            said = str(said)[:4000].encode("utf-8", "replace").decode()
        except Exception as error:  # of a foreign __str__
            said = f"it cannot be shown ({type(error).__name__})"
    held = [*os.environ.items(), *_names_in(holder)]
    keys = {value for name, value in held if isinstance(value, str) and len(value) > 5 and _speaks_of_keys(str(name))}
    for key in sorted(keys, key=len, reverse=True):
        said = said.replace(key, "…")
    return kind + _find_clauses.sub(hide_runs, _find_attached.sub(lambda found: f"{found[1]}…", said))


def _names_in(holder: object, depth: int = 3) -> Iterator[tuple[object, object]]:
    """Yield the attributes of an object and the entries of a dict, and those of what these are."""
    if depth:
        for name, value in list((holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})).items()):
            yield name, value
            yield from _names_in(value, depth - 1)


def _is_key(run: str, is_expected: bool) -> bool:
    has_digit = any(map(str.isdigit, run))
    if is_expected:
        return not _is_plain(run) or (has_digit and run.isalnum() and not run.isdigit())
    return has_digit and len(run) >= 20 and not _is_plain(run) and not is_uuid(run)
