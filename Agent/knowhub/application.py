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
import functools
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from fastapi import Request, Response
from fastapi.openapi.utils import get_openapi
from prometheus_client import Gauge, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from ..base.checks import shorten
from ..keyword_tree import InvalidInputError
from .answers import ProblemOut
from .gate import Gate, Settings, problem
from .hub import KnowHub
from .records import Json, KnowHubError
from .server import CallsTogether, answer, router
from .tokens import Token, need

SWEEP_S, TEND_S = 60, 2
"""Seconds between two looks for expired secrets, and for new words."""

CALLS = 40
"""Threads of calls: some of them wait for models."""

_log = logging.getLogger(__name__)

caller: ContextVar[Token] = ContextVar("whom the gate let in with the request that is answered")

_SCHEME = {"type": "http", "scheme": "bearer", "description": "`kh_…`, as `knowhub token` makes it"}


class Application:
    """A hub's server as an ASGI application: the gate, and the API behind it.

    Args:
        hub: The hub that it asks.
        settings: See `Settings`.
        closes_hub: Close the hub when the server stops.

    Raises:
        InvalidInputError: `hub` is none.

    Attributes:
        api: Its routes.
        gate: The gate of all requests.
        contexts: Context managers, entered when the server starts and left when it stops.
        show_problem: Returns a problem as a page, where there are pages.
    """

    show_problem: Callable[[Request, KnowHubError], Response] | None = None

    def __init__(self, hub: KnowHub, settings: Settings | None = None, *, closes_hub: bool = False) -> None:
        if not isinstance(hub, KnowHub):
            raise InvalidInputError(f"hub must be a KnowHub, not {shorten(hub)}")
        # It logs what is searched for, however the server is started.
        logging.getLogger("uvicorn.access").disabled = True
        self.hub = hub
        self.settings = settings = settings or Settings()
        self.api = Api(self, closes_hub)
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
        if root := scope.get("root_path"):  # mounted in another application, or a proxy says so
            scope = {**scope, "root_path": "", "path": scope["path"].removeprefix(root)}
        # A preflight under another name gets the refusal of the gate, too.
        is_outside = self._outer is self.gate or not self.gate.answers_to(scope)
        await (self.gate if is_outside else self._outer)(scope, receive, send)


create_app = Application


class Api(Router):
    """The routes of a hub, whose refusals become problems: as a page to a browser, where there are pages.

    FastAPI describes them. Its own layers do more, and take as long as a short call.
    """

    def __init__(self, application: Application, closes_hub: bool) -> None:
        super().__init__([*router.routes], lifespan=lambda _: self._live(closes_hub))
        self.hub, self._application = application.hub, application
        self.together: CallsTogether | None = None  # of the loop that serves
        for does in (self.healthz, self.readyz, self.metrics):
            self.add_route(f"/{does.__name__}", does)
        self.add_route("/openapi.json", lambda _: answer(self.openapi()))

    @contextlib.asynccontextmanager
    async def _live(self, closes_hub: bool) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(CALLS, "KnowHub call"))
        self.together = CallsTogether(self.hub)
        sweeping = asyncio.create_task(_sweep(self.hub))
        async with contextlib.AsyncExitStack() as entered:
            for enter in self._application.contexts:
                await entered.enter_async_context(enter())
            yield
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        if closes_hub:
            await run_in_threadpool(self.hub.close)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self.lifespan(scope, receive, send)
            return
        scope["app"] = self
        caller.set(scope["state"]["token"])
        try:
            await self._route_of(scope).app(scope, receive, send)
        except KnowHubError as error:
            request = Request(scope, receive)
            show = self._application.show_problem if "text/html" in request.headers.get("accept", "") else None
            response = await run_in_threadpool(show, request, error) if show else problem(error, scope)
            if error.code == "method-not-allowed":
                response.headers["Allow"] = scope["allow"]
            await response(scope, receive, send)

    def _route_of(self, scope: Scope) -> Route:
        """Return the route of a request; the scope gets it, and what its path names."""
        allowed = set[str]()
        for route in self.routes:
            assert isinstance(route, Route)
            found = route.path_regex.fullmatch(scope["path"])
            if found is None:
                continue
            if not route.methods or scope["method"] in route.methods:
                scope["route"], scope["path_params"] = route, found.groupdict()
                return route
            allowed |= route.methods
        if not allowed:
            raise KnowHubError("not-found", "there is nothing at this path")
        scope["allow"] = ", ".join(sorted(allowed))
        raise KnowHubError("method-not-allowed", f"it knows {scope['allow']}")

    # -- the house --

    async def healthz(self, request: Request) -> Response:
        """Say that the process lives."""
        return answer({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Say whether the disk or the database can be written; it listens only when it has caught up."""
        is_ready = await run_in_threadpool(self.hub.tokens.files.is_writable)
        return answer({"status": "ready" if is_ready else "not ready"}, 200 if is_ready else 503)

    def metrics(self, request: Request) -> Response:
        """Return figures for Prometheus: they count the records of all, so only for a token that sees all."""
        need(request.state.token, "read")
        if not request.state.token.sees_all():
            raise KnowHubError("forbidden", "the figures count the records of all: the token needs the scope *")
        return Response(generate_latest(self._application.gate.registry), media_type="text/plain; version=0.0.4")

    @staticmethod
    @functools.cache
    def openapi() -> Json:
        """Return the document of the API, as FastAPI makes it, with the form of a problem, that no function returns."""
        says = "What one learned to do, all may find by task, weigh by its worth, and improve by feedback."
        about: Json = {"title": "KnowHub", "description": says, "version": "1"}
        made = get_openapi(**about, routes=router.routes, separate_input_output_schemas=False)
        made.setdefault("components", {})["securitySchemes"] = {"token": _SCHEME}
        schemas = made["components"].setdefault("schemas", {})
        schemas["ProblemOut"] = ProblemOut.model_json_schema()
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


async def _sweep(hub: KnowHub) -> None:
    for look in itertools.count():
        does = hub.catalog.tend_at_leisure if look * TEND_S % SWEEP_S else hub.sweep
        try:
            await run_in_threadpool(does if look else hub.catalog.warm)
        except Exception as error:  # it comes again in a minute
            _log.warning("the sweep failed: %s", type(error).__name__)
        await asyncio.sleep(TEND_S)
