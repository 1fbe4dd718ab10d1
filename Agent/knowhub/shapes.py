r"""What looks like a secret: by its own shape, and by the words that stand before it.

>>> secret_shape("-----BEGIN RSA PRIVATE KEY-----"), secret_shape("the key sk-… is in the vault")
('a private key (PEM)', '')
>>> find_credentials('{"password": "SecurePass123"}'), find_credentials("curl -u ada:hunter2 x")
(['SecurePass123'], ['hunter2'])
>>> find_cookies("Cookie: session_id=abc123; auth=xyz789")
['session_id=abc123; auth=xyz789']

The texts are anybody's, and `re` lets nothing else run meanwhile: each pattern here takes time in proportion to the
text, whatever stands in it. So a repetition is bounded, or possessive and begun only where its run begins.

Not found: a secret that has no shape of its own and no such word before it (an AWS secret access key in a table, say),
and passwords of fewer than four characters.
"""

import re

__all__ = ["find_cookies", "find_credentials", "secret_shape"]

_PEM_END = r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"  # a transcript may break off before
_SHAPES = {
    "a private key (PEM)": (
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:\s*+[A-Za-z-]{{1,30}}: [^\n]{{0,200}})*+[A-Za-z0-9+/=\s\\]*+{_PEM_END}"
    ),
    # Three parts, of which the first two are base64 of `{"…`; what stands before them in the same run goes with them.
    "a JSON web token": r"(?<![\w-])(?=[\w-]*eyJ[\w-]{8})[\w-]++\.eyJ[\w-]{8,}+\.[\w-]{8,}+",
    "a provider's key": (
        r"\b(?:sk-[\w-]{20,}+|(?:AKIA|ASIA)[0-9A-Z]{16}\b|gh[pousr]_[A-Za-z0-9]{30,}+|github_pat_\w{40,}+"
        r"|glpat-[\w-]{20,}+|xox[abeprs]-[A-Za-z0-9-]{10,}+|AIza[\w-]{35}|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}+"
        r"|[rs]k_(?:live|test)_[0-9A-Za-z]{20,}+|SG\.[\w-]{20,}+\.[\w-]{20,}+|pypi-[\w-]{50,}+|kh_[\w-]{40,}+)"
    ),
}
_SHAPE = {name: re.compile(pattern, re.ASCII) for name, pattern in _SHAPES.items()}

_NAMED = re.compile(
    r"(?i)(?<!\{\{)(?:pass(?:word|wd|phrase)|pwd|secret|token|(?:api|access|private)[ _-]?key|authorization"
    r"|密码|口令|密钥|令牌)(?:_\w{1,30})?[\"'`]?\s{0,4}(?P<sign>(?:is\b|[:：=是为]){0,2})\s{0,4}(?:(?:bearer|basic|token)\s{1,4})?"
    r"(?:\"(?P<double>[^\"\n]{4,1000})\"|'(?P<single>[^'\n]{4,1000})'|[\"'`]?(?P<bare>[^\s\"'`{}，；。、]{4,1000}))"
)
_IN_ADDRESS = re.compile(r"://[^\s/:@]{1,200}:(?P<bare>[^\s/@]{4,200})@")
_AS_OPTION = re.compile(r"(?<!\S)(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,200}:(?P<bare>[^\s\"']{4,200})")
_COOKIE = re.compile(r"(?i)\b(?:set-)?cookie\b[\"']?\s{0,4}[:：=]\s{0,4}[\"']?")


def secret_shape(text: str) -> str:
    """Return which kind of secret a text seems to hold, by its shape alone; "" is none."""
    return next((name for name, shape in _SHAPE.items() if shape.search(text)), "")


def find_credentials(text: str) -> list[str]:
    """Return what a text seems to hold of passwords, tokens and keys."""
    found = [match[0].strip() for shape in _SHAPE.values() for match in shape.finditer(text)]
    for pattern in (_IN_ADDRESS, _AS_OPTION):
        found += [match["bare"] for match in pattern.finditer(text)]
    for match in _NAMED.finditer(text):
        quoted, bare = match["double"] or match["single"], (match["bare"] or "").rstrip(".,;:!?)]>")
        # "the password manager" gives no password away; "the password hunter2" does.
        if quoted or (len(bare) >= 4 and (match["sign"] or any(map(str.isdigit, bare)))):
            found.append(quoted or bare)
    return found


def find_cookies(text: str) -> list[str]:
    """Return the values of lines that set or send cookies."""
    found = []
    for line in text.splitlines():
        match = _COOKIE.search(line)
        value = line[match.end() :].rstrip(" \t\"',;") if match else ""
        if "=" in value:
            found.append(value)
    return found
