# ruff: noqa: E402  without the SDK nothing here can be imported
"""Tests of a session as an MCP server, through the SDK's client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from Agent.cli.command_line import mcp as main
from Agent.context_engine import ContextEngineService, InvalidInputError, RequestContext

mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
if not hasattr(mcp, "Client"):
    pytest.skip("these tests drive the server by the client of the SDK 2.x", allow_module_level=True)

from Agent.adapters.mcp import sdk
from Agent.adapters.mcp.serving import build_session_server, read_session
from Agent.tests.adapters.mcp.test_server import ask

ADA = RequestContext("acme", "ada", "helper", "monday")
SAID = [{"role": "user", "content": "My cat is called Mimi."}, {"role": "assistant", "content": "你好!"}]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ContextEngineService]:
    with ContextEngineService(tmp_path / "memory") as engine:
        yield engine


def call(engine: ContextEngineService, name: str, **arguments: Any) -> Any:
    return ask(build_session_server(engine, ADA), lambda client: client.call_tool(name, arguments))


def read(result: Any) -> Any:
    return json.loads(result.content[0].text)


class TestASession:
    def test_is_committed_once_and_found(self, engine: ContextEngineService) -> None:
        assert read(call(engine, "commit", messages=SAID)) == {"status": "archived", "new": 2, "memories": []}
        assert read(call(engine, "commit", messages=SAID))["status"] == "unchanged"
        found = read(call(engine, "search", query="What is my cat called?", top_k=1))

        assert [block["text"] for block in found["blocks"]] == ["My cat is called Mimi."]
        assert found["omitted"] == 0

    def test_begins_with_a_brief(self, engine: ContextEngineService) -> None:
        engine.remember(ADA, "Is allergic to peanuts.", "preferences", "peanuts")

        assert "allergic to peanuts" in read(call(engine, "brief"))["text"]

    def test_sees_no_other_user(self, engine: ContextEngineService) -> None:
        bob = RequestContext("acme", "bob", "other", "monday")
        engine.commit_session(bob, [{"role": "user", "content": "My cat is called Tom."}])

        assert read(call(engine, "search", query="cat called Tom"))["blocks"] == []

    def test_names_what_is_wrong(self, engine: ContextEngineService) -> None:
        result = call(engine, "search", query="x", top_k=0)

        assert "top_k" in result.content[0].text

    def test_is_served_by_the_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        served: list[Any] = []
        monkeypatch.setattr(
            sdk, "run", lambda server, port: served.append(ask(server, lambda client: client.list_tools()))
        )
        assert main([str(tmp_path / "memory"), "--session", "acme/ada/helper/monday"]) == 0

        assert [tool.name for tool in served[0].tools] == ["commit", "search", "brief"]

    def test_needs_four_names(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="acme/ada"):
            read_session("acme/ada")
        assert main([str(tmp_path), "--session", "acme//helper/s"]) == 2
        assert "ACCOUNT/USER/AGENT/SESSION" in capsys.readouterr().err
