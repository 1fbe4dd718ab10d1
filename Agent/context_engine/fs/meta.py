"""`.meta.json`, and how to tell that a node is whole: the digests in it fit its files.

    {"format": 1, "uri": …, "version": 3, "sequence": 17, "type": "memory", "category": "preferences",
     "owner_space": "user:ada", "title": "tea", "aliases": [], "confirmed": [], "created_at": "2026-11-22T08:00:00Z",
     "updated_at": …, "source_refs": [{"archive": …, "message": …}], "digests": {"content.md": …}, "metadata": {}}

Edited values are taken where their type is right; for others a node has the defaults of its URI.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.checks import shorten
from ...base.text import digest_of, file_digest, mapping_of, merge_unique, read_time, strings_of, time_of, to_json
from ..core.config import FILES, LEVELS, META, context_type_of
from ..core.errors import InvalidInputError, NodeNotFoundError, StoreCorruptError, VersionConflictError
from ..core.objects import RelationEdge
from .folders import Image
from .uri import Uri

FORMAT = 1


@dataclass
class Staged:
    """A node as a transaction has it: its files without the metadata, and the metadata."""

    files: Image
    meta: dict[str, Any]


def staged_of(uri: Uri, image: Image) -> Staged:
    """Return the node that some files make; `NodeNotFoundError` says that they make none: metadata alone is none."""
    if not image.keys() - {META}:
        raise NodeNotFoundError(uri.text)
    return Staged({name: data for name, data in image.items() if name != META}, read_meta(uri, image))


def _load(data: bytes) -> dict[str, Any]:
    try:
        # Of what the engine wrote the encoding need not be guessed, which takes a third of the time.
        held = json.loads(data.decode() if data.startswith(b"{\n") else data)
    except (ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def digests_of(image: Image) -> dict[str, str]:
    """Return the digests of a node's files, but for the metadata."""
    return {name: file_digest(image[name]) for name in FILES if name in image and name != META}


def is_whole(image: Image) -> bool:
    """Whether the files of a node fit the digests in its metadata, which is one of them."""
    return _load(image.get(META, b"")).get("digests") == digests_of(image)


def state_of(image: Image) -> str:
    """Return a digest of all of a node's files; "" for none."""
    parts = [part for name in FILES if name in image for part in (name, image[name])]
    return digest_of(*parts) if parts else ""


def read_meta(uri: Uri, image: Image) -> dict[str, Any]:
    """Return a node's metadata, every field of its type, whatever the file holds."""
    held = _load(image.get(META, b""))
    whole = {name: value if isinstance(value, int) and 0 < value < 1 << 53 else 0 for name in ("version", "sequence")
             for value in [held.get(name)]}  # fmt: skip
    return {
        **whole,
        "type": held["type"] if isinstance(held.get("type"), str) else context_type_of(uri.category),
        "category": held["category"] if isinstance(held.get("category"), str) else uri.category,
        "title": held["title"] if isinstance(held.get("title"), str) and held["title"] else uri.name,
        "aliases": strings_of(held.get("aliases")),
        "confirmed": strings_of(held.get("confirmed")),
        "created_at": read_time(held.get("created_at")) or 0.0,
        "updated_at": read_time(held.get("updated_at")) or read_time(held.get("created_at")) or 0.0,
        "source_refs": [
            {name: ref[name] for name in ("archive", "message") if isinstance(ref.get(name), str)}
            for ref in held.get("source_refs") or ()
            if isinstance(ref, dict)
        ]
        if isinstance(held.get("source_refs"), list)
        else [],
        "digests": mapping_of(held.get("digests")),
        "metadata": mapping_of(held.get("metadata")),
    }


def write_meta(uri: Uri, meta: dict[str, Any], image: Image) -> bytes:
    """Return the metadata file of a node whose other files are in `image`; `InvalidInputError` if it is no JSON."""
    times = {name: time_of(meta[name]) for name in ("created_at", "updated_at")}
    made = {"format": FORMAT, "uri": uri.text, "owner_space": uri.owner_space, "digests": digests_of(image), **times}
    row = {name: made[name] if name in made else meta[name] for name in _FIELDS}
    try:
        return to_json(row, indent=1).encode("utf-8", "replace") + b"\n"
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"metadata of {uri.text!r} is no JSON: {error}") from error


def read_edges(uri: str, data: bytes) -> list[RelationEdge]:
    """Return the edges of a file; invalid rows are skipped."""
    try:
        rows = json.loads(data or b"[]")
    except (ValueError, RecursionError):
        return []
    found = []
    for row in rows if isinstance(rows, list) else ():
        row = mapping_of(row)
        to, kind, weight = row.get("to_uri"), row.get("relation_type"), row.get("weight")
        if isinstance(to, str) and isinstance(kind, str):
            weight = float(weight) if isinstance(weight, (int, float)) and not isinstance(weight, bool) else 1.0
            found.append(RelationEdge(uri, to, kind, str(row.get("reason") or ""), weight))
    return found


def write_edges(edges: list[RelationEdge]) -> bytes:
    """Return the file of some edges, one a line, for readable diffs."""
    names = ("to_uri", "relation_type", "reason", "weight")
    rows = [to_json({name: getattr(edge, name) for name in names}) for edge in edges]
    return ("[" + ",\n ".join(rows) + "]\n").encode("utf-8", "replace")


_FIELDS = (
    "format", "uri", "version", "sequence", "type", "category", "owner_space", "title", "aliases", "confirmed",
    "created_at", "updated_at", "source_refs", "digests", "metadata",
)  # fmt: skip


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
    """Return the text of one of a node's files; `StoreCorruptError` says that it is no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StoreCorruptError(f"{name} of {uri.text!r} is no UTF-8 (byte {error.start})") from error


def check_version(uri: Uri, metadata: Mapping[str, Any], present: Staged | None) -> None:
    """Refuse to overwrite another version than the caller has read, or other files of the same version."""
    expected = metadata.get("version")
    if expected is None:
        return
    current = present.meta["version"] if present else 0
    digests = metadata.get("digests")
    if expected != current or (digests is not None and present and digests != digests_of(present.files)):
        raise VersionConflictError(uri.text, expected, current)


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (list, tuple)) and all(isinstance(each, kind) for each in value)


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

    def take(name: str, kind: str, is_right: Callable[[Any], bool], make: Callable[[Any], Any]) -> None:
        if name in metadata:
            if not is_right(metadata[name]):
                raise InvalidInputError(f"{name} must be {kind}, not {shorten(metadata[name])}")
            fields[name] = make(metadata[name])

    take("title", "a text", lambda title: isinstance(title, str) and bool(title.strip()), str)
    for name in ("aliases", "confirmed"):
        take(name, "a list of strings", _is_list_of(str), lambda texts: list(dict.fromkeys(texts)))
    take("source_refs", "a list of objects", _is_list_of(Mapping), lambda refs: merge_unique(map(mapping_of, refs)))
    take("metadata", "an object", lambda own: isinstance(own, Mapping), dict)
    for name in ("type", "category"):
        if isinstance(metadata.get(name), str):
            fields[name] = metadata[name]
    if isinstance(metadata.get("created_at"), (int, float)) and metadata["created_at"]:
        fields["created_at"] = float(metadata["created_at"])
    return fields
