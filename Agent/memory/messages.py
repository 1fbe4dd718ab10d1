"""Name a value in an error, whatever it is: shortened, and however deep it is nested."""

import reprlib

__all__ = ["shorten"]

_LIMIT = 60  # characters


def shorten(value: object) -> str:
    """Return a value as an error names it.

    >>> shorten("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'"
    """
    return _writer.repr(value)


_writer = reprlib.Repr()
_writer.maxstring = _writer.maxother = _writer.maxlong = _LIMIT
