"""REST over a hub: a line for each call, named as the document names it, or a function where it does more.

Calls run in 40 threads, of which at most `routing.POOL_SIZE` wait for a model, and one merges. Saves and
judgements that wait at the same time share a thread and a sync. See `application` for what is around.
"""

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Body, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, create_model
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

from . import answers, schemas
from .gate import PROBLEM_TYPE
from .hub import KnowHub
from .ledger import result_of
from .records import PROBLEMS, Json, KnowHubError, invalid
from .schemas import GROUP_PATTERN, RESOURCE_ID_LIMIT, RESOURCE_ID_PATTERN, TRACE_PATTERN
from .services.store import Call
from .tokens import Token, need


class _KnowledgeId(StringConvertor):
    regex = "knowledge-[0-9A-Za-z-]{1,60}"


class _ProposalId(StringConvertor):
    regex = "proposal-[0-9A-Za-z-]{1,60}"


register_url_convertor("knowledge_id", _KnowledgeId())
register_url_convertor("proposal_id", _ProposalId())


_IDS: dict[str, Any] = {
    "knowledge": Annotated[str, Path(pattern=rf"^{_KnowledgeId.regex}$", examples=["knowledge-20260305-a1b2"])],
    "proposal": Annotated[str, Path(pattern=rf"^{_ProposalId.regex}$")],
    "operation": Annotated[str, Path(max_length=100)],
    "token": Annotated[str, Path(pattern="^[0-9a-f]{64}$")],
}
"""The ids of a path's second step."""
_RESOURCE_ID = Path(max_length=RESOURCE_ID_LIMIT, pattern=RESOURCE_ID_PATTERN, examples=["credentials/website_a"])
_IDS |= dict.fromkeys(("resource", "secret"), Annotated[str, _RESOURCE_ID])
_IDS["trace"] = Annotated[str, Path(pattern=TRACE_PATTERN)]
_IDS["group"] = Annotated[str, Path(max_length=100, pattern=GROUP_PATTERN)]
_KEY = Header(
    alias="Idempotency-Key",
    pattern=r"^[\x21-\x7e]{1,200}$",
    description="of the caller's choice: the same request once more gets the first answer",
    default_factory=str,  # "" is none; the document shows no default then, which the pattern would refuse
)
_VERSION = Header(
    alias="If-Match",
    pattern=r'^(\*|(W/)?"?[1-9][0-9]{0,14}"?)$',
    description='the ETag that was seen, as `"3"`, or `*`',
    default_factory=str,
)
_NAMES = {b"idempotency-key": "Idempotency-Key", b"if-match": "If-Match"}
_HEADERS: dict[str, Any] = {"key": Annotated[str, _KEY], "version": Annotated[str, _VERSION]}


# Forms that all answers have


