"""What every door passes what it was given through: the right, the form of a body, refusals that repeat nothing.

>>> from .schemas import SearchQuery
>>> parse(SearchQuery, {"q": "tea", "top_k": 99})  # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
Agent.knowhub.schemas.KnowHubError: /top_k: Input should be less than or equal to 50
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from .schemas import RESOURCE_ID_LIMIT, RESOURCE_ID_PATTERN, Body, KnowHubError, invalid
from .tokens import Token

__all__ = ["check_resource_id", "is_text", "need", "parse", "problem_of"]

_RESOURCE_ID = re.compile(RESOURCE_ID_PATTERN).fullmatch

_Body = TypeVar("_Body", bound=BaseModel)


def need(token: Token, right: str) -> None:
    """Refuse a token that does not have a right.

    Raises:
        KnowHubError: `forbidden`.
    """
    if not token.may(right):
        raise KnowHubError("forbidden", f"the token does not have the right `{right}`")


def parse(model: type[_Body], value: _Body | Mapping[str, Any]) -> _Body:
    """Return a body as its model has it.

    Raises:
        KnowHubError: `invalid`, with a pointer to each field.
    """
    if isinstance(value, model):
        return value
    try:
        return model.model_validate(value.model_dump() if isinstance(value, BaseModel) else dict(value))
    except ValidationError as error:
        raise problem_of(error.errors(include_input=False, include_url=False)) from None
    except RecursionError:
        raise invalid("", "it is too deep") from None


def problem_of(errors: Sequence[Any], skip: int = 0) -> KnowHubError:
    """Return what is wrong, field by field; nothing that was said is repeated, not even the name of a field.

    Args:
        errors: As pydantic lists them.
        skip: So many steps of each place are not the body's.
    """
    listed = []
    for error in errors[:50]:
        place = [str(step) for step in error["loc"][skip:]]
        detail = str(error["msg"])
        if error["type"] == "extra_forbidden":
            name, place = place[-1], place[:-1]
            is_name = re.fullmatch(r"[a-z_]{1,30}", name) is not None  # all else may be what was to be kept secret
            detail = f"the field {name} is not known" if is_name else "it has a field that is not known"
        elif "ctx" in error and error["type"] not in _HARMLESS:
            detail = _DETAILS.get(error["type"], "it is not valid")
        if "[key]" in place:  # the name of a tag, say
            place = place[: max(0, place.index("[key]") - 1)]
        pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in place if _is_ours(step))
        listed.append({"pointer": pointer, "detail": detail.removeprefix("Value error, ")})
    first = listed[0] if listed else {"pointer": "", "detail": "it is not valid"}
    return KnowHubError("invalid", f"{first['pointer'] or 'the request'}: {first['detail']}", listed)


_HARMLESS = frozenset(["string_too_long", "string_too_short", "greater_than_equal", "less_than_equal", "too_long"])
_HARMLESS |= {"too_short", "literal_error", "value_error", "string_pattern_mismatch", "int_parsing"}
_DETAILS = {"json_invalid": "it is not JSON", "datetime_from_date_parsing": "it is no time in ISO 8601"}


def _all(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for each in model.__subclasses__():
        yield from _all(each)


_FIELDS = frozenset(name for model in _all(Body) for name in model.model_fields)
_FIELDS |= {"If-Match", "Idempotency-Key"}


def _is_ours(step: str) -> bool:
    """Return whether a step of a place is the name of a field or an index: all else came from outside."""
    return step in _FIELDS or step.isdecimal()


def check_resource_id(id: str) -> None:
    """Refuse what is no id of a resource.

    Raises:
        KnowHubError: `invalid`.
    """
    if not isinstance(id, str) or len(id) > RESOURCE_ID_LIMIT or _RESOURCE_ID(id) is None:
        raise invalid("/id", "1 to 8 segments of letters, digits, `._-`, none of dots alone, 200 characters at most")


def is_text(value: object, limit: float = math.inf) -> bool:
    """Return whether a value is a text that can be stored: not blank, not too long, of whole characters."""
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        return False
    return not any("\ud800" <= char <= "\udfff" for char in value)
