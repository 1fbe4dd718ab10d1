"""REST over a hub: every function checks nothing itself, it asks `KnowHub`.

All runs in the thread pool of 40, of which at most `routing.POOL_SIZE` wait for a model. See `application` for what is
around.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from . import answers
from .checks import need
from .gate import PROBLEM_TYPE, problem_answer
from .hub import KnowHub
from .schemas import (
    PROBLEMS,
    RESOURCE_ID_LIMIT,
    RESOURCE_ID_PATTERN,
    AcceptIn,
    BatchIn,
    GoalsIn,
    ImportIn,
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
    from fastapi.responses import StreamingResponse
    from pydantic_core import to_json
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import StringConvertor, register_url_convertor
except ImportError as error:  # pragma: no cover - the tests run with the extra
    raise ImportError("KnowHub's server needs its extra: pip install '.[knowhub]' in its repository") from error

__all__ = ["Who", "add_routes", "answer", "problem"]


class _KnowledgeId(StringConvertor):
    regex = "knowledge-[0-9A-Za-z-]{1,60}"


class _ProposalId(StringConvertor):
    regex = "proposal-[0-9A-Za-z-]{1,60}"


register_url_convertor("knowledge_id", _KnowledgeId())
register_url_convertor("proposal_id", _ProposalId())


async def _who(request: Request) -> Token:  # not sync: that would be a thread of its own for each request
    token = request.state.token
    if not isinstance(token, Token):
        raise KnowHubError("unauthenticated", "send `Authorization: Bearer kh_…`; `knowhub token` makes one")
    return token


_Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="of the caller's choice: the same request once more gets the first answer",
    ),
]
_IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", pattern=r'^(\*|"?[0-9]{1,15}"?)$', description='the ETag that was seen, as `"3"`, or `*`'),
]
_KnowledgeIdPath = Annotated[str, Path(pattern=r"^knowledge-[0-9A-Za-z-]{1,60}$", examples=["knowledge-20260305-a1b2"])]
_ProposalIdPath = Annotated[str, Path(pattern=r"^proposal-[0-9A-Za-z-]{1,60}$")]
_ResourceIdPath = Annotated[
    str, Path(max_length=RESOURCE_ID_LIMIT, pattern=RESOURCE_ID_PATTERN, examples=["credentials/website_a"])
]
_TraceIdPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$")]
Who = Annotated[Token, Depends(_who)]


# Forms that all answers have


def answer(data: Any, status: int = 200, version: int | None = None) -> Response:
    """Return data as JSON, with its version as ETag."""
    headers = {} if version is None else {"ETag": f'"{version}"'}
    return Response(to_json(data), status, headers, "application/json")


def problem(error: KnowHubError, request: Request, headers: dict[str, str] | None = None) -> Response:
    """Return a problem."""
    status, own, body = problem_answer(error, request.scope)
    return Response(body, status, {**own, **(headers or {})})


def read_version(if_match: str | None, *, needed: bool) -> int | None:
    """Return the version that If-Match names; None is any.

    Raises:
        KnowHubError: `version-needed` where it is missing.
    """
    if if_match is None:
        if needed:
            raise KnowHubError("version-needed", 'If-Match must name the version that was seen: `If-Match: "3"`')
        return None
    return None if if_match.strip() == "*" else int(if_match.strip().strip('"'))


_EVERYWHERE = (400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 429, 431, 500, 503, 507)


def returns(model: type[Any], *also: int, status: int = 200, with_version: bool = False) -> Json:
    """Return what the document says of an operation: its answers, and that it needs a token."""
    statuses = sorted({*_EVERYWHERE, *also})
    titles = dict(reversed(list(PROBLEMS.values())))
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
    described: dict[int | str, Json] = {code: {"description": titles[code], "content": content} for code in statuses}
    described[status] = {"model": model, "description": (model.__doc__ or "").split("\n")[0]}
    if with_version:
        header = {"description": "the version, for If-Match", "schema": {"type": "string"}}
        described[status]["headers"] = {"ETag": header}
    return {"responses": described, "openapi_extra": {"security": [{"token": []}]}}


# Routes


_FEW_VOTES = 20
"""An entry with so many takes longer than a thread's turn."""


def add_routes(api: FastAPI, hub: KnowHub) -> None:
    """Add all that the contract names under `/api`."""
    for add in (
        _add_knowledge,
        _add_feedback,
        _add_proposals,
        _add_resources,
        _add_operations,
        _add_goals,
        _add_tokens,
    ):
        add(api, hub)
    _add_transfer(api, hub)