def answer(data: Any, status: int = 200, version: int | None = None) -> Response:
    """Return data as JSON, with its version as ETag."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    return Response(to_json(data), status, headers, "application/json")


class CallsTogether:
    """Makes calls that wait at the same time in one hop to a thread, and by one sync."""

    def __init__(self, hub: KnowHub) -> None:
        self._hub, self._lock, self.loop = hub, asyncio.Lock(), asyncio.get_running_loop()
        self._calls = list[Call]()  # of the next hop
        self._hop: asyncio.Task[list[Any]]

    async def make(self, call: Call) -> Any:
        """Return what a call returns, or raise its error."""
        self._calls.append(call)
        place = len(self._calls) - 1
        if not place:
            self._hop = asyncio.create_task(self._work())
        return result_of((await asyncio.shield(self._hop))[place])  # a caller may go, the others stay

    async def _work(self) -> list[Any]:
        async with self._lock:
            calls, self._calls = self._calls, []
            return await self.loop.run_in_executor(None, self._hub.together, calls)


_PARTS: dict[str, Callable[..., Call]] = {"update_knowledge": KnowHub.updating, "save_knowledge": KnowHub.saving}


class CallRoute(APIRoute):
    """A route whose parameters one model of pydantic reads, by the function's signature, as FastAPI documents it.

    FastAPI's own reading takes as long as many a call; so do its layers around that, which nothing here needs.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.app = self._make_app()

    def _make_app(self) -> ASGIApp:
        types = {each.name: each.annotation for each in inspect.signature(self.endpoint).parameters.values()}
        del types["request"]
        # Under names that no pointer to what is wrong shows.
        names = {name: f"the_{name}" if name in ("body", "query") else name for name in types}
        reads: type[BaseModel] = create_model("Call", **{names[name]: types[name] for name in types})

        def parameters_of(request: Request, body: bytes) -> Json:
            given: Json = {**request.path_params}
            headers = dict(request.scope["headers"])
            given |= {name: headers[key].decode("latin-1") for key, name in _NAMES.items() if key in headers}
            if "query" in types:
                given["the_query"] = dict(request.query_params)
            if "body" in types and body:
                given["the_body"] = _json_of(headers, body)
            read = schemas.parse(reads, given)
            return {name: getattr(read, names[name]) for name in types}

        def work(request: Request, body: bytes) -> Any:
            return self.endpoint(request, **parameters_of(request, body))

        part: Any = _PARTS.get(self.name)

        def begin(request: Request, body: bytes) -> Call:
            given = parameters_of(request, body)
            is_judged = isinstance(given["body"], schemas.KnowledgeUpdate)
            if is_judged and given["body"].model_fields_set not in ({"add_helpful_case"}, {"add_harmful_case"}):
                return None  # it waits for a model, or for a sync of its own: the others would wait for it
            made = yield from part(request.app.hub, request.state.token, **given)
            return answer(made, self.status_code or 200, made["entry"]["version"])

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            body = await request.body() if "body" in types else b""
            together, loop = request.app.together if part else None, asyncio.get_running_loop()
            # Two servers may have one application.
            response: Any = await together.make(begin(request, body)) if together and together.loop is loop else None
            if response is None:  # Starlette's threads take three times as long to hand a call over
                response = await loop.run_in_executor(None, work, request, body)
            await response(scope, receive, send)

        return app


def _json_of(headers: dict[bytes, bytes], body: bytes) -> Any:
    """Return what a body says."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if not kind.startswith(b"application/") or not kind.endswith((b"/json", b"+json")):
        raise invalid("", "its Content-Type must be application/json")
    try:
        return json.loads(body)
    except (RecursionError, ValueError) as error:
        raise invalid("", "it is not JSON" if isinstance(error, ValueError) else "it is too deep") from None


_LINES = {"schema": {"type": "string"}}  # as text, too, for generated clients: they cannot read the other type
_TAGGED = {"ETag": {"description": "the version, for If-Match", "schema": {"type": "string"}}}
_PROBLEM = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
router = APIRouter(
    route_class=CallRoute,
    responses={status: {"description": title, "content": _PROBLEM} for status, title in reversed([*PROBLEMS.values()])},
    generate_unique_id_function=lambda route: route.name,  # what generated clients call the functions
)


def _call(
    method: str, path: str, model: Any, *, status: int = 200, also: int = 0, has_tag: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a route: what it answers is documented, and sent as it is.

    Args:
        method: Of HTTP.
        path: With its parameters.
        model: The form of a good answer; None is JSON lines.
        status: Of a good answer.
        also: The status of another good answer.
        has_tag: Whether an answer has the version as its ETag.
    """
    says = "As the page of KnowHub says" if model is Json else inspect.getdoc(model)
    good: Json = {"model": model, "description": says} | ({"headers": _TAGGED} if has_tag else {})
    if model is None:
        good = {"description": "JSON lines", "content": {"application/x-ndjson": _LINES, "text/plain": _LINES}}
    # The class keeps FastAPI from naming JSON as a third type of the export.
    kind: Json = {"response_class": StreamingResponse} if model is None else {}
    secured: Json = {"security": [{"token": []}]}
    return router.api_route(
        path,
        methods=[method],
        status_code=status,
        responses={code: good for code in (status, also) if code},
        openapi_extra=secured,
        response_model=None,
        **kind,
    )


