"""Names of folders and slugs, as the rest of the library makes them."""

from ...keyword_tree import InvalidInputError
from ...memory.names import encode_name, slug_of
from ..core.text import digest_of

__all__ = ["encode_folder", "make_slug"]


def encode_folder(segment: str) -> str:
    """Return what a segment's folder is called: no two segments share one, on any file system.

    >>> encode_folder("Ada"), encode_folder("content.md"), encode_folder("龙井")
    ('%41da', 'content%2Emd', '龙井')

    Raises:
        ValueError: It would be longer than 200 bytes.
    """
    try:
        return encode_name("segment", segment)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


def make_slug(name: str, limit: int = 160) -> str:
    """Return a name as a segment, in its own script; a URI has no `#`, so that C# is written c♯.

    >>> make_slug("喝 龙井!"), make_slug("C++"), make_slug("C#"), make_slug("../x")
    ('喝-龙井', 'c++', 'c♯', 'x')
    >>> len(encode_folder(make_slug("茶" * 500)).encode()) <= 160
    True

    Args:
        name: Any text.
        limit: Bytes of the folder's name; a longer slug ends in a digest.
    """
    slug = slug_of(name).replace("#", "♯")
    if _folder_bytes(slug) <= limit:
        return slug
    digest = digest_of(slug, size=6)
    while slug and _folder_bytes(slug) > limit - len(digest) - 1:
        slug = slug[:-1]
    return f"{slug.rstrip('-')}-{digest}"


def _folder_bytes(slug: str) -> int:
    return sum(1 if char in _PLAIN else 3 * len(char.encode()) for char in slug)  # what is coded takes three each


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
