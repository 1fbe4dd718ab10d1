"""REST over a hub: a table of calls. What goes in and comes out is what the methods of `KnowHub` say of themselves.

Calls run in the thread pool of 40, of which at most `routing.POOL_SIZE` wait for a model; but a known entry with few
votes is answered in the event loop (`_get`), and `slim` has a thread of its own. See `application` for what is around.
"""

import asyncio
import inspect
import json
import re
import typing
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel

from . import answers
from .gate import PROBLEM_TYPE
from .hub import KnowHub
from .schemas import PROBLEMS, RESOURCE_ID_LIMIT, RESOURCE_ID_PATTERN, Json, KnowHubError, ResourceIn
from .services.store import asker_of
from .tokens import Token, need

try:
    from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
    from fastapi.responses import StreamingResponse
    from pydantic_core import to_json
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import StringConvertor, register_url_convertor
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install '.[knowhub]' in its repository") from error

__all__ = ["CALLS", "Who", "add_routes", "answer"]


class _KnowledgeId(StringConvertor):
    regex = "knowledge-[0-9A-Za-z-]{1,60}"


class _ProposalId(StringConvertor):
    regex = "proposal-[0-9A-Za-z-]{1,60}"


register_url_convertor("knowledge_id", _KnowledgeId())
register_url_convertor("proposal_id", _ProposalId())


class Call(NamedTuple):
    """One call of the API."""

    method: str
    path: str
    name: str
    """What the document and generated clients call it."""
    does: str
    """The method of `KnowHub`."""
    status: int = 200
    also: tuple[int, ...] = ()
    """Statuses that only some calls have."""


_KNOWLEDGE, _PROPOSAL, _RESOURCE, _GOALS = "/api/knowledge", "/api/proposal", "/api/resource", "/api/trace/{id}/goals"
_ENTRY, _ONE_PROPOSAL = _KNOWLEDGE + "/{id:knowledge_id}", _PROPOSAL + "/{id:proposal_id}"

CALLS = (
    Call("GET", f"{_KNOWLEDGE}/search", "knowledge_search", "search"),
    Call("GET", _KNOWLEDGE, "list_knowledge", "list_knowledge"),
    Call("POST", _KNOWLEDGE, "save_knowledge", "save", 201),
    Call("POST", f"{_KNOWLEDGE}/batch_update", "batch_update_knowledge", "batch_update"),
    Call("POST", f"{_KNOWLEDGE}/slim", "slim_knowledge", "slim"),
    Call("GET", _ENTRY, "get_knowledge", "get"),
    Call("PUT", _ENTRY, "update_knowledge", "update"),
    Call("PATCH", _ENTRY, "patch_knowledge", "patch", also=(412, 428)),
    Call("DELETE", _ENTRY, "delete_knowledge", "delete", also=(412, 428)),
    Call("GET", f"{_ENTRY}/history", "knowledge_history", "history"),
    Call("GET", f"{_ENTRY}/feedback", "knowledge_feedback", "feedback"),
    Call("GET", _PROPOSAL, "list_proposals", "proposals"),
    Call("POST", f"{_ONE_PROPOSAL}/accept", "accept_proposal", "accept"),
    Call("POST", f"{_ONE_PROPOSAL}/reject", "reject_proposal", "reject", also=(412,)),
    Call("GET", _RESOURCE, "list_resources", "list_resources"),
    Call("GET", f"{_RESOURCE}/{{id:path}}", "get_resource", "get_resource"),
    Call("PUT", f"{_RESOURCE}/{{id:path}}", "put_resource", "put_resource", also=(201, 412, 428)),
    Call("DELETE", f"{_RESOURCE}/{{id:path}}", "delete_resource", "delete_resource", also=(412, 428)),
    Call("GET", "/api/secret/{id:path}", "get_secret", "reveal", also=(410,)),
    Call("GET", "/api/access", "list_accesses", "accesses"),
    Call("GET", "/api/operation", "list_operations", "operations"),
    Call("POST", "/api/operation/{id}/undo", "undo_operation", "undo"),
    Call("GET", _GOALS, "get_goals", "get_goals"),
    Call("PUT", _GOALS, "put_goals", "put_goals"),
    Call("DELETE", _GOALS, "delete_goals", "delete_goals"),
    Call("GET", "/api/me", "get_me", "me"),
    Call("GET", "/api/token", "list_tokens", "list_tokens"),
    Call("POST", "/api/token", "make_token", "make_token", 201),
    Call("DELETE", "/api/token/{id}", "revoke_token", "revoke_token"),
    Call("GET", "/api/group", "list_groups", "list_groups"),
    Call("PUT", "/api/group/{id}", "put_group", "put_group"),
    Call("GET", "/api/export", "export", "export"),
    Call("POST", "/api/import", "take_in", "take_in"),
)


