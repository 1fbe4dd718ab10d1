"""The two generations of the MCP SDK, where they differ: `MCPServer` of 2.x, `FastMCP` of 1.x.

Both serve the tools of `server` unchanged. What is different is where things are imported from, how a client subscribes
to a resource, and where a port is given.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

try:
    import mcp.types as types
    from anyio import to_thread
except ImportError as error:
    raise ImportError("the MCP server needs the package mcp: pip install '.[mcp]' in its repository") from error

from ...keyword_tree import __version__

__all__ = ["Context", "ToolError", "Watchers", "client_of", "make_server", "run", "shorten_schemas", "to_thread"]
__all__ += ["types"]

try:
    _sdk: Any = import_module("mcp.server.mcpserver")
    _errors: Any = import_module("mcp.server.mcpserver.exceptions")
    _IS_SECOND = True
except ModuleNotFoundError:
    _sdk = import_module("mcp.server.fastmcp")
    _errors = import_module("mcp.server.fastmcp.exceptions")
    _IS_SECOND = False

if TYPE_CHECKING:
    Context: TypeAlias = Any
else:
    Context = _sdk.Context
ToolError: type[Exception] = _errors.ToolError


def make_server(name: str, instructions: str) -> Any:
    """Return a server without tools; it prints errors on stderr, and no more."""
    if _IS_SECOND:
        server = _sdk.MCPServer(name, version=__version__, instructions=instructions, log_level="WARNING")
    else:
        server = _sdk.FastMCP(name, instructions=instructions, log_level="WARNING")
        server._mcp_server.version = __version__
    return server


def run(server: Any, port: int | None) -> None:
    """Serve on stdin and stdout, or on a port of the loopback, until the other side ends it."""
    if port is None:
        server.run("stdio")
    elif _IS_SECOND:
        server.run("streamable-http", host="127.0.0.1", port=port)
    else:
        server.settings.port = port  # its host is the loopback by itself
        server.run("streamable-http")


def client_of(context: Any) -> str | None:
    """Return which client a request is of: its session, empty where there is one client alone (stdio).

    None where that is not known: by the protocol of 2026-07-28 a request over HTTP has no session.
    """
    request = getattr(context.request_context, "request", None)
    return "" if request is None else request.headers.get("mcp-session-id")


def shorten_schemas(server: Any) -> None:
    """Shorten the tools' schemas, which a model reads with each request: no titles, no definitions to look up."""
    for tool in server._tool_manager.list_tools():
        tool.parameters = _shorten(tool.parameters, tool.parameters.get("$defs", {}))


def _shorten(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_shorten(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _shorten(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {
        name: {each: _shorten(inner, definitions) for each, inner in value.items()}
        if name == "properties"
        else _shorten(value, definitions)
        for name, value in schema.items()
        if name not in ("title", "$defs")
    }


class Watchers:
    """The clients that are notified when a resource changes.

    Clients of 2026-07-28 listen to a stream that the SDK serves; those before it subscribe, and the SDK leaves that to
    us, in both generations through the low-level server.

    Args:
        server: What `make_server` returned.
    """

    def __init__(self, server: Any) -> None:
        # Of a session there is a new object for each request, of what its client said of itself one in all. It is kept
        # along, so that no other object gets its id.
        self._sessions: dict[tuple[int, str], tuple[object, Any]] = {}
        if _IS_SECOND:
            lowlevel = server._lowlevel_server
            lowlevel.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
            lowlevel.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        else:
            self._serve_first(server._mcp_server)

    def _serve_first(self, lowlevel: Any) -> None:
        def handler(note: Callable[[Any, Any], None]) -> Callable[[Any], Awaitable[None]]:
            async def handle(uri: Any) -> None:
                note(lowlevel.request_context.session, str(uri))

            return handle

        lowlevel.subscribe_resource()(handler(self._add))
        lowlevel.unsubscribe_resource()(handler(self._remove))
        capabilities = lowlevel.get_capabilities

        def with_subscriptions(*arguments: Any) -> Any:
            made = capabilities(*arguments)
            made.resources.subscribe = True  # 1.x says False, whatever is handled
            return made

        lowlevel.get_capabilities = with_subscriptions

    async def _subscribe(self, context: Any, params: Any) -> Any:
        self._add(context.session, params.uri)
        return types.EmptyResult()

    async def _unsubscribe(self, context: Any, params: Any) -> Any:
        self._remove(context.session, params.uri)
        return types.EmptyResult()

    def _add(self, session: Any, uri: str) -> None:
        self._sessions[id(session.client_params), uri] = (session.client_params, session)

    def _remove(self, session: Any, uri: str) -> None:
        self._sessions.pop((id(session.client_params), uri), None)

    async def notify(self, context: Any, uri: str) -> None:
        """Notify all of them that a resource has changed; a client that is gone is forgotten."""
        if _IS_SECOND:
            await context.notify_resource_updated(uri)
        for key, (_, session) in list(self._sessions.items()):
            if key[1] != uri:
                continue
            try:
                await session.send_resource_updated(uri)
            except Exception:  # whatever a broken pipe is called in this transport: the change itself is done
                self._sessions.pop(key, None)
