"""The tools of an agent: calls of the server's API, in words that a model can use. They never raise.

>>> import asyncio, os, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> os.environ["KNOWHUB_URL"], os.environ["KNOWHUB_SCOPES"] = f"file:{folder.name}", "user:owner"
>>> saved = asyncio.run(knowledge_save("boil an egg", "Seven minutes.", ["usecase"]))
>>> saved.title, len(saved), saved.error
('✅ Knowledge saved', 1, None)
>>> found = asyncio.run(knowledge_search("how long does an egg boil"))
>>> [item["content"] for item in found.metadata["items"]]
['Seven minutes.']
>>> knowledge_search.schema["parameters"]["required"]
['query']
>>> close_local(); del os.environ["KNOWHUB_URL"], os.environ["KNOWHUB_SCOPES"]; folder.cleanup()

`KNOWHUB_URL` is the server (http://127.0.0.1:8790 where it is not set), or `file:<folder>`, the same in this process;
`KNOWHUB_TOKEN` the token, else that of `~/.config/knowhub/token`; `KNOWHUB_SCOPES` what is saved for whom.

A secret reaches neither a model nor a transcript: a resource shows `{{secret:<id>}}`, which `fill_secrets` replaces at
the moment when a tool acts, in a call whose target the resource lists.
"""

import functools
import inspect
import re
import types as python_types
import typing
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast
from urllib.parse import quote, urlsplit

from ..base.language import say_in_environment as _say
from ..base.text import mapping_of, strings_of
from .calling import TIMEOUT_S, CallError, close_local, default_scopes, request
from .prompts import knowledge_block, language_of, tidy

__all__ = ["TOOLS", "HttpCall", "ProgramCall", "ToolResult", "close_local", "fill_secrets", "knowledge_batch_update"]
__all__ += ["knowledge_get", "knowledge_list"]
__all__ += ["knowledge_save", "knowledge_search", "knowledge_slim", "knowledge_update", "resource_get", "resource_save"]
__all__ += ["request", "tool"]

Json = dict[str, Any]
_P = ParamSpec("_P")


@dataclass
class ToolResult:
    """The answer of a tool; always true, as long as its items."""

    title: str
    """The action, in a few words."""
    output: str = ""
    """For the model."""
    metadata: Json = field(default_factory=dict)
    """For the program: `items`, and what the server answered."""
    error: str | None = None
    """Why it was not done."""

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        items = self.metadata.get("items")
        return len(items) if isinstance(items, Sequence) else 0


class Tool(Protocol, Generic[_P]):
    """An async function with the schema that a model reads."""

    schema: Json
    __name__: str

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[ToolResult]:
        """Do it."""


def tool(does: str) -> Callable[[Callable[_P, Awaitable[ToolResult]]], Tool[_P]]:
    """Let an async function return what went wrong instead of raising it, since a model reads that; add `.schema`.

    The schema is its name, what it does, and its parameters as JSON schema. What it does becomes its docstring, too;
    Python leaves no docstrings where it is run with `-OO`.
    """

    def mark(function: Callable[_P, Awaitable[ToolResult]]) -> Tool[_P]:
        @functools.wraps(function)
        async def call(*args: _P.args, **kwargs: _P.kwargs) -> ToolResult:
            try:
                return await function(*args, **kwargs)
            except Exception as error:
                said = _say("{} was not done", call.__name__)
                return ToolResult(f"❌ {said}", f"{said}: {error}", {"items": []}, str(error))

        call.__doc__ = does
        call.schema = _schema_of(function, does)  # type: ignore[attr-defined]
        return cast("Tool[_P]", call)

    return mark


_TYPES: dict[Any, Json] = {str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}}
_TYPES |= {float: {"type": "number"}, dict: {"type": "object"}, Any: {}}


def _schema_of(function: Callable[..., Any], does: str) -> Json:
    hints = typing.get_type_hints(function)
    properties: Json = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        properties[name] = _type_schema(hints[name])
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            properties[name]["default"] = parameter.default
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": getattr(function, "__name__", ""), "description": does, "parameters": parameters}