async def _who(request: Request) -> Token:  # not sync: that would be a thread of its own for each request
    token = request.state.token
    if not isinstance(token, Token):
        raise KnowHubError("unauthenticated", "send `Authorization: Bearer kh_…`; `knowhub token` makes one")
    return token


Who = Annotated[Token, Depends(_who)]
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="of the caller's choice: the same request once more gets the first answer",
    ),
]
_TAG = r'(W/)?"?[0-9]{1,15}"?'
_IF_MATCH = rf"^(\*|{_TAG}(, ?{_TAG}){{0,19}})$"
_IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", pattern=_IF_MATCH, description='the ETag that was seen, as `"3"`, several, or `*`'),
]
_RESOURCE_ID = Path(max_length=RESOURCE_ID_LIMIT, pattern=RESOURCE_ID_PATTERN, examples=["credentials/website_a"])
_IDS = {
    "knowledge": Path(pattern=rf"^{_KnowledgeId.regex}$", examples=["knowledge-20260305-a1b2"]),
    "proposal": Path(pattern=rf"^{_ProposalId.regex}$"),
    "resource": _RESOURCE_ID,
    "secret": _RESOURCE_ID,
    "operation": Path(max_length=100),
    "trace": Path(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$"),
    "token": Path(pattern="^[0-9a-f]{64}$"),
    "group": Path(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$"),
}
"""The form of an id, by what the path is of."""


# Forms that all answers have


def answer(data: Any, status: int = 200, version: int | None = None) -> Response:
    """Return data as JSON, with its version as ETag."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    return Response(to_json(data), status, headers, "application/json")


_EVERYWHERE = (400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 429, 431, 500, 503, 507)
_VERSIONED: dict[Any, str] = {  # answers with an ETag, and what in them has the version
    **dict.fromkeys([answers.EntryOut, answers.ResourceOut], ""),
    **dict.fromkeys([answers.SavedOut, answers.UpdatedOut, answers.ChangedOut], "entry"),
    answers.KeptOut: "resource",
}


def _described(call: Call, model: Any) -> Json:
    """Return what the document says of a call: its answers, and that it needs a token."""
    titles = dict(reversed(list(PROBLEMS.values())))
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
    statuses = sorted({*_EVERYWHERE, *call.also} - {201})
    described: dict[int | str, Json] = {code: {"description": titles[code], "content": content} for code in statuses}
    good: Json = {"model": model, "description": inspect.getdoc(model)}
    if model in _VERSIONED:
        good["headers"] = {"ETag": {"description": "the version, for If-Match", "schema": {"type": "string"}}}
    if call.does == "export":
        lines = {"schema": {"type": "string"}}  # as text, too, for generated clients: they cannot read the other type
        good = {"description": "JSON lines", "content": {"application/x-ndjson": lines, "text/plain": lines}}
    described |= {status: good for status in (call.status, *call.also) if status < 300}
    return {"responses": described, "openapi_extra": {"security": [{"token": []}]}, "status_code": call.status}


# Routes


def add_routes(api: FastAPI, hub: KnowHub) -> None:
    """Add all calls to an application."""
    for call in CALLS:
        does = getattr(hub, call.does)
        function = _SPECIAL.get(call.does, _make)(hub, call)
        function.__doc__ = str(inspect.getdoc(does)).split("\n\n")[0].split("  Cost: ")[0]
        described = _described(call, typing.get_type_hints(does)["return"])
        # The class keeps FastAPI from naming JSON as a third type of the export.
        kind: Json = {"response_class": StreamingResponse} if call.does == "export" else {}
        api.add_api_route(call.path, function, methods=[call.method], name=call.name, **described, **kind)


def _make(hub: KnowHub, call: Call) -> Callable[..., Any]:
    """Return the function of a call: its parameters are those of the hub's method."""
    does = getattr(hub, call.does)
    parameters, place = _parameters(call, does), _VERSIONED.get(typing.get_type_hints(does)["return"])
    own_names = dict(zip((each.name for each in parameters), inspect.signature(does).parameters, strict=True))

    def function(**given: Any) -> Response:
        if "version" in given:
            reader = hub.get if call.path.startswith(_KNOWLEDGE) else hub.get_resource
            given["version"] = _read_version(given["version"], lambda: reader(given["token"], given["id"])["version"])
        # What is not given has the method's own default.
        made = getattr(hub, call.does)(**{own_names[name]: value for name, value in given.items() if value is not None})
        if place is None:
            return answer(made, call.status)
        versioned = made[place] if place else made
        return answer(made, call.status, versioned["version"])

    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _parameters(call: Call, does: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return what FastAPI is to read of a request: the body or the query, the headers, the id of the path."""
    hints, kind = typing.get_type_hints(does), call.path.split("/")[2]
    found: list[inspect.Parameter] = []
    for name, given in inspect.signature(does).parameters.items():
        models = [
            each for each in typing.get_args(hints[name]) if isinstance(each, type) and issubclass(each, BaseModel)
        ]
        default: Any = given.empty
        if name == "token":
            hint: Any = Who
        elif name in ("version", "key"):
            hint, default = (_IfMatch if name == "version" else _Key), None
        elif models and call.method == "GET":
            hint = Annotated[models[0], Query()]
        elif models:
            # No request merges entries without saying so.
            is_needed = given.default is given.empty or call.does == "slim"
            hint, default = (models[0], default) if is_needed else (models[0] | None, None)
        else:
            name, hint = "id", Annotated[str, _IDS[kind]]
        found.append(inspect.Parameter(name, given.KEYWORD_ONLY, default=default, annotation=hint))
    return found


def _read_version(if_match: str | None, newest: Callable[[], int]) -> int | None:
    """Return the version that If-Match names; None is any. Of several it is the newest, where that is among them.

    A proxy that compresses makes a strong tag weak: both name a version here.

    Raises:
        KnowHubError: `version-needed` where it is missing.
    """
    if if_match is None:
        raise KnowHubError("version-needed", "If-Match must name the version that was seen, as its ETag does")
    named = [int(found) for found in re.findall("[0-9]+", if_match)]
    return None if not named else named[0] if len(named) == 1 else next((v for v in [newest()] if v in named), named[0])


# The calls that are not a method's plain call


_FEW_VOTES = 20
"""An entry with so many takes longer than a thread's turn."""


def _get(hub: KnowHub, call: Call) -> Callable[..., Any]:
    async def get_knowledge(id: Annotated[str, _IDS["knowledge"]], token: Who) -> Response:
        # What is known is answered from memory, without a thread.
        is_here = hub.catalog.is_fresh() and hub.catalog.get(id) is not None and not hub.tokens.files.is_remote
        is_quick = is_here and sum(hub.catalog.votes(id)) < _FEW_VOTES
        entry = hub.get(token, id) if is_quick else await run_in_threadpool(hub.get, token, id)
        return answer(entry, version=entry["version"])

    return get_knowledge


def _slim(hub: KnowHub, call: Call) -> Callable[..., Any]:
    slimming = ThreadPoolExecutor(1, "KnowHub slim")  # it may take minutes, and must hold no thread that writes need
    slim = _make(hub, call)

    async def slim_knowledge(**given: Any) -> Response:
        need(given["token"], "curate")
        return await asyncio.get_running_loop().run_in_executor(slimming, lambda: slim(**given))

    slim_knowledge.__signature__ = inspect.signature(slim)  # type: ignore[attr-defined]
    return slim_knowledge


def _put_resource(hub: KnowHub, call: Call) -> Callable[..., Any]:
    def put_resource(
        id: Annotated[str, _RESOURCE_ID], body: ResourceIn, token: Who, key: _Key = None, if_match: _IfMatch = None
    ) -> Response:
        def newest() -> int:
            return hub.get_resource(token, id)["version"]

        version = None if if_match is None else _read_version(if_match, newest)
        if version is None and if_match is not None:
            version = newest()
        made = hub.put_resource(token, id, body, version, key or "")
        version = made["resource"]["version"]
        return answer(made, 201 if version == 1 else 200, version)

    return put_resource


EXPORTS = 2
"""Exports of one caller at once."""


def _export(hub: KnowHub, call: Call) -> Callable[..., Any]:
    running = Counter[str]()

    async def export(request: Request, token: Who) -> Response:
        need(token, "read")
        if running[asker_of(token)] >= EXPORTS:
            raise KnowHubError("too-many-requests", f"{EXPORTS} exports at once", retry_after_s=5.0)
        is_text = request.headers.get("accept", "").startswith("text/plain")
        media_type = "text/plain" if is_text else "application/x-ndjson"
        return StreamingResponse(_in_blocks(hub, token, running), media_type=media_type)

    return export


BLOCK_SIZE = 64 * 1024


async def _in_blocks(hub: KnowHub, token: Token, running: Counter[str]) -> AsyncIterator[str]:
    """Write lines of JSON, many at once, since each block costs a change of threads; end with the token."""
    found, is_more = hub.export(token), True

    def read() -> str:
        nonlocal is_more
        lines, size = list[str](), 0
        while size < BLOCK_SIZE and (line := next(found, None)) is not None:
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
            size += len(lines[-1])
        is_more = size >= BLOCK_SIZE
        return "".join(lines)

    running[asker_of(token)] += 1
    try:
        while is_more and hub.tokens.is_good(token):
            yield await run_in_threadpool(read)
    finally:
        running[asker_of(token)] -= 1


_SPECIAL: dict[str, Callable[[KnowHub, Call], Callable[..., Any]]] = {
    "get": _get, "slim": _slim, "put_resource": _put_resource, "export": _export,
}  # fmt: skip
