"""REST over a hub: every function checks nothing itself, it asks `KnowHub`.

>>> import tempfile
>>> from .hub import KnowHub
>>> with tempfile.TemporaryDirectory() as folder, KnowHub(folder) as hub:
...     app = create_app(hub)
...     sorted(app.api.openapi()["paths"])[:3]
['/api/export', '/api/import', '/api/knowledge']

The store runs in the thread pool; a model is waited for without a thread. `/openapi.json` describes it all; `/api` is
a page that shows it without foreign scripts. Errors are problems (RFC 9457), and repeat nothing of what was said.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from .checks import need, problem_of
from .gate import PROBLEM_TYPE, Gate, Receive, Scope, Send, Settings, problem_headers
from .hub import KnowHub
from .routing import Asked, Reply
from .schemas import (
    PROBLEMS,
    AcceptIn,
    BatchIn,
    GoalsIn,
    Json,
    KnowHubError,
    KnowledgeIn,
    KnowledgePatch,
    KnowledgeUpdate,
    ListQuery,
    PageQuery,
    ProposalQuery,
    ResourceIn,
    ResourceQuery,
    SearchQuery,
    SlimIn,
    TokenIn,
)
from .tokens import Token

try:
    from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import StreamingResponse
    from prometheus_client import Gauge, generate_latest
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import StringConvertor, register_url_convertor
    from starlette.exceptions import HTTPException
    from starlette.middleware.cors import CORSMiddleware
    from starlette.routing import Match
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install 'keyword-tree[knowhub]'") from error

__all__ = ["Application", "create_app"]

SWEEP_S = 60.0
"""Seconds between two looks for what has expired."""

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _KnowledgeId(StringConvertor):
    regex = "knowledge-[0-9A-Za-z-]{1,60}"


class _ProposalId(StringConvertor):
    regex = "proposal-[0-9A-Za-z-]{1,60}"


register_url_convertor("knowledge_id", _KnowledgeId())
register_url_convertor("proposal_id", _ProposalId())


# What is answered, for the document that describes it


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Judged(_Answer):
    """How an entry is judged."""

    score: int
    helpful: int
    harmful: int
    confidence: float


class JudgedCases(Judged):
    """The same, with the newest 20 cases of each kind."""

    helpful_history: list[dict[str, Any]]
    harmful_history: list[dict[str, Any]]


class SourceOut(_Answer):
    """Where an entry comes from."""

    name: str
    category: str
    urls: list[str]
    agent_id: str
    submitted_by: str
    timestamp: str
    message_id: str


class EntryOut(_Answer):
    """An entry, whole."""

    id: str
    message_id: str
    types: list[str]
    task: str
    tags: dict[str, str]
    scopes: list[str]
    owner: str
    content: str
    resource_ids: list[str]
    source: SourceOut
    eval: JudgedCases
    created_at: str
    updated_at: str
    created_by: str
    version: int
    merged_into: str


class ResultOut(_Answer):
    """What a search found."""

    id: str
    task: str
    content: str
    types: list[str]
    tags: dict[str, str]
    scopes: list[str]
    owner: str
    resource_ids: list[str]
    eval: Judged
    quality_score: float


class SearchOut(_Answer):
    """What a search found, and how."""

    results: list[ResultOut]
    count: int
    routing: str
    reason: str
    eligible: int
    shown: int
    took_ms: float
    usage: dict[str, Any] | None


class EvolutionOut(_Answer):
    """What became of a wish to rewrite."""

    state: str
    reason: str
    operation_id: str
    proposal_id: str
    usage: dict[str, Any] | None = None


class ChangedOut(_Answer):
    """An entry as it became."""

    entry: EntryOut
    operation_id: str


class UpdatedOut(ChangedOut):
    """An entry as it became, and what became of a wish to rewrite it."""

    evolution: EvolutionOut | None = None


class SavedOut(ChangedOut):
    """A new entry, and which it resembles."""

    similar: list[dict[str, Any]]


class ListOut(_Answer):
    """A page of entries."""

    results: list[EntryOut]
    count: int
    next_cursor: str | None


class PageOut(_Answer):
    """A page of anything."""

    results: list[dict[str, Any]]
    count: int
    next_cursor: str | None = None


class HistoryOut(_Answer):
    """The versions of an entry."""

    id: str
    results: list[dict[str, Any]]
    count: int


class DoneOut(_Answer):
    """What was changed, and the operation that `undo` takes."""

    id: str
    operation_id: str = ""


class BatchOut(_Answer):
    """What was judged."""

    updated: int
    operation_id: str
    results: list[dict[str, Any]]


class SlimOut(_Answer):
    """What was merged, or would be."""

    model: str
    merged: int
    operation_id: str
    skipped: list[dict[str, Any]]
    plan: dict[str, Any]


class ResourceOut(_Answer):
    """A resource, without its secret."""

    id: str
    title: str
    body: str
    content_type: str
    metadata: dict[str, Any]
    scopes: list[str]
    owner: str
    expires_at: str | None
    secret: str
    version: int
    created_by: str
    created_at: str
    updated_at: str


class KeptOut(_Answer):
    """A resource as it became."""

    resource: ResourceOut
    operation_id: str


class SecretOut(_Answer):
    """A secret."""

    id: str
    secure_body: str


class UndoneOut(_Answer):
    """What was undone, and the operation that undoes the undoing."""

    operation_id: str
    undone: str


class GoalsOut(_Answer):
    """A goal tree."""

    trace_id: str
    goals: list[dict[str, Any]]
    version: int


class GoalsKeptOut(_Answer):
    """That a goal tree was kept."""

    trace_id: str
    version: int
    operation_id: str


class TokenOut(_Answer):
    """A token; its text is told when it is made, and never again."""

    id: str
    principal: str
    rights: list[str]
    scopes: list[str]
    created_at: str
    expires_at: str | None
    token: str = ""


class ImportIn(BaseModel):
    """Lines of an export, as objects."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    lines: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=1000)]


