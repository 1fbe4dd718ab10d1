"""A hub's server: the gate, the routes, errors, health and figures.

>>> import tempfile
>>> from .hub import KnowHub
>>> with tempfile.TemporaryDirectory() as folder, KnowHub(folder) as hub:
...     app = create_app(hub)
...     sorted(app.api.openapi()["paths"])[:3]
['/api/access', '/api/export', '/api/group']

`/openapi.json` describes it all; `/api` is a page that shows it without foreign scripts. Errors are problems
(RFC 9457), and repeat no part of a request.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import Gauge, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from .answers import ProblemOut
from .gate import Gate, Settings, problem
from .hub import KnowHub
from .records import Json, KnowHubError
from .server import CallRoute, answer, router
from .tokens import need

SWEEP_S, TEND_S = 60, 2
"""Seconds between two looks for expired secrets, and for new words."""

CALLS = 40
"""Threads of calls: some of them wait for models."""

_log = logging.getLogger(__name__)

_SCHEME = {"type": "http", "scheme": "bearer", "description": "`kh_…`, as `knowhub token` makes it"}


class Application:
    """A hub's server as an ASGI application: the gate, and the API behind it.

    Args:
        hub: The hub that it asks.
        settings: See `Settings`.
        closes_hub: Close the hub when the server stops.

    Attributes:
        api: The FastAPI application itself.
        gate: The gate of all requests.
        contexts: Context managers, entered when the server starts and left when it stops.
        show_problem: Returns a problem as a page, where there are pages.
    """

    show_problem: Callable[[Request, KnowHubError], Response] | None = None

    def __init__(self, hub: KnowHub, settings: Settings | None = None, *, closes_hub: bool = False) -> None:
        # It logs what is searched for, however the server is started.
        logging.getLogger("uvicorn.access").disabled = True
        self.hub = hub
        self.settings = settings = settings or Settings()
        self.api = _make_api(self, closes_hub)
        self.gate = Gate(self.api, hub.tokens, settings)
        self.contexts: list[Callable[[], contextlib.AbstractAsyncContextManager[None]]] = []
        self._outer: Any = self.gate
        if settings.cors:
            methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
            allowed = ["Authorization", "Content-Type", "If-Match", "Idempotency-Key"]
            shown = ["ETag", "Retry-After", "X-Request-Id"]
            self._outer = CORSMiddleware(self.gate, [settings.cors], methods, allowed, expose_headers=shown)
        figures: dict[str, tuple[str, Callable[[], float]]] = {
            "largest_share": ("Entries and resources of the principal with most", hub.catalog.largest_share),
            "quota_entries": ("What one principal may keep: entries", lambda: hub.quota.entries),
            "quota_bytes": ("What one principal may keep: bytes", lambda: hub.quota.size),
            "model_calls": ("Calls of models", lambda: hub.models.calls),
        }
        for kind in ("knowledge", "feedback", "resource", "proposal"):
            figures[f"{kind}_records"] = f"Records: {kind}", lambda kind=kind: hub.catalog.counts().get(kind, 0)  # type: ignore[misc]
        for name, (does, count) in figures.items():
            Gauge(f"knowhub_{name}", does, registry=self.gate.registry).set_function(count)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        # A preflight under another name gets the refusal of the gate, too.
        is_outside = self._outer is self.gate or not self.gate.answers_to(scope)
        await (self.gate if is_outside else self._outer)(scope, receive, send)


create_app = Application


def _make_api(application: Application, closes_hub: bool) -> FastAPI:
    hub = application.hub

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(CALLS, "KnowHub call"))
        sweeping = asyncio.create_task(_sweep(hub))
        async with contextlib.AsyncExitStack() as entered:
            for enter in application.contexts:
                await entered.enter_async_context(enter())
            yield
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        if closes_hub:
            await run_in_threadpool(hub.close)

    api = FastAPI(
        title="KnowHub",
        description="What one learned to do, all may find by task, weigh by its worth, and improve by feedback.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        lifespan=lifespan,
        # Validation failures would be returned with their values, and these may be secrets.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    api.middleware_stack = _Calls(api, application)
    api.router.route_class = CallRoute
    api.state.hub = hub
    api.router.routes += router.routes  # included, each request would look for its route twice
    _add_house(api, application)
    _describe_problems(api)
    return api


async def _sweep(hub: KnowHub) -> None:
    for look in itertools.count():
        does = hub.catalog.tend_at_leisure if look * TEND_S % SWEEP_S else hub.sweep
        try:
            await run_in_threadpool(does if look else hub.catalog.warm)
        except Exception as error:  # it comes again in a minute
            _log.warning("the sweep failed: %s", type(error).__name__)
        await asyncio.sleep(TEND_S)


class _Calls:
    """The routes of an API, whose refusals become problems: as a page to a browser, where there are pages.

    They stand in the place of FastAPI's own layers, which do more, and take as long as a short call.
    """

    def __init__(self, api: FastAPI, application: Application) -> None:
        self._api, self._application = api, application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._api.router(scope, receive, send)
        except KnowHubError as error:
            await self._refuse(error, {}, scope, receive, send)
        except HTTPException as error:
            wrong, headers = KnowHubError("bad-request", "the request cannot be read"), {}
            if error.status_code == 405:
                headers["Allow"] = ", ".join(sorted(_methods_of(self._api, scope)))
                wrong = KnowHubError("method-not-allowed", f"it knows {headers['Allow']}")
            elif error.status_code == 404:
                wrong = KnowHubError("not-found", "there is nothing at this path")
            await self._refuse(wrong, headers, scope, receive, send)

    async def _refuse(
        self, error: KnowHubError, headers: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        request, show = Request(scope, receive), self._application.show_problem
        if show is None or "text/html" not in request.headers.get("accept", ""):
            response = problem(error, scope, headers)
        else:
            response = await run_in_threadpool(show, request, error)
            response.headers.update(headers)
        await response(scope, receive, send)


def _methods_of(api: FastAPI, scope: Scope) -> set[str]:
    """Return all methods of a path; each function is a route of its own."""
    got = {**scope, "method": "GET"}
    matching = (route for route in api.router.routes if route.matches(got)[0] is not Match.NONE)
    return {method for route in matching for method in getattr(route, "methods", None) or ()}


def _add_house(api: FastAPI, application: Application) -> None:
    hub = application.hub

    @api.get("/healthz", include_in_schema=False)
    async def healthz(request: Request) -> Response:
        """Say that the process lives."""
        return answer({"status": "ok"})

    @api.get("/readyz", include_in_schema=False)
    async def readyz(request: Request) -> Response:
        """Say whether the disk or the database can be written; it listens only when it has caught up."""
        is_ready = await run_in_threadpool(hub.tokens.files.is_writable)
        return answer({"status": "ready" if is_ready else "not ready"}, 200 if is_ready else 503)

    @api.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:
        """Return figures for Prometheus: they count the records of all, so only for a token that sees all."""
        need(request.state.token, "read")
        if not request.state.token.sees_all():
            raise KnowHubError("forbidden", "the figures count the records of all: the token needs the scope *")
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
        for path in made["paths"].values():
            for method, operation in path.items():
                for parameter in operation.get("parameters", ()):
                    kinds = parameter["schema"].pop("anyOf", ())  # no parameter can be null: it is there, or it is not
                    parameter["schema"] |= next((kind for kind in kinds if kind != {"type": "null"}), {})
                    if parameter["name"] == "If-Match" and method in ("patch", "delete"):
                        parameter["required"] = True  # missing, it is 428 and not 422
        for field in (field for schema in schemas.values() for field in schema.get("properties", {}).values()):
            for each in (field, *field.get("anyOf", ())):
                if "patternProperties" in each:  # pydantic refuses the names that it does not mention here
                    each["additionalProperties"] = False
        return made

    api.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own pages tell to do it
