"""How an index keeps ids, texts and postings in bytes; whatever is read back and cannot be right is a damaged row.

Texts are kept some forty together, which deflate to two thirds of their size, where each alone would keep most of it.
Postings are six bytes each as they come, less sealed; what comes later follows the sealed ones.
"""

import contextlib
import functools
import json
import operator
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, starmap
from sqlite3 import DatabaseError
from typing import Any, ParamSpec, TypeVar

from .codes import Said

__all__ = ["BLOCK", "FEW", "POSTING", "SHRUNK", "DamagedRowError", "blocks", "checked", "checksum", "decode_text"]
__all__ += ["decoder", "encode_text", "keep", "seal", "to_id", "to_key", "unpack", "unseal"]

BLOCK = 2_600  # bytes of texts that are deflated together: three such fill a page
SHRUNK = 0.6  # what deflating leaves of them, at first
FEW = 16  # postings that take less as they came than deflated
POSTING = struct.Struct(">IH")  # a document and a code
_MOST = ord("x") << 24  # documents: none begins with the byte that what is deflated begins with

_P = ParamSpec("_P")
_R = TypeVar("_R")


class DamagedRowError(DatabaseError):
    """A row cannot be what was written, or lacks another one."""


def decoder(decode: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function that decodes what a row holds say what is wrong with the row."""

    @functools.wraps(decode)
    def checking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return decode(*args, **kwargs)
        except (zlib.error, ValueError, LookupError, TypeError, OverflowError, struct.error) as error:
            raise DamagedRowError(f"{type(error).__name__}: {error}") from error

    return checking


def checked(rows: list[Any], *kinds: tuple[type, ...]) -> list[Any]:
    """Return rows, if each column has what was written there."""
    for column, kind in zip(zip(*rows, strict=True), kinds, strict=bool(rows)):
        numbers = [*filter(None, column)] if int in kind else []
        if not {*map(type, column)} <= {*kind} or (numbers and not 0 < min(numbers) <= max(numbers) < _MOST):
            raise DamagedRowError(f"a column of {'numbers' if int in kind else 'texts'} has {column!r:.80}")
    return rows


def to_key(id: str) -> str | bytes:
    """Return an id as tables keep it: a UUID in 16 bytes, which would take 36."""
    if len(id) == 36:
        with contextlib.suppress(ValueError):
            if to_id(key := bytes.fromhex(id.replace("-", ""))) == id:
                return key
    return id


def to_id(key: str | bytes) -> str:
    """Return the id that a key is of."""
    if isinstance(key, str):
        return key
    digits = key.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def checksum(key: str | bytes) -> int:
    """Return three bytes by which a key is found, so that an index does not repeat it."""
    return (zlib.crc32(key if isinstance(key, bytes) else key.encode()) >> 8) - (1 << 23)


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_text(said: Said) -> bytes:
    """Return a document as it is kept in a block; of a unit without names its text."""
    return _to_json(said if isinstance(said, str) or said[0] else said[1]).encode("utf-8", "surrogatepass")


@decoder
def decode_text(document: int, kept: bytes) -> Said:
    """Return what a document says; see `encode_text`."""
    said = json.loads(kept.decode("utf-8", "surrogatepass"))
    if isinstance(said, str):
        return said if document & 1 else [[], said]
    names, text = said
    return [["".join(name) for name in names], "".join(text)]


def blocks(documents: Mapping[int, bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the first of some encoded documents with as many as take about `size` bytes together, and so on.

    Each is in a line; the first line has the steps between their numbers.
    """
    held, length, shrunk = dict[int, bytes](), 0, SHRUNK
    for left, (document, kept) in zip(range(len(documents) - 1, -1, -1), documents.items(), strict=True):
        held[document] = kept
        length += len(kept)
        if length * shrunk >= size or not left:
            steps = map(operator.sub, held, (0, *held))
            packed = zlib.compress(b"\n".join([_to_json([*steps]).encode(), *held.values()]))
            yield min(held), packed
            held, length, shrunk = {}, 0, len(packed) / length


@decoder
def unpack(data: bytes) -> dict[int, bytes]:
    """Return the documents of a block; see `blocks`."""
    steps, *kept = zlib.decompress(data).split(b"\n")
    return dict(zip(accumulate(json.loads(steps)), kept, strict=True))


def keep(postings: Mapping[int, int]) -> bytes:
    """Return document → code as a row keeps it: as they come where they are few, else sealed."""
    if len(postings) < FEW:
        return b"".join(starmap(POSTING.pack, postings.items()))
    return seal(0, sorted(postings), postings)


def seal(start: int, documents: Sequence[int], postings: Mapping[int, int]) -> bytes:
    """Return the postings of some documents in less space, from `start` on, which is not beyond the first document.

    That is first all low bytes of the steps between documents, then all next ones, and so on: it deflates by a third
    more than number by number.
    """
    steps = array("I", map(operator.sub, documents, (start, *documents))).tobytes()
    codes = map(postings.__getitem__, documents)
    halves = array("H", codes).tobytes()
    planes = [*(steps[at::4] for at in range(4)), halves[::2], halves[1::2]]
    return zlib.compress(b"".join(planes))


@decoder
def unseal(start: int, data: bytes) -> dict[int, int]:
    """Return document → code of a row: of those that were sealed, and of those that came later."""
    found: dict[int, int] = {}
    if data[:1] == b"x":
        stream = zlib.decompressobj()
        planes, data = stream.decompress(data), stream.unused_data
        count, rest = divmod(len(planes), 6)
        if rest or not stream.eof:
            raise ValueError("a run has half a posting")
        steps, halves = bytearray(4 * count), bytearray(2 * count)
        for at in range(4):
            steps[at::4] = planes[at * count : (at + 1) * count]
        halves[::2], halves[1::2] = planes[4 * count : 5 * count], planes[5 * count :]
        documents = accumulate(array("I", bytes(steps)), initial=operator.index(start))
        next(documents)  # `initial` comes by itself, too
        found = dict(zip(documents, array("H", bytes(halves)), strict=True))
    found.update(POSTING.iter_unpack(data))
    return found