def _type_schema(hint: Any) -> Json:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, python_types.UnionType):
        return _type_schema(next(each for each in inner if each is not type(None)))
    if origin is list:
        return {"type": "array", "items": _type_schema(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type_schema(inner[1])}
    return dict(_TYPES[hint])


# The eight tools


@tool("Find lessons of others about a task: state the task, in any language.")
async def knowledge_search(
    query: str, top_k: int = 5, min_score: int = 3, types: list[str] | None = None
) -> ToolResult:
    return await _search(query, top_k, min_score, types, TIMEOUT_S)


async def _search(query: str, top_k: int, min_score: int, types: list[str] | None, timeout_s: float) -> ToolResult:
    params = {"q": query[:2000], "top_k": top_k, "min_score": min_score, "types": ",".join(types or ()) or None}
    answer = await request("GET", "/api/knowledge/search", params=params, timeout_s=timeout_s)
    items = answer["results"]
    rest = {name: value for name, value in answer.items() if name != "results"}
    output = knowledge_block(items, language_of(query))
    if answer["hidden"]:
        output += "\n" + _say("{} entries that you may not see", answer["hidden"])
    return ToolResult(_say("🔍 {} found", len(items)), output, {"items": items, **rest})


@tool("Keep a lesson: `task` is the situation, `content` what to do there. No passwords or keys: see resource_save.")
async def knowledge_save(
    task: str,
    content: str,
    types: list[str],
    tags: dict[str, str] | None = None,
    scopes: list[str] | None = None,
    owner: str | None = None,
    source_name: str = "",
    source_category: str = "exp",
    urls: list[str] | None = None,
    agent_id: str = "research_agent",
    submitted_by: str = "",
    score: int = 3,
    message_id: str = "",
    resource_ids: list[str] | None = None,
) -> ToolResult:
    source = {"name": source_name, "category": source_category, "urls": urls or [], "agent_id": agent_id}
    body = {
        "task": task,
        "content": content,
        "types": types,
        "tags": tags or {},
        "owner": owner or f"agent:{agent_id}",
        "source": {**source, "submitted_by": submitted_by},
        "score": score,
        "message_id": message_id,
        "resource_ids": resource_ids or [],
        "scopes": scopes or await default_scopes(),
    }
    answer = await request("POST", "/api/knowledge", body=body)
    entry = answer["entry"]
    output = "\n".join([f"{entry['id']}: {tidy(entry['task'])}", *map(_say, filter(None, [answer["note"]]))])
    for other in answer["similar"]:
        output += "\n" + _say("resembles {}: {}", other["id"], tidy(other["task"]))
    return ToolResult(_say("✅ Knowledge saved"), output, {"items": [entry], **answer})


@tool("Judge an entry by a case (task, outcome, reason), score it 1 to 5, or say how its text should be improved.")
async def knowledge_update(
    knowledge_id: str,
    add_helpful_case: dict[str, Any] | None = None,
    add_harmful_case: dict[str, Any] | None = None,
    update_score: int | None = None,
    evolve_feedback: str | None = None,
) -> ToolResult:
    given: Json = {"add_helpful_case": add_helpful_case, "add_harmful_case": add_harmful_case}
    given |= {"update_score": update_score, "evolve_feedback": evolve_feedback}
    body = {name: value for name, value in given.items() if value is not None}
    answer = await request("PUT", f"/api/knowledge/{quote(knowledge_id, safe='')}", body=body)
    judged, evolution = answer["entry"]["eval"], answer.get("evolution")
    output = _say("score {}, helpful {}, harmful {}", judged["score"], judged["helpful"], judged["harmful"])
    if answer["note"]:
        output += "\n" + _say(answer["note"])
    if evolution:
        why = f" ({evolution['reason']})" if evolution["reason"] else ""
        output += "\n" + _say("the rewriting is {}", _say(evolution["state"])) + why
    return ToolResult(_say("✅ Knowledge updated"), output, {"items": [answer["entry"]], **answer})


@tool("Judge several entries at once: each with knowledge_id, is_helpful and case.")
async def knowledge_batch_update(feedback_list: list[dict[str, Any]]) -> ToolResult:
    answer = await request("POST", "/api/knowledge/batch_update", body={"feedback_list": feedback_list})
    notes = (f"{each['knowledge_id']}: {_say(each['detail'])}" for each in answer["results"] if each["detail"])
    output = "\n".join([_say("{} judged", answer["updated"]), *notes])
    return ToolResult(_say("✅ Feedback kept"), output, {"items": answer["results"], **answer})


@tool("List what was saved, newest first.")
async def knowledge_list(
    limit: int = 10, types: list[str] | None = None, scopes: list[str] | None = None
) -> ToolResult:
    params = {"limit": limit, "types": ",".join(types or ()) or None, "scopes": ",".join(scopes or ()) or None}
    answer = await request("GET", "/api/knowledge", params=params)
    items = answer["results"]
    lines = [f"{item['id']} [{', '.join(item['types'])}] {tidy(item['task'])}" for item in items]
    more = "\n" + _say("… and more") if answer["next_cursor"] else ""
    metadata = {"items": items, "next_cursor": answer["next_cursor"]}
    return ToolResult(_say("📋 {} entries", len(items)), "\n".join(lines) + more, metadata)


@tool("Return one entry whole, with its cases.")
async def knowledge_get(knowledge_id: str) -> ToolResult:
    entry = await request("GET", f"/api/knowledge/{quote(knowledge_id, safe='')}")
    return ToolResult(
        f"📖 {tidy(entry['task'])}", knowledge_block([entry], language_of(entry["task"])), {"items": [entry]}
    )


@tool("Merge entries that say the same; with dry_run only say which.")
async def knowledge_slim(model: str = "google/gemini-2.0-flash-001", dry_run: bool = False) -> ToolResult:
    body = {"model": model, "dry_run": dry_run}
    answer = await request("POST", "/api/knowledge/slim", body=body, timeout_s=600.0)
    clusters = answer["plan"]["clusters"]
    writer = answer["model"] or _say("equal texts")
    output = _say("{} merged, {} groups, by {}", answer["merged"], len(clusters), writer)
    return ToolResult(_say("✅ Slimmed" if answer["merged"] else "📋 Slim plan"), output, {"items": clusters, **answer})


@tool("Keep code, an account or a cookie under a path; whatever must stay secret goes into secure_body alone.")
async def resource_save(
    resource_id: str,
    title: str,
    body: str = "",
    secure_body: str = "",
    content_type: str = "text",
    metadata: dict[str, Any] | None = None,
    scopes: list[str] | None = None,
    expires_at: str | None = None,
) -> ToolResult:
    said: Json = {"body": body, "metadata": metadata, "secure_body": secure_body, "expires_at": expires_at}
    said |= {"scopes": scopes, "content_type": "" if content_type == "text" else content_type}
    given = {"title": title} | {name: value for name, value in said.items() if value}
    path = _resource_path(resource_id)
    try:
        answer = await request("PUT", path, body={"scopes": await default_scopes(), **given})
    except CallError as error:
        if error.code != "version-needed":
            raise
        answer = await request("PUT", path, body=given, if_match="*")  # what is not said stays as it is
    kept = answer["resource"]
    return ToolResult(_say("✅ Resource saved"), _resource_text(kept), {"items": [kept], **answer})


@tool("Read a resource; where it has a secret, write the placeholder shown and let a tool fill it in.")
async def resource_get(resource_id: str, reveal: bool = False) -> ToolResult:
    found = await request("GET", _resource_path(resource_id))
    placeholder = _placeholder(found["id"]) if found["secret"] == "sealed" else ""
    metadata: Json = {"items": [{**found, "placeholder": placeholder}]}
    if reveal:
        answer = await request("GET", _resource_path(resource_id, "secret"))
        metadata["secure_body"] = answer["secure_body"]
    return ToolResult(f"📦 {tidy(found['title'])}", _resource_text(found), metadata)


def _resource_path(id: str, kind: str = "resource") -> str:
    return f"/api/{kind}/{quote(id, safe='/')}"


def _resource_text(found: Mapping[str, Any]) -> str:
    said = found["id"], _say(found["content_type"]), found["version"], tidy(found["title"])
    lines = [_say("{} ({}, version {}): {}", *said)]
    if found["secret"] != "none":
        secret = _placeholder(found["id"]) if found["secret"] == "sealed" else _say(found["secret"])
        lines.append(_say("secret: {}", secret))
    return "\n".join([*lines, str(found["body"])]).rstrip()


def _placeholder(id: str) -> str:
    return f"{{{{secret:{id}}}}}"


TOOLS: tuple[Tool[...], ...] = (
    *(knowledge_search, knowledge_save, knowledge_update, knowledge_batch_update, knowledge_list, knowledge_slim),
    *(resource_save, resource_get),
)
"""All that an agent is given; each has `schema`."""

# Secrets, filled in as a tool acts. What an agent read, and repeats, may hold a reference that a stranger wrote beside
# an address of theirs. So no text is searched for hosts: where the target is not a field of its own, the reference
# stays, and the sender of the request resolves it then.


_REFERENCE = re.compile(r"\{\{secret:([A-Za-z0-9._/-]{1,200})\}\}")
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?").fullmatch
_URL = re.compile(r"https://[!-~]+").fullmatch
_ELSEWHERE = frozenset(["host", ":authority", "forwarded", "x-forwarded-host", "proxy-authorization"])
"""Headers by which a server hands a request on, or that are for another server than the URL's."""


@dataclass(frozen=True)
class HttpCall:
    """A request that is about to be sent; do not follow its redirects with what was filled in."""

    url: str
    """With the scheme https, and a host that the resource's `metadata.allowed_hosts` has; references in it stay."""
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class ProgramCall:
    """A program that is about to be started, without a shell."""

    program: str
    """As `metadata.allowed_programs` of the resource names it: `{"gh": ["GH_TOKEN"]}`, its variables."""
    arguments: tuple[str, ...] = ()
    """References in them stay: other users of the machine see them."""
    environment: Mapping[str, str] = field(default_factory=dict)


_Call = TypeVar("_Call", bound=str | HttpCall | ProgramCall)


async def fill_secrets(call: _Call, allowed: Collection[str]) -> _Call:
    """Return a call with the secrets that it refers to, for a tool as it acts, never for a model.

        call = HttpCall("https://api.example.com/login", headers={"Authorization": "Bearer {{secret:credentials/a}}"})
        call = await fill_secrets(call, allowed=["credentials/a"])      # send it now

    A reference `{{secret:<id>}}` stays as it is in a text, which names no target; where the call does not name the
    resource as allowed; and where the resource does not list the target. The list is `metadata.allowed_hosts` (a host,
    with a port where it is not 443) or `metadata.allowed_programs`.

    Args:
        call: The call that the tool is about to make.
        allowed: The resources that this tool may use.

    Raises:
        CallError: A secret that may be filled in is not available; nothing was filled in.
    """
    if isinstance(call, HttpCall):
        host = host_of(call)
        known = await _secrets([*call.headers.values(), call.body], allowed, functools.partial(_takes_host, host))
        headers = {name: _filled(text, known) for name, text in call.headers.items()}
        return cast("_Call", replace(call, headers=headers, body=_filled(call.body, known)))
    if isinstance(call, ProgramCall):
        program, environment = call.program, dict(call.environment)
        for name, text in call.environment.items():
            known = await _secrets([text], allowed, functools.partial(_takes_variable, program, name))
            environment[name] = _filled(text, known)
        return cast("_Call", replace(call, environment=environment))
    return call


async def _secrets(
    texts: Iterable[str], allowed: Collection[str], is_meant: Callable[[Mapping[str, Any]], bool]
) -> dict[str, str]:
    """Return the secrets that texts refer to, of those resources whose metadata list the target."""
    known: dict[str, str] = {}
    for id in dict.fromkeys(id for text in texts for id in _REFERENCE.findall(text)):
        if id in allowed and is_meant((await request("GET", _resource_path(id)))["metadata"]):
            known[id] = str((await request("GET", _resource_path(id, "secret")))["secure_body"])
    return known


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: known.get(match[1], match[0]), text)


