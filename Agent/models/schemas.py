"""What a schema allows at most: bounds for its lists and texts, and the tokens of the longest reply."""

from collections.abc import Mapping
from typing import Any

__all__ = ["bounded", "most_tokens"]

ITEMS, CHARACTERS = 16, 400
"""Bounds of lists and texts that have none: a small model under a grammar does not stop by itself."""
LONGEST = 4096
"""Tokens; services refuse to promise more."""
NUMBER_TOKENS, KEY_TOKENS, CHARACTER_TOKENS = 8, 4, 3  # of a small model that knows no Chinese, each byte is one


def bounded(schema: Any) -> Any:
    """Return a schema in which every list and every text ends.

    >>> bounded({"type": "array", "items": {"type": "string"}})
    {'maxItems': 16, 'type': 'array', 'items': {'maxLength': 400, 'type': 'string'}}
    """
    if isinstance(schema, list):
        return [bounded(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kinds, bounds = _kinds(schema), dict[str, int]()
    if "array" in kinds:
        bounds["maxItems"] = ITEMS
    if "string" in kinds and not {"enum", "const"} & schema.keys():
        bounds["maxLength"] = CHARACTERS
    return {**bounds, **{name: bounded(value) for name, value in schema.items()}}


def most_tokens(schema: Any) -> int:
    """Return how many tokens the longest reply of a schema has, roughly, at most `LONGEST`.

    >>> most_tokens({"type": "array", "items": {"type": "integer"}, "maxItems": 5})
    40
    """
    return min(_most(schema), LONGEST)


def _most(schema: Any) -> int:
    if not isinstance(schema, Mapping):
        return NUMBER_TOKENS
    choices = [each for name in ("anyOf", "oneOf", "allOf") for each in schema.get(name, ())]
    if choices:
        return max(map(_most, choices))
    if "enum" in schema or "const" in schema:
        return max(len(str(value)) for value in schema.get("enum", [schema.get("const")])) + 2
    kinds = _kinds(schema)
    most = NUMBER_TOKENS
    if "string" in kinds:
        most = max(most, CHARACTER_TOKENS * int(schema.get("maxLength", CHARACTERS)) + 2)
    if "array" in kinds:
        most = max(most, int(schema.get("maxItems", ITEMS)) * _most(schema.get("items", {})))
    if "object" in kinds:
        parts = schema.get("properties", {})
        most = max(most, sum(KEY_TOKENS + len(name) // 3 + _most(part) for name, part in parts.items()))
    return most


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else [each for each in kind or () if isinstance(each, str)]
