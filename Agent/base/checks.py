"""Check an argument, and name a value in an error, whatever it is: shortened, and however deep it is nested."""

import re
import reprlib
import socket
from collections.abc import Iterable, Mapping

from ..keyword_tree import InvalidInputError

is_uuid = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){4}[0-9a-f]{8}").fullmatch
_LIMIT = 60  # characters


def shorten(value: object) -> str:
    """Return a value as an error names it.

    >>> shorten("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxx'"
    """
    return _writer.repr(value)


def check_count(what: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number, or below `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInputError(f"{what} must be a whole number and not below {least}, not {shorten(value)}")


def check_string(what: str, value: object) -> str:
    """Return a string; a list, say, cannot even be looked for."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{what} must be a string, not {shorten(value)}")
    return value


def check_strings(what: str, values: object) -> list[str]:
    """Return a list of strings; of a single string, each character would be one."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInputError(f"{what} must be a list of strings, not {shorten(values)}")
    return [check_string(f"{what}[{place}]", value) for place, value in enumerate(values)]


def check_methods(what: str, value: object, *methods: str) -> None:
    """Refuse an object that has none of some methods; None stands for no object."""
    if value is not None and not any(callable(getattr(value, method, None)) for method in methods):
        raise InvalidInputError(f"{what} must be an object with a method {' or '.join(methods)}, not {shorten(value)}")


def check_free(host: str, port: int) -> None:
    """Refuse a port that cannot be listened on, such as one of another program; 0 is any free one."""
    if not 0 <= port <= 65_535:
        raise InvalidInputError(f"there is no port {port}: the last one is 65535")
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise InvalidInputError(f"{host}:{port} cannot be had ({reason}): choose another port") from error


def depth_of(value: object) -> int:
    """Return how many levels of lists and objects a value has, 0 for a number; some hundreds are a `RecursionError`."""
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else None
    return 0 if held is None else 1 + max(map(depth_of, held), default=0)


_writer = reprlib.Repr()
_writer.maxstring = _writer.maxother = _writer.maxlong = _LIMIT