def host_of(call: HttpCall) -> str:
    """Return the host that a request goes to, with its port where that is not 443; "" where it is not certain.

    >>> host_of(HttpCall("https://API.good.example:443/a?b=@c")), host_of(HttpCall("https://a.example:8443"))
    ('api.good.example', 'a.example:8443')
    >>> [host_of(HttpCall(url)) for url in ("http://a.example", "https://evil.example@a.example", "https://a。example")]
    ['', '', '']
    >>> host_of(HttpCall("https://a.example", headers={"Host": "evil.example"}))
    ''
    """
    try:
        parts, port = urlsplit(call.url), urlsplit(call.url).port
    except ValueError:
        return ""
    host = (parts.hostname or "").lower()
    # Parsers differ in what they make of anything else; this form has one reading.
    is_plain = _URL(call.url) and "\\" not in call.url and parts.netloc.lower() in (host, f"{host}:{port}")
    if not is_plain or not _HOST(host) or not _ELSEWHERE.isdisjoint(name.strip().lower() for name in call.headers):
        return ""
    return host if port in (None, 443) else f"{host}:{port}"


def _takes_host(host: str, metadata: Mapping[str, Any]) -> bool:
    return bool(host) and host in map(str.lower, strings_of(metadata.get("allowed_hosts")))


def _takes_variable(program: str, variable: str, metadata: Mapping[str, Any]) -> bool:
    return variable in strings_of(mapping_of(metadata.get("allowed_programs")).get(program))