class ImportOut(_Answer):
    """What an import did."""

    written: int
    skipped: int
    errors: list[dict[str, Any]]


class ProblemOut(BaseModel):
    """A problem, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, str]]


# Small parts that all functions share


def answer(data: Any, status: int = 200, version: int | None = None) -> Response:
    """Return data as JSON, with its version as ETag."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


def problem(error: KnowHubError, instance: str, headers: dict[str, str] | None = None) -> Response:
    """Return a problem."""
    body = json.dumps(error.to_json(instance), ensure_ascii=False).encode()
    return Response(body, error.status, {**problem_headers(error), **(headers or {})}, PROBLEM_TYPE)


def read_version(if_match: str | None, *, needed: bool) -> int | None:
    """Return the version that If-Match names; None is any.

    Raises:
        KnowHubError: `version-needed` where it is missing, `changed` where it can be none of ours.
    """
    if if_match is None:
        if needed:
            raise KnowHubError("version-needed", 'If-Match must name the version that was seen: `If-Match: "3"`')
        return None
    text = if_match.strip()
    if text == "*":
        return None
    if (
        len(text) > 2
        and text[0] == text[-1] == '"'
        and text[1:-1].isascii()
        and text[1:-1].isdigit()
        and len(text) < 20
    ):
        return int(text[1:-1])
    raise KnowHubError("changed", "If-Match names no version of it")


async def wait_for(hub: KnowHub, asked: Asked | None) -> Reply | None:
    """Wait for a model without holding a thread that writes need."""
    if asked is None:
        return None
    sent = hub.models.submit(asked)
    if isinstance(sent, Reply):
        return sent
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(sent)), asked.timeout_s)
    except TimeoutError:
        return Reply(reason="model_timeout")


async def _who(request: Request) -> Token:  # not sync: that would be a thread of its own for each request
    token = request.state.token
    if not isinstance(token, Token):
        raise KnowHubError("unauthenticated", "send `Authorization: Bearer kh_…`; `knowhub token` makes one")
    return token


_SECURED: Json = {"security": [{"token": []}]}
_SCHEME = {"type": "http", "scheme": "bearer", "description": "`kh_…`, as `knowhub token` makes it"}
_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="of the caller's choice: the same request once more gets the first answer",
    ),
]
_IfMatch = Annotated[str | None, Header(alias="If-Match", description='the ETag that was seen, as `"3"`')]
_KnowledgeIdPath = Annotated[str, Path(pattern=r"^knowledge-[0-9A-Za-z-]{1,60}$", examples=["knowledge-20260305-a1b2"])]
_ProposalIdPath = Annotated[str, Path(pattern=r"^proposal-[0-9A-Za-z-]{1,60}$")]
_ResourceIdPath = Annotated[str, Path(max_length=200, examples=["credentials/website_a"])]
_TraceIdPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$")]
_Who = Annotated[Token, Depends(_who)]

