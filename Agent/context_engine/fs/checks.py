"""Checks of what callers hand in: levels, texts, versions, metadata."""

from collections.abc import Mapping
from typing import Any

from ..core.config import LEVELS
from ..core.errors import InvalidInputError, StoreCorruptError, VersionConflictError
from ..core.text import mapping_of, merge_unique, shorten, strings_of
from .meta import digests_of
from .transaction import Staged
from .uri import Uri

__all__ = ["check_meta", "check_version", "decode", "encode", "file_of"]


_FIELDS = {
    "format", "uri", "version", "sequence", "type", "category", "owner_space", "title", "aliases", "confirmed",
    "created_at", "updated_at", "source_refs", "digests", "metadata",
}  # fmt: skip


def file_of(level: str) -> str:
    """Return the file of a level: `"L0"`, `"L1"` or `"L2"`."""
    if not isinstance(level, str) or level not in LEVELS:
        raise InvalidInputError(f"level must be one of {', '.join(LEVELS)}, not {shorten(level)}")
    return LEVELS[level]


def encode(uri: Uri, name: str, text: str) -> bytes:
    """Return the bytes of one of a node's files."""
    if not isinstance(text, str):
        raise InvalidInputError(f"{name} of {uri.text!r} must be a string, not {shorten(text)}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name} of {uri.text!r} holds half a character: {error}") from error


def decode(uri: Uri, name: str, data: bytes) -> str:
    """Return the text of one of a node's files.

    Raises:
        StoreCorruptError: It is no UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StoreCorruptError(f"{name} of {uri.text!r} is no UTF-8 (byte {error.start})") from error


def check_version(uri: Uri, metadata: Mapping[str, Any], present: Staged | None) -> None:
    """Refuse to write over what the caller has not seen: another version, or other files of the same one."""
    expected = metadata.get("version")
    if expected is None:
        return
    current = (present.meta or {})["version"] if present else 0
    digests = metadata.get("digests")
    if expected != current or (digests is not None and present and digests != digests_of(present.files)):
        raise VersionConflictError(uri.text, expected, current)


def check_meta(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a node's metadata that a caller may set."""
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata must be an object, not {shorten(metadata)}")
    unknown = [name for name in metadata if name not in _FIELDS]
    if unknown:
        raise InvalidInputError(
            f"metadata has no field {shorten(unknown[0])}: what is the caller's own goes into `metadata`"
        )
    fields: dict[str, Any] = {}
    if "title" in metadata:
        if not isinstance(metadata["title"], str) or not metadata["title"].strip():
            raise InvalidInputError(f"title must be a text, not {shorten(metadata['title'])}")
        fields["title"] = metadata["title"]
    for name in ("aliases", "confirmed"):
        if name in metadata:
            if not isinstance(metadata[name], (list, tuple)) or strings_of(metadata[name]) != list(metadata[name]):
                raise InvalidInputError(f"{name} must be a list of strings, not {shorten(metadata[name])}")
            fields[name] = list(dict.fromkeys(metadata[name]))
    if "source_refs" in metadata:
        refs = metadata["source_refs"]
        if not isinstance(refs, (list, tuple)) or not all(isinstance(ref, Mapping) for ref in refs):
            raise InvalidInputError(f"source_refs must be a list of objects, not {shorten(refs)}")
        fields["source_refs"] = merge_unique(mapping_of(ref) for ref in refs)
    if "metadata" in metadata:
        if not isinstance(metadata["metadata"], Mapping):
            raise InvalidInputError(f"metadata must be an object, not {shorten(metadata['metadata'])}")
        fields["metadata"] = dict(metadata["metadata"])
    for name in ("type", "category"):
        if isinstance(metadata.get(name), str):
            fields[name] = metadata[name]
    if isinstance(metadata.get("created_at"), (int, float)) and metadata["created_at"]:
        fields["created_at"] = float(metadata["created_at"])
    return fields
