r"""Find apparent secrets: by its own shape, or by the words before it.

>>> secret_shape("-----BEGIN RSA PRIVATE KEY-----"), secret_shape("the key sk-… is in the vault")
('private key', '')
>>> secret_shape("postgresql://app:h4nter-2@db.example/app"), secret_shape("postgresql://USER:PASSWORD@localhost/db")
('password in a URL', '')
>>> find_credentials('{"password": "SecurePass123"}'), find_credentials("curl -u ada:hunter2 x")
(['SecurePass123'], ['hunter2'])
>>> mask("curl -H 'Authorization: Bearer 4f9a8b7c6d5e4f3a2b1c' https://api.example")
"curl -H 'Authorization: Bearer [secret]' https://api.example"

The shapes of providers' keys are those of `detect-secrets` (extra `[secrets]`, part of `[knowhub]`); without it a
warning is logged once, and only the shapes below are found. No network is used.

The texts are untrusted, and `re` blocks every other thread: each pattern here takes time in proportion to the text,
and those of `detect-secrets` see windows of bounded length.

Not found: a secret without a shape and without a word such as "password" before it, passwords of fewer than four
characters, and placeholders such as `sk-xxxxxxxxxxxxxxxxxxxxxxxx`.
"""

import functools
import logging
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["find_cookies", "find_credentials", "find_shapes", "mask", "secret_shape"]

_log = logging.getLogger(__name__)

WINDOW, OVERLAP = 1_500, 400
"""Characters of a line that `detect-secrets` sees at once, and how many of them it sees twice."""

_PEM_END = r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"  # a transcript may break off before
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:\s*+[A-Za-z-]{{1,30}}: [^\n]{{0,200}})*+[A-Za-z0-9+/=\s\\]*+{_PEM_END}",
    re.ASCII,
)
# Three parts, of which the first two are base64 of `{"…`; what precedes them in the same run goes with them.
_JWT = re.compile(r"(?<![\w-])(?=[\w-]*eyJ[\w-]{8})[\w-]++\.eyJ[\w-]{8,}+\.[\w-]{8,}+", re.ASCII)
_IN_ADDRESS = re.compile(r"://[^\s/:@]{0,200}:(?P<bare>[^\s/@]{4,200})@")
_BEARER = re.compile(r"(?i)\bbearer\s{1,4}(?P<bare>[\w.~+/-]{20,}+=*+)", re.ASCII)

# What detect-secrets 1.5 lacks, or finds in one of its forms only.
_OWN = {
    "Alibaba Cloud access key": r"\bLTAI[A-Za-z0-9]{12,26}\b",
    "Tencent Cloud secret id": r"\bAKID[A-Za-z0-9]{13,40}\b",
    "Azure client secret": r"(?<![\w~.-])[A-Za-z0-9]{3}\dQ~[\w~.-]{31,34}",
    "Azure access key": r"\b(?:SharedAccessKey|AccountKey)=[A-Za-z0-9+/]{42,86}={1,2}",
    "Google API key": r"\bAIza[\w-]{35}",
    "GitHub token": r"\b(?:github_pat_\w{40,}+|gh[pousr]_[A-Za-z0-9]{30,}+)",
    "Slack token": r"\bx(?:ox[abeprs]|app)-[A-Za-z0-9-]{10,}+",
    "API key": (
        r"\b(?:sk-[\w-]{20,}+|glpat-[\w-]{20,}+|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}+|pypi-[\w-]{50,}+"
        r"|[rs]k_(?:live|test)_[0-9A-Za-z]{20,}+|SG\.[\w-]{20,}+\.[\w-]{20,}+|kh_[\w-]{40,}+)"
    ),
}
_OWN_SHAPES = [(name, re.compile(pattern, re.ASCII)) for name, pattern in _OWN.items()]

_NAMED = re.compile(
    r"(?i)(?<!\{\{)(?:pass(?:word|wd|phrase)|pwd|secret|token|(?:api|access|private)[ _-]?key|authorization"
    r"|密码|口令|密钥|令牌)(?:_\w{1,30})?[\"'`]?\s{0,4}(?P<sign>(?:is\b|[:：=是为]){0,2})\s{0,4}(?:(?:bearer|basic|token)\s{1,4})?"
    r"(?:\"(?P<double>[^\"\n]{4,1000})\"|'(?P<single>[^'\n]{4,1000})'|[\"'`]?(?P<bare>[^\s\"'`{}，；。、]{4,1000}))"
)
_AS_OPTION = re.compile(r"(?<!\S)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,200}:(?P<bare>[^\s\"']{4,200})")
_COOKIE = re.compile(r"(?i)\b(?:set-)?cookie\b[\"']?\s{0,4}[:：=]\s{0,4}[\"']?")
_LONG = re.compile(r"[\w.+/=:~-]{16,}+", re.ASCII)  # every shape of detect-secrets that is used has such a run
_PLACEHOLDER = re.compile(
    r"(?i)[<\[{$%].*|.*[>\]}]|\*+|x+|\.+"
    r"|(?:your|my|the|db|user)?[ _-]?(?:pass|passwd|password|pwd|pw|secret|token|密码)"
)


