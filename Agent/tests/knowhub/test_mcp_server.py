"""Tests of the MCP server with the official SDK's own client: in memory, on stdin and stdout, and over HTTP."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.mcpserver")  # version 2

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from Agent.knowhub.application import create_app
from Agent.knowhub.hub import LOCAL, KnowHub
from Agent.knowhub.mcp_server import make_server
from Agent.knowhub.serving import add_mcp
from Agent.knowhub.tools import TOOLS as TOOLS_OF_AGENTS
from Agent.tests.knowhub.support import Served, serve

TOOLS = {
    "knowledge_search", "knowledge_save", "knowledge_update", "knowledge_batch_update", "knowledge_list",
    "knowledge_slim", "knowledge_get", "resource_save", "resource_get",
}  # fmt: skip
MODES: Any = ("auto", "legacy")
SECRET = "SENTINEL-hunter2"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    with KnowHub(tmp_path_factory.mktemp("hub")) as hub, serve(hub, add_mcp) as running:
        yield running


@contextlib.asynccontextmanager
async def over_http(served: Served, token: str, mode: Any) -> AsyncIterator[Client]:
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with http, Client(streamable_http_client(f"{served.url}/mcp", http_client=http), mode=mode) as client:
        yield client


async def workout(client: Client) -> None:
    """Go through what a host does."""
    assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
    said = {"task": "log in with selenium", "content": "Wait at random.", "types": ["tool"]}
    saved = await client.call_tool("knowledge_save", said)
    assert not saved.is_error, saved
    id = saved.structured_content["items"][0]["id"]
    found = await client.call_tool("knowledge_search", {"query": "selenium login"})
    assert id in [item["id"] for item in found.structured_content["items"]]
    await client.call_tool("knowledge_update", {"knowledge_id": id, "add_helpful_case": {"task": "t"}})
    got = await client.call_tool("knowledge_get", {"knowledge_id": id})
    assert got.structured_content["items"][0]["eval"]["helpful_history"][0]["task"] == "t"
    kept_so = {"resource_id": f"a/{id}", "title": "A", "body": "public", "secure_body": SECRET}
    kept = await client.call_tool("resource_save", kept_so)
    assert not kept.is_error
    read = await client.call_tool("resource_get", {"resource_id": f"a/{id}"})
    assert read.structured_content["items"][0]["placeholder"] == f"{{{{secret:a/{id}}}}}"
    assert SECRET not in str(read) + str(kept)
    wrong = await client.call_tool("knowledge_get", {"knowledge_id": "knowledge-nowhere"})
    assert wrong.is_error
    assert "not-found" in str(wrong.content)
    entry = (await client.read_resource(f"knowhub://knowledge/{id}")).contents[0]
    assert json.loads(entry.text)["task"] == "log in with selenium"  # type: ignore[union-attr]
    body = (await client.read_resource(f"knowhub://resource/a/{id}")).contents[0]
    assert body.text == "public"  # type: ignore[union-attr]
    prompt = await client.get_prompt("research", {"question": "怎样登录?"})
    assert "knowledge_search" in str(prompt.messages[0].content)
    reflected = await client.get_prompt("reflect", {"transcript": f"password: {SECRET} works", "goal": "log in"})
    assert SECRET not in str(reflected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_over_http", [False, True])
def test_in_memory_and_over_http(hub: KnowHub, served: Served, mode: Any, is_over_http: bool) -> None:
    async def run() -> None:
        token = served.token(f"host-{mode}")
        own = over_http(served, token, mode) if is_over_http else Client(make_server(hub, LOCAL), mode=mode)
        async with own as client:
            await workout(client)

    asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_on_stdin_and_stdout(tmp_path: Path, mode: Any) -> None:
    command = ["-m", "Agent.cli.command_line", "hub", "mcp", "--data", str(tmp_path / "hub")]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    here = str(Path(__file__).parents[3])
    parameters = StdioServerParameters(command=sys.executable, args=command, env=environment, cwd=here)

    async def run() -> None:
        async with Client(parameters, mode=mode) as client:
            await workout(client)

    asyncio.run(run())


def test_the_tools_are_those_of_an_agent_but_that_they_reveal_nothing(hub: KnowHub) -> None:
    async def run() -> Any:
        async with Client(make_server(hub, LOCAL)) as client:
            return (await client.list_tools()).tools

    listed = {each.name: each for each in asyncio.run(run())}

    for own in TOOLS_OF_AGENTS:
        theirs, schema = listed[own.__name__], own.schema
        assert theirs.description == schema["description"]
        parameters = schema["parameters"]["properties"]
        assert set(theirs.input_schema["properties"]) == set(parameters) - {"reveal"}
        defaults = {name: each["default"] for name, each in parameters.items() if "default" in each}
        shown = theirs.input_schema["properties"]
        assert {name: each.get("default") for name, each in shown.items() if name in defaults} == {
            name: value for name, value in defaults.items() if name in shown
        }


def test_each_connection_sees_what_its_token_sees(served: Served) -> None:
    ada, eve = (served.token(name, ["read", "write"], []) for name in ("ada-mcp", "eve-mcp"))

    async def run() -> tuple[Any, Any, Any]:
        async with over_http(served, ada, "auto") as one, over_http(served, eve, "auto") as other:
            saved = await one.call_tool("knowledge_save", {"task": "hush", "content": "for ada", "types": ["tool"]})
            id = saved.structured_content["items"][0]["id"]
            mine = await one.call_tool("knowledge_get", {"knowledge_id": id})
            theirs = await other.call_tool("knowledge_get", {"knowledge_id": id})
            return mine, theirs, await other.call_tool("knowledge_list", {"limit": 200})

    mine, theirs, listed = asyncio.run(run())

    assert not mine.is_error
    assert theirs.is_error
    assert "for ada" not in str(theirs) + str(listed)


def test_nobody_comes_in_without_a_token_or_by_another_name(served: Served) -> None:
    for headers in ({}, {"Authorization": "Bearer kh_wrong"}):
        assert served.anonymous(headers).post("/mcp", json={}).status_code == 401
    assert served.client().post("/mcp", json={}, headers={"Host": "evil.example"}).status_code == 421


def test_under_a_path_of_another_application_it_is_the_same(hub: KnowHub) -> None:
    app: Any = create_app(hub)
    add_mcp(app)
    outer = Starlette(routes=[Mount("/hub", app)], lifespan=lambda _: app.api.lifespan_context(app.api))
    known = {"Authorization": f"Bearer {hub.tokens.make('ada', scopes=['*'])[0]}"}
    ping: Any = {"json": {"jsonrpc": "2.0", "id": 1, "method": "ping"}, "headers": {"Accept": "application/json"}}
    with TestClient(outer, base_url="http://127.0.0.1") as client:
        assert [client.get("/hub/api/me").status_code, client.post("/hub/mcp", **ping).status_code] == [401, 401]
        client.headers |= known
        assert client.get("/hub/api/me").json()["principal"] == "ada"
        assert client.post("/hub/mcp", **ping).json()["result"] == {}