def _add_knowledge(api: FastAPI, hub: KnowHub) -> None:
    path = "/api/knowledge"

    @api.get(f"{path}/search", **returns(answers.SearchOut))
    def knowledge_search(query: Annotated[SearchQuery, Query()], token: Who) -> Response:
        """Find what helps with a task, in two stages."""
        return answer(hub.search(token, query))

    @api.get(path, **returns(answers.ListOut))
    def list_knowledge(query: Annotated[ListQuery, Query()], token: Who) -> Response:
        """List entries, newest first."""
        return answer(hub.list_knowledge(token, query))

    @api.post(path, status_code=201, **returns(answers.SavedOut, status=201, with_version=True))
    def save_knowledge(body: KnowledgeIn, token: Who, key: _Key = None) -> Response:
        """Keep new knowledge."""
        made = hub.save(token, body, key or "")
        return answer(made, 201, made["entry"]["version"])

    @api.post(f"{path}/batch_update", **returns(answers.BatchOut))
    def batch_update_knowledge(body: BatchIn, token: Who, key: _Key = None) -> Response:
        """Judge several entries."""
        return answer(hub.batch_update(token, body, key or ""))

    slimming = ThreadPoolExecutor(1, "KnowHub slim")  # it may take minutes, and must hold no thread that writes need

    @api.post(f"{path}/slim", **returns(answers.SlimOut))
    async def slim_knowledge(body: SlimIn, token: Who, key: _Key = None) -> Response:
        """Merge entries that say the same."""
        need(token, "curate")
        loop = asyncio.get_running_loop()
        return answer(await loop.run_in_executor(slimming, hub.slim, token, body, key or ""))

    one = path + "/{id:knowledge_id}"

    @api.get(one, **returns(answers.EntryOut, with_version=True))
    async def get_knowledge(id: _KnowledgeIdPath, token: Who) -> Response:
        """Return an entry."""
        with contextlib.suppress(KnowHubError):  # what is known is answered from memory, without a thread
            is_here = hub.catalog.get(id) is not None and not hub.tokens.files.is_remote
            if is_here and sum(hub.catalog.votes(id)) < _FEW_VOTES:
                entry = hub.get(token, id)
                return answer(entry, version=entry["version"])
        entry = await run_in_threadpool(hub.get, token, id)
        return answer(entry, version=entry["version"])

    @api.patch(one, **returns(answers.ChangedOut, 412, 428, with_version=True))
    def patch_knowledge(
        id: _KnowledgeIdPath, body: KnowledgePatch, token: Who, if_match: _IfMatch = None, key: _Key = None
    ) -> Response:
        """Change fields of an entry."""
        made = hub.patch(token, id, body, read_version(if_match, needed=True), key or "")
        return answer(made, version=made["entry"]["version"])

    @api.delete(one, **returns(answers.DoneOut, 412, 428))
    def delete_knowledge(id: _KnowledgeIdPath, token: Who, if_match: _IfMatch = None, key: _Key = None) -> Response:
        """Hide an entry, undoably."""
        return answer(hub.delete(token, id, read_version(if_match, needed=True), key or ""))

    @api.get(f"{one}/history", **returns(answers.HistoryOut))
    def knowledge_history(id: _KnowledgeIdPath, token: Who) -> Response:
        """List the versions of an entry, newest first."""
        return answer(hub.history(token, id))


def _add_feedback(api: FastAPI, hub: KnowHub) -> None:
    one = "/api/knowledge/{id:knowledge_id}"

    @api.put(one, **returns(answers.UpdatedOut, with_version=True))
    def update_knowledge(id: _KnowledgeIdPath, body: KnowledgeUpdate, token: Who, key: _Key = None) -> Response:
        """Judge an entry, score it, or let it be rewritten."""
        made = hub.update(token, id, body, key or "")
        return answer(made, version=made["entry"]["version"])

    @api.get(f"{one}/feedback", **returns(answers.PageOut))
    def knowledge_feedback(id: _KnowledgeIdPath, query: Annotated[PageQuery, Query()], token: Who) -> Response:
        """List an entry's feedback, newest first."""
        return answer(hub.feedback(token, id, query))


def _add_proposals(api: FastAPI, hub: KnowHub) -> None:

    @api.get("/api/proposal", **returns(answers.PageOut))
    def list_proposals(query: Annotated[ProposalQuery, Query()], token: Who) -> Response:
        """List proposals, newest first."""
        return answer(hub.proposals(token, query))

    @api.post("/api/proposal/{id:proposal_id}/accept", **returns(answers.ChangedOut, with_version=True))
    def accept_proposal(id: _ProposalIdPath, token: Who, body: AcceptIn | None = None, key: _Key = None) -> Response:
        """Give an entry the text that was proposed, or another one."""
        made = hub.accept(token, id, body or AcceptIn(), key or "")
        return answer(made, version=made["entry"]["version"])

    @api.post("/api/proposal/{id:proposal_id}/reject", **returns(answers.DoneOut, 412))
    def reject_proposal(id: _ProposalIdPath, token: Who, key: _Key = None) -> Response:
        """Close a proposal."""
        return answer(hub.reject(token, id, key or ""))