@functools.lru_cache(maxsize=1)
def _detectors() -> list[tuple[str, re.Pattern[str]]]:
    """Return kind and pattern of the shapes of detect-secrets, but for those that are matched here."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.plugins.base import RegexBasedDetector
    except ImportError:
        _log.warning("fewer secrets are found without detect-secrets: pip install '.[secrets]' in its repository")
        return []
    # Matched here in linear time, or by words before a value, which is too much that is no secret.
    left = {"Artifactory Credentials", "Basic Auth Credentials", "JSON Web Token", "Private Key", "Public IP (ipv4)"}
    left |= {"NPM tokens", "OpenAI Token"}
    left |= {"Cloudant Credentials", "IBM Cloud IAM Key", "IBM COS HMAC Credentials", "SoftLayer Credentials"}
    found: list[tuple[str, re.Pattern[str]]] = []
    detectors: dict[str, type[Any]] = get_mapping_from_secret_type_to_class()
    for kind, detector in sorted(detectors.items()):
        if kind not in left and issubclass(detector, RegexBasedDetector):
            found += [(kind, pattern) for pattern in detector().denylist]
    return found


def find_shapes(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, value) of each part of a text that has the shape of a secret; a value may come more than once."""
    if "PRIVATE KEY" in text:
        yield from (("private key", match[0].strip()) for match in _PEM.finditer(text))
    if "eyJ" in text:
        yield from (("JSON Web Token", match[0]) for match in _JWT.finditer(text))
    if "://" in text:
        for match in _IN_ADDRESS.finditer(text):
            if not _PLACEHOLDER.fullmatch(match["bare"]):
                yield "password in a URL", match["bare"]
    if _LONG.search(text) is None:
        return
    yield from (("bearer token", match["bare"]) for match in _BEARER.finditer(text) if _has_digit(match["bare"]))
    for kind, pattern in _OWN_SHAPES:
        yield from ((kind, match[0]) for match in pattern.finditer(text) if _is_random(match[0]))
    for line in text.splitlines():
        if _LONG.search(line) is None:
            continue
        for start in range(0, max(1, len(line) - OVERLAP), WINDOW - OVERLAP):
            window = line[start : start + WINDOW]
            for kind, pattern in _detectors():
                for match in pattern.finditer(window):
                    value = max((match[0], *match.groups("")), key=lambda part: (len(part) >= 16, -len(part)))
                    if _is_random(value):
                        yield kind, value.strip(" \t\"'=:")


def _is_random(value: str) -> bool:
    """Return whether a value is no word and no placeholder such as `sk-xxxx`."""
    return len(set(value)) >= 5 and (value.isupper() or _has_digit(value) is not None)


_has_digit = re.compile("[0-9]").search


def secret_shape(text: str) -> str:
    """Return the kind of the first secret that a text holds by its shape; "" if there is none."""
    return next((kind for kind, _ in find_shapes(text)), "")


def find_credentials(text: str) -> list[str]:
    """Return the passwords, tokens and keys that a text seems to hold, by shape or by the word before them."""
    found = [value for _, value in find_shapes(text)]
    for pattern in (_IN_ADDRESS, _AS_OPTION):
        found += [match["bare"] for match in pattern.finditer(text)]
    for match in _NAMED.finditer(text):
        quoted, bare = match["double"] or match["single"], (match["bare"] or "").rstrip(".,;:!?)]>")
        # "the password manager" gives no password away; "the password hunter2" does.
        if quoted or (len(bare) >= 4 and (match["sign"] or any(map(str.isdigit, bare)))):
            found.append(quoted or bare)
    return list(dict.fromkeys(found))


def find_cookies(text: str) -> list[str]:
    """Return the values of lines that set or send cookies."""
    found = []
    for line in text.splitlines():
        match = _COOKIE.search(line)
        value = line[match.end() :].rstrip(" \t\"',;") if match else ""
        if "=" in value:
            found.append(value)
    return found


def mask(text: str, mark: str = "[secret]") -> str:
    """Return a text in which each secret found by `find_shapes` is replaced by a mark."""
    for value in sorted({value for _, value in find_shapes(text)}, key=len, reverse=True):
        text = text.replace(value, mark)
    return text
