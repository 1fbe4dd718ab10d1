# ruff: noqa: E402  without the SDK nothing here can be imported
"""Tests of the server itself: through the SDK's client in process, and as processes that a host starts and drops."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="the extra [mcp] is not installed")
if not hasattr(mcp, "Client"):
    pytest.skip("these tests drive the server by the client of the SDK 2.x", allow_module_level=True)

from Agent.adapters import items
from Agent.adapters.mcp import graph, sdk
from Agent.adapters.mcp.server import OPERATION, RESOURCE, build_server
from Agent.cli.command_line import mcp as main
from Agent.finding import embedder
from Agent.finding.embedder import HashingEmbedder, Meaning
from Agent.keyword_tree import KeywordTree, StoreError
from Agent.tests.support.missing import without

ROOT = Path(__file__).resolve().parents[4]
WRITES = 1_000 if os.environ.get("KEYWORD_TREE_STORM") else 10
FIRST_SDK = Path(os.environ.get("KEYWORD_TREE_MCP_1", ROOT / ".venv" / "mcp-1"))
"""Where `make test` puts the SDK 1.x, beside the one that is installed."""


def ask(server: Any, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    """Connect a client to a server, in process or as a program, and let it work."""

    async def run() -> Any:
        async with mcp.Client(server, **options) as client:
            return await work(client)

    return asyncio.run(run())


def call(tree: KeywordTree, name: str, **arguments: Any) -> Any:
    return ask(build_server(tree), lambda client: client.call_tool(name, arguments))


def program(folder: Path, **environment: str) -> Any:
    python_path = os.pathsep.join(filter(None, [environment.pop("PYTHONPATH", ""), str(ROOT)]))
    return mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "Agent.cli.command_line", "mcp", str(folder)],
        env={**os.environ, **environment, "PYTHONPATH": python_path},
    )


ADA = {"name": "Ada", "entityType": "person", "observations": ["plays chess"]}


class TestTools:
    def test_are_those_of_the_reference_and_nine_more(self, tree: KeywordTree) -> None:
        tools = {tool.name: tool for tool in ask(build_server(tree), lambda client: client.list_tools()).tools}

        assert list(tools) == [
            *("create_entities", "create_relations", "add_observations"),
            *("delete_entities", "delete_observations", "delete_relations"),
            *("read_graph", "search_nodes", "open_nodes"),
            *("recall", "search", "look_beneath", "place", "remember", "correct", "forget", "history", "undo"),
        ]
        for name, tool in tools.items():
            assert tool.output_schema is not None
            assert tool.title
            assert tool.annotations.open_world_hint is False
            assert tool.annotations.read_only_hint is (
                name.split("_")[0] in {"read", "recall", "search", "open", "look", "history"}
            )
            assert tool.annotations.destructive_hint is (name.split("_")[0] in {"delete", "undo", "correct", "forget"})
        relation = tools["create_relations"].input_schema["properties"]["relations"]["items"]
        assert relation["required"] == ["from", "to", "relationType"]

    def test_results_fit_their_schemas(self, tree: KeywordTree) -> None:
        from jsonschema import validate  # type: ignore[import-untyped]

        calls: list[tuple[str, dict[str, Any]]] = [
            ("create_entities", {"entities": [ADA]}),
            ("create_relations", {"relations": [{"from": "Ada", "to": "Eve", "relationType": "knows"}]}),
            ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["speaks 中文"]}]}),
            ("read_graph", {}),
            ("search_nodes", {"query": "chess"}),
            ("open_nodes", {"names": ["Ada"]}),
            ("search", {"query": "Ada"}),
            ("search", {"query": "chess player"}),
            ("look_beneath", {}),
            ("place", {"name": "chess"}),
            ("place", {"name": "chess", "parent_id": "root"}),
            ("remember", {"content": "It has 64 squares.", "keywords": ["chess"]}),
            ("history", {}),
            ("undo", {}),
            ("delete_observations", {"deletions": [{"entityName": "Ada", "observations": ["plays chess"]}]}),
            ("delete_relations", {"relations": [{"from": "Ada", "to": "Eve", "relationType": "knows"}]}),
            ("delete_entities", {"entityNames": ["Ada"]}),
        ]

        async def work(client: Any) -> None:
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, (name, result)
                validate(result.structured_content, schemas[name])
                reported = result.content[0].text
                writes = (
                    name.split("_")[0] in {"create", "add", "delete", "remember", "undo"} or "parent_id" in arguments
                )
                assert (OPERATION in (result.meta or {})) == writes, name
                if name.startswith(("read", "search", "open", "look", "remember")):
                    assert json.loads(reported) == result.structured_content

        ask(build_server(tree), work)

    def test_cost_a_model_no_more_than_1550_tokens(self, tree: KeywordTree) -> None:
        tools = ask(build_server(tree), lambda client: client.list_tools()).tools
        shown = [{"name": each.name, "description": each.description, "schema": each.input_schema} for each in tools]

        # 3.7 characters of them are a token, as o200k_base counts
        assert sum(len(json.dumps(each)) for each in shown) / 3.7 <= 1_550

    def test_results_have_a_limit_in_bytes(self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch) -> None:
        limit = 50_000
        monkeypatch.setattr(graph, "RESULT_BYTES", limit)
        big = [{**ADA, "name": f"e{n}", "observations": ["知" * 5_000]} for n in range(20)]
        call(tree, "create_entities", entities=[*big, {**ADA, "observations": [f"{n} " * 10 for n in range(1_100)]}])
        for name, arguments in (
            ("read_graph", {}),
            ("search_nodes", {"query": "知"}),
            ("open_nodes", {"names": ["Ada"]}),
        ):
            result = call(tree, name, **arguments)
            reported = result.structured_content
            assert len(result.content[0].text.encode()) <= limit, name
            assert reported["entities"], name
            assert reported["omitted"]["entities"] or reported["omitted"]["observations"], name


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "arguments", "said"),
        [
            ("create_entities", {"entities": [{**ADA, "name": " "}]}, "not be blank: ' '"),
            ("add_observations", {"observations": [{"entityName": "Eve", "contents": ["x"]}]}, "name Eve not found"),
            ("look_beneath", {"id": "missing"}, "no keyword has the id 'missing'"),
            ("undo", {"operation_id": "nothing"}, "no operation has the id 'nothing'"),
            ("create_entities", {"entities": [{**ADA, "observations": ["\ud800"]}]}, ""),
            ("create_entities", {"entities": [{"name": "x"}]}, "entities.0.entityType"),
            ("remember", {"content": "x", "keywords": "茶"}, "Input should be a valid list"),
            ("history", {"id": "missing"}, "nothing is called 'missing'"),
            ("remember", {"content": "   ", "keywords": ["茶"]}, "nothing to remember"),
        ],
    )
    def test_name_what_cannot_be_used(self, tree: KeywordTree, name: str, arguments: Any, said: str) -> None:
        result = call(tree, name, **arguments)

        assert result.is_error
        assert said in result.content[0].text
        assert tree.TreeMetrics()["keywords"] == 0

    def test_a_failing_disk_is_reported_without_the_folder(
        self, tree: KeywordTree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = build_server(tree)

        def fail(*_: object) -> None:
            raise StoreError(f"cannot write {tree.data_dir}", outcome_unknown=True)

        monkeypatch.setattr(tree, "BatchCreateKeywords", fail)
        result = ask(server, lambda client: client.call_tool("create_entities", {"entities": [ADA]}))

        assert result.is_error
        assert tree.data_dir not in result.content[0].text
        assert "not known" in result.content[0].text
        assert tree.data_dir in caplog.text


class TestRecall:
    def test_a_host_gets_an_answer_in_one_call(self, tmp_path: Path) -> None:
        facts = {
            "Ada is allergic to peanuts.": ("What must I not cook for Ada, who is allergic?", "Ada"),
            "The deploy of Lighthouse is on Thursday.": ("When is the deploy of Lighthouse?", "Lighthouse"),
            "小林的生日是三月七日。": ("小林的生日是哪天？", ""),
        }

        async def work(client: Any) -> list[Any]:
            for content, (_, keyword) in facts.items():
                on = {"keywords": [keyword]} if keyword else {}
                done = await client.call_tool("remember", {"content": content, **on})
                assert done.structured_content["made"] == [*on.get("keywords", [])]
            asked = [await client.call_tool("recall", {"question": question}) for question, _ in facts.values()]
            return [each.structured_content["facts"][0] for each in asked]

        found = ask(program(tmp_path), work)
        assert [fact["content"] for fact in found] == list(facts)
        assert [fact["path"] for fact in found] == [["Ada"], ["Lighthouse"], []]
        assert all(fact["id"] and fact["source"] == "" for fact in found)

    @pytest.mark.parametrize("others", [0, 5, 10, 20, 50, 100, 200, 500])
    def test_words_of_two_observations_are_found_among_any_number_of_others(
        self, tree: KeywordTree, others: int
    ) -> None:
        walks = [f"note {number} about topic {number * 7} and colour {number * 13}" for number in range(others)]
        unrelated = [{"name": f"E{n}", "entityType": "thing", "observations": [walk]} for n, walk in enumerate(walks)]
        ada = {"name": "Ada", "entityType": "person", "observations": ["plays chess", "lives in Rome"]}
        call(tree, "create_entities", entities=[*unrelated, ada])

        found = call(tree, "search_nodes", query="chess Rome").structured_content["entities"]
        assert [entity["name"] for entity in found] == ["Ada"]


class TestResource:
    @pytest.mark.parametrize("mode", ["legacy", "auto"])
    def test_is_the_graph_as_json(self, tree: KeywordTree, mode: str) -> None:
        call(tree, "create_entities", entities=[ADA])
        result = ask(build_server(tree), lambda client: client.read_resource(RESOURCE), mode=mode)

        assert json.loads(result.contents[0].text) == {"entities": [ADA], "relations": []}
        assert result.contents[0].mime_type == "application/json"

    @pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
    def test_who_subscribed_hears_of_changes_until_unsubscribed(self, tree: KeywordTree) -> None:
        seen: list[str] = []

        async def hear(message: Any) -> None:
            if type(message).__name__ == "ResourceUpdatedNotification":
                seen.append(str(message.params.uri))

        async def work(client: Any) -> None:
            assert client.server_capabilities.resources.subscribe
            await client.call_tool("create_entities", {"entities": [ADA]})
            await client.subscribe_resource(RESOURCE)
            await client.call_tool("add_observations", {"observations": [{"entityName": "Ada", "contents": ["x"]}]})
            await client.call_tool("read_graph", {})
            await client.unsubscribe_resource(RESOURCE)
            await client.call_tool("delete_entities", {"entityNames": ["Ada"]})

        ask(build_server(tree), work, mode="legacy", message_handler=hear)
        assert seen == [RESOURCE]

    def test_who_listens_hears_of_changes(self, tree: KeywordTree) -> None:
        async def work(client: Any) -> str:
            async with client.listen(resource_subscriptions=[RESOURCE]) as seen:
                await client.call_tool("create_entities", {"entities": [ADA]})
                return str((await anext(aiter(seen))).uri)

        assert ask(build_server(tree), work) == RESOURCE


class TestPrograms:
    def test_two_servers_on_one_folder_lose_nothing(self, tmp_path: Path) -> None:
        async def write(name: str) -> None:
            async with mcp.Client(program(tmp_path / "memory")) as client:
                await client.call_tool("create_entities", {"entities": [{**ADA, "observations": []}]})
                for number in range(WRITES):
                    contents = {"entityName": "Ada", "contents": [f"{name} {number}"]}
                    result = await client.call_tool("add_observations", {"observations": [contents]})
                    assert not result.is_error, result

        async def both() -> None:
            await asyncio.gather(write("a"), write("b"))

        asyncio.run(both())
        with KeywordTree(str(tmp_path / "memory")) as tree:
            assert tree.TreeMetrics()["infos"] == 2 * WRITES
            assert tree.TreeMetrics()["keywords"] == 2  # one Ada, one type
            assert tree.Verify() == []

    def test_a_host_that_is_killed_in_mid_call_loses_nothing_that_was_answered(self, tmp_path: Path) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "Agent.cli.command_line", "mcp", str(tmp_path / "memory")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
        )
        begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        messages: list[dict[str, Any]] = [{"id": 0, "method": "initialize", "params": begin}]
        messages.append({"method": "notifications/initialized"})
        for number in range(1, 200):
            entities = {"entities": [{"name": f"e{number}", "entityType": "t", "observations": ["x"]}]}
            messages.append(
                {"id": number, "method": "tools/call", "params": {"name": "create_entities", "arguments": entities}}
            )
        lines = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        answered = [json.loads(process.stdout.readline())["id"] for _ in range(20)]
        process.stdin.close()
        process.stdout.close()  # the pipe is gone, in the middle of the calls
        process.wait(60)

        with KeywordTree(str(tmp_path / "memory")) as tree:
            for number in set(answered) - {0}:
                found = tree.Search(f"t/e{number}")
                assert [info.content for info in found.infos] == ["x"]
            assert tree.TreeMetrics()["infos"] == tree.TreeMetrics()["keywords"] - 1  # each is whole
            assert tree.Verify() == []

    def test_the_file_of_the_reference_server_is_taken_in(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "memory.jsonl"
        file.write_text(json.dumps({"type": "entity", **ADA}), encoding="utf-8")
        monkeypatch.setenv("MEMORY_FILE_PATH", str(file))
        served: list[Any] = []
        eve = {"name": "Eve", "entityType": "person", "observations": []}

        def serve(server: Any, port: int | None) -> None:
            served.append(ask(server, lambda client: client.call_tool("read_graph", {})).structured_content["entities"])
            ask(server, lambda client: client.call_tool("create_entities", {"entities": [eve]}))

        monkeypatch.setattr(sdk, "run", serve)
        monkeypatch.setattr(items, "KEPT_FROM", 1)
        for _ in range(2):
            assert main([str(tmp_path / "memory")]) == 0

        assert served == [[ADA], [ADA, eve]]
        with KeywordTree(str(tmp_path / "memory")) as tree:  # the next one goes on from the last change
            kept = json.loads((tmp_path / "memory" / "indexes" / "mcp.json").read_bytes().partition(b" ")[2])
            assert kept["position"][0] == tree.History(limit=1)[0].seq

    def test_serves_on_the_loopback(self, tmp_path: Path) -> None:
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "Agent.cli.command_line", "mcp", str(tmp_path / "memory"), "--http", str(port)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            url = f"http://127.0.0.1:{port}/mcp"
            result = ask(url, lambda client: client.call_tool("create_entities", {"entities": [ADA]}))
            assert result.structured_content == {"entities": [ADA]}
            asyncio.run(self._undo_over(url))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)

    async def _undo_over(self, url: str) -> None:
        """See that each of two clients undoes its own last change, and that one without a session names it."""
        async with mcp.Client(url, mode="legacy") as ada, mcp.Client(url, mode="legacy") as eve:
            await eve.call_tool("place", {"name": "both", "parent_id": "root"})
            mine = await ada.call_tool("remember", {"content": "of ada", "keywords": ["both"]})
            theirs = await eve.call_tool("remember", {"content": "of eve", "keywords": ["both"]})
            undone = await ada.call_tool("undo", {})
            assert undone.structured_content["undone"] == mine.meta[OPERATION]
            assert (await ada.call_tool("undo", {})).is_error
            async with mcp.Client(url) as stranger:
                refused = await stranger.call_tool("undo", {})
                assert "name an operation" in refused.content[0].text
                id = theirs.structured_content["operation_id"]
                assert not (await stranger.call_tool("undo", {"operation_id": id})).is_error

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (["/dev/null/x"], 2, "/dev/null is no folder"),
            ([], 2, "FOLDER"),
            (["x", "--judge"], 2, "KEYWORD_TREE_MODEL"),
            (["x", "--http", "70000"], 2, "70000 is not in the range"),
        ],
    )
    def test_what_cannot_be_served_is_said(
        self, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(arguments) == code
        assert said in capsys.readouterr().err

    def test_a_memory_that_it_created_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sdk, "run", lambda server, port: None)  # as where the host ends it at once
        said = []
        for _ in range(2):
            assert main([str(tmp_path / "new")]) == 0
            said.append(capsys.readouterr().err)

        assert said == [f"there was no memory in {tmp_path / 'new'}: a new one was created\n", ""]

    def test_finds_by_meaning_unless_that_is_turned_off(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("numpy", reason="the extra [embeddings] is not installed")
        monkeypatch.setattr(embedder, "_installed", lambda: Meaning(HashingEmbedder([("zorp", "quux")]), 60.0))
        with KeywordTree(str(tmp_path)) as tree:
            tree.CreateInfo("The quux is blue.")
        found: list[int] = []

        async def ask(server: Any) -> None:
            async with mcp.Client(server) as client:
                answer = await client.call_tool("recall", {"question": "zorp"})
                found.append(len(answer.structured_content["facts"]))

        monkeypatch.setattr(sdk, "run", lambda server, port: asyncio.run(ask(server)))
        for arguments in ([], ["--no-meaning"]):
            assert main([str(tmp_path), *arguments]) == 0

        assert found == [1, 0]

    def test_the_module_is_a_program_too(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "Agent.adapters.mcp", str(tmp_path)]
        ended = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

        assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr

    def test_a_missing_package_is_named_with_the_command_that_brings_it(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with without("mcp", *(f"Agent.adapters.mcp.{name}" for name in ("sdk", "server"))):
            assert main(["x"]) == 2

        assert "pip install '.[mcp]'" in capsys.readouterr().err

    @pytest.mark.skipif(not FIRST_SDK.exists(), reason=f"the SDK 1.x is not in {FIRST_SDK}: `make test` puts it there")
    @pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
    def test_the_sdk_1_serves_the_same(self, tmp_path: Path) -> None:
        seen: list[str] = []

        async def hear(message: Any) -> None:
            seen.append(type(message).__name__)

        async def work(client: Any) -> Any:
            tools = (await client.list_tools()).tools
            assert client.server_capabilities.resources.subscribe
            await client.subscribe_resource(RESOURCE)
            made = await client.call_tool("create_entities", {"entities": [ADA]})
            assert OPERATION in made.meta
            wrong = await client.call_tool(
                "add_observations", {"observations": [{"entityName": "Eve", "contents": []}]}
            )
            assert wrong.is_error
            assert wrong.content[0].text.endswith("Entity with name Eve not found")
            resource = json.loads((await client.read_resource(RESOURCE)).contents[0].text)
            undone = await client.call_tool("undo", {})
            assert not undone.is_error, undone
            return tools, resource

        server = program(tmp_path / "memory", PYTHONPATH=str(FIRST_SDK))
        tools, resource = ask(server, work, mode="legacy", message_handler=hear)
        with KeywordTree(str(tmp_path / "other")) as tree:
            ours = ask(build_server(tree), lambda client: client.list_tools()).tools

        assert resource == {"entities": [ADA], "relations": []}
        assert seen.count("ResourceUpdatedNotification") == 2
        keys = ("name", "title", "description", "input_schema", "annotations")
        assert [[getattr(tool, key) for key in keys] for tool in tools] == [
            [getattr(tool, key) for key in keys] for tool in ours
        ]