def _add_resources(api: FastAPI, hub: KnowHub) -> None:
    one = "/api/resource/{id:path}"

    @api.get("/api/resource", **returns(answers.PageOut))
    def list_resources(query: Annotated[ResourceQuery, Query()], token: Who) -> Response:
        """List resources, newest first, without their secrets."""
        return answer(hub.list_resources(token, query))

    @api.get(one, **returns(answers.ResourceOut, with_version=True))
    def get_resource(id: _ResourceIdPath, token: Who) -> Response:
        """Return a resource, without its secret."""
        found = hub.get_resource(token, id)
        return answer(found, version=found["version"])

    put_returns = returns(answers.KeptOut, 412, 428, with_version=True)
    put_returns["responses"][201] = put_returns["responses"][200]

    @api.put(one, **put_returns)
    def put_resource(
        id: _ResourceIdPath, body: ResourceIn, token: Who, key: _Key = None, if_match: _IfMatch = None
    ) -> Response:
        """Keep a resource; one that is there needs If-Match."""
        version = read_version(if_match, needed=False)
        if version is None and if_match is not None:
            version = hub.get_resource(token, id)["version"]
        made = hub.put_resource(token, id, body, version, key or "")
        is_new = made["resource"]["version"] == 1
        return answer(made, 201 if is_new else 200, made["resource"]["version"])

    @api.delete(one, **returns(answers.DoneOut, 412, 428))
    def delete_resource(id: _ResourceIdPath, token: Who, if_match: _IfMatch = None, key: _Key = None) -> Response:
        """Hide a resource, undoably, and destroy its secret, for good."""
        return answer(hub.delete_resource(token, id, read_version(if_match, needed=True), key or ""))

    @api.get("/api/secret/{id:path}", **returns(answers.SecretOut, 410))
    def get_secret(id: _ResourceIdPath, token: Who) -> Response:
        """Return a secret; needs the right, and is logged."""
        return answer(hub.reveal(token, id))


def _add_operations(api: FastAPI, hub: KnowHub) -> None:
    @api.get("/api/operation", **returns(answers.PageOut))
    def list_operations(query: Annotated[PageQuery, Query()], token: Who) -> Response:
        """List the newest operations on what the token sees."""
        return answer(hub.operations(token, query))

    @api.post("/api/operation/{id}/undo", **returns(answers.UndoneOut))
    def undo_operation(id: Annotated[str, Path(max_length=100)], token: Who, key: _Key = None) -> Response:
        """Take an operation back."""
        return answer(hub.undo(token, id, key or ""))


def _add_goals(api: FastAPI, hub: KnowHub) -> None:
    goals = "/api/trace/{id}/goals"

    @api.get(goals, **returns(answers.GoalsOut))
    def get_goals(id: _TraceIdPath, token: Who) -> Response:
        """Return a goal tree of one's own."""
        return answer(hub.get_goals(token, id))

    @api.put(goals, **returns(answers.GoalsKeptOut))
    def put_goals(id: _TraceIdPath, body: GoalsIn, token: Who, key: _Key = None) -> Response:
        """Keep a goal tree."""
        return answer(hub.put_goals(token, id, body, key or ""))

    @api.delete(goals, **returns(answers.DoneOut))
    def delete_goals(id: _TraceIdPath, token: Who, key: _Key = None) -> Response:
        """Hide a goal tree, undoably."""
        return answer(hub.delete_goals(token, id, key or ""))


def _add_tokens(api: FastAPI, hub: KnowHub) -> None:
    @api.get("/api/token", **returns(answers.PageOut))
    def list_tokens(token: Who) -> Response:
        """List tokens, without their texts."""
        return answer(hub.list_tokens(token))

    @api.post("/api/token", status_code=201, **returns(answers.TokenOut, status=201))
    def make_token(body: TokenIn, token: Who, key: _Key = None) -> Response:
        """Make a token; its text is shown this once."""
        return answer(hub.make_token(token, body, key or ""), 201)

    @api.delete("/api/token/{id}", **returns(answers.DoneOut))
    def revoke_token(id: Annotated[str, Path(pattern="^[0-9a-f]{64}$")], token: Who) -> Response:
        """End a token."""
        return answer({**hub.revoke_token(token, id), "operation_id": ""})


def _add_transfer(api: FastAPI, hub: KnowHub) -> None:
    exported = returns(answers.PageOut)
    lines = {"schema": {"type": "string"}}  # as text, too, for generated clients: they cannot read the other type
    content = {"application/x-ndjson": lines, "text/plain": lines}
    exported["responses"][200] = {"description": "JSON lines", "content": content}

    # The class keeps FastAPI from naming JSON as a third type.
    @api.get("/api/export", response_class=StreamingResponse, **exported)
    def export(request: Request, token: Who) -> Response:
        """Stream all that the token sees as JSON lines, no secrets; as text for `Accept: text/plain`."""
        is_text = request.headers.get("accept", "").startswith("text/plain")
        media_type = "text/plain" if is_text else "application/x-ndjson"
        return StreamingResponse(_in_blocks(_lines(hub, token)), media_type=media_type)

    @api.post("/api/import", **returns(answers.ImportOut))
    def take_in(body: ImportIn, token: Who, key: _Key = None) -> Response:
        """Write what an export holds; what is there already is skipped."""
        return answer(hub.take_in(token, body.lines, key or ""))


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