def _version_of(if_match: str, *, is_needed: bool) -> int | None:
    """Return the version that If-Match names; 0 is any.

    A proxy that compresses makes a strong tag weak: both name a version here.

    Raises:
        KnowHubError: `version-needed` where it is missing.
    """
    if not if_match and is_needed:
        raise KnowHubError("version-needed", "If-Match must name the version that was seen, as its ETag does")
    return int(if_match.strip('W/"').replace("*", "0")) if if_match else None


def _parameter_of(given: inspect.Parameter, path: str) -> tuple[str, Any]:
    """Return the name and the type of a call's parameter, of one of a hub's method: an id, a body, a query."""
    if given.name in _HEADERS:
        return given.name, _HEADERS[given.name]
    if given.annotation is str:
        return "id", _IDS[path.split("/")[2]]
    model = get_args(given.annotation)[0]  # the other one is a dict
    if given.name == "query":
        return "query", Annotated[model, Query()]
    return "body", model if given.default is given.empty else Annotated[model, Body(default_factory=model)]


def _pass_on(
    method: str, path: str, name: str, act: Callable[..., Json], model: Any, *, status: int = 200, also: int = 0
) -> None:
    """Add a call that passes its parameters to a method of the hub, whose types and description it has.

    The version of the answer, or of the record in it, is its ETag; `also` is the status of what is not new.
    """
    said = getattr(model, "model_fields", {})
    inner = next((name for name in ("entry", "resource") if name in said), "")
    has_tag = bool(inner) or "version" in said
    _, _, *parameters = inspect.signature(act).parameters.values()  # without the hub and the token
    types = dict(_parameter_of(each, path) for each in parameters if each.kind is not each.KEYWORD_ONLY)

    def call(request: Request, **given: Any) -> Response:
        hub, token = request.app.hub, request.state.token  # whom the gate let in
        if "version" in given:
            given["version"] = _version_of(given["version"], is_needed=method != "PUT")
        made = getattr(hub, act.__name__)(token, *(given[each] for each in types))
        version = (made[inner] if inner else made)["version"] if has_tag else None
        return answer(made, also if also and version != 1 else status, version)

    kind, shown = inspect.Parameter.KEYWORD_ONLY, {"request": Request, **types}
    signature = inspect.Signature([inspect.Parameter(each, kind, annotation=shown[each]) for each in shown])
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__name__, call.__doc__ = name, (inspect.getdoc(act) or "").partition("\n\n")[0]
    _call(method, path, model, status=status, also=also, has_tag=has_tag)(call)


# Knowledge

_KNOWLEDGE, _ENTRY, _RESOURCE = "/api/knowledge", "/api/knowledge/{id:knowledge_id}", "/api/resource/{id:path}"
_TRACE, _PROPOSAL = "/api/trace/{id}/goals", "/api/proposal/{id:proposal_id}"

_pass_on("GET", f"{_KNOWLEDGE}/search", "knowledge_search", KnowHub.search, answers.SearchOut)
_pass_on("GET", _KNOWLEDGE, "list_knowledge", KnowHub.list_knowledge, answers.ListOut)
_pass_on("POST", _KNOWLEDGE, "save_knowledge", KnowHub.save, answers.SavedOut, status=201)
_pass_on("POST", f"{_KNOWLEDGE}/batch_update", "batch_update_knowledge", KnowHub.batch_update, Json)
_pass_on("POST", f"{_KNOWLEDGE}/slim", "slim_knowledge", KnowHub.slim, Json)


