"""What looks like a secret in what tools were given and gave: by its shape, or by the words before it."""

from ...secrets_in_text import find_cookies, find_credentials
from ...secrets_in_text import mask as _mask_shapes

__all__ = ["mask"]


def mask(text: str) -> str:
    """Return a text without what looks like a secret.

    >>> mask('{"password": "4f9a8b7c6d5e4f3a"}')
    '{"password": "[secret]"}'
    """
    text = _mask_shapes(text)
    for value in sorted({*find_credentials(text), *find_cookies(text)}, key=len, reverse=True):
        if value not in "[secret]":  # it is masked already
            text = text.replace(value, "[secret]")
    return text
