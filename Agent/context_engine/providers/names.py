"""Names of folders and slugs, as the rest of the library makes them."""

from ...keyword_tree import InvalidInputError
from ...memory.names import encode_name, slug_of

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


def make_slug(name: str) -> str:
    """Return a name as a segment, in its own script; a URI has no `#`, so that C# is written c♯.

    >>> make_slug("喝 龙井!"), make_slug("C++"), make_slug("C#"), make_slug("../x")
    ('喝-龙井', 'c++', 'c♯', 'x')
    """
    return slug_of(name).replace("#", "♯").replace("\u2028", "-")