_pass_on("GET", _ENTRY, "get_knowledge", KnowHub.get, answers.EntryOut)
_pass_on("PUT", _ENTRY, "update_knowledge", KnowHub.update, answers.UpdatedOut)
_pass_on("PATCH", _ENTRY, "patch_knowledge", KnowHub.patch, answers.ChangedOut)
_pass_on("DELETE", _ENTRY, "delete_knowledge", KnowHub.delete, answers.DoneOut)
_pass_on("GET", f"{_ENTRY}/history", "knowledge_history", KnowHub.history, answers.PageOut)
_pass_on("GET", f"{_ENTRY}/feedback", "knowledge_feedback", KnowHub.feedback, answers.PageOut)
_pass_on("GET", "/api/proposal", "list_proposals", KnowHub.proposals, answers.PageOut)
_pass_on("POST", f"{_PROPOSAL}/accept", "accept_proposal", KnowHub.accept, answers.ChangedOut)
_pass_on("POST", f"{_PROPOSAL}/reject", "reject_proposal", KnowHub.reject, answers.DoneOut)

# Resources

_pass_on("GET", "/api/resource", "list_resources", KnowHub.list_resources, answers.PageOut)
_pass_on("GET", _RESOURCE, "get_resource", KnowHub.get_resource, answers.ResourceOut)
_pass_on("PUT", _RESOURCE, "put_resource", KnowHub.put_resource, answers.KeptOut, status=201, also=200)
_pass_on("DELETE", _RESOURCE, "delete_resource", KnowHub.delete_resource, answers.DoneOut)
_pass_on("GET", "/api/secret/{id:path}", "get_secret", KnowHub.reveal, answers.SecretOut)
_pass_on("GET", "/api/access", "list_accesses", KnowHub.accesses, answers.PageOut)

# Operations, goals, tokens

_pass_on("GET", "/api/operation", "list_operations", KnowHub.operations, answers.PageOut)
_pass_on("POST", "/api/operation/{id}/undo", "undo_operation", KnowHub.undo, answers.DoneOut)
_pass_on("GET", _TRACE, "get_goals", KnowHub.get_goals, Json)
_pass_on("PUT", _TRACE, "put_goals", KnowHub.put_goals, Json)
_pass_on("GET", "/api/me", "get_me", KnowHub.me, Json)
_pass_on("GET", "/api/token", "list_tokens", KnowHub.list_tokens, answers.PageOut)
_pass_on("POST", "/api/token", "make_token", KnowHub.make_token, answers.TokenOut, status=201)
_pass_on("DELETE", "/api/token/{id}", "revoke_token", KnowHub.revoke_token, answers.DoneOut)
_pass_on("GET", "/api/group", "list_groups", KnowHub.list_groups, answers.PageOut)
_pass_on("PUT", "/api/group/{id}", "put_group", KnowHub.put_group, answers.DoneOut)
_pass_on("POST", "/api/import", "take_in", KnowHub.take_in, Json)

# Export

EXPORTS = 2
"""Exports of one caller at once."""

BLOCK_SIZE = 64 * 1024

_exporting = Counter[tuple[int, str]]()  # by hub and caller


@_call("GET", "/api/export", None)
def export(request: Request) -> Response:
    """Yield all that a token sees, without secrets, an object a line: what an import reads."""
    hub, token = request.app.hub, request.state.token  # whom the gate let in
    need(token, "read")
    caller = id(hub), token.asker
    if _exporting[caller] >= EXPORTS:
        raise KnowHubError("too-many-requests", f"{EXPORTS} exports at once", retry_after_s=5.0)
    is_text = request.headers.get("accept", "").startswith("text/plain")
    media_type = "text/plain" if is_text else "application/x-ndjson"
    return StreamingResponse(_in_blocks(hub, token, caller), media_type=media_type)


async def _in_blocks(hub: KnowHub, token: Token, caller: tuple[int, str]) -> AsyncIterator[str]:
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

    _exporting[caller] += 1
    try:
        while is_more and hub.tokens.is_good(token):
            yield await run_in_threadpool(read)
    finally:
        _exporting[caller] -= 1