_EVERYWHERE = (400, 401, 403, 404, 405, 408, 413, 421, 422, 429, 431, 500, 503, 507)


def told(model: type[BaseModel], *also: int, status: int = 200, with_version: bool = False) -> dict[int | str, Json]:
    """Return what the document says of an operation's answers."""
    statuses = sorted({*_EVERYWHERE, *also})
    titles = dict(reversed(list(PROBLEMS.values())))
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
    answers: dict[int | str, Json] = {code: {"description": titles[code], "content": content} for code in statuses}
    answers[status] = {"model": model, "description": (model.__doc__ or "").split("\n")[0]}
    if with_version:
        header = {"description": "the version, for If-Match", "schema": {"type": "string"}}
        answers[status]["headers"] = {"ETag": header}
    return answers


# The application


class Application:
    """A hub's server as an ASGI application: the gate, and the API behind it.

    Attributes:
        api: The FastAPI application itself.
        gate: What all requests pass.
    """

    def __init__(self, hub: KnowHub, settings: Settings, *, closes_hub: bool) -> None:
        # It writes down what is searched for, whoever starts the server and however.
        logging.getLogger("uvicorn.access").disabled = True
        self.hub = hub
        self.settings = settings
        self.api = _make_api(self, closes_hub)
        self.gate = Gate(self.api, hub.tokens, settings)
        self._outer: Any = self.gate
        if settings.cors:
            allowed = ["Authorization", "Content-Type", "If-Match", "Idempotency-Key"]
            shown = ["ETag", "Retry-After", "X-Request-Id"]
            methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
            origins = [settings.cors]
            self._outer = CORSMiddleware(self.gate, origins, methods, allowed, expose_headers=shown)
        for kind in ("knowledge", "feedback", "resource", "proposal"):
            gauge = Gauge(f"knowhub_{kind}_records", f"Records: {kind}", registry=self.gate.registry)
            gauge.set_function(lambda kind=kind: hub.catalog.counts().get(kind, 0))  # type: ignore[misc]
        calls = Gauge("knowhub_model_calls", "Calls of models", registry=self.gate.registry)
        calls.set_function(lambda: hub.models.calls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._outer(scope, receive, send)


def create_app(hub: KnowHub, settings: Settings | None = None, *, closes_hub: bool = False) -> Application:
    """Return a hub's server.

    Args:
        hub: What it asks.
        settings: See `Settings`.
        closes_hub: Close the hub when the server stops.
    """
    return Application(hub, settings or Settings(), closes_hub=closes_hub)


def _make_api(application: Application, closes_hub: bool) -> FastAPI:
    hub = application.hub

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(hub))
        async with contextlib.AsyncExitStack() as stack:
            for enter in application.api.state.entered:
                await stack.enter_async_context(enter())
            yield
        sweeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sweeping
        if closes_hub:
            await run_in_threadpool(hub.close)

    api = FastAPI(
        title="KnowHub",
        description="What one learned to do, all may find by task, weigh by its worth, and improve by feedback.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        # Validation failures would be told with what was sent, and that may be a secret.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    api.state.entered = []
    _handle_errors(api)
    _add_knowledge(api, hub)
    _add_feedback(api, hub)
    _add_proposals(api, hub)
    _add_resources(api, hub)
    _add_rest(api, hub)
    _add_house(api, application)
    _describe_problems(api)
    return api


async def _sweep(hub: KnowHub) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            await run_in_threadpool(hub.sweep)
        except Exception as error:  # it comes again in a minute
            _log.warning("the sweep failed: %s", type(error).__name__)


def _handle_errors(api: FastAPI) -> None:
    @api.exception_handler(KnowHubError)
    async def refuse(request: Request, error: KnowHubError) -> Response:
        return problem(error, request.url.path)

    @api.exception_handler(RequestValidationError)
    async def refuse_invalid(request: Request, error: RequestValidationError) -> Response:
        return problem(problem_of(error.errors(), skip=1), request.url.path)

    @api.exception_handler(Exception)
    async def tell_nothing(request: Request, error: Exception) -> Response:
        return problem(
            KnowHubError("internal", f"the log says more under {request.state.request_id}"), request.url.path
        )

    @api.exception_handler(HTTPException)
    async def refuse_otherwise(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            allowed = sorted(_methods_of(api, request.scope))
            wrong = KnowHubError("method-not-allowed", f"it knows {', '.join(allowed)}")
            return problem(wrong, request.url.path, {"Allow": ", ".join(allowed)})
        if error.status_code == 404:
            return problem(KnowHubError("not-found", "there is no such path"), request.url.path)
        return problem(KnowHubError("bad-request", "the request cannot be read"), request.url.path)


def _methods_of(api: FastAPI, scope: Scope) -> set[str]:
    """Return all methods of a path; each function is a route of its own."""
    found: set[str] = set()
    for route in api.router.routes:
        match, _ = route.matches({**scope, "method": "GET"})
        methods = getattr(route, "methods", None)
        if match is not Match.NONE and methods:
            found |= set(methods)
    return found


def _add_knowledge(api: FastAPI, hub: KnowHub) -> None:
    path = "/api/knowledge"

    @api.get(f"{path}/search", responses=told(SearchOut), openapi_extra=_SECURED)
    async def knowledge_search(query: Annotated[SearchQuery, Query()], token: _Who) -> Response:
        """Find what helps with a task, in two stages."""

        def by_words() -> tuple[Any, Json | None]:
            searching = hub.begin_search(token, query)
            return searching, None if searching.asked else hub.finish_search(searching, None)

        searching, found = await run_in_threadpool(by_words)
        if found is None:
            reply = await wait_for(hub, searching.asked)
            found = await run_in_threadpool(hub.finish_search, searching, reply)
        return answer(found)

    @api.get(path, responses=told(ListOut), openapi_extra=_SECURED)
    def list_knowledge(query: Annotated[ListQuery, Query()], token: _Who) -> Response:
        """List entries, newest first."""
        return answer(hub.list_knowledge(token, query))

    @api.post(path, status_code=201, responses=told(SavedOut, status=201, with_version=True), openapi_extra=_SECURED)
    def save_knowledge(body: KnowledgeIn, token: _Who, key: _Key = None) -> Response:
        """Keep new knowledge."""
        made = hub.save(token, body, key or "")
        return answer(made, 201, made["entry"]["version"])

    @api.post(f"{path}/batch_update", responses=told(BatchOut, 409), openapi_extra=_SECURED)
    def batch_update_knowledge(body: BatchIn, token: _Who, key: _Key = None) -> Response:
        """Judge several entries."""
        return answer(hub.batch_update(token, body, key or ""))

    slimming = ThreadPoolExecutor(1, "KnowHub slim")  # it may take minutes, and must hold no thread that writes need

    @api.post(f"{path}/slim", responses=told(SlimOut, 409), openapi_extra=_SECURED)
    async def slim_knowledge(body: SlimIn, token: _Who) -> Response:
        """Merge entries that say the same."""
        need(token, "curate")
        return answer(await asyncio.get_running_loop().run_in_executor(slimming, hub.slim, token, body))

    one = path + "/{id:knowledge_id}"

    @api.get(one, responses=told(EntryOut, with_version=True), openapi_extra=_SECURED)
    async def get_knowledge(id: _KnowledgeIdPath, token: _Who) -> Response:
        """Return an entry."""
        with contextlib.suppress(KnowHubError):  # what is known is answered from memory, without a thread
            if hub.catalog.get(id) is not None:
                entry = hub.get(token, id)
                return answer(entry, version=entry["version"])
        entry = await run_in_threadpool(hub.get, token, id)
        return answer(entry, version=entry["version"])

    @api.patch(one, responses=told(ChangedOut, 412, 428, with_version=True), openapi_extra=_SECURED)
    def patch_knowledge(id: _KnowledgeIdPath, body: KnowledgePatch, token: _Who, if_match: _IfMatch = None) -> Response:
        """Change fields of an entry."""
        made = hub.patch(token, id, body, read_version(if_match, needed=True))
        return answer(made, version=made["entry"]["version"])

    @api.delete(one, responses=told(DoneOut, 412, 428), openapi_extra=_SECURED)
    def delete_knowledge(id: _KnowledgeIdPath, token: _Who, if_match: _IfMatch = None) -> Response:
        """Hide an entry, undoably."""
        return answer(hub.delete(token, id, read_version(if_match, needed=True)))

    @api.get(f"{one}/history", responses=told(HistoryOut), openapi_extra=_SECURED)
    def knowledge_history(id: _KnowledgeIdPath, token: _Who) -> Response:
        """List the versions of an entry, newest first."""
        return answer(hub.history(token, id))


def _add_feedback(api: FastAPI, hub: KnowHub) -> None:
    one = "/api/knowledge/{id:knowledge_id}"

    @api.put(one, responses=told(UpdatedOut, 409, with_version=True), openapi_extra=_SECURED)
    async def update_knowledge(id: _KnowledgeIdPath, body: KnowledgeUpdate, token: _Who, key: _Key = None) -> Response:
        """Judge an entry, score it, or let it be rewritten."""
        made, evolving = await run_in_threadpool(hub.begin_update, token, id, body, key or "")
        if evolving is not None:
            reply = await wait_for(hub, evolving.asked)
            made["evolution"] = await run_in_threadpool(hub.finish_evolving, evolving, reply)
            made["entry"] = await run_in_threadpool(hub.get, token, id)
        return answer(made, version=made["entry"]["version"])

    @api.get(f"{one}/feedback", responses=told(PageOut), openapi_extra=_SECURED)
    def knowledge_feedback(id: _KnowledgeIdPath, query: Annotated[PageQuery, Query()], token: _Who) -> Response:
        """List an entry's feedback, newest first."""
        return answer(hub.feedback(token, id, query))


def _add_proposals(api: FastAPI, hub: KnowHub) -> None:

    @api.get("/api/proposal", responses=told(PageOut), openapi_extra=_SECURED)
    def list_proposals(query: Annotated[ProposalQuery, Query()], token: _Who) -> Response:
        """List proposals, newest first."""
        return answer(hub.proposals(token, query))

    @api.post(
        "/api/proposal/{id:proposal_id}/accept",
        responses=told(ChangedOut, 409, with_version=True),
        openapi_extra=_SECURED,
    )
    def accept_proposal(id: _ProposalIdPath, token: _Who, body: AcceptIn | None = None) -> Response:
        """Give an entry the text that was proposed, or another one."""
        made = hub.accept(token, id, body or AcceptIn())
        return answer(made, version=made["entry"]["version"])

    @api.post("/api/proposal/{id:proposal_id}/reject", responses=told(DoneOut, 409, 412), openapi_extra=_SECURED)
    def reject_proposal(id: _ProposalIdPath, token: _Who) -> Response:
        """Close a proposal."""
        return answer(hub.reject(token, id))


def _add_resources(api: FastAPI, hub: KnowHub) -> None:
    one = "/api/resource/{id:path}"

    @api.get("/api/resource", responses=told(PageOut), openapi_extra=_SECURED)
    def list_resources(query: Annotated[ResourceQuery, Query()], token: _Who) -> Response:
        """List resources, newest first, without their secrets."""
        return answer(hub.list_resources(token, query))

    @api.get(one, responses=told(ResourceOut, with_version=True), openapi_extra=_SECURED)
    def get_resource(id: _ResourceIdPath, token: _Who) -> Response:
        """Return a resource, without its secret."""
        found = hub.get_resource(token, id)
        return answer(found, version=found["version"])

    put_told = told(KeptOut, 409, 412, 428, with_version=True)
    put_told[201] = put_told[200]

    @api.put(one, responses=put_told, openapi_extra=_SECURED)
    def put_resource(
        id: _ResourceIdPath, body: ResourceIn, token: _Who, key: _Key = None, if_match: _IfMatch = None
    ) -> Response:
        """Keep a resource; one that is there needs If-Match."""
        version = read_version(if_match, needed=False)
        if version is None and if_match is not None:
            version = hub.get_resource(token, id)["version"]
        made = hub.put_resource(token, id, body, version, key or "")
        is_new = made["resource"]["version"] == 1
        return answer(made, 201 if is_new else 200, made["resource"]["version"])

    @api.delete(one, responses=told(DoneOut, 412, 428), openapi_extra=_SECURED)
    def delete_resource(id: _ResourceIdPath, token: _Who, if_match: _IfMatch = None) -> Response:
        """Hide a resource, undoably, and destroy its secret, for good."""
        return answer(hub.delete_resource(token, id, read_version(if_match, needed=True)))

    @api.get("/api/secret/{id:path}", responses=told(SecretOut, 410), openapi_extra=_SECURED)
    def get_secret(id: _ResourceIdPath, token: _Who) -> Response:
        """Return a secret; needs the right, and is logged."""
        return answer(hub.reveal(token, id))


def _add_rest(api: FastAPI, hub: KnowHub) -> None:

    @api.get("/api/operation", responses=told(PageOut), openapi_extra=_SECURED)
    def list_operations(query: Annotated[PageQuery, Query()], token: _Who) -> Response:
        """List the newest operations on what the token sees."""
        return answer(hub.operations(token, query))

    @api.post("/api/operation/{id}/undo", responses=told(UndoneOut, 409), openapi_extra=_SECURED)
    def undo_operation(id: Annotated[str, Path(max_length=100)], token: _Who) -> Response:
        """Take an operation back."""
        return answer(hub.undo(token, id))

    goals = "/api/trace/{id}/goals"

    @api.get(goals, responses=told(GoalsOut), openapi_extra=_SECURED)
    def get_goals(id: _TraceIdPath, token: _Who) -> Response:
        """Return a goal tree of one's own."""
        return answer(hub.get_goals(token, id))

    @api.put(goals, responses=told(GoalsKeptOut, 409), openapi_extra=_SECURED)
    def put_goals(id: _TraceIdPath, body: GoalsIn, token: _Who) -> Response:
        """Keep a goal tree."""
        return answer(hub.put_goals(token, id, body))

    @api.get("/api/token", responses=told(PageOut), openapi_extra=_SECURED)
    def list_tokens(token: _Who) -> Response:
        """List tokens, without their texts."""
        return answer(hub.list_tokens(token))

    @api.post("/api/token", status_code=201, responses=told(TokenOut, status=201), openapi_extra=_SECURED)
    def make_token(body: TokenIn, token: _Who) -> Response:
        """Make a token; its text is told this once."""
        return answer(hub.make_token(token, body), 201)

    @api.delete("/api/token/{id}", responses=told(DoneOut), openapi_extra=_SECURED)
    def revoke_token(id: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], token: _Who) -> Response:
        """End a token."""
        return answer({**hub.revoke_token(token, id), "operation_id": ""})

    exported = told(PageOut)
    exported[200] = {"description": "JSON lines", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}

    @api.get("/api/export", responses=exported, openapi_extra=_SECURED)
    def export(token: _Who) -> Response:
        """Stream all that the token sees as JSON lines, no secrets."""
        return StreamingResponse(_in_blocks(_lines(hub, token)), media_type="application/x-ndjson")

    @api.post("/api/import", responses=told(ImportOut), openapi_extra=_SECURED)
    def take_in(body: ImportIn, token: _Who) -> Response:
        """Write what an export holds; what is there already is skipped."""
        return answer(hub.take_in(token, body.lines))


def _lines(hub: KnowHub, token: Token) -> Iterator[str]:
    need(token, "read")
    return (json.dumps(line, ensure_ascii=False) + "\n" for line in hub.export(token))


def _in_blocks(lines: Iterator[str], size: int = 100) -> Iterator[str]:
    """Join lines: each block costs a change of threads."""
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == size:
            yield "".join(block)
            block = []
    yield "".join(block)


def _add_house(api: FastAPI, application: Application) -> None:
    hub = application.hub

    @api.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        """Say that the process lives."""
        return answer({"status": "ok"})

    @api.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        """Say whether it has caught up, and whether the disk can be written."""
        is_writable = os.access(hub.folder, os.W_OK)
        with contextlib.suppress(OSError):
            status = os.statvfs(hub.folder)
            is_writable = is_writable and status.f_bavail * status.f_frsize > 16 * 1024 * 1024
        is_ready = hub.catalog.is_ready and is_writable
        state = {"status": "ready" if is_ready else "not ready", "caught_up": hub.catalog.is_ready}
        return answer({**state, "disk_writable": is_writable}, 200 if is_ready else 503)

    @api.get("/metrics", include_in_schema=False)
    def metrics(token: _Who) -> Response:
        """Return figures for Prometheus."""
        need(token, "read")
        return Response(generate_latest(application.gate.registry), media_type="text/plain; version=0.0.4")


def _describe_problems(api: FastAPI) -> None:
    """Let the document know the form of a problem, which no function returns itself."""
    make: Callable[[], Json] = api.openapi

    def openapi() -> Json:
        made = make()
        made.setdefault("components", {})["securitySchemes"] = {"token": _SCHEME}
        schemas = made["components"].setdefault("schemas", {})
        schemas["ProblemOut"] = ProblemOut.model_json_schema()
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        return made

    api.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own pages tell to do it
